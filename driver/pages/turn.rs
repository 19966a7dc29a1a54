// SPDX-License-Identifier: GPL-2.0
//! Turns in a line: of receives that wait for the card's budget ([`line`](super::line)), of sends that wait for pages to
//! be copied into ([`pool`](super::pool)). A place is the time since when its request has waited.

use crate::pages::Request;
use kernel::time::{Instant, Monotonic};

/// Time in milliseconds for which a request that waits keeps later ones back. Without that, what
/// becomes free would be given to these piece by piece before it is enough. A request that still
/// waits afterwards needs what is stuck.
const TURN_MS: i64 = 2_000;

impl Request {
    /// Whether it is not kept back by the request that has this place in a line.
    pub(super) fn is_before(&self, place: Option<Instant<Monotonic>>) -> bool {
        place.is_none_or(|since| {
            (since - self.since).as_nanos() >= 0 || since.elapsed().as_millis() >= TURN_MS
        })
    }

    /// Frees this place if it is its own.
    pub(super) fn give_up_place(&self, place: &mut Option<Instant<Monotonic>>) {
        if place.is_some_and(|since| (since - self.since).as_nanos() == 0) {
            *place = None;
        }
    }
}
