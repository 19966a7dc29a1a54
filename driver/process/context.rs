// SPDX-License-Identifier: GPL-2.0
//! A context: what one process has of a card.

use crate::{
    abi::{card::*, counters::*, ring::*},
    card::{Card, State},
    kernel::{eventfd::EventFd, memlock::MemLock, mmu_notifier::Registration},
    pages::{share::Share, space::Space},
    process::{
        context_events::{Events, MAX_EVENTS},
        object::{command, Objects},
    },
};
use kernel::{
    impl_has_work,
    mm::{Mm, MmWithUser},
    new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{aref::ARef, atomic::Atomic, Arc, Mutex, SpinLock},
    workqueue::{Work, WorkItem},
};

/// One process's share of a card.
#[pin_data]
pub(crate) struct Context {
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Address space number, and number of the doorbell page.
    pub(crate) asid: u32,
    /// The process's address space, without holding it in use.
    pub(crate) mm: ARef<Mm>,
    /// Its account of pinned pages.
    pub(crate) memlock: MemLock,
    /// Budget of the process, shared by its contexts.
    pub(crate) share: Arc<Share>,
    pub(super) event_fd: Option<EventFd>,
    /// Identity that was given out last.
    pub(super) identities: Atomic<u64>,
    /// Serialises the making and ending of objects.
    #[pin]
    pub(super) control: Mutex<()>,
    #[pin]
    pub(super) objects: SpinLock<Objects>,
    #[pin]
    pub(super) events: SpinLock<Events>,
    /// Pages and page requests.
    #[pin]
    pub(crate) space: SpinLock<Space>,
    /// Registration with the memory manager; gone once the context is closed.
    #[pin]
    pub(crate) notifier: SpinLock<Option<Arc<Registration<Context>>>>,
    #[pin]
    pub(super) reap: Work<Context, 1>,
    #[pin]
    pub(super) revoke: Work<Context, 2>,
    #[pin]
    pub(super) recheck: Work<Context, 3>,
    #[pin]
    pub(super) close: Work<Context, 4>,
}

impl_has_work! {
    impl HasWork<Self, 1> for Context { self.reap }
    impl HasWork<Self, 2> for Context { self.revoke }
    impl HasWork<Self, 3> for Context { self.recheck }
    impl HasWork<Self, 4> for Context { self.close }
}

impl WorkItem<1> for Context {
    type Pointer = Arc<Context>;

    fn run(this: Arc<Context>) {
        this.run_reap();
    }
}

impl WorkItem<2> for Context {
    type Pointer = Arc<Context>;

    fn run(this: Arc<Context>) {
        this.run_revoke();
    }
}

impl WorkItem<3> for Context {
    type Pointer = Arc<Context>;

    fn run(this: Arc<Context>) {
        this.run_recheck();
    }
}

impl WorkItem<4> for Context {
    type Pointer = Arc<Context>;

    fn run(this: Arc<Context>) {
        this.close();
    }
}

impl Context {
    /// Makes a context for the calling process, which `mm` belongs to.
    ///
    /// # Errors
    ///
    /// `ENOSPC` the card serves as many processes as it can, `ENODEV` it is gone.
    pub(crate) fn new(
        card: &Arc<Card>,
        mm: &MmWithUser,
        event_fd: Option<EventFd>,
    ) -> Result<Arc<Self>> {
        if matches!(card.state(), State::Gone | State::Unbound) {
            return Err(ENODEV);
        }
        let mut shares = card.shares.lock();
        let mine = {
            let tables = card.tables.lock();
            let mine = tables.contexts.iter().flatten();
            mine.filter(|context| context.share.is_of(mm)).count()
        };
        if mine >= card.max_process_contexts as usize {
            return Err(ENOSPC);
        }
        let share = match shares.iter().find(|share| share.is_of(mm)) {
            Some(share) => share.clone(),
            None => {
                let share = Share::new(ARef::from(&**mm), card.context_pages)?;
                shares.push(share.clone(), GFP_KERNEL)?;
                share
            }
        };
        let asid = {
            let mut tables = card.tables.lock();
            let free = (1..NUM_ASIDS.min(NUM_UARS)).find(|a| !tables.asids_taken[*a as usize]);
            let asid = free.ok_or(ENOSPC)?;
            tables.asids_taken[asid as usize] = true;
            asid
        };
        let made = Self::make(card, mm, asid, share, event_fd);
        if made.is_err() {
            card.tables.lock().asids_taken[asid as usize] = false;
        }
        made
    }

    fn make(
        card: &Arc<Card>,
        mm: &MmWithUser,
        asid: u32,
        share: Arc<Share>,
        event_fd: Option<EventFd>,
    ) -> Result<Arc<Self>> {
        let queue = KVec::with_capacity(MAX_EVENTS, GFP_KERNEL)?;
        let qps = KVec::with_capacity(NUM_QPS as usize, GFP_KERNEL)?;
        let cqs = KVec::with_capacity(NUM_CQS as usize, GFP_KERNEL)?;
        let space = Space::new(card.context_pages)?;
        let grabbed: ARef<Mm> = ARef::from(&**mm);
        let memlock = MemLock::of_current(mm);
        let this = Arc::pin_init(
            pin_init!(Self {
                card: card.clone(),
                asid,
                mm: grabbed,
                memlock,
                share,
                event_fd,
                identities: Atomic::new(0),
                control <- new_mutex!((), "berth_control"),
                objects <- new_spinlock!(Objects { qps, cqs }, "berth_objects"),
                events <- new_spinlock!(Events { queue, lost: false }, "berth_context_events"),
                space <- new_spinlock!(space, "berth_space"),
                notifier <- new_spinlock!(None, "berth_notifier"),
                reap <- new_work!("berth_reap"),
                revoke <- new_work!("berth_revoke"),
                recheck <- new_work!("berth_recheck"),
                close <- new_work!("berth_close"),
            }),
            GFP_KERNEL,
        )?;
        let registration = Arc::pin_init(Registration::new(mm, this.clone()), GFP_KERNEL)?;
        *this.notifier.lock() = Some(registration);
        card.tables.lock().contexts[asid as usize] = Some(this.clone());
        card.counters.inc(D_CONTEXTS);
        Ok(this)
    }

    /// Closes the context of a process that is gone, though page faults keep its memory.
    pub(crate) fn close_if_orphaned(self: &Arc<Self>) {
        if self.share.is_orphaned() {
            self.close_later();
        }
    }

    /// Has pages that were evicted unpinned.
    pub(crate) fn reap_later(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue::<_, 1>(self.clone());
    }

    /// Has firmware told of a revocation, and the pages unpinned.
    pub(crate) fn revoke_later(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue::<_, 2>(self.clone());
    }

    /// Has suspect pages looked at.
    pub(crate) fn recheck_later(self: &Arc<Self>) {
        let _ = self.card.faults.enqueue::<_, 3>(self.clone());
    }

    /// Has the context closed: its address space goes (exit, exec).
    pub(crate) fn close_later(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue::<_, 4>(self.clone());
    }

    /// Fails when the context is closed: its process has gone or executes another program.
    pub(crate) fn open(&self) -> Result {
        if self.space.lock().closing {
            return Err(EPERM);
        }
        Ok(())
    }

    /// The card has lost all its state (and does no DMA): so does the context.
    pub(crate) fn device_lost(self: &Arc<Self>) {
        self.drop_requests();
        self.drop_objects();
        self.drop_pages();
        {
            let mut events = self.events.lock();
            // Of requests: firmware counts them anew.
            events.queue.clear();
            events.lost = true;
        }
        self.signal();
    }

    /// Gives everything back. Bounded in time whatever the card does.
    pub(crate) fn close(self: &Arc<Self>) {
        let _control = self.control.lock();
        if core::mem::replace(&mut self.space.lock().closing, true) {
            return;
        }
        // First what firmware may wait for while it ends a QP.
        self.answer_requests(crate::abi::status::PAGE_NO_PROCESS);
        loop {
            let generation = self.card.generation();
            let qp = self.objects.lock().qps.last().cloned();
            let Some(qp) = qp else { break };
            self.end_for_good(generation, CMD_QP_DESTROY, qp.qpn);
            self.remove_qp(&qp);
        }
        loop {
            let generation = self.card.generation();
            let listener = {
                let tables = self.card.tables.lock();
                let mut services = tables.services.iter();
                services.find(|s| s.asid == self.asid).copied()
            };
            let Some(listener) = listener else { break };
            self.end_for_good(generation, CMD_CM_UNLISTEN, listener.service);
            self.forget_service(listener);
        }
        loop {
            let generation = self.card.generation();
            let request = {
                let mut tables = self.card.tables.lock();
                let found = tables.requests.iter().position(|r| r.asid == self.asid);
                found.and_then(|i| tables.requests.remove(i).ok())
            };
            let Some(request) = request else { break };
            // Firmware keeps a place for it until it is answered.
            let reject = command(CMD_CM_REJECT, request.id);
            let _ = self.card.call_patiently_for(generation, reject);
        }
        loop {
            let generation = self.card.generation();
            let cq = self.objects.lock().cqs.last().cloned();
            let Some(cq) = cq else { break };
            self.end_for_good(generation, CMD_CQ_DESTROY, cq.cqn);
            self.remove_cq(&cq);
            self.forget_cq(&cq);
        }
        self.revoke_all();
        // A revocation that firmware is being told of must not name the next owner of
        // the address space number.
        crate::kernel::workqueue::cancel::<_, 2>(self);
        let notifier = self.notifier.lock().take();
        drop(notifier);
        let gone = {
            let mut tables = self.card.tables.lock();
            let gone = tables.contexts[self.asid as usize].take();
            // Requests may have come until now.
            tables.requests.retain(|r| r.asid != self.asid);
            tables.services.retain(|s| s.asid != self.asid);
            tables.asids_taken[self.asid as usize] = false;
            gone
        };
        if gone.is_some() {
            self.card.counters.sub(D_CONTEXTS, 1);
        }
    }
}
