// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System tests that run inside the two QEMU guests, against the real driver, firmware and RTL.
//!
//! Both guests start this program with the same filter and another role. A *pair* test runs in both at the same
//! time; other tests run in one guest only, by turns. Each test runs in a process of its own, so that a crash or
//! a hang is that test's failure, and so that after every test the runner can check what must be true once the
//! process is gone: no byte pinned, no queue pair, no context, no packet without a buffer, nothing in the
//! kernel's log. The guests meet through files in a directory that both have mounted (see [`env`]).
//!
//! Files stand on each other as ci/xtask/src/layers.rs says. Lowest are the macros `ensure`, `ensure_eq` and `tests`.

mod args;
mod bad_input;
mod basics;
mod channels;
mod connections;
mod count;
mod credits;
mod disk;
mod endurance;
mod env;
mod examples;
mod faults;
mod field;
mod helpers;
mod large_file;
mod lifecycle;
mod links;
mod machine;
mod memory;
mod net;
mod outcome;
mod remote;
mod rivals;
mod runner;
mod service;
mod syscalls;
mod test;
mod tool;
mod trouble;
mod util;

use std::process::ExitCode;

use args::Args;
use clap::Parser as _;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(helper) = &args.helper {
        return runner::report(helpers::run(helper, &env::Env::new(&args, "helper")));
    }
    if args.count {
        return runner::report(count::run(&args));
    }
    if let Some(name) = &args.exec {
        return runner::exec(&args, name);
    }
    runner::run(&args)
}
