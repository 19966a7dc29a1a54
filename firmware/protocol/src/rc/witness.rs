// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an acknowledgement of a packet that was sent again says of those that left before it.

use super::Bitmap;

/// A packet that was sent again and whose acknowledgement is waited for, and the packets that left before it did.
///
/// The window's marks only know new packets: a resend that is lost shows when new ones that left after it have come. Where
/// nothing new follows, in a burst's tail or before a window that is shut, it takes another packet that was sent again:
/// when that one is acknowledged, what left before it and is still open is lost. One packet at a time is the witness; the
/// next one that goes again takes its place when it is acknowledged.
///
/// All bitmaps are of the window's places: bit 0 is the oldest one that is not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness<B> {
    /// The witness's place.
    at: Option<u8>,
    /// Left before it, and not again since.
    before: B,
    /// Sent more than once.
    again: B,
}

impl<B: Bitmap> Witness<B> {
    /// None.
    pub const NONE: Self = Self { at: None, before: B::ZERO, again: B::ZERO };

    /// The witness's place in the window.
    pub fn at(&self) -> Option<u32> {
        self.at.map(u32::from)
    }

    /// Packets that were sent more than once.
    pub const fn again(&self) -> B {
        self.again
    }

    /// The packet at place `n` leaves again; those at `open` are under way. `all`: it speaks of all of them, else of those
    /// that were sent again: new ones show the others. `takes`: it is the witness in any case.
    pub fn leaves(&mut self, n: u32, open: B, all: bool, takes: bool) {
        self.before &= !B::bit(n);
        if takes || self.at.is_none() || self.at() == Some(n) {
            self.at = Some(n as u8);
            self.before = open & !B::bit(n) & if all { !B::ZERO } else { self.again };
        }
        self.again |= B::bit(n);
    }

    /// The packets at `news` are acknowledged: those that left before the witness, if that is among them. `own`: it left
    /// about a round trip ago, so that this can be said of it; else an earlier copy of it has come.
    pub fn told(&mut self, news: B, own: bool) -> B {
        self.before &= !news;
        match self.at {
            Some(n) if news & B::bit(u32::from(n)) != B::ZERO => {
                let before = self.before;
                (self.at, self.before) = (None, B::ZERO);
                if own { before } else { B::ZERO }
            }
            _ => B::ZERO,
        }
    }

    /// The window has moved over `n` packets.
    pub fn slide(&mut self, n: u32) {
        self.at = self.at.and_then(|at| u32::from(at).checked_sub(n)).map(|at| at as u8);
        self.before = self.before.down(n);
        self.again = self.again.down(n);
    }
}
