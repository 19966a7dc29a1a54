// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer may say on the control connection that it should not, and answers of engines that nobody asked for:
//! each has a defined end, and it is counted.

mod common;
use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_protocol::Card;
use berth_protocol::control::*;
use berth_protocol::model::World;
use berth_protocol::wire::net::checksum;
use common::*;

fn cmd(kind: u32, args: &[(usize, u32)]) -> [u32; 16] {
    let mut w = [0; 16];
    w[0] = kind;
    for &(i, value) in args {
        w[i] = value;
    }
    w
}

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
    let mut message = vec![words[0], words[1], 1 | ((3 + records.len() as u32) << 16)];
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

/// Own epoch of card 1's QP: the REP said it.
fn epoch_of(w: &World, card: usize, qpn: u32) -> u32 {
    let mut found = None;
    for (_, f) in w.wire.iter().filter(|(i, f)| *i == card && f[12..14] == [8, 0] && f[42] == 4) {
        let words: Vec<u32> = f[54..].chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        let mut at = 3;
        while at < words.len() && words[at] >> 8 & 0xff != 0 {
            match words[at] & 0xff {
                REC_REQ if words[at + 1] == qpn => found = Some(words[at + 2]),
                REC_REP if words[at + 2] == qpn => found = Some(words[at + 3]),
                _ => (),
            }
            at += (words[at] >> 8 & 0xff) as usize;
        }
    }
    found.unwrap()
}

fn end(w: &mut World) {
    w.nodes[0].dead = true;
    for i in 16..60 {
        if w.nodes[1].card.state_of(i) != 0 {
            w.command(1, cmd(CMD_QP_DESTROY, &[(2, i)]));
        }
    }
    w.run(400_000_000);
    assert_eq!(w.nodes[1].hw.uses(), 0);
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
    let before = bad(&w);
    // Somebody whom we do not know, in the middle of a conversation.
    let (_, mut frame) = last_message(&w);
    frame[29] = 77;
    frame[58..62].fill(0);
    frame[62..66].copy_from_slice(&(1_u32 | 4 << 16).to_le_bytes());
    frame.truncate(66);
    frame.extend(record(REC_KEEPALIVE, 1, 0).to_le_bytes());
    send(&mut w, frame);
    assert_eq!(bad(&w), before + 1);
    // From another incarnation that does not begin; to another one of ours: that is answered.
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[0] ^= 1);
    assert_eq!(bad(&w), before + 2);
    let sent = w.counter(1, F_CONTROL_SENT);
    say(&mut w, &[record(REC_KEEPALIVE, 1, 0)], 0, |m| m[1] ^= 1);
    assert_eq!((bad(&w), w.counter(1, F_CONTROL_SENT)), (before + 3, sent + 1));
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
        let mut r = vec![record(REC_REQ, 15, 0), qpn, 1, 2, 7, mtu | 1 << 16, 64];
        r.resize(15, 0);
        r
    };
    say(&mut w, &request(2, 1024), 1, |_| ());
    say(&mut w, &request(30, 1000), 2, |_| ());
    let mut reply = vec![record(REC_REP, 15, b.qpn), epoch, 30, 1, 2, 1000 | 1 << 16, 64];
    reply.resize(15, 0);
    say(&mut w, &reply, 3, |_| ());
    assert_eq!(bad(&w), before + 4);
    // A record for a QP that is not, for another epoch, and one that does not fit its state.
    say(&mut w, &[record(REC_RTU, 2, 50), epoch], 4, |_| ());
    say(&mut w, &[record(REC_RTU, 2, b.qpn), epoch ^ 1], 5, |_| ());
    say(&mut w, &[record(REC_RTU, 2, b.qpn), epoch], 6, |_| ());
    assert!(bad(&w) >= before + 6);
    // A reply that comes too late: the peer is told to forget its end.
    let sent = w.counter(1, F_CONTROL_SENT);
    reply[5] = 1024 | 1 << 16;
    say(&mut w, &reply, 7, |_| ());
    assert_eq!(w.counter(1, F_CONTROL_SENT), sent + 1);
    end(&mut w);
}

#[test]
fn cr_1_a_credit_of_size_0_ends_a_stream_connection() {
    let (mut w, _, b) = pair(703);
    let epoch = epoch_of(&w, 1, b.qpn);
    say(&mut w, &[record(REC_LIST, 5, b.qpn), epoch, 0, 10, 0], 0, |_| ());
    assert_eq!(w.event(1, EV_QP_ERROR, Some(b.qpn))[2], REASON_PROTOCOL);
    assert_eq!(w.counter(1, F_LIST_REFUSED), 1);
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

#[test]
fn qp_17_more_requests_than_there_are_places_come_again_and_are_taken_back() {
    let (mut w, ..) = pair(705);
    w.command(1, cmd(CMD_CM_LISTEN, &[(2, 9)]));
    // No room in the event ring: requests wait.
    w.nodes[1].hw.event_room = w.nodes[1].hw.events.len() as u32;
    let request = |qpn: u32| {
        let mut r = vec![record(REC_REQ, 15, 0), qpn, 100 + qpn, 2, 9, 1024 | 1 << 16, 64];
        r.resize(15, 0);
        r
    };
    let starved = w.counter(1, F_TX_STARVED);
    for i in 0..5 {
        let records: Vec<u32> = (0..4).flat_map(|k| request(30 + 4 * i + k)).collect();
        say(&mut w, &records, i, |_| ());
    }
    // 16 places: the fifth message finds none, and is not acknowledged.
    assert_eq!(w.counter(1, F_TX_STARVED), starved + 1);
    w.nodes[1].hw.event_room = u32::MAX;
    w.run(5_000_000);
    let offered = |w: &World| w.nodes[1].hw.events.iter().filter(|e| e[0] == EV_CM_REQUEST && e[3] == 9).count();
    assert_eq!(offered(&w), 16);
    // The peer takes all back, then the fifth message has places.
    for i in 0..4 {
        let records: Vec<u32> = (0..4)
            .flat_map(|k| {
                let qpn = 30 + 4 * i + k;
                [record(REC_DREQ, 5, 0), 0, qpn, 100 + qpn, REASON_PEER_CLOSE]
            })
            .collect();
        say(&mut w, &records, 4 + i, |_| ());
    }
    let records: Vec<u32> = (0..4).flat_map(|k| request(46 + k)).collect();
    say(&mut w, &records, 8, |_| ());
    w.run(5_000_000);
    assert_eq!(offered(&w), 20);
    let request = w.nodes[1].hw.events.iter().find(|e| e[0] == EV_CM_REQUEST && e[3] == 9).unwrap()[1];
    assert_eq!(w.command(1, cmd(CMD_CM_REJECT, &[(2, request)]))[2], CMD_NOT_FOUND, "it was taken back");
    end(&mut w);
}

#[test]
fn invariant_6_answers_that_nobody_waits_for_are_dropped() {
    let (mut w, a, b) = pair(706);
    let now = w.now;
    let node = &mut w.nodes[0];
    let before = node.hw.counters;
    for slot in [RX_SLOTS_OVER, 0xffff] {
        node.card.rx(now, slot, 100, 0, &mut node.hw);
    }
    for tag in [0_u16, 0x1000, 0x10ff, 0x2000, 0x20ff, 0x3fff, 0xffff] {
        for status in [DMA_OK, DMA_NO_TRANSLATION] {
            node.card.dma_done(now, tag, status, &mut node.hw);
        }
    }
    for tag in [0_u16, 100, 479, 480, 511, 0xffff] {
        for kind in [XLT_HIT, XLT_MISS, XLT_READY] {
            node.card.xlt_rsp(now, kind, PAGE_OK, tag, &mut node.hw);
        }
        assert_eq!(node.card.tag_of(tag), None);
    }
    node.card.doorbell(now, 60_000, 1, 1, 1, &mut node.hw);
    node.card.credit_list(now, 60_000, &mut node.hw);
    assert_eq!(node.card.qps_in_use(), 1);
    assert_eq!(node.hw.counters[F_RECALLED as usize], before[F_RECALLED as usize]);
    w.run(1_000_000);
    w.dump(0, a.qpn);
    w.dump(0, 59);
    for user in [&a, &b] {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

/// The first slot that there is not.
const RX_SLOTS_OVER: u32 = berth_abi::card::RX_SLOTS;

#[test]
fn commands_are_refused_by_name_in_every_state() {
    let mut w = World::new(2, 707);
    let _a = w.create_qp(0, 16, ASID, |_| ());
    let peer = w.nodes[1].ip;
    let mut check = |words: [u32; 16], status: u32| assert_eq!(w.command(0, words)[2], status, "{words:x?}");
    check(cmd(CMD_CM_DISCONNECT, &[(2, 16)]), CMD_BUSY);
    check(cmd(CMD_CM_DISCONNECT, &[(2, 17)]), CMD_NOT_FOUND);
    check(cmd(CMD_CM_CONNECT, &[(2, 16), (3, peer), (4, 1), (5, 33)]), CMD_INVALID);
    check(cmd(CMD_CM_CONNECT, &[(2, 16), (3, peer), (4, 0)]), CMD_INVALID);
    check(cmd(CMD_CM_ACCEPT, &[(2, 1), (3, 16), (5, 33)]), CMD_INVALID);
    check(cmd(CMD_CM_REJECT, &[(2, 1), (5, 33)]), CMD_INVALID);
    check(cmd(CMD_CM_REJECT, &[(2, 1)]), CMD_NOT_FOUND);
    check(cmd(CMD_CQ_DESTROY, &[(2, 99)]), CMD_NOT_FOUND);
    check(cmd(CMD_CRASH, &[(2, 1)]), CMD_OK);
    check(cmd(CMD_RANGE_REVOKED, &[]), CMD_OK);
    // The same name again is fine, another one while nobody is connected too.
    for service in 1..=64 {
        check(cmd(CMD_CM_LISTEN, &[(2, service)]), CMD_OK);
    }
    check(cmd(CMD_CM_LISTEN, &[(2, 64)]), CMD_BUSY);
    check(cmd(CMD_CM_LISTEN, &[(2, 65)]), CMD_FULL);
    check(cmd(CMD_CM_UNLISTEN, &[(2, 64)]), CMD_OK);
    check(cmd(CMD_CM_LISTEN, &[(2, 65)]), CMD_OK);
    // Eight peers are the most in this card.
    for i in 0..9 {
        w.create_qp(0, 20 + i, ASID, |_| ());
        let status = w.command(0, cmd(CMD_CM_CONNECT, &[(2, 20 + i), (3, 0x0a00_0100 + i), (4, 1)]))[2];
        assert_eq!(status, if i < 8 { CMD_OK } else { CMD_FULL });
    }
    assert_eq!(w.command(0, cmd(CMD_CM_ACCEPT, &[(2, 1), (3, 20)]))[2], CMD_NOT_FOUND);
    // Being destroyed: not twice, and not for anything else.
    let first = w.post_command(0, cmd(CMD_QP_DESTROY, &[(2, 20)]));
    let second = w.post_command(0, cmd(CMD_QP_DESTROY, &[(2, 20)]));
    w.run(400_000_000);
    let status =
        |w: &World, cookie| w.nodes[0].hw.events.iter().find(|e| e[0] == EV_CMD_DONE && e[1] == cookie).map(|e| e[2]);
    assert_eq!(status(&w, first), Some(CMD_OK));
    assert!(matches!(status(&w, second), Some(CMD_BUSY | CMD_NOT_FOUND)));
}

#[test]
fn qp_17_a_request_is_accepted_only_by_a_fresh_queue_pair() {
    let mut w = World::new(2, 708);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.command(1, cmd(CMD_CM_LISTEN, &[(2, 5)]));
    let ip = w.nodes[1].ip;
    w.command(0, cmd(CMD_CM_CONNECT, &[(2, 16), (3, ip), (4, 5)]));
    let request = w.event(1, EV_CM_REQUEST, None)[1];
    assert_eq!(w.command(1, cmd(CMD_CM_ACCEPT, &[(2, request), (3, 40)]))[2], CMD_NOT_FOUND);
    assert_eq!(w.command(1, cmd(CMD_CM_ACCEPT, &[(2, request), (3, 17)]))[2], CMD_OK);
    assert_eq!(w.command(1, cmd(CMD_CM_ACCEPT, &[(2, request), (3, 17)]))[2], CMD_NOT_FOUND, "it is used up");
    w.event(1, EV_CM_ESTABLISHED, Some(17));
    for user in [&a, &b] {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
    let fresh = Card::<4, 2>::default();
    assert_eq!(fresh.qps_in_use(), 0);
}
