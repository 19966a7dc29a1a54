// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the tests of `firmware/protocol` with all mutants of its sources in them.

use crate::mutate::{Mutant, mutate_all, nearest};
use crate::suite::{LOOPS, Program, Runs, Suite, copy, write};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is mutated: a name, and the files of firmware/protocol/src.
pub const GROUPS: [(&str, &[&str]); 8] = [
    ("credit", &["credit.rs", "taker.rs"]),
    ("psn", &["rc/psn.rs", "rc/bitmap.rs", "rc/window.rs", "rc/arrival.rs", "rc/requester.rs", "rc/responder.rs"]),
    ("translation", &["pins.rs", "blocks.rs"]),
    ("keys", &["keys.rs"]),
    ("ends", &["cut.rs", "announce.rs", "receive.rs"]),
    ("sends", &["requester.rs"]),
    ("receives", &["responder.rs", "grants.rs"]),
    ("rows", &["fast.rs"]),
];

/// The crate whose mutants these are.
const CRATE: &str = "firmware/protocol";
/// Its tests that look at its sources, which here are others.
const ABOUT_SOURCES: [&str; 2] = ["bounds ", "attacks pythia_a_look_up_of_a_key_has_no_loop"];
/// Builds that may fail, each of which leaves mutants out.
const ATTEMPTS: usize = 40;

/// Writes the mutated files.
fn write_mutants(repo: &Path, copy: &Path, files: &[&str], without: &BTreeSet<u32>) -> Result<Vec<Mutant>> {
    let source = Path::new(CRATE).join("src");
    let (from, to) = (repo.join(&source), copy.join(&source));
    let (all, _, first) = mutate_all(&from, &to, files, without)?;
    let asks = include_str!("mutated.rs.txt");
    let asks = format!("{asks}\nconst PLACES: usize = {first};\nconst LOOPS: i32 = {LOOPS};\n");
    write(&to.join("mutated.rs"), asks.as_bytes())?;
    let lib = fs::read_to_string(from.join("lib.rs"))?;
    write(&to.join("lib.rs"), format!("#![allow(warnings)]\n{lib}\npub mod mutated;\n").as_bytes())?;
    Ok(all)
}

/// The mutant nearest before an error.
fn suspect(copy: &Path, error: &Value) -> Option<u32> {
    let spans = error["message"]["spans"].as_array()?;
    let span = spans.iter().find(|s| s["is_primary"] == true)?;
    let text = fs::read_to_string(copy.join(span["file_name"].as_str()?)).ok()?;
    let end = span["byte_end"].as_u64()? as usize;
    nearest(&text, end)
}

/// Copies, mutates (all groups if none is named) and builds; gives the mutants and the tests, of all programs if none is
/// named, and only those `by` names.
///
/// # Errors
/// If it does not compile whatever is left out, or its tests fail with nothing broken.
pub fn build(
    repo: &Path,
    folder: &Path,
    groups: &[String],
    programs: &[String],
    by: &[String],
) -> Result<(Vec<Mutant>, Suite)> {
    let wanted = GROUPS.iter().filter(|(name, _)| groups.is_empty() || groups.iter().any(|g| g == name));
    let files: Vec<&str> = wanted.flat_map(|(_, files)| files.iter().copied()).collect();
    let tree = folder.join("tree");
    copy(repo, &tree, |name| {
        let source = name.strip_prefix(CRATE).and_then(|n| n.strip_prefix("/src/"));
        source.is_some_and(|s| s == "lib.rs" || files.contains(&s))
    })?;
    let known = folder.join("without");
    let mut without: BTreeSet<u32> = BTreeSet::new();
    let stamp = files
        .iter()
        .map(|f| fs::read_to_string(repo.join(CRATE).join("src").join(f)))
        .collect::<Result<String, _>>()?;
    if fs::read_to_string(folder.join("sources")).is_ok_and(|s| s == stamp) {
        without = fs::read_to_string(&known)?.lines().filter_map(|l| l.parse().ok()).collect();
    }
    for _ in 0..ATTEMPTS {
        let mutants = write_mutants(repo, &tree, &files, &without)?;
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(tree.join(CRATE))
            .args(["test", "--no-run", "--message-format=json"])
            .args(programs.iter().flat_map(|p| match p.as_str() {
                "berth_protocol" => vec!["--lib"],
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
        let suspects: BTreeSet<u32> = errors.filter_map(|e| suspect(&tree, e)).collect();
        if output.status.success() {
            fs::write(&known, without.iter().map(|n| format!("{n}\n")).collect::<String>())?;
            fs::write(folder.join("sources"), &stamp)?;
            let program = |m: &Value| {
                let (path, name) = (m["executable"].as_str()?.into(), m["target"]["name"].as_str()?.into());
                Some(Program { path, name })
            };
            let programs: Vec<_> = messages.iter().filter_map(program).collect();
            let runs = Runs {
                folder: &tree.join(CRATE),
                skip: &ABOUT_SOURCES,
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
