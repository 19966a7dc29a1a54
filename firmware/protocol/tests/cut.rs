// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends become pieces: in the card and in the library (CR-15), stream and message mode (CR-17).

mod common;
use berth_protocol::credit::cut::*;
use berth_protocol::credit::list::Reader;
use proptest::prelude::*;

fn reader(sizes: &[u32]) -> Reader {
    let mut reader = Reader::new();
    if sizes.is_empty() {
        return reader;
    }
    assert_eq!(reader.list_begin(0, sizes.len() as u32).0, berth_abi::cpu::LIST_OK);
    sizes.iter().for_each(|size| assert!(reader.list_push(*size)));
    reader
}

fn send(id: u64, len: u32) -> Send {
    Send { id, len, ..Send::default() }
}

/// Everything that comes out now.
fn all(cut: &mut impl Cut, credits: &mut Reader) -> Vec<Out> {
    std::iter::from_fn(|| cut.poll(credits)).collect()
}

fn lens(out: &[Out]) -> Vec<u32> {
    out.iter().filter_map(|out| if let Out::Piece(piece) = out { Some(piece.len) } else { None }).collect()
}

/// Runs `test` with both embodiments.
macro_rules! both {
    ($mode:expr, |$cut:ident| $test:block) => {{
        let mut nic = NicCut::<4>::new($mode);
        let $cut = &mut nic;
        $test
        let mut library = LibraryCut::<4, 3>::new($mode);
        let $cut = &mut library;
        $test
    }};
}

#[test]
fn cr_15_an_11_byte_send_against_credits_5_and_6_leaves_as_5_and_6() {
    both!(Mode::Stream, |cut| {
        let mut credits = reader(&[5, 6]);
        cut.post(send(1, 11)).unwrap();
        let out = all(cut, &mut credits);
        let piece = |offset, len, credit, last, remaining| {
            Out::Piece(Piece { id: 1, offset, len, credit, last, immediate: Some(remaining) })
        };
        assert_eq!(out, [piece(0, 5, 0, false, 6), piece(5, 6, 1, true, 0)]);
    });
}

#[test]
fn cr_15_worked_example_of_72_bytes_leaves_as_3_7_22_40() {
    both!(Mode::Stream, |cut| {
        let mut credits = reader(&[3, 7]);
        assert_eq!(cut.post(send(1, 72)), Ok(()));
        assert_eq!(cut.remaining(), 72);
        assert_eq!(lens(&all(cut, &mut credits)), [3, 7]);
        assert_eq!(cut.remaining(), 62);
        assert!(cut.poll(&mut credits).is_none(), "CR-3");
        credits.list_begin(2, 2);
        assert!(credits.list_push(22) && credits.list_push(44));
        assert_eq!(lens(&all(cut, &mut credits)), [22, 40]);
        assert_eq!((cut.remaining(), credits.count()), (0, 0));
    });
}

#[test]
fn decision_1_two_sends_never_share_a_credit() {
    both!(Mode::Stream, |cut| {
        let mut credits = reader(&[100, 100]);
        cut.post(send(1, 10)).unwrap();
        cut.post(send(2, 10)).unwrap();
        assert_eq!(lens(&all(cut, &mut credits)), [10, 10]);
        assert_eq!(credits.count(), 0);
    });
}

#[test]
fn decision_10_zero_length_in_stream_mode_is_local_and_in_message_mode_uses_a_credit() {
    assert_eq!((Mode::Stream.credit_of(0), Mode::Message.credit_of(0)), (None, Some(0)));
    assert_eq!((Mode::Stream.credit_of(7), Mode::Message.credit_of(7)), (Some(7), Some(7)));
    both!(Mode::Stream, |cut| {
        let mut credits = reader(&[9]);
        cut.post(send(1, 0)).unwrap();
        cut.post(send(2, 9)).unwrap();
        let out = all(cut, &mut credits);
        assert_eq!(out[0], Out::Empty(1));
        assert_eq!(lens(&out), [9]);
    });
    both!(Mode::Message, |cut| {
        let mut credits = reader(&[0, 9, 0]);
        for id in 1..=3 {
            cut.post(send(id, 0)).unwrap();
        }
        assert_eq!(lens(&all(cut, &mut credits)), [0, 0, 0]);
        assert_eq!(credits.count(), 0);
    });
}

/// A NOP or a DELAY.
#[test]
fn qp_5_a_local_element_takes_no_credit() {
    for mode in [Mode::Stream, Mode::Message] {
        both!(mode, |cut| {
            let local = |id, len| Send { local: true, ..send(id, len) };
            let mut credits = reader(&[]);
            cut.post(local(1, 0)).unwrap();
            assert_eq!(cut.post(local(2, 1)), Err(Refused::Length));
            cut.post(send(3, 8)).unwrap();
            assert_eq!(all(cut, &mut credits), [Out::Empty(1)]);
        });
    }
}

#[test]
fn qp_3_a_write_takes_a_credit_only_with_an_immediate() {
    both!(Mode::Message, |cut| {
        let mut credits = reader(&[]);
        cut.post(Send { write: true, ..send(1, 1000) }).unwrap();
        cut.post(Send { write: true, immediate: Some(7), ..send(2, 1000) }).unwrap();
        cut.post(send(3, 8)).unwrap();
        assert_eq!(all(cut, &mut credits), [Out::Write { id: 1, credit: None }]);
        credits = reader(&[0, 8]);
        let piece = Piece { id: 3, offset: 0, len: 8, credit: 1, last: true, immediate: None };
        assert_eq!(all(cut, &mut credits), [Out::Write { id: 2, credit: Some(0) }, Out::Piece(piece)]);
        assert_eq!(cut.remaining(), 0);
    });
    both!(Mode::Stream, |cut| {
        assert_eq!(cut.post(Send { write: true, ..send(1, 10) }), Err(Refused::Write));
    });
}

#[test]
fn cr_17_a_message_fills_one_receive_or_fails_locally_and_the_connection_lives_on() {
    both!(Mode::Message, |cut| {
        let mut credits = reader(&[]);
        cut.post(Send { immediate: Some(7), ..send(1, 10) }).unwrap();
        assert!(cut.poll(&mut credits).is_none(), "held until a credit is there");
        credits = reader(&[16, 8, 8]);
        cut.post(send(2, 9)).unwrap();
        cut.post(send(3, 8)).unwrap();
        cut.post(send(4, 3)).unwrap();
        let out = all(cut, &mut credits);
        let piece =
            |id, len, credit, immediate| Out::Piece(Piece { id, offset: 0, len, credit, last: true, immediate });
        // 9 bytes do not fit 8: the credit is kept for the next.
        assert_eq!(out, [piece(1, 10, 0, Some(7)), Out::TooLong(2), piece(3, 8, 1, None), piece(4, 3, 2, None)]);
        assert_eq!(cut.remaining(), 0, "what has failed is not still to be sent");
    });
}

#[test]
fn cr_15_the_library_cuts_ahead_and_what_is_posted_then_is_still_to_be_sent() {
    let mut library = LibraryCut::<4, 3>::new(Mode::Stream);
    let mut credits = reader(&[5, 5, 5, 5]);
    library.post(send(1, 18)).unwrap();
    assert_eq!((library.cut(&mut credits), library.cut(&mut credits)), (3, 0), "three descriptors, then no room");
    assert_eq!((credits.count(), library.remaining()), (1, 18));
    library.post(send(2, 7)).unwrap();
    let Some(Out::Piece(piece)) = library.poll(&mut credits) else {
        panic!();
    };
    assert_eq!((piece.len, piece.immediate), (5, Some(13 + 7)));
}

#[test]
fn cr_17_modes_must_agree() {
    assert_eq!(Mode::Stream.agree(Mode::Stream), Some(Mode::Stream));
    assert_eq!(Mode::Message.agree(Mode::Message), Some(Mode::Message));
    assert_eq!(Mode::Stream.agree(Mode::Message), None);
}

#[test]
fn decision_11_bytes_remaining_saturate_and_stream_mode_refuses_immediates() {
    both!(Mode::Stream, |cut| {
        let mut credits = reader(&[u32::MAX >> 1, 1]);
        assert_eq!(cut.post(Send { immediate: Some(1), ..send(1, 1) }), Err(Refused::Immediate));
        assert_eq!(cut.post(send(1, 1 << 31)), Err(Refused::Length));
        for id in 0..4 {
            cut.post(send(id, (1 << 31) - 1)).unwrap();
        }
        assert_eq!(cut.post(send(9, 1)), Err(Refused::Full));
        assert_eq!(cut.remaining(), u32::MAX, "saturated");
        let Some(Out::Piece(piece)) = cut.poll(&mut credits) else {
            panic!();
        };
        assert_eq!((piece.len, piece.immediate), ((1 << 31) - 1, Some(u32::MAX)));
        let Some(Out::Piece(piece)) = cut.poll(&mut credits) else {
            panic!();
        };
        assert_eq!((piece.len, piece.immediate), (1, Some(u32::MAX)));
    });
}

#[test]
fn cr_16_a_piece_is_read_from_where_the_sender_put_its_bytes() {
    let list = [(0x1000, 10), (0x5000, 0), (0x2000, 5), (0x9000, 100)];
    let parts = |offset, len| gather(&list, offset, len).collect::<Vec<_>>();
    assert_eq!(parts(0, 10), [(0x1000, 10)]);
    assert_eq!(parts(8, 10), [(0x1008, 2), (0x2000, 5), (0x9000, 3)]);
    assert_eq!(parts(15, 100), [(0x9000, 100)]);
    assert_eq!(parts(20, 1000), [(0x9005, 95)]);
    assert_eq!(parts(200, 1), []);
}

proptest! {
    #![proptest_config(common::config(256))]

    /// Whatever is posted and whenever credits come: both embodiments give the same pieces, and
    /// the pieces are the sends, in order, each within its credit.
    #[test]
    fn cr_15_library_and_card_cut_alike(
        message in any::<bool>(),
        ops in prop::collection::vec((0u8..4, 0u32..200, any::<bool>()), 0..200),
    ) {
        let mode = if message { Mode::Message } else { Mode::Stream };
        let mut nic = NicCut::<4>::new(mode);
        let mut library = LibraryCut::<4, 3>::new(mode);
        let mut credits = [<Reader>::new(), Reader::new()];
        let mut sizes = Vec::new();
        let mut posted = Vec::new();
        let mut out = Vec::new();
        for (op, arg, flag) in ops {
            match op {
                0 => {
                    let (id, immediate) = (posted.len() as u64, flag.then_some(arg));
                    let send = Send { id, len: arg, immediate, write: arg % 3 == 1, local: false };
                    let result = nic.post(send);
                    // The library has more room, for what it has cut already: keep them alike.
                    if result.is_ok() {
                        prop_assert_eq!(library.post(send), Ok(()));
                        posted.push(send);
                    }
                }
                1 => {
                    for credits in &mut credits {
                        let first = sizes.len() as u32;
                        if credits.count() == 0 && credits.list_begin(first, 2).0 == berth_abi::cpu::LIST_OK {
                            credits.list_push(arg);
                            credits.list_push(arg / 2);
                        }
                    }
                    if credits[0].expected() as usize != sizes.len() && credits[1].expected() == credits[0].expected() {
                        sizes.extend([arg, arg / 2]);
                    }
                }
                _ => loop {
                    let one = nic.poll(&mut credits[0]);
                    prop_assert_eq!(one, library.poll(&mut credits[1]));
                    prop_assert_eq!(nic.remaining(), library.remaining());
                    let Some(one) = one else {
                        break;
                    };
                    out.push(one);
                },
            }
        }
        let mut place = (0, 0);
        for (i, one) in out.iter().enumerate() {
            let send: &Send = &posted[place.0];
            match one {
                Out::Piece(piece) => {
                    prop_assert_eq!((piece.id, piece.offset), (place.0 as u64, place.1));
                    prop_assert!(piece.len <= sizes[piece.credit as usize]);
                    prop_assert!(!message || (piece.last && piece.len == send.len && piece.immediate == send.immediate));
                    place.1 += piece.len;
                    prop_assert_eq!(piece.last, place.1 == send.len);
                    if piece.last {
                        place = (place.0 + 1, 0);
                    }
                }
                Out::Empty(id) => {
                    prop_assert!(!message && send.len == 0 && *id == place.0 as u64);
                    place.0 += 1;
                }
                Out::Write { id, credit } => {
                    prop_assert!(message && send.write && *id == place.0 as u64);
                    prop_assert_eq!(credit.is_some(), send.immediate.is_some());
                    place.0 += 1;
                }
                Out::TooLong(id) => {
                    prop_assert!(message && *id == place.0 as u64, "{i}");
                    place.0 += 1;
                }
            }
        }
    }
}
