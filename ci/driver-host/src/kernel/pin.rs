// SPDX-License-Identifier: GPL-2.0
//! Pinning pages of [`crate::memory`], and mapping them for DMA.

use crate::kernel::gate::BoundRef;
use crate::kernel::worker_mm::WorkerMm;
use crate::memory::surroundings;
use kernel::{
    mm::{MmWithUser, virt::VmaNew},
    prelude::*,
    world::{might_sleep, world},
};

pub(crate) const PART: usize = 16;

/// A page that is pinned, and mapped at a bus address.
struct PinnedPage {
    frame: u64,
    bus: Option<u64>,
}

impl Drop for PinnedPage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        might_sleep();
        world().preempt();
        if let Some(bus) = self.bus {
            surroundings().hardware.borrow().assert_unused(bus);
            surroundings().memory.borrow_mut().unmap(bus);
            world().preempt();
        }
        surroundings().memory.borrow_mut().unpin(self.frame);
    }
}

pub(crate) struct PinnedRun {
    pages: Vec<Option<PinnedPage>>,
    write: bool,
    dev: Option<BoundRef>,
}

pub(crate) struct PinnedPart {
    _pages: Vec<Option<PinnedPage>>,
    _dev: Option<BoundRef>,
}

impl PinnedRun {
    pub(crate) fn new(reader: &WorkerMm<'_>, va: usize, pages: usize, write: bool) -> Result<Self> {
        assert!(va.is_multiple_of(4096) && pages > 0);
        let _ = KVec::<u64>::with_capacity(pages, GFP_KERNEL | __GFP_NOWARN)?;
        let mm = reader.mm().as_raw() as usize;
        let mut this = Self { pages: Vec::new(), write, dev: None };
        for vpn in (va as u64 / 4096..).take(pages) {
            might_sleep();
            world().preempt();
            if !surroundings().memory.borrow().is_present(mm, vpn, write) {
                return Err(EFAULT);
            }
            let frame = surroundings().memory.borrow_mut().pin(mm, vpn, write)?;
            this.pages.push(Some(PinnedPage { frame, bus: None }));
        }
        world().preempt();
        Ok(this)
    }

    pub(crate) fn map(&mut self, dev: BoundRef) -> Result {
        self.dev = Some(dev);
        for page in self.pages.iter_mut().flatten() {
            might_sleep();
            world().preempt();
            page.bus = Some(surroundings().memory.borrow_mut().map(page.frame, self.write)?);
        }
        Ok(())
    }

    pub(crate) fn is_write(&self) -> bool {
        self.write
    }

    fn page(&self, n: usize) -> &PinnedPage {
        self.pages[n].as_ref().expect("the page is there")
    }

    pub(crate) fn addr(&self, n: usize) -> u64 {
        self.page(n).bus.expect("it is mapped")
    }

    pub(crate) fn id(&self, n: usize) -> PageId {
        PageId { frame: self.page(n).frame, write: self.write }
    }

    pub(crate) fn take(&mut self, mask: u64) -> PinnedPart {
        assert!(mask.count_ones() as usize <= PART);
        let taken = (0..64).filter(|n| mask >> n & 1 != 0);
        let pages = taken.map(|n| Some(self.pages[n].take().expect("the page is there"))).collect();
        PinnedPart { _pages: pages, _dev: self.dev.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct PageId {
    frame: u64,
    write: bool,
}

pub(crate) fn bring(mm: &MmWithUser, va: usize, write: bool) -> Result {
    assert!(va.is_multiple_of(4096));
    let (mm, vpn) = (mm.as_raw() as usize, va as u64 / 4096);
    might_sleep();
    world().preempt();
    if surroundings().memory.borrow().is_stuck(mm, vpn) {
        world().wait(move || {
            !surroundings().memory.borrow().is_stuck(mm, vpn) || surroundings().memory.borrow_mut().take_pass(mm)
        });
    }
    let frame = surroundings().memory.borrow_mut().pin(mm, vpn, write)?;
    drop(PinnedPage { frame, bus: None });
    surroundings().memory.borrow_mut().pinned -= 1;
    world().preempt();
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    Same,
    Changed,
}

pub(crate) fn recheck(mm: &MmWithUser, va: usize, page: PageId) -> Mapping {
    might_sleep();
    world().preempt();
    let same = surroundings().memory.borrow().maps(mm.as_raw() as usize, va as u64 / 4096, page.frame, page.write);
    world().preempt();
    if same { Mapping::Same } else { Mapping::Changed }
}

/// Memory of a queue, at an address of its own.
pub(crate) struct SharedPages {
    bytes: usize,
    addr: u64,
}

impl SharedPages {
    pub(crate) fn new(_: BoundRef, bytes: usize) -> Result<Self> {
        let _ = KVec::<u8>::with_capacity(1, GFP_KERNEL)?;
        let surroundings = surroundings();
        if surroundings.queue_ns.get() > 0 {
            world().sleep(surroundings.queue_ns.get());
        }
        surroundings.queues.set(surroundings.queues.get() + 1);
        let bytes = bytes.div_ceil(4096).next_power_of_two() * 4096;
        Ok(Self { bytes, addr: 0x12 << 40 | surroundings.next() << 20 })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        might_sleep();
        let surroundings = surroundings();
        surroundings.hardware.borrow().assert_no_queue(self.addr);
        surroundings.hardware.borrow().assert_unused(self.addr);
        surroundings.memory.borrow_mut().forget_copy(self.addr);
        surroundings.queues.set(surroundings.queues.get() - 1);
    }
}

impl SharedPages {
    pub(crate) fn map_to_user(&self, vma: &VmaNew) -> Result {
        vma.map(self.addr(), self.bytes())
    }
}

pub(crate) fn vma_offset(vma: &VmaNew) -> u64 {
    vma.offset()
}
