// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Question 2: trigger policies against each other.

use crate::answer::{Answer, Row, Scale, each, round};
use crate::berth::{Berth, Settings};
use crate::hosts::{self, Setup};
use crate::load::{Pace, Stream};
use crate::net::{Loss, Spec};
use crate::plot;
use crate::time::{MS, NS, SECOND, Time, US};
use anyhow::Result;
use berth_protocol::credit::policy::{self, Kind};
use serde_json::{Value, json};

/// Policies: those of the protocol, and buffers by their index.
const POLICIES: [(&str, Kind); 12] = [
    ("first", Kind::First),
    ("quarter", Kind::Quarters(1)),
    ("middle", Kind::Quarters(2)),
    ("last", Kind::Last),
    ("adaptive", Kind::Adaptive),
    ("timed", Kind::Timed),
    ("predictive", Kind::Predictive),
    ("in-band", Kind::InBand),
    ("second", Kind::Between(1)),
    ("fourth", Kind::Between(3)),
    ("eighth", Kind::Between(7)),
    ("sixteenth", Kind::Between(15)),
];
/// Those of [`POLICIES`] that measure nothing.
const FIXED: [&str; 8] = ["first", "quarter", "middle", "last", "second", "fourth", "eighth", "sixteenth"];

/// Receives that the receiver keeps posted: name, number, bytes of each, and how many are posted with one doorbell.
const POSTED: [(&str, usize, u32, usize); 4] = [
    ("16 × 16 KiB, one by one", 16, 16 << 10, 1),
    ("32 × 4 KiB, one by one", 32, 4 << 10, 1),
    ("32 × 16 KiB, one by one", 32, 16 << 10, 1),
    ("32 × 16 KiB, by eights", 32, 16 << 10, 8),
];

/// Time that a bit takes through one of the two links, and the round trip that follows from it.
const DELAYS: [(&str, Time); 2] = [("rack", 500 * NS), ("building", 5 * US)];

/// Runs of one policy with one sender, from as many seeds.
struct Run {
    pace: Pace,
    posted: usize,
    delay: usize,
    policy: usize,
    seed: u64,
}

/// What one run measures: goodput in Gbit/s, lists and bytes of lists per MB, idle time in percent, completion times in
/// µs, lists that were refused, messages that were not received.
type Measured = [f64; MEASURES.len()];

const MEASURES: [&str; 8] = [
    "goodput Gbit/s",
    "lists per MB",
    "list bytes per MB",
    "sender idle %",
    "p50 µs",
    "p99 µs",
    "refused lists",
    "unfinished",
];
const LISTS: usize = 1;
const IDLE: usize = 3;

fn measure(run: &Run, length: Time) -> Measured {
    let (_, count, bytes, batch) = POSTED[run.posted];
    let spec = Spec { delay: DELAYS[run.delay].1, ..Spec::of(2, Loss::Pause) };
    let setup = Setup {
        spec,
        conns: vec![[0, 1]],
        apps: Vec::new(),
        load: Box::new(Stream::new(run.pace, &spec, length)),
        seed: run.seed,
        limit: SECOND,
    };
    let policy = policy::Settings::of(POLICIES[run.policy].1);
    let mut berth = Berth::new(Settings { receives: vec![bytes; count], batch, policy, ..Settings::default() });
    let end = hosts::run(setup, &mut berth);
    let stats = &end.stats;
    let group = &stats.groups[0];
    let time = group.last.saturating_sub(stats.began).max(1) as f64;
    let megabytes = (group.bytes as f64 / 1e6).max(1e-9);
    let us = |q: f64| group.times.value_at_quantile(q) as f64 * NS as f64 / US as f64;
    [
        group.bytes as f64 * 8000.0 / time,
        stats.flow.packets as f64 / megabytes,
        stats.flow.bytes as f64 / megabytes,
        100.0 * stats.idle as f64 / time,
        us(0.5),
        us(0.99),
        berth.refused as f64,
        end.unfinished as f64,
    ]
}

/// Mean and standard deviation of a sample.
fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / n;
    let squares: f64 = values.map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// One row for runs that differ in the seed only.
fn row(run: &Run, measured: &[Measured]) -> Row {
    let of = |i: usize| spread(measured.iter().map(move |m| m[i]));
    let mut columns = vec![
        ("sender", run.pace.name().into()),
        ("distance", DELAYS[run.delay].0.into()),
        ("receives", POSTED[run.posted].0.into()),
        ("policy", POLICIES[run.policy].0.into()),
    ];
    for (i, name) in MEASURES.into_iter().enumerate() {
        columns.push((name, round(of(i).0)));
        match i {
            LISTS => columns.push(("lists per MB, deviation", round(of(i).1))),
            IDLE => columns.push(("sender idle %, deviation", round(of(i).1))),
            _ => (),
        }
    }
    Row(columns)
}

/// Mean over the rows that `choose` chooses.
fn mean(rows: &[Row], column: &str, choose: impl Fn(&Row) -> bool) -> f64 {
    let values: Vec<f64> = rows.iter().filter(|r| choose(r)).map(|r| r.number(column)).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The cost of a policy with one seed: means over senders, distances and receives.
struct Cost {
    idle: f64,
    idle_in_rack: f64,
    lists: f64,
}

impl Cost {
    fn of(policy: usize, seed: u64, runs: &[Run], measured: &[Measured]) -> Self {
        let chosen = || runs.iter().zip(measured).filter(|(r, _)| (r.policy, r.seed) == (policy, seed));
        Self {
            idle: spread(chosen().map(|(_, m)| m[IDLE])).0,
            idle_in_rack: spread(chosen().filter(|(r, _)| r.delay == 0).map(|(_, m)| m[IDLE])).0,
            lists: spread(chosen().map(|(_, m)| m[LISTS])).0,
        }
    }

    /// Percent of the receiving card's processor that the lists take at the link's full rate (12 500 MB/s, 1 µs each).
    fn processor(&self) -> f64 {
        self.lists * 12_500.0 * 1e-6 * 100.0
    }

    fn sum(&self) -> f64 {
        self.idle + self.processor()
    }
}

/// The costs of a policy over the seeds, as a table's row; and the mean of their sum.
fn score(policy: &str, costs: &[Cost]) -> (Value, f64) {
    let of = |part: fn(&Cost) -> f64| spread(costs.iter().map(part));
    let ((idle, idle_deviation), (sum, sum_deviation)) = (of(|c| c.idle), of(Cost::sum));
    let row = json!({ "policy": policy, "sender idle %": round(idle), "idle, deviation": round(idle_deviation),
        "idle in a rack %": round(of(|c| c.idle_in_rack).0), "lists per MB": round(of(|c| c.lists).0),
        "processor for lists %": round(of(Cost::processor).0), "sum": round(sum),
        "sum, deviation": round(sum_deviation) });
    (row, sum)
}

/// Runs all policies with all senders, from several seeds.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn answer(scale: &Scale) -> Result<Answer> {
    // A small scale is for tests, the middle one for CI.
    let (delays, posts, seeds, length) = match scale.nodes {
        0..=16 => (1, 1, 2, 200 * US),
        17..=64 => (DELAYS.len(), POSTED.len(), 5, MS),
        _ => (DELAYS.len(), POSTED.len(), 5, 4 * MS),
    };
    let mut runs = Vec::new();
    for delay in 0..delays {
        for posted in 0..posts {
            for pace in Pace::ALL {
                for policy in 0..POLICIES.len() {
                    runs.extend((scale.seed..scale.seed + seeds).map(|seed| Run { pace, posted, delay, policy, seed }));
                }
            }
        }
    }
    let name = |r: &Run| {
        let (place, posted, policy) = (DELAYS[r.delay].0, POSTED[r.posted].0, POLICIES[r.policy].0);
        format!("{}, {place}, {posted}, {policy}, seed {}", r.pace.name(), r.seed)
    };
    let measured = each(scale.jobs, &runs, name, |r| measure(r, length));
    let groups = runs.chunks(seeds as usize).zip(measured.chunks(seeds as usize));
    let rows: Vec<Row> = groups.map(|(runs, measured)| row(&runs[0], measured)).collect();
    let scores: Vec<(Value, f64)> = (0..POLICIES.len())
        .map(|policy| {
            let costs = (scale.seed..scale.seed + seeds).map(|seed| Cost::of(policy, seed, &runs, &measured));
            score(POLICIES[policy].0, &costs.collect::<Vec<_>>())
        })
        .collect();
    let best = |choose: &dyn Fn(&str) -> bool| {
        let chosen = POLICIES.iter().zip(&scores).filter(|(policy, _)| choose(policy.0));
        chosen.min_by(|a, b| a.1.1.total_cmp(&b.1.1)).map_or("", |(policy, _)| policy.0)
    };
    let (best, best_fixed) = (best(&|_| true), best(&|name| FIXED.contains(&name)));
    let table: Vec<_> = scores.into_iter().map(|(row, _)| row).collect();
    let groups: Vec<String> = Pace::ALL.iter().map(|p| p.name().to_owned()).collect();
    let mut plots = Vec::new();
    for (file, title, column, axis) in [
        ("triggers-lists", "Credit lists per megabyte", "lists per MB", plot::linear("lists per MB")),
        ("triggers-idle", "Time that the sender has data and no credit", "sender idle %", plot::linear("% of time")),
    ] {
        for (place, _) in &DELAYS[..delays] {
            let series: Vec<_> = POLICIES
                .iter()
                .map(|&(policy, _)| {
                    let value = |pace: &String| {
                        mean(&rows, column, |r| {
                            r.get("sender") == pace.as_str() && r.get("policy") == policy && r.get("distance") == *place
                        })
                    };
                    (policy.to_owned(), groups.iter().map(value).collect())
                })
                .collect();
            let svg = plot::bars(
                &format!("{title} ({place}; mean over the receives posted)"),
                axis,
                &groups,
                &series,
                false,
            )?;
            plots.push((format!("{file}-{place}"), svg));
        }
    }
    Ok(Answer {
        name: "triggers",
        question: "When does the next credit list go: control messages and idle senders",
        setup: json!({ "link Gbit/s": 100, "MTU": 4096, "firmware µs per control message": 1,
            "delay of a link, ns": DELAYS.map(|d| d.1 / NS), "seeds": seeds, "means over all runs": table,
            "best": best, "best without measurement": best_fixed }),
        rows,
        plots,
    })
}
