// SPDX-License-Identifier: GPL-2.0
//! The doorbell pages of processes.

use crate::{
    card::PAGE,
    kernel::doorbell::HeldInode,
    process::{Context, Registry},
};
use kernel::prelude::*;

/// Offset of the doorbell page.
pub(crate) const DOORBELL_OFFSET: u64 = 0;

impl Registry {
    /// Notes a device node through which a session maps doorbell pages, until
    /// [`Self::forget_node`].
    pub(crate) fn note_node(&self, node: &HeldInode) -> Result {
        let mut nodes = self.nodes.lock();
        match nodes.iter_mut().find(|(n, _)| n.same(node)) {
            Some((_, sessions)) => *sessions += 1,
            None => nodes.push((node.clone(), 1), GFP_KERNEL)?,
        }
        Ok(())
    }

    /// Forgets the node of a session that is over. Its mappings are gone too, because they hold its
    /// file.
    pub(crate) fn forget_node(&self, node: &HeldInode) {
        let mut nodes = self.nodes.lock();
        let Some(at) = nodes.iter().position(|(n, _)| n.same(node)) else {
            return;
        };
        nodes[at].1 -= 1;
        if nodes[at].1 == 0 {
            let _ = nodes.remove(at);
        }
    }

    /// Takes the doorbell pages out of all processes. The bound device cannot be used any more.
    pub(crate) fn take_doorbells(&self) {
        // Sessions that end wait for this lock, and so keep the nodes' file systems mounted
        // meanwhile.
        let mut nodes = self.nodes.lock();
        for (node, _) in nodes.iter() {
            node.zap(DOORBELL_OFFSET);
        }
        nodes.clear();
    }
}

impl Context {
    /// Physical address of the doorbell page.
    pub(crate) fn doorbell(&self) -> u64 {
        self.card.doorbells + u64::from(self.asid) * PAGE
    }
}
