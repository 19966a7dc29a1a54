// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Identity and fixed sizes of the card.

table! {
    /// Fixed sizes, as (name, value, text).
    CARD_TABLE: u32 {
    /// PCI vendor id of the card (Xilinx, as many FPGA boards use).
    PCI_VENDOR = 0x10ee;
    /// PCI device id of the card.
    PCI_DEVICE = 0xbe47;
    /// PCI class code: network controller, InfiniBand.
    PCI_CLASS = 0x02_07_00;
    /// Value of the register `HOST_ID`: "BERT".
    CARD_ID = 0x4245_5254;
    /// Version of this layout; driver, firmware and RTL refuse to work with another.
    ABI_VERSION = 1;
    /// Size of BAR0 in bytes: control registers and statistics.
    BAR0_SIZE = 0x1_0000;
    /// Size of BAR2 in bytes: one doorbell page per process.
    BAR2_SIZE = 0x4_0000;
    /// Number of doorbell pages (4 KiB each) in BAR2; page 0 belongs to the kernel.
    NUM_UARS = 64;
    /// Rows of the QP tables in RTL; a row's index is the QPN.
    NUM_QP_ROWS = 128;
    /// First QPN that a process may get; lower ones are reserved (0, 1 by InfiniBand, 2 for Berth's control connection).
    FIRST_QPN = 16;
    /// Data QPs that one card serves; QPNs are FIRST_QPN .. FIRST_QPN + NUM_QPS - 1.
    NUM_QPS = 64;
    /// QPN of the control connection between two cards.
    CONTROL_QPN = 2;
    /// Completion queues of one card; CQNs are 0 .. NUM_CQS - 1.
    NUM_CQS = 64;
    /// Address spaces (processes) that one card serves; ASID 0 is invalid.
    NUM_ASIDS = 64;
    /// Entries of the translation table: one page each.
    XLT_ENTRIES = 8192;
    /// A page's entry lies within this many entries after its hash (cyclic), so that a look-up is bounded.
    XLT_PROBE = 16;
    /// Credits that one QP's FIFO holds, in each direction.
    CREDITS_PER_QP = 128;
    /// Largest credit list: half of the sender's store (decision: L is at most half).
    MAX_LIST = 64;
    /// Transmit slots in packet RAM.
    TX_SLOTS = 16;
    /// Receive slots in packet RAM.
    RX_SLOTS = 16;
    /// Bytes per packet slot: the largest frame (MTU 4096 and headers) and room for alignment.
    SLOT_BYTES = 0x1200;
    /// Scratch places in packet RAM, for queue elements and small transfers.
    SCRATCH_SLOTS = 64;
    /// Bytes per scratch place.
    SCRATCH_BYTES = 128;
    /// Clock of the engines in Hz: card cycles per second.
    CLOCK_HZ = 250_000_000;
    /// Bytes of RAM that hold firmware, its data and its stack.
    FW_RAM_BYTES = 0x8_0000;
    /// Magic of a firmware image: "BFW1".
    FW_MAGIC = 0x3157_4642;
    /// Bytes of a firmware image's header (struct `FwHeader`).
    FW_HEADER_BYTES = 32;
    }
}

/// Hash that places page `vpn` of address space `asid` in the translation table.
///
/// The entry lies at one of `XLT_PROBE` places: `hash`, `hash + 1`, … modulo
/// `XLT_ENTRIES`. The driver chooses the place, the RTL searches it.
pub const fn xlt_hash(asid: u32, vpn: u64) -> u32 {
    // An odd factor spreads neighbouring pages evenly (near the golden section), so that
    // large ranges of several processes at the same addresses interleave without piling up.
    let x = ((vpn ^ (vpn >> 13) ^ (vpn >> 26)) as u32) & (XLT_ENTRIES - 1);
    (x * 0x13c7 + asid * 0x9d) & (XLT_ENTRIES - 1)
}

/// Header of a firmware image, `FW_HEADER_BYTES` long. The payload follows and is
/// loaded to address 0 of the soft core's RAM, which is also its reset vector.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FwHeader {
    /// `FW_MAGIC`.
    pub magic: u32,
    /// `ABI_VERSION` that the firmware was built for.
    pub abi: u32,
    /// Payload length in bytes, a multiple of 4, at most `FW_RAM_BYTES`.
    pub length: u32,
    /// CRC-32 (IEEE 802.3, reflected, as in zlib) of the payload.
    pub crc: u32,
    /// Version of the firmware: major << 16 | minor << 8 | patch.
    pub version: u32,
    /// First 12 bytes of the SHA-256 of the ELF file, so that logs find their ELF.
    pub elf_id: [u32; 3],
}
