// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards and the wire between them.

use anyhow::Result;
use berth_abi::wire::{
    BTH_ATOMIC_ACKNOWLEDGE, BTH_READ_RESPONSE_ONLY, BTH_SEND_LAST_IMM, BTH_SEND_ONLY_IMM, BTH_UD_SEND_ONLY,
    BTH_WRITE_FIRST, BTH_WRITE_ONLY, BTH_WRITE_ONLY_IMM,
};
use berth_random::Rng;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use crate::model::{FRAMING, Model, RETH};
use crate::node::{Load, Node};

/// Bytes of a frame to the end of BTH, and those of the immediate, the placement header and the iCRC.
const HEADERS: usize = 14 + 20 + 8 + 12;
const WORD: usize = 4;
/// Cycles between two looks of a host at what its card has written, and of firmware at what it reports.
const LOOK: u64 = 16;
/// A frame that is late is so by the time of so many full ones at most.
const LATE: u64 = 8;
const FIRMWARE: u64 = 1000;

/// A frame that has gone over the wire.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Cycle of its first beat.
    pub start: u64,
    /// Bytes of the wire: with preamble, FCS and gap.
    pub wire: usize,
    /// Bytes of messages in it.
    pub payload: usize,
    /// It is a credit list.
    pub list: bool,
    /// Opcode of BTH.
    pub opcode: u8,
    /// Its PSN; of an acknowledgement, the last one that it is for.
    pub psn: u32,
    /// It was lost.
    pub lost: bool,
}

impl Sent {
    /// A frame of a Berth card to another one, or to a foreign peer, which gets no placement header.
    fn new(start: u64, frame: &[u8], foreign: bool) -> Self {
        let (opcode, pad) = (frame[42], usize::from(frame[43] >> 4 & 3));
        let immediate = if matches!(opcode, BTH_SEND_LAST_IMM | BTH_SEND_ONLY_IMM) { WORD } else { 0 };
        let reth = if matches!(opcode, BTH_WRITE_FIRST | BTH_WRITE_ONLY) { RETH } else { 0 };
        let answer = matches!(opcode, BTH_READ_RESPONSE_ONLY | BTH_ATOMIC_ACKNOWLEDGE);
        // An answer has an AETH in the place of the placement header.
        let placement = if foreign && !answer { 0 } else { WORD };
        let payload = if opcode <= BTH_WRITE_ONLY_IMM || answer {
            frame.len() - HEADERS - placement - immediate - reth - pad - WORD
        } else {
            0
        };
        let psn = u32::from_be_bytes([0, frame[51], frame[52], frame[53]]);
        let (wire, list) = (frame.len() + FRAMING, opcode == BTH_UD_SEND_ONLY);
        Self { start, wire, payload, list, opcode, psn, lost: false }
    }
}

/// Two cards and the wire between them: a frame's first beat comes in half a round trip after it went out, but not
/// before its last one has.
pub struct Pair {
    /// The cards.
    pub nodes: [Node; 2],
    /// What each has sent.
    pub sent: [Vec<Sent>; 2],
    wires: [VecDeque<(u64, Vec<u8>)>; 2],
    /// Cycle until which each direction of the wire is taken, with fractions of a beat.
    taken: [f64; 2],
    load: Load,
    beat: f64,
    chance: Rng,
    /// Frames that were lost.
    pub lost: u32,
    /// GOs on their way to each card: when they come, and the queue pair.
    goes: [VecDeque<(u64, u32)>; 2],
}

impl Pair {
    /// Two cards of `data_w` bits for a load.
    pub fn new(model: &Model, data_w: usize, load: Load) -> Self {
        Self {
            nodes: [0, 1].map(|n| Node::new(model, data_w, n, load)),
            sent: Default::default(),
            wires: Default::default(),
            taken: [0.0; 2],
            load,
            beat: data_w as f64 / 8.0,
            chance: Rng(model.seed),
            lost: 0,
            goes: Default::default(),
        }
    }

    /// Cycles that a frame with a whole packet takes on the wire.
    fn frame_cycles(&self) -> u64 {
        ((1 << self.load.log2_mtu) as f64 / self.beat) as u64
    }

    /// One clock of both.
    ///
    /// # Errors
    /// When what was received is wrong, or a card reports what it should not.
    pub fn step(&mut self) -> Result<()> {
        let (delay, frame_cycles) = (self.load.round_trip / 2, self.frame_cycles());
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let card = &mut node.board.card;
            card.set_tx_ready(card.cycles() as f64 + 1.0 >= self.taken[n]);
            card.step();
            while let Some(frame) = card.take_tx() {
                let mut sent = Sent::new(frame.start_cycle, &frame.data, self.load.foreign);
                // what is left of a beat behind a frame is not lost when the next one follows at once
                let start = if frame.start_cycle as f64 - self.taken[n] < 1.0 {
                    self.taken[n]
                } else {
                    frame.start_cycle as f64
                };
                self.taken[n] = start + sent.wire as f64 / self.beat;
                sent.lost = self.load.loss > 0.0 && self.chance.chance(self.load.loss / 100.0);
                let late = self.load.reorder > 0.0 && self.chance.chance(self.load.reorder / 100.0);
                let late = if late { self.chance.between(1, LATE) * frame_cycles } else { 0 };
                self.sent[n].push(sent);
                if sent.lost {
                    self.lost += 1;
                } else {
                    let comes = frame.start_cycle + delay + late;
                    let place = self.wires[n].partition_point(|f| f.0 <= comes);
                    self.wires[n].insert(place, (comes, frame.data));
                }
            }
        }
        for n in 0..2 {
            let card = &mut self.nodes[n].board.card;
            let now = card.cycles();
            while self.wires[1 - n].front().is_some_and(|f| f.0 <= now) {
                card.push_rx(self.wires[1 - n].pop_front().map(|f| f.1).unwrap_or_default());
            }
            if now.is_multiple_of(LOOK) {
                self.nodes[n].work()?;
            }
        }
        let cycles = |p: &Self, n: usize| p.nodes[n].board.card.cycles();
        if self.load.needs_firmware() && cycles(self, 0).is_multiple_of(FIRMWARE) {
            for n in 0..2 {
                let now = cycles(self, n);
                while self.goes[n].front().is_some_and(|go| go.0 <= now) {
                    self.goes[n].pop_front().into_iter().for_each(|(_, qpn)| self.nodes[n].go(qpn));
                }
                let goes = self.nodes[n].firmware()?;
                self.goes[1 - n].extend(goes.into_iter().map(|qpn| (now + delay, qpn)));
            }
            // the debug port's accesses have taken clocks
            while cycles(self, 0) < cycles(self, 1) {
                self.nodes[0].board.card.step();
            }
            while cycles(self, 1) < cycles(self, 0) {
                self.nodes[1].board.card.step();
            }
        }
        Ok(())
    }

    /// So many cycles.
    ///
    /// # Errors
    /// As [`Pair::step`].
    pub fn run(&mut self, cycles: u64) -> Result<()> {
        (0..cycles).try_for_each(|_| self.step())
    }

    /// Until `done`.
    ///
    /// # Errors
    /// When that takes more than `limit` cycles, and as [`Pair::step`].
    pub fn until(&mut self, limit: u64, mut done: impl FnMut(&Self) -> bool) -> Result<()> {
        for _ in 0..limit {
            self.step()?;
            if done(self) {
                return Ok(());
            }
        }
        self.nodes[0].stuck(limit)?;
        self.nodes[1].stuck(limit)
    }

    /// Appends a line to a file for each frame: cycle of its first beat, card, opcode, PSN, payload bytes, whether it was lost.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_frames(&self, path: &Path) -> Result<()> {
        let mut lines = String::new();
        for (n, sent) in self.sent.iter().enumerate() {
            for f in sent {
                writeln!(lines, "{},{n},{:#x},{},{},{}", f.start, f.opcode, f.psn, f.payload, u8::from(f.lost))?;
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(file.write_all(lines.as_bytes())?)
    }

    /// Each card compares what it has got with what the other one has sent: `count` messages of each queue pair.
    ///
    /// # Errors
    /// When something differs.
    pub fn check(&mut self, received: [bool; 2], count: u32) -> Result<()> {
        self.run(LOOK)?;
        let [a, b] = &mut self.nodes;
        if received[0] {
            a.check(b, count)?;
        }
        if received[1] {
            b.check(a, count)?;
        }
        Ok(())
    }
}
