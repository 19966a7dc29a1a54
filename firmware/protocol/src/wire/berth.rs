// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers that only Berth cards use between each other, when they agreed on selective
//! repeat at connect (decision 23). They lie where the payload begins.

/// First bytes of the payload of every data packet of a SEND or WRITE: where in its piece
/// the packet belongs, so that it can be placed though its piece's other packets are missing.
///
/// ```text
/// 31     24 23                       0
/// ┌────────┬─────────────────────────┐
/// │ credit │ packet index            │  big-endian
/// └────────┴─────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Number of the piece's credit modulo 256; 0 for a WRITE.
    pub credit: u8,
    /// Which packet of the piece it is, in units of the path MTU; 24 bits.
    pub index: u32,
}

impl Placement {
    /// Bytes of the header.
    pub const BYTES: usize = 4;

    /// The header as it is sent; higher bits of `index` are cut off.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        ((self.credit as u32) << 24 | self.index & 0xff_ffff).to_be_bytes()
    }

    /// Takes the header from the front of a payload; `None` when the payload is shorter.
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = payload.split_first_chunk()?;
        let word = u32::from_be_bytes(*head);
        Some((Self { credit: (word >> 24) as u8, index: word & 0xff_ffff }, rest))
    }
}

/// Behind the AETH of an acknowledgement: which packets after the acknowledged one have arrived.
///
/// 128 bits, big-endian. The most significant bit is the packet right after the AETH's PSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sack(pub u128);

impl Sack {
    /// Bytes of the header.
    pub const BYTES: usize = 16;
    /// Packets that it can tell of.
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
