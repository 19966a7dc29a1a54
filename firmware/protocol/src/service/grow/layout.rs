// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the two ends of a direction write to each other beside the [`Answer`](super::Answer). All numbers are 32 bits wide
//! and big-endian; addresses are two of them.

use crate::base::bound::at_most;
use crate::base::crc::Crc;

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 32;
/// Bytes of a [`Request`].
pub const REQUEST_BYTES: usize = 8;
/// Bytes of an [`Offer`].
pub const OFFER_BYTES: usize = 16;
/// Bytes of a [`Tally`] in memory.
pub const TALLY_BYTES: usize = 16;

/// Where the answer stands in the memory that an end gives its peer to write to, the *control memory*.
pub const ANSWER_AT: usize = 0;
/// Where the tally stands in it.
pub const TALLY_AT: usize = 40;
/// Bytes of the control memory, a multiple of 8.
pub const CONTROL_BYTES: usize = TALLY_AT + TALLY_BYTES;

/// "BE" and the version of these layouts.
const MAGIC: u32 = 0x4245_0001;

/// CRC-32.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.finish()
}

/// The words, one behind the other.
pub(super) fn join<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    let bytes = words.into_iter().flat_map(u32::to_be_bytes);
    for (place, byte) in at_most(BYTES, out.iter_mut().zip(bytes)) {
        *place = byte;
    }
    out
}

/// Word `i` of `bytes`.
fn word(bytes: &[u8], i: usize) -> Option<u32> {
    Some(bytes.get(4 * i..4 * i + 4)?.iter().fold(0, |word, byte| word << 8 | *byte as u32))
}

/// The address in words `i` and `i + 1`.
fn address(bytes: &[u8], i: usize) -> Option<u64> {
    Some((word(bytes, i)? as u64) << 32 | word(bytes, i + 1)? as u64)
}

/// Where memory of the teller begins, and its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Remote address.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// What each end tells the other when they connect. In memory: magic number, place of the control memory (address, key), place
/// of the first set, [`Config::digest`](super::Config::digest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Where the peer writes answers and tallies.
    pub control: Place,
    /// The teller's buffers of the first level.
    pub set: Place,
    /// Digest of the teller's configuration.
    pub digest: u32,
}

impl Hello {
    /// As it is told.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let Self { control, set, digest } = *self;
        let [c, s] = [control, set].map(|place| [(place.addr >> 32) as u32, place.addr as u32, place.rkey]);
        join([MAGIC, c[0], c[1], c[2], s[0], s[1], s[2], digest])
    }

    /// What was told; `None` if it is no hello of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != HELLO_BYTES || word(bytes, 0)? != MAGIC {
            return None;
        }
        let control = Place { addr: address(bytes, 1)?, rkey: word(bytes, 3)? };
        let set = Place { addr: address(bytes, 4)?, rkey: word(bytes, 6)? };
        Some(Self { control, set, digest: word(bytes, 7)? })
    }
}

/// The control message that asks for larger buffers (BE-2). In a buffer: phase, bytes of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Number of the phase.
    pub phase: u32,
    /// Bytes of the buffers that are wanted.
    pub size: u32,
}

impl Request {
    /// As it stands in a buffer.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        join([self.phase, self.size])
    }

    /// `None` if it has another length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.len() == REQUEST_BYTES;
        Some(Self { phase: word(bytes, 0).filter(|_| whole)?, size: word(bytes, 1)? })
    }
}

/// An element that the receiver READs from the sender's memory (rendezvous, BE-9). In a buffer: address, key, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Where it is.
    pub place: Place,
    /// Bytes of the element.
    pub len: u32,
}

impl Offer {
    /// As it stands in a buffer.
    pub fn encode(&self) -> [u8; OFFER_BYTES] {
        join([(self.place.addr >> 32) as u32, self.place.addr as u32, self.place.rkey, self.len])
    }

    /// `None` if it has another length, or the element would wrap around the end of memory.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != OFFER_BYTES {
            return None;
        }
        let place = Place { addr: address(bytes, 0)?, rkey: word(bytes, 2)? };
        let len = word(bytes, 3)?;
        place.addr.checked_add(len as u64)?;
        Some(Self { place, len })
    }
}

/// What a buffer has, as the immediate says that comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// An element.
    Element {
        /// It is the last one of its vector.
        last: bool,
    },
    /// An [`Offer`] of an element.
    Offer {
        /// It is the last one of its vector.
        last: bool,
    },
    /// A [`Request`].
    Request,
}

impl Frame {
    /// The immediate.
    pub const fn code(self) -> u32 {
        match self {
            Self::Element { last } => last as u32,
            Self::Offer { last } => 2 | last as u32,
            Self::Request => 4,
        }
    }

    /// What an immediate says, if it is one of these.
    pub const fn of(code: u32) -> Option<Self> {
        Some(match code {
            0 | 1 => Self::Element { last: code & 1 != 0 },
            2 | 3 => Self::Offer { last: code & 1 != 0 },
            4 => Self::Request,
            _ => return None,
        })
    }
}

/// What the receiver has given back, written into the sender's memory. The counts go on and wrap, so that one which
/// the sender did not see is in the next. In memory: set, freed, consumed, CRC-32 of all that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Phase that made the present set; 0 is the first set.
    pub set: u32,
    /// Buffers of that set that became free again.
    pub freed: u32,
    /// Elements consumed, of all sets. The memory of an offered one is the sender's again.
    pub consumed: u32,
}

/// What is new in a tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct News {
    /// Buffers that became free, of the tally's set.
    pub freed: u32,
    /// Elements that were consumed.
    pub consumed: u32,
}

impl Tally {
    /// As it is written.
    pub fn encode(&self) -> [u8; TALLY_BYTES] {
        let Self { set, freed, consumed } = *self;
        let body: [u8; 12] = join([set, freed, consumed]);
        join([set, freed, consumed, checksum(&body)])
    }

    /// The tally if all of it is in `memory`, else `None`: not yet.
    pub fn decode(memory: &[u8]) -> Option<Self> {
        let whole = word(memory, 3)? == checksum(memory.get(..12)?);
        Some(Self { set: word(memory, 0).filter(|_| whole)?, freed: word(memory, 1)?, consumed: word(memory, 2)? })
    }

    /// What is new since `earlier`; `None` if it cannot be: more buffers than a set has, or more elements than the
    /// `unconsumed` ones.
    pub fn since(&self, earlier: &Self, count: u32, unconsumed: u32) -> Option<News> {
        let begin = if self.set == earlier.set { earlier.freed } else { 0 };
        let freed = self.freed.wrapping_sub(begin);
        let consumed = self.consumed.wrapping_sub(earlier.consumed);
        (freed <= count && consumed <= unconsumed).then_some(News { freed, consumed })
    }
}
