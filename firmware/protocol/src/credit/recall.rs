// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recall of credits, at the end that gave them (decision 19): how many of the newest are asked back, and what an
//! answer takes back.

use crate::credit::list::Seq;

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Nothing is recalled: the answer has come before.
    Repeat,
    /// The peer claims credits that it never had, or that it has used.
    Bad,
    /// So many of the newest credits are void.
    Back(u32),
}

/// A recall that is under way, or none. While it is, no list may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recall<const BITS: u32 = 32> {
    asked: Option<u32>,
}

impl<const BITS: u32> Recall<BITS> {
    /// None is under way.
    pub const fn new() -> Self {
        Self { asked: None }
    }

    /// Asks for the newest `n` credits, where none is under way.
    pub fn begin(&mut self, n: u32) {
        self.asked = self.asked.or(Some(n));
    }

    /// How many are asked for, while a recall is under way.
    pub const fn asked(&self) -> Option<u32> {
        self.asked
    }

    /// The peer keeps the credits below number `first`; `announced` is the number behind the newest, `unused` how many have
    /// not been used as far as this end knows. A good answer ends the recall.
    pub fn answered(&mut self, first: u32, announced: u32, unused: u32) -> Answered {
        if self.asked.is_none() {
            return Answered::Repeat;
        }
        let back = Seq::<BITS>::sub(announced, first);
        if back > unused {
            return Answered::Bad;
        }
        self.asked = None;
        Answered::Back(back)
    }
}
