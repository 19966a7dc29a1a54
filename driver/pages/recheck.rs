// SPDX-License-Identifier: GPL-2.0
//! Checking whether suspect pages are still mapped.

use crate::{
    card::PAGE,
    kernel::pin::{self, Mapping, PageId},
    pages::{page::PageEntry, unpin::BATCH, AddressSpace},
};
use kernel::{sync::Arc, workqueue::WorkItem};

impl WorkItem<3> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_recheck();
    }
}

impl AddressSpace {
    /// Checks suspect pages and revokes those that are not mapped as before.
    pub(super) fn run_recheck(self: &Arc<Self>) {
        let notifier = self.notifier();
        let (Some(notifier), Some(mm)) = (notifier, self.user_mm()) else {
            // The address space goes: all of it is revoked.
            return;
        };
        loop {
            let mut suspects = [(0, PageId::default()); BATCH];
            let mut n = 0;
            self.lock().each(0, u64::MAX, |vpn, page| {
                if page.suspect {
                    if n == BATCH {
                        return false;
                    }
                    page.suspect = false;
                    // The memory manager does not know copies.
                    if let Some(id) = page.memory.id() {
                        suspects[n] = (vpn, id);
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
                if pin::recheck(&mm, (*vpn * PAGE) as usize, *id) == Mapping::Same {
                    continue;
                }
                // Another page may be there by now.
                let same = |page: &PageEntry| page.memory.id() == Some(*id);
                revoked += self.mark_those_revoked(*vpn, *vpn, true, same).0;
            }
            if revoked != 0 {
                self.revoke_later();
            }
        }
    }
}
