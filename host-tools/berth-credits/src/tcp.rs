// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TCP connection (CR-12): pieces and messages about credits go in its stream, one after the other. Lists may go by TCP
//! options instead, see [`crate::header`].
//!
//! Each end first sends 8 bytes that say what it speaks, and whether it has a [`Header`]. Then come frames, all numbers
//! little-endian:
//!
//! ```text
//! word 0   1: message about credits   2: piece
//! word 1   words that follow          bytes that follow
//! word 2   0                          bytes that the sender still has to send (CR-9)
//! ```
//!
//! Between two ends that have a [`Header`] there are two more, with zeros in words 1 and 2. Word 0 is 3 when a probe has been
//! seen, and 4 in a frame that says nothing: its segment takes an option along. An acknowledgement that is due does so, too,
//! and goes first; but none may be due.
//!
//! A piece is read straight into its receive. What the socket does not take at once is copied and sent later; as long as
//! there is some of that, no other piece is cut.

use crate::header::{Answer, ByOption, Header, Limits, Ways};
use crate::transport::{Completion, Error, LIST, Message, Transport};
use berth_protocol::credit::entry::{HEAD, Name};
use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read};
use std::net::TcpStream;

/// What each end says first: "Bcre", version 1, no header.
const HELLO: [u8; 8] = *b"Bcre\x01\0\0\0";
/// The same with a header.
const HELLO_HEADER: [u8; 8] = *b"Bcre\x01\x01\0\0";
/// Bytes before a frame's content.
const FRAME: usize = 12;
const MESSAGE: u32 = 1;
const PIECE: u32 = 2;
const SEEN: u32 = 3;
const NOTHING: u32 = 4;
/// What messages call either end: the TCP connection says whom they are for.
const NAME: Name = Name { qpn: 0, epoch: 1 };
/// Bytes of a message, at most.
const LONGEST: usize = 4 * (HEAD + LIST);
/// Bytes that wait for the socket, above which there is no room for a message.
const WAITING: usize = 1 << 16;
/// Messages that were read and not taken, at most.
const MESSAGES: usize = 16;
/// Reads of one call, at most.
const READS: usize = 256;
/// Parts of one system call.
const PARTS: usize = 64;

/// What is being read.
#[derive(Clone, Copy, Debug)]
enum Reading {
    Hello,
    Frame,
    Message,
    Piece { at: usize, left: usize, len: u32, remaining: u32 },
}

/// What a read came to.
enum Got {
    /// Bytes came.
    Some,
    /// None are there now.
    Nothing,
    /// No more will come.
    End,
}

/// One end. See the module.
#[derive(Debug)]
pub struct Tcp {
    stream: TcpStream,
    memory: Vec<u8>,
    /// Receives that are posted and not filled: place, bytes.
    receives: VecDeque<(u32, u32)>,
    reading: Reading,
    /// Bytes of it, unless it is a piece.
    buffer: [u8; LONGEST],
    /// How many it has.
    need: usize,
    /// How many of them are there.
    got: usize,
    messages: VecDeque<Message>,
    /// Pieces that were read.
    received: VecDeque<Completion>,
    /// Bytes that wait for the socket.
    out: VecDeque<u8>,
    /// Pieces whose completion has not been polled.
    sent: u32,
    /// The socket takes no bytes any more.
    deaf: bool,
    /// No more bytes come.
    ended: bool,
    options: Option<ByOption>,
    /// The peer has a header.
    header: bool,
    ways: Ways,
}

impl Tcp {
    /// One end of a connection that is established, with `memory` bytes to receive into. The other end does the same. The
    /// socket becomes non-blocking.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(stream: TcpStream, memory: u32) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            memory: vec![0; memory as usize],
            receives: VecDeque::new(),
            reading: Reading::Hello,
            buffer: [0; LONGEST],
            need: HELLO.len(),
            got: 0,
            messages: VecDeque::new(),
            received: VecDeque::new(),
            out: HELLO.into(),
            sent: 0,
            deaf: false,
            ended: false,
            options: None,
            header: false,
            ways: Ways::default(),
        })
    }

    /// The same, with lists as TCP options where those get through.
    ///
    /// # Errors
    /// As the system says.
    pub fn with_header(
        stream: TcpStream,
        memory: u32,
        header: impl Header + 'static,
        limits: Limits,
    ) -> std::io::Result<Self> {
        let mut this = Self::new(stream, memory)?;
        this.options = ByOption::new(Box::new(header), limits, NAME);
        this.out = if this.options.is_some() { HELLO_HEADER } else { HELLO }.into();
        Ok(this)
    }

    /// Which way this end's messages went.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// The socket, to wait for. Options do not make it readable.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends the start of `parts`; gives how many bytes the socket took.
    fn write(&mut self, parts: &[&[u8]]) -> usize {
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let mut taken = 0;
        while taken < all && !self.deaf {
            let mut skip = taken;
            let rest = parts.iter().filter_map(|part| {
                let passed = skip.min(part.len());
                skip -= passed;
                Some(&part[passed..]).filter(|part| !part.is_empty())
            });
            let slices: Vec<_> = rest.take(PARTS).map(IoSlice::new).collect();
            match sendmsg(&self.stream, &slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(0) => break,
                Ok(len) => taken += len,
                Err(error) => match std::io::Error::from(error).kind() {
                    ErrorKind::Interrupted => (),
                    ErrorKind::WouldBlock => break,
                    // What the peer sent before may still be there to be read.
                    _ => self.deaf = true,
                },
            }
        }
        taken
    }

    /// Sends bytes that wait.
    fn flush(&mut self) {
        if self.deaf {
            self.out.clear();
        }
        if self.out.is_empty() {
            return;
        }
        let out = std::mem::take(&mut self.out);
        let (first, second) = out.as_slices();
        let taken = self.write(&[first, second]);
        self.out = out;
        self.out.drain(..taken);
    }

    /// Sends `parts`, now or later.
    fn queue(&mut self, parts: &[&[u8]]) {
        let mut taken = if self.out.is_empty() { self.write(parts) } else { 0 };
        for part in parts {
            let passed = taken.min(part.len());
            taken -= passed;
            self.out.extend(&part[passed..]);
        }
    }

    /// Reads to `to`.
    fn read_some(mut stream: &TcpStream, to: &mut [u8], got: &mut usize) -> Got {
        match stream.read(to) {
            Ok(0) => Got::End,
            Ok(len) => {
                *got += len;
                Got::Some
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Got::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => Got::Some,
            Err(_) => Got::End,
        }
    }

    /// Sends a message inside the stream.
    fn queue_message(&mut self, message: &Message) -> Result<(), Error> {
        let mut words = [0; HEAD + LIST];
        let len = message.encode(&mut words).ok_or(Error::BadMessage)?;
        let mut bytes = [0; LONGEST];
        for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&words[..len]) {
            *to = word.to_le_bytes();
        }
        self.queue(&[&Self::frame([MESSAGE, len as u32, 0]), &bytes[..4 * len]]);
        self.ways.in_stream += 1;
        Ok(())
    }

    /// Lets a segment go, which takes an option along.
    fn segment(&mut self) -> Result<(), Error> {
        // Refused when the connection has ended, which shows elsewhere.
        set_tcp_quickack(&self.stream, true).ok();
        let Some(options) = &mut self.options else {
            return Ok(());
        };
        // What waits for the socket makes a segment of its own.
        if options.pending()? && self.out.is_empty() {
            self.queue(&[&Self::frame([NOTHING, 0, 0])]);
        }
        Ok(())
    }

    /// Takes what options have brought, and sends inside the stream what was to go by one and did not.
    fn tend(&mut self) -> Result<(), Error> {
        let Some(options) = &mut self.options else {
            return Ok(());
        };
        options.settle()?;
        let late = options.late()?;
        while self.messages.len() < MESSAGES
            && let Some(message) = options.next()
        {
            self.messages.push_back(message);
        }
        let tell = options.tell();
        if let Some(message) = late {
            self.ways.by_option -= 1;
            self.queue_message(&message)?;
        }
        if tell {
            self.queue(&[&Self::frame([SEEN, 0, 0])]);
        }
        Ok(())
    }

    /// The peer has said what it speaks.
    fn greeted(&mut self) -> Result<(), Error> {
        let Some(options) = &mut self.options else {
            return Ok(());
        };
        if !self.header {
            return options.refused();
        }
        if options.probe()? {
            self.queue(&[&Self::frame([NOTHING, 0, 0])]);
        }
        Ok(())
    }

    /// Sends and reads what is possible.
    fn pump(&mut self) -> Result<(), Error> {
        self.flush();
        self.tend()?;
        for _ in 0..READS {
            if self.ended || self.messages.len() >= MESSAGES {
                break;
            }
            let to = match self.reading {
                Reading::Piece { at, left, .. } => self.memory.get_mut(at..at + left),
                _ => self.buffer.get_mut(self.got..self.need),
            };
            let mut some = 0;
            let got = Self::read_some(&self.stream, to.unwrap_or_default(), &mut some);
            match &mut self.reading {
                Reading::Piece { at, left, .. } => (*at, *left) = (*at + some, *left - some),
                _ => self.got += some,
            }
            match got {
                Got::Some => self.advance()?,
                Got::Nothing if self.deaf => self.ended = true,
                Got::Nothing => break,
                Got::End => self.ended = true,
            }
        }
        Ok(())
    }

    /// Goes on with what comes next, if what is being read is complete.
    fn advance(&mut self) -> Result<(), Error> {
        if let Reading::Piece { left, len, remaining, .. } = self.reading {
            if left == 0 {
                self.received.push_back(Completion::Received { len, remaining });
                self.expect(Reading::Frame, FRAME);
            }
            return Ok(());
        }
        if self.got < self.need {
            return Ok(());
        }
        let mut words = [0; HEAD + LIST];
        for (to, word) in words.iter_mut().zip(self.buffer[..self.need].as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*word);
        }
        match self.reading {
            Reading::Hello if self.buffer.starts_with(&HELLO) || self.buffer.starts_with(&HELLO_HEADER) => {
                self.header = self.buffer.starts_with(&HELLO_HEADER);
                self.greeted()?;
                self.expect(Reading::Frame, FRAME);
            }
            Reading::Frame => match words {
                [MESSAGE, words, 0, ..] if (1..=HEAD + LIST).contains(&(words as usize)) => {
                    self.expect(Reading::Message, 4 * words as usize);
                }
                [PIECE, 0, ..] => return Err(Error::Empty),
                [PIECE, len, remaining, ..] => {
                    let (at, size) = self.receives.pop_front().ok_or(Error::NoCredit)?;
                    if len > size {
                        return Err(Error::TooLong { len, size });
                    }
                    self.expect(Reading::Piece { at: at as usize, left: len as usize, len, remaining }, 0);
                }
                [frame @ (SEEN | NOTHING), 0, 0, ..] => {
                    let options = self.options.as_mut().filter(|_| self.header).ok_or(Error::BadMedium)?;
                    if frame == SEEN {
                        options.seen()?;
                    }
                    self.expect(Reading::Frame, FRAME);
                }
                _ => return Err(Error::BadMedium),
            },
            Reading::Message => {
                let message = Message::decode(&words[..self.need / 4]).filter(|(_, used)| 4 * used == self.need);
                self.messages.push_back(message.ok_or(Error::BadMessage)?.0);
                self.expect(Reading::Frame, FRAME);
            }
            _ => return Err(Error::BadMedium),
        }
        Ok(())
    }

    /// What is read next, and its bytes.
    fn expect(&mut self, reading: Reading, need: usize) {
        (self.reading, self.need, self.got) = (reading, need, 0);
    }

    /// What stands before a frame's content.
    fn frame(words: [u32; 3]) -> [u8; FRAME] {
        let mut frame = [0; FRAME];
        for (to, word) in frame.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        frame
    }
}

impl Transport for Tcp {
    fn names(&self) -> (Name, Name) {
        (NAME, NAME)
    }

    fn memory(&self) -> u32 {
        self.memory.len() as u32
    }

    fn read(&self, offset: u32, out: &mut [u8]) -> bool {
        let from = self.memory.get(offset as usize..).and_then(|from| from.get(..out.len()));
        from.inspect(|from| out.copy_from_slice(from)).is_some()
    }

    fn post_receive(&mut self, offset: u32, len: u32) -> Result<(), Error> {
        if offset.checked_add(len).is_none_or(|end| end > self.memory()) {
            return Err(Error::BadReceive);
        }
        self.receives.push_back((offset, len));
        Ok(())
    }

    fn can_send(&self) -> bool {
        self.out.is_empty()
    }

    fn post_send(&mut self, parts: &mut dyn Iterator<Item = &[u8]>, len: u32, remaining: u32) -> Result<(), Error> {
        let frame = Self::frame([PIECE, len, remaining]);
        let mut all = vec![&frame[..]];
        let mut left = len as usize;
        for part in parts {
            let part = &part[..part.len().min(left)];
            left -= part.len();
            all.push(part);
        }
        if left != 0 {
            return Err(Error::Short);
        }
        self.queue(&all);
        self.sent += 1;
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        if self.received.is_empty() {
            self.pump()?;
        }
        // Pieces of which the socket has all.
        if self.out.is_empty() && !self.deaf && self.sent != 0 {
            self.sent -= 1;
            return Ok(Some(Completion::Sent));
        }
        match self.received.pop_front() {
            None if self.ended && self.messages.is_empty() => Err(Error::Gone),
            completion => Ok(completion),
        }
    }

    fn put(&mut self, message: &Message) -> Result<bool, Error> {
        self.flush();
        if self.out.len() > WAITING {
            return Ok(false);
        }
        match self.options.as_mut().map_or(Ok(Answer::Stream), |options| options.offer(message))? {
            Answer::Wait => return Ok(false),
            Answer::Stream => self.queue_message(message)?,
            Answer::Taken => {
                self.ways.by_option += 1;
                self.segment()?;
            }
        }
        Ok(true)
    }

    fn get(&mut self) -> Result<Option<Message>, Error> {
        if self.messages.is_empty() {
            self.pump()?;
        }
        Ok(self.messages.pop_front())
    }

    fn part(&self) -> u32 {
        self.options.as_ref().map_or(LIST as u32, ByOption::part)
    }

    fn loses(&self) -> bool {
        self.options.is_some()
    }

    fn waits(&self) -> bool {
        self.options.as_ref().is_some_and(ByOption::waits)
    }
}
