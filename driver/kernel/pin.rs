// SPDX-License-Identifier: GPL-2.0
//! Pinning pages of another process, and mapping them for DMA.
//!
//! C headers: `include/linux/mm.h`, `include/linux/dma-mapping.h`.

use core::ptr::NonNull;
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

use crate::kernel::{errno::unsupported, gate::BoundRef};

/// Pages taken with one call, so that their array fits the stack.
const BATCH: usize = 32;
/// Times that a look at a page is tried again after a lack of memory.
const MAX_TRIES: u32 = 50;

/// A page pinned with `FOLL_PIN`.
///
/// # Invariants
///
/// The page is valid and this value owns one pin of it.
pub(crate) struct PinnedPage {
    page: NonNull<bindings::page>,
    write: bool,
}

// SAFETY: A pin may be dropped by any thread.
unsafe impl Send for PinnedPage {}
// SAFETY: `&PinnedPage` gives nothing but the identity of the page.
unsafe impl Sync for PinnedPage {}

impl Drop for PinnedPage {
    fn drop(&mut self) {
        let mut page = self.page.as_ptr();
        // SAFETY: The type invariant gives us the pin that is dropped here. May sleep.
        unsafe { bindings::unpin_user_pages_dirty_lock(&mut page, 1, self.write) };
    }
}

impl PinnedPage {
    /// Whether the page was pinned for writing.
    pub(crate) fn is_write(&self) -> bool {
        self.write
    }

    /// The page's identity, for [`recheck`].
    pub(crate) fn id(&self) -> PageId {
        PageId {
            page: self.page.as_ptr() as usize,
            write: self.write,
        }
    }
}

/// Identity of a pinned page, and the access it was pinned with.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PageId {
    page: usize,
    write: bool,
}

/// Pins up to `BATCH` pages from `va` on and hands them to `out`.
fn pin_batch(
    mm: &MmWithUser,
    va: usize,
    pages: usize,
    flags: c_uint,
    write: bool,
    mut out: impl FnMut(PinnedPage),
) -> Result<usize> {
    let pages = pages.min(BATCH);
    let mut array = [core::ptr::null_mut::<bindings::page>(); BATCH];
    let mut locked: c_int = 1;
    // SAFETY: `mm` has users; the lock is released below unless the call has done so.
    unsafe { bindings::mmap_read_lock(mm.as_raw()) };
    // SAFETY: The lock is held, `array` has room for `pages` pointers, and `locked` says
    // whether the lock is still held afterwards.
    let got = unsafe {
        bindings::pin_user_pages_remote(
            mm.as_raw(),
            va,
            pages,
            flags,
            array.as_mut_ptr(),
            &mut locked,
        )
    };
    if locked != 0 {
        // SAFETY: Taken above and still held.
        unsafe { bindings::mmap_read_unlock(mm.as_raw()) };
    }
    if got < 0 {
        return Err(Error::from_errno(got as c_int));
    }
    for page in &array[..got as usize] {
        let page = NonNull::new(*page).ok_or(EFAULT)?;
        // INVARIANT: The call has pinned the page for us.
        out(PinnedPage { page, write });
    }
    Ok(got as usize)
}

/// How pages are pinned, which may be for long.
fn pin_flags(write: bool) -> c_uint {
    let access = if write { bindings::FOLL_WRITE } else { 0 };
    access | bindings::FOLL_LONGTERM
}

/// Pins `pages` pages of `mm` from the page-aligned address `va` on, for any time, and hands them
/// to `out` one after the other. Nothing is faulted in, so this never waits for a page.
///
/// `write` asks for write access.
///
/// # Errors
///
/// `EFAULT` one of them is not there, or not so that it may be pinned: [`bring`] it first.
/// Others as the memory manager gives them. Pages pinned before the error have been handed
/// over.
pub(crate) fn pin_present(
    mm: &MmWithUser,
    va: usize,
    pages: usize,
    write: bool,
    mut out: impl FnMut(PinnedPage),
) -> Result {
    let flags = pin_flags(write) | bindings::FOLL_NOFAULT;
    let mut done = 0;
    while done < pages {
        let at = va + done * PAGE_SIZE;
        let got = pin_batch(mm, at, pages - done, flags, write, &mut out)?;
        if got == 0 {
            return Err(EFAULT);
        }
        done += got;
    }
    Ok(())
}

/// Faults the page at the page-aligned address `va` of `mm` in, so that [`pin_present`] finds
/// it with the same `write`. Sleeps for as long as the fault takes, which may be for ever;
/// pins the page for a moment then, and no other one.
///
/// # Errors
///
/// `EFAULT` not mapped or no access, others as the memory manager gives them.
pub(crate) fn bring(mm: &MmWithUser, va: usize, write: bool) -> Result {
    match pin_batch(mm, va, 1, pin_flags(write), false, drop)? {
        0 => Err(EFAULT),
        _ => Ok(()),
    }
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
    let mut found = None;
    // A look without a fault first: it changes nothing.
    let look = pin_batch(mm, va, 1, bindings::FOLL_NOFAULT, false, |p| {
        found = Some(p)
    });
    if !matches!(look, Ok(1)) {
        if !may_fault {
            return Mapping::Changed;
        }
        let flags = if page.write { bindings::FOLL_WRITE } else { 0 };
        let mut tries = 0;
        loop {
            match pin_batch(mm, va, 1, flags, false, |p| found = Some(p)) {
                Ok(1) => break,
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
        Some(now) if now.id().page == page.page => Mapping::Same,
        _ => Mapping::Changed,
    }
}

/// A DMA mapping; unmapped when dropped.
///
/// # Invariants
///
/// `addr` is mapped for the device behind `dev`, in direction `dir`, for `bytes` bytes.
struct Mapped {
    dev: BoundRef,
    addr: DmaAddress,
    bytes: usize,
    dir: DataDirection,
}

/// The raw `struct device` of a PCI device.
fn raw_device(dev: &BoundRef) -> *mut bindings::device {
    let dev: &device::Device = (**dev).as_ref();
    // `Device` is a transparent wrapper of an `Opaque<bindings::device>`.
    core::ptr::from_ref(dev).cast_mut().cast()
}

impl Mapped {
    /// Maps physically contiguous memory and refuses mappings that would need bounce
    /// buffers or explicit cache maintenance (decision 16).
    ///
    /// # Safety
    ///
    /// `page` is the first of contiguous pages of `bytes` bytes that stay allocated
    /// until the mapping is dropped.
    unsafe fn new(
        dev: BoundRef,
        page: *mut bindings::page,
        bytes: usize,
        dir: DataDirection,
    ) -> Result<Self> {
        let raw = raw_device(&dev);
        // SAFETY: By the requirements of this function; `dev` says that the device is bound.
        let addr = unsafe { bindings::dma_map_page_attrs(raw, page, 0, bytes, dir.into(), 0) };
        // SAFETY: `addr` is what the mapping of this device gave.
        #[cfg(CONFIG_DMA_API_DEBUG)]
        unsafe {
            bindings::debug_dma_mapping_error(raw, addr)
        };
        if addr == DmaAddress::MAX {
            return Err(ENOMEM);
        }
        // INVARIANT: Just mapped.
        let mapped = Self {
            dev,
            addr,
            bytes,
            dir,
        };
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
        Ok(mapped)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the device is still bound.
        unsafe {
            bindings::dma_unmap_page_attrs(
                raw_device(&self.dev),
                self.addr,
                self.bytes,
                self.dir.into(),
                0,
            )
        };
    }
}

/// DMA mapping of one pinned page. Drop it before the pin.
pub(crate) struct DmaPage(Mapped);

impl DmaPage {
    /// Maps `page` for reading by the card, or for reading and writing if it was pinned
    /// for writing.
    ///
    /// # Errors
    ///
    /// `ENOMEM` no mapping could be made, `EOPNOTSUPP` the device would need a bounce
    /// buffer or explicit cache maintenance.
    pub(crate) fn map(dev: BoundRef, page: &PinnedPage) -> Result<Self> {
        let dir = if page.write {
            DataDirection::Bidirectional
        } else {
            DataDirection::ToDevice
        };
        // SAFETY: The page stays allocated while it is pinned; the page service keeps the
        // pin (`PageEntry::pin`) longer than the mapping.
        Ok(Self(unsafe {
            Mapped::new(dev, page.page.as_ptr(), PAGE_SIZE, dir)
        }?))
    }

    /// Bus address.
    pub(crate) fn addr(&self) -> DmaAddress {
        self.0.addr
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
        let mapped = unsafe {
            Mapped::new(
                dev,
                pages.as_ptr(),
                PAGE_SIZE << order,
                DataDirection::Bidirectional,
            )
        }?;
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
