// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of a process without any privilege: every ioctl with every field in and out of its range, at good and
//! bad addresses, mappings of all kinds, several threads at once, with no object up to as many as it may have
//! (invariants 5, 6). Also calls in which the kernel has no memory, or cannot copy.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use berth_abi::card::{ABI_VERSION, MAX_DEPTH};
use berth_abi::ring::{CRASH_EVENT_WORDS, MODE_MESSAGE, MODE_STREAM};
use berth_abi::wqe::{OP_RECV, OP_SEND, SEND_IMMEDIATE, SEND_INLINE, Sge, Wqe};
use berth_abi::{counters as c, host, ioctl};
use libberth::{Counters, Device, Reason, Status};

use crate::connections::loopback_works;
use crate::env::Env;
use crate::faults::{FailNth, Faults};
use crate::util::{
    HELD, INCIDENTS, Mem, PAGE, Random, Res, check, depths, in_child, loop_pair, of_driver, wait_pid, wait_until,
};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: inv_6_unprivileged_system_calls_do_no_harm,
         inv_6_unprivileged_system_calls_do_no_harm_while_memory_is_short, inv_6_calls_without_memory_fail_whole_and_work_the_next_time,
         inv_6_results_that_cannot_be_told_are_undone, inv_6_page_requests_without_memory_are_tried_again,
         inv_6_pages_that_find_no_memory_for_long_are_refused_by_name;
}

// ---- the grammar -----------------------------------------------------------------------------------------------

/// What a field means. Those with a number take so many bytes, the others 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum F {
    Abi,
    EventFd,
    Zero,
    Cqn,
    Qpn,
    Mode,
    QpnOrZero,
    Depth,
    Entries,
    Trigger,
    Index,
    List,
    /// Bytes at once, and bytes per second.
    Burst,
    Rate,
    Block,
    Service,
    Ip,
    Length,
    Private,
    RequestId,
    Mask,
    Ms,
    Bytes,
    Mtu,
    Mac,
    How,
    Pointer,
    LogBytes,
    Domain,
    DomainOrZero,
    Key,
    Rights,
    Flags,
    Reads,
    PeerQpn,
    Psn,
    /// Timer or retries.
    Rnr,
    /// Of registered memory: its bytes.
    Len,
    Memory,
    /// The first alias, and their number.
    Alias,
    Aliases,
    /// Of a send that is pinned as a whole.
    Ranges,
    /// Of an object, or 0 for whatever has the number.
    Identity,
    /// Written by the driver, or any value is good.
    Any,
    /// Such a field of so many bytes.
    Out(usize),
}

impl F {
    fn bytes(self) -> usize {
        match self {
            Self::Private => 32,
            Self::Bytes | Self::Mac | Self::Pointer | Self::Identity | Self::Len | Self::Rate => 8,
            Self::Reads => 2,
            Self::Out(bytes) => bytes,
            _ => 4,
        }
    }
}

/// A request: its number, its name, its struct's size, its fields.
struct Call {
    number: u32,
    name: &'static str,
    size: usize,
    fields: Vec<(usize, F)>,
    /// An unprivileged process never succeeds with it.
    privileged: bool,
}

macro_rules! request {
    ($number:ident, $type:ident { $($field:ident: $f:expr),* }) => { request!($number, $type { $($field: $f),* }, false) };
    ($number:ident, $type:ident { $($field:ident: $f:expr),* }, $privileged:expr) => {
        Call {
            number: ioctl::$number,
            name: stringify!($number),
            size: size_of::<ioctl::$type>(),
            fields: vec![$((offset_of!(ioctl::$type, $field), $f)),*],
            privileged: $privileged,
        }
    };
}

/// All requests of `driver/abi`.
fn requests() -> Res<Vec<Call>> {
    use F::*;
    let all = vec![
        request!(
            IOC_CONTEXT,
            Context { abi: Abi, event_fd: EventFd, doorbell_offset: Out(8), asid: Any, reserved: Zero }
        ),
        request!(IOC_QUERY, Query { abi: Out(size_of::<ioctl::Query>()) }),
        request!(IOC_QUERY_LIMITS, QueryLimits { process_contexts: Out(size_of::<ioctl::QueryLimits>()) }),
        request!(IOC_SET_NET, SetNet { ipv4: Ip, mtu: Mtu, mac: Mac }, true),
        request!(IOC_SET_LIMITS, SetLimits { mask: Mask, linger_ms: Ms, card_budget: Bytes, context_budget: Bytes }),
        request!(IOC_QUERY_CONTEXT, QueryContext { pinned: Out(size_of::<ioctl::QueryContext>()) }),
        request!(
            IOC_CREATE_CQ,
            CreateCq { entries: Entries, event_fd: EventFd, cqn: Any, bytes: Any, offset: Out(8), identity: Out(8) }
        ),
        request!(IOC_DESTROY_CQ, Handle { value: Cqn, reserved: Zero, identity: Identity }),
        request!(
            IOC_CREATE_QP,
            CreateQp {
                send_cqn: Cqn,
                recv_cqn: Cqn,
                sq_depth: Depth,
                rq_depth: Depth,
                trigger: Trigger,
                trigger_index: Index,
                max_list: List,
                block: Block,
                timeout: Any,
                retries: Any,
                qpn: Any,
                bytes: Any,
                offset: Out(8),
                rq_start: Any,
                mode: Mode,
                send_cq: Identity,
                recv_cq: Identity,
                identity: Out(8),
                domain: DomainOrZero,
                reads: Reads,
                peer_reads: Reads,
                domain_identity: Identity,
                aliases: Memory,
                first_alias: Any,
                carrier: Memory,
                reserved: Zero
            }
        ),
        request!(
            IOC_SET_TRIGGER,
            SetTrigger { qpn: Qpn, trigger: Trigger, identity: Identity, trigger_index: Index, reserved: Zero }
        ),
        request!(IOC_SET_CAP, SetCap { qpn: Qpn, burst: Burst, identity: Identity, rate: Rate }),
        request!(
            IOC_ALIASES,
            Aliases {
                qpn: Qpn,
                first: Alias,
                aliases: Aliases,
                pinned: Any,
                copy_most: Any,
                reserved: Zero,
                identity: Identity
            }
        ),
        request!(
            IOC_WHOLE,
            Whole {
                qpn: Qpn,
                alias: Alias,
                identity: Identity,
                ranges: Ranges,
                reserved: Zero,
                range: Out(size_of::<ioctl::Whole>() - 24)
            }
        ),
        request!(IOC_DESTROY_QP, Handle { value: Qpn, reserved: Zero, identity: Identity }),
        request!(
            IOC_QUERY_QP,
            QueryQp { qpn: Qpn, reserved: Zero, identity: Identity, state: Out(size_of::<ioctl::QueryQp>() - 16) }
        ),
        request!(IOC_CREATE_DOMAIN, Handle { value: Zero, reserved: Zero, identity: Identity }),
        request!(IOC_DESTROY_DOMAIN, Handle { value: Domain, reserved: Zero, identity: Identity }),
        request!(
            IOC_REGISTER,
            Register {
                va: Pointer,
                len: Len,
                domain: Domain,
                rights: Rights,
                flags: Flags,
                key: Zero,
                domain_identity: Identity,
                identity: Identity
            }
        ),
        request!(
            IOC_REBIND,
            Register {
                va: Pointer,
                len: Len,
                domain: Zero,
                rights: Rights,
                flags: Flags,
                key: Key,
                domain_identity: Identity,
                identity: Identity
            }
        ),
        request!(IOC_DEREGISTER, Handle { value: Key, reserved: Zero, identity: Identity }),
        request!(IOC_LISTEN, Handle { value: Service, reserved: Zero, identity: Identity }),
        request!(IOC_UNLISTEN, Handle { value: Service, reserved: Zero, identity: Identity }),
        request!(
            IOC_CONNECT,
            Connect { qpn: Qpn, ipv4: Ip, service: Service, private_len: Length, private: Private, identity: Identity }
        ),
        request!(
            IOC_ACCEPT,
            Accept {
                request: RequestId,
                qpn: Qpn,
                private_len: Length,
                reserved: Zero,
                private: Private,
                identity: Identity,
                listener: Identity
            }
        ),
        request!(
            IOC_REJECT,
            Accept {
                request: RequestId,
                qpn: QpnOrZero,
                private_len: Length,
                reserved: Zero,
                private: Private,
                identity: Identity,
                listener: Identity
            }
        ),
        request!(IOC_DISCONNECT, Handle { value: Qpn, reserved: Zero, identity: Identity }),
        request!(
            IOC_SET_PEER,
            SetPeer {
                qpn: Qpn,
                ipv4: Ip,
                peer_qpn: PeerQpn,
                psn: Psn,
                peer_psn: Psn,
                mtu: Mtu,
                rnr_timer: Rnr,
                rnr_retries: Rnr,
                identity: Identity
            }
        ),
        request!(IOC_GET_EVENT, ContextEvent { kind: Out(size_of::<ioctl::ContextEvent>()) }),
        request!(IOC_COUNTERS, Counters { rtl: Out(size_of::<ioctl::Counters>()) }),
        request!(IOC_READ_LOG, ReadLog { buffer: Pointer, bytes: LogBytes, lost: Any }, true),
        request!(IOC_RESET, Handle { value: How, reserved: Zero, identity: Identity }, true),
        request!(IOC_CRASH, Crash { how: How, reserved: Zero, event: Out(4 * CRASH_EVENT_WORDS) }, true),
    ];
    for request in &all {
        let sum: usize = request.fields.iter().map(|(_, f)| f.bytes()).sum();
        ensure_eq!((request.name, sum), (request.name, request.size));
    }
    Ok(all)
}

// ---- the process -----------------------------------------------------------------------------------------------

/// Descriptors that the threads share, in places that any of them may close and open anew.
const PLACES: usize = 5;
/// Services that it listens and connects to.
const SERVICES: std::ops::Range<usize> = 950..956;

struct World<'e> {
    env: &'e Env,
    node: std::ffi::CString,
    requests: Vec<Call>,
    fds: [AtomicI32; PLACES],
    /// An eventfd.
    event: i32,
    /// Numbers that were given out, by the place of the descriptor.
    known: Mutex<Known>,
    scratch: Mem,
    /// The threads' structs: another thread changes words of them all the time.
    flipped: Mem,
    outcomes: Mutex<BTreeMap<(&'static str, i32), u64>>,
    stop: AtomicBool,
    /// Some of the driver's allocations fail.
    failing: bool,
}

impl World<'_> {
    /// Notes how a call ended, which must be one of the ways that there are.
    fn note(&self, name: &'static str, outcome: i32, allowed: &[i32]) -> Res {
        let failed = self.failing && outcome == libc::ENOMEM;
        ensure!(outcome == 0 || failed || allowed.contains(&outcome), "{name} answers {outcome}");
        *locked(&self.outcomes).entry((name, outcome)).or_default() += 1;
        Ok(())
    }
}

#[derive(Default)]
struct Known {
    cqs: Vec<(usize, u32)>,
    /// With the offset and length of their queues.
    qps: Vec<(usize, u32)>,
    domains: Vec<(usize, u32)>,
    keys: Vec<(usize, u32)>,
    maps: Vec<(usize, u64, usize)>,
    requests: Vec<u32>,
}

/// Places for mappings that each thread has, and the bytes of each: more than the largest queue.
const SLOTS: usize = 24;
const SLOT: usize = 4 << 20;

/// A mapping of a thread, at the start of one of its places. The rest of the place is kept, so that no other memory is
/// mapped there.
struct Map {
    slot: usize,
    len: usize,
    /// It is still as it was mapped, and may be written.
    plain: bool,
    doorbell: bool,
}

struct Thread<'w, 'e> {
    world: &'w World<'e>,
    random: Random,
    maps: Vec<Map>,
    slots: u64,
    /// Rather makes objects than ends them.
    growing: bool,
    /// Nothing is mapped here; the page before is the thread's.
    hole: u64,
    read_only: u64,
    own: Mem,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(-1)
}

/// An ioctl with an argument that may be anything; 0 or the error's number.
fn raw_ioctl(fd: i32, request: u32, arg: u64) -> i32 {
    // SAFETY: the driver writes at most the request's size at `arg`, and this is memory of the test that nothing else
    // is kept in, or no memory.
    if unsafe { libc::ioctl(fd, request as libc::Ioctl, arg) } < 0 { errno() } else { 0 }
}

impl<'w, 'e> Thread<'w, 'e> {
    fn new(world: &'w World<'e>, seed: u64) -> Res<Self> {
        let hole = Mem::new(2 * PAGE)?;
        hole.unmap(PAGE, PAGE)?;
        let read_only = Mem::map(PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ, -1)?;
        let (hole_at, read_only_at) = (hole.va(PAGE), read_only.va(0));
        let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let slots = Mem::map(SLOTS * SLOT, none, libc::PROT_NONE, -1)?;
        let slots_at = slots.va(0);
        // For as long as the process lives.
        std::mem::forget((hole, read_only, slots));
        Ok(Self {
            world,
            random: Random::new(seed),
            maps: Vec::new(),
            slots: slots_at,
            growing: true,
            hole: hole_at,
            read_only: read_only_at,
            own: Mem::new(4 * PAGE)?,
        })
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len())]
    }

    /// A number that hardly any field accepts.
    fn wild(&mut self) -> u64 {
        match self.random.below(6) {
            0 => 0,
            1 => self.random.below(300) as u64,
            2 => 1 << self.random.below(64),
            3 => u64::MAX,
            4 => (1u64 << self.random.below(33)).wrapping_sub(1),
            _ => self.random.next(),
        }
    }

    fn number(&mut self, of: fn(&Known) -> &Vec<(usize, u32)>, place: usize) -> u32 {
        let known = locked(&self.world.known);
        let all = of(&known);
        // Mostly of this descriptor.
        let mine: Vec<u32> = all.iter().filter(|(p, _)| *p == place).map(|(_, n)| *n).collect();
        let any: Vec<u32> = all.iter().map(|(_, n)| *n).collect();
        drop(known);
        if !mine.is_empty() && !self.one_in(8) {
            return self.pick(&mine);
        }
        if any.is_empty() { self.random.below(80) as u32 } else { self.pick(&any) }
    }

    /// A value that the driver accepts in a field, in the state that the threads know of.
    fn good(&mut self, f: F, place: usize) -> Vec<u8> {
        let value = match f {
            F::Abi => ABI_VERSION.into(),
            F::EventFd => self.pick(&[u64::MAX, self.world.event as u64]),
            F::Cqn => self.number(|k| &k.cqs, place).into(),
            F::Qpn => self.number(|k| &k.qps, place).into(),
            F::Depth => self.pick(&[1, 2, 3, 8, 16]),
            F::Entries => self.pick(&[1, 2, 7, 64]),
            F::Block => self.pick(&[0, 4096]),
            F::Burst => 1 << 16,
            F::Rate => 1 << 30,
            F::Service => (SERVICES.start + self.random.below(SERVICES.len())) as u64,
            F::Ip => u64::from(u32::from(self.world.env.own_ip)),
            F::RequestId => locked(&self.world.known).requests.last().copied().unwrap_or(1).into(),
            F::Mask => ioctl::LIMIT_CONTEXT_BUDGET.into(),
            F::Bytes => 1 << 20,
            F::Mtu => 4096,
            F::Pointer => self.own.va(PAGE),
            F::LogBytes => 64,
            F::Domain => self.number(|k| &k.domains, place).into(),
            F::Key => self.number(|k| &k.keys, place).into(),
            F::Rights => 2,
            F::Len => self.pick(&[1, 4096, 1 << 40]),
            F::PeerQpn => self.pick(&[16, 17, 18]),
            F::Private | F::Mac | F::Out(_) => return vec![0; f.bytes()],
            F::Zero
            | F::Identity
            | F::Mode
            | F::Memory
            | F::Alias
            | F::Aliases
            | F::Ranges
            | F::QpnOrZero
            | F::DomainOrZero
            | F::Flags
            | F::Reads
            | F::Psn
            | F::Rnr
            | F::Trigger
            | F::Index
            | F::List
            | F::Length
            | F::Ms
            | F::How
            | F::Any => 0,
        };
        value.to_le_bytes()[..f.bytes()].to_vec()
    }

    fn field(&mut self, f: F, place: usize) -> Vec<u8> {
        if matches!(f, F::Private | F::Mac | F::Out(_)) {
            return (0..f.bytes()).map(|_| if self.one_in(2) { self.random.next() as u8 } else { 0 }).collect();
        }
        let own = u64::from(u32::from(self.world.env.own_ip));
        let peer = u64::from(u32::from(self.world.env.peer_ip));
        let value = if self.one_in(16) {
            self.wild()
        } else {
            match f {
                F::Abi => ABI_VERSION.into(),
                F::Zero => 0,
                F::Identity => self.pick(&[0, 0, 0, 0, 0, 0, 1, 2, 9]),
                // None, one that is, and some that are none, or are closed at any time.
                F::EventFd => self.pick(&[u64::MAX, u64::MAX, u64::MAX, self.world.event as u64, 0, 2, 5, 99]),
                F::Cqn => self.number(|k| &k.cqs, place).into(),
                F::Qpn => self.number(|k| &k.qps, place).into(),
                F::QpnOrZero => self.pick(&[0, 0, 0, 17]),
                F::Mode => self.pick(&[0, 0, 0, 1]),
                F::Memory => self.pick(&[0, 0, 1, 2, 3]),
                F::Alias => self.pick(&[0, 255, 256, 447, 448, 511, 512, 4095, 4096]),
                F::Aliases => self.pick(&[0, 1, 56, 256, 257, u32::MAX.into()]),
                F::Ranges => self.pick(&[0, 1, 1, 2, 7, 8, u32::MAX.into()]),
                F::Depth => self.pick(&[0, 1, 2, 3, 8, 16, 257, MAX_DEPTH.into(), u64::from(MAX_DEPTH) + 1]),
                F::Entries => self.pick(&[0, 1, 2, 7, 64, 512, 32768, 32769]),
                F::Trigger => self.pick(&[0, 0, 1, 2, 3, 5, 8, 9]),
                F::Index => self.pick(&[0, 0, 0, 1, 63, 255, 256]),
                F::List => self.pick(&[0, 1, 4, 64, 65]),
                F::Burst => self.pick(&[0, 1, 4096, 1 << 16, (1 << 31) - 1, 1 << 31]),
                F::Rate => self.pick(&[0, 1, 1 << 13, 1 << 14, 1 << 20, 1 << 30, 1 << 40]),
                F::Block => self.pick(&[0, 0, 4096, 65536, 1 << 20, 100, 2 << 20]),
                F::Service => (SERVICES.start + self.random.below(SERVICES.len())) as u64,
                F::Ip => self.pick(&[own, own, own, peer, 0, 0xe000_0001]),
                F::Length => self.pick(&[0, 0, 1, 32, 33]),
                F::RequestId => {
                    let known = locked(&self.world.known).requests.clone();
                    if known.is_empty() { 1 } else { self.pick(&known).into() }
                }
                F::Mask => self.pick(&[4, 4, 0, 1, 2, 8, 15, 16]),
                F::Ms => self.pick(&[0, 50]),
                F::Bytes => self.pick(&[0, 4095, 4096, 1 << 20, 8 << 20, 16 << 20, 1 << 40]),
                F::Mtu => self.pick(&[256, 4096, 1000]),
                F::How => self.pick(&[0, 1, 2]),
                F::Pointer => self.pick(&[self.own.va(0), self.hole, self.read_only, 0, u64::MAX - 100]),
                F::LogBytes => self.pick(&[0, 1, 4096, 65536]),
                F::Domain => self.number(|k| &k.domains, place).into(),
                F::DomainOrZero if self.one_in(2) => 0,
                F::DomainOrZero => self.number(|k| &k.domains, place).into(),
                F::Key => self.number(|k| &k.keys, place).into(),
                F::Rights => self.pick(&[0, 1, 2, 3, 4, 7, 8]),
                F::Flags => self.pick(&[0, 0, 1, 2]),
                F::Reads => self.pick(&[0, 1, 16, 17, 0xffff]),
                F::PeerQpn => self.pick(&[2, 3, 16, 17, 0xff_ffff, 1 << 24]),
                F::Psn => self.pick(&[0, 1, 0xff_ffff, 1 << 24]),
                F::Rnr => self.pick(&[0, 1, 7, 8, 31, 32]),
                F::Len => self.pick(&[0, 1, 4095, 1 << 20, 1 << 40, 1 << 57]),
                F::Any | F::Private | F::Mac | F::Out(_) => self.wild(),
            }
        };
        value.to_le_bytes()[..f.bytes()].to_vec()
    }

    /// Where the struct lies, and whether the driver can read and write it there.
    fn place_of_struct(&mut self, size: usize) -> (u64, bool) {
        let page = PAGE as u64;
        if !self.one_in(7) {
            return (self.own.va(0), true);
        }
        match self.random.below(8) {
            0 => (0, false),
            // Only its beginning is there.
            1 => (self.hole - size as u64 / 2, false),
            2 => (self.hole, false),
            3 => (self.read_only, false),
            4 => (0xffff_8880_0000_0000 + self.random.next() % (1 << 30), false),
            5 => (u64::MAX - 8, false),
            6 => (self.own.va(0) + 1 + self.random.below(PAGE) as u64, true),
            _ => (self.world.flipped.va(0) + self.random.next() % page, true),
        }
    }

    fn ioctl(&mut self) -> Res {
        let world = self.world;
        let grow = [
            "IOC_CREATE_CQ",
            "IOC_CREATE_QP",
            "IOC_CREATE_QP",
            "IOC_LISTEN",
            "IOC_CONNECT",
            "IOC_ACCEPT",
            "IOC_CONTEXT",
            "IOC_CREATE_DOMAIN",
            "IOC_REGISTER",
        ];
        let shrink = [
            "IOC_DESTROY_QP",
            "IOC_DESTROY_CQ",
            "IOC_UNLISTEN",
            "IOC_DISCONNECT",
            "IOC_REJECT",
            "IOC_DEREGISTER",
            "IOC_DESTROY_DOMAIN",
        ];
        let chosen = if self.one_in(2) {
            self.random.below(world.requests.len())
        } else {
            let name = if self.growing { self.pick(&grow) } else { self.pick(&shrink) };
            world.requests.iter().position(|r| r.name == name).ok_or("no such request")?
        };
        let request = &world.requests[chosen];
        let place = self.random.below(PLACES);
        let mut bytes = vec![0; request.size];
        // All fields good, one of them any, or each.
        let odd = match self.random.below(4) {
            0 | 1 => usize::MAX,
            2 => self.random.below(request.fields.len()),
            _ => request.fields.len(),
        };
        for (n, &(at, f)) in request.fields.iter().enumerate() {
            let any = odd == n || odd == request.fields.len();
            let value = if any { self.field(f, place) } else { self.good(f, place) };
            bytes[at..at + value.len()].copy_from_slice(&value);
        }
        let (at, good) = self.place_of_struct(request.size);
        if good {
            // SAFETY: the thread's own memory, or memory that all threads write; large enough for every struct behind
            // a page's last byte.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        }
        let number = match self.random.below(24) {
            // Another size, another direction, another type, another number.
            0 => request.number ^ 1 << (16 + self.random.below(14)),
            1 => request.number ^ 1 << 30,
            2 => request.number ^ 0x100,
            3 => request.number & !0xff | self.random.below(256) as u32,
            _ => request.number,
        };
        let fd = world.fds[place].load(Ordering::Relaxed);
        let outcome = raw_ioctl(fd, number, at);
        let allowed = [
            libc::EINVAL,
            libc::ENOENT,
            libc::ENOSPC,
            libc::EBUSY,
            libc::EPERM,
            libc::EFAULT,
            libc::ENOTTY,
            libc::EBADF,
            libc::EAGAIN,
        ];
        let name = if number == request.number { request.name } else { "others" };
        world.note(name, outcome, &allowed).map_err(|e| format!("{e} to {number:#x}, {bytes:x?}"))?;
        if number == request.number {
            ensure!(outcome != 0 || !request.privileged, "{} works without privilege: {bytes:x?}", request.name);
        }
        if outcome == 0 && at == self.own.va(0) && number == request.number {
            let mut guard = locked(&world.known);
            let known = &mut *guard;
            let read = |offset: usize, len: usize| {
                let mut word = [0; 8];
                word[..len].copy_from_slice(&self.own.bytes()[offset..offset + len]);
                u64::from_le_bytes(word)
            };
            match number {
                ioctl::IOC_CREATE_CQ => {
                    known.cqs.push((place, read(offset_of!(ioctl::CreateCq, cqn), 4) as u32));
                    let offset = read(offset_of!(ioctl::CreateCq, offset), 8);
                    known.maps.push((place, offset, read(offset_of!(ioctl::CreateCq, bytes), 4) as usize));
                }
                ioctl::IOC_CREATE_QP => {
                    known.qps.push((place, read(offset_of!(ioctl::CreateQp, qpn), 4) as u32));
                    let offset = read(offset_of!(ioctl::CreateQp, offset), 8);
                    known.maps.push((place, offset, read(offset_of!(ioctl::CreateQp, bytes), 4) as usize));
                }
                ioctl::IOC_CREATE_DOMAIN => {
                    known.domains.push((place, read(offset_of!(ioctl::Handle, value), 4) as u32));
                }
                ioctl::IOC_REGISTER => {
                    known.keys.push((place, read(offset_of!(ioctl::Register, key), 4) as u32));
                }
                ioctl::IOC_GET_EVENT if read(0, 4) == u64::from(ioctl::CTX_REQUEST) => {
                    known.requests.push(read(offset_of!(ioctl::ContextEvent, id), 4) as u32);
                }
                _ => {}
            }
            // Numbers of objects that are gone stay for a while, because requests should name them too.
            for list in [&mut known.cqs, &mut known.qps, &mut known.domains, &mut known.keys] {
                let extra = list.len().saturating_sub(80);
                list.drain(..extra);
            }
            let extra = known.maps.len().saturating_sub(80);
            known.maps.drain(..extra);
            let extra = known.requests.len().saturating_sub(16);
            known.requests.drain(..extra);
        }
        Ok(())
    }

    fn slot(&self, n: usize) -> *mut libc::c_void {
        (self.slots + (n * SLOT) as u64) as *mut libc::c_void
    }

    /// Nothing is mapped any more from `at` on, and no other thread maps anything there.
    fn keep(&self, at: *mut libc::c_void, len: usize) {
        let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: inside of the thread's places; nothing refers to it.
        unsafe { libc::mmap(at, len, libc::PROT_NONE, none, -1, 0) };
    }

    fn free_slot(&self) -> Option<usize> {
        (0..SLOTS).find(|slot| self.maps.iter().all(|m| m.slot != *slot))
    }

    fn map(&mut self) -> Res {
        let known = locked(&self.world.known).maps.clone();
        let place = self.random.below(PLACES);
        let (place, mut offset, mut len) = match self.random.below(3) {
            0 => (place, 0, PAGE),
            _ if known.is_empty() => (place, 1 << 40, PAGE),
            1 => self.pick(&known),
            _ => (place, self.pick(&known).1, self.pick(&[PAGE, 2 * PAGE, 8 * PAGE])),
        };
        match self.random.below(10) {
            0 => offset = self.wild() & 0x7fff_ffff_ffff_f000,
            1 => offset += self.pick(&[PAGE as u64, 1 << 24, 1 << 40]),
            2 => len = self.pick(&[0, 1, 100, len + PAGE, 1 << 30, 1 << 46]),
            _ => {}
        }
        let usual = libc::PROT_READ | libc::PROT_WRITE;
        let prot = self.pick(&[usual, usual, usual, libc::PROT_READ, libc::PROT_WRITE, 0, usual | libc::PROT_EXEC]);
        let shared = libc::MAP_SHARED;
        let flags = self.pick(&[
            shared,
            shared,
            shared,
            shared | libc::MAP_POPULATE,
            shared | libc::MAP_LOCKED,
            libc::MAP_PRIVATE,
            libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            libc::MAP_PRIVATE | libc::MAP_POPULATE,
        ]);
        let fd = self.world.fds[place].load(Ordering::Relaxed);
        let Some(slot) = self.free_slot() else {
            self.unmap(0);
            return Ok(());
        };
        let (at, fixed) = if len <= SLOT { (self.slot(slot), libc::MAP_FIXED) } else { (std::ptr::null_mut(), 0) };
        // SAFETY: a place of the thread where nothing is mapped, or one that the kernel chooses.
        let got = unsafe { libc::mmap(at, len, prot, flags | fixed, fd, offset as libc::off_t) };
        let outcome = if got == libc::MAP_FAILED { errno() } else { 0 };
        let allowed = [
            libc::ENOENT,
            libc::EBADF,
            libc::EAGAIN,
            libc::ENOMEM,
            libc::EACCES,
            libc::EINVAL,
            libc::EOVERFLOW,
            libc::EOPNOTSUPP,
        ];
        self.world.note("mmap", outcome, &allowed)?;
        if fixed == 0 {
            if outcome == 0 {
                // SAFETY: what was just mapped.
                unsafe { libc::munmap(got, len) };
            }
        } else if outcome == 0 {
            let plain = prot & usual == usual && flags & libc::MAP_TYPE == shared;
            self.maps.push(Map { slot, len: len.next_multiple_of(PAGE), plain, doorbell: offset == 0 });
        } else {
            self.keep(at, SLOT);
        }
        Ok(())
    }

    fn unmap(&mut self, n: usize) {
        let map = self.maps.swap_remove(n);
        let at = self.slot(map.slot);
        if self.one_in(2) {
            // SAFETY: the whole of it; nothing refers to it.
            unsafe { libc::munmap(at, map.len) };
        }
        self.keep(at, SLOT);
    }

    /// Moves, shrinks, or grows a mapping.
    fn move_map(&mut self, n: usize) {
        let (slot, len) = (self.maps[n].slot, self.maps[n].len);
        let at = self.slot(slot);
        let old = self.pick(&[len, len, 0, PAGE]);
        let new = self.pick(&[len, PAGE, len + PAGE, 2 * len, 0]).min(SLOT);
        self.maps[n].plain = false;
        match (self.random.below(3), self.free_slot()) {
            (0, _) => {
                // SAFETY: a mapping that is not touched any more.
                let got = unsafe { libc::mremap(at, old, new, 0) };
                if got != libc::MAP_FAILED && old == len && new < len {
                    self.maps[n].len = new.next_multiple_of(PAGE);
                    // SAFETY: behind it, in the same place.
                    self.keep(unsafe { at.byte_add(self.maps[n].len) }, SLOT - self.maps[n].len);
                }
            }
            (kind, Some(free)) => {
                let stays = if kind == 1 { 0 } else { libc::MREMAP_DONTUNMAP };
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | stays;
                let to = self.slot(free);
                // SAFETY: a mapping that is not touched any more, to a place where nothing is mapped.
                let got = unsafe { libc::mremap(at, old, new, flags, to) };
                if got == libc::MAP_FAILED {
                    self.keep(to, SLOT);
                    return;
                }
                if stays == 0 && old == len {
                    self.maps.swap_remove(n);
                    self.keep(at, SLOT);
                } else if stays == 0 && old != 0 {
                    self.keep(at, old);
                }
                let len = new.next_multiple_of(PAGE);
                self.maps.push(Map { slot: free, len, plain: false, doorbell: false });
            }
            _ => {}
        }
    }

    /// Something to a mapping: its protection, its size, its place, its pages, its content.
    fn remap(&mut self) -> Res {
        if self.maps.is_empty() {
            return self.map();
        }
        let n = self.random.below(self.maps.len());
        let (at, len) = (self.slot(self.maps[n].slot), self.maps[n].len);
        // SAFETY: inside of the mapping.
        let inside = unsafe { at.byte_add(self.random.below(len / PAGE) * PAGE) };
        let what = self.random.below(12);
        let call = match what {
            0 => {
                self.unmap(n);
                "munmap"
            }
            1 => {
                self.maps[n].plain = false;
                self.keep(inside, PAGE);
                "munmap of a page"
            }
            2 | 3 => {
                self.move_map(n);
                "mremap"
            }
            4 => {
                let prot = self.pick(&[0, 1, 2, 3, 4, 7]);
                self.maps[n].plain = false;
                // SAFETY: a mapping that is not touched any more.
                unsafe { libc::mprotect(inside, PAGE, prot) };
                "mprotect"
            }
            5 => {
                // From MADV_NORMAL to MADV_COLLAPSE.
                let advice = self.random.below(26) as i32;
                self.maps[n].plain = false;
                // SAFETY: a mapping that is not touched any more.
                unsafe { libc::madvise(inside, PAGE, advice) };
                "madvise"
            }
            6 => {
                // SAFETY: it changes no memory.
                unsafe { libc::msync(at, len, self.pick(&[1, 2, 4])) };
                "msync"
            }
            _ => {
                if self.maps[n].plain && self.maps[n].doorbell {
                    let value = match self.random.below(3) {
                        0 => u64::from(self.number(|k| &k.qps, 0)) | self.random.next() << 16,
                        1 => u64::from(self.number(|k| &k.qps, 0)) | (self.random.next() & 7) << 16,
                        _ => self.wild(),
                    };
                    let offset = self.pick(&[host::DB_SQ, host::DB_RQ, host::DB_CQ, 0x40, 0x100, 0xff8]);
                    // SAFETY: inside of the doorbell page, which is mapped for writing.
                    unsafe { at.byte_add(offset as usize).cast::<u64>().write_volatile(value) };
                } else if self.maps[n].plain {
                    let element = self.element();
                    let size = size_of::<Wqe>();
                    let place = self.random.below(len / size) * size;
                    // SAFETY: inside of a queue, which is mapped for writing.
                    unsafe { at.byte_add(place).cast::<Wqe>().write_volatile(element) };
                }
                "stores"
            }
        };
        *locked(&self.world.outcomes).entry((call, 0)).or_default() += 1;
        Ok(())
    }

    /// An element whose memory belongs to the test alone.
    fn element(&mut self) -> Wqe {
        let mut wqe = Wqe {
            opcode: self.pick(&[OP_SEND, OP_RECV, OP_RECV, 0, 99]),
            flags: self.pick(&[0, 0, 0, SEND_INLINE, SEND_IMMEDIATE, 0xff]),
            num_sge: self.pick(&[0, 1, 1, 2, 7, 8]),
            wr_id: self.random.next(),
            ..Wqe::default()
        };
        for sge in &mut wqe.sge {
            let scratch = self.world.scratch.va(self.random.below(8) * PAGE);
            *sge = Sge {
                va: self.pick(&[scratch, scratch, scratch, self.hole, self.read_only, 0xffff_8880_0000_0000]),
                len: self.pick(&[64, 64, 4096, 0, u32::MAX]),
                reserved: self.pick(&[0, 0, 0, 1]),
            };
        }
        let used = &wqe.sge[..usize::from(wqe.num_sge).min(7)];
        wqe.length = used.iter().fold(0, |sum: u32, s| sum.wrapping_add(s.len));
        wqe
    }

    /// Closes and opens a descriptor that the others use, or lets a child try it.
    fn descriptor(&mut self) -> Res {
        let world = self.world;
        let place = self.random.below(PLACES);
        if self.one_in(3) {
            let fd = world.fds[place].load(Ordering::Relaxed);
            let mut handle = [0u32; 2];
            // SAFETY: the child makes system calls only, then ends.
            let pid = unsafe { libc::fork() };
            ensure!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
            if pid == 0 {
                for request in [ioctl::IOC_DESTROY_QP, ioctl::IOC_DESTROY_CQ, ioctl::IOC_LISTEN, ioctl::IOC_DISCONNECT]
                {
                    handle[0] = 16;
                    if raw_ioctl(fd, request, handle.as_mut_ptr() as u64) == 0 {
                        // SAFETY: ends the child.
                        unsafe { libc::_exit(1) };
                    }
                }
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            ensure_eq!((wait_pid(pid)?, "an inherited descriptor"), (0, "an inherited descriptor"));
            return Ok(());
        }
        // SAFETY: a path that ends with NUL.
        let new = unsafe { libc::open(world.node.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        world.note("open", if new < 0 { errno() } else { 0 }, &[])?;
        if new < 0 {
            return Ok(());
        }
        let old = world.fds[place].swap(new, Ordering::Relaxed);
        // SAFETY: descriptors of this test; that others use it at the same time is the point.
        unsafe { libc::close(old) };
        let mut known = locked(&world.known);
        known.cqs.retain(|(p, _)| *p != place);
        known.qps.retain(|(p, _)| *p != place);
        drop(known);
        // It becomes a context most of the time.
        let mut arg = ioctl::Context { abi: ABI_VERSION, event_fd: -1, ..ioctl::Context::default() };
        if !self.one_in(4) {
            raw_ioctl(new, ioctl::IOC_CONTEXT, (&raw mut arg) as u64);
        }
        Ok(())
    }

    fn run(&mut self, calls: u64) -> Res {
        for n in 0..calls {
            self.growing = n / 150 % 2 == 0;
            match self.random.below(40) {
                0 => self.descriptor()?,
                1..=4 => self.map()?,
                5..=14 => self.remap()?,
                _ => self.ioctl()?,
            }
        }
        Ok(())
    }
}

fn become_nobody() -> Res {
    // SAFETY: no memory but the empty list.
    let ret = unsafe {
        libc::setgroups(0, std::ptr::null())
            + libc::setresgid(65534, 65534, 65534)
            + libc::setresuid(65534, 65534, 65534)
    };
    ensure!(ret == 0, "become nobody: {}", std::io::Error::last_os_error());
    Ok(())
}

fn fuzz(env: &Env, node: &std::path::Path, seed: u64, calls: u64, failing: bool) -> Res {
    const THREADS: u64 = 3;
    become_nobody()?;
    let world = World {
        env,
        node: std::ffi::CString::new(node.to_str().ok_or("path")?)?,
        requests: requests()?,
        fds: [const { AtomicI32::new(-1) }; PLACES],
        // SAFETY: no memory is involved.
        event: unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) },
        known: Mutex::default(),
        scratch: Mem::new(8 * PAGE)?,
        flipped: Mem::new(3 * PAGE)?,
        outcomes: Mutex::default(),
        stop: AtomicBool::new(false),
        failing,
    };
    std::thread::scope(|scope| -> Res {
        let flipper = scope.spawn(|| {
            let mut random = Random::new(seed ^ 0xf1);
            while !world.stop.load(Ordering::Relaxed) {
                let at = world.flipped.va(random.below(2 * PAGE / 4) * 4) as *mut u32;
                // SAFETY: inside of the memory, which nobody holds a reference to.
                unsafe { at.write_volatile(random.below(70) as u32) };
                std::hint::spin_loop();
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        let mut threads = Vec::new();
        for n in 0..THREADS {
            let mut thread = Thread::new(&world, seed.wrapping_add(n << 32))?;
            for _ in 0..PLACES {
                thread.descriptor()?;
            }
            // Its mappings are raw addresses of its own.
            struct Sent<'w, 'e>(Thread<'w, 'e>);
            // SAFETY: used by one thread only, from here on.
            unsafe impl Send for Sent<'_, '_> {}
            let sent = Sent(thread);
            threads.push(scope.spawn(move || {
                let sent = sent;
                let Sent(mut thread) = sent;
                thread.run(calls / THREADS)
            }));
        }
        let mut result = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| crate::util::fail("a thread panicked"));
            result = result.and(ended);
        }
        world.stop.store(true, Ordering::Relaxed);
        let _ = flipper.join();
        result
    })?;
    let outcomes = locked(&world.outcomes);
    let mut lines: BTreeMap<&str, String> = BTreeMap::new();
    for ((name, outcome), count) in outcomes.iter() {
        let how = if *outcome == 0 { "ok".to_owned() } else { format!("errno {outcome}") };
        *lines.entry(name).or_default() += &format!(" {how}: {count}");
    }
    let sum: u64 = outcomes.values().sum();
    println!("figures: seed {seed}, {sum} calls of {THREADS} threads");
    for (name, line) in lines {
        println!("figures: {name}{line}");
    }
    // The run had some effect. With random fields few queue pairs are made, in some runs none; in short runs it is only
    // certain that descriptors are opened.
    let all = [
        "open",
        "IOC_CONTEXT",
        "IOC_CREATE_CQ",
        "IOC_LISTEN",
        "mmap",
        "IOC_CREATE_QP",
        "IOC_DESTROY_QP",
        "IOC_QUERY_QP",
        "IOC_SET_TRIGGER",
        "IOC_SET_CAP",
    ];
    let sure = match calls {
        0..2000 => 1,
        _ if env.args.long => all.len(),
        _ => 5,
    };
    for name in &all[..sure] {
        ensure!(outcomes.contains_key(&(*name, 0)), "{name} never worked");
    }
    Ok(())
}

/// An unprivileged process makes so many calls, and is gone; of the driver's allocations and copies each `interval`-th
/// fails meanwhile, if there is one.
pub fn unprivileged(env: &Env, seed: u64, calls: u64, interval: Option<u32>) -> Res {
    use std::os::unix::fs::PermissionsExt;
    println!("seed {seed}");
    let device = env.device()?;
    let node = device.path().to_owned();
    // As an administrator would let users have it.
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o666))?;
    let before = device.counters()?;
    let faults = interval.map(Faults::everywhere).transpose()?;
    ensure_eq!(in_child(|| fuzz(env, &node, seed, calls, interval.is_some()))?, 0);
    drop(faults);
    let after = device.counters()?;
    ensure_eq!(of_driver(&after, INCIDENTS), of_driver(&before, INCIDENTS));
    ensure!(after.drv(c::D_BAD_IOCTL) > before.drv(c::D_BAD_IOCTL));
    wait_until("nothing is left of the process", env.hang, || {
        Ok(of_driver(&device.counters()?, HELD) == [0; HELD.len()])
    })?;
    loopback_works(env, 956)
}

fn inv_6_unprivileged_system_calls_do_no_harm(env: &Env) -> Res {
    unprivileged(env, env.seed, env.cases(1200, 60_000), None)
}

fn inv_6_unprivileged_system_calls_do_no_harm_while_memory_is_short(env: &Env) -> Res {
    unprivileged(env, env.seed, env.cases(1200, 30_000), Some(19))
}

// ---- calls in which something fails ------------------------------------------------------------------------------

/// Gauges of what is there.
fn gauges(device: &Device) -> Res<[u64; 4]> {
    Ok(of_driver(&device.counters()?, [c::D_QPS, c::D_CQS, c::D_CONTEXTS, c::D_PINNED]))
}

struct Failing<'e> {
    device: Device,
    nth: FailNth,
    _env: &'e Env,
}

impl Failing<'_> {
    /// Makes `call` with its first, second, … allocation or copy failing, until none is left to fail. Each time it
    /// fails whole or works whole, and works the next time; `undo` then takes back what it did. Answers how many there
    /// are.
    fn every<T>(
        &mut self,
        name: &str,
        mut call: impl FnMut() -> Result<T, i32>,
        mut undo: impl FnMut(T) -> Res,
    ) -> Res<u32> {
        for n in 1..500 {
            let before = gauges(&self.device)?;
            self.nth.arm(n)?;
            let result = call();
            let failed = self.nth.disarm()?;
            match result {
                Ok(made) => {
                    undo(made)?;
                    ensure_eq!((name, n, gauges(&self.device)?), (name, n, before));
                    if !failed {
                        println!("figures: {name}: {} places where it may fail", n - 1);
                        return Ok(n - 1);
                    }
                }
                Err(e) => {
                    ensure!(failed, "{name}: errno {e} though nothing was made to fail");
                    ensure!([libc::ENOMEM, libc::EFAULT].contains(&e), "{name}: errno {e} when number {n} fails");
                    ensure_eq!((name, n, gauges(&self.device)?), (name, n, before));
                    let made = call().map_err(|e| format!("{name}: errno {e} after number {n} had failed"))?;
                    undo(made)?;
                    ensure_eq!((name, n, gauges(&self.device)?), (name, n, before));
                }
            }
        }
        crate::util::fail(format!("{name}: something fails again and again"))
    }
}

/// A request with its struct, as a result.
fn call<T>(fd: i32, request: u32, arg: &mut T) -> Result<(), i32> {
    match raw_ioctl(fd, request, std::ptr::from_mut(arg) as u64) {
        0 => Ok(()),
        e => Err(e),
    }
}

fn handle(fd: i32, request: u32, value: u32) -> Result<(), i32> {
    call(fd, request, &mut ioctl::Handle { value, reserved: 0, identity: 0 })
}

fn done(result: Result<(), i32>) -> Res {
    result.map_err(|e| format!("errno {e}").into())
}

fn open(node: &std::ffi::CStr) -> Result<i32, i32> {
    // SAFETY: a path that ends with NUL.
    let fd = unsafe { libc::open(node.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

fn close(fd: i32) -> Res {
    // SAFETY: a descriptor of this test.
    ensure!(unsafe { libc::close(fd) } == 0, "close: {}", std::io::Error::last_os_error());
    Ok(())
}

fn context_of(fd: i32) -> Result<(), i32> {
    call(fd, ioctl::IOC_CONTEXT, &mut ioctl::Context { abi: ABI_VERSION, event_fd: -1, ..ioctl::Context::default() })
}

fn cq_of(fd: i32) -> Result<ioctl::CreateCq, i32> {
    let mut arg = ioctl::CreateCq { entries: 8, event_fd: -1, ..ioctl::CreateCq::default() };
    call(fd, ioctl::IOC_CREATE_CQ, &mut arg).map(|()| arg)
}

fn qp_of(fd: i32, cqn: u32) -> Result<ioctl::CreateQp, i32> {
    qp_in_mode(fd, cqn, MODE_STREAM)
}

fn qp_in_mode(fd: i32, cqn: u32, mode: u8) -> Result<ioctl::CreateQp, i32> {
    let (send_cqn, recv_cqn, mode) = (cqn, cqn, mode.into());
    let mut arg = ioctl::CreateQp { send_cqn, recv_cqn, sq_depth: 4, rq_depth: 4, mode, ..ioctl::CreateQp::default() };
    call(fd, ioctl::IOC_CREATE_QP, &mut arg).map(|()| arg)
}

fn map_of(fd: i32, offset: u64, len: usize) -> Result<*mut libc::c_void, i32> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, offset as libc::off_t) };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at) }
}

/// The next event of a kind; others before it are taken, too.
fn event(env: &Env, fd: i32, kind: u32) -> Res<ioctl::ContextEvent> {
    let mut event = ioctl::ContextEvent::default();
    wait_until("the event has come", env.hang, || match call(fd, ioctl::IOC_GET_EVENT, &mut event) {
        Ok(()) => Ok(event.kind == kind),
        Err(libc::EAGAIN) => Ok(false),
        Err(e) => crate::util::fail(format!("IOC_GET_EVENT: errno {e}")),
    })?;
    Ok(event)
}

fn inv_6_calls_without_memory_fail_whole_and_work_the_next_time(env: &Env) -> Res {
    let device = env.device()?;
    let node = std::ffi::CString::new(device.path().to_str().ok_or("path")?)?;
    let faults = Faults::new()?;
    let mut failing = Failing { device: env.device()?, nth: FailNth::new(&faults)?, _env: env };
    let own = u32::from(env.own_ip);
    failing.every("open", || open(&node), close)?;
    failing.every(
        "IOC_CONTEXT",
        || {
            let fd = open(&node)?;
            context_of(fd).map(|()| fd).inspect_err(|_| drop(close(fd)))
        },
        close,
    )?;
    let fd = open(&node).map_err(|e| format!("open: errno {e}"))?;
    done(context_of(fd))?;
    failing.every("IOC_QUERY", || call(fd, ioctl::IOC_QUERY, &mut ioctl::Query::default()), Ok)?;
    failing.every(
        "IOC_COUNTERS",
        || {
            let mut counters = ioctl::Counters::ZERO;
            call(fd, ioctl::IOC_COUNTERS, &mut counters)
        },
        Ok,
    )?;
    let mac = env.mac().0;
    let mut set = ioctl::SetNet { ipv4: own, mtu: 4096, mac: [mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], 0, 0] };
    failing.every("IOC_SET_NET", || call(fd, ioctl::IOC_SET_NET, &mut set), Ok)?;
    let mut limits =
        ioctl::SetLimits { mask: ioctl::LIMIT_CONTEXT_BUDGET, context_budget: 1 << 20, ..ioctl::SetLimits::default() };
    failing.every("IOC_SET_LIMITS", || call(fd, ioctl::IOC_SET_LIMITS, &mut limits), Ok)?;
    let mut log = vec![0u8; 4096];
    failing.every(
        "IOC_READ_LOG",
        || {
            let mut arg = ioctl::ReadLog { buffer: log.as_mut_ptr() as u64, bytes: 4096, lost: 0 };
            call(fd, ioctl::IOC_READ_LOG, &mut arg)
        },
        Ok,
    )?;
    failing.every("IOC_CREATE_CQ", || cq_of(fd), |cq| done(handle(fd, ioctl::IOC_DESTROY_CQ, cq.cqn)))?;
    let cq = cq_of(fd).map_err(|e| format!("errno {e}"))?;
    failing.every("IOC_CREATE_QP", || qp_of(fd, cq.cqn), |qp| done(handle(fd, ioctl::IOC_DESTROY_QP, qp.qpn)))?;
    let unmap = |at: *mut libc::c_void, len: u32| -> Res {
        // SAFETY: the whole of a mapping that nothing refers to.
        ensure!(unsafe { libc::munmap(at, len as usize) } == 0, "munmap: {}", std::io::Error::last_os_error());
        Ok(())
    };
    failing.every(
        "mmap of a completion queue",
        || map_of(fd, cq.offset, cq.bytes as usize),
        |at| unmap(at, cq.bytes),
    )?;
    failing.every("mmap of the doorbell page", || map_of(fd, 0, PAGE), |at| unmap(at, PAGE as u32))?;
    let qp = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
    failing.every("mmap of a queue pair", || map_of(fd, qp.offset, qp.bytes as usize), |at| unmap(at, qp.bytes))?;
    failing.every(
        "IOC_QUERY_QP",
        || call(fd, ioctl::IOC_QUERY_QP, &mut ioctl::QueryQp { qpn: qp.qpn, ..ioctl::QueryQp::default() }),
        Ok,
    )?;
    let unlisten = |()| done(handle(fd, ioctl::IOC_UNLISTEN, 957));
    failing.every("IOC_LISTEN", || handle(fd, ioctl::IOC_LISTEN, 957), unlisten)?;
    // Ends of objects: each ends one that was made for it.
    let made: std::cell::Cell<Option<u32>> = std::cell::Cell::new(None);
    let again = |make: &dyn Fn() -> Result<u32, i32>| match made.get() {
        Some(number) => Ok(number),
        None => make().inspect(|number| made.set(Some(*number))),
    };
    // Made beside the count, ended in it: what is left of the gauges is compared by `every`.
    let ending = |name: &str, make: &dyn Fn() -> Result<u32, i32>, request: u32| -> Res<u32> {
        for n in 1..100 {
            let number = again(make).map_err(|e| format!("{name}: made: errno {e}"))?;
            let before = gauges(&device)?;
            failing.nth.arm(n)?;
            let result = handle(fd, request, number);
            let failed = failing.nth.disarm()?;
            match result {
                Ok(()) => {
                    made.set(None);
                    if !failed {
                        println!("figures: {name}: {} places where it may fail", n - 1);
                        return Ok(n);
                    }
                }
                Err(e) => {
                    ensure!(failed && [libc::ENOMEM, libc::EFAULT].contains(&e), "{name}: errno {e} at number {n}");
                    ensure_eq!((name, n, gauges(&device)?), (name, n, before));
                    done(handle(fd, request, number))?;
                    made.set(None);
                }
            }
        }
        crate::util::fail(format!("{name}: something fails again and again"))
    };
    ending("IOC_DESTROY_QP", &|| qp_of(fd, cq.cqn).map(|qp| qp.qpn), ioctl::IOC_DESTROY_QP)?;
    ending("IOC_DESTROY_CQ", &|| cq_of(fd).map(|cq| cq.cqn), ioctl::IOC_DESTROY_CQ)?;
    ending("IOC_UNLISTEN", &|| handle(fd, ioctl::IOC_LISTEN, 958).map(|()| 958), ioctl::IOC_UNLISTEN)?;
    // Connections: a request that was not refused yet, an answer, an end.
    done(handle(fd, ioctl::IOC_LISTEN, 959))?;
    let connect = |qpn: u32, service: u32| {
        let mut arg = ioctl::Connect { qpn, ipv4: own, service, ..ioctl::Connect::default() };
        call(fd, ioctl::IOC_CONNECT, &mut arg)
    };
    let rest =
        |failing: &mut Failing<'_>, name: &str, steps: &mut dyn FnMut(&FailNth, u32) -> Res<Option<bool>>| -> Res {
            for n in 1..100 {
                let before = gauges(&failing.device)?;
                let last = steps(&failing.nth, n)?;
                wait_until("all is as before", env.hang, || Ok(gauges(&failing.device)? == before))?;
                if last == Some(false) {
                    println!("figures: {name}: {} places where it may fail", n - 1);
                    return Ok(());
                }
            }
            crate::util::fail(format!("{name}: something fails again and again"))
        };
    // The call with the n-th failing, then again if it did: whether something failed.
    fn twice(nth: &FailNth, n: u32, mut f: impl FnMut() -> Result<(), i32>) -> Res<Option<bool>> {
        nth.arm(n)?;
        let result = f();
        let failed = nth.disarm()?;
        match result {
            Ok(()) => {}
            Err(e) if failed && [libc::ENOMEM, libc::EFAULT].contains(&e) => done(f())?,
            Err(e) => return crate::util::fail(format!("errno {e} at number {n}")),
        }
        Ok(Some(failed))
    }
    rest(&mut failing, "IOC_SET_PEER", &mut |nth, n| {
        let qp = qp_in_mode(fd, cq.cqn, MODE_MESSAGE).map_err(|e| format!("errno {e}"))?;
        let last = twice(nth, n, || {
            let qpn = qp.qpn;
            let mut arg = ioctl::SetPeer { qpn, ipv4: own, peer_qpn: qpn, mtu: 256, ..ioctl::SetPeer::default() };
            call(fd, ioctl::IOC_SET_PEER, &mut arg)
        })?;
        event(env, fd, ioctl::CTX_ESTABLISHED)?;
        done(handle(fd, ioctl::IOC_DESTROY_QP, qp.qpn))?;
        Ok(last)
    })?;
    rest(&mut failing, "IOC_CONNECT", &mut |nth, n| {
        let qp = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
        let last = twice(nth, n, || connect(qp.qpn, 4990))?;
        event(env, fd, ioctl::CTX_CLOSED)?;
        done(handle(fd, ioctl::IOC_DESTROY_QP, qp.qpn))?;
        Ok(last)
    })?;
    for (name, request) in [("IOC_ACCEPT", ioctl::IOC_ACCEPT), ("IOC_REJECT", ioctl::IOC_REJECT)] {
        rest(&mut failing, name, &mut |nth, n| {
            let from = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
            let to = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
            done(connect(from.qpn, 959))?;
            let asked = event(env, fd, ioctl::CTX_REQUEST)?;
            let accept = request == ioctl::IOC_ACCEPT;
            let mut arg =
                ioctl::Accept { request: asked.id, qpn: if accept { to.qpn } else { 0 }, ..ioctl::Accept::default() };
            let last = twice(nth, n, || call(fd, request, &mut arg))?;
            event(env, fd, if accept { ioctl::CTX_ESTABLISHED } else { ioctl::CTX_CLOSED })?;
            for qp in [from, to] {
                done(handle(fd, ioctl::IOC_DESTROY_QP, qp.qpn))?;
            }
            Ok(last)
        })?;
    }
    rest(&mut failing, "IOC_GET_EVENT", &mut |nth, n| {
        let from = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
        // Events of those before are taken.
        while call(fd, ioctl::IOC_GET_EVENT, &mut ioctl::ContextEvent::default()).is_ok() {}
        done(connect(from.qpn, 959))?;
        let mut asked = ioctl::ContextEvent::default();
        let mut failed = None;
        wait_until("the request has come", env.hang, || {
            nth.arm(n)?;
            let result = call(fd, ioctl::IOC_GET_EVENT, &mut asked);
            failed = Some(nth.disarm()?);
            match result {
                Ok(()) => Ok(true),
                Err(libc::EAGAIN) => Ok(false),
                // It is not lost by that.
                Err(libc::EFAULT) => done(call(fd, ioctl::IOC_GET_EVENT, &mut asked)).map(|()| true),
                Err(e) => crate::util::fail(format!("errno {e}")),
            }
        })?;
        ensure_eq!(asked.kind, ioctl::CTX_REQUEST);
        done(call(fd, ioctl::IOC_REJECT, &mut ioctl::Accept { request: asked.id, ..ioctl::Accept::default() }))?;
        event(env, fd, ioctl::CTX_CLOSED)?;
        done(handle(fd, ioctl::IOC_DESTROY_QP, from.qpn))?;
        Ok(failed)
    })?;
    rest(&mut failing, "IOC_DISCONNECT", &mut |nth, n| {
        let from = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
        let to = qp_of(fd, cq.cqn).map_err(|e| format!("errno {e}"))?;
        while call(fd, ioctl::IOC_GET_EVENT, &mut ioctl::ContextEvent::default()).is_ok() {}
        done(connect(from.qpn, 959))?;
        let asked = event(env, fd, ioctl::CTX_REQUEST)?;
        let mut arg = ioctl::Accept { request: asked.id, qpn: to.qpn, ..ioctl::Accept::default() };
        done(call(fd, ioctl::IOC_ACCEPT, &mut arg))?;
        event(env, fd, ioctl::CTX_ESTABLISHED)?;
        event(env, fd, ioctl::CTX_ESTABLISHED)?;
        let last = twice(nth, n, || handle(fd, ioctl::IOC_DISCONNECT, from.qpn))?;
        event(env, fd, ioctl::CTX_CLOSED)?;
        for qp in [from, to] {
            done(handle(fd, ioctl::IOC_DESTROY_QP, qp.qpn))?;
        }
        Ok(last)
    })?;
    drop(faults);
    close(fd)?;
    loopback_works(env, 960)
}

fn inv_6_results_that_cannot_be_told_are_undone(env: &Env) -> Res {
    let device = env.device()?;
    let node = std::ffi::CString::new(device.path().to_str().ok_or("path")?)?;
    let memory = |bytes: &[u8]| -> Res<Mem> {
        let mut mem = Mem::new(PAGE)?;
        mem.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: the whole of our own mapping, which is only read from now on.
        let ret = unsafe { libc::mprotect(mem.va(0) as *mut libc::c_void, PAGE, libc::PROT_READ) };
        ensure!(ret == 0, "mprotect: {}", std::io::Error::last_os_error());
        Ok(mem)
    };
    fn bytes<T>(value: &T) -> &[u8] {
        // SAFETY: structs of plain words without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
    }
    let fd = open(&node).map_err(|e| format!("open: errno {e}"))?;
    let before = gauges(&device)?;
    let arg = ioctl::Context { abi: ABI_VERSION, event_fd: -1, ..ioctl::Context::default() };
    ensure_eq!(raw_ioctl(fd, ioctl::IOC_CONTEXT, memory(bytes(&arg))?.va(0)), libc::EFAULT);
    ensure_eq!(gauges(&device)?, before);
    done(context_of(fd))?;
    let before = gauges(&device)?;
    let arg = ioctl::CreateCq { entries: 8, event_fd: -1, ..ioctl::CreateCq::default() };
    ensure_eq!(raw_ioctl(fd, ioctl::IOC_CREATE_CQ, memory(bytes(&arg))?.va(0)), libc::EFAULT);
    ensure_eq!(gauges(&device)?, before);
    let cq = cq_of(fd).map_err(|e| format!("errno {e}"))?;
    let before = gauges(&device)?;
    let arg =
        ioctl::CreateQp { send_cqn: cq.cqn, recv_cqn: cq.cqn, sq_depth: 4, rq_depth: 4, ..ioctl::CreateQp::default() };
    ensure_eq!(raw_ioctl(fd, ioctl::IOC_CREATE_QP, memory(bytes(&arg))?.va(0)), libc::EFAULT);
    ensure_eq!(gauges(&device)?, before);
    // A request without a result needs no writable memory.
    let arg = ioctl::Handle { value: cq.cqn, reserved: 0, identity: 0 };
    ensure_eq!(raw_ioctl(fd, ioctl::IOC_DESTROY_CQ, memory(bytes(&arg))?.va(0)), 0);
    close(fd)
}

// ---- page requests without memory --------------------------------------------------------------------------------

fn no_memory(device: &Device) -> Res<u64> {
    Ok(device.counters()?.drv(c::D_NO_MEMORY))
}

fn inv_6_page_requests_without_memory_are_tried_again(env: &Env) -> Res {
    let device = env.device()?;
    let context = env.context()?;
    let source = Mem::pattern(4 * PAGE, 120)?;
    // Where the request is noted, which cannot wait for memory, and where its pages are looked for.
    for (n, (times, interval, waiting)) in (0..).zip([(1, 1, false), (3, 1, false), (4, 1, true), (3, 2, true)]) {
        let target = Mem::new(4 * PAGE)?;
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 961)?;
        let faults = Faults::new()?;
        let before = no_memory(&device)?;
        faults.allocations(times, interval, waiting)?;
        to.recv(n, &[target.sge(0, 4 * PAGE)])?;
        wait_until("memory was missing", env.hang, || Ok(no_memory(&device)? > before))?;
        let done = to.wait_state(env, "the receive is announced all the same", |s| s.announced == 1);
        faults.none()?;
        done?;
        from.send(n, &[source.sge(0, 4 * PAGE)])?;
        ensure_eq!(to.received(env)?.ok()?.byte_len as usize, 4 * PAGE);
        from.sent(env)?.ok()?;
        check(target.bytes(), 120, 0)?;
    }
    Ok(())
}

fn inv_6_pages_that_find_no_memory_for_long_are_refused_by_name(env: &Env) -> Res {
    let device = env.device()?;
    let context = env.context()?;
    let bystander = Mem::new(PAGE)?;
    let source = Mem::pattern(PAGE, 121)?;
    let target = Mem::new(2 * PAGE)?;
    // Without memory to note a request with, and with memory for that alone.
    for interval in [1, 2] {
        let (mut good_from, mut good_to) = loop_pair(env, &context, &depths(4, 4), 962)?;
        good_to.recv(0, &[bystander.sge(0, PAGE)])?;
        good_to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 963)?;
        let faults = Faults::new()?;
        let before = device.counters()?;
        faults.allocations(-1, interval, true)?;
        to.recv(1, &[target.sge(0, PAGE)])?;
        let got = to.received(env);
        faults.none()?;
        let got = got?;
        ensure!((got.wr_id, got.status) == (1, Status::NoMemory), "receive, each {interval}: {got:?}");
        // Its neighbours go on, and what comes later.
        to.recv(2, &[target.sge(PAGE, PAGE)])?;
        to.wait_state(env, "the next one is announced", |s| s.announced == 1)?;
        faults.allocations(-1, interval, true)?;
        from.send(3, &[source.sge(0, PAGE)])?;
        let sent = from.sent(env);
        faults.none()?;
        let sent = sent?;
        ensure!((sent.wr_id, sent.status) == (3, Status::NoMemory), "send, each {interval}: {sent:?}");
        ensure_eq!(from.qp.wait_closed(env.limit())?, Reason::SendFailed);
        good_from.send(4, &[source.sge(0, PAGE)])?;
        good_to.received(env)?.ok()?;
        good_from.sent(env)?.ok()?;
        let after: Counters = device.counters()?;
        ensure!(after.drv(c::D_NO_MEMORY) > before.drv(c::D_NO_MEMORY));
        ensure_eq!(after.drv(c::D_RESETS), before.drv(c::D_RESETS));
        ensure_eq!(after.drv(c::D_PAGE_FAULTS), before.drv(c::D_PAGE_FAULTS));
    }
    check(bystander.bytes(), 121, 0)
}
