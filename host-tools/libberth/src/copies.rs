// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the memory of sends reaches the card (VC-10), and the tags of sends by copy.
//!
//! The card finds a copy at an address of its own, with a tag ([`copy_va`]). Each element by copy has a tag of its own for as
//! long as it is not complete, and until the driver says that the card has none of its copies any more: so a send never
//! meets the bytes of an earlier one. A call to the driver frees many tags at a time.

use std::collections::VecDeque;

use berth_abi::ioctl::{COPY_END, COPY_TAGS, MEMORY_AUTO, MEMORY_COPY, MEMORY_PIN, copy_va};
use berth_abi::wqe::Sge;

use crate::error::Result;

/// Sends after which the driver is asked anew which are cheaper by copy.
const ASK_AFTER: u32 = 256;

/// How the memory of sends reaches the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMemory {
    /// Pinned, block by block, for as long as the card sends from it (VC-2, VC-4).
    #[default]
    Pin,
    /// Copied by the driver when the card sends it, the first time and again (VC-5, VC-6): nothing is pinned. Sends of several
    /// ranges are pinned all the same, those above the lower 128 TiB of addresses, and those for which no tag is free,
    /// because more than [`COPY_TAGS`] are not complete.
    Copy,
    /// Copied where that has cost less on this host for a send of that size, as the driver measures it, else pinned.
    Auto,
}

impl SendMemory {
    pub(crate) const fn abi(self) -> u32 {
        match self {
            Self::Pin => MEMORY_PIN,
            Self::Copy => MEMORY_COPY,
            Self::Auto => MEMORY_AUTO,
        }
    }
}

/// Tags of a queue pair.
#[derive(Debug)]
pub(crate) struct Copies {
    /// What sends are that choose nothing.
    usual: SendMemory,
    /// First tag.
    first: u32,
    /// Sends of up to so many bytes are cheaper by copy.
    most: u32,
    /// Sends for which that was looked at.
    asked: u32,
    /// Tags taken, free-running.
    next: u64,
    /// Those of them that can be taken again.
    free: u64,
    /// Places in the queue of the elements that have the last tags taken, free-running.
    elements: VecDeque<u64>,
}

impl Copies {
    /// Tags from `first` on.
    pub(crate) fn new(usual: SendMemory, first: u32, most: u32) -> Self {
        Self { usual, first, most, asked: 0, next: 0, free: 0, elements: VecDeque::new() }
    }

    /// The range at which the card finds a copy of `range`, for the element that will have place `at` in the queue; `None` if it
    /// is to be pinned. The first `completed` elements are complete. `gone` has the driver free so many tags from the first
    /// one on, and says which sends are cheaper by copy.
    pub(crate) fn place(
        &mut self,
        choice: Option<SendMemory>,
        range: Sge,
        (at, completed): (u64, u64),
        mut gone: impl FnMut(u32, u32) -> Result<u32>,
    ) -> Option<Sge> {
        let end = range.va.checked_add(range.len.into())?;
        if range.len == 0 || end > COPY_END {
            return None;
        }
        match choice.unwrap_or(self.usual) {
            SendMemory::Pin => return None,
            SendMemory::Copy => (),
            SendMemory::Auto => {
                self.asked += 1;
                if self.asked.is_multiple_of(ASK_AFTER) {
                    self.most = gone(self.first, 0).unwrap_or(self.most);
                }
                if range.len > self.most {
                    return None;
                }
            }
        }
        let tags = u64::from(COPY_TAGS);
        if self.next - self.free == tags {
            while self.elements.front().is_some_and(|place| *place < completed) {
                self.elements.pop_front();
            }
            let done = self.next - self.elements.len() as u64;
            while self.free < done {
                let begin = self.free % tags;
                let count = (done - self.free).min(tags - begin);
                // If the card still sends one of them again, this element is pinned.
                self.most = gone(self.first + begin as u32, count as u32).ok()?;
                self.free += count;
            }
            if self.next - self.free == tags {
                return None;
            }
        }
        let tag = self.first + (self.next % tags) as u32;
        self.next += 1;
        self.elements.push_back(at);
        Some(Sge { va: copy_va(tag, range.va), ..range })
    }

    /// The elements that would have had places from `at` on were not posted.
    pub(crate) fn take_back(&mut self, at: u64) {
        while self.elements.back().is_some_and(|place| *place >= at) {
            self.elements.pop_back();
            self.next -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use berth_abi::ioctl::copied_va;

    fn range(va: u64, len: u32) -> Sge {
        Sge { va, len, reserved: 0 }
    }

    fn never(_: u32, _: u32) -> Result<u32> {
        panic!("no tag is short")
    }

    #[test]
    fn vc_10_sends_are_copied_as_they_choose_and_where_it_is_cheaper() {
        let mut copies = Copies::new(SendMemory::Auto, 128, 4096);
        let mut copied = |choice, len| copies.place(choice, range(0x5000, len), (0, 0), never).is_some();
        assert!(copied(None, 4096) && !copied(None, 4097) && !copied(None, 0));
        assert!(copied(Some(SendMemory::Copy), 1 << 20) && !copied(Some(SendMemory::Pin), 1));
        let mut copies = Copies::new(SendMemory::Copy, 128, 0);
        let mut copied = |va, len| copies.place(None, range(va, len), (0, 0), never).is_some();
        assert!(copied(COPY_END - 5, 5) && !copied(COPY_END - 5, 6) && !copied(u64::MAX, 2));
        // What is cheaper changes.
        let mut copies = Copies::new(SendMemory::Auto, 128, 0);
        let mut asked = 0;
        for _ in 0..ASK_AFTER {
            let ask = |first, tags| {
                assert_eq!((first, tags), (128, 0));
                asked += 1;
                Ok(100)
            };
            let _ = copies.place(None, range(0x5000, 100), (0, 0), ask);
        }
        assert_eq!((asked, copies.next), (1, 1));
    }

    #[test]
    fn vc_6_no_two_sends_have_a_tag_before_the_first_ones_copies_are_gone() {
        let mut copies = Copies::new(SendMemory::Copy, 256, 0);
        // By tag: the element that has it, and whether its copies may be there.
        let mut held = vec![None; COPY_TAGS as usize];
        let mut calls = 0;
        let mut completed = 0_u64;
        for at in 0..5000_u64 {
            if at % 7 == 0 {
                completed = at.saturating_sub(at % 100);
            }
            let placed = copies.place(None, range(0x7000, 64), (at, completed), |first, tags| {
                calls += 1;
                for tag in first..first + tags {
                    let of: Option<u64> = held[tag as usize - 256].take();
                    assert!(of.is_some_and(|of| of < completed), "it is not complete");
                }
                Ok(0)
            });
            let placed = placed.expect("a tag is free: at most 107 elements are not complete");
            let (tag, va) = copied_va(placed.va).unwrap();
            assert_eq!((va, placed.len), (0x7000, 64));
            assert_eq!(held[tag as usize - 256].replace(at), None, "two have tag {tag}");
        }
        assert!(calls < 5000 / 10, "{calls} calls");
    }

    #[test]
    fn vc_6_without_a_free_tag_a_send_is_pinned() {
        let mut copies = Copies::new(SendMemory::Copy, 128, 0);
        for at in 0..u64::from(COPY_TAGS) {
            assert!(copies.place(None, range(0x7000, 64), (at, 0), never).is_some());
        }
        let at = u64::from(COPY_TAGS);
        assert!(copies.place(None, range(0x7000, 64), (at, 0), never).is_none(), "none is complete");
        // The card still has copies.
        let busy = |_, _| Err(Error::Busy { what: "test" });
        assert!(copies.place(None, range(0x7000, 64), (at, 5), busy).is_none());
        let mut freed = Vec::new();
        let placed = copies.place(None, range(0x7000, 64), (at, 5), |first, tags| {
            freed.push((first, tags));
            Ok(0)
        });
        assert!(placed.is_some());
        assert_eq!(freed, [(128, 5)]);
        // It was not posted after all.
        copies.take_back(at);
        let again = copies.place(None, range(0x7000, 64), (at, 5), never);
        assert_eq!(again, placed);
    }
}
