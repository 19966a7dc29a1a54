// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of contexts, receives and growing buffers, broken one by one: each of them makes a difference.
//! (Rules are broken in the whole process, so this is one test.)
#![cfg(feature = "mutations")]

use berth_protocol::context::{Choice, Place, Span};
use berth_protocol::grow::{self, Answer, Progress};
use berth_protocol::receive::{Receives, Refusal};
use berth_protocol::rule::{Rule, break_rule};
use berth_protocol::vc::{self, Outcome, Transmit};

/// A packet without a credit.
fn send_without_credit() -> bool {
    let config = vc::Config { mtu: 64, block: 64, window: 64, copy_room: 64, choice: Choice::Adaptive };
    let mut sender: vc::Sender<2, 2, 2> = vc::Sender::new(config, 0);
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
    let cases: [(Rule, fn() -> bool); 4] = [
        (Rule::SendWithinCover, send_without_credit),
        (Rule::WithdrawnIsRefused, withdrawn_is_taken),
        (Rule::AnswerWhole, torn_answer_is_taken),
        (Rule::QuietWhileGrowing, sends_while_growing),
    ];
    for (rule, wrong) in cases {
        break_rule(None);
        assert!(!wrong(), "{rule:?} holds");
        break_rule(Some(rule));
        assert!(wrong(), "{rule:?} is broken and nothing changes");
    }
    break_rule(None);
}
