// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Question 2: trigger policies against each other.

use crate::answer::{Answer, Row, Scale, each, round};
use crate::berth::{Berth, Settings};
use crate::load::{Pace, Stream};
use crate::net::{Loss, Spec};
use crate::plot;
use crate::sim::{self, Setup};
use crate::time::{MS, NS, SECOND, Time, US};
use anyhow::Result;
use berth_protocol::policy::{self, Kind};
use serde_json::json;

const POLICIES: [(&str, Kind); 8] = [
    ("first", Kind::First),
    ("quarter", Kind::Share(64)),
    ("middle", Kind::Share(128)),
    ("last", Kind::Last),
    ("adaptive", Kind::Adaptive),
    ("timed", Kind::Timed),
    ("predictive", Kind::Predictive),
    ("in-band", Kind::InBand),
];

/// Receives that the receiver keeps posted: name, number, bytes of each, and how many are posted with one doorbell.
const POSTED: [(&str, usize, u32, usize); 4] = [
    ("16 × 16 KiB, one by one", 16, 16 << 10, 1),
    ("32 × 4 KiB, one by one", 32, 4 << 10, 1),
    ("32 × 16 KiB, one by one", 32, 16 << 10, 1),
    ("32 × 16 KiB, by eights", 32, 16 << 10, 8),
];

/// Time that a bit takes through one of the two links, and the round trip that follows from it.
const DELAYS: [(&str, Time); 2] = [("rack", 500 * NS), ("building", 5 * US)];

struct Run {
    pace: Pace,
    posted: usize,
    delay: usize,
    policy: usize,
}

fn row(run: &Run, scale: &Scale) -> Row {
    let (posted, count, bytes, batch) = POSTED[run.posted];
    let (place, delay) = DELAYS[run.delay];
    let (name, kind) = POLICIES[run.policy];
    let spec = Spec { delay, ..Spec::of(2, Loss::Pause) };
    let length = if scale.nodes > 16 { 10 * MS } else { 200 * US };
    let setup = Setup {
        spec,
        conns: vec![[0, 1]],
        apps: Vec::new(),
        load: Box::new(Stream::new(run.pace, &spec, length)),
        seed: scale.seed,
        limit: SECOND,
    };
    let settings =
        Settings { receives: vec![bytes; count], batch, policy: policy::Settings::of(kind), ..Settings::default() };
    let mut berth = Berth::new(settings);
    let end = sim::run(setup, &mut berth);
    let stats = &end.stats;
    let group = &stats.groups[0];
    let time = group.last.saturating_sub(stats.began).max(1) as f64;
    let megabytes = (group.bytes as f64 / 1e6).max(1e-9);
    Row(vec![
        ("sender", run.pace.name().into()),
        ("distance", place.into()),
        ("receives", posted.into()),
        ("policy", name.into()),
        ("goodput Gbit/s", round(group.bytes as f64 * 8000.0 / time)),
        ("lists per MB", round(stats.flow.packets as f64 / megabytes)),
        ("list bytes per MB", round(stats.flow.bytes as f64 / megabytes)),
        ("sender idle %", round(100.0 * stats.idle as f64 / time)),
        ("p50 µs", round(group.times.value_at_quantile(0.5) as f64 * NS as f64 / US as f64)),
        ("p99 µs", round(group.times.value_at_quantile(0.99) as f64 * NS as f64 / US as f64)),
        ("refused lists", berth.refused.into()),
        ("unfinished", end.unfinished.into()),
    ])
}

/// Mean over the rows that `choose` chooses.
fn mean(rows: &[Row], column: &str, choose: impl Fn(&Row) -> bool) -> f64 {
    let values: Vec<f64> = rows.iter().filter(|r| choose(r)).map(|r| r.number(column)).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// What a policy costs, in percent: the time that the sender idles, and the share of the receiving card's processor
/// that its lists take at the link's full rate (12 500 MB/s, 1 µs each).
fn score(rows: &[Row], policy: &str) -> (f64, f64) {
    let of = |column: &str| mean(rows, column, |r| r.get("policy") == policy);
    (of("sender idle %"), of("lists per MB") * 12_500.0 * 1e-6 * 100.0)
}

/// Runs all policies with all senders.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn answer(scale: &Scale) -> Result<Answer> {
    let mut runs = Vec::new();
    // A small scale is for tests.
    let (delays, posts) = if scale.nodes > 16 { (DELAYS.len(), POSTED.len()) } else { (1, 1) };
    for delay in 0..delays {
        for posted in 0..posts {
            for pace in Pace::ALL {
                runs.extend((0..POLICIES.len()).map(|policy| Run { pace, posted, delay, policy }));
            }
        }
    }
    let name = |r: &Run| {
        let (place, posted, policy) = (DELAYS[r.delay].0, POSTED[r.posted].0, POLICIES[r.policy].0);
        format!("{}, {place}, {posted}, {policy}", r.pace.name())
    };
    let rows = each(scale.jobs, &runs, name, |r| row(r, scale));
    let scores: Vec<_> = POLICIES.iter().map(|p| (p.0, score(&rows, p.0))).collect();
    let best = scores.iter().min_by(|a, b| (a.1.0 + a.1.1).total_cmp(&(b.1.0 + b.1.1))).map_or("", |s| s.0);
    let scores: Vec<_> = scores
        .iter()
        .map(|(name, (idle, lists))| json!({ "policy": name, "sender idle %": round(*idle), "processor for lists %": round(*lists), "sum": round(idle + lists) }))
        .collect();
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
            let svg = plot::bars(&format!("{title} ({place}; mean over the receives posted)"), axis, &groups, &series)?;
            plots.push((format!("{file}-{place}"), svg));
        }
    }
    Ok(Answer {
        name: "triggers",
        question: "When does the next credit list go: control messages and idle senders",
        setup: json!({ "link Gbit/s": 100, "MTU": 4096, "firmware µs per control message": 1,
            "delay of a link, ns": DELAYS.map(|d| d.1 / NS), "means over all runs": scores, "best": best }),
        rows,
        plots,
    })
}
