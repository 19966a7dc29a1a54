// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask test`: all checks and tests, part by part, and one line at the end that says how many passed.

mod rtl;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::checked::Checked;
use crate::coverage::{self, Counting};
use crate::demo;
use crate::environments;
use crate::formats;
use crate::functions;
use crate::fuzz;
use crate::generated;
use crate::guest::{self, Role};
use crate::keep;
use crate::kernel::{Flavour, Kernel};
use crate::layers;
use crate::needs::Need;
use crate::packaging;
use crate::panics;
use crate::progress::{self, Output, Progress, clock};
use crate::report::Figures;
use crate::sockets;
use crate::steps::{Builder, Parts, guest_programs};
use crate::verbs;

/// The table in the documentation that a `--long` run brings up to date.
const LONG_RESULT: &str = "docs/results/long-tests.md";
/// Parts that do more with `--long`; they stand in that table beside those that run only with it.
const LONGER: &[&str] =
    &["fuzz", "model-check", "formal", "rtl", "rtl-units", "system", "verbs", "sockets", "endurance"];
/// Tests that have a row of their own there, also when they ran alone (`--filter`): a part, and how their names begin.
const EACH_TEST: &[(&str, &str)] = &[("endurance", ""), ("verbs", "ap_1_pyverbs")];

/// How that file begins.
const PART_TABLE: &str = "# Long tests

`cargo xtask test --long` writes this page: the last result of each part that it adds or enlarges. All other parts run \
with every change ([how to test](../develop/test.md)).

| part | what | passed | failed | time | commit |
|---|---|---:|---:|---:|---|";
/// How its second table begins.
const TEST_TABLE: &str = "
## Single tests

The last result of tests that repeat something for hours, or run other tests; each may run alone (`--filter`).

| test | result | measured, or why it failed | time | commit |
|---|---|---|---:|---|";
/// Most characters of a test's output there.
const CELL: usize = 4000;

/// Where the protocol's sources lie.
const PROTOCOL: &str = "firmware/protocol/src/";

/// The protocol, and the packages of the workspace that it uses.
const PROTOCOL_PACKAGES: [&str; 3] = ["ci/random", "driver/abi", "firmware/protocol"];

/// Functions of it that need not have become code (start or end of "file:line name"), and why.
const NOT_LINKED: [(&str, &str); 10] = [
    ("model.rs", "host, engines and wire for tests, never on a card"),
    ("base/bound.rs", "nothing is left of it"),
    ("base/rule.rs", "nothing is left of it"),
    ("card/steps.rs", "used at compile time"),
    (" tag_of", "for tests, of the feature `model`"),
    (" describe", "for tests, of the feature `model`"),
    (" fmt", "the firmware makes no text"),
    (" part", "carriers: a constant"),
    (" body", "used at compile time"),
    (" place_of", "a shift and a mask: nothing is left of it"),
];

/// Parts that run one after the other beside the rest: guests wait for each other and for their cards more than they
/// compute, and would leave half of a small machine idle. Two pairs of guests at once are too many for it: with their
/// simulators they are more threads than processors, and each waits for one that does not run.
const BESIDE: [&str; 19] = [
    "bridge",
    "driver",
    "system",
    "verbs",
    "verbs-rxe",
    "sockets",
    "environments",
    "endurance",
    "install",
    "demo",
    "demo-keep",
    "system-iommu",
    "system-kcsan",
    "system-large",
    "large-file",
    "driver-tree",
    "demo-trace",
    "demo-seeds",
    "demo-full",
];

/// Parts that whichever of the two rows has ended first takes, so that both end at about the same time: the longest first.
const LAST: [&str; 5] = ["rtl-units", "synthesis", "bench", "formal", "simulate"];

/// Packages that want Verilator.
const IN_SYSROOT: [&str; 5] = ["berth-bench", "berth-rtl", "berth-rtl-host", "berth-rtl-unit", "berth-sim"];

/// Options of the tests.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Also run tests that take too long for every change: many seeds, faults on the wire. Its result goes to
    /// docs/results/long-tests.md.
    #[arg(long)]
    pub long: bool,
    /// Only these parts (see --list); may be repeated or separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    pub only: Vec<String>,
    /// Only tests whose name contains this (cargo tests and system tests in the guests).
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Seed for random tests, in the environment as BERTH_SEED.
    #[arg(long)]
    pub seed: Option<u64>,
    /// List the parts and end.
    #[arg(long)]
    pub list: bool,
}

/// What a part of the tests found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    /// What failed and why.
    notes: Vec<String>,
    /// Tests in guests, each by itself.
    tests: Vec<GuestTest>,
}

impl Counts {
    fn one() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    fn failure(note: String) -> Self {
        Self { failed: 1, notes: vec![note], ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.notes.extend(other.notes);
        self.tests.extend(other.tests);
    }
}

/// What a guest said of one of its tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GuestTest {
    name: String,
    /// "ok", "FAILED", or why there is neither.
    result: String,
    time: Duration,
    /// What was measured, or why it failed.
    lines: Vec<String>,
}

impl GuestTest {
    /// Adds it to those of the other guest: one that ran in both is one test, and ok if it is in both.
    fn join(self, tests: &mut Vec<Self>) {
        let Some(other) = tests.iter_mut().find(|other| other.name == self.name) else {
            return tests.push(self);
        };
        if other.result == "ok" {
            other.result = self.result;
        }
        other.time = other.time.max(self.time);
        other.lines.extend(self.lines);
    }
}

/// A test in guests that takes so long is named: their time is most of a run's.
const LONG_TEST: Duration = Duration::from_secs(15);

/// Lines that the summary shows of each failure.
const MOST_LINES: usize = 60;

/// A part of the tests.
struct Part {
    name: &'static str,
    about: &'static str,
    /// Why it runs with `--long` only; `None`: it runs for every change.
    long: Option<&'static str>,
    run: fn(&Tester) -> Result<Counts>,
}

/// What parts need to be fetched or built before they begin, besides the tools.
const NEEDS: [(&[&str], &[Need]); 6] = [
    (&["driver"], &[Need::Kernel(Flavour::Stock), Need::Kernel(Flavour::Test)]),
    (&["verbs-rxe"], &[Need::Kernel(Flavour::Stock), Need::Kernel(Flavour::Test), Need::GuestParts]),
    (&["driver-tree"], &[Need::Kernel(Flavour::Test)]),
    (
        &["system", "verbs", "sockets", "environments", "endurance", "system-iommu", "system-large", "driver-mutants"],
        &[Need::Kernel(Flavour::Test), Need::GuestParts],
    ),
    (&["system-kcsan"], &[Need::Kernel(Flavour::Kcsan), Need::GuestParts]),
    (
        &["install", "demo", "demo-keep", "demo-trace", "demo-seeds", "demo-full", "large-file"],
        &[Need::Kernel(Flavour::Stock), Need::GuestParts],
    ),
];

impl Part {
    fn needs(&self) -> &'static [Need] {
        NEEDS.iter().find(|(names, _)| names.contains(&self.name)).map_or(&[], |(_, needs)| needs)
    }
}

/// What a part found, and how long it took.
type Row = (&'static Part, Counts, Duration);

/// All parts, in the order in which they run: quick ones first.
const PARTS: &[Part] = &[
    Part { name: "fmt", about: "rustfmt, everywhere", long: None, run: Tester::fmt },
    Part {
        name: "gen",
        about: "generated files are what driver/abi says; what docs name exists",
        long: None,
        run: Tester::generated,
    },
    Part {
        name: "layers",
        about: "no source folder uses one beside or above it, no files use each other in a circle",
        long: None,
        run: Tester::layers,
    },
    Part {
        name: "host",
        about: "unit and property tests with this machine's own cargo, but for the protocol's",
        long: None,
        run: Tester::host,
    },
    Part { name: "clippy", about: "Clippy: workspace and firmware", long: None, run: Tester::clippy },
    Part { name: "formats", about: "wire formats against scapy and tshark", long: None, run: Tester::formats },
    Part {
        name: "coverage",
        about: "the protocol's tests, which reach more than 95 % of its lines",
        long: None,
        run: Tester::coverage,
    },
    Part {
        name: "fuzz",
        about: "the protocol fuzzed for a minute and a half; ten minutes with --long",
        long: None,
        run: Tester::fuzz,
    },
    Part {
        name: "panic-free",
        about: "no path from firmware/protocol into a panic, in the firmware and in a program with all of it",
        long: None,
        run: Tester::panic_free,
    },
    Part {
        name: "model-check",
        about: "every state of the protocol machines, within bounds; larger ones with --long",
        long: None,
        run: Tester::model_check,
    },
    Part { name: "simulate", about: "the simulation with 64 hosts, all questions", long: None, run: Tester::simulate },
    Part { name: "rtl-lint", about: "Verilator -Wall over the RTL at every width", long: None, run: Tester::rtl_lint },
    Part {
        name: "formal",
        about: "proofs about the RTL; with --long also that each can fail",
        long: None,
        run: Tester::formal,
    },
    Part {
        name: "rtl",
        about: "benches on the Verilated card, 64 and 512 bits wide; all widths with --long",
        long: None,
        run: Tester::rtl,
    },
    Part { name: "simulator", about: "berth-sim", long: None, run: Tester::simulator },
    Part {
        name: "bridge",
        about: "scapy and other programs at a simulated card's wire",
        long: None,
        run: Tester::bridge,
    },
    Part { name: "driver", about: "builds for both kernels without warnings; Clippy", long: None, run: Tester::driver },
    Part { name: "system", about: "system tests in two guests with the test kernel", long: None, run: Tester::system },
    Part {
        name: "verbs",
        about: "Debian's unmodified programs for verbs in two guests; pyverbs' tests with --long",
        long: None,
        run: Tester::verbs,
    },
    Part {
        name: "verbs-rxe",
        about: "the same programs between a card and Linux' soft RoCE, in two guests",
        long: None,
        run: Tester::verbs_rxe,
    },
    Part {
        name: "sockets",
        about: "Debian's unmodified programs that use TCP sockets, in two guests; larger files with --long",
        long: None,
        run: Tester::sockets,
    },
    Part {
        name: "environments",
        about: "short guests without MSI, PAT, direct DMA …: the driver refuses by name, or works",
        long: None,
        run: Tester::environments,
    },
    Part {
        name: "endurance",
        about: "what is left after many kills, reloads, resets, connections; very many with --long",
        long: None,
        run: Tester::endurance,
    },
    Part {
        name: "install",
        about: "DKMS, module, firmware and udev rule on a Debian host with its stock kernel",
        long: None,
        run: Tester::install,
    },
    Part { name: "demo", about: "the demo with a small file, without and with faults", long: None, run: Tester::demo },
    Part {
        name: "demo-keep",
        about: "demo --keep: shells of the guests answer, Ctrl-C ends it",
        long: None,
        run: Tester::demo_keep,
    },
    Part { name: "synthesis", about: "the RTL through Yosys", long: None, run: Tester::synthesis },
    Part {
        name: "rtl-units",
        about: "benches of single modules, 64 and 512 bits wide; all widths with --long",
        long: None,
        run: Tester::rtl_units,
    },
    Part { name: "bench", about: "figures of the card reach their bars", long: None, run: Tester::bench },
    Part {
        name: "system-iommu",
        about: "system tests of memory and life with an IOMMU before the card",
        long: Some("the driver's part of it is tested without one, too"),
        run: Tester::system_iommu,
    },
    Part {
        name: "system-kcsan",
        about: "system tests of races with the kernel that looks for them",
        long: Some("it takes a kernel of its own"),
        run: Tester::system_kcsan,
    },
    Part {
        name: "system-large",
        about: "system tests of queue pairs with large cards, which have a thousand",
        long: Some("a large card takes long to build and to simulate"),
        run: Tester::system_large,
    },
    Part {
        name: "mutants",
        about: "the protocol's tests notice what is broken in it (mutation testing)",
        long: Some("hours"),
        run: Tester::mutants,
    },
    Part {
        name: "rtl-mutants",
        about: "the benches of the RTL's modules notice what is broken in them, in a sample",
        long: Some("hours"),
        run: Tester::rtl_mutants,
    },
    Part {
        name: "driver-host-mutants",
        about: "the driver's tests on the host notice what is broken in it, but for what wraps the kernel",
        long: Some("hours"),
        run: Tester::driver_host_mutants,
    },
    Part {
        name: "driver-mutants",
        about: "the tests on the host and in the guests notice what is broken in the driver, in a sample",
        long: Some("hours"),
        run: Tester::driver_mutants,
    },
    Part {
        name: "large-file",
        about: "a file larger than the guest's memory, sent by a user who may pin little",
        long: Some("192 MiB go through the simulated card"),
        run: Tester::large_file,
    },
    Part {
        name: "driver-tree",
        about: "the driver inside a kernel tree",
        long: Some("a kernel tree is configured and built for it"),
        run: Tester::driver_tree,
    },
    Part {
        name: "demo-trace",
        about: "demo --trace writes waveforms (FST)",
        long: Some("waveforms make it many times as slow"),
        run: Tester::demo_trace,
    },
    Part {
        name: "rtl-seeds",
        about: "RTL benches with three more seeds at each width",
        long: Some("part rtl runs with one seed"),
        run: Tester::rtl_seeds,
    },
    Part {
        name: "rtl-guided",
        about: "the Verilated card fuzzed, guided by coverage of its RTL",
        long: Some("an hour"),
        run: Tester::rtl_guided,
    },
    Part {
        name: "rtl-small",
        about: "two small cards, firmware's RAM outside",
        long: Some("two cards more to build"),
        run: Tester::rtl_small,
    },
    Part {
        name: "demo-seeds",
        about: "1 MiB through a bad wire, four seeds",
        long: Some("part demo has the bad wire with one seed"),
        run: Tester::demo_seeds,
    },
    Part {
        name: "demo-full",
        about: "the demo as a user starts it",
        long: Some("part demo has a smaller file"),
        run: Tester::demo_full,
    },
];

/// Everything that the parts share.
struct Tester {
    builder: Builder,
    arguments: Arguments,
}

/// Runs the tests. Returns whether all passed.
///
/// # Errors
/// When the set-up fails or the user interrupts; a failing test is not an error.
pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.list {
        for part in PARTS {
            let why = part.long.map_or_else(String::new, |why| format!(" (only with --long: {why})"));
            println!("{:<12} {}{why}", part.name, part.about);
        }
        return Ok(true);
    }
    let chosen: Vec<&Part> = if arguments.only.is_empty() {
        PARTS.iter().filter(|p| arguments.long || p.long.is_none()).collect()
    } else {
        if let Some(unknown) = arguments.only.iter().find(|o| PARTS.iter().all(|p| p.name != o.as_str())) {
            let names: Vec<_> = PARTS.iter().map(|p| p.name).collect();
            bail!("no part {unknown}; the parts are {}", names.join(", "));
        }
        PARTS.iter().filter(|p| arguments.only.iter().any(|o| o == p.name)).collect()
    };
    let mut needs = vec![Need::TestBuilds];
    needs.extend(chosen.iter().flat_map(|part| part.needs()));
    let tester = Tester { builder: Builder::new(&needs)?, arguments: arguments.clone() };
    let (start, free) = (Instant::now(), tester.builder.context.free()?);
    // In the order of the names.
    let of = |names: &[&str]| {
        let named = names.iter().filter_map(|name| chosen.iter().copied().find(|part| part.name == *name));
        named.collect::<Vec<_>>()
    };
    let (beside, last) = (of(&BESIDE), Mutex::new(of(&LAST).into_iter()));
    let here = chosen.iter().copied().filter(|part| !BESIDE.contains(&part.name) && !LAST.contains(&part.name));
    // A `for` loop would hold the lock while the part runs.
    let mut lasts = [(); 2].map(|()| std::iter::from_fn(|| last.lock().ok()?.next()));
    let [last_here, last_beside] = &mut lasts;
    let mut rows = thread::scope(|scope| {
        let beside = scope.spawn(|| tester.parts(beside.into_iter().chain(last_beside)));
        let here = tester.parts(here.chain(last_here));
        let beside = beside.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok::<_, anyhow::Error>([here?, beside?].concat())
    })?;
    rows.sort_by_key(|row| chosen.iter().position(|part| part.name == row.0.name));
    println!("\n{:<12} {:>8} {:>7} {:>9}", "part", "passed", "failed", "time");
    let mut total = Counts::default();
    for (part, counts, time) in &rows {
        let mark = if counts.failed == 0 { "" } else { "  ✗" };
        println!("{:<12} {:>8} {:>7} {:>9}{mark}", part.name, counts.passed, counts.failed, clock(*time));
        total.add(counts.clone());
    }
    if total.failed > 0 {
        println!("\nfailed:");
        for (part, counts, _) in rows.iter().filter(|r| r.1.failed > 0) {
            for note in &counts.notes {
                // Whoever has the end of the output alone is to see why.
                let mut lines = note.lines().take(MOST_LINES);
                println!("  {}: {}", part.name, lines.next().unwrap_or_default());
                lines.for_each(|line| println!("    {line}"));
            }
        }
    }
    if arguments.long {
        record_long(tester.repo(), &rows, arguments.filter.is_none())?;
    }
    let disk = i128::from(free) - i128::from(tester.builder.context.free()?);
    println!("{} in all, {} MB of disk", clock(start.elapsed()), disk / 1_000_000);
    println!("{} passed, {} failed", total.passed, total.failed);
    if let Some(filter) = arguments.filter.as_ref().filter(|_| total.passed + total.failed == 0) {
        bail!("no test of these parts has {filter:?} in its name");
    }
    Ok(total.failed == 0)
}

/// rustfmt, Clippy, generated files, layers, Verilator's lint.
///
/// # Errors
/// As [`run`].
pub fn lint() -> Result<bool> {
    let only = ["fmt", "gen", "layers", "clippy", "rtl-lint"].map(str::to_owned).to_vec();
    run(&Arguments { only, ..Arguments::default() })
}

/// Puts what ran into the tables of long tests: parts that ran as a `whole`, and single tests of some. Rows of what did
/// not run stay.
fn record_long(repo: &Path, rows: &[Row], whole: bool) -> Result<()> {
    let path = repo.join(LONG_RESULT);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let commit = Command::new("git").current_dir(repo).args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let after = long_results(&before, rows, whole, &commit);
    if after != before {
        fs::write(path, after)?;
        println!("wrote {LONG_RESULT}");
    }
    Ok(())
}

/// The text of the file of long tests, made of the one that was there `before`.
fn long_results(before: &str, rows: &[Row], whole: bool, commit: &str) -> String {
    let (parts, tests) = before.split_once("\n## ").unwrap_or((before, ""));
    let mut text = format!("{PART_TABLE}\n");
    for part in PARTS.iter().filter(|p| p.long.is_some() || LONGER.contains(&p.name)) {
        let ran = rows.iter().find(|(ran, ..)| whole && ran.name == part.name);
        let row = match ran {
            Some((_, counts, time)) => {
                let (passed, failed, time) = (counts.passed, counts.failed, clock(*time));
                Some(format!("| {} | {} | {passed} | {failed} | {time} | {commit} |", part.name, part.about))
            }
            None => parts.lines().find(|line| line.starts_with(&format!("| {} |", part.name))).map(str::to_owned),
        };
        text.extend(row.map(|row| row + "\n"));
    }
    let name = |row: &str| Some(row.strip_prefix("| ")?.split_once(" |")?.0.to_owned());
    let named = tests.lines().filter_map(|row| Some((name(row)?, row.to_owned())));
    let mut each: BTreeMap<_, _> = named.filter(|(name, _)| name.contains(": ")).collect();
    for (part, counts, _) in rows {
        let each_of = EACH_TEST.iter().find(|(name, _)| *name == part.name);
        for test in counts.tests.iter().filter(|test| each_of.is_some_and(|(_, first)| test.name.starts_with(first))) {
            let name = format!("{}: {}", part.name, test.name);
            let lines: String = test.lines.join("; ").replace('|', "/").chars().take(CELL).collect();
            let row = format!("| {name} | {} | {lines} | {} | {commit} |", test.result, clock(test.time));
            each.insert(name, row);
        }
    }
    if !each.is_empty() {
        text += &format!("{TEST_TABLE}\n");
        text.extend(each.into_values().map(|row| row + "\n"));
    }
    text
}

impl Tester {
    /// Runs parts one after the other.
    fn parts(&self, parts: impl Iterator<Item = &'static Part>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for part in parts {
            progress::line(&format!("── {}: {}", part.name, part.about));
            let start = Instant::now();
            let counts = match (part.run)(self) {
                Ok(counts) => counts,
                Err(error) if progress::interrupted() => return Err(error),
                Err(error) => Counts::failure(format!("{error:#}")),
            };
            for note in &counts.notes {
                progress::line(&format!("{}: {}", part.name, note.replace('\n', "\n  ")));
            }
            let mut longest: Vec<_> = counts.tests.iter().filter(|test| test.time >= LONG_TEST).collect();
            longest.sort_by_key(|test| Reverse(test.time));
            if !longest.is_empty() {
                let said = longest.iter().map(|test| format!("{} {} s", test.name, test.time.as_secs()));
                progress::line(&format!("  {}, longest tests: {}", part.name, said.collect::<Vec<_>>().join(", ")));
            }
            rows.push((part, counts, start.elapsed()));
        }
        Ok(rows)
    }

    fn repo(&self) -> &Path {
        &self.builder.context.repo
    }

    /// Runs a command under a progress line; its output is in a log.
    fn step(&self, title: &str, command: &mut Command) -> Result<(Output, PathBuf)> {
        let name: String = title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let log = self.builder.context.log(&format!("test-{name}"))?;
        let mut progress = Progress::start(title, None);
        let output = progress::output(&mut progress, &log, command);
        progress.finish(output.as_ref().is_ok_and(|o| o.ok));
        Ok((output?, log))
    }

    /// A command that passes when it exits with 0.
    fn check(&self, title: &str, command: &mut Command) -> Result<Counts> {
        Ok(self.check_and_lines(title, command)?.0)
    }

    /// As `check`, and the lines that were printed.
    fn check_and_lines(&self, title: &str, command: &mut Command) -> Result<(Counts, Vec<String>)> {
        let (output, log) = self.step(title, command)?;
        let failed = || Counts::failure(progress::failure(title, &log, &output.lines));
        Ok((if output.ok { Counts::one() } else { failed() }, output.lines))
    }

    /// As `check`, of a command that keeps what it has found; says how many lines are of something that was `before`.
    fn check_what_is_new(&self, title: &str, command: &mut Command, before: &str) -> Result<Counts> {
        let (counts, lines) = self.check_and_lines(title, command)?;
        let again = lines.iter().filter(|line| line.contains(before)).count();
        if again > 0 {
            progress::line(&format!("  {title}: {again} {before}, from the same inputs"));
        }
        Ok(counts)
    }

    /// A cargo test command: its own counts.
    fn cargo_tests(&self, title: &str, command: &mut Command) -> Result<Counts> {
        Ok(self.cargo_tests_and_output(title, command)?.0)
    }

    /// As `cargo_tests`, and the lines that were printed.
    fn cargo_tests_and_output(&self, title: &str, command: &mut Command) -> Result<(Counts, Vec<String>)> {
        if let Some(seed) = self.arguments.seed {
            command.env("BERTH_SEED", seed.to_string());
        }
        if let Some(filter) = &self.arguments.filter {
            command.arg("--").arg(filter);
        }
        let (output, log) = self.step(title, command)?;
        for line in output.lines.iter().filter_map(|l| l.split_once("skipped: ")) {
            progress::line(&format!("  skipped: {}", line.1));
        }
        let mut counts = count_cargo_tests(&output.lines);
        if !output.ok {
            // Also when a test binary died before it printed a result.
            counts.failed = counts.failed.max(1);
            counts.notes.push(progress::failure(title, &log, &output.lines));
        }
        Ok((counts, output.lines))
    }

    fn fmt(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        // Of the firmware without `--all`, which would have the packages of the workspace above in it.
        let firmware = ["berth-firmware", "berth-panic-free", "berth-rt", "berth-soc", "berth-timing"];
        let firmware = firmware.map(|package| ["--package", package]).concat();
        for (folder, title, which) in
            [("", "rustfmt workspace", &["--all"][..]), ("firmware/app", "rustfmt firmware", &firmware)]
        {
            let cwd = self.repo().join(folder);
            let arguments: Vec<&str> = ["fmt", "--check"].into_iter().chain(which.iter().copied()).collect();
            let mut command = self.builder.cargo(&cwd, "target-sysroot", &arguments)?;
            counts.add(self.check(title, &mut command)?);
        }
        let driver = self.repo().join("driver");
        let mut command = self.builder.sysroot.command(&driver, &[], "sh");
        command.args(["-c", "exec rustfmt --check --edition 2021 ./*.rs"]);
        counts.add(self.check("rustfmt driver", &mut command)?);
        Ok(counts)
    }

    fn generated(&self) -> Result<Counts> {
        generated::run(&self.builder.context, true)?;
        Ok(Counts::one())
    }

    fn layers(&self) -> Result<Counts> {
        layers::check(self.repo())?;
        Ok(Counts::one())
    }

    fn host(&self) -> Result<Counts> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(self.repo()).args(["test", "--no-fail-fast", "--workspace"]);
        let elsewhere = if self.arguments.filter.is_none() { &coverage::TESTED[..] } else { &[] };
        command.args(IN_SYSROOT.iter().chain(elsewhere).flat_map(|package| ["--exclude", package]));
        self.cargo_tests("cargo test", &mut command)
    }

    /// Runs the check of a part, whose result depends on nothing but `what` it is called with, the `sources`, the seed and
    /// the compiler, unless it has passed with the very same ones. With `--long` or `--filter` it always runs.
    fn once(
        &self,
        part: &str,
        what: &[&str],
        rustc: &mut Command,
        sources: &[&str],
        run: impl FnOnce() -> Result<Counts>,
    ) -> Result<Counts> {
        if self.arguments.long || self.arguments.filter.is_some() {
            return run();
        }
        let seed = self.arguments.seed.map(|seed| seed.to_string()).unwrap_or_default();
        let checked = Checked::new(&self.builder.context, &[&[part], what, &[&seed]].concat(), rustc, sources)?;
        if let Some(passed) = checked.passed() {
            progress::line(&format!("  {part}: passed before, with the same sources"));
            return Ok(Counts { passed, ..Counts::default() });
        }
        let counts = run()?;
        if counts.failed == 0 {
            checked.keep(counts.passed)?;
        }
        Ok(counts)
    }

    /// The compiler that this machine's own cargo uses.
    fn rustc(&self) -> Command {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.current_dir(self.repo());
        command
    }

    fn model_check(&self) -> Result<Counts> {
        let arguments = ["run", "--profile", "checked", "--package", "berth-check", "--"];
        let sources = [&PROTOCOL_PACKAGES[..], &["firmware/check"]].concat();
        self.once("model-check", &arguments, &mut self.rustc(), &sources, || self.model_checking(&arguments))
    }

    /// Each check and each broken rule counts as a test.
    fn model_checking(&self, arguments: &[&str]) -> Result<Counts> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(self.repo()).args(arguments);
        if self.arguments.long {
            command.arg("--long");
        }
        if let Some(filter) = &self.arguments.filter {
            command.arg(filter);
        }
        let title = "model checking";
        let (output, log) = self.step(title, &mut command)?;
        let mut counts = Counts::default();
        for line in &output.lines {
            match line.split_whitespace().next() {
                Some("ok" | "seen") => counts.passed += 1,
                Some("FAIL" | "MISS") => counts.failed += 1,
                _ => (),
            }
        }
        if !output.ok {
            counts.failed = counts.failed.max(1);
            counts.notes.push(progress::failure(title, &log, &output.lines));
        }
        Ok(counts)
    }

    /// Every run must end with all messages received; the program fails if not.
    fn simulate(&self) -> Result<Counts> {
        let out = self.builder.context.built_folder("simulation")?;
        let seed = self.arguments.seed.unwrap_or(1).to_string();
        // With overflow checks and every call's step bound.
        let program = ["run", "--profile", "checked", "--package", "berth-fabric", "--"];
        let arguments = [&program[..], &["--nodes", "64", "--seed", &seed, "--out"]].concat();
        let sources = [&PROTOCOL_PACKAGES[..], &["host-tools/berth-fabric"]].concat();
        self.once("simulate", &arguments, &mut self.rustc(), &sources, || {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command.current_dir(self.repo()).args(&arguments).arg(out);
            self.check("simulation with 64 hosts", &mut command)
        })
    }

    fn clippy(&self) -> Result<Counts> {
        let arguments = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "berth-credits/verbs,berth-credits/tcp-options",
            "--",
            "-D",
            "warnings",
        ];
        let mut command = self.builder.cargo(self.repo(), "target-sysroot", &arguments)?;
        command.env("BERTH_NO_MODEL", "1");
        let mut counts = self.check("Clippy workspace", &mut command)?;
        let app = self.repo().join("firmware/app");
        let mut command = self.builder.cargo(
            &app,
            "target-firmware",
            &["clippy", "--workspace", "--release", "--", "-D", "warnings"],
        )?;
        command.env("RUSTC_BOOTSTRAP", "1");
        counts.add(self.check("Clippy firmware", &mut command)?);
        Ok(counts)
    }

    fn formats(&self) -> Result<Counts> {
        let found = formats::compare(&self.builder, self.arguments.seed.unwrap_or(1))?;
        progress::line(&format!(
            "  {} frames read by scapy, {} by tshark, {} of scapy's read by us; {} fields equal",
            found.by_scapy, found.by_tshark, found.by_us, found.fields
        ));
        if found.differences.is_empty() {
            return Ok(Counts::one());
        }
        Ok(Counts::failure(format!("{} differences:\n{}", found.differences.len(), found.differences.join("\n"))))
    }

    fn fuzz(&self) -> Result<Counts> {
        let arguments = fuzz::Arguments {
            minutes: if self.arguments.long { 10.0 } else { 1.5 },
            targets: Vec::new(),
            seed: self.arguments.seed.unwrap_or(1) as u32,
            keep: false,
            input: None,
        };
        let mut counts = Counts::default();
        for outcome in fuzz::fuzz(&self.builder, &arguments)? {
            counts.add(outcome.failure.map_or_else(Counts::one, Counts::failure));
        }
        Ok(counts)
    }

    fn mutants(&self) -> Result<Counts> {
        self.mutants_of("mutants of the protocol", &["--quick", "6"])
    }

    fn rtl_mutants(&self) -> Result<Counts> {
        self.mutants_of("mutants of the RTL", &["--rtl", "--sample", "60"])
    }

    fn driver_host_mutants(&self) -> Result<Counts> {
        self.mutants_of("mutants of the driver, on the host", &["--driver", "--host"])
    }

    fn driver_mutants(&self) -> Result<Counts> {
        self.mutants_of("mutants of the driver", &["--driver", "--sample", "30", "--quick", "15"])
    }

    /// Each mutant that is noticed counts as a test; some may survive, as many as the bar allows.
    fn mutants_of(&self, title: &str, arguments: &[&str]) -> Result<Counts> {
        let mut arguments: Vec<_> = arguments.iter().map(|&a| a.to_owned()).collect();
        if let Some(filter) = &self.arguments.filter {
            arguments.extend(["--only".to_owned(), filter.clone()]);
        }
        let (output, log) = self.step(title, &mut mutants(&self.builder, &arguments)?)?;
        let number = |line: &str, word: &str| {
            line.split(", ").find_map(|part| part.strip_suffix(word)?.trim().parse::<u64>().ok())
        };
        let last = output.lines.iter().rev().find(|l| l.contains(" killed, ")).map_or("", |l| l.as_str());
        let [killed, explained, survived] =
            [" killed", " explained", " survived"].map(|word| number(last, word).unwrap_or(0));
        let at = output.lines.iter().position(|l| l.starts_with("group")).unwrap_or(output.lines.len());
        for line in &output.lines[at..] {
            progress::line(&format!("  {line}"));
        }
        let mut counts = Counts { passed: killed + explained, ..Counts::default() };
        if !output.ok {
            counts.failed = survived.max(1);
            counts.notes.push(progress::failure(title, &log, &output.lines));
        }
        Ok(counts)
    }

    fn coverage(&self) -> Result<Counts> {
        let mut rustc = self.builder.sysroot.command(self.repo(), &[], "rustc");
        let sources = [&PROTOCOL_PACKAGES[..], &["firmware/fuzz", "ci/xtask/src/coverage.rs"]].concat();
        self.once("coverage", &[], &mut rustc, &sources, || self.covering())
    }

    fn covering(&self) -> Result<Counts> {
        let counting = Counting::new(&self.builder)?;
        let mut counts = self.cargo_tests("the protocol's tests", &mut counting.tests(&["--no-fail-fast"])?)?;
        if counts.failed > 0 || self.arguments.filter.is_some() {
            return Ok(counts);
        }
        let found = counting.lines()?;
        let (lines, reached) = found.total();
        progress::line(&format!("  {reached} of {lines} lines, {:.1} %", found.percent()));
        counts.add(match found.percent() > coverage::WANTED {
            true => Counts::one(),
            false => {
                Counts::failure(format!("{:.1} % of the lines are reached:\n{}", found.percent(), found.table(true)))
            }
        });
        Ok(counts)
    }

    fn panic_free(&self) -> Result<Counts> {
        // Which of its own panics a program may have. The second one has nothing else of its own, so any other panic in
        // it comes from a call to the protocol that was inlined and whose lines got lost.
        let images = [
            ("the firmware", self.builder.firmware()?.elf, ""),
            ("all of it", self.builder.panic_free()?, "firmware/panic-free/src/main.rs"),
        ];
        let mut note = String::new();
        let mut linked: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for (image, elf, own) in images {
            let found = panics::search(&elf, PROTOCOL, "berth_protocol")?;
            if found.elsewhere.is_empty() {
                // Each program has a panic of its own, which a working search must find.
                note += &format!("\n{image}: the search found no panic at all");
            }
            progress::line(&format!(
                "  {image}: {} functions, {} calls through registers to {} of them; \
                 {} of the standard library may panic, called in {} places of other crates",
                found.functions,
                found.indirect,
                found.taken,
                found.panicking,
                found.elsewhere.len()
            ));
            for place in found.places.iter().chain(found.elsewhere.iter().filter(|place| !place.contains(own))) {
                note += &format!("\n{image}: {place}");
            }
            for function in &found.recursive {
                note += &format!("\n{image}: calls itself, or is in a circle of calls: {function}");
            }
            for file in &found.named {
                note += &format!("\n{image}: a panic message names {file}");
            }
            for (file, lines) in found.linked {
                linked.entry(file).or_default().extend(lines);
            }
        }
        for function in functions::missing(&self.repo().join(PROTOCOL), &linked)? {
            if !NOT_LINKED.iter().any(|(name, _)| function.starts_with(name) || function.ends_with(name)) {
                note += &format!("\nin neither program: {function}");
            }
        }
        match note.is_empty() {
            true => Ok(Counts::one()),
            false => Ok(Counts::failure(format!("firmware/protocol may panic, or was not looked at:{note}"))),
        }
    }

    fn formal(&self) -> Result<Counts> {
        let mut command = self.builder.sysroot.command(self.repo(), &[], "sh");
        command.arg("hw-rtl/formal/run.sh").env("BERTH_MUTANTS", if self.arguments.long { "all" } else { "0" });
        if !self.arguments.long {
            // A proof whose every input is as it was need not be found again.
            let proved = self.builder.context.cache.join("proved");
            fs::create_dir_all(&proved)?;
            command.env("BERTH_PROVED", proved);
        }
        self.check_what_is_new("formal proofs", &mut command, "proved before")
    }

    fn synthesis(&self) -> Result<Counts> {
        let output = self.builder.context.built_folder("synthesis")?;
        let mut command = self.builder.sysroot.command(self.repo(), &[], "sh");
        command.arg("hw-rtl/synth/run.sh").arg(output).env("BERTH_VEXRISCV", self.builder.soft_core()?);
        if !self.arguments.long {
            let kept = self.builder.context.cache.join("synthesised");
            fs::create_dir_all(&kept)?;
            command.env("BERTH_SYNTHESISED", kept);
        }
        self.check_what_is_new("Yosys", &mut command, "synthesised before")
    }

    /// `cargo test` of a package in the sysroot.
    fn sysroot_tests(&self, package: &str) -> Result<Command> {
        let firmware = self.builder.firmware()?;
        let arguments = ["test", "--release", "--no-fail-fast", "--package", package];
        let mut command = self.builder.cargo(self.repo(), "target-sysroot", &arguments)?;
        command.env("BERTH_FW_IMAGE", firmware.image).env("BERTH_FW_ELF", firmware.elf);
        Ok(command)
    }

    fn simulator(&self) -> Result<Counts> {
        let mut command = self.sysroot_tests("berth-sim")?;
        command.args(["--lib", "--bins", "--test", "cards", "--test", "vfio_user"]);
        self.cargo_tests("simulator", &mut command)
    }

    /// Both kinds of places; that with a TAP interface is skipped, by name, where the machine or the user has none.
    fn bridge(&self) -> Result<Counts> {
        let mut command = self.sysroot_tests("berth-sim")?;
        command.args(["--test", "bridge"]).env("BERTH_SCAPY", self.builder.scapy()?);
        if self.arguments.filter.is_none() {
            command.args(["--", "--nocapture"]);
        }
        let title = "programs outside of the simulator";
        self.cargo_tests(title, &mut command)
    }

    fn driver(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        for (flavour, arguments) in [(Flavour::Stock, &[][..]), (Flavour::Test, &["CLIPPY=1"])] {
            let kernel = Kernel::ensure(&self.builder.context, &self.builder.sysroot, flavour)?;
            // In an empty folder, because warnings come only from what is compiled, and not where the guests' module
            // is, because what Clippy compiled is not for them.
            let output = self.builder.context.built_folder(&format!("driver-check/{}", flavour.name()))?;
            fs::remove_dir_all(&output)?;
            fs::create_dir(&output)?;
            let title =
                format!("driver, {} kernel{}", flavour.name(), if arguments.is_empty() { "" } else { ", Clippy" });
            let (output, log) = self.step(&title, &mut self.builder.driver_make(&kernel, &output, arguments)?)?;
            counts.add(without_warnings(&title, &output, &log));
        }
        Ok(counts)
    }

    fn install(&self) -> Result<Counts> {
        let mut progress = Progress::start("Berth on a Debian host, as its page says", Some("1 min"));
        let result = packaging::install(&self.builder, &mut progress);
        progress.finish(result.is_ok());
        match result {
            Ok(passed) => Ok(Counts { passed, ..Counts::default() }),
            Err(error) if progress::interrupted() => Err(error),
            Err(error) => Ok(Counts::failure(format!("install: {error:#}"))),
        }
    }

    fn driver_tree(&self) -> Result<Counts> {
        let kernel = Kernel::ensure(&self.builder.context, &self.builder.sysroot, Flavour::Test)?;
        let (mut prepare, mut make) = packaging::in_tree(&self.builder, &kernel)?;
        let counts = self.check("a kernel tree with the driver in it", &mut prepare)?;
        if counts.failed > 0 {
            return Ok(counts);
        }
        let title = "driver, inside the kernel tree";
        let (output, log) = self.step(title, &mut make)?;
        let counts = without_warnings(title, &output, &log);
        // Some gigabytes that are not needed any more.
        fs::remove_dir_all(self.builder.context.built_folder("in-tree")?)?;
        Ok(counts)
    }

    fn system(&self) -> Result<Counts> {
        self.guest_tests(Flavour::Test, "system tests in two guests", "15 min", "", |_| ())
    }

    fn verbs(&self) -> Result<Counts> {
        self.programs("programs that use verbs, in two guests", false)
    }

    fn verbs_rxe(&self) -> Result<Counts> {
        self.programs("programs that use verbs, between a card and soft RoCE", true)
    }

    /// Programs of others that use verbs; each is a test.
    fn programs(&self, title: &str, rxe: bool) -> Result<Counts> {
        let bursts = self.builder.bursts()?;
        let installed = verbs::Installed::new(&self.builder)?;
        bursts.programs.iter().try_for_each(|program| installed.add_program(program))?;
        let mut options = guest::Options::new(Flavour::Test);
        installed.set(&mut options);
        let run = guest::Run::new()?;
        if rxe {
            installed.set_rxe(&self.builder, &mut options)?;
            // Which of the two is wrong shows on the wire.
            options.simulator = vec!["--capture".to_owned(), run.folder.join("wire.pcapng").display().to_string()];
        }
        verbs::prepare(&run, self.arguments.filter.as_deref().unwrap_or_default(), self.arguments.long, rxe)?;
        let mut progress = Progress::start(title, Some("3 min"));
        let end = guest::run(&self.builder, &installed.parts, &options, &run, &mut progress);
        progress.finish(end.as_ref().is_ok_and(|e| e.faults().is_empty()));
        of_programs(run, end)
    }

    /// Programs of others that use sockets; each is a test.
    fn sockets(&self) -> Result<Counts> {
        let installed = sockets::installed(&self.builder)?;
        let mut options = guest::Options::new(Flavour::Test);
        installed.set(&mut options);
        let run = guest::Run::new()?;
        sockets::prepare(&run, self.arguments.filter.as_deref().unwrap_or_default(), self.arguments.long)?;
        let mut progress = Progress::start("programs that use sockets, in two guests", Some("4 min"));
        let end = guest::run(&self.builder, &installed.parts, &options, &run, &mut progress);
        progress.finish(end.as_ref().is_ok_and(|e| e.faults().is_empty()));
        of_programs(run, end)
    }

    /// Guests in other environments than usual, one after the other.
    fn environments(&self) -> Result<Counts> {
        let parts = self.builder.parts(Flavour::Test)?;
        let mut counts = Counts::default();
        let wanted = |name: &str| self.arguments.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
        for environment in environments::ALL.iter().filter(|e| wanted(e.name)) {
            let mut options = guest::Options::new(Flavour::Test);
            options.limit = Duration::from_secs(10 * 60);
            environment.set(&mut options);
            let mut run = guest::Run::new()?;
            for &role in &options.roles {
                run.script(role, &environment.script(role))?;
            }
            let mut progress = Progress::start(environment.name, Some("20 s"));
            let end = guest::run(&self.builder, &parts, &options, &run, &mut progress);
            let faults = match &end {
                Err(error) if progress::interrupted() => bail!("{error:#}"),
                Err(error) => vec![format!("{error:#}")],
                Ok(end) => {
                    let output = end.guests.values().flat_map(|guest| guest.output.clone());
                    end.faults()
                        .into_iter()
                        .map(|fault| format!("{fault}: {}", output.clone().collect::<Vec<_>>().join(" / ")))
                        .collect()
                }
            };
            progress.finish(faults.is_empty());
            if faults.is_empty() {
                counts.add(Counts::one());
            } else {
                run.preserve();
                let logs = run.folder.display();
                counts.add(Counts::failure(format!("{}: {}\nlogs: {logs}", environment.name, faults.join("\n"))));
            }
        }
        Ok(counts)
    }

    /// The tests that look for leaks after very many repetitions.
    fn endurance(&self) -> Result<Counts> {
        self.guest_tests(Flavour::Test, "repetitions in two guests", "2 min", " --endurance", |options| {
            options.append = "kmemleak=on".to_owned();
            options.limit = Duration::from_secs(4 * 3600);
        })
    }

    /// What maps, moves and takes away memory, with an IOMMU between card and memory.
    fn system_iommu(&self) -> Result<Counts> {
        let some = if self.arguments.filter.is_none() { " --run vc_,pc_,inv_3,inv_6,reset_,decision_1" } else { "" };
        self.guest_tests(Flavour::Test, "system tests with an IOMMU", "10 min", some, |options| options.iommu = true)
    }

    /// What many do at once, with the kernel that looks for data races.
    fn system_kcsan(&self) -> Result<Counts> {
        let some = if self.arguments.filter.is_none() {
            " --run inv_2,inv_3,inv_5,inv_6_un,inv_6_bad,inv_6_random,vc_,pc_,reset_,decision_"
        } else {
            ""
        };
        self.guest_tests(Flavour::Kcsan, "system tests with KCSAN", "10 min", some, |_| ())
    }

    /// Large cards, of whose queue pairs one process may have all.
    fn system_large(&self) -> Result<Counts> {
        let some = if self.arguments.filter.is_none() { " --run qp_1" } else { "" };
        let parts = self.builder.large_parts(Flavour::Test)?;
        self.guest_tests_of(&parts, "system tests with large cards", "10 min", some, |options| {
            options.module_args = "max_process_qps=65535".to_owned();
        })
    }

    /// A file larger than the guests' memory.
    fn large_file(&self) -> Result<Counts> {
        // Programs stay with the guests' hosts, because they would take a guest's memory.
        let parts = Parts { programs: None, ..self.builder.parts(Flavour::Stock)? };
        self.guest_tests_of(&parts, "a file larger than memory", "15 min", " --large-file", |options| {
            options.memory = 128;
        })
    }

    /// The guests' tests with a kernel; `arguments` are for both programs.
    fn guest_tests(
        &self,
        flavour: Flavour,
        title: &str,
        estimate: &str,
        arguments: &str,
        set: impl FnOnce(&mut guest::Options),
    ) -> Result<Counts> {
        self.guest_tests_of(&self.builder.parts(flavour)?, title, estimate, arguments, set)
    }

    fn guest_tests_of(
        &self,
        parts: &Parts,
        title: &str,
        estimate: &str,
        arguments: &str,
        set: impl FnOnce(&mut guest::Options),
    ) -> Result<Counts> {
        let flavour = parts.kernel.flavour;
        let mut options = guest::Options::new(flavour);
        // Two virtual CPUs, so that the driver's races have somewhere to happen.
        options.cpus = 2;
        options.held_writes = self.arguments.long;
        // Some of the card's writes can be seen in part, so the word that marks them as valid must come last.
        options.simulator.push("--split-writes=61".to_owned());
        options.limit = Duration::from_secs(if self.arguments.long { 3 * 3600 } else { 60 * 60 });
        set(&mut options);
        let mut run = guest::Run::new()?;
        if parts.programs.is_none() {
            let programs = self.builder.guest_programs(Flavour::Test)?;
            for program in guest_programs(Flavour::Test) {
                fs::copy(programs.join(program), run.share.join(program))?;
            }
        }
        let mut more = arguments.to_owned();
        if self.arguments.long {
            more += " --long";
        }
        if let Some(filter) = &self.arguments.filter {
            more += &format!(" --run '{}'", filter.replace('\'', ""));
        }
        if let Some(seed) = self.arguments.seed {
            more += &format!(" --seed {seed}");
        }
        if let Some(cases) = std::env::var("BERTH_CASES").ok().and_then(|n| n.parse::<u64>().ok()) {
            more += &format!(" --cases {cases}");
        }
        for (role, own, peer, mac) in [
            (Role::A, "192.0.2.1", "192.0.2.2", "02:00:00:00:00:01"),
            (Role::B, "192.0.2.2", "192.0.2.1", "02:00:00:00:00:02"),
        ] {
            let script = format!(
                "export PATH=$PATH:/mnt/share\nexec berth-guest-tests --role {role} --share /mnt/share --own-ip {own} --peer-ip {peer} --mac {mac}{more}\n"
            );
            run.script(role, &script)?;
        }
        let mut progress = Progress::start(title, Some(estimate));
        let end = guest::run(&self.builder, parts, &options, &run, &mut progress);
        progress.finish(end.as_ref().is_ok_and(|e| e.faults().is_empty()));
        let mut counts = Counts { tests: told(&run), ..Counts::default() };
        let folder = run.folder.display().to_string();
        match end {
            Err(error) if progress::interrupted() => return Err(error),
            Err(error) => {
                run.preserve();
                counts.add(Counts::failure(format!("{error:#}\nlogs: {folder}")));
            }
            Ok(end) => {
                for (role, guest) in &end.guests {
                    match guest.output.iter().rev().find_map(|l| passed_and_failed(l)) {
                        Some((passed, failed)) => {
                            counts.passed += passed;
                            counts.failed += failed;
                        }
                        None => counts.add(Counts::failure(format!("guest {role} gave no result"))),
                    }
                    let measured = guest.output.iter().skip_while(|l| !l.starts_with("running "));
                    for line in measured.filter(|l| l.starts_with("    ")) {
                        progress::line(&format!("  guest {role}: {}", line.trim_start()));
                    }
                    let failed = guest.output.iter().filter(|l| l.contains(" ... FAILED"));
                    counts.notes.extend(failed.map(|l| format!("guest {role}: {l}")));
                }
                let faults = end.faults();
                if end.guests.values().any(|guest| !guest.reports.is_empty()) {
                    counts.tests.iter_mut().for_each(|test| test.result = "kernel report".to_owned());
                }
                if !faults.is_empty() {
                    run.preserve();
                    // A failed test is counted above; a kernel report is one more.
                    counts.failed =
                        counts.failed.max(1) + end.guests.values().map(|g| g.reports.len() as u64).sum::<u64>();
                    counts.notes.push(format!("{}\nlogs: {folder}", faults.join("\n")));
                }
            }
        }
        Ok(counts)
    }

    /// A demo run with a file of `bytes` bytes that differ.
    fn demo_run(&self, parts: &Parts, name: &str, bytes: usize, arguments: demo::Arguments) -> Result<Counts> {
        let out = self.builder.context.built_folder(&format!("demo/{name}"))?;
        let file = out.join("payload");
        let mut state = arguments.seed | 1;
        let data: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(bytes)
        .collect();
        fs::write(&file, data)?;
        let arguments = demo::Arguments { file: Some(file), out: Some(out), ..arguments };
        Self::demo_counts(name, demo::transfer(&self.builder, parts, &arguments))
    }

    fn demo_counts(name: &str, result: Result<Figures>) -> Result<Counts> {
        Ok(match result {
            Ok(figures) if figures.ok() => match not_shown(name, &figures) {
                Some(what) => Counts::failure(format!("{name}: {what}")),
                None => Counts::one(),
            },
            Ok(figures) => Counts::failure(format!("{name}:\n{}", crate::report::terminal(&figures))),
            Err(error) if progress::interrupted() => return Err(error),
            Err(error) => Counts::failure(format!("{name}: {error:#}")),
        })
    }

    fn demo(&self) -> Result<Counts> {
        let parts = self.builder.parts(Flavour::Stock)?;
        let mut counts = self.demo_run(&parts, "small", 100_003, demo::Arguments { seed: 1, ..Default::default() })?;
        let faults = demo::Arguments {
            recv_sizes: vec![3, 7, 22, 44, 65536],
            block: Some(8192),
            budget: Some(1 << 20),
            loss: 0.02,
            dup: 0.02,
            reorder: 0.02,
            corrupt: 0.02,
            seed: self.arguments.seed.unwrap_or(7),
            ..Default::default()
        };
        counts.add(self.demo_run(&parts, "faults", 200_000, faults)?);
        Ok(counts)
    }

    fn demo_keep(&self) -> Result<Counts> {
        self.builder.parts(Flavour::Stock)?;
        let out = self.builder.context.built_folder("demo/keep")?;
        let file = out.join("payload");
        fs::write(&file, vec![0x5a; 20_000])?;
        let mut progress = Progress::start("demo --keep", None);
        progress.detail("guests with shells");
        let result = keep::drive(&file, &out);
        progress.finish(result.is_ok());
        match result {
            Ok(()) => Ok(Counts::one()),
            Err(error) if progress::interrupted() => Err(error),
            Err(error) => Ok(Counts::failure(format!("demo --keep: {error:#}"))),
        }
    }

    fn demo_trace(&self) -> Result<Counts> {
        let mut parts = self.builder.parts(Flavour::Stock)?;
        parts.simulator = Some(self.builder.simulator(true)?);
        let arguments = demo::Arguments { seed: 1, trace: true, ..Default::default() };
        let mut counts = self.demo_run(&parts, "trace", 20_000, arguments)?;
        let out = self.builder.context.built_folder("demo/trace")?;
        for role in Role::ALL {
            let file = out.join(format!("{role}.fst"));
            counts.add(match waveform_end(&fs::read(&file).unwrap_or_default()) {
                Some(1..) => Counts::one(),
                _ => Counts::failure(format!("{} is not a waveform", file.display())),
            });
            // It is large, and was only looked at.
            fs::remove_file(&file).ok();
        }
        Ok(counts)
    }

    fn demo_seeds(&self) -> Result<Counts> {
        let parts = self.builder.parts(Flavour::Stock)?;
        let mut counts = Counts::default();
        for seed in 1..=4 {
            let faults =
                demo::Arguments { loss: 0.03, dup: 0.03, reorder: 0.03, corrupt: 0.03, seed, ..Default::default() };
            counts.add(self.demo_run(&parts, &format!("seed-{seed}"), 1 << 20, faults)?);
        }
        Ok(counts)
    }

    fn demo_full(&self) -> Result<Counts> {
        let parts = self.builder.parts(Flavour::Stock)?;
        let out = self.builder.context.built_folder("demo/full")?;
        let arguments = demo::Arguments { seed: 1, out: Some(out), ..Default::default() };
        Self::demo_counts("full", demo::transfer(&self.builder, &parts, &arguments))
    }
}

/// What a demo that ended well should have shown but did not.
fn not_shown(name: &str, figures: &Figures) -> Option<String> {
    let (wire, lists, credits) = (&figures.wire, figures.credit_lists, figures.credits);
    match name {
        "faults" if wire.lost + wire.duplicated + wire.reordered + wire.corrupted == 0 => {
            Some("the wire did nothing to any frame".to_owned())
        }
        // With its defaults.
        "small" | "full" if credits <= lists => {
            Some(format!("{credits} credits in {lists} lists: lists should carry more than one credit on average"))
        }
        _ => None,
    }
}

/// The command that tries mutants of the protocol, the RTL or the driver, in a copy of the checkout.
///
/// # Errors
/// When a folder in the cache cannot be made.
pub fn mutants(builder: &Builder, arguments: &[String]) -> Result<Command> {
    let fixed = ["run", "--quiet", "--package", "berth-mutants", "--", "--out"];
    let mut command = if arguments.iter().any(|a| a == "--driver") {
        // It boots guests, which is not done from inside the sysroot.
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&builder.context.repo).args(fixed);
        command
    } else {
        let mut command = builder.cargo(&builder.context.repo, "target-mutants", &fixed)?;
        // Each mutant's model is used once; those of the checkout would be forgotten for them.
        command.env_remove("BERTH_MODELS");
        command
    };
    command.arg(builder.context.built_folder("mutants")?).args(arguments);
    Ok(command)
}

/// A build that passes when it ended well and warned of nothing.
fn without_warnings(title: &str, output: &Output, log: &Path) -> Counts {
    let warnings = output.lines.iter().filter(|l| l.contains("warning:")).count();
    if !output.ok {
        Counts::failure(progress::failure(title, log, &output.lines))
    } else if warnings > 0 {
        Counts::failure(format!("{title}: {warnings} warnings, see {}", log.display()))
    } else {
        Counts::one()
    }
}

/// The last time in an FST file, by its header block: type 0, its length (329), start and end time (all big-endian),
/// and e as a float in the byte order of the machine that wrote it.
fn waveform_end(file: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u64::from_be_bytes(file.get(at..at + 8)?.try_into().ok()?));
    let float = f64::from_ne_bytes(file.get(25..33)?.try_into().ok()?);
    (file[0] == 0 && number(1)? == 329 && float == std::f64::consts::E).then(|| number(17)).flatten()
}

/// Sums the `test result:` lines of `cargo test` and names what failed.
fn count_cargo_tests(lines: &[String]) -> Counts {
    let mut counts = Counts::default();
    for line in lines {
        if let Some(result) = line.trim().strip_prefix("test result: ") {
            let number = |word: &str| {
                let before = result.split(word).next().unwrap_or_default();
                before.split_whitespace().next_back().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
            };
            counts.passed += number(" passed");
            counts.failed += number(" failed");
        } else if line.starts_with("test ") && line.ends_with("FAILED") {
            counts.notes.push(line.clone());
        }
    }
    counts
}

/// What guests have told of programs that each are a test.
fn of_programs(mut run: guest::Run, end: Result<guest::End>) -> Result<Counts> {
    let mut counts = Counts { tests: told(&run), ..Counts::default() };
    for test in &counts.tests {
        let lines = test.lines.join("\n");
        match test.result.as_str() {
            "ok" => {
                counts.passed += 1;
                test.lines.iter().for_each(|line| progress::line(&format!("  {}: {line}", test.name)));
            }
            result => {
                counts.failed += 1;
                counts.notes.push(format!("{}: {result}\n{lines}", test.name));
            }
        }
    }
    let fault = match end {
        Err(error) if progress::interrupted() => return Err(error),
        Err(error) => Some(format!("{error:#}")),
        Ok(end) => Some(end.faults().join("\n")).filter(|faults| !faults.is_empty()),
    };
    if let Some(fault) = fault {
        counts.add(Counts::failure(fault));
    }
    if counts.passed + counts.failed == 0 {
        counts.add(Counts::failure("the guests ran no test".to_owned()));
    }
    if counts.failed > 0 {
        run.preserve();
        counts.notes.push(format!("logs: {}", run.folder.display()));
    }
    Ok(counts)
}

/// The tests of both guests of a run, also of those that were ended early.
fn told(run: &guest::Run) -> Vec<GuestTest> {
    let mut tests = Vec::new();
    for role in Role::ALL {
        let output = fs::read_to_string(run.output_log(role)).unwrap_or_default();
        guest_results(&output).into_iter().for_each(|test| test.join(&mut tests));
    }
    tests
}

/// The tests that a guest has begun, by what it printed.
fn guest_results(output: &str) -> Vec<GuestTest> {
    let mut tests: Vec<GuestTest> = Vec::new();
    for line in output.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match (&words[..], tests.last_mut()) {
            (["test", name, "begins"], _) => {
                let (name, result) = ((*name).to_owned(), "did not end".to_owned());
                tests.push(GuestTest { name, result, ..GuestTest::default() });
            }
            (["test", name, "...", result, ..], Some(test)) if *name == test.name => {
                (*result).clone_into(&mut test.result);
                let seconds = line.rsplit_once('(').and_then(|(_, time)| time.strip_suffix(" s)")?.parse().ok());
                test.time = Duration::try_from_secs_f64(seconds.unwrap_or_default()).unwrap_or_default();
            }
            (_, Some(test)) if line.starts_with("    ") => test.lines.push(line.trim_start().to_owned()),
            _ => {}
        }
    }
    tests
}

/// Reads "N passed, M failed".
fn passed_and_failed(line: &str) -> Option<(u64, u64)> {
    let (passed, failed) = line.trim().strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn results_of_cargo_tests_are_summed() {
        let lines: Vec<String> = [
            "running 2 tests",
            "test a::x ... ok",
            "test a::y ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ]
        .map(str::to_owned)
        .to_vec();
        let counts = count_cargo_tests(&lines);
        assert_eq!((counts.passed, counts.failed), (6, 1));
        assert_eq!(counts.notes, ["test a::y ... FAILED"]);
    }

    #[test]
    fn parts_with_needs_exist() {
        for name in NEEDS.iter().flat_map(|(names, _)| *names) {
            assert!(PARTS.iter().any(|part| part.name == *name), "no part {name}");
        }
        let of = |name: &str| PARTS.iter().find(|part| part.name == name).expect("it exists").needs();
        assert_eq!(of("fmt"), []);
        assert!(of("demo").contains(&Need::GuestParts) && of("system").contains(&Need::Kernel(Flavour::Test)));
    }

    #[test]
    fn demo_whose_lists_carry_one_credit_each_fails() {
        let figures = |credit_lists, credits| Figures { credit_lists, credits, ..Figures::default() };
        assert_eq!(not_shown("small", &figures(3, 18)), None);
        assert!(not_shown("small", &figures(18, 18)).is_some_and(|what| what.contains("18 credits in 18 lists")));
        assert!(not_shown("full", &figures(0, 0)).is_some());
        assert!(not_shown("faults", &figures(3, 18)).is_some_and(|what| what.contains("the wire did nothing")));
    }

    #[test]
    fn waveforms_are_told_by_their_header() {
        let mut file = vec![0; 400];
        file[1..9].copy_from_slice(&329u64.to_be_bytes());
        file[17..25].copy_from_slice(&77u64.to_be_bytes());
        file[25..33].copy_from_slice(&std::f64::consts::E.to_ne_bytes());
        assert_eq!(waveform_end(&file), Some(77));
        file[0] = 3;
        assert_eq!(waveform_end(&file), None);
        assert_eq!(waveform_end(&file[..20]), None);
    }

    const GUEST: &str = "running 3 tests
test one begins
test one ... ok (61.4 s)
    2 rounds | nothing left
test two begins
test two ... FAILED (1.0 s)
    round 1 of 2: no
1 KernelLog
test three begins
";

    #[test]
    fn tests_of_a_guest_are_read_also_those_that_did_not_end() {
        let tests = guest_results(GUEST);
        let seen: Vec<_> =
            tests.iter().map(|t| (&t.name[..], &t.result[..], t.time.as_secs(), t.lines.len())).collect();
        assert_eq!(seen, [("one", "ok", 61, 1), ("two", "FAILED", 1, 1), ("three", "did not end", 0, 0)]);
        let mut both = tests.clone();
        let other = |result: &str| GuestTest { name: "one".into(), result: result.into(), ..tests[0].clone() };
        other("ok").join(&mut both);
        assert_eq!((both.len(), &both[0].result[..], both[0].lines.len()), (3, "ok", 2));
        other("FAILED").join(&mut both);
        other("ok").join(&mut both);
        assert_eq!(both[0].result, "FAILED");
    }

    #[test]
    fn long_results_keep_what_did_not_run_and_show_what_failed() {
        let part = |name: &str| PARTS.iter().find(|p| p.name == name).unwrap();
        let row =
            |name: &str, passed, tests| (part(name), Counts { passed, tests, ..Counts::default() }, Duration::ZERO);
        let first =
            long_results("", &[row("demo-full", 1, vec![]), row("endurance", 3, guest_results(GUEST))], true, "c1");
        for line in [
            "| demo-full | the demo as a user starts it | 1 | 0 | 0:00 | c1 |",
            "| endurance: one | ok | 2 rounds / nothing left | 1:01 | c1 |",
            "| endurance: two | FAILED | round 1 of 2: no | 0:01 | c1 |",
            "| endurance: three | did not end |  | 0:00 | c1 |",
        ] {
            assert!(first.lines().any(|l| l == line), "{line}\n{first}");
        }
        // Nothing new: nothing changes. One test alone changes its own row, and no part's.
        assert_eq!(long_results(&first, &[], false, "c2"), first);
        let [other, own] = ["ap_1_rping", "ap_1_pyverbs"].map(|name| GuestTest {
            name: name.into(),
            result: "ok".into(),
            ..GuestTest::default()
        });
        let programs = long_results(&first, &[row("verbs", 2, vec![other, own])], false, "c2");
        assert!(programs.contains("| verbs: ap_1_pyverbs | ok |") && !programs.contains("rping"));
        let two = vec![GuestTest { name: "two".into(), result: "ok".into(), ..GuestTest::default() }];
        let second = long_results(&first, &[row("endurance", 1, two)], false, "c2");
        let changed: Vec<_> = second.lines().filter(|l| first.lines().all(|old| old != *l)).collect();
        assert_eq!(changed, ["| endurance: two | ok |  | 0:00 | c2 |"]);
        assert_eq!(second.lines().count(), first.lines().count());
    }

    #[test]
    fn result_line_of_the_guests_is_read() {
        assert_eq!(passed_and_failed("12 passed, 3 failed"), Some((12, 3)));
        assert_eq!(passed_and_failed("test x ... ok"), None);
    }

    #[test]
    fn parts_have_different_names() {
        let names: BTreeSet<_> = PARTS.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), PARTS.len());
    }
}
