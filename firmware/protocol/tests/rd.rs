// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reliable datagram: many QPs of several nodes over one context per pair of nodes.

mod common;

use berth_protocol::model::Rng;
use berth_protocol::rc::*;
use berth_protocol::service::rd::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const SIZE: u32 = 700;

type End = Context<24, 8, 1>;

/// The QPs of one node: QPN n is the n-th.
struct Qps {
    qkey: Vec<u32>,
    /// Receives given to each.
    receives: Vec<VecDeque<u32>>,
    buffers: Vec<Vec<u8>>,
    memory: Vec<u8>,
    /// Its pages cannot be had.
    failing: bool,
}

impl Ports for Qps {
    fn open(&mut self, to: &Address) -> Open {
        match self.qkey.get(to.destination as usize) {
            Some(&qkey) if qkey == to.qkey => (),
            _ => return Open::Refused,
        }
        match self.receives[to.destination as usize].pop_front() {
            Some(handle) => Open::Receive { handle, size: SIZE },
            None => Open::NotReady,
        }
    }
    fn access(&mut self, to: &Address, access: &Access) -> Admit {
        let good = self.qkey.get(to.destination as usize) == Some(&to.qkey)
            && access.remote.key == 77
            && access.remote.va.saturating_add(access.remote.len as u64) <= self.memory.len() as u64;
        match good {
            true if self.failing => Admit::Failed,
            true => Admit::Yes,
            false => Admit::No,
        }
    }
}

impl Qps {
    fn new(count: u32) -> Self {
        Self {
            qkey: (0..count).map(|i| 1000 + i).collect(),
            receives: vec![VecDeque::new(); count as usize],
            buffers: Vec::new(),
            memory: vec![0; 1024],
            failing: false,
        }
    }
    fn receive(&mut self, qp: u32) {
        self.receives[qp as usize].push_back(self.buffers.len() as u32);
        self.buffers.push(vec![0; SIZE as usize]);
    }
}

/// What a message is, to be sent from (node, QP) to (node, QP).
#[derive(Clone, Debug)]
struct Job {
    to: Address,
    message: Message,
    data: Vec<u8>,
}

/// Contexts of two nodes with each other, and what goes between them one way.
struct Link {
    from: usize,
    to: usize,
    requests: VecDeque<(Request, Vec<u8>)>,
    responses: VecDeque<(ResponsePacket, Vec<u8>)>,
    jobs: VecDeque<Job>,
    now: Vec<u8>,
    placing: VecDeque<(u32, Put, Vec<u8>)>,
}

struct Net {
    nodes: Vec<Qps>,
    /// Context of node i with node j.
    ends: Vec<Vec<End>>,
    links: Vec<Link>,
    done: Vec<(usize, Address, Completion)>,
    received: Vec<(usize, Address, Vec<u8>, Option<u32>)>,
    dropped: usize,
    page_faults: Vec<(usize, Address, Access)>,
    rng: Rng,
    loss: u64,
    now: u64,
}

impl Net {
    fn new(nodes: usize, qps: u32, seed: u64, loss: u64) -> Self {
        let config = RequesterConfig { retries: 0, tick: 1, ..RequesterConfig::foreign(8, 8, 2000) };
        let mut links = Vec::new();
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                links.push(Link {
                    from,
                    to,
                    requests: VecDeque::new(),
                    responses: VecDeque::new(),
                    jobs: VecDeque::new(),
                    now: Vec::new(),
                    placing: VecDeque::new(),
                });
            }
        }
        Self {
            nodes: (0..nodes).map(|_| Qps::new(qps)).collect(),
            ends: (0..nodes).map(|_| (0..nodes).map(|_| End::new(config, 3, 3, 10)).collect()).collect(),
            links,
            done: Vec::new(),
            received: Vec::new(),
            dropped: 0,
            page_faults: Vec::new(),
            rng: Rng(seed),
            loss,
            now: 0,
        }
    }

    fn drain(&mut self, to: usize, from: usize) {
        while let Some(event) = self.ends[to][from].arrived() {
            match event {
                Arrived::Received { address, handle, len, imm } => {
                    let data = self.nodes[to].buffers[handle as usize][..len as usize].to_vec();
                    self.received.push((to, address, data, imm));
                }
                Arrived::Atomic { psn, remote, operands, .. } => {
                    let at = remote.va as usize;
                    let memory = &mut self.nodes[to].memory[at..at + 8];
                    let old = u64::from_le_bytes(memory.try_into().unwrap());
                    memory.copy_from_slice(&old.wrapping_add(operands[0]).to_le_bytes());
                    self.ends[to][from].atomic_done(psn, old);
                }
                Arrived::Used { key, .. } => assert_eq!(key, 77),
                Arrived::PageFault { address, access } => self.page_faults.push((to, address, access)),
                Arrived::Dropped { .. } => self.dropped += 1,
            }
        }
    }

    /// One step of link `l`. False if it has nothing to do.
    fn step(&mut self, l: usize, what: u64) -> bool {
        let (from, to) = (self.links[l].from, self.links[l].to);
        let lose = self.rng.below(100) < self.loss;
        match what {
            0 => {
                let end = &mut self.ends[from][to];
                if end.ready() && !self.links[l].jobs.is_empty() {
                    let job = self.links[l].jobs.pop_front().unwrap();
                    assert!(end.post(job.to, job.message));
                    self.links[l].now = job.data;
                }
                let Some(t) = end.transmit(self.now) else {
                    return false;
                };
                let at = t.offset as usize;
                let payload = match t.request {
                    Request::Packet(_, p) => self.links[l].now[at..at + p.len as usize].to_vec(),
                    Request::Resync(_) => Vec::new(),
                };
                if !lose {
                    self.links[l].requests.push_back((t.request, payload));
                }
            }
            1 => {
                let Some((request, payload)) = self.links[l].requests.pop_front() else {
                    return false;
                };
                let put = self.ends[to][from].receive(&request, &mut self.nodes[to]);
                if let (Request::Packet(_, packet), false) = (request, put == Put::Nothing) {
                    self.links[l].placing.push_back((packet.psn, put, payload));
                }
                self.drain(to, from);
            }
            2 => {
                let Some((psn, put, payload)) = self.links[l].placing.pop_front() else {
                    return false;
                };
                let node = &mut self.nodes[to];
                let place = match put {
                    Put::Receive { handle, offset } => &mut node.buffers[handle as usize][offset as usize..],
                    Put::Memory { va, .. } => &mut node.memory[va as usize..],
                    Put::Nothing => unreachable!(),
                };
                place[..payload.len()].copy_from_slice(&payload);
                self.ends[to][from].placed(psn);
                self.drain(to, from);
            }
            3 => {
                let Some(reply) = self.ends[to][from].respond() else {
                    return false;
                };
                let payload = reply.payload.map_or(Vec::new(), |r| {
                    self.nodes[to].memory[r.va as usize..r.va as usize + r.len as usize].to_vec()
                });
                if !lose {
                    self.links[l].responses.push_back((reply.packet, payload));
                }
                self.drain(to, from);
            }
            _ => {
                let Some((packet, payload)) = self.links[l].responses.pop_front() else {
                    return false;
                };
                if let Outcome::Read { offset, .. } = self.ends[from][to].response(self.now, &packet) {
                    let at = offset as usize;
                    self.links[l].now[at..at + payload.len()].copy_from_slice(&payload);
                }
            }
        }
        while let Some((address, completion)) = self.ends[from][to].complete() {
            self.done.push((from, address, completion));
        }
        true
    }

    /// Runs until `count` messages are over.
    fn run(&mut self, count: usize) {
        let mut idle = 0;
        for _ in 0..2_000_000 {
            if self.done.len() >= count {
                return;
            }
            let l = self.rng.below(self.links.len() as u64) as usize;
            let what = self.rng.below(5);
            if self.step(l, what) {
                self.now += 1;
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > 40 * self.links.len() {
                idle = 0;
                let next = self.ends.iter().flatten().filter_map(End::deadline).min();
                self.now = self.now.max(next.unwrap_or(self.now));
                for end in self.ends.iter_mut().flatten() {
                    end.tick(self.now);
                }
            }
        }
        panic!("no progress");
    }

    fn post(&mut self, from: usize, to: usize, address: Address, message: Message, data: Vec<u8>) {
        let link = self.links.iter_mut().find(|l| l.from == from && l.to == to).unwrap();
        link.jobs.push_back(Job { to: address, message, data });
    }
}

fn send(tag: u32, len: u32) -> Message {
    Message { op: Op::Send, tag, len, imm: Immediate::Value(tag), ..Message::default() }
}

fn bytes(tag: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ tag) as u8).collect()
}

#[test]
fn qp_6_every_qp_reaches_every_qp_over_one_context_per_pair_of_nodes() {
    let (nodes, qps) = (3usize, 4u32);
    let mut net = Net::new(nodes, qps, 1, 5);
    let mut tag = 0;
    for from in 0..nodes {
        for to in (0..nodes).filter(|&to| to != from) {
            for source in 0..qps {
                for destination in 0..qps {
                    let address = Address { source, destination, qkey: 1000 + destination };
                    net.post(from, to, address, send(tag, 10 + tag), bytes(tag, 10 + tag));
                    net.nodes[to].receive(destination);
                    tag += 1;
                }
            }
        }
    }
    net.run(tag as usize);
    assert!(net.done.iter().all(|d| d.2.status == Status::Done));
    let mut seen = vec![0; tag as usize];
    for (_, _, data, imm) in &net.received {
        let tag = imm.unwrap();
        assert_eq!(data, &bytes(tag, 10 + tag));
        seen[tag as usize] += 1;
    }
    assert!(seen.iter().all(|&n| n == 1));
}

#[test]
fn qp_6_a_refused_message_fails_alone_and_the_context_goes_on() {
    let mut net = Net::new(2, 2, 1, 0);
    for _ in 0..4 {
        net.nodes[1].receive(1);
    }
    let good = Address { source: 0, destination: 1, qkey: 1001 };
    let far = Remote { va: 0, key: 78, len: 300 };
    net.post(0, 1, good, send(1, 600), bytes(1, 600));
    net.post(0, 1, Address { qkey: 5, ..good }, send(2, 600), bytes(2, 600));
    net.post(0, 1, good, send(3, 600), bytes(3, 600));
    net.post(0, 1, Address { destination: 9, ..good }, send(4, 0), bytes(4, 0));
    let write = Message { op: Op::Write, tag: 5, len: 300, remote: far, ..Message::default() };
    net.post(0, 1, good, write, bytes(5, 300));
    net.post(0, 1, good, Message { op: Op::Read, tag: 6, ..write }, bytes(6, 300));
    net.post(0, 1, good, send(7, SIZE + 1), bytes(7, SIZE + 1));
    net.post(0, 1, good, send(8, 0), bytes(8, 0));
    net.run(8);
    let ends: Vec<_> = net.done.iter().map(|d| (d.2.tag, d.2.status)).collect();
    assert_eq!(
        ends,
        [
            (1, Status::Done),
            (2, Status::InvalidDatagram),
            (3, Status::Done),
            (4, Status::InvalidDatagram),
            (5, Status::AccessRefused),
            (6, Status::AccessRefused),
            (7, Status::InvalidRequest),
            (8, Status::Done),
        ]
    );
    assert_eq!(net.received.iter().map(|r| r.3.unwrap()).collect::<Vec<_>>(), [1, 3, 8]);
    assert_eq!(net.dropped, 1, "the receive of the message that was too long");
}

#[test]
fn qp_6_write_read_and_atomics_go_by_datagram() {
    let mut net = Net::new(2, 1, 1, 0);
    let to = Address { source: 0, destination: 0, qkey: 1000 };
    let remote = Remote { va: 64, key: 77, len: 600 };
    let write = Message { op: Op::Write, tag: 1, len: 600, remote, ..Message::default() };
    net.post(0, 1, to, write, bytes(9, 600));
    net.run(1);
    assert_eq!(net.nodes[1].memory[64..664], bytes(9, 600));
    net.post(0, 1, to, Message { op: Op::Read, tag: 2, ..write }, vec![0; 600]);
    net.run(2);
    assert_eq!(net.links[0].now, bytes(9, 600));
    let add = Message { op: Op::FetchAdd { add: 3 }, tag: 3, len: 8, remote: Remote { va: 0, ..remote }, ..write };
    net.post(0, 1, to, add, Vec::new());
    net.run(3);
    assert_eq!(net.nodes[1].memory[0], 3);
    assert!(net.done.iter().all(|d| d.2.status == Status::Done));
}

#[test]
fn qp_6_a_qp_without_a_receive_is_waited_for() {
    let mut net = Net::new(2, 1, 1, 0);
    net.post(0, 1, Address { source: 0, destination: 0, qkey: 1000 }, send(1, 10), bytes(1, 10));
    for what in [0, 1, 3, 4] {
        assert!(net.step(0, what));
    }
    assert!(matches!(net.ends[0][1].waiting(), Some(Wait::Receive(_))));
    net.nodes[1].receive(0);
    net.run(1);
    assert_eq!(net.done[0].2.status, Status::Done);
}

#[test]
fn qp_13_a_page_fault_that_cannot_be_handled_fails_the_message_alone_and_is_told_to_the_owner() {
    let mut net = Net::new(2, 1, 1, 0);
    net.nodes[1].failing = true;
    net.nodes[1].receive(0);
    let to = Address { source: 0, destination: 0, qkey: 1000 };
    let remote = Remote { va: 64, key: 77, len: 600 };
    let write = Message { op: Op::Write, tag: 1, len: 600, remote, ..Message::default() };
    net.post(0, 1, to, write, bytes(1, 600));
    net.post(0, 1, to, Message { op: Op::Read, tag: 2, ..write }, vec![0; 600]);
    net.post(0, 1, to, send(3, 10), bytes(3, 10));
    net.run(3);
    let ends: Vec<_> = net.done.iter().map(|d| d.2.status).collect();
    assert_eq!(ends, [Status::RemoteError, Status::RemoteError, Status::Done]);
    let faults: Vec<_> = net.page_faults.iter().map(|f| (f.0, f.1, f.2.remote, f.2.right)).collect();
    // A long READ is cut into requests, each an operation of its own.
    assert_eq!(faults, [(1, to, remote, Right::Write), (1, to, Remote { len: 256, ..remote }, Right::Read)]);
    assert_eq!(net.nodes[1].memory, [0; 1024]);
}

#[test]
fn qp_6_a_message_posted_during_a_resync_that_nobody_answers_fails_with_it() {
    let mut net = Net::new(2, 1, 1, 0);
    let config = RequesterConfig { retries: 2, ..RequesterConfig::foreign(8, 8, 100) };
    net.ends[0][1] = End::new(config, 3, 3, 10);
    let to = Address { source: 0, destination: 0, qkey: 1000 };
    net.post(0, 1, Address { qkey: 1, ..to }, send(1, 10), bytes(1, 10));
    net.run(1);
    assert_eq!(net.done[0].2.status, Status::InvalidDatagram);
    // Now nothing comes through any more.
    net.loss = 100;
    net.post(0, 1, to, send(2, 10), bytes(2, 10));
    let (mut resyncs, mut timeouts) = (0, 0);
    while net.done.len() < 2 {
        resyncs += net.step(0, 0) as u32;
        if let Some(deadline) = net.ends[0][1].deadline() {
            net.now = deadline;
            timeouts += net.ends[0][1].tick(deadline) as u32;
        }
        while let Some((address, completion)) = net.ends[0][1].complete() {
            net.done.push((0, address, completion));
        }
    }
    assert_eq!((net.done[1].2.tag, net.done[1].2.status), (2, Status::RetryExceeded));
    assert_eq!((resyncs, timeouts), (3, 3), "the first, and two retries");
    assert!(net.ends[0][1].lost() && !net.ends[0][1].ready());
    assert!(net.ends[0][1].transmit(net.now).is_none() && net.ends[0][1].deadline().is_none());
}

#[test]
fn qp_6_a_node_that_is_gone_is_noticed() {
    let mut net = Net::new(2, 1, 1, 100);
    let config = RequesterConfig { retries: 2, ..RequesterConfig::foreign(8, 8, 100) };
    net.ends[0][1] = End::new(config, 3, 3, 10);
    net.nodes[1].receive(0);
    net.post(0, 1, Address { source: 0, destination: 0, qkey: 1000 }, send(1, 10), bytes(1, 10));
    net.step(0, 0);
    while !net.ends[0][1].lost() {
        net.now = net.ends[0][1].deadline().unwrap();
        net.ends[0][1].tick(net.now);
        net.step(0, 0);
        while let Some((_, completion)) = net.ends[0][1].complete() {
            assert_eq!(completion.status, Status::RetryExceeded);
        }
    }
    assert!(!net.ends[0][1].ready());
}

proptest! {
    #![proptest_config(common::config(200))]

    /// Each message arrives once, or fails by itself; those between two QPs keep their order.
    #[test]
    fn qp_6_messages_arrive_once_in_order_or_fail_alone(
        seed: u64, loss in 0u64..20,
        list in prop::collection::vec((0usize..3, 1usize..3, 0u32..3, 0u32..4, 0u32..SIZE + 60), 1..40),
    ) {
        let mut net = Net::new(3, 3, seed, loss);
        for (tag, &(from, away, source, destination, len)) in list.iter().enumerate() {
            let (to, tag) = ((from + away) % 3, tag as u32);
            // QP 3 does not exist.
            let address = Address { source, destination, qkey: 1000 + destination };
            net.post(from, to, address, send(tag, len), bytes(tag, len));
            if destination < 3 {
                net.nodes[to].receive(destination);
            }
        }
        net.run(list.len());
        let mut last = std::collections::HashMap::new();
        let mut got = vec![0; list.len()];
        for (node, address, data, imm) in &net.received {
            let tag = imm.unwrap();
            let (from, _, _, _, len) = list[tag as usize];
            prop_assert!(data == &bytes(tag, len));
            got[tag as usize] += 1;
            let before = last.insert((from, *node, address.source, address.destination), tag);
            prop_assert!(before.is_none_or(|before| before < tag));
        }
        for (_, _, completion) in &net.done {
            let (_, _, _, destination, len) = list[completion.tag as usize];
            let want = match (destination, len) {
                (3, _) => Status::InvalidDatagram,
                (_, len) if len > SIZE => Status::InvalidRequest,
                _ => Status::Done,
            };
            prop_assert_eq!(completion.status, want);
            prop_assert_eq!(got[completion.tag as usize], (want == Status::Done) as u32);
        }
    }
}
