// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket: one line of words in, one line of JSON out.
//!
//! | request | effect |
//! |---|---|
//! | `stats` | statistics of wires and cards |
//! | `hold [a] [after N]` | frames that card a sends stay at the wire (after N more); without a card, those of all |
//! | `release [a] [N]` | lets held frames go; with N, that many, and the wire stays held |
//! | `wait a held N [timeout MS]` | answers when at least N frames of card a are held |
//! | `unplug a`, `replug a` | surprise removal of card a, and its return |
//! | `stall a`, `unstall a` | card a hangs (no DMA, no frames; registers answer), and goes on |
//! | `faults [loss=P] [dup=P] [reorder=P] [corrupt=P] [control=P] [seed=N]` | changes the faults named (`control`: frames of the control connection are lost), reports all |
//! | `trace a FILE`, `trace a off` | waveform of card a |
//! | `quit` | ends the simulator |
//!
//! Answers have `"ok": true`, or `"ok": false` and `"error"`.

use crate::bridge::Bridge;
use crate::device::Slot;
use crate::link::{Link, Request};
use crate::wire::{DirectionStats, Faults};
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tracing::{error, info};

/// Longest request line in bytes.
const MAX_LINE: u64 = 4096;
/// `wait` gives up after this time if the request does not say otherwise.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Everything that the control socket reaches.
pub struct Simulator {
    /// The cards, in the order of their names.
    pub slots: Vec<Arc<Slot>>,
    /// The ends that lead out of the simulator.
    pub bridges: Vec<Arc<Bridge>>,
    /// Told when a client asks the simulator to end.
    pub quit: Sender<()>,
}

fn direction(s: &DirectionStats, held: usize) -> Value {
    json!({
        "frames": s.frames, "bytes": s.bytes, "lost": s.lost, "duplicated": s.duplicated,
        "reordered": s.reordered, "corrupted": s.corrupted, "delivered": s.delivered,
        "unplugged": s.unplugged, "waited": s.waited, "late": s.late, "latest": s.latest, "busy_cycles": s.busy_cycles, "held": held,
    })
}

/// The figures of the whole run: wires first, then `cards` as their threads report them, then bridges.
pub fn statistics(slots: &[Arc<Slot>], bridges: &[Arc<Bridge>], cards: Vec<Value>) -> Value {
    let mut sum = DirectionStats::default();
    let mut directions = vec![];
    let ends: Vec<(&str, &Arc<Link>, usize)> = (slots.iter().map(|s| (s.name.as_str(), &s.link, s.end)))
        .chain(bridges.iter().map(|b| (b.name.as_str(), &b.link, b.end)))
        .collect();
    for &(name, link, end) in &ends {
        let s = link.direction(end);
        sum.frames += s.frames;
        sum.bytes += s.bytes;
        sum.lost += s.lost;
        sum.duplicated += s.duplicated;
        sum.reordered += s.reordered;
        sum.corrupted += s.corrupted;
        sum.delivered += s.delivered;
        sum.unplugged += s.unplugged;
        sum.waited += s.waited;
        sum.late += s.late;
        sum.latest = sum.latest.max(s.latest);
        sum.busy_cycles += s.busy_cycles;
        let mut value = direction(&s, link.held(end));
        if let Value::Object(map) = &mut value {
            map.insert("from".into(), json!(name));
        }
        directions.push(value);
    }
    let held = ends.iter().map(|(_, link, end)| link.held(*end)).sum();
    let mut wire = direction(&sum, held);
    if let Value::Object(map) = &mut wire {
        map.insert("directions".into(), Value::Array(directions));
        // Each wire once.
        let quiet: Vec<_> = ends.iter().filter(|(_, _, end)| *end == 0).map(|(_, link, _)| link.quiet()).collect();
        map.insert("host_wait_cycles".into(), json!(quiet.iter().map(|q| q.host).sum::<u64>()));
        map.insert("timer_wait_cycles".into(), json!(quiet.iter().map(|q| q.timer).sum::<u64>()));
    }
    let cycles = cards.iter().filter_map(|c| c["time"].as_u64()).max().unwrap_or(0);
    let bridges: Vec<_> = bridges.iter().map(|b| b.report()).collect();
    json!({ "cycles": cycles, "wire": wire, "cards": cards, "bridges": bridges })
}

fn faults_json(f: &Faults) -> Value {
    json!({ "loss": f.loss, "dup": f.dup, "reorder": f.reorder, "corrupt": f.corrupt, "control": f.control, "seed": f.seed })
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is not a number that fits here"))
}

impl Simulator {
    fn slot(&self, name: &str) -> Result<&Arc<Slot>, String> {
        self.slots.iter().find(|s| s.name == name).ok_or_else(|| {
            let names: Vec<_> = self.slots.iter().map(|s| s.name.as_str()).collect();
            format!("no card `{name}`; there are: {}", names.join(", "))
        })
    }

    // The cards that a request is for: the one named first, or all. Also the words that follow.
    fn cards<'a, 'w>(&'a self, words: &'w [&'w str]) -> (Vec<&'a Arc<Slot>>, &'w [&'w str]) {
        match words.split_first() {
            Some((name, rest)) if self.slot(name).is_ok() => (self.slot(name).into_iter().collect(), rest),
            _ => (self.slots.iter().collect(), words),
        }
    }

    fn set_faults(&self, words: &[&str]) -> Result<Value, String> {
        let links: Vec<&Arc<Link>> = self.slots.iter().map(|s| &s.link).collect();
        let mut faults = links.first().map(|l| l.faults()).unwrap_or_default();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not KEY=VALUE"))?;
            match key {
                "loss" => faults.loss = number(value)?,
                "dup" => faults.dup = number(value)?,
                "reorder" => faults.reorder = number(value)?,
                "corrupt" => faults.corrupt = number(value)?,
                "control" => faults.control = number(value)?,
                "seed" => faults.seed = number(value)?,
                _ => return Err(format!("no fault `{key}`; there are: loss, dup, reorder, corrupt, control, seed")),
            }
        }
        if !faults.valid() {
            return Err("probabilities lie between 0 and 1".into());
        }
        links.iter().for_each(|l| l.set_faults(faults));
        Ok(faults_json(&faults))
    }

    /// Carries out one request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn execute(&self, line: &str) -> Result<Value, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&command, rest) = words.split_first().ok_or("empty request")?;
        match command {
            "stats" => Ok(statistics(&self.slots, &self.bridges, self.slots.iter().map(|s| s.report()).collect())),
            "hold" => {
                let (cards, rest) = self.cards(rest);
                let after = match rest {
                    [] => 0,
                    ["after", n] => number(n)?,
                    _ => return Err("usage: hold [CARD] [after N]".into()),
                };
                cards.iter().for_each(|s| s.link.hold(s.end, after));
                Ok(json!({}))
            }
            "release" => {
                let (cards, rest) = self.cards(rest);
                let count = match rest {
                    [] => None,
                    [n] => Some(number(n)?),
                    _ => return Err("usage: release [CARD] [N]".into()),
                };
                let released: usize = cards.iter().map(|s| s.link.release(s.end, count)).sum();
                Ok(json!({ "released": released }))
            }
            "wait" => {
                let (name, count, timeout) = match rest {
                    [name, "held", n] => (name, number(n)?, WAIT_TIMEOUT),
                    [name, "held", n, "timeout", ms] => (name, number(n)?, Duration::from_millis(number(ms)?)),
                    _ => return Err("usage: wait CARD held N [timeout MS]".into()),
                };
                let slot = self.slot(name)?;
                if slot.link.wait_held(slot.end, count, timeout) {
                    Ok(json!({ "held": slot.link.held(slot.end) }))
                } else {
                    Err(format!("only {} frames held", slot.link.held(slot.end)))
                }
            }
            "unplug" | "replug" => {
                let [name] = rest else { return Err(format!("usage: {command} CARD")) };
                self.slot(name)?.unplug(command == "unplug");
                Ok(json!({}))
            }
            "stall" | "unstall" => {
                let [name] = rest else { return Err(format!("usage: {command} CARD")) };
                self.slot(name)?.stall(command == "stall");
                Ok(json!({}))
            }
            "faults" => self.set_faults(rest),
            "trace" => {
                let [name, file] = rest else { return Err("usage: trace CARD FILE|off".into()) };
                let file = (*file != "off").then(|| PathBuf::from(file));
                let answer = self.slot(name)?.ask(|reply| Request::Trace { file, reply });
                answer.recv().map_err(|_| "the simulator is ending".to_string())?.map(|()| json!({}))
            }
            "quit" => {
                // Without a receiver the simulator is ending already.
                let _ = self.quit.send(());
                Ok(json!({}))
            }
            _ => Err(format!("no request `{command}`")),
        }
    }

    /// Carries out one request; the answer is one line of JSON.
    pub fn answer(&self, line: &str) -> Value {
        match self.execute(line) {
            Ok(Value::Object(map)) => {
                let mut answer = Map::new();
                answer.insert("ok".into(), Value::Bool(true));
                answer.extend(map);
                Value::Object(answer)
            }
            Ok(other) => json!({ "ok": true, "value": other }),
            Err(error) => json!({ "ok": false, "error": error }),
        }
    }

    fn client(&self, stream: UnixStream) -> io::Result<()> {
        let mut writer = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if io::Read::take(&mut reader, MAX_LINE).read_line(&mut line)? == 0 {
                return Ok(());
            }
            if !line.ends_with('\n') && line.len() as u64 >= MAX_LINE {
                return writeln!(writer, "{}", json!({ "ok": false, "error": "request too long" }));
            }
            info!("control: {}", line.trim_end());
            writeln!(writer, "{}", self.answer(&line))?;
        }
    }
}

/// Serves the control socket for ever, each client on its own thread.
pub fn serve(listener: &UnixListener, simulator: &Arc<Simulator>) {
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                error!("control socket: {e}");
                return;
            }
        };
        let simulator = simulator.clone();
        std::thread::spawn(move || {
            if let Err(e) = simulator.client(stream) {
                info!("control client: {e}");
            }
        });
    }
}

/// Sends one request to a simulator; returns its answer.
///
/// # Errors
/// If there is no listener, or the answer is invalid.
pub fn ask(socket: &Path, request: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{request}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::from)
}
