// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the cycles of one message go: from the doorbell to the receiver's completion, as the ports of both cards show it.

use anyhow::{Context as _, Result, bail};
use berth_rtl::{Move, Moved};

use crate::model::Model;
use crate::node::{Area, INLINE_BYTES, Load, Node};
use crate::pair::Pair;
use crate::rows::{Bar, Row};

/// Messages of a kind, each alone, and cycles from one to the next. The one of the middle is shown.
const SAMPLES: u32 = 5;
const PAUSE: u64 = 4_001;
/// Cycles that one may take.
const PATIENCE: u64 = 100_000;

/// A stage: what its end is. The engines between two ports are one stage, since only ports are looked at.
type Stage = (&'static str, u64);

/// When the first, or the last, of what happened in an area of a card's memory was.
fn when(node: &Node, moved: &[Moved], what: Move, area: Area, last: bool) -> Result<u64> {
    let mut those = moved.iter().filter(|m| m.what == what && (m.addr == 0 || node.area(m.addr) == area));
    let found = if last { those.next_back() } else { those.next() };
    found.map(|m| m.cycle).with_context(|| format!("no {what:?} of {area:?}"))
}

/// The stages of one message of card 0, whose doorbell was taken at `rung`: names, and when each ends.
fn stages(pair: &Pair, rung: u64, moved: [&[Moved]; 2], inline: bool) -> Result<Vec<Stage>> {
    let [a, b] = &pair.nodes;
    let mut s = vec![("", rung)];
    if !inline {
        s.push(("doorbell → element is asked for", when(a, moved[0], Move::ReadRequest, Area::SendQueue, false)?));
        s.push(("element: host's answer", when(a, moved[0], Move::ReadAnswered, Area::SendQueue, true)?));
        s.push((
            "check, cut, block, send → payload is asked for",
            when(a, moved[0], Move::ReadRequest, Area::Source, false)?,
        ));
        s.push(("payload: host's answer", when(a, moved[0], Move::ReadAnswered, Area::Source, true)?));
    }
    let begun = when(a, moved[0], Move::FrameBegun, Area::Other, false)?;
    s.push((if inline { "doorbell → first beat to the MAC" } else { "frame, iCRC → first beat to the MAC" }, begun));
    s.push(("frame to the MAC", when(a, moved[0], Move::FrameSent, Area::Other, false)?));
    s.push(("wire", when(b, moved[1], Move::FrameTaken, Area::Other, false)?));
    s.push(("iCRC, parse, arrival, place → payload write", when(b, moved[1], Move::WriteBegun, Area::Sink, false)?));
    s.push(("payload write", when(b, moved[1], Move::Written, Area::Sink, true)?));
    s.push(("placed, done → completion write", when(b, moved[1], Move::WriteBegun, Area::Completions, false)?));
    Ok(s)
}

/// One kind of message: the stages of the sample in the middle, by its time from end to end.
fn kind(model: &Model, data_w: usize, len: usize, inline: bool) -> Result<Vec<Row>> {
    let load = Load { pitch: len.next_multiple_of(64), ..Load::warm(model, 1, SAMPLES, len, 12) };
    let mut pair = Pair::new(model, data_w, load);
    pair.nodes[1].receive_all();
    pair.run(2 * PAUSE)?;
    let mut samples = Vec::new();
    for n in 0..SAMPLES {
        pair.nodes.iter_mut().for_each(|node| drop(node.board.card.record()));
        if inline {
            pair.nodes[0].send_inline(0);
        } else {
            pair.nodes[0].send_one(0);
        }
        pair.until(PATIENCE, |p| p.nodes[0].board.card.writes_pending() == 0)?;
        let rung = pair.nodes[0].board.card.cycles();
        pair.until(PATIENCE, |p| p.nodes[1].completed(0, true, n))?;
        let [a, b] = [0, 1].map(|n| pair.nodes[n].board.card.record());
        samples.push(stages(&pair, rung, [&a, &b], inline)?);
        pair.run(PAUSE)?;
    }
    pair.check([false, true], SAMPLES)?;
    let all = |s: &Vec<Stage>| s.last().map_or(0, |l| l.1) - s.first().map_or(0, |f| f.1);
    samples.sort_by_key(all);
    let Some(sample) = samples.get(SAMPLES as usize / 2) else { bail!("no samples") };
    let row = |stage: &str, at: u64, cycles: u64| {
        let params = [
            ("data_w", data_w.into()),
            ("bytes", len.into()),
            ("inline", inline.into()),
            ("from", at.into()),
            ("stage", stage.into()),
        ];
        Row::new("waterfall", &params, cycles as f64, "cycles", None, Bar::None)
    };
    let begin = sample[0].1;
    let steps = sample.windows(2).map(|w| row(w[1].0, w[0].1 - begin, w[1].1.saturating_sub(w[0].1)));
    Ok(steps.chain([row("all", 0, all(sample))]).collect())
}

/// The rows `waterfall` at one width: a message of 64 bytes and one of a packet, both fetched from the send queue, and one
/// whose data are in the doorbell.
///
/// # Errors
/// When a message does not arrive, or not as it was sent.
pub fn rows(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = kind(model, data_w, 64, false)?;
    rows.extend(kind(model, data_w, 4096, false)?);
    rows.extend(kind(model, data_w, INLINE_BYTES, true)?);
    Ok(rows)
}
