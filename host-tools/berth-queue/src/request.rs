// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be posted, and the queue element that it becomes.

use core::fmt;

use berth_abi::rows::send::Bind;
use berth_abi::wqe::{
    ATOMIC_BYTES, MAX_INLINE, MAX_MESSAGE, MAX_SGE, OP_DELAY, OP_NOP, OP_RECV, OP_SEND, SEND_FENCE, SEND_PUSH,
    SEND_UNSIGNALLED, Sge, Wqe,
};

/// Why something cannot be posted. Nothing of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// More ranges than the element has room for.
    TooManySges {
        /// Given.
        got: usize,
        /// Allowed.
        max: usize,
    },
    /// The ranges add up to more than `MAX_MESSAGE` bytes.
    MessageTooLong(u64),
    /// More data than `MAX_INLINE` bytes for the element itself.
    InlineTooLong {
        /// Given.
        got: u64,
        /// Allowed.
        max: usize,
    },
    /// The operation cannot have data inline.
    NoInline,
    /// An atomic whose ranges have not 8 bytes, or whose address is no multiple of 8.
    NotOfAtomic,
    /// A delay of more than `MAX_MESSAGE` units.
    DelayTooLong,
    /// No room in the queue.
    QueueFull {
        /// Free elements.
        free: u32,
        /// Depth of the queue.
        depth: u32,
    },
    /// More than 4 GiB - 1 would be posted and not completed: the doorbell could not tell (CR-9).
    TooMuchOutstanding,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl core::error::Error for Refused {}

/// Memory of the peer: an address of its process, and a key that opens it. The peer tells both, as in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Virtual address there.
    pub va: u64,
    /// Key of a region there.
    pub key: u32,
}

/// What an element does. Immediates are numbers: a foreign peer sees their four bytes, the highest first.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Receives; of the flags none applies.
    Receive,
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImmediate(u32),
    /// SEND that ends a key of the peer's (QP-4).
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate.
    WriteImmediate(Remote, u32),
    /// RDMA READ into the ranges.
    Read(Remote),
    /// Compare-and-swap; what stood there goes into the ranges.
    CompareSwap {
        /// The 8 bytes that it changes.
        remote: Remote,
        /// What they must be.
        expected: u64,
        /// What they become.
        new: u64,
    },
    /// Fetch-and-add, likewise; the number is added.
    FetchAdd(Remote, u64),
    /// Nothing (NOP).
    Nothing,
    /// Holds what is behind it for so many units of `DELAY_CYCLES` (QP-5).
    Delay(u64),
    /// Binds a key to `len` bytes from `va` on (QP-4).
    Bind {
        /// The key.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Bytes.
        len: u64,
        /// What it gives.
        scope: Bind,
    },
}

impl Operation {
    /// Ranges that an element with it has room for.
    #[inline]
    pub const fn max_sges(&self) -> usize {
        match self {
            Self::Receive | Self::Send => MAX_SGE,
            Self::CompareSwap { .. } | Self::FetchAdd(..) => MAX_SGE - 2,
            Self::Nothing | Self::Delay(_) | Self::Bind { .. } => 0,
            _ => MAX_SGE - 1,
        }
    }

    const fn may_be_inline(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) | Self::Write(_) | Self::WriteImmediate(..)
        )
    }
}

/// Where the data of an element are.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// In these ranges of the process; ranges of 0 bytes are legal and skipped.
    Ranges(&'a [Sge]),
    /// Copied into the element.
    Inline(&'a [u8]),
}

/// Something to be posted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What it does.
    pub operation: Operation,
    /// Its data.
    pub data: Data<'a>,
    /// With the solicited-event bit (IW-6).
    pub push: bool,
    /// Begins when all READs and atomics before it are complete.
    pub fence: bool,
    /// Has no completion if it succeeds.
    pub unsignalled: bool,
}

impl<'a> Request<'a> {
    /// Without flags.
    #[inline]
    pub const fn new(wr_id: u64, operation: Operation, data: Data<'a>) -> Self {
        Self { wr_id, operation, data, push: false, fence: false, unsignalled: false }
    }

    #[inline]
    fn flags(&self) -> u8 {
        if matches!(self.operation, Operation::Receive) {
            return 0;
        }
        let flags = [(self.push, SEND_PUSH), (self.fence, SEND_FENCE), (self.unsignalled, SEND_UNSIGNALLED)];
        flags.iter().filter(|flag| flag.0).map(|flag| flag.1).sum()
    }

    /// Bytes of data.
    ///
    /// # Errors
    /// As [`Request::element`].
    #[inline]
    pub fn length(&self) -> Result<u32, Refused> {
        let length = match self.data {
            Data::Ranges(sges) => {
                let max = self.operation.max_sges();
                if sges.len() > max {
                    return Err(Refused::TooManySges { got: sges.len(), max });
                }
                let sum: u64 = sges.iter().map(|s| u64::from(s.len)).sum();
                u32::try_from(sum).ok().filter(|n| *n <= MAX_MESSAGE).ok_or(Refused::MessageTooLong(sum))?
            }
            Data::Inline(_) if !self.operation.may_be_inline() => return Err(Refused::NoInline),
            Data::Inline(data) if data.len() > MAX_INLINE => {
                return Err(Refused::InlineTooLong { got: data.len() as u64, max: MAX_INLINE });
            }
            Data::Inline(data) => data.len() as u32,
        };
        match self.operation {
            Operation::CompareSwap { remote, .. } | Operation::FetchAdd(remote, _)
                if length != ATOMIC_BYTES || !remote.va.is_multiple_of(ATOMIC_BYTES.into()) =>
            {
                Err(Refused::NotOfAtomic)
            }
            Operation::Delay(units) if units > MAX_MESSAGE.into() => Err(Refused::DelayTooLong),
            _ => Ok(length),
        }
    }

    /// The queue element.
    ///
    /// # Errors
    /// All of [`Refused`] but what concerns the queue.
    #[inline(always)]
    pub fn element(&self) -> Result<Wqe, Refused> {
        let length = self.length()?;
        let mut wqe = Wqe { opcode: OP_SEND, flags: self.flags(), wr_id: self.wr_id, length, ..Wqe::default() };
        match self.data {
            Data::Ranges(sges) => {
                wqe.num_sge = sges.len() as u16;
                wqe.sge[..sges.len()].copy_from_slice(sges);
            }
            Data::Inline(data) => wqe = wqe.with_inline(data).expect("its length is checked above"),
        }
        let wqe = match self.operation {
            Operation::Receive => Some(Wqe { opcode: OP_RECV, ..wqe }),
            Operation::Send => Some(wqe),
            Operation::SendImmediate(number) => wqe.with_immediate(number),
            Operation::SendInvalidate(key) => wqe.with_invalidate(key),
            Operation::Write(Remote { va, key }) => wqe.with_remote(va, key),
            Operation::WriteImmediate(Remote { va, key }, number) => {
                wqe.with_immediate(number).and_then(|wqe| wqe.with_remote(va, key))
            }
            Operation::Read(Remote { va, key }) => wqe.with_source(va, key),
            Operation::CompareSwap { remote: Remote { va, key }, expected, new } => {
                wqe.with_compare_swap(va, key, expected, new)
            }
            Operation::FetchAdd(Remote { va, key }, number) => wqe.with_fetch_add(va, key, number),
            Operation::Nothing => Some(Wqe { opcode: OP_NOP, ..wqe }),
            Operation::Delay(units) => Some(Wqe { opcode: OP_DELAY, length: units as u32, ..wqe }),
            Operation::Bind { key, va, len, scope } => Some(wqe.with_bind(key, va, len, scope)),
        };
        Ok(wqe.expect("the number of ranges is checked above"))
    }
}

/// Copies the ranges' bytes into `data`, one behind the other; answers how many they are.
///
/// # Errors
/// [`Refused::InlineTooLong`].
///
/// # Safety
/// The ranges must be readable.
#[inline]
pub unsafe fn gather(sges: impl Iterator<Item = (u64, usize)>, data: &mut [u8; MAX_INLINE]) -> Result<usize, Refused> {
    let (mut at, mut more) = (0, 0usize);
    for (va, len) in sges.filter(|range| range.1 != 0) {
        match data.get_mut(at..).and_then(|rest| rest.get_mut(..len)) {
            // SAFETY: the caller vouches for the range; our own buffer is nobody else's.
            Some(part) if more == 0 => unsafe {
                core::ptr::copy(va as *const u8, part.as_mut_ptr(), len);
                at += len;
            },
            // Counted only, for the error.
            _ => more = len.saturating_add(more),
        }
    }
    if more != 0 {
        Err(Refused::InlineTooLong { got: at.saturating_add(more) as u64, max: MAX_INLINE })
    } else {
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_abi::wqe::{OP_FETCH_ADD, OP_WRITE, SEND_IMMEDIATE, SEND_INLINE};
    use std::vec::Vec;

    fn sge(va: u64, len: u32) -> Sge {
        Sge { va, len, reserved: 0 }
    }

    #[test]
    fn element_sums_its_ranges_and_refuses_too_many() {
        let sges: Vec<Sge> = (1..=7).map(|n| sge(0x1000 * u64::from(n), n)).collect();
        let wqe = Request::new(9, Operation::Receive, Data::Ranges(&sges)).element().unwrap();
        assert_eq!((wqe.opcode, wqe.num_sge, wqe.length, wqe.wr_id), (OP_RECV, 7, 28, 9));
        let refused = |operation, sges: &[Sge]| Request::new(0, operation, Data::Ranges(sges)).element().unwrap_err();
        assert_eq!(refused(Operation::Send, &[Sge::default(); 8]), Refused::TooManySges { got: 8, max: 7 });
        assert_eq!(refused(Operation::SendImmediate(0), &sges), Refused::TooManySges { got: 7, max: 6 });
        let remote = Remote { va: 8, key: 1 };
        assert_eq!(refused(Operation::FetchAdd(remote, 1), &sges[..6]), Refused::TooManySges { got: 6, max: 5 });
        let two = [sge(0, MAX_MESSAGE), sge(0, 1)];
        Request::new(0, Operation::Send, Data::Ranges(&two[..1])).element().unwrap();
        assert_eq!(refused(Operation::Send, &two), Refused::MessageTooLong(1 << 31));
    }

    #[test]
    fn an_atomic_changes_8_aligned_bytes() {
        for (va, len, good) in [(16, 8, true), (12, 8, false), (16, 4, false), (16, 9, false)] {
            let operation = Operation::FetchAdd(Remote { va, key: 1 }, 1);
            let sges = [sge(0x1000, len)];
            let made = Request::new(0, operation, Data::Ranges(&sges)).element();
            assert_eq!(made.map(|wqe| wqe.opcode), if good { Ok(OP_FETCH_ADD) } else { Err(Refused::NotOfAtomic) });
        }
    }

    #[test]
    fn flags_are_those_of_the_element_and_a_receive_has_none() {
        let all = |operation| {
            let data = Data::Ranges(&[]);
            Request { push: true, fence: true, unsignalled: true, ..Request::new(0, operation, data) }
                .element()
                .unwrap()
        };
        assert_eq!(all(Operation::Receive).flags, 0);
        assert_eq!(all(Operation::Send).flags, SEND_PUSH | SEND_FENCE | SEND_UNSIGNALLED);
        let write = all(Operation::WriteImmediate(Remote { va: 3, key: 4 }, 5));
        assert_eq!((write.opcode, write.flags & SEND_IMMEDIATE), (OP_WRITE, SEND_IMMEDIATE));
        assert_eq!(write.sge[0], Sge { va: 3, len: 4, reserved: 5 });
    }

    #[test]
    fn inline_data_are_gathered_up_to_the_elements_room() {
        let source: Vec<u8> = (0..65).collect();
        let at = |from: usize, len| (source[from..].as_ptr() as u64, len);
        let mut data = [0xff; MAX_INLINE];
        // SAFETY: the ranges lie in the vector.
        let gathered = unsafe { gather([at(0, 3), (0, 0), at(3, 61)].into_iter(), &mut data) };
        assert_eq!((gathered, &data[..]), (Ok(64), &source[..64]));
        let request = Request::new(0, Operation::Send, Data::Inline(&data[..64]));
        assert_eq!(request.element().unwrap().flags, SEND_INLINE);
        let read = Operation::Read(Remote { va: 0, key: 0 });
        assert_eq!(Request { operation: read, ..request }.element(), Err(Refused::NoInline));
        for ranges in [[at(0, 65), at(0, 0)], [at(0, 64), at(64, 1)]] {
            // SAFETY: as above.
            let gathered = unsafe { gather(ranges.into_iter(), &mut data) };
            assert_eq!(gathered, Err(Refused::InlineTooLong { got: 65, max: 64 }));
        }
    }
}
