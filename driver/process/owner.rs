// SPDX-License-Identifier: GPL-2.0
//! What the card tells the registry, its owner.

use crate::{abi::card::*, card::owner::Owner, pages::share::Share, process::Registry};
use kernel::sync::Arc;

impl Owner for Registry {
    fn lose_objects(&self) {
        self.pages.drop_needs();
        {
            // Cleared before the contexts' events, so that no more are queued.
            let mut tables = self.tables.lock();
            tables.services.clear();
            tables.requests.clear();
        }
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.device_lost();
            }
        }
        self.pages.table.lock().clear();
        self.tell_link();
    }

    fn in_service(&self) {
        self.tell_link();
    }

    fn hurry_end_of_qp(&self, qpn: u32) {
        // Perhaps the QP waits for a page that never comes (decision 21).
        if let Some(context) = self.owner_of_qp(qpn) {
            context.space.give_up_requests();
        }
    }

    fn refuse_receive(&self, qpn: u32) {
        if let Some(context) = self.owner_of_qp(qpn) {
            self.pages.refuse_receive(&context.space, qpn);
        }
    }

    fn take_events(&self, reap: bool) {
        (self.take_events)(self, reap);
    }

    fn look_around(&self) {
        self.look_at_processes();
        if let Some(link) = &self.link {
            link.look_around();
        }
    }
}

impl Registry {
    /// The card came into service or out of it.
    fn tell_link(&self) {
        if let Some(link) = &self.link {
            link.card_changed();
        }
    }

    /// Closes what processes have left behind, and forgets those that have nothing any more.
    fn look_at_processes(&self) {
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.close_if_orphaned(self.shares_of);
            }
        }
        let in_use = |share: &Arc<Share>| {
            let tables = self.tables.lock();
            let mut contexts = tables.contexts.iter().flatten();
            contexts.any(|context| Arc::ptr_eq(&context.space.share, share))
        };
        let mut shares = self.shares.lock();
        shares.retain(|share| in_use(share) || share.works.lock().running != 0);
    }
}
