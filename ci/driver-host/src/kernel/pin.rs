// SPDX-License-Identifier: GPL-2.0
//! Pinning pages of [`crate::memory`], and mapping them for DMA.

use crate::kernel::gate::BoundRef;
use crate::memory::surroundings;
use kernel::{
    mm::{MmWithUser, virt::VmaNew},
    prelude::*,
    world::{might_sleep, world},
};

pub(crate) struct PinnedPage {
    frame: u64,
    write: bool,
}

impl Drop for PinnedPage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        might_sleep();
        world().preempt();
        surroundings().memory.borrow_mut().unpin(self.frame);
    }
}

impl PinnedPage {
    pub(crate) fn is_write(&self) -> bool {
        self.write
    }

    pub(crate) fn id(&self) -> PageId {
        PageId { frame: self.frame, write: self.write }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct PageId {
    frame: u64,
    write: bool,
}

pub(crate) fn pin_present(
    mm: &MmWithUser,
    va: usize,
    pages: usize,
    write: bool,
    mut out: impl FnMut(PinnedPage),
) -> Result {
    assert!(va.is_multiple_of(4096) && pages > 0);
    let mm = mm.as_raw() as usize;
    for vpn in (va as u64 / 4096..).take(pages) {
        might_sleep();
        world().preempt();
        if !surroundings().memory.borrow().is_present(mm, vpn, write) {
            return Err(EFAULT);
        }
        let frame = surroundings().memory.borrow_mut().pin(mm, vpn, write)?;
        out(PinnedPage { frame, write });
    }
    world().preempt();
    Ok(())
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
    drop(PinnedPage { frame, write });
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

pub(crate) struct DmaPage {
    bus: u64,
    _dev: BoundRef,
}

impl DmaPage {
    pub(crate) fn map(dev: BoundRef, page: &PinnedPage) -> Result<Self> {
        might_sleep();
        world().preempt();
        let bus = surroundings().memory.borrow_mut().map(page.frame, page.write)?;
        Ok(Self { bus, _dev: dev })
    }

    pub(crate) fn addr(&self) -> u64 {
        self.bus
    }
}

impl Drop for DmaPage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        might_sleep();
        world().preempt();
        surroundings().hardware.borrow().assert_unused(self.bus);
        surroundings().memory.borrow_mut().unmap(self.bus);
    }
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
