// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's two credit buffers, counted by what reaches it and what it does, as CR-11 says; the machines are not asked.

use std::collections::VecDeque;

use berth_protocol::credit::entry::{Body, Entry};

/// A list in a credit buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    first: u32,
    total: u8,
    /// Credits that have come, by bit.
    have: u32,
}

impl Held {
    fn whole(&self) -> bool {
        self.have.count_ones() == self.total as u32
    }
}

/// Two credit buffers. One is posted before the connection exists; a new list fills it; before the credits of a list
/// are used the other one is posted; a buffer is free when all credits of its list, in order, were taken from it.
/// Numbers of credits do not wrap here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreditBuffers {
    posted: bool,
    /// Lists that fill a buffer, oldest first.
    lists: VecDeque<Held>,
    /// First credit of the newest list that has come.
    newest: Option<u32>,
    /// Recalls that have come: what was said before one of them fills nothing.
    round: u8,
}

impl Default for CreditBuffers {
    fn default() -> Self {
        Self { posted: true, lists: VecDeque::new(), newest: None, round: 0 }
    }
}

impl CreditBuffers {
    /// An entry of this connection reaches the sender. False if it is a new list and no buffer is posted.
    pub fn deliver<const LIST: usize>(&mut self, entry: &Entry<LIST>) -> bool {
        match &entry.body {
            Body::List(part) if part.round == self.round => {
                let bits = ((1 << part.len) - 1) << part.offset;
                if let Some(held) = self.lists.iter_mut().find(|held| held.first == part.list) {
                    held.have |= bits;
                    return true;
                }
                // What was used already is thrown away where it lies.
                if self.newest.is_some_and(|newest| part.list <= newest) {
                    return true;
                }
                self.newest = Some(part.list);
                self.lists.push_back(Held { first: part.list, total: part.total, have: bits });
                std::mem::take(&mut self.posted)
            }
            Body::Recall { round, .. } if *round == self.round => {
                *self = Self { round: round.wrapping_add(1), ..Self::default() };
                true
            }
            _ => true,
        }
    }

    /// The sender posts the other buffer, and uses what has come.
    pub fn used(&mut self) {
        while self.lists.front().is_some_and(Held::whole) {
            self.lists.pop_front();
        }
        self.posted |= self.lists.len() < 2;
    }
}
