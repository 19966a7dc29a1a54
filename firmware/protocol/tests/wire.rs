// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wire formats: what is emitted parses to the same fields, bytes are the specification's,
//! bad frames are refused for the reason that they have.

mod common;

use berth_protocol::wire::berth::{Placement, Sack};
use berth_protocol::wire::ext::{credit_code, credit_count, rnr_code, rnr_microseconds};
use berth_protocol::wire::net::checksum;
use berth_protocol::wire::opcode::{Operation, Service};
use berth_protocol::wire::{
    Aeth, AtomicEth, Bth, CNP_PAYLOAD, Deth, Error, Eth, Extended, Ip, Ipv4, Ipv6, MAX_HEADERS, MAX_PAYLOAD, Nak,
    Opcode, Packet, Reth, Syndrome, emit, icrc, parse, parse_trusted,
};
use proptest::prelude::*;

/// All opcodes that have a layout.
fn opcodes() -> Vec<Opcode> {
    (0..=255).map(Opcode).filter(|o| o.layout().is_some()).collect()
}

fn payload_len(opcode: Opcode) -> BoxedStrategy<usize> {
    match opcode.operation() {
        None if opcode == Opcode::SELECTIVE_ACKNOWLEDGE => Just(Sack::BYTES).boxed(),
        None => Just(CNP_PAYLOAD).boxed(),
        Some(_) if opcode.check_payload(1).is_err() => Just(0).boxed(),
        Some(_) => prop_oneof![0_usize..64, 0..=MAX_PAYLOAD].boxed(),
    }
}

fn ip() -> impl Strategy<Value = Ip> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u8>(), any::<u16>(), any::<bool>(), any::<u8>())
        .prop_map(|(from, to, traffic_class, id, df, ttl)| Ip::V4(Ipv4 { from, to, traffic_class, id, df, ttl }));
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>(), 0_u32..1 << 20, any::<u8>())
        .prop_map(|(from, to, traffic_class, flow, hops)| Ip::V6(Ipv6 { from, to, traffic_class, flow, hops }));
    prop_oneof![v4, v6]
}

fn ext(opcode: Opcode) -> impl Strategy<Value = Extended> {
    let layout = opcode.layout().unwrap();
    (
        (0_u32..1 << 24, any::<u32>(), 0_u32..1 << 24),
        (any::<u64>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>()),
        (any::<u8>(), 0_u32..1 << 24, any::<u64>(), any::<u32>(), any::<u32>()),
    )
        .prop_map(move |(a, b, c)| Extended {
            eec: layout.rdeth.then_some(a.0),
            deth: layout.deth.then_some(Deth { qkey: a.1, source_qpn: a.2 }),
            reth: layout.reth.then_some(Reth { va: b.0, rkey: b.1, len: b.2 }),
            atomic: layout.atomic.then_some(AtomicEth { va: b.0, rkey: b.1, swap_add: b.3, compare: b.4 }),
            aeth: layout.aeth.then_some(Aeth { syndrome: Syndrome::from_bits(c.0), msn: c.1 }),
            atomic_ack: layout.atomic_ack.then_some(c.2),
            imm: layout.imm.then_some(c.3),
            invalidate: layout.ieth.then_some(c.4),
        })
}

fn packet() -> impl Strategy<Value = (Packet, Vec<u8>)> {
    proptest::sample::select(opcodes()).prop_flat_map(|opcode| {
        let bth = (any::<[bool; 5]>(), any::<u16>(), 0_u32..1 << 24, 0_u32..1 << 24).prop_map(
            move |([solicited, migrated, fecn, becn, ack_request], pkey, qpn, psn)| Bth {
                opcode,
                solicited,
                migrated,
                pkey,
                fecn,
                becn,
                qpn,
                ack_request,
                psn,
            },
        );
        let payload = payload_len(opcode).prop_flat_map(|n| proptest::collection::vec(any::<u8>(), n));
        (any::<[u8; 6]>(), any::<[u8; 6]>(), ip(), any::<u16>(), bth, ext(opcode), payload).prop_map(
            |(to, from, ip, source_port, bth, ext, payload)| {
                (Packet { eth: Eth { to, from }, ip, source_port, bth, ext }, payload)
            },
        )
    })
}

fn frame(p: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xa5; MAX_HEADERS + MAX_PAYLOAD + 8];
    let n = emit(p, &[payload], &mut out).unwrap();
    out.truncate(n);
    out
}

proptest! {
    #![proptest_config(common::config(256))]

    #[test]
    fn what_is_emitted_parses_to_the_same_fields((p, payload) in packet(), cut in any::<prop::sample::Index>()) {
        let bytes = frame(&p, &payload);
        prop_assert_eq!(parse(&bytes), Ok((p, &payload[..])));
        prop_assert_eq!(parse_trusted(&bytes), Ok((p, &payload[..])));
        // Gathered from two parts it is the same; so it is with Ethernet padding behind.
        let (a, b) = payload.split_at(cut.index(payload.len() + 1));
        let mut out = vec![0; bytes.len()];
        prop_assert_eq!(emit(&p, &[a, b], &mut out), Ok(bytes.len()));
        prop_assert_eq!(&out, &bytes);
        out.extend([0xee; 5]);
        prop_assert_eq!(parse(&out), Ok((p, &payload[..])));
        // One byte less and there is no room.
        let mut small = vec![0; bytes.len() - 1];
        prop_assert_eq!(emit(&p, &[&payload], &mut small), Err(Error::Room));
    }

    #[test]
    fn a_frame_cut_short_is_refused((p, payload) in packet(), cut in any::<prop::sample::Index>()) {
        let bytes = frame(&p, &payload);
        prop_assert!(parse(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_have_a_defined_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
        let _ = parse_trusted(&bytes);
    }

    #[test]
    fn one_changed_byte_is_refused_but_where_routers_may_change_it(
        (p, payload) in packet(), at in any::<prop::sample::Index>(), by in 1_u8..
    ) {
        let mut bytes = frame(&p, &payload);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let same = parse(&bytes);
        let ip = match p.ip { Ip::V4(_) => 20, Ip::V6(_) => 40 };
        // Ethernet addresses, UDP checksum, congestion marks of the BTH; IPv6's class, label and hops.
        let free = at < 12 || at == 14 + ip + 6 || at == 14 + ip + 7 || at == 14 + ip + 12
            || ip == 40 && ((15..18).contains(&at) || at == 21 || at == 14 && by & 0xf0 == 0);
        prop_assert_eq!(same.is_ok(), free, "byte {}: {:?}", at, same);
    }

    #[test]
    fn whatever_parses_is_emitted_to_a_frame_that_parses_to_the_same(
        (p, payload) in packet(), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
    ) {
        let mut bytes = frame(&p, &payload);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok((q, body)) = parse_trusted(&bytes) {
            let again = frame(&q, body);
            prop_assert_eq!(parse(&again), Ok((q, body)));
        }
    }

    #[test]
    fn placement_and_sack_round_trip(credit in any::<u8>(), index in 0..=Placement::MAX_INDEX, bits in any::<u128>(), rest in any::<[u8; 3]>()) {
        let placement = Placement { credit, index };
        let mut bytes = placement.to_bytes().to_vec();
        bytes.extend(rest);
        prop_assert_eq!(Placement::split(&bytes), Some((placement, &rest[..])));
        prop_assert_ne!(&bytes[2..4], &[0, 0], "Wireshark would take the first two bytes for an EtherType");
        let mut bytes = Sack(bits).to_bytes().to_vec();
        bytes.extend(rest);
        prop_assert_eq!(Sack::split(&bytes), Some((Sack(bits), &rest[..])));
        let mut copy = Sack(0);
        for distance in 0..200 {
            if Sack(bits).has(distance) {
                copy.set(distance);
            }
        }
        prop_assert_eq!(copy, Sack(bits));
    }
}

fn sample() -> Packet {
    Packet {
        eth: Eth { to: [2, 0, 0, 0, 0, 2], from: [2, 0, 0, 0, 0, 1] },
        ip: Ip::V4(Ipv4::new([192, 0, 2, 1], [192, 0, 2, 2])),
        source_port: 0xc123,
        bth: Bth::new(Opcode::rc(Operation::SendOnly), 0x01_2345, 0xab_cdef),
        ext: Extended::NONE,
    }
}

#[test]
fn berth_headers_are_laid_out_as_documented() {
    assert_eq!(Placement { credit: 0xab, index: 0x01_0203 }.to_bytes(), [2, 4, 7, 0xab]);
    assert_eq!(Placement { credit: 0, index: Placement::MAX_INDEX }.to_bytes(), [0xff, 0xff, 0xff, 0]);
    assert_eq!(Placement::split(&[2, 4, 6, 0xab]), None, "bit 8 is always set");
    assert_eq!(Opcode::SELECTIVE_ACKNOWLEDGE.0, 0xc0 | Opcode::rc(Operation::Acknowledge).0);
    let mut sack = Sack(0);
    sack.set(1);
    sack.set(10);
    sack.set(128);
    sack.set(0);
    sack.set(129);
    assert_eq!(sack.to_bytes(), [0x80, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(sack.has(1) && sack.has(10) && sack.has(128) && !sack.has(0) && !sack.has(2) && !sack.has(129));
    assert_eq!(Sack::split(&[0; 15]), None);
    assert_eq!(Placement::split(&[0; 3]), None);
}

#[test]
fn the_invariant_crc_is_ethernets_crc_over_the_masked_packet() {
    let bytes = frame(&sample(), b"Berth");
    let mut masked = vec![0xff; 8];
    masked.extend(&bytes[14..bytes.len() - 4]);
    for at in [1, 8, 10, 11, 26, 27, 32] {
        masked[8 + at] = 0xff;
    }
    // Bit by bit, as Ethernet's CRC is defined: reflected polynomial 0xedb88320.
    let mut crc = !0_u32;
    for byte in masked {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    assert_eq!(bytes[bytes.len() - 4..], (!crc).to_le_bytes());
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let mut p = sample();
    p.bth.opcode = Opcode::rc(Operation::WriteOnlyImm);
    p.bth.ack_request = true;
    p.ext.reth = Some(Reth { va: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, len: 5 });
    p.ext.imm = Some(0xa1b2_c3d4);
    let bytes = frame(&p, &[9, 8, 7, 6, 5]);
    assert_eq!(bytes[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    assert_eq!(bytes[14..24], [0x45, 0, 0, 72, 0, 0, 0x40, 0, 64, 17]);
    assert_eq!(checksum(&bytes[14..34]), 0);
    assert_eq!(bytes[26..42], [192, 0, 2, 1, 192, 0, 2, 2, 0xc1, 0x23, 0x12, 0xb7, 0, 52, 0, 0]);
    assert_eq!(bytes[42..54], [0x0b, 0x30, 0xff, 0xff, 0, 1, 0x23, 0x45, 0x80, 0xab, 0xcd, 0xef]);
    assert_eq!(bytes[54..70], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 5]);
    assert_eq!(bytes[70..82], [0xa1, 0xb2, 0xc3, 0xd4, 9, 8, 7, 6, 5, 0, 0, 0]);
    assert_eq!(bytes.len(), 86);
}

#[test]
fn opcodes_have_the_headers_of_the_specification() {
    let bytes = |o: u8| Opcode(o).layout().map(|l| l.bytes());
    // RC: bytes of extended headers by opcode, 0x15 is not used.
    let rc = [0, 0, 0, 4, 0, 4, 16, 0, 0, 4, 16, 20, 16, 4, 0, 4, 4, 4, 12, 28, 28];
    for (o, n) in rc.into_iter().enumerate() {
        assert_eq!(bytes(o as u8), Some(n), "RC {o:#x}");
        let operation = Operation::ALL[o];
        let request = !operation.is_response();
        assert_eq!(bytes(0x40 | o as u8), Some(n + 4 + if request { 8 } else { 0 }), "RD {o:#x}");
        assert_eq!(bytes(0x20 | o as u8), (o <= 0x0b).then_some(n), "UC {o:#x}");
        assert_eq!(bytes(0x60 | o as u8), matches!(o, 4 | 5).then_some(n + 8), "UD {o:#x}");
    }
    assert_eq!((bytes(0x15), bytes(0x16), bytes(0x17), bytes(0x18)), (None, Some(4), Some(4), None));
    assert_eq!((bytes(0x55), bytes(0x56)), (Some(12), None));
    assert_eq!((bytes(0x80), bytes(0x81), bytes(0xa0)), (None, Some(0), None));
    for (i, operation) in Operation::ALL.into_iter().enumerate() {
        assert_eq!(operation as usize, i);
    }
    assert_eq!(Opcode::ud(Operation::SendOnly).service(), Some(Service::Ud));
    assert_eq!(Opcode::rd(Operation::Resync).operation(), Some(Operation::Resync));
    assert_eq!(Opcode(0xff).service(), None);
    assert_eq!(Opcode(0xff).check_payload(0), Err(Error::Opcode));
}

#[test]
fn first_and_last_packets_of_messages() {
    use Operation as O;
    let first: Vec<_> = O::ALL.into_iter().filter(|o| (o.is_send() || o.is_write()) && o.is_first()).collect();
    let wanted = [O::SendFirst, O::SendOnly, O::SendOnlyImm, O::WriteFirst, O::WriteOnly, O::WriteOnlyImm];
    assert_eq!(first, [&wanted[..], &[O::SendOnlyInvalidate]].concat());
    let open: Vec<_> = O::ALL.into_iter().filter(|o| !o.is_last()).collect();
    let wanted =
        [O::SendFirst, O::SendMiddle, O::WriteFirst, O::WriteMiddle, O::ReadResponseFirst, O::ReadResponseMiddle];
    assert_eq!(open, wanted);
}

#[test]
fn syndromes_credit_counts_and_rnr_times() {
    for bits in 0..=255 {
        assert_eq!(Syndrome::from_bits(bits).to_bits(), bits);
    }
    assert_eq!(Syndrome::from_bits(0x60), Syndrome::Nak(Nak::Sequence));
    assert_eq!(Syndrome::from_bits(0x1f), Syndrome::Ack(31));
    assert_eq!(Syndrome::from_bits(0x2c), Syndrome::Rnr(12));
    assert_eq!(Syndrome::from_bits(0x65), Syndrome::Reserved(0x65));
    let counts: Vec<_> = (0..=31).map(credit_count).collect();
    assert_eq!(counts[..8], [0, 1, 2, 3, 4, 6, 8, 12].map(Some));
    assert_eq!(counts[29..], [Some(24_576), Some(32_768), None]);
    for credits in [0, 1, 5, 7, 8, 100, 40_000] {
        let code = credit_code(credits);
        assert!(credit_count(code).unwrap() <= credits);
        assert!(credit_count(code + 1).is_none_or(|more| more > credits));
    }
    assert_eq!([0, 1, 4, 5, 14, 31].map(rnr_microseconds), [655_360, 10, 40, 60, 1280, 491_520]);
    assert_eq!([0, 10, 11, 41, 491_520, 491_521, u32::MAX].map(rnr_code), [1, 1, 2, 5, 31, 0, 0]);
}

#[test]
fn every_defect_has_its_own_reason() {
    let good = frame(&sample(), &[1, 2, 3, 4]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        if at >= 14 {
            // The IPv4 header's checksum stays right.
            bytes[24] = 0;
            bytes[25] = 0;
            let sum = checksum(&bytes[14..34]).to_be_bytes();
            bytes[24..26].copy_from_slice(&sum);
        }
        parse(&bytes).map(drop)
    };
    assert_eq!(with(26, good[26]), Ok(()));
    assert_eq!(parse(&good[..good.len() - 1]), Err(Error::Short));
    assert_eq!(with(12, 9), Err(Error::EtherType));
    assert_eq!(with(14, 0x46), Err(Error::IpHeader));
    assert_eq!(with(20, 0x20), Err(Error::Fragment));
    assert_eq!(with(23, 6), Err(Error::NotRoce));
    assert_eq!(with(17, 200), Err(Error::Short));
    assert_eq!(with(17, 19), Err(Error::Length));
    assert_eq!(with(37, 0xb8), Err(Error::NotRoce));
    assert_eq!(with(39, 1), Err(Error::Length));
    assert_eq!(with(42, 0xff), Err(Error::Opcode));
    assert_eq!(with(43, 1), Err(Error::Version));
    assert_eq!(with(54, 0), Err(Error::Icrc));
    let mut bytes = good.clone();
    bytes[24] ^= 1;
    assert_eq!(parse(&bytes), Err(Error::IpChecksum));
    // The pad count is more than there is.
    let mut empty = frame(&sample(), &[]);
    empty[43] = 0x10;
    assert_eq!(parse(&empty), Err(Error::Length));
    // An acknowledgement with a payload; one that should have a SACK and has less, or more.
    let mut p = sample();
    p.ext.aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: 0 });
    for (opcode, lens) in [(Opcode::rc(Operation::Acknowledge), [4, 16]), (Opcode::SELECTIVE_ACKNOWLEDGE, [0, 20])] {
        p.bth.opcode = opcode;
        for len in lens {
            assert_eq!(emit(&p, &[&[0; 20][..len]], &mut [0; 200]), Err(Error::Length));
        }
    }
}

#[test]
fn ipv6_defects() {
    let mut p = sample();
    p.ip = Ip::V6(Ipv6::new([1; 16], [2; 16]));
    assert_eq!(p.ip.ecn(), 0);
    let good = frame(&p, &[1, 2, 3, 4]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse(&bytes).map(drop)
    };
    assert_eq!(with(14, 0x40), Err(Error::IpHeader));
    assert_eq!(with(20, 6), Err(Error::NotRoce));
    assert_eq!(with(18, 1), Err(Error::Short));
    assert_eq!(with(14, 0x6f), Ok(()), "traffic class may change on the way");
    assert_eq!(icrc::compute(&[]), Err(Error::Short));
    assert_eq!(icrc::compute(&[0x50; 60]), Err(Error::IpHeader));
    assert_eq!(icrc::compute(&[0x45; 39]), Err(Error::Short));
}

#[test]
fn a_packet_that_does_not_fit_its_opcode_is_not_emitted() {
    let out = &mut [0; 5000];
    let mut p = sample();
    p.ext.imm = Some(1);
    assert_eq!(emit(&p, &[], out), Err(Error::Headers));
    let mut p = sample();
    p.bth.psn = 1 << 24;
    assert_eq!(emit(&p, &[], out), Err(Error::Range));
    let mut p = sample();
    p.ip = Ip::V6(Ipv6 { flow: 1 << 20, ..Ipv6::new([1; 16], [2; 16]) });
    assert_eq!(emit(&p, &[], out), Err(Error::Range));
    let mut p = sample();
    p.bth.opcode = Opcode(0x1f);
    assert_eq!(emit(&p, &[], out), Err(Error::Opcode));
    let long = [0; MAX_PAYLOAD];
    assert_eq!(emit(&sample(), &[&long, &[0; 5]], out), Err(Error::Length));
    assert!(emit(&sample(), &[&[0; 4], &long], out).is_ok(), "a placement header and a full MTU");
    assert_eq!(sample().ip.ecn(), 0);
    assert_eq!(Ipv4::new([0; 4], [0; 4]).to_bytes(u16::MAX), Err(Error::Length));
    // Odd lengths count a zero byte behind (RFC 1071).
    assert_eq!(checksum(&[1, 2, 3]), !(0x0102 + 0x0300));
}
