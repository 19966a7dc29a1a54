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
    /// Variables of its environment.
    environment: &'static [(&'static str, &'static str)],
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

/// How test programs run.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// The folder in which they do.
    pub folder: &'a Path,
    /// Tests that do not: the beginnings of "program test".
    pub skip: &'a [&'a str],
    /// If any are given: only tests whose "program name" contains one of them.
    pub by: &'a [String],
    /// Variables of the environment of the test "program name".
    pub environment: fn(&str) -> &'static [(&'static str, &'static str)],
    /// How often a mutant may ask, in times of how often the test asks at most with nothing broken, and more.
    pub patience: (u64, u64),
    /// How long a test is taken to run for each time that it may ask, if that tells it better than a clock.
    pub per_ask: Option<Duration>,
}

/// All tests.
#[derive(Debug)]
pub struct Suite {
    /// Where the tests run.
    folder: PathBuf,
    patience: (u64, u64),
    tests: Vec<Test>,
    /// How many mutants of a function each test has killed: who found the last one is asked first.
    kills: Mutex<BTreeMap<(String, usize), u32>>,
}

impl Suite {
    /// Runs each test of the programs alone with nothing broken. What is found is kept in the file `memory` as long as the
    /// program stays what it is.
    ///
    /// # Errors
    /// If a test fails, or files cannot be written.
    pub fn new(programs: &[Program], runs: Runs<'_>, memory: &Path) -> Result<Self> {
        let folder = runs.folder;
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
                    environment: &[],
                };
                test.environment = (runs.environment)(&test.full());
                if runs.skip.iter().any(|s| test.full().starts_with(s)) {
                    continue;
                }
                let with: String = test.environment.iter().map(|(n, v)| format!(" {n}={v}")).collect();
                let key = format!("{} {made}{with}|", test.full());
                let line = known.lines().find_map(|l| l.strip_prefix(&key));
                if !runs.by.is_empty() && !runs.by.iter().any(|name| test.full().contains(name)) {
                    text += &line.map_or(String::new(), |line| format!("{key}{line}\n"));
                    continue;
                }
                let line = match line {
                    Some(line) => line.to_owned(),
                    None => test.measure(folder, &memory.with_extension("reached"))?,
                };
                let mut parts = line.split_whitespace().map(str::parse::<u64>);
                test.time = Duration::from_micros(parts.next().context("a line has parts")??);
                test.asks = parts.next().context("a line has two parts")??;
                if let Some(one) = runs.per_ask {
                    test.time = Duration::from_secs_f64(one.as_secs_f64() * test.asks as f64);
                }
                test.reached = parts.map(|n| Ok(u32::try_from(n?)?)).collect::<Result<_>>()?;
                text += &format!("{key}{line}\n");
                tests.push(test);
            }
        }
        fs::write(memory, text)?;
        Ok(Self { folder: folder.into(), patience: runs.patience, tests, kills: Mutex::default() })
    }

    /// How many tests, and how long they take one after the other with nothing broken.
    pub fn size(&self) -> (usize, Duration) {
        (self.tests.len(), self.tests.iter().map(|t| t.time).sum())
    }

    /// Leaves out the tests that take longer with nothing broken.
    pub fn keep(&mut self, most: Duration) {
        self.tests.retain(|t| t.time <= most);
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
            let patience = test.asks * self.patience.0 + self.patience.1;
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
        command.envs(self.environment.iter().copied()).env("BERTH_MUTANT", mutant.to_string());
        // What fails need not be made smaller.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Copies a checkout, as it is in the working tree, without what is `but` and what is built or git's own. It asks no git:
/// a worktree's is elsewhere. Files that are the same stay untouched, so that little is built again.
///
/// # Errors
/// If files cannot be read or written.
pub fn copy(repo: &Path, to: &Path, mut but: impl FnMut(&str) -> bool) -> Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repo.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let name = path.to_str().with_context(|| format!("{}: not in UTF-8", path.display()))?;
            match entry.file_type()? {
                t if t.is_dir() && name != ".git" && !path.ends_with("target") => folders.push(path),
                t if t.is_file() && name != ".git" && !but(name) => {
                    write(&to.join(&path), &fs::read(repo.join(&path))?)?
                }
                _ => (),
            }
        }
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
