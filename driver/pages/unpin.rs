// SPDX-License-Identifier: GPL-2.0
//! Unpinning pages, and what they were charged.

use crate::{
    abi::counters::*,
    pages::{
        leaving::Leaving,
        run::{bits, PageState, Run},
        vpn::ALIAS_VPN,
        AddressSpace,
    },
};
use kernel::{
    sync::{atomic::Relaxed, Arc},
    time::Instant,
    workqueue::WorkItem,
};

impl WorkItem<1> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_reap();
    }
}

impl AddressSpace {
    /// Unpins pages that were taken out of the tree.
    fn unpin(&self, mut leaving: Leaving) {
        let parts = leaving.parts;
        let part = leaving.part.take();
        {
            let mut table = self.service.table.lock();
            leaving.places[..parts]
                .iter()
                .for_each(|place| table.give_back(*place));
        }
        drop(part);
        for node in core::mem::take(&mut leaving.nodes).into_iter().flatten() {
            let (key, run) = node.to_key_value();
            if key.last >= ALIAS_VPN {
                self.service.aliased.fetch_sub(1, Relaxed);
            }
            leaving.count(&run, run.there());
            {
                let mut table = self.service.table.lock();
                bits(run.there()).for_each(|n| table.give_back(run.places[n]));
            }
            // Unmaps, then unpins, or gives copies' pages back; may sleep.
            drop(run);
        }
        if leaving.pages != 0 {
            self.card.counters.add(D_PAGES_UNPINNED, leaving.pages);
            self.lock().unpinned = Instant::now();
        }
        self.uncharge(leaving.pages - leaving.receive, false);
        self.uncharge(leaving.receive, true);
        // Not in `uncharge`: a request that found no place uncharges as well, and would retry for
        // ever.
        self.service.for_those_that_wait(Self::retry_for_place);
    }

    /// Takes out and unpins all pages that `f` names.
    pub(super) fn unpin_where(&self, mut f: impl FnMut(&Run) -> u64) {
        loop {
            // No memory is taken where memory is given back.
            let mut leaving = Leaving::new();
            self.lock().take_out(&mut leaving, &mut f);
            if leaving.is_empty() {
                return;
            }
            self.unpin(leaving);
        }
    }

    /// Unpins what the card has dropped.
    pub(super) fn run_reap(&self) {
        self.unpin_where(|run| run.are(&[PageState::Dead]));
        self.retry_requests();
    }

    /// Unpins everything. The card does no DMA any more, and no request is left to wait for a page.
    pub(crate) fn drop_pages(&self) {
        self.unpin_where(Run::there);
        self.lock().revoking.clear();
    }
}
