// SPDX-License-Identifier: GPL-2.0
//! Where a page request stands.

/// After this time in milliseconds without its pages, a request counts as stuck: it is given up
/// when a QP that may wait for it is destroyed, and its charge is lent to others.
pub(super) const STUCK_MS: i64 = 500;

/// Where a page request stands, from [`AddressSpace::begin_request`] to its answer.
///
/// | From | To | When |
/// |---|---|---|
/// | – | `Looking`, `Queued` | it begins |
/// | `Queued` | `Looking` | enough others of its process have ended |
/// | `Looking` | `Blocked` | a page of its is being taken away |
/// | `Looking` | `Waiting` | a budget, or the pool for copies, has no room, or others come first |
/// | `Looking` | `Charged` | what it misses is charged; of copies nothing is |
/// | `Looking` | `Installing` | all is copied |
/// | `Charged` | `Bringing` | not all of it is there |
/// | `Bringing` | `Charged` | it came, or the charge was lent: then `Looking` follows |
/// | `Charged` | `Blocked` | another request maps some of its pages; it is charged no more |
/// | `Charged` | `Installing` | all is pinned |
/// | `Charged` | `Looking` | something has changed; it is charged no more |
/// | `Installing` | `Charged` | not installed: something has changed, or there was no place |
/// | `Looking` | `NoPlace` | the table has no place for a page of its |
/// | `Blocked`, `Waiting`, `NoPlace` | `Looking`, `Queued` | what it waits for may have come |
///
/// In each state it may be answered: as a rule out of `Looking` (refused) and `Installing` (installed), out of any when
/// its queue pair, its context or the card goes. It is in no list then, and has no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Its work is queued or runs, and it is charged nothing.
    Looking,
    /// It waits because too many requests of its process are worked on.
    Queued,
    /// It waits for budget.
    Waiting(WaitsFor),
    /// It waits for a page to change its state.
    Blocked,
    /// It waits for a place in the card's table for a page of its.
    NoPlace,
    /// What it misses is charged to the budgets.
    Charged,
    /// Charged; its pages are being brought, one at a time, and none is pinned but for a moment.
    Bringing {
        /// Since when, in milliseconds after the request.
        begun: i64,
        /// Whether the charge is lent to others, but for one page.
        lent: bool,
    },
    /// Charged; its pages are pinned, and being mapped and installed. A page is mapped by one
    /// request at a time.
    Installing {
        /// Whether another request waits until that is over.
        wanted: bool,
    },
}

/// What a request for budget waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// For earlier requests of its context.
    Earlier,
    /// For receives of other contexts that have waited longer; there would be room.
    Line,
    /// For room in a budget.
    Budget,
    /// For pages to copy into.
    Pool,
}

impl RequestState {
    /// Whether what it misses is charged to the budgets.
    pub(super) fn is_charged(self) -> bool {
        matches!(
            self,
            Self::Charged | Self::Bringing { .. } | Self::Installing { .. }
        )
    }

    /// Whether it waits for what others have.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Blocked | Self::NoPlace)
    }
}

/// Outcome of one attempt at a request.
pub(super) enum Attempt {
    /// Answered, or will be tried again when something changes.
    Done,
    /// Something changed meanwhile: to be tried again at once.
    Again,
    /// To be answered with a status.
    Answer(u32),
    /// The host has no memory for it at the moment.
    NoMemory,
    /// All places of the card's table for this page are taken.
    Full(u64),
}
