// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both directions of one end, over any medium.

use berth_protocol::service::grow::{CONTROL_BYTES, Config, HELLO_BYTES, Hello, OFFER_BYTES, Place};
use berth_queue::Remote;

use super::error::{ChannelError, Refused};
use super::medium::{Event, Medium, Tag};
use super::receiving::Receiving;
use super::sending::Sending;
use super::{Arrived, Fetched, Status};
use crate::cq;
use crate::error::Error;
use crate::mapping::Buffer;
use crate::stream::MAX_SGE_BYTES;

/// Buffers of a set.
const COUNTS: std::ops::RangeInclusive<u32> = 2..=1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ends<M: Medium, const LEVELS: usize> {
    // The card uses what is below it, until it has gone.
    pub(super) medium: M,
    config: Config<LEVELS>,
    control: M::Open,
    sending: Sending<M, LEVELS>,
    receiving: Receiving<M, LEVELS>,
    /// The peer's control memory, once there is a peer.
    peer: Option<Place>,
    /// An answer or a tally is on its way. One at a time: what is sent again could otherwise overtake what is newer.
    telling: bool,
    lost: Option<cq::Status>,
}

/// Whether both ends can work with it.
pub(super) fn check<const LEVELS: usize>(config: &Config<LEVELS>) -> Result<(), ChannelError> {
    let sizes = &config.sizes;
    let rising = sizes.windows(2).all(|pair| pair[0] < pair[1]);
    let whole =
        sizes.iter().all(|size| size.is_multiple_of(8) && *size as usize <= MAX_SGE_BYTES / *COUNTS.end() as usize);
    let first = config.limit(0) as usize >= OFFER_BYTES;
    if rising && whole && first && COUNTS.contains(&config.count) && (1..=100).contains(&config.share) {
        return Ok(());
    }
    Err(Error::Invalid { what: "make a channel with these sizes" }.into())
}

impl<M: Medium, const LEVELS: usize> Ends<M, LEVELS> {
    pub(super) fn new(mut medium: M, config: Config<LEVELS>) -> Result<Self, ChannelError> {
        let control = medium.open(CONTROL_BYTES).ok_or(ChannelError::NoMemory)?;
        let receiving = Receiving::new(config, &mut medium).ok_or(ChannelError::NoMemory)?;
        let sending = Sending::new(config, &mut medium).ok_or(ChannelError::NoMemory)?;
        Ok(Self { medium, config, control, sending, receiving, peer: None, telling: false, lost: None })
    }

    /// What the peer is to be told.
    pub(super) fn hello(&self) -> [u8; HELLO_BYTES] {
        let place = |Remote { va, key }| Place { addr: va, rkey: key };
        let (control, set) = (place(M::remote(&self.control)), place(self.receiving.first()));
        Hello { control, set, digest: self.config.digest() }.encode()
    }

    /// What a peer has told, if it has the same sizes.
    pub(super) fn fits(&self, hello: &[u8]) -> Result<Hello, ChannelError> {
        let hello = Hello::decode(hello).filter(|hello| hello.digest == self.config.digest());
        hello.ok_or(ChannelError::BadPeer)
    }

    /// There is a peer, which has told this.
    pub(super) fn begin(&mut self, hello: &[u8]) -> Result<(), ChannelError> {
        let Hello { control, set, .. } = self.fits(hello)?;
        self.sending.begin(set);
        self.peer = Some(control);
        Ok(())
    }

    /// Takes what has come, and does what is due.
    pub(super) fn progress(&mut self) -> Result<(), ChannelError> {
        loop {
            match self.medium.poll() {
                Ok(None) => break,
                Ok(Some(Event::Sent(Tag::Staged(generation)))) => self.sending.staged_is_done(generation),
                Ok(Some(Event::Sent(Tag::Control))) => self.telling = false,
                Ok(Some(Event::Sent(_))) => {}
                Ok(Some(Event::Read(buffer))) => self.receiving.is_read(&mut self.medium, buffer),
                Ok(Some(Event::Arrived { code, len })) => self.receiving.arrived(&mut self.medium, code, len),
                // What has arrived before is behind it.
                Err(ChannelError::Lost(status)) => _ = self.lost.get_or_insert(status),
                Err(error) => return Err(error),
            }
        }
        if let Some(status) = self.lost {
            return Err(ChannelError::Lost(status));
        }
        if self.peer.is_none() {
            return Ok(());
        }
        self.sending.settle(&mut self.medium, M::words(&self.control))?;
        if !self.telling {
            self.receiving.repeat(&mut self.medium);
        }
        self.tell(true)
    }

    /// Tells the peer what is due, if nothing is on its way.
    fn tell(&mut self, all: bool) -> Result<(), ChannelError> {
        if let (false, Some(control)) = (self.telling, self.peer) {
            self.telling = self.receiving.tell(&mut self.medium, control, all)?;
        }
        Ok(())
    }

    pub(super) fn send(&mut self, vector: &[&[u8]]) -> Result<Status, ChannelError> {
        self.progress()?;
        if self.peer.is_none() {
            return Ok(Status::default());
        }
        let status = self.sending.send(&mut self.medium, vector)?;
        // A request leaves at once.
        self.sending.settle(&mut self.medium, M::words(&self.control))?;
        Ok(status)
    }

    pub(super) fn send_buffer(&mut self, buffer: Buffer) -> Result<Option<Buffer>, Refused> {
        match self.progress() {
            Err(error) => Err(Refused::with(error, buffer)),
            Ok(()) if self.peer.is_none() => Ok(Some(buffer)),
            Ok(()) => self.sending.offer(&mut self.medium, buffer),
        }
    }

    pub(super) fn returned(&mut self) -> Option<Buffer> {
        self.sending.returned()
    }

    /// Makes progress, for a call that receives: what has arrived before a failure is still there.
    fn look(&mut self) -> Result<(), ChannelError> {
        match self.progress() {
            Err(_) if matches!(self.receiving.peek(), Ok(Some(_))) => Ok(()),
            other => other,
        }
    }

    pub(super) fn peek(&mut self) -> Result<Option<Arrived>, ChannelError> {
        self.look()?;
        self.receiving.peek()
    }

    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Option<Arrived>, ChannelError> {
        self.look()?;
        let received = self.receiving.receive(&mut self.medium, into)?;
        self.told(received)
    }

    pub(super) fn skip(&mut self) -> Result<Option<Arrived>, ChannelError> {
        self.look()?;
        let skipped = self.receiving.skip(&mut self.medium)?;
        self.told(skipped)
    }

    /// An element was taken, whatever becomes of telling the peer, which the next call hears of.
    fn told(&mut self, taken: Option<Arrived>) -> Result<Option<Arrived>, ChannelError> {
        if self.lost.is_none() && taken.is_some() {
            let _ = self.tell(false);
        }
        Ok(taken)
    }

    pub(super) fn fetch(&mut self, into: Buffer) -> Result<Option<Buffer>, Refused> {
        match self.look() {
            Err(error) => Err(Refused::with(error, into)),
            Ok(()) => self.receiving.fetch(&mut self.medium, into),
        }
    }

    pub(super) fn fetched(&mut self) -> Option<Fetched> {
        self.receiving.fetched()
    }

    pub(super) fn unconsumed(&self) -> u32 {
        self.sending.unconsumed()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.sending.unconsumed() == 0 && !self.telling && !self.receiving.has_news()
    }

    pub(super) fn growing(&self) -> bool {
        self.sending.growing()
    }

    /// Levels of what is sent, and of what is received.
    pub(super) fn levels(&self) -> (usize, usize) {
        let (own, peer) = self.sending.levels();
        (own.min(peer), self.receiving.level())
    }

    pub(super) fn bytes(&self) -> usize {
        M::words(&self.control).len() + self.sending.bytes() + self.receiving.bytes()
    }

    pub(super) const fn has_peer(&self) -> bool {
        self.peer.is_some()
    }
}
