// SPDX-License-Identifier: GPL-2.0
//! Doorbell pages: nobody maps any here.

#[derive(Clone)]
pub(crate) struct HeldInode;

impl HeldInode {
    pub(crate) fn same(&self, _: &Self) -> bool {
        true
    }

    pub(crate) fn zap(&self, _: u64) {}
}
