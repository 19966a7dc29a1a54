// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask`: builds, runs and tests Berth on a machine that has only Rust.
//!
//! Everything else comes from a Debian sysroot in a cache folder outside of the checkout (`sysroot`), in which
//! the kernels (`kernel`), the firmware, the simulator, the driver and the guest tools (`steps`) are built.
//! `guest` boots two virtual machines with a simulated card each; `demo` and `test` are built on it. `bench` measures
//! the Verilated card alone.

mod bench;
mod checked;
mod cli;
mod context;
mod count;
mod coverage;
mod demo;
mod documents;
mod environments;
mod formats;
mod functions;
mod fuzz;
mod fwimage;
mod r#gen;
mod gen_ring;
mod gen_rows;
mod gen_wqe;
mod generated;
mod guest;
mod initramfs;
mod keep;
mod kernel;
mod layers;
mod needs;
mod packaging;
mod panics;
mod paths;
mod profile;
mod progress;
mod provider;
mod report;
mod riscv;
mod sockets;
mod steps;
mod sysroot;
mod test;
mod verbs;
mod wire;

fn main() -> std::process::ExitCode {
    cli::main()
}
