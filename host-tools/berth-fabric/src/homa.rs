// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Baseline: receiver grants, in the style of Homa (Montazeri et al., SIGCOMM 2018).
//!
//! The first round trip's bytes of a message leave at once; the rest when the receiver grants it. It grants to
//! the messages with the least left, some at a time (overcommitment), so that its link stays full although a
//! sender may have more urgent work. The fabric's priorities follow what is left; senders send the message with
//! the least left first. Messages are received into a pool of the host and copied to the application.

use crate::hosts::{Cx, Scheme, Timer};
use crate::net::{ETHERNET, Packet};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Largest payload of a packet, as for the other schemes.
const MTU: u32 = 4096;
/// Ethernet, IPv4 20, Homa's data header 60.
const HEADER: u32 = ETHERNET + 80;
/// A grant: Ethernet, IPv4 20, 40.
const GRANT: u32 = ETHERNET + 60;
/// Bytes of a message that leave without a grant, and that a grant runs ahead: a round trip of a 100 Gbit/s link
/// through two levels of switches.
pub const UNSCHEDULED: u32 = 64 << 10;
/// Messages that are granted at a time.
const OVERCOMMIT: usize = 7;

/// What its packets say.
pub enum Body {
    /// Packet `index` of a message of `bytes` bytes.
    Data { message: u32, index: u32, bytes: u32 },
    /// Bytes below `to` may leave, with this priority.
    Grant { message: u32, to: u32, class: u8 },
    /// These packets are missing, from `first`.
    Resend { message: u32, first: u32, count: u32 },
    /// All has come.
    Complete { message: u32 },
}

struct Outgoing {
    /// Its number outside of the scheme.
    key: u32,
    /// The receiver has all: it remembers that for a while.
    received: bool,
    end: u32,
    bytes: u32,
    sent: u32,
    granted: u32,
    class: u8,
    again: BTreeSet<u32>,
    heard: Time,
}

impl Outgoing {
    fn left(&self) -> u32 {
        self.bytes - self.sent
    }
    fn may(&self) -> bool {
        !self.again.is_empty() || self.sent < self.granted.min(self.bytes)
    }
}

struct Incoming {
    bytes: u32,
    granted: u32,
    got: u32,
    map: Vec<u64>,
    heard: Time,
    from_end: u32,
}

#[derive(Default)]
struct Host {
    /// Messages that may send: (bytes left, message).
    ready: BTreeSet<(u32, u32)>,
    /// Messages being received that are not fully granted: (bytes left, message).
    wanting: BTreeSet<(u32, u32)>,
    /// Bytes of the pool in use, and all.
    pool: u64,
    limit: u64,
}

/// The scheme.
pub struct Homa {
    hosts: Vec<Host>,
    out: BTreeMap<u32, Outgoing>,
    incoming: BTreeMap<u32, Incoming>,
    next: u32,
    /// Time without progress after which a receiver asks again for what is missing.
    resend: Time,
    /// Bytes of a host's pool: for each connection that it has, and at most.
    pool: (u64, u64),
}

impl Homa {
    /// A host has so many bytes for messages that the application has not taken: for each connection, and at most.
    pub fn new(each: u64, most: u64) -> Self {
        Self {
            hosts: Vec::new(),
            out: BTreeMap::new(),
            incoming: BTreeMap::new(),
            next: 0,
            resend: 0,
            pool: (each, most),
        }
    }

    fn unscheduled_class(bytes: u32) -> u8 {
        match bytes {
            0..=1024 => 1,
            1025..=16_384 => 2,
            _ => 3,
        }
    }

    /// Grants to the messages with the least left.
    fn grant(&mut self, cx: &mut Cx<Body>, host: u32) {
        let chosen: Vec<_> = self.hosts[host as usize].wanting.iter().take(OVERCOMMIT).copied().collect();
        for (rank, (left, number)) in chosen.into_iter().enumerate() {
            let Some(m) = self.incoming.get_mut(&number) else { continue };
            let to = (m.got.saturating_add(UNSCHEDULED)).min(m.bytes);
            // A grant for each two packets, or for the rest.
            if to < m.granted + 2 * MTU && (to < m.bytes || m.granted >= to) {
                continue;
            }
            let more = u64::from(to - m.granted);
            let receiver = &mut self.hosts[host as usize];
            if rank > 0 && receiver.pool + more > receiver.limit {
                // The most urgent one may always go on, so that some message completes and makes room.
                continue;
            }
            receiver.pool += more;
            cx.commit(more as i64);
            m.granted = to;
            let class = 4 + (rank as u8).min(3);
            let from = m.from_end ^ 1;
            if to == m.bytes {
                self.hosts[host as usize].wanting.remove(&(left, number));
            }
            cx.stats.flow.packets += 1;
            cx.stats.flow.bytes += u64::from(GRANT);
            let packet = cx.packet(from, GRANT, 0, Body::Grant { message: number, to, class });
            cx.control(packet);
        }
    }

    fn refresh(&mut self, cx: &mut Cx<Body>, message: u32, was: u32) {
        let Some(m) = self.out.get(&message) else { return };
        let host = cx.host(m.end);
        let ready = &mut self.hosts[host as usize].ready;
        ready.remove(&(was, message));
        if m.may() {
            ready.insert((m.left(), message));
            cx.kick(host);
        }
    }
}

impl Scheme for Homa {
    type Body = Body;

    fn start(&mut self, cx: &mut Cx<Body>) {
        self.resend = cx.net.spec().timeout() / 2;
        self.hosts = (0..cx.net.spec().hosts).map(|_| Host::default()).collect();
        for conn in &cx.conns {
            for host in conn {
                let limit = &mut self.hosts[*host as usize].limit;
                *limit = (*limit + self.pool.0).min(self.pool.1);
            }
        }
    }

    fn post(&mut self, cx: &mut Cx<Body>, end: u32, key: u32) {
        let bytes = cx.messages[key as usize].bytes;
        let message = self.next;
        self.next += 1;
        let class = Self::unscheduled_class(bytes);
        let granted = UNSCHEDULED.min(bytes);
        let heard = cx.now();
        let again = BTreeSet::new();
        let m = Outgoing { key, received: false, end, bytes, sent: 0, granted, class, again, heard };
        self.out.insert(message, m);
        self.refresh(cx, message, bytes);
        cx.timer(heard + self.resend, 1, message, 0);
    }

    fn data(&mut self, _: &mut Cx<Body>, _: u32) -> Option<Packet<Body>> {
        None
    }

    fn ack(&mut self, _: &mut Cx<Body>, _: u32) -> Option<Packet<Body>> {
        None
    }

    fn pull(&mut self, cx: &mut Cx<Body>, host: u32) -> Option<Packet<Body>> {
        if let Some(packet) = cx.nics[host as usize].control.pop_front() {
            return Some(packet);
        }
        if !cx.net.may_send_data(host) {
            return None;
        }
        let &(left, message) = self.hosts[host as usize].ready.first()?;
        let m = self.out.get_mut(&message)?;
        let index = match m.again.pop_first() {
            Some(index) => {
                cx.stats.again += 1;
                index
            }
            None => m.sent / MTU,
        };
        let at = index * MTU;
        let len = MTU.min(m.bytes - at);
        if at == m.sent {
            m.sent += len;
        }
        let class = if at < UNSCHEDULED { Self::unscheduled_class(m.bytes) } else { m.class };
        let (end, bytes) = (m.end, m.bytes);
        self.refresh(cx, message, left);
        Some(cx.packet(end, HEADER + len, class, Body::Data { message, index, bytes }))
    }

    fn receive(&mut self, cx: &mut Cx<Body>, packet: Packet<Body>) {
        let now = cx.now();
        let to = packet.to;
        match packet.body {
            Body::Data { message, index, bytes } => {
                let Some(Outgoing { received: false, key, .. }) = self.out.get(&message) else { return };
                let key = *key;
                let packets = bytes.div_ceil(MTU).max(1);
                if !self.incoming.contains_key(&message) {
                    let host = &mut self.hosts[to as usize];
                    let granted = UNSCHEDULED.min(bytes);
                    if host.pool > 0 && host.pool + u64::from(granted) > host.limit {
                        // No room in the pool for another message.
                        cx.stats.not_ready += 1;
                        return;
                    }
                    host.pool += u64::from(granted);
                    cx.commit(i64::from(granted));
                    let m = Incoming {
                        bytes,
                        granted,
                        got: 0,
                        map: vec![0; packets.div_ceil(64) as usize],
                        heard: now,
                        from_end: packet.flow,
                    };
                    if m.granted < bytes {
                        self.hosts[to as usize].wanting.insert((bytes, message));
                    }
                    self.incoming.insert(message, m);
                    cx.timer(now + self.resend, 0, message, 0);
                }
                let Some(m) = self.incoming.get_mut(&message) else { return };
                let (word, bit) = (index as usize / 64, 1u64 << (index % 64));
                if m.map[word] & bit != 0 || m.got >= m.bytes {
                    return;
                }
                m.map[word] |= bit;
                m.heard = now;
                let copied = cx.copy(to, MTU.min(bytes - index * MTU));
                let was = m.bytes - m.got;
                m.got += MTU.min(bytes - index * MTU);
                let (got, wanting) = (m.got, m.granted < m.bytes);
                let from = m.from_end ^ 1;
                let host = &mut self.hosts[to as usize];
                host.wanting.remove(&(was, message));
                if wanting {
                    host.wanting.insert((bytes - got, message));
                }
                if got == bytes {
                    let at = cx.serve(to, 0, true).max(copied);
                    cx.done(at, key);
                    if let Some(out) = self.out.get_mut(&message) {
                        out.received = true;
                    }
                    cx.timer(at, 2, to, u64::from(message));
                    cx.stats.acks.packets += 1;
                    cx.stats.acks.bytes += u64::from(GRANT);
                    let packet = cx.packet(from, GRANT, 0, Body::Complete { message });
                    cx.control(packet);
                }
                self.grant(cx, to);
            }
            Body::Grant { message, to, class } => {
                if let Some(m) = self.out.get_mut(&message) {
                    let was = m.left();
                    m.granted = m.granted.max(to);
                    m.class = class;
                    m.heard = now;
                    self.refresh(cx, message, was);
                }
            }
            Body::Resend { message, first, count } => {
                if let Some(m) = self.out.get_mut(&message) {
                    let was = m.left();
                    m.heard = now;
                    // The grant may have been lost.
                    m.granted = m.granted.max((first + count) * MTU);
                    let sent = m.sent.div_ceil(MTU);
                    m.again.extend((first..first + count).filter(|&i| i < sent));
                    self.refresh(cx, message, was);
                }
            }
            Body::Complete { message } => {
                if let Some(m) = self.out.remove(&message) {
                    let left = m.left();
                    self.hosts[cx.host(m.end) as usize].ready.remove(&(left, message));
                }
            }
        }
    }

    fn timer(&mut self, cx: &mut Cx<Body>, timer: Timer) {
        let now = cx.now();
        match timer.kind {
            // The receiver waits for packets of a message.
            0 => {
                let Some(m) = self.incoming.get_mut(&timer.a) else { return };
                if m.got == m.bytes {
                    return;
                }
                if now >= m.heard + self.resend {
                    m.heard = now;
                    let packets = m.granted.div_ceil(MTU);
                    let missing = |i: u32| m.map[i as usize / 64] & 1 << (i % 64) == 0;
                    if let Some(first) = (0..packets).find(|&i| missing(i)) {
                        let count = (first..packets).take_while(|&i| missing(i)).count() as u32;
                        let from = m.from_end ^ 1;
                        cx.stats.flow.packets += 1;
                        cx.stats.flow.bytes += u64::from(GRANT);
                        let packet = cx.packet(from, GRANT, 0, Body::Resend { message: timer.a, first, count });
                        cx.control(packet);
                    }
                }
                let at = (m.heard + self.resend).max(now + self.resend / 4);
                cx.timer(at, 0, timer.a, 0);
            }
            // The sender has heard nothing of a message.
            1 => {
                let Some(m) = self.out.get_mut(&timer.a) else { return };
                if now >= m.heard + self.resend && m.sent > 0 {
                    let was = m.left();
                    m.heard = now;
                    m.again.insert(0);
                    self.refresh(cx, timer.a, was);
                }
                cx.timer(now + self.resend, 1, timer.a, 0);
            }
            // The application has taken a message.
            _ => {
                if let Some(m) = self.incoming.remove(&(timer.b as u32)) {
                    self.hosts[timer.a as usize].pool -= u64::from(m.bytes);
                    cx.commit(-i64::from(m.bytes));
                    self.grant(cx, timer.a);
                }
            }
        }
    }
}
