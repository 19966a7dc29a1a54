// SPDX-License-Identifier: GPL-2.0
//! Virtual page numbers: where the process has a page, and which alias it is under for the card.

use crate::{abi::alias::*, card::PAGE};

/// Lowest page number under an alias.
pub(super) const ALIAS_VPN: u64 = alias_va(0, 0) / PAGE;

/// The first and the last page number under aliases from `first` on.
pub(super) fn range_of(first: u32, aliases: u32) -> (u64, u64) {
    let per_alias = ALIAS_END / PAGE;
    let begin = ALIAS_VPN + u64::from(first) * per_alias;
    (begin, begin + u64::from(aliases) * per_alias - 1)
}

/// The alias that page `vpn` is under.
pub(super) fn alias_of(vpn: u64) -> Option<u32> {
    aliased_va(vpn.wrapping_mul(PAGE)).map(|(alias, _)| alias)
}

/// Where the process has what page `vpn` is.
pub(super) fn va_of(vpn: u64) -> usize {
    let va = vpn * PAGE;
    aliased_va(va).map_or(va, |(_, va)| va) as usize
}

/// Whether neighbouring pages are under one alias, and neighbours in the process too.
pub(super) fn under_one_alias(first: u64, last: u64) -> bool {
    let [first, last] = [first, last].map(|vpn| aliased_va(vpn.wrapping_mul(PAGE)));
    match (first, last) {
        (Some((one, begin)), Some((other, end))) => {
            one == other && begin <= end && fits_alias(begin, end - begin + 1)
        }
        _ => false,
    }
}
