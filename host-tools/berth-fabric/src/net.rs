// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fabric: hosts' links, store-and-forward switches with shared, finite buffers, priorities, and either
//! priority flow control (nothing is lost) or loss when a buffer is full.

use crate::time::{MS, NS, Queue, Time};
use slab::Slab;
use std::collections::VecDeque;

/// Priorities of a port; 0 goes first. Priority 0 is for acknowledgements and other control and is never paused.
pub const CLASSES: usize = 8;
/// Priority of data where a scheme has no reason to choose another.
pub const DATA: u8 = 7;

/// Ethernet's own bytes for a frame: preamble 8, header 14, check sequence 4, gap 12.
pub const ETHERNET: u32 = 38;
/// A RoCEv2 packet without payload and extended headers: Ethernet, IPv4 20, UDP 8, BTH 12, iCRC 4.
pub const ROCE: u32 = ETHERNET + 44;

/// A frame on its way.
pub struct Packet<B> {
    /// Host that it comes from.
    pub from: u32,
    /// Host that it goes to.
    pub to: u32,
    /// Bytes on the wire, with all headers.
    pub bytes: u32,
    /// Number that chooses its path where there are several.
    pub flow: u32,
    /// Priority.
    pub class: u8,
    /// What it says.
    pub body: B,
    /// Port of the switch that it came in by.
    ingress: u32,
}

impl<B> Packet<B> {
    /// A packet.
    pub fn new(from: u32, to: u32, bytes: u32, flow: u32, class: u8, body: B) -> Self {
        Self { from, to, bytes, flow, class, body, ingress: u32::MAX }
    }
}

/// What a full buffer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// Each input has its share of the buffer; a full one pauses the sender on the other end of the link
    /// (IEEE 802.1Qbb, one class for all data). Nothing is lost.
    Pause,
    /// The buffer is shared by dynamic thresholds (an output may hold as much as is still free); a frame that does not
    /// fit is lost.
    Drop,
}

/// Where switches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All hosts at one switch.
    Star,
    /// Switches with `down` hosts each, all of them joined by `spines` others.
    LeafSpine {
        /// Hosts at a leaf.
        down: u32,
        /// Spine switches; one link to each leaf.
        spines: u32,
    },
}

/// Measures of a fabric.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Hosts.
    pub hosts: u32,
    /// Where switches are.
    pub shape: Shape,
    /// Rate of every link.
    pub gbps: u32,
    /// Time that a bit takes through a link.
    pub delay: Time,
    /// Time from a frame's last bit in to its place in the output queue.
    pub latency: Time,
    /// Buffer for each port of a switch; all ports share what they have together.
    pub buffer_per_port: u64,
    /// What a full buffer does.
    pub loss: Loss,
}

impl Spec {
    /// 100 Gbit/s, 500 ns cables with transceivers, 300 ns switches with 256 KiB a port; a single switch up to
    /// 64 hosts, beyond that leaves of 32 hosts and 16 spines (half as many cables up as down), and above 4096 hosts
    /// one switch again.
    pub fn of(hosts: u32, loss: Loss) -> Self {
        let shape = if hosts <= 64 || hosts > 4096 { Shape::Star } else { Shape::LeafSpine { down: 32, spines: 16 } };
        Self { hosts, shape, gbps: 100, delay: 500 * NS, latency: 300 * NS, buffer_per_port: 256 << 10, loss }
    }

    /// Time without an acknowledgement after which a transport sends again: longer than any queue of a fabric that
    /// loses nothing, a few full buffers where it does.
    pub fn timeout(&self) -> Time {
        match self.loss {
            Loss::Pause => 16 * MS,
            Loss::Drop => 4 * MS,
        }
    }

    /// Picoseconds for each byte.
    pub fn ps_per_byte(&self) -> Time {
        8_000 / self.gbps as Time
    }
}

/// What happens in the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetEvent {
    /// A packet is in the switch that `port` belongs to, having come in there.
    Switch {
        /// Input port.
        port: u32,
        /// Packet.
        packet: u32,
    },
    /// A packet is at a host.
    Host {
        /// Packet.
        packet: u32,
    },
    /// A port can send the next packet.
    Free {
        /// Output port.
        port: u32,
    },
    /// The other end of the port's link wants data to stop or to go on.
    Pause {
        /// Output port.
        port: u32,
        /// Stop.
        on: bool,
    },
}

/// The fabric's requests to the simulation.
pub enum Outcome<B> {
    /// Nothing.
    None,
    /// The host's link is free: give it the next packet.
    Pull(u32),
    /// A packet has come.
    Arrived(Packet<B>),
}

struct Port {
    /// Port on the other end of the link; hosts' ports have the hosts' numbers.
    peer: u32,
    /// Switch, or `u32::MAX` for a host.
    switch: u32,
    free_at: Time,
    /// A `Free` event is on its way.
    waking: bool,
    /// Data is paused by the other end.
    paused: bool,
    /// We have paused the other end.
    pausing: bool,
    nonempty: u8,
    /// Bytes in the output queues.
    queued: u64,
    /// Bytes of data in the switch that came in here.
    held: u64,
    queues: [VecDeque<u32>; CLASSES],
}

struct Switch {
    used: u64,
    limit: u64,
    /// Bytes from one input that make it pause, and that let it go on.
    xoff: u64,
    xon: u64,
    first_port: u32,
}

/// Counters of the fabric.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetCounters {
    /// Packets lost because a buffer was full.
    pub lost: u64,
    /// Times that a port was paused.
    pub pauses: u64,
    /// Time that ports were paused, all together.
    pub paused: Time,
    /// Most bytes in one switch.
    pub peak: u64,
    /// Bytes sent by hosts, with headers.
    pub sent: u64,
}

/// Links and switches.
pub struct Net<B> {
    spec: Spec,
    ports: Vec<Port>,
    switches: Vec<Switch>,
    packets: Slab<Packet<B>>,
    paused_since: Vec<Time>,
    /// Counters.
    pub counters: NetCounters,
}

impl<B> Net<B> {
    /// A fabric without packets.
    pub fn new(spec: Spec) -> Self {
        let mut net = Self {
            spec,
            ports: Vec::new(),
            switches: Vec::new(),
            packets: Slab::new(),
            paused_since: Vec::new(),
            counters: NetCounters::default(),
        };
        for _ in 0..spec.hosts {
            net.port(u32::MAX);
        }
        match spec.shape {
            Shape::Star => {
                net.switch(spec.hosts);
                for host in 0..spec.hosts {
                    net.join(host, spec.hosts + host);
                }
            }
            Shape::LeafSpine { down, spines } => {
                let leaves = spec.hosts.div_ceil(down);
                for leaf in 0..leaves {
                    let first = net.switch(down + spines);
                    for place in 0..down.min(spec.hosts - leaf * down) {
                        net.join(leaf * down + place, first + place);
                    }
                }
                for spine in 0..spines {
                    let first = net.switch(leaves);
                    for leaf in 0..leaves {
                        let leaf_first = net.switches[leaf as usize].first_port;
                        net.join(leaf_first + down + spine, first + leaf);
                    }
                }
            }
        }
        net.paused_since = vec![0; net.ports.len()];
        net
    }

    /// Measures.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    fn port(&mut self, switch: u32) -> u32 {
        self.ports.push(Port {
            peer: u32::MAX,
            switch,
            free_at: 0,
            waking: false,
            paused: false,
            pausing: false,
            nonempty: 0,
            queued: 0,
            held: 0,
            queues: Default::default(),
        });
        self.ports.len() as u32 - 1
    }

    fn switch(&mut self, ports: u32) -> u32 {
        let first_port = self.ports.len() as u32;
        let number = self.switches.len() as u32;
        for _ in 0..ports {
            self.port(number);
        }
        let limit = self.spec.buffer_per_port * ports as u64;
        // Room behind the threshold for frames that are sent until the pause has arrived: a round trip of the link and
        // a frame begun at each end.
        let rate = self.spec.ps_per_byte();
        let headroom = (2 * self.spec.delay + self.spec.latency) / rate + 2 * 4400;
        let xoff = self.spec.buffer_per_port.saturating_sub(headroom).max(1);
        self.switches.push(Switch { used: 0, limit, xoff, xon: xoff / 2, first_port });
        first_port
    }

    fn join(&mut self, a: u32, b: u32) {
        self.ports[a as usize].peer = b;
        self.ports[b as usize].peer = a;
    }

    /// Output port of `switch` for a packet.
    fn route(&self, switch: u32, to: u32, flow: u32) -> u32 {
        let first = self.switches[switch as usize].first_port;
        match self.spec.shape {
            Shape::Star => first + to,
            Shape::LeafSpine { down, spines } => {
                let leaves = self.spec.hosts.div_ceil(down);
                let leaf = to / down;
                if switch >= leaves {
                    first + leaf
                } else if switch == leaf {
                    first + to % down
                } else {
                    // Multiplicative hash: flows spread evenly, one flow keeps its path.
                    first + down + ((flow.wrapping_mul(0x9e37_79b1) >> 8) % spines)
                }
            }
        }
    }

    /// Whether the host's link can take a packet now; if not, `Outcome::Pull` comes when it can.
    pub fn ready<E: From<NetEvent>>(&mut self, host: u32, queue: &mut Queue<E>) -> bool {
        let port = &mut self.ports[host as usize];
        if port.free_at <= queue.now() {
            return true;
        }
        if !port.waking {
            port.waking = true;
            queue.at(port.free_at, NetEvent::Free { port: host }.into());
        }
        false
    }

    /// Whether the switch lets the host send data.
    pub fn may_send_data(&self, host: u32) -> bool {
        !self.ports[host as usize].paused
    }

    /// The host sends a packet; its link must be ready.
    pub fn send<E: From<NetEvent>>(&mut self, packet: Packet<B>, queue: &mut Queue<E>) {
        self.counters.sent += packet.bytes as u64;
        let host = packet.from;
        let key = self.packets.insert(packet) as u32;
        self.transmit(host, key, queue);
    }

    fn transmit<E: From<NetEvent>>(&mut self, port: u32, key: u32, queue: &mut Queue<E>) {
        let bytes = self.packets[key as usize].bytes;
        let out = &mut self.ports[port as usize];
        let end = queue.now() + bytes as Time * (8_000 / self.spec.gbps as Time);
        out.free_at = end;
        let peer = out.peer;
        let arrival = end + self.spec.delay;
        let event = if self.ports[peer as usize].switch == u32::MAX {
            NetEvent::Host { packet: key }
        } else {
            NetEvent::Switch { port: peer, packet: key }
        };
        let late = if matches!(event, NetEvent::Switch { .. }) { self.spec.latency } else { 0 };
        queue.at(arrival + late, event.into());
    }

    /// Carries on after an event.
    pub fn handle<E: From<NetEvent>>(&mut self, event: NetEvent, queue: &mut Queue<E>) -> Outcome<B> {
        match event {
            NetEvent::Host { packet } => return Outcome::Arrived(self.packets.remove(packet as usize)),
            NetEvent::Switch { port, packet } => self.enter(port, packet, queue),
            NetEvent::Free { port } => {
                self.ports[port as usize].waking = false;
                if self.ports[port as usize].switch == u32::MAX {
                    return Outcome::Pull(port);
                }
                self.next(port, queue);
            }
            NetEvent::Pause { port, on } => {
                let now = queue.now();
                self.ports[port as usize].paused = on;
                if on {
                    self.counters.pauses += 1;
                    self.paused_since[port as usize] = now;
                } else {
                    self.counters.paused += now - self.paused_since[port as usize];
                    if self.ports[port as usize].switch == u32::MAX {
                        return Outcome::Pull(port);
                    }
                    self.next(port, queue);
                }
            }
        }
        Outcome::None
    }

    fn enter<E: From<NetEvent>>(&mut self, ingress: u32, key: u32, queue: &mut Queue<E>) {
        let number = self.ports[ingress as usize].switch;
        let packet = &mut self.packets[key as usize];
        packet.ingress = ingress;
        let (bytes, class, to, flow) = (packet.bytes as u64, packet.class, packet.to, packet.flow);
        let egress = self.route(number, to, flow);
        let switch = &mut self.switches[number as usize];
        let free = switch.limit.saturating_sub(switch.used);
        let full = match self.spec.loss {
            Loss::Pause => bytes > free,
            Loss::Drop => self.ports[egress as usize].queued + bytes > free,
        };
        if full {
            self.counters.lost += 1;
            self.packets.remove(key as usize);
            return;
        }
        switch.used += bytes;
        self.counters.peak = self.counters.peak.max(switch.used);
        if class != 0 && self.spec.loss == Loss::Pause {
            let input = &mut self.ports[ingress as usize];
            input.held += bytes;
            if input.held > switch.xoff && !input.pausing {
                input.pausing = true;
                let peer = input.peer;
                queue.at(queue.now() + self.spec.delay, NetEvent::Pause { port: peer, on: true }.into());
            }
        }
        let out = &mut self.ports[egress as usize];
        out.queued += bytes;
        out.queues[class as usize].push_back(key);
        out.nonempty |= 1 << class;
        self.next(egress, queue);
    }

    fn next<E: From<NetEvent>>(&mut self, egress: u32, queue: &mut Queue<E>) {
        let out = &mut self.ports[egress as usize];
        let may = if out.paused { out.nonempty & 1 } else { out.nonempty };
        if may == 0 {
            return;
        }
        if out.free_at > queue.now() {
            if !out.waking {
                out.waking = true;
                queue.at(out.free_at, NetEvent::Free { port: egress }.into());
            }
            return;
        }
        let class = may.trailing_zeros() as usize;
        let Some(key) = out.queues[class].pop_front() else { return };
        if out.queues[class].is_empty() {
            out.nonempty &= !(1 << class);
        }
        let packet = &self.packets[key as usize];
        let (bytes, ingress) = (packet.bytes as u64, packet.ingress);
        out.queued -= bytes;
        let number = out.switch as usize;
        let more = out.nonempty != 0;
        self.switches[number].used -= bytes;
        if class != 0 && self.spec.loss == Loss::Pause {
            let input = &mut self.ports[ingress as usize];
            input.held -= bytes;
            if input.pausing && input.held <= self.switches[number].xon {
                input.pausing = false;
                let peer = input.peer;
                queue.at(queue.now() + self.spec.delay, NetEvent::Pause { port: peer, on: false }.into());
            }
        }
        self.transmit(egress, key, queue);
        let out = &mut self.ports[egress as usize];
        if more && !out.waking {
            out.waking = true;
            queue.at(out.free_at, NetEvent::Free { port: egress }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US;

    /// Each of `senders` sends `each` packets of 4178 bytes to host 0 as fast as it may.
    fn run(spec: Spec, senders: u32, each: u32) -> (NetCounters, u32, Time) {
        let mut net = Net::<()>::new(spec);
        let mut queue = Queue::<NetEvent>::default();
        let mut left = vec![each; spec.hosts as usize];
        let mut arrived = 0;
        for host in 1..=senders {
            queue.at(0, NetEvent::Free { port: host });
        }
        while let Some(event) = queue.take(Time::MAX) {
            match net.handle(event, &mut queue) {
                Outcome::Arrived(_) => arrived += 1,
                Outcome::Pull(host) => {
                    if left[host as usize] > 0 && net.may_send_data(host) && net.ready(host, &mut queue) {
                        left[host as usize] -= 1;
                        net.send(Packet::new(host, 0, 4178, host, DATA, ()), &mut queue);
                        net.ready(host, &mut queue);
                    }
                }
                Outcome::None => (),
            }
        }
        (net.counters, arrived, queue.now())
    }

    #[test]
    fn one_packet_takes_links_and_switch() {
        let (_, arrived, time) = run(Spec::of(2, Loss::Drop), 1, 1);
        assert_eq!(arrived, 1);
        assert_eq!(time, 2 * (4178 * 80 + 500 * NS) + 300 * NS);
    }

    #[test]
    fn with_pause_nothing_is_lost_and_the_link_is_full() {
        for spec in [
            Spec::of(64, Loss::Pause),
            Spec { shape: Shape::LeafSpine { down: 8, spines: 4 }, ..Spec::of(64, Loss::Pause) },
        ] {
            let (counters, arrived, time) = run(spec, 63, 1000);
            assert_eq!((counters.lost, arrived), (0, 63_000));
            assert!(counters.pauses > 0);
            assert!(time < 63_000 * 4178 * 80 + 10 * US, "the last link idles: {time}");
        }
    }

    #[test]
    fn without_pause_a_full_buffer_loses() {
        let (counters, arrived, _) = run(Spec::of(64, Loss::Drop), 63, 1000);
        assert!(counters.lost > 0);
        assert_eq!(counters.lost + arrived as u64, 63_000);
    }

    #[test]
    fn leaf_and_spine_reach_every_host() {
        let spec = Spec { shape: Shape::LeafSpine { down: 8, spines: 4 }, ..Spec::of(64, Loss::Pause) };
        let net = Net::<()>::new(spec);
        for to in 0..64 {
            for flow in 0..64 {
                let leaf = 9 % 8;
                let up = net.route(leaf, to, flow);
                let peer = net.ports[up as usize].peer;
                if to / 8 == leaf {
                    assert_eq!(peer, to);
                } else {
                    let spine = net.ports[peer as usize].switch;
                    let down = net.ports[net.route(spine, to, flow) as usize].peer;
                    let last = net.ports[down as usize].switch;
                    assert_eq!(last, to / 8);
                    assert_eq!(net.ports[net.route(last, to, flow) as usize].peer, to);
                }
            }
        }
    }
}
