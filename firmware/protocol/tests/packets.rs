// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Firmware's own end of a reliable connection, packet by packet: what it takes, what it refuses, what it says, and what
//! an acknowledgement or the lack of one makes it send.

mod common;
use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wqe::{CQE_PUSH, SEND_PUSH};
use berth_protocol::headers::{
    ACKNOWLEDGE, NAK_INVALID, NAK_OPERATION, NAK_SEQUENCE, SEND_FIRST, SEND_LAST_IMM, SEND_MIDDLE, SEND_ONLY_IMM,
};
use berth_protocol::limits::{ACK_EVERY, RETRIES, WINDOW};
use berth_protocol::model::{MTU, User, World};
use berth_protocol::wire::berth::{Placement, SELECTIVE_ACKNOWLEDGE};
use common::*;

/// State of a QP (`Card::state_of`).
const CONNECTED: u8 = 3;
/// Time-out of the QPs here, so short that nobody takes the peer for lost before.
const TIMEOUT: u32 = 400_000;

/// Two connected QPs, with memory to send from and to receive into; `selective`: as both offer it.
fn connected(seed: u64, selective: bool) -> (World, User, User) {
    let mut w = World::new(2, seed);
    if !selective {
        w.edit = Some(go_back_n);
    }
    let a = w.create_qp(0, 16, ASID, |c| c[12] = TIMEOUT);
    let b = w.create_qp(1, 17, ASID, |c| c[12] = TIMEOUT);
    w.connect(&a, &b, 7);
    w.nodes[0].hw.map(ASID, SRC, 1 << 16, true);
    w.nodes[0].hw.poke(ASID, SRC, &pattern(seed, 1 << 16));
    w.nodes[1].hw.map(ASID, DST, 1 << 17, true);
    (w, a, b)
}

/// Receives of these sizes, one behind the other from `DST` on; their credits arrive.
fn receives(w: &mut World, b: &mut User, sizes: &[u32]) {
    let mut at = DST;
    for (i, size) in sizes.iter().enumerate() {
        w.post_recv(b, &[(at, *size)], i as u64);
        at += *size as u64;
    }
    w.ring(b);
    w.run(1_000_000);
}

/// The same, and then A sends a byte, which takes the first receive: gives the PSN behind it.
fn begun(w: &mut World, a: &mut User, b: &mut User, sizes: &[u32]) -> u32 {
    receives(w, b, &[&[1], sizes].concat());
    w.post_send(a, &[(SRC, 1)], 0);
    w.ring(a);
    w.run(1_000_000);
    assert_eq!((w.completions(a, false).len(), w.completions(b, true).len()), (1, 1));
    (data_frames(w, 0)[0].1 + 1) & 0xff_ffff
}

/// A frame from card `from` to the other one's QP `qpn`; `ext`: immediate data or AETH, where the opcode has one.
fn frame(w: &World, from: usize, qpn: u32, opcode: u8, psn: u32, ext: u32, payload: &[u8]) -> Vec<u8> {
    let mut f = w.wire.iter().find(|(i, f)| *i == from && f[12..14] == [8, 0]).unwrap().1[..54].to_vec();
    f[42] = opcode;
    f[43] = ((payload.len().wrapping_neg() & 3) as u8) << 4;
    f[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
    f[50] = 0;
    f[51..54].copy_from_slice(&psn.to_be_bytes()[1..]);
    if matches!(opcode, SEND_LAST_IMM | SEND_ONLY_IMM | ACKNOWLEDGE | SELECTIVE_ACKNOWLEDGE) {
        f.extend(ext.to_be_bytes());
    }
    f.extend(payload);
    f.resize(54 + (f.len() - 54).next_multiple_of(4), 0);
    let total = (f.len() - 14 + 4) as u16;
    f[16..18].copy_from_slice(&total.to_be_bytes());
    f[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    f[24..26].fill(0);
    let mut sum: u32 = (14..34).step_by(2).map(|i| u16::from_be_bytes([f[i], f[i + 1]]) as u32).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    f[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    f
}

/// `len` bytes behind a placement header.
fn placed(credit: u8, index: u32, len: u32) -> Vec<u8> {
    [&Placement { credit, index }.to_bytes()[..], &vec![0x5a; len as usize]].concat()
}

/// Acknowledgements and NAKs of card `from` so far: opcode, PSN, syndrome.
fn answers(w: &World, from: usize) -> Vec<(u8, u32, u32)> {
    let answer = |f: &[u8]| f[12..14] == [8, 0] && f[47..50] != [0, 0, 2] && f[42] >= ACKNOWLEDGE;
    let parts = |f: &[u8]| (f[42], u32::from_be_bytes([0, f[51], f[52], f[53]]), f[54] as u32);
    w.wire.iter().filter(|(i, f)| *i == from && answer(f)).map(|(_, f)| parts(f)).collect()
}

fn state(w: &World, user: &User) -> u8 {
    w.nodes[user.node].card.state_of(user.qpn)
}

fn statuses(w: &World, user: &User, recv: bool) -> Vec<u8> {
    w.completions(user, recv).iter().map(|c| c[4] as u8).collect()
}

/// Packets: opcode, index in the piece, bytes.
type Sent<'a> = &'a [(u8, u32, u32)];

#[test]
fn qp_7_packets_that_break_the_order_of_a_message_end_the_connection() {
    const M: u32 = MTU;
    let cases: &[(Sent<'_>, u32)] = &[
        (&[(SEND_MIDDLE, 1, M)], F_BAD_OPCODE),
        (&[(SEND_LAST_IMM, 1, 9)], F_BAD_OPCODE),
        (&[(SEND_FIRST, 1, M)], F_BAD_OPCODE),
        (&[(SEND_ONLY_IMM, 1, 9)], F_BAD_OPCODE),
        (&[(SEND_FIRST, 0, M), (SEND_FIRST, 0, M)], F_BAD_OPCODE),
        (&[(SEND_FIRST, 0, M), (SEND_ONLY_IMM, 0, 9)], F_BAD_OPCODE),
        (&[(SEND_FIRST, 0, M), (SEND_MIDDLE, 0, M)], F_BAD_OPCODE),
        (&[(SEND_FIRST, 0, M), (SEND_MIDDLE, 2, M)], F_BAD_HEADER),
        (&[(SEND_FIRST, 0, M), (SEND_LAST_IMM, 2, 9)], F_BAD_HEADER),
        (&[(SEND_FIRST, 0, M - 1)], F_BAD_HEADER),
        (&[(SEND_FIRST, 0, M + 1)], F_BAD_HEADER),
        (&[(SEND_ONLY_IMM, 0, M + 1)], F_BAD_HEADER),
        (&[(SEND_ONLY_IMM, 0, 0)], F_BAD_HEADER),
        (&[(SEND_FIRST, 0, M), (SEND_LAST_IMM, 1, 0)], F_BAD_HEADER),
        (&[(SEND_FIRST, 0, M), (SEND_MIDDLE, 1, M), (SEND_LAST_IMM, 2, 953)], F_NO_CREDIT),
    ];
    for (packets, counter) in cases {
        let (mut w, mut a, mut b) = connected(1, true);
        let psn = begun(&mut w, &mut a, &mut b, &[3000]);
        for (n, (opcode, index, len)) in packets.iter().enumerate() {
            assert_eq!((state(&w, &b), w.counter(1, *counter)), (CONNECTED, 0), "{packets:x?}");
            let f = frame(&w, 0, b.qpn, *opcode, psn + n as u32, 0, &placed(1, *index, *len));
            w.inject(1, f);
            w.run(20_000);
        }
        assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_PROTOCOL, "{packets:x?}");
        assert_eq!(w.counter(1, *counter), 1, "{packets:x?}");
        // Of what came before it the peer learns with the NAK.
        let refused = psn + packets.len() as u32 - 1;
        assert_eq!(answers(&w, 1).last(), Some(&(ACKNOWLEDGE, refused, NAK_INVALID)), "{packets:x?}");
        assert_eq!(w.event(0, EV_CM_CLOSED, Some(a.qpn))[2], REASON_PEER_CLOSE, "{packets:x?}");
    }
}

#[test]
fn qp_7_what_is_wrong_and_comes_early_is_dropped() {
    const M: u32 = MTU;
    // Too short for a placement header, or what would be refused in its turn.
    for (opcode, payload, counter) in [
        (SEND_FIRST, vec![1; 3], F_BAD_HEADER),
        (SEND_FIRST, placed(1, 1, M), F_BAD_OPCODE),
        (SEND_MIDDLE, placed(1, 0, M), F_BAD_OPCODE),
        (SEND_MIDDLE, placed(1, 1, M - 1), F_BAD_HEADER),
        (SEND_LAST_IMM, placed(1, 1, 0), F_BAD_HEADER),
        (SEND_LAST_IMM, placed(3, 1, 9), F_NO_CREDIT),
        (SEND_LAST_IMM, placed(0, 1, 9), F_NO_CREDIT),
        (SEND_LAST_IMM, placed(1, 2, 953), F_OUT_OF_SEQUENCE),
        (7, placed(1, 1, 9), F_BAD_OPCODE),
    ] {
        let (mut w, mut a, mut b) = connected(2, true);
        let psn = begun(&mut w, &mut a, &mut b, &[3000, 100]);
        let f = frame(&w, 0, b.qpn, opcode, psn + 1, 0, &payload);
        w.inject(1, f);
        w.run(20_000);
        assert_eq!((w.counter(1, counter), w.counter(1, F_DATA_RECEIVED)), (1, 1), "{opcode} {:x?}", &payload[..3]);
        // The connection goes on as if it had not come, and nothing of it is anywhere.
        w.post_send(&mut a, &[(SRC, 3100)], 1);
        w.ring(&a);
        w.run_until(10_000_000, |w| w.completions(&b, true).len() == 3);
        assert_eq!(w.nodes[1].hw.peek(ASID, DST + 1, 3100), w.nodes[0].hw.peek(ASID, SRC, 3100));
        assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
    }
}

#[test]
fn cr_2_a_packet_for_a_credit_that_is_posted_and_not_announced_is_dropped() {
    let (mut w, mut a, mut b) = connected(3, true);
    let psn = begun(&mut w, &mut a, &mut b, &[100]);
    // A second list waits for the proof of the first.
    w.post_recv(&mut b, &[(DST, 100)], 5);
    w.ring(&b);
    w.run(1_000_000);
    w.post_recv(&mut b, &[(DST, 100)], 6);
    w.ring(&b);
    w.run(1_000_000);
    assert_eq!(lists(&w, 1), [(0, vec![1, 100]), (2, vec![100])]);
    for (credit, taken) in [(3, 0), (2, 1)] {
        let f = frame(&w, 0, b.qpn, SEND_ONLY_IMM, psn + credit, 0, &placed(credit as u8, 0, 9));
        w.inject(1, f);
        w.run(20_000);
        assert_eq!((w.counter(1, F_DATA_RECEIVED), w.counter(1, F_NO_CREDIT)), (1 + taken, 1), "{credit}");
    }
    assert_eq!(state(&w, &b), CONNECTED);
}

#[test]
fn qp_7_a_message_that_turns_out_to_be_broken_when_the_gap_closes_ends_the_connection() {
    const M: u32 = MTU;
    // What comes early, and then before it: neither is wrong alone.
    let cases: &[[(u8, u8, u32, u32); 2]] = &[
        [(SEND_LAST_IMM, 1, 1, 9), (SEND_ONLY_IMM, 1, 0, 9)],
        [(SEND_LAST_IMM, 1, 2, 9), (SEND_FIRST, 1, 0, M)],
        [(SEND_ONLY_IMM, 2, 0, 9), (SEND_FIRST, 1, 0, M)],
        [(SEND_LAST_IMM, 2, 1, 9), (SEND_FIRST, 1, 0, M)],
        [(SEND_ONLY_IMM, 3, 0, 9), (SEND_ONLY_IMM, 1, 0, 9)],
    ];
    for [early, late] in cases {
        let (mut w, mut a, mut b) = connected(4, true);
        let psn = begun(&mut w, &mut a, &mut b, &[3000, 3000, 3000]);
        for (n, (opcode, credit, index, len)) in [(1, early), (0, late)] {
            let f = frame(&w, 0, b.qpn, *opcode, psn + n, 0, &placed(*credit, *index, *len));
            w.inject(1, f);
            w.run(20_000);
        }
        assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_PROTOCOL, "{early:?}");
        let (opcode, _, syndrome) = *answers(&w, 1).last().unwrap();
        assert_eq!((opcode, syndrome), (ACKNOWLEDGE, NAK_INVALID), "{early:?}");
        assert_eq!(w.counter(1, F_BAD_OPCODE), 1, "{early:?}");
    }
}

#[test]
fn qp_7_every_fourth_packet_is_acknowledged_unasked_with_the_messages_so_far() {
    let (mut w, mut a, mut b) = connected(23, true);
    let psn = begun(&mut w, &mut a, &mut b, &[100; 10]);
    let before = answers(&w, 1).len();
    for n in 0..10u32 {
        let f = frame(&w, 0, b.qpn, SEND_ONLY_IMM, psn + n, 0, &placed(n as u8 + 1, 0, 9));
        w.inject(1, f);
        w.run(20_000);
        assert_eq!(answers(&w, 1).len() - before, (n as usize + 1) / ACK_EVERY as usize, "{n}");
    }
    let (_, ack) = w.wire.iter().rev().find(|(i, f)| *i == 1 && f[12..14] == [8, 0] && f[42] == ACKNOWLEDGE).unwrap();
    assert_eq!(answers(&w, 1).last(), Some(&(ACKNOWLEDGE, psn + 7, 0x1f)));
    assert_eq!(ack[55..58], [0, 0, 9], "messages, that of the beginning among them");
    // Asked, it says at once what has come since.
    let mut f = frame(&w, 0, b.qpn, SEND_ONLY_IMM, psn, 0, &placed(1, 0, 9));
    f[50] = 0x80;
    w.inject(1, f);
    w.run(20_000);
    assert_eq!(answers(&w, 1).last(), Some(&(ACKNOWLEDGE, psn + 9, 0x1f)));
}

#[test]
fn qp_7_a_duplicate_is_acknowledged_again_and_what_is_too_far_ahead_is_not_taken() {
    let (mut w, mut a, mut b) = connected(5, true);
    let psn = begun(&mut w, &mut a, &mut b, &[100; 12]);
    let before = answers(&w, 1).len();
    for old in [1, 5, 1000] {
        let f = frame(&w, 0, b.qpn, SEND_ONLY_IMM, psn.wrapping_sub(old) & 0xff_ffff, 0, &placed(0, 0, 1));
        w.inject(1, f);
        w.run(20_000);
    }
    assert_eq!(answers(&w, 1)[before..], [(ACKNOWLEDGE, psn - 1, 0x1f); 3]);
    assert_eq!((w.counter(1, F_DUPLICATES), w.counter(1, F_DATA_RECEIVED)), (3, 1));
    // The window is from `psn` to `psn + WINDOW - 1`.
    for (n, taken) in [(WINDOW, 0), (WINDOW + 1, 0), (1 << 22, 0), (WINDOW - 1, 1)] {
        let f = frame(&w, 0, b.qpn, SEND_ONLY_IMM, (psn + n) & 0xff_ffff, 0, &placed(8, 0, 9));
        w.inject(1, f);
        w.run(20_000);
        assert_eq!(w.counter(1, F_DATA_RECEIVED), 1 + taken, "{n}");
    }
    assert_eq!(w.counter(1, F_OUT_OF_SEQUENCE), 4);
    // What came early and is in its place is named, and comes again in vain.
    assert_eq!(answers(&w, 1).last().unwrap().0, SELECTIVE_ACKNOWLEDGE);
    let (_, sack) = w.wire.iter().rev().find(|(i, f)| *i == 1 && f[42] == SELECTIVE_ACKNOWLEDGE).unwrap();
    assert_eq!(sack[58..74], (1u128 << (128 - WINDOW)).to_be_bytes(), "the one, and no others");
    let f = frame(&w, 0, b.qpn, SEND_ONLY_IMM, psn + WINDOW - 1, 0, &placed(8, 0, 9));
    w.inject(1, f);
    w.run(20_000);
    assert_eq!((w.counter(1, F_DUPLICATES), w.counter(1, F_DATA_RECEIVED)), (4, 2));
    let (opcode, at, syndrome) = *answers(&w, 1).last().unwrap();
    assert_eq!((opcode, at, syndrome), (SELECTIVE_ACKNOWLEDGE, psn - 1, 0x1f));
}

#[test]
fn qp_7_without_selective_repeat_a_gap_has_one_nak_and_another_when_it_comes_again() {
    let (mut w, mut a, mut b) = connected(6, false);
    let psn = begun(&mut w, &mut a, &mut b, &[100; 6]);
    let naks = |w: &World| w.counter(1, F_NAKS_SENT);
    let send = |w: &mut World, n: u32| {
        let f = frame(w, 0, b.qpn, SEND_ONLY_IMM, psn + n, 0, &[1; 9]);
        w.inject(1, f);
        w.run(20_000);
    };
    for (n, expected) in [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (2, 3)] {
        send(&mut w, n);
        assert_eq!(naks(&w), expected, "{n}");
    }
    assert_eq!(answers(&w, 1).last(), Some(&(ACKNOWLEDGE, psn, NAK_SEQUENCE)));
    // The gap is closed; the next one has its own.
    send(&mut w, 0);
    assert_eq!((naks(&w), w.counter(1, F_DATA_RECEIVED)), (3, 2));
    send(&mut w, 3);
    assert_eq!((naks(&w), answers(&w, 1).last()), (4, Some(&(ACKNOWLEDGE, psn + 1, NAK_SEQUENCE))));
    assert_eq!((w.counter(1, F_OUT_OF_SEQUENCE), state(&w, &b)), (7, CONNECTED));
}

#[test]
fn vc_9_what_comes_early_for_a_withdrawn_receive_is_dropped() {
    let (mut w, mut a, mut b) = connected(7, true);
    w.nodes[1].hw.map(ASID, DST + (2 << 20), 4096, true);
    receives(&mut w, &mut b, &[1]);
    w.post_send(&mut a, &[(SRC, 1)], 0);
    w.post_recv(&mut b, &[(DST + (2 << 20), 4096)], 1);
    w.ring(&a);
    w.ring(&b);
    w.run(1_000_000);
    let psn = data_frames(&w, 0)[0].1 + 1;
    w.unmap(1, ASID, DST + (2 << 20), 4096);
    w.run(100_000);
    let early = frame(&w, 0, b.qpn, SEND_LAST_IMM, psn + 1, 0, &placed(1, 1, 9));
    w.inject(1, early);
    w.run(20_000);
    assert_eq!((w.counter(1, F_DATA_RECEIVED), state(&w, &b)), (1, CONNECTED));
    let first = frame(&w, 0, b.qpn, SEND_FIRST, psn, 0, &placed(1, 0, MTU));
    w.inject(1, first);
    assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_WITHDRAWN);
    assert_eq!(answers(&w, 1).last(), Some(&(ACKNOWLEDGE, psn, NAK_OPERATION)));
    w.run(100_000);
    assert_eq!(statuses(&w, &b, true), [WC_OK, WC_WITHDRAWN]);
}

#[test]
fn cr_9_each_piece_ends_with_the_bytes_still_to_be_sent() {
    for selective in [true, false] {
        let (mut w, mut a, mut b) = connected(8, selective);
        receives(&mut w, &mut b, &[2000, 5, 500, 12 * MTU]);
        w.post_send(&mut a, &[(SRC, 1000), (SRC + 5000, 1500)], 1);
        w.post_send(&mut a, &[(SRC, 11 * MTU)], 2);
        w.ring(&a);
        w.run_until(10_000_000, |w| w.completions(&a, false).len() == 2);
        let ends: Vec<_> = data_frames(&w, 0).iter().filter(|f| f.0 >= 3).map(|f| (f.0, f.3)).collect();
        let rest = 11 * MTU;
        let expected =
            [(SEND_LAST_IMM, 500 + rest), (SEND_ONLY_IMM, 495 + rest), (SEND_ONLY_IMM, rest), (SEND_LAST_IMM, 0)];
        assert_eq!(ends, expected);
        assert_eq!(w.counter(0, F_PIECES), 4);
    }
}

#[test]
fn cr_16_a_packet_is_read_from_all_contexts_that_it_lies_in() {
    let (mut w, mut a, mut b) = connected(17, true);
    receives(&mut w, &mut b, &[5000]);
    // The second packet begins within the first context and ends in the third.
    w.post_send(&mut a, &[(SRC, 1500), (SRC + 8001, 200), (SRC + 20_003, 1300)], 1);
    w.ring(&a);
    w.run_until(10_000_000, |w| w.completions(&a, false).len() == 1);
    let sent =
        [(SRC, 1500), (SRC + 8001, 200), (SRC + 20_003, 1300)].map(|(va, len)| w.nodes[0].hw.peek(ASID, va, len));
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 3000), sent.concat());
    assert_eq!(w.counter(0, F_DATA_PACKETS), 3);
}

#[test]
fn qp_2_a_packet_is_written_to_all_parts_of_its_receive() {
    let (mut w, mut a, mut b) = connected(22, true);
    // One ends where a packet does, one in the middle of the third packet, in which the next one lies, too.
    let parts = [(DST, 1024), (DST + 5000, 1500), (DST + 9001, 3), (DST + 20_000, 473)];
    w.post_recv(&mut b, &parts, 1);
    w.ring(&b);
    w.run(1_000_000);
    assert_eq!(w.counter(1, F_CREDITS_OUTSTANDING), 1);
    w.post_send(&mut a, &[(SRC, 3000)], 1);
    w.ring(&a);
    w.run_until(10_000_000, |w| w.completions(&b, true).len() == 1);
    let come = parts.map(|(va, len)| w.nodes[1].hw.peek(ASID, va, len as usize));
    assert_eq!(come.concat(), w.nodes[0].hw.peek(ASID, SRC, 3000));
    assert_eq!((w.counter(1, F_BYTES_PLACED), w.counter(1, F_CREDITS_OUTSTANDING)), (3000, 0));
}

#[test]
fn inv_6_the_padding_of_a_packet_says_nothing() {
    let (mut w, mut a, mut b) = connected(18, true);
    receives(&mut w, &mut b, &[12 * MTU, 1, 2, 3, 5]);
    w.nodes[0].hw.poke(ASID, SRC, &[0xff; 16 << 10]);
    for len in [12 * MTU, 1, 2, 3, 5] {
        w.post_send(&mut a, &[(SRC, len)], 1);
    }
    w.ring(&a);
    w.run_until(10_000_000, |w| w.completions(&a, false).len() == 5);
    for (_, f) in w.wire.iter().filter(|(i, f)| *i == 0 && f[12..14] == [8, 0] && f[42] <= 5 && f[42] != 4) {
        let pad = (f[43] >> 4 & 3) as usize;
        assert_eq!(f[f.len() - pad..], vec![0; pad]);
        assert_eq!(f[f.len() - pad - 1], 0xff);
    }
}

#[test]
fn vc_2_what_is_sent_before_a_block_that_is_not_there_asks_for_an_acknowledgement() {
    let (mut w, mut a, mut b) = connected(19, true);
    receives(&mut w, &mut b, &[8192]);
    w.nodes[0].hw.stuck.push((ASID, SRC / 4096 + 2));
    w.post_send(&mut a, &[(SRC, 2 * MTU), (SRC + 8192, MTU)], 1);
    w.ring(&a);
    w.run(200_000);
    let asks = |w: &World| -> Vec<bool> {
        let data = |f: &[u8]| f[12..14] == [8, 0] && f[42] <= 5 && f[42] != 4;
        w.wire.iter().filter(|(i, f)| *i == 0 && data(f)).map(|(_, f)| f[50] & 0x80 != 0).collect()
    };
    assert_eq!(asks(&w), [false, true]);
    // So nothing is taken for lost.
    w.run(3 * TIMEOUT as u64);
    assert_eq!((w.counter(0, F_TIMEOUTS), w.counter(0, F_RETRANSMITTED)), (0, 0));
}

#[test]
fn vc_9_a_send_whose_memory_cannot_be_had_fails_by_name_after_those_before_it() {
    // The block that a new piece begins with, and one in the middle of a packet.
    for sges in [&[(0x1000, 100)][..], &[(SRC, 100), (0x1000, 100)], &[(SRC, MTU + 100), (SRC, 100), (0x1000, 100)]] {
        for apart in [false, true] {
            let (mut w, mut a, mut b) = connected(20, true);
            receives(&mut w, &mut b, &[100, 4000, 4000]);
            w.post_send(&mut a, &[(SRC, 100)], 1);
            if apart {
                w.ring(&a);
                w.run(1_000_000);
            }
            w.post_send(&mut a, sges, 2);
            w.post_send(&mut a, &[(SRC, 100)], 3);
            w.ring(&a);
            w.run(TIMEOUT as u64 / 2);
            assert_eq!(statuses(&w, &a, false), [WC_OK, WC_LOCAL_PROTECTION, WC_FLUSHED], "{sges:x?}");
            assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_SEND_FAILED);
        }
    }
}

#[test]
fn vc_9_a_packet_whose_page_moves_while_it_is_read_goes_again_at_once() {
    for seed in 0..4 {
        println!("seed {seed}");
        let (mut w, mut a, mut b) = connected(30 + seed, true);
        receives(&mut w, &mut b, &[4096]);
        w.nodes[0].hw.dma_delay = 100_000;
        w.post_send(&mut a, &[(SRC, 4096)], 1);
        w.ring(&a);
        w.run_until(300_000, |w| w.counter(0, F_DATA_PACKETS) == 4);
        let data = w.nodes[0].hw.peek(ASID, SRC, 4096);
        w.unmap(0, ASID, SRC, 4096);
        w.nodes[0].hw.map(ASID, SRC, 4096, true);
        w.nodes[0].hw.poke(ASID, SRC, &data);
        w.nodes[0].hw.dma_delay = 500;
        w.run_until(TIMEOUT as u64, |w| w.completions(&a, false).len() == 1);
        assert_eq!((statuses(&w, &a, false), w.counter(0, F_TIMEOUTS)), (vec![WC_OK], 0));
        assert!(w.counter(0, F_RETRANSMITTED) > 0);
        assert_eq!(w.nodes[1].hw.peek(ASID, DST, 4096), data);
    }
}

#[test]
fn vc_9_a_page_that_goes_while_a_packet_is_written_ends_the_connection() {
    for seed in 0..4 {
        println!("seed {seed}");
        let (mut w, mut a, mut b) = connected(40 + seed, true);
        receives(&mut w, &mut b, &[4096; 3]);
        w.post_send(&mut a, &[(SRC, 4096)], 1);
        w.ring(&a);
        w.run_until(1_000_000, |w| w.completions(&a, false).len() == 1);
        w.nodes[1].hw.dma_delay = 100_000;
        w.post_send(&mut a, &[(SRC, 3000)], 2);
        w.ring(&a);
        w.run_until(1_000_000, |w| w.counter(1, F_DATA_RECEIVED) == 7);
        w.unmap(1, ASID, DST + 4096, 4096);
        assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_WITHDRAWN);
        assert_eq!(answers(&w, 1).last().unwrap().2, NAK_OPERATION);
        assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_SEND_FAILED);
        w.run(300_000);
        assert_eq!(statuses(&w, &b, true), [WC_OK, WC_WITHDRAWN, WC_FLUSHED]);
        assert_eq!(statuses(&w, &a, false), [WC_OK, WC_REMOTE_ERROR]);
        assert_eq!((w.nodes[0].hw.uses(), w.nodes[1].hw.uses()), (0, 0));
    }
}

#[test]
fn qp_7_who_finds_no_slot_goes_on_when_one_is_free() {
    let (mut w, a, b) = connected(21, true);
    let mut users = vec![(a, b)];
    for i in 1..4 {
        let a = w.create_qp(0, 16 + 10 * i, ASID, |_| ());
        let b = w.create_qp(1, 17 + 10 * i, ASID, |_| ());
        w.connect(&a, &b, 7 + i);
        users.push((a, b));
    }
    for (_, b) in &mut users {
        receives(&mut w, b, &[8 * MTU]);
    }
    // Each has a window of packets to send, and all wait for their bytes: there are 16 slots.
    w.nodes[0].hw.dma_delay = 100_000;
    for (a, _) in &mut users {
        w.post_send(a, &[(SRC, 8 * MTU)], 1);
        w.ring(a);
    }
    // Nobody is answered, so that no acknowledgement makes anybody go on.
    w.hold[0] = true;
    w.run(3_000_000);
    assert_eq!(w.counter(0, F_BYTES_SENT), 4 * 8 * MTU as u64);
    w.hold[0] = false;
    w.release(0, usize::MAX);
    w.run_until(100_000_000, |w| users.iter().all(|(a, _)| w.completions(a, false).len() == 1));
}

#[test]
fn iw_6_only_the_last_packet_of_a_send_carries_its_push() {
    let (mut w, mut a, mut b) = connected(9, true);
    receives(&mut w, &mut b, &[1500, 1500, 100]);
    for (len, flags) in [(3000u32, SEND_PUSH), (50, 0)] {
        let mut element = vec![0; 128];
        (element[0], element[1], element[2]) = (1, flags, 1);
        element[4..8].copy_from_slice(&len.to_le_bytes());
        element[16..24].copy_from_slice(&SRC.to_le_bytes());
        element[24..28].copy_from_slice(&len.to_le_bytes());
        w.post_raw_send(&mut a, &element);
    }
    w.ring_raw(&a, 2, 0, 3050);
    w.run_until(10_000_000, |w| w.completions(&b, true).len() == 3);
    let pushed: Vec<bool> = w.completions(&b, true).iter().map(|c| c[4] >> 16 & CQE_PUSH as u32 != 0).collect();
    assert_eq!(pushed, [false, true, false]);
    let data = |f: &[u8]| f[12..14] == [8, 0] && matches!(f[42], 0 | 1 | 3 | 5);
    let solicited = w.wire.iter().filter(|(i, f)| *i == 0 && data(f) && f[43] & 0x80 != 0).count();
    assert_eq!(solicited, 1);
}

/// A has sent six packets, two for each of three sends, which are on the wire and held there. Gives the first one's PSN.
fn six(w: &mut World, a: &mut User, b: &mut User) -> u32 {
    receives(w, b, &[2 * MTU; 3]);
    w.hold[0] = true;
    for i in 0..3 {
        w.post_send(a, &[(SRC + i * 2048, 2 * MTU)], i);
    }
    w.ring(a);
    w.run_until(300_000, |w| data_frames(w, 0).len() == 6);
    w.run(20_000);
    data_frames(w, 0)[0].1
}

/// An AETH for A comes, with the PSN `n` behind the first one's.
fn acknowledge(w: &mut World, a: &User, psn: u32, n: i32, syndrome: u32) {
    let f = frame(w, 1, a.qpn, ACKNOWLEDGE, psn.wrapping_add_signed(n) & 0xff_ffff, syndrome << 24, &[]);
    w.inject(0, f);
    w.run(20_000);
}

#[test]
fn qp_7_an_acknowledgement_completes_what_lies_before_it_and_no_more() {
    for selective in [true, false] {
        let (mut w, mut a, mut b) = connected(10, selective);
        let psn = six(&mut w, &mut a, &mut b);
        // (PSN, sends complete, acknowledgements that cannot be)
        for (n, complete, bad) in [
            (-1, 0, 0),
            (-9, 0, 0),
            (6, 0, 1),
            (1000, 0, 2),
            (0, 0, 2),
            (2, 1, 2),
            (1, 1, 2),
            (4, 2, 2),
            (5, 3, 2),
            (5, 3, 2),
        ] {
            acknowledge(&mut w, &a, psn, n, 0x1f);
            assert_eq!((w.completions(&a, false).len(), w.counter(0, F_BAD_ACK)), (complete, bad), "{n}");
        }
        assert_eq!(statuses(&w, &a, false), [WC_OK; 3]);
        // Nothing is left that could be missed.
        w.run(20 * TIMEOUT as u64);
        assert_eq!((w.counter(0, F_TIMEOUTS), w.counter(0, F_RETRANSMITTED)), (0, 0));
    }
}

#[test]
fn qp_7_a_nak_of_a_gap_acknowledges_what_lies_before_it_and_brings_the_rest_again() {
    for selective in [true, false] {
        let (mut w, mut a, mut b) = connected(11, selective);
        let psn = six(&mut w, &mut a, &mut b);
        for (n, bad) in [(-1, 0), (6, 0), (7, 1), (100, 2)] {
            acknowledge(&mut w, &a, psn, n, NAK_SEQUENCE);
            assert_eq!((w.counter(0, F_BAD_ACK), data_frames(&w, 0).len()), (bad, 6), "{n}");
            assert!(w.completions(&a, false).is_empty(), "{n}");
        }
        acknowledge(&mut w, &a, psn, 3, NAK_SEQUENCE);
        w.run(100_000);
        assert_eq!(w.completions(&a, false).len(), 1);
        let again: Vec<u32> = data_frames(&w, 0)[6..].iter().map(|f| f.1.wrapping_sub(psn) & 0xff_ffff).collect();
        assert_eq!(again, [3, 4, 5]);
        assert_eq!((w.counter(0, F_RETRANSMITTED), w.counter(0, F_TIMEOUTS)), (3, 0));
    }
}

#[test]
fn qp_7_a_refusal_counts_only_for_what_is_on_its_way() {
    for (n, syndrome, alive) in [
        (-1, NAK_INVALID, true),
        (6, NAK_INVALID, true),
        (0, 0x20, true),
        (0, 0x40, true),
        (0, NAK_INVALID, false),
        (5, NAK_OPERATION, false),
    ] {
        let (mut w, mut a, mut b) = connected(12, true);
        let psn = six(&mut w, &mut a, &mut b);
        acknowledge(&mut w, &a, psn, n, syndrome);
        assert_eq!(state(&w, &a) == CONNECTED, alive, "{n} {syndrome:x}");
        assert_eq!(w.counter(0, F_BAD_ACK), alive as u64, "{n} {syndrome:x}");
        w.run(100_000);
        let end: &[u8] = if alive { &[] } else { &[WC_REMOTE_ERROR, WC_FLUSHED, WC_FLUSHED] };
        assert_eq!(statuses(&w, &a, false), end, "{n} {syndrome:x}");
    }
}

/// Runs while the data that A sends is lost and the control connection works.
fn without_data(w: &mut World, cycles: u64) {
    w.hold[0] = true;
    let end = w.now + cycles;
    while w.now < end {
        w.run(1000);
        w.held[0].retain(|f| f[47..50] == [0, 0, 2]);
        w.release(0, usize::MAX);
    }
}

#[test]
fn qp_7_time_outs_double_five_times_and_end_with_the_retries() {
    for selective in [true, false] {
        let (mut w, mut a, mut b) = connected(13, selective);
        six(&mut w, &mut a, &mut b);
        let mut waited = 0;
        for n in 0..=RETRIES {
            let wait = (TIMEOUT as u64) << n.min(5);
            without_data(&mut w, wait - TIMEOUT as u64 / 2);
            assert_eq!(w.counter(0, F_TIMEOUTS), n as u64, "{wait}");
            without_data(&mut w, TIMEOUT as u64 / 2 + 3000);
            assert_eq!(w.counter(0, F_TIMEOUTS), n as u64 + 1, "{wait}");
            waited += wait;
        }
        assert!(waited > 100 * TIMEOUT as u64);
        assert_ne!(state(&w, &a), CONNECTED);
        // Each but the last has brought all six again.
        assert_eq!(w.counter(0, F_RETRANSMITTED), 6 * RETRIES as u64);
        assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_PEER_LOST);
        w.run(100_000);
        assert_eq!(statuses(&w, &a, false), [WC_RETRY_EXCEEDED, WC_FLUSHED, WC_FLUSHED]);
    }
}

#[test]
fn qp_7_an_acknowledgement_begins_the_time_outs_anew() {
    let (mut w, mut a, mut b) = connected(14, true);
    let psn = six(&mut w, &mut a, &mut b);
    without_data(&mut w, 8 * TIMEOUT as u64);
    assert_eq!(w.counter(0, F_TIMEOUTS), 3);
    acknowledge(&mut w, &a, psn, 1, 0x1f);
    without_data(&mut w, TIMEOUT as u64 + 50_000);
    assert_eq!(w.counter(0, F_TIMEOUTS), 4, "the next one comes after the time of the first");
    assert_eq!((w.counter(0, F_RETRANSMITTED), w.completions(&a, false).len()), (3 * 6 + 4, 1));
    without_data(&mut w, 2 * TIMEOUT as u64);
    assert_eq!(w.counter(0, F_TIMEOUTS), 5, "and they double from there");
}

#[test]
fn qp_7_the_window_closes_after_eight_packets_and_opens_with_acknowledgements() {
    let (mut w, mut a, mut b) = connected(15, true);
    receives(&mut w, &mut b, &[64 * MTU]);
    w.hold[0] = true;
    w.post_send(&mut a, &[(SRC, 20 * MTU)], 1);
    w.ring(&a);
    w.run(200_000);
    let sent = data_frames(&w, 0);
    assert_eq!(sent.len(), WINDOW as usize);
    let asks: Vec<bool> = w.held[0].iter().filter(|f| f[42] <= 1).map(|f| f[50] & 0x80 != 0).collect();
    assert_eq!(asks, [false, false, false, true, false, false, false, true], "half a window before the sender stops");
    acknowledge(&mut w, &a, sent[0].1, 2, 0x1f);
    assert_eq!(data_frames(&w, 0).len(), WINDOW as usize + 3);
    w.hold[0] = false;
    w.release(0, usize::MAX);
    w.run_until(10_000_000, |w| w.completions(&a, false).len() == 1);
    assert_eq!((data_frames(&w, 0).len(), w.counter(0, F_RETRANSMITTED)), (20, 0));
    assert_eq!(w.counter(0, F_BYTES_SENT), 20 * MTU as u64);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 20 << 10), w.nodes[0].hw.peek(ASID, SRC, 20 << 10));
}

#[test]
fn qp_7_packets_behind_a_lost_one_tell_of_it_before_the_time_out() {
    let (mut w, mut a, mut b) = connected(16, true);
    receives(&mut w, &mut b, &[64 * MTU]);
    w.hold[0] = true;
    w.post_send(&mut a, &[(SRC, 20 * MTU)], 1);
    w.ring(&a);
    w.run(150_000);
    let psn = data_frames(&w, 0)[0].1;
    // Bit 31 of the header is the PSN behind the acknowledged one.
    let sack = |w: &mut World, seen: u32| {
        let payload = [&seen.to_be_bytes()[..], &[0; 12]].concat();
        let f = frame(w, 1, a.qpn, SELECTIVE_ACKNOWLEDGE, psn, 0x1f << 24, &payload);
        w.inject(0, f);
        w.run(100_000);
        w.counter(0, F_RETRANSMITTED)
    };
    // The first one has come, and two behind the second; and then a third, so the second is lost.
    assert_eq!(sack(&mut w, 0b0110 << 28), 0);
    assert_eq!(sack(&mut w, 0b0111 << 28), 1);
    assert_eq!(data_frames(&w, 0).last().unwrap().1, (psn + 1) & 0xff_ffff);
    // It is not lost again by what is known already, and with it all up to the fifth is acknowledged.
    assert_eq!(sack(&mut w, 0b0111 << 28), 1);
    acknowledge(&mut w, &a, psn, 1, 0x1f);
    assert_eq!(data_frames(&w, 0).len(), 8 + 5 + 1);
    w.hold[0] = false;
    w.release(0, usize::MAX);
    w.run_until(10_000_000, |w| w.completions(&a, false).len() == 1);
    assert_eq!((w.counter(0, F_RETRANSMITTED), w.counter(0, F_BAD_ACK)), (1, 0));
}
