// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card, and a queue pair of it as a [`Channel`].

use std::collections::VecDeque;
use std::mem::{forget, size_of_val};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use libberth::{
    Buffer, Completion, CompletionQueue, Context, Device, Error, Listener, Mode, QpConfig, QueuePair, Reason, Request,
    Result, SendMemory, Sge, Status, WorkRequest,
};

use crate::channel::{Channel, Message};
use crate::sys::INTERNAL;
use crate::wire::{END, Hello, LEFT};

/// Bytes of a receive, and of the longest message.
const BYTES: usize = 4096;
/// Receives that a connection begins with. One that gets more bytes than they hold gets more.
const FIRST_RECEIVES: usize = 1;
/// Receives that a connection may have.
const RECEIVES: usize = 16;
/// Messages with bytes that may be under way to the peer.
const SENDS: usize = 16;
/// In the number of an element: it is a message of the program's memory. What is below are its bytes.
const PLACED: u64 = 1 << 32;
/// Completions that may wait, of all connections of a process together: of each receive, each message and each end.
const COMPLETIONS: u32 = 4096;

/// The card, as this process uses it.
pub struct Card {
    context: Context,
    completions: CompletionQueue,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Card {
    /// Whether the host has one, be it usable or not.
    pub fn is_there() -> bool {
        !Device::list().is_empty()
    }

    /// Opens the first card that the process may use and that has an address.
    ///
    /// # Errors
    /// There is none, or it has no room for another process.
    pub fn open() -> Result<Self> {
        let device = Device::open_first()?;
        let net = device.info()?.net.ok_or(Error::NoDevice)?;
        let context = Context::new(&device)?;
        let completions = context.create_cq(COMPLETIONS)?;
        let card = Self { context, completions, address: net.ipv4 };
        card.descriptors().into_iter().for_each(|fd| {
            INTERNAL.insert(fd);
        });
        Ok(card)
    }

    fn descriptors(&self) -> [RawFd; 3] {
        [self.context.as_fd(), self.context.event_fd(), self.completions.event_fd()].map(|fd| fd.as_raw_fd())
    }

    /// Whether the card was reset or has gone.
    pub fn is_lost(&self) -> bool {
        matches!(self.context.pinned(), Err(Error::DeviceLost))
    }

    /// Readable when connections may have come, begun or ended.
    pub fn events(&self) -> RawFd {
        self.context.event_fd().as_raw_fd()
    }

    /// Readable when messages may have come or gone, after [`arm`](Self::arm).
    pub fn messages(&self) -> RawFd {
        self.completions.event_fd().as_raw_fd()
    }

    /// Has the next completion tell.
    ///
    /// # Errors
    /// In another process.
    pub fn arm(&self) -> Result<()> {
        self.completions.arm()
    }

    /// Takes completions.
    ///
    /// # Errors
    /// The card's completions cannot be trusted.
    pub fn completed(&self) -> Result<Vec<Completion>> {
        let mut all = Vec::new();
        self.completions.poll_into(COMPLETIONS as usize, &mut all)?;
        Ok(all)
    }

    /// Listens to a port.
    ///
    /// # Errors
    /// Another process does, or the card's limit is reached.
    pub fn listen(&self, port: u16) -> Result<Listener> {
        self.context.listen(port)
    }

    /// A queue pair, with its first receives.
    ///
    /// # Errors
    /// The card or the process has no more.
    pub fn link(&self) -> Result<Link> {
        let config = QpConfig {
            mode: Mode::Message,
            send_depth: SENDS as u32 + 2,
            recv_depth: RECEIVES as u32,
            reads: 0,
            peer_reads: 0,
            // It is used again and again.
            memory: SendMemory::PIN,
            ..QpConfig::default()
        };
        let memory = Buffer::new(BYTES * (RECEIVES + SENDS))?;
        // SAFETY: the range is the buffer's. A child does not use it, and need not have copies of what the card fills.
        unsafe { libc::madvise(memory.as_ptr().cast_mut().cast(), size_of_val::<[u8]>(&memory), libc::MADV_DONTFORK) };
        let queue_pair = self.context.create_qp(&self.completions, &self.completions, &config)?;
        let mut link = Link {
            queue_pair: Some(queue_pair),
            memory: Some(memory),
            received: VecDeque::new(),
            unposted: (FIRST_RECEIVES..RECEIVES).rev().collect(),
            returned: (0..FIRST_RECEIVES).collect(),
            posted: 0,
            free: (0..SENDS).rev().collect(),
            under_way: 0,
            longest: BYTES,
            placed: 0,
            over: false,
        };
        link.post_receives();
        Ok(link)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // They are closed behind this.
        self.descriptors().into_iter().for_each(|fd| {
            INTERNAL.remove(fd);
        });
    }
}

/// A connection to another card, or one that is being made.
pub struct Link {
    /// `None` when it is over and the card has been told.
    queue_pair: Option<QueuePair>,
    /// First all receives, then all messages to be sent. `None` only in `drop`.
    memory: Option<Buffer>,
    /// Receives that are filled, oldest first: which, bytes, immediate.
    received: VecDeque<(usize, usize, Option<u32>)>,
    /// Receives that the connection has not needed yet.
    unposted: Vec<usize>,
    /// Receives to be posted again.
    returned: Vec<usize>,
    /// Receives with the card.
    posted: usize,
    /// Places for messages to be sent; the one used last is used next, so that an idle connection uses little memory.
    free: Vec<usize>,
    /// Messages that are not acknowledged.
    under_way: usize,
    /// Bytes of the longest message that the peer takes.
    longest: usize,
    /// Bytes of the program's memory that the peer has.
    placed: u64,
    over: bool,
}

/// What has become of a connection that is being made.
pub enum Made {
    /// Not yet anything.
    Pending,
    /// It is there; the peer's hello, if it has sent one.
    Yes(Option<Hello>),
    /// It will not come.
    No(Reason),
}

impl Link {
    /// QPN.
    pub fn number(&self) -> u32 {
        self.queue_pair.as_ref().map_or(0, QueuePair::qpn)
    }

    fn hello(port: u16) -> Hello {
        Hello { port, bytes: BYTES as u16 }
    }

    /// Asks a listener for the connection. `port`: this end's.
    ///
    /// # Errors
    /// The card does not take it.
    pub fn ask(&self, peer: Ipv4Addr, service: u16, port: u16) -> Result<()> {
        let queue_pair = self.queue_pair.as_ref().ok_or(Error::DeviceLost)?;
        queue_pair.start_connect(peer, service, &Self::hello(port).encode())
    }

    /// Accepts a request of this hello.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn accept(&mut self, request: Request, hello: Hello) -> Result<()> {
        let queue_pair = self.queue_pair.as_ref().ok_or(Error::DeviceLost)?;
        self.longest = BYTES.min(hello.bytes.into());
        request.accept(queue_pair, &Self::hello(hello.port).encode())
    }

    /// What has become of it.
    pub fn made(&mut self) -> Made {
        let Some(queue_pair) = &self.queue_pair else { return Made::No(Reason::LocalClose) };
        match queue_pair.wait_established(Some(Duration::ZERO)) {
            Ok(data) => {
                let hello = Hello::decode(&data);
                if let Some(hello) = hello {
                    self.longest = BYTES.min(hello.bytes.into());
                }
                Made::Yes(hello)
            }
            Err(Error::Closed { reason, .. }) => Made::No(reason),
            Err(Error::Timeout(_)) => Made::Pending,
            Err(_) => Made::No(Reason::LocalClose),
        }
    }

    /// Whether its connection has ended.
    pub fn has_ended(&self) -> bool {
        let Some(queue_pair) = &self.queue_pair else { return true };
        !matches!(queue_pair.wait_closed(Some(Duration::ZERO)), Err(Error::Timeout(_)))
    }

    /// Takes in a completion of its queue pair.
    pub fn completed(&mut self, completion: &Completion) {
        let place = completion.wr_id as usize;
        if completion.recv {
            self.posted = self.posted.saturating_sub(1);
            if completion.status == Status::Ok {
                self.received.push_back((place, completion.byte_len as usize, completion.immediate));
            }
        } else {
            self.under_way = self.under_way.saturating_sub(1);
            if completion.wr_id & PLACED != 0 {
                self.placed += if completion.status == Status::Ok { completion.wr_id - PLACED } else { 0 };
            } else if place < SENDS {
                self.free.push(place);
            }
        }
    }

    /// Nothing comes or goes any more; what has come may still be taken. To be called when all completions were taken in.
    pub fn finish(&mut self) {
        self.over = true;
        self.release();
    }

    /// Gives the queue pair back to the card, which then uses none of the memory.
    fn release(&mut self) {
        let Some(queue_pair) = self.queue_pair.take() else { return };
        if !queue_pair.end() {
            // The card may still use it.
            forget(self.memory.take());
        }
    }

    /// Where in the memory a place begins.
    fn start(&self, place: usize) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.as_ptr() as u64 + (place * BYTES) as u64)
    }

    /// Posts the receives that were returned.
    fn post_receives(&mut self) {
        let ranges: Vec<_> =
            self.returned.iter().map(|n| [Sge { va: self.start(*n), len: BYTES as u32, reserved: 0 }]).collect();
        let requests: Vec<_> = (self.returned.iter().zip(&ranges))
            .map(|(n, sges)| WorkRequest { wr_id: *n as u64, sges, ..WorkRequest::default() })
            .collect();
        let Some(queue_pair) = &mut self.queue_pair else { return };
        // SAFETY: these places are free, nothing reads them before their completion, and the memory lasts until the queue
        // pair has gone (`release`).
        match unsafe { queue_pair.post_recv(&requests) } {
            Ok(()) => {
                self.posted += self.returned.len();
                self.returned.clear();
            }
            Err(_) => self.finish(),
        }
    }

    /// Posts a message of a place.
    fn post(&mut self, place: usize, len: usize, immediate: Option<u32>) {
        let va = self.start(RECEIVES + place.min(SENDS - 1));
        // SAFETY: the place is free again with its completion only, and the memory lasts until the queue pair has gone
        // (`release`).
        unsafe { self.post_memory(place as u64, va, len, immediate) };
    }

    /// Posts a message.
    ///
    /// # Safety
    /// As of [`QueuePair::post_send`].
    unsafe fn post_memory(&mut self, wr_id: u64, va: u64, len: usize, immediate: Option<u32>) {
        let sges = [Sge { va, len: len as u32, reserved: 0 }];
        let Some(queue_pair) = &mut self.queue_pair else { return };
        let inline = len <= queue_pair.max_inline_data();
        let request = WorkRequest { wr_id, sges: &sges, inline, immediate, ..WorkRequest::default() };
        // SAFETY: as our caller's.
        match unsafe { queue_pair.post_send(&[request]) } {
            Ok(()) => self.under_way += 1,
            Err(_) => self.finish(),
        }
    }
}

impl Channel for Link {
    fn room(&mut self) -> Option<&mut [u8]> {
        if self.over || self.under_way >= SENDS {
            return None;
        }
        let at = (RECEIVES + self.free.last()?) * BYTES;
        self.memory.as_mut()?.get_mut(at..at + self.longest)
    }

    fn send(&mut self, len: usize) {
        if let Some(place) = self.free.pop() {
            self.post(place, len, None);
        }
    }

    unsafe fn send_from(&mut self, address: usize, len: usize) -> usize {
        // Each takes an element of those for messages with bytes.
        if self.over || self.under_way >= SENDS || len == 0 {
            return 0;
        }
        let len = len.min(self.longest);
        // SAFETY: as our caller's; the channel is dropped when the queue pair has gone.
        unsafe { self.post_memory(PLACED + len as u64, address as u64, len, None) };
        len
    }

    fn placed(&self) -> u64 {
        self.placed
    }

    fn send_end(&mut self) -> bool {
        if !self.over {
            // It has an element, but no memory of its own.
            self.post(SENDS, 0, Some(END));
        }
        true
    }

    fn send_left(&mut self) {
        if !self.over {
            self.post(SENDS, 0, Some(LEFT));
        }
    }

    fn is_acknowledged(&self) -> bool {
        self.under_way == 0
    }

    fn front(&self) -> Option<Message<'_>> {
        let (place, len, immediate) = *self.received.front()?;
        let at = place * BYTES;
        match immediate {
            Some(END) => Some(Message::End),
            Some(LEFT) => Some(Message::Left),
            _ => self.memory.as_ref()?.get(at..at + len.min(BYTES)).map(Message::Data),
        }
    }

    fn drop_front(&mut self) {
        let Some((place, ..)) = self.received.pop_front() else { return };
        self.returned.push(place);
        self.returned.extend(self.unposted.pop());
        // Several with one doorbell, while the card has others.
        if self.returned.len() > self.posted && !self.over {
            self.post_receives();
        }
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.release();
    }
}
