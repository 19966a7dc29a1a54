// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries bytes between a program's socket and a [`Channel`].
//!
//! The library has the other end of the program's socket, and so sees what the program does with it as TCP would have: its
//! bytes, its end of a direction (`shutdown`, `close`), and its reset (a close with bytes unread, or `SO_LINGER` of 0).
//! The program sees what the peer does in the same way.

use std::io;

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
    /// Bytes from the program.
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
            sent: 0,
            received: 0,
        }
    }

    /// Whether all that the program has sent, and its end, are acknowledged.
    pub fn is_sent(&self) -> bool {
        self.out == Out::Done && (self.channel.is_acknowledged() || self.channel.is_over())
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
