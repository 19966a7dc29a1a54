// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is fuzzed: each module has a function `run` that takes any bytes and panics when something is wrong. The
//! programs in `targets` give it to libFuzzer (`cargo xtask fuzz`); the test `corpus` runs the inputs that were kept.

pub mod cards;
pub mod datagram;
pub mod ends;
pub mod entry;
pub mod host;
pub mod hostile;
pub mod input;
pub mod lists;
pub mod memory;
pub mod wire;

/// A target: takes any bytes and panics when something is wrong.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 10] = [
    ("wire", wire::run),
    ("datagram", datagram::run),
    ("entry", entry::run),
    ("ends", ends::run),
    ("cards", cards::run),
    ("hostile", hostile::run),
    ("host", host::run),
    ("lists", lists::run),
    ("carriers", lists::nonsense),
    ("memory", memory::run),
];
