// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual channel over one queue pair, as the transport of an MPI has it: vectors in, status and progress out (BE-9).
//!
//! Each direction has a *set* of equally large buffers at the receiver, which the sender WRITEs to, and as many less one at the
//! sender, which it copies elements into. Sets are small at first (BE-1), and larger ones take their place when an
//! element needs them (BE-2). The rules are those of [`berth_protocol::service::grow`]: its machines decide, this module
//! moves bytes.
//!
//! * **An element** takes one buffer, which it is WRITTEN to with an immediate. So the receiver hears of it from its completion
//!   queue when all of it is there, in order, also where frames were lost: it need not look at memory that is being
//!   written.
//! * **Buffers come back** by a tally (`grow::Tally`), which the receiver WRITEs into the sender's *control memory*: counts that
//!   go on, and a checksum. The *answer* about larger buffers (BE-4) goes there, too. One such WRITE is under way at a time.
//! * **Above the size for rendezvous** ([`ChannelConfig::rendezvous`]) the element's address and key go through a buffer, and the
//!   receiver READs it: from a buffer of the sender's ([`Channel::send_buffer`]) into a buffer of the receiver's
//!   ([`Channel::fetch`]), without a copy at either end. The tally says when its memory is the sender's again.
//!
//! What a peer writes is never believed: a length is that which the own card has counted, a number is checked before it
//! is used, and what cannot be has a named error ([`ChannelError`]).

mod card;
mod ends;
mod error;
mod medium;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;
mod words;

use std::net::Ipv4Addr;
use std::time::Duration;

use card::Card;
use ends::Ends;
pub use error::{ChannelError, Refused};

use crate::cm::Request;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::mapping::Buffer;
use crate::qp::QueuePair;
use crate::region::ProtectionDomain;

/// Sizes and thresholds of a channel, the same at both ends. [`Channel::new`] wants `sizes` that rise (bytes, multiples of 8, at
/// most 1 MiB), a `count` of 2 to 1024, and a `share` that lets an offer of 16 bytes through the smallest buffers.
pub use berth_protocol::service::grow::Config as ChannelConfig;

/// What has become of a vector: so much of it was taken, from its first element on. Call again with the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whole elements that were taken. None: not yet (BE-2, BE-7).
    pub elements: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The oldest element that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its bytes.
    pub len: usize,
    /// It is the last one of its vector.
    pub last: bool,
    /// It is in the peer's memory: [`Channel::fetch`] takes it, and [`Channel::receive`] does not.
    pub offered: bool,
}

/// An element that was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// The caller's buffer.
    pub buffer: Buffer,
    /// Bytes of the element, from the buffer's first one on.
    pub len: usize,
    /// It is the last one of its vector.
    pub last: bool,
}

/// Where the connection stands.
#[derive(Debug)]
enum Link {
    /// Not begun, or there.
    None,
    /// Begun; what the peer has told, if it was the one that connected.
    Begun(Option<Vec<u8>>),
    /// The peer is none.
    Bad,
}

/// A channel: elements each way over one queue pair, in order, once, through buffers that grow. **No call waits**: what cannot
/// go yet is "not yet", and every call makes progress with what has come. A program that has nothing else to do sleeps at
/// [`Channel::completions`] while it receives, and calls [`Channel::progress`] again and again while it sends or
/// grows, because answers and tallies come into memory without a notice.
///
/// ```no_run
/// use libberth::{Channel, ChannelConfig, Context, Device};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new(&Device::open_first()?)?;
/// let domain = context.create_domain()?;
/// let mut channel = Channel::new(&context, &domain, &ChannelConfig::default())?;
/// channel.start_connect("192.0.2.2".parse()?, 7)?;
/// let (head, body) = ([1; 40], [2; 6000]);
/// let mut vector = &[&head[..], &body[..]][..];
/// while !vector.is_empty() {
///     let taken = channel.send(vector)?.elements; // first 1, then 0, and 1 when larger buffers are there
///     vector = &vector[taken..];
/// }
/// # Ok(()) }
/// ```
///
/// It ends when it is dropped. Elements that the peer has not consumed until then are lost ([`Channel::unconsumed`]).
#[derive(Debug)]
pub struct Channel<const LEVELS: usize = 2> {
    ends: Ends<Card, LEVELS>,
    link: Link,
}

impl<const LEVELS: usize> Channel<LEVELS> {
    /// A channel that is not connected, with its small buffers. Its peer can use the keys of all regions of `domain`, which is
    /// of this context. It takes a completion queue, a queue pair and two keys; a third one while it grows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes that cannot be (see [`ChannelConfig`]); [`Error::LimitReached`];
    /// [`ChannelError::NoMemory`].
    pub fn new(
        context: &Context,
        domain: &ProtectionDomain,
        config: &ChannelConfig<LEVELS>,
    ) -> Result<Self, ChannelError> {
        ends::check(config)?;
        let card = Card::new(context, domain, config)?;
        Ok(Self { ends: Ends::new(card, *config)?, link: Link::None })
    }

    /// Begins to connect to `service` of `peer`, which accepts with [`Channel::accept`]. Until the connection is there, all is "not
    /// yet"; whether it failed, [`Channel::progress`] and all other calls say.
    ///
    /// # Errors
    /// As [`QueuePair::start_connect`].
    pub fn start_connect(&mut self, peer: Ipv4Addr, service: u16) -> Result<(), ChannelError> {
        self.queue_pair().start_connect(peer, service, &self.ends.hello())?;
        self.link = Link::Begun(None);
        Ok(())
    }

    /// Accepts a request of a peer's [`Channel::start_connect`]. Likewise.
    ///
    /// # Errors
    /// [`ChannelError::BadPeer`], and the request is rejected; as [`Request::accept`].
    pub fn accept(&mut self, request: Request) -> Result<(), ChannelError> {
        let hello = request.private_data().to_vec();
        self.ends.fits(&hello)?;
        request.accept(self.queue_pair(), &self.ends.hello())?;
        self.link = Link::Begun(Some(hello));
        Ok(())
    }

    /// Takes what has come, and does what is due: answers, buffers that are given back, larger buffers. Every other call begins
    /// with it.
    ///
    /// # Errors
    /// [`ChannelError::Lost`], [`ChannelError::BadPeer`], [`Error::Closed`] when the connection could not be made,
    /// [`Error::DeviceLost`].
    pub fn progress(&mut self) -> Result<(), ChannelError> {
        self.connect()?;
        self.ends.progress()
    }

    /// Whether the connection is there.
    ///
    /// # Errors
    /// As [`Channel::progress`].
    pub fn is_connected(&mut self) -> Result<bool, ChannelError> {
        self.progress()?;
        Ok(self.ends.has_peer())
    }

    /// Looks whether a connection that was begun is there.
    fn connect(&mut self) -> Result<(), ChannelError> {
        let told = match &mut self.link {
            Link::None => return Ok(()),
            Link::Bad => return Err(ChannelError::BadPeer),
            Link::Begun(told) => told,
        };
        let answer = match self.ends.medium.queue_pair().wait_established(Some(Duration::ZERO)) {
            Err(Error::Timeout(_)) => return Ok(()),
            answer => answer?,
        };
        let hello = told.take().unwrap_or(answer);
        self.link = Link::Bad;
        self.ends.begin(&hello)?;
        self.link = Link::None;
        Ok(())
    }

    /// Sends what goes now of a vector, whose elements each take a buffer: they are copied, and the caller's again when this
    /// returns. The vector is cut before its first element that needs larger buffers (BE-6); if that is the first one, they
    /// are asked for, and nothing was taken yet (BE-2). Nothing is taken either while no buffer is free.
    ///
    /// An element above [`ChannelConfig::rendezvous`] is copied into a buffer which the peer READs; one at a time.
    ///
    /// # Errors
    /// [`ChannelError::NoMemory`], [`ChannelError::PeerRefused`], [`ChannelError::TooLarge`], [`ChannelError::BadAnswer`], each
    /// reported once: then the vector may be tried again, and nothing of it was taken. [`ChannelError::BadTally`]; as
    /// [`Channel::progress`].
    pub fn send(&mut self, vector: &[&[u8]]) -> Result<Status, ChannelError> {
        self.connect()?;
        self.ends.send(vector)
    }

    /// Offers a buffer to the peer, of 1 byte to 1 GiB, as a vector of one element, without a copy (rendezvous).
    /// [`Channel::next_returned`] gives it back. `Ok(Some(_))`: not yet.
    ///
    /// # Errors
    /// As [`Channel::send`], with the buffer.
    pub fn send_buffer(&mut self, buffer: Buffer) -> Result<Option<Buffer>, Refused> {
        match self.connect() {
            Err(error) => Err(Refused::with(error, buffer)),
            Ok(()) => self.ends.send_buffer(buffer),
        }
    }

    /// A buffer of [`Channel::send_buffer`] that the peer has consumed, oldest first: it may be changed again.
    pub fn next_returned(&mut self) -> Option<Buffer> {
        self.ends.returned()
    }

    /// The oldest element that has arrived and was not taken; `None`: not yet.
    ///
    /// # Errors
    /// [`ChannelError::BadFrame`]; as [`Channel::progress`]. What has arrived before comes first.
    pub fn peek(&mut self) -> Result<Option<Arrived>, ChannelError> {
        self.connect()?;
        self.ends.peek()
    }

    /// Copies the oldest element to the start of `into`, and gives its buffer back to the peer; `None`: not yet.
    ///
    /// # Errors
    /// [`ChannelError::TooSmall`], [`ChannelError::IsOffered`]: it stays the oldest. As [`Channel::peek`].
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<Arrived>, ChannelError> {
        self.connect()?;
        self.ends.receive(into)
    }

    /// Has the oldest element put into a buffer: one that is offered is READ, without a copy; another one is copied.
    /// [`Channel::next_fetched`] gives the buffer back; until then, what is behind it waits. `Ok(Some(_))`: not yet.
    ///
    /// # Errors
    /// [`ChannelError::TooSmall`]; as [`Channel::peek`], with the buffer.
    pub fn fetch(&mut self, into: Buffer) -> Result<Option<Buffer>, Refused> {
        match self.connect() {
            Err(error) => Err(Refused::with(error, into)),
            Ok(()) => self.ends.fetch(into),
        }
    }

    /// The buffer of [`Channel::fetch`], when it has its element. [`Channel::progress`] makes it come.
    pub fn next_fetched(&mut self) -> Option<Fetched> {
        self.ends.fetched()
    }

    /// Gives the oldest element back to the peer unread; `None`: there is none.
    ///
    /// # Errors
    /// As [`Channel::peek`].
    pub fn skip(&mut self) -> Result<Option<Arrived>, ChannelError> {
        self.connect()?;
        self.ends.skip()
    }

    /// Elements sent that the peer has not consumed, as far as this end knows.
    pub fn unconsumed(&self) -> u32 {
        self.ends.unconsumed()
    }

    /// Whether nothing is under way: the peer has consumed all that was sent, and has been told of all that was consumed here.
    /// Then it may be dropped, if the peer sends nothing more.
    pub fn is_settled(&self) -> bool {
        self.ends.is_settled()
    }

    /// Whether larger buffers have been asked for, and are not there yet.
    pub fn is_growing(&self) -> bool {
        self.ends.growing()
    }

    /// Levels (from 0) of the buffers that this end sends through, and of those that it receives in.
    pub fn levels(&self) -> (usize, usize) {
        self.ends.levels()
    }

    /// Bytes of memory that this end has for the channel now (BE-8): buffers of both directions, control memory, and the copy
    /// of an element that is offered. Not the queues, which any queue pair has, nor buffers of the caller's.
    pub fn bytes(&self) -> usize {
        self.ends.bytes()
    }

    /// The queue pair, for its state, trigger and maximum bandwidth. Nothing may be posted to it.
    pub fn queue_pair(&self) -> &QueuePair {
        self.ends.medium.queue_pair()
    }

    /// Its completion queue, to be armed and slept at. Only the channel polls it.
    pub fn completions(&self) -> &CompletionQueue {
        self.ends.medium.completions()
    }
}
