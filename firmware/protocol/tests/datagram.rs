// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unreliable and raw datagram, and small end nodes.

use berth_protocol::service::datagram::{
    Abilities, Address, Dropped, Filter, FilterError, Filters, NETWORK_HEADER, Node, RawQp, Receive, SendError,
    Steered, UdQp,
};
use berth_protocol::wire::opcode::{Opcode, Operation, Service};
use berth_protocol::wire::{Eth, Ip, Ipv4, Ipv6, Nak, Packet, emit, parse};
use std::collections::VecDeque;

mod common;
use proptest::prelude::*;

const A: Node = Node { mac: [2, 0, 0, 0, 0, 1], ipv4: [192, 0, 2, 1], ipv6: [1; 16] };
const B: Node = Node { mac: [2, 0, 0, 0, 0, 2], ipv4: [192, 0, 2, 2], ipv6: [2; 16] };

fn address(qpn: u32, qkey: u32) -> Address {
    Address {
        eth: Eth { to: B.mac, from: A.mac },
        ip: Ip::V4(Ipv4::new(A.ipv4, B.ipv4)),
        source_port: 0xc000,
        qpn,
        qkey,
    }
}

fn bytes(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 5000];
    let n = emit(packet, &[payload], &mut out).unwrap();
    out.truncate(n);
    out
}

#[test]
fn qp_6_a_datagram_arrives_with_its_senders_address_and_immediate() {
    let mut a = UdQp::<4>::new(0x11, 0x1234, 1024, 0xff_ffff);
    let mut b = UdQp::<4>::new(0x22, 0x5678, 1024, 0);
    assert!(b.post(Receive { id: 7, len: 100 }));
    let packet = a.send(&address(0x22, 0x5678), 5, Some(42), true).unwrap();
    let frame = bytes(&packet, b"hello");
    let (packet, payload) = parse(&frame).unwrap();
    assert_eq!((payload, packet.bth.qpn, packet.bth.psn), (&b"hello"[..], 0x22, 0xff_ffff));
    let got = b.arrived(&packet, 5).unwrap();
    assert_eq!((got.id, got.len, got.imm, got.source_qpn, got.solicited), (7, 45, Some(42), 0x11, true));
    // The network header as it was on the wire, behind 20 bytes of zeros.
    assert_eq!(got.header[..20], [0; 20]);
    assert_eq!(got.header[20..], frame[14..34]);
    // PSNs go on, modulo 2^24.
    assert_eq!(a.send(&address(0x22, 0x5678), 0, None, false).unwrap().bth.psn, 0);
    assert_eq!(b.posted(), 0);
}

#[test]
fn qp_6_the_ipv6_header_is_given_too() {
    let mut a = UdQp::<1>::new(1, 9, 256, 0);
    let mut b = UdQp::<1>::new(2, 9, 256, 0);
    b.post(Receive { id: 1, len: 60 });
    let to = Address { ip: Ip::V6(Ipv6 { flow: 0xabcde, ..Ipv6::new(A.ipv6, B.ipv6) }), ..address(2, 9) };
    let frame = bytes(&a.send(&to, 3, None, false).unwrap(), b"abc");
    let got = b.arrived(&parse(&frame).unwrap().0, 3).unwrap();
    assert_eq!(got.header[..], frame[14..54]);
}

#[test]
fn qp_6_a_wrong_key_or_service_or_partition_is_dropped_and_counted() {
    let mut a = UdQp::<1>::new(1, 0x8000_0007, 256, 0);
    let mut b = UdQp::<1>::new(2, 5, 256, 0);
    b.post(Receive { id: 1, len: 100 });
    let good = a.send(&address(2, 5), 0, None, false).unwrap();
    let wrong = a.send(&address(2, 6), 0, None, false).unwrap();
    assert_eq!(b.arrived(&wrong, 0), Err(Dropped::Qkey));
    let mut other = good;
    other.bth.opcode = Opcode::rc(Operation::SendOnly);
    assert_eq!(b.arrived(&other, 0), Err(Dropped::Opcode));
    let mut other = good;
    other.bth.pkey = 0x8001;
    assert_eq!(b.arrived(&other, 0), Err(Dropped::Pkey));
    assert_eq!((b.counters.qkey, b.counters.opcode, b.counters.pkey), (1, 1, 1));
    assert_eq!(b.posted(), 1, "nothing was used up");
    assert!(b.arrived(&good, 0).is_ok());
    // With bit 31 the QP's own key is sent: the process need not know it.
    assert_eq!(a.send(&address(2, 1 << 31), 0, None, false).unwrap().ext.deth.unwrap().qkey, 0x8000_0007);
}

#[test]
fn qp_6_a_datagram_without_a_receive_that_fits_is_dropped_and_counted() {
    let mut a = UdQp::<2>::new(1, 5, 256, 0);
    let mut b = UdQp::<2>::new(2, 5, 256, 0);
    let packet = a.send(&address(2, 5), 10, None, false).unwrap();
    assert_eq!(b.arrived(&packet, 10), Err(Dropped::NoReceive));
    assert!(b.post(Receive { id: 1, len: NETWORK_HEADER + 9 }));
    assert!(b.post(Receive { id: 2, len: 1000 }));
    assert!(!b.post(Receive { id: 3, len: 1000 }), "two are the most");
    assert_eq!(b.arrived(&packet, 10), Err(Dropped::TooLong));
    assert_eq!(b.arrived(&packet, 9).unwrap().id, 1, "the small receive was kept");
    assert_eq!(b.arrived(&packet, 10).unwrap().id, 2);
    assert_eq!((b.counters.no_receive, b.counters.too_long), (1, 1));
}

#[test]
fn qp_6_what_is_no_single_packet_is_refused() {
    let mut a = UdQp::<1>::new(1, 5, 256, 3);
    let before = a.clone();
    assert_eq!(a.send(&address(2, 5), 257, None, false), Err(SendError::TooLong));
    assert_eq!(a.send(&address(1 << 24, 5), 1, None, false), Err(SendError::Qpn));
    assert_eq!(a, before);
}

/// What happens next to a QP.
#[derive(Clone, Debug)]
enum Op {
    /// A receive of so many bytes is posted.
    Post(u32),
    /// A frame, or a datagram, of so many bytes arrives.
    Arrive(u32),
    /// A datagram with another key arrives.
    Stray(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![4 => (0u32..200).prop_map(Op::Post), 4 => (0u32..200).prop_map(Op::Arrive), 1 => (0u32..200).prop_map(Op::Stray)]
}

/// The reference of both: receives in the order of posting, the first of which takes what fits.
fn fill(posted: &mut VecDeque<(u64, u32)>, len: u32) -> Result<u64, Dropped> {
    match posted.front() {
        None => Err(Dropped::NoReceive),
        Some((_, room)) if len > *room => Err(Dropped::TooLong),
        Some((id, _)) => {
            let id = *id;
            posted.pop_front();
            Ok(id)
        }
    }
}

proptest! {
    #![proptest_config(common::config(256))]

    #[test]
    fn qp_6_receives_are_filled_in_the_order_of_posting(ops in prop::collection::vec(op(), 0..200)) {
        let mut raw = RawQp::<8>::new(1500);
        let mut a = UdQp::<1>::new(1, 7, 1024, 0);
        let mut b = UdQp::<8>::new(2, 5, 1024, 0);
        let (mut in_raw, mut in_ud) = (VecDeque::new(), VecDeque::new());
        for (id, op) in (0..).zip(&ops) {
            match *op {
                Op::Post(len) => {
                    for (queue, taken) in [
                        (&mut in_raw, raw.post(Receive { id, len })),
                        (&mut in_ud, b.post(Receive { id, len })),
                    ] {
                        prop_assert_eq!(taken, queue.len() < 8);
                        if taken {
                            queue.push_back((id, len));
                        }
                    }
                }
                Op::Arrive(len) => {
                    prop_assert_eq!(raw.arrived(len).map(|r| r.id), fill(&mut in_raw, len));
                    let packet = a.send(&address(2, 5), len, None, false).unwrap();
                    prop_assert_eq!(b.arrived(&packet, len).map(|r| r.id), fill(&mut in_ud, len + NETWORK_HEADER));
                }
                Op::Stray(len) => {
                    let packet = a.send(&address(2, 6), len, None, false).unwrap();
                    prop_assert_eq!(b.arrived(&packet, len).map(|r| r.id), Err(Dropped::Qkey));
                }
            }
            prop_assert_eq!(b.posted(), in_ud.len());
        }
    }
}

/// An Ethernet frame with IPv4 and ports.
fn ipv4(to: &Node, protocol: u8, port: u16, fragment: u16) -> Vec<u8> {
    let mut f = [&to.mac[..], &A.mac, &[8, 0]].concat();
    let mut ip = vec![0x45, 0, 0, 40, 0, 0];
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0]);
    ip.extend(A.ipv4);
    ip.extend(to.ipv4);
    let sum = berth_protocol::wire::net::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    f.extend(ip);
    f.extend([0x99, 0x99]);
    f.extend(port.to_be_bytes());
    f.extend([0; 16]);
    f
}

#[test]
fn qp_6_filters_steer_protocols_to_queue_pairs() {
    let mut filters = Filters::<4>::default();
    let dns = Filter { protocol: Some(17), port: Some(53), ..Default::default() };
    let http = Filter { protocol: Some(6), port: Some(80), ..Default::default() };
    let any_v4 = Filter { ether_type: Some(0x0800), ..Default::default() };
    let other_mac = Filter { to: Some([4; 6]), ..Default::default() };
    filters.add(dns, 10).unwrap();
    filters.add(http, 11).unwrap();
    filters.add(any_v4, 12).unwrap();
    assert_eq!(filters.add(dns, 13), Err(FilterError::Taken));
    assert_eq!(filters.add(Filter { port: Some(1), ..Default::default() }, 13), Err(FilterError::Port));
    filters.add(other_mac, 13).unwrap();
    assert_eq!(filters.add(Filter::default(), 14), Err(FilterError::Full));

    let steer = |filters: &Filters<4>, frame: &[u8]| filters.steer(frame, &B);
    assert_eq!(steer(&filters, &ipv4(&B, 17, 53, 0)), Steered::Qp(10));
    assert_eq!(steer(&filters, &ipv4(&B, 6, 80, 0x4000)), Steered::Qp(11));
    assert_eq!(steer(&filters, &ipv4(&B, 6, 81, 0)), Steered::Qp(12), "the more general one comes later");
    assert_eq!(steer(&filters, &ipv4(&B, 17, 53, 1)), Steered::Qp(12), "a later fragment has no port");
    let mut broken = ipv4(&B, 17, 53, 0);
    broken[24] ^= 1;
    assert_eq!(steer(&filters, &broken), Steered::Qp(12), "nothing is read from a broken header");
    // Frames to others: only a filter that names the address.
    let mut stray = ipv4(&B, 17, 53, 0);
    stray[..6].copy_from_slice(&[4; 6]);
    assert_eq!(steer(&filters, &stray), Steered::Qp(13));
    stray[..6].copy_from_slice(&[6; 6]);
    assert_eq!(steer(&filters, &stray), Steered::Nobody);
    stray[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(steer(&filters, &stray), Steered::Qp(10), "broadcast");
    assert_eq!(steer(&filters, &stray[..13]), Steered::Nobody);
    // IPv6.
    let mut v6 = [&B.mac[..], &A.mac, &[0x86, 0xdd], &[0x60, 0, 0, 0, 0, 4, 17, 64], &A.ipv6, &B.ipv6].concat();
    v6.extend([0, 1, 0, 53]);
    assert_eq!(steer(&filters, &v6), Steered::Qp(10));

    assert_eq!(filters.remove(10), 1);
    assert_eq!(filters.remove(10), 0);
    assert_eq!(steer(&filters, &ipv4(&B, 17, 53, 0)), Steered::Qp(12));
    assert_eq!(steer(&filters, &ipv4(&B, 6, 80, 0)), Steered::Qp(11));
}

#[test]
fn qp_6_no_filter_takes_the_cards_own_frames() {
    let mut filters = Filters::<1>::new();
    filters.add(Filter::default(), 9).unwrap();
    assert_eq!(filters.steer(&ipv4(&B, 17, 4791, 0), &B), Steered::Card);
    let mut arp = ipv4(&B, 0, 0, 0);
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(filters.steer(&arp, &B), Steered::Card);
    // To another IP address: not the card's.
    let mut other = ipv4(&A, 17, 4791, 0);
    other[..6].copy_from_slice(&B.mac);
    assert_eq!(filters.steer(&other, &B), Steered::Qp(9));
    let v6 = [&B.mac[..], &A.mac, &[0x86, 0xdd], &[0x60, 0, 0, 0, 0, 4, 17, 64], &A.ipv6, &B.ipv6].concat();
    assert_eq!(filters.steer(&[&v6[..], &[0, 1, 0x12, 0xb7]].concat(), &B), Steered::Card);
}

#[test]
fn qp_6_raw_frames_are_sent_as_they_are_but_not_in_anothers_name() {
    let qp = RawQp::<1>::new(100);
    let frame = ipv4(&B, 17, 53, 0);
    assert_eq!(qp.send(&frame, &A), Ok(60));
    assert_eq!(qp.send(&frame[..13], &A), Err(SendError::TooShort));
    assert_eq!(qp.send(&[frame.clone(), vec![0; 60]].concat(), &A), Ok(114));
    assert_eq!(qp.send(&[frame.clone(), vec![0; 61]].concat(), &A), Err(SendError::TooLong));
    assert_eq!(qp.send(&frame, &B), Err(SendError::Source));
    assert_eq!(qp.send(&ipv4(&B, 17, 4791, 0), &A), Err(SendError::Protected));
}

#[test]
fn qp_16_an_adapter_refuses_inbound_rdma_and_goes_on() {
    let rc = Opcode::rc;
    for operation in Operation::ALL.into_iter().filter(|o| *o != Operation::Resync) {
        let rdma = operation.is_write()
            || [Operation::ReadRequest, Operation::CompareSwap, Operation::FetchAdd].contains(&operation);
        assert!(Abilities::HOST.admits(rc(operation)).is_ok());
        let answer = if rdma { Err(Nak::InvalidRequest) } else { Ok(()) };
        assert_eq!(Abilities::ADAPTER.admits(rc(operation)), answer, "{operation:?}");
    }
    for opcode in [Opcode::rd(Operation::SendOnly), Opcode::ud(Operation::SendOnly)] {
        assert!(Abilities::HOST.admits(opcode).is_ok());
        assert!(Abilities::ADAPTER.admits(opcode).is_err());
    }
    assert!(Abilities::HOST.admits(Opcode::new(Service::Uc, Operation::SendOnly)).is_err());
    assert!(Abilities::HOST.admits(Opcode(0xff)).is_err());
}
