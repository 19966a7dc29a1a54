// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System tests that run inside the two QEMU guests, against the real driver, firmware and RTL.
//!
//! Both guests start this program with the same filter and another role. A *pair* test runs in both at the same
//! time; other tests run in one guest only, by turns. Each test runs in a process of its own, so that a crash or
//! a hang is that test's failure, and so that after every test the runner can check what must be true once the
//! process is gone: no byte pinned, no queue pair, no context, no packet without a buffer, nothing in the
//! kernel's log. The guests meet through files in a directory that both have mounted (see [`env`]).

mod bad_input;
mod basics;
mod connections;
mod credits;
mod endurance;
mod env;
mod examples;
mod faults;
mod field;
mod lifecycle;
mod machine;
mod memory;
mod rivals;
mod runner;
mod syscalls;
mod tool;
mod trouble;
mod util;

use std::process::ExitCode;

use clap::Parser;

/// System tests of Berth inside the guests.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Args {
    /// This guest's role: `a` connects, `b` listens.
    #[arg(long, default_value = "a")]
    role: env::Role,
    /// Directory that both guests share.
    #[arg(long, default_value = "/mnt/share")]
    share: std::path::PathBuf,
    /// Distinguishes runs that use the same directory.
    #[arg(long, default_value = "tests")]
    session: String,
    /// This card's IPv4 address.
    #[arg(long)]
    own_ip: Option<std::net::Ipv4Addr>,
    /// The peer's IPv4 address.
    #[arg(long)]
    peer_ip: Option<std::net::Ipv4Addr>,
    /// This card's MAC address.
    #[arg(long)]
    mac: Option<libberth::MacAddr>,
    /// Path MTU in bytes.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// The driver's module, for tests that load it again.
    #[arg(long, default_value = "/lib/modules/berth.ko")]
    module: std::path::PathBuf,
    /// Seed of random tests [default: from the clock; it is printed].
    #[arg(long, env = "BERTH_SEED", overrides_with = "seed")]
    seed: Option<u64>,
    /// How often tests that repeat something do so [default: each its own number].
    #[arg(long, env = "BERTH_CASES", overrides_with = "cases")]
    cases: Option<u64>,
    /// More of what is random or repeated.
    #[arg(long)]
    long: bool,
    /// The tests of what is left after very many repetitions, instead of the others.
    #[arg(long)]
    endurance: bool,
    /// Seconds after which a test counts as hanging.
    #[arg(long, default_value_t = 600)]
    hang_limit: u64,
    /// Only tests whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    run: Vec<String>,
    /// Not tests whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// List the tests and end.
    #[arg(long)]
    list: bool,
    /// Stop at the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Runs one test in this process (the runner's own use).
    #[arg(long, hide = true)]
    exec: Option<String>,
    /// Runs a helper program of a test in this process (the tests' own use).
    #[arg(long, hide = true)]
    helper: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(helper) = &args.helper {
        return runner::report(lifecycle::helper(helper, &env::Env::new(&args, "helper")));
    }
    if let Some(name) = &args.exec {
        return runner::exec(&args, name);
    }
    runner::run(&args)
}
