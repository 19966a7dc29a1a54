// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! What the soft core sees: its bus addresses and the registers of the engines.
//!
//! All registers are 32 bits wide and are accessed with whole words. Packet RAM and
//! statistics RAM take byte, half-word and word accesses.

use super::Record;

use super::raw::{RawAttr, RawCqs, RawFilterAttr, RawFilterPorts};

/// Firmware RAM (cached).
pub const CPU_RAM: u32 = 0x0000_0000;
/// Engine registers (uncached).
pub const CPU_REGS: u32 = 0x8000_0000;
/// Statistics RAM (uncached), seen by the host behind `HOST_STATS`.
pub const CPU_STATS: u32 = 0x8001_0000;
/// Rows of the fast path (uncached): words at (half * 1024 + QPN) * 256, see [`rows`](super::rows).
pub const CPU_FAST: u32 = 0x8200_0000;
/// Packet RAM (uncached): transmit slots, receive slots, scratch places.
pub const CPU_PKT: u32 = 0x8100_0000;

/// Offset of transmit slot `n` in packet RAM.
pub const fn tx_slot(n: u32) -> u32 {
    n * super::card::SLOT_BYTES
}
/// Offset of receive slot `n` in packet RAM.
pub const fn rx_slot(n: u32) -> u32 {
    (super::card::TX_SLOTS + n) * super::card::SLOT_BYTES
}
/// Offset of scratch place `n` in packet RAM.
pub const fn scratch(n: u32) -> u32 {
    (super::card::TX_SLOTS + super::card::RX_SLOTS) * super::card::SLOT_BYTES
        + n * super::card::SCRATCH_BYTES
}
/// Bytes of packet RAM in use.
pub const PKT_BYTES: u32 = scratch(super::card::SCRATCH_SLOTS);

table! {
    /// Bits of `CPU_WAIT` and `CPU_PENDING`, as (name, bit number, text).
    PENDING_TABLE: u32 {
    /// A firmware command waits (`CPU_CMD_W0`…).
    PEND_CMD = 0;
    /// A QP's doorbell has rung (`CPU_DB_POP`).
    PEND_DOORBELL = 1;
    /// A frame has been received (`CPU_RX_DESC`).
    PEND_RX = 2;
    /// A frame has been sent or given up (`CPU_TX_DONE`).
    PEND_TX_DONE = 3;
    /// A DMA command has ended (`CPU_DMA_DONE`).
    PEND_DMA_DONE = 4;
    /// The translation unit has an answer (`CPU_XLT_RSP`).
    PEND_XLT_RSP = 5;
    /// The timer is armed and its time has come.
    PEND_TIMER = 7;
    /// The host's challenge differs from the last answer.
    PEND_HEARTBEAT = 8;
    /// The fast path has an event (`CPU_FAST_EVENT`).
    PEND_FAST = 9;
    }
}

table! {
    /// Registers at `CPU_REGS`, as (name, byte offset, text).
    CPU_TABLE: u32 {
    /// ro: `CARD_ID`.
    CPU_ID = 0x000;
    /// ro: pending bits; the read stalls the core until at least one is set. A stalled core is an idle card.
    CPU_WAIT = 0x004;
    /// ro: pending bits, at once.
    CPU_PENDING = 0x008;
    /// wo: state of the firmware for `HOST_STATUS`.
    CPU_STATUS = 0x00c;
    /// wo: reason for `HOST_FW_CODE`.
    CPU_FW_CODE = 0x010;
    /// ro: the host's challenge.
    CPU_HB_CHALLENGE = 0x014;
    /// wo: answer to the challenge.
    CPU_HB_ANSWER = 0x018;
    /// ro: card cycles since reset, low half; reading latches the high half.
    CPU_CYCLE_LO = 0x020;
    /// ro: card cycles, high half as latched.
    CPU_CYCLE_HI = 0x024;
    /// wo: timer deadline in cycles, low half (held until the high half is written).
    CPU_TIMER_LO = 0x028;
    /// wo: timer deadline, high half: arms the timer.
    CPU_TIMER_HI = 0x02c;
    /// wo: any value disarms the timer.
    CPU_TIMER_OFF = 0x030;
    /// ro: engine clock in Hz.
    CPU_CLOCK_HZ = 0x034;

    /// wo: any value drops the command at the head.
    CPU_CMD_POP = 0x040;
    /// ro: takes the next QP with a fresh doorbell; latches the two registers below.
    CPU_DB_POP = 0x044;
    /// ro: that QP's producer indices.
    CPU_DB_INDEX = 0x048;
    /// ro: that QP's bytes posted so far, modulo 2^32.
    CPU_DB_BYTES = 0x04c;
    /// wo: QPN of the doorbell row to configure.
    CPU_DB_CFG_QPN = 0x050;
    /// wo: doorbell row; clears its indices, except that a valid row of the same page that gets `fast` is rung there as it stands.
    CPU_DB_CFG = 0x054;

    /// ro: received frame at the head.
    CPU_RX_DESC = 0x060;
    /// ro: its flags, see `RX_FLAG_*`.
    CPU_RX_FLAGS = 0x064;
    /// wo: any value drops the descriptor at the head (its slot stays in use).
    CPU_RX_POP = 0x068;
    /// wo: gives slot (bits 7:0) back to the receiver.
    CPU_RX_FREE = 0x06c;
    /// wo: sends a slot. Waits for the slot's attached DMA reads.
    CPU_TX_SEND = 0x070;
    /// ro, pops: a frame sent or given up.
    CPU_TX_DONE = 0x074;

    /// ro: first of the 16 words of the command at the head.
    CPU_CMD_W0 = 0x080;

    /// wo: DMA: byte offset in packet RAM.
    CPU_DMA_LOCAL = 0x0c0;
    /// wo: DMA: length and tag.
    CPU_DMA_LEN_TAG = 0x0c4;
    /// wo: DMA: host address low half.
    CPU_DMA_ADDR_LO = 0x0c8;
    /// wo: DMA: host address high half.
    CPU_DMA_ADDR_HI = 0x0cc;
    /// wo: DMA: starts it. Stalls while the command FIFO is full.
    CPU_DMA_GO = 0x0d0;
    /// ro, pops: a DMA command has ended. Not given for attached reads.
    CPU_DMA_DONE = 0x0d4;

    /// wo: translation: virtual address low half.
    CPU_XLT_VA_LO = 0x0e0;
    /// wo: translation: virtual address high half.
    CPU_XLT_VA_HI = 0x0e4;
    /// wo: translation: length in bytes (1 to 2^31 - 1).
    CPU_XLT_LEN = 0x0e8;
    /// wo: translation: tag (16 bits) that answers and events carry.
    CPU_XLT_TAG = 0x0ec;
    /// wo: translation: starts it. Stalls while the command FIFO is full.
    CPU_XLT_GO = 0x0f0;
    /// ro, pops: an answer of the translation unit.
    CPU_XLT_RSP = 0x0f4;

    /// wo: first of the 16 words of an event to be written to the host.
    CPU_EV_W0 = 0x100;
    /// wo: any value queues the event. Stalls while the writer is busy with an earlier one of the core.
    CPU_EV_GO = 0x140;
    /// ro: free entries of the host's event ring.
    CPU_EV_SPACE = 0x144;

    /// wo: completion queue: bus address low half.
    CPU_CQ_BASE_LO = 0x150;
    /// wo: completion queue: bus address high half.
    CPU_CQ_BASE_HI = 0x154;
    /// wo: completion queue.
    CPU_CQ_ATTR = 0x158;
    /// wo: configures the CQN in bits 15:0 with the three above; clears its indices.
    CPU_CQ_CFG = 0x15c;
    /// wo: first of the 8 words of a completion.
    CPU_CQE_W0 = 0x160;
    /// wo: queues the completion for the CQN in bits 15:0. Stalls while the writer is busy.
    CPU_CQE_GO = 0x180;

    /// ro: upper half of an event of the fast path, as `rows` has it; 0: there is none.
    CPU_FAST_EVENT = 0x1b0;
    /// ro, pops: its lower half: the argument.
    CPU_FAST_ARG = 0x1b4;

    /// wo: first of the 6 words that say what is done to a raw queue.
    CPU_RAW_W0 = 0x1c0;
    /// wo: does it: `RAW_GO_*`.
    CPU_RAW_GO = 0x1d8;
    /// ro: bit n: raw queue n exists, or DMA of it is under way.
    CPU_RAW_BUSY = 0x1dc;
    }
}

records! { u32;
    /// `CPU_DB_POP`: a QP with a fresh doorbell.
    DbPop {
        /// There is one.
        valid: 31 31,
        /// QPN.
        qpn: 15 0,
    }
    /// `CPU_DB_INDEX`: its producer indices.
    DbIndex {
        /// Of the receive queue.
        receive: 31 16,
        /// Of the send queue.
        send: 15 0,
    }
    /// `CPU_DB_CFG`: a doorbell row.
    DbCfg {
        /// The row is in use.
        valid: 31 31,
        /// Doorbells go to the fast path.
        fast: 30 30,
        /// Doorbell page.
        page: 7 0,
    }
    /// `CPU_RX_DESC`: a received frame.
    RxDesc {
        /// There is one.
        valid: 31 31,
        /// Length with iCRC, without FCS.
        length: 28 16,
        /// Receive slot.
        slot: 7 0,
    }
    /// `CPU_TX_SEND`: a frame to send.
    TxSend {
        /// Length without iCRC and FCS.
        length: 28 16,
        /// Append no iCRC: the frame is not RoCE.
        raw: 9 9,
        /// To this card's own receiver.
        loopback: 8 8,
        /// Transmit slot.
        slot: 7 0,
    }
    /// `CPU_TX_DONE`: a frame sent or given up.
    TxDone {
        /// There is one.
        valid: 31 31,
        /// 0 sent; else `DMA_*`: an attached read failed and nothing was sent.
        status: 23 16,
        /// Transmit slot.
        slot: 7 0,
    }
    /// `CPU_DMA_LEN_TAG`: what is moved.
    DmaLenTag {
        /// Comes back.
        tag: 31 16,
        /// Bytes, 1 to 4608.
        length: 15 0,
    }
    /// `CPU_DMA_GO`: a DMA command.
    DmaGo {
        /// Address space of a virtual address.
        asid: 23 16,
        /// Transmit slot that the read is attached to.
        slot: 15 8,
        /// A read that a transmit slot waits for.
        attach: 2 2,
        /// The address is virtual, else one of the bus.
        virt: 1 1,
        /// To the host, else from it.
        write: 0 0,
    }
    /// `CPU_DMA_DONE`: a DMA command that has ended.
    DmaDone {
        /// There is one.
        valid: 31 31,
        /// `DMA_*`.
        status: 23 16,
        /// Its tag.
        tag: 15 0,
    }
    /// `CPU_XLT_GO`: a command to the translation unit, with one of `give_back` and `acquire`.
    XltGo {
        /// Address space.
        asid: 23 16,
        /// The card will write, or has written.
        write: 8 8,
        /// The range is released: `EV_PAGE_RELEASE` goes to the host.
        give_back: 1 1,
        /// It is acquired: if a page is missing, `EV_PAGE_NEED` goes to the host.
        acquire: 0 0,
    }
    /// `CPU_XLT_RSP`: an answer of the translation unit.
    XltRsp {
        /// There is one.
        valid: 31 31,
        /// `XLT_*`.
        kind: 27 24,
        /// Of `XLT_READY`: as the driver gave it.
        status: 23 16,
        /// Tag of the command.
        tag: 15 0,
    }
    /// `CPU_CQ_ATTR`: a completion queue.
    CqAttr {
        /// The queue is in use.
        valid: 31 31,
        /// Doorbell page.
        page: 15 8,
        /// log2 of its entries.
        log2: 3 0,
    }
}

/// Fields of those registers that have several: register, fields.
pub const CPU_RECORDS: &[(&str, &Record)] = &[
    ("CPU_DB_POP", &DbPop::RECORD),
    ("CPU_DB_INDEX", &DbIndex::RECORD),
    ("CPU_DB_CFG", &DbCfg::RECORD),
    ("CPU_RX_DESC", &RxDesc::RECORD),
    ("CPU_TX_SEND", &TxSend::RECORD),
    ("CPU_TX_DONE", &TxDone::RECORD),
    ("CPU_DMA_LEN_TAG", &DmaLenTag::RECORD),
    ("CPU_DMA_GO", &DmaGo::RECORD),
    ("CPU_DMA_DONE", &DmaDone::RECORD),
    ("CPU_XLT_GO", &XltGo::RECORD),
    ("CPU_XLT_RSP", &XltRsp::RECORD),
    ("CPU_CQ_ATTR", &CqAttr::RECORD),
    ("CPU_RAW_W0", &RawAttr::RECORD),
    ("CPU_RAW_W0 + 4", &RawCqs::RECORD),
    ("CPU_RAW_W0", &RawFilterAttr::RECORD),
    ("CPU_RAW_W0 + 4", &RawFilterPorts::RECORD),
];

table! {
    /// Flags of a received frame (`CPU_RX_FLAGS`), as (name, mask, text).
    RX_FLAG_TABLE: u32 {
    /// The frame is IPv4 / UDP to port 4791 and its iCRC is right.
    RX_FLAG_ICRC_OK = 0x1;
    /// The frame is IPv4 / UDP to port 4791.
    RX_FLAG_ROCE = 0x2;
    /// The frame came by loopback.
    RX_FLAG_LOOPBACK = 0x4;
    }
}

table! {
    /// Status of a DMA command, as (name, value, text).
    DMA_TABLE: u32 {
    /// Done.
    DMA_OK = 0;
    /// A page of a virtual range has no valid translation, or not for writing; nothing past it was touched.
    DMA_NO_TRANSLATION = 1;
    /// The host answered with an error (unsupported request, completer abort).
    DMA_HOST_ERROR = 2;
    /// DMA is not enabled, or the length is out of range.
    DMA_REFUSED = 3;
    }
}

table! {
    /// Kinds of translation answers, as (name, value, text).
    XLT_TABLE: u32 {
    /// All pages of the range are there and are now counted as in use.
    XLT_HIT = 0;
    /// At least one page is missing; nothing is counted; the host has been asked.
    XLT_MISS = 1;
    /// The host has answered the request with this tag; on status 0, acquire again.
    XLT_READY = 2;
    }
}

table! {
    /// Answers to an arriving credit list, as (name, value, text).
    LIST_TABLE: u32 {
    /// Taken.
    LIST_OK = 0;
    /// All of it is known already: ignored.
    LIST_REPEAT = 1;
    /// Its first number is past the next expected one: not taken.
    LIST_GAP = 2;
    /// More credits than the FIFO has room for: not taken.
    LIST_OVERFLOW = 3;
    /// The first credit of the previous list has not been used yet, so no proof can have come: not taken.
    LIST_EARLY = 4;
    /// Length 0 or above `MAX_LIST`: not taken.
    LIST_BAD = 5;
    }
}
