// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Question 1: credit lists against other schemes, on the same workloads.

use crate::answer::{Answer, Row, Scale, each, round};
use crate::berth::{self, Berth};
use crate::homa::Homa;
use crate::hosts::{self, End};
use crate::load::Kind;
use crate::net::Loss;
use crate::plot;
use crate::queued::{self, Queued, count_credits, fixed_credits, shared_queue};
use crate::time::{MS, NS, US};
use anyhow::Result;
use serde_json::json;

/// Ways of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Credit lists.
    Berth,
    /// InfiniBand's count credits and RNR.
    Count,
    /// Fixed-size credits as SMB Direct has them.
    Fixed,
    /// Receiver grants as Homa has them.
    Grants,
    /// Eager with a shared receive queue.
    Shared,
}

/// A way of flow control, and the memory that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The way.
    pub scheme: Scheme,
    /// Receive memory of a host is limited to a quarter of what its connections would have, and to [`MOST`].
    pub small: bool,
}

impl Way {
    /// All, each without and with the small budget.
    pub const ALL: [Self; 10] = {
        const fn way(scheme: Scheme, small: bool) -> Way {
            Way { scheme, small }
        }
        use Scheme::{Berth, Count, Fixed, Grants, Shared};
        [
            way(Berth, false),
            way(Berth, true),
            way(Count, false),
            way(Count, true),
            way(Fixed, false),
            way(Fixed, true),
            way(Grants, false),
            way(Grants, true),
            way(Shared, false),
            way(Shared, true),
        ]
    };

    /// Name in tables and plots.
    pub const fn name(self) -> &'static str {
        match (self.scheme, self.small) {
            (Scheme::Berth, false) => "Berth",
            (Scheme::Berth, true) => "Berth, small budget",
            (Scheme::Count, false) => "count + RNR",
            (Scheme::Count, true) => "count + RNR, small budget",
            (Scheme::Fixed, false) => "fixed credits",
            (Scheme::Fixed, true) => "fixed credits, small budget",
            (Scheme::Grants, false) => "grants",
            (Scheme::Grants, true) => "grants, small budget",
            (Scheme::Shared, false) => "eager + SRQ",
            (Scheme::Shared, true) => "eager + SRQ, small budget",
        }
    }
}

struct Run {
    hosts: u32,
    connections: u32,
    kind: Kind,
    loss: Loss,
    way: Way,
}

/// Bytes of receive memory that an end of a connection has, in every scheme with memory of its own for each.
const PER_END: u64 = 256 << 10;
/// Hosts of smaller fabrics that the large run compares with.
const SIZES: [u32; 4] = [2, 16, 128, 1024];
/// Bytes that a host has at most with the small budget.
pub const MOST: u64 = 2 << 20;

fn simulate(run: &Run, scale: &Scale) -> End {
    let length = match scale.nodes {
        0..=16 | 1025.. => 200 * US,
        _ => 2 * MS,
    };
    let setup = run.kind.setup(run.hosts, run.connections, run.loss, length, scale.seed);
    let budget = run.way.small.then_some((PER_END / 4, MOST));
    let queued = |settings| Queued::new(queued::Settings { budget, ..settings });
    match run.way.scheme {
        Scheme::Count => hosts::run(setup, &mut queued(count_credits())),
        Scheme::Fixed => hosts::run(setup, &mut queued(fixed_credits())),
        Scheme::Shared => hosts::run(setup, &mut queued(shared_queue())),
        Scheme::Grants => {
            let (each, most) = budget.unwrap_or((PER_END, u64::MAX));
            hosts::run(setup, &mut Homa::new(each, most))
        }
        Scheme::Berth => hosts::run(setup, &mut Berth::new(berth::Settings { budget, ..berth::Settings::default() })),
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
        ("hosts", run.hosts.into()),
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
    let kinds = match scale.nodes {
        0..=64 => vec![Kind::Mixed, few, Kind::SlowReceiver, Kind::RequestResponse],
        _ => vec![Kind::Mixed, few, Kind::Incast(1024), Kind::SlowReceiver, Kind::RequestResponse],
    };
    // The large run, which asks for time and memory as well, has one kind of fabric.
    let losses: &[Loss] = if scale.nodes > 1024 { &[Loss::Pause] } else { &[Loss::Pause, Loss::Drop] };
    let Scale { nodes, connections, .. } = *scale;
    let mut runs = Vec::new();
    for &kind in &kinds {
        let hosts = if let Kind::Incast(n) = kind { n + 1 } else { nodes };
        for &loss in losses {
            runs.extend(Way::ALL.map(|way| Run { hosts, connections, kind, loss, way }));
        }
    }
    let whole = runs.len();
    if nodes > 1024 {
        // From two hosts on, with as many connections for each.
        for hosts in SIZES.into_iter().filter(|hosts| *hosts < nodes) {
            let connections = (u64::from(connections) * u64::from(hosts) / u64::from(nodes)) as u32;
            runs.extend(Way::ALL.map(|way| Run { hosts, connections, kind: Kind::Mixed, loss: Loss::Pause, way }));
        }
    }
    let name = |r: &Run| format!("{}, {} hosts, {:?}, {}", r.kind.name(), r.hosts, r.loss, r.way.name());
    let rows = each(scale.jobs, &runs, name, |r| row(r, simulate(r, scale)));
    let (at_scale, smaller) = rows.split_at(whole);
    let mut plots = Vec::new();
    for (file, title, column, axis) in [
        ("credits-goodput", "Goodput", "goodput Gbit/s", plot::log("Gbit/s, all hosts")),
        ("credits-p50", "Completion time, median", "p50 µs", plot::log("µs")),
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
                        let found = at_scale.iter().find(|r| {
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
            let svg = plot::bars(&format!("{title} ({what})"), axis, &groups, &series, true)?;
            plots.push((format!("{file}-{loss}"), svg));
        }
    }
    if !smaller.is_empty() {
        let mixed = |r: &&Row| r.get("workload") == Kind::Mixed.name().as_str() && r.get("full buffers") == "pause";
        for (file, title, column, axis) in [
            ("credits-hosts-p99", "Mixed sizes: completion time, 99th percentile", "p99 µs", plot::log("µs")),
            (
                "credits-hosts-control",
                "Mixed sizes: control bytes per megabyte",
                "control B/MB",
                plot::log("bytes per MB"),
            ),
        ] {
            let series: Vec<_> = Way::ALL
                .iter()
                .map(|way| {
                    let rows = rows.iter().filter(mixed).filter(|r| r.get("scheme") == way.name());
                    let mut points: Vec<_> = rows.map(|r| (r.number("hosts"), r.number(column))).collect();
                    points.sort_by(|a, b| a.0.total_cmp(&b.0));
                    (way.name().to_owned(), points)
                })
                .collect();
            plots.push((file.to_owned(), plot::lines(title, plot::log("hosts"), axis, &series)?));
        }
    }
    Ok(Answer {
        name: "credits",
        question: "Credit lists against count credits + RNR, fixed-size credits, receiver grants and eager sends \
                   with a shared receive queue",
        setup: json!({
            "link Gbit/s": 100, "MTU": 4096, "receive memory of an end, KiB": PER_END >> 10,
            "small budget of a host, KiB": { "for each end": PER_END >> 12, "at most": MOST >> 10 },
        }),
        rows,
        plots,
    })
}
