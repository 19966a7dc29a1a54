// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an endpoint needs of its medium: SEND and RECEIVE of data, and messages about credits beside them (CR-12).

use berth_protocol::credit::announcer::Heard;
use berth_protocol::credit::entry::{Entry, Name};
use berth_protocol::credit::taker::Arrived;

/// Receives that are posted and not filled, at most, for each direction of a connection.
pub const ROOM: usize = 256;
/// Credits of a list, at most.
pub const LIST: usize = 64;

/// A message about credits.
pub type Message = Entry<LIST>;

/// Why a connection ended. Nothing can be sent or received over it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The peer closed the connection, or its process ended.
    Gone,
    /// The peer sent a credit list that contradicts an earlier one, or that it must not send yet (CR-11).
    BadList(Arrived),
    /// The peer answered what nobody asked.
    BadAnswer(Heard),
    /// The peer sent something that is no message about credits.
    BadMessage,
    /// The medium is not in a state that a sound peer leaves it in.
    BadMedium,
    /// Data came, and no credit for it had been announced (CR-3).
    NoCredit,
    /// A piece of no bytes came.
    Empty,
    /// A piece is longer than the receive that it is for (CR-2).
    TooLong {
        /// Bytes of the piece.
        len: u32,
        /// Bytes of the receive.
        size: u32,
    },
    /// The peer announced a credit without a receive behind it; or a receive lies outside the memory of its end.
    BadReceive,
    /// A buffer of the caller's gave fewer bytes than when it was posted.
    Short,
    /// A NIC could not do what was posted to it.
    Failed(Failure),
    /// The operating system refused something.
    System(std::io::ErrorKind),
}

/// What a NIC could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer had no receive posted. With credits, no sound peer comes to that.
    ReceiverNotReady,
    /// The peer's NIC did not answer, though it was asked several times.
    NoAnswer,
    /// What came is longer than the receive that it is for (CR-2).
    TooLong,
    /// The peer's NIC refused what was sent.
    Refused,
    /// Something else: its number in `ibv_wc_status`.
    Other(u32),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => write!(f, "the peer is gone"),
            Self::BadList(why) => write!(f, "the peer sent a bad credit list: {why:?}"),
            Self::BadAnswer(why) => write!(f, "the peer sent a bad answer: {why:?}"),
            Self::BadMessage => write!(f, "the peer sent an unreadable message about credits"),
            Self::BadMedium => write!(f, "the peer broke the medium"),
            Self::NoCredit => write!(f, "the peer sent data without a credit"),
            Self::Empty => write!(f, "a piece of no bytes came"),
            Self::TooLong { len, size } => write!(f, "a piece of {len} bytes came for a receive of {size}"),
            Self::BadReceive => write!(f, "the peer announced a credit without a sound receive"),
            Self::Short => write!(f, "a buffer has become shorter since it was posted"),
            Self::Failed(Failure::ReceiverNotReady) => write!(f, "receiver not ready: the peer had no receive posted"),
            Self::Failed(Failure::NoAnswer) => write!(f, "the peer's NIC does not answer"),
            Self::Failed(Failure::TooLong) => write!(f, "a piece came that is longer than its receive"),
            Self::Failed(Failure::Refused) => write!(f, "the peer's NIC refused a piece"),
            Self::Failed(Failure::Other(status)) => write!(f, "the NIC failed: work completion status {status}"),
            Self::System(kind) => write!(f, "the system refused: {kind}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::System(error.kind())
    }
}

/// Something that was posted is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The oldest piece that was posted has left: its bytes are not needed any more.
    Sent,
    /// The oldest receive is filled.
    Received {
        /// Bytes, not compared with the receive.
        len: u32,
        /// Bytes that the sender still has to send (CR-9).
        remaining: u32,
    },
}

/// A medium with SEND and RECEIVE. It keeps order, and loses nothing without ending the connection, unless
/// [`Transport::loses`] says so. Nothing here blocks.
///
/// The transport owns the memory that is received into: receives name ranges of it.
pub trait Transport {
    /// Names of this end and of the peer, as messages about credits say them.
    fn names(&self) -> (Name, Name);

    /// Bytes of memory that receives may name.
    fn memory(&self) -> u32;

    /// Copies received bytes out, from byte `offset` on. False: not all of that lies in the memory, and `out` is as it was.
    fn read(&self, offset: u32, out: &mut [u8]) -> bool;

    /// Posts a receive of `len` bytes at byte `offset`, within [`Transport::memory`]. At most [`ROOM`] are posted and not
    /// filled.
    ///
    /// # Errors
    /// The connection has ended.
    fn post_receive(&mut self, offset: u32, len: u32) -> Result<(), Error>;

    /// Whether [`Transport::post_send`] may be called now.
    fn can_send(&self) -> bool;

    /// Sends a piece of `len` bytes for the peer's oldest receive; `parts` together have at least as many. `remaining`:
    /// bytes that will follow (CR-9).
    ///
    /// # Errors
    /// The connection has ended.
    fn post_send(&mut self, parts: &mut dyn Iterator<Item = &[u8]>, len: u32, remaining: u32) -> Result<(), Error>;

    /// The next completion.
    ///
    /// # Errors
    /// The connection has ended.
    fn poll(&mut self) -> Result<Option<Completion>, Error>;

    /// Sends a message about credits. False: no room now.
    ///
    /// # Errors
    /// The connection has ended.
    fn put(&mut self, message: &Message) -> Result<bool, Error>;

    /// The next message about credits from the peer.
    ///
    /// # Errors
    /// The connection has ended.
    fn get(&mut self) -> Result<Option<Message>, Error>;

    /// Credits that one message may hold, at least 1.
    fn part(&self) -> u32 {
        LIST as u32
    }

    /// Whether messages about credits may be lost, or come in another order. Pieces never do.
    fn loses(&self) -> bool {
        false
    }

    /// Whether [`Transport::poll`] has something to do soon though nothing comes.
    fn waits(&self) -> bool {
        false
    }
}
