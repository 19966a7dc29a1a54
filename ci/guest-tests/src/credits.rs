// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit lists: CR-1 to CR-5, CR-10, CR-11, CR-15, wire faults.

use std::cell::Cell;

use berth_abi::counters as c;
use berth_abi::wqe::{OP_SEND, Wqe};
use libberth::{
    Cap, Carrier, Context, Error, Limits, Mode, QpConfig, QpStateKind, Status, Stream, Trigger, WorkRequest,
};

use crate::env::{Env, Role};
use crate::util::{
    Conn, Mem, Random, Res, check, depths, establish, fill, loop_pair, reap_all, receive_pattern, send_pattern,
    wait_until,
};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: cr_15_send_of_11_leaves_as_5_and_6, cr_3_sender_without_credit_holds_its_data,
         cr_2_piece_shorter_than_its_credit_wastes_the_rest, cr_4_zero_length_elements_complete_locally,
         cr_10_a_cap_changes_and_ends_under_traffic;
    Pair: cr_11_worked_example_72_bytes_leave_as_3_7_22_40, cr_2_stream_over_buffers_of_many_sizes,
          cr_5_every_trigger_carries_the_stream, cr_3_stream_of_one_byte_buffers,
          inv_2_lost_duplicated_reordered_corrupted_frames_do_no_harm, cr_11_lost_lists_are_repeated,
          cr_12_lists_go_over_every_carrier,
          inv_2_random_traffic_of_four_connections_under_pressure,
          cr_10_a_capped_sender_keeps_to_its_bandwidth_and_slows_no_other,
          cr_17_in_message_mode_a_send_fills_one_receive_or_fails_by_itself,
          cr_17_the_immediate_of_a_message_reaches_the_receives_completion;
}

fn cr_15_send_of_11_leaves_as_5_and_6(env: &Env) -> Res {
    let source = Mem::pattern(11, 20)?;
    let target = Mem::new(4096)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 200)?;
    to.recv(0, &[target.sge(0, 5), target.sge(100, 6)])?;
    from.send(0, &[source.sge(0, 11)])?;
    let (first, second) = (to.received(env)?.ok()?, to.received(env)?.ok()?);
    ensure_eq!((first.byte_len, first.remaining, first.credit), (5, 6, 0));
    ensure_eq!((second.byte_len, second.remaining, second.credit), (6, 0, 1));
    check(&target.bytes()[..5], 20, 0)?;
    check(&target.bytes()[100..106], 20, 5)?;
    from.sent(env)?.ok()?;
    Ok(())
}

fn cr_3_sender_without_credit_holds_its_data(env: &Env) -> Res {
    let source = Mem::pattern(1000, 21)?;
    let target = Mem::new(1000)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 201)?;
    let before = env.counters()?.data_packets();
    from.send(0, &[source.sge(0, 1000)])?;
    // The query goes through the same firmware behind the doorbell.
    for _ in 0..20 {
        let state = from.qp.state()?;
        ensure_eq!((state.kind, state.credits, state.pieces), (QpStateKind::Connected, 0, 0));
    }
    ensure_eq!(env.counters()?.data_packets(), before);
    ensure!(from.sends.poll()?.is_none());
    // VC-1: nothing is pinned before a credit covers it.
    ensure_eq!(env.counters()?.pinned(), 0);
    to.recv(0, &[target.sge(0, 1000)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len, 1000);
    check(target.bytes(), 21, 0)?;
    from.sent(env)?.ok()?;
    Ok(())
}

fn cr_2_piece_shorter_than_its_credit_wastes_the_rest(env: &Env) -> Res {
    let source = Mem::pattern(100, 22)?;
    let target = Mem::new(4096)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 202)?;
    to.recv(0, &[target.sge(0, 1000), target.sge(1000, 1000)])?;
    // Two sends never share a credit.
    from.send(0, &[source.sge(0, 40)])?;
    from.send(1, &[source.sge(40, 60)])?;
    let (first, second) = (to.received(env)?.ok()?, to.received(env)?.ok()?);
    ensure_eq!((first.byte_len, second.byte_len), (40, 60));
    check(&target.bytes()[..40], 22, 0)?;
    check(&target.bytes()[1000..1060], 22, 40)?;
    ensure!(target.bytes()[40..1000].iter().all(|b| *b == 0), "written behind the piece");
    Ok(())
}

fn cr_4_zero_length_elements_complete_locally(env: &Env) -> Res {
    let source = Mem::pattern(10, 23)?;
    let target = Mem::new(100)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(8, 8), 203)?;
    let before = env.counters()?.rtl(c::C_CREDITS_SENT);
    to.recv(0, &[target.sge(0, 0), target.sge(0, 10), target.sge(50, 0)])?;
    from.send(0, &[])?;
    from.send(1, &[source.sge(0, 10)])?;
    from.send(2, &[source.sge(5, 0)])?;
    let mut lengths = [u32::MAX; 3];
    for _ in 0..3 {
        let got = to.received(env)?.ok()?;
        lengths[got.wr_id as usize] = got.byte_len;
        from.sent(env)?.ok()?;
    }
    ensure_eq!(lengths, [0, 10, 0]);
    check(&target.bytes()[..10], 23, 0)?;
    ensure_eq!(env.counters()?.rtl(c::C_CREDITS_SENT) - before, 1);
    Ok(())
}

/// The worked example of semantics.md; the simulator's wire forces the order.
fn cr_11_worked_example_72_bytes_leave_as_3_7_22_40(env: &Env) -> Res {
    let mem = match env.role {
        Role::A => Mem::pattern(72, 24)?,
        Role::B => Mem::new(4096)?,
    };
    let context = env.context()?;
    // Nothing is sent again while frames are held.
    let mut conn = Conn::new(&context, &QpConfig { timeout: u32::MAX, ..depths(8, 8) })?;
    if env.role == Role::B {
        conn.recv(0, &[mem.sge(0, 3), mem.sge(3, 7)])?;
    }
    establish(env, &context, &conn.qp, 204)?;
    match env.role {
        Role::A => {
            conn.wait_state(env, "the list [3, 7] has come", |s| s.credits == 2)?;
            // 2. The sender sends 3 bytes, then 7; they stay at the wire.
            env.sim("hold a")?;
            let result = worked_example_sender(env, &mut conn, &mem);
            env.sim("release a")?;
            result?;
            conn.sent(env)?.ok()?;
        }
        Role::B => worked_example_receiver(env, &mut conn, &mem)?,
    }
    env.meet("done")
}

fn worked_example_sender(env: &Env, conn: &mut Conn, mem: &Mem) -> Res {
    conn.send(0, &[mem.sge(0, 72)])?;
    conn.wait_state(env, "3 and 7 have been sent", |s| s.pieces == 2 && s.credits == 0)?;
    env.tell("sent-3-7", "")?;
    env.hear("posted-22-44")?;
    // 3. The 3 bytes land, and nothing behind them. (A frame of the control connection may be before them.)
    for n in 1.. {
        env.sim("wait a held 1")?;
        env.sim("release a 1")?;
        env.tell(&format!("released-{n}"), "")?;
        if env.hear(&format!("after-{n}"))? == "landed" {
            break;
        }
    }
    // 4., 5. The list [22, 44] comes: 22 bytes, then 40 against 44.
    conn.wait_state(env, "22 and 40 have been sent", |s| s.pieces >= 3 && s.credits == 0)?;
    env.tell("sent-22-40", "")?;
    env.hear("posted-11")?;
    Ok(())
}

fn worked_example_receiver(env: &Env, conn: &mut Conn, mem: &Mem) -> Res {
    env.hear("sent-3-7")?;
    let device = env.device()?;
    let frames = device.counters()?.rtl(c::C_RX_FRAMES);
    conn.recv(2, &[mem.sge(10, 22), mem.sge(32, 44)])?;
    let state = conn.wait_state(env, "22 and 44 are granted", |s| s.granted == 4)?;
    // CR-11: the proof has not come, so the second list waits.
    ensure_eq!((state.announced, state.landed), (2, 0));
    env.tell("posted-22-44", "")?;
    for n in 1.. {
        env.hear(&format!("released-{n}"))?;
        wait_until("the released frame has come", env.hang, || {
            Ok(device.counters()?.rtl(c::C_RX_FRAMES) >= frames + n)
        })?;
        // The firmware serves frames and queries in turn: behind a few queries it has seen the frame.
        let states = (0..4).map(|_| conn.qp.state()).collect::<Result<Vec<_>, _>>()?;
        let landed = states.last().map_or(0, |s| s.landed);
        env.tell(&format!("after-{n}"), if landed > 0 { "landed" } else { "not yet" })?;
        if landed > 0 {
            ensure_eq!(landed, 1);
            break;
        }
    }
    conn.wait_state(env, "the list [22, 44] is sent", |s| s.announced == 4)?;
    env.hear("sent-22-40")?;
    conn.recv(4, &[mem.sge(200, 11)])?;
    let state = conn.wait_state(env, "11 is granted", |s| s.granted + s.completed == 5)?;
    // 4. The 22 bytes are still at the wire: [11] waits.
    ensure_eq!(state.announced, 4);
    env.tell("posted-11", "")?;
    let expected = [(3, 69), (7, 62), (22, 40), (40, 0)];
    for (n, (len, remaining)) in expected.into_iter().enumerate() {
        let got = conn.received(env)?.ok()?;
        ensure_eq!((got.wr_id, got.byte_len, got.remaining, got.credit), (n as u64, len, remaining, n as u32));
    }
    check(&mem.bytes()[..72], 24, 0)?;
    ensure!(mem.bytes()[72..].iter().all(|b| *b == 0), "written behind the 40 bytes");
    // 6. After the 22 bytes have landed, [11] is announced.
    conn.wait_state(env, "the list [11] is sent", |s| s.announced == 5 && s.landed == 4)?;
    Ok(())
}

fn cr_2_stream_over_buffers_of_many_sizes(env: &Env) -> Res {
    const SIZES: [usize; 10] = [3, 7, 22, 44, 65536, 1, 0, 4096, 5000, 12345];
    const TOTAL: usize = 300_000;
    let context = env.context()?;
    let mut stream = Stream::new(&context, &depths(16, 32), 4 << 20)?;
    let mut sizes = SIZES.iter().copied().cycle();
    if env.role == Role::B {
        let first: Vec<usize> = sizes.by_ref().take(32).collect();
        ensure_eq!(stream.post_recv(&first)?, 32);
    }
    establish(env, &context, stream.queue_pair(), 205)?;
    match env.role {
        Role::A => {
            send_pattern(&mut stream, TOTAL, 33_333, 25, env)?;
            reap_all(&mut stream, env)?;
        }
        Role::B => {
            receive_pattern(env, &mut stream, &mut sizes, TOTAL as u64, 25)?;
        }
    }
    env.meet("done")
}

fn cr_5_every_trigger_carries_the_stream(env: &Env) -> Res {
    const TOTAL: usize = 64 << 10;
    let fixed = [Trigger::First, Trigger::Last, Trigger::Between(3), Trigger::Between(63)];
    let measured = [Trigger::Adaptive, Trigger::Timed, Trigger::Predictive, Trigger::Auto];
    let triggers = fixed.into_iter().chain(measured);
    for (n, trigger) in (0..).zip(triggers) {
        let context = env.context()?;
        let config = QpConfig { trigger, max_list: 8, ..depths(16, 32) };
        let mut stream = Stream::new(&context, &config, 1 << 20)?;
        if env.role == Role::B {
            stream.post_recv(&[1000; 32])?;
        }
        establish(env, &context, stream.queue_pair(), 210 + n)?;
        if n % 2 == 0 {
            // Another one, and back.
            stream.queue_pair().set_trigger(Trigger::Auto)?;
            stream.queue_pair().set_trigger(trigger)?;
        }
        // No data come before the trigger is what it shall be.
        env.meet(&format!("set-{n}"))?;
        let reports = env.counters()?.fw(c::F_CREDIT_REPORTS);
        match env.role {
            Role::A => {
                send_pattern(&mut stream, TOTAL, 8192, 26, env)?;
                reap_all(&mut stream, env)?;
            }
            Role::B => {
                receive_pattern(env, &mut stream, &mut std::iter::repeat(1000), TOTAL as u64, 26)
                    .map_err(|e| format!("{trigger:?}: {e}"))?;
                // The proof of the first list, which may have gone while the trigger was another, is reported.
                let told = env.counters()?.fw(c::F_CREDIT_REPORTS) - reports;
                ensure!(if measured.contains(&trigger) { told > 1 } else { told <= 1 }, "{trigger:?}: {told} reports");
            }
        }
        env.meet(&format!("done-{n}"))?;
    }
    Ok(())
}

fn cr_3_stream_of_one_byte_buffers(env: &Env) -> Res {
    const TOTAL: usize = 300;
    let context = env.context()?;
    let mut stream = Stream::new(&context, &depths(4, 64), 4096)?;
    if env.role == Role::B {
        stream.post_recv(&[1; 64])?;
    }
    establish(env, &context, stream.queue_pair(), 206)?;
    match env.role {
        Role::A => {
            send_pattern(&mut stream, TOTAL, TOTAL, 27, env)?;
            reap_all(&mut stream, env)?;
        }
        Role::B => {
            let pieces = receive_pattern(env, &mut stream, &mut std::iter::repeat(1), TOTAL as u64, 27)?;
            ensure_eq!(pieces, TOTAL as u64);
        }
    }
    env.meet("done")
}

/// Number behind the first `"key":` of a JSON text.
fn number(text: &str, key: &str) -> Res<u64> {
    let text = text.replace(' ', "");
    let (_, rest) = text.split_once(&format!("\"{key}\":")).ok_or_else(|| format!("no `{key}` in {text}"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

/// Runs with faults on the wire and takes them away afterwards, whatever happens.
pub fn with_faults(env: &Env, faults: &str, body: impl FnOnce() -> Res) -> Res {
    if env.role == Role::A {
        env.sim(&format!("faults {faults} seed={}", env.seed & 0xffff_ffff))?;
    }
    env.meet("faults-on")?;
    let result = body();
    if env.role == Role::A {
        env.sim("faults loss=0 dup=0 reorder=0 corrupt=0")?;
    }
    result
}

fn inv_2_lost_duplicated_reordered_corrupted_frames_do_no_harm(env: &Env) -> Res {
    // Some 300 frames: with 5 % of each kind, one run in a million misses one.
    const TOTAL: usize = 1 << 20;
    let sizes = [4096, 10_000, 333, 65536];
    let before = env.counters()?;
    with_faults(env, "loss=0.05 dup=0.05 reorder=0.05 corrupt=0.05", || {
        let context = env.context()?;
        let mut stream = Stream::new(&context, &depths(16, 16), 2 << 20)?;
        let mut sizes = sizes.iter().copied().cycle();
        if env.role == Role::B {
            let first: Vec<usize> = sizes.by_ref().take(16).collect();
            stream.post_recv(&first)?;
        }
        establish(env, &context, stream.queue_pair(), 207)?;
        match env.role {
            Role::A => {
                send_pattern(&mut stream, TOTAL, 20_000, 28, env)?;
                reap_all(&mut stream, env)?;
            }
            Role::B => {
                receive_pattern(env, &mut stream, &mut sizes, TOTAL as u64, 28)?;
            }
        }
        env.meet("done")
    })?;
    let after = env.counters()?;
    if env.role == Role::A {
        // The faults were real.
        let stats = env.sim("stats")?;
        for key in ["lost", "duplicated", "reordered", "corrupted"] {
            ensure!(number(&stats, key)? > 0, "the wire has {key} nothing: {stats}");
        }
        let again = after.retransmitted() - before.retransmitted();
        ensure!(again > 0, "5 % of frames were lost, and none was sent again");
    } else {
        let bad = after.rtl(c::C_RX_BAD_ICRC)
            + after.rtl(c::C_RX_TRUNCATED)
            + after.fw(c::F_BAD_HEADER)
            + after.fw(c::F_NOT_FOR_US)
            + after.fw(c::F_BAD_OPCODE)
            + after.rtl(c::C_RX_MAC_ERROR);
        ensure!(bad > 0, "5 % of frames were corrupted, and none was noticed");
    }
    Ok(())
}

fn cr_11_lost_lists_are_repeated(env: &Env) -> Res {
    lossy_lists(env, Carrier::Control, 20_000, 208)
}

fn cr_12_lists_go_over_every_carrier(env: &Env) -> Res {
    lossy_lists(env, Carrier::Reverse, 8000, 228)?;
    lossy_lists(env, Carrier::Write, 8000, 229)
}

fn lossy_lists(env: &Env, carrier: Carrier, total: usize, service: u16) -> Res {
    // Small buffers and short lists: mostly control traffic, a fifth of it lost.
    let pieces = Cell::new(0);
    with_faults(env, "loss=0.2 dup=0 reorder=0 corrupt=0", || {
        let context = env.context()?;
        let config = QpConfig { max_list: 4, carrier, ..depths(8, 16) };
        let mut stream = Stream::new(&context, &config, 64 << 10)?;
        if env.role == Role::B {
            stream.post_recv(&[500; 16])?;
        }
        establish(env, &context, stream.queue_pair(), service)?;
        match env.role {
            Role::A => {
                send_pattern(&mut stream, total, 5000, 29, env)?;
                reap_all(&mut stream, env)?;
            }
            Role::B => pieces.set(receive_pattern(env, &mut stream, &mut std::iter::repeat(500), total as u64, 29)?),
        }
        env.meet(&format!("done-{service}"))
    })?;
    ensure!(env.role == Role::A || pieces.get() >= (total / 500) as u64);
    Ok(())
}

/// One connection of the random test: both ends send and receive pieces of random sizes.
fn random_traffic(env: &Env, context: &Context, n: u16) -> Res {
    const TOTAL: usize = 48 << 10;
    // Both guests must agree on what is sent, so the streams' seeds are fixed; the sizes are each end's own.
    let (out, back) = match env.role {
        Role::A => (u64::from(n), 100 + u64::from(n)),
        Role::B => (100 + u64::from(n), u64::from(n)),
    };
    let mut random = Random::new(env.seed ^ out);
    let config = QpConfig { block: 4096 << random.below(3), ..depths(64, 16) };
    let mut stream = Stream::new(context, &config, 256 << 10)?;
    let mut sizes = std::iter::from_fn({
        let mut random = Random::new(env.seed ^ out ^ 0xffff);
        move || {
            let most = [100, 4096, 9000][random.below(3)];
            Some(1 + random.below(most))
        }
    });
    for _ in 0..16 {
        stream.post_recv(&[sizes.next().ok_or("endless")?])?;
    }
    establish(env, context, stream.queue_pair(), 220 + n)?;
    let mut at = 0;
    while at < TOTAL {
        // At most 64 elements, so that sending never waits for the peer's receiving.
        let len = (TOTAL - at).min(TOTAL / 60 + random.below(4000));
        let mut buffer = libberth::Buffer::new(len)?;
        fill(&mut buffer, out, at as u64);
        if random.below(2) == 0 {
            // Swapped out, as far as the kernel likes, before and while it is sent.
            // SAFETY: the range is the buffer's own pages; paging out changes no content.
            unsafe { libc::madvise(buffer.as_mut_ptr().cast(), len, libc::MADV_PAGEOUT) };
        }
        stream.send(buffer, false)?;
        at += len;
    }
    receive_pattern(env, &mut stream, &mut sizes, TOTAL as u64, back)?;
    reap_all(&mut stream, env)?;
    env.meet(&format!("done-{n}"))
}

fn inv_2_random_traffic_of_four_connections_under_pressure(env: &Env) -> Res {
    println!("seed {}", env.seed);
    let device = env.device()?;
    let budget = device.info()?.card_budget;
    device.set_limits(&Limits { card_budget: Some(192 << 10), reset_peak: true, ..Limits::default() })?;
    let result = with_faults(env, "loss=0.01 dup=0.01 reorder=0.01 corrupt=0.01", || {
        let context = env.context()?;
        // One thread per connection: they share the context, its events and its doorbell page.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let context = &context;
                    scope.spawn(move || random_traffic(env, context, n))
                })
                .collect();
            let results: Vec<Res> = threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| crate::util::fail("a thread panicked")))
                .collect();
            results.into_iter().collect::<Res>()
        })?;
        env.meet("done")
    });
    let peak = device.counters()?.pinned_peak();
    device.set_limits(&Limits { card_budget: Some(budget), ..Limits::default() })?;
    result?;
    ensure!(peak <= 192 << 10, "{peak} bytes were pinned");
    Ok(())
}

/// Bytes that may have come so many cycles of the card's clock after a maximum bandwidth was set, rounded up.
fn most(cap: Cap, cycles: u64, clock_hz: u32) -> u64 {
    u64::from(cap.burst) + cap.bytes_per_second * cycles / u64::from(clock_hz) + 1
}

/// Three clients of one server send as much as each other at the same time.
fn cr_10_a_capped_sender_keeps_to_its_bandwidth_and_slows_no_other(env: &Env) -> Res {
    const TOTAL: usize = 64 << 10;
    const PIECE: usize = 4096;
    const CAPPED: usize = 1;
    // Half a second of card time, of which the others need a small part, waits for pages included.
    let cap = Cap { bytes_per_second: 128 << 10, burst: 2 * PIECE as u32 };
    // All pages are there before, so that nobody waits long for them.
    let mem = Mem::pattern(3 * TOTAL, if env.role == Role::A { 230 } else { 231 })?;
    let context = env.context()?;
    let (sends, recvs) = (context.create_cq(64)?, context.create_cq(64)?);
    let make = |_| {
        Ok(Conn { qp: context.create_qp(&sends, &recvs, &depths(16, 16))?, sends: sends.clone(), recvs: recvs.clone() })
    };
    let mut conns = (0..3).map(make).collect::<Res<Vec<_>>>()?;
    for (service, conn) in (224..).zip(&conns) {
        establish(env, &context, &conn.qp, service)?;
    }
    let pieces = |n: usize| (0..TOTAL / PIECE).map(|i| mem.sge(n * TOTAL + i * PIECE, PIECE)).collect::<Vec<_>>();
    match env.role {
        Role::A => {
            for (n, conn) in conns.iter_mut().enumerate() {
                for (wr_id, piece) in (0..).zip(pieces(n)) {
                    conn.send(wr_id, &[piece])?;
                }
            }
            env.tell("posted", "")?;
            for _ in 0..3 * TOTAL / PIECE {
                sends.wait(env.limit())?.ok()?;
            }
        }
        Role::B => {
            env.hear("posted")?;
            let device = env.device()?;
            conns[CAPPED].qp.set_cap(Some(cap))?;
            let begin = device.info()?;
            for (n, conn) in conns.iter_mut().enumerate() {
                conn.recv(0, &pieces(n))?;
            }
            let (mut order, mut bytes) = (Vec::new(), 0);
            while order.len() < 3 * TOTAL / PIECE {
                let done = recvs.wait(env.limit())?.ok()?;
                ensure_eq!(done.byte_len as usize, PIECE);
                let of = conns.iter().position(|conn| conn.qp.qpn() == done.qpn).ok_or("of none of them")?;
                if of == CAPPED {
                    bytes += PIECE as u64;
                    // That the clock is read later than they came only allows more.
                    let cycles = device.info()?.cycles - begin.cycles;
                    let most = most(cap, cycles, begin.clock_hz);
                    ensure!(bytes <= most, "{bytes} bytes in {cycles} cycles, not {most} at most");
                }
                order.push(of);
            }
            ensure_eq!(order.last(), Some(&CAPPED));
            check(mem.bytes(), 230, 0)?;
        }
    }
    env.meet("done")
}

fn cr_10_a_cap_changes_and_ends_under_traffic(env: &Env) -> Res {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 32;
    // With the lower rate, all of it would take longer than a test may.
    let [slow, fast] = [16 << 10, 16 << 20].map(|bytes_per_second| Cap { bytes_per_second, burst: PIECE as u32 });
    let source = Mem::pattern(PIECES * PIECE, 232)?;
    let target = Mem::new(PIECES * PIECE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, PIECES as u32), 227)?;
    let device = env.device()?;
    to.qp.set_cap(Some(slow))?;
    let begin = device.info()?;
    let places: Vec<_> = (0..PIECES).map(|n| target.sge(n * PIECE, PIECE)).collect();
    to.recv(0, &places)?;
    from.send(0, &[source.sge(0, PIECES * PIECE)])?;
    to.received(env)?.ok()?;
    let small = Cap { burst: PIECE as u32 - 1, ..fast };
    ensure!(matches!(to.qp.set_cap(Some(small)), Err(Error::BurstTooSmall { .. })));
    let changed = device.info()?.cycles;
    to.qp.set_cap(Some(fast))?;
    let before = most(slow, device.info()?.cycles - begin.cycles, begin.clock_hz);
    for n in 2..=8 {
        ensure_eq!(to.received(env)?.ok()?.wr_id, n - 1);
        let most = before + most(fast, device.info()?.cycles - changed, begin.clock_hz);
        ensure!(n * PIECE as u64 <= most, "{n} pieces came, of at most {most} bytes");
    }
    to.qp.set_cap(Some(slow))?;
    to.qp.set_cap(None)?;
    for n in 8..PIECES as u64 {
        ensure_eq!(to.received(env)?.ok()?.wr_id, n);
    }
    check(target.bytes(), 232, 0)?;
    from.sent(env)?.ok()?;
    Ok(())
}

/// Mode is agreed at connect; then every send fills one receive, and one that is too long for it fails by itself.
fn cr_17_in_message_mode_a_send_fills_one_receive_or_fails_by_itself(env: &Env) -> Res {
    const SERVICE: u16 = 217;
    let receives = [100, 8, 60_000, 50];
    let sends = [(60, Status::Ok), (9, Status::TooLong), (8, Status::Ok), (60_000, Status::Ok), (50, Status::Ok)];
    let context = env.context()?;
    let config = QpConfig { mode: Mode::Message, ..depths(8, 8) };
    let mut conn = Conn::new(&context, &config)?;
    match env.role {
        Role::A => {
            let source = Mem::pattern(60_000, 217)?;
            env.hear("listening-217")?;
            let refused = Conn::new(&context, &config)?;
            ensure!(refused.qp.connect(env.peer_ip, SERVICE, b"", env.limit()).is_err());
            conn.qp.connect(env.peer_ip, SERVICE, b"", env.limit())?;
            for (i, &(len, _)) in sends.iter().enumerate() {
                conn.send(i as u64, &[source.sge(0, len)])?;
            }
            for (i, (_, status)) in sends.into_iter().enumerate() {
                let done = conn.sent(env)?;
                ensure_eq!((done.wr_id, done.status), (i as u64, status));
            }
        }
        Role::B => {
            let target = Mem::new(4 * 64 * 1024)?;
            let places: Vec<_> = (0..).zip(receives).map(|(i, len)| target.sge(i * 64 * 1024, len)).collect();
            conn.recv(0, &places)?;
            let other = Conn::new(&context, &depths(8, 8))?;
            let listener = context.listen(SERVICE)?;
            env.tell("listening-217", "")?;
            let request = listener.next(env.limit())?;
            ensure_eq!(request.mode(), Mode::Message);
            ensure!(request.accept(&other.qp, b"").is_err(), "stream and message mode agree on nothing");
            let request = listener.next(env.limit())?;
            request.accept(&conn.qp, b"")?;
            conn.qp.wait_established(env.limit())?;
            for (i, (len, _)) in (0..).zip(sends.into_iter().filter(|s| s.1 == Status::Ok)) {
                let got = conn.received(env)?.ok()?;
                ensure_eq!((got.wr_id, got.byte_len as usize), (i as u64, len));
                check(&target.bytes()[i * 64 * 1024..][..len], 217, 0)?;
            }
        }
    }
    env.meet("done")
}

/// A send: its ranges, whether their data are copied, its immediate.
type Kind<'a> = (&'a [(usize, usize)], bool, Option<u32>);

/// By the queue and with the doorbell, of every kind; other sends have none, and a malformed one ends its queue pair.
fn cr_17_the_immediate_of_a_message_reaches_the_receives_completion(env: &Env) -> Res {
    let config = QpConfig { mode: Mode::Message, ..depths(16, 16) };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &config)?;
    let source = Mem::pattern(20_000, 218)?;
    let target = Mem::new(16 * 32 * 1024)?;
    let kinds: [Kind; 8] = [
        (&[(0, 20_000)], false, Some(0x8000_0001)),
        (&[(0, 10), (10, 5000), (5010, 1), (5011, 0), (5011, 7), (5018, 9)], false, Some(0)),
        (&[(0, 300)], false, None),
        (&[], false, Some(u32::MAX)),
        (&[(0, 24)], true, Some(3)),
        (&[(0, 25)], true, Some(4)),
        (&[(0, 40)], true, Some(5)),
        (&[(0, 40)], true, None),
    ];
    let length = |ranges: &[(usize, usize)]| ranges.iter().map(|r| r.1).sum::<usize>();
    if env.role == Role::B {
        let places: Vec<_> = (0..kinds.len()).map(|i| target.sge(i * 32 * 1024, 32 * 1024)).collect();
        conn.recv(0, &places)?;
    }
    establish(env, &context, &conn.qp, 218)?;
    for (i, &(ranges, inline, immediate)) in kinds.iter().enumerate() {
        match env.role {
            Role::A => {
                let sges: Vec<_> = ranges.iter().map(|&(at, len)| source.sge(at, len)).collect();
                let request = WorkRequest { wr_id: i as u64, sges: &sges, inline, immediate, ..WorkRequest::default() };
                // SAFETY: the memory outlives the connection.
                unsafe { conn.qp.post_send(&[request]) }?;
                conn.sent(env)?.ok()?;
            }
            Role::B => {
                let got = conn.received(env)?.ok()?;
                ensure_eq!((got.byte_len as usize, got.immediate, got.remaining), (length(ranges), immediate, 0));
                check(&target.bytes()[i * 32 * 1024..][..length(ranges)], 218, 0)?;
            }
        }
    }
    env.meet("received")?;
    if env.role == Role::A {
        let sges = [source.sge(0, 8)];
        let request = WorkRequest { sges: &sges, immediate: Some(1), ..WorkRequest::default() };
        let stream = Conn::new(&context, &depths(4, 4))?;
        let mut stream = stream.qp;
        // SAFETY: nothing is posted.
        ensure!(matches!(unsafe { stream.post_send(&[request]) }, Err(Error::ImmediateInStream)));
        let wqe = Wqe { opcode: OP_SEND, num_sge: 1, length: 8, wr_id: 99, ..Wqe::default() };
        let mut wqe = wqe.with_immediate(1).ok_or("there is room")?;
        (wqe.sge[0].va, wqe.sge[1]) = (1, sges[0]);
        // SAFETY: what the element names outlives the connection.
        unsafe { conn.qp.post_raw(false, &wqe) }?;
        ensure_eq!(conn.sent(env)?.status, Status::BadWqe);
    }
    env.meet("done")
}
