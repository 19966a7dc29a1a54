// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's window: which packets are on their way, acknowledged, or to be sent again.

use super::{Bitmap, MAX_FLIGHT, MAX_WINDOW, Psn};
use crate::base::bound::{Bound, at_most};
use crate::base::rule::{self, Rule};

/// Where an acknowledged PSN lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Behind the window: old news.
    Old,
    /// In it: this many packets lie below.
    Within(u32),
    /// It was never sent.
    Beyond,
}

/// The PSNs `una` to `una + flight`, at most `W` and [`MAX_FLIGHT`] of them, as bitmaps whose bit 0 is `una`.
///
/// A packet counts as lost when packets that left later are known to have arrived: `reorder` of them, or all that there
/// are when there is nothing more to send. One that is sent again counts as lost again only by packets that left after
/// that, so it goes at most once per round trip; without such packets only the time-out helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window<const BITS: u32, const W: usize, B = u128> {
    una: Psn<BITS>,
    flight: u32,
    /// Acknowledged one by one.
    done: B,
    /// To be sent again.
    lost: B,
    /// The answers below this have left the responder.
    heard: u32,
    /// By PSN modulo W: how far behind the packet the PSN lay that was next when it left last.
    marks: [u8; W],
}

impl<const BITS: u32, const W: usize, B: Bitmap> Window<BITS, W, B> {
    const SOUND: () =
        assert!(W.is_power_of_two() && W <= MAX_WINDOW && W as u32 <= Psn::<BITS>::HALF && W as u32 <= B::WIDTH);

    /// An empty window whose first packet is `psn`.
    pub const fn new(psn: Psn<BITS>) -> Self {
        () = Self::SOUND;
        Self { una: psn, flight: 0, done: B::ZERO, lost: B::ZERO, heard: 0, marks: [0; W] }
    }

    /// Oldest PSN that is not acknowledged.
    pub const fn una(&self) -> Psn<BITS> {
        self.una
    }

    /// Next new PSN.
    pub const fn next(&self) -> Psn<BITS> {
        self.una.plus(self.flight)
    }

    /// PSNs from `una` to `next`.
    pub const fn flight(&self) -> u32 {
        self.flight
    }

    /// Acknowledged one by one: bit 0 is `una`.
    pub const fn done(&self) -> B {
        self.done
    }

    /// Packets that may leave for the first time, under a window of `limit`.
    pub fn room(&self, limit: u32) -> u32 {
        let limit = if rule::broken(Rule::WindowLimit) { W as u32 } else { limit.min(W as u32) };
        limit.min(MAX_FLIGHT).saturating_sub(self.flight)
    }

    /// The next `n` PSNs leave for the first time. `n` is at most [`Window::room`].
    pub fn send(&mut self, n: u32) {
        for _ in at_most(W, 0..n.min((W as u32).saturating_sub(self.flight))) {
            let psn = self.next();
            self.set_mark(psn, 1);
            self.flight += 1;
        }
    }

    fn mark(&self, psn: Psn<BITS>) -> u32 {
        self.marks[psn.get() as usize % W] as u32
    }

    fn set_mark(&mut self, psn: Psn<BITS>, mark: u8) {
        self.marks[psn.get() as usize % W] = mark;
    }

    /// To be sent again: bit 0 is `una`.
    pub const fn lost(&self) -> B {
        self.lost
    }

    /// Packets that have left, and that are neither acknowledged nor to be sent again.
    pub fn on_the_way(&self) -> u32 {
        self.flight.saturating_sub((self.done | self.lost).count())
    }

    /// Where `psn` lies, as the end of what is acknowledged: `next` itself is within.
    pub fn reach(&self, psn: Psn<BITS>) -> Reach {
        let n = psn.since(self.una);
        match n {
            n if n <= self.flight => Reach::Within(n),
            n if n >= Psn::<BITS>::HALF && !rule::broken(Rule::OldAnswerIgnored) => Reach::Old,
            _ => Reach::Beyond,
        }
    }

    /// The packets of `bits` (bit 0 is `una`) have arrived, or their answers. True if that is news.
    pub fn finish(&mut self, bits: B) -> bool {
        let news = bits & B::ones(self.flight) & !self.done;
        self.done |= news;
        self.lost &= !news;
        news != B::ZERO
    }

    /// All answers to the first `n` packets have left the responder. True if that is news.
    pub fn hear(&mut self, n: u32) -> bool {
        let before = self.heard;
        self.heard = before.max(n.min(self.flight));
        self.heard != before
    }

    /// Moves over what is acknowledged; gives how many packets that are.
    pub fn slide(&mut self) -> u32 {
        let n = self.done.run().min(self.flight);
        for i in at_most(W, 0..n) {
            self.set_mark(self.una.plus(i), 0);
        }
        self.done = self.done.down(n);
        self.lost = self.lost.down(n);
        self.heard = self.heard.saturating_sub(n);
        self.flight -= n;
        self.una = self.una.plus(n);
        n
    }

    /// Finds packets that are lost, as described at the type. `idle`: there is nothing new to
    /// send. `answers`: the packets that wait for an answer of their own. `among`: those that are looked at. True if there are any.
    pub fn find_lost(&mut self, reorder: u32, idle: bool, answers: B, among: B) -> bool {
        let newest = self.done.top();
        let mut open = !(self.done | self.lost) & B::ones(newest.max(self.heard)) & B::ones(self.flight) & among;
        let mut steps = Bound::new(W as u32);
        while open != B::ZERO {
            steps.step();
            let i = open.lowest();
            open &= !B::bit(i);
            let seen = if answers & B::bit(i) != B::ZERO { self.heard } else { newest };
            let mark = i + self.mark(self.una.plus(i));
            if seen >= mark + reorder || (idle && seen == self.flight && seen > mark) {
                self.lost |= B::bit(i);
            }
        }
        self.lost != B::ZERO
    }

    /// All that is not acknowledged, from the `n`-th packet on, is to be sent again.
    pub fn lose_from(&mut self, n: u32) {
        self.lost |= B::ones(self.flight) & !B::ones(n) & !self.done;
    }

    /// The packets at `bits` (bit 0 is `una`) are to be sent again, unless they are acknowledged.
    pub fn lose(&mut self, bits: B) {
        self.lost |= bits & B::ones(self.flight) & !self.done;
    }

    /// The oldest packet that is to be sent again, as its place in the window.
    pub fn next_lost(&self) -> Option<u32> {
        (self.lost != B::ZERO).then(|| self.lost.lowest())
    }

    /// Packets to be sent again from the `n`-th on without a gap.
    pub fn lost_run(&self, n: u32) -> u32 {
        self.lost.down(n).run()
    }

    /// `count` packets from the `n`-th on leave again.
    pub fn resend(&mut self, n: u32, count: u32) {
        let end = n.saturating_add(count).min(self.flight);
        for i in at_most(W, n..end) {
            self.lost &= !B::bit(i);
            let behind = self.flight - i;
            self.set_mark(self.una.plus(i), behind as u8);
        }
    }
}
