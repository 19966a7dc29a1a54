// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit lists as datagrams (decision 6): what is lost comes again until its proof, what comes twice changes
//! nothing, and what is not from the peer is dropped and counted.

mod common;
use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_protocol::headers::UD_SEND_ONLY;
use berth_protocol::model::{User, World};
use berth_protocol::wire::berth::list_qkey;
use berth_protocol::wire::{self, Deth, Opcode};
use common::*;

/// State of a QP (`Card::state_of`): connected.
const CONNECTED: u8 = 3;
/// Bytes of one message and of one receive.
const PART: u32 = 3000;

/// Two connected cards of which the first one offers datagrams, with memory for 64 parts.
fn offered(seed: u64) -> (World, User, User, Vec<u8>) {
    let mut w = World::new(2, seed);
    w.nodes[0].card.offer_list_datagrams();
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    let data = memory(&mut w);
    (w, a, b, data)
}

fn memory(w: &mut World) -> Vec<u8> {
    let len = 64 * PART as u64;
    let data = pattern(9, len as usize);
    w.nodes[0].hw.map(ASID, SRC, len, true);
    w.nodes[0].hw.poke(ASID, SRC, &data);
    w.nodes[1].hw.map(ASID, DST, len, true);
    data
}

fn receive(w: &mut World, b: &mut User, parts: std::ops::Range<u32>) {
    for i in parts {
        w.post_recv(b, &[(DST + (i * PART) as u64, PART)], i as u64);
    }
    w.ring(b);
}

fn send(w: &mut World, a: &mut User, parts: std::ops::Range<u32>) {
    for i in parts {
        w.post_send(a, &[(SRC + (i * PART) as u64, PART)], i as u64);
    }
    w.ring(a);
}

/// `n` parts have arrived, unchanged; then all is let go.
fn arrived(mut w: World, a: &User, b: &User, data: &[u8], n: u32) {
    w.run_until(100_000_000, |w| w.completions(b, true).len() == n as usize);
    assert!(w.completions(b, true).iter().all(|c| c[4] as u8 == WC_OK));
    let got = w.nodes[1].hw.peek(ASID, DST, (n * PART) as usize);
    assert!(got == data[..got.len()]);
    for user in [a, b] {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

/// The list datagrams that card `i` sent.
fn datagrams(w: &World, i: usize) -> Vec<Vec<u8>> {
    let is = |f: &[u8]| f[12..14] == [8, 0] && f[42] == UD_SEND_ONLY;
    w.wire.iter().filter(|(from, f)| *from == i && is(f)).map(|(_, f)| f.clone()).collect()
}

/// The words of a datagram's record.
fn words(f: &[u8]) -> Vec<u32> {
    f[62..].chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// A datagram with the words of `f` changed.
fn changed(f: &[u8], change: impl FnOnce(&mut Vec<u32>)) -> Vec<u8> {
    let mut words = words(f);
    change(&mut words);
    let mut frame = f[..62].to_vec();
    frame.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    fix(frame)
}

/// Lengths and checksum made right.
fn fix(mut f: Vec<u8>) -> Vec<u8> {
    let total = (f.len() - 14 + 4) as u16;
    f[16..18].copy_from_slice(&total.to_be_bytes());
    f[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    f[24..26].fill(0);
    let sum = wire::net::checksum(&f[14..34]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f
}

#[test]
fn decision_6_lists_go_as_datagrams_where_both_ends_agreed() {
    let (mut w, mut a, mut b, data) = offered(900);
    receive(&mut w, &mut b, 0..8);
    send(&mut w, &mut a, 0..8);
    w.run(3_000_000);
    assert_eq!(lists(&w, 1), [], "none on the control connection");
    let sent = datagrams(&w, 1);
    assert_eq!(w.counter(1, F_LIST_DATAGRAMS), sent.len() as u64);
    assert_eq!(w.counter(1, F_LISTS_REPEATED), 0, "nothing was lost");
    // Each field as the general parser sees it; the invariant CRC is the MAC's.
    let frame = [sent[0].as_slice(), &[0; 4]].concat();
    let (packet, payload) = wire::parse_trusted(&frame).unwrap();
    assert_eq!((packet.bth.opcode, packet.bth.qpn, packet.bth.psn), (Opcode(UD_SEND_ONLY), 2, 0));
    assert_eq!(packet.ext.deth, Some(Deth { qkey: list_qkey(epoch_of(&w, 1, b.qpn)), source_qpn: 2 }));
    assert_eq!(payload.len(), 4 * (3 + 8));
    let said = words(&sent[0]);
    assert_eq!(said[0], 1 | 11 << 8 | a.qpn << 16);
    assert_eq!(said[2..], [[0; 1].as_slice(), &[PART; 8]].concat());
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn decision_6_without_an_offer_lists_stay_on_the_control_connection() {
    let (mut w, mut a, mut b) = pair(901);
    let data = memory(&mut w);
    receive(&mut w, &mut b, 0..8);
    send(&mut w, &mut a, 0..8);
    w.run(3_000_000);
    assert_eq!(datagrams(&w, 1).len(), 0);
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn decision_6_a_lost_list_comes_again_until_its_proof() {
    let (mut w, mut a, mut b, data) = offered(902);
    w.run(2_000_000);
    // From now on nothing to the control QPN arrives.
    w.deaf = [true, true];
    receive(&mut w, &mut b, 0..8);
    send(&mut w, &mut a, 0..8);
    // 4, 8 and 16 ms behind each other.
    w.run(8_000_000);
    let sent = datagrams(&w, 1);
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|f| *f == sent[0]), "the same list each time");
    assert_eq!(w.completions(&b, true).len(), 0);
    w.deaf = [false, false];
    w.run_until(20_000_000, |w| w.completions(&b, true).len() == 8);
    let repeated = w.counter(1, F_LISTS_REPEATED);
    w.run(100_000_000);
    assert_eq!(w.counter(1, F_LISTS_REPEATED), repeated, "the proof has come");
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn decision_6_a_list_that_comes_before_the_rtu_stands_for_it() {
    let mut w = World::new(2, 903);
    w.nodes[0].card.offer_list_datagrams();
    let mut a = w.create_qp(0, 16, ASID, |_| ());
    let mut b = w.create_qp(1, 17, ASID, |_| ());
    w.nodes[0].hw.map(ASID, DST, 4096, true);
    w.nodes[1].hw.map(ASID, SRC, 4096, true);
    w.post_recv(&mut a, &[(DST, 100)], 0);
    w.ring(&a);
    let ip = w.nodes[1].ip;
    let command = |w: &mut World, node: usize, args: [u32; 4]| {
        let mut words = [0; 16];
        (words[0], words[2], words[3], words[4]) = (args[0], args[1], args[2], args[3]);
        assert_eq!(w.command(node, words)[2], CMD_OK);
    };
    command(&mut w, 1, [CMD_CM_LISTEN, 7, 0, 0]);
    command(&mut w, 0, [CMD_CM_CONNECT, a.qpn, ip, 7]);
    let request = w.event(1, EV_CM_REQUEST, None)[1];
    command(&mut w, 1, [CMD_CM_ACCEPT, request, b.qpn, 0]);
    // The asking end's frames are held, and only its list is let through.
    w.hold[0] = true;
    w.event(0, EV_CM_ESTABLISHED, Some(a.qpn));
    w.run_until(1_000_000, |w| !datagrams(w, 0).is_empty() || w.held[0].iter().any(|f| f[42] == UD_SEND_ONLY));
    assert_ne!(w.nodes[1].card.state_of(b.qpn), CONNECTED);
    let list = w.held[0].iter().find(|f| f[42] == UD_SEND_ONLY).unwrap().clone();
    w.inject(1, list);
    w.run(100_000);
    assert_eq!(w.nodes[1].card.state_of(b.qpn), CONNECTED);
    let bad = w.counter(1, F_CONTROL_BAD);
    w.hold[0] = false;
    w.release(0, 1000);
    w.post_send(&mut b, &[(SRC, 100)], 0);
    w.ring(&b);
    w.run_until(20_000_000, |w| w.completions(&a, true).len() == 1);
    assert_eq!(w.counter(1, F_CONTROL_BAD), bad, "the RTU behind it changes nothing");
    for user in [&a, &b] {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

#[test]
fn cr_11_lists_that_come_twice_or_late_change_nothing() {
    let (mut w, mut a, mut b, data) = offered(904);
    receive(&mut w, &mut b, 0..4);
    w.run(500_000);
    let old = datagrams(&w, 1)[0].clone();
    w.inject(0, old.clone());
    w.inject(0, old.clone());
    w.run(100_000);
    assert_eq!((w.counter(0, F_CONTROL_BAD), w.counter(0, F_LIST_REFUSED)), (0, 0));
    send(&mut w, &mut a, 0..4);
    w.run_until(20_000_000, |w| w.completions(&b, true).len() == 4);
    receive(&mut w, &mut b, 4..8);
    send(&mut w, &mut a, 4..8);
    w.run(1_000_000);
    // Its credits are used up, and the list behind it is known.
    w.inject(0, old);
    w.run(100_000);
    assert_eq!((w.counter(0, F_CONTROL_BAD), w.counter(0, F_LIST_REFUSED)), (0, 0));
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn decision_19_a_list_from_before_a_recall_is_not_taken_for_a_later_one() {
    const PAGE: u64 = 4096;
    let (mut w, mut a, mut b, _) = offered(910);
    let mut c = w.create_qp(0, 18, ASID, |_| ());
    let mut d = w.create_qp(1, 19, ASID, |_| ());
    w.connect(&c, &d, 8);
    w.nodes[1].hw.budget = 8 * PAGE;
    // All of the budget but the sends' share is granted to a peer that does not send; then another wants to receive.
    for i in 0..8 {
        w.post_recv(&mut b, &[(DST + i * PAGE, PAGE as u32)], i);
    }
    w.ring(&b);
    w.run_until(100_000_000, |w| !datagrams(w, 1).is_empty());
    w.run(1_000_000);
    let old = datagrams(&w, 1)[0].clone();
    w.post_recv(&mut d, &[(DST + 20 * PAGE, PAGE as u32)], 0);
    w.ring(&d);
    w.post_send(&mut c, &[(SRC, PAGE as u32)], 0);
    w.ring(&c);
    w.run_until(1_000_000_000, |w| w.completions(&d, true).len() == 1);
    assert!(w.counter(1, F_RECALLED) > 0);
    // Other sizes under the same numbers would be believed, but for the epoch.
    let before = w.counter(0, F_CONTROL_BAD);
    w.inject(0, changed(&old, |m| m[3..].fill(1)));
    w.run(100_000);
    assert_eq!(w.counter(0, F_CONTROL_BAD), before + 1);
    w.post_send(&mut a, &[(SRC, 8 * PAGE as u32)], 0);
    w.ring(&a);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 8);
    let again = datagrams(&w, 1).iter().map(|f| words(f)).rfind(|m| m[0] >> 16 == a.qpn).unwrap();
    assert_ne!(again[1], words(&old)[1]);
    for user in [&a, &b, &c, &d] {
        w.destroy(user);
    }
    w.run(100_000_000);
    assert_clean(&mut w);
}

#[test]
fn decision_6_a_list_with_a_gap_before_it_is_held() {
    let (mut w, mut a, mut b, data) = offered(905);
    w.hold[1] = true;
    receive(&mut w, &mut b, 0..4);
    w.run(500_000);
    let list = w.held[1].iter().find(|f| f[42] == UD_SEND_ONLY).unwrap().clone();
    // What the peer would say next, before what it says now.
    let next = changed(&list, |m| {
        m[2] += 4;
    });
    w.inject(0, next);
    w.run(100_000);
    assert_eq!(w.counter(0, F_LIST_REFUSED), 0);
    receive(&mut w, &mut b, 4..8);
    w.hold[1] = false;
    w.release(1, 1000);
    send(&mut w, &mut a, 0..8);
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn invariant_6_datagrams_that_are_not_from_the_peer_or_malformed_are_counted_and_dropped() {
    let (mut w, mut a, mut b, data) = offered(906);
    receive(&mut w, &mut b, 0..4);
    w.run(500_000);
    let list = datagrams(&w, 1)[0].clone();
    let more = |m: &mut Vec<u32>| m[2] += 4;
    let good = changed(&list, more);
    let edit = |at: usize, value: u8| {
        let mut f = good.clone();
        f[at] ^= value;
        fix(f)
    };
    let forged = [
        // From another address, with another Q_Key, from another QPN, from a card that is nobody's peer.
        edit(29, 77),
        edit(54, 0x80),
        edit(57, 1),
        edit(61, 1),
        // Another epoch, another QP, no QP.
        changed(&good, |m| m[1] ^= 1),
        changed(&good, |m| m[0] ^= 1 << 16),
        changed(&good, |m| m[0] |= 0xff << 24),
        // No list, other lengths than the frame's, nothing in it.
        changed(&good, |m| m[0] += 1),
        changed(&good, |m| m[0] += 1 << 8),
        changed(&good, |m| m[0] -= 1 << 8),
        changed(&good, |m| {
            m.truncate(3);
            m[0] = 1 | 3 << 8 | m[0] & !0xffff;
        }),
        changed(&good, |m| m.clear()),
        changed(&good, |m| m.resize(65, PART)),
    ];
    for (i, frame) in forged.into_iter().enumerate() {
        let before = w.counter(0, F_CONTROL_BAD);
        w.inject(0, frame);
        w.run(50_000);
        assert_eq!(w.counter(0, F_CONTROL_BAD), before + 1, "forged frame {i}");
    }
    // From another MAC address in the peer's name: dropped as data is, whatever it says.
    let (bad, heard) = (w.counter(0, F_CONTROL_BAD), w.counter(0, F_NOT_FOR_US));
    for frame in [edit(6, 4), edit(11, 1), changed(&edit(11, 1), |m| m[1] ^= 1), changed(&edit(8, 1), |m| m.clear())] {
        w.inject(0, frame);
        w.run(50_000);
    }
    assert_eq!((w.counter(0, F_CONTROL_BAD), w.counter(0, F_NOT_FOR_US)), (bad, heard + 4));
    assert_eq!(w.nodes[0].card.state_of(a.qpn), CONNECTED);
    receive(&mut w, &mut b, 4..8);
    send(&mut w, &mut a, 0..8);
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn decision_6_lists_of_a_peer_that_has_moved_count_from_when_it_has_said_so() {
    let (mut w, mut a, mut b, data) = offered(910);
    let old = w.counter(0, F_NOT_FOR_US);
    // Card 1 is behind another MAC address from now on, and nobody takes what is for the one before.
    w.edit = Some(|card, frame| {
        let now = [9, 8];
        match card {
            1 => frame[10..12].copy_from_slice(&now),
            _ if frame[4..6] == now => frame[4..6].copy_from_slice(&[0, 2]),
            _ => frame[4..6].copy_from_slice(&[7, 7]),
        }
    });
    receive(&mut w, &mut b, 0..8);
    send(&mut w, &mut a, 0..8);
    w.run_until(1_000_000_000, |w| w.completions(&b, true).len() == 8);
    assert!(w.counter(0, F_NOT_FOR_US) > old, "a list came before it");
    arrived(w, &a, &b, &data, 8);
}

#[test]
fn invariant_6_datagrams_are_not_taken_where_they_were_not_agreed() {
    let (mut w, a, mut b) = pair(907);
    memory(&mut w);
    let (mut other, _, mut end, _) = offered(907);
    for (w, b) in [(&mut w, &mut b), (&mut other, &mut end)] {
        receive(w, b, 0..1);
        w.run(500_000);
    }
    // The same seed: all but the carrier is the same.
    w.inject(0, datagrams(&other, 1)[0].clone());
    w.run(50_000);
    assert_eq!(w.counter(0, F_CONTROL_BAD), 1);
    assert_eq!(w.nodes[0].card.state_of(a.qpn), CONNECTED);
}

#[test]
fn cr_11_a_datagram_that_breaks_the_protocol_of_lists_ends_the_connection() {
    for (seed, change) in [
        // A credit of size 0 (decision 10).
        (908, (|m| (m[2], m[3]) = (4, 0)) as fn(&mut Vec<u32>)),
        // Before the proof of the one before it.
        (909, |m| m[2] = 4),
    ] {
        let (mut w, a, mut b, _) = offered(seed);
        receive(&mut w, &mut b, 0..4);
        w.run(500_000);
        let list = datagrams(&w, 1)[0].clone();
        w.inject(0, changed(&list, change));
        assert_eq!(w.event(0, EV_QP_ERROR, Some(a.qpn))[2], REASON_PROTOCOL);
        assert_eq!(w.counter(0, F_LIST_REFUSED), 1);
    }
}
