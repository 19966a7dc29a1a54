// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requester: messages are cut into packets, sent, sent again, and complete in order.

use super::packet::credit_count;
use super::{
    Bitmap, Kind, MAX_FLIGHT, MAX_WINDOW, NOT_YET_TIMER, NakCode, NotReady, Placement, Position, Psn, Reach, Remote,
    RequestPacket, ResponseBody, ResponsePacket, RoundTrip, Syndrome, Tries, Wide, Window, Witness, Woken, packets,
    rnr_time,
};
use crate::base::bound::{Bound, at_most};
use crate::base::rule::{self, Rule};

/// Packets behind its PSN that an acknowledgement with a SACK tells of.
const SACK_REACH: u32 = 128;
/// The first probe, while the round trip is not known, waits for so many times the least time.
const FIRST_PROBE: u64 = 32;
/// Most doublings of the time until the next probe.
const MAX_PROBES: u8 = 15;

/// What a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// SEND: one piece, that is one credit and one receive (decision 1).
    #[default]
    Send,
    /// RDMA WRITE; with immediate data it uses a receive.
    Write,
    /// RDMA READ.
    Read,
    /// Compare-and-swap of 64 bits.
    CompareSwap {
        /// What must stand there.
        compare: u64,
        /// What is put there.
        swap: u64,
    },
    /// Fetch-and-add of 64 bits.
    FetchAdd {
        /// What is added.
        add: u64,
    },
    /// DELAY (QP-5): the following messages wait for so many units of `now`.
    Delay(u32),
    /// Something that the card does itself in its turn, without packets: BIND, UNBIND (QP-4), a send of no bytes in stream mode.
    Local,
}

impl Op {
    const fn kind(self) -> Option<Kind> {
        Some(match self {
            Self::Send => Kind::Send,
            Self::Write => Kind::Write,
            Self::Read => Kind::Read,
            Self::CompareSwap { .. } => Kind::CompareSwap,
            Self::FetchAdd { .. } => Kind::FetchAdd,
            Self::Delay(_) | Self::Local => return None,
        })
    }
    const fn answered(self) -> bool {
        match self.kind() {
            Some(kind) => kind.answered(),
            None => false,
        }
    }
}

/// Immediate data of a message's last packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Immediate {
    /// None.
    #[default]
    None,
    /// The user's own (message mode).
    Value(u32),
    /// None: a SEND with invalidate, of this key, has an IETH in its place.
    Invalidate(u32),
    /// Bytes remaining (CR-9): those posted, by [`Requester::posted`], less those up to the
    /// message's end, computed each time the packet leaves.
    Remaining,
}

/// An entry of the message log, which is the piece log of decision 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    /// What it is.
    pub op: Op,
    /// The caller's own: given back in [`Transmit`], [`Outcome`] and [`Completion`].
    pub tag: u32,
    /// Stream offset of its first byte, or another number by which the caller finds its bytes.
    pub offset: u64,
    /// Bytes; 8 of an atomic.
    pub len: u32,
    /// Number of the credit that it uses, if it uses one.
    pub credit: u32,
    /// Immediate data.
    pub imm: Immediate,
    /// Range of the responder's memory (not of a SEND).
    pub remote: Remote,
    /// Waits until READs and atomics before it are complete.
    pub fence: bool,
    /// PUSH.
    pub solicited: bool,
}

impl Message {
    /// It uses a receive of the responder.
    const fn receives(&self) -> bool {
        matches!(self.op, Op::Send) || (matches!(self.op, Op::Write) && !matches!(self.imm, Immediate::None))
    }
}

/// The log is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full;

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It has arrived.
    Done,
    /// No answer after all retries.
    RetryExceeded,
    /// The responder had no receive, after all retries.
    NotReady,
    /// The responder refuses it as malformed.
    InvalidRequest,
    /// The responder refuses the access (QP-11).
    AccessRefused,
    /// The responder's end is broken.
    RemoteError,
    /// There is no such QP, or the Q_Key is wrong (reliable datagram).
    InvalidDatagram,
    /// One before it has failed.
    Flushed,
}

/// A message is over. Completions come in the order of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// [`Message::tag`].
    pub tag: u32,
    /// Bytes.
    pub len: u32,
    /// How.
    pub status: Status,
}

/// A packet that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// The packet.
    pub packet: RequestPacket,
    /// [`Message::tag`].
    pub tag: u32,
    /// Where its payload begins: the message's `offset` and what lies before it in the message.
    pub offset: u64,
    /// It was sent before.
    pub again: bool,
}

/// What a response packet means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing new.
    Nothing,
    /// Something has been acknowledged or asked for again: call `complete` and `transmit`.
    Progress,
    /// The packet's payload of `len` bytes belongs to message `tag` at `offset`. Place it before completions are taken.
    Read {
        /// [`Message::tag`].
        tag: u32,
        /// As in [`Transmit`].
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// What stood there before the atomic `tag`.
    Atomic {
        /// [`Message::tag`].
        tag: u32,
        /// [`Message::offset`].
        offset: u64,
        /// Value.
        original: u64,
    },
    /// Impossible: to be counted; nothing has changed.
    Bad,
    /// The connection is broken: `complete` tells what becomes of the messages.
    Failed,
}

/// Why nothing is sent for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The responder has no receive for the packet with this PSN (RNR).
    Receive(u32),
    /// The memory of the operation that the packet with this PSN is part of is not resident (PC-4): a GO ends it early.
    Memory(u32),
}

/// What was agreed at connect, and what the user has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequesterConfig {
    /// log2 of the path MTU in bytes.
    pub log2_mtu: u8,
    /// Packets on their way, at most the window's size and [`super::MAX_FLIGHT`].
    pub window: u16,
    /// Selective repeat, else go-back-N.
    pub selective: bool,
    /// Packets that overtake one before it counts as lost (selective repeat).
    pub reorder: u8,
    /// The peer's credit counts in AETHs hold us (peers without credit lists).
    pub count_credits: bool,
    /// Time-out in units of `now`, of what is not acknowledged at all. One that is shorter than two round trips counts as
    /// two round trips.
    pub timeout: u32,
    /// Least time in units of `now` without news until a packet goes again as a probe (selective repeat); else
    /// two round trips, which are measured. It doubles with each probe, and there is none that would come later than
    /// the time-out. 0: no probes.
    pub probe: u32,
    /// Units of `now` in 10 µs, for RNR timers.
    pub tick: u32,
    /// Time-outs in a row before it fails; 0: never.
    pub retries: u8,
    /// RNR NAKs in a row before it fails; 7 or more: never (IBTA 9.7.5.2.8).
    pub rnr_retries: u8,
    /// READs (of [`RequesterConfig::read_log2`] packets at most) and atomics under way; at least 1.
    pub reads: u8,
    /// log2 of the packets that one READ request asks for at most; no more than the window.
    pub read_log2: u8,
}

impl RequesterConfig {
    /// Between Berth ends: selective repeat. `log2_mtu` of the MTU, `window` in packets, `timeout` in units of `now`.
    pub const fn berth(log2_mtu: u8, window: u16, timeout: u32) -> Self {
        Self {
            log2_mtu,
            window,
            selective: true,
            reorder: 3,
            count_credits: false,
            timeout,
            probe: 0,
            tick: 2500,
            retries: 7,
            rnr_retries: 7,
            reads: 4,
            read_log2: if window >= 16 { 3 } else { 0 },
        }
    }

    /// With a peer that is not Berth: go-back-N and count credits.
    pub const fn foreign(log2_mtu: u8, window: u16, timeout: u32) -> Self {
        let berth = Self::berth(log2_mtu, window, timeout);
        Self { selective: false, reorder: 0, count_credits: true, ..berth }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    message: Message,
    /// PSNs that it takes; 0 of one without packets.
    packets: u32,
    /// PSNs that have left at least once.
    sent: u32,
}

/// One end that sends requests. `M`: messages in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requester<const BITS: u32, const W: usize, const M: usize> {
    config: RequesterConfig,
    window: Window<BITS, W, Wide>,
    /// The resent packet that proves others lost (selective repeat).
    witness: Witness<Wide>,
    /// When it left, or the first one that left together with it.
    witness_left: u64,
    /// Messages from the oldest on; the entry of number `i` lies at `(base + i) % M`.
    log: [Entry; M],
    base: u16,
    len: u16,
    /// Messages at the front that are over and not yet reported.
    over: u16,
    /// The message that the next new packet belongs to, counted from the front.
    cursor: u16,
    /// Packets of the first message that is not over that lie below the window.
    below: u32,
    /// Packets since an acknowledgement was asked for.
    since_ack: u16,
    /// Bytes posted, cumulative.
    posted: u64,
    /// Messages begun, 24 bits (SSN); each request of a READ is one.
    begun: u32,
    /// Messages that may be begun if they use a receive (LSN). None: any.
    allowed: Option<u32>,
    tries: Tries,
    rnr: NotReady,
    wait: Option<Wait>,
    /// The last GO that came for an operation that is not acknowledged: it may overtake its NAK.
    go: Option<u32>,
    /// The wait that a GO ended, until its packet is acknowledged.
    woken: Woken,
    /// Acknowledgement time-out, or the end of the wait.
    deadline: Option<u64>,
    /// When a packet goes again as a probe.
    probe_at: Option<u64>,
    /// Probes since the round trip was measured.
    probes: u8,
    /// The next resent packet is a probe, or goes because of a time-out.
    probing: bool,
    round: RoundTrip,
    /// A packet whose acknowledgement will tell the round trip, and when it left.
    timed: Option<(u32, u64)>,
    /// The end of a DELAY that is being waited for.
    delay: Option<u64>,
    failed: Option<Status>,
}

impl<const BITS: u32, const W: usize, const M: usize> Requester<BITS, W, M> {
    /// A requester whose first packet has PSN `psn`.
    pub fn new(config: RequesterConfig, psn: u32) -> Self {
        const { assert!(M >= 1 && M < 0x8000) };
        let window = (config.window as u32).min(MAX_FLIGHT).clamp(1, W as u32);
        let read_log2 = config.read_log2.min(window.ilog2() as u8);
        Self {
            config: RequesterConfig { window: window as u16, read_log2, reads: config.reads.max(1), ..config },
            window: Window::new(Psn::new(psn)),
            witness: Witness::NONE,
            witness_left: 0,
            log: [Entry::default(); M],
            base: 0,
            len: 0,
            over: 0,
            cursor: 0,
            below: 0,
            since_ack: 0,
            posted: 0,
            begun: 0,
            allowed: None,
            tries: Tries::NONE,
            rnr: NotReady::NONE,
            wait: None,
            go: None,
            woken: Woken::NONE,
            deadline: None,
            probe_at: None,
            probes: 0,
            probing: false,
            round: RoundTrip::default(),
            timed: None,
            delay: None,
            failed: None,
        }
    }

    /// Message sequence numbers are as wide as PSNs.
    const MSN_MASK: u32 = Psn::<BITS>::MASK;

    fn place(&self, i: u16) -> usize {
        (self.base as usize + i as usize) % M
    }

    fn entry(&self, i: u16) -> &Entry {
        &self.log[self.place(i) % M]
    }

    fn entry_mut(&mut self, i: u16) -> &mut Entry {
        let place = self.place(i);
        &mut self.log[place % M]
    }

    /// Messages that may be posted now.
    pub fn room(&self) -> usize {
        M - self.len as usize
    }

    /// Messages posted whose completion has not been taken.
    pub fn pending(&self) -> usize {
        self.len as usize
    }

    /// The window, to inspect.
    pub const fn window(&self) -> &Window<BITS, W, Wide> {
        &self.window
    }

    /// Some packets are on their way or to be sent again.
    pub const fn busy(&self) -> bool {
        self.window.flight() != 0
    }

    /// Something new is to be sent as soon as window and waits allow it.
    pub const fn has_new(&self) -> bool {
        self.cursor != self.len
    }

    /// Why nothing is sent for the time being, if it is so.
    pub const fn waiting(&self) -> Option<Wait> {
        self.wait
    }

    /// Why the connection is broken, if it is.
    pub const fn failed(&self) -> Option<Status> {
        self.failed
    }

    /// Appends a message. A SEND (or WRITE with immediate) may only be posted with a credit that covers it.
    ///
    /// # Errors
    /// [`Full`]: the log has no room.
    pub fn post(&mut self, message: Message) -> Result<(), Full> {
        if self.len as usize >= M {
            return Err(Full);
        }
        let count = match message.op {
            Op::Delay(_) | Op::Local => 0,
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => 1,
            Op::Send | Op::Write | Op::Read => packets(message.len, self.config.log2_mtu),
        };
        let i = self.len;
        *self.entry_mut(i) = Entry { message, packets: count, sent: 0 };
        self.len += 1;
        Ok(())
    }

    /// Bytes that the user has posted so far, cumulative (CR-9).
    pub fn posted(&mut self, bytes: u64) {
        self.posted = bytes;
    }

    /// The message and the packet of it at place `n` of the window (below `flight`).
    fn locate(&self, n: u32) -> Option<(u16, u32)> {
        let mut at = n + self.below;
        for i in at_most(M, self.over..self.len) {
            let entry = self.entry(i);
            if at < entry.sent {
                return Some((i, at));
            }
            at = at.checked_sub(entry.packets)?;
        }
        None
    }

    /// The packets in the window that wait for an answer of their own (READs and atomics).
    fn answers(&self) -> Wide {
        let mut bits = Wide::ZERO;
        let mut at = 0;
        let mut below = self.below;
        for i in at_most(M, self.over..self.len) {
            let entry = self.entry(i);
            let sent = entry.sent.saturating_sub(below);
            below = 0;
            if entry.message.op.answered() {
                bits |= Wide::ones(sent).up(at);
            }
            at += sent;
            if entry.sent < entry.packets {
                break;
            }
        }
        bits
    }

    /// READ requests and atomics that wait for answers.
    fn reading(&self) -> u32 {
        let mut count = 0;
        let mut below = self.below;
        for i in at_most(M, self.over..self.len) {
            let entry = self.entry(i);
            if entry.message.op.answered() {
                let chunk = self.config.read_log2 as u32 & 31;
                count += ((entry.sent + u32::ones(chunk)) >> chunk) - (below >> chunk);
            }
            below = 0;
        }
        count
    }

    /// The packet `index` of message `i`, and for a READ how many it asks for.
    fn packet(&self, i: u16, index: u32, run: u32, psn: Psn<BITS>, ack_request: bool) -> Option<Transmit> {
        let entry = self.entry(i);
        let m = &entry.message;
        let kind = m.op.kind()?;
        let log2 = self.config.log2_mtu & 31;
        let before = (index as u64) << log2;
        let rest = (m.len as u64).saturating_sub(before);
        let payload = rest.min(1 << log2) as u32;
        let mut packet = RequestPacket { psn: psn.get(), kind, ack_request, ..Default::default() };
        match m.op {
            Op::Send | Op::Write => {
                let position = Position::at(index, entry.packets);
                packet.len = payload;
                packet.position = position;
                if position.ends() {
                    packet.solicited = m.solicited;
                    if let Immediate::Invalidate(key) = m.imm {
                        packet.invalidate = Some(key);
                    }
                    packet.imm = match m.imm {
                        Immediate::None | Immediate::Invalidate(_) => None,
                        Immediate::Value(value) => Some(value),
                        Immediate::Remaining => {
                            let left = self.posted.saturating_sub(m.offset.saturating_add(m.len as u64));
                            Some(left.min(u32::MAX as u64) as u32)
                        }
                    };
                }
                let write = kind == Kind::Write;
                if write && (position.begins() || self.config.selective) {
                    packet.remote = Some(m.remote);
                }
                if self.config.selective {
                    let credit = if write { 0 } else { m.credit as u8 };
                    packet.placement = Some(Placement { credit, index });
                    if write {
                        packet.position = Position::Only;
                    }
                }
            }
            Op::Read => {
                let len = rest.min((run as u64) << log2) as u32;
                packet.remote = Some(Remote { va: m.remote.va.wrapping_add(before), key: m.remote.key, len });
            }
            Op::CompareSwap { compare, swap } => {
                packet.operands = [swap, compare];
                packet.remote = Some(Remote { len: 8, ..m.remote });
            }
            Op::FetchAdd { add } => {
                packet.operands = [add, 0];
                packet.remote = Some(Remote { len: 8, ..m.remote });
            }
            Op::Delay(_) | Op::Local => return None,
        }
        Some(Transmit { packet, tag: m.tag, offset: m.offset.wrapping_add(before), again: false })
    }

    /// The time-out: what was set, or two round trips.
    fn timeout(&self) -> u64 {
        self.round.twice(self.config.timeout as u64, 0)
    }

    /// Longest round trip of late, as it was measured; 0: not known.
    pub const fn round_trip(&self) -> u32 {
        self.round.get()
    }

    fn arm(&mut self, now: u64) {
        self.deadline = Some(now.saturating_add(self.tries.back_off(self.timeout())));
    }

    /// The time of the next probe counts from now.
    fn arm_probe(&mut self, now: u64) {
        let least = self.config.probe as u64;
        let time = self.round.twice(least, least * FIRST_PROBE) << self.probes.min(MAX_PROBES);
        let probes = self.config.selective && least != 0 && self.window.flight() != 0 && time < self.timeout();
        self.probe_at = probes.then_some(now.saturating_add(time));
    }

    /// One packet goes again: the newest one if that is to be tried (`newest`), only the end of what was sent can be
    /// missing and a SACK reaches that far; else the oldest one, which the peer always answers. All unanswered READs
    /// and atomics go again, because they are few. The probe's acknowledgement tells what else is lost. If the peer
    /// keeps no early packets, all go again.
    fn ask_again(&mut self, newest: bool) {
        let (flight, answers) = (self.window.flight(), self.answers());
        if !self.config.selective || rule::broken(Rule::ProbeAlone) {
            self.window.lose_from(0);
        } else if answers & Wide::bit(0) != Wide::ZERO {
            self.window.lose(answers);
        } else if newest && answers == Wide::ZERO && self.window.done() == Wide::ZERO && flight <= SACK_REACH {
            self.window.lose(Wide::bit(flight.saturating_sub(1)));
        } else {
            self.window.lose(Wide::bit(0));
        }
        self.probing = self.config.selective;
    }

    /// A packet is acknowledged; if its round trip is being measured, the measurement ends.
    fn measure(&mut self, news: Wide, now: u64) {
        let Some((psn, left)) = self.timed else { return };
        let its = Wide::bit(Psn::<BITS>::new(psn).since(self.window.una()));
        if news & its == Wide::ZERO {
            return;
        }
        self.timed = None;
        // For a resent packet it is unknown which copy has come (Karn).
        if self.witness.again() & its == Wide::ZERO {
            self.round.measure(now.saturating_sub(left));
            self.probes = 0;
        }
    }

    /// The next packet that is to leave at `now`, if there is one. It counts as sent.
    pub fn transmit(&mut self, now: u64) -> Option<Transmit> {
        if self.failed.is_some() || self.wait.is_some() {
            return None;
        }
        let sent = match self.window.next_lost() {
            Some(n) => self.transmit_again(n, now),
            None => self.transmit_new(now),
        };
        if let Some(packet) = sent {
            if self.deadline.is_none() {
                self.arm(now);
            }
            if self.probe_at.is_none() || packet.again {
                self.arm_probe(now);
            }
            if self.config.probe != 0 && self.timed.is_none() && !packet.again {
                self.timed = Some((packet.packet.psn, now));
            }
        }
        sent
    }

    fn transmit_again(&mut self, n: u32, now: u64) -> Option<Transmit> {
        let (i, index) = self.locate(n)?;
        let entry = self.entry(i);
        let run = match entry.message.op {
            Op::Read => {
                // Also the rest of the request that it was part of.
                let chunk = 1 << (self.config.read_log2 & 31);
                let end = ((index | (chunk - 1)).saturating_add(1)).min(entry.sent);
                self.window.lost_run(n).min(end - index)
            }
            _ => 1,
        };
        let psn = self.window.una().plus(n);
        let mut packet = self.packet(i, index, run, psn, true)?;
        packet.again = true;
        self.window.resend(n, run);
        if self.config.selective {
            let open = !(self.window.done() | self.window.lost()) & Wide::ones(self.window.flight());
            let probe = self.probing;
            let (age, round) = (now.saturating_sub(self.witness_left), self.round.get() as u64);
            // A packet that left together with the witness takes its place, and so does one that leaves when the
            // witness is overdue.
            let (young, overdue) = (age < round / 4, age >= round + round / 4);
            for i in at_most(W, n..n.saturating_add(run)) {
                let before = self.witness.at();
                self.witness.leaves(i, open, probe || self.cursor == self.len, probe || young || overdue);
                let together = young && !probe && before.is_some() && before != Some(i);
                if self.witness.at() == Some(i) && !together && self.config.probe != 0 {
                    self.witness_left = now;
                }
            }
            self.probing = false;
        }
        Some(packet)
    }

    /// A WRITE must not overtake one that it overlaps: under selective repeat the older one might be placed last.
    fn overlaps_earlier(&self, i: u16) -> bool {
        let m = &self.entry(i).message;
        if m.op != Op::Write || !self.config.selective || rule::broken(Rule::WriteOrder) {
            return false;
        }
        for j in at_most(M, self.over..i) {
            let earlier = &self.entry(j).message;
            let after = earlier.remote.va.saturating_add(earlier.len as u64) <= m.remote.va;
            let before = m.remote.va.saturating_add(m.len as u64) <= earlier.remote.va;
            if earlier.op == Op::Write && !after && !before {
                return true;
            }
        }
        false
    }

    /// Whether a READ or an atomic that is not complete lies before message `i`.
    fn answers_before(&self, i: u16) -> bool {
        for j in at_most(M, self.over..i) {
            if self.entry(j).message.op.answered() {
                return true;
            }
        }
        false
    }

    fn transmit_new(&mut self, now: u64) -> Option<Transmit> {
        // The last turn finds a message with packets, or the end.
        let mut steps = Bound::new(M as u32 + 1);
        loop {
            steps.step();
            if self.cursor == self.len {
                return None;
            }
            let i = self.cursor;
            let entry = *self.entry(i);
            let fresh = entry.sent == 0;
            if fresh && entry.message.fence && !rule::holds(Rule::Fence, !self.answers_before(i)) {
                return None;
            }
            match entry.message.op {
                Op::Local => (),
                Op::Delay(time) => match self.delay {
                    None => {
                        self.delay = Some(now.saturating_add(time as u64));
                        return None;
                    }
                    Some(until) if now < until => return None,
                    Some(_) => self.delay = None,
                },
                _ => break,
            }
            self.cursor += 1;
            self.settle();
        }
        let i = self.cursor;
        let entry = *self.entry(i);
        let limit = self.config.window as u32;
        let room = self.window.room(limit);
        let left = entry.packets - entry.sent.min(entry.packets);
        let (count, run) = match entry.message.op {
            Op::Read => {
                let run = left.min(1 << (self.config.read_log2 & 31));
                (run, run)
            }
            _ => (1, 1),
        };
        if room < count || count == 0 {
            return None;
        }
        if entry.message.op.answered() && self.reading() >= self.config.reads as u32 {
            return None;
        }
        if entry.sent == 0 {
            if self.overlaps_earlier(i) {
                return None;
            }
            if let (Some(allowed), true) = (self.allowed, entry.message.receives()) {
                // One may always go when nothing else is on its way: its answer brings news.
                let ahead = allowed.wrapping_sub(self.begun) & Self::MSN_MASK;
                if (ahead == 0 || ahead > Self::MSN_MASK >> 1) && self.window.flight() != 0 {
                    return None;
                }
            }
        }
        if entry.sent == 0 || entry.message.op == Op::Read {
            self.begun = self.begun.wrapping_add(1) & Self::MSN_MASK;
        }
        self.since_ack += 1;
        let ends = left == count;
        let want = ends || room == count || self.since_ack as u32 >= (limit / 2).max(1);
        if want {
            self.since_ack = 0;
        }
        let packet = self.packet(i, entry.sent, run, self.window.next(), want)?;
        self.window.send(count);
        self.entry_mut(i).sent = entry.sent + count;
        if ends {
            self.cursor += 1;
        }
        Some(packet)
    }

    /// Moves the window over what is acknowledged; messages behind it are over.
    fn settle(&mut self) -> bool {
        let moved = self.window.slide();
        self.witness.slide(moved);
        self.below += moved;
        let mut steps = Bound::new(M as u32 + 1);
        while self.over < self.cursor {
            steps.step();
            let count = self.entry(self.over).packets;
            if self.below < count {
                break;
            }
            self.below -= count;
            self.over += 1;
        }
        if moved != 0 {
            self.go = self.go.filter(|&go| self.open(Psn::new(go)));
            let mut woken = self.woken;
            woken.keep(|held| self.open(Psn::new(held)));
            self.woken = woken;
        }
        moved != 0
    }

    /// The packets of `bits` are acknowledged, or answered. `known`: those of which the same answer would tell whether
    /// they have come. True if that is news.
    fn finish(&mut self, bits: Wide, known: Wide, now: u64) -> bool {
        let new = bits & Wide::ones(self.window.flight()) & !self.window.done();
        let news = self.window.finish(bits);
        if news {
            self.measure(new, now);
            // An answer that comes sooner than a round trip is for an earlier copy, and so is one that comes later: the round
            // trip has become longer, and nothing is lost.
            let (age, round) = (now.saturating_sub(self.witness_left), self.round.get() as u64);
            let own = age >= round - round / 4 && (round == 0 || age < round + round / 4);
            let lost = self.witness.told(new, own) & known;
            self.window.lose(lost);
            self.probing = false;
            self.settle();
            self.tries = Tries::NONE;
            if let Some(Wait::Receive(psn) | Wait::Memory(psn)) = self.wait {
                let n = Psn::<BITS>::new(psn).since(self.window.una());
                if n < self.window.flight() && self.window.done() & Wide::bit(n) == Wide::ZERO {
                    return true;
                }
                self.wait = None;
            }
            self.deadline = None;
            if self.window.flight() != 0 {
                self.arm(now);
            }
            self.arm_probe(now);
        }
        news
    }

    fn fail(&mut self, status: Status) -> Outcome {
        self.failed = Some(status);
        self.wait = None;
        self.go = None;
        self.woken = Woken::NONE;
        self.deadline = None;
        self.probe_at = None;
        self.delay = None;
        Outcome::Failed
    }

    /// A response packet has come.
    pub fn response(&mut self, now: u64, r: &ResponsePacket) -> Outcome {
        if self.failed.is_some() {
            return Outcome::Nothing;
        }
        let psn = Psn::new(r.psn);
        match r.body {
            ResponseBody::Ack { syndrome, sack } => match syndrome {
                Syndrome::Ack(credits) => self.acknowledged(now, psn, r.msn, credits, sack),
                Syndrome::Rnr(timer) => self.not_ready(now, psn, timer),
                Syndrome::Nak(code) => self.refused(now, psn, code),
            },
            ResponseBody::Read { len, .. } => match self.answered(now, psn, |op| op == Op::Read) {
                Ok((entry, index)) => {
                    let log2 = self.config.log2_mtu & 31;
                    let before = (index as u64) << log2;
                    if (entry.message.len as u64).saturating_sub(before).min(1 << log2) as u32 != len {
                        return Outcome::Bad;
                    }
                    self.took(now, psn);
                    Outcome::Read { tag: entry.message.tag, offset: entry.message.offset.wrapping_add(before), len }
                }
                Err(outcome) => outcome,
            },
            ResponseBody::Atomic { original } => {
                match self.answered(now, psn, |op| matches!(op, Op::CompareSwap { .. } | Op::FetchAdd { .. })) {
                    Ok((entry, _)) => {
                        self.took(now, psn);
                        Outcome::Atomic { tag: entry.message.tag, offset: entry.message.offset, original }
                    }
                    Err(outcome) => outcome,
                }
            }
        }
    }

    /// The message and the packet of it that an answer is for.
    fn answered(&mut self, _now: u64, psn: Psn<BITS>, of: impl Fn(Op) -> bool) -> Result<(Entry, u32), Outcome> {
        let n = match self.window.reach(psn) {
            Reach::Old => return Err(Outcome::Nothing),
            Reach::Within(n) if n < self.window.flight() => n,
            _ => return Err(Outcome::Bad),
        };
        let Some((i, index)) = self.locate(n) else {
            return Err(Outcome::Bad);
        };
        let entry = *self.entry(i);
        if !of(entry.message.op) {
            return Err(Outcome::Bad);
        }
        if self.window.done() & Wide::bit(n) != Wide::ZERO {
            return Err(Outcome::Nothing);
        }
        Ok((entry, index))
    }

    /// The answer for `psn` is taken; it acknowledges what lies before it.
    fn took(&mut self, now: u64, psn: Psn<BITS>) {
        let n = psn.since(self.window.una());
        let answers = self.answers();
        self.window.hear(n + 1);
        // READs and atomics are answered in the order in which they come.
        let known = if self.witness.at() == Some(n) { answers } else { Wide::ZERO };
        self.finish(Wide::ones(n) & !answers | Wide::bit(n), known, now);
        self.look_for_lost();
    }

    fn look_for_lost(&mut self) -> bool {
        let idle = self.config.selective && self.cursor == self.len;
        let reorder = if self.config.selective { self.config.reorder as u32 } else { 0 };
        if !self.config.selective && self.window.next_lost().is_some() {
            return false;
        }
        let answers = self.answers();
        // Under go-back-N only missing answers show here; NAKs tell the rest.
        let among = if self.config.selective { !Wide::ZERO } else { answers };
        self.window.find_lost(reorder, idle, answers, among)
    }

    fn acknowledged(&mut self, now: u64, psn: Psn<BITS>, msn: u32, credits: u8, sack: Option<u128>) -> Outcome {
        let upto = psn.plus(1);
        let answers = self.answers();
        // A SACK would not reach further ahead.
        let known = match upto.before(self.window.una()) {
            true => SACK_REACH.saturating_sub(self.window.una().since(upto)),
            false => upto.since(self.window.una()).saturating_add(SACK_REACH),
        };
        let known = Wide::ones(known.min(MAX_WINDOW as u32)) & !answers;
        let mut heard = false;
        let mut bits = match self.window.reach(upto) {
            Reach::Beyond => return Outcome::Bad,
            Reach::Old => Wide::ZERO,
            Reach::Within(n) => {
                heard = self.window.hear(n);
                if self.config.count_credits {
                    self.allowed = credit_count(credits).map(|count| msn.wrapping_add(count) & Self::MSN_MASK);
                }
                Wide::ones(n) & !answers
            }
        };
        if let Some(sack) = sack
            && self.config.selective
        {
            // Bit 0 is `upto`.
            let seen = Wide::from_sack(sack);
            let ahead = upto.since(self.window.una());
            bits |= match upto.before(self.window.una()) {
                true => seen.down(self.window.una().since(upto)),
                false => seen.up(ahead),
            } & !answers;
        }
        let news = self.finish(bits, known, now);
        if news {
            self.rnr = NotReady::NONE;
        }
        // Under go-back-N any acknowledgement would lose what has gone again since; one that is repeated must not.
        let look = self.config.selective || news || heard;
        match (look && self.look_for_lost()) || news {
            true => Outcome::Progress,
            false => Outcome::Nothing,
        }
    }

    /// All below `psn` is acknowledged by a NAK for it. False if `psn` is not in the window.
    fn below(&mut self, now: u64, psn: Psn<BITS>) -> bool {
        match self.window.reach(psn) {
            Reach::Within(n) if n < self.window.flight() => {
                let answers = self.answers();
                self.window.hear(n);
                self.finish(Wide::ones(n) & !answers, Wide::ZERO, now);
                true
            }
            _ => false,
        }
    }

    fn not_ready(&mut self, now: u64, psn: Psn<BITS>, timer: u8) -> Outcome {
        if !self.below(now, psn) {
            return match self.window.reach(psn) {
                Reach::Old => Outcome::Nothing,
                _ => Outcome::Bad,
            };
        }
        // Later packets may have been dropped too; those that were not will be acknowledged meanwhile.
        self.window.lose_from(psn.since(self.window.una()));
        // A foreign peer knows no "not yet": the code is a time as any other.
        let memory = timer & 0x1f == NOT_YET_TIMER && !self.config.count_credits;
        if memory && (self.go.take().is_some() || self.woken.late(psn.get(), now, self.round)) {
            // GO has overtaken it.
            return Outcome::Progress;
        }
        if !memory && !self.rnr.again(psn.get(), self.config.rnr_retries) {
            return self.fail(Status::NotReady);
        }
        self.wait = Some(if memory { Wait::Memory(psn.get()) } else { Wait::Receive(psn.get()) });
        self.probe_at = None;
        let time = (rnr_time(timer) as u64).saturating_mul(self.config.tick as u64);
        self.deadline = Some(now.saturating_add(time));
        Outcome::Progress
    }

    fn refused(&mut self, now: u64, psn: Psn<BITS>, code: NakCode) -> Outcome {
        if !self.below(now, psn) {
            return match self.window.reach(psn) {
                Reach::Old => Outcome::Nothing,
                _ => Outcome::Bad,
            };
        }
        match code {
            NakCode::Sequence => {
                self.window.lose_from(0);
                Outcome::Progress
            }
            NakCode::InvalidRequest => self.fail(Status::InvalidRequest),
            NakCode::RemoteAccess => self.fail(Status::AccessRefused),
            NakCode::RemoteOperation => self.fail(Status::RemoteError),
            NakCode::InvalidDatagram => self.fail(Status::InvalidDatagram),
        }
    }

    /// The packet `psn` has left, and the message that it is part of is not acknowledged.
    fn open(&self, psn: Psn<BITS>) -> bool {
        psn.since(self.window.una().minus(self.below)) < self.below + self.window.flight()
    }

    /// GO (PC-4): memory that the operation that begins with PSN `first` ([`super::Access::first`]) waited for is resident
    /// now, or is known never to be (QP-13): the held packet is sent again, and gets its answer.
    ///
    /// The peer asks for memory of packets behind the held one too, and one GO may stand for several. So any GO ends the
    /// wait; a packet whose memory is still absent is told to wait once more.
    ///
    /// A NAK that comes soon after that may be for an earlier copy of the packet, and its GO may be this one ([`Woken`]).
    pub fn go(&mut self, now: u64, first: u32) {
        if self.failed.is_some() || !self.open(Psn::new(first)) {
            return;
        }
        match self.wait {
            Some(Wait::Memory(held)) => {
                self.wait = None;
                self.deadline = None;
                self.woken = Woken::at(held, now);
            }
            // That of an earlier packet may come behind it, and be over before the NAK comes: the furthest one is kept.
            _ => {
                let oldest = self.window.una().minus(self.below);
                let behind = |go: u32| Psn::new(go).since(oldest) > Psn::new(first).since(oldest);
                self.go = self.go.filter(|&go| behind(go)).or(Some(first));
            }
        }
    }

    /// The caller says that the peer is lost: messages that are not over fail with `status`.
    pub fn abandon(&mut self, status: Status) {
        if self.failed.is_none() {
            self.fail(status);
        }
    }

    /// When [`Requester::tick`] is to be called.
    pub fn deadline(&self) -> Option<u64> {
        [self.deadline, self.delay, self.probe_at].into_iter().flatten().min()
    }

    /// The time is `now`: ends waits that are over, and sends again after a time-out. True if a time-out has passed.
    pub fn tick(&mut self, now: u64) -> bool {
        if self.probe_at.is_some_and(|at| now >= at) {
            self.probe_at = None;
            if self.wait.is_none() && self.window.next_lost().is_none() && self.window.flight() != 0 {
                self.ask_again(self.probes == 0);
                self.probes = self.probes.saturating_add(1).min(MAX_PROBES);
            }
        }
        let Some(deadline) = self.deadline else {
            return false;
        };
        if now < deadline {
            return false;
        }
        self.deadline = None;
        if self.wait.take().is_some() {
            return false;
        }
        if self.window.flight() == 0 {
            return false;
        }
        // Without a time and a number of retries there is nothing to count.
        if (self.config.retries != 0 || self.config.timeout != 0) && !self.tries.expired(self.config.retries) {
            self.fail(Status::RetryExceeded);
            return true;
        }
        self.ask_again(false);
        self.arm(now);
        true
    }

    /// The oldest message's end, if it is over: each once, in order.
    pub fn complete(&mut self) -> Option<Completion> {
        if self.len == 0 {
            return None;
        }
        let status = match (self.over > 0, self.failed) {
            (true, _) => Status::Done,
            (false, None) if rule::broken(Rule::CompleteAcknowledged) && self.cursor > 0 => Status::Done,
            (false, None) => return None,
            (false, Some(status)) => {
                self.failed = Some(Status::Flushed);
                status
            }
        };
        let message = self.entry(0).message;
        *self.entry_mut(0) = Entry::default();
        self.base = ((self.base as usize + 1) % M) as u16;
        self.len -= 1;
        if self.over > 0 {
            self.over -= 1;
        } else {
            self.below = 0;
        }
        self.cursor = self.cursor.saturating_sub(1);
        Some(Completion { tag: message.tag, len: message.len, status })
    }
}
