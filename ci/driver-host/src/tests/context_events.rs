// SPDX-License-Identifier: GPL-2.0
//! Events of the card that are for processes, and which of them gets them.

use super::clients::*;
use super::rig::*;
use crate::abi::message::{self, CODE, CmClosed, CmEstablished, CmRequest, Entry, QpError, QpPeer};
use crate::abi::{card::*, counters::*, ioctl::*, ring::*, status::*};
use crate::process::Context;
use crate::process::owned::{Ended, Notified, Notify};
use kernel::{prelude::*, sync::Arc};

/// The events that wait, in order.
fn events(context: &Context) -> Vec<ContextEvent> {
    core::iter::from_fn(|| context.take_event()).collect()
}

/// What an event says: its words, and the private data.
fn words_of(event: &ContextEvent) -> ([u32; 6], [u8; PRIVATE_DATA]) {
    ([event.kind, event.id, event.value, event.ipv4, event.private_len, event.mode], event.private)
}

/// These are the events that a context has got, and no others.
fn assert_events(context: &Context, expected: &[([u32; 6], [u8; PRIVATE_DATA])]) {
    assert_eq!(events(context).iter().map(words_of).collect::<Vec<_>>(), expected);
}

/// An event of which the words that have no meaning are not 0: `all` is one of its type whose fields are all set.
fn noisy(all: Entry, event: Entry) -> Entry {
    core::array::from_fn(|n| if all[n] == 0 { 99 } else { event[n] })
}

/// The three events of connection management with private data: so many bytes, that are said to be `private_len`.
fn cm_events(id: u32, qpn: u32, private_len: u32, bytes: u32) -> [Entry; 3] {
    const ALL: Entry = [u32::MAX; ENTRY_WORDS];
    let private = private_words(bytes);
    let request = CmRequest { request: id, ipv4: 0x0a00_0005, service: 5, mode: 1, private_len, private };
    let established = CmEstablished { qpn, ipv4: 0x0a00_0006, peer_qpn: 44, private_len, private };
    let closed = CmClosed { qpn, reason: REASON_REJECTED, private_len, private };
    [
        noisy(CmRequest::decode(&ALL).encode(), request.encode()),
        noisy(CmEstablished::decode(&ALL).encode(), established.encode()),
        noisy(CmClosed::decode(&ALL).encode(), closed.encode()),
    ]
}

/// Two contexts with event descriptors 4 and 5, each with a completion queue, which has descriptor 14 or 15, and a queue
/// pair; the second listens to service 5.
fn two(rig: &mut Rig) -> [Arc<Context>; 2] {
    [4, 5].map(|fd| {
        let mm = rig.process();
        let c = rig.context_of(mm, u64::MAX, fd);
        let mut arg = CreateCq { event_fd: 10 + fd, ..cq(4) };
        c.create_cq(&mut arg).unwrap();
        rig.qp(&c, arg.cqn);
        if fd == 5 {
            c.listen(5).unwrap();
        }
        rig.given();
        c
    })
}

/// How often the event descriptors of [`two`] were signalled since the last look.
fn signals(rig: &Rig) -> [u32; 4] {
    [4, 5, 14, 15].map(|fd| rig.signals(fd))
}

#[test]
fn qp_17_events_of_connections_reach_whom_they_are_for_as_they_are() {
    let mut rig = Rig::new(Setup::default());
    let [c, other] = two(&mut rig);
    let (mine, theirs) = (qpn(0), qpn(1));
    // Private data: what is said to be more than there can be, or less than there is, is cut.
    for (len, bytes, kept) in [(0, 0, 0), (7, 32, 7), (32, 32, 32), (33, 32, 32), (u32::MAX, 32, 32), (31, 3, 31)] {
        let (id, private) = (100 + bytes, private(kept.min(bytes)));
        cm_events(id, theirs, len, bytes).into_iter().for_each(|event| rig.event(event));
        let expected = [
            ([CTX_REQUEST, id, 5, 0x0a00_0005, kept, 1], private),
            ([CTX_ESTABLISHED, theirs, 44, 0x0a00_0006, kept, 0], private),
            ([CTX_CLOSED, theirs, REASON_REJECTED, 0, kept, 0], private),
        ];
        assert_events(&other, &expected);
        assert_eq!(rig.things().requests, [(id, other.asid)]);
        rig.event(message::CmRequestOver { request: id }.encode());
    }
    assert_eq!(signals(&rig), [0, 18, 0, 0]);
    let failed = QpError { qpn: mine, reason: REASON_PROTOCOL, ..Default::default() };
    rig.event(noisy(QpError::decode(&[u32::MAX; ENTRY_WORDS]).encode(), failed.encode()));
    assert_events(&c, &[([CTX_QP_ERROR, mine, REASON_PROTOCOL, 0, 0, 0], private(0))]);
    assert_events(&other, &[]);
    let refused = QpError { right: 2, key: 0xabcd_ef01, va: u64::MAX - 5, len: 77, ..failed };
    rig.event(QpError { reason: REASON_ACCESS, ..refused }.encode());
    let event = events(&c).pop().expect("an event");
    assert_eq!(
        (event.value, event.right, event.key, event.va, event.len),
        (REASON_ACCESS, 2, 0xabcd_ef01, u64::MAX - 5, 77)
    );
    assert_eq!((signals(&rig), rig.counter(D_BAD_EVENTS), rig.given()), ([2, 0, 0, 0], 0, vec![]));
    rig.end();
}

#[test]
fn inv_6_events_of_queue_pairs_that_nobody_has_are_for_nobody() {
    let mut rig = Rig::new(Setup::default());
    let [c, other] = two(&mut rig);
    for number in [0, FIRST_QPN - 1, qpn(2), qpn(NUM_QPS), u32::MAX] {
        rig.event(CmEstablished { qpn: number, ipv4: 1, peer_qpn: 2, ..Default::default() }.encode());
        rig.event(CmClosed { qpn: number, reason: 1, ..Default::default() }.encode());
        rig.event(QpError { qpn: number, reason: 1, ..Default::default() }.encode());
        // A completion queue of somebody.
        rig.event(message::CqOverrun { qpn: number, ..Default::default() }.encode());
    }
    assert_eq!((signals(&rig), rig.given(), rig.counter(D_BAD_EVENTS)), ([0; 4], vec![], 0));
    assert_eq!((events(&c).len(), events(&other).len()), (0, 0));
    rig.end();
}

#[test]
fn inv_6_events_that_make_no_sense_are_counted() {
    let mut rig = Rig::new(Setup::default());
    let [c, other] = two(&mut rig);
    let long = EVENT_LOG_BYTES as u32 + 1;
    let bad = [
        blank(0),
        blank(EV_CQ_OVERRUN + 1),
        blank(EV_CMD_DONE - 1),
        blank(EV_CM_REQUEST_OVER + 1),
        blank(0xff),
        message::CqNotify { cqn: NUM_CQS }.encode(),
        message::CqNotify { cqn: u32::MAX }.encode(),
        message::CqOverrun { cqn: NUM_CQS, qpn: qpn(0) }.encode(),
        message::FwLog { len: long, ..Default::default() }.encode(),
        message::FwLog { len: u32::MAX, ..Default::default() }.encode(),
        // An answer that nobody waits for.
        message::CmdDone { cookie: 12345, status: CMD_OK, ..Default::default() }.encode(),
    ];
    for (n, entry) in bad.into_iter().enumerate() {
        rig.event(entry);
        assert_eq!(rig.counter(D_BAD_EVENTS), n as u64 + 1, "{entry:x?}");
    }
    // What is in the upper bits of the first word is not looked at.
    let mut failed = QpError { qpn: qpn(0), reason: 1, ..Default::default() }.encode();
    failed[CODE] |= 0xabcd_ef00;
    rig.event(failed);
    // Nobody has that queue; nobody waits for an answer.
    rig.event(message::CqNotify { cqn: NUM_CQS - 1 }.encode());
    rig.event(message::CqOverrun { cqn: NUM_CQS - 1, qpn: qpn(0) }.encode());
    rig.event(message::CmdDone { status: CMD_OK, ..Default::default() }.encode());
    assert_eq!((signals(&rig), rig.given(), rig.counter(D_BAD_EVENTS)), ([1, 0, 0, 0], vec![], bad.len() as u64));
    assert_eq!((events(&c).len(), events(&other).len()), (1, 0));
    let mut log = [0; 200];
    assert_eq!(rig.card.take_log(&mut log), (0, 0));
    rig.end();
}

#[test]
fn log_bytes_of_firmware_are_kept_as_they_come() {
    let rig = Rig::new(Setup::default());
    let all: Vec<u8> = (1..=EVENT_LOG_BYTES as u8).collect();
    let mut data = [0; EVENT_LOG_BYTES / 4];
    for (word, bytes) in data.iter_mut().zip(all.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("four"));
    }
    for len in [5, EVENT_LOG_BYTES] {
        rig.event(message::FwLog { len: len as u32, data }.encode());
        let mut log = [0; 200];
        assert_eq!(rig.card.take_log(&mut log), (len, 0));
        assert_eq!(log[..len], all[..len]);
    }
    assert_eq!(rig.counter(D_BAD_EVENTS), 0);
    rig.end();
}

#[test]
fn qp_1_a_notification_signals_the_event_descriptor_of_its_completion_queue() {
    let mut rig = Rig::new(Setup::default());
    let [c, other] = two(&mut rig);
    rig.event(message::CqNotify { cqn: 1 }.encode());
    assert_eq!(signals(&rig), [0, 0, 0, 1]);
    rig.event(message::CqNotify::default().encode());
    rig.event(message::CqNotify::default().encode());
    assert_eq!(signals(&rig), [0, 0, 2, 0]);
    // One without a descriptor, and one that is gone.
    let plain = rig.cq(&c);
    rig.event(message::CqNotify { cqn: plain }.encode());
    c.destroy_cq(plain).unwrap();
    rig.event(message::CqNotify { cqn: plain }.encode());
    assert_eq!((signals(&rig), rig.counter(D_BAD_EVENTS)), ([0; 4], 0));
    assert_eq!((events(&c).len(), events(&other).len()), (0, 0));
    rig.end();
}

#[test]
fn inv_6_a_queue_pair_whose_completion_queue_overran_is_disconnected() {
    let mut rig = Rig::new(Setup::default());
    let [c, other] = two(&mut rig);
    rig.event(message::CqOverrun { qpn: qpn(0), ..Default::default() }.encode());
    assert_eq!((signals(&rig), rig.given()), ([1, 0, 1, 0], vec![message::Disconnect { qpn: qpn(0) }.encode()]));
    assert_events(&c, &[([CTX_QP_ERROR, qpn(0), REASON_CQ_FULL, 0, 0, 0], private(0))]);
    // It is not for another one's queue pair.
    rig.event(message::CqOverrun { qpn: qpn(1), ..Default::default() }.encode());
    rig.event(message::CqOverrun { cqn: 1, qpn: qpn(0) }.encode());
    assert_eq!((signals(&rig), rig.given()), ([0; 4], vec![]));
    assert_eq!((events(&c).len(), events(&other).len()), (0, 0));
    rig.end();
}

#[test]
fn qp_17_a_request_that_is_over_is_not_shown() {
    let mut rig = Rig::new(Setup::default());
    let [c, other] = two(&mut rig);
    c.listen(6).unwrap();
    let ids = [qpn(1), 1000, 1001];
    ids.into_iter()
        .for_each(|id| rig.event(CmRequest { request: id, ipv4: 1, service: 5, ..Default::default() }.encode()));
    rig.event(CmRequest { request: 2000, ipv4: 1, service: 6, ..Default::default() }.encode());
    // The number of a queue pair is not that of a request.
    rig.event(QpError { qpn: qpn(1), reason: 1, ..Default::default() }.encode());
    for over in [qpn(1), 1001, 55, 1001] {
        rig.event(message::CmRequestOver { request: over }.encode());
    }
    assert_eq!(rig.things().requests, [(1000, other.asid), (2000, c.asid)]);
    let seen = events(&other).iter().map(|e| (e.kind, e.id)).collect::<Vec<_>>();
    assert_eq!(seen, [(CTX_REQUEST, 1000), (CTX_QP_ERROR, qpn(1))]);
    assert_eq!(events(&c).iter().map(|e| (e.kind, e.id)).collect::<Vec<_>>(), [(CTX_REQUEST, 2000)]);
    assert_eq!(rig.counter(D_BAD_EVENTS), 0);
    rig.end();
}

#[test]
fn inv_6_of_more_than_256_events_the_oldest_are_lost() {
    let mut rig = Rig::new(Setup::default());
    let [_, other] = two(&mut rig);
    let error = |reason| rig.event(QpError { qpn: qpn(1), reason, ..Default::default() }.encode());
    let values = || events(&other).iter().map(|e| e.value).collect::<Vec<_>>();
    (0..256).for_each(error);
    assert_eq!((values(), rig.signals(5)), ((0..256).collect(), 256));
    (0..259).for_each(error);
    let first = other.take_event().unwrap();
    assert_eq!((first.value, rig.signals(5)), (3, 259));
    // One that could not be handed over is the first again, and somebody is told that it waits.
    other.put_back(first);
    assert_eq!((values(), rig.signals(5)), ((3..259).collect(), 1));
    // With no room left for it, it is lost.
    (0..256).for_each(error);
    other.put_back(first);
    assert_eq!((values(), rig.signals(5)), ((0..256).collect(), 257));
    rig.end();
}

#[test]
fn f4_events_of_a_queue_pair_that_is_gone_are_not_its_successors() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let cqn = rig.cq(&c);
    let mut first = qp(cqn, cqn);
    c.create_qp(&mut first).unwrap();
    let all = [
        CmEstablished { qpn: qpn(0), ..Default::default() }.encode(),
        CmClosed { qpn: qpn(0), reason: 1, ..Default::default() }.encode(),
        QpError { qpn: qpn(0), reason: 2, ..Default::default() }.encode(),
    ];
    let mut other = qp(cqn, cqn);
    c.create_qp(&mut other).unwrap();
    all.into_iter().for_each(|event| rig.event(event));
    rig.event(QpError { qpn: other.qpn, reason: 3, ..Default::default() }.encode());
    let taken = c.take_event().unwrap();
    assert_eq!((taken.id, taken.identity), (qpn(0), first.identity));
    c.destroy_qp(qpn(0)).unwrap();
    let mut second = qp(cqn, cqn);
    c.create_qp(&mut second).unwrap();
    assert_eq!((second.qpn, second.identity > first.identity), (first.qpn, true));
    // One that was being handed over is not put back, either.
    c.put_back(taken);
    let seen = |c: &Context| events(c).iter().map(|e| (e.kind, e.id, e.identity)).collect::<Vec<_>>();
    assert_eq!(seen(&c), [(CTX_QP_ERROR, other.qpn, other.identity)], "those of others stay");
    rig.event(all[0]);
    let taken = c.take_event().unwrap();
    c.put_back(taken);
    assert_eq!(seen(&c), [(CTX_ESTABLISHED, qpn(0), second.identity)]);
    rig.end();
}

#[test]
fn f4_who_names_an_identity_does_not_reach_a_successor() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let (mut old_cq, mut old) = (cq(4), qp(0, 0));
    c.create_cq(&mut old_cq).unwrap();
    c.create_qp(&mut old).unwrap();
    let old_listener = c.listen(5).unwrap();
    // A reset takes them all; firmware counts requests anew.
    rig.event(CmRequest { request: 1, ipv4: 9, service: 5, ..Default::default() }.encode());
    let asked = c.take_event().unwrap();
    rig.card.reset("a test").unwrap();
    let (mut new_cq, mut new) = (cq(4), qp(0, 0));
    c.create_cq(&mut new_cq).unwrap();
    c.create_qp(&mut new).unwrap();
    let new_listener = c.listen(5).unwrap();
    rig.event(CmRequest { request: 1, ipv4: 9, service: 5, ..Default::default() }.encode());
    rig.given();
    assert_eq!((new_cq.cqn, new.qpn), (old_cq.cqn, old.qpn));
    let there = rig.things();
    let named = |number, identity| crate::process::owned::Name { number, identity };
    assert_eq!(c.destroy_qp(named(old.qpn, old.identity)), Err(ENOENT));
    assert_eq!(c.disconnect(named(old.qpn, old.identity)), Err(ENOENT));
    assert_eq!(c.query_qp(named(old.qpn, old.identity)).map(drop), Err(ENOENT));
    assert_eq!(c.unlisten(named(5, old_listener)), Err(ENOENT));
    let connect = Connect { qpn: old.qpn, ipv4: 1, service: 1, identity: old.identity, ..Default::default() };
    assert_eq!(c.connect(&connect), Err(ENOENT));
    let accept =
        Accept { request: 1, qpn: new.qpn, identity: new.identity, listener: new_listener, ..Default::default() };
    for wrong in [Accept { identity: old.identity, ..accept }, Accept { listener: old_listener, ..accept }] {
        assert_eq!(c.answer(&wrong, true), Err(ENOENT));
    }
    let reject = Accept { request: 1, listener: asked.identity, ..Default::default() };
    assert_eq!((c.answer(&reject, false), asked.identity), (Err(ENOENT), old_listener));
    for wrong in [
        CreateQp { send_cq: old_cq.identity, ..qp(0, 0) },
        CreateQp { recv_cq: old_cq.identity, send_cq: new_cq.identity, ..qp(0, 0) },
        CreateQp { send_cq: new.identity, ..qp(0, 0) },
    ] {
        let mut arg = wrong;
        assert_eq!(c.create_qp(&mut arg).map(drop), Err(ENOENT));
    }
    assert_eq!((rig.given(), rig.things()), (vec![], there));
    assert_eq!(c.mapping(old.offset).map(drop), Err(ENOENT));
    // By their own names they are reached, once.
    assert_eq!(c.answer(&accept, true), Ok(()));
    for expected in [Ok(()), Err(ENOENT)] {
        assert_eq!(c.destroy_qp(named(new.qpn, new.identity)), expected);
        assert_eq!(c.destroy_cq(named(new_cq.cqn, new_cq.identity)), expected);
        assert_eq!(c.unlisten(named(5, new_listener)), expected);
    }
    rig.end();
}

#[test]
fn f4_requests_are_those_of_the_listener_that_they_came_to() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let mine = rig.cq(&c);
    let mine = rig.qp(&c, mine);
    let first = c.listen(5).unwrap();
    rig.event(CmRequest { request: 70, ipv4: 1, service: 5, ..Default::default() }.encode());
    let seen = c.take_event().unwrap();
    rig.event(CmRequest { request: 71, ipv4: 1, service: 5, ..Default::default() }.encode());
    rig.given();
    c.unlisten(5).unwrap();
    rig.settle();
    assert_eq!(
        rig.given(),
        [message::Unlisten { service: 5 }.encode(), message::Reject { request: 71, ..Default::default() }.encode()]
    );
    let second = c.listen(5).unwrap();
    rig.event(CmRequest { request: 72, ipv4: 1, service: 5, ..Default::default() }.encode());
    let next = c.take_event().unwrap();
    assert_eq!([(seen.id, seen.identity), (next.id, next.identity)], [(70, first), (72, second)]);
    assert_eq!(c.take_event().map(|e| e.id), None);
    // Who has seen one may answer it, also when nobody listens any more.
    let accept = Accept { request: 70, qpn: mine, listener: first, ..Default::default() };
    assert_eq!(c.answer(&accept, true), Ok(()));
    // One that is over while it was being handed over is not put back.
    rig.event(message::CmRequestOver { request: 72 }.encode());
    c.put_back(next);
    assert_eq!(c.take_event().map(|e| e.id), None);
    rig.end();
}

#[test]
fn f4_a_completion_queue_that_overran_is_not_a_successors_loss() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let (a, b) = (rig.cq(&c), rig.cq(&c));
    let mine = rig.qp(&c, a);
    rig.given();
    // The queue pair completes in another one: the event is of a predecessor.
    rig.event(message::CqOverrun { cqn: b, qpn: mine }.encode());
    assert_eq!((rig.given(), c.take_event().map(|e| e.kind)), (vec![], None));
    // Each lost completion tells; the process hears it once.
    (0..300).for_each(|_| rig.event(message::CqOverrun { cqn: a, qpn: mine }.encode()));
    assert_eq!(events(&c).len(), 1);
    rig.end();
}

#[test]
fn f2_that_the_card_was_lost_is_told_whatever_comes_after_it() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    rig.card.reset("a test").unwrap();
    let cqn = rig.cq(&c);
    let mine = rig.qp(&c, cqn);
    (0..300).for_each(|reason| rig.event(QpError { qpn: mine, reason, ..Default::default() }.encode()));
    let lost = c.take_event().unwrap();
    assert_eq!((lost.kind, lost.identity), (CTX_DEVICE_LOST, 0));
    c.put_back(lost);
    assert_eq!(events(&c).iter().filter(|e| e.kind == CTX_DEVICE_LOST).count(), 1);
    rig.end();
}

/// A request for a service; the reason for which it was rejected.
fn request(rig: &Rig, id: u32, service: u32) -> Option<u32> {
    rig.event(CmRequest { request: id, ipv4: 1, service, ..Default::default() }.encode());
    let told = rig.given();
    let reason = told.first().map(|entry| message::Reject::decode(entry).reason);
    let expected: Vec<_> = reason
        .map(|reason| message::Reject { request: id, reason, ..Default::default() }.encode())
        .into_iter()
        .collect();
    assert_eq!(told, expected);
    reason
}

/// How many requests for each of these services come through, one after the other.
fn requests(rig: &Rig, services: &[u32]) -> Vec<usize> {
    let busy = Some(REASON_BUSY);
    let all = |service: &u32| {
        let taken = (0..100).take_while(|n| request(rig, 100 * service + n, *service).is_none()).count();
        assert_eq!(request(rig, 100 * service + 99, *service), busy);
        taken
    };
    services.iter().map(all).collect()
}

#[test]
fn inv_6_a_request_that_nobody_takes_is_rejected() {
    let mut rig = Rig::new(Setup::default());
    let [_, other] = two(&mut rig);
    assert_eq!((request(&rig, 1, 6), request(&rig, 2, 0), request(&rig, 3, 5)), (Some(0), Some(0), None));
    other.unlisten(5).unwrap();
    rig.settle();
    // What it has not seen of it is rejected for it.
    assert_eq!(
        rig.given(),
        [message::Unlisten { service: 5 }.encode(), message::Reject { request: 3, ..Default::default() }.encode()]
    );
    assert_eq!(request(&rig, 4, 5), Some(0));
    assert_eq!((events(&other).len(), rig.things().requests), (0, vec![]));
    rig.end();
}

#[test]
fn inv_5_processes_that_listen_share_the_places_for_requests() {
    let mut rig = Rig::new(Setup::default());
    // One in two contexts, and one that listens to nothing.
    let (mm, first) = rig.client();
    let second = rig.context(mm);
    let others: Vec<_> = (0..4).map(|_| rig.client().1).collect();
    first.listen(1).unwrap();
    second.listen(2).unwrap();
    rig.given();
    assert_eq!(requests(&rig, &[1, 2]), [12, 0]);
    rig.event(message::CmRequestOver { request: 100 }.encode());
    assert_eq!(requests(&rig, &[2, 1]), [1, 0]);
    // Others that listen have their shares, as long as there is room in the list.
    for (service, other) in [3, 4, 5].into_iter().zip(&others) {
        other.listen(service).unwrap();
        rig.given();
        let expected = [6, 4, 2][service as usize - 3];
        assert_eq!(requests(&rig, &[service, 1]), [expected, 0], "{service}");
    }
    assert_eq!(rig.things().requests.len(), 2 * CM_REQUESTS as usize);
    rig.end();
}

#[test]
fn inv_5_each_of_many_processes_that_listen_has_a_place() {
    let mut rig = Rig::new(Setup::default());
    let services: Vec<u32> = (1..14).collect();
    for service in &services {
        rig.client().1.listen(*service).unwrap();
    }
    rig.given();
    assert_eq!(requests(&rig, &services), [1; 13]);
    rig.end();
}

/// Another interface than `/dev/berthN`.
#[derive(Default)]
struct Other {
    completions: std::sync::atomic::AtomicU32,
    ends: std::sync::Mutex<Vec<u32>>,
}

impl Notified for Other {
    fn notify(&self) {
        self.completions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Ended for Other {
    fn ended(&self, reason: u32) {
        self.ends.lock().expect("nobody panicked").push(reason);
    }
}

#[test]
fn ap_1_another_interface_is_told_of_its_queues_in_place_of_the_context() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.client();
    let other = Arc::new(Other::default());
    let mut arg = cq(4);
    let queue = c.create_cq_with(&mut arg, Notify::Other(other.clone())).expect("a completion queue");
    let mut want = CreateQp { mode: MODE_MESSAGE.into(), ..qp(arg.cqn, arg.cqn) };
    let pair = c.create_qp_with(&mut want, Some(other.clone())).expect("a queue pair");
    rig.given();
    let peer =
        QpPeer { qpn: want.qpn, ipv4: 0x0a00_0102, peer_qpn: 3, mtu: 256, reads: 4, retries: 7, ..QpPeer::default() }
            .with_mac([2, 0, 0, 0, 0, 9]);
    assert_eq!(c.meet(&*pair, &peer), Ok(()));
    assert_eq!((rig.given(), peer.mac()), (vec![peer.encode()], Some([2, 0, 0, 0, 0, 9])));
    assert_eq!(c.meet(&*pair, &peer.with_mac([1, 0, 0, 0, 0, 9])), Err(EINVAL), "a multicast address");
    assert_eq!(c.meet(qpn(1), &peer), Err(ENOENT));
    rig.given();
    let said = || {
        let ends = core::mem::take(&mut *other.ends.lock().expect("nobody panicked"));
        (other.completions.swap(0, std::sync::atomic::Ordering::Relaxed), ends)
    };
    rig.event(CmEstablished { qpn: want.qpn, ipv4: 1, peer_qpn: 3, ..Default::default() }.encode());
    rig.event(message::CqNotify { cqn: arg.cqn }.encode());
    assert_eq!(said(), (1, vec![]));
    rig.event(CmClosed { qpn: want.qpn, reason: REASON_PEER_CLOSE, ..Default::default() }.encode());
    rig.event(QpError { qpn: want.qpn, reason: REASON_ACCESS, ..Default::default() }.encode());
    rig.event(message::CqOverrun { cqn: arg.cqn, qpn: want.qpn }.encode());
    assert_eq!(said(), (1, vec![REASON_PEER_CLOSE, REASON_ACCESS, REASON_CQ_FULL]));
    assert_eq!(events(&c).len(), 0);
    // All is lost.
    rig.card.reset("asked for").expect("a card");
    assert_eq!(said(), (0, vec![REASON_LOCAL_CLOSE]));
    assert_eq!(events(&c).iter().map(|e| e.kind).collect::<Vec<_>>(), [CTX_DEVICE_LOST]);
    assert_eq!((c.end_qp(&pair), c.end_cq(&queue)), (Err(ENOENT), Err(ENOENT)));
    drop((pair, queue));
    rig.end();
}
