// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask coverage`: how many lines of `firmware/protocol` its tests and the kept fuzz inputs reach.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::progress;
use crate::steps::Builder;

/// Where the sources lie that count.
const SOURCES: &str = "firmware/protocol/src/";
/// The packages whose tests count.
pub const TESTED: [&str; 2] = ["berth-protocol", "berth-fuzz"];
/// Per cent of the lines that must be reached.
pub const WANTED: f64 = 95.0;

/// Options of coverage.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// List the lines that are not reached.
    #[arg(long)]
    pub uncovered: bool,
}

/// Lines of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLines {
    /// Lines with code, tests left out.
    pub lines: usize,
    /// Those that were not reached.
    pub missed: Vec<u32>,
}

/// All files, by path below [`SOURCES`].
#[derive(Clone, Debug, Default)]
pub struct Coverage(pub BTreeMap<String, FileLines>);

impl Coverage {
    /// (lines, lines reached).
    pub fn total(&self) -> (usize, usize) {
        self.0.values().fold((0, 0), |(n, hit), f| (n + f.lines, hit + f.lines - f.missed.len()))
    }

    /// Per cent of the lines.
    pub fn percent(&self) -> f64 {
        let (lines, reached) = self.total();
        100.0 * reached as f64 / lines.max(1) as f64
    }

    /// One row per file, those with most unreached lines first.
    pub fn table(&self, uncovered: bool) -> String {
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(name, f)| (std::cmp::Reverse(f.missed.len()), *name));
        let mut text = format!("{:<24} {:>6} {:>8} {:>8}\n", "file", "lines", "missed", "reached");
        for (name, f) in rows {
            let percent = 100.0 * (f.lines - f.missed.len()) as f64 / f.lines.max(1) as f64;
            writeln!(text, "{name:<24} {:>6} {:>8} {percent:>7.1}%", f.lines, f.missed.len()).ok();
            if uncovered && !f.missed.is_empty() {
                writeln!(text, "    {}", ranges(&f.missed)).ok();
            }
        }
        let (lines, reached) = self.total();
        writeln!(text, "{:<24} {lines:>6} {:>8} {:>7.1}%", "all", lines - reached, self.percent()).ok();
        text
    }
}

/// "3-5 9" for 3, 4, 5, 9.
fn ranges(lines: &[u32]) -> String {
    let mut text = String::new();
    let mut i = 0;
    while i < lines.len() {
        let mut j = i;
        while lines.get(j + 1) == Some(&(lines[j] + 1)) {
            j += 1;
        }
        let space = if text.is_empty() { "" } else { " " };
        match i == j {
            true => write!(text, "{space}{}", lines[i]).ok(),
            false => write!(text, "{space}{}-{}", lines[i], lines[j]).ok(),
        };
        i = j + 1;
    }
    text
}

/// The command line's way. Returns whether enough is reached.
///
/// # Errors
/// When tests fail or a tool does.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let builder = Builder::new(&[])?;
    let counting = Counting::new(&builder)?;
    let log = builder.context.log("coverage-tests")?;
    progress::run("tests with coverage", Some("3 min"), &log, &mut counting.tests(&["--no-fail-fast"])?)?;
    let coverage = counting.lines()?;
    print!("{}", coverage.table(arguments.uncovered));
    Ok(coverage.percent() > WANTED)
}

/// Tests with counters in them.
pub struct Counting<'b> {
    builder: &'b Builder,
    folder: PathBuf,
    profiles: PathBuf,
}

impl<'b> Counting<'b> {
    /// Nothing has been counted.
    ///
    /// # Errors
    /// When counts of before cannot be removed.
    pub fn new(builder: &'b Builder) -> Result<Self> {
        let folder = builder.context.built_folder("coverage")?;
        let profiles = folder.join("profiles");
        if profiles.exists() {
            fs::remove_dir_all(&profiles)?;
        }
        fs::create_dir(&profiles)?;
        Ok(Self { builder, folder, profiles })
    }

    /// The command that runs the tests.
    ///
    /// # Errors
    /// When there is no cargo to run.
    pub fn tests(&self, more: &[&str]) -> Result<std::process::Command> {
        let packages = TESTED.iter().flat_map(|package| ["--package", package]);
        let features = ["--all-targets", "--features", "berth-protocol/model,berth-protocol/mutations"];
        let arguments: Vec<&str> =
            ["test"].into_iter().chain(packages).chain(features).chain(more.iter().copied()).collect();
        let mut command = self.builder.cargo(&self.builder.context.repo, "target-coverage", &arguments)?;
        command.env("RUSTFLAGS", "-Cinstrument-coverage").env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
        command.env("LLVM_PROFILE_FILE", self.profiles.join("%p-%m.profraw"));
        Ok(command)
    }

    /// The lines that the tests have reached.
    ///
    /// # Errors
    /// When a tool fails, or no test ran.
    pub fn lines(&self) -> Result<Coverage> {
        let Self { builder, folder, profiles } = self;
        let built =
            self.tests(&["--no-run", "--message-format=json"])?.output().context("asking cargo for the programs")?;
        let programs: Vec<String> = String::from_utf8_lossy(&built.stdout)
            .lines()
            .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
            .filter_map(|m| m.get("executable").and_then(|e| e.as_str()).map(str::to_owned))
            .collect();
        if programs.is_empty() {
            bail!("cargo names no test programs: {}", String::from_utf8_lossy(&built.stderr).trim());
        }
        let raw: Vec<PathBuf> =
            fs::read_dir(profiles)?.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>()?;
        let data = folder.join("all.profdata");
        let mut merge = builder.sysroot.command(folder, &[], "llvm-profdata");
        merge.args(["merge", "-sparse", "-o"]).arg(&data).args(&raw);
        progress::run("merging profiles", None, &builder.context.log("coverage-merge")?, &mut merge)?;
        let mut export = builder.sysroot.command(folder, &[], "llvm-cov");
        export.args(["export", "-format=lcov", "-instr-profile"]).arg(&data);
        for (i, program) in programs.iter().enumerate() {
            if i > 0 {
                export.arg("-object");
            }
            export.arg(program);
        }
        export.arg(builder.context.repo.join(SOURCES));
        let output = export.output().context("starting llvm-cov")?;
        if !output.status.success() {
            bail!("llvm-cov: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let coverage = read(&String::from_utf8_lossy(&output.stdout), |path| {
            let source = fs::read_to_string(path).unwrap_or_default();
            source.lines().position(|l| l.trim() == "#[cfg(test)]").map_or(u32::MAX, |n| n as u32 + 1)
        });
        if coverage.0.is_empty() {
            bail!("llvm-cov reports no file of {SOURCES}");
        }
        Ok(coverage)
    }
}

/// Reads llvm-cov's lcov format. `tests_from` gives the line of a file from which on there are only tests.
fn read(lcov: &str, tests_from: impl Fn(&str) -> u32) -> Coverage {
    let mut coverage = Coverage::default();
    let mut current: Option<(String, u32)> = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            current = path.find(SOURCES).map(|at| (path[at + SOURCES.len()..].to_owned(), tests_from(path)));
        } else if let (Some(rest), Some((name, end))) = (line.strip_prefix("DA:"), &current)
            && let Some((number, count)) = rest.split_once(',')
            && let Ok(number) = number.parse::<u32>()
            && number < *end
        {
            let file = coverage.0.entry(name.clone()).or_default();
            file.lines += 1;
            if count == "0" {
                file.missed.push(number);
            }
        }
    }
    coverage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_without_tests_and_other_files() {
        let lcov = "SF:/x/firmware/protocol/src/a.rs\nDA:1,5\nDA:2,0\nDA:3,0\nDA:5,0\nDA:9,0\nend_of_record\n\
                    SF:/x/other/src/b.rs\nDA:1,0\nend_of_record\n";
        let coverage = read(lcov, |_| 9);
        let file = FileLines { lines: 4, missed: vec![2, 3, 5] };
        assert_eq!(coverage.0, BTreeMap::from([("a.rs".to_owned(), file)]));
        assert_eq!(coverage.total(), (4, 1));
        assert!((coverage.percent() - 25.0).abs() < 1e-9);
        assert!(coverage.table(true).contains("2-3 5"));
    }
}
