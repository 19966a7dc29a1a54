// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why something on a channel failed.

use berth_protocol::service::grow::GrowError;

use crate::cq::Status;
use crate::error::Error;
use crate::mapping::Buffer;

/// Why a call on a [`Channel`](super::Channel) failed. Each says what is left of the channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// There is no memory here, or no key, for larger buffers or for an element that is offered (BE-3). The buffers are as
    /// they were; try again, or send smaller elements.
    #[error("there is no memory or no key here for so large an element")]
    NoMemory,
    /// The peer has none for larger buffers (BE-3). Likewise.
    #[error("the peer has no memory or no key for so large an element")]
    PeerRefused,
    /// The element is larger than the largest buffer, and not offered because [`ChannelConfig::rendezvous`] is larger still; or
    /// it has more than 1 GiB. Likewise.
    ///
    /// [`ChannelConfig::rendezvous`]: super::ChannelConfig::rendezvous
    #[error("the element is larger than any that the channel takes")]
    TooLarge,
    /// The peer's answer does not fit the request (BE-4). Likewise.
    #[error("the peer's answer about larger buffers does not fit the request")]
    BadAnswer,
    /// The element is longer than the memory that it is to be copied to. It waits.
    #[error("the element has {len} bytes, and there is room for fewer")]
    TooSmall {
        /// Its bytes.
        len: usize,
    },
    /// The element is offered by the peer: [`Channel::fetch`](super::Channel::fetch) takes it. It waits.
    #[error("the element of {len} bytes is to be fetched")]
    IsOffered {
        /// Its bytes.
        len: usize,
    },
    /// The peer has written what no channel writes. What came before it can be received, and sending goes on; nothing else
    /// is received.
    #[error("the peer has written what no channel writes: {0}")]
    BadFrame(&'static str),
    /// The peer gives back more than it has. Receiving goes on; nothing else is sent.
    #[error("the peer gives back more buffers than it has")]
    BadTally,
    /// The peer is no channel of this version, or has other sizes. Nothing is sent or received.
    #[error("the peer is no channel, or one with other sizes")]
    BadPeer,
    /// An element of the queue pair failed: the connection is over, or about to be. What has arrived can be received.
    #[error("the connection has failed: {0}")]
    Lost(Status),
    /// The library or the card, as the error says.
    #[error(transparent)]
    Library(#[from] Error),
}

/// A buffer that was not taken, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: ChannelError,
    /// The buffer; `None` when the connection has failed, and the channel keeps it.
    pub buffer: Option<Buffer>,
}

impl Refused {
    pub(super) fn with(error: ChannelError, buffer: Buffer) -> Self {
        Self { error, buffer: Some(buffer) }
    }
}

impl From<GrowError> for ChannelError {
    fn from(error: GrowError) -> Self {
        match error {
            GrowError::TooLarge => Self::TooLarge,
            GrowError::PeerRefused => Self::PeerRefused,
            GrowError::NoMemory => Self::NoMemory,
            GrowError::BadAnswer => Self::BadAnswer,
        }
    }
}
