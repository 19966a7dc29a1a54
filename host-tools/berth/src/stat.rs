// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth stat`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use clap::Args;
use libberth::{Device, Named};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::file;

/// Counters.
#[derive(Debug, Args)]
pub struct Stat {
    /// Show zero counters, too.
    #[arg(long)]
    all: bool,
    /// Show what has changed, again and again, until interrupted. After a reset of the card, which is told, its own
    /// counters begin at 0.
    #[arg(long)]
    watch: bool,
    /// Append samples to this file as JSON lines until interrupted: card cycles, bytes sent and placed, credits
    /// outstanding, bytes pinned, … All of them are the card's, of all processes together; when `resets` changes, the
    /// others but the pinned bytes have begun at 0.
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    record: Option<PathBuf>,
    /// Milliseconds between two samples.
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Stop after this many samples.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// All counters as `{"rtl": {"tx_frames": 1, …}, "fw": {…}, "drv": {…}}`.
fn to_json(counters: &[Named]) -> Value {
    let mut layers = Map::new();
    for counter in counters {
        layers
            .entry(counter.layer)
            .or_insert_with(|| json!({}))
            .as_object_mut()
            .expect("made as an object")
            .insert(counter.name.to_lowercase(), counter.value.into());
    }
    layers.into()
}

/// All figures at one time.
struct Sample {
    cycles: u64,
    counters: Vec<Named>,
}

impl Sample {
    /// A counter's value.
    fn value(&self, layer: &str, name: &str) -> Option<u64> {
        self.counters.iter().find(|n| n.layer == layer && n.name == name).map(|n| n.value)
    }

    /// How often the card was reset between `before` and now, as far as it can be told.
    fn resets_since(&self, before: &Self) -> u64 {
        let resets = |sample: &Self| sample.value("drv", "RESETS").unwrap_or(0);
        // The driver counts them; a card clock that has gone back shows one as well.
        resets(self).saturating_sub(resets(before)).max(u64::from(self.cycles < before.cycles))
    }

    /// The gain of each counter since `before`. A reset takes the card's own counters, of RTL and firmware, to 0; the
    /// driver's go on.
    fn changes(&self, before: &Self) -> Vec<i64> {
        let anew = self.resets_since(before) > 0;
        let change = |n: &Named| {
            let old = if anew && n.layer != "drv" { 0 } else { before.value(n.layer, n.name).unwrap_or(0) };
            n.value.wrapping_sub(old).cast_signed()
        };
        self.counters.iter().map(change).collect()
    }
}

impl Stat {
    /// Shows or records.
    pub fn run(&self, device: &Device, as_json: bool) -> Result<(), Failure> {
        if let Some(path) = &self.record {
            return self.record(device, path);
        }
        let mut before: Option<Sample> = None;
        let mut shown = 0;
        loop {
            let now = Sample { cycles: device.info()?.cycles, counters: device.counters()?.iter().collect() };
            if as_json {
                let mut object = to_json(&now.counters);
                object["cycles"] = now.cycles.into();
                println!("{object}");
            } else {
                print!("{}", self.text(&now, before.as_ref()));
            }
            shown += 1;
            if !self.watch && self.count.is_none() || self.count.is_some_and(|n| shown >= n) {
                return Ok(());
            }
            before = Some(now);
            thread::sleep(Duration::from_millis(self.interval));
        }
    }

    fn text(&self, now: &Sample, before: Option<&Sample>) -> String {
        let mut out = String::new();
        let resets = before.map_or(0, |before| now.resets_since(before));
        if resets > 0 {
            let times = if resets == 1 { String::new() } else { format!(" {resets} times") };
            out += &format!("the card was reset{times}: its cycles and its rtl and fw counters have begun at 0\n");
        }
        out += &format!("{:4} {:24} {:>16}\n", "card", "cycles", now.cycles);
        let changes = before.map(|before| now.changes(before));
        for (n, counter) in now.counters.iter().enumerate() {
            let change = changes.as_ref().map(|c| c[n]);
            let wanted = change.map_or(counter.value != 0, |change| change != 0);
            if wanted || self.all {
                out += &format!(
                    "{:4} {:24} {:>16} {:>12}  {}\n",
                    counter.layer,
                    counter.name.to_lowercase(),
                    counter.value,
                    change.map_or_else(String::new, |change| format!("{change:+}")),
                    counter.text
                );
            }
        }
        if before.is_some() {
            out += "\n";
        }
        out
    }

    fn record(&self, device: &Device, path: &Path) -> Result<(), Failure> {
        let failed = |e| Failure::File(path.to_owned(), e);
        let mut file = file::append(path)?;
        let start = Instant::now();
        for n in 1.. {
            // A line is written whole, so that a reader of an interrupted record sees whole lines.
            let line = format!("{}\n", sample(device, start)?);
            file.write_all(line.as_bytes()).map_err(failed)?;
            if self.count == Some(n) {
                break;
            }
            thread::sleep(Duration::from_millis(self.interval));
        }
        Ok(())
    }
}

fn sample(device: &Device, start: Instant) -> Result<Value, Failure> {
    let cycles = device.info()?.cycles;
    let n = device.counters()?;
    Ok(json!({
        "ms": start.elapsed().as_millis() as u64,
        "cycles": cycles,
        "tx_frames": n.rtl(c::C_TX_FRAMES), "rx_frames": n.rtl(c::C_RX_FRAMES),
        "tx_bytes": n.rtl(c::C_TX_BYTES), "rx_bytes": n.rtl(c::C_RX_BYTES),
        "bytes_sent": n.bytes_sent(), "bytes_placed": n.bytes_placed(),
        "retransmitted": n.retransmitted(), "no_credit": n.fw(c::F_NO_CREDIT),
        "lists_sent": n.rtl(c::C_LISTS_SENT), "credits_sent": n.rtl(c::C_CREDITS_SENT),
        "pinned_bytes": n.pinned(), "peak_pinned_bytes": n.pinned_peak(),
        "resets": n.drv(c::D_RESETS),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cycles: u64, frames: u64, gauge: u64, resets: u64) -> Sample {
        let named = |layer, name, value| Named { layer, name, text: "text", value };
        let counters = vec![
            named("rtl", "TX_FRAMES", frames),
            named("fw", "CREDITS_OUTSTANDING", gauge),
            named("drv", "PINNED", 8192 * resets),
            named("drv", "RESETS", resets),
        ];
        Sample { cycles, counters }
    }

    fn stat() -> Stat {
        Stat { all: false, watch: true, record: None, interval: 1, count: None }
    }

    #[test]
    fn f10_a_reset_is_told_as_one_and_changes_begin_at_0() {
        let (before, after) = (sample(1_000_000, 500, 3, 1), sample(2000, 7, 0, 2));
        assert_eq!(after.changes(&before), [7, 0, 8192, 1]);
        let text = stat().text(&after, Some(&before));
        assert!(text.starts_with("the card was reset: "), "{text}");
        assert!(text.contains("+7") && !text.contains('-') && !text.contains("credits_outstanding"), "{text}");
        // A clock that has gone back shows a reset too, and one that has overtaken its old value does not hide it.
        assert!(stat().text(&sample(5, 7, 0, 1), Some(&before)).starts_with("the card was reset: "));
        assert!(stat().text(&sample(u64::MAX, 900, 0, 4), Some(&before)).starts_with("the card was reset 3 times: "));
        // Without a reset a gauge may fall, and no reset is reported.
        let text = stat().text(&sample(1_000_001, 501, 1, 1), Some(&before));
        assert!(!text.contains("was reset") && text.contains("+1") && text.contains("-2"), "{text}");
        assert!(!stat().text(&before, None).contains("was reset"));
    }
}
