// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meaning of a reliable connection's packets, without their bytes.

/// What a request packet is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND: goes to the receive that its credit stands for.
    #[default]
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    Read,
    /// Atomic compare-and-swap of 64 bits.
    CompareSwap,
    /// Atomic fetch-and-add of 64 bits.
    FetchAdd,
}

impl Kind {
    /// It is answered with data: READ and atomics.
    pub const fn answered(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd)
    }
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// In between.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    #[default]
    Only,
}

impl Position {
    /// Of packet `index` out of `of`.
    pub const fn at(index: u32, of: u32) -> Self {
        match (index == 0, index.wrapping_add(1) >= of) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
    /// A message begins.
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }
    /// A message ends.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// A range of the responder's memory: RETH, or address and key of an AtomicETH (then `len` is 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Virtual address.
    pub va: u64,
    /// RKey.
    pub key: u32,
    /// Bytes.
    pub len: u32,
}

/// The placement header of selective repeat: where in its message a packet belongs, so that it can be placed though
/// the message's other packets are missing. Its bytes are in [`crate::wire::berth`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Number of the SEND's credit modulo 256; 0 for a WRITE.
    pub credit: u8,
    /// Packet of the message, from 0 to [`Placement::MAX_INDEX`]: its payload goes to `index` × MTU.
    pub index: u32,
}

impl Placement {
    /// The last packet of the longest message that there is: 2^31 bytes at an MTU of 256 (IBTA 9.7.2.1).
    pub const MAX_INDEX: u32 = (1 << 23) - 1;
}

/// A packet from requester to responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestPacket {
    /// PSN.
    pub psn: u32,
    /// What it is part of.
    pub kind: Kind,
    /// Where in its message it stands. [`Position::Only`] for READ and atomics, and for WRITEs under selective repeat.
    pub position: Position,
    /// Payload bytes.
    pub len: u32,
    /// Immediate data, in the last packet of a SEND or WRITE.
    pub imm: Option<u32>,
    /// The key to invalidate (IETH), in the last packet of a SEND, which then has no immediate.
    pub invalidate: Option<u32>,
    /// The remote range: in the first packet of a WRITE (under selective repeat the whole
    /// message's, in each of its packets), in a READ request, in an atomic.
    pub remote: Option<Remote>,
    /// Of a compare-and-swap: swap, compare; of a fetch-and-add: add, 0.
    pub operands: [u64; 2],
    /// Under selective repeat in each packet of a SEND or WRITE.
    pub placement: Option<Placement>,
    /// The requester wants an acknowledgement.
    pub ack_request: bool,
    /// Solicited event: PUSH.
    pub solicited: bool,
}

/// Why a responder refuses (IBTA 9.7.5.2.8, table 59).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// PSN sequence error: something before is missing.
    Sequence = 0,
    /// Invalid request: malformed, too long, too many READs.
    InvalidRequest = 1,
    /// Remote access error: key, range or right do not match.
    RemoteAccess = 2,
    /// Remote operational error: the responder's end is broken.
    RemoteOperation = 3,
    /// Invalid RD request: no such QP, or not its Q_Key (reliable datagram only).
    InvalidDatagram = 4,
}

/// The syndrome of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Acknowledged; credit count code 0 to 31 (31: not given).
    Ack(u8),
    /// Receiver not ready; timer code 0 to 31.
    Rnr(u8),
    /// Refused.
    Nak(NakCode),
}

impl Syndrome {
    /// The byte of the AETH.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::Rnr(timer) => 0x20 | timer & 0x1f,
            Self::Nak(code) => 0x60 | code as u8,
        }
    }

    /// From the byte of an AETH. None for reserved ones.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match (byte >> 5, byte & 0x1f) {
            (0, credits) => Self::Ack(credits),
            (1, timer) => Self::Rnr(timer),
            (3, 0) => Self::Nak(NakCode::Sequence),
            (3, 1) => Self::Nak(NakCode::InvalidRequest),
            (3, 2) => Self::Nak(NakCode::RemoteAccess),
            (3, 3) => Self::Nak(NakCode::RemoteOperation),
            (3, 4) => Self::Nak(NakCode::InvalidDatagram),
            _ => return None,
        })
    }
}

/// What a response packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseBody {
    /// Acknowledgement or refusal. An acknowledgement is for all up to the PSN; a NAK or RNR is for the PSN, and acknowledges all before.
    Ack {
        /// Which.
        syndrome: Syndrome,
        /// Selective repeat, in an acknowledgement behind which something has arrived: bit 127
        /// is for PSN + 1, and so on downwards; set: it has arrived. Never 0.
        sack: Option<u128>,
    },
    /// READ response with `len` bytes of payload.
    Read {
        /// Where in this answer it stands.
        position: Position,
        /// Payload bytes.
        len: u32,
    },
    /// Atomic response.
    Atomic {
        /// The value before.
        original: u64,
    },
}

/// A packet from responder to requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponsePacket {
    /// PSN.
    pub psn: u32,
    /// Message sequence number: messages completed, 24 bits.
    pub msn: u32,
    /// The rest.
    pub body: ResponseBody,
}

/// The RNR timer code of PC-4's "not yet": the longest that there is.
pub const NOT_YET_TIMER: u8 = 0;

/// Credits that the code of an AETH stands for (IBTA 9.7.7.2.1, table 58). None: not given.
pub const fn credit_count(code: u8) -> Option<u32> {
    match code & 0x1f {
        31 => None,
        code @ 0..=3 => Some(code as u32),
        // From 4 on: 4, 6, 8, 12, 16, 24 …
        code if code & 1 == 0 => Some(1 << (code >> 1)),
        code => Some(3 << ((code >> 1) - 1)),
    }
}

/// The code for `count` credits: of those that are not more.
pub const fn credit_code(count: u32) -> u8 {
    match count {
        0..=3 => count as u8,
        _ => {
            let log = 31 - count.leading_zeros();
            let half = (count >> (log - 1)) & 1;
            let code = log * 2 + half;
            if code > 30 { 30 } else { code as u8 }
        }
    }
}

/// Time of an RNR timer code in units of 10 microseconds (IBTA 9.7.5.2.8, table 45): 0.01 ms to 655.36 ms.
pub const fn rnr_time(code: u8) -> u32 {
    match code & 0x1f {
        0 => 65536,
        code @ 1..=3 => code as u32,
        code if code & 1 == 0 => 1 << (code >> 1),
        code => 3 << ((code >> 1) - 1),
    }
}
