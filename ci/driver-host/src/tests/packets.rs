// SPDX-License-Identifier: GPL-2.0
//! Packets of datagrams, compared with the model's.

use crate::mad::{self, Said};
use crate::packet::{GRH, Header, grh, is_datagram, length, roce_mtu};
use berth_protocol::service::datagram::{Address, Receive, UdQp};
use berth_protocol::wire::net::{Ip, Ipv4};
use berth_protocol::wire::{Eth, emit, parse, parse_trusted};
use berth_random::{Rng, cases, seed};

/// As Linux has it.
fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    let mut all = crc32fast::Hasher::new_with_initial(!crc);
    all.update(bytes);
    !all.finalize()
}

fn random(rng: &mut Rng) -> (Header, Vec<u8>) {
    let mut mac = || rng.bytes(6).try_into().expect("six");
    let (to_mac, from_mac) = (mac(), mac());
    let header = Header {
        to_mac,
        from_mac,
        to_ip: rng.draw() as u32,
        from_ip: rng.draw() as u32,
        class: rng.draw() as u8,
        hops: rng.draw() as u8,
        solicited: rng.chance(0.5),
        to_qpn: rng.below(1 << 24) as u32,
        from_qpn: rng.below(1 << 24) as u32,
        qkey: rng.draw() as u32,
        psn: rng.below(1 << 24) as u32,
        immediate: rng.chance(0.5).then(|| (rng.draw() as u32).to_be_bytes()),
    };
    let most = if rng.chance(0.5) { 16 } else { 4096 };
    let bytes = rng.below(most + 1) as usize;
    (header, rng.bytes(bytes))
}

fn built(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; length(header.immediate.is_some(), data.len())];
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(data);
        Ok::<_, ()>(())
    };
    header.build(&mut frame, data.len(), fill, crc32).expect("it can be filled");
    frame
}

#[test]
fn qp_6_packets_are_those_of_the_model() {
    let seed = seed(11);
    for n in 0..cases(300) {
        let mut rng = Rng(seed.wrapping_add(n));
        let (header, data) = random(&mut rng);
        let frame = built(&header, &data);
        let ip = Ipv4 {
            from: header.from_ip.to_be_bytes(),
            to: header.to_ip.to_be_bytes(),
            traffic_class: header.class,
            id: 0,
            df: true,
            ttl: header.hops,
        };
        let (packet, _) = parse(&frame).unwrap_or_else(|e| panic!("seed {seed}, case {n}: {e:?}"));
        let address = Address {
            eth: Eth { to: header.to_mac, from: header.from_mac },
            ip: Ip::V4(ip),
            source_port: packet.source_port,
            qpn: header.to_qpn,
            // The driver has looked which Q_Key it is.
            qkey: header.qkey & !(1 << 31),
        };
        let mut qp = UdQp::<1>::new(header.from_qpn, header.qkey, 4096, header.psn);
        let address = if header.qkey >> 31 != 0 { Address { qkey: 1 << 31, ..address } } else { address };
        let imm = header.immediate.map(u32::from_be_bytes);
        let model = qp.send(&address, data.len() as u32, imm, header.solicited).expect("it is sound");
        let mut out = vec![0; 5000];
        let bytes = emit(&model, &[&data], &mut out).expect("it fits");
        assert_eq!(frame, out[..bytes], "seed {seed}, case {n}");
    }
}

#[test]
fn qp_6_packets_that_come_are_read_as_the_model_reads_them() {
    let seed = seed(11);
    for n in 0..cases(2000) {
        let mut rng = Rng(seed.wrapping_add(n));
        let (header, data) = random(&mut rng);
        let mut frame = built(&header, &data);
        // Ethernet's padding, and sometimes damage in the headers behind the addresses; the card has checked the rest.
        frame.resize(frame.len().max(60), 0);
        let damaged = rng.chance(0.5);
        if damaged {
            let at = rng.between(12, 61) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
            if rng.chance(0.2) {
                frame.truncate(rng.below(frame.len() as u64) as usize);
            }
        }
        let read = Header::parse(&frame);
        if !damaged {
            let (got, place) = read.clone().expect("it is sound");
            assert_eq!((got, &frame[place]), (header, &data[..]), "seed {seed}, case {n}");
        }
        let Some((got, place)) = read else { continue };
        assert!(is_datagram(&frame));
        let words = format!("seed {seed}, case {n}");
        // What the driver takes, the model takes as well, and finds the same in it.
        let Ok((packet, payload)) = parse_trusted(&frame) else {
            // Checksums of IPv4 are the network's, and no length that both look at is wrong.
            continue;
        };
        let mut qp = UdQp::<1>::new(got.to_qpn, got.qkey, 4096, 0);
        qp.post(Receive { id: 7, len: (GRH + payload.len()) as u32 });
        let taken = qp.arrived(&packet, payload.len() as u32).expect(&words);
        assert_eq!(payload, &frame[place], "{words}");
        assert_eq!((taken.source_qpn, taken.solicited), (got.from_qpn, got.solicited), "{words}");
        assert_eq!(taken.imm, got.immediate.map(u32::from_be_bytes), "{words}");
        if !damaged {
            assert_eq!(taken.header, grh(&frame), "{words}");
        }
    }
}

#[test]
fn qp_6_the_path_mtu_leaves_room_for_the_headers() {
    let all = [68, 607, 608, 1500, 2143, 2144, 4191, 4192, 9000].map(roce_mtu);
    assert_eq!(all, [256, 256, 512, 1024, 1024, 2048, 2048, 4096, 4096]);
}

#[test]
fn qp_14_a_berth_answers_and_whoever_has_no_such_class_is_none() {
    let question = mad::question(77);
    assert_eq!(mad::read(&question), Some((Said::Asks, 77)));
    assert_eq!(mad::read(&mad::answer(77)), Some((Said::Answers(true), 77)));
    // As Linux answers for a class that nobody has.
    let mut refused = question;
    (refused[3], refused[5]) = (0x81, 0x0c);
    assert_eq!(mad::read(&refused), Some((Said::Answers(false), 77)));
    let changed = |mad: [u8; 256], at: usize| {
        let mut mad = mad;
        mad[at] ^= 1;
        mad::read(&mad)
    };
    // Another version, another vendor, another attribute: a Berth that cannot be talked to, or none.
    for at in [17, 38, 43] {
        assert_eq!(changed(question, at), None, "{at}");
        assert_eq!(changed(mad::answer(77), at), Some((Said::Answers(false), 77)), "{at}");
    }
    // Another class, or another method: somebody else's.
    for at in [0, 1, 2, 3] {
        assert_eq!(changed(question, at), None, "{at}");
        assert_eq!(changed(mad::answer(77), at), None, "{at}");
    }
    assert_eq!(mad::read(&question[..255]), None);
}
