// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! What engines of the RTL say to each other. Only they and their benches know it; so it is with [`recv::STEPS`].
//!
//! `hw-rtl/rtl/berth_row_pkg.sv` has it.

use super::rows::recv;

table! {
    /// Changes of the translation table, as (name, number, text).
    CHANGES: u32 {
    /// A page is installed.
    CHANGE_INSTALL = 0;
    /// It is dropped if it is not in use.
    CHANGE_EVICT = 1;
    /// It is dropped.
    CHANGE_REVOKE = 2;
    }
}

table! {
    /// Atomics of packets.
    ATOMICS: u32 {
    /// It is none.
    ATOMIC_NONE = 0;
    /// Compare and swap.
    ATOMIC_SWAP = 1;
    /// Fetch and add.
    ATOMIC_ADD = 2;
    }
}

table! {
    /// Accesses of a peer.
    ACCESSES: u32 {
    /// It writes.
    ACCESS_WRITE = 0;
    /// It reads.
    ACCESS_READ = 1;
    /// An atomic.
    ACCESS_ATOMIC = 2;
    /// A SEND was to end the key.
    ACCESS_INVALIDATE = 3;
    }
}

table! {
    /// The right that an access needs, by its bit of `RIGHT_*`.
    RIGHT_BITS: u32 {
    /// `RIGHT_READ`.
    RIGHT_BIT_READ = recv::RIGHT_READ.trailing_zeros();
    /// `RIGHT_WRITE`.
    RIGHT_BIT_WRITE = recv::RIGHT_WRITE.trailing_zeros();
    /// `RIGHT_ATOMIC`.
    RIGHT_BIT_ATOMIC = recv::RIGHT_ATOMIC.trailing_zeros();
    }
}

table! {
    /// Why a receive completes without data, or only gives back what it holds.
    ASIDES: u32 {
    /// It completes, and was never a credit.
    ASIDE_LOCAL = 0;
    /// It completes, was a credit and gets no data any more.
    ASIDE_FLUSH = 1;
    /// It is taken back or withdrawn: only its pages go back.
    ASIDE_RELEASE = 2;
    /// Likewise, of one that was never granted.
    ASIDE_PART = 3;
    }
}

table! {
    /// Pieces of elements.
    PIECES: u32 {
    /// It has data.
    PIECE_DATA = 0;
    /// An element without data.
    PIECE_EMPTY = 1;
    /// One that is longer than its credit.
    PIECE_TOO_LONG = 2;
    /// One that is malformed.
    PIECE_BAD = 3;
    }
}

table! {
    /// A block of memory that is neither held nor refused.
    BLOCKS: u32 {
    /// It is asked for.
    BLOCK_ASKED = 0;
    /// It has been given back.
    BLOCK_BACK = 1;
    /// Likewise, and is to be asked for again.
    BLOCK_AGAIN = 2;
    }
}

table! {
    /// Why a sender goes on no more.
    ACKS: u32 {
    /// Nothing was acknowledged in time.
    ACK_TIMEOUT = 0;
    /// A NAK.
    ACK_NAK = 1;
    /// An RNR NAK.
    ACK_RNR = 2;
    }
}
