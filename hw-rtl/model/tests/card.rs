// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card without firmware: identity, the debug port, and its memories.

use berth_abi::card::*;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::status::FW_RESET;
use berth_rtl::{BAR_CONTROL, CardConfig};
use berth_rtl_host::{Board, Memory, seed};

/// A card without firmware, in a slot without memory.
fn bench(seed: u64) -> Board {
    Board::new(CardConfig { seed, ..CardConfig::default() }, Memory::new(seed))
}

#[test]
fn card_tells_what_it_is() {
    let mut bench = bench(seed(1));
    let mut read = |offset: u32| bench.card.mmio_read(BAR_CONTROL, offset.into(), 4) as u32;
    assert_eq!(read(HOST_ID), CARD_ID);
    assert_eq!(read(HOST_ABI), ABI_VERSION);
    assert_eq!(read(HOST_CLOCK_HZ), CLOCK_HZ);
    assert_eq!(read(HOST_STATUS), FW_RESET);
    assert_eq!(bench.cpu(CPU_ID), CARD_ID);
    assert_eq!(bench.cpu(CPU_CLOCK_HZ), CLOCK_HZ);
}

#[test]
fn packet_ram_keeps_every_word() {
    let mut bench = bench(seed(2));
    let words: Vec<u32> = (0..PKT_BYTES / 4).step_by(61).collect();
    for &w in &words {
        bench.write(CPU_PKT + 4 * w, w ^ 0x5555_aaaa);
    }
    for &w in &words {
        assert_eq!(bench.read(CPU_PKT + 4 * w), w ^ 0x5555_aaaa, "word {w}");
    }
}

#[test]
fn statistics_written_by_the_core_are_read_by_the_host() {
    let mut bench = bench(seed(3));
    for w in 0..STATS_BYTES / 4 {
        bench.write(CPU_STATS + 4 * w, 3 * w + 1);
    }
    for w in (0..STATS_BYTES / 4).step_by(2) {
        let read = bench.card.mmio_read(BAR_CONTROL, u64::from(HOST_STATS + 4 * w), 8);
        assert_eq!(read, u64::from(3 * w + 1) | u64::from(3 * w + 4) << 32);
    }
}

#[test]
fn access_to_nothing_answers_all_ones() {
    let mut bench = bench(seed(4));
    for addr in [FW_RAM_BYTES, 0x4000_0000, CPU_REGS + 0x1000, CPU_PKT + 0x10_0000, 0xffff_fffc] {
        bench.write(addr, 0);
        assert_eq!(bench.read(addr), u32::MAX, "{addr:#x}");
    }
}

#[test]
fn armed_timer_becomes_pending_at_its_deadline_and_not_before() {
    let mut bench = bench(seed(5));
    let start = bench.card.card_cycles();
    let deadline = start + 5000;
    bench.write(CPU_REGS + CPU_TIMER_LO, deadline as u32);
    bench.write(CPU_REGS + CPU_TIMER_HI, (deadline >> 32) as u32);
    assert_eq!(bench.card.timer(), Some(bench.card.cycles() + deadline - bench.card.card_cycles()));
    assert_eq!(bench.cpu(CPU_PENDING) & 1 << PEND_TIMER, 0);
    assert!(bench.card.run_until_idle(10));
    bench.card.skip_to(bench.card.timer().expect("armed") - 2);
    assert_eq!(bench.card.card_cycles(), deadline - 2);
    assert!(bench.card.idle());
    // the read of CPU_WAIT stalls until the deadline
    assert_eq!(bench.cpu(CPU_WAIT) & 1 << PEND_TIMER, 1 << PEND_TIMER);
    assert!((deadline..deadline + 20).contains(&bench.card.card_cycles()));
    bench.write(CPU_REGS + CPU_TIMER_OFF, 0);
    assert_eq!(bench.cpu(CPU_PENDING), 0);
}
