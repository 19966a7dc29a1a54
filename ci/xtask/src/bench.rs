// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench`: builds berth-bench with cards of every width, with the fast path, and runs it in the sysroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::context::Context as Places;
use crate::steps::Builder;
use crate::{count, paths};

/// Widths (DATA_W) that are built: all, and those of `--ends`.
const WIDTHS: [u32; 4] = [64, 128, 256, 512];
const ENDS: [u32; 2] = [64, 512];

/// Options of the measurements.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Folder for the figures (bench.json) and the plots [default: bench-report in the checkout].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the figures (JSON) to this file instead.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only at these widths (DATA_W) [default: 64,128,256,512].
    #[arg(long, value_delimiter = ',', value_name = "BITS,…")]
    pub width: Vec<u32>,
    /// Write the tables and plots of docs/results/bench.md anew; that needs all figures at every width, `-- --sweep` too. With
    /// `--only policy_` those of docs/results/policies.md.
    #[arg(long)]
    pub docs: bool,
    /// Only at 64 and 512 bits, with a program that takes half as long to build.
    #[arg(long)]
    pub ends: bool,
    /// Measure what the hosts have to do instead: the instructions of two guests, counted. With `--docs` docs/results/host.md
    /// is written anew.
    #[arg(long, conflicts_with_all = ["out", "width", "only", "ends", "route", "model"])]
    pub host: bool,
    /// With `--host`: print also which functions the instructions are of.
    #[arg(long, requires = "host")]
    pub profile: bool,
    /// Only figures whose id begins with one of these, e.g. dma_bw.
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub only: Vec<String>,
    /// Measure nothing: place and route the small card (`berth_small`), or modules of it, as `berth_fp:8` (8 QPs),
    /// DATA_W 64, for an ECP5 or, with `@gw5a`, a GW5A [default: the fast path, for an ECP5]. Takes tens of minutes;
    /// later measurements show the result.
    #[arg(
        long,
        num_args = 0..,
        value_delimiter = ',',
        value_name = "PART,…",
        conflicts_with_all = ["out", "width", "only", "json", "docs", "model"]
    )]
    pub route: Option<Vec<String>>,
    /// Settings of the declared model behind `--`; `cargo xtask bench -- --help` lists them.
    #[arg(last = true, value_name = "MODEL")]
    pub model: Vec<String>,
}

/// Builds and measures. Returns whether all figures reach their bars.
///
/// # Errors
/// When it cannot be built or started, or its output cannot be written.
pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.host {
        return count::run(arguments);
    }
    // Before anything is fetched or built.
    check(arguments, &Places::new()?.repo)?;
    let builder = Builder::new(&[])?;
    let mut command = match &arguments.route {
        Some(parts) => route(&builder, parts)?,
        None => command(&builder, arguments)?,
    };
    Ok(Command::status(&mut command)?.success())
}

/// Refuses what berth-bench would refuse, and makes the folder for the output; answers its full path.
fn check(arguments: &Arguments, repo: &Path) -> Result<PathBuf> {
    let widths: &[u32] = if arguments.ends { &ENDS } else { &WIDTHS };
    if let Some(width) = arguments.width.iter().find(|width| !widths.contains(width)) {
        bail!("--width: no card of DATA_W = {width} is built, only {widths:?}");
    }
    let known = ids();
    if let Some(only) = arguments.only.iter().find(|only| !known.iter().any(|id| id.starts_with(only.as_str()))) {
        bail!("--only: no figure's id begins with {only:?}; the ids are {}", known.join(", "));
    }
    if let Some(file) = &arguments.json {
        paths::output_file("--json", file)?;
    }
    paths::output_folder(&arguments.out.clone().unwrap_or_else(|| repo.join("bench-report")))
}

/// The ids of all figures, as the table in berth-bench has them.
fn ids() -> Vec<&'static str> {
    let lists = include_str!("../../../hw-rtl/bench/src/main.rs").split("ids: &[").skip(1);
    lists.flat_map(|rest| rest.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2)).collect()
}

/// Whether figures are measured on cards with firmware: `policy_…`, which reach no bar.
fn needs_firmware(arguments: &Arguments) -> bool {
    let asked = |only: &String| "policy_".starts_with(only.as_str()) || only.starts_with("policy_");
    let none = arguments.model.iter().any(|option| option == "--bars" || option == "--nothing");
    !none && (arguments.only.is_empty() || arguments.only.iter().any(asked))
}

/// Builds berth-bench and gives the command that measures.
///
/// # Errors
/// As [`run`].
pub fn command(builder: &Builder, arguments: &Arguments) -> Result<Command> {
    let out = check(arguments, &builder.context.repo)?;
    let program = builder.bench(arguments.ends)?;
    let json = match &arguments.json {
        None => out.join("bench.json"),
        Some(file) => {
            // Created here, so that it has a path that the sysroot can be given.
            fs::File::create(file).with_context(|| format!("creating {}", file.display()))?;
            file.canonicalize()?
        }
    };
    let synthesis = builder.context.built_folder("synthesis")?;
    let mut command = builder.sysroot.command(&builder.context.repo, &[&out, &json_folder(&json), &synthesis], program);
    command.arg("--json").arg(&json).arg("--plots").arg(&out);
    // Results of part `synthesis` of the tests and of `--route`, if they have run.
    command.arg("--synthesis").arg(&synthesis);
    if needs_firmware(arguments) {
        command.arg("--firmware").arg(builder.firmware()?.image);
    }
    let only_policies = !arguments.only.is_empty() && arguments.only.iter().all(|only| only.starts_with("policy_"));
    if arguments.docs && (only_policies || arguments.only.is_empty()) {
        command.arg("--policy-docs").arg(builder.context.repo.join("docs/results/policies.md"));
    }
    if arguments.docs && !only_policies {
        command.arg("--docs").arg(builder.context.repo.join("docs/results/bench.md"));
    }
    for width in &arguments.width {
        command.arg("--width").arg(width.to_string());
    }
    for only in &arguments.only {
        command.arg("--only").arg(only);
    }
    command.args(&arguments.model);
    Ok(command)
}

/// The command that places and routes: its reports stand beside those of part `synthesis` of the tests, so that the next
/// measurement shows them.
fn route(builder: &Builder, parts: &[String]) -> Result<Command> {
    let out = builder.context.built_folder("synthesis")?;
    let mut command = builder.sysroot.command(&builder.context.repo, &[&out], "sh");
    command.arg("hw-rtl/synth/route.sh").arg(&out).args(parts).env("BERTH_VEXRISCV", builder.soft_core()?);
    if parts.iter().any(|part| part.ends_with("@gw5a")) {
        command.env("BERTH_NEXTPNR_GOWIN", builder.nextpnr_gowin()?);
    }
    Ok(command)
}

fn json_folder(json: &std::path::Path) -> PathBuf {
    json.parent().map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_widths_figures_and_folders_are_refused_at_once() {
        let out = std::env::temp_dir();
        let usual = || Arguments { out: Some(out.clone()), ..Arguments::default() };
        let nowhere: PathBuf = "/proc/self/fd".into();
        for bad in [
            Arguments { width: vec![64, 100], ..usual() },
            Arguments { width: vec![128], ends: true, ..usual() },
            Arguments { only: vec!["dma_bw".into(), "dms".into()], ..usual() },
            Arguments { out: Some(nowhere.join("report")), ..usual() },
            Arguments { json: Some(nowhere.join("x")), ..usual() },
            Arguments { json: Some("/".into()), ..usual() },
        ] {
            assert!(check(&bad, &out).is_err(), "{bad:?}");
        }
        let good = Arguments { width: WIDTHS.into(), only: vec!["dma_bw".into(), "sim_speed".into()], ..usual() };
        assert!(check(&good, &out).is_ok());
    }

    #[test]
    fn firmware_is_built_for_the_figures_that_run_it() {
        let only =
            |ids: &[&str]| Arguments { only: ids.iter().map(|id| (*id).into()).collect(), ..Arguments::default() };
        for (ids, wanted) in [(&[][..], true), (&["policy_sum"], true), (&["dma_bw", "p"], true), (&["pin_"], false)] {
            assert_eq!(needs_firmware(&only(ids)), wanted, "{ids:?}");
        }
        let bars = Arguments { model: vec!["--bars".into()], ..Arguments::default() };
        assert!(!needs_firmware(&bars));
    }

    #[test]
    fn widths_are_those_of_the_model() {
        let model = include_str!("../../../hw-rtl/model/src/ffi.rs");
        for widths in [&WIDTHS[..], &ENDS] {
            let list = format!("{widths:?}");
            assert!(model.contains(&list), "hw-rtl/model/src/ffi.rs has no list {list}");
        }
    }
}
