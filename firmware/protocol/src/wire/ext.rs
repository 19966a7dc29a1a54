// SPDX-License-Identifier: Apache-2.0 OR MIT
//! InfiniBand's transport headers: base (BTH) and extended (IBTA 9.2, 9.3).

use super::Error;
use super::bytes::{Reader, Writer, fits};
use super::opcode::{Layout, Opcode};
use crate::base::bound::Bound;
use crate::rc;

/// Partition key of the default partition, full member: the only one that Berth uses.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// AETH credit count without a meaning (decision 8).
pub const NO_CREDITS: u8 = 31;

/// Base transport header. Pad count and header version follow from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bth {
    /// Opcode.
    pub opcode: Opcode,
    /// Solicited event. PUSH between Berth cards.
    pub solicited: bool,
    /// Migration state.
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination QPN, 24 bits.
    pub qpn: u32,
    /// An acknowledgement is wanted.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// A header of the default partition, without flags.
    pub const fn new(opcode: Opcode, qpn: u32, psn: u32) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: false,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            qpn,
            ack_request: false,
            psn,
        }
    }

    /// Gives also the pad count.
    pub(super) fn read(r: &mut Reader) -> Result<(Self, usize), Error> {
        let opcode = Opcode(r.u8()?);
        let flags = r.u8()?;
        let pkey = r.u16()?;
        let (qpn, psn) = (r.u32()?, r.u32()?);
        if flags & 0x0f != 0 {
            return Err(Error::Version);
        }
        let this = Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pkey,
            fecn: qpn & 1 << 31 != 0,
            becn: qpn & 1 << 30 != 0,
            qpn: qpn & 0xff_ffff,
            ack_request: psn & 1 << 31 != 0,
            psn: psn & 0xff_ffff,
        };
        Ok((this, usize::from(flags >> 4 & 3)))
    }

    pub(super) fn write(&self, w: &mut Writer, pad: usize) -> Result<(), Error> {
        w.u8(self.opcode.0)?;
        w.u8(u8::from(self.solicited) << 7 | u8::from(self.migrated) << 6 | (pad as u8 & 3) << 4)?;
        w.u16(self.pkey)?;
        w.u32(u32::from(self.fecn) << 31 | u32::from(self.becn) << 30 | fits(self.qpn, 24)?)?;
        w.u32(u32::from(self.ack_request) << 31 | fits(self.psn, 24)?)
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source QPN, 24 bits.
    pub source_qpn: u32,
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole operation.
    pub len: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// What is swapped in or added.
    pub swap_add: u64,
    /// What is compared with.
    pub compare: u64,
}

pub use crate::rc::{NakCode as Nak, credit_code, credit_count};

/// The meaning of an AETH (IBTA 9.7.5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Acknowledged. The encoded credit count, 5 bits; [`NO_CREDITS`]: not given.
    Ack(u8),
    /// Receiver not ready. The encoded time to wait, 5 bits.
    Rnr(u8),
    /// Refused.
    Nak(Nak),
    /// Reserved bits or codes, as received.
    Reserved(u8),
}

impl Syndrome {
    /// Decodes the 8 bits.
    pub const fn from_bits(bits: u8) -> Self {
        match rc::Syndrome::from_byte(bits) {
            Some(rc::Syndrome::Ack(n)) => Self::Ack(n),
            Some(rc::Syndrome::Rnr(n)) => Self::Rnr(n),
            Some(rc::Syndrome::Nak(code)) => Self::Nak(code),
            None => Self::Reserved(bits),
        }
    }

    /// The 8 bits; higher bits of a 5-bit code are cut off.
    pub const fn to_bits(self) -> u8 {
        match self {
            Self::Ack(n) => rc::Syndrome::Ack(n).byte(),
            Self::Rnr(n) => rc::Syndrome::Rnr(n).byte(),
            Self::Nak(code) => rc::Syndrome::Nak(code).byte(),
            Self::Reserved(bits) => bits,
        }
    }
}

/// Microseconds that an RNR time code stands for (IBTA 9.7.5.2.8, table 45): 10 to 655,360.
pub const fn rnr_microseconds(code: u8) -> u32 {
    rc::rnr_time(code).wrapping_mul(10)
}

/// The code of the shortest RNR time that is not below `microseconds`; the longest there is when none is.
pub const fn rnr_code(microseconds: u32) -> u8 {
    let mut code = 1;
    let mut bound = Bound::new(30);
    while code < 31 && rnr_microseconds(code) < microseconds {
        bound.step();
        code += 1;
    }
    if rnr_microseconds(code) < microseconds { 0 } else { code }
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed at the responder, 24 bits.
    pub msn: u32,
}

/// Extended headers of a packet. Which of them there are follows from the opcode ([`Opcode::layout`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extended {
    /// Reliable datagram: end-to-end context of the receiving node, 24 bits.
    pub eec: Option<u32>,
    /// Datagram.
    pub deth: Option<Deth>,
    /// RDMA.
    pub reth: Option<Reth>,
    /// Atomic request.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Atomic response: what was there before.
    pub atomic_ack: Option<u64>,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Remote key to invalidate.
    pub invalidate: Option<u32>,
}

impl Extended {
    /// No header.
    pub const NONE: Self = Self {
        eec: None,
        deth: None,
        reth: None,
        atomic: None,
        aeth: None,
        atomic_ack: None,
        imm: None,
        invalidate: None,
    };

    /// The headers that are there.
    pub const fn layout(&self) -> Layout {
        Layout {
            rdeth: self.eec.is_some(),
            deth: self.deth.is_some(),
            reth: self.reth.is_some(),
            atomic: self.atomic.is_some(),
            aeth: self.aeth.is_some(),
            atomic_ack: self.atomic_ack.is_some(),
            imm: self.imm.is_some(),
            ieth: self.invalidate.is_some(),
        }
    }

    pub(super) fn read(r: &mut Reader, layout: Layout) -> Result<Self, Error> {
        let mut this = Self::NONE;
        if layout.rdeth {
            this.eec = Some(r.u32()? & 0xff_ffff);
        }
        if layout.deth {
            this.deth = Some(Deth { qkey: r.u32()?, source_qpn: r.u32()? & 0xff_ffff });
        }
        if layout.reth {
            this.reth = Some(Reth { va: r.u64()?, rkey: r.u32()?, len: r.u32()? });
        }
        if layout.atomic {
            this.atomic = Some(AtomicEth { va: r.u64()?, rkey: r.u32()?, swap_add: r.u64()?, compare: r.u64()? });
        }
        if layout.aeth {
            let word = r.u32()?;
            this.aeth = Some(Aeth { syndrome: Syndrome::from_bits((word >> 24) as u8), msn: word & 0xff_ffff });
        }
        if layout.atomic_ack {
            this.atomic_ack = Some(r.u64()?);
        }
        if layout.imm {
            this.imm = Some(r.u32()?);
        }
        if layout.ieth {
            this.invalidate = Some(r.u32()?);
        }
        Ok(this)
    }

    pub(super) fn write(&self, w: &mut Writer, layout: Layout) -> Result<(), Error> {
        if self.layout() != layout {
            return Err(Error::Headers);
        }
        if let Some(eec) = self.eec {
            w.u32(fits(eec, 24)?)?;
        }
        if let Some(deth) = self.deth {
            w.u32(deth.qkey)?;
            w.u32(fits(deth.source_qpn, 24)?)?;
        }
        if let Some(reth) = self.reth {
            w.u64(reth.va)?;
            w.u32(reth.rkey)?;
            w.u32(reth.len)?;
        }
        if let Some(atomic) = self.atomic {
            w.u64(atomic.va)?;
            w.u32(atomic.rkey)?;
            w.u64(atomic.swap_add)?;
            w.u64(atomic.compare)?;
        }
        if let Some(aeth) = self.aeth {
            w.u32(u32::from(aeth.syndrome.to_bits()) << 24 | fits(aeth.msn, 24)?)?;
        }
        if let Some(value) = self.atomic_ack {
            w.u64(value)?;
        }
        if let Some(imm) = self.imm {
            w.u32(imm)?;
        }
        if let Some(rkey) = self.invalidate {
            w.u32(rkey)?;
        }
        Ok(())
    }
}
