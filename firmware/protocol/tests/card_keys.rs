// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's commands for keys: what RTL's table has after each, and whose keys they may name (QP-9, QP-11).

mod common;
use berth_abi::counters::{F_BINDS, F_BINDS_REFUSED, F_FAST_EVENTS, F_INVALIDATES, F_INVALIDATES_REFUSED};
use berth_abi::message::{CmdDone, KeyBind, KeyFree, KeyRegister, KeysDrop};
use berth_abi::rows::event::{EVENT_BIND, EVENT_INVALIDATE};
use berth_abi::rows::{HALF_RECEIVES, recv, send};
use berth_abi::status::*;
use berth_protocol::memory::keys::{Binding, Keys, READ, WRITE};
use berth_protocol::model::{Rng, User, World};
use common::{ASID, RX, TX, commands, end_of, pair};

/// Keys of the model's card.
const KEYS: usize = 256;
const OTHER: u8 = 9;

/// What is registered as `n`th.
fn want(asid: u8, n: u64, rng: &mut Rng) -> KeyRegister {
    KeyRegister {
        asid,
        rights: WRITE | (n as u8 & READ),
        domain: 7,
        one_shot: n % 3 == 1,
        va: n << 13 | 5,
        len: n * n + 1,
        entropy: rng.draw(),
    }
}

fn register(w: &mut World, want: KeyRegister) -> (u32, u32) {
    let CmdDone { status, results, .. } = w.command(0, want.encode());
    (status, results[0])
}

/// What RTL's table has in the key's place.
fn table(w: &World, key: u32) -> [u32; 8] {
    w.nodes[0].hw.fast.keys[&(key >> 8 & (KEYS as u32 - 1))]
}

#[test]
fn qp_9_rtl_has_the_keys_that_the_model_has() {
    let (mut w, mut rng) = (World::new(1, 80), Rng(80));
    let mut keys: Box<Keys<KEYS>> = Box::default();
    let mut live: Vec<(u8, u32)> = Vec::new();
    for n in 0..2000_u64 {
        let asid = 3 + (n % 2) as u8;
        match rng.below(4) {
            0 | 1 => {
                let want = want(asid, n, &mut rng);
                let (status, key) = register(&mut w, want);
                let KeyRegister { rights, domain, one_shot, va, len, entropy, .. } = want;
                let Ok(expected) = keys.allocate(domain, entropy) else {
                    assert_eq!(status, CMD_FULL);
                    continue;
                };
                keys.bind(expected, Binding { va, len, rights, one_shot, region: 0 }).unwrap();
                assert_eq!((status, key), (CMD_OK, expected));
                live.push((asid, key));
            }
            2 if !live.is_empty() => {
                let (asid, key) = live[rng.below(live.len() as u64) as usize];
                let unbinds = rng.below(3) == 0;
                let (va, len) = if unbinds { (0, 0) } else { (n, 1 << (n % 40)) };
                let bind = KeyBind { asid, rights: READ, one_shot: n % 5 == 0, va, len, key };
                assert_eq!(w.command(0, bind.encode()).status, CMD_OK);
                keys.bind(key, Binding { va, len, rights: READ, one_shot: bind.one_shot, region: 0 }).unwrap();
            }
            3 if !live.is_empty() => {
                let (asid, key) = live.swap_remove(rng.below(live.len() as u64) as usize);
                assert_eq!(w.command(0, KeyFree { asid, key }.encode()).status, CMD_OK);
                keys.deallocate(key).unwrap();
                assert_eq!(table(&w, key)[1], 0, "no key is live there");
                assert_eq!(w.command(0, KeyFree { asid, key }.encode()).status, CMD_NOT_FOUND);
            }
            _ => (),
        }
        assert_eq!(w.nodes[0].card.keys_in_use(), keys.in_use());
        if let Some(&(asid, key)) = live.last() {
            assert_eq!(table(&w, key), keys.words(key as usize >> 8 & (KEYS - 1), asid));
        }
    }
    for (asid, key) in live {
        assert_eq!(table(&w, key), keys.words(key as usize >> 8 & (KEYS - 1), asid));
    }
}

#[test]
fn qp_9_a_key_is_of_one_address_space_and_goes_with_it() {
    let (mut w, mut rng) = (World::new(1, 81), Rng(81));
    let mut all = Vec::new();
    for n in 0..KEYS as u64 {
        let asid = if n % 3 == 0 { OTHER } else { 4 };
        let (status, key) = register(&mut w, want(asid, n, &mut rng));
        assert_eq!(status, CMD_OK);
        all.push((asid, key));
    }
    assert_eq!(register(&mut w, want(4, 0, &mut rng)).0, CMD_FULL);
    for &(asid, key) in &all {
        let not = if asid == 4 { OTHER } else { 4 };
        for asid in [not, 0] {
            let bind = KeyBind { asid, rights: READ, va: 1, len: 1, key, ..KeyBind::default() };
            assert_eq!(w.command(0, bind.encode()).status, CMD_NOT_FOUND);
            assert_eq!(w.command(0, KeyFree { asid, key }.encode()).status, CMD_NOT_FOUND);
        }
        // Of the place, and of nobody.
        assert_eq!(w.command(0, KeyFree { asid, key: key ^ 1 << 31 }.encode()).status, CMD_NOT_FOUND);
    }
    // A second command waits until the first has ended all.
    let drops = w.post_command(0, KeysDrop { asid: 4 }.encode());
    let next = want(5, 1, &mut rng);
    let (status, new) = register(&mut w, next);
    assert_eq!((w.answer(0, drops), status), (Some(CMD_OK), CMD_OK));
    for &(asid, key) in all.iter().filter(|(_, key)| key >> 8 & 0xff != new >> 8 & 0xff) {
        assert_eq!(table(&w, key)[1] != 0, asid == OTHER, "{key:x}");
    }
    assert_eq!(w.nodes[0].card.keys_in_use(), 1 + all.iter().filter(|(asid, _)| *asid == OTHER).count());
    assert_eq!(w.command(0, KeysDrop { asid: OTHER }.encode()).status, CMD_OK);
    assert_eq!(w.command(0, KeysDrop { asid: 77 }.encode()).status, CMD_OK);
    assert_eq!(w.nodes[0].card.keys_in_use(), 1);
}

#[test]
fn a_key_that_cannot_be_is_refused_and_leaves_nothing() {
    let (mut w, mut rng) = (World::new(1, 82), Rng(82));
    let good = want(4, 3, &mut rng);
    for bad in [
        KeyRegister { asid: 0, ..good },
        KeyRegister { domain: 0, ..good },
        KeyRegister { rights: 0, ..good },
        KeyRegister { rights: 8, ..good },
        KeyRegister { len: 0, ..good },
        KeyRegister { va: u64::MAX, len: 2, ..good },
    ] {
        assert_eq!(register(&mut w, bad).0, CMD_INVALID);
        assert_eq!(w.nodes[0].card.keys_in_use(), 0);
    }
    assert_eq!(w.command(0, KeysDrop { asid: 0 }.encode()).status, CMD_INVALID);
    let (status, key) = register(&mut w, KeyRegister { va: 0, len: 0, ..good });
    assert_eq!(status, CMD_OK, "bound to nothing");
    assert_eq!(recv::KeyScope::from_word(table(&w, key)[1]).bound, 0);
    let bind = KeyBind { asid: 4, rights: 0x18, va: 1, len: 1, key, ..KeyBind::default() };
    assert_eq!(w.command(0, bind.encode()).status, CMD_INVALID);
}

#[test]
fn keys_leave_rows_alone() {
    let (mut w, a, _) = pair(83);
    let before = commands(&w, &a, HALF_RECEIVES);
    let (_, key) = register(&mut w, want(ASID, 1, &mut Rng(83)));
    w.command(0, KeyFree { asid: ASID, key }.encode());
    let is_key = |word: &u32| matches!(word & 0xff, recv::CMD_KEY_LOAD | recv::CMD_KEY_STORE);
    let (of_keys, others): (Vec<u32>, Vec<u32>) = commands(&w, &a, HALF_RECEIVES).into_iter().partition(is_key);
    assert_eq!(others, before);
    assert!(!of_keys.is_empty());
}

/// RTL says that a BIND has its turn.
fn bind_element(w: &mut World, user: &User, key: u32, binding: Binding) {
    let Binding { va, len, rights, one_shot, .. } = binding;
    let scope = send::Bind { waits: 1, rights: rights.into(), one_shot: one_shot.into() };
    let [low, high] = [|word: u64| word as u32, |word: u64| (word >> 32) as u32];
    let words = [scope.word(), key, low(va), high(va), low(len), high(len)];
    for (word, value) in (send::BIND..).zip(words) {
        w.nodes[user.node].hw.fast.reads.insert((TX, user.qpn, word), value);
    }
    w.fast_event(user.node, EVENT_BIND, user.qpn, 0);
    w.run(3000);
}

#[test]
fn qp_4_firmware_binds_for_an_element_as_the_model_does() {
    let (mut w, mut rng) = (World::new(2, 84), Rng(84));
    let mut keys: Box<Keys<KEYS>> = Box::default();
    let [a, b] = [(0, 16), (1, 17)].map(|(node, qpn)| w.create_qp(node, qpn, ASID, |qp| qp.domain = 7));
    w.connect(&a, &b, 7);
    let want = want(ASID, 1, &mut rng);
    let (_, mut key) = register(&mut w, want);
    assert_eq!(keys.allocate(want.domain, want.entropy), Ok(key));
    let first = key;
    for n in 0..50 {
        let len = rng.draw() >> (n + 1);
        let binding = match n % 5 {
            0 => Binding::default(),
            _ => Binding { va: rng.below(1 << 40), len, rights: 1 + (n % 7) as u8, one_shot: n % 2 == 0, region: 0 },
        };
        key ^= rng.below(256) as u32;
        bind_element(&mut w, &a, key, binding);
        keys.bind_element(want.domain, key, binding).unwrap();
        assert_eq!(table(&w, key), keys.words(key as usize >> 8 & (KEYS - 1), ASID));
        assert_eq!(commands(&w, &a, TX)[1..], vec![send::CMD_BOUND; n + 1]);
    }
    assert_eq!((w.counter(0, F_BINDS), w.counter(0, F_FAST_EVENTS)), (50, 0));
    // The driver knows it by its first name.
    let bind = KeyBind { asid: ASID, rights: READ, va: 1, len: 1, key: first, ..KeyBind::default() };
    assert_eq!(w.command(0, bind.encode()).status, CMD_OK);
    assert_eq!(table(&w, key)[0], key);
    assert_eq!(w.command(0, KeyFree { asid: ASID, key: first }.encode()).status, CMD_OK);
    assert_eq!(w.nodes[0].card.keys_in_use(), 0);
}

#[test]
fn qp_4_an_element_that_cannot_be_ends_its_connection_and_changes_nothing() {
    let good = Binding { va: 0x1000, len: 8, rights: READ, one_shot: false, region: 0 };
    for n in 0..7 {
        let (mut w, mut rng) = (World::new(2, 85), Rng(85));
        let domain = if n == 0 { 0 } else { 7 };
        let [a, b] = [(0, 16), (1, 17)].map(|(node, qpn)| w.create_qp(node, qpn, ASID, |qp| qp.domain = domain));
        w.connect(&a, &b, 7);
        let want = want(if n == 1 { OTHER } else { ASID }, 1, &mut rng);
        let (_, key) = register(&mut w, KeyRegister { domain: if n == 2 { 8 } else { 7 }, ..want });
        let before = table(&w, key);
        let (key, binding) = match n {
            3 => (key ^ 1 << 30, good),
            4 => (key, Binding { rights: 0, ..good }),
            5 => (key, Binding { va: u64::MAX, ..good }),
            6 => (0, good),
            _ => (key ^ 1, good),
        };
        bind_element(&mut w, &a, key, binding);
        assert_eq!(commands(&w, &a, TX)[1..], [end_of(TX, WC_BIND)], "{n}");
        assert!(w.nodes[0].hw.fast.keys.values().any(|words| *words == before), "{n}");
        assert_eq!((w.counter(0, F_BINDS), w.counter(0, F_BINDS_REFUSED)), (0, 1), "{n}");
    }
}

/// Of its QP's domain and address space, and bound by an element; else the connection is to end, and nothing changes.
#[test]
fn qp_4_firmware_ends_the_key_of_a_send_with_invalidate_if_a_peer_may() {
    let good = Binding { va: 0x1000, len: 8, rights: READ, one_shot: false, region: 0 };
    for n in 0..5 {
        let (mut w, mut rng) = (World::new(2, 87), Rng(87));
        let [a, b] = [(0, 16), (1, 17)].map(|(node, qpn)| w.create_qp(node, qpn, ASID, |qp| qp.domain = 7));
        w.connect(&a, &b, 7);
        let other = w.create_qp(0, 18, OTHER, |qp| qp.domain = 7);
        let another = w.create_qp(0, 19, ASID, |qp| qp.domain = 8);
        let (owner, asid, domain) = match n {
            2 => (&other, OTHER, 7),
            3 => (&another, ASID, 8),
            _ => (&a, ASID, 7),
        };
        let (_, key) = register(&mut w, KeyRegister { domain, ..want(asid, 1, &mut rng) });
        if n < 2 {
            bind_element(&mut w, owner, key, good);
        }
        let before = table(&w, key);
        w.nodes[0].hw.fast.reads.insert((RX, a.qpn, recv::INVALIDATE), recv::Invalidate { waits: 1 }.word());
        let named = if n == 1 { key ^ 1 } else { key };
        w.nodes[0].hw.fast.reads.insert((RX, a.qpn, recv::INVALIDATE_KEY), named);
        // The row says which key, whatever an event from before the QP began anew would say.
        w.fast_event(0, EVENT_INVALIDATE, a.qpn, !named);
        w.run(3000);
        let done = n == 0;
        let command = if done { recv::CMD_INVALIDATED } else { recv::CMD_NOT_INVALIDATED };
        assert_eq!(commands(&w, &a, RX).last(), Some(&command), "{n}");
        assert_eq!((w.counter(0, F_INVALIDATES), w.counter(0, F_INVALIDATES_REFUSED)), (done.into(), (!done).into()));
        assert_eq!(w.counter(0, F_FAST_EVENTS), 0);
        let scope = recv::KeyScope::from_word(table(&w, key)[1]);
        assert_eq!((scope.live, scope.bound), (1, u32::from(!done)), "{n}");
        assert!(done || table(&w, key) == before, "{n}");
    }
}

/// A QP that has begun anew has nothing that waits.
#[test]
fn qp_4_an_event_of_what_waits_no_more_is_nothing() {
    let (mut w, a, _) = pair(86);
    for event in [EVENT_BIND, EVENT_INVALIDATE] {
        w.fast_event(0, event, a.qpn, 0);
        w.fast_event(0, event, 99, 0);
    }
    w.run(3000);
    assert_eq!([commands(&w, &a, TX), commands(&w, &a, RX)], [[send::CMD_START], [recv::CMD_START]]);
}
