// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual contexts, pin on credit, and what applications do to their memory meanwhile: VC-1 to VC-9, PC-1 to PC-3.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use berth_abi::counters as c;
use libberth::{Again, Device, First, Limits, QpConfig, SendMemory, Sge, Status, Stream, WorkRequest};

use crate::env::{Env, Role};
use crate::util::{
    Conn, Mem, PAGE, Res, check, depths, establish, fill, in_child, loop_pair, reap_all, receive_pattern, send_pattern,
    wait_until,
};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: pc_3_pinned_bytes_stay_inside_the_budget, vc_1_swapped_out_blocks_are_sent;
    One: pc_3_receive_larger_than_the_cards_budget_is_refused, pc_3_receive_larger_than_the_processs_budget_is_refused,
         vc_3_nothing_is_pinned_when_nothing_is_outstanding,
         pc_1_posted_receive_is_pinned_when_granted_and_unpinned_when_filled;
    Pair: pc_3_block_larger_than_the_budget_is_refused, pc_3_blocks_of_a_small_budget_are_small,
          vc_3_nothing_is_pinned_while_acknowledgements_are_held,
          vc_8_several_blocks_leave_before_an_acknowledgement, vc_4_retransmission_pins_again,
          vc_6_sends_by_copy_pin_nothing_over_a_lossy_wire, vc_10_sends_choose_over_a_lossy_wire,
          vc_7_a_whole_send_is_pinned_at_its_start_and_goes_as_it_is_sent,
          vc_5_retransmission_by_copy_pins_nothing,
          vc_9_unmapped_send_memory_fails_cleanly, vc_9_dontneed_sends_what_the_application_would_see,
          vc_9_moved_send_memory_fails_cleanly, vc_9_withdrawn_receive_memory_is_noticed_at_both_ends,
          vc_9_fork_does_no_harm;
    One: vc_9_file_mapping_is_sent, vc_9_truncated_file_fails_cleanly, vc_9_shared_file_is_sent_but_refused_for_receiving,
         pc_1_receive_that_cannot_be_pinned_fails_and_later_ones_go_on, vc_9_read_only_memory_is_not_received_into,
         vc_9_swapped_out_receive_buffers_are_brought_in, pc_3_memlock_limit_counts,
         vc_9_rewritten_memory_is_sent_as_it_is_now_while_pins_linger, vc_9_grant_survives_reclaim_of_its_pages,
         vc_9_grant_is_withdrawn_when_the_right_to_write_goes,
         vc_9_granted_memory_that_moves_or_loses_its_file_is_withdrawn,
         vc_9_granted_memory_at_the_end_of_a_large_change_is_withdrawn,
         inv_4_memory_is_written_no_more_when_it_has_moved,
         vc_9_page_that_was_sent_is_received_into_while_its_pin_lingers,
         vc_9_very_many_granted_pages_stay_or_go_together, pc_3_lowered_budget_has_idle_pages_given_back,
         pc_3_raised_budget_serves_who_waits_for_it,
         decision_17_fences_of_many_threads_are_all_answered;
}

/// Sets the card's budget, and back when dropped.
pub struct Budget {
    device: Device,
    before: u64,
}

impl Budget {
    /// The card's budget becomes `bytes`.
    pub fn set(env: &Env, bytes: u64) -> Res<Self> {
        let device = env.device()?;
        let before = device.info()?.card_budget;
        device.set_limits(&Limits { card_budget: Some(bytes), reset_peak: true, ..Limits::default() })?;
        Ok(Self { device, before })
    }

    /// It becomes more than that.
    pub fn raise(&self, bytes: u64) -> Res {
        self.device.set_limits(&Limits { card_budget: Some(bytes), ..Limits::default() })?;
        Ok(())
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let limits = Limits { card_budget: Some(self.before), ..Limits::default() };
        if let Err(e) = self.device.set_limits(&limits) {
            eprintln!("budget not restored: {e}");
        }
    }
}

fn pc_3_pinned_bytes_stay_inside_the_budget(env: &Env) -> Res {
    const BUDGET: u64 = 64 << 10;
    const TOTAL: usize = 512 << 10;
    let budget = Budget::set(env, BUDGET)?;
    let context = env.context()?;
    let config = QpConfig { block: 16 << 10, ..depths(16, 32) };
    let mut stream = Stream::new(&context, &config, 1 << 20)?;
    if env.role == Role::B {
        // Four times what may be pinned.
        for _ in 0..32 {
            stream.post_recv(&[8192])?;
        }
    }
    establish(env, &context, stream.queue_pair(), 300)?;
    match env.role {
        Role::A => {
            send_pattern(&mut stream, TOTAL, 128 << 10, 30, env)?;
            reap_all(&mut stream, env)?;
        }
        Role::B => {
            receive_pattern(env, &mut stream, &mut std::iter::repeat(8192), TOTAL as u64, 30)?;
        }
    }
    let counters = budget.device.counters()?;
    let peak = counters.pinned_peak();
    ensure!(peak <= BUDGET, "{peak} bytes were pinned, but the budget is {BUDGET}");
    ensure!(peak > 0);
    env.meet("done")
}

fn vc_1_swapped_out_blocks_are_sent(env: &Env) -> Res {
    const TOTAL: usize = 128 << 10;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 31)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 16))?;
    if env.role == Role::B {
        let sges: Vec<_> = (0..8).map(|n| mem.sge(n * 16384, 16384)).collect();
        conn.recv(0, &sges)?;
    }
    establish(env, &context, &conn.qp, 301)?;
    match env.role {
        Role::A => {
            mem.page_out()?;
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            conn.sent(env)?.ok()?;
        }
        Role::B => {
            for _ in 0..8 {
                ensure_eq!(conn.received(env)?.ok()?.byte_len, 16384);
            }
            check(mem.bytes(), 31, 0)?;
        }
    }
    env.meet("done")
}

fn vc_9_swapped_out_receive_buffers_are_brought_in(env: &Env) -> Res {
    const TOTAL: usize = 64 << 10;
    let source = Mem::swapped_out(TOTAL, 32)?;
    let target = Mem::swapped_out(TOTAL, 33)?;
    target.page_out()?;
    source.page_out()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 302)?;
    // Half of it only: the rest keeps what was swapped out.
    to.recv(0, &[target.sge(100, TOTAL / 2)])?;
    from.send(0, &[source.sge(0, TOTAL / 2)])?;
    to.received(env)?.ok()?;
    check(&target.bytes()[100..100 + TOTAL / 2], 32, 0)?;
    check(&target.bytes()[..100], 33, 0)?;
    check(&target.bytes()[100 + TOTAL / 2..], 33, 100 + TOTAL as u64 / 2)
}

fn pc_3_receive_larger_than_the_cards_budget_is_refused(env: &Env) -> Res {
    let source = Mem::swapped_out(64 << 10, 34)?;
    let target = Mem::new(64 << 10)?;
    let context = env.context()?;
    let config = QpConfig { block: 64 << 10, ..depths(4, 16) };
    let (mut from, mut to) = loop_pair(env, &context, &config, 303)?;
    // The sends and the receives are of one process here: two pages are a receive buffer and a one-page block.
    let _budget = Budget::set(env, 2 * PAGE as u64)?;
    to.recv(0, &[target.sge(0, 64 << 10)])?;
    let got = to.received(env)?;
    ensure_eq!(got.status, Status::OverBudget);
    to.recv(1, &[target.sge(0, 100)])?;
    from.send(0, &[source.sge(0, 100)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len, 100);
    from.sent(env)?.ok()?;
    ensure!(env.counters()?.pinned_peak() <= 2 * PAGE as u64);
    Ok(())
}

fn pc_3_receive_larger_than_the_processs_budget_is_refused(env: &Env) -> Res {
    let source = Mem::swapped_out(PAGE, 35)?;
    let target = Mem::new(64 << 10)?;
    let context = env.context()?;
    context.set_budget(4 * PAGE as u64)?;
    let over = || -> Res<u64> { Ok(env.counters()?.drv(c::D_OVER_BUDGET)) };
    let before = over()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 16), 304)?;
    to.recv(0, &[target.sge(0, 5 * PAGE), target.sge(0, PAGE)])?;
    let first = to.received(env)?;
    ensure_eq!((first.wr_id, first.status), (0, Status::OverBudget));
    from.send(0, &[source.sge(0, PAGE)])?;
    let second = to.received(env)?.ok()?;
    ensure_eq!((second.wr_id, second.byte_len as usize), (1, PAGE));
    check(&target.bytes()[..PAGE], 35, 0)?;
    ensure_eq!(over()?, before + 1);
    Ok(())
}

fn vc_3_nothing_is_pinned_when_nothing_is_outstanding(env: &Env) -> Res {
    let source = Mem::swapped_out(64 << 10, 36)?;
    let target = Mem::new(64 << 10)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 305)?;
    to.recv(0, &[target.sge(0, 64 << 10)])?;
    from.send(0, &[source.sge(0, 64 << 10)])?;
    to.received(env)?.ok()?;
    from.sent(env)?.ok()?;
    let device = env.device()?;
    wait_until("nothing pinned when nothing is outstanding", env.hang, || Ok(device.counters()?.pinned() == 0))
}

fn vc_3_nothing_is_pinned_while_acknowledgements_are_held(env: &Env) -> Res {
    const TOTAL: usize = 32 << 10;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 37)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { timeout: u32::MAX, ..depths(4, 4) })?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, TOTAL)])?;
    }
    establish(env, &context, &conn.qp, 306)?;
    if env.role == Role::A {
        conn.wait_state(env, "the credit has come", |s| s.credits == 1)?;
        env.sim("hold b")?;
        let result = (|| {
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            let device = env.device()?;
            wait_until("the block was sent and unpinned", env.hang, || {
                let n = device.counters()?;
                Ok(conn.qp.state()?.pieces == 1 && n.pinned() == 0)
            })?;
            // It is not acknowledged yet.
            ensure!(conn.sends.poll()?.is_none());
            Ok(())
        })();
        env.sim("release b")?;
        result?;
        conn.sent(env)?.ok()?;
    } else {
        conn.received(env)?.ok()?;
        check(mem.bytes(), 37, 0)?;
    }
    env.meet("done")
}

fn vc_4_retransmission_pins_again(env: &Env) -> Res {
    const TOTAL: usize = 32 << 10;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 38)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 4))?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, TOTAL)])?;
    }
    establish(env, &context, &conn.qp, 307)?;
    if env.role == Role::A {
        let device = env.device()?;
        let again = |n: libberth::Counters| n.rtl(c::C_FP_AGAIN);
        let before = again(device.counters()?);
        conn.wait_state(env, "the credit has come", |s| s.credits == 1)?;
        // Acknowledgements stay at the wire until something was sent again; the application has swapped it out.
        env.sim("hold b")?;
        let result = (|| {
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            wait_until("blocks were requested again", env.hang, || {
                let _ = mem.advise(0, TOTAL, libc::MADV_PAGEOUT);
                Ok(again(device.counters()?) > before)
            })
        })();
        env.sim("release b")?;
        result?;
        conn.sent(env)?.ok()?;
    } else {
        ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, TOTAL);
        check(mem.bytes(), 38, 0)?;
    }
    env.meet("done")
}

/// Takes `RLIMIT_MEMLOCK` down to 64 KiB, without the right to exceed it.
fn little_memlock() -> Res {
    drop_ipc_lock()?;
    let limit = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
    // SAFETY: a valid limit.
    let ret = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    ensure!(ret == 0, "setrlimit: {}", std::io::Error::last_os_error());
    Ok(())
}

/// The highest figure of pinned memory begins anew.
fn reset_peak(device: &Device) -> Res {
    device.set_limits(&Limits { reset_peak: true, ..Limits::default() })?;
    Ok(())
}

/// What was sent by copy since the counters were `before`, nothing of it pinned.
fn only_copied(device: &Device, before: &libberth::Counters) -> Res {
    let now = device.counters()?;
    let since = |index| now.drv(index) - before.drv(index);
    let (copies, bytes, peak) = (since(c::D_COPIES), since(c::D_COPIED_BYTES), now.drv(c::D_COPY_PEAK));
    println!(
        "figures: by copy: pinned at most {} bytes, {copies} copies of {bytes} bytes, at most {peak}",
        now.pinned_peak()
    );
    ensure_eq!((now.pinned_peak(), since(c::D_PAGES_PINNED)), (0, 0));
    ensure!(copies > 0 && bytes >= copies * PAGE as u64);
    Ok(())
}

/// A sends by copy what is in swap, and then small messages out of one page, which it rewrites while earlier ones are under
/// way. Frames are lost. B finds each as it was when it was posted, and A has nothing pinned at any time.
fn vc_6_sends_by_copy_pin_nothing_over_a_lossy_wire(env: &Env) -> Res {
    lossy(env, 345, SendMemory::COPY, &[])
}

/// Likewise with each other policy for the first transmission and for what goes again, and all by turns.
fn vc_10_sends_choose_over_a_lossy_wire(env: &Env) -> Res {
    let mut all = vec![SendMemory::AUTO];
    for first in [First::Pin, First::Copy, First::Whole] {
        all.extend([Again::Pin, Again::Copy].map(|again| SendMemory { first, again }));
    }
    for (service, memory) in (347..).zip(all.iter().filter(|memory| **memory != SendMemory::COPY)) {
        let each = if *memory == SendMemory::AUTO { &all[..] } else { &[] };
        lossy(env, service, *memory, each)?;
    }
    Ok(())
}

/// A sends seven ranges, as a whole, for whose first page B has a receive. All of them are pinned then, and when B has taken the
/// rest nothing is.
fn vc_7_a_whole_send_is_pinned_at_its_start_and_goes_as_it_is_sent(env: &Env) -> Res {
    const RANGE: usize = 8 * PAGE;
    const TOTAL: usize = 7 * RANGE;
    let mem = match env.role {
        Role::A => Mem::swapped_out(2 * TOTAL, 51)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let device = env.device()?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { memory: SendMemory::WHOLE, ..depths(4, 4) })?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, PAGE)])?;
    }
    establish(env, &context, &conn.qp, 354)?;
    match env.role {
        Role::A => {
            reset_peak(&device)?;
            // Every second range: they are no neighbours.
            let sges: Vec<_> = (0..7).map(|n| mem.sge(2 * n * RANGE, RANGE)).collect();
            conn.send(0, &sges)?;
            // It does not stay for ever if the peer has no receive.
            wait_until("the whole send is pinned", env.hang, || {
                Ok(device.counters()?.pinned_peak() >= (TOTAL - PAGE) as u64)
            })?;
            env.tell("pinned", "")?;
            conn.sent(env)?.ok()?;
            wait_until("nothing is pinned", env.hang, || Ok(device.counters()?.drv(c::D_PINNED) == 0))?;
        }
        Role::B => {
            ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, PAGE);
            env.hear("pinned")?;
            conn.recv(1, &[mem.sge(PAGE, TOTAL - PAGE)])?;
            ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, TOTAL - PAGE);
            for n in 0..7 {
                check(&mem.bytes()[n * RANGE..(n + 1) * RANGE], 51, (2 * n * RANGE) as u64)?;
            }
        }
    }
    env.meet("done")
}

/// Small messages choose `each` by turns, the others what the queue pair has.
fn lossy(env: &Env, service: u16, memory: SendMemory, each: &[SendMemory]) -> Res {
    const TOTAL: usize = 128 << 10;
    const SMALL: usize = 64;
    const MESSAGES: usize = 4 * SLOTS;
    const SLOTS: usize = PAGE / SMALL;
    little_memlock()?;
    let mut mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 48)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let device = env.device()?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { memory, block: 16 << 10, ..depths(SLOTS as u32, SLOTS as u32) })?;
    if env.role == Role::B {
        // Not all at a time: they do not fit B's own limit.
        conn.recv(0, &[mem.sge(0, 16384)])?;
    }
    establish(env, &context, &conn.qp, service)?;
    if env.role == Role::A {
        reset_peak(&device)?;
        mem.page_out()?;
    }
    env.meet(&format!("connected-{service}"))?;
    if env.role == Role::A {
        env.sim("faults loss=0.05")?;
    }
    let before = device.counters()?;
    let result = (|| match env.role {
        Role::A => {
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            conn.sent(env)?.ok()?;
            for n in 0..MESSAGES {
                if n >= SLOTS {
                    conn.sent(env)?.ok()?;
                }
                let at = n % SLOTS * SMALL;
                fill(&mut mem.bytes_mut()[at..at + SMALL], 49, (n * SMALL) as u64);
                let choice = each.get(n % each.len().max(1)).copied();
                let sges = [mem.sge(at, SMALL)];
                let request = WorkRequest { wr_id: n as u64, sges: &sges, memory: choice, ..WorkRequest::default() };
                // SAFETY: as in `Conn::send`.
                unsafe { conn.qp.post_send(&[request]) }?;
            }
            (0..SLOTS).try_for_each(|_| conn.sent(env)?.ok().map(drop).map_err(Into::into))
        }
        Role::B => {
            for n in 1..8 {
                ensure_eq!(conn.received(env)?.ok()?.byte_len, 16384);
                conn.recv(n, &[mem.sge(n as usize * 16384, 16384)])?;
            }
            ensure_eq!(conn.received(env)?.ok()?.byte_len, 16384);
            check(mem.bytes(), 48, 0)?;
            let sges: Vec<_> = (0..SLOTS).map(|n| mem.sge(n * SMALL, SMALL)).collect();
            conn.recv(0, &sges)?;
            for n in 0..MESSAGES {
                ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, SMALL);
                let at = n % SLOTS * SMALL;
                check(&mem.bytes()[at..at + SMALL], 49, (n * SMALL) as u64)?;
                if n + SLOTS < MESSAGES {
                    conn.recv(n as u64, &[sges[n % SLOTS]])?;
                }
            }
            Ok(())
        }
    })();
    if env.role == Role::A {
        env.sim("faults loss=0")?;
    }
    result?;
    if env.role == Role::A {
        let now = device.counters()?;
        let [copies, pins] = [c::D_COPIES, c::D_PAGES_PINNED].map(|index| now.drv(index) - before.drv(index));
        println!(
            "figures: {memory:?}: {copies} copies, {pins} pins, {} bytes pinned at most; sends of up to {} are copied",
            now.pinned_peak(),
            now.drv(c::D_COPY_MOST)
        );
        ensure!(now.pinned_peak() <= 64 << 10);
        match memory {
            SendMemory::COPY => only_copied(&device, &before)?,
            SendMemory::PIN => ensure!(copies == 0 && pins > 0),
            // As many as have an alias at a time; the others are pinned.
            SendMemory { first: First::Copy, .. } => ensure!(copies >= (MESSAGES / 4) as u64),
            SendMemory { first: First::Auto, .. } => ensure!(copies >= (MESSAGES / 8) as u64 && pins > 0),
            _ => ensure!(pins > 0),
        }
    }
    env.meet(&format!("done-{service}"))
}

fn vc_5_retransmission_by_copy_pins_nothing(env: &Env) -> Res {
    const TOTAL: usize = 32 << 10;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 50)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { memory: SendMemory::COPY, ..depths(4, 4) })?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, TOTAL)])?;
    }
    establish(env, &context, &conn.qp, 346)?;
    if env.role == Role::A {
        let device = env.device()?;
        reset_peak(&device)?;
        let before = device.counters()?;
        conn.wait_state(env, "the credit has come", |s| s.credits == 1)?;
        // As in `vc_4_retransmission_pins_again`.
        env.sim("hold b")?;
        let result = (|| {
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            wait_until("blocks were requested again", env.hang, || {
                let _ = mem.advise(0, TOTAL, libc::MADV_PAGEOUT);
                let now = device.counters()?;
                let copied = now.drv(c::D_COPIED_BYTES) - before.drv(c::D_COPIED_BYTES);
                Ok(now.rtl(c::C_FP_AGAIN) > before.rtl(c::C_FP_AGAIN) && copied > TOTAL as u64)
            })
        })();
        env.sim("release b")?;
        result?;
        conn.sent(env)?.ok()?;
        only_copied(&device, &before)?;
    } else {
        ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, TOTAL);
        check(mem.bytes(), 50, 0)?;
    }
    env.meet("done")
}

/// A sends 32 KiB of which only the first 8 KiB have a credit, does something to the rest, and then B posts for the
/// rest.
fn mid_transfer(
    env: &Env,
    service: u16,
    meddle: impl FnOnce(&Mem) -> Res,
    sender_after: impl FnOnce(&Conn) -> Res,
    receiver_after: impl FnOnce(&Conn, &Mem) -> Res,
) -> Res {
    const TOTAL: usize = 32 << 10;
    const FIRST: usize = 8 << 10;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 39)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { block: 8192, ..depths(4, 4) })?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, FIRST)])?;
    }
    establish(env, &context, &conn.qp, service)?;
    match env.role {
        Role::A => {
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            env.hear("first-part")?;
            meddle(&mem)?;
            env.tell("meddled", "")?;
            sender_after(&conn)?;
        }
        Role::B => {
            ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, FIRST);
            check(&mem.bytes()[..FIRST], 39, 0)?;
            env.tell("first-part", "")?;
            env.hear("meddled")?;
            conn.recv(1, &[mem.sge(FIRST, TOTAL - FIRST)])?;
            receiver_after(&conn, &mem)?;
        }
    }
    env.meet("done")
}

fn sender_fails(env: &Env, conn: &Conn) -> Res {
    ensure_eq!(conn.sent(env)?.status, Status::LocalProtection);
    // Both sides know.
    conn.qp.wait_closed(env.limit())?;
    Ok(())
}

fn receiver_is_told(env: &Env, conn: &Conn) -> Res {
    let reason = conn.qp.wait_closed(env.limit())?;
    ensure!(reason != libberth::Reason::LocalClose, "{reason:?}");
    ensure_eq!(conn.received(env)?.status, Status::Flushed);
    Ok(())
}

fn vc_9_unmapped_send_memory_fails_cleanly(env: &Env) -> Res {
    mid_transfer(
        env,
        310,
        |mem| mem.unmap(16 << 10, 16 << 10),
        |conn| sender_fails(env, conn),
        |conn, _| receiver_is_told(env, conn),
    )
}

/// Moves memory, from `offset` on, to where other memory is, all of which it replaces.
fn move_to(mem: &Mem, offset: usize, new: &Mem) -> Res {
    let (len, flags) = (new.bytes().len(), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let [from, to] = [mem.va(offset), new.va(0)].map(|va| va as *mut libc::c_void);
    // SAFETY: our own mapping takes the place of another one of ours; nothing refers to its old place any more.
    let moved = unsafe { libc::mremap(from, len, len, flags, to) };
    ensure!(moved == to, "mremap: {}", std::io::Error::last_os_error());
    Ok(())
}

fn vc_9_moved_send_memory_fails_cleanly(env: &Env) -> Res {
    let moved = std::cell::Cell::new(None);
    mid_transfer(
        env,
        311,
        |mem| {
            let new = Mem::new(8 << 10)?;
            move_to(mem, 24 << 10, &new)?;
            moved.set(Some(new));
            Ok(())
        },
        |conn| sender_fails(env, conn),
        |conn, _| receiver_is_told(env, conn),
    )
}

fn vc_9_dontneed_sends_what_the_application_would_see(env: &Env) -> Res {
    mid_transfer(
        env,
        312,
        |mem| mem.advise(16 << 10, 16 << 10, libc::MADV_DONTNEED),
        |conn| conn.sent(env)?.ok().map(drop).map_err(Into::into),
        |conn, mem| {
            conn.received(env)?.ok()?;
            check(&mem.bytes()[8 << 10..16 << 10], 39, 8 << 10)?;
            ensure!(mem.bytes()[16 << 10..].iter().all(|b| *b == 0), "stale bytes were sent");
            Ok(())
        },
    )
}

fn vc_9_withdrawn_receive_memory_is_noticed_at_both_ends(env: &Env) -> Res {
    let mem = Mem::swapped_out(16 << 10, 40)?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 4))?;
    let device = env.device()?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, 16 << 10)])?;
    }
    establish(env, &context, &conn.qp, 313)?;
    match env.role {
        Role::B => {
            conn.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
            let before = device.counters()?.drv(c::D_REVOKED);
            mem.unmap(0, 16 << 10)?;
            // The fence has ended when munmap returns: nothing of it is pinned.
            wait_until("the pages are unpinned", env.hang, || Ok(device.counters()?.pinned() == 0))?;
            ensure!(device.counters()?.drv(c::D_REVOKED) > before);
            env.tell("withdrawn", "")?;
            let got = conn.received(env)?;
            ensure!(matches!(got.status, Status::Withdrawn | Status::Flushed), "{:?}", got.status);
            conn.qp.wait_closed(env.limit())?;
        }
        Role::A => {
            env.hear("withdrawn")?;
            conn.send(0, &[mem.sge(0, 16 << 10)])?;
            let sent = conn.sent(env)?;
            ensure!(sent.status != Status::Ok, "sent into memory that was gone");
            conn.qp.wait_closed(env.limit())?;
        }
    }
    env.meet("done")
}

fn vc_9_fork_does_no_harm(env: &Env) -> Res {
    const TOTAL: usize = 256 << 10;
    let mut mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 41)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { block: 16 << 10, ..depths(16, 16) })?;
    if env.role == Role::B {
        let sges: Vec<_> = (0..16).map(|n| mem.sge(n * 16384, 16384)).collect();
        conn.recv(0, &sges)?;
    }
    establish(env, &context, &conn.qp, 314)?;
    env.meet("go")?;
    if env.role == Role::A {
        for n in 0..16 {
            conn.send(n, &[mem.sge(n as usize * 16384, 16384)])?;
        }
    }
    for n in 0..16usize {
        // The child shares all pages copy-on-write, for as long as it lives, and writes to its copies.
        let target = mem.va(n * 16384) as *mut u8;
        let code = in_child(|| {
            // SAFETY: the child's own copy of the mapping.
            unsafe { target.write_volatile(0xff) };
            Ok(())
        })?;
        ensure_eq!(code, 0);
        match env.role {
            Role::A => {
                conn.sent(env)?.ok()?;
                // Sent and acknowledged: the application uses it again.
                fill(&mut mem.bytes_mut()[n * 16384..(n + 1) * 16384], 42, 0);
            }
            Role::B => {
                let got = conn.received(env)?.ok()?;
                ensure_eq!((got.wr_id as usize, got.byte_len), (n, 16384));
            }
        }
    }
    if env.role == Role::B {
        check(mem.bytes(), 41, 0)?;
    }
    env.meet("done")
}

/// A temporary file that holds the pattern.
fn pattern_file(len: usize, seed: u64) -> Res<File> {
    let path = std::env::temp_dir().join(format!("berth-pattern-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed, 0);
    file.write_all(&bytes)?;
    Ok(file)
}

fn vc_9_file_mapping_is_sent(env: &Env) -> Res {
    let file = pattern_file(20_000, 43)?;
    let source = Mem::map(20_000, libc::MAP_SHARED, libc::PROT_READ, file.as_raw_fd())?;
    let target = Mem::new(20_000)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 320)?;
    to.recv(0, &[target.sge(0, 20_000)])?;
    from.send(0, &[source.sge(0, 20_000)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len, 20_000);
    check(target.bytes(), 43, 0)
}

fn vc_9_truncated_file_fails_cleanly(env: &Env) -> Res {
    let file = pattern_file(32 << 10, 44)?;
    let source = Mem::map(32 << 10, libc::MAP_PRIVATE, libc::PROT_READ, file.as_raw_fd())?;
    let target = Mem::new(32 << 10)?;
    let context = env.context()?;
    let config = QpConfig { block: 8192, ..depths(4, 4) };
    let (mut from, mut to) = loop_pair(env, &context, &config, 321)?;
    to.recv(0, &[target.sge(0, 8 << 10)])?;
    from.send(0, &[source.sge(0, 32 << 10)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len, 8 << 10);
    check(&target.bytes()[..8 << 10], 44, 0)?;
    file.set_len(16 << 10)?;
    to.recv(1, &[target.sge(8 << 10, 24 << 10)])?;
    sender_fails(env, &from)
}

/// A block device of its own, removed when dropped. Its pages are written back, as those of a file on a disk are.
struct Disk {
    number: String,
}

impl Disk {
    fn new(bytes: usize) -> Res<Self> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add")?.trim().to_owned();
        let disk = Self { number };
        std::fs::write(format!("/sys/block/zram{}/disksize", disk.number), bytes.to_string())?;
        Ok(disk)
    }

    fn open(&self) -> Res<File> {
        Ok(File::options().read(true).write(true).open(format!("/dev/zram{}", self.number))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(e) = std::fs::write("/sys/class/zram-control/hot_remove", &self.number) {
            eprintln!("zram{} stays: {e}", self.number);
        }
    }
}

fn vc_9_shared_file_is_sent_but_refused_for_receiving(env: &Env) -> Res {
    let disk = Disk::new(16 * PAGE)?;
    let file = disk.open()?;
    let mut shared = Mem::map(PAGE, libc::MAP_SHARED, libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd())?;
    fill(shared.bytes_mut(), 80, 0);
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 322)?;
    // The card would write behind the file system's back (decision 16).
    to.recv(0, &[shared.sge(0, PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::LocalProtection);
    to.recv(1, &[target.sge(0, PAGE)])?;
    from.send(1, &[shared.sge(0, PAGE)])?;
    to.received(env)?.ok()?;
    check(target.bytes(), 80, 0)
}

/// Sets the linger time, and back to none when dropped.
pub struct Linger(Device);

impl Linger {
    /// It becomes `ms` milliseconds.
    pub fn set(env: &Env, ms: u32) -> Res<Self> {
        let device = env.device()?;
        device.set_limits(&Limits { linger_ms: Some(ms), ..Limits::default() })?;
        Ok(Self(device))
    }
}

impl Drop for Linger {
    fn drop(&mut self) {
        if let Err(e) = self.0.set_limits(&Limits { linger_ms: Some(0), ..Limits::default() }) {
            eprintln!("linger time not restored: {e}");
        }
    }
}

/// Memory that is sent while it shares pages with others, then written or dropped by the application, and sent
/// again while the pin of the first time lingers: the second time must send what the application sees.
fn vc_9_rewritten_memory_is_sent_as_it_is_now_while_pins_linger(env: &Env) -> Res {
    let file = pattern_file(PAGE, 81)?;
    let private = libc::MAP_PRIVATE;
    let anonymous = private | libc::MAP_ANONYMOUS;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 329)?;
    let _linger = Linger::set(env, 60_000)?;
    for (what, flags, fd) in [("zero page", anonymous, -1), ("private file page", private, file.as_raw_fd())] {
        let mut source = Mem::map(PAGE, flags, rw, fd)?;
        for round in 0..3u64 {
            match round {
                // As mapped: never written by this process.
                0 => {}
                1 => fill(source.bytes_mut(), 82, 0),
                // Back to what was mapped.
                _ => source.advise(0, PAGE, libc::MADV_DONTNEED)?,
            }
            to.recv(round, &[target.sge(0, PAGE)])?;
            from.send(round, &[source.sge(0, PAGE)])?;
            to.received(env)?.ok()?;
            from.sent(env)?.ok()?;
            ensure!(target.bytes() == source.bytes(), "{what}, round {round}: other bytes were sent");
        }
    }
    Ok(())
}

/// Threads of a process, each of which takes pages away from the card, and waits for its own fences.
fn decision_17_fences_of_many_threads_are_all_answered(env: &Env) -> Res {
    const THREADS: usize = 4;
    const PAGES: usize = 16;
    let rounds = env.cases(3, 8);
    let source = Mem::pattern(THREADS * PAGES * PAGE, 85)?;
    let target = Mem::new(THREADS * PAGES * PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 332)?;
    let _linger = Linger::set(env, 60_000)?;
    let before = device.counters()?;
    for round in 0..rounds {
        to.recv(round, &[target.sge(0, THREADS * PAGES * PAGE)])?;
        from.send(round, &[source.sge(0, THREADS * PAGES * PAGE)])?;
        to.received(env)?.ok()?;
        from.sent(env)?.ok()?;
        std::thread::scope(|scope| -> Res {
            let source = &source;
            let dropping = |thread: usize| {
                move || {
                    (0..PAGES)
                        .try_for_each(|n| source.advise((n * THREADS + thread) * PAGE, PAGE, libc::MADV_DONTNEED))
                        .map_err(|e| e.to_string())
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(dropping(thread))).collect();
            for thread in threads {
                thread.join().map_err(|_| "a thread has panicked")??;
            }
            Ok(())
        })?;
    }
    let after = device.counters()?;
    let fences = after.drv(c::D_FENCES) - before.drv(c::D_FENCES);
    ensure!(fences >= rounds * PAGES as u64, "only {fences} fences");
    ensure_eq!(after.drv(c::D_FENCE_TIMEOUTS), before.drv(c::D_FENCE_TIMEOUTS));
    Ok(())
}

/// Changes the protection of the first pages.
pub fn protect(mem: &Mem, pages: usize, prot: i32) -> Res {
    // SAFETY: of our own mapping; nobody holds a reference to it that the protection would forbid.
    let ret = unsafe { libc::mprotect((mem.va(0) as *mut u8).cast(), pages * PAGE, prot) };
    ensure!(ret == 0, "mprotect: {}", std::io::Error::last_os_error());
    Ok(())
}

fn vc_9_grant_survives_reclaim_of_its_pages(env: &Env) -> Res {
    let source = Mem::swapped_out(4 * PAGE, 83)?;
    let target = Mem::new(4 * PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 330)?;
    to.recv(0, &[target.sge(0, 4 * PAGE)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    // Decision 18: a change that leaves page and right as they were revokes nothing.
    target.advise(0, 4 * PAGE, libc::MADV_PAGEOUT)?;
    target.advise(0, 4 * PAGE, libc::MADV_COLD)?;
    from.send(0, &[source.sge(0, 4 * PAGE)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len as usize, 4 * PAGE);
    check(target.bytes(), 83, 0)
}

fn vc_9_grant_is_withdrawn_when_the_right_to_write_goes(env: &Env) -> Res {
    let source = Mem::swapped_out(4 * PAGE, 84)?;
    let target = Mem::new(4 * PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 331)?;
    to.recv(0, &[target.sge(0, 4 * PAGE)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    let before = device.counters()?.drv(c::D_REVOKED);
    protect(&target, 4, libc::PROT_READ)?;
    wait_until("the grant is revoked", env.hang, || Ok(device.counters()?.drv(c::D_REVOKED) > before))?;
    wait_until("and unpinned", env.hang, || Ok(device.counters()?.pinned() == 0))?;
    from.send(0, &[source.sge(0, 4 * PAGE)])?;
    ensure!(from.sent(env)?.status != Status::Ok);
    ensure!(to.received(env)?.status != Status::Ok);
    ensure!(target.bytes().iter().all(|b| *b == 0), "written without the right to write");
    Ok(())
}

/// A receive is announced, and then its memory changes. Data for it is not written anywhere.
fn withdrawn_by(env: &Env, service: u16, target: Sge, what: &str, meddle: impl FnOnce() -> Res) -> Res {
    let source = Mem::pattern(4 * PAGE, 86)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), service)?;
    to.recv(0, &[target])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    let before = device.counters()?;
    meddle()?;
    wait_until(what, env.hang, || {
        let n = device.counters()?;
        Ok(n.drv(c::D_REVOKED) > before.drv(c::D_REVOKED) && n.pinned() == 0)
    })?;
    from.send(0, &[source.sge(0, target.len as usize)])?;
    let (sent, got) = (from.sent(env)?.status, to.received(env)?.status);
    ensure!(sent != Status::Ok, "{what}: sent into memory that was gone");
    ensure!(matches!(got, Status::Withdrawn | Status::Flushed), "{what}: {got:?}");
    ensure_eq!((what, to.qp.wait_closed(env.limit())?), (what, libberth::Reason::Withdrawn));
    from.qp.wait_closed(env.limit())?;
    ensure_eq!(device.counters()?.fw(c::F_WITHDRAWN), before.fw(c::F_WITHDRAWN) + 1);
    Ok(())
}

fn vc_9_granted_memory_that_moves_or_loses_its_file_is_withdrawn(env: &Env) -> Res {
    const LEN: usize = 4 * PAGE;
    let (old, new) = (Mem::new(LEN)?, Mem::new(LEN)?);
    withdrawn_by(env, 333, old.sge(0, LEN), "moved", || move_to(&old, 0, &new))?;
    ensure!(new.bytes().iter().all(|b| *b == 0), "what had moved was written");
    for (service, flags, what) in [(334, libc::MAP_PRIVATE, "private"), (335, libc::MAP_SHARED, "shared")] {
        let file = pattern_file(LEN, 87)?;
        let target = Mem::map(LEN, flags, libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd())?;
        withdrawn_by(env, service, target.sge(0, LEN), what, || Ok(file.set_len(0)?))?;
        file.set_len(LEN as u64)?;
        ensure!(target.bytes().iter().all(|b| *b == 0), "{what}: the file was written when it was cut off");
    }
    Ok(())
}

/// So large that the driver hears of the change long before it has come to the granted pages.
fn vc_9_granted_memory_at_the_end_of_a_large_change_is_withdrawn(env: &Env) -> Res {
    const LEN: usize = 32 << 20;
    let mut large = Mem::new(LEN)?;
    large.bytes_mut().fill(1);
    let granted = large.sge(LEN - 4 * PAGE, 4 * PAGE);
    withdrawn_by(env, 345, granted, "thrown away", || large.advise(0, LEN, libc::MADV_DONTNEED))?;
    ensure!(large.bytes()[LEN - 4 * PAGE..].iter().all(|b| *b == 0), "what was thrown away was written");
    Ok(())
}

/// Data are arriving in memory while it moves: when the call that moves it is over, so is that (invariant 4).
fn inv_4_memory_is_written_no_more_when_it_has_moved(env: &Env) -> Res {
    const LEN: usize = 16 * PAGE;
    let source = Mem::pattern(LEN, 88)?;
    let device = env.device()?;
    let context = env.context()?;
    for round in 0..4 {
        let (old, new) = (Mem::new(LEN)?, Mem::new(LEN)?);
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 346 + round)?;
        to.recv(0, &[old.sge(0, LEN)])?;
        to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
        from.send(0, &[source.sge(0, LEN)])?;
        wait_until("something has arrived", env.hang, || Ok(old.bytes()[..PAGE].iter().any(|b| *b != 0)))?;
        move_to(&old, 0, &new)?;
        let then = new.bytes().to_vec();
        ensure!(from.sent(env)?.status != Status::Ok, "sent into memory that was gone");
        wait_until("nothing is pinned", env.hang, || Ok(device.counters()?.pinned() == 0))?;
        let arrived = then.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        println!("round {round}: {arrived} bytes had arrived");
        ensure!(new.bytes() == then, "it was written when it had moved; {arrived} bytes had arrived");
    }
    Ok(())
}

/// More pages than the driver looks at, or takes away, at a time.
fn vc_9_very_many_granted_pages_stay_or_go_together(env: &Env) -> Res {
    const PAGES: usize = 150;
    let source = Mem::pattern(PAGES * PAGE, 84)?;
    let mut target = Mem::new(PAGES * PAGE)?;
    target.bytes_mut().fill(1);
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 337)?;
    to.recv(0, &[target.sge(0, PAGES * PAGE)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    let before = device.counters()?.drv(c::D_REVOKED);
    // As they were in the end (decision 18): looked at, and kept.
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    protect(&target, PAGES, rw | libc::PROT_EXEC)?;
    protect(&target, PAGES, rw)?;
    from.send(0, &[source.sge(0, PAGES * PAGE)])?;
    to.received(env)?.ok()?;
    from.sent(env)?.ok()?;
    check(target.bytes(), 84, 0)?;
    ensure_eq!(device.counters()?.drv(c::D_REVOKED), before);
    // Not any more: some are taken away, whereupon the card releases all others, and none stays pinned.
    to.recv(1, &[target.sge(0, PAGES * PAGE)])?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 2)?;
    target.advise(0, PAGES * PAGE, libc::MADV_DONTNEED)?;
    wait_until("all pages are taken away", env.hang, || {
        let n = device.counters()?;
        Ok(n.drv(c::D_REVOKED) > before && n.pinned() == 0)
    })?;
    from.send(1, &[source.sge(0, PAGE)])?;
    ensure!(from.sent(env)?.status != Status::Ok);
    ensure!(to.received(env)?.status != Status::Ok);
    ensure!(target.bytes().iter().all(|b| *b == 0), "written behind the process's back");
    Ok(())
}

fn pc_3_lowered_budget_has_idle_pages_given_back(env: &Env) -> Res {
    const PAGES: usize = 8;
    let source = Mem::pattern(PAGES * PAGE, 77)?;
    let target = Mem::new(PAGES * PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 338)?;
    let _linger = Linger::set(env, 60_000)?;
    let mut transfer = |len: usize| -> Res {
        to.recv(0, &[target.sge(0, len)])?;
        from.send(0, &[source.sge(0, len)])?;
        to.received(env)?.ok()?;
        from.sent(env)?.ok()?;
        check(&target.bytes()[..len], 77, 0)
    };
    transfer(PAGES * PAGE)?;
    ensure_eq!(device.counters()?.pinned(), 2 * (PAGES * PAGE) as u64);
    // A budget as large as the pinned memory changes nothing. With a smaller one idle pages go, whatever the linger
    // time.
    context.set_budget(2 * (PAGES * PAGE) as u64)?;
    ensure_eq!(device.counters()?.pinned(), 2 * (PAGES * PAGE) as u64);
    context.set_budget((PAGES * PAGE) as u64)?;
    wait_until("idle pages are given back", env.hang, || Ok(device.counters()?.pinned() == 0))?;
    transfer(2 * PAGE)?;
    ensure_eq!(device.counters()?.pinned(), 4 * PAGE as u64);
    Ok(())
}

fn pc_3_raised_budget_serves_who_waits_for_it(env: &Env) -> Res {
    const FEW: u64 = 16 * PAGE as u64;
    const MANY: u64 = 64 * PAGE as u64;
    let source = Mem::pattern(PAGE, 78)?;
    let target = Mem::new(10 * PAGE)?;
    for (service, of_card) in [(339, true), (341, false)] {
        let context = env.context()?;
        let config = QpConfig { block: PAGE as u32, ..depths(4, 4) };
        let mut pairs = [loop_pair(env, &context, &config, service)?, loop_pair(env, &context, &config, service + 1)?];
        let budget = Budget::set(env, if of_card { FEW } else { MANY })?;
        if !of_card {
            context.set_budget(FEW)?;
        }
        let waits = env.counters()?.drv(c::D_BUDGET_WAITS);
        // Half of the budget is for receives: one of these.
        for ((_, to), n) in pairs.iter_mut().zip(0..) {
            to.recv(0, &[target.sge(n * 5 * PAGE, 5 * PAGE)])?;
        }
        wait_until("one waits", env.hang, || Ok(env.counters()?.drv(c::D_BUDGET_WAITS) > waits))?;
        match of_card {
            true => budget.raise(MANY)?,
            false => context.set_budget(MANY)?,
        }
        let both = 10 * PAGE as u64;
        wait_until("both are granted", env.hang, || Ok(env.counters()?.pinned() == both))?;
        for (n, (from, to)) in pairs.iter_mut().enumerate() {
            to.wait_state(env, "it is granted", |s| s.granted == 1)?;
            from.send(0, &[source.sge(0, 100)])?;
            ensure_eq!(to.received(env)?.ok()?.byte_len, 100);
            from.sent(env)?.ok()?;
            check(&target.bytes()[n * 5 * PAGE..][..100], 78, 0)?;
        }
    }
    Ok(())
}

/// A page that is pinned for reading must be pinned again for writing, but not the other way round.
fn vc_9_page_that_was_sent_is_received_into_while_its_pin_lingers(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 88)?;
    let page = Mem::pattern(PAGE, 89)?;
    let target = Mem::new(PAGE)?;
    let device = env.device()?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 336)?;
    let _linger = Linger::set(env, 60_000)?;
    let mut transfer = |n: u64, source: &Mem, target: &Mem, seed: u64| -> Res<u64> {
        let before = device.counters()?.drv(c::D_PAGES_PINNED);
        to.recv(n, &[target.sge(0, PAGE)])?;
        from.send(n, &[source.sge(0, PAGE)])?;
        to.received(env)?.ok()?;
        from.sent(env)?.ok()?;
        check(target.bytes(), seed, 0)?;
        Ok(device.counters()?.drv(c::D_PAGES_PINNED) - before)
    };
    // Pages pinned: both; none any more; that which was read, and the new one's; none.
    ensure_eq!(transfer(0, &page, &target, 89)?, 2);
    ensure_eq!(transfer(1, &page, &target, 89)?, 0);
    ensure_eq!(transfer(2, &source, &page, 88)?, 2);
    ensure_eq!(transfer(3, &page, &target, 88)?, 0);
    ensure_eq!(device.counters()?.pinned(), 3 * PAGE as u64);
    Ok(())
}

fn vc_9_read_only_memory_is_not_received_into(env: &Env) -> Res {
    let read_only = Mem::map(PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ, -1)?;
    let context = env.context()?;
    let (_from, mut to) = loop_pair(env, &context, &depths(4, 4), 323)?;
    to.recv(0, &[read_only.sge(0, PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::LocalProtection);
    ensure!(read_only.bytes().iter().all(|b| *b == 0));
    Ok(())
}

fn pc_1_receive_that_cannot_be_pinned_fails_and_later_ones_go_on(env: &Env) -> Res {
    let source = Mem::swapped_out(200, 45)?;
    let target = Mem::new(3 * PAGE)?;
    target.unmap(PAGE, PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 8), 324)?;
    let hole = target.sge(PAGE - 50, 100);
    to.recv(0, &[target.sge(0, 100), hole, target.sge(2 * PAGE, 100)])?;
    from.send(0, &[source.sge(0, 200)])?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let got = to.received(env)?;
        seen.push((got.wr_id, got.status, if got.status == Status::Ok { got.byte_len } else { 0 }));
    }
    seen.sort_by_key(|s| s.0);
    ensure_eq!(seen, [(0, Status::Ok, 100), (1, Status::LocalProtection, 0), (2, Status::Ok, 100)]);
    check(&target.bytes()[..100], 45, 0)?;
    check(&target.bytes()[2 * PAGE..2 * PAGE + 100], 45, 100)?;
    from.sent(env)?.ok()?;
    Ok(())
}

/// Gives up `CAP_IPC_LOCK` in this process (and its children).
pub fn drop_ipc_lock() -> Res {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let mut header = [VERSION_3, 0];
    // Effective, permitted and inheritable sets, low words, then high words.
    let mut sets = [0u32; 6];
    // SAFETY: header and data as version 3 of the capability calls wants them.
    let ret = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    ensure!(ret == 0, "capget: {}", std::io::Error::last_os_error());
    sets[0] &= !(1 << CAP_IPC_LOCK);
    // SAFETY: as above.
    let ret = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_mut_ptr()) };
    ensure!(ret == 0, "capset: {}", std::io::Error::last_os_error());
    Ok(())
}

fn pc_3_memlock_limit_counts(env: &Env) -> Res {
    const LIMIT: usize = 4 * PAGE;
    drop_ipc_lock()?;
    let limit = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: LIMIT as u64 };
    // SAFETY: a valid limit.
    let ret = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    ensure!(ret == 0, "setrlimit: {}", std::io::Error::last_os_error());
    let source = Mem::swapped_out(8 * PAGE, 46)?;
    let target = Mem::new(8 * PAGE)?;
    let context = env.context()?;
    let config = QpConfig { block: PAGE as u32, ..depths(4, 8) };
    let (mut from, mut to) = loop_pair(env, &context, &config, 325)?;
    env.device()?.set_limits(&Limits { reset_peak: true, ..Limits::default() })?;
    let over = || -> Res<u64> { Ok(env.counters()?.drv(c::D_OVER_BUDGET)) };
    let before = over()?;
    to.recv(0, &[target.sge(0, 5 * PAGE)])?;
    ensure_eq!(to.received(env)?.status, Status::OverBudget);
    ensure_eq!(over()?, before + 1);
    // Each fits, all together do not: those that come later wait for the first ones.
    let sges: Vec<_> = (0..8).map(|n| target.sge(n * PAGE, PAGE)).collect();
    to.recv(1, &sges)?;
    from.send(0, &[source.sge(0, 8 * PAGE)])?;
    for n in 1..9 {
        ensure_eq!(to.received(env)?.ok()?.wr_id, n);
    }
    check(target.bytes(), 46, 0)?;
    from.sent(env)?.ok()?;
    ensure_eq!(over()?, before + 1);
    let peak = env.counters()?.pinned_peak();
    ensure!(peak <= LIMIT as u64, "{peak} bytes were pinned");
    Ok(())
}

fn pc_3_block_larger_than_the_budget_is_refused(env: &Env) -> Res {
    const TOTAL: usize = 64 << 10;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 47)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    let config = QpConfig { block: TOTAL as u32, ..depths(4, 4) };
    let mut conn = Conn::new(&context, &config)?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, TOTAL)])?;
    }
    establish(env, &context, &conn.qp, 326)?;
    match env.role {
        Role::A => {
            conn.wait_state(env, "the credit has come", |s| s.credits == 1)?;
            context.set_budget(2 * PAGE as u64)?;
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            // A defined error; nothing has left.
            ensure_eq!(conn.sent(env)?.status, Status::OverBudget);
            conn.qp.wait_closed(env.limit())?;
        }
        Role::B => {
            ensure_eq!(conn.received(env)?.status, Status::Flushed);
            conn.qp.wait_closed(env.limit())?;
            ensure!(mem.bytes().iter().all(|b| *b == 0), "something was sent");
        }
    }
    env.meet("done")
}

/// Blocks of 64 KiB were asked for, and the credit is as large, but the sender's budget is smaller.
fn pc_3_blocks_of_a_small_budget_are_small(env: &Env) -> Res {
    // No power of two, as blocks are.
    const BUDGET: usize = 12 * PAGE;
    const TOTAL: usize = 16 * PAGE;
    let mem = match env.role {
        Role::A => Mem::swapped_out(TOTAL, 62)?,
        Role::B => Mem::new(TOTAL)?,
    };
    let context = env.context()?;
    if env.role == Role::A {
        context.set_budget(BUDGET as u64)?;
        env.device()?.set_limits(&Limits { reset_peak: true, ..Limits::default() })?;
    }
    let mut conn = Conn::new(&context, &QpConfig { block: TOTAL as u32, ..depths(4, 4) })?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, TOTAL)])?;
    }
    establish(env, &context, &conn.qp, 344)?;
    match env.role {
        Role::A => {
            conn.send(0, &[mem.sge(0, TOTAL)])?;
            conn.sent(env)?.ok()?;
            let peak = env.counters()?.pinned_peak();
            ensure!(peak <= BUDGET as u64, "{peak} bytes were pinned");
        }
        Role::B => {
            ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, TOTAL);
            check(mem.bytes(), 62, 0)?;
        }
    }
    env.meet("done")
}

fn pc_1_posted_receive_is_pinned_when_granted_and_unpinned_when_filled(env: &Env) -> Res {
    const TOTAL: usize = 64 << 10;
    let source = Mem::swapped_out(TOTAL, 48)?;
    let target = Mem::new(TOTAL)?;
    let device = env.device()?;
    let context = env.context()?;
    let mut from = Conn::new(&context, &depths(4, 4))?;
    let mut to = Conn::new(&context, &depths(4, 4))?;
    to.recv(0, &[target.sge(0, TOTAL)])?;
    // Posted, but not connected: no credit, so nothing is pinned. The query goes behind the doorbell.
    ensure_eq!(to.qp.state()?.granted, 0);
    ensure_eq!(device.counters()?.pinned(), 0);
    crate::util::loop_back(env, &context, &from.qp, &to.qp, 327)?;
    to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
    ensure_eq!(device.counters()?.pinned(), TOTAL as u64);
    from.send(0, &[source.sge(0, TOTAL)])?;
    to.received(env)?.ok()?;
    from.sent(env)?.ok()?;
    wait_until("filled and sent: unpinned", env.hang, || Ok(device.counters()?.pinned() == 0))
}

fn vc_8_several_blocks_leave_before_an_acknowledgement(env: &Env) -> Res {
    // Seven contexts of a page each, every one a block of its own.
    const BLOCKS: usize = 7;
    let mem = match env.role {
        Role::A => Mem::swapped_out(2 * BLOCKS * PAGE, 49)?,
        Role::B => Mem::new(BLOCKS * PAGE)?,
    };
    let context = env.context()?;
    let config = QpConfig { block: PAGE as u32, timeout: u32::MAX, ..depths(4, 4) };
    let mut conn = Conn::new(&context, &config)?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, BLOCKS * PAGE)])?;
    }
    establish(env, &context, &conn.qp, 328)?;
    if env.role == Role::A {
        let device = env.device()?;
        conn.wait_state(env, "the credit has come", |s| s.credits == 1)?;
        let before = device.counters()?;
        env.sim("hold b")?;
        let result = (|| {
            // Every second page: the contexts are not neighbours.
            let sges: Vec<_> = (0..BLOCKS).map(|n| mem.sge(2 * n * PAGE, PAGE)).collect();
            conn.send(0, &sges)?;
            wait_until("all blocks have left", env.hang, || {
                let sent = device.counters()?.bytes_sent() - before.bytes_sent();
                // A probe may have sent one of them again (QP-7).
                Ok(sent >= (BLOCKS * PAGE) as u64)
            })?;
            ensure!(conn.sends.poll()?.is_none(), "completed without an acknowledgement");
            let blocks = device.counters()?.send_blocks() - before.send_blocks();
            ensure!(blocks >= BLOCKS as u64, "{blocks} blocks");
            Ok(())
        })();
        env.sim("release b")?;
        result?;
        conn.sent(env)?.ok()?;
    } else {
        conn.received(env)?.ok()?;
        for n in 0..BLOCKS {
            check(&mem.bytes()[n * PAGE..(n + 1) * PAGE], 49, (2 * n * PAGE) as u64)?;
        }
    }
    env.meet("done")
}
