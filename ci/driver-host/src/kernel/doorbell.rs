// SPDX-License-Identifier: GPL-2.0
//! Doorbell pages, and device nodes by which they are mapped.

use crate::kernel::gate::BoundRef;
use kernel::{fs::File, misc::Inode, miscdevice::MiscDevice, mm::virt::VmaNew, page::PAGE_SIZE, prelude::*, sync::Arc};

/// What a mapping of a doorbell page maps.
pub(crate) const DOORBELL: u64 = 0;

/// A descriptor's private data that gives access to a page of registers.
pub(crate) trait Registers: MiscDevice<Ptr = Pin<KBox<Self>>> {
    fn registers(&self) -> Option<(u64, BoundRef)>;
}

pub(crate) fn map<T: Registers>(vma: &VmaNew) -> Result {
    vma.map(DOORBELL, PAGE_SIZE)
}

#[derive(Clone, Default)]
pub(crate) struct HeldInode(pub(crate) Arc<Inode>);

impl HeldInode {
    pub(crate) fn of(file: &File) -> Option<Self> {
        file.0.clone().map(Self)
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn zap(&self, offset: u64) {
        self.0.zapped.borrow_mut().push(offset);
    }
}
