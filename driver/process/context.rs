// SPDX-License-Identifier: GPL-2.0
//! A context: what one process has of a card.

use crate::{
    abi::{
        card::*,
        counters::*,
        ioctl::{self, ContextEvent},
        ring::*,
        status::REASON_CQ_FULL,
    },
    card::{Asked, Card, Entry, Listener, State, MAX_REQUESTS, MAX_SERVICES, PAGE},
    kernel::eventfd::EventFd,
    kernel::memlock::MemLock,
    kernel::mmu_notifier::Registration,
    kernel::pin::SharedPages,
    kernel::users,
    pages::budget::Budget,
    pages::Space,
};

use core::ops::Deref;
use kernel::{
    impl_has_work,
    mm::{Mm, MmWithUser},
    new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, Mutex, SpinLock,
    },
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

/// Context events kept; with more the oldest are lost. Each QP causes few of them.
const MAX_EVENTS: usize = 256;

/// Services that one context listens to at most: a quarter of the card's is left to others.
pub(crate) const MAX_PER_CONTEXT: usize = 48;

/// An object as a process names it: by number, and by identity unless that is 0. A number is given
/// out again, an identity is not.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// CQN, QPN or service id.
    pub(crate) number: u32,
    /// Identity, or 0 for whatever has the number.
    pub(crate) identity: u64,
}

impl Name {
    fn is(self, number: u32, identity: u64) -> bool {
        self.number == number && (self.identity == 0 || self.identity == identity)
    }
}

impl From<u32> for Name {
    fn from(number: u32) -> Self {
        Self {
            number,
            identity: 0,
        }
    }
}

/// A completion queue.
pub(crate) struct Cq {
    /// Its number.
    pub(crate) cqn: u32,
    /// Its identity in its context.
    identity: u64,
    /// Its memory.
    pub(crate) memory: SharedPages,
    event_fd: Option<EventFd>,
    users: Atomic<u32>,
}

impl Cq {
    /// An armed notification has fired.
    pub(crate) fn notify(&self) {
        if let Some(fd) = &self.event_fd {
            fd.signal();
        }
    }
}

/// A queue pair.
pub(crate) struct Qp {
    /// Its number.
    pub(crate) qpn: u32,
    /// Its identity in its context.
    identity: u64,
    /// Its memory.
    pub(crate) memory: SharedPages,
    cqs: [Arc<Cq>; 2],
}

impl Drop for Qp {
    fn drop(&mut self) {
        for cq in &self.cqs {
            cq.users.fetch_sub(1, Relaxed);
        }
    }
}

/// What a context owns.
pub(crate) struct Objects {
    qps: KVec<Arc<Qp>>,
    cqs: KVec<Arc<Cq>>,
}

struct Events {
    queue: KVec<ContextEvent>,
    /// The process is to be told that the card was lost, before the events in the queue.
    lost: bool,
}

/// What a process has of a card in all, whatever the number of its contexts. It stays as long
/// as page requests of it are worked on, also when no context is left.
#[pin_data]
pub(crate) struct Share {
    /// The process's address space, without holding it in use.
    mm: ARef<Mm>,
    /// Its budget of pinned pages.
    #[pin]
    pub(crate) budget: SpinLock<Budget>,
    /// Its page requests.
    #[pin]
    pub(crate) works: SpinLock<Works>,
    /// How often this driver holds the address space in use for this card
    /// ([`Context::user_mm`]). Changes under [`users::holds`].
    held: Atomic<i32>,
}

/// Page requests of a process.
pub(crate) struct Works {
    /// Those whose work is queued or runs.
    pub(crate) running: u32,
    /// Others wait for the end of one.
    pub(crate) queued: bool,
}

impl Share {
    fn new(mm: ARef<Mm>, pages: u64) -> Result<Arc<Self>> {
        let works = Works {
            running: 0,
            queued: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                mm,
                budget <- new_spinlock!(Budget::new(pages), "berth_share"),
                works <- new_spinlock!(works, "berth_works"),
                held: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether it is the share of a process.
    pub(crate) fn is_of(&self, mm: &Mm) -> bool {
        core::ptr::eq(self.mm.as_raw(), mm.as_raw())
    }

    /// Whether nobody but this driver has the address space in use any more: the process is
    /// gone, and the memory manager will say so only when the last page fault has ended.
    fn is_orphaned(&self) -> bool {
        if self.held.load(Relaxed) == 0 {
            return false;
        }
        let shares = crate::shares_of(&self.mm);
        // Who holds it counts here last and lets go here first, so the process itself is one
        // user more as long as it lives.
        let _holds = users::holds();
        let held: i32 = shares.iter().flatten().map(|s| s.held.load(Relaxed)).sum();
        users::users(&self.mm) <= held
    }
}

/// The address space of a process, held in use.
pub(crate) struct UserMm<'a> {
    share: &'a Share,
    mm: ARef<MmWithUser>,
}

impl Deref for UserMm<'_> {
    type Target = MmWithUser;

    fn deref(&self) -> &MmWithUser {
        &self.mm
    }
}

impl Drop for UserMm<'_> {
    fn drop(&mut self) {
        // Before the reference itself goes.
        let _holds = users::holds();
        self.share.held.fetch_sub(1, Relaxed);
    }
}

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
    event_fd: Option<EventFd>,
    /// Identity that was given out last.
    identities: Atomic<u64>,
    /// Serialises the making and ending of objects.
    #[pin]
    control: Mutex<()>,
    #[pin]
    objects: SpinLock<Objects>,
    #[pin]
    events: SpinLock<Events>,
    /// Pages and page requests.
    #[pin]
    pub(crate) space: SpinLock<Space>,
    /// Registration with the memory manager; gone once the context is closed.
    #[pin]
    pub(crate) notifier: SpinLock<Option<Arc<Registration<Context>>>>,
    #[pin]
    reap: Work<Context, 1>,
    #[pin]
    revoke: Work<Context, 2>,
    #[pin]
    recheck: Work<Context, 3>,
    #[pin]
    close: Work<Context, 4>,
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

fn command(opcode: u32, object: u32) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    entry[0] = opcode;
    entry[2] = object;
    entry
}

fn put_private(entry: &mut Entry, len: u32, data: &[u8; PRIVATE_DATA]) -> Result {
    let len_bytes = len as usize;
    if len_bytes > PRIVATE_DATA || data[len_bytes.min(PRIVATE_DATA)..].iter().any(|b| *b != 0) {
        return Err(EINVAL);
    }
    entry[5] = len;
    for (word, bytes) in entry[CMD_PRIVATE..].iter_mut().zip(data.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(())
}

/// Event of connection management, whose object is still to be named.
fn cm_event(kind: u32, value: u32, ipv4: u32, entry: &Entry) -> ContextEvent {
    let (private_len, private) = get_private(entry);
    ContextEvent {
        kind,
        value,
        ipv4,
        private_len,
        private,
        ..Default::default()
    }
}

/// A queue pair, still to be named, went into error.
fn qp_error(reason: u32) -> ContextEvent {
    ContextEvent {
        kind: ioctl::CTX_QP_ERROR,
        value: reason,
        ..Default::default()
    }
}

fn get_private(entry: &Entry) -> (u32, [u8; PRIVATE_DATA]) {
    let mut data = [0; PRIVATE_DATA];
    let len = entry[5].min(PRIVATE_DATA as u32);
    for (word, bytes) in entry[EVENT_PRIVATE..].iter().zip(data.chunks_exact_mut(4)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    data[len as usize..].fill(0);
    (len, data)
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

    /// The process's address space, unless the process is gone.
    pub(crate) fn user_mm(&self) -> Option<UserMm<'_>> {
        let share = &*self.share;
        let _holds = users::holds();
        let mm = self.mm.mmget_not_zero()?;
        share.held.add(1, Relaxed);
        Some(UserMm { share, mm })
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

    /// An identity that no object of this context has had.
    fn new_identity(&self) -> u64 {
        self.identities.fetch_add(1, Relaxed) + 1
    }

    /// Queues an event of an object, whose lock is held: events go with their object, under that lock.
    fn push_event(&self, event: ContextEvent) {
        let mut events = self.events.lock();
        // A QP may have more than one completion for which its CQ had no room.
        let same = |e: &ContextEvent| {
            (e.kind, e.identity, e.value) == (event.kind, event.identity, event.value)
        };
        if event.kind == ioctl::CTX_QP_ERROR && events.queue.iter().any(same) {
            return;
        }
        if events.queue.len() == MAX_EVENTS {
            let _ = events.queue.remove(0);
        }
        let _ = events.queue.push_within_capacity(event);
    }

    /// The process is to look for events.
    fn signal(&self) {
        if let Some(fd) = &self.event_fd {
            fd.signal();
        }
    }

    /// Queues an event of a queue pair; false if the context has none of that number (any more).
    fn tell_of_qp(&self, qpn: u32, event: ContextEvent) -> bool {
        self.tell_of_qp_if(qpn, event, |_| true)
    }

    fn tell_of_qp_if(
        &self,
        qpn: u32,
        event: ContextEvent,
        concerns: impl FnOnce(&Qp) -> bool,
    ) -> bool {
        let told = {
            let objects = self.objects.lock();
            let found = objects.qps.iter().find(|q| q.qpn == qpn);
            found.filter(|qp| concerns(qp)).map(|qp| {
                self.push_event(ContextEvent {
                    id: qpn,
                    identity: qp.identity,
                    ..event
                });
            })
        };
        if told.is_some() {
            self.signal();
        }
        told.is_some()
    }

    /// Puts an event back that could not be handed over, as the oldest, unless it is over meanwhile.
    pub(crate) fn put_back(&self, event: ContextEvent) {
        let put = || {
            // With no room left it is the one that gives way.
            let _ = self.events.lock().queue.insert_within_capacity(0, event);
        };
        match event.kind {
            ioctl::CTX_DEVICE_LOST => self.events.lock().lost = true,
            ioctl::CTX_REQUEST => {
                let tables = self.card.tables.lock();
                let there =
                    |r: &Asked| (r.id, r.asid, r.listener) == (event.id, self.asid, event.identity);
                if tables.requests.iter().any(there) {
                    put();
                }
            }
            _ => {
                let objects = self.objects.lock();
                if objects.qps.iter().any(|q| q.identity == event.identity) {
                    put();
                }
            }
        }
        self.signal();
    }

    /// Takes the oldest event.
    pub(crate) fn take_event(&self) -> Option<ContextEvent> {
        let mut events = self.events.lock();
        if core::mem::take(&mut events.lost) {
            return Some(ContextEvent {
                kind: ioctl::CTX_DEVICE_LOST,
                ..Default::default()
            });
        }
        events.queue.remove(0).ok()
    }

    /// A queue pair is connected.
    pub(crate) fn established(&self, entry: &Entry) {
        self.tell_of_qp(
            entry[1],
            cm_event(ioctl::CTX_ESTABLISHED, entry[3], entry[2], entry),
        );
    }

    /// A queue pair's connection is over, or did not come about.
    pub(crate) fn connection_over(&self, entry: &Entry) {
        self.tell_of_qp(entry[1], cm_event(ioctl::CTX_CLOSED, entry[2], 0, entry));
    }

    /// A queue pair went into error.
    pub(crate) fn qp_failed(&self, entry: &Entry) {
        self.tell_of_qp(entry[1], qp_error(entry[2]));
    }

    /// A completion of a queue pair found no room in `cq`. False if it does not complete there, and
    /// so has come after that one was gone.
    pub(crate) fn qp_overran(&self, qpn: u32, cq: &Arc<Cq>) -> bool {
        self.tell_of_qp_if(qpn, qp_error(REASON_CQ_FULL), |qp| {
            qp.cqs.iter().any(|its| Arc::ptr_eq(its, cq))
        })
    }

    /// Fails when the context is closed: its process has gone or executes another program.
    fn open(&self) -> Result {
        if self.space.lock().closing {
            return Err(EPERM);
        }
        Ok(())
    }

    /// Memory for a queue.
    fn shared(&self, bytes: usize) -> Result<SharedPages> {
        SharedPages::new(self.card.bound()?, bytes).inspect_err(|e| self.card.note_unmapped(*e))
    }

    // ---- completion queues ----------------------------------------------------------

    /// Makes a completion queue, and gives it for [`Self::end_cq`].
    pub(crate) fn create_cq(&self, arg: &mut ioctl::CreateCq) -> Result<Arc<Cq>> {
        if !(1..=32768).contains(&arg.entries) {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let entries = arg.entries.next_power_of_two().max(2);
        let event_fd = EventFd::from_fd(arg.event_fd)?;
        let generation = self.card.generation();
        let epoch = self.card.epoch.load(Relaxed);
        let bytes = entries as usize * crate::abi::wqe::CQE_BYTES as usize;
        let memory = self.shared(bytes)?;
        let cqn = {
            let mut tables = self.card.tables.lock();
            let place = tables.free_place(&tables.cq_owners, self, self.card.max_process_cqs)?;
            tables.cq_owners[place] = self.asid as u8;
            place as u32
        };
        let cq = Arc::pin_init(
            Cq {
                cqn,
                identity: self.new_identity(),
                memory,
                event_fd,
                users: Atomic::new(0),
            },
            GFP_KERNEL,
        );
        let cq = match cq {
            Ok(cq) => cq,
            Err(e) => {
                self.card.tables.lock().cq_owners[cqn as usize] = 0;
                return Err(e);
            }
        };
        // Known before the card can notify it.
        self.card.tables.lock().cqs[cqn as usize] = Some(cq.clone());
        let mut entry = command(CMD_CQ_CREATE, cqn);
        entry[3] = self.asid;
        entry[4] = entries.ilog2();
        entry[6] = cq.memory.addr() as u32;
        entry[7] = (cq.memory.addr() >> 32) as u32;
        let made = self.card.call_for(generation, entry);
        let result = made.and_then(|_| {
            let mut objects = self.objects.lock();
            if self.card.epoch.load(Relaxed) != epoch {
                return Err(EIO);
            }
            let _ = objects.cqs.push_within_capacity(cq.clone());
            self.card.counters.inc(D_CQS);
            Ok(())
        });
        if let Err(e) = result {
            self.end_dma_after(e);
            self.forget_cq(&cq);
            return Err(e);
        }
        arg.entries = entries;
        arg.cqn = cqn;
        arg.bytes = cq.memory.bytes() as u32;
        arg.offset = offset_of(cq.identity);
        arg.identity = cq.identity;
        Ok(cq)
    }

    fn forget_cq(&self, cq: &Arc<Cq>) {
        let gone = {
            let mut tables = self.card.tables.lock();
            let place = &mut tables.cqs[cq.cqn as usize];
            match place {
                Some(there) if Arc::ptr_eq(there, cq) => {
                    let gone = place.take();
                    tables.cq_owners[cq.cqn as usize] = 0;
                    gone
                }
                _ => None,
            }
        };
        drop(gone);
    }

    fn find_cq(&self, name: Name) -> Result<Arc<Cq>> {
        let objects = self.objects.lock();
        let found = objects.cqs.iter().find(|c| name.is(c.cqn, c.identity));
        found.cloned().ok_or(ENOENT)
    }

    fn find_qp(&self, name: Name) -> Result<Arc<Qp>> {
        let objects = self.objects.lock();
        let found = objects.qps.iter().find(|q| name.is(q.qpn, q.identity));
        found.cloned().ok_or(ENOENT)
    }

    /// Destroys this completion queue, not one that has its number now.
    pub(crate) fn end_cq(&self, cq: &Arc<Cq>) -> Result {
        self.destroy_cq(Name {
            number: cq.cqn,
            identity: cq.identity,
        })
    }

    /// Destroys a completion queue.
    pub(crate) fn destroy_cq(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let cqn = name.number;
        let _control = self.control.lock();
        let generation = self.card.generation();
        let cq = self.find_cq(name)?;
        if cq.users.load(Relaxed) != 0 {
            return Err(EBUSY);
        }
        self.end_object(generation, CMD_CQ_DESTROY, cqn)?;
        self.remove_cq(&cq);
        self.forget_cq(&cq);
        Ok(())
    }

    fn remove_cq(&self, cq: &Arc<Cq>) {
        let mut objects = self.objects.lock();
        let found = objects.cqs.iter().position(|c| Arc::ptr_eq(c, cq));
        let gone = found.and_then(|i| objects.cqs.remove(i).ok());
        drop(objects);
        if gone.is_some() {
            self.card.counters.sub(D_CQS, 1);
        }
    }

    // ---- queue pairs ----------------------------------------------------------------

    /// Makes a queue pair, and gives it for [`Self::end_qp`].
    pub(crate) fn create_qp(&self, arg: &mut ioctl::CreateQp) -> Result<Arc<Qp>> {
        let depth = 1..=256;
        let trigger_ok = arg.trigger <= u32::from(TRIGGER_ADAPTIVE)
            && arg.trigger_index <= u32::from(u8::MAX)
            && (arg.trigger_index == 0 || arg.trigger >= u32::from(TRIGGER_BETWEEN));
        if !depth.contains(&arg.sq_depth)
            || !depth.contains(&arg.rq_depth)
            || !trigger_ok
            || arg.max_list > MAX_LIST
            || u64::from(arg.block) % PAGE != 0
            || arg.block > 1 << 20
            || arg.retries > ioctl::MAX_RETRIES
            || arg.mode > u32::from(MODE_MESSAGE)
        {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let cqs = [
            self.find_cq(Name {
                number: arg.send_cqn,
                identity: arg.send_cq,
            })?,
            self.find_cq(Name {
                number: arg.recv_cqn,
                identity: arg.recv_cq,
            })?,
        ];
        let sq_depth = arg.sq_depth.next_power_of_two().max(MIN_SQ_DEPTH);
        let rq_depth = arg.rq_depth.next_power_of_two();
        let wqe = crate::abi::wqe::WQE_BYTES;
        let rq_start = sq_depth * wqe;
        let generation = self.card.generation();
        let epoch = self.card.epoch.load(Relaxed);
        let memory = self.shared((rq_start + rq_depth * wqe) as usize)?;
        let qpn = {
            let mut tables = self.card.tables.lock();
            let place = tables.free_place(&tables.qps, self, self.card.max_process_qps)?;
            tables.qps[place] = self.asid as u8;
            FIRST_QPN + place as u32
        };
        let addr = memory.addr();
        let qp = Arc::pin_init(
            {
                for cq in &cqs {
                    cq.users.add(1, Relaxed);
                }
                Qp {
                    qpn,
                    identity: self.new_identity(),
                    memory,
                    cqs,
                }
            },
            GFP_KERNEL,
        );
        let qp = match qp {
            Ok(qp) => qp,
            Err(e) => {
                self.forget_qp(qpn);
                return Err(e);
            }
        };
        let mut entry = command(CMD_QP_CREATE, qpn);
        let rq_addr = addr + u64::from(rq_start);
        entry[3] = self.asid | self.asid << 8 | sq_depth.ilog2() << 16 | rq_depth.ilog2() << 24;
        entry[4] = arg.send_cqn | arg.recv_cqn << 16;
        entry[5] = arg.trigger | arg.trigger_index << 8 | arg.max_list << 16 | arg.mode << 24;
        entry[6] = self.block(arg.block);
        put64(&mut entry, core::mem::offset_of!(QpCreateBody, sq_base), addr);
        put64(
            &mut entry,
            core::mem::offset_of!(QpCreateBody, rq_base),
            rq_addr,
        );
        put32(
            &mut entry,
            core::mem::offset_of!(QpCreateBody, timeout),
            arg.timeout,
        );
        put32(
            &mut entry,
            core::mem::offset_of!(QpCreateBody, retries),
            arg.retries,
        );
        let made = self.card.call_for(generation, entry);
        let result = made.and_then(|_| {
            let mut objects = self.objects.lock();
            if self.card.epoch.load(Relaxed) != epoch {
                return Err(EIO);
            }
            let _ = objects.qps.push_within_capacity(qp.clone());
            self.card.counters.inc(D_QPS);
            Ok(())
        });
        if let Err(e) = result {
            self.end_dma_after(e);
            self.forget_qp(qpn);
            return Err(e);
        }
        arg.sq_depth = sq_depth;
        arg.rq_depth = rq_depth;
        arg.qpn = qpn;
        arg.bytes = qp.memory.bytes() as u32;
        arg.offset = offset_of(qp.identity);
        arg.rq_start = rq_start;
        arg.identity = qp.identity;
        Ok(qp)
    }

    fn forget_qp(&self, qpn: u32) {
        let mut tables = self.card.tables.lock();
        let place = &mut tables.qps[(qpn - FIRST_QPN) as usize];
        if u32::from(*place) == self.asid {
            *place = 0;
        }
    }

    /// Destroys this queue pair, not one that has its number now.
    pub(crate) fn end_qp(&self, qp: &Arc<Qp>) -> Result {
        self.destroy_qp(Name {
            number: qp.qpn,
            identity: qp.identity,
        })
    }

    /// Destroys a queue pair.
    pub(crate) fn destroy_qp(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let qpn = name.number;
        let _control = self.control.lock();
        let generation = self.card.generation();
        let qp = self.find_qp(name)?;
        if self.asks(qpn) {
            // So that its elements are flushed: they do not fail by answers in vain.
            let disconnect = command(CMD_CM_DISCONNECT, qpn);
            let _ = self.card.call_for(generation, disconnect);
        }
        self.end_requests(qpn);
        let ended = self.end_object(generation, CMD_QP_DESTROY, qpn);
        self.end_requests(0);
        ended?;
        self.remove_qp(&qp);
        Ok(())
    }

    fn remove_qp(&self, qp: &Arc<Qp>) {
        let gone = {
            let mut objects = self.objects.lock();
            let found = objects.qps.iter().position(|q| Arc::ptr_eq(q, qp));
            let gone = found.and_then(|i| objects.qps.remove(i).ok());
            if gone.is_some() {
                // They name it; its number may be another's before they are taken.
                let mut events = self.events.lock();
                events.queue.retain(|e| e.identity != qp.identity);
            }
            gone
        };
        if gone.is_some() {
            self.card.counters.sub(D_QPS, 1);
            self.forget_qp(qp.qpn);
        }
    }

    /// Has the firmware of `generation` let go of an object that was found since. When this
    /// returns `Ok`, the card does not touch it any more.
    fn end_object(&self, generation: u32, opcode: u32, number: u32) -> Result {
        match self.card.call_for(generation, command(opcode, number)) {
            Ok(_) => Ok(()),
            Err(e) if e == ENOENT => Ok(()),
            Err(e) if self.end_dma_after(e) => {
                match self.card.state() == State::Up && self.card.generation() == generation {
                    // It works, and has the object: it was not told, or does not say what it did.
                    true => Err(EBUSY),
                    false => Ok(()),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// After a command that was not answered, as the card seems to be out of service: waits
    /// until its DMA has ended. `false`: it was answered, by an error.
    fn end_dma_after(&self, e: Error) -> bool {
        let out_of_service = e == EIO || e == ENODEV;
        if out_of_service {
            self.card.fence();
        }
        out_of_service
    }

    /// As [`Self::end_object`], for objects that must be gone afterwards: a card that
    /// does not let go of one is reset.
    fn end_for_good(self: &Arc<Self>, generation: u32, opcode: u32, number: u32) {
        for _ in 0..100 {
            match self.end_object(generation, opcode, number) {
                Ok(()) => return,
                // Many commands in flight, or no memory: that passes.
                Err(e) if e == EBUSY || e == ENOMEM => fsleep(Delta::from_millis(10)),
                Err(_) => break,
            }
        }
        let _ = self.card.reset("an object could not be ended");
    }

    /// Has firmware carry out a command for a queue pair of this context.
    fn call_for_qp(&self, name: Name, entry: Entry) -> Result<Entry> {
        let _control = self.control.lock();
        // First this: what is found then is of that run of firmware, or of a later one.
        let generation = self.card.generation();
        self.find_qp(name)?;
        self.card.call_for(generation, entry)
    }

    /// State of a queue pair.
    pub(crate) fn query_qp(&self, name: impl Into<Name>) -> Result<QpState> {
        let name = name.into();
        let e = self.call_for_qp(name, command(CMD_QP_QUERY, name.number))?;
        Ok(QpState {
            state: e[3],
            reason: e[4],
            receives: [e[5], e[6], e[7], e[8], e[9]],
            credits: e[10],
            pieces: e[11],
        })
    }

    // ---- connections ----------------------------------------------------------------

    /// Listens to a service; gives the listener's identity.
    pub(crate) fn listen(&self, service: u32) -> Result<u64> {
        if !(1..=65535).contains(&service) {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let generation = self.card.generation();
        let listener = Listener {
            service,
            asid: self.asid,
            identity: self.new_identity(),
        };
        {
            let mut tables = self.card.tables.lock();
            if tables.services.iter().any(|s| s.service == service) {
                return Err(EBUSY);
            }
            let mine = tables.services.iter().filter(|s| s.asid == self.asid);
            if mine.count() >= MAX_PER_CONTEXT || tables.services.len() == MAX_SERVICES {
                return Err(ENOSPC);
            }
            // Known before the first request can come.
            let _ = tables.services.push_within_capacity(listener);
        }
        let listen = command(CMD_CM_LISTEN, service);
        let result = self.card.call_for(generation, listen);
        if result.is_err() {
            self.forget_service(listener);
        }
        result.map(|_| listener.identity)
    }

    fn forget_service(&self, listener: Listener) {
        let mut tables = self.card.tables.lock();
        tables.services.retain(|s| *s != listener);
    }

    /// Stops listening.
    pub(crate) fn unlisten(self: &Arc<Self>, name: impl Into<Name>) -> Result {
        let name = name.into();
        let _control = self.control.lock();
        let generation = self.card.generation();
        let listener = {
            let tables = self.card.tables.lock();
            let mut mine = tables.services.iter().filter(|s| s.asid == self.asid);
            let found = mine.find(|s| name.is(s.service, s.identity));
            *found.ok_or(ENOENT)?
        };
        self.end_object(generation, CMD_CM_UNLISTEN, listener.service)?;
        self.forget_service(listener);
        // From now on nothing is queued for it; what was, nobody has seen.
        while let Some(request) = self.take_unseen(listener.identity) {
            let reject = command(CMD_CM_REJECT, request);
            self.card.answer(generation, reject);
        }
        Ok(())
    }

    /// Takes a request to a listener out of the events; gives its id.
    fn take_unseen(&self, listener: u64) -> Option<u32> {
        let mut tables = self.card.tables.lock();
        let event = {
            let mut events = self.events.lock();
            let at = events.queue.iter().position(|e| e.identity == listener)?;
            events.queue.remove(at).ok()?
        };
        let (id, asid) = (event.id, self.asid);
        tables.requests.retain(|r| (r.id, r.asid) != (id, asid));
        Some(id)
    }

    /// Connects a queue pair.
    pub(crate) fn connect(&self, arg: &ioctl::Connect) -> Result {
        if !(1..=65535).contains(&arg.service) || arg.ipv4 == 0 {
            return Err(EINVAL);
        }
        let mut entry = command(CMD_CM_CONNECT, arg.qpn);
        entry[3] = arg.ipv4;
        entry[4] = arg.service;
        put_private(&mut entry, arg.private_len, &arg.private)?;
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        self.call_for_qp(name, entry).map(|_| ())
    }

    /// Answers a connection request: accepts with a queue pair, or rejects.
    pub(crate) fn answer(&self, arg: &ioctl::Accept, accept: bool) -> Result {
        let opcode = if accept { CMD_CM_ACCEPT } else { CMD_CM_REJECT };
        if arg.reserved != 0 || (!accept && (arg.qpn != 0 || arg.identity != 0)) {
            return Err(EINVAL);
        }
        let mut entry = command(opcode, arg.request);
        entry[3] = arg.qpn;
        put_private(&mut entry, arg.private_len, &arg.private)?;
        let _control = self.control.lock();
        let generation = self.card.generation();
        if accept {
            self.find_qp(Name {
                number: arg.qpn,
                identity: arg.identity,
            })?;
        }
        let name = Name {
            number: arg.request,
            identity: arg.listener,
        };
        let request = {
            let tables = self.card.tables.lock();
            let mut mine = tables.requests.iter().filter(|r| r.asid == self.asid);
            *mine.find(|r| name.is(r.id, r.listener)).ok_or(ENOENT)?
        };
        let result = self.card.call_for(generation, entry).map(|_| ());
        if matches!(result, Ok(()) | Err(ENOENT)) {
            let mut tables = self.card.tables.lock();
            tables.requests.retain(|r| *r != request);
        }
        result
    }

    /// Ends a queue pair's connection.
    pub(crate) fn disconnect(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let disconnect = command(CMD_CM_DISCONNECT, name.number);
        self.call_for_qp(name, disconnect).map(|_| ())
    }

    /// A peer asks for a connection to a service of this context.
    ///
    /// # Errors
    ///
    /// `EBUSY` too many wait, `ENOENT` nobody listens any more.
    pub(crate) fn requested(&self, entry: &Entry) -> Result {
        {
            let mut tables = self.card.tables.lock();
            let mut services = tables.services.iter();
            let found = services.find(|s| (s.service, s.asid) == (entry[3], self.asid));
            let listener = found.ok_or(ENOENT)?.identity;
            let (processes, waiting) = tables.listeners(self.mm.as_raw());
            // The card has so many places for all who listen.
            let share = (CM_REQUESTS as usize / processes.max(1)).max(1);
            if waiting >= share || tables.requests.len() == MAX_REQUESTS {
                return Err(EBUSY);
            }
            let _ = tables.requests.push_within_capacity(Asked {
                id: entry[1],
                asid: self.asid,
                listener,
            });
            self.push_event(ContextEvent {
                id: entry[1],
                mode: entry[4],
                identity: listener,
                ..cm_event(ioctl::CTX_REQUEST, entry[3], entry[2], entry)
            });
        }
        self.signal();
        Ok(())
    }

    /// A request is over before it was answered: the process need not see it.
    pub(crate) fn request_over(&self, id: u32) {
        let stale = |e: &ContextEvent| e.kind == ioctl::CTX_REQUEST && e.id == id;
        self.events.lock().queue.retain(|e| !stale(e));
    }

    // ---- mappings and end -----------------------------------------------------------

    /// Physical address of the doorbell page.
    pub(crate) fn doorbell(&self) -> u64 {
        self.card.doorbells + u64::from(self.asid) * PAGE
    }

    /// Memory behind an mmap offset.
    pub(crate) fn mapping(&self, offset: u64) -> Result<Mapping> {
        if offset == DOORBELL_OFFSET {
            return Ok(Mapping::Doorbell);
        }
        let identity = offset >> OBJECT_SHIFT;
        if offset != offset_of(identity) {
            return Err(EINVAL);
        }
        let objects = self.objects.lock();
        if let Some(cq) = objects.cqs.iter().find(|c| c.identity == identity) {
            return Ok(Mapping::Cq(cq.clone()));
        }
        let qp = objects.qps.iter().find(|q| q.identity == identity);
        Ok(Mapping::Qp(qp.ok_or(ENOENT)?.clone()))
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

/// What an mmap offset stands for.
pub(crate) enum Mapping {
    /// The doorbell page.
    Doorbell,
    /// A completion queue.
    Cq(Arc<Cq>),
    /// A queue pair.
    Qp(Arc<Qp>),
}

/// Offset of the doorbell page.
pub(crate) const DOORBELL_OFFSET: u64 = 0;
/// Queues are this far apart, log2: more than the largest.
const OBJECT_SHIFT: u32 = 22;

/// Offset of a queue, which goes by its identity: nobody gets the memory of another that has its
/// number now.
fn offset_of(identity: u64) -> u64 {
    identity << OBJECT_SHIFT
}

/// Puts a field of a command body, which begins at word 2.
fn put32(entry: &mut Entry, offset: usize, value: u32) {
    entry[2 + offset / 4] = value;
}

fn put64(entry: &mut Entry, offset: usize, value: u64) {
    put32(entry, offset, value as u32);
    put32(entry, offset + 4, (value >> 32) as u32);
}
