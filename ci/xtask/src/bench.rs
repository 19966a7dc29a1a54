// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench`: builds berth-bench with cards of every width, with the fast path, and runs it in the sysroot.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::steps::Builder;

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
    /// Write the tables and plots of docs/results/bench.md anew; that needs all figures at every width, `-- --sweep` too.
    #[arg(long)]
    pub docs: bool,
    /// Only at 64 and 512 bits, with a program that takes half as long to build.
    #[arg(long)]
    pub ends: bool,
    /// Only figures whose id begins with one of these, e.g. dma_bw.
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub only: Vec<String>,
    /// Measure nothing: place and route the small card (`berth_small`), or modules of it, as `berth_fp:8` (8 QPs),
    /// DATA_W 64, for an ECP5 or, with `@gw5a`, a GW5A [default: the fast path, for an ECP5]. Tens of minutes; later
    /// measurements show what was found.
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
    let builder = Builder::new()?;
    let mut command = match &arguments.route {
        Some(parts) => route(&builder, parts)?,
        None => command(&builder, arguments)?,
    };
    Ok(Command::status(&mut command)?.success())
}

/// Builds berth-bench and gives the command that measures.
///
/// # Errors
/// As [`run`].
pub fn command(builder: &Builder, arguments: &Arguments) -> Result<Command> {
    let program = builder.bench(arguments.ends)?;
    let out = arguments.out.clone().unwrap_or_else(|| builder.context.repo.join("bench-report"));
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let out = out.canonicalize()?;
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
    // What part `synthesis` of the tests and `--route` have left, if they have run.
    command.arg("--synthesis").arg(&synthesis);
    if arguments.docs {
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
