// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! What the host sees: BAR0 (registers) and BAR2 (doorbell pages).
//!
//! Registers are 32 bits wide; 8-byte accesses to two neighbours are legal. An access
//! to an offset that is not listed reads all-ones, writes nothing, and is counted.

table! {
    /// Registers of BAR0, as (name, byte offset, text).
    HOST_TABLE: u32 {
    /// ro: `CARD_ID`.
    HOST_ID = 0x000;
    /// ro: `ABI_VERSION`.
    HOST_ABI = 0x004;
    /// ro: data QPs in bits 15:0, CQs in bits 31:16. See `card::Sizes` for this and the three others.
    HOST_CAPS0 = 0x008;
    /// ro: doorbell pages in bits 15:0, rows of the translation table in bits 31:16.
    HOST_CAPS1 = 0x00c;
    /// wo: bit 0 resets the card (everything but BAR0's reset-surviving identity); done when `HOST_STATUS` reads `FW_RESET`.
    HOST_CTRL = 0x010;
    /// ro: state of the firmware, see `FW_*` in status.
    HOST_STATUS = 0x014;
    /// ro: reason that belongs to `HOST_STATUS` (image refused, panic).
    HOST_FW_CODE = 0x018;
    /// ro: engine clock in Hz.
    HOST_CLOCK_HZ = 0x01c;
    /// ro: card cycles since reset, low half; reading latches the high half.
    HOST_CYCLES_LO = 0x020;
    /// ro: card cycles, high half as latched.
    HOST_CYCLES_HI = 0x024;
    /// ro: address spaces in bits 15:0, entries of a row of the translation table in bits 23:16, first data QPN in bits 31:24.
    HOST_CAPS2 = 0x028;
    /// ro: keys in bits 15:0.
    HOST_CAPS3 = 0x02c;
    /// wo: next word of the firmware image, header first; words arrive in order.
    HOST_FW_DATA = 0x040;
    /// wo: any value: the image is complete; the card checks it and starts the core, or refuses with a code.
    HOST_FW_BOOT = 0x044;
    /// rw: challenge to the firmware; it answers with the same value.
    HOST_HB_CHALLENGE = 0x048;
    /// ro: the firmware's last answer.
    HOST_HB_ANSWER = 0x04c;
    /// rw: command ring, bus address low half (64-byte aligned).
    HOST_CMD_BASE_LO = 0x050;
    /// rw: command ring, bus address high half.
    HOST_CMD_BASE_HI = 0x054;
    /// rw: log2 of the command ring's entries (64 bytes each), 4 to 12; writing it resets both indices.
    HOST_CMD_LOG2 = 0x058;
    /// rw: producer index of the command ring (free-running 16 bits); writing is the doorbell.
    HOST_CMD_PI = 0x05c;
    /// ro: consumer index of the command ring (free-running 16 bits): entries that the card has fetched. Bit 31: a read of the ring has failed, and nothing of it is carried out any more until `HOST_CMD_LOG2` is written.
    HOST_CMD_CI = 0x060;
    /// rw: event ring, bus address low half (64-byte aligned).
    HOST_EVT_BASE_LO = 0x070;
    /// rw: event ring, bus address high half.
    HOST_EVT_BASE_HI = 0x074;
    /// rw: log2 of the event ring's entries (64 bytes each), 4 to 12; writing it resets both indices.
    HOST_EVT_LOG2 = 0x078;
    /// rw: consumer index of the event ring (free-running 16 bits); bit 31 arms MSI-X vector 0 for the next event (at once, if there is one already), with bit 30 for the next one but `EV_PAGE_RELEASE` and `EV_PAGE_EVICTED`, or when half of the ring is in use.
    HOST_EVT_CI = 0x07c;
    /// ro: producer index of the event ring (free-running 16 bits).
    HOST_EVT_PI = 0x080;
    /// rw: bus address that `CMD_FENCE` writes its token to, low half (8-byte aligned).
    HOST_FENCE_LO = 0x088;
    /// rw: the same, high half.
    HOST_FENCE_HI = 0x08c;
    /// rw: bit 0 lets the card do DMA; cleared, it stops issuing (reads in flight end).
    HOST_DMA_ENABLE = 0x090;
    /// ro: DMA reads and writes in flight.
    HOST_DMA_BUSY = 0x094;
    /// ro: the slot's limits, as configuration space has them now (Device Control, PCI Express 7.5.3.4): log2 of maximum payload in bits 3:0 (7 to 12), log2 of maximum read request in bits 7:4 (7 to 12).
    HOST_PCIE_LIMITS = 0x098;
    /// rw: log2 of the cycles of a third of the time after which a read of host memory counts as failed (10 to 27). After a reset 22: such a read ends after 34 to 50 ms.
    HOST_READ_TIMEOUT = 0x09c;
    /// ro: first RTL counter (see counters), 8 bytes each, little-endian.
    HOST_COUNTERS = 0x400;
    /// wo, 8 bytes: index (free-running 16 bits) of a command that is written into the card beside its place in the ring; its eight words follow, in order, from here + 0x40 on, 8 bytes each. Before the doorbell it need not be fetched. Only one of the next `CMD_PUSHES` - 1 is kept; without all its words it is fetched.
    HOST_CMD_PUSH = 0x2000;
    /// ro: statistics RAM, written by firmware: 64-bit counters, then the panic text.
    HOST_STATS = 0x8000;
    }
}

/// Offset of the words of a pushed command from `HOST_CMD_PUSH`.
pub const CMD_PUSH_WORDS: u32 = 0x40;
/// Places for pushed commands.
pub const CMD_PUSHES: u32 = 64;
/// Commands of one doorbell that the host pushes at most, the first ones: more are fetched while these are carried out.
pub const CMD_PUSH_MOST: u16 = 16;
/// Bytes of the statistics RAM behind `HOST_STATS`.
pub const STATS_BYTES: u32 = 0x1000;
/// Offset of the panic text (NUL-terminated UTF-8) in the statistics RAM.
pub const STATS_PANIC: u32 = 0xe00;
/// Bytes reserved for the panic text.
pub const STATS_PANIC_BYTES: u32 = 0x200;

table! {
    /// Layout of a 4 KiB doorbell page in BAR2, as (name, byte offset, text). Doorbells
    /// are 8 bytes wide and must be written with one 8-byte access.
    DOORBELL_TABLE: u32 {
    /// Send-queue doorbell: QPN in bits 15:0, producer index in bits 31:16 (free-running), bytes posted so far (modulo 2^32) in bits 63:32.
    DB_SQ = 0x000;
    /// Receive-queue doorbell: QPN in bits 15:0, producer index in bits 31:16 (free-running).
    DB_RQ = 0x008;
    /// Completion-queue doorbell: CQN in bits 15:0, consumer index in bits 31:16 (free-running), bit 63 arms the notification for the next completion (at once, if there is one beyond the consumer index already).
    DB_CQ = 0x010;
    /// Send doorbell of a raw queue, in page 0 only: queue in bits 15:0, producer index in bits 31:16 (free-running).
    DB_RAW_SQ = 0x018;
    /// Receive doorbell of a raw queue, likewise.
    DB_RAW_RQ = 0x020;
    /// Send-queue doorbell with its element: a slot of eight words, written in order. First the element's first 56 bytes (at most two SGEs, or data inline), then, as commit, the word that `DB_SQ` takes; the element stands in the queue as well. A slot that is torn, or of a QP that the fast path does not have, counts as `DB_SQ`.
    DB_WQE = 0x040;
    }
}
