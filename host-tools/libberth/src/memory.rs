// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the memory of sends reaches the card (VC-10), and the aliases that say so ([`alias`](berth_abi::alias)).
//!
//! Each element under an alias has one of its own for as long as it is not complete, and until the driver says that the card
//! has nothing under it any more: so a send never meets the bytes of an earlier one. A call to the driver frees many aliases
//! at a time.

use std::collections::VecDeque;

use berth_abi::alias::{ALIAS_POLICIES, Again as AbiAgain, First as AbiFirst, alias_va, fits_alias};
use berth_abi::ioctl::{ALIASES, ALIASES_IF_FREE, ALIASES_NONE};
use berth_abi::wqe::Sge;

use crate::error::Result;

/// Sends after which the driver is asked which are cheaper by copy, while all are pinned.
const LOOK: u32 = 256;
/// Sends after which all are pinned again for [`LOOK`] sends, to see what that costs now.
const TRUST: u32 = 16 * LOOK;

/// How the memory of sends reaches the card for their first transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// Block by block, pinned when the card is about to send it (VC-2).
    Pin,
    /// Block by block, copied into the driver's memory: nothing is pinned (VC-6).
    Copy,
    /// All of the send is pinned when the card asks for its first block, and each page goes as soon as it is sent (VC-7). What no
    /// budget has room for is pinned block by block. Posting one takes a system call.
    Whole,
    /// Copied where that has cost less on this host for a send of that size, else pinned. The driver measures what a page
    /// request and a copy take; the queue pair looks for how many sends the card had to ask at all, because memory that is
    /// used again and again stays pinned for a while. At first all is pinned.
    #[default]
    Auto,
}

/// How it does for retransmissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// What is not acknowledged is pinned again (VC-4).
    Pin,
    /// It is copied (VC-5).
    Copy,
    /// As [`First::Auto`].
    #[default]
    Auto,
}

/// How the memory of sends reaches the card. A send is pinned, whatever it chooses, if its memory lies above the lower 128 TiB
/// of addresses or on both sides of a multiple of 512 GiB, and if too many that have chosen the same are not complete: 128 that
/// are copied both times, 32 of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendMemory {
    /// For the first transmission.
    pub first: First,
    /// For retransmissions.
    pub again: Again,
}

impl SendMemory {
    /// Pinned, block by block, for as long as the card sends from it (VC-2, VC-4).
    pub const PIN: Self = Self { first: First::Pin, again: Again::Pin };
    /// Copied by the driver when the card sends it, the first time and again (VC-5, VC-6): nothing is pinned.
    pub const COPY: Self = Self { first: First::Copy, again: Again::Copy };
    /// Pinned as a whole for the first transmission, and what goes again for that time (VC-7, VC-4).
    pub const WHOLE: Self = Self { first: First::Whole, again: Again::Pin };
    /// As it has cost less.
    pub const AUTO: Self = Self { first: First::Auto, again: Again::Auto };

    pub(crate) const fn abi(self) -> u32 {
        match (self.first, self.again) {
            (First::Pin, Again::Pin) => ALIASES_NONE,
            (First::Pin | First::Auto, Again::Pin | Again::Auto) => ALIASES_IF_FREE,
            _ => ALIASES,
        }
    }

    /// What an element does for which copying is (or is not) cheaper.
    const fn resolve(self, copy: bool) -> (AbiFirst, AbiAgain) {
        let first = match self.first {
            First::Copy => AbiFirst::Copy,
            First::Auto if copy => AbiFirst::Copy,
            First::Pin | First::Auto => AbiFirst::Pin,
            First::Whole => AbiFirst::Whole,
        };
        let again = match self.again {
            Again::Copy => AbiAgain::Copy,
            Again::Auto if copy => AbiAgain::Copy,
            Again::Pin | Again::Auto => AbiAgain::Pin,
        };
        (first, again)
    }

    const fn is_auto(self) -> bool {
        matches!(self.first, First::Auto) || matches!(self.again, Again::Auto)
    }
}

/// What the driver is asked.
pub(crate) trait Ask {
    /// Waits until aliases from `first` on, so many, can be used again, and says which sends are cheaper by copy after `pinned`
    /// sends that were pinned.
    fn free(&mut self, first: u32, aliases: u32, pinned: u32) -> Result<u32>;

    /// Says which memory the next element under an alias has.
    fn whole(&mut self, alias: u32, ranges: &[Sge]) -> Result<()>;
}

/// Aliases of one policy, which are used in turn.
#[derive(Debug)]
struct Class {
    policy: (AbiFirst, AbiAgain),
    first: u32,
    aliases: u64,
    /// Aliases taken, free-running.
    next: u64,
    /// Those of them that can be taken again.
    free: u64,
    /// Places in the queue of the elements that have the last aliases taken, free-running.
    elements: VecDeque<u64>,
}

impl Class {
    /// An alias for the element at place `at`; the first `completed` elements are complete.
    fn take(&mut self, (at, completed): (u64, u64), ask: &mut impl Ask) -> Option<u32> {
        if self.next - self.free == self.aliases {
            while self.elements.front().is_some_and(|place| *place < completed) {
                self.elements.pop_front();
            }
            let done = self.next - self.elements.len() as u64;
            while self.free < done {
                let begin = self.free % self.aliases;
                let count = (done - self.free).min(self.aliases - begin);
                // If the card still sends one of them again, this element is pinned.
                ask.free(self.first + begin as u32, count as u32, 0).ok()?;
                self.free += count;
            }
            if self.next - self.free == self.aliases {
                return None;
            }
        }
        let alias = self.first + (self.next % self.aliases) as u32;
        self.next += 1;
        self.elements.push_back(at);
        Some(alias)
    }
}

/// Aliases of a queue pair.
#[derive(Debug)]
pub(crate) struct Aliases {
    /// What sends are that choose nothing.
    usual: SendMemory,
    classes: [Class; ALIAS_POLICIES.len()],
    /// Sends of up to so many bytes are cheaper by copy.
    copy_most: u32,
    /// Sends that chose so since all were pinned last, or since then.
    looked: u32,
    /// What it costs to pin is being looked at.
    looking: bool,
}

impl Aliases {
    /// Aliases from `first` on.
    pub(crate) fn new(usual: SendMemory, mut first: u32) -> Self {
        let classes = ALIAS_POLICIES.map(|(when, again, aliases)| {
            let begin = first;
            first += aliases;
            let (policy, aliases) = ((when, again), aliases.into());
            Class { policy, first: begin, aliases, next: 0, free: 0, elements: VecDeque::new() }
        });
        Self { usual, classes, copy_most: 0, looked: 0, looking: true }
    }

    /// Whether all sends are pinned that choose nothing. Then `sends` of them need not be looked at one by one.
    pub(crate) fn pins(&mut self, sends: u32) -> bool {
        let pins = self.usual.is_auto()
            && self.usual.resolve(false) == (AbiFirst::Pin, AbiAgain::Pin)
            && self.copy_most == 0
            && self.looked + sends < if self.looking { LOOK } else { TRUST };
        if pins {
            self.looked += sends;
        }
        pins
    }

    /// The alias under which the card is to find the memory of the element that will have place `at` in the queue; `None` if
    /// it is at the process's own addresses. The first `completed` elements are complete.
    pub(crate) fn place(
        &mut self,
        choice: Option<SendMemory>,
        ranges: &[Sge],
        places: (u64, u64),
        ask: &mut impl Ask,
    ) -> Option<u32> {
        let choice = choice.unwrap_or(self.usual);
        let mut used = ranges.iter().filter(|range| range.len != 0);
        let bytes = used.clone().map(|range| u64::from(range.len)).sum::<u64>();
        let copy = choice.is_auto() && self.cheaper(bytes, ask);
        let policy = choice.resolve(copy);
        let class = self.classes.iter_mut().find(|class| class.policy == policy)?;
        if bytes == 0 || !used.all(|range| fits_alias(range.va, range.len.into())) {
            return None;
        }
        let alias = class.take(places, ask)?;
        if policy.0 == AbiFirst::Whole {
            // What the driver does not know of is pinned block by block.
            let _ = ask.whole(alias, ranges);
        }
        Some(alias)
    }

    /// Whether a send of so many bytes is cheaper by copy, as far as is known.
    fn cheaper(&mut self, bytes: u64, ask: &mut impl Ask) -> bool {
        self.looked += 1;
        if self.looking && self.looked >= LOOK {
            self.copy_most = ask.free(0, 0, self.looked).unwrap_or(0);
            (self.looking, self.looked) = (false, 0);
        } else if !self.looking && self.looked >= TRUST {
            // What was asked for before does not count.
            let _ = ask.free(0, 0, 0);
            (self.looking, self.looked, self.copy_most) = (true, 0, 0);
        }
        bytes <= self.copy_most.into()
    }

    /// The elements that would have had places from `at` on were not posted.
    pub(crate) fn take_back(&mut self, at: u64) {
        for class in &mut self.classes {
            while class.elements.back().is_some_and(|place| *place >= at) {
                class.elements.pop_back();
                class.next -= 1;
            }
        }
    }
}

/// The ranges as the card finds them under an alias.
pub(crate) fn under(alias: u32, ranges: &[Sge]) -> impl Iterator<Item = Sge> + '_ {
    ranges.iter().map(move |range| match range.len {
        0 => *range,
        _ => Sge { va: alias_va(alias, range.va), ..*range },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use berth_abi::alias::{ALIAS_END, alias_policy, aliased_va};

    fn range(va: u64, len: u32) -> Sge {
        Sge { va, len, reserved: 0 }
    }

    /// What the driver was asked.
    #[derive(Default)]
    struct Driver {
        freed: Vec<(u32, u32)>,
        pinned: Vec<u32>,
        wholes: Vec<(u32, usize)>,
        copy_most: u32,
        busy: bool,
    }

    impl Ask for Driver {
        fn free(&mut self, first: u32, aliases: u32, pinned: u32) -> Result<u32> {
            match aliases {
                0 => self.pinned.push(pinned),
                _ if self.busy => return Err(Error::Busy { what: "test" }),
                _ => self.freed.push((first, aliases)),
            }
            Ok(self.copy_most)
        }

        fn whole(&mut self, alias: u32, ranges: &[Sge]) -> Result<()> {
            self.wholes.push((alias, ranges.len()));
            Ok(())
        }
    }

    const PIN: SendMemory = SendMemory::PIN;

    #[test]
    fn vc_10_a_send_has_an_alias_that_says_what_it_chose() {
        let mut driver = Driver::default();
        let mut aliases = Aliases::new(PIN, 256);
        for first in [First::Pin, First::Copy, First::Whole] {
            for again in [Again::Pin, Again::Copy] {
                let choice = SendMemory { first, again };
                let alias = aliases.place(Some(choice), &[range(0x5000, 9)], (0, 0), &mut driver);
                assert_eq!(alias.is_none(), choice == PIN);
                assert_eq!(alias.map(alias_policy), (choice != PIN).then(|| choice.resolve(true)));
                let none =
                    [[range(0x5000, 0)], [range(ALIAS_END - 5, 6)], [range(u64::MAX, 2)], [range((1 << 39) - 1, 2)]];
                assert!(none.iter().all(|r| aliases.place(Some(choice), r, (0, 0), &mut driver).is_none()));
                // All ranges of an element are under its alias.
                let two = [range(0x5000, 9), range(0x9000, 0), range(ALIAS_END - 5, 5)];
                let alias = aliases.place(Some(choice), &two, (0, 0), &mut driver);
                let Some(alias) = alias else { continue };
                let found: Vec<_> = under(alias, &two).map(|r| aliased_va(r.va)).collect();
                assert_eq!(found, [Some((alias, 0x5000)), None, Some((alias, ALIAS_END - 5))]);
            }
        }
        assert_eq!(driver.wholes.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 3, 1, 3]);
        assert!(aliases.place(None, &[range(0x5000, 9)], (0, 0), &mut driver).is_none());
    }

    #[test]
    fn vc_10_what_is_cheaper_is_looked_for_and_looked_for_again() {
        let mut driver = Driver { copy_most: 4096, ..Driver::default() };
        let mut aliases = Aliases::new(SendMemory::AUTO, 256);
        let mut at = 0;
        let mut copied = |aliases: &mut Aliases, driver: &mut Driver, len| {
            at += 1;
            aliases.place(None, &[range(0x5000, len)], (at, at), driver).is_some()
        };
        for _ in 0..LOOK - 1 {
            assert!(!copied(&mut aliases, &mut driver, 100), "all is pinned at first");
        }
        assert!(copied(&mut aliases, &mut driver, 4096) && !copied(&mut aliases, &mut driver, 4097));
        assert_eq!(driver.pinned, [LOOK]);
        for _ in 2..TRUST {
            assert!(copied(&mut aliases, &mut driver, 100));
        }
        driver.copy_most = 0;
        for _ in 0..=LOOK {
            assert!(!copied(&mut aliases, &mut driver, 100));
        }
        assert_eq!(driver.pinned, [LOOK, 0, LOOK]);
        // While all are pinned, they need not be looked at.
        let mut rest = TRUST;
        while aliases.pins(1) {
            rest -= 1;
        }
        assert!(rest <= 2, "{rest}");
        assert!(!Aliases::new(SendMemory::COPY, 256).pins(1));
    }

    #[test]
    fn vc_6_no_two_sends_have_an_alias_before_what_is_under_it_is_gone() {
        let mut aliases = Aliases::new(SendMemory::COPY, 256);
        let mut driver = Driver::default();
        // By alias: the element that has it, and whether its copies may be there.
        let mut held = vec![None; 128];
        let mut calls = 0;
        let mut completed = 0_u64;
        for at in 0..5000_u64 {
            if at % 7 == 0 {
                completed = at.saturating_sub(at % 100);
            }
            let alias = aliases.place(None, &[range(0x7000, 64)], (at, completed), &mut driver);
            for (first, aliases) in driver.freed.drain(..) {
                calls += 1;
                for alias in first..first + aliases {
                    let of: Option<u64> = held[alias as usize - 256].take();
                    assert!(of.is_some_and(|of| of < completed), "it is not complete");
                }
            }
            let alias = alias.expect("one is free: at most 107 elements are not complete");
            assert_eq!(held[alias as usize - 256].replace(at), None, "two have alias {alias}");
        }
        assert!(calls < 5000 / 10, "{calls} calls");
    }

    #[test]
    fn vc_6_without_a_free_alias_a_send_is_pinned() {
        let mut aliases = Aliases::new(SendMemory::COPY, 256);
        let mut driver = Driver::default();
        let sges = [range(0x7000, 64)];
        for at in 0..128 {
            assert!(aliases.place(None, &sges, (at, 0), &mut driver).is_some());
        }
        assert!(aliases.place(None, &sges, (128, 0), &mut driver).is_none(), "none is complete");
        // The card still has copies.
        driver.busy = true;
        assert!(aliases.place(None, &sges, (128, 5), &mut driver).is_none());
        driver.busy = false;
        let placed = aliases.place(None, &sges, (128, 5), &mut driver);
        assert!(placed.is_some());
        assert_eq!(driver.freed, [(256, 5)]);
        // It was not posted after all.
        aliases.take_back(128);
        assert_eq!(aliases.place(None, &sges, (128, 5), &mut driver), placed);
    }
}
