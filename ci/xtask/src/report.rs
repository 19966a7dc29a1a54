// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The demo's report: figures, a summary for the terminal, and one HTML file with plots that needs nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use crate::guest::Role;
use crate::wire::WireCheck;

/// Data bytes that the wire takes per card cycle (DATA_W = 64).
const BYTES_PER_CYCLE: f64 = 8.0;

/// One number for each host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Peak {
    /// Host a.
    pub sender: u64,
    /// Host b.
    pub receiver: u64,
}

/// What the wire did to frames.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Wire {
    /// Frames that it lost.
    pub lost: u64,
    /// Frames that it delivered twice.
    pub duplicated: u64,
    /// Frames that were overtaken.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
}

/// Which frames of a card RTL and firmware have handled.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Handled {
    /// Frames that RTL has sent by itself: data, acknowledgements, credit lists.
    pub rtl_sent: u64,
    /// Frames that firmware has sent.
    pub firmware_sent: u64,
    /// Frames that came and that firmware has not seen.
    pub rtl_received: u64,
    /// Frames that firmware was given.
    pub firmware_received: u64,
    /// Doorbells that brought their element.
    pub slots: u64,
}

/// Which frames RTL and firmware have handled.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct HandledBy {
    /// Events that RTL left to firmware, both cards (`F_FAST_EVENTS`).
    pub firmware_events: u64,
    /// Card a.
    pub sender: Handled,
    /// Card b.
    pub receiver: Handled,
}

impl HandledBy {
    fn frames(&self) -> String {
        let rtl = |h: &Handled| thousands(h.rtl_sent + h.rtl_received);
        let firmware = |h: &Handled| thousands(h.firmware_sent + h.firmware_received);
        let (a, b) = (&self.sender, &self.receiver);
        format!(
            "RTL {} and {}, firmware {} and {} (sent and received, cards a and b)",
            rtl(a),
            rtl(b),
            firmware(a),
            firmware(b)
        )
    }
}

/// All counters of both cards and their drivers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cards {
    /// Host a: `berth stat --json` at the end.
    pub sender: Value,
    /// Host b.
    pub receiver: Value,
}

/// Everything that the report says; the JSON file has these names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// What was sent.
    pub file: String,
    /// The demo's options.
    pub options: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether what host b wrote has the checksum of what host a read, computed outside of both.
    pub sha256_match: bool,
    /// Checksum of the original.
    pub sent_sha256: String,
    /// Checksum of the copy.
    pub received_sha256: String,
    /// Length of the file.
    pub bytes: u64,
    /// Frames on the wire, both directions, control frames included.
    pub frames: u64,
    /// Bytes of these frames.
    pub wire_bytes: u64,
    /// Data packets that were sent again.
    pub retransmitted_frames: u64,
    /// Control messages that were sent again.
    pub control_retransmitted_frames: u64,
    /// Data packets that found no buffer (invariant 1: 0).
    pub no_buffer_drops: u64,
    /// Data packets without a credit.
    pub no_credit_drops: u64,
    /// Frames that a card dropped because of their invariant CRC.
    pub bad_icrc_drops: u64,
    /// Credit lists that the receiver's card sent.
    pub credit_lists: u64,
    /// Credits in them.
    pub credits: u64,
    /// Credits per list.
    pub mean_credit_list: f64,
    /// Most bytes that were pinned at any time for the sending and for the receiving program.
    pub peak_pinned_bytes: Peak,
    /// Most bytes that were pinned at any time on each card, for all programs together.
    pub card_peak_pinned_bytes: Peak,
    /// Bytes still pinned on both hosts after the programs have ended.
    pub pinned_bytes_at_end: u64,
    /// Pinned-memory budget of each card.
    pub budget_bytes: Peak,
    /// Card cycles from the first credit to the last byte placed, without those in which no card had work
    /// because the emulated hosts had not got round to theirs.
    pub card_cycles: u64,
    /// Cycles of the same span in which no card had work and a host's access ended the wait.
    pub host_wait_cycles: u64,
    /// File bytes per card cycle.
    pub bytes_per_cycle: f64,
    /// Card cycles per file byte.
    pub cycles_per_byte: f64,
    /// Which frames RTL and firmware have handled.
    pub handled_by: HandledBy,
    /// Wall time from power-on to power-off. Says something about the simulation, nothing about the card.
    pub wall_seconds: f64,
    /// What the wire did.
    pub wire: Wire,
    /// What tshark says of the capture.
    pub wire_check: WireCheck,
    /// Path of the capture.
    pub capture: String,
    /// Path of the report.
    pub html: String,
    /// Paths of the waveforms.
    pub waveforms: Vec<String>,
    /// All counters.
    pub cards: Cards,
    /// The simulator's own statistics.
    pub simulator: Value,
}

impl Figures {
    /// Whether all checks hold.
    pub fn ok(&self) -> bool {
        self.verdicts().iter().all(|(ok, _)| *ok)
    }

    /// The checks, and whether they hold.
    fn verdicts(&self) -> Vec<(bool, String)> {
        let check = &self.wire_check;
        let within = self.card_peak_pinned_bytes.sender <= self.budget_bytes.sender
            && self.card_peak_pinned_bytes.receiver <= self.budget_bytes.receiver;
        vec![
            (self.sha256_match, format!("SHA-256 of both ends equal: {}", self.received_sha256)),
            (self.no_buffer_drops == 0, format!("packets that found no buffer: {}", self.no_buffer_drops)),
            (
                within && self.pinned_bytes_at_end == 0,
                format!("pinned bytes within the budget, {} at the end", self.pinned_bytes_at_end),
            ),
            (
                check.ok(),
                format!(
                    "{} RoCEv2 frames captured: tshark decodes {}, invariant CRC right in {}",
                    check.roce, check.decoded, check.icrc_correct
                ),
            ),
        ]
    }
}

/// Bytes as a person reads them: "4.0 MiB".
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// 1234567 as "1,234,567".
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// The short report for the terminal.
pub fn terminal(f: &Figures) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(out, "  {name:<22} {value}").ok();
    };
    line("moved", format!("{} ({} bytes) of {}", size(f.bytes), thousands(f.bytes), f.file));
    line(
        "card time",
        format!(
            "{} cycles: {:.3} per byte, {:.3} bytes per cycle (wire: {BYTES_PER_CYCLE}); {} more waiting for the hosts",
            thousands(f.card_cycles),
            f.cycles_per_byte,
            f.bytes_per_cycle,
            thousands(f.host_wait_cycles)
        ),
    );
    line("frames", format!("{} on the wire, {}", thousands(f.frames), size(f.wire_bytes)));
    line("frames handled by", f.handled_by.frames());
    line("decided by firmware", format!("{} events of the fast path", thousands(f.handled_by.firmware_events)));
    line(
        "credits",
        format!("{} in {} lists, {:.1} per list", thousands(f.credits), thousands(f.credit_lists), f.mean_credit_list),
    );
    line("retransmitted", format!("{} data, {} control", f.retransmitted_frames, f.control_retransmitted_frames));
    line(
        "the wire",
        format!(
            "lost {}, duplicated {}, reordered {}, corrupted {}",
            f.wire.lost, f.wire.duplicated, f.wire.reordered, f.wire.corrupted
        ),
    );
    let peak = |bytes: u64| format!("{} ({} of the file)", size(bytes), percent(bytes, f.bytes));
    line("peak pinned, sender", peak(f.peak_pinned_bytes.sender));
    line("peak pinned, receiver", peak(f.peak_pinned_bytes.receiver));
    line("wall time", format!("{:.0} s, two boots included", f.wall_seconds));
    for (ok, text) in f.verdicts() {
        let mark = if ok { console::style("✓").green() } else { console::style("✗").red() };
        writeln!(out, "{mark} {text}").ok();
    }
    writeln!(out, "report   {}\ncapture  {}", f.html, f.capture).ok();
    for path in &f.waveforms {
        writeln!(out, "waveform {path}").ok();
    }
    out
}

/// A curve: (card cycles, value).
pub type Curve = Vec<(f64, f64)>;

/// What is plotted. Card cycles are those of the simulator's common clock.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// File bytes that card a has sent.
    pub sent: Curve,
    /// File bytes that card b has placed in memory.
    pub placed: Curve,
    /// Credits that card b has announced and that have not landed.
    pub credits: Curve,
    /// Bytes pinned on host a.
    pub pinned_sender: Curve,
    /// Bytes pinned on host b.
    pub pinned_receiver: Curve,
    /// Cycles so far in which no card had work until a host's access.
    pub host_wait: Curve,
}

impl Samples {
    /// Reads the simulator's samples, and the drivers' ones from the share.
    ///
    /// # Errors
    /// When a file is missing or is not lines of JSON.
    pub fn read(simulator: &Path, share: &Path) -> Result<Self> {
        let mut samples = Self::default();
        // A card's own clock starts at its reset; the simulator says where that is on the common one.
        let mut clocks: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for line in lines(simulator)? {
            let get = |name: &str| line[name].as_f64().unwrap_or(0.0);
            let time = get("time");
            samples.host_wait.push((time, get("host_wait_cycles")));
            if line["card"] == "a" {
                samples.sent.push((time, get("bytes_sent")));
                clocks.entry("a").or_default().push((get("cycles"), time));
            } else {
                samples.placed.push((time, get("bytes_placed")));
                let outstanding = (get("credits_sent") - get("fast_landed")).max(0.0);
                samples.credits.push((time, outstanding));
                clocks.entry("b").or_default().push((get("cycles"), time));
            }
        }
        for role in Role::ALL {
            let clock = clocks.get(role.name()).map(Vec::as_slice).unwrap_or_default();
            let mut curve = Curve::new();
            for line in lines(&share.join(format!("pinned-{role}.jsonl")))? {
                if let (Some(cycles), Some(bytes)) = (line["cycles"].as_f64(), line["pinned_bytes"].as_f64()) {
                    curve.push((common_time(clock, cycles), bytes));
                }
            }
            match role {
                Role::A => samples.pinned_sender = curve,
                Role::B => samples.pinned_receiver = curve,
            }
        }
        // One clock, one total: the samples of both cards are one curve.
        samples.host_wait.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(samples)
    }

    /// Card cycles of the transfer, from the first credit to the last byte: with work, and waiting for hosts.
    #[must_use]
    pub fn cycles(&self) -> (u64, u64) {
        let (from, to) = self.span();
        let wait = value_at(&self.host_wait, to) - value_at(&self.host_wait, from);
        let wait = wait.clamp(0.0, to - from);
        ((to - from - wait) as u64, wait as u64)
    }

    /// Where something happens, with a margin.
    fn range(&self) -> (f64, f64) {
        let (from, to) = self.span();
        let margin = (to - from) * 0.03;
        ((from - margin).max(0.0), to + margin)
    }

    /// Where something happens: from the first credit or byte to the last byte. Counters fall when a host powers off
    /// and its card is reset; credits that are left then are ignored.
    fn span(&self) -> (f64, f64) {
        let mut range = (f64::MAX, f64::MIN);
        for (curve, bytes) in [(&self.sent, true), (&self.placed, true), (&self.credits, false)] {
            for pair in curve.windows(2).filter(|p| p[1].1 > p[0].1) {
                range.0 = range.0.min(pair[0].0);
                if bytes {
                    range.1 = range.1.max(pair[1].0);
                }
            }
        }
        if range.0 >= range.1 {
            let last = self.sent.last().map_or(1.0, |p| p.0);
            range = (0.0, last.max(1.0));
        }
        range
    }
}

fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    // The last line of a recorder that was ended may be cut.
    Ok(text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect())
}

/// A card's cycle on the common clock, between the two samples around it.
fn common_time(clock: &[(f64, f64)], cycles: f64) -> f64 {
    let after = clock.partition_point(|(c, _)| *c < cycles);
    match (after.checked_sub(1).and_then(|i| clock.get(i)), clock.get(after)) {
        (Some(a), Some(b)) if b.0 > a.0 => a.1 + (cycles - a.0) * (b.1 - a.1) / (b.0 - a.0),
        (Some(a), _) => a.1 + (cycles - a.0),
        (None, Some(b)) => b.1 - (b.0 - cycles),
        (None, None) => cycles,
    }
}

/// A curve's value, between the two points around it; flat before and after.
fn value_at(curve: &[(f64, f64)], x: f64) -> f64 {
    let after = curve.partition_point(|(c, _)| *c < x);
    match (after.checked_sub(1).and_then(|i| curve.get(i)), curve.get(after)) {
        (Some(a), Some(b)) => a.1 + (x - a.0) * (b.1 - a.1) / (b.0 - a.0),
        (Some(p), None) | (None, Some(p)) => p.1,
        (None, None) => 0.0,
    }
}

/// Width of the plots and of the room for their labels, in SVG units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 190.0;

struct Series<'a> {
    name: &'a str,
    class: &'a str,
    curve: &'a Curve,
}

/// One plot: a title, curves over card cycles, a scale from 0.
fn panel(
    out: &mut String,
    top: f64,
    title: &str,
    bytes: bool,
    range: (f64, f64),
    series: &[Series],
    line: Option<(f64, &str)>,
) {
    let plot_top = top + 30.0;
    let bottom = top + PANEL - 14.0;
    let clipped: Vec<(&Series, Curve)> = series.iter().map(|s| (s, clip(s.curve, range))).collect();
    let highest = clipped.iter().flat_map(|(_, c)| c).map(|p| p.1).fold(0.0, f64::max);
    let (max, step) = scale(highest.max(line.map_or(0.0, |(v, _)| if v < highest * 4.0 { v } else { 0.0 })), bytes);
    let y = |value: f64| bottom - value / max * (bottom - plot_top);
    let x = |time: f64| LEFT + (time - range.0) / (range.1 - range.0) * (WIDTH - LEFT - RIGHT);
    writeln!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>", top + 16.0, escape(title)).ok();
    let mut legend = WIDTH - RIGHT;
    for (s, _) in clipped.iter().rev() {
        legend -= s.name.chars().count() as f64 * 7.0;
        writeln!(
            out,
            "<text class=\"legend {0}\" x=\"{legend:.1}\" y=\"{1:.1}\">{2}</text>",
            s.class,
            top + 16.0,
            escape(s.name)
        )
        .ok();
        writeln!(
            out,
            "<rect class=\"{0}\" x=\"{1:.1}\" y=\"{2:.1}\" width=\"10\" height=\"10\" rx=\"2\"/>",
            s.class,
            legend - 16.0,
            top + 7.0
        )
        .ok();
        legend -= 34.0;
    }
    let mut tick = 0.0;
    while tick <= max * 1.0001 {
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>",
            WIDTH - RIGHT,
            y(tick)
        )
        .ok();
        let label = if bytes { size(tick as u64) } else { format!("{tick}") };
        writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            LEFT - 8.0,
            y(tick) + 4.0
        )
        .ok();
        tick += step;
    }
    if let Some((value, name)) = line
        && value <= max
    {
        writeln!(
            out,
            "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>",
            WIDTH - RIGHT,
            y(value)
        )
        .ok();
        writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT - 4.0,
            y(value) - 4.0,
            escape(name)
        )
        .ok();
    }
    for (s, curve) in &clipped {
        let Some(first) = curve.first() else { continue };
        let mut path = format!("M{:.1} {:.1}", x(first.0), y(first.1));
        for point in &curve[1..] {
            // A gauge keeps its value until the next sample.
            if s.class.contains("step") {
                write!(path, "H{:.1}V{:.1}", x(point.0), y(point.1)).ok();
            } else {
                write!(path, "L{:.1} {:.1}", x(point.0), y(point.1)).ok();
            }
        }
        let last = curve.last().unwrap_or(first);
        writeln!(
            out,
            "<path class=\"area {0}\" d=\"{path}L{1:.1} {bottom:.1}L{2:.1} {bottom:.1}Z\"/>",
            s.class,
            x(last.0),
            x(first.0)
        )
        .ok();
        writeln!(out, "<path class=\"curve {}\" d=\"{path}\"/>", s.class).ok();
    }
}

/// The part of a curve inside of the range, with its values at the edges, thinned to what can be seen.
fn clip(curve: &Curve, range: (f64, f64)) -> Curve {
    let mut out = Curve::new();
    let before = curve.iter().rev().find(|p| p.0 <= range.0).map_or(0.0, |p| p.1);
    out.push((range.0, before));
    let inside: Vec<_> = curve.iter().copied().filter(|p| p.0 > range.0 && p.0 < range.1).collect();
    // Of many samples in one pixel column the extremes are kept, so that no peak is lost.
    let columns = 800.0;
    let mut i = 0;
    while i < inside.len() {
        let column = ((inside[i].0 - range.0) / (range.1 - range.0) * columns) as i64;
        let end =
            inside[i..].partition_point(|p| ((p.0 - range.0) / (range.1 - range.0) * columns) as i64 <= column) + i;
        let group = &inside[i..end];
        let low = group.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let high = group.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut kept: Vec<_> = [group.first(), low, high, group.last()].into_iter().flatten().copied().collect();
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.dedup();
        out.extend(kept);
        i = end;
    }
    let last = curve.iter().rev().find(|p| p.0 <= range.1).map_or(before, |p| p.1);
    out.push((range.1, last));
    out
}

/// Highest value and step of a scale with four or five round ticks.
fn scale(highest: f64, bytes: bool) -> (f64, f64) {
    let base: f64 = if bytes { 2.0 } else { 10.0 };
    let rough = (highest * 0.98 / 4.0).max(if bytes { 1024.0 } else { 1.0 });
    let power = base.powf(rough.log(base).floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .filter(|f| !bytes || *f <= 2.0)
        .map(|f| f * power)
        .find(|s| *s >= rough && (bytes || s.fract() == 0.0))
        .unwrap_or(rough.ceil());
    // A little more than a tick needs no further one.
    ((highest / step - 0.02).ceil().max(1.0) * step, step)
}

/// All plots as one SVG picture.
pub fn svg(f: &Figures, samples: &Samples) -> String {
    let range = samples.range();
    let mut out = String::new();
    let height = 3.0 * PANEL + 46.0;
    writeln!(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Bytes moved, credits outstanding and bytes pinned over card cycles\">").ok();
    let moved = [
        Series { name: "sent", class: "c1", curve: &samples.sent },
        Series { name: "placed in the receiver's memory", class: "c2", curve: &samples.placed },
    ];
    panel(&mut out, 0.0, "Bytes moved", true, range, &moved, None);
    let credits = [Series { name: "announced, not yet landed", class: "c3 step", curve: &samples.credits }];
    panel(&mut out, PANEL, "Credits outstanding", false, range, &credits, None);
    let pinned = [
        Series { name: "sender", class: "c1 step", curve: &samples.pinned_sender },
        Series { name: "receiver", class: "c2 step", curve: &samples.pinned_receiver },
    ];
    let budget = f.budget_bytes.sender.max(f.budget_bytes.receiver) as f64;
    panel(&mut out, 2.0 * PANEL, "Bytes pinned", true, range, &pinned, Some((budget, "budget")));
    // One axis for all three.
    let bottom = 3.0 * PANEL - 14.0;
    let (_, step) = scale(range.1 - range.0, false);
    let mut tick = 0.0;
    while tick <= range.1 - range.0 {
        let x = LEFT + tick / (range.1 - range.0) * (WIDTH - LEFT - RIGHT);
        writeln!(
            out,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\"/>",
            bottom + 5.0
        )
        .ok();
        writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 19.0,
            thousands(tick as u64)
        )
        .ok();
        tick += step;
    }
    writeln!(
        out,
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">card cycles since the first credit</text>",
        (WIDTH + LEFT) / 2.0,
        bottom + 40.0
    )
    .ok();
    out += "</svg>\n";
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "
:root{--bg:#fbfbf9;--fg:#1d2327;--soft:#667078;--card:#fff;--line:#e3e5e4;--c1:#1668b8;--c2:#d9730d;--c3:#21835c;--bad:#c0392b;--good:#21835c}
@media(prefers-color-scheme:dark){:root{--bg:#15191c;--fg:#e8eaea;--soft:#98a2a8;--card:#1d2327;--line:#31393e;--c1:#5aa9f2;--c2:#f0a04b;--c3:#5cc99a;--bad:#ef7a6d;--good:#5cc99a}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:1020px;margin:0 auto;padding:2.5rem 1.25rem 4rem}h1{font-size:1.9rem;margin:0 0 .2rem;letter-spacing:-.01em}h2{font-size:1.15rem;margin:2.4rem 0 .8rem}
p{margin:.3rem 0}.soft{color:var(--soft)}.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(195px,1fr));gap:.8rem;margin:1.6rem 0}
.tile,figure{background:var(--card);border:1px solid var(--line);border-radius:10px}.tile{padding:.85rem 1rem}.tile b{display:block;font-size:1.5rem;font-variant-numeric:tabular-nums;line-height:1.3}.tile span{color:var(--soft);font-size:.85rem}
ul.verdicts{list-style:none;padding:0;margin:1rem 0}ul.verdicts li{padding:.15rem 0;overflow-wrap:anywhere}.good::before{content:'✓ ';color:var(--good);font-weight:700}.bad::before{content:'✗ ';color:var(--bad);font-weight:700}
figure{margin:0;padding:1rem}svg{width:100%;height:auto;display:block;font:12px system-ui,sans-serif}svg text{fill:var(--soft)}svg .title{fill:var(--fg);font-size:14px;font-weight:600}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.limit{stroke:var(--bad);stroke-dasharray:5 4}.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}.area{opacity:.1;stroke:none}
.curve.c1{stroke:var(--c1)}.curve.c2{stroke:var(--c2)}.curve.c3{stroke:var(--c3)}.area.c1,rect.c1{fill:var(--c1)}.area.c2,rect.c2{fill:var(--c2)}.area.c3,rect.c3{fill:var(--c3)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}th,td{text-align:left;padding:.28rem .6rem .28rem 0;border-bottom:1px solid var(--line)}td.n,th.n{text-align:right}
details{margin-top:1rem}summary{cursor:pointer;font-weight:600}code{font:.88em ui-monospace,monospace;overflow-wrap:anywhere}
";

/// The whole report as one HTML file.
pub fn html(f: &Figures, samples: &Samples) -> String {
    let mut out = String::new();
    let peak = f.peak_pinned_bytes.sender.max(f.peak_pinned_bytes.receiver);
    let tiles = [
        (size(f.bytes), "moved from host a to host b".to_owned()),
        (thousands(f.no_buffer_drops), "packets that found no buffer".to_owned()),
        (size(peak), format!("pinned at most for either program: {} of the file", percent(peak, f.bytes))),
        (
            thousands(f.credits),
            format!("credits in {} lists, {:.1} per list", thousands(f.credit_lists), f.mean_credit_list),
        ),
        (thousands(f.frames), format!("frames on the wire, {}", size(f.wire_bytes))),
        (thousands(f.retransmitted_frames), "data packets sent again".to_owned()),
        (
            thousands(f.card_cycles),
            format!("card cycles with work; {} more waiting for the emulated hosts", thousands(f.host_wait_cycles)),
        ),
        (
            format!("{:.3}", f.cycles_per_byte),
            format!(
                "card cycles per byte: {:.2} bytes per cycle; the wire carries {BYTES_PER_CYCLE}",
                f.bytes_per_cycle
            ),
        ),
        (thousands(f.handled_by.firmware_events), "events of the fast path that firmware had to decide on".to_owned()),
    ];
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Berth: {0} between two hosts</title>\n<style>{STYLE}</style>\n<main>\n<h1>{0} between two hosts through two Berth cards</h1>\n\
         <p class=\"soft\">{1} · <code>cargo xtask demo {2}</code></p>\n<ul class=\"verdicts\">\n",
        size(f.bytes),
        escape(&f.file),
        escape(&f.options)
    )
    .ok();
    for (ok, text) in f.verdicts() {
        writeln!(out, "<li class=\"{}\">{}</li>", if ok { "good" } else { "bad" }, escape(&text)).ok();
    }
    out += "</ul>\n<div class=\"tiles\">\n";
    for (value, text) in &tiles {
        writeln!(out, "<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape(value), escape(text)).ok();
    }
    write!(out, "</div>\n<figure>\n{}</figure>\n", svg(f, samples)).ok();
    out += "<p>Each step up of the credits is one list, in which host b tells host a the sizes of receive buffers that it has \
            posted; each message uses one up. So the bytes placed follow the bytes sent: nothing leaves that has no buffer. Pinned \
            memory stays below both, because the sender pins only the blocks that are about to leave, and the receiver only the \
            buffers that are filled next.</p>\n\
            <p class=\"soft\">The drivers sample pinned bytes, the simulator the rest, both over card cycles; wall time plays no part. \
            Counters, cycles and curves are those of a whole card: here nothing but this transfer.</p>\n";
    out += "<h2>Pinned memory</h2>\n<table><tr><th>Program<th class=\"n\">peak<th class=\"n\">of the file\
            <th class=\"n\">peak of its card, all programs<th class=\"n\">budget of the card</tr>\n";
    let (of_card, budget) = (&f.card_peak_pinned_bytes, &f.budget_bytes);
    for (name, peak, of_card, budget) in [
        ("a, sends", f.peak_pinned_bytes.sender, of_card.sender, budget.sender),
        ("b, receives", f.peak_pinned_bytes.receiver, of_card.receiver, budget.receiver),
    ] {
        writeln!(
            out,
            "<tr><td>{name}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}</tr>",
            size(peak),
            percent(peak, f.bytes),
            size(of_card),
            size(budget)
        )
        .ok();
    }
    out += "</table>\n<h2>Who handled the frames</h2>\n<table><tr><th>Card<th class=\"n\">sent by RTL<th class=\"n\">sent by firmware\
            <th class=\"n\">received by RTL<th class=\"n\">received by firmware<th class=\"n\">elements with their doorbell</tr>\n";
    for (name, h) in [("a, sends", f.handled_by.sender), ("b, receives", f.handled_by.receiver)] {
        write!(out, "<tr><td>{name}").ok();
        for count in [h.rtl_sent, h.firmware_sent, h.rtl_received, h.firmware_received, h.slots] {
            write!(out, "<td class=\"n\">{}", thousands(count)).ok();
        }
        out += "</tr>\n";
    }
    out += "</table>\n<h2>The wire</h2>\n<table><tr><th>What<th class=\"n\">frames</tr>\n";
    for (name, count) in [
        ("lost by the wire", f.wire.lost),
        ("delivered twice", f.wire.duplicated),
        ("overtaken by later ones", f.wire.reordered),
        ("with a flipped bit", f.wire.corrupted),
        ("dropped by a card because of the invariant CRC", f.bad_icrc_drops),
    ] {
        writeln!(out, "<tr><td>{name}<td class=\"n\">{}</tr>", thousands(count)).ok();
    }
    for (opcode, count) in &f.wire_check.opcodes {
        writeln!(
            out,
            "<tr><td>{} (BTH opcode {opcode:#04x})<td class=\"n\">{}</tr>",
            WireCheck::opcode_name(*opcode),
            thousands(*count)
        )
        .ok();
    }
    write!(
        out,
        "</table>\n<p class=\"soft\">Decoded by {}. The capture <code>{}</code> has every frame as its card sent it.</p>\n",
        escape(&f.wire_check.tshark),
        escape(&f.capture)
    )
    .ok();
    out += "<details><summary>All counters</summary>\n<table><tr><th>Counter<th class=\"n\">host a<th class=\"n\">host b</tr>\n";
    for layer in ["rtl", "fw", "drv"] {
        let Some(map) = f.cards.sender[layer].as_object() else { continue };
        for (name, value) in map {
            let other = &f.cards.receiver[layer][name];
            writeln!(
                out,
                "<tr><td><code>{layer}.{}</code><td class=\"n\">{value}<td class=\"n\">{other}</tr>",
                escape(name)
            )
            .ok();
        }
    }
    out += "</table></details>\n</main>\n</html>\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_read_well() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(4 << 20), "4.0 MiB");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(123), "123");
    }

    #[test]
    fn scales_have_round_steps_that_reach_the_highest_value() {
        assert_eq!(scale(4.0 * 1024.0 * 1024.0, true), (4.0 * 1024.0 * 1024.0, 1024.0 * 1024.0));
        assert_eq!(scale(33.0, false), (40.0, 10.0));
        assert_eq!(scale(0.0, false), (1.0, 1.0));
        for highest in [1.0, 7.0, 999.0, 1e6, 123_456_789.0] {
            let (max, step) = scale(highest, false);
            assert!(max >= highest && max / step <= 6.0, "{highest}: {max} {step}");
        }
    }

    #[test]
    fn clipped_curves_keep_their_peaks() {
        let curve: Curve = (0..100_000).map(|i| (f64::from(i), if i == 54_321 { 9.0 } else { 1.0 })).collect();
        let clipped = clip(&curve, (1000.0, 90_000.0));
        assert!(clipped.len() < 4000);
        assert!(clipped.contains(&(54_321.0, 9.0)));
        assert_eq!(clipped.first(), Some(&(1000.0, 1.0)));
        assert_eq!(clipped.last(), Some(&(90_000.0, 1.0)));
    }

    #[test]
    fn card_clocks_are_mapped_between_samples() {
        let clock = [(0.0, 100.0), (10.0, 110.0), (20.0, 140.0)];
        assert!((common_time(&clock, 15.0) - 125.0).abs() < 1e-9);
        assert!((common_time(&clock, 25.0) - 145.0).abs() < 1e-9);
        assert!((common_time(&[], 7.0) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn waiting_for_hosts_is_not_card_time() {
        let samples = Samples {
            credits: vec![(0.0, 0.0), (100.0, 0.0), (200.0, 3.0), (8000.0, 0.0)],
            // The last one is the card's reset.
            placed: vec![(0.0, 0.0), (900.0, 5.0), (1100.0, 7.0), (9000.0, 7.0), (9100.0, 0.0)],
            host_wait: vec![(0.0, 0.0), (100.0, 50.0), (500.0, 350.0), (1100.0, 350.0), (9000.0, 8000.0)],
            ..Samples::default()
        };
        // placed changes in (0, 900) already
        assert_eq!(samples.cycles(), (750, 350));
        assert_eq!(Samples::default().cycles(), (1, 0));
    }

    #[test]
    fn json_has_every_key_that_the_help_promises() {
        let json = serde_json::to_value(Figures::default()).expect("plain data");
        for key in [
            "sha256_match",
            "bytes",
            "frames",
            "retransmitted_frames",
            "no_buffer_drops",
            "credit_lists",
            "credits",
            "peak_pinned_bytes.sender",
            "peak_pinned_bytes.receiver",
            "card_peak_pinned_bytes.sender",
            "card_peak_pinned_bytes.receiver",
            "pinned_bytes_at_end",
            "card_cycles",
            "bytes_per_cycle",
            "cycles_per_byte",
            "handled_by.firmware_events",
            "handled_by.sender.rtl_sent",
            "handled_by.receiver.firmware_received",
            "wire.lost",
            "wire.duplicated",
            "wire.reordered",
            "wire.corrupted",
        ] {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert!(json.pointer(&pointer).is_some(), "{key}");
        }
    }

    #[test]
    fn report_says_what_failed() {
        let mut f = Figures { sha256_match: true, ..Figures::default() };
        f.wire_check.roce = 5;
        f.wire_check.decoded = 5;
        f.wire_check.icrc_correct = 5;
        assert!(f.ok());
        f.no_buffer_drops = 1;
        assert!(!f.ok());
        assert!(html(&f, &Samples::default()).contains("<li class=\"bad\">packets that found no buffer: 1"));
    }
}
