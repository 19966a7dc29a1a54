// SPDX-License-Identifier: GPL-2.0
//! Address spaces of processes, the frames behind them, and who has which of these pinned and mapped.

use crate::hardware::Hardware;
use crate::kernel::mmu_notifier::{Event, Range};
use crate::process::Registry;
use kernel::{
    prelude::*,
    sync::{Arc, Mutex, SpinGuard, SpinLock},
    world::{atomically, user, world},
};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Everything that is not the driver's.
#[derive(Default)]
pub struct Surroundings {
    pub(crate) memory: RefCell<Memory>,
    pub(crate) hardware: RefCell<Hardware>,
    pub(crate) card: RefCell<Option<Arc<Registry>>>,
    /// Other cards of the host.
    pub(crate) others: RefCell<Vec<Arc<Registry>>>,
    holds: OnceCell<&'static SpinLock<()>>,
    rtnl: OnceCell<&'static Mutex<()>>,
    /// How often each event descriptor was signalled.
    pub(crate) signals: RefCell<BTreeMap<i32, u32>>,
    /// Memory of queues that there is, and how long it takes to get some, in nanoseconds.
    pub(crate) queues: Cell<u64>,
    pub(crate) queue_ns: Cell<u64>,
    /// Packets that there are.
    pub(crate) packets: Cell<i32>,
    /// Counts what happens.
    serial: Cell<u64>,
}

// SAFETY: One thread runs at a time.
unsafe impl Send for Surroundings {}
// SAFETY: As above.
unsafe impl Sync for Surroundings {}

/// That of this test.
pub fn surroundings() -> Arc<Surroundings> {
    user()
}

/// The lock of what the driver holds, whatever the card.
pub(crate) fn holds() -> SpinGuard<'static, ()> {
    let lock = *surroundings().holds.get_or_init(|| Box::leak(Box::new(SpinLock::new((), "berth_holds"))));
    lock.lock()
}

impl Surroundings {
    /// The lock of the network configuration.
    pub(crate) fn rtnl(&self) -> &'static Mutex<()> {
        self.rtnl.get_or_init(|| Box::leak(Box::new(Mutex::new((), "rtnl"))))
    }

    /// A number higher than all before.
    pub(crate) fn next(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }
}

/// A page of an address space.
#[derive(Clone, Copy, Debug)]
struct Page {
    write: bool,
    /// None until it is used.
    frame: Option<u64>,
}

type Told = Rc<dyn Fn(&Range) -> bool>;

#[derive(Default)]
struct Space {
    pages: BTreeMap<u64, Page>,
    /// Which do not come.
    stuck: BTreeSet<u64>,
    /// So many times one of them comes all the same, and is gone again.
    passes: u32,
    told: Vec<(u64, Told)>,
    changing: u32,
    /// First page, pages, and when everybody had been told of a change.
    changed: Vec<(u64, u64, u64)>,
    pins: u64,
}

#[derive(Default)]
struct Frame {
    mm: usize,
    pins: u32,
    maps: u32,
}

struct Mapping {
    frame: u64,
    write: bool,
}

#[derive(Default)]
pub(crate) struct Memory {
    spaces: BTreeMap<usize, Space>,
    frames: BTreeMap<u64, Frame>,
    mappings: BTreeMap<u64, Mapping>,
    last: u64,
    /// What pages hold: other numbers than 0.
    contents: BTreeMap<(usize, u64), u64>,
    /// By bus address: whose page was copied there, and what it held.
    copies: BTreeMap<u64, (usize, u64, u64)>,
    /// Most mappings of a frame at a time.
    pub(crate) most_maps: u32,
    /// Most pages pinned at a time.
    pub(crate) most_pins: u64,
    pub(crate) pins: u64,
    /// So many mappings that come next fail.
    pub(crate) fail_maps: u32,
    /// So many pins that come next fail, so.
    pub(crate) fail_pins: (u32, Option<Error>),
    /// One in so many of either fails for want of memory; 0 none.
    pub(crate) fail: u64,
    /// What has failed so.
    pub(crate) failed: u64,
    /// Pages pinned in all, without those that were only brought.
    pub(crate) pinned: u64,
    /// Nanoseconds between that everybody is told of a change and the change.
    pub(crate) dwell: u64,
}

/// What becomes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is unmapped.
    Unmap,
    /// It moves: nothing is there any more, and other pages elsewhere.
    Replace,
    /// Its contents are given up: other ones come with the next use.
    Dontneed,
    /// An attempt to swap it out, which fails because it is pinned.
    Swap,
    /// It can be read only.
    Protect,
    /// It can be written again.
    Unprotect,
    /// An attempt to migrate it, or a fork.
    Suspect,
    /// A migration that succeeds.
    Migrate,
    /// Everything goes.
    Release,
}

impl Memory {
    fn space(&mut self, mm: usize) -> &mut Space {
        self.spaces.entry(mm).or_default()
    }

    /// Maps pages, which come with their first use.
    pub(crate) fn mmap(&mut self, mm: usize, first: u64, pages: u64, write: bool) {
        let space = self.space(mm);
        space.pages.extend((first..first + pages).map(|vpn| (vpn, Page { write, frame: None })));
    }

    pub(crate) fn register(&mut self, mm: usize, told: Told) -> u64 {
        self.last += 1;
        let number = self.last;
        self.space(mm).told.push((number, told));
        number
    }

    pub(crate) fn unregister(&mut self, mm: usize, number: u64) {
        self.space(mm).told.retain(|t| t.0 != number);
    }

    pub(crate) fn is_changing(&self, mm: usize) -> bool {
        self.spaces.get(&mm).is_some_and(|s| s.changing > 0)
    }

    pub(crate) fn is_stuck(&self, mm: usize, vpn: u64) -> bool {
        self.spaces.get(&mm).is_some_and(|s| s.stuck.contains(&vpn))
    }

    /// Something stuck comes, and is gone again.
    pub(crate) fn pass(&mut self, mm: usize) {
        self.space(mm).passes += 1;
    }

    /// Whether one that is stuck comes now.
    pub(crate) fn take_pass(&mut self, mm: usize) -> bool {
        let passes = &mut self.space(mm).passes;
        let some = *passes > 0;
        *passes = passes.saturating_sub(1);
        some
    }

    /// Whether a page is there and may be used so.
    pub(crate) fn is_present(&self, mm: usize, vpn: u64, write: bool) -> bool {
        let page = self.spaces.get(&mm).and_then(|s| s.pages.get(&vpn));
        page.is_some_and(|p| p.frame.is_some() && (p.write || !write)) && !self.is_stuck(mm, vpn)
    }

    pub(crate) fn set_stuck(&mut self, mm: usize, vpn: u64, stuck: bool) {
        let space = self.space(mm);
        if stuck {
            space.stuck.insert(vpn);
        } else {
            space.stuck.remove(&vpn);
        }
    }

    pub(crate) fn unstick_all(&mut self) {
        self.spaces.values_mut().for_each(|s| s.stuck.clear());
    }

    /// Whether something random fails.
    fn fails(&mut self) -> bool {
        let fails = self.fail != 0 && world().below(self.fail) == 0;
        self.failed += u64::from(fails);
        fails
    }

    pub(crate) fn pin(&mut self, mm: usize, vpn: u64, write: bool) -> Result<u64> {
        if self.fail_pins.0 > 0 {
            self.fail_pins.0 -= 1;
            return Err(self.fail_pins.1.unwrap_or(ENOMEM));
        }
        if self.fails() {
            return Err(ENOMEM);
        }
        let fresh = self.last + 1;
        let space = self.space(mm);
        let page = space.pages.get_mut(&vpn).ok_or(EFAULT)?;
        if write && !page.write {
            return Err(EFAULT);
        }
        let frame = *page.frame.get_or_insert(fresh);
        space.pins += 1;
        self.last = fresh;
        let of = self.frames.entry(frame).or_default();
        of.mm = mm;
        of.pins += 1;
        self.pins += 1;
        self.pinned += 1;
        self.most_pins = self.most_pins.max(self.pins);
        Ok(frame)
    }

    /// The process writes to a page.
    pub(crate) fn write(&mut self, mm: usize, vpn: u64, what: u64) {
        self.contents.insert((mm, vpn), what);
    }

    /// A page comes with its first use.
    pub(crate) fn touch(&mut self, mm: usize, vpn: u64) -> Result {
        let fresh = self.last + 1;
        let page = self.space(mm).pages.get_mut(&vpn).ok_or(EFAULT)?;
        page.frame.get_or_insert(fresh);
        self.last = fresh;
        Ok(())
    }

    /// A page is copied to a bus address.
    pub(crate) fn copy(&mut self, mm: usize, vpn: u64, bus: u64) {
        let what = self.contents.get(&(mm, vpn)).copied().unwrap_or(0);
        self.copies.insert(bus, (mm, vpn, what));
    }

    /// Whose page was copied to a bus address, and what it held; none if there is no copy.
    pub(crate) fn copied(&self, bus: u64) -> Option<(usize, u64, u64)> {
        self.copies.get(&bus).copied()
    }

    pub(crate) fn forget_copy(&mut self, bus: u64) {
        self.copies.remove(&bus);
    }

    pub(crate) fn unpin(&mut self, frame: u64) {
        let of = self.frames.get_mut(&frame).expect("it was pinned");
        of.pins -= 1;
        assert!(of.maps <= of.pins, "inv_4: a page that is mapped for the card is unpinned");
        let mm = of.mm;
        if of.pins == 0 {
            self.frames.remove(&frame);
        }
        self.space(mm).pins -= 1;
        self.pins -= 1;
    }

    pub(crate) fn map(&mut self, frame: u64, write: bool) -> Result<u64> {
        if self.fail_maps > 0 || self.fails() {
            self.fail_maps = self.fail_maps.saturating_sub(1);
            return Err(ENOMEM);
        }
        self.last += 1;
        let bus = self.last << 12;
        let of = self.frames.get_mut(&frame).expect("it is pinned");
        of.maps += 1;
        assert!(of.maps <= of.pins, "what is not pinned is mapped");
        self.most_maps = self.most_maps.max(of.maps);
        self.mappings.insert(bus, Mapping { frame, write });
        Ok(bus)
    }

    pub(crate) fn unmap(&mut self, bus: u64) {
        let mapping = self.mappings.remove(&bus).expect("it was mapped");
        self.frames.get_mut(&mapping.frame).expect("it is pinned").maps -= 1;
    }

    /// Whether an address maps a frame, with this right.
    pub(crate) fn maps(&self, mm: usize, vpn: u64, frame: u64, write: bool) -> bool {
        let page = self.spaces.get(&mm).and_then(|s| s.pages.get(&vpn));
        page.is_some_and(|p| p.frame == Some(frame) && (p.write || !write))
    }

    /// The frame behind a bus address, and whether the card may write; what is not mapped fails.
    pub(crate) fn behind(&self, bus: u64) -> (u64, bool) {
        let mapping = self.mappings.get(&bus).expect("inv_4: the card uses what is not mapped for it");
        (mapping.frame, mapping.write)
    }

    /// The card may use a bus address: it is mapped, or that of a copy.
    pub(crate) fn assert_usable(&self, bus: u64) {
        if self.copied(bus).is_none() {
            self.behind(bus);
        }
    }

    /// When everybody had last been told of a change of a page.
    pub(crate) fn changed(&self, mm: usize, vpn: u64) -> u64 {
        let mut all = self.spaces.get(&mm).map_or(&[][..], |s| &s.changed).iter().rev();
        all.find(|c| vpn >= c.0 && vpn - c.0 < c.1).map_or(0, |c| c.2)
    }

    /// Pages pinned of an address space.
    pub(crate) fn pins_of(&self, mm: usize) -> u64 {
        self.spaces.get(&mm).map_or(0, |s| s.pins)
    }

    pub(crate) fn mappings(&self) -> usize {
        self.mappings.len()
    }

    fn apply(&mut self, mm: usize, first: u64, pages: u64, change: Change) {
        let fresh = self.last + 1;
        self.last += pages.min(1 << 20);
        let space = self.space(mm);
        if change == Change::Release {
            space.pages.clear();
            space.stuck.clear();
        }
        let range = first..first.saturating_add(pages);
        if change == Change::Unmap {
            space.pages.retain(|vpn, _| !range.contains(vpn));
        }
        for (vpn, page) in space.pages.range_mut(range) {
            match change {
                Change::Replace | Change::Migrate => page.frame = Some(fresh + (vpn - first)),
                Change::Dontneed => page.frame = None,
                Change::Protect => page.write = false,
                Change::Unprotect => page.write = true,
                _ => {}
            }
        }
    }
}

/// Changes a range, and tells those that want to know; false if it may not wait for them, and they would have to.
pub(crate) fn change(mm: usize, first: u64, pages: u64, change: Change, blockable: bool) -> bool {
    let event = match change {
        Change::Unmap | Change::Replace => Event::Unmap,
        Change::Release => Event::Release,
        Change::Dontneed | Change::Swap => Event::Clear,
        _ => Event::Other,
    };
    let surroundings = surroundings();
    let range = match change {
        Change::Release => Range { start: 0, end: !4095, event, blockable },
        _ => Range { start: first * 4096, end: (first + pages) * 4096, event, blockable },
    };
    let told: Vec<Told> = {
        let mut memory = surroundings.memory.borrow_mut();
        let space = memory.space(mm);
        space.changing += 1;
        space.told.iter().map(|t| t.1.clone()).collect()
    };
    let begin = surroundings.next();
    let mut all = true;
    for told in told {
        all &= if blockable { told(&range) } else { atomically(|| told(&range)) };
    }
    assert!(all || !blockable, "what may wait is refused");
    if all {
        if blockable {
            surroundings.hardware.borrow().assert_let_go(mm, first, pages, event, begin);
        }
        let serial = surroundings.next();
        surroundings.memory.borrow_mut().space(mm).changed.push((first, pages, serial));
        if blockable {
            world().preempt();
            let dwell = surroundings.memory.borrow().dwell;
            if dwell > 0 {
                world().sleep(dwell);
            }
        }
        surroundings.memory.borrow_mut().apply(mm, first, pages, change);
    }
    surroundings.memory.borrow_mut().space(mm).changing -= 1;
    all
}
