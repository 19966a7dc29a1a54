// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures: one row each in the table, one object each in the JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Write;

/// What a figure must reach.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Reported only.
    None,
    /// At least this much.
    AtLeast(f64),
    /// At most this much.
    AtMost(f64),
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which figure; docs/develop/measure.md says what each is.
    pub id: String,
    /// Under which circumstances.
    pub params: Map<String, Value>,
    /// What was measured.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What physics or the protocol allows, in the same unit; null where there is no such thing.
    pub limit: Option<f64>,
    /// What must be reached; null where the figure is only reported.
    pub bar: Option<f64>,
    /// Whether it is; true where nothing must be.
    pub pass: bool,
    /// Whether it is known to fall short.
    #[serde(skip)]
    pub known: bool,
}

impl Row {
    /// A figure measured under `params`.
    pub fn new(id: &str, params: &[(&str, Value)], value: f64, unit: &str, limit: Option<f64>, bar: Bar) -> Self {
        let params = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (bar, pass) = match bar {
            Bar::None => (None, true),
            Bar::AtLeast(least) => (Some(least), value >= least),
            Bar::AtMost(most) => (Some(most), value <= most),
        };
        Self { id: id.to_owned(), params, value, unit: unit.to_owned(), limit, bar, pass, known: false }
    }

    /// Part of the bar that is reached: more than 1 is better than asked for. All of one that is met exactly, even of 0.
    pub fn reached(&self) -> Option<f64> {
        // who is above the bar and passes, or below it and does not, has to be at least that
        let up = |bar| (self.value >= bar) == self.pass;
        self.bar.map(|bar| {
            if bar == self.value {
                1.0
            } else if up(bar) {
                self.value / bar
            } else {
                bar / self.value
            }
        })
    }

    /// The same figure, known to fall short of its bar at present: that fails no run.
    pub fn known_short(mut self, known: bool) -> Self {
        self.known = known;
        self
    }

    /// Whether one takes the place of the other when both are there: measured at one width, or of one part of the card.
    pub fn same(&self, other: &Self) -> bool {
        let by = |r: &Self| [r.params.get("data_w").cloned(), r.params.get("module").cloned()];
        self.id == other.id && by(self) == by(other)
    }

    /// A parameter as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.params.get(name)?.as_f64()
    }

    /// A parameter as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.params.get(name)?.as_str()
    }

    fn circumstances(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let all: Vec<String> = self.params.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
        all.join(" ")
    }
}

/// A number with as many digits as say something.
fn short(value: f64) -> String {
    if value.abs() >= 1000.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// The table for the terminal.
pub fn table(rows: &[Row]) -> String {
    let wide = rows.iter().map(|r| r.circumstances().len()).max().unwrap_or(0).max(13);
    let mut text = String::new();
    writeln!(
        text,
        "{:<18} {:<wide$} {:>10} {:>10} {:>10} {:>8}  unit",
        "figure", "circumstances", "value", "limit", "bar", "of limit"
    )
    .ok();
    for r in rows {
        let optional = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), short);
        let share = r.limit.map_or_else(|| "-".to_owned(), |limit| format!("{:.2} %", 100.0 * r.value / limit));
        let mark = match (r.pass, r.known) {
            (true, _) => "",
            (false, true) => "  short of the bar",
            (false, false) => "  ✗",
        };
        writeln!(
            text,
            "{:<18} {:<wide$} {:>10} {:>10} {:>10} {:>8}  {}{mark}",
            r.id,
            r.circumstances(),
            short(r.value),
            optional(r.limit),
            optional(r.bar),
            share,
            r.unit
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_passes_when_it_reaches_its_bar_and_always_without_one() {
        let row = |value, bar| Row::new("x", &[("data_w", 64.into())], value, "B/cycle", Some(8.0), bar);
        assert!(row(7.92, Bar::AtLeast(7.92)).pass);
        assert!(!row(7.91, Bar::AtLeast(7.92)).pass);
        assert!(row(0.0, Bar::None).pass);
        assert!(row(32.0, Bar::AtMost(32.0)).pass);
        assert!(!row(33.0, Bar::AtMost(32.0)).pass);
        assert_eq!(row(4.0, Bar::AtLeast(2.0)).reached(), Some(2.0));
        assert_eq!(row(1.0, Bar::AtLeast(2.0)).reached(), Some(0.5));
        assert_eq!(row(1.0, Bar::AtMost(2.0)).reached(), Some(2.0));
        assert_eq!(row(4.0, Bar::AtMost(2.0)).reached(), Some(0.5));
        let json = serde_json::to_value([row(7.91, Bar::AtLeast(7.92))]).expect("plain data");
        assert_eq!(
            json,
            serde_json::json!([{ "id": "x", "params": { "data_w": 64 }, "value": 7.91, "unit": "B/cycle",
                "limit": 8.0, "bar": 7.92, "pass": false }])
        );
    }

    #[test]
    fn table_marks_what_falls_short() {
        let rows = [Row::new("x", &[("dir", "read".into())], 1.0, "B/cycle", Some(8.0), Bar::AtLeast(7.92))];
        let text = table(&rows);
        assert!(text.contains("dir=read") && text.contains("12.50 %") && text.contains('✗'), "{text}");
    }
}
