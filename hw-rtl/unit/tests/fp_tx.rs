// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's half of the fast path: berth_fp_tx with all around it played (`tx/mod.rs`): host memory, queues,
//! translation, packet RAM, MAC, and the peer at the other end of the wire.
#![cfg(feature = "fastpath")]

#[expect(dead_code, reason = "scenarios.rs uses all of it")]
mod tx;

use berth_abi::card::{FAST_PROBE, MAX_DEPTH};
use berth_abi::cpu::{LIST_BAD, LIST_EARLY};
use berth_abi::rows::event::{
    BadWqe, EVENT_BAD_WQE, EVENT_LIST, EVENT_NAK, EVENT_NO_MEMORY, EVENT_RNR, EVENT_SEND_INDEX, EVENT_SEND_QUEUE, List,
    Nak, NoMemory,
};
use berth_abi::rows::{LAYOUT_NUMBER, LAYOUT_TAG, send};
use berth_abi::status::{WC_BAD_WQE, WC_BIND, WC_FLUSHED, WC_OK, WC_REMOTE_ERROR, WC_TOO_LONG};
use berth_abi::wqe::{SEND_IMMEDIATE, SEND_INLINE, SEND_INVALIDATE, SEND_PUSH};
use berth_random::{Rng, cases, mix, seed};
use tx::peer::psn_of;
use tx::{Atomic, Bench, Bind, DENIED, Element, Settings, Setup, random_element, widths};

/// Elements of `len` bytes, one context each, one after the other in memory.
fn row_of(count: u32, len: u32) -> Vec<Element> {
    (0..count).map(|i| Element::plain(0x10_0000 + u64::from(i) * u64::from(len.max(64)), len)).collect()
}

#[test]
fn a_doorbell_becomes_a_frame_and_its_acknowledgement_a_completion() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 1);
        bench.connect(3, Settings::default());
        bench.credits(3, &[4096]);
        bench.post(3, &row_of(1, 100), false);
        bench.finish(20_000);
        assert_eq!(bench.statuses(3), [WC_OK]);
        assert_eq!(bench.frames_of(3).len(), 1);
        assert_eq!(bench.acks_counted, [1, 0]);
    }
}

/// Contexts are kept for all SGEs that WQEs under way might have: not for good.
#[test]
fn one_doorbell_fetches_as_many_elements_as_there_are_places_for() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 1);
        bench.connect(3, Settings::default());
        bench.silent(3);
        bench.credits(3, &[64; 64]);
        bench.post(3, &row_of(64, 64), false);
        bench.run(4_000);
        assert_eq!(bench.frames_of(3).len(), 64, "nothing was acknowledged");
    }
}

/// An acknowledgement is asked for with each half of the window, and with the last packet of a piece; with no other.
#[test]
fn acknowledgements_are_asked_for_at_each_half_of_the_window_and_at_the_end() {
    for width in widths() {
        for (window, sizes, wanted) in [
            (64, &[60 * 256][..], &[32, 60][..]),
            (64, &[256 * 2 + 1, 256 * 31, 256 * 20], &[3, 34, 54]),
            (65, &[50 * 256 - 1], &[32, 50]),
            (130, &[120 * 256], &[65, 120]),
        ] {
            let mut bench = Bench::new(width, Setup::default(), 2);
            bench.connect(1, Settings { log2_mtu: 8, window, ..Settings::default() });
            bench.credits(1, sizes);
            bench.post(1, &row_of(1, sizes.iter().sum()), false);
            bench.finish(40_000);
            let asks = |n: &usize| bench.frames_of(1)[n - 1].bytes[50] >> 7 == 1;
            let asked: Vec<_> = (1..=bench.frames_of(1).len()).filter(asks).collect();
            assert_eq!(asked, wanted, "window {window}, {sizes:?}");
        }
    }
}

#[test]
fn cr_2_a_send_is_cut_to_credits_and_cr_3_waits_without_one() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 2);
        bench.connect(1, Settings { log2_mtu: 8, ..Settings::default() });
        bench.credits(1, &[3, 7]);
        bench.post(1, &row_of(1, 1500), false);
        bench.run(3_000);
        assert_eq!(bench.frames_of(1).len(), 2, "3 and 7 bytes");
        assert!(bench.statuses(1).is_empty());
        bench.credits(1, &[1000, 5000]);
        bench.finish(20_000);
        assert_eq!(bench.statuses(1), [WC_OK]);
        assert_eq!(bench.frames_of(1).len(), 2 + 4 + 2, "1000 bytes in 4 packets, 490 in 2");
        let [credits, held] = bench.credits_counted;
        assert!(credits == 4 && (1..10).contains(&held), "{credits} credits, waited for {held} times");
    }
}

#[test]
fn pc_2_blocks_are_asked_for_ahead_and_one_that_is_missing_stops_nobody_else() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 3_000, ..Setup::default() }, 3);
        for q in [1, 2] {
            bench.connect(q, Settings::default());
            bench.credits(q, &[65_536; 4]);
        }
        bench.evict(0x50_0000, 0x8000);
        bench.post(1, &[Element::plain(0x50_0000, 0x8000)], false);
        bench.run(1_000);
        assert_eq!(bench.frames_of(1).len(), 0);
        bench.post(2, &row_of(4, 1000), false);
        bench.run(1_900);
        assert_eq!(bench.frames_of(2).len(), 4, "the other QP goes on");
        bench.finish(40_000);
        assert_eq!((bench.statuses(1), bench.frames_of(1).len()), (vec![WC_OK], 8));
    }
}

#[test]
fn pc_2_what_is_held_ahead_is_bounded_in_bytes_however_small_the_blocks_are() {
    for width in widths() {
        for (va, len, count, most) in
            [(0x10_0000, 0x1_0000, 4, 4 * 4096), (0x10_0123, 0x1_0000, 4, 5 * 4096), (0x10_0000, 64, 64, 32 * 64)]
        {
            let mut bench = Bench::new(width, Setup { round_trip: 500, ..Setup::default() }, 3);
            bench.connect(1, Settings { ahead: 4, log2_block: 12, ..Settings::default() });
            bench.credits(1, &[0x1_0000; 64]);
            let posted: Vec<_> = (0..count).map(|i| Element::plain(va + i * 0x1_0000, len)).collect();
            bench.post(1, &posted, false);
            bench.finish(60_000);
            assert!(
                (most / 2..=most).contains(&bench.memory.peak),
                "{len} bytes at {va:#x}: {} bytes held",
                bench.memory.peak
            );
        }
    }
}

#[test]
fn decision_9_a_message_longer_than_its_credit_fails_and_the_next_one_takes_the_credit() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 4);
        bench.connect(5, Settings { message: true, ..Settings::default() });
        bench.credits(5, &[100, 0, 300]);
        bench.post(
            5,
            &[
                Element::plain(0x1000, 101),
                Element::plain(0x2000, 100),
                Element::plain(0x3000, 0),
                Element::plain(0x4000, 7),
            ],
            false,
        );
        bench.finish(20_000);
        assert_eq!(bench.statuses(5), [WC_TOO_LONG, WC_OK, WC_OK, WC_OK]);
        assert_eq!(bench.frames_of(5).len(), 3);
    }
}

/// By the queue and with the doorbell, as long as that holds it; also in packets that go again.
#[test]
fn qp_3_an_immediate_goes_with_the_last_packet_of_a_message() {
    goes_with_the_last_packet(|element, word| Element { immediate: Some(word), ..element });
}

/// Likewise.
#[test]
fn qp_4_a_key_to_invalidate_goes_with_the_last_packet_of_a_message() {
    goes_with_the_last_packet(|element, word| Element { invalidate: Some(word), ..element });
}

/// Each kind of peer in message mode: with and without selective repeat, and one that knows no credit lists.
fn peers() -> [Settings; 3] {
    let berth = || Settings { message: true, timeout: 300, ..Settings::default() };
    [berth(), Settings { selective: false, ..berth() }, Settings { timeout: 300, ..Settings::foreign() }]
}

/// In front of every other message `with` puts something.
fn goes_with_the_last_packet(with: impl Fn(Element, u32) -> Element) {
    let list = |n: u64| (0..n).map(|i| (0x5_0000 + 0x1000 * i, 700)).collect::<Vec<_>>();
    let kinds = [
        Element::plain(0x1000, 3000),
        Element::plain(0, 0),
        Element::inline(0),
        Element::inline(24),
        Element::inline(25),
        Element::inline(40),
        Element::inline(64),
        Element { sges: list(2), push: true, ..Element::default() },
        Element { sges: list(6), ..Element::default() },
    ];
    for width in widths() {
        for doorbell in [false, true] {
            for settings in peers() {
                let mut bench = Bench::new(width, Setup { loss: 0.2, ..Setup::default() }, 7);
                let foreign = settings.foreign;
                bench.connect(5, settings);
                if !foreign {
                    bench.credits(5, &[8192; 18]);
                }
                for (element, n) in kinds.iter().zip(0..) {
                    let element = with(element.clone(), 0x8000_0001 + n);
                    bench.post(5, &[element], doorbell);
                    bench.run(50);
                    bench.post(5, &[kinds[n as usize].clone()], doorbell);
                }
                bench.finish(400_000);
                assert_eq!(bench.statuses(5), [WC_OK; 18]);
            }
        }
    }
}

/// Towards a Berth each packet has the RETH of the whole, so that it can be placed alone; towards others the first one has it.
/// Only those with an immediate take a credit, of any size.
#[test]
fn qp_3_a_write_says_where_it_goes() {
    let list = |n: u64| (0..n).map(|i| (0x5_0000 + 0x1000 * i, 700)).collect::<Vec<_>>();
    let kinds = [
        Element::plain(0x1000, 30_000),
        Element::plain(0x1000, 8192),
        Element::plain(0, 0),
        Element::inline(0),
        Element::inline(23),
        Element::inline(40),
        Element::inline(64),
        Element { sges: list(1), push: true, ..Element::default() },
        Element { sges: list(6), ..Element::default() },
    ];
    for width in widths() {
        for (doorbell, settings) in [false, true].into_iter().flat_map(|bell| peers().map(|peer| (bell, peer))) {
            let mut bench = Bench::new(width, Setup { loss: 0.2, ..Setup::default() }, 7);
            let foreign = settings.foreign;
            bench.connect(5, settings);
            if !foreign {
                bench.credits(5, &[1, 0, 5, 9, 1, 1, 1, 1, 1]);
            }
            for (element, n) in kinds.iter().zip(1..) {
                for immediate in [None, Some(0x8000_0001 + n)] {
                    let remote = Some((u64::MAX - 0x10_0000 * u64::from(n), 0xabcd_ef00 ^ n));
                    bench.post(5, &[Element { immediate, remote, ..element.clone() }], doorbell);
                    bench.run(50);
                }
            }
            bench.finish(400_000);
            assert_eq!(bench.statuses(5), [WC_OK; 18]);
        }
    }
}

/// What is sent again of a WRITE must not be placed over what a later one has written.
#[test]
fn qp_3_a_write_waits_until_those_that_it_overlaps_are_acknowledged() {
    let write = |va, len| Element { remote: Some((va, 7)), ..Element::plain(0x1000, len) };
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(5, Settings { message: true, ..Settings::default() });
        bench.silent(5);
        bench.post(5, &[write(0, 8000), write(8000, 100), write(7999, 2), write(9000, 1)], false);
        let sent = |bench: &mut Bench| {
            bench.run(3000);
            bench.frames_of(5).len()
        };
        assert_eq!(sent(&mut bench), 3, "the third overlaps both, and the fourth comes after it");
        bench.answer(5, 1, 0x1f, None);
        assert_eq!((sent(&mut bench), bench.statuses(5).len()), (3, 1));
        bench.answer(5, 2, 0x1f, None);
        assert_eq!((sent(&mut bench), bench.statuses(5).len()), (5, 2));
    }
}

/// The last acknowledgement in the window says how many messages may begin, whether they are more or fewer than before; one
/// may when nothing is on its way. What comes before the first count, or behind one that is not given, is held by the window.
#[test]
fn qp_7_credit_counts_of_a_foreign_peer_hold_sends() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 9);
        bench.connect(7, Settings { window: 4, first_psn: 0xff_fffe, ..Settings::foreign() });
        bench.silent(7);
        bench.post(7, &row_of(16, 100), false);
        quiet(&mut bench);
        assert_eq!(psns(&bench).len(), 4, "no count is known");
        // The packet that is acknowledged, the code of the count, messages that have come; packets that have been sent then.
        for (n, code, msn, sent) in [
            (0, 1, 1, 4),
            (1, 31, 2, 6),
            (3, 2, 4, 6),
            (3, 4, 4, 8),
            (5, 0, 6, 8),
            // It is behind the window.
            (2, 31, 3, 8),
            (7, 0, 8, 9),
            (8, 1, 9, 10),
            (9, 2, 10, 12),
            (11, 0, 12, 13),
            (12, 0, 0xff_fffc, 14),
            (13, 7, 14, 16),
        ] {
            let psn = (n as u32).wrapping_sub(2) & 0xff_ffff;
            bench.answer_counted(7, psn, code, msn, None);
            quiet(&mut bench);
            assert_eq!(psns(&bench).len(), sent, "after packet {n}");
        }
        bench.answer_counted(7, 13, 0, 16, None);
        bench.finish(3_000);
        assert_eq!(bench.statuses(7), [WC_OK; 16]);
    }
}

/// Only what uses a receive is held, when it begins; all messages count.
#[test]
fn qp_7_credit_counts_of_a_foreign_peer_are_of_messages() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 9);
        bench.connect(7, Settings { log2_mtu: 8, ..Settings::foreign() });
        bench.silent(7);
        let write = |immediate| Element { remote: Some((0x1000, 7)), immediate, ..Element::plain(0x1000, 600) };
        let send = || Element::plain(0x1000, 600);
        bench.post(7, &[send()], false);
        quiet(&mut bench);
        bench.answer_counted(7, 2, 3, 1, None);
        quiet(&mut bench);
        // Three messages may begin that use receives.
        bench.post(7, &[send(), write(None), write(Some(1)), write(None), send(), write(None)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench).len(), 3 + 3 * 4, "a WRITE goes on, a SEND does not");
        bench.answer_counted(7, 5, 3, 2, None);
        quiet(&mut bench);
        assert_eq!(psns(&bench).len(), 3 + 3 * 4);
        bench.answer_counted(7, 5, 4, 2, None);
        quiet(&mut bench);
        assert_eq!(psns(&bench).len(), 3 + 3 * 6);
        bench.answer_counted(7, 20, 4, 7, None);
        bench.finish(3_000);
    }
}

/// An immediate, a WRITE, READ or atomic in a stream, one of these to a peer that takes none; something where nothing may stand;
/// what sends nothing, with something to send.
#[test]
fn qp_3_what_stands_in_front_of_the_data_is_checked() {
    let plain = || Element::plain(0x1000, 10);
    let immediate = || Element { immediate: Some(7), ..plain() };
    let invalidate = || Element { invalidate: Some(7), ..plain() };
    let write = || Element { remote: Some((1, 2)), ..plain() };
    let (stream, message) = (Settings::default(), Settings { message: true, ..Settings::default() });
    let read = || Element { source: Some((1, 2)), ..plain() };
    let nop = || Element { nothing: true, ..Element::default() };
    let delay = || Element { delay: Some(1), ..Element::default() };
    let bind = || Element { bind: Some(Bind::random(&mut Rng(3))), ..Element::default() };
    let alone = Settings { remote: false, ..message.clone() };
    let unread = Settings { reads: 0, ..message.clone() };
    let go_back = Settings { selective: false, ..message.clone() };
    // Bits of a word that are wrong.
    let cases = [
        (&stream, immediate(), (0, 0)),
        (&stream, write(), (0, 0)),
        (&alone, write(), (0, 0)),
        (&message, write(), (3, 1 << 32)),
        (&message, immediate(), (3, 1)),
        (&message, immediate(), (2, 1 << 63)),
        (&stream, invalidate(), (0, 0)),
        (&message, invalidate(), (3, 1)),
        (&message, invalidate(), (2, 1 << 63)),
        (&message, invalidate(), (0, u64::from(SEND_IMMEDIATE) << 8)),
        (&message, write(), (0, u64::from(SEND_INVALIDATE) << 8)),
        (&message, read(), (0, u64::from(SEND_INVALIDATE) << 8)),
        (&stream, nop(), (0, u64::from(SEND_INVALIDATE) << 8)),
        (&message, write(), (0, 1 << 14)),
        (&message, write(), (0, 6 << 16)),
        (&stream, read(), (0, 0)),
        (&alone, read(), (0, 0)),
        (&unread, read(), (0, 0)),
        (&go_back, read(), (0, 0)),
        (&message, read(), (3, 1 << 32)),
        (&message, read(), (0, 6 << 16)),
        (&message, read(), (0, u64::from(SEND_PUSH) << 8)),
        (&message, read(), (0, u64::from(SEND_INLINE) << 8)),
        (&message, read(), (0, u64::from(SEND_IMMEDIATE) << 8)),
        (&stream, swap(0x1000, 8), (0, 0)),
        (&alone, swap(0x1000, 8), (0, 0)),
        (&unread, add(0x1000, 8), (0, 0)),
        (&go_back, add(0x1000, 8), (0, 0)),
        // Of another length than 8, or to a wrong address; what stands behind that, too much or too many.
        (&message, swap(0x1000, 7), (0, 0)),
        (&message, add(0x1000, 16), (0, 0)),
        (&message, add(0x1000, 8), (0, 1 << 32)),
        (&message, swap(0x1000, 8), (2, 1)),
        (&message, add(0x1000, 8), (2, 4)),
        (&message, swap(0x1000, 8), (3, 1 << 32)),
        (&message, add(0x1000, 8), (5, 1)),
        (&message, add(0x1000, 8), (5, 1 << 63)),
        (&message, swap(0x1000, 8), (7, 1 << 32)),
        (&message, swap(0x1000, 8), (0, 7 << 16)),
        (&message, swap(0x1000, 8), (0, u64::from(SEND_PUSH) << 8)),
        (&message, add(0x1000, 8), (0, u64::from(SEND_INLINE) << 8)),
        (&message, add(0x1000, 8), (0, u64::from(SEND_IMMEDIATE) << 8)),
        (&message, swap(0x1000, 8), (0, u64::from(SEND_INVALIDATE) << 8)),
        (&stream, nop(), (0, 1 << 32)),
        (&message, nop(), (0, 1 << 16)),
        (&stream, nop(), (0, u64::from(SEND_PUSH) << 8)),
        (&message, delay(), (0, u64::from(SEND_INLINE) << 8)),
        (&message, delay(), (0, u64::from(SEND_IMMEDIATE) << 8)),
        (&stream, delay(), (0, 1 << 63)),
        (&stream, bind(), (0, u64::from(SEND_PUSH) << 8)),
        (&message, bind(), (0, u64::from(SEND_INLINE) << 8)),
        (&message, bind(), (0, u64::from(SEND_IMMEDIATE) << 8)),
        (&message, bind(), (0, 1 << (16 + 7))),
        (&stream, bind(), (0, 1 << (16 + 3))),
        (&stream, bind(), (0, 1 << 31)),
    ];
    for width in widths() {
        for (settings, element, (at, bits)) in &cases {
            for doorbell in [false, true] {
                let mut words = element.wqe(7 << 32);
                words[*at] ^= bits;
                let mut bench = Bench::new(width, Setup::default(), 8);
                bench.connect(7, (*settings).clone());
                bench.credits(7, &[4096; 4]);
                // The model takes no such element: for it this is a plain one.
                bench.post(7, &[Element { words: Some(words), ..plain() }], doorbell);
                bench.run(4_000);
                assert_eq!(
                    bench.take_events(),
                    [(EVENT_BAD_WQE, 7, BadWqe { status: WC_BAD_WQE.into() }.word())],
                    "{words:x?}"
                );
                assert!(bench.frames_of(7).is_empty(), "{words:x?}");
            }
        }
    }
}

/// A READ of so many bytes into memory at `va`.
fn read(va: u64, len: u32) -> Element {
    Element { source: Some((0x7_0000_0123, 0xabcd_ef00)), ..Element::plain(va, len) }
}

/// A compare-and-swap whose answer goes to `len` bytes at `va`, which are to be 8.
fn swap(va: u64, len: u32) -> Element {
    let (operand, compare) = (0x0123_4567_89ab_cdef, Some(0xfedc_ba98_7654_3210));
    let atomic = Some(Atomic { va: 0xffff_fff0_0102_0308, key: 0x7654_3210, operand, compare });
    Element { atomic, ..Element::plain(va, len) }
}

/// A fetch-and-add, likewise.
fn add(va: u64, len: u32) -> Element {
    let atomic = Some(Atomic { va: 0x10, key: 0xabcd_ef00, operand: 0x8000_0000_0000_0001, compare: None });
    Element { atomic, ..Element::plain(va, len) }
}

/// A fence lets READs and atomics before it complete first; without one the SEND overtakes the answer.
#[test]
fn qp_3_a_fence_waits_until_reads_are_answered() {
    for (width, fence) in widths().into_iter().flat_map(|width| [false, true].map(|fence| (width, fence))) {
        for asks in [swap(0x1000, 8), add(0x1000, 8)] {
            let mut bench = Bench::new(width, Setup::default(), 7);
            bench.connect(7, Settings { message: true, ..Settings::default() });
            bench.silent(7);
            bench.credits(7, &[100; 3]);
            bench.post(7, &[asks, Element { fence, ..Element::plain(0, 100) }, Element::plain(0, 50)], false);
            quiet(&mut bench);
            assert_eq!(psns(&bench), if fence { &[0][..] } else { &[0, 1, 2] });
            bench.answer_asked(7, 0);
            quiet(&mut bench);
            assert_eq!(psns(&bench), [0, 1, 2]);
            bench.answer(7, 2, 0x1f, None);
            bench.finish(3_000);
            assert_eq!(bench.statuses(7), [WC_OK; 3]);
        }
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, log2_mtu: 8, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[100; 3]);
        bench.post(7, &[read(0x1000, 500), Element { fence, ..Element::plain(0, 100) }, Element::plain(0, 50)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench), if fence { &[0, 1][..] } else { &[0, 1, 2, 3] });
        for psn in [0, 1] {
            let bytes = bench.bytes_for(7, psn);
            bench.answer_read(7, psn, &bytes);
        }
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0, 1, 2, 3]);
        bench.answer(7, 3, 0x1f, None);
        bench.finish(3_000);
        assert_eq!(bench.statuses(7), [WC_OK; 3]);
    }
}

/// A NOP completes in its turn, and so does a DELAY (QP-5), which holds what is behind it.
#[test]
fn qp_5_a_delay_holds_packets_and_a_nop_holds_nothing() {
    const TIME: u32 = 100;
    for (width, message) in widths().into_iter().flat_map(|width| [false, true].map(|message| (width, message))) {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message, ..Settings::default() });
        bench.credits(7, &[100; 4]);
        let (nop, delay) =
            (Element { nothing: true, ..Element::default() }, Element { delay: Some(TIME), ..Element::default() });
        let send = || Element::plain(0, 100);
        bench.post(7, &[nop.clone(), send(), nop.clone(), send(), delay, send(), nop, send()], false);
        bench.finish(20_000);
        assert_eq!(bench.statuses(7), [WC_OK; 8]);
        let at: Vec<_> = bench.frames_of(7).iter().map(|frame| frame.at).collect();
        let held = at[2] - at[1];
        assert!(at[1] - at[0] < 300 && at[3] - at[2] < 300, "{at:?}");
        assert!((64 * u64::from(TIME) - 400..64 * u64::from(TIME) + 900).contains(&held), "{held} clocks");
        assert_eq!(bench.held(7), NOTHING);
    }
}

/// A BIND is firmware's, when all before it has left; what is behind it, too, waits for that.
#[test]
fn qp_4_a_bind_holds_what_is_behind_it_until_firmware_has_done_it() {
    for (width, doorbell) in widths().into_iter().flat_map(|width| [false, true].map(|doorbell| (width, doorbell))) {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, ..Settings::default() });
        bench.credits(7, &[100; 4]);
        bench.deaf = true;
        let bind = || Element { bind: Some(Bind::random(&mut Rng(3))), ..Element::default() };
        let send = || Element::plain(0, 100);
        bench.post(7, &[send(), bind(), bind(), send()], doorbell);
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0]);
        bench.deaf = false;
        bench.finish(20_000);
        assert_eq!((bench.statuses(7), bench.held(7)), (vec![WC_OK; 4], NOTHING));
        // Nothing waits now, and the row says so.
        assert_eq!(bench.read(7, send::BIND) & send::Bind { waits: 1, ..send::Bind::default() }.word(), 0);
        // One that firmware does not do ends with the QP.
        bench.deaf = true;
        bench.post(7, &[bind(), send()], false);
        quiet(&mut bench);
        bench.end(7, WC_BIND);
        bench.run(500);
        assert_eq!(bench.statuses(7)[4..], [WC_BIND, WC_FLUSHED]);
    }
}

/// An element that is not signalled has a completion only if it fails.
#[test]
fn qp_2_an_element_that_is_not_signalled_completes_in_silence() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, ..Settings::default() });
        bench.credits(7, &[100; 8]);
        let quiet = |len| Element { quiet: true, ..Element::plain(0, len) };
        bench.post(
            7,
            &[quiet(100), quiet(5), Element::plain(0, 10), quiet(101), quiet(3), Element::plain(0, 1)],
            false,
        );
        bench.finish(20_000);
        let wanted = [WC_OK, WC_OK, WC_OK, WC_TOO_LONG, WC_OK, WC_OK];
        assert_eq!((bench.statuses(7), bench.held(7)), (wanted.to_vec(), NOTHING));
    }
}

/// Whether the peer is foreign, elements come with doorbells; what is lost, and how late what is not may be.
const READERS: [(bool, bool, f64, u64); 7] = [
    (false, false, 0.0, 0),
    (false, true, 0.0, 0),
    (false, false, 0.2, 0),
    (false, true, 0.1, 3_000),
    (true, true, 0.0, 0),
    (true, false, 0.2, 0),
    (true, true, 0.1, 3_000),
];

/// QP 5 may send eight messages and read.
fn connect_reader(bench: &mut Bench, foreign: bool) {
    let peer = if foreign { Settings::foreign() } else { Settings { message: true, ..Settings::default() } };
    bench.connect(5, Settings { log2_mtu: 10, timeout: 300, log2_block: 12, ..peer });
    if !foreign {
        bench.credits(5, &[8192; 8]);
    }
}

/// Each packet asks for one of the answer, and each part of the answer goes where the list says, whatever becomes of packets
/// and answers on their way.
#[test]
fn qp_3_a_read_is_placed_along_its_list() {
    let list =
        |n: u64, len: u32| Element { sges: (0..n).map(|i| (0x5_0f00 + 0x1100 * i, len)).collect(), ..read(0, 0) };
    let kinds = [
        read(0x1000, 1),
        read(0x1fff, 30_000),
        read(0x1000, 8192),
        read(0, 0),
        list(1, 700),
        list(2, 3),
        list(6, 700),
        list(6, 1),
    ];
    for width in widths() {
        for (foreign, doorbell, loss, late) in READERS {
            let setup = Setup { loss, late, twice: loss, stalls: loss, ..Setup::default() };
            let mut bench = Bench::new(width, setup, 7);
            connect_reader(&mut bench, foreign);
            for (element, n) in kinds.iter().zip(0..) {
                bench.post(5, &[element.clone(), Element::plain(0x1000 * n, 100)], doorbell);
                bench.run(50);
            }
            bench.finish(400_000);
            assert_eq!((bench.statuses(5), bench.bad_answers), (vec![WC_OK; 16], 0));
            bench.run(100);
            assert_eq!(bench.held(5), NOTHING);
        }
    }
}

/// One packet asks for an atomic, and what stood there goes where the list says, in the order of the host's bytes.
#[test]
fn qp_3_what_an_atomic_finds_is_placed_along_its_list() {
    let along = |element: Element, lens: &[u32]| {
        let sges = lens.iter().zip(0..).map(|(len, i)| (0x5_0ffd + 0x1100 * i, *len)).collect();
        Element { sges, ..element }
    };
    let kinds = [
        swap(0x1000, 8),
        add(0x1003, 8),
        // Over a block's end.
        swap(0x1ffd, 8),
        add(0x1ff9, 8),
        along(swap(0, 0), &[3, 5]),
        along(add(0, 0), &[0, 8]),
        along(swap(0, 0), &[7, 0, 0, 1, 0]),
        along(add(0, 0), &[1, 2, 1, 3, 1]),
    ];
    for width in widths() {
        for (foreign, doorbell, loss, late) in READERS {
            let setup = Setup { loss, late, twice: loss, stalls: loss, ..Setup::default() };
            let mut bench = Bench::new(width, setup, 7);
            connect_reader(&mut bench, foreign);
            for (element, n) in kinds.iter().zip(0..) {
                bench.post(5, &[element.clone(), read(0x9000, 9), Element::plain(0x1000 * n, 100)], doorbell);
                bench.run(50);
            }
            bench.finish(400_000);
            assert_eq!((bench.statuses(5), bench.bad_answers), (vec![WC_OK; 24], 0));
            bench.run(100);
            assert_eq!(bench.held(5), NOTHING);
        }
    }
}

/// An atomic counts among the READs that wait for answers, and only its own answer completes it. One whose answer is lost
/// is asked for again, in the same words and alone; its answer is taken once.
#[test]
fn qp_3_an_atomic_is_complete_when_it_is_answered() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[100]);
        let five = [swap(0x1000, 8), read(0x2000, 8), add(0x3000, 8), add(0x4000, 8), swap(0x5000, 8)];
        bench.post(7, &five, false);
        bench.post(7, &[Element::plain(0, 100)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0, 1, 2, 3], "no more are taken at a time");
        bench.answer(7, 3, 0x1f, None);
        quiet(&mut bench);
        assert_eq!(bench.read(7, send::UNA), 0, "an acknowledgement is no answer");
        for psn in [1, 2, 3] {
            bench.answer_asked(7, psn);
            quiet(&mut bench);
        }
        assert_eq!((bench.statuses(7).len(), bench.read(7, send::UNA)), (0, 0));
        assert_eq!(psns(&bench)[4..], [0]);
        let [first, again] = [0, 4].map(|i| &bench.frames_of(7)[i].bytes);
        assert_eq!(first, again);
        for _ in 0..2 {
            bench.answer_asked(7, 0);
            quiet(&mut bench);
        }
        assert_eq!(psns(&bench)[5..], [4, 5]);
        bench.answer(7, 5, 0x1f, None);
        quiet(&mut bench);
        assert_eq!(bench.statuses(7).len(), 4, "it is not answered");
        bench.answer_asked(7, 4);
        bench.finish(3_000);
        assert_eq!((bench.statuses(7), bench.bad_answers), (vec![WC_OK; 6], 0));
    }
}

/// An atomic is not answered with a READ's data, nor the other way round, and neither a SEND.
#[test]
fn qp_3_a_read_and_an_atomic_have_answers_of_their_own_kind() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[100]);
        bench.post(7, &[read(0x1000, 8), swap(0x2000, 8), Element::plain(0, 100), add(0x3000, 8)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0, 1, 2, 3]);
        for psn in [0, 2, 4] {
            bench.answer_atomic(7, psn, 0x1122_3344_5566_7788);
        }
        for psn in [1, 3] {
            let bytes = bench.bytes_for(7, psn);
            bench.answer_read(7, psn, &bytes);
            bench.answer_read(7, psn, &bytes[..7]);
        }
        bench.run(600);
        assert_eq!((bench.bad_answers, bench.read(7, send::UNA)), (7, 0));
        for psn in [0, 1, 3] {
            bench.answer_asked(7, psn);
        }
        bench.finish(3_000);
        assert_eq!((bench.statuses(7), bench.bad_answers), (vec![WC_OK; 4], 7));
        // They are old now.
        bench.answer_atomic(7, 0, 0);
        bench.answer_read(7, 1, &[0; 8]);
        bench.run(300);
        assert_eq!(bench.bad_answers, 7);
    }
}

/// As many packets as were agreed on wait for answers; one that is acknowledged waits still, and so does what is behind it.
#[test]
fn qp_3_a_read_is_complete_when_it_is_answered() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, reads: 3, log2_mtu: 8, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[100]);
        bench.post(7, &[read(0x1000, 1024), Element::plain(0, 100)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0, 1, 2], "no more are taken at a time");
        // Those before it are not answered: they count still.
        let answer = |bench: &mut Bench, psn| {
            let bytes = bench.bytes_for(7, psn);
            bench.answer_read(7, psn, &bytes);
            quiet(bench);
        };
        answer(&mut bench, 1);
        assert_eq!(psns(&bench), [0, 1, 2]);
        answer(&mut bench, 0);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 4]);
        bench.answer(7, 4, 0x1f, None);
        quiet(&mut bench);
        assert_eq!((bench.statuses(7).len(), bench.read(7, send::UNA)), (0, 2));
        for psn in [3, 2] {
            answer(&mut bench, psn);
        }
        bench.finish(3_000);
        assert_eq!((bench.statuses(7), bench.bad_answers), (vec![WC_OK; 2], 0));
    }
}

/// An answer is taken once; one that nobody asked for, or of another length, is counted and changes nothing.
#[test]
fn qp_3_only_what_was_asked_for_is_written() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, log2_mtu: 8, first_psn: 0xff_fffe, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[100]);
        bench.post(7, &[read(0x1000, 300), Element::plain(0, 100), read(0x2000, 0)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0xff_fffe, 0xff_ffff, 0, 1]);
        let bytes = |bench: &Bench, psn| bench.bytes_for(7, psn);
        let (first, second) = (bytes(&bench, 0xff_fffe), bytes(&bench, 0xff_ffff));
        assert_eq!((first.len(), second.len()), (256, 44));
        // Of no packet, a SEND's, too long, too short, something for nothing.
        for (n, (psn, bytes)) in [
            (2, &first[..]),
            (0, &first[..100]),
            (0xff_ffff, &first[..45]),
            (0xff_fffe, &first[..255]),
            (1, &first[..1]),
        ]
        .into_iter()
        .enumerate()
        {
            bench.answer_read(7, psn, bytes);
            bench.run(300);
            assert_eq!((bench.bad_answers, bench.read(7, send::UNA)), (n as u32 + 1, 0xff_fffe));
        }
        for _ in 0..3 {
            bench.answer_read(7, 0xff_ffff, &second);
            bench.answer_read(7, 0xff_fffe, &first);
        }
        bench.run(600);
        assert_eq!(bench.read(7, send::UNA), 0);
        // What is before the window is old.
        bench.answer_read(7, 0xff_ffff, &second);
        bench.answer_read(7, 0xff_fff0, &second);
        bench.answer_read(7, 1, &[]);
        bench.finish(3_000);
        assert_eq!(bench.bad_answers, 5);
    }
}

/// Nothing is asked for before there is memory for the answer, and nothing behind it goes.
#[test]
fn pc_2_a_read_waits_for_its_memory() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { missing: 1.0, service: 5_000, ..Setup::default() }, 7);
        bench.connect(7, Settings { message: true, ..Settings::default() });
        bench.credits(7, &[100]);
        bench.post(7, &[read(0x1000, 300), Element::inline(10)], false);
        bench.run(4_000);
        assert_eq!(psns(&bench), []);
        bench.finish(20_000);
    }
}

/// A write fails that is under way when its pages go; the packet's answer is asked for again.
#[test]
fn qp_3_an_answer_that_could_not_be_written_is_asked_for_again() {
    for width in widths() {
        let setup = Setup { write_failures: 0.3, ..Setup::default() };
        let mut bench = Bench::new(width, setup, 7);
        bench.connect(7, Settings { message: true, log2_mtu: 8, log2_block: 12, timeout: 300, ..Settings::default() });
        bench.post(7, &[read(0x1f80, 3_000), read(0x3000, 200), swap(0x4ffc, 8), add(0x6001, 8)], false);
        bench.finish(60_000);
        assert!(bench.packets_counted[1] > 0);
        assert_eq!((bench.statuses(7), bench.held(7)), (vec![WC_OK; 4], NOTHING));
    }
}

/// Memory is let go of while its packets wait for answers: what comes meanwhile is dropped, and comes again when it is there.
/// If it cannot be had any more, firmware is told.
#[test]
fn vc_9_memory_of_a_read_may_go_while_its_answer_is_on_the_way() {
    for width in widths() {
        for denied in [false, true] {
            let mut bench = Bench::new(width, Setup::default(), 7);
            bench.connect(7, Settings { message: true, log2_mtu: 8, log2_block: 12, ..Settings::default() });
            bench.silent(7);
            bench.post(7, &[read(0x1000, 1000)], false);
            quiet(&mut bench);
            assert_eq!(psns(&bench), [0, 1, 2, 3]);
            let answer = |bench: &mut Bench, psn| {
                let bytes = bench.bytes_for(7, psn);
                bench.answer_read(7, psn, &bytes);
            };
            answer(&mut bench, 0);
            bench.run(500);
            if denied {
                bench.deny(0x1000, 1);
            }
            bench.revoke(0x1000, 1);
            answer(&mut bench, 1);
            bench.run(500);
            assert_eq!(bench.read(7, send::UNA), 1, "its memory is not there");
            bench.run(5_000);
            (1..4).for_each(|psn| answer(&mut bench, psn));
            if denied {
                bench.run(500);
                assert_eq!(
                    bench.take_events(),
                    [(EVENT_NO_MEMORY, 7, NoMemory { again: 1, status: DENIED.into() }.word())]
                );
                bench.end(7, WC_REMOTE_ERROR);
                bench.command(7, send::CMD_DRAIN);
                bench.settle_config();
                bench.run(500);
                assert_eq!(bench.statuses(7), [WC_REMOTE_ERROR]);
            } else {
                bench.finish(3_000);
            }
            assert_eq!((bench.ranges_held(), bench.held(7)), (0, NOTHING));
        }
    }
}

/// What is being written when a QP ends is written; what comes afterwards is not.
#[test]
fn vc_3_memory_of_reads_goes_back_when_a_qp_ends() {
    for width in widths() {
        for before in [0, 5, 10, 15, 20, 30, 50, 100] {
            let mut bench = Bench::new(width, Setup::default(), 7);
            bench.connect(7, Settings { message: true, log2_mtu: 8, log2_block: 12, ..Settings::default() });
            bench.silent(7);
            bench.post(7, &[read(0x1f80, 1000), read(0x5000, 10)], false);
            quiet(&mut bench);
            let answer = |bench: &mut Bench, psn| {
                let bytes = bench.bytes_for(7, psn);
                bench.answer_read(7, psn, &bytes);
            };
            answer(&mut bench, 1);
            answer(&mut bench, 0);
            bench.run(before);
            bench.end(7, WC_REMOTE_ERROR);
            bench.settle_config();
            answer(&mut bench, 2);
            while bench.held(7).busy != 0 {}
            bench.command(7, send::CMD_DRAIN);
            bench.settle_config();
            answer(&mut bench, 3);
            bench.run(500);
            assert_eq!(bench.statuses(7), [WC_REMOTE_ERROR, WC_FLUSHED]);
            assert_eq!((bench.ranges_held(), bench.held(7), bench.bad_answers), (0, NOTHING, 0));
        }
    }
}

/// Answers come in the order of their packets: one whose answer is missing shows when three later ones have come, or their
/// acknowledgement, which says nothing of its own.
#[test]
fn qp_3_an_answer_that_is_lost_is_asked_for_again() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { message: true, log2_mtu: 8, reads: 8, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[100]);
        bench.post(7, &[read(0x1000, 8 * 256), Element::plain(0, 100), read(0x4000, 256)], false);
        quiet(&mut bench);
        let sent: Vec<u32> = (0..9).collect();
        assert_eq!(psns(&bench), sent);
        let answer = |bench: &mut Bench, psn| {
            let bytes = bench.bytes_for(7, psn);
            bench.answer_read(7, psn, &bytes);
            quiet(bench);
        };
        answer(&mut bench, 1);
        answer(&mut bench, 2);
        assert_eq!(psns(&bench).len(), 9, "two are not enough");
        answer(&mut bench, 3);
        assert_eq!(psns(&bench)[9..], [0]);
        answer(&mut bench, 4);
        assert_eq!(psns(&bench).len(), 10, "once in a round trip");
        bench.answer(7, 8, 0x1f, None);
        quiet(&mut bench);
        assert_eq!(psns(&bench)[10..], [5]);
        for psn in [0, 5, 6, 7] {
            answer(&mut bench, psn);
        }
        assert_eq!(psns(&bench)[11..], [9]);
        answer(&mut bench, 9);
        bench.finish(3_000);
        assert_eq!(bench.bad_answers, 0);
    }
}

/// One that a later answer or an acknowledgement passes over is missing at once, and only that goes again; a NAK loses all.
#[test]
fn qp_7_an_answer_that_a_foreign_peer_passes_over_is_asked_for_again() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings { log2_mtu: 8, reads: 8, ..Settings::foreign() });
        bench.silent(7);
        bench.post(7, &[read(0x1000, 4 * 256), Element::plain(0, 100), read(0x4000, 256)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 4, 5]);
        let answer = |bench: &mut Bench, psn| {
            bench.answer_asked(7, psn);
            quiet(bench);
        };
        answer(&mut bench, 1);
        assert_eq!(psns(&bench)[6..], [0]);
        answer(&mut bench, 2);
        assert_eq!(psns(&bench).len(), 7, "once in a round trip");
        bench.answer_counted(7, 4, 31, 5, None);
        quiet(&mut bench);
        assert_eq!(psns(&bench)[7..], [3]);
        bench.answer_counted(7, 5, 0x60, 5, None);
        quiet(&mut bench);
        assert_eq!(psns(&bench)[8..], [0, 3, 5]);
        for psn in [0, 3, 5] {
            answer(&mut bench, psn);
        }
        bench.finish(3_000);
        assert_eq!(bench.bad_answers, 0);
    }
}

#[test]
fn decision_10_sends_of_no_bytes_complete_in_their_turn_in_stream_mode() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 5);
        bench.connect(5, Settings::default());
        bench.post(5, &[Element::plain(0, 0), Element::plain(0x2000, 100), Element::plain(0, 0)], false);
        bench.run(3_000);
        assert_eq!(bench.statuses(5), [WC_OK], "the first needs no credit, the third waits for the second");
        bench.credits(5, &[4096]);
        bench.finish(20_000);
        assert_eq!(bench.statuses(5), [WC_OK; 3]);
        assert_eq!(bench.frames_of(5).len(), 1);
    }
}

#[test]
fn a_bad_element_stops_its_qp_and_an_error_flushes_what_is_left() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 6);
        bench.connect(7, Settings::default());
        bench.credits(7, &[4096; 4]);
        let bad = Element { claimed: Some(99), ..Element::plain(0x2000, 100) };
        bench.post(7, &[Element::plain(0x1000, 10), bad, Element::plain(0x3000, 10)], false);
        bench.run(4_000);
        assert_eq!(bench.statuses(7), [WC_OK]);
        assert_eq!(bench.take_events(), [(EVENT_BAD_WQE, 7, BadWqe { status: WC_BAD_WQE.into() }.word())]);
        bench.end(7, WC_BAD_WQE);
        bench.run(500);
        assert_eq!(bench.statuses(7), [WC_OK, WC_BAD_WQE, WC_FLUSHED]);
    }
}

#[test]
fn a_nak_that_is_no_sequence_error_halts_the_qp() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 6);
        bench.connect(7, Settings::default());
        bench.silent(7);
        bench.credits(7, &[4096; 4]);
        bench.post(7, &row_of(2, 10), false);
        bench.run(2_000);
        bench.answer(7, 0, 0x63, None);
        bench.run(200);
        assert_eq!(bench.take_events(), [(EVENT_NAK, 7, Nak { syndrome: 0x63, psn: 0 }.word())]);
        bench.answer(7, 0, 0x63, None);
        bench.run(200);
        assert_eq!(bench.take_events(), [], "it is told once");
        bench.post(7, &row_of(1, 10), false);
        bench.run(2_000);
        assert_eq!(bench.frames_of(7).len(), 2, "nothing more is sent");
        bench.end(7, WC_REMOTE_ERROR);
        bench.run(500);
        assert_eq!(bench.statuses(7), [WC_REMOTE_ERROR, WC_FLUSHED, WC_FLUSHED]);
    }
}

#[test]
fn a_qp_that_is_told_to_halt_sends_nothing_until_it_is_told_to_go_on() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(7, Settings::default());
        bench.credits(7, &[4096; 3]);
        bench.command(7, send::CMD_HALT);
        bench.settle_config();
        bench.post(7, &row_of(3, 10), false);
        bench.run(2_000);
        assert_eq!(bench.frames_of(7).len(), 0);
        bench.command(7, send::CMD_GO_ON);
        bench.finish(20_000);
        assert_eq!(bench.statuses(7), [WC_OK; 3]);
    }
}

#[test]
fn a_qp_that_has_ended_sends_nothing_again() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 8);
        bench.connect(7, Settings::default());
        bench.silent(7);
        bench.credits(7, &[4096; 3]);
        bench.post(7, &row_of(3, 10), false);
        bench.run(2_000);
        bench.end(7, WC_REMOTE_ERROR);
        bench.command(7, send::CMD_AGAIN);
        bench.run(2_000);
        assert_eq!(bench.statuses(7), [WC_REMOTE_ERROR, WC_FLUSHED, WC_FLUSHED]);
        assert_eq!(bench.frames_of(7).len(), 3);
        assert_eq!((bench.ranges_held(), bench.held(7)), (0, NOTHING), "nor is memory asked for");
    }
}

/// Frames about as long as a small place in packet RAM: none reaches into the next place.
#[test]
fn frames_that_just_fit_a_small_place_and_those_that_do_not_stay_apart() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 26);
        bench.connect(7, Settings::default());
        for len in [1_211, 1_212, 1_213, 1_216, 1_279, 1_348] {
            bench.credits(7, &[len; 12]);
            bench.post(7, &row_of(12, len), false);
            // They come together, and leave when all are there.
            bench.stuck = true;
            bench.run(2_000);
            bench.stuck = false;
            bench.finish(20_000);
        }
        assert_eq!(bench.statuses(7), [WC_OK; 72]);
    }
}

/// PSNs of what QP 7 has sent.
fn psns(bench: &Bench) -> Vec<u32> {
    bench.frames_of(7).iter().map(|frame| psn_of(&frame.bytes)).collect()
}

/// Until nothing more of QP 7 leaves for as long as an element and its payload take to be read.
fn quiet(bench: &mut Bench) {
    let mut left = usize::MAX;
    while left != bench.frames_of(7).len() {
        left = bench.frames_of(7).len();
        bench.run(900);
    }
}

/// `count` packets more, and time for them to leave.
fn send(bench: &mut Bench, count: u32) {
    // No more at a time than are fetched before one of them is complete.
    for first in (0..count).step_by(32) {
        let n = (count - first).min(32);
        bench.credits(7, &vec![100; n as usize]);
        bench.post(7, &row_of(n, 100), false);
        quiet(bench);
    }
}

/// A SACK for the packets from `first` on, of which a bit is set for each that has arrived, the first one's on the left.
fn arrived(bench: &mut Bench, first: u32, bits: u128) {
    bench.answer(7, first.wrapping_sub(1) & 0xff_ffff, 0x1f, Some(bits));
    quiet(bench);
}

/// As many packets that left later as `reorder` says must have arrived; of one that was sent again, packets that left
/// after that.
#[test]
fn a_packet_that_is_lost_twice_goes_three_times() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 22);
        bench.connect(7, Settings { reorder: 3, ..Settings::default() });
        bench.silent(7);
        send(&mut bench, 8);
        arrived(&mut bench, 0, 0b0110 << 124);
        assert_eq!(psns(&bench), (0..8).collect::<Vec<_>>(), "two are not enough");
        // With more to send, or what is left would be taken for lost as well.
        bench.post(7, &row_of(1, 100), false);
        arrived(&mut bench, 0, 0b0111 << 124);
        assert_eq!(psns(&bench)[8..], [0]);
        bench.credits(7, &[100; 5]);
        bench.post(7, &row_of(4, 100), false);
        bench.run(3_000);
        assert_eq!(psns(&bench)[9..], [8, 9, 10, 11, 12]);
        bench.post(7, &row_of(1, 100), false);
        // All that left before it, and two that left behind it.
        arrived(&mut bench, 0, 0b0111_1111_1100 << 116);
        assert_eq!(psns(&bench)[14..], [], "two are not enough");
        arrived(&mut bench, 0, 0b0111_1111_1110 << 116);
        assert_eq!(psns(&bench)[14..], [0]);
        bench.credits(7, &[100]);
        bench.run(2_000);
        bench.answer(7, 13, 0x1f, None);
        bench.finish(3_000);
    }
}

/// Nothing new is left: one packet behind it that has arrived is enough.
#[test]
fn the_last_packets_are_lost_when_one_behind_them_has_arrived() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 23);
        bench.connect(7, Settings { reorder: 3, ..Settings::default() });
        bench.silent(7);
        send(&mut bench, 4);
        arrived(&mut bench, 0, 0b0001 << 124);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 0, 1, 2]);
        // What was sent again is lost again when something newer has arrived, and nothing before that.
        arrived(&mut bench, 0, 0b0101 << 124);
        arrived(&mut bench, 0, 0b0101 << 124);
        assert_eq!(psns(&bench).len(), 7);
        send(&mut bench, 1);
        assert_eq!(psns(&bench)[7..], [4]);
        arrived(&mut bench, 0, 0b0_1011 << 123);
        assert_eq!(psns(&bench)[8..], [0, 2]);
        bench.answer(7, 4, 0x1f, None);
        bench.finish(3_000);
    }
}

/// More than one operation looks at, and more than are sent again at a time.
#[test]
fn twenty_packets_that_are_lost_twice_go_again_in_their_order() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 24);
        bench.connect(7, Settings { reorder: 3, ..Settings::default() });
        bench.silent(7);
        send(&mut bench, 24);
        arrived(&mut bench, 0, 0b1111 << 104);
        let lost: Vec<u32> = (0..20).collect();
        assert_eq!(psns(&bench)[24..], lost);
        send(&mut bench, 4);
        assert_eq!(psns(&bench)[44..], [24, 25, 26, 27]);
        arrived(&mut bench, 0, 0b1111_0111 << 100);
        assert_eq!(psns(&bench)[48..], [&lost[..], &[24]].concat());
        bench.answer(7, 27, 0x1f, None);
        bench.finish(3_000);
    }
}

/// A packet that is missing, with three later ones behind it, so far behind the SACK's PSN that `upto` packets are news.
#[test]
fn a_sack_is_about_the_packets_behind_its_psn_however_many_it_acknowledges() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 27);
        bench.connect(7, Settings { log2_mtu: 8, first_psn: 0xff_ffc0, ..Settings::default() });
        bench.silent(7);
        let (mut una, mut sent) = (0xff_ffc0_u32, 0);
        for upto in [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 21, 63, 64, 129, 200] {
            let len = (upto + 4) * 256;
            bench.credits(7, &[len]);
            bench.post(7, &[Element::plain(0x10_0000, len)], false);
            quiet(&mut bench);
            assert_eq!(psns(&bench).len(), sent + upto as usize + 4, "{upto}");
            let gap = (una + upto) & 0xff_ffff;
            arrived(&mut bench, gap, 0b0111 << 124);
            assert_eq!(psns(&bench)[sent + upto as usize + 4..], [gap], "{upto}");
            (una, sent) = ((gap + 4) & 0xff_ffff, sent + upto as usize + 5);
            bench.answer(7, una.wrapping_sub(1) & 0xff_ffff, 0x1f, None);
            bench.finish(2_000);
        }
    }
}

/// It has been overtaken by one that acknowledges more, so that its PSN lies before the window, but it knows of packets in it.
#[test]
fn an_old_acknowledgement_counts_for_what_its_sack_says_of_packets_in_the_window() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 28);
        bench.connect(7, Settings::default());
        bench.silent(7);
        let mut una = 0;
        let mut acknowledge = |bench: &mut Bench, count: u32| {
            una += count;
            bench.answer(7, una - 1, 0x1f, None);
            bench.run(500);
            assert_eq!(bench.statuses(7).len() as u32, una);
            una
        };
        let mut una = [32; 4].map(|count| {
            send(&mut bench, count);
            acknowledge(&mut bench, count)
        })[3];
        // All before the window, and three of those behind the first of it, as far as the bits go.
        for (back, lost) in [(0, 1), (1, 1), (3, 1), (4, 1), (16, 1), (37, 1), (124, 1), (125, 0)] {
            send(&mut bench, 8);
            let sent = psns(&bench).len();
            arrived(&mut bench, una - back, !(u128::MAX >> back) | 0b0111 << 124 >> back);
            assert_eq!(psns(&bench)[sent..], [una; 1][..lost], "{back}");
            una = acknowledge(&mut bench, 8);
        }
        // The last bit is the window's first packet; one further back, and it says nothing that is not known.
        for (back, more) in [(127, 1), (128, 0)] {
            send(&mut bench, 8);
            let sent = psns(&bench).len();
            arrived(&mut bench, una - back, u128::MAX);
            assert_eq!((bench.statuses(7).len() as u32, psns(&bench).len()), (una + more, sent), "{back}");
            una = acknowledge(&mut bench, 8);
        }
        bench.finish(1_000);
    }
}

/// Bits of packets before the window are not those of packets at its end.
#[test]
fn an_old_acknowledgement_says_nothing_of_the_end_of_a_full_window() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 29);
        bench.connect(7, Settings { log2_mtu: 8, ..Settings::default() });
        bench.silent(7);
        send(&mut bench, 64);
        bench.answer(7, 63, 0x1f, None);
        bench.run(200);
        // 255 packets in flight.
        bench.credits(7, &[60 * 256; 5]);
        bench.post(7, &[Element::plain(0x10_0000, 5 * 60 * 256)], false);
        quiet(&mut bench);
        assert_eq!(psns(&bench).len(), 64 + 255);
        for back in [2, 5, 20, 60] {
            arrived(&mut bench, 64 - back, !(u128::MAX >> back));
            assert_eq!(psns(&bench).len(), 64 + 255, "{back}");
        }
        arrived(&mut bench, 64 + 8, 0);
        assert_eq!(psns(&bench)[64 + 255..], (319..327).collect::<Vec<_>>());
        arrived(&mut bench, 64 + 8, 0b11 << 126);
        assert_eq!(psns(&bench)[64 + 255 + 8..], [327, 328], "only what was told");
    }
}

/// A NAK for the oldest packet acknowledges nothing.
#[test]
fn a_foreign_peer_that_has_missed_the_oldest_packet_gets_all_again_before_anything_new() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 1_500, ..Setup::default() }, 30);
        bench.connect(7, Settings { selective: false, window: 16, ..Settings::default() });
        bench.silent(7);
        let sends =
            |from: u64| -> Vec<_> { (from..from + 4).map(|n| Element::plain(0x10_0000 + (n << 12), 500)).collect() };
        for round in 0..3_u64 {
            let first = 8 * round;
            bench.credits(7, &[500; 4]);
            bench.post(7, &sends(first), false);
            bench.run(4_000);
            bench.evict(0x10_0000 + ((first + 1) << 12), 500);
            bench.answer(7, first as u32, 0x60, None);
            bench.run(300);
            bench.credits(7, &[500; 4]);
            bench.post(7, &sends(first + 4), false);
            bench.run(6_000);
            let wanted = [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7].map(|n| first as u32 + n);
            assert_eq!(psns(&bench)[12 * round as usize..], wanted);
            bench.answer(7, first as u32 + 7, 0x1f, None);
            bench.finish(2_000);
        }
    }
}

/// Just in the window, and just outside of it.
#[test]
fn answers_for_packets_that_were_never_sent_are_counted_and_change_nothing() {
    for width in widths() {
        for selective in [true, false] {
            let mut bench = Bench::new(width, Setup::default(), 31);
            bench.connect(7, Settings { selective, first_psn: 0xff_fffe, ..Settings::default() });
            bench.silent(7);
            send(&mut bench, 4);
            // Oldest 0xfffffe, next 2.
            let mut answer = |psn, syndrome, sack| {
                let before = bench.acks_counted;
                bench.answer(7, psn, syndrome, sack);
                bench.run(1_000);
                [bench.acks_counted[0] - before[0], bench.acks_counted[1] - before[1]]
            };
            let all = Some(u128::MAX);
            for (psn, syndrome) in [(2, 0x1f), (3, 0x1f), (0x7f_fffc, 0x1f), (2, 0x60), (2, 0x63), (2, 0x20), (3, 0x60)]
            {
                assert_eq!(answer(psn, syndrome, all), [0, 1], "{psn} {syndrome:#x}");
            }
            for (psn, syndrome) in [(0xff_fffd, 0x40), (0xff_fffe, 0x80), (0xff_fff0, 0xa0), (2, 0xff)] {
                assert_eq!(answer(psn, syndrome, all), [0, 1], "{psn} {syndrome:#x}");
            }
            for (psn, syndrome) in
                [(0xff_fffd, 0x60), (0xff_fffd, 0x63), (0xff_fffd, 0x20), (0x7f_fffe, 0x1f), (0xff_fffd, 0x1f)]
            {
                assert_eq!(answer(psn, syndrome, None), [1, 0], "{psn} {syndrome:#x}");
            }
            assert_eq!((psns(&bench).len(), bench.statuses(7).len(), bench.take_events()), (4, 0, vec![]));
            // The last one that was sent.
            bench.answer(7, 0, 0x1f, None);
            bench.run(1_000);
            assert_eq!((psns(&bench).len(), bench.statuses(7).len()), (4, 3));
            bench.answer(7, 1, 0x60, None);
            bench.run(1_000);
            assert_eq!(psns(&bench)[4..], [1]);
            bench.answer(7, 1, 0x1f, None);
            bench.finish(1_000);
        }
    }
}

/// `Syndrome::from_byte` of the golden model knows none of these.
#[test]
fn an_acknowledgement_of_a_kind_that_there_is_not_acknowledges_nothing() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 37);
        bench.connect(7, Settings::default());
        bench.silent(7);
        send(&mut bench, 4);
        for syndrome in [0x40, 0x80, 0xa0, 0xc0, 0xff] {
            bench.answer(7, 2, syndrome, None);
            bench.run(1_000);
            assert_eq!(bench.statuses(7), [], "{syndrome:#x}");
        }
        assert_eq!(bench.acks_counted, [0, 5]);
    }
}

/// It acknowledges what lies before it. Firmware waits, and has the QP go on: then all that is left goes again.
#[test]
fn an_rnr_halts_its_qp_until_firmware_has_it_go_on() {
    for width in widths() {
        for selective in [true, false] {
            let mut bench = Bench::new(width, Setup::default(), 32);
            bench.connect(7, Settings { selective, timeout: 100, ..Settings::default() });
            bench.silent(7);
            send(&mut bench, 6);
            // Told once.
            for events in [vec![(EVENT_RNR, 7, Nak { syndrome: 0x2a, psn: 2 }.word())], vec![], vec![]] {
                bench.answer(7, 2, 0x2a, None);
                bench.run(200);
                assert_eq!(bench.take_events(), events);
            }
            bench.run(20_000);
            assert_eq!((bench.statuses(7).len(), bench.time_outs.get(&7)), (2, None), "no time-out meanwhile");
            send(&mut bench, 2);
            assert_eq!(psns(&bench).len(), 6);
            bench.command(7, send::CMD_GO_ON);
            bench.run(2_000);
            let mut sent = psns(&bench).split_off(6);
            if selective {
                // New ones go on meanwhile.
                sent.sort_unstable();
            }
            assert_eq!(sent, [2, 3, 4, 5, 6, 7]);
            bench.answer(7, 7, 0x1f, None);
            bench.finish(2_000);
        }
    }
}

/// It costs its frame, which goes again although nobody has missed it and no time-out runs, whatever else is to be done.
#[test]
fn a_packet_whose_payload_could_not_be_read_goes_again() {
    for width in widths() {
        for selective in [true, false] {
            let setup = Setup { read: 40, jitter: 30, round_trip: 60, read_failures: 0.3, ..Setup::default() };
            let mut bench = Bench::new(width, setup, 38);
            for q in 0..8 {
                bench.connect(q, Settings { selective, ..Settings::default() });
            }
            // One packet of each at a time: nothing behind it says that it is missing.
            for _ in 0..12 {
                for q in 0..8 {
                    bench.credits(q, &[100]);
                    bench.post(q, &row_of(1, 100), false);
                }
                bench.finish(5_000);
            }
            assert!((0..8).all(|q| bench.statuses(q) == [WC_OK; 12]));
            let [sent, again] = bench.packets_counted;
            assert!(sent == again + 8 * 12 && again > 20, "{again} of {sent} went again");
        }
    }
}

/// Rows of this card.
const ROWS: usize = 64;
/// The row's word with the round trip as it is measured.

#[test]
fn a_time_out_counts_from_the_last_progress_while_something_is_in_flight() {
    const TIMEOUT: u32 = 500;
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 33);
        assert_eq!(bench.timers(ROWS), []);
        bench.connect(7, Settings { timeout: TIMEOUT, ..Settings::default() });
        bench.connect(8, Settings::default());
        bench.silent(7);
        bench.silent(8);
        bench.run(20_000);
        assert_eq!(bench.timers(ROWS), [], "nothing is in flight");
        send(&mut bench, 4);
        bench.credits(8, &[100]);
        bench.post(8, &row_of(1, 100), false);
        let recent = |bench: &mut Bench, ends: Vec<u32>, most| {
            let [end] = ends[..] else { panic!("{ends:?}") };
            // Until the round trip is known the first probe would come later than the time-out.
            let span = match bench.read(7, send::ROUND_TRIP) {
                0 => TIMEOUT,
                round => TIMEOUT.min((2 * round).max(FAST_PROBE)),
            };
            assert!((bench.time() - most..=bench.time()).contains(&(end - span)), "{end}, now {}", bench.time());
            end
        };
        // The timer of a QP that has none does not run. A packet's own begins when it is looked at first.
        let ends = bench.timers(ROWS);
        let first = recent(&mut bench, ends, 60);
        bench.run(5_000);
        // What is no progress does not count: nothing new, old, and never sent.
        for psn in [0xff_ffff, 0xff_fff0, 4] {
            bench.answer(7, psn, 0x1f, None);
        }
        bench.run(2_000);
        assert_eq!(bench.timers(ROWS), [first]);
        // Progress, also behind a gap.
        for (psn, sack) in [(0, None), (0, Some(1 << 125))] {
            bench.answer(7, psn, 0x1f, sack);
            bench.run(10);
            let ends = bench.timers(ROWS);
            let end = recent(&mut bench, ends, 8);
            bench.run(3_000);
            assert_eq!(bench.timers(ROWS), [end]);
        }
        // Not before its end; then it is told once, until firmware has it go on.
        let news = bench.time() - 3_000 / 64 - 10;
        bench.deaf = true;
        while !bench.is_told() {
            assert!(bench.time() <= news + TIMEOUT + 20, "{} after {news}", bench.time());
            bench.step();
        }
        assert!(bench.time() >= news + TIMEOUT, "{} after {news}", bench.time());
        bench.run(64 * ROWS as u64 + 100);
        assert!(bench.is_told());
        assert_eq!(bench.timers(ROWS), []);
        bench.deaf = false;
        bench.run(100);
        bench.settle_config();
        assert_eq!(bench.time_outs[&7], 1);
        let [end] = bench.timers(ROWS)[..] else { panic!("it does not run") };
        assert!((bench.time() + 100..=bench.time() + TIMEOUT).contains(&end), "{end}, now {}", bench.time());
        bench.command(7, send::CMD_HALT);
        bench.settle_config();
        assert_eq!(bench.timers(ROWS), [], "it is halted");
        bench.command(7, send::CMD_GO_ON);
        bench.settle_config();
        assert_ne!(bench.timers(ROWS), []);
        bench.run(2_000);
        bench.answer(7, 3, 0x1f, None);
        bench.run(500);
        assert_eq!(bench.timers(ROWS), [], "all is acknowledged");
        assert_eq!(bench.time_outs.get(&8), None);
    }
}

/// A row is looked at once in 4096 cycles.
#[test]
fn time_outs_come_at_their_time_and_again_after_the_answer_to_them() {
    const TIMEOUT: u32 = 100;
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 34);
        bench.connect(7, Settings { timeout: TIMEOUT, ..Settings::default() });
        bench.silent(7);
        bench.run(30_000);
        send(&mut bench, 2);
        let mut last = bench.time() - 60;
        for n in 1..4 {
            while bench.time_outs.get(&7).copied().unwrap_or(0) < n {
                bench.step();
                assert!(bench.time() < last + TIMEOUT + 3 * ROWS as u32, "time-out {n}");
            }
            assert!(bench.time() >= last + TIMEOUT, "time-out {n}: {} after {last}", bench.time());
            last = bench.time();
            bench.run(1_500);
            assert_eq!(psns(&bench).len(), 2 + n as usize, "one packet asks");
        }
        bench.answer(7, 1, 0x1f, None);
        bench.finish(1_000);
        let count = bench.time_outs[&7];
        bench.run(30_000);
        assert_eq!(bench.time_outs[&7], count);
    }
}

/// One packet is acknowledged after `cycles`, so that the round trip is known; then there are `count` more that nobody
/// acknowledges.
fn timed(bench: &mut Bench, cycles: u64, count: u32) -> u32 {
    bench.connect(7, Settings { timeout: 60_000, ..Settings::default() });
    bench.silent(7);
    send(bench, 1);
    let begin = bench.time();
    bench.run(cycles);
    bench.answer(7, 0, 0x1f, None);
    bench.run(100);
    let round = bench.read(7, send::ROUND_TRIP);
    // From when it left: until `send` saw that nothing more leaves.
    assert!((cycles as u32 / 64..cycles as u32 / 64 + 40).contains(&round), "{round} of {cycles}, at {begin}");
    send(bench, count);
    round
}

/// Where nothing is heard, one packet at a time, ever more slowly.
#[test]
fn f11_after_two_round_trips_of_silence_one_packet_goes_again_and_then_twice_as_late_each_time() {
    for (width, cycles) in widths().into_iter().flat_map(|width| [(width, 600), (width, 6_000)]) {
        let mut bench = Bench::new(width, Setup::default(), 36);
        let round = timed(&mut bench, cycles, 4);
        let mut wait = (2 * round).max(FAST_PROBE);
        let mut last = bench.time();
        let mut frames = 5;
        for n in 0..5 {
            while psns(&bench).len() == frames {
                bench.step();
                assert!(bench.time() < last + wait + 40, "probe {n} of {wait}");
            }
            // It is read before it goes.
            assert!(bench.time() + 60 >= last + wait, "probe {n} of {wait}: {} after {last}", bench.time());
            last = bench.time();
            wait *= 2;
            frames += 1;
            // The end may be missing; then the oldest one asks.
            assert_eq!(psns(&bench).last(), Some(if n == 0 { &4 } else { &1 }));
        }
        assert_eq!(bench.time_outs.get(&7), None);
        // All lost ones are found by the answer to it, without any more time.
        bench.run(64 * u64::from(round));
        bench.answer(7, 1, 0x1f, None);
        quiet(&mut bench);
        assert_eq!(psns(&bench)[frames..], [2, 3, 4]);
        // That was an answer to one that went again: it says nothing of the round trip, so that probes stay rare.
        assert_eq!(bench.read(7, send::ROUND_TRIP), round);
        bench.run(64 * u64::from(wait) - 4_000);
        assert_eq!(psns(&bench).len(), frames + 3);
        bench.answer(7, 4, 0x1f, None);
        bench.run(200);
        assert_eq!(bench.timers(ROWS), []);
    }
}

/// A resend that is lost shows by another one that left later; not by an answer to an earlier copy of that, which comes sooner
/// than a round trip or, where that grows, later.
#[test]
fn f11_a_resend_that_is_lost_shows_when_one_that_left_after_it_is_acknowledged() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 37);
        // Half round trips.
        for age in [0, 2, 3] {
            bench.reset();
            timed(&mut bench, 12_800, 8);
            // 1 and 3 are lost, and go again, one soon after the other.
            arrived(&mut bench, 1, 0b0101_1111 << 120);
            assert_eq!(psns(&bench)[9..], [1, 3]);
            // 3 has come: what went again, or the first one.
            let round = u64::from(bench.read(7, send::ROUND_TRIP));
            bench.run(32 * age * round);
            arrived(&mut bench, 1, 0b0111_1111 << 120);
            assert_eq!(psns(&bench)[11..], [1][..usize::from(age == 2)], "{age}");
            bench.answer(7, 8, 0x1f, None);
            bench.finish(2_000);
        }
    }
}

/// The newest packet is timed once: that it has arrived, behind a gap, is no news when the gap is closed.
#[test]
fn f11_a_packet_that_arrived_before_is_not_timed() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 38);
        timed(&mut bench, 12_800, 4);
        arrived(&mut bench, 1, 0b0001 << 124);
        let round = bench.read(7, send::ROUND_TRIP);
        bench.run(64 * 3 * u64::from(round) / 2);
        bench.answer(7, 4, 0x1f, None);
        bench.finish(2_000);
        let after = bench.read(7, send::ROUND_TRIP);
        assert!(after <= round, "{round} became {after}");
    }
}

/// Work that is left, of packets that are lost, and acknowledgements take turns.
#[test]
fn lost_packets_go_again_however_many_acknowledgements_come_for_others() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 35);
        for q in [7, 9] {
            bench.connect(q, Settings::default());
            bench.silent(q);
        }
        bench.credits(9, &[100; 8]);
        bench.post(9, &row_of(8, 100), false);
        send(&mut bench, 24);
        let flood = |bench: &mut Bench| (0..1_500).for_each(|_| bench.answer(9, 0xff_ffff, 0x1f, None));
        bench.answer(7, 0xff_ffff, 0x1f, Some(0b1111 << 104));
        flood(&mut bench);
        bench.run(3_000);
        assert!(bench.acks_counted[0] > 100 && bench.acks_counted[0] < 1_400, "{:?}", bench.acks_counted);
        assert_eq!(psns(&bench)[24..], (0..20).collect::<Vec<_>>());
        while bench.acks_counted[0] < 1_501 {
            bench.step();
        }
        // And those that are lost once more.
        send(&mut bench, 4);
        bench.answer(7, 0xff_ffff, 0x1f, Some(0b1111_0111 << 100));
        flood(&mut bench);
        bench.run(3_000);
        assert_eq!(psns(&bench)[48..], [(0..20).collect::<Vec<_>>(), vec![24]].concat());
        assert!(bench.acks_counted[0] > 1_600 && bench.acks_counted[0] < 2_900, "{:?}", bench.acks_counted);
    }
}

/// A reset at each clock of the work on a SACK that has packets sent again.
#[test]
fn after_a_reset_at_any_clock_of_an_acknowledgement_a_qp_begins_anew() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { read: 20, ..Setup::default() }, 36);
        for clock in 0..40 {
            let first_psn = 100 * clock as u32;
            let begin = |bench: &mut Bench, count: u32| {
                bench.connect(7, Settings { first_psn, ..Settings::default() });
                bench.silent(7);
                bench.credits(7, &vec![100; count as usize]);
                bench.post(7, &row_of(count, 100), false);
                bench.run(400);
                assert_eq!(bench.frames_of(7).len() as u32, count, "{clock}");
            };
            begin(&mut bench, 8);
            bench.answer(7, first_psn.wrapping_sub(1) & 0xff_ffff, 0x1f, Some(0b0001_0111 << 120));
            bench.run(clock);
            bench.reset();
            bench.run(100);
            assert_eq!((bench.take_events(), bench.frames_of_nobody().len()), (vec![], 0), "{clock}");
            begin(&mut bench, 2);
            bench.answer(7, first_psn + 1, 0x1f, None);
            bench.finish(1_000);
            bench.reset();
        }
    }
}

/// Bits 4:0 of an ACK's syndrome are credits of another kind, which Berth has no use for.
#[test]
fn an_acknowledgement_with_any_credit_count_loses_nothing() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 25);
        bench.connect(7, Settings::default());
        bench.silent(7);
        send(&mut bench, 4);
        for (psn, syndrome) in [(0, 0), (1, 0x10), (3, 0)] {
            bench.answer(7, psn, syndrome, None);
            bench.run(2_000);
        }
        bench.finish(1_000);
        assert_eq!((psns(&bench).len(), bench.statuses(7)), (4, vec![WC_OK; 4]));
    }
}

#[test]
fn what_a_foreign_peer_has_missed_goes_before_anything_new() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 1_500, ..Setup::default() }, 21);
        bench.connect(7, Settings { selective: false, window: 4, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[500; 8]);
        let sends: Vec<_> = (0..8).map(|n| Element::plain(0x10_0000 + (n << 12), 500)).collect();
        bench.post(7, &sends, false);
        bench.run(3_000);
        assert_eq!(bench.frames_of(7).len(), 4, "the window is full");
        // The first two have arrived; the page of the third is not there.
        bench.evict(0x10_2000, 500);
        bench.answer(7, 2, 0x60, None);
        bench.run(6_000);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 2, 3, 4, 5]);
        bench.answer(7, 5, 0x1f, None);
        bench.run(3_000);
        bench.answer(7, 7, 0x1f, None);
        bench.finish(1_000);
        assert_eq!(bench.statuses(7), [WC_OK; 8]);
    }
}

#[test]
fn vc_3_memory_that_is_held_when_a_qp_ends_is_given_back_by_a_command() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 6);
        bench.connect(7, Settings { window: 2, ..Settings::default() });
        bench.silent(7);
        bench.credits(7, &[4096; 16]);
        bench.post(7, &row_of(10, 3000), false);
        bench.run(3_000);
        assert_eq!((bench.frames_of(7).len(), bench.ranges_held()), (2, 8), "the window is full, memory is held ahead");
        bench.end(7, WC_REMOTE_ERROR);
        bench.command(7, send::CMD_DRAIN);
        bench.run(1_000);
        assert_eq!((bench.statuses(7).len(), bench.ranges_held()), (10, 0));
    }
}

/// Memory goes at each clock of a QP's end, while the window is full and memory is held ahead: all its sends complete all the
/// same, and hold nothing.
#[test]
fn vc_9_memory_may_go_while_a_qp_ends() {
    for width in widths() {
        for wait in (0..40).chain([80, 160, 320, 640]) {
            let mut bench = Bench::new(width, Setup::default(), 6);
            bench.connect(7, Settings { window: 2, ..Settings::default() });
            bench.silent(7);
            bench.credits(7, &[4096; 16]);
            bench.post(7, &row_of(10, 3000), false);
            bench.run(3_000);
            assert_eq!(bench.ranges_held(), 8);
            bench.end(7, WC_REMOTE_ERROR);
            bench.run(wait);
            // That of the seventh and its neighbours.
            bench.revoke(0x10_0000 + 6 * 3000, 3000);
            bench.command(7, send::CMD_DRAIN);
            bench.run(1_000);
            assert_eq!((bench.statuses(7).len(), bench.ranges_held()), (10, 0), "{wait} clocks");
        }
    }
}

/// A QP ends anywhere on its packet's way, and is drained as firmware does, when it is not busy: its memory is given
/// back once.
#[test]
fn a_packet_on_its_way_when_its_qp_ends_gives_its_memory_back_once() {
    for width in widths() {
        for wait in (0..1500).step_by(7) {
            let mut bench = Bench::new(width, Setup::default(), 39);
            bench.connect(7, Settings::default());
            bench.silent(7);
            bench.credits(7, &[4096]);
            bench.post(7, &row_of(1, 2048), false);
            bench.run(wait);
            bench.end(7, WC_REMOTE_ERROR);
            let left = |bench: &mut Bench| send::Held { revoking: 0, starved: 0, ..bench.held(7) };
            for _ in 0..20 {
                let held = left(&mut bench);
                if held == NOTHING {
                    break;
                }
                if held.busy == 0 && held.holds != 0 {
                    bench.command(7, send::CMD_DRAIN);
                }
                bench.run(100);
            }
            bench.run(1_000);
            assert_eq!(
                (left(&mut bench), bench.statuses(7).len(), bench.ranges_held()),
                (NOTHING, 1, 0),
                "{wait} clocks"
            );
        }
    }
}

#[test]
fn acknowledgements_and_lists_are_framed_for_the_receivers_half() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        for (q, carrier) in (9..).zip([send::CARRIER_CONTROL, send::CARRIER_REVERSE, send::CARRIER_WRITE]) {
            bench.connect(q, Settings { carrier, ..Settings::default() });
            bench.check_own_acknowledgements(q);
            bench.check_own_lists(carrier, q);
        }
    }
}

/// Answers to READs of several QPs, alone and beside their data packets; some of which cannot be read.
#[test]
fn qp_3_answers_are_framed_for_the_receivers_half() {
    for width in widths() {
        for case in 0..cases(12) {
            let mut rng = Rng(mix(seed(17)) ^ mix(case));
            let setup = Setup {
                stalls: if rng.chance(0.5) { 0.2 } else { 0.0 },
                jitter: rng.below(400),
                read_failures: if rng.chance(0.3) { 0.05 } else { 0.0 },
                ..Setup::default()
            };
            let qs = [3, 9, 20];
            let mut bench = Bench::new(width, setup, rng.draw());
            for q in qs {
                let log2_mtu = rng.between(8, 12) as u32;
                bench.connect(q, Settings { log2_mtu, timeout: 300, ..Settings::default() });
                bench.supply(q, 4096);
                if rng.chance(0.7) {
                    let elements: Vec<_> = (0..20).map(|_| random_element(&mut rng, false, false)).collect();
                    bench.post(q, &elements, false);
                    bench.post(q, &[Element::plain(0, 1)], false);
                }
            }
            bench.check_own_answers(&mut rng, &qs, 150);
            bench.finish(3_000_000);
        }
    }
}

const NOTHING: send::Held = send::Held { busy: 0, queued: 0, revoking: 0, starved: 0, holds: 0 };
const QUEUED: send::Held = send::Held { queued: 1, ..NOTHING };
/// Of `holds`: memory is asked for or held.
const MEMORY: u32 = 1 << 6;

#[test]
fn firmware_knows_the_layout_of_the_rows() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 11);
        let layout = send::Layout { tag: LAYOUT_TAG, number: LAYOUT_NUMBER };
        assert_eq!(send::Layout::from_word(bench.read(5, send::LAYOUT)), layout);
    }
}

#[test]
fn lists_of_the_core_and_of_frames_are_taken_whole() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { stalls: 0.3, ..Setup::default() }, 11);
        for q in [1, 2] {
            bench.connect(q, Settings { log2_mtu: 8, ..Settings::default() });
            bench.post(q, &row_of(40, 1000), false);
        }
        for round in 0..4 {
            let sizes: Vec<u32> = (0..64).map(|i| 50 + 7 * i + round).collect();
            let (one, other) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
            bench.credits(one, &sizes);
            bench.credits_by_core(other, &sizes);
            bench.run(8_000);
        }
        bench.finish(60_000);
    }
}

#[test]
fn a_list_of_the_core_with_a_bad_length_is_refused() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 11);
        bench.connect(1, Settings::default());
        for n in [0, 65, 127, 128, 1 << 16] {
            bench.write_list(1, 0, n, &vec![1; if n < 128 { n as usize } else { 0 }]);
            bench.settle_config();
            bench.run(100);
            assert_eq!(bench.take_events(), [(EVENT_LIST, 1, List { answer: LIST_BAD }.word())], "{n}");
        }
        bench.post(1, &row_of(1, 100), false);
        bench.credits(1, &[100]);
        bench.finish(20_000);
    }
}

#[test]
fn decision_19_credits_that_are_not_used_are_given_up_and_numbered_anew() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 12);
        bench.connect(1, Settings::default());
        bench.post(1, &row_of(3, 1000), false);
        bench.credits(1, &[1000; 10]);
        bench.run(3_000);
        assert_eq!(bench.open(1), (0, 7), "all is acknowledged, 7 credits are left");
        assert_eq!(bench.give_up(1, 4), 6);
        assert_eq!(bench.open(1), (0, 3));
        // the list's proof is forgotten: the next one may come at once
        bench.credits_by_core(1, &[500; 2]);
        assert_eq!(bench.give_up(1, 100), 3, "more than there are: all");
        bench.post(1, &row_of(2, 1000), false);
        bench.run(2_000);
        assert_eq!(bench.frames_of(1).len(), 3);
        bench.credits(1, &[700; 4]);
        bench.finish(20_000);
        assert_eq!(bench.frames_of(1).len(), 3 + 4, "twice 700 and 300 bytes");
    }
}

#[test]
fn a_row_says_what_it_holds_and_what_is_under_way() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 4_000, ..Setup::default() }, 13);
        bench.connect(1, Settings::default());
        bench.silent(1);
        assert_eq!(bench.held(1), NOTHING);
        bench.evict(0x5000, 0x1000);
        bench.post(1, &[Element::plain(0x5000, 2000), Element::plain(0x6000, 2000)], false);
        bench.run(1_000);
        assert_eq!(bench.held(1), QUEUED, "no credit, no memory");
        bench.credits(1, &[1000; 8]);
        bench.run(200);
        // the second element has its memory: two blocks of each
        assert_eq!(bench.held(1), send::Held { holds: MEMORY | 4, ..QUEUED });
        bench.run(6_000);
        assert_eq!(bench.held(1), QUEUED);
        assert_eq!(bench.open(1), (4, 4));
        bench.answer(1, 2, 0x1f, None);
        bench.run(200);
        assert_eq!((bench.open(1), bench.statuses(1)), ((1, 4), vec![WC_OK]));
        bench.answer(1, 3, 0x1f, None);
        bench.run(200);
        assert_eq!((bench.open(1), bench.held(1)), ((0, 4), NOTHING));
        // nothing is held while all that is needed is missing
        bench.evict(0x7000, 0x1000);
        bench.post(1, &[Element::plain(0x7000, 100)], false);
        bench.run(1_000);
        assert_eq!(bench.held(1), send::Held { starved: 1, holds: MEMORY | 1, ..QUEUED });
        bench.run(3_300);
        assert_eq!(bench.held(1).busy, 1, "its payload is being read");
    }
}

#[test]
fn a_queue_that_cannot_be_read_is_told_once_and_left_alone() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 14);
        for q in [1, 2] {
            bench.connect(q, Settings::default());
            bench.credits(q, &[4096; 20]);
        }
        bench.break_queue(1);
        for q in [1, 2] {
            bench.post(q, &row_of(12, 100), false);
        }
        bench.run(3_000);
        assert_eq!(bench.take_events(), [(EVENT_SEND_QUEUE, 1, 0)]);
        assert_eq!((bench.held(1), bench.statuses(1).len(), bench.statuses(2).len()), (NOTHING, 0, 12));
    }
}

#[test]
fn a_doorbell_for_an_element_that_cannot_be_is_told_once() {
    for width in widths() {
        // 2 elements are complete, 1 is not
        let most = MAX_DEPTH as u16 + 2;
        for (wild, ok) in [(most, true), (most + 1, false), (0x8000, false), (2, false), (1, false), (0xffff, false)] {
            let mut bench = Bench::new(width, Setup::default(), 14);
            bench.connect(1, Settings::default());
            bench.credits(1, &[100; 2]);
            bench.post(1, &row_of(3, 100), false);
            bench.run(2_000);
            assert_eq!((bench.statuses(1).len(), bench.held(1)), (2, QUEUED));
            bench.ring(1, wild);
            bench.run(100);
            assert_eq!(bench.take_events(), if ok { vec![] } else { vec![(EVENT_SEND_INDEX, 1, 0)] }, "{wild}");
            assert_eq!(bench.held(1).queued != 0, ok);
            bench.ring(1, wild.wrapping_add(5));
            bench.run(100);
            assert_eq!(bench.take_events().len(), usize::from(ok), "it is told once");
        }
    }
}

/// From its start, then from its middle, so that the second time goes over the ring's end.
#[test]
fn qp_1_a_send_queue_is_as_deep_as_it_may_be() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 15);
        bench.connect(1, Settings::default());
        bench.credits(1, &[100; 2]);
        let depth = MAX_DEPTH as usize;
        let mut elements = vec![Element { nothing: true, ..Element::default() }; depth - 1];
        elements.push(Element::plain(0x10_0000, 100));
        let mut posted = 0;
        for elements in [&elements[..], &elements[..depth / 2], &elements] {
            bench.post(1, elements, false);
            bench.finish(400_000);
            posted += elements.len();
            assert_eq!(bench.statuses(1), vec![WC_OK; posted]);
        }
        assert_eq!(bench.frames_of(1).len(), 2);
    }
}

#[test]
fn inv_6_what_firmware_has_no_time_to_take_is_not_lost_whatever_a_peer_floods_it_with() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 16);
        let bad = Element { claimed: Some(99), ..Element::plain(0x2000, 100) };
        for q in 1..50 {
            bench.connect(q, Settings { timeout: u32::from(q > 48) * 20, ..Settings::default() });
            bench.silent(q);
            bench.credits(q, &[4096; 4]);
            if !(37..49).contains(&q) {
                bench.post(q, &row_of(2, 100), false);
            }
        }
        bench.run(4_000);
        bench.deaf = true;
        for round in 0..20 {
            for q in 1..13 {
                let i = round * 12 + q - 1;
                // Acknowledgements for what was never sent, and of a kind that there is not; lists with a gap before them.
                bench.answer(1, 0x10_0000 + i, if i.is_multiple_of(3) { 0x43 } else { 0x1f }, None);
                bench.list(2, 100 + i, &[5]);
                if round == 10 {
                    bench.answer(q, 0, 0x62, None);
                    bench.post(12 + q, std::slice::from_ref(&bad), false);
                    bench.ring(24 + q, 0x8000);
                    bench.list(36 + q, 4, &[7; 4]);
                }
            }
            bench.run(1_000);
        }
        bench.deaf = false;
        bench.run(4_000);
        let mut events = bench.take_events();
        events.sort_unstable();
        let all = |code, from: u32, arg| (from..from + 12).map(move |q| (code, q, arg));
        let expected: Vec<_> = all(EVENT_NAK, 1, Nak { syndrome: 0x62, psn: 0 }.word())
            .chain(all(EVENT_LIST, 37, List { answer: LIST_EARLY }.word()))
            .chain(all(EVENT_BAD_WQE, 13, BadWqe { status: WC_BAD_WQE.into() }.word()))
            .chain(all(EVENT_SEND_INDEX, 25, 0))
            .collect();
        assert_eq!(events, expected);
        assert!(bench.frames_of(49).len() > 2, "its time-out was told, and it sends again");
        assert_eq!((bench.acks_counted[1], bench.lists_counted), (240, [49, 0, 240 + 12]));
    }
}

/// Answers of a peer that has its packets sent again, and then acknowledges them one by one, the newest first: each is
/// news behind many packets that were sent again, which is all that the ACK engine can be made to look through.
struct NewestFirst {
    q: u32,
    /// Oldest PSN that is not acknowledged.
    una: u32,
    /// Packets that are known to the sender as arrived begin here; 128: none yet.
    known: u32,
    /// Frames that had left when the newest one was acknowledged.
    before: usize,
}

impl NewestFirst {
    const GROUP: u32 = 128;

    fn new(q: u32) -> Self {
        Self { q, una: 0, known: Self::GROUP, before: 0 }
    }

    /// Acknowledges the next packet. False if packets have to be sent before.
    fn answer(&mut self, bench: &mut Bench) -> bool {
        let frames = bench.frames_of(self.q);
        let left = frames.len();
        if self.known == Self::GROUP {
            let newest = self.una + Self::GROUP - 1;
            if !frames.iter().rev().take(2 * Self::GROUP as usize).any(|f| psn_of(&f.bytes) == newest) {
                return false;
            }
            self.before = left;
        } else if self.known + 1 == Self::GROUP {
            let again = |f: &&tx::Frame| psn_of(&f.bytes).wrapping_sub(self.una) < Self::GROUP;
            if frames[self.before..].iter().filter(again).count() < Self::GROUP as usize - 4 {
                return false;
            }
        }
        self.known -= 1;
        if self.known > 0 {
            bench.answer(self.q, self.una.wrapping_sub(1) & 0xff_ffff, 0x1f, Some(1 << (127 - self.known)));
        } else {
            bench.answer(self.q, self.una + Self::GROUP - 1, 0x1f, None);
            (self.una, self.known) = (self.una + Self::GROUP, Self::GROUP);
        }
        true
    }
}

#[test]
fn fairness_an_acknowledgement_takes_the_ack_engine_a_few_tens_of_cycles_whatever_is_open_before_it() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 18);
        bench.connect(1, Settings { log2_mtu: 8, ..Settings::default() });
        bench.silent(1);
        bench.credits(1, &[1024; 60]);
        bench.post(1, &row_of(60, 1024), false);
        let mut peer = NewestFirst::new(1);
        bench.run(20_000);
        assert!(peer.answer(&mut bench));
        bench.run(20_000);
        // 125 have gone again; what comes now is no news, then it is.
        let taken = |bench: &Bench| bench.acks_counted[0];
        let mut worst = [0; 2];
        for (kind, worst) in worst.iter_mut().enumerate() {
            let first = taken(&bench);
            for n in 0..120 {
                if kind == 1 {
                    assert!(peer.answer(&mut bench));
                } else {
                    bench.answer(1, 0xff_ffff, 0x1f, (n % 2 == 0).then_some(1));
                }
            }
            let (mut cycle, mut last) = (0, (0, first));
            while taken(&bench) < first + 120 {
                bench.run(1);
                cycle += 1;
                if taken(&bench) != last.1 {
                    *worst = u32::max(*worst, cycle - last.0);
                    last = (cycle, taken(&bench));
                }
                assert!(cycle < 100_000);
            }
            eprintln!(
                "ACKs without and with news, DATA_W {width}: {:.1} cycles each, {worst} at most",
                f64::from(cycle) / 120.0
            );
        }
        assert!(worst[0] <= 50 && worst[1] <= 80, "{worst:?} cycles");
    }
}

/// What was never sent, what is acknowledged, and what says nothing more: none of them waits for the window to be looked at.
#[test]
fn fairness_an_acknowledgement_that_changes_nothing_takes_the_ack_engine_three_clocks() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 19);
        bench.connect(1, Settings { log2_mtu: 8, ..Settings::default() });
        bench.credits(1, &[1024; 8]);
        bench.post(1, &row_of(8, 1024), false);
        bench.run(20_000);
        assert_eq!(bench.statuses(1).len(), 8);
        // 32 packets were sent. The first one that comes when nothing is left to send has the window looked at, once.
        bench.answer(1, 31, 0x1f, None);
        bench.run(100);
        for (name, psn, syndrome, sack, clocks) in [
            ("never sent", 900, 0x1f, None, 3),
            ("the newest one again", 31, 0x1f, None, 3),
            ("an old one again", 3, 0x1f, None, 3),
            ("a NAK of an old one", 3, 0x60, None, 3),
            ("an RNR of an old one", 3, 0x20, None, 3),
            ("a NAK of what was never sent", 40, 0x61, None, 3),
            ("of no kind", 31, 0x40, None, 3),
            ("a SACK before the window", 0xff_ff00, 0x1f, Some(u128::MAX), 4),
            ("a SACK over its end", 3, 0x1f, Some(u128::MAX), 4),
            ("a SACK of what was never sent", 31, 0x1f, Some(u128::MAX), 4),
        ] {
            let counted = |bench: &Bench| bench.acks_counted[0] + bench.acks_counted[1];
            let first = counted(&bench);
            (0..60).for_each(|_| bench.answer(1, psn, syndrome, sack));
            let mut cycles = 0;
            while counted(&bench) < first + 60 {
                bench.run(1);
                cycles += 1;
                assert!(cycles < 5_000, "{name}");
            }
            // Now and then the engine looks for time-outs.
            assert!(cycles <= 60 * clocks + 60, "{name}: {cycles} clocks for 60");
            let frames = bench.frames_of(1).len();
            bench.run(1_000);
            assert_eq!((frames, bench.frames_of(1).len()), (32, 32), "{name}");
        }
    }
}

/// Three QPs send their messages beside QP 1, whose peer does what `peer` says every 20 cycles, if it sends at all. Gives
/// cycles, packets of the three, and of all until then.
fn beside(bench: &mut Bench, mut peer: Option<impl FnMut(&mut Bench)>) -> (u64, usize, usize) {
    for q in 1..=4 {
        bench.connect(q, Settings { log2_mtu: 8, ..Settings::default() });
        bench.supply(q, 4096);
    }
    bench.silent(1);
    bench.run(6_000);
    for q in if peer.is_some() { 1..=4 } else { 2..=4 } {
        bench.post(q, &row_of(100, 4096), false);
    }
    let mut cycles = 0;
    while (2..=4).any(|q| bench.statuses(q).len() < 100) {
        bench.run(20);
        cycles += 20;
        if let Some(peer) = &mut peer {
            peer(bench);
        }
        assert!(cycles < 1_000_000);
    }
    let frames = [1, 2, 3, 4].map(|q| bench.frames_of(q).len());
    (cycles, frames[1..].iter().sum(), frames.iter().sum())
}

/// Demands that packets leave at least nine tenths as fast as without that peer, and that the others have their share of
/// them. Gives the packets of QP 1.
fn check_share(name: &str, width: u32, bench: &mut Bench, peer: impl FnMut(&mut Bench)) -> usize {
    let setup = Setup { round_trip: 500, ack_every: 4, ..Setup::default() };
    let (alone, sent, _) = beside(&mut Bench::new(width, setup, 19), None::<fn(&mut Bench)>);
    let (cycles, good, all) = beside(bench, Some(peer));
    let rate = (alone as f64 / sent as f64) / (cycles as f64 / all as f64);
    let share = good as f64 / all as f64;
    eprintln!(
        "DATA_W {width}, {name}: {:.1} % of the rate without, {:.1} % of it the others' ({} packets)",
        100.0 * rate,
        100.0 * share,
        all - good
    );
    assert!(rate >= 0.9 && share >= 0.9 * 0.75, "{alone} cycles alone, {cycles} beside it, {good} of {all} packets");
    all - good
}

#[test]
fn fairness_a_peer_that_acknowledges_the_newest_first_leaves_others_their_share() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { round_trip: 500, ack_every: 4, ..Setup::default() }, 19);
        let mut peer = NewestFirst::new(1);
        let sent = check_share("newest acknowledged first", width, &mut bench, |bench| {
            peer.answer(bench);
        });
        assert!(sent > 300);
    }
}

#[test]
fn fairness_storms_of_naks_and_rnrs_for_packets_in_flight_leave_others_their_share() {
    for width in widths() {
        // A NAK has all that is in flight sent again; an RNR halts its QP, and firmware hears of it once.
        for (name, syndrome, events) in
            [("NAKs", 0x60, vec![]), ("RNRs", 0x20, vec![(EVENT_RNR, 1, Nak { syndrome: 0x20, psn: 0 }.word())])]
        {
            let mut bench = Bench::new(width, Setup { round_trip: 500, ack_every: 4, ..Setup::default() }, 19);
            let sent = check_share(name, width, &mut bench, |bench| {
                if bench.frames_of(1).len() > 100 {
                    bench.answer(1, 0, syndrome, None);
                }
            });
            assert!(sent > 100);
            assert_eq!(bench.take_events(), events, "{name}");
        }
    }
}

#[test]
fn a_wire_that_takes_nothing_for_ever_is_told_by_time_outs_and_all_is_flushed() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 22);
        bench.stuck = true;
        for q in 1..4 {
            bench.connect(q, Settings { timeout: 50, ..Settings::default() });
            bench.credits(q, &[4096; 8]);
            bench.post(q, &row_of(8, 100), false);
        }
        bench.run(40_000);
        assert!((1..4).all(|q| bench.time_outs[&q] >= 5), "{:?}", bench.time_outs);
        for q in 1..4 {
            assert!(bench.frames_of(q).is_empty());
            bench.end(q, WC_REMOTE_ERROR);
        }
        bench.run(2_000);
        for q in 1..4 {
            assert_eq!(bench.statuses(q).len(), 8, "all complete");
            assert_eq!(bench.held(q).busy, 1, "its frames wait, and what they hold with them");
        }
        bench.stuck = false;
        bench.run(4_000);
        (1..4).for_each(|q| bench.command(q, send::CMD_DRAIN));
        bench.run(1_000);
        assert_eq!((1..4).map(|q| bench.held(q)).collect::<Vec<_>>(), [NOTHING; 3]);
        assert_eq!(bench.ranges_held(), 0);
    }
}

#[test]
fn credits_of_2_31_bytes_and_more_are_longer_than_any_send() {
    for width in widths() {
        for message in [false, true] {
            let mut bench = Bench::new(width, Setup::default(), 23);
            bench.connect(1, Settings { message, ..Settings::default() });
            bench.credits(1, &[1 << 31, u32::MAX, (1 << 31) + 1, u32::MAX - 1]);
            let lengths = [1, 0x2_0000, 100, 4097];
            let posted: Vec<_> = lengths.iter().map(|&len| Element::plain(0x10_0000, len)).collect();
            bench.post(1, &posted, false);
            bench.finish(100_000);
            assert_eq!(bench.statuses(1), [WC_OK; 4]);
            assert_eq!(bench.frames_of(1).len(), 1 + 32 + 1 + 2);
        }
    }
}

#[test]
fn inv_6_answers_to_page_requests_that_nobody_made_are_counted_and_change_nothing() {
    for width in widths() {
        let setup = Setup { missing: 0.5, service: 400, loss: 0.03, stalls: 0.1, ..Setup::default() };
        let mut bench = Bench::new(width, setup, 20);
        for q in 1..4 {
            bench.connect(q, Settings { log2_mtu: 10, log2_block: 12, timeout: 300, ..Settings::default() });
            bench.supply(q, 5000);
            bench.post(q, &row_of(40, 5000), false);
        }
        let mut rng = Rng(21);
        let mut strays = 0;
        for _ in 0..800 {
            bench.run(rng.below(40));
            // also of QPs that there are not
            let (q, block) = (rng.below(5) as u32, rng.below(64) as u32);
            let status = if rng.chance(0.7) { 0 } else { DENIED };
            strays += u32::from(bench.stray(q, block, status));
        }
        bench.run(200);
        bench.finish(3_000_000);
        assert_eq!((bench.strays_counted, bench.take_events()), (strays, vec![]));
        assert!(strays > 500);
    }
}

#[test]
fn cr_1_a_list_with_a_credit_of_no_bytes_is_refused_in_stream_mode() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 17);
        for q in [1, 2] {
            bench.connect(q, Settings::default());
            bench.credits(q, &[100; 10][..if q == 1 { 1 } else { 10 }]);
            bench.post(q, &row_of(1, 80), false);
        }
        bench.run(2_000);
        bench.list(1, 1, &[0, 50]);
        bench.post(1, &row_of(1, 80), false);
        bench.run(500);
        bench.post(2, &row_of(5, 100), false);
        bench.run(4_000);
        assert_eq!(bench.take_events(), [(EVENT_LIST, 1, List { answer: LIST_BAD }.word())]);
        assert_eq!(bench.lists_counted, [2, 0, 1]);
        assert_eq!([1, 2].map(|q| bench.frames_of(q).len()), [1, 6], "no packet without bytes; the other goes on");
    }
}

#[test]
fn vc_4_what_a_lost_packet_holds_goes_back_when_its_memory_cannot_be_had() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 15);
        bench.connect(7, Settings::default());
        bench.silent(7);
        bench.credits(7, &[8192; 8]);
        let two = Element { sges: vec![(0x1_0000, 500), (0x5_0000, 500)], ..Element::default() };
        bench.post(
            7,
            &[two, Element::plain(0x2_0000, 500), Element::plain(0x3_0000, 500), Element::plain(0x4_0000, 500)],
            false,
        );
        bench.run(3_000);
        assert_eq!((bench.frames_of(7).len(), bench.ranges_held()), (4, 0));
        bench.deny(0x5_0000, 500);
        bench.answer(7, 0xff_ffff, 0x1f, Some(0b111 << 124));
        bench.run(4_000);
        assert_eq!(bench.take_events(), [(EVENT_NO_MEMORY, 7, NoMemory { again: 1, status: DENIED.into() }.word())]);
        assert_eq!((bench.ranges_held(), bench.held(7).holds & MEMORY), (1, MEMORY), "one part is held");
        bench.end(7, WC_REMOTE_ERROR);
        bench.command(7, send::CMD_DRAIN);
        bench.run(500);
        assert_eq!((bench.ranges_held(), bench.held(7), bench.statuses(7).len()), (0, NOTHING, 4));
    }
}

#[test]
fn vc_4_memory_of_a_lost_packet_that_is_gone_is_told_after_that_of_a_new_one() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 21);
        bench.connect(7, Settings::default());
        bench.silent(7);
        bench.credits(7, &[8192; 8]);
        bench.deny(0x6_0000, 500);
        let sends = [1, 2, 3, 4, 6, 7].map(|page| Element::plain(page << 16, 500));
        bench.post(7, &sends, false);
        bench.run(3_000);
        assert_eq!(
            (bench.frames_of(7).len(), bench.take_events()),
            (4, vec![(EVENT_NO_MEMORY, 7, NoMemory { again: 0, status: DENIED.into() }.word())])
        );
        // Each is told once, however often the QP is looked at.
        bench.deny(0x1_0000, 500);
        for _ in 0..2 {
            bench.answer(7, 0xff_ffff, 0x1f, Some(0b111 << 124));
            bench.post(7, &[Element::plain(0x8_0000, 500)], false);
            bench.run(2_000);
        }
        assert_eq!(bench.take_events(), [(EVENT_NO_MEMORY, 7, NoMemory { again: 1, status: DENIED.into() }.word())]);
        assert_eq!(bench.frames_of(7).len(), 4);
        bench.end(7, WC_REMOTE_ERROR);
        bench.command(7, send::CMD_DRAIN);
        bench.run(500);
        assert_eq!((bench.ranges_held(), bench.held(7), bench.statuses(7).len()), (0, NOTHING, 8));
    }
}

#[test]
fn vc_4_a_lost_packet_that_is_acknowledged_while_its_memory_is_on_its_way_does_not_go_again() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 1_500, ..Setup::default() }, 19);
        bench.connect(7, Settings::default());
        bench.silent(7);
        // More often than there are places for lost packets.
        for round in 0..9_u32 {
            let first = round * 4;
            let [here, gone, late] = [0x10_0000, 0x20_0000, 0x30_0000].map(|va| va + (u64::from(round) << 12));
            let parts = Element { sges: vec![(here, 100), (gone, 150), (late, 250)], ..Element::default() };
            bench.credits(7, &[512; 4]);
            bench.post(7, &[vec![parts], row_of(3, 500)].concat(), false);
            bench.run(3_000);
            bench.evict(late, 250);
            match round % 3 {
                0 => bench.deny(gone, 150),
                1 => bench.evict(gone, 150),
                _ => bench.deny(late, 250),
            }
            bench.answer(7, first.wrapping_sub(1) & 0xff_ffff, 0x1f, Some(0b111 << 124));
            bench.run(500);
            assert_eq!(bench.ranges_held(), [1, 1, 2][round as usize % 3], "what is not missing, of a lost packet");
            bench.answer(7, first + 3, 0x1f, None);
            bench.run(200);
            assert_eq!(bench.statuses(7).len() as u32, first + 4);
            bench.run(3_000);
            assert_eq!((bench.frames_of(7).len() as u32, bench.take_events()), (first + 4, vec![]), "round {round}");
            assert_eq!((bench.ranges_held(), bench.held(7)), (0, NOTHING), "round {round}");
        }
        bench.finish(1_000);
        assert_eq!(bench.packets_counted, [36, 0]);
    }
}

#[test]
fn a_lost_packet_that_is_acknowledged_may_find_another_one_in_its_place_of_the_log() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 40_000, ..Setup::default() }, 20);
        bench.connect(7, Settings::default());
        bench.silent(7);
        let post = |bench: &mut Bench, elements: &[Element]| {
            bench.credits(7, &vec![500; elements.len()]);
            bench.post(7, elements, false);
            bench.run(4_000);
            bench.frames_of(7).len() as u32
        };
        post(&mut bench, &[vec![Element::plain(0x80_0000, 8)], row_of(3, 500)].concat());
        bench.evict(0x80_0000, 8);
        bench.answer(7, 0xff_ffff, 0x1f, Some(0b111 << 124));
        bench.run(500);
        let mut sent = 4;
        while sent < 280 {
            bench.answer(7, sent - 1, 0x1f, None);
            assert_eq!(post(&mut bench, &row_of(32, 500)), sent + 32);
            sent += 32;
        }
        bench.answer(7, sent - 1, 0x1f, None);
        bench.run(40_000);
        assert_eq!((bench.frames_of(7).len() as u32, bench.ranges_held()), (sent, 0), "it does not go again");
        // Nor does it keep others from that.
        assert_eq!(post(&mut bench, &row_of(4, 500)), sent + 4);
        bench.answer(7, sent - 1, 0x1f, Some(0b111 << 124));
        bench.run(2_000);
        assert_eq!(bench.frames_of(7).last().map(|frame| psn_of(&frame.bytes)), Some(sent));
        bench.answer(7, sent + 3, 0x1f, None);
        bench.finish(1_000);
    }
}

#[test]
fn vc_4_new_packets_go_on_while_the_page_of_a_lost_one_is_on_its_way() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 3_000, ..Setup::default() }, 18);
        bench.connect(7, Settings::default());
        bench.silent(7);
        bench.credits(7, &[8192; 8]);
        let sends = |first: u64| -> Vec<_> { (0..4).map(|n| Element::plain(first + (n << 16), 500)).collect() };
        bench.post(7, &sends(0x10_0000), false);
        bench.run(3_000);
        assert_eq!((bench.frames_of(7).len(), bench.ranges_held()), (4, 0));
        bench.evict(0x10_0000, 0x1000);
        bench.answer(7, 0xff_ffff, 0x1f, Some(0b111 << 124));
        bench.run(300);
        bench.post(7, &sends(0x20_0000), false);
        bench.run(2_000);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 4, 5, 6, 7], "the first one's page is not there yet");
        bench.run(3_000);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!(bench.packets_counted, [9, 1]);
    }
}

#[test]
fn memory_that_is_withdrawn_is_let_go_of_and_asked_for_anew() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup { service: 3_000, ..Setup::default() }, 16);
        bench.connect(1, Settings { window: 4, timeout: 300, log2_block: 13, ..Settings::default() });
        bench.connect(2, Settings::default());
        bench.silent(1);
        for q in [1, 2] {
            bench.credits(q, &[0x10_0000; 2]);
        }
        bench.post(1, &[Element::plain(0x5_0000, 0x2_0000)], false);
        bench.run(6_000);
        // 4 packets of 4096 bytes have left, the window is full; 14 blocks of 8192 are held ahead
        assert_eq!((bench.frames_of(1).len(), bench.ranges_held()), (4, 14));
        bench.revoke(0x5_8000, 0x6000);
        assert_eq!(bench.ranges_held(), 11);
        bench.post(2, &[Element::plain(0x5_8000, 0x3000)], false);
        for psn in 0..32 {
            bench.answer(1, psn, 0x1f, None);
            bench.run(1_500);
        }
        bench.finish(40_000);
        assert_eq!((bench.statuses(1), bench.statuses(2)), (vec![WC_OK], vec![WC_OK]));
    }
}

#[test]
fn a_reset_ends_the_timers_of_all_rows() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 17);
        bench.connect(1, Settings { timeout: 1_000, ..Settings::default() });
        bench.silent(1);
        bench.credits(1, &[100]);
        bench.post(1, &row_of(1, 100), false);
        bench.run(2_000);
        bench.reset();
        bench.run(90_000);
        assert!(bench.take_events().is_empty());
        assert!(bench.frames_of_nobody().is_empty(), "nothing is sent again");
    }
}

#[test]
fn lat_tx_from_a_doorbell_with_inline_data_to_the_mac() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 8);
        bench.connect(3, Settings::default());
        bench.credits(3, &[4096; 8]);
        bench.run(200);
        let mut worst = 0;
        for _ in 0..8 {
            let rung = bench.post(3, &[Element::inline(40)], true);
            bench.run(100);
            let frame = bench.frames_of(3).last().expect("a frame").at;
            worst = worst.max(frame - rung.get());
        }
        eprintln!("lat_tx: DATA_W {width}: {worst} cycles from doorbell to MAC (bar 32 to the first beat)");
        assert!(worst <= 26, "{worst} cycles leave too few for the MAC");
        bench.finish(10_000);
    }
}

/// Cycles per 64-byte message over `qps` QPs.
fn message_rate(width: u32, qps: u32) -> f64 {
    const EACH: u32 = 512;
    let mut bench = Bench::new(width, Setup { round_trip: 500, ack_every: 8, ..Setup::default() }, 9);
    let count = EACH / qps.min(8) / if qps == 1 { 1 } else { 2 };
    for q in 0..qps {
        bench.connect(q, Settings::default());
        bench.supply(q, 4096);
    }
    bench.run(6_000);
    for q in 0..qps {
        bench.post(q, &row_of(count, 64), false);
    }
    bench.finish(200_000);
    // from the middle of the run
    let mut at: Vec<u64> = (0..qps).flat_map(|q| bench.frames_of(q).iter().map(|f| f.at).collect::<Vec<_>>()).collect();
    at.sort_unstable();
    let (a, b) = (at.len() / 4, at.len() * 3 / 4);
    (at[b] - at[a]) as f64 / (b - a) as f64
}

#[test]
fn msg_rate_64_byte_messages() {
    for width in widths() {
        for qps in [1, 16] {
            let rate = message_rate(width, qps);
            eprintln!("msg_rate: DATA_W {width}, {qps} QPs: {rate:.2} cycles per message");
            let wire = f64::from((64 + 62 + 4 + 24) * 8) / f64::from(width);
            let bar = if qps == 1 { 16.0 } else { 8.0 };
            assert!(rate <= f64::max(bar, wire * 1.02 + 1.0), "{rate:.2}");
        }
    }
}

#[test]
fn bw_1qp_the_wire_is_full() {
    for width in widths() {
        for log2_mtu in [10, 12] {
            let mut bench = Bench::new(width, Setup { round_trip: 500, ack_every: 4, ..Setup::default() }, 10);
            bench.connect(3, Settings { log2_mtu, ..Settings::default() });
            bench.supply(3, 65_536);
            bench.run(6_000);
            bench.post(3, &row_of(8, 65_536), false);
            bench.finish(400_000);
            let at: Vec<u64> = bench.frames_of(3).iter().map(|f| f.at).collect();
            let (a, b) = (at.len() / 4, at.len() * 3 / 4);
            let cycles = (at[b] - at[a]) as f64 / (b - a) as f64;
            // a packet in the middle, as the wire allows: frame, iCRC, preamble, FCS and gap
            let wire =
                (f64::from((1 << log2_mtu) + 58 + 4) / f64::from(width / 8)).ceil() + 24.0 * 8.0 / f64::from(width);
            eprintln!(
                "bw: DATA_W {width}, MTU {}: {cycles:.1} cycles per packet, wire {wire:.1}: {:.1} %",
                1 << log2_mtu,
                100.0 * wire / cycles
            );
            assert!(wire / cycles >= 0.98);
        }
    }
}
