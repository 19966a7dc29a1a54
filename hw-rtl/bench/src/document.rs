// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages docs/results/bench.md and docs/results/policies.md: the texts of `page.md` and `policies.md`, in which each table
//! stands between two comments, `<!-- figures: NAME -->` and `<!-- end -->`, and is written from the rows.

use anyhow::{Context as _, Result, bail, ensure};
use std::fmt::Write as _;

use crate::rows::Row;

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end -->";

/// Figures of the table of the reliable connection.
const CONNECTION: &[&str] = &[
    "msg_rate_16qp",
    "msg_rate_1qp",
    "lat_tx",
    "lat_rx",
    "lat_read",
    "bw_1qp",
    "credit_overhead",
    "bw_mtu1024",
    "bw_unaligned",
    "bw_write_1qp",
    "rate_write_16qp",
    "bw_read_1qp",
    "rate_read_16qp",
    "bw_foreign_1qp",
    "rate_atomic",
    "key_lookup",
    "pin_on_demand",
    "write_on_demand",
    "read_on_demand",
    "loss_1pct",
    "loss_5pct",
    "loss_1pct_reorder_10pct",
    "loss_go_back_n",
    "write_loss_1pct",
    "read_loss_1pct",
];

/// The page with all its tables.
///
/// # Errors
/// When a figure is not among the rows at every width.
pub fn page(rows: &[Row]) -> Result<String> {
    update(include_str!("page.md"), rows)
}

/// The page on when the next credit list goes.
///
/// # Errors
/// When one of its figures is not among the rows.
pub fn policies(rows: &[Row]) -> Result<String> {
    update(include_str!("policies.md"), rows)
}

/// Writes all tables of a document anew.
///
/// # Errors
/// When a table has no such name, or a figure of it is not among the rows at every width.
fn update(text: &str, rows: &[Row]) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (name, behind) = behind.split_once(" -->").context("a table's comment does not end")?;
        let (_, behind) = behind.split_once(END).with_context(|| format!("table {name} does not end"))?;
        let table = table(name, rows).with_context(|| format!("table {name}"))?;
        write!(out, "{before}{BEGIN}{name} -->\n{table}{END}")?;
        rest = behind;
    }
    Ok(out + rest)
}

/// Which figures each table has, in which lines, columns and words.
fn table(name: &str, rows: &[Row]) -> Result<String> {
    let of = |ids: &'static [&str]| rows.iter().filter(|r| ids.contains(&r.id.as_str())).collect::<Vec<_>>();
    let whole = |heads, bars| Shape { heads, bars, gaps: false };
    match name {
        "dma" => {
            let line = |r: &Row| vec![figure(r), dma(r)];
            whole(&["figure", ""], true).table(&of(&["dma_bw", "dma_bw_unaligned"]), line, width, value)
        }
        "dma_read_latency" => {
            let line = |r: &Row| vec![format!("{} cycles", number(r, "read_latency"))];
            let cell = |r: &Row| format!("{} of {}", short(r.value), r.limit.map_or_else(String::new, short));
            whole(&["round trip"], false).table(&of(&["dma_read_latency"]), line, width, cell)
        }
        "mac" => {
            let line = |r: &Row| vec![figure(r), mac(r), r.unit.clone()];
            let cell = |r: &Row| mark(r, short(r.value));
            whole(&["figure", "", "unit"], true).table(
                &of(&["mac_bw", "mac_tx_latency", "sim_speed"]),
                line,
                width,
                cell,
            )
        }
        "connection" => {
            let line = |r: &Row| vec![figure(r), connection(r), unit(r)];
            whole(&["figure", "", "unit"], true).table(&of(CONNECTION), line, width, value)
        }
        "pins" => {
            let line = |r: &Row| vec![figure(r), connection(r)];
            let cell = |r: &Row| mark(r, format!("{} of {}", short(r.value), r.bar.unwrap_or_default().floor()));
            whole(&["figure", ""], false).table(&of(&["pin_peak_sent", "pin_peak_received"]), line, width, cell)
        }
        "rate_round_trip" => {
            let line = |r: &Row| vec![width(r), format!("{} credits", number(r, "list"))];
            let column = |r: &Row| format!("{} cycles", number(r, "round_trip"));
            whole(&["", "lists of"], false).table(&of(&["rate_round_trip"]), line, column, value)
        }
        "waterfall" => {
            let mut those = of(&["waterfall"]);
            let widest = those.iter().filter_map(|r| r.number("data_w")).fold(0.0, f64::max);
            those.retain(|r| r.number("data_w") == Some(widest));
            // The kinds of messages have some stages in common: in the order of the one that has most.
            let stages: Vec<&str> = those.iter().filter_map(|r| r.text("stage")).collect();
            let place = |r: &&Row| stages.iter().position(|s| Some(*s) == r.text("stage"));
            those.sort_by_key(|r| (r.text("stage") == Some("all"), inline(r), place(r)));
            let line = |r: &Row| vec![r.text("stage").unwrap_or_default().to_owned()];
            let column = |r: &Row| format!("{} B{}", number(r, "bytes"), if inline(r) { ", doorbell" } else { "" });
            Shape { heads: &["stage"], bars: false, gaps: true }.table(&those, line, column, |r| short(r.value))
        }
        "policy_sum" => {
            let line = |r: &Row| vec![text(r, "policy")];
            let column = |r: &Row| format!("{}, {}", text(r, "what"), r.unit);
            whole(&["policy"], false).table(&of(&["policy_sum"]), line, column, beside)
        }
        "policy_senders" => {
            let line = |r: &Row| vec![text(r, "sender"), text(r, "receives"), text(r, "policy")];
            let column = |r: &Row| format!("{}, {}, {} cycles", text(r, "what"), r.unit, number(r, "round_trip"));
            let ids = &["policy_steady", "policy_bursty", "policy_changing"];
            whole(&["sender", "receives", "policy"], false).table(&of(ids), line, column, beside)
        }
        "policy_bw" => {
            let line = |r: &Row| vec![text(r, "policy")];
            let column = |r: &Row| format!("{}, {}", figure(r), r.unit);
            let ids = &["policy_bw", "policy_bw_1qp", "policy_msg_rate"];
            whole(&["policy"], false).table(&of(ids), line, column, |r| short(r.value))
        }
        "synthesis" => {
            let those: Vec<&Row> = rows.iter().filter(|r| r.id.starts_with("synth_")).collect();
            if those.is_empty() {
                return Ok("No synthesis had run.\n".to_owned());
            }
            let line = |r: &Row| vec![format!("`{}`", text(r, "module")), text(r, "qps"), text(r, "fpga")];
            let heads = &["module", "QPs", "FPGA"];
            Shape { heads, bars: false, gaps: true }.table(
                &those,
                line,
                |r| format!("{}, {}", r.id, r.unit),
                |r| short(r.value),
            )
        }
        _ => bail!("there is no such table"),
    }
}

/// What is moved, in which direction.
fn dma(r: &Row) -> String {
    let yes = |name: &str| r.params.get(name) == Some(&true.into());
    let mut text = format!("{}s", r.text("direction").unwrap_or_default());
    if yes("both") {
        text += ", the other direction at once";
    }
    if yes("translated") {
        text += ", translated";
    }
    match number(r, "extra_latency").as_str() {
        "0" => text,
        extra => text + &format!(", {extra} cycles more latency"),
    }
}

fn figure(r: &Row) -> String {
    format!("`{}`", r.id)
}

fn inline(r: &Row) -> bool {
    r.params.get("inline") == Some(&true.into())
}

fn mac(r: &Row) -> String {
    let payload = r.number("payload").map(|p| format!("payload {p} B"));
    let parts: Vec<String> = r.text("direction").map(str::to_owned).into_iter().chain(payload).collect();
    parts.join(", ")
}

fn connection(r: &Row) -> String {
    let pinned = r.params.get("pinned").map(|p| if *p == true { "pinned" } else { "pages on demand" }.to_owned());
    let service = r.number("service").map(|s| format!("page service {s} cycles"));
    pinned.or(service).unwrap_or_default()
}

/// A parameter that is text.
fn text(r: &Row, name: &str) -> String {
    r.text(name).unwrap_or_default().to_owned()
}

/// What the card has come to, and in brackets the protocol's machines.
fn beside(r: &Row) -> String {
    format!("{} ({})", short(r.value), short(r.number("model").unwrap_or_default()))
}

/// A parameter that is a number, as it stands in the row.
fn number(r: &Row, name: &str) -> String {
    r.number(name).map(|n| n.to_string()).unwrap_or_default()
}

fn width(r: &Row) -> String {
    format!("{} bits", number(r, "data_w"))
}

/// Rates are shown as a part of what is possible.
fn share(r: &Row) -> Option<f64> {
    r.limit.filter(|_| r.unit == "B/cycle").map(|limit| 100.0 / limit)
}

fn unit(r: &Row) -> String {
    if share(r).is_some() { "% of the wire".to_owned() } else { r.unit.clone() }
}

/// The bar of a line's figures, in the words of [`value`], and at which widths where not all have one.
fn bars(rows: &[&Row]) -> String {
    let text = |r: &Row| {
        // floating point leaves less than a thousandth
        let rounded = (r.bar? * share(r).unwrap_or(1.0) * 1e3).round() / 1e3;
        Some(rounded.to_string())
    };
    let all: Vec<(&Row, String)> = rows.iter().filter_map(|r| Some((*r, text(r)?))).collect();
    match all.first() {
        None => "reported".to_owned(),
        Some((_, first)) if all.len() == rows.len() && all.iter().all(|a| a.1 == *first) => first.clone(),
        _ => all.iter().map(|(r, text)| format!("{text} at {}", width(r))).collect::<Vec<_>>().join(", "),
    }
}

fn value(r: &Row) -> String {
    let text = short(r.value * share(r).unwrap_or(1.0));
    let ends = r.number("lowest").zip(r.number("highest")).filter(|(low, high)| low < high);
    let text = ends.map_or(text.clone(), |(low, high)| format!("{text} ({low} to {high})"));
    mark(r, text)
}

/// What falls short stands out.
fn mark(r: &Row, text: String) -> String {
    if r.pass { text } else { format!("**{text}**") }
}

/// Two digits behind the point where they say something.
fn short(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// What a table looks like.
struct Shape {
    /// Above what lines begin with.
    heads: &'static [&'static str],
    /// It has a column of bars behind that.
    bars: bool,
    /// Not every line has a figure in each column.
    gaps: bool,
}

impl Shape {
    /// Lines and columns in the order of their first rows.
    fn table(
        &self,
        rows: &[&Row],
        line: impl Fn(&Row) -> Vec<String>,
        column: impl Fn(&Row) -> String,
        cell: impl Fn(&Row) -> String,
    ) -> Result<String> {
        ensure!(!rows.is_empty(), "nothing of it was measured");
        let (mut columns, mut lines): (Vec<String>, Vec<Vec<String>>) = Default::default();
        for r in rows {
            let (x, y) = (column(r), line(r));
            if !columns.contains(&x) {
                columns.push(x);
            }
            if !lines.contains(&y) {
                lines.push(y);
            }
        }
        let mut heads: Vec<&str> = self.heads.to_vec();
        heads.extend(self.bars.then_some("bar"));
        heads.extend(columns.iter().map(String::as_str));
        let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
        for begin in lines {
            let those: Vec<&Row> = rows.iter().copied().filter(|r| line(r) == begin).collect();
            let mut cells = begin.clone();
            if self.bars {
                cells.push(bars(&those));
            }
            for x in &columns {
                let mut found = those.iter().filter(|r| column(r) == *x);
                let first = found.next();
                ensure!(found.next().is_none(), "{}, {x}: more than one figure", begin.join(", "));
                ensure!(self.gaps || first.is_some(), "{}, {x}: not measured", begin.join(", "));
                cells.push(first.map_or_else(String::new, |r| cell(r)));
            }
            writeln!(text, "| {} |", cells.join(" | "))?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Bar;

    fn row(id: &str, data_w: usize, value: f64, bar: Bar) -> Row {
        Row::new(id, &[("data_w", data_w.into())], value, "cycles", None, bar)
    }

    #[test]
    fn table_is_written_anew_and_the_text_around_it_stays() {
        let rows = [
            row("msg_rate_1qp", 64, 32.638, Bar::None),
            row("lat_rx", 64, 32.0, Bar::AtMost(32.0)),
            row("msg_rate_1qp", 512, 15.8, Bar::AtMost(16.0)),
            row("lat_rx", 512, 33.0, Bar::AtMost(32.0)),
        ];
        let text = update("a\n\n<!-- figures: connection -->\nold\n<!-- end -->\nb\n", &rows).expect("whole");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "a",
                "",
                "<!-- figures: connection -->",
                "| figure |  | unit | bar | 64 bits | 512 bits |",
                "|---|---|---|---|---|---|",
                "| `msg_rate_1qp` |  | cycles | 16 at 512 bits | 32.64 | 15.80 |",
                "| `lat_rx` |  | cycles | 32 | 32 | **33** |",
                "<!-- end -->",
                "b"
            ]
        );
        assert_eq!(update(&text, &rows).expect("the same"), text);
    }

    #[test]
    fn page_has_each_table_by_a_name_that_there_is() {
        let pages = [include_str!("page.md"), include_str!("policies.md")];
        let names: Vec<&str> =
            pages.iter().flat_map(|p| p.lines()).filter_map(|line| line.strip_prefix(BEGIN)).collect();
        assert_eq!(names.len(), 11);
        for name in names {
            let error = table(name.trim_end_matches(" -->"), &[]).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(!error.contains("no such table"), "{name}");
        }
    }

    #[test]
    fn figure_that_was_not_measured_at_a_width_is_an_error() {
        let rows = [row("lat_rx", 64, 32.0, Bar::None), row("lat_tx", 512, 32.0, Bar::None)];
        assert!(update("<!-- figures: connection --><!-- end -->", &rows).is_err());
        assert!(update("<!-- figures: mac --><!-- end -->", &rows).is_err());
    }

    #[test]
    fn rate_is_shown_as_its_part_of_the_limit() {
        let params = [("data_w", 64.into()), ("both", true.into())];
        let rows = [Row::new("bw_1qp", &params, 7.775, "B/cycle", Some(7.835), Bar::AtLeast(0.98 * 7.835))];
        let text = table("connection", &rows).expect("whole");
        assert!(text.ends_with("| `bw_1qp` |  | % of the wire | 98 | 99.23 |\n"), "{text}");
    }
}
