// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of the registers that have several.
#![allow(missing_docs, reason = "the macro's setters and Debug helpers carry no text of their own")]

use bitfield::bitfield;

bitfield! {
    /// `CPU_DB_POP`: a QP with a fresh doorbell.
    #[derive(Clone, Copy)]
    pub struct DbPop(u32);
    pub valid, _: 31;
    pub u16, qpn, _: 15, 0;
}

bitfield! {
    /// `CPU_DB_INDEX`: its producer indices.
    #[derive(Clone, Copy)]
    pub struct DbIndex(u32);
    pub u16, receive, _: 31, 16;
    pub u16, send, _: 15, 0;
}

bitfield! {
    /// `CPU_DB_CFG`: a doorbell row.
    #[derive(Clone, Copy)]
    pub struct DbCfg(u32);
    pub _, set_valid: 31;
    pub u8, _, set_page: 7, 0;
}

bitfield! {
    /// `CPU_RX_DESC`: a received frame.
    #[derive(Clone, Copy)]
    pub struct RxDesc(u32);
    pub valid, _: 31;
    pub u16, length, _: 28, 16;
    pub u8, slot, _: 7, 0;
}

bitfield! {
    /// `CPU_TX_SEND`: a frame to send.
    #[derive(Clone, Copy)]
    pub struct TxSend(u32);
    pub u16, _, set_length: 28, 16;
    pub _, set_no_icrc: 9;
    pub _, set_loopback: 8;
    pub u8, _, set_slot: 7, 0;
}

bitfield! {
    /// `CPU_TX_DONE`: a frame sent or given up.
    #[derive(Clone, Copy)]
    pub struct TxDone(u32);
    pub valid, _: 31;
    pub u8, status, _: 23, 16;
    pub u8, slot, _: 7, 0;
}

bitfield! {
    /// `CPU_CQ_ATTR`.
    #[derive(Clone, Copy)]
    pub struct CqAttr(u32);
    pub _, set_valid: 31;
    pub u8, _, set_page: 15, 8;
    pub u8, _, set_log2: 3, 0;
}

bitfield! {
    /// `CPU_FAST_EVENT`: an event of the fast path.
    #[derive(Clone, Copy)]
    pub struct FastEvent(u32);
    pub u8, code, _: 31, 24;
    pub u16, qpn, _: 23, 8;
}
