// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What lies between two ends.

use std::hash::Hash;

/// Something on its way. Packets with equal keys may stand in any order, so a key should tell most of them apart.
pub trait Packet: Clone + Eq + Hash {
    /// Where it stands among others.
    fn key(&self) -> u64;
}

/// Packets on their way, in no order. One may be delivered without being taken out, so that it comes again: two equal
/// ones are one. The order in memory is always the same for the same packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Air<T>(Vec<T>);

impl<T> Default for Air<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Packet> Air<T> {
    /// Puts a packet on its way.
    pub fn send(&mut self, packet: T) {
        if !self.0.contains(&packet) {
            self.0.push(packet);
            self.sort();
        }
    }

    fn sort(&mut self) {
        if self.0.len() > 1 {
            self.0.sort_by_key(T::key);
        }
    }

    /// Packets on their way.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them.
    pub fn get(&self, i: usize) -> Option<&T> {
        self.0.get(i)
    }

    /// Takes one out.
    pub fn remove(&mut self, i: usize) -> Option<T> {
        (i < self.0.len()).then(|| self.0.remove(i))
    }

    /// Takes out what does not live any more, after changing all.
    pub fn age(&mut self, mut lives: impl FnMut(&mut T) -> bool) {
        self.0.retain_mut(|t| lives(t));
        self.sort();
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}
