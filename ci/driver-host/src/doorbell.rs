// SPDX-License-Identifier: GPL-2.0
//! Device nodes through which doorbell pages are mapped.

use kernel::sync::Arc;
use std::sync::Mutex;

/// A reference to a node, which knows from where in it pages were taken out of all processes.
#[derive(Clone, Default)]
pub(crate) struct HeldInode(pub(crate) Arc<Mutex<Vec<u64>>>);

impl HeldInode {
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn zap(&self, offset: u64) {
        self.0.lock().expect("nobody panicked").push(offset);
    }
}
