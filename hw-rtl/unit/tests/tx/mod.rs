// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything around berth_fp_tx, from a seed: queues, the one host that pins pages, packet RAM and payload reads,
//! MAC and wire, and per QP a peer and the golden model of what is to be sent.

pub mod peer;

use berth_abi::card::{MAX_DEPTH, READ_TAGS};
use berth_abi::rows::{
    event::{EVENT_BIND, EVENT_RNR, EVENT_TIMEOUT, Nak},
    send,
};
use berth_abi::wqe::{
    ATOMIC_BYTES, Cqe, MAX_INLINE, MAX_SGE, OP_BIND, OP_CMP_SWAP, OP_DELAY, OP_FETCH_ADD, OP_NOP, OP_READ, OP_SEND,
    OP_WRITE, SEND_FENCE, SEND_PUSH, SEND_UNSIGNALLED, Sge, Wqe,
};
use berth_protocol::rc::{Immediate, Message, Op, Position, ResponseBody, ResponsePacket, credit_code};
use berth_random::Rng;
use berth_rtl_host::{PAGE, Ranges, Reply, Span, pages};
use berth_rtl_unit::{Module, Port};
use peer::Peer;
pub use peer::Settings;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The address space of all QPs.
const ASID: u32 = 5;
/// That which answers to READs are read from, and where they lie.
const ANSWERS_ASID: u32 = 9;
const ANSWERS: u64 = 0x40_0000_0000;
/// Address of QP 0's send queue; each has `DEPTH` elements.
const QUEUES: u64 = 0x7_0000_0000;
const LOG2_DEPTH: u32 = MAX_DEPTH.ilog2();
/// Words of a WQE.
const WQE: usize = 16;
/// Places of frames that answers come in, and their bytes.
const SLOTS: u32 = 16;
const SLOT: u32 = 8192;
/// The host's answer when a page cannot be had.
pub const DENIED: u8 = 3;

pub fn widths() -> Vec<u32> {
    Module::widths("berth_fp_tx")
}

/// The byte that lies at a virtual address.
pub fn byte_at(va: u64) -> u8 {
    (va ^ (va >> 8) ^ (va >> 17)) as u8
}

/// What surrounds the card.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Probability that a port does not take what it is shown, or has nothing to show, for a cycle.
    pub stalls: f64,
    /// Cycles of a read of host memory.
    pub read: u64,
    /// And at most so many more, at random.
    pub jitter: u64,
    /// Cycles of the page service.
    pub service: u64,
    /// Probability that an acquire finds its pages missing.
    pub missing: f64,
    /// Memory of a send is unmapped when that is complete.
    pub unmaps: bool,
    /// Probability that a payload read fails.
    pub read_failures: f64,
    /// Probability that a payload write fails; cycles that it takes.
    pub write_failures: f64,
    pub write: u64,
    /// Cycles from the wire's end to the acknowledgement's arrival.
    pub round_trip: u64,
    /// Probability that a frame, or an acknowledgement, is lost; that it comes twice.
    pub loss: f64,
    pub twice: f64,
    /// Each is late by up to so many cycles, so that they overtake each other.
    pub late: u64,
    /// Packets after which the peer acknowledges, if not all its packets ask for it.
    pub ack_every: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            stalls: 0.0,
            read: 250,
            jitter: 0,
            service: 2_500,
            missing: 0.0,
            unmaps: false,
            read_failures: 0.0,
            write_failures: 0.0,
            write: 100,
            round_trip: 200,
            loss: 0.0,
            twice: 0.0,
            late: 0,
            ack_every: 1,
        }
    }
}

/// Words of a row that say what a BIND is.
const BIND_WORDS: usize = 6;

/// What a BIND says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    pub key: u32,
    pub va: u64,
    pub len: u64,
    pub scope: send::Bind,
}

impl Bind {
    pub fn random(rng: &mut Rng) -> Self {
        let scope = send::Bind { rights: rng.below(8) as u32, one_shot: rng.below(2) as u32, ..send::Bind::default() };
        Self { key: rng.draw() as u32, va: rng.draw(), len: rng.draw(), scope }
    }
}

/// What an atomic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Address and key.
    pub va: u64,
    pub key: u32,
    /// What is added, or swapped in if `compare` stands there.
    pub operand: u64,
    pub compare: Option<u64>,
}

impl Atomic {
    pub fn random(rng: &mut Rng) -> Self {
        let compare = rng.chance(0.5).then(|| rng.draw());
        Self { va: rng.draw() & !7, key: rng.draw() as u32, operand: rng.draw(), compare }
    }
    /// As the golden model has it.
    pub fn op(&self) -> Op {
        match self.compare {
            Some(compare) => Op::CompareSwap { compare, swap: self.operand },
            None => Op::FetchAdd { add: self.operand },
        }
    }
}

/// A send to be posted.
#[derive(Clone, Debug, Default)]
pub struct Element {
    /// Address and bytes of each SGE.
    pub sges: Vec<(u64, u32)>,
    /// Bytes that stand in the WQE, instead.
    pub data: Option<Vec<u8>>,
    /// A length that the WQE claims, if a wrong one.
    pub claimed: Option<u32>,
    /// PUSH.
    pub push: bool,
    /// The process's immediate: message mode only.
    pub immediate: Option<u32>,
    /// A key of the peer's that it invalidates: likewise, and not with an immediate.
    pub invalidate: Option<u32>,
    /// Address and key of a WRITE: message mode only.
    pub remote: Option<(u64, u32)>,
    /// Likewise of a READ: the SGEs are where the answer goes.
    pub source: Option<(u64, u32)>,
    /// An atomic: message mode only; the SGEs are where what stood there goes.
    pub atomic: Option<Atomic>,
    /// READs and atomics before it are complete before it begins.
    pub fence: bool,
    /// No completion if it succeeds; not of a WRITE or READ, whose completions the bench waits for.
    pub quiet: bool,
    /// A NOP.
    pub nothing: bool,
    /// A DELAY, of so many units of 64 clocks.
    pub delay: Option<u32>,
    /// A BIND.
    pub bind: Option<Bind>,
    /// What stands in the queue in its place, if a malformed one.
    pub words: Option<[u64; WQE]>,
}

impl Element {
    /// One SGE.
    pub fn plain(va: u64, len: u32) -> Self {
        Self { sges: vec![(va, len)], ..Self::default() }
    }
    /// `len` bytes inline.
    pub fn inline(len: u32) -> Self {
        Self { data: Some((0..len).map(|i| byte_at(u64::from(i) * 3)).collect()), ..Self::default() }
    }
    /// Whether it is a WRITE over bytes of another one, as the golden model has it.
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |va: u64, of: &Self| va.saturating_add(of.len().into());
        match (self.remote, other.remote) {
            (Some((va, _)), Some((before, _))) => end(before, other) > va && end(va, self) > before,
            _ => false,
        }
    }
    /// Opcode of its completion.
    pub fn opcode(&self) -> u8 {
        match (self.remote, self.source) {
            (Some(_), _) => OP_WRITE,
            (_, Some(_)) => OP_READ,
            _ if self.atomic.is_some_and(|atomic| atomic.compare.is_some()) => OP_CMP_SWAP,
            _ if self.atomic.is_some() => OP_FETCH_ADD,
            _ if self.delay.is_some() => OP_DELAY,
            _ if self.bind.is_some() => OP_BIND,
            _ if self.nothing => OP_NOP,
            _ => OP_SEND,
        }
    }
    /// It is answered with data.
    pub fn asks(&self) -> bool {
        self.source.is_some() || self.atomic.is_some()
    }
    /// Address and key at the peer.
    pub fn there(&self) -> Option<(u64, u32)> {
        self.remote.or(self.source).or_else(|| self.atomic.map(|atomic| (atomic.va, atomic.key)))
    }
    /// It has no packets.
    pub fn local(&self) -> bool {
        self.nothing || self.delay.is_some() || self.bind.is_some()
    }
    /// Bytes.
    pub fn len(&self) -> u32 {
        self.data.as_ref().map_or_else(|| self.sges.iter().map(|s| s.1).sum(), |d| d.len() as u32)
    }
    /// Pages that it lies in.
    fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.sges.iter().filter(|s| s.1 > 0).flat_map(|&(va, len)| pages(va, len.into()))
    }
    /// The bytes themselves, as they lie here, or at the peer.
    pub fn bytes(&self) -> Vec<u8> {
        if let (Some((va, key)), true) = (self.there(), self.asks()) {
            return (0..u64::from(self.len())).map(|i| byte_at(va.wrapping_add(i)) ^ key as u8).collect();
        }
        match &self.data {
            Some(data) => data.clone(),
            None => self.sges.iter().flat_map(|&(va, len)| (0..u64::from(len)).map(move |i| byte_at(va + i))).collect(),
        }
    }
    /// Fits the slot of a doorbell.
    pub fn fits_doorbell(&self) -> bool {
        self.element(0).slot().is_some()
    }
    /// As the queue has it.
    pub fn wqe(&self, id: u64) -> [u64; WQE] {
        self.words.unwrap_or_else(|| self.element(id).words())
    }
    fn element(&self, id: u64) -> Wqe {
        let (num_sge, length) = (self.sges.len() as u16, self.claimed.unwrap_or(self.len()));
        let flags = [(self.push, SEND_PUSH), (self.fence, SEND_FENCE), (self.quiet, SEND_UNSIGNALLED)];
        let flags = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).sum();
        let opcode = if self.local() { self.opcode() } else { OP_SEND };
        let length = self.delay.unwrap_or(length);
        let mut wqe = Wqe { opcode, flags, num_sge, length, wr_id: id, ..Wqe::default() };
        if let Some(Bind { key, va, len, scope }) = self.bind {
            return wqe.with_bind(key, va, len, scope);
        }
        for (to, &(va, len)) in wqe.sge.iter_mut().zip(&self.sges) {
            *to = Sge { va, len, reserved: 0 };
        }
        if let Some(data) = &self.data {
            wqe = wqe.with_inline(data).expect("the element has room");
        }
        let wqe = self.remote.map_or(wqe, |(va, key)| wqe.with_remote(va, key).expect("the element has room"));
        let wqe = self.source.map_or(wqe, |(va, key)| wqe.with_source(va, key).expect("the element has room"));
        let wqe = match self.atomic {
            Some(Atomic { va, key, operand, compare: Some(compare) }) => {
                wqe.with_compare_swap(va, key, compare, operand)
            }
            Some(Atomic { va, key, operand, compare: None }) => wqe.with_fetch_add(va, key, operand),
            None => Some(wqe),
        };
        let wqe = wqe.expect("the element has room");
        let wqe = self.invalidate.map_or(wqe, |key| wqe.with_invalidate(key).expect("the element has room"));
        self.immediate.map_or(wqe, |immediate| wqe.with_immediate(immediate).expect("the element has room"))
    }
}

/// A frame that has been given to the MAC.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Cycle.
    pub at: u64,
    /// Without iCRC.
    pub bytes: Vec<u8>,
}

struct Doorbell {
    q: u32,
    pi: u16,
    posted: u32,
    wqe: Option<[u64; WQE]>,
    rung: Rc<Cell<u64>>,
}

/// A read of a queue that is under way.
struct QueueRead {
    due: u64,
    tag: u64,
    addr: u64,
    len: u64,
    off: u64,
}

/// An acknowledgement, or a list, on its way to the card.
struct Acknowledgement {
    due: u64,
    q: u32,
    psn: u32,
    syndrome: u8,
    msn: u32,
    sack: Option<u128>,
}

/// An answer to a READ or an atomic on its way to the card.
struct Answer {
    due: u64,
    q: u32,
    data: peer::Data,
}

/// A part of an answer that is being written: the last one of it is told.
struct Write {
    due: u64,
    q: u32,
    psn: u32,
    frame: u32,
    more: bool,
    failed: bool,
}

/// A packet of an answer to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnAnswer {
    q: u32,
    psn: u32,
    position: Position,
    len: u32,
    va: u64,
}

struct Ports {
    list: BTreeMap<&'static str, Port>,
}

impl Ports {
    fn new(m: &Module) -> Self {
        const NAMES: &[&str] = &[
            "now",
            "fc_req",
            "fc.we",
            "fc.qpn",
            "fc.word",
            "fc.data",
            "fc_ack",
            "fc_rdata",
            "fe_valid",
            "fe_ready",
            "fe.code",
            "fe.qpn",
            "fe.argument",
            "fdb_valid",
            "fdb_ready",
            "fdb.qpn",
            "fdb.pi",
            "fdb.posted",
            "fdb.pushed",
            "fdb.wqe",
            "qr_valid",
            "qr_ready",
            "qr.addr",
            "qr.len",
            "qr.tag",
            "qc_valid",
            "qc_data",
            "qc.tag",
            "qc.off",
            "qc.last",
            "qc.err",
            "xa_valid",
            "xa_ready",
            "xa.give_back",
            "xa.write",
            "xa.asid",
            "xa.va",
            "xa.len",
            "xa.tag",
            "xr_valid",
            "xr_ready",
            "xr.tag",
            "xr.kind",
            "xr.status",
            "load_valid",
            "load_ready",
            "load.place",
            "load.len",
            "load.asid",
            "load.va",
            "load.tag",
            "loaded_valid",
            "loaded.tag",
            "loaded.status",
            "hw_valid",
            "hw_ready",
            "hw_addr",
            "hw_data",
            "hw_strb",
            "fs_valid",
            "fs_ready",
            "fs.place",
            "fs.len",
            "fs.tag",
            "fl_valid",
            "fl_tag",
            "fcq_valid",
            "fcq_ready",
            "fcq.cqn",
            "fcq.words",
            "ack_valid",
            "ack_ready",
            "ack_q",
            "ack.psn",
            "ack.syndrome",
            "ack.msn",
            "ack.has_sack",
            "ack.sack",
            "ans_valid",
            "ans_ready",
            "ans_q",
            "ans.psn",
            "ans.atomic",
            "ans.len",
            "ans.payload",
            "ans.frame",
            "ans_free_valid",
            "ans_free_place",
            "put_valid",
            "put_ready",
            "put_q",
            "put.psn",
            "put.payload",
            "put.frame",
            "put.len",
            "put.asid",
            "put.va",
            "put.write",
            "put.answer",
            "put.more",
            "put.reverse",
            "put_over_valid",
            "put_over_err",
            "lst_valid",
            "lst_ready",
            "lst_over",
            "lst_q",
            "lst.first_beat",
            "lst.first",
            "lst.n",
            "lst.size",
            "afr_valid",
            "afr_ready",
            "afr_q",
            "afr.psn",
            "afr.syndrome",
            "afr.msn",
            "afr.has_sack",
            "afr.sack",
            "lfr_valid",
            "lfr_ready",
            "lfr_q",
            "lfr.first_beat",
            "lfr.epoch",
            "lfr.first",
            "lfr.n",
            "lfr.sizes",
            "rsp_valid",
            "rsp_ready",
            "rsp_q",
            "rsp.begins",
            "rsp.ends",
            "rsp.psn",
            "rsp.msn",
            "rsp.len",
            "rsp.asid",
            "rsp.va",
            "rsp.tag",
            "rspd_valid",
            "rspd.tag",
            "rspd.failed",
            "ev.ack_taken",
            "ev.bad_ack",
            "ev.bad_answer",
            "ev.list_taken",
            "ev.list_again",
            "ev.refused",
            "ev.stray",
            "ev.credit",
            "ev.packet",
            "ev.again",
            "ev.held",
            "hurry",
            "swept",
            "swept_on",
            "swept_at",
        ];
        Self { list: NAMES.iter().map(|name| (*name, m.port(name))).collect() }
    }
    fn of(&self, name: &str) -> Port {
        self.list[name]
    }
}

/// The module and all that is played around it.
pub struct Bench {
    m: Module,
    p: Ports,
    width: u64,
    setup: Setup,
    rng: Rng,
    cycle: u64,
    peers: BTreeMap<u32, Peer>,
    /// Writes of configuration words, and reads of them (no value).
    config: VecDeque<(u32, Option<u32>)>,
    /// BINDs whose turn it is, and when firmware looks at them; what their rows must say, and what they say.
    binds: Vec<(u64, u32)>,
    wanted_binds: VecDeque<[u32; BIND_WORDS]>,
    /// QPs whose peer has no receive, and when firmware has them go on.
    waits: Vec<(u64, u32)>,
    bind_words: Vec<u32>,
    read: u32,
    doorbells: VecDeque<Doorbell>,
    queues: BTreeMap<u64, [u64; WQE]>,
    queue_reads: Vec<QueueRead>,
    pub memory: Ranges,
    /// Sends that are not complete use them, if memory is unmapped: so many of each page; and those of each QP and number.
    used: BTreeMap<u64, u32>,
    posted: BTreeMap<(u32, u64), Element>,
    broken_queue: Option<u32>,
    ram: Vec<u8>,
    reads: Vec<(u64, u64, u64)>,
    port_free: f64,
    mac: VecDeque<(u64, u64)>,
    mac_free: f64,
    wire: Vec<(u64, Vec<u8>)>,
    acks: Vec<Acknowledgement>,
    answers: Vec<Answer>,
    /// Frames that the card has, of answers.
    frames: BTreeMap<u32, Vec<u8>>,
    writes: VecDeque<Write>,
    lists: VecDeque<(u32, bool, u32, u32)>,
    own_acks: VecDeque<(u32, u32, u8, Option<u128>)>,
    own_lists: VecDeque<(u32, bool, u32, u32)>,
    /// Answers to READs that the receiver's half wants to send; those that are being read, by their tags; those that were told
    /// to be read, in that order, and whether they could not be.
    own_answers: VecDeque<OwnAnswer>,
    answering: BTreeMap<u64, OwnAnswer>,
    tag_shown: u64,
    answered: Vec<(OwnAnswer, bool)>,
    other: Vec<Frame>,
    events: Vec<(u32, u32, u32)>,
    /// Firmware takes no event.
    pub deaf: bool,
    /// The wire takes no frame.
    pub stuck: bool,
    /// Time-outs that were told, by QP.
    pub time_outs: BTreeMap<u32, u32>,
    /// Pulses of the counters for acknowledgements that were taken, and that cannot be.
    pub acks_counted: [u32; 2],
    /// And for answers that cannot be.
    pub bad_answers: u32,
    /// Likewise for lists: taken, come again, refused.
    pub lists_counted: [u32; 3],
    /// And for packets, and those of them that were sent before.
    pub packets_counted: [u32; 2],
    /// Credits of lists; how often a piece had to wait for one.
    pub credits_counted: [u32; 2],
    /// And for the host's answers that were thrown away.
    pub strays_counted: u32,
}

impl Bench {
    pub fn new(width: u32, setup: Setup, seed: u64) -> Self {
        let mut m = Module::with_seed("berth_fp_tx", width, seed);
        let p = Ports::new(&m);
        m.reset();
        let mut memory = Ranges::new(seed, setup.service, 0);
        (memory.lookup, memory.warm) = (4, 1.0 - setup.missing);
        Self {
            m,
            p,
            width: u64::from(width),
            setup,
            rng: Rng(seed),
            cycle: 0,
            peers: BTreeMap::new(),
            config: VecDeque::new(),
            binds: Vec::new(),
            wanted_binds: VecDeque::new(),
            waits: Vec::new(),
            bind_words: Vec::new(),
            read: 0,
            doorbells: VecDeque::new(),
            queues: BTreeMap::new(),
            queue_reads: Vec::new(),
            memory,
            used: BTreeMap::new(),
            posted: BTreeMap::new(),
            broken_queue: None,
            ram: vec![0xee; 1 << 18],
            reads: Vec::new(),
            port_free: 0.0,
            mac: VecDeque::new(),
            mac_free: 0.0,
            wire: Vec::new(),
            acks: Vec::new(),
            answers: Vec::new(),
            frames: BTreeMap::new(),
            writes: VecDeque::new(),
            lists: VecDeque::new(),
            own_acks: VecDeque::new(),
            own_lists: VecDeque::new(),
            own_answers: VecDeque::new(),
            answering: BTreeMap::new(),
            tag_shown: 0,
            answered: Vec::new(),
            other: Vec::new(),
            events: Vec::new(),
            deaf: false,
            stuck: false,
            time_outs: BTreeMap::new(),
            acks_counted: [0; 2],
            bad_answers: 0,
            lists_counted: [0; 3],
            packets_counted: [0; 2],
            credits_counted: [0; 2],
            strays_counted: 0,
        }
    }

    // ---- what tests do -----------------------------------------------------------------

    /// Configures and initialises a QP.
    pub fn connect(&mut self, q: u32, settings: Settings) {
        let template = peer::template(q);
        let mut words: Vec<(u32, u32)> = (0..14).map(|i| (i, template[i as usize])).collect();
        let base = QUEUES + u64::from(q) * (128 << LOG2_DEPTH);
        words.extend([
            (send::BASE, base as u32),
            (send::BASE + 1, (base >> 32) as u32),
            (send::QUEUE, send::Queue { cqn: q & 0x3f, asid: 5, log2_depth: LOG2_DEPTH }.word()),
            (send::MODE, settings.word()),
            (send::TIMEOUT, settings.timeout),
            (send::BLOCKS, send::Blocks { ahead: settings.ahead, log2_block: settings.log2_block }.word()),
            (send::PSN, settings.first_psn),
            (send::QKEY, peer::QKEY),
            (send::COMMAND, send::CMD_START),
        ]);
        for (word, value) in words {
            self.write(q, word, value);
        }
        let reads = settings.message && settings.reads > 0;
        self.binds.retain(|(_, other)| *other != q);
        self.peers.insert(q, Peer::new(q, settings));
        // What goes again overtakes what has not left for the first time; a READ's packet needs no memory for that.
        self.peers.get_mut(&q).expect("just made").gaps =
            self.setup.read_failures > 0.0 || (self.setup.loss > 0.0 && reads);
        self.settle_config();
    }

    /// Posts sends: with one doorbell, or each with a doorbell that brings it. Gives the cycle in which the last doorbell
    /// is taken, once it is.
    pub fn post(&mut self, q: u32, elements: &[Element], with_wqe: bool) -> Rc<Cell<u64>> {
        let rung = Rc::new(Cell::new(0));
        let peer = self.peers.get_mut(&q).expect("connected");
        for (i, element) in elements.iter().enumerate() {
            let number = peer.posted(element);
            if self.setup.unmaps {
                for page in element.pages() {
                    *self.used.entry(page).or_default() += 1;
                    self.memory.map(ASID, page * PAGE, PAGE);
                }
                self.posted.insert((q, number), element.clone());
            }
            let wqe = element.wqe(u64::from(q) << 32 | number);
            let slot = number % (1 << LOG2_DEPTH);
            self.queues.insert(QUEUES + (u64::from(q) << (LOG2_DEPTH + 7)) + slot * 128, wqe);
            let with_wqe = with_wqe && element.fits_doorbell();
            if with_wqe || i + 1 == elements.len() {
                self.doorbells.push_back(Doorbell {
                    q,
                    pi: (number + 1) as u16,
                    posted: peer.bytes_posted(),
                    wqe: with_wqe.then_some(wqe),
                    rung: rung.clone(),
                });
            }
        }
        rung
    }

    /// A list of credits.
    pub fn credits(&mut self, q: u32, sizes: &[u32]) {
        let peer = self.peers.get_mut(&q).expect("connected");
        let first = peer.grant(sizes);
        self.lists.push_back((q, true, first, sizes.len() as u32));
        self.lists.extend(sizes.iter().map(|size| (q, false, *size, 0)));
    }

    /// A list that the peer's model knows nothing of.
    pub fn list(&mut self, q: u32, first: u32, sizes: &[u32]) {
        self.lists.push_back((q, true, first, sizes.len() as u32));
        self.lists.extend(sizes.iter().map(|size| (q, false, *size, 0)));
    }

    /// Credits of `size` bytes from now on, as many as the rules allow.
    pub fn supply(&mut self, q: u32, size: u32) {
        self.peers.get_mut(&q).expect("connected").supply = Some((size, size));
    }

    /// Pages of a range are missing when they are asked for, once.
    pub fn evict(&mut self, va: u64, len: u64) {
        self.memory.evict(ASID, va, len);
    }

    /// The host answers a request, of block `block` of a QP, that was not made or is answered. False if it is made and not answered.
    pub fn stray(&mut self, q: u32, block: u32, status: u8) -> bool {
        self.memory.stray(self.cycle, 0, (q << 6 | block) as u16, status)
    }

    /// The peer says nothing by itself.
    pub fn silent(&mut self, q: u32) {
        self.peers.get_mut(&q).expect("connected").silent = true;
    }

    /// An acknowledgement comes.
    pub fn answer(&mut self, q: u32, psn: u32, syndrome: u8, sack: Option<u128>) {
        self.answer_counted(q, psn, syndrome, peer::MSN, sack);
    }

    /// Likewise, with a number of messages that have come.
    pub fn answer_counted(&mut self, q: u32, psn: u32, syndrome: u8, msn: u32, sack: Option<u128>) {
        self.acks.push(Acknowledgement { due: self.cycle, q, psn, syndrome, msn, sack });
    }

    /// An answer to a READ comes, whatever is in it.
    pub fn answer_read(&mut self, q: u32, psn: u32, bytes: &[u8]) {
        let data = peer::Data { psn, atomic: false, bytes: bytes.to_vec() };
        self.answers.push(Answer { due: self.cycle, q, data });
    }

    /// Likewise to an atomic.
    pub fn answer_atomic(&mut self, q: u32, psn: u32, original: u64) {
        let data = peer::Data { psn, atomic: true, bytes: original.to_be_bytes().to_vec() };
        self.answers.push(Answer { due: self.cycle, q, data });
    }

    /// The peer answers the packet `psn` of a READ, or an atomic.
    pub fn answer_asked(&mut self, q: u32, psn: u32) {
        let data = self.peers[&q].data_for(psn);
        self.answers.push(Answer { due: self.cycle, q, data });
    }

    /// What the peer has for the packet `psn` of a READ or an atomic, as it stands in memory.
    pub fn bytes_for(&self, q: u32, psn: u32) -> Vec<u8> {
        self.peers[&q].bytes_for(psn)
    }

    pub fn command(&mut self, q: u32, value: u32) {
        self.write(q, send::COMMAND, value);
    }

    /// Writes a configuration word, some time.
    pub fn write(&mut self, q: u32, word: u32, value: u32) {
        self.config.push_back((q << 6 | word, Some(value)));
    }

    /// Until all writes are acknowledged.
    pub fn settle_config(&mut self) {
        while !self.config.is_empty() {
            self.step();
        }
    }

    /// Reads a configuration word.
    pub fn read(&mut self, q: u32, word: u32) -> u32 {
        self.config.push_back((q << 6 | word, None));
        self.settle_config();
        self.read
    }

    /// What QP `q` holds.
    pub fn held(&mut self, q: u32) -> send::Held {
        send::Held::from_word(self.read(q, send::HELD))
    }

    /// Ends QP `q` with `WC_REMOTE_ERROR`, or another status.
    pub fn end(&mut self, q: u32, status: u8) {
        self.command(q, send::Command { opcode: send::CMD_END, argument: status.into() }.word());
    }

    /// Pieces of QP `q` that are not acknowledged, and credits that are not used.
    pub fn open(&mut self, q: u32) -> (u32, u32) {
        let counts = send::Counts::from_word(self.read(q, send::COUNTS));
        (counts.unacked, counts.credits)
    }

    /// A list of credits that comes by way of the core.
    pub fn credits_by_core(&mut self, q: u32, sizes: &[u32]) {
        let first = self.peers.get_mut(&q).expect("connected").grant(sizes);
        self.write_list(q, first, sizes.len() as u32, sizes);
    }

    /// The core writes a list, whatever it says.
    pub fn write_list(&mut self, q: u32, first: u32, n: u32, sizes: &[u32]) {
        self.write(q, send::LIST_FIRST, first);
        self.write(q, send::LIST_BEGIN, n);
        for size in sizes {
            self.write(q, send::LIST_SIZE, *size);
        }
    }

    /// Gives up `n` unused credits: the number of the first of them, which is the golden model's.
    pub fn give_up(&mut self, q: u32, n: u32) -> u32 {
        self.command(q, send::Command { opcode: send::CMD_GIVE_UP, argument: n }.word());
        self.settle_config();
        let first = self.read(q, send::KEPT);
        assert_eq!(first, self.peers.get_mut(&q).expect("connected").give_up(n));
        first
    }

    /// Pages of a range cannot be had any more.
    pub fn deny(&mut self, va: u64, len: u64) {
        pages(va, len).for_each(|page| self.memory.refuse(ASID, page, DENIED));
    }

    /// Memory is withdrawn: its pages go, payload reads fail, and all QPs are told to let go of it. When they say that they
    /// have, nothing of it is held.
    pub fn revoke(&mut self, va: u64, len: u64) {
        let gone = pages(va, len);
        let (va, len) = (gone.start * PAGE, (gone.end - gone.start) * PAGE);
        self.memory.revoke(ASID, va, len);
        let qps: Vec<u32> = self.peers.keys().copied().collect();
        for &q in &qps {
            self.peers.get_mut(&q).expect("connected").withdrawn();
            for (i, word) in
                [va as u32, (va >> 32) as u32, (va + len) as u32, ((va + len) >> 32) as u32].iter().enumerate()
            {
                self.write(q, send::RANGE + i as u32, *word);
            }
            self.command(q, send::CMD_REVOKE);
        }
        let end = self.cycle + 100_000;
        while qps.iter().any(|&q| self.held(q).revoking != 0) {
            assert!(self.cycle < end, "the memory is not let go of");
        }
        assert_eq!(self.memory.stale(), 0, "held of {va:#x} + {len:#x} although all was let go of");
    }

    /// A doorbell with any index.
    pub fn ring(&mut self, q: u32, pi: u16) {
        let posted = self.peers[&q].bytes_posted();
        self.doorbells.push_back(Doorbell { q, pi, posted, wqe: None, rung: Rc::default() });
    }

    /// Reads of this QP's queue fail from now on.
    pub fn break_queue(&mut self, q: u32) {
        self.broken_queue = Some(q);
    }

    /// Time, in units of time-outs.
    pub const fn time(&self) -> u32 {
        (self.cycle >> 6) as u32
    }

    /// There is an event that firmware has not taken.
    pub fn is_told(&self) -> bool {
        self.is("fe_valid")
    }

    /// Looks at the time-outs of all rows: those that run, with their ends.
    pub fn timers(&mut self, rows: usize) -> Vec<u32> {
        self.set("hurry", true);
        let (mut looks, mut ends) = (0, Vec::new());
        for n in 0.. {
            assert!(n < 100 * rows, "the timers are not looked at");
            self.step();
            if self.is("swept") {
                looks += 1;
                if self.is("swept_on") {
                    ends.push(self.get("swept_at") as u32);
                }
                if looks == rows {
                    break;
                }
            }
        }
        self.set("hurry", false);
        ends
    }

    /// Resets the card; what surrounds it forgets what was under way.
    pub fn reset(&mut self) {
        self.m.reset();
        let (peers, config, doorbells) = (&mut self.peers, &mut self.config, &mut self.doorbells);
        peers.clear();
        config.clear();
        doorbells.clear();
        self.queue_reads.clear();
        self.reads.clear();
        self.mac.clear();
        self.wire.clear();
        self.acks.clear();
        self.answers.clear();
        self.frames.clear();
        self.writes.clear();
        self.lists.clear();
        self.memory.reset();
    }

    pub fn run(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.step();
        }
    }

    /// Until everything posted is complete and no memory is held; a hang if nothing arrives or completes for `limit` cycles.
    pub fn finish(&mut self, limit: u64) {
        let (mut end, mut so_far) = (self.cycle + limit, 0);
        let over = |bench: &Self| {
            bench.peers.values().all(Peer::complete) && bench.memory.ranges() == 0 && bench.frames.is_empty()
        };
        while !over(self) {
            self.step();
            if self.cycle < end {
                continue;
            }
            let now = self.peers.values().map(Peer::progress).sum();
            if now == so_far {
                let left: Vec<_> = self.peers.values().map(Peer::describe).collect();
                let stuck: Vec<_> = [
                    "fdb", "qr", "qc", "xa", "xr", "load", "loaded", "hw", "fs", "fl", "fcq", "ack", "ans", "put",
                    "lst", "fe",
                ]
                .iter()
                .filter(|port| self.is(&format!("{port}_valid")))
                .collect();
                eprintln!(
                    "shown: {stuck:?}; under way: {} queue reads, {} answers, {} reads, {} in the MAC, {} ACKs, {} lists",
                    self.queue_reads.len(),
                    self.memory.to_come(),
                    self.reads.len(),
                    self.mac.len(),
                    self.acks.len(),
                    self.lists.len()
                );
                panic!(
                    "nothing for {limit} cycles: {left:#?}; {} ranges held; events {:x?}",
                    self.memory.ranges(),
                    self.events
                );
            }
            (end, so_far) = (self.cycle + limit, now);
        }
        for peer in self.peers.values() {
            peer.check_end();
        }
        assert!(self.events.is_empty(), "events for firmware: {:x?}", self.events);
    }

    pub fn statuses(&self, q: u32) -> Vec<u8> {
        self.peers[&q].statuses.clone()
    }

    pub fn frames_of(&self, q: u32) -> &[Frame] {
        &self.peers[&q].frames
    }

    /// Ranges of memory that are held.
    pub fn ranges_held(&self) -> usize {
        self.memory.ranges()
    }

    /// Frames that belong to no QP's data.
    pub fn frames_of_nobody(&self) -> &[Frame] {
        &self.other
    }

    /// Events for firmware: code, QP, argument.
    pub fn take_events(&mut self) -> Vec<(u32, u32, u32)> {
        std::mem::take(&mut self.events)
    }

    /// ACKs that the receiver's half wants to send.
    pub fn check_own_acknowledgements(&mut self, q: u32) {
        let sack = 0x7123_4567_89ab_cdef_0011_2233_4455_6677_u128;
        self.own_acks.extend([(q, 0x12_3456, 0x1f, None), (q, 0xff_ffff, 0x60, None), (q, 5, 0x1f, Some(sack))]);
        self.run(300);
        let frames = std::mem::take(&mut self.other);
        let expected = [
            peer::acknowledgement(q, 0x12_3456, 0x1f, None),
            peer::acknowledgement(q, 0xff_ffff, 0x60, None),
            peer::acknowledgement(q, 5, 0x1f, Some(sack)),
        ];
        assert_eq!(frames.iter().map(|f| f.bytes.clone()).collect::<Vec<_>>(), expected);
    }

    /// Answers to READs leave beside whatever else is sent: those of a QP in their order, all of them that can be read, and the
    /// receiver's half hears of each when it is read.
    pub fn check_own_answers(&mut self, rng: &mut Rng, qs: &[u32], count: usize) {
        let mut psns: BTreeMap<u32, u32> = BTreeMap::new();
        let answers: Vec<_> = (0..count)
            .map(|n| {
                let q = qs[rng.below(qs.len() as u64) as usize];
                let psn = psns.entry(q).or_insert(0xff_fff0);
                *psn = (*psn + 1) & 0xff_ffff;
                let position =
                    [Position::First, Position::Middle, Position::Last, Position::Only][rng.below(4) as usize];
                let most = 1 << rng.between(8, 12);
                let len = if position == Position::Only && rng.chance(0.1) { 0 } else { rng.between(1, most) as u32 };
                OwnAnswer { q, psn: *psn, position, len, va: ANSWERS + n as u64 * 8192 + rng.below(4096) }
            })
            .collect();
        self.own_answers.extend(&answers);
        let mut cycles = 0;
        while self.answered.len() < count {
            self.step();
            cycles += 1;
            assert!(cycles < 200_000, "{} of {count} answers are read", self.answered.len());
        }
        self.run(20_000);
        let frames = core::mem::take(&mut self.other);
        let answered = core::mem::take(&mut self.answered);
        for &q in qs {
            let sent = answers.iter().filter(|a| a.q == q && !answered.contains(&(**a, true)));
            let expected: Vec<_> = sent
                .map(|a| {
                    let body = ResponseBody::Read { position: a.position, len: a.len };
                    let payload: Vec<u8> = (a.va..a.va + u64::from(a.len)).map(byte_at).collect();
                    peer::answer(q, &ResponsePacket { psn: a.psn, msn: peer::MSN, body }, &payload)
                })
                .collect();
            let there: Vec<_> = frames.iter().filter(|f| peer::destination(&f.bytes) == Some(q)).collect();
            assert_eq!(there.len(), expected.len(), "QP {q}");
            there.iter().zip(&expected).for_each(|(frame, expected)| assert_eq!(frame.bytes, *expected, "QP {q}"));
        }
    }

    /// Lists that the receiver's half wants to send.
    pub fn check_own_lists(&mut self, carrier: u32, q: u32) {
        for n in [1, 2, 31, 32, 33, 60, 61, 62, 63, 64] {
            let sizes: Vec<u32> = (0..n).map(|i| 0x0102_0304 * (i + 1)).collect();
            self.own_lists.push_back((q, true, 0xdead_0000 + n, n));
            self.own_lists.extend(sizes.iter().map(|size| (q, false, *size, 0)));
            self.run(300);
            let frames = std::mem::take(&mut self.other);
            assert_eq!(frames.len(), 1);
            assert_eq!(frames[0].bytes, peer::list(carrier, q, peer::EPOCH, 0xdead_0000 + n, &sizes));
        }
    }

    /// A few QPs with random settings, sends, credits; `selective`: choices of the peer's kind.
    pub fn random(rng: &mut Rng, width: u32, setup: Setup, selective: &[bool]) -> Self {
        let faulty = setup.loss > 0.0 || setup.read_failures > 0.0 || setup.late > 0;
        let ack_every = rng.between(1, 6) as u32;
        let round_trip = rng.between(20, 2_000);
        let mut bench = Self::new(width, Setup { ack_every, round_trip, ..setup }, rng.draw());
        let qps = rng.between(1, 6) as u32;
        for i in 0..qps {
            let q = i * 9 + rng.below(9) as u32;
            let selective = selective[rng.below(selective.len() as u64) as usize];
            let foreign = !selective && rng.chance(0.5);
            let message = foreign || rng.chance(0.3);
            let log2_mtu = rng.between(8, 12) as u32;
            let reads = if selective || foreign { rng.below(9) as u32 } else { 0 };
            bench.connect(
                q,
                Settings {
                    message,
                    reads,
                    log2_mtu,
                    selective,
                    foreign,
                    window: rng.between(1, 255) as u32,
                    ahead: rng.between(1, 32) as u32,
                    log2_block: rng.between(12, 16) as u32,
                    first_psn: (rng.below(400) as u32).wrapping_sub(200) & 0xff_ffff,
                    timeout: if faulty { 300 } else { 0 },
                    ..Settings::default()
                },
            );
            let (low, high) =
                if message { (6_000, 20_000) } else { (1, 1 << rng.between(if faulty { 9 } else { 4 }, 15)) };
            let peer = bench.peers.get_mut(&q).expect("just made");
            match foreign {
                true => peer.receives = rng.chance(0.8).then(|| peer::Receives::new(rng.draw())),
                false => peer.supply = Some((low, high)),
            }
            let mut elements: Vec<_> =
                (0..rng.between(1, 40)).map(|_| random_element(rng, message, reads > 0)).collect();
            // Something says that all is over.
            elements.last_mut().expect("one").quiet = false;
            for group in elements.chunks(rng.between(1, 7) as usize) {
                bench.post(q, group, rng.chance(0.5));
                bench.run(rng.below(60));
            }
        }
        bench
    }

    /// One QP whose peer answers at random, a step at a time; after each answer the same packets go again as from the
    /// golden model's requester.
    pub fn follow_golden_model(&mut self, rng: &mut Rng) {
        let q = rng.below(64) as u32;
        let selective = rng.chance(0.6);
        let foreign = !selective && rng.chance(0.6);
        let message = foreign || (selective && rng.chance(0.5));
        let settings = Settings {
            selective,
            foreign,
            message,
            reads: rng.between(1, 16) as u32,
            log2_mtu: 8,
            first_psn: (rng.below(100) as u32).wrapping_sub(50) & 0xff_ffff,
            reorder: rng.between(1, 4) as u32,
            window: 255,
            ..Settings::default()
        };
        self.connect(q, settings.clone());
        self.silent(q);
        // No more than the window has: new ones may go while memory of lost ones is asked for.
        // Memory of a READ is held until it is answered, and the card has so many blocks at a time.
        let (most, len): (u64, u32) = if message || rng.chance(0.7) { (60, 700) } else { (248, 2000) };
        let packets = rng.between(2, most) as u32;
        let elements: Vec<_> = (0..packets.div_ceil(len.div_ceil(256)))
            .map(|_| {
                let at = 0x1000 + rng.below(9999);
                if message && rng.chance(0.15) {
                    return Element { atomic: Some(Atomic::random(rng)), ..Element::plain(at, ATOMIC_BYTES) };
                }
                let source = (message && rng.chance(0.5)).then(|| (rng.draw(), 7));
                let remote = (foreign && source.is_none() && rng.chance(0.4)).then(|| (rng.draw(), 7));
                let immediate = (foreign && source.is_none() && rng.chance(0.3)).then(|| rng.draw() as u32);
                Element { source, remote, immediate, ..Element::plain(at, len) }
            })
            .collect();
        if !foreign {
            self.credits(q, &vec![len; elements.len()]);
        }
        self.post(q, &elements, false);
        let mut model = peer::requester(&settings);
        for (element, i) in elements.iter().zip(0..) {
            let op = match element.atomic {
                Some(atomic) => atomic.op(),
                None if element.source.is_some() => Op::Read,
                None if element.remote.is_some() => Op::Write,
                None => Op::Send,
            };
            let imm = element.immediate.map_or(Immediate::None, Immediate::Value);
            model.post(Message { op, imm, ..peer::message(i, element.len(), i) }).expect("room");
        }
        let mut now = 0;
        let (mut expected, mut begun): (Vec<u32>, u32) = (Vec::new(), 0);
        loop {
            while let Some(sent) = model.transmit(now) {
                expected.push(sent.packet.psn);
                begun += u32::from(!sent.again && sent.packet.position.begins());
                now += 1;
            }
            // quiet when all that is expected has come, and for a while nothing more
            let mut waited = 0;
            while self.frames_of(q).len() < expected.len() && waited < 60_000 {
                self.step();
                waited += 1;
            }
            self.run(600);
            let sent: Vec<u32> = self.frames_of(q).iter().map(|f| peer::psn_of(&f.bytes)).collect();
            assert_eq!(sent, expected, "QP {q}: {settings:?}");
            if !model.busy() {
                break;
            }
            // An answer may come for a packet that is acknowledged, and overtake others.
            let flight = model.window().flight();
            let near = rng.chance(0.5);
            let n = rng.below(if near { flight.min(3) } else { flight }.into()) as u32;
            let psn = (model.window().una().get() + n) & 0xff_ffff;
            let data = self.peers[&q].data_for(psn);
            if message && rng.chance(0.6) {
                if !data.bytes.is_empty() {
                    model.response(now, &data.response());
                    self.answers.push(Answer { due: self.cycle, q, data });
                }
            } else {
                let (psn, mut syndrome, sack) = peer::random_answer(rng, &model, settings.selective);
                let mut msn = peer::MSN;
                if foreign && syndrome == 0x1f && rng.chance(0.9) {
                    // A few more than have begun, or fewer.
                    let most = if rng.chance(0.1) { 70 } else { 6 };
                    let receives = rng.below(most) as u32;
                    syndrome = credit_code(receives);
                    msn = (begun + rng.below(4) as u32).wrapping_sub(rng.below(8) as u32) & 0xff_ffff;
                }
                // What lies before it is acknowledged, so that only that and what is behind it goes again.
                let before = psn.wrapping_sub(model.window().una().get()) & 0xff_ffff;
                let asks = |n| self.peers[&q].asks((model.window().una().get() + n) & 0xff_ffff);
                if foreign && syndrome == 0x60 && rng.chance(0.5) && !(0..before).any(asks) {
                    syndrome = peer::RNR;
                }
                self.answer_counted(q, psn, syndrome, msn, sack);
                model.response(now, &ResponsePacket { msn, ..peer::response(psn, syndrome, sack) });
                if let (Some(_), Some(until)) = (model.waiting(), model.deadline()) {
                    self.run(600);
                    let nak = Nak { syndrome: syndrome.into(), psn };
                    assert_eq!(self.take_events(), [(EVENT_RNR, q, nak.word())]);
                    assert!(model.transmit(now).is_none() && !model.tick(until));
                    self.command(q, send::CMD_GO_ON);
                }
            }
            while model.complete().is_some() {}
        }
    }

    // ---- one cycle -----------------------------------------------------------------------

    fn go(&mut self) -> bool {
        self.setup.stalls == 0.0 || !self.rng.chance(self.setup.stalls)
    }

    fn set(&mut self, name: &str, value: impl Into<u64>) {
        let port = self.p.of(name);
        self.m.set(port, value);
    }

    fn get(&self, name: &str) -> u64 {
        self.m.get(self.p.of(name))
    }

    fn is(&self, name: &str) -> bool {
        self.get(name) != 0
    }

    fn set_wide(&mut self, name: &str, words: &[u64]) {
        let port = self.p.of(name);
        self.m.set_wide(port, words);
    }

    /// Plays one cycle.
    pub fn step(&mut self) {
        self.supply_credits();
        self.deliver_wire();
        self.set("now", self.cycle >> 6 & 0xffff_ffff);
        self.do_binds();
        self.do_waits();
        self.offer_config_and_doorbell();
        let beat = self.offer_queue_beat();
        let answer = self.offer_answer();
        let read = self.offer_read_done();
        let left = self.offer_left();
        let ack = self.offer_acknowledgement();
        let data = self.offer_answer_to_read();
        self.offer_placed();
        self.offer_lists();
        for ready in ["put_ready", "fe_ready", "qr_ready", "xa_ready", "load_ready", "hw_ready", "fcq_ready"] {
            let go = self.go();
            self.set(ready, go && !(self.deaf && ready == "fe_ready"));
        }
        let mac = self.mac.len() < 4 && !self.stuck && self.go();
        self.set("fs_ready", mac);
        self.m.settle();

        if self.is("fc_ack") {
            match self.config.pop_front() {
                Some((addr, None)) => {
                    self.read = self.get("fc_rdata") as u32;
                    if (send::BIND..send::BIND + BIND_WORDS as u32).contains(&(addr & 63)) {
                        self.bind_words.push(self.read);
                    }
                }
                Some((addr, Some(send::CMD_BOUND))) if addr & 63 == send::COMMAND => {
                    let wanted = self.wanted_binds.pop_front().expect("a BIND");
                    assert_eq!(std::mem::take(&mut self.bind_words), wanted, "a BIND of QP {}", addr >> 6);
                }
                _ => (),
            }
        }
        if self.is("fdb_valid") && self.is("fdb_ready") {
            let doorbell = self.doorbells.pop_front().expect("one is shown");
            doorbell.rung.set(self.cycle);
            self.peers.get_mut(&doorbell.q).expect("connected").rung(doorbell.posted);
        }
        if beat {
            self.queue_beat_taken();
        }
        if let Some(answer) = answer
            && self.is("xr_ready")
        {
            self.memory.taken(answer);
        }
        if let Some(i) = read {
            self.reads.remove(i);
        }
        if left {
            self.mac.pop_front();
        }
        if let Some(i) = ack
            && self.is("ack_ready")
        {
            self.acks.remove(i);
        }
        if let Some((i, frame)) = data
            && self.is("ans_ready")
        {
            let Answer { q, data, .. } = self.answers.remove(i);
            self.peers.get_mut(&q).expect("connected").came(data.psn, &data.bytes);
            self.frames.insert(frame, data.bytes);
        }
        self.take_writes();
        if self.is("lst_valid") && self.is("lst_ready") {
            let begin = self.lists.pop_front().is_some_and(|beat| beat.1);
            while !begin && self.is("lst_over") && self.lists.front().is_some_and(|next| !next.1) {
                self.lists.pop_front();
            }
        }
        if self.is("afr_valid") && self.is("afr_ready") {
            self.own_acks.pop_front();
        }
        if self.is("lfr_valid") && self.is("lfr_ready") {
            let begin = self.own_lists.pop_front().is_some_and(|beat| beat.1);
            if !begin && self.own_lists.front().is_some_and(|next| !next.1) {
                self.own_lists.pop_front();
            }
        }
        if self.is("rspd_valid") {
            let (tag, failed) = (self.get("rspd.tag"), self.is("rspd.failed"));
            let answer = self.answering.remove(&tag).expect("it is being read");
            self.answered.push((answer, failed));
        }
        if self.is("rsp_valid") && self.is("rsp_ready") {
            let (tag, answer) = (self.tag_shown, self.own_answers.pop_front().expect("it is shown"));
            self.answering.insert(tag, answer);
        }
        self.take_outputs();
        for (count, name) in self.acks_counted.iter_mut().zip(["ev.ack_taken", "ev.bad_ack"]) {
            *count += u32::from(self.m.is(self.p.of(name)));
        }
        self.bad_answers += u32::from(self.is("ev.bad_answer"));
        for (count, name) in self.lists_counted.iter_mut().zip(["ev.list_taken", "ev.list_again", "ev.refused"]) {
            *count += u32::from(self.m.is(self.p.of(name)));
        }
        for (count, name) in self.credits_counted.iter_mut().zip(["ev.credit", "ev.held"]) {
            *count += u32::from(self.m.is(self.p.of(name)));
        }
        for (count, name) in self.packets_counted.iter_mut().zip(["ev.packet", "ev.again"]) {
            *count += u32::from(self.m.is(self.p.of(name)));
        }
        self.strays_counted += u32::from(self.is("ev.stray"));
        self.m.edge();
        self.cycle += 1;
    }

    fn supply_credits(&mut self) {
        let mut lists = Vec::new();
        for (q, peer) in &mut self.peers {
            if let Some(sizes) = peer.next_list(&mut self.rng) {
                lists.push((*q, sizes));
            }
        }
        for (q, sizes) in lists {
            self.credits(q, &sizes);
        }
    }

    /// Firmware has QPs go on whose peer had no receive.
    fn do_waits(&mut self) {
        let now = self.cycle;
        while let Some(i) = self.waits.iter().position(|(due, _)| *due <= now) {
            let (_, q) = self.waits.swap_remove(i);
            self.command(q, send::CMD_GO_ON);
        }
    }

    /// Firmware reads what BINDs say, and says that they are done.
    fn do_binds(&mut self) {
        let now = self.cycle;
        while let Some(i) = self.binds.iter().position(|(due, _)| *due <= now) {
            let (_, q) = self.binds.swap_remove(i);
            let Bind { key, va, len, scope } = self.peers.get_mut(&q).expect("connected").next_bind();
            let [low, high] = [|word: u64| word as u32, |word: u64| (word >> 32) as u32];
            let scope = send::Bind { waits: 1, ..scope };
            self.wanted_binds.push_back([scope.word(), key, low(va), high(va), low(len), high(len)]);
            (send::BIND..).take(BIND_WORDS).for_each(|word| self.config.push_back((q << 6 | word, None)));
            self.command(q, send::CMD_BOUND);
        }
    }

    fn offer_config_and_doorbell(&mut self) {
        let config = self.config.front().copied();
        let acked = self.is("fc_ack");
        self.set("fc_req", config.is_some() && !acked);
        if let Some((addr, value)) = config {
            self.set("fc.we", value.is_some());
            self.set("fc.qpn", addr >> 6);
            self.set("fc.word", addr & 63);
            self.set("fc.data", value.unwrap_or(0));
        }
        // A doorbell that is shown stays.
        let shown = self.is("fdb_valid") && !self.doorbells.is_empty();
        let go = shown || self.go();
        let bell = self.doorbells.front().filter(|_| go);
        let shows = bell.map(|b| (b.q, b.pi, b.posted, b.wqe));
        self.set("fdb_valid", shows.is_some());
        if let Some((q, pi, posted, wqe)) = shows {
            self.set("fdb.qpn", q);
            self.set("fdb.pi", pi);
            self.set("fdb.posted", posted);
            self.set("fdb.pushed", wqe.is_some());
            self.set_wide("fdb.wqe", &wqe.unwrap_or_default()[..8]);
        }
    }

    fn offer_queue_beat(&mut self) -> bool {
        let due = self.queue_reads.iter().position(|r| r.off > 0).or_else(|| {
            let now = self.cycle;
            self.queue_reads.iter().position(|r| r.due <= now)
        });
        let due = due.filter(|_| self.go());
        self.set("qc_valid", due.is_some());
        let Some(i) = due else { return false };
        self.queue_reads.swap(0, i);
        let bytes = self.width / 4;
        let read = &self.queue_reads[0];
        let mut words = Vec::new();
        for at in (read.addr + read.off..read.addr + read.off + bytes).step_by(8) {
            words.push(self.queues.get(&(at & !127)).map_or(0, |w| w[(at & 127) as usize / 8]));
        }
        let (tag, off, last) = (read.tag, read.off, read.off + bytes >= read.len);
        self.set_wide("qc_data", &words);
        self.set("qc.tag", tag);
        self.set("qc.off", off);
        self.set("qc.last", last);
        let owner = (self.queue_reads[0].addr - QUEUES) >> (LOG2_DEPTH + 7);
        self.set("qc.err", self.broken_queue == Some(owner as u32));
        true
    }

    fn queue_beat_taken(&mut self) {
        let read = &mut self.queue_reads[0];
        read.off += self.width / 4;
        if read.off >= read.len {
            self.queue_reads.remove(0);
        }
    }

    fn offer_answer(&mut self) -> Option<Reply> {
        let reply = self.memory.reply(self.cycle, 0).filter(|_| self.go());
        self.set("xr_valid", reply.is_some());
        if let Some(reply) = reply {
            self.set("xr.tag", reply.tag);
            self.set("xr.kind", reply.kind);
            self.set("xr.status", reply.status);
        }
        reply
    }

    fn offer_read_done(&mut self) -> Option<usize> {
        let now = self.cycle;
        let i = self.reads.iter().position(|r| r.0 <= now).filter(|_| self.go());
        self.set("loaded_valid", i.is_some());
        if let Some((_, tag, status)) = i.map(|i| self.reads[i]) {
            self.set("loaded.tag", tag);
            self.set("loaded.status", status);
        }
        i
    }

    fn offer_left(&mut self) -> bool {
        let left = self.mac.front().copied().filter(|&(due, _)| due <= self.cycle);
        self.set("fl_valid", left.is_some());
        if let Some((_, tag)) = left {
            self.set("fl_tag", tag);
        }
        left.is_some()
    }

    fn offer_acknowledgement(&mut self) -> Option<usize> {
        let now = self.cycle;
        let i = self.acks.iter().position(|a| a.due <= now).filter(|_| self.go());
        self.set("ack_valid", i.is_some());
        if let Some(i) = i {
            let Acknowledgement { q, psn, syndrome, msn, sack, .. } = self.acks[i];
            self.set("ack.msn", msn);
            self.set("ack_q", q);
            self.set("ack.psn", psn);
            self.set("ack.syndrome", syndrome);
            self.set("ack.has_sack", sack.is_some());
            self.set_wide("ack.sack", &[sack.unwrap_or(0) as u64, (sack.unwrap_or(0) >> 64) as u64]);
        }
        i
    }

    /// An answer comes in a frame that is free.
    fn offer_answer_to_read(&mut self) -> Option<(usize, u32)> {
        let now = self.cycle;
        let free = (0..SLOTS).find(|frame| !self.frames.contains_key(frame));
        let i = self.answers.iter().position(|a| a.due <= now).filter(|_| self.go());
        let offered = i.zip(free);
        self.set("ans_valid", offered.is_some());
        if let Some((i, frame)) = offered {
            let Answer { q, data: peer::Data { psn, atomic, ref bytes }, .. } = self.answers[i];
            let len = bytes.len() as u64;
            self.set("ans_q", q);
            self.set("ans.psn", psn);
            self.set("ans.atomic", atomic);
            self.set("ans.len", len);
            self.set("ans.frame", frame * SLOT);
            self.set("ans.payload", frame * SLOT + 58);
        }
        offered
    }

    /// The oldest answer is written.
    fn offer_placed(&mut self) {
        let mut failed = false;
        let mut last = None;
        for (n, write) in self.writes.iter().enumerate() {
            if write.due > self.cycle {
                break;
            }
            failed |= write.failed;
            if !write.more {
                last = Some(n);
                break;
            }
        }
        let shown = last.filter(|_| self.go());
        self.set("put_over_valid", shown.is_some());
        self.set("put_over_err", failed);
    }

    fn take_writes(&mut self) {
        if self.is("ans_free_valid") {
            let place = self.get("ans_free_place") as u32;
            assert!(place % SLOT == 0 && self.frames.remove(&(place / SLOT)).is_some(), "{place:#x} is given back");
        }
        if self.is("put_over_valid") {
            let failed = self.is("put_over_err");
            while let Some(write) = self.writes.pop_front() {
                if !write.more {
                    self.frames.remove(&write.frame).expect("it was there");
                    if !failed {
                        self.peers.get_mut(&write.q).expect("connected").placed(write.psn);
                    }
                    break;
                }
            }
        }
        if self.is("put_valid") && self.is("put_ready") {
            let (q, psn, va, len) =
                (self.get("put_q") as u32, self.get("put.psn") as u32, self.get("put.va"), self.get("put.len"));
            let (reverse, frame) = (self.is("put.reverse"), self.get("put.frame") as u32 / SLOT);
            let payload = self.get("put.payload") as u32 ^ if reverse { 0x3_ffff } else { 0 };
            assert!(len > 0 && self.is("put.write") && self.is("put.answer") && self.get("put.asid") == ASID.into());
            let span = Span { asid: ASID, va, len, write: true };
            assert!(self.memory.covers(span), "a write of {len} bytes at {va:#x}, which are not held");
            let failed = !self.memory.reaches(span)
                || (self.setup.write_failures > 0.0 && self.rng.chance(self.setup.write_failures));
            let at = (payload - frame * SLOT - 58) as usize;
            let (there, len, more) = (&self.frames[&frame], len as usize, self.is("put.more"));
            let bytes: Vec<u8> = (0..len).map(|i| there[if reverse { at - i } else { at + i }]).collect();
            let peer = self.peers.get_mut(&q).expect("connected");
            peer.written(psn, va, &bytes);
            if !more {
                peer.all_written(psn);
            }
            let after = self.writes.back().map_or(0, |w| w.due + 1);
            let due = (self.cycle + self.setup.write + len as u64 * 8 / self.width).max(after);
            self.writes.push_back(Write { due, q, psn, frame, more, failed });
        }
    }

    fn offer_lists(&mut self) {
        let list = self.lists.front().copied().filter(|_| self.go());
        self.set("lst_valid", list.is_some());
        if let Some((q, begin, value, n)) = list {
            self.set("lst_q", q);
            self.set("lst.first_beat", begin);
            self.set("lst.first", if begin { value } else { 0 });
            self.set("lst.n", n);
            self.set("lst.size", if begin { 0 } else { value });
        }
        let ack = self.own_acks.front().copied();
        self.set("afr_valid", ack.is_some());
        if let Some((q, psn, syndrome, sack)) = ack {
            self.set("afr_q", q);
            self.set("afr.psn", psn);
            self.set("afr.syndrome", syndrome);
            self.set("afr.msn", peer::MSN);
            self.set("afr.has_sack", sack.is_some());
            self.set_wide("afr.sack", &[sack.unwrap_or(0) as u64, (sack.unwrap_or(0) >> 64) as u64]);
        }
        let tag = (0..u64::from(READ_TAGS)).find(|tag| !self.answering.contains_key(tag));
        let answer = self.own_answers.front().copied();
        self.set("rsp_valid", answer.is_some() && tag.is_some());
        if let (Some(OwnAnswer { q, psn, position, len, va }), Some(tag)) = (answer, tag) {
            self.tag_shown = tag;
            self.set("rsp_q", q);
            self.set("rsp.begins", position.begins());
            self.set("rsp.ends", position.ends());
            self.set("rsp.psn", psn);
            self.set("rsp.msn", peer::MSN);
            self.set("rsp.len", len);
            self.set("rsp.asid", ANSWERS_ASID);
            self.set("rsp.va", va);
            self.set("rsp.tag", tag);
        }
        let list = self.own_lists.front().copied();
        self.set("lfr_valid", list.is_some());
        if let Some((q, begin, value, n)) = list {
            self.set("lfr_q", q);
            self.set("lfr.first_beat", begin);
            self.set("lfr.epoch", peer::EPOCH);
            self.set("lfr.first", if begin { value } else { 0 });
            self.set("lfr.n", n);
            // Two sizes at a time, except the last of an odd number.
            let next = self.own_lists.get(1).filter(|next| !begin && !next.1).map_or(0, |next| next.2);
            self.set("lfr.sizes", if begin { 0 } else { u64::from(value) | u64::from(next) << 32 });
        }
    }

    fn latency(&mut self) -> u64 {
        self.setup.read + if self.setup.jitter > 0 { self.rng.below(self.setup.jitter) } else { 0 }
    }

    fn take_outputs(&mut self) {
        if self.is("fe_valid") && self.is("fe_ready") {
            let [code, q, arg] = ["fe.code", "fe.qpn", "fe.argument"].map(|field| self.get(field) as u32);
            match code {
                // firmware has it sent again
                EVENT_TIMEOUT => {
                    *self.time_outs.entry(q).or_default() += 1;
                    self.command(q, send::CMD_AGAIN);
                }
                // it waits as long as it is told to
                EVENT_RNR if self.peers[&q].receives.is_some() => {
                    assert_eq!(Nak::from_word(arg).syndrome, peer::RNR.into());
                    self.waits.push((self.cycle + self.rng.below(4_000), q));
                }
                EVENT_BIND => self.binds.push((self.cycle + self.rng.below(1000), q)),
                _ => self.events.push((code, q, arg)),
            }
        }
        if self.is("qr_valid") && self.is("qr_ready") {
            let (addr, len, tag) = (self.get("qr.addr"), self.get("qr.len"), self.get("qr.tag"));
            assert!(len > 0 && len <= 512 && len % 128 == 0 && addr / PAGE == (addr + len - 1) / PAGE);
            let due = self.cycle + self.latency();
            self.queue_reads.push(QueueRead { due, tag, addr, len, off: 0 });
        }
        if self.is("xa_valid") && self.is("xa_ready") {
            self.translate();
        }
        if self.is("load_valid") && self.is("load_ready") {
            self.read_payload();
        }
        if self.is("hw_valid") && self.is("hw_ready") {
            let at = self.get("hw_addr") as usize;
            let (data, strb) = (self.m.bytes(self.p.of("hw_data")), self.m.bytes(self.p.of("hw_strb")));
            assert_eq!(at % data.len(), 0);
            for (i, byte) in data.iter().enumerate() {
                if strb[i / 8] >> (i % 8) & 1 != 0 {
                    self.ram[at + i] = *byte;
                }
            }
        }
        if self.is("fs_valid") && self.is("fs_ready") {
            self.send_frame();
        }
        if self.is("fcq_valid") && self.is("fcq_ready") {
            let words = self.m.words(self.p.of("fcq.words"));
            let mut w = [0; 8];
            w.iter_mut().enumerate().for_each(|(i, w)| *w = (words[i / 2] >> (32 * (i % 2))) as u32);
            let c = Cqe::from_words(&w);
            let (q, id) = (c.qpn, c.wr_id as u32);
            assert_eq!((c.wr_id >> 32, self.get("fcq.cqn")), (u64::from(q), u64::from(q & 0x3f)), "{c:x?}");
            assert_eq!(c.credit, (id + 1) & 0xffff, "elements that are complete: {c:x?}");
            let peer = self.peers.get_mut(&q).expect("connected");
            for id in peer.completed(id, c.byte_len, c.status, c.opcode) {
                if let Some(element) = self.posted.remove(&(q, id)) {
                    self.unmap(&element);
                }
            }
        }
    }

    /// A send's memory goes, but for pages of which another one needs a part.
    fn unmap(&mut self, element: &Element) {
        for page in element.pages() {
            let users = self.used.get_mut(&page).expect("posted");
            *users -= 1;
            if *users == 0 {
                self.used.remove(&page);
                self.memory.unmap(ASID, page * PAGE, PAGE);
            }
        }
    }

    fn translate(&mut self) {
        let (va, len, tag) = (self.get("xa.va"), self.get("xa.len"), self.get("xa.tag"));
        let write = self.is("xa.write");
        assert!(len > 0 && self.get("xa.asid") == ASID.into());
        let span = Span { asid: ASID, va, len, write };
        if self.is("xa.give_back") {
            return self.memory.release(span);
        }
        // Any time, where memory comes and goes.
        if self.setup.unmaps && self.rng.chance(self.setup.missing) {
            self.memory.evict(ASID, va, len);
        }
        if self.memory.acquire(self.cycle, 0, tag as u16, span) {
            let (q, block) = ((tag >> 6) as u32, tag & 63);
            self.peers.get_mut(&q).expect("connected").pinned(block, va, len, write);
        }
    }

    fn read_payload(&mut self) {
        let (local, len, va, tag) =
            (self.get("load.place"), self.get("load.len"), self.get("load.va"), self.get("load.tag"));
        let of_answer = va >= ANSWERS;
        let asid = if of_answer { ANSWERS_ASID } else { ASID };
        assert!(len > 0 && self.get("load.asid") == asid.into());
        // What answers are read from the receiver's half holds.
        let span = Span { asid, va, len, write: false };
        assert!(of_answer || self.memory.covers(span), "a read of {len} bytes at {va:#x}, which are not held");
        let failed = !(of_answer || self.memory.reaches(span))
            || (self.setup.read_failures > 0.0 && self.rng.chance(self.setup.read_failures));
        for i in 0..len {
            self.ram[(local + i) as usize] = if failed { 0x55 } else { byte_at(va + i) };
        }
        let start = self.port_free.max(self.cycle as f64);
        self.port_free = start + (len as f64 / (self.width as f64 / 8.0 * 1.25)).max(1.0);
        let due = self.port_free as u64 + self.latency();
        self.reads.push((due, tag, u64::from(failed)));
    }

    fn send_frame(&mut self) {
        let (at, len, tag) = (self.get("fs.place") as usize, self.get("fs.len") as usize, self.get("fs.tag"));
        assert!(self.reads.iter().all(|r| r.1 != tag), "a frame goes when all its reads are done");
        let bytes = self.ram[at..at + len].to_vec();
        let beat = self.width as f64 / 8.0;
        let start = self.mac_free.max(self.cycle as f64);
        self.mac_free = start + ((len + 4) as f64 / beat).ceil() + 24.0 / beat;
        self.mac.push_back((self.mac_free as u64, tag));
        let frame = Frame { at: start as u64, bytes: bytes.clone() };
        match peer::destination(&bytes).and_then(|q| self.peers.get_mut(&q)).filter(|_| peer::is_data(&bytes)) {
            Some(peer) => {
                peer.frames.push(frame);
                peer.check_frame(&bytes);
                for due in self.arrivals(self.mac_free as u64) {
                    self.wire.push((due, bytes.clone()));
                }
            }
            None => self.other.push(frame),
        }
    }

    /// When what leaves now arrives: not at all, once, or twice.
    fn arrivals(&mut self, now: u64) -> Vec<u64> {
        if self.rng.chance(self.setup.loss) {
            return Vec::new();
        }
        let times = 1 + usize::from(self.setup.twice > 0.0 && self.rng.chance(self.setup.twice));
        let late = |bench: &mut Self| if bench.setup.late > 0 { bench.rng.below(bench.setup.late) } else { 0 };
        (0..times).map(|_| now + self.setup.round_trip / 2 + late(self)).collect()
    }

    fn deliver_wire(&mut self) {
        while let Some(i) = self.wire.iter().position(|w| w.0 <= self.cycle) {
            let (_, bytes) = self.wire.remove(i);
            let q = peer::destination(&bytes).expect("checked before");
            let every = self.setup.ack_every;
            let peer = self.peers.get_mut(&q).expect("connected");
            let answer = peer.arrived(&bytes, every, self.cycle);
            for data in std::mem::take(&mut peer.answers) {
                let arrivals = self.arrivals(self.cycle);
                let answers = arrivals.into_iter().map(|due| Answer { due, q, data: data.clone() });
                self.answers.extend(answers);
            }
            self.acknowledge(q, answer);
        }
        let overdue: Vec<_> = self.peers.iter_mut().map(|(q, peer)| (*q, peer.overdue(self.cycle))).collect();
        for (q, answer) in overdue {
            self.acknowledge(q, answer);
        }
    }

    fn acknowledge(&mut self, q: u32, answer: Option<(u32, u8, Option<u128>)>) {
        if let Some((psn, syndrome, sack)) = answer {
            let (arrivals, msn) = (self.arrivals(self.cycle), self.peers[&q].msn());
            self.acks.extend(arrivals.into_iter().map(|due| Acknowledgement { due, q, psn, syndrome, msn, sack }));
        }
    }
}

/// Eight bytes at random, in at most `most` ranges, some of them empty.
pub fn eight_bytes(rng: &mut Rng, most: u64) -> Vec<(u64, u32)> {
    let mut left = ATOMIC_BYTES;
    let mut sges: Vec<_> = (1..rng.between(1, most))
        .map(|_| {
            let len = rng.below(u64::from(left) + 1) as u32;
            left -= len;
            (rng.below(1 << 22), len)
        })
        .collect();
    sges.push((rng.below(1 << 22), left));
    sges
}

/// A send of any kind that the mode allows; `reads`: READs and atomics too.
pub fn random_element(rng: &mut Rng, message: bool, reads: bool) -> Element {
    let (push, fence) = (rng.chance(0.3), rng.chance(0.1));
    match rng.below(30) {
        0 => return Element { nothing: true, fence, quiet: rng.chance(0.5), ..Element::default() },
        1 => return Element { delay: Some(rng.below(30) as u32), fence, ..Element::default() },
        2 => return Element { bind: Some(Bind::random(rng)), fence, ..Element::default() },
        3..6 if message && reads => {
            let (sges, atomic) = (eight_bytes(rng, MAX_SGE as u64 - 2), Some(Atomic::random(rng)));
            return Element { sges, atomic, fence, ..Element::default() };
        }
        _ => (),
    }
    let element = match rng.below(10) {
        0 => Element { push, ..Element::plain(0x1_0000, 0) },
        1..4 => {
            let len = rng.below(MAX_INLINE as u64 + 1) as usize;
            Element { data: Some(rng.bytes(len)), push, ..Element::default() }
        }
        _ => {
            let most = 1 << rng.between(4, 13);
            let count = if rng.chance(0.6) { 1 } else { rng.between(2, 7) };
            let most = if count > 1 { most.min(2_000) } else { most };
            let sges = (0..count).map(|_| (rng.below(1 << 22), rng.below(most) as u32)).collect();
            Element { sges, push, ..Element::default() }
        }
    };
    let room = message && element.sges.len() < MAX_SGE;
    if room && reads && element.data.is_none() && rng.chance(0.4) {
        return Element { source: Some((rng.draw(), rng.draw() as u32)), push: false, fence, ..element };
    }
    let immediate = (room && rng.chance(0.3)).then(|| rng.draw() as u32);
    // About the same bytes, and others.
    let va = if rng.chance(0.5) { rng.below(1 << 14) } else { rng.draw() };
    let remote = (room && rng.chance(0.4)).then(|| (va, rng.draw() as u32));
    let quiet = remote.is_none() && rng.chance(0.2);
    let (immediate, invalidate) = match immediate {
        Some(key) if remote.is_none() && rng.chance(0.3) => (None, Some(key)),
        immediate => (immediate, None),
    };
    Element { immediate, invalidate, remote, fence, quiet, ..element }
}
