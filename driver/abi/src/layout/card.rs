// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Identity and fixed sizes of the card.

table! {
    /// Fixed sizes, as (name, value, text).
    CARD_TABLE: u32, small SMALL_CARD, large LARGE_CARD {
    /// PCI vendor id of the card (Xilinx, as many FPGA boards use).
    PCI_VENDOR = 0x10ee;
    /// PCI device id of the card.
    PCI_DEVICE = 0xbe47;
    /// PCI class code: network controller, InfiniBand.
    PCI_CLASS = 0x02_07_00;
    /// Value of the register `HOST_ID`: "BERT".
    CARD_ID = 0x4245_5254;
    /// Version of this layout; driver, firmware and RTL refuse to work with another.
    ABI_VERSION = 3;
    /// Size of BAR0 in bytes: control registers and statistics.
    BAR0_SIZE = 0x1_0000;
    /// Size of BAR2 in bytes: one doorbell page per process.
    BAR2_SIZE = 0x4_0000;
    /// Number of doorbell pages (4 KiB each) in BAR2; page 0 belongs to the kernel.
    NUM_UARS = 64, 16;
    /// Rows of the QP tables in RTL; a row's index is the QPN.
    NUM_QP_ROWS = 128, 8, 1024;
    /// First QPN that a process may get; lower ones are reserved (0, 1 by InfiniBand, 2 for Berth's control connection).
    FIRST_QPN = 16, 4;
    /// Data QPs that one card serves; QPNs are FIRST_QPN .. FIRST_QPN + NUM_QPS - 1.
    NUM_QPS = 64, 4, 1008;
    /// QPN of the control connection between two cards.
    CONTROL_QPN = 2;
    /// Completion queues of one card; CQNs are 0 .. NUM_CQS - 1.
    NUM_CQS = 64, 16;
    /// Connection requests that wait for the host's answer at a time.
    CM_REQUESTS = 12;
    /// Other end nodes that one card has connections to at a time.
    NUM_PEERS = 32;
    /// Services that one card listens to at a time.
    CM_SERVICES = 64;
    /// Address spaces (processes) that one card serves; ASID 0 is invalid.
    NUM_ASIDS = 64, 16;
    /// Entries of the translation table: one page each.
    XLT_ENTRIES = 8192, 2048;
    /// Keys that peers can be given (QP-11).
    NUM_KEYS = 4096, 256;
    /// Rows of the translation table. Entry `index` is entry `index % XLT_WAYS` of row `index / XLT_WAYS`.
    XLT_ROWS = 512;
    /// Entries of a row, at most `MAX_WAYS`. A page has one of the first half of one row, or one of the second half of another.
    XLT_WAYS = 16, 4;
    /// Credits that one QP's FIFO holds, in each direction.
    CREDITS_PER_QP = 128;
    /// Largest credit list: half of the sender's store (decision: L is at most half).
    MAX_LIST = 64;
    /// Transmit slots in packet RAM.
    TX_SLOTS = 16, 4;
    /// Receive slots in packet RAM.
    RX_SLOTS = 16, 7;
    /// Bytes per packet slot: the largest frame (MTU 4096 and headers) and room for alignment.
    SLOT_BYTES = 0x1200;
    /// Scratch places in packet RAM, for queue elements and small transfers.
    SCRATCH_SLOTS = 64;
    /// Bytes per scratch place.
    SCRATCH_BYTES = 128;
    /// Reads of host memory that are out at a time, a power of two; commands to read likewise.
    READ_TAGS = 64, 16;
    /// Places of the fast path's windows, a power of two: at most one packet less is under way.
    FAST_PLACES = 256, 32;
    /// Least time without news until the fast path sends the oldest packet again as a probe, in units of 64 cycles (33 µs).
    FAST_PROBE = 128;
    /// Elements of a send queue that the fast path has fetched and not completed, a power of two.
    FAST_ELEMENTS = 128, 32;
    /// Memory ranges of these elements, a power of two.
    FAST_CONTEXTS = 256, 64;
    /// Smallest send queue, in elements: the fast path reads so many at a time. It begins a page.
    MIN_SQ_DEPTH = 4;
    /// Largest send or receive queue, in elements, a power of two.
    MAX_DEPTH = 4096;
    /// Frames with more than 1 KiB of payload that the fast path has in its transmit RAM.
    FAST_BIG_FRAMES = 16, 4;
    /// Frames with less that it has there.
    FAST_SMALL_FRAMES = 64, 8;
    /// Clock of the engines in Hz: card cycles per second.
    CLOCK_HZ = 250_000_000;
    /// Bytes of RAM that hold firmware, its data and its stack.
    FW_RAM_BYTES = 0x4_0000, 0x4_0000, 0x10_0000;
    /// RDMA READ requests that may be under way to a QP at most, a power of two.
    MAX_READS = 32;
    /// Raw queues: the kernel's, for whole Ethernet frames.
    RAW_QUEUES = 4, 2;
    /// Filters that choose among them.
    RAW_FILTERS = 8, 4;
    /// Elements of each ring of a raw queue that the card has fetched and not used, a power of two.
    RAW_ELEMENTS = 32, 8;
    /// Bytes of frames of raw queues that are on their way out, a power of two.
    RAW_SEND_BYTES = 32768, 16384;
    /// Magic of a firmware image: "BFW1".
    FW_MAGIC = 0x3157_4642;
    /// Bytes of a firmware image's header (struct `FwHeader`).
    FW_HEADER_BYTES = 32;
    }
}

/// The form of a card's translation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xlt {
    /// Rows, `XLT_ROWS` on every card.
    pub rows: u32,
    /// Entries of a row: an even number, at most `MAX_WAYS`.
    pub ways: u32,
}

/// Most entries of a row of a translation table.
pub const MAX_WAYS: usize = 16;

impl Xlt {
    /// That of the card that these constants are of.
    pub const HERE: Self = Self {
        rows: XLT_ROWS,
        ways: XLT_WAYS,
    };

    /// Entries.
    pub const fn entries(&self) -> u32 {
        self.rows * self.ways
    }

    /// The two rows in which page `vpn` of address space `asid` can be: in the first half of the entries of the one, or in
    /// the second half of the other.
    ///
    /// The RTL reads both at once. Pages that share the one seldom share the other, and 512 neighbours share neither.
    pub const fn rows(&self, asid: u32, vpn: u64) -> [u32; 2] {
        const MASK: u32 = XLT_ROWS - 1;
        let (v, a, b, c) = (
            vpn as u32 & MASK,
            (vpn >> 9) as u32 & MASK,
            (vpn >> 18) as u32 & MASK,
            (vpn >> 27) as u32 & MASK,
        );
        // Odd factors and steps spread several processes that use the same addresses.
        [
            ((v ^ a ^ b ^ c) * 0x1c7 + asid * 0x9d) & MASK,
            ((v ^ turned(a, 1) ^ turned(b, 2) ^ turned(c, 4)) * 0xb5 + asid * 0x14b) & MASK,
        ]
    }

    /// Place `n` (below `ways`) of those that page `vpn` of address space `asid` can have.
    pub const fn place(&self, asid: u32, vpn: u64, n: u32) -> u32 {
        let [first, second] = self.rows(asid, vpn);
        let row = if n < self.ways / 2 { first } else { second };
        row * self.ways + n
    }

    /// A free place for a page: in the row of the two that has more of them, so that rows fill evenly.
    pub fn free(&self, asid: u32, vpn: u64, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let mut best = None;
        for half in [0, self.ways / 2] {
            let first = self.place(asid, vpn, half);
            let places = (first..first + self.ways / 2).filter(|&place| is_free(place));
            let (count, first) = places.fold((0, 0), |(count, _), place| (count + 1, place));
            if count > best.map_or(0, |(most, _)| most) {
                best = Some((count, first));
            }
        }
        best.map(|(_, place)| place)
    }
}

/// 9 bits, turned to the left.
const fn turned(x: u32, by: u32) -> u32 {
    (x << by | x >> (9 - by)) & (XLT_ROWS - 1)
}

/// What a card has room for. A driver serves cards of all sizes, so it asks the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// First QPN of a process.
    pub first_qpn: u32,
    /// Data QPs: QPNs are `first_qpn` to `first_qpn + qps - 1`.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Address spaces, 0 (which is invalid) included; each has a doorbell page.
    pub asids: u32,
    /// Keys.
    pub keys: u32,
    /// Its translation table.
    pub table: Xlt,
}

impl Sizes {
    /// Those of the card that these constants are of.
    pub const HERE: Self = Self {
        first_qpn: FIRST_QPN,
        qps: NUM_QPS,
        cqs: NUM_CQS,
        asids: if NUM_ASIDS < NUM_UARS {
            NUM_ASIDS
        } else {
            NUM_UARS
        },
        keys: NUM_KEYS,
        table: Xlt::HERE,
    };

    /// From `HOST_CAPS0` to `HOST_CAPS3`; `None` when no card can be like that.
    pub fn from_registers([qps, pages, spaces, keys]: [u32; 4]) -> Option<Self> {
        let low = |word: u32| word & 0xffff;
        let sizes = Self {
            first_qpn: spaces >> 24,
            qps: low(qps),
            cqs: qps >> 16,
            asids: low(spaces).min(low(pages)),
            keys: low(keys),
            table: Xlt {
                rows: pages >> 16,
                ways: spaces >> 16 & 0xff,
            },
        };
        let ways = sizes.table.ways as usize;
        let good = sizes.first_qpn > CONTROL_QPN
            && sizes.qps != 0
            && sizes.first_qpn + sizes.qps <= 0x1_0000
            && sizes.cqs != 0
            && (2..=256).contains(&sizes.asids)
            && sizes.keys.is_power_of_two()
            && sizes.table.rows == XLT_ROWS
            && ways != 0
            && ways & 1 == 0
            && ways <= MAX_WAYS;
        good.then_some(sizes)
    }
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
