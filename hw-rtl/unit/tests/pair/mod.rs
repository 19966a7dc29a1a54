// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two `berth_fp`, a wire between them, and around each what a card has: the one host that pins pages, queues, packet RAM,
//! MAC. Per QP and direction the golden model of the sender (`tx::peer`) gets the lists as they arrive; what leaves the
//! RTL must be what the model sends, and what is received what it has cut.

use crate::tx::peer::{self, Peer, is_data, psn_of};
use crate::tx::{Atomic, Element, byte_at, random_element};
use berth_abi::card::CONTROL_QPN;
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE};
use berth_abi::rows::{
    event::{EVENT_BIND, EVENT_INVALIDATE, EVENT_LIST, EVENT_RNR, EVENT_TARGET, EVENT_TIMEOUT, Event, Nak},
    recv, send,
};
use berth_abi::status::WC_OK;
use berth_abi::wire::*;
use berth_abi::wqe::{CQE_IMMEDIATE, CQE_INVALIDATED, CQE_PUSH, Cqe, OP_RECV, OP_WRITE, Sge, Wqe};
use berth_protocol::memory::keys::{ATOMIC, Binding, Keys, READ, WRITE};
use berth_protocol::wire::headers::{Mac, Template};
use berth_random::Rng;
use berth_rtl_host::{PAGE, Ranges, Span};
use berth_rtl_unit::{Module, Port};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

pub use crate::tx::peer::Settings;

const SLOT: usize = 0x1200;
/// Receive slots of packet RAM; transmit slots lie before them.
const SLOTS: std::ops::Range<u32> = berth_abi::card::TX_SLOTS..berth_abi::card::TX_SLOTS + berth_abi::card::RX_SLOTS;
/// Atomics that an end has under way at a time.
const ATOMICS: usize = berth_abi::card::READ_TAGS as usize / 4;
const PSN: u32 = 0xff_ffff;
const QKEY: u32 = 0x8765_4321;
/// log2 of the elements of each queue.
const LOG2_DEPTH: u32 = berth_abi::card::MAX_DEPTH.ilog2();
const SENDS: u64 = 0x7_0000_0000;
const RECVS: u64 = 0x8_0000_0000;
/// Address spaces of what is sent and of what is received.
const FROM: u32 = 5;
const INTO: u32 = 6;
/// Protection domain of what peers write to and read, and how much that is for each of them.
const DOMAIN: u16 = 9;
const TARGET: u64 = 1 << 18;
/// How long an RNR NAK of the longest timer holds a QP here at most: a GO ends it much sooner.
const NOT_YET: u64 = 50_000;

/// How the surroundings behave. Times in cycles, chances from 0 to 1.
#[derive(Clone, Debug)]
pub struct World {
    /// Module: `berth_fp`, or one with more QPs.
    pub unit: &'static str,
    pub width: u32,
    /// How often a port that could be ready is not.
    pub stall: f64,
    /// A host read's round trip, and at most so much more.
    pub read: u64,
    pub jitter: u64,
    /// From a write command to its end.
    pub write: u64,
    /// From an acquisition to its answer; the page service behind a miss; pages that are there without.
    pub xlat: u64,
    pub service: u64,
    pub warm: f64,
    /// One way.
    pub wire: u64,
    pub loss: f64,
    pub twice: f64,
    pub late: u64,
    /// Repeat of lists, units of 64 cycles; longest list; packets per ACK.
    pub repeat: u32,
    pub max_list: u32,
    pub ack_every: u32,
}

impl Default for World {
    fn default() -> Self {
        Self {
            unit: "berth_fp",
            width: 64,
            stall: 0.0,
            read: 250,
            jitter: 0,
            write: 20,
            xlat: 5,
            service: 2_500,
            warm: 1.0,
            wire: 250,
            loss: 0.0,
            twice: 0.0,
            late: 0,
            repeat: 100,
            max_list: 32,
            ack_every: 8,
        }
    }
}

/// A receive as it was posted.
#[derive(Clone, Debug)]
struct Recv {
    sges: Vec<(u64, u32)>,
    size: u32,
}

/// One direction of a connection: from an end's row `q` to the other end's row `to`.
pub struct Flow {
    pub q: u32,
    pub to: u32,
    pub sender: Peer,
    recvs: Vec<Recv>,
    /// Of them, those that a doorbell has told, are credits of lists that have been sent, of lists that have arrived.
    told: u32,
    announced: u32,
    pub arrived: u32,
    /// Cycles of completed receives.
    pub received: Vec<u64>,
    first_psn: u32,
    /// Packets that have arrived, from `next` on; all before have.
    seen: BTreeSet<u32>,
    next: u32,
    /// Credits that what has arrived uses.
    landed: HashSet<u32>,
    /// Keys of the memory at `to` that it may write to, and of that which it may read.
    pub key: u32,
    pub read_key: u32,
    /// What is written there, in the order of the elements.
    written: Vec<(u64, Vec<u8>)>,
    /// Atomics that are to be carried out there, in that order.
    changes: VecDeque<Atomic>,
    /// As firmware has it of a sender: it waits for memory until then; a GO has overtaken what it is for.
    waits: Option<u64>,
    gone: bool,
    /// Keys that firmware has ended, for receives that are not complete.
    dead: u32,
}

/// A doorbell: receive queue?, row, index, bytes posted, WQE.
type Doorbell = (bool, u32, u16, u32, Option<[u64; 16]>);

struct QueueRead {
    due: u64,
    half: usize,
    tag: u64,
    addr: u64,
    len: u64,
    off: u64,
}

/// One card.
struct End {
    m: Module,
    ports: HashMap<&'static str, Port>,
    config: VecDeque<(u32, u32)>,
    doorbells: VecDeque<Doorbell>,
    /// Words of queues.
    queues: HashMap<u64, u64>,
    queue_reads: Vec<QueueRead>,
    host: Ranges,
    sending: Vec<u8>,
    /// (due, tag) of payload reads, of payload writes, of frames in the MAC.
    reads: Vec<(u64, u64)>,
    read_free: f64,
    writes: VecDeque<(u64, u64)>,
    write_free: f64,
    /// The atomics that are being carried out: due, tag, what stood there.
    changes: Vec<(u64, u64, u64)>,
    mac: VecDeque<(u64, u64)>,
    mac_free: f64,
    slots: HashMap<u32, Vec<u8>>,
    free: VecDeque<u32>,
    shown: VecDeque<u32>,
    hd: Option<usize>,
    /// Frames to this card: (due, bytes).
    wire: Vec<(u64, Vec<u8>)>,
}

pub struct Pair {
    ends: [End; 2],
    /// By sending end; the sender's row.
    pub flows: [BTreeMap<u32, Flow>; 2],
    pub world: World,
    rng: Rng,
    pub now: u64,
    /// Time-outs that firmware has answered, lists that were refused.
    pub timeouts: u64,
    pub refused: u64,
    /// Most pages held, and most credits out, of a flow.
    pub most_credits: u32,
    /// Most ranges of a row that were asked for at a time and not there.
    pub most_waiting: usize,
    /// A frame that is to be dropped: (end, row, PSN).
    pub drop: Option<(usize, u32, u32)>,
    keys: [Keys<64>; 2],
    /// GOs on their way: (due, end that sends, its row).
    goes: Vec<(u64, usize, u32)>,
    /// How often a sender had to wait for memory; READs posted.
    pub waits: u64,
    pub reads: u64,
    /// Atomics that were posted.
    pub atomics: u64,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))).collect()
}

impl End {
    fn new(world: &World, seed: u64) -> Self {
        let mut m = Module::with_seed(world.unit, world.width, seed);
        m.reset();
        let mut host = Ranges::new(seed, world.service, 0xcc);
        (host.lookup, host.warm) = (world.xlat, world.warm);
        Self {
            m,
            ports: HashMap::new(),
            config: VecDeque::new(),
            doorbells: VecDeque::new(),
            queues: HashMap::new(),
            queue_reads: Vec::new(),
            host,
            sending: vec![0xee; 1 << 18],
            reads: Vec::new(),
            read_free: 0.0,
            writes: VecDeque::new(),
            write_free: 0.0,
            changes: Vec::new(),
            mac: VecDeque::new(),
            mac_free: 0.0,
            slots: HashMap::new(),
            free: SLOTS.collect(),
            shown: VecDeque::new(),
            hd: None,
            wire: Vec::new(),
        }
    }

    fn p(&mut self, name: &'static str) -> Port {
        let Self { m, ports, .. } = self;
        *ports.entry(name).or_insert_with(|| m.port(name))
    }
    fn set(&mut self, name: &'static str, value: u64) {
        let p = self.p(name);
        self.m.set(p, value);
    }
    fn wide(&mut self, name: &'static str, words: &[u64]) {
        let p = self.p(name);
        self.m.set_wide(p, words);
    }
    fn get(&mut self, name: &'static str) -> u64 {
        let p = self.p(name);
        self.m.get(p)
    }
    fn taken(&mut self, valid: &'static str, ready: &'static str) -> bool {
        self.get(valid) & self.get(ready) & 1 != 0
    }

    fn write_element(&mut self, at: u64, wqe: &[u64]) {
        self.queues.extend((at..).step_by(8).zip(wqe.iter().copied()));
    }
}

impl Flow {
    /// Something is posted that is not complete.
    pub fn wants_receives(&self) -> bool {
        !self.sender.complete()
    }
}

impl Pair {
    pub fn new(world: World, seed: u64) -> Self {
        let mut pair = Self {
            ends: [End::new(&world, seed), End::new(&world, !seed)],
            flows: [BTreeMap::new(), BTreeMap::new()],
            world,
            rng: Rng(seed),
            now: 0,
            timeouts: 0,
            refused: 0,
            most_credits: 0,
            most_waiting: 0,
            drop: None,
            keys: [Keys::new(), Keys::new()],
            goes: Vec::new(),
            waits: 0,
            reads: 0,
            atomics: 0,
        };
        for end in 0..2 {
            let mac = Self::mac(end);
            let words = [
                (recv::OWN_IP, 0x0a00_0001 + end as u32),
                (recv::OWN_MAC, u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])),
                (recv::OWN_MAC + 1, u32::from_be_bytes([0, 0, mac[0], mac[1]])),
            ];
            pair.ends[end].config.extend(words.map(|(word, value)| (1 << 16 | word, value)));
        }
        pair.configured();
        pair
    }

    fn mac(end: usize) -> [u8; 6] {
        [2, 0, 0, 0, 0, 1 + end as u8]
    }

    fn configured(&mut self) {
        while self.ends.iter().any(|end| !end.config.is_empty()) {
            self.step();
        }
    }

    /// Connects row `rows[0]` of the first end with row `rows[1]` of the other, both ways alike.
    pub fn connect(&mut self, rows: [u32; 2], settings: &Settings) {
        let w = self.world.clone();
        let psn = [settings.first_psn, settings.first_psn.wrapping_add(0x1234) & PSN];
        for end in 0..2 {
            let (q, to) = (rows[end], rows[1 - end]);
            let (near, far) = (0x0a00_0001 + end as u32, 0x0a00_0002 - end as u32);
            let mac = Self::mac(1 - end);
            // Some have what is the number of the control QP elsewhere.
            let carrier = if to == CONTROL_QPN { send::CARRIER_CONTROL } else { q % 3 };
            let template =
                Template::new(Mac::new(Self::mac(end)), near, Mac::new(mac), far, 0xc000 | q as u16, to).row();
            let mut words: Vec<(u32, u32)> = (0..14).map(|i| (i, template[i as usize])).collect();
            let base = SENDS + u64::from(q) * (128 << LOG2_DEPTH);
            words.extend([
                (send::BASE, base as u32),
                (send::BASE + 1, (base >> 32) as u32),
                (send::QUEUE, send::Queue { cqn: q & 0x3f, asid: FROM, log2_depth: LOG2_DEPTH }.word()),
                (send::MODE, peer::Settings { carrier, ..settings.clone() }.word()),
                (send::TIMEOUT, settings.timeout),
                (send::BLOCKS, send::Blocks { ahead: settings.ahead, log2_block: settings.log2_block }.word()),
                (send::PSN, psn[end]),
                (send::QKEY, QKEY),
                (send::COMMAND, send::CMD_START),
            ]);
            let send = words.into_iter().map(|(word, value)| (q << 6 | word, value));
            self.ends[end].config.extend(send);
            let base = RECVS + u64::from(q) * (128 << LOG2_DEPTH);
            let mode = recv::Mode {
                ack_every: w.ack_every,
                message: settings.message.into(),
                selective: settings.selective.into(),
                // Of every other one.
                writes_in_order: q & 1,
                remote: (settings.remote && settings.selective).into(),
                reads: settings.reads,
                log2_mtu: settings.log2_mtu,
                ..recv::Mode::default()
            };
            let words = [
                (recv::MODE, mode.word()),
                (recv::IP, far),
                (recv::MAC, u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])),
                (recv::MAC + 1, u32::from_be_bytes([0, 0, mac[0], mac[1]])),
                (recv::SPACE, recv::Space { domain: DOMAIN.into(), cqn: q & 0x3f, asid: INTO }.word()),
                (recv::EPOCH, 0x5000 + to),
                (recv::PEER_EPOCH, 0x5000 + q),
                (recv::QKEY, QKEY),
                (recv::PSN, psn[1 - end]),
                (recv::BASE, base as u32),
                (recv::BASE + 1, (base >> 32) as u32),
                (recv::QUEUE, recv::Queue { first: 0, log2_depth: LOG2_DEPTH }.word()),
                (recv::LISTS, recv::Lists { longest: w.max_list, ..recv::Lists::default() }.word()),
                (recv::AGAIN, w.repeat),
                (recv::PI, 0),
            ];
            let stage = words.into_iter().map(|(word, value)| (1 << 16 | word, value));
            self.ends[end].config.extend(stage.chain([(1 << 16 | q << 6 | recv::COMMAND, recv::CMD_START)]));
            let mut sender = Peer::new(q, Settings { first_psn: psn[end], ..settings.clone() });
            sender.silent = true;
            // A request that goes again may overtake packets that have not left.
            sender.gaps = w.loss > 0.0 || w.late > 0;
            self.flows[end].insert(
                q,
                Flow {
                    q,
                    to,
                    sender,
                    recvs: Vec::new(),
                    told: 0,
                    announced: 0,
                    arrived: 0,
                    received: Vec::new(),
                    first_psn: psn[end],
                    seen: BTreeSet::new(),
                    next: 0,
                    landed: HashSet::new(),
                    key: 0,
                    read_key: 0,
                    written: Vec::new(),
                    changes: VecDeque::new(),
                    waits: None,
                    gone: false,
                    dead: 0,
                },
            );
            if settings.remote && settings.selective && settings.message {
                let key = self.bind(1 - end, Self::target(end, q), WRITE);
                let read_key = self.bind(1 - end, Self::origin(end, q), READ | ATOMIC);
                let flow = self.flows[end].get_mut(&q).expect("inserted");
                (flow.key, flow.read_key) = (key, read_key);
            }
        }
        self.configured();
    }

    /// A key of memory at an end that its peer may use.
    fn bind(&mut self, end: usize, va: u64, rights: u8) -> u32 {
        let (entropy, keys) = (self.rng.draw(), &mut self.keys[end]);
        let key = keys.allocate(DOMAIN, entropy).expect("a place");
        keys.bind(key, Binding { va, len: TARGET, rights, ..Binding::default() }).expect("a range");
        let words = (recv::KEY..).zip(keys.words((key >> 8 & 63) as usize, INTO as u8));
        let argument = key >> 8 & (berth_abi::card::NUM_KEYS - 1);
        let command = recv::Command { opcode: recv::CMD_KEY_STORE, argument }.word();
        let stage = words.chain([(recv::COMMAND, command)]).map(|(word, value)| (1 << 16 | word, value));
        self.ends[end].config.extend(stage);
        key
    }

    /// Memory at the other end that row `q` of `end` may write to.
    fn target(end: usize, q: u32) -> u64 {
        (3 << 40) + ((end as u64) << 39) + (u64::from(q) << 28) + 123
    }

    /// Memory at the other end that row `q` of `end` may read.
    fn origin(end: usize, q: u32) -> u64 {
        (5 << 40) + ((end as u64) << 39) + (u64::from(q) << 28) + 321
    }

    /// An element of any kind that a row may send.
    pub fn random_element(&mut self, end: usize, q: u32, message: bool) -> Element {
        let (key, read_key) = (self.flows[end][&q].key, self.flows[end][&q].read_key);
        let mut element = random_element(&mut self.rng, message, read_key != 0);
        let (first, most) = (Self::origin(end, q), TARGET - u64::from(element.len()));
        element.source = element.source.map(|(va, _)| (first + va % most, read_key));
        element.atomic =
            element.atomic.map(|a| Atomic { va: (first + 7 + a.va % (most - 7)) & !7, key: read_key, ..a });
        element.remote = element.remote.filter(|_| key != 0).map(|(va, _)| {
            // About the same bytes, and others.
            let most = if va < 1 << 14 { 1 << 14 } else { TARGET };
            (Self::target(end, q) + va % (most - u64::from(element.len())), key)
        });
        element
    }

    /// Posts sends of a row, with one doorbell or each with a doorbell that brings it.
    pub fn send(&mut self, end: usize, q: u32, elements: &[Element], with_wqe: bool) {
        let Flow { sender, written, changes, .. } = self.flows[end].get_mut(&q).expect("connected");
        for (i, element) in elements.iter().enumerate() {
            self.reads += u64::from(element.source.is_some());
            self.atomics += u64::from(element.atomic.is_some());
            changes.extend(element.atomic);
            written.extend(element.remote.map(|(va, _)| (va, element.bytes())));
            let number = sender.posted(element);
            let wqe = element.wqe(u64::from(q) << 32 | number);
            self.ends[end]
                .write_element(SENDS + (u64::from(q) << (LOG2_DEPTH + 7)) + number % (1 << LOG2_DEPTH) * 128, &wqe);
            let with_wqe = with_wqe && element.fits_doorbell();
            if with_wqe || i + 1 == elements.len() {
                let posted = sender.bytes_posted();
                let wqe = with_wqe.then_some(wqe);
                self.ends[end].doorbells.push_back((false, q, (number + 1) as u16, posted, wqe));
            }
        }
    }

    /// Posts receives for what row `q` of `end` sends, at the other end, with one doorbell.
    pub fn receive(&mut self, end: usize, q: u32, recvs: &[Vec<(u64, u32)>]) {
        let flow = self.flows[end].get_mut(&q).expect("connected");
        for sges in recvs {
            let number = flow.recvs.len() as u64;
            let size = sges.iter().map(|s| s.1).sum::<u32>();
            let num_sge = sges.len() as u16;
            let mut wqe = Wqe { opcode: OP_RECV, num_sge, length: size, wr_id: number, ..Wqe::default() };
            for (sge, &(va, len)) in wqe.sge.iter_mut().zip(sges) {
                *sge = Sge { va, len, reserved: 0 };
            }
            self.ends[1 - end].write_element(
                RECVS + (u64::from(flow.to) << (LOG2_DEPTH + 7)) + number % (1 << LOG2_DEPTH) * 128,
                &wqe.words(),
            );
            flow.recvs.push(Recv { sges: sges.clone(), size });
        }
        let bell = (true, flow.to, flow.recvs.len() as u16, 0, None);
        self.ends[1 - end].doorbells.push_back(bell);
    }

    /// Receives that are posted and not complete.
    pub fn open(&self, end: usize, q: u32) -> usize {
        let flow = &self.flows[end][&q];
        flow.recvs.len() - flow.received.len()
    }

    /// Receives posted so far.
    pub fn posted(&self, end: usize, q: u32) -> usize {
        self.flows[end][&q].recvs.len()
    }

    /// All that was posted has been sent, acknowledged and received.
    pub fn sent(&self) -> bool {
        let done = |f: &Flow| f.sender.complete() && f.received.len() == f.sender.pieces.len();
        self.flows.iter().flat_map(BTreeMap::values).all(done)
    }

    /// WRITEs posted so far.
    pub fn writes(&self) -> usize {
        self.flows.iter().flat_map(BTreeMap::values).map(|flow| flow.written.len()).sum()
    }

    /// Where receive `n` of what row `q` of `end` sends lies: pages of its own.
    pub fn buffer(end: usize, q: u32, n: usize, pages: u64) -> u64 {
        (1 << 40) + ((end as u64) << 39) + (u64::from(q) << 28) + n as u64 % 256 * pages * PAGE
    }

    /// The page of an address is missing at an end: the next who wants it, when nobody holds it, waits for `service`.
    pub fn evict(&mut self, end: usize, sent: bool, va: u64) {
        let asid = if sent { FROM } else { INTO };
        self.ends[end].host.evict(asid, va, 1);
    }

    /// Steps until `done`, at most `limit` cycles.
    pub fn until(&mut self, limit: u64, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + limit;
        // With many QPs it takes long to see whether all is done.
        let rarely = if self.flows[0].len() > 16 { 64 } else { 1 };
        while !(self.now.is_multiple_of(rarely) && done(self)) {
            if self.now >= end {
                let left: Vec<_> = self
                    .flows
                    .iter()
                    .flat_map(BTreeMap::values)
                    .filter(|f| !f.sender.complete() || f.received.len() != f.sender.pieces.len())
                    .map(|f| {
                        format!(
                            "{}; receives {}, told {}, announced {}, arrived {}, complete {} of {} pieces",
                            f.sender.describe(),
                            f.recvs.len(),
                            f.told,
                            f.announced,
                            f.arrived,
                            f.received.len(),
                            f.sender.pieces.len()
                        )
                    })
                    .collect();
                let held = [self.ends[0].host.pages(), self.ends[1].host.pages()];
                panic!("{what} does not happen in {limit} cycles: {left:#?}; held {held:?}; {:?}", self.world);
            }
            self.step();
        }
    }

    /// The models have come to their ends as well, and what was written is where it belongs: of WRITEs that overlap, the
    /// last one's.
    pub fn check_end(&mut self) {
        for (end, flow) in self.flows.iter().enumerate().flat_map(|(end, flows)| flows.values().map(move |f| (end, f)))
        {
            flow.sender.check_end();
            let mut there = BTreeMap::new();
            assert!(flow.changes.is_empty(), "QP {}: atomics are not carried out", flow.q);
            for (va, bytes) in &flow.written {
                there.extend((*va..).zip(bytes));
            }
            for (va, byte) in there {
                let found = self.ends[1 - end].host.read(INTO, va, 1);
                assert_eq!(found, [*byte], "QP {}: what is written to {va:#x}", flow.q);
            }
        }
    }

    /// What firmware has to do: a sender that waits for memory goes on after a GO, or in time.
    fn wake(&mut self) {
        let now = self.now;
        for (_, end, q) in self.goes.extract_if(.., |(due, ..)| *due <= now) {
            let flow = self.flows[end].get_mut(&q).expect("connected");
            flow.gone = flow.waits.take().is_none();
            if !flow.gone {
                self.ends[end].config.push_back((q << 6 | send::COMMAND, send::CMD_GO_ON));
            }
        }
        for (end, flows) in self.flows.iter_mut().enumerate() {
            for flow in flows.values_mut().filter(|f| f.waits.is_some_and(|until| until <= now)) {
                flow.waits = None;
                self.ends[end].config.push_back((flow.q << 6 | send::COMMAND, send::CMD_GO_ON));
            }
        }
    }

    fn go(&mut self) -> bool {
        self.world.stall == 0.0 || !self.rng.chance(self.world.stall)
    }

    /// One clock of both cards.
    pub fn step(&mut self) {
        self.wake();
        for end in 0..2 {
            self.offer(end);
        }
        for end in &mut self.ends {
            end.m.settle();
        }
        for end in 0..2 {
            self.take(end);
        }
        for end in &mut self.ends {
            end.m.edge();
        }
        self.now += 1;
    }

    // ---- inputs ----------------------------------------------------------------------------

    fn offer(&mut self, k: usize) {
        let now = self.now;
        let go = self.go() && self.ends[k].changes.len() < ATOMICS;
        self.ends[k].set("change_ready", go.into());
        for ready in ["load_ready", "store_ready", "hw_ready", "cf_ready"] {
            let go = self.go();
            self.ends[k].set(ready, go.into());
        }
        for ready in ["qr_ready", "xa_ready", "fcq_ready"] {
            let go = u64::from(self.go()) | u64::from(self.go()) << 1;
            self.ends[k].set(ready, go);
        }
        let mac = self.ends[k].mac.len() < 4 && self.go();
        let pop = self.go();
        let go = [self.go(), self.go(), self.go(), self.go()];
        let pick = self.rng.draw();
        let e = &mut self.ends[k];
        e.set("now", now >> 6 & 0xffff_ffff);
        e.set("fs_ready", mac.into());
        e.set("fe_pop", pop.into());

        let config = e.config.front().copied();
        let acked = e.get("fc_ack") != 0;
        e.set("fc_req", (config.is_some() && !acked).into());
        e.set("fc.we", 1);
        if let Some((addr, value)) = config {
            e.set("fc.half", (addr >> 16).into());
            e.set("fc.qpn", (addr >> 6 & 0x3ff).into());
            e.set("fc.word", (addr & 63).into());
            e.set("fc.data", value.into());
        }

        let shown = e.get("fdb_valid") != 0 && !e.doorbells.is_empty();
        let bell = e.doorbells.front().filter(|_| shown || go[0]).copied();
        e.set("fdb_valid", bell.is_some().into());
        if let Some((rq, q, pi, posted, wqe)) = bell {
            e.set("fdb.rq", rq.into());
            e.set("fdb.qpn", q.into());
            e.set("fdb.pi", pi.into());
            e.set("fdb.posted", posted.into());
            e.set("fdb.pushed", wqe.is_some().into());
            e.wide("fdb.wqe", &wqe.unwrap_or_default()[..8]);
        }

        // A beat of a queue: requests in any order, beats of one in theirs.
        let ready: Vec<usize> = (0..e.queue_reads.len()).filter(|&i| e.queue_reads[i].due <= now).collect();
        let beat = (!ready.is_empty() && go[1]).then(|| ready[pick as usize % ready.len()]);
        e.set("qc_valid", beat.map_or(0, |i| 1 << e.queue_reads[i].half));
        if let Some(i) = beat {
            let bytes = u64::from(e.p("qc_data").bits() / 8);
            let QueueRead { tag, addr, len, off, .. } = e.queue_reads[i];
            let data: Vec<u64> =
                (addr + off..addr + off + bytes).step_by(8).map(|a| e.queues.get(&a).copied().unwrap_or(0)).collect();
            e.wide("qc_data", &data);
            e.set("qc.tag", tag);
            e.set("qc.off", off);
            e.set("qc.last", (off + bytes >= len).into());
            e.set("qc.err", 0);
            e.queue_reads[i].off += bytes;
            if off + bytes >= len {
                e.queue_reads.remove(i);
            }
        }

        // Answers of the translation, one for each half.
        let room = e.get("xr_room");
        let mut valid = 0;
        for half in 0..2 {
            let reply = e.host.reply(now, half);
            if let Some(reply) = reply.filter(|_| room >> half & 1 != 0 && go[2]) {
                e.host.taken(reply);
                valid |= 1 << half;
                e.set(["xr.tx.tag", "xr.rx.tag"][half], reply.tag.into());
                e.set(["xr.tx.kind", "xr.rx.kind"][half], reply.kind.into());
            }
        }
        e.set("xr_valid", valid);

        let done = e.reads.iter().position(|r| r.0 <= now).filter(|_| go[3]);
        e.set("loaded_valid", done.is_some().into());
        if let Some(i) = done {
            let (_, tag) = e.reads.remove(i);
            e.set("loaded.tag", tag);
            e.set("loaded.status", 0);
        }
        let done = e.writes.front().copied().filter(|w| w.0 <= now);
        e.set("stored_valid", done.is_some().into());
        if let Some((_, tag)) = done {
            e.writes.pop_front();
            e.set("stored.tag", tag);
            e.set("stored.status", 0);
        }
        let done = (0..e.changes.len()).filter(|&i| e.changes[i].0 <= now).min_by_key(|&i| e.changes[i].0);
        let done = done.map(|i| e.changes.swap_remove(i));
        e.set("changed_valid", done.is_some().into());
        if let Some((_, tag, original)) = done {
            e.set("changed.tag", tag);
            e.set("changed.failed", 0);
            e.set("changed.original", original);
        }
        let left = e.mac.front().copied().filter(|m| m.0 <= now);
        e.set("fl_valid", left.is_some().into());
        if let Some((_, tag)) = left {
            e.mac.pop_front();
            e.set("fl_tag", tag);
        }

        // Frames that have come take slots in the order of their arrival.
        while !e.free.is_empty() {
            let next = (0..e.wire.len()).filter(|&i| e.wire[i].0 <= now).min_by_key(|&i| (e.wire[i].0, i));
            let Some(i) = next else { break };
            let (_, bytes) = e.wire.remove(i);
            let slot = e.free.pop_front().expect("one is free");
            e.slots.insert(slot, bytes);
            e.shown.push_back(slot);
        }
        let shown = e.get("rf_valid") != 0;
        let frame = e.shown.front().copied().filter(|_| shown || go[1]);
        e.set("rf_valid", frame.is_some().into());
        if let Some(slot) = frame {
            let mut header = e.slots[&slot].clone();
            let len = header.len() as u64;
            header.resize(96, 0);
            e.wide("rf_hdr", &words(&header));
            e.set("rf.place", u64::from(slot) * SLOT as u64);
            e.set("rf.len", len);
            e.set("rf.flags", (RX_FLAG_ICRC_OK | RX_FLAG_ROCE).into());
        }
        if let Some(addr) = e.hd.take() {
            let bytes = &e.slots[&((addr / SLOT) as u32)];
            let word =
                (0..4).fold(0, |w, i| w | u64::from(bytes.get(addr % SLOT + i).copied().unwrap_or(0)) << (8 * i));
            e.set("hd_data", word);
        }
    }

    // ---- outputs ---------------------------------------------------------------------------

    fn take(&mut self, k: usize) {
        let now = self.now;
        if self.ends[k].get("fc_ack") != 0 {
            self.ends[k].config.pop_front();
        }
        if self.ends[k].taken("fdb_valid", "fdb_ready") {
            let (rq, q, pi, posted, _) = self.ends[k].doorbells.pop_front().expect("one is shown");
            if rq {
                let flow = self.flows[1 - k].values_mut().find(|f| f.to == q).expect("connected");
                flow.told = pi.into();
            } else {
                self.flows[k].get_mut(&q).expect("connected").sender.rung(posted);
            }
        }
        for half in 0..2 {
            if self.ends[k].get("qr_valid") & self.ends[k].get("qr_ready") & 1 << half != 0 {
                let late = if self.world.jitter > 0 { self.rng.below(self.world.jitter) } else { 0 };
                let e = &mut self.ends[k];
                let names = [["qr.tx.addr", "qr.tx.len", "qr.tx.tag"], ["qr.rx.addr", "qr.rx.len", "qr.rx.tag"]];
                let [addr, len, tag] = names[half].map(|name| e.get(name));
                assert!(len.is_multiple_of(128) && (128..=512).contains(&len) && addr % PAGE + len <= PAGE);
                e.queue_reads.push(QueueRead { due: now + self.world.read + late, half, tag, addr, len, off: 0 });
            }
            if self.ends[k].get("xa_valid") & self.ends[k].get("xa_ready") & 1 << half != 0 {
                self.translate(k, half);
            }
            if self.ends[k].get("fcq_valid") & self.ends[k].get("fcq_ready") & 1 << half != 0 {
                self.completion(k, half);
            }
        }
        if self.ends[k].taken("load_valid", "load_ready") {
            self.read_payload(k);
        }
        if self.ends[k].taken("store_valid", "store_ready") {
            self.write_payload(k);
        }
        if self.ends[k].taken("change_valid", "change_ready") {
            self.change(k);
        }
        let e = &mut self.ends[k];
        if e.taken("hw_valid", "hw_ready") {
            let at = e.get("hw_addr") as usize;
            let (data, strb) = (e.p("hw_data"), e.p("hw_strb"));
            let (data, strb) = (e.m.bytes(data), e.m.bytes(strb));
            for (i, byte) in data.iter().enumerate() {
                if strb[i / 8] >> (i % 8) & 1 != 0 {
                    e.sending[at + i] = *byte;
                }
            }
        }
        if e.taken("rf_valid", "rf_ready") {
            let slot = e.shown.pop_front().expect("a frame was shown");
            let bytes = e.slots[&slot].clone();
            self.heard(k, &bytes);
        }
        let e = &mut self.ends[k];
        if e.get("hd_re") != 0 {
            e.hd = Some(e.get("hd_addr") as usize);
        }
        if e.get("rfree_valid") != 0 {
            let slot = (e.get("rfree_place") as usize / SLOT) as u32;
            assert!(e.slots.remove(&slot).is_some(), "a frame is given back twice");
            e.free.push_back(slot);
        }
        assert!(!e.taken("cf_valid", "cf_ready"), "a frame for the core");
        if e.taken("fs_valid", "fs_ready") {
            self.frame(k);
        }
        if self.ends[k].taken("fe_valid", "fe_pop") {
            let event = Event::from_word(self.ends[k].get("fe"));
            let q = event.qpn as u32;
            match event.code as u32 {
                // A time-out: firmware has it sent again.
                EVENT_TIMEOUT => {
                    self.timeouts += 1;
                    self.ends[k].config.push_back((q << 6 | send::COMMAND, send::CMD_AGAIN));
                }
                EVENT_INVALIDATE => {
                    let flow = self.flows[1 - k].values_mut().find(|f| f.to == q).expect("connected");
                    flow.dead += 1;
                    self.ends[k].config.push_back((1 << 16 | q << 6 | recv::COMMAND, recv::CMD_INVALIDATED));
                }
                EVENT_BIND => self.ends[k].config.push_back((q << 6 | send::COMMAND, send::CMD_BOUND)),
                // A list that has overtaken another one, or its proof: it comes again.
                EVENT_LIST => self.refused += 1,
                // Memory that the peer was told to wait for.
                EVENT_TARGET => {
                    let flow = self.flows[1 - k].values().find(|f| f.to == q).expect("connected");
                    self.goes.push((self.now + self.world.wire, 1 - k, flow.q));
                }
                EVENT_RNR => {
                    assert_eq!(
                        Nak::from_word(event.argument as u32).syndrome,
                        0x20,
                        "QP {q}: it waits for something else than memory"
                    );
                    self.waits += 1;
                    let flow = self.flows[k].get_mut(&q).expect("connected");
                    // What goes again may overtake its first copy, as it may after a loss.
                    flow.sender.gaps = true;
                    match std::mem::take(&mut flow.gone) {
                        true => self.ends[k].config.push_back((q << 6 | send::COMMAND, send::CMD_GO_ON)),
                        false => flow.waits = Some(self.now + NOT_YET),
                    }
                }
                _ => panic!("{event:x?} at end {k}"),
            }
        }
    }

    fn translate(&mut self, k: usize, half: usize) {
        let e = &mut self.ends[k];
        let names = [
            ["xa.tx.give_back", "xa.tx.write", "xa.tx.asid", "xa.tx.va", "xa.tx.len", "xa.tx.tag"],
            ["xa.rx.give_back", "xa.rx.write", "xa.rx.asid", "xa.rx.va", "xa.rx.len", "xa.rx.tag"],
        ];
        let [give_back, write, asid, va, len, tag] = names[half].map(|name| e.get(name));
        let span = Span { asid: asid as u32, va, len, write: write != 0 };
        assert_eq!(span.asid, [FROM, INTO][half]);
        assert!(len > 0);
        if give_back != 0 {
            return e.host.release(span);
        }
        if half == 1 && e.get("xa.rx.quiet") != 0 {
            return e.host.look(self.now, half, tag as u16, span);
        }
        if half == 1 && e.get("xa.rx.probe") != 0 {
            return e.host.probe(self.now, half, tag as u16, span);
        }
        if e.host.acquire(self.now, half, tag as u16, span) && half == 0 {
            let q = (tag >> 6) as u32;
            self.flows[k].get_mut(&q).expect("connected").sender.pinned(tag & 63, va, len, span.write);
        }
        let row = row_of(half, tag);
        let waiting = e.host.waiting(|h, t| row_of(h, t.into()) == row);
        self.most_waiting = self.most_waiting.max(waiting);
    }

    fn read_payload(&mut self, k: usize) {
        let late = if self.world.jitter > 0 { self.rng.below(self.world.jitter) } else { 0 };
        let beat = f64::from(self.world.width) / 8.0 * 1.25;
        let (now, read) = (self.now, self.world.read);
        let e = &mut self.ends[k];
        let (local, len) = (e.get("load.place") as usize, e.get("load.len"));
        let (va, tag) = (e.get("load.va"), e.get("load.tag"));
        let asid = e.get("load.asid") as u32;
        assert!(len > 0 && (asid == FROM || asid == INTO));
        assert!(e.host.reaches(Span { asid, va, len, write: false }), "pages are missing that are held");
        // What a peer reads is as `Element::bytes` has it.
        let key = self.flows[1 - k].get(&((va >> 28) as u32 & 0x3ff)).map_or(0, |flow| flow.read_key);
        let other = if asid == INTO { key as u8 } else { 0 };
        for i in 0..len as usize {
            e.sending[local + i] = byte_at(va + i as u64) ^ other;
        }
        e.read_free = e.read_free.max(now as f64) + (len as f64 / beat).max(1.0);
        e.reads.push((e.read_free as u64 + read + late, tag));
    }

    /// An atomic is carried out: the next one of its flow, and no other. What stood there is as `Element::bytes` has it.
    fn change(&mut self, k: usize) {
        let due = self.now + self.world.read + self.world.write + self.rng.below(self.world.jitter + 1);
        let e = &mut self.ends[k];
        let (add, va) = (e.get("change.add") != 0, e.get("change.va"));
        let [operand, compare] = ["change.operand", "change.compare"].map(|name| e.get(name));
        let span = Span { asid: INTO, va, len: 8, write: true };
        assert!(e.get("change.asid") == INTO.into() && e.host.reaches(span), "pages are missing that are held");
        let flow = self.flows[1 - k].get_mut(&((va >> 28) as u32 & 0x3ff)).expect("it has a flow");
        let its = flow.changes.pop_front().expect("one is to be carried out");
        assert_eq!((va, operand, add), (its.va, its.operand, its.compare.is_none()), "QP {}", flow.q);
        assert!(its.compare.is_none_or(|its| its == compare), "QP {}: {compare:#x}, {:#x?}", flow.q, its.compare);
        let bytes = std::array::from_fn(|i| byte_at(va + i as u64) ^ flow.read_key as u8);
        let tag = e.get("change.tag");
        e.changes.push((due, tag, u64::from_le_bytes(bytes)));
    }

    fn write_payload(&mut self, k: usize) {
        let beat = f64::from(self.world.width) / 8.0 * 1.25;
        let (now, write) = (self.now, self.world.write);
        let e = &mut self.ends[k];
        let (local, len) = (e.get("store.place") as usize, e.get("store.len") as usize);
        let (va, tag) = (e.get("store.va"), e.get("store.tag"));
        let asid = e.get("store.asid") as u32;
        assert!(len > 0 && (asid == FROM || asid == INTO));
        let reverse = e.get("store.reverse") != 0;
        // The first byte in the frame, which is the last one in memory if they are turned round.
        let local = if reverse { (local ^ 0x3_ffff) + 1 - len } else { local };
        let frame = &e.slots[&((local / SLOT) as u32)];
        let mut bytes = frame[local % SLOT..local % SLOT + len].to_vec();
        if reverse {
            bytes.reverse();
        }
        let span = Span { asid, va, len: len as u64, write: true };
        assert!(e.host.reaches(span), "pages are missing that are held");
        if asid == FROM {
            // A part of an answer; the last one ends where its payload does.
            let (q, psn) = (u32::from_be_bytes([0, frame[47], frame[48], frame[49]]), psn_of(frame));
            let last = match reverse {
                true => local % SLOT == 58,
                false => local % SLOT + len + usize::from(frame[43] >> 4 & 3) == frame.len() - 4,
            };
            let sender = &mut self.flows[k].get_mut(&q).expect("connected").sender;
            sender.written(psn, va, &bytes);
            if last {
                sender.all_written(psn);
                sender.placed(psn);
            }
        } else {
            e.host.write(INTO, va, &bytes);
        }
        e.write_free = e.write_free.max(now as f64) + (len as f64 / beat).max(1.0);
        e.writes.push_back((e.write_free as u64 + write, tag));
    }

    fn completion(&mut self, k: usize, half: usize) {
        let now = self.now;
        let e = &mut self.ends[k];
        let cqn = e.get(["fcq.tx.cqn", "fcq.rx.cqn"][half]);
        let words = e.p(["fcq.tx.words", "fcq.rx.words"][half]);
        let words = e.m.words(words);
        let mut w = [0; 8];
        w.iter_mut().enumerate().for_each(|(i, w)| *w = (words[i / 2] >> (32 * (i % 2))) as u32);
        let c = Cqe::from_words(&w);
        let q = c.qpn;
        assert_eq!(cqn, u64::from(q & 0x3f), "{c:x?}");
        if half == 0 {
            self.flows[k].get_mut(&q).expect("connected").sender.completed(
                c.wr_id as u32,
                c.byte_len,
                c.status,
                c.opcode,
            );
            return;
        }
        let flow = self.flows[1 - k].values_mut().find(|f| f.to == q).expect("connected");
        let number = flow.received.len();
        let piece = flow.sender.pieces.get(number).unwrap_or_else(|| panic!("QP {q}: receive {number}, no piece"));
        let invalidated = if piece.invalidate.is_some() { CQE_INVALIDATED } else { 0 };
        let flags = cqe_flags(piece.push, piece.end.or(piece.immediate).is_some()) | invalidated;
        let context = format!("QP {q}, receive {number}");
        assert_eq!((c.wr_id, c.byte_len, c.credit), (number as u64, piece.len, number as u32), "{context}");
        let write = flow.sender.writes(piece);
        let opcode = if write { OP_WRITE } else { OP_RECV };
        assert_eq!((c.status, c.opcode, c.flags), (WC_OK, opcode, flags), "{context}");
        if piece.end.is_none() {
            assert_eq!(c.remaining, piece.immediate.or(piece.invalidate).unwrap_or(0), "{context}");
            if piece.invalidate.is_some() {
                let dead = flow.dead.checked_sub(1);
                flow.dead = dead.unwrap_or_else(|| panic!("{context}: it is complete before firmware has ended a key"));
            }
        }
        if let Some(end) = piece.end {
            assert!(flow.sender.was_rung(c.remaining.wrapping_add(end)), "{context}: {c:x?}");
        }
        // A WRITE uses the receive without a byte in it.
        let mut sent = flow.sender.bytes_of(piece).iter();
        let mut left = if write { 0 } else { piece.len };
        for &(va, n) in &flow.recvs[number].sges {
            let n = n.min(left);
            for (a, there) in (va..).zip(e.host.read(INTO, va, n as usize)) {
                assert_eq!(Some(&there), sent.next(), "{context}: the byte at {a:#x}");
            }
            left -= n;
        }
        flow.received.push(now);
    }

    fn frame(&mut self, k: usize) {
        let beat = f64::from(self.world.width) / 8.0;
        let now = self.now;
        let e = &mut self.ends[k];
        let (at, len, tag) = (e.get("fs.place") as usize, e.get("fs.len") as usize, e.get("fs.tag"));
        let mut bytes = e.sending[at..at + len].to_vec();
        e.mac_free = e.mac_free.max(now as f64) + ((len + 4) as f64 / beat).ceil() + 24.0 / beat;
        let left = e.mac_free as u64;
        e.mac.push_back((left, tag));
        self.check_frame(k, &bytes);
        bytes.extend([0; 4]);
        let qpn = u32::from_be_bytes([0, bytes[47], bytes[48], bytes[49]]);
        let psn = u32::from_be_bytes([0, bytes[51], bytes[52], bytes[53]]);
        if self.drop.is_some_and(|(end, to, p)| (end, to, p) == (k, qpn, psn) && bytes[42] <= 5) {
            self.drop = None;
            return;
        }
        if self.rng.chance(self.world.loss) {
            return;
        }
        let times = 1 + usize::from(self.rng.chance(self.world.twice));
        for _ in 0..times {
            let late = if self.world.late > 0 { self.rng.below(self.world.late) } else { 0 };
            self.ends[1 - k].wire.push((left + self.world.wire + late, bytes.clone()));
        }
    }

    /// What a card sends: data as the model of its sender has it; ACKs only for what has arrived; lists of receives that
    /// are posted.
    fn check_frame(&mut self, k: usize, bytes: &[u8]) {
        let qpn = u32::from_be_bytes([0, bytes[47], bytes[48], bytes[49]]);
        let psn = u32::from_be_bytes([0, bytes[51], bytes[52], bytes[53]]);
        match bytes[42] {
            // What it says is compared when it is written.
            BTH_READ_RESPONSE_FIRST..=BTH_READ_RESPONSE_ONLY | BTH_ATOMIC_ACKNOWLEDGE => (),
            _ if is_data(bytes) => {
                let flow = self.flows[k].values_mut().find(|f| f.to == qpn).expect("connected");
                flow.sender.check_frame(bytes);
                let credit = flow.sender.credit_of(bytes);
                assert!(
                    !uses_credit(bytes) || credit < flow.arrived,
                    "QP {}: credit {credit} of {}",
                    flow.q,
                    flow.arrived
                );
            }
            BTH_ACKNOWLEDGE | BTH_SELECTIVE_ACKNOWLEDGE => {
                let flow = &self.flows[1 - k][&qpn];
                let upto = psn.wrapping_sub(flow.first_psn) & PSN;
                let nak = bytes[54] != 0x1f;
                let known = !nak || bytes[54] == 0x60 || bytes[54] == 0x20;
                assert!(known, "QP {qpn}: syndrome {:#x}", bytes[54]);
                let (have, told) = (flow.next, if nak { upto } else { (upto + 1) & PSN });
                assert!(told <= have, "QP {qpn}: {told} packets are acknowledged, {have} have arrived");
                for i in (0..128)
                    .filter(|i| bytes[42] == BTH_SELECTIVE_ACKNOWLEDGE && bytes[58 + i / 8] << (i % 8) & 0x80 != 0)
                {
                    let n = told + i as u32;
                    assert!(n < have || flow.seen.contains(&n), "QP {qpn}: packet {n} has not arrived");
                }
            }
            BTH_UD_SEND_ONLY | BTH_UC_WRITE_ONLY => {
                let record = if bytes[42] == BTH_UC_WRITE_ONLY { 70 } else { 62 };
                let word = |i: usize| {
                    let at = record + 4 * i;
                    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                };
                let (to, n, first) = (word(0) >> 16, (word(0) >> 8 & 0xff) - 3, word(2));
                let flow = self.flows[1 - k].get_mut(&to).expect("connected");
                assert_eq!(word(1), 0x5000 + flow.to, "epoch");
                assert!(first <= flow.announced && n <= self.world.max_list, "QP {to}: list of {n} from {first}");
                flow.announced = flow.announced.max(first + n);
                assert!(flow.announced <= flow.told, "QP {to}: more credits than receives");
                for i in 0..n {
                    // A repeat may say other sizes of what is used up.
                    let number = first + i;
                    if !flow.landed.contains(&number) {
                        let size = flow.recvs[number as usize].size;
                        assert_eq!(word(3 + i as usize), size, "QP {to}: credit {number}");
                    }
                }
                self.most_credits = self.most_credits.max(flow.announced - flow.received.len() as u32);
            }
            opcode => panic!("a frame with opcode {opcode:#x}"),
        }
    }

    /// A card takes a frame.
    fn heard(&mut self, k: usize, bytes: &[u8]) {
        let qpn = u32::from_be_bytes([0, bytes[47], bytes[48], bytes[49]]);
        let psn = u32::from_be_bytes([0, bytes[51], bytes[52], bytes[53]]);
        match bytes[42] {
            BTH_READ_RESPONSE_FIRST..=BTH_READ_RESPONSE_ONLY => {
                // Without a payload behind AETH and iCRC it is not written.
                let payload = if bytes.len() == 54 + 4 + 4 { &[] } else { &bytes[58..] };
                self.flows[k].get_mut(&qpn).expect("connected").sender.came(psn, payload);
            }
            _ if is_data(bytes) => {
                let flow = self.flows[1 - k].values_mut().find(|f| f.to == qpn).expect("connected");
                if uses_credit(bytes) {
                    flow.landed.insert(flow.sender.credit_of(bytes));
                }
                let n = psn.wrapping_sub(flow.first_psn) & PSN;
                if n >= flow.next {
                    flow.seen.insert(n);
                }
                while flow.seen.remove(&flow.next) {
                    flow.next += 1;
                }
            }
            BTH_UD_SEND_ONLY | BTH_UC_WRITE_ONLY => {
                let record = if bytes[42] == BTH_UC_WRITE_ONLY { 70 } else { 62 };
                let word = |i: usize| {
                    let at = record + 4 * i;
                    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                };
                let (to, n, first) = (word(0) >> 16, (word(0) >> 8 & 0xff) - 3, word(2));
                let flow = self.flows[k].get_mut(&to).expect("connected");
                let sizes: Vec<u32> = (0..n).map(|i| word(3 + i as usize)).collect();
                flow.sender.list_came(first, &sizes);
                if first <= flow.arrived {
                    flow.arrived = flow.arrived.max(first + n);
                }
            }
            _ => (),
        }
    }
}

/// A packet of a SEND, or of a WRITE with immediate.
fn uses_credit(frame: &[u8]) -> bool {
    !matches!(frame[42], BTH_WRITE_ONLY | BTH_READ_REQUEST | BTH_CMP_SWAP | BTH_FETCH_ADD)
}

/// The row that an acquisition's tag belongs to; that of a receive counts as one with all others.
fn row_of(half: usize, tag: u64) -> u64 {
    if half == 0 { tag >> 6 } else { u64::MAX }
}

/// Flags of a receive's completion.
fn cqe_flags(push: bool, immediate: bool) -> u16 {
    let flag = |set: bool, flag: u16| if set { flag } else { 0 };
    flag(push, CQE_PUSH) | flag(immediate, CQE_IMMEDIATE)
}
