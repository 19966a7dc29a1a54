// SPDX-License-Identifier: GPL-2.0
//! Pages that were taken out of their address space.

use crate::{
    kernel::pin::PART,
    pages::run::{bits, Node, Part, Run},
};

/// Runs handled per lock hold when many are taken out.
const BATCH: usize = 16;

/// Pages on their way out. They go when this is dropped, which may sleep.
pub(super) struct Leaving {
    /// Runs of which nothing is left.
    pub(super) nodes: [Option<Node>; BATCH],
    pub(super) whole: usize,
    /// Pages of a run that others stay of: their places in the card's table.
    pub(super) places: [u16; PART],
    pub(super) parts: usize,
    pub(super) part: Option<Part>,
    /// Pages that are no copies, and those of them for receiving.
    pub(super) pages: u64,
    pub(super) receive: u64,
}

impl Leaving {
    /// Nothing.
    pub(super) const fn new() -> Self {
        Self {
            nodes: [const { None }; BATCH],
            whole: 0,
            places: [0; PART],
            parts: 0,
            part: None,
            pages: 0,
            receive: 0,
        }
    }

    /// Whether there is nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.whole == 0 && self.part.is_none()
    }

    /// So many pages of a run leave.
    pub(super) fn count(&mut self, run: &Run, pages: u64) {
        let pages = u64::from(pages.count_ones());
        if !run.memory.is_copy() {
            self.pages += pages;
        }
        if run.memory.is_write() {
            self.receive += pages;
        }
    }

    /// Takes some of these pages of a run.
    pub(super) fn take_part(&mut self, run: &mut Run, pages: u64) {
        let (taken, part) = run.take(pages);
        self.count(run, taken);
        for (n, place) in bits(taken).zip(&mut self.places) {
            *place = run.places[n];
            self.parts += 1;
        }
        self.part = Some(part);
    }
}
