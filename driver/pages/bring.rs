// SPDX-License-Identifier: GPL-2.0
//! Pinning what a page request misses.

use crate::{
    abi::status::*,
    kernel::{
        pin::{self, PinnedRun},
        worker_mm::WorkerMm,
    },
    pages::{
        costs::as_cost,
        plan::Gap,
        request_state::{Attempt, RequestState},
        run::Memory,
        vpn::va_of,
        Request,
    },
};
use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::Arc,
    time::{Instant, Monotonic},
};

impl Request {
    /// Pins, maps and installs what is missing.
    pub(super) fn pin_missing_pages(self: &Arc<Self>, missing: &[Gap]) -> Result<Attempt> {
        let owner = &self.space;
        let notifier = owner.notifier();
        let Some(notifier) = notifier else {
            return Ok(Attempt::Answer(PAGE_NO_PROCESS));
        };
        let mut pins = KVec::with_capacity(missing.len(), GFP_KERNEL | __GFP_NOWARN)?;
        {
            let Some(mm) = owner.user_mm() else {
                return Ok(Attempt::Answer(PAGE_NO_PROCESS));
            };
            // From here on every change of the range makes the request stale.
            notifier.wait_settled();
            let begun = Instant::<Monotonic>::now();
            let mut result = self.pin_present_pages(&mm, missing, &mut pins);
            // What is not asked for at a time says nothing about what is.
            if result.is_ok() && !self.is_ahead() {
                let time = begun.elapsed().as_nanos();
                owner.service.note_cost(|costs| costs.pinned(as_cost(time)));
            }
            if result == Err(EFAULT) {
                pins.clear();
                if !self.bring_missing_pages(&mm, missing)? {
                    return Ok(Attempt::Again);
                }
                result = self.pin_present_pages(&mm, missing, &mut pins);
            }
            match result {
                // Some page has gone again meanwhile.
                Err(e) if e == EFAULT => return Ok(Attempt::Again),
                result => result?,
            }
        }
        drop(notifier);
        if let Some(attempt) = self.claim_pages(missing) {
            return Ok(attempt);
        }
        let result = self.map_and_install_pages(missing, pins);
        if !matches!(result, Ok(Attempt::Done)) {
            self.release_claim();
        }
        result
    }

    /// Pins what is missing, as far as it is there.
    fn pin_present_pages(
        &self,
        mm: &MmWithUser,
        missing: &[Gap],
        pins: &mut KVec<Memory>,
    ) -> Result {
        let reader = WorkerMm::new(mm);
        for gap in missing {
            let (va, pages) = (va_of(gap.first), gap.pages as usize);
            // Long-term for sends too: only that makes the process keep the page
            // when it writes to it (copy-on-write is broken first), and a page may
            // linger here.
            let run = PinnedRun::new(&reader, va, pages, self.write)?;
            let _ = pins.push_within_capacity(Memory::Process(run));
        }
        Ok(())
    }

    /// Brings what is missing. The request stays charged, and so keeps its turn, until it turns out
    /// that its pages do not come; `false` if its charge has been lent to others by then.
    fn bring_missing_pages(&self, mm: &MmWithUser, missing: &[Gap]) -> Result<bool> {
        let begun = self.since.elapsed().as_millis();
        let bringing = |lent| RequestState::Bringing { begun, lent };
        self.space.lock().set_state(self, bringing(false));
        self.space.service.sweep_later();
        let mut pages = missing.iter().flat_map(|gap| gap.first..=gap.last());
        let result = pages.try_for_each(|vpn| pin::bring(mm, va_of(vpn), self.write));
        let mut space = self.space.lock();
        // A request that was answered meanwhile has lent its charge as well.
        let mut lent = true;
        if let Some(pending) = space.pending(self) {
            lent = pending.state == bringing(true);
            pending.state = RequestState::Charged;
        }
        result.map(|()| !lent)
    }
}
