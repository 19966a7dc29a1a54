// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine registers as one block of volatile cells.
//!
//! Reads of some registers pop or stall, see `berth_abi::cpu`. Offsets are checked
//! against the ABI below, so a moved register fails the build.

use berth_abi::cpu;
use core::mem::offset_of;
use volatile_register::{RO, WO};

/// Engine registers at `CPU_REGS`.
#[repr(C)]
#[allow(missing_docs, reason = "each field is the ABI's register of the same name, which has the text")]
pub struct Regs {
    pub id: RO<u32>,
    pub wait: RO<u32>,
    pub pending: RO<u32>,
    pub status: WO<u32>,
    pub fw_code: WO<u32>,
    pub hb_challenge: RO<u32>,
    pub hb_answer: WO<u32>,
    _gap0: u32,
    pub cycle_lo: RO<u32>,
    pub cycle_hi: RO<u32>,
    pub timer_lo: WO<u32>,
    pub timer_hi: WO<u32>,
    pub timer_off: WO<u32>,
    pub clock_hz: RO<u32>,
    _gap1: [u32; 2],
    pub cmd_pop: WO<u32>,
    pub db_pop: RO<u32>,
    pub db_index: RO<u32>,
    pub db_bytes: RO<u32>,
    pub db_cfg_qpn: WO<u32>,
    pub db_cfg: WO<u32>,
    _gap2: [u32; 2],
    pub rx_desc: RO<u32>,
    pub rx_flags: RO<u32>,
    pub rx_pop: WO<u32>,
    pub rx_free: WO<u32>,
    pub tx_send: WO<u32>,
    pub tx_done: RO<u32>,
    _gap3: [u32; 2],
    pub cmd: [RO<u32>; 16],
    pub dma_local: WO<u32>,
    pub dma_len_tag: WO<u32>,
    pub dma_addr_lo: WO<u32>,
    pub dma_addr_hi: WO<u32>,
    pub dma_go: WO<u32>,
    pub dma_done: RO<u32>,
    _gap4: [u32; 2],
    pub xlt_va_lo: WO<u32>,
    pub xlt_va_hi: WO<u32>,
    pub xlt_len: WO<u32>,
    pub xlt_tag: WO<u32>,
    pub xlt_go: WO<u32>,
    pub xlt_rsp: RO<u32>,
    _gap5: [u32; 2],
    pub ev: [WO<u32>; 16],
    pub ev_go: WO<u32>,
    pub ev_space: RO<u32>,
    _gap6: [u32; 2],
    pub cq_base_lo: WO<u32>,
    pub cq_base_hi: WO<u32>,
    pub cq_attr: WO<u32>,
    pub cq_cfg: WO<u32>,
    pub cqe: [WO<u32>; 8],
    pub cqe_go: WO<u32>,
    _gap7: [u32; 11],
    pub fast_event: RO<u32>,
    pub fast_arg: RO<u32>,
    _gap8: [u32; 2],
    pub raw: [WO<u32>; 6],
    pub raw_go: WO<u32>,
    pub raw_busy: RO<u32>,
}

macro_rules! lies_at {
    ($($field:ident = $abi:ident),* $(,)?) => {
        $(const _: () = assert!(offset_of!(Regs, $field) == cpu::$abi as usize, stringify!($field));)*
    };
}

lies_at! {
    id = CPU_ID, wait = CPU_WAIT, pending = CPU_PENDING, status = CPU_STATUS, fw_code = CPU_FW_CODE,
    hb_challenge = CPU_HB_CHALLENGE, hb_answer = CPU_HB_ANSWER,
    cycle_lo = CPU_CYCLE_LO, cycle_hi = CPU_CYCLE_HI, timer_lo = CPU_TIMER_LO, timer_hi = CPU_TIMER_HI,
    timer_off = CPU_TIMER_OFF, clock_hz = CPU_CLOCK_HZ,
    cmd_pop = CPU_CMD_POP, db_pop = CPU_DB_POP, db_index = CPU_DB_INDEX, db_bytes = CPU_DB_BYTES,
    db_cfg_qpn = CPU_DB_CFG_QPN, db_cfg = CPU_DB_CFG,
    rx_desc = CPU_RX_DESC, rx_flags = CPU_RX_FLAGS, rx_pop = CPU_RX_POP, rx_free = CPU_RX_FREE,
    tx_send = CPU_TX_SEND, tx_done = CPU_TX_DONE, cmd = CPU_CMD_W0,
    dma_local = CPU_DMA_LOCAL, dma_len_tag = CPU_DMA_LEN_TAG, dma_addr_lo = CPU_DMA_ADDR_LO,
    dma_addr_hi = CPU_DMA_ADDR_HI, dma_go = CPU_DMA_GO, dma_done = CPU_DMA_DONE,
    xlt_va_lo = CPU_XLT_VA_LO, xlt_va_hi = CPU_XLT_VA_HI, xlt_len = CPU_XLT_LEN, xlt_tag = CPU_XLT_TAG,
    xlt_go = CPU_XLT_GO, xlt_rsp = CPU_XLT_RSP,
    ev = CPU_EV_W0, ev_go = CPU_EV_GO, ev_space = CPU_EV_SPACE,
    cq_base_lo = CPU_CQ_BASE_LO, cq_base_hi = CPU_CQ_BASE_HI, cq_attr = CPU_CQ_ATTR, cq_cfg = CPU_CQ_CFG,
    cqe = CPU_CQE_W0, cqe_go = CPU_CQE_GO,
    fast_event = CPU_FAST_EVENT, fast_arg = CPU_FAST_ARG,
    raw = CPU_RAW_W0, raw_go = CPU_RAW_GO, raw_busy = CPU_RAW_BUSY,
}

/// Writes a register.
///
/// The block has one user ([`crate::Soc`] is taken once) and every value of a register
/// is memory-safe for the core: engines reach host memory and packet RAM only, never
/// the RAM that this program lives in.
#[inline(always)]
pub fn set(reg: &WO<u32>, value: u32) {
    // SAFETY: see above; `WO::write` is unsafe only because some registers could break memory.
    unsafe { reg.write(value) }
}
