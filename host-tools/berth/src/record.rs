// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of the two ends of a transfer, besides the file.

use crate::failure::Failure;
use crate::file::Change;

/// Bytes of a SHA-256.
pub const DIGEST: usize = 32;
/// Bytes of a [`Record`].
pub const RECORD: usize = 256;
/// Bytes of a [`Hello`]: as many as a request carries.
const HELLO: usize = 32;

const HELLO_MAGIC: &[u8; 4] = b"BFIL";
const RECORD_MAGIC: &[u8; 4] = b"BANS";
const VERSION: u32 = 2;
/// Where a record's text begins, and the most bytes of it.
const TEXT: usize = 48;
const MAX_TEXT: usize = RECORD - TEXT;

/// Private data of a reject: another sender is served; this one may try again.
pub const BUSY: &[u8] = b"busy with another sender";
/// Private data of a reject: the request is not one of a file transfer of this version.
pub const FOREIGN: &[u8] = b"not berth file transfer v2";
/// Private data of a reject: the word of a failed sender has been heard.
pub const HEARD: &[u8] = b"heard";

/// The outcome of an end, as a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// The bytes have another checksum.
    Checksum,
    /// A file could not be read or written.
    File,
    /// The sender's file has changed.
    Changed,
    /// A signal has ended it.
    Interrupted,
    /// The other end broke the rules.
    Protocol,
    /// Anything else.
    Other,
}

impl Outcome {
    const ALL: [Self; 7] =
        [Self::Done, Self::Checksum, Self::File, Self::Changed, Self::Interrupted, Self::Protocol, Self::Other];

    fn number(self) -> u32 {
        Self::ALL.iter().position(|o| *o == self).unwrap_or(0) as u32
    }

    /// A later version may know more of them; none of those is good.
    fn from_number(number: u32) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Other)
    }

    fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Checksum(_) => Self::Checksum,
            Failure::File(..) | Failure::Kind(..) => Self::File,
            Failure::Changed(..) => Self::Changed,
            Failure::Interrupted(_) => Self::Interrupted,
            Failure::Protocol(_) => Self::Protocol,
            _ => Self::Other,
        }
    }
}

/// The number at `at`, 0 if there is none.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// As [`word`], of 64 bits.
pub fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// The peer's text, made safe for a terminal.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Private data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello {
    /// A sender has a file.
    File {
        /// Its length in bytes.
        length: u64,
        /// Names this transfer.
        nonce: u64,
    },
    /// The sender of a transfer that has broken off says why, since its connection is gone.
    Failed {
        /// Which transfer.
        nonce: u64,
        /// Why.
        outcome: Outcome,
        /// Length of the file now, errno or signal.
        detail: u64,
    },
}

impl Hello {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; HELLO] {
        let (value, nonce, kind, outcome) = match self {
            Self::File { length, nonce } => (length, nonce, 0, Outcome::Done),
            Self::Failed { nonce, outcome, detail } => (detail, nonce, 1, outcome),
        };
        let mut bytes = [0; HELLO];
        bytes[..4].copy_from_slice(HELLO_MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&value.to_le_bytes());
        bytes[16..24].copy_from_slice(&nonce.to_le_bytes());
        bytes[24..28].copy_from_slice(&u32::to_le_bytes(kind));
        bytes[28..].copy_from_slice(&outcome.number().to_le_bytes());
        bytes
    }

    /// `None` for anything else, other versions included.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != HELLO || !bytes.starts_with(HELLO_MAGIC) || word(bytes, 4) != VERSION {
            return None;
        }
        let (value, nonce) = (long(bytes, 8), long(bytes, 16));
        match word(bytes, 24) {
            0 => (value < 1 << 62).then_some(Self::File { length: value, nonce }),
            1 => Some(Self::Failed { nonce, outcome: Outcome::from_number(word(bytes, 28)), detail: value }),
            _ => None,
        }
    }

    /// The last word of the sender of transfer `nonce`.
    pub fn failed(nonce: u64, failure: &Failure) -> Self {
        let detail = match failure {
            Failure::File(_, e) => e.raw_os_error().map_or(0, i64::from).cast_unsigned(),
            Failure::Changed(_, Change::Shorter { now, .. } | Change::Longer { now, .. }) => *now,
            Failure::Changed(_, Change::Written) => u64::MAX,
            Failure::Interrupted(signal) => i64::from(*signal).cast_unsigned(),
            _ => 0,
        };
        Self::Failed { nonce, outcome: Outcome::of(failure), detail }
    }
}

/// The receiver's failure from a sender's last word.
pub fn last_word(outcome: Outcome, detail: u64) -> Failure {
    let text = match (outcome, detail) {
        (Outcome::Changed, u64::MAX) => "its file was written to while it was sent".into(),
        (Outcome::Changed, now) => {
            format!("its file became shorter or longer while it was sent: it has {now} bytes now")
        }
        (Outcome::File, errno) if errno != 0 => {
            let e = std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(libc::EIO));
            format!("its file could not be read: {e}")
        }
        (Outcome::Interrupted, signal) => format!("interrupted by signal {signal}"),
        (Outcome::Protocol, _) => "it takes this end's answer for a breach of the protocol".into(),
        _ => "it says why where it runs".into(),
    };
    Failure::Peer { who: "sender", outcome, text }
}

/// The end of the sender's stream, behind the file, and the receiver's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The outcome of this end.
    pub outcome: Outcome,
    /// SHA-256 of the file as this end has it; zeros when that is not known.
    pub digest: [u8; DIGEST],
    /// Why, in words.
    pub text: String,
}

impl Record {
    /// All is well.
    pub fn done(digest: [u8; DIGEST]) -> Self {
        Self { outcome: Outcome::Done, digest, text: String::new() }
    }

    /// This end has failed.
    pub fn failed(failure: &Failure, digest: [u8; DIGEST]) -> Self {
        let mut text = failure.to_string();
        // Longer paths lose their end, not the record.
        while text.len() > MAX_TEXT {
            text.pop();
        }
        Self { outcome: Outcome::of(failure), digest, text }
    }

    /// As it travels.
    pub fn to_bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(RECORD_MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.outcome.number().to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.text.len() as u32).to_le_bytes());
        bytes[16..TEXT].copy_from_slice(&self.digest);
        bytes[TEXT..][..self.text.len()].copy_from_slice(self.text.as_bytes());
        bytes
    }

    /// Reads what `who`, the other end, has sent.
    pub fn from_bytes(who: &'static str, bytes: &[u8]) -> Result<Self, Failure> {
        let text = (word(bytes, 12) as usize <= MAX_TEXT).then(|| bytes.get(TEXT..TEXT + word(bytes, 12) as usize));
        match (bytes.len(), text.flatten()) {
            (RECORD, Some(text)) if bytes.starts_with(RECORD_MAGIC) && word(bytes, 4) == VERSION => {
                let mut digest = [0; DIGEST];
                digest.copy_from_slice(&bytes[16..TEXT]);
                Ok(Self { outcome: Outcome::from_number(word(bytes, 8)), digest, text: printable(text) })
            }
            _ => Err(Failure::Protocol(format!("the {who} speaks another protocol: its record is malformed"))),
        }
    }

    /// The failure that it reports, if any.
    pub fn check(self, who: &'static str) -> Result<Self, Failure> {
        match self.outcome {
            Outcome::Done => Ok(self),
            outcome => Err(Failure::Peer { who, outcome, text: self.text }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_random::{Rng, seed};

    #[test]
    fn hello_is_read_back_and_others_are_refused() {
        let hello = Hello::File { length: 4 << 20, nonce: 7 };
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
        for failure in [
            Failure::Interrupted(2),
            Failure::Changed("x".into(), Change::Shorter { was: 9, now: 5 }),
            Failure::File("x".into(), std::io::Error::from_raw_os_error(libc::EIO)),
            Failure::Other("x".into()),
        ] {
            let hello = Hello::failed(u64::MAX, &failure);
            assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
        }
        for bad in [&b""[..], b"GET / HTTP/1.1\r\n", b"BFIL\x01\0\0\0\x07\0\0\0\0\0\0\0", &[0; 32]] {
            assert_eq!(Hello::from_bytes(bad), None);
        }
        let endless = Hello::File { length: u64::MAX, nonce: 0 };
        assert_eq!(Hello::from_bytes(&endless.to_bytes()), None);
        let mut kind = hello.to_bytes();
        kind[24] = 9;
        assert_eq!(Hello::from_bytes(&kind), None);
    }

    #[test]
    fn f6_record_tells_by_name_what_has_failed() {
        let full = Failure::File("/mnt/copy".into(), std::io::Error::from_raw_os_error(libc::ENOSPC));
        let record = Record::from_bytes("receiver", &Record::failed(&full, [7; DIGEST]).to_bytes()).unwrap();
        let failure = record.check("receiver").unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("the receiver") && text.contains("/mnt/copy: No space left on device"), "{text}");
        assert_eq!(failure.code(), 7);
        let done = Record::done([9; DIGEST]);
        assert_eq!(Record::from_bytes("sender", &done.to_bytes()).unwrap().check("sender").unwrap(), done);
        // A path of any length, cut between characters.
        let long = Record::failed(&Failure::Other("ä".repeat(500)), [0; DIGEST]);
        assert_eq!(Record::from_bytes("sender", &long.to_bytes()).unwrap().text, "ä".repeat(MAX_TEXT / 2));
    }

    #[test]
    fn f6_malformed_records_are_refused_and_words_are_fit_for_a_terminal() {
        let good = Record { outcome: Outcome::Other, digest: [0; DIGEST], text: "\x1b[2Jgone\n".into() };
        assert_eq!(Record::from_bytes("sender", &good.to_bytes()).unwrap().text, "?[2Jgone?");
        for (at, value) in [(0, b'X'), (4, 9), (12, 255), (15, 255)] {
            let mut bytes = good.to_bytes();
            bytes[at] = value;
            assert!(matches!(Record::from_bytes("sender", &bytes), Err(Failure::Protocol(_))), "{at}");
        }
        assert!(Record::from_bytes("sender", &good.to_bytes()[..RECORD - 1]).is_err());
        // A later version's reason is a failure, too.
        let mut later = good.to_bytes();
        later[8] = 200;
        assert_eq!(Record::from_bytes("sender", &later).unwrap().outcome, Outcome::Other);
        let mut rng = Rng(seed(2));
        for _ in 0..2000 {
            let mut bytes = good.to_bytes();
            for _ in 0..4 {
                bytes[rng.below(RECORD as u64) as usize] = rng.below(256) as u8;
            }
            let _ = Record::from_bytes("sender", &bytes);
            let _ = Hello::from_bytes(&bytes[..HELLO]);
        }
    }
}
