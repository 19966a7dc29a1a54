// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any frame: parsed by `wire`, emitted again, and compared with the card's own parser.

use berth_abi::wire::*;
use berth_protocol::wire::berth::{Placement, Sack};
use berth_protocol::wire::headers::{self, Mac};
use berth_protocol::wire::reliable::{emit_request, emit_response, parse_request, parse_response};
use berth_protocol::wire::{self, Ip, Ipv4, MAX_HEADERS, MAX_PAYLOAD, Packet, opcode::Service};

/// The first byte chooses how the frame is made and looked at: the rest is the frame, or what follows its UDP header.
pub fn run(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    let made;
    let frame = match how >> 1 & 3 {
        0 | 1 => rest,
        six => {
            made = around(rest, six == 3);
            &made
        }
    };
    let strict = wire::parse(frame);
    let parsed = wire::parse_trusted(frame);
    if strict.is_ok() {
        assert_eq!(strict, parsed);
    }
    card(frame, parsed.as_ref().ok());
    headers::arp::parse(&words(frame), frame.len() as u32);
    Placement::split(frame);
    Sack::split(frame);
    let Ok((packet, payload)) = parsed else { return };

    let mut out = vec![0; MAX_HEADERS + MAX_PAYLOAD + 8];
    let len = wire::emit(&packet, &[payload], &mut out).expect("what was parsed can be emitted");
    assert_eq!(wire::parse(&out[..len]), Ok((packet, payload)));

    let selective = how & 1 != 0;
    let service = packet.bth.opcode.service();
    if let Ok((request, body)) = parse_request(&packet, payload, selective) {
        let again = emit_request(service.unwrap_or(Service::Rc), &request).expect("it came from an opcode");
        assert_eq!(again.opcode, packet.bth.opcode);
        assert_eq!([again.prefix(), body].concat(), payload);
    }
    if let Ok((response, body)) = parse_response(&packet, payload, selective) {
        let again = emit_response(service.unwrap_or(Service::Rc), &response);
        assert_eq!(again.opcode, packet.bth.opcode);
        assert_eq!([again.prefix(), body].concat(), payload);
    }
}

/// A frame whose lower headers are right around `transport`: what is behind them is looked at.
fn around(transport: &[u8], six: bool) -> Vec<u8> {
    let udp = (transport.len() + 8) as u16;
    let mut frame = vec![2; 12];
    if six {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(udp.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([0xfd; 32]);
    } else {
        frame.extend([8, 0]);
        let ip = Ipv4::new([192, 0, 2, 1], [192, 0, 2, 2]);
        frame.extend(ip.to_bytes(udp).expect("it is short"));
    }
    frame.extend([0xc0, 0, 0x12, 0xb7]);
    frame.extend(udp.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(transport);
    frame
}

/// The frame's first bytes as the card has them.
fn words(frame: &[u8]) -> headers::Words {
    let byte = |i: usize| frame.get(i).copied().unwrap_or(0);
    std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| byte(4 * i + j))))
}

/// What the card's parser takes, the other one takes too, and both say the same.
fn card(frame: &[u8], parsed: Option<&(Packet, &[u8])>) {
    let words = words(frame);
    let ip = frame.get(30..34).map_or(0, |b| u32::from_be_bytes(b.try_into().expect("4 bytes")));
    let Ok(card) = headers::parse(&words, frame.len() as u32, Mac::destination(&words), ip) else { return };
    let Some((packet, payload)) = parsed else {
        // The card leaves to its QPs what an opcode it does not know means, and what follows an ACK.
        return;
    };
    assert_eq!(card.opcode, packet.bth.opcode.0);
    assert_eq!(
        (card.qpn, card.psn, card.ack_request, card.solicited),
        (packet.bth.qpn, packet.bth.psn, packet.bth.ack_request, packet.bth.solicited)
    );
    let Ip::V4(ipv4) = packet.ip else { panic!("the card takes IPv4 only") };
    assert_eq!(card.ip, u32::from_be_bytes(ipv4.from));
    let ext = packet.ext.layout().bytes() as u32;
    let known = matches!(
        card.opcode,
        BTH_SEND_FIRST | BTH_SEND_MIDDLE | BTH_SEND_LAST_IMM
            ..=BTH_SEND_ONLY_IMM | BTH_ACKNOWLEDGE | BTH_SELECTIVE_ACKNOWLEDGE
    );
    if known {
        assert_eq!(ext, card.start - headers::PAYLOAD);
        assert_eq!(card.len as usize, payload.len());
        let word = packet.ext.imm.or(packet.ext.aeth.map(|a| u32::from(a.syndrome.to_bits()) << 24 | a.msn));
        assert!(word.is_none_or(|w| w == card.ext));
    }
}
