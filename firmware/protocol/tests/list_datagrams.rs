// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit lists as datagrams (decision 6), as far as they come to firmware: before RTL has the connection. What is not
//! from the peer is dropped and counted.

mod common;
use berth_abi::counters::*;
use berth_abi::message::{Accept, Connect, Listen, QpCreate};
use berth_abi::ring::{CARRIER_CONTROL, CARRIER_REVERSE, CARRIER_WRITE, MODE_MESSAGE, MODE_STREAM};
use berth_abi::rows::send::{LIST_BEGIN, LIST_FIRST, LIST_SIZE, MODE, Mode};
use berth_abi::status::*;
use berth_abi::wire::{BTH_UC_WRITE_ONLY, LIST_KEY, LIST_SLOT};
use berth_protocol::model::{User, World};
use berth_protocol::wire;
use berth_protocol::wire::headers::{BTH_UD_SEND_ONLY, list_qkey};
use berth_protocol::wire::records::{REC_LIST, record};
use common::*;

/// States of a QP (`Card::state_of`): on the way to a connection, connected.
const CONNECTING: u8 = 2;
const CONNECTED: u8 = 3;

/// Two cards, of which the second has accepted and has not heard that the first knows: what card 0 sends is held.
fn accepted(seed: u64, tune: impl Fn(&mut QpCreate)) -> (World, User, User) {
    let mut w = World::new(2, seed);
    let a = w.create_qp(0, 16, ASID, &tune);
    let b = w.create_qp(1, 17, ASID, &tune);
    let ip = w.nodes[1].ip;
    let connect = Connect { qpn: a.qpn, ipv4: ip, service: 7, ..Connect::default() };
    assert_eq!(w.command(1, Listen { service: 7 }.encode()).status, CMD_OK);
    assert_eq!(w.command(0, connect.encode()).status, CMD_OK);
    let accept = Accept { request: w.requested(1).request, qpn: b.qpn, ..Accept::default() };
    assert_eq!(w.command(1, accept.encode()).status, CMD_OK);
    w.hold[0] = true;
    w.established(0, a.qpn);
    w.run(100_000);
    assert_eq!(w.nodes[1].card.state_of(b.qpn), CONNECTING);
    (w, a, b)
}

/// A list of card 0 for `b`, as RTL sends it: credits of `sizes` from number `first` on, with `change`d record.
fn list(w: &World, b: &User, first: u32, sizes: &[u32], change: impl FnOnce(&mut Vec<u32>)) -> Vec<u8> {
    let control = w.wire.iter().find(|(i, f)| *i == 0 && f[12..14] == [8, 0] && f[47..50] == [0, 0, 2]).unwrap();
    let mut frame = control.1[..54].to_vec();
    (frame[42], frame[43], frame[50]) = (BTH_UD_SEND_ONLY, 0, 0);
    frame[51..54].fill(0);
    let mut words = vec![record(REC_LIST, 3 + sizes.len(), b.qpn), epoch_of(w, 1, b.qpn), first];
    words.extend(sizes);
    change(&mut words);
    frame.extend(list_qkey(epoch_of(w, 0, 16)).to_be_bytes());
    frame.extend(2_u32.to_be_bytes());
    frame.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    fix(frame)
}

/// The same list over another carrier (CR-12).
fn carried(list: &[u8], carrier: u8, qpn: u32) -> Vec<u8> {
    let mut frame = list.to_vec();
    match carrier {
        CARRIER_REVERSE => {
            frame[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
            frame[58..62].copy_from_slice(&16_u32.to_be_bytes());
        }
        CARRIER_WRITE => {
            frame[42] = BTH_UC_WRITE_ONLY;
            let len = (frame.len() - 62) as u32;
            let header = [qpn * LIST_SLOT, LIST_KEY, len].map(u32::to_be_bytes);
            frame.splice(58..62, header.concat());
        }
        _ => {}
    }
    fix(frame)
}

/// What RTL's reader was given: word, value.
fn given(w: &World, b: &User) -> Vec<(u32, u32)> {
    let of = |x: &&(u32, u32, u32, u32)| (x.0, x.1) == (TX, b.qpn) && x.2 >= LIST_FIRST;
    w.nodes[1].hw.fast.written.iter().filter(of).map(|x| (x.2, x.3)).collect()
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
fn decision_6_a_list_that_comes_before_the_rtu_stands_for_it() {
    let (mut w, a, b) = accepted(903, |_| ());
    let frame = list(&w, &b, 0, &[100, 200], |_| ());
    w.inject(1, frame);
    w.run(100_000);
    assert_eq!(w.nodes[1].card.state_of(b.qpn), CONNECTED);
    w.established(1, b.qpn);
    assert_eq!(given(&w, &b), [(LIST_FIRST, 0), (LIST_BEGIN, 2), (LIST_SIZE, 100), (LIST_SIZE, 200)], "RTL judges it");
    let bad = w.counter(1, F_CONTROL_BAD);
    w.hold[0] = false;
    w.release(0, 1000);
    w.run(1_000_000);
    assert_eq!(w.counter(1, F_CONTROL_BAD), bad, "the RTU behind it changes nothing");
    for user in [&a, &b] {
        w.destroy(user);
    }
}

#[test]
fn cr_12_a_list_comes_over_every_carrier() {
    for carrier in [CARRIER_CONTROL, CARRIER_REVERSE, CARRIER_WRITE] {
        let (mut w, _, b) = accepted(907, |_| ());
        let good = carried(&list(&w, &b, 0, &[100, 200], |_| ()), carrier, b.qpn);
        // From another QPN; to another one, place, or key; of another length.
        let forged: &[usize] = match carrier {
            CARRIER_CONTROL => &[54, 61],
            CARRIER_REVERSE => &[54, 64],
            _ => &[54, 60, 62, 65, 69],
        };
        for at in forged {
            let mut frame = good.clone();
            frame[*at] ^= 1;
            let refused =
                |w: &World| [F_CONTROL_BAD, F_UNKNOWN_QP, F_BAD_OPCODE].map(|n| w.counter(1, n)).iter().sum::<u64>();
            let before = refused(&w);
            w.inject(1, fix(frame));
            w.run(50_000);
            assert_eq!((refused(&w), given(&w, &b)), (before + 1, vec![]), "carrier {carrier}, byte {at}");
        }
        w.inject(1, good);
        w.run(100_000);
        assert_eq!(w.nodes[1].card.state_of(b.qpn), CONNECTED, "carrier {carrier}");
        assert_eq!(given(&w, &b), [(LIST_FIRST, 0), (LIST_BEGIN, 2), (LIST_SIZE, 100), (LIST_SIZE, 200)]);
    }
}

#[test]
fn cr_12_the_row_says_how_lists_go() {
    for carrier in [CARRIER_CONTROL, CARRIER_REVERSE, CARRIER_WRITE] {
        let (w, a, _) = accepted(908, |qp| qp.carrier = carrier);
        let mode = w.nodes[0].hw.fast.written.iter().rfind(|x| (x.0, x.1, x.2) == (TX, a.qpn, MODE));
        assert_eq!(Mode::from_word(mode.expect("a row").3).carrier, carrier.into());
    }
}

#[test]
fn invariant_6_datagrams_that_are_not_from_the_peer_or_malformed_are_counted_and_dropped() {
    let (mut w, _, b) = accepted(906, |_| ());
    let good = |change: fn(&mut Vec<u32>)| list(&w, &b, 0, &[100; 4], change);
    let edit = |at: usize, value: u8| {
        let mut f = good(|_| ());
        f[at] ^= value;
        fix(f)
    };
    let forged = [
        // From another address, with another Q_Key, from another QPN, from a card that is nobody's peer.
        edit(29, 77),
        edit(54, 0x80),
        edit(57, 1),
        edit(61, 1),
        // Another epoch, another QP, no QP: as late frames of connections that have ended.
        good(|m| m[1] ^= 1),
        good(|m| m[0] ^= 1 << 16),
        good(|m| m[0] |= 0xff << 24),
        // No list, other lengths than the frame's, nothing in it.
        good(|m| m[0] += 1),
        good(|m| m[0] += 1 << 8),
        good(|m| m[0] -= 1 << 8),
        good(|m| {
            m.truncate(3);
            m[0] = 1 | 3 << 8 | m[0] & !0xffff;
        }),
        good(|m| m.clear()),
        good(|m| m.resize(65, 100)),
    ];
    // From another MAC address in the peer's name: dropped as data is, whatever it says.
    let elsewhere = [edit(6, 4), edit(11, 1), {
        let mut f = good(|m| m[1] ^= 1);
        f[11] ^= 1;
        fix(f)
    }];
    for (i, frame) in forged.into_iter().enumerate() {
        let counter = if (4..7).contains(&i) { F_UNKNOWN_QP } else { F_CONTROL_BAD };
        let before = w.counter(1, counter);
        w.inject(1, frame);
        w.run(50_000);
        assert_eq!(w.counter(1, counter), before + 1, "forged frame {i}");
    }
    let (bad, heard) = (w.counter(1, F_CONTROL_BAD), w.counter(1, F_NOT_FOR_US));
    for frame in elsewhere {
        w.inject(1, frame);
        w.run(50_000);
    }
    assert_eq!((w.counter(1, F_CONTROL_BAD), w.counter(1, F_NOT_FOR_US)), (bad, heard + 3));
    assert_eq!(w.nodes[1].card.state_of(b.qpn), CONNECTING);
    assert_eq!(given(&w, &b), []);
    w.hold[0] = false;
    w.release(0, 1000);
    w.established(1, b.qpn);
}

/// A credit of size 0 (decision 10): a stream has none, a message may have.
#[test]
fn cr_11_a_datagram_with_a_credit_of_size_0_ends_a_stream() {
    for (mode, ends) in [(MODE_STREAM, true), (MODE_MESSAGE, false)] {
        let (mut w, _, b) = accepted(908, |qp| qp.mode = mode);
        let frame = list(&w, &b, 0, &[100, 0], |_| ());
        w.inject(1, frame);
        w.run(100_000);
        assert_eq!(w.counter(1, F_LIST_REFUSED), u64::from(ends));
        if ends {
            assert_eq!(w.failed(1, b.qpn), REASON_PROTOCOL);
        } else {
            assert_eq!(given(&w, &b), [(LIST_FIRST, 0), (LIST_BEGIN, 2), (LIST_SIZE, 100), (LIST_SIZE, 0)]);
        }
    }
}
