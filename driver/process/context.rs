// SPDX-License-Identifier: GPL-2.0
//! Making and closing a context: what one process has of a card.

use crate::{
    abi::{
        counters::*,
        message::{CqDestroy, QpDestroy, Reject, Unlisten},
        status::REASON_LOCAL_CLOSE,
    },
    card::State,
    kernel::{
        eventfd::EventFd,
        mmu_notifier::{Event, Invalidate, Range, Registration},
    },
    pages::{
        share::{Share, Shares},
        AddressSpace,
    },
    process::{
        owned::{Events, Memory, Objects, MAX_EVENTS},
        region::MAX_CONTEXT_DOMAINS,
        Context, Registry,
    },
};
use kernel::{
    mm::{Mm, MmWithUser},
    new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{aref::ARef, atomic::Atomic, Arc},
    workqueue::WorkItem,
};

impl WorkItem for Context {
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
        registry: &Arc<Registry>,
        mm: &MmWithUser,
        event_fd: Option<EventFd>,
    ) -> Result<Arc<Self>> {
        if matches!(registry.card.state(), State::Gone | State::Unbound) {
            return Err(ENODEV);
        }
        let mut shares = registry.shares.lock();
        let mine = {
            let tables = registry.tables.lock();
            let mine = tables.contexts.iter().flatten();
            mine.filter(|context| context.space.share.is_of(mm)).count()
        };
        if mine >= registry.max_process_contexts as usize {
            return Err(ENOSPC);
        }
        let share = match shares.iter().find(|share| share.is_of(mm)) {
            Some(share) => share.clone(),
            None => {
                let share = Share::new(ARef::from(&**mm), registry.pages.context_pages)?;
                shares.push(share.clone(), GFP_KERNEL)?;
                share
            }
        };
        let asid = {
            let mut tables = registry.tables.lock();
            let free = (1..registry.asids).find(|a| !tables.asids_taken[*a as usize]);
            let asid = free.ok_or(ENOSPC)?;
            tables.asids_taken[asid as usize] = true;
            asid
        };
        let made = Self::make(registry, mm, asid, share, event_fd);
        if made.is_err() {
            registry.tables.lock().asids_taken[asid as usize] = false;
        }
        made
    }

    fn make(
        registry: &Arc<Registry>,
        mm: &MmWithUser,
        asid: u32,
        share: Arc<Share>,
        event_fd: Option<EventFd>,
    ) -> Result<Arc<Self>> {
        let queue = KVec::with_capacity(MAX_EVENTS, GFP_KERNEL)?;
        let most = (registry.max_process_qps, registry.max_process_cqs);
        let qps = KVec::with_capacity(most.0 as usize, GFP_KERNEL)?;
        let cqs = KVec::with_capacity(most.1 as usize, GFP_KERNEL)?;
        let domains = KVec::with_capacity(MAX_CONTEXT_DOMAINS, GFP_KERNEL)?;
        let space = AddressSpace::new(&registry.pages, mm, asid, share)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                registry: registry.clone(),
                card: registry.card.clone(),
                asid,
                space,
                event_fd,
                identities: Atomic::new(0),
                control <- new_mutex!((), "berth_control"),
                objects <- new_spinlock!(Objects { qps, cqs }, "berth_objects"),
                memory <- new_mutex!(
                    Memory { domains, regions: KVec::new(), had_keys: false },
                    "berth_memory"
                ),
                events <- new_spinlock!(Events { queue, lost: false }, "berth_context_events"),
                close <- new_work!("berth_close"),
            }),
            GFP_KERNEL,
        )?;
        let registration = Arc::pin_init(Registration::new(mm, this.clone()), GFP_KERNEL)?;
        this.space.open(registration);
        registry.tables.lock().contexts[asid as usize] = Some(this.clone());
        this.card.counters.inc(D_CONTEXTS);
        Ok(this)
    }

    /// Closes the context of a process that is gone, though page faults keep its memory.
    pub(crate) fn close_if_orphaned(self: &Arc<Self>, shares_of: fn(&Mm) -> Shares) {
        if self.space.share.is_orphaned(shares_of) {
            self.close_later();
        }
    }

    /// Has the context closed: its address space goes (exit, exec).
    pub(crate) fn close_later(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue(self.clone());
    }

    fn drop_objects(&self) {
        loop {
            let qp = self.objects.lock().qps.last().cloned();
            let Some(qp) = qp else { break };
            self.remove_qp(&qp);
        }
        loop {
            let cq = self.objects.lock().cqs.last().cloned();
            let Some(cq) = cq else { break };
            self.remove_cq(&cq);
            self.forget_cq(&cq);
        }
        self.drop_regions();
    }

    /// The card has lost all its state (and does no DMA); the context loses its objects too.
    pub(super) fn device_lost(self: &Arc<Self>) {
        self.space.drop_requests();
        self.tell_of_loss();
        self.drop_objects();
        self.space.drop_pages();
        {
            let mut events = self.events.lock();
            // Ids of requests: firmware counts them anew.
            events.queue.clear();
            events.lost = true;
        }
        self.signal();
    }

    /// Tells those whose queue pairs have no events of the context's that the card has none of them any more.
    fn tell_of_loss(&self) {
        for n in 0.. {
            let told = match self.objects.lock().qps.get(n) {
                None => return,
                Some(qp) => qp.told.clone(),
            };
            if let Some(told) = told {
                told.ended(REASON_LOCAL_CLOSE);
            }
        }
    }

    /// Gives everything back. Bounded in time whatever the card does.
    pub(crate) fn close(self: &Arc<Self>) {
        let _control = self.control.lock();
        if !self.space.begin_close() {
            return;
        }
        // Ends requests first, because firmware may wait for their answers while it ends a QP.
        self.space
            .answer_requests(crate::abi::status::PAGE_NO_PROCESS);
        loop {
            let generation = self.card.generation();
            let qp = self.objects.lock().qps.last().cloned();
            let Some(qp) = qp else { break };
            self.card
                .end_for_good(generation, QpDestroy { qpn: qp.qpn }.encode());
            self.remove_qp(&qp);
        }
        self.end_regions();
        loop {
            let generation = self.card.generation();
            let listener = {
                let tables = self.registry.tables.lock();
                let mut services = tables.services.iter();
                services.find(|s| s.asid == self.asid).copied()
            };
            let Some(listener) = listener else { break };
            let service = listener.service;
            self.card
                .end_for_good(generation, Unlisten { service }.encode());
            self.forget_service(listener);
        }
        loop {
            let generation = self.card.generation();
            let request = {
                let mut tables = self.registry.tables.lock();
                let found = tables.requests.iter().position(|r| r.asid == self.asid);
                found.and_then(|i| tables.requests.remove(i).ok())
            };
            let Some(request) = request else { break };
            // Firmware keeps a place for it until it is answered.
            let reject = Reject {
                request: request.id,
                ..Default::default()
            }
            .encode();
            let _ = self.card.call_patiently_for(generation, reject);
        }
        loop {
            let generation = self.card.generation();
            let cq = self.objects.lock().cqs.last().cloned();
            let Some(cq) = cq else { break };
            self.card
                .end_for_good(generation, CqDestroy { cqn: cq.cqn }.encode());
            self.remove_cq(&cq);
            self.forget_cq(&cq);
        }
        self.space.close();
        let gone = {
            let mut tables = self.registry.tables.lock();
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

impl Invalidate for Context {
    fn invalidate(&self, range: &Range) -> bool {
        // `Arc<Context>` is what the work item needs; the registration holds one.
        let Some(this) = self.registry.context(self.asid) else {
            return true;
        };
        if !core::ptr::eq(&*this, self) {
            return true;
        }
        if range.event == Event::Release {
            this.close_later();
        }
        self.space.invalidate(range)
    }
}
