// SPDX-License-Identifier: GPL-2.0
//! Protection domains and registered memory: what the card is told, and that nothing of it is left.

use super::callers::{self, *};
use crate::abi::{
    card::NUM_KEYS,
    counters::*,
    ioctl::*,
    message::{self, KeyBind, KeyFree, KeyRegister, KeysDrop},
    ring::*,
    rows::recv::*,
    status::*,
};
use kernel::{prelude::*, user};

const FIRST: u64 = 0x7000_0000_1234;

fn domain(descriptor: &Descriptor) -> Handle {
    call(descriptor, IOC_CREATE_DOMAIN, Handle::default()).expect("a domain")
}

/// Memory to be written to.
fn wanted(domain: u32) -> Register {
    Register { va: FIRST, len: 1 << 40, domain, rights: RIGHT_WRITE, ..Default::default() }
}

fn register(descriptor: &Descriptor, wanted: Register) -> Result<Register> {
    call(descriptor, IOC_REGISTER, wanted)
}

#[test]
fn qp_9_a_region_is_a_key_and_pins_nothing() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let pd = domain(&descriptor);
    assert_eq!((pd.value, pd.identity), (1, 1));
    for (n, (len, one_shot)) in [(1, false), (1 << 40, true)].into_iter().enumerate() {
        let wanted = Register { len, flags: one_shot.into(), domain_identity: pd.identity, ..wanted(pd.value) };
        let made = register(&descriptor, wanted).unwrap();
        assert_eq!((made.key, made.identity), (n as u32 + 1, n as u64 + 2));
        let told: KeyRegister = rig.last();
        assert_ne!(told.entropy, 0);
        let rights = RIGHT_WRITE as u8;
        let expected = KeyRegister { asid: 1, rights, domain: 1, one_shot, va: FIRST, len, entropy: told.entropy };
        assert_eq!(told, expected);
    }
    assert_eq!((rig.counter(D_KEYS), rig.counter(D_PINNED), rig.pins()), (2, 0, 0));
    let limits: QueryLimits = call(&descriptor, IOC_QUERY_LIMITS, QueryLimits::default()).unwrap();
    assert_eq!((limits.context_domains.taken, limits.card_domains.taken), (1, 1));
    assert_eq!((limits.context_regions.taken, limits.card_regions.taken, limits.card_regions.most), (2, 2, NUM_KEYS));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_DOMAIN, 1), Err(EBUSY));
    assert_eq!(with_number(&descriptor, IOC_DEREGISTER, 1), Ok(()));
    assert_eq!(rig.last::<KeyFree>(), KeyFree { asid: 1, key: 1 });
    assert_eq!(with_number(&descriptor, IOC_DEREGISTER, 1), Err(ENOENT));
    let other = Handle { value: 2, identity: 2, reserved: 0 };
    assert_eq!(call(&descriptor, IOC_DEREGISTER, other).map(drop), Err(ENOENT), "the first one's identity");
    assert_eq!(with_number(&descriptor, IOC_DEREGISTER, 2), Ok(()));
    assert_eq!(rig.counter(D_KEYS), 0);
    assert_eq!(with_number(&descriptor, IOC_DESTROY_DOMAIN, 1), Ok(()));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_DOMAIN, 1), Err(ENOENT));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn qp_9_a_region_is_bound_anew() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let pd = domain(&descriptor);
    let made = register(&descriptor, wanted(pd.value)).unwrap();
    let bind = Register { va: 5, len: 6, rights: 7, flags: 1, key: made.key, ..Default::default() };
    call(&descriptor, IOC_REBIND, Register { identity: made.identity, ..bind }).unwrap();
    let expected = KeyBind { asid: 1, rights: 7, one_shot: true, va: 5, len: 6, key: made.key };
    assert_eq!(rig.last::<KeyBind>(), expected);
    // To nothing.
    call(&descriptor, IOC_REBIND, Register { va: 0, len: 0, rights: 0, ..bind }).unwrap();
    let told = rig.times(CMD_KEY_BIND);
    for bad in [
        Register { identity: made.identity + 1, ..bind },
        Register { key: made.key + 1, ..bind },
        Register { rights: 8, ..bind },
        Register { domain: pd.value, ..bind },
    ] {
        let error = if bad.rights == 8 || bad.domain != 0 { EINVAL } else { ENOENT };
        assert_eq!(call(&descriptor, IOC_REBIND, bad).map(drop), Err(error));
    }
    assert_eq!(rig.times(CMD_KEY_BIND), told);
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn inv_6_a_region_that_cannot_be_is_refused_and_the_card_not_told() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let pd = domain(&descriptor);
    let good = wanted(pd.value);
    for bad in [
        Register { len: 0, ..good },
        Register { rights: 0, ..good },
        Register { rights: 8, ..good },
        Register { flags: 2, ..good },
        Register { key: 1, ..good },
        Register { identity: 1, ..good },
        // Beyond what a process may have, and beyond all.
        Register { va: 1 << 57, ..good },
        Register { va: (1 << 57) - 1, len: 2, ..good },
        Register { va: u64::MAX, len: 2, ..good },
    ] {
        assert_eq!(register(&descriptor, bad).map(drop), Err(EINVAL), "{bad:?}");
    }
    for bad in [Register { domain: 0, ..good }, Register { domain: 2, ..good }, Register { domain_identity: 9, ..good }]
    {
        assert_eq!(register(&descriptor, bad).map(drop), Err(ENOENT));
    }
    for bad in [Handle { value: 1, ..Default::default() }, Handle { identity: 1, ..Default::default() }] {
        assert_eq!(call(&descriptor, IOC_CREATE_DOMAIN, bad).map(drop), Err(EINVAL));
    }
    let (other, _) = context(&rig);
    assert_eq!(register(&other, good).map(drop), Err(ENOENT), "another context's");
    assert_eq!(rig.times(CMD_KEY_REGISTER), 0);
    let last = Register { va: (1 << 57) - 2, len: 2, ..good };
    register(&descriptor, last).unwrap();
    register(&descriptor, Register { va: 0, len: 0, rights: 0, ..good }).unwrap();
    drop((descriptor, other, owner));
    rig.end();
}

#[test]
fn qp_11_a_queue_pair_is_in_its_domain_until_it_is_destroyed() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let pd = domain(&descriptor);
    let cq = callers::cq(&descriptor, 16).unwrap();
    let base = wanted_qp(cq.cqn);
    for (bad, error) in [
        (CreateQp { domain: pd.value + 1, ..base }, ENOENT),
        (CreateQp { domain: pd.value, domain_identity: pd.identity + 9, ..base }, ENOENT),
        (CreateQp { domain_identity: 1, ..base }, EINVAL),
    ] {
        assert_eq!(call(&descriptor, IOC_CREATE_QP, bad).map(drop), Err(error));
    }
    let wanted = CreateQp { domain: pd.value, domain_identity: pd.identity, ..base };
    let qp = call(&descriptor, IOC_CREATE_QP, wanted).unwrap();
    assert_eq!(rig.last::<message::QpCreate>().domain, 1);
    assert_eq!(with_number(&descriptor, IOC_DESTROY_DOMAIN, pd.value), Err(EBUSY));
    with_number(&descriptor, IOC_DESTROY_QP, qp.qpn).unwrap();
    assert_eq!(with_number(&descriptor, IOC_DESTROY_DOMAIN, pd.value), Ok(()));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn inv_5_all_keys_go_with_their_context() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let (other, _) = context(&rig);
    let pds = [&descriptor, &other].map(domain);
    assert_eq!(pds.map(|pd| pd.value), [1, 2]);
    for _ in 0..9 {
        register(&descriptor, wanted(1)).unwrap();
    }
    register(&other, wanted(2)).unwrap();
    drop((descriptor, owner));
    assert_eq!((rig.times(CMD_KEYS_DROP), rig.times(CMD_KEY_FREE)), (1, 0), "all at once");
    assert_eq!(rig.last::<KeysDrop>().asid, 1);
    assert_eq!((rig.hardware().keys(), rig.counter(D_KEYS)), (1, 1));
    // Its domain's number is free again.
    let (third, _) = context(&rig);
    assert_eq!(domain(&third).value, 1);
    drop(third);
    assert_eq!(rig.times(CMD_KEYS_DROP), 1, "who has registered nothing has no keys");
    drop(other);
    assert_eq!((rig.hardware().keys(), rig.counter(D_KEYS)), (0, 0));
    rig.end();
}

#[test]
fn a_reset_ends_regions_and_domains() {
    let rig = begin();
    user::set_capabilities(ADMIN);
    let (descriptor, owner) = context(&rig);
    let pd = domain(&descriptor);
    register(&descriptor, wanted(pd.value)).unwrap();
    with_number(&descriptor, IOC_RESET, 0).unwrap();
    assert_eq!(rig.counter(D_KEYS), 0);
    assert_eq!(with_number(&descriptor, IOC_DEREGISTER, 1), Err(ENOENT));
    assert_eq!(register(&descriptor, wanted(pd.value)).map(drop), Err(ENOENT));
    let pd = domain(&descriptor);
    assert_eq!(pd.value, 1);
    register(&descriptor, wanted(pd.value)).unwrap();
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn a_region_of_which_nobody_can_be_told_is_ended() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    assert_eq!(call_untold(&descriptor, IOC_CREATE_DOMAIN, Handle::default()).map(drop), Err(EFAULT));
    let pd = domain(&descriptor);
    assert_eq!(pd.value, 1, "its number is free again");
    assert_eq!(call_untold(&descriptor, IOC_REGISTER, wanted(pd.value)).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_KEYS), rig.hardware().keys()), (0, 0));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_DOMAIN, pd.value), Ok(()));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn what_memory_or_firmware_refuses_leaves_nothing() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    rig.world.fail_next(1, 0);
    assert_eq!(call(&descriptor, IOC_CREATE_DOMAIN, Handle::default()).map(drop), Err(ENOMEM));
    let pd = domain(&descriptor);
    assert_eq!(pd.value, 1);
    // Room for it, the note of the call.
    for n in 1..=2 {
        rig.world.fail_nth(n);
        assert_eq!(register(&descriptor, wanted(pd.value)).map(drop), Err(ENOMEM));
    }
    rig.world.fail_nth(3);
    register(&descriptor, wanted(pd.value)).unwrap();
    assert_eq!(rig.world.fail_nth(0), 2, "the room was there");
    for (status, error) in [(CMD_FULL, ENOSPC), (CMD_INVALID, EINVAL)] {
        rig.reply(CMD_KEY_REGISTER, status);
        assert_eq!(register(&descriptor, wanted(pd.value)).map(drop), Err(error));
    }
    assert_eq!((rig.counter(D_KEYS), rig.hardware().keys()), (1, 1));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn inv_6_one_context_leaves_keys_and_domains_to_others() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let domains = MAX_DOMAINS / 4;
    for n in 1..=domains {
        assert_eq!(domain(&descriptor).value, n);
    }
    assert_eq!(call(&descriptor, IOC_CREATE_DOMAIN, Handle::default()).map(drop), Err(ENOSPC));
    for _ in 0..NUM_KEYS / 4 {
        register(&descriptor, wanted(1)).unwrap();
    }
    assert_eq!(register(&descriptor, wanted(1)).map(drop), Err(ENOSPC));
    let (other, _) = context(&rig);
    let pd = domain(&other);
    assert_eq!(pd.value, domains + 1);
    register(&other, wanted(pd.value)).unwrap();
    drop((descriptor, owner, other));
    rig.end();
}
