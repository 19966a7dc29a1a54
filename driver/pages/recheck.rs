// SPDX-License-Identifier: GPL-2.0
//! Checking whether suspect pages are still mapped.

use crate::{
    kernel::pin::{self, Mapping, PageId},
    pages::{
        run::{bits, Run},
        vpn::va_of,
        AddressSpace,
    },
};
use kernel::{sync::Arc, workqueue::WorkItem};

/// Pages that are looked at per lock hold.
const BATCH: usize = 64;

impl WorkItem<3> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_recheck();
    }
}

impl AddressSpace {
    /// Checks suspect pages and revokes those that are not mapped as before.
    pub(super) fn run_recheck(self: &Arc<Self>) {
        // The memory manager wants what was evicted for it, and that need not be looked at.
        self.service.listen();
        self.card.tell_owner(|owner| owner.take_events(true));
        self.run_reap();
        let notifier = self.notifier();
        let (Some(notifier), Some(mm)) = (notifier, self.user_mm()) else {
            // The address space goes: all of it is revoked.
            return;
        };
        loop {
            let mut suspects = [(0, PageId::default()); BATCH];
            let mut n = 0;
            self.lock().each(0, u64::MAX, |run, pages| {
                for page in bits(run.suspect & pages) {
                    if n == BATCH {
                        return false;
                    }
                    run.suspect &= !(1 << page);
                    // The memory manager does not know copies.
                    if let Some(id) = run.memory.id(page) {
                        suspects[n] = (run.first + page as u64, id);
                        n += 1;
                    }
                }
                true
            });
            if n == 0 {
                break;
            }
            // The change that made them suspect is over.
            notifier.wait_settled();
            let mut revoked = 0;
            for (vpn, id) in &suspects[..n] {
                if pin::recheck(&mm, va_of(*vpn), *id) == Mapping::Same {
                    continue;
                }
                // Another page may be there by now.
                let same = |run: &Run| run.memory.id((vpn - run.first) as usize) == Some(*id);
                revoked += self.mark_page_revoked(*vpn, same);
            }
            if revoked != 0 {
                self.revoke_later();
            }
        }
    }
}
