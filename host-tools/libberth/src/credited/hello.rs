// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the ends of a link say as private data of a connection.

use std::io;

use crate::sys;

/// Bytes that the end says which comes to a UNIX socket: the secret, and bytes that it wants to receive into.
pub(super) const PLACE: usize = 12;
/// Bytes of a [`Hello`].
const LEN: usize = 24;
/// What each begins with.
const MAGIC: [u8; 3] = *b"BcL";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data.
    Data,
    /// Data, unless both ends are on one host.
    DataOrHost,
    /// Messages about credits.
    Control,
}

/// What a request says, and the answer to one for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) kind: Kind,
    /// Of this end.
    pub(super) qpn: u32,
    /// Of the link, on the host of the end that connects.
    pub(super) name: u64,
    /// Known to both ends alone.
    secret: u64,
}

impl Hello {
    /// Of an end that connects.
    pub(super) fn new(kind: Kind, qpn: u32) -> io::Result<Self> {
        let mut random = [0; 16];
        sys::random(&mut random)?;
        let random = u128::from_ne_bytes(random);
        Ok(Self { kind, qpn, name: random as u64, secret: (random >> 64) as u64 })
    }

    /// The same link's, for another connection or from its other end.
    pub(super) fn with(self, kind: Kind, qpn: u32) -> Self {
        Self { kind, qpn, ..self }
    }

    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..3].copy_from_slice(&MAGIC);
        out[3] = match self.kind {
            Kind::Data => 0,
            Kind::DataOrHost => 1,
            Kind::Control => 2,
        };
        out[4..8].copy_from_slice(&self.qpn.to_le_bytes());
        out[8..16].copy_from_slice(&self.name.to_le_bytes());
        out[16..].copy_from_slice(&self.secret.to_le_bytes());
        out
    }

    /// `None`: it is something else. More bytes may follow.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [m, a, g, kind, rest @ ..] = bytes.first_chunk::<LEN>()?;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::DataOrHost,
            2 => Kind::Control,
            _ => return None,
        };
        let (qpn, rest) = rest.split_first_chunk()?;
        let (name, secret) = rest.split_first_chunk()?;
        let (qpn, name, secret) =
            (u32::from_le_bytes(*qpn), u64::from_le_bytes(*name), u64::from_le_bytes(*secret.first_chunk()?));
        ([*m, *a, *g] == MAGIC).then_some(Self { kind, qpn, name, secret })
    }

    /// Whether both are of one link.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.name, self.secret) == (other.name, other.secret)
    }

    /// Whether these bytes are of the same link, too.
    pub(super) fn is_said(&self, bytes: &[u8]) -> bool {
        Self::decode(bytes).is_some_and(|said| said.is_same(self))
    }

    /// What an end says that comes to the UNIX socket.
    pub(super) fn secret_with(&self, memory: u32) -> [u8; PLACE] {
        let mut out = [0; PLACE];
        out[..8].copy_from_slice(&self.secret.to_le_bytes());
        out[8..].copy_from_slice(&memory.to_le_bytes());
        out
    }

    /// The bytes to receive into that such an end wants; `None`: it does not know the secret.
    pub(super) fn memory_of(&self, said: &[u8; PLACE]) -> Option<u32> {
        let (secret, memory) = said.split_first_chunk()?;
        (u64::from_le_bytes(*secret) == self.secret).then(|| memory.first_chunk().map(|m| u32::from_le_bytes(*m)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        for kind in [Kind::Data, Kind::DataOrHost, Kind::Control] {
            let hello = Hello::new(kind, 0x1234_5678).unwrap();
            let mut bytes = hello.encode().to_vec();
            assert_eq!(Hello::decode(&bytes[..LEN - 1]), None);
            bytes.extend([0; 8]);
            assert_eq!(Hello::decode(&bytes), Some(hello));
            for (at, value) in [(0, b'b'), (2, 0), (3, 3)] {
                let mut bad = bytes.clone();
                bad[at] = value;
                assert_eq!(Hello::decode(&bad), None);
            }
            let other = Hello::new(kind, hello.qpn).unwrap();
            assert!(hello.is_same(&Hello { qpn: 1, ..hello }) && !hello.is_same(&other));
            assert_eq!(hello.memory_of(&hello.secret_with(77)), Some(77));
            assert_eq!(hello.memory_of(&other.secret_with(77)), None);
        }
    }
}
