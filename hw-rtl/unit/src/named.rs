// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A module whose ports are reached by their names.

use crate::{Module, Port};
use std::collections::BTreeMap;

/// A [`Module`] and the ports that have been asked for so far.
///
/// Its functions panic as those of [`Module`] do, and for a name that no port has.
#[derive(Debug)]
pub struct Named {
    module: Module,
    ports: BTreeMap<&'static str, Port>,
}

impl Named {
    /// The module, reset.
    #[must_use]
    pub fn new(name: &str, width: u32) -> Self {
        let mut module = Module::new(name, width);
        module.reset();
        Self { module, ports: BTreeMap::new() }
    }

    fn port(&mut self, name: &'static str) -> Port {
        *self.ports.entry(name).or_insert_with(|| self.module.port(name))
    }

    /// Sets an input of up to 64 bits.
    pub fn set(&mut self, name: &'static str, value: impl Into<u64>) {
        let port = self.port(name);
        self.module.set(port, value);
    }

    /// Sets an input of up to 128 bits.
    pub fn set_wide(&mut self, name: &'static str, value: u128) {
        let port = self.port(name);
        self.module.set_wide(port, &[value as u64, (value >> 64) as u64]);
    }

    /// A port of up to 64 bits.
    #[must_use]
    pub fn get(&mut self, name: &'static str) -> u64 {
        let port = self.port(name);
        self.module.get(port)
    }

    /// Whether a port of one bit is 1.
    #[must_use]
    pub fn is(&mut self, name: &'static str) -> bool {
        self.get(name) != 0
    }

    /// A port of any width, the lowest word first.
    #[must_use]
    pub fn words(&mut self, name: &'static str) -> Vec<u64> {
        let port = self.port(name);
        self.module.words(port)
    }

    /// See [`Module::settle`].
    pub fn settle(&mut self) {
        self.module.settle();
    }

    /// See [`Module::edge`].
    pub fn edge(&mut self) {
        self.module.edge();
    }

    /// See [`Module::reset`].
    pub fn reset(&mut self) {
        self.module.reset();
    }
}

/// The `n` bits (1 to 64) from bit `at` on of words, the lowest word first.
#[must_use]
pub fn bits(words: &[u64], at: usize, n: usize) -> u64 {
    let low = words[at / 64] >> (at % 64);
    let high = if at.is_multiple_of(64) { 0 } else { words.get(at / 64 + 1).map_or(0, |w| w << (64 - at % 64)) };
    (low | high) & (u64::MAX >> (64 - n))
}
