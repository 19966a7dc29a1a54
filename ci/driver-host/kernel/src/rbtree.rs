// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A map in the order of its keys, whose nodes are made beforehand.

use crate::alloc::{Flags, take};
use crate::error::Result;

pub struct RBTree<K, V> {
    list: Vec<(K, V)>,
}

pub struct RBTreeNode<K, V>(K, V);

pub struct RBTreeNodeReservation<K, V>(core::marker::PhantomData<(K, V)>);

impl<K, V> RBTreeNodeReservation<K, V> {
    pub fn new(flags: Flags) -> Result<Self> {
        take(flags)?;
        Ok(Self(core::marker::PhantomData))
    }

    pub fn into_node(self, key: K, value: V) -> RBTreeNode<K, V> {
        RBTreeNode(key, value)
    }
}

impl<K, V> RBTreeNode<K, V> {
    pub fn new(key: K, value: V, flags: Flags) -> Result<Self> {
        Ok(RBTreeNodeReservation::new(flags)?.into_node(key, value))
    }

    pub fn to_key_value(self) -> (K, V) {
        (self.0, self.1)
    }
}

impl<K: Ord, V> Default for RBTree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord, V> RBTree<K, V> {
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn insert(&mut self, node: RBTreeNode<K, V>) -> Option<RBTreeNode<K, V>> {
        match self.list.binary_search_by(|e| e.0.cmp(&node.0)) {
            Ok(at) => {
                let (k, v) = core::mem::replace(&mut self.list[at], (node.0, node.1));
                Some(RBTreeNode(k, v))
            }
            Err(at) => {
                self.list.insert(at, (node.0, node.1));
                None
            }
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.list.binary_search_by(|e| e.0.cmp(key)).ok()?;
        Some(&mut self.list[at].1)
    }

    pub fn remove_node(&mut self, key: &K) -> Option<RBTreeNode<K, V>> {
        let at = self.list.binary_search_by(|e| e.0.cmp(key)).ok()?;
        let (k, v) = self.list.remove(at);
        Some(RBTreeNode(k, v))
    }

    fn cursor(&mut self, at: usize) -> Option<CursorMut<'_, K, V>> {
        (at < self.list.len()).then_some(CursorMut { tree: self, at })
    }

    pub fn cursor_front_mut(&mut self) -> Option<CursorMut<'_, K, V>> {
        self.cursor(0)
    }

    pub fn cursor_lower_bound_mut(&mut self, key: &K) -> Option<CursorMut<'_, K, V>> {
        let at = self.list.partition_point(|e| e.0 < *key);
        self.cursor(at)
    }
}

/// At an element.
pub struct CursorMut<'a, K, V> {
    tree: &'a mut RBTree<K, V>,
    at: usize,
}

impl<'a, K: Ord, V> CursorMut<'a, K, V> {
    pub fn current(&self) -> (&K, &V) {
        let (k, v) = &self.tree.list[self.at];
        (k, v)
    }

    pub fn current_mut(&mut self) -> (&K, &mut V) {
        let (k, v) = &mut self.tree.list[self.at];
        (k, v)
    }

    #[must_use]
    pub fn move_next(self) -> Option<Self> {
        self.tree.cursor(self.at + 1)
    }

    /// The next element, at the end the one before.
    pub fn remove_current(self) -> (Option<Self>, RBTreeNode<K, V>) {
        let (k, v) = self.tree.list.remove(self.at);
        let at = if self.at < self.tree.list.len() { Some(self.at) } else { self.at.checked_sub(1) };
        (at.and_then(|at| self.tree.cursor(at)), RBTreeNode(k, v))
    }
}
