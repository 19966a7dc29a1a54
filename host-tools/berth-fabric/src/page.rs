// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of results, docs/results/simulation.md: made of the tables (JSON) that the questions have left in a folder.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const HEAD: &str = "# Simulation at scale

`cargo xtask simulate` writes this page, and the tables (JSON) and plots (SVG) in the folder [simulation](simulation). \
[How to measure](../develop/measure.md#the-simulation-at-scale) says what is simulated and what the columns mean. All \
times are simulated time. The same options and the same seed give the same files.
";

/// The schemes of question 1, each of which also runs with the small budget.
const SCHEMES: [&str; 5] = ["Berth", "count + RNR", "fixed credits", "grants", "eager + SRQ"];

/// Lines of question 1: workload, what a full switch does, column.
const LINES: [(&str, &str, &str); 19] = [
    ("mixed sizes", "pause", "goodput Gbit/s"),
    ("mixed sizes", "pause", "p99 µs"),
    ("mixed sizes", "drop", "p99 µs"),
    ("mixed sizes", "pause", "control B/MB"),
    ("mixed sizes", "pause", "flow control B/MB"),
    ("mixed sizes", "pause", "not ready"),
    ("mixed sizes", "pause", "committed MiB"),
    ("mixed sizes", "pause", "committed peak MiB"),
    ("mixed sizes", "pause", "copied MB"),
    ("one slow receiver", "pause", "not ready"),
    ("one slow receiver", "pause", "p99 µs"),
    ("incast 64:1", "drop", "goodput Gbit/s"),
    ("incast 1024:1", "pause", "goodput Gbit/s"),
    ("incast 1024:1", "pause", "not ready"),
    ("incast 1024:1", "drop", "goodput Gbit/s"),
    ("request/response", "pause", "p50 µs"),
    ("request/response", "pause", "p99 µs"),
    ("request/response", "pause", "control B/MB"),
    ("request/response", "drop", "p99 µs"),
];

/// A table of a document: what its lines are, which columns it has, what stands in them.
fn table(heads: &[&str], lines: &[Vec<String>]) -> String {
    let mut text = format!("\n| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for line in lines {
        let _ = writeln!(text, "| {} |", line.join(" | "));
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The different values of a column, in the order of the rows.
fn values(rows: &[Value], column: &str) -> Vec<String> {
    let mut all = Vec::new();
    for value in rows.iter().map(|r| cell(&r[column])) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// The value in a column of the row that has these values.
fn find(rows: &[Value], column: &str, is: &[(&str, &str)]) -> String {
    let row = rows.iter().find(|r| is.iter().all(|(name, value)| cell(&r[*name]) == *value));
    row.map_or_else(String::new, |r| cell(&r[column]))
}

/// Lines by some columns, one more column across, and what stands in the cells.
fn pivot(rows: &[Value], by: &[&str], across: &str, column: &str) -> String {
    let columns = values(rows, across);
    let mut keys: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let key = by.iter().map(|name| cell(&row[*name])).collect();
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let heads: Vec<&str> = by.iter().copied().chain(columns.iter().map(String::as_str)).collect();
    let lines: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            let is: Vec<(&str, &str)> = by.iter().copied().zip(key.iter().map(String::as_str)).collect();
            let cells = columns.iter().map(|c| find(rows, column, &[&is[..], &[(across, c)]].concat()));
            key.iter().cloned().chain(cells).collect()
        })
        .collect();
    table(&heads, &lines)
}

fn credits(rows: &[Value]) -> String {
    let mut text = String::new();
    for (title, more) in [("All the memory", ""), ("The small budget", ", small budget")] {
        let line = |&(workload, full, column): &(&str, &str, &str)| {
            let cells: Vec<String> = SCHEMES
                .iter()
                .map(|s| {
                    let scheme = format!("{s}{more}");
                    find(rows, column, &[("workload", workload), ("full buffers", full), ("scheme", &scheme)])
                })
                .collect();
            let any = cells.iter().any(|c| !c.is_empty());
            any.then(|| [workload, full, column].map(str::to_owned).into_iter().chain(cells).collect())
        };
        let heads: Vec<&str> = ["workload", "full switch", ""].into_iter().chain(SCHEMES).collect();
        let lines: Vec<Vec<String>> = LINES.iter().filter_map(line).collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n### {title}\n{}", table(&heads, &lines));
        }
    }
    text
}

fn triggers(setup: &Value) -> String {
    let columns = [
        "policy",
        "sender idle %",
        "idle, deviation",
        "idle in a rack %",
        "lists per MB",
        "processor for lists %",
        "sum",
        "sum, deviation",
    ];
    let means = setup["means over all runs"].as_array().cloned().unwrap_or_default();
    let lines: Vec<Vec<String>> = means.iter().map(|m| columns.iter().map(|c| cell(&m[*c])).collect()).collect();
    format!(
        "\nMeans over all runs of {} seeds. Least sum: **{}**; of those that measure nothing: **{}**.\n{}",
        cell(&setup["seeds"]),
        cell(&setup["best"]),
        cell(&setup["best without measurement"]),
        table(&columns, &lines)
    )
}

fn paging(rows: &[Value]) -> String {
    let mut text = String::new();
    for column in ["goodput Gbit/s", "p99 µs", "pinned MiB, peak"] {
        let title = format!("\n{column} by page service (µs):\n");
        text += &(title + &pivot(rows, &["memory", "scheme"], "page service µs", column));
    }
    text
}

fn memory(rows: &[Value]) -> String {
    let by = ["connections", "with large messages %", "arrival"];
    let mut text = String::new();
    for column in ["bytes per connection", "not ready", "large p99 µs"] {
        text += &(format!("\n{column}:\n") + &pivot(rows, &by, "scheme", column));
    }
    text
}

/// The plots of a question, by their names.
fn plots(folder: &Path, prefix: &str) -> Result<String> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .flatten()
        .filter_map(|file| file.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix) && name.ends_with(".svg"))
        .collect();
    names.sort();
    let links = names.iter().map(|name| {
        let title = name.trim_start_matches(prefix).trim_start_matches('-').trim_end_matches(".svg");
        format!("[{title}](simulation/{name})")
    });
    Ok(links.collect::<Vec<_>>().join(", "))
}

/// The page, of what lies in `folder`.
///
/// # Errors
/// When the folder or a table in it cannot be read.
pub fn page(folder: &Path) -> Result<String> {
    let mut text = HEAD.to_owned();
    let questions = [("credits", 1), ("triggers", 2), ("paging", 3), ("memory", 4)];
    for (prefix, title) in [("", ""), ("large-", ", the large run")] {
        for (name, number) in questions {
            let path = folder.join(format!("{prefix}{name}.json"));
            let Ok(json) = fs::read_to_string(&path) else { continue };
            let file: Value = serde_json::from_str(&json).with_context(|| path.display().to_string())?;
            let rows = file["rows"].as_array().map_or(&[][..], Vec::as_slice);
            let scale = &file["scale"];
            write!(
                text,
                "\n## {number}. {}{title}\n\n[{prefix}{name}.json](simulation/{prefix}{name}.json): {} hosts, {} \
                 connections, seed {}, {} rows. Plots: {}.\n{}",
                cell(&file["question"]),
                cell(&scale["nodes"]),
                cell(&scale["connections"]),
                cell(&scale["seed"]),
                rows.len(),
                plots(folder, &format!("{prefix}{name}"))?,
                match name {
                    "credits" => credits(rows),
                    "triggers" => triggers(&file["setup"]),
                    "paging" => paging(rows),
                    _ => memory(rows),
                }
            )?;
        }
    }
    Ok(text)
}

/// Writes the page beside its folder, under the same name.
///
/// # Errors
/// As [`page`], and when it cannot be written.
pub fn write(folder: &Path) -> Result<()> {
    let path = folder.with_extension("md");
    fs::write(&path, page(folder)?).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lines_and_columns() {
        let rows = [
            serde_json::json!({"scheme": "x", "µs": 1, "rate": 9.5}),
            serde_json::json!({"scheme": "x", "µs": 2, "rate": 8}),
            serde_json::json!({"scheme": "y", "µs": 2, "rate": null}),
        ];
        let text = pivot(&rows, &["scheme"], "µs", "rate");
        assert_eq!(text, "\n| scheme | 1 | 2 |\n|---|---|---|\n| x | 9.5 | 8 |\n| y |  |  |\n");
    }

    /// The committed page must follow from the tables beside it.
    #[test]
    fn page_in_the_documentation_is_that_of_its_tables() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/simulation");
        let written = fs::read_to_string(folder.with_extension("md")).expect("the page is there");
        assert!(written == page(&folder).expect("the tables are there"), "run `cargo xtask simulate --page`");
    }
}
