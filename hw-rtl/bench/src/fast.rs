// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of the reliable connection over the fast path: two cards, firmware in reset, both directions at once.

use anyhow::{Result, bail, ensure};
use berth_abi::wire::BTH_ACKNOWLEDGE;
use berth_abi::wqe::{ATOMIC_BYTES, CQE_BYTES};
use berth_protocol::card::rows::{fast_ahead, fast_pinned};

use crate::model::{
    ATOMIC_REQUEST, Model, READ_REQUEST, RETH, wire_payload, wire_payload_behind, wire_payload_foreign,
};
use crate::node::{INLINE_BYTES, Kind, Load};
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

/// Figures that are known to fall short of their bar, and at which widths. A READ alone is received, looked up, loaded and sent
/// step by step.
const SHORT: &[(&str, &[usize])] = &[("lat_read", &[64, 128, 256, 512])];

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

/// Moves a load in both directions, compares every byte and every completion.
fn moved(model: &Model, data_w: usize, load: Load) -> Result<Pair> {
    let mut pair = Pair::new(model, data_w, load);
    pair.nodes.iter_mut().for_each(|n| n.receive_all());
    pair.nodes.iter_mut().for_each(|n| n.send_all());
    pair.until(PATIENCE, |p| p.nodes.iter().all(|n| n.done()))?;
    pair.check([true; 2], load.count)?;
    if let (Some(file), true) = (&model.frames, load.faulty()) {
        pair.write_frames(file)?;
    }
    Ok(pair)
}

/// What of a load on a clean wire was steady, by direction.
fn stream(model: &Model, data_w: usize, load: Load) -> Result<[Steady; 2]> {
    let pair = moved(model, data_w, load)?;
    Ok([0, 1].map(|n| Steady::new(&pair.sent[n], &load)))
}

/// Bytes per cycle of complete messages, of the worse direction.
fn completed(pair: &Pair, load: &Load) -> Result<f64> {
    let mut worst = f64::INFINITY;
    for node in &pair.nodes {
        let at = |part: f64| node.progress.iter().find(|p| p.1 as f64 >= part * load.messages() as f64);
        let (Some(first), Some(last)) = (at(BEGIN), at(END)) else { bail!("too few messages") };
        worst = ((last.1 - first.1) as f64 * load.len as f64 / (last.0 - first.0) as f64).min(worst);
    }
    Ok(worst)
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
    let load = |len: usize, log2_mtu| Load::warm(model, 1, enough(data_w, len), len, log2_mtu);

    let aligned = load(4096, 12);
    let steady = stream(model, data_w, aligned)?;
    rows.push(bandwidth_row("bw_1qp", data_w, aligned, wire_payload(data_w, 4096), 0.98, steady));
    let part = |s: &Steady| 100.0 * s.lists as f64 / s.wire as f64;
    let params = [("data_w", data_w.into()), ("bytes", aligned.len.into()), ("both", true.into())];
    let value = part(&steady[0]).max(part(&steady[1]));
    let row = Row::new("credit_overhead", &params, value, "% of wire", None, Bar::AtMost(0.5));
    rows.push(known_short(row, data_w));

    let small = load(65_536, 10);
    let steady = stream(model, data_w, small)?;
    rows.push(bandwidth_row("bw_mtu1024", data_w, small, wire_payload(data_w, 1024), 0.97, steady));

    // every buffer begins elsewhere: the distance of two is odd
    let odd = Load { from: 3, to: 5, pitch: 8197, ..load(8191, 12) };
    let steady = stream(model, data_w, odd)?;
    rows.push(bandwidth_row("bw_unaligned", data_w, odd, wire_payload(data_w, 4096), 0.90, steady));
    Ok(rows)
}

/// The rows `policy_bw_1qp` and `policy_msg_rate`: as `bw_1qp` and `msg_rate_16qp`, when later lists wait for `trigger` and, if
/// they are `measured`, the use of credits is reported with each of them, and nobody answers.
///
/// # Errors
/// As [`bandwidth`].
pub fn with_trigger(
    model: &Model,
    data_w: usize,
    policy: &str,
    trigger: (u32, u32),
    measured: bool,
) -> Result<[Row; 2]> {
    let params = [("data_w", data_w.into()), ("policy", policy.into())];
    let long = Load { trigger, measured, ..Load::warm(model, 1, enough(data_w, 4096), 4096, 12) };
    let [a, b] = stream(model, data_w, long)?;
    let limit = wire_payload(data_w, 4096);
    let bandwidth = Row::new("policy_bw_1qp", &params, a.rate().min(b.rate()), "B/cycle", Some(limit), Bar::None);
    let short = Load { trigger, measured, ..Load::warm(model, 16, 96, 64, 12) };
    let limit = short.len as f64 / wire_payload(data_w, short.len);
    let [a, b] = stream(model, data_w, short)?.map(|s| s.cycles as f64 / s.frames as f64);
    Ok([bandwidth, Row::new("policy_msg_rate", &params, a.max(b), "cycles", Some(limit), Bar::None)])
}

/// The rows `bw_write_1qp`, `rate_write_16qp`, `bw_read_1qp` and `rate_read_16qp` at one width.
///
/// # Errors
/// As [`bandwidth`].
pub fn one_sided(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kind, more, ids, most) in [
        (Kind::Write, RETH, ["bw_write_1qp", "rate_write_16qp"], 6.0),
        (Kind::Read, READ_REQUEST, ["bw_read_1qp", "rate_read_16qp"], 10.0),
    ] {
        let long = Load { kind, ..Load::warm(model, 1, enough(data_w, MESSAGE), MESSAGE, 12) };
        let limit = wire_payload_behind(data_w, 4096, more);
        rows.push(bandwidth_row(ids[0], data_w, long, limit, 0.98, stream(model, data_w, long)?));
        let short = Load { kind, ..Load::warm(model, 16, 96, 64, 12) };
        let limit = short.len as f64 / wire_payload_behind(data_w, short.len, more);
        rows.push(rate_row(ids[1], data_w, short, limit, most, stream(model, data_w, short)?));
    }
    Ok(rows)
}

/// The rows `bw_foreign_1qp` at one width, of SENDs and of WRITEs: between cards that take each other for foreign peers.
///
/// # Errors
/// As [`bandwidth`].
pub fn foreign(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kind, verb, more) in [(Kind::Send, "SEND", 0), (Kind::Write, "WRITE", RETH)] {
        let load = Load { kind, foreign: true, ..Load::warm(model, 1, enough(data_w, MESSAGE), MESSAGE, 12) };
        let steady = stream(model, data_w, load)?;
        let rate = steady[0].rate().min(steady[1].rate());
        let limit = wire_payload_foreign(data_w, MESSAGE, 4096, more);
        let params =
            [("data_w", data_w.into()), ("verb", verb.into()), ("bytes", load.len.into()), ("both", true.into())];
        let bar = Bar::AtLeast(0.97 * limit);
        rows.push(known_short(Row::new("bw_foreign_1qp", &params, rate, "B/cycle", Some(limit), bar), data_w));
    }
    Ok(rows)
}

/// The row `rate_atomic` at one width: of different numbers, as many of each queue pair at a time as READs.
///
/// # Errors
/// As [`bandwidth`].
pub fn atomics(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let len = ATOMIC_BYTES as usize;
    let load = Load { kind: Kind::Atomic, pitch: 64, ..Load::warm(model, 16, 96, len, 12) };
    let limit = len as f64 / wire_payload_behind(data_w, len, ATOMIC_REQUEST);
    Ok(vec![rate_row("rate_atomic", data_w, load, limit, 24.0, stream(model, data_w, load)?)])
}

/// Cycles per message, with a bar at 512 bits.
fn rate_row(id: &'static str, data_w: usize, load: Load, limit: f64, most: f64, steady: [Steady; 2]) -> Row {
    let each = |s: &Steady| s.cycles as f64 / s.frames as f64;
    let value = each(&steady[0]).max(each(&steady[1]));
    let params =
        [("data_w", data_w.into()), ("qps", load.qps.into()), ("bytes", load.len.into()), ("both", true.into())];
    let bar = if data_w == 512 { Bar::AtMost(most) } else { Bar::None };
    known_short(Row::new(id, &params, value, "cycles", Some(limit), bar), data_w)
}

/// The rows `msg_rate_16qp` and `msg_rate_1qp` at one width; they have a bar at 512 bits.
///
/// # Errors
/// As [`bandwidth`].
pub fn message_rate(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (id, qps, count, most) in [("msg_rate_16qp", 16, 96, 5.0), ("msg_rate_1qp", 1, 2048, 16.0)] {
        let load = Load::warm(model, qps, count, 64, 12);
        let limit = load.len as f64 / wire_payload(data_w, load.len);
        rows.push(rate_row(id, data_w, load, limit, most, stream(model, data_w, load)?));
    }
    Ok(rows)
}

/// The rows `lat_tx` and `lat_rx` at one width: the worst of [`SAMPLES`] messages, each alone, with their data in the
/// doorbell.
///
/// # Errors
/// As [`bandwidth`].
pub fn latency(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let load = Load { pitch: 64, ..Load::warm(model, 1, SAMPLES, INLINE_BYTES, 12) };
    let mut pair = Pair::new(model, data_w, load);
    pair.nodes[1].receive_all();
    pair.run(2 * PAUSE)?;
    let (mut to_wire, mut to_completion) = (0, 0);
    let beats = (CQE_BYTES as usize).div_ceil(2 * data_w / 8) as u64;
    for n in 0..SAMPLES {
        pair.nodes[0].send_inline(0);
        pair.until(PATIENCE, |p| p.nodes[0].board.card.writes_pending() == 0)?;
        let rung = pair.nodes[0].board.card.cycles();
        pair.until(PATIENCE, |p| p.nodes[1].completed(0, true, n))?;
        let card = &pair.nodes[1].board.card;
        let (last_in, completed) = (card.ports().rx.last, card.cycles() - (beats - 1));
        let data: Vec<&Sent> = pair.sent[0].iter().filter(|f| f.payload > 0).collect();
        ensure!(data.len() == n as usize + 1, "{} frames for {} messages", data.len(), n + 1);
        to_wire = data[n as usize].start.saturating_sub(rung).max(to_wire);
        to_completion = completed.saturating_sub(last_in).max(to_completion);
        pair.run(PAUSE)?;
    }
    pair.check([false, true], SAMPLES)?;
    let params = [("data_w", data_w.into()), ("bytes", load.len.into())];
    let row =
        |id, value: u64| known_short(Row::new(id, &params, value as f64, "cycles", None, Bar::AtMost(32.0)), data_w);
    Ok(vec![row("lat_tx", to_wire), row("lat_rx", to_completion)])
}

/// The row `lat_read` at one width: the worst of [`SAMPLES`] RDMA READs, each alone, of memory that is pinned. From the last
/// beat of the request in to the first beat of its answer out, without the time that the host takes to give the bytes.
///
/// # Errors
/// As [`bandwidth`].
pub fn read_latency(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let load = Load { kind: Kind::Read, pitch: 64, ..Load::warm(model, 1, SAMPLES, 64, 12) };
    let mut pair = Pair::new(model, data_w, load);
    pair.run(2 * PAUSE)?;
    let mut worst = 0;
    for n in 0..SAMPLES {
        pair.nodes[0].send_one(0);
        pair.until(PATIENCE, |p| p.nodes[0].completed(0, false, n))?;
        let asked = pair.nodes[1].board.card.ports().rx.last;
        let answers: Vec<&Sent> = pair.sent[1].iter().filter(|f| f.payload > 0).collect();
        ensure!(answers.len() == n as usize + 1, "{} answers to {} READs", answers.len(), n + 1);
        worst = answers[n as usize].start.saturating_sub(asked + model.read_latency).max(worst);
        pair.run(PAUSE)?;
    }
    pair.check([true, false], SAMPLES)?;
    let params = [("data_w", data_w.into()), ("bytes", load.len.into())];
    let row = Row::new("lat_read", &params, worst as f64, "cycles", None, Bar::AtMost(40.0));
    Ok(vec![known_short(row, data_w)])
}

/// The row `key_lookup` at one width: READs of a foreign peer with keys that open nothing, each for a reason of its own; from
/// the last beat of the request in to the first one of the NAK out. The clocks that the answers differ by: none.
///
/// # Errors
/// As [`bandwidth`].
pub fn key_lookup(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let load = Load { kind: Kind::Read, foreign: true, pitch: 64, ..Load::warm(model, 6, 1, 64, 12) };
    let mut pair = Pair::new(model, data_w, load);
    let keys = pair.nodes[1].wrong_keys();
    pair.run(2 * PAUSE)?;
    let mut clocks = Vec::new();
    for (q, (key, va)) in (0..).zip(keys) {
        let before = pair.sent[1].len();
        pair.nodes[0].read_from(q, key, va);
        pair.until(PATIENCE, |p| p.sent[1].len() > before)?;
        let nak = pair.sent[1][before];
        ensure!(nak.opcode == BTH_ACKNOWLEDGE && nak.payload == 0, "key {q} opens something: {nak:x?}");
        clocks.push(nak.start - pair.nodes[1].board.card.ports().rx.last);
        pair.run(PAUSE)?;
    }
    let (least, most) = (clocks.iter().min().copied().unwrap_or(0), clocks.iter().max().copied().unwrap_or(0));
    let params = [("data_w", data_w.into()), ("keys", clocks.len().into()), ("answer", most.into())];
    let row = Row::new("key_lookup", &params, (most - least) as f64, "cycles apart", None, Bar::AtMost(0.0));
    Ok(vec![known_short(row, data_w)])
}

/// Messages of `rate_round_trip`: as many as two packet windows.
const SWEEP: u32 = 256;

/// The rows `rate_round_trip` at one width: messages of one packet, one queue pair, at each of the model's round trips with
/// lists of each length. A list waits for the proof that the one before has come, so that at most one is on its way.
///
/// # Errors
/// As [`bandwidth`].
pub fn round_trips(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &list in &model.lists {
        let model = Model { list, few: model.few.min(list / 2), ..model.clone() };
        for &round_trip in &model.round_trips {
            let load = Load { round_trip, ..Load::warm(&model, 1, SWEEP, 4096, 12) };
            let steady = stream(&model, data_w, load)?;
            let params = [("data_w", data_w.into()), ("list", list.into()), ("round_trip", round_trip.into())];
            let rate = steady[0].rate().min(steady[1].rate());
            let limit = wire_payload(data_w, 4096).min(f64::from(model.window) * 4096.0 / round_trip as f64);
            rows.push(Row::new("rate_round_trip", &params, rate, "B/cycle", Some(limit), Bar::None));
        }
    }
    Ok(rows)
}

/// Bytes of the messages of the figures with pages on demand and with loss: a block.
const MESSAGE: usize = 65_536;
/// Receives that a process has posted with pages on demand: more than may be pinned at any width.
const RECEIVES: u32 = 64;
/// Buffers at most: half of them and of the others fit into the translation table.
const BUFFERS: u32 = 128;

/// Messages of a block each, of which the wire needs `cycles` for all; but not fewer than `least`.
fn blocks(model: &Model, data_w: usize, cycles: f64, least: u32) -> Load {
    let times = if model.long { 4 } else { 1 };
    let count = times * ((cycles * wire_payload(data_w, 4096) / MESSAGE as f64) as u32).max(least);
    Load { buffers: count.min(BUFFERS), receives: count.min(BUFFERS), ..Load::warm(model, 1, count, MESSAGE, 12) }
}

/// The load with pages that the driver pins on demand in `service` cycles. What the card measures by itself is not told
/// to it: its rows have what firmware writes.
fn on_demand(model: &Model, service: u64, load: Load) -> Load {
    Load {
        service,
        ahead: model.ahead.unwrap_or(fast_ahead(1 << model.log2_block)),
        receives: model.receives.unwrap_or(RECEIVES).clamp(1, load.buffers),
        limit: model.pinned.unwrap_or(fast_pinned(1 << model.log2_block)),
        ..load
    }
}

/// The rows `pin_on_demand`, `pin_peak_sent` and `pin_peak_received` at one width.
///
/// # Errors
/// As [`bandwidth`].
pub fn pins(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &service in &model.page_service {
        let warm = blocks(model, data_w, 8.0 * service as f64 + 40_000.0, 24);
        let all = completed(&moved(model, data_w, warm)?, &warm)?;
        let load = on_demand(model, service, warm);
        let pair = moved(model, data_w, load)?;
        let rate = completed(&pair, &load)?;
        let params = [
            ("data_w", data_w.into()),
            ("service", service.into()),
            ("ahead", load.ahead.into()),
            ("receives", load.receives.into()),
        ];
        let value = 100.0 * rate / all;
        rows.push(Row::new("pin_on_demand", &params, value, "% of pinned", Some(100.0), Bar::AtLeast(95.0)));
        let peak = |side: usize| pair.nodes.iter().map(|n| n.pinned()[side]).max().unwrap_or(0) as f64 / 1024.0;
        let bound = |cycles: u64| (rate * cycles as f64 + 3.0 * (1u64 << model.log2_block) as f64) / 1024.0;
        let sent = Bar::AtMost(bound(service));
        rows.push(Row::new("pin_peak_sent", &params, peak(0), "KiB", None, sent));
        let received = Bar::AtMost(bound(load.round_trip + 2 * service));
        rows.push(Row::new("pin_peak_received", &params, peak(1), "KiB", None, received));
    }
    Ok(rows.into_iter().map(|r| known_short(r, data_w)).collect())
}

/// The rows `write_on_demand` and `read_on_demand` at one width: blocks in order, of which neither end has touched a page.
///
/// # Errors
/// As [`bandwidth`].
pub fn one_sided_on_demand(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kind, id) in [(Kind::Write, "write_on_demand"), (Kind::Read, "read_on_demand")] {
        let warm = Load { kind, ..Load::warm(model, 1, 64, MESSAGE, 12) };
        let all = completed(&moved(model, data_w, warm)?, &warm)?;
        for &service in &model.page_service {
            let load = Load { receives: warm.receives, ..on_demand(model, service, warm) };
            let pair = moved(model, data_w, load)?;
            let goes = pair.nodes.iter().map(|n| n.goes).sum::<u32>();
            let params = [("data_w", data_w.into()), ("service", service.into()), ("waits", goes.into())];
            let value = 100.0 * completed(&pair, &load)? / all;
            rows.push(Row::new(id, &params, value, "% of pinned", Some(100.0), Bar::AtLeast(90.0)));
        }
    }
    Ok(rows.into_iter().map(|r| known_short(r, data_w)).collect())
}

/// One of the loads of the figures with faults of the wire: against the same on a clean wire, the mean of as many seeds as
/// the model has.
fn with_loss(model: &Model, data_w: usize, id: &'static str, load: Load, bar: Option<f64>) -> Result<Row> {
    let clean = Load { loss: 0.0, reorder: 0.0, ..load };
    let base = completed(&moved(model, data_w, clean)?, &clean)?;
    let pinned = load.service == 0;
    let (mut parts, mut lost, mut time_outs) = (Vec::new(), 0, 0);
    for seed in model.seed..model.seed + model.loss_seeds {
        let pair = moved(&Model { seed, ..model.clone() }, data_w, load)?;
        parts.push(100.0 * completed(&pair, &load)? / base);
        lost += pair.lost;
        time_outs += pair.nodes.iter().map(|n| n.time_outs).sum::<u32>();
    }
    let value = parts.iter().sum::<f64>() / parts.len() as f64;
    let tenths = |part: f64| (10.0 * part).round() / 10.0;
    let mut params = vec![
        ("data_w", data_w.into()),
        ("pinned", pinned.into()),
        ("seeds", model.loss_seeds.into()),
        ("lowest", tenths(parts.iter().copied().fold(f64::INFINITY, f64::min)).into()),
        ("highest", tenths(parts.iter().copied().fold(0.0, f64::max)).into()),
        ("lost", lost.into()),
        ("time_outs", time_outs.into()),
    ];
    if !pinned {
        params.push(("receives", load.receives.into()));
    }
    let row = Row::new(id, &params, value, "% of loss-free", Some(100.0), bar.map_or(Bar::None, Bar::AtLeast));
    Ok(known_short(row, data_w))
}

/// The rows `loss_1pct`, `loss_5pct`, `loss_1pct_reorder_10pct` and, without a bar, `loss_go_back_n` at one width.
///
/// # Errors
/// As [`bandwidth`].
pub fn loss(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let service = model.page_service.first().copied().unwrap_or(0);
    let warm = Load { round_trip: model.loss_round_trip, ..blocks(model, data_w, 100_000.0, 40) };
    let lossy = Load { loss: model.loss, ..warm };
    let demand = on_demand(model, service, lossy);
    let much = Load { loss: 5.0 * model.loss, ..warm };
    let late = Load { reorder: 10.0 * model.loss, ..lossy };
    let back = Load { selective: false, ..lossy };
    Ok(vec![
        with_loss(model, data_w, "loss_1pct", lossy, Some(80.0))?,
        with_loss(model, data_w, "loss_1pct", demand, Some(70.0))?,
        with_loss(model, data_w, "loss_5pct", much, Some(60.0))?,
        with_loss(model, data_w, "loss_1pct_reorder_10pct", late, Some(75.0))?,
        with_loss(&Model { loss_seeds: 1, ..model.clone() }, data_w, "loss_go_back_n", back, None)?,
    ])
}

/// The rows `write_loss_1pct` and `read_loss_1pct` at one width.
///
/// # Errors
/// As [`bandwidth`].
pub fn one_sided_loss(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let load = Load { round_trip: model.loss_round_trip, loss: model.loss, ..blocks(model, data_w, 100_000.0, 40) };
    [(Kind::Write, "write_loss_1pct"), (Kind::Read, "read_loss_1pct")]
        .into_iter()
        .map(|(kind, id)| with_loss(model, data_w, id, Load { kind, ..load }, Some(80.0)))
        .collect()
}
