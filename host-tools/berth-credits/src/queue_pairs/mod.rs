// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A transport over two reliable queue pairs of a NIC (CR-15): [`crate::verbs`] stands on it.
//!
//! On the *data* queue pair a piece is one SEND, and the bytes that follow it are its immediate data (CR-9), or what
//! the NIC has in its place. On the *control* one a message about credits is one SEND (CR-12). So data meets receives
//! of data only, in the order of the credits, and nothing ever finds its receiver not ready:
//!
//! * For a piece there is a receive, because a receive is posted before its credit is announced.
//! * For a message about credits there is one, too: an end has a fixed number of receives for them, and counts those of
//!   the other end that it has used. Each message says as its immediate data how many were posted again.
//!
//! Bytes to be sent are copied to a part of the memory that the NIC knows from the start. A piece that is too long for it
//! gets memory of its own.

pub(crate) mod staging;
#[cfg(test)]
mod tests;
pub mod window;

use crate::memory;
use crate::transport::{Completion, Error, LIST, Message, ROOM, Transport};
use berth_protocol::credit::entry::{HEAD, Name};
use staging::Staging;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU8;
use window::{Broken, SLOTS, Window};

/// Bytes of a message about credits, at most.
const LONGEST: usize = 4 * (HEAD + LIST);
/// Bytes that wait to be sent, of all pieces that are no longer than half of it.
const STAGING: u32 = 1 << 18;
/// Polls in a row that find nothing before the NIC is asked whether the peer is there.
const IDLE: u32 = 64;
/// Most bytes to receive into.
pub const MOST: u32 = 1 << 30;
/// Bytes that an end needs beside those to receive into.
pub const EXTRA: usize = STAGING as usize + 2 * SLOTS as usize * LONGEST;
/// Sends and receives of the data queue pair at a time, and those of the control one.
pub const DEPTHS: [u32; 2] = [ROOM as u32, SLOTS];

impl From<Broken> for Error {
    fn from(_: Broken) -> Self {
        Self::BadMedium
    }
}

/// What is posted to a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A receive of data.
    Receive,
    /// A piece.
    Piece,
    /// A piece in memory of its own.
    LongPiece,
    /// A receive of a message about credits, in this slot.
    Slot(u32),
    /// A message about credits.
    Message,
}

impl Request {
    /// A number that says it to the NIC.
    pub fn id(self) -> u64 {
        match self {
            Self::Receive => 0,
            Self::Piece => 1,
            Self::LongPiece => 2,
            Self::Message => 3,
            Self::Slot(slot) => 4 | u64::from(slot) << 32,
        }
    }

    /// What such a number says; `None`: nothing that was posted.
    pub fn of(id: u64) -> Option<Self> {
        Some(match id as u32 {
            0 => Self::Receive,
            1 => Self::Piece,
            2 => Self::LongPiece,
            3 => Self::Message,
            4 => Self::Slot((id >> 32) as u32),
            _ => return None,
        })
    }
}

/// A request that the NIC is done with.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What it is.
    pub request: Request,
    /// Why it failed, and all behind it.
    pub result: Result<(), Error>,
    /// Bytes that were received.
    pub len: u32,
    /// What was sent with them.
    pub immediate: u32,
}

/// Two queue pairs, and the memory that they send from and receive into.
pub trait Nic {
    /// That memory.
    fn bytes(&self) -> &[AtomicU8];

    /// Posts a receive into `len` bytes from `at` on, which lie within the memory: [`Request::Receive`], [`Request::Slot`].
    ///
    /// # Errors
    /// As the NIC says.
    fn receive(&mut self, request: Request, at: usize, len: u32) -> std::io::Result<()>;

    /// Sends `len` bytes from `at` on, perhaps none, and `immediate`: [`Request::Piece`], [`Request::Message`].
    ///
    /// # Errors
    /// As the NIC says.
    fn send(&mut self, request: Request, at: usize, len: u32, immediate: u32) -> std::io::Result<()>;

    /// Memory of its own for a piece of `len` bytes. It lasts until the next such call.
    ///
    /// # Errors
    /// There is none.
    fn long(&mut self, len: u32) -> std::io::Result<&[AtomicU8]>;

    /// Sends all of that as [`Request::LongPiece`].
    ///
    /// # Errors
    /// As the NIC says.
    fn send_long(&mut self, immediate: u32) -> std::io::Result<()>;

    /// All that is done now, in the order of each queue.
    ///
    /// # Errors
    /// As the NIC says.
    fn done(&mut self, into: &mut Vec<Done>) -> std::io::Result<()>;

    /// Whether the peer has closed the connection.
    fn closed(&mut self) -> bool;
}

/// One end. See the module.
#[derive(Debug)]
pub struct Pairs<N> {
    /// Its memory: to receive into, then [`STAGING`], then the slots of messages: those that come, those that go.
    nic: N,
    names: (Name, Name),
    memory: u32,
    staging: Staging,
    /// A piece with memory of its own is on its way.
    long: bool,
    window: Window,
    /// Slots of messages that came, and their bytes.
    messages: VecDeque<(u32, u32)>,
    completions: VecDeque<Completion>,
    done: Vec<Done>,
    /// Why nothing more will be done. What was done before is still to be polled.
    failed: Option<Error>,
    /// Polls in a row that found nothing.
    idle: u32,
    /// The peer has ended.
    ending: bool,
}

impl<N: Nic> Pairs<N> {
    /// An end with `memory` bytes to receive into, of a NIC whose memory has [`EXTRA`] more. Receives can be posted to it
    /// already; the peer must send nothing before this returns. `qpns`: the numbers of the data queue pairs.
    ///
    /// # Errors
    /// As the NIC says.
    pub fn new(nic: N, qpns: [u32; 2], memory: u32) -> std::io::Result<Self> {
        let [own, peer] = qpns.map(|qpn| Name { qpn, epoch: 1 });
        let mut this = Self {
            nic,
            names: (own, peer),
            memory,
            staging: Staging::new(STAGING),
            long: false,
            window: Window::default(),
            messages: VecDeque::new(),
            completions: VecDeque::new(),
            done: Vec::new(),
            failed: None,
            idle: 0,
            ending: false,
        };
        (0..SLOTS).try_for_each(|slot| this.post_slot(slot))?;
        Ok(this)
    }

    /// The NIC.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// Where the slot of a message that comes is.
    fn slot_in(&self, slot: u32) -> usize {
        (self.memory + STAGING) as usize + slot as usize * LONGEST
    }

    /// Posts the receive of a slot.
    fn post_slot(&mut self, slot: u32) -> std::io::Result<()> {
        let at = self.slot_in(slot);
        self.nic.receive(Request::Slot(slot), at, LONGEST as u32)
    }

    /// Posts it again, as a message has been read.
    fn free_slot(&mut self, slot: u32) -> Result<(), Error> {
        if self.failed.is_none() {
            self.post_slot(slot)?;
            self.window.posted();
        }
        Ok(())
    }

    /// Bytes of the memory.
    fn bytes(&self, at: usize, len: u32) -> Option<&[AtomicU8]> {
        self.nic.bytes().get(at..)?.get(..len as usize)
    }

    /// Sends a message of `len` bytes, which `write` puts into its slot.
    fn send_message(&mut self, len: usize, write: impl FnOnce(&[AtomicU8])) -> Result<(), Error> {
        let (slot, told) = self.window.send();
        let at = self.slot_in(SLOTS + slot);
        write(self.bytes(at, len as u32).ok_or(Error::BadMessage)?);
        let posted = self.nic.send(Request::Message, at, len as u32, told);
        posted.map_err(|error| self.refused(error))
    }

    /// Takes what the NIC has done.
    fn pump(&mut self) -> Result<(), Error> {
        if self.failed.is_some() {
            return Ok(());
        }
        let mut done = std::mem::take(&mut self.done);
        self.nic.done(&mut done)?;
        let mut told = VecDeque::new();
        for done in done.drain(..) {
            if let Err(error) = self.take(&done, &mut told) {
                // Requests behind it were not done. The reason for that may be that nobody is there.
                let gone = matches!(error, Error::Failed(_)) && self.nic.closed();
                self.failed = Some(if gone { Error::Gone } else { error });
                break;
            }
        }
        self.done = done;
        // All that was done was posted before, so the loop above had an end whatever the peer does.
        for slot in told {
            self.free_slot(slot)?;
        }
        if self.failed.is_none() && self.window.must_tell() {
            self.send_message(0, |_| ())?;
        }
        Ok(())
    }

    /// Takes a request that is done. `told`: slots of messages without content.
    fn take(&mut self, done: &Done, told: &mut VecDeque<u32>) -> Result<(), Error> {
        done.result?;
        match done.request {
            Request::Receive => {
                self.completions.push_back(Completion::Received { len: done.len, remaining: done.immediate });
            }
            Request::Piece => {
                self.staging.free();
                self.completions.push_back(Completion::Sent);
            }
            Request::LongPiece => {
                self.long = false;
                self.completions.push_back(Completion::Sent);
            }
            Request::Slot(slot) => {
                self.window.heard(done.immediate)?;
                match done.len {
                    0 => told.push_back(slot),
                    len => self.messages.push_back((slot, len)),
                }
            }
            Request::Message => self.window.left(),
        }
        Ok(())
    }

    /// Asks whether the peer is there, now and then.
    fn watch(&mut self) -> Result<(), Error> {
        if self.ending {
            return Err(Error::Gone);
        }
        self.idle += 1;
        if self.idle >= IDLE {
            self.idle = 0;
            self.ending = self.nic.closed();
        }
        Ok(())
    }

    /// The error of a request that the NIC refuses. The reason for that may be that nobody is there.
    fn refused(&mut self, error: std::io::Error) -> Error {
        if self.nic.closed() { Error::Gone } else { error.into() }
    }

    /// The error of a request that could not be posted: perhaps an earlier one has failed.
    fn unposted(&mut self, error: std::io::Error) -> Error {
        match (self.pump(), self.failed) {
            (Err(earlier), _) | (_, Some(earlier)) => earlier,
            _ => self.refused(error),
        }
    }
}

impl<N: Nic> Transport for Pairs<N> {
    fn names(&self) -> (Name, Name) {
        self.names
    }

    fn memory(&self) -> u32 {
        self.memory
    }

    fn read(&self, offset: u32, out: &mut [u8]) -> bool {
        let memory = self.nic.bytes().get(..self.memory as usize);
        let from = memory.and_then(|bytes| bytes.get(offset as usize..)?.get(..out.len()));
        from.inspect(|from| memory::load(out, from)).is_some()
    }

    fn post_receive(&mut self, offset: u32, len: u32) -> Result<(), Error> {
        if offset.checked_add(len).is_none_or(|end| end > self.memory) {
            return Err(Error::BadReceive);
        }
        let posted = self.nic.receive(Request::Receive, offset as usize, len);
        posted.map_err(|error| self.unposted(error))
    }

    fn can_send(&self) -> bool {
        self.failed.is_none() && !self.long && self.staging.used() < ROOM && self.staging.room(STAGING / 2).is_some()
    }

    fn post_send(&mut self, parts: &mut dyn Iterator<Item = &[u8]>, len: u32, remaining: u32) -> Result<(), Error> {
        let place = if len <= STAGING / 2 { self.staging.take(len) } else { None };
        let at = place.map_or(0, |at| self.memory as usize + at as usize);
        let bytes = match place {
            Some(_) => self.bytes(at, len).unwrap_or_default(),
            None => self.nic.long(len)?,
        };
        if !memory::gather(bytes, parts) {
            return Err(Error::Short);
        }
        self.long = place.is_none();
        let posted = match place {
            Some(_) => self.nic.send(Request::Piece, at, len, remaining),
            None => self.nic.send_long(remaining),
        };
        posted.map_err(|error| self.unposted(error))
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        if self.completions.is_empty() {
            self.pump()?;
        }
        if let Some(completion) = self.completions.pop_front() {
            self.idle = 0;
            return Ok(Some(completion));
        }
        if self.messages.is_empty() {
            self.failed.map_or(Ok(()), Err)?;
            self.watch()?;
        }
        Ok(None)
    }

    fn put(&mut self, message: &Message) -> Result<bool, Error> {
        if !self.window.may_send() {
            self.pump()?;
        }
        if self.failed.is_some() || !self.window.may_send() {
            return Ok(false);
        }
        let mut words = [0; HEAD + LIST];
        let len = message.encode(&mut words).ok_or(Error::BadMessage)?;
        let mut bytes = [0; LONGEST];
        for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&words[..len]) {
            *to = word.to_le_bytes();
        }
        self.send_message(4 * len, |slot| memory::store(slot, &bytes))?;
        Ok(true)
    }

    fn get(&mut self) -> Result<Option<Message>, Error> {
        if self.messages.is_empty() {
            self.pump()?;
        }
        let Some((slot, len)) = self.messages.pop_front() else {
            return Ok(None);
        };
        let mut bytes = [0; LONGEST];
        memory::load(&mut bytes, self.bytes(self.slot_in(slot), len).ok_or(Error::BadMessage)?);
        self.free_slot(slot)?;
        let mut words = [0; HEAD + LIST];
        for (to, word) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*word);
        }
        let words = words.get(..len as usize / 4).ok_or(Error::BadMessage)?;
        let message = Message::decode(words).filter(|(_, used)| 4 * used == len as usize);
        Ok(Some(message.ok_or(Error::BadMessage)?.0))
    }
}
