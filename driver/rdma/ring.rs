// SPDX-License-Identifier: GPL-2.0
//! A queue whose room is made beforehand, because it is filled where there may be no waiting for memory.

use kernel::{alloc::flags::GFP_KERNEL, prelude::*};

/// First in, first out, up to a number of items.
pub(super) struct Ring<T> {
    places: KVVec<Option<T>>,
    first: usize,
    count: usize,
}

impl<T> Ring<T> {
    /// Room for `most`.
    pub(super) fn new(most: usize) -> Result<Self> {
        let mut places = KVVec::with_capacity(most, GFP_KERNEL)?;
        for _ in 0..most {
            places.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            places,
            first: 0,
            count: 0,
        })
    }

    /// How many it may have.
    pub(super) fn room(&self) -> usize {
        self.places.len()
    }

    /// How many it has.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds one; gives it back if there is no room.
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        let room = self.places.len();
        if self.count == room {
            return Err(item);
        }
        self.places[(self.first + self.count) % room] = Some(item);
        self.count += 1;
        Ok(())
    }

    /// Takes the oldest one.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.count == 0 {
            return None;
        }
        let item = self.places[self.first].take();
        self.first = (self.first + 1) % self.places.len();
        self.count -= 1;
        item
    }

    /// The oldest one, which stays.
    pub(super) fn peek(&self) -> Option<&T> {
        self.places.get(self.first)?.as_ref()
    }
}
