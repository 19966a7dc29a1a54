// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Aliases: other addresses for the memory of sends, which say how it reaches the card (VC-5 to VC-7, VC-10).
//!
//! The translation table knows pages by address space and virtual address alone, and whoever finds one there does not ask the
//! driver. So an element that is sent from copies, or whose pages go as soon as they are sent, has addresses of its own: under
//! an alias, which no two elements have at a time. An element that is posted under an alias only sends.
//!
//! | Bits of the address | What |
//! |---|---|
//! | 59 | 1: it is under an alias |
//! | 58:55 | which queue pair of the process, from 1 on |
//! | 54:47 | which of its `ALIASES_OF_QP` aliases: its policy, and a number |
//! | 46:0 | address in the process; bits 46:39 XORed by a number that depends on the alias |
//!
//! Because of the XOR, the table has other places for the same page under another alias. Memory that lies on both sides of
//! a multiple of 512 GiB is not contiguous under an alias, and is posted without.

/// How the memory of a send reaches the card for its first transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Block by block, pinned when it is about to be sent (VC-2).
    Pin,
    /// Block by block, as a copy in the driver's memory (VC-6).
    Copy,
    /// The whole send is pinned when the card asks for its first block; each page goes when it is sent (VC-7).
    Whole,
}

/// How it does for a retransmission, of what is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Pinned for that time (VC-4).
    Pin,
    /// As a copy (VC-5).
    Copy,
}

/// Aliases that a queue pair has.
pub const ALIASES_OF_QP: u32 = 256;
/// Queue pairs of a process that have some. Aliases are `ALIASES_OF_QP` to `ALIASES_OF_QP * (ALIAS_QPS + 1) - 1`.
pub const ALIAS_QPS: u32 = 15;
/// Virtual addresses below this can be sent from under an alias.
pub const ALIAS_END: u64 = 1 << ALIAS_BIT;

/// Policies that aliases stand for: for the first transmission, for retransmissions, and aliases of each queue pair that have
/// it, in this order. Sends that are pinned both times need no alias.
pub const ALIAS_POLICIES: [(First, Again, u32); 5] = [
    (First::Copy, Again::Copy, 128),
    (First::Pin, Again::Copy, 32),
    (First::Copy, Again::Pin, 32),
    (First::Whole, Again::Pin, 32),
    (First::Whole, Again::Copy, 32),
];

/// Bit of a virtual address that makes it one under an alias.
const UNDER_BIT: u32 = 59;
/// Lowest bit of the alias.
const ALIAS_BIT: u32 = 47;
/// Lowest bit of the address that depends on the alias.
const MIXED_BIT: u32 = 39;

/// What the bits of an address are XORed by, under an alias.
const fn mix(alias: u32) -> u64 {
    let place = alias / ALIASES_OF_QP;
    ((alias ^ place << 4 ^ place) as u64 & 0xff) << MIXED_BIT
}

/// The address under `alias` for the process's memory at `va` (below `ALIAS_END`).
pub const fn alias_va(alias: u32, va: u64) -> u64 {
    1 << UNDER_BIT | (alias as u64) << ALIAS_BIT | (va ^ mix(alias))
}

/// Alias and virtual address of the process that an address under an alias stands for; `None` if it is none.
pub const fn aliased_va(va: u64) -> Option<(u32, u64)> {
    if va >> UNDER_BIT != 1 {
        return None;
    }
    let alias = (va >> ALIAS_BIT) as u32 & ((1 << (UNDER_BIT - ALIAS_BIT)) - 1);
    Some((alias, (va & (ALIAS_END - 1)) ^ mix(alias)))
}

/// Whether `len` bytes (not 0) at `va` are as contiguous under an alias as they are in the process.
pub const fn fits_alias(va: u64, len: u64) -> bool {
    match va.checked_add(len - 1) {
        Some(last) => last < ALIAS_END && va >> MIXED_BIT == last >> MIXED_BIT,
        None => false,
    }
}

/// What an alias stands for.
pub const fn alias_policy(alias: u32) -> (First, Again) {
    let mut left = alias % ALIASES_OF_QP;
    let mut n = 0;
    while left >= ALIAS_POLICIES[n].2 {
        left -= ALIAS_POLICIES[n].2;
        n += 1;
    }
    (ALIAS_POLICIES[n].0, ALIAS_POLICIES[n].1)
}
