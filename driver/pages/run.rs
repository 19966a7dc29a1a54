// SPDX-License-Identifier: GPL-2.0
//! Pages that the card has: pinned and mapped, or copies. Neighbours that came together are one run.

use crate::{
    kernel::pin::{PageId, PinnedPart, PinnedRun, PART},
    pages::copy_pool::CopyPage,
};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    time::{Instant, Monotonic},
};

/// Virtual page numbers of user space lie below this (57 bits of address).
pub(crate) const VPN_END: u64 = 1 << 45;
/// Virtual page numbers of the translation table lie below this, those of copies included.
pub(crate) const TABLE_END: u64 = 1 << 48;

/// Most pages of a run: a word has a bit for each.
pub(super) const RUN_PAGES: u64 = 64;

/// What is being done with a page.
///
/// | From | To | When |
/// |---|---|---|
/// | – | `Live` | it is installed |
/// | `Live` | `Evicting` | the card is asked whether it is idle |
/// | `Evicting` | `Live` | the card has it in use |
/// | `Evicting` | `Dead` | the card has dropped it |
/// | `Live`, `Evicting` | `Revoking` | the card is told to drop it |
/// | `Revoking` | `Fencing` | a fence begins |
/// | `Dead`, `Fencing` | – | it is unpinned; after `Fencing` when the fence is over |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// In the card's table.
    Live,
    /// The card was asked whether it is idle.
    Evicting,
    /// The card has been told to drop it, and may still be finishing DMA.
    Revoking,
    /// Revoked before the fence that is being waited for.
    Fencing,
    /// Not in the card's table any more, to be unpinned.
    Dead,
}

impl PageState {
    const ALL: [Self; 5] = [
        Self::Live,
        Self::Evicting,
        Self::Revoking,
        Self::Fencing,
        Self::Dead,
    ];
}

/// Most copies of a [`Part`].
const COPIES_PART: usize = 4;

/// The memory of a run.
pub(super) enum Memory {
    /// The process's, pinned and mapped.
    Process(PinnedRun),
    /// The driver's, with copies of the process's, for sending; those that are left.
    Copies(KVec<Option<CopyPage>>),
}

/// Memory of some pages of a run, which goes when this is dropped. May sleep.
pub(super) enum Part {
    /// Is unmapped and unpinned.
    Process(#[expect(dead_code, reason = "it is dropped")] PinnedPart),
    /// Goes back to the pool.
    Copies(#[expect(dead_code, reason = "it is dropped")] [Option<CopyPage>; COPIES_PART]),
}

impl Memory {
    /// Bus address of page `n`.
    pub(super) fn addr(&self, n: usize) -> u64 {
        match self {
            Self::Process(pins) => pins.addr(n),
            Self::Copies(pages) => pages[n].as_ref().map_or(0, CopyPage::addr),
        }
    }

    /// Whether the card may write.
    pub(super) fn is_write(&self) -> bool {
        match self {
            Self::Process(pins) => pins.is_write(),
            Self::Copies(_) => false,
        }
    }

    /// Whether it is a copy.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self, Self::Copies(_))
    }

    /// Identity of the process's page `n`.
    pub(super) fn id(&self, n: usize) -> Option<PageId> {
        match self {
            Self::Process(pins) => Some(pins.id(n)),
            Self::Copies(_) => None,
        }
    }

    /// Takes some pages of `mask`, as many as a part has room for; gives which ones.
    fn take(&mut self, mask: u64) -> (u64, Part) {
        let room = match self {
            Self::Process(_) => PART,
            Self::Copies(_) => COPIES_PART,
        };
        let taken = bits(mask).take(room).fold(0, |all, n| all | 1 << n);
        let part = match self {
            Self::Process(pins) => Part::Process(pins.take(taken)),
            Self::Copies(pages) => {
                let mut part = [const { None }; COPIES_PART];
                for (n, place) in bits(taken).zip(&mut part) {
                    *place = pages[n].take();
                }
                Part::Copies(part)
            }
        };
        (taken, part)
    }
}

/// Neighbouring pages that the card has. Of each a bit says what becomes of it; those that are gone have none.
pub(super) struct Run {
    /// The first page.
    pub(super) first: u64,
    pub(super) memory: Memory,
    /// Places in the card's table.
    pub(super) places: KVec<u16>,
    states: [u64; PageState::ALL.len()],
    /// Time since which no use of any is known.
    pub(super) since: Instant<Monotonic>,
    /// Which were used since the last look at those that linger, and at those that stay.
    looks: [Look; 2],
    /// Released since they were last known to be in use.
    pub(super) released: u64,
    /// Pinned before the card has asked for them (VC-7), and not known to be in use.
    pub(super) ahead: u64,
    /// To be evicted as soon as they are released: a request needs them with other access.
    pub(super) urgent: u64,
    /// The memory manager has touched them: look whether they still are what they were.
    pub(super) suspect: u64,
}

/// A time, and the pages that were used since.
#[derive(Clone, Copy)]
struct Look {
    since: Instant<Monotonic>,
    used: u64,
}

/// Why pages are looked at.
#[derive(Clone, Copy)]
pub(super) enum Idle {
    /// They were released, and linger.
    Lingers,
    /// They were not released, but their user may be gone.
    Stays,
}

/// Numbers of the bits of a word.
pub(super) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let n = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (n < 64).then_some(n)
    })
}

/// The lowest `n` bits.
pub(super) const fn low(n: u64) -> u64 {
    if n >= 64 {
        u64::MAX
    } else {
        (1 << n) - 1
    }
}

impl Run {
    /// Pages that are installed from now on, at these places.
    pub(super) fn new(first: u64, memory: Memory, places: KVec<u16>) -> Self {
        let mut states = [0; PageState::ALL.len()];
        states[PageState::Live as usize] = low(places.len() as u64);
        let since = Instant::now();
        Self {
            first,
            memory,
            places,
            states,
            since,
            looks: [Look { since, used: 0 }; 2],
            released: 0,
            ahead: 0,
            urgent: 0,
            suspect: 0,
        }
    }

    /// The last page.
    pub(super) fn last(&self) -> u64 {
        self.first + self.places.len() as u64 - 1
    }

    /// Pages are, or were a moment ago, in use.
    pub(super) fn note_use(&mut self, pages: u64, now: Instant<Monotonic>) {
        self.since = now;
        self.looks.iter_mut().for_each(|look| look.used |= pages);
    }

    /// Pages that were not used for `ms` milliseconds at least, and after how many it is to be looked again. Of a run that is
    /// in use those are known at times only that lie `ms` apart.
    pub(super) fn idle(&mut self, why: Idle, now: Instant<Monotonic>, ms: i64) -> (u64, i64) {
        let idle = (now - self.since).as_millis();
        if idle >= ms {
            return (u64::MAX, ms);
        }
        let look = &mut self.looks[why as usize];
        let looked = (now - look.since).as_millis();
        if looked < ms {
            return (0, ms - idle.max(looked));
        }
        let used = look.used;
        *look = Look {
            since: now,
            used: 0,
        };
        (!used, ms - idle)
    }

    /// Place of page `vpn`, which is one of the run, in the card's table.
    pub(super) fn place_of(&self, vpn: u64) -> u16 {
        self.places[(vpn - self.first) as usize]
    }

    /// Pages in one of these states.
    pub(super) fn are(&self, states: &[PageState]) -> u64 {
        states
            .iter()
            .fold(0, |all, state| all | self.states[*state as usize])
    }

    /// Pages that are not gone.
    pub(super) fn there(&self) -> u64 {
        self.states.iter().fold(0, |all, mask| all | mask)
    }

    /// Those of them from `first` to `last`.
    pub(super) fn within(&self, first: u64, last: u64) -> u64 {
        if last < self.first {
            return 0;
        }
        let behind = low(first.saturating_sub(self.first));
        self.there() & low((last - self.first).saturating_add(1)) & !behind
    }

    /// What becomes of page `n`, which is there.
    pub(super) fn state(&self, n: usize) -> Option<PageState> {
        let mut all = PageState::ALL.iter();
        all.find(|state| self.states[**state as usize] >> n & 1 != 0)
            .copied()
    }

    /// Pages change their state.
    pub(super) fn set(&mut self, pages: u64, state: PageState) {
        self.forget(pages);
        self.states[state as usize] |= pages;
    }

    /// Pages are not the card's any more.
    fn forget(&mut self, pages: u64) {
        self.states.iter_mut().for_each(|mask| *mask &= !pages);
    }

    /// Takes some pages of `mask`, which are there, out of the run.
    pub(super) fn take(&mut self, mask: u64) -> (u64, Part) {
        let (taken, part) = self.memory.take(mask);
        self.forget(taken);
        (taken, part)
    }
}

/// Runs in the order of their last pages. Of one page there may be several, in all of which but one it is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) last: u64,
    /// Tells those apart that end with the same page.
    pub(super) serial: u64,
}

pub(super) type Runs = RBTree<Key, Run>;

pub(super) type Node = RBTreeNode<Key, Run>;
