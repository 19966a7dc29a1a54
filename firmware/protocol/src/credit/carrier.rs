// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carriers of credit entries (CR-12): the same content, five ways.
//!
//! | carrier | sending end | receiving end | a unit on the medium is |
//! |---|---|---|---|
//! | (a) control connection | [`Messages`] | [`Messages`] | a message of records |
//! | (b) reverse direction of the data connection | [`Reverse`] | [`Reverse`] | a message with one record |
//! | (c) RDMA write, found by polling or notification | [`WindowWriter`] | [`Window`] | a write into the window |
//! | (d) control part of shared memory | [`SharedWriter`] | [`SharedReader`] | a change of the memory |
//! | (e) TCP option | [`TcpOptions`] | [`TcpOptions`] | the option of one segment |
//!
//! All are a [`Carry`] on one end and a [`Fetch`] on the other; the caller puts [`Carry::part`] into
//! [`crate::credit::announcer::Options`]. None of them keeps order or promises delivery: the announcer repeats what is
//! not proven. A carrier drops what it cannot read.

use super::entry::{Body, Entry, HEAD, Name, Part};
use crate::base::bound::{Bound, at_most};
use crate::wire::records::{CONTROL_WORDS, MESSAGE_HEADER};
use core::sync::atomic::{AtomicU32, Ordering};

/// Where a unit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Byte offset in the receiver's window (RDMA write), else 0.
    pub offset: u32,
    /// Bytes.
    pub len: usize,
}

/// The sending end of a carrier.
pub trait Carry<const LIST: usize> {
    /// Credits that one entry may hold here, at least 1.
    fn part(&self) -> u32;

    /// Takes an entry along. False: no room now; say it again later.
    fn put(&mut self, entry: &Entry<LIST>) -> bool;

    /// The next unit for the medium, written to the start of `out`. `None`: nothing to carry, or
    /// `out` is too short, or there is no medium between the ends.
    fn unit(&mut self, out: &mut [u8]) -> Option<Unit>;
}

/// The receiving end of a carrier.
pub trait Fetch<const LIST: usize> {
    /// A unit has come over the medium: `bytes` for byte `offset`. False: it is none, and is dropped.
    fn deliver(&mut self, offset: u32, bytes: &[u8]) -> bool;

    /// The next entry. Polling means calling this.
    fn get(&mut self) -> Option<Entry<LIST>>;
}

/// Words that a control message holds for records.
const MESSAGE: usize = CONTROL_WORDS - MESSAGE_HEADER;

/// (a) Messages of the separate control connection: as many records as fit 244 bytes. The control
/// connection itself is `card/control.rs`; this is what stands in its messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Messages {
    words: [u32; MESSAGE],
    len: usize,
    at: usize,
}

impl Default for Messages {
    fn default() -> Self {
        Self::new()
    }
}

impl Messages {
    /// An empty message.
    pub const fn new() -> Self {
        Self { words: [0; MESSAGE], len: 0, at: 0 }
    }

    fn clear(&mut self) {
        *self = Self::new();
    }
}

/// Writes words to bytes, little-endian. `None`: too short.
fn write_words(words: &[u32], out: &mut [u8]) -> Option<usize> {
    let len = 4 * words.len();
    for (to, word) in at_most(words.len(), out.get_mut(..len)?.chunks_exact_mut(4).zip(words)) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    Some(len)
}

/// Reads words from bytes, little-endian. `None`: not a whole number of words, or too many.
fn read_words(bytes: &[u8], out: &mut [u32]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<4>();
    let to = out.get_mut(..words.len())?;
    for (to, word) in at_most(words.len(), to.iter_mut().zip(words)) {
        *to = u32::from_le_bytes(*word);
    }
    rest.is_empty().then_some(words.len())
}

impl<const LIST: usize> Carry<LIST> for Messages {
    fn part(&self) -> u32 {
        ((MESSAGE - HEAD) as u32).min(LIST as u32)
    }

    fn put(&mut self, entry: &Entry<LIST>) -> bool {
        let Some(words) = self.words.get_mut(self.len..).and_then(|rest| entry.encode(rest)) else {
            return false;
        };
        self.len += words;
        true
    }

    fn unit(&mut self, out: &mut [u8]) -> Option<Unit> {
        let words = self.words.get(..self.len).filter(|words| !words.is_empty())?;
        let len = write_words(words, out)?;
        self.clear();
        Some(Unit { offset: 0, len })
    }
}

impl<const LIST: usize> Fetch<LIST> for Messages {
    /// All entries of a message must be taken before the next one comes.
    fn deliver(&mut self, _: u32, bytes: &[u8]) -> bool {
        self.clear();
        match read_words(bytes, &mut self.words) {
            Some(len) => {
                self.len = len;
                true
            }
            None => {
                self.clear();
                false
            }
        }
    }

    fn get(&mut self) -> Option<Entry<LIST>> {
        let words = self.words.get(self.at..self.len)?;
        let Some((entry, words)) = Entry::decode(words) else {
            self.clear();
            return None;
        };
        self.at += words;
        Some(entry)
    }
}

/// First bytes of a message that carries an entry on the data connection.
const REVERSE_MAGIC: [u8; 4] = *b"BCrd";

/// (b) A message on the reverse direction of the data connection, where data flows one way only
/// (decision 8). It needs no credit: the sender of data has its credit buffers posted there
/// (CR-11). One entry per message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reverse<const LIST: usize> {
    entry: Option<Entry<LIST>>,
    part: u32,
}

impl<const LIST: usize> Reverse<LIST> {
    /// For a connection with packets of at most `mtu` bytes. `None`: data flows both ways
    /// (`two_way`), so that the messages could not be told from data, or nothing fits.
    pub fn new(mtu: u32, two_way: bool) -> Option<Self> {
        let head = (REVERSE_MAGIC.len() + 4 * HEAD) as u32;
        let part = (mtu.saturating_sub(head) / 4).min(LIST as u32);
        (part > 0 && !two_way).then_some(Self { entry: None, part })
    }
}

impl<const LIST: usize> Carry<LIST> for Reverse<LIST> {
    fn part(&self) -> u32 {
        self.part
    }

    fn put(&mut self, entry: &Entry<LIST>) -> bool {
        let fits = entry.words() <= HEAD + self.part as usize;
        if self.entry.is_some() || !fits {
            return false;
        }
        self.entry = Some(*entry);
        true
    }

    fn unit(&mut self, out: &mut [u8]) -> Option<Unit> {
        let entry = self.entry.as_ref()?;
        let mut words = [0; 256];
        let len = entry.encode(&mut words)?;
        let (magic, rest) = out.split_at_mut_checked(REVERSE_MAGIC.len())?;
        let len = write_words(words.get(..len)?, rest)?;
        magic.copy_from_slice(&REVERSE_MAGIC);
        self.entry = None;
        Some(Unit { offset: 0, len: len + magic.len() })
    }
}

impl<const LIST: usize> Fetch<LIST> for Reverse<LIST> {
    fn deliver(&mut self, _: u32, bytes: &[u8]) -> bool {
        let Some(bytes) = bytes.strip_prefix(&REVERSE_MAGIC) else {
            return false;
        };
        let mut words = [0; 256];
        let read = read_words(bytes, &mut words).and_then(|len| words.get(..len));
        let entry = read.and_then(|words| Entry::decode(words).filter(|(_, used)| *used == words.len()));
        self.entry = entry.map(|(entry, _)| entry);
        self.entry.is_some()
    }

    fn get(&mut self) -> Option<Entry<LIST>> {
        self.entry.take()
    }
}

/// Words of a window's slot before the entry: head flag.
const SLOT_HEAD: usize = 1;
/// Words of a window's slot after the entry: checksum, tail flag.
const SLOT_TAIL: usize = 2;

/// Checksum of a slot (FNV-1a over the words): a write that is half visible does not have it.
fn checksum(phase: u32, words: &[u32]) -> u32 {
    words
        .iter()
        .chain(&[phase])
        .fold(0x811c_9dc5, |sum: u32, word| (sum ^ word).wrapping_mul(0x0100_0193).rotate_left(5))
}

/// The phase after `phase`: never 0, which is what fresh memory has.
const fn next_phase(phase: u32) -> u32 {
    match phase.wrapping_add(1) {
        0 => 1,
        phase => phase,
    }
}

/// (c) Sending end: RDMA writes into the peer's [`Window`] of `SLOTS` slots of `WORDS` words. Its
/// address and key come with the connection; between cards with hardware credits it is a
/// reserved-key window in the NIC, not host memory (decision 8).
///
/// A slot: head flag = phase; record, padded with 0; checksum; tail flag = phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowWriter<const SLOTS: usize, const WORDS: usize> {
    phase: u32,
    slot: usize,
    words: [u32; WORDS],
    full: bool,
}

impl<const SLOTS: usize, const WORDS: usize> Default for WindowWriter<SLOTS, WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const SLOTS: usize, const WORDS: usize> WindowWriter<SLOTS, WORDS> {
    /// The writer of a fresh window.
    pub const fn new() -> Self {
        const { assert!(SLOTS > 0 && WORDS > SLOT_HEAD + HEAD + SLOT_TAIL) };
        Self { phase: 0, slot: 0, words: [0; WORDS], full: false }
    }
}

impl<const LIST: usize, const SLOTS: usize, const WORDS: usize> Carry<LIST> for WindowWriter<SLOTS, WORDS> {
    fn part(&self) -> u32 {
        ((WORDS - SLOT_HEAD - HEAD - SLOT_TAIL) as u32).min(LIST as u32)
    }

    fn put(&mut self, entry: &Entry<LIST>) -> bool {
        if self.full {
            return false;
        }
        self.words = [0; WORDS];
        let phase = next_phase(self.phase);
        let Some(body) = self.words.get_mut(SLOT_HEAD..WORDS - SLOT_TAIL) else {
            return false;
        };
        if entry.encode(body).is_none() {
            return false;
        }
        let sum = checksum(phase, body);
        if let [head, .., check, tail] = &mut self.words[..] {
            (*head, *check, *tail) = (phase, sum, phase);
        }
        (self.phase, self.full) = (phase, true);
        true
    }

    fn unit(&mut self, out: &mut [u8]) -> Option<Unit> {
        if !self.full {
            return None;
        }
        let len = write_words(&self.words, out)?;
        let offset = (self.slot * WORDS * 4) as u32;
        self.slot = (self.slot + 1) % SLOTS;
        self.full = false;
        Some(Unit { offset, len })
    }
}

/// (c) Receiving end: the memory that is written, found by polling or, when the write carries an immediate, by its
/// notification: both are [`Fetch::get`]. A slot counts when head and tail flag are the phase that is expected and the
/// checksum holds: a write that is half visible, or none at all, is "not yet". When the writer has gone round before
/// the reader looked, the reader goes on with what it finds; lost entries are repeated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window<const SLOTS: usize, const WORDS: usize> {
    memory: [[u32; WORDS]; SLOTS],
    phase: u32,
    slot: usize,
}

impl<const SLOTS: usize, const WORDS: usize> Default for Window<SLOTS, WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const SLOTS: usize, const WORDS: usize> Window<SLOTS, WORDS> {
    /// A fresh window.
    pub const fn new() -> Self {
        const { assert!(SLOTS > 0 && WORDS > SLOT_HEAD + HEAD + SLOT_TAIL) };
        Self { memory: [[0; WORDS]; SLOTS], phase: 0, slot: 0 }
    }

    /// Phase and entry's words of slot `slot`, if it is whole.
    fn whole(&self, slot: usize) -> Option<(u32, &[u32])> {
        let words = self.memory.get(slot)?;
        let [head, body @ .., check, tail] = &words[..] else {
            return None;
        };
        (head == tail && *head != 0 && *check == checksum(*head, body)).then_some((*head, body))
    }
}

impl<const LIST: usize, const SLOTS: usize, const WORDS: usize> Fetch<LIST> for Window<SLOTS, WORDS> {
    /// What the write engine does: bytes appear in the memory. A write beyond it is refused as a
    /// whole, as its key does. Parts of a write may come alone and in any order, in whole words.
    fn deliver(&mut self, offset: u32, bytes: &[u8]) -> bool {
        let (words, rest) = bytes.as_chunks::<4>();
        let start = offset as usize / 4;
        let fits = start.checked_add(words.len()).is_some_and(|end| end <= SLOTS * WORDS);
        if !rest.is_empty() || !offset.is_multiple_of(4) || !fits {
            return false;
        }
        for (to, word) in at_most(SLOTS * WORDS, self.memory.as_flattened_mut().iter_mut().skip(start).zip(words)) {
            *to = u32::from_le_bytes(*word);
        }
        true
    }

    fn get(&mut self) -> Option<Entry<LIST>> {
        // The slot whose turn it is; if the writer has gone round it holds a later phase.
        for _ in at_most(SLOTS, 0..SLOTS) {
            let (phase, words) = self.whole(self.slot)?;
            let ahead = phase.wrapping_sub(self.phase) as i32;
            if ahead <= 0 {
                return None;
            }
            let entry = Entry::decode(words).map(|(entry, _)| entry);
            self.phase = phase;
            self.slot = (self.slot + 1) % SLOTS;
            if entry.is_some() {
                return entry;
            }
        }
        None
    }
}

/// (d) The control part of a shared memory area of two processes of one host: a ring of records
/// with one writer and one reader, both without locks and system calls. `WORDS` is a power of two.
///
/// Each side reads the other's index once per call and believes nothing else that it finds: a process that writes
/// invalid content harms its own connection only.
#[derive(Debug)]
pub struct SharedControl<const WORDS: usize> {
    /// Words written, modulo 2^32.
    tail: AtomicU32,
    /// Words read, modulo 2^32.
    head: AtomicU32,
    words: [AtomicU32; WORDS],
}

impl<const WORDS: usize> Default for SharedControl<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> SharedControl<WORDS> {
    /// An empty ring.
    pub const fn new() -> Self {
        const { assert!(WORDS.is_power_of_two() && WORDS > HEAD) };
        Self { tail: AtomicU32::new(0), head: AtomicU32::new(0), words: [const { AtomicU32::new(0) }; WORDS] }
    }

    fn at(&self, index: u32) -> &AtomicU32 {
        &self.words[index as usize % WORDS]
    }
}

/// (d) Sending end. There is one per [`SharedControl`].
#[derive(Debug)]
pub struct SharedWriter<'a, const WORDS: usize> {
    ring: &'a SharedControl<WORDS>,
    tail: u32,
}

impl<'a, const WORDS: usize> SharedWriter<'a, WORDS> {
    /// The writer of `ring`.
    pub fn new(ring: &'a SharedControl<WORDS>) -> Self {
        Self { ring, tail: ring.tail.load(Ordering::Acquire) }
    }
}

impl<const LIST: usize, const WORDS: usize> Carry<LIST> for SharedWriter<'_, WORDS> {
    fn part(&self) -> u32 {
        ((WORDS - HEAD) as u32).min(LIST as u32)
    }

    fn put(&mut self, entry: &Entry<LIST>) -> bool {
        let used = self.tail.wrapping_sub(self.ring.head.load(Ordering::Acquire));
        let mut words = [0; 256];
        let Some(len) = entry.encode(&mut words) else {
            return false;
        };
        if used > WORDS as u32 || len > WORDS - used as usize {
            return false;
        }
        for word in at_most(256, words.iter().take(len)) {
            self.ring.at(self.tail).store(*word, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(1);
        }
        self.ring.tail.store(self.tail, Ordering::Release);
        true
    }

    fn unit(&mut self, _: &mut [u8]) -> Option<Unit> {
        None
    }
}

/// (d) Receiving end. There is one per [`SharedControl`].
#[derive(Debug)]
pub struct SharedReader<'a, const WORDS: usize> {
    ring: &'a SharedControl<WORDS>,
    head: u32,
}

impl<'a, const WORDS: usize> SharedReader<'a, WORDS> {
    /// The reader of `ring`.
    pub fn new(ring: &'a SharedControl<WORDS>) -> Self {
        Self { ring, head: ring.head.load(Ordering::Acquire) }
    }
}

impl<const LIST: usize, const WORDS: usize> Fetch<LIST> for SharedReader<'_, WORDS> {
    fn deliver(&mut self, _: u32, _: &[u8]) -> bool {
        false
    }

    fn get(&mut self) -> Option<Entry<LIST>> {
        let tail = self.ring.tail.load(Ordering::Acquire);
        let there = tail.wrapping_sub(self.head);
        if there == 0 {
            return None;
        }
        let mut words = [0; 256];
        for (i, word) in at_most(256, words.iter_mut().enumerate().take((there as usize).min(WORDS))) {
            *word = self.ring.at(self.head.wrapping_add(i as u32)).load(Ordering::Relaxed);
        }
        let decoded = match there as usize <= WORDS {
            true => words.get(..(there as usize).min(256)).and_then(Entry::decode),
            false => None,
        };
        // Invalid content: everything in the ring is skipped.
        let used = decoded.as_ref().map_or(there, |(_, used)| *used as u32);
        self.head = self.head.wrapping_add(used);
        self.ring.head.store(self.head, Ordering::Release);
        decoded.map(|(entry, _)| entry)
    }
}

/// Kinds of TCP options for experiments (RFC 4727), shared by identifiers (RFC 6994).
const TCP_EXPERIMENT: [u8; 2] = [253, 254];
/// Identifier of this experiment (RFC 6994, 16 bits): "Bc". It is not registered.
pub const TCP_EXPERIMENT_ID: [u8; 2] = *b"Bc";
/// Most bytes of options in a TCP header.
pub const TCP_OPTIONS: usize = 40;
/// Bytes of the option before the sizes.
const TCP_HEAD: usize = 12;
/// Flag in the option's fifth byte: sizes have 16 bits.
const TCP_SHORT: u8 = 0x80;

/// (e) A TCP option: kind 253, length, identifier, then
///
/// ```text
/// byte 4       entry's kind (0 part, 1 recall, 2 recalled, 3 sync) in bits 1:0, bit 7: sizes have 16 bits
/// byte 5       round
/// byte 6, 7    part: credits of the list, offset of the part; others: 0
/// byte 8…11    part: number of the list's first credit; others: the number
/// byte 12…     part: sizes, 32 or 16 bits each; all numbers are big-endian
/// ```
///
/// All options of a segment have 40 bytes at most, so a list goes in several segments, as
/// several parts. The TCP connection itself says which connection an entry is for; a new one has
/// a new epoch. Pure acknowledgements carry the option, too, and may be lost: it is said again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpOptions<const LIST: usize> {
    /// The end that arriving entries are for; it plays no part in entries that are sent.
    to: Name,
    /// Bytes that the connection's segments leave for this option.
    room: usize,
    entry: Option<Entry<LIST>>,
}

impl<const LIST: usize> TcpOptions<LIST> {
    /// An end. `to`: name that entries get that come here. `others`: bytes that other options of a
    /// segment take (timestamps: 12). `None`: no size fits.
    pub fn new(to: Name, others: usize) -> Option<Self> {
        let room = TCP_OPTIONS.checked_sub(others)? & !3;
        (room >= TCP_HEAD + 4).then_some(Self { to, room, entry: None })
    }

    /// Reads the option from the options `bytes` of a segment; `None`: none there, or not sound.
    fn read(&self, mut bytes: &[u8]) -> Option<Entry<LIST>> {
        let mut bound = Bound::new(bytes.len() as u32 + 1);
        loop {
            bound.step();
            match *bytes {
                // End of options, no operation.
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => bytes = rest,
                [kind, len, ..] => {
                    let option = bytes.get(..len as usize).filter(|_| len >= 2)?;
                    if TCP_EXPERIMENT.contains(&kind) && option.get(2..4) == Some(&TCP_EXPERIMENT_ID[..]) {
                        return self.decode(option);
                    }
                    bytes = bytes.get(len as usize..)?;
                }
                _ => return None,
            }
        }
    }

    fn decode(&self, option: &[u8]) -> Option<Entry<LIST>> {
        let (&[_, _, _, _, kind, round, total, offset, n0, n1, n2, n3], rest) =
            option.split_first_chunk::<TCP_HEAD>()?;
        let number = u32::from_be_bytes([n0, n1, n2, n3]);
        let mut sizes = [0; LIST];
        let (len, odd) = match kind & TCP_SHORT {
            0 => {
                let (all, odd) = rest.as_chunks::<4>();
                for (to, from) in at_most(LIST, sizes.get_mut(..all.len())?.iter_mut().zip(all)) {
                    *to = u32::from_be_bytes(*from);
                }
                (all.len(), odd)
            }
            _ => {
                let (all, odd) = rest.as_chunks::<2>();
                for (to, from) in at_most(LIST, sizes.get_mut(..all.len())?.iter_mut().zip(all)) {
                    *to = u16::from_be_bytes(*from) as u32;
                }
                (all.len(), odd)
            }
        };
        let plain = len == 0 && total == 0 && offset == 0;
        let body = match kind & !TCP_SHORT {
            0 => Body::List(Part { round, list: number, total, offset, len: len as u8, sizes }),
            1 if plain => Body::Recall { round, first: number },
            2 if plain => Body::Recalled { round, first: number },
            3 if plain => Body::Sync { round, next: number },
            _ => return None,
        };
        let sound = odd.is_empty() && if let Body::List(part) = &body { part.is_sound() } else { true };
        sound.then_some(Entry { to: self.to, body })
    }

    /// Writes the option of an entry; gives its bytes.
    fn encode(entry: &Entry<LIST>, out: &mut [u8]) -> Option<usize> {
        let (kind, round, total, offset, number, sizes) = match &entry.body {
            Body::List(part) => (0, part.round, part.total, part.offset, part.list, part.sizes()),
            Body::Recall { round, first } => (1, *round, 0, 0, *first, &[][..]),
            Body::Recalled { round, first } => (2, *round, 0, 0, *first, &[][..]),
            Body::Sync { round, next } => (3, *round, 0, 0, *next, &[][..]),
        };
        let short = !sizes.is_empty() && sizes.iter().all(|size| *size <= u16::MAX as u32);
        let len = TCP_HEAD + sizes.len() * if short { 2 } else { 4 };
        let (head, rest) = out.get_mut(..len)?.split_first_chunk_mut::<TCP_HEAD>()?;
        let [i0, i1] = TCP_EXPERIMENT_ID;
        let [n0, n1, n2, n3] = number.to_be_bytes();
        let [experiment, _] = TCP_EXPERIMENT;
        let flags = if short { kind | TCP_SHORT } else { kind };
        *head = [experiment, u8::try_from(len).ok()?, i0, i1, flags, round, total, offset, n0, n1, n2, n3];
        match short {
            true => {
                for (to, size) in at_most(LIST, rest.as_chunks_mut::<2>().0.iter_mut().zip(sizes)) {
                    *to = (*size as u16).to_be_bytes();
                }
            }
            false => {
                for (to, size) in at_most(LIST, rest.as_chunks_mut::<4>().0.iter_mut().zip(sizes)) {
                    *to = size.to_be_bytes();
                }
            }
        }
        Some(len)
    }
}

impl<const LIST: usize> Carry<LIST> for TcpOptions<LIST> {
    fn part(&self) -> u32 {
        (((self.room - TCP_HEAD) / 4) as u32).min(LIST as u32)
    }

    fn put(&mut self, entry: &Entry<LIST>) -> bool {
        let mut option = [0; TCP_OPTIONS];
        let fits = Self::encode(entry, &mut option).is_some_and(|len| len <= self.room);
        if self.entry.is_some() || !fits {
            return false;
        }
        self.entry = Some(*entry);
        true
    }

    /// The option for the next segment, padded with "no operation" to whole words.
    fn unit(&mut self, out: &mut [u8]) -> Option<Unit> {
        let len = Self::encode(self.entry.as_ref()?, out)?;
        let padded = len.saturating_add(3) & !3;
        out.get_mut(len..padded)?.fill(1);
        self.entry = None;
        Some(Unit { offset: 0, len: padded })
    }
}

impl<const LIST: usize> Fetch<LIST> for TcpOptions<LIST> {
    /// All options of a segment. Entries of segments that come before [`Fetch::get`] replace each other.
    fn deliver(&mut self, _: u32, bytes: &[u8]) -> bool {
        let entry = self.read(bytes);
        let news = entry.is_some();
        self.entry = entry.or(self.entry.take());
        news
    }

    fn get(&mut self) -> Option<Entry<LIST>> {
        self.entry.take()
    }
}
