// SPDX-License-Identifier: GPL-2.0
//! Mapping a page of device registers to a process, in a way that can be taken back.
//!
//! The page is put in at the first access, and only while the device is bound; when the
//! device goes, [`HeldInode::zap`] takes it out of all processes, and later accesses get
//! `SIGBUS`.
//!
//! C header: `include/linux/mm.h`.

use core::ptr::NonNull;
use kernel::{
    bindings,
    fs::File,
    miscdevice::MiscDevice,
    mm::virt::{flags, VmaNew},
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

use crate::kernel::gate::BoundRef;

/// A descriptor's private data that gives access to a page of registers.
pub(crate) trait Registers: MiscDevice<Ptr = Pin<KBox<Self>>> {
    /// Physical address of the page, and the proof that the device is bound.
    fn registers(&self) -> Option<(u64, BoundRef)>;
}

struct Operations(bindings::vm_operations_struct);

// SAFETY: Function pointers, never written.
unsafe impl Sync for Operations {}

struct Table<T>(core::marker::PhantomData<T>);

impl<T: Registers> Table<T> {
    const OPERATIONS: Operations = Operations(bindings::vm_operations_struct {
        fault: Some(fault::<T>),
        ..pin_init::zeroed()
    });
    const REF: &'static Operations = &Self::OPERATIONS;
}

/// # Safety
///
/// Called by the memory manager for a VMA set up by [`map`] with the same `T`.
unsafe extern "C" fn fault<T: Registers>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: The memory manager gives a valid fault; the VMA holds its file, whose
    // private data is the `Pin<KBox<T>>` that `open` has made.
    let (vma, address, this) = unsafe {
        let info = &(*vmf).__bindgen_anon_1;
        let file = (*info.vma).vm_file;
        (info.vma, info.address, &*(*file).private_data.cast::<T>())
    };
    let Some((phys, bound)) = this.registers() else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The VMA is one of page frame numbers (set by `map`) and stable during a
    // fault. The registers belong to the bound device.
    let result = unsafe {
        bindings::vmf_insert_pfn_prot(
            vma,
            address,
            (phys >> PAGE_SHIFT) as usize,
            (*vma).vm_page_prot,
        )
    };
    drop(bound);
    result
}

/// Prepares a VMA of `file` for one page of registers, not inherited by fork. It is uncached, or
/// write-combining where the device has asked for that ([`crate::kernel::gate::BoundRef::combine_writes`]):
/// the memory manager looks that up when the page is put in.
///
/// # Errors
///
/// `EINVAL` when the VMA is not one page or is private.
pub(crate) fn map<T: Registers>(vma: &VmaNew) -> Result {
    if vma.end() - vma.start() != PAGE_SIZE || vma.flags() & flags::SHARED == 0 {
        return Err(EINVAL);
    }
    vma.set_io();
    vma.set_dontexpand();
    vma.set_dontcopy();
    vma.set_dontdump();
    let raw = vma.as_ptr();
    // SAFETY: The VMA is being set up by this thread. `pgprot_noncached` is a macro on
    // x86, without binding; this is what it does.
    unsafe {
        (*raw).__bindgen_anon_2.vm_flags |= bindings::VM_PFNMAP;
        (*raw).vm_page_prot.pgprot |=
            bindings::cachemode2protval(bindings::page_cache_mode__PAGE_CACHE_MODE_UC_MINUS);
        (*raw).vm_ops = &Table::<T>::REF.0;
    }
    Ok(())
}

/// A reference to the inode of a device node.
///
/// # Invariants
///
/// The inode is valid and this value owns one reference to it.
pub(crate) struct HeldInode(NonNull<bindings::inode>);

// SAFETY: Inode references are counted atomically.
unsafe impl Send for HeldInode {}
// SAFETY: `&HeldInode` only takes mappings away, which is thread-safe.
unsafe impl Sync for HeldInode {}

impl HeldInode {
    /// The inode of an open file.
    pub(crate) fn of(file: &File) -> Option<Self> {
        // SAFETY: The file is open, so that its inode is valid and held.
        let inode = NonNull::new(unsafe { (*file.as_ptr()).f_inode })?;
        // SAFETY: As above. INVARIANT: The reference taken here.
        unsafe { bindings::ihold(inode.as_ptr()) };
        Some(Self(inode))
    }

    /// Whether both are the same inode.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Takes the page at `offset` of the device node out of all processes.
    pub(crate) fn zap(&self, offset: u64) {
        // SAFETY: The inode is valid by the type invariant, and so is its mapping.
        unsafe {
            bindings::unmap_mapping_range(
                (*self.0.as_ptr()).i_mapping,
                offset as bindings::loff_t,
                PAGE_SIZE as bindings::loff_t,
                1,
            )
        };
    }
}

impl Clone for HeldInode {
    fn clone(&self) -> Self {
        // SAFETY: The inode is valid by the type invariant.
        unsafe { bindings::ihold(self.0.as_ptr()) };
        // INVARIANT: The reference taken here.
        Self(self.0)
    }
}

impl Drop for HeldInode {
    fn drop(&mut self) {
        // SAFETY: The type invariant gives us the reference that is put here.
        unsafe { bindings::iput(self.0.as_ptr()) };
    }
}
