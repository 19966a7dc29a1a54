// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Question 3: pin on credit against fault-driven paging and full registration.

use crate::answer::{Answer, Row, Scale, each, round};
use crate::hosts::{self, End, Setup};
use crate::load::Flood;
use crate::net::{Loss, Spec};
use crate::pinned::{self, Pinned};
use crate::plot;
use crate::queued::{Gate, Memory, PAGE, Queued, Region, Settings};
use crate::time::{MS, NS, SECOND, Time, US};
use anyhow::Result;
use serde_json::json;

/// Bytes of a message, and of a receive.
const BUFFER: u32 = 64 << 10;
/// Receives of a connection, where a way does not say another number.
const COUNT: u32 = 4;
/// Connections of a host.
const CONNS: u32 = 8;
/// Messages that an application has under way on a connection.
const OUTSTANDING: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Receives of a connection, and pages of the budget.
    Berth(u32, u32),
    Faults,
    Registered,
}

impl Way {
    const ALL: [Self; 5] =
        [Self::Berth(32, 8192), Self::Berth(COUNT, 1024), Self::Berth(COUNT, 256), Self::Faults, Self::Registered];

    fn name(self) -> String {
        match self {
            Self::Berth(count, pages) => format!("pin on credit, {count} receives, {} MiB", (pages * PAGE) >> 20),
            Self::Faults => "fault-driven".to_owned(),
            Self::Registered => "registered".to_owned(),
        }
    }
}

/// So many hosts send to as many others.
#[derive(Clone, Copy, Debug)]
struct Size {
    pairs: u32,
    length: Time,
}

impl Size {
    /// Every sender has a connection to each of [`CONNS`] receivers, or all of them to one.
    fn conns(self) -> Vec<[u32; 2]> {
        let peer = |host: u32, i: u32| self.pairs + (host + i * (self.pairs / CONNS).max(1)) % self.pairs;
        (0..self.pairs).flat_map(|host| (0..CONNS).map(move |i| [host, peer(host, i)])).collect()
    }
}

struct Run {
    size: Size,
    way: Way,
    /// Microseconds.
    latency: u64,
    cold: bool,
}

fn row(run: &Run, scale: &Scale) -> Row {
    let spec = Spec::of(2 * run.size.pairs, Loss::Pause);
    let conns = run.size.conns();
    let load = Box::new(Flood::new(conns.len() as u32, BUFFER, OUTSTANDING, run.size.length));
    let setup = Setup { spec, conns, apps: Vec::new(), load, seed: scale.seed, limit: SECOND };
    // Cold: what is used was not used for a long time. Warm: the same 512 KiB again and again.
    let places = if run.cold { 1024 } else { 8 };
    let latency = run.latency * US;
    let region = Region { places, latency };
    let queued = |memory| {
        // The best that a user can set: as long as a fault takes.
        let rnr = latency.max(10 * US);
        let settings = Settings {
            gate: Gate::Count,
            buffer: BUFFER,
            count: COUNT,
            least: 0,
            rnr,
            budget: None,
            copy: false,
            memory: Some(memory),
        };
        Queued::new(settings)
    };
    let with = |end: End, stalls: u64, stalled: Time| finish(run, end, stalls, stalled);
    match run.way {
        Way::Berth(count, budget) => {
            // Pages stay pinned for a while where the same are used again.
            let linger = if run.cold { 0 } else { MS };
            let settings = pinned::Settings { buffer: BUFFER, count, places, latency, budget, linger };
            let mut scheme = Pinned::new(settings);
            let end = hosts::run(setup, &mut scheme);
            with(end, scheme.stalls, scheme.stalled)
        }
        Way::Faults => {
            let mut scheme = queued(Memory::Faults(region));
            let end = hosts::run(setup, &mut scheme);
            with(end, scheme.stalls, scheme.stalled)
        }
        Way::Registered => {
            let mut scheme = queued(Memory::Registered(region));
            let end = hosts::run(setup, &mut scheme);
            with(end, 0, 0)
        }
    }
}

fn finish(run: &Run, end: End, stalls: u64, stalled: Time) -> Row {
    let (_, bytes, last) = end.stats.total();
    let stats = &end.stats;
    let time = last.saturating_sub(stats.began).max(1) as f64;
    let times = &stats.groups[0].times;
    let us = |q: f64| round(times.value_at_quantile(q) as f64 * NS as f64 / US as f64);
    let mean = stats.committed_mean() as f64;
    let peak = stats.committed_peak() as f64;
    Row(vec![
        ("scheme", run.way.name().into()),
        ("hosts", (2 * run.size.pairs).into()),
        ("memory", if run.cold { "cold" } else { "warm" }.into()),
        ("page service µs", run.latency.into()),
        ("goodput Gbit/s", round(bytes as f64 * 8000.0 / time)),
        ("p50 µs", us(0.5)),
        ("p99 µs", us(0.99)),
        ("stalled sends", stalls.into()),
        ("stalled ms", round(stalled as f64 / MS as f64)),
        ("not ready", stats.not_ready.into()),
        ("sent again", stats.again.into()),
        ("pinned MiB, mean", round(mean / 1_048_576.0)),
        ("pinned MiB, peak", round(peak / 1_048_576.0)),
        ("pinned MB·s per GB", round(mean / 1e6 * (time / SECOND as f64) / (bytes as f64 / 1e9))),
        ("unfinished", end.unfinished.into()),
    ])
}

/// Runs all ways with page services from 1 to 200 µs, between two hosts; at the large scale among 128.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn answer(scale: &Scale) -> Result<Answer> {
    let (size, latencies) = match scale.nodes {
        0..=16 => (Size { pairs: 1, length: 200 * US }, &[1, 50][..]),
        17..=64 => (Size { pairs: 1, length: 2 * MS }, &[1, 2, 5, 10, 20, 50, 100, 200][..]),
        65..=1024 => (Size { pairs: 1, length: 10 * MS }, &[1, 2, 5, 10, 20, 50, 100, 200][..]),
        _ => (Size { pairs: 64, length: MS }, &[1, 10, 50, 200][..]),
    };
    let mut runs = Vec::new();
    for cold in [true, false] {
        for way in Way::ALL {
            runs.extend(latencies.iter().map(|&latency| Run { size, way, latency, cold }));
        }
    }
    let name = |r: &Run| format!("{}, {}, {} µs", r.way.name(), if r.cold { "cold" } else { "warm" }, r.latency);
    let rows = each(scale.jobs, &runs, name, |r| row(r, scale));
    let mut plots = Vec::new();
    for (file, title, column, axis) in [
        ("paging-goodput", "Goodput", "goodput Gbit/s", plot::linear("Gbit/s")),
        ("paging-p99", "Time of a 64 KiB message, 99th percentile", "p99 µs", plot::log("µs")),
        ("paging-pinned", "Pinned byte-seconds for each GB moved", "pinned MB·s per GB", plot::log("MB·s per GB")),
        ("paging-stalls", "Time that sends waited for pages", "stalled ms", plot::log("ms, all connections")),
    ] {
        for memory in ["cold", "warm"] {
            let series: Vec<_> = Way::ALL
                .iter()
                .map(|way| {
                    let name = way.name();
                    let points = rows
                        .iter()
                        .filter(|r| r.get("scheme") == name.as_str() && r.get("memory") == memory)
                        .map(|r| (r.number("page service µs"), r.number(column)))
                        .collect();
                    (name, points)
                })
                .collect();
            let title = format!("{title} ({memory} memory)");
            plots
                .push((format!("{file}-{memory}"), plot::lines(&title, plot::log("page service, µs"), axis, &series)?));
        }
    }
    Ok(Answer {
        name: "paging",
        question: "Pin on credit against fault-driven paging and full registration",
        setup: json!({ "link Gbit/s": 100, "connections": CONNS, "message KiB": BUFFER >> 10,
            "receives of a connection": COUNT, "messages under way": OUTSTANDING,
            "core ns per page request": 300, "core ns per page": 50 }),
        rows,
        plots,
    })
}
