// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that RTL handles: what firmware writes into their rows, and what it decides when RTL reports. RTL itself
//! is not here: each test says what it reports.

mod common;
use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_protocol::fast::LAYOUT;
use berth_protocol::headers::{Mac, Template};
use berth_protocol::limits::{FAST_POLL, FAST_POLL_DOUBLED, FAST_REST, FAST_SQUEEZE_TIME, RETRIES, SQUEEZES, TIMEOUT};
use berth_protocol::model::{MTU, User, World};
use berth_protocol::wire::berth::list_qkey;
use common::*;

/// Half that sends.
const TX: u32 = 0;
/// Half that receives.
const RX: u32 = 1;
/// `HELD`: bytes under way; a revocation; starved.
const BUSY: u32 = 1 << 31;
const REVOKING: u32 = 1 << 29;
const STARVED: u32 = 1 << 28;
/// Time in which firmware looks at a row that is to come to rest, however long that takes already.
const LOOK: u64 = 2 * (FAST_POLL << FAST_POLL_DOUBLED);
/// States of a QP (`Card::state_of`).
const CONNECTED: u8 = 3;
const ERROR: u8 = 4;

/// Two connected cards, of which `fast` have the fast path.
fn connected(seed: u64, fast: [bool; 2]) -> (World, User, User) {
    let mut w = World::new(2, seed);
    for (node, fast) in w.nodes.iter_mut().zip(fast) {
        node.hw.fast.layout = if fast { LAYOUT } else { 0 };
        node.card.offer_list_datagrams();
    }
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    (w, a, b)
}

fn word(w: &World, user: &User, half: u32, word: u32) -> u32 {
    w.nodes[user.node].hw.fast.words[&(half, user.qpn, word)]
}

/// From now on the word reads so.
fn reads(w: &mut World, user: &User, half: u32, word: u32, value: u32) {
    w.nodes[user.node].hw.fast.reads.insert((half, user.qpn, word), value);
}

/// Commands to a half (words 32, 63) of `user`'s row, in order.
fn commands(w: &World, user: &User, half: u32) -> Vec<u32> {
    let command = if half == TX { 32 } else { 63 };
    let is = |x: &&(u32, u32, u32, u32)| (x.0, x.1, x.2) == (half, user.qpn, command);
    w.nodes[user.node].hw.fast.written.iter().filter(is).map(|x| x.3).collect()
}

fn state(w: &World, user: &User) -> u8 {
    w.nodes[user.node].card.state_of(user.qpn)
}

fn event(w: &mut World, user: &User, code: u32, arg: u32) {
    w.fast_event(user.node, code, user.qpn, arg);
    w.run(3000);
}

#[test]
fn both_rows_say_what_was_agreed_and_doorbells_go_to_rtl() {
    let (w, a, b) = connected(1, [true, true]);
    for (own, peer, n) in [(&a, &b, 0), (&b, &a, 1)] {
        let mac = |n: u8| Mac::new([2, 0, 0, 0, 0, n + 1]);
        let ip = |n: u8| 0x0a00_0001 + n as u32;
        let port = 0xc000 | (own.qpn << 7 ^ peer.qpn) as u16 & 0x3fff;
        let template = Template::new(mac(n), ip(n), mac(1 - n), ip(1 - n), port, peer.qpn);
        let row: Vec<u32> = (0..14u32).map(|i| word(&w, own, TX, i)).collect();
        assert_eq!(row, template.row());
        let tx = |i| word(&w, own, TX, i);
        let rx = |i| word(&w, own, RX, i);
        let log2_mtu = MTU.trailing_zeros();
        assert_eq!(tx(18), (ASID as u32) << 8 | 6, "CQ 0, 64 elements");
        assert_eq!(tx(19), 3 << 16 | 255 << 8 | 1 << 5 | log2_mtu);
        assert_eq!(tx(20), TIMEOUT / 64);
        assert_eq!(tx(21), 16 << 8 | 16, "blocks ahead, of 64 KiB");
        assert_eq!((tx(23), rx(7)), (list_qkey(rx(5)), list_qkey(rx(6))), "each end's epoch is in its lists");
        assert_eq!(rx(0), log2_mtu | 1 << 4 | 8 << 16);
        assert_eq!((rx(1), rx(2), rx(3)), (ip(1 - n), 2 - n as u32, 0x200), "the peer's addresses");
        assert_eq!((rx(16), rx(17), rx(18)), (ip(n), 1 + n as u32, 0x200), "our own");
        assert_eq!(rx(4), ASID as u32 | 1 << 8);
        assert_eq!(rx(19), 1024 << 16 | 48, "three blocks, and 4 MiB for what RTL measures");
        assert_eq!(rx(5), word(&w, peer, RX, 6), "epochs");
        assert_eq!(rx(8), word(&w, peer, TX, 22), "first PSNs");
        assert_ne!((tx(16), rx(9)), (0, 0));
        assert_eq!(
            (rx(11), rx(12) & 0x7f, rx(12) >> 24, rx(14)),
            (6, 61, 24, 0),
            "the longest list that one message of the control connection holds"
        );
        assert_eq!((commands(&w, own, TX), commands(&w, own, RX)), (vec![1], vec![1]));
        let fast = &w.nodes[own.node].hw.fast;
        assert!(fast.bells.contains(&own.qpn));
        let started = fast.written.iter().position(|x| (x.0, x.2) == (RX, 63)).unwrap();
        assert!(fast.written[started..].len() == 1, "nothing is written behind the start");
        assert_eq!(w.counter(own.node, F_FAST_EVENTS), 0);
    }
}

#[test]
fn a_peer_without_the_fast_path_gets_no_more_than_it_takes() {
    let (w, a, b) = connected(2, [true, false]);
    assert_eq!(word(&w, &a, TX, 19) >> 8 & 0xff, 8);
    assert!(w.nodes[1].hw.fast.written.is_empty());
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
}

#[test]
fn what_is_posted_before_the_connection_is_left_to_rtl() {
    let mut w = World::new(2, 5);
    for node in &mut w.nodes {
        node.hw.fast.layout = LAYOUT;
        node.card.offer_list_datagrams();
        node.card.clear_rows(&mut node.hw);
    }
    let mut a = w.create_qp(0, 16, ASID, |_| ());
    let mut b = w.create_qp(1, 17, ASID, |_| ());
    for user in [&mut a, &mut b] {
        w.nodes[user.node].hw.map(ASID, 0x10_0000, 4096, true);
        w.post_recv(user, &[(0x10_0000, 100)], 1);
        w.post_send(user, &[(0x10_0000, 100)], 2);
        w.ring(user);
    }
    w.run(50_000);
    w.connect(&a, &b, 7);
    for own in [&a, &b] {
        assert_eq!((commands(&w, own, TX), commands(&w, own, RX)), (vec![1], vec![2, 1]));
        assert_eq!(word(&w, own, RX, 14), 1, "receives so far");
        assert_eq!(w.nodes[own.node].hw.pinned(), 0, "firmware has asked for no memory");
    }
}

#[test]
fn a_connection_whose_lists_are_control_messages_stays_with_firmware() {
    let mut w = World::new(2, 3);
    w.nodes[0].hw.fast.layout = LAYOUT;
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    assert!(w.nodes[0].hw.fast.written.is_empty());
}

#[test]
fn what_lies_before_a_failed_send_goes_again_when_it_is_not_acknowledged() {
    let (mut w, a, _) = connected(6, [true, true]);
    reads(&mut w, &a, TX, 33, 77);
    reads(&mut w, &a, TX, 34, 79);
    event(&mut w, &a, 7, 1);
    assert_eq!(commands(&w, &a, TX), [1, 2]);
    event(&mut w, &a, 1, 0);
    assert_eq!(commands(&w, &a, TX), [1, 2, 2]);
    assert_eq!(state(&w, &a), CONNECTED);
    reads(&mut w, &a, TX, 33, 79);
    // The second look comes later than the first.
    w.run(4 * FAST_POLL);
    assert_eq!(state(&w, &a), ERROR);
}

#[test]
fn a_timeout_sends_again_later_and_later_and_ends_with_the_retries() {
    let (mut w, a, _) = connected(4, [true, true]);
    reads(&mut w, &a, TX, 33, 77);
    for n in 0..RETRIES {
        event(&mut w, &a, 1, 0);
        let wait = (TIMEOUT as u64) * ((1 << n.min(5)) - 1);
        if wait > 0 {
            w.run(wait - 20_000);
            assert_eq!(commands(&w, &a, TX).len(), 1 + n as usize, "try {n}");
            w.run(30_000);
        }
        assert_eq!(commands(&w, &a, TX).len(), 2 + n as usize, "try {n}");
    }
    assert!(commands(&w, &a, TX)[1..].iter().all(|c| *c == 2));
    event(&mut w, &a, 1, 0);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), 4 | (WC_RETRY_EXCEEDED as u32) << 8);
    assert_eq!(*commands(&w, &a, RX).last().unwrap(), 4 | (WC_FLUSHED as u32) << 8);
    assert_eq!(w.event(0, EV_QP_ERROR, Some(16))[2], REASON_PEER_LOST);
    assert_eq!(w.counter(0, F_TIMEOUTS), RETRIES as u64 + 1);
    assert_eq!(w.counter(0, F_FAST_EVENTS), RETRIES as u64 + 1);
}

#[test]
fn what_was_acknowledged_meanwhile_begins_the_tries_anew() {
    let (mut w, a, _) = connected(5, [true, true]);
    for n in 0..3 * RETRIES {
        reads(&mut w, &a, TX, 33, 100 + n);
        event(&mut w, &a, 1, 0);
        assert_eq!(commands(&w, &a, TX).len(), 2 + n as usize);
    }
    // The second try waits; an acknowledgement makes it superfluous.
    event(&mut w, &a, 1, 0);
    reads(&mut w, &a, TX, 33, 5000);
    w.run(10 * TIMEOUT as u64);
    assert_eq!(commands(&w, &a, TX).len(), 1 + 3 * RETRIES as usize);
    assert_eq!(state(&w, &a), CONNECTED);
}

#[test]
fn a_send_that_fails_waits_for_those_before_it() {
    for (code, arg, status) in [
        (6, WC_BAD_WQE as u32, WC_BAD_WQE),
        (7, PAGE_OVER_BUDGET, WC_OVER_BUDGET),
        (7, PAGE_NO_MEMORY, WC_NO_MEMORY),
        (7, PAGE_FAULT, WC_LOCAL_PROTECTION),
    ] {
        let (mut w, a, b) = connected(6, [true, true]);
        reads(&mut w, &a, TX, 33, 100);
        reads(&mut w, &a, TX, 34, 103);
        event(&mut w, &a, code, arg);
        w.run(100_000);
        assert_eq!(state(&w, &a), CONNECTED);
        reads(&mut w, &a, TX, 33, 103);
        w.run(LOOK);
        assert_eq!(*commands(&w, &a, TX).last().unwrap(), 4 | (status as u32) << 8);
        assert_eq!(w.event(0, EV_QP_ERROR, Some(16))[2], REASON_SEND_FAILED);
        w.run(1_000_000);
        assert_ne!(state(&w, &b), CONNECTED, "the peer is told");
    }
}

#[test]
fn what_ends_a_connection_in_rtl_puts_the_qp_in_error() {
    for (code, arg, reason, head) in [
        (2, 0x63 << 24 | 5, REASON_SEND_FAILED, WC_REMOTE_ERROR),
        (3, 0x21 << 24, REASON_PROTOCOL, WC_FLUSHED),
        (5, berth_abi::cpu::LIST_EARLY, REASON_PROTOCOL, WC_FLUSHED),
        (8, 0, REASON_QUEUE_READ, WC_FLUSHED),
        (9, 0, REASON_BAD_INDEX, WC_FLUSHED),
        (0x42, 0, REASON_QUEUE_READ, WC_FLUSHED),
        (0x43, 0, REASON_BAD_INDEX, WC_FLUSHED),
        (0x40, 0, REASON_WITHDRAWN, WC_FLUSHED),
        (0x40, 4, REASON_PROTOCOL, WC_FLUSHED),
    ] {
        let (mut w, a, _) = connected(7, [true, true]);
        event(&mut w, &a, code, arg);
        assert_eq!(w.event(0, EV_QP_ERROR, Some(16))[2], reason, "event {code}");
        assert_eq!(*commands(&w, &a, TX).last().unwrap(), 4 | (head as u32) << 8);
        assert_eq!(w.counter(0, F_WITHDRAWN), u64::from(reason == REASON_WITHDRAWN));
        let before = w.nodes[0].hw.fast.written.len();
        event(&mut w, &a, 1, 0);
        assert_eq!(w.nodes[0].hw.fast.written.len(), before, "an event after the end");
    }
    let (mut w, a, _) = connected(8, [true, true]);
    event(&mut w, &a, 0xee, 0);
    assert_eq!((w.counter(0, F_FAST_EVENTS), state(&w, &a)), (1, CONNECTED));
}

#[test]
fn a_qp_is_destroyed_when_nothing_of_it_is_in_flight() {
    let (mut w, a, b) = connected(9, [true, true]);
    reads(&mut w, &a, TX, 35, BUSY | 3);
    reads(&mut w, &a, RX, 32, 7);
    let mut destroy = [0; 16];
    (destroy[0], destroy[2]) = (CMD_QP_DESTROY, a.qpn);
    let cookie = w.post_command(0, destroy);
    let answered =
        move |w: &World| w.nodes[0].hw.events.iter().any(|e| e[0] == EV_CMD_DONE && e[1] == cookie && e[2] == CMD_OK);
    w.run(1_000_000);
    assert!(!answered(&w) && !w.nodes[0].hw.fast.bells.contains(&a.qpn));
    assert_eq!(
        *commands(&w, &a, TX).last().unwrap(),
        4 | (WC_FLUSHED as u32) << 8,
        "no draining with frames under way"
    );
    reads(&mut w, &a, TX, 35, 3);
    w.run(LOOK);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), 6);
    reads(&mut w, &a, TX, 35, 0);
    w.run(LOOK);
    assert!(!answered(&w), "receives are still held");
    reads(&mut w, &a, RX, 32, 0);
    w.run(LOOK);
    assert!(answered(&w));
    assert_eq!(state(&w, &a), 0);
    // The peer's end is over too, stays with RTL, and can be used again after it is destroyed.
    assert_ne!(state(&w, &b), CONNECTED);
    w.destroy(&b);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 8);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), 1);
}

#[test]
fn a_recall_takes_credits_back_and_lists_from_before_it_are_void() {
    let (mut w, a, b) = connected(10, [true, true]);
    let epoch = word(&w, &b, RX, 6);
    // B has announced 20 credits, of which 5 have landed, and starves; A keeps those below number 9.
    reads(&mut w, &b, RX, 32, STARVED | 4);
    reads(&mut w, &b, RX, 34, 20);
    reads(&mut w, &b, RX, 35, 5);
    reads(&mut w, &a, TX, 37, 9);
    let mut press = [0; 16];
    (press[0], press[3]) = (CMD_PRESSURE, 65536);
    assert_eq!(w.command(1, press)[2], CMD_OK);
    assert_eq!(*commands(&w, &b, RX).last().unwrap(), 6, "no list while the recall is out");
    w.run(1_000_000);
    assert_eq!(commands(&w, &a, TX)[1..], [7 | 15 << 8]);
    assert_eq!(commands(&w, &a, RX)[1..], [3]);
    assert_eq!(word(&w, &a, RX, 5), epoch.wrapping_add(1));
    assert_eq!(commands(&w, &b, RX)[1..], [6, 9, 5], "nothing is asked for, for a while");
    assert_eq!((word(&w, &b, RX, 15), word(&w, &b, RX, 6)), (9, epoch.wrapping_add(1)));
    assert_eq!(w.counter(1, F_RECALLED), 11);
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
    w.run(FAST_REST + 1000);
    assert_eq!(commands(&w, &b, RX)[1..], [6, 9, 5, 8]);
}

#[test]
fn an_answer_to_a_recall_that_cannot_be_ends_the_connection() {
    let (mut w, a, b) = connected(11, [true, true]);
    reads(&mut w, &b, RX, 32, STARVED);
    reads(&mut w, &b, RX, 34, 20);
    reads(&mut w, &b, RX, 35, 5);
    reads(&mut w, &a, TX, 37, 4);
    let mut press = [0; 16];
    (press[0], press[3]) = (CMD_PRESSURE, 65536);
    w.command(1, press);
    w.run(1_000_000);
    assert_eq!(state(&w, &b), ERROR);
}

#[test]
fn pressure_recalls_nothing_while_nobody_starves() {
    let (mut w, _, b) = connected(12, [true, true]);
    reads(&mut w, &b, RX, 34, 20);
    let mut press = [0; 16];
    (press[0], press[3]) = (CMD_PRESSURE, 65536);
    w.command(1, press);
    w.run(1_000_000);
    assert_eq!(commands(&w, &b, RX), [1]);
}

/// What the driver says when a page request has waited for budget for long; gives the QPN whose receive does not fit.
fn press(w: &mut World, node: usize) -> u32 {
    let mut press = [0; 16];
    (press[0], press[3]) = (CMD_PRESSURE, 65536);
    let answer = w.command(node, press);
    assert_eq!(answer[2], CMD_OK);
    w.run(FAST_SQUEEZE_TIME);
    answer[3]
}

#[test]
fn a_receive_that_waits_for_more_than_there_is_is_named_when_nobody_else_has_memory() {
    let (mut w, a, b) = connected(17, [true, true]);
    // Its credits have all landed; it holds a part of what the next receive needs.
    reads(&mut w, &b, RX, 32, STARVED | 1);
    (0..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(press(&mut w, 1), b.qpn);
    // It asks for one receive at a time, and lets go of nothing.
    assert!(commands(&w, &b, RX)[1..].iter().all(|c| *c == 8));
    // What is granted, and what the other half holds or has sent, comes back.
    for (half, at, value) in [(RX, 36, 1), (TX, 35, 2)] {
        reads(&mut w, &b, half, at, value);
        (0..2 * SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
        reads(&mut w, &b, half, at, 0);
    }
    (0..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(press(&mut w, 1), b.qpn);
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
}

#[test]
fn of_receives_that_hold_parts_and_wait_for_each_other_all_but_one_let_go() {
    let (mut w, _, b) = connected(18, [true, true]);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    for qp in [&b, &d] {
        reads(&mut w, qp, RX, 32, STARVED | 1);
    }
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!(commands(&w, &b, RX)[1..], [8]);
    assert_eq!(commands(&w, &d, RX)[1..], [7]);
    assert_eq!((20..24).map(|n| word(&w, &d, RX, n)).collect::<Vec<_>>(), [0; 4]);
    // Once the first has what it needs it is the other's turn; then that of both again.
    reads(&mut w, &b, RX, 32, 0);
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!(commands(&w, &d, RX)[1..], [7, 8]);
    reads(&mut w, &b, RX, 32, STARVED | 1);
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!((commands(&w, &b, RX)[1..].to_vec(), commands(&w, &d, RX)[1..].to_vec()), (vec![8, 7], vec![7, 8, 8]));
    // Who was granted what it waited for is not the one that is named, though it waits again.
    assert_eq!(press(&mut w, 1), 0);
    reads(&mut w, &d, RX, 36, 1);
    assert_eq!(press(&mut w, 1), 0);
    reads(&mut w, &d, RX, 36, 0);
    (0..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(press(&mut w, 1), b.qpn);
    // One after the other is named if that never helps.
    let named: Vec<u32> = (0..16).map(|_| press(&mut w, 1)).filter(|qpn| *qpn != 0).collect();
    assert!(named.contains(&b.qpn) && named.contains(&d.qpn), "{named:?}");
}

#[test]
fn a_revocation_is_over_when_both_halves_have_let_go() {
    let (mut w, a, _) = connected(13, [true, true]);
    w.nodes[0].hw.map(ASID, SRC, 8192, true);
    for half in [TX, RX] {
        reads(&mut w, &a, half, if half == TX { 35 } else { 32 }, REVOKING | 2);
    }
    let answers = |w: &World| w.nodes[0].hw.events.iter().filter(|e| e[0] == EV_CMD_DONE).count();
    let before = answers(&w);
    w.unmap(0, ASID, SRC, 8192);
    w.run(200_000);
    assert_eq!((commands(&w, &a, TX)[1..].to_vec(), commands(&w, &a, RX)[1..].to_vec()), (vec![8], vec![7]));
    let range = |half, first| (0..4u32).map(|i| word(&w, &a, half, first + i)).collect::<Vec<_>>();
    let end = SRC + 8192;
    let expected = [SRC as u32, (SRC >> 32) as u32, end as u32, (end >> 32) as u32];
    assert_eq!((range(TX, 24), range(RX, 20)), (expected.to_vec(), expected.to_vec()));
    reads(&mut w, &a, TX, 35, 0);
    w.run(200_000);
    assert_eq!(answers(&w), before);
    reads(&mut w, &a, RX, 32, 0);
    w.run(200_000);
    assert_eq!(answers(&w), before + 1);
    // The next one is told anew.
    w.nodes[0].hw.map(ASID, SRC, 4096, true);
    w.unmap(0, ASID, SRC, 4096);
    w.run(200_000);
    assert_eq!(commands(&w, &a, TX)[1..], [8, 8]);
    assert_eq!(answers(&w), before + 2);
}

#[test]
fn a_list_that_comes_to_the_core_goes_to_rtls_reader() {
    let (mut w, a, mut b) = connected(14, [true, false]);
    let len = 3 * 4096;
    w.nodes[1].hw.map(ASID, DST, len, true);
    for i in 0..3 {
        w.post_recv(&mut b, &[(DST + i * 4096, 4096)], i);
    }
    w.ring(&b);
    w.run(100_000);
    let hw = &w.nodes[0].hw;
    let words: Vec<(u32, u32)> =
        hw.fast.written.iter().filter(|x| x.0 == TX && x.2 >= 40).map(|x| (x.2, x.3)).collect();
    let sizes = |words: &[(u32, u32)]| words.iter().filter(|x| x.0 == 42).map(|x| x.1).collect::<Vec<_>>();
    assert_eq!(words[0], (40, words[0].1));
    assert_eq!(words[1].0, 41);
    assert!(words[1].1 >= 1 && sizes(&words)[..words[1].1 as usize].iter().all(|s| *s == 4096));
    assert_eq!(w.counter(0, F_CONTROL_BAD), 0);
    assert_eq!(state(&w, &a), CONNECTED);
}

#[test]
fn posting_before_the_connection_costs_firmware_nothing() {
    let mut w = World::new(2, 15);
    for node in &mut w.nodes {
        node.hw.fast.layout = LAYOUT;
        node.card.offer_list_datagrams();
    }
    let mut a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.nodes[0].hw.map(ASID, SRC, 4096, true);
    w.post_send(&mut a, &[(SRC, 100)], 1);
    w.post_recv(&mut a, &[(SRC, 100)], 2);
    w.ring(&a);
    w.connect(&a, &b, 7);
    w.run(1_000_000);
    assert_eq!(word(&w, &a, RX, 14), 1, "the receives posted so far");
    assert!(w.nodes[0].hw.fast.bells.contains(&16));
    assert_eq!((w.counter(0, F_SEND_BLOCKS), w.counter(0, F_GRANTS)), (0, 0));
    assert!(w.completions(&a, false).is_empty());
}

#[test]
fn a_peer_that_is_heard_by_rtl_need_not_be_asked_whether_it_lives() {
    let sent = |fresh: bool| {
        let (mut w, a, b) = connected(16, [true, true]);
        w.run(10_000_000);
        let before = w.counter(0, F_CONTROL_SENT) + w.counter(1, F_CONTROL_SENT);
        for _ in 0..40 {
            if fresh {
                let clock = (w.now / 64) as u32;
                reads(&mut w, &a, RX, 37, clock);
                reads(&mut w, &b, RX, 37, clock);
            }
            w.run(10_000_000);
        }
        assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
        w.counter(0, F_CONTROL_SENT) + w.counter(1, F_CONTROL_SENT) - before
    };
    assert_eq!(sent(true), 0);
    assert!(sent(false) > 0);
}

#[test]
fn a_query_asks_the_rows() {
    let (mut w, a, _) = connected(17, [true, true]);
    for (half, number, value) in
        [(RX, 33, 40), (RX, 36, 6 << 16 | 4), (RX, 34, 44), (RX, 35, 41), (TX, 36, 3 << 16 | 9)]
    {
        reads(&mut w, &a, half, number, value);
    }
    let mut query = [0; 16];
    (query[0], query[2]) = (CMD_QP_QUERY, a.qpn);
    let answer = w.command(0, query);
    assert_eq!(answer[2..12], [CMD_OK, 2, 0, 46, 4, 44, 41, 40, 9, 3]);
}
