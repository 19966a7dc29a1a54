// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards with a connection to be attacked and a good one beside it; the account of the frames that came.
#![allow(dead_code, reason = "each test program uses some of it")]

use crate::grammar::Seen;
use crate::pair::*;
use berth_abi::counters::*;
use berth_abi::message::QpCreate;
use berth_abi::wire::{BTH_ACKNOWLEDGE, BTH_UD_SEND_ONLY};
use berth_rtl_host::*;

/// QPs of the good connection, beside the one that is attacked.
pub const GOOD: u32 = 40;

/// Frames that came to host `d`, and the sum of the counters that each is in one of.
pub fn account(net: &mut Net, d: usize) -> [u64; 2] {
    let mut sum = |list: &[u32]| list.iter().map(|&i| net.hosts[d].rtl_counter(i)).sum::<u64>();
    let came = sum(&[C_RX_FRAMES, C_LOOPBACK_FRAMES]);
    let dropped = sum(&[
        C_RX_TRUNCATED,
        C_RX_OVERSIZED,
        C_RX_MAC_ERROR,
        C_RX_BAD_ICRC,
        C_RX_NOT_FOR_US,
        C_RX_CORE_FULL,
        C_FW_FRAMES,
    ]);
    let taken = sum(&[
        C_FP_TAKEN,
        C_FP_DUPLICATES,
        C_FP_DROPPED,
        C_FP_ACKS_TAKEN,
        C_FP_BAD_ACKS,
        C_LISTS_TAKEN,
        C_LISTS_REFUSED,
        C_FP_LIST_REPEATS,
    ]);
    [came, dropped + taken]
}

/// All frames that have come since `before` are counted, each once.
pub fn check_account(net: &mut Net, d: usize, before: &[u64; 2]) {
    let now = account(net, d);
    assert_eq!(now[0] - before[0], now[1] - before[1], "frames that came; frames that are counted");
}

/// Two hosts with a connection to be attacked and a good one. What the attacker has seen goes to `QP_B` of host 1.
pub fn attacked(seed: u64) -> (Net, Seen) {
    attacked_beside(seed, qp(GOOD), |_| ())
}

/// As [`attacked`], with this as the good connection's QPs; `first` is done to each host before they are made.
pub fn attacked_beside(seed: u64, good: QpCreate, first: impl Fn(&mut Host)) -> (Net, Seen) {
    attacked_by(seed, qp(QP_B), good, first)
}

/// As [`attacked_beside`], with `attacked` as the QP of host 1 that is attacked.
pub fn attacked_by(seed: u64, attacked: QpCreate, good: QpCreate, first: impl Fn(&mut Host)) -> (Net, Seen) {
    let mut net = pair(seed, |_, _| {}, qp(QP_A), attacked);
    for d in 0..2 {
        first(&mut net.hosts[d]);
        net.hosts[d].create_qp(good);
    }
    net.connect(0, GOOD, 1, GOOD, SERVICE + 1);
    let seen = seen(&mut net, (QP_A, QP_B), seed);
    (net, seen)
}

/// Both directions of a connection carry something; then it rests, with all credits used.
pub fn seen(net: &mut Net, (a, b): (u32, u32), seed: u64) -> Seen {
    for (from, to) in [((0, a), (1, b)), ((1, b), (0, a))] {
        let mut s = Stream::new(net, from, to, Rng(seed).bytes(20_000));
        s.recvs_left = Some(5);
        run(net, std::slice::from_mut(&mut s), 60_000_000);
    }
    net.settle(20_000);
    let list = |f: &&Vec<u8>| {
        roce(f).is_some_and(|f| f.opcode == BTH_UD_SEND_ONLY && f.body.len() > 12 && f.body[10] == b as u8)
    };
    Seen {
        qpn: b,
        data: last(net, 0, |f| f.qpn == b && f.opcode <= 5),
        ack: last(net, 0, |f| f.qpn == b && f.opcode == BTH_ACKNOWLEDGE),
        list: net.wires[0].sent.iter().rfind(list).cloned(),
    }
}
