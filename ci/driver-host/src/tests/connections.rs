// SPDX-License-Identifier: GPL-2.0
//! Services, connections, and requests for them, as processes ask for them.

use super::clients::*;
use super::rig::*;
use crate::abi::message;
use crate::abi::{card::*, counters::*, ioctl::*, ring::*, status::*};
use crate::process::Context;
use kernel::{prelude::*, sync::Arc};

/// Lengths of private data, and data, that are none.
fn bad_private() -> [(u32, [u8; PRIVATE_DATA]); 5] {
    let mut last = [0; PRIVATE_DATA];
    last[31] = 1;
    [(33, private(32)), (u32::MAX, private(0)), (4, private(5)), (0, private(1)), (31, last)]
}

/// Two contexts, and the second queue pair of the first one.
fn two() -> (Rig, [Arc<Context>; 2], u32) {
    let mut rig = Rig::new(Setup::default());
    let contexts = [rig.client().1, rig.client().1];
    let cqn = rig.cq(&contexts[0]);
    rig.qp(&contexts[0], cqn);
    let mine = rig.qp(&contexts[0], cqn);
    (rig, contexts, mine)
}

#[test]
fn qp_17_a_service_is_listened_to_by_one_process() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let (_, other) = rig.client();
    rig.given();
    for service in [0, 65536, u32::MAX] {
        assert_eq!(c.listen(service), Err(EINVAL));
    }
    assert!(rig.given().is_empty());
    for (context, service) in [(&c, 1), (&other, 2), (&c, 65535)] {
        assert!(context.listen(service).is_ok());
        assert_eq!(rig.given(), [message::Listen { service }.encode()]);
        assert_eq!((c.listen(service), other.listen(service)), (Err(EBUSY), Err(EBUSY)));
    }
    let services = vec![(1, c.asid), (2, other.asid), (65535, c.asid)];
    assert_eq!((rig.given(), rig.things().services), (vec![], services));
    for (context, service) in [(&c, 2), (&other, 1), (&c, 3), (&other, 65535)] {
        assert_eq!(context.unlisten(service), Err(ENOENT), "inv_5: {service}");
    }
    assert!(rig.given().is_empty());
    assert_eq!(c.unlisten(1), Ok(()));
    assert_eq!(rig.given(), [message::Unlisten { service: 1 }.encode()]);
    assert_eq!(rig.things().services, [(2, other.asid), (65535, c.asid)]);
    assert_eq!((c.unlisten(1), other.listen(1).map(drop)), (Err(ENOENT), Ok(())));
    rig.end();
}

#[test]
fn inv_6_a_context_listens_to_48_services_and_all_of_them_to_64() {
    let mut rig = Rig::new(Setup::default());
    let (_, one) = rig.client();
    let (_, two) = rig.client();
    (1..49).for_each(|service| assert!(one.listen(service).is_ok()));
    rig.given();
    assert_eq!((one.listen(49), rig.given()), (Err(ENOSPC), vec![]));
    (1000..1016).for_each(|service| assert!(two.listen(service).is_ok()));
    assert_eq!(rig.things().services.len(), 64);
    rig.given();
    assert_eq!((two.listen(9000), rig.given()), (Err(ENOSPC), vec![]));
    one.unlisten(1).unwrap();
    assert_eq!((two.listen(9000).map(drop), two.listen(9001)), (Ok(()), Err(ENOSPC)));
    rig.end();
}

#[test]
fn f9_limits_are_told_with_what_is_taken_of_them() {
    let mut rig = Rig::new(Setup::default());
    let (mm, one) = rig.client();
    let second = rig.context(mm);
    let (_, other) = rig.client();
    let (a, b, c) = (rig.cq(&one), rig.cq(&second), rig.cq(&other));
    rig.qp(&one, a);
    rig.qp(&second, b);
    rig.qp(&second, b);
    rig.qp(&other, c);
    one.listen(5).unwrap();
    other.listen(6).unwrap();
    let of = |mm: Option<&kernel::mm::MmWithUser>, context: Option<&Context>| {
        let limits = kernel::world::calmly(|| rig.registry.limits(mm.map(|mm| &**mm), context));
        let all = [
            limits.process_contexts,
            limits.card_contexts,
            limits.process_cqs,
            limits.card_cqs,
            limits.process_qps,
            limits.card_qps,
            limits.context_services,
            limits.card_services,
        ];
        all.map(|l| (l.taken, l.most))
    };
    let card = [(3, NUM_ASIDS - 1), (3, NUM_CQS), (4, NUM_QPS), (2, 64)];
    let [contexts, cqs, qps] =
        [rig.registry.max_process_contexts, rig.registry.max_process_cqs, rig.registry.max_process_qps];
    let mine = [(2, contexts), card[0], (2, cqs), card[1], (3, qps), card[2], (1, 48), card[3]];
    assert_eq!(of(Some(mm), Some(&one)), mine);
    let without = [(0, contexts), card[0], (0, cqs), card[1], (0, qps), card[2], (0, 0), card[3]];
    assert_eq!(of(None, None), without);
    rig.end();
}

#[test]
fn inv_6_a_service_that_the_card_refuses_is_not_listened_to() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    c.listen(5).unwrap();
    let before = rig.things();
    for (status, error) in STATUSES {
        rig.reply(CMD_CM_LISTEN, status);
        assert_eq!((c.listen(6), rig.things()), (Err(error), before.clone()));
    }
    rig.world.fail_nth(1);
    assert_eq!((c.listen(6), rig.things()), (Err(ENOMEM), before.clone()));
    // The end of one that the card does not know is one; else it stays.
    for (status, error) in STATUSES.into_iter().filter(|s| s.1 != ENOENT) {
        rig.reply(CMD_CM_UNLISTEN, status);
        let error = if error == EIO { EBUSY } else { error };
        assert_eq!((c.unlisten(5), rig.things()), (Err(error), before.clone()));
    }
    rig.reply(CMD_CM_UNLISTEN, CMD_NOT_FOUND);
    assert_eq!((c.unlisten(5), rig.things().services), (Ok(()), vec![]));
    rig.end();
}

#[test]
fn inv_3_a_service_is_not_listened_to_over_a_reset() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let (_, other) = rig.client();
    // The card takes no commands; then it is another run of firmware.
    rig.surroundings.hardware.borrow_mut().deaf = true;
    let listened = rig.later(&c, |c| c.listen(5));
    rig.settle();
    assert_eq!(rig.things().services, [(5, c.asid)]);
    rig.card.reset("a test").unwrap();
    rig.settle();
    assert_eq!((listened.take(), rig.things().services), (Some(Err(EIO)), vec![]));
    assert!(other.listen(5).is_ok());
    rig.end();
}

#[test]
fn qp_17_a_connection_is_asked_for_with_a_queue_pair_of_the_process() {
    let (rig, [c, other], mine) = two();
    rig.given();
    let base = Connect { qpn: mine, ipv4: 0x0a00_0102, service: 77, ..Connect::default() };
    for private_len in [0, 1, 5, 31, 32] {
        for service in [1, 65535] {
            let arg = Connect { service, private_len, private: private(private_len), ..base };
            assert_eq!(c.connect(&arg), Ok(()));
            let private = private_words(private_len);
            let command = message::Connect { qpn: mine, ipv4: 0x0a00_0102, service, private_len, private };
            assert_eq!(rig.given(), [command.encode()]);
        }
    }
    for arg in [Connect { service: 0, ..base }, Connect { service: 65536, ..base }, Connect { ipv4: 0, ..base }] {
        assert_eq!(c.connect(&arg), Err(EINVAL));
    }
    for (private_len, private) in bad_private() {
        assert_eq!(c.connect(&Connect { private_len, private, ..base }), Err(EINVAL), "{private_len}");
    }
    assert_eq!(other.connect(&base), Err(ENOENT), "inv_5");
    assert_eq!(c.connect(&Connect { qpn: mine + 1, ..base }), Err(ENOENT));
    assert!(rig.given().is_empty());
    for (status, error) in STATUSES {
        rig.reply(CMD_CM_CONNECT, status);
        rig.reply(CMD_CM_DISCONNECT, status);
        assert_eq!((c.connect(&base), c.disconnect(mine)), (Err(error), Err(error)));
    }
    rig.given();
    assert_eq!((c.disconnect(mine), rig.given()), (Ok(()), vec![message::Disconnect { qpn: mine }.encode()]));
    assert_eq!(rig.counter(D_QPS), 2);
    rig.end();
}

#[test]
fn qp_7_a_foreign_peer_is_what_the_process_says_if_that_can_be() {
    let (rig, [c, other], mine) = two();
    rig.given();
    let first = SetPeer { qpn: mine, ipv4: 0x0a00_0102, peer_qpn: 3, mtu: 256, ..SetPeer::default() };
    let (psn, peer_psn) = (MAX_QPN, MAX_QPN - 1);
    let last = SetPeer { peer_qpn: MAX_QPN, psn, peer_psn, mtu: 4096, rnr_timer: 31, rnr_retries: 7, ..first };
    for arg in [first, last] {
        assert_eq!(c.set_peer(&arg), Ok(()));
        let SetPeer { qpn, ipv4, peer_qpn, psn, peer_psn, mtu, rnr_timer, rnr_retries, .. } = arg;
        let command = message::QpPeer {
            qpn,
            ipv4,
            peer_qpn,
            psn,
            peer_psn,
            mtu,
            rnr_timer,
            rnr_retries,
            reads: MAX_READS as u8,
            ..Default::default()
        };
        assert_eq!(rig.given(), [command.encode()]);
    }
    for bad in [
        SetPeer { ipv4: 0, ..first },
        SetPeer { ipv4: 0xe000_0000, ..first },
        SetPeer { peer_qpn: CONTROL_QPN, ..first },
        SetPeer { peer_qpn: MAX_QPN + 1, ..first },
        SetPeer { psn: MAX_QPN + 1, ..first },
        SetPeer { peer_psn: MAX_QPN + 1, ..first },
        SetPeer { mtu: 0, ..first },
        SetPeer { mtu: 128, ..first },
        SetPeer { mtu: 257, ..first },
        SetPeer { mtu: 8192, ..first },
        SetPeer { rnr_timer: 32, ..first },
        SetPeer { rnr_retries: 8, ..first },
    ] {
        assert_eq!(c.set_peer(&bad), Err(EINVAL), "{bad:?}");
    }
    assert_eq!(other.set_peer(&first), Err(ENOENT), "inv_5");
    assert_eq!(c.set_peer(&SetPeer { qpn: mine + 1, ..first }), Err(ENOENT));
    assert_eq!(c.set_peer(&SetPeer { identity: u64::MAX, ..first }), Err(ENOENT), "another one had the number");
    assert!(rig.given().is_empty());
    for (status, error) in STATUSES {
        rig.reply(CMD_QP_PEER, status);
        assert_eq!(c.set_peer(&first), Err(error));
    }
    rig.end();
}

#[test]
fn qp_17_a_request_is_accepted_or_rejected_once_by_whom_it_is_for() {
    let (rig, [c, other], mine) = two();
    c.listen(5).unwrap();
    let ids = [70, 71, 72, 73, 74];
    ids.into_iter().for_each(|id| {
        rig.event(message::CmRequest { request: id, ipv4: 1, service: 5, ..Default::default() }.encode())
    });
    let waiting = |ids: &[u32]| ids.iter().map(|id| (*id, c.asid)).collect::<Vec<_>>();
    assert_eq!(rig.things().requests, waiting(&ids));
    rig.given();
    let base = Accept { request: 71, qpn: mine, ..Accept::default() };
    let reject = Accept { qpn: 0, ..base };
    // What is none.
    for (arg, accept, error) in [
        (Accept { reserved: 1, ..base }, true, EINVAL),
        (Accept { reserved: 1, ..reject }, false, EINVAL),
        (base, false, EINVAL),
        (Accept { qpn: mine + 1, ..base }, true, ENOENT),
        (reject, true, ENOENT),
        (Accept { request: 69, ..base }, true, ENOENT),
        (Accept { request: 75, ..reject }, false, ENOENT),
    ] {
        assert_eq!(c.answer(&arg, accept), Err(error), "{arg:?}");
    }
    for (private_len, private) in bad_private() {
        assert_eq!(c.answer(&Accept { private_len, private, ..base }, true), Err(EINVAL));
        assert_eq!(c.answer(&Accept { private_len, private, ..reject }, false), Err(EINVAL));
    }
    assert_eq!(other.answer(&reject, false), Err(ENOENT), "inv_5");
    assert_eq!((rig.given(), rig.things().requests), (vec![], waiting(&ids)));
    // Firmware may refuse; the request stays unless it is over.
    let left: [&[u32]; 2] = [&ids, &ids[1..]];
    for (accept, left) in [true, false].into_iter().zip(left) {
        let (arg, opcode) = if accept { (base, CMD_CM_ACCEPT) } else { (reject, CMD_CM_REJECT) };
        for (status, error) in STATUSES.into_iter().filter(|s| s.1 != ENOENT) {
            rig.reply(opcode, status);
            assert_eq!(c.answer(&arg, accept), Err(error));
            assert_eq!(rig.things().requests, waiting(left));
        }
        let over = Accept { request: if accept { 70 } else { 74 }, ..arg };
        rig.reply(opcode, CMD_NOT_FOUND);
        assert_eq!(c.answer(&over, accept), Err(ENOENT));
    }
    rig.given();
    assert_eq!(c.answer(&Accept { private_len: 9, private: private(9), ..base }, true), Ok(()));
    assert_eq!(
        rig.given(),
        [message::Accept { request: 71, qpn: mine, private_len: 9, private: private_words(9) }.encode()]
    );
    assert_eq!(rig.things().requests, waiting(&[72, 73]));
    let arg = Accept { request: 73, private_len: 32, private: private(32), ..reject };
    assert_eq!(c.answer(&arg, false), Ok(()));
    assert_eq!(
        rig.given(),
        [message::Reject { request: 73, private_len: 32, private: private_words(32), ..Default::default() }.encode()]
    );
    assert_eq!((c.answer(&arg, false), c.answer(&base, true)), (Err(ENOENT), Err(ENOENT)));
    assert_eq!(rig.things().requests, waiting(&[72]));
    rig.end();
}

#[test]
fn inv_5_what_was_asked_before_a_reset_is_not_told_to_the_next_firmware() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqn = rig.cq(&c);
    let mine = rig.qp(&c, cqn);
    c.listen(5).unwrap();
    rig.event(message::CmRequest { request: 7, ipv4: 1, service: 5, ..Default::default() }.encode());
    let connect = Connect { qpn: mine, ipv4: 1, service: 1, ..Connect::default() };
    let accept = Accept { request: 7, qpn: mine, ..Accept::default() };
    // The ring has no room, and they wait for some.
    rig.given();
    rig.narrow(0);
    let calls = [
        rig.later(&c, move |c| c.query_qp(mine).map(drop)),
        rig.later(&c, move |c| c.connect(&connect)),
        rig.later(&c, move |c| c.answer(&accept, true)),
        rig.later(&c, move |c| c.disconnect(mine)),
        rig.later(&c, |c| c.listen(6).map(drop)),
        rig.later(&c, |c| c.unlisten(5)),
        rig.later(&c, move |c| c.destroy_qp(mine)),
    ];
    rig.ms(3);
    rig.card.reset("a test").unwrap();
    rig.given();
    rig.ms(20);
    let outcomes = calls.map(|call| call.take());
    assert_eq!(outcomes[0], Some(Err(EIO)));
    assert_eq!(outcomes[1..4], [Some(Err(ENOENT)); 3]);
    assert_eq!(outcomes[4..], [Some(Ok(())), Some(Err(ENOENT)), Some(Err(ENOENT))]);
    assert_eq!(rig.told(), [(CMD_CM_LISTEN, 6)]);
    rig.end();
}
