// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engines as `berth_protocol` wants them: the trait `Hw` by register writes.

use berth_abi::card::{FIRST_QPN, RX_SLOTS, TX_SLOTS};
use berth_abi::cpu::{CqAttr, DbCfg, TxSend, rx_slot, tx_slot};
use berth_abi::message::Entry;
use berth_abi::ring::{CRASH_LOOP, CRASH_PANIC};
use berth_abi::rows::{HALF_SENDS, LAYOUT_NUMBER, LAYOUT_TAG, send};
use berth_protocol::card::hw::{Hw, Log};
use berth_soc::{Soc, regs};

use crate::log;

/// The engines behind the registers.
pub struct Engines {
    /// The hardware.
    pub soc: Soc,
}

impl Engines {
    /// The fast path's rows are laid out as this firmware knows them.
    pub fn rows_are_known(&self) -> bool {
        let word = self.soc.fast.read(HALF_SENDS, FIRST_QPN, send::LAYOUT);
        send::Layout::from_word(word) == send::Layout { tag: LAYOUT_TAG, number: LAYOUT_NUMBER }
    }
}

/// Writes an event to the host, whose ring must have room.
#[inline(never)]
pub fn write_event(soc: &mut Soc, entry: &Entry) {
    for (cell, &word) in soc.regs.ev.iter().zip(entry) {
        regs::set(cell, word);
    }
    regs::set(&soc.regs.ev_go, 1);
}

impl Hw for Engines {
    #[inline(always)]
    fn tx_write(&mut self, slot: u32, word: u32, data: &[u32]) {
        debug_assert!(slot < TX_SLOTS);
        self.soc.pkt.write(tx_slot(slot) + word * 4, data);
    }

    #[inline(always)]
    fn tx_send(&mut self, slot: u32, len: u32, flags: u32) {
        let send = TxSend { length: len, slot, ..TxSend::from_word(flags) };
        regs::set(&self.soc.regs.tx_send, send.word());
    }

    #[inline(always)]
    fn rx_read(&mut self, slot: u32, word: u32, out: &mut [u32]) {
        debug_assert!(slot < RX_SLOTS);
        self.soc.pkt.read(rx_slot(slot) + word * 4, out);
    }

    #[inline(always)]
    fn rx_free(&mut self, slot: u32) {
        regs::set(&self.soc.regs.rx_free, slot);
    }

    #[inline(always)]
    fn event_space(&mut self) -> u32 {
        self.soc.regs.ev_space.read()
    }

    #[inline(always)]
    fn event(&mut self, words: &[u32; 16]) {
        write_event(&mut self.soc, words);
    }

    #[inline(never)]
    fn cq_config(&mut self, cqn: u32, base: u64, attr: CqAttr) {
        let r = self.soc.regs;
        regs::set(&r.cq_base_lo, base as u32);
        regs::set(&r.cq_base_hi, (base >> 32) as u32);
        regs::set(&r.cq_attr, attr.word());
        regs::set(&r.cq_cfg, cqn);
    }

    #[inline(never)]
    fn doorbell_config(&mut self, qpn: u32, cfg: DbCfg) {
        let r = self.soc.regs;
        regs::set(&r.db_cfg_qpn, qpn);
        regs::set(&r.db_cfg, cfg.word());
    }

    #[inline(always)]
    fn fast_write(&mut self, half: u32, qpn: u32, word: u32, value: u32) {
        self.soc.fast.write(half, qpn, word, value);
    }

    #[inline(always)]
    fn fast_read(&mut self, half: u32, qpn: u32, word: u32) -> u32 {
        self.soc.fast.read(half, qpn, word)
    }

    #[inline(never)]
    fn raw_set(&mut self, go: u32, words: &[u32; 6]) {
        let r = self.soc.regs;
        for (cell, &word) in r.raw.iter().zip(words) {
            regs::set(cell, word);
        }
        regs::set(&r.raw_go, go);
    }

    #[inline(always)]
    fn raw_busy(&mut self) -> u32 {
        self.soc.regs.raw_busy.read()
    }

    #[inline(always)]
    fn timer_arm(&mut self, deadline: u64) {
        let r = self.soc.regs;
        regs::set(&r.timer_lo, deadline as u32);
        regs::set(&r.timer_hi, (deadline >> 32) as u32);
    }

    #[inline(always)]
    fn timer_off(&mut self) {
        regs::set(&self.soc.regs.timer_off, 1);
    }

    #[inline(always)]
    fn count(&mut self, index: u32, n: u32) {
        self.soc.stats.add(index, n);
    }

    #[inline(always)]
    fn log(&mut self, line: Log) {
        log::later(line);
    }

    fn crash(&mut self, kind: u32) {
        match kind {
            CRASH_PANIC => panic!("the host asked for a panic"),
            CRASH_LOOP => loop {
                core::hint::spin_loop();
            },
            _ => {}
        }
    }
}

/// The data QPs' rows are in range of the doorbell table.
const _: () = assert!(FIRST_QPN + berth_abi::card::NUM_QPS <= berth_abi::card::NUM_QP_ROWS);
