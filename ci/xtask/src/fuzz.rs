// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask fuzz`: coverage-guided fuzzing of the protocol with libFuzzer, in the sysroot with its stable Rust.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::context::key;
use crate::paths;
use crate::progress::{self, Progress};
use crate::steps::Builder;

/// What rustc passes to LLVM, so that libFuzzer sees edges and compared values.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1";
/// Named, so that build scripts are not instrumented.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Targets of firmware/fuzz, and the longest input of each.
const TARGETS: [(&str, usize); 10] = [
    ("wire", 300),
    ("datagram", 600),
    ("entry", 600),
    ("ends", 1000),
    ("cards", 600),
    ("hostile", 600),
    ("host", 600),
    ("lists", 1000),
    ("carriers", 300),
    ("memory", 600),
];
/// Longest that one run may take: a month.
const MOST_MINUTES: f64 = 44_640.0;
/// Inputs that are kept in the repository, per target.
const KEPT: usize = 120;

/// Options of fuzzing.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How long, in minutes, shared by all targets.
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Only these targets (wire, datagram, entry, ends, cards, hostile, host, lists, carriers, memory).
    #[arg(long = "target", value_delimiter = ',', value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Where random choices begin.
    #[arg(long, default_value_t = 0)]
    pub seed: u32,
    /// Afterwards reduce what was found to the smallest set with the same coverage, and keep some of it in firmware/fuzz/corpus.
    #[arg(long)]
    pub keep: bool,
    /// Run one input, e.g. one that was found to fail, and nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "minutes"])]
    pub input: Option<PathBuf>,
}

/// What came of one target.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Target.
    pub name: String,
    /// Inputs run.
    pub runs: u64,
    /// Edges of the program that were reached.
    pub edges: u64,
    /// Inputs with different coverage.
    pub inputs: usize,
    /// What went wrong, if something did.
    pub failure: Option<String>,
}

/// The command line's way to fuzz. Returns whether nothing was found.
///
/// # Errors
/// When it does not build or cannot run.
pub fn run(arguments: &Arguments) -> Result<bool> {
    // Before anything is fetched or built.
    check(arguments)?;
    let builder = Builder::new(&[])?;
    let outcomes = fuzz(&builder, arguments)?;
    println!("{:<10} {:>12} {:>8} {:>8}", "target", "inputs run", "edges", "kept");
    for o in &outcomes {
        println!(
            "{:<10} {:>12} {:>8} {:>8}{}",
            o.name,
            o.runs,
            o.edges,
            o.inputs,
            if o.failure.is_some() { "  ✗" } else { "" }
        );
    }
    for failure in outcomes.iter().filter_map(|o| o.failure.as_ref()) {
        println!("\n{failure}");
    }
    Ok(outcomes.iter().all(|o| o.failure.is_none()))
}

/// Builds the targets and runs them.
///
/// # Errors
/// When they do not build or cannot run; what they find is not an error.
pub fn fuzz(builder: &Builder, arguments: &Arguments) -> Result<Vec<Outcome>> {
    let chosen = check(arguments)?;
    let programs = build(builder)?;
    if let Some(input) = &arguments.input {
        return Ok(vec![one_input(builder, &programs, chosen[0].0, input)?]);
    }
    let each = arguments.minutes * 60.0 / chosen.len() as f64;
    let mut outcomes = Vec::new();
    for (name, longest) in chosen {
        outcomes.push(target(builder, &programs, name, longest, each, arguments)?);
    }
    Ok(outcomes)
}

/// Refuses impossible arguments; answers the chosen targets, and the longest input of each.
fn check(arguments: &Arguments) -> Result<Vec<(&'static str, usize)>> {
    if let Some(unknown) = arguments.targets.iter().find(|t| TARGETS.iter().all(|(name, _)| name != t)) {
        bail!("no target {unknown}; the targets are {}", TARGETS.map(|(name, _)| name).join(", "));
    }
    if !(0.0..=MOST_MINUTES).contains(&arguments.minutes) {
        bail!("--minutes: a number from 0 to {MOST_MINUTES}");
    }
    let chosen: Vec<_> = TARGETS
        .into_iter()
        .filter(|(n, _)| arguments.targets.is_empty() || arguments.targets.iter().any(|t| t == n))
        .collect();
    if let Some(input) = &arguments.input {
        paths::readable(input)?;
        if chosen.len() != 1 {
            bail!("--input wants one --target");
        }
    }
    Ok(chosen)
}

/// Builds the programs; gives their folder.
fn build(builder: &Builder) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--package", "berth-fuzz", "--features", "libfuzzer", "--target", TARGET];
    let mut command = builder.cargo(&builder.context.repo, "target-fuzz", &arguments)?;
    command.env("RUSTFLAGS", FLAGS);
    progress::run("fuzz targets", Some("2 min at first"), &builder.context.log("fuzz-build")?, &mut command)?;
    Ok(builder.context.built.join("target-fuzz").join(TARGET).join("release"))
}

fn one_input(builder: &Builder, programs: &Path, name: &str, input: &Path) -> Result<Outcome> {
    let input = input.canonicalize().with_context(|| format!("reading {}", input.display()))?;
    let folder = input.parent().context("the input is not a file")?;
    let mut command = builder.sysroot.command(folder, &[folder], programs.join(format!("fuzz-{name}")));
    let ok = command.arg(&input).env("RUST_BACKTRACE", "1").status().context("starting the target")?.success();
    let failure = (!ok).then(|| format!("{name} fails with {}", input.display()));
    Ok(Outcome { name: name.to_owned(), runs: 1, failure, ..Outcome::default() })
}

/// Runs one target for `seconds`, from the inputs that were kept and those that earlier runs found.
fn target(
    builder: &Builder,
    programs: &Path,
    name: &str,
    longest: usize,
    seconds: f64,
    arguments: &Arguments,
) -> Result<Outcome> {
    let folder = builder.context.built_folder(&format!("fuzz/{name}"))?;
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus)?;
    let kept = builder.context.repo.join("firmware/fuzz/corpus").join(name);
    for input in
        unpack(&fs::read(&kept).unwrap_or_default()).with_context(|| format!("{} is damaged", kept.display()))?
    {
        fs::write(corpus.join(key([&input])), input)?;
    }
    let program = programs.join(format!("fuzz-{name}"));
    let mut command = builder.sysroot.command(&folder, &[], &program);
    command.args([
        "corpus",
        "-timeout=60",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-len_control=0",
        "-artifact_prefix=found-",
    ]);
    command.arg(format!("-max_len={longest}")).arg(format!("-seed={}", arguments.seed));
    command.arg(format!("-max_total_time={}", (seconds.round() as u64).max(1)));
    let log = builder.context.log(&format!("fuzz-{name}"))?;
    let title = format!("fuzzing {name}");
    let mut progress = Progress::start(&title, Some(&progress::clock(Duration::from_secs_f64(seconds))));
    let output = progress::output(&mut progress, &log, &mut command);
    progress.finish(output.as_ref().is_ok_and(|o| o.ok));
    let output = output?;
    let mut outcome = Outcome { name: name.to_owned(), ..Outcome::default() };
    for line in &output.lines {
        let mut words = line.split_whitespace();
        if let Some(runs) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.runs = runs.trim().parse().unwrap_or(0);
        } else if words.any(|w| w == "cov:") {
            outcome.edges = words.next().and_then(|n| n.parse().ok()).unwrap_or(outcome.edges);
        }
    }
    if !output.ok {
        let found = output.lines.iter().rev().find_map(|l| l.split("Test unit written to ").nth(1));
        let input = found.map_or_else(String::new, |f| {
            format!("\nagain: cargo xtask fuzz --target {name} --input {}", folder.join(f.trim()).display())
        });
        outcome.failure = Some(format!("{}{input}", progress::failure(&title, &log, &output.lines)));
    }
    if arguments.keep && outcome.failure.is_none() {
        keep(builder, &folder, &program, &kept)?;
    }
    outcome.inputs = fs::read_dir(&corpus)?.count();
    Ok(outcome)
}

/// Replaces the corpus by a small one with the same coverage, and packs some of its inputs for the repository.
fn keep(builder: &Builder, folder: &Path, program: &Path, kept: &Path) -> Result<()> {
    let small = folder.join("small");
    if small.exists() {
        fs::remove_dir_all(&small)?;
    }
    fs::create_dir(&small)?;
    let mut command = builder.sysroot.command(folder, &[], program);
    command.args(["-merge=1", "-rss_limit_mb=2048", "small", "corpus"]);
    progress::run("choosing inputs to keep", None, &builder.context.log("fuzz-merge")?, &mut command)?;
    fs::remove_dir_all(folder.join("corpus"))?;
    fs::rename(&small, folder.join("corpus"))?;
    let mut inputs = BTreeSet::new();
    for entry in fs::read_dir(folder.join("corpus"))? {
        let input = fs::read(entry?.path())?;
        inputs.insert((input.len(), input));
    }
    // Picked evenly from short to long, so that few bytes give much coverage.
    let step = inputs.len().div_ceil(KEPT).max(1);
    let mut file = Vec::new();
    for (len, input) in inputs.into_iter().step_by(step) {
        file.extend(u32::try_from(len)?.to_le_bytes());
        file.extend(input);
    }
    fs::create_dir_all(kept.parent().context("the corpus has a folder")?)?;
    fs::write(kept, file)?;
    Ok(())
}

/// The inputs of a file of the repository: length (32 bits, little-endian) and bytes of each.
fn unpack(mut file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !file.is_empty() {
        let (len, rest) = file.split_first_chunk()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        inputs.push(input.to_vec());
        file = rest;
    }
    Some(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_targets_and_missing_inputs_are_refused_at_once() {
        let usual = || Arguments { minutes: 1.0, targets: Vec::new(), seed: 0, keep: false, input: None };
        let target = |name: &str| vec![name.to_owned()];
        let input: PathBuf = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into();
        for bad in [
            Arguments { targets: target("wires"), ..usual() },
            Arguments { targets: target("wire"), input: Some("/nowhere/at/all".into()), ..usual() },
            Arguments { targets: target("wire"), input: Some("/".into()), ..usual() },
            Arguments { input: Some(input.clone()), ..usual() },
            Arguments { minutes: -1.0, ..usual() },
            Arguments { minutes: f64::NAN, ..usual() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        assert_eq!(check(&usual()).expect("all").len(), TARGETS.len());
        let one = Arguments { targets: target("ends"), input: Some(input), ..usual() };
        assert_eq!(check(&one).expect("one"), [("ends", 1000)]);
    }

    #[test]
    fn kept_inputs_are_unpacked_and_a_damaged_file_is_refused() {
        let file = [2, 0, 0, 0, 8, 9, 0, 0, 0, 0];
        assert_eq!(unpack(&file), Some(vec![vec![8, 9], vec![]]));
        assert_eq!(unpack(&file[..5]), None);
        assert_eq!(unpack(&[]), Some(vec![]));
    }
}
