// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts that try the RTL in Verilator without guests. What says which of its benches run is here and in `bench`, so that
//! those that passed are known by these two files.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::{Counts, Tester};
use crate::bench;
use crate::progress;

/// Widths (DATA_W) of the card.
const WIDTHS: [&str; 4] = ["64", "128", "256", "512"];

/// The narrowest and the widest one, which every change is tried at.
const ENDS: [&str; 2] = ["64", "512"];

/// RTL benches that take long and show what does not depend on the width, or what the benches of single modules show at
/// both ends: every change is tried at the narrowest alone, at both ends with `--long`.
const NARROW: [&str; 7] = ["attacks", "bad_input", "firmware_boot", "guided", "host_port", "hostile", "two_cards"];

/// Inputs that `rtl-guided` runs, where `BERTH_INPUTS` does not say another number.
const GUIDED_INPUTS: &str = "500";

/// What all of them are made of, and what says which benches run.
const SOURCES: [&str; 11] = [
    "ci/random",
    "ci/xtask/src/test/rtl.rs",
    "driver/abi",
    "firmware/protocol/Cargo.toml",
    "firmware/protocol/src",
    "hw-rtl/coverage.vlt",
    "hw-rtl/host",
    "hw-rtl/kept.rs",
    "hw-rtl/rtl",
    "hw-rtl/side_by_side.rs",
    "hw-rtl/sources.sh",
];

/// What the benches of single modules have beside it.
const OF_UNITS: [&str; 1] = ["hw-rtl/unit"];

/// What whole cards have beside it: firmware, and their model.
const OF_CARDS: [&str; 6] =
    ["firmware/app", "firmware/rt", "firmware/soc", "firmware/timing", "hw-rtl/model", "hw-rtl/vendor.vlt"];

/// What the measurements have beside whole cards.
const OF_BENCH: [&str; 2] = ["ci/xtask/src/bench.rs", "hw-rtl/bench"];

impl Tester {
    pub(super) fn rtl_lint(&self) -> Result<Counts> {
        let mut command = self.builder.sysroot.command(self.repo(), &[], "sh");
        command.args(["hw-rtl/lint.sh"]).args(WIDTHS).env("BERTH_VEXRISCV", self.builder.soft_core()?);
        self.check("Verilator lint", &mut command)
    }

    /// The benches, with the RTL's assertions checked. `widths`: feature that says which widths are built.
    fn rtl_benches(&self, widths: &str) -> Result<Command> {
        let timing = self.builder.timing()?;
        let mut command = self.sysroot_tests("berth-rtl")?;
        command.env("BERTH_TIMING_IMAGE", timing);
        if self.arguments.long {
            command.env("BERTH_LONG", "1");
        }
        command.args(["--features", &format!("assert,{widths}")]);
        Ok(command)
    }

    /// Runs a part's benches of the RTL `once`: their result depends on no time, but on [`SOURCES`] and `more`, the soft core
    /// and the tools.
    fn rtl_once(&self, part: &str, more: &[&str], run: impl FnOnce() -> Result<Counts>) -> Result<Counts> {
        let (soft_core, tools) = (self.builder.soft_core()?, self.builder.sysroot.path("/"));
        let [soft_core, tools] = [soft_core, tools].map(|path| path.display().to_string());
        let mut rustc = self.builder.sysroot.command(self.repo(), &[], "rustc");
        self.once(part, &[&soft_core, &tools], &mut rustc, &[&SOURCES, more].concat(), run)
    }

    pub(super) fn rtl(&self) -> Result<Counts> {
        self.rtl_once("rtl", &OF_CARDS, || self.rtl_at_widths())
    }

    fn rtl_at_widths(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        let (widths, feature) = if self.arguments.long { (&WIDTHS[..], "widths") } else { (&ENDS[..], "ends") };
        for &width in widths {
            let mut command = self.rtl_benches(feature)?;
            command.env("BERTH_DATA_W", width);
            let narrow = width == ENDS[0] || self.arguments.long && ENDS.contains(&width);
            if !narrow {
                command.arg("--lib");
                for bench in self.rtl_bench_names()? {
                    command.args(["--test", &bench]);
                }
            }
            counts.add(self.cargo_tests(&format!("RTL benches, DATA_W = {width}"), &mut command)?);
        }
        Ok(counts)
    }

    /// The benches but [`NARROW`].
    fn rtl_bench_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.repo().join("hw-rtl/model/tests"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".rs").filter(|name| !NARROW.contains(name)).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Looks for inputs with the card's coverage, and tells what was reached.
    pub(super) fn rtl_guided(&self) -> Result<Counts> {
        let mut command = self.sysroot_tests("berth-rtl")?;
        command.args(["--features", "assert,cover", "--test", "guided"]);
        command.env("BERTH_INPUTS", GUIDED_INPUTS);
        // The sysroot has an environment of its own.
        for name in ["BERTH_INPUTS", "BERTH_INPUT", "BERTH_KEEP"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let (counts, lines) = self.cargo_tests_and_output("the card fuzzed, guided by coverage", &mut command)?;
        let table = lines.iter().skip_while(|line| !line.starts_with("module ")).take_while(|line| !line.is_empty());
        table.for_each(|line| progress::line(&format!("  {line}")));
        Ok(counts)
    }

    /// The card that fits an ECP5, with its firmware.
    pub(super) fn rtl_small(&self) -> Result<Counts> {
        let firmware = self.builder.small_firmware()?;
        let arguments = ["test", "--release", "--no-fail-fast", "--package", "berth-rtl"];
        let mut command = self.builder.cargo(self.repo(), "target-sysroot", &arguments)?;
        command.env("BERTH_FW_IMAGE", firmware.image).env("BERTH_FW_ELF", firmware.elf);
        command.args(["--features", "assert,small", "--test", "two_cards", "--test", "firmware_boot"]);
        self.cargo_tests("two small cards", &mut command)
    }

    pub(super) fn rtl_units(&self) -> Result<Counts> {
        let arguments = ["test", "--release", "--no-fail-fast", "--package", "berth-rtl-unit"];
        let mut command = self.builder.cargo(self.repo(), "target-sysroot", &arguments)?;
        command.args(["--features", "fastpath,assert,widths"]);
        if !self.arguments.long {
            command.env("BERTH_UNIT_WIDTHS", ENDS.join(","));
        }
        self.rtl_once("rtl-units", &OF_UNITS, || self.cargo_tests("benches of single modules", &mut command))
    }

    pub(super) fn bench(&self) -> Result<Counts> {
        let arguments = bench::Arguments {
            out: Some(self.builder.context.built_folder("bench")?),
            ends: true,
            model: ["--bars", "--loss-seeds", "2"].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let sources = [&OF_CARDS[..], &OF_BENCH].concat();
        self.rtl_once("bench", &sources, || self.check("bench", &mut bench::command(&self.builder, &arguments)?))
    }

    pub(super) fn rtl_seeds(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        for (seed, width) in (101..=112).zip(WIDTHS.iter().cycle()) {
            let mut command = self.rtl_benches("widths")?;
            command.env("BERTH_SEED", seed.to_string()).env("BERTH_DATA_W", width);
            counts.add(self.cargo_tests(&format!("RTL benches, seed {seed}, DATA_W = {width}"), &mut command)?);
        }
        Ok(counts)
    }
}
