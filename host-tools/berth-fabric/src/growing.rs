// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers that grow when needed (BE), for question 4: the machines of `berth_protocol::service::grow` over its reliable
//! connection. Data flows from first ends to second ends.
//!
//! Small elements and requests are SENDs into the first set, large elements are RDMA WRITEs into the second;
//! answers and releases are WRITEs the other way. The fabric loses nothing.

use crate::frames::{acknowledgement, request_bytes};
use crate::hosts::{Cx, Scheme, Timer};
use crate::net::{DATA, Packet, ROCE};
use crate::queued::{MTU, service};
use crate::time::{NS, Time, US};
use berth_protocol::rc::{
    Access, Admit, Event, Message, Op, Remote, RequestPacket, Requester, RequesterConfig, Responder, ResponderConfig,
    ResponsePacket, Target, Verdict,
};
use berth_protocol::service::grow::{Answer, Config, Progress, Receiver, ReceiverAction, Sender, SenderAction};
use std::collections::VecDeque;

/// Time to register or give back a set beyond its pages: system call and the adapter's tables.
const REGISTER: Time = 20 * US;

/// What packets say.
pub enum Body {
    /// A packet of the requester.
    Request(RequestPacket),
    /// A packet of the responder.
    Response(ResponsePacket),
}

/// A write or a send, in the order of the reliable connection.
enum Content {
    /// A message of one element.
    Element { message: u32, len: u32 },
    /// [`SenderAction::Request`].
    Request { phase: u32, size: u32 },
    /// [`ReceiverAction::Answer`], as it stands in memory.
    Answer([u8; 36]),
    /// [`ReceiverAction::Release`].
    Release { phase: u32, n: u32 },
}

enum Side {
    Sender(Sender<2>),
    Receiver(Receiver<2>),
}

struct End {
    side: Side,
    requester: Requester<24, 16, 8>,
    responder: Responder<24, 16, 1>,
    /// Messages that the sender has not taken.
    waiting: VecDeque<u32>,
    /// Elements that the requester had no room for: the element of its log, and its content.
    queue: VecDeque<(Message, Content)>,
    /// What is on its way.
    flying: VecDeque<Content>,
    credit: u32,
    /// Elements consumed since the last release.
    consumed: u32,
    committed: u64,
    timer: bool,
}

/// The scheme.
pub struct Growing {
    config: Config<2>,
    ends: Vec<End>,
    cores: Vec<Time>,
    /// Connections whose second end has the large set.
    pub grown: u64,
}

const APP: u8 = 0;
const OWN: u8 = 1;
const SET: u8 = 2;
const TIMEOUT: u8 = 3;

/// Everything that the peer sends is allowed for: both sides count their buffers.
struct Open(u32);

impl Target for Open {
    fn credit(&self, _: u32) -> Option<u32> {
        Some(self.0)
    }
    fn access(&mut self, _: &Access) -> Admit {
        Admit::Yes
    }
}

impl Growing {
    /// Without connections.
    pub fn new(config: Config<2>) -> Self {
        Self { config, ends: Vec::new(), cores: Vec::new(), grown: 0 }
    }

    fn account(&mut self, cx: &mut Cx<Body>, end: u32) {
        let e = &mut self.ends[end as usize];
        if let Side::Receiver(receiver) = &e.side {
            let bytes = receiver.memory();
            cx.commit(bytes as i64 - e.committed as i64);
            e.committed = bytes;
        }
    }

    /// Hands something to the reliable connection. `write`: RDMA WRITE, else SEND.
    fn put(&mut self, cx: &mut Cx<Body>, end: u32, len: u32, write: bool, content: Content) {
        let e = &mut self.ends[end as usize];
        let mut message = Message { op: Op::Send, len, credit: e.credit, ..Message::default() };
        if write {
            message.op = Op::Write;
            message.remote = Remote { va: 4096, key: 1, len };
        } else {
            e.credit = e.credit.wrapping_add(1);
        }
        if !matches!(content, Content::Element { .. }) {
            cx.stats.flow.packets += 1;
            cx.stats.flow.bytes += u64::from(ROCE + len.next_multiple_of(4) + if write { 16 } else { 0 });
        }
        e.queue.push_back((message, content));
        cx.data_waits(end);
    }

    /// Lets the sender do what it can.
    fn send(&mut self, cx: &mut Cx<Body>, end: u32) {
        loop {
            let e = &mut self.ends[end as usize];
            let Side::Sender(sender) = &mut e.side else { return };
            while let Some(action) = sender.poll() {
                match action {
                    SenderAction::Clear => (),
                    SenderAction::Request { phase, size, .. } => {
                        self.put(cx, end, 16, false, Content::Request { phase, size });
                        break;
                    }
                    SenderAction::Provision { size, count } => {
                        let host = cx.host(end) as usize;
                        let at = service(&mut self.cores[host], cx.now(), size * count, REGISTER);
                        cx.timer(at, OWN, end, 0);
                    }
                    SenderAction::Free { .. } => (),
                }
            }
            let e = &mut self.ends[end as usize];
            let Side::Sender(sender) = &mut e.side else { return };
            let Some(&message) = e.waiting.front() else { return };
            let len = cx.messages[message as usize].bytes;
            match sender.send(&[len]) {
                Ok(Progress::Now { elements: 1, remote, .. }) => {
                    e.waiting.pop_front();
                    self.put(cx, end, len, remote.is_some(), Content::Element { message, len });
                }
                // No bytes went yet, so the sender's actions are looked at once more.
                Ok(_) => {
                    if !sender.growing() || sender.clone().poll().is_none() {
                        return;
                    }
                }
                Err(error) => panic!("end {end}: {error:?}"),
            }
        }
    }

    /// Lets the receiver do what it wants.
    fn serve(&mut self, cx: &mut Cx<Body>, end: u32) {
        loop {
            let Side::Receiver(receiver) = &mut self.ends[end as usize].side else { return };
            let Some(action) = receiver.poll() else { break };
            match action {
                ReceiverAction::Provision { size, count } => {
                    let host = cx.host(end) as usize;
                    let at = service(&mut self.cores[host], cx.now(), size * count, REGISTER);
                    cx.timer(at, SET, end, 0);
                }
                ReceiverAction::Answer(answer) => {
                    self.put(cx, end, 36, true, Content::Answer(Answer::encode(&answer)));
                }
                ReceiverAction::Free { .. } => (),
                ReceiverAction::Release { phase, n } => {
                    self.put(cx, end, 8, true, Content::Release { phase, n });
                }
            }
        }
        self.account(cx, end);
    }

    /// Something has come for `end`.
    fn content(&mut self, cx: &mut Cx<Body>, end: u32, content: Content) {
        let host = cx.host(end);
        match (&mut self.ends[end as usize].side, content) {
            (Side::Receiver(receiver), Content::Element { message, len }) => {
                assert!(receiver.message(), "end {end}: no buffer was free");
                let at = cx.serve(host, len, true);
                cx.done(at, message);
                cx.timer(at, APP, end, 0);
                self.account(cx, end);
            }
            (Side::Receiver(receiver), Content::Request { phase, size }) => {
                assert!(receiver.request(phase, size), "end {end}: a request for nothing");
                self.serve(cx, end);
            }
            (Side::Sender(sender), Content::Answer(memory)) => {
                assert!(sender.look(&memory), "end {end}: an answer that is not whole");
                self.send(cx, end);
            }
            (Side::Sender(sender), Content::Release { phase, n }) => {
                sender.released(phase, n);
                self.send(cx, end);
            }
            _ => panic!("end {end}: content of the other direction"),
        }
    }

    fn arm(&mut self, cx: &mut Cx<Body>, end: u32) {
        let e = &mut self.ends[end as usize];
        if let (Some(at), false) = (e.requester.deadline(), e.timer) {
            e.timer = true;
            cx.timer(at.saturating_mul(NS).max(cx.now() + 1), TIMEOUT, end, 0);
        }
    }
}

impl Scheme for Growing {
    type Body = Body;

    fn start(&mut self, cx: &mut Cx<Body>) {
        self.cores = vec![0; cx.net.spec().hosts as usize];
        let timeout = (cx.net.spec().timeout() / NS) as u32;
        let log2_mtu = MTU.ilog2() as u8;
        let config = RequesterConfig { tick: 10_000, ..RequesterConfig::berth(log2_mtu, 16, timeout) };
        self.ends = (0..cx.conns.len() as u32 * 2)
            .map(|end| End {
                side: match end & 1 {
                    0 => Side::Sender(Sender::new(self.config)),
                    _ => Side::Receiver(Receiver::new(self.config)),
                },
                requester: Requester::new(config, 0),
                responder: Responder::new(ResponderConfig::berth(log2_mtu), 0, 0),
                waiting: VecDeque::new(),
                queue: VecDeque::new(),
                flying: VecDeque::new(),
                credit: 0,
                consumed: 0,
                committed: 0,
                timer: false,
            })
            .collect();
        for end in 0..self.ends.len() as u32 {
            self.account(cx, end);
        }
    }

    fn post(&mut self, cx: &mut Cx<Body>, end: u32, message: u32) {
        self.ends[end as usize].waiting.push_back(message);
        self.send(cx, end);
    }

    fn data(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let e = &mut self.ends[end as usize];
        while e.requester.room() > 0 {
            let Some((message, content)) = e.queue.pop_front() else { break };
            e.requester.post(message).ok()?;
            e.flying.push_back(content);
        }
        let transmit = e.requester.transmit(cx.now() / NS)?;
        if transmit.again {
            cx.stats.again += 1;
        }
        let packet = transmit.packet;
        self.arm(cx, end);
        Some(cx.packet(end, request_bytes(&packet), DATA, Body::Request(packet)))
    }

    fn ack(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let reply = self.ends[end as usize].responder.respond()?;
        Some(acknowledgement(cx, end, reply.packet, Body::Response))
    }

    fn receive(&mut self, cx: &mut Cx<Body>, packet: Packet<Body>) {
        let end = packet.flow ^ 1;
        match packet.body {
            Body::Request(request) => {
                let small = self.config.size(0);
                let e = &mut self.ends[end as usize];
                match e.responder.receive(&request, &mut Open(small)) {
                    Verdict::Place(_) => e.responder.placed(request.psn),
                    Verdict::Taken | Verdict::Duplicate => (),
                    Verdict::Drop(fault) => panic!("end {end}: {fault:?}"),
                }
                while let Some(event) = self.ends[end as usize].responder.event() {
                    if matches!(event, Event::Received { .. } | Event::Used { .. }) {
                        let content = self.ends[end as usize ^ 1].flying.pop_front();
                        if let Some(content) = content {
                            self.content(cx, end, content);
                        }
                    }
                }
                cx.ack_waits(end);
            }
            Body::Response(response) => {
                let e = &mut self.ends[end as usize];
                e.requester.response(cx.now() / NS, &response);
                while e.requester.complete().is_some() {}
                cx.data_waits(end);
            }
        }
    }

    fn timer(&mut self, cx: &mut Cx<Body>, timer: Timer) {
        let end = timer.a;
        let half = self.config.count / 2;
        let e = &mut self.ends[end as usize];
        match (timer.kind, &mut e.side) {
            (APP, Side::Receiver(receiver)) => {
                assert!(receiver.consumed(1));
                e.consumed += 1;
                // Releases are told in halves of a set; a set that was replaced is given back at once.
                let old = receiver.memory() > self.config.bytes(receiver.level());
                if e.consumed >= half || old {
                    e.consumed = 0;
                    self.serve(cx, end);
                }
                self.account(cx, end);
            }
            (OWN, Side::Sender(sender)) => {
                sender.provisioned(true);
                self.send(cx, end);
            }
            (SET, Side::Receiver(receiver)) => {
                receiver.provisioned(Some((4096, 1)));
                self.grown += 1;
                self.serve(cx, end);
            }
            (TIMEOUT, _) => {
                e.timer = false;
                let now = cx.now() / NS;
                if e.requester.deadline().is_some_and(|at| at <= now) {
                    e.requester.tick(now);
                    cx.data_waits(end);
                }
                self.arm(cx, end);
            }
            _ => (),
        }
    }
}
