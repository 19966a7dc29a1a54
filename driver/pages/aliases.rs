// SPDX-License-Identifier: GPL-2.0
//! Aliases of queue pairs: other addresses for the memory of sends, which say how it reaches the card
//! ([`alias`](crate::abi::alias)).
//!
//! What is under an alias is for one element, and goes as soon as the card has released it. The memory manager knows the
//! process's addresses only, so pages that are pinned under an alias are looked for when it changes these.

use crate::{
    abi::{alias::*, status::*},
    card::deadline::{Deadline, FENCE_CYCLES},
    pages::{run::PageState, vpn::range_of, AddressSpace, AliasUse},
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta, Instant, Monotonic},
};

/// Time in milliseconds for which [`AddressSpace::wait_aliases_gone`] waits at least. By the card's clock it is as long as
/// for a fence, so that neither a host nor a card that is slow is taken for one that does not answer.
const GONE_MS: i64 = 100;

/// Aliases that one queue pair has; they are free again when this is dropped, and what is under them gone from the card soon.
///
/// # Invariants
///
/// `Space::alias_qps` has an entry at `place`, and this value owns it.
pub(crate) struct Aliases {
    space: Arc<AddressSpace>,
    place: u32,
}

impl Aliases {
    /// The first of them; there are `ALIASES_OF_QP`.
    pub(crate) fn first(&self) -> u32 {
        self.place * ALIASES_OF_QP
    }

    /// They are of this queue pair.
    pub(crate) fn set_qpn(&self, qpn: u32) {
        if let Some(of) = &mut self.space.lock().alias_qps[self.place as usize] {
            of.qpn = qpn;
        }
    }

    /// How many blocks that are pinned the card has had to ask for since this was asked last.
    pub(crate) fn asked(&self) -> u32 {
        match &mut self.space.lock().alias_qps[self.place as usize] {
            Some(of) => core::mem::take(&mut of.asked),
            None => 0,
        }
    }

    /// Whether all of these aliases, at least one, are among them.
    pub(crate) fn have(&self, first: u32, aliases: u32) -> bool {
        let end = first.checked_add(aliases);
        let mine = self.first()..=self.first() + ALIASES_OF_QP;
        aliases != 0 && mine.contains(&first) && end.is_some_and(|end| mine.contains(&end))
    }
}

impl Drop for Aliases {
    fn drop(&mut self) {
        let (first, last) = range_of(self.first(), ALIASES_OF_QP);
        self.space.lock().alias_qps[self.place as usize] = None;
        self.space
            .forget_wholes(self.first()..self.first() + ALIASES_OF_QP);
        self.space.revoke_aliases(first, last);
        self.space.service.leave_pool();
    }
}

impl AddressSpace {
    /// Gives aliases to a queue pair.
    ///
    /// # Errors
    ///
    /// `ENOSPC` too many queue pairs have some, or what the last owner had is not gone yet.
    pub(crate) fn aliases(self: &Arc<Self>) -> Result<Aliases> {
        let mut space = self.lock();
        for place in 1..=ALIAS_QPS {
            let (first, last) = range_of(place * ALIASES_OF_QP, ALIASES_OF_QP);
            if space.alias_qps[place as usize].is_none()
                && !space.is_revoking(first, last)
                && !space.has(first, last)
            {
                space.alias_qps[place as usize] = Some(AliasUse { qpn: 0, asked: 0 });
                self.service.use_pool();
                let space = self.clone();
                // INVARIANT: There was no entry, and there is one now.
                return Ok(Aliases { space, place });
            }
        }
        Err(ENOSPC)
    }

    /// Takes what is under aliases away from the card, whose elements are over, and gives it back soon.
    fn revoke_aliases(self: &Arc<Self>, first: u64, last: u64) {
        self.answer_those(PAGE_NO_PROCESS, |r| (first..=last).contains(&r.first));
        if self.mark_revoked(first, last, true).0 != 0 {
            self.revoke_later();
        }
    }

    /// Waits until nothing under aliases from `first` on is left, nor asked for. The elements that had them are complete.
    ///
    /// # Errors
    ///
    /// `EBUSY` something is left.
    pub(crate) fn wait_aliases_gone(self: &Arc<Self>, first: u32, aliases: u32) -> Result {
        self.forget_wholes(first..first + aliases);
        let (first, last) = range_of(first, aliases);
        self.answer_those(PAGE_NO_PROCESS, |r| {
            r.is_ahead() && (first..=last).contains(&r.first)
        });
        let begun = Instant::<Monotonic>::now();
        let (mut deadline, mut nap) = (None, 100);
        loop {
            let left = {
                let mut space = self.lock();
                let mut asked = space.requests.iter();
                let mut left = asked.any(|r| (first..=last).contains(&r.first));
                space.each(first, last, |run, pages| {
                    left = true;
                    self.evict(run, pages & run.are(&[PageState::Live]));
                    true
                });
                left
            };
            self.card.ring();
            if !left {
                return Ok(());
            }
            let regs = &self.card.regs;
            let deadline = deadline.get_or_insert_with(|| Deadline::new(regs, FENCE_CYCLES));
            if begun.elapsed().as_millis() >= GONE_MS && deadline.passed(regs) {
                return Err(EBUSY);
            }
            fsleep(Delta::from_micros(nap));
            nap = (2 * nap).min(5000);
        }
    }
}
