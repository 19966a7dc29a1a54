// SPDX-License-Identifier: GPL-2.0
//! Pinning pages of another process, and mapping them for DMA.
//!
//! C headers: `include/linux/mm.h`, `include/linux/dma-mapping.h`.

use core::{
    mem,
    ptr::{self, NonNull},
};
use kernel::{
    bindings, device,
    dma::{DataDirection, DmaAddress},
    error::to_result,
    mm::{
        virt::{flags, VmaNew},
        MmWithUser,
    },
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    time::{delay::fsleep, Delta},
};

use crate::kernel::{errno::unsupported, gate::BoundRef, worker_mm::WorkerMm};

/// Times that a look at a page is tried again after a lack of memory.
const MAX_TRIES: u32 = 50;
/// Most pages of a [`PinnedPart`], so that it fits the stack.
pub(crate) const PART: usize = 16;

/// Neighbouring pages of a process pinned with `FOLL_PIN`, and mapped for the card.
///
/// # Invariants
///
/// This value owns one pin of each page that is not null. The first `bus.len()` pages that are not null are mapped for the
/// device behind `dev`, at these addresses.
pub(crate) struct PinnedRun {
    pages: KVec<*mut bindings::page>,
    bus: KVec<DmaAddress>,
    dev: Option<BoundRef>,
    write: bool,
}

// SAFETY: A pin may be dropped by any thread.
unsafe impl Send for PinnedRun {}
// SAFETY: `&PinnedRun` gives nothing but addresses, and identities of pages.
unsafe impl Sync for PinnedRun {}

/// Some pages of a [`PinnedRun`], which are unmapped and unpinned when this is dropped. That may sleep.
///
/// # Invariants
///
/// As of the run, for the first `len` pages, all of which are mapped.
pub(crate) struct PinnedPart {
    pages: [*mut bindings::page; PART],
    bus: [DmaAddress; PART],
    len: usize,
    dev: Option<BoundRef>,
    write: bool,
}

// SAFETY: As of `PinnedRun`.
unsafe impl Send for PinnedPart {}

/// The direction of DMA to pages that were pinned for writing, or not.
fn direction(write: bool) -> DataDirection {
    if write {
        DataDirection::Bidirectional
    } else {
        DataDirection::ToDevice
    }
}

/// Unpins pages. May sleep.
///
/// # Safety
///
/// The caller gives up one pin of each.
unsafe fn unpin(pages: &mut [*mut bindings::page], write: bool) {
    // SAFETY: As the caller says.
    unsafe {
        bindings::unpin_user_pages_dirty_lock(pages.as_mut_ptr(), pages.len(), write);
    }
}

impl PinnedRun {
    /// Pins `pages` pages of a process from the page-aligned address `va` on, for any time. Nothing is faulted in, so this never
    /// waits for a page.
    ///
    /// `write` asks for write access.
    ///
    /// # Errors
    ///
    /// `EFAULT` one of them is not there, or not so that it may be pinned: [`bring`] it first. `ENOMEM`, and others as the
    /// memory manager gives them.
    pub(crate) fn new(mm: &WorkerMm<'_>, va: usize, pages: usize, write: bool) -> Result<Self> {
        let flags = GFP_KERNEL | __GFP_NOWARN;
        let bus = KVec::with_capacity(pages, flags)?;
        let mut list = KVec::from_elem(ptr::null_mut(), pages, flags)?;
        let flags = pin_flags(write) | bindings::FOLL_NOFAULT;
        // SAFETY: The thread uses the process's address space, and `list` has room for so many pointers.
        let got =
            unsafe { bindings::pin_user_pages_fast(va, pages as c_int, flags, list.as_mut_ptr()) };
        if got == pages as c_int {
            return Ok(Self::taken(list, got, bus, write));
        }
        if got > 0 {
            // SAFETY: The call has pinned them for us.
            unsafe { unpin(&mut list[..got as usize], false) };
        }
        // The worker may not use memory under a protection key, which the process itself may.
        let got = remote(mm.mm(), va, &mut list, flags);
        let this = Self::taken(list, got, bus, write);
        match usize::try_from(got) {
            Ok(got) if got == pages => Ok(this),
            Ok(_) => Err(EFAULT),
            Err(_) => Err(Error::from_errno(got)),
        }
    }

    /// What a call has pinned: the first `got` pages.
    fn taken(
        mut pages: KVec<*mut bindings::page>,
        got: c_int,
        bus: KVec<DmaAddress>,
        write: bool,
    ) -> Self {
        // A call that has given pages up again may leave them in the list.
        let taken = usize::try_from(got).unwrap_or(0).min(pages.len());
        pages[taken..]
            .iter_mut()
            .for_each(|page| *page = ptr::null_mut());
        // INVARIANT: The call has pinned the first `got` pages for us, and the others are null: not one of them is mapped.
        Self {
            pages,
            bus,
            dev: None,
            write,
        }
    }

    /// Maps the pages for reading by the card, or for reading and writing if they were pinned for writing.
    ///
    /// # Errors
    ///
    /// `ENOMEM` no mapping could be made, `EOPNOTSUPP` the device would need a bounce buffer or explicit cache maintenance.
    /// What is mapped by then goes with this value.
    pub(crate) fn map(&mut self, dev: BoundRef) -> Result {
        let raw = raw_device(self.dev.insert(dev));
        for page in &self.pages {
            // SAFETY: The page stays allocated while it is pinned, and `drop` unmaps it first; the device is bound.
            let addr = unsafe { map(raw, *page, PAGE_SIZE, direction(self.write)) }?;
            // INVARIANT: Just mapped. There is room.
            let _ = self.bus.push_within_capacity(addr);
            check(raw, addr)?;
        }
        Ok(())
    }

    /// Whether the pages were pinned for writing.
    pub(crate) fn is_write(&self) -> bool {
        self.write
    }

    /// Bus address of page `n`.
    pub(crate) fn addr(&self, n: usize) -> DmaAddress {
        self.bus[n]
    }

    /// Identity of page `n`, for [`recheck`].
    pub(crate) fn id(&self, n: usize) -> PageId {
        PageId {
            page: self.pages[n] as usize,
            write: self.write,
        }
    }

    /// Takes pages out, by their bits, which are [`PART`] at most; all are mapped.
    pub(crate) fn take(&mut self, mut mask: u64) -> PinnedPart {
        // INVARIANT: No page yet.
        let mut part = PinnedPart {
            pages: [ptr::null_mut(); PART],
            bus: [0; PART],
            len: 0,
            dev: self.dev.clone(),
            write: self.write,
        };
        while mask != 0 && part.len < PART {
            let n = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            // INVARIANT: What the run owned of the page goes over to the part.
            part.pages[part.len] = mem::replace(&mut self.pages[n], ptr::null_mut());
            part.bus[part.len] = self.bus[n];
            part.len += 1;
        }
        part
    }
}

impl Drop for PinnedRun {
    fn drop(&mut self) {
        if let Some(dev) = &self.dev {
            let raw = raw_device(dev);
            let mapped = self.pages.iter().zip(&self.bus);
            for (_, addr) in mapped.filter(|(page, _)| !page.is_null()) {
                // SAFETY: By the type invariant; the device is bound.
                unsafe { unmap(raw, *addr, PAGE_SIZE, direction(self.write)) };
            }
        }
        self.pages.retain(|page| !page.is_null());
        // SAFETY: The type invariant gives us these pins.
        unsafe { unpin(&mut self.pages, self.write) };
    }
}

impl Drop for PinnedPart {
    fn drop(&mut self) {
        if let Some(dev) = &self.dev {
            let raw = raw_device(dev);
            for addr in &self.bus[..self.len] {
                // SAFETY: By the type invariant; the device is bound.
                unsafe { unmap(raw, *addr, PAGE_SIZE, direction(self.write)) };
            }
        }
        // SAFETY: The type invariant gives us these pins.
        unsafe { unpin(&mut self.pages[..self.len], self.write) };
    }
}

/// Identity of a pinned page, and the access it was pinned with.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PageId {
    page: usize,
    write: bool,
}

/// Pins as many pages from `va` on as `pages` has room for, at most, by a walk that does not look at the caller's own rights;
/// gives how many, or an error.
fn remote(mm: &MmWithUser, va: usize, pages: &mut [*mut bindings::page], flags: c_uint) -> c_int {
    let mut locked: c_int = 1;
    // SAFETY: `mm` has users; the lock is released below unless the call has done so.
    unsafe { bindings::mmap_read_lock(mm.as_raw()) };
    // SAFETY: The lock is held, there is room for so many pointers, and `locked` says whether the lock is still held afterwards.
    let got = unsafe {
        bindings::pin_user_pages_remote(
            mm.as_raw(),
            va,
            pages.len(),
            flags,
            pages.as_mut_ptr(),
            &mut locked,
        )
    };
    if locked != 0 {
        // SAFETY: Taken above and still held.
        unsafe { bindings::mmap_read_unlock(mm.as_raw()) };
    }
    got as c_int
}

/// Pins the page at `va` for a moment, and gives it; `None` if nothing is there.
fn look(mm: &MmWithUser, va: usize, flags: c_uint) -> Result<Option<usize>> {
    let mut page = [ptr::null_mut()];
    match remote(mm, va, &mut page, flags) {
        0 => Ok(None),
        got if got < 0 => Err(Error::from_errno(got)),
        _ => {
            let found = page[0] as usize;
            // SAFETY: The call has pinned the page for us.
            unsafe { unpin(&mut page, false) };
            Ok(Some(found))
        }
    }
}

/// How pages are pinned, which may be for long.
fn pin_flags(write: bool) -> c_uint {
    let access = if write { bindings::FOLL_WRITE } else { 0 };
    access | bindings::FOLL_LONGTERM
}

/// Faults the page at the page-aligned address `va` of `mm` in, so that [`PinnedRun::new`]
/// finds it with the same `write`. Sleeps for as long as the fault takes, which may be for ever;
/// pins the page for a moment then, and no other one.
///
/// # Errors
///
/// `EFAULT` not mapped or no access, others as the memory manager gives them.
pub(crate) fn bring(mm: &MmWithUser, va: usize, write: bool) -> Result {
    look(mm, va, pin_flags(write))?.ok_or(EFAULT).map(|_| ())
}

/// Result of a fresh look at an address where a page was pinned earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// The address still maps the page, with the access that the pin has.
    Same,
    /// Nothing is mapped there now, or another page, or the access is gone.
    Changed,
}

/// Looks whether the page-aligned address `va` of `mm` still maps `page` with the right
/// that it was pinned with (decision 18). A page that is only out for a moment (swap
/// cache, migration) is faulted in again, which finds the pinned page.
pub(crate) fn recheck(mm: &MmWithUser, va: usize, page: PageId) -> Mapping {
    let may_fault = {
        let guard = mm.mmap_read_lock();
        let Some(vma) = guard.vma_lookup(va) else {
            return Mapping::Changed;
        };
        if page.write && vma.flags() & flags::WRITE == 0 {
            return Mapping::Changed;
        }
        // A fault in a range that a userfaultfd watches would wait for user space.
        #[cfg(CONFIG_USERFAULTFD)]
        // SAFETY: The VMA is stable while the mmap lock is held.
        let watched = unsafe { !(*vma.as_ptr()).vm_userfaultfd_ctx.ctx.is_null() };
        #[cfg(not(CONFIG_USERFAULTFD))]
        let watched = false;
        !watched
    };
    // A look without a fault first: it changes nothing.
    let mut found = look(mm, va, bindings::FOLL_NOFAULT).unwrap_or(None);
    if found.is_none() {
        if !may_fault {
            return Mapping::Changed;
        }
        let flags = if page.write { bindings::FOLL_WRITE } else { 0 };
        let mut tries = 0;
        loop {
            match look(mm, va, flags) {
                Ok(Some(page)) => {
                    found = Some(page);
                    break;
                }
                // A short lack of memory must not cost the process its page.
                Err(e) if e == ENOMEM && tries < MAX_TRIES => {
                    tries += 1;
                    fsleep(Delta::from_millis(10));
                }
                _ => return Mapping::Changed,
            }
        }
    }
    match found {
        Some(now) if now == page.page => Mapping::Same,
        _ => Mapping::Changed,
    }
}

/// The raw `struct device` of a PCI device.
fn raw_device(dev: &BoundRef) -> *mut bindings::device {
    let dev: &device::Device = (**dev).as_ref();
    // `Device` is a transparent wrapper of an `Opaque<bindings::device>`.
    core::ptr::from_ref(dev).cast_mut().cast()
}

/// Maps physically contiguous memory.
///
/// # Safety
///
/// `page` is the first of contiguous pages of `bytes` bytes that stay allocated until they are unmapped. The device is bound.
unsafe fn map(
    raw: *mut bindings::device,
    page: *mut bindings::page,
    bytes: usize,
    dir: DataDirection,
) -> Result<DmaAddress> {
    // SAFETY: By the requirements of this function.
    let addr = unsafe { bindings::dma_map_page_attrs(raw, page, 0, bytes, dir.into(), 0) };
    // SAFETY: `addr` is what the mapping of this device gave.
    #[cfg(CONFIG_DMA_API_DEBUG)]
    unsafe {
        bindings::debug_dma_mapping_error(raw, addr)
    };
    if addr == DmaAddress::MAX {
        return Err(ENOMEM);
    }
    Ok(addr)
}

/// Ends a mapping.
///
/// # Safety
///
/// [`map`] has given it for this device, which is bound, and this size and direction.
unsafe fn unmap(raw: *mut bindings::device, addr: DmaAddress, bytes: usize, dir: DataDirection) {
    // SAFETY: As the caller says.
    unsafe { bindings::dma_unmap_page_attrs(raw, addr, bytes, dir.into(), 0) };
}

/// Refuses a mapping that would need a bounce buffer or explicit cache maintenance (decision 16).
///
/// # Errors
///
/// `EOPNOTSUPP`.
fn check(raw: *mut bindings::device, addr: DmaAddress) -> Result {
    // What `dma_need_sync` does, an inline function without binding: behind an IOMMU
    // `__dma_need_sync` by itself says yes whatever the mapping is.
    #[cfg(CONFIG_DMA_NEED_SYNC)]
    {
        let skip = bindings::struct_device_flags_DEV_FLAG_DMA_SKIP_SYNC;
        // SAFETY: The device is bound; its flags are changed atomically by others.
        let flags = unsafe { (&raw const (*raw).flags[0]).read_volatile() };
        // SAFETY: `addr` is mapped for this device.
        if flags >> skip & 1 == 0 && unsafe { bindings::__dma_need_sync(raw, addr) } {
            return Err(unsupported());
        }
    }
    Ok(())
}

/// A DMA mapping; unmapped when dropped.
///
/// # Invariants
///
/// `addr` is mapped for the device behind `dev`, in both directions, for `bytes` bytes.
struct Mapped {
    dev: BoundRef,
    addr: DmaAddress,
    bytes: usize,
}

impl Mapped {
    /// Maps memory of the driver's own.
    ///
    /// # Safety
    ///
    /// `page` is the first of contiguous pages of `bytes` bytes that stay allocated until this is dropped.
    unsafe fn new(dev: BoundRef, page: *mut bindings::page, bytes: usize) -> Result<Self> {
        let raw = raw_device(&dev);
        // SAFETY: By the requirements of this function; `dev` says that the device is bound.
        let addr = unsafe { map(raw, page, bytes, DataDirection::Bidirectional) }?;
        // INVARIANT: Just mapped.
        let mapped = Self { dev, addr, bytes };
        check(raw, addr)?;
        Ok(mapped)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let dir = DataDirection::Bidirectional;
        // SAFETY: By the type invariant; the device is still bound.
        unsafe { unmap(raw_device(&self.dev), self.addr, self.bytes, dir) };
    }
}

/// Zeroed, physically contiguous pages that the card and a process share: a queue.
///
/// The pages are reference-counted one by one, so that a process that still maps them when the
/// device goes keeps memory that has no other owner.
///
/// # Invariants
///
/// `pages` points at the first of `1 << order` contiguous pages of which this value owns
/// one reference each.
pub(crate) struct SharedPages {
    // Dropped first: the mapping goes before the memory.
    mapped: Option<Mapped>,
    pages: NonNull<bindings::page>,
    order: u32,
}

// SAFETY: Pages and mapping may be given back by any thread.
unsafe impl Send for SharedPages {}
// SAFETY: `&SharedPages` gives an address and inserts pages in a VMA, both thread-safe.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Allocates at least `bytes` bytes, rounded up to a power of two pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM` there is no memory, or none can be mapped, `EOPNOTSUPP` the device would need a bounce
    /// buffer.
    pub(crate) fn new(dev: BoundRef, bytes: usize) -> Result<Self> {
        let order = bytes
            .div_ceil(PAGE_SIZE)
            .next_power_of_two()
            .trailing_zeros();
        let flags = bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_ZERO | bindings::__GFP_NOWARN;
        // SAFETY: Any order may be asked for.
        let page = unsafe { bindings::alloc_pages(flags, order) };
        let pages = NonNull::new(page).ok_or(ENOMEM)?;
        if order > 0 {
            // SAFETY: A fresh allocation of that order, not compound. Afterwards each page
            // has its own reference count of 1.
            unsafe { bindings::split_page(pages.as_ptr(), order) };
        }
        // INVARIANT: We own one reference of each page.
        let mut this = Self {
            mapped: None,
            pages,
            order,
        };
        // SAFETY: The pages are contiguous, and `this` drops the mapping first.
        let mapped = unsafe { Mapped::new(dev, pages.as_ptr(), PAGE_SIZE << order) }?;
        this.mapped = Some(mapped);
        Ok(this)
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// Bus address of the first byte.
    pub(crate) fn addr(&self) -> DmaAddress {
        self.mapped.as_ref().map_or(0, |m| m.addr)
    }

    /// The first of the pages, none of which is of high memory.
    pub(super) fn first_page(&self) -> *mut bindings::page {
        self.pages.as_ptr()
    }

    /// Maps the pages, all of them, to a process. The mapping is not inherited by fork.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the VMA has another size or is private.
    pub(crate) fn map_to_user(&self, vma: &VmaNew) -> Result {
        if vma.end() - vma.start() != self.bytes() || vma.flags() & flags::SHARED == 0 {
            return Err(EINVAL);
        }
        vma.set_io();
        vma.set_dontexpand();
        vma.set_dontcopy();
        vma.set_dontdump();
        vma.set_mixedmap();
        for i in 0..1usize << self.order {
            // SAFETY: The VMA is being set up; the page is one of ours, and the VMA takes
            // a reference of its own.
            to_result(unsafe {
                bindings::vm_insert_page(
                    vma.as_ptr(),
                    vma.start() + i * PAGE_SIZE,
                    self.pages.as_ptr().add(i),
                )
            })?;
        }
        Ok(())
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        self.mapped = None;
        for i in 0..1usize << self.order {
            // SAFETY: The type invariant gives us the reference that is put here.
            unsafe { bindings::__free_pages(self.pages.as_ptr().add(i), 0) };
        }
    }
}

/// Offset of a mapping in its file, in bytes.
pub(crate) fn vma_offset(vma: &VmaNew) -> u64 {
    // SAFETY: The VMA is being set up by this thread.
    unsafe { ((*vma.as_ptr()).vm_pgoff as u64) << PAGE_SHIFT }
}
