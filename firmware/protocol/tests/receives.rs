// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives on their way to credits, one step at a time: what they ask of the host, what they hold, where they lie.

use berth_protocol::memory::blocks::Outcome;
use berth_protocol::memory::context::Span;
use berth_protocol::memory::receives::Action::{Cancel, Commit, Complete, Pin, Post, Release};
use berth_protocol::memory::receives::{Action, PostError, Receives, Refusal, Status};

type Recvs = Receives<4, 6>;

fn span(va: u64, len: u32) -> Span {
    Span { va, len }
}

/// Connected, with receives of these sizes, each posted with its own doorbell, one page apart.
fn posted(sizes: &[u32]) -> Recvs {
    let mut recvs = Recvs::new(false);
    recvs.connect();
    for (i, len) in sizes.iter().enumerate() {
        assert_eq!(recvs.post(&[span(i as u64 * 4096, *len)]), Ok(i as u16));
        recvs.ring();
    }
    recvs
}

/// All that there is to do; pins are answered with `Held`.
fn all(recvs: &mut Recvs) -> Vec<Action> {
    let mut done = Vec::new();
    while let Some(action) = recvs.poll() {
        if let Pin { tag } = action {
            assert!(recvs.answer(tag, Outcome::Held));
        }
        done.push(action);
    }
    done
}

#[test]
fn inv_6_receives_may_fill_all_the_room_there_is_and_no_more() {
    let mut recvs = Recvs::new(false);
    assert_eq!(recvs.post(&[span(0, 0x7fff_fffe), span(0, 1)]), Ok(0));
    assert_eq!(recvs.post(&[span(0, 0x7fff_fffe), span(0, 2)]), Err(PostError::BadRange));
    assert_eq!(recvs.post(&[span(0, 1); 5]), Err(PostError::Full));
    assert_eq!(recvs.post(&[span(0, 1); 4]), Ok(1));
    assert_eq!(recvs.post(&[span(0, 1)]), Err(PostError::Full));
    assert_eq!(recvs.post(&[]), Ok(2));
    assert!(!recvs.idle());
    recvs.close();
    while recvs.poll().is_some() {}
    assert!(recvs.idle());
}

#[test]
fn cr_16_a_part_of_a_receive_lies_in_as_many_spans_as_it_touches() {
    let mut recvs = Recvs::new(false);
    recvs.post(&[span(0x900, 7)]).unwrap();
    let tag = recvs.post(&[span(0x1000, 10), span(0x3000, 5), span(0x2000, 20)]).unwrap();
    let part = |offset, len| recvs.part(tag, offset, len).map(|s| (s.va, s.len)).collect::<Vec<_>>();
    assert_eq!(part(0, 10), [(0x1000, 10)]);
    assert_eq!(part(3, 12), [(0x1003, 7), (0x3000, 5)]);
    assert_eq!(part(9, 8), [(0x1009, 1), (0x3000, 5), (0x2000, 2)]);
    assert_eq!(part(15, 100), [(0x2000, 20)]);
    assert_eq!((part(10, 0), part(35, 9)), (vec![], vec![]));
    assert_eq!(recvs.part(77, 0, 9).count(), 0);
}

#[test]
fn pc_3_a_receive_starves_when_it_waits_and_no_credit_is_out() {
    let mut recvs = posted(&[100, 200]);
    assert!(!recvs.starved(), "nobody was asked yet");
    assert_eq!(recvs.poll(), Some(Pin { tag: 0 }));
    assert!(recvs.answer(0, Outcome::Waits) && recvs.starved());
    assert!(recvs.answer(0, Outcome::Held) && !recvs.starved());
    assert_eq!([recvs.poll(), recvs.poll()], [Some(Post { credit: 0, size: 100 }), Some(Commit)]);
    assert_eq!((recvs.unused(), recvs.poll()), ((1, 100), Some(Pin { tag: 1 })));
    assert!(recvs.answer(1, Outcome::Waits) && !recvs.starved(), "data for the first one brings memory back");
    recvs.begin(0).unwrap();
    assert_eq!(recvs.unused(), (0, 0));
    recvs.filled(0, 9).unwrap();
    assert!(recvs.starved());
    assert_eq!(all(&mut recvs), [Release { tag: 0 }, Complete { tag: 0, status: Status::Filled(9) }]);
}

#[test]
fn pc_3_one_that_waits_makes_later_ones_let_go_and_ask_anew() {
    // The second and third are asked for when the first has to wait.
    let mut recvs = posted(&[100, 200, 300]);
    assert_eq!((0..3).map(|_| recvs.poll()).collect::<Vec<_>>(), [0, 1, 2].map(|tag| Some(Pin { tag })));
    assert!(recvs.answer(1, Outcome::Held) && recvs.answer(0, Outcome::Waits));
    assert_eq!((recvs.poll(), recvs.poll()), (Some(Release { tag: 1 }), None));
    // What is answered in vain is let go of; what waits in vain is taken out of the line, once.
    assert!(recvs.answer(2, Outcome::Waits));
    assert_eq!((recvs.poll(), recvs.poll()), (Some(Cancel { tag: 2 }), None));
    assert!(recvs.answer(2, Outcome::Gone));
    assert_eq!(recvs.poll(), None, "the first one's turn");
    assert!(recvs.answer(0, Outcome::Held));
    let done = all(&mut recvs);
    assert_eq!(done[..3], [Post { credit: 0, size: 100 }, Commit, Pin { tag: 1 }]);
    assert_eq!(done.iter().filter(|a| matches!(a, Post { .. })).count(), 3);
}

#[test]
fn decision_19_a_recall_takes_the_newest_credits_that_free_so_much() {
    for (bytes, n) in [(0, 1), (1, 1), (30, 1), (31, 2), (50, 2), (51, 3), (1000, 3)] {
        let mut recvs = posted(&[10, 20, 30]);
        all(&mut recvs);
        assert_eq!((recvs.unused(), recvs.recall(bytes)), ((3, 60), n), "{bytes}");
        // Until it is answered there is no new credit.
        recvs.post(&[span(0x9000, 5)]).unwrap();
        recvs.ring();
        assert_eq!(all(&mut recvs), [Pin { tag: 3 }]);
        assert!(recvs.recalled(3 - n));
        let credits: Vec<_> = all(&mut recvs).into_iter().filter(|a| matches!(a, Post { .. })).collect();
        assert_eq!(credits.len(), n as usize + 1, "{bytes}");
        assert_eq!(credits[0], Post { credit: 3 - n, size: 10 * (4 - n) });
    }
    let mut recvs = posted(&[]);
    assert_eq!(recvs.recall(5), 0);
    recvs.post(&[span(0, 5)]).unwrap();
    recvs.ring();
    assert!(all(&mut recvs).contains(&Post { credit: 0, size: 5 }), "nothing was recalled");
}

#[test]
fn what_is_no_credit_may_go_back_to_the_program_and_later_receives_are_granted() {
    let recalled = |tag| Complete { tag, status: Status::Recalled };
    // A credit, one that the host works on, one that has not been asked for; the second is answered in one way or another.
    for outcome in [Outcome::Held, Outcome::Waits, Outcome::Gone] {
        let mut recvs = posted(&[100, 200, 300]);
        assert_eq!(recvs.poll(), Some(Pin { tag: 0 }));
        assert!(recvs.answer(0, Outcome::Held));
        assert_eq!([recvs.poll(), recvs.poll()], [Some(Post { credit: 0, size: 100 }), Some(Commit)]);
        assert_eq!(recvs.poll(), Some(Pin { tag: 1 }));
        recvs.cancel();
        recvs.cancel();
        assert_eq!(recvs.post(&[span(0x8000, 400)]), Ok(3));
        recvs.ring();
        assert!(recvs.answer(1, outcome));
        let line = [Release { tag: 1 }, Cancel { tag: 1 }];
        match outcome {
            Outcome::Held => assert_eq!(recvs.poll(), Some(line[0])),
            Outcome::Waits => {
                assert_eq!(recvs.poll(), Some(line[1]));
                assert!(recvs.answer(1, Outcome::Gone));
            }
            _ => (),
        }
        assert_eq!(
            all(&mut recvs),
            [Pin { tag: 3 }, Post { credit: 1, size: 400 }, Commit],
            "in turn: a credit is first"
        );
        recvs.begin(0).unwrap();
        recvs.filled(0, 9).unwrap();
        let first = [Release { tag: 0 }, Complete { tag: 0, status: Status::Filled(9) }];
        assert_eq!(all(&mut recvs), [&first[..], &[recalled(1), recalled(2)]].concat());
        // A credit that has come back goes the same way.
        assert_eq!(recvs.recall(1), 1);
        assert!(recvs.recalled(1));
        recvs.cancel();
        assert_eq!((all(&mut recvs), recvs.idle()), (vec![Release { tag: 3 }, recalled(3)], true));
    }
}

#[test]
fn vc_9_memory_beside_a_receive_is_not_its_own() {
    let mut recvs = posted(&[4096, 4096, 4096]);
    all(&mut recvs);
    assert_eq!(recvs.withdrawn(3 * 4096, 4096), 0);
    assert_eq!(recvs.withdrawn(4096, 4096), 1);
    assert_eq!(recvs.withdrawn(4096, 4096), 0, "it is told once");
    assert_eq!((recvs.begin(0), recvs.write(1, 0, 1)), (Ok(()), Err(Refusal::Withdrawn)));
    assert_eq!(recvs.write(2, 0, 4096), Ok(2));
    assert_eq!((recvs.write(2, 1, 4096), recvs.write(3, 0, 1)), (Err(Refusal::TooLong), Err(Refusal::NoCredit)));
    assert_eq!(recvs.withdrawn(0, 4 * 4096), 2);
    // What is being written keeps its pages until it is over.
    assert_eq!((recvs.poll(), recvs.poll(), recvs.poll()), (Some(Release { tag: 0 }), Some(Release { tag: 1 }), None));
    assert!(recvs.written(2) && !recvs.written(2));
    assert_eq!(recvs.poll(), Some(Release { tag: 2 }));
    recvs.close();
    let over = |tag| Complete { tag, status: Status::Withdrawn };
    assert_eq!(all(&mut recvs), [over(0), over(1), over(2)]);
}
