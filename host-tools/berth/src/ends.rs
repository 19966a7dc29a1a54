// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the ends of all transfers have in common: options, connecting, waiting, progress.

use std::io::{IsTerminal, Write};
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use libberth::{
    Again, Buffer, Carrier, Context, Device, Error, First, Listener, Mode, Piece, Pinned, QpConfig, QueuePair, Reason,
    SendMemory, Status, Stream, Trigger,
};

use crate::failure::Failure;
use crate::record::{self, RECORD, Record, printable};
use crate::signals::{self, SLICE};
use crate::size;

/// Between two attempts to connect to a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(250);
/// How long an end that has failed waits until the other has heard of it, and how long the other waits for its word.
pub const LAST_WORD: Duration = Duration::from_secs(5);
/// Most messages, READs and WRITEs that an end has under way.
pub const SEND_DEPTH: u32 = 64;

/// `IP:SERVICE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its card.
    pub ip: Ipv4Addr,
    /// What it listens to.
    pub service: u16,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.ip, self.service)
    }
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

/// How memory that is sent reaches the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Memory {
    /// Pinned, block by block.
    Pin,
    /// Copied: nothing is pinned.
    Copy,
    /// All of a send is pinned at its start, and each page goes when it is sent.
    Whole,
    /// Copied where that has cost less for each size, else pinned.
    Auto,
}

/// How it does when it goes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AgainMemory {
    /// Pinned.
    Pin,
    /// Copied.
    Copy,
    /// As has cost less.
    Auto,
}

/// How the credit lists that an end sends go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListCarrier {
    /// From control QP to control QP.
    Control,
    /// In the reverse direction of the connection.
    Reverse,
    /// As RDMA WRITEs to the peer's card.
    Write,
}

impl From<ListCarrier> for Carrier {
    fn from(carrier: ListCarrier) -> Self {
        match carrier {
            ListCarrier::Control => Self::Control,
            ListCarrier::Reverse => Self::Reverse,
            ListCarrier::Write => Self::Write,
        }
    }
}

/// Options of both ends.
#[derive(Debug, Args)]
pub struct Common {
    /// Virtual-context block: how much is pinned at a time for sending; a multiple of 4096, at most 1M.
    #[arg(long, value_parser = block, default_value = "64K")]
    pub block: u32,
    /// Pinned-memory budget of this process (K, M, G allowed) [default: the driver's].
    #[arg(long, value_parser = size::parse)]
    pub budget: Option<u64>,
    /// How memory that is sent reaches the card the first time.
    #[arg(long, value_enum, default_value_t = Memory::Auto)]
    pub memory: Memory,
    /// How what is not acknowledged reaches it again [default: as the first time; of whole sends as has cost less].
    #[arg(long, value_enum, value_name = "MEMORY")]
    pub again: Option<AgainMemory>,
    /// Acknowledgement time-out in card cycles [default: the card's].
    #[arg(long, value_name = "CYCLES", default_value_t = 0, hide_default_value = true)]
    pub timeout: u32,
}

impl Common {
    /// How memory that is sent reaches the card.
    pub fn send_memory(&self) -> SendMemory {
        let first = match self.memory {
            Memory::Pin => First::Pin,
            Memory::Copy => First::Copy,
            Memory::Whole => First::Whole,
            Memory::Auto => First::Auto,
        };
        let again = match (self.again, self.memory) {
            (Some(AgainMemory::Pin), _) | (None, Memory::Pin) => Again::Pin,
            (Some(AgainMemory::Copy), _) | (None, Memory::Copy) => Again::Copy,
            (Some(AgainMemory::Auto), _) | (None, _) => Again::Auto,
        };
        SendMemory { first, again }
    }

    /// A context on a card that has a name.
    pub fn context(&self, device: &Device) -> Result<Context, Failure> {
        if device.info()?.net.is_none() {
            return Err(Failure::Other("the card has no name in the network yet: `berth up --ip … --mac …`".into()));
        }
        let context = Context::new(device)?;
        if let Some(bytes) = self.budget {
            context.set_budget(bytes)?;
        }
        Ok(context)
    }

    /// Queue pairs that also READ and WRITE, and have so many receives at a time.
    pub fn one_sided(&self, recv_depth: u32) -> QpConfig {
        QpConfig {
            mode: Mode::Message,
            send_depth: SEND_DEPTH,
            recv_depth,
            trigger: Trigger::First,
            block: self.block,
            memory: self.send_memory(),
            timeout: self.timeout,
            ..QpConfig::default()
        }
    }
}

/// What this process has pinned and had; `None` when the driver is too old to tell.
pub fn pinned(context: &Context) -> Option<Pinned> {
    context.pinned().inspect_err(|error| tracing::debug!(%error, "pinned bytes not known")).ok()
}

/// Prints a line on standard output. From now on a pipe without a reader ends the process.
pub fn print(text: &str) -> Result<(), Failure> {
    signals::unwatch();
    writeln!(std::io::stdout(), "{text}").map_err(|e| Failure::File("standard output".into(), e))
}

/// Shows progress on a terminal.
pub struct Progress {
    total: u64,
    shown: u64,
    on: bool,
}

impl Progress {
    /// Of so many bytes.
    pub fn new(total: u64, as_json: bool) -> Self {
        Self { total, shown: u64::MAX, on: !as_json && std::io::stderr().is_terminal() }
    }

    /// So many are done.
    pub fn at(&mut self, bytes: u64) {
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

/// Waits in slices, so that a signal is noticed.
pub fn patiently<T>(mut wait: impl FnMut(Option<Duration>) -> libberth::Result<T>) -> Result<T, Failure> {
    loop {
        signals::check()?;
        match wait(Some(SLICE)) {
            Err(Error::Timeout(_)) => {}
            other => return Ok(other?),
        }
    }
}

/// Waits for the next piece of the stream, and hands it to `take`.
pub fn next_piece<T>(stream: &mut Stream, take: impl FnOnce(&Piece<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    loop {
        signals::check()?;
        match stream.next_piece(Some(SLICE)) {
            Ok(Some(piece)) => return take(&piece),
            Ok(None) => return Err(Failure::Protocol("the other end says more than there is a buffer for".into())),
            Err(Error::Timeout(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a record; answers the status of its element. Also when a signal has asked us to end.
pub fn say(stream: &mut Stream, record: &Record) -> Result<Status, Failure> {
    stream.send(Buffer::from_slice(&record.to_bytes())?, true)?;
    let mut status = Status::Ok;
    while let Some(sent) = stream.next_sent(Some(LAST_WORD))? {
        status = sent.completion.status;
    }
    Ok(status)
}

/// Waits until the other end has ended the connection.
pub fn wait_for_end(queue_pair: &QueuePair, limit: Duration) {
    let deadline = Instant::now() + limit;
    let asked_before = signals::check().is_err();
    while Instant::now() < deadline && (asked_before || signals::check().is_ok()) {
        match queue_pair.wait_closed(Some(SLICE)) {
            Err(Error::Timeout(_)) => {}
            _ => return,
        }
    }
}

/// Whether the connection has ended, which is all that `failure` says.
pub fn is_end(failure: &Failure) -> bool {
    matches!(failure, Failure::Berth(Error::Completion { status: Status::Flushed, .. } | Error::Closed { .. }))
}

/// Says why the connection has ended, if that is all that `failure` says.
pub fn name_the_end(queue_pair: &QueuePair, failure: Failure) -> Failure {
    if is_end(&failure)
        && let Ok(reason) = queue_pair.wait_closed(Some(LAST_WORD))
    {
        return Error::Closed { reason, private_data: vec![] }.into();
    }
    failure
}

/// What `failure` means to an end that serves the other: nothing when the other has closed the connection.
pub fn or_goodbye(queue_pair: &QueuePair, failure: Failure) -> Result<(), Failure> {
    match name_the_end(queue_pair, failure) {
        Failure::Berth(Error::Closed { reason: Reason::PeerClose, .. }) => Ok(()),
        failure => Err(failure),
    }
}

/// A client that was accepted.
pub struct Client {
    /// Its card.
    pub peer: Ipv4Addr,
    /// The connection, which may not be established yet.
    pub stream: Stream,
}

/// Waits for a client whose request says `ask`, and accepts it with a stream of `make`; `offer` is the accept's private
/// data. Others are turned away.
pub fn accept(
    listener: &Listener,
    ask: &[u8],
    offer: &[u8],
    make: impl Fn() -> libberth::Result<Stream>,
) -> Result<Client, Failure> {
    loop {
        let request = patiently(|limit| listener.next(limit))?;
        let peer = request.peer();
        // A request that is rejected may have been given up already.
        if request.private_data() != ask || request.mode() != Mode::Message {
            note!("berth: {peer} asks for something else than {}: rejected", printable(ask));
            let _ = request.reject(&[b"not ", ask].concat());
            continue;
        }
        let stream = match make() {
            Ok(stream) => stream,
            // Others have to go first.
            Err(error @ Error::LimitReached { .. }) => {
                note!("berth: {peer} has to wait: {error}");
                let _ = request.reject(record::BUSY);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match request.accept(stream.queue_pair(), offer) {
            Ok(()) => return Ok(Client { peer, stream }),
            Err(Error::NotFound { .. }) => note!("berth: {peer} has given up before it was accepted"),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects, repeatedly for `wait` seconds while the peer does not listen yet; answers the private data of the accept.
/// Room for a record is posted before; there are `room` bytes for receives.
pub fn connect(
    context: &Context,
    config: &QpConfig,
    room: usize,
    to: Peer,
    wait: u64,
    hello: &[u8],
) -> Result<(Stream, Vec<u8>), Failure> {
    let deadline = Instant::now().checked_add(Duration::from_secs(wait));
    loop {
        let mut stream = Stream::new(context, config, room)?;
        stream.post_recv(&[RECORD])?;
        stream.queue_pair().start_connect(to.ip, to.service, hello)?;
        let failure = match patiently(|limit| stream.queue_pair().wait_established(limit)) {
            Ok(private_data) => return Ok((stream, private_data)),
            Err(failure) => failure,
        };
        drop(stream);
        let Failure::Berth(Error::Closed { reason, private_data }) = &failure else { return Err(failure) };
        let later = match reason {
            Reason::NoListener | Reason::Unreachable => true,
            Reason::Rejected => private_data == record::BUSY,
            _ => false,
        };
        if !later || deadline.is_some_and(|d| Instant::now() >= d) {
            return Err(match reason {
                Reason::Rejected if !private_data.is_empty() => Failure::Rejected(printable(private_data)),
                _ => failure,
            });
        }
        thread::sleep(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_read() {
        let peer: Peer = "192.0.2.2:7".parse().unwrap();
        assert_eq!((peer.ip, peer.service), (Ipv4Addr::new(192, 0, 2, 2), 7));
        assert_eq!(peer.to_string(), "192.0.2.2:7");
        assert!("192.0.2.2:0".parse::<Peer>().is_err());
        assert!("192.0.2.2".parse::<Peer>().is_err());
    }
}
