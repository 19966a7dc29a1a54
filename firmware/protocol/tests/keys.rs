// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RKeys: ranges, rights, one-shot keys, regions and windows.

mod common;

use berth_protocol::memory::keys::*;
use berth_protocol::model::Rng;
use berth_protocol::rc::{Access, Remote, Right};
use proptest::prelude::*;

/// The protection domain.
const D: u16 = 3;

fn access(key: u32, va: u64, len: u32, right: Right) -> Access {
    Access { remote: Remote { va, key, len }, right, first: 7, packets: 2, again: false }
}

fn bound(va: u64, len: u64, rights: u8) -> Binding {
    Binding { va, len, rights, ..Binding::default() }
}

#[test]
fn qp_11_bytes_inside_the_range_and_no_others() {
    let mut keys = Keys::<8>::new();
    let key = keys.allocate(D, 0x1234_5678).unwrap();
    assert_eq!(keys.check(D, 1, &access(key, 100, 1, Right::Read)), Err(Refusal::Unbound));
    keys.bind(key, bound(1001, 77, READ)).unwrap();
    for (va, len, want) in [
        (1001, 77, Ok(())),
        (1077, 1, Ok(())),
        (1001, 78, Err(Refusal::Range)),
        (1000, 2, Err(Refusal::Range)),
        (1078, 1, Err(Refusal::Range)),
        (u64::MAX, 1, Err(Refusal::Range)),
        (1002, u32::MAX, Err(Refusal::Range)),
    ] {
        assert_eq!(keys.check(D, 1, &access(key, va, len, Right::Read)), want, "{va} {len}");
    }
    assert_eq!(keys.check(D, 1, &access(key, 1001, 8, Right::Write)), Err(Refusal::Right));
    assert_eq!(keys.check(D, 1, &access(key, 1001, 8, Right::Atomic)), Err(Refusal::Right));
    assert_eq!(keys.check(D, 1, &access(key ^ 0x100, 1001, 8, Right::Read)), Err(Refusal::Unknown));
    assert_eq!(keys.check(D, 1, &access(key ^ 1, 1001, 8, Right::Read)), Err(Refusal::Unknown));
    // For every QP of the domain, and of no other one.
    assert_eq!(keys.check(D + 1, 1, &access(key, 1001, 8, Right::Read)), Err(Refusal::Domain));
    assert_eq!(keys.check(D, 99, &access(key, 1001, 8, Right::Read)), Ok(()));
}

#[test]
fn qp_11_a_key_protects_one_range_at_a_time() {
    let mut keys = Keys::<2>::new();
    let key = keys.allocate(D, 5).unwrap();
    keys.bind(key, bound(0, 10, WRITE)).unwrap();
    keys.bind(key, bound(500, 10, READ)).unwrap();
    assert_eq!(keys.check(D, 1, &access(key, 0, 1, Right::Write)), Err(Refusal::Range));
    assert_eq!(keys.check(D, 1, &access(key, 509, 1, Right::Read)), Ok(()));
    let renewed = keys.renew(key, 77).unwrap();
    assert_eq!(keys.check(D, 1, &access(key, 509, 1, Right::Read)), Err(Refusal::Unknown));
    assert_eq!(keys.check(D, 1, &access(renewed, 509, 1, Right::Read)), Ok(()));
}

#[test]
fn qp_4_an_element_binds_keys_of_its_domain_and_chooses_their_lowest_bits() {
    let mut keys = Keys::<4>::new();
    let key = keys.allocate(D, 5 << 32 | 0x300).unwrap();
    keys.bind(key, bound(8, 8, READ)).unwrap();
    for (domain, name, binding) in [
        (D + 1, key, bound(8, 8, WRITE)),
        (D, key ^ 1 << 20, bound(8, 8, WRITE)),
        (D, key ^ 1, bound(8, 0, WRITE)),
        (D, key ^ 1, bound(u64::MAX, 2, WRITE)),
    ] {
        assert!(keys.bind_element(domain, name, binding).is_err());
        assert_eq!(keys.binding(key), Some(&bound(8, 8, READ)));
    }
    let tagged = key & !0xff | 0x77;
    keys.bind_element(D, tagged, bound(100, 8, WRITE)).unwrap();
    assert_eq!(keys.check(D, 1, &access(key, 8, 1, Right::Read)), Err(Refusal::Unknown));
    assert_eq!(keys.check(D, 1, &access(tagged, 107, 1, Right::Write)), Ok(()));
    keys.bind_element(D, tagged, Binding::default()).unwrap();
    assert_eq!(keys.check(D, 1, &access(tagged, 107, 1, Right::Write)), Err(Refusal::Unbound));
    // A region that windows are bound in stays as it is; 0 is no key.
    let region = keys.register(D, 0, 100, READ | WRITE, 9).unwrap();
    keys.bind(tagged, Binding { region, ..bound(0, 10, READ) }).unwrap();
    assert_eq!(keys.bind_element(D, region ^ 1, Binding::default()), Err(KeyError::InUse));
    let mut first = Keys::<1>::new();
    let low = first.allocate(D, 5).unwrap();
    assert_eq!((low, first.bind_element(D, 0, Binding::default())), (5, Err(KeyError::Invalid)));
}

#[test]
fn qp_4_a_peer_invalidates_what_an_element_has_bound_and_nothing_else() {
    let mut keys = Keys::<4>::new();
    let key = keys.allocate(D, 5).unwrap();
    let region = keys.register(D, 0x1000, 0x1000, READ | WRITE, 11).unwrap();
    assert_eq!(keys.invalidate(D, key), Err(KeyError::Invalid), "it is not bound");
    keys.bind(key, bound(8, 8, READ)).unwrap();
    assert_eq!(keys.invalidate(D, key), Err(KeyError::Invalid), "no element has bound it");
    assert_eq!(keys.invalidate(D, region), Err(KeyError::Invalid));
    keys.bind_element(D, key ^ 1, bound(8, 8, READ)).unwrap();
    assert_eq!(keys.invalidate(D, key), Err(KeyError::Unknown), "its name is another one");
    assert_eq!(keys.invalidate(D + 1, key ^ 1), Err(KeyError::Unknown), "another domain's");
    assert_eq!(keys.check(D, 1, &access(key ^ 1, 8, 1, Right::Read)), Ok(()));
    keys.invalidate(D, key ^ 1).unwrap();
    assert_eq!(keys.check(D, 1, &access(key ^ 1, 8, 1, Right::Read)), Err(Refusal::Unbound));
    assert_eq!(keys.invalidate(D, key ^ 1), Err(KeyError::Invalid), "it is dead already");
    // A window lets go of its region, and may be bound again.
    keys.bind_element(D, key, Binding { region, ..bound(0x1000, 8, READ) }).unwrap();
    assert_eq!(keys.deallocate(region), Err(KeyError::InUse));
    keys.invalidate(D, key).unwrap();
    keys.deallocate(region).unwrap();
    // Bound by a call anew it is the owner's again.
    keys.bind_element(D, key, bound(8, 8, READ)).unwrap();
    keys.bind(key, bound(8, 8, READ)).unwrap();
    assert_eq!(keys.invalidate(D, key), Err(KeyError::Invalid));
}

#[test]
fn qp_9_unbind_is_bind_of_nothing_and_bad_parameters_change_nothing() {
    let mut keys = Keys::<2>::new();
    let key = keys.allocate(D, 5).unwrap();
    for bad in [bound(8, 0, READ), bound(8, 8, 0), bound(8, 8, 8), bound(u64::MAX, 2, READ)] {
        assert_eq!(keys.bind(key, bad), Err(KeyError::Invalid));
    }
    keys.bind(key, bound(8, 8, READ)).unwrap();
    assert_eq!(keys.bind(key, bound(8, 0, READ)), Err(KeyError::Invalid));
    assert_eq!(keys.binding(key), Some(&bound(8, 8, READ)));
    keys.unbind(key).unwrap();
    assert_eq!(keys.binding(key), None);
    assert_eq!(keys.check(D, 1, &access(key, 8, 1, Right::Read)), Err(Refusal::Unbound));
    keys.deallocate(key).unwrap();
    assert_eq!(keys.deallocate(key), Err(KeyError::Unknown));
    assert_eq!(keys.bind(key, bound(8, 8, READ)), Err(KeyError::Unknown));
    let next = keys.allocate(D, 5).unwrap();
    assert_ne!(next, key, "the old key stays dead though the entropy is the same");
    keys.allocate(D, 6).unwrap();
    assert_eq!(keys.allocate(D, 7), Err(KeyError::Full));
}

#[test]
fn qp_9_windows_lie_in_their_region_which_stays_as_long() {
    let mut keys = Keys::<4>::new();
    let region = keys.register(D, 0x1000, 0x1000, READ | WRITE, 11).unwrap();
    let window = keys.allocate(D, 12).unwrap();
    let inside = Binding { region, ..bound(0x1800, 0x800, READ) };
    for bad in [
        Binding { va: 0xfff, ..inside },
        Binding { len: 0x801, ..inside },
        Binding { rights: ATOMIC, ..inside },
        Binding { region: window, ..inside },
    ] {
        assert_eq!(keys.bind(window, bad), Err(KeyError::Invalid));
    }
    assert_eq!(keys.bind(window, Binding { region: region ^ 0x100, ..inside }), Err(KeyError::Unknown));
    keys.bind(window, inside).unwrap();
    assert_eq!(keys.deallocate(region), Err(KeyError::InUse));
    assert_eq!(keys.renew(region, 3), Err(KeyError::InUse));
    keys.bind(window, inside).unwrap();
    keys.unbind(window).unwrap();
    keys.deallocate(region).unwrap();
    assert_eq!(keys.register(D, u64::MAX, 2, READ, 1), Err(KeyError::Invalid));
    // A region of another domain holds no window of this one.
    let foreign = keys.register(D + 1, 0x1000, 0x1000, READ, 12).unwrap();
    assert_eq!(keys.bind(window, Binding { region: foreign, ..inside }), Err(KeyError::Invalid));
    keys.deallocate(foreign).unwrap();
    assert_eq!(keys.in_use(), 1);
}

#[test]
fn qp_12_a_one_shot_key_serves_one_operation() {
    let mut keys = Keys::<2>::new();
    let key = keys.allocate(D, 5).unwrap();
    let once = Binding { one_shot: true, ..bound(0, 4096, READ | WRITE) };
    keys.bind(key, once).unwrap();
    let first = access(key, 0, 2000, Right::Write);
    // All packets of it, each of which is checked.
    assert_eq!(keys.check(D, 1, &first), Ok(()));
    assert_eq!(keys.check(D, 1, &first), Ok(()));
    // Neither another operation meanwhile nor another QP's.
    assert_eq!(keys.check(D, 1, &Access { first: 9, ..first }), Err(Refusal::Used));
    assert_eq!(keys.check(D, 2, &first), Err(Refusal::Used));
    keys.used(1, key, 7);
    assert_eq!(keys.check(D, 1, &first), Err(Refusal::Used));
    keys.bind(key, once).unwrap();
    assert_eq!(keys.check(D, 2, &first), Ok(()));
}

#[test]
fn qp_12_the_answer_of_a_one_shot_read_may_be_asked_for_again() {
    let mut keys = Keys::<2>::new();
    let key = keys.allocate(D, 5).unwrap();
    keys.bind(key, Binding { one_shot: true, ..bound(0, 4096, READ) }).unwrap();
    let first = access(key, 0, 512, Right::Read);
    keys.check(D, 1, &first).unwrap();
    keys.used(1, key, 7);
    // Its next part, as a long READ is cut.
    let next = Access { first: 9, ..access(key, 512, 512, Right::Read) };
    keys.check(D, 1, &next).unwrap();
    keys.used(1, key, 9);
    let part = Access { first: 8, packets: 1, again: true, ..access(key, 256, 256, Right::Read) };
    assert_eq!(keys.check(D, 1, &part), Ok(()));
    assert_eq!(keys.check(D, 1, &Access { first: 10, packets: 2, ..part }), Err(Refusal::Used));
    assert_eq!(keys.check(D, 1, &first), Err(Refusal::Used));
    assert_eq!(keys.check(D, 1, &Access { first: 11, ..access(key, 0, 512, Right::Read) }), Err(Refusal::Used));
}

#[test]
fn qp_9_no_key_is_0_and_none_comes_back_at_once() {
    for entropy in [0, 1, 2, 1 << 30, 1 << 31, 3 << 30, u32::MAX.into(), u64::MAX] {
        let mut keys = Keys::<1>::new();
        let mut last = keys.allocate(D, entropy).unwrap();
        for _ in 0..4 {
            assert_ne!(last, 0);
            keys.deallocate(last).unwrap();
            let next = keys.allocate(D, entropy).unwrap();
            assert_ne!(next, last, "{entropy:#x}");
            last = next;
        }
    }
}

#[test]
fn qp_9_the_owner_chooses_the_lowest_8_bits_of_a_key() {
    let mut keys = Keys::<4>::new();
    let key = keys.allocate(D, 0x1234_5600).unwrap();
    keys.bind(key, bound(0, 10, READ)).unwrap();
    let tagged = keys.tag(key, 0xab).unwrap();
    assert_eq!(tagged, key & !0xff | 0xab);
    assert_eq!(keys.check(D, 1, &access(key, 0, 1, Right::Read)), Err(Refusal::Unknown));
    assert_eq!(keys.check(D, 1, &access(tagged, 0, 1, Right::Read)), Ok(()));
    assert_eq!(keys.tag(key, 1), Err(KeyError::Unknown));
    // A region keeps its key while windows know it; no key is 0.
    let region = keys.register(D, 0, 100, READ, 0).unwrap();
    keys.bind(tagged, Binding { region, ..bound(0, 10, READ) }).unwrap();
    assert_eq!(keys.tag(region, 1), Err(KeyError::InUse));
    let mut one = Keys::<1>::new();
    let low = one.allocate(D, 5).unwrap();
    assert_eq!((low, one.tag(low, 0)), (5, Err(KeyError::Invalid)));
}

/// Places and all bits above and below them are as likely as each other, also when the table is nearly full.
#[test]
fn qp_9_keys_are_drawn_evenly() {
    const DRAWS: u64 = 4096;
    let seed = berth_random::seed(43);
    let mut rng = Rng(seed);
    let mut keys = Keys::<16>::new();
    // Three places are taken.
    let taken: Vec<_> = (0..3).map(|_| keys.allocate(D, rng.draw()).unwrap() >> 8 & 15).collect();
    let (mut places, mut ones) = ([0u64; 16], [0u64; 32]);
    for _ in 0..DRAWS {
        let key = keys.allocate(D, rng.draw()).unwrap();
        places[(key >> 8 & 15) as usize] += 1;
        (0..32).for_each(|bit| ones[bit] += u64::from(key >> bit & 1));
        keys.deallocate(key).unwrap();
    }
    for (place, &n) in (0..).zip(&places) {
        match taken.contains(&place) {
            true => assert_eq!(n, 0),
            // Five deviations about 315.
            false => assert!((230..400).contains(&n), "place {place}: {n} of {DRAWS}"),
        }
    }
    for (bit, &n) in ones.iter().enumerate().filter(|(bit, _)| !(8..12).contains(bit)) {
        assert!((1888..2208).contains(&n), "bit {bit}: {n} of {DRAWS}");
    }
}

#[test]
fn qp_9_a_window_may_be_all_of_its_region_and_lets_go_of_it_with_its_key() {
    let mut keys = Keys::<4>::new();
    let region = keys.register(D, 0x1000, 0x1000, READ | WRITE, 11).unwrap();
    let window = keys.allocate(D, 12).unwrap();
    keys.bind(window, Binding { region, ..bound(0x1000, 0x1000, READ | WRITE) }).unwrap();
    assert_eq!(keys.deallocate(region), Err(KeyError::InUse));
    // One that is unbound twice lets go of it once.
    let other = keys.allocate(D, 13).unwrap();
    keys.bind(other, Binding { region, ..bound(0x1000, 1, READ) }).unwrap();
    for _ in 0..2 {
        keys.unbind(other).unwrap();
        assert_eq!(keys.deallocate(region), Err(KeyError::InUse));
    }
    keys.deallocate(window).unwrap();
    keys.deallocate(region).unwrap();
    assert_eq!(keys.in_use(), 1);
}

#[test]
fn qp_12_a_one_shot_read_goes_on_where_it_ended_with_the_next_packet_of_the_same_queue_pair() {
    let part = |first, va, right| Access { first, ..access(0, va, 512, right) };
    let once = Binding { one_shot: true, ..bound(0, 4096, READ | WRITE) };
    let begun = |right| {
        let mut keys = Keys::<1>::new();
        let key = keys.allocate(D, 5).unwrap();
        keys.bind(key, once).unwrap();
        let at = move |a: Access| Access { remote: Remote { key, ..a.remote }, ..a };
        keys.check(D, 1, &at(part(7, 0, right))).unwrap();
        (keys, at, key)
    };
    for (qpn, first, va, right, want) in [
        (1, 9, 512, Right::Read, Ok(())),
        (2, 9, 512, Right::Read, Err(Refusal::Used)),
        (1, 10, 512, Right::Read, Err(Refusal::Used)),
        (1, 9, 513, Right::Read, Err(Refusal::Used)),
        (1, 9, 512, Right::Write, Err(Refusal::Used)),
    ] {
        let (mut keys, at, _) = begun(Right::Read);
        assert_eq!(keys.check(D, qpn, &at(part(first, va, right))), want, "{qpn} {first} {va} {right:?}");
    }
    let (mut keys, at, _) = begun(Right::Write);
    assert_eq!(keys.check(D, 1, &at(part(9, 512, Right::Write))), Err(Refusal::Used));
    // Part by part; all of it may be asked for again.
    let (mut keys, at, key) = begun(Right::Read);
    keys.used(1, key, 9);
    keys.used(2, key, 7);
    assert_eq!(keys.check(D, 1, &at(part(7, 0, Right::Read))), Ok(()), "neither was the end of it");
    keys.used(1, key, 8);
    assert_eq!(keys.check(D, 1, &at(part(7, 0, Right::Read))), Err(Refusal::Used));
    keys.check(D, 1, &at(part(9, 512, Right::Read))).unwrap();
    assert_eq!(keys.check(D, 1, &at(part(7, 0, Right::Read))), Ok(()), "it is under way again");
    assert_eq!(keys.check(D, 1, &at(part(11, 512, Right::Read))), Err(Refusal::Used));
    keys.check(D, 1, &at(part(11, 1024, Right::Read))).unwrap();
    let again = Access { again: true, packets: 6, ..at(part(7, 0, Right::Read)) };
    assert_eq!(keys.check(D, 1, &again), Ok(()));
    assert_eq!(keys.check(D, 1, &Access { packets: 7, ..again }), Err(Refusal::Used));
    assert_eq!(keys.check(D, 2, &again), Err(Refusal::Used));
    // A new value of the key is a new key.
    let renewed = keys.renew(key, 99).unwrap();
    let fresh = Access { remote: Remote { key: renewed, ..again.remote }, again: false, first: 30, ..again };
    assert_eq!(keys.check(D, 2, &fresh), Ok(()));
}

proptest! {
    #![proptest_config(common::config(300))]

    /// The table against a list of what was bound last.
    #[test]
    fn qp_11_the_table_gives_what_was_bound_last_and_nothing_else(
        script in prop::collection::vec((0u8..6, 0usize..6, 0u64..40, 0u64..40, 1u8..8, any::<u64>()), 1..200),
    ) {
        let mut keys = Keys::<4>::new();
        let mut known: Vec<(u32, Option<Binding>)> = Vec::new();
        for (what, which, va, len, rights, entropy) in script {
            let slot = if known.is_empty() { None } else { Some(which % known.len()) };
            match (what, slot) {
                (0, _) => match keys.allocate(D, entropy) {
                    Ok(key) => {
                        prop_assert!(known.iter().all(|k| k.0 != key));
                        known.push((key, None));
                    }
                    Err(error) => prop_assert!(error == KeyError::Full && known.len() == 4),
                },
                (1, Some(i)) => {
                    keys.deallocate(known[i].0).unwrap();
                    known.remove(i);
                }
                (2 | 3, Some(i)) => {
                    let binding = bound(va, len, rights);
                    match keys.bind(known[i].0, binding) {
                        Ok(()) => known[i].1 = (len != 0).then_some(binding),
                        Err(error) => prop_assert!(error == KeyError::Invalid && len == 0),
                    }
                }
                _ => {
                    let key = slot.map_or(entropy as u32, |i| known[i].0 ^ ((entropy % 5 == 0) as u32 * entropy as u32));
                    let right = [Right::Read, Right::Write, Right::Atomic][(entropy >> 8) as usize % 3];
                    let flag = [READ, WRITE, ATOMIC][(entropy >> 8) as usize % 3];
                    let want = known.iter().any(|(k, b)| {
                        *k == key && b.is_some_and(|b| b.va <= va && va + len <= b.va + b.len && b.rights & flag != 0)
                    });
                    let got = keys.check(D, 1, &access(key, va, len as u32, right)).is_ok();
                    prop_assert_eq!(got, want);
                }
            }
            prop_assert_eq!(keys.in_use(), known.len());
        }
    }
}
