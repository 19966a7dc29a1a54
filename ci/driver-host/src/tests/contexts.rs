// SPDX-License-Identifier: GPL-2.0
//! Contexts: how many there are, what becomes of what they have, and what is mapped through them.

use super::clients::*;
use super::rig::*;
use crate::abi::message;
use crate::abi::{card::*, counters::*, ioctl::*, ring::*, status::*};
use crate::card::State;
use crate::process::Context;
use crate::process::object::Mapping;
use kernel::{prelude::*, sync::Arc};

/// A context with an event descriptor, which has some of everything: two completion queues, two queue pairs, two
/// services, a request that waits, a page, and a request for a page that does not come.
fn furnished(rig: &mut Rig, fd: i32) -> Arc<Context> {
    let mm = rig.process();
    rig.mmap(mm, BASE, 8);
    let c = rig.context_of(mm, u64::MAX, fd);
    let cqs = [rig.cq(&c), rig.cq(&c)];
    let mine = [rig.qp(&c, cqs[0]), rig.qp(&c, cqs[1])];
    let services = [100 * c.asid, 100 * c.asid + 1];
    services.into_iter().for_each(|service| assert!(c.listen(service).is_ok()));
    rig.event(message::CmRequest { request: 7 * c.asid, ipv4: 1, service: services[0], ..Default::default() }.encode());
    rig.get(send_tag(mine[0], 0), &c, BASE, 1, false);
    rig.release(send_tag(mine[0], 0));
    rig.stick(mm, BASE + 1, true);
    rig.ask(send_tag(mine[1], 0), &c, BASE + 1, 1, false);
    rig.settle();
    rig.given();
    c
}

#[test]
fn inv_5_no_process_has_more_contexts_than_its_share() {
    let mut rig = Rig::new(Setup { most: [2, 64, 64], ..Setup::default() });
    let (mm, c) = rig.client();
    let second = rig.context(mm);
    assert_eq!(Context::new(&rig.registry, mm, None).err(), Some(ENOSPC));
    let (_, other) = rig.client();
    assert_eq!(([c.asid, second.asid, other.asid], rig.things().counted[0]), ([1, 2, 3], 3));
    assert!(Arc::ptr_eq(&c.space.share, &second.space.share) && !Arc::ptr_eq(&c.space.share, &other.space.share));
    c.close();
    c.close();
    assert_eq!(rig.things().counted[0], 2);
    assert_eq!((rig.context(mm).asid, rig.things().counted[0]), (1, 3));
    assert_eq!(Context::new(&rig.registry, mm, None).err(), Some(ENOSPC));
    drop(c);
    rig.end();
}

#[test]
fn inv_6_a_card_serves_so_many_contexts_and_no_more() {
    let mut rig = Rig::new(Setup::default());
    let (mm, first) = rig.client();
    for asid in 2..NUM_ASIDS {
        assert_eq!(rig.context(mm).asid, asid);
    }
    let stranger = rig.process();
    assert_eq!(Context::new(&rig.registry, stranger, None).err(), Some(ENOSPC));
    let most = u64::from(NUM_ASIDS - 1);
    assert_eq!(rig.things().counted[0], most);
    first.close();
    assert_eq!(rig.context(stranger).asid, first.asid);
    drop(first);
    rig.end();
}

#[test]
fn inv_6_whichever_allocation_fails_nothing_is_left_of_a_context() {
    let rig = Rig::new(Setup::default());
    let mm = rig.process();
    for n in 1.. {
        rig.world.fail_nth(n);
        let made = Context::new(&rig.registry, mm, None);
        if rig.world.fail_nth(0) != 0 {
            let context = made.expect("nothing failed");
            assert_eq!((context.asid, rig.things().counted), (1, [1, 0, 0]));
            context.close();
            break;
        }
        assert_eq!((made.err(), rig.things()), (Some(ENOMEM), Things::default()), "{n}");
        assert_eq!(mm.counts().0, 1);
    }
    rig.end();
}

#[test]
fn inv_6_a_card_that_is_gone_makes_no_context() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.client();
    rig.registry.unbind();
    assert_eq!(rig.card.state(), State::Unbound);
    assert_eq!(Context::new(&rig.registry, mm, None).err(), Some(ENODEV));
    assert_eq!(c.create_cq(&mut cq(4)).map(drop), Err(ENODEV));
    assert_eq!(rig.things().cqs, []);
    rig.end_at_once();
}

#[test]
fn inv_5_a_context_maps_its_own_pages_and_queues_only() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let (_, other) = rig.client();
    assert_eq!([c.doorbell(), other.doorbell()], [1, 2].map(|asid| DOORBELLS + 4096 * asid));
    let cqs = [rig.cq(&other), rig.cq(&c), rig.cq(&c)];
    let qps = [rig.qp(&other, cqs[0]), rig.qp(&c, cqs[1]), rig.qp(&c, cqs[1])];
    let shown = |offset: u64| match c.mapping(offset) {
        Ok(Mapping::Doorbell) => Ok((0, 0)),
        Ok(Mapping::Cq(cq)) => Ok((1, cq.cqn)),
        Ok(Mapping::Qp(qp)) => Ok((2, qp.qpn)),
        Err(e) => Err(e),
    };
    assert_eq!(shown(0), Ok((0, 0)));
    // By identities, which are each context's own.
    let at = |identity: u64| identity << 22;
    let mine = [(1, cqs[1]), (1, cqs[2]), (2, qps[1]), (2, qps[2])];
    for (identity, queue) in (1..).zip(mine) {
        assert_eq!(shown(at(identity)), Ok(queue));
    }
    c.destroy_qp(qps[1]).unwrap();
    assert_eq!(rig.qp(&c, cqs[1]), qps[1], "its number is given out again");
    assert_eq!(shown(at(5)), Ok((2, qps[1])));
    for offset in [at(3), at(6), 1 << 40, at(u64::MAX >> 22)] {
        assert_eq!(shown(offset), Err(ENOENT), "{offset:#x}");
    }
    let none = [4096, at(1) + 4096, at(2) + 1, at(3) - 1, u64::MAX];
    for offset in none {
        assert_eq!(shown(offset), Err(EINVAL), "{offset:#x}");
    }
    rig.end();
}

#[test]
fn inv_3_a_context_that_is_closed_gives_everything_back_in_order() {
    let mut rig = Rig::new(Setup::default());
    let bystander = furnished(&mut rig, -1);
    let others = rig.things();
    let c = furnished(&mut rig, 5);
    let (mine, cqs) = ([qpn(2), qpn(3)], [2, 3]);
    assert_eq!((rig.things().qps, rig.things().counted), (vec![1, 1, 2, 2], [2, 4, 4]));
    let page = rig.page(&c, BASE).unwrap().index;
    c.close();
    let expected = [
        (CMD_PAGE_READY, send_tag(mine[1], 0)),
        (CMD_QP_DESTROY, mine[1]),
        (CMD_QP_DESTROY, mine[0]),
        (CMD_CM_UNLISTEN, 100 * c.asid),
        (CMD_CM_UNLISTEN, 100 * c.asid + 1),
        (CMD_CM_REJECT, 7 * c.asid),
        (CMD_CQ_DESTROY, cqs[1]),
        (CMD_CQ_DESTROY, cqs[0]),
        (CMD_PAGE_REVOKE, page),
        (CMD_FENCE, 0),
    ];
    assert_eq!(rig.told(), expected);
    assert_eq!(rig.things(), others);
    assert_eq!(rig.refused(send_tag(mine[1], 0)), Some(PAGE_NO_PROCESS));
    assert!(bystander.take_event().is_some(), "its request");
    // Nothing can be made any more, and nothing is begun.
    assert_eq!(c.create_cq(&mut cq(4)).map(drop), Err(EPERM));
    assert_eq!(c.create_qp(&mut qp(0, 0)).map(drop), Err(EPERM));
    assert_eq!(c.listen(9), Err(EPERM));
    c.close();
    assert_eq!((rig.told(), rig.things()), (vec![], others));
    drop(c);
    rig.end();
}

#[test]
fn inv_3_a_reset_takes_what_contexts_have_and_tells_them() {
    let mut rig = Rig::new(Setup::default());
    let contexts = [furnished(&mut rig, 5), furnished(&mut rig, 6)];
    assert_eq!((rig.signals(5), rig.signals(6)), (1, 1));
    rig.card.reset("a test").unwrap();
    rig.settle();
    assert_eq!(rig.things(), Things { counted: [2, 0, 0], ..Things::default() });
    assert_eq!((rig.signals(5), rig.signals(6), rig.pins()), (1, 1, 0));
    for c in &contexts {
        assert!(shown(c).requests.is_empty());
        let events = [c.take_event(), c.take_event(), c.take_event()].map(|e| e.map(|e| (e.kind, e.id, e.value)));
        assert_eq!(events, [Some((CTX_DEVICE_LOST, 0, 0)), None, None], "the request is gone with its listener");
        // It may begin anew.
        let cqn = rig.cq(c);
        rig.qp(c, cqn);
        assert!(c.listen(100 * c.asid).is_ok());
    }
    assert_eq!(rig.things().counted, [2, 2, 2]);
    rig.end();
}

#[test]
fn decision_21_a_process_that_is_gone_though_a_page_fault_holds_its_memory_is_closed() {
    let mut rig = Rig::new(Setup::default());
    rig.watched = true;
    rig.card.start_watching();
    let (mm, c) = rig.client();
    let (tag, closed) = (send_tag(0, 0), |rig: &Rig| rig.things().counted[0] == 0);
    // A request that is over holds nothing, one that waits does.
    rig.get(tag, &c, BASE, 1, false);
    rig.release(tag);
    rig.stick(mm, BASE + 1, true);
    rig.ask(tag, &c, BASE + 1, 1, false);
    rig.ms(1200);
    assert!(!closed(&rig) && mm.counts().0 == 2);
    // Somebody else looks at the memory of the process, which is gone.
    let seen = mm.mmget_not_zero();
    mm.put_user();
    rig.ms(1200);
    assert!(!closed(&rig) && mm.counts().0 == 2);
    drop(seen);
    rig.ms(500);
    assert!(closed(&rig));
    assert_eq!(rig.refused(tag), Some(PAGE_NO_PROCESS));
    rig.stick(mm, BASE + 1, false);
    rig.settle();
    assert_eq!(mm.counts().0, 0);
    // Where no page fault holds it, the memory manager tells.
    let (mm, second) = rig.client();
    mm.put_user();
    rig.ms(1200);
    assert!(!closed(&rig));
    second.close_later();
    rig.settle();
    assert!(closed(&rig));
    drop((c, second));
    rig.end_at_once();
}

#[test]
fn decision_21_a_process_that_is_gone_though_page_faults_of_two_cards_hold_its_memory_is_closed() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.client();
    let (second, third) = (rig.context_elsewhere(mm), rig.context_elsewhere(rig.process()));
    let closed = |rig: &Rig| {
        c.close_if_orphaned(crate::cards::shares_of);
        second.close_if_orphaned(crate::cards::shares_of);
        rig.settle();
        [&c, &second, &third].map(|c| c.space.lock().closing)
    };
    // Of another process, too.
    let other = third.space.user_mm();
    let [one, two, last] = [&c, &c, &second].map(|c| c.space.user_mm());
    assert!(one.is_some() && two.is_some() && last.is_some() && other.is_some());
    assert_eq!(closed(&rig), [false; 3]);
    let seen = mm.mmget_not_zero();
    mm.put_user();
    assert_eq!(closed(&rig), [false; 3], "somebody else looks at it");
    drop(seen);
    drop(one);
    assert_eq!(closed(&rig), [true, true, false]);
    drop((two, last, other));
    assert_eq!(mm.counts().0, 0);
    drop((c, second, third));
    rig.end_at_once();
}

#[test]
fn inv_3_a_context_that_is_closed_asks_again_until_the_card_lets_go() {
    // Answers that come first, memory that is missing, tries, milliseconds, resets.
    let cases: [(&[u32], u64, usize, u64, u64); 6] = [
        (&[], 0, 1, 0, 0),
        (&[CMD_BUSY; 3], 0, 4, 30, 0),
        (&[CMD_BUSY; 99], 0, 100, 990, 0),
        (&[CMD_BUSY; 100], 0, 100, 1000, 1),
        (&[CMD_INVALID], 0, 1, 0, 1),
        (&[], 2, 1, 20, 0),
    ];
    for (answers, missing, tries, ms, resets) in cases {
        let mut rig = Rig::new(Setup::default());
        let (_, c) = rig.client();
        let cqn = rig.cq(&c);
        let mine = rig.qp(&c, cqn);
        rig.given();
        answers.iter().for_each(|status| rig.reply(CMD_QP_DESTROY, *status));
        let start = rig.world.now();
        rig.world.fail_next(missing, 0);
        c.close();
        assert_eq!((rig.world.now() - start) / MS, ms);
        let told = rig.told();
        assert_eq!(told.iter().filter(|told| **told == (CMD_QP_DESTROY, mine)).count(), tries);
        // Those of a card that was reset are gone.
        let expected = usize::from(resets == 0);
        assert_eq!(told.iter().filter(|told| **told == (CMD_CQ_DESTROY, cqn)).count(), expected);
        assert_eq!((rig.counter(D_RESETS), rig.card.state()), (resets, State::Up));
        assert_eq!(rig.things(), Things::default());
        drop(c);
        rig.end();
    }
}

#[test]
fn inv_5_a_context_that_is_closed_over_a_reset_takes_nothing_from_others() {
    for opcode in [CMD_QP_DESTROY, CMD_CM_UNLISTEN, CMD_CM_REJECT, CMD_CQ_DESTROY] {
        let mut rig = Rig::new(Setup::default());
        let (_, c) = rig.client();
        let (_, other) = rig.client();
        let furnish = |c: &Arc<Context>| {
            let cqn = rig.cq(c);
            c.listen(9).unwrap();
            rig.event(message::CmRequest { request: 7, ipv4: 1, service: 9, ..Default::default() }.encode());
            (cqn, rig.qp(c, cqn))
        };
        assert_eq!(furnish(&c), (0, qpn(0)));
        rig.reply(opcode, CMD_BUSY);
        let closed = rig.later(&c, |c| {
            c.close();
            Ok(())
        });
        rig.settle();
        assert!(closed.take().is_none());
        rig.card.reset("a test").unwrap();
        // The same numbers, now another one's.
        assert_eq!(furnish(&other), (0, qpn(0)));
        rig.given();
        rig.ms(50);
        assert_eq!(closed.take(), Some(Ok(())));
        // A queue's memory goes when no DMA is under way.
        let fence = [(CMD_FENCE, 0)];
        assert_eq!(rig.told(), fence[usize::from(opcode == CMD_CM_REJECT)..], "{opcode}");
        let now = rig.things();
        assert_eq!((now.counted, now.objects.len()), ([1, 1, 1], 3));
        assert_eq!((now.services, now.requests), (vec![(9, other.asid)], vec![(7, other.asid)]));
        drop(c);
        rig.end();
    }
}

#[test]
fn inv_5_a_context_that_is_closed_leaves_no_work_that_names_it() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    c.space.revoke_later();
    assert!(rig.world.is_busy());
    c.close();
    assert!(!rig.world.is_busy());
    drop(c);
    rig.end();
}
