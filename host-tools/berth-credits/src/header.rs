// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists as TCP options (CR-12e): which list goes by an option, and which inside the stream.
//!
//! The options are those of `berth_protocol::credit::carrier`. What puts them into headers is a [`Header`].
//!
//! The way is decided once for each direction, when the connection begins. An end whose peer has a [`Header`], too, lets each
//! segment carry a probe: the option of a "sync" message about no credits. The peer says inside the stream that it has seen
//! one, and from then on lists go by options. Until then they wait; when that takes too long, they go inside the stream for
//! good.
//!
//! An option may be lost. A list that the announcer repeats goes inside the stream, so that nothing depends on options alone.

use crate::transport::{Error, LIST, Message};
use berth_protocol::credit::carrier::{Carry, Fetch, TcpOptions};
use berth_protocol::credit::entry::{Body, Name};
use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

/// Most bytes of options that a segment has.
pub const OPTIONS: usize = berth_protocol::credit::carrier::TCP_OPTIONS;
/// Bytes that timestamps take of them.
const TIMESTAMPS: usize = 12;
/// Bytes that a list's option has at most.
pub const ROOM: usize = OPTIONS - TIMESTAMPS;

/// How often an option goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// With the next segment that has room.
    Once,
    /// With each segment.
    Always,
}

/// Room for one option in the headers of a connection's segments.
pub trait Header: Debug + Send {
    /// Segments get this option, of at most [`ROOM`] bytes, in place of an earlier one.
    ///
    /// # Errors
    /// As the system says.
    fn set(&mut self, option: &[u8], often: Often) -> io::Result<()>;

    /// No segment gets an option any more.
    ///
    /// # Errors
    /// As the system says.
    fn close(&mut self) -> io::Result<()>;

    /// Whether a segment has got the option that was set to go [`Often::Once`].
    ///
    /// # Errors
    /// As the system says.
    fn gone(&self) -> io::Result<bool>;

    /// The next option that a segment has brought: `out` begins with it. It may be anything.
    fn next(&mut self, out: &mut [u8; OPTIONS]) -> Option<usize>;
}

/// After which time lists go inside the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// When the peer has not said that it has seen a probe: all.
    pub settle: Duration,
    /// When no segment has taken a list: that one.
    pub late: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { settle: Duration::from_millis(500), late: Duration::from_millis(5) }
    }
}

/// How many messages went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// By an option.
    pub by_option: u64,
    /// Inside the stream.
    pub in_stream: u64,
}

/// Which way lists go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The peer has not said whether it has a header.
    Unknown,
    /// A probe may be seen until this time, or for ever.
    Probing(Option<Instant>),
    Options,
    Stream,
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It goes by an option.
    Taken,
    /// It has to wait.
    Wait,
    /// It goes inside the stream.
    Stream,
}

/// The options of one end.
#[derive(Debug)]
pub(crate) struct ByOption {
    header: Box<dyn Header>,
    codec: TcpOptions<LIST>,
    limits: Limits,
    way: Way,
    /// What no segment has taken yet, and since when.
    pending: Option<(Message, Instant)>,
    /// Number behind the last credit that went by an option.
    behind: u32,
    /// A probe has come.
    probed: bool,
    /// The peer knows that.
    told: bool,
}

impl ByOption {
    /// Options of a connection that begins now, to the end with this name. `None`: there is no room for any.
    pub fn new(header: Box<dyn Header>, limits: Limits, own: Name) -> Option<Self> {
        let codec = TcpOptions::new(own, TIMESTAMPS)?;
        Some(Self { header, codec, limits, way: Way::Unknown, pending: None, behind: 0, probed: false, told: false })
    }

    /// Credits that an option holds.
    pub fn part(&self) -> u32 {
        self.codec.part()
    }

    fn set(&mut self, message: &Message, often: Often) -> Result<bool, Error> {
        let mut bytes = [0; OPTIONS];
        if !self.codec.put(message) {
            return Ok(false);
        }
        let Some(unit) = self.codec.unit(&mut bytes) else {
            return Ok(false);
        };
        // The system pads options by itself.
        let len = unit.len.min(bytes[1].into());
        self.header.set(&bytes[..len], often)?;
        Ok(true)
    }

    /// The peer has a header, too. True: a segment is to go, with a probe.
    pub fn probe(&mut self) -> Result<bool, Error> {
        self.way = Way::Probing(Instant::now().checked_add(self.limits.settle));
        let body = Body::Sync { round: 0, next: 0 };
        self.set(&Message { to: Name::default(), body }, Often::Always)
    }

    /// The peer has no header.
    pub fn refused(&mut self) -> Result<(), Error> {
        self.way = Way::Stream;
        Ok(self.header.close()?)
    }

    /// The peer has seen a probe.
    pub fn seen(&mut self) -> Result<(), Error> {
        if let Way::Probing(_) = self.way {
            self.way = Way::Options;
            self.header.set(&[], Often::Once)?;
        }
        Ok(())
    }

    /// When no probe was seen in time, segments carry none any more.
    pub fn settle(&mut self) -> Result<(), Error> {
        match self.way {
            Way::Probing(Some(until)) if Instant::now() >= until => self.refused(),
            _ => Ok(()),
        }
    }

    /// Whether a message goes by an option, with the next segment.
    pub fn offer(&mut self, message: &Message) -> Result<Answer, Error> {
        self.settle()?;
        match self.way {
            Way::Unknown | Way::Probing(_) => return Ok(Answer::Wait),
            Way::Stream => return Ok(Answer::Stream),
            Way::Options => (),
        }
        if self.pending()? {
            return Ok(Answer::Wait);
        }
        let Body::List(part) = &message.body else {
            return Ok(Answer::Stream);
        };
        let behind = part.list.wrapping_add(u32::from(part.offset) + u32::from(part.len));
        // It is repeated: options may be lost for ever now.
        if behind.wrapping_sub(self.behind).cast_signed() <= 0 {
            return Ok(Answer::Stream);
        }
        if !self.set(message, Often::Once)? {
            return Ok(Answer::Stream);
        }
        self.behind = behind;
        self.pending = Some((*message, Instant::now()));
        Ok(Answer::Taken)
    }

    /// Whether no segment has taken what was last taken by [`ByOption::offer`].
    pub fn pending(&mut self) -> Result<bool, Error> {
        if self.pending.is_some() && self.header.gone()? {
            self.pending = None;
        }
        Ok(self.pending.is_some())
    }

    /// Whether something waits for a time.
    pub fn waits(&self) -> bool {
        self.pending.is_some()
    }

    /// A message that no segment has taken in time: it goes inside the stream.
    pub fn late(&mut self) -> Result<Option<Message>, Error> {
        if !self.pending()? {
            return Ok(None);
        }
        let late = self.pending.take_if(|(_, since)| since.elapsed() >= self.limits.late);
        if late.is_some() {
            self.header.set(&[], Often::Once)?;
        }
        Ok(late.map(|(message, _)| message))
    }

    /// The next message that an option has brought. Options that cannot be read are passed over.
    pub fn next(&mut self) -> Option<Message> {
        let mut bytes = [0; OPTIONS];
        while let Some(len) = self.header.next(&mut bytes) {
            let option = bytes.get(..len).unwrap_or_default();
            if !Fetch::deliver(&mut self.codec, 0, option) {
                continue;
            }
            match self.codec.get() {
                Some(Message { body: Body::Sync { .. }, .. }) => self.probed = true,
                None => (),
                message => return message,
            }
        }
        None
    }

    /// Whether the peer is to be told that a probe has come, which is so once.
    pub fn tell(&mut self) -> bool {
        let tell = self.probed && !self.told;
        self.told |= tell;
        tell
    }
}
