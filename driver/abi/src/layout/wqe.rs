// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Queue elements that process and card share: send and receive WQE, CQE.

use super::Record;

use super::rows::send::Bind;

/// SGEs of one WQE.
pub const MAX_SGE: usize = 7;
/// Bytes of a WQE; a queue is an array of them, indexed by the producer index modulo its depth.
pub const WQE_BYTES: u32 = 128;
/// Bytes of a CQE.
pub const CQE_BYTES: u32 = 32;
/// Most bytes in one WQE (InfiniBand allows one more, IBTA 9.7.2.1).
pub const MAX_MESSAGE: u32 = 0x7fff_ffff;

/// `Wqe::opcode`: send (QP-2, CR-15).
pub const OP_SEND: u8 = 1;
/// `Wqe::opcode`: receive (QP-2).
pub const OP_RECV: u8 = 2;
/// `Wqe::opcode`: RDMA WRITE (QP-3), message mode only. Where it goes stands in front of SGEs and data, as
/// `Wqe::with_remote` puts it.
pub const OP_WRITE: u8 = 3;
/// `Wqe::opcode`: RDMA READ (QP-3), message mode only, with no flags but `SEND_FENCE` and `SEND_UNSIGNALLED`. The SGEs are
/// where the answer goes; where it is read stands in front of them, as `Wqe::with_source` puts it.
pub const OP_READ: u8 = 4;
/// `Wqe::opcode`: nothing is sent; the element completes when those before it are complete (NOP). Of the flags it has
/// `SEND_FENCE` and `SEND_UNSIGNALLED` only, and no SGEs.
pub const OP_NOP: u8 = 5;
/// `Wqe::opcode`: DELAY (QP-5), likewise. When all before it has left for the first time, what is behind it is held for
/// `Wqe::length` units of `DELAY_CYCLES`.
pub const OP_DELAY: u8 = 6;
/// `Wqe::opcode`: BIND (QP-4), likewise. Binds a key of the QP's protection domain, as `Wqe::with_bind` puts it; what is behind
/// it is held until that is done.
pub const OP_BIND: u8 = 7;
/// `Wqe::opcode`: compare-and-swap of 8 bytes (QP-3), message mode only, with no flags but `SEND_FENCE` and
/// `SEND_UNSIGNALLED`. The SGEs, of together 8 bytes, are where what stood there goes; in front of them stand its address,
/// a multiple of 8, and what it is compared with and becomes, as `Wqe::with_compare_swap` puts it.
pub const OP_CMP_SWAP: u8 = 8;
/// `Wqe::opcode`: fetch-and-add (QP-3), likewise, as `Wqe::with_fetch_add` puts it.
pub const OP_FETCH_ADD: u8 = 9;
/// Bytes that an atomic changes.
pub const ATOMIC_BYTES: u32 = 8;
/// Cycles of the card in the unit of a DELAY.
pub const DELAY_CYCLES: u32 = 64;

/// Send flag: PUSH (IW-6), carried as the solicited-event bit of the last packet.
pub const SEND_PUSH: u8 = 1;
/// Send flag: the data, at most `MAX_INLINE` bytes, stand in the element in place of the SGEs, and `num_sge` is 0.
pub const SEND_INLINE: u8 = 2;
/// Send flag: the process's immediate travels with the last packet, and reaches the receive's completion (message mode;
/// stream mode keeps immediates for itself). It stands in front of SGEs and data, as `Wqe::with_immediate` puts it.
pub const SEND_IMMEDIATE: u8 = 4;
/// Send flag: the element is not begun before all READs before it are complete (fence, IBTA 10.8.3.3).
pub const SEND_FENCE: u8 = 8;
/// Send flag: the element has no completion if it succeeds; a completion behind it says so.
pub const SEND_UNSIGNALLED: u8 = 16;
/// Send flag: with the last packet travels a key of the peer's, which is dead when the receive completes, and named by its
/// completion (SEND with invalidate; `OP_SEND` in message mode, without `SEND_IMMEDIATE`). It stands where the immediate
/// does, as `Wqe::with_invalidate` puts it.
pub const SEND_INVALIDATE: u8 = 32;
/// Most bytes of data in an element.
pub const MAX_INLINE: usize = 64;
/// Most of them in an element that a doorbell brings: as many as fit its slot beside the header and the commit word.
pub const SLOT_INLINE: usize = 40;
/// 8-byte words of an element in a doorbell's slot (`DB_WQE`): header, and `SLOT_INLINE` bytes of data or two SGEs.
/// The word behind them commits the slot.
pub const SLOT_WORDS: usize = 7;

elements! {
    /// Scatter/gather element: one range of the process's virtual addresses.
    Sge {
        /// Virtual address of the first byte.
        va: u64,
        /// Length in bytes; 0 is legal and skipped.
        len: u32,
        /// Must be zero.
        reserved: u32,
    }
    /// A send or receive queue element.
    Wqe {
        /// `OP_*`, fitting the queue.
        opcode: u8,
        /// `SEND_*`; 0 for receives. Unknown flags are refused.
        flags: u8,
        /// SGEs in use, 0 to `MAX_SGE`; one less with `SEND_IMMEDIATE`, `SEND_INVALIDATE`, `OP_WRITE` or `OP_READ`, and two less
        /// with `OP_CMP_SWAP` or `OP_FETCH_ADD`. Of a BIND
        /// what it gives, as a `send::Bind`.
        num_sge: u16,
        /// Sum of the SGE lengths; must match. With `SEND_INLINE` the bytes of data. Of a DELAY its time, of a BIND the lower
        /// half of the number of bytes.
        length: u32,
        /// The caller's own, returned in the completion.
        wr_id: u64,
        /// Gather or scatter list; with `SEND_INLINE` the data from its first byte on. With `SEND_IMMEDIATE`,
        /// `SEND_INVALIDATE`, `OP_WRITE` or `OP_READ` all of that is one place further back, and the first place has the remote
        /// address in `va`, the key in `len` and the immediate, or key to invalidate, in `reserved`, each 0 if there is none. With
        /// `OP_CMP_SWAP` or `OP_FETCH_ADD` it is two places: the second one has in `va` what is swapped in or added, and in `len`
        /// and `reserved` the halves of what is compared, 0 if nothing is. Of a BIND the first place alone is used.
        sge: [Sge; MAX_SGE],
    }
}

impl Wqe {
    /// Puts data into the element in place of the SGEs, as `SEND_INLINE` says; `None` above `MAX_INLINE` bytes, or behind
    /// [`Wqe::with_immediate`] and [`Wqe::with_remote`].
    #[inline(always)]
    pub fn with_inline(mut self, data: &[u8]) -> Option<Self> {
        if self.has_line() {
            return None;
        }
        let mut bytes = [0; MAX_INLINE];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        let word = |part: &[u8]| part.try_into().map_or(0, u64::from_le_bytes);
        self.sge = [Sge::default(); MAX_SGE];
        for (sge, part) in self.sge.iter_mut().zip(bytes.chunks_exact(16)) {
            let (va, rest) = part.split_at(8);
            *sge = Sge {
                va: word(va),
                len: word(rest) as u32,
                reserved: (word(rest) >> 32) as u32,
            };
        }
        self.flags |= SEND_INLINE;
        self.num_sge = 0;
        self.length = data.len() as u32;
        Some(self)
    }

    /// Something stands in front of SGEs and data.
    pub const fn has_line(&self) -> bool {
        self.flags & (SEND_IMMEDIATE | SEND_INVALIDATE) != 0
            || self.one_sided()
            || self.opcode == OP_BIND
    }

    /// It names memory of the peer.
    const fn one_sided(&self) -> bool {
        matches!(self.opcode, OP_WRITE | OP_READ) || self.is_atomic()
    }

    /// Its operands stand behind the peer's address.
    const fn is_atomic(&self) -> bool {
        matches!(self.opcode, OP_CMP_SWAP | OP_FETCH_ADD)
    }

    /// Makes room in front of SGEs and data, if there is none yet; `None` if there are `MAX_SGE` SGEs.
    fn with_line(mut self) -> Option<Self> {
        if !self.has_line() {
            if usize::from(self.num_sge) >= MAX_SGE {
                return None;
            }
            self.sge.copy_within(..MAX_SGE - 1, 1);
            self.sge[0] = Sge::default();
        }
        Some(self)
    }

    /// Adds an immediate, as `SEND_IMMEDIATE` says; `None` if there are `MAX_SGE` SGEs, or one is in it.
    pub fn with_immediate(self, immediate: u32) -> Option<Self> {
        self.with_word(SEND_IMMEDIATE, immediate)
    }

    /// Adds the key of the peer's that it invalidates, as `SEND_INVALIDATE` says; `None` if there are `MAX_SGE` SGEs, an
    /// immediate or such a key is in it, or it is no send.
    pub fn with_invalidate(self, key: u32) -> Option<Self> {
        if self.opcode != OP_SEND {
            return None;
        }
        self.with_word(SEND_INVALIDATE, key)
    }

    fn with_word(self, flag: u8, word: u32) -> Option<Self> {
        if self.flags & (SEND_IMMEDIATE | SEND_INVALIDATE) != 0 {
            return None;
        }
        let mut wqe = self.with_line()?;
        wqe.sge[0].reserved = word;
        wqe.flags |= flag;
        Some(wqe)
    }

    /// Makes it an RDMA WRITE to the address `va` of the peer, under its key; `None` if there are `MAX_SGE` SGEs, or it is
    /// a WRITE or READ.
    pub fn with_remote(self, va: u64, key: u32) -> Option<Self> {
        self.to_remote(OP_WRITE, va, key)
    }

    /// Likewise an RDMA READ from that address.
    pub fn with_source(self, va: u64, key: u32) -> Option<Self> {
        self.to_remote(OP_READ, va, key)
    }

    fn to_remote(self, opcode: u8, va: u64, key: u32) -> Option<Self> {
        if self.one_sided() {
            return None;
        }
        let mut wqe = self.with_line()?;
        (wqe.sge[0].va, wqe.sge[0].len) = (va, key);
        wqe.opcode = opcode;
        Some(wqe)
    }

    /// Makes it a compare-and-swap of 8 bytes at the address `va` of the peer, under its key: they become `swap` if they are
    /// `compare`. `None` if there are more than `MAX_SGE - 2` SGEs, or something stands in front of them.
    pub fn with_compare_swap(self, va: u64, key: u32, compare: u64, swap: u64) -> Option<Self> {
        self.to_change(OP_CMP_SWAP, (va, key), swap, compare)
    }

    /// Likewise a fetch-and-add: `add` is added to them, modulo 2^64.
    pub fn with_fetch_add(self, va: u64, key: u32, add: u64) -> Option<Self> {
        self.to_change(OP_FETCH_ADD, (va, key), add, 0)
    }

    fn to_change(
        self,
        opcode: u8,
        (va, key): (u64, u32),
        operand: u64,
        compare: u64,
    ) -> Option<Self> {
        if self.has_line() || usize::from(self.num_sge) > MAX_SGE - 2 {
            return None;
        }
        let mut wqe = self;
        wqe.sge.copy_within(..MAX_SGE - 2, 2);
        wqe.sge[0] = Sge {
            va,
            len: key,
            reserved: 0,
        };
        wqe.sge[1] = Sge {
            va: operand,
            len: compare as u32,
            reserved: (compare >> 32) as u32,
        };
        wqe.opcode = opcode;
        Some(wqe)
    }

    /// Makes an element without SGEs a BIND: from then on the key opens `len` bytes from `va` on to the peers of the QP's
    /// protection domain, with the rights of `scope`, and nothing else; 0 bytes at 0 are nothing. The key's lowest 8 bits may
    /// be other ones than it had: they are its own then.
    pub const fn with_bind(mut self, key: u32, va: u64, len: u64, scope: Bind) -> Self {
        self.opcode = OP_BIND;
        self.num_sge = scope.word() as u16;
        self.length = len as u32;
        self.sge[0] = Sge {
            va,
            len: key,
            reserved: (len >> 32) as u32,
        };
        self
    }

    /// Bytes that it sends or takes, which a doorbell counts.
    #[inline]
    pub const fn bytes(&self) -> u32 {
        match self.opcode {
            OP_DELAY | OP_BIND => 0,
            _ => self.length,
        }
    }

    /// Its words, as they stand in the queue.
    pub fn words(&self) -> [u64; WQE_BYTES as usize / 8] {
        let mut words = [0; WQE_BYTES as usize / 8];
        words[0] = u64::from(self.opcode)
            | u64::from(self.flags) << 8
            | u64::from(self.num_sge) << 16
            | u64::from(self.length) << 32;
        words[1] = self.wr_id;
        for (pair, sge) in words[2..].chunks_exact_mut(2).zip(&self.sge) {
            pair[0] = sge.va;
            pair[1] = u64::from(sge.len) | u64::from(sge.reserved) << 32;
        }
        words
    }

    /// Its words in a doorbell's slot; `None` if it has more SGEs or data than that holds.
    #[inline(always)]
    pub fn slot(&self) -> Option<[u64; SLOT_WORDS]> {
        let line = usize::from(self.has_line()) + usize::from(self.is_atomic());
        let sges = if self.opcode == OP_BIND {
            0
        } else {
            usize::from(self.num_sge)
        };
        let (lines, data) = (sges + line, self.length as usize);
        if lines > 2 || (self.flags & SEND_INLINE != 0 && data > SLOT_INLINE - 16 * line) {
            return None;
        }
        self.words().first_chunk().copied()
    }
}

elements! {
    /// A completion queue element. Entries are written in order; an entry is valid when
    /// its phase bit differs from the previous round's: on the first round through the
    /// ring valid entries have phase 1, on the second 0, and so on.
    Cqe {
        /// `Wqe::wr_id` of the element that completes.
        wr_id: u64,
        /// Bytes moved: of a receive, the bytes in its buffer (less than its size is legal, CR-2).
        byte_len: u32,
        /// QPN of the queue pair.
        qpn: u32,
        /// `WC_*`.
        status: u8,
        /// Opcode of the element that completes.
        opcode: u8,
        /// `CQE_*` flags.
        flags: u16,
        /// With `CQE_IMMEDIATE`. Stream mode: bytes that the sender still had to send after this piece (CR-9); 2^32 - 1 means
        /// "at least that". Message mode: the sender's own immediate. With `CQE_INVALIDATED` the key.
        remaining: u32,
        /// Credit number that the piece used (receives); of sends, how many of the queue are complete with this one, modulo
        /// 2^16: those before it that are not signalled have no entry of their own.
        credit: u32,
        /// Bit 31: phase, set by the completion writer. Other bits 0.
        phase: u32,
    }
}

impl Cqe {
    /// From its words in memory.
    pub const fn from_words(words: &[u32; CQE_BYTES as usize / 4]) -> Self {
        let &[id, id_high, byte_len, qpn, codes, remaining, credit, phase] = words;
        Self {
            wr_id: super::wide(id, id_high),
            byte_len,
            qpn,
            status: codes as u8,
            opcode: (codes >> 8) as u8,
            flags: (codes >> 16) as u16,
            remaining,
            credit,
            phase,
        }
    }
}
/// `Cqe::flags`: the last packet carried PUSH.
pub const CQE_PUSH: u16 = 1;
/// `Cqe::flags`: the last packet carried an immediate, which is in `Cqe::remaining`.
pub const CQE_IMMEDIATE: u16 = 2;
/// `Cqe::flags`: the last packet invalidated a key, which is in `Cqe::remaining`, and dead.
pub const CQE_INVALIDATED: u16 = 4;
/// Mask of the phase bit in `Cqe::phase`, and in word 0 of events.
pub const PHASE: u32 = 1 << 31;
