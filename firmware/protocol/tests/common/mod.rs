// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helpers of the model tests.
#![allow(dead_code)]

use berth_abi::message::{CODE, Entry};
use berth_abi::ring::ENTRY_WORDS;
use berth_abi::rows::{HALF_RECEIVES, HALF_SENDS, recv, send};
use berth_protocol::model::{User, World};
use berth_protocol::wire::records::{REC_REP, REC_REQ};
use berth_random::number;

/// Address space of the tests' processes.
pub const ASID: u8 = 3;
/// An opcode that no command has.
pub const UNKNOWN: u32 = 99;
/// Half of a row that sends.
pub const TX: u32 = HALF_SENDS;
/// Half of a row that receives.
pub const RX: u32 = HALF_RECEIVES;

/// A command of which only the opcode is there.
pub fn blank(opcode: u32) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    entry[CODE] = opcode;
    entry
}

/// Commands to a half of `user`'s row, in order.
pub fn commands(w: &World, user: &User, half: u32) -> Vec<u32> {
    let command = if half == TX { send::COMMAND } else { recv::COMMAND };
    let is = |x: &&(u32, u32, u32, u32)| (x.0, x.1, x.2) == (half, user.qpn, command);
    w.nodes[user.node].hw.fast.written.iter().filter(is).map(|x| x.3).collect()
}

/// The rows of a connection are as they were made: each half was told to start, and nothing else.
pub fn assert_rows_untouched(w: &World, user: &User) {
    let told = [commands(w, user, TX), commands(w, user, RX)];
    assert_eq!(told, [[send::CMD_START], [recv::CMD_START]], "its rows are as they were made");
}

/// The command that ends the sending half, or the receiving half, whose oldest element completes with `status`.
pub fn end_of(half: u32, status: u8) -> u32 {
    let argument = status.into();
    match half {
        TX => send::Command { argument, opcode: send::CMD_END }.word(),
        _ => recv::Command { argument, opcode: recv::CMD_END }.word(),
    }
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
            // Behind an immediate, if there is one, and the placement header.
            let start = if f[42] >= 3 { 62 } else { 58 };
            let psn = u32::from_be_bytes([0, f[51], f[52], f[53]]);
            let imm = u32::from_be_bytes([f[54], f[55], f[56], f[57]]);
            (f[42], psn, f.len() - start - pad, imm)
        })
        .collect()
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
