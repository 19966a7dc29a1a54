// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of the reliable connection's machines, as frames and back.

use berth_protocol::rc::{
    Kind, NakCode, Placement, Position, Remote, RequestPacket, ResponseBody, ResponsePacket, Syndrome,
};
use berth_protocol::wire::opcode::{Operation, Service};
use berth_protocol::wire::reliable::{Headers, emit_request, emit_response, parse_request, parse_response};
use berth_protocol::wire::{Bth, Error, Eth, Extended, Ip, Ipv4, Opcode, Packet, emit, parse};
use proptest::prelude::*;

mod common;

/// As a frame's bytes and parsed again.
fn through(headers: &Headers, flags: (bool, bool), psn: u32, payload: &[u8]) -> (Packet, Vec<u8>) {
    let bth = Bth { ack_request: flags.0, solicited: flags.1, ..Bth::new(headers.opcode, 17, psn) };
    let packet = Packet {
        eth: Eth { to: [2; 6], from: [4; 6] },
        ip: Ip::V4(Ipv4::new([192, 0, 2, 1], [192, 0, 2, 2])),
        source_port: 0xc000,
        bth,
        ext: headers.ext,
    };
    let mut frame = vec![0; 5000];
    let n = emit(&packet, &[headers.prefix(), payload], &mut frame).unwrap();
    let (packet, payload) = parse(&frame[..n]).unwrap();
    (packet, payload.to_vec())
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![Just(Position::First), Just(Position::Middle), Just(Position::Last), Just(Position::Only)]
}

fn request() -> impl Strategy<Value = (RequestPacket, bool)> {
    let kind = prop_oneof![
        Just(Kind::Send),
        Just(Kind::Write),
        Just(Kind::Read),
        Just(Kind::CompareSwap),
        Just(Kind::FetchAdd)
    ];
    let remote = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(va, key, len)| Remote { va, key, len });
    let common = (0_u32..1 << 24, any::<bool>(), any::<bool>(), any::<bool>());
    (
        kind,
        position(),
        (any::<Option<u32>>(), any::<bool>()),
        remote,
        any::<[u64; 2]>(),
        (any::<u8>(), 0..=Placement::MAX_INDEX),
        common,
        0_u32..4097,
    )
        .prop_map(
            |(
                kind,
                position,
                (word, invalidates),
                remote,
                operands,
                at,
                (psn, ack_request, solicited, selective),
                len,
            )| {
                let data = matches!(kind, Kind::Send | Kind::Write);
                let position = match kind {
                    Kind::Send => position,
                    Kind::Write if !selective => position,
                    _ => Position::Only,
                };
                let packet = RequestPacket {
                    psn,
                    kind,
                    position,
                    len: if data { len } else { 0 },
                    imm: word.filter(|_| data && position.ends() && !(invalidates && kind == Kind::Send)),
                    invalidate: word.filter(|_| kind == Kind::Send && position.ends() && invalidates),
                    remote: match kind {
                        Kind::Send => None,
                        Kind::Write => position.begins().then_some(remote),
                        Kind::Read => Some(remote),
                        _ => Some(Remote { len: 8, ..remote }),
                    },
                    operands: match kind {
                        Kind::CompareSwap => operands,
                        Kind::FetchAdd => [operands[0], 0],
                        _ => [0; 2],
                    },
                    placement: (data && selective).then_some(Placement { credit: at.0, index: at.1 }),
                    ack_request,
                    solicited,
                };
                (packet, selective)
            },
        )
}

fn response() -> impl Strategy<Value = (ResponsePacket, usize, bool)> {
    let syndrome = prop_oneof![
        (0_u8..32).prop_map(Syndrome::Ack),
        (0_u8..32).prop_map(Syndrome::Rnr),
        Just(Syndrome::Nak(NakCode::Sequence)),
        Just(Syndrome::Nak(NakCode::RemoteAccess)),
    ];
    let ack = (syndrome, any::<Option<u128>>()).prop_map(|(syndrome, sack)| {
        let sack = sack.filter(|_| matches!(syndrome, Syndrome::Ack(_)));
        (ResponseBody::Ack { syndrome, sack }, 0)
    });
    let read =
        (position(), 0_u32..4097).prop_map(|(position, len)| (ResponseBody::Read { position, len }, len as usize));
    let atomic = any::<u64>().prop_map(|original| (ResponseBody::Atomic { original }, 0));
    (prop_oneof![ack, read, atomic], 0_u32..1 << 24, 0_u32..1 << 24).prop_map(|((body, len), psn, msn)| {
        let middle = matches!(body, ResponseBody::Read { position: Position::Middle, .. });
        let selective = matches!(body, ResponseBody::Ack { sack: Some(_), .. });
        (ResponsePacket { psn, msn: if middle { 0 } else { msn }, body }, len, selective)
    })
}

proptest! {
    #![proptest_config(common::config(256))]

    #[test]
    fn requests_round_trip((p, selective) in request()) {
        let payload = vec![0x5a; p.len as usize];
        let headers = emit_request(Service::Rc, &p).unwrap();
        let (packet, body) = through(&headers, (p.ack_request, p.solicited), p.psn, &payload);
        prop_assert_eq!(parse_request(&packet, &body, selective), Ok((p, &payload[..])));
        prop_assert_eq!(parse_response(&packet, &body, selective), Err(Error::Opcode));
    }

    #[test]
    fn responses_round_trip((p, len, selective) in response()) {
        let payload = vec![0xa5; len];
        let headers = emit_response(Service::Rc, &p);
        let (packet, body) = through(&headers, (false, false), p.psn, &payload);
        prop_assert_eq!(parse_response(&packet, &body, selective), Ok((p, &payload[..])));
        prop_assert_eq!(parse_request(&packet, &body, selective), Err(Error::Opcode));
    }
}

#[test]
fn what_no_opcode_can_say_is_refused() {
    let with = |edit: fn(&mut RequestPacket)| {
        let mut p = RequestPacket::default();
        edit(&mut p);
        emit_request(Service::Rc, &p).map(|h| h.opcode)
    };
    assert_eq!(with(|_| ()), Ok(Opcode::rc(Operation::SendOnly)));
    assert_eq!(with(|p| (p.position, p.imm) = (Position::First, Some(1))), Err(Error::Headers));
    assert_eq!(with(|p| p.remote = Some(Remote::default())), Err(Error::Headers));
    assert_eq!(with(|p| p.kind = Kind::Write), Err(Error::Headers), "without a remote range");
    assert_eq!(with(|p| p.kind = Kind::FetchAdd), Err(Error::Headers));
    assert_eq!(with(|p| (p.kind, p.position) = (Kind::Read, Position::Last)), Err(Error::Headers));
    assert_eq!(emit_request(Service::Ud, &RequestPacket::default()).map(|h| h.opcode.0), Ok(0x64));
    assert_eq!(
        emit_request(Service::Ud, &RequestPacket { position: Position::First, ..RequestPacket::default() }),
        Err(Error::Opcode)
    );
}

#[test]
fn what_is_not_the_connections_is_refused() {
    let bth = |opcode| Packet {
        eth: Eth::default(),
        ip: Ip::V4(Ipv4::new([0; 4], [0; 4])),
        source_port: 0,
        bth: Bth::new(opcode, 0, 0),
        ext: Extended::NONE,
    };
    let send = bth(Opcode::rc(Operation::SendOnly));
    assert_eq!(parse_request(&send, &[1, 2, 3], true), Err(Error::Length), "no placement header");
    assert_eq!(parse_request(&send, &[0; 8], true), Err(Error::Length), "nor this");
    assert!(parse_request(&send, &[1, 2, 3], false).is_ok());
    for opcode in [Opcode::ud(Operation::SendOnly), Opcode(0xff), Opcode::rc(Operation::Resync)] {
        assert_eq!(parse_request(&bth(opcode), &[], false), Err(Error::Opcode));
        assert_eq!(parse_response(&bth(opcode), &[], false), Err(Error::Opcode));
    }
    let ack = ResponsePacket { psn: 1, msn: 2, body: ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: Some(1) } };
    let (packet, body) = through(&emit_response(Service::Rc, &ack), (false, false), 1, &[]);
    assert_eq!(packet.bth.opcode, Opcode::SELECTIVE_ACKNOWLEDGE);
    assert_eq!(parse_response(&packet, &body, false), Err(Error::Opcode), "nobody asked for a SACK");
    assert_eq!(parse_response(&packet, &body[1..], true), Err(Error::Length));
    // A refusal has no SACK.
    let mut other = packet;
    other.ext.aeth =
        Some(berth_protocol::wire::Aeth { syndrome: berth_protocol::wire::Syndrome::from_bits(0x60), msn: 2 });
    assert_eq!(parse_response(&other, &body, true), Err(Error::Opcode));
    // A reserved syndrome.
    let mut other = packet;
    other.bth.opcode = Opcode::rc(Operation::Acknowledge);
    other.ext.aeth = other
        .ext
        .aeth
        .map(|a| berth_protocol::wire::Aeth { syndrome: berth_protocol::wire::Syndrome::Reserved(0x5f), ..a });
    assert_eq!(parse_response(&other, &[], true), Err(Error::Opcode));
}
