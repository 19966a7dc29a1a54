// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capture of the wire as pcapng: every frame as its card sent it, before any fault.
//!
//! One interface per card; time stamps are the simulator's common clock at the card's clock rate. The packet's comment
//! says what the wire did to the frame.

use crate::wire::Sent;
use berth_abi::card::CLOCK_HZ;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tracing::error;

/// Cards run up to one latency apart, so their frames come slightly out of order: this many are sorted.
const SORTED: usize = 64;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    cycle: u64,
    order: u64,
    interface: u32,
    data: Vec<u8>,
    comment: Option<String>,
}

struct Inner {
    writer: PcapNgWriter<BufWriter<File>>,
    waiting: BinaryHeap<Reverse<Packet>>,
    packets: u64,
    failed: bool,
}

/// A capture file.
pub struct Capture {
    inner: Mutex<Inner>,
}

/// What the wire does to a frame, in words; `None` if it just delivers it.
pub fn comment(sent: Option<Sent>) -> Option<String> {
    let Some(sent) = sent else { return Some("dropped: an end of the wire is unplugged".into()) };
    let v = sent.verdict;
    let mut words = vec![];
    if v.lost {
        words.push("lost by the wire".to_string());
    }
    if v.duplicated {
        words.push("duplicated by the wire".to_string());
    }
    if v.overtaken_by > 0 {
        words.push(format!("may be overtaken by {} later frames", v.overtaken_by));
    }
    if v.corrupted.is_some() {
        words.push("one bit flipped by the wire".to_string());
    }
    if sent.held {
        words.push("held at the wire".to_string());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

impl Capture {
    /// Creates the file, with one interface per name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path, cards: &[String]) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(BufWriter::new(File::create(path)?)).map_err(io::Error::other)?;
        for name in cards {
            writer
                .write_pcapng_block(InterfaceDescriptionBlock {
                    linktype: DataLink::ETHERNET,
                    snaplen: 0,
                    options: vec![
                        InterfaceDescriptionOption::IfName(Cow::Owned(name.clone())),
                        InterfaceDescriptionOption::IfDescription(Cow::Owned(format!("frames that card {name} sends"))),
                        InterfaceDescriptionOption::IfTsResol(9),
                    ],
                })
                .map_err(io::Error::other)?;
        }
        let inner = Inner { writer, waiting: BinaryHeap::new(), packets: 0, failed: false };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// A frame that left a card in `cycle`; `sent` is what [`crate::link::Link::send`] said.
    pub fn frame(&self, interface: u32, cycle: u64, data: Vec<u8>, sent: Option<Sent>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let order = inner.packets;
        inner.packets += 1;
        inner.waiting.push(Reverse(Packet { cycle, order, interface, data, comment: comment(sent) }));
        if inner.waiting.len() > SORTED {
            inner.write_one();
        }
    }

    /// Writes out everything.
    pub fn finish(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while !inner.waiting.is_empty() {
            inner.write_one();
        }
        if let Err(e) = inner.writer.get_mut().flush() {
            error!("capture file: {e}");
        }
    }
}

impl Inner {
    fn write_one(&mut self) {
        let Some(Reverse(p)) = self.waiting.pop() else { return };
        if self.failed {
            return;
        }
        let nanos = u128::from(p.cycle) * 1_000_000_000 / u128::from(CLOCK_HZ);
        let block = EnhancedPacketBlock {
            interface_id: p.interface,
            timestamp: Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)),
            original_len: p.data.len() as u32,
            data: Cow::Owned(p.data),
            options: p.comment.map(|c| EnhancedPacketOption::Comment(Cow::Owned(c))).into_iter().collect(),
        };
        if let Err(e) = self.writer.write_pcapng_block(block) {
            error!("capture file: {e}; the rest of the wire is not captured");
            self.failed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Verdict;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn frames_are_written_in_order_of_time_with_their_fate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wire.pcapng");
        let capture = Capture::create(&path, &["a".into(), "b".into()]).unwrap();
        let sent = |verdict| Some(Sent { index: 0, departure: 0, verdict, held: false });
        capture.frame(0, 250, vec![1; 61], sent(Verdict::default()));
        capture.frame(1, 125, vec![2; 60], sent(Verdict { lost: true, ..Verdict::default() }));
        capture.finish();
        let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
        let mut packets = vec![];
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(p) = block.unwrap() {
                let comment =
                    p.options.iter().any(|o| matches!(o, EnhancedPacketOption::Comment(c) if c.contains("lost")));
                packets.push((p.interface_id, p.timestamp.as_nanos(), p.data.len(), comment));
            }
        }
        assert_eq!(packets, [(1, 500, 60, true), (0, 1000, 61, false)]);
    }
}
