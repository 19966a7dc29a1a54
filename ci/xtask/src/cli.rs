// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `cargo xtask`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

use crate::context::Context;
use crate::guest::{self, Role};
use crate::kernel::{Flavour, Kernel};
use crate::needs::Need;
use crate::progress::{self, Progress};
use crate::steps::{Builder, Parts};
use crate::{bench, coverage, demo, fuzz, generated, packaging, paths, test};

/// Builds, runs and tests Berth. Everything it needs besides Rust goes into a cache folder outside of the checkout:
/// $BERTH_CACHE, else $XDG_CACHE_HOME/berth, else ~/.cache/berth (up to 15 GB).
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch and build everything that the demo and the tests need, and nothing else.
    Setup {
        /// Without the test kernel, which only the tests need.
        #[arg(long)]
        demo_only: bool,
    },
    /// Move a file between two virtual hosts through two simulated cards, and report on it.
    Demo(demo::Arguments),
    /// Measure the card in clock cycles at every width: a table, JSON and plots.
    Bench(bench::Arguments),
    /// Run all tests; the last line says how many passed and failed.
    Test(test::Arguments),
    /// Simulate Berth and others at scale: tables and plots in docs/results (see --help after `simulate`).
    #[command(disable_help_flag = true)]
    Simulate {
        /// Options of the simulation.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzz the protocol: coverage-guided random input for its parsers and for connected ends.
    Fuzz(fuzz::Arguments),
    /// Break the protocol, the RTL (`--rtl`) or the driver (`--driver`) in many small ways, one at a time, and count what
    /// the tests notice (options: `mutants --help`).
    #[command(disable_help_flag = true)]
    Mutants {
        /// Options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure how many lines of the protocol its tests reach.
    Coverage(coverage::Arguments),
    /// Write the files that are generated from driver/abi (RTL package, register documentation).
    Gen {
        /// Only compare: fail when a file is not what it should be, or when docs name tests or files that do not exist.
        #[arg(long)]
        check: bool,
    },
    /// rustfmt, Clippy, generated files and Verilator's lint.
    Lint,
    /// Boot guests with simulated cards and run scripts in them.
    Guest(GuestArguments),
    /// Write what a host with a card needs into a new folder: the driver's sources, the firmware, the program `berth`.
    Package {
        /// The folder to make.
        #[arg(long, default_value = "berth-package")]
        out: PathBuf,
    },
    /// Connect this terminal with the shell of a guest that --keep left up (Ctrl-] leaves).
    Console {
        /// Which guest: a or b.
        #[arg(value_parser = ["a", "b"])]
        role: String,
    },
    /// Run a command (default: bash) in the sysroot, with the checkout and the cache at their own paths.
    Shell {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Remove what was built from this repository from the cache.
    Clean {
        /// Also the sysroot and the kernels.
        #[arg(long)]
        all: bool,
    },
}

#[derive(clap::Args)]
struct GuestArguments {
    /// Which kernel.
    #[arg(long, value_enum, default_value = "stock")]
    kernel: Flavour,
    /// Shell script (busybox sh) that both guests run; `$role` is a or b, /mnt/share is shared.
    #[arg(long)]
    script: Option<PathBuf>,
    /// Script for guest b where it differs.
    #[arg(long)]
    script_b: Option<PathBuf>,
    /// Boot only guest a.
    #[arg(long)]
    one: bool,
    /// Without cards, firmware, driver and programs: only the kernel and busybox.
    #[arg(long)]
    bare: bool,
    /// Use the driver, firmware, simulator and programs as built last instead of building them.
    #[arg(long)]
    no_build: bool,
    /// Do not load berth.ko (it is /lib/modules/berth.ko in the guest).
    #[arg(long)]
    no_load: bool,
    /// More for the kernel's command line.
    #[arg(long, default_value = "")]
    append: String,
    /// Folder with the sources of another driver to build and load instead of the checkout's, in the cache.
    #[arg(long, requires = "driver_out", conflicts_with_all = ["no_build", "bare"])]
    driver: Option<PathBuf>,
    /// Folder, in the cache, for what is built of it.
    #[arg(long)]
    driver_out: Option<PathBuf>,
    /// With an IOMMU before the card.
    #[arg(long)]
    iommu: bool,
    /// Parameters for berth.ko.
    #[arg(long, default_value = "")]
    module_args: String,
    /// One more argument for `berth-sim run`, e.g. --sim=--loss=0.01; may be repeated.
    #[arg(long = "sim", allow_hyphen_values = true)]
    simulator: Vec<String>,
    /// Files to put into the share; may be repeated.
    #[arg(long)]
    share: Vec<PathBuf>,
    /// Virtual CPUs of each guest.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Leave the guests up with a shell after the scripts.
    #[arg(long)]
    keep: bool,
    /// End the run after so many seconds.
    #[arg(long, default_value_t = 600)]
    limit: u64,
}

/// Runs the command line and turns errors into an exit code: 1 for failures, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = progress::catch_signals().and_then(|()| run(cli.task));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{} {error:#}", console::style("error:").red().bold());
            if progress::interrupted() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

fn run(task: Task) -> Result<bool> {
    match task {
        Task::Setup { demo_only } => setup(demo_only).map(|()| true),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Simulate { arguments } => simulate(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Mutants { arguments } => Ok(test::mutants(&Builder::new(&[])?, &arguments)?.status()?.success()),
        Task::Coverage(arguments) => coverage::run(&arguments),
        Task::Gen { check } => generated::run(&Context::new()?, check).map(|()| true),
        Task::Lint => test::lint(),
        Task::Guest(arguments) => guests(&arguments),
        Task::Package { out } => package(&out).map(|()| true),
        Task::Console { role } => guest::console(&role).map(|()| true),
        Task::Shell { command } => shell(&command),
        Task::Clean { all } => clean(all).map(|()| true),
    }
}

fn setup(demo_only: bool) -> Result<()> {
    let mut needs = vec![Need::Kernel(Flavour::Stock), Need::GuestParts];
    needs.extend((!demo_only).then_some(Need::Kernel(Flavour::Test)));
    let builder = Builder::new(&needs)?;
    builder.parts(Flavour::Stock)?;
    if !demo_only {
        let kernel = Kernel::ensure(&builder.context, &builder.sysroot, Flavour::Test)?;
        builder.driver(&kernel)?;
    }
    eprintln!("Everything is in {}", builder.context.cache.display());
    Ok(())
}

fn package(out: &Path) -> Result<()> {
    // Before anything is fetched or built.
    paths::new_folder("--out", out)?;
    packaging::package(&Builder::new(&[Need::GuestParts])?, out)
}

/// Refuses files and folders of guests that are not there, or that the sysroot does not show.
fn check(arguments: &GuestArguments, context: &Context) -> Result<()> {
    for file in [&arguments.script, &arguments.script_b].into_iter().flatten().chain(&arguments.share) {
        paths::readable(file)?;
    }
    let shown = |option: &str, folder: &Path| {
        if !folder.starts_with(&context.cache) && !folder.starts_with(&context.repo) {
            bail!("{option}: {} does not lie in the cache, {}", folder.display(), context.cache.display());
        }
        Ok(())
    };
    if let Some(source) = &arguments.driver {
        let full = source.canonicalize().with_context(|| format!("--driver: {}", source.display()))?;
        shown("--driver", &full)?;
        paths::readable(&full.join("Makefile")).context("--driver: no sources of a driver")?;
    }
    if let Some(output) = &arguments.driver_out {
        shown("--driver-out", &paths::output_folder(output)?)?;
    }
    Ok(())
}

fn guests(arguments: &GuestArguments) -> Result<bool> {
    // Before anything is fetched or built.
    check(arguments, &Context::new()?)?;
    let mut needs = vec![Need::Kernel(arguments.kernel)];
    needs.extend((!arguments.bare).then_some(Need::GuestParts));
    let builder = Builder::new(&needs)?;
    let mut parts = if arguments.bare {
        let kernel = Kernel::ensure(&builder.context, &builder.sysroot, arguments.kernel)?;
        Parts { kernel, driver: None, firmware: None, simulator: None, programs: None }
    } else if arguments.no_build {
        builder.parts_as_built(arguments.kernel)?
    } else {
        builder.parts(arguments.kernel)?
    };
    if let (Some(source), Some(output)) = (&arguments.driver, &arguments.driver_out) {
        parts.driver = Some(builder.other_driver(source, &parts.kernel, output)?);
    }
    let mut options = guest::Options::new(arguments.kernel);
    if arguments.one {
        options.roles = vec![Role::A];
    }
    options.append.clone_from(&arguments.append);
    options.iommu = arguments.iommu;
    options.cards = !arguments.bare;
    options.simulator = arguments.simulator.clone();
    options.module_args = arguments.module_args.clone();
    options.no_load = arguments.no_load;
    options.cpus = arguments.cpus;
    options.keep = arguments.keep;
    options.echo = true;
    options.limit = Duration::from_secs(arguments.limit);
    let mut run = guest::Run::new()?;
    for &role in &options.roles {
        let script = if role == Role::B {
            arguments.script_b.as_ref().or(arguments.script.as_ref())
        } else {
            arguments.script.as_ref()
        };
        if let Some(script) = script {
            let text = fs::read_to_string(script).with_context(|| format!("reading {}", script.display()))?;
            run.script(role, &text)?;
        }
    }
    for file in &arguments.share {
        let name = file.file_name().with_context(|| format!("{} is not a file", file.display()))?;
        fs::copy(file, run.share.join(name)).with_context(|| format!("copying {}", file.display()))?;
    }
    let mut progress = Progress::start("guests", None);
    let end = guest::run(&builder, &parts, &options, &run, &mut progress);
    let faults = end.as_ref().map(guest::End::faults).unwrap_or_default();
    progress.finish(end.is_ok() && faults.is_empty());
    if end.is_err() || !faults.is_empty() {
        run.preserve();
        eprintln!("logs and share: {}", run.folder.display());
    }
    end?;
    for fault in &faults {
        eprintln!("{fault}");
    }
    Ok(faults.is_empty())
}

/// Needs nothing but this machine's own cargo.
fn simulate(arguments: &[String]) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(Context::new()?.repo);
    command.args(["run", "--release", "--quiet", "--package", "berth-fabric", "--"]).args(arguments);
    Ok(command.status()?.success())
}

fn shell(command: &[String]) -> Result<bool> {
    let builder = Builder::new(&[])?;
    let cwd = std::env::current_dir()?;
    let cwd = if cwd.starts_with(&builder.context.repo) { cwd } else { builder.context.repo.clone() };
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => ("bash", [].as_slice()),
    };
    fs::create_dir_all(builder.context.cache.join("home"))?;
    let mut command = builder.sysroot.command(&cwd, &[], program);
    command.args(arguments).env("CARGO_TARGET_DIR", builder.context.built_folder("target-sysroot")?);
    command.env("BERTH_VEXRISCV", builder.soft_core()?);
    Ok(Command::status(&mut command)?.success())
}

fn clean(all: bool) -> Result<()> {
    let context = Context::new()?;
    let mut folders = vec!["built", "log", "tmp", "kvm", "proved", "synthesised", "models", "checked"];
    if all {
        folders.extend(["sysroot", "kernel", "linux", "soft-core", "scapy", "nextpnr-gowin", "cargo", "home"]);
    }
    for folder in folders {
        let path = context.cache.join(folder);
        if path.exists() {
            eprintln!("removing {}", path.display());
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    if !context.cache.is_dir() {
        bail!("{} is gone", context.cache.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(list: &[&str]) -> GuestArguments {
        match Cli::try_parse_from(["xtask", "guest"].iter().chain(list)).expect("known options").task {
            Task::Guest(arguments) => arguments,
            _ => unreachable!("it is `guest`"),
        }
    }

    #[test]
    fn guests_with_missing_files_or_drivers_are_refused_at_once() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout");
        let cache = std::env::temp_dir();
        let context = Context { repo: repo.clone(), cache: cache.clone(), built: cache.clone() };
        let check = |list: &[&str]| check(&arguments(list), &context);
        let [driver, docs, out] =
            [repo.join("driver"), repo.join("docs"), cache].map(|path| path.to_string_lossy().into_owned());
        assert!(check(&["--driver", &driver, "--driver-out", &out]).is_ok());
        for bad in [
            ["--driver", "/nowhere/at/all", "--driver-out", &out],
            ["--driver", "/usr", "--driver-out", &out],
            ["--driver", &docs, "--driver-out", &out],
            ["--driver", &driver, "--driver-out", "/proc/self/fd"],
            ["--driver", &driver, "--driver-out", "/dev/shm"],
            ["--script", "/nowhere/at/all", "--share", "/etc/hostname"],
            ["--script", "/etc/hostname", "--share", "/"],
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        assert!(Cli::try_parse_from(["xtask", "guest", "--cpus", "0"]).is_err());
    }
}
