// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stand-in for driver and card, for tests of interfering threads and processes: it gives out the lowest free
//! numbers, as the driver does, and can hold up a call after the driver's part.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use berth_abi::card::MAX_READS;
use berth_abi::wqe::{self, Cqe};
use berth_abi::{alias, host, ioctl};

use crate::doorbell::DOORBELL_PAGE;
use crate::mapping::Mapping;
use crate::sys;

/// Bytes between two objects' memory.
const STEP: u64 = 1 << 17;
/// Completion queues and queue pairs that there may be.
const OBJECTS: u64 = 64;
/// First QPN.
const FIRST_QPN: u32 = 16;

struct Cq {
    fd: OwnedFd,
    entries: u32,
    written: u64,
}

#[derive(Default)]
struct State {
    cqs: BTreeMap<u32, Cq>,
    /// Identity of each.
    qps: BTreeMap<u32, u64>,
    /// The last one, as it was asked for.
    asked: ioctl::CreateQp,
    /// Sends that are to be pinned as a whole.
    wholes: Vec<ioctl::Whole>,
    /// The last peer that was set.
    peer: ioctl::SetPeer,
    /// The last trigger that was set.
    trigger: ioctl::SetTrigger,
    /// Maximum bandwidths that were set, in their order.
    caps: Vec<ioctl::SetCap>,
    /// The next call for one answers so.
    refuse_cap: Option<i32>,
    /// Sends of each that are complete.
    sent: BTreeMap<u32, u32>,
    /// Identity of the protection domain, if there is one.
    domain: Option<u64>,
    /// Regions by identity.
    regions: BTreeMap<u64, ioctl::Register>,
    services: BTreeMap<u32, u64>,
    /// Identities given.
    given: u64,
    events: VecDeque<ioctl::ContextEvent>,
    rejected: Vec<u32>,
}

/// Called with a request that the driver has carried out, before the caller goes on.
type Hook = Box<dyn Fn(u32) + Send + Sync>;

/// Driver and card.
pub(crate) struct Card {
    file: File,
    memory: Mapping,
    event_fd: OwnedFd,
    state: Mutex<State>,
    hook: Mutex<Option<Arc<Hook>>>,
}

impl std::fmt::Debug for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Card")
    }
}

impl Card {
    pub(crate) fn new() -> Arc<Self> {
        // SAFETY: the name is a C string, and the descriptor fresh.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"card".as_ptr(), libc::MFD_CLOEXEC)) };
        let bytes = STEP * (1 + 2 * OBJECTS);
        file.set_len(bytes).unwrap();
        let memory = Mapping::map_shared(file.as_fd(), 0, bytes as usize).unwrap();
        Arc::new(Self {
            file,
            memory,
            event_fd: sys::eventfd().unwrap(),
            state: Mutex::default(),
            hook: Mutex::default(),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A descriptor of the context's eventfd.
    pub(crate) fn event_fd(&self) -> OwnedFd {
        self.event_fd.try_clone().unwrap()
    }

    /// From now on called behind each request.
    pub(crate) fn after(&self, hook: impl Fn(u32) + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Arc::new(Box::new(hook)));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, offset: u64) -> *mut u64 {
        // SAFETY: every caller gives an offset inside the file.
        unsafe { self.memory.as_ptr().add(offset as usize).cast() }
    }

    /// The card completes a send of a queue pair: whether an armed notification was signalled.
    pub(crate) fn complete(&self, cqn: u32, qpn: u32, wr_id: u64) -> bool {
        let mut state = self.lock();
        let sent = state.sent.entry(qpn).or_default();
        *sent += 1;
        let credit = *sent & 0xffff;
        let cq = state.cqs.get_mut(&cqn).expect("a completion queue");
        let (round, place) = (cq.written / u64::from(cq.entries), cq.written % u64::from(cq.entries));
        let phase = if round.is_multiple_of(2) { wqe::PHASE } else { 0 };
        let cqe = Cqe { wr_id, qpn, opcode: wqe::OP_SEND, credit, phase, ..Cqe::default() };
        let at = STEP * u64::from(cqn) + STEP + place * u64::from(wqe::CQE_BYTES);
        // SAFETY: a place of the queue's memory; the phase is seen last on this processor's order of stores.
        unsafe { self.word(at).cast::<Cqe>().write_volatile(cqe) };
        cq.written += 1;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let bell = self.word(host::DB_CQ.into());
        // SAFETY: inside the doorbell page.
        let armed = unsafe { bell.read_volatile() };
        let signals = armed >> 63 != 0 && armed & 0xffff == u64::from(cqn);
        if signals {
            // SAFETY: as above.
            unsafe { bell.write_volatile(0) };
            sys::eventfd_signal(cq.fd.as_fd());
        }
        signals
    }

    /// An event for the context.
    pub(crate) fn event(&self, kind: u32, id: u32, value: u32) {
        let mut state = self.lock();
        let identity = match kind {
            ioctl::CTX_REQUEST => state.services.get(&value),
            _ => state.qps.get(&id),
        };
        let identity = identity.copied().unwrap_or(0);
        state.events.push_back(ioctl::ContextEvent { kind, id, value, identity, ..Default::default() });
        drop(state);
        sys::eventfd_signal(self.event_fd.as_fd());
    }

    /// Requests that have been rejected.
    pub(crate) fn rejected(&self) -> Vec<u32> {
        self.lock().rejected.clone()
    }

    pub(crate) fn ioctl(&self, request: u32, arg: *mut u8) -> io::Result<()> {
        // SAFETY: `arg` is a pointer to the request's struct.
        let done = unsafe { self.carry_out(request, arg) };
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(hook) = hook {
            hook(request);
        }
        done.map_err(io::Error::from_raw_os_error)
    }

    /// # Safety
    /// `arg` must be a pointer to the request's struct.
    unsafe fn carry_out(&self, request: u32, arg: *mut u8) -> Result<(), i32> {
        // SAFETY: as our caller's, here and for the structs below.
        let handle = || unsafe { arg.cast::<ioctl::Handle>().read() };
        let mut state = self.lock();
        state.given += 1;
        let fresh = state.given;
        let is = |of: Option<&u64>| if of == Some(&handle().identity) { Ok(()) } else { Err(libc::ENOENT) };
        match request {
            ioctl::IOC_CREATE_CQ => {
                // SAFETY: as above.
                let a = unsafe { &mut *arg.cast::<ioctl::CreateCq>() };
                a.cqn = (0..).find(|n| !state.cqs.contains_key(n)).unwrap();
                a.entries = a.entries.next_power_of_two();
                a.bytes = (a.entries * wqe::CQE_BYTES).next_multiple_of(DOORBELL_PAGE as u32);
                a.offset = STEP * u64::from(a.cqn) + STEP;
                // SAFETY: the object's memory; nobody has it yet.
                unsafe { self.word(a.offset).write_bytes(0, a.bytes as usize / 8) };
                // SAFETY: duplicates the caller's descriptor.
                let fd = unsafe { OwnedFd::from_raw_fd(libc::dup(a.event_fd)) };
                assert!(fd.as_raw_fd() >= 0);
                state.cqs.insert(a.cqn, Cq { fd, entries: a.entries, written: 0 });
            }
            ioctl::IOC_DESTROY_CQ => drop(state.cqs.remove(&handle().value).ok_or(libc::ENOENT)?),
            ioctl::IOC_CREATE_QP => {
                // SAFETY: as above.
                let a = unsafe { &mut *arg.cast::<ioctl::CreateQp>() };
                state.asked = *a;
                a.qpn = (FIRST_QPN..).find(|n| !state.qps.contains_key(n)).unwrap();
                a.sq_depth = a.sq_depth.next_power_of_two();
                a.rq_depth = a.rq_depth.next_power_of_two();
                a.rq_start = a.sq_depth * wqe::WQE_BYTES;
                a.bytes = a.rq_start + a.rq_depth * wqe::WQE_BYTES;
                a.offset = STEP * (1 + OBJECTS + u64::from(a.qpn - FIRST_QPN));
                a.identity = fresh;
                if a.aliases != ioctl::ALIASES_NONE {
                    a.first_alias = alias::ALIASES_OF_QP;
                }
                state.qps.insert(a.qpn, fresh);
                state.sent.remove(&a.qpn);
            }
            ioctl::IOC_ALIASES => {
                // SAFETY: as above.
                let a = unsafe { &mut *arg.cast::<ioctl::Aliases>() };
                is(state.qps.get(&a.qpn))?;
                a.copy_most = 1000;
            }
            ioctl::IOC_WHOLE => {
                // SAFETY: as above.
                let a = unsafe { &*arg.cast::<ioctl::Whole>() };
                is(state.qps.get(&a.qpn))?;
                state.wholes.push(*a);
            }
            ioctl::IOC_DESTROY_QP => {
                is(state.qps.get(&handle().value))?;
                state.qps.remove(&handle().value);
            }
            ioctl::IOC_CREATE_DOMAIN => {
                // SAFETY: as above.
                let a = unsafe { &mut *arg.cast::<ioctl::Handle>() };
                (a.value, a.identity) = (1, fresh);
                state.domain = Some(fresh);
            }
            ioctl::IOC_DESTROY_DOMAIN => {
                is(state.domain.as_ref())?;
                assert!(state.regions.is_empty() && state.qps.is_empty(), "a domain goes after what is in it");
                state.domain = None;
            }
            ioctl::IOC_REGISTER | ioctl::IOC_REBIND => {
                // SAFETY: as above.
                let a = unsafe { &mut *arg.cast::<ioctl::Register>() };
                if request == ioctl::IOC_REGISTER {
                    assert_eq!((a.domain, Some(a.domain_identity)), (1, state.domain));
                    (a.key, a.identity) = (fresh as u32 | 0x8000_0000, fresh);
                } else if !state.regions.contains_key(&a.identity) {
                    return Err(libc::ENOENT);
                }
                state.regions.insert(a.identity, *a);
            }
            ioctl::IOC_DEREGISTER => drop(state.regions.remove(&handle().identity).ok_or(libc::ENOENT)?),
            ioctl::IOC_LISTEN => {
                // SAFETY: as above.
                let a = unsafe { &mut *arg.cast::<ioctl::Handle>() };
                if state.services.contains_key(&a.value) {
                    return Err(libc::EBUSY);
                }
                a.identity = fresh;
                state.services.insert(a.value, fresh);
            }
            ioctl::IOC_UNLISTEN => {
                is(state.services.get(&handle().value))?;
                state.services.remove(&handle().value);
                // Requests that were not taken are rejected.
                let (gone, kept): (VecDeque<_>, _) =
                    std::mem::take(&mut state.events).into_iter().partition(|e| e.identity == handle().identity);
                state.events = kept;
                state.rejected.extend(gone.iter().map(|e| e.id));
            }
            ioctl::IOC_REJECT => {
                // SAFETY: as above.
                let id = unsafe { arg.cast::<ioctl::Accept>().read() }.request;
                state.rejected.push(id);
            }
            // SAFETY: as above.
            ioctl::IOC_SET_TRIGGER => state.trigger = unsafe { arg.cast::<ioctl::SetTrigger>().read() },
            ioctl::IOC_SET_CAP => {
                // SAFETY: as above.
                let a = unsafe { arg.cast::<ioctl::SetCap>().read() };
                if state.qps.get(&a.qpn) != Some(&a.identity) {
                    return Err(libc::ENOENT);
                }
                state.refuse_cap.take().map_or(Ok(()), Err)?;
                state.caps.push(a);
            }
            // SAFETY: as above.
            ioctl::IOC_SET_PEER => state.peer = unsafe { arg.cast::<ioctl::SetPeer>().read() },
            ioctl::IOC_GET_EVENT => {
                let event = state.events.pop_front().ok_or(libc::EAGAIN)?;
                // SAFETY: as above.
                unsafe { arg.cast::<ioctl::ContextEvent>().write(event) };
            }
            _ => return Err(libc::ENOTTY),
        }
        Ok(())
    }
}

/// Interference between threads and processes.
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use berth_abi::ring::*;
    use berth_abi::status;
    use berth_abi::wqe::Sge;
    use berth_queue::Remote;

    use super::*;
    use crate::cap::{Cap, CapGroup, CapPart};
    use crate::cm::Listener;
    use crate::context::Inner;
    use crate::cq::CompletionQueue;
    use crate::error::{Error, Reason, Result};
    use crate::mapping::Buffer;
    use crate::memory::{Again, First, SendMemory};
    use crate::process::tests::in_child;
    use crate::qp::{ForeignPeer, Local, Mode, QpConfig, QueuePair, Trigger, WorkRequest};
    use crate::region::{Access, BufferRegion, FileRegion, ProtectionDomain};

    /// Lengths of the regions when a key is bound anew by `what`.
    fn lengths_when_rebound(card: &Arc<Card>, what: impl FnOnce()) -> Option<Vec<u64>> {
        let last = Arc::new(Mutex::new(None));
        let (seen, of) = (Arc::clone(&last), Arc::downgrade(card));
        card.after(move |request| {
            let regions = || of.upgrade().map(|card| card.lock().regions.values().map(|a| a.len).collect());
            if request == ioctl::IOC_REBIND {
                *seen.lock().unwrap() = regions();
            }
        });
        what();
        last.lock().unwrap().take()
    }

    #[test]
    fn qp_9_a_buffers_key_opens_it_to_every_access_and_nothing_when_it_is_freed() {
        let card = Card::new();
        let domain = ProtectionDomain::new(&Inner::of_fake(&card)).unwrap();
        let bound = || card.lock().regions.values().map(|a| (a.va, a.len, a.rights)).collect::<Vec<_>>();
        let buffer = Buffer::from_slice(b"peers").unwrap();
        let va = buffer.as_ptr() as u64;
        let region = BufferRegion::new(&domain, buffer).unwrap();
        assert_eq!((bound(), region.remote().va), (vec![(va, 5, 7)], va));
        assert_eq!((lengths_when_rebound(&card, || drop(region)), bound()), (Some(vec![0]), vec![]));
    }

    #[test]
    fn qp_9_a_file_is_registered_as_it_is_mapped_and_its_key_opens_nothing_when_it_is_unmapped() {
        let path = std::env::temp_dir().join(format!("berth-region-{}", std::process::id()));
        std::fs::write(&path, b"served").unwrap();
        let card = Card::new();
        let context = Inner::of_fake(&card);
        let domain = ProtectionDomain::new(&context).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let bound = || card.lock().regions.values().map(|a| (a.va, a.len, a.rights)).collect::<Vec<_>>();
        for (write, rights) in [(false, 1), (true, 3)] {
            let make = if write { FileRegion::writable } else { FileRegion::read_only };
            let region = make(&domain, open()).unwrap();
            let va = region.remote().va;
            assert_eq!((bound(), region.len()), (vec![(va, 6, rights)], 6));
            // SAFETY: mapped as long as the region, and nobody writes there.
            assert_eq!(unsafe { std::slice::from_raw_parts(va as *const u8, 6) }, b"served");
            assert_eq!((lengths_when_rebound(&card, || drop(region)), bound()), (Some(vec![0]), vec![]));
        }
        File::create(&path).unwrap();
        let empty = FileRegion::read_only(&domain, open()).unwrap();
        assert_eq!((bound(), empty.is_empty()), (vec![(0, 0, 1)], true));
        assert!(matches!(
            FileRegion::read_only(&domain, File::open("/dev/zero").unwrap()),
            Err(Error::NotRegular { .. })
        ));
        std::fs::remove_file(&path).unwrap();
    }

    /// A context with a queue pair and its completion queue.
    struct Setting {
        card: Arc<Card>,
        context: Arc<Inner>,
        cq: CompletionQueue,
        qp: QueuePair,
    }

    fn make_qp(context: &Arc<Inner>, cq: &CompletionQueue) -> QueuePair {
        QueuePair::new(context, cq, cq, &QpConfig::default(), None).unwrap()
    }

    impl Setting {
        fn new() -> Self {
            let card = Card::new();
            let context = Inner::of_fake(&card);
            let cq = CompletionQueue::new(&context, 64, 128).unwrap();
            let qp = make_qp(&context, &cq);
            Self { card, context, cq, qp }
        }
    }

    #[test]
    fn qp_3_reads_under_way_are_chosen_in_both_directions() {
        const MOST: u8 = MAX_READS as u8;
        let Setting { card, context, cq, .. } = Setting::new();
        let make = |reads, peer_reads| {
            let config = QpConfig { reads, peer_reads, ..QpConfig::default() };
            QueuePair::new(&context, &cq, &cq, &config, None).map(drop)
        };
        let asked = || {
            let asked = card.lock().asked;
            (asked.reads, asked.peer_reads)
        };
        assert_eq!(asked(), (MOST.into(), MOST.into()), "unless something else is said");
        for (reads, peer_reads) in [(0, 3), (MOST, 0)] {
            make(reads, peer_reads).unwrap();
            assert_eq!(asked(), (reads.into(), peer_reads.into()));
        }
        for (reads, peer_reads) in [(MOST + 1, 0), (MOST, MOST + 1)] {
            let refused = make(reads, peer_reads).unwrap_err();
            assert!(matches!(refused, Error::TooManyReads(n) if n == MOST + 1));
            let text = format!("{} READs under way, but a card keeps at most {MOST} in each direction", MOST + 1);
            assert_eq!(refused.to_string(), text);
        }
        assert_eq!(asked(), (MOST.into(), 0), "the driver is not asked");
    }

    #[test]
    fn vc_10_the_card_finds_under_an_alias_what_is_sent_and_nothing_else() {
        let Setting { card, context, cq, .. } = Setting::new();
        let make = |memory| {
            let config = QpConfig { memory, send_depth: 8, mode: Mode::Message, ..QpConfig::default() };
            QueuePair::new(&context, &cq, &cq, &config, None).unwrap()
        };
        let range = |va, len| Sge { va, len, reserved: 0 };
        let remote = Remote { va: 0, key: 0 };
        let sges = [range(0x7000, 0), range(0x5008, 1000)];
        let two = [range(0x5000, 8), range(0x9000, 8)];
        let read = [range(0x5008, 1000)];
        let requests = [
            WorkRequest { sges: &sges, ..Default::default() },
            WorkRequest { sges: &sges, remote: Some(remote), ..Default::default() },
            WorkRequest { sges: &sges, memory: Some(SendMemory::PIN), ..Default::default() },
            WorkRequest { sges: &two, ..Default::default() },
            WorkRequest { sges: &read, source: Some(remote), ..Default::default() },
            WorkRequest { local: Some(Local::Nothing), ..Default::default() },
        ];
        let late = SendMemory { first: First::Pin, again: Again::Copy };
        let policies = [
            (SendMemory::PIN, 0),
            (SendMemory::COPY, 256),
            (late, 384),
            (SendMemory::WHOLE, 448),
            (SendMemory::AUTO, 0),
        ];
        for (memory, first) in policies {
            let mut qp = make(memory);
            assert_eq!(card.lock().asked.aliases, memory.abi());
            // SAFETY: nothing is at these addresses, and the card is none.
            unsafe { qp.post_send(&requests) }.unwrap();
            let (queue, _) = qp.mapping();
            // SAFETY: the queue has so many elements, which nobody writes now.
            let elements = unsafe { std::slice::from_raw_parts(queue.cast::<wqe::Wqe>(), requests.len()) };
            let ranges = |n: usize, line: usize| &elements[n].sge[line..line + usize::from(elements[n].num_sge)];
            let of = |alias, va| alias::alias_va(alias, va);
            let one = |alias| [range(0x7000, 0), range(of(alias, 0x5008), 1000)];
            if first == 0 {
                assert_eq!([ranges(0, 0), ranges(1, 1), ranges(3, 0)], [&sges[..], &sges, &two]);
            } else {
                let both = [range(of(first + 2, 0x5000), 8), range(of(first + 2, 0x9000), 8)];
                assert_eq!([ranges(0, 0), ranges(1, 1), ranges(3, 0)], [&one(first)[..], &one(first + 1), &both]);
            }
            assert_eq!((ranges(2, 0), ranges(4, 1)), (&sges[..], &read[..]));
            let wholes = card.lock().wholes.split_off(0);
            let wholes = wholes.iter().map(|w| (w.alias, w.ranges, w.range[0].va));
            let expected = [(first, 1, 0x5008), (first + 1, 1, 0x5008), (first + 2, 2, 0x5000)];
            assert_eq!(wholes.collect::<Vec<_>>(), expected[..if memory == SendMemory::WHOLE { 3 } else { 0 }]);
            // What is refused has no alias.
            // SAFETY: as above.
            assert!(unsafe { qp.post_send(&requests[..3]) }.is_err());
            // SAFETY: as above.
            unsafe { qp.post_send(&requests[..1]) }.unwrap();
            // SAFETY: as above.
            let element = unsafe { *queue.cast::<wqe::Wqe>().add(6) };
            assert_eq!(element.sge[1].va, if first == 0 { 0x5008 } else { of(first + 3, 0x5008) });
            card.lock().wholes.clear();
        }
    }

    fn post(qp: &mut QueuePair, wr_id: u64) {
        // SAFETY: an element without ranges.
        unsafe { qp.post_send(&[WorkRequest { wr_id, ..WorkRequest::default() }]) }.unwrap();
    }

    /// Waits for a condition that other threads bring about.
    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    fn is_lost<T>(outcome: Result<T>) -> bool {
        matches!(outcome, Err(Error::DeviceLost))
    }

    #[test]
    fn qp_9_a_region_is_registered_bound_anew_and_ended_before_its_domain() {
        let card = Card::new();
        let context = Inner::of_fake(&card);
        let domain = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64, 128).unwrap();
        let qp = domain.create_qp(&cq, &cq, &QpConfig::default()).unwrap();
        let access = Access { read: true, one_shot: true, ..Access::WRITE };
        // SAFETY: nobody uses it.
        let region = unsafe { domain.register(5, 1 << 40, access) }.unwrap();
        drop(domain);
        let bound = || {
            let state = card.lock();
            let a = state.regions.values().next().unwrap();
            (a.va, a.len, a.rights, a.flags, a.key)
        };
        assert_eq!(bound(), (5, 1 << 40, 3, 1, region.key()));
        // SAFETY: as above.
        unsafe { region.rebind(6, 7, Access { atomic: true, ..Access::default() }) }.unwrap();
        assert_eq!(bound(), (6, 7, 4, 0, region.key()));
        region.unbind().unwrap();
        assert_eq!(bound(), (0, 0, 0, 0, region.key()));
        drop(region);
        assert!(card.lock().regions.is_empty() && card.lock().domain.is_some());
        drop(qp);
        assert!(card.lock().domain.is_none());
    }

    #[test]
    fn f1_a_second_waiter_gets_the_second_completion() {
        let Setting { card, cq, mut qp, .. } = Setting::new();
        post(&mut qp, 1);
        post(&mut qp, 2);
        let returned = AtomicUsize::new(0);
        thread::scope(|scope| {
            for clone in [cq.clone(), cq.clone()] {
                let returned = &returned;
                scope.spawn(move || {
                    clone.wait(None).unwrap();
                    returned.fetch_add(1, Ordering::Release);
                });
            }
            card.complete(cq.cqn(), qp.qpn(), 1);
            until(|| returned.load(Ordering::Acquire) == 1);
            card.complete(cq.cqn(), qp.qpn(), 2);
        });
    }

    #[test]
    fn f1_as_many_waiters_return_as_completions_come() {
        let Setting { card, cq, mut qp, .. } = Setting::new();
        for round in 0..100u64 {
            let waiters = 2 + round % 7;
            for n in 0..waiters {
                post(&mut qp, n);
            }
            let got = Mutex::new(Vec::new());
            thread::scope(|scope| {
                for n in 0..waiters {
                    let (clone, got) = (cq.clone(), &got);
                    let limit = (n % 2 == 0).then_some(Duration::from_secs(600));
                    scope.spawn(move || {
                        let completion = clone.wait(limit).unwrap();
                        got.lock().unwrap().push(completion.wr_id);
                    });
                }
                for n in 0..waiters {
                    card.complete(cq.cqn(), qp.qpn(), n);
                    // Now all at once, now each when the one before has been taken.
                    until(|| round % 2 == 0 || got.lock().unwrap().len() as u64 > n);
                }
            });
            let mut got = got.into_inner().unwrap();
            got.sort_unstable();
            assert!(got.into_iter().eq(0..waiters));
        }
    }

    #[test]
    fn f1_who_polls_beside_a_waiter_takes_no_wake_from_the_next() {
        let Setting { card, cq, mut qp, .. } = Setting::new();
        for round in 0..200 {
            post(&mut qp, 1);
            post(&mut qp, 2);
            thread::scope(|scope| {
                let (clone, other) = (cq.clone(), cq.clone());
                scope.spawn(move || clone.wait(None).unwrap());
                scope.spawn(move || {
                    let mut taken = 0;
                    while taken == 0 {
                        taken += usize::from(other.poll().unwrap().is_some());
                    }
                });
                card.complete(cq.cqn(), qp.qpn(), 1);
                if round % 2 == 0 {
                    thread::yield_now();
                }
                card.complete(cq.cqn(), qp.qpn(), 2);
            });
        }
    }

    #[test]
    fn f1_each_event_wakes_the_thread_that_it_is_for() {
        let Setting { card, context, cq, qp } = Setting::new();
        drop(qp);
        for round in 0..60 {
            let qps: Vec<_> = (0..4).map(|_| make_qp(&context, &cq)).collect();
            let listeners: Vec<_> = (1..=3).map(|s| Listener::new(&context, s).unwrap()).collect();
            let qpns: Vec<_> = qps.iter().map(QueuePair::qpn).collect();
            thread::scope(|scope| {
                for qp in qps {
                    scope.spawn(move || {
                        qp.wait_established(None).unwrap();
                        assert_eq!(qp.wait_closed(None).unwrap(), Reason::PeerClose);
                    });
                }
                for listener in &listeners {
                    scope.spawn(move || std::mem::drop(listener.next(None).unwrap()));
                }
                // In an order that differs from round to round.
                for n in 0..4 {
                    card.event(ioctl::CTX_ESTABLISHED, qpns[(n + round) % 4], 0);
                }
                for service in [2, 3, 1] {
                    card.event(ioctl::CTX_REQUEST, 100 + service, service);
                }
                for n in 0..4 {
                    card.event(ioctl::CTX_CLOSED, qpns[(3 * n + round) % 4], status::REASON_PEER_CLOSE);
                }
            });
        }
    }

    #[test]
    fn f2_loss_of_the_card_ends_all_waits_and_all_later_ones() {
        for _ in 0..50 {
            let card = Card::new();
            let context = Inner::of_fake(&card);
            let ends: Vec<_> = (0..3)
                .map(|_| {
                    let cq = CompletionQueue::new(&context, 64, 128).unwrap();
                    let qp = make_qp(&context, &cq);
                    (cq, qp)
                })
                .collect();
            let listener = Listener::new(&context, 7).unwrap();
            thread::scope(|scope| {
                for (cq, qp) in ends {
                    let twin = cq.clone();
                    scope.spawn(move || assert!(is_lost(twin.wait(None))));
                    scope.spawn(move || {
                        assert!(is_lost(cq.wait(None)));
                        assert!(is_lost(qp.wait_closed(None)));
                        assert!(is_lost(qp.wait_established(None)));
                    });
                }
                let listener = &listener;
                scope.spawn(move || assert!(is_lost(listener.next(None))));
                card.event(ioctl::CTX_DEVICE_LOST, 0, 0);
            });
            assert!(is_lost(listener.next(None)));
        }
    }

    #[test]
    fn qp_7_a_foreign_peer_is_told_to_the_driver_field_by_field() {
        let Setting { card, qp, .. } = Setting::new();
        let ip = Ipv4Addr::new(10, 1, 2, 3);
        let plain = ForeignPeer::new(ip, 77);
        let special = ForeignPeer { psn: 1, peer_psn: 2, mtu: 4096, rnr_timer: 3, rnr_retries: 4, ..plain };
        for (peer, expected) in [(plain, [77, 0, 0, 1024, 12, 7]), (special, [77, 1, 2, 4096, 3, 4])] {
            qp.set_peer(&peer).unwrap();
            let ioctl::SetPeer { peer_qpn, psn, peer_psn, mtu, rnr_timer, rnr_retries, .. } = card.lock().peer;
            assert_eq!([peer_qpn, psn, peer_psn, mtu, rnr_timer, rnr_retries], expected);
        }
        let told = card.lock().peer;
        assert_eq!((told.qpn, told.ipv4, told.identity), (qp.qpn(), 0x0a01_0203, qp.identity()));
    }

    #[test]
    fn cr_6_each_trigger_is_told_to_the_driver() {
        let Setting { card, qp, .. } = Setting::new();
        let triggers = [
            (Trigger::First, TRIGGER_FIRST, 0),
            (Trigger::Last, TRIGGER_LAST, 0),
            (Trigger::Between(9), TRIGGER_BETWEEN, 9),
            (Trigger::Unbounded(8), TRIGGER_UNBOUNDED, 8),
            (Trigger::Quarters(3), TRIGGER_QUARTERS, 3),
            (Trigger::Adaptive, TRIGGER_ADAPTIVE, 0),
            (Trigger::Timed, TRIGGER_TIMED, 0),
            (Trigger::Predictive, TRIGGER_PREDICTIVE, 0),
            (Trigger::Auto, TRIGGER_AUTO, 0),
        ];
        for (trigger, kind, index) in triggers {
            qp.set_trigger(trigger).unwrap();
            let told = card.lock().trigger;
            assert_eq!((told.qpn, told.identity), (qp.qpn(), qp.identity()));
            assert_eq!((told.trigger, told.trigger_index, told.reserved), (kind.into(), index, 0));
        }
    }

    /// Posts receives of these sizes.
    fn post_recv(qp: &mut QueuePair, sizes: &[u32]) {
        let sges: Vec<_> = sizes.iter().map(|&len| [Sge { va: 0x5000, len, reserved: 0 }; 2]).collect();
        let requests: Vec<_> = sges.iter().map(|sges| WorkRequest { sges, ..WorkRequest::default() }).collect();
        // SAFETY: nothing is at this address, and the card is none.
        unsafe { qp.post_recv(&requests) }.unwrap();
    }

    /// Rate and burst of each call since the last one, with its QPN.
    fn caps(card: &Card) -> Vec<(u32, u64, u32)> {
        card.lock().caps.drain(..).map(|a| (a.qpn, a.rate, a.burst)).collect()
    }

    #[test]
    fn cr_10_a_maximum_bandwidth_is_told_to_the_driver_and_holds_the_largest_receive() {
        let Setting { card, mut qp, .. } = Setting::new();
        let cap = |bytes_per_second, burst| Some(Cap { bytes_per_second, burst });
        qp.set_cap(cap(1 << 40, 1)).unwrap();
        assert_eq!(card.lock().caps[0].identity, qp.identity());
        qp.set_cap(None).unwrap();
        assert_eq!(caps(&card), [(qp.qpn(), 1 << 40, 1), (qp.qpn(), 0, 0)]);
        post_recv(&mut qp, &[500, 2000, 0]);
        post_recv(&mut qp, &[20]);
        qp.set_cap(cap(7, 4000)).unwrap();
        assert_eq!(caps(&card), [(qp.qpn(), 7, 4000)]);
        let refused = qp.set_cap(cap(7, 3999)).unwrap_err();
        assert!(matches!(refused, Error::BurstTooSmall { burst: 3999, largest: 4000 }));
        assert!(refused.to_string().contains("3999 bytes") && refused.to_string().contains("4000 bytes"));
        for nothing in [cap(0, 5000), cap(7, 0), cap(0, 0)] {
            assert!(qp.set_cap(nothing).is_err(), "that is not how it ends");
        }
        card.lock().refuse_cap = Some(libc::EINVAL);
        assert!(matches!(qp.set_cap(cap(7, 5000)), Err(Error::Invalid { .. })));
        assert_eq!(caps(&card), []);
        qp.set_cap(None).unwrap();
    }

    #[test]
    fn cr_10_members_of_a_group_share_its_bandwidth_and_no_burst_is_less_than_a_receive() {
        let Setting { card, context, cq, qp: first } = Setting::new();
        let [mut second, third] = [(); 2].map(|()| make_qp(&context, &cq));
        let qpns = [&first, &second, &third].map(QueuePair::qpn);
        post_recv(&mut second, &[400]);
        let group = CapGroup::new(Cap { bytes_per_second: 3_000_000, burst: 1900 });
        let a = group.join(&first).unwrap();
        assert_eq!(caps(&card), [(qpns[0], 3_000_000, 1900)]);
        assert!(matches!(group.join(&first), Err(Error::Busy { .. })));
        let b = group.join(&second).unwrap();
        assert_eq!(caps(&card), [(qpns[0], 1_500_000, 950), (qpns[1], 1_500_000, 950)]);
        let part = |bytes_per_second, burst, raised| CapPart { cap: Cap { bytes_per_second, burst }, raised };
        assert_eq!([a.part().unwrap(), b.part().unwrap()], [part(1_500_000, 950, false); 2]);
        let c = group.join(&third).unwrap();
        let shared = [(qpns[0], 1_000_000, 633), (qpns[1], 1_000_000, 800), (qpns[2], 1_000_000, 633)];
        assert_eq!(caps(&card), shared);
        assert_eq!(b.part().unwrap(), part(1_000_000, 800, true));
        assert_eq!([a.part().unwrap(), c.part().unwrap()], [part(1_000_000, 633, false); 2]);
        // One that has no queue pair any more keeps its part.
        drop(second);
        drop(a);
        assert_eq!(caps(&card), [(qpns[0], 0, 0), (qpns[2], 1_500_000, 950)]);
        drop(b);
        assert_eq!(caps(&card), [(qpns[2], 3_000_000, 1900)]);
        drop(c);
        assert_eq!(caps(&card), [(qpns[2], 0, 0)]);
    }

    #[test]
    fn cr_10_who_cannot_join_a_group_leaves_it_as_it_was() {
        let Setting { card, context, cq, qp } = Setting::new();
        let other = make_qp(&context, &cq);
        // No burst is left for two, or the driver refuses.
        for (burst, refusal) in [(1, None), (2, Some(libc::EINVAL))] {
            let group = CapGroup::new(Cap { bytes_per_second: 1000, burst });
            let member = group.join(&qp).unwrap();
            caps(&card);
            card.lock().refuse_cap = refusal;
            assert!(matches!(group.join(&other), Err(Error::Invalid { .. })));
            let told = caps(&card);
            assert!(told.ends_with(&[(other.qpn(), 0, 0), (qp.qpn(), 1000, burst)]), "{told:?}");
            assert_eq!(member.part().unwrap().cap.burst, burst);
        }
        // A card that has gone has nothing to share.
        let lost = Setting::new();
        let another = make_qp(&lost.context, &lost.cq);
        caps(&card);
        let group = CapGroup::new(Cap { bytes_per_second: 1000, burst: 6 });
        let _gone = group.join(&lost.qp).unwrap();
        lost.card.lock().refuse_cap = Some(libc::ENODEV);
        let _member = group.join(&qp).unwrap();
        assert_eq!(caps(&card), [(qp.qpn(), 500, 3)]);
        assert!(is_lost(group.join(&another)));
        assert_eq!(caps(&card), [(qp.qpn(), 333, 2), (qp.qpn(), 500, 3)]);
        // In a child nothing is told to the driver.
        let group = CapGroup::new(Cap { bytes_per_second: 1000, burst: 1 });
        let member = group.join(&qp).unwrap();
        caps(&card);
        let mut moved = Some((group.clone(), member));
        assert!(in_child(|| {
            let (group, member) = moved.take().unwrap();
            let refused = |error| matches!(error, Error::NotPermitted { .. });
            let good = refused(group.join(&other).unwrap_err()) && refused(member.part().unwrap_err());
            drop(member);
            good && caps(&card).is_empty()
        }));
    }

    #[test]
    fn f2_the_end_of_a_connection_is_told_to_whoever_asks_and_again() {
        let Setting { card, qp, .. } = Setting::new();
        card.event(ioctl::CTX_ESTABLISHED, qp.qpn(), 0);
        card.event(ioctl::CTX_QP_ERROR, qp.qpn(), status::REASON_WITHDRAWN);
        card.event(ioctl::CTX_CLOSED, qp.qpn(), status::REASON_PEER_CLOSE);
        for _ in 0..3 {
            assert_eq!(qp.wait_closed(None).unwrap(), Reason::Withdrawn, "the first reason stays");
            qp.wait_established(None).unwrap();
        }
    }

    #[test]
    fn f2_who_waits_where_nothing_can_complete_any_more_returns() {
        for _ in 0..50 {
            let Setting { card: _card, context, cq, qp } = Setting::new();
            let other = make_qp(&context, &cq);
            thread::scope(|scope| {
                for clone in [cq.clone(), cq.clone(), cq.clone()] {
                    scope.spawn(move || {
                        let outcome = clone.wait(None);
                        assert!(
                            matches!(outcome, Err(Error::Closed { reason: Reason::LocalClose, .. })),
                            "{outcome:?}"
                        );
                    });
                }
                drop(qp);
                until(|| cq.inner.is_watched());
                drop(other);
            });
            // Before there is another one.
            assert!(matches!(cq.wait(None), Err(Error::Closed { .. })));
            let _last = make_qp(&context, &cq);
            assert!(matches!(cq.wait(Some(Duration::ZERO)), Err(Error::Timeout(_))));
        }
    }

    /// Objects of every kind, as a child inherits them.
    #[test]
    fn f3_in_a_child_calls_are_refused_and_drops_touch_nothing() {
        let Setting { card, context, cq, mut qp } = Setting::new();
        post(&mut qp, 1);
        card.complete(cq.cqn(), qp.qpn(), 1);
        card.event(ioctl::CTX_ESTABLISHED, qp.qpn(), 0);
        let mut listener = Some(Listener::new(&context, 7).unwrap());
        let (queue, bytes) = qp.mapping();
        let (qpn, mut moved) = (qp.qpn(), Some((qp, cq.clone(), context.clone(), card.clone())));
        let card_before = card.lock().qps.clone();
        let refused = |outcome: Result<()>| matches!(outcome, Err(Error::NotPermitted { .. }));
        let good = in_child(|| {
            let (mut qp, cq, context, card) = moved.take().unwrap();
            let listener = listener.take().unwrap();
            // The queues are not there, and something else is in their place.
            // SAFETY: what the mapping was is not used any more: nothing that follows may.
            let own = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                libc::mmap(queue.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
            };
            // SAFETY: just mapped.
            unsafe { own.cast::<u8>().write(42) };
            // SAFETY: an element without ranges.
            let posted = unsafe { qp.post_send(&[WorkRequest::default()]) };
            // SAFETY: likewise.
            let posted_recv = unsafe { qp.post_recv(&[WorkRequest::default()]) };
            let calls = [
                posted,
                posted_recv,
                cq.poll().map(drop),
                cq.arm(),
                cq.wait(Some(Duration::ZERO)).map(drop),
                listener.next(Some(Duration::ZERO)).map(drop),
                qp.wait_closed(Some(Duration::ZERO)).map(drop),
                qp.wait_established(Some(Duration::ZERO)).map(drop),
                qp.disconnect(),
                Listener::new(&context, 8).map(drop),
            ];
            let all = calls.into_iter().all(refused);
            let known = card.lock().qps.len();
            drop(qp);
            drop(listener);
            drop(cq);
            drop(context);
            let untouched = known == card.lock().qps.len();
            // SAFETY: still mapped, if nobody has unmapped it.
            all && untouched && unsafe { own.cast::<u8>().read_volatile() } == 42
        });
        assert!(good);
        // In the parent all is as it was, the signals that wait included.
        assert_eq!(card.lock().qps, card_before);
        assert_eq!(sys::wait_readable([context.event_fd()], Some(Duration::ZERO)).unwrap(), [true]);
        let (qp, ..) = moved.take().unwrap();
        assert_eq!(cq.wait(None).unwrap().wr_id, 1);
        qp.wait_established(None).unwrap();
        drop(listener);
        drop(qp);
        assert!(!card.lock().qps.contains_key(&qpn));
    }

    #[test]
    fn f3_a_child_that_opens_the_card_anew_uses_it() {
        let Setting { context, .. } = Setting::new();
        assert!(in_child(|| {
            let before = context.check_owner("").is_err();
            let Setting { card, cq, mut qp, .. } = Setting::new();
            post(&mut qp, 5);
            card.complete(cq.cqn(), qp.qpn(), 5);
            before && cq.wait(None).is_ok_and(|c| c.wr_id == 5)
        }));
    }

    /// Holds up the first thread whose request is carried out, until it is released.
    fn hold(card: &Card, request: u32) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (held, is_held) = mpsc::channel();
        let (let_go, is_let_go) = mpsc::channel();
        let once = Mutex::new(Some((held, is_let_go)));
        card.after(move |r| {
            let first = if r == request { once.lock().unwrap().take() } else { None };
            if let Some((held, is_let_go)) = first {
                held.send(()).unwrap();
                is_let_go.recv().unwrap();
            }
        });
        (is_held, let_go)
    }

    #[test]
    fn f4_a_queue_pair_with_the_number_of_one_that_goes_keeps_its_completions_and_events() {
        let Setting { card, context, cq, mut qp } = Setting::new();
        let qpn = qp.qpn();
        // Nothing of the one that goes may be left.
        post(&mut qp, 1);
        card.complete(cq.cqn(), qpn, 1);
        card.event(ioctl::CTX_CLOSED, qpn, status::REASON_PEER_CLOSE);
        let (is_held, let_go) = hold(&card, ioctl::IOC_DESTROY_QP);
        thread::scope(|scope| {
            let first = scope.spawn(move || drop(qp));
            is_held.recv().unwrap();
            let mut second = make_qp(&context, &cq);
            assert_eq!(second.qpn(), qpn);
            post(&mut second, 2);
            card.event(ioctl::CTX_ESTABLISHED, qpn, 0);
            let_go.send(()).unwrap();
            first.join().unwrap();
            card.complete(cq.cqn(), qpn, 2);
            assert_eq!(cq.wait(None).unwrap().wr_id, 2);
            assert_eq!(second.sends_outstanding(), 0);
            second.wait_established(None).unwrap();
            card.event(ioctl::CTX_CLOSED, qpn, status::REASON_PEER_LOST);
            assert_eq!(second.wait_closed(None).unwrap(), Reason::PeerLost);
        });
    }

    #[test]
    fn f4_requests_for_a_listener_are_not_rejected_by_the_one_that_went_before() {
        let Setting { card, context, .. } = Setting::new();
        let listener = Listener::new(&context, 7).unwrap();
        let (is_held, let_go) = hold(&card, ioctl::IOC_UNLISTEN);
        thread::scope(|scope| {
            let first = scope.spawn(move || drop(listener));
            is_held.recv().unwrap();
            let second = Listener::new(&context, 7).unwrap();
            card.event(ioctl::CTX_REQUEST, 31, 7);
            let_go.send(()).unwrap();
            first.join().unwrap();
            let request = second.next(None).unwrap();
            assert!(card.rejected().is_empty());
            drop(request);
            assert_eq!(card.rejected(), [31]);
            // Waiting requests of the last listener are rejected; one that could not listen has none.
            card.event(ioctl::CTX_REQUEST, 32, 7);
            assert!(matches!(Listener::new(&context, 7), Err(Error::Busy { .. })));
            assert_eq!(card.rejected(), [31]);
            drop(second);
            assert_eq!(card.rejected(), [31, 32]);
        });
    }

    #[test]
    fn f4_queue_pairs_made_and_dropped_by_many_threads_get_what_is_theirs() {
        let Setting { card, context, qp, .. } = Setting::new();
        drop(qp);
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for n in 0..4u64 {
                let (card, context, start) = (&card, &context, &start);
                let cq = CompletionQueue::new(context, 8, 16).unwrap();
                scope.spawn(move || {
                    start.wait();
                    for round in 0..300 {
                        let mut qp = make_qp(context, &cq);
                        let wr_id = n << 32 | round;
                        post(&mut qp, wr_id);
                        card.event(ioctl::CTX_ESTABLISHED, qp.qpn(), 0);
                        card.complete(cq.cqn(), qp.qpn(), wr_id);
                        if round % 3 != 0 {
                            assert_eq!(cq.poll().unwrap().unwrap().wr_id, wr_id);
                            qp.wait_established(None).unwrap();
                        }
                    }
                });
            }
        });
    }
}
