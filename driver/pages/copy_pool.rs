// SPDX-License-Identifier: GPL-2.0
//! Pages for copies (VC-5, VC-6): what a card has of them, and one that is taken. Who takes them when stands in `pool`.

use crate::{kernel::pin::SharedPages, pages::share::Share};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{Instant, Monotonic},
};

/// Pages for copies, of one card.
pub(crate) struct Pool {
    /// Most pages.
    pub(crate) limit: u64,
    /// Pages that requests have taken.
    pub(crate) used: u64,
    /// Pages that are mapped and not taken; room for `limit`.
    pub(super) free: KVec<SharedPages>,
    /// Queue pairs that have aliases. Without any, no page is kept.
    pub(super) users: u32,
    /// Since when the request that is to be served next has waited.
    pub(super) next: Option<Instant<Monotonic>>,
    /// Requests wait that were not told of a page that came back.
    pub(super) waited_for: bool,
}

impl Pool {
    /// A pool of at most `limit` pages, of which there are none yet.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        Ok(Self {
            limit,
            used: 0,
            free: KVec::with_capacity(limit as usize, GFP_KERNEL)?,
            users: 0,
            next: None,
            waited_for: false,
        })
    }

    /// Most pages that one process has: half of them, so that it does not keep others from theirs.
    pub(super) const fn most(&self) -> u64 {
        self.limit / 2
    }
}

/// Where pages come from, and go back to.
pub(crate) trait Home: Send + Sync {
    /// A page, which is made if none is kept.
    ///
    /// # Errors
    ///
    /// `ENOMEM` there is no memory for it, `ENODEV` the device goes, `EOPNOTSUPP` it would need a bounce buffer.
    fn make(&self) -> Result<SharedPages>;

    /// One that counted to `share` is not used any more, if it was made. May sleep.
    fn take_back(&self, page: Option<SharedPages>, share: &Share);
}

/// A page of the pool that a request has taken; goes back when dropped, which may sleep.
pub(crate) struct CopyPage {
    /// There until it is dropped, once it is made.
    page: Option<SharedPages>,
    home: Arc<dyn Home>,
    /// Whose copies it counts to.
    share: Arc<Share>,
}

impl CopyPage {
    /// One that is counted, of which there is no memory yet.
    pub(super) fn new(home: Arc<dyn Home>, share: Arc<Share>) -> Self {
        let page = None;
        Self { page, home, share }
    }

    /// Bus address.
    pub(crate) fn addr(&self) -> u64 {
        self.page.as_ref().map_or(0, SharedPages::addr)
    }

    /// Its memory, which is made if there is none.
    ///
    /// # Errors
    ///
    /// As [`Home::make`].
    pub(super) fn memory(&mut self) -> Result<&SharedPages> {
        match &mut self.page {
            Some(page) => Ok(page),
            none => Ok(none.insert(self.home.make()?)),
        }
    }
}

impl Drop for CopyPage {
    fn drop(&mut self) {
        self.home.take_back(self.page.take(), &self.share);
    }
}
