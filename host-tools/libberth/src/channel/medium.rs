// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a channel needs of a card.

use std::fmt::Debug;

use berth_queue::Remote;

use super::error::{ChannelError, Refused};
use super::words::Words;
use crate::mapping::Buffer;

/// What an element of the send queue was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// Data from a set of own buffers: the number of the set.
    Staged(u32),
    /// An answer or a tally.
    Control,
    /// A request or an offer.
    Frame,
    /// A READ.
    Read,
}

/// What has happened.
#[derive(Debug)]
pub(super) enum Event {
    /// An element is done that filled no buffer.
    Sent(Tag),
    /// A READ has filled this one.
    Read(Buffer),
    /// A WRITE of so many bytes of the peer has come, all of it, with this immediate. `None`: it was something else, that the
    /// peer of a channel does not send.
    Arrived {
        /// The immediate.
        code: Option<u32>,
        /// Bytes.
        len: u32,
    },
}

/// One end of a connection, and memory with keys. Nothing waits. WRITEs with an immediate arrive in the order in which
/// they were posted, others at any time until they are done.
pub(super) trait Medium {
    /// Memory that the peer may write.
    type Open: Debug;
    /// A buffer that the peer may read.
    type Offered: Debug;

    /// Memory to send from; `None` if it cannot be had. The card finds it by its address, and needs no key.
    fn own(&mut self, bytes: usize) -> Option<Words>;

    /// Memory that the peer may write; likewise.
    fn open(&mut self, bytes: usize) -> Option<Self::Open>;

    /// It.
    fn words(open: &Self::Open) -> &Words;

    /// What the peer calls it.
    fn remote(open: &Self::Open) -> Remote;

    /// Lets the peer read a buffer, which comes back if that cannot be.
    fn offer(&mut self, buffer: Buffer) -> Result<Self::Offered, Buffer>;

    /// What the peer calls it.
    fn offered(offered: &Self::Offered) -> Remote;

    /// Ends that; `None` if the card may still read it.
    fn take_back(offered: Self::Offered) -> Option<Buffer>;

    /// Elements that may be posted now.
    fn room(&self) -> usize;

    /// WRITEs `len` bytes of `from`, from byte `at` on, which are kept as they are until it is done.
    fn write(
        &mut self,
        from: &Words,
        at: usize,
        len: usize,
        to: Remote,
        code: u32,
        tag: Tag,
    ) -> Result<(), ChannelError>;

    /// WRITEs a few bytes, which are copied at once.
    fn write_now(&mut self, bytes: &[u8], to: Remote, code: Option<u32>, tag: Tag) -> Result<(), ChannelError>;

    /// READs `len` bytes, which `into` has.
    fn read(&mut self, into: Buffer, len: u32, from: Remote) -> Result<(), Refused>;

    /// The next thing that has happened.
    fn poll(&mut self) -> Result<Option<Event>, ChannelError>;
}
