// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that want everything, beside one that wants its share; both ends of a connection that act at the same
//! moment; threads that change queues and memory while the card reads them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_abi::wqe::{OP_RECV, OP_SEND, Sge, Wqe};
use berth_abi::{card, counters as c, host, ioctl};
use libberth::{Limits, Reason, Status, raw};

use crate::connections::loopback_works;
use crate::env::{Env, Role};
use crate::memory::Budget;
use crate::util::{
    Conn, INCIDENTS, Mem, PAGE, Random, Res, check, depths, fail, in_child, loop_back, loop_pair, of_driver, wait_until,
};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: qp_17_both_ends_connect_and_close_at_the_same_moment;
    One: inv_6_completion_queue_in_use_is_not_destroyed, inv_6_wild_consumer_index_is_its_owners_loss,
         decision_13_elements_changed_while_they_are_read_have_a_defined_end,
         vc_9_memory_protected_and_unmapped_at_random_under_traffic, pc_3_memlock_limit_lowered_under_grants,
         inv_5_greedy_processes_leave_a_stream_its_share, pc_3_a_process_with_the_whole_budget_leaves_a_stream_its_share,
         pc_3_pages_without_a_place_in_the_cards_table_wait_for_one,
         pc_3_budget_that_the_cards_table_cannot_hold_is_refused,
         inv_5_requests_that_nobody_answers_leave_places_to_others,
         inv_5_requests_that_are_taken_back_are_forgotten;
}

fn qp_17_both_ends_connect_and_close_at_the_same_moment(env: &Env) -> Res {
    let rounds = env.cases(2, 100);
    let (mine, theirs) = if env.role == Role::A { (650, 651) } else { (651, 650) };
    let mem = Mem::pattern(PAGE, 140)?;
    let context = env.context()?;
    let listener = context.listen(mine)?;
    env.meet("listening")?;
    let mut closed = [0; 2];
    for n in 0..rounds {
        let mut out = Conn::new(&context, &depths(4, 4))?;
        let mut inn = Conn::new(&context, &depths(4, 4))?;
        out.recv(0, &[mem.sge(0, 100)])?;
        inn.recv(0, &[mem.sge(100, 100)])?;
        env.meet(&format!("ready-{n}"))?;
        // Requests cross each other.
        out.qp.start_connect(env.peer_ip, theirs, b"")?;
        let request = listener.next(env.limit())?;
        request.accept(&inn.qp, b"")?;
        inn.qp.wait_established(env.limit())?;
        out.qp.wait_established(env.limit())?;
        env.meet(&format!("connected-{n}"))?;
        // So do the ends: each closes both, one of them perhaps with data under way.
        if n % 2 == 1 {
            out.send(1, &[mem.sge(200, 100)])?;
        }
        for conn in [&out, &inn] {
            match conn.qp.disconnect() {
                // The peer was faster.
                Ok(()) | Err(libberth::Error::Busy { .. } | libberth::Error::Invalid { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        for conn in [&mut out, &mut inn] {
            match conn.qp.wait_closed(env.limit())? {
                Reason::LocalClose => closed[0] += 1,
                Reason::PeerClose => closed[1] += 1,
                other => return fail(format!("round {n}: ended with {other:?}")),
            }
            let got = conn.received(env)?;
            ensure!(matches!(got.status, Status::Flushed | Status::Ok), "round {n}: {got:?}");
        }
    }
    println!("figures: {rounds} rounds; closed by us {}, by the peer {}", closed[0], closed[1]);
    env.meet("done")
}

fn handle(context: &libberth::Context, request: u32, value: u32) -> i32 {
    use std::os::fd::{AsFd, AsRawFd};
    let mut arg = ioctl::Handle { value, reserved: 0, identity: 0 };
    // SAFETY: the struct of this request.
    let ret = unsafe { libc::ioctl(context.as_fd().as_raw_fd(), request as libc::Ioctl, &raw mut arg) };
    if ret < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

fn inv_6_completion_queue_in_use_is_not_destroyed(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 141)?;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 652)?;
    let refused = env.counters()?.drv(c::D_BAD_IOCTL);
    for cqn in [from.sends.cqn(), from.recvs.cqn(), to.sends.cqn(), to.recvs.cqn()] {
        ensure_eq!(handle(&context, ioctl::IOC_DESTROY_CQ, cqn), libc::EBUSY);
    }
    ensure_eq!(env.counters()?.drv(c::D_BAD_IOCTL), refused + 4);
    // And it stays one.
    to.recv(0, &[target.sge(0, PAGE)])?;
    from.send(0, &[source.sge(0, PAGE)])?;
    to.received(env)?.ok()?;
    from.sent(env)?.ok()?;
    check(target.bytes(), 141, 0)
}

fn inv_6_wild_consumer_index_is_its_owners_loss(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 142)?;
    let target = Mem::new(4 * PAGE)?;
    let context = env.context()?;
    let (mut good, mut good_to) = loop_pair(env, &context, &depths(4, 4), 653)?;
    for (n, wild) in (0..).zip([0x7fffu64, 0x8000, 5]) {
        let (mut bad, mut bad_to) = loop_pair(env, &context, &depths(4, 4), 654)?;
        let before = env.counters()?.rtl(c::C_CQ_OVERRUN);
        // SAFETY: says which completions have been taken, and names no memory.
        unsafe { raw::doorbell(&context, host::DB_CQ, u64::from(bad_to.recvs.cqn()) | wild << 16) }?;
        bad_to.recv(n, &[target.sge(0, 100)])?;
        bad.send(n, &[source.sge(0, 100)])?;
        // The queue counts as full.
        let lost = bad_to.qp.wait_closed(env.limit())?;
        ensure_eq!((wild, lost), (wild, Reason::CqFull));
        ensure!(env.counters()?.rtl(c::C_CQ_OVERRUN) > before);
        good_to.recv(n, &[target.sge(PAGE, PAGE)])?;
        good.send(n, &[source.sge(0, PAGE)])?;
        good_to.received(env)?.ok()?;
        good.sent(env)?.ok()?;
        check(&target.bytes()[PAGE..2 * PAGE], 142, 0)?;
    }
    loopback_works(env, 655)
}

fn element(opcode: u8, sges: &[Sge]) -> Wqe {
    let mut wqe = Wqe { opcode, num_sge: sges.len() as u16, wr_id: 77, ..Wqe::default() };
    wqe.length = sges.iter().fold(0, |sum: u32, s| sum.wrapping_add(s.len));
    wqe.sge[..sges.len()].copy_from_slice(sges);
    wqe
}

/// A queue pair, used by the one thread that scribbles over its queue while the other posts.
struct Scribbled(*mut Conn);

// SAFETY: the scribbling thread only writes elements, which nothing else in this process reads.
unsafe impl Send for Scribbled {}

fn decision_13_elements_changed_while_they_are_read_have_a_defined_end(env: &Env) -> Res {
    let rounds = env.cases(4, 400);
    let source = Mem::pattern(4 * PAGE, 143)?;
    let target = Mem::new(4 * PAGE)?;
    let bystander = Mem::new(PAGE)?;
    let context = env.context()?;
    let mut seen = std::collections::BTreeMap::new();
    let (mut good, mut good_to) = loop_pair(env, &context, &depths(4, 4), 656)?;
    for n in 0..rounds {
        let recv = n % 2 == 0;
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 657)?;
        // Two that are good, differ in every word, and make a bad one when they are mixed.
        let (opcode, mem) = if recv { (OP_RECV, &target) } else { (OP_SEND, &source) };
        let mut one = element(opcode, &[mem.sge(0, 600)]);
        // No range of it, but one that a mixed element may take its address from.
        one.sge[1] = mem.sge(2 * PAGE, 0);
        let other = Wqe { wr_id: 88, ..element(opcode, &[mem.sge(PAGE, 100), mem.sge(2 * PAGE, 300)]) };
        if !recv {
            to.recv(0, &[target.sge(0, PAGE)])?;
            to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
        }
        let stop = AtomicBool::new(false);
        let conn = if recv { &raw mut to } else { &raw mut from };
        let scribbled = Scribbled(conn);
        std::thread::scope(|scope| -> Res {
            let (stop, one, other) = (&stop, &one, &other);
            scope.spawn(move || {
                let scribbled = scribbled;
                let Scribbled(conn) = scribbled;
                while !stop.load(Ordering::Relaxed) {
                    for wqe in [other, one] {
                        // SAFETY: the connection outlives the scope; what the elements name does, too.
                        unsafe { (*conn).qp.overwrite_raw(recv, wqe) }.expect("in its own process");
                    }
                }
            });
            std::thread::sleep(Duration::from_micros(200 * (n % 5)));
            // SAFETY: as above.
            let posted = unsafe { (*conn).qp.post_raw(recv, one) };
            let taken = wait_until("the card has taken it", env.hang, || {
                let state = to.qp.state()?;
                let ended = from.qp.state()?.kind != libberth::QpStateKind::Connected;
                Ok(ended || if recv { state.granted > 0 } else { state.landed > 0 })
                    .and_then(|done| Ok(done || (recv && to_has(&to)?)))
            });
            stop.store(true, Ordering::Relaxed);
            posted?;
            taken
        })?;
        // What the card has made of it: one of the two, or a bad element.
        if recv {
            from.send(5, &[source.sge(0, 64)])?;
            let got = to.received(env)?;
            ensure!([77, 88].contains(&got.wr_id), "{got:?}");
            ensure!(matches!(got.status, Status::Ok | Status::BadWqe | Status::Flushed), "{got:?}");
            *seen.entry((recv, got.wr_id, format!("{:?}", got.status))).or_insert(0) += 1;
        } else {
            let sent = from.sent(env)?;
            ensure!([77, 88].contains(&sent.wr_id), "{sent:?}");
            ensure!(matches!(sent.status, Status::Ok | Status::BadWqe), "{sent:?}");
            *seen.entry((recv, sent.wr_id, format!("{:?}", sent.status))).or_insert(0) += 1;
        }
        good_to.recv(1, &[bystander.sge(0, PAGE)])?;
        good.send(1, &[source.sge(0, PAGE)])?;
        good_to.received(env)?.ok()?;
        good.sent(env)?.ok()?;
        check(bystander.bytes(), 143, 0)?;
    }
    println!("figures: (receive, element, status): {seen:?}");
    loopback_works(env, 658)
}

/// Whether a completion waits; it stays there.
fn to_has(conn: &Conn) -> Res<bool> {
    use std::os::fd::AsRawFd;
    conn.recvs.arm()?;
    let mut poll = libc::pollfd { fd: conn.recvs.event_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd.
    Ok(unsafe { libc::poll(&raw mut poll, 1, 5) } == 1)
}

fn vc_9_memory_protected_and_unmapped_at_random_under_traffic(env: &Env) -> Res {
    const PAGES: usize = 16;
    println!("seed {}", env.seed);
    let mut random = Random::new(env.seed ^ 0x9e);
    let rounds = env.cases(2, 300);
    let good_source = Mem::pattern(PAGE, 144)?;
    let good_target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut good, mut good_to) = loop_pair(env, &context, &depths(4, 4), 659)?;
    let revoked = || -> Res<u64> { Ok(env.counters()?.drv(c::D_REVOKED)) };
    let before = revoked()?;
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..rounds {
        let source = Mem::pattern(PAGES * PAGE, 145)?;
        let target = Mem::new(PAGES * PAGE)?;
        let spare = Mem::new(2 * PAGE)?;
        let (mut from, mut to) = loop_pair(env, &context, &depths(8, 16), 660)?;
        // A receive whose memory is gone before it is granted is no credit: there are others, so that no send waits.
        let mut sges: Vec<_> = (0..8).map(|n| target.sge(n * 2 * PAGE, 2 * PAGE)).collect();
        sges.resize(16, spare.sge(0, 2 * PAGE));
        to.recv(0, &sges)?;
        let stop = AtomicBool::new(false);
        let seed = random.next();
        std::thread::scope(|scope| -> Res {
            let (source, target, stop) = (&source, &target, &stop);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    let mem = if random.below(2) == 0 { source } else { target };
                    let at = mem.va(random.below(PAGES) * PAGE) as *mut libc::c_void;
                    // SAFETY: pages of the two, whose content is not read any more.
                    unsafe {
                        match random.below(4) {
                            0 => libc::mprotect(at, PAGE, libc::PROT_READ),
                            1 => libc::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE),
                            2 => libc::madvise(at, PAGE, libc::MADV_DONTNEED),
                            _ if random.below(4) == 0 => libc::munmap(at, PAGE),
                            _ => 0,
                        }
                    };
                    std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
                }
            });
            for n in 0..8 {
                from.send(n, &[source.sge(n as usize * 2 * PAGE, 2 * PAGE)])?;
            }
            let mut result = Ok(());
            for _ in 0..8 {
                match from.sent(env) {
                    Ok(sent) => *seen.entry((false, format!("{:?}", sent.status))).or_insert(0) += 1,
                    Err(e) => result = Err(e),
                }
                if result.is_err() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            result
        })?;
        match from.qp.disconnect() {
            Ok(()) | Err(libberth::Error::Busy { .. } | libberth::Error::Invalid { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        to.qp.wait_closed(env.limit())?;
        for _ in 0..16 {
            *seen.entry((true, format!("{:?}", to.received(env)?.status))).or_insert(0) += 1;
        }
        good_to.recv(1, &[good_target.sge(0, PAGE)])?;
        good.send(1, &[good_source.sge(0, PAGE)])?;
        good_to.received(env)?.ok()?;
        good.sent(env)?.ok()?;
        check(good_target.bytes(), 144, 0)?;
    }
    println!("figures: (receive, status): {seen:?}");
    let named = ["Ok", "LocalProtection", "Withdrawn", "Flushed", "RemoteError"];
    ensure!(seen.keys().all(|(_, s)| named.contains(&s.as_str())), "{seen:?}");
    // In a few rounds it may be that no page was pinned when it went.
    ensure!(rounds < 50 || revoked()? > before);
    Ok(())
}

fn pc_3_memlock_limit_lowered_under_grants(env: &Env) -> Res {
    const LIMIT: usize = 16 * PAGE;
    let code = in_child(|| {
        let set = |bytes: usize| -> Res {
            let limit = libc::rlimit { rlim_cur: bytes as u64, rlim_max: LIMIT as u64 };
            // SAFETY: a valid limit.
            let ret = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
            ensure!(ret == 0, "setrlimit: {}", std::io::Error::last_os_error());
            Ok(())
        };
        crate::memory::drop_ipc_lock()?;
        set(LIMIT)?;
        let source = Mem::pattern(12 * PAGE, 146)?;
        let target = Mem::new(24 * PAGE)?;
        let device = env.device()?;
        let context = env.context()?;
        let config = libberth::QpConfig { block: PAGE as u32, ..depths(4, 8) };
        let from = Conn::new(&context, &config)?;
        let mut to = Conn::new(&context, &config)?;
        loop_back(env, &context, &from.qp, &to.qp, 661)?;
        let mut from = from;
        // Grants up to the limit, less what is kept for sends: a third one waits.
        let part = LIMIT / 4;
        let sges: Vec<_> = (0..3).map(|n| target.sge(n * part, part)).collect();
        to.recv(0, &sges)?;
        to.wait_state(env, "the first is announced", |s| s.announced >= 1)?;
        // Less than what is pinned already; and the rest of it goes into other locked memory.
        set(PAGE)?;
        let other = Mem::new(PAGE)?;
        // SAFETY: our own page.
        let locked = unsafe { libc::mlock(other.va(0) as *const libc::c_void, PAGE) };
        ensure!(locked == 0, "mlock: {}", std::io::Error::last_os_error());
        // The limit is that of when the context was made: all three come in the end.
        for n in 0..3u64 {
            from.send(n, &[source.sge(n as usize * part, part)])?;
            ensure_eq!(to.received(env)?.ok()?.wr_id, n);
            from.sent(env)?.ok()?;
        }
        check(&target.bytes()[..3 * part], 146, 0)?;
        ensure!(device.counters()?.pinned() <= LIMIT as u64);
        // A context that is made now has the new limit.
        let small = env.context()?;
        let (_from, mut to) = loop_pair(env, &small, &config, 662)?;
        to.recv(9, &[target.sge(0, 2 * PAGE)])?;
        ensure_eq!(to.received(env)?.status, Status::OverBudget);
        Ok(())
    })?;
    ensure_eq!(code, 0);
    Ok(())
}

// ---- shares ------------------------------------------------------------------------------------------------------

/// Kinds of processes that want everything, how many shares the stream's is one of, and whether only `--long` looks at
/// them. Beside the one that rings the card is never idle, and all the time in which the stream's slow host does its
/// part counts: there the test only demands that the stream goes on and the card is in service.
const RIVALS: [(&str, Option<u64>, bool); 4] = [
    ("rival-posts", Some(2), false),
    ("rival-connects", Some(2), false),
    ("rival-all-queue-pairs", Some(25), true),
    ("rival-rings", None, false),
];

/// A process that wants everything, until it is killed.
pub fn rival(name: &str, env: &Env) -> Res {
    match name {
        "rival-posts" => post_for_ever(env, 1),
        "rival-all-queue-pairs" => post_for_ever(env, 24),
        "rival-connects" => connect_for_ever(env),
        "rival-rings" => ring_for_ever(env),
        "rival-holds" => hold_the_budget(env),
        "rival-never-answers" => never_answer(env),
        other => fail(format!("no rival {other}")),
    }
}

/// Rings all doorbell pages that a process may have, in two threads: of a queue pair without a connection, which firmware
/// looks at, and what the card drops; with `--long` in a third one of completion queues, one of which has a completion and
/// so notifies each time.
fn ring_for_ever(env: &Env) -> Res {
    const CONTEXTS: usize = 16;
    /// A bus holds up a processor that has so many writes under way; QEMU does so with `--long` only (docs/internals/simulator.md). A
    /// read waits for them, too.
    const CREDITS: usize = 64;
    let contexts: Vec<_> = (0..CONTEXTS).map(|_| env.context()).collect::<Res<_>>()?;
    let idle = Conn::new(&contexts[0], &depths(4, 4))?;
    let source = Mem::pattern(PAGE, 149)?;
    let target = Mem::new(PAGE)?;
    let (mut from, mut to) = loop_pair(env, &contexts[0], &depths(4, 4), 668)?;
    to.recv(0, &[target.sge(0, PAGE)])?;
    from.send(0, &[source.sge(0, PAGE)])?;
    from.sent(env)?.ok()?;
    let mut bells = vec![
        vec![(host::DB_SQ, u64::from(idle.qp.qpn())), (host::DB_RQ, u64::from(idle.qp.qpn()))],
        vec![
            (host::DB_WQE, 1),
            (host::DB_SQ, u64::from(from.qp.qpn())),
            (0x18, 1),
            (host::DB_CQ, 63),
            (host::DB_SQ, 0),
        ],
    ];
    if env.args.long {
        bells
            .push(vec![(host::DB_CQ, u64::from(to.recvs.cqn()) | 1 << 63), (host::DB_CQ, u64::from(idle.recvs.cqn()))]);
    }
    crate::service::ready()?;
    std::thread::scope(|scope| {
        for bells in &bells {
            let contexts = &contexts;
            scope.spawn(move || {
                for n in 0.. {
                    let (offset, value) = bells[n % bells.len()];
                    // The first page, which has the queues, and the others by turns.
                    let context = if n % 2 == 0 { &contexts[0] } else { &contexts[n / 2 % CONTEXTS] };
                    // SAFETY: no index goes beyond what has been posted, so that no element is read; and a read of the page,
                    // which gives all ones.
                    unsafe {
                        raw::doorbell(context, offset, value).expect("in its own process");
                        if !env.args.long && n % CREDITS == 0 {
                            raw::doorbell_page(context).cast::<u64>().read_volatile();
                        }
                    }
                }
            });
        }
    });
    Ok(())
}

/// Takes all the places of requests that wait, and answers none.
fn never_answer(env: &Env) -> Res {
    let device = env.device()?;
    let busy = || -> Res<u64> { Ok(device.counters()?.fw(c::F_REQUESTS_BUSY)) };
    let context = env.context()?;
    let before = busy()?;
    let _deaf = (673..676).map(|service| Ok(context.listen(service)?)).collect::<Res<Vec<_>>>()?;
    let mut asking = Vec::new();
    let cq = context.create_cq(4)?;
    for n in 0..card::CM_REQUESTS {
        let qp = context.create_qp(&cq, &cq, &depths(4, 4))?;
        qp.start_connect(env.own_ip, 673 + (n % 3) as u16, b"")?;
        asking.push(qp);
    }
    wait_until("those beyond its share are refused", env.hang, || {
        Ok(busy()? >= before + u64::from(card::CM_REQUESTS) / 2)
    })?;
    crate::service::ready()?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn inv_5_requests_that_nobody_answers_leave_places_to_others(env: &Env) -> Res {
    let device = env.device()?;
    let context = env.context()?;
    let listener = context.listen(676)?;
    let mut child = crate::service::start_helper(env, "rival-never-answers")?;
    let result = (|| -> Res {
        let refused = device.counters()?.fw(c::F_REQUESTS_BUSY);
        // This process's share is free, again and again.
        let cq = context.create_cq(4)?;
        for _ in 0..2 {
            let from = context.create_qp(&cq, &cq, &depths(4, 4))?;
            let to = context.create_qp(&cq, &cq, &depths(4, 4))?;
            from.start_connect(env.own_ip, 676, b"")?;
            listener.next(env.limit())?.accept(&to, b"")?;
            to.wait_established(env.limit())?;
            from.wait_established(env.limit())?;
        }
        ensure_eq!(device.counters()?.fw(c::F_REQUESTS_BUSY), refused);
        Ok(())
    })();
    child.kill()?;
    child.wait()?;
    result
}

fn inv_5_requests_that_are_taken_back_are_forgotten(env: &Env) -> Res {
    let context = env.context()?;
    let listener = context.listen(677)?;
    // As many as may wait, all of which this process has taken, and none is answered.
    let cq = context.create_cq(4)?;
    let mut taken_back = Vec::new();
    for n in 0..card::CM_REQUESTS {
        let from = context.create_qp(&cq, &cq, &depths(4, 4))?;
        from.start_connect(env.own_ip, 677, &n.to_le_bytes())?;
        taken_back.push(listener.next(env.limit())?);
    }
    let from = context.create_qp(&cq, &cq, &depths(4, 4))?;
    let to = context.create_qp(&cq, &cq, &depths(4, 4))?;
    from.start_connect(env.own_ip, 677, b"the last")?;
    let request = listener.next(env.limit())?;
    ensure_eq!(request.private_data(), b"the last");
    request.accept(&to, b"")?;
    to.wait_established(env.limit())?;
    from.wait_established(env.limit())?;
    // Answering a request that was taken back gives an error.
    let spare = context.create_qp(&cq, &cq, &depths(4, 4))?;
    for request in taken_back {
        let answered = request.accept(&spare, b"");
        ensure!(matches!(answered, Err(libberth::Error::NotFound { .. })), "{answered:?}");
    }
    Ok(())
}

/// Keeps so many connections busy with 16 KiB after 16 KiB.
fn post_for_ever(env: &Env, count: u16) -> Res {
    const SIZE: usize = 16384;
    let context = &env.context()?;
    let source = Mem::pattern(SIZE, 147)?;
    let target = Mem::new(SIZE)?;
    let mut pairs = Vec::new();
    let sends = context.create_cq(1024)?;
    let recvs = context.create_cq(1024)?;
    for _ in 0..count {
        let mut ends = Vec::new();
        for _ in 0..2 {
            let qp = context.create_qp(&sends, &recvs, &depths(8, 8))?;
            ends.push(Conn { qp, sends: sends.clone(), recvs: recvs.clone() });
        }
        loop_back(env, context, &ends[0].qp, &ends[1].qp, 663)?;
        for end in 0..8 {
            ends[1].recv(end, &[target.sge(0, SIZE)])?;
            ends[0].send(end, &[source.sge(0, SIZE)])?;
        }
        pairs.push(ends);
    }
    crate::service::ready()?;
    loop {
        let got = recvs.wait(env.limit())?.ok()?;
        let pair = pairs.iter_mut().find(|p| p[1].qp.qpn() == got.qpn).ok_or("whose is it?")?;
        pair[1].recv(0, &[target.sge(0, SIZE)])?;
        while let Some(sent) = sends.poll()? {
            let qpn = sent.ok()?.qpn;
            let pair = pairs.iter_mut().find(|p| p[0].qp.qpn() == qpn).ok_or("whose is it?")?;
            pair[0].send(0, &[source.sge(0, SIZE)])?;
        }
    }
}

/// Makes connections and ends them, one after the other.
fn connect_for_ever(env: &Env) -> Res {
    let context = env.context()?;
    let listener = context.listen(678)?;
    let cq = context.create_cq(4)?;
    for round in 0u64.. {
        let from = context.create_qp(&cq, &cq, &depths(4, 4))?;
        let to = context.create_qp(&cq, &cq, &depths(4, 4))?;
        from.start_connect(env.own_ip, 678, b"")?;
        listener.next(env.limit())?.accept(&to, b"")?;
        to.wait_established(env.limit())?;
        from.wait_established(env.limit())?;
        from.disconnect()?;
        to.wait_closed(env.limit())?;
        if round == 0 {
            crate::service::ready()?;
        }
    }
    Ok(())
}

/// Receives of many connections to which nothing is ever sent: grants for all that may be pinned, and more that wait.
fn hold_the_budget(env: &Env) -> Res {
    const CONNECTIONS: usize = 8;
    const RECEIVES: usize = 16;
    const SIZE: usize = 16384;
    let context = env.context()?;
    let target = Mem::new(CONNECTIONS * RECEIVES * SIZE)?;
    let mut held = Vec::new();
    for n in 0..CONNECTIONS {
        let (from, mut to) = loop_pair(env, &context, &depths(4, 16), 679)?;
        let sges: Vec<_> = (0..RECEIVES).map(|at| target.sge((n * RECEIVES + at) * SIZE, SIZE)).collect();
        to.recv(0, &sges)?;
        held.push((from, to));
    }
    let device = env.device()?;
    let waits = device.counters()?.drv(c::D_BUDGET_WAITS);
    wait_until("the budget is short", env.hang, || Ok(device.counters()?.drv(c::D_BUDGET_WAITS) > waits))?;
    crate::service::ready()?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A loopback stream whose rate is taken.
struct Probe {
    source: Mem,
    target: Mem,
    from: Conn,
    to: Conn,
}

impl Probe {
    const SIZE: usize = 16384;

    /// Sends up to `count` messages at a time.
    fn new(env: &Env, context: &libberth::Context, count: usize, service: u16) -> Res<Self> {
        let (from, to) = loop_pair(env, context, &depths(64, 64), service)?;
        Ok(Self { source: Mem::pattern(count * Self::SIZE, 148)?, target: Mem::new(count * Self::SIZE)?, from, to })
    }

    /// Bytes per 1000 cycles in which the card has work, while `count` messages go.
    fn rate(&mut self, env: &Env, count: usize) -> Res<u64> {
        let sges: Vec<_> = (0..count).map(|n| self.target.sge(n * Self::SIZE, Self::SIZE)).collect();
        let seen = self.to.qp.state()?.announced;
        self.to.recv(0, &sges)?;
        self.to.wait_state(env, "some of it is announced", |s| s.announced != seen)?;
        let start = env.busy_cycles()?;
        for n in 0..count {
            self.from.send(n as u64, &[self.source.sge(n * Self::SIZE, Self::SIZE)])?;
        }
        for _ in 0..count {
            self.to.received(env)?.ok()?;
        }
        let cycles = env.busy_cycles()? - start;
        for _ in 0..count {
            self.from.sent(env)?.ok()?;
        }
        check(&self.target.bytes()[..count * Self::SIZE], 148, 0)?;
        Ok((count * Self::SIZE) as u64 * 1000 / cycles)
    }
}

fn inv_5_greedy_processes_leave_a_stream_its_share(env: &Env) -> Res {
    const COUNT: usize = 32;
    let device = env.device()?;
    // Pages stay where they are, so that the card's rate is seen and not the host's.
    let _linger = crate::memory::Linger::set(env, 60_000)?;
    let context = env.context()?;
    let mut probe = Probe::new(env, &context, COUNT, 667)?;
    probe.rate(env, COUNT)?;
    let alone = probe.rate(env, COUNT)?;
    let before = of_driver(&device.counters()?, INCIDENTS);
    let mut worst = Vec::new();
    for (name, shares, long) in RIVALS {
        if long && !env.args.long {
            continue;
        }
        let rung = device.counters()?.rtl(c::C_DOORBELLS);
        let mut child = crate::service::start_helper(env, name)?;
        let beside = probe.rate(env, COUNT);
        let lives = child.try_wait()?.is_none();
        child.kill()?;
        child.wait()?;
        let beside = beside?;
        ensure!(lives, "{name} has ended by itself");
        let rung = device.counters()?.rtl(c::C_DOORBELLS) - rung;
        println!(
            "figures: {name}: {beside} bytes per 1000 cycles, {alone} alone: {} % ({rung} doorbells taken)",
            beside * 100 / alone
        );
        // Its fair share minus 25 % for switching between QPs.
        if shares.is_some_and(|shares| beside * shares * 100 < alone * 75) {
            worst.push(name);
        }
        wait_until("nothing is left of it", env.hang, || Ok(device.counters()?.drv(c::D_CONTEXTS) == 1))?;
    }
    ensure!(worst.is_empty(), "too little is left beside {worst:?}");
    ensure_eq!(of_driver(&device.counters()?, INCIDENTS), before);
    Ok(())
}

fn pc_3_a_process_with_the_whole_budget_leaves_a_stream_its_share(env: &Env) -> Res {
    /// Of the card. The rival wants four times as much; the stream has less than that under way.
    const BUDGET: u64 = 512 << 10;
    const COUNT: usize = 8;
    /// One of nine connections that want memory.
    const SHARES: u64 = 9;
    let budget = crate::memory::Budget::set(env, BUDGET)?;
    let device = env.device()?;
    let context = env.context()?;
    let mut probe = Probe::new(env, &context, COUNT, 680)?;
    probe.rate(env, COUNT)?;
    let alone = probe.rate(env, COUNT)?;
    let before = of_driver(&device.counters()?, INCIDENTS);
    let mut child = crate::service::start_helper(env, "rival-holds")?;
    // Its connections want memory from each other as well, so recalled memory is briefly unused.
    let mut held = 0;
    wait_until("the rival holds most of the budget", env.hang, || {
        held = device.counters()?.pinned();
        Ok(held * 4 > BUDGET * 3)
    })?;
    let beside = (0..env.cases(2, 4)).map(|_| probe.rate(env, COUNT)).collect::<Res<Vec<_>>>();
    let lives = child.try_wait()?.is_none();
    child.kill()?;
    child.wait()?;
    let beside = beside?;
    ensure!(lives, "it has ended by itself");
    let peak = device.counters()?.pinned_peak();
    // Of all rounds, and of the best: in some of them this machine may give the host, which serves pages, no processor,
    // which is no matter of shares.
    let all = beside.len() as f64 / beside.iter().map(|&rate| 1.0 / rate as f64).sum::<f64>();
    let best = beside.iter().max().map_or(0.0, |&rate| rate as f64);
    let [all, best] = [all, best].map(|rate| rate * 100.0 / alone as f64);
    println!(
        "figures: {held} bytes of {BUDGET} held by the rival; {beside:?} bytes per 1000 cycles beside it, {alone} alone: {all:.0} %, at best {best:.0} %"
    );
    ensure!(peak <= BUDGET, "{peak} bytes were pinned");
    // Its fair share minus 25 % for switching between QPs.
    let enough = best * SHARES as f64 >= 75.0;
    ensure!(enough, "too little is left");
    ensure_eq!(of_driver(&device.counters()?, INCIDENTS), before);
    drop(budget);
    Ok(())
}

/// Pages of these two address spaces, so many of each, that all have the same places in the card's translation table.
fn rivals(asids: [u32; 2], counts: [usize; 2]) -> Res<[Vec<Mem>; 2]> {
    /// Where they are found: each address space has about a hundred there for any two rows that it can have.
    const REGION: usize = 64 << 30;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let region = Mem::map(REGION, flags, libc::PROT_NONE, -1)?;
    let rows_of =
        |asid: u32, va: u64| [0, card::XLT_WAYS / 2].map(|n| card::Xlt::HERE.place(asid, va / PAGE as u64, n));
    let all = || (0..REGION).step_by(PAGE).map(|at| region.va(at));
    // Not every two rows are some page's: half of them are.
    let found = all().take(64).find_map(|first| {
        let rows = rows_of(asids[0], first);
        let of = |n: usize| all().filter(|&va| rows_of(asids[n], va) == rows).take(counts[n]).collect::<Vec<_>>();
        Some([of(0), of(1)]).filter(|found| found.iter().zip(counts).all(|(found, count)| found.len() == count))
    });
    drop(region);
    let pages = |vas: Vec<u64>| vas.into_iter().map(Mem::page_at).collect::<Res<_>>();
    let [one, other] = found.ok_or("no such pages")?;
    Ok([pages(one)?, pages(other)?])
}

fn pc_3_pages_without_a_place_in_the_cards_table_wait_for_one(env: &Env) -> Res {
    const PLACES: usize = card::XLT_WAYS as usize;
    const SIZE: usize = 1000;
    const MORE: usize = 8;
    let source = Mem::pattern(PAGE, 160)?;
    let device = env.device()?;
    let pinned =
        |what, pages: usize| wait_until(what, env.hang, || Ok(device.counters()?.pinned() == (pages * PAGE) as u64));
    let (context, other) = (env.context()?, env.context()?);
    let [pages, unused] = rivals([context.asid(), other.asid()], [PLACES + MORE, PLACES])?;
    let waits = device.counters()?.drv(c::D_BUDGET_WAITS);
    let (mut from, mut to) = loop_pair(env, &context, &depths(32, 32), 941)?;
    // Of one connection: those behind get their places from those before them.
    pinned("nothing is pinned", 0)?;
    for (n, page) in (0..).zip(&pages) {
        to.recv(n, &[page.sge(0, PAGE)])?;
    }
    // Places go to the requests that came first: all before the first one without a place are granted.
    pinned("the table is full", PLACES)?;
    to.wait_state(env, "something is granted", |s| s.granted > 0)?;
    for _ in 0..10 {
        ensure!(to.qp.state()?.granted as usize <= PLACES);
    }
    for n in 0..pages.len() {
        from.send(n as u64, &[source.sge(n, SIZE)])?;
    }
    for (n, page) in pages.iter().enumerate() {
        ensure_eq!(to.received(env)?.ok()?.wr_id, n as u64);
        check(&page.bytes()[..SIZE], 160, n as u64)?;
        from.sent(env)?.ok()?;
    }
    // Of two processes: what one does not use goes to the other, and comes back.
    let (mut idle_from, mut idle_to) = loop_pair(env, &other, &depths(32, 32), 942)?;
    pinned("nothing is pinned any more", 0)?;
    for (n, page) in (0..).zip(&unused) {
        idle_to.recv(n, &[page.sge(0, PAGE)])?;
    }
    idle_to.wait_state(env, "the table is full of what nobody uses", |s| s.granted as usize == PLACES)?;
    for (n, page) in (0..).zip(&pages) {
        to.recv(n, &[page.sge(0, PAGE)])?;
        from.send(n, &[source.sge(100 + n as usize, SIZE)])?;
        ensure_eq!(to.received(env)?.ok()?.wr_id, n);
        from.sent(env)?.ok()?;
        check(&page.bytes()[..SIZE], 160, 100 + n)?;
    }
    // Memory of sends as well.
    to.recv(0, &[pages[0].sge(0, PAGE)])?;
    from.send(0, &[pages[1].sge(0, SIZE)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len as usize, SIZE);
    from.sent(env)?.ok()?;
    for (n, page) in unused.iter().enumerate() {
        idle_from.send(n as u64, &[source.sge(200 + n, SIZE)])?;
        ensure_eq!(idle_to.received(env)?.ok()?.wr_id, n as u64);
        idle_from.sent(env)?.ok()?;
        check(&page.bytes()[..SIZE], 160, 200 + n as u64)?;
    }
    // They did not wait for budget.
    ensure_eq!(device.counters()?.drv(c::D_BUDGET_WAITS), waits);
    Ok(())
}

fn pc_3_budget_that_the_cards_table_cannot_hold_is_refused(env: &Env) -> Res {
    let limit = u64::from(card::XLT_ENTRIES) * PAGE as u64;
    let device = env.device()?;
    let context = env.context()?;
    let _budget = Budget::set(env, limit)?;
    context.set_budget(limit)?;
    // A budget that could never be used up is refused.
    let more = limit + PAGE as u64;
    let before = env.counters()?.drv(c::D_BAD_IOCTL);
    for refused in
        [device.set_limits(&Limits { card_budget: Some(more), ..Limits::default() }), context.set_budget(more)]
    {
        match refused {
            Err(libberth::Error::Invalid { .. }) => {}
            other => return fail(format!("a budget larger than the table: {other:?}")),
        }
    }
    ensure_eq!(device.info()?.card_budget, limit);
    ensure_eq!(env.counters()?.drv(c::D_BAD_IOCTL), before + 2);
    // Some minutes: eight thousand pages are pinned several times.
    for _ in 0..env.cases(0, 1) {
        let source = Mem::pattern(PAGE, 161)?;
        let target = Mem::new(limit as usize + PAGE)?;
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 944)?;
        to.recv(0, &[target.sge(0, limit as usize + PAGE)])?;
        ensure_eq!(to.received(env)?.status, Status::OverBudget);
        from.send(0, &[source.sge(0, 1000)])?;
        to.recv(1, &[target.sge(0, PAGE)])?;
        ensure_eq!(to.received(env)?.ok()?.byte_len, 1000);
        from.sent(env)?.ok()?;
        check(&target.bytes()[..1000], 161, 0)?;
    }
    loopback_works(env, 943)
}
