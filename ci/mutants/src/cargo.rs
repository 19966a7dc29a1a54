// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the tests of a package with all mutants of some sources in them.

use crate::mutate::{Mutant, left_out, mutate_all, nearest};
use crate::suite::{LOOPS, Program, Runs, Suite, copy, write};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Builds that may fail, each of which leaves mutants out.
const ATTEMPTS: usize = 40;

/// A package and what is mutated for its tests.
#[derive(Clone, Debug)]
pub struct Tested {
    /// Its folder.
    pub package: &'static str,
    /// The name of its library.
    pub name: &'static str,
    /// The folder of the sources.
    pub sources: &'static str,
    /// Which of them.
    pub files: Vec<&'static str>,
    /// Tests that do not run: the beginnings of "program test".
    pub skip: &'static [&'static str],
}

/// Writes the mutated files.
fn write_mutants(repo: &Path, copy: &Path, tested: &Tested, without: &BTreeSet<u32>) -> Result<Vec<Mutant>> {
    let (from, to) = (repo.join(tested.sources), copy.join(tested.sources));
    let (all, _, first) = mutate_all(&from, &to, &tested.files, without)?;
    let (from, to) = (repo.join(tested.package).join("src"), copy.join(tested.package).join("src"));
    let asks = include_str!("mutated.rs.txt");
    let asks = format!("{asks}\nconst PLACES: usize = {first};\nconst LOOPS: i32 = {LOOPS};\n");
    write(&to.join("mutated.rs"), asks.as_bytes())?;
    let lib = fs::read_to_string(from.join("lib.rs"))?;
    write(&to.join("lib.rs"), format!("#![allow(warnings)]\n{lib}\npub mod mutated;\n").as_bytes())?;
    Ok(all)
}

/// The mutant nearest before an error; of a variable that is moved or not set, those that leave out what sets it.
fn suspects(copy: &Path, error: &Value) -> Option<Vec<u32>> {
    let spans = error["message"]["spans"].as_array()?;
    let span = spans.iter().find(|s| s["is_primary"] == true)?;
    let text = fs::read_to_string(copy.join(span["file_name"].as_str()?)).ok()?;
    let end = span["byte_end"].as_u64()? as usize;
    Some(match error["message"]["code"]["code"].as_str() {
        Some("E0381" | "E0382") => left_out(&text, end),
        _ => nearest(&text, end).into_iter().collect(),
    })
}

/// Copies, mutates and builds; gives the mutants and the tests, of all programs if none is named, and only those `by` names.
///
/// # Errors
/// If it does not compile whatever is left out, or its tests fail with nothing broken.
pub fn build(
    repo: &Path,
    folder: &Path,
    tested: &Tested,
    programs: &[String],
    by: &[String],
) -> Result<(Vec<Mutant>, Suite)> {
    let tree = folder.join("tree");
    copy(repo, &tree, |name| {
        let within = |folder: &str| Some(name.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        within(tested.package).is_some_and(|s| s == "src/lib.rs")
            || within(tested.sources).is_some_and(|s| tested.files.contains(&s.as_str()))
    })?;
    let known = folder.join("without");
    let mut without: BTreeSet<u32> = BTreeSet::new();
    let stamp = tested
        .files
        .iter()
        .map(|f| fs::read_to_string(repo.join(tested.sources).join(f)))
        .collect::<Result<String, _>>()?;
    if fs::read_to_string(folder.join("sources")).is_ok_and(|s| s == stamp) {
        without = fs::read_to_string(&known)?.lines().filter_map(|l| l.parse().ok()).collect();
    }
    for _ in 0..ATTEMPTS {
        let mutants = write_mutants(repo, &tree, tested, &without)?;
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(tree.join(tested.package))
            .args(["test", "--no-run", "--message-format=json"])
            .args(programs.iter().flat_map(|p| match p.as_str() {
                name if name == tested.name => vec!["--lib"],
                name => vec!["--test", name],
            }))
            // A folder of its own: crates of the copy have the names of the repository's, which they would overwrite.
            .env("CARGO_TARGET_DIR", folder.join("target"))
            // Each runs thousands of times.
            .envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "1"), ("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "0")])
            .stderr(Stdio::inherit())
            .output()
            .context("cargo")?;
        let messages: Vec<Value> =
            output.stdout.split(|&b| b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
        let errors = messages.iter().filter(|m| m["message"]["level"] == "error");
        let suspects: BTreeSet<u32> = errors.filter_map(|e| suspects(&tree, e)).flatten().collect();
        if output.status.success() {
            fs::write(&known, without.iter().map(|n| format!("{n}\n")).collect::<String>())?;
            fs::write(folder.join("sources"), &stamp)?;
            let program = |m: &Value| {
                let (path, name) = (m["executable"].as_str()?.into(), m["target"]["name"].as_str()?.into());
                Some(Program { path, name })
            };
            let programs: Vec<_> = messages.iter().filter_map(program).collect();
            let runs = Runs {
                folder: &tree.join(tested.package),
                skip: tested.skip,
                by,
                environment: |_| &[],
                patience: (16, 1 << 20),
                per_ask: None,
            };
            let suite = Suite::new(&programs, runs, &folder.join("tests"))?;
            return Ok((mutants, suite));
        }
        let before = without.len();
        without.extend(&suspects);
        if without.len() == before {
            let texts: Vec<_> = messages.iter().filter_map(|m| m["message"]["rendered"].as_str()).take(3).collect();
            bail!("the mutants do not compile:\n{}", texts.join("\n"));
        }
        eprintln!("{} mutants do not compile and are left out", without.len());
    }
    bail!("after {ATTEMPTS} builds some mutants still do not compile");
}
