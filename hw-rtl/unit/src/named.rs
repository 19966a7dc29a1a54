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
    /// The module, reset; its memories hold anything, by `seed`.
    #[must_use]
    pub fn new(name: &str, width: u32, seed: u64) -> Self {
        let mut module = Module::with_seed(name, width, seed);
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

    /// A port of up to 64 bits.
    #[must_use]
    pub fn get(&mut self, name: &'static str) -> u64 {
        let port = self.port(name);
        self.module.get(port)
    }

    /// See [`Module::set_wide`].
    pub fn set_wide(&mut self, name: &'static str, words: &[u64]) {
        let port = self.port(name);
        self.module.set_wide(port, words);
    }

    /// See [`Module::words`].
    #[must_use]
    pub fn wide(&mut self, name: &'static str) -> Vec<u64> {
        let port = self.port(name);
        self.module.words(port)
    }

    /// Whether a port of one bit is 1.
    #[must_use]
    pub fn is(&mut self, name: &'static str) -> bool {
        self.get(name) != 0
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
