// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each end of a reliable connection alone, packet by packet: what is refused, when what is answered, what is asked for.

use berth_protocol::rc::*;

const MTU: u32 = 256;
const PSN: u32 = 5;
const CREDIT: u32 = 250;
const KEY: u32 = 77;

type End = Responder<24, 8, 4>;

/// Everything is there; counts what is asked for.
#[derive(Default)]
struct Open {
    none: bool,
    accesses: u32,
}

impl Target for Open {
    fn credit(&self, _: u32) -> Option<u32> {
        (!self.none).then_some(u32::MAX)
    }
    fn access(&mut self, _: &Access) -> Admit {
        self.accesses += 1;
        Admit::Yes
    }
}

fn berth() -> End {
    Responder::new(ResponderConfig::berth(8), PSN, CREDIT)
}

fn foreign() -> End {
    Responder::new(ResponderConfig::foreign(8, 14), PSN, CREDIT)
}

/// A SEND between Berth ends: packet `index` of its message.
fn piece(psn: u32, position: Position, index: u32, len: u32) -> RequestPacket {
    let placement = Some(Placement { credit: CREDIT as u8, index });
    RequestPacket { psn, kind: Kind::Send, position, len, placement, ..RequestPacket::default() }
}

/// The same to a peer that is not Berth.
fn plain(psn: u32, position: Position, len: u32) -> RequestPacket {
    RequestPacket { placement: None, ..piece(psn, position, 0, len) }
}

fn write(psn: u32, index: u32, len: u32, all: u32) -> RequestPacket {
    let remote = Some(Remote { va: 0x1000, key: KEY, len: all });
    let placement = Some(Placement { credit: 0, index });
    RequestPacket {
        psn,
        kind: Kind::Write,
        position: Position::Only,
        len,
        remote,
        placement,
        ..RequestPacket::default()
    }
}

fn ask(psn: u32, kind: Kind, va: u64, len: u32) -> RequestPacket {
    let remote = Some(Remote { va, key: KEY, len });
    RequestPacket { psn, kind, position: Position::Only, remote, ..RequestPacket::default() }
}

fn invalid(mut end: End, packets: &[RequestPacket]) {
    let mut target = Open::default();
    let (last, before) = packets.split_last().unwrap();
    for p in before {
        assert!(!matches!(end.receive(p, &mut target), Verdict::Drop(_)), "{p:?}");
    }
    assert_eq!(end.receive(last, &mut target), Verdict::Drop(Fault::Invalid), "{last:?}");
}

fn good(mut end: End, packets: &[RequestPacket]) {
    for p in packets {
        assert!(!matches!(end.receive(p, &mut Open::default()), Verdict::Drop(_)), "{p:?}");
    }
}

fn psn_and_syndrome(reply: Reply) -> (u32, Syndrome) {
    match reply.packet.body {
        ResponseBody::Ack { syndrome, .. } => (reply.packet.psn, syndrome),
        body => panic!("{body:?}"),
    }
}

#[test]
fn inv_6_pieces_whose_length_place_or_headers_are_wrong_are_refused() {
    use Position::*;
    let imm = |p: RequestPacket| RequestPacket { imm: Some(1), ..p };
    good(berth(), &[piece(PSN, Only, 0, MTU)]);
    good(berth(), &[piece(PSN, Only, 0, 0)]);
    good(berth(), &[imm(piece(PSN, Only, 0, 1))]);
    good(berth(), &[piece(PSN, First, 0, MTU), imm(piece(PSN + 1, Last, 1, 1))]);
    invalid(berth(), &[piece(PSN, Only, 0, MTU + 1)]);
    invalid(berth(), &[piece(PSN, First, 0, MTU - 1)]);
    invalid(berth(), &[piece(PSN, First, 0, MTU + 1)]);
    invalid(berth(), &[imm(piece(PSN, First, 0, MTU))]);
    let invalidate = |p: RequestPacket| RequestPacket { invalidate: Some(KEY), ..p };
    good(berth(), &[piece(PSN, First, 0, MTU), invalidate(piece(PSN + 1, Last, 1, 1))]);
    invalid(berth(), &[invalidate(piece(PSN, First, 0, MTU))]);
    invalid(berth(), &[invalidate(imm(piece(PSN, Only, 0, 1)))]);
    invalid(berth(), &[invalidate(write(PSN, 0, 1, 1))]);
    invalid(berth(), &[piece(PSN, Only, 1, 1)]);
    invalid(berth(), &[RequestPacket { placement: None, ..piece(PSN, Only, 0, 1) }]);
    // Behind a gap too, where nothing shows yet what message it continues.
    good(berth(), &[piece(PSN + 1, Last, 1, 1)]);
    good(berth(), &[piece(PSN + 1, Middle, 1, MTU)]);
    good(berth(), &[piece(PSN + 1, Last, Placement::MAX_INDEX, 1)]);
    invalid(berth(), &[piece(PSN + 1, Last, 1, 0)]);
    invalid(berth(), &[piece(PSN + 1, Last, 0, 1)]);
    invalid(berth(), &[piece(PSN + 1, Middle, 1, 1)]);
    invalid(berth(), &[imm(piece(PSN + 1, Middle, 1, MTU))]);
    invalid(berth(), &[piece(PSN + 1, Last, Placement::MAX_INDEX + 1, 1)]);
    invalid(foreign(), &[piece(PSN, Only, 0, 1)]);
    invalid(foreign(), &[plain(PSN, Last, 1)]);
    good(foreign(), &[plain(PSN, First, MTU), plain(PSN + 1, Middle, MTU), plain(PSN + 2, Last, 1)]);
    invalid(foreign(), &[plain(PSN, First, MTU), plain(PSN + 1, Last, 0)]);
}

#[test]
fn inv_6_a_message_that_does_not_go_on_as_it_began_breaks_the_connection() {
    for second in
        [piece(PSN + 1, Position::Only, 0, 1), write(PSN + 1, 1, 1, MTU + 1), piece(PSN + 1, Position::Last, 2, 1)]
    {
        let (mut end, mut target) = (berth(), Open::default());
        end.receive(&piece(PSN, Position::First, 0, MTU), &mut target);
        end.placed(PSN);
        assert!(matches!(end.receive(&second, &mut target), Verdict::Drop(Fault::Invalid)), "{second:?}");
        while let Some(event) = end.event() {
            assert!(matches!(event, Event::Landed { .. } | Event::Broken(Fault::Invalid)), "{event:?}");
        }
        let (_, syndrome) = psn_and_syndrome(end.respond().unwrap());
        assert_eq!(syndrome, Syndrome::Nak(NakCode::InvalidRequest));
    }
}

/// A program may take the last byte of a WRITE for all of it.
#[test]
fn qp_7_a_write_fills_memory_in_order_where_programs_look_at_it() {
    for writes_in_order in [false, true] {
        let config = ResponderConfig { writes_in_order, ..ResponderConfig::berth(8) };
        let mut end: End = Responder::new(config, PSN, CREDIT);
        let mut target = Open::default();
        let ahead = end.receive(&write(PSN + 1, 1, 44, 300), &mut target);
        match writes_in_order {
            false => assert!(matches!(ahead, Verdict::Place(_))),
            true => assert_eq!(ahead, Verdict::Drop(Fault::OutOfOrder)),
        }
        assert!(matches!(end.receive(&write(PSN, 0, 256, 300), &mut target), Verdict::Place(_)));
        // What needs no order has none.
        let send = RequestPacket { psn: PSN + 3, ..piece(PSN + 3, Position::Only, 0, 10) };
        assert!(matches!(end.receive(&send, &mut target), Verdict::Place(_)));
    }
}

#[test]
fn inv_6_writes_that_do_not_fill_their_range_are_refused() {
    good(berth(), &[write(PSN, 0, MTU, MTU + 1), write(PSN + 1, 1, 1, MTU + 1)]);
    invalid(berth(), &[write(PSN, 0, 10, 20)]);
    invalid(berth(), &[write(PSN, 0, 20, 10)]);
    invalid(berth(), &[RequestPacket { position: Position::First, ..write(PSN, 0, MTU, MTU + 1) }]);
    invalid(berth(), &[RequestPacket { imm: Some(1), ..write(PSN, 0, MTU, MTU + 1) }]);
    let first = |all| RequestPacket { placement: None, position: Position::First, ..write(PSN, 0, MTU, all) };
    let next = |position, len| RequestPacket { remote: None, placement: None, position, ..write(PSN + 1, 0, len, 0) };
    good(foreign(), &[first(MTU + 1), next(Position::Last, 1)]);
    invalid(foreign(), &[first(MTU)]);
    invalid(foreign(), &[first(MTU + 1), next(Position::Last, 2)]);
    invalid(foreign(), &[first(2 * MTU), next(Position::Middle, MTU)]);
}

#[test]
fn qp_11_memory_is_asked_for_by_packet_and_never_for_nothing() {
    let mut target = Open::default();
    let mut end = berth();
    end.receive(&write(PSN, 0, 0, 0), &mut target);
    assert_eq!(target.accesses, 0);
    end.receive(&write(PSN + 1, 0, MTU, MTU + 1), &mut target);
    end.receive(&write(PSN + 2, 1, 1, MTU + 1), &mut target);
    assert_eq!(target.accesses, 2);
    let (mut end, mut target) = (foreign(), Open::default());
    end.receive(
        &RequestPacket { placement: None, position: Position::First, ..write(PSN, 0, MTU, MTU + 1) },
        &mut target,
    );
    let last = RequestPacket { remote: None, placement: None, position: Position::Last, ..write(PSN + 1, 0, 1, 0) };
    end.receive(&last, &mut target);
    assert_eq!(target.accesses, 2);
    end.receive(&ask(PSN + 2, Kind::Read, 0, 0), &mut target);
    assert_eq!(target.accesses, 2);
}

#[test]
fn qp_3_reads_and_atomics_must_be_whole_aligned_and_few() {
    good(berth(), &[ask(PSN, Kind::FetchAdd, 8, 8)]);
    good(berth(), &[ask(PSN, Kind::Read, 3, 4)]);
    invalid(berth(), &[ask(PSN, Kind::FetchAdd, 4, 8)]);
    invalid(berth(), &[ask(PSN, Kind::CompareSwap, 8, 4)]);
    invalid(berth(), &[RequestPacket { len: 1, ..ask(PSN, Kind::Read, 0, 8) }]);
    invalid(berth(), &[RequestPacket { position: Position::First, ..ask(PSN, Kind::Read, 0, 8) }]);
    invalid(berth(), &[RequestPacket { remote: None, ..ask(PSN, Kind::Read, 0, 8) }]);
    invalid(berth(), &[piece(PSN, Position::First, 0, MTU), ask(PSN + 1, Kind::Read, 0, 8)]);
    let mut end = berth();
    for i in 0..4 {
        assert_eq!(end.receive(&ask(PSN + i, Kind::Read, 0, 8), &mut Open::default()), Verdict::Taken);
    }
    assert_eq!(end.receive(&ask(PSN + 4, Kind::Read, 0, 8), &mut Open::default()), Verdict::Drop(Fault::TooMany));
    assert_eq!(berth().receive(&ask(PSN, Kind::Read, 0, 8 * MTU), &mut Open::default()), Verdict::Taken);
    let more = ask(PSN, Kind::Read, 0, 8 * MTU + 1);
    assert_eq!(berth().receive(&more, &mut Open::default()), Verdict::Drop(Fault::TooMany));
}

#[test]
fn qp_3_a_read_as_old_as_the_window_is_answered_again_from_the_packet_that_is_asked_for() {
    let (mut end, mut target) = (berth(), Open::default());
    let read = ask(PSN, Kind::Read, 0, 8 * MTU);
    end.receive(&read, &mut target);
    for i in 0..8 {
        assert_eq!(end.respond().unwrap().packet.psn, PSN + i);
        while end.event().is_some() {}
    }
    assert_eq!(end.receive(&read, &mut target), Verdict::Duplicate);
    for i in 0..8 {
        let reply = end.respond().unwrap();
        assert_eq!((reply.packet.psn, reply.payload.unwrap().va), (PSN + i, u64::from(i * MTU)));
    }
    assert_eq!(end.respond(), None);
    end.receive(&write(PSN + 8, 0, 0, 0), &mut target);
    while end.event().is_some() {}
    assert_eq!(end.receive(&read, &mut target), Verdict::Drop(Fault::OutOfWindow));
}

#[test]
fn qp_7_every_fourth_packet_is_acknowledged_and_one_that_asks_for_it() {
    let (mut end, mut target) = (berth(), Open::default());
    let mut psn = PSN;
    let mut send = |end: &mut End, ack_request| {
        let credit = (CREDIT + psn - PSN) as u8;
        let p = piece(psn, Position::Only, 0, 1);
        let p = RequestPacket { ack_request, placement: Some(Placement { credit, index: 0 }), ..p };
        assert!(matches!(end.receive(&p, &mut target), Verdict::Place(_)));
        end.placed(psn);
        while end.event().is_some() {}
        psn += 1;
    };
    for round in 1..4 {
        for _ in 0..3 {
            send(&mut end, false);
            assert_eq!(end.respond(), None);
        }
        send(&mut end, false);
        let reply = end.respond().unwrap();
        assert_eq!(psn_and_syndrome(reply), (PSN + 5 * round - 2, Syndrome::Ack(31)));
        assert!(matches!(reply.packet.body, ResponseBody::Ack { sack: None, .. }), "nothing lies ahead");
        assert_eq!(end.respond(), None);
        send(&mut end, true);
        assert_eq!(psn_and_syndrome(end.respond().unwrap()), (PSN + 5 * round - 1, Syndrome::Ack(31)));
    }
}

#[test]
fn qp_7_a_packet_that_comes_again_is_acknowledged_again() {
    let (mut end, mut target) = (berth(), Open::default());
    let ahead = piece(PSN + 1, Position::Middle, 1, MTU);
    assert!(matches!(end.receive(&ahead, &mut target), Verdict::Place(_)));
    assert_eq!(end.respond(), None);
    assert_eq!(end.receive(&ahead, &mut target), Verdict::Duplicate);
    assert_eq!(psn_and_syndrome(end.respond().unwrap()), (PSN - 1, Syndrome::Ack(31)));
    assert_eq!(end.respond(), None);
    // Once it is in its place, the acknowledgement shows it.
    end.placed(PSN + 1);
    let sack = end.respond().unwrap().packet.body;
    assert_eq!(sack, ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: Some(1 << 126) });
}

#[test]
fn qp_7_a_gap_is_told_once_and_once_more_when_the_sender_has_gone_back_in_vain() {
    let (mut end, mut target) = (foreign(), Open::default());
    let gap = (PSN, Syndrome::Nak(NakCode::Sequence));
    for _ in 0..3 {
        for (psn, told) in [(PSN + 1, true), (PSN + 2, false), (PSN + 4, false)] {
            assert_eq!(end.receive(&plain(psn, Position::Only, 1), &mut target), Verdict::Drop(Fault::OutOfOrder));
            assert_eq!(end.respond().map(psn_and_syndrome), told.then_some(gap));
        }
    }
    // The packet that was missing comes before the last NAK has left, which is of no use then.
    end.receive(&plain(PSN + 1, Position::Only, 1), &mut target);
    assert!(matches!(end.receive(&plain(PSN, Position::Only, 1), &mut target), Verdict::Place(_)));
    end.placed(PSN);
    while end.event().is_some() {}
    assert!(end.respond().is_none_or(|r| psn_and_syndrome(r) == (PSN, Syndrome::Ack(31))));
    // The next gap is told anew.
    assert_eq!(end.receive(&plain(PSN + 2, Position::Only, 1), &mut target), Verdict::Drop(Fault::OutOfOrder));
    assert_eq!(end.respond().map(psn_and_syndrome), Some((PSN + 1, Syndrome::Nak(NakCode::Sequence))));
}

#[test]
fn qp_7_what_follows_a_packet_that_must_wait_is_dropped_without_a_word() {
    let (mut end, mut target) = (foreign(), Open { none: true, ..Open::default() });
    assert_eq!(end.receive(&plain(PSN, Position::Only, 1), &mut target), Verdict::Drop(Fault::NotReady));
    assert_eq!(end.respond().map(psn_and_syndrome), Some((PSN, Syndrome::Rnr(14))));
    for psn in [PSN + 1, PSN + 2] {
        assert_eq!(end.receive(&plain(psn, Position::Only, 1), &mut target), Verdict::Drop(Fault::OutOfOrder));
        assert_eq!(end.respond(), None);
    }
}

/// What is behind it waits, unacknowledged; nothing else does.
#[test]
fn qp_4_a_send_with_invalidate_is_complete_when_the_key_is_dead() {
    let send = |at: u32, invalidate| {
        let placement = Some(Placement { credit: CREDIT.wrapping_add(at) as u8, index: 0 });
        let ack_request = true;
        RequestPacket { invalidate, ack_request, placement, ..piece(PSN + at, Position::Only, 0, 1) }
    };
    let received = |at: u32, invalidated| Event::Received {
        credit: CREDIT + at,
        len: 1,
        imm: None,
        invalidated,
        solicited: false,
        write: false,
    };
    for done in [true, false] {
        let (mut end, mut target) = (berth(), Open::default());
        for (at, key) in [(0, None), (1, Some(KEY)), (3, None), (2, Some(KEY + 1))] {
            assert!(matches!(end.receive(&send(at, key), &mut target), Verdict::Place(_)));
            end.placed(PSN + at);
        }
        let events = |end: &mut Responder<24, 8, 4>| -> Vec<_> {
            std::iter::from_fn(|| end.event()).filter(|event| !matches!(event, Event::Landed { .. })).collect()
        };
        assert_eq!(events(&mut end), [received(0, None), Event::Invalidate { key: KEY }]);
        assert_eq!(end.respond(), None);
        assert_eq!(end.receive(&send(0, None), &mut target), Verdict::Duplicate);
        assert_eq!((end.respond(), events(&mut end)), (None, vec![]));
        end.invalidated(done);
        if !done {
            assert_eq!(events(&mut end), [Event::Broken(Fault::Access)]);
            assert_eq!(end.respond().map(psn_and_syndrome), Some((PSN + 1, Syndrome::Nak(NakCode::RemoteAccess))));
            end.invalidated(true);
            assert_eq!(events(&mut end), []);
            continue;
        }
        assert_eq!(events(&mut end), [received(1, Some(KEY)), Event::Invalidate { key: KEY + 1 }]);
        end.invalidated(true);
        assert_eq!(events(&mut end), [received(2, Some(KEY + 1)), received(3, None)]);
        assert_eq!(end.respond().map(psn_and_syndrome), Some((PSN + 3, Syndrome::Ack(31))));
    }
}

#[test]
fn qp_12_the_use_of_a_key_is_told_with_the_first_packet_of_its_write() {
    let (mut end, mut target) = (berth(), Open::default());
    end.receive(&piece(PSN, Position::Only, 0, 1), &mut target);
    end.receive(&write(PSN + 1, 0, MTU, 2 * MTU), &mut target);
    end.receive(&write(PSN + 2, 1, MTU, 2 * MTU), &mut target);
    (PSN..PSN + 3).for_each(|psn| end.placed(psn));
    let events: Vec<_> = std::iter::from_fn(|| end.event()).collect();
    let received =
        Event::Received { credit: CREDIT, len: 1, imm: None, invalidated: None, solicited: false, write: false };
    assert_eq!(events, [Event::Landed { credit: CREDIT }, received, Event::Used { key: KEY, first: PSN + 1 }]);
}

// ---- the requester ----

const TIMEOUT: u32 = 100;

fn requester(config: RequesterConfig) -> Requester<24, 8, 8> {
    Requester::new(config, PSN)
}

fn config() -> RequesterConfig {
    RequesterConfig::berth(8, 8, TIMEOUT)
}

fn message(op: Op, len: u32, va: u64) -> Message {
    Message { op, len, remote: Remote { va, key: KEY, len }, ..Message::default() }
}

fn reply(psn: u32, syndrome: Syndrome) -> ResponsePacket {
    ResponsePacket { psn, msn: 0, body: ResponseBody::Ack { syndrome, sack: None } }
}

fn ack(psn: u32) -> ResponsePacket {
    reply(psn, Syndrome::Ack(31))
}

/// All that may leave at `now`.
fn leave<const BITS: u32, const W: usize, const M: usize>(a: &mut Requester<BITS, W, M>, now: u64) -> Vec<Transmit> {
    std::iter::from_fn(|| a.transmit(now)).collect()
}

#[test]
fn a_requester_says_what_it_holds() {
    let mut a = requester(config());
    assert_eq!((a.pending(), a.room(), a.busy(), a.has_new(), a.deadline()), (0, 8, false, false, None));
    for _ in 0..8 {
        a.post(message(Op::Send, 1, 0)).unwrap();
    }
    assert_eq!(a.post(message(Op::Send, 1, 0)), Err(Full));
    assert_eq!((a.pending(), a.room(), a.busy(), a.has_new()), (8, 0, false, true));
    assert_eq!(leave(&mut a, 3).len(), 8);
    assert_eq!((a.pending(), a.busy(), a.has_new(), a.deadline()), (8, true, false, Some(3 + TIMEOUT as u64)));
    assert_eq!(a.response(4, &ack(PSN + 7)), Outcome::Progress);
    assert_eq!((a.busy(), a.deadline()), (false, None));
    assert_eq!(std::iter::from_fn(|| a.complete()).count(), 8);
    assert_eq!((a.pending(), a.room()), (0, 8));
}

#[test]
fn states_of_a_requester_that_behave_alike_are_equal() {
    let config = RequesterConfig::berth(8, 4, TIMEOUT);
    let fresh = Requester::<3, 4, 8>::new(config, 0);
    let mut a = fresh.clone();
    for psn in 0..8 {
        a.post(message(Op::Send, 9, 0)).unwrap();
        assert_eq!(leave(&mut a, 0).len(), 1);
        // A time-out, a GO that nothing waits for, one RNR NAK.
        assert!(a.tick(a.deadline().unwrap()));
        assert_eq!(leave(&mut a, 0).len(), 1);
        a.go(0, psn);
        assert_eq!(a.response(0, &reply(psn, Syndrome::Rnr(1))), Outcome::Progress);
        assert!(!a.tick(a.deadline().unwrap()));
        assert_eq!(leave(&mut a, 0).len(), 1);
        assert_eq!(a.response(0, &ack(psn)), Outcome::Progress);
        assert!(a.complete().is_some());
    }
    assert_eq!(a, fresh);
}

#[test]
fn qp_7_an_acknowledgement_is_asked_for_twice_per_window_and_where_nothing_follows() {
    let mut a = requester(config());
    a.post(Message { solicited: true, ..message(Op::Send, 20 * MTU, 0) }).unwrap();
    let asked = |sent: &[Transmit]| sent.iter().map(|t| t.packet.ack_request as u8).collect::<Vec<_>>();
    let sent = leave(&mut a, 0);
    assert_eq!(asked(&sent), [0, 0, 0, 1, 0, 0, 0, 1]);
    assert!(sent.iter().all(|t| !t.again && !t.packet.solicited));
    a.response(0, &ack(PSN + 2));
    assert_eq!(asked(&leave(&mut a, 0)), [0, 0, 1], "the window is full with it");
    a.response(0, &ack(PSN + 10));
    assert_eq!(asked(&leave(&mut a, 0)), [0, 0, 0, 1, 0, 0, 0, 1]);
    a.response(0, &ack(PSN + 18));
    let last = leave(&mut a, 0);
    assert_eq!(asked(&last), [1]);
    assert!(last[0].packet.solicited);
    // What goes again asks each time.
    assert!(a.tick(a.deadline().unwrap()));
    let again = leave(&mut a, 0);
    assert_eq!(asked(&again), [1]);
    assert!(again[0].again);
}

#[test]
fn qp_7_time_outs_double_without_end_when_retries_have_none() {
    let mut a = requester(RequesterConfig { retries: 0, ..config() });
    a.post(message(Op::Send, 1, 0)).unwrap();
    let mut now = 0;
    let mut times = Vec::new();
    for _ in 0..5 {
        leave(&mut a, now);
        times.push(a.deadline().unwrap() - now);
        now = a.deadline().unwrap();
        assert!(!a.tick(now - 1) && a.tick(now));
    }
    assert_eq!(times, [100, 200, 400, 800, 1600]);
    // An answer ends it.
    leave(&mut a, now);
    a.post(message(Op::Send, 1, 0)).unwrap();
    leave(&mut a, now);
    a.response(now, &ack(PSN));
    assert_eq!(a.deadline(), Some(now + 100));
}

#[test]
fn inv_6_answers_about_packets_that_were_never_sent_are_bad() {
    let mut a = requester(config());
    a.post(message(Op::Send, 2 * MTU, 0)).unwrap();
    leave(&mut a, 0);
    let before = a.clone();
    for syndrome in [Syndrome::Nak(NakCode::Sequence), Syndrome::Nak(NakCode::RemoteAccess), Syndrome::Rnr(3)] {
        assert_eq!(a.response(0, &reply(PSN + 2, syndrome)), Outcome::Bad);
        assert_eq!(a.response(0, &reply(PSN - 1, syndrome)), Outcome::Nothing);
    }
    let read = ResponseBody::Read { position: Position::Only, len: 1 };
    for psn in [PSN, PSN + 2] {
        assert_eq!(a.response(0, &ResponsePacket { psn, msn: 0, body: read }), Outcome::Bad);
    }
    assert_eq!(a, before);
    // A NAK acknowledges what lies before it.
    assert_eq!(a.response(0, &reply(PSN + 1, Syndrome::Nak(NakCode::Sequence))), Outcome::Progress);
    assert_eq!((a.window().una().get(), leave(&mut a, 0).len()), (PSN + 1, 1));
}

#[test]
fn qp_7_rnr_naks_are_counted_until_an_acknowledgement_and_seven_is_for_ever() {
    let mut a = requester(RequesterConfig { rnr_retries: 7, tick: 1, ..config() });
    a.post(message(Op::Send, 1, 0)).unwrap();
    for _ in 0..20 {
        assert_eq!(leave(&mut a, 0).len(), 1);
        assert_eq!(a.response(0, &reply(PSN, Syndrome::Rnr(1))), Outcome::Progress);
        assert_eq!((a.waiting(), a.deadline()), (Some(Wait::Receive(PSN)), Some(1)));
        assert!(!a.tick(1));
    }
    let mut a = requester(RequesterConfig { rnr_retries: 2, tick: 1, ..config() });
    a.post(message(Op::Send, 1, 0)).unwrap();
    a.post(message(Op::Send, 1, 0)).unwrap();
    for psn in [PSN, PSN + 1] {
        for _ in 0..2 {
            leave(&mut a, 0);
            assert_eq!(a.response(0, &reply(psn, Syndrome::Rnr(1))), Outcome::Progress);
            a.tick(1);
        }
        leave(&mut a, 0);
        if psn == PSN {
            assert_eq!(a.response(0, &ack(psn)), Outcome::Progress);
        }
    }
    assert_eq!(a.response(0, &reply(PSN + 1, Syndrome::Rnr(1))), Outcome::Failed);
    assert_eq!((a.waiting(), a.deadline(), a.failed()), (None, None, Some(Status::NotReady)));
}

#[test]
fn what_is_abandoned_waits_for_nothing() {
    let mut a = requester(config());
    a.post(message(Op::Send, 1, 0)).unwrap();
    a.post(message(Op::Delay(50), 0, 0)).unwrap();
    leave(&mut a, 0);
    a.response(0, &reply(PSN, Syndrome::Rnr(1)));
    a.abandon(Status::RetryExceeded);
    assert_eq!((a.waiting(), a.deadline(), a.transmit(0)), (None, None, None));
    a.abandon(Status::RemoteError);
    let over: Vec<_> = std::iter::from_fn(|| a.complete()).map(|c| c.status).collect();
    assert_eq!(over, [Status::RetryExceeded, Status::Flushed]);
}

#[test]
fn qp_3_only_what_overlaps_or_is_fenced_waits() {
    // Ranges that touch do not overlap.
    for (first, second, leaves) in [(256, 0, true), (0, 256, true), (255, 0, false), (0, 255, false), (0, 0, false)] {
        let mut a = requester(config());
        a.post(message(Op::Write, 256, first)).unwrap();
        a.post(message(Op::Write, 256, second)).unwrap();
        assert_eq!(leave(&mut a, 0).len() == 2, leaves, "{first} {second}");
    }
    // A fence is for READs and atomics.
    for (op, leaves) in [(Op::Send, true), (Op::Write, true), (Op::Read, false), (Op::FetchAdd { add: 1 }, false)] {
        let mut a = requester(config());
        a.post(message(op, 8, 0)).unwrap();
        a.post(Message { fence: true, ..message(Op::Send, 1, 0) }).unwrap();
        assert_eq!(leave(&mut a, 0).len() == 2, leaves, "{op:?}");
    }
}

#[test]
fn qp_3_a_read_is_asked_for_again_from_what_is_missing_to_the_end_of_its_part() {
    let mut a: Requester<24, 32, 8> = Requester::new(RequesterConfig::berth(8, 32, TIMEOUT), PSN);
    a.post(message(Op::Read, 20 * MTU, 0)).unwrap();
    // Parts of eight packets.
    let lens: Vec<_> = leave(&mut a, 0).iter().map(|t| t.packet.remote.unwrap().len / MTU).collect();
    assert_eq!(lens, [8, 8, 4]);
    let answer =
        |psn| ResponsePacket { psn, msn: 0, body: ResponseBody::Read { position: Position::Middle, len: MTU } };
    for psn in [PSN, PSN + 1, PSN + 9] {
        assert!(matches!(a.response(0, &answer(psn)), Outcome::Read { .. }));
    }
    assert_eq!(a.response(0, &answer(PSN + 9)), Outcome::Nothing);
    assert!(a.tick(a.deadline().unwrap()));
    let again: Vec<_> = leave(&mut a, 0)
        .iter()
        .map(|t| {
            (
                t.packet.psn - PSN,
                t.packet.remote.unwrap().va / u64::from(MTU),
                t.packet.remote.unwrap().len / MTU,
                t.again,
            )
        })
        .collect();
    assert_eq!(again, [(2, 2, 6, true), (8, 8, 1, true), (10, 10, 6, true), (16, 16, 4, true)]);
}
