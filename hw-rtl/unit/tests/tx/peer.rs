// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other end of one QP, and what the golden model (`berth_protocol`: cut, credit, rc) says that it is to be sent.

use super::{Bind, Element, Frame, PAGE};
use berth_abi::rows::send;
use berth_abi::status::{WC_OK, WC_TOO_LONG};
use berth_abi::wire::*;
use berth_protocol::credit::cut::{self, Cut, Mode, NicCut, Out, Send, Unlisted, gather};
use berth_protocol::credit::list::Reader;
use berth_protocol::rc::{
    self, Bitmap, Immediate, Kind, Message, Op, Position, Remote, RequestPacket, Requester, RequesterConfig,
    ResponseBody, ResponsePacket, Syndrome, Wide, credit_code,
};
use berth_protocol::wire;
use berth_protocol::wire::headers::{Mac, Template, Words};
use berth_protocol::wire::lists::list_headers;
use berth_protocol::wire::records::record;
use berth_random::Rng;

/// Q_Key of lists.
pub const QKEY: u32 = 0x8765_4321;
/// Epoch of lists.
pub const EPOCH: u32 = 0x1122_3344;
/// Message sequence number of ACKs.
pub const MSN: u32 = 0x0a_0b0c;
const PSN: u32 = 0xff_ffff;
/// The syndrome of a foreign peer that has no receive: it wants to be asked again after 0.01 ms.
pub const RNR: u8 = 0x21;
const HEADERS: usize = 54;
/// QPNs at the peer begin here.
const PEER_QPN: u32 = 0x100;

/// How a QP is configured.
#[derive(Clone, Debug)]
pub struct Settings {
    pub message: bool,
    /// The peer takes WRITEs.
    pub remote: bool,
    /// READs that it takes at a time.
    pub reads: u32,
    pub log2_mtu: u32,
    pub selective: bool,
    /// The peer knows no credit lists; in message mode and without selective repeat.
    pub foreign: bool,
    /// How lists go (CR-12).
    pub carrier: u32,
    pub window: u32,
    pub reorder: u32,
    pub ahead: u32,
    pub log2_block: u32,
    pub first_psn: u32,
    pub timeout: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            message: false,
            remote: true,
            reads: 4,
            log2_mtu: 12,
            selective: true,
            foreign: false,
            carrier: send::CARRIER_CONTROL,
            window: 255,
            reorder: 3,
            ahead: 32,
            log2_block: 16,
            first_psn: 0,
            timeout: 0,
        }
    }
}

impl Settings {
    /// To a foreign peer.
    pub fn foreign() -> Self {
        Self { message: true, selective: false, foreign: true, ..Self::default() }
    }

    pub fn word(&self) -> u32 {
        let (selective, message) = (self.selective.into(), self.message.into());
        send::Mode {
            carrier: self.carrier,
            foreign: self.foreign.into(),
            reads: self.reads,
            reorder: self.reorder,
            window: self.window,
            remote: self.remote.into(),
            loopback: 0,
            selective,
            message,
            log2_mtu: self.log2_mtu,
        }
        .word()
    }
}

type Model = Requester<24, 256, 64>;

/// The golden model's sender.
pub fn requester(s: &Settings) -> Model {
    let config = match s.selective {
        true => RequesterConfig { reorder: s.reorder as u8, ..RequesterConfig::berth(s.log2_mtu as u8, 255, 0) },
        false => RequesterConfig { count_credits: s.foreign, ..RequesterConfig::foreign(s.log2_mtu as u8, 255, 0) },
    };
    // The card asks for one packet at a time.
    let config = RequesterConfig { reads: s.reads as u8, read_log2: 0, ..config };
    Requester::new(config, s.first_psn)
}

/// A SEND of the golden model.
pub fn message(tag: u32, len: u32, credit: u32) -> Message {
    Message {
        op: Op::Send,
        tag,
        offset: u64::from(tag) * u64::from(len),
        len,
        credit,
        imm: Immediate::Remaining,
        ..Message::default()
    }
}

/// A packet of a READ's answer, or an atomic's: what it brings, as on the wire.
#[derive(Clone, Debug)]
pub struct Data {
    pub psn: u32,
    pub atomic: bool,
    pub bytes: Vec<u8>,
}

impl Data {
    /// As the golden model has it.
    pub fn response(&self) -> ResponsePacket {
        let body = match (self.atomic, self.bytes[..].try_into()) {
            (true, Ok(bytes)) => ResponseBody::Atomic { original: u64::from_be_bytes(bytes) },
            _ => ResponseBody::Read { position: Position::Only, len: self.bytes.len() as u32 },
        };
        ResponsePacket { psn: self.psn, msn: 0, body }
    }
}

/// As the golden model has it.
pub fn response(psn: u32, syndrome: u8, sack: Option<u128>) -> ResponsePacket {
    let syndrome = Syndrome::from_byte(syndrome).expect("a syndrome");
    ResponsePacket { psn, msn: 0, body: ResponseBody::Ack { syndrome, sack } }
}

/// An answer that may come to what the model has on its way.
pub fn random_answer(rng: &mut Rng, model: &Model, selective: bool) -> (u32, u8, Option<u128>) {
    let (una, flight) = (model.window().una().get(), u64::from(model.window().flight()));
    let upto = if rng.chance(0.2) { rng.below(flight + 1) } else { rng.below(flight.min(4) + 1) };
    let psn = (una + upto as u32).wrapping_sub(1) & PSN;
    if !selective {
        return if rng.chance(0.5) && upto < flight {
            ((una + upto as u32) & PSN, 0x60, None)
        } else {
            (psn, 0x1f, None)
        };
    }
    let p = rng.below(100) as f64 / 100.0;
    let mut sack = 0;
    for i in upto + 1..flight.min(upto + 128) {
        if rng.chance(p) || model.window().done() & Wide::bit(i as u32) != Wide::ZERO {
            sack |= 1_u128 << (127 - (i - upto));
        }
    }
    (psn, 0x1f, (sack != 0).then_some(sack))
}

/// One packet that is to be sent: what it says, and where its bytes are.
struct Expected {
    packet: RequestPacket,
    element: usize,
    offset: usize,
    /// Bytes of the stream up to the end of its piece.
    end: u32,
    /// Its credit.
    credit: u32,
}

/// What the golden model has cut, with one credit.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub len: u32,
    /// PUSH.
    pub push: bool,
    /// Bytes of the stream up to its end; none in message mode.
    pub end: Option<u32>,
    /// The process's immediate.
    pub immediate: Option<u32>,
    /// The key that it invalidates.
    pub invalidate: Option<u32>,
    element: usize,
    offset: usize,
}

/// Receives of a foreign peer.
pub struct Receives {
    rng: Rng,
    /// So far.
    posted: u32,
    /// Those that are used.
    used: u32,
}

impl Receives {
    /// They are posted from time to time.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng(seed), posted: 0, used: 0 }
    }
}

/// The peer of one QP.
pub struct Peer {
    q: u32,
    settings: Settings,
    /// Sizes of credits to give, at random between these.
    pub supply: Option<(u32, u32)>,
    /// Of a foreign peer. None: always more, and it gives no count.
    pub receives: Option<Receives>,
    /// Packets may be missing the first time, because they could not be read.
    pub gaps: bool,
    withdrawn: bool,
    /// Says nothing by itself.
    pub silent: bool,
    /// Elements up to the last BIND that has had its turn.
    bound: usize,
    /// Frames that were sent, all of them.
    pub frames: Vec<Frame>,
    /// Of the completions.
    pub statuses: Vec<u8>,
    elements: Vec<Element>,
    bytes: Vec<Vec<u8>>,
    posted_bytes: u32,
    rung: Vec<u32>,
    // golden model
    cut: NicCut<4096>,
    reader: Reader,
    model: Model,
    total: u64,
    expected: Vec<Expected>,
    /// By their credits.
    pub pieces: Vec<Piece>,
    wanted: Vec<u8>,
    /// Memory of what is cut, in blocks, and whether it is written to; how much of it has been asked for.
    blocks: Vec<(u64, u64, bool)>,
    asked: usize,
    /// Answers to READs and atomics that are to go, and what is in place of them.
    pub answers: Vec<Data>,
    answered: Vec<bool>,
    /// Of the answer that is being written: its packet, and bytes so far.
    writing: Option<(u32, usize)>,
    // credits
    granted: u32,
    last_list: Option<u32>,
    // arrival
    sent: usize,
    next: usize,
    seen: Vec<bool>,
    landed: u32,
    since: u32,
    told: bool,
    /// Since when an acknowledgement is owed.
    owed: Option<u64>,
}

impl Peer {
    pub fn new(q: u32, settings: Settings) -> Self {
        let mode = if settings.message { Mode::Message } else { Mode::Stream };
        Self {
            q,
            model: requester(&settings),
            settings,
            supply: None,
            receives: None,
            gaps: false,
            withdrawn: false,
            silent: false,
            bound: 0,
            frames: Vec::new(),
            statuses: Vec::new(),
            elements: Vec::new(),
            bytes: Vec::new(),
            posted_bytes: 0,
            rung: vec![0],
            cut: NicCut::new(mode),
            reader: Reader::new(),
            total: 0,
            expected: Vec::new(),
            pieces: Vec::new(),
            wanted: Vec::new(),
            blocks: Vec::new(),
            asked: 0,
            answers: Vec::new(),
            answered: Vec::new(),
            writing: None,
            granted: 0,
            last_list: None,
            sent: 0,
            next: 0,
            seen: Vec::new(),
            landed: 0,
            since: 0,
            told: false,
            owed: None,
        }
    }

    /// A send is posted: gives its number.
    pub fn posted(&mut self, element: &Element) -> u64 {
        let number = self.elements.len() as u64;
        self.posted_bytes = self.posted_bytes.wrapping_add(element.len());
        self.cut
            .post(Send {
                id: number,
                len: element.len(),
                immediate: element.immediate.filter(|_| self.settings.message),
                // A READ or an atomic is one piece without a credit, as such a WRITE.
                write: element.there().is_some(),
                local: element.local(),
            })
            .expect("the model has room, and takes it in this mode");
        self.bytes.push(element.bytes());
        self.elements.push(element.clone());
        self.wanted.push(WC_OK);
        self.cut_more();
        number
    }

    /// The BIND whose turn it is.
    pub fn next_bind(&mut self) -> Bind {
        let left = self.elements.iter().enumerate().skip(self.bound);
        let found = left.filter(|(_, e)| e.words.is_none()).find_map(|(i, e)| e.bind.map(|bind| (i, bind)));
        let (i, bind) = found.expect("a BIND");
        self.bound = i + 1;
        bind
    }

    pub const fn bytes_posted(&self) -> u32 {
        self.posted_bytes
    }

    /// The card has taken a doorbell.
    pub fn rung(&mut self, posted: u32) {
        self.rung.push(posted);
    }

    /// Credits are given: the number of the first.
    pub fn grant(&mut self, sizes: &[u32]) -> u32 {
        let first = self.granted;
        let (answer, skip) = self.reader.list_begin(first, sizes.len() as u32);
        assert_eq!((answer, skip), (0, 0), "the bench keeps to the rules for lists");
        for size in sizes {
            assert!(self.reader.list_push(*size));
        }
        self.granted += sizes.len() as u32;
        self.last_list = Some(first);
        self.cut_more();
        first
    }

    /// A list has come; one that is out of turn changes nothing (CR-11, decision 6).
    pub fn list_came(&mut self, first: u32, sizes: &[u32]) {
        let (answer, skip) = self.reader.list_begin(first, sizes.len() as u32);
        if answer == 0 {
            for size in sizes.iter().skip(skip as usize) {
                assert!(self.reader.list_push(*size));
            }
            self.cut_more();
        }
    }

    /// A doorbell has told that so many bytes are posted.
    pub fn was_rung(&self, posted: u32) -> bool {
        self.rung.contains(&posted)
    }

    /// The bytes of a piece.
    pub fn bytes_of(&self, piece: &Piece) -> &[u8] {
        &self.bytes[piece.element][piece.offset..][..piece.len as usize]
    }

    /// A piece is a WRITE.
    pub fn writes(&self, piece: &Piece) -> bool {
        self.elements[piece.element].remote.is_some()
    }

    /// The credit that a frame uses.
    pub fn credit_of(&self, frame: &[u8]) -> u32 {
        self.expected[self.index_of(psn_of(frame))].credit
    }

    /// Unused credits go back: the number of the first of them.
    pub fn give_up(&mut self, n: u32) -> u32 {
        self.granted = self.reader.give_up(n);
        self.last_list = None;
        self.granted
    }

    /// The next list, if the rules allow one (CR-4, CR-11).
    pub fn next_list(&mut self, rng: &mut Rng) -> Option<Vec<u32>> {
        let (low, high) = self.supply?;
        let room = u64::from(128 - (self.granted - self.landed)).min(64);
        if room == 0 || self.last_list.is_some_and(|first| self.landed <= first) || self.complete() {
            return None;
        }
        let n = if low == high { room } else { rng.between(1, room) };
        Some((0..n).map(|_| rng.between(u64::from(low), u64::from(high)) as u32).collect())
    }

    /// What the golden model makes of sends and credits so far.
    fn cut_more(&mut self) {
        loop {
            let out = match self.settings.foreign {
                true => self.cut.poll(&mut Unlisted),
                false => self.cut.poll(&mut self.reader),
            };
            let Some(out) = out else { break };
            match out {
                Out::Empty(_) => (),
                Out::TooLong(id) => self.wanted[id as usize] = WC_TOO_LONG,
                Out::Write { id, credit } => {
                    let element = &self.elements[id as usize];
                    let (va, key) = element.there().expect("a WRITE, READ or atomic");
                    let op = match element.atomic {
                        Some(atomic) => atomic.op(),
                        None if element.source.is_some() => Op::Read,
                        None => Op::Write,
                    };
                    let len = element.len();
                    let remote = Remote { va, key, len };
                    let piece = cut::Piece {
                        id,
                        offset: 0,
                        len,
                        credit: credit.unwrap_or_default(),
                        last: true,
                        immediate: element.immediate,
                    };
                    self.send(&piece, Message { op, remote, ..Message::default() }, credit.is_some());
                }
                Out::Piece(piece) => self.send(&piece, Message::default(), true),
            }
        }
        self.seen.resize(self.expected.len(), false);
        self.answered.resize(self.expected.len(), false);
    }

    /// A piece goes: with a credit, if it is by a credit; `message` says what of it is none of the piece's own.
    fn send(&mut self, piece: &cut::Piece, message: Message, credit: bool) {
        let element = piece.id as usize;
        let stream = !self.settings.message;
        let message = Message {
            tag: element as u32,
            offset: self.total,
            len: piece.len,
            credit: piece.credit,
            imm: match (stream, piece.immediate) {
                (true, _) => Immediate::Remaining,
                (false, Some(own)) => Immediate::Value(own),
                (false, None) => self.elements[element].invalidate.map_or(Immediate::None, Immediate::Invalidate),
            },
            solicited: piece.last && self.elements[element].push,
            ..message
        };
        self.model.post(message).expect("the model has room");
        let start = self.total;
        self.total += u64::from(piece.len);
        if credit {
            self.pieces.push(Piece {
                len: piece.len,
                push: message.solicited,
                end: stream.then_some(self.total as u32),
                immediate: piece.immediate.filter(|_| !stream),
                invalidate: self.elements[element].invalidate,
                element,
                offset: piece.offset as usize,
            });
        }
        while let Some(sent) = self.model.transmit(0) {
            let offset = (sent.offset - start) as usize + piece.offset as usize;
            self.expected.push(Expected {
                packet: sent.packet,
                element,
                offset,
                end: self.total as u32,
                credit: piece.credit,
            });
            let psn = sent.packet.psn;
            let its =
                if sent.packet.kind.answered() { self.data_for(psn).response() } else { response(psn, 0x1f, None) };
            self.model.response(0, &its);
        }
        while self.model.complete().is_some() {}
        if self.elements[element].data.is_none() && self.elements[element].claimed.is_none() {
            for (mut va, len) in gather(&self.elements[element].sges, piece.offset, piece.len) {
                let end = va + u64::from(len);
                while va < end {
                    let len = (end - va).min((1 << self.settings.log2_block) - va % PAGE);
                    self.blocks.push((va, len, self.elements[element].asks()));
                    va += len;
                }
            }
        }
    }

    fn index_of(&self, psn: u32) -> usize {
        (psn.wrapping_sub(self.settings.first_psn) & PSN) as usize
    }

    /// Memory is withdrawn: reads may fail, and what is let go of is asked for again.
    pub fn withdrawn(&mut self) {
        (self.gaps, self.withdrawn) = (true, true);
    }

    /// Memory is asked for, the first time: the next block of what is cut (PC-2), or a part of a packet that goes
    /// again (VC-4). `block` is its number in the card.
    pub fn pinned(&mut self, block: u64, va: u64, len: u64, write: bool) {
        if block & 32 == 0 {
            // What was let go of is asked for anew, at its place: one of the last 32.
            let back = (self.asked as u64).wrapping_sub(block + 1) % 32 + 1;
            let older = self.asked.checked_sub(back as usize).and_then(|i| self.blocks.get(i));
            if self.withdrawn && (back < 32 || self.blocks.get(self.asked) != Some(&(va, len, write))) {
                assert_eq!(Some(&(va, len, write)), older, "QP {}: {back} blocks before block {}", self.q, self.asked);
                return;
            }
            assert_eq!(Some(&(va, len, write)), self.blocks.get(self.asked), "QP {}: block {}", self.q, self.asked);
            self.asked += 1;
            return;
        }
        let part = (block & 7) as usize;
        let is = |p: &Expected| {
            let sges = &self.elements[p.element].sges;
            !write && gather(sges, p.offset as u32, p.packet.len).nth(part) == Some((va, len as u32))
        };
        // It may be on its way to the MAC still: a NAK loses all that is not acknowledged.
        assert!(
            self.expected.iter().rev().any(is),
            "QP {}: no packet has {len} bytes at {va:#x} as its part {part}",
            self.q
        );
    }

    /// A frame leaves: it must be the one that the model sends.
    pub fn check_frame(&mut self, bytes: &[u8]) {
        let whole: Vec<u8> = bytes.iter().copied().chain([0; 4]).collect();
        let (packet, payload) =
            wire::parse_trusted(&whole).unwrap_or_else(|e| panic!("QP {}: {e:?}: {bytes:x?}", self.q));
        let index = self.index_of(packet.bth.psn);
        let Some(expected) = self.expected.get(index) else {
            panic!("QP {}: PSN {:#x} is sent, only {} packets may be", self.q, packet.bth.psn, self.expected.len());
        };
        let again = index < self.sent;
        assert!(again || self.gaps || index == self.sent, "QP {}: packet {index} is sent after {}", self.q, self.sent);
        let p = &expected.packet;
        let context = format!("QP {} packet {index} (again: {again}) {:?}", self.q, self.settings);
        let (told, data) = wire::reliable::parse_request(&packet, payload, self.settings.selective)
            .unwrap_or_else(|e| panic!("{context}: {e:?}"));
        // The acknowledgement and the bytes remaining are looked at below.
        assert_eq!(RequestPacket { ack_request: p.ack_request, imm: p.imm, ..told }, *p, "{context}");
        let last = match (&p.placement, &p.remote) {
            (None, Some(part)) if p.kind.answered() => {
                expected.offset as u32 + part.len == self.elements[expected.element].len()
            }
            (Some(at), Some(remote)) => at.index + 1 == rc::packets(remote.len, self.settings.log2_mtu as u8),
            _ => p.position.ends(),
        };
        if !again && p.kind == Kind::Write && self.settings.selective {
            let element = &self.elements[expected.element];
            let before = (self.statuses.len()..expected.element).find(|&i| element.overlaps(&self.elements[i]));
            assert_eq!(before, None, "{context}: it overlaps a WRITE that is not complete");
        }
        if !again && self.elements[expected.element].fence {
            let before = (self.statuses.len()..expected.element).find(|&i| self.elements[i].asks());
            assert_eq!(before, None, "{context}: it has a fence, and a READ or an atomic is not complete");
        }
        assert!(packet.bth.ack_request || !(last || (again && !self.gaps)), "{context}");
        assert_eq!(packet.ext.imm.is_some(), p.imm.is_some(), "{context}");
        if let (Some(imm), true) = (packet.ext.imm, self.settings.message) {
            assert_eq!(Some(imm), p.imm, "{context}");
        } else if let Some(imm) = packet.ext.imm {
            let posted = imm.wrapping_add(expected.end);
            assert!(self.rung.contains(&posted), "{context}: bytes remaining {imm}, up to {}", expected.end);
        }
        let payload = data;
        let bytes_there = &self.bytes[expected.element][expected.offset..][..p.len as usize];
        assert_eq!(payload, bytes_there, "{context}: payload");
        let pad = bytes.len()
            - HEADERS
            - (if p.imm.or(p.invalidate).is_some() { 4 } else { 0 })
            - if p.placement.is_some() { 4 } else { 0 }
            - match (p.remote, p.kind) {
                (None, _) => 0,
                (_, Kind::CompareSwap | Kind::FetchAdd) => 28,
                _ => 16,
            }
            - payload.len();
        assert!(pad < 4 && bytes[bytes.len() - pad..].iter().all(|b| *b == 0), "{context}: pad");
        self.sent = self.sent.max(index + 1);
    }

    /// A frame arrives: gives the acknowledgement that it causes.
    pub fn arrived(&mut self, bytes: &[u8], every: u32, now: u64) -> Option<(u32, u8, Option<u128>)> {
        let index = self.index_of(psn_of(bytes));
        let asked = bytes[50] & 0x80 != 0;
        if !self.settings.selective && index > self.next {
            let nak = !std::mem::replace(&mut self.told, true) && !self.silent;
            return nak.then_some((self.settings.first_psn.wrapping_add(self.next as u32) & PSN, 0x60, None));
        }
        if self.expected[index].packet.kind.answered() {
            // One that is early is not kept.
            if index > self.next {
                let nak = !std::mem::replace(&mut self.told, true) && !self.silent;
                return nak.then_some((self.settings.first_psn.wrapping_add(self.next as u32) & PSN, 0x60, None));
            }
            if !self.silent {
                let psn = self.expected[index].packet.psn;
                self.answers.push(self.data_for(psn));
            }
        }
        let repeated = self.seen[index];
        if let (Some(receives), false) = (&mut self.receives, repeated) {
            let p = &self.expected[index].packet;
            let send = p.kind == Kind::Send;
            if receives.used == receives.posted && if send { p.position.begins() } else { p.imm.is_some() } {
                // As often as it is tried; what follows it is dropped without a word.
                self.told = true;
                return (!self.silent).then_some((p.psn, RNR, None));
            }
            receives.used += u32::from(if send { p.position.ends() } else { p.imm.is_some() });
        }
        self.seen[index] = true;
        while self.seen.get(self.next) == Some(&true) {
            let p = &self.expected[self.next].packet;
            self.landed += u32::from(match p.kind {
                Kind::Send => p.position.begins(),
                _ => p.imm.is_some(),
            });
            self.next += 1;
            self.told = false;
        }
        self.since += 1;
        if asked {
            self.owed.get_or_insert(now);
        }
        // What is asked for is put off a little, so that one acknowledgement does for several packets.
        (repeated || index >= self.next || self.since >= every).then(|| self.acknowledge()).flatten()
    }

    /// Messages that have come, as acknowledgements tell them.
    pub fn msn(&self) -> u32 {
        let ends = |p: &&Expected| p.packet.position.ends();
        if self.settings.foreign { self.expected[..self.next].iter().filter(ends).count() as u32 } else { MSN }
    }

    /// The acknowledgement that is owed for long enough, or that tells of new receives.
    pub fn overdue(&mut self, now: u64) -> Option<(u32, u8, Option<u128>)> {
        if let Some(Receives { rng, posted, .. }) = &mut self.receives
            && rng.chance(0.002)
        {
            *posted += rng.between(1, 4) as u32;
            if rng.chance(0.3) {
                return self.acknowledge();
            }
        }
        self.owed.is_some_and(|since| now >= since + 100).then(|| self.acknowledge()).flatten()
    }

    fn acknowledge(&mut self) -> Option<(u32, u8, Option<u128>)> {
        (self.since, self.owed) = (0, None);
        let mut sack = 0_u128;
        for (i, seen) in self.seen.iter().skip(self.next).take(128).enumerate() {
            sack |= u128::from(*seen) << (127 - i);
        }
        let psn = self.settings.first_psn.wrapping_add(self.next as u32).wrapping_sub(1) & PSN;
        let count = self.receives.as_ref().map_or(0x1f, |receives| credit_code(receives.posted - receives.used));
        (!self.silent).then_some((psn, count, (sack != 0 && self.settings.selective).then_some(sack)))
    }

    /// A completion: gives the elements that are complete now, with those before it that have none.
    pub fn completed(&mut self, number: u32, len: u32, status: u8, opcode: u8) -> std::ops::RangeInclusive<u64> {
        let first = self.statuses.len();
        while self.statuses.len() < number as usize && self.elements[self.statuses.len()].quiet {
            self.statuses.push(WC_OK);
        }
        assert_eq!(number as usize, self.statuses.len(), "QP {}: completions are in order", self.q);
        assert!(status != WC_OK || !self.elements[number as usize].quiet, "QP {}: {number} is not signalled", self.q);
        let element = &self.elements[number as usize];
        let its = self.expected.iter().zip(&self.answered).filter(|(p, _)| p.element == number as usize);
        assert!(
            status != WC_OK || !element.asks() || its.clone().all(|(_, answered)| *answered),
            "QP {}: {number} is complete, and not all of it is in place",
            self.q
        );
        assert_eq!((len, opcode), (element.claimed.unwrap_or(element.len()), element.opcode()));
        self.statuses.push(status);
        first as u64..=number.into()
    }

    pub fn complete(&self) -> bool {
        self.statuses.len() == self.elements.len()
    }

    /// Packets that have arrived, and completions.
    pub fn progress(&self) -> usize {
        self.next + self.statuses.len() + self.answered.iter().filter(|answered| **answered).count()
    }

    /// A part of an answer is written: it is the next one of the packet, and what the peer had.
    pub fn written(&mut self, psn: u32, va: u64, bytes: &[u8]) {
        let index = self.index_of(psn);
        let p = &self.expected[index];
        let context = format!("QP {} packet {index}: {} bytes at {va:#x}", self.q, bytes.len());
        let part = p.packet.remote.filter(|_| p.packet.kind.answered()).expect("a READ or an atomic");
        let done = match self.writing {
            Some((of, done)) => {
                assert_eq!(of, psn, "{context}: within another one");
                done
            }
            None => 0,
        };
        assert!(!self.answered[index], "{context}: it was answered before");
        let at = p.offset + done;
        let place = gather(&self.elements[p.element].sges, at as u32, part.len - done as u32).next();
        assert!(
            place.is_some_and(|(at, room)| at == va && bytes.len() <= room as usize),
            "{context}: it belongs to {place:x?}"
        );
        assert_eq!(bytes, &self.bytes[p.element][at..][..bytes.len()], "{context}");
        self.writing = Some((psn, done + bytes.len()));
    }

    /// That was the last part of it: it is in place once it is told, if none of them has failed.
    pub fn all_written(&mut self, psn: u32) {
        let len = self.expected[self.index_of(psn)].packet.remote.map(|part| part.len as usize);
        assert_eq!(self.writing.take().map(|(_, done)| done), len, "QP {}: packet {psn:#x}", self.q);
    }

    /// The packet `psn` is of a READ or an atomic.
    pub fn asks(&self, psn: u32) -> bool {
        self.expected[self.index_of(psn)].packet.kind.answered()
    }

    /// The answer to the packet `psn` of a READ or an atomic: what stood there comes with its most significant byte first.
    pub fn data_for(&self, psn: u32) -> Data {
        let atomic = matches!(self.expected[self.index_of(psn)].packet.kind, Kind::CompareSwap | Kind::FetchAdd);
        let mut bytes = self.bytes_for(psn);
        if atomic {
            bytes.reverse();
        }
        Data { psn, atomic, bytes }
    }

    /// What the peer has for the packet `psn` of a READ or an atomic, as it stands in memory.
    pub fn bytes_for(&self, psn: u32) -> Vec<u8> {
        let p = &self.expected[self.index_of(psn)];
        self.bytes[p.element][p.offset..][..p.packet.remote.map_or(0, |part| part.len as usize)].to_vec()
    }

    /// An answer is in place.
    pub fn placed(&mut self, psn: u32) {
        let index = self.index_of(psn);
        self.answered[index] = true;
    }

    /// An answer without bytes comes, or one that nobody asked for: it is in place when it is there, if the card takes it.
    pub fn came(&mut self, psn: u32, bytes: &[u8]) {
        let index = self.index_of(psn);
        let empty = |p: &Expected| p.packet.kind == Kind::Read && p.packet.remote.is_some_and(|part| part.len == 0);
        if bytes.is_empty() && index < self.sent && self.expected.get(index).is_some_and(empty) {
            self.answered[index] = true;
        }
    }

    /// All is over.
    pub fn check_end(&self) {
        assert_eq!(self.statuses, self.wanted, "QP {}", self.q);
        assert_eq!(self.asked, self.blocks.len(), "QP {}: memory asked for", self.q);
        assert_eq!((self.sent, self.silent || self.next == self.sent), (self.expected.len(), true), "QP {}", self.q);
    }

    pub fn describe(&self) -> String {
        format!(
            "QP {} {:?}: {} of {} elements, {} packets sent, {} arrived, {} may be; credits {}, landed {}",
            self.q,
            self.settings,
            self.statuses.len(),
            self.elements.len(),
            self.sent,
            self.next,
            self.expected.len(),
            self.granted,
            self.landed
        )
    }
}

// ---- frames ------------------------------------------------------------------------------

fn headers(q: u32) -> Template {
    let ip = 0x0a00_0000;
    Template::new(
        Mac::new([2, 0, 0, 0, 0, 1]),
        ip + 1,
        Mac::new([2, 0, 0, 0, 0, 2]),
        ip + 2,
        0xc000 | q as u16,
        PEER_QPN + q,
    )
}

fn bytes_of(words: &Words) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The header template of a QP, as the card's configuration words.
pub fn template(q: u32) -> Words {
    let mut bytes = bytes_of(&headers(q).packet(0, false, false, 0, None, 0).words);
    for zero in [16, 17, 24, 25, 38, 39, 42, 43] {
        bytes[zero] = 0;
    }
    let sum: u32 = (14..34).step_by(2).map(|i| u32::from(bytes[i]) << 8 | u32::from(bytes[i + 1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
    let mut words = [0; 16];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(chunk.try_into().expect("four"));
    }
    words
}

/// The QP of ours that a frame belongs to.
pub fn destination(frame: &[u8]) -> Option<u32> {
    u32::from_be_bytes([0, frame[47], frame[48], frame[49]]).checked_sub(PEER_QPN)
}

pub fn is_data(frame: &[u8]) -> bool {
    let others = [BTH_CMP_SWAP, BTH_FETCH_ADD, BTH_SEND_LAST_INVALIDATE, BTH_SEND_ONLY_INVALIDATE];
    frame[42] <= BTH_READ_REQUEST || others.contains(&frame[42])
}

pub fn psn_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([0, frame[51], frame[52], frame[53]])
}

/// An ACK frame without iCRC; `BTH_SELECTIVE_ACKNOWLEDGE` with what has arrived (docs/reference/wire.md).
pub fn acknowledgement(q: u32, psn: u32, syndrome: u8, sack: Option<u128>) -> Vec<u8> {
    let (opcode, more) = if sack.is_some() { (BTH_SELECTIVE_ACKNOWLEDGE, 16) } else { (BTH_ACKNOWLEDGE, 0) };
    let frame = headers(q).packet(opcode, false, false, psn, Some(u32::from(syndrome) << 24 | MSN), more);
    let mut bytes = bytes_of(&frame.words);
    bytes.truncate(HEADERS + 4);
    bytes.extend(sack.iter().flat_map(|s| s.to_be_bytes()));
    bytes
}

/// A packet of an answer to a READ, without iCRC.
pub fn answer(q: u32, packet: &ResponsePacket, payload: &[u8]) -> Vec<u8> {
    let emitted = wire::reliable::emit_response(wire::opcode::Service::Rc, packet);
    let aeth = emitted.ext.aeth.map(|aeth| u32::from(aeth.syndrome.to_bits()) << 24 | aeth.msn);
    let frame = headers(q).packet(emitted.opcode.0, false, false, packet.psn, aeth, payload.len() as u32);
    let mut bytes = bytes_of(&frame.words);
    bytes.truncate(frame.start as usize);
    bytes.extend(payload);
    bytes.resize(frame.end as usize, 0);
    bytes
}

/// A list, without iCRC.
pub fn list(carrier: u32, q: u32, epoch: u32, first: u32, sizes: &[u32]) -> Vec<u8> {
    let record = record(REC_LIST, 3 + sizes.len(), PEER_QPN + q);
    let words = [record, epoch, first].into_iter().chain(sizes.iter().copied());
    let body: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let (bth, ext) = list_headers(carrier, q, PEER_QPN + q, QKEY, body.len() as u32).expect("a carrier");
    let ext: Vec<u8> = match (ext.deth, ext.reth) {
        (Some(deth), _) => [deth.qkey, deth.source_qpn].into_iter().flat_map(u32::to_be_bytes).collect(),
        (_, Some(reth)) => [(reth.va >> 32) as u32, reth.va as u32, reth.rkey, reth.len]
            .into_iter()
            .flat_map(u32::to_be_bytes)
            .collect(),
        _ => panic!("no header"),
    };
    let frame = headers(q).packet(bth.opcode.0, false, false, 0, None, (ext.len() + body.len()) as u32);
    let mut bytes = bytes_of(&frame.words);
    bytes.truncate(HEADERS);
    bytes[47..50].copy_from_slice(&bth.qpn.to_be_bytes()[1..]);
    [bytes, ext, body].concat()
}
