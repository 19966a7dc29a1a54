// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards and the wire between them.

use anyhow::Result;
use std::collections::VecDeque;

use crate::model::{FRAMING, Model};
use crate::node::{Load, Node};

/// Opcodes of BTH that the figures tell apart.
const SEND_LAST_IMMEDIATE: u8 = 0x03;
const SEND_ONLY_IMMEDIATE: u8 = 0x05;
const DATAGRAM: u8 = 0x64;
/// Bytes of a frame before the placement header, and those of it, the immediate and the iCRC.
const HEADERS: usize = 14 + 20 + 8 + 12;
const WORD: usize = 4;
/// Cycles between two looks at the event rings.
const EVENTS_EVERY: u64 = 64;

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
}

impl Sent {
    fn new(start: u64, frame: &[u8]) -> Self {
        let (opcode, pad) = (frame[42], usize::from(frame[43] >> 4 & 3));
        let immediate = if matches!(opcode, SEND_LAST_IMMEDIATE | SEND_ONLY_IMMEDIATE) { WORD } else { 0 };
        let data = opcode <= SEND_ONLY_IMMEDIATE;
        let payload = if data { frame.len() - HEADERS - 2 * WORD - immediate - pad } else { 0 };
        Self { start, wire: frame.len() + FRAMING, payload, list: opcode == DATAGRAM }
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
    delay: u64,
    beat: f64,
}

impl Pair {
    /// Two cards of `data_w` bits for a load.
    ///
    /// # Errors
    /// As [`Node::new`].
    pub fn new(model: &Model, data_w: usize, load: Load) -> Result<Self> {
        Ok(Self {
            nodes: [Node::new(model, data_w, 0, load)?, Node::new(model, data_w, 1, load)?],
            sent: Default::default(),
            wires: Default::default(),
            taken: [0.0; 2],
            delay: model.wire_round_trip / 2,
            beat: data_w as f64 / 8.0,
        })
    }

    /// One clock of both.
    pub fn step(&mut self) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let card = &mut node.rig.card;
            card.set_tx_ready(card.cycles() as f64 + 1.0 >= self.taken[n]);
            card.step();
            while let Some(frame) = card.take_tx() {
                let sent = Sent::new(frame.start_cycle, &frame.data);
                // what is left of a beat behind a frame is not lost when the next one follows at once
                let start = if frame.start_cycle as f64 - self.taken[n] < 1.0 {
                    self.taken[n]
                } else {
                    frame.start_cycle as f64
                };
                self.taken[n] = start + sent.wire as f64 / self.beat;
                self.sent[n].push(sent);
                self.wires[n].push_back((frame.start_cycle + self.delay, frame.data));
            }
        }
        for n in 0..2 {
            let card = &mut self.nodes[n].rig.card;
            let now = card.cycles();
            while self.wires[1 - n].front().is_some_and(|f| f.0 <= now) {
                card.push_rx(self.wires[1 - n].pop_front().map(|f| f.1).unwrap_or_default());
            }
            if now.is_multiple_of(EVENTS_EVERY) {
                self.nodes[n].take_events();
            }
        }
    }

    /// So many cycles.
    pub fn run(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.step();
        }
    }

    /// Until `done`.
    ///
    /// # Errors
    /// When that takes more than `limit` cycles.
    pub fn until(&mut self, limit: u64, mut done: impl FnMut(&Self) -> bool) -> Result<()> {
        for _ in 0..limit {
            self.step();
            if done(self) {
                return Ok(());
            }
        }
        self.nodes[0].stuck(limit)?;
        self.nodes[1].stuck(limit)
    }

    /// Each card compares what it has got with what the other one has sent: `count` messages of each queue pair.
    ///
    /// # Errors
    /// When something differs.
    pub fn check(&mut self, received: [bool; 2], count: u32) -> Result<()> {
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
