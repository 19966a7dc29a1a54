// SPDX-License-Identifier: GPL-2.0
//! A page that the card has: pinned and mapped, or a copy.

use crate::{
    kernel::pin::{DmaPage, PageId, PinnedPage},
    pages::copy_pool::CopyPage,
};
use kernel::{
    rbtree::{RBTree, RBTreeNode},
    time::{Instant, Monotonic},
};

/// Virtual page numbers of user space lie below this (57 bits of address).
pub(crate) const VPN_END: u64 = 1 << 45;
/// Virtual page numbers of the translation table lie below this, those of copies included.
pub(crate) const TABLE_END: u64 = 1 << 48;

/// What is being done with a page.
///
/// | From | To | When |
/// |---|---|---|
/// | – | `Live` | it is installed |
/// | `Live` | `Evicting` | the card is asked whether it is idle |
/// | `Evicting` | `Live` | the card has it in use |
/// | `Evicting` | `Dead` | the card has dropped it |
/// | `Live`, `Evicting` | `Revoking` | the card is told to drop it |
/// | `Revoking` | `Fencing` | a fence begins |
/// | `Dead`, `Fencing` | – | it is unpinned; after `Fencing` when the fence is over |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// In the card's table.
    Live,
    /// The card was asked whether it is idle.
    Evicting,
    /// The card has been told to drop it, and may still be finishing DMA.
    Revoking,
    /// Revoked before the fence that is being waited for.
    Fencing,
    /// Not in the card's table any more, to be unpinned.
    Dead,
}

/// The memory of a page.
pub(super) enum Memory {
    /// The process's, pinned and mapped.
    Process {
        // Fields are dropped in this order: the mapping goes before the pin.
        /// Its mapping.
        dma: DmaPage,
        /// Its pin.
        pin: PinnedPage,
    },
    /// The driver's, with a copy of the process's, for sending.
    Copy(CopyPage),
}

impl Memory {
    /// Bus address.
    pub(super) fn addr(&self) -> u64 {
        match self {
            Self::Process { dma, .. } => dma.addr(),
            Self::Copy(page) => page.addr(),
        }
    }

    /// Whether the card may write.
    pub(super) fn is_write(&self) -> bool {
        match self {
            Self::Process { pin, .. } => pin.is_write(),
            Self::Copy(_) => false,
        }
    }

    /// Whether it is a copy.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self, Self::Copy(_))
    }

    /// Identity of the process's page.
    pub(super) fn id(&self) -> Option<PageId> {
        match self {
            Self::Process { pin, .. } => Some(pin.id()),
            Self::Copy(_) => None,
        }
    }
}

/// A page that the card has.
pub(super) struct PageEntry {
    pub(super) memory: Memory,
    pub(super) index: u32,
    pub(super) state: PageState,
    /// Time since which no use of it is known.
    pub(super) since: Instant<Monotonic>,
    /// Released since it was last known to be in use.
    pub(super) released: bool,
    /// To be evicted as soon as it is released: a request needs it with other access.
    pub(super) urgent: bool,
    /// The memory manager has touched it: look whether it still is what it was.
    pub(super) suspect: bool,
}

pub(super) type Pages = RBTree<u64, PageEntry>;

pub(super) type Node = RBTreeNode<u64, PageEntry>;
