// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wire formats.

use crate::{calls, memory};
use berth_protocol::rc::{self, RequestPacket, ResponseBody, ResponsePacket};
use berth_protocol::wire::berth::{Placement, Sack};
use berth_protocol::wire::lists::list_headers;
use berth_protocol::wire::net::{self, Ipv4, Ipv6};
use berth_protocol::wire::opcode::{Opcode, Operation, Service};
use berth_protocol::wire::{self, Bth, Eth, Extended, Ip, Packet, ext, icrc, reliable};
use core::hint::black_box;

pub fn link() {
    frames();
    packets();
    codes();
}

fn frames() {
    let mut frame = [0; 256];
    let mut out = [0; 256];
    black_box(icrc::compute(memory(&mut frame))).ok();
    black_box(net::checksum(memory(&mut frame)));
    black_box(wire::parse_trusted(memory(&mut frame))).ok();
    let eth = Eth::default();
    for ip in [Ip::V4(Ipv4::new([0; 4], [0; 4])), Ip::V6(Ipv6::new([0; 16], [0; 16]))] {
        let bth = Bth::new(black_box(Opcode(0)), black_box(1), black_box(2));
        let packet = black_box(Packet { eth, ip, source_port: 0, bth, ext: Extended::NONE });
        let payload = [memory(&mut frame) as &[u8], &[0; 4]];
        black_box(wire::emit(&packet, black_box(&payload), memory(&mut out))).ok();
        let mut ip = black_box(ip);
        calls!(ip: ether_type(), ecn());
        if let Ip::V4(mut ip) = ip {
            calls!(ip: to_bytes(1));
        }
    }
    if let Ok((packet, payload)) = black_box(wire::parse(memory(&mut frame))) {
        black_box(reliable::parse_request(&packet, payload, black_box(true))).ok();
        black_box(reliable::parse_response(&packet, payload, black_box(true))).ok();
        black_box(packet.ext.layout());
    }
    black_box(Placement::split(memory(&mut frame)));
    black_box(Sack::split(memory(&mut frame)));
}

fn packets() {
    let service = black_box(Service::Rc);
    if let Ok(headers) = black_box(reliable::emit_request(service, &black_box(RequestPacket::default()))) {
        black_box(headers.prefix());
    }
    let body = ResponseBody::Ack { syndrome: rc::Syndrome::Ack(0), sack: None };
    black_box(reliable::emit_response(service, &black_box(ResponsePacket { psn: 0, msn: 0, body })));
    black_box(list_headers(black_box(1), black_box(2), black_box(3), black_box(4), black_box(5)));
    let mut placement = black_box(Placement { credit: 0, index: 0 });
    calls!(placement: to_bytes());
    let mut sack = black_box(Sack(0));
    calls!(sack: has(1), set(1), to_bytes());
}

fn codes() {
    let operation = black_box(Operation::SendOnly);
    black_box((Opcode::rc(operation), Opcode::rd(operation), Opcode::ud(operation)));
    let mut opcode = black_box(Opcode::new(black_box(Service::Rc), operation));
    calls!(opcode: service(), operation(), layout(), check_payload(1));
    let mut operation = operation;
    calls!(operation: is_send(), is_write(), is_first(), is_last());
    let mut syndrome = black_box(ext::Syndrome::from_bits(black_box(1)));
    calls!(syndrome: to_bits());
    black_box((ext::rnr_microseconds(black_box(1)), ext::rnr_code(black_box(1))));
    black_box((ext::credit_code(black_box(1)), ext::credit_count(black_box(1))));
    let mut syndrome = black_box(rc::Syndrome::from_byte(black_box(1))).unwrap_or(rc::Syndrome::Ack(0));
    calls!(syndrome: byte());
    black_box(rc::packets(black_box(1), black_box(2)));
}
