// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth send` and `berth recv`: one file over one connection.
//!
//! The request's private data is a [`Hello`]: the file's length. The stream is the file and then its SHA-256
//! (32 bytes). The receiver answers on the same connection with the SHA-256 of what it got, so that both ends know.

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use libberth::{Buffer, Context, Device, Error, FileMap, Limits, QpConfig, Reason, SendBlock, Status, Stream, Trigger};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::size;

const DIGEST: usize = 32;
const HELLO_MAGIC: &[u8; 4] = b"BFIL";
const HELLO_VERSION: u32 = 1;
/// Between two attempts to connect to a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(250);
/// Card budgets are shared; a batch of receives must be pinned as a whole, so it takes a part of the budget only.
const BATCHES_PER_BUDGET: u64 = 4;

/// Private data of the request.
#[derive(Debug, PartialEq, Eq)]
struct Hello {
    /// Length of the file in bytes.
    length: u64,
}

impl Hello {
    fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(HELLO_MAGIC);
        bytes[4..8].copy_from_slice(&HELLO_VERSION.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = bytes.first_chunk()?;
        let version = u32::from_le_bytes(*bytes[4..].first_chunk()?);
        let length = u64::from_le_bytes(*bytes[8..].first_chunk()?);
        (bytes.starts_with(HELLO_MAGIC) && version == HELLO_VERSION && length < 1 << 62).then_some(Self { length })
    }
}

/// `IP:SERVICE`.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    ip: Ipv4Addr,
    service: u16,
}

impl FromStr for Peer {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let parsed = s.rsplit_once(':').and_then(|(ip, service)| {
            let service: u16 = service.parse().ok()?;
            Some(Self { ip: ip.parse().ok()?, service: (service > 0).then_some(service)? })
        });
        parsed.ok_or_else(|| format!("`{s}` is not IP:SERVICE such as 192.0.2.2:7"))
    }
}

fn block(s: &str) -> Result<u32, String> {
    match size::parse(s)? {
        n if n > 0 && n <= 1 << 20 && n.is_multiple_of(4096) => Ok(n as u32),
        _ => Err("a block is a multiple of 4096 bytes, at most 1 MiB".into()),
    }
}

fn trigger(s: &str) -> Result<Trigger, String> {
    match s.split_once(':') {
        None if s == "first" => Ok(Trigger::First),
        None if s == "last" => Ok(Trigger::Last),
        Some(("between", n)) => n.parse().map(Trigger::Between).map_err(|e| e.to_string()),
        Some(("adaptive", n)) => n.parse().map(Trigger::Adaptive).map_err(|e| e.to_string()),
        _ => Err("a trigger is `first`, `last`, `between:N` or `adaptive:N`".into()),
    }
}

fn message(s: &str) -> Result<usize, String> {
    match size::parse_usize(s)? {
        n if n > 0 && n <= 1 << 31 => Ok(n),
        _ => Err("a message has 1 byte to 2 GiB".into()),
    }
}

/// What both ends have in common.
#[derive(Debug, Args)]
struct Common {
    /// Virtual-context block: how much is pinned at a time for sending; a multiple of 4096, at most 1M.
    #[arg(long, value_parser = block, default_value = "64K")]
    block: u32,
    /// Pinned-memory budget of this process (K, M, G allowed) [default: the driver's].
    #[arg(long, value_parser = size::parse)]
    budget: Option<u64>,
    /// Acknowledgement time-out in card cycles [default: the card's].
    #[arg(long, value_name = "CYCLES", default_value_t = 0, hide_default_value = true)]
    timeout: u32,
}

impl Common {
    fn context(&self, device: &Device) -> Result<Context, Failure> {
        if device.info()?.net.is_none() {
            return Err(Failure::Other("the card has no name in the network yet: `berth up --ip … --mac …`".into()));
        }
        let context = Context::new(device)?;
        if let Some(bytes) = self.budget {
            context.set_budget(bytes)?;
        }
        Ok(context)
    }
}

/// Receives one file.
#[derive(Debug, Args)]
pub struct Recv {
    /// Service id to listen to (1 to 65535).
    #[arg(long, value_name = "SERVICE", value_parser = clap::value_parser!(u16).range(1..))]
    listen: u16,
    /// Where to write the file. It appears under this name when it is complete and verified.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Sizes of the receive buffers, used in turn again and again. Each is one credit.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = size::parse_usize,
          default_value = "64K")]
    pub recv_sizes: Vec<usize>,
    /// Receive buffers that are posted at a time (1 to 256).
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    depth: u32,
    /// When the next credit list is sent: data lands in the `first`, the `last` or (`between:N`) the N-th (from 0)
    /// buffer of the last list; `adaptive:N` is the first while the card bounds what is pinned, else the N-th.
    #[arg(long, value_parser = trigger, default_value = "adaptive:15")]
    trigger: Trigger,
    /// Longest credit list (1 to 64) [default: as long as possible].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    max_list: u32,
    /// Give up if nobody has connected after this many seconds [default: never].
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Sends one file.
#[derive(Debug, Args)]
pub struct Send {
    /// Peer and service id.
    #[arg(long, value_name = "IP:SERVICE")]
    to: Peer,
    /// File to send. It is mapped, not read: the card takes it from the page cache (zero copy).
    #[arg(long)]
    file: PathBuf,
    /// Bytes of one send element.
    #[arg(long, value_parser = message, default_value = "1M")]
    message: usize,
    /// Keep trying to connect for this many seconds while the peer does not listen yet.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    #[command(flatten)]
    common: Common,
}

/// Figures of the card before a transfer.
struct Meter<'d> {
    device: &'d Device,
    cycles: u64,
    wall: Instant,
}

impl<'d> Meter<'d> {
    fn start(device: &'d Device) -> Result<Self, Failure> {
        // Without CAP_SYS_ADMIN the peak is that since the driver was loaded.
        if let Err(error) = device.set_limits(&Limits { reset_peak: true, ..Limits::default() }) {
            tracing::debug!(%error, "peak of pinned bytes not reset");
        }
        Ok(Self { device, cycles: device.info()?.cycles, wall: Instant::now() })
    }

    /// Prints the report of one end.
    fn report(&self, as_json: bool, end: &End<'_>) -> Result<(), Failure> {
        let info = self.device.info()?;
        let cycles = info.cycles.saturating_sub(self.cycles);
        let counters = self.device.counters()?;
        let (peak, pinned) = (counters.pinned_peak(), counters.pinned());
        let per_byte = (end.bytes > 0).then(|| cycles as f64 / end.bytes as f64);
        let wall = self.wall.elapsed();
        if as_json {
            println!(
                "{}",
                json!({
                    "role": end.role, "bytes": end.bytes, "sha256": size::hex(&end.digest),
                    "peer_sha256": size::hex(&end.peer_digest), "sha256_match": end.digest == end.peer_digest,
                    "elements": end.elements, "card_cycles": cycles, "cycles_per_byte": per_byte,
                    "wall_ms": wall.as_millis() as u64, "peak_pinned_bytes": peak, "pinned_bytes": pinned,
                    "peer": end.peer.to_string(),
                })
            );
        } else {
            let bits = end.bytes as f64 * 8.0 * f64::from(info.clock_hz) / cycles.max(1) as f64;
            println!(
                "{} {} in {} {}: {cycles} card cycles ({:.2} per byte, {:.2} Gbit/s of card time), {:.1} s of wall time",
                end.verb,
                size::show(end.bytes),
                end.elements,
                end.unit,
                per_byte.unwrap_or(0.0),
                bits / 1e9,
                wall.as_secs_f64()
            );
            println!("SHA-256 {}, equal at both ends", size::hex(&end.digest));
            println!("pinned at most {} for {}", size::show(peak), size::show(end.bytes));
        }
        Ok(())
    }
}

struct End<'a> {
    role: &'a str,
    verb: &'a str,
    unit: &'a str,
    peer: Ipv4Addr,
    bytes: u64,
    elements: u64,
    digest: [u8; DIGEST],
    peer_digest: [u8; DIGEST],
}

/// Shows progress on a terminal.
struct Progress {
    total: u64,
    shown: u64,
    on: bool,
}

impl Progress {
    fn new(total: u64, as_json: bool) -> Self {
        Self { total, shown: u64::MAX, on: !as_json && std::io::stderr().is_terminal() }
    }

    fn at(&mut self, bytes: u64) {
        let percent = (bytes.min(self.total) * 100).checked_div(self.total).unwrap_or(100);
        if self.on && percent != self.shown {
            self.shown = percent;
            eprint!("\r{percent:3} %");
            let _ = std::io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.on && self.shown != u64::MAX {
            eprint!("\r     \r");
        }
    }
}

/// Receive sizes in turn, at most so many bytes at a time.
struct Sizes<'a> {
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    next: usize,
    most: usize,
}

impl<'a> Sizes<'a> {
    fn new(sizes: &'a [usize], most: usize) -> Self {
        let mut sizes = sizes.iter().cycle();
        let next = *sizes.next().expect("checked to be not empty");
        Self { sizes, next, most }
    }

    /// Posts `count` buffers in batches, fewer when there is no room for more.
    fn post(&mut self, stream: &mut Stream, mut count: usize) -> Result<(), Failure> {
        while count > 0 {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < count && (batch.is_empty() || bytes + self.next <= self.most) {
                bytes += self.next;
                batch.push(self.next);
                self.next = *self.sizes.next().expect("endless");
            }
            let posted = stream.post_recv(&batch)?;
            if posted < batch.len() {
                return Err(Failure::Other("receive memory too small for the buffers".into()));
            }
            count -= posted;
        }
        Ok(())
    }
}

impl Recv {
    /// Receives.
    pub fn run(&self, device: &Device, as_json: bool) -> Result<(), Failure> {
        if self.recv_sizes.iter().all(|&s| s == 0) {
            return Err(Failure::Other("at least one receive buffer must be longer than 0 bytes".into()));
        }
        let context = self.common.context(device)?;
        let listener = context.listen(self.listen)?;
        if !as_json {
            eprintln!("listening to service {}", self.listen);
        }
        let request = listener.next(self.wait.map(Duration::from_secs))?;
        let peer = request.peer();
        let Some(hello) = Hello::from_bytes(request.private_data()) else {
            request.reject(b"not a berth file transfer")?;
            return Err(Failure::Other(format!("{peer} speaks another protocol: rejected")));
        };
        // No second sender while this one is served.
        drop(listener);

        // Queues of less than four elements are firmware's.
        let config = QpConfig {
            send_depth: 4,
            recv_depth: self.depth,
            trigger: self.trigger,
            max_list: self.max_list,
            block: self.common.block,
            timeout: self.common.timeout,
            ..QpConfig::default()
        };
        let largest = self.recv_sizes.iter().copied().max().unwrap_or(0);
        // Room for `depth` buffers of any size, and for one that lies unused at the end of the memory.
        let memory = (self.depth as usize + 1)
            .checked_mul(largest.next_multiple_of(4096) + 4096)
            .ok_or_else(|| Failure::Other("receive buffers too large".into()))?;
        let info = device.info()?;
        let budget = self.common.budget.unwrap_or(info.process_budget).min(info.card_budget);
        let mut stream = Stream::new(&context, &config, memory)?;
        let most = usize::try_from(budget / BATCHES_PER_BUDGET).unwrap_or(usize::MAX);
        let mut sizes = Sizes::new(&self.recv_sizes, most);
        let meter = Meter::start(device)?;
        let depth = self.depth as usize;
        sizes.post(&mut stream, depth)?;
        request.accept(stream.queue_pair(), b"")?;
        stream.queue_pair().wait_established(None)?;

        let part = Part::new(&self.out)?;
        let mut receiving = Receiving::new(hello.length, part, as_json);
        while !receiving.is_complete() {
            let piece = stream.next_piece(None)?;
            let piece = piece.ok_or_else(|| Failure::Other("no receive buffer is posted".into()))?;
            receiving.take(&piece)?;
            drop(piece);
            // Again when a part of them is free, or when we would wait now: then the sender might, too.
            let free = depth - stream.recvs_outstanding();
            if free >= depth.div_ceil(4) || !stream.is_piece_ready()? {
                sizes.post(&mut stream, free)?;
            }
        }
        let (digest, peer_digest, elements, part) = receiving.finish();
        stream.send(Buffer::from_slice(&digest)?, true)?;
        // The sender disconnects when it has read the answer. It may do so before the answer's acknowledgement has come
        // (which the wire may lose): the answer is then flushed, and what counts is the file that is here.
        if let Some(sent) = stream.next_sent(None)?
            && sent.completion.status != Status::Flushed
        {
            sent.completion.ok()?;
        }
        let _ = stream.queue_pair().wait_closed(Some(Duration::from_secs(30)));
        drop(stream);
        if digest != peer_digest {
            return Err(Failure::Checksum(format!(
                "received SHA-256 {}, but {} was sent: {} is not written",
                size::hex(&digest),
                size::hex(&peer_digest),
                self.out.display()
            )));
        }
        part.keep()?;
        let end = End {
            role: "recv",
            verb: "received",
            unit: "buffers",
            peer,
            bytes: hello.length,
            elements,
            digest,
            peer_digest,
        };
        meter.report(as_json, &end)
    }
}

/// The output file under a temporary name, removed unless kept.
struct Part {
    file: File,
    path: PathBuf,
    target: PathBuf,
    kept: bool,
}

impl Part {
    fn new(target: &Path) -> Result<Self, Failure> {
        // A device or a pipe is written as it is.
        let special = fs::metadata(target).is_ok_and(|m| !m.is_file());
        let path = if special {
            target.to_owned()
        } else {
            let mut name = target.as_os_str().to_owned();
            name.push(".part");
            name.into()
        };
        let file = File::options()
            .write(true)
            .create(!special)
            .truncate(!special)
            .open(&path)
            .map_err(|e| Failure::File(path.clone(), e))?;
        Ok(Self { file, path, target: target.to_owned(), kept: special })
    }

    fn keep(mut self) -> Result<(), Failure> {
        if !self.kept {
            fs::rename(&self.path, &self.target).map_err(|e| Failure::File(self.target.clone(), e))?;
            self.kept = true;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Cuts the stream into file and digest.
struct Receiving {
    length: u64,
    got: u64,
    pieces: u64,
    part: Part,
    hash: Sha256,
    peer_digest: Vec<u8>,
    progress: Progress,
}

impl Receiving {
    fn new(length: u64, part: Part, as_json: bool) -> Self {
        Self {
            length,
            got: 0,
            pieces: 0,
            part,
            hash: Sha256::new(),
            peer_digest: Vec::with_capacity(DIGEST),
            progress: Progress::new(length, as_json),
        }
    }

    fn is_complete(&self) -> bool {
        self.peer_digest.len() == DIGEST
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let (file, rest) = bytes.split_at(bytes.len().min((self.length - self.got) as usize));
        self.part.file.write_all(file).map_err(|e| Failure::File(self.part.path.clone(), e))?;
        self.hash.update(file);
        self.got += file.len() as u64;
        self.pieces += 1;
        self.progress.at(self.got);
        if self.peer_digest.len() + rest.len() > DIGEST {
            return Err(Failure::Other("the sender sent more than it had said".into()));
        }
        self.peer_digest.extend_from_slice(rest);
        Ok(())
    }

    fn finish(self) -> ([u8; DIGEST], [u8; DIGEST], u64, Part) {
        let peer = self.peer_digest.try_into().expect("complete");
        (self.hash.finalize().into(), peer, self.pieces, self.part)
    }
}

impl Send {
    /// Sends.
    pub fn run(&self, device: &Device, as_json: bool) -> Result<(), Failure> {
        let failed = |e| Failure::File(self.file.clone(), e);
        let mut file = File::open(&self.file).map_err(failed)?;
        let map = Arc::new(FileMap::new(&file)?);
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).map_err(failed)?;
        let digest: [u8; DIGEST] = hash.finalize().into();

        let context = self.common.context(device)?;
        let mut stream = self.connect(&context, &Hello { length: map.len() as u64 })?;
        let meter = Meter::start(device)?;
        let mut progress = Progress::new(map.len() as u64, as_json);
        let mut elements = 0;
        let mut acknowledged = 0;
        let mut reap = |stream: &mut Stream| -> Result<(), Failure> {
            if let Some(sent) = stream.next_sent(None)? {
                sent.completion.ok()?;
                if let SendBlock::File(_, range) = sent.block {
                    acknowledged += range.len() as u64;
                    progress.at(acknowledged);
                }
            }
            Ok(())
        };
        for start in (0..map.len()).step_by(self.message) {
            while !stream.has_send_room() {
                reap(&mut stream)?;
            }
            let end = map.len().min(start + self.message);
            loop {
                match stream.send(SendBlock::File(Arc::clone(&map), start..end), false) {
                    Err(Error::TooMuchOutstanding) => reap(&mut stream)?,
                    other => break other?,
                }
            }
            elements += 1;
        }
        while !stream.has_send_room() {
            reap(&mut stream)?;
        }
        stream.send(Buffer::from_slice(&digest)?, true)?;
        while stream.sends_outstanding() > 0 {
            reap(&mut stream)?;
        }
        drop(progress);
        let mut answer = Vec::new();
        while answer.len() < DIGEST {
            let piece = stream.next_piece(None)?;
            let piece = piece.ok_or_else(|| Failure::Other("the receiver's answer is incomplete".into()))?;
            answer.extend_from_slice(&piece);
        }
        let peer_digest: [u8; DIGEST] =
            answer.try_into().map_err(|_| Failure::Other("the receiver's answer is too long".into()))?;
        // It may have closed first.
        let _ = stream.queue_pair().disconnect();
        drop(stream);
        if digest != peer_digest {
            return Err(Failure::Checksum(format!(
                "the receiver got SHA-256 {}, but {} was sent",
                size::hex(&peer_digest),
                size::hex(&digest)
            )));
        }
        let end = End {
            role: "send",
            verb: "sent",
            unit: "elements",
            peer: self.to.ip,
            bytes: map.len() as u64,
            elements,
            digest,
            peer_digest,
        };
        meter.report(as_json, &end)
    }

    /// Connects, again and again while nobody listens there yet.
    fn connect(&self, context: &Context, hello: &Hello) -> Result<Stream, Failure> {
        let deadline = Instant::now() + Duration::from_secs(self.wait);
        let config = QpConfig {
            send_depth: 64,
            recv_depth: 4,
            block: self.common.block,
            timeout: self.common.timeout,
            ..QpConfig::default()
        };
        loop {
            let mut stream = Stream::new(context, &config, DIGEST)?;
            // The answer's buffer is posted before there is a connection.
            stream.post_recv(&[DIGEST])?;
            match stream.queue_pair().connect(self.to.ip, self.to.service, &hello.to_bytes(), None) {
                Ok(_) => return Ok(stream),
                Err(Error::Closed { reason: Reason::NoListener | Reason::Unreachable, .. })
                    if Instant::now() < deadline =>
                {
                    drop(stream);
                    thread::sleep(RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_is_read_back_and_others_are_refused() {
        let hello = Hello { length: 4 << 20 };
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
        assert_eq!(Hello::from_bytes(b""), None);
        assert_eq!(Hello::from_bytes(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(Hello::from_bytes(&Hello { length: u64::MAX }.to_bytes()), None);
    }

    #[test]
    fn peer_and_trigger_are_read() {
        let peer: Peer = "192.0.2.2:7".parse().unwrap();
        assert_eq!((peer.ip, peer.service), (Ipv4Addr::new(192, 0, 2, 2), 7));
        assert!("192.0.2.2:0".parse::<Peer>().is_err());
        assert!("192.0.2.2".parse::<Peer>().is_err());
        assert_eq!(trigger("between:3"), Ok(Trigger::Between(3)));
        assert_eq!(trigger("adaptive:15"), Ok(Trigger::default()), "the command line's default is the library's");
        assert!(trigger("middle").is_err());
    }

    #[test]
    fn stream_is_cut_into_file_and_digest_wherever_pieces_end() {
        let file = b"a file of 22 bytes ...";
        let digest: [u8; DIGEST] = Sha256::digest(file).into();
        let stream: Vec<u8> = file.iter().chain(&digest).copied().collect();
        for cut in [1, 3, 7, 22, 23, 54] {
            let dir = std::env::temp_dir().join(format!("berth-test-{}-{cut}", std::process::id()));
            let mut receiving = Receiving::new(file.len() as u64, Part::new(&dir).unwrap(), true);
            for piece in stream.chunks(cut) {
                assert!(!receiving.is_complete());
                receiving.take(piece).unwrap();
            }
            assert!(receiving.is_complete());
            let (got, peer, _, part) = receiving.finish();
            assert_eq!((got, peer), (digest, digest));
            part.keep().unwrap();
            assert_eq!(fs::read(&dir).unwrap(), file);
            fs::remove_file(&dir).unwrap();
        }
    }

    #[test]
    fn unverified_file_is_removed() {
        let target = std::env::temp_dir().join(format!("berth-test-part-{}", std::process::id()));
        let part = Part::new(&target).unwrap();
        let path = part.path.clone();
        assert!(path.exists());
        drop(part);
        assert!(!path.exists() && !target.exists());
    }
}
