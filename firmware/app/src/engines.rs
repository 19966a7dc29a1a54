// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engines as `berth_protocol` wants them: the trait `Hw` by register writes.

use berth_abi::card::{FIRST_QPN, RX_SLOTS, SCRATCH_SLOTS, TX_SLOTS};
use berth_abi::cpu::{CRD_LIST_BEGIN, CRD_RESET, FAST_LAYOUT_TAG, FAST_LAYOUT_WORD, rx_slot, scratch, tx_slot};
use berth_abi::ring::{CRASH_LOOP, CRASH_PANIC};
use berth_protocol::hw::{FAST_SENDS, Hw, Log};
use berth_soc::{Soc, bits, regs};

/// `CPU_XLT_GO` operation: acquire.
const XLT_ACQUIRE: u8 = 1;
/// `CPU_XLT_GO` operation: release.
const XLT_RELEASE: u8 = 2;

/// The engines behind the registers.
pub struct Engines {
    /// The hardware.
    pub soc: Soc,
}

impl Engines {
    #[inline(always)]
    fn dma(&mut self, local: u32, len: u32, tag: u16, addr: u64, go: bits::DmaGo) {
        let r = self.soc.regs;
        let mut len_tag = bits::DmaLenTag(0);
        len_tag.set_len(len as u16);
        len_tag.set_tag(tag);
        regs::set(&r.dma_local, local);
        regs::set(&r.dma_len_tag, len_tag.0);
        regs::set(&r.dma_addr_lo, addr as u32);
        regs::set(&r.dma_addr_hi, (addr >> 32) as u32);
        regs::set(&r.dma_go, go.0);
    }

    #[inline(always)]
    fn xlt(&mut self, op: u8, asid: u8, va: u64, len: u32, write: bool, tag: u16) {
        let r = self.soc.regs;
        let mut go = bits::XltGo(0);
        go.set_op(op);
        go.set_write(write);
        go.set_asid(asid);
        regs::set(&r.xlt_va_lo, va as u32);
        regs::set(&r.xlt_va_hi, (va >> 32) as u32);
        regs::set(&r.xlt_len, len);
        regs::set(&r.xlt_tag, u32::from(tag));
        regs::set(&r.xlt_go, go.0);
    }
}

impl Hw for Engines {
    #[inline(always)]
    fn tx_write(&mut self, slot: u32, word: u32, data: &[u32]) {
        debug_assert!(slot < TX_SLOTS);
        self.soc.pkt.write(tx_slot(slot) + word * 4, data);
    }

    #[inline(always)]
    fn tx_write_byte(&mut self, slot: u32, byte: u32, value: u8) {
        debug_assert!(slot < TX_SLOTS);
        self.soc.pkt.write_byte(tx_slot(slot) + byte, value);
    }

    #[inline(always)]
    fn tx_send(&mut self, slot: u32, len: u32, flags: u32) {
        let mut send = bits::TxSend(flags);
        send.set_length(len as u16);
        send.set_slot(slot as u8);
        regs::set(&self.soc.regs.tx_send, send.0);
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
    fn scratch_read(&mut self, place: u32, word: u32, out: &mut [u32]) {
        debug_assert!(place < SCRATCH_SLOTS);
        self.soc.pkt.read(scratch(place) + word * 4, out);
    }

    #[inline(always)]
    fn dma_read_scratch(&mut self, place: u32, len: u32, addr: u64, tag: u16) {
        self.dma(scratch(place), len, tag, addr, bits::DmaGo(0));
    }

    #[inline(always)]
    fn dma_attach(&mut self, slot: u32, byte: u32, len: u32, asid: u8, va: u64) {
        let mut go = bits::DmaGo(0);
        go.set_virtual(true);
        go.set_attach(true);
        go.set_slot(slot as u8);
        go.set_asid(asid);
        self.dma(tx_slot(slot) + byte, len, 0, va, go);
    }

    #[inline(always)]
    fn dma_write_rx(&mut self, slot: u32, byte: u32, len: u32, asid: u8, va: u64, tag: u16) {
        let mut go = bits::DmaGo(0);
        go.set_write(true);
        go.set_virtual(true);
        go.set_asid(asid);
        self.dma(rx_slot(slot) + byte, len, tag, va, go);
    }

    #[inline(always)]
    fn xlt_acquire(&mut self, asid: u8, va: u64, len: u32, write: bool, tag: u16) {
        self.xlt(XLT_ACQUIRE, asid, va, len, write, tag);
    }

    #[inline(always)]
    fn xlt_release(&mut self, asid: u8, va: u64, len: u32, write: bool, tag: u16) {
        self.xlt(XLT_RELEASE, asid, va, len, write, tag);
    }

    #[inline(always)]
    fn event_space(&mut self) -> u32 {
        self.soc.regs.ev_space.read()
    }

    #[inline(never)]
    fn event(&mut self, words: &[u32; 16]) {
        let r = self.soc.regs;
        for (cell, &word) in r.ev.iter().zip(words) {
            regs::set(cell, word);
        }
        regs::set(&r.ev_go, 1);
    }

    #[inline(always)]
    fn cqe(&mut self, cqn: u32, words: &[u32; 8]) {
        let r = self.soc.regs;
        for (cell, &word) in r.cqe.iter().zip(words) {
            regs::set(cell, word);
        }
        regs::set(&r.cqe_go, cqn);
    }

    #[inline(never)]
    fn cq_config(&mut self, cqn: u32, base: u64, attr: u32) {
        let r = self.soc.regs;
        regs::set(&r.cq_base_lo, base as u32);
        regs::set(&r.cq_base_hi, (base >> 32) as u32);
        regs::set(&r.cq_attr, attr);
        regs::set(&r.cq_cfg, cqn);
    }

    #[inline(never)]
    fn doorbell_config(&mut self, qpn: u32, cfg: u32) {
        let r = self.soc.regs;
        regs::set(&r.db_cfg_qpn, qpn);
        regs::set(&r.db_cfg, cfg);
    }

    #[inline(always)]
    fn credit(&mut self, op: u32, qpn: u32, arg0: u32, arg1: u32) -> u32 {
        let r = self.soc.regs;
        regs::set(&r.crd_arg0, arg0);
        if op == CRD_RESET || op == CRD_LIST_BEGIN {
            // The only ones with a second argument.
            regs::set(&r.crd_arg1, arg1);
        }
        let mut go = bits::CrdOp(0);
        go.set_op(op as u8);
        go.set_qpn(qpn as u16);
        regs::set(&r.crd_op, go.0);
        r.crd_rsp0.read()
    }

    #[inline(always)]
    fn credit_rsp1(&mut self) -> u32 {
        self.soc.regs.crd_rsp1.read()
    }

    #[inline(always)]
    fn credit_rsp2(&mut self) -> u32 {
        self.soc.regs.crd_rsp2.read()
    }

    #[inline(never)]
    fn fast_layout(&mut self) -> u32 {
        let word = self.soc.fast.read(FAST_SENDS, FIRST_QPN, FAST_LAYOUT_WORD);
        if word >> 16 == FAST_LAYOUT_TAG { word & 0xffff } else { 0 }
    }

    #[inline(always)]
    fn fast_write(&mut self, half: u32, qpn: u32, word: u32, value: u32) {
        self.soc.fast.write(half, qpn, word, value);
    }

    #[inline(always)]
    fn fast_read(&mut self, half: u32, qpn: u32, word: u32) -> u32 {
        self.soc.fast.read(half, qpn, word)
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
    fn discount(&mut self, index: u32, n: u32) {
        self.soc.stats.sub(index, n);
    }

    #[inline(never)]
    fn log(&mut self, line: Log) {
        match line {
            Log::NetConfig(ip, mtu) => defmt::info!("name {=[u8]}, MTU {=u32}", ip.to_be_bytes(), mtu),
            Log::Connected(qpn, ip, peer) => {
                defmt::info!("QP {=u32}: connected to {=[u8]} QP {=u32}", qpn, ip.to_be_bytes(), peer)
            }
            Log::Closed(qpn, reason) => defmt::info!("QP {=u32}: connection over, reason {=u32}", qpn, reason),
            Log::QpError(qpn, reason) => defmt::warn!("QP {=u32}: error, reason {=u32}", qpn, reason),
            Log::PeerLost(ip) => defmt::warn!("peer {=[u8]} does not answer", ip.to_be_bytes()),
            Log::PeerRestarted(ip) => defmt::warn!("peer {=[u8]} has been restarted", ip.to_be_bytes()),
            Log::Resend(qpn, psn, why) => defmt::info!("QP {=u32}: back to PSN {=u32}, cause {=u32}", qpn, psn, why),
            Log::Recall(qpn, n) => defmt::info!("QP {=u32}: {=u32} credits recalled", qpn, n),
            Log::ListRefused(qpn, why) => defmt::warn!("QP {=u32}: credit list refused, {=u32}", qpn, why),
        }
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

/// The data QPs' rows are in range of the doorbell and credit tables.
const _: () = assert!(FIRST_QPN + berth_abi::card::NUM_QPS <= berth_abi::card::NUM_QP_ROWS);
