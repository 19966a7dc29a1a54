// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that the packets of Berth's reliable connection take on the wire, from the headers that they have there.

use crate::hosts::Cx;
use crate::net::{Packet, ROCE};
use berth_protocol::rc::{RequestPacket, ResponsePacket};
use berth_protocol::wire::opcode::Service;
use berth_protocol::wire::reliable::{Headers, emit_request, emit_response};

/// Extended headers, and what Berth puts before a payload.
fn headers(headers: &Headers) -> u32 {
    let extended = headers.opcode.layout().map_or(0, |layout| layout.bytes());
    (extended + headers.prefix().len()) as u32
}

/// Bytes of a request with its payload.
pub fn request_bytes(packet: &RequestPacket) -> u32 {
    let made = emit_request(Service::Rc, packet).expect("the requester makes packets that there are");
    ROCE + headers(&made) + packet.len.next_multiple_of(4)
}

/// Bytes of an acknowledgement.
pub fn ack_bytes(packet: &ResponsePacket) -> u32 {
    ROCE + headers(&emit_response(Service::Rc, packet))
}

/// The acknowledgement `packet` of `end`, which is counted.
pub fn acknowledgement<B>(
    cx: &mut Cx<B>,
    end: u32,
    packet: ResponsePacket,
    body: fn(ResponsePacket) -> B,
) -> Packet<B> {
    let bytes = ack_bytes(&packet);
    cx.stats.acks.packets += 1;
    cx.stats.acks.bytes += u64::from(bytes);
    cx.packet(end, bytes, 0, body(packet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_protocol::rc::{Kind, Placement, Position, Remote, ResponseBody, Syndrome};

    #[test]
    fn packets_take_the_bytes_of_their_headers() {
        let placement = Some(Placement { credit: 1, index: 0 });
        let send = RequestPacket { len: 5, imm: Some(1), placement, ..RequestPacket::default() };
        assert_eq!(request_bytes(&send), ROCE + 4 + 4 + 8);
        assert_eq!(request_bytes(&RequestPacket { position: Position::First, imm: None, ..send }), ROCE + 4 + 8);
        let write = RequestPacket { kind: Kind::Write, imm: None, remote: Some(Remote::default()), ..send };
        assert_eq!(request_bytes(&write), ROCE + 16 + 4 + 8);
        let ack =
            |sack| ResponsePacket { psn: 1, msn: 1, body: ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack } };
        assert_eq!((ack_bytes(&ack(None)), ack_bytes(&ack(Some(1)))), (ROCE + 4, ROCE + 20));
    }
}
