// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Complaints of users of other cards and libraries (docs/concepts/field-reports.md): threads that share a completion
//! queue, a card that goes while many wait, processes that inherit objects that they must not use, numbers that are
//! used again.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use libberth::{Context, Error, QpStateKind, Reason, Result as CardResult, Sge, Status, Stream, WorkRequest};

use crate::connections::loopback_works;
use crate::env::Env;
use crate::service::{ready, start_helper};
use crate::util::{Conn, Mem, PAGE, Res, check, depths, in_child, loop_pair, of_driver, receive_pattern, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: f1_waiters_on_one_queue_get_a_completion_each, f1_waiters_for_different_events_get_theirs,
         f2_waits_end_when_the_last_queue_pair_goes,
         f3_child_of_fork_is_refused_and_its_drops_touch_nothing, f3_child_of_vfork_is_refused_and_its_drops_touch_nothing,
         f4_queue_pairs_come_and_go_in_many_threads_under_few_numbers,
         qp_2_identical_numbers_on_queues_that_share_one_completion_queue,
         cr_9_two_and_four_gibibytes_are_posted_and_cancelled,
         vc_9_storms_of_unrelated_mappings_revoke_nothing,
         cr_3_a_receiver_that_is_stopped_holds_its_sender_and_nobody_else;
    One Disruptive: f2_loss_of_the_card_ends_every_wait;
}

/// Joins threads; the first failure is the test's.
fn join_all<'s>(threads: impl IntoIterator<Item = thread::ScopedJoinHandle<'s, Res>>) -> Res {
    let outcomes: Vec<Res> = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("panicked".into()))).collect();
    outcomes.into_iter().collect()
}

fn f1_waiters_on_one_queue_get_a_completion_each(env: &Env) -> Res {
    let source = Mem::pattern(64, 700)?;
    let target = Mem::new(16 * 64)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(16, 16), 1000)?;
    // The next message when the one before has been taken, or all at once; two waiters that wait once, or eight.
    for (round, waiters) in (0..).zip([2u64, 2, 8, 8, 3, 8]) {
        let sges: Vec<_> = (0..waiters as usize).map(|n| target.sge(64 * n, 64)).collect();
        to.recv(0, &sges)?;
        let taken = AtomicU64::new(0);
        thread::scope(|scope| -> Res {
            let threads: Vec<_> = (0..waiters)
                .map(|n| {
                    let (queue, taken) = (to.recvs.clone(), &taken);
                    // Some have a limit, some have none.
                    let limit = if n % 2 == 0 { env.limit() } else { None };
                    scope.spawn(move || -> Res {
                        queue.wait(limit)?.ok()?;
                        taken.fetch_add(1, Ordering::Release);
                        Ok(())
                    })
                })
                .collect();
            for n in 0..waiters {
                from.send(n, &[source.sge(0, 64)])?;
                from.sent(env)?.ok()?;
                if round % 2 == 0 {
                    wait_until("a waiter has it", env.hang, || Ok(taken.load(Ordering::Acquire) > n))?;
                }
            }
            join_all(threads)
        })?;
        check(&target.bytes()[..64], 700, 0)?;
    }
    Ok(())
}

fn f1_waiters_for_different_events_get_theirs(env: &Env) -> Res {
    let context = env.context()?;
    for _ in 0..env.cases(2, 20) {
        let ends: Vec<_> = (0..4)
            .map(|_| Ok((Conn::new(&context, &depths(4, 4))?, Conn::new(&context, &depths(4, 4))?)))
            .collect::<Res<_>>()?;
        thread::scope(|scope| {
            let threads: Vec<_> = (1010..)
                .zip(ends)
                .map(|(service, (from, to))| {
                    let context = &context;
                    scope.spawn(move || -> Res {
                        let listener = context.listen(service)?;
                        from.qp.start_connect(env.own_ip, service, b"")?;
                        listener.next(None)?.accept(&to.qp, b"")?;
                        to.qp.wait_established(None)?;
                        from.qp.wait_established(None)?;
                        from.qp.disconnect()?;
                        ensure_eq!(from.qp.wait_closed(None)?, Reason::LocalClose);
                        ensure_eq!(to.qp.wait_closed(None)?, Reason::PeerClose);
                        // Asked again, it is still so.
                        ensure_eq!(to.qp.wait_closed(None)?, Reason::PeerClose);
                        Ok(())
                    })
                })
                .collect();
            join_all(threads)
        })?;
    }
    Ok(())
}

fn f2_loss_of_the_card_ends_every_wait(env: &Env) -> Res {
    let lost = |outcome: CardResult<()>| -> Res {
        ensure!(matches!(outcome, Err(Error::DeviceLost)), "the outcome was {outcome:?}");
        Ok(())
    };
    for round in 0..3 {
        let context = env.context()?;
        let ends: Vec<_> = (0..3).map(|_| Conn::new(&context, &depths(4, 4))).collect::<Res<_>>()?;
        let (from, to) = loop_pair(env, &context, &depths(4, 4), 1020)?;
        let listener = context.listen(1021)?;
        thread::scope(|scope| -> Res {
            let mut threads = Vec::new();
            for conn in &ends {
                for queue in [conn.recvs.clone(), conn.recvs.clone(), conn.sends.clone()] {
                    threads.push(scope.spawn(move || lost(queue.wait(None).map(drop))));
                }
            }
            let listener = &listener;
            threads.push(scope.spawn(move || lost(listener.next(None).map(drop))));
            threads.push(scope.spawn(move || {
                lost(from.qp.wait_closed(None).map(drop))?;
                // And threads that come later.
                lost(from.qp.wait_closed(None).map(drop))?;
                lost(from.recvs.wait(None).map(drop))
            }));
            threads.push(scope.spawn(move || lost(to.recvs.wait(None).map(drop))));
            if round > 0 {
                thread::sleep(Duration::from_millis(50));
            }
            env.device()?.reset()?;
            join_all(threads)
        })?;
        lost(listener.next(None).map(drop))?;
    }
    loopback_works(env, 1022)
}

fn f2_waits_end_when_the_last_queue_pair_goes(env: &Env) -> Res {
    let context = env.context()?;
    let (from, to) = loop_pair(env, &context, &depths(4, 4), 1023)?;
    let queue = to.recvs.clone();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                scope.spawn(move || -> Res {
                    let outcome = queue.wait(None);
                    ensure!(
                        matches!(outcome, Err(Error::Closed { reason: Reason::LocalClose, .. })),
                        "the outcome was {outcome:?}"
                    );
                    Ok(())
                })
            })
            .collect();
        drop(to);
        join_all(threads)
    })?;
    drop(from);
    Ok(())
}

/// Fails unless the outcome is that a process has no right to do so.
fn refused<T: std::fmt::Debug>(outcome: CardResult<T>) -> Res {
    ensure!(matches!(outcome, Err(Error::NotPermitted { .. })), "the outcome was {outcome:?}");
    Ok(())
}

fn f3_child_of_fork_is_refused_and_its_drops_touch_nothing(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 701)?;
    let target = Mem::new(PAGE)?;
    for maps_first in [false, true] {
        let context = env.context()?;
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 1030)?;
        let listener = context.listen(1031)?;
        // An event and a completion wait, which the child must leave to the parent.
        let other = Conn::new(&context, &depths(4, 4))?;
        other.qp.start_connect(env.own_ip, 1031, b"")?;
        to.recv(0, &[target.sge(0, PAGE)])?;
        from.send(0, &[source.sge(0, PAGE)])?;
        from.sent(env)?.ok()?;
        let mappings = card_mappings()?;
        // What fork copies; `in_child` ends without destructors, so they are run there by hand.
        let mut parts = Some((from, to, listener, other, context.clone()));
        let code = in_child(|| {
            let (mut from, to, listener, other, context) = parts.take().ok_or("once")?;
            let mut mapped = Vec::new();
            if maps_first {
                // Exactly where the parent's doorbell page and queues are.
                for (at, len) in mappings {
                    map_at(at, len)?;
                    mapped.push((at, len));
                }
            }
            refused(to.recvs.poll())?;
            refused(to.recvs.arm())?;
            refused(to.recvs.wait(Some(Duration::ZERO)))?;
            refused(listener.next(Some(Duration::ZERO)))?;
            refused(from.qp.wait_closed(Some(Duration::ZERO)))?;
            refused(from.qp.state())?;
            refused(from.qp.disconnect())?;
            refused(context.listen(1032))?;
            refused(context.next_event(Some(Duration::ZERO)))?;
            // SAFETY: refused before anything is looked at.
            refused(unsafe { from.qp.post_send(&[WorkRequest::default()]) })?;
            // SAFETY: as above.
            refused(unsafe { from.qp.post_recv(&[WorkRequest::default()]) })?;
            drop((from, to, listener, other, context));
            for (at, len) in mapped {
                for offset in (0..len).step_by(PAGE) {
                    // SAFETY: mapped above, and nobody else's.
                    let byte = unsafe { (at as *const u8).add(offset).read_volatile() };
                    ensure_eq!(byte, 42);
                }
            }
            // The child may use the card by itself.
            let context = env.context()?;
            drop(context.create_cq(4)?);
            Ok(())
        })?;
        ensure_eq!(code, 0);
        let (mut from, mut to, listener, other, _) = parts.take().ok_or("still here")?;
        ensure_eq!(to.received(env)?.ok()?.byte_len as usize, PAGE);
        let request = listener.next(env.limit())?;
        ensure_eq!(request.peer(), env.own_ip);
        drop((request, other));
        to.recv(0, &[target.sge(0, PAGE)])?;
        from.send(0, &[source.sge(0, PAGE)])?;
        to.received(env)?.ok()?;
        from.sent(env)?.ok()?;
        check(target.bytes(), 701, 0)?;
    }
    Ok(())
}

/// A page or more of the child's own at this address, all bytes 42.
fn map_at(at: usize, len: usize) -> Res {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let ptr = unsafe { libc::mmap(at as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    ensure!(ptr as usize == at, "the child has something at {at:#x}: {}", io::Error::last_os_error());
    // SAFETY: just mapped.
    unsafe { ptr.cast::<u8>().write_bytes(42, len) };
    Ok(())
}

fn f3_child_of_vfork_is_refused_and_its_drops_touch_nothing(env: &Env) -> Res {
    /// What the child does, and what it has seen.
    struct Child<'a> {
        context: &'a Context,
        parts: Option<(Conn, Conn)>,
        outcome: Res,
    }
    extern "C" fn child(arg: *mut libc::c_void) -> i32 {
        // SAFETY: the parent waits, and keeps what the pointer is to.
        let child = unsafe { &mut *arg.cast::<Child<'_>>() };
        child.outcome = (|| {
            let (from, to) = child.parts.as_ref().ok_or("once")?;
            refused(from.qp.state())?;
            refused(from.qp.wait_closed(Some(Duration::ZERO)))?;
            refused(to.recvs.wait(Some(Duration::ZERO)))?;
            refused(child.context.listen(1033))
        })();
        // Objects that the child drops are gone for the parent too, whose memory it uses; the card's objects and the
        // mappings stay.
        child.parts = None;
        0
    }
    let context = env.context()?;
    let (from, to) = loop_pair(env, &context, &depths(4, 4), 1034)?;
    let mappings = card_mappings()?;
    let queues = env.counters()?.drv(c::D_QPS);
    let mut data = Child { context: &context, parts: Some((from, to)), outcome: Ok(()) };
    let mut stack = vec![0u128; 64 << 10];
    // SAFETY: one past the end of the stack, which is aligned as its elements are.
    let top = unsafe { stack.as_mut_ptr().add(stack.len()) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is large enough and outlives the child, as does what it is given.
    let pid = unsafe { libc::clone(child, top.cast(), flags, (&raw mut data).cast()) };
    ensure!(pid > 0, "clone: {}", io::Error::last_os_error());
    ensure_eq!(crate::util::wait_pid(pid)?, 0);
    data.outcome?;
    ensure_eq!(env.counters()?.drv(c::D_QPS), queues);
    for (at, len) in mappings {
        // SAFETY: only asks whether something is mapped.
        ensure!(unsafe { libc::msync(at as *mut _, len, libc::MS_ASYNC) } == 0, "the queue was unmapped");
        // SAFETY: nothing refers to objects that the child has dropped.
        unsafe { libc::munmap(at as *mut _, len) };
    }
    Ok(())
}

fn f4_queue_pairs_come_and_go_in_many_threads_under_few_numbers(env: &Env) -> Res {
    const THREADS: u16 = 4;
    let rounds = env.cases(3, 200);
    let context = env.context()?;
    let shared = context.create_cq(256)?;
    let target = Mem::new(usize::from(THREADS) * PAGE)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (context, shared, target) = (&context, &shared, &target);
                scope.spawn(move || -> Res {
                    let config = depths(4, 4);
                    for round in 0..rounds {
                        let own = context.create_cq(16)?;
                        // Sends complete where others' do, receives in a queue of this thread.
                        let from = context.create_qp(shared, &own, &config)?;
                        let mut to = context.create_qp(shared, &own, &config)?;
                        let listener = context.listen(1040 + n)?;
                        from.start_connect(env.own_ip, 1040 + n, b"")?;
                        listener.next(env.limit())?.accept(&to, b"")?;
                        drop(listener);
                        to.wait_established(env.limit())?;
                        from.wait_established(env.limit())?;
                        let wr_id = u64::from(n) << 32 | round;
                        let sges = [target.sge(usize::from(n) * PAGE, 64)];
                        // SAFETY: the memory outlives the queue pair.
                        unsafe { to.post_recv(&[WorkRequest { wr_id, sges: &sges, ..WorkRequest::default() }]) }?;
                        if round % 2 == 0 {
                            from.disconnect()?;
                            let got = own.wait(env.limit())?;
                            ensure_eq!((got.wr_id, got.qpn), (wr_id, to.qpn()));
                            ensure_eq!(to.recvs_outstanding(), 0);
                            to.wait_closed(env.limit())?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        join_all(threads)
    })
}

fn qp_2_identical_numbers_on_queues_that_share_one_completion_queue(env: &Env) -> Res {
    const PAIRS: u16 = 2;
    let source = Mem::pattern(64, 702)?;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let listener = context.listen(1050)?;
    for end in 0..3 {
        let queue = context.create_cq(256)?;
        let mut qps = Vec::new();
        for _ in 0..PAIRS {
            let from = context.create_qp(&queue, &queue, &depths(4, 4))?;
            let to = context.create_qp(&queue, &queue, &depths(4, 4))?;
            from.start_connect(env.own_ip, 1050, b"")?;
            listener.next(env.limit())?.accept(&to, b"")?;
            to.wait_established(env.limit())?;
            from.wait_established(env.limit())?;
            qps.extend([from, to]);
        }
        // Both queues of all of them have the elements 7, 7, 7; of the receives two are filled.
        let (into, out) = ([target.sge(0, 64)], [source.sge(0, 64)]);
        let posted = [WorkRequest { wr_id: 7, sges: &into, ..WorkRequest::default() }; 3];
        for qp in &mut qps {
            // SAFETY: the memory outlives the queue pairs; that what arrives there overlaps is not looked at.
            unsafe { qp.post_recv(&posted) }?;
        }
        let data = [WorkRequest { wr_id: 7, sges: &out, ..WorkRequest::default() }; 2];
        for qp in &mut qps {
            // SAFETY: as above.
            unsafe { qp.post_send(&data) }?;
        }
        let mut seen: Vec<_> = qps.iter().map(|qp| (qp.qpn(), [0u32; 2])).collect();
        let mut note = |outcome: libberth::Completion, good: bool| -> Res {
            let (_, counts) = seen.iter_mut().find(|(qpn, _)| *qpn == outcome.qpn).ok_or("of no queue pair")?;
            let count = &mut counts[usize::from(outcome.recv)];
            *count += 1;
            ensure_eq!(outcome.wr_id, 7);
            ensure_eq!((outcome.recv, *count, outcome.ok().is_ok()), (outcome.recv, *count, good));
            Ok(())
        };
        for _ in 0..4 * 2 * PAIRS {
            note(queue.wait(env.limit())?, true)?;
        }
        match end {
            // Disconnected, both ends of each.
            0 => qps.iter().step_by(2).try_for_each(|qp| qp.disconnect())?,
            // Stopped by a malformed element.
            1 => {
                for qp in qps.iter_mut().step_by(2) {
                    let bad = libberth::abi::wqe::Wqe { opcode: 99, wr_id: 7, ..Default::default() };
                    // SAFETY: the card makes nothing of it.
                    unsafe { qp.post_raw(false, &bad) }?;
                }
                for _ in 0..PAIRS {
                    // It completes as bad; the receive that is left is flushed, in any order among queue pairs.
                    note(queue.wait(env.limit())?, false)?;
                }
            }
            // Dropped: the remaining completions are not delivered any more.
            _ => {
                qps.clear();
                ensure!(matches!(queue.wait(None), Err(Error::Closed { .. })));
                continue;
            }
        }
        for _ in 0..2 * PAIRS {
            note(queue.wait(env.limit())?, false)?;
        }
        ensure!(queue.poll()?.is_none(), "a completion too many");
        ensure!(qps.iter().all(|qp| qp.sends_outstanding() == 0 && qp.recvs_outstanding() == 0));
    }
    Ok(())
}

fn cr_9_two_and_four_gibibytes_are_posted_and_cancelled(env: &Env) -> Res {
    const GIB: usize = 1 << 30;
    // Nothing of it is ever touched: no credit comes for the sends, and the receives are cancelled.
    let memory = Mem::map(
        2 * GIB,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        libc::PROT_READ | libc::PROT_WRITE,
        -1,
    )?;
    let context = env.context()?;
    let (mut from, to) = loop_pair(env, &context, &depths(8, 8), 1060)?;
    let longest: [Sge; 2] = [memory.sge(0, GIB), memory.sge(GIB, GIB - 1)];
    // The longest element there is twice, and what makes 2^32 - 1 bytes with it; not a byte more.
    from.send(1, &longest)?;
    from.send(2, &longest)?;
    ensure!(matches!(from.send(3, &longest), Err(e) if e.to_string().contains("4 GiB of sends")));
    from.send(3, &[memory.sge(0, 1)])?;
    ensure!(from.send(4, &[memory.sge(0, 1)]).is_err());
    ensure_eq!(from.qp.sends_outstanding(), 3);
    // An element of 2^31 bytes is refused by itself.
    ensure!(
        matches!(from.send(5, &[memory.sge(0, GIB), memory.sge(0, GIB)]), Err(e) if e.to_string().contains("2 GiB - 1"))
    );
    // The card has taken all of it, and holds it.
    ensure_eq!(from.qp.state()?.kind, QpStateKind::Connected);
    from.qp.disconnect()?;
    for wr_id in 1..=3 {
        let sent = from.sent(env)?;
        ensure_eq!((sent.wr_id, sent.status), (wr_id, Status::Flushed));
    }
    ensure_eq!(to.qp.wait_closed(env.limit())?, Reason::PeerClose);
    drop((from, to));
    // All of it is room again, and the bytes that are left are told right where they pass 2^31.
    let (mut from, mut to) = loop_pair(env, &context, &depths(8, 8), 1061)?;
    from.send(1, &longest)?;
    from.send(2, &[memory.sge(0, GIB)])?;
    let target = Mem::new(2 * PAGE)?;
    to.recv(0, &[target.sge(0, PAGE), target.sge(PAGE, 1)])?;
    for (len, left) in [(PAGE, 3 * GIB - 1 - PAGE), (1, 3 * GIB - 2 - PAGE)] {
        let got = to.received(env)?.ok()?;
        ensure_eq!((got.byte_len as usize, got.remaining as usize), (len, left));
    }
    Ok(())
}

/// Bytes that the stopped receiver gets, and of each of its buffers.
const STREAM: usize = 512 << 10;
const PIECE: usize = 8192;
/// Service that it listens to.
const STOPPED: u16 = 1070;

/// The helper: receives a stream of the pattern.
pub fn receive_all(env: &Env) -> Res {
    let context = env.context()?;
    let mut stream = Stream::new(&context, &depths(4, 16), 16 * PIECE)?;
    stream.post_recv(&[PIECE; 16])?;
    let listener = context.listen(STOPPED)?;
    ready()?;
    listener.next(env.limit())?.accept(stream.queue_pair(), b"")?;
    receive_pattern(env, &mut stream, &mut std::iter::repeat(PIECE), STREAM as u64, 703)?;
    stream.queue_pair().wait_closed(env.limit())?;
    Ok(())
}

fn cr_3_a_receiver_that_is_stopped_holds_its_sender_and_nobody_else(env: &Env) -> Res {
    let source = Mem::pattern(STREAM, 703)?;
    let other_source = Mem::pattern(PAGE, 704)?;
    let other_target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut other, mut other_to) = loop_pair(env, &context, &depths(4, 4), 1071)?;
    let mut child = start_helper(env, "stopped_receiver")?;
    let mut conn = Conn::new(&context, &depths(64, 4))?;
    conn.qp.connect(env.own_ip, STOPPED, b"", env.limit())?;
    for n in 0..STREAM / PIECE {
        if n == 8 {
            conn.sent(env)?.ok()?;
            // SAFETY: no memory is involved.
            ensure!(unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) } == 0);
        }
        conn.send(n as u64, &[source.sge(n * PIECE, PIECE)])?;
    }
    // Only the buffers that the stopped process has posted are filled.
    conn.wait_state(env, "all credits are used", |s| s.credits == 0)?;
    let mut nap = Duration::from_millis(50);
    let pause = Duration::from_secs(if env.args.long { 60 } else { 2 });
    let begin = Instant::now();
    while begin.elapsed() < pause {
        other_to.recv(0, &[other_target.sge(0, PAGE)])?;
        other.send(0, &[other_source.sge(0, PAGE)])?;
        other_to.received(env)?.ok()?;
        other.sent(env)?.ok()?;
        ensure_eq!(conn.qp.state()?.kind, QpStateKind::Connected);
        thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_secs(1));
    }
    check(other_target.bytes(), 704, 0)?;
    ensure!(conn.qp.sends_outstanding() > 0, "a process that is stopped has received");
    // SAFETY: no memory is involved.
    ensure!(unsafe { libc::kill(child.id() as i32, libc::SIGCONT) } == 0);
    while conn.qp.sends_outstanding() > 0 {
        conn.sent(env)?.ok()?;
    }
    drop(conn);
    ensure!(child.wait()?.success(), "the receiver failed");
    Ok(())
}

fn vc_9_storms_of_unrelated_mappings_revoke_nothing(env: &Env) -> Res {
    const SIZE: usize = 4 * PAGE;
    let source = Mem::pattern(SIZE, 705)?;
    let target = Mem::new(SIZE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 1075)?;
    let traffic = |from: &mut Conn, to: &mut Conn| -> Res<u64> {
        let begin = env.device()?.info()?.cycles;
        for n in 0..env.cases(20, 1000) {
            to.recv(n, &[target.sge(0, SIZE)])?;
            from.send(n, &[source.sge(0, SIZE)])?;
            to.received(env)?.ok()?;
            from.sent(env)?.ok()?;
        }
        Ok(env.device()?.info()?.cycles - begin)
    };
    let quiet = traffic(&mut from, &mut to)?;
    let before = of_driver(&env.counters()?, [c::D_REVOKED]);
    let stop = AtomicBool::new(false);
    let (cycles, storms) = thread::scope(|scope| -> Res<_> {
        let storm = scope.spawn(|| -> Res<u64> {
            let mut storms = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut other = Mem::new(64 * PAGE)?;
                other.bytes_mut().fill(1);
                for prot in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
                    // SAFETY: nobody has a reference to it.
                    ensure!(unsafe { libc::mprotect(other.va(0) as *mut _, 64 * PAGE, prot) } == 0);
                }
                // There may be no large pages.
                let _ = other.advise(0, 64 * PAGE, libc::MADV_COLLAPSE);
                other.advise(0, 32 * PAGE, libc::MADV_DONTNEED)?;
                other.unmap(16 * PAGE, 16 * PAGE)?;
                storms += 1;
            }
            Ok(storms)
        });
        let cycles = traffic(&mut from, &mut to);
        stop.store(true, Ordering::Relaxed);
        let storms = storm.join().unwrap_or_else(|_| Err("the storm panicked".into()))?;
        Ok((cycles?, storms))
    })?;
    ensure_eq!(of_driver(&env.counters()?, [c::D_REVOKED]), before);
    println!("figures: {quiet} card cycles without, {cycles} beside {storms} storms");
    check(target.bytes(), 705, 0)
}

/// Signals that the program's own handler got.
static OWN_SIGBUS: AtomicU64 = AtomicU64::new(0);

/// A program that has a use for SIGBUS itself, before it opens the card: it puts memory where there is none.
pub fn own_sigbus_handler() {
    extern "C" fn handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        OWN_SIGBUS.fetch_add(1, Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: system calls only; a page takes the place of the one that is not there.
        unsafe {
            let page = (*info).si_addr().map_addr(|a| a & !(PAGE - 1));
            libc::mmap(page, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        }
    }
    // SAFETY: a handler with the arguments that SA_SIGINFO wants, in an otherwise zeroed structure, as is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// The library has handled only signals for its doorbell page.
pub fn own_sigbus_goes_to_its_handler() -> Res {
    ensure_eq!(OWN_SIGBUS.load(Ordering::Relaxed), 0);
    let path = std::env::temp_dir().join(format!("berth-sigbus-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(PAGE as u64)?;
    let memory = Mem::map(PAGE, libc::MAP_SHARED, libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd())?;
    file.set_len(0)?;
    // SAFETY: mapped, and there is a page in it by the time the access is carried out.
    unsafe { (memory.va(0) as *mut u64).write_volatile(7) };
    ensure_eq!(OWN_SIGBUS.load(Ordering::Relaxed), 1);
    Ok(())
}

/// Address and length of each mapping of the card that this process has: queues and the doorbell page.
fn card_mappings() -> Res<Vec<(usize, usize)>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let of_card = maps.lines().filter(|line| line.contains("/dev/berth"));
    let found: Vec<_> = of_card
        .map(|line| {
            let (start, rest) = line.split_once('-').ok_or("a range")?;
            let (end, _) = rest.split_once(' ').ok_or("the end of a range")?;
            let (start, end) = (usize::from_str_radix(start, 16)?, usize::from_str_radix(end, 16)?);
            Ok((start, end - start))
        })
        .collect::<Res<_>>()?;
    ensure!(!found.is_empty(), "nothing is mapped");
    Ok(found)
}
