// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_keys` beside the golden model's table of keys (QP-4, QP-9, QP-11, QP-12): the same answer to every access, after
//! the same number of clocks.
#![cfg(feature = "fastpath")]

use berth_abi::engine::{RIGHT_BIT_ATOMIC, RIGHT_BIT_READ, RIGHT_BIT_WRITE};
use berth_abi::rows::recv;
use berth_protocol::memory::keys::{ATOMIC, Binding, Keys, READ, Refusal, WRITE};
use berth_protocol::rc::{Access, Psn, Remote, Right};
use berth_random::{Rng, mix, seed};
use berth_rtl_unit::{Module, Port};

const NAME: &str = "berth_fp_keys";
/// Keys of the module.
const KEYS: usize = 4096;
/// Its QPs.
const QPS: usize = 64;
/// Clocks from a question to its answer, whatever it is about.
const LATENCY: u64 = 2;

/// An access of a QP; with `claim` it is done.
#[derive(Clone, Copy, Debug)]
struct Ask {
    domain: u16,
    qpn: u16,
    access: Access,
    claim: bool,
}

/// An operation that is over.
#[derive(Clone, Copy, Debug)]
struct Over {
    qpn: u16,
    key: u32,
    first: u32,
}

/// What firmware does with a place.
#[derive(Clone, Copy, Debug)]
enum Command {
    Store(usize),
    Load(usize),
}

struct Ports {
    start: Port,
    start_q: Port,
    start_denies: Port,
    cmd_valid: Port,
    cmd_ready: Port,
    cmd_store: Port,
    cmd_place: Port,
    cmd: Port,
    loaded: Port,
    over_valid: Port,
    over_ready: Port,
    over: [Port; 3],
    ask_valid: Port,
    ask_ready: Port,
    ask: [Port; 10],
    told_valid: Port,
    told: [Port; 3],
}

/// The module, and the model that has taken what it has taken.
struct Rig {
    m: Module,
    p: Ports,
    keys: Box<Keys<KEYS>>,
    /// Address spaces and protection domains of the places.
    spaces: Vec<u8>,
    domains: Vec<u16>,
    /// The words of each place as they were stored.
    stored: Vec<[u32; 8]>,
    /// Rights that the QPs deny.
    denies: [u8; QPS],
    /// The answer that is due, and when.
    due: Option<(u64, [u64; 3], Ask)>,
    loading: Option<(u64, usize)>,
    counts: [u64; 8],
    /// The answer to the last question.
    told: u64,
}

/// What the module says for a model's answer.
const fn code(answer: Result<(), Refusal>) -> u32 {
    match answer {
        Ok(()) => recv::KEY_OK,
        Err(Refusal::Unknown) => recv::KEY_UNKNOWN,
        Err(Refusal::Domain) => recv::KEY_DOMAIN,
        Err(Refusal::Unbound) => recv::KEY_UNBOUND,
        Err(Refusal::Range) => recv::KEY_OUTSIDE,
        Err(Refusal::Right) => recv::KEY_RIGHT,
        Err(Refusal::Used) => recv::KEY_USED,
    }
}

impl Rig {
    fn new(width: u32) -> Self {
        let mut m = Module::new(NAME, width);
        let p = Ports {
            start: m.port("start"),
            start_q: m.port("start_q"),
            start_denies: m.port("start_denies"),
            cmd_valid: m.port("cmd_valid"),
            cmd_ready: m.port("cmd_ready"),
            cmd_store: m.port("cmd_store"),
            cmd_place: m.port("cmd_place"),
            cmd: m.port("cmd"),
            loaded: m.port("loaded"),
            over_valid: m.port("over_valid"),
            over_ready: m.port("over_ready"),
            over: ["over.qpn", "over.key", "over.psn"].map(|name| m.port(name)),
            ask_valid: m.port("ask_valid"),
            ask_ready: m.port("ask_ready"),
            ask: ["claim", "again", "right", "qpn", "domain", "key", "va", "len", "psn", "packets"]
                .map(|field| m.port(&format!("ask.{field}"))),
            told_valid: m.port("told_valid"),
            told: ["told.refusal", "told.one_shot", "told.asid"].map(|name| m.port(name)),
        };
        m.reset();
        let mut rig = Self {
            m,
            p,
            keys: Box::new(Keys::new()),
            spaces: vec![0; KEYS],
            domains: vec![0; KEYS],
            stored: vec![[0; 8]; KEYS],
            denies: [0; QPS],
            due: None,
            loading: None,
            counts: [0; 8],
            told: 0,
        };
        for n in 0..KEYS {
            rig.m.set(rig.p.start, u8::from(n < QPS));
            rig.m.set(rig.p.start_q, (n % QPS) as u16);
            rig.m.set(rig.p.start_denies, 0u8);
            assert!(!rig.step(None, None, None).0, "it is emptied first");
        }
        rig
    }

    /// A clock, with what is offered in it; gives what was taken: (command, end, question).
    fn step(&mut self, command: Option<Command>, over: Option<Over>, ask: Option<Ask>) -> (bool, bool, bool) {
        let p = &self.p;
        self.m.set(p.cmd_valid, u8::from(command.is_some()));
        if let Some(Command::Store(place) | Command::Load(place)) = command {
            let store = matches!(command, Some(Command::Store(_)));
            self.m.set(p.cmd_store, u8::from(store));
            self.m.set(p.cmd_place, place as u16);
            let words = self.keys.words(place, self.spaces[place]);
            let wide: Vec<u64> = words.chunks(2).map(|two| u64::from(two[0]) | u64::from(two[1]) << 32).collect();
            self.m.set_wide(p.cmd, &wide);
        }
        self.m.set(p.over_valid, u8::from(over.is_some()));
        if let Some(Over { qpn, key, first }) = over {
            for (port, value) in p.over.iter().zip([qpn.into(), key, first]) {
                self.m.set(*port, value);
            }
        }
        self.m.set(p.ask_valid, u8::from(ask.is_some()));
        if let Some(Ask { domain, qpn, access, claim }) = ask {
            let Remote { va, key, len } = access.remote;
            let right = match access.right {
                Right::Read => RIGHT_BIT_READ,
                Right::Write => RIGHT_BIT_WRITE,
                Right::Atomic => RIGHT_BIT_ATOMIC,
            };
            let words = [
                u64::from(claim),
                access.again.into(),
                right.into(),
                qpn.into(),
                domain.into(),
                key.into(),
                va,
                len.into(),
                access.first.into(),
                access.packets.into(),
            ];
            for (port, value) in p.ask.iter().zip(words) {
                self.m.set(*port, value);
            }
        }
        self.m.settle();
        let taken = (
            command.is_some() && self.m.is(p.cmd_ready),
            over.is_some() && self.m.is(p.over_ready),
            ask.is_some() && self.m.is(p.ask_ready),
        );
        assert!(u8::from(taken.0) + u8::from(taken.1) + u8::from(taken.2) <= 1, "one at a time");
        let now = self.m.cycles();
        assert_eq!(self.m.is(p.told_valid), self.due.is_some_and(|due| due.0 == now), "an answer's time");
        if let Some((_, [refusal, one_shot, asid], ask)) = self.due.take_if(|due| due.0 == now) {
            let told = p.told.map(|port| self.m.get(port));
            assert_eq!(told[0], refusal, "{ask:x?}");
            // Of what is refused nothing more is said.
            assert!(refusal != 0 || told[1..] == [one_shot, asid], "{ask:x?}");
            self.counts[refusal as usize] += 1;
            self.told = refusal;
        }
        if let Some((_, place)) = self.loading.take_if(|(at, _)| *at == now) {
            let words = self.m.words(p.loaded);
            let words: Vec<u32> = words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]).collect();
            assert_eq!(words, self.stored[place], "place {place}");
        }
        match command.filter(|_| taken.0) {
            Some(Command::Store(place)) => self.stored[place] = self.keys.words(place, self.spaces[place]),
            Some(Command::Load(place)) => self.loading = Some((now + LATENCY, place)),
            None => (),
        }
        if let Some(Over { qpn, key, first }) = over.filter(|_| taken.1) {
            self.keys.used(qpn.into(), key, first);
        }
        if let Some(ask) = ask.filter(|_| taken.2) {
            let Ask { domain, qpn, access, claim } = ask;
            let binding = self.keys.binding(access.remote.key).copied().unwrap_or_default();
            let denies = self.denies[usize::from(qpn) % QPS];
            let answer = match claim {
                true => self.keys.check_for(domain, qpn.into(), denies, &access),
                false => self.keys.clone().check_for(domain, qpn.into(), denies, &access),
            };
            let asid = self.spaces[access.remote.key as usize >> 8 & (KEYS - 1)];
            let told = [code(answer).into(), binding.one_shot.into(), asid.into()];
            self.due = Some((now + LATENCY, told, ask));
        }
        self.m.edge();
        taken
    }

    /// A QP begins anew.
    fn start(&mut self, qpn: u16, denies: u8) {
        self.m.set(self.p.start, 1u8);
        self.m.set(self.p.start_q, qpn);
        self.m.set(self.p.start_denies, denies);
        self.step(None, None, None);
        self.m.set(self.p.start, 0u8);
        self.denies[usize::from(qpn)] = denies;
    }

    /// Steps with the same offers until one is taken.
    fn until(&mut self, command: Option<Command>, over: Option<Over>, ask: Option<Ask>) {
        for _ in 0..4 {
            let (a, b, c) = self.step(command, over, ask);
            if a || b || c {
                return;
            }
        }
        panic!("nothing is taken");
    }

    /// A key's place is stored after a change in the model.
    fn store(&mut self, key: u32) {
        self.until(Some(Command::Store(place(key))), None, None);
    }

    /// The answer to a question.
    fn ask(&mut self, ask: Ask) -> u64 {
        self.until(None, None, Some(ask));
        self.step(None, None, None);
        self.step(None, None, None);
        assert!(self.due.is_none());
        self.told
    }
}

const fn place(key: u32) -> usize {
    key as usize >> 8 & (KEYS - 1)
}

fn access(key: u32, va: u64, len: u32, right: Right) -> Access {
    Access { remote: Remote { va, key, len }, right, first: 100, packets: 3, again: false }
}

/// One random round: keys come, change and go; operations begin, repeat their packets, go on and end; and somebody guesses.
fn round(width: u32, seed: u64) -> [u64; 8] {
    let mut rng = Rng(seed);
    let mut rig = Rig::new(width);
    let mut live: Vec<u32> = Vec::new();
    let mut gone: Vec<u32> = Vec::new();
    // Operations that have been let in.
    let mut open: Vec<Ask> = Vec::new();
    let (mut command, mut over, mut ask) = (None, None, None);
    for _ in 0..4000 {
        if command.is_none() && rng.chance(0.15) {
            let entropy = rng.draw();
            let pick = (!live.is_empty()).then(|| live[rng.below(live.len() as u64) as usize]);
            command = match (rng.below(8), pick) {
                (0..2, _) if live.len() < 24 => {
                    let domain = rng.below(3) as u16;
                    let key = rig.keys.allocate(domain, entropy).expect("a place");
                    rig.spaces[place(key)] = rng.draw() as u8;
                    rig.domains[place(key)] = domain;
                    live.push(key);
                    Some(Command::Store(place(key)))
                }
                (2..6, Some(key)) => {
                    // At both ends of the address space too.
                    let va = match rng.below(4) {
                        0 => rng.below(100),
                        1 => u64::MAX - 5000 - rng.below(100),
                        _ => rng.draw() >> 1,
                    };
                    let rights = 1 + rng.below(7) as u8;
                    let binding =
                        Binding { va, len: 1 + rng.below(4900), rights, one_shot: rng.chance(0.6), region: 0 };
                    rig.keys.bind(key, binding).expect("a key that may be bound");
                    Some(Command::Store(place(key)))
                }
                (6, Some(key)) => {
                    rig.keys.unbind(key).expect("a key");
                    Some(Command::Store(place(key)))
                }
                (7, Some(key)) if rng.chance(0.5) => {
                    rig.keys.deallocate(key).expect("a key");
                    live.retain(|&other| other != key);
                    gone.push(key);
                    Some(Command::Store(place(key)))
                }
                (_, Some(key)) => Some(Command::Load(place(key))),
                _ => None,
            };
            // Until the module has it, the model is ahead: nothing else is asked for.
            while let Some(what) = command {
                if rig.step(Some(what), None, None).0 {
                    command = None;
                }
            }
        }
        if rng.chance(0.02) {
            let denies = if rng.chance(0.9) { 0 } else { rng.below(8) as u8 };
            rig.start(rng.below(4) as u16, denies);
        }
        if over.is_none() && !open.is_empty() && rng.chance(0.1) {
            let Ask { qpn, access, .. } = open[rng.below(open.len() as u64) as usize];
            let first = if rng.chance(0.9) { access.first } else { rng.below(1 << 24) as u32 };
            let qpn = if rng.chance(0.9) { qpn } else { rng.below(4) as u16 };
            over = Some(Over { qpn, key: access.remote.key, first });
        }
        if ask.is_none() && rng.chance(0.7) {
            let again = (!open.is_empty() && rng.chance(0.6)).then(|| open[rng.below(open.len() as u64) as usize]);
            ask = Some(match again {
                Some(mut known) => {
                    // A packet of the same operation, a part that is asked for again, the next part of a READ, or another's.
                    let a = &mut known.access;
                    match rng.below(5) {
                        0 => a.again = true,
                        1 => {
                            let ahead = rng.below(4) as u32;
                            (a.first, a.packets) = (Psn::<24>::new(a.first).plus(ahead).get(), 1 + rng.below(3) as u32);
                            a.again = rng.chance(0.7);
                        }
                        2 => {
                            a.first = Psn::<24>::new(a.first).plus(a.packets).get();
                            a.remote.va = a.remote.va.wrapping_add(a.remote.len.into());
                        }
                        3 => known.qpn = rng.below(4) as u16,
                        _ => (),
                    }
                    known.claim = rng.chance(0.8);
                    known
                }
                None => {
                    let key = match rng.below(10) {
                        0 => rng.draw() as u32,
                        1 if !gone.is_empty() => gone[rng.below(gone.len() as u64) as usize],
                        2 if !live.is_empty() => live[rng.below(live.len() as u64) as usize] ^ 1 << rng.below(32),
                        _ if !live.is_empty() => live[rng.below(live.len() as u64) as usize],
                        _ => rng.draw() as u32,
                    };
                    let binding = rig.keys.binding(key).copied().unwrap_or_default();
                    // About the range's ends, and rarely anywhere.
                    let start = rng.below(binding.len + 4).wrapping_sub(2);
                    let left = binding.len.wrapping_sub(start) as u32;
                    let len = match rng.below(4) {
                        0 => left.wrapping_add(rng.below(3) as u32).wrapping_sub(1).max(1),
                        1 => rng.draw() as u32 | 1,
                        _ => 1 + rng.below(u64::from(left.clamp(1, 5000))) as u32,
                    };
                    let right = [Right::Read, Right::Write, Right::Atomic][rng.below(3) as usize];
                    let mut access = access(key, binding.va.wrapping_add(start), len, right);
                    access.first = if rng.chance(0.3) { 0xff_ffff - rng.below(4) as u32 } else { rng.below(64) as u32 };
                    access.packets = if rng.chance(0.05) { 0xff_ffff } else { 1 + rng.below(4) as u32 };
                    access.again = rng.chance(0.1);
                    let domain = if rng.chance(0.9) { rig.domains[place(key)] } else { rng.below(3) as u16 };
                    Ask { domain, qpn: rng.below(4) as u16, access, claim: rng.chance(0.8) }
                }
            });
        }
        let (_, ended, asked) = rig.step(command, over, ask);
        if ended {
            over = None;
        }
        if asked && let Some(ask) = ask.take() {
            open.push(ask);
            if open.len() > 12 {
                open.remove(rng.below(12) as usize);
            }
        }
    }
    rig.counts
}

#[test]
fn qp_11_answers_are_those_of_the_model_and_come_after_the_same_time() {
    let seed = seed(11);
    for width in Module::widths(NAME).into_iter().take(1) {
        let mut all = [0; 8];
        for case in 0..berth_random::cases(12) {
            let counts = round(width, mix(seed ^ mix(case)));
            all.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        for (answer, (name, ..)) in recv::REFUSALS.iter().enumerate() {
            println!("{name}: {}", all[answer]);
            // It is told of the memory, and not by the table.
            let of_memory = answer == recv::KEY_FAULT as usize;
            assert!((all[answer] > 300) != of_memory, "{name} was told {} times", all[answer]);
        }
    }
}

#[test]
fn qp_12_a_one_shot_key_serves_one_operation() {
    for width in Module::widths(NAME).into_iter().take(1) {
        let mut rig = Rig::new(width);
        let key = rig.keys.allocate(1, 0x1234_5678_9abc_def0).expect("a key");
        let binding = Binding { va: 0x1000, len: 0x3000, rights: READ | WRITE | ATOMIC, one_shot: true, region: 0 };
        rig.keys.bind(key, binding).expect("bound");
        rig.store(key);
        let write = Ask { domain: 1, qpn: 7, access: access(key, 0x1000, 0x3000, Right::Write), claim: true };
        let other = Ask { qpn: 8, ..write };
        let (ok, used) = (u64::from(recv::KEY_OK), u64::from(recv::KEY_USED));
        // Who only asks has no claim; the packets of one operation have one together.
        assert_eq!(rig.ask(Ask { claim: false, ..other }), ok);
        assert_eq!(
            [rig.ask(write), rig.ask(write), rig.ask(other), rig.ask(Ask { claim: false, ..other })],
            [ok, ok, used, used]
        );
        rig.until(None, Some(Over { qpn: 8, key, first: 100 }), None);
        assert_eq!(rig.ask(write), ok, "another's end is none");
        rig.until(None, Some(Over { qpn: 7, key, first: 100 }), None);
        assert_eq!([rig.ask(write), rig.ask(other)], [used, used]);
        // Bound anew it is fresh.
        rig.keys.bind(key, binding).expect("bound");
        rig.store(key);
        assert_eq!([rig.ask(other), rig.ask(write)], [ok, used]);
    }
}

#[test]
fn qp_9_a_queue_pair_gives_its_peer_no_right_that_it_denies() {
    for width in Module::widths(NAME).into_iter().take(1) {
        let mut rig = Rig::new(width);
        let key = rig.keys.allocate(1, 5 << 8).expect("a key");
        let all = READ | WRITE | ATOMIC;
        rig.keys.bind(key, Binding { va: 0, len: 9, rights: all, one_shot: false, region: 0 }).expect("bound");
        rig.store(key);
        for (right, bit) in [(Right::Read, READ), (Right::Write, WRITE), (Right::Atomic, ATOMIC)] {
            for denies in 0..8 {
                rig.start(63, denies);
                let ask = Ask { domain: 1, qpn: 63, access: access(key, 0, 8, right), claim: true };
                let answer = if denies & bit != 0 { recv::KEY_RIGHT } else { recv::KEY_OK };
                assert_eq!([rig.ask(ask), rig.ask(Ask { qpn: 62, ..ask })], [answer.into(), recv::KEY_OK.into()]);
            }
        }
    }
}

#[test]
fn inv_5_a_reset_leaves_no_key() {
    for width in Module::widths(NAME).into_iter().take(1) {
        let mut rig = Rig::new(width);
        let key = rig.keys.allocate(1, 99 << 8).expect("a key");
        rig.keys.bind(key, Binding { va: 0, len: 1, rights: READ, one_shot: false, region: 0 }).expect("bound");
        rig.store(key);
        let ask = Ask { domain: 1, qpn: 0, access: access(key, 0, 1, Right::Read), claim: true };
        assert_eq!(rig.ask(ask), u64::from(recv::KEY_OK));
        rig.m.reset();
        rig.keys = Box::new(Keys::new());
        for _ in 0..KEYS {
            assert!(!rig.step(None, None, Some(ask)).2, "nothing is asked while it is emptied");
        }
        assert_eq!(rig.ask(ask), u64::from(recv::KEY_UNKNOWN));
    }
}
