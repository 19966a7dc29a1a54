// SPDX-License-Identifier: GPL-2.0
//! Budgets of pinned pages.

/// Pages of `limit` that a request leaves for others (decision 19): a receive leaves `reserve` for
/// sends, at most half of all, so that sends always go on.
pub(crate) fn spare(limit: u64, write: bool, reserve: u64) -> u64 {
    if write {
        reserve.min(limit / 2)
    } else {
        0
    }
}

/// Pinned-page budget of a card or a context, in pages.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    /// Most pages.
    pub(crate) limit: u64,
    /// Pages charged.
    pub(crate) pinned: u64,
    /// Those of them that were pinned for receiving.
    pub(crate) receive: u64,
    /// Most pages that were charged at any time.
    pub(crate) peak: u64,
}

impl Budget {
    /// A budget of `limit` pages.
    pub(crate) const fn new(limit: u64) -> Self {
        Self {
            limit,
            pinned: 0,
            receive: 0,
            peak: 0,
        }
    }

    /// Most pages that may be pinned with a request.
    pub(crate) fn most(&self, write: bool, reserve: u64) -> u64 {
        self.limit - spare(self.limit, write, reserve)
    }

    /// Whether `pages` more fit.
    pub(crate) fn fits(&self, pages: u64, write: bool, reserve: u64) -> bool {
        self.pinned + pages <= self.most(write, reserve)
    }

    /// Charges pages.
    pub(crate) fn charge(&mut self, pages: u64, write: bool) {
        self.pinned += pages;
        self.peak = self.peak.max(self.pinned);
        if write {
            self.receive += pages;
        }
    }

    /// Takes pages off.
    pub(crate) fn uncharge(&mut self, pages: u64, write: bool) {
        self.pinned -= pages;
        if write {
            self.receive -= pages;
        }
    }
}
