// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of the reliable connection over the fast path: two cards, firmware in reset, both directions at once.

use anyhow::{Result, ensure};
use berth_abi::wqe::CQE_BYTES;

use crate::model::{Model, wire_payload};
use crate::node::{INLINE_BYTES, Load};
use crate::pair::{Pair, Sent};
use crate::rows::{Bar, Row};

/// Parts of a stream's bytes before and behind which nothing is measured: its begin and its end.
const BEGIN: f64 = 0.2;
const END: f64 = 0.9;
/// Cycles that the wire needs for the messages of a bandwidth figure.
const CYCLES: f64 = 24_000.0;
/// Cycles that a measurement may take.
const PATIENCE: u64 = 2_000_000;
/// Messages of a latency figure, and cycles from one to the next.
const SAMPLES: u32 = 16;
const PAUSE: u64 = 2_003;

/// Figures that are known to fall short of their bar, and at which widths: docs/bench.md says why.
const SHORT: &[(&str, &[usize])] = &[
    ("msg_rate_16qp", &[512]),
    ("msg_rate_1qp", &[512]),
    ("lat_tx", &[64]),
    ("lat_rx", &[64]),
    ("bw_1qp", &[64, 512]),
];

fn known_short(row: Row, data_w: usize) -> Row {
    let known = SHORT.iter().any(|(id, widths)| *id == row.id && widths.contains(&data_w));
    row.known_short(known)
}

/// What of one direction lies between [`BEGIN`] and [`END`].
#[derive(Clone, Copy, Debug, Default)]
struct Steady {
    cycles: u64,
    frames: usize,
    payload: usize,
    wire: usize,
    lists: usize,
}

impl Steady {
    /// From the first beat of a frame to that of a later one, which does not count any more.
    fn new(sent: &[Sent], load: &Load) -> Self {
        let all = (load.messages() * load.len) as f64;
        let (mut before, mut first, mut s) = (0, None, Self::default());
        for f in sent {
            let part = before as f64 / all;
            before += f.payload;
            if part < BEGIN {
                continue;
            }
            s.cycles = f.start - *first.get_or_insert(f.start);
            if part >= END {
                break;
            }
            s.frames += usize::from(f.payload > 0);
            s.payload += f.payload;
            s.wire += f.wire;
            s.lists += if f.list { f.wire } else { 0 };
        }
        s
    }

    fn rate(&self) -> f64 {
        self.payload as f64 / self.cycles as f64
    }
}

/// Moves a load in both directions, compares every byte and every completion; what was steady, by direction.
fn stream(model: &Model, data_w: usize, load: Load) -> Result<[Steady; 2]> {
    let mut pair = Pair::new(model, data_w, load)?;
    pair.nodes.iter_mut().for_each(|n| n.receive_all());
    pair.nodes.iter_mut().for_each(|n| n.send_all());
    pair.until(PATIENCE, |p| p.nodes.iter().all(|n| n.done()))?;
    pair.check([true; 2], load.count)?;
    Ok([0, 1].map(|n| Steady::new(&pair.sent[n], &load)))
}

/// Messages of `len` bytes that the wire needs [`CYCLES`] for.
fn enough(data_w: usize, len: usize) -> u32 {
    ((CYCLES * data_w as f64 / 8.0 / len as f64) as u32).max(12)
}

fn bandwidth_row(id: &'static str, data_w: usize, load: Load, limit: f64, share: f64, steady: [Steady; 2]) -> Row {
    let rate = steady[0].rate().min(steady[1].rate());
    let params = [
        ("data_w", data_w.into()),
        ("qps", load.qps.into()),
        ("bytes", load.len.into()),
        ("mtu", (1 << load.log2_mtu).into()),
        ("both", true.into()),
    ];
    known_short(Row::new(id, &params, rate, "B/cycle", Some(limit), Bar::AtLeast(share * limit)), data_w)
}

/// The rows `bw_1qp`, `credit_overhead`, `bw_mtu1024` and `bw_unaligned` at one width.
///
/// # Errors
/// When something that has moved is wrong, or does not move.
pub fn bandwidth(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let load = |len: usize, log2_mtu, from, to, pitch| Load {
        qps: 1,
        count: enough(data_w, len),
        len,
        log2_mtu,
        from,
        to,
        pitch,
    };

    let aligned = load(4096, 12, 0, 0, 4096);
    let steady = stream(model, data_w, aligned)?;
    rows.push(bandwidth_row("bw_1qp", data_w, aligned, wire_payload(data_w, 4096), 0.98, steady));
    let part = |s: &Steady| 100.0 * s.lists as f64 / s.wire as f64;
    let params = [("data_w", data_w.into()), ("bytes", aligned.len.into()), ("both", true.into())];
    let value = part(&steady[0]).max(part(&steady[1]));
    let row = Row::new("credit_overhead", &params, value, "% of wire", None, Bar::AtMost(0.5));
    rows.push(known_short(row, data_w));

    let small = load(65_536, 10, 0, 0, 65_536);
    let steady = stream(model, data_w, small)?;
    rows.push(bandwidth_row("bw_mtu1024", data_w, small, wire_payload(data_w, 1024), 0.97, steady));

    // every buffer begins elsewhere: the distance of two is odd
    let odd = load(8191, 12, 3, 5, 8197);
    let steady = stream(model, data_w, odd)?;
    rows.push(bandwidth_row("bw_unaligned", data_w, odd, wire_payload(data_w, 4096), 0.90, steady));
    Ok(rows)
}

/// The rows `msg_rate_16qp` and `msg_rate_1qp` at one width; they have a bar at 512 bits.
///
/// # Errors
/// As [`bandwidth`].
pub fn message_rate(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (id, qps, count, most) in [("msg_rate_16qp", 16, 96, 8.0), ("msg_rate_1qp", 1, 512, 16.0)] {
        let load = Load { qps, count, len: 64, log2_mtu: 12, from: 0, to: 0, pitch: 64 };
        let steady = stream(model, data_w, load)?;
        let each = |s: &Steady| s.cycles as f64 / s.frames as f64;
        let value = each(&steady[0]).max(each(&steady[1]));
        let limit = load.len as f64 / wire_payload(data_w, load.len);
        let params =
            [("data_w", data_w.into()), ("qps", qps.into()), ("bytes", load.len.into()), ("both", true.into())];
        let bar = if data_w == 512 { Bar::AtMost(most) } else { Bar::None };
        rows.push(known_short(Row::new(id, &params, value, "cycles", Some(limit), bar), data_w));
    }
    Ok(rows)
}

/// The rows `lat_tx` and `lat_rx` at one width: the worst of [`SAMPLES`] messages, each alone, with their data in the
/// doorbell.
///
/// # Errors
/// As [`bandwidth`].
pub fn latency(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let load = Load { qps: 1, count: SAMPLES, len: INLINE_BYTES, log2_mtu: 12, from: 0, to: 0, pitch: 64 };
    let mut pair = Pair::new(model, data_w, load)?;
    pair.nodes[1].receive_all();
    pair.run(2 * PAUSE);
    let (mut to_wire, mut to_completion) = (0, 0);
    let beats = (CQE_BYTES as usize).div_ceil(2 * data_w / 8) as u64;
    for n in 0..SAMPLES {
        pair.nodes[0].send_inline(0);
        pair.until(PATIENCE, |p| p.nodes[0].rig.card.writes_pending() == 0)?;
        let rung = pair.nodes[0].rig.card.cycles();
        pair.until(PATIENCE, |p| p.nodes[1].completed(0, true, n))?;
        let card = &pair.nodes[1].rig.card;
        let (last_in, completed) = (card.ports().rx.last, card.cycles() - (beats - 1));
        let data: Vec<&Sent> = pair.sent[0].iter().filter(|f| f.payload > 0).collect();
        ensure!(data.len() == n as usize + 1, "{} frames for {} messages", data.len(), n + 1);
        to_wire = data[n as usize].start.saturating_sub(rung).max(to_wire);
        to_completion = completed.saturating_sub(last_in).max(to_completion);
        pair.run(PAUSE);
    }
    pair.check([false, true], SAMPLES)?;
    let params = [("data_w", data_w.into()), ("bytes", load.len.into())];
    let row =
        |id, value: u64| known_short(Row::new(id, &params, value as f64, "cycles", None, Bar::AtMost(32.0)), data_w);
    Ok(vec![row("lat_tx", to_wire), row("lat_rx", to_completion)])
}
