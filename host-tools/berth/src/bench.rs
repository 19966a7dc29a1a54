// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth bench`: how long messages, RDMA WRITEs, READs and atomics take between two cards, in cycles of the card that asks.
//!
//! The other end listens. It offers memory for WRITEs and READs, of which its process sees nothing, and takes or returns
//! messages as it is asked to.

use clap::{ArgGroup, Args, ValueEnum};
use libberth::abi::wqe::ATOMIC_BYTES;
use libberth::{Atomic, Buffer, BufferRegion, Context, Device, Error, Info, SendBlock, Stream};
use serde_json::json;

use crate::ends::{self, Common, Peer, SEND_DEPTH, name_the_end, next_piece, or_goodbye, patiently, say};
use crate::failure::Failure;
use crate::offer::Offer;
use crate::record::{DIGEST, RECORD, Record, word};
use crate::signals;
use crate::size;

/// Most bytes of one message, WRITE or READ.
const MAX_SIZE: usize = 1 << 20;
/// Most of each that are measured.
const MAX_COUNT: u32 = 1_000_000;
/// Receives of each end.
const RECV_DEPTH: u32 = 64;
/// Memory that the other end offers: touched only as far as it is used.
const OFFERED: usize = SEND_DEPTH as usize * MAX_SIZE;
/// Memory for the receives of an end, some of it unused at its end and between an order and messages.
const RECEIVES: usize = (RECV_DEPTH as usize + 2) * MAX_SIZE;

/// Private data of a request for measurements.
const ASK: &[u8] = b"berth bench v1";
/// Bytes of an [`Order`].
const ORDER: usize = 16;
const ORDER_MAGIC: &[u8; 4] = b"BBE\x01";

fn message(s: &str) -> Result<usize, String> {
    match size::parse_usize(s)? {
        n if n <= MAX_SIZE => Ok(n),
        _ => Err("a message has at most 1 MiB".into()),
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Op {
    /// Messages into receives.
    Send,
    /// RDMA WRITEs.
    Write,
    /// RDMA READs.
    Read,
    /// Fetch-and-add, of 8 bytes whatever sizes are asked for.
    Atomic,
}

impl Op {
    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
        }
    }
}

/// Measures, or is the other end.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("end").required(true).args(["peer", "listen"]))]
pub struct Bench {
    /// With whom to measure: IP:SERVICE of a `berth bench --listen`.
    peer: Option<Peer>,
    /// Be the other end: listen to this service id (1 to 65535), for one peer at a time.
    #[arg(long, value_name = "SERVICE", value_parser = clap::value_parser!(u16).range(1..),
          conflicts_with_all = ["op", "sizes", "count", "depth", "wait"])]
    listen: Option<u16>,
    /// End when the first peer has gone.
    #[arg(long, conflicts_with = "peer")]
    once: bool,
    /// What to measure.
    #[arg(long, value_name = "OP,…", value_enum, value_delimiter = ',', default_value = "send,write,read,atomic")]
    op: Vec<Op>,
    /// Sizes in bytes (K and M allowed), at most 1M.
    #[arg(long = "size", value_name = "BYTES,…", value_parser = message, value_delimiter = ',',
          default_value = "8,64,512,4K,32K,256K")]
    sizes: Vec<usize>,
    /// How many of each are measured (1 to 1000000), after as many that are not.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    count: u32,
    /// How many are under way at a time for the rate (1 to 64). For the latency it is one.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=i64::from(SEND_DEPTH)))]
    depth: u32,
    /// Keep trying to connect for this many seconds while the peer does not listen yet.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    #[command(flatten)]
    common: Common,
}

impl Bench {
    /// Measures, or listens.
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>, as_json: bool) -> Result<(), Failure> {
        let device = open()?;
        signals::watch();
        let context = self.common.context(&device)?;
        match (self.peer, self.listen) {
            (Some(peer), _) => self.measure(&device, &context, peer, as_json),
            (None, Some(service)) => self.listen(&context, service, as_json),
            (None, None) => unreachable!("one of them is required"),
        }
    }

    fn listen(&self, context: &Context, service: u16, as_json: bool) -> Result<(), Failure> {
        let config = self.common.one_sided(RECV_DEPTH);
        let domain = context.create_domain()?;
        let region = BufferRegion::new(&domain, Buffer::new(OFFERED)?)?;
        let offer = Offer { remote: region.remote(), length: OFFERED as u64, writable: true, stamp: 0 };
        let stream = || {
            let mut stream = Stream::in_domain(context, &domain, &config, RECEIVES)?;
            stream.post_recv(&[ORDER])?;
            Ok(stream)
        };
        let listener = context.listen(service)?;
        if !as_json {
            note!("listening to service {service}");
        }
        loop {
            let mut client = ends::accept(&listener, ASK, &offer.to_bytes(), stream)?;
            if self.once {
                drop(listener);
                return serve(&mut client.stream);
            }
            match serve(&mut client.stream) {
                Err(failure @ Failure::Interrupted(_)) => return Err(failure),
                Err(failure) => note!("berth: {}: {failure}", client.peer),
                Ok(()) => {}
            }
        }
    }

    fn measure(&self, device: &Device, context: &Context, peer: Peer, as_json: bool) -> Result<(), Failure> {
        let config = self.common.one_sided(RECV_DEPTH);
        let (stream, accept) = ends::connect(context, &config, RECEIVES, peer, self.wait, ASK)?;
        let mut link = Link { device, stream, offer: Offer::from_bytes(&accept)? };
        let Info { clock_hz, linger_ms, .. } = device.info()?;
        let depth = self.depth.min(self.count);
        // Rows go out as they come: this end has nothing to tidy up when nobody reads them.
        if !as_json {
            ends::print(&head(clock_hz, linger_ms, self.count, depth))?;
        }
        let mut rows = Vec::new();
        for &op in &self.op {
            let sizes = if op == Op::Atomic { &[ATOMIC_BYTES as usize][..] } else { &self.sizes };
            for &bytes in sizes {
                let row = link.row(op, bytes, self.count, depth);
                let row = row.map_err(|failure| name_the_end(link.stream.queue_pair(), failure))?;
                match as_json {
                    true => rows.push(row.json(clock_hz)),
                    false => ends::print(&row.text(clock_hz))?,
                }
            }
        }
        // The peer may have closed first.
        let _ = link.stream.queue_pair().disconnect();
        if as_json {
            let report = json!({
                "role": "bench", "peer": peer.ip.to_string(), "clock_hz": clock_hz, "count": self.count,
                "depth": depth, "linger_ms": linger_ms, "rows": rows,
            });
            ends::print(&report.to_string())?;
        }
        Ok(())
    }
}

/// What the figures mean, and the head of their table.
fn head(clock_hz: u32, linger_ms: u32, count: u32, depth: u32) -> String {
    let mhz = f64::from(clock_hz) / 1e6;
    format!(
        "cycles of this card, means of {count}, after as many that are not counted; the software of both hosts is in them\n\
         latency: one at a time, from post to completion; of messages half of there and back\n\
         each, Gbit/s: {depth} at a time, from the first post to the last completion\n\
         ns and Gbit/s hold for a clock of {mhz:.1} MHz, which a simulated card does not keep\n\
         memory that rests longer than the linger time, {linger_ms} ms here, is pinned anew (`berth limits`)\n\
         {:<6}{:>9}{:>10}{:>11}{:>10}{:>10}",
        "", "bytes", "latency", "ns", "each", "Gbit/s"
    )
}

/// What was measured of one kind and size.
#[derive(Clone, Copy, Debug)]
struct Row {
    op: Op,
    bytes: usize,
    /// Mean cycles of one, when there is one at a time.
    latency: f64,
    /// Mean cycles for each, when there are several.
    each: f64,
}

impl Row {
    fn gbit(&self, clock_hz: u32) -> f64 {
        8.0 * self.bytes as f64 * f64::from(clock_hz) / self.each / 1e9
    }

    fn nanoseconds(&self, clock_hz: u32) -> f64 {
        self.latency * 1e9 / f64::from(clock_hz)
    }

    fn text(&self, clock_hz: u32) -> String {
        let (ns, gbit) = (self.nanoseconds(clock_hz), self.gbit(clock_hz));
        let Self { op, bytes, latency, each } = self;
        format!("{:<6}{bytes:>9}{latency:>10.0}{ns:>11.0}{each:>10.0}{gbit:>10.3}", op.name())
    }

    fn json(&self, clock_hz: u32) -> serde_json::Value {
        json!({
            "op": self.op.name(), "bytes": self.bytes, "latency_cycles": self.latency,
            "latency_ns": self.nanoseconds(clock_hz), "cycles_each": self.each, "gbit_per_s": self.gbit(clock_hz),
        })
    }
}

/// What the other end is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    /// It returns each message; else it takes them.
    returns: bool,
    bytes: usize,
    count: u32,
}

impl Order {
    fn to_bytes(self) -> [u8; ORDER] {
        let mut bytes = [0; ORDER];
        bytes[..4].copy_from_slice(ORDER_MAGIC);
        bytes[4] = self.returns.into();
        bytes[8..12].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        bytes[12..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        let order = Self { returns: word(bytes, 4) != 0, bytes: word(bytes, 8) as usize, count: word(bytes, 12) };
        let good = bytes.len() == ORDER && bytes.starts_with(ORDER_MAGIC) && word(bytes, 4) <= 1;
        match good && order.bytes <= MAX_SIZE {
            true => Ok(order),
            false => Err(Failure::Protocol("the peer speaks another protocol: its order is malformed".into())),
        }
    }
}

/// Receives of one size, posted ahead of the messages for them.
struct Receives {
    bytes: usize,
    count: u32,
    posted: u32,
}

impl Receives {
    /// Of so many messages.
    fn new(bytes: usize, count: u32) -> Self {
        Self { bytes, count, posted: 0 }
    }

    /// Posts further ones when `come` messages have come. One place stays free for what follows the messages.
    fn post(&mut self, stream: &mut Stream, come: u32) -> Result<(), Failure> {
        let until = self.count.min(come.saturating_add(RECV_DEPTH - 1));
        let sizes = vec![self.bytes; (until - self.posted) as usize];
        self.posted += stream.post_recv(&sizes)? as u32;
        Ok(())
    }
}

/// Does what the peer asks for until it has gone.
fn serve(stream: &mut Stream) -> Result<(), Failure> {
    patiently(|limit| stream.queue_pair().wait_established(limit))?;
    loop {
        let order = next_piece(stream, |piece| Order::from_bytes(piece));
        if let Err(failure) = order.and_then(|order| carry_out(stream, order)) {
            return or_goodbye(stream.queue_pair(), failure);
        }
    }
}

fn carry_out(stream: &mut Stream, order: Order) -> Result<(), Failure> {
    let mut receives = Receives::new(order.bytes, order.count);
    receives.post(stream, 0)?;
    say(stream, &Record::done([0; DIGEST]))?;
    let mut spare = Vec::new();
    for come in 1..=order.count {
        next_piece(stream, |_| Ok(()))?;
        if order.returns {
            let block = spare.pop().map_or_else(|| Buffer::new(order.bytes).map(SendBlock::from), Ok)?;
            stream.send(block, false)?;
            while let Some(sent) = stream.try_next_sent()? {
                sent.completion.ok()?;
                spare.push(sent.block);
            }
        }
        receives.post(stream, come)?;
    }
    stream.post_recv(&[ORDER])?;
    while stream.sends_outstanding() > 0 {
        sent(stream)?;
    }
    Ok(())
}

/// Waits until the oldest one under way is done, and gives its memory.
fn sent(stream: &mut Stream) -> Result<SendBlock, Failure> {
    let sent = patiently(|limit| stream.next_sent(limit))?;
    let sent = sent.ok_or_else(|| Failure::Other("a completion has got lost".into()))?;
    sent.completion.ok()?;
    Ok(sent.block)
}

/// The connection to the other end. A receive for its answer to an order is posted whenever none is under way.
struct Link<'a> {
    device: &'a Device,
    stream: Stream,
    /// Memory of the other end.
    offer: Offer,
}

impl Link<'_> {
    fn row(&mut self, op: Op, bytes: usize, count: u32, depth: u32) -> Result<Row, Failure> {
        let latency = match op {
            Op::Send => self.there_and_back(bytes, count)? / 2.0,
            Op::Write | Op::Read | Op::Atomic => self.several(op, bytes, count, 1)?,
        };
        Ok(Row { op, bytes, latency, each: self.several(op, bytes, count, depth)? })
    }

    fn now(&self) -> Result<u64, Failure> {
        Ok(self.device.info()?.cycles)
    }

    /// Mean cycles of `count` that have been done since `begun`.
    fn mean_since(&self, begun: u64, count: u32) -> Result<f64, Failure> {
        // A card that is reset counts anew.
        let cycles = self.now()?.checked_sub(begun).filter(|cycles| *cycles > 0).ok_or(Error::DeviceLost)?;
        Ok(cycles as f64 / f64::from(count))
    }

    /// Tells the other end what is to come, and waits until it is ready.
    fn order(&mut self, order: Order) -> Result<(), Failure> {
        self.stream.send(Buffer::from_slice(&order.to_bytes())?, false)?;
        next_piece(&mut self.stream, |piece| Record::from_bytes("peer", piece))?.check("peer")?;
        sent(&mut self.stream)?;
        Ok(())
    }

    /// Mean cycles of a message and the one that is returned for it.
    fn there_and_back(&mut self, bytes: usize, count: u32) -> Result<f64, Failure> {
        let mut block = SendBlock::from(Buffer::new(bytes)?);
        let mut receives = Receives::new(bytes, 2 * count);
        let mut begun = 0;
        self.order(Order { returns: true, bytes, count: 2 * count })?;
        receives.post(&mut self.stream, 0)?;
        for n in 0..2 * count {
            if n == count {
                begun = self.now()?;
            }
            self.stream.send(block, false)?;
            next_piece(&mut self.stream, |_| Ok(()))?;
            block = sent(&mut self.stream)?;
            receives.post(&mut self.stream, n + 1)?;
        }
        let mean = self.mean_since(begun, count)?;
        self.stream.post_recv(&[RECORD])?;
        Ok(mean)
    }

    /// Mean cycles of one of `count`, of which `depth` are under way at a time.
    fn several(&mut self, op: Op, bytes: usize, count: u32, depth: u32) -> Result<f64, Failure> {
        if op == Op::Send {
            self.order(Order { returns: false, bytes, count: 2 * count })?;
            self.stream.post_recv(&[RECORD])?;
        }
        // Each has memory of its own at both ends: WRITEs over the same bytes wait for each other.
        let mut spare = Vec::new();
        for _ in 0..depth {
            spare.push(Buffer::new(bytes)?);
        }
        let mut begun = 0;
        for measured in [false, true] {
            if measured {
                begun = self.now()?;
            }
            let (mut posted, mut done) = (0, 0);
            while done < count {
                while posted < count
                    && let Some(buffer) = spare.pop()
                {
                    let remote = self.offer.at(u64::from(posted % depth) * bytes as u64);
                    match op {
                        Op::Send => self.stream.send(buffer, false)?,
                        Op::Write => self.stream.write(buffer, remote)?,
                        Op::Read => self.stream.read(buffer, remote)?,
                        Op::Atomic => self.stream.atomic(buffer, remote, Atomic::FetchAdd(1))?,
                    }
                    posted += 1;
                }
                if let SendBlock::Buffer(buffer) = sent(&mut self.stream)? {
                    spare.push(buffer);
                }
                done += 1;
            }
        }
        self.mean_since(begun, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_travels_and_a_malformed_one_is_refused() {
        let order = Order { returns: true, bytes: 4096, count: 100 };
        let bytes = order.to_bytes();
        assert_eq!(Order::from_bytes(&bytes).unwrap(), order);
        for at in [0, 3, 4, 11] {
            let mut other = bytes;
            other[at] ^= 0x42;
            assert!(Order::from_bytes(&other).is_err(), "byte {at}");
        }
        assert!(Order::from_bytes(&bytes[..15]).is_err());
    }

    #[test]
    fn a_row_says_time_and_rate_at_the_cards_clock() {
        let row = Row { op: Op::Write, bytes: 1000, latency: 500.0, each: 40.0 };
        assert_eq!((row.nanoseconds(250_000_000), row.gbit(250_000_000)), (2000.0, 50.0));
        assert!(row.text(250_000_000).starts_with("write      1000       500       2000        40    50.000"));
    }
}
