// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules that no property of the model checker rests on, broken one by one: each of them makes a difference.
//! (Rules are broken in the whole process, so this is one test.)
#![cfg(feature = "mutations")]

use berth_abi::cpu::LIST_OK;
use berth_protocol::base::rule::{Rule, break_rule};
use berth_protocol::credit::announcer::{Announcer, Options};
use berth_protocol::credit::cut::{Cut, Mode, NicCut, Out, Send};
use berth_protocol::credit::entry::{Body, Entry, Name, Part};
use berth_protocol::credit::list::Reader;
use berth_protocol::credit::policy::Cap;
use berth_protocol::credit::taker::{Arrived, Taker};
use berth_protocol::memory::blocks::{self, Outcome, Transmit};
use berth_protocol::memory::context::{Choice, Place, Span};
use berth_protocol::memory::receives::{Receives, Refusal};
use berth_protocol::service::grow::{self, Answer, Progress};

/// A list before a credit of the last one was used, in the engine.
fn early_list_is_read() -> bool {
    let mut reader: Reader<4, 2> = Reader::new();
    assert_eq!(reader.list_begin(0, 1).0, LIST_OK);
    reader.list_push(5);
    reader.list_begin(1, 1).0 == LIST_OK
}

/// The same at a sender that has its other buffer posted.
fn early_list_is_taken() -> bool {
    let own = Name { qpn: 2, epoch: 0 };
    let mut taker: Taker<4, 2> = Taker::new();
    taker.connect(own, Name { qpn: 1, epoch: 0 });
    let list = |list| Part { round: 0, list, total: 1, offset: 0, len: 1, sizes: [5, 0] };
    assert_eq!(taker.accept(&Entry { to: own, body: Body::List(list(0)) }), Arrived::Buffered);
    taker.accept(&Entry { to: own, body: Body::List(list(1)) }) == Arrived::Buffered
}

/// A message that its credit does not hold.
fn long_message_leaves() -> bool {
    let mut cut: NicCut<2> = NicCut::new(Mode::Message);
    cut.post(Send { id: 1, len: 9, ..Send::default() }).unwrap();
    let mut reader: Reader<4, 2> = Reader::new();
    reader.list_begin(0, 1);
    reader.list_push(8);
    matches!(cut.poll(&mut reader), Some(Out::Piece(_)))
}

/// Credits for more than the burst of a sender's bandwidth, at once.
fn more_than_the_cap_is_announced() -> bool {
    let cap = Some(Cap::new(1, 1_000_000, 2_000));
    let mut announcer: Announcer<4, 4> = Announcer::new(&Options { cap, ..Options::default() });
    announcer.connect(0, Name::default(), Name::default());
    (0..4).for_each(|_| assert!(announcer.post(1_000).is_some()));
    announcer.commit();
    announcer.poll(0);
    announcer.outstanding_bytes() > 2_000
}

/// A packet without a credit.
fn send_without_credit() -> bool {
    let config = blocks::Config { mtu: 64, block: 64, window: 64, copy_room: 64, choice: Choice::Adaptive };
    let mut sender: blocks::Sender<2, 2, 2> = blocks::Sender::new(config, 0);
    sender.post(&[Place::at(0, 10)], None).unwrap();
    if sender.poll().is_some() {
        sender.answer(0, Outcome::Held);
    }
    matches!(sender.transmit(0, 10), Transmit::Ready { .. })
}

/// Data for a receive whose memory is gone.
fn withdrawn_is_taken() -> bool {
    let mut recvs: Receives<1, 1> = Receives::new(false);
    recvs.connect();
    let tag = recvs.post(&[Span { va: 0, len: 10 }]).unwrap();
    recvs.ring();
    recvs.poll();
    recvs.answer(tag, Outcome::Held);
    while recvs.poll().is_some() {}
    assert_eq!(recvs.withdrawn(0, 1), 1);
    recvs.begin(0) != Err(Refusal::Withdrawn) || recvs.write(0, 0, 1) != Err(Refusal::Withdrawn)
}

/// An answer of which the tail is missing.
fn torn_answer_is_taken() -> bool {
    let mut memory = Answer { phase: 1, granted: true, ..Answer::default() }.encode();
    memory[35] = 0;
    Answer::decode(&memory, 1).is_some()
}

/// A message between request and answer.
fn sends_while_growing() -> bool {
    let mut sender: grow::Sender<2> = grow::Sender::new(grow::Config::default());
    assert_eq!(sender.send(&[5000]), Ok(Progress::NotYet));
    sender.send(&[1]) != Ok(Progress::NotYet)
}

#[test]
fn each_rule_makes_a_difference() {
    let cases: [(Rule, fn() -> bool); 8] = [
        (Rule::EarlyListRefused, early_list_is_read),
        (Rule::EarlyListRefused, early_list_is_taken),
        (Rule::MessageFitsCredit, long_message_leaves),
        (Rule::CapWithholds, more_than_the_cap_is_announced),
        (Rule::SendWithinCover, send_without_credit),
        (Rule::WithdrawnIsRefused, withdrawn_is_taken),
        (Rule::AnswerWhole, torn_answer_is_taken),
        (Rule::QuietWhileGrowing, sends_while_growing),
    ];
    assert!(Rule::ALONE.iter().all(|rule| cases.iter().any(|(broken, _)| broken == rule)));
    for (rule, wrong) in cases {
        break_rule(None);
        assert!(!wrong(), "{rule:?} holds");
        break_rule(Some(rule));
        assert!(wrong(), "{rule:?} is broken and nothing changes");
    }
    break_rule(None);
}
