// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver's window: which packets have arrived, and which of them are in their place.

use super::{Bitmap, MAX_WINDOW, Psn};
use crate::base::rule::{self, Rule};

/// Where an arriving packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// It is the next one.
    InOrder,
    /// It is new, but something before it is missing.
    Ahead,
    /// It has arrived before, and is still in the window.
    Seen,
    /// It lies behind the window: it has arrived before.
    Old,
    /// It lies too far ahead.
    Beyond,
}

/// Up to `W` PSNs from the oldest that is not in its place, as bitmaps whose bit 0 is that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival<const BITS: u32, const W: usize, B = u128> {
    placed: Psn<BITS>,
    /// Has arrived.
    seen: B,
    /// Is in its place, or answered.
    done: B,
}

impl<const BITS: u32, const W: usize, B: Bitmap> Arrival<BITS, W, B> {
    const SOUND: () =
        assert!(W.is_power_of_two() && W <= MAX_WINDOW && W as u32 <= Psn::<BITS>::HALF && W as u32 <= B::WIDTH);

    /// Nothing has arrived; the first packet is `psn`.
    pub const fn new(psn: Psn<BITS>) -> Self {
        () = Self::SOUND;
        Self { placed: psn, seen: B::ZERO, done: B::ZERO }
    }

    /// All below this PSN is in its place: what an acknowledgement says.
    pub const fn placed(&self) -> Psn<BITS> {
        self.placed
    }

    /// The next PSN in order: all below it has arrived.
    pub fn expected(&self) -> Psn<BITS> {
        self.placed.plus(self.seen.run())
    }

    /// Something has arrived that is not in its place, or that something before it is missing for.
    pub fn busy(&self) -> bool {
        self.seen != B::ZERO
    }

    /// Where `psn` lies.
    pub fn locate(&self, psn: Psn<BITS>) -> Where {
        let i = psn.since(self.placed);
        match i {
            i if i >= Psn::<BITS>::HALF && !rule::broken(Rule::DuplicateRefused) => Where::Old,
            i if i >= W as u32 => Where::Beyond,
            i if !rule::holds(Rule::DuplicateRefused, self.seen & B::bit(i) == B::ZERO) => Where::Seen,
            i if i == self.seen.run() => Where::InOrder,
            _ => Where::Ahead,
        }
    }

    /// `n` PSNs from `psn` on are in the window, and none of them has arrived.
    pub fn fits(&self, psn: Psn<BITS>, n: u32) -> bool {
        let i = psn.since(self.placed);
        n <= W as u32 && i + n <= W as u32 && self.seen & B::ones(n).up(i) == B::ZERO
    }

    /// `n` PSNs from `psn` on have arrived.
    pub fn accept(&mut self, psn: Psn<BITS>, n: u32) {
        self.seen |= B::ones(n).up(psn.since(self.placed)) & B::ones(W as u32);
    }

    /// The packet `psn`, which has arrived, is in its place or answered.
    pub fn done(&mut self, psn: Psn<BITS>) {
        self.done |= B::bit(psn.since(self.placed)) & self.seen;
    }

    /// The oldest packet is in its place: its turn has come. It is taken out with [`Arrival::advance`].
    pub fn ready(&self) -> bool {
        self.done & B::bit(0) != B::ZERO
    }

    /// Moves over the oldest packet, if it is in its place.
    pub fn advance(&mut self) {
        if self.ready() {
            self.placed = self.placed.plus(1);
            self.seen = self.seen.down(1);
            self.done = self.done.down(1);
        }
    }

    /// What is in its place, or answered: bit 0 is [`Arrival::placed`].
    pub const fn bits(&self) -> B {
        self.done
    }

    /// The SACK header of an acknowledgement for all below [`Arrival::placed`]: bit 127 is for that PSN. It has 128 bits:
    /// of a wider window the first 128.
    pub fn sack(&self) -> u128 {
        self.done.sack()
    }
}
