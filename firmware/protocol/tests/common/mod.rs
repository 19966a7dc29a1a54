// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helpers of the model tests.
#![allow(dead_code)]

use berth_protocol::control::{REC_REP, REC_REQ};
use berth_protocol::model::{Rng, User, World};
use berth_random::number;

/// Address space of the tests' processes.
pub const ASID: u8 = 3;
/// Where send buffers lie.
pub const SRC: u64 = 0x7f00_0000_0000;
/// Where receive buffers lie.
pub const DST: u64 = 0x7e00_0000_0000;

/// Bytes that tell their place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..len).map(|_| rng.draw() as u8).collect()
}

/// Two cards and a connected QP on each.
pub fn pair(seed: u64) -> (World, User, User) {
    let mut w = World::new(2, seed);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    (w, a, b)
}

/// Own epoch of card `card`'s QP: its REQ or REP said it.
pub fn epoch_of(w: &World, card: usize, qpn: u32) -> u32 {
    let mut found = None;
    for (_, f) in w.wire.iter().filter(|(i, f)| *i == card && f[12..14] == [8, 0] && f[42] == 4) {
        let words: Vec<u32> = f[54..].chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        let mut at = 3;
        while at < words.len() && words[at] >> 8 & 0xff != 0 {
            match words[at] & 0xff {
                REC_REQ if words[at + 1] == qpn => found = Some(words[at + 2]),
                REC_REP if words[at + 2] == qpn => found = Some(words[at + 3]),
                _ => (),
            }
            at += (words[at] >> 8 & 0xff) as usize;
        }
    }
    found.unwrap()
}

/// Data frames that card `i` put on the wire: (opcode, PSN, payload bytes, immediate).
pub fn data_frames(w: &World, i: usize) -> Vec<(u8, u32, usize, u32)> {
    w.wire
        .iter()
        .filter(|(from, f)| *from == i && f[12..14] == [8, 0] && matches!(f[42], 0 | 1 | 3 | 5))
        .map(|(_, f)| {
            let pad = (f[43] >> 4 & 3) as usize;
            // Behind an immediate, if there is one, and the placement header, if that was agreed.
            let start = if f[42] >= 3 { 58 } else { 54 } + if w.edit.is_none() { 4 } else { 0 };
            let psn = u32::from_be_bytes([0, f[51], f[52], f[53]]);
            let imm = u32::from_be_bytes([f[54], f[55], f[56], f[57]]);
            (f[42], psn, f.len() - start - pad, imm)
        })
        .collect()
}

/// Credit lists that card `i` put on the wire, as (first number, sizes).
pub fn lists(w: &World, i: usize) -> Vec<(u32, Vec<u32>)> {
    let mut found = Vec::new();
    for (_, f) in w.wire.iter().filter(|(from, f)| *from == i && f[12..14] == [8, 0] && f[42] == 4) {
        let words: Vec<u32> = f[54..].chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        let mut at = 3;
        while at < words.len() {
            let n = (words[at] >> 8 & 0xff) as usize;
            if words[at] & 0xff == 1 {
                found.push((words[at + 2], words[at + 3..at + n].to_vec()));
            }
            at += n;
        }
    }
    found
}

/// Nothing is pinned, nothing in use.
pub fn assert_clean(w: &mut World) {
    for node in &mut w.nodes {
        assert_eq!(node.hw.uses(), 0, "pages in use at the end");
        node.hw.evict_idle();
        assert_eq!(node.hw.pinned(), 0, "pinned at the end");
    }
}

/// Options of a property test: `cases` of them unless BERTH_CASES says otherwise, from BERTH_SEED.
pub fn config(cases: u32) -> proptest::prelude::ProptestConfig {
    proptest::prelude::ProptestConfig {
        cases: berth_random::cases(cases.into()) as u32,
        rng_seed: proptest::test_runner::RngSeed::Fixed(number("BERTH_SEED").unwrap_or(1)),
        failure_persistence: None,
        // Enough to bring a list of some hundred operations down to those that matter.
        max_shrink_iters: 2000,
        ..Default::default()
    }
}

/// For [`World::edit`]: no card offers selective repeat.
pub fn go_back_n(_: usize, f: &mut [u8]) {
    if f[12..14] != [8, 0] || f[47..50] != [0, 0, 2] || f[42] != 4 {
        return;
    }
    let end = f.len() - (f[43] >> 4 & 3) as usize;
    let mut at = 54 + 12;
    while at + 4 <= end {
        let (kind, words) = (f[at], f[at + 1] as usize);
        let mode = match kind {
            2 => 5,
            3 => 5,
            _ => 0,
        };
        if mode != 0 {
            f[at + 4 * mode + 2] &= 0x7f;
        }
        at += 4 * words.max(1);
    }
}
