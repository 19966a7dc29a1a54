// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the open tools say about the core's size and clock: figures of the reports that hw-rtl/synth/run.sh and route.sh
//! leave, one folder for each part.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

use crate::rows::{Bar, Row};

/// Cells that count together, of ECP5 and of GW5A, and the figure's id. All block RAMs have 18 kbit.
const CELLS: [(&[&str], &str); 3] = [
    (&["LUT1", "LUT2", "LUT3", "LUT4"], "synth_lut4"),
    (&["TRELLIS_FF", "DFF", "DFFE", "DFFR", "DFFRE", "DFFS", "DFFSE", "DFFC", "DFFCE", "DFFP", "DFFPE"], "synth_ff"),
    (&["DP16KD", "DPB", "DPX9B", "SDPB", "SDPX9B"], "synth_ram"),
];

/// How many of a cell a report of Yosys' `stat` counts: the last number that stands in front of the name, or behind it.
fn cells(report: &str, cell: &str) -> Option<f64> {
    let count = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, count] | [count, name] | [count, _, name] if name == cell => count.parse().ok(),
            _ => None,
        }
    };
    report.lines().filter_map(count).next_back()
}

/// The highest clock of nextpnr's report, in MHz.
fn clock(report: &Value) -> Option<f64> {
    report.get("fmax")?.as_object()?.values().filter_map(|f| f.get("achieved")?.as_f64()).reduce(f64::max)
}

/// The rows `synth_lut4`, `synth_ff`, `synth_ram` and, of parts that were placed and routed, `synth_fmax`.
///
/// # Errors
/// When a report cannot be read.
pub fn rows(folder: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut parts: Vec<_> = fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten().collect();
    parts.sort_by_key(fs::DirEntry::file_name);
    for part in parts {
        let name = part.file_name().to_string_lossy().into_owned();
        // Of parts that were routed, another device and a number of queue pairs of their own: route.sh.
        let (part_name, fpga) = name.split_once('@').unwrap_or((&name, "ecp5"));
        let mut params = vec![("data_w", 64.into()), ("fpga", fpga.into())];
        match part_name.split_once('-') {
            Some((module, qps)) => params.extend([("module", module.into()), ("qps", qps.into())]),
            None => params.push(("module", part_name.into())),
        }
        if let Ok(text) = fs::read_to_string(part.path().join("cells.txt")) {
            for (names, id) in CELLS {
                if let Some(n) = names.iter().filter_map(|cell| cells(&text, cell)).reduce(|a, b| a + b) {
                    rows.push(Row::new(id, &params, n, "cells", None, Bar::None));
                }
            }
        }
        if let Ok(text) = fs::read_to_string(part.path().join("report.json"))
            && let Some(mhz) = clock(&serde_json::from_str(&text)?)
        {
            rows.push(Row::new("synth_fmax", &params, mhz, "MHz", None, Bar::None));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_count_of_a_cell_is_the_whole_design_s() {
        let report = "   LUT4    12\n   DP16KD   3\n\n  LUT4   4711\n  TRELLIS_FF   815\n";
        assert_eq!(cells(report, "LUT4"), Some(4711.0));
        assert_eq!(cells(report, "DP16KD"), Some(3.0));
        assert_eq!(cells("     4711   LUT4\n", "LUT4"), Some(4711.0));
        assert_eq!(cells(report, "MULT18X18D"), None);
    }

    #[test]
    fn clock_is_that_of_the_fastest_net() {
        let report = serde_json::json!({ "fmax": { "clk": { "achieved": 37.8, "constraint": 125.0 } } });
        assert_eq!(clock(&report), Some(37.8));
        assert_eq!(clock(&serde_json::json!({})), None);
    }
}
