// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wire formats of Berth cards that agreed on selective repeat at connect (decision 23): a header at the front of each
//! data packet's payload, and an opcode of its own.
//!
//! Both are made so that a capture stays readable to others: none of them takes the first
//! for a protocol's header, and the second lies in the range that the specification leaves to manufacturers.

pub use crate::rc::Placement;

/// Q_Key of credit lists that an end whose connection has this epoch sends. The
/// list itself has the epoch of the end that it is for, so a forger has to guess both. Its highest bit is set: a
/// controlled Q_Key, which an adapter does not let an unprivileged program send with (IBTA 10.2.5).
pub const fn list_qkey(epoch: u32) -> u32 {
    1 << 31 | epoch
}

/// First bytes of the payload of every data packet of a SEND or WRITE.
///
/// ```text
/// 31                     9  8 7      0
/// ┌───────────────────────┬───┬────────┐
/// │ packet index          │ 1 │ credit │  big-endian
/// └───────────────────────┴───┴────────┘
/// ```
///
/// Bit 8 is always 1: Wireshark takes a payload whose third and fourth byte are 0 for an EtherType and what belongs to it.
impl Placement {
    /// Bytes of the header.
    pub const BYTES: usize = 4;
    /// Bit 8.
    const MARK: u32 = 1 << 8;

    /// The header as a number; higher bits of `index` are cut off.
    pub const fn to_word(self) -> u32 {
        self.index << 9 | Self::MARK | self.credit as u32
    }

    /// From that number; `None` when it is no placement header.
    pub const fn from_word(word: u32) -> Option<Self> {
        match word & Self::MARK {
            0 => None,
            _ => Some(Self { credit: word as u8, index: word >> 9 }),
        }
    }

    /// The header as it is sent.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.to_word().to_be_bytes()
    }

    /// Takes the header from the front of a payload; `None` when it is not there.
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = payload.split_first_chunk()?;
        Some((Self::from_word(u32::from_be_bytes(*head))?, rest))
    }
}

/// Behind the AETH of a [`BTH_SELECTIVE_ACKNOWLEDGE`](berth_abi::wire::BTH_SELECTIVE_ACKNOWLEDGE): which packets after the acknowledged one have arrived.
///
/// 128 bits, big-endian. The most significant bit is the packet right after the AETH's PSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sack(pub u128);

impl Sack {
    /// Bytes of the header.
    pub const BYTES: usize = 16;
    /// Packets that it covers.
    pub const PACKETS: u32 = 128;

    /// Whether the packet `distance` after the acknowledged one has arrived; `distance` from 1 on.
    pub const fn has(self, distance: u32) -> bool {
        matches!(self.0.checked_shl(distance.wrapping_sub(1)), Some(bits) if bits >> 127 != 0)
    }

    /// Says that the packet `distance` after the acknowledged one has arrived. Out of 1 to 128: no effect.
    pub const fn set(&mut self, distance: u32) {
        if let Some(bit) = (1_u128 << 127).checked_shr(distance.wrapping_sub(1)) {
            self.0 |= bit;
        }
    }

    /// The header as it is sent.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_be_bytes()
    }

    /// Takes the header from the front of what follows an AETH; `None` when that is shorter.
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = payload.split_first_chunk()?;
        Some((Self(u128::from_be_bytes(*head)), rest))
    }
}
