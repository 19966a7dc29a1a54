// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ends of a reliable connection joined by frames, under an arbitrary schedule of sends, losses, duplicates,
//! reordering and time. Everything arrives once, in order, unchanged; and when the wire gets good, all of it does.

use std::collections::VecDeque;

use berth_protocol::rc::{
    Access, Admit, Event, Immediate, Kind, Message, Op, Outcome, Place, Remote, Requester, RequesterConfig, Responder,
    ResponderConfig, Status, Target, Verdict,
};
use berth_protocol::wire::opcode::Service;
use berth_protocol::wire::reliable::{Headers, emit_request, emit_response, parse_request, parse_response};
use berth_protocol::wire::{self, Bth, Eth, Ip, Ipv4, Packet};

use crate::input::Input;

const LOG2_MTU: u8 = 8;
const MEMORY: u64 = 4096;
const KEY: u32 = 0x00c0_ffee;
/// Bytes of every receive.
const RECEIVE: u32 = 1000;
/// The first credit's number: numbers wrap modulo 256 on the wire.
const FIRST_CREDIT: u32 = 250;
const WINDOW: u16 = 16;
/// Messages of one run.
const MESSAGES: usize = 40;
/// Steps without faults after which all must be over.
const PATIENCE: u32 = 60_000;

struct Host {
    /// Receives done.
    complete: u32,
    /// Receives there are.
    posted: u32,
    memory: Vec<u8>,
    /// PSNs that were told "not yet".
    owed: Vec<u32>,
    /// Accesses to answer by "not yet".
    not_yet: u8,
}

impl Target for Host {
    fn credit(&self, number: u32) -> Option<u32> {
        let i = number.wrapping_sub(FIRST_CREDIT);
        (i >= self.complete && i < self.posted).then_some(RECEIVE)
    }

    fn access(&mut self, a: &Access) -> Admit {
        if a.remote.key != KEY || a.remote.va.saturating_add(u64::from(a.remote.len)) > MEMORY {
            return Admit::No;
        }
        if !a.again && self.not_yet > 0 {
            self.not_yet -= 1;
            self.owed.push(a.first);
            return Admit::NotYet;
        }
        Admit::Yes
    }
}

/// What a message does, for the expected result.
struct Sent {
    kind: Kind,
    offset: usize,
    len: u32,
}

struct Ends {
    a: Requester<24, 16, 8>,
    b: Responder<24, 16, 4>,
    selective: bool,
    host: Host,
    /// Bytes of the requester.
    local: Vec<u8>,
    to_b: VecDeque<Vec<u8>>,
    to_a: VecDeque<Vec<u8>>,
    placing: Vec<(u32, Place, Vec<u8>)>,
    buffers: Vec<Vec<u8>>,
    received: u32,
    landed: u32,
    sent: Vec<Sent>,
    sends: Vec<usize>,
    done: usize,
    now: u64,
    /// Memory of the responder when all messages have been carried out in order.
    expected: Vec<u8>,
    answers: bool,
}

fn frame(headers: &Headers, bth: Bth, payload: &[u8]) -> Vec<u8> {
    let packet = Packet {
        eth: Eth { to: [2; 6], from: [4; 6] },
        ip: Ip::V4(Ipv4::new([192, 0, 2, 1], [192, 0, 2, 2])),
        source_port: 0xc000,
        bth,
        ext: headers.ext,
    };
    let mut frame = vec![0; 700];
    let n = wire::emit(&packet, &[headers.prefix(), payload], &mut frame).expect("the machines make valid packets");
    frame.truncate(n);
    frame
}

/// What goes with the n-th message: an immediate, or a key to invalidate.
const fn word(n: usize) -> Immediate {
    if n % 4 == 3 { Immediate::Invalidate(n as u32) } else { Immediate::Value(n as u32) }
}

impl Ends {
    fn new(selective: bool, psn: u32) -> Self {
        let (config, answer) = match selective {
            true => (RequesterConfig::berth(LOG2_MTU, WINDOW, 500), ResponderConfig::berth(LOG2_MTU)),
            false => (RequesterConfig::foreign(LOG2_MTU, WINDOW, 500), ResponderConfig::foreign(LOG2_MTU, 14)),
        };
        let config = RequesterConfig { retries: 0, tick: 1, ..config };
        Self {
            a: Requester::new(config, psn),
            b: Responder::new(answer, psn, FIRST_CREDIT),
            selective,
            host: Host { complete: 0, posted: 0, memory: vec![0; MEMORY as usize], owed: Vec::new(), not_yet: 0 },
            local: Vec::new(),
            to_b: VecDeque::new(),
            to_a: VecDeque::new(),
            placing: Vec::new(),
            buffers: Vec::new(),
            received: 0,
            landed: 0,
            sent: Vec::new(),
            sends: Vec::new(),
            done: 0,
            now: 0,
            expected: vec![0; MEMORY as usize],
            answers: false,
        }
    }

    /// Posts a message; false when there is no room.
    fn post(&mut self, input: &mut Input) -> bool {
        if self.sent.len() >= MESSAGES || self.a.room() == 0 {
            return false;
        }
        let n = self.sent.len();
        let what = input.byte();
        let len = input.below(RECEIVE + 1);
        let va = u64::from(input.below((MEMORY - 1000) as u32));
        let offset = self.local.len();
        let (op, kind, len, va) = match what % 8 {
            0..=3 => (Op::Send, Kind::Send, len, 0),
            4 | 5 => (Op::Write, Kind::Write, len, va),
            6 => (Op::Read, Kind::Read, len, va),
            _ => (Op::FetchAdd { add: 1 + u64::from(what) }, Kind::FetchAdd, 8, va & !7),
        };
        self.local.extend((0..len as usize).map(|i| (i * 7 + n * 31 + 1) as u8));
        let mut message = Message {
            op,
            tag: n as u32,
            offset: offset as u64,
            len,
            remote: Remote { va, key: KEY, len },
            // A later effect must not overtake what is read before it.
            fence: self.answers,
            ..Message::default()
        };
        let data = self.local[offset..].to_vec();
        let range = va as usize..va as usize + len as usize;
        match kind {
            Kind::Send => {
                message.credit = FIRST_CREDIT + self.sends.len() as u32;
                message.imm = word(n);
                self.sends.push(n);
                self.buffers.push(vec![0; RECEIVE as usize]);
                self.host.posted += 1;
            }
            Kind::Write => self.expected[range].copy_from_slice(&data),
            Kind::Read => {
                // What it must bring is known when it is posted.
                self.local.truncate(offset);
                self.local.extend(vec![0xee; len as usize]);
                self.local.extend_from_slice(&self.expected[range]);
                self.answers = true;
            }
            _ => {
                let Op::FetchAdd { add } = op else { return false };
                let old = u64::from_le_bytes(self.expected[range.clone()].try_into().expect("8 bytes"));
                self.expected[range].copy_from_slice(&old.wrapping_add(add).to_le_bytes());
                self.local.truncate(offset);
                self.local.extend(old.to_le_bytes());
                self.answers = true;
            }
        }
        assert!(self.a.post(message).is_ok(), "there was room");
        self.sent.push(Sent { kind, offset, len });
        true
    }

    fn transmit(&mut self) -> bool {
        let Some(t) = self.a.transmit(self.now) else { return false };
        assert!(self.a.window().flight() <= u32::from(WINDOW));
        let at = t.offset as usize;
        let carries = matches!(t.packet.kind, Kind::Send | Kind::Write);
        let payload = if carries { &self.local[at..at + t.packet.len as usize] } else { &[] };
        let headers = emit_request(Service::Rc, &t.packet).expect("the machine makes valid packets");
        let bth = Bth {
            ack_request: t.packet.ack_request,
            solicited: t.packet.solicited,
            ..Bth::new(headers.opcode, 17, t.packet.psn)
        };
        self.to_b.push_back(frame(&headers, bth, payload));
        true
    }

    fn events(&mut self) {
        while let Some(event) = self.b.event() {
            match event {
                Event::Landed { credit } => {
                    assert_eq!(credit, FIRST_CREDIT + self.landed, "landings are in order");
                    self.landed += 1;
                }
                Event::Invalidate { .. } => self.b.invalidated(true),
                Event::Received { credit, len, imm, invalidated, .. } => {
                    assert_eq!(credit, FIRST_CREDIT + self.host.complete, "completions are in order");
                    let n = self.sends[self.host.complete as usize];
                    let sent = &self.sent[n];
                    let told = match word(n) {
                        Immediate::Invalidate(key) => (None, Some(key)),
                        _ => (Some(n as u32), None),
                    };
                    assert_eq!((len, (imm, invalidated)), (sent.len, told));
                    let got = &self.buffers[self.host.complete as usize][..len as usize];
                    assert_eq!(got, &self.local[sent.offset..sent.offset + len as usize], "bytes of send {n}");
                    self.host.complete += 1;
                    self.received += 1;
                }
                Event::Atomic { psn, remote, operands, .. } => {
                    let at = remote.va as usize..remote.va as usize + 8;
                    let old = u64::from_le_bytes(self.host.memory[at.clone()].try_into().expect("8 bytes"));
                    self.host.memory[at].copy_from_slice(&old.wrapping_add(operands[0]).to_le_bytes());
                    self.b.atomic_done(psn, old);
                }
                Event::Used { .. } => (),
                Event::PageFault(access) => panic!("the memory is there: {access:?}"),
                Event::Broken(fault) => panic!("honest peers do not break a connection: {fault:?}"),
            }
        }
    }

    fn take_at_b(&mut self, bytes: &[u8]) {
        let (packet, payload) = wire::parse(bytes).expect("the frame is good");
        let (request, body) = parse_request(&packet, payload, self.selective).expect("it is a request");
        if let Verdict::Place(place) = self.b.receive(&request, &mut self.host) {
            self.placing.push((request.psn, place, body.to_vec()));
        }
        self.events();
    }

    fn place(&mut self, choice: usize) -> bool {
        if self.placing.is_empty() {
            return false;
        }
        // Only selective repeat allows any order.
        let i = if self.selective { choice % self.placing.len() } else { 0 };
        let (psn, place, payload) = self.placing.remove(i);
        match place {
            Place::Receive { credit, offset } => {
                let buffer = &mut self.buffers[(credit - FIRST_CREDIT) as usize];
                buffer[offset as usize..offset as usize + payload.len()].copy_from_slice(&payload);
            }
            Place::Memory { va, key } => {
                assert_eq!(key, KEY);
                self.host.memory[va as usize..va as usize + payload.len()].copy_from_slice(&payload);
            }
        }
        self.b.placed(psn);
        self.events();
        true
    }

    fn respond(&mut self) -> bool {
        let Some(reply) = self.b.respond() else { return false };
        let payload = match reply.payload {
            Some(r) => self.host.memory[r.va as usize..r.va as usize + r.len as usize].to_vec(),
            None => Vec::new(),
        };
        let headers = emit_response(Service::Rc, &reply.packet);
        self.to_a.push_back(frame(&headers, Bth::new(headers.opcode, 18, reply.packet.psn), &payload));
        self.events();
        true
    }

    fn take_at_a(&mut self, bytes: &[u8]) {
        let (packet, payload) = wire::parse(bytes).expect("the frame is good");
        let (response, body) = parse_response(&packet, payload, self.selective).expect("it is a response");
        match self.a.response(self.now, &response) {
            Outcome::Read { offset, len, .. } => {
                assert_eq!(body.len(), len as usize);
                self.local[offset as usize..offset as usize + body.len()].copy_from_slice(body);
            }
            Outcome::Atomic { tag, original, .. } => {
                let at = self.sent[tag as usize].offset;
                assert_eq!(self.local[at..at + 8], original.to_le_bytes(), "an atomic is carried out once");
            }
            Outcome::Bad => panic!("an honest response was refused: {response:?}"),
            Outcome::Failed => panic!("honest peers do not fail"),
            _ => (),
        }
        self.completions();
    }

    fn completions(&mut self) {
        while let Some(done) = self.a.complete() {
            assert_eq!((done.tag as usize, done.status), (self.done, Status::Done), "in order and well");
            let sent = &self.sent[self.done];
            if sent.kind == Kind::Read {
                let (at, len) = (sent.offset, sent.len as usize);
                assert_eq!(self.local[at..at + len], self.local[at + len..at + 2 * len], "what was read");
            }
            self.done += 1;
        }
    }

    fn go(&mut self, choice: usize) -> bool {
        if self.host.owed.is_empty() {
            return false;
        }
        let i = choice % self.host.owed.len();
        let psn = self.host.owed.swap_remove(i);
        self.a.go(self.now, psn);
        true
    }

    fn time(&mut self) -> bool {
        let Some(deadline) = self.a.deadline() else { return false };
        self.now = self.now.max(deadline);
        self.a.tick(self.now);
        self.completions();
        true
    }

    /// The fuzzer's schedule.
    fn schedule(&mut self, input: &mut Input) {
        while !input.is_empty() {
            self.now += 1;
            let choice = input.byte();
            let how = usize::from(choice >> 4);
            match choice % 13 {
                0 | 1 => {
                    self.post(input);
                }
                2 => {
                    self.transmit();
                }
                3 => while self.transmit() {},
                4 | 5 => {
                    // A frame may overtake a few.
                    if let Some(bytes) = self.to_b.remove(if choice % 13 == 5 { how.min(3) } else { 0 }) {
                        self.take_at_b(&bytes);
                    }
                }
                6 => {
                    if let Some(bytes) = self.to_a.pop_front() {
                        self.take_at_a(&bytes);
                    }
                }
                7 => {
                    self.place(how);
                }
                8 => {
                    self.respond();
                }
                9 => {
                    // Lost.
                    let queue = if how & 1 == 0 { &mut self.to_b } else { &mut self.to_a };
                    queue.pop_front();
                }
                10 => {
                    // Twice.
                    let queue = if how & 1 == 0 { &mut self.to_b } else { &mut self.to_a };
                    if let Some(first) = queue.front().cloned() {
                        queue.push_front(first);
                    }
                }
                11 => match how {
                    0 => self.host.not_yet = 1,
                    1 => {
                        self.go(how);
                    }
                    _ => {
                        self.time();
                    }
                },
                _ => {
                    // A frame that was damaged is dropped for its CRC.
                    if let Some(mut bytes) = self.to_b.pop_front() {
                        let at = input.below(bytes.len() as u32) as usize;
                        bytes[at] ^= 1 << (how & 7);
                        if wire::parse(&bytes).is_ok() {
                            self.to_b.push_front(bytes);
                        }
                    }
                }
            }
        }
    }

    /// From here on nothing is lost: all must end.
    fn finish(&mut self) {
        self.host.not_yet = 0;
        for _ in 0..PATIENCE {
            if self.done == self.sent.len() && self.to_a.is_empty() && self.to_b.is_empty() {
                assert_eq!(self.received as usize, self.sends.len());
                assert_eq!(self.host.memory, self.expected, "memory is as if all was done in order");
                return;
            }
            self.now += 1;
            let mut busy = self.transmit() | self.place(0) | self.respond() | self.go(0);
            if let Some(bytes) = self.to_b.pop_front() {
                self.take_at_b(&bytes);
                busy = true;
            }
            if let Some(bytes) = self.to_a.pop_front() {
                self.take_at_a(&bytes);
                busy = true;
            }
            self.completions();
            if !busy {
                self.time();
            }
        }
        panic!("no end: {} of {} messages, {:?}", self.done, self.sent.len(), self.a.window());
    }
}

/// The first bytes choose mode and PSN, the others the schedule.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let selective = input.byte() & 1 != 0;
    let psn = u32::from_le_bytes([input.byte(), input.byte(), input.byte(), 0]);
    let mut ends = Ends::new(selective, psn);
    ends.schedule(&mut input);
    ends.finish();
}
