// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer may say on the control connection that it should not, and answers of engines that nobody asked for:
//! each has a defined end, and it is counted.

mod common;
use berth_abi::card::MAX_READS;
use berth_abi::counters::*;
use berth_abi::message::{
    Accept, CmRequest, CmRequestOver, Connect, CqDestroy, Crash, Disconnect, Entry, Listen, NetConfig, QpDestroy,
    QpError, QpQuery, RangeRevoked, Reject, Unlisten,
};
use berth_abi::ring::{CRASH_PANIC, MODE_MESSAGE, QpState};
use berth_abi::rows::event::EVENT_TIMEOUT;
use berth_abi::status::*;
use berth_protocol::Card;
use berth_protocol::model::{Rng, User, World};
use berth_protocol::wire::net::checksum;
use berth_protocol::wire::records::*;
use common::*;

/// State of a QP (`Card::state_of`).
const CONNECTED: u8 = 3;

/// The last control message that card 0 sent, as words, and its frame.
fn last_message(w: &World) -> (Vec<u32>, Vec<u8>) {
    let frame = w.wire.iter().rev().find(|(i, f)| *i == 0 && f[12..14] == [8, 0] && f[42] == 4).unwrap().1.clone();
    let words = frame[54..].chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    (words, frame)
}

/// Sends a control message to card 1 in the name of card 0: `head` changes its three header words, `psn` is counted
/// from the one that card 1 expects.
fn say(w: &mut World, records: &[u32], psn: u32, head: impl FnOnce(&mut [u32])) {
    let (words, mut frame) = last_message(w);
    let last = u32::from_be_bytes([0, frame[51], frame[52], frame[53]]);
    let mut message = vec![words[0], words[1], VERSION | ((3 + records.len() as u32) << 16)];
    message.extend(records);
    head(&mut message);
    frame.truncate(54);
    frame[51..54].copy_from_slice(&(last + 1 + psn).to_be_bytes()[1..]);
    frame.extend(message.iter().flat_map(|w| w.to_le_bytes()));
    send(w, frame);
}

/// Makes the frame's lengths and checksum right and gives it to card 1.
fn send(w: &mut World, mut frame: Vec<u8>) {
    let total = (frame.len() - 14 + 4) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    w.inject(1, frame);
    w.run(200_000);
}

fn bad(w: &World) -> u64 {
    w.counter(1, F_CONTROL_BAD)
}

fn end(w: &mut World) {
    w.nodes[0].dead = true;
    for i in 16..60 {
        if w.nodes[1].card.state_of(i) != 0 {
            w.command(1, QpDestroy { qpn: i }.encode());
        }
    }
    w.run(400_000_000);
    assert_eq!(w.nodes[1].card.qps_in_use(), 0);
}

#[test]
fn invariant_6_messages_with_a_bad_header_are_counted_and_dropped() {
    let (mut w, ..) = pair(700);
    let before = bad(&w);
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[0] = 0);
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[2] = m[2] & !0xff | 9);
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[2] += 1 << 16);
    assert_eq!(bad(&w), before + 3);
    // Too short, and not whole words.
    for len in [8, 14] {
        let (_, mut frame) = last_message(&w);
        frame.truncate(54);
        frame.resize(54 + len, 0);
        frame[43] = 0;
        if len == 14 {
            frame.resize(54 + 16, 0);
            frame[43] = 2 << 4;
        }
        send(&mut w, frame);
    }
    assert_eq!(bad(&w), before + 5);
    end(&mut w);
}

#[test]
fn invariant_6_strangers_and_wrong_incarnations_change_nothing() {
    let (mut w, ..) = pair(701);
    let strange = |w: &World| w.counter(1, F_NOT_FOR_US);
    let before = strange(&w);
    // Somebody whom we do not know, in the middle of a conversation.
    let (_, mut frame) = last_message(&w);
    frame[29] = 77;
    frame[58..62].fill(0);
    frame[62..66].copy_from_slice(&(VERSION | 4 << 16).to_le_bytes());
    frame.truncate(66);
    frame.extend(record(REC_KEEPALIVE, 1, 0).to_le_bytes());
    send(&mut w, frame);
    assert_eq!(strange(&w), before + 1);
    // From another incarnation that does not begin; to another one of ours: that is answered.
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[0] ^= 1);
    assert_eq!(strange(&w), before + 2);
    let sent = w.counter(1, F_CONTROL_SENT);
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[1] ^= 1);
    assert_eq!((strange(&w), w.counter(1, F_CONTROL_SENT)), (before + 3, sent + 1));
    end(&mut w);
}

#[test]
fn invariant_6_malformed_records_are_counted_and_those_before_them_hold() {
    let (mut w, _, b) = pair(702);
    let before = bad(&w);
    let epoch = epoch_of(&w, 1, b.qpn);
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0), record(99, 1, 0)], 0, |_| ());
    assert_eq!(bad(&w), before + 1);
    // Ends out of range: QPN 2, MTU 1000.
    let request = |qpn: u32, mtu: u32| {
        let mut r = vec![record(REC_REQ, 15, 0), qpn, 1, 2, 7, mtu | 0xc1 << 16, 64];
        r.resize(15, 0);
        r
    };
    say(&mut w, &request(2, 1024), 1, |_| ());
    say(&mut w, &request(30, 1000), 2, |_| ());
    let mut reply = vec![record(REC_REP, 15, b.qpn), epoch, 30, 1, 2, 1000 | 0xc1 << 16, 64];
    reply.resize(15, 0);
    say(&mut w, &reply, 3, |_| ());
    assert_eq!(bad(&w), before + 4);
    assert_eq!(w.nodes[1].hw.told().filter(|r: &CmRequest| r.request != 1).count(), 0, "none is offered");
    // A record for a QP that is not, and for another epoch: as late ones of connections that have ended.
    say(&mut w, &[record(REC_RTU, 2, 50), epoch], 4, |_| ());
    say(&mut w, &[record(REC_RTU, 2, b.qpn), epoch ^ 1], 5, |_| ());
    assert_eq!((bad(&w), w.counter(1, F_UNKNOWN_QP)), (before + 4, 2));
    // One that does not fit its state.
    say(&mut w, &[record(REC_REJ, 11, b.qpn), epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, |_| ());
    assert_eq!(bad(&w), before + 5);
    // A reply that comes too late: the peer is told to forget its end.
    let sent = w.counter(1, F_CONTROL_SENT);
    reply[5] = 1024 | 0xc1 << 16;
    say(&mut w, &reply, 7, |_| ());
    assert_eq!(w.counter(1, F_CONTROL_SENT), sent + 1);
    end(&mut w);
}

/// Lists come as datagrams only (decision 6).
#[test]
fn invariant_6_a_credit_list_in_a_control_message_is_counted_and_dropped() {
    let (mut w, _, b) = pair(703);
    let (before, epoch) = (bad(&w), epoch_of(&w, 1, b.qpn));
    let written = w.nodes[1].hw.fast.written.len();
    say(&mut w, &[record(REC_LIST, 5, b.qpn), epoch, 0, 10, 10], 0, |_| ());
    assert_eq!((bad(&w), w.nodes[1].hw.fast.written.len()), (before + 1, written));
    assert_eq!(w.nodes[1].card.state_of(b.qpn), CONNECTED);
    end(&mut w);
}

#[test]
fn invariant_6_an_answer_to_a_recall_that_was_not_made_changes_nothing() {
    let (mut w, _, b) = pair(704);
    let epoch = epoch_of(&w, 1, b.qpn);
    say(&mut w, &[record(REC_RECALLED, 3, b.qpn), epoch, 5], 0, |_| ());
    assert_eq!(w.counter(1, F_RECALLED), 0);
    assert_ne!(w.nodes[1].card.state_of(b.qpn), 0);
    end(&mut w);
}

/// A REQ of the end with QPN `qpn` for `service`.
fn request(qpn: u32, service: u32) -> Vec<u32> {
    let mut r = vec![record(REC_REQ, 15, 0), qpn, 100 + qpn, 2, service, 1024 | 0xc1 << 16, 64];
    r.resize(15, 0);
    r
}

#[test]
fn qp_17_more_requests_than_there_are_places_are_refused_and_hold_nothing_up() {
    let (mut w, ..) = pair(705);
    for service in 9..14 {
        w.command(1, Listen { service }.encode());
    }
    // No room in the event ring: requests wait.
    w.nodes[1].hw.event_room = w.nodes[1].hw.events.len() as u32;
    let starved = w.counter(1, F_TX_STARVED);
    for i in 0..5 {
        let records: Vec<u32> = (0..4).flat_map(|k| request(30 + 4 * i + k, 9 + i)).collect();
        say(&mut w, &records, i, |_| ());
    }
    // Twelve may wait, and those behind them are told: all messages are taken.
    assert_eq!((w.counter(1, F_TX_STARVED), w.counter(1, F_REQUESTS_BUSY)), (starved, 8));
    w.nodes[1].hw.event_room = u32::MAX;
    w.run(5_000_000);
    let offered = |w: &World| w.nodes[1].hw.told().filter(|e: &CmRequest| e.service >= 9).count();
    assert_eq!(offered(&w), 12);
    // The peer takes all back, then others have their places.
    for i in 0..3 {
        let records: Vec<u32> = (0..4)
            .flat_map(|k| {
                let qpn = 30 + 4 * i + k;
                [record(REC_DREQ, 5, 0), 0, qpn, 100 + qpn, REASON_PEER_CLOSE]
            })
            .collect();
        say(&mut w, &records, 5 + i, |_| ());
    }
    let records: Vec<u32> = (0..4).flat_map(|k| request(50 + k, 9)).collect();
    say(&mut w, &records, 8, |_| ());
    w.run(5_000_000);
    assert_eq!(offered(&w), 16);
    let CmRequest { request, .. } = w.nodes[1].hw.told().find(|e: &CmRequest| e.service == 9).unwrap();
    assert_eq!(
        w.command(1, Reject { request, ..Reject::default() }.encode()).status,
        CMD_NOT_FOUND,
        "it was taken back"
    );
    // The host was told, of those that it had, each once.
    let asked: Vec<u32> = w.nodes[1].hw.told().map(|e: CmRequest| e.request).collect();
    let over: Vec<u32> = w.nodes[1].hw.told().map(|e: CmRequestOver| e.request).collect();
    assert_eq!(over, asked[asked.len() - 16..][..12]);
    end(&mut w);
}

#[test]
fn qp_17_a_peer_that_takes_no_answers_waits_with_its_requests() {
    let (mut w, ..) = pair(718);
    w.nodes[0].dead = true;
    let starved = w.counter(1, F_TX_STARVED);
    for i in 0..16 {
        let records: Vec<u32> = (0..4).flat_map(|k| request(30 + 4 * i + k, 99)).collect();
        say(&mut w, &records, i.min(12), |_| ());
    }
    // Eight messages of four answers are on their way, 16 answers wait for room, and no more is acknowledged.
    assert_eq!(w.counter(1, F_TX_STARVED), starved + 4);
    end(&mut w);
}

#[test]
fn invariant_6_answers_that_nobody_waits_for_are_dropped() {
    let (mut w, a, b) = pair(706);
    let now = w.now;
    let node = &mut w.nodes[0];
    for slot in [berth_abi::card::RX_SLOTS, 0xffff] {
        node.card.rx(now, slot, 100, 0, &mut node.hw);
        node.card.tx_done(slot);
    }
    for qpn in [0, 15, 60, 80, 60_000] {
        node.card.doorbell(qpn, 1, 1, &mut node.hw);
        node.card.fast_event(now, EVENT_TIMEOUT, qpn, 0, &mut node.hw);
    }
    assert_eq!(node.card.qps_in_use(), 1);
    w.run(1_000_000);
    for user in [&a, &b] {
        assert_eq!(w.nodes[user.node].card.state_of(user.qpn), CONNECTED);
        w.destroy(user);
    }
}

#[test]
fn commands_are_refused_by_name_in_every_state() {
    let mut w = World::new(2, 707);
    let _a = w.create_qp(0, 16, ASID, |_| ());
    let peer = w.nodes[1].ip;
    let mut check = |entry: Entry, status: u32| assert_eq!(w.command(0, entry).status, status, "{entry:x?}");
    check(Disconnect { qpn: 16 }.encode(), CMD_BUSY);
    check(Disconnect { qpn: 17 }.encode(), CMD_NOT_FOUND);
    check(Connect { qpn: 16, ipv4: peer, service: 1, private_len: 33, ..Connect::default() }.encode(), CMD_INVALID);
    check(Connect { qpn: 16, ipv4: peer, ..Connect::default() }.encode(), CMD_INVALID);
    check(Accept { request: 1, qpn: 16, private_len: 33, ..Accept::default() }.encode(), CMD_INVALID);
    check(Reject { request: 1, private_len: 33, ..Reject::default() }.encode(), CMD_INVALID);
    check(Reject { request: 1, ..Reject::default() }.encode(), CMD_NOT_FOUND);
    check(CqDestroy { cqn: 99 }.encode(), CMD_NOT_FOUND);
    check(Crash { how: CRASH_PANIC, ..Crash::default() }.encode(), CMD_OK);
    check(RangeRevoked::default().encode(), CMD_OK);
    // The same name again is fine, another one while nobody is connected too.
    for service in 1..=64 {
        check(Listen { service }.encode(), CMD_OK);
    }
    check(Listen { service: 64 }.encode(), CMD_BUSY);
    check(Listen { service: 65 }.encode(), CMD_FULL);
    check(Unlisten { service: 64 }.encode(), CMD_OK);
    check(Listen { service: 65 }.encode(), CMD_OK);
    // Eight peers are the most in this card.
    for i in 0..9 {
        w.create_qp(0, 20 + i, ASID, |_| ());
        let status = w
            .command(0, Connect { qpn: 20 + i, ipv4: 0x0a00_0100 + i, service: 1, ..Connect::default() }.encode())
            .status;
        assert_eq!(status, if i < 8 { CMD_OK } else { CMD_FULL });
    }
    assert_eq!(w.command(0, Accept { request: 1, qpn: 20, ..Accept::default() }.encode()).status, CMD_NOT_FOUND);
    // Being destroyed: not twice, and not for anything else.
    let first = w.post_command(0, QpDestroy { qpn: 20 }.encode());
    let second = w.post_command(0, QpDestroy { qpn: 20 }.encode());
    w.run(400_000_000);
    assert_eq!(w.answer(0, first), Some(CMD_OK));
    assert!(matches!(w.answer(0, second), Some(CMD_BUSY | CMD_NOT_FOUND)));
}

/// A peer may say that it takes more READs than a card of ours can have under way: its own end has what it wants under way.
#[test]
fn qp_3_a_peer_may_take_more_reads_than_a_card_has_under_way() {
    const MOST: u8 = MAX_READS as u8;
    for (takes, agreed) in [(MOST - 1, MOST - 1), (MOST, MOST), (MOST + 1, MOST), (255, MOST)] {
        let (mut w, ..) = pair(714);
        w.command(1, Listen { service: 9 }.encode());
        let mut message = request(30, 9);
        message[5] = 1024 | 0xc2 << 16;
        message[6] |= u32::from(takes) << 24;
        say(&mut w, &message, 0, |_| ());
        w.create_qp(1, 20, ASID, |qp| (qp.mode, qp.reads) = (MODE_MESSAGE, MOST));
        let CmRequest { request, .. } =
            w.nodes[1].hw.told().find(|e: &CmRequest| e.service == 9).expect("it is offered");
        assert_eq!(w.command(1, Accept { request, qpn: 20, ..Accept::default() }.encode()).status, CMD_OK);
        let done = w.command(1, QpQuery { qpn: 20 }.encode());
        assert_eq!(QpState::from_results(&done.results).reads, u32::from(agreed));
        end(&mut w);
    }
}

#[test]
fn qp_17_a_request_is_accepted_only_by_a_fresh_queue_pair() {
    let mut w = World::new(2, 708);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.command(1, Listen { service: 5 }.encode());
    let ip = w.nodes[1].ip;
    w.command(0, Connect { qpn: 16, ipv4: ip, service: 5, ..Connect::default() }.encode());
    let request = w.requested(1).request;
    assert_eq!(w.command(1, Accept { request, qpn: 40, ..Accept::default() }.encode()).status, CMD_NOT_FOUND);
    assert_eq!(w.command(1, Accept { request, qpn: 17, ..Accept::default() }.encode()).status, CMD_OK);
    assert_eq!(
        w.command(1, Accept { request, qpn: 17, ..Accept::default() }.encode()).status,
        CMD_NOT_FOUND,
        "it is used up"
    );
    w.established(1, 17);
    for user in [&a, &b] {
        w.destroy(user);
    }
    w.run(100_000_000);
    let fresh = Card::<4, 2>::default();
    assert_eq!(fresh.qps_in_use(), 0);
}

/// A control message for card 1 as a stranger with the address of card 0 makes it up: nothing of it was heard.
fn forge(w: &World, from: u32, to: u32, start: bool, psn: u32, records: &[u32]) -> Vec<u8> {
    let (_, mut frame) = last_message(w);
    frame.truncate(54);
    frame[51..54].copy_from_slice(&psn.to_be_bytes()[1..]);
    let third = VERSION | if start { START } else { 0 } | (3 + records.len() as u32) << 16;
    for word in [from, to, third].iter().chain(records) {
        frame.extend(word.to_le_bytes());
    }
    frame
}

/// The connection is there, and its rows are as they were made.
fn works(w: &World, users: [&User; 2]) {
    for user in users {
        assert_eq!(w.nodes[user.node].card.state_of(user.qpn), CONNECTED);
        assert_rows_untouched(w, user);
    }
}

fn finish(mut w: World, users: &[&User]) {
    for user in users {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert!(w.nodes.iter().all(|node| node.card.qps_in_use() == 0));
}

#[test]
fn inv_6_a_forged_beginning_ends_nothing() {
    let (mut w, a, b) = pair(710);
    let mut rng = Rng(1);
    for round in 0..20 {
        for start in [true, false] {
            let [from, to, psn] = [(); 3].map(|()| rng.draw() as u32);
            let to = if round % 2 == 0 { 0 } else { to };
            let frame = forge(&w, from | 1, to, start, psn & 0xff_ffff, &[record(REC_KEEPALIVE, 1, 0)]);
            send(&mut w, frame);
        }
        // Longer than any doubt lasts.
        w.run(6_000_000);
    }
    works(&w, [&a, &b]);
    assert_eq!(w.counter(1, F_PEERS_LOST), 0);
    finish(w, &[&a, &b]);
}

#[test]
fn inv_6_an_answer_that_was_not_asked_for_makes_nobody_begin_anew() {
    let (mut w, a, b) = pair(711);
    let mut rng = Rng(2);
    for to in [0, 1, rng.draw() as u32] {
        for psn in 0..4 {
            let mut frame = forge(&w, rng.draw() as u32 | 1, to, false, psn, &[]);
            frame[62..66].copy_from_slice(&(VERSION | CHALLENGE | 3 << 16).to_le_bytes());
            send(&mut w, frame);
        }
        w.run(6_000_000);
    }
    works(&w, [&a, &b]);
    // Even one that names our end says nothing about a message that has been acknowledged.
    let own = last_message(&w).0[1];
    for _ in 0..3 {
        let last = u32::from_be_bytes([0, last_message(&w).1[51], last_message(&w).1[52], last_message(&w).1[53]]);
        let mut frame = forge(&w, rng.draw() as u32 | 1, own, false, last, &[]);
        frame[62..66].copy_from_slice(&(VERSION | CHALLENGE | 3 << 16).to_le_bytes());
        send(&mut w, frame);
        w.run(6_000_000);
    }
    works(&w, [&a, &b]);
    finish(w, &[&a, &b]);
}

/// An ARP message of `mac` for card 1 in the name of `ip`.
fn arp(w: &World, reply: bool, mac: [u8; 6], ip: u32) -> Vec<u8> {
    let mut f = vec![0xff; 6];
    f.extend(mac);
    f.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, if reply { 2 } else { 1 }]);
    f.extend(mac);
    f.extend(ip.to_be_bytes());
    f.extend([0; 6]);
    f.extend(w.nodes[1].ip.to_be_bytes());
    f.resize(60, 0);
    f
}

#[test]
fn inv_6_strangers_move_no_connection_to_another_address() {
    let (mut w, a, b) = pair(712);
    let mac = [2, 0xba, 0xd0, 0, 0, 9];
    let ip = w.nodes[0].ip;
    for reply in [true, false] {
        let frame = arp(&w, reply, mac, ip);
        w.inject(1, frame);
        w.run(200_000);
        works(&w, [&a, &b]);
    }
    for (start, from) in [(true, 77), (false, 77), (false, last_message(&w).0[0])] {
        let mut frame = forge(&w, from, 88, start, 5, &[record(REC_KEEPALIVE, 1, 0)]);
        frame[6..12].copy_from_slice(&mac);
        send(&mut w, frame);
        works(&w, [&a, &b]);
    }
    finish(w, &[&a, &b]);
}

#[test]
fn inv_6_a_frame_that_rtl_does_not_take_is_counted_by_what_is_wrong() {
    let (mut w, a, b) = pair(719);
    let (_, ack) = w.wire.iter().find(|(i, f)| *i == 0 && f[12..14] == [8, 0] && f[42] == 0x11).unwrap().clone();
    let good = |opcode: u8, qpn: u32| {
        let mut frame = ack.clone();
        frame[42] = opcode;
        frame[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
        frame
    };
    let edited = |at: usize| {
        let mut frame = good(5, b.qpn);
        frame[at] ^= 0x40;
        frame
    };
    for (what, frame, counter) in [
        ("another MAC address than the peer's", edited(11), F_NOT_FOR_US),
        ("another IPv4 address than the peer's", edited(29), F_NOT_FOR_US),
        ("no such queue pair", good(5, 60), F_UNKNOWN_QP),
        ("data that RTL has not taken", good(5, b.qpn), F_BAD_HEADER),
        ("an acknowledgement that RTL has not taken", good(0x11, b.qpn), F_BAD_HEADER),
        ("an opcode that there is not", good(0x3f, b.qpn), F_BAD_OPCODE),
    ] {
        let before = w.counter(1, counter);
        send(&mut w, frame);
        assert_eq!(w.counter(1, counter), before + 1, "{what}");
    }
    works(&w, [&a, &b]);
    finish(w, &[&a, &b]);
}

#[test]
fn qp_17_a_peer_without_connections_may_come_back_with_another_address() {
    let (mut w, a, b) = pair(713);
    w.destroy(&a);
    w.destroy(&b);
    w.run(100_000_000);
    // Somebody else had its IPv4 address meanwhile.
    let (mac, ip) = ([2, 0xba, 0xd0, 0, 0, 9], w.nodes[0].ip);
    let frame = arp(&w, true, mac, ip);
    w.inject(1, frame);
    w.run(200_000);
    w.restart(0);
    let a = w.create_qp(0, 18, ASID, |_| ());
    let b = w.create_qp(1, 19, ASID, |_| ());
    w.connect(&a, &b, 8);
    works(&w, [&a, &b]);
    finish(w, &[&a, &b]);
}

#[test]
fn inv_6_strangers_take_no_place_of_a_peer() {
    let (mut w, a, b) = pair(714);
    w.command(1, Listen { service: 9 }.encode());
    let request = request(30, 9);
    let before = w.counter(1, F_NOT_FOR_US);
    for i in 0..40 {
        for (start, records) in [(true, &request[..]), (false, &[record(REC_KEEPALIVE, 1, 0)])] {
            let mut frame = forge(&w, 5 + i, 0, start, 7, records);
            frame[28..30].copy_from_slice(&[1, i as u8 + 1]);
            send(&mut w, frame);
        }
    }
    assert_eq!(w.nodes[1].hw.told::<CmRequest>().count(), 0, "nobody has shown that he hears us");
    assert_eq!(w.counter(1, F_NOT_FOR_US), before + 40, "all but the beginnings, which are challenged");
    // Eight places, one is card 0's: all others are free for those whom this card asks.
    for i in 0..7 {
        w.create_qp(1, 40 + i, ASID, |_| ());
        let status = w
            .command(1, Connect { qpn: 40 + i, ipv4: 0x0a00_0200 + i, service: 1, ..Connect::default() }.encode())
            .status;
        assert_eq!(status, CMD_OK);
    }
    for i in 0..7 {
        w.command(1, QpDestroy { qpn: 40 + i }.encode());
    }
    w.run(400_000_000);
    finish(w, &[&a, &b]);
}

#[test]
fn decision_26_a_stranger_does_not_keep_a_lost_peer_alive() {
    let (mut w, a, b) = pair(715);
    w.nodes[0].dead = true;
    let mut rng = Rng(3);
    let (_, message) = last_message(&w);
    let ack = w.wire.iter().find(|(i, f)| *i == 0 && f[12..14] == [8, 0] && f[42] == 0x11).unwrap().1.clone();
    let mut lost = false;
    for _ in 0..40 {
        let draw = rng.draw() as u32;
        let keepalive = [record(REC_KEEPALIVE, 1, 0)];
        let mut frames = vec![
            forge(&w, draw | 1, 0, false, 5, &keepalive),
            forge(&w, draw | 1, 0, true, 5, &keepalive),
            arp(&w, true, message[6..12].try_into().unwrap(), w.nodes[0].ip),
        ];
        // An acknowledgement on the control connection, then one and data on the data connection.
        for (qpn, opcode) in [(2, 0x11), (b.qpn, 0x11), (b.qpn, 0)] {
            let mut frame = ack.clone();
            frame[42] = opcode;
            frame[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
            frame[51..54].copy_from_slice(&(draw >> 8).to_be_bytes()[1..]);
            frames.push(frame);
        }
        for frame in frames {
            match frame[13] {
                6 => w.inject(1, frame),
                _ => send(&mut w, frame),
            }
        }
        w.run(25_000_000);
        lost |= w.nodes[1].hw.told().any(|e: QpError| e.qpn == b.qpn);
    }
    assert!(lost, "four seconds without a word of it");
    assert_eq!(w.failed(1, b.qpn), REASON_PEER_LOST);
    assert_eq!(w.counter(1, F_PEERS_LOST), 1);
    let _ = a;
    end(&mut w);
}

#[test]
fn inv_6_listeners_that_never_answer_hold_up_nobody_else() {
    let (mut w, a, b) = pair(716);
    let ip = w.nodes[1].ip;
    let mut qpn = 20;
    // Three services, each asked for more often than it may be: nobody answers.
    for service in 21..24 {
        w.command(1, Listen { service }.encode());
        for i in 0..6 {
            w.create_qp(0, qpn, ASID, |_| ());
            assert_eq!(w.command(0, Connect { qpn, ipv4: ip, service, ..Connect::default() }.encode()).status, CMD_OK);
            w.run(500_000);
            if i >= 4 {
                assert_eq!(w.closed(0, qpn), REASON_BUSY, "service {service}, request {i}");
            }
            qpn += 1;
        }
    }
    assert_eq!(w.counter(1, F_REQUESTS_BUSY), 6);
    // All the places that waiting requests may have are taken: one more is refused by name.
    w.command(1, Listen { service: 24 }.encode());
    w.create_qp(0, qpn, ASID, |_| ());
    w.command(0, Connect { qpn, ipv4: ip, service: 24, ..Connect::default() }.encode());
    assert_eq!(w.closed(0, qpn), REASON_BUSY);
    // Credit lists, farewells and connections that the other end asks for go on.
    works(&w, [&a, &b]);
    let c = w.create_qp(1, 50, ASID, |_| ());
    let d = w.create_qp(0, 51, ASID, |_| ());
    while w.nodes[1].hw.take(|_: &CmRequest| true).is_some() {}
    w.connect(&c, &d, 8);
    works(&w, [&c, &d]);
    // Nobody waits for ever.
    for qpn in (20..38).filter(|qpn| (qpn - 20) % 6 < 4) {
        assert_eq!(w.closed(0, qpn), REASON_BUSY);
    }
    assert_eq!(w.counter(1, F_REQUESTS_BUSY), 19);
    let told = |w: &World| w.nodes[1].hw.told::<CmRequestOver>().count();
    assert_eq!(told(&w), 12, "nor does the host keep what is over");
    for qpn in 20..39 {
        w.command(0, QpDestroy { qpn }.encode());
    }
    finish(w, &[&a, &b, &c, &d]);
}

/// ARP messages that card `node` has sent since the first `before` frames: their destination, opcode, sender's and
/// target's IPv4 address.
fn arps(w: &World, node: usize, before: usize) -> Vec<([u8; 6], u8, u32, u32)> {
    let address = |f: &[u8], at: usize| u32::from_be_bytes(f[at..at + 4].try_into().unwrap());
    let sent = w.wire[before..].iter().filter(|(i, f)| *i == node && f[12..14] == [8, 6]);
    sent.map(|(_, f)| (f[..6].try_into().unwrap(), f[21], address(f, 28), address(f, 38))).collect()
}

#[test]
fn f9_an_address_that_another_host_has_is_noticed_and_defended() {
    let (mut w, a, b) = pair(720);
    works(&w, [&a, &b]);
    let (ip, stranger) = (w.nodes[1].ip, [2, 0xba, 0xd0, 0, 0, 9]);
    let mac: [u8; 6] = arp(&w, true, stranger, 0)[6..12].try_into().unwrap();
    let conflicts = |w: &World| w.counter(1, F_ADDRESS_CONFLICTS);
    assert_eq!((conflicts(&w), mac), (0, stranger));
    // A probe has no sender's address: it is answered, and is no conflict yet.
    let before = w.wire.len();
    let frame = arp(&w, false, stranger, 0);
    w.inject(1, frame);
    w.run(200_000);
    assert_eq!((arps(&w, 1, before), conflicts(&w)), (vec![(stranger, 2, ip, 0)], 0));
    // Somebody says that it has the address: asked, by a reply, and by the way while it looks for another host.
    let before = w.wire.len();
    for (reply, target) in [(false, ip), (true, ip), (false, ip + 100), (true, ip + 100)] {
        let mut frame = arp(&w, reply, stranger, ip);
        frame[38..42].copy_from_slice(&target.to_be_bytes());
        w.inject(1, frame);
        w.run(200_000);
    }
    assert_eq!((arps(&w, 1, before), conflicts(&w)), (vec![(stranger, 2, ip, ip)], 4));
    // Its own messages, which come back, are none.
    let own = w.wire.iter().find(|(i, f)| *i == 1 && f[12..14] == [8, 6]).unwrap().1[6..12].try_into().unwrap();
    let frame = arp(&w, false, own, ip);
    w.inject(1, frame);
    w.run(200_000);
    assert_eq!(conflicts(&w), 4);
    // Nothing of it concerns connections.
    works(&w, [&a, &b]);
    finish(w, &[&a, &b]);
}

#[test]
fn f9_who_takes_an_address_that_another_host_has_learns_it_when_it_is_named() {
    let mut w = World::new(2, 721);
    w.run(200_000);
    let ip = w.nodes[0].ip;
    assert_eq!(arps(&w, 0, 0), [([0xff; 6], 1, 0, ip)], "a probe, when the name is set");
    let conflicts = |w: &World| [0, 1].map(|i| w.counter(i, F_ADDRESS_CONFLICTS));
    assert_eq!(conflicts(&w), [0, 0]);
    let name = NetConfig { ipv4: ip, mac_first: 0x0200_0000, mac_last: 2, mtu: 4096, guid: 0, key: [1, 0, 0, 0] };
    // The same name again asks again: a frame may be lost.
    for n in 1..4 {
        assert_eq!(w.command(1, name.encode()).status, CMD_OK);
        w.run(200_000);
        assert_eq!(conflicts(&w), [0, n]);
    }
}

#[test]
fn frames_for_a_card_without_an_address_are_counted() {
    let mut w = World::new(1, 718);
    *w.nodes[0].card = berth_protocol::Card::new();
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 2, 8, 6], &[0; 46]].concat();
    let roce = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &[0; 62]].concat();
    for frame in [arp, roce] {
        w.inject(0, frame);
    }
    w.run(100_000);
    assert_eq!(w.counter(0, F_NOT_FOR_US), 2);
    assert_eq!(w.counter(0, F_FOREIGN), 0);
}

/// What docs/concepts/reliability.md says of a wire that takes nothing for a time.
#[test]
fn qp_17_a_wire_that_takes_nothing_for_long_ends_connections_from_a_second_on() {
    for ms in [200, 500, 750, 1250, 2000, 4000, 8000] {
        let (mut w, a, b) = pair(740 + ms);
        w.hold = [true; 2];
        w.run(ms * 250_000);
        for i in 0..2 {
            w.hold[i] = false;
            w.release(i, usize::MAX);
        }
        // What was held comes, all at once.
        w.run(20_000_000);
        if ms <= 750 {
            works(&w, [&a, &b]);
        } else {
            for user in [&a, &b] {
                assert_eq!(w.failed(user.node, user.qpn), REASON_PEER_LOST, "{ms} ms");
            }
        }
        // A new connection works at once.
        let (c, d) = (w.create_qp(0, 40, ASID, |_| ()), w.create_qp(1, 41, ASID, |_| ()));
        let asked = w.now;
        w.connect(&c, &d, 8);
        assert!(w.now - asked < 5_000_000, "{} cycles, {ms} ms", w.now - asked);
        works(&w, [&c, &d]);
        finish(w, &[&a, &b, &c, &d]);
    }
}

#[test]
fn inv_6_frames_of_other_protocols_are_counted() {
    let mut w = World::new(1, 717);
    let vlan = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0][..], &[0; 50]].concat();
    w.inject(0, vlan);
    w.run(100_000);
    assert_eq!(w.counter(0, F_FOREIGN), 1);
}
