// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth send` and `berth recv`: one file over one connection.
//!
//! The request's private data is a [`Hello`]: the file's length. The sender's stream is the file and then a [`Record`]:
//! its SHA-256, or why it has failed. The receiver answers with a record as well, once the file is stored under its
//! name, or as soon as it has failed. A sender whose connection is gone (a send that fails takes it along) says why
//! with a second request, which the receiver listens for.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use libberth::abi::wqe::MAX_MESSAGE;
use libberth::{
    Buffer, Cap, Context, Device, Error, FileMap, Listener, Pinned, QpConfig, QueuePair, Reason, Request, SendBlock,
    Status, Stream, Trigger,
};
use serde_json::json;

use crate::ends::{
    self, Common, LAST_WORD, ListCarrier, Peer, Progress, is_end, name_the_end, next_piece, patiently, pinned, say,
    wait_for_end,
};
use crate::failure::Failure;
use crate::file::{self, Change, Output, Source};
use crate::record::{self, DIGEST, Hello, Outcome, RECORD, Record, last_word};
use crate::signals::{self, SLICE};
use crate::size;

/// Card budgets are shared; a batch of receives must be pinned as a whole, so it takes a part of the budget only.
const BATCHES_PER_BUDGET: u64 = 4;
/// How long the receiver waits for the sender to end the connection.
const CLOSING: Duration = Duration::from_secs(30);

fn trigger(s: &str) -> Result<Trigger, String> {
    match s.split_once(':') {
        None if s == "first" => Ok(Trigger::First),
        None if s == "last" => Ok(Trigger::Last),
        Some(("between", n)) => n.parse().map(Trigger::Between).map_err(|e| e.to_string()),
        Some(("unbounded", n)) => n.parse().map(Trigger::Unbounded).map_err(|e| e.to_string()),
        Some(("quarters", "0" | "1" | "2" | "3")) => s[9..].parse().map(Trigger::Quarters).map_err(|e| e.to_string()),
        None if s == "adaptive" => Ok(Trigger::Adaptive),
        None if s == "timed" => Ok(Trigger::Timed),
        None if s == "predictive" => Ok(Trigger::Predictive),
        None if s == "auto" => Ok(Trigger::Auto),
        _ => Err("a trigger is `first`, `last`, `between:N`, `unbounded:N`, `quarters:0` to `quarters:3`, `adaptive`, `timed`, \
                  `predictive` or `auto`"
            .into()),
    }
}

/// Receives that a burst has room for, unless it is given.
const RECEIVES_PER_BURST: usize = 4;

/// `--max-rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MaxRate {
    /// Bytes per second of card time.
    rate: u64,
    burst: Option<u32>,
}

fn max_rate(s: &str) -> Result<MaxRate, String> {
    let (rate, burst) = s.split_once(',').map_or((s, None), |(rate, burst)| (rate, Some(burst)));
    let burst = match burst.map(size::parse_usize).transpose()? {
        Some(n) if n == 0 || n > MAX_MESSAGE as usize => return Err("a burst has 1 byte to 2 GiB - 1".into()),
        burst => burst.map(|n| n as u32),
    };
    match size::parse(rate)? {
        0 => Err("a rate is at least 1 byte per second".into()),
        rate => Ok(MaxRate { rate, burst }),
    }
}

impl MaxRate {
    /// What the card is told: a burst is no less than any of these receives.
    fn cap(self, receives: &[usize]) -> Result<Cap, Failure> {
        let largest = receives.iter().copied().max().unwrap_or(0);
        let usual = largest.saturating_mul(RECEIVES_PER_BURST).min(MAX_MESSAGE as usize) as u32;
        let burst = self.burst.unwrap_or(usual);
        if (burst as usize) < largest {
            return Err(Failure::Other(format!(
                "a burst of {burst} bytes is less than a receive of {largest} bytes: choose one that is as large, or smaller \
                 `--recv-sizes`"
            )));
        }
        Ok(Cap { bytes_per_second: self.rate, burst })
    }
}

fn message(s: &str) -> Result<usize, String> {
    match size::parse_usize(s)? {
        n if n > 0 && n <= MAX_MESSAGE as usize => Ok(n),
        _ => Err("a message has 1 byte to 2 GiB - 1".into()),
    }
}

/// Receives one file.
#[derive(Debug, Args)]
pub struct Recv {
    /// Service id to listen to (1 to 65535).
    #[arg(long, value_name = "SERVICE", value_parser = clap::value_parser!(u16).range(1..))]
    listen: u16,
    /// Where to write the file. It appears under this name when it is complete, verified and on its medium; a file that
    /// is there is replaced then. A device or a pipe is written as it is.
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
    /// buffer of the last list, or one that lies N quarters into it (`quarters:N`); `unbounded:N` is the first while the card
    /// bounds what is pinned, else the N-th. The others follow from how the sender uses its credits: `adaptive` chooses a
    /// buffer, `timed` and `predictive` a time, `auto` changes between five buffers.
    #[arg(long, value_parser = trigger, default_value = "quarters:2")]
    trigger: Trigger,
    /// Receive at most so many bytes per second of the card's time, and at most BURST bytes at once [default of BURST: four
    /// of the largest receives]. The sender keeps to it, because it gets no more credits.
    #[arg(long, value_name = "RATE[,BURST]", value_parser = max_rate)]
    max_rate: Option<MaxRate>,
    /// Longest credit list (1 to 64) [default: as long as possible].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    max_list: u32,
    /// How credit lists go to the sender's card.
    #[arg(long, value_enum, default_value_t = ListCarrier::Control)]
    carrier: ListCarrier,
    /// Give up if no peer has connected after this many seconds [default: never].
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
    /// File to send: a regular one of known length, which must not change meanwhile. It is mapped: the card takes it
    /// from the page cache (zero copy).
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

/// Figures of a transfer.
struct Meter<'d> {
    device: &'d Device,
    cycles: u64,
    wall: Instant,
}

impl<'d> Meter<'d> {
    fn start(device: &'d Device) -> Result<Self, Failure> {
        Ok(Self { device, cycles: device.info()?.cycles, wall: Instant::now() })
    }

    /// Prints the report of one end.
    fn report(&self, as_json: bool, to_stderr: bool, end: &End<'_>) -> Result<(), Failure> {
        let info = self.device.info()?;
        let text = end.text(as_json, info.cycles.saturating_sub(self.cycles), info.clock_hz, self.wall.elapsed());
        if to_stderr {
            note!("{text}");
            return Ok(());
        }
        ends::print(&text)
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
    /// This process's; `None` when the driver does not tell.
    pinned: Option<Pinned>,
    /// What it received at most.
    cap: Option<Cap>,
}

impl End<'_> {
    fn text(&self, as_json: bool, cycles: u64, clock_hz: u32, wall: Duration) -> String {
        let per_byte = (self.bytes > 0).then(|| cycles as f64 / self.bytes as f64);
        if as_json {
            return json!({
                "role": self.role, "bytes": self.bytes, "sha256": size::hex(&self.digest),
                "peer_sha256": size::hex(&self.peer_digest), "sha256_match": self.digest == self.peer_digest,
                "elements": self.elements, "card_cycles": cycles, "cycles_per_byte": per_byte,
                "wall_ms": wall.as_millis() as u64,
                "peak_pinned_bytes": self.pinned.map(|p| p.peak), "pinned_bytes": self.pinned.map(|p| p.now),
                "peer": self.peer.to_string(),
                "max_bytes_per_second": self.cap.map(|c| c.bytes_per_second), "max_burst": self.cap.map(|c| c.burst),
            })
            .to_string();
        }
        let bits = self.bytes as f64 * 8.0 * f64::from(clock_hz) / cycles.max(1) as f64;
        let mut text = format!(
            "{} {} in {} {}, {cycles} cycles of the card's clock from begin to end ({:.2} per byte, {:.2} Gbit/s of \
             card time), {:.1} s of wall time\nSHA-256 {}, equal at both ends",
            self.verb,
            size::show(self.bytes),
            self.elements,
            self.unit,
            per_byte.unwrap_or(0.0),
            bits / 1e9,
            wall.as_secs_f64(),
            size::hex(&self.digest)
        );
        if let Some(pinned) = self.pinned {
            let (peak, bytes) = (size::show(pinned.peak), size::show(self.bytes));
            text += &format!("\nthis process had at most {peak} pinned for {bytes}");
        }
        if let Some(Cap { bytes_per_second, burst }) = self.cap {
            let (rate, burst) = (size::show(bytes_per_second), size::show(burst.into()));
            text += &format!("\nno more than {rate} per second of card time could come, and {burst} at once");
        }
        text
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
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>, as_json: bool) -> Result<(), Failure> {
        if self.recv_sizes.iter().all(|&s| s == 0) {
            return Err(Failure::Other("at least one receive buffer must be longer than 0 bytes".into()));
        }
        let cap = self.max_rate.map(|max| max.cap(&self.recv_sizes)).transpose()?;
        let device = open()?;
        signals::watch();
        // Everything that can fail beforehand does so before a peer connects.
        let output = Output::create(&self.out)?;
        let to_stderr = output.is_standard_output();
        let context = self.common.context(&device)?;
        let mut stream = Stream::new(&context, &self.config(), self.memory()?)?;
        if cap.is_some() {
            stream.queue_pair().set_cap(cap)?;
        }
        let info = device.info()?;
        let budget = self.common.budget.unwrap_or(info.process_budget).min(info.card_budget);
        let most = usize::try_from(budget / BATCHES_PER_BUDGET).unwrap_or(usize::MAX);
        let mut sizes = Sizes::new(&self.recv_sizes, most);
        sizes.post(&mut stream, self.depth as usize)?;

        let listener = context.listen(self.listen)?;
        if !as_json {
            note!("listening to service {}", self.listen);
        }
        let sender = self.accept(&listener, stream.queue_pair())?;
        // No second sender while this one is served.
        while let Ok(other) = listener.next(Some(Duration::ZERO)) {
            turn_away(other);
        }
        drop(listener);
        let meter = Meter::start(&device)?;
        let receiving = Receiving::new(sender.length, output, as_json);
        let stored = match self.receive(&mut stream, &mut sizes, receiving) {
            Ok(stored) => stored,
            Err(failure) => return Err(self.tell(&context, stream, &sender, failure)),
        };
        // The sender disconnects when it has read the answer. It may do so before the answer's acknowledgement has come
        // (which the wire may lose): the answer is then flushed, but the file is stored.
        match say(&mut stream, &Record::done(stored.digest)) {
            Ok(Status::Ok | Status::Flushed) => wait_for_end(stream.queue_pair(), CLOSING),
            other => {
                let why = other.map_or_else(|e| e.to_string(), |status| status.to_string());
                note!("berth: the sender may not know that {} is stored: {why}", self.out.display());
            }
        }
        let pinned = pinned(&context);
        drop(stream);
        if !stored.in_place {
            note!("berth: another process has put another file in the place of {}", self.out.display());
        }
        let end = End {
            role: "recv",
            verb: "received",
            unit: "buffers",
            peer: sender.peer,
            bytes: sender.length,
            elements: stored.pieces,
            digest: stored.digest,
            peer_digest: stored.digest,
            pinned,
            cap,
        };
        meter.report(as_json, to_stderr, &end)
    }

    fn config(&self) -> QpConfig {
        QpConfig {
            send_depth: 4,
            recv_depth: self.depth,
            trigger: self.trigger,
            max_list: self.max_list,
            carrier: self.carrier.into(),
            block: self.common.block,
            memory: self.common.send_memory(),
            timeout: self.common.timeout,
            ..QpConfig::default()
        }
    }

    /// Room for `depth` buffers of any size, and for one that lies unused at the end of the memory.
    fn memory(&self) -> Result<usize, Failure> {
        let largest = self.recv_sizes.iter().copied().max().unwrap_or(0);
        largest
            .checked_next_multiple_of(4096)
            .and_then(|size| size.checked_add(4096)?.checked_mul(self.depth as usize + 1))
            .ok_or_else(|| Failure::Other("receive buffers too large".into()))
    }

    /// Waits for a sender with a file and accepts it. Others are told, and do not end the waiting.
    fn accept(&self, listener: &Listener, queue_pair: &QueuePair) -> Result<Sender, Failure> {
        let limit = self.wait.map(Duration::from_secs);
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            signals::check()?;
            let request = match listener.next(Some(SLICE)) {
                Ok(request) => request,
                Err(Error::Timeout(_)) if deadline.is_some_and(|d| Instant::now() >= d) => {
                    return Err(Error::Timeout(limit.unwrap_or_default()).into());
                }
                Err(Error::Timeout(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let peer = request.peer();
            let Some(Hello::File { length, nonce }) = Hello::from_bytes(request.private_data()) else {
                note!("berth: {peer} asks for something else than to send a file in this version: rejected");
                turn_away(request);
                continue;
            };
            match request.accept(queue_pair, b"") {
                Ok(()) => return Ok(Sender { peer, length, nonce }),
                Err(Error::NotFound { .. }) => note!("berth: {peer} has given up before it was accepted"),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives the file, and puts it in its place.
    fn receive(&self, stream: &mut Stream, sizes: &mut Sizes<'_>, mut receiving: Receiving) -> Result<Stored, Failure> {
        patiently(|limit| stream.queue_pair().wait_established(limit))?;
        let depth = self.depth as usize;
        while !receiving.is_complete() {
            next_piece(stream, |piece| receiving.take(piece))?;
            // Posts again when a part of them is free, or when we would wait now, because then the sender might wait
            // too.
            let free = depth - stream.recvs_outstanding();
            if free >= depth.div_ceil(4) || !stream.is_piece_ready()? {
                sizes.post(stream, free)?;
            }
        }
        receiving.finish()
    }

    /// Tells the sender of the failure, or hears from it why it has gone.
    fn tell(&self, context: &Context, mut stream: Stream, sender: &Sender, failure: Failure) -> Failure {
        let failure = name_the_end(stream.queue_pair(), failure);
        match &failure {
            Failure::Berth(Error::DeviceLost | Error::Firmware { .. }) => failure,
            // It has told us.
            Failure::Peer { .. } => failure,
            gone if is_end(gone) => {
                drop(stream);
                self.last_word(context, sender).unwrap_or(failure)
            }
            _ => {
                match say(&mut stream, &Record::failed(&failure, [0; DIGEST])) {
                    Ok(Status::Ok) => wait_for_end(stream.queue_pair(), LAST_WORD),
                    other => tracing::debug!(?other, "the sender may not have heard"),
                }
                failure
            }
        }
    }

    /// Listens for the reason of a sender whose connection has ended.
    fn last_word(&self, context: &Context, sender: &Sender) -> Option<Failure> {
        let listener = context.listen(self.listen).ok()?;
        let deadline = Instant::now() + LAST_WORD;
        while Instant::now() < deadline && signals::check().is_ok() {
            let request = match listener.next(Some(SLICE)) {
                Ok(request) => request,
                Err(Error::Timeout(_)) => continue,
                Err(_) => return None,
            };
            match Hello::from_bytes(request.private_data()) {
                Some(Hello::Failed { nonce, outcome, detail }) if nonce == sender.nonce => {
                    let _ = request.reject(record::HEARD);
                    return Some(last_word(outcome, detail));
                }
                _ => turn_away(request),
            }
        }
        None
    }
}

/// A sender that was accepted.
struct Sender {
    peer: Ipv4Addr,
    /// Bytes of its file.
    length: u64,
    nonce: u64,
}

/// Tells a requester why it is not served.
fn turn_away(request: Request) {
    let why = match Hello::from_bytes(request.private_data()) {
        Some(Hello::File { .. }) => record::BUSY,
        Some(Hello::Failed { .. }) => record::HEARD,
        None => record::FOREIGN,
    };
    // It may have given up already.
    let _ = request.reject(why);
}

/// Cuts the stream into file and record.
struct Receiving {
    length: u64,
    got: u64,
    pieces: u64,
    output: Output,
    record: Vec<u8>,
    progress: Progress,
}

/// A file that is in its place.
#[derive(Debug)]
struct Stored {
    digest: [u8; DIGEST],
    pieces: u64,
    /// It was not replaced meanwhile.
    in_place: bool,
}

impl Receiving {
    fn new(length: u64, output: Output, as_json: bool) -> Self {
        let progress = Progress::new(length, as_json);
        Self { length, got: 0, pieces: 0, output, record: Vec::with_capacity(RECORD), progress }
    }

    fn is_complete(&self) -> bool {
        self.record.len() == RECORD
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let left = usize::try_from(self.length - self.got).unwrap_or(usize::MAX);
        let (file, rest) = bytes.split_at(bytes.len().min(left));
        if self.record.len() + rest.len() > RECORD {
            return Err(Failure::Protocol("the sender sent more than it had said".into()));
        }
        self.output.write(file)?;
        self.got += file.len() as u64;
        self.pieces += 1;
        self.progress.at(self.got);
        self.record.extend_from_slice(rest);
        Ok(())
    }

    /// All of it has come: verifies the stored bytes, and gives the file its name.
    fn finish(mut self) -> Result<Stored, Failure> {
        let sent = Record::from_bytes("sender", &self.record)?.check("sender")?;
        let digest = self.output.seal()?;
        if digest != sent.digest {
            return Err(Failure::Checksum(format!(
                "received SHA-256 {}, but {} was sent: it is not kept",
                size::hex(&digest),
                size::hex(&sent.digest)
            )));
        }
        Ok(Stored { digest, pieces: self.pieces, in_place: self.output.keep()? })
    }
}

impl Send {
    /// Sends.
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>, as_json: bool) -> Result<(), Failure> {
        let mut source = Source::open(&self.file)?;
        let device = open()?;
        signals::watch();
        let digest = source.digest()?;
        let map = Arc::new(source.map()?);
        let context = self.common.context(&device)?;
        let nonce = file::random()?;
        let hello = Hello::File { length: source.length(), nonce };
        let (stream, _) = ends::connect(&context, &self.config(), RECORD, self.to, self.wait, &hello.to_bytes())?;
        let meter = Meter::start(&device)?;
        let bytes = source.length();
        let progress = Progress::new(bytes, as_json);
        let mut sending = Sending { stream, source, digest, acknowledged: 0, progress, heard: false };
        let elements = match sending.all(&map, self.message) {
            Ok(elements) => elements,
            Err(failure) => {
                let failure = sending.explain(failure);
                let heard = sending.heard;
                // The connection ends here, if it has not yet.
                drop(sending);
                let gone = matches!(failure, Failure::Berth(Error::DeviceLost | Error::Firmware { .. }));
                if !heard && !gone && !is_end(&failure) {
                    self.last_word(&context, Hello::failed(nonce, &failure));
                }
                return Err(failure);
            }
        };
        let pinned = pinned(&context);
        // The receiver may have closed first.
        let _ = sending.stream.queue_pair().disconnect();
        drop(sending);
        let end = End {
            role: "send",
            verb: "sent",
            unit: "elements",
            peer: self.to.ip,
            bytes,
            elements,
            digest,
            peer_digest: digest,
            pinned,
            cap: None,
        };
        meter.report(as_json, false, &end)
    }

    fn config(&self) -> QpConfig {
        QpConfig {
            send_depth: 64,
            recv_depth: 4,
            block: self.common.block,
            memory: self.common.send_memory(),
            timeout: self.common.timeout,
            ..QpConfig::default()
        }
    }

    /// Tells the receiver why the connection has ended: it listens for that.
    fn last_word(&self, context: &Context, hello: Hello) {
        let deadline = Instant::now() + LAST_WORD;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let said = Stream::new(context, &self.config(), RECORD).and_then(|stream| {
                stream.queue_pair().connect(self.to.ip, self.to.service, &hello.to_bytes(), Some(left))
            });
            match said {
                // It has not noticed yet.
                Err(Error::Closed { reason: Reason::NoListener | Reason::Busy, .. }) => thread::sleep(SLICE / 2),
                other => return tracing::debug!(?other, "last word"),
            }
        }
    }
}

/// A file on its way.
struct Sending {
    stream: Stream,
    source: Source,
    digest: [u8; DIGEST],
    acknowledged: u64,
    progress: Progress,
    /// The receiver knows of our failure, or has told us of its own.
    heard: bool,
}

impl Sending {
    /// Sends all of it and waits for the receiver's answer; answers the number of elements.
    fn all(&mut self, map: &Arc<FileMap>, message: usize) -> Result<u64, Failure> {
        let mut elements = 0;
        for start in (0..map.len()).step_by(message) {
            while !self.stream.has_send_room() {
                self.reap()?;
            }
            let end = map.len().min(start + message);
            loop {
                match self.stream.send(SendBlock::File(Arc::clone(map), start..end), false) {
                    Err(Error::TooMuchOutstanding) => self.reap()?,
                    other => break other?,
                }
            }
            elements += 1;
        }
        while self.stream.sends_outstanding() > 0 {
            self.reap()?;
        }
        if let Some(change) = self.source.change().filter(|change| *change != Change::Written) {
            // The file has changed since it was sent. If bytes were written in place, the checksum decides.
            let failure = self.source.changed(change);
            self.heard = say(&mut self.stream, &Record::failed(&failure, self.digest))? == Status::Ok;
            return Err(failure);
        }
        self.stream.send(Buffer::from_slice(&Record::done(self.digest).to_bytes())?, true)?;
        // The answer may come before the last acknowledgement.
        while self.stream.sends_outstanding() > 0 && !self.stream.is_piece_ready()? {
            self.reap_one()?;
        }
        let stored = self.answer()?.check("receiver")?;
        if stored.digest == self.digest {
            return Ok(elements);
        }
        Err(Failure::Checksum(format!(
            "the receiver has stored SHA-256 {}, but {} was sent",
            size::hex(&stored.digest),
            size::hex(&self.digest)
        )))
    }

    /// Takes a send that is done, or the record that the receiver sends instead of taking more.
    fn reap(&mut self) -> Result<(), Failure> {
        while !self.reap_one()? {
            if self.stream.is_piece_ready()? {
                self.answer()?.check("receiver")?;
                return Err(Failure::Protocol("the receiver answers before it has the file".into()));
            }
        }
        Ok(())
    }

    /// Waits a while for a send that is done; `false` when there was none.
    fn reap_one(&mut self) -> Result<bool, Failure> {
        signals::check()?;
        match self.stream.next_sent(Some(SLICE)) {
            Ok(Some(sent)) => {
                sent.completion.ok()?;
                if let SendBlock::File(_, range) = sent.block {
                    self.acknowledged += range.len() as u64;
                    self.progress.at(self.acknowledged);
                }
                Ok(true)
            }
            Ok(None) => Ok(true),
            Err(Error::Timeout(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the receiver's record.
    fn answer(&mut self) -> Result<Record, Failure> {
        let mut answer = Vec::new();
        while answer.len() < RECORD {
            next_piece(&mut self.stream, |piece| {
                answer.extend_from_slice(piece);
                Ok(())
            })?;
        }
        self.heard = true;
        Record::from_bytes("receiver", &answer)
    }

    /// Looks for the cause of a failure: the receiver may have sent it, or the file may have changed.
    fn explain(&mut self, failure: Failure) -> Failure {
        match failure {
            Failure::Berth(Error::Completion { .. } | Error::Closed { .. }) => {
                if !self.heard
                    && matches!(self.stream.is_piece_ready(), Ok(true))
                    && let Err(failure @ Failure::Peer { .. }) = self.answer().and_then(|r| r.check("receiver"))
                {
                    return self.explain(failure);
                }
                match self.source.change() {
                    // The card finds no page where the file has none any more, and that ends the connection.
                    Some(change @ Change::Shorter { .. }) => self.source.changed(change),
                    Some(change) if !is_end(&failure) => self.source.changed(change),
                    _ => name_the_end(self.stream.queue_pair(), failure),
                }
            }
            Failure::Checksum(_) | Failure::Peer { outcome: Outcome::Checksum, .. } => {
                match self.source.differs(&self.digest) {
                    Some(change) => self.source.changed(change),
                    None => failure,
                }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::fs;
    use std::path::Path;

    #[test]
    fn trigger_is_read() {
        assert_eq!(trigger("between:3"), Ok(Trigger::Between(3)));
        assert_eq!(trigger("quarters:2"), Ok(Trigger::default()), "the command line's default is the library's");
        assert!(trigger("middle").is_err());
    }

    #[test]
    fn cr_10_maximum_rate_is_read_and_its_burst_has_room_for_each_receive() {
        assert_eq!(max_rate("64K"), Ok(MaxRate { rate: 65536, burst: None }));
        assert_eq!(max_rate("3G,1M"), Ok(MaxRate { rate: 3 << 30, burst: Some(1 << 20) }));
        for bad in ["", "0", "x", "1,", "1,0", "1,2G", ",1", "1,2,3"] {
            assert!(max_rate(bad).is_err(), "{bad}");
        }
        let burst = |burst, receives: &[usize]| MaxRate { rate: 9, burst }.cap(receives).map(|cap| cap.burst);
        assert_eq!(burst(None, &[5, 1000, 7]).unwrap(), 4000);
        assert_eq!(burst(None, &[1 << 30]).unwrap(), MAX_MESSAGE);
        assert_eq!(burst(Some(1000), &[5, 1000, 7]).unwrap(), 1000);
        let refused = burst(Some(999), &[5, 1000, 7]).unwrap_err();
        assert_eq!(refused.code(), 1);
        assert!(refused.to_string().starts_with("a burst of 999 bytes is less than a receive of 1000 bytes"));
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("berth-transfer-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn receiving(length: usize, target: &Path) -> Receiving {
        Receiving::new(length as u64, Output::create(target).unwrap(), true)
    }

    fn stream(file: &[u8], record: &Record) -> Vec<u8> {
        file.iter().chain(&record.to_bytes()).copied().collect()
    }

    #[test]
    fn stream_is_cut_into_file_and_record_wherever_pieces_end() {
        let file = b"a file of 22 bytes ...";
        let digest: [u8; DIGEST] = Sha256::digest(file).into();
        let folder = folder("cut");
        let target = folder.join("copy");
        for cut in [1, 3, 7, 22, 23, 54, 278] {
            let mut receiving = receiving(file.len(), &target);
            for piece in stream(file, &Record::done(digest)).chunks(cut) {
                assert!(!receiving.is_complete());
                receiving.take(piece).unwrap();
            }
            assert!(receiving.is_complete());
            let stored = receiving.finish().unwrap();
            assert_eq!((stored.digest, stored.in_place), (digest, true));
            assert_eq!(fs::read(&target).unwrap(), file);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn f6_two_receivers_with_one_target_store_one_file_or_the_other_whole() {
        let folder = folder("two");
        let target = folder.join("copy");
        let files = [vec![1; 5000], vec![2; 3000]];
        let digests = files.each_ref().map(|f| <[u8; DIGEST]>::from(Sha256::digest(f)));
        let mut both = files.each_ref().map(|f| receiving(f.len(), &target));
        let streams = [0, 1].map(|n| stream(&files[n], &Record::done(digests[n])));
        let mut at = [0, 0];
        // In turn, so that a name that they shared would have a mixture behind it.
        while (0..2).any(|n| at[n] < streams[n].len()) {
            for n in 0..2 {
                let end = streams[n].len().min(at[n] + 700);
                both[n].take(&streams[n][at[n]..end]).unwrap();
                at[n] = end;
            }
        }
        for (n, receiving) in both.into_iter().enumerate() {
            let stored = receiving.finish().unwrap();
            assert_eq!((stored.digest, stored.in_place), (digests[n], true));
            assert_eq!(fs::read(&target).unwrap(), files[n]);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn f6_what_is_not_verified_leaves_nothing_and_what_was_there_stays() {
        let folder = folder("unverified");
        let target = folder.join("copy");
        fs::write(&target, "old").unwrap();
        let changed = Failure::Changed("original".into(), Change::Longer { was: 4, now: 9 });
        for (record, code, says) in [
            (Record::done([0; DIGEST]), 3, "but 0000"),
            (Record::failed(&changed, [0; DIGEST]), 7, "the sender has failed: original: the file became longer"),
            (Record::failed(&Failure::Interrupted(2), [0; DIGEST]), 7, "interrupted"),
        ] {
            let mut receiving = receiving(4, &target);
            receiving.take(&stream(b"file", &record)).unwrap();
            let failure = receiving.finish().unwrap_err();
            assert_eq!(failure.code(), code);
            assert!(failure.to_string().contains(says), "{failure}");
            assert_eq!(fs::read(&target).unwrap(), b"old");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        }
        // A malformed record, more than was said, and a stream that breaks off.
        let mut bad = stream(b"file", &Record::done([0; DIGEST]));
        bad[4] = b'x';
        let mut one = receiving(4, &target);
        one.take(&bad).unwrap();
        assert!(matches!(one.finish(), Err(Failure::Protocol(_))));
        let mut more = receiving(4, &target);
        bad.push(0);
        assert!(matches!(more.take(&bad), Err(Failure::Protocol(_))));
        drop(more);
        receiving(4, &target).take(b"fi").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn f6_full_medium_is_a_failure_with_the_files_name() {
        let mut receiving = receiving(4, Path::new("/dev/full"));
        let failure = receiving.take(b"file").unwrap_err();
        assert_eq!(failure.to_string(), "/dev/full: No space left on device (os error 28)");
    }

    #[test]
    fn f10_report_names_whose_figures_they_are() {
        let mut end = End {
            role: "send",
            verb: "sent",
            unit: "elements",
            peer: Ipv4Addr::LOCALHOST,
            bytes: 4096,
            elements: 1,
            digest: [0; DIGEST],
            peer_digest: [0; DIGEST],
            pinned: Some(Pinned { now: 0, peak: 8192, budget: 1 << 20 }),
            cap: None,
        };
        let text = end.text(false, 100, 1_000_000, Duration::from_secs(1));
        assert!(text.contains("this process had at most 8.0 KiB pinned for 4.0 KiB"), "{text}");
        assert!(text.contains("100 cycles of the card's clock"), "{text}");
        assert!(end.text(true, 100, 1, Duration::ZERO).contains("\"peak_pinned_bytes\":8192"));
        // Not known, not shown.
        end.pinned = None;
        assert!(!end.text(false, 1, 1, Duration::ZERO).contains("pinned"));
        assert!(end.text(true, 100, 1, Duration::ZERO).contains("\"peak_pinned_bytes\":null"));
        assert!(!end.text(false, 1, 1, Duration::ZERO).contains("at once"));
        end.cap = Some(Cap { bytes_per_second: 3 << 20, burst: 8192 });
        let text = end.text(false, 1, 1, Duration::ZERO);
        assert!(
            text.contains("no more than 3.0 MiB per second of card time could come, and 8.0 KiB at once"),
            "{text}"
        );
        let text = end.text(true, 1, 1, Duration::ZERO);
        assert!(text.contains("\"max_bytes_per_second\":3145728") && text.contains("\"max_burst\":8192"), "{text}");
    }
}
