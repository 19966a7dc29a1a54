// SPDX-License-Identifier: GPL-2.0
//! Unpinning pages, and what they were charged.

use crate::{
    abi::counters::*,
    pages::{
        page::{Node, PageEntry, PageState},
        AddressSpace,
    },
};
use kernel::{sync::Arc, time::Instant, workqueue::WorkItem};

/// Pages handled per lock hold when many are taken out.
pub(super) const BATCH: usize = 64;

impl WorkItem<1> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_reap();
    }
}

impl AddressSpace {
    /// Unpins pages that were taken out of the tree.
    fn unpin(&self, nodes: &mut [Option<Node>]) {
        let (mut pages, mut receive, mut some) = (0, 0, false);
        for node in nodes.iter_mut().filter_map(|place| place.take()) {
            let (_, page) = node.to_key_value();
            self.service.table.lock().give_back(page.index);
            some = true;
            pages += u64::from(!page.memory.is_copy());
            receive += u64::from(page.memory.is_write());
            // Unmaps, then unpins, or gives a copy's page back; may sleep.
            drop(page);
        }
        if !some {
            return;
        }
        if pages != 0 {
            self.card.counters.add(D_PAGES_UNPINNED, pages);
            self.lock().unpinned = Instant::now();
        }
        self.uncharge(pages - receive, false);
        self.uncharge(receive, true);
        // Not in `uncharge`: a request that found no place uncharges as well, and would retry for
        // ever.
        self.service.for_each_space(Self::retry_for_place);
    }

    /// Takes out and unpins all pages for which `f` says so.
    pub(super) fn unpin_where(&self, mut f: impl FnMut(u64, &PageEntry) -> bool) {
        // No memory is taken where memory is given back.
        let mut nodes = [const { None }; BATCH];
        while self.lock().take_out(&mut nodes, &mut f) != 0 {
            self.unpin(&mut nodes);
        }
    }

    /// Unpins what the card has dropped.
    pub(super) fn run_reap(&self) {
        self.unpin_where(|_, page| page.state == PageState::Dead);
        self.retry_requests();
    }

    /// Unpins everything. The card does no DMA any more, and no request is left to wait for a page.
    pub(crate) fn drop_pages(&self) {
        self.unpin_where(|_, _| true);
        self.lock().revoking.clear();
    }
}
