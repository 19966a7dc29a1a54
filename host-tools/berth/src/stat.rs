// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth stat`.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use clap::Args;
use libberth::{Counters, Device};
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// Counters.
#[derive(Debug, Args)]
pub struct Stat {
    /// Show zero counters, too.
    #[arg(long)]
    all: bool,
    /// Show what has changed, again and again, until interrupted.
    #[arg(long)]
    watch: bool,
    /// Append samples to this file as JSON lines until interrupted: card cycles, bytes sent and placed, credits
    /// outstanding, bytes pinned, …
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
pub fn to_json(counters: &Counters) -> Value {
    let mut layers = Map::new();
    for counter in counters.iter() {
        layers
            .entry(counter.layer)
            .or_insert_with(|| json!({}))
            .as_object_mut()
            .expect("made as an object")
            .insert(counter.name.to_lowercase(), counter.value.into());
    }
    layers.into()
}

impl Stat {
    /// Shows or records.
    pub fn run(&self, device: &Device, as_json: bool) -> Result<(), Failure> {
        if let Some(path) = &self.record {
            return self.record(device, path);
        }
        let mut before: Option<Counters> = None;
        let mut shown = 0;
        loop {
            let cycles = device.info()?.cycles;
            let counters = device.counters()?;
            if as_json {
                let mut object = to_json(&counters);
                object["cycles"] = cycles.into();
                println!("{object}");
            } else {
                self.show(cycles, &counters, before.as_ref());
            }
            shown += 1;
            if !self.watch && self.count.is_none() || self.count.is_some_and(|n| shown >= n) {
                return Ok(());
            }
            before = Some(counters);
            thread::sleep(Duration::from_millis(self.interval));
        }
    }

    fn show(&self, cycles: u64, now: &Counters, before: Option<&Counters>) {
        println!("{:4} {:24} {cycles:>16}", "card", "cycles");
        let old: Vec<u64> = before.map_or_else(Vec::new, |b| b.iter().map(|n| n.value).collect());
        for (n, counter) in now.iter().enumerate() {
            let change = counter.value.wrapping_sub(old.get(n).copied().unwrap_or(0)).cast_signed();
            let wanted = if before.is_some() { change != 0 } else { counter.value != 0 };
            if wanted || self.all {
                let change = if before.is_some() { format!("{change:+}") } else { String::new() };
                println!(
                    "{:4} {:24} {:>16} {change:>12}  {}",
                    counter.layer,
                    counter.name.to_lowercase(),
                    counter.value,
                    counter.text
                );
            }
        }
        if before.is_some() {
            println!();
        }
    }

    fn record(&self, device: &Device, path: &PathBuf) -> Result<(), Failure> {
        let failed = |e| Failure::File(path.clone(), e);
        let mut file = File::options().create(true).append(true).open(path).map_err(failed)?;
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
        "pieces": n.fw(c::F_PIECES), "retransmitted": n.retransmitted(),
        "no_buffer": n.fw(c::F_NO_BUFFER),
        "lists_sent": n.rtl(c::C_LISTS_SENT), "credits_sent": n.rtl(c::C_CREDITS_SENT),
        "credits_outstanding": n.fw(c::F_CREDITS_OUTSTANDING),
        "pinned_bytes": n.pinned(), "peak_pinned_bytes": n.pinned_peak(),
    }))
}
