// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control frames that somebody makes up, at random, thrown at two connected cards, with loss and restarts: no connection
//! that nobody restarted ends, and nothing that RTL knows of it changes.
//!
//! The forger knows all that does not change: addresses, QPNs, the format. It hears what is sent to addresses of its own,
//! with which it may speak to the cards as any end node may, but nothing that the two cards say to each other.
mod common;

use berth_abi::message::{Accept, CmClosed, CmEstablished, CmRequest, Connect, Listen, QpError};
use berth_abi::status::CMD_OK;
use berth_protocol::model::{User, World};
use berth_protocol::wire::net::checksum;
use berth_protocol::wire::records::*;
use common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const PSN_MASK: u32 = 0xff_ffff;
/// Service of the connections; another one that both cards listen to, where nobody answers.
const SERVICE: u32 = 6;
const OTHER: u32 = 7;

/// Whose name a frame has.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// The other card's.
    Peer,
    /// An address of the forger's own.
    Own(u8),
}

/// A number that the forger has to guess.
#[derive(Clone, Copy, Debug)]
enum Guess {
    Zero,
    Any(u32),
    /// What a card has told one of its own addresses.
    Heard(usize),
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A control message: kind (START, CHALLENGE, neither), incarnations, PSN, records with an epoch.
    Say(Who, u32, [Guess; 2], u32, &'static [u32], Guess),
    /// An acknowledgement or NAK on the control connection.
    Acknowledge(Who, u32, bool),
    /// A credit list as a datagram.
    List(Who, [Guess; 2], u32),
    /// An ARP message with another MAC address.
    Arp(Who, bool),
    /// Time goes by, in thousands of cycles.
    Run(u64),
}

fn guess() -> impl Strategy<Value = Guess> {
    prop_oneof![Just(Guess::Zero), any::<u32>().prop_map(Guess::Any), any::<usize>().prop_map(Guess::Heard)]
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![2 => Just(Who::Peer), 1 => (1..12u8).prop_map(Who::Own)]
}

fn act() -> impl Strategy<Value = (usize, Act)> {
    const KINDS: [&[u32]; 12] = [
        &[],
        &[REC_KEEPALIVE],
        &[REC_LIST],
        &[REC_REQ, REC_REQ, REC_REQ],
        &[REC_REP],
        &[REC_RTU],
        &[REC_REJ],
        &[REC_DREQ],
        &[REC_RECALL, REC_RECALLED],
        &[REC_GO],
        &[REC_BIND],
        &[99],
    ];
    let flags = prop_oneof![Just(START), Just(CHALLENGE), Just(0), Just(START | CHALLENGE)];
    let say = (who(), flags, [guess(), guess()], 0..=PSN_MASK, 0..KINDS.len(), guess());
    let act = prop_oneof![
        6 => say.prop_map(|(who, flags, ends, psn, kind, epoch)| Act::Say(who, flags, ends, psn, KINDS[kind], epoch)),
        1 => (who(), 0..=PSN_MASK, any::<bool>()).prop_map(|(who, psn, nak)| Act::Acknowledge(who, psn, nak)),
        1 => (who(), [guess(), guess()], 0..200u32).prop_map(|(who, names, first)| Act::List(who, names, first)),
        1 => (who(), any::<bool>()).prop_map(|(who, reply)| Act::Arp(who, reply)),
        3 => prop_oneof![0..20u64, 0..2000u64, 0..40_000u64].prop_map(Act::Run),
    ];
    (0..2usize, act)
}

/// What is done while a connection is there: acts, percent of frames lost; then a card restarts, or none.
type Episode = (Vec<(usize, Act)>, u32, Option<usize>);

fn episode() -> impl Strategy<Value = Episode> {
    (prop::collection::vec(act(), 0..40), prop_oneof![Just(0), 0..20u32], prop::option::of(0..2usize))
}

/// Two connected cards.
struct Pair {
    w: World,
    a: User,
    b: User,
    qpn: u32,
    /// Frames on the wire looked through, and what was told to the forger.
    seen: usize,
    heard: BTreeSet<u32>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut w = World::new(2, seed);
        for i in 0..2 {
            listen(&mut w, i);
        }
        let (a, b) = connect(&mut w, 16);
        Self { w, a, b, qpn: 18, seen: 0, heard: BTreeSet::new() }
    }

    fn mac(n: usize) -> [u8; 6] {
        [2, 0, 0, 0, 0, n as u8 + 1]
    }

    /// MAC and IPv4 address of who speaks to card `to`.
    fn name(&self, who: Who, to: usize) -> ([u8; 6], u32) {
        match who {
            Who::Peer => (Self::mac(1 - to), self.w.nodes[1 - to].ip),
            Who::Own(n) => ([2, 0xba, 0xd0, 0, 0, n], 0x0a00_0200 + n as u32),
        }
    }

    fn value(&self, guess: Guess) -> u32 {
        match guess {
            Guess::Zero => 0,
            Guess::Any(value) => value,
            Guess::Heard(n) => self.heard.iter().nth(n % self.heard.len().max(1)).copied().unwrap_or(0),
        }
    }

    /// A RoCE frame to the control QP of card `to` in somebody's name; the model's frames have no iCRC.
    fn frame(&self, who: Who, to: usize, opcode: u8, psn: u32, body: &[u8]) -> Vec<u8> {
        let (mac, ip) = self.name(who, to);
        let mut f = [&Self::mac(to)[..], &mac, &[8, 0, 0x45, 0]].concat();
        f.extend((20 + 8 + 12 + body.len() as u16 + 4).to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        f.extend(ip.to_be_bytes());
        f.extend(self.w.nodes[to].ip.to_be_bytes());
        let sum = checksum(&f[14..34]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        f.extend(0xc002_u16.to_be_bytes());
        f.extend(4791_u16.to_be_bytes());
        f.extend((8 + 12 + body.len() as u16 + 4).to_be_bytes());
        f.extend([0, 0, opcode, 0, 0xff, 0xff, 0, 0, 0, 2]);
        f.extend(psn.to_be_bytes());
        f.extend(body);
        f
    }

    /// What the two cards have told the forger's own addresses since.
    fn listen(&mut self) {
        for (_, f) in &self.w.wire[self.seen..] {
            if f[12..14] == [8, 0] && f[32] == 2 && f[42] == 4 && f.len() >= 66 {
                self.heard.extend(f[54..62].chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())));
            }
        }
        self.seen = self.w.wire.len();
    }

    fn act(&mut self, to: usize, act: Act) {
        self.listen();
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        match act {
            Act::Say(who, flags, ends, psn, kinds, epoch) => {
                let own = if to == 0 { self.a.qpn } else { self.b.qpn };
                let epoch = self.value(epoch);
                let mut words = vec![self.value(ends[0]), self.value(ends[1]), 0];
                for &kind in kinds {
                    let at = words.len();
                    words.extend(match kind {
                        REC_LIST => vec![0, epoch, 0, 1000, 1000],
                        REC_REQ => vec![0, 30, epoch, 2, OTHER, 1024 | 0xc1 << 16, 64],
                        REC_REP => vec![0, epoch, 30, 1, 2, 1024 | 0xc1 << 16, 64],
                        REC_DREQ => vec![0, epoch, 16, epoch, 1],
                        REC_RTU => vec![0, epoch],
                        REC_RECALL | REC_RECALLED | REC_GO => vec![0, epoch, 1],
                        REC_REJ => vec![0, epoch, 9],
                        REC_BIND => vec![0, epoch, 30, 1, 2, 1024 | 0xc2 << 16, 64],
                        _ => vec![0],
                    });
                    words.resize(
                        at + [0, 0, 15, 15, 0, 11].get(kind as usize).copied().unwrap_or(0).max(words.len() - at),
                        0,
                    );
                    words[at] = record(kind, words.len() - at, if kind == REC_REQ { 0 } else { own });
                }
                words[2] = VERSION | flags | (words.len() as u32) << 16;
                let frame = self.frame(who, to, 4, psn, &bytes(&words));
                self.w.inject(to, frame);
            }
            Act::Acknowledge(who, psn, nak) => {
                let frame = self.frame(who, to, 0x11, psn, &[if nak { 0x60 } else { 0 }, 0, 0, 0]);
                self.w.inject(to, frame);
            }
            Act::List(who, names, first) => {
                let own = if to == 0 { self.a.qpn } else { self.b.qpn };
                let [epoch, qkey] = names.map(|guess| self.value(guess));
                let deth = [(qkey | 1 << 31).to_be_bytes(), 2_u32.to_be_bytes()].concat();
                let list = bytes(&[record(REC_LIST, 5, own), epoch, first, 1000, 1000]);
                let frame = self.frame(who, to, 0x64, 0, &[deth, list].concat());
                self.w.inject(to, frame);
            }
            Act::Arp(who, reply) => {
                let (_, ip) = self.name(who, to);
                let mac = [2, 0xba, 0xd0, 0, 0, 77];
                let mut f =
                    [&Self::mac(to)[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, if reply { 2 } else { 1 }], &mac].concat();
                f.extend(ip.to_be_bytes());
                f.extend([0; 6]);
                f.extend(self.w.nodes[to].ip.to_be_bytes());
                f.resize(60, 0);
                self.w.inject(to, f);
            }
            Act::Run(thousands) => self.w.run(1000 * thousands),
        }
        // Whoever has shown that it hears us may ask: it gets no answer.
        self.w.run(100);
    }

    /// Nothing has happened to the connection.
    fn check(&mut self) {
        self.w.run(100_000_000);
        for user in [&self.a, &self.b] {
            let node = &self.w.nodes[user.node];
            assert_eq!(node.hw.told().find(|e: &QpError| e.qpn == user.qpn), None, "the connection has ended");
            assert_eq!(node.hw.told().find(|e: &CmClosed| e.qpn == user.qpn), None, "the connection has ended");
            assert_rows_untouched(&self.w, user);
        }
    }

    /// Card `i` restarts; the other one notices, and they connect again.
    fn restart(&mut self, i: usize) {
        self.w.restart(i);
        listen(&mut self.w, i);
        let left = if i == 0 { self.b.clone() } else { self.a.clone() };
        let gone = self.w.failed(left.node, left.qpn);
        assert_eq!(gone, berth_abi::status::REASON_PEER_LOST);
        self.w.destroy(&left);
        (self.a, self.b) = connect(&mut self.w, self.qpn);
        self.qpn += 6;
    }
}

fn listen(w: &mut World, i: usize) {
    for service in [SERVICE, OTHER] {
        assert_eq!(w.command(i, Listen { service }.encode()).status, CMD_OK);
    }
}

/// Card 0 connects to card 1; QPNs from `qpn` on. What was said before may have made it give the peer up: then once more.
fn connect(w: &mut World, qpn: u32) -> (User, User) {
    for qpn in [qpn, qpn + 2, qpn + 4] {
        let a = w.create_qp(0, qpn, ASID, |_| ());
        let b = w.create_qp(1, qpn + 1, ASID, |_| ());
        let connect = Connect { qpn: a.qpn, ipv4: w.nodes[1].ip, service: SERVICE, ..Connect::default() };
        assert_eq!(w.command(0, connect.encode()).status, CMD_OK);
        let peer = w.nodes[0].ip;
        let mut up = None;
        w.run_until(2_000_000_000, |w| {
            let mine = |e: &CmRequest| (e.ipv4, e.service) == (peer, SERVICE);
            if let Some(CmRequest { request, .. }) = w.nodes[1].hw.take(mine) {
                w.post_command(1, Accept { request, qpn: b.qpn, ..Accept::default() }.encode());
            }
            let hw = &mut w.nodes[0].hw;
            if hw.take(|e: &CmEstablished| e.qpn == a.qpn).is_some() {
                up = Some(true);
            } else if hw.take(|e: &CmClosed| e.qpn == a.qpn).is_some() {
                up = Some(false);
            }
            up.is_some()
        });
        if up == Some(true) {
            w.established(1, b.qpn);
            return (a, b);
        }
        w.destroy(&a);
        w.destroy(&b);
    }
    panic!("no connection");
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn inv_6_made_up_control_frames_end_no_connection_and_change_no_row(
        seed in any::<u64>(), episodes in prop::collection::vec(episode(), 1..5)
    ) {
        let mut p = Pair::new(seed);
        for (acts, loss, restart) in episodes {
            p.w.faults.loss = loss as f64 / 100.0;
            for (to, act) in acts {
                p.act(to, act);
            }
            p.w.faults.loss = 0.0;
            p.check();
            if let Some(i) = restart {
                p.restart(i);
            }
        }
        p.check();
        for user in [p.a.clone(), p.b.clone()] {
            p.w.destroy(&user);
        }
        p.w.run(400_000_000);
    }
}
