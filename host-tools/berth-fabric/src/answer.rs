// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of a question's runs: a table, plots, and files of them.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Size of the runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scale {
    /// Hosts.
    pub nodes: u32,
    /// Connections.
    pub connections: u32,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Runs side by side.
    #[serde(skip)]
    pub jobs: usize,
}

/// Columns of a table's row, in order.
#[derive(Clone, Debug, Default)]
pub struct Row(pub Vec<(&'static str, Value)>);

impl Row {
    /// The value in a column; null if there is none.
    pub fn get(&self, column: &str) -> &Value {
        self.0.iter().find(|c| c.0 == column).map_or(&Value::Null, |c| &c.1)
    }

    /// Number in a column; not a number if there is none.
    pub fn number(&self, column: &str) -> f64 {
        self.get(column).as_f64().unwrap_or(f64::NAN)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let cells: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}: {value}", Value::from(*name))).collect();
        write!(f, "{{{}}}", cells.join(", "))
    }
}

/// The answer to a question.
pub struct Answer {
    /// Name of its files.
    pub name: &'static str,
    /// The question.
    pub question: &'static str,
    /// How the runs were set up.
    pub setup: Value,
    /// One object per run.
    pub rows: Vec<Row>,
    /// Plots: name and SVG.
    pub plots: Vec<(String, String)>,
}

impl Answer {
    /// The table as JSON. It depends on scale and seed only.
    pub fn json(&self, scale: &Scale) -> String {
        let mut top = Map::new();
        top.insert("question".to_owned(), self.question.into());
        top.insert("scale".to_owned(), serde_json::to_value(scale).unwrap_or_default());
        top.insert("setup".to_owned(), self.setup.clone());
        // One row per line: short enough to read, and changes show as changed lines.
        let mut text = serde_json::to_string_pretty(&top).unwrap_or_default();
        text.truncate(text.trim_end_matches('}').trim_end().len());
        text.push_str(",\n  \"rows\": [\n");
        for (i, row) in self.rows.iter().enumerate() {
            let comma = if i + 1 < self.rows.len() { "," } else { "" };
            let _ = writeln!(text, "    {row}{comma}");
        }
        text.push_str("  ]\n}\n");
        text
    }

    /// Writes table and plots into `folder`; the files' names begin with `prefix`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path, prefix: &str, scale: &Scale) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let path = folder.join(format!("{prefix}{}.json", self.name));
        fs::write(&path, self.json(scale)).with_context(|| format!("writing {}", path.display()))?;
        for (name, svg) in &self.plots {
            let path = folder.join(format!("{prefix}{name}.svg"));
            fs::write(&path, svg).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The table for a terminal, and for a document.
    pub fn markdown(&self) -> String {
        let Some(first) = self.rows.first() else { return String::new() };
        let columns: Vec<&str> = first.0.iter().map(|c| c.0).collect();
        let text = |value: &Value| match value {
            Value::String(s) => s.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let mut lines = vec![columns.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>()];
        lines.extend(self.rows.iter().map(|row| columns.iter().map(|c| text(row.get(c))).collect()));
        let width: Vec<usize> =
            (0..columns.len()).map(|i| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0)).collect();
        let mut out = String::new();
        for (n, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(&width) {
                let _ = write!(out, "| {cell:<width$} ");
            }
            out.push_str("|\n");
            if n == 0 {
                for width in &width {
                    let _ = write!(out, "|{}", "-".repeat(width + 2));
                }
                out.push_str("|\n");
            }
        }
        out
    }
}

/// Two digits after the point are enough for a table.
pub fn round(x: f64) -> Value {
    let digits = match x.abs() {
        a if a >= 1000.0 => 1.0,
        a if a >= 10.0 => 10.0,
        _ => 1000.0,
    };
    let rounded = (x * digits).round() / digits;
    if rounded.fract() == 0.0 && rounded.abs() < 1e15 { Value::from(rounded as i64) } else { Value::from(rounded) }
}

/// Runs `work` for all items, `jobs` at a time; results come in the items' order.
pub fn each<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    name: impl Fn(&T) -> String + Sync,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((item, result)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    items.get(i).zip(results.get(i))
                } {
                    let start = Instant::now();
                    let value = work(item);
                    let time = start.elapsed().as_secs_f64();
                    eprintln!("  {:<60} {time:>7.1} s, at most {} MiB so far", name(item), peak_memory());
                    if let Ok(mut place) = result.lock() {
                        *place = Some(value);
                    }
                }
            });
        }
    });
    results.into_iter().filter_map(|r| r.into_inner().ok().flatten()).collect()
}

/// Most memory that this process had, in MiB; 0 if the system does not say.
pub fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
