// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs whose hosts name them to each other, on two Berths: both agree on credit lists without a request and an
//! acceptance, in whichever order the hosts come, and an end that goes is no error of the other one's.

mod common;
use berth_abi::counters::*;
use berth_abi::message::{Disconnect, QpDestroy, QpPeer};
use berth_abi::ring::MODE_MESSAGE;
use berth_abi::rows::{recv, send};
use berth_abi::status::*;
use berth_protocol::model::{MTU, Rng, User, World};
use common::*;

const CREATED: u8 = 1;
const CONNECTING: u8 = 2;
const CONNECTED: u8 = 3;
const ERROR: u8 = 4;
/// QPNs of both ends.
const QPNS: [u32; 2] = [16, 18];

fn ip(node: usize) -> u32 {
    0x0a00_0001 + node as u32
}

/// Two cards with a queue pair each.
fn ends(seed: u64) -> (World, [User; 2]) {
    let mut w = World::new(2, seed);
    let made = [0, 1].map(|node| make(&mut w, node));
    (w, made)
}

fn make(w: &mut World, node: usize) -> User {
    w.create_qp(node, QPNS[node], ASID, |qp| (qp.mode, qp.reads, qp.peer_reads) = (MODE_MESSAGE, 3, 5))
}

/// What the host of `node` says of its end's peer.
fn named(node: usize) -> QpPeer {
    QpPeer {
        qpn: QPNS[node],
        ipv4: ip(1 - node),
        peer_qpn: QPNS[1 - node],
        psn: 5,
        peer_psn: 9,
        mtu: [1024, 512][node].min(MTU),
        denies: 1 << node,
        berth: true,
        receives_only: true,
        ..QpPeer::default()
    }
    .with_mac([2, 0, 0, 0, 0, 2 - node as u8])
}

fn name(w: &mut World, node: usize) {
    assert_eq!(w.command(node, named(node).encode()).status, CMD_OK);
}

fn state(w: &World, user: &User) -> u8 {
    w.nodes[user.node].card.state_of(user.qpn)
}

fn word(w: &World, user: &User, half: u32, word: u32) -> u32 {
    w.nodes[user.node].hw.fast.words[&(half, user.qpn, word)]
}

/// Something is posted to the send queue, for which there is no credit.
fn posted(w: &mut World, user: &User) {
    let held = send::Held { queued: 1, ..send::Held::default() };
    w.nodes[user.node].hw.fast.reads.insert((TX, user.qpn, send::HELD), held.word());
}

/// Both ends are there and know the same of each other.
fn assert_bound(w: &World, ends: &[User; 2]) {
    for user in ends {
        assert_eq!(state(w, user), CONNECTED);
        assert!(w.nodes[user.node].hw.fast.bells.contains(&user.qpn));
        let mode = send::Mode::from_word(word(w, user, TX, send::MODE));
        assert_eq!((mode.foreign, mode.selective, mode.message, mode.log2_mtu, mode.reads), (0, 1, 1, 9, 3));
        let mode = recv::Mode::from_word(word(w, user, RX, recv::MODE));
        assert_eq!((mode.foreign, mode.writes_in_order, mode.denies), (0, 1, 1 << user.node));
    }
    for [a, b] in [[0, 1], [1, 0]].map(|pair| pair.map(|n| &ends[n])) {
        assert_eq!(word(w, a, TX, send::PSN), word(w, b, RX, recv::PSN));
        assert_eq!(word(w, a, RX, recv::EPOCH), word(w, b, RX, recv::PEER_EPOCH));
        assert_eq!(word(w, a, TX, send::QKEY), word(w, b, RX, recv::QKEY));
    }
}

fn bound(seed: u64) -> (World, [User; 2]) {
    let (mut w, ends) = ends(seed);
    name(&mut w, 0);
    name(&mut w, 1);
    for node in [0, 1] {
        assert_eq!(w.established(node, QPNS[node]).peer_qpn, QPNS[1 - node]);
    }
    (w, ends)
}

#[test]
fn ap_1_hosts_name_their_ends_in_any_order() {
    for first in [0, 1] {
        let (mut w, ends) = ends(1);
        name(&mut w, first);
        w.run(3_000_000);
        assert_eq!(state(&w, &ends[first]), CONNECTING, "the other host has said nothing");
        assert_eq!(state(&w, &ends[1 - first]), CREATED);
        name(&mut w, 1 - first);
        w.run(3_000_000);
        assert_bound(&w, &ends);
        assert_eq!([0, 1].map(|n| w.counter(n, F_CONTROL_BAD)), [0, 0]);
    }
    let (w, ends) = bound(2);
    assert_bound(&w, &ends);
}

#[test]
fn ap_1_frames_that_are_lost_or_late_change_nothing() {
    for seed in 0..30 {
        let (mut w, ends) = ends(seed);
        w.hold = [true; 2];
        name(&mut w, 0);
        name(&mut w, 1);
        // Some frames come late, some not at all.
        for n in 0..200_u64 {
            let i = (n ^ (n / 3) ^ seed) as usize % 2;
            if (n + seed).is_multiple_of(7) {
                w.held[i].pop_front();
            }
            w.release(i, 1 + (n + seed) as usize % 4);
            w.run(100_000);
        }
        w.hold = [false; 2];
        for i in 0..2 {
            w.release(i, 1000);
        }
        w.run(50_000_000);
        assert_bound(&w, &ends);
    }
}

#[test]
fn ap_1_sending_needs_no_more_than_the_credits() {
    let (mut w, ends) = bound(3);
    let psn = word(&w, &ends[0], TX, send::PSN);
    let ready = QpPeer { receives_only: false, timeout: 1000, ..named(0) };
    assert_eq!(w.command(0, ready.encode()).status, CMD_OK);
    assert_eq!(commands(&w, &ends[0], TX), [send::CMD_START], "it was there already");
    assert_eq!(word(&w, &ends[0], TX, send::PSN), psn);
    assert_eq!(w.command(0, ready.encode()).status, CMD_BUSY, "once");
    // It stays what it was said to be.
    assert_eq!(w.command(1, QpPeer { receives_only: false, berth: false, ..named(1) }.encode()).status, CMD_BUSY);
}

#[test]
fn ap_1_an_end_without_a_partner_fails() {
    // The other queue pair is not there, or another one's.
    for other in [false, true] {
        let (mut w, ends) = ends(4);
        match other {
            false => assert_eq!(w.command(1, QpDestroy { qpn: QPNS[1] }.encode()).status, CMD_OK),
            true => {
                let peer = QpPeer { peer_qpn: 17, ..named(1) };
                assert_eq!(w.command(1, peer.encode()).status, CMD_OK);
            }
        }
        name(&mut w, 0);
        w.run(10_000_000);
        assert_eq!(state(&w, &ends[0]), CONNECTING, "it is asked for again");
        assert_eq!(w.failed(0, QPNS[0]), REASON_PEER_LOST);
        assert_eq!(state(&w, &ends[0]), ERROR);
    }
}

#[test]
fn ap_1_a_partner_that_is_made_late_is_found() {
    let (mut w, mut ends) = ends(8);
    assert_eq!(w.command(1, QpDestroy { qpn: QPNS[1] }.encode()).status, CMD_OK);
    name(&mut w, 0);
    w.run(10_000_000);
    ends[1] = make(&mut w, 1);
    name(&mut w, 1);
    w.run(3_000_000);
    assert_bound(&w, &ends);
    w.run(50_000_000);
    assert_bound(&w, &ends);
}

#[test]
fn ap_1_a_peer_that_goes_is_noticed_when_something_is_sent() {
    for destroys in [false, true] {
        let (mut w, ends) = bound(5);
        match destroys {
            false => assert_eq!(w.command(1, Disconnect { qpn: QPNS[1] }.encode()).status, CMD_OK),
            true => assert_eq!(w.command(1, QpDestroy { qpn: QPNS[1] }.encode()).status, CMD_OK),
        }
        w.run(500_000_000);
        assert_eq!(state(&w, &ends[0]), CONNECTED, "its receives stay");
        assert_eq!(commands(&w, &ends[0], TX), [send::CMD_START]);
        assert_eq!(commands(&w, &ends[0], RX), [recv::CMD_START, recv::CMD_HOLD], "no list goes");
        posted(&mut w, &ends[0]);
        assert_eq!(w.failed(0, QPNS[0]), REASON_PEER_LOST);
        let end = send::Command { opcode: send::CMD_END, argument: WC_RETRY_EXCEEDED.into() };
        assert_eq!(commands(&w, &ends[0], TX).last(), Some(&end.word()));
        assert_eq!(w.counter(1, F_CONTROL_BAD), 0);
    }
}

#[test]
fn ap_1_an_end_that_goes_before_it_has_heard_of_the_other_tells_it() {
    let (mut w, ends) = ends(6);
    w.hold[1] = true;
    name(&mut w, 0);
    name(&mut w, 1);
    w.run(2_000_000);
    // The second card has met the first one, which does not know that.
    let met = (0..50).any(|_| {
        w.release(1, 1);
        w.run(500_000);
        state(&w, &ends[1]) == CONNECTED
    });
    assert!(met);
    if state(&w, &ends[0]) == CONNECTING {
        assert_eq!(w.command(0, QpDestroy { qpn: QPNS[0] }.encode()).status, CMD_OK);
        w.hold[1] = false;
        w.release(1, 100);
        w.run(100_000_000);
        posted(&mut w, &ends[1]);
        assert_eq!(w.failed(1, QPNS[1]), REASON_PEER_LOST);
    }
}

#[test]
fn ap_1_cards_that_meet_with_many_ends_at_once_call_nothing_malformed() {
    for seed in 0..100 {
        let mut w = World::new(2, seed);
        let mut rng = Rng(seed);
        let qpns = 16..20;
        for node in [0, 1] {
            for qpn in qpns.clone() {
                w.create_qp(node, qpn, ASID, |qp| (qp.mode, qp.reads, qp.peer_reads) = (MODE_MESSAGE, 3, 5));
            }
        }
        let mut left = [qpns.clone(), qpns];
        while left.iter().any(|left| !left.is_empty()) {
            let node = rng.below(2) as usize;
            let Some(qpn) = left[node].next() else { continue };
            let peer = QpPeer { qpn, peer_qpn: qpn, ..named(node) };
            assert_eq!(w.command(node, peer.encode()).status, CMD_OK);
            w.run(rng.below(40_000));
        }
        w.run(50_000_000);
        for (node, qpn) in [0, 1].into_iter().flat_map(|node| (16..20).map(move |qpn| (node, qpn))) {
            assert_eq!(w.nodes[node].card.state_of(qpn), CONNECTED, "seed {seed}");
        }
        assert_eq!([0, 1].map(|n| w.counter(n, F_CONTROL_BAD)), [0, 0], "seed {seed}");
    }
}

/// As programs do that begin anew after an error: one host after the other.
#[test]
fn ap_1_ends_that_are_reset_one_after_the_other_meet_again() {
    for (first, fails, seed) in [(0, false), (0, true), (1, false), (1, true)]
        .into_iter()
        .flat_map(|(first, fails)| (0..20).map(move |seed| (first, fails, seed)))
    {
        let (mut w, mut ends) = bound(seed);
        if fails {
            for node in [0, 1] {
                assert_eq!(w.command(node, Disconnect { qpn: QPNS[node] }.encode()).status, CMD_OK);
            }
            w.run(1_000_000 * (seed % 3));
        }
        for node in [first, 1 - first] {
            assert_eq!(w.command(node, QpDestroy { qpn: QPNS[node] }.encode()).status, CMD_OK);
            ends[node] = make(&mut w, node);
            name(&mut w, node);
            w.run(50_000 * (seed % 7));
        }
        w.run(50_000_000);
        println!("{first} {fails} {seed}");
        assert_bound(&w, &ends);
        posted(&mut w, &ends[0]);
        posted(&mut w, &ends[1]);
        w.run(500_000_000);
        assert_bound(&w, &ends);
    }
}
