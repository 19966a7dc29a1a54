// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory of two processes of one host (CR-12, VC-11), without a card.
//!
//! One process makes the memory and passes it over a UNIX socket ([`Shared::offer`], [`Shared::join`]). Then each end has
//! three rings that it alone writes: messages about credits, the receives that it posted, and the pieces that it sent.
//! The sender copies its bytes once, straight into the receiver's buffer, which lies in the shared memory. No lock and no
//! system call is needed for that. The socket stays open and tells when the peer's process has ended; it is asked once in
//! so many polls that found nothing.
//!
//! **Trust.** What is read from the memory is copied once and checked before it is used. A peer that ends, or writes
//! anything anywhere, ends the connection at most. It can change bytes that were received already, so a program that does
//! not trust its peer checks the bytes that it copied out, not those in the memory.

use crate::memory::{self, Area, End, Outbox};
use crate::ring::{Broken, Reader, Writer};
use crate::transport::{Completion, Error, LIST, Message, ROOM, Transport};
use berth_protocol::credit::entry::{HEAD, Name};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

/// Polls in a row that find nothing before the socket is asked.
const IDLE: u32 = 64;
/// First word of an offer: "Bcre".
const MAGIC: u32 = u32::from_be_bytes(*b"Bcre");
/// Second word: what stands where.
const LAYOUT: u32 = 1 << 16 | size_of::<Outbox>() as u32;

const _: () = assert!(size_of::<Outbox>() < 1 << 16 && 2 * ROOM <= 512, "a ring holds all receives that can be posted");

impl From<Broken> for Error {
    fn from(_: Broken) -> Self {
        Self::BadMedium
    }
}

/// One end. See the module.
#[derive(Debug)]
pub struct Shared {
    area: Area,
    end: End,
    socket: UnixStream,
    messages_out: Writer,
    receives_out: Writer,
    pieces_out: Writer,
    messages_in: Reader,
    receives_in: Reader,
    pieces_in: Reader,
    /// Pieces whose completion has not been polled.
    sent: u32,
    /// Polls in a row that found nothing.
    idle: u32,
    /// The peer has ended: what it wrote before is still to be read.
    ending: bool,
}

impl Shared {
    /// Makes the memory and sends it over `socket`. This end gets `own` bytes to receive into, the other end `peer` bytes;
    /// 0 to 2^30 each. Does not wait for the other end.
    ///
    /// # Errors
    /// A size is too large, there is no memory, or the socket does not take the offer.
    pub fn offer(socket: UnixStream, own: u32, peer: u32) -> std::io::Result<Self> {
        let (area, file) = Area::create([own, peer])?;
        let mut offer = [0; 16];
        for (to, word) in offer.as_chunks_mut::<4>().0.iter_mut().zip([MAGIC, LAYOUT, own, peer]) {
            *to = word.to_le_bytes();
        }
        memory::send_file(&socket, &offer, &file)?;
        Self::new(area, End::First, socket)
    }

    /// Takes the memory that the other end offers over `socket`. Waits for the offer, unless the socket is non-blocking.
    ///
    /// # Errors
    /// `InvalidData`: what came is no offer, is of another version, or its memory is not as the offer says. `UnexpectedEof`:
    /// the other end is gone. Or as the system says.
    pub fn join(socket: UnixStream) -> std::io::Result<Self> {
        let mut offer = [0; 16];
        let file = memory::receive_file(&socket, &mut offer)?;
        let mut words = offer.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        if (next(), next()) != (MAGIC, LAYOUT) {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "an offer of another kind or version"));
        }
        let area = Area::open(file, [next(), next()])?;
        Self::new(area, End::Second, socket)
    }

    fn new(area: Area, end: End, socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            area,
            end,
            socket,
            messages_out: Writer::default(),
            receives_out: Writer::default(),
            pieces_out: Writer::default(),
            messages_in: Reader::default(),
            receives_in: Reader::default(),
            pieces_in: Reader::default(),
            sent: 0,
            idle: 0,
            ending: false,
        })
    }

    fn peer(&self) -> End {
        match self.end {
            End::First => End::Second,
            End::Second => End::First,
        }
    }

    /// Where the memory begins that this end receives into, for use in place. The peer can write there at any time.
    pub fn address(&self) -> *const u8 {
        self.area.received(self.end).as_ptr().cast()
    }

    /// Asks the socket whether the peer is there, now and then.
    fn watch(&mut self) -> Result<(), Error> {
        if self.ending {
            return Err(Error::Gone);
        }
        self.idle += 1;
        if self.idle < IDLE {
            return Ok(());
        }
        self.idle = 0;
        match self.socket.read(&mut [0]) {
            Ok(0) => self.ending = true,
            // Nothing is said there after the offer.
            Ok(_) => return Err(Error::BadMedium),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => (),
            Err(_) => self.ending = true,
        }
        Ok(())
    }
}

impl Transport for Shared {
    fn names(&self) -> (Name, Name) {
        // The memory is of this connection only: there is no earlier one to tell apart.
        let name = |end| Name { qpn: end as u32, epoch: 1 };
        (name(self.end), name(self.peer()))
    }

    fn memory(&self) -> u32 {
        self.area.received(self.end).len() as u32
    }

    fn read(&self, offset: u32, out: &mut [u8]) -> bool {
        let from = self.area.received(self.end).get(offset as usize..).and_then(|from| from.get(..out.len()));
        from.inspect(|from| memory::load(out, from)).is_some()
    }

    fn post_receive(&mut self, offset: u32, len: u32) -> Result<(), Error> {
        match self.receives_out.put(&self.area.outbox(self.end).receives, &[offset, len])? {
            true => Ok(()),
            // A sound peer takes a receive before it fills it.
            false => Err(Error::BadMedium),
        }
    }

    fn can_send(&self) -> bool {
        true
    }

    fn post_send(&mut self, parts: &mut dyn Iterator<Item = &[u8]>, len: u32, remaining: u32) -> Result<(), Error> {
        let peer = self.peer();
        let receive = self.receives_in.get::<_, 2>(&self.area.outbox(peer).receives)?;
        let [offset, size] = receive.ok_or(Error::BadReceive)?;
        if len > size {
            return Err(Error::BadReceive);
        }
        let buffer = self.area.received(peer).get(offset as usize..).and_then(|buffer| buffer.get(..len as usize));
        if !memory::gather(buffer.ok_or(Error::BadReceive)?, parts) {
            return Err(Error::Short);
        }
        match self.pieces_out.put(&self.area.outbox(self.end).pieces, &[len, remaining])? {
            true => self.sent += 1,
            // A sound peer has as many receives at most.
            false => return Err(Error::BadMedium),
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        if let Some(sent) = self.sent.checked_sub(1) {
            self.sent = sent;
            return Ok(Some(Completion::Sent));
        }
        match self.pieces_in.get::<_, 2>(&self.area.outbox(self.peer()).pieces)? {
            Some([len, remaining]) => {
                self.idle = 0;
                Ok(Some(Completion::Received { len, remaining }))
            }
            None => self.watch().map(|()| None),
        }
    }

    fn put(&mut self, message: &Message) -> Result<bool, Error> {
        let mut words = [0; HEAD + LIST];
        let len = message.encode(&mut words).ok_or(Error::BadMessage)?;
        Ok(self.messages_out.put(&self.area.outbox(self.end).messages, &words[..len])?)
    }

    fn get(&mut self) -> Result<Option<Message>, Error> {
        let ring = &self.area.outbox(self.peer()).messages;
        let mut words = [0; HEAD + LIST];
        let len = self.messages_in.peek(ring, &mut words)?;
        if len == 0 {
            return Ok(None);
        }
        let (message, used) = Message::decode(&words[..len]).ok_or(Error::BadMessage)?;
        self.messages_in.skip(ring, used);
        Ok(Some(message))
    }
}
