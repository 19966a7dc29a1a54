// SPDX-License-Identifier: GPL-2.0
//! Everything at random.

use super::rig::*;
use crate::abi::{
    alias::{alias_va, aliased_va},
    card::*,
    ioctl::Whole,
    ring::TAG_SENDS_AGAIN,
    wqe::Sge,
};
use crate::card::State;
use crate::memory::{Change, change};
use crate::pages::aliases::Aliases;
use crate::process::Context;
use berth_random::{Rng, cases, seed};
use kernel::{
    mm::MmWithUser,
    sync::{Arc, atomic::Relaxed},
};

/// First page of each process's memory.
const BASE: u64 = 0x1000;
/// Its pages.
const AREA: u64 = 24;

/// Aliases that are used, of each policy some.
const ALIASES: [u32; 8] = [0, 1, 128, 160, 192, 193, 224, 225];

/// What a case is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    /// Everything.
    All,
    /// Memory that changes.
    Changes,
    /// Budgets that are small.
    Budgets,
    /// Things that fail.
    Failures,
}

struct Process {
    mm: &'static MmWithUser,
    alive: bool,
}

struct Case {
    rig: Rig,
    rng: Rng,
    processes: Vec<Process>,
    contexts: Vec<(usize, Arc<Context>)>,
    /// Aliases, by context, which may be gone.
    tags: Vec<(Arc<Context>, Aliases)>,
    theme: Theme,
}

impl Case {
    fn new(seed: u64, theme: Theme) -> Self {
        let mut rng = Rng(seed);
        let small = theme == Theme::Budgets || rng.chance(0.3);
        let setup = Setup {
            linger_ms: [0, 3, 50][rng.below(3) as usize],
            card_pages: if small { rng.between(12, 50) } else { 400 },
            context_pages: if rng.chance(0.5) { rng.between(10, 60) } else { 200 },
            copy_pages: rng.between(4, 64),
            ..Setup::default()
        };
        let mut rig = Rig::with(Some(rng.draw()), setup);
        if rng.chance(0.4) {
            rig.narrow(rng.between(30, 60) as u16);
        }
        rig.world.set_preempt(rng.between(2, 30));
        if theme == Theme::Failures {
            rig.world.set_failures(rng.between(10, 100), rng.between(3, 50));
            rig.surroundings.memory.borrow_mut().fail = rng.between(10, 100);
        }
        if theme == Theme::All && rng.chance(0.3) {
            rig.world.set_failures(0, rng.between(3, 20));
        }
        rig.surroundings.hardware.borrow_mut().recalls = rng.chance(0.7);
        rig.card.start_watching();
        rig.watched = true;
        let mut case = Self { rig, rng, processes: Vec::new(), contexts: Vec::new(), tags: Vec::new(), theme };
        for _ in 0..case.rng.between(1, 3) {
            case.process();
        }
        case
    }

    fn process(&mut self) {
        let mm = self.rig.process();
        self.rig.mmap(mm, BASE, AREA);
        let at = self.processes.len();
        self.processes.push(Process { mm, alive: true });
        for _ in 0..self.rng.between(1, 2) {
            self.context(at);
        }
    }

    fn context(&mut self, at: usize) {
        if self.rig.contexts().len() > 5 {
            return;
        }
        let pages = if self.rng.chance(0.3) { self.rng.between(8, 40) } else { u64::MAX };
        let failing = self.theme == Theme::Failures;
        if failing {
            self.rig.world.set_failures(0, 0);
        }
        let context = self.rig.context_with(self.processes[at].mm, pages);
        if failing {
            self.rig.world.set_failures(self.rng.between(10, 100), self.rng.between(3, 50));
        }
        let qpn = FIRST_QPN + context.asid % NUM_QPS;
        self.rig.give_qp(qpn, context.asid);
        if let Ok(tags) = context.space.aliases() {
            self.tags.push((context.clone(), tags));
        }
        self.contexts.push((at, context));
    }

    fn pick(&mut self) -> Option<(usize, Arc<Context>)> {
        self.contexts.retain(|(_, c)| self.rig.contexts().iter().any(|o| Arc::ptr_eq(o, c)));
        if self.contexts.is_empty() {
            return None;
        }
        let at = self.rng.below(self.contexts.len() as u64) as usize;
        Some(self.contexts[at].clone())
    }

    /// A range of the area.
    fn range(&mut self) -> (u64, u64) {
        let first = self.rng.below(AREA);
        let most = (AREA - first).min(if self.rng.chance(0.2) { AREA } else { 6 });
        (BASE + first, self.rng.between(1, most))
    }

    fn ask(&mut self) {
        let Some((_, context)) = self.pick() else { return };
        if self.rig.card.state() != State::Up {
            return;
        }
        let qpn = FIRST_QPN + context.asid % NUM_QPS;
        let write = self.rng.chance(0.5);
        let n = self.rng.below(8) as u32;
        let tag = match self.rng.below(3) {
            0 => context.asid << 4 | n,
            _ if write => receive_tag(qpn, n) ^ context.asid << 8,
            _ => send_tag(qpn, n | u32::from(self.rng.chance(0.3)) << TAG_SENDS_AGAIN) ^ context.asid << 11,
        };
        let (first, pages) = self.range();
        let mut hardware = self.rig.surroundings.hardware.borrow_mut();
        if !hardware.is_busy(tag) && hardware.mms.contains_key(&context.asid) {
            // Not always whole pages.
            let (skip, less) = (self.rng.below(4096), self.rng.below(4096));
            let len = (bytes(pages) - skip).saturating_sub(less).max(1);
            let va = bytes(first) + skip;
            let mut tags = self.tags.iter().filter(|_| !write && self.rng.chance(0.4));
            let va = match tags.find(|(c, _)| Arc::ptr_eq(c, &context)) {
                Some((_, tags)) => alias_va(tags.first() + ALIASES[self.rng.below(8) as usize], va),
                None => va,
            };
            hardware.ask(tag, context.asid, va, len, write);
        }
    }

    /// Says which memory a send has that is to be pinned as a whole.
    fn whole(&mut self) {
        let (range, alias) = (self.range(), 192 + self.rng.below(64) as u32 / 31);
        let Some((context, tags)) = self.tags.first() else { return };
        let mut whole = Whole { alias: tags.first() + alias, ranges: 1, ..Whole::default() };
        whole.range[0] = Sge { va: bytes(range.0) + 5, len: bytes(range.1) as u32 - 5, reserved: 0 };
        let space = context.space.clone();
        self.rig.world.spawn(move || _ = space.note_whole(&whole));
    }

    fn hold(&mut self) -> Option<u32> {
        let hardware = self.rig.surroundings.hardware.borrow();
        let tags: Vec<u32> = hardware.holds.keys().copied().collect();
        (!tags.is_empty()).then(|| tags[self.rng.below(tags.len() as u64) as usize])
    }

    fn change(&mut self) {
        let at = self.rng.below(self.processes.len() as u64) as usize;
        let Process { mm, alive } = self.processes[at];
        if !alive {
            return;
        }
        let mm = mm.as_raw() as usize;
        let (first, pages) = self.range();
        let all = [
            Change::Unmap,
            Change::Replace,
            Change::Replace,
            Change::Dontneed,
            Change::Dontneed,
            Change::Swap,
            Change::Protect,
            Change::Unprotect,
            Change::Suspect,
            Change::Migrate,
        ];
        let what = all[self.rng.below(all.len() as u64) as usize];
        let blockable = self.rng.chance(0.8);
        let again = what == Change::Unmap || what == Change::Protect;
        self.rig.world.spawn(move || {
            if change(mm, first, pages, what, blockable) && again {
                // The process maps it anew.
                let surroundings = crate::memory::surroundings();
                if !surroundings.memory.borrow().is_changing(mm) {
                    surroundings.memory.borrow_mut().mmap(mm, first, pages, true);
                }
            }
        });
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..28 => self.ask(),
            28..44 => {
                if let Some(tag) = self.hold() {
                    self.rig.release(tag);
                }
            }
            44..52 => {
                if let Some(tag) = self.hold() {
                    let page = self.rng.below(4) as usize;
                    self.rig.surroundings.hardware.borrow_mut().begin_dma(tag, page);
                }
            }
            52..64 if self.theme != Theme::Budgets => self.change(),
            64..68 => {
                let pages = self.rng.between(10, 60);
                match self.rng.below(3) {
                    0 => {
                        let service = self.rig.pages.clone();
                        self.rig.world.spawn(move || service.set_budget(pages));
                    }
                    _ => {
                        if let Some((_, context)) = self.pick() {
                            self.rig.world.spawn(move || context.space.set_budget(pages));
                        }
                    }
                }
            }
            68..72 => {
                let mut hardware = self.rig.surroundings.hardware.borrow_mut();
                match self.rng.below(8) {
                    0 => hardware.stalled = true,
                    1 => hardware.slow = true,
                    2 => hardware.deaf = true,
                    3 => hardware.mute = true,
                    _ => {
                        hardware.stalled = false;
                        hardware.slow = false;
                        hardware.deaf = false;
                        hardware.mute = false;
                    }
                }
            }
            72..75 => {
                let at = self.rng.below(self.processes.len() as u64) as usize;
                let (vpn, _) = self.range();
                let stuck = self.rng.chance(0.4);
                let mm = self.processes[at].mm.as_raw() as usize;
                let mut memory = self.rig.surroundings.memory.borrow_mut();
                memory.unstick_all();
                memory.set_stuck(mm, vpn, stuck);
            }
            75..77 => {
                if let Some((_, context)) = self.pick() {
                    let qpn = FIRST_QPN + context.asid % NUM_QPS;
                    self.rig.world.spawn(move || {
                        context.space.end_requests(qpn);
                        kernel::time::delay::fsleep(kernel::time::Delta::from_millis(3));
                        context.space.end_requests(0);
                    });
                }
            }
            77 => {
                if let Some((_, context)) = self.pick() {
                    self.rig.world.spawn(move || context.space.give_up_requests());
                }
            }
            78 if self.theme == Theme::All => {
                if let Some((at, context)) = self.pick() {
                    self.rig.world.spawn(move || context.close());
                    if self.processes[at].alive {
                        self.context(at);
                    }
                }
            }
            79 if self.theme == Theme::All && self.rng.chance(0.5) => {
                let card = self.rig.card.clone();
                self.rig.world.spawn(move || {
                    let _ = card.reset("at random");
                });
            }
            80 if self.theme == Theme::All => {
                let at = self.rng.below(self.processes.len() as u64) as usize;
                if std::mem::replace(&mut self.processes[at].alive, false) {
                    let mm = self.processes[at].mm;
                    self.rig.world.spawn(move || {
                        mm.put_user();
                        kernel::world::world().wait(move || mm.counts().0 == 0);
                        change(mm.as_raw() as usize, 0, u64::MAX, Change::Release, true);
                    });
                    self.process();
                }
            }
            81 => self.rig.pages.linger_ms.store([0, 3, 50][self.rng.below(3) as usize], Relaxed),
            82 => {
                if let Some((_, context)) = self.pick() {
                    let block = context.space.block(self.rng.between(0, 30) as u32 * 4096);
                    let reserve = self.rig.reserve.get_mut(&(Arc::as_ptr(&context.space) as usize)).unwrap();
                    *reserve = (*reserve).max(u64::from(block) / 4096 + 1);
                }
            }
            83 => {
                if !self.tags.is_empty() && self.rng.chance(0.3) {
                    let (context, tags) = self.tags.remove(0);
                    // No element is left that has them.
                    let mut hardware = self.rig.surroundings.hardware.borrow_mut();
                    let ours = |va| aliased_va(va).is_some_and(|(tag, _)| tags.have(tag, 1));
                    if !hardware.asks.values().any(|ask| ours(ask.va)) {
                        let holds = hardware.holds.iter().filter(|(_, hold)| ours(hold.ask.va));
                        let holds: Vec<u32> = holds.map(|(tag, _)| *tag).collect();
                        holds.into_iter().for_each(|tag| hardware.release(tag));
                        self.rig.world.spawn(move || drop((tags, context)));
                    } else {
                        self.tags.push((context, tags));
                    }
                } else if self.rng.chance(0.6) {
                    self.whole();
                } else if let Some((context, tags)) = self.tags.first() {
                    let (space, first) = (context.space.clone(), tags.first());
                    self.rig.world.spawn(move || _ = space.wait_aliases_gone(first, 2));
                }
            }
            84..90 => {
                let us = [1, 300, 5000, 50_000][self.rng.below(4) as usize];
                let ns = self.rng.below(us * 1000);
                self.rig.watch(ns);
            }
            _ => {
                for _ in 0..self.rng.between(1, 20) {
                    self.rig.world.run_one();
                    self.rig.check();
                }
            }
        }
        self.rig.check();
    }
}

fn run(theme: Theme, base: u64) {
    let first = seed(base);
    for n in 0..cases(12) {
        println!("case {}", first + n);
        let mut case = Case::new(first + n, theme);
        for _ in 0..400 {
            case.step();
        }
        let Case { rig, contexts, tags, .. } = case;
        drop(contexts);
        rig.spawn(move || drop(tags));
        // Budgets that are being changed are not changed after these.
        rig.settle();
        rig.pages.set_budget(400);
        for context in rig.contexts() {
            context.space.set_budget(400);
        }
        rig.end();
    }
}

#[test]
fn inv_3_inv_4_pages_are_kept_and_given_back_whatever_happens() {
    run(Theme::All, 1000);
}

#[test]
fn vc_9_memory_that_changes_is_let_go_of_in_time() {
    run(Theme::Changes, 2000);
}

#[test]
fn pc_3_budgets_are_kept_and_everybody_gets_on() {
    run(Theme::Budgets, 3000);
}

#[test]
fn inv_6_what_fails_harms_nobody() {
    run(Theme::Failures, 4000);
}
