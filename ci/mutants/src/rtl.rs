// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the benches of `hw-rtl/unit` with all mutants of the RTL in their models.

use crate::mutate::Mutant;
use crate::suite::{LOOPS, Program, Runs, Suite, copy, write};
use crate::verilog::mutate;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is mutated: a name, and the files of hw-rtl/rtl's folders.
pub const GROUPS: [(&str, &[&str]); 5] = [
    ("credit", &["berth_fp_cut.sv", "berth_fp_builder.sv"]),
    ("sending", &["berth_fp_send.sv"]),
    ("psn", &["berth_fp_arrival.sv", "berth_fp_ack.sv"]),
    ("translation", &["berth_xlt.sv", "berth_xlt_range.sv", "berth_fp_grant.sv"]),
    ("keys", &["berth_fp_frame_in.sv", "berth_fp_withdraw.sv"]),
];

const SOURCES: &str = "hw-rtl/rtl";
const CRATE: &str = "hw-rtl/unit";
/// The models that have these files in them. Both halves together would be a third one, and the slowest.
const UNITS: &str = "berth_xlt,berth_fp_builder,berth_fp_cut,berth_fp_grant,berth_fp_rx,berth_fp_tx";
/// Operands of another width, incomplete assignments and the like are what mutants are. A header of our own comes before
/// all others, as a precompiled one would have to.
const VERILATOR: &str =
    "-Wno-lint -Wno-style -Wno-fatal -Wno-SIDEEFFECT -MAKEFLAGS VK_PCH_I_FAST= -MAKEFLAGS VK_PCH_I_SLOW=";
/// Not run: they measure rates, for millions of clocks, or need a model that is not built.
const SKIP: [&str; 6] = [
    "fp_rx rates_and_latency",
    "fp_tx fairness",
    "fp_tx msg_rate",
    "fp_tx bw_1qp",
    "scenarios both_ends",
    "scenarios a_",
];
/// Scenarios of each kind; more of one that is quick, and looks at what few of them bring about.
const CASES: &[(&str, &str)] = &[("BERTH_CASES", "3")];
const MORE_CASES: &[(&str, &str)] = &[("BERTH_CASES", "30")];
const MORE: &str = "scenarios what_is_sent_again";

/// Copies, mutates and builds; gives the mutants and the tests, of all programs if none is named, and only those `by` names.
///
/// # Errors
/// If it does not compile, or its tests fail with nothing broken.
pub fn build(repo: &Path, folder: &Path, programs: &[String], by: &[String]) -> Result<(Vec<Mutant>, Suite)> {
    let files: Vec<&str> = GROUPS.iter().flat_map(|(_, files)| files.iter().copied()).collect();
    let tree = folder.join("tree");
    let mut paths = BTreeMap::new();
    copy(repo, &tree, |path| {
        let name = path.strip_prefix(SOURCES).and_then(|rest| Some(rest.rsplit_once('/')?.1));
        let Some(&file) = files.iter().find(|&&file| Some(file) == name) else { return false };
        paths.insert(file, path.to_owned());
        true
    })?;
    let (mut all, mut next) = (Vec::new(), 1);
    for file in files {
        let path = paths.get(file).with_context(|| format!("{SOURCES}: no {file}"))?;
        let source = fs::read_to_string(repo.join(path)).context(file.to_string())?;
        let m = mutate(file, &source, next)?;
        write(&tree.join(path), m.text.as_bytes())?;
        next = m.next;
        all.extend(m.mutants);
    }
    let asks = format!("#define BERTH_PLACES {next}\n#define BERTH_LOOPS {LOOPS}\n{}", include_str!("mutated.h.txt"));
    let header = folder.join("mutated.h");
    write(&header, asks.as_bytes())?;
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(tree.join(CRATE))
        .args(["test", "--release", "--no-run", "--message-format=json", "--features", "fastpath,assert"])
        .args(programs.iter().flat_map(|name| ["--test", name]))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .envs([("BERTH_UNITS", UNITS), ("BERTH_UNIT_WIDTHS", "64")])
        .env("BERTH_UNIT_VERILATOR", format!("{VERILATOR} -CFLAGS -include -CFLAGS {}", header.display()))
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    ensure!(output.status.success(), "the mutants do not compile");
    let messages = output.stdout.split(|&b| b == b'\n').filter_map(|l| serde_json::from_slice::<Value>(l).ok());
    let program = |m: Value| {
        let (path, name) = (m["executable"].as_str()?.into(), m["target"]["name"].as_str()?.into());
        Some(Program { path, name })
    };
    let programs: Vec<_> = messages.filter_map(program).collect();
    let runs = Runs {
        folder: &tree.join(CRATE),
        skip: &SKIP,
        by,
        environment: |test| if test.starts_with(MORE) { MORE_CASES } else { CASES },
        // Simulation is deterministic; a mutant may ask at most twice as often as the unmutated code.
        patience: (2, 20_000),
        per_ask: Some(Duration::from_micros(2)),
    };
    let suite = Suite::new(&programs, runs, &folder.join("tests"))?;
    Ok((all, suite))
}
