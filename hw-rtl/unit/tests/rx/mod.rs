// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything around `berth_fp_rx`: the one host that pins pages, queues, DMA, MAC, and at the far end of each QP a golden
//! [`Requester`]. Beside the RTL runs a golden [`Responder`] of each QP, step by step after the RTL's trace, and what
//! leaves the RTL must be what the model says.

use berth_abi::card::{MAX_DEPTH, MAX_READS, READ_TAGS};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE};
use berth_abi::rows::send::CARRIER_CONTROL;
use berth_abi::rows::{
    event::{
        Broken, EVENT_BROKEN, EVENT_INVALIDATE, EVENT_TARGET, Event as FastEvent, FAULT_ACCESS, FAULT_BROKEN,
        FAULT_INVALID, FAULT_NO_CREDIT, FAULT_NOT_READY, FAULT_NOT_RESIDENT, FAULT_OUT_OF_ORDER, FAULT_OUT_OF_WINDOW,
        FAULT_PAGE, FAULT_TOO_LONG, Target as Came,
    },
    recv,
};
use berth_abi::status::{
    PAGE_FAULT, PAGE_NO_MEMORY, PAGE_OVER_BUDGET, WC_LOCAL_PROTECTION, WC_NO_MEMORY, WC_OVER_BUDGET, WC_RECALLED,
};
use berth_abi::wire::REC_LIST;
use berth_abi::wqe::{CQE_IMMEDIATE, CQE_INVALIDATED, CQE_PUSH, Cqe, OP_RECV, OP_WRITE};
use berth_protocol::memory::keys::{Binding, Keys};
use berth_protocol::rc::{
    Access, Admit, Event, Fault, Immediate, Kind, Message, NakCode, Op, Outcome, Position, Remote, RequestPacket,
    Requester, RequesterConfig, Responder, ResponderConfig, ResponseBody, ResponsePacket, Syndrome, Target, Verdict,
};
use berth_protocol::wire::ext::{Bth, Extended};
use berth_protocol::wire::lists::list_headers;
use berth_protocol::wire::net::{Eth, Ip, Ipv4};
use berth_protocol::wire::opcode::Service;
use berth_protocol::wire::{self, Packet};
use berth_random::Rng;
use berth_rtl_host::{PAGE, Ranges, Span};
use berth_rtl_unit::{Module, Port};
use std::collections::{HashMap, VecDeque};

pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const OWN_IP: [u8; 4] = [10, 0, 0, 1];
const SLOT: u32 = 0x1200;
const SLOTS: u32 = berth_abi::card::RX_SLOTS;
/// Number of the first one: transmit slots lie before it.
const SLOT_0: u32 = berth_abi::card::TX_SLOTS;
/// Bit of the tags of memory that peers write to.
const TARGETS: u16 = 1 << 15;
/// Atomics that are under way at a time.
pub const ATOMICS: usize = READ_TAGS as usize / 4;
/// Bytes that nobody has written to.
pub const FRESH: u8 = 0xcc;
/// Protection domain of all QPs.
const DOMAIN: u16 = 7;
/// Elements of a receive queue.
pub const RING: u64 = MAX_DEPTH as u64;
/// RNR timer code towards peers without credit lists: 10 µs.
const RNR_TIMER: u32 = 1;
/// READs that the model keeps: those too that have been given to be sent, of which arrival hears later, and the model with it.
const MODEL_READS: usize = MAX_READS as usize + 16;
const QKEY: u32 = 0x1234_5678;

/// How the surroundings behave. Times in cycles, chances in percent.
#[derive(Clone, Debug)]
pub struct World {
    pub width: u32,
    pub qps: u32,
    pub log2_mtu: u8,
    pub selective: bool,
    /// Packets of WRITEs are taken in order only.
    pub writes_in_order: bool,
    /// A peer without credit lists; then without selective repeat.
    pub foreign: bool,
    pub message_mode: bool,
    /// SENDs of message mode that invalidate a key.
    pub invalidates: u64,
    pub max_list: u32,
    /// Trigger kind and index, as the builder takes them.
    pub trigger: (u32, u32),
    pub few: u32,
    /// Bound of granted memory, units of 4 KiB; 0: none.
    pub limit: u32,
    /// Units of 64 cycles.
    pub repeat: u32,
    /// A host read's round trip.
    pub read: u64,
    /// From a write command to its end, and between two.
    pub write: u64,
    /// From an acquisition to its answer; the page service behind a miss; how many pages are warm.
    pub xlat: u64,
    pub service: u64,
    pub warm: u64,
    /// How often a port that could be ready is not.
    pub stall: u64,
    /// Frames lost, doubled, delayed on the way in; ACKs lost.
    pub loss: u64,
    pub twice: u64,
    pub late: u64,
    /// Lists that do not arrive.
    pub list_loss: u64,
    pub timeout: u32,
    /// READs that the far end has under way at most, and the RTL takes; 0: none.
    pub reads: u32,
    /// Rights that no key gives the far end.
    pub denies: u32,
}

impl Default for World {
    fn default() -> Self {
        Self {
            width: 64,
            qps: 1,
            log2_mtu: 10,
            selective: true,
            writes_in_order: false,
            foreign: false,
            message_mode: false,
            invalidates: 0,
            max_list: 32,
            trigger: (0, 0),
            few: 0,
            limit: 0,
            repeat: 0,
            read: 250,
            write: 8,
            xlat: 5,
            service: 2500,
            warm: 100,
            stall: 0,
            loss: 0,
            twice: 0,
            late: 0,
            list_loss: 0,
            timeout: 20_000,
            reads: MAX_READS,
            denies: 0,
        }
    }
}

/// An atomic: what it does, to which bytes, with what (as in [`RequestPacket`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    pub add: bool,
    pub va: u64,
    pub operands: [u64; 2],
}

/// A packet of an answer, as the RTL gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    packet: ResponsePacket,
    va: u64,
    asid: u32,
}

/// A receive as the process posted it.
#[derive(Clone, Debug)]
pub struct Recv {
    pub wr_id: u64,
    pub sges: Vec<(u64, u32)>,
    pub size: u32,
    /// Never a credit: its completion's status.
    pub local: Option<u8>,
}

/// One QP: host's side, far end, and model.
pub struct Qp {
    pub q: u32,
    pub requester: Requester<24, 256, 128>,
    pub model: Responder<24, 256, MODEL_READS>,
    /// Receives posted; credits among them, by number.
    pub recvs: Vec<Recv>,
    pub credits: Vec<usize>,
    pub pi: u16,
    /// Credits announced by lists; those the far end has; the last list's first credit and trigger.
    announced: u32,
    has: u32,
    used: u32,
    list_first: Option<(u32, u32)>,
    landed: u32,
    /// As the RTL has it, which is before the operation's end where a hole closes.
    rtl_landed: u32,
    complete: u32,
    /// Stream bytes sent as messages: (credit, offset, len).
    pub sent: Vec<(u64, u32)>,
    offset: u64,
    /// Packets that wait for the RTL's verdict, acknowledgements and completions that the model has given.
    packets: VecDeque<RequestPacket>,
    acks: VecDeque<ResponsePacket>,
    /// Credit, bytes, immediate, invalidated key, PUSH; it was used by a WRITE.
    expected: VecDeque<(u32, u32, Option<u32>, Option<u32>, bool, bool)>,
    /// The key that the model wants to end, until the RTL has said so.
    invalidate: Option<u32>,
    /// WRITEs that the far end has posted: address, offset in the stream of its bytes, bytes.
    pub written: Vec<(u64, u64, u32)>,
    /// READs that the far end has posted: address, offset of where its bytes are to come, bytes; and what has come.
    pub reads: Vec<(u64, u64, u32)>,
    read: HashMap<u64, u8>,
    /// Packets of answers that have been given and that arrival has not heard of.
    given: VecDeque<Answer>,
    /// Atomics that the far end has posted, with what it has heard of each; those of them that have changed memory; what
    /// stood there, of those whose answer arrival has not heard of.
    pub atomics: Vec<(Atomic, Option<u64>)>,
    pub carried_out: usize,
    changed: VecDeque<(Atomic, u64)>,
    /// The one that the model has carried out.
    atomic: Option<(u32, Atomic)>,
    /// What is asked for again; of an atomic, whether the model knows what it gave.
    repeats: VecDeque<Option<bool>>,
    /// PSNs of READs and atomics that were taken.
    jobs: Vec<u32>,
    /// READs that are not answered, and those that are answered again.
    unfinished: [usize; 2],
    /// Their frames: tag, packet, payload when its read has ended, if it could be read.
    leaving: VecDeque<(u8, ResponsePacket, Option<Option<Vec<u8>>>)>,
    /// An answer could not be read.
    pub unanswered: bool,
    unchecked: VecDeque<Cqe>,
    pub cqes: Vec<Cqe>,
    /// The next SGE whose memory is to be asked for.
    pins: (usize, usize),
    pub broken: Option<u32>,
    /// Status of the receives that are left when the QP was told to end; one has been completed with it.
    pub ended: Option<u8>,
    flushed: bool,
    /// Epoch of its lists.
    epoch: u32,
    /// Only what the bench checks by itself: the model is not asked any more.
    pub alone: bool,
}

impl Qp {
    /// Memory is asked for, the first time: that of the next SGE, or of a later receive if this one is refused.
    fn pinned(&mut self, va: u64, len: u32) {
        loop {
            let (recv, sge) = self.pins;
            let r = self.recvs.get(recv).unwrap_or_else(|| panic!("QP {}: {len} bytes at {va:#x}", self.q));
            if r.local.is_some_and(|status| status < 2) || sge == r.sges.len() {
                self.pins = (recv + 1, 0);
                continue;
            }
            // In chunks of at most 1 MiB.
            let (start, size) = r.sges[sge];
            let (behind, end) = (va + u64::from(len), start + u64::from(size));
            let chunk = va == start || va > start && va.is_multiple_of(1 << 20);
            if chunk && behind < end && behind.is_multiple_of(1 << 20) {
                return;
            }
            self.pins.1 += 1;
            if chunk && behind == end {
                return;
            }
            assert!(
                r.sges[sge].1 == 0 || r.local.is_some(),
                "QP {}: {len} bytes at {va:#x}, not {:x?}",
                self.q,
                r.sges[sge]
            );
        }
    }
}

struct Credits<'a> {
    qp: &'a [u32],
    from: u32,
    to: u32,
    keys: &'a mut Keys<64>,
    qpn: u32,
    denies: u8,
    /// What the RTL has found out about the memory.
    memory: Admit,
}

impl Target for Credits<'_> {
    fn credit(&self, number: u32) -> Option<u32> {
        (number.wrapping_sub(self.from) < self.to.wrapping_sub(self.from)).then(|| self.qp[number as usize])
    }
    fn access(&mut self, access: &Access) -> Admit {
        // Whether the memory is there is asked for when the key opens it; the key is claimed when it is.
        match self.memory {
            Admit::Yes if self.keys.check_for(DOMAIN, self.qpn, self.denies, access).is_ok() => Admit::Yes,
            Admit::Yes => Admit::No,
            memory if self.keys.clone().check_for(DOMAIN, self.qpn, self.denies, access).is_ok() => memory,
            _ => Admit::No,
        }
    }
}

fn fault_code(fault: Fault) -> u32 {
    match fault {
        Fault::OutOfOrder => FAULT_OUT_OF_ORDER,
        Fault::OutOfWindow => FAULT_OUT_OF_WINDOW,
        Fault::NotReady => FAULT_NOT_READY,
        Fault::NoCredit => FAULT_NO_CREDIT,
        Fault::TooLong => FAULT_TOO_LONG,
        Fault::Broken => FAULT_BROKEN,
        Fault::Access => FAULT_ACCESS,
        Fault::NotResident => FAULT_NOT_RESIDENT,
        Fault::PageFault => FAULT_PAGE,
        _ => FAULT_INVALID,
    }
}

/// Address of a queue element.
fn element(q: u32, index: u16) -> u64 {
    (u64::from(q) << 32) + u64::from(index) % RING * 128
}

/// The byte at `offset` of the stream to QP `q`.
pub fn pattern(q: u32, offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)).wrapping_mul(0x9d) as u8 ^ (q as u8).wrapping_mul(31)
}

/// Where receive `n` of QP `q` lies: pages of its own.
pub fn buffer(q: u32, n: usize, pages: u64) -> u64 {
    (u64::from(q) << 32) + 0x10_0000 + n as u64 % RING * pages * PAGE
}

/// Where memory of QP `q` begins that its peer may write to.
pub fn target(q: u32) -> u64 {
    (u64::from(q) << 32) + 0x8000_0000
}

struct Frame {
    slot: u32,
    bytes: Vec<u8>,
}

pub struct Rig {
    pub m: Module,
    ports: HashMap<&'static str, Port>,
    pub world: World,
    pub rng: Rng,
    pub qps: Vec<Qp>,
    pub host: Ranges,
    rings: HashMap<u64, u8>,
    /// An output that takes nothing: the name of its `ready`.
    pub stuck: Option<&'static str>,
    /// Receives are asked for more than once, so that the order is not that of the first time.
    pub taking_back: bool,
    now: u64,
    doorbells: VecDeque<(u32, u16)>,
    /// Frames on their way in: (when, bytes); stored ones, those that have been shown.
    wire: Vec<(u64, Vec<u8>)>,
    arrived: VecDeque<Frame>,
    stored: HashMap<u32, Vec<u8>>,
    free: Vec<u32>,
    hd: Option<u32>,
    reads: Vec<(u64, u8, u64, u32, u32)>,
    writes: VecDeque<(u64, u8, u8)>,
    lists: Vec<(u32, u32, Vec<u32>)>,
    list_left: u32,
    back: Vec<(u64, usize, ResponsePacket, Vec<u8>)>,
    /// Answers whose payload is being read: when it is there, QP, the RTL's tag.
    loads: Vec<(u64, usize, u8, Answer)>,
    /// How often in a hundred such a read fails.
    pub read_fails: u64,
    /// The atomics that are changing memory: when each has, its tag, what stood there, if it could. How often in a hundred one
    /// cannot.
    changes: Vec<(u64, u64, Option<u64>)>,
    pub change_fails: u64,
    /// SENDs with invalidate that firmware has been told of: when it says that the key has ended, QP. How many of 100 keys
    /// may not be.
    pub invalidations: Vec<(u64, u32)>,
    pub refuses: u64,
    /// Packets of answers, and of those to what was asked for again. Atomics among the latter.
    pub answers: [u64; 2],
    pub repeated: u64,
    /// Atomics that were counted, less those that were carried out; answers again.
    atomics_counted: i64,
    atomics_counted_again: u64,
    /// All acknowledgements that were given.
    pub replies: Vec<ResponsePacket>,
    pub events: Vec<u64>,
    pub core: Vec<(u32, u32)>,
    pub acks_in: Vec<(u32, u32, u8, Option<u128>)>,
    pub lists_in: Vec<(u32, u32, Vec<u32>)>,
    lists_in_left: u32,
    /// The transmit half takes no list: it wants no size.
    pub lists_unwanted: bool,
    pub lists_out: u64,
    /// Packets placed, taken, come before; then dropped by reason (see `fault_code`).
    pub verdicts: [u64; 14],
    pub keys: Keys<64>,
    /// How often memory was asked for that the peer writes to.
    pub targets: u64,
    pub last_frame: u64,
    pub last_cqe: u64,
    pub cqe_count: u64,
    /// Answers of the host that were thrown away.
    pub strays_counted: u32,
    /// Acquisitions that were answered with a hit and with a miss, less those that were counted.
    acquired: [i64; 2],
    /// Credits that were counted; lengths of lists that were counted and have not begun to leave; repeats likewise.
    posted: u64,
    lists_counted: VecDeque<u32>,
    repeats_counted: u32,
}

impl Qp {
    /// Credits that the far end has used; that lists have announced.
    pub fn used(&self) -> u32 {
        self.used
    }
    pub fn announced(&self) -> u32 {
        self.announced
    }
}

impl Rig {
    pub fn new(world: World, seed: u64) -> Self {
        Self::on(Module::with_seed("berth_fp_rx", world.width, seed), world, seed)
    }

    /// With a module that has been in use, and is reset.
    pub fn on(mut m: Module, world: World, seed: u64) -> Self {
        for name in
            ["fdb_valid", "rf_valid", "qc_valid", "stored_valid", "xr_valid", "fc_req", "rspd_valid", "changed_valid"]
        {
            let port = m.port(name);
            m.set(port, 0_u8);
        }
        m.reset();
        let mut host = Ranges::new(seed, world.service, FRESH);
        (host.lookup, host.warm) = (world.xlat, world.warm as f64 / 100.0);
        let mut rig = Self {
            m,
            ports: HashMap::new(),
            rng: Rng(seed),
            qps: Vec::new(),
            host,
            rings: HashMap::new(),
            stuck: None,
            taking_back: false,
            now: 0,
            doorbells: VecDeque::new(),
            wire: Vec::new(),
            arrived: VecDeque::new(),
            stored: HashMap::new(),
            free: (SLOT_0..SLOT_0 + SLOTS).collect(),
            hd: None,
            reads: Vec::new(),
            writes: VecDeque::new(),
            lists: Vec::new(),
            list_left: 0,
            back: Vec::new(),
            loads: Vec::new(),
            read_fails: 0,
            changes: Vec::new(),
            change_fails: 0,
            repeated: 0,
            atomics_counted: 0,
            atomics_counted_again: 0,
            invalidations: Vec::new(),
            refuses: 0,
            answers: [0; 2],
            replies: Vec::new(),
            events: Vec::new(),
            core: Vec::new(),
            acks_in: Vec::new(),
            lists_in: Vec::new(),
            lists_in_left: 0,
            lists_unwanted: false,
            lists_out: 0,
            verdicts: [0; 14],
            keys: Keys::new(),
            targets: 0,
            last_frame: 0,
            last_cqe: 0,
            cqe_count: 0,
            strays_counted: 0,
            acquired: [0; 2],
            posted: 0,
            lists_counted: VecDeque::new(),
            repeats_counted: 0,
            world,
        };
        rig.config(recv::OWN_IP, u32::from_be_bytes(OWN_IP));
        rig.config(recv::OWN_MAC, u32::from_be_bytes([OWN_MAC[2], OWN_MAC[3], OWN_MAC[4], OWN_MAC[5]]));
        rig.config(recv::OWN_MAC + 1, u32::from(OWN_MAC[0]) << 8 | u32::from(OWN_MAC[1]));
        for i in 0..rig.world.qps {
            let qp = rig.start(16 + i, 0);
            rig.qps.push(qp);
        }
        rig
    }

    /// A new connection on QP `i`, which holds nothing any more; its queue goes on where it is.
    pub fn restart(&mut self, i: usize) {
        let (q, pi) = (self.qps[i].q, self.qps[i].pi);
        self.invalidations.retain(|(_, other)| *other != q);
        self.qps[i] = self.start(q, pi);
    }

    fn p(&mut self, name: &'static str) -> Port {
        if let Some(&p) = self.ports.get(name) {
            return p;
        }
        let p = self.m.port(name);
        self.ports.insert(name, p);
        p
    }
    fn put(&mut self, name: &'static str, value: u64) {
        let p = self.p(name);
        self.m.set(p, value);
    }
    fn get(&mut self, name: &'static str) -> u64 {
        let p = self.p(name);
        self.m.get(p)
    }
    fn is(&mut self, name: &'static str) -> bool {
        self.get(name) != 0
    }

    /// The host answers a request that was not made or is answered. False if it is made and not answered.
    pub fn stray(&mut self, tag: u16, status: u8) -> bool {
        self.host.stray(self.now, 0, tag, status)
    }

    /// Reads a word of QP `i`'s row.
    pub fn read(&mut self, i: usize, word: u32) -> u32 {
        let addr = self.qps[i].q << 6 | word;
        self.put("fc.qpn", (addr >> 6).into());
        self.put("fc.word", (addr & 63).into());
        self.put("fc.we", 0);
        self.put("fc_req", 1);
        for n in 0.. {
            assert!(n < 5000, "the word is not read");
            self.step();
            if self.is("fc_ack") {
                break;
            }
        }
        self.put("fc_req", 0);
        let value = self.get("fc_rdata") as u32;
        self.step();
        value
    }

    /// What QP `i` holds.
    pub fn row_held(&mut self, i: usize) -> recv::Held {
        recv::Held::from_word(self.read(i, recv::HELD))
    }

    /// Receives of QP `i` that are posted and not complete, and those of them that are granted.
    pub fn counts(&mut self, i: usize) -> (u32, u32) {
        let counts = recv::Counts::from_word(self.read(i, recv::COUNTS));
        (counts.posted, counts.granted)
    }

    /// Command `value` to QP `i`.
    pub fn command(&mut self, i: usize, value: u32) {
        self.config(self.qps[i].q << 6 | recv::COMMAND, value);
    }

    /// Ends QP `i`; what is left of its receives completes with `status`.
    pub fn end(&mut self, i: usize, status: u8) {
        self.qps[i].ended = Some(status);
        self.taking_back = true;
        self.command(i, recv::Command { opcode: recv::CMD_END, argument: status.into() }.word());
    }

    /// After a hold: the far end keeps the credits below `first`.
    pub fn void(&mut self, i: usize, first: u32) {
        let qp = &mut self.qps[i];
        self.taking_back = true;
        assert!(first >= qp.used && first <= qp.announced);
        (qp.announced, qp.has, qp.list_first) = (first, first, None);
        qp.epoch += 1;
        let epoch = qp.epoch;
        self.config(recv::PEER_EPOCH, epoch);
        self.config(recv::FIRST, first);
        self.command(i, recv::CMD_VOID);
    }

    /// After a recall that left the far end the credits below `first`: all other receives go back to the program.
    pub fn cancel(&mut self, i: usize, first: u32) {
        let qp = &mut self.qps[i];
        let from = qp.credits.get(first as usize).copied().unwrap_or(qp.recvs.len());
        qp.credits.truncate(first as usize);
        qp.recvs[from..].iter_mut().for_each(|recv| recv.local = Some(WC_RECALLED));
        let argument = qp.recvs.len() as u32;
        self.command(i, recv::Command { opcode: recv::CMD_CANCEL, argument }.word());
    }

    /// A peer without lists: what it has not used are no credits any more. The first of them.
    pub fn reclaim(&mut self, i: usize) -> u32 {
        self.taking_back = true;
        self.command(i, recv::CMD_REST);
        self.command(i, recv::CMD_RECLAIM);
        self.read(i, recv::ANNOUNCED)
    }

    /// The memory in `start .. end` is gone for QP `i`; the pages are revoked before. Steps until the RTL has let go.
    pub fn revoke(&mut self, i: usize, start: u64, end: u64) {
        for (word, value) in (recv::RANGE..).zip([start as u32, (start >> 32) as u32, end as u32, (end >> 32) as u32]) {
            self.config(word, value);
        }
        self.taking_back = true;
        self.command(i, recv::CMD_REVOKE);
        for n in 0.. {
            assert!(n < 1000, "the memory is not let go of");
            if self.row_held(i).revoking == 0 {
                break;
            }
        }
    }

    /// Doorbells that are not taken; requests for pages on their way.
    pub fn doorbells(&self) -> usize {
        self.doorbells.len()
    }
    pub fn asking(&self) -> usize {
        self.host.waiting(|_, _| true)
    }

    /// Messages of QP `i` that the far end has sent and that are not complete.
    pub fn in_work(&self, i: usize) -> usize {
        self.qps[i].sent.len() - self.qps[i].cqes.len().min(self.qps[i].sent.len())
    }

    /// Nothing of QP `i` is on the wire any more.
    pub fn quiet(&mut self, i: usize) {
        self.wire.clear();
        self.back.retain(|b| b.1 != i);
        self.until(2000, "its frames to be gone", |rig| rig.arrived.is_empty() && rig.stored.is_empty());
    }

    /// Times that pages in `start .. end` are held for QP `i`.
    pub fn held_in(&self, i: usize, start: u64, end: u64) -> u32 {
        self.host.pages_in(self.qps[i].q, start, end)
    }

    /// Writes a configuration word of row 0, or a command to row `addr >> 6`.
    pub fn config(&mut self, addr: u32, value: u32) {
        self.put("fc.qpn", (addr >> 6).into());
        self.put("fc.word", (addr & 63).into());
        self.put("fc.data", value.into());
        self.put("fc.we", 1);
        self.put("fc_req", 1);
        for i in 0.. {
            assert!(i < 5000, "the command is not taken");
            self.step();
            if self.is("fc_ack") {
                break;
            }
        }
        self.put("fc_req", 0);
        self.step();
    }

    pub fn peer_mac(q: u32) -> [u8; 6] {
        [2, 0, 0, 0, 1, q as u8]
    }
    pub fn peer_ip(q: u32) -> [u8; 4] {
        [10, 0, 1, q as u8]
    }

    fn start(&mut self, q: u32, pi: u16) -> Qp {
        let w = self.world.clone();
        let (mac, ip) = (Self::peer_mac(q), Self::peer_ip(q));
        let psn = self.rng.draw() as u32 & 0xff_ffff;
        let mode = recv::Mode {
            ack_every: 4,
            rnr_timer: RNR_TIMER,
            denies: w.denies,
            reads: w.reads,
            remote: 1,
            message: w.message_mode.into(),
            foreign: w.foreign.into(),
            selective: w.selective.into(),
            writes_in_order: w.writes_in_order.into(),
            log2_mtu: w.log2_mtu.into(),
        };
        let (trigger, index) = w.trigger;
        let lists = recv::Lists { few: w.few, index, trigger, longest: w.max_list, ..recv::Lists::default() };
        let words = [
            (recv::MODE, mode.word()),
            (recv::IP, u32::from_be_bytes(ip)),
            (recv::MAC, u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])),
            (recv::MAC + 1, u32::from(mac[0]) << 8 | u32::from(mac[1])),
            (recv::SPACE, recv::Space { domain: DOMAIN.into(), cqn: q + 1, asid: q }.word()),
            (recv::EPOCH, 0x5000 + q),
            (recv::PEER_EPOCH, 0x6000 + q),
            (recv::QKEY, QKEY),
            (recv::PSN, psn),
            (recv::BASE, 0),
            (recv::BASE + 1, q),
            (recv::QUEUE, recv::Queue { first: pi.into(), log2_depth: RING.ilog2() }.word()),
            (recv::LISTS, lists.word()),
            (recv::AGAIN, w.repeat),
            (recv::PI, pi.into()),
            (recv::PINNED, w.limit),
        ];
        for (word, value) in words {
            self.config(word, value);
        }
        self.config(q << 6 | recv::COMMAND, recv::CMD_START);
        let log2 = w.log2_mtu;
        let (far, near) = match w.selective {
            true => (
                RequesterConfig::berth(log2, 255, w.timeout),
                ResponderConfig { writes_in_order: w.writes_in_order, ..ResponderConfig::berth(log2) },
            ),
            false if w.foreign => {
                let far = RequesterConfig::foreign(log2, 255, w.timeout);
                (RequesterConfig { tick: 100, ..far }, ResponderConfig::foreign(log2, RNR_TIMER as u8))
            }
            // Between Berth ends, but in order only: credit lists, no counts in ACKs.
            false => (
                RequesterConfig { count_credits: false, ..RequesterConfig::foreign(log2, 255, w.timeout) },
                ResponderConfig { selective: false, ..ResponderConfig::berth(log2) },
            ),
        };
        Qp {
            q,
            requester: Requester::new(RequesterConfig { retries: 0, reads: w.reads.max(1) as u8, ..far }, psn),
            model: Responder::new(near, psn, 0),
            recvs: Vec::new(),
            credits: Vec::new(),
            pi,
            announced: 0,
            has: 0,
            used: 0,
            list_first: None,
            landed: 0,
            rtl_landed: 0,
            complete: 0,
            sent: Vec::new(),
            offset: 0,
            packets: VecDeque::new(),
            acks: VecDeque::new(),
            expected: VecDeque::new(),
            invalidate: None,
            written: Vec::new(),
            reads: Vec::new(),
            read: HashMap::new(),
            atomics: Vec::new(),
            carried_out: 0,
            changed: VecDeque::new(),
            atomic: None,
            repeats: VecDeque::new(),
            jobs: Vec::new(),
            given: VecDeque::new(),
            unfinished: [0; 2],
            leaving: VecDeque::new(),
            unanswered: false,
            unchecked: VecDeque::new(),
            cqes: Vec::new(),
            pins: (0, 0),
            broken: None,
            ended: None,
            flushed: false,
            epoch: 0x6000 + q,
            alone: false,
        }
    }

    /// Posts a receive; the doorbell comes with [`Rig::ring`].
    pub fn post(&mut self, i: usize, sges: &[(u64, u32)]) {
        let qp = &mut self.qps[i];
        let size = sges.iter().map(|s| s.1).sum::<u32>();
        let wr_id = 0xabcd_0000_0000 | u64::from(qp.q) << 32 | qp.recvs.len() as u64;
        let mut wqe = vec![OP_RECV, 0];
        wqe.extend((sges.len() as u16).to_le_bytes());
        wqe.extend(size.to_le_bytes());
        wqe.extend(wr_id.to_le_bytes());
        for s in sges {
            wqe.extend(s.0.to_le_bytes());
            wqe.extend(s.1.to_le_bytes());
            wqe.extend([0; 4]);
        }
        wqe.resize(128, 0xee);
        let at = element(qp.q, qp.pi);
        self.rings.extend((at..).zip(wqe));
        qp.pi = qp.pi.wrapping_add(1);
        let local = (size == 0 && !self.world.message_mode).then_some(0);
        if local.is_none() {
            qp.credits.push(qp.recvs.len());
        }
        qp.recvs.push(Recv { wr_id, sges: sges.to_vec(), size, local });
    }

    /// Changes the first byte of the receive posted last, so that it is malformed.
    pub fn spoil(&mut self, i: usize) {
        let qp = &mut self.qps[i];
        let at = element(qp.q, qp.pi.wrapping_sub(1));
        self.rings.insert(at, 9);
        let last = qp.recvs.len() - 1;
        if qp.recvs[last].local.is_none() {
            assert_eq!(qp.credits.pop(), Some(last));
        }
        qp.recvs[last].local = Some(1);
    }

    /// The memory of the receive posted last cannot be had; false if it has none. Receives must not share pages.
    pub fn refuse(&mut self, i: usize, status: u8) -> bool {
        let qp = &mut self.qps[i];
        let last = qp.recvs.len() - 1;
        let recv = &mut qp.recvs[last];
        let ranges: Vec<_> = recv.sges.iter().filter(|s| s.1 > 0).collect();
        if ranges.is_empty() || recv.local.is_some() {
            return false;
        }
        let sge = ranges[self.rng.below(ranges.len() as u64) as usize];
        let page = (sge.0 + self.rng.below(sge.1.into())) / PAGE;
        self.host.refuse(qp.q, page, status);
        recv.local = Some(match u32::from(status) {
            PAGE_OVER_BUDGET => WC_OVER_BUDGET,
            PAGE_NO_MEMORY => WC_NO_MEMORY,
            _ => WC_LOCAL_PROTECTION,
        });
        assert_eq!(qp.credits.pop(), Some(last));
        true
    }

    pub fn ring(&mut self, i: usize) {
        let (q, pi) = (self.qps[i].q, self.qps[i].pi);
        self.doorbells.push_back((q, pi));
    }

    /// A doorbell with any index.
    pub fn ring_at(&mut self, i: usize, pi: u16) {
        self.doorbells.push_back((self.qps[i].q, pi));
    }

    /// Receives that are posted and not complete.
    pub fn open(&self, i: usize) -> usize {
        self.qps[i].recvs.len() - self.qps[i].cqes.len()
    }

    /// Credits that the far end of QP `i` has and has not used; without lists, all receives that are posted.
    pub fn usable(&self, i: usize) -> u32 {
        let qp = &self.qps[i];
        if self.world.foreign { qp.credits.len() as u32 - qp.used } else { qp.has - qp.used }
    }

    /// The far end sends a message of at most `len` bytes with its next credit; in message mode it must fit.
    pub fn send(&mut self, i: usize, len: u32, push: bool) {
        let invalidates = self.world.invalidates != 0 && self.rng.below(100) < self.world.invalidates;
        let qp = &mut self.qps[i];
        let size = qp.recvs[qp.credits[qp.used as usize]].size;
        let len = len.min(size);
        let message = Message {
            op: Op::Send,
            tag: qp.used,
            offset: qp.offset,
            len,
            credit: qp.used,
            imm: match (self.world.message_mode, qp.used % 3) {
                (true, _) if invalidates => Immediate::Invalidate(qp.used.wrapping_mul(0x85eb_ca6b)),
                (false, _) => Immediate::Remaining,
                (true, 0) => Immediate::Value(qp.used.wrapping_mul(0x9e37_79b9)),
                (true, _) => Immediate::None,
            },
            solicited: push,
            ..Message::default()
        };
        if qp.requester.post(message).is_ok() {
            qp.sent.push((qp.offset, len));
            qp.offset += u64::from(len);
            qp.used += 1;
        }
    }

    /// A key of QP `i`'s address space comes, or changes in the model: the table has it from then on.
    pub fn bind(&mut self, i: usize, binding: Binding) -> u32 {
        let entropy = self.rng.draw();
        let key = self.keys.allocate(DOMAIN, entropy).expect("a place");
        self.keys.bind(key, binding).expect("a range");
        self.store_key(i, key);
        key
    }

    /// What the model has in the place of a key.
    pub fn store_key(&mut self, i: usize, key: u32) {
        let place = key >> 8 & 63;
        for (word, value) in (recv::KEY..).zip(self.keys.words(place as usize, self.qps[i].q as u8)) {
            self.config(word, value);
        }
        // The table has more places than the model.
        let argument = key >> 8 & (berth_abi::card::NUM_KEYS - 1);
        self.config(recv::COMMAND, recv::Command { opcode: recv::CMD_KEY_STORE, argument }.word());
    }

    /// The far end writes `len` bytes to `va`; with an immediate it uses its next credit.
    pub fn write(&mut self, i: usize, va: u64, len: u32, key: u32, immediate: Option<u32>) {
        let qp = &mut self.qps[i];
        let message = Message {
            op: Op::Write,
            tag: u32::MAX,
            offset: qp.offset,
            len,
            imm: immediate.map_or(Immediate::None, Immediate::Value),
            remote: Remote { va, key, len },
            ..Message::default()
        };
        if qp.requester.post(message).is_ok() {
            qp.written.push((va, qp.offset, len));
            if immediate.is_some() {
                qp.sent.push((qp.offset, 0));
                qp.used += 1;
            }
            qp.offset += u64::from(len);
        }
    }

    /// The far end reads `len` bytes from `va`.
    pub fn read_from(&mut self, i: usize, va: u64, len: u32, key: u32) {
        let qp = &mut self.qps[i];
        let remote = Remote { va, key, len };
        let message = Message { op: Op::Read, tag: u32::MAX, offset: qp.offset, len, remote, ..Message::default() };
        if qp.requester.post(message).is_ok() {
            qp.reads.push((va, qp.offset, len));
            qp.offset += u64::from(len);
        }
    }

    /// The far end does an atomic.
    pub fn change(&mut self, i: usize, atomic: Atomic, key: u32) {
        let qp = &mut self.qps[i];
        let [swap, compare] = atomic.operands;
        let op = if atomic.add { Op::FetchAdd { add: swap } } else { Op::CompareSwap { compare, swap } };
        let remote = Remote { va: atomic.va, key, len: 8 };
        // The tag says which it is.
        let tag = qp.atomics.len() as u32;
        let message = Message { op, tag, offset: 0, len: 8, remote, ..Message::default() };
        if qp.requester.post(message).is_ok() {
            qp.atomics.push((atomic, None));
        }
    }

    /// Memory of QP `i` that its peer may read has a content that says where it is.
    pub fn fill(&mut self, i: usize, va: u64, len: u32) {
        let (q, bytes) = (self.qps[i].q, (va..va + u64::from(len)).map(|at| pattern(1, at)).collect::<Vec<_>>());
        self.host.write(q, va, &bytes);
    }

    /// All READs of QP `i` have brought what is in memory.
    pub fn check_read(&mut self, i: usize) {
        let (q, reads) = (self.qps[i].q, self.qps[i].reads.clone());
        for (va, offset, len) in reads {
            let there = self.memory(q, va, len);
            let came: Vec<_> = (offset..offset + u64::from(len)).map(|at| self.qps[i].read.get(&at).copied()).collect();
            assert_eq!(came, there.into_iter().map(Some).collect::<Vec<_>>(), "QP {q}, {len} bytes at {va:#x}");
        }
    }

    /// All atomics of QP `i`, on memory that nothing else writes to, were carried out once, in their order, and each has brought
    /// what stood there.
    pub fn check_atomics(&mut self, i: usize) {
        let (q, posted) = (self.qps[i].q, self.qps[i].atomics.clone());
        assert_eq!(self.qps[i].carried_out, posted.len(), "QP {q}");
        let mut numbers = HashMap::new();
        for (Atomic { add, va, operands }, original) in posted {
            let there = numbers.entry(va).or_insert(u64::from_le_bytes([FRESH; 8]));
            assert_eq!(original, Some(*there), "QP {q}, {va:#x}");
            if add {
                *there = there.wrapping_add(operands[0]);
            } else if *there == operands[1] {
                *there = operands[0];
            }
        }
        for (va, number) in numbers {
            assert_eq!(self.memory(q, va, 8), number.to_le_bytes(), "QP {q}, {va:#x}");
        }
    }

    /// The page at `va` of QP `i`'s address space cannot be had.
    pub fn deny(&mut self, i: usize, va: u64) {
        self.host.refuse(self.qps[i].q, va / PAGE, PAGE_FAULT as u8);
    }

    /// The bytes of all WRITEs to QP `i` are where they are to be: of those that overlap, the last one's.
    pub fn check_written(&mut self, i: usize) {
        let (q, written) = (self.qps[i].q, self.qps[i].written.clone());
        let mut there = HashMap::new();
        for (va, offset, len) in written {
            there.extend((0..u64::from(len)).map(|k| (va + k, pattern(q, offset + k))));
        }
        for (va, byte) in there {
            assert_eq!(self.memory(q, va, 1), [byte], "QP {q}, {va:#x}");
        }
    }

    /// The frame of a request.
    pub fn frame(&self, i: usize, p: &RequestPacket, payload: &[u8]) -> Vec<u8> {
        let q = self.qps[i].q;
        let headers = wire::reliable::emit_request(Service::Rc, p).expect("a packet of a requester");
        let mut bth = Bth::new(headers.opcode, q, p.psn);
        (bth.ack_request, bth.solicited) = (p.ack_request, p.solicited);
        Self::emit(q, bth, headers.ext, &[headers.prefix(), payload])
    }

    fn emit(q: u32, bth: Bth, ext: Extended, payload: &[&[u8]]) -> Vec<u8> {
        let ip = Ipv4 { from: Self::peer_ip(q), to: OWN_IP, traffic_class: 0, id: 0, df: true, ttl: 64 };
        let eth = Eth { to: OWN_MAC, from: Self::peer_mac(q) };
        let packet = Packet { eth, ip: Ip::V4(ip), source_port: 0xc000, bth, ext };
        let mut out = vec![0; SLOT as usize];
        let len = wire::emit(&packet, payload, &mut out).expect("a frame");
        out.truncate(len);
        out
    }

    /// An acknowledgement that comes from the far end.
    pub fn ack_frame(&self, i: usize, p: &ResponsePacket) -> Vec<u8> {
        let headers = wire::reliable::emit_response(Service::Rc, p);
        Self::emit(self.qps[i].q, Bth::new(headers.opcode, self.qps[i].q, p.psn), headers.ext, &[headers.prefix()])
    }

    /// A credit list that comes from the far end.
    pub fn list_frame(&self, i: usize, first: u32, sizes: &[u32]) -> Vec<u8> {
        self.carried_list(CARRIER_CONTROL, i, first, sizes)
    }

    /// The same over another carrier (CR-12).
    pub fn carried_list(&self, carrier: u32, i: usize, first: u32, sizes: &[u32]) -> Vec<u8> {
        let q = self.qps[i].q;
        let mut record = vec![REC_LIST | (3 + sizes.len() as u32) << 8 | q << 16, 0x5000 + q, first];
        record.extend(sizes);
        let bytes: Vec<u8> = record.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (bth, ext) = list_headers(carrier, 0x1234, q, QKEY, bytes.len() as u32).expect("a carrier");
        Self::emit(q, bth, ext, &[&bytes])
    }

    /// Puts a frame on the wire; it arrives after `delay`, or as the world's faults have it.
    pub fn inject(&mut self, frame: Vec<u8>, delay: u64) {
        self.wire.push((self.now + delay, frame));
    }

    /// Memory of a process.
    pub fn memory(&mut self, q: u32, va: u64, len: u32) -> Vec<u8> {
        self.host.read(q, va, len as usize)
    }

    /// Why QP `i` is broken, if firmware was told so.
    pub fn broken(&self, i: usize) -> Option<u32> {
        self.qps[i].broken
    }

    /// Pages that are held.
    pub fn held(&self) -> u32 {
        self.host.pages()
    }

    /// No frame is in a slot.
    pub fn slots_are_free(&self) -> bool {
        self.free.len() == SLOTS as usize
    }

    fn ready(&mut self) -> bool {
        self.world.stall == 0 || self.rng.below(100) >= self.world.stall
    }

    /// What the far ends have to send goes on the wire.
    fn transmit(&mut self) {
        for i in 0..self.qps.len() {
            if self.qps[i].ended.is_some() {
                continue;
            }
            while let Some(t) = self.qps[i].requester.transmit(self.now) {
                let q = self.qps[i].q;
                let payload: Vec<u8> = (t.offset..t.offset + u64::from(t.packet.len)).map(|o| pattern(q, o)).collect();
                let frame = self.frame(i, &t.packet, &payload);
                if self.rng.below(100) < self.world.loss {
                    continue;
                }
                let mut delay = 20;
                if self.rng.below(100) < self.world.late {
                    delay += self.rng.below(400);
                }
                if self.rng.below(100) < self.world.twice {
                    self.inject(frame.clone(), delay + self.rng.clone().below(600));
                }
                self.inject(frame, delay);
            }
            self.qps[i].requester.tick(self.now);
            while self.qps[i].requester.complete().is_some() {}
        }
        let mut k = 0;
        while k < self.back.len() {
            if self.back[k].0 > self.now {
                k += 1;
                continue;
            }
            let (_, i, p, payload) = self.back.remove(k);
            let outcome = self.qps[i].requester.response(self.now, &p);
            assert_ne!(outcome, Outcome::Bad, "the far end does not understand {p:?}");
            if let Outcome::Read { offset, len, .. } = outcome {
                assert_eq!(len as usize, payload.len());
                self.qps[i].read.extend((offset..).zip(payload));
            }
            if let Outcome::Atomic { tag, original, .. } = outcome {
                assert_eq!(self.qps[i].atomics[tag as usize].1.replace(original), None, "answered twice");
            }
        }
        // Frames that have arrived take slots, in the order of their arrival.
        while !self.free.is_empty() {
            let next = self.wire.iter().enumerate().filter(|(_, f)| f.0 <= self.now).min_by_key(|(n, f)| (f.0, *n));
            let Some(n) = next.map(|(n, _)| n) else { break };
            let (_, bytes) = self.wire.remove(n);
            let slot = self.free.remove(0);
            self.stored.insert(slot, bytes.clone());
            self.arrived.push_back(Frame { slot, bytes });
        }
    }

    /// One clock.
    pub fn step(&mut self) {
        self.transmit();
        self.put("now", (self.now / 64) & 0xffff_ffff);
        for name in
            ["fe_ready", "qr_ready", "xa_ready", "cf_ready", "store_ready", "fcq_ready", "ack_ready", "lst_ready"]
        {
            let ready = self.ready() && self.stuck != Some(name);
            self.put(name, ready.into());
        }
        self.put("lst_over", self.lists_unwanted.into());
        for name in ["afr_ready", "lfr_ready", "rsp_ready"] {
            let ready = self.ready() && self.stuck != Some(name);
            self.put(name, ready.into());
        }
        // No chance is drawn while nothing is asked for.
        let ready = self.changes.len() < ATOMICS && self.stuck != Some("change_ready");
        let ready = ready && (!self.is("change_valid") || self.ready());
        self.put("change_ready", ready.into());
        let done =
            (0..self.changes.len()).filter(|&i| self.changes[i].0 <= self.now).min_by_key(|&i| self.changes[i].0);
        let done = done.map(|i| self.changes.swap_remove(i));
        self.put("changed_valid", done.is_some().into());
        if let Some((_, tag, original)) = done {
            self.put("changed.tag", tag);
            self.put("changed.failed", original.is_none().into());
            self.put("changed.original", original.unwrap_or(0xdead));
        }
        match self.doorbells.front().copied() {
            Some((q, pi)) => {
                self.put("fdb.qpn", q.into());
                self.put("fdb.pi", pi.into());
                self.put("fdb_valid", 1);
            }
            None => self.put("fdb_valid", 0),
        }
        self.show_frame();
        let hd = self.hd.take();
        if let Some(addr) = hd {
            let (slot, at) = (addr / SLOT, (addr % SLOT) as usize);
            let bytes = &self.stored[&slot];
            let word = (0..4).fold(0, |w, k| w | u64::from(bytes.get(at + k).copied().unwrap_or(0)) << (8 * k));
            self.put("hd_data", word);
        }
        self.show_read();
        let done = self.writes.front().copied().filter(|w| w.0 <= self.now);
        self.put("stored_valid", done.is_some().into());
        if let Some((_, tag, status)) = done {
            self.writes.pop_front();
            self.put("stored.tag", tag.into());
            self.put("stored.status", status.into());
        }
        self.show_loaded();
        let due = self.host.reply(self.now, 0);
        self.put("xr_valid", due.is_some().into());
        if let Some(reply) = due {
            self.put("xr.tag", reply.tag.into());
            self.put("xr.kind", reply.kind.into());
            self.put("xr.status", reply.status.into());
        }
        self.m.settle();

        if self.is("fdb_valid") && self.is("fdb_ready") {
            self.doorbells.pop_front();
        }
        if self.is("rf_valid") && self.is("rf_ready") {
            let frame = self.arrived.pop_front().expect("a frame was shown");
            self.last_frame = self.now;
            self.heard(&frame.bytes);
        }
        if self.is("hd_re") {
            self.hd = Some(self.get("hd_addr") as u32);
        }
        if let Some(reply) = due
            && self.is("xr_ready")
        {
            self.host.taken(reply);
            if reply.tag & TARGETS == 0
                && let Some(n) = self.acquired.get_mut(reply.kind as usize)
            {
                *n += 1;
            }
        }
        self.take_translation();
        self.take_write();
        self.take_reads();
        self.take_change();
        self.take_answer();
        self.follow();
        self.take_answers();
        if self.is("rfree_valid") {
            let slot = self.get("rfree_place") as u32 / SLOT;
            assert!(!self.free.contains(&slot), "a frame is given back twice");
            self.stored.remove(&slot);
            self.free.push(slot);
        }
        self.count();
        self.m.edge();
        self.now += 1;
    }

    /// The pulses for the card's counters, and whether it is at rest.
    fn count(&mut self) {
        self.strays_counted += u32::from(self.is("ev.stray"));
        self.acquired[0] -= i64::from(self.is("ev.hit"));
        self.acquired[1] -= i64::from(self.is("ev.miss"));
        self.posted += u64::from(self.is("ev.posted"));
        assert_eq!(self.is("ev.answer"), self.is("rsp_valid") && self.is("rsp_ready"));
        self.atomics_counted += i64::from(self.is("ev.atomic"));
        self.atomics_counted_again += u64::from(self.is("ev.atomic_again"));
        if self.is("ev.lists") {
            let len = self.get("ev.list_len") as u32;
            self.lists_counted.push_back(len);
        }
        self.repeats_counted += u32::from(self.is("ev.list_again"));
        // Of each packet one of these is said, when it has been judged.
        let word = if self.is("trace_valid") { self.get("trace_word") } else { u64::MAX };
        let judged = match (word >> 60, word >> 56 & 15, word >> 52 & 15) {
            (0, 0 | 1, _) => [true, false, false, false],
            (0, 2, _) => [false, true, false, false],
            (0, 3, 1) => [false, false, true, false],
            (0, 3, _) => [false, false, false, true],
            _ => [false; 4],
        };
        let said = ["ev.taken", "ev.duplicate", "ev.out_of_order", "ev.dropped"].map(|name| self.is(name));
        assert_eq!(said, judged, "counted for {word:#x}, cycle {}", self.now);
        let busy = self.is("busy");
        for name in ["xa_valid", "afr_valid", "lfr_valid", "rsp_valid", "trace_valid"] {
            assert!(busy || !self.is(name), "at rest with {name}, cycle {}", self.now);
        }
    }

    /// The module, as it is.
    pub fn into_module(self) -> Module {
        self.m
    }

    /// Looks at the repeat timers of all rows: those that run, with their ends.
    pub fn timers(&mut self, rows: usize) -> Vec<u32> {
        self.put("hurry", 1);
        let (mut looks, mut ends) = (0, Vec::new());
        for n in 0.. {
            assert!(n < 100 * rows, "the timers are not looked at");
            self.step();
            if self.is("swept") {
                looks += 1;
                if self.is("swept_on") {
                    let end = self.get("swept_at") as u32;
                    ends.push(end);
                }
                if looks == rows {
                    break;
                }
            }
        }
        self.put("hurry", 0);
        ends
    }

    fn show_frame(&mut self) {
        let hold = self.rng.below(100) < self.world.stall;
        let shown = self.is("rf_valid") && self.arrived.front().is_some();
        if let Some(frame) = self.arrived.front()
            && (!hold || shown)
        {
            let mut header = frame.bytes.clone();
            header.resize(96, 0);
            let words: Vec<u64> =
                header.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))).collect();
            let (addr, len) = (frame.slot * SLOT, frame.bytes.len());
            let p = self.p("rf_hdr");
            self.m.set_wide(p, &words);
            self.put("rf.place", addr.into());
            self.put("rf.len", len as u64);
            self.put("rf.flags", (RX_FLAG_ICRC_OK | RX_FLAG_ROCE).into());
            self.put("rf_valid", 1);
        } else {
            self.put("rf_valid", 0);
        }
    }

    /// The model will be asked about this frame's packet.
    fn heard(&mut self, frame: &[u8]) {
        let Ok((packet, payload)) = wire::parse_trusted(frame) else { return };
        let Some(i) = self.qps.iter().position(|qp| qp.q == packet.bth.qpn) else { return };
        let Ok((request, _)) = wire::reliable::parse_request(&packet, payload, self.world.selective) else { return };
        let mine = match request.kind {
            Kind::Send | Kind::Write => true,
            _ => self.world.reads > 0 && request.len == 0,
        };
        if mine {
            self.qps[i].packets.push_back(request);
        }
    }

    fn show_read(&mut self) {
        let host = self.p("qc_data").bits() / 8;
        let ready: Vec<usize> = (0..self.reads.len()).filter(|&k| self.reads[k].0 <= self.now).collect();
        self.put("qc_valid", (!ready.is_empty()).into());
        if ready.is_empty() {
            return;
        }
        // Requests in any order, the beats of one in theirs.
        let k = ready[self.rng.below(ready.len() as u64) as usize];
        let (_, tag, addr, len, at) = self.reads[k];
        let bytes: Vec<u8> = (0..host).map(|n| *self.rings.get(&(addr + u64::from(at + n))).unwrap_or(&0xdd)).collect();
        let words: Vec<u64> = bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))).collect();
        let p = self.p("qc_data");
        self.m.set_wide(p, &words);
        self.put("qc.tag", tag.into());
        self.put("qc.off", at.into());
        self.put("qc.last", (at + host >= len).into());
        self.put("qc.err", 0);
        self.reads[k].4 += host;
        if at + host >= len {
            self.reads.remove(k);
        }
    }

    fn take_reads(&mut self) {
        if self.is("qr_valid") && self.is("qr_ready") {
            let (addr, len, tag) = (self.get("qr.addr"), self.get("qr.len") as u32, self.get("qr.tag") as u8);
            assert!(len.is_multiple_of(128) && (128..=512).contains(&len) && addr % PAGE + u64::from(len) <= PAGE);
            let when = self.now + self.world.read;
            self.reads.push((when, tag, addr, len, 0));
        }
    }

    fn take_translation(&mut self) {
        if !(self.is("xa_valid") && self.is("xa_ready")) {
            return;
        }
        let (asid, va, len) = (self.get("xa.asid") as u32, self.get("xa.va"), self.get("xa.len"));
        assert!(len > 0);
        let write = self.is("xa.write");
        let span = Span { asid, va, len, write };
        if self.is("xa.give_back") {
            return self.host.release(span);
        }
        let tag = self.get("xa.tag") as u16;
        // Receives are for writing, and held until they are complete.
        assert!(write && !self.is("xa.probe") && !self.is("xa.quiet") || tag & TARGETS != 0);
        if self.is("xa.quiet") && self.is("xa.probe") {
            return self.host.see(self.now, 0, tag, span);
        }
        if self.is("xa.quiet") {
            return self.host.look(self.now, 0, tag, span);
        }
        if self.is("xa.probe") {
            self.targets += 1;
            return self.host.probe(self.now, 0, tag, span);
        }
        // What is taken back is asked for once more, in an order that depends on when.
        let first = self.host.acquire(self.now, 0, tag, span) && !self.taking_back;
        if let Some(qp) = self.qps.iter_mut().find(|qp| first && qp.q == asid) {
            qp.pinned(va, len as u32);
        }
    }

    fn take_write(&mut self) {
        if !(self.is("store_valid") && self.is("store_ready")) {
            return;
        }
        let (local, len) = (self.get("store.place") as u32, self.get("store.len") as u32);
        let (asid, va, tag) = (self.get("store.asid") as u32, self.get("store.va"), self.get("store.tag") as u8);
        assert!(len > 0);
        let status = u8::from(!self.host.reaches(Span { asid, va, len: len.into(), write: true }));
        if status == 0 {
            let at = (local % SLOT) as usize;
            self.host.write(asid, va, &self.stored[&(local / SLOT)][at..at + len as usize]);
        }
        let beats = u64::from(len.div_ceil(self.world.width / 8));
        let after = self.writes.back().map_or(0, |w| w.0 + 1);
        self.writes.push_back(((self.now + self.world.write + beats).max(after), tag, status));
    }

    /// An atomic changes memory, which must be held meanwhile. Those that the far end has posted do so once, in their order.
    fn take_change(&mut self) {
        if !(self.is("change_valid") && self.is("change_ready")) {
            return;
        }
        let operands = [self.get("change.operand"), self.get("change.compare")];
        let (asid, va, add) = (self.get("change.asid") as u32, self.get("change.va"), self.is("change.add"));
        let tag = self.get("change.tag");
        let atomic = Atomic { add, va, operands };
        let there = self.host.reaches(Span { asid, va, len: 8, write: true });
        let when = self.now + 2 + self.rng.below(self.world.read + 1);
        if !there || self.rng.below(100) < self.change_fails {
            self.changes.push((when, tag, None));
            return;
        }
        let original = u64::from_le_bytes(self.memory(asid, va, 8).try_into().expect("8 bytes"));
        let new = match add {
            true => original.wrapping_add(operands[0]),
            false if original == operands[1] => operands[0],
            false => original,
        };
        self.host.write(asid, va, &new.to_le_bytes());
        self.atomics_counted -= 1;
        self.changes.push((when, tag, Some(original)));
        let qp = self.qps.iter_mut().find(|qp| qp.q == asid).expect("a QP");
        if let Some((posted, _)) = qp.atomics.get(qp.carried_out) {
            assert_eq!(*posted, atomic, "QP {}: not the next atomic", qp.q);
        }
        qp.carried_out += 1;
        qp.changed.push_back((atomic, original));
    }

    /// A packet of an answer is given: its payload, which must be held meanwhile, is read.
    fn take_answer(&mut self) {
        if !(self.is("rsp_valid") && self.is("rsp_ready")) {
            return;
        }
        let (q, tag) = (self.get("rsp_q") as u32, self.get("rsp.tag") as u8);
        let (psn, msn, len) = (self.get("rsp.psn") as u32, self.get("rsp.msn") as u32, self.get("rsp.len") as u32);
        let position = match (self.is("rsp.begins"), self.is("rsp.ends")) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let mut body = ResponseBody::Read { position, len };
        if self.is("rsp.atomic") {
            assert_eq!((position, len), (Position::Only, 0));
            body = ResponseBody::Atomic { original: self.get("rsp.original") };
        }
        let packet = ResponsePacket { psn, msn, body };
        let answer = Answer { packet, va: self.get("rsp.va"), asid: self.get("rsp.asid") as u32 };
        let i = self.qps.iter().position(|qp| qp.q == q).expect("a QP");
        self.qps[i].given.push_back(answer.clone());
        self.qps[i].leaving.push_back((tag, packet, None));
        // One after the other, or in any order.
        let when = self.now + 2 + self.rng.below(self.world.read + 1);
        self.loads.push((when, i, tag, answer));
    }

    fn show_loaded(&mut self) {
        let due = self.loads.iter().position(|load| load.0 <= self.now);
        self.put("rspd_valid", due.is_some().into());
        let Some(k) = due else { return };
        let (_, i, tag, Answer { packet, va, asid }) = self.loads.remove(k);
        let len = if let ResponseBody::Read { len, .. } = packet.body { len } else { 0 };
        let there = len == 0 || self.host.reaches(Span { asid, va, len: len.into(), write: false });
        let failed = !there || self.rng.below(100) < self.read_fails;
        self.put("rspd.tag", tag.into());
        self.put("rspd.failed", failed.into());
        let payload = if failed { None } else { Some(self.memory(asid, va, len)) };
        let mut leaving = core::mem::take(&mut self.qps[i].leaving);
        if let Some(of_it) = leaving.iter_mut().find(|(of, _, there)| *of == tag && there.is_none()) {
            of_it.2 = Some(payload);
        }
        // Frames keep their order.
        while let Some((_, packet, Some(there))) = leaving.front().cloned() {
            leaving.pop_front();
            if let Some(payload) = there
                && self.rng.below(100) >= self.world.loss
            {
                self.back.push((self.now + 20, i, packet, payload));
            }
        }
        self.qps[i].leaving = leaving;
    }

    /// What arrival has been told of is what the model answers.
    fn answered(&mut self, i: usize, again: bool, failed: bool, psn: u32) {
        let qp = &mut self.qps[i];
        if failed {
            qp.unanswered = true;
            qp.model.fail();
            return;
        }
        let here = |given: &Answer| matches!(given.packet, ResponsePacket { psn: p, body: ResponseBody::Atomic { .. }, .. } if p == psn);
        let atomic = qp.given.front().is_some_and(here);
        if again && let Some(known) = *qp.repeats.front().expect("it was asked for") {
            qp.repeats.pop_front();
            self.repeated += u64::from(atomic);
            if !atomic {
                // The RTL knows no more what it gave, which it does of the last ones.
                let forgotten =
                    qp.jobs.iter().rev().position(|&job| job == psn).is_none_or(|n| n >= MAX_READS as usize);
                assert!(forgotten || !known, "QP {}: atomic {psn:#x} is not known", qp.q);
                if known {
                    qp.model.answer_again();
                }
                qp.unfinished[1] -= 1;
                return;
            }
        } else if atomic {
            let (of, wanted) =
                qp.atomic.take().unwrap_or_else(|| panic!("QP {}: the model has no atomic {psn:#x}", qp.q));
            let (done, original) = qp.changed.pop_front().expect("it has changed memory");
            assert_eq!((of, wanted), (psn, done), "QP {}", qp.q);
            qp.model.atomic_done(psn, original);
        }
        let given = qp.given.pop_front().expect("it was given");
        let model = if again { qp.model.answer_again() } else { qp.model.answer() };
        let reply = model.unwrap_or_else(|| panic!("QP {}: the model does not answer {given:x?}", qp.q));
        let Some(remote) = reply.payload else {
            let msn = if again { given.packet.msn } else { reply.packet.msn };
            assert_eq!(given.packet, ResponsePacket { msn, ..reply.packet }, "QP {}", qp.q);
            self.answers[usize::from(again)] += 1;
            self.qps[i].unfinished[usize::from(again)] -= 1;
            return;
        };
        // What is asked for again may have left before another message was complete.
        let msn = if again { given.packet.msn } else { reply.packet.msn };
        assert_eq!(given.packet, ResponsePacket { msn, ..reply.packet }, "QP {}", qp.q);
        assert!(given.va == remote.va || remote.len == 0, "QP {}: {given:x?}, {remote:x?}", qp.q);
        assert_eq!((given.packet.psn, u32::from(given.asid == qp.q || remote.len == 0)), (psn, 1));
        self.answers[usize::from(again)] += 1;
        let ends = matches!(given.packet.body, ResponseBody::Read { position, .. } if position.ends());
        if again && ends {
            self.qps[i].repeats.pop_front();
        }
        self.qps[i].unfinished[usize::from(again)] -= usize::from(ends);
    }

    /// Does with the models what the RTL's arrival has done.
    fn follow(&mut self) {
        if self.is("trace_landed") {
            let q = self.get("trace_landed_q") as u32;
            self.qps.iter_mut().find(|qp| qp.q == q).expect("a QP").rtl_landed += 1;
        }
        if !self.is("trace_valid") {
            return;
        }
        let word = self.get("trace_word");
        let (op, verdict, fault) = (word >> 60 & 3, word >> 56 & 15, (word >> 52 & 15) as u32);
        let (q, err, psn) = ((word >> 36) as u16, word >> 24 & 1, word as u32 & 0xff_ffff);
        let Some(i) = self.qps.iter().position(|qp| qp.q == u32::from(q)) else { return };
        if self.qps[i].ended.is_some() || self.qps[i].alone {
            return;
        }
        let answer = word >> 62 & 1 != 0;
        if answer {
            self.answered(i, word >> 63 != 0, err != 0, psn);
        }
        let qp = &mut self.qps[i];
        match op {
            _ if answer => (),
            0 => {
                let p = qp.packets.pop_front().expect("the RTL judges a packet that did not come");
                assert_eq!(p.psn, psn);
                let sizes: Vec<u32> = qp.credits.iter().map(|&r| qp.recvs[r].size).collect();
                let to = match self.world.foreign {
                    // Those that the RTL has granted by now.
                    true => qp.complete + (word >> 25 & 0xff) as u32,
                    false => qp.announced,
                };
                assert!(to as usize <= qp.credits.len());
                let (keys, qpn) = (&mut self.keys, qp.q);
                let memory = match fault {
                    FAULT_NOT_RESIDENT => Admit::NotYet,
                    FAULT_PAGE => Admit::Failed,
                    _ => Admit::Yes,
                };
                let mut target =
                    Credits { qp: &sizes, from: qp.complete, to, keys, qpn, denies: self.world.denies as u8, memory };
                let old = psn.wrapping_sub(qp.model.arrival().placed().get()) & 0x80_0000 != 0;
                let judge = |verdict| match verdict {
                    Verdict::Place(_) => (0, 0),
                    Verdict::Taken => (1, 0),
                    Verdict::Duplicate => (2, 0),
                    Verdict::Drop(f) => (3, fault_code(f)),
                };
                // The model does not know how many are too many.
                let unfinished = &mut qp.unfinished[usize::from(old)];
                let full = p.kind.answered()
                    && (verdict, fault) == (3, FAULT_INVALID)
                    && *unfinished >= self.world.reads as usize;
                let atomic = p.kind.answered() && p.kind != Kind::Read;
                let behind = qp.model.arrival().placed().get().wrapping_sub(psn) & 0xff_ffff;
                // What the RTL knows of old atomics is found out later; the model says at once that it does not.
                let too_old = atomic && old && behind > 256 && qp.model.broken().is_none();
                let answer = match full && judge(qp.model.clone().receive(&p, &mut target)) != (3, FAULT_INVALID) {
                    true if old => (3, FAULT_INVALID),
                    true => {
                        qp.model.reject(NakCode::InvalidRequest);
                        (3, FAULT_INVALID)
                    }
                    false if too_old => (3, FAULT_OUT_OF_WINDOW),
                    false => judge(qp.model.receive(&p, &mut target)),
                };
                let unknown = atomic && old && !too_old && answer == (3, FAULT_OUT_OF_WINDOW);
                let answer = if unknown { (2, 0) } else { answer };
                let taken = p.kind.answered() && (verdict == 1 || (old && verdict == 2));
                *unfinished += usize::from(taken);
                if taken && old {
                    qp.repeats.push_back(atomic.then_some(!unknown));
                }
                if taken && !old {
                    qp.jobs.push(psn);
                }
                self.verdicts[verdict as usize + fault as usize] += 1;
                assert_eq!((verdict, fault), answer, "QP {q}, cycle {}: {p:?}", self.now);
            }
            1 if err == 0 => qp.model.placed(psn),
            1 => qp.model.fail(),
            2 => {
                let reply = qp.model.acknowledge();
                assert_eq!(verdict == 1, reply.is_some(), "QP {q}: acknowledgement {reply:?}");
                qp.acks.extend(reply.map(|r| r.packet));
            }
            _ if word >> 33 & 3 != 0 => qp.model.invalidated(word >> 33 & 1 != 0),
            _ => return,
        }
        while let Some(event) = qp.model.event() {
            match event {
                Event::Landed { credit } => {
                    assert_eq!(credit, qp.landed);
                    qp.landed += 1;
                }
                Event::Invalidate { key } => assert_eq!(qp.invalidate.replace(key), None, "QP {q}"),
                Event::Received { credit, len, imm, invalidated, solicited, write } => {
                    assert_eq!(credit, qp.complete);
                    qp.complete += 1;
                    qp.expected.push_back((credit, len, imm, invalidated, solicited, write));
                }
                Event::Used { key, first } => self.keys.used(qp.q, key, first),
                Event::Atomic { psn, kind, remote, operands } => {
                    let atomic = Atomic { add: kind == Kind::FetchAdd, va: remote.va, operands };
                    assert_eq!(qp.atomic.replace((psn, atomic)), None, "QP {q}");
                }
                _ => (),
            }
        }
        assert_eq!(qp.landed, qp.rtl_landed, "QP {q}");
        self.check_completions(i);
    }

    fn take_answers(&mut self) {
        if self.is("afr_valid") && self.is("afr_ready") {
            let q = self.get("afr_q") as u32;
            let i = self.qps.iter().position(|qp| qp.q == q).expect("a QP");
            let sack = self.is("afr.has_sack").then(|| self.sack("afr.sack"));
            let syndrome = Syndrome::from_byte(self.get("afr.syndrome") as u8).expect("a syndrome");
            let body = ResponseBody::Ack { syndrome, sack };
            let packet = ResponsePacket { psn: self.get("afr.psn") as u32, msn: self.get("afr.msn") as u32, body };
            if !self.qps[i].alone && self.qps[i].ended.is_none() {
                assert_eq!(Some(packet), self.qps[i].acks.pop_front(), "QP {q}");
            }
            self.replies.push(packet);
            if self.rng.below(100) >= self.world.loss {
                self.back.push((self.now + 20, i, packet, Vec::new()));
            }
        }
        if self.is("fcq_valid") && self.is("fcq_ready") {
            self.take_completion();
        }
        if self.is("lfr_valid") && self.is("lfr_ready") {
            self.take_list();
        }
        if self.is("fe_valid") && self.is("fe_ready") {
            let word = self.get("fe");
            let event = FastEvent::from_word(word);
            let argument = event.argument as u32;
            if let Some(qp) = self.qps.iter_mut().find(|qp| u64::from(qp.q) == event.qpn)
                && event.code as u32 == EVENT_BROKEN
            {
                qp.broken = Some(Broken::from_word(argument).fault);
            }
            // Firmware tells the peer to go on.
            if event.code as u32 == EVENT_INVALIDATE {
                let q = event.qpn as u32;
                let qp = self.qps.iter_mut().find(|qp| qp.q == q).expect("a QP");
                if !qp.alone && qp.ended.is_none() {
                    assert!(qp.invalidate.take().is_some(), "QP {q}");
                }
                self.invalidations.push((self.now + self.rng.below(1000), q));
            } else if event.code as u32 == EVENT_TARGET {
                let qp = self.qps.iter_mut().find(|qp| u64::from(qp.q) == event.qpn).expect("a QP");
                qp.requester.go(self.now, Came::from_word(argument).psn);
            } else {
                self.events.push(word);
            }
        }
        if self.is("cf_valid") && self.is("cf_ready") {
            let (addr, len) = (self.get("cf.place") as u32, self.get("cf.len") as u32);
            self.core.push((addr, len));
            self.stored.remove(&(addr / SLOT));
            self.free.push(addr / SLOT);
        }
        if self.is("ack_valid") && self.is("ack_ready") {
            let sack = self.is("ack.has_sack").then(|| self.sack("ack.sack"));
            let got = (self.get("ack_q") as u32, self.get("ack.psn") as u32, self.get("ack.syndrome") as u8, sack);
            self.acks_in.push(got);
        }
        if self.is("lst_valid") && self.is("lst_ready") {
            if self.is("lst.first_beat") {
                assert_eq!(self.lists_in_left, 0);
                let n = self.get("lst.n") as u32;
                self.lists_in_left = n;
                let (q, first) = (self.get("lst_q") as u32, self.get("lst.first") as u32);
                self.lists_in.push((q, first, Vec::new()));
            } else if self.lists_unwanted {
                self.lists_in_left = 0;
            } else {
                let size = self.get("lst.size") as u32;
                self.lists_in.last_mut().expect("a list has begun").2.push(size);
                self.lists_in_left -= 1;
            }
        }
    }

    fn sack(&mut self, name: &'static str) -> u128 {
        let p = self.p(name);
        let words = self.m.words(p);
        u128::from(words[0]) | u128::from(words[1]) << 64
    }

    fn take_completion(&mut self) {
        let p = self.p("fcq.words");
        let bytes = self.m.bytes(p);
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
            *word = u32::from_le_bytes(chunk.try_into().expect("4 bytes"));
        }
        let c = Cqe::from_words(&words);
        let i = self.qps.iter().position(|qp| qp.q == c.qpn).expect("a QP");
        assert_eq!(self.get("fcq.cqn") as u32, c.qpn + 1);
        let qp = &mut self.qps[i];
        let recv = qp.recvs[qp.cqes.len()].clone();
        let (q, len, credit) = (qp.q, c.byte_len, c.credit);
        assert_eq!(c.wr_id, recv.wr_id, "QP {q}: not the next receive");
        if let Some(status) = qp.ended
            && (qp.flushed || c.status == status)
        {
            qp.flushed = true;
            assert_eq!(c, Cqe { wr_id: c.wr_id, qpn: q, status, opcode: OP_RECV, ..Cqe::default() });
        } else if let Some(status) = recv.local {
            assert_eq!(c, Cqe { wr_id: c.wr_id, qpn: q, status, opcode: OP_RECV, ..Cqe::default() });
        } else {
            if qp.ended.is_none() && !qp.alone {
                qp.unchecked.push_back(c);
            }
            // Nothing is known of what a test has made up.
            let (offset, sent) = qp.sent.get(credit as usize).copied().unwrap_or((0, 0));
            let len = if qp.sent.is_empty() || c.opcode == OP_WRITE { 0 } else { len };
            assert_eq!(len, sent);
            let mut at = offset;
            let mut left = len;
            for (va, n) in recv.sges {
                let n = n.min(left);
                let there = self.memory(q, va, n);
                for (k, byte) in there.into_iter().enumerate() {
                    assert_eq!(byte, pattern(q, at + k as u64), "QP {q}, credit {credit}, byte {k} at {va:#x}");
                }
                at += u64::from(n);
                left -= n;
            }
        }
        self.qps[i].cqes.push(c);
        self.check_completions(i);
        self.last_cqe = self.now;
        self.cqe_count += 1;
    }

    /// The RTL's completions are the model's, which has them at the end of an operation.
    fn check_completions(&mut self, i: usize) {
        let qp = &mut self.qps[i];
        while let (Some(c), Some(&(credit, len, imm, invalidated, push, write))) =
            (qp.unchecked.front(), qp.expected.front())
        {
            let flag = |set: bool, flag: u16| if set { flag } else { 0 };
            let flags = flag(push, CQE_PUSH) | flag(imm.is_some(), CQE_IMMEDIATE);
            let flags = flags | flag(invalidated.is_some(), CQE_INVALIDATED);
            let opcode = if write { OP_WRITE } else { OP_RECV };
            let (wr_id, qpn, remaining) = (c.wr_id, qp.q, imm.or(invalidated).unwrap_or(0));
            let expected = Cqe { wr_id, byte_len: len, qpn, opcode, flags, remaining, credit, ..Cqe::default() };
            assert_eq!(*c, expected);
            qp.unchecked.pop_front();
            qp.expected.pop_front();
        }
    }

    /// Firmware has ended a key, or may not, and says so.
    fn invalidate(&mut self) {
        let Some(k) = self.invalidations.iter().position(|(due, ..)| *due <= self.now) else { return };
        let (_, q) = self.invalidations.swap_remove(k);
        let refused = self.rng.below(100) < self.refuses;
        let command = if refused { recv::CMD_NOT_INVALIDATED } else { recv::CMD_INVALIDATED };
        self.config(q << 6 | recv::COMMAND, command);
    }

    /// The RTL comes to rest when what is still on the wire is lost; with nobody's pace there, that may be thousands of
    /// duplicates. Then no acknowledgement is owed, and all that the model has given has left.
    pub fn rests(&mut self) {
        self.wire.clear();
        self.until(5000, "rest", |rig| rig.invalidations.is_empty() && !rig.is("busy"));
        for qp in self.qps.iter_mut().filter(|qp| qp.ended.is_none() && !qp.alone) {
            let owed = if qp.unanswered { qp.model.acknowledge() } else { qp.model.respond() };
            assert_eq!(owed.map(|reply| reply.packet), None, "QP {} owes it", qp.q);
            assert!(qp.acks.is_empty() && qp.expected.is_empty() && qp.unchecked.is_empty(), "QP {}", qp.q);
            if let Some(fault) = qp.broken
                && !qp.unanswered
            {
                assert_eq!(qp.model.broken().map(fault_code), Some(fault), "QP {}", qp.q);
            }
        }
    }

    /// Nothing is left that one side has and the other has not.
    pub fn settled(&self) -> bool {
        let done = |qp: &Qp| {
            qp.ended.is_some() || qp.alone || qp.unchecked.is_empty() && qp.expected.is_empty() && qp.acks.is_empty()
        };
        let credits = self.qps.iter().map(|qp| qp.credits.len() as u64).sum::<u64>();
        let atomics = self.atomics_counted == 0 && self.atomics_counted_again >= self.repeated;
        let counted = self.acquired == [0; 2] && atomics && (self.taking_back || self.posted == credits);
        self.held() == 0 && self.invalidations.is_empty() && counted && self.qps.iter().all(done)
    }

    fn take_list(&mut self) {
        if self.is("lfr.first_beat") {
            assert!(self.list_left == 0 && !self.world.foreign, "a list begins");
            let (q, first, n) = (self.get("lfr_q") as u32, self.get("lfr.first") as u32, self.get("lfr.n") as u32);
            let epoch = self.get("lfr.epoch") as u32;
            let qp = self.qps.iter_mut().find(|qp| qp.q == q).expect("a QP");
            assert_eq!(epoch, qp.epoch);
            if first == qp.announced {
                assert_eq!(self.lists_counted.pop_front(), Some(n), "a list that was not counted");
                // CR-11, CR-5: the last list's first buffer and its trigger have been hit.
                if let Some((proof, trigger)) = qp.list_first {
                    assert!(qp.rtl_landed > proof && qp.rtl_landed > trigger, "QP {q}: a list too early");
                }
                assert!(n <= self.world.max_list);
                let index = match self.world.trigger {
                    (1, _) => n - 1,
                    // with a bound that grows, the first one may do
                    (3, _) if recv::Pinned::from_word(self.world.limit).most != 0 => 0,
                    (2 | 3, at) => at.min(n - 1),
                    _ => 0,
                };
                qp.list_first = Some((first, first + index));
                qp.announced += n;
                assert!(qp.announced as usize <= qp.credits.len(), "more credits than receives");
            } else {
                let (proof, _) = qp.list_first.expect("a list was told");
                assert!(self.world.repeat != 0 && first == proof && first + n == qp.announced, "no repeat");
                assert!(self.repeats_counted > 0, "a repeat that was not counted");
                self.repeats_counted -= 1;
            }
            self.list_left = n;
            self.lists_out += 1;
            self.lists.push((q, first, Vec::new()));
            return;
        }
        assert!(self.list_left > 0);
        let sizes = self.get("lfr.sizes");
        let list = self.lists.last_mut().expect("a list has begun");
        list.2.push(sizes as u32);
        if self.list_left > 1 {
            list.2.push((sizes >> 32) as u32);
        }
        self.list_left = self.list_left.saturating_sub(2);
        if self.list_left == 0 {
            let (q, first, sizes) = self.lists.pop().expect("a list");
            let lost = self.rng.below(100) < self.world.list_loss;
            let qp = self.qps.iter_mut().find(|qp| qp.q == q).expect("a QP");
            for (number, size) in (first..).zip(&sizes) {
                // A repeat may say sizes anew for credits that are used up.
                if number >= qp.rtl_landed {
                    assert_eq!(*size, qp.recvs[qp.credits[number as usize]].size, "QP {q}, credit {number}");
                }
            }
            if !lost {
                qp.has = qp.has.max(first + sizes.len() as u32);
            }
        }
    }

    /// Steps until `done`, at most `limit` cycles.
    pub fn until(&mut self, limit: u64, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..limit {
            if done(self) {
                return;
            }
            self.invalidate();
            self.step();
        }
        let state: Vec<_> = self
            .qps
            .iter()
            .map(|qp| {
                let m = (qp.model.arrival().placed().get(), qp.model.arrival().expected().get());
                (
                    qp.q,
                    qp.recvs.len(),
                    qp.announced,
                    qp.has,
                    qp.used,
                    qp.landed,
                    qp.cqes.len(),
                    m,
                    qp.requester.deadline(),
                )
            })
            .collect();
        panic!(
            "{what} does not happen in {limit} cycles; now {}: QP, receives, announced, had, used, landed, completions, (placed, expected), deadline: {state:x?}",
            self.now
        );
    }

    pub fn now(&self) -> u64 {
        self.now
    }
}
