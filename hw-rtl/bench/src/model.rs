// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The declared model: what the card under measurement is plugged into.

use berth_protocol::card::limits::{FAST_ACK_EVERY, FAST_FEW, FAST_LIST, FAST_WINDOW, REORDER};
use berth_rtl::{CardConfig, PcieLimits};
use std::path::PathBuf;

/// Assumptions of all figures. What firmware writes into the rows of a connection is by default what it really writes
/// (`berth_protocol::card::limits`). Every one of them can be set; what was assumed is printed above the table.
#[derive(Clone, Debug, clap::Args)]
pub struct Model {
    /// Cycles from a read request at the host port to the first beat of its completion.
    #[arg(long, value_name = "CYCLES", default_value_t = 250)]
    pub read_latency: u64,
    /// Read requests that the host port has outstanding at most (1 to 64).
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub reads_outstanding: u8,
    /// Maximum payload size in bytes (MPS): of posted writes and of completions; a power of two, 128 to 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = size)]
    pub mps: u32,
    /// Maximum read request size in bytes (MRRS): a power of two, 128 to 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = size)]
    pub mrrs: u32,
    /// Payload bytes per cycle that the host port carries in each direction, as a multiple of what the wire allows.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.25)]
    pub host_rate: f64,
    /// Cycles of the wire's round trip between two cards.
    #[arg(long, value_name = "CYCLES", default_value_t = 500)]
    pub wire_round_trip: u64,
    /// Cycles from a page request in the event ring to its answer in the command ring; several are measured one by one.
    #[arg(long, value_name = "CYCLES,…", value_delimiter = ',', default_values_t = [2500, 12_500])]
    pub page_service: Vec<u64>,
    /// Frames of a hundred that the wire loses in the figures with loss.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub loss: f64,
    /// Cycles of the wire's round trip in the figures with loss.
    #[arg(long, value_name = "CYCLES", default_value_t = 5000)]
    pub loss_round_trip: u64,
    /// Seeds of what is lost; the mean counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub loss_seeds: u64,
    /// Longest credit list (1 to 64).
    #[arg(long, value_name = "N", default_value_t = FAST_LIST, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub list: u32,
    /// Buffer of a list, from 0 on, in which data must have come before the next list goes; the default is the library's.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(..64))]
    pub trigger: u32,
    /// New credits that a later list waits for more than, unless at most so many are out.
    #[arg(long, value_name = "N", default_value_t = FAST_FEW, value_parser = clap::value_parser!(u32).range(..128))]
    pub few: u32,
    /// Packets under way at most (1 to 255).
    #[arg(long, value_name = "N", default_value_t = FAST_WINDOW, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub window: u32,
    /// Packets that overtake one before it counts as lost.
    #[arg(long, value_name = "N", default_value_t = REORDER)]
    pub reorder: u32,
    /// Packets until an acknowledgement that was not asked for.
    #[arg(long, value_name = "N", default_value_t = FAST_ACK_EVERY)]
    pub ack_every: u32,
    /// log2 of a block of the sender's memory (12 to 20).
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub log2_block: u32,
    /// Blocks that the sender asks for ahead [default: 28; with pages on demand, what firmware writes].
    #[arg(long, value_name = "N")]
    pub ahead: Option<u32>,
    /// Receives that a process has posted with pages on demand [default: 64].
    #[arg(long, value_name = "N")]
    pub receives: Option<u32>,
    /// Bound of what is granted with pages on demand, as `recv::Pinned` has it [default: what firmware writes].
    #[arg(long, value_name = "WORD")]
    pub pinned: Option<u32>,
    /// Four times as many messages in the figures with pages on demand and with loss.
    #[arg(long)]
    pub long: bool,
    /// Also measures the rate against the round trip (rate_round_trip), which takes minutes.
    #[arg(long)]
    pub sweep: bool,
    /// Round trips of that figure, in cycles.
    #[arg(long, value_name = "CYCLES,…", value_delimiter = ',', default_values_t = [500, 2000, 5000, 10_000])]
    pub round_trips: Vec<u64>,
    /// List lengths of that figure (1 to 64).
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [16, 32, 64],
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub lists: Vec<u32>,
    /// Folder with the reports of hw-rtl/synth: one folder for each part.
    #[arg(long, value_name = "DIR")]
    pub synthesis: Option<PathBuf>,
    /// Image of the card's firmware, for the figures policy_*.
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// Appends every frame of the figures with loss to this file, with commas: cycle, card, opcode, PSN, payload, lost.
    #[arg(long, value_name = "FILE")]
    pub frames: Option<PathBuf>,
    /// Seed of the data that is moved and of what is lost.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn size(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(n) if n.is_power_of_two() && (128..=4096).contains(&n) => Ok(n),
        _ => Err("a power of two from 128 to 4096".into()),
    }
}

impl Model {
    /// The slot for a card of `data_w` bits whose reads take `extra` cycles more. Completions come in order and as
    /// long as the maximum payload allows; no port stalls.
    pub fn slot(&self, data_w: usize, extra: u64) -> CardConfig {
        CardConfig {
            data_w,
            host_rate: self.host_rate(data_w),
            read_latency: self.read_latency + extra,
            outstanding: usize::from(self.reads_outstanding),
            out_of_order: false,
            split: false,
            stall_percent: 0,
            seed: self.seed,
        }
    }

    /// Bytes per cycle and direction of the host port.
    pub fn host_rate(&self, data_w: usize) -> f64 {
        (self.host_rate * wire_payload(data_w, 4096)).min(2.0 * data_w as f64 / 8.0)
    }

    /// Bytes per cycle that reads can have, as only so many may be out, and each is until its last byte has come.
    pub fn in_flight(&self, data_w: usize, extra: u64) -> f64 {
        let bytes = f64::from(self.mrrs);
        let each = (self.read_latency + extra) as f64 + bytes / self.host_rate(data_w);
        f64::from(self.reads_outstanding) * bytes / each
    }

    /// What the slot allows.
    pub fn limits(&self) -> PcieLimits {
        PcieLimits::from_log2(self.mps.trailing_zeros(), self.mrrs.trailing_zeros())
    }

    /// The assumptions in words, one per line.
    pub fn assumptions(&self) -> Vec<String> {
        vec![
            format!(
                "host port: beats of 2 × DATA_W bits, headers beside the data; in each direction {} × the payload that \
                 the wire carries at MTU 4096",
                self.host_rate
            ),
            format!("PCIe read round trip {} cycles to the first beat, completions in order", self.read_latency),
            format!("{} reads outstanding, MPS {} B, MRRS {} B", self.reads_outstanding, self.mps, self.mrrs),
            "MAC port: one beat of DATA_W bits per cycle, preamble, FCS and gap not on it".to_owned(),
            format!(
                "wire between two cards: as wide, {FRAMING} bytes of preamble, FCS and gap behind each frame; round trip {} \
                 cycles",
                self.wire_round_trip
            ),
            format!(
                "connections: window {} packets, lost when {} later ones came, an ACK for {} packets, lists of at most {} \
                 credits, a later one with data in buffer {} of the last one and more than {} new ones",
                self.window, self.reorder, self.ack_every, self.list, self.trigger, self.few
            ),
            format!(
                "pages on demand: blocks of {} KiB, a request is answered {:?} cycles after the driver saw it, which counts \
                 the way of the host's posted writes: they reach the card at once, one in each clock that it takes one; ahead: {}; \
                 receives posted: {}",
                (1u64 << self.log2_block) / 1024,
                self.page_service,
                self.ahead.map_or_else(|| "as firmware has it".to_owned(), |n| format!("{n} blocks")),
                self.receives.map_or_else(|| "enough".to_owned(), |n| n.to_string()),
            ),
            format!(
                "loss: {} % of all frames, each by itself, mean of {} seeds; there the wire's round trip is {} cycles",
                self.loss, self.loss_seeds, self.loss_round_trip
            ),
            format!("memory pinned and buffers aligned to pages unless said, no port stalls; seed {}", self.seed),
        ]
    }
}

/// Bytes of a frame with one packet of a SEND that are not payload: preamble, Ethernet, IPv4, UDP, BTH, placement header,
/// iCRC, FCS, gap.
const OVERHEAD: usize = FRAMING + 14 + 20 + 8 + 12 + PLACEMENT + 4;
/// Of them, those that a foreign peer does not get.
const PLACEMENT: usize = 4;
/// Of them, those that are not on the MAC port: preamble, FCS, gap.
pub const FRAMING: usize = 8 + 4 + 12;

/// What each packet of a WRITE has beside that: RETH.
pub const RETH: usize = 16;
/// What each packet of a READ costs beside that: its request, which goes the other way, where as many READs are.
pub const READ_REQUEST: usize = FRAMING + 14 + 20 + 8 + 12 + RETH + 4;

/// Likewise of an atomic.
pub const ATOMIC_REQUEST: usize = FRAMING + 14 + 20 + 8 + 12 + 28 + 4;

/// Payload bytes per cycle of a wire that carries `data_w` bits per cycle, in packets of `mtu` bytes.
pub fn wire_payload(data_w: usize, mtu: usize) -> f64 {
    wire_payload_behind(data_w, mtu, 0)
}

/// As [`wire_payload`], of packets with so many bytes of headers more.
pub fn wire_payload_behind(data_w: usize, mtu: usize, more: usize) -> f64 {
    data_w as f64 / 8.0 * mtu as f64 / (mtu + OVERHEAD + more) as f64
}

/// As [`wire_payload`], of messages of `len` bytes to a foreign peer, each with so many bytes of headers more.
pub fn wire_payload_foreign(data_w: usize, len: usize, mtu: usize, more: usize) -> f64 {
    let packets = len.div_ceil(mtu);
    data_w as f64 / 8.0 * len as f64 / (len + packets * (OVERHEAD - PLACEMENT) + more) as f64
}
