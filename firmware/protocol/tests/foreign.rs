// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs whose peer the host sets, and which speaks plain RoCEv2: what their rows say, when they are there, what
//! becomes of an RNR NAK, and that nobody is ever told anything.

mod common;
use berth_abi::counters::*;
use berth_abi::message::{
    CmClosed, CmEstablished, CmdDone, Connect, Disconnect, Listen, Pressure, QpCreate, QpDestroy, QpError, QpPeer,
    QpRecall,
};
use berth_abi::ring::{MODE_MESSAGE, MODE_STREAM};
use berth_abi::rows::{event::*, recv, send};
use berth_abi::status::*;
use berth_protocol::card::limits::{FAST_SQUEEZE_TIME, KEEPALIVE, NOT_YET, RETRIES, SQUEEZES, rnr_cycles};
use berth_protocol::model::{MTU, User, World};
use berth_protocol::wire::headers::{Mac, Template};
use common::*;

/// States of a QP (`Card::state_of`).
const CREATED: u8 = 1;
const CONNECTING: u8 = 2;
const CONNECTED: u8 = 3;
const ERROR: u8 = 4;
/// An address that no host has.
const NOBODY: u32 = 0x0a00_0100;
/// What the peer is in these tests.
const PEER: QpPeer = QpPeer {
    qpn: 16,
    ipv4: 0x0a00_0002,
    peer_qpn: 0x12_3456,
    psn: 0xff_fffe,
    peer_psn: 0x65_4321,
    mtu: 512,
    rnr_timer: 14,
    rnr_retries: 2,
    timeout: 0,
    retries: 0,
    reads: 255,
    denies: 6,
    mac_first: 0,
    mac_last: 0,
    receives_only: false,
    berth: false,
};

fn make(w: &mut World, node: usize, qpn: u32) -> User {
    w.create_qp(node, qpn, ASID, |qp| (qp.mode, qp.reads, qp.peer_reads) = (MODE_MESSAGE, 3, 5))
}

fn set(w: &mut World, peer: QpPeer) -> u32 {
    w.command(0, peer.encode()).status
}

/// Two cards, and a QP of the first one with its foreign peer.
fn foreign(seed: u64) -> (World, User) {
    let mut w = World::new(2, seed);
    let a = make(&mut w, 0, 16);
    assert_eq!(set(&mut w, PEER), CMD_OK);
    w.established(0, 16);
    (w, a)
}

fn word(w: &World, user: &User, half: u32, word: u32) -> u32 {
    w.nodes[user.node].hw.fast.words[&(half, user.qpn, word)]
}

fn state(w: &World, user: &User) -> u8 {
    w.nodes[user.node].card.state_of(user.qpn)
}

fn event(w: &mut World, user: &User, code: u32, arg: u32) {
    w.fast_event(user.node, code, user.qpn, arg);
    w.run(3000);
}

/// An RNR NAK for packet `psn`, with a timer code.
fn rnr(w: &mut World, user: &User, timer: u32, psn: u32) {
    event(w, user, EVENT_RNR, Nak { syndrome: 0x20 | timer, psn }.word());
}

/// ARP requests for another address that card 0 has sent.
fn asked(w: &World) -> usize {
    w.wire.iter().filter(|(i, f)| *i == 0 && f[12..14] == [8, 6] && f[21] == 1 && f[28..32] != [0; 4]).count()
}

/// Nothing of RoCE is on the wire: no control message, no list, no probe.
fn assert_told_nothing(w: &World) {
    assert!(w.wire.iter().all(|(_, f)| f[12..14] == [8, 6]), "frames to a foreign peer");
}

#[test]
fn qp_7_a_foreign_peer_is_there_when_its_address_is_known() {
    let mut w = World::new(2, 1);
    let a = make(&mut w, 0, 16);
    w.hold[1] = true;
    w.ring(&a, 1, 2);
    assert_eq!(set(&mut w, PEER), CMD_OK);
    w.run(100_000);
    assert_eq!((state(&w, &a), asked(&w)), (CONNECTING, 1));
    assert_eq!(set(&mut w, PEER), CMD_BUSY);
    w.hold[1] = false;
    w.release(1, 10);
    let there = w.established(0, 16);
    let expected = CmEstablished { qpn: 16, ipv4: PEER.ipv4, peer_qpn: PEER.peer_qpn, ..CmEstablished::default() };
    assert_eq!(there, expected);
    assert_eq!((commands(&w, &a, TX), commands(&w, &a, RX)), (vec![send::CMD_START], vec![recv::CMD_START]));
    assert!(w.nodes[0].hw.fast.bells.contains(&16));
    assert_eq!(set(&mut w, PEER), CMD_BUSY);

    let mac = |n: u8| Mac::new([2, 0, 0, 0, 0, n]);
    let port = 0xc000 | (16 << 7 ^ PEER.peer_qpn) as u16 & 0x3fff;
    let template = Template::new(mac(1), 0x0a00_0001, mac(2), PEER.ipv4, port, PEER.peer_qpn).row();
    let tx = |i| word(&w, &a, TX, i);
    let rx = |i| word(&w, &a, RX, i);
    assert!((send::TEMPLATE..).zip(template).all(|(i, value)| tx(i) == value));
    let sends = send::Mode {
        carrier: send::CARRIER_CONTROL,
        foreign: 1,
        reads: 3,
        reorder: 0,
        window: 255,
        remote: 1,
        loopback: 0,
        selective: 0,
        message: 1,
        log2_mtu: 9,
    };
    assert_eq!(tx(send::MODE), sends.word());
    let receives = recv::Mode {
        writes_in_order: 0,
        reads: 5,
        ack_every: 8,
        denies: 6,
        rnr_timer: 14,
        remote: 1,
        message: 1,
        foreign: 1,
        selective: 0,
        log2_mtu: 9,
    };
    assert_eq!(rx(recv::MODE), receives.word());
    assert_eq!((tx(send::PSN), rx(recv::PSN), rx(recv::PI)), (PEER.psn, PEER.peer_psn, 2));
    assert_eq!((rx(recv::IP), rx(recv::MAC), rx(recv::MAC + 1)), (PEER.ipv4, 2, 0x200));
}

/// What it has not used is had back without asking it.
#[test]
fn receives_of_a_foreign_peer_go_back_to_the_program_at_once() {
    let (mut w, a) = foreign(9);
    let counts = recv::Counts { granted: 3, posted: 8 }.word();
    w.nodes[0].hw.fast.reads.extend([((RX, 16, recv::COMPLETED), 5), ((RX, 16, recv::COUNTS), counts)]);
    assert_eq!(w.command(0, QpRecall { qpn: 16 }.encode()).status, CMD_OK);
    let cancel = recv::Command { opcode: recv::CMD_CANCEL, argument: 13 }.word();
    assert_eq!(commands(&w, &a, RX)[1..], [recv::CMD_REST, recv::CMD_RECLAIM, cancel]);
    w.run(10 * KEEPALIVE);
    assert_eq!((state(&w, &a), commands(&w, &a, RX).len()), (CONNECTED, 4));
    assert_told_nothing(&w);
}

#[test]
fn qp_7_a_foreign_peer_is_told_nothing_in_a_connections_whole_life() {
    for seed in 10..14 {
        let (mut w, a) = foreign(seed);
        w.run(10 * KEEPALIVE);
        // Its own memory that the peer waited for is there: the peer comes again by itself.
        event(&mut w, &a, EVENT_TARGET, Target { status: 0, psn: 7 }.word());
        // Memory is short, and it has credits out, as a Berth would count them.
        let reads = &mut w.nodes[0].hw.fast.reads;
        reads.insert((RX, 16, recv::ANNOUNCED), 5);
        reads.insert((RX, 16, recv::HELD), recv::Held { starved: 1, ..recv::Held::default() }.word());
        w.command(0, Pressure { asid: 0, bytes: 4096 }.encode());
        w.run(10 * KEEPALIVE);
        assert_eq!(state(&w, &a), CONNECTED);
        assert_eq!(
            commands(&w, &a, RX)[1..],
            [recv::CMD_REST, recv::CMD_RECLAIM, recv::CMD_SQUEEZE],
            "nobody is asked"
        );
        assert_eq!(w.counter(0, F_RECALLED), 5);
        w.nodes[0].hw.fast.reads.clear();
        let end = if seed % 2 == 0 {
            assert_eq!(w.command(0, Disconnect { qpn: 16 }.encode()).status, CMD_OK);
            assert_eq!(w.closed(0, 16), REASON_LOCAL_CLOSE);
            WC_FLUSHED
        } else {
            event(&mut w, &a, EVENT_NAK, Nak { syndrome: 0x61, psn: 0 }.word());
            assert_eq!(w.failed(0, 16), REASON_SEND_FAILED);
            WC_REMOTE_REQUEST
        };
        assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, end));
        w.destroy(&a);
        w.run(10 * KEEPALIVE);
        assert_told_nothing(&w);
        assert_eq!((w.counter(0, F_CONTROL_SENT), w.nodes[0].card.qps_in_use(), asked(&w)), (0, 0, 1));
    }
}

#[test]
fn pc_3_a_receive_that_does_not_fit_is_named_when_a_foreign_peers_unused_ones_have_come_back() {
    let (mut w, a) = foreign(14);
    let b = make(&mut w, 0, 17);
    assert_eq!(set(&mut w, QpPeer { qpn: 17, ..PEER }), CMD_OK);
    w.established(0, 17);
    // One waits for memory, and the other one's receive may wait for data for ever.
    let reads = &mut w.nodes[0].hw.fast.reads;
    reads.insert((RX, b.qpn, recv::HELD), recv::Held { holds: 1, starved: 1, ..recv::Held::default() }.word());
    reads.insert((RX, a.qpn, recv::COUNTS), recv::Counts { posted: 1, granted: 1 }.word());
    reads.insert((RX, a.qpn, recv::ANNOUNCED), 1);
    w.command(0, Pressure { asid: 0, bytes: 4096 }.encode());
    assert_eq!(commands(&w, &a, RX)[1..], [recv::CMD_REST, recv::CMD_RECLAIM]);
    let reads = &mut w.nodes[0].hw.fast.reads;
    reads.insert((RX, a.qpn, recv::COUNTS), recv::Counts { posted: 1, granted: 0 }.word());
    reads.insert((RX, a.qpn, recv::ANNOUNCED), 0);
    w.run(FAST_SQUEEZE_TIME);
    let named: Vec<u32> = (0..=SQUEEZES)
        .map(|_| {
            let CmdDone { results: [qpn, ..], .. } = w.command(0, Pressure { asid: 0, bytes: 4096 }.encode());
            w.run(FAST_SQUEEZE_TIME);
            qpn
        })
        .collect();
    assert_eq!(named.last(), Some(&b.qpn), "{named:?}");
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
}

#[test]
fn qp_7_what_a_foreign_peer_cannot_be_is_refused() {
    let mut w = World::new(2, 20);
    let a = make(&mut w, 0, 16);
    let stream = w.create_qp(0, 17, ASID, |qp: &mut QpCreate| qp.mode = MODE_STREAM);
    for bad in [
        QpPeer { ipv4: 0, ..PEER },
        QpPeer { ipv4: 0xe000_0001, ..PEER },
        QpPeer { peer_qpn: 2, ..PEER },
        QpPeer { peer_qpn: 1 << 24, ..PEER },
        QpPeer { psn: 1 << 24, ..PEER },
        QpPeer { peer_psn: 1 << 24, ..PEER },
        QpPeer { mtu: 0, ..PEER },
        QpPeer { mtu: 128, ..PEER },
        QpPeer { mtu: 1000, ..PEER },
        QpPeer { mtu: 2 * MTU, ..PEER },
        QpPeer { rnr_timer: 32, ..PEER },
        QpPeer { rnr_retries: 8, ..PEER },
        QpPeer { denies: 8, ..PEER },
        PEER.with_mac([1, 0, 0, 0, 0, 1]),
        QpPeer { mac_last: 1 << 16, ..PEER },
        QpPeer { qpn: stream.qpn, ..PEER },
    ] {
        assert_eq!(set(&mut w, bad), CMD_INVALID, "{bad:?}");
    }
    for qpn in [0, 15, 18, 80, u32::MAX] {
        assert_eq!(set(&mut w, QpPeer { qpn, ..PEER }), CMD_NOT_FOUND);
    }
    w.run(1_000_000);
    assert_eq!((state(&w, &a), asked(&w)), (CREATED, 0));
    // The ends of what it can be.
    let first = QpPeer { peer_qpn: 3, psn: 0, peer_psn: 0, mtu: 256, rnr_timer: 0, rnr_retries: 0, ..PEER };
    let last = QpPeer { peer_qpn: 0xff_ffff, psn: 0xff_ffff, peer_psn: 0xff_ffff, mtu: MTU, ..PEER };
    for (qpn, good) in (20..).zip([first, QpPeer { rnr_timer: 31, rnr_retries: 7, ..last }]) {
        make(&mut w, 0, qpn);
        assert_eq!(set(&mut w, QpPeer { qpn, ..good }), CMD_OK);
        w.established(0, qpn);
    }
    // A card knows no more peers than it has places for.
    for i in 0..8 {
        make(&mut w, 0, 30 + i);
        let status = set(&mut w, QpPeer { qpn: 30 + i, ipv4: NOBODY + i, ..PEER });
        assert_eq!(status, if i < 7 { CMD_OK } else { CMD_FULL });
    }
}

#[test]
fn qp_7_a_card_without_an_address_has_no_peers() {
    let mut w = World::new(1, 21);
    let a = make(&mut w, 0, 16);
    *w.nodes[0].card = berth_protocol::Card::new();
    assert_eq!((set(&mut w, PEER), state(&w, &a)), (CMD_INVALID, 0));
}

#[test]
fn qp_18_two_queue_pairs_of_a_card_may_be_each_others_foreign_peers() {
    let mut w = World::new(1, 22);
    let users = [16, 17].map(|qpn| make(&mut w, 0, qpn));
    for (user, other) in [(&users[0], 17), (&users[1], 16)] {
        let peer = QpPeer { qpn: user.qpn, ipv4: w.nodes[0].ip, peer_qpn: other, ..PEER };
        assert_eq!(set(&mut w, peer), CMD_OK);
        assert_eq!(state(&w, user), CONNECTED, "at once");
        assert_eq!(send::Mode::from_word(word(&w, user, TX, send::MODE)).loopback, 1);
        assert_eq!((word(&w, user, RX, recv::IP), word(&w, user, RX, recv::MAC)), (0x0a00_0001, 1));
        w.established(0, user.qpn);
    }
    assert_eq!(asked(&w), 0);
}

/// The host's own neighbour table says where a peer is, so that the card needs no ARP.
#[test]
fn qp_7_a_foreign_peer_whose_address_the_host_knows_is_not_asked_for() {
    const MAC: [u8; 6] = [2, 3, 4, 5, 6, 7];
    let mut w = World::new(1, 26);
    let a = make(&mut w, 0, 16);
    let peer = QpPeer { ipv4: NOBODY, timeout: 40_000, retries: 3, reads: 2, ..PEER };
    assert_eq!(set(&mut w, peer.with_mac(MAC)), CMD_OK);
    assert_eq!(state(&w, &a), CONNECTED, "at once");
    w.established(0, 16);
    assert_eq!(asked(&w), 0);
    assert_eq!(word(&w, &a, RX, recv::MAC), 0x0405_0607);
    // Three is what the QP was made for.
    assert_eq!(send::Mode::from_word(word(&w, &a, TX, send::MODE)).reads, 2);
    // While the peer has a connection another address is not believed; nor is none.
    for (qpn, peer) in [(17, peer.with_mac([2, 0, 0, 0, 0, 9])), (18, peer)] {
        let b = make(&mut w, 0, qpn);
        assert_eq!(set(&mut w, QpPeer { qpn, ..peer }), CMD_OK);
        w.established(0, qpn);
        assert_eq!(word(&w, &b, RX, recv::MAC), 0x0405_0607);
    }
    assert_eq!(asked(&w), 0);
}

/// As verbs have it: ready to receive first, ready to send later.
#[test]
fn qp_7_a_queue_pair_may_receive_before_it_may_send() {
    let mut w = World::new(2, 27);
    let a = make(&mut w, 0, 16);
    let first = QpPeer { receives_only: true, psn: 0, timeout: 0, reads: 0, rnr_retries: 0, ..PEER };
    assert_eq!(set(&mut w, first), CMD_OK);
    w.established(0, 16);
    assert_eq!(state(&w, &a), CONNECTED);
    assert_eq!(word(&w, &a, RX, recv::PSN), PEER.peer_psn);
    // Not for another peer, not once more, and not while something of its sends is there.
    let wrong = [first, QpPeer { peer_qpn: 5, ..PEER }, QpPeer { ipv4: NOBODY, ..PEER }];
    for peer in wrong {
        assert_eq!(set(&mut w, peer), CMD_BUSY, "{peer:?}");
    }
    let reads = &mut w.nodes[0].hw.fast.reads;
    reads.insert((TX, a.qpn, send::HELD), send::Held { queued: 1, ..send::Held::default() }.word());
    assert_eq!(set(&mut w, PEER), CMD_BUSY);
    w.nodes[0].hw.fast.reads.remove(&(TX, a.qpn, send::HELD));
    let starts = |w: &World| commands(w, &a, TX).iter().filter(|c| **c == send::CMD_START).count();
    assert_eq!(starts(&w), 1);
    let second = QpPeer { timeout: 40_000, retries: 3, reads: 2, ..PEER };
    assert_eq!(set(&mut w, second), CMD_OK);
    assert_eq!((starts(&w), word(&w, &a, TX, send::PSN)), (2, PEER.psn));
    assert_eq!(send::Mode::from_word(word(&w, &a, TX, send::MODE)).reads, 2);
    assert_eq!(set(&mut w, second), CMD_BUSY);
    // Also while the peer's address is still asked for.
    w.hold[1] = true;
    let b = make(&mut w, 0, 17);
    let peer = |of: QpPeer| QpPeer { qpn: 17, ipv4: NOBODY, ..of };
    assert_eq!((set(&mut w, peer(first)), set(&mut w, peer(second))), (CMD_OK, CMD_OK));
    assert_eq!(state(&w, &b), CONNECTING);
    w.destroy(&b);
    assert_told_nothing(&w);
}

#[test]
fn qp_7_a_foreign_peer_that_nobody_is_cannot_be_reached() {
    let mut w = World::new(2, 23);
    let a = make(&mut w, 0, 16);
    assert_eq!(set(&mut w, QpPeer { ipv4: NOBODY, ..PEER }), CMD_OK);
    assert_eq!(w.closed(0, 16), REASON_UNREACHABLE);
    assert_eq!((asked(&w), w.counter(0, F_PEERS_LOST)), (6, 1));
    w.destroy(&a);
    assert_told_nothing(&w);
}

#[test]
fn qp_7_a_queue_pair_may_end_while_its_peers_address_is_asked_for() {
    for destroyed in [false, true] {
        let mut w = World::new(2, 24);
        let a = make(&mut w, 0, 16);
        w.hold[1] = true;
        assert_eq!(set(&mut w, PEER), CMD_OK);
        w.run(100_000);
        if destroyed {
            w.destroy(&a);
        } else {
            assert_eq!(w.command(0, Disconnect { qpn: 16 }.encode()).status, CMD_OK);
            assert_eq!(w.closed(0, 16), REASON_LOCAL_CLOSE);
        }
        // The answer comes too late, for it and not for the next one.
        w.hold[1] = false;
        w.release(1, 10);
        w.run(1_000_000);
        assert_eq!(w.nodes[0].hw.take(|_: &CmEstablished| true), None);
        let b = make(&mut w, 0, 17);
        assert_eq!(set(&mut w, QpPeer { qpn: 17, ..PEER }), CMD_OK);
        w.established(0, 17);
        assert_eq!(state(&w, &b), CONNECTED);
        assert_told_nothing(&w);
    }
}

#[test]
fn qp_7_an_address_that_nobody_uses_any_more_is_asked_for_anew() {
    let (mut w, a) = foreign(25);
    let b = make(&mut w, 0, 17);
    assert_eq!(set(&mut w, QpPeer { qpn: 17, ..PEER }), CMD_OK);
    assert_eq!((state(&w, &b), asked(&w)), (CONNECTED, 1), "another one has it");
    for user in [&a, &b] {
        w.destroy(user);
    }
    let c = make(&mut w, 0, 18);
    assert_eq!(set(&mut w, QpPeer { qpn: 18, ..PEER }), CMD_OK);
    assert_eq!(state(&w, &c), CONNECTING);
    w.established(0, 18);
    assert_eq!(asked(&w), 2);
}

#[test]
fn qp_7_a_foreign_peer_without_a_receive_is_tried_again_when_it_has_said() {
    let (mut w, a) = foreign(26);
    for (n, timer) in (1..).zip([1, 14, 31, 0]) {
        // Each for a packet of its own.
        rnr(&mut w, &a, timer, n as u32);
        w.run(rnr_cycles(timer as u8).saturating_sub(7000));
        let tries = |w: &World| commands(w, &a, TX).iter().filter(|c| **c == send::CMD_GO_ON).count();
        assert_eq!(tries(&w), n - 1, "{timer}");
        w.run(7000 + 3000);
        assert_eq!(tries(&w), n, "{timer}");
    }
    assert_eq!((rnr_cycles(1), rnr_cycles(0)), (2500, NOT_YET), "10 us, and the longest");
    // No memory was waited for, and no time-out counts meanwhile.
    assert_eq!(w.counter(0, F_MEMORY_WAITS), 0);
    rnr(&mut w, &a, 31, 9);
    (0..2 * RETRIES).for_each(|_| event(&mut w, &a, EVENT_TIMEOUT, 0));
    assert_eq!((w.counter(0, F_TIMEOUTS), state(&w, &a)), (0, CONNECTED));
}

#[test]
fn qp_7_a_foreign_peer_that_never_has_a_receive_fails_the_send() {
    for retries in 0..8 {
        let mut w = World::new(2, 30 + u64::from(retries));
        let a = make(&mut w, 0, 16);
        assert_eq!(set(&mut w, QpPeer { rnr_retries: retries, ..PEER }), CMD_OK);
        w.established(0, 16);
        // Progress begins the count anew.
        for psn in [5, 6] {
            for _ in 0..retries {
                rnr(&mut w, &a, 1, psn);
                w.run(10_000);
            }
        }
        if retries == 7 {
            (0..50).for_each(|_| rnr(&mut w, &a, 1, 6));
            assert_eq!(state(&w, &a), CONNECTED, "for ever");
            continue;
        }
        assert_eq!(state(&w, &a), CONNECTED);
        rnr(&mut w, &a, 1, 6);
        assert_eq!(w.failed(0, 16), REASON_SEND_FAILED);
        assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_RNR_RETRY), "{retries}");
        assert_eq!(*commands(&w, &a, RX).last().unwrap(), end_of(RX, WC_FLUSHED));
        assert_eq!(state(&w, &a), ERROR);
        assert_told_nothing(&w);
    }
}

#[test]
fn a_berth_that_says_that_it_has_no_receive_breaks_the_protocol() {
    let (mut w, a, _) = pair(40);
    rnr(&mut w, &a, 14, 7);
    assert_eq!(w.failed(0, a.qpn), REASON_PROTOCOL);
}

/// Two cards with a connection of Berth's, and a foreign peer of card 0 on the other host.
fn both(seed: u64) -> (World, User, User) {
    let (mut w, a) = foreign(seed);
    let from = w.create_qp(0, 20, ASID, |_| ());
    let to = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&from, &to, 7);
    (w, a, from)
}

#[test]
fn qp_17_what_ends_berths_connections_ends_those_that_were_set_with_it() {
    // The other card is gone, or begins anew.
    for restarts in [false, true] {
        let (mut w, a, from) = both(41);
        if restarts {
            w.restart(1);
            w.create_qp(1, 30, ASID, |_| ());
            let connect = Connect { qpn: 30, ipv4: w.nodes[0].ip, service: 7, ..Connect::default() };
            w.command(1, connect.encode());
        } else {
            w.nodes[1].dead = true;
        }
        for user in [&a, &from] {
            assert_eq!(w.failed(0, user.qpn), REASON_PEER_LOST);
        }
    }
}

#[test]
fn qp_7_a_berths_control_connection_ends_without_those_that_were_set() {
    let (mut w, a, from) = both(42);
    w.command(0, Disconnect { qpn: from.qpn }.encode());
    w.closed(0, from.qpn);
    w.run(10 * KEEPALIVE);
    let sent = w.counter(0, F_CONTROL_SENT);
    w.run(10 * KEEPALIVE);
    assert_eq!((w.counter(0, F_CONTROL_SENT), state(&w, &a)), (sent, CONNECTED), "nobody is kept alive");
}

#[test]
fn inv_6_a_request_to_a_host_that_is_no_berth_ends_no_connection_that_was_set() {
    let (mut w, a) = foreign(43);
    // It takes no control messages.
    w.deaf[0] = true;
    let other = w.create_qp(0, 20, ASID, |_| ());
    let connect = Connect { qpn: other.qpn, ipv4: PEER.ipv4, service: 7, ..Connect::default() };
    assert_eq!(w.command(0, connect.encode()).status, CMD_OK);
    assert_eq!(w.closed(0, other.qpn), REASON_UNREACHABLE);
    w.run(10 * KEEPALIVE);
    assert_eq!(state(&w, &a), CONNECTED);
    assert_eq!(w.nodes[0].hw.take(|_: &QpError| true), None);
    // Nor does a host that turns out to be one.
    w.deaf[0] = false;
    w.command(1, Listen { service: 8 }.encode());
    let [from, to] = [(0, 22), (1, 23)].map(|(node, qpn)| w.create_qp(node, qpn, ASID, |_| ()));
    w.connect(&from, &to, 8);
    assert_eq!((state(&w, &a), state(&w, &from)), (CONNECTED, CONNECTED));
    assert_eq!(w.nodes[0].hw.take(|_: &CmClosed| true), None);
}

#[test]
fn qp_7_a_foreign_peer_does_not_answer() {
    let (mut w, a) = foreign(44);
    for _ in 0..=RETRIES {
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        w.run(1_000_000_000);
    }
    assert_eq!(w.failed(0, 16), REASON_PEER_LOST);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_RETRY_EXCEEDED));
    assert_eq!(w.command(0, QpDestroy { qpn: 16 }.encode()).status, CMD_OK);
    assert_told_nothing(&w);
}
