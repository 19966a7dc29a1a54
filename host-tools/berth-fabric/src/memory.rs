// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Question 4: receive memory per connection, from 1 to 100 000 connections of one server.

use crate::answer::{Answer, Row, Scale, each, round};
use crate::growing::Growing;
use crate::hosts::{self, App, End, Setup};
use crate::load::Talk;
use crate::net::{Loss, Shape, Spec};
use crate::plot;
use crate::queued::{Gate, Queued, Settings};
use crate::time::{NS, SECOND, US};
use anyhow::Result;
use berth_protocol::service::grow::Config;
use serde_json::json;

/// Client hosts, of a scale that has as many; the server is host 0.
const CLIENTS: u32 = 64;
/// Bytes of a large buffer, and buffers of a connection.
const BUFFER: u32 = 8 << 10;
const COUNT: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fixed,
    Shared,
    /// Half of the pool that is needed.
    TooSmall,
    Growing,
}

impl Way {
    const ALL: [Self; 4] = [Self::Fixed, Self::Shared, Self::TooSmall, Self::Growing];

    fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed buffers",
            Self::Shared => "shared receive queue",
            Self::TooSmall => "shared, half of it",
            Self::Growing => "growing buffers",
        }
    }
}

struct Run {
    way: Way,
    clients: u32,
    connections: u32,
    /// Percent of the connections that send large messages.
    heavy: u32,
    burst: bool,
}

impl Run {
    fn setup(&self, seed: u64) -> Setup {
        let spec = Spec::of(self.clients + 1, Loss::Pause);
        let spec = if self.clients <= CLIENTS { Spec { shape: Shape::Star, ..spec } } else { spec };
        let heavy: Vec<bool> = (0..self.connections).map(|i| i % (100 / self.heavy) == 50 / self.heavy).collect();
        let large = heavy.iter().filter(|h| **h).count() as u64;
        let bytes = u64::from(Talk::EACH)
            * (u64::from(self.connections) * u64::from(Talk::SMALL) + large * u64::from(Talk::LARGE));
        let messages = u64::from(Talk::EACH) * (u64::from(self.connections) + large);
        // Half of the rate that the server's link and application can take, so that they are not what is measured.
        let span = (bytes * spec.ps_per_byte() * 2).max(messages * App::default().each * 2).max(200 * US);
        // The server's application looks for messages in turns of 100 µs.
        let apps = vec![(0, App { turn: 100 * US, ..App::default() })];
        Setup {
            spec,
            conns: (0..self.connections).map(|i| [1 + i % self.clients, 0]).collect(),
            apps,
            load: Box::new(Talk::new(heavy, self.burst, span)),
            seed,
            limit: span + SECOND,
        }
    }

    fn queued(&self, gate: Gate, count: u32, least: u32) -> Queued {
        Queued::new(Settings {
            gate,
            buffer: BUFFER,
            count,
            least,
            rnr: 10 * US,
            budget: None,
            copy: true,
            memory: None,
        })
    }
}

fn simulate(run: &Run, scale: &Scale) -> Row {
    match run.way {
        Way::Fixed => {
            let end = hosts::run(run.setup(scale.seed), &mut run.queued(Gate::Fixed, COUNT, 0));
            let bytes = u64::from(run.connections) * u64::from(COUNT * BUFFER);
            row(run, &end, bytes, bytes, 0)
        }
        Way::Shared | Way::TooSmall => {
            // As large as necessary: the use of a run with room for everything, and a quarter more.
            let mut wide = run.queued(Gate::Shared, 0, 1 << 24);
            hosts::run(run.setup(scale.seed), &mut wide);
            let pool = (wide.most_used * 5 / 4).max(COUNT);
            let pool = if run.way == Way::TooSmall { pool / 2 } else { pool };
            let end = hosts::run(run.setup(scale.seed), &mut run.queued(Gate::Shared, 0, pool));
            let bytes = u64::from(pool) * u64::from(BUFFER);
            row(run, &end, bytes, bytes, 0)
        }
        Way::Growing => {
            let mut growing = Growing::new(Config::default());
            let end = hosts::run(run.setup(scale.seed), &mut growing);
            let (bytes, peak) = (end.stats.committed(), end.stats.committed_peak());
            row(run, &end, bytes, peak, growing.grown)
        }
    }
}

fn row(run: &Run, end: &End, bytes: u64, peak: u64, grown: u64) -> Row {
    let stats = &end.stats;
    let us = |group: usize, q: f64| match stats.groups[group].messages {
        0 => serde_json::Value::Null,
        _ => round(stats.groups[group].times.value_at_quantile(q) as f64 * NS as f64 / US as f64),
    };
    let (_, moved, _) = stats.total();
    Row(vec![
        ("connections", run.connections.into()),
        ("with large messages %", run.heavy.into()),
        ("arrival", if run.burst { "large ones at once" } else { "spread" }.into()),
        ("scheme", run.way.name().into()),
        ("bytes per connection", round(bytes as f64 / f64::from(run.connections))),
        ("MiB", round(bytes as f64 / 1_048_576.0)),
        ("MiB, peak", round(peak as f64 / 1_048_576.0)),
        ("grown", grown.into()),
        ("small p50 µs", us(0, 0.5)),
        ("small p99 µs", us(0, 0.99)),
        ("large p50 µs", us(1, 0.5)),
        ("large p99 µs", us(1, 0.99)),
        ("flow control B/MB", round(stats.flow.bytes as f64 / (moved as f64 / 1e6))),
        ("not ready", stats.not_ready.into()),
        ("sent again", stats.again.into()),
        ("unfinished", end.unfinished.into()),
    ])
}

/// Runs all schemes with 1 to 100 000 connections (fewer with few nodes).
///
/// # Errors
/// When a plot cannot be drawn.
pub fn answer(scale: &Scale) -> Result<Answer> {
    let most = match scale.nodes {
        0..=16 => 10,
        17..=64 => 1_000,
        _ => 100_000,
    };
    // At the large scale all hosts but one are clients.
    let clients = if scale.nodes > 1024 { scale.nodes - 1 } else { CLIENTS };
    let mut runs = Vec::new();
    for (heavy, burst) in [(1, false), (10, false), (50, false), (10, true)] {
        for connections in [1, 10, 100, 1_000, 10_000, 100_000].into_iter().filter(|n| *n <= most) {
            runs.extend(Way::ALL.map(|way| Run { way, clients, connections, heavy, burst }));
            if connections > 1_000 {
                // It makes no progress: nearly all packets are refused and sent again.
                runs.retain(|r| r.way != Way::TooSmall || r.connections <= 1_000);
            }
        }
    }
    let name = |r: &Run| {
        let when = if r.burst { "at once" } else { "spread" };
        format!("{}, {} connections, {} % large, {when}", r.way.name(), r.connections, r.heavy)
    };
    let rows = each(scale.jobs, &runs, name, |r| simulate(r, scale));
    let line = |label: String, way: Way, heavy: u32, burst: bool, column: &str| {
        let arrival = if burst { "large ones at once" } else { "spread" };
        let points = rows.iter().filter(|r| {
            r.get("scheme") == way.name() && r.get("with large messages %") == heavy && r.get("arrival") == arrival
        });
        (label, points.map(|r| (r.number("connections"), r.number(column))).collect::<Vec<_>>())
    };
    let series = |column: &'static str| {
        let mut series = vec![line("fixed".to_owned(), Way::Fixed, 10, false, column)];
        for heavy in [1, 10, 50] {
            series.push(line(format!("growing, {heavy} % large"), Way::Growing, heavy, false, column));
        }
        series.push(line("shared, spread".to_owned(), Way::Shared, 10, false, column));
        series.push(line("shared, 10 % at once".to_owned(), Way::Shared, 10, true, column));
        series.push(line("half of that, 10 % at once".to_owned(), Way::TooSmall, 10, true, column));
        series
    };
    let connections = plot::log("connections");
    let mut plots = Vec::new();
    for (file, title, column, axis) in [
        ("memory-each", "Receive memory for each connection", "bytes per connection", plot::log("bytes")),
        ("memory-all", "Receive memory of the server", "MiB, peak", plot::log("MiB, peak")),
        ("memory-large", "Time of a large message, 99th percentile", "large p99 µs", plot::log("µs")),
    ] {
        plots.push((file.to_owned(), plot::lines(title, connections, axis, &series(column))?));
    }
    Ok(Answer {
        name: "memory",
        question: "Receive memory per connection: fixed buffers, shared receive queue, growing buffers",
        setup: json!({ "clients": clients, "buffers of a connection": COUNT, "bytes of a large buffer": BUFFER,
            "bytes of a small buffer": Config::<2>::default().sizes[0], "bytes of a small message": Talk::SMALL,
            "bytes of a large message": Talk::LARGE, "messages of each kind": Talk::EACH,
            "µs between looks of the application": 100, "µs to register a set, and its pages": 20 }),
        rows,
        plots,
    })
}
