// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the ends of a connection over verbs tell each other before it begins.

use crate::queue_pairs::MOST;
use crate::queue_pairs::window::SLOTS;
use std::cmp::Ordering;
use std::fmt::{Display, Formatter, Result as Written};

/// Bytes of it.
pub const LEN: usize = 52;
/// First word: "Bcrv".
const MAGIC: u32 = u32::from_le_bytes(*b"Bcrv");
/// Second word: version, receives for messages about credits.
const LAYOUT: u32 = 2 << 16 | SLOTS;
/// QPNs and PSNs have 24 bits.
const BITS: u32 = 24;

/// An end of a connection, as it tells the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Bytes to receive into.
    pub memory: u32,
    /// Numbers of the queue pairs: data, control.
    pub qpns: [u32; 2],
    /// First PSNs that they send.
    pub psns: [u32; 2],
    /// Of the port, on InfiniBand.
    pub lid: u16,
    /// Largest payload of a packet: 1 is 256 bytes, 5 is 4096.
    pub mtu: u16,
    /// Of the port.
    pub gid: [u8; 16],
    /// With iWARP, the TCP port that this end meets the other one at.
    pub iwarp: Option<u16>,
}

/// How an end gets its queue pairs connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each end connects its own.
    Itself,
    /// By the connection manager: this end waits for the other.
    Listens,
    /// By the connection manager: this end calls the other.
    Calls,
}

/// Why what came is no [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The other end speaks something else, or another version.
    Kind,
    /// More to receive into than is possible.
    Memory,
    /// A queue pair that no program has, or twice the same.
    QueuePair,
    /// More than 24 bits.
    Psn,
    /// No MTU.
    Mtu,
    /// All zero.
    Gid,
    /// Neither iWARP nor anything else.
    Transport,
    /// Only one end has iWARP.
    Mixed,
    /// What this end said.
    Echo,
}

impl Display for Bad {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        f.write_str(match self {
            Self::Kind => "the other end speaks something else, or another version",
            Self::Memory => "the other end says that it has more than 1 GiB to receive into",
            Self::QueuePair => "the other end named an impossible queue pair",
            Self::Psn => "the other end named an impossible PSN",
            Self::Mtu => "the other end named an impossible MTU",
            Self::Gid => "the other end named no GID",
            Self::Transport => "the other end named an impossible transport",
            Self::Mixed => "only one of both ends has iWARP",
            Self::Echo => "the other end repeats what this one says",
        })
    }
}

impl std::error::Error for Bad {}

impl Hello {
    /// The bytes that say it.
    pub fn encode(&self) -> [u8; LEN] {
        let [data, control] = self.qpns;
        let [data_psn, control_psn] = self.psns;
        let port = u32::from(self.mtu) << 16 | u32::from(self.lid);
        let mut bytes = [0; LEN];
        let words = [MAGIC, LAYOUT, self.memory, data, control, data_psn, control_psn, port];
        for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes[32..48].copy_from_slice(&self.gid);
        let iwarp = self.iwarp.map_or(0, |port| 1 << 16 | u32::from(port));
        bytes[48..].copy_from_slice(&iwarp.to_le_bytes());
        bytes
    }

    /// What `bytes` say, all of it checked.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn decode(bytes: &[u8; LEN]) -> Result<Self, Bad> {
        let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        if (next(), next()) != (MAGIC, LAYOUT) {
            return Err(Bad::Kind);
        }
        let memory = next();
        let (qpns, psns, port) = ([next(), next()], [next(), next()], next());
        let (mut gid, mtu) = ([0; 16], (port >> 16) as u16);
        gid.copy_from_slice(&bytes[32..48]);
        let iwarp = match words.next_back().unwrap_or(0) {
            0 => None,
            iwarp if iwarp >> 16 == 1 => Some(iwarp as u16),
            _ => return Err(Bad::Transport),
        };
        if memory > MOST {
            return Err(Bad::Memory);
        }
        // 0 and 1 are the kernel's, but iWARP has none for it.
        let first = if iwarp.is_some() { 1 } else { 2 };
        if qpns.iter().any(|qpn| *qpn < first || *qpn >> BITS != 0) || qpns[0] == qpns[1] {
            return Err(Bad::QueuePair);
        }
        if psns.iter().any(|psn| *psn >> BITS != 0) {
            return Err(Bad::Psn);
        }
        if !(1..=5).contains(&mtu) {
            return Err(Bad::Mtu);
        }
        if gid == [0; 16] {
            return Err(Bad::Gid);
        }
        Ok(Self { memory, qpns, psns, lid: port as u16, mtu, gid, iwarp })
    }

    /// How the end that says this gets its queue pairs connected. With iWARP, the end with the smaller port listens.
    /// That is usually the one that can be reached.
    ///
    /// # Errors
    /// [`Bad::Mixed`], [`Bad::Echo`].
    pub fn way(&self, peer: &Self) -> Result<Way, Bad> {
        match (self.iwarp, peer.iwarp) {
            (None, None) => Ok(Way::Itself),
            (Some(own), Some(other)) => match (own, self.psns).cmp(&(other, peer.psns)) {
                Ordering::Less => Ok(Way::Listens),
                Ordering::Greater => Ok(Way::Calls),
                Ordering::Equal => Err(Bad::Echo),
            },
            _ => Err(Bad::Mixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bad, Hello, LEN, Way};

    const HELLO: Hello = Hello {
        memory: 4096,
        qpns: [17, 0xff_ffff],
        psns: [0, 0xff_ffff],
        lid: 3,
        mtu: 5,
        gid: *b"0123456789abcdef",
        iwarp: None,
    };

    /// What is said of a hello of which one word is another one.
    fn told(word: usize, value: u32) -> Result<Hello, Bad> {
        let mut bytes = HELLO.encode();
        bytes[4 * word..][..4].copy_from_slice(&value.to_le_bytes());
        Hello::decode(&bytes)
    }

    #[test]
    fn cr_15_each_lie_before_a_connection_over_verbs_has_its_error() {
        assert_eq!(Hello::decode(&HELLO.encode()), Ok(HELLO));
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\nHost: somebody else's web server\r\n\r\n"), Err(Bad::Kind));
        assert_eq!(Hello::decode(&[0; LEN]), Err(Bad::Kind));
        assert_eq!(told(1, 1 << 16), Err(Bad::Kind));
        assert_eq!(told(2, (1 << 30) + 1), Err(Bad::Memory));
        for qpn in [0, 1, 0xff_ffff, 1 << 24, u32::MAX] {
            assert_eq!(told(3, qpn), Err(Bad::QueuePair), "{qpn}");
        }
        assert_eq!(told(4, 17), Err(Bad::QueuePair));
        for word in [5, 6] {
            assert_eq!(told(word, 1 << 24), Err(Bad::Psn));
        }
        for mtu in [0, 6, 0xffff] {
            assert_eq!(told(7, mtu << 16), Err(Bad::Mtu));
        }
        let mut bytes = HELLO.encode();
        bytes[32..48].fill(0);
        assert_eq!(Hello::decode(&bytes), Err(Bad::Gid));
        for iwarp in [1, 0xffff, 2 << 16, u32::MAX] {
            assert_eq!(told(12, iwarp), Err(Bad::Transport), "{iwarp}");
        }
        assert_eq!(told(12, 1 << 16 | 0xabcd), Ok(Hello { iwarp: Some(0xabcd), ..HELLO }));
        let one = Hello { qpns: [1, 2], iwarp: Some(1), ..HELLO };
        assert_eq!(Hello::decode(&one.encode()), Ok(one));
        assert_eq!(Hello::decode(&Hello { qpns: [0, 2], ..one }.encode()), Err(Bad::QueuePair));
    }

    #[test]
    fn cr_15_of_two_ends_with_iwarp_one_calls_and_one_listens() {
        let end = |port, psn| Hello { iwarp: Some(port), psns: [5, psn], ..HELLO };
        for (listens, calls) in [(end(80, 2), end(40_000, 1)), (end(80, 1), end(80, 2)), (end(0, 1), end(0xffff, 1))] {
            assert_eq!(Hello::decode(&listens.encode()), Ok(listens));
            assert_eq!((listens.way(&calls), calls.way(&listens)), (Ok(Way::Listens), Ok(Way::Calls)));
        }
        assert_eq!(end(80, 1).way(&end(80, 1)), Err(Bad::Echo));
        assert_eq!((end(80, 1).way(&HELLO), HELLO.way(&end(80, 1))), (Err(Bad::Mixed), Err(Bad::Mixed)));
        assert_eq!(HELLO.way(&HELLO), Ok(Way::Itself));
    }
}
