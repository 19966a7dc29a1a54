// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single behaviours of connections and errors between two model cards.

mod common;
use berth_abi::card::MAX_READS;
use berth_abi::counters::*;
use berth_abi::message::{
    Accept, CODE, CmClosed, CmRequest, Connect, CqCreate, CqDestroy, Disconnect, Entry, Listen, NetConfig, QpCreate,
    QpDestroy, QpQuery, Reject, Typed, Unlisten,
};
use berth_abi::ring::*;
use berth_abi::rows::{ROW_CLOCK, recv, send};
use berth_abi::status::*;
use berth_abi::wire::*;
use berth_protocol::card::limits::CONTROL_RETRIES;
use berth_protocol::model::{Rng, User, World};
use common::*;

const FREE: u8 = 0;
const CONNECTED: u8 = 3;

fn finish(mut w: World, users: &[&User]) {
    for user in users {
        if w.nodes[user.node].card.state_of(user.qpn) != FREE {
            w.destroy(user);
        }
    }
    w.run(100_000_000);
    assert!(w.nodes.iter().all(|node| node.card.qps_in_use() == 0));
}

#[test]
fn qp_17_a_request_is_rejected_with_private_data() {
    let mut w = World::new(2, 11);
    let a = w.create_qp(0, 16, ASID, |_| ());
    w.command(1, Listen { service: 5 }.encode());
    let ip = w.nodes[1].ip;
    let private = |first: u32| [first, 0, 0, 0, 0, 0, 0, 0];
    let connect = Connect { qpn: 16, ipv4: ip, service: 5, private_len: 4, private: private(0xabcd) };
    w.command(0, connect.encode());
    let request = w.requested(1);
    let expected = CmRequest { ipv4: w.nodes[0].ip, service: 5, private_len: 4, private: private(0xabcd), ..request };
    assert_eq!(request, expected);
    let CmRequest { request, .. } = request;
    w.command(1, Reject { request, reason: 0, private_len: 3, private: private(0x1234) }.encode());
    let closed = w.event(0, |e: &CmClosed| e.qpn == 16);
    let expected = CmClosed { qpn: 16, reason: REASON_REJECTED, private_len: 3, private: private(0x1234) };
    assert_eq!(closed, expected);
    // The request is used up.
    assert_eq!(w.command(1, Reject { request, ..Reject::default() }.encode()).status, CMD_NOT_FOUND);
    finish(w, &[&a]);
}

#[test]
fn qp_17_nobody_listens() {
    let mut w = World::new(2, 12);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let ip = w.nodes[1].ip;
    w.command(0, Connect { qpn: 16, ipv4: ip, service: 5, ..Connect::default() }.encode());
    assert_eq!(w.closed(0, 16), REASON_NO_LISTENER);
    finish(w, &[&a]);
}

#[test]
fn qp_17_nobody_has_the_address() {
    let mut w = World::new(2, 13);
    let a = w.create_qp(0, 16, ASID, |_| ());
    w.command(0, Connect { qpn: 16, ipv4: 0x0a00_0063, service: 5, ..Connect::default() }.encode());
    assert_eq!(w.closed(0, 16), REASON_UNREACHABLE);
    finish(w, &[&a]);
}

#[test]
fn qp_17_a_request_can_be_taken_back() {
    let mut w = World::new(2, 14);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.command(1, Listen { service: 5 }.encode());
    let ip = w.nodes[1].ip;
    w.command(0, Connect { qpn: 16, ipv4: ip, service: 5, ..Connect::default() }.encode());
    let request = w.requested(1).request;
    w.command(0, Disconnect { qpn: 16 }.encode());
    w.closed(0, 16);
    // Accepting it now ends in a closed connection, or the request is gone already.
    if w.command(1, Accept { request, qpn: 17, ..Accept::default() }.encode()).status == CMD_OK {
        assert_eq!(w.closed(1, 17), REASON_PEER_CLOSE);
    }
    finish(w, &[&a, &b]);
}

#[test]
fn qp_17_disconnect_reaches_the_peer_and_flushes_both() {
    let (mut w, a, b) = pair(15);
    w.command(0, Disconnect { qpn: a.qpn }.encode());
    assert_eq!(w.closed(0, a.qpn), REASON_LOCAL_CLOSE);
    assert_eq!(w.closed(1, b.qpn), REASON_PEER_CLOSE);
    for user in [&a, &b] {
        // START, then END: RTL flushes what is posted, and what will be.
        let expected = [[send::CMD_START, end_of(TX, WC_FLUSHED)], [recv::CMD_START, end_of(RX, WC_FLUSHED)]];
        assert_eq!([commands(&w, user, TX), commands(&w, user, RX)], expected);
        assert!(w.nodes[user.node].hw.fast.bells.contains(&user.qpn));
    }
    finish(w, &[&a, &b]);
}

/// Nothing was connected, and what is posted must end all the same: RTL gets the rows ended, and only then the doorbell.
#[test]
fn qp_17_a_connection_that_did_not_come_about_is_flushed_by_rtl() {
    let mut w = World::new(2, 40);
    let a = w.create_qp(0, 16, ASID, |_| ());
    w.ring(&a, 3, 5);
    let ip = w.nodes[1].ip;
    w.command(0, Connect { qpn: 16, ipv4: ip, service: 5, ..Connect::default() }.encode());
    w.closed(0, 16);
    let expected = [[send::CMD_START, end_of(TX, WC_FLUSHED)], [recv::CMD_START, end_of(RX, WC_FLUSHED)]];
    assert_eq!([commands(&w, &a, TX), commands(&w, &a, RX)], expected);
    let hw = &w.nodes[0].hw;
    assert!(hw.fast.bells.contains(&a.qpn));
    let word = |word| hw.fast.words[&(RX, 16, word)];
    assert_eq!((word(recv::PI), word(recv::IP)), (5, 0), "receives so far; nobody's frames");
    // It stays until RTL is done with it.
    w.nodes[0].hw.fast.reads.insert((TX, 16, send::HELD), send::Held { busy: 1, ..Default::default() }.word());
    let cookie = w.post_command(0, QpDestroy { qpn: 16 }.encode());
    let answered = |w: &World| w.answer(0, cookie).is_some();
    w.run(1_000_000);
    assert!(!answered(&w));
    w.nodes[0].hw.fast.reads.clear();
    w.run(10_000_000);
    assert!(answered(&w));
}

#[test]
fn a_queue_pair_that_is_destroyed_before_its_connection_is_none_of_rtls() {
    let mut w = World::new(2, 41);
    let a = w.create_qp(0, 16, ASID, |_| ());
    w.ring(&a, 3, 5);
    w.destroy(&a);
    assert_eq!([commands(&w, &a, TX), commands(&w, &a, RX)], [[0; 0]; 2]);
    assert_eq!(w.nodes[0].hw.told::<CmClosed>().count(), 0);
}

#[test]
fn qp_17_a_vanished_peer_is_noticed_though_there_is_no_credit() {
    let (mut w, a, _) = pair(16);
    w.run(1_000_000);
    w.nodes[1].dead = true;
    let from = w.now;
    let error = w.failed(0, a.qpn);
    assert_eq!(error, REASON_PEER_LOST);
    // Bounded: a quarter of a second until it is asked, and half a second until it counts as lost.
    assert!(w.now - from < 250_000_000, "{}", w.now - from);
    assert!(!data_frames(&w, 0).is_empty(), "its connections are asked first (decision 26)");
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, end_of(TX, WC_RETRY_EXCEEDED)]);
    assert_eq!(w.counter(0, F_PEERS_LOST), 1);
    w.destroy(&a);
}

#[test]
fn qp_17_a_restarted_peer_ends_its_old_connections_and_new_ones_work() {
    let (mut w, a, _) = pair(17);
    w.restart(1);
    let b = w.create_qp(1, 17, ASID, |_| ());
    let c = w.create_qp(0, 18, ASID, |_| ());
    // The restarted card connects to the one that remembers it.
    w.connect(&b, &c, 3);
    assert_eq!(w.failed(0, a.qpn), REASON_PEER_LOST);
    finish(w, &[&a, &b, &c]);
}

#[test]
fn qp_17_a_restart_is_noticed_by_the_keepalive() {
    let (mut w, a, _) = pair(18);
    w.restart(1);
    assert_eq!(w.failed(0, a.qpn), REASON_PEER_LOST);
    finish(w, &[&a]);
}

#[test]
fn a_wild_producer_index_before_the_connection_is_an_error_of_that_qp() {
    let mut w = World::new(1, 31);
    // Too many, and backwards.
    for (qpn, rings) in
        [(16, [(1, 1), (65, 1)]), (17, [(1, 1), (1, 65)]), (18, [(4, 4), (3, 4)]), (19, [(4, 4), (4, 3)])]
    {
        let a = w.create_qp(0, qpn, ASID, |_| ());
        w.ring(&a, rings[0].0, rings[0].1);
        w.run(10_000);
        w.ring(&a, rings[1].0, rings[1].1);
        assert_eq!(w.failed(0, qpn), REASON_BAD_INDEX);
        assert_eq!(w.counter(0, F_BAD_INDEX), u64::from(qpn - 15));
        assert_eq!(
            w.nodes[0].hw.fast.words[&(RX, qpn, recv::PI)],
            rings[0].1.into(),
            "what was posted well is flushed"
        );
        w.destroy(&a);
    }
    let full = w.create_qp(0, 20, ASID, |_| ());
    w.ring(&full, 64, 64);
    w.run(10_000);
    assert_eq!(w.counter(0, F_BAD_INDEX), 4);
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
    if matches!(opcode, BTH_SEND_LAST_IMM | BTH_SEND_ONLY_IMM | BTH_ACKNOWLEDGE | BTH_SELECTIVE_ACKNOWLEDGE) {
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
fn invariant_6_garbage_frames_change_nothing_else() {
    for seed in 0..6u64 {
        println!("seed {seed}");
        let (mut w, a, b) = pair(300 + seed);
        // The victim of the garbage, and a connection that must not notice.
        let c = w.create_qp(0, 30, ASID, |_| ());
        let d = w.create_qp(1, 31, ASID, |_| ());
        w.connect(&c, &d, 8);
        let mut rng = Rng(seed);
        for _ in 0..400 {
            w.run(5_000);
            let len = rng.below(1100) as usize;
            let payload: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
            let mut f = forge(&w, d.qpn, rng.draw() as u8, rng.draw() as u32 & 0xff_ffff, &payload);
            match rng.below(6) {
                0 => {
                    f[42] = [
                        BTH_SEND_FIRST,
                        BTH_SEND_MIDDLE,
                        BTH_SEND_LAST_IMM,
                        BTH_SEND_ONLY_IMM,
                        BTH_ACKNOWLEDGE,
                        BTH_SEND_ONLY,
                        BTH_SELECTIVE_ACKNOWLEDGE,
                    ][rng.below(7) as usize]
                }
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
        w.run(10_000_000);
        for user in [&a, &b] {
            assert_eq!(w.nodes[user.node].card.state_of(user.qpn), CONNECTED);
            assert_rows_untouched(&w, user);
        }
        finish(w, &[&a, &b, &c, &d]);
    }
}

#[test]
fn a_full_event_ring_delays_answers_and_loses_none() {
    let (mut w, a, b) = pair(35);
    w.nodes[1].hw.event_room = w.nodes[1].hw.events.len() as u32;
    w.command(0, Disconnect { qpn: a.qpn }.encode());
    let cookies: Vec<u32> = (0..30).map(|_| w.post_command(1, QpQuery { qpn: b.qpn }.encode())).collect();
    w.run(10_000_000);
    w.nodes[1].hw.event_room = u32::MAX;
    w.run(10_000_000);
    for cookie in cookies {
        assert!(w.answer(1, cookie).is_some());
    }
    assert!(w.nodes[1].hw.told().any(|e: CmClosed| e.qpn == b.qpn));
    finish(w, &[&a, &b]);
}

#[test]
fn commands_with_bad_fields_are_refused_by_name() {
    let (mut w, a, b) = pair(36);
    let mut check = |entry: Entry, status: u32| assert_eq!(w.command(0, entry).status, status, "{entry:x?}");
    check(blank(UNKNOWN), CMD_UNKNOWN);
    check(
        NetConfig { ipv4: 0x0a00_0009, mac_first: 0x0200_0000, mac_last: 9, mtu: 1024, ..NetConfig::default() }
            .encode(),
        CMD_BUSY,
    );
    check(
        NetConfig { ipv4: 0x0a00_0001, mac_first: 0x0100_0000, mtu: 1024, ..NetConfig::default() }.encode(),
        CMD_INVALID,
    );
    check(CqCreate { log2_entries: 4, ..CqCreate::default() }.encode(), CMD_BUSY);
    check(CqCreate { cqn: 64, log2_entries: 4, ..CqCreate::default() }.encode(), CMD_INVALID);
    check(CqDestroy { cqn: 9 }.encode(), CMD_NOT_FOUND);
    check(CqDestroy::default().encode(), CMD_BUSY);
    check(QpCreate { qpn: 16, ..QpCreate::default() }.encode(), CMD_INVALID);
    let qp = |qpn| QpCreate { qpn, asid: ASID, log2_sq: 2, recv_cqn: 1, ..QpCreate::default() };
    check(QpCreate { qpn: 5, asid: ASID, ..QpCreate::default() }.encode(), CMD_INVALID);
    check(qp(16).encode(), CMD_BUSY);
    check(QpCreate { block: 100, ..qp(18) }.encode(), CMD_INVALID);
    check(QpCreate { reads: MAX_READS as u8 + 1, ..qp(18) }.encode(), CMD_INVALID);
    check(QpCreate { peer_reads: 255, ..qp(18) }.encode(), CMD_INVALID);
    check(QpDestroy { qpn: 40 }.encode(), CMD_NOT_FOUND);
    check(Listen { service: 0x1_0000 }.encode(), CMD_INVALID);
    check(Unlisten { service: 77 }.encode(), CMD_NOT_FOUND);
    check(Connect { qpn: 16, ipv4: 0x0a00_0002, service: 1, ..Connect::default() }.encode(), CMD_BUSY);
    check(Connect { qpn: 20, ipv4: 0x0a00_0002, service: 1, ..Connect::default() }.encode(), CMD_NOT_FOUND);
    check(Accept { request: 12345, qpn: 16, ..Accept::default() }.encode(), CMD_NOT_FOUND);
    check(QpQuery { qpn: 12345 }.encode(), CMD_NOT_FOUND);
    assert!(w.counter(0, F_BAD_COMMAND) >= 19);
    finish(w, &[&a, &b]);
}

#[test]
fn random_commands_never_panic() {
    // Revocations would make the model's page service wait for their answers.
    let not = [CMD_RANGE_REVOKED, CMD_CRASH];
    let all = CMD_TABLE.iter().map(|row| row.1 as u32);
    let opcodes: Vec<u32> = all.filter(|opcode| *opcode >= CMD_FIRST_FW && !not.contains(opcode)).collect();
    for seed in 0..20u64 {
        println!("seed {seed}");
        let (mut w, a, b) = pair(400 + seed);
        let mut rng = Rng(seed);
        for _ in 0..200 {
            let mut entry: Entry = core::array::from_fn(|_| match rng.below(4) {
                0 => 0,
                1 => rng.below(80) as u32,
                2 => rng.draw() as u32,
                _ => rng.below(4) as u32,
            });
            entry[CODE] = opcodes[rng.below(opcodes.len() as u64) as usize];
            if QpCreate::of(&entry).is_none_or(|qp| qp.qpn != a.qpn) {
                w.post_command(0, entry);
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

/// Data connections whose control connection carries nothing, for ten times as long as that has patience: they go on as
/// long as RTL hears the peer, answers to probes included.
#[test]
fn decision_6_lost_control_frames_do_not_end_connections() {
    let (mut w, a, b) = pair(39);
    w.deaf = [true, true];
    // Both have something to say to each other: a connection that cannot come about.
    let c = w.create_qp(1, 50, ASID, |_| ());
    let ip = w.nodes[0].ip;
    w.command(1, Connect { qpn: 50, ipv4: ip, service: 5, ..Connect::default() }.encode());
    let (end, mut seen) = (w.now + 2_500_000_000, 0);
    while w.now < end {
        w.run(1_000_000);
        // A duplicate is acknowledged by RTL: both ends have heard each other.
        let probes = data_frames(&w, 0).len() + data_frames(&w, 1).len();
        if probes != seen {
            seen = probes;
            for user in [&a, &b] {
                let clock = (w.now / u64::from(ROW_CLOCK)) as u32;
                w.nodes[user.node].hw.fast.reads.insert((RX, user.qpn, recv::HEARD), clock);
            }
        }
    }
    assert!(seen > 0 && w.counter(1, F_CONTROL_RETRANSMITTED) > u64::from(CONTROL_RETRIES));
    assert_eq!((w.counter(0, F_PEERS_LOST), w.counter(1, F_PEERS_LOST)), (0, 0));
    for user in [&a, &b] {
        assert_eq!(w.nodes[user.node].card.state_of(user.qpn), CONNECTED);
    }
    w.deaf = [false, false];
    assert_eq!(w.closed(1, 50), REASON_NO_LISTENER);
    finish(w, &[&a, &b, &c]);
}

/// A peer that cannot do what RTL wants of both ends (selective repeat, lists as datagrams) is told so at once; one that
/// says so only in its answer has no connection either.
#[test]
fn qp_17_an_end_that_cannot_do_what_rtl_does_is_refused() {
    for bit in [0x40, 0x80] {
        for answer in [false, true] {
            let mut w = World::new(2, 42);
            w.edit = Some(match (bit, answer) {
                (0x40, false) => |_, f| without(f, 2, 0x40),
                (0x40, true) => |_, f| without(f, 3, 0x40),
                (_, false) => |_, f| without(f, 2, 0x80),
                (_, true) => |_, f| without(f, 3, 0x80),
            });
            let a = w.create_qp(0, 16, ASID, |_| ());
            let b = w.create_qp(1, 17, ASID, |_| ());
            w.command(1, Listen { service: 5 }.encode());
            let ip = w.nodes[1].ip;
            w.command(0, Connect { qpn: 16, ipv4: ip, service: 5, ..Connect::default() }.encode());
            if answer {
                let request = w.requested(1).request;
                assert_eq!(w.command(1, Accept { request, qpn: 17, ..Accept::default() }.encode()).status, CMD_OK);
                assert_eq!(w.closed(1, 17), REASON_PEER_CLOSE);
            } else {
                assert_eq!(w.closed(0, 16), REASON_REJECTED);
                assert_eq!(w.nodes[1].hw.told::<CmRequest>().count(), 0, "the host is not asked");
            }
            finish(w, &[&a, &b]);
        }
    }
}

/// Takes a bit of the mode out of the requests (2) or answers (3) of a control message.
fn without(f: &mut [u8], record: u8, bit: u8) {
    if f[12..14] != [8, 0] || f[47..50] != [0, 0, 2] || f[42] != 4 {
        return;
    }
    let end = f.len() - (f[43] >> 4 & 3) as usize;
    let mut at = 54 + 12;
    while at + 4 <= end {
        if f[at] == record {
            f[at + 4 * 5 + 2] &= !bit;
        }
        at += 4 * f[at + 1].max(1) as usize;
    }
}

/// What RTL cannot read: a send queue of fewer than four elements, or one that does not begin a page, or a queue that is too deep.
#[test]
fn a_queue_that_rtl_cannot_read_is_refused() {
    let mut w = World::new(1, 43);
    for (log2_sq, log2_rq, at, status) in [
        (2, 0, 0, CMD_OK),
        (1, 0, 0, CMD_INVALID),
        (13, 0, 0, CMD_INVALID),
        (2, 13, 0, CMD_INVALID),
        (6, 6, 128, CMD_INVALID),
        (12, 12, 0, CMD_OK),
    ] {
        let (sq_base, rq_base) = (0x10_0000 + at, 0x20_0080);
        let depths = QpCreate { log2_sq, log2_rq, ..QpCreate::default() };
        let qp = QpCreate { qpn: 16, asid: ASID, recv_cqn: 1, sq_base, rq_base, ..depths };
        assert_eq!(w.command(0, qp.encode()).status, status, "{log2_sq} {log2_rq} {at}");
        if status == CMD_OK {
            w.command(0, QpDestroy { qpn: 16 }.encode());
        }
    }
}
