// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do the tests bite? Breaks the protocol, the RTL or the driver in many small ways, one at a time, and counts which of
//! them its tests notice.

mod cargo;
mod driver;
mod mutate;
mod page;
mod protocol;
mod rtl;
mod suite;
mod verilog;

use anyhow::{Context as _, Result, bail};
use berth_random::mix;
use clap::Parser;
use mutate::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use suite::{Fate, Suite};

/// Of a hundred mutants of each group, the tests are to notice so many.
const BAR: f64 = 85.0;

/// Breaks firmware/protocol, the RTL or the driver in small ways, one at a time, and counts what its tests notice.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder for a copy of the repository and what is built of it; used again next time.
    #[arg(long)]
    out: PathBuf,
    /// The RTL (hw-rtl/rtl) and the benches of its modules (hw-rtl/unit), not firmware/protocol and its tests.
    #[arg(long)]
    rtl: bool,
    /// The driver (driver): the tests of its page service on the host, and for what they leave those in the guests; outside
    /// the sysroot, as it boots guests.
    #[arg(long, conflicts_with_all = ["rtl", "programs"])]
    driver: bool,
    /// With --driver: only the tests on the host, and only the files that they have.
    #[arg(long, requires = "driver")]
    host: bool,
    /// Only so many mutants of each group, chosen by the seed.
    #[arg(long)]
    sample: Option<usize>,
    /// Chooses the sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these groups; of the protocol no others are built, either.
    #[arg(long, value_delimiter = ',')]
    group: Vec<String>,
    /// Only mutants whose description, which begins with the file, contains this; or one of several, each with its `--only`.
    #[arg(long)]
    only: Vec<String>,
    /// Only those that survived the last run with this folder; all others count as killed.
    #[arg(long)]
    again: bool,
    /// Only tests that take at most so many seconds with nothing broken.
    #[arg(long)]
    quick: Option<f64>,
    /// With --driver: for each mutant as many tests as take so many seconds with nothing broken.
    #[arg(long, default_value_t = 120.0)]
    most: f64,
    /// Only tests whose "program name" contains one of these.
    #[arg(long, value_delimiter = ',')]
    by: Vec<String>,
    /// Only these test programs (berth_protocol: the tests in its sources); others are not built.
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Write the scores into this page [default: docs/results/mutation.md], not those of a part of a group.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "docs/results/mutation.md",
        conflicts_with_all = ["only", "group"]
    )]
    docs: Option<PathBuf>,
    /// So many at a time (of guests one).
    #[arg(long, short, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
}

/// What tells whether a mutant is noticed.
enum Tests {
    /// Programs of this machine.
    Suite(Suite),
    /// Those on the host first, with their own mutants, then guests.
    Guests(Vec<Mutant>, Suite, driver::Guests),
}

#[derive(Default)]
struct Score {
    all: usize,
    run: usize,
    killed: usize,
    explained: usize,
    survived: usize,
}

impl Arguments {
    /// What is mutated: groups, and the files of each.
    fn groups(&self) -> &'static [(&'static str, &'static [&'static str])] {
        match (self.rtl, self.driver) {
            (true, _) => &rtl::GROUPS,
            (_, true) => &driver::GROUPS,
            _ => &protocol::GROUPS,
        }
    }

    /// Survivors that are no gap, and why.
    fn survivors(&self) -> &'static str {
        match (self.rtl, self.driver) {
            (true, _) => include_str!("../rtl-survivors.txt"),
            (_, true) => include_str!("../driver-survivors.txt"),
            _ => include_str!("../survivors.txt"),
        }
    }

    /// The section of the page that has the scores.
    fn section(&self) -> &'static str {
        match (self.rtl, self.driver, self.host) {
            (true, ..) => "rtl",
            (_, true, true) => "driver-host",
            (_, true, _) => "driver",
            _ => "protocol",
        }
    }

    /// The group of a file.
    fn group(&self, file: &str) -> &'static str {
        self.groups().iter().find(|(_, files)| files.contains(&file)).map_or("", |(name, _)| name)
    }

    /// The options that the scores depend on.
    fn said(&self) -> String {
        let mut said = vec![format!("seed {}", self.seed)];
        said.extend(self.sample.map(|n| format!("sample of {n} a group")));
        said.extend(self.quick.map(|s| format!("tests of at most {s} s")));
        if self.again {
            said.push("survivors of an earlier run once more".to_owned());
        }
        let chosen = [("tests", &self.by), ("programs", &self.programs)];
        said.extend(
            chosen
                .iter()
                .filter(|(_, names)| !names.is_empty())
                .map(|(what, names)| format!("only {what} {}", names.join(", "))),
        );
        said.join("; ")
    }

    /// The mutants that are wanted; of those that survived, if there is a list of them.
    fn choose(&self, all: &[Mutant], last: Option<&str>) -> BTreeSet<u32> {
        self.choose_from(all, last).iter().map(|m| m.id).collect()
    }

    fn choose_from<'a>(&self, all: &'a [Mutant], last: Option<&str>) -> Vec<&'a Mutant> {
        let mut chosen: Vec<_> = all
            .iter()
            .filter(|m| self.group.is_empty() || self.group.iter().any(|g| g == self.group(&m.file)))
            .filter(|m| self.only.is_empty() || self.only.iter().any(|o| m.key().contains(o)))
            .filter(|m| last.is_none_or(|keys| keys.lines().any(|k| k == m.key())))
            .collect();
        if let Some(sample) = self.sample {
            // By what it is, so that a change elsewhere in the source changes little of the sample.
            chosen.sort_by_cached_key(|m| m.key().bytes().fold(mix(self.seed), |h, b| mix(h ^ u64::from(b))));
            let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
            chosen.retain(|m| {
                let taken = taken.entry(self.group(&m.file)).or_default();
                *taken += 1;
                *taken <= sample
            });
        }
        chosen
    }
}

/// What becomes of each, several at a time; says which survive.
fn try_all(suite: &Suite, mutants: &[&Mutant], jobs: usize) -> Result<Vec<Fate>> {
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(vec![None; mutants.len()]);
    let start = Instant::now();
    let work = || -> Result<()> {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(m) = mutants.get(i) else { break };
            let fate = suite.try_one(m).context("running a test")?;
            if matches!(fate, Fate::Survives | Fate::Unreached) {
                println!("{fate:?}: line {} of {}", m.line, m.key());
            }
            let mut fates = fates.lock().expect("no thread has panicked");
            fates[i] = Some(fate);
            let ready = fates.iter().flatten().count();
            if ready % 50 == 0 {
                eprintln!("{ready} of {} in {} s", mutants.len(), start.elapsed().as_secs());
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no thread has panicked"))
    })?;
    Ok(fates.into_inner().expect("no thread has panicked").into_iter().flatten().collect())
}

/// What becomes of each on the host, and in guests of those that survive there.
fn try_host_and_guests(
    (there, suite): (&[Mutant], &Suite),
    guests: &driver::Guests,
    mutants: &[&Mutant],
    arguments: &Arguments,
) -> Result<Vec<Fate>> {
    let same = |m: &Mutant| there.iter().find(|t| t.key() == m.key());
    let here: Vec<&Mutant> = mutants.iter().filter_map(|m| same(m)).collect();
    let mut killed: BTreeMap<String, Fate> = BTreeMap::new();
    for (m, fate) in here.iter().zip(try_all(suite, &here, arguments.jobs)?) {
        if matches!(fate, Fate::Killed(_) | Fate::Hangs(_)) {
            killed.insert(m.key(), fate);
        }
    }
    println!("{} of {} are killed on the host, the others are tried in guests", killed.len(), mutants.len());
    let left: Vec<&Mutant> = mutants.iter().copied().filter(|m| !killed.contains_key(&m.key())).collect();
    let mut rest = guests.try_all(&left, Duration::from_secs_f64(arguments.most))?.into_iter();
    Ok(mutants.iter().filter_map(|m| killed.remove(&m.key()).or_else(|| rest.next())).collect())
}

/// Survivors that are known, with the reason, by their key: lines of "key | reason".
fn known(text: &str) -> Result<BTreeMap<String, String>> {
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|l| {
            let (key, reason) = l.rsplit_once(" | ").with_context(|| format!("no reason: {l}"))?;
            Ok((key.to_owned(), reason.to_owned()))
        })
        .collect()
}

fn work(arguments: &Arguments) -> Result<bool> {
    let repo = std::env::current_dir()?;
    let groups = arguments.groups();
    if let Some(unknown) = arguments.group.iter().find(|g| groups.iter().all(|(name, _)| name != g)) {
        let names: Vec<_> = groups.iter().map(|(name, _)| *name).collect();
        bail!("no group {unknown}; there are {}", names.join(", "));
    }
    let explained = known(arguments.survivors())?;
    let out = std::path::absolute(&arguments.out)?.join(match (arguments.rtl, arguments.driver) {
        (true, _) => "rtl",
        (_, true) => "driver",
        _ => "",
    });
    let survivors = out.join(if arguments.host { "survived-on-host" } else { "survived" });
    let last = match arguments.again {
        true => Some(fs::read_to_string(&survivors).context("nothing has survived a run here")?),
        false => None,
    };
    let (all, tests) = if arguments.driver {
        let by = if arguments.host { &arguments.by[..] } else { &[] };
        let (mutants, suite) = cargo::build(&repo, &out.join("host"), &driver::on_host(), &[], by)?;
        if arguments.host {
            (mutants, Tests::Suite(suite))
        } else {
            let (all, guests) = driver::build(&repo, &out, arguments.quick, &arguments.by)?;
            (all, Tests::Guests(mutants, suite, guests))
        }
    } else {
        let (programs, by) = (&arguments.programs, &arguments.by);
        let (all, mut suite) = match arguments.rtl {
            true => rtl::build(&repo, &out, programs, by)?,
            false => cargo::build(&repo, &out, &protocol::tested(&arguments.group), programs, by)?,
        };
        suite.keep(arguments.quick.map_or(Duration::MAX, Duration::from_secs_f64));
        (all, Tests::Suite(suite))
    };
    let wanted = |key: &str| {
        let file = key.split(' ').next().unwrap_or_default();
        if arguments.host && !driver::is_on_host(file) {
            return false;
        }
        arguments.group.is_empty() || arguments.group.iter().any(|g| g == arguments.group(file))
    };
    let on_host = match &tests {
        Tests::Guests(mutants, ..) => &mutants[..],
        Tests::Suite(_) => &[],
    };
    let there: BTreeSet<String> = all.iter().chain(on_host).map(Mutant::key).collect();
    if let Some(gone) = explained.keys().find(|key| wanted(key) && !there.contains(*key)) {
        bail!("survivors.txt explains a mutant that is not there: {gone}");
    }
    let ids = arguments.choose(&all, last.as_deref());
    let chosen: Vec<_> = all.iter().filter(|m| ids.contains(&m.id)).collect();
    let (count, time) = match &tests {
        Tests::Suite(suite) => suite.size(),
        Tests::Guests(_, _, guests) => guests.size(),
    };
    println!("{} mutants; {} are tried, seed {}", all.len(), chosen.len(), arguments.seed);
    println!("{count} tests, {} s with nothing broken", time.as_secs());

    let start = Instant::now();
    let fates = match &tests {
        Tests::Suite(suite) => try_all(suite, &chosen, arguments.jobs)?,
        Tests::Guests(there, suite, guests) => try_host_and_guests((there, suite), guests, &chosen, arguments)?,
    };
    let mut scores: BTreeMap<&str, Score> = BTreeMap::new();
    for m in &all {
        scores.entry(arguments.group(&m.file)).or_default().all += 1;
    }
    let mut survived = String::new();
    if last.is_some() {
        for m in arguments.choose_from(&all, None).iter().filter(|m| !ids.contains(&m.id)) {
            let score = scores.entry(arguments.group(&m.file)).or_default();
            (score.run, score.killed) = (score.run + 1, score.killed + 1);
        }
    }
    for (m, fate) in chosen.iter().zip(&fates) {
        let score = scores.entry(arguments.group(&m.file)).or_default();
        score.run += 1;
        if matches!(fate, Fate::Killed(_) | Fate::Hangs(_)) {
            score.killed += 1;
            continue;
        }
        survived += &format!("{}\n", m.key());
        match explained.contains_key(&m.key()) {
            true => score.explained += 1,
            false => score.survived += 1,
        }
    }
    fs::write(survivors, survived)?;
    println!(
        "\n{:<12} {:>7} {:>6} {:>7} {:>10} {:>9} {:>7}",
        "group", "mutants", "tried", "killed", "explained", "survived", "score"
    );
    let mut good = true;
    let mut table = format!(
        "Options: {}.\n\n| group | files | mutants | tried | killed | change nothing | survive | score |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
        arguments.said()
    );
    for (name, s) in scores.iter().filter(|(_, s)| s.run > 0) {
        let score = 100.0 * s.killed as f64 / s.run as f64;
        let files = groups.iter().find(|(n, _)| n == name).map_or(&[][..], |(_, files)| files);
        let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
        table += &format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {score:.1} % |\n",
            files.join(", "),
            s.all,
            s.run,
            s.killed,
            s.explained,
            s.survived
        );
        println!(
            "{name:<12} {:>7} {:>6} {:>7} {:>10} {:>9} {score:>6.1}%",
            s.all, s.run, s.killed, s.explained, s.survived
        );
        good &= score >= BAR;
    }
    if let Some(path) = &arguments.docs {
        let before = fs::read_to_string(path).unwrap_or_default();
        fs::write(path, page::page(&before, arguments.section(), &table))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let sum = |of: fn(&Score) -> usize| scores.values().map(of).sum::<usize>();
    let (killed, explained, left) = (sum(|s| s.killed), sum(|s| s.explained), sum(|s| s.survived));
    println!("{killed} killed, {explained} explained, {left} survived, in {} s", start.elapsed().as_secs());
    Ok(good)
}

fn main() -> ExitCode {
    match work(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
