// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between two ends about credits: the same content on every carrier (CR-12).
//!
//! A list (decision 6) may be cut into several *parts*, where a carrier is narrow. Every entry
//! names the connection that it is for and its epoch, so that many connections share one
//! control connection (CR-13). Encoded it is a record of 32-bit words:
//!
//! ```text
//! word 0   kind in bits 7:0, words of the record in bits 15:8, QPN that it is for in bits 31:16
//! word 1   epoch
//! word 2   round in bits 7:0; of a part also: credits of the list in bits 15:8, offset of the part in bits 23:16
//! word 3   part: number of the list's first credit; others: the number
//! word 4…  part: sizes
//! ```

use crate::wire::records::record;

/// Record kind: a part of a credit list.
pub const KIND_PART: u32 = 17;
/// Record kind: credits are wanted back.
pub const KIND_RECALL: u32 = 18;
/// Record kind: the answer to a recall.
pub const KIND_RECALLED: u32 = 19;
/// Record kind: the sender says what it expects, after its control traffic was lost.
pub const KIND_SYNC: u32 = 20;
/// Words of a record before a part's sizes; all words of the other records.
pub const HEAD: usize = 4;

/// One end of a connection, as entries name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name {
    /// QPN, 16 bits.
    pub qpn: u32,
    /// Epoch of the connection, chosen by that end: a reconnect chooses another (decision 6).
    pub epoch: u32,
}

/// A part of a credit list. `sizes` beyond `len` are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part<const LIST: usize> {
    /// How often credits had been recalled when the list was made, modulo 256: numbers are used again after a recall,
    /// and entries from before it must not be taken for later ones.
    pub round: u8,
    /// Number of the list's first credit.
    pub list: u32,
    /// Credits of the whole list.
    pub total: u8,
    /// Place of the part's first credit in the list.
    pub offset: u8,
    /// Credits of this part.
    pub len: u8,
    /// Their sizes in bytes.
    pub sizes: [u32; LIST],
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body<const LIST: usize> {
    /// Receiver to sender: credits.
    List(Part<LIST>),
    /// Receiver to sender: give up the unused credits from number `first` on (decision 19).
    Recall {
        /// Round that ends with the answer.
        round: u8,
        /// Number of the first credit that is wanted back.
        first: u32,
    },
    /// Sender to receiver: the answer.
    Recalled {
        /// Round of the recall.
        round: u8,
        /// Number of the first credit that is not kept.
        first: u32,
    },
    /// Sender to receiver: control traffic was lost; repeat what the sender does not have (decision 6).
    Sync {
        /// Round as the sender knows it.
        round: u8,
        /// Number of the first credit that it does not have.
        next: u32,
    },
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry<const LIST: usize> {
    /// The end that it is for.
    pub to: Name,
    /// What it says.
    pub body: Body<LIST>,
}

impl<const LIST: usize> Part<LIST> {
    /// The sizes.
    pub fn sizes(&self) -> &[u32] {
        self.sizes.get(..self.len as usize).unwrap_or(&[])
    }

    /// Lengths and places fit each other and `LIST`.
    pub fn is_sound(&self) -> bool {
        let end = self.offset as usize + self.len as usize;
        self.len >= 1
            && end <= self.total as usize
            && self.total as usize <= LIST
            && self.sizes.iter().skip(self.len as usize).all(|size| *size == 0)
    }
}

impl<const LIST: usize> Entry<LIST> {
    /// Words of its record.
    pub fn words(&self) -> usize {
        match &self.body {
            Body::List(part) => HEAD + (part.len as usize).min(LIST),
            _ => HEAD,
        }
    }

    /// Writes the record to the start of `out`; gives its words, `None` if `out` is too short.
    pub fn encode(&self, out: &mut [u32]) -> Option<usize> {
        let words = self.words();
        let out = out.get_mut(..words)?;
        let (head, sizes) = out.split_at_mut_checked(HEAD)?;
        let (kind, round, number) = match &self.body {
            Body::List(part) => {
                sizes.iter_mut().zip(part.sizes()).for_each(|(to, size)| *to = *size);
                (KIND_PART, part.round as u32 | (part.total as u32) << 8 | (part.offset as u32) << 16, part.list)
            }
            Body::Recall { round, first } => (KIND_RECALL, *round as u32, *first),
            Body::Recalled { round, first } => (KIND_RECALLED, *round as u32, *first),
            Body::Sync { round, next } => (KIND_SYNC, *round as u32, *next),
        };
        head.copy_from_slice(&[record(kind, words, self.to.qpn), self.to.epoch, round, number]);
        Some(words)
    }

    /// Reads the record at the start of `words`: (entry, words of it). `None`: no valid record.
    pub fn decode(words: &[u32]) -> Option<(Self, usize)> {
        let len = (*words.first()? >> 8 & 0xff) as usize;
        let words = words.get(..len)?;
        let (head, rest) = words.split_at_checked(HEAD)?;
        let &[w0, epoch, w2, number] = head else {
            return None;
        };
        let round = w2 as u8;
        let body = match w0 & 0xff {
            KIND_PART => {
                let mut sizes = [0; LIST];
                sizes.get_mut(..rest.len())?.copy_from_slice(rest);
                let part = Part {
                    round,
                    list: number,
                    total: (w2 >> 8) as u8,
                    offset: (w2 >> 16) as u8,
                    len: u8::try_from(rest.len()).ok()?,
                    sizes,
                };
                if !part.is_sound() || w2 >> 24 != 0 {
                    return None;
                }
                Body::List(part)
            }
            _ if !rest.is_empty() || w2 >> 8 != 0 => return None,
            KIND_RECALL => Body::Recall { round, first: number },
            KIND_RECALLED => Body::Recalled { round, first: number },
            KIND_SYNC => Body::Sync { round, next: number },
            _ => return None,
        };
        Some((Self { to: Name { qpn: w0 >> 16, epoch }, body }, len))
    }
}
