// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the tests, each in a process of its own, and checks what must hold after each.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use libberth::{Counters, Device};

use crate::args::Args;
use crate::env::{Env, Role};
use crate::test::{Effect, Place, Test};
use crate::util::{HELD, INCIDENTS, Res, fail, of_driver, pages, vm_pin, wait_until};
use crate::{
    bad_input, basics, channels, connections, credits, disk, endurance, examples, field, large_file, lifecycle, links,
    machine, memory, net, remote, rivals, syscalls, tool, trouble,
};

fn all() -> impl Iterator<Item = Test> {
    [
        basics::TESTS,
        credits::TESTS,
        memory::TESTS,
        remote::TESTS,
        channels::TESTS,
        links::TESTS,
        disk::TESTS,
        connections::TESTS,
        bad_input::TESTS,
        syscalls::TESTS,
        rivals::TESTS,
        trouble::TESTS,
        field::TESTS,
        tool::TESTS,
        lifecycle::TESTS,
        machine::TESTS,
        net::TESTS,
        examples::TESTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Those that only parts of their own run.
fn apart() -> impl Iterator<Item = Test> {
    endurance::TESTS.iter().chain(large_file::TESTS).copied()
}

/// Tests that the filter selects, each with its guest if it runs in one only.
fn selected(args: &Args) -> Vec<(Test, Role)> {
    let mut turn = Role::B;
    let of: Box<dyn Iterator<Item = Test>> = match (args.endurance, args.large_file) {
        (true, _) => Box::new(endurance::TESTS.iter().copied()),
        (_, true) => Box::new(large_file::TESTS.iter().copied()),
        _ => Box::new(all()),
    };
    of.filter(|t| args.run.is_empty() || args.run.iter().any(|f| t.name.contains(f.as_str())))
        .filter(|t| !args.skip.iter().any(|f| !f.is_empty() && t.name.contains(f.as_str())))
        .map(|t| {
            if t.place == Place::One {
                turn = turn.other();
            }
            (t, turn)
        })
        .collect()
}

/// Prints why a step failed.
pub fn report(result: Res) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one test in this process.
pub fn exec(args: &Args, name: &str) -> ExitCode {
    let env = Env::new(args, name);
    let Some(test) = all().chain(apart()).find(|t| t.name == name) else {
        eprintln!("no test {name}");
        return ExitCode::FAILURE;
    };
    let result = (test.run)(&env).and_then(|()| {
        // Its contexts are closed, so it is charged for nothing.
        wait_until("nothing of the process's memory counts as pinned", env.hang, || Ok(vm_pin()? == 0))
    });
    if result.is_err() && test.place == Place::Pair {
        // At once, so that the other guest's test does not wait for us.
        let _ = env.tell("failed", "");
    }
    report(result)
}

/// Runs the selected tests.
pub fn run(args: &Args) -> ExitCode {
    let mut args = args.clone();
    let seed = args.seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64));
    args.seed = Some(seed);
    let tests = selected(&args);
    if args.list {
        for (test, _) in &tests {
            println!("{}: test", test.name);
        }
        return ExitCode::SUCCESS;
    }
    println!("role {}, seed {seed} (repeat with --seed)", args.role.name());
    let mine: Vec<_> =
        tests.iter().filter(|(t, role)| t.place == Place::Pair || *role == args.role).map(|(t, _)| *t).collect();
    println!("running {} tests", mine.len());
    if let Err(e) = Env::prepare(&args) {
        println!("test setup ... FAILED\n{e}");
        println!("0 passed, 1 failed");
        return ExitCode::FAILURE;
    }
    let mut log = KernelLog::open();
    let (mut passed, mut failed) = (0, Vec::new());
    for test in mine {
        // With a result this line says which tests ran; without one, in which test a guest died.
        println!("test {} begins", test.name);
        let start = Instant::now();
        let result = run_one(&args, &test, &mut log);
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(figures) => {
                passed += 1;
                println!("test {} ... ok ({seconds:.1} s)", test.name);
                for line in figures {
                    println!("    {line}");
                }
            }
            Err(e) => {
                println!("test {} ... FAILED ({seconds:.1} s)", test.name);
                for line in e.to_string().lines() {
                    println!("    {line}");
                }
                show_counters();
                restore(&args, &test);
                failed.push(test.name);
                if args.fail_fast {
                    break;
                }
            }
        }
    }
    for name in &failed {
        println!("failed: {name}");
    }
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cleans up after a failed test: limits, faults on the wire, a card that is being reset or has to be.
fn restore(args: &Args, test: &Test) {
    let in_service =
        || wait_until("the card is in service", Duration::from_secs(60), || Ok(Env::prepare(args).is_ok()));
    if in_service().is_err() {
        println!("    the card is not in service and is reset");
        let reset = Device::open_first().map_err(Into::into).and_then(|d| Ok(d.reset()?));
        if let Err(e) = reset.and_then(|()| in_service()).and_then(|()| Env::prepare(args)) {
            println!("    limits not restored: {e}");
        }
    }
    if test.place == Place::Pair && args.role == Role::A {
        let env = Env::new(args, "setup");
        for line in ["release", "faults loss=0 dup=0 reorder=0 corrupt=0 control=0"] {
            if let Err(e) = env.sim(line) {
                println!("    wire not restored: {e}");
            }
        }
    }
}

/// Answers what the test has measured: its lines that begin with "figures: ".
fn run_one(args: &Args, test: &Test, log: &mut KernelLog) -> Res<Vec<String>> {
    let env = Env::new(args, test.name);
    if test.place == Place::Pair {
        // The other guest may still be busy with tests of its own.
        for _ in 0..20 {
            if env.meet("begin").is_ok() {
                break;
            }
        }
        env.meet("begin")?;
    }
    let before = env.counters().ok();
    let stray = env.sim_number("unmapped_dma")?;
    let mut result = run_process(args, test, env.hang);
    if result.is_err() && test.place == Place::Pair {
        let _ = env.tell("failed", "");
    }
    let after = check_after(&env, before.filter(|_| test.effect == Effect::Gentle).as_ref(), log);
    // Nor has the card touched what is not mapped for it: with an IOMMU before it, anything but what the driver lets it.
    let after = after.and_then(|()| {
        crate::ensure_eq!(env.sim_number("unmapped_dma")?, stray);
        Ok(())
    });
    if result.is_ok() {
        result = after.and(result);
    } else if let Err(e) = after {
        result = result.map_err(|first| format!("{first}\nand afterwards: {e}").into());
    }
    if test.place == Place::Pair {
        env.tell("end", if result.is_ok() { "ok" } else { "FAILED" })?;
        let other = env.hear("end")?;
        if result.is_ok() && other != "ok" {
            return fail("passed here, failed in the other guest");
        }
    }
    result
}

/// Runs a test in a process of its own; kills it when it hangs.
fn run_process(args: &Args, test: &Test, hang: Duration) -> Res<Vec<String>> {
    let output = std::env::temp_dir().join(format!("{}.log", test.name));
    let file = File::create(&output)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(std::env::args_os().skip(1))
        .args(["--exec", test.name, "--seed", &args.seed.unwrap_or(1).to_string()])
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    let mut child = command.spawn()?;
    // Tests that repeat something very often may take long, but each of their waits still has its own limit.
    let all = if args.endurance || args.long { 20 * hang } else { hang + hang / 4 };
    let deadline = Instant::now() + all;
    // Long tests are looked at seldom: a wait that never ends fails by its own limit first.
    let mut look = Instant::now() + if args.endurance || args.long { hang } else { hang / 4 };
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > look {
            look += hang / 2;
            println!("test {} takes long:", test.name);
            show_counters();
            print!("{}", pages());
        }
        if Instant::now() > deadline {
            let where_it_is = kernel_stack(child.id());
            child.kill()?;
            child.wait()?;
            fs::write(&output, format!("{}{where_it_is}", fs::read_to_string(&output)?))?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = fs::read_to_string(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    match status {
        Some(status) if status.success() => {
            Ok(text.lines().filter_map(|l| l.strip_prefix("figures: ")).map(str::to_owned).collect())
        }
        Some(status) => fail(format!("{text}{status}")),
        None => fail(format!("{text}hangs: killed")),
    }
}

fn kernel_stack(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/stack"))
        .map_or_else(|_| String::new(), |s| format!("kernel stack when it hung:\n{s}"))
}

/// Checks the invariants after a test's process is gone (1 and 3), and that the kernel did not complain; with the
/// counters of `before`, also that the test has led to no incident.
fn check_after(env: &Env, before: Option<&Counters>, log: &mut KernelLog) -> Res {
    let device = env.device().map_err(|e| format!("the device is gone after the test: {e}"))?;
    let limit = Duration::from_secs(60);
    let result = wait_until("nothing pinned, no object left", limit, || {
        Ok(of_driver(&device.counters()?, HELD) == [0; HELD.len()])
    });
    let n = device.counters()?;
    result.map_err(|e| {
        format!("{e}: pinned, QPs, CQs, contexts, translations, keys, copies: {:?}", of_driver(&n, HELD))
    })?;
    wait_until("no page is pinned by the kernel's own count", limit, || Ok(pins_of_kernel()? == 0))?;
    // No test sends without credit: neither card may have met such a packet (invariant 1).
    crate::ensure_eq!(n.fw(c::F_NO_CREDIT), 0);
    if let Some(before) = before {
        crate::ensure_eq!(of_driver(&n, INCIDENTS), of_driver(before, INCIDENTS));
        crate::ensure_eq!(n.rtl(c::C_CMD_BAD), before.rtl(c::C_CMD_BAD));
    }
    log.check()
}

/// Pins that the kernel has handed out (`FOLL_PIN`) and not got back: only the driver takes any here.
fn pins_of_kernel() -> Res<u64> {
    // Brings the counts of all processors together.
    fs::read("/proc/sys/vm/stat_refresh")?;
    let all = fs::read_to_string("/proc/vmstat")?;
    let of = |name: &str| -> Res<u64> {
        let line = all.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name}"))?;
        Ok(line.trim().parse()?)
    };
    Ok(of("nr_foll_pin_acquired ")?.wrapping_sub(of("nr_foll_pin_released ")?))
}

fn show_counters() {
    if let Ok(counters) = Device::open_first().and_then(|d| d.counters()) {
        let shown: Vec<String> = counters
            .iter()
            .filter(|n| n.value != 0)
            .map(|n| format!("{}.{}={}", n.layer, n.name.to_lowercase(), n.value))
            .collect();
        println!("    counters: {}", shown.join(" "));
    }
}

/// The kernel's log from when it was opened.
struct KernelLog(Option<File>);

impl KernelLog {
    fn open() -> Self {
        let file = File::options().read(true).open("/dev/kmsg").ok();
        if let Some(file) = &file {
            // SAFETY: no memory is involved. Reading starts behind what is there already, and does not block.
            unsafe {
                libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END);
                let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
                libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            }
        }
        Self(file)
    }

    /// Fails when the kernel has complained since the last look.
    fn check(&mut self) -> Res {
        const BAD: [&str; 9] = [
            "BUG:",
            "WARNING:",
            "KASAN",
            "DMA-API:",
            "possible circular locking",
            "Oops",
            "UBSAN",
            "panicked at",
            "possible recursive locking",
        ];
        let Some(file) = &mut self.0 else { return Ok(()) };
        let mut record = [0u8; 8192];
        let mut bad = Vec::new();
        // Reports of data races are judged outside, by their stacks; each ends with a line of these.
        let mut race = false;
        loop {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(n) => {
                    let line = String::from_utf8_lossy(&record[..n]);
                    let line = line.split_once(';').map_or(&*line, |(_, text)| text).trim_end();
                    race = line.contains("BUG: KCSAN:") || (race && !line.ends_with("====="));
                    if !race && (!bad.is_empty() || BAD.iter().any(|b| line.contains(b))) {
                        bad.push(line.to_owned());
                    }
                }
                // Records were overwritten before we read them.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        bad.truncate(40);
        if bad.is_empty() { Ok(()) } else { fail(format!("the kernel complained:\n{}", bad.join("\n"))) }
    }
}
