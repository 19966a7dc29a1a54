// SPDX-License-Identifier: GPL-2.0
//! Completion queues and queue pairs of a process.

use super::clients::*;
use super::rig::*;
use crate::abi::message::{self, CqCreate, QpCreate};
use crate::abi::{card::*, counters::*, ioctl::*, ring::*, status::*};
use crate::process::Context;
use crate::process::object::Mapping;
use kernel::{prelude::*, sync::Arc};

/// READs that may be under way at most.
const MOST_READS: u16 = MAX_READS as u16;

/// A kind of queue: how one is made, which may take a completion queue, and how it is ended.
#[derive(Clone, Copy)]
struct Kind {
    create: u32,
    destroy: u32,
    make: fn(&Context, u32) -> Result<u32>,
    end: fn(&Context, u32) -> Result,
}

fn make_cq(context: &Context, _: u32) -> Result<u32> {
    let mut arg = cq(2);
    context.create_cq(&mut arg).map(|_| arg.cqn)
}

fn make_qp(context: &Context, cqn: u32) -> Result<u32> {
    let mut arg = qp(cqn, cqn);
    context.create_qp(&mut arg).map(|_| arg.qpn)
}

const KINDS: [Kind; 2] = [
    Kind { create: CMD_CQ_CREATE, destroy: CMD_CQ_DESTROY, make: make_cq, end: Context::destroy_cq },
    Kind { create: CMD_QP_CREATE, destroy: CMD_QP_DESTROY, make: make_qp, end: Context::destroy_qp },
];

/// A card, a context with a completion queue, and what there is then, for each kind of queue.
fn for_each_kind(test: impl Fn(&mut Rig, Arc<Context>, u32, Kind)) {
    for kind in KINDS {
        let mut rig = Rig::new(Setup::default());
        let (_, c) = rig.client();
        let cqn = rig.cq(&c);
        rig.given();
        test(&mut rig, c, cqn, kind);
        rig.end();
    }
}

/// What firmware says to the end of a queue, and what comes of it.
const ENDS: [(u32, Result, usize); 5] = [
    (CMD_INVALID, Err(EINVAL), 0),
    (CMD_BUSY, Err(EBUSY), 0),
    (CMD_FULL, Err(ENOSPC), 0),
    (CMD_UNKNOWN, Err(EOPNOTSUPP), 0),
    // As if there were no firmware: but there is.
    (99, Err(EBUSY), 1),
];

/// Bus address of a queue's memory, as two words.
fn address(context: &Context, offset: u64) -> u64 {
    match context.mapping(offset) {
        Ok(Mapping::Cq(cq)) => cq.memory.addr(),
        Ok(Mapping::Qp(qp)) => qp.memory.addr(),
        _ => panic!("there is no queue at {offset:#x}"),
    }
}

#[test]
fn qp_1_a_completion_queue_is_made_as_it_is_asked_for() {
    let mut rig = Rig::new(Setup::default());
    rig.client();
    let (_, c) = rig.client();
    assert_eq!(c.asid, 2);
    let before = rig.things();
    let sizes = [
        (1, 1, 4096),
        (2, 1, 4096),
        (3, 2, 4096),
        (128, 7, 4096),
        (129, 8, 8192),
        (32767, 15, 1 << 20),
        (32768, 15, 1 << 20),
    ];
    for (n, (wanted, log2, bytes)) in sizes.into_iter().enumerate() {
        let mut arg = cq(wanted);
        c.create_cq(&mut arg).unwrap();
        let cqn = n as u32;
        assert_eq!((arg.entries, arg.cqn, arg.bytes), (1 << log2, cqn, bytes));
        // Nobody had an identity before, and nobody gets it again.
        assert_eq!((arg.identity, arg.offset), (n as u64 + 1, (n as u64 + 1) << 22));
        let base = address(&c, arg.offset);
        assert_eq!(rig.given(), [CqCreate { cqn, uar: c.asid, log2_entries: log2, base }.encode()]);
        let now = rig.things();
        assert_eq!((now.cqs, now.counted, now.memory), (vec![2; n + 1], [2, 0, n as u64 + 1], n as u64 + 1));
    }
    for entries in [0, 32769, u32::MAX] {
        assert_eq!(c.create_cq(&mut cq(entries)).map(drop), Err(EINVAL));
    }
    assert_eq!(c.create_cq(&mut CreateCq { event_fd: -2, ..cq(4) }).map(drop), Err(EBADF));
    assert!(rig.given().is_empty());
    for cqn in 0..sizes.len() as u32 {
        c.destroy_cq(cqn).unwrap();
        assert_eq!(rig.given(), [message::CqDestroy { cqn }.encode()]);
    }
    assert_eq!(rig.things(), before);
    rig.end();
}

#[test]
fn qp_1_a_queue_pair_is_made_as_it_is_asked_for() {
    let mut rig = Rig::new(Setup { card_pages: 2000, context_pages: 2000, ..Setup::default() });
    rig.client();
    let (_, c) = rig.client();
    let cqs = [rig.cq(&c), rig.cq(&c), rig.cq(&c)];
    // Another one before it, so that its number is not the first.
    rig.qp(&c, cqs[0]);
    rig.given();
    let base = CreateQp { timeout: 0x1234_5678, retries: MAX_RETRIES, ..qp(cqs[1], cqs[2]) };
    // As it is asked for, log2 of both depths, bytes in all, bytes of a block.
    let cases = [
        (base, 2, 2, 4096, 65536),
        (CreateQp { sq_depth: 1, rq_depth: 1, block: 4096, ..base }, 2, 0, 4096, 4096),
        (CreateQp { sq_depth: 3, rq_depth: 33, block: 1 << 20, ..base }, 2, 6, 16384, 1 << 20),
        (CreateQp { sq_depth: 256, rq_depth: 5, trigger: 1, block: 8192, ..base }, 8, 3, 65536, 8192),
        (CreateQp { rq_depth: 256, trigger: 2, trigger_index: 255, ..base }, 2, 8, 65536, 65536),
        (CreateQp { sq_depth: 255, rq_depth: 129, trigger: 3, max_list: 64, ..base }, 8, 8, 65536, 65536),
        (CreateQp { sq_depth: MAX_DEPTH, rq_depth: 2049, ..base }, 12, 12, 1 << 20, 65536),
        (
            CreateQp {
                trigger: 2,
                mode: 1,
                max_list: 1,
                carrier: CARRIER_WRITE.into(),
                reads: 3,
                peer_reads: MOST_READS,
                ..base
            },
            2,
            2,
            4096,
            65536,
        ),
    ];
    for (identity, (asked, log2_sq, log2_rq, bytes, block)) in (5..).zip(cases) {
        let mut arg = asked;
        c.create_qp(&mut arg).unwrap();
        assert_eq!((arg.sq_depth, arg.rq_depth, arg.bytes), (1 << log2_sq, 1 << log2_rq, bytes));
        assert_eq!((arg.qpn, arg.rq_start), (qpn(1), 128 << log2_sq));
        assert_eq!((arg.identity, arg.offset), (identity, identity << 22));
        let sq_base = address(&c, arg.offset);
        let expected = QpCreate {
            qpn: qpn(1),
            asid: 2,
            uar: 2,
            log2_sq,
            log2_rq,
            send_cqn: cqs[1] as u16,
            recv_cqn: cqs[2] as u16,
            trigger: asked.trigger as u8,
            trigger_index: asked.trigger_index as u8,
            max_list: asked.max_list as u8,
            mode: asked.mode as u8,
            carrier: asked.carrier as u8,
            block,
            sq_base,
            rq_base: sq_base + u64::from(arg.rq_start),
            timeout: 0x1234_5678,
            retries: MAX_RETRIES,
            domain: 0,
            reads: asked.reads as u8,
            peer_reads: asked.peer_reads as u8,
        };
        assert_eq!(rig.given(), [expected.encode()]);
        let now = rig.things();
        assert_eq!((now.qps, now.counted, now.memory), (vec![2, 2], [2, 2, 3], 5));
        c.destroy_qp(qpn(1)).unwrap();
        assert_eq!(rig.given(), [message::QpDestroy { qpn: qpn(1) }.encode()]);
        assert_eq!((rig.things().qps, rig.things().memory), (vec![2], 4));
    }
    rig.end();
}

#[test]
fn inv_6_a_queue_pair_that_cannot_be_is_refused_and_the_card_not_told() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let (_, other) = rig.client();
    let (cqn, theirs) = (rig.cq(&c), rig.cq(&other));
    rig.given();
    let before = rig.things();
    let base = qp(cqn, cqn);
    let cases = [
        CreateQp { sq_depth: 0, ..base },
        CreateQp { sq_depth: MAX_DEPTH + 1, ..base },
        CreateQp { rq_depth: 0, ..base },
        CreateQp { rq_depth: MAX_DEPTH + 1, ..base },
        CreateQp { carrier: 3, ..base },
        CreateQp { trigger: 10, ..base },
        CreateQp { trigger: 4, trigger_index: 4, ..base },
        CreateQp { trigger: 9, trigger_index: 1, ..base },
        CreateQp { trigger: 2, trigger_index: 256, ..base },
        CreateQp { trigger: 0, trigger_index: 1, ..base },
        CreateQp { trigger: 1, trigger_index: 1, ..base },
        CreateQp { max_list: 65, ..base },
        CreateQp { block: 1, ..base },
        CreateQp { block: 4095, ..base },
        CreateQp { block: 4097, ..base },
        CreateQp { block: (1 << 20) + 4096, ..base },
        CreateQp { mode: 2, ..base },
        CreateQp { reads: MOST_READS + 1, ..base },
        CreateQp { peer_reads: 0x110, ..base },
    ];
    for (n, mut arg) in cases.into_iter().enumerate() {
        assert_eq!(c.create_qp(&mut arg).map(drop), Err(EINVAL), "{n}");
    }
    for (send, recv) in [(theirs, cqn), (cqn, theirs), (NUM_CQS, cqn), (cqn, u32::MAX)] {
        assert_eq!(c.create_qp(&mut qp(send, recv)).map(drop), Err(ENOENT), "inv_5: {send} {recv}");
    }
    assert_eq!((rig.given(), rig.things()), (vec![], before));
    // Nobody uses them.
    assert_eq!((c.destroy_cq(cqn), other.destroy_cq(theirs)), (Ok(()), Ok(())));
    rig.end();
}

#[test]
fn inv_5_a_process_reaches_no_queue_of_another_one() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.client();
    let (_, other) = rig.client();
    // Nor one context those of another of the same process.
    let second = rig.context(mm);
    let cqn = rig.cq(&c);
    let mine = rig.qp(&c, cqn);
    rig.given();
    for context in [&other, &second] {
        assert_eq!(context.destroy_cq(cqn), Err(ENOENT));
        assert_eq!(context.destroy_qp(mine), Err(ENOENT));
        assert_eq!(context.query_qp(mine), Err(ENOENT));
        assert_eq!(context.disconnect(mine), Err(ENOENT));
    }
    assert_eq!(c.destroy_cq(cqn + 1), Err(ENOENT));
    assert_eq!(c.destroy_qp(mine + 1), Err(ENOENT));
    assert!(rig.given().is_empty());
    rig.end();
}

#[test]
fn inv_5_no_process_takes_more_queues_than_its_share_in_all_its_contexts() {
    let mut rig = Rig::new(Setup { most: [16, 3, 10], ..Setup::default() });
    let (mm, c) = rig.client();
    let second = rig.context(mm);
    let (_, other) = rig.client();
    // Ten completion queues each, of sixteen.
    let cqs: Vec<u32> = (0..10).map(|n| rig.cq(if n % 2 == 0 { &c } else { &second })).collect();
    assert_eq!(cqs, (0..10).collect::<Vec<_>>());
    let taken = [&c, &second].map(|context| make_cq(context, 0));
    assert_eq!(taken, [Err(ENOSPC); 2]);
    let theirs: Vec<u32> = (10..NUM_CQS).map(|_| rig.cq(&other)).collect();
    assert_eq!(theirs, (10..NUM_CQS).collect::<Vec<_>>());
    assert_eq!(make_cq(&other, 0), Err(ENOSPC), "none is free");
    // Three queue pairs each, of four.
    let qps = [rig.qp(&c, 0), rig.qp(&second, 1), rig.qp(&c, 2)];
    assert_eq!(qps, [qpn(0), qpn(1), qpn(2)]);
    assert_eq!((make_qp(&c, 0), make_qp(&second, 1)), (Err(ENOSPC), Err(ENOSPC)));
    assert_eq!(rig.qp(&other, 10), qpn(3));
    assert_eq!(make_qp(&other, 10), Err(ENOSPC), "none is free");
    assert_eq!(rig.things().memory, u64::from(NUM_CQS) + 4);
    // What becomes free is taken again.
    second.destroy_qp(qps[1]).unwrap();
    assert_eq!(rig.qp(&other, 11), qps[1]);
    c.destroy_cq(4).unwrap();
    assert_eq!(rig.cq(&second), 4);
    assert_eq!(rig.things().qps, [1, 3, 1, 3].map(|asid| asid as u8));
    rig.end();
}

#[test]
fn inv_6_whichever_allocation_fails_nothing_is_left_of_a_queue() {
    for_each_kind(|rig, c, cqn, kind| {
        let before = rig.things();
        for n in 1.. {
            rig.world.fail_nth(n);
            let made = (kind.make)(&c, cqn);
            if rig.world.fail_nth(0) != 0 {
                // Its memory, what the driver notes of it, the command.
                assert_eq!((n, rig.told().len()), (4, 1));
                break;
            }
            assert_eq!((made, rig.given()), (Err(ENOMEM), vec![]));
            assert_eq!(rig.things(), before, "{n}");
        }
        // Its end takes memory too, without which it stays.
        let number = if kind.create == CMD_CQ_CREATE { 1 } else { qpn(0) };
        rig.world.fail_nth(1);
        assert_eq!((kind.end)(&c, number), Err(ENOMEM));
        assert_eq!((kind.end)(&c, number), Ok(()));
        assert_eq!(rig.things(), before);
        assert_eq!(c.destroy_cq(cqn), Ok(()));
    });
}

#[test]
fn inv_6_a_queue_that_the_card_refuses_is_none() {
    for_each_kind(|rig, c, cqn, kind| {
        let before = rig.things();
        for (status, error) in STATUSES {
            rig.reply(kind.create, status);
            assert_eq!((kind.make)(&c, cqn), Err(error));
            // Its memory is given back when no DMA is under way any more, if the card may have it.
            let fences = rig.told().iter().filter(|told| told.0 == CMD_FENCE).count();
            assert_eq!(fences, usize::from(error == EIO));
            assert_eq!(rig.things(), before);
        }
        assert_eq!(c.destroy_cq(cqn), Ok(()), "nobody uses it");
    });
}

#[test]
fn inv_6_a_queue_that_the_card_does_not_let_go_of_stays() {
    for_each_kind(|rig, c, cqn, kind| {
        let number = (kind.make)(&c, cqn).unwrap();
        let before = rig.things();
        rig.given();
        for (status, result, fences) in ENDS {
            rig.reply(kind.destroy, status);
            assert_eq!((kind.end)(&c, number), result);
            let told = rig.told();
            assert_eq!(told[0], (kind.destroy, number));
            assert_eq!((told.len(), rig.things() == before), (1 + fences, true), "{status}");
        }
        // It has it no more.
        rig.surroundings.hardware.borrow_mut().objects.remove(&(kind.create, number));
        assert_eq!((kind.end)(&c, number), Ok(()));
        assert_eq!(rig.told(), [(kind.destroy, number)]);
        assert_eq!(rig.things().memory, 1);
        assert_eq!((kind.end)(&c, number), Err(ENOENT));
        assert_eq!(rig.card.state(), crate::card::State::Up);
    });
}

#[test]
fn inv_6_a_completion_queue_stays_as_long_as_queue_pairs_use_it() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqs = [rig.cq(&c), rig.cq(&c), rig.cq(&c)];
    for arg in [qp(cqs[0], cqs[1]), qp(cqs[1], cqs[2]), qp(cqs[2], cqs[2])] {
        c.create_qp(&mut arg.clone()).unwrap();
    }
    rig.given();
    let busy = |expected: [bool; 3]| {
        for (cqn, busy) in cqs.into_iter().zip(expected) {
            if busy {
                assert_eq!(c.destroy_cq(cqn), Err(EBUSY), "{cqn}");
            }
        }
    };
    busy([true; 3]);
    assert!(rig.given().is_empty());
    c.destroy_qp(qpn(1)).unwrap();
    busy([true; 3]);
    c.destroy_qp(qpn(0)).unwrap();
    busy([false, false, true]);
    assert_eq!((c.destroy_cq(cqs[0]), c.destroy_cq(cqs[1])), (Ok(()), Ok(())));
    assert_eq!(c.destroy_qp(qpn(2)), Ok(()));
    assert_eq!(c.destroy_cq(cqs[2]), Ok(()));
    assert_eq!(rig.things().counted, [1, 0, 0]);
    rig.end();
}

#[test]
fn inv_3_a_queue_that_the_card_has_lost_while_it_was_made_is_none() {
    for_each_kind(|rig, c, cqn, kind| {
        let mut before = rig.things();
        // All is lost.
        (before.cqs, before.counted, before.memory) = (vec![], [1, 0, 0], 0);
        before.objects.clear();
        for answered in [false, true] {
            rig.surroundings.hardware.borrow_mut().deaf = !answered;
            let made = rig.later(&c, move |c| (kind.make)(c, cqn));
            match answered {
                false => rig.settle(),
                // The driver has the answer, who has called not yet.
                true => rig.until_answered(),
            }
            rig.card.reset("a test").unwrap();
            rig.ms(10);
            assert_eq!(made.take(), Some(Err(EIO)));
            assert_eq!(rig.things(), before);
            assert_eq!(rig.cq(&c), cqn);
        }
    });
}

#[test]
fn inv_4_a_queue_whose_memory_came_after_a_reset_is_not_made() {
    for_each_kind(|rig, c, cqn, kind| {
        rig.surroundings.queue_ns.set(100 * MS);
        let made = rig.later(&c, move |c| (kind.make)(c, cqn));
        rig.settle();
        rig.card.reset("a test").unwrap();
        rig.surroundings.queue_ns.set(0);
        // An unrelated process can still create a queue.
        let (_, other) = rig.client();
        assert_eq!(rig.cq(&other), 0);
        rig.given();
        rig.ms(110);
        assert_eq!(made.take(), Some(Err(EIO)));
        assert_eq!(rig.times(kind.create), 0);
        assert_eq!((rig.things().counted, rig.things().memory), ([2, 0, 1], 1));
        assert_eq!((rig.cq(&c), rig.qp(&c, 1)), (1, qpn(0)));
    });
}

#[test]
fn inv_3_a_queue_that_ends_while_the_card_is_reset_is_gone() {
    for_each_kind(|rig, c, cqn, kind| {
        let number = (kind.make)(&c, cqn).unwrap();
        rig.surroundings.hardware.borrow_mut().deaf = true;
        let ended = rig.later(&c, move |c| (kind.end)(c, number));
        rig.settle();
        assert!(ended.take().is_none());
        rig.card.reset("a test").unwrap();
        rig.ms(10);
        assert_eq!(ended.take(), Some(Ok(())));
        let now = rig.things();
        assert_eq!((now.counted, now.memory, now.objects), ([1, 0, 0], 0, vec![]));
    });
}

#[test]
fn decision_21_a_queue_pair_that_waits_for_pages_is_disconnected_before_it_ends() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.client();
    let cqn = rig.cq(&c);
    let (mine, other) = (rig.qp(&c, cqn), rig.qp(&c, cqn));
    rig.stick(mm, BASE, true);
    let tags = [send_tag(mine, 1), receive_tag(mine, 2), send_tag(other, 0)];
    tags.into_iter().for_each(|tag| rig.ask(tag, &c, BASE, 1, false));
    rig.settle();
    rig.given();
    // The card does not let go of it this time.
    rig.reply(CMD_QP_DESTROY, CMD_BUSY);
    assert_eq!(c.destroy_qp(mine), Err(EBUSY));
    let (first, second) = ((CMD_PAGE_READY, tags[0]), (CMD_PAGE_READY, tags[1]));
    assert_eq!(rig.told(), [(CMD_CM_DISCONNECT, mine), first, second, (CMD_QP_DESTROY, mine)]);
    assert_eq!(rig.refused(tags[0]), Some(PAGE_NO_PROCESS));
    // It is one as before.
    rig.get(tags[0], &c, BASE + 1, 1, false);
    rig.release(tags[0]);
    rig.settle();
    rig.given();
    assert_eq!(c.destroy_qp(mine), Ok(()));
    assert_eq!(rig.told(), [(CMD_QP_DESTROY, mine)]);
    assert!(rig.asks(tags[2]).is_some());
    rig.end();
}

#[test]
fn inv_5_the_end_of_a_queue_pair_is_not_told_to_the_next_firmware() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.client();
    let cqn = rig.cq(&c);
    let mine = rig.qp(&c, cqn);
    rig.stick(mm, BASE, true);
    rig.ask(send_tag(mine, 1), &c, BASE, 1, false);
    rig.settle();
    rig.given();
    rig.surroundings.hardware.borrow_mut().deaf = true;
    let ended = rig.later(&c, move |c| c.destroy_qp(mine));
    rig.settle();
    assert_eq!(rig.told(), [(CMD_CM_DISCONNECT, mine)]);
    rig.card.reset("a test").unwrap();
    rig.ms(10);
    assert_eq!((ended.take(), rig.told()), (Some(Ok(())), vec![(CMD_FENCE, 0)]));
    rig.end();
}

#[test]
fn a_queue_pair_is_made_again_as_it_was_by_a_reset() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.client();
    let cqn = rig.cq(&c);
    rig.given();
    let mine = rig.qp(&c, cqn);
    let create = rig.given();
    let anew = || [vec![message::QpDestroy { qpn: mine }.encode()], create.clone()].concat();
    assert_eq!((c.reset_qp(mine), rig.given()), (Ok(()), anew()));
    // Whoever waits for a page of it hears that first, as at its end.
    rig.stick(mm, BASE, true);
    rig.ask(send_tag(mine, 1), &c, BASE, 1, false);
    rig.settle();
    rig.given();
    assert_eq!(c.reset_qp(mine), Ok(()));
    let waits = [(CMD_CM_DISCONNECT, mine), (CMD_PAGE_READY, send_tag(mine, 1))];
    assert_eq!(rig.told(), [&waits[..], &[(CMD_QP_DESTROY, mine), (CMD_QP_CREATE, mine)]].concat());
    // The card has none then, and is asked again.
    rig.reply(CMD_QP_CREATE, CMD_BUSY);
    assert_eq!((c.reset_qp(mine), rig.told().len()), (Err(EBUSY), 2));
    rig.reply(CMD_QP_DESTROY, CMD_NOT_FOUND);
    assert_eq!((c.reset_qp(mine), rig.given()), (Ok(()), anew()));
    rig.reply(CMD_QP_DESTROY, CMD_BUSY);
    assert_eq!((c.reset_qp(mine), rig.told()), (Err(EBUSY), vec![(CMD_QP_DESTROY, mine)]));
    assert_eq!((c.reset_qp(77), rig.counter(D_QPS)), (Err(ENOENT), 1));
    rig.end();
}

#[test]
fn receives_of_an_own_queue_pair_are_had_back_as_firmware_can() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqn = rig.cq(&c);
    let mine = rig.qp(&c, cqn);
    let (_, other) = rig.client();
    rig.given();
    assert_eq!((c.recall(mine), rig.given()), (Ok(()), vec![message::QpRecall { qpn: mine }.encode()]));
    assert_eq!((other.recall(mine), rig.given()), (Err(ENOENT), vec![]));
    for (status, error) in STATUSES {
        rig.reply(CMD_QP_RECALL, status);
        assert_eq!(c.recall(mine), Err(error));
    }
    rig.end();
}

#[test]
fn cr_6_the_trigger_of_an_own_queue_pair_is_changed_as_firmware_can() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqn = rig.cq(&c);
    let qpn = rig.qp(&c, cqn);
    let (_, other) = rig.client();
    rig.given();
    let wanted = |trigger: u8, trigger_index: u32| SetTrigger {
        qpn,
        trigger: trigger.into(),
        trigger_index,
        ..Default::default()
    };
    for (trigger, most) in [(TRIGGER_FIRST, 0), (TRIGGER_BETWEEN, 255), (TRIGGER_QUARTERS, 3), (TRIGGER_AUTO, 0)] {
        let given = message::QpTrigger { qpn, trigger, trigger_index: most as u8 };
        assert_eq!((c.set_trigger(&wanted(trigger, most)), rig.given()), (Ok(()), vec![given.encode()]));
        assert_eq!((c.set_trigger(&wanted(trigger, most + 1)), rig.given()), (Err(EINVAL), vec![]));
    }
    let reserved = SetTrigger { reserved: 1, ..wanted(TRIGGER_FIRST, 0) };
    let stale = SetTrigger { identity: u64::MAX, ..wanted(TRIGGER_FIRST, 0) };
    for (bad, error) in [(wanted(TRIGGER_AUTO + 1, 0), EINVAL), (reserved, EINVAL), (stale, ENOENT)] {
        assert_eq!((c.set_trigger(&bad), rig.given()), (Err(error), vec![]));
    }
    assert_eq!((other.set_trigger(&wanted(TRIGGER_LAST, 0)), rig.given()), (Err(ENOENT), vec![]));
    for (status, error) in STATUSES {
        rig.reply(CMD_QP_TRIGGER, status);
        assert_eq!(c.set_trigger(&wanted(TRIGGER_LAST, 0)), Err(error));
    }
    rig.end();
}

#[test]
fn cr_10_the_maximum_bandwidth_of_an_own_queue_pair_is_set_as_firmware_can() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqn = rig.cq(&c);
    let qpn = rig.qp(&c, cqn);
    let (_, other) = rig.client();
    rig.given();
    let wanted = |rate: u64, burst: u32| SetCap { qpn, burst, rate, ..Default::default() };
    // A rate of 1 is CLOCK_HZ / 2^14 bytes per second; it is rounded down.
    let (second, unit) = (u64::from(CLOCK_HZ), 1 << 14);
    let most = (1 << 24) - 1;
    for (rate, burst, told) in [
        (second.div_ceil(unit), 1, 1),
        ((2 * second).div_ceil(unit) - 1, 1, 1),
        ((2 * second).div_ceil(unit), 4096, 2),
        (second, 65536, 1 << 14),
        (1 << 20, (1 << 31) - 1, ((1 << 20) * unit / second) as u32),
        ((most * second).div_ceil(unit), 1, most as u32),
        (second << 10, 1, most as u32),
        (u64::MAX, 1, most as u32),
        (0, 0, 0),
    ] {
        let given = message::QpCap { qpn, rate: told, burst };
        assert_eq!((c.set_cap(&wanted(rate, burst)), rig.given()), (Ok(()), vec![given.encode()]), "{rate}");
    }
    let stale = SetCap { identity: u64::MAX, ..wanted(second, 1) };
    let less = second.div_ceil(unit) - 1;
    for (bad, error) in [
        (wanted(1, 1), EINVAL),
        (wanted(less, 1), EINVAL),
        (wanted(second, 1 << 31), EINVAL),
        (wanted(second, u32::MAX), EINVAL),
        (wanted(second, 0), EINVAL),
        (wanted(0, 1), EINVAL),
        (wanted(1, 0), EINVAL),
        (stale, ENOENT),
    ] {
        assert_eq!((c.set_cap(&bad), rig.given()), (Err(error), vec![]), "{bad:?}");
    }
    assert_eq!((other.set_cap(&wanted(second, 1)), rig.given()), (Err(ENOENT), vec![]));
    for (status, error) in STATUSES {
        rig.reply(CMD_QP_CAP, status);
        assert_eq!(c.set_cap(&wanted(second, 1)), Err(error));
    }
    rig.end();
}

#[test]
fn qp_1_the_state_of_a_queue_pair_is_what_firmware_says() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqn = rig.cq(&c);
    rig.qp(&c, cqn);
    let mine = rig.qp(&c, cqn);
    rig.given();
    let expected = QpState { state: 2, reason: 8, receives: [11, 12, 13, 14, 15], credits: 16, pieces: 17, reads: 18 };
    rig.say_state(expected);
    let state = c.query_qp(mine).unwrap();
    assert_eq!((state, rig.given()), (expected, vec![message::QpQuery { qpn: mine }.encode()]));
    for (status, error) in STATUSES {
        rig.reply(CMD_QP_QUERY, status);
        assert_eq!(c.query_qp(mine), Err(error));
    }
    assert_eq!(rig.counter(D_QPS), 2);
    rig.end();
}
