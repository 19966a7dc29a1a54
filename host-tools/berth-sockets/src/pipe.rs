// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries bytes between a program's socket and a [`Channel`].
//!
//! The library has the other end of the program's socket, and so sees what the program does with it as TCP would have: its
//! bytes, its end of a direction (`shutdown`, `close`), and its reset (a close with bytes unread, or `SO_LINGER` of 0).
//! The program sees what the peer does in the same way.

use std::io;
use std::os::fd::AsRawFd;

use crate::channel::{Channel, Message};
use crate::sys::{self, Fd};

/// From the program to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    /// Bytes may come.
    Open,
    /// The program has ended it; the peer is not told yet.
    Ending,
    /// The peer is told, and has not acknowledged.
    Ended,
    /// All is acknowledged.
    Done,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both directions were ended, in order.
    Closed,
    /// The program has reset it, or has closed its socket with bytes unread.
    Reset,
    /// The peer has reset it, or has gone.
    Lost,
}

/// Bytes of the program's memory that are sent without a copy.
#[derive(Debug)]
struct Direct {
    address: usize,
    len: usize,
    /// Bytes that were given to the channel.
    given: usize,
    /// What the channel had placed before.
    before: u64,
}

/// A connection that is carried.
#[derive(Debug)]
pub struct Pipe<C> {
    /// The other end of the program's socket.
    socket: Fd,
    /// What leads to the peer.
    pub channel: C,
    out: Out,
    /// The peer has ended its direction, and the program is told.
    told: bool,
    /// The peer's process has ended in order.
    left: bool,
    /// Bytes of the oldest message that the program's socket has taken.
    taken: usize,
    /// The peer is told that this process ends.
    leaves: bool,
    direct: Option<Direct>,
    /// Bytes from the program that were copied.
    pub sent: u64,
    /// Bytes to the program.
    pub received: u64,
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl<C: Channel> Pipe<C> {
    /// Begins to carry. The socket must not block.
    pub fn new(socket: Fd, channel: C) -> Self {
        // What a message brought is the program's at once.
        let _ = sys::set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        Self {
            socket,
            channel,
            out: Out::Open,
            told: false,
            left: false,
            taken: 0,
            leaves: false,
            direct: None,
            sent: 0,
            received: 0,
        }
    }

    /// The descriptor of the library's end.
    #[cfg(test)]
    pub fn socket_number(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Whether all that the program has sent, and its end, are acknowledged.
    pub fn is_sent(&self) -> bool {
        self.out == Out::Done && (self.channel.is_acknowledged() || self.channel.is_over())
    }

    /// Begins to send bytes of the program's memory, behind all that its socket has taken; false if that cannot be now.
    ///
    /// # Safety
    /// The memory must stay what it is until [`taken_from`](Self::taken_from) has answered, or this has been dropped.
    pub unsafe fn send_from(&mut self, address: usize, len: usize) -> bool {
        let may = self.out == Out::Open
            && self.direct.is_none()
            && !self.channel.is_over()
            && sys::waiting(self.socket.as_raw_fd()) == Some(0);
        if may {
            self.direct = Some(Direct { address, len, given: 0, before: self.channel.placed() });
        }
        may
    }

    /// Bytes of the program's memory that the peer's card has; `None` while others are under way, or if there are none such.
    pub fn taken_from(&mut self) -> Option<usize> {
        let direct = self.direct.as_ref()?;
        let placed = (self.channel.placed() - direct.before) as usize;
        (placed == direct.len || self.channel.is_over()).then_some(placed)
    }

    /// The program knows of it.
    pub fn told_taken(&mut self) {
        self.direct = None;
    }

    /// The process ends, and all is sent: tells the peer, once.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.leaves, true) {
            self.channel.send_left();
        }
    }

    /// Carries what there is. To be called when socket or channel have changed; the end, if it has come. `failed`: the
    /// socket has an error.
    pub fn run(&mut self, failed: bool) -> Option<End> {
        let end = if failed { Some(End::Reset) } else { self.inward().or_else(|| self.outward()) };
        match end {
            Some(End::Lost) => sys::break_at_close(&self.socket),
            None if self.told && self.out == Out::Done => return Some(End::Closed),
            _ => {}
        }
        end
    }

    /// To the program.
    fn inward(&mut self) -> Option<End> {
        while !self.told {
            match self.channel.front() {
                Some(Message::Data(bytes)) => match sys::send(&self.socket, &bytes[self.taken..]) {
                    Ok(n) => {
                        self.taken += n;
                        self.received += n as u64;
                        if self.taken == bytes.len() {
                            self.taken = 0;
                            self.channel.drop_front();
                        }
                    }
                    Err(error) if would_block(&error) => return None,
                    Err(_) => return Some(End::Reset),
                },
                // It comes behind the end.
                Some(Message::Left) => self.channel.drop_front(),
                Some(Message::End) => {
                    self.channel.drop_front();
                    sys::end(&self.socket);
                    self.told = true;
                }
                None if self.channel.is_over() => return Some(End::Lost),
                None => return None,
            }
        }
        while let Some(message) = self.channel.front() {
            self.left |= message == Message::Left;
            self.channel.drop_front();
        }
        None
    }

    /// From the program.
    fn outward(&mut self) -> Option<End> {
        while self.out == Out::Open {
            let over = self.channel.is_over();
            if over && !self.left {
                // The peer has reset it, or has not ended in order.
                return Some(End::Lost);
            }
            if let Some(direct) = &mut self.direct {
                while direct.given < direct.len {
                    // SAFETY: as the caller of `send_from` says.
                    let n = unsafe { self.channel.send_from(direct.address + direct.given, direct.len - direct.given) };
                    if n == 0 {
                        break;
                    }
                    direct.given += n;
                }
                // What the socket has comes behind it.
                return None;
            }
            let mut nowhere = [0];
            let into = match self.channel.room() {
                Some(room) => room,
                None if over => &mut nowhere,
                None => return None,
            };
            match sys::receive(&self.socket, into) {
                Ok(0) => {
                    self.out = Out::Ending;
                    self.watch();
                }
                // The peer has left, and the program still sends.
                Ok(_) if over => return Some(End::Lost),
                Ok(n) => {
                    self.sent += n as u64;
                    self.channel.send(n);
                }
                Err(error) if would_block(&error) => return None,
                Err(_) => return Some(End::Reset),
            }
        }
        if self.out == Out::Ending && self.channel.send_end() {
            self.out = Out::Ended;
        }
        if self.channel.is_over() || (self.out == Out::Ended && self.channel.is_acknowledged()) {
            self.out = Out::Done;
        }
        None
    }

    /// A program may have closed its socket, not only ended a direction. The kernel forgets such a socket after a while;
    /// this finds out, if the peer never ends its direction.
    fn watch(&self) {
        for (level, name, value) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 60),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
        ] {
            let _ = sys::set_option(&self.socket, level, name, value);
        }
    }
}
