// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's half of the fast path: berth_fp_tx with all around it played (`tx/mod.rs`): host memory, queues,
//! translation, packet RAM, MAC, and the peer at the other end of the wire.
#![cfg(feature = "fastpath")]

#[expect(dead_code, reason = "scenarios.rs uses all of it")]
mod tx;

use berth_abi::cpu::LIST_BAD;
use berth_abi::status::{WC_BAD_WQE, WC_FLUSHED, WC_OK, WC_REMOTE_ERROR, WC_TOO_LONG};
use tx::{Bench, DENIED, Element, Settings, Setup, widths};

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
                (most / 2..=most).contains(&bench.peak_held),
                "{len} bytes at {va:#x}: {} bytes held",
                bench.peak_held
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

/// Of word 35 of a row: what the QP holds, and what is under way.
const BUSY: u32 = 1 << 31;
const QUEUED: u32 = 1 << 30;
const STARVED: u32 = 1 << 28;
const HOLDS: u32 = 1 << 6;

#[test]
fn firmware_knows_the_layout_of_the_rows() {
    for width in widths() {
        let mut bench = Bench::new(width, Setup::default(), 11);
        assert_eq!(bench.read(5, 63), 0x4246_0001);
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
            bench.run(20);
            assert_eq!(bench.take_events(), [(5, 1, u64::from(LIST_BAD))], "{n}");
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
        assert_eq!(bench.read(1, 36), 7, "all is acknowledged, 7 credits are left");
        assert_eq!(bench.give_up(1, 4), 6);
        assert_eq!(bench.read(1, 36), 3);
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
        assert_eq!(bench.read(1, 35), 0);
        bench.evict(0x5000, 0x1000);
        bench.post(1, &[Element::plain(0x5000, 2000), Element::plain(0x6000, 2000)], false);
        bench.run(1_000);
        assert_eq!(bench.read(1, 35), QUEUED, "no credit, no memory");
        bench.credits(1, &[1000; 8]);
        bench.run(200);
        // the second element has its memory: two blocks of each
        assert_eq!(bench.read(1, 35), QUEUED | HOLDS | 4);
        bench.run(6_000);
        assert_eq!(bench.read(1, 35), QUEUED);
        assert_eq!(bench.read(1, 36), 4 << 16 | 4);
        bench.answer(1, 2, 0x1f, None);
        bench.run(200);
        assert_eq!((bench.read(1, 36), bench.statuses(1)), (1 << 16 | 4, vec![WC_OK]));
        bench.answer(1, 3, 0x1f, None);
        bench.run(200);
        assert_eq!((bench.read(1, 36), bench.read(1, 35)), (4, 0));
        // nothing is held while all that is needed is missing
        bench.evict(0x7000, 0x1000);
        bench.post(1, &[Element::plain(0x7000, 100)], false);
        bench.run(1_000);
        assert_eq!(bench.read(1, 35), QUEUED | STARVED | HOLDS | 1);
        bench.run(3_300);
        assert_eq!(bench.read(1, 35) & BUSY, BUSY, "its payload is being read");
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
        assert_eq!(bench.take_events(), [(8, 1, 0)]);
        assert_eq!((bench.read(1, 35), bench.statuses(1).len(), bench.statuses(2).len()), (0, 0, 12));
    }
}

#[test]
fn a_doorbell_for_an_element_that_cannot_be_is_told_once() {
    for width in widths() {
        // the queue has 1024 elements; 2 are complete, 1 is not
        for (wild, ok) in [(1026, true), (1027, false), (0x8000, false), (2, false), (1, false), (0xffff, false)] {
            let mut bench = Bench::new(width, Setup::default(), 14);
            bench.connect(1, Settings::default());
            bench.credits(1, &[100; 2]);
            bench.post(1, &row_of(3, 100), false);
            bench.run(2_000);
            assert_eq!((bench.statuses(1).len(), bench.read(1, 35)), (2, QUEUED));
            bench.ring(1, wild);
            bench.run(100);
            assert_eq!(bench.take_events(), if ok { vec![] } else { vec![(9, 1, 0)] }, "{wild}");
            assert_eq!(bench.read(1, 35) & QUEUED != 0, ok);
            bench.ring(1, wild.wrapping_add(5));
            bench.run(100);
            assert_eq!(bench.take_events().len(), usize::from(ok), "it is told once");
        }
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
        assert_eq!(bench.take_events(), [(7, 7, 1 << 8 | u64::from(DENIED))]);
        assert_eq!((bench.ranges_held(), bench.read(7, 35) & HOLDS), (1, HOLDS), "one part is held");
        bench.command(7, 4 | u32::from(WC_REMOTE_ERROR) << 8);
        bench.command(7, 6);
        bench.run(500);
        assert_eq!((bench.ranges_held(), bench.read(7, 35), bench.statuses(7).len()), (0, 0, 4));
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
        let psns = |bench: &Bench| -> Vec<u8> { bench.frames_of(7).iter().map(|f| f.bytes[53]).collect() };
        assert_eq!(psns(&bench), [0, 1, 2, 3, 4, 5, 6, 7], "the first one's page is not there yet");
        bench.run(3_000);
        assert_eq!(psns(&bench), [0, 1, 2, 3, 4, 5, 6, 7, 0]);
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
