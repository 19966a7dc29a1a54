// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends whose data are in their element: no memory is asked for, and what is malformed is refused.
//! `faults.rs` mixes them with others over a bad wire.

mod common;
use berth_abi::counters::{F_BAD_WQE, F_RETRANSMITTED, F_SEND_BLOCKS};
use berth_abi::ring::EV_QP_ERROR;
use berth_abi::status::{REASON_SEND_FAILED, WC_BAD_WQE, WC_FLUSHED, WC_OK};
use berth_abi::wqe::{MAX_INLINE, OP_RECV, OP_SEND, SEND_INLINE, SEND_PUSH};
use berth_protocol::model::{Action, Fault, User, World};
use common::*;

fn element(opcode: u8, flags: u8, num_sge: u16, length: u32) -> [u8; 128] {
    let mut bytes = [0x5a; 128];
    (bytes[0], bytes[1]) = (opcode, flags);
    bytes[2..4].copy_from_slice(&num_sge.to_le_bytes());
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn finish(mut w: World, users: &[&User]) {
    for user in users {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

#[test]
fn cr_2_inline_data_of_any_length_is_cut_to_credits_and_takes_no_memory() {
    // Credits of 1 to 9 bytes: the data are cut at any place.
    let (mut w, mut a, mut b) = pair(71);
    w.nodes[1].hw.map(ASID, DST, 4096, true);
    let data = pattern(71, (0..=MAX_INLINE).sum());
    let (mut at, mut place, mut posted, mut got) = (0, 0, 0, vec![]);
    for len in 0..=MAX_INLINE {
        w.post_inline(&mut a, &data[at..at + len], len as u64);
        at += len;
        w.ring(&a);
        loop {
            while posted - w.completions(&b, true).len() < 20 {
                let size = 1 + posted as u32 % 9;
                w.post_recv(&mut b, &[(DST + place, size)], posted as u64);
                (place, posted) = ((place + 9) % 900, posted + 1);
                w.ring(&b);
            }
            w.run(2_000);
            for c in &w.completions(&b, true)[got.len()..] {
                let bytes = w.nodes[1].hw.peek(ASID, DST + c[0] as u64 * 9 % 900, c[2] as usize);
                got.push(bytes);
            }
            if w.completions(&a, false).len() == len + 1 && got.iter().map(Vec::len).sum::<usize>() == at {
                break;
            }
        }
    }
    assert!(got.concat() == data, "bytes differ");
    for (len, c) in w.completions(&a, false).iter().enumerate() {
        assert_eq!((c[0] as usize, c[2] as usize, c[4] as u8), (len, len, WC_OK));
    }
    assert_eq!(w.counter(0, F_SEND_BLOCKS), 0);
    assert!(
        !w.nodes[0].hw.trace.iter().any(|t| matches!(t, Action::Acquire(..))),
        "no page of the sender is asked for"
    );
    finish(w, &[&a, &b]);
}

#[test]
fn decision_13_inline_data_are_sent_again_from_the_cards_copy() {
    let (mut w, mut a, mut b) = pair(72);
    w.nodes[1].hw.map(ASID, DST, 4096, true);
    w.post_recv(&mut b, &[(DST, 100)], 0);
    w.ring(&b);
    w.run(1_000_000);
    let data = pattern(72, 33);
    w.planned.insert(w.frames, Fault::Loss);
    w.post_inline(&mut a, &data, 0);
    w.ring(&a);
    w.run(20_000);
    w.overwrite_send(&a, 0, &[0xff; 128]);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    assert!(w.counter(0, F_RETRANSMITTED) > 0);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 33), data);
    finish(w, &[&a, &b]);
}

#[test]
fn malformed_inline_elements_are_refused() {
    let long = MAX_INLINE as u32 + 1;
    for (what, flags, num_sge, length) in [
        ("41 bytes", SEND_INLINE, 0, long),
        ("the most bytes that a length says", SEND_INLINE | SEND_PUSH, 0, u32::MAX),
        ("inline with an SGE", SEND_INLINE, 1, 40),
        ("an unknown flag", SEND_INLINE | 4, 0, 40),
    ] {
        let (mut w, mut a, b) = pair(73);
        w.post_raw_send(&mut a, &element(OP_SEND, flags, num_sge, length));
        w.post_inline(&mut a, &[1; 40], 1);
        w.ring(&a);
        assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_SEND_FAILED, "{what}");
        w.run(1_000_000);
        let statuses: Vec<u8> = w.completions(&a, false).iter().map(|c| c[4] as u8).collect();
        assert_eq!(statuses, [WC_BAD_WQE, WC_FLUSHED], "{what}");
        assert_eq!(w.counter(0, F_BAD_WQE), 1);
        finish(w, &[&a, &b]);
    }
    // A receive has no data.
    let (mut w, a, mut b) = pair(74);
    w.post_raw_recv(&mut b, &element(OP_RECV, SEND_INLINE, 0, 40));
    w.ring(&b);
    w.run(1_000_000);
    assert_eq!(w.completions(&b, true)[0][4] as u8, WC_BAD_WQE);
    finish(w, &[&a, &b]);
}
