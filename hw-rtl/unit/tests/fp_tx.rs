// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's half of the fast path: berth_fp_tx with all around it played (`tx/mod.rs`): host memory, queues,
//! translation, packet RAM, MAC, and the peer at the other end of the wire.
#![cfg(feature = "fastpath")]

#[expect(dead_code, reason = "scenarios.rs uses all of it")]
mod tx;

use berth_abi::status::{WC_BAD_WQE, WC_FLUSHED, WC_OK, WC_REMOTE_ERROR, WC_TOO_LONG};
use tx::{Bench, Element, Settings, Setup, widths};

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
        assert_eq!(bench.take_events(), [(6, 7, u64::from(WC_BAD_WQE))]);
        bench.command(7, 4 | u32::from(WC_BAD_WQE) << 8);
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
        assert_eq!(bench.take_events(), [(2, 7, 0x63 << 24)]);
        bench.post(7, &row_of(1, 10), false);
        bench.run(2_000);
        assert_eq!(bench.frames_of(7).len(), 2, "nothing more is sent");
        bench.command(7, 4 | u32::from(WC_REMOTE_ERROR) << 8);
        bench.run(500);
        assert_eq!(bench.statuses(7), [WC_REMOTE_ERROR, WC_FLUSHED, WC_FLUSHED]);
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
        bench.command(7, 4 | u32::from(WC_REMOTE_ERROR) << 8);
        bench.command(7, 6);
        bench.run(1_000);
        assert_eq!((bench.statuses(7).len(), bench.ranges_held()), (10, 0));
    }
}

#[test]
fn acknowledgements_and_lists_are_framed_for_the_receivers_half() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 7);
        bench.connect(9, Settings::default());
        bench.check_own_acknowledgements(9);
        bench.check_own_lists(9);
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
