// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nothing is left after very many kills, reloads, resets, unplugged cards and connections. A part of its own (`cargo
//! xtask test --only endurance`); `--long` repeats each far more often.

use std::fs;
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use libberth::{Device, Limits};

use crate::connections::loopback_works;
use crate::env::Env;
use crate::service::{after_reset, end_of, nothing_left, reload, replace_card, spawn_helper, start_helper};
use crate::syscalls::unprivileged;
use crate::util::{Mem, Random, Res, check, depths, field, loop_pair, vm_pin, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    // First, since the other guest waits for it.
    Pair: endurance_connections_made_and_ended;
    One: endurance_processes_killed_at_any_moment;
    One Disruptive: endurance_module_reloaded_under_traffic, endurance_card_reset_under_traffic,
         endurance_card_unplugged_under_traffic;
    One: endurance_unprivileged_system_calls, endurance_kernel_has_lost_no_memory;
}

/// Gauges that may not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    pinned: u64,
    qps: u64,
    cqs: u64,
    contexts: u64,
    translations: u64,
    /// Of this process: KiB pinned, open descriptors.
    vm_pin: u64,
    descriptors: usize,
}

impl Held {
    fn now(env: &Env) -> Res<Self> {
        let n = env.counters()?;
        Ok(Self {
            pinned: n.pinned(),
            qps: n.drv(c::D_QPS),
            cqs: n.drv(c::D_CQS),
            contexts: n.drv(c::D_CONTEXTS),
            translations: n.drv(c::D_XLT_USED),
            vm_pin: vm_pin()?,
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
        })
    }
}

/// KiB of memory that can be had, and of the kernel's objects.
fn memory() -> Res<(u64, u64)> {
    // Memory in the page cache and in per-processor lists is not lost.
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let text = fs::read_to_string("/proc/meminfo")?;
    Ok((field(&text, "MemAvailable:")?, field(&text, "SUnreclaim:")?))
}

/// KiB that may be missing afterwards, whatever the number of rounds: freed objects that KASAN keeps for a while are
/// the larger part (1/32 of all memory).
const SLACK: u64 = 64 << 10;

/// Repeats something, and compares usage before and after.
fn repeat(env: &Env, usual: u64, long: u64, mut round: impl FnMut(u64) -> Res) -> Res {
    // Things that are made once and kept.
    round(0)?;
    nothing_left(env)?;
    let count = env.cases(usual, long);
    let before = (Held::now(env)?, memory()?);
    let start = Instant::now();
    (1..=count).try_for_each(|n| told(n, count, || round(n)))?;
    let time = start.elapsed();
    nothing_left(env)?;
    all_given_back(env, count, time, before)
}

/// One of `count` rounds, with its number in the error; says now and then how far it is.
fn told(n: u64, count: u64, round: impl FnOnce() -> Res) -> Res {
    if n > 0 && n.is_multiple_of(100) {
        println!("round {n} of {count}");
    }
    round().map_err(|e| format!("round {n} of {count}: {e}").into())
}

/// Waits until usage is as before, and compares memory.
fn all_given_back(env: &Env, count: u64, time: Duration, before: (Held, (u64, u64))) -> Res {
    let mut last = Held::now(env)?;
    wait_until("all is given back", Duration::from_secs(60), || {
        last = Held::now(env)?;
        Ok(last == before.0)
    })
    .map_err(|e| format!("{e}: before {:?}, after {last:?}", before.0))?;
    let after = memory()?;
    println!("figures: {count} rounds in {:.1} s; before and after: {last:?}", time.as_secs_f64());
    println!("figures: MemAvailable {} -> {} KiB, SUnreclaim {} -> {} KiB", before.1.0, after.0, before.1.1, after.1);
    ensure!(after.0 + SLACK >= before.1.0, "{} KiB are gone", before.1.0 - after.0);
    Ok(())
}

fn endurance_processes_killed_at_any_moment(env: &Env) -> Res {
    println!("seed {}", env.seed);
    let mut random = Random::new(env.seed);
    let ready = std::env::temp_dir().join(format!("berth-ready-killed-{}", std::process::id()));
    let mut got_ready = 0;
    repeat(env, 12, 1000, |n| {
        let name = ["traffic", "granted"][random.below(2)];
        let mut child = spawn_helper(env, name, &ready)?;
        // At any moment of its start, or soon after it.
        if random.below(2) == 0 {
            wait_until("the helper is ready", env.hang, || Ok(ready.exists()))?;
            got_ready += 1;
            std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        } else {
            std::thread::sleep(Duration::from_micros(random.below(400_000) as u64));
        }
        child.kill()?;
        child.wait()?;
        let _ = fs::remove_file(&ready);
        if n % 50 == 0 {
            nothing_left(env)?;
            loopback_works(env, 970)?;
        }
        Ok(())
    })?;
    println!("figures: {got_ready} of them after they had traffic or grants");
    loopback_works(env, 970)
}

fn endurance_module_reloaded_under_traffic(env: &Env) -> Res {
    let mut random = Random::new(env.seed ^ 1);
    repeat(env, 1, 100, |_| {
        let mut child = start_helper(env, "traffic")?;
        std::thread::sleep(Duration::from_micros(random.below(50_000) as u64));
        child.kill()?;
        let reloaded = reload(env);
        child.wait()?;
        reloaded?;
        Env::prepare(&env.args)
    })?;
    after_reset(env, 971)
}

fn endurance_card_reset_under_traffic(env: &Env) -> Res {
    let mut random = Random::new(env.seed ^ 2);
    repeat(env, 2, 100, |_| {
        let child = start_helper(env, "traffic")?;
        std::thread::sleep(Duration::from_micros(random.below(50_000) as u64));
        env.device()?.reset()?;
        end_of(child, env)
    })?;
    after_reset(env, 972)
}

fn endurance_card_unplugged_under_traffic(env: &Env) -> Res {
    let mut random = Random::new(env.seed ^ 3);
    repeat(env, 1, 50, |_| {
        let child = start_helper(env, "traffic")?;
        std::thread::sleep(Duration::from_micros(random.below(50_000) as u64));
        replace_card(env, child)?;
        Env::prepare(&env.args)
    })?;
    after_reset(env, 973)
}

/// Whatever they are; with `--long` also where memory is short. The next test tells of memory that they have lost.
fn endurance_unprivileged_system_calls(env: &Env) -> Res {
    let short = |n: u64| (env.args.long && n.is_multiple_of(2)).then_some(19);
    repeat(env, 1, 20, |n| unprivileged(env, env.seed.wrapping_add(n), 1200, short(n)))
}

/// Connections that are made and ended at a time: their messages travel while others are worked on.
const AT_A_TIME: u64 = 8;

/// Half of them within each of the two cards: their firmware takes the time, and the simulator clocks both at once.
fn endurance_connections_made_and_ended(env: &Env) -> Res {
    let source = Mem::pattern(100, 130)?;
    let context = env.context()?;
    let round = |n: u64| -> Res {
        let target = Mem::new(100)?;
        // The driver makes a send queue of two longer (`MIN_SQ_DEPTH`), and takes the others as they are.
        let depth = if (n / AT_A_TIME).is_multiple_of(2) { 2 } else { 4 };
        let (mut from, mut to) = loop_pair(env, &context, &depths(depth, depth), 980 + (n % AT_A_TIME) as u16)?;
        // Some are ended with receives granted, some with data under way, some after it.
        to.recv(n, &[target.sge(0, 100)])?;
        let kind = n / AT_A_TIME % 3;
        if kind == 0 {
            return Ok(());
        }
        from.send(n, &[source.sge(0, 100)])?;
        if kind == 1 {
            ensure_eq!(to.received(env)?.ok()?.wr_id, n);
            check(target.bytes(), 130, 0)?;
        }
        Ok(())
    };
    let many = |count: u64| -> Res {
        std::thread::scope(|scope| {
            let each = |k| move || (k..count).step_by(AT_A_TIME as usize).try_for_each(|n| told(n, count, || round(n)));
            let threads: Vec<_> = (0..AT_A_TIME).map(|k| scope.spawn(each(k))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })
    };
    // The context stays: it is no loss.
    let device: Device = env.device()?;
    let empty = |what: &str| {
        wait_until(what, env.hang, || Ok(device.counters()?.pinned() == 0 && device.counters()?.drv(c::D_QPS) == 0))
    };
    many(AT_A_TIME)?;
    empty("the first round is over")?;
    let count = env.cases(48, 10_000) / 2;
    let before = (Held::now(env)?, memory()?);
    let start = Instant::now();
    many(count)?;
    let time = start.elapsed();
    empty("all rounds are over")?;
    all_given_back(env, count, time, before)?;
    drop(context);
    loopback_works(env, 975)
}

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

fn endurance_kernel_has_lost_no_memory(env: &Env) -> Res {
    // Pages and objects that wait for something are not lost.
    env.device()?.set_limits(&Limits { linger_ms: Some(0), ..Limits::default() })?;
    nothing_left(env)?;
    fs::write(KMEMLEAK, "scan").map_err(|e| format!("kmemleak is not on (kmemleak=on): {e}"))?;
    // kmemleak reports objects that two scans have not found, and none younger than five seconds.
    std::thread::sleep(Duration::from_secs(6));
    fs::write(KMEMLEAK, "scan")?;
    let found = fs::read_to_string(KMEMLEAK)?;
    let count = found.matches("unreferenced object").count();
    println!("figures: kmemleak: {count} objects that nobody refers to");
    ensure!(count == 0, "{}", found.chars().take(6000).collect::<String>());
    Ok(())
}
