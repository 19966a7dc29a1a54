// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts between the packets of [`crate::rc`] and the headers of frames.

use super::berth::{Placement, Sack};
use super::ext::{Aeth, AtomicEth, NO_CREDITS, Reth, Syndrome};
use super::opcode::{Layout, Opcode, Operation as O, Service};
use super::{Error, Extended, Packet};
use crate::rc::{self, Kind, Position, Remote, RequestPacket, ResponseBody, ResponsePacket};

/// A frame's parts for a packet: opcode, extended headers, and the bytes before the payload proper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Headers {
    /// Opcode.
    pub opcode: Opcode,
    /// Extended headers, without those of datagrams.
    pub ext: Extended,
    /// Berth's own header: the first `prefix_len` bytes are the first of the payload.
    prefix: [u8; Sack::BYTES],
    prefix_len: u8,
}

impl Headers {
    fn new(service: Service, operation: O, ext: Extended, prefix: &[u8]) -> Self {
        Self::with(Opcode::new(service, operation), ext, prefix)
    }

    fn with(opcode: Opcode, ext: Extended, prefix: &[u8]) -> Self {
        let mut this = Self { opcode, ext, prefix: [0; Sack::BYTES], prefix_len: 0 };
        if let Some(place) = this.prefix.get_mut(..prefix.len()) {
            place.copy_from_slice(prefix);
            this.prefix_len = prefix.len() as u8;
        }
        this
    }

    /// What comes before the payload's own bytes: nothing, a placement header or a SACK.
    pub fn prefix(&self) -> &[u8] {
        self.prefix.get(..usize::from(self.prefix_len)).unwrap_or(&[])
    }
}

/// The headers of a request of `service` (RC or RD; of RD the caller adds RDETH and DETH).
///
/// # Errors
/// [`Error::Headers`] for a combination that no opcode has.
pub fn emit_request(service: Service, p: &RequestPacket) -> Result<Headers, Error> {
    let reth = p.remote.map(|r| Reth { va: r.va, rkey: r.key, len: r.len });
    let mut ext = Extended { imm: p.imm, invalidate: p.invalidate, ..Extended::NONE };
    let operation = match (p.kind, p.position, p.imm.is_some()) {
        (Kind::Send, Position::Last, false) if p.invalidate.is_some() => O::SendLastInvalidate,
        (Kind::Send, Position::Only, false) if p.invalidate.is_some() => O::SendOnlyInvalidate,
        (Kind::Send, Position::First, false) => O::SendFirst,
        (Kind::Send, Position::Middle, false) => O::SendMiddle,
        (Kind::Send, Position::Last, false) => O::SendLast,
        (Kind::Send, Position::Last, true) => O::SendLastImm,
        (Kind::Send, Position::Only, false) => O::SendOnly,
        (Kind::Send, Position::Only, true) => O::SendOnlyImm,
        (Kind::Write, Position::First, false) => O::WriteFirst,
        (Kind::Write, Position::Middle, false) => O::WriteMiddle,
        (Kind::Write, Position::Last, false) => O::WriteLast,
        (Kind::Write, Position::Last, true) => O::WriteLastImm,
        (Kind::Write, Position::Only, false) => O::WriteOnly,
        (Kind::Write, Position::Only, true) => O::WriteOnlyImm,
        (Kind::Read, Position::Only, false) => O::ReadRequest,
        (Kind::CompareSwap, Position::Only, false) => O::CompareSwap,
        (Kind::FetchAdd, Position::Only, false) => O::FetchAdd,
        _ => return Err(Error::Headers),
    };
    match p.kind {
        Kind::CompareSwap | Kind::FetchAdd => {
            let remote = p.remote.ok_or(Error::Headers)?;
            let [swap_add, compare] = p.operands;
            ext.atomic = Some(AtomicEth { va: remote.va, rkey: remote.key, swap_add, compare });
        }
        _ => ext.reth = reth,
    }
    let prefix = p.placement.map(Placement::to_bytes);
    let headers = Headers::new(service, operation, ext, prefix.as_ref().map_or(&[], |b| b));
    let expected = headers.opcode.layout().ok_or(Error::Opcode)?;
    let there = ext.layout();
    let required = |layout: Layout| (layout.reth, layout.atomic, layout.imm, layout.ieth);
    if required(there) != required(expected) {
        return Err(Error::Headers);
    }
    Ok(headers)
}

/// The request that a frame carries, and its payload. `selective`: the connection uses selective repeat.
///
/// # Errors
/// [`Error::Opcode`] when it is no request of a reliable service, [`Error::Length`] without its placement header.
pub fn parse_request<'a>(
    packet: &Packet,
    payload: &'a [u8],
    selective: bool,
) -> Result<(RequestPacket, &'a [u8]), Error> {
    let operation = match packet.bth.opcode.service() {
        Some(Service::Rc | Service::Rd) => packet.bth.opcode.operation().ok_or(Error::Opcode)?,
        _ => return Err(Error::Opcode),
    };
    let (kind, position) = match operation {
        O::SendFirst => (Kind::Send, Position::First),
        O::SendMiddle => (Kind::Send, Position::Middle),
        O::SendLast | O::SendLastImm | O::SendLastInvalidate => (Kind::Send, Position::Last),
        O::SendOnly | O::SendOnlyImm | O::SendOnlyInvalidate => (Kind::Send, Position::Only),
        O::WriteFirst => (Kind::Write, Position::First),
        O::WriteMiddle => (Kind::Write, Position::Middle),
        O::WriteLast | O::WriteLastImm => (Kind::Write, Position::Last),
        O::WriteOnly | O::WriteOnlyImm => (Kind::Write, Position::Only),
        O::ReadRequest => (Kind::Read, Position::Only),
        O::CompareSwap => (Kind::CompareSwap, Position::Only),
        O::FetchAdd => (Kind::FetchAdd, Position::Only),
        _ => return Err(Error::Opcode),
    };
    let mut remote = packet.ext.reth.map(|r| Remote { va: r.va, key: r.rkey, len: r.len });
    let mut operands = [0; 2];
    if let Some(atomic) = packet.ext.atomic {
        remote = Some(Remote { va: atomic.va, key: atomic.rkey, len: 8 });
        operands = [atomic.swap_add, if kind == Kind::FetchAdd { 0 } else { atomic.compare }];
    }
    let (placement, payload) = match (selective, kind) {
        (true, Kind::Send | Kind::Write) => {
            let (at, rest) = Placement::split(payload).ok_or(Error::Length)?;
            (Some(at), rest)
        }
        _ => (None, payload),
    };
    let request = RequestPacket {
        psn: packet.bth.psn,
        kind,
        position,
        len: payload.len() as u32,
        imm: packet.ext.imm,
        invalidate: packet.ext.invalidate,
        remote,
        operands,
        placement,
        ack_request: packet.bth.ack_request,
        solicited: packet.bth.solicited,
    };
    Ok((request, payload))
}

/// The headers of a response of `service` (RC or RD; of RD the caller adds RDETH).
pub fn emit_response(service: Service, p: &ResponsePacket) -> Headers {
    let aeth = |syndrome| Some(Aeth { syndrome, msn: p.msn });
    let fine = Syndrome::Ack(NO_CREDITS);
    match p.body {
        ResponseBody::Ack { syndrome, sack } => {
            let ext = Extended { aeth: aeth(Syndrome::from_bits(syndrome.byte())), ..Extended::NONE };
            match sack {
                Some(bits) => Headers::with(Opcode::SELECTIVE_ACKNOWLEDGE, ext, &Sack(bits).to_bytes()),
                None => Headers::new(service, O::Acknowledge, ext, &[]),
            }
        }
        ResponseBody::Read { position, len: _ } => {
            let (operation, aeth) = match position {
                Position::First => (O::ReadResponseFirst, aeth(fine)),
                Position::Middle => (O::ReadResponseMiddle, None),
                Position::Last => (O::ReadResponseLast, aeth(fine)),
                Position::Only => (O::ReadResponseOnly, aeth(fine)),
            };
            Headers::new(service, operation, Extended { aeth, ..Extended::NONE }, &[])
        }
        ResponseBody::Atomic { original } => {
            let ext = Extended { aeth: aeth(fine), atomic_ack: Some(original), ..Extended::NONE };
            Headers::new(service, O::AtomicAcknowledge, ext, &[])
        }
    }
}

/// The response that a frame carries, and its payload. A READ response in the middle has no message sequence number: 0.
/// `selective`: the connection uses selective repeat.
///
/// # Errors
/// [`Error::Opcode`] when it is no response of a reliable service, its syndrome is reserved, or it has a SACK and
/// should not; [`Error::Length`] when the SACK is cut short.
pub fn parse_response<'a>(
    packet: &Packet,
    payload: &'a [u8],
    selective: bool,
) -> Result<(ResponsePacket, &'a [u8]), Error> {
    let msn = packet.ext.aeth.map_or(0, |a| a.msn);
    if packet.bth.opcode == Opcode::SELECTIVE_ACKNOWLEDGE && selective {
        let aeth = packet.ext.aeth.ok_or(Error::Headers)?;
        let (sack, rest) = Sack::split(payload).ok_or(Error::Length)?;
        let syndrome = rc::Syndrome::from_byte(aeth.syndrome.to_bits());
        let syndrome = syndrome.filter(|s| matches!(s, rc::Syndrome::Ack(_))).ok_or(Error::Opcode)?;
        let body = ResponseBody::Ack { syndrome, sack: Some(sack.0) };
        return Ok((ResponsePacket { psn: packet.bth.psn, msn, body }, rest));
    }
    let operation = match packet.bth.opcode.service() {
        Some(Service::Rc | Service::Rd) => packet.bth.opcode.operation().ok_or(Error::Opcode)?,
        _ => return Err(Error::Opcode),
    };
    let len = payload.len() as u32;
    let read = |position| ResponseBody::Read { position, len };
    let (body, payload) = match (operation, packet.ext.aeth) {
        (O::Acknowledge, Some(aeth)) => {
            let syndrome = rc::Syndrome::from_byte(aeth.syndrome.to_bits()).ok_or(Error::Opcode)?;
            (ResponseBody::Ack { syndrome, sack: None }, payload)
        }
        (O::AtomicAcknowledge, _) => {
            let original = packet.ext.atomic_ack.ok_or(Error::Headers)?;
            (ResponseBody::Atomic { original }, payload)
        }
        (O::ReadResponseFirst, _) => (read(Position::First), payload),
        (O::ReadResponseMiddle, _) => (read(Position::Middle), payload),
        (O::ReadResponseLast, _) => (read(Position::Last), payload),
        (O::ReadResponseOnly, _) => (read(Position::Only), payload),
        _ => return Err(Error::Opcode),
    };
    Ok((ResponsePacket { psn: packet.bth.psn, msn, body }, payload))
}
