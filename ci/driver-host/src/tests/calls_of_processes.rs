// SPDX-License-Identifier: GPL-2.0
//! Calls of processes at `/dev/berthN`: which there are, who may make them, and what becomes of them.

use super::callers::*;
use super::clients::asked;
use super::rig::*;
use crate::abi::message;
use crate::abi::message::{CqCreate, QpCreate};
use crate::abi::{
    card::*,
    counters::*,
    ioctl::{self, *},
    ring::*,
};
use crate::kernel::doorbell::{DOORBELL, Registers};
use crate::uapi::NAMES;
use kernel::{
    fs::File,
    misc::Inode,
    miscdevice::MiscDevice,
    mm::MmWithUser,
    mm::virt::{VmaNew, flags},
    prelude::*,
    sync::{Arc, atomic::Relaxed},
    user,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Every call: its number, the bytes of its struct.
const CALLS: [(u32, u32, usize); 32] = [
    (IOC_CONTEXT, 0x01, 24),
    (IOC_QUERY, 0x02, 96),
    (IOC_SET_NET, 0x03, 16),
    (IOC_SET_LIMITS, 0x04, 24),
    (IOC_QUERY_CONTEXT, 0x05, 24),
    (IOC_QUERY_LIMITS, 0x06, 96),
    (IOC_CREATE_CQ, 0x10, 32),
    (IOC_DESTROY_CQ, 0x11, 16),
    (IOC_CREATE_QP, 0x12, 120),
    (IOC_DESTROY_QP, 0x13, 16),
    (IOC_QUERY_QP, 0x14, 56),
    (IOC_SET_TRIGGER, 0x15, 24),
    (IOC_ALIASES, 0x16, 32),
    (IOC_WHOLE, 0x1d, 136),
    (IOC_SET_CAP, 0x17, 24),
    (IOC_CREATE_DOMAIN, 0x18, 16),
    (IOC_DESTROY_DOMAIN, 0x19, 16),
    (IOC_REGISTER, 0x1a, 48),
    (IOC_REBIND, 0x1b, 48),
    (IOC_DEREGISTER, 0x1c, 16),
    (IOC_LISTEN, 0x20, 16),
    (IOC_UNLISTEN, 0x21, 16),
    (IOC_CONNECT, 0x22, 56),
    (IOC_ACCEPT, 0x23, 64),
    (IOC_REJECT, 0x24, 64),
    (IOC_DISCONNECT, 0x25, 16),
    (IOC_GET_EVENT, 0x26, 88),
    (IOC_SET_PEER, 0x27, 40),
    (IOC_COUNTERS, 0x30, 1408),
    (IOC_READ_LOG, 0x31, 16),
    (IOC_RESET, 0x32, 16),
    (IOC_CRASH, 0x33, 56),
];

/// What calls with nothing but zeros are answered with by a descriptor that is no context.
const WITHOUT_CONTEXT: [(u32, Result); 32] = [
    (IOC_CONTEXT, Err(EINVAL)),
    (IOC_QUERY, Ok(())),
    (IOC_SET_NET, Err(EPERM)),
    (IOC_SET_LIMITS, Ok(())),
    (IOC_QUERY_CONTEXT, Err(EINVAL)),
    (IOC_QUERY_LIMITS, Ok(())),
    (IOC_CREATE_CQ, Err(EINVAL)),
    (IOC_DESTROY_CQ, Err(EINVAL)),
    (IOC_CREATE_QP, Err(EINVAL)),
    (IOC_DESTROY_QP, Err(EINVAL)),
    (IOC_QUERY_QP, Err(EINVAL)),
    (IOC_SET_TRIGGER, Err(EINVAL)),
    (IOC_ALIASES, Err(EINVAL)),
    (IOC_WHOLE, Err(EINVAL)),
    (IOC_SET_CAP, Err(EINVAL)),
    (IOC_CREATE_DOMAIN, Err(EINVAL)),
    (IOC_DESTROY_DOMAIN, Err(EINVAL)),
    (IOC_REGISTER, Err(EINVAL)),
    (IOC_REBIND, Err(EINVAL)),
    (IOC_DEREGISTER, Err(EINVAL)),
    (IOC_LISTEN, Err(EINVAL)),
    (IOC_UNLISTEN, Err(EINVAL)),
    (IOC_CONNECT, Err(EINVAL)),
    (IOC_ACCEPT, Err(EINVAL)),
    (IOC_REJECT, Err(EINVAL)),
    (IOC_DISCONNECT, Err(EINVAL)),
    (IOC_GET_EVENT, Err(EINVAL)),
    (IOC_SET_PEER, Err(EINVAL)),
    (IOC_COUNTERS, Ok(())),
    (IOC_READ_LOG, Err(EPERM)),
    (IOC_RESET, Err(EPERM)),
    (IOC_CRASH, Err(EPERM)),
];

/// Calls with a number and nothing else, of a context.
const WITH_NUMBER: [u32; 7] =
    [IOC_DESTROY_CQ, IOC_DESTROY_QP, IOC_DESTROY_DOMAIN, IOC_DEREGISTER, IOC_LISTEN, IOC_UNLISTEN, IOC_DISCONNECT];

/// A process of its own.
fn another(rig: &Rig) -> &'static MmWithUser {
    rig.process()
}

fn zeros(cmd: u32) {
    user::put(AT, &vec![0; kernel::ioctl::_IOC_SIZE(cmd)], true);
}

#[test]
fn a_node_is_opened_by_its_name_while_its_card_is_there() {
    let rig = begin();
    for (n, name) in NAMES.iter().enumerate() {
        assert_eq!(name.to_str().unwrap(), format!("berth{n}"));
        assert_eq!(open(name).map(drop), if n == 0 { Ok(()) } else { Err(ENODEV) });
    }
    assert_eq!(open(c"berth16").map(drop), Err(ENODEV));
    assert_eq!(open(c"berth").map(drop), Err(ENODEV));
    rig.world.fail_next(1, 0);
    assert_eq!(open(c"berth0").map(drop), Err(ENOMEM));
    let card = rig.surroundings.card.borrow_mut().take();
    assert_eq!(open(c"berth0").map(drop), Err(ENODEV));
    *rig.surroundings.card.borrow_mut() = card;
    rig.end();
}

#[test]
fn calls_have_their_numbers_and_sizes_and_no_others_are_known() {
    let rig = begin();
    user::set_capabilities(ADMIN);
    let descriptor = descriptor();
    let mut refusals = 0;
    for (cmd, number, size) in CALLS {
        assert_eq!(cmd, 3 << 30 | (size as u32) << 16 | 0xb7 << 8 | number);
        // Another direction, size, type or number; no size at all.
        let none = cmd & !(0x3fff << 16);
        for other in [cmd ^ 1 << 30, cmd ^ 1 << 31, cmd + (4 << 16), cmd ^ 1 << 8, cmd ^ 0x80, none] {
            user::put(AT, &[0; 2048], true);
            assert_eq!(raw(&descriptor, other), Err(ENOTTY), "{other:#x}");
            refusals += 1;
        }
    }
    assert_eq!(refused(&rig), refusals, "each counts");
    drop(descriptor);
    rig.end();
}

#[test]
fn without_a_context_only_calls_about_the_card_are_answered() {
    let rig = begin();
    let descriptor = descriptor();
    for (cmd, answer) in WITHOUT_CONTEXT {
        zeros(cmd);
        let before = refused(&rig);
        assert_eq!(raw(&descriptor, cmd), answer, "{cmd:#x}");
        assert_eq!(refused(&rig) - before, u64::from(answer.is_err()));
    }
    drop(descriptor);
    rig.end();
}

#[test]
fn inv_6_a_context_answers_its_own_address_space_only() {
    let rig = begin();
    let mine = rig.process();
    user::enter(Some(mine));
    let (descriptor, _) = context(&rig);
    for other in [Some(another(&rig)), None] {
        user::enter(other);
        for (cmd, answer) in WITHOUT_CONTEXT.into_iter().skip(1) {
            zeros(cmd);
            let refusal = if answer == Err(EINVAL) { Err(EPERM) } else { answer };
            assert_eq!(raw(&descriptor, cmd), refusal, "{cmd:#x}");
        }
        assert_eq!(mmap(&descriptor, &File(None), 4096, 0), Err(EPERM));
    }
    user::enter(Some(mine));
    assert_eq!(with_number(&descriptor, IOC_LISTEN, 7), Ok(()));
    drop(descriptor);
    rig.end();
}

#[test]
fn memory_that_is_not_there_fails_a_call_before_it_does_anything() {
    let rig = begin();
    user::set_capabilities(ADMIN);
    let (descriptor, _) = context(&rig);
    let commands = rig.surroundings.hardware.borrow().log.len();
    for (cmd, _, size) in CALLS {
        // The struct's last byte is not there.
        user::put(AT, &vec![0; size - 1], true);
        let before = refused(&rig);
        let (answer, more) = if cmd == IOC_GET_EVENT { (EAGAIN, 0) } else { (EFAULT, 1) };
        assert_eq!(raw(&descriptor, cmd), Err(answer), "{cmd:#x}");
        assert_eq!(refused(&rig) - before, more);
    }
    assert_eq!(rig.surroundings.hardware.borrow().log.len(), commands);
    drop(descriptor);
    rig.end();
}

#[test]
fn reserved_fields_are_zero() {
    let rig = begin();
    user::set_capabilities(ADMIN);
    let (descriptor, owner) = context(&rig);
    let qp = qp(&descriptor);
    let (value, reserved) = (qp.qpn, 1);
    for cmd in WITH_NUMBER.into_iter().chain([IOC_RESET]) {
        assert_eq!(call(&descriptor, cmd, Handle { value, reserved, identity: 0 }).map(drop), Err(EINVAL), "{cmd:#x}");
    }
    let query = QueryQp { qpn: qp.qpn, reserved, ..Default::default() };
    assert_eq!(call(&descriptor, IOC_QUERY_QP, query).map(drop), Err(EINVAL));
    let trigger = SetTrigger { qpn: qp.qpn, reserved, ..Default::default() };
    assert_eq!(call(&descriptor, IOC_SET_TRIGGER, trigger).map(drop), Err(EINVAL));
    let crash = Crash { how: CRASH_LOOP, reserved, ..Default::default() };
    assert_eq!(call(&descriptor, IOC_CRASH, crash).map(drop), Err(EINVAL));
    let answer = Accept { request: 9, reserved, ..Default::default() };
    rig.registry.tables.lock().requests.push_within_capacity(asked(9, owner.asid)).unwrap();
    for cmd in [IOC_ACCEPT, IOC_REJECT] {
        assert_eq!(call(&descriptor, cmd, answer).map(drop), Err(EINVAL));
    }
    assert_eq!(rig.registry.query().abi, ABI_VERSION);
    assert_eq!((rig.times(CMD_CRASH), rig.counter(D_RESETS)), (0, 0));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn inv_5_a_descriptor_becomes_one_context_of_who_asks() {
    let rig = begin();
    let mine = rig.process();
    user::enter(Some(mine));
    let first = descriptor();
    let good = wanted_context();
    for bad in [
        ioctl::Context { abi: ABI_VERSION + 1, ..good },
        ioctl::Context { abi: ABI_VERSION - 1, ..good },
        ioctl::Context { reserved: 1, ..good },
    ] {
        assert_eq!(call(&first, IOC_CONTEXT, bad).map(drop), Err(EINVAL));
    }
    let no_file = ioctl::Context { event_fd: -2, ..good };
    assert_eq!(call(&first, IOC_CONTEXT, no_file).map(drop), Err(EBADF));
    user::enter(None);
    assert_eq!(call(&first, IOC_CONTEXT, good).map(drop), Err(EINVAL), "a thread of the kernel has no memory");
    user::enter(Some(mine));
    let made = call(&first, IOC_CONTEXT, ioctl::Context { doorbell_offset: 77, asid: 77, ..good }).unwrap();
    assert_eq!((made.abi, made.event_fd, made.doorbell_offset, made.asid, made.reserved), (ABI_VERSION, -1, 0, 1, 0));
    assert_eq!(rig.registry.context(1).unwrap().space.mm.as_raw(), mine.as_raw());
    assert_eq!(call(&first, IOC_CONTEXT, good).map(drop), Err(EBUSY));
    let second = descriptor();
    assert_eq!(call(&second, IOC_CONTEXT, good).unwrap().asid, 2);
    assert_eq!(rig.counter(D_CONTEXTS), 2);
    drop(first);
    assert!(rig.registry.context(1).is_none(), "it is closed with its descriptor");
    assert_eq!(rig.counter(D_CONTEXTS), 1);
    drop(second);
    assert_eq!(rig.counter(D_CONTEXTS), 0);
    rig.end();
}

#[test]
fn a_context_of_which_nobody_can_be_told_is_closed_and_may_be_made_again() {
    let rig = begin();
    let descriptor = descriptor();
    assert_eq!(call_untold(&descriptor, IOC_CONTEXT, wanted_context()).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_CONTEXTS), rig.contexts().len()), (0, 0));
    assert_eq!(with_number(&descriptor, IOC_LISTEN, 7), Err(EINVAL), "it is no context");
    assert_eq!(call(&descriptor, IOC_CONTEXT, wanted_context()).unwrap().asid, 1);
    drop(descriptor);
    rig.end();
}

#[test]
fn two_threads_make_one_context_of_a_descriptor() {
    at_random(|rig| {
        let descriptor = Rc::new(descriptor());
        let answers = Rc::new(RefCell::new(Vec::new()));
        let thread = || -> Box<dyn FnOnce()> {
            let (descriptor, answers) = (descriptor.clone(), answers.clone());
            Box::new(move || {
                let answer = call(&descriptor, IOC_CONTEXT, wanted_context()).map(|c| c.asid);
                answers.borrow_mut().push(answer);
            })
        };
        at_once(&rig, [thread(), thread()]);
        let answers = answers.take();
        assert!(answers.contains(&Ok(1)) && answers.contains(&Err(EBUSY)), "{answers:?}");
        assert_eq!(rig.counter(D_CONTEXTS), 1);
        drop(descriptor);
        rig.end();
    });
}

#[test]
fn queues_are_made_asked_for_and_destroyed() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let made = cq(&descriptor, 200).unwrap();
    assert_eq!((made.entries, made.cqn, made.bytes, made.offset), (256, 0, 8192, 1 << 22));
    let wanted = CreateQp { sq_depth: 3, rq_depth: 5, ..wanted_qp(made.cqn) };
    let qp = call(&descriptor, IOC_CREATE_QP, wanted).unwrap();
    assert_eq!((qp.sq_depth, qp.rq_depth, qp.qpn, qp.rq_start), (4, 8, FIRST_QPN, 512));
    assert_eq!((qp.bytes, qp.offset, made.identity, qp.identity), (4096, 2 << 22, 1, 2));
    assert_eq!((rig.counter(D_CQS), rig.counter(D_QPS)), (1, 1));
    let state = QpState { state: 9, reason: 9, receives: [9; 5], credits: 9, pieces: 9, reads: 9 };
    let query = call(&descriptor, IOC_QUERY_QP, QueryQp { qpn: qp.qpn, state, ..Default::default() }).unwrap();
    assert_eq!((query.qpn, query.state.state, query.state.receives, query.state.pieces), (qp.qpn, 0, [0; 5], 0));
    assert_eq!(rig.last::<message::QpQuery>().qpn, qp.qpn);
    assert_eq!(with_number(&descriptor, IOC_DESTROY_CQ, made.cqn), Err(EBUSY));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_QP, qp.qpn), Ok(()));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_QP, qp.qpn), Err(ENOENT));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_CQ, made.cqn), Ok(()));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_CQ, made.cqn), Err(ENOENT));
    assert_eq!((rig.last::<message::QpDestroy>().qpn, rig.last::<message::CqDestroy>().cqn), (qp.qpn, made.cqn));
    assert_eq!((rig.counter(D_CQS), rig.counter(D_QPS)), (0, 0));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn a_queue_of_which_nobody_can_be_told_is_destroyed() {
    let rig = begin();
    let (descriptor, _) = context(&rig);
    let wanted = CreateCq { entries: 16, event_fd: -1, ..Default::default() };
    assert_eq!(call_untold(&descriptor, IOC_CREATE_CQ, wanted).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_CQS), rig.times(CMD_CQ_CREATE), rig.times(CMD_CQ_DESTROY)), (0, 1, 1));
    let cq = cq(&descriptor, 16).unwrap();
    assert_eq!(cq.cqn, 0, "its place is free again");
    assert_eq!(call_untold(&descriptor, IOC_CREATE_QP, wanted_qp(cq.cqn)).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_QPS), rig.times(CMD_QP_CREATE), rig.times(CMD_QP_DESTROY)), (0, 1, 1));
    assert_eq!(call(&descriptor, IOC_CREATE_QP, wanted_qp(cq.cqn)).unwrap().qpn, FIRST_QPN);
    // A query changes nothing, so nothing is undone.
    let query = QueryQp { qpn: FIRST_QPN, ..Default::default() };
    assert_eq!(call_untold(&descriptor, IOC_QUERY_QP, query).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_CQS), rig.counter(D_QPS)), (1, 1));
    drop(descriptor);
    rig.end();
}

#[test]
fn inv_6_what_has_the_number_of_a_queue_that_nobody_was_told_of_stays() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    // Another thread of the process destroys it by its number, and makes one that gets this.
    let other = owner.clone();
    user::at_refusal(move || {
        other.destroy_cq(0).unwrap();
        other.create_cq(&mut CreateCq { entries: 4, event_fd: -1, ..Default::default() }).unwrap();
    });
    let wanted = CreateCq { entries: 16, event_fd: -1, ..Default::default() };
    assert_eq!(call_untold(&descriptor, IOC_CREATE_CQ, wanted).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_CQS), rig.times(CMD_CQ_CREATE), rig.times(CMD_CQ_DESTROY)), (1, 2, 1));
    let other = owner.clone();
    user::at_refusal(move || {
        other.destroy_qp(FIRST_QPN).unwrap();
        other.create_qp(&mut wanted_qp(0)).unwrap();
    });
    assert_eq!(call_untold(&descriptor, IOC_CREATE_QP, wanted_qp(0)).map(drop), Err(EFAULT));
    assert_eq!((rig.counter(D_QPS), rig.times(CMD_QP_CREATE), rig.times(CMD_QP_DESTROY)), (1, 2, 1));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_QP, FIRST_QPN), Ok(()));
    assert_eq!(with_number(&descriptor, IOC_DESTROY_CQ, 0), Ok(()));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn inv_6_objects_of_other_contexts_are_not_found() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let qp = qp(&descriptor);
    with_number(&descriptor, IOC_LISTEN, 7).unwrap();
    rig.registry.tables.lock().requests.push_within_capacity(asked(9, owner.asid)).unwrap();
    user::enter(Some(another(&rig)));
    let (other, _) = context(&rig);
    for (cmd, value) in [(IOC_DESTROY_CQ, 0), (IOC_DESTROY_QP, qp.qpn), (IOC_UNLISTEN, 7), (IOC_DISCONNECT, qp.qpn)] {
        assert_eq!(with_number(&other, cmd, value), Err(ENOENT), "{cmd:#x}");
    }
    assert_eq!(with_number(&other, IOC_LISTEN, 7), Err(EBUSY));
    let query = QueryQp { qpn: qp.qpn, ..Default::default() };
    assert_eq!(call(&other, IOC_QUERY_QP, query).map(drop), Err(ENOENT));
    assert_eq!(call(&other, IOC_CREATE_QP, wanted_qp(0)).map(drop), Err(ENOENT));
    let connect = Connect { qpn: qp.qpn, ipv4: 1, service: 7, ..Default::default() };
    assert_eq!(call(&other, IOC_CONNECT, connect).map(drop), Err(ENOENT));
    let peer = SetPeer { qpn: qp.qpn, ipv4: 1, peer_qpn: 16, mtu: 1024, ..Default::default() };
    assert_eq!(call(&other, IOC_SET_PEER, peer).map(drop), Err(ENOENT));
    let mine = call(&other, IOC_CREATE_CQ, CreateCq { entries: 16, event_fd: -1, ..Default::default() }).unwrap();
    let mine = call(&other, IOC_CREATE_QP, wanted_qp(mine.cqn)).unwrap();
    let accept = Accept { request: 9, qpn: mine.qpn, ..Default::default() };
    assert_eq!(call(&other, IOC_ACCEPT, accept).map(drop), Err(ENOENT));
    assert_eq!(call(&other, IOC_REJECT, Accept { qpn: 0, ..accept }).map(drop), Err(ENOENT));
    // Identities are each context's own: what is at an offset is its own as well, or nothing.
    assert!(mmap(&other, &File(None), 4096, mine.offset).is_ok());
    assert_eq!(mmap(&other, &File(None), 4096, mine.offset + (1 << 22)), Err(ENOENT));
    assert_eq!(mmap(&descriptor, &File(None), 4096, qp.offset), Err(EPERM), "inv_5: of another process");
    drop((descriptor, owner, other));
    rig.end();
}

#[test]
fn qp_10_connections_are_asked_for_answered_and_ended() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let qp = qp(&descriptor);
    assert_eq!(with_number(&descriptor, IOC_LISTEN, 7), Ok(()));
    assert_eq!(rig.things().services, [(7, owner.asid)]);
    assert_eq!(rig.last::<message::Listen>().service, 7);
    assert_eq!(with_number(&descriptor, IOC_UNLISTEN, 7), Ok(()));
    assert_eq!(rig.things().services, []);
    assert_eq!(rig.last::<message::Unlisten>().service, 7);

    let mut private = [0; 32];
    private[0] = 5;
    let connect = Connect { qpn: qp.qpn, ipv4: 0x0a00_0001, service: 7, private_len: 1, private, ..Default::default() };
    assert!(call(&descriptor, IOC_CONNECT, connect).is_ok());
    let told: message::Connect = rig.last();
    assert_eq!((told.qpn, told.ipv4, told.service, told.private_len), (qp.qpn, 0x0a00_0001, 7, 1));
    assert_eq!(with_number(&descriptor, IOC_DISCONNECT, qp.qpn), Ok(()));
    assert_eq!(rig.last::<message::Disconnect>().qpn, qp.qpn);
    let peer = SetPeer { qpn: qp.qpn, ipv4: 0x0a00_0001, peer_qpn: 17, mtu: 512, ..Default::default() };
    assert!(call(&descriptor, IOC_SET_PEER, peer).is_ok());
    let told: message::QpPeer = rig.last();
    assert_eq!((told.qpn, told.ipv4, told.peer_qpn, told.mtu), (qp.qpn, 0x0a00_0001, 17, 512));

    for (request, cmd, qpn) in [(9, IOC_ACCEPT, qp.qpn), (10, IOC_REJECT, 0)] {
        rig.registry.tables.lock().requests.push_within_capacity(asked(request, owner.asid)).unwrap();
        let answer = Accept { request, qpn, ..Default::default() };
        assert!(call(&descriptor, cmd, answer).is_ok());
        let told = match cmd {
            IOC_ACCEPT => rig.last::<message::Accept>().encode(),
            _ => rig.last::<message::Reject>().encode(),
        };
        let expected = match cmd {
            IOC_ACCEPT => message::Accept { request, qpn, ..Default::default() }.encode(),
            _ => message::Reject { request, ..Default::default() }.encode(),
        };
        assert_eq!(told, expected);
        assert_eq!(*rig.registry.tables.lock().requests, []);
        assert_eq!(call(&descriptor, cmd, answer).map(drop), Err(ENOENT), "it is answered");
    }
    assert_eq!((rig.times(CMD_CM_ACCEPT), rig.times(CMD_CM_REJECT)), (1, 1));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn events_are_taken_in_order_and_put_back_if_they_cannot_be_handed_over() {
    let rig = begin();
    let (descriptor, owner) = context(&rig);
    let before = refused(&rig);
    assert_eq!(call(&descriptor, IOC_GET_EVENT, ContextEvent::default()).map(drop), Err(EAGAIN));
    assert_eq!(refused(&rig), before, "that there is none is nothing bad");
    let [first, second] = [qp(&descriptor), qp(&descriptor)].map(|qp| (qp.qpn, qp.identity));
    for (id, _) in [first, second] {
        rig.event(message::CmEstablished { qpn: id, ..Default::default() }.encode());
    }
    assert_eq!(call_untold(&descriptor, IOC_GET_EVENT, ContextEvent::default()).map(drop), Err(EFAULT));
    assert_eq!(refused(&rig), before + 1);
    for (id, identity) in [first, second] {
        let event = call(&descriptor, IOC_GET_EVENT, ContextEvent::default()).unwrap();
        assert_eq!((event.kind, event.id, event.identity), (CTX_ESTABLISHED, id, identity));
    }
    assert_eq!(call(&descriptor, IOC_GET_EVENT, ContextEvent::default()).map(drop), Err(EAGAIN));
    drop((descriptor, owner));
    rig.end();
}

#[test]
fn a_query_tells_what_the_card_is() {
    let rig = begin();
    let descriptor = descriptor();
    user::enter(None);
    user::put(AT, &[0; 96], true);
    raw(&descriptor, IOC_QUERY).unwrap();
    let told = user::get(AT);
    // Cycles go on.
    let mut expected = bytes_of(&rig.registry.query());
    expected[56..64].copy_from_slice(&told[56..64]);
    assert_eq!(told, expected);
    drop(descriptor);
    rig.end();
}

#[test]
fn counters_are_those_of_card_firmware_and_driver() {
    let rig = begin();
    let descriptor = descriptor();
    let counters = call(&descriptor, IOC_COUNTERS, Counters { rtl: [9; 96], fw: [9; 48], drv: [9; 32] }).unwrap();
    let mut expected = Counters::ZERO;
    rig.card.regs.counters(&mut expected.rtl, &mut expected.fw);
    for n in 0..NUM_DRV_COUNTERS {
        expected.drv[n] = rig.pages.drv_counter(n as u32);
    }
    assert_eq!((counters.rtl, counters.fw, counters.drv), (expected.rtl, expected.fw, expected.drv));
    assert_ne!((counters.rtl, counters.fw), (Counters::ZERO.rtl, Counters::ZERO.fw));
    assert_eq!(counters.drv[D_BUDGET as usize], bytes(256));
    rig.world.fail_next(1, 0);
    assert_eq!(call(&descriptor, IOC_COUNTERS, Counters::ZERO).map(drop), Err(ENOMEM));
    drop(descriptor);
    rig.end();
}

#[test]
fn a_card_whose_driver_goes_has_no_counters_and_takes_no_name() {
    let rig = begin();
    user::set_capabilities(NET_ADMIN);
    let descriptor = descriptor();
    let registry = rig.registry.clone();
    rig.world.spawn(move || registry.unbind());
    rig.ms(2000);
    assert_eq!(call(&descriptor, IOC_COUNTERS, Counters::ZERO).map(drop), Err(ENODEV));
    assert_eq!(call(&descriptor, IOC_SET_NET, NET).map(drop), Err(ENODEV));
    assert_eq!((rig.registry.query().ipv4, rig.registry.query().guid), (0, 0), "it has no name that it does not know");
    assert_eq!(call(&descriptor, IOC_CONTEXT, wanted_context()).map(drop), Err(ENODEV));
    drop(descriptor);
    rig.end_at_once();
}

/// A name.
const NET: SetNet = SetNet { ipv4: 0x0a00_0001, mtu: 1024, mac: [0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0, 0] };

#[test]
fn qp_14_the_name_of_the_end_node_is_its_administrator_s() {
    let rig = begin();
    let descriptor = descriptor();
    for who in [NOBODY, ADMIN] {
        user::set_capabilities(who);
        assert_eq!(call(&descriptor, IOC_SET_NET, NET).map(drop), Err(EPERM));
    }
    user::set_capabilities(NET_ADMIN);
    let mac = |at: usize, byte| {
        let mut mac = NET.mac;
        mac[at] = byte;
        SetNet { mac, ..NET }
    };
    let mut bad = vec![mac(0, 3), mac(6, 1), mac(7, 1), SetNet { mac: [0; 8], ..NET }];
    bad.extend([0, 0xe000_0000, 0xf000_0001, 0xffff_ffff].map(|ipv4| SetNet { ipv4, ..NET }));
    bad.extend([0, 128, 255, 257, 768, 4095, 8192].map(|mtu| SetNet { mtu, ..NET }));
    for bad in bad {
        assert_eq!(call(&descriptor, IOC_SET_NET, bad).map(drop), Err(EINVAL), "{bad:x?}");
    }
    assert_eq!((rig.times(CMD_NET_CONFIG), rig.registry.query().ipv4), (0, 0));
    for good in [SetNet { mtu: 256, ..NET }, SetNet { mtu: 4096, ipv4: 0xdfff_ffff, ..NET }, NET] {
        assert!(call(&descriptor, IOC_SET_NET, good).is_ok());
        let told = rig.registry.query();
        assert_eq!((told.ipv4, told.mtu, told.mac), (good.ipv4, good.mtu, good.mac));
        assert_eq!(told.guid, 0x0011_22ff_fe33_4455);
        let name: message::NetConfig = rig.last();
        let (mac_first, mac_last, guid) = (0x0211_2233, 0x4455, 0x0011_22ff_fe33_4455);
        let expected = message::NetConfig { ipv4: good.ipv4, mac_first, mac_last, mtu: good.mtu, guid, key: name.key };
        assert_eq!(name, expected);
    }
    assert_eq!(rig.times(CMD_NET_CONFIG), 3);
    drop(descriptor);
    rig.end();
}

/// Limits, in pages.
fn limits(mask: u32, linger_ms: u32, card: u64, context: u64) -> SetLimits {
    SetLimits { mask, linger_ms, card_budget: bytes(card), context_budget: bytes(context) }
}

#[test]
fn limits_of_the_card_are_its_administrator_s() {
    let rig = begin();
    let descriptor = descriptor();
    let now = || {
        let budget = rig.pages.budget.lock().limit;
        (rig.pages.linger_ms.load(Relaxed), budget, rig.counter(D_BUDGET), rig.counter(D_PINNED_PEAK))
    };
    rig.card.counters.set(D_PINNED_PEAK, 5);
    let before = (50, 256, bytes(256), 5);
    let all = LIMIT_LINGER | LIMIT_CARD_BUDGET | LIMIT_RESET_PEAK;
    for mask in [LIMIT_LINGER, LIMIT_CARD_BUDGET, LIMIT_RESET_PEAK, all] {
        for who in [NOBODY, NET_ADMIN] {
            user::set_capabilities(who);
            assert_eq!(call(&descriptor, IOC_SET_LIMITS, limits(mask, 70, 300, 0)).map(drop), Err(EPERM));
        }
    }
    assert!(call(&descriptor, IOC_SET_LIMITS, limits(0, 70, 300, 0)).is_ok(), "nothing is asked for");
    user::set_capabilities(ADMIN);
    for mask in [16, 1 << 31, all | 16] {
        assert_eq!(call(&descriptor, IOC_SET_LIMITS, limits(mask, 70, 300, 0)).map(drop), Err(EINVAL));
    }
    for pages in [0, u64::from(XLT_ENTRIES) + 1] {
        assert_eq!(call(&descriptor, IOC_SET_LIMITS, limits(all, 70, pages, 0)).map(drop), Err(EINVAL));
    }
    assert_eq!(
        call(&descriptor, IOC_SET_LIMITS, SetLimits { card_budget: 4095, ..limits(all, 70, 0, 0) }).map(drop),
        Err(EINVAL)
    );
    assert_eq!(now(), before, "a call has its whole effect or none");
    // Each by itself.
    call(&descriptor, IOC_SET_LIMITS, limits(LIMIT_LINGER, 70, 300, 0)).unwrap();
    assert_eq!(now(), (70, 256, bytes(256), 5));
    call(&descriptor, IOC_SET_LIMITS, limits(LIMIT_CARD_BUDGET, 80, 300, 0)).unwrap();
    assert_eq!(now(), (70, 300, bytes(300), 5));
    call(&descriptor, IOC_SET_LIMITS, limits(LIMIT_RESET_PEAK, 80, 310, 0)).unwrap();
    assert_eq!(now(), (70, 300, bytes(300), 0));
    for (budget, pages) in [(4096, 1), (8191, 1), (bytes(u64::from(XLT_ENTRIES) + 1) - 1, u64::from(XLT_ENTRIES))] {
        let arg = SetLimits { card_budget: budget, ..limits(LIMIT_CARD_BUDGET, 0, 0, 0) };
        call(&descriptor, IOC_SET_LIMITS, arg).unwrap();
        assert_eq!(now(), (70, pages, bytes(pages), 0));
    }
    drop(descriptor);
    rig.end();
}

#[test]
fn limits_that_are_not_meant_stay_as_another_thread_sets_them() {
    at_random(|rig| {
        user::set_capabilities(ADMIN);
        let descriptor = Rc::new(descriptor());
        let thread = |arg: SetLimits| -> Box<dyn FnOnce()> {
            let descriptor = descriptor.clone();
            Box::new(move || assert!(call(&descriptor, IOC_SET_LIMITS, arg).is_ok()))
        };
        at_once(&rig, [thread(limits(LIMIT_LINGER, 70, 0, 0)), thread(limits(LIMIT_CARD_BUDGET, 0, 300, 0))]);
        assert_eq!((rig.pages.linger_ms.load(Relaxed), rig.pages.budget.lock().limit), (70, 300));
        drop(descriptor);
        rig.end();
    });
}

#[test]
fn pc_3_a_process_has_the_budget_that_it_gets_and_more_from_the_administrator_only() {
    let rig = begin_with(Setup { context_pages: 64, ..Setup::default() });
    let without = descriptor();
    let mine = |pages| limits(LIMIT_CONTEXT_BUDGET, 0, 0, pages);
    assert_eq!(call(&without, IOC_SET_LIMITS, mine(10)).map(drop), Err(EINVAL), "it is no context");
    let (descriptor, owner) = context(&rig);
    let set = |arg: SetLimits| call(&descriptor, IOC_SET_LIMITS, arg).map(|_| shown(&owner).limit);
    assert_eq!(shown(&owner).limit, 64);
    let most = u64::from(XLT_ENTRIES);
    for (pages, answer) in [
        (10, Ok(10)),
        (64, Ok(64)),
        (65, Err(EPERM)),
        (256, Err(EPERM)),
        (257, Err(EINVAL)),
        (0, Err(EINVAL)),
        (most + 1, Err(EINVAL)),
        (1, Ok(1)),
    ] {
        assert_eq!(set(mine(pages)), answer, "{pages}");
    }
    user::set_capabilities(ADMIN);
    assert_eq!([set(mine(65)), set(mine(256)), set(mine(257))], [Ok(65), Ok(256), Err(EINVAL)]);
    // Against the card's new budget, and all or nothing.
    let both = LIMIT_CARD_BUDGET | LIMIT_CONTEXT_BUDGET;
    assert_eq!(set(limits(both, 0, 10, 11)), Err(EINVAL));
    assert_eq!((rig.pages.budget.lock().limit, shown(&owner).limit), (256, 256));
    assert_eq!(set(limits(both, 0, 300, 300)), Ok(300));
    assert_eq!(rig.pages.budget.lock().limit, 300);
    user::enter(Some(another(&rig)));
    assert_eq!(set(limits(both, 0, 20, 10)), Err(EPERM));
    assert_eq!(rig.pages.budget.lock().limit, 300);
    drop((without, descriptor, owner));
    rig.end();
}

/// Reads the log with a buffer of `room` bytes, of which `there` are there; bytes copied and lost, and the buffer.
fn read_log(descriptor: &Descriptor, room: u32, there: usize) -> Result<(u32, u32, Vec<u8>)> {
    user::put(BUFFER, &vec![0xaa; there], true);
    let arg = ReadLog { buffer: BUFFER as u64, bytes: room, lost: 99 };
    let told = call(descriptor, IOC_READ_LOG, arg)?;
    assert_eq!(told.buffer, BUFFER as u64);
    Ok((told.bytes, told.lost, user::get(BUFFER)))
}

#[test]
fn the_log_of_firmware_is_read_by_its_administrator_in_order() {
    let rig = begin();
    let descriptor = descriptor();
    let text: Vec<u8> = (0..70_000).map(|n| (n % 251) as u8).collect();
    rig.card.log(&text[..5000]);
    for who in [NOBODY, NET_ADMIN] {
        user::set_capabilities(who);
        assert_eq!(read_log(&descriptor, 6000, 6000).map(drop), Err(EPERM));
    }
    user::set_capabilities(ADMIN);
    rig.world.fail_next(1, 0);
    assert_eq!(read_log(&descriptor, 6000, 6000).map(drop), Err(ENOMEM));
    let (copied, lost, buffer) = read_log(&descriptor, 6000, 6000).unwrap();
    assert_eq!((copied, lost), (5000, 0));
    assert!(buffer[..5000] == text[..5000] && buffer[5000..] == [0xaa; 1000]);
    // In pieces; the last of them are less than there is room for, and none.
    rig.card.log(&text[..250]);
    for (from, n) in [(0, 100), (100, 100), (200, 50), (250, 0)] {
        let (copied, lost, buffer) = read_log(&descriptor, 100, 100).unwrap();
        assert_eq!((copied, lost), (n as u32, 0));
        assert_eq!(buffer[..n], text[from..from + n]);
    }
    rig.card.log(&text[..10]);
    assert_eq!(read_log(&descriptor, 0, 0).unwrap(), (0, 0, vec![]), "no room");
    assert_eq!(read_log(&descriptor, 100, 100).unwrap().0, 10);
    // More than is kept.
    rig.card.log(&text);
    let (copied, lost, buffer) = read_log(&descriptor, 65_536, 65_536).unwrap();
    assert_eq!((copied, lost), (65_536, 4464));
    assert!(buffer == text[4464..]);
    assert_eq!(read_log(&descriptor, 100, 100).unwrap().1, 0, "it is told once");
    drop(descriptor);
    rig.end();
}

#[test]
fn log_that_nobody_has_got_is_told_to_be_lost() {
    let rig = begin();
    user::set_capabilities(ADMIN);
    let descriptor = descriptor();
    // More than is kept (4464), nowhere to put the first bytes; those behind them come the next time.
    rig.card.log(&[1; 70_000]);
    assert_eq!(read_log(&descriptor, 8192, 0).map(drop), Err(EFAULT));
    let (copied, lost, buffer) = read_log(&descriptor, 65_536, 65_536).unwrap();
    assert_eq!((copied, lost), (65_536 - 4096, 4464 + 4096));
    assert!(buffer[..61_440] == [1; 61_440] && buffer[61_440..] == [0xaa; 4096]);
    // Some of it was put there, all of it, and nobody was told how much.
    for _ in 0..2 {
        rig.card.log(&[2; 5000]);
        assert_eq!(read_log(&descriptor, 8192, 4096).map(drop), Err(EFAULT));
        rig.card.log(&[3; 100]);
        user::put(BUFFER, &[0; 8192], true);
        let arg = ReadLog { buffer: BUFFER as u64, bytes: 8192, lost: 0 };
        assert_eq!(call_untold(&descriptor, IOC_READ_LOG, arg).map(drop), Err(EFAULT));
        rig.card.log(&[4; 3]);
        let (copied, lost, buffer) = read_log(&descriptor, 4096, 4096).unwrap();
        assert_eq!((copied, lost, &buffer[..4]), (3, 5100, &[4, 4, 4, 0xaa][..]));
    }
    drop(descriptor);
    rig.end();
}

#[test]
fn decision_17_a_reset_is_the_administrator_s_and_takes_all_objects() {
    let rig = begin();
    let (descriptor, _) = context(&rig);
    qp(&descriptor);
    for who in [NOBODY, NET_ADMIN] {
        user::set_capabilities(who);
        assert_eq!(with_number(&descriptor, IOC_RESET, 0), Err(EPERM));
    }
    assert_eq!((rig.counter(D_RESETS), rig.counter(D_QPS)), (0, 1));
    user::set_capabilities(ADMIN);
    assert_eq!(with_number(&descriptor, IOC_RESET, 0), Ok(()));
    assert_eq!((rig.counter(D_RESETS), rig.counter(D_QPS), rig.counter(D_CQS)), (1, 0, 0));
    let event = call(&descriptor, IOC_GET_EVENT, ContextEvent::default()).unwrap();
    assert_eq!(event.kind, CTX_DEVICE_LOST);
    assert_eq!(cq(&descriptor, 16).map(|c| c.cqn), Ok(0));
    drop(descriptor);
    rig.end();
}

#[test]
fn decision_17_firmware_that_was_lost_again_and_again_is_forgiven_by_a_reset_that_is_asked_for() {
    let mut rig = begin();
    rig.watched = true;
    rig.card.start_watching();
    user::set_capabilities(ADMIN);
    let (descriptor, _) = context(&rig);
    let lose = |resets| {
        // It does not answer a command.
        rig.surroundings.hardware.borrow_mut().deaf = true;
        assert_eq!(with_number(&descriptor, IOC_LISTEN, 7), Err(EIO));
        rig.ms(10);
        assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (crate::card::State::Up, resets));
    };
    (1..=8).for_each(lose);
    assert_eq!(with_number(&descriptor, IOC_RESET, 0), Ok(()));
    (10..=12).for_each(lose);
    drop(descriptor);
    rig.end();
}

#[test]
fn firmware_that_is_to_fail_is_told_so_by_the_administrator() {
    let rig = begin();
    let descriptor = descriptor();
    let crash = |how| Crash { how, reserved: 0, event: core::array::from_fn(|n| 50 + n as u32) };
    for who in [NOBODY, NET_ADMIN] {
        user::set_capabilities(who);
        assert_eq!(call(&descriptor, IOC_CRASH, crash(CRASH_PANIC)).map(drop), Err(EPERM));
    }
    user::set_capabilities(ADMIN);
    for how in [0, CRASH_EVENT + 1] {
        assert_eq!(call(&descriptor, IOC_CRASH, crash(how)).map(drop), Err(EINVAL));
    }
    rig.settle();
    assert_eq!(rig.times(CMD_CRASH), 0);
    for how in [CRASH_PANIC, CRASH_LOOP, CRASH_EVENT] {
        assert!(call(&descriptor, IOC_CRASH, crash(how)).is_ok());
        rig.settle();
        assert_eq!(rig.last::<message::Crash>(), message::Crash { how, event: crash(how).event });
    }
    assert_eq!(rig.times(CMD_CRASH), 3);
    drop(descriptor);
    rig.end();
}

/// A device node, and a file that is opened by it.
fn node() -> (Arc<Inode>, File) {
    let inode = Arc::<Inode>::default();
    (inode.clone(), File(Some(inode)))
}

#[test]
fn inv_5_a_descriptor_maps_its_doorbell_page_and_its_queues() {
    let rig = begin();
    let (inode, file) = node();
    let (descriptor, owner) = context(&rig);
    let without = descriptor_without_context(&file);
    let qp = qp(&descriptor);
    let large = cq(&descriptor, 1024).unwrap();
    assert_eq!((large.bytes, qp.bytes), (32768, 4096));
    assert_eq!(mmap(&descriptor, &file, 4096, 0), Ok(DOORBELL));
    let queue = |bytes: u32, offset| mmap(&descriptor, &file, bytes as usize, offset);
    assert_eq!(queue(large.bytes, large.offset), Ok(rig.last::<CqCreate>().base));
    assert_eq!(queue(qp.bytes, qp.offset), Ok(rig.last::<QpCreate>().sq_base));
    // Nothing else is there.
    for (bytes, offset, answer) in [
        (8192, 0, EINVAL),
        (4096, large.offset, EINVAL),
        (65536, large.offset, EINVAL),
        (8192, qp.offset, EINVAL),
        (4096, 4096, EINVAL),
        (4096, qp.offset + 4096, EINVAL),
        (4096, large.offset - 4096, EINVAL),
        (4096, 1 << 40, ENOENT),
        (4096, large.offset + (1 << 22), ENOENT),
    ] {
        assert_eq!(queue(bytes, offset), Err(answer), "{bytes} at {offset:#x}");
    }
    for offset in [0, qp.offset] {
        let private = VmaNew::new(4096, offset, 0);
        let result = crate::uapi::Session::mmap(descriptor.as_ref(), &file, &private);
        assert_eq!((result, *private.maps.borrow()), (Err(EINVAL), None));
    }
    assert_eq!(flags::SHARED, 8);
    drop((descriptor, owner, without, inode));
    rig.end();
}

/// A descriptor that maps nothing, as it is no context.
fn descriptor_without_context(file: &File) -> Descriptor {
    let descriptor = descriptor();
    assert_eq!(mmap(&descriptor, file, 4096, 0), Err(EINVAL));
    assert!(descriptor.registers().is_none());
    descriptor
}

#[test]
fn the_doorbell_page_is_that_of_the_address_space_number_while_the_device_is_bound() {
    let rig = begin();
    let (first, _) = context(&rig);
    let (second, owner) = context(&rig);
    let page = |descriptor: &Descriptor| descriptor.registers().map(|(at, _)| at);
    let at = |asid| Some(rig.card.doorbells + bytes(asid));
    assert_eq!((page(&first), page(&second)), (at(1), at(2)));
    assert_eq!(Some(owner.doorbell()), at(2));
    rig.card.gate.closed.store(true, Ordering::Relaxed);
    assert_eq!(page(&first), None);
    let (inode, file) = node();
    assert_eq!(mmap(&first, &file, 4096, 0), Err(ENODEV));
    assert_eq!(Arc::strong_count(&inode), 2, "nothing is noted that nobody would take out");
    rig.card.gate.closed.store(false, Ordering::Relaxed);
    assert_eq!(page(&first), at(1));
    drop((first, second, owner));
    rig.end();
}

#[test]
fn a_node_by_which_doorbell_pages_are_mapped_is_known_until_all_its_descriptors_are_closed() {
    let rig = begin();
    let (inode, file) = node();
    // The test and the file.
    let held = || Arc::strong_count(&inode) - 2;
    let (first, _) = context(&rig);
    let (second, _) = context(&rig);
    assert_eq!(mmap(&first, &File(None), 4096, 0), Err(ENODEV), "a file without a node");
    rig.world.fail_next(1, 0);
    assert_eq!(mmap(&first, &file, 4096, 0), Err(ENOMEM));
    assert_eq!(held(), 0);
    for _ in 0..2 {
        assert_eq!(mmap(&first, &file, 4096, 0), Ok(DOORBELL));
        assert_eq!(held(), 2, "by the descriptor, and by the card");
    }
    assert_eq!(mmap(&second, &file, 4096, 0), Ok(DOORBELL));
    assert_eq!(held(), 3);
    drop(first);
    assert_eq!(held(), 2);
    drop(second);
    assert_eq!(held(), 0);
    // As the card's driver goes.
    let (third, _) = context(&rig);
    let queue = cq(&third, 16).unwrap();
    mmap(&third, &file, queue.bytes as usize, queue.offset).unwrap();
    rig.registry.take_doorbells();
    assert_eq!((held(), &*inode.zapped.borrow()), (0, &vec![]), "queues are nobody's registers");
    mmap(&third, &file, 4096, 0).unwrap();
    rig.registry.take_doorbells();
    assert_eq!((held(), &*inode.zapped.borrow()), (1, &vec![0]));
    drop(third);
    assert_eq!(held(), 0);
    rig.end();
}

#[test]
fn two_threads_that_map_a_doorbell_page_have_its_node_noted_once() {
    at_random(|rig| {
        let (inode, _) = node();
        let (descriptor, _) = context(&rig);
        let descriptor = Rc::new(descriptor);
        let thread = || -> Box<dyn FnOnce()> {
            let (descriptor, inode) = (descriptor.clone(), inode.clone());
            Box::new(move || assert_eq!(mmap(&descriptor, &File(Some(inode)), 4096, 0), Ok(DOORBELL)))
        };
        at_once(&rig, [thread(), thread()]);
        assert_eq!(Arc::strong_count(&inode), 3, "by the descriptor, by the card, and here");
        drop(descriptor);
        assert_eq!(Arc::strong_count(&inode), 1);
        rig.end();
    });
}
