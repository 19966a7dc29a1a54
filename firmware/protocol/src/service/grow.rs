// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers that grow when needed (BE-1 … BE-9), for messaging libraries that keep registered
//! buffers per connection: small ones at first, larger ones when an element needs them.
//!
//! One direction of a connection has a [`Sender`] and a [`Receiver`] with sets of equally many, equally large buffers.
//! Enlargement, one *phase*: the sender clears the memory for the answer and asks **through the present buffers**;
//! nothing else is sent in that direction. The receiver provisions the larger set, releases the old one, and writes its
//! [`Answer`] into that memory, repeatedly until something has come through the new set. The sender polls the memory;
//! an incomplete answer counts as "not yet". Then it exchanges its own buffers. No call waits.
//!
//! An element above the size for rendezvous starts no enlargement: an [`Offer`] of it takes a buffer, and its memory is
//! the receiver's to READ until a [`Tally`] says that it was consumed (BE-9).

mod layout;

use crate::base::bound::at_most;
use crate::base::rule::{self, Rule};

pub use layout::{
    ANSWER_AT, CONTROL_BYTES, Frame, HELLO_BYTES, Hello, News, OFFER_BYTES, Offer, Place, REQUEST_BYTES, Request,
    TALLY_AT, TALLY_BYTES, Tally,
};

/// Sizes of the sets, the same at both ends (BE-1, BE-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config<const LEVELS: usize> {
    /// Bytes of one buffer at each level, ascending.
    pub sizes: [u32; LEVELS],
    /// Buffers of a set, at least 2: one is kept for the request.
    pub count: u32,
    /// An element of more than so many percent of a buffer starts enlargement (BE-2), 1 ..= 100.
    pub share: u8,
    /// An element of more bytes is offered to the receiver, who READs it (BE-9); [`u32::MAX`]: none is.
    pub rendezvous: u32,
}

impl Default for Config<2> {
    /// 16 buffers of 512 bytes, then of 8 KiB; enlargement above 75 %. Both directions of an end
    /// take 16 KiB, where a fixed scheme of that many 8 KiB buffers takes 256 KiB (BE-8). Rendezvous for what no buffer
    /// takes: for less, a copy costs less than to register memory and to end that again, which are two system calls.
    fn default() -> Self {
        Self { sizes: [512, 8192], count: 16, share: 75, rendezvous: 8192 }
    }
}

impl<const LEVELS: usize> Config<LEVELS> {
    /// Bytes of one buffer at `level`; beyond the last level that one's.
    pub fn size(&self, level: usize) -> u32 {
        self.sizes.get(level).or(self.sizes.last()).copied().unwrap_or(0)
    }

    /// Bytes of a set at `level`.
    pub fn bytes(&self, level: usize) -> u64 {
        self.size(level) as u64 * self.count as u64
    }

    /// The largest element that goes through buffers of `level`.
    pub fn limit(&self, level: usize) -> u32 {
        match level + 1 < LEVELS {
            true => (self.size(level) as u64 * self.share.clamp(1, 100) as u64 / 100) as u32,
            false => self.size(level),
        }
    }

    /// Whether an element of `len` bytes is offered instead of sent (BE-9).
    pub const fn offers(&self, len: u32) -> bool {
        len > self.rendezvous
    }

    /// Bytes that an element of `len` bytes has in a buffer.
    fn carried(&self, len: u32) -> u32 {
        if self.offers(len) { OFFER_BYTES as u32 } else { len }
    }

    /// A number that is the same at both ends of a connection.
    pub fn digest(&self) -> u32 {
        let rest = layout::checksum(&layout::join::<3, 12>([self.count, self.share as u32, self.rendezvous]));
        let sizes = at_most(LEVELS, self.sizes);
        sizes.fold(rest, |sum, size| layout::checksum(&layout::join::<2, 8>([sum, size])))
    }

    /// The lowest level above `level` whose buffers take an element of `len` bytes.
    fn level_for(&self, level: usize, len: u32) -> Option<usize> {
        (level + 1..LEVELS).find(|l| len <= self.limit(*l))
    }

    /// The level of buffers of `size` bytes.
    pub fn level_of(&self, size: u32) -> Option<usize> {
        self.sizes.iter().position(|s| *s == size)
    }
}

/// Bytes of an answer in memory.
pub const ANSWER_BYTES: usize = 36;

const _: () = assert!(ANSWER_AT + ANSWER_BYTES <= TALLY_AT && CONTROL_BYTES.is_multiple_of(8));

/// The receiver's answer (BE-4). In memory, big-endian: head flag (32 bits, the phase), 1 or 0 for
/// granted or refused (32), address (64), RKey (32), bytes of a buffer (32), buffers (32),
/// CRC-32 of all that (32), tail flag (32, the phase).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Number of the phase; never 0.
    pub phase: u32,
    /// The set is there; else it could not be had.
    pub granted: bool,
    /// Remote address of the set.
    pub addr: u64,
    /// Key for it.
    pub rkey: u32,
    /// Bytes of one buffer.
    pub size: u32,
    /// Buffers.
    pub count: u32,
}

impl Answer {
    /// As it is written into the sender's memory.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut out = [0; ANSWER_BYTES];
        let head = self.phase.to_be_bytes().into_iter().chain((self.granted as u32).to_be_bytes());
        let body = head.chain(self.addr.to_be_bytes()).chain(self.rkey.to_be_bytes());
        let body = body.chain(self.size.to_be_bytes()).chain(self.count.to_be_bytes());
        for (place, byte) in at_most(ANSWER_BYTES, out.iter_mut().zip(body)) {
            *place = byte;
        }
        let tail = checksum(&out).to_be_bytes().into_iter().chain(self.phase.to_be_bytes());
        for (place, byte) in at_most(8, out.iter_mut().skip(28).zip(tail)) {
            *place = byte;
        }
        out
    }

    /// The answer of `phase` if all of it is in `memory`, else `None`: not yet (BE-7).
    pub fn decode(memory: &[u8], phase: u32) -> Option<Self> {
        let word = |i: usize| memory.get(i..i + 4).map(|b| b.iter().fold(0, |w, b| w << 8 | *b as u32));
        let flags = word(0)? == phase && word(32)? == phase && word(28)? == checksum(memory) && word(4)? <= 1;
        if phase == 0 || !rule::holds(Rule::AnswerWhole, flags) {
            return None;
        }
        Some(Self {
            phase,
            granted: word(4)? == 1,
            addr: (word(8)? as u64) << 32 | word(12)? as u64,
            rkey: word(16)?,
            size: word(20)?,
            count: word(24)?,
        })
    }
}

/// CRC-32 of what lies before it.
fn checksum(memory: &[u8]) -> u32 {
    layout::checksum(memory.get(..28).unwrap_or(&[]))
}

/// Why a message failed. The buffers are as they were, and the connection goes on (BE-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrowError {
    /// An element is larger than the largest buffer.
    TooLarge,
    /// The peer has no memory for larger buffers.
    PeerRefused,
    /// There is no memory for larger buffers here.
    NoMemory,
    /// The peer's answer does not fit the request.
    BadAnswer,
}

/// What became of a message. Call again with the elements that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The first `elements` go out now, each in one buffer, from buffer `slot` on, cyclically.
    Now {
        /// Elements, may be 0 for a message that has none.
        elements: usize,
        /// Number of the first buffer.
        slot: u32,
        /// Where that set is: `None` for the first, which both ends know from the beginning.
        remote: Option<Remote>,
    },
    /// Zero bytes yet: larger buffers are on their way, or all buffers are in use (BE-2, BE-7).
    NotYet,
}

/// Where the receiver's set is; buffer `i` at `addr + i * size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Remote address.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
    /// Bytes of a buffer.
    pub size: u32,
}

/// What the sender does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderAction {
    /// Clear the memory for the answer: both flags 0 (BE-4).
    Clear,
    /// Send this control message in buffer `slot` of the present set (BE-2).
    Request {
        /// Number of the phase.
        phase: u32,
        /// Bytes of the buffers that are wanted.
        size: u32,
        /// Buffer that it goes in.
        slot: u32,
    },
    /// Register `count` send buffers of `size` bytes; then [`Sender::provisioned`].
    Provision {
        /// Bytes of one.
        size: u32,
        /// How many.
        count: u32,
    },
    /// Unregister and free the `count` send buffers of `size` bytes (BE-5).
    Free {
        /// Bytes of one.
        size: u32,
        /// How many.
        count: u32,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Steady,
    /// To clear the answer's memory, then to ask.
    Clear(usize),
    Ask(usize),
    /// The request is out.
    Waiting(usize),
    /// To register its own buffers.
    Own(usize),
    Owning(usize),
    /// To free the old ones, of that level.
    Old(usize),
    Failed(GrowFail),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GrowFail {
    Peer,
    Own,
    Bad,
}

/// The sending end of one direction. Phases are numbered 1 ..= `PHASES`, cyclically; there are at least two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender<const LEVELS: usize, const PHASES: u32 = { u32::MAX }> {
    config: Config<LEVELS>,
    /// Level of its own buffers, and of the receiver's.
    own: usize,
    peer: usize,
    remote: Option<Remote>,
    /// Buffers of the receiver that are free, and the next of them.
    free: u32,
    slot: u32,
    /// Number of the last phase asked for, and of that which made the receiver's present set.
    phase: u32,
    set: u32,
    state: State,
}

impl<const LEVELS: usize, const PHASES: u32> Sender<LEVELS, PHASES> {
    /// Both ends have registered their sets of the first level.
    pub fn new(config: Config<LEVELS>) -> Self {
        const { assert!(LEVELS >= 1 && PHASES >= 2) };
        let config = Config { count: config.count.max(2), ..config };
        let (phase, set) = (0, 0);
        Self { config, own: 0, peer: 0, remote: None, free: config.count, slot: 0, phase, set, state: State::Steady }
    }

    /// Sends as much as possible of a message whose elements have these lengths in bytes. It is cut before its first
    /// element that is too large (BE-6); if that is the first one, larger buffers are asked for and zero bytes were
    /// transferred (BE-2).
    ///
    /// # Errors
    /// [`GrowError`]; reported once, then the message may be tried again.
    pub fn send(&mut self, elements: &[u32]) -> Result<Progress, GrowError> {
        if let State::Failed(why) = self.state {
            self.state = State::Steady;
            return Err(match why {
                GrowFail::Peer => GrowError::PeerRefused,
                GrowFail::Own => GrowError::NoMemory,
                GrowFail::Bad => GrowError::BadAnswer,
            });
        }
        if !rule::holds(Rule::QuietWhileGrowing, self.state == State::Steady) {
            return Ok(Progress::NotYet);
        }
        let level = self.own.min(self.peer);
        let limit = self.config.limit(level);
        let room = self.unused();
        let fit = elements.iter().take_while(|len| self.config.carried(**len) <= limit).count();
        let now = fit.min(room as usize);
        if now > 0 || elements.is_empty() {
            let slot = self.take(now as u32);
            return Ok(Progress::Now { elements: now, slot, remote: self.remote });
        }
        let Some(len) = elements.first().map(|len| self.config.carried(*len)).filter(|_| fit == 0) else {
            return Ok(Progress::NotYet);
        };
        let target = self.config.level_for(level, len).ok_or(GrowError::TooLarge)?;
        self.state = match target > self.peer {
            true => State::Clear(target),
            false => State::Own(target),
        };
        Ok(Progress::NotYet)
    }

    /// What to do next; call until `None`.
    pub fn poll(&mut self) -> Option<SenderAction> {
        let count = self.config.count;
        match self.state {
            State::Clear(target) => {
                self.phase = if self.phase >= PHASES { 1 } else { self.phase + 1 };
                self.state = State::Ask(target);
                Some(SenderAction::Clear)
            }
            // Through the present buffers, when one is free.
            State::Ask(target) if self.free > 0 => {
                let slot = self.take(1);
                self.state = State::Waiting(target);
                Some(SenderAction::Request { phase: self.phase, size: self.config.size(target), slot })
            }
            State::Own(target) => {
                self.state = State::Owning(target);
                Some(SenderAction::Provision { size: self.config.size(target), count })
            }
            State::Old(level) => {
                self.state = State::Steady;
                Some(SenderAction::Free { size: self.config.size(level), count })
            }
            _ => None,
        }
    }

    /// Looks at the memory for the answer. True when there was one; false is "not yet" (BE-7).
    pub fn look(&mut self, memory: &[u8]) -> bool {
        let State::Waiting(target) = self.state else {
            return false;
        };
        let Some(answer) = Answer::decode(memory, self.phase) else {
            return false;
        };
        if !answer.granted {
            self.state = State::Failed(GrowFail::Peer);
            return true;
        }
        let whole = answer.addr.checked_add(answer.size as u64 * answer.count as u64).is_some();
        if answer.size != self.config.size(target) || answer.count != self.config.count || !whole {
            self.state = State::Failed(GrowFail::Bad);
            return true;
        }
        (self.peer, self.set) = (target, self.phase);
        self.remote = Some(Remote { addr: answer.addr, rkey: answer.rkey, size: answer.size });
        (self.free, self.slot) = (self.config.count, 0);
        self.state = State::Own(target);
        true
    }

    /// The buffers of [`SenderAction::Provision`] are registered, or could not be: then the small ones stay in use,
    /// with the receiver's larger ones. False when none were awaited.
    pub fn provisioned(&mut self, done: bool) -> bool {
        let State::Owning(target) = self.state else {
            return false;
        };
        if done {
            self.state = State::Old(self.own);
            self.own = target;
        } else {
            self.state = State::Failed(GrowFail::Own);
        }
        true
    }

    /// The receiver has `n` more free buffers in the set of `phase` (0: the first set). Those of
    /// an older set do not count.
    pub fn released(&mut self, phase: u32, n: u32) {
        if phase == self.set {
            self.free = self.free.saturating_add(n).min(self.config.count);
        }
    }

    /// Elements that [`Sender::send`] would take now if they are not too large.
    pub fn room(&self) -> u32 {
        if self.state == State::Steady { self.unused() } else { 0 }
    }

    /// Free buffers without the one that is kept for a request, while there may be one.
    fn unused(&self) -> u32 {
        let kept = (self.peer + 1 < LEVELS) as u32;
        self.free.saturating_sub(kept)
    }

    /// Where the receiver's set is, as [`Progress::Now`] says.
    pub const fn remote(&self) -> Option<Remote> {
        self.remote
    }

    /// Bytes that this end has registered for the direction.
    pub fn memory(&self) -> u64 {
        match self.state {
            // Both, for a moment.
            State::Old(level) => self.config.bytes(self.own) + self.config.bytes(level),
            _ => self.config.bytes(self.own),
        }
    }

    /// Levels of (its own buffers, the receiver's).
    pub const fn levels(&self) -> (usize, usize) {
        (self.own, self.peer)
    }

    /// Whether larger buffers are under way.
    pub fn growing(&self) -> bool {
        !matches!(self.state, State::Steady | State::Failed(_))
    }

    fn take(&mut self, n: u32) -> u32 {
        let slot = self.slot;
        self.free = self.free.saturating_sub(n);
        self.slot = slot.wrapping_add(n).checked_rem(self.config.count).unwrap_or(0);
        slot
    }
}

/// What the receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiverAction {
    /// Register `count` buffers of `size` bytes; then [`Receiver::provisioned`].
    Provision {
        /// Bytes of one.
        size: u32,
        /// How many.
        count: u32,
    },
    /// Write this into the sender's memory, by RDMA.
    Answer(Answer),
    /// Free the `count` buffers of `size` bytes.
    Free {
        /// Bytes of one.
        size: u32,
        /// How many.
        count: u32,
    },
    /// Tell the sender: [`Sender::released`].
    Release {
        /// Phase that made the set; 0 is the first set.
        phase: u32,
        /// Buffers.
        n: u32,
    },
}

/// A replaced set with messages in it that were not consumed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct OldSet {
    level: usize,
    used: u32,
}

/// The receiving end of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver<const LEVELS: usize> {
    config: Config<LEVELS>,
    level: usize,
    /// Phase that made the present set.
    set: u32,
    /// Messages in it, and free buffers that the sender was not told of.
    used: u32,
    freed: u32,
    /// Requests in it that stand behind messages, and messages up to the last of them. The sender uses buffers in turn, so
    /// one is free for it only when those before are.
    held: u32,
    before: u32,
    /// Older sets, by level.
    old: [Option<OldSet>; LEVELS],
    /// Phase that is being answered, and the level that is wanted.
    phase: u32,
    wanted: Option<usize>,
    asked: bool,
    answer: Option<Answer>,
    answer_due: bool,
}

impl<const LEVELS: usize> Receiver<LEVELS> {
    /// The other end of [`Sender::new`].
    pub fn new(config: Config<LEVELS>) -> Self {
        Self {
            config: Config { count: config.count.max(2), ..config },
            level: 0,
            set: 0,
            used: 0,
            freed: 0,
            held: 0,
            before: 0,
            old: [None; LEVELS],
            phase: 0,
            wanted: None,
            asked: false,
            answer: None,
            answer_due: false,
        }
    }

    /// A message of one element has come in a buffer of the present set. False when none was free.
    pub fn message(&mut self) -> bool {
        if self.used.saturating_add(self.freed).saturating_add(self.held) >= self.config.count {
            return false;
        }
        self.used += 1;
        // A message through the new set proves that its answer was seen.
        self.answer = None;
        self.answer_due = false;
        true
    }

    /// A request has come in a buffer of the present set, which is free again when all messages before it are consumed. A
    /// repeat is answered again.
    /// False when it asks for an impossible set; then it is refused.
    pub fn request(&mut self, phase: u32, size: u32) -> bool {
        if phase == self.phase {
            self.answer_due = self.answer.is_some();
            return true;
        }
        self.phase = phase;
        self.held = self.held.saturating_add(1).min(self.config.count);
        self.before = self.used;
        self.let_go(0);
        let level = self.config.level_of(size).filter(|l| *l > self.level);
        self.answer = None;
        self.wanted = level;
        self.asked = false;
        if level.is_none() {
            self.say(None);
        }
        level.is_some()
    }

    /// The set of [`ReceiverAction::Provision`] is registered at (address, RKey), or could not be:
    /// then the present one stays. False when none was awaited.
    pub fn provisioned(&mut self, place: Option<(u64, u32)>) -> bool {
        let (Some(level), true) = (self.wanted, self.asked) else {
            return false;
        };
        self.wanted = None;
        if let Some((addr, rkey)) = place {
            let used = self.used;
            if let Some(old) = self.old.get_mut(self.level) {
                *old = Some(OldSet { level: self.level, used });
            }
            (self.level, self.set, self.used, self.freed) = (level, self.phase, 0, 0);
            (self.held, self.before) = (0, 0);
            self.say(Some((addr, rkey)));
        } else {
            self.say(None);
        }
        true
    }

    /// The application has consumed the oldest `n` messages. False when there are not so many;
    /// then nothing changes.
    pub fn consumed(&mut self, n: u32) -> bool {
        if n > self.waiting() {
            return false;
        }
        let mut left = n;
        // Sets grow only, so that older messages are at lower levels.
        for old in at_most(LEVELS, self.old.iter_mut().flatten()) {
            let part = left.min(old.used);
            old.used -= part;
            left -= part;
        }
        self.used = self.used.saturating_sub(left);
        self.freed = self.freed.saturating_add(left);
        self.let_go(left);
        true
    }

    /// `n` messages of the present set are consumed: requests behind which none is left are free.
    fn let_go(&mut self, n: u32) {
        self.before = self.before.saturating_sub(n);
        if self.before == 0 {
            self.freed = self.freed.saturating_add(self.held).min(self.config.count);
            self.held = 0;
        }
    }

    /// Messages that were not consumed yet.
    pub fn waiting(&self) -> u32 {
        self.old.iter().flatten().fold(self.used, |sum, o| sum.saturating_add(o.used))
    }

    /// What to do next; call until `None`.
    pub fn poll(&mut self) -> Option<ReceiverAction> {
        let count = self.config.count;
        for place in at_most(LEVELS, &mut self.old) {
            if let Some(old) = place.filter(|o| o.used == 0) {
                *place = None;
                return Some(ReceiverAction::Free { size: self.config.size(old.level), count });
            }
        }
        if let Some(level) = self.wanted.filter(|_| !self.asked) {
            self.asked = true;
            return Some(ReceiverAction::Provision { size: self.config.size(level), count });
        }
        if let Some(answer) = self.answer.filter(|_| self.answer_due) {
            self.answer_due = false;
            return Some(ReceiverAction::Answer(answer));
        }
        // Not while the set is about to be replaced.
        let n = self.freed;
        if n > 0 && self.wanted.is_none() {
            self.freed = 0;
            return Some(ReceiverAction::Release { phase: self.set, n });
        }
        None
    }

    /// Some time has passed since the last answer: writes it again if nothing shows that it was
    /// seen. False when there is nothing to write.
    pub fn repeat(&mut self) -> bool {
        self.answer_due = self.answer.is_some();
        self.answer_due
    }

    /// Bytes that this end has registered for the direction.
    pub fn memory(&self) -> u64 {
        let old = self.old.iter().flatten().map(|o| self.config.bytes(o.level));
        old.fold(self.config.bytes(self.level), |sum, b| sum.saturating_add(b))
    }

    /// Level of the present set.
    pub const fn level(&self) -> usize {
        self.level
    }

    fn say(&mut self, place: Option<(u64, u32)>) {
        let (addr, rkey) = place.unwrap_or_default();
        let (size, count) = (self.config.size(self.level), self.config.count);
        let granted = place.is_some();
        self.answer = Some(Answer { phase: self.phase, granted, addr, rkey, size, count });
        self.answer_due = true;
    }
}

/// Receive memory of one end for many connections, under three schemes (BE-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Footprint {
    /// Every connection has a set of the largest buffers.
    pub fixed: u64,
    /// One pool for all, as large as what may arrive at a time.
    pub shared: u64,
    /// Every connection has a small set, those that needed it a large one.
    pub growing: u64,
}

impl Footprint {
    /// Bytes for `connections`, of which `large` have grown to the last level, against a shared
    /// pool of `pool` of the largest buffers.
    pub fn of<const LEVELS: usize>(config: &Config<LEVELS>, connections: u64, large: u64, pool: u64) -> Self {
        let large = large.min(connections);
        let (small, big) = (config.bytes(0), config.bytes(LEVELS - 1));
        Self {
            fixed: connections.saturating_mul(big),
            shared: pool.saturating_mul(config.size(LEVELS - 1) as u64),
            growing: (connections - large).saturating_mul(small).saturating_add(large.saturating_mul(big)),
        }
    }

    /// From so many connections on, none of them grown, a shared pool of `pool` of the largest
    /// buffers takes less than growing ones.
    pub fn crossover<const LEVELS: usize>(config: &Config<LEVELS>, pool: u64) -> u64 {
        let shared = pool.saturating_mul(config.size(LEVELS - 1) as u64);
        shared.checked_div(config.bytes(0)).unwrap_or(u64::MAX).saturating_add(1)
    }
}
