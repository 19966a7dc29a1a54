// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single behaviours of connections, memory and errors between two model cards.

mod common;
use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_protocol::headers::ACKNOWLEDGE;
use berth_protocol::model::{Action, Rng, User, World};
use berth_protocol::wire::berth::{Placement, SELECTIVE_ACKNOWLEDGE};
use common::*;

const FREE: u8 = 0;

fn cmd(kind: u32, args: &[(usize, u32)]) -> [u32; 16] {
    let mut w = [0; 16];
    w[0] = kind;
    for &(i, value) in args {
        w[i] = value;
    }
    w
}

/// Maps `len` bytes with a pattern for sending at card of `a`, and room for receiving at `b`'s.
fn memory(w: &mut World, a: &User, b: &User, len: u64) -> Vec<u8> {
    let data = pattern(5, len as usize);
    w.nodes[a.node].hw.map(ASID, SRC, len, true);
    w.nodes[a.node].hw.poke(ASID, SRC, &data);
    w.nodes[b.node].hw.map(ASID, DST, len, true);
    data
}

fn statuses(w: &World, user: &User, recv: bool) -> Vec<u8> {
    w.completions(user, recv).iter().map(|c| c[4] as u8).collect()
}

fn finish(mut w: World, users: &[&User]) {
    for user in users {
        if w.nodes[user.node].card.state_of(user.qpn) != FREE {
            w.destroy(user);
        }
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

#[test]
fn qp_17_a_request_is_rejected_with_private_data() {
    let mut w = World::new(2, 11);
    let a = w.create_qp(0, 16, ASID, |_| ());
    w.command(1, cmd(CMD_CM_LISTEN, &[(2, 5)]));
    let ip = w.nodes[1].ip;
    w.command(0, cmd(CMD_CM_CONNECT, &[(2, 16), (3, ip), (4, 5), (5, 4), (8, 0xabcd)]));
    let request = w.event(1, EV_CM_REQUEST, None);
    assert_eq!((request[2], request[3], request[5], request[EVENT_PRIVATE]), (w.nodes[0].ip, 5, 4, 0xabcd));
    w.command(1, cmd(CMD_CM_REJECT, &[(2, request[1]), (5, 3), (8, 0x1234)]));
    let closed = w.event(0, EV_CM_CLOSED, Some(16));
    assert_eq!((closed[2], closed[5], closed[EVENT_PRIVATE]), (REASON_REJECTED, 3, 0x1234));
    // The request is used up.
    assert_eq!(w.command(1, cmd(CMD_CM_REJECT, &[(2, request[1])]))[2], CMD_NOT_FOUND);
    finish(w, &[&a]);
}

#[test]
fn qp_17_nobody_listens() {
    let mut w = World::new(2, 12);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let ip = w.nodes[1].ip;
    w.command(0, cmd(CMD_CM_CONNECT, &[(2, 16), (3, ip), (4, 5)]));
    assert_eq!(w.event(0, EV_CM_CLOSED, Some(16))[2], REASON_NO_LISTENER);
    finish(w, &[&a]);
}

#[test]
fn qp_17_nobody_has_the_address() {
    let mut w = World::new(2, 13);
    let a = w.create_qp(0, 16, ASID, |_| ());
    w.command(0, cmd(CMD_CM_CONNECT, &[(2, 16), (3, 0x0a00_0063), (4, 5)]));
    assert_eq!(w.event(0, EV_CM_CLOSED, Some(16))[2], REASON_UNREACHABLE);
    finish(w, &[&a]);
}

#[test]
fn qp_17_a_request_can_be_taken_back() {
    let mut w = World::new(2, 14);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.command(1, cmd(CMD_CM_LISTEN, &[(2, 5)]));
    let ip = w.nodes[1].ip;
    w.command(0, cmd(CMD_CM_CONNECT, &[(2, 16), (3, ip), (4, 5)]));
    let request = w.event(1, EV_CM_REQUEST, None);
    w.command(0, cmd(CMD_CM_DISCONNECT, &[(2, 16)]));
    w.event(0, EV_CM_CLOSED, Some(16));
    // Accepting it now ends in a closed connection, or the request is gone already.
    if w.command(1, cmd(CMD_CM_ACCEPT, &[(2, request[1]), (3, 17)]))[2] == CMD_OK {
        assert_eq!(w.event(1, EV_CM_CLOSED, Some(17))[2], REASON_PEER_CLOSE);
    }
    finish(w, &[&a, &b]);
}

#[test]
fn qp_17_disconnect_reaches_the_peer_and_flushes_both() {
    let (mut w, mut a, mut b) = pair(15);
    memory(&mut w, &a, &b, 4096);
    w.post_send(&mut a, &[(SRC, 100)], 1);
    w.ring(&a);
    w.run(1_000_000);
    w.post_recv(&mut b, &[], 7);
    w.ring(&b);
    w.run(1_000_000);
    w.command(0, cmd(CMD_CM_DISCONNECT, &[(2, a.qpn)]));
    assert_eq!(w.event(0, EV_CM_CLOSED, Some(a.qpn))[2], REASON_LOCAL_CLOSE);
    assert_eq!(w.event(1, EV_CM_CLOSED, Some(b.qpn))[2], REASON_PEER_CLOSE);
    w.post_send(&mut b, &[(DST, 100)], 9);
    w.post_recv(&mut b, &[(DST, 100)], 8);
    w.ring(&b);
    w.run(1_000_000);
    assert_eq!(statuses(&w, &a, false), [WC_FLUSHED]);
    assert_eq!(statuses(&w, &b, false), [WC_FLUSHED]);
    assert_eq!(statuses(&w, &b, true), [WC_OK, WC_FLUSHED]);
    finish(w, &[&a, &b]);
}

#[test]
fn qp_17_a_vanished_peer_is_noticed_though_there_is_no_credit() {
    let (mut w, mut a, b) = pair(16);
    memory(&mut w, &a, &b, 4096);
    w.post_send(&mut a, &[(SRC, 100)], 1);
    w.ring(&a);
    w.run(1_000_000);
    w.nodes[1].dead = true;
    let from = w.now;
    let error = w.event(0, EV_QP_ERROR, Some(a.qpn));
    assert_eq!(error[2], REASON_PEER_LOST);
    // Bounded: a second of card time.
    assert!(w.now - from < 250_000_000, "{}", w.now - from);
    w.run(1_000_000);
    assert_eq!(statuses(&w, &a, false), [WC_RETRY_EXCEEDED]);
    assert_eq!(w.counter(0, F_PEERS_LOST), 1);
    w.destroy(&a);
    w.nodes[1].hw.evict_idle();
    assert_eq!(w.nodes[0].hw.uses(), 0);
    let _ = b;
}

#[test]
fn qp_17_a_restarted_peer_ends_its_old_connections_and_new_ones_work() {
    let (mut w, a, _) = pair(17);
    w.restart(1);
    let b = w.create_qp(1, 17, ASID, |_| ());
    let c = w.create_qp(0, 18, ASID, |_| ());
    // The restarted card connects to the one that remembers it.
    w.connect(&b, &c, 3);
    assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_PEER_LOST);
    finish(w, &[&a, &b, &c]);
}

#[test]
fn qp_17_a_restart_is_noticed_by_the_keepalive() {
    let (mut w, a, _) = pair(18);
    w.restart(1);
    assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_PEER_LOST);
    finish(w, &[&a]);
}

#[test]
fn qp_18_two_queue_pairs_of_one_card() {
    let mut w = World::new(1, 19);
    let mut a = w.create_qp(0, 16, ASID, |_| ());
    let mut b = w.create_qp(0, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    let data = memory(&mut w, &a, &b, 50_000);
    w.post_recv(&mut b, &[(DST, 20_000), (DST + 20_000, 10_000)], 1);
    w.post_recv(&mut b, &[(DST + 30_000, 20_000)], 2);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 50_000)], 3);
    w.ring(&a);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1 && w.completions(&b, true).len() == 2);
    assert_eq!(w.nodes[0].hw.peek(ASID, DST, 50_000), data);
    assert!(w.wire.is_empty(), "nothing on the wire");
    finish(w, &[&a, &b]);
}

#[test]
fn vc_3_blocks_are_released_before_the_acknowledgement() {
    let (mut w, mut a, mut b) = pair(20);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 8192)], 1);
    w.ring(&b);
    w.run(2_000_000);
    w.hold[1] = true;
    w.post_send(&mut a, &[(SRC, 8000)], 1);
    w.ring(&a);
    w.run_until(3_000_000, |w| w.counter(0, F_DATA_PACKETS) == 8);
    w.run(100_000);
    assert_eq!(w.nodes[0].hw.uses(), 0);
    assert!(w.completions(&a, false).is_empty());
    w.hold[1] = false;
    w.release(1, usize::MAX);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    finish(w, &[&a, &b]);
}

#[test]
fn vc_4_only_unacknowledged_packets_are_asked_for_again() {
    let (mut w, mut a, mut b) = pair(21);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 8192)], 1);
    w.ring(&b);
    w.run(2_000_000);
    w.hold[0] = true;
    w.post_send(&mut a, &[(SRC + 10, 6000)], 1);
    w.ring(&a);
    w.run_until(3_000_000, |w| data_frames(w, 0).len() == 6);
    // The fourth packet (offset 3072) is lost.
    let lost = data_frames(&w, 0)[3].1.to_be_bytes();
    w.held[0].retain(|f| f[42] > 1 || f[51..54] != lost[1..]);
    w.hold[0] = false;
    let mark = w.nodes[0].hw.trace.len();
    w.release(0, usize::MAX);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    let mut again: Vec<_> = w.nodes[0].hw.trace[mark..]
        .iter()
        .filter_map(|t| match t {
            Action::Acquire(va, len, false) => Some((*va, *len)),
            _ => None,
        })
        .collect();
    // After a miss the block is acquired once more.
    again.dedup();
    // The lost packet, and nothing else.
    assert_eq!(again, [(SRC + 10 + 3072, 1024)]);
    assert_eq!(w.counter(0, F_RESEND_BLOCKS), 1);
    assert_eq!(w.counter(0, F_RETRANSMITTED), 1);
    assert_eq!(w.counter(0, F_TIMEOUTS), 0);
    finish(w, &[&a, &b]);
}

#[test]
fn vc_4_going_back_asks_for_what_is_sent_again_and_no_further() {
    let mut w = World::new(2, 21);
    w.edit = Some(go_back_n);
    let mut a = w.create_qp(0, 16, ASID, |_| ());
    let mut b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 8192)], 1);
    w.ring(&b);
    w.run(2_000_000);
    w.hold[0] = true;
    w.post_send(&mut a, &[(SRC + 10, 6000)], 1);
    w.ring(&a);
    w.run_until(3_000_000, |w| data_frames(w, 0).len() == 6);
    let frames = data_frames(&w, 0);
    assert_eq!(frames.iter().map(|f| f.2).sum::<usize>(), 6000, "no placement headers");
    // The fourth packet (offset 3072) is lost.
    let lost = frames[3].1.to_be_bytes();
    w.held[0].retain(|f| f[42] > 1 || f[51..54] != lost[1..]);
    w.hold[0] = false;
    w.release(0, usize::MAX);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    assert_eq!(w.counter(0, F_RETRANSMITTED), 3);
    assert_eq!(w.counter(1, F_NAKS_SENT), 1);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 6000), w.nodes[0].hw.peek(ASID, SRC + 10, 6000));
    finish(w, &[&a, &b]);
}

#[test]
fn qp_7_packets_that_come_early_are_placed_at_once_and_pieces_land_in_order() {
    let (mut w, mut a, mut b) = pair(22);
    memory(&mut w, &a, &b, 8192);
    for i in 0..3 {
        w.post_recv(&mut b, &[(DST + i * 2000, 2000)], i);
    }
    w.ring(&b);
    w.run(2_000_000);
    w.hold[0] = true;
    w.post_send(&mut a, &[(SRC, 5500)], 1);
    w.ring(&a);
    w.run_until(3_000_000, |w| data_frames(w, 0).len() == 6);
    let first = w.held[0].pop_front().unwrap();
    w.release(0, usize::MAX);
    w.run(100_000);
    assert!(w.completions(&b, true).is_empty());
    assert_eq!(w.nodes[1].hw.peek(ASID, DST + 4000, 1500), w.nodes[0].hw.peek(ASID, SRC + 4000, 1500));
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 1024), [0; 1024]);
    // The first one arrives after all, before it is sent again.
    w.held[0].clear();
    w.hold[0] = false;
    w.inject(1, first);
    w.run_until(100_000_000, |w| w.completions(&b, true).len() == 3);
    let lens: Vec<u32> = w.completions(&b, true).iter().map(|c| c[2]).collect();
    assert_eq!(lens, [2000, 2000, 1500]);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    finish(w, &[&a, &b]);
}

#[test]
fn decision_23_only_what_arrives_behind_a_gap_needs_an_acknowledgement_of_our_own() {
    let (mut w, mut a, mut b) = pair(24);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 4096)], 1);
    w.post_recv(&mut b, &[(DST + 4096, 4096)], 2);
    w.ring(&b);
    w.run(2_000_000);
    w.post_send(&mut a, &[(SRC, 4096)], 1);
    w.ring(&a);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    let qpn = a.qpn.to_be_bytes();
    let answers = |w: &World| -> Vec<u8> {
        let to_a = |f: &[u8]| f[12..14] == [8, 0] && f[47..50] == qpn[1..];
        w.wire.iter().filter(|(from, f)| *from == 1 && to_a(f)).map(|(_, f)| f[42]).collect()
    };
    assert!(!answers(&w).is_empty() && answers(&w).iter().all(|&o| o == ACKNOWLEDGE), "{:?}", answers(&w));
    // Now the first of four packets is lost.
    w.hold[0] = true;
    w.post_send(&mut a, &[(SRC + 4096, 4096)], 2);
    w.ring(&a);
    w.run_until(3_000_000, |w| data_frames(w, 0).len() == 8);
    w.held[0].pop_front();
    w.hold[0] = false;
    w.release(0, usize::MAX);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 2);
    assert!(answers(&w).contains(&SELECTIVE_ACKNOWLEDGE));
    assert_eq!(answers(&w).last(), Some(&ACKNOWLEDGE));
    assert_eq!((w.counter(0, F_RETRANSMITTED), w.counter(0, F_TIMEOUTS)), (1, 0));
    // Each frame is one that RoCEv2's rules know.
    for (_, f) in w.wire.iter().filter(|(_, f)| f[12..14] == [8, 0]) {
        let frame = [f, &[0; 4][..]].concat();
        assert!(berth_protocol::wire::parse_trusted(&frame).is_ok(), "{f:02x?}");
    }
    finish(w, &[&a, &b]);
}

#[test]
fn vc_8_blocks_of_several_contexts_are_asked_for_at_once() {
    let mut w = World::new(2, 22);
    let mut a = w.create_qp(0, 16, ASID, |c| c[6] = 4096);
    let mut b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    memory(&mut w, &a, &b, 65536);
    w.nodes[0].hw.page_delay = 1;
    w.post_recv(&mut b, &[(DST, 65536)], 1);
    w.ring(&b);
    w.run(2_000_000);
    w.nodes[0].hw.stuck.push((ASID, SRC / 4096));
    w.post_send(&mut a, &[(SRC, 4096), (SRC + 8192, 8192), (SRC + 20_000, 100)], 1);
    w.ring(&a);
    w.run(1_000_000);
    // The first page never comes; the others were asked for all the same, and nothing has left.
    let asked = w.nodes[0].hw.trace.iter().filter(|t| matches!(t, Action::Acquire(_, _, false))).count();
    assert!(asked >= 4, "{asked}");
    assert_eq!(w.counter(0, F_DATA_PACKETS), 0);
    finish(w, &[&a, &b]);
}

#[test]
fn pc_2_nothing_is_asked_for_without_a_credit() {
    let (mut w, mut a, b) = pair(23);
    memory(&mut w, &a, &b, 65536);
    w.post_send(&mut a, &[(SRC, 65536)], 1);
    w.ring(&a);
    w.run(2_000_000);
    assert!(!w.nodes[0].hw.trace.iter().any(|t| matches!(t, Action::Acquire(..))));
    finish(w, &[&a, &b]);
}

#[test]
fn pc_1_a_receive_without_memory_fails_and_later_ones_go_on_in_order() {
    let (mut w, mut a, mut b) = pair(24);
    let data = memory(&mut w, &a, &b, 8192);
    w.nodes[1].hw.budget = 16 * 4096;
    w.nodes[1].hw.map(ASID, DST + 0x10_0000, 100 * 4096, true);
    w.post_recv(&mut b, &[(DST, 50)], 0);
    w.post_recv(&mut b, &[(0, 60)], 1);
    w.post_recv(&mut b, &[(DST + 0x10_0000, 100 * 4096)], 2);
    w.post_recv(&mut b, &[], 3);
    w.post_recv(&mut b, &[(DST + 50, 70)], 4);
    w.post_raw_recv(&mut b, &[0xff; 128]);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 120)], 0);
    w.ring(&a);
    w.run_until(100_000_000, |w| w.completions(&b, true).len() == 6 && w.completions(&a, false).len() == 1);
    assert_eq!(statuses(&w, &b, true), [WC_OK, WC_LOCAL_PROTECTION, WC_OVER_BUDGET, WC_OK, WC_OK, WC_BAD_WQE]);
    assert_eq!(lists(&w, 1), [(0, vec![50, 70])]);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 120), &data[..120]);
    finish(w, &[&a, &b]);
}

#[test]
fn pc_3_a_receive_whose_parts_fit_but_not_together_is_over_budget() {
    let (mut w, mut a, mut b) = pair(25);
    memory(&mut w, &a, &b, 64 * 4096);
    w.nodes[1].hw.budget = 10 * 4096;
    w.post_recv(&mut b, &[(DST, 8 * 4096), (DST + 16 * 4096, 8 * 4096)], 0);
    w.post_recv(&mut b, &[(DST, 100)], 1);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 100)], 0);
    w.ring(&a);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 2);
    assert_eq!(statuses(&w, &b, true), [WC_OVER_BUDGET, WC_OK]);
    finish(w, &[&a, &b]);
}

#[test]
fn pc_3_a_batch_larger_than_the_budget_still_flows() {
    let mut w = World::new(2, 26);
    // Blocks larger than the sender's budget would be refused: one page each.
    let mut a = w.create_qp(0, 16, ASID, |c| c[6] = 4096);
    let mut b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 8);
    let data = memory(&mut w, &a, &b, 40 * 4096);
    w.nodes[1].hw.budget = 4 * 4096;
    w.nodes[0].hw.budget = 2 * 4096;
    for i in 0..40 {
        w.post_recv(&mut b, &[(DST + i * 4096, 4096)], i);
    }
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 40 * 4096)], 0);
    w.ring(&a);
    w.run_until(2_000_000_000, |w| w.completions(&b, true).len() == 40 && w.completions(&a, false).len() == 1);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 40 * 4096), data);
    assert!(w.nodes[1].hw.peak <= 4 * 4096);
    finish(w, &[&a, &b]);
}

#[test]
fn pc_3_unused_grants_are_recalled_when_others_get_nothing() {
    let mut w = World::new(2, 27);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let mut b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    let mut c = w.create_qp(0, 18, ASID, |_| ());
    let mut d = w.create_qp(1, 19, ASID, |_| ());
    w.connect(&c, &d, 8);
    let data = memory(&mut w, &c, &d, 40 * 4096);
    w.nodes[1].hw.budget = 8 * 4096;
    // All of the budget but the sends' share is granted to a peer that does not send.
    for i in 0..8 {
        w.post_recv(&mut b, &[(DST + i * 4096, 4096)], i);
    }
    w.ring(&b);
    w.run_until(100_000_000, |w| lists(w, 1).len() == 1);
    w.run(1_000_000);
    // Another one wants to receive.
    w.post_recv(&mut d, &[(DST + 20 * 4096, 4096)], 0);
    w.ring(&d);
    w.post_send(&mut c, &[(SRC, 4096)], 0);
    w.ring(&c);
    w.run_until(1_000_000_000, |w| w.completions(&d, true).len() == 1);
    assert!(w.counter(1, F_RECALLED) > 0);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST + 20 * 4096, 4096), &data[..4096]);
    // What was recalled is announced again, and its data arrives.
    let mut a = a;
    w.post_send(&mut a, &[(SRC, 8 * 4096)], 0);
    w.ring(&a);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 8);
    assert_eq!(statuses(&w, &b, true), [WC_OK; 8]);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 8 * 4096), &data[..8 * 4096]);
    finish(w, &[&a, &b, &c, &d]);
}

#[test]
fn vc_9_memory_of_a_credit_is_withdrawn_and_both_sides_know() {
    let (mut w, mut a, mut b) = pair(28);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 4096)], 1);
    w.post_recv(&mut b, &[(DST + 4096, 4096)], 2);
    w.ring(&b);
    w.run_until(100_000_000, |w| lists(w, 1).len() == 1);
    w.run(100_000);
    w.unmap(1, ASID, DST, 4096);
    w.run(1_000_000);
    assert_eq!(w.counter(1, F_WITHDRAWN), 1);
    w.post_send(&mut a, &[(SRC, 100)], 5);
    w.ring(&a);
    assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_WITHDRAWN);
    let peer = w.event(0, EV_QP_ERROR, Some(a.qpn));
    assert_eq!(peer[2], REASON_SEND_FAILED);
    w.run(1_000_000);
    assert_eq!(statuses(&w, &b, true), [WC_WITHDRAWN, WC_FLUSHED]);
    assert_eq!(statuses(&w, &a, false), [WC_REMOTE_ERROR]);
    finish(w, &[&a, &b]);
}

/// A packet is taken for lost and its memory asked for again. It was only late: its send completes, and the memory goes,
/// before the host has answered.
#[test]
fn vc_4_memory_that_goes_with_its_complete_send_is_not_missed() {
    for seed in 0..8 {
        let (mut w, mut a, mut b) = pair(300 + seed);
        memory(&mut w, &a, &b, 8192);
        w.post_recv(&mut b, &[(DST, 8192)], 1);
        w.ring(&b);
        w.run(2_000_000);
        w.hold[0] = true;
        w.post_send(&mut a, &[(SRC, 6000)], 1);
        w.ring(&a);
        w.run_until(3_000_000, |w| data_frames(w, 0).len() == 6);
        w.run(10_000);
        let psn = data_frames(&w, 0)[seed as usize % 5].1.to_be_bytes();
        w.hold[0] = false;
        let late = w.held[0].iter().position(|f| f[42] <= 1 && f[51..54] == psn[1..]).expect("it is held");
        let late = w.held[0].remove(late).expect("it is there");
        w.nodes[0].hw.evict_idle();
        w.nodes[0].hw.page_delay = 100_000_000;
        w.release(0, usize::MAX);
        w.run_until(3_000_000, |w| w.counter(0, F_RESEND_BLOCKS) == 1);
        w.inject(1, late);
        w.run_until(3_000_000, |w| w.completions(&a, false).len() == 1);
        w.unmap(0, ASID, SRC, 8192);
        w.run(200_000_000);
        assert_eq!((w.counter(0, F_RETRANSMITTED), statuses(&w, &a, false)), (0, vec![WC_OK]), "seed {seed}");
        // The connection lives.
        w.nodes[0].hw.page_delay = 1_000;
        w.nodes[0].hw.map(ASID, SRC, 4096, true);
        w.post_recv(&mut b, &[(DST, 1000)], 2);
        w.ring(&b);
        w.post_send(&mut a, &[(SRC, 1000)], 2);
        w.ring(&a);
        w.run_until(3_000_000, |w| w.completions(&a, false).len() == 2);
        assert_eq!(statuses(&w, &a, false), [WC_OK; 2], "seed {seed}");
        finish(w, &[&a, &b]);
    }
}

#[test]
fn vc_9_source_unmapped_in_mid_transfer_fails_that_send_only_locally_known() {
    for seed in 0..8 {
        let (mut w, mut a, mut b) = pair(100 + seed);
        memory(&mut w, &a, &b, 64 * 4096);
        w.post_recv(&mut b, &[(DST, 64 * 4096)], 1);
        w.ring(&b);
        w.post_send(&mut a, &[(SRC, 64 * 4096)], 5);
        w.ring(&a);
        let packets = 1 + seed * 5;
        w.run_until(100_000_000, |w| w.counter(0, F_DATA_PACKETS) >= packets);
        w.unmap(0, ASID, SRC + 8 * 4096, 56 * 4096);
        w.run_until(1_000_000_000, |w| w.completions(&a, false).len() == 1);
        let done = statuses(&w, &a, false);
        assert!(done == [WC_LOCAL_PROTECTION], "{done:?}");
        assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_SEND_FAILED);
        assert_eq!(w.event(1, EV_CM_CLOSED, Some(b.qpn))[2], REASON_PEER_CLOSE);
        finish(w, &[&a, &b]);
    }
}

#[test]
fn vc_9_revocations_of_memory_that_comes_back_are_not_noticed() {
    for seed in 0..8 {
        let (mut w, mut a, mut b) = pair(200 + seed);
        let data = memory(&mut w, &a, &b, 32 * 4096);
        w.post_recv(&mut b, &[(DST, 32 * 4096)], 1);
        w.ring(&b);
        w.post_send(&mut a, &[(SRC, 32 * 4096)], 5);
        w.ring(&a);
        let mut rng = Rng(seed);
        for i in 0..6 {
            w.run_until(100_000_000, |w| w.counter(0, F_DATA_PACKETS) >= 3 * i || !w.completions(&a, false).is_empty());
            let page = rng.below(32);
            let va = SRC + page * 4096;
            let old = w.nodes[0].hw.peek(ASID, va, 4096);
            // As when the kernel moves a page elsewhere.
            w.unmap(0, ASID, va, 4096);
            w.nodes[0].hw.map(ASID, va, 4096, true);
            w.nodes[0].hw.poke(ASID, va, &old);
        }
        w.run_until(1_000_000_000, |w| !w.completions(&a, false).is_empty() && !w.completions(&b, true).is_empty());
        assert_eq!(statuses(&w, &a, false), [WC_OK], "seed {seed}");
        assert_eq!(w.nodes[1].hw.peek(ASID, DST, 32 * 4096), data);
        finish(w, &[&a, &b]);
    }
}

#[test]
fn a_page_that_never_comes_stalls_one_qp_and_does_not_keep_it() {
    let (mut w, mut a, mut b) = pair(29);
    memory(&mut w, &a, &b, 8192);
    w.nodes[0].hw.stuck.push((ASID, SRC / 4096));
    w.post_recv(&mut b, &[(DST, 4096)], 1);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 100)], 5);
    w.ring(&a);
    let mut c = w.create_qp(0, 20, ASID, |_| ());
    let mut d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    w.post_recv(&mut d, &[(DST + 4096, 4096)], 1);
    w.ring(&d);
    w.post_send(&mut c, &[(SRC + 4096, 4096)], 5);
    w.ring(&c);
    w.run_until(100_000_000, |w| w.completions(&d, true).len() == 1);
    assert!(w.completions(&a, false).is_empty());
    finish(w, &[&a, &b, &c, &d]);
}

#[test]
fn a_malformed_send_completes_with_an_error_after_those_before_it() {
    let (mut w, mut a, mut b) = pair(30);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 4096)], 1);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 100)], 5);
    let mut bad = [0u8; 128];
    bad[0] = 1;
    bad[4..8].copy_from_slice(&99u32.to_le_bytes());
    w.post_raw_send(&mut a, &bad);
    w.post_send(&mut a, &[(SRC, 100)], 6);
    w.ring(&a);
    assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_SEND_FAILED);
    w.run(1_000_000);
    assert_eq!(statuses(&w, &a, false), [WC_OK, WC_BAD_WQE, WC_FLUSHED]);
    assert_eq!(w.counter(0, F_BAD_WQE), 1);
    finish(w, &[&a, &b]);
}

#[test]
fn a_wild_producer_index_is_an_error_of_that_qp() {
    let (mut w, a, b) = pair(31);
    w.ring_raw(&a, 65, 0, 0);
    assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_BAD_INDEX);
    w.ring_raw(&b, 0, 0x8000, 0);
    w.run(10_000_000);
    assert_eq!(w.counter(0, F_BAD_INDEX), 1);
    finish(w, &[&a, &b]);
}

#[test]
fn random_queue_elements_have_a_defined_end_each() {
    for seed in 0..40u64 {
        println!("seed {seed}");
        let (mut w, mut a, mut b) = pair(seed);
        memory(&mut w, &a, &b, 65536);
        let mut rng = Rng(seed);
        let element = |rng: &mut Rng, opcode: u8, base: u64| {
            let mut e: Vec<u8> = (0..128).map(|_| rng.draw() as u8).collect();
            if rng.chance(0.9) {
                e[0] = opcode;
                e[1] = 0;
                e[2] = rng.below(9) as u8;
                e[3] = 0;
                let mut sum = 0u32;
                for i in 0..7 {
                    let va = if rng.chance(0.8) { base + rng.below(60_000) } else { rng.draw() };
                    let len = if rng.chance(0.8) { rng.below(4000) as u32 } else { rng.draw() as u32 };
                    let at = 16 + 16 * i;
                    e[at..at + 8].copy_from_slice(&va.to_le_bytes());
                    e[at + 8..at + 12].copy_from_slice(&len.to_le_bytes());
                    e[at + 12..at + 16].fill(0);
                    if i < e[2] as usize {
                        sum = sum.wrapping_add(len);
                    }
                }
                e[4..8].copy_from_slice(&sum.to_le_bytes());
            }
            e
        };
        for _ in 0..20 {
            let e = element(&mut rng, 1, SRC);
            w.post_raw_send(&mut a, &e);
            let e = element(&mut rng, 2, DST);
            w.post_raw_recv(&mut b, &e);
        }
        w.ring(&a);
        w.ring(&b);
        w.run(100_000_000);
        w.destroy(&a);
        w.destroy(&b);
        w.run(100_000_000);
        assert_clean(&mut w);
    }
}

/// A payload behind the placement header of a piece's first packet.
fn placed(credit: u8, payload: &[u8]) -> Vec<u8> {
    [&Placement { credit, index: 0 }.to_bytes(), payload].concat()
}

/// A frame from card 0 to QP `qpn` of card 1 that no firmware has sent.
fn forge(w: &World, qpn: u32, opcode: u8, psn: u32, payload: &[u8]) -> Vec<u8> {
    let mut f = w.wire.iter().find(|(i, f)| *i == 0 && f[12..14] == [8, 0]).unwrap().1.clone();
    f.truncate(54);
    f[42] = opcode;
    f[43] = ((payload.len().wrapping_neg() & 3) as u8) << 4;
    f[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
    f[50] = 0x80;
    f[51..54].copy_from_slice(&psn.to_be_bytes()[1..]);
    if matches!(opcode, 3 | 5 | 0x11 | SELECTIVE_ACKNOWLEDGE) {
        f.extend([0; 4]);
    }
    f.extend(payload);
    f.resize(f.len().next_multiple_of(2), 0);
    while (f.len() - 54) % 4 != 0 {
        f.push(0);
    }
    fix(&mut f);
    f
}

/// Sets lengths and checksum of a frame.
fn fix(f: &mut [u8]) {
    let total = (f.len() - 14 + 4) as u16;
    f[16..18].copy_from_slice(&total.to_be_bytes());
    f[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    f[24..26].fill(0);
    let mut sum = 0u32;
    for i in (14..34).step_by(2) {
        sum += u16::from_be_bytes([f[i], f[i + 1]]) as u32;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    f[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn cr_3_a_packet_without_a_credit_is_refused_and_counted() {
    let (mut w, mut a, mut b) = pair(32);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 100)], 1);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 100)], 5);
    w.ring(&a);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    let psn = data_frames(&w, 0)[0].1;
    let frame = forge(&w, b.qpn, 5, psn + 1, &placed(1, &[1; 64]));
    w.inject(1, frame);
    assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_PROTOCOL);
    assert_eq!(w.counter(1, F_NO_CREDIT), 1);
    assert_eq!(w.counter(1, F_NO_BUFFER), 0);
    assert_eq!(w.event(0, EV_CM_CLOSED, Some(a.qpn))[2], REASON_PEER_CLOSE);
    finish(w, &[&a, &b]);
}

#[test]
fn cr_2_more_bytes_than_the_credit_are_refused() {
    let (mut w, mut a, mut b) = pair(33);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 100)], 1);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, 50)], 5);
    w.ring(&a);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    w.post_recv(&mut b, &[(DST, 100)], 2);
    w.ring(&b);
    w.run_until(100_000_000, |w| lists(w, 1).len() == 2);
    let psn = data_frames(&w, 0)[0].1;
    let frame = forge(&w, b.qpn, 5, psn + 1, &placed(1, &[1; 104]));
    w.inject(1, frame);
    assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_PROTOCOL);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST + 100, 4), [0; 4]);
    finish(w, &[&a, &b]);
}

#[test]
fn cr_11_a_list_before_the_proof_is_refused() {
    let (mut w, a, mut b) = pair(34);
    memory(&mut w, &a, &b, 8192);
    w.post_recv(&mut b, &[(DST, 100)], 1);
    w.ring(&b);
    w.run_until(100_000_000, |w| lists(w, 1).len() == 1);
    w.run(1_000_000);
    // The same list again, as the next message, with the next credit's number.
    let mut f = w.wire.iter().rev().find(|(i, f)| *i == 1 && f[42] == 4).unwrap().1.clone();
    f[53] = f[53].wrapping_add(1);
    f[74] += 1;
    assert_eq!(f[66], 1, "record type");
    w.inject(0, f);
    assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_PROTOCOL);
    assert_eq!(w.counter(0, F_LIST_REFUSED), 1);
    finish(w, &[&a, &b]);
}

#[test]
fn invariant_6_garbage_frames_change_nothing_else() {
    for seed in 0..6u64 {
        println!("seed {seed}");
        let (mut w, mut a, mut b) = pair(300 + seed);
        // The victim of the garbage, and a connection that must not notice.
        let c = w.create_qp(0, 30, ASID, |_| ());
        let d = w.create_qp(1, 31, ASID, |_| ());
        w.connect(&c, &d, 8);
        let data = memory(&mut w, &a, &b, 60_000);
        w.post_recv(&mut b, &[(DST, 60_000)], 1);
        w.ring(&b);
        w.post_send(&mut a, &[(SRC, 60_000)], 5);
        w.ring(&a);
        let mut rng = Rng(seed);
        for _ in 0..400 {
            w.run(5_000);
            let len = rng.below(1100) as usize;
            let payload: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
            let mut f = forge(&w, d.qpn, rng.draw() as u8, rng.draw() as u32 & 0xff_ffff, &payload);
            match rng.below(6) {
                0 => f[42] = [0, 1, 3, 5, 0x11, 4, SELECTIVE_ACKNOWLEDGE][rng.below(7) as usize],
                1 => f[47..50].copy_from_slice(&[0, 0, rng.draw() as u8 | 64]),
                2 => f[47..50].copy_from_slice(&[0, 0, 2]),
                3 => {
                    let at = 14 + rng.below(40) as usize;
                    f[at] = rng.draw() as u8;
                }
                4 => {
                    // Control message with random records, well framed.
                    f[47..50].copy_from_slice(&[0, 0, 2]);
                    f[42] = 4;
                    f[29] = 77;
                    let words = ((f.len() - 54) / 4) as u16;
                    if words >= 3 {
                        f[62..66].copy_from_slice(&(1 | 1 << 8 | (words as u32) << 16).to_le_bytes());
                    }
                }
                _ => f.truncate(58 + rng.below(len as u64 + 1) as usize),
            }
            if rng.chance(0.5) && f.len() >= 58 {
                fix(&mut f);
            }
            w.inject(1, f);
        }
        w.run_until(1_000_000_000, |w| w.completions(&a, false).len() == 1);
        assert_eq!(w.nodes[1].hw.peek(ASID, DST, 60_000), data);
        assert_eq!(statuses(&w, &a, false), [WC_OK]);
        finish(w, &[&a, &b, &c, &d]);
    }
}

#[test]
fn a_full_event_ring_delays_answers_and_loses_none() {
    let (mut w, a, b) = pair(35);
    w.nodes[1].hw.event_room = w.nodes[1].hw.events.len() as u32;
    w.command(0, cmd(CMD_CM_DISCONNECT, &[(2, a.qpn)]));
    let cookies: Vec<u32> = (0..30).map(|_| w.post_command(1, cmd(CMD_QP_QUERY, &[(2, b.qpn)]))).collect();
    w.run(10_000_000);
    w.nodes[1].hw.event_room = u32::MAX;
    w.run(10_000_000);
    let events = &w.nodes[1].hw.events;
    for cookie in cookies {
        assert!(events.iter().any(|e| e[0] == EV_CMD_DONE && e[1] == cookie));
    }
    assert!(events.iter().any(|e| e[0] == EV_CM_CLOSED && e[1] == b.qpn));
    finish(w, &[&a, &b]);
}

#[test]
fn commands_with_bad_fields_are_refused_by_name() {
    let (mut w, a, b) = pair(36);
    let mut check = |words: [u32; 16], status: u32| assert_eq!(w.command(0, words)[2], status, "{words:x?}");
    check(cmd(99, &[]), CMD_UNKNOWN);
    check(cmd(CMD_NET_CONFIG, &[(2, 0x0a00_0009), (3, 0x0200_0000), (4, 9), (5, 1024)]), CMD_BUSY);
    check(cmd(CMD_NET_CONFIG, &[(2, 0x0a00_0001), (3, 0x0100_0000), (5, 1024)]), CMD_INVALID);
    check(cmd(CMD_CQ_CREATE, &[(2, 0), (4, 4)]), CMD_BUSY);
    check(cmd(CMD_CQ_CREATE, &[(2, 64), (4, 4)]), CMD_INVALID);
    check(cmd(CMD_CQ_DESTROY, &[(2, 9)]), CMD_NOT_FOUND);
    check(cmd(CMD_CQ_DESTROY, &[(2, 0)]), CMD_BUSY);
    check(cmd(CMD_QP_CREATE, &[(2, 16)]), CMD_INVALID);
    check(cmd(CMD_QP_CREATE, &[(2, 5), (3, 3)]), CMD_INVALID);
    check(cmd(CMD_QP_CREATE, &[(2, 16), (3, 3), (4, 1 << 16)]), CMD_BUSY);
    check(cmd(CMD_QP_CREATE, &[(2, 18), (3, 3), (4, 1 << 16), (6, 100)]), CMD_INVALID);
    check(cmd(CMD_QP_DESTROY, &[(2, 40)]), CMD_NOT_FOUND);
    check(cmd(CMD_CM_LISTEN, &[(2, 0x1_0000)]), CMD_INVALID);
    check(cmd(CMD_CM_UNLISTEN, &[(2, 77)]), CMD_NOT_FOUND);
    check(cmd(CMD_CM_CONNECT, &[(2, 16), (3, 0x0a00_0002), (4, 1)]), CMD_BUSY);
    check(cmd(CMD_CM_CONNECT, &[(2, 20), (3, 0x0a00_0002), (4, 1)]), CMD_NOT_FOUND);
    check(cmd(CMD_CM_ACCEPT, &[(2, 12345), (3, 16)]), CMD_NOT_FOUND);
    check(cmd(CMD_QP_QUERY, &[(2, 12345)]), CMD_NOT_FOUND);
    assert!(w.counter(0, F_BAD_COMMAND) >= 17);
    finish(w, &[&a, &b]);
}

#[test]
fn random_commands_never_panic() {
    for seed in 0..20u64 {
        println!("seed {seed}");
        let (mut w, a, b) = pair(400 + seed);
        let mut rng = Rng(seed);
        for _ in 0..200 {
            let mut words: [u32; 16] = core::array::from_fn(|_| match rng.below(4) {
                0 => 0,
                1 => rng.below(80) as u32,
                2 => rng.draw() as u32,
                _ => rng.below(4) as u32,
            });
            // Revocations would make the model's page service wait for their answers.
            words[0] = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 29][rng.below(13) as usize];
            let hw_qp = words[2] == a.qpn && words[0] == CMD_QP_CREATE;
            if !hw_qp {
                w.post_command(0, words);
            }
            w.run(3_000);
        }
        w.run(1_000_000_000);
        let _ = &b;
    }
}

#[test]
fn qp_17_destroying_does_not_wait_for_a_dead_peer() {
    let mut w = World::new(2, 37);
    let mut users = Vec::new();
    for i in 0..60 {
        let a = w.create_qp(0, 16 + i, ASID, |_| ());
        let b = w.create_qp(1, 16 + i, ASID, |_| ());
        w.connect(&a, &b, 100 + i);
        users.push(a);
    }
    w.nodes[1].dead = true;
    let from = w.now;
    for a in &users {
        w.destroy(a);
    }
    assert!(w.now - from < 25_000_000, "{}", w.now - from);
    w.run(400_000_000);
    assert_eq!(w.counter(0, F_PEERS_LOST), 1);
}

#[test]
fn decision_13_what_is_written_to_an_element_after_its_snapshot_has_no_effect() {
    let (mut w, mut a, mut b) = pair(38);
    let data = memory(&mut w, &a, &b, 8192);
    w.post_send(&mut a, &[(SRC, 100)], 1);
    w.ring(&a);
    // Without a credit nothing leaves, but the card has read the element.
    w.run(1_000_000);
    w.overwrite_send(&a, 0, &[0xff; 128]);
    w.post_recv(&mut b, &[(DST, 4096)], 1);
    w.ring(&b);
    w.run_until(100_000_000, |w| w.completions(&a, false).len() == 1);
    assert_eq!(statuses(&w, &a, false), [WC_OK]);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 100), &data[..100]);
    assert_eq!(w.counter(0, F_BAD_WQE), 0);
    finish(w, &[&a, &b]);
}

#[test]
fn decision_6_losing_the_control_connection_does_not_break_data_that_flows() {
    let (mut w, mut a, mut b) = pair(39);
    let data = memory(&mut w, &a, &b, 60 * 4096);
    // A list for all of it, then no control frame arrives any more in either direction.
    for i in 0..30 {
        w.post_recv(&mut b, &[(DST + i * 8192, 8192)], i);
    }
    w.ring(&b);
    w.run_until(100_000_000, |w| lists(w, 1).iter().map(|l| l.1.len()).sum::<usize>() == 30);
    w.run(1_000_000);
    w.deaf = [true, true];
    // Both have something to say to each other: a connection that cannot come about.
    let c = w.create_qp(1, 50, ASID, |_| ());
    let ip = w.nodes[0].ip;
    w.command(1, cmd(CMD_CM_CONNECT, &[(2, 50), (3, ip), (4, 5)]));
    for i in 0..30 {
        w.post_send(&mut a, &[(SRC + i * 8192, 8192)], i);
        w.ring(&a);
        w.run(20_000_000);
        assert_eq!(w.completions(&b, true).len() as u64, i + 1);
    }
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 60 * 4096), data);
    assert!(w.counter(1, F_CONTROL_RETRANSMITTED) > 8);
    assert_eq!(w.counter(1, F_PEERS_LOST), 0);
    w.deaf = [false, false];
    assert_eq!(w.event(1, EV_CM_CLOSED, Some(50))[2], REASON_NO_LISTENER);
    finish(w, &[&a, &b, &c]);
}
