// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test programs that are one of many mutants, as `BERTH_MUTANT` says, and what they notice.

use crate::mutate::Mutant;
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often a mutant may come to a place of any mutant, in times of how often the test does with nothing broken, and more.
const PATIENCE: (u64, u64) = (16, 1 << 20);
/// What a process ends with that came to more of them: it is in a loop.
pub const LOOPS: i32 = 86;
/// For loops that come to none: times of what the test takes, and more.
const GUARD: (u32, Duration) = (20, Duration::from_secs(30));

/// A test.
#[derive(Clone, Debug)]
struct Test {
    name: String,
    /// The name of its program's crate.
    group: String,
    program: PathBuf,
    /// How long it takes when nothing is broken.
    time: Duration,
    /// How often it then comes to a place of a mutant, at most.
    asks: u64,
    /// The mutants that it comes to.
    reached: BTreeSet<u32>,
}

/// A test program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of its crate.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// This test fails.
    Killed(String),
    /// This one does not end.
    Hangs(String),
    /// All pass.
    Survives,
    /// No test comes to it.
    Unreached,
}

/// All tests.
#[derive(Debug)]
pub struct Suite {
    /// Where the tests run.
    folder: PathBuf,
    tests: Vec<Test>,
    /// How many mutants of a function each test has killed: who found the last one is asked first.
    kills: Mutex<BTreeMap<(String, usize), u32>>,
}

impl Suite {
    /// Runs each test of the programs alone in `folder` with nothing broken, but those that `skip` names: the beginnings
    /// of "program test". What is found is kept in the file `memory` as long as the program stays what it is.
    ///
    /// # Errors
    /// If a test fails, or files cannot be written.
    pub fn new(folder: &Path, programs: &[Program], skip: &[&str], memory: &Path) -> Result<Self> {
        let known = fs::read_to_string(memory).unwrap_or_default();
        let mut tests = Vec::new();
        let mut text = String::new();
        for program in programs {
            let made = fs::metadata(&program.path)?.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_nanos();
            let list = Command::new(&program.path).current_dir(folder).args(["--list", "--format=terse"]).output()?;
            for name in String::from_utf8_lossy(&list.stdout).lines().filter_map(|l| l.strip_suffix(": test")) {
                let mut test = Test {
                    name: name.into(),
                    group: program.name.clone(),
                    program: program.path.clone(),
                    time: Duration::MAX,
                    asks: 0,
                    reached: BTreeSet::new(),
                };
                if skip.iter().any(|s| test.full().starts_with(s)) {
                    continue;
                }
                let key = format!("{} {made}|", test.full());
                let line = match known.lines().find_map(|l| l.strip_prefix(&key)) {
                    Some(line) => line.to_owned(),
                    None => test.measure(folder, &memory.with_extension("reached"))?,
                };
                let mut parts = line.split_whitespace().map(str::parse::<u64>);
                test.time = Duration::from_micros(parts.next().context("a line has parts")??);
                test.asks = parts.next().context("a line has two parts")??;
                test.reached = parts.map(|n| Ok(u32::try_from(n?)?)).collect::<Result<_>>()?;
                text += &format!("{key}{line}\n");
                tests.push(test);
            }
        }
        fs::write(memory, text)?;
        Ok(Self { folder: folder.into(), tests, kills: Mutex::default() })
    }

    /// How many tests, and how long they take one after the other with nothing broken.
    pub fn size(&self) -> (usize, Duration) {
        (self.tests.len(), self.tests.iter().map(|t| t.time).sum())
    }

    /// Leaves out the tests that take longer with nothing broken, and those whose "program name" does not contain `by`.
    pub fn keep(&mut self, most: Duration, by: &str) {
        self.tests.retain(|t| t.time <= most && t.full().contains(by));
    }

    /// Runs the tests with one mutant, until one fails: those first that are quick, and that have noticed others near it.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub fn try_one(&self, mutant: &Mutant) -> Result<Fate> {
        let place = format!("{} {}", mutant.file, mutant.function);
        let mut order: Vec<_> = {
            let kills = self.kills.lock().expect("no thread has panicked");
            let reach = self.tests.iter().enumerate().filter(|(_, t)| t.reached.contains(&mutant.id));
            reach.map(|(i, t)| (t.time / (1 + kills.get(&(place.clone(), i)).copied().unwrap_or(0)), i)).collect()
        };
        order.sort();
        for &(_, i) in &order {
            let test = &self.tests[i];
            let patience = test.asks * PATIENCE.0 + PATIENCE.1;
            let mut command = test.command(&self.folder, mutant.id);
            let mut child = command.env("BERTH_PATIENCE", patience.to_string()).spawn()?;
            let end = Instant::now() + test.time * GUARD.0 + GUARD.1;
            let mut pause = Duration::from_micros(500);
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break Some(status);
                }
                if Instant::now() > end {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                std::thread::sleep(pause);
                pause = (pause * 5 / 4).min(Duration::from_millis(20));
            };
            if status.is_some_and(|s| s.success()) {
                continue;
            }
            *self.kills.lock().expect("no thread has panicked").entry((place, i)).or_default() += 1;
            let loops = status.is_none_or(|s| s.code() == Some(LOOPS));
            return Ok(if loops { Fate::Hangs(test.name.clone()) } else { Fate::Killed(test.name.clone()) });
        }
        Ok(if order.is_empty() { Fate::Unreached } else { Fate::Survives })
    }
}

impl Test {
    fn full(&self) -> String {
        format!("{} {}", self.group, self.name)
    }

    /// Runs it with nothing broken: microseconds, how often it asks, and the mutants that it comes to.
    fn measure(&self, folder: &Path, list: &Path) -> Result<String> {
        let _ = fs::remove_file(list);
        let start = Instant::now();
        if !self.command(folder, 0).env("BERTH_REACHED", list).status()?.success() {
            bail!("{} of {} fails with nothing broken", self.name, self.program.display());
        }
        let time = start.elapsed().as_micros();
        let (mut asks, mut reached) = (0, BTreeSet::new());
        for line in fs::read_to_string(list).unwrap_or_default().lines() {
            match line.strip_prefix("asked ") {
                Some(asked) => asks = 2 * asked.parse::<u64>()?,
                None => drop(reached.insert(line.parse::<u32>()?)),
            }
        }
        let reached: String = reached.iter().map(|n| format!(" {n}")).collect();
        Ok(format!("{time} {asks}{reached}"))
    }

    /// The command that runs it with a mutant.
    fn command(&self, folder: &Path, mutant: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(folder).args(["--quiet", "--test-threads=1", "--exact", &self.name]);
        command.env("BERTH_MUTANT", mutant.to_string());
        // What fails need not be made smaller.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Copies what git knows, as it is in the working tree, without what is `but`; gives the copy's folder.
/// Files that are the same stay untouched, so that little is built again.
///
/// # Errors
/// If files cannot be read or written.
pub fn copy(repo: &Path, to: &Path, but: impl Fn(&str) -> bool) -> Result<()> {
    let files = Command::new("git").current_dir(repo).args(["ls-files", "-z"]).output().context("git ls-files")?;
    for name in String::from_utf8_lossy(&files.stdout).split('\0').filter(|n| !n.is_empty() && !but(n)) {
        let Ok(bytes) = fs::read(repo.join(name)) else { continue };
        write(&to.join(name), &bytes)?;
    }
    Ok(())
}

/// Writes a file, if it is not so yet.
///
/// # Errors
/// If it cannot.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}
