// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BTH opcodes (IBTA 9.2.1, table 38): service in bits 7:5, operation in bits 4:0, and
//! which headers and payload each of them has.

use super::berth::{Placement, Sack};
use berth_abi::wire::{
    BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE, BTH_SEND_FIRST, BTH_SEND_LAST, BTH_SEND_LAST_IMM,
    BTH_SEND_LAST_INVALIDATE, BTH_SEND_MIDDLE, BTH_SEND_ONLY, BTH_SEND_ONLY_IMM, BTH_SEND_ONLY_INVALIDATE,
};

use super::{CNP_PAYLOAD, Error, MAX_PAYLOAD};

/// Transport service: bits 7:5 of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification (IBTA A17.9.3).
    Cnp = 4,
}

/// Operation: bits 4:0 of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Operation {
    SendFirst = BTH_SEND_FIRST,
    SendMiddle = BTH_SEND_MIDDLE,
    SendLast = BTH_SEND_LAST,
    SendLastImm = BTH_SEND_LAST_IMM,
    SendOnly = BTH_SEND_ONLY,
    SendOnlyImm = BTH_SEND_ONLY_IMM,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = BTH_ACKNOWLEDGE,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    Resync = 0x15,
    SendLastInvalidate = BTH_SEND_LAST_INVALIDATE,
    SendOnlyInvalidate = BTH_SEND_ONLY_INVALIDATE,
}

use Operation as O;

impl Operation {
    /// All of them, by number.
    pub const ALL: [Self; 24] = [
        O::SendFirst,
        O::SendMiddle,
        O::SendLast,
        O::SendLastImm,
        O::SendOnly,
        O::SendOnlyImm,
        O::WriteFirst,
        O::WriteMiddle,
        O::WriteLast,
        O::WriteLastImm,
        O::WriteOnly,
        O::WriteOnlyImm,
        O::ReadRequest,
        O::ReadResponseFirst,
        O::ReadResponseMiddle,
        O::ReadResponseLast,
        O::ReadResponseOnly,
        O::Acknowledge,
        O::AtomicAcknowledge,
        O::CompareSwap,
        O::FetchAdd,
        O::Resync,
        O::SendLastInvalidate,
        O::SendOnlyInvalidate,
    ];

    /// A response: it goes from responder to requester.
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            O::ReadResponseFirst
                | O::ReadResponseMiddle
                | O::ReadResponseLast
                | O::ReadResponseOnly
                | O::Acknowledge
                | O::AtomicAcknowledge
        )
    }

    /// A packet with immediate data.
    pub const fn has_immediate(self) -> bool {
        matches!(self, O::SendLastImm | O::SendOnlyImm | O::WriteLastImm | O::WriteOnlyImm)
    }

    /// A packet of a SEND message.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            O::SendFirst
                | O::SendMiddle
                | O::SendLast
                | O::SendLastImm
                | O::SendOnly
                | O::SendOnlyImm
                | O::SendLastInvalidate
                | O::SendOnlyInvalidate
        )
    }

    /// A packet of an RDMA WRITE.
    pub const fn is_write(self) -> bool {
        matches!(self, O::WriteFirst | O::WriteMiddle | O::WriteLast | O::WriteLastImm | O::WriteOnly | O::WriteOnlyImm)
    }

    /// The first packet of a message, or its only one.
    pub const fn is_first(self) -> bool {
        matches!(
            self,
            O::SendFirst | O::WriteFirst | O::ReadResponseFirst | O::WriteOnly | O::WriteOnlyImm | O::ReadResponseOnly
        ) || matches!(self, O::SendOnly | O::SendOnlyImm | O::SendOnlyInvalidate)
    }

    /// The last packet of a message, or its only one.
    pub const fn is_last(self) -> bool {
        !matches!(
            self,
            O::SendFirst
                | O::SendMiddle
                | O::WriteFirst
                | O::WriteMiddle
                | O::ReadResponseFirst
                | O::ReadResponseMiddle
        )
    }
}

/// A BTH opcode: any 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Extended headers of an opcode, in the order of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Reliable datagram extended transport header.
    pub rdeth: bool,
    /// Datagram extended transport header.
    pub deth: bool,
    /// RDMA extended transport header.
    pub reth: bool,
    /// Atomic extended transport header.
    pub atomic: bool,
    /// Acknowledge extended transport header.
    pub aeth: bool,
    /// Atomic acknowledge extended transport header.
    pub atomic_ack: bool,
    /// Immediate data.
    pub imm: bool,
    /// Invalidate extended transport header.
    pub ieth: bool,
}

impl Layout {
    /// Bytes of these headers.
    pub const fn bytes(&self) -> usize {
        4 * self.rdeth as usize
            + 8 * self.deth as usize
            + 16 * self.reth as usize
            + 28 * self.atomic as usize
            + 4 * self.aeth as usize
            + 8 * self.atomic_ack as usize
            + 4 * self.imm as usize
            + 4 * self.ieth as usize
    }
}

impl Opcode {
    /// Congestion notification packet (IBTA A17.9.3).
    pub const CNP: Self = Self(0x81);

    /// Acknowledgement with SACK, between Berth cards.
    pub const SELECTIVE_ACKNOWLEDGE: Self = Self(BTH_SELECTIVE_ACKNOWLEDGE);

    /// The opcode of an operation of a service.
    pub const fn new(service: Service, operation: Operation) -> Self {
        Self((service as u8) << 5 | operation as u8)
    }

    /// RC opcode.
    pub const fn rc(operation: Operation) -> Self {
        Self::new(Service::Rc, operation)
    }

    /// RD opcode.
    pub const fn rd(operation: Operation) -> Self {
        Self::new(Service::Rd, operation)
    }

    /// UD opcode.
    pub const fn ud(operation: Operation) -> Self {
        Self::new(Service::Ud, operation)
    }

    /// The service; `None` for opcodes that Berth does not use, and for its own.
    pub const fn service(self) -> Option<Service> {
        match self.0 >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            2 => Some(Service::Rd),
            3 => Some(Service::Ud),
            4 => Some(Service::Cnp),
            _ => None,
        }
    }

    /// The operation, when the service has it; `None` for CNP, for Berth's own opcode and for those that are not used.
    pub fn operation(self) -> Option<Operation> {
        let operation = *O::ALL.get(usize::from(self.0 & 0x1f))?;
        let has = match self.service()? {
            Service::Rc => !matches!(operation, O::Resync),
            Service::Uc => operation as u8 <= O::WriteOnlyImm as u8,
            Service::Rd => operation as u8 <= O::Resync as u8,
            Service::Ud => matches!(operation, O::SendOnly | O::SendOnlyImm),
            Service::Cnp => false,
        };
        has.then_some(operation)
    }

    /// The extended headers; `None` for opcodes that are not used.
    pub fn layout(self) -> Option<Layout> {
        if self == Self::CNP {
            return Some(Layout::default());
        }
        if self == Self::SELECTIVE_ACKNOWLEDGE {
            return Some(Layout { aeth: true, ..Layout::default() });
        }
        let service = self.service()?;
        let operation = self.operation()?;
        Some(Layout {
            rdeth: service == Service::Rd,
            deth: service == Service::Ud || service == Service::Rd && !operation.is_response(),
            reth: matches!(operation, O::WriteFirst | O::WriteOnly | O::WriteOnlyImm | O::ReadRequest),
            atomic: matches!(operation, O::CompareSwap | O::FetchAdd),
            aeth: operation.is_response() && operation != O::ReadResponseMiddle,
            atomic_ack: operation == O::AtomicAcknowledge,
            imm: operation.has_immediate(),
            ieth: matches!(operation, O::SendLastInvalidate | O::SendOnlyInvalidate),
        })
    }

    /// Whether a packet with this opcode may have `len` bytes of payload. The connection checks it against path MTU and
    /// place in the message.
    ///
    /// # Errors
    /// [`Error::Length`] when not, [`Error::Opcode`] when the opcode is not used.
    pub fn check_payload(self, len: usize) -> Result<(), Error> {
        let fine = match self.operation() {
            None if self == Self::CNP => len == CNP_PAYLOAD,
            None if self == Self::SELECTIVE_ACKNOWLEDGE => len == Sack::BYTES,
            None => return Err(Error::Opcode),
            Some(O::ReadRequest | O::CompareSwap | O::FetchAdd | O::Acknowledge | O::AtomicAcknowledge | O::Resync) => {
                len == 0
            }
            // The placement header between Berth cards comes on top of a full MTU.
            Some(_) => len <= MAX_PAYLOAD + Placement::BYTES,
        };
        if fine { Ok(()) } else { Err(Error::Length) }
    }
}
