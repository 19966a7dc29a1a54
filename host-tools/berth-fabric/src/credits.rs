// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Question 1: credit lists against what others do, on the same workloads.

use crate::answer::{Answer, Row, Scale, each, round};
use crate::berth::{self, Berth};
use crate::homa::Homa;
use crate::load::Kind;
use crate::net::Loss;
use crate::plot;
use crate::queued::{Queued, count_credits, fixed_credits, shared_queue};
use crate::sim::{self, End};
use crate::time::{MS, NS, US};
use anyhow::Result;
use serde_json::json;

/// Ways of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Credit lists; all receives pinned and announced.
    Berth,
    /// Credit lists; pins of a host limited to a quarter of what its receives take, and to 2 MiB.
    BerthBudget,
    /// InfiniBand's count credits and RNR.
    Count,
    /// Fixed-size credits as SMB Direct has them.
    Fixed,
    /// Receiver grants as Homa has them.
    Grants,
    /// Eager with a shared receive queue.
    Shared,
}

impl Way {
    /// All.
    pub const ALL: [Self; 6] = [Self::Berth, Self::BerthBudget, Self::Count, Self::Fixed, Self::Grants, Self::Shared];

    /// Name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Berth => "Berth",
            Self::BerthBudget => "Berth, small budget",
            Self::Count => "count + RNR",
            Self::Fixed => "fixed credits",
            Self::Grants => "grants",
            Self::Shared => "eager + SRQ",
        }
    }
}

struct Run {
    kind: Kind,
    loss: Loss,
    way: Way,
}

/// Bytes of receive memory that an end of a connection has, in every scheme with memory of its own for each.
const PER_END: u64 = 256 << 10;

fn simulate(run: &Run, scale: &Scale) -> End {
    let length = match scale.nodes {
        0..=16 | 1025.. => 200 * US,
        _ => 2 * MS,
    };
    let setup = run.kind.setup(scale.nodes, scale.connections, run.loss, length, scale.seed);
    match run.way {
        Way::Count => sim::run(setup, &mut Queued::new(count_credits())),
        Way::Fixed => sim::run(setup, &mut Queued::new(fixed_credits())),
        Way::Shared => sim::run(setup, &mut Queued::new(shared_queue())),
        Way::Grants => sim::run(setup, &mut Homa::new(PER_END)),
        Way::Berth => sim::run(setup, &mut Berth::new(berth::Settings::default())),
        Way::BerthBudget => {
            let budget = Some((PER_END / 4, 2 << 20));
            let settings = berth::Settings { budget, ..berth::Settings::default() };
            sim::run(setup, &mut Berth::new(settings))
        }
    }
}

fn row(run: &Run, end: End) -> Row {
    let stats = &end.stats;
    let group = &stats.groups[0];
    let (_, all_bytes, _) = stats.total();
    let megabytes = (all_bytes as f64 / 1e6).max(1e-9);
    let time = group.last.saturating_sub(stats.began).max(1) as f64;
    let us = |q: f64| round(group.times.value_at_quantile(q) as f64 * NS as f64 / US as f64);
    Row(vec![
        ("workload", run.kind.name().into()),
        ("full buffers", (if run.loss == Loss::Pause { "pause" } else { "drop" }).into()),
        ("scheme", run.way.name().into()),
        ("messages", group.messages.into()),
        ("goodput Gbit/s", round(group.bytes as f64 * 8000.0 / time)),
        ("p50 µs", us(0.5)),
        ("p99 µs", us(0.99)),
        ("p99.9 µs", us(0.999)),
        ("control B/MB", round((stats.acks.bytes + stats.flow.bytes) as f64 / megabytes)),
        ("flow control B/MB", round(stats.flow.bytes as f64 / megabytes)),
        ("not ready", stats.not_ready.into()),
        ("sent again", stats.again.into()),
        ("lost", end.net.lost.into()),
        ("pause ms", round(end.net.paused as f64 / MS as f64)),
        ("switch peak KiB", (end.net.peak >> 10).into()),
        ("committed MiB", round(stats.committed_mean() as f64 / 1_048_576.0)),
        ("committed peak MiB", round(stats.committed_peak() as f64 / 1_048_576.0)),
        ("copied MB", round(stats.copied as f64 / 1e6)),
        ("unfinished", end.unfinished.into()),
        ("events", end.events.into()),
    ])
}

/// Runs all workloads with all schemes.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn answer(scale: &Scale) -> Result<Answer> {
    let few = Kind::Incast(64.min(scale.nodes.max(2) - 1));
    // The large run asks for time and memory as well: fewer workloads, shorter, on one kind of fabric.
    let kinds = match scale.nodes {
        0..=64 => vec![Kind::Mixed, few, Kind::SlowReceiver, Kind::RequestResponse],
        65..=1024 => vec![Kind::Mixed, few, Kind::Incast(1024), Kind::SlowReceiver, Kind::RequestResponse],
        _ => vec![Kind::Mixed, Kind::Incast(1024)],
    };
    let losses: &[Loss] = if scale.nodes > 1024 { &[Loss::Pause] } else { &[Loss::Pause, Loss::Drop] };
    let mut runs = Vec::new();
    for &kind in &kinds {
        for &loss in losses {
            runs.extend(Way::ALL.map(|way| Run { kind, loss, way }));
        }
    }
    let name = |r: &Run| format!("{}, {:?}, {}", r.kind.name(), r.loss, r.way.name());
    let rows = each(scale.jobs, &runs, name, |r| row(r, simulate(r, scale)));
    let mut plots = Vec::new();
    for (file, title, column, axis) in [
        ("credits-goodput", "Goodput", "goodput Gbit/s", plot::log("Gbit/s, all hosts")),
        ("credits-p99", "Completion time, 99th percentile", "p99 µs", plot::log("µs")),
        ("credits-p999", "Completion time, 99.9th percentile", "p99.9 µs", plot::log("µs")),
        ("credits-control", "Control bytes per megabyte of data", "control B/MB", plot::log("bytes per MB")),
        ("credits-not-ready", "Times that a receiver was not ready", "not ready", plot::log("events")),
        ("credits-committed", "Receive memory committed, mean over time", "committed MiB", plot::log("MiB, all hosts")),
    ] {
        for loss in losses.iter().map(|l| if *l == Loss::Pause { "pause" } else { "drop" }) {
            let groups: Vec<String> = kinds.iter().map(|k| k.name()).collect();
            let series: Vec<_> = Way::ALL
                .iter()
                .map(|way| {
                    let value = |group: &String| {
                        let found = rows.iter().find(|r| {
                            r.get("workload") == group.as_str()
                                && r.get("full buffers") == loss
                                && r.get("scheme") == way.name()
                        });
                        found.map_or(f64::NAN, |r| r.number(column))
                    };
                    (way.name().to_owned(), groups.iter().map(value).collect())
                })
                .collect();
            let what = if loss == "pause" { "full switches pause senders" } else { "full switches drop" };
            let svg = plot::bars(&format!("{title} ({what})"), axis, &groups, &series)?;
            plots.push((format!("{file}-{loss}"), svg));
        }
    }
    Ok(Answer {
        name: "credits",
        question: "Credit lists against count credits + RNR, fixed-size credits, receiver grants and eager sends \
                   with a shared receive queue",
        setup: json!({
            "link Gbit/s": 100, "MTU": 4096, "receive memory of an end, KiB": PER_END >> 10,
        }),
        rows,
        plots,
    })
}
