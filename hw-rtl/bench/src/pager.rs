// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of pages: pins what the card asks for after the time that this takes, unpins what the card has
//! left, and keeps count.

use anyhow::{Context as _, Result};
use berth_abi::card::xlt_free;
use berth_abi::ring::*;
use berth_abi::status::{PAGE_FAULT, PAGE_OK};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use crate::rig::{Rig, install_commands};

const PAGE: u64 = 4096;

/// A range that the card waits for.
#[derive(Clone, Debug)]
struct Need {
    due: u64,
    tag: u32,
    pages: Range<u64>,
}

/// Pages of one address space.
#[derive(Debug)]
pub struct Pager {
    asid: u32,
    /// Cycles from when the driver sees a request to its answer.
    service: u64,
    /// All of the process's pages, and the bus address of the first one.
    all: Range<u64>,
    bus: u64,
    /// The first page of what is received.
    sink: u64,
    /// Pages that are pinned: their places in the card's table, and whether they are being evicted.
    pinned: HashMap<u64, (u32, bool)>,
    used: BTreeSet<u32>,
    by_place: HashMap<u32, u64>,
    needs: VecDeque<Need>,
    now: [u64; 2],
    /// Most bytes pinned at any time: of what is sent, of what is received.
    pub peak: [u64; 2],
    /// Requests so far.
    pub requests: u64,
}

impl Pager {
    /// Nothing is pinned yet.
    pub fn new(asid: u32, service: u64, all: Range<u64>, bus: u64, sink: u64) -> Self {
        let (now, peak) = ([0; 2], [0; 2]);
        let (pinned, used, by_place, needs) = Default::default();
        Self { asid, service, all, bus, sink, pinned, used, by_place, needs, now, peak, requests: 0 }
    }

    /// Pins pages and gives their commands to the ring.
    ///
    /// # Errors
    /// When a page finds no place in the card's table.
    fn pin(&mut self, rig: &mut Rig, pages: &[u64]) -> Result<()> {
        let mut entries = Vec::new();
        for &vpn in pages {
            let index = xlt_free(self.asid, vpn, |place| !self.used.contains(&place));
            let index = index.context("no place in the translation table")?;
            self.used.insert(index);
            self.by_place.insert(index, vpn);
            self.pinned.insert(vpn, (index, false));
            entries.push((index, vpn, self.bus + (vpn - self.all.start) * PAGE));
            let side = usize::from(vpn >= self.sink);
            self.now[side] += PAGE;
            self.peak[side] = self.peak[side].max(self.now[side]);
        }
        for command in install_commands(self.asid, &entries) {
            rig.command(&command);
        }
        Ok(())
    }

    /// Pins all pages.
    ///
    /// # Errors
    /// When a page finds no place, or the card does not take the commands.
    pub fn pin_all(&mut self, rig: &mut Rig) -> Result<()> {
        let all: Vec<u64> = self.all.clone().collect();
        for some in all.chunks(3000) {
            self.pin(rig, some)?;
            rig.carry_out()?;
        }
        Ok(())
    }

    /// An event of the card.
    pub fn event(&mut self, rig: &mut Rig, w: [u32; ENTRY_WORDS]) {
        let va = u64::from(w[4]) | u64::from(w[5]) << 32;
        let pages = va / PAGE..(va + u64::from(w[6].max(1))).div_ceil(PAGE);
        match w[0] & 0xff {
            EV_PAGE_NEED => {
                self.requests += 1;
                self.needs.push_back(Need { due: rig.card.cycles() + self.service, tag: w[1], pages });
            }
            EV_PAGE_RELEASE if self.service > 0 => {
                for vpn in pages {
                    if let Some((index, evicting @ false)) = self.pinned.get_mut(&vpn) {
                        *evicting = true;
                        rig.evict(*index);
                    }
                }
                rig.tell();
            }
            EV_PAGE_EVICTED => {
                for (index, dropped) in evicted_pages(&w) {
                    let Some(&vpn) = self.by_place.get(&index) else { continue };
                    if dropped {
                        self.pinned.remove(&vpn);
                        self.by_place.remove(&index);
                        self.used.remove(&index);
                        self.now[usize::from(vpn >= self.sink)] -= PAGE;
                    } else if let Some((_, evicting)) = self.pinned.get_mut(&vpn) {
                        *evicting = false;
                    }
                }
            }
            _ => {}
        }
    }

    /// Answers what is due. A range of which a page is being unpinned waits for that.
    ///
    /// # Errors
    /// When a page finds no place in the card's table.
    pub fn serve(&mut self, rig: &mut Rig) -> Result<()> {
        let now = rig.card.cycles();
        let mut told = false;
        while self.needs.front().is_some_and(|n| n.due <= now) {
            let Some(need) = self.needs.pop_front() else { break };
            if need.pages.clone().any(|vpn| self.pinned.get(&vpn).is_some_and(|p| p.1)) {
                self.needs.push_front(need);
                break;
            }
            let known = need.pages.start >= self.all.start && need.pages.end <= self.all.end;
            if known {
                let missing: Vec<u64> = need.pages.clone().filter(|vpn| !self.pinned.contains_key(vpn)).collect();
                self.pin(rig, &missing)?;
            }
            rig.command(&[CMD_PAGE_READY, need.tag, if known { PAGE_OK } else { PAGE_FAULT }]);
            told = true;
        }
        if told {
            rig.tell();
        }
        Ok(())
    }
}
