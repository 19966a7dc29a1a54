// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol's [`Ahead`] beside the engine. The model leaves open in which order steps are done; the engine takes turns.

use super::Post;
use berth_protocol::memory::ahead::Ahead;
use std::num::NonZeroU64;

/// One of the states that the model may be in, and all that it has posted.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    pub model: Ahead<128, 16>,
    pub posts: Vec<Post>,
}

impl Bound {
    pub fn new(width: u32, limit: u16, most: u16) -> Self {
        // A unit is 64 clocks.
        let rate = NonZeroU64::new(u64::from(width) / 8 * 64).expect("a wire");
        Self { model: Ahead::new(rate, limit, most), posts: Vec::new() }
    }

    /// Something has happened.
    pub fn event<T>(&mut self, event: impl FnOnce(&mut Ahead<128, 16>) -> T) -> T {
        let done = event(&mut self.model);
        self.posts.extend(std::iter::from_fn(|| self.model.take()));
        done
    }

    /// What it may be when all that can be done is done: asking and passing on take turns, but passing on is before asking
    /// `ahead` times, as often as it was due when asking was not yet.
    pub fn rests(&self, now: u32) -> [Self; 3] {
        [0, 1, 2].map(|ahead| self.clone().rest(now, ahead))
    }

    fn rest(mut self, now: u32, mut ahead: u32) -> Self {
        loop {
            let (ask, advance) = self.model.due();
            if advance && (ahead > 0 || !ask) {
                ahead = ahead.saturating_sub(1);
                self.event(Ahead::advance);
            } else if ask || self.model.later() {
                ahead = 1;
                self.event(|model| model.ask(now));
                if self.model.later() && self.model.due() == (false, false) {
                    return self;
                }
            } else {
                return self;
            }
        }
    }
}
