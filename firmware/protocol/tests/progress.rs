// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must go on, or end by name, when something else does not: memory that is short, a control connection that
//! carries nothing.

mod common;
use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_protocol::model::{User, World};
use common::*;

/// Page size.
const PAGE: u64 = 4096;
/// QP state when it is connected (`CMD_QP_QUERY` subtracts that of a new one).
const CONNECTED: u32 = 2;

fn statuses(w: &World, user: &User, recv: bool) -> Vec<u8> {
    w.completions(user, recv).iter().map(|c| c[4] as u8).collect()
}

fn state(w: &mut World, user: &User) -> u32 {
    let mut cmd = [0; 16];
    (cmd[0], cmd[2]) = (CMD_QP_QUERY, user.qpn);
    w.command(user.node, cmd)[3]
}

fn finish(mut w: World, users: &[&User]) {
    for user in users {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

/// Two QPs of one card, with `budget` bytes for both, and memory for sending and receiving.
fn alone(seed: u64, budget: u64) -> (World, User, User, Vec<u8>) {
    let mut w = World::new(1, seed);
    let a = w.create_qp(0, 16, ASID, |c| c[6] = PAGE as u32);
    let b = w.create_qp(0, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    let data = pattern(5, 64 * PAGE as usize);
    w.nodes[0].hw.map(ASID, SRC, 64 * PAGE, true);
    w.nodes[0].hw.poke(ASID, SRC, &data);
    w.nodes[0].hw.map(ASID, DST, 64 * PAGE, true);
    w.nodes[0].hw.budget = budget;
    w.nodes[0].hw.reserve = PAGE;
    (w, a, b, data)
}

#[test]
fn pc_3_a_receive_that_fills_the_budget_of_a_process_that_sends_to_itself_is_over_budget() {
    let (mut w, mut a, mut b, data) = alone(70, 20 * PAGE);
    w.post_recv(&mut b, &[(DST, 20 * PAGE as u32)], 0);
    w.ring(&b);
    w.run(1_000_000);
    w.post_send(&mut a, &[(SRC, 3000)], 0);
    w.ring(&a);
    let from = w.now;
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 1);
    assert_eq!(statuses(&w, &b, true), [WC_OVER_BUDGET]);
    // Bounded: a fifth of a second of card time.
    assert!(w.now - from < 50_000_000, "{}", w.now - from);
    // One that leaves room for a block takes the data; nothing was lost by the refusal.
    w.post_recv(&mut b, &[(DST, 19 * PAGE as u32)], 1);
    w.ring(&b);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 2 && w.completions(&a, false).len() == 1);
    assert_eq!(statuses(&w, &b, true), [WC_OVER_BUDGET, WC_OK]);
    assert_eq!(statuses(&w, &a, false), [WC_OK]);
    assert_eq!(w.nodes[0].hw.peek(ASID, DST, 3000), data[..3000]);
    assert!(w.nodes[0].hw.peak <= 20 * PAGE);
    finish(w, &[&a, &b]);
}

#[test]
fn pc_3_a_receive_that_fills_the_budget_of_a_host_that_only_receives_is_filled() {
    let (mut w, mut a, mut b) = pair(71);
    let data = pattern(6, 20 * PAGE as usize);
    w.nodes[0].hw.map(ASID, SRC, 20 * PAGE, true);
    w.nodes[0].hw.poke(ASID, SRC, &data);
    w.nodes[1].hw.map(ASID, DST, 20 * PAGE, true);
    w.nodes[1].hw.budget = 20 * PAGE;
    for i in 0..4 {
        w.post_recv(&mut b, &[(DST, 20 * PAGE as u32)], i);
        w.ring(&b);
        w.post_send(&mut a, &[(SRC, 20 * PAGE as u32)], i);
        w.ring(&a);
        w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == i as usize + 1);
    }
    assert_eq!(statuses(&w, &b, true), [WC_OK; 4]);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 20 * PAGE as usize), data);
    finish(w, &[&a, &b]);
}

/// A connected pair whose receiver has announced `receives` receives of a page.
fn announced(seed: u64, receives: u64) -> (World, User, User) {
    let (mut w, a, mut b) = pair(seed);
    w.nodes[0].hw.map(ASID, SRC, 64 * PAGE, true);
    w.nodes[1].hw.map(ASID, DST, 64 * PAGE, true);
    for i in 0..receives {
        w.post_recv(&mut b, &[(DST + i * PAGE, PAGE as u32)], i);
    }
    w.ring(&b);
    w.run_until(100_000_000, |w| lists(w, 1).iter().map(|l| l.1.len() as u64).sum::<u64>() == receives);
    w.run(1_000_000);
    (w, a, b)
}

#[test]
fn decision_6_lost_control_frames_do_not_end_idle_connections_that_have_credits() {
    let (mut w, mut a, b) = announced(72, 8);
    w.deaf = [true, true];
    // Ten times as long as the control connection's own patience, with nothing to send.
    w.run(2_500_000_000);
    assert_eq!((w.counter(0, F_PEERS_LOST), w.counter(1, F_PEERS_LOST)), (0, 0));
    assert_eq!((state(&mut w, &a), state(&mut w, &b)), (CONNECTED, CONNECTED));
    // They live on their credits.
    w.post_send(&mut a, &[(SRC, 8 * PAGE as u32)], 0);
    w.ring(&a);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 8);
    assert_eq!(statuses(&w, &b, true), [WC_OK; 8]);
    // And go on when control frames come through again.
    w.deaf = [false, false];
    let mut b = b;
    w.post_recv(&mut b, &[(DST, PAGE as u32)], 8);
    w.ring(&b);
    w.post_send(&mut a, &[(SRC, PAGE as u32)], 1);
    w.ring(&a);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 9);
    finish(w, &[&a, &b]);
}

#[test]
fn decision_26_a_peer_that_is_gone_is_noticed_though_its_connections_are_asked_first() {
    let (mut w, a, b) = announced(73, 4);
    w.nodes[1].dead = true;
    let from = w.now;
    assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_PEER_LOST);
    // A quarter of a second until it is asked, and half a second until it counts as lost.
    assert!(w.now - from < 250_000_000, "{}", w.now - from);
    assert_eq!(w.counter(0, F_PEERS_LOST), 1);
    let _ = b;
    w.destroy(&a);
    assert_eq!(w.nodes[0].hw.uses(), 0);
}

/// Gives a frame other records of the control connection.
fn with_records(frame: &[u8], records: &[Vec<u32>]) -> Vec<u8> {
    let mut words: Vec<u32> =
        frame[54..].chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).take(3).collect();
    words.extend(records.iter().flatten());
    words[2] = words[2] & 0xffff | (words.len() as u32) << 16;
    let mut f = frame[..54].to_vec();
    f.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    let total = (f.len() - 14 + 4) as u16;
    f[16..18].copy_from_slice(&total.to_be_bytes());
    f[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    f[24..26].fill(0);
    let sum: u32 = (14..34).step_by(2).map(|i| u16::from_be_bytes([f[i], f[i + 1]]) as u32).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f
}

#[test]
fn decision_6_a_list_with_a_gap_before_it_is_held_until_the_gap_is_filled() {
    let (mut w, a, mut b) = announced(74, 1);
    let send = |w: &mut World, a: &mut User, i: u64| {
        w.post_send(a, &[(SRC + i * PAGE, 50)], i);
        w.ring(a);
        w.run_until(100_000_000, |w| w.completions(a, false).len() as u64 == i + 1);
    };
    let credits = |w: &mut World| {
        let mut cmd = [0; 16];
        (cmd[0], cmd[2]) = (CMD_QP_QUERY, a.qpn);
        w.command(0, cmd)[10]
    };
    let mut a = a.clone();
    send(&mut w, &mut a, 0);
    w.run(1_000_000);
    // The list of credit 1 leaves, and arrives in one message behind that of credit 2.
    w.hold[1] = true;
    w.post_recv(&mut b, &[(DST + PAGE, PAGE as u32)], 1);
    w.ring(&b);
    let is_list = |f: &Vec<u8>| f[12..14] == [8, 0] && f[47..50] == [0, 0, 2] && f[42] == 4 && f[66] == 1;
    w.run_until(100_000_000, |w| w.held[1].iter().any(is_list));
    let frame = w.held[1].iter_mut().find(|f| is_list(f)).unwrap();
    let word = |i: usize| u32::from_le_bytes(frame[66 + 4 * i..70 + 4 * i].try_into().unwrap());
    let one: Vec<u32> = (0..4).map(word).collect();
    let mut two = one.clone();
    assert_eq!(two[2], 1, "number of the credit");
    two[2] = 2;
    *frame = with_records(frame, &[two, one]);
    w.hold[1] = false;
    w.release(1, 100);
    w.run(2_000_000);
    // One of the two can be used; the other follows when it has been.
    assert_eq!((state(&mut w, &a), credits(&mut w), w.counter(0, F_LIST_REFUSED)), (CONNECTED, 1, 0));
    send(&mut w, &mut a, 1);
    w.run(2_000_000);
    assert_eq!(credits(&mut w), 1);
    // The list that really has this credit is now a repeat.
    w.post_recv(&mut b, &[(DST + 2 * PAGE, PAGE as u32)], 2);
    w.ring(&b);
    w.run(2_000_000);
    assert_eq!(credits(&mut w), 1);
    send(&mut w, &mut a, 2);
    assert_eq!(statuses(&w, &b, true), [WC_OK; 3]);
    assert_eq!((w.counter(0, F_LIST_REFUSED), w.counter(1, F_NO_CREDIT)), (0, 0));
    finish(w, &[&a, &b]);
}

#[test]
fn decision_21_a_process_whose_pages_never_come_stalls_itself_only() {
    let mut w = World::new(2, 75);
    let other = ASID + 1;
    // Thirty queue pairs with 32 receives each whose pages nobody brings: more than the card can ask for at a time.
    let mut stuck = Vec::new();
    for q in 0..30 {
        let a = w.create_qp(0, 16 + q, ASID, |_| ());
        let b = w.create_qp(1, 16 + q, ASID, |_| ());
        w.connect(&a, &b, 7);
        stuck.push((a, b));
    }
    for page in 0..30 * 32 {
        w.nodes[1].hw.map(ASID, DST + page * PAGE, PAGE, true);
        w.nodes[1].hw.stuck.push((ASID, DST / PAGE + page));
    }
    for (q, (_, b)) in stuck.iter_mut().enumerate() {
        for i in 0..32 {
            let page = q as u64 * 32 + i;
            w.post_recv(b, &[(DST + page * PAGE, PAGE as u32)], i);
        }
        w.ring(b);
    }
    w.run(20_000_000);
    // Another process connects, receives and sends.
    let mut c = w.create_qp(0, 60, other, |_| ());
    let mut d = w.create_qp(1, 60, other, |_| ());
    w.connect(&c, &d, 8);
    let data = pattern(8, 16 * PAGE as usize);
    w.nodes[0].hw.map(other, SRC, 16 * PAGE, true);
    w.nodes[0].hw.poke(other, SRC, &data);
    w.nodes[1].hw.map(other, DST, 16 * PAGE, true);
    for i in 0..16 {
        w.post_recv(&mut d, &[(DST + i * PAGE, PAGE as u32)], i);
    }
    w.ring(&d);
    w.post_send(&mut c, &[(SRC, 16 * PAGE as u32)], 0);
    w.ring(&c);
    w.run_until(1_000_000_000, |w| w.completions(&d, true).len() == 16);
    assert_eq!(w.nodes[1].hw.peek(other, DST, 16 * PAGE as usize), data);
}
