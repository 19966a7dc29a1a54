// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card that hangs, memory that never comes, a control connection that carries nothing, pages that the kernel would
//! like to move, elements that a process changes behind the card's back; and credit triggers, told apart.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use berth_abi::message::{
    CODE, CmClosed, CmEstablished, CmRequest, CmRequestOver, CmdDone, CqNotify, CqOverrun, Entry, FwLog, PageNeed,
    PageRelease, QpError,
};
use berth_abi::ring::*;
use berth_abi::status::CMD_OK;
use berth_abi::wqe::{OP_RECV, OP_SEND, Wqe};
use berth_abi::{card, counters as c};
use libberth::{Context, Device, QpConfig, QpStateKind, Status, Trigger};

use crate::connections::loopback_works;
use crate::env::{Env, Role};
use crate::memory::{Budget, protect};
use crate::service::{after_reset, nothing_left, pci_address, ready, start_helper, wait_for_device};
use crate::util::{
    Conn, Mem, PAGE, Random, Res, check, depths, establish, fail, in_child, loop_pair, of_driver, wait_until,
};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: cr_5_triggers_are_told_apart, decision_13_elements_changed_after_posting_have_no_effect,
         decision_18_grants_survive_protection_there_and_back, decision_18_grants_survive_attempts_to_move_their_pages,
         decision_21_page_that_never_comes_stalls_one_queue_pair_only,
         decision_21_process_with_very_many_stuck_pages_stalls_itself_only,
         pc_3_memory_that_never_comes_keeps_a_page_of_the_budget_each,
         inv_3_killed_process_whose_page_never_comes_leaves_nothing,
         pc_3_receive_that_fills_the_budget_beside_its_own_sender_ends_by_name,
         pc_3_receive_whose_ranges_together_exceed_the_budget_ends_by_name,
         pc_3_receives_that_hold_parts_of_the_budget_do_not_wait_for_each_other,
         pc_3_grants_that_are_recalled_go_to_who_has_waited;
    Pair: decision_6_lost_control_frames_do_not_end_connections_that_have_credits;
    One Disruptive: reset_while_pages_are_awaited, decision_17_card_that_hangs_is_reset_and_the_host_goes_on,
         inv_3_unplug_while_a_fence_waits, inv_6_events_of_nothing_are_counted_and_harm_nobody,
         inv_6_any_events_leave_a_driver_that_a_reset_puts_right;
}

fn cr_5_triggers_are_told_apart(env: &Env) -> Res {
    const SIZE: usize = 64;
    let source = Mem::pattern(4 * SIZE, 90)?;
    let target = Mem::new(8 * SIZE)?;
    let context = env.context()?;
    // The piece that lets the second list go, with lists of four.
    for (n, (trigger, fires)) in
        (0..).zip([(Trigger::First, 1), (Trigger::Between(2), 3), (Trigger::Last, 4), (Trigger::Between(63), 4)])
    {
        let config = QpConfig { trigger, max_list: 4, ..depths(8, 8) };
        let (mut from, mut to) = loop_pair(env, &context, &config, 900 + n)?;
        let sges: Vec<_> = (0..8).map(|n| target.sge(n * SIZE, SIZE)).collect();
        to.recv(0, &sges)?;
        to.wait_state(env, "all receives are granted, four announced", |s| s.granted == 8 && s.announced == 4)?;
        for piece in 1..=4u32 {
            from.send(0, &[source.sge(0, SIZE)])?;
            to.received(env)?.ok()?;
            from.sent(env)?.ok()?;
            if piece < fires {
                // The firmware serves the engines and queries in turn: behind a few of them it would have sent the list.
                for _ in 0..10 {
                    let state = to.qp.state()?;
                    ensure!(
                        (state.announced, state.landed) == (4, piece),
                        "{trigger:?}: after piece {piece}: {state:?}"
                    );
                }
            } else {
                to.wait_state(env, &format!("{trigger:?}: the second list goes after piece {piece}"), |s| {
                    s.announced == 8
                })?;
            }
        }
    }
    Ok(())
}

fn decision_13_elements_changed_after_posting_have_no_effect(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 91)?;
    let other = Mem::pattern(PAGE, 92)?;
    let target = Mem::new(PAGE)?;
    let bystander = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 904)?;
    let element = |opcode, mem: &Mem, len: u32| {
        let mut wqe = Wqe { opcode, num_sge: 1, wr_id: 99, length: len, ..Wqe::default() };
        wqe.sge[0] = mem.sge(0, len as usize);
        wqe
    };
    // A send that waits for a credit, and a receive that is announced.
    from.send(1, &[source.sge(0, 1000)])?;
    for _ in 0..20 {
        ensure_eq!(from.qp.state()?.kind, QpStateKind::Connected);
    }
    // SAFETY: what the elements name lives as long as the connection.
    unsafe { from.qp.overwrite_raw(false, &element(OP_SEND, &other, 64)) }?;
    to.recv(2, &[target.sge(0, 600)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len, 600);
    // 400 bytes are still to come; their receive is changed when it is a credit, and no credit lets them go before.
    from.sends.poll()?.map_or(Ok(()), |c| fail(format!("completed early: {c:?}")))?;
    // SAFETY: as above.
    unsafe { to.qp.overwrite_raw(true, &element(OP_RECV, &bystander, 64)) }?;
    to.recv(3, &[target.sge(600, 400)])?;
    let got = to.received(env)?.ok()?;
    ensure_eq!((got.wr_id, got.byte_len, got.remaining), (3, 400, 0));
    ensure_eq!(from.sent(env)?.ok()?.wr_id, 1);
    check(&target.bytes()[..1000], 91, 0)?;
    // The other way round: a receive that is announced is changed, then filled.
    to.recv(4, &[target.sge(2000, 500)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 3)?;
    // SAFETY: as above.
    unsafe { to.qp.overwrite_raw(true, &element(OP_RECV, &bystander, 64)) }?;
    from.send(5, &[source.sge(2000, 500)])?;
    let got = to.received(env)?.ok()?;
    ensure_eq!((got.wr_id, got.byte_len), (4, 500));
    check(&target.bytes()[2000..2500], 91, 2000)?;
    ensure!(bystander.bytes().iter().all(|b| *b == 0), "the changed element was used");
    Ok(())
}

/// A receive of four pages that is announced, and data for it.
fn granted(env: &Env, context: &Context, service: u16, seed: u64) -> Res<(Mem, Mem, Conn, Conn)> {
    let source = Mem::pattern(4 * PAGE, seed)?;
    let target = Mem::new(4 * PAGE)?;
    let (from, mut to) = loop_pair(env, context, &depths(4, 4), service)?;
    to.recv(0, &[target.sge(0, 4 * PAGE)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    Ok((source, target, from, to))
}

fn still_granted(env: &Env, source: &Mem, target: &Mem, from: &mut Conn, to: &Conn, seed: u64) -> Res {
    from.send(0, &[source.sge(0, 4 * PAGE)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len as usize, 4 * PAGE);
    from.sent(env)?.ok()?;
    check(&target.bytes()[..4 * PAGE], seed, 0)
}

fn decision_18_grants_survive_protection_there_and_back(env: &Env) -> Res {
    let context = env.context()?;
    let (source, target, mut from, to) = granted(env, &context, 905, 93)?;
    let revoked = env.counters()?.drv(c::D_REVOKED);
    // The right to write is never missing.
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    for _ in 0..10 {
        protect(&target, 4, rw | libc::PROT_EXEC)?;
        protect(&target, 4, rw)?;
    }
    // Behind a query the driver has looked at what it had to.
    std::thread::sleep(Duration::from_millis(200));
    ensure_eq!(env.counters()?.drv(c::D_REVOKED), revoked);
    still_granted(env, &source, &target, &mut from, &to, 93)
}

fn decision_18_grants_survive_attempts_to_move_their_pages(env: &Env) -> Res {
    const HUGE: usize = 2 << 20;
    const MADV_COLLAPSE: i32 = 25;
    let context = env.context()?;
    // The granted pages lie in the middle of a range that the kernel would like to make one huge page of.
    let area = Mem::new(2 * HUGE)?;
    let start = (HUGE - area.va(0) as usize % HUGE) % HUGE;
    let at = start + HUGE / 2;
    let source = Mem::pattern(4 * PAGE, 94)?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 906)?;
    to.recv(0, &[area.sge(at, 4 * PAGE)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    let device = env.device()?;
    let revoked = device.counters()?.drv(c::D_REVOKED);
    for _ in 0..5 {
        fs::write("/proc/sys/vm/compact_memory", "1")?;
        // Refused as long as pages of it are pinned; other kernels may not know it.
        let _ = area.advise(start, HUGE, MADV_COLLAPSE);
    }
    std::thread::sleep(Duration::from_millis(200));
    ensure_eq!(device.counters()?.drv(c::D_REVOKED), revoked);
    from.send(0, &[source.sge(0, 4 * PAGE)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len as usize, 4 * PAGE);
    from.sent(env)?.ok()?;
    check(&area.bytes()[at..at + 4 * PAGE], 94, 0)
}

/// Memory whose missing pages never come until this is dropped.
struct Stuck {
    fd: Option<OwnedFd>,
    mem: Mem,
}

/// As in linux/userfaultfd.h.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;

impl Stuck {
    fn new(len: usize) -> Res<Self> {
        let mem = Mem::new(len)?;
        // SAFETY: a fresh descriptor, or an error.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        ensure!(fd >= 0, "userfaultfd: {}", io::Error::last_os_error());
        // SAFETY: it is ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // api, features, ioctls
        let mut api = [0xaau64, 0, 0];
        // start, length, mode (1: missing pages), ioctls
        let mut register = [mem.va(0), len as u64, 1, 0];
        // SAFETY: each argument has the size that its request names.
        let ret = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API as libc::Ioctl, api.as_mut_ptr()) };
        ensure!(ret == 0, "UFFDIO_API: {}", io::Error::last_os_error());
        // SAFETY: as above; the range is ours.
        let ret = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER as libc::Ioctl, register.as_mut_ptr()) };
        ensure!(ret == 0, "UFFDIO_REGISTER: {}", io::Error::last_os_error());
        Ok(Self { fd: Some(fd), mem })
    }

    /// From now on missing pages come as usual, also for waiting requests.
    fn resolve(&mut self) {
        self.fd = None;
    }
}

fn page_needs(device: &Device) -> Res<u64> {
    Ok(device.counters()?.drv(c::D_PAGE_NEEDS))
}

fn decision_21_page_that_never_comes_stalls_one_queue_pair_only(env: &Env) -> Res {
    let mut stuck = Stuck::new(4 * PAGE)?;
    let target = Mem::new(PAGE)?;
    let source = Mem::pattern(PAGE, 95)?;
    let device = env.device()?;
    let context = env.context()?;
    // One sends from such memory, another receives into it.
    let (mut a, mut b) = loop_pair(env, &context, &depths(4, 4), 907)?;
    let (mut d, mut e) = loop_pair(env, &context, &depths(4, 4), 908)?;
    let needs = page_needs(&device)?;
    b.recv(0, &[target.sge(0, PAGE)])?;
    a.send(0, &[stuck.mem.sge(0, PAGE)])?;
    e.recv(0, &[stuck.mem.sge(PAGE, PAGE)])?;
    d.send(0, &[source.sge(0, PAGE)])?;
    wait_until("the pages are asked for", env.hang, || Ok(page_needs(&device)? >= needs + 3))?;
    // All others go on: of this context, of another one, of another process.
    for n in 0..env.cases(2, 5) {
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 909)?;
        let mem = Mem::new(PAGE)?;
        to.recv(n, &[mem.sge(0, PAGE)])?;
        from.send(n, &[source.sge(0, PAGE)])?;
        to.received(env)?.ok()?;
        check(mem.bytes(), 95, 0)?;
    }
    loopback_works(env, 910)?;
    ensure_eq!(in_child(|| loopback_works(env, 911))?, 0);
    ensure!(a.sends.poll()?.is_none() && e.recvs.poll()?.is_none(), "something came from nowhere");
    // Queue pairs that wait so can be ended.
    let (mut f, mut g) = loop_pair(env, &context, &depths(4, 4), 912)?;
    g.recv(0, &[target.sge(0, 100)])?;
    f.send(0, &[stuck.mem.sge(2 * PAGE, 100)])?;
    wait_until("the page is asked for", env.hang, || Ok(page_needs(&device)? >= needs + 4))?;
    drop((f, g));
    // And when the pages come after all, their data goes.
    stuck.resolve();
    ensure_eq!(b.received(env)?.ok()?.byte_len as usize, PAGE);
    ensure!(target.bytes()[200..].iter().all(|b| *b == 0), "not what was mapped");
    ensure_eq!(e.received(env)?.ok()?.byte_len as usize, PAGE);
    check(&stuck.mem.bytes()[PAGE..2 * PAGE], 95, 0)
}

/// A helper: a receive whose page never comes, and then nothing.
pub fn wait_for_ever(env: &Env) -> Res {
    let stuck = Stuck::new(PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (_from, mut to) = loop_pair(env, &context, &depths(4, 4), 913)?;
    let needs = page_needs(&device)?;
    to.recv(0, &[stuck.mem.sge(0, PAGE)])?;
    wait_until("the page is asked for", env.hang, || Ok(page_needs(&device)? > needs))?;
    ready()?;
    loop {
        std::thread::park();
    }
}

/// The userfaultfd of another process, which is one of ours from now on, too.
fn userfaultfd_of(pid: u32) -> Res<OwnedFd> {
    let mut names = std::fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(Result::ok);
    let is = |path: std::path::PathBuf| path.read_link().is_ok_and(|to| to.to_string_lossy().contains("userfaultfd"));
    let name = names.find(|entry| is(entry.path())).ok_or("no userfaultfd")?.file_name();
    let number: i32 = name.to_string_lossy().parse()?;
    let own = |fd: libc::c_long| -> Res<OwnedFd> {
        ensure!(fd >= 0, "pidfd: {}", io::Error::last_os_error());
        // SAFETY: fresh, and ours alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    // SAFETY: numbers only; a fresh descriptor, or an error.
    let process = own(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: as above.
    own(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

/// Another process should bring that process's page, and does not: page faults keep its memory, and the memory manager
/// does not report that the process is gone.
fn inv_3_killed_process_whose_page_never_comes_leaves_nothing(env: &Env) -> Res {
    let mut child = start_helper(env, "wait_for_ever")?;
    let kept = userfaultfd_of(child.id())?;
    child.kill()?;
    child.wait()?;
    let device = env.device()?;
    wait_until("its context and queue pairs are gone", env.hang, || {
        let n = device.counters()?;
        Ok(n.drv(c::D_QPS) == 0 && n.drv(c::D_CQS) == 0 && n.drv(c::D_CONTEXTS) == 0)
    })?;
    // Its service too.
    loopback_works(env, 913)?;
    drop(kept);
    nothing_left(env)
}

fn decision_21_process_with_very_many_stuck_pages_stalls_itself_only(env: &Env) -> Res {
    const QPS: u16 = 7;
    const RECEIVES: usize = 32;
    /// Pages of receives that a card asks for at a time, for one queue pair: RTL 16, firmware 32.
    const AHEAD: u64 = 16;
    /// Requests of one process that the driver works on at a time.
    const MOST: u64 = 96;
    let mut stuck = Stuck::new(QPS as usize * RECEIVES * PAGE)?;
    let source = Mem::pattern(PAGE, 96)?;
    let device = env.device()?;
    let contexts = [env.context()?, env.context()?];
    let needs = page_needs(&device)?;
    let mut pairs = Vec::new();
    for n in 0..QPS {
        let context = &contexts[usize::from(n % 2)];
        let (from, mut to) = loop_pair(env, context, &depths(4, RECEIVES as u32), 920 + n)?;
        let first = n as usize * RECEIVES;
        let sges: Vec<_> = (0..RECEIVES).map(|k| stuck.mem.sge((first + k) * PAGE, PAGE)).collect();
        to.recv(0, &sges)?;
        pairs.push((from, to));
    }
    // More requests than the driver works on at a time for one process: the others queue.
    let all = u64::from(QPS) * AHEAD;
    wait_until("all that the card asks for at a time is asked for", env.hang, || {
        Ok(page_needs(&device)? >= needs + all)
    })?;
    let shown = crate::util::pages();
    let worked_on = shown.lines().filter_map(|line| line.split_once("worked on ")?.1.parse().ok()).max();
    ensure_eq!(worked_on, Some(MOST));
    ensure_eq!(in_child(|| loopback_works(env, 926))?, 0);
    stuck.resolve();
    // Each of them is answered in the end.
    for (from, to) in &mut pairs {
        to.wait_state(env, "all receives are granted", |s| s.granted == RECEIVES as u32)?;
        from.send(0, &[source.sge(0, PAGE)])?;
        to.received(env)?.ok()?;
    }
    check(&stuck.mem.bytes()[..PAGE], 96, 0)
}

fn pc_3_memory_that_never_comes_keeps_a_page_of_the_budget_each(env: &Env) -> Res {
    const QPS: usize = 4;
    const PAGES: usize = 32;
    let mut stuck = Stuck::new(QPS * PAGES * PAGE)?;
    let source = Mem::pattern(PAGE, 94)?;
    let device = env.device()?;
    let context = env.context()?;
    let _budget = Budget::set(env, (160 * PAGE) as u64)?;
    let needs = page_needs(&device)?;
    let mut pairs = Vec::new();
    for n in 0..QPS {
        let (from, mut to) = loop_pair(env, &context, &depths(4, 4), 940 + n as u16)?;
        to.recv(0, &[stuck.mem.sge(n * PAGES * PAGE, PAGES * PAGE)])?;
        pairs.push((from, to));
    }
    wait_until("all of them are asked for", env.hang, || Ok(page_needs(&device)? >= needs + QPS as u64))?;
    // Others have the budget, in this process and in another one: it does not fit beside all that these were charged.
    let large = |service| -> Res {
        let target = Mem::new(100 * PAGE)?;
        let context = env.context()?;
        let (mut a, mut b) = loop_pair(env, &context, &depths(4, 4), service)?;
        b.recv(0, &[target.sge(0, 100 * PAGE)])?;
        a.send(0, &[source.sge(0, PAGE)])?;
        b.received(env)?.ok()?;
        check(&target.bytes()[..PAGE], 94, 0)
    };
    large(944)?;
    ensure_eq!(in_child(|| large(945))?, 0);
    // A range that lies across 1 MiB is two requests.
    wait_until("the rest is given back", env.hang, || {
        Ok(device.counters()?.drv(c::D_PINNED) <= (2 * QPS * PAGE) as u64)
    })?;
    // A page that comes late is charged anew, in its turn.
    stuck.resolve();
    for (n, (from, to)) in pairs.iter_mut().enumerate() {
        ensure!(to.recvs.poll()?.is_none(), "something came from nowhere");
        from.send(0, &[source.sge(0, PAGE)])?;
        to.received(env)?.ok()?;
        check(&stuck.mem.bytes()[n * PAGES * PAGE..][..PAGE], 94, 0)?;
    }
    Ok(())
}

fn pc_3_receive_that_fills_the_budget_beside_its_own_sender_ends_by_name(env: &Env) -> Res {
    const PAGES: usize = 16;
    let source = Mem::pattern(PAGE, 97)?;
    let target = Mem::new(PAGES * PAGE)?;
    let context = env.context()?;
    let config = QpConfig { block: PAGE as u32, ..depths(4, 4) };
    let (mut from, mut to) = loop_pair(env, &context, &config, 930)?;
    let _budget = Budget::set(env, (PAGES * PAGE) as u64)?;
    from.send(0, &[source.sge(0, 1000)])?;
    to.recv(0, &[target.sge(0, PAGES * PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::OverBudget);
    // One page more than half completes too, although nothing else is held.
    to.recv(0, &[target.sge(0, PAGES * PAGE / 2 + 1)])?;
    ensure_eq!(to.received(env)?.status, Status::OverBudget);
    // The send waits for one that leaves room for it.
    ensure!(from.sends.poll()?.is_none());
    to.recv(1, &[target.sge(0, PAGES * PAGE / 2)])?;
    let got = to.received(env)?.ok()?;
    ensure_eq!((got.wr_id, got.byte_len), (1, 1000));
    from.sent(env)?.ok()?;
    check(&target.bytes()[..1000], 97, 0)?;
    ensure!(env.counters()?.pinned_peak() <= (PAGES * PAGE) as u64);
    Ok(())
}

fn pc_3_receive_whose_ranges_together_exceed_the_budget_ends_by_name(env: &Env) -> Res {
    const PAGES: usize = 16;
    /// RTL asks for a range in parts that end here.
    const PART: u64 = 1 << 20;
    let source = Mem::pattern(PAGE, 98)?;
    let target = Mem::new(2 * PART as usize + PAGES * PAGE)?;
    let boundary = (2 * PART - target.va(0) % PART) as usize;
    let context = env.context()?;
    let config = QpConfig { block: PAGE as u32, ..depths(4, 8) };
    let (mut from, mut to) = loop_pair(env, &context, &config, 932)?;
    // A process that never uses its grants: they are recalled, and granted again once the others need the memory no
    // more.
    let idle = env.context()?;
    let (mut idle_from, mut idle_to) = loop_pair(env, &idle, &config, 939)?;
    let _budget = Budget::set(env, (PAGES * PAGE) as u64)?;
    idle_to.recv(0, &[target.sge(8 * PAGE, 2 * PAGE)])?;
    idle_to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    from.send(0, &[source.sge(0, 1000)])?;
    // Half of the budget is for receives: each range fits, both do not.
    to.recv_parts(0, &[target.sge(0, 5 * PAGE), target.sge(5 * PAGE, 4 * PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::OverBudget);
    to.recv(1, &[target.sge(boundary - 4 * PAGE, 9 * PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::OverBudget);
    // Those behind it go on.
    to.recv_parts(2, &[target.sge(0, 5 * PAGE), target.sge(5 * PAGE, 4 * PAGE)])?;
    to.recv_parts(3, &[target.sge(0, 4 * PAGE), target.sge(4 * PAGE, 4 * PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::OverBudget);
    let got = to.received(env)?.ok()?;
    ensure_eq!((got.wr_id, got.byte_len), (3, 1000));
    from.sent(env)?.ok()?;
    check(&target.bytes()[..1000], 98, 0)?;
    idle_from.send(0, &[source.sge(0, 500)])?;
    ensure_eq!(idle_to.received(env)?.ok()?.byte_len, 500);
    check(&target.bytes()[8 * PAGE..][..500], 98, 0)
}

/// Three contexts, each with a QP that posts what `post` does at an offset of `target`, under a budget of which receives
/// may have 12 pages; each gets a message then.
fn three_under_a_budget(env: &Env, service: u16, post: impl Fn(&mut Conn, &Mem, usize) -> Res) -> Res {
    const PAGES: usize = 24;
    const PAIRS: usize = 3;
    let source = Mem::pattern(PAGE, 99)?;
    let target = Mem::new(PAIRS * 10 * PAGE)?;
    let contexts: Vec<_> = (0..PAIRS).map(|_| env.context()).collect::<Res<_>>()?;
    let config = QpConfig { block: PAGE as u32, ..depths(4, 4) };
    let mut pairs = Vec::new();
    for (context, n) in contexts.iter().zip(0..) {
        pairs.push(loop_pair(env, context, &config, service + n)?);
    }
    let _budget = Budget::set(env, (PAGES * PAGE) as u64)?;
    let waits = env.counters()?.drv(c::D_BUDGET_WAITS);
    for (n, (_, to)) in pairs.iter_mut().enumerate() {
        post(to, &target, n * 10 * PAGE)?;
    }
    for (from, _) in &mut pairs {
        from.send(0, &[source.sge(0, 1000)])?;
    }
    for (n, (from, to)) in pairs.iter_mut().enumerate() {
        ensure_eq!(to.received(env)?.ok()?.byte_len, 1000);
        from.sent(env)?.ok()?;
        check(&target.bytes()[n * 10 * PAGE..][..1000], 99, 0)?;
    }
    ensure!(env.counters()?.drv(c::D_BUDGET_WAITS) > waits, "none has waited");
    ensure!(env.counters()?.pinned_peak() <= (PAGES * PAGE) as u64);
    Ok(())
}

fn pc_3_receives_that_hold_parts_of_the_budget_do_not_wait_for_each_other(env: &Env) -> Res {
    // Each fits; a part of each and the rest of another do not.
    three_under_a_budget(env, 933, |to, target, at| {
        to.recv_parts(0, &[target.sge(at, 5 * PAGE), target.sge(at + 5 * PAGE, 5 * PAGE)])
    })
}

fn pc_3_grants_that_are_recalled_go_to_who_has_waited(env: &Env) -> Res {
    // Two of the three have all that receives may have, and use half of it; the other half is recalled.
    three_under_a_budget(env, 936, |to, target, at| {
        to.recv(0, &[target.sge(at, 5 * PAGE), target.sge(at + 5 * PAGE, 5 * PAGE)])
    })
}

/// Loses all frames of the control connection until dropped.
struct Deaf<'e>(&'e Env);

impl<'e> Deaf<'e> {
    fn new(env: &'e Env) -> Res<Self> {
        env.sim("faults control=1")?;
        Ok(Self(env))
    }
}

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.0.sim("faults control=0") {
            eprintln!("control connection not mended: {e}");
        }
    }
}

fn decision_6_lost_control_frames_do_not_end_connections_that_have_credits(env: &Env) -> Res {
    const COUNT: usize = 8;
    let mem = match env.role {
        Role::A => Mem::pattern((COUNT + 1) * PAGE, 98)?,
        Role::B => Mem::new((COUNT + 1) * PAGE)?,
    };
    let context = env.context()?;
    let device = env.device()?;
    let mut conn = Conn::new(&context, &depths(16, 16))?;
    if env.role == Role::B {
        let sges: Vec<_> = (0..COUNT).map(|n| mem.sge(n * PAGE, PAGE)).collect();
        conn.recv(0, &sges)?;
    }
    establish(env, &context, &conn.qp, 931)?;
    if env.role == Role::A {
        conn.wait_state(env, "all credits have come", |s| s.credits == COUNT as u32)?;
    }
    let before = device.counters()?;
    env.meet("connected")?;
    let deaf = if env.role == Role::A { Some(Deaf::new(env)?) } else { None };
    env.meet("deaf")?;
    for n in 0..COUNT {
        if n == COUNT / 2 {
            // Both probe the other, get no answer on the control connection, and go on probing: more often than the
            // eight times after which a silent peer would be lost.
            wait_until("the control connection has lost its patience", env.hang, || {
                let again = device.counters()?.fw(c::F_CONTROL_RETRANSMITTED);
                Ok(again >= before.fw(c::F_CONTROL_RETRANSMITTED) + 10)
            })?;
            ensure_eq!(conn.qp.state()?.kind, QpStateKind::Connected);
            env.meet("idle")?;
        }
        match env.role {
            Role::A => {
                conn.send(n as u64, &[mem.sge(n * PAGE, PAGE)])?;
                conn.sent(env)?.ok()?;
            }
            Role::B => {
                ensure_eq!(conn.received(env)?.ok()?.wr_id, n as u64);
            }
        }
    }
    ensure_eq!(device.counters()?.fw(c::F_PEERS_LOST), before.fw(c::F_PEERS_LOST));
    env.meet("sent")?;
    drop(deaf);
    // Lists come through again.
    match env.role {
        Role::A => {
            conn.send(8, &[mem.sge(COUNT * PAGE, PAGE)])?;
            conn.sent(env)?.ok()?;
        }
        Role::B => {
            conn.recv(8, &[mem.sge(COUNT * PAGE, PAGE)])?;
            conn.received(env)?.ok()?;
            check(mem.bytes(), 98, 0)?;
        }
    }
    env.meet("done")
}

fn reset_while_pages_are_awaited(env: &Env) -> Res {
    let mut stuck = Stuck::new(PAGE)?;
    let target = Mem::new(PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 932)?;
    let needs = page_needs(&device)?;
    to.recv(0, &[target.sge(0, PAGE)])?;
    from.send(0, &[stuck.mem.sge(0, PAGE)])?;
    wait_until("the pages are asked for", env.hang, || Ok(page_needs(&device)? >= needs + 2))?;
    device.reset()?;
    let faults = device.counters()?.drv(c::D_BAD_EVENTS);
    // The new firmware is at work when the old one's page comes: it must not hear of it.
    let work = std::thread::scope(|scope| -> Res {
        let work = scope.spawn(|| -> Res {
            Env::prepare(&env.args)?;
            (0..3).try_for_each(|n| loopback_works(env, 933 + n))
        });
        stuck.resolve();
        work.join().map_err(|_| "a thread panicked")?
    });
    drop((from, to, context));
    work?;
    ensure_eq!(device.counters()?.drv(c::D_BAD_EVENTS), faults);
    after_reset(env, 936)
}

/// The helper of the tests below: memory that is granted, and unmapped as soon as `BERTH_TEST_READY`.go is there.
pub fn unmap_when_told(env: &Env) -> Res {
    let file = PathBuf::from(std::env::var_os("BERTH_TEST_READY").ok_or("no file")?);
    let context = env.context()?;
    let (_source, target, _from, _to) = granted(env, &context, 937, 99)?;
    ready()?;
    wait_until("told to go on", env.hang, || Ok(file.with_extension("go").exists()))?;
    target.unmap(0, PAGE)
}

/// Such a process while this card hangs.
struct Unmapping<'e> {
    env: &'e Env,
    child: Child,
    go: PathBuf,
    start: Instant,
}

impl<'e> Unmapping<'e> {
    /// The card hangs, and the process has begun to unmap.
    fn start(env: &'e Env) -> Res<Self> {
        let child = start_helper(env, "unmap")?;
        let go = std::env::temp_dir().join(format!("berth-ready-unmap-{}", std::process::id())).with_extension("go");
        env.sim_cards("stall {own}")?;
        fs::write(&go, "")?;
        Ok(Self { env, child, go, start: Instant::now() })
    }

    /// How long it took until the process had ended well.
    fn end(mut self) -> Res<Duration> {
        wait_until("munmap returns", self.env.hang, || Ok(self.child.try_wait()?.is_some()))?;
        ensure!(self.child.wait()?.success(), "munmap failed");
        Ok(self.start.elapsed())
    }
}

impl Drop for Unmapping<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.env.sim_cards("unstall {own}") {
            eprintln!("the card still hangs: {e}");
        }
        let _ = fs::remove_file(&self.go);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn decision_17_card_that_hangs_is_reset_and_the_host_goes_on(env: &Env) -> Res {
    let device = env.device()?;
    let before = device.counters()?;
    let unmapping = Unmapping::start(env)?;
    // Neither the fence nor the heartbeat gets an answer; whichever is missed first has the card reset, which ends
    // the other. Meanwhile the rest of the host goes on: this process, for one.
    wait_until("the fence or the heartbeat is given up", env.hang, || {
        let now = device.counters()?;
        Ok([c::D_FENCE_TIMEOUTS, c::D_HEARTBEAT_LOST].iter().any(|&lost| now.drv(lost) > before.drv(lost)))
    })?;
    // The card can be reset once it moves again.
    env.sim_cards("unstall {own}")?;
    let time = unmapping.end()?;
    ensure!(time < Duration::from_secs(60), "munmap took {time:?}");
    wait_until("the card is reset", env.hang, || Ok(device.counters()?.drv(c::D_RESETS) > before.drv(c::D_RESETS)))?;
    device.reset()?;
    after_reset(env, 938)
}

fn inv_3_unplug_while_a_fence_waits(env: &Env) -> Res {
    let address = pci_address()?;
    let mut unmapping = Unmapping::start(env)?;
    std::thread::sleep(Duration::from_millis(100));
    // It waits for the card: for the fence or, when that was given up, for the reset.
    let waited = unmapping.child.try_wait()?.is_none();
    env.sim_cards("unplug {own}")?;
    let result = unmapping.end();
    let removed = fs::write(format!("/sys/bus/pci/devices/{address}/remove"), "1");
    env.sim_cards("replug {own}")?;
    let time = result?;
    removed?;
    ensure!(waited, "munmap did not wait for a fence");
    ensure!(time < Duration::from_secs(60), "munmap took {time:?}");
    fs::write("/sys/bus/pci/rescan", "1")?;
    wait_until("the card is back", Duration::from_secs(60), || Ok(pci_address().is_ok()))?;
    wait_for_device(env)?;
    after_reset(env, 941)
}

/// The words of an event that firmware can be made to tell.
fn told(event: Entry) -> [u32; CRASH_EVENT_WORDS] {
    let mut words = [0; CRASH_EVENT_WORDS];
    words.iter_mut().zip(event).for_each(|(to, from)| *to = from);
    words
}

/// An event of this kind, all of whose other words are `word`.
fn uniform(kind: u32, word: u32) -> Entry {
    let mut event = [word; ENTRY_WORDS];
    event[CODE] = kind;
    event
}

/// A page request of this ASID and range, to be written.
fn need(asid: u32, va: u64, len: u32) -> Entry {
    PageNeed { tag: 0, asid, write: true, va, len }.encode()
}

/// The release of such a range.
fn release(asid: u32, va: u64, len: u32) -> Entry {
    PageRelease { tag: 0, asid, wrote: true, va, len }.encode()
}

/// A card whose firmware sends false events.
fn inv_6_events_of_nothing_are_counted_and_harm_nobody(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 170)?;
    let target = Mem::new(PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 945)?;
    let mut round = |n: u64| -> Res {
        to.recv(n, &[target.sge(0, 500)])?;
        from.send(n, &[source.sge(n as usize, 500)])?;
        ensure_eq!(to.received(env)?.ok()?.wr_id, n);
        from.sent(env)?.ok()?;
        check(&target.bytes()[..500], 170, n)
    };
    round(0)?;
    let (asid, nobody) = (context.asid(), card::NUM_ASIDS - 1);
    let (qpn, cqn) = (card::FIRST_QPN + card::NUM_QPS, card::NUM_CQS);
    // Events that no card can send.
    let wrong = [
        uniform(0, 0),
        uniform(EV_CQ_OVERRUN + 1, 1),
        uniform(EV_CM_REQUEST_OVER + 1, 1),
        uniform(0xff, u32::MAX),
        CqNotify { cqn }.encode(),
        CqNotify { cqn: u32::MAX }.encode(),
        CqOverrun { cqn, qpn: card::FIRST_QPN }.encode(),
        FwLog { len: EVENT_LOG_BYTES as u32 + 1, ..Default::default() }.encode(),
        FwLog { len: u32::MAX, ..Default::default() }.encode(),
        // Answers that are not awaited.
        CmdDone { cookie: 0x8765_4321, ..Default::default() }.encode(),
        CmdDone { cookie: 0x7fff_ffff, status: 5, ..Default::default() }.encode(),
    ];
    // Pages that the card was not asked for, and more of them than fit.
    let mut evict = evict_command(0x7fff);
    for index in [0x7fff, 0, 0, 1, 0x1fff] {
        ensure!(evict_add(&mut evict, index));
    }
    let mut evicted = evict_answer(&evict, |index| index != 1);
    evicted[CODE] |= MORE_PAGES;
    // Events that may be late, and are ignored then.
    let empty = [
        need(nobody, 0x1000, 1),
        need(u32::MAX, 0x1000, 1),
        need(asid, target.va(0), 0),
        need(asid, 0x10_0000, u32::MAX),
        need(asid, u64::MAX - 10, 11),
        need(asid, u64::MAX - 10, 12),
        need(asid, 0xffff_8880_0000_0000, 4096),
        need(asid, target.va(0), 100),
        need(asid, target.va(0), 100),
        release(nobody, 0, u32::MAX),
        release(asid, target.va(0), 100),
        release(asid, 0, u32::MAX),
        release(asid, u64::MAX, 2),
        evicted,
        CqOverrun { cqn: cqn - 1, qpn }.encode(),
        CqNotify { cqn: cqn - 1 }.encode(),
        CmdDone { cookie: 0, status: 7, results: [7; EVENT_PHASE - 3] }.encode(),
        // To a command that is sent again and again: it names a queue pair that there is not.
        CmdDone { cookie: u32::MAX, status: CMD_OK, results: [qpn; EVENT_PHASE - 3] }.encode(),
        CmRequest {
            request: 77,
            ipv4: 0x0a00_0001,
            service: 65_535,
            mode: 1,
            private_len: u32::MAX,
            ..Default::default()
        }
        .encode(),
        CmRequestOver { request: 77 }.encode(),
        CmEstablished { qpn, ipv4: 1, peer_qpn: 2, private_len: u32::MAX, ..Default::default() }.encode(),
        CmEstablished { qpn: 0, ipv4: 1, peer_qpn: 2, private_len: 4, ..Default::default() }.encode(),
        CmClosed { qpn: qpn - 1, reason: u32::MAX, private_len: u32::MAX, ..Default::default() }.encode(),
        QpError { qpn: u32::MAX, reason: 1, ..QpError::default() }.encode(),
        QpError { qpn: qpn - 1, reason: u32::MAX, ..QpError::default() }.encode(),
        FwLog::default().encode(),
    ];
    let before = device.counters()?;
    for (n, event) in (1..).zip(wrong.iter().chain(&empty)) {
        let was = device.counters()?;
        let bad = was.drv(c::D_BAD_EVENTS) + u64::from(n as usize <= wrong.len());
        device.send_event(told(*event))?;
        // The event, and the answer to the command that it was asked for with.
        wait_until("the driver has taken it", env.hang, || {
            Ok(device.counters()?.drv(c::D_EVENTS) >= was.drv(c::D_EVENTS) + 2)
        })?;
        round(n).map_err(|e| format!("behind {event:x?}: {e}"))?;
        ensure_eq!((device.counters()?.drv(c::D_BAD_EVENTS), event), (bad, event));
    }
    // All the others.
    const SAME: [u32; 3] = [c::D_RESETS, c::D_HEARTBEAT_LOST, c::D_FENCE_TIMEOUTS];
    ensure_eq!(of_driver(&device.counters()?, SAME), of_driver(&before, SAME));
    Ok(())
}

/// Events with random words: processes may get false events, and the card reports answers that it did not ask for, but
/// nothing worse happens.
fn inv_6_any_events_leave_a_driver_that_a_reset_puts_right(env: &Env) -> Res {
    let kinds: Vec<u32> = EV_TABLE.iter().map(|row| row.1 as u32).collect();
    println!("seed {}", env.seed);
    let mut random = Random::new(env.seed);
    let target = Mem::new(8 * PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (from, mut to) = loop_pair(env, &context, &depths(8, 8), 946)?;
    for n in 0..8 {
        to.recv(n as u64, &[target.sge(n * PAGE, PAGE)])?;
    }
    let listener = context.listen(5)?;
    let (mut sent, before) = (0u64, device.counters()?);
    for _ in 0..env.cases(80, 4000) {
        let kind = kinds[random.below(kinds.len())];
        let word = |random: &mut Random| match random.below(3) {
            0 => random.next() as u32,
            1 => random.below(100) as u32,
            _ => context.asid(),
        };
        let mut event: Entry = std::array::from_fn(|_| word(&mut random));
        if random.below(2) == 0 {
            // The process's own objects.
            let (asid, va) = (context.asid(), target.va(random.below(8 * PAGE)));
            event = match kind {
                EV_PAGE_NEED => PageNeed { asid, va, ..PageNeed::decode(&event) }.encode(),
                EV_PAGE_RELEASE => PageRelease { asid, va, ..PageRelease::decode(&event) }.encode(),
                EV_CM_REQUEST => CmRequest { service: 5, ..CmRequest::decode(&event) }.encode(),
                _ => event,
            };
        }
        event[CODE] = kind | random.next() as u32 & MORE_PAGES;
        // A card that has asked for more than it can is reset, and the descriptor has lost it.
        if device.send_event(told(event)).is_err() {
            break;
        }
        sent += 1;
        wait_until("the driver takes events", env.hang, || {
            let n = device.counters()?;
            Ok(n.drv(c::D_EVENTS) >= before.drv(c::D_EVENTS) + sent || n.drv(c::D_RESETS) > before.drv(c::D_RESETS))
        })?;
    }
    println!("figures: {sent} events made up");
    drop((from, to, listener, context));
    let device = env.device()?;
    device.reset()?;
    wait_until("nothing is left", env.hang, || {
        let n = device.counters()?;
        Ok([c::D_PINNED, c::D_QPS, c::D_CQS, c::D_CONTEXTS, c::D_XLT_USED].iter().all(|&g| n.drv(g) == 0))
    })?;
    after_reset(env, 947)
}
