// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's commands for keys: what RTL's table has after each, and whose keys they may name (QP-9, QP-11).

mod common;
use berth_abi::message::{CmdDone, KeyBind, KeyFree, KeyRegister, KeysDrop};
use berth_abi::rows::{HALF_RECEIVES, recv};
use berth_abi::status::*;
use berth_protocol::memory::keys::{Binding, Keys, READ, WRITE};
use berth_protocol::model::{Rng, World};
use common::{commands, pair};

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
        assert_eq!(w.command(0, KeyFree { asid, key: key ^ 1 }.encode()).status, CMD_NOT_FOUND);
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
    let (_, key) = register(&mut w, want(common::ASID, 1, &mut Rng(83)));
    w.command(0, KeyFree { asid: common::ASID, key }.encode());
    let is_key = |word: &u32| matches!(word & 0xff, recv::CMD_KEY_LOAD | recv::CMD_KEY_STORE);
    let (of_keys, others): (Vec<u32>, Vec<u32>) = commands(&w, &a, HALF_RECEIVES).into_iter().partition(is_key);
    assert_eq!(others, before);
    assert!(!of_keys.is_empty());
}
