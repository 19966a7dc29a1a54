// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards as firmware runs them (`berth_protocol::Card`) with one QP each, their hosts, and a wire that loses, repeats
//! and reorders control messages and lists.
//!
//! RTL is a row of what firmware reads and writes: lists, credits and pieces are those of the golden model
//! (`credit::list`), pieces go in order and once. A row lets go of memory, and reports a time-out, when it likes. Card `A`
//! connects and sends, card `B` receives. Time is that of the timers: where nothing else can happen the next one of both
//! cards comes, elsewhere one may come early.

use std::sync::Arc;

use berth_abi::card::{FIRST_QPN, TX_SLOTS};
use berth_abi::cpu::{CqAttr, DbCfg, LIST_BAD, LIST_EARLY, LIST_OK, LIST_OVERFLOW, RX_FLAG_ICRC_OK, RX_FLAG_ROCE};
use berth_abi::message::{
    Accept, COOKIE, CmClosed, CmEstablished, CmRequest, CmRequestOver, CmdDone, Connect, CqCreate, Disconnect, Entry,
    Listen, NetConfig, Pressure, QpCreate, QpDestroy, QpError, QpRecall, RangeRevoked, Reject, Typed,
};
use berth_abi::rows::{HALF_SENDS, event::EVENT_TIMEOUT, recv, send};
use berth_abi::status::REASON_PEER_LOST;
use berth_protocol::Card;
use berth_protocol::card::hw::{Hw, Log, TX_NO_ICRC};
use berth_protocol::credit::list::{Builder, Reader};
use stateright::{Model, Property};

use crate::channel::{Air, Packet};
use crate::explore::{Harness, stable_hash};

const A: usize = 0;
const B: usize = 1;
const SENDS: usize = 0;
const QPN: u32 = FIRST_QPN;
const SERVICE: u32 = 7;
const ASID: u8 = 3;
/// Time-outs that the QPs are asked again after.
const RETRIES: u8 = 2;
/// Cookies of the host's own answers; the script's are below, 0 is nobody's.
const ACCEPTS: u32 = 14;
const REJECTS: u32 = 15;
/// Turns until a card must have nothing more to do.
const TURNS: usize = 200;

/// What a host commands, at any time but in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Do {
    /// Asks for the connection.
    Connect,
    /// Ends it.
    Disconnect,
    /// Destroys the QP.
    Destroy,
    /// Says that memory is short.
    Press,
    /// Wants receives back that nothing has come for.
    Recall,
    /// Takes all memory away.
    Revoke,
}

/// When a run is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// All commands are answered.
    Answered,
    /// Both hosts were told of the connection.
    Joined,
    /// All bytes have landed.
    Landed,
    /// Both hosts were told that the connection is over.
    Told,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A command was answered again, or an end was told something again.
    Twice,
    /// Data came without a credit, a list was refused, or a connection ended for no reason.
    Broken,
    /// The sender has credits that are not out.
    Credits,
    /// A QP was given back while its row held something.
    Held,
    /// A revocation was answered while a row held its memory.
    Revoked,
    /// The peer was given up too early, or asked too often.
    Retries,
}

/// A frame on its way to card `to`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Frame {
    to: usize,
    len: u32,
    words: Vec<u32>,
}

impl Packet for Frame {
    fn key(&self) -> u64 {
        stable_hash(self)
    }
}

/// A credit list on its way to A.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct List {
    epoch: u32,
    first: u32,
    len: u32,
}

impl Packet for List {
    fn key(&self) -> u64 {
        stable_hash(self)
    }
}

/// What RTL has of the QP. Pairs are the halves that send and receive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    on: bool,
    over: bool,
    /// Frames or elements under way, and memory that is held.
    busy: bool,
    holds: [bool; 2],
    revoking: [bool; 2],
    /// Lists that come and go; as written, and as they count.
    staged: [u32; 2],
    epochs: [u32; 2],
    first: u32,
    reader: Reader<4, 2>,
    kept: u32,
    builder: Builder<4, 2>,
    list: (u32, u32),
    hold: bool,
    rests: bool,
    /// Receives have gone back to the program.
    canceled: bool,
    una: u32,
    next: u32,
    /// A time-out was reported, and nothing sent again since.
    told: bool,
    again: u8,
}

/// What a host has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Host {
    /// Commands given, in order.
    given: usize,
    /// Cookies answered.
    answered: u32,
    request: Option<u32>,
    established: bool,
    over: bool,
    /// It was told that the peer is lost, though nobody was silent.
    lost: bool,
    fault: Option<Fault>,
}

/// A card with what is around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct End {
    card: Card<1, 1, 2>,
    row: Row,
    host: Host,
    timer: Option<u64>,
}

/// The engines during one step of a card.
struct Engines<'a> {
    bounds: &'a Cards,
    script: &'a [Do],
    row: &'a mut Row,
    host: &'a mut Host,
    timer: &'a mut Option<u64>,
    tx: [Vec<u32>; TX_SLOTS as usize],
    sent: Vec<u32>,
    /// Frames, and whether they are ARP's.
    out: Vec<(Vec<u32>, u32, bool)>,
    rx: &'a [u32],
}

impl Row {
    fn sends(&mut self, command: send::Command, bounds: &Cards) {
        match command.opcode {
            send::CMD_START => {
                (self.on, self.busy, self.holds[0]) = (true, bounds.holds, bounds.holds);
                self.next = bounds.packets.min(1);
            }
            send::CMD_END => (self.on, self.over) = (false, true),
            send::CMD_AGAIN => (self.told, self.again) = (false, self.again + 1),
            send::CMD_DRAIN => (self.holds[0], self.revoking[0]) = (false, false),
            send::CMD_GIVE_UP => self.kept = self.reader.give_up(command.argument),
            send::CMD_REVOKE => self.revoking[0] = self.holds[0],
            _ => (),
        }
    }

    fn receives(&mut self, command: recv::Command, bounds: &Cards) {
        match command.opcode {
            recv::CMD_START => {
                (self.epochs, self.holds[1]) = (self.staged, bounds.holds);
                self.builder.enable();
            }
            recv::CMD_ON => self.epochs[0] = self.staged[0],
            recv::CMD_HOLD => self.hold = true,
            recv::CMD_REST => self.rests = true,
            recv::CMD_SQUEEZE => self.rests = false,
            recv::CMD_CANCEL => (self.rests, self.canceled) = (false, true),
            recv::CMD_VOID => {
                self.builder.void(self.first);
                (self.epochs[1], self.hold) = (self.staged[1], false);
            }
            recv::CMD_REVOKE => self.revoking[1] = self.holds[1],
            _ => (),
        }
    }
}

impl Hw for Engines<'_> {
    fn tx_write(&mut self, slot: u32, word: u32, data: &[u32]) {
        let buffer = &mut self.tx[slot as usize];
        buffer.resize(buffer.len().max(word as usize + data.len()), 0);
        buffer[word as usize..][..data.len()].copy_from_slice(data);
    }
    fn tx_send(&mut self, slot: u32, len: u32, flags: u32) {
        let mut words = std::mem::take(&mut self.tx[slot as usize]);
        words.resize(len.div_ceil(4) as usize, 0);
        self.out.push((words, len, flags & TX_NO_ICRC != 0));
        self.sent.push(slot);
    }
    fn rx_read(&mut self, _slot: u32, word: u32, out: &mut [u32]) {
        for (i, value) in out.iter_mut().enumerate() {
            *value = self.rx.get(word as usize + i).copied().unwrap_or(0);
        }
    }
    fn rx_free(&mut self, _slot: u32) {}
    fn event_space(&mut self) -> u32 {
        16
    }
    fn event(&mut self, words: &Entry) {
        let mut once = |seen: bool| {
            if seen {
                self.host.fault = Some(Fault::Twice);
            }
        };
        if let Some(done) = CmdDone::of(words).filter(|done| done.cookie != 0) {
            once(self.host.answered >> done.cookie & 1 != 0);
            self.host.answered |= 1 << done.cookie;
            let is = |what: Do| self.script.get(done.cookie as usize - 1) == Some(&what);
            if is(Do::Revoke) && self.row.revoking != [false; 2] {
                self.host.fault = Some(Fault::Revoked);
            }
            if is(Do::Destroy) && (self.row.busy || self.row.holds != [false; 2]) {
                self.host.fault = Some(Fault::Held);
            }
        } else if let Some(request) = CmRequest::of(words) {
            self.host.request = Some(request.request);
        } else if CmRequestOver::of(words).is_some() {
            self.host.request = None;
        } else if CmEstablished::of(words).is_some() {
            once(self.host.established);
            self.host.established = true;
        } else if CmClosed::of(words).is_some() {
            once(self.host.over);
            self.host.over = true;
        } else if let Some(error) = QpError::of(words) {
            once(self.host.over);
            self.host.over = true;
            match error.reason == REASON_PEER_LOST {
                false => self.host.fault = Some(Fault::Broken),
                true if self.bounds.packets == 0 => self.host.lost = true,
                true if self.row.again != RETRIES => self.host.fault = Some(Fault::Retries),
                true => (),
            }
        }
    }
    fn cq_config(&mut self, _cqn: u32, _base: u64, _attr: CqAttr) {}
    fn raw_set(&mut self, _go: u32, _words: &[u32; 6]) {}
    fn raw_busy(&mut self) -> u32 {
        0
    }
    fn doorbell_config(&mut self, _qpn: u32, _cfg: DbCfg) {}
    fn fast_write(&mut self, half: u32, _qpn: u32, word: u32, value: u32) {
        match (half == HALF_SENDS, word) {
            (true, send::COMMAND) => self.row.sends(send::Command::from_word(value), self.bounds),
            (false, recv::COMMAND) => self.row.receives(recv::Command::from_word(value), self.bounds),
            (false, recv::EPOCH) => self.row.staged[0] = value,
            (false, recv::PEER_EPOCH) => self.row.staged[1] = value,
            (false, recv::FIRST) => self.row.first = value,
            _ => (),
        }
    }
    fn fast_read(&mut self, half: u32, _qpn: u32, word: u32) -> u32 {
        let row = &self.row;
        let (_, announced, landed) = row.builder.numbers();
        let at = usize::from(half != HALF_SENDS);
        let [holds, revoking] = [row.holds, row.revoking].map(|bits| u32::from(bits[at]));
        match (half == HALF_SENDS, word) {
            (true, send::HELD) => send::Held { busy: row.busy.into(), queued: 0, revoking, starved: 0, holds }.word(),
            (true, send::UNA) => row.una,
            (true, send::NEXT) => row.next,
            (true, send::KEPT) => row.kept,
            // Whenever its host says that memory is short, a row waits for it.
            (false, recv::HELD) => recv::Held { busy: 0, queued: 0, revoking, starved: 1, holds }.word(),
            (false, recv::ANNOUNCED) => announced,
            (false, recv::LANDED | recv::COMPLETED) => landed,
            _ => 0,
        }
    }
    fn timer_arm(&mut self, deadline: u64) {
        *self.timer = Some(deadline);
    }
    fn timer_off(&mut self) {
        *self.timer = None;
    }
    fn count(&mut self, _index: u32, _n: u32) {}
    fn log(&mut self, _line: Log) {}
    fn crash(&mut self, _kind: u32) {}
}

/// Both cards and what is between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    ends: [Arc<End>; 2],
    air: Air<Frame>,
    lists: Air<List>,
    /// Numbers of pieces under way.
    pieces: Vec<u32>,
    lost: u8,
    repeated: u8,
    early: u8,
    fault: Option<Fault>,
}

/// Steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A frame arrives; it may come again.
    Arrive(usize, bool),
    /// A frame is lost.
    Lose(usize),
    /// A list arrives; it may come again.
    List(usize, bool),
    /// A list is lost.
    LoseList(usize),
    /// A host gives its next command.
    Command(usize),
    /// A host answers a request: it accepts, if its QP is as it was made.
    Answer(usize),
    /// A card's timer comes.
    Timer(usize),
    /// Half of a row lets go.
    LetGo(usize, usize),
    /// B's row announces a list, or repeats it.
    Announce,
    /// A's row sends a piece.
    Cut,
    /// The oldest piece arrives.
    Land,
    /// A's row reports that nothing was acknowledged.
    TimeOut,
    /// What A has sent is acknowledged.
    Acknowledge,
}

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Cards {
    /// Commands of both hosts.
    pub scripts: [&'static [Do]; 2],
    /// It begins with the connection.
    pub connected: bool,
    /// Rows hold memory until they let go.
    pub holds: bool,
    /// Receives of B, and bytes to them.
    pub receives: u32,
    /// Packets of A that may or may not be acknowledged.
    pub packets: u32,
    /// Frames and lists that are lost and that come again, and timers that come early.
    pub faults: (u8, u8, u8),
    /// When it is finished.
    pub goal: Goal,
}

impl Cards {
    /// Something happens at card `i`.
    fn at(&self, s: &mut State, i: usize, rx: &[u32], happens: &dyn Fn(&mut Card<1, 1, 2>, u64, &mut Engines<'_>)) {
        let end = Arc::make_mut(&mut s.ends[i]);
        let mut engines = Engines {
            bounds: self,
            script: self.scripts[i],
            row: &mut end.row,
            host: &mut end.host,
            timer: &mut end.timer,
            tx: Default::default(),
            sent: Vec::new(),
            out: Vec::new(),
            rx,
        };
        happens(&mut end.card, s.now, &mut engines);
        for turn in 0.. {
            assert!(turn < TURNS, "a card always has something to do");
            let more = end.card.poll(s.now, &mut engines);
            let sent = std::mem::take(&mut engines.sent);
            if !more && sent.is_empty() {
                break;
            }
            sent.into_iter().for_each(|slot| end.card.tx_done(slot));
        }
        let out = engines.out;
        s.fault = s.fault.or(end.host.fault);
        for (words, len, arp) in out {
            match arp {
                true => self.at(s, 1 - i, &words, &|card, now, hw| card.rx(now, 0, len, 0, hw)),
                false => s.air.send(Frame { to: 1 - i, len, words }),
            }
        }
    }

    fn arrive(&self, s: &mut State, frame: &Frame) {
        self.at(s, frame.to, &frame.words, &|card, now, hw| {
            card.rx(now, 0, frame.len + 4, RX_FLAG_ROCE | RX_FLAG_ICRC_OK, hw);
        });
    }

    fn command(&self, s: &mut State, i: usize, mut entry: Entry, cookie: u32) {
        entry[COOKIE] = cookie;
        self.at(s, i, &[], &|card, now, hw| card.command(now, &entry, hw));
    }

    /// The cards have names, and a QP each; B listens.
    fn begin(&self) -> State {
        let end = End { card: Card::new(), row: Row::default(), host: Host::default(), timer: None };
        let ends = [Arc::new(end.clone()), Arc::new(end)];
        let (air, lists, pieces) = (Air::default(), Air::default(), Vec::new());
        let (lost, repeated, early) = (0, 0, 0);
        let mut s = State { now: 1, ends, air, lists, pieces, lost, repeated, early, fault: None };
        for i in [A, B] {
            let n = i as u32 + 1;
            let (mac_first, mac_last, key) = (0x0200_0000, n, [n; 4]);
            let name = NetConfig { ipv4: 0x0a00_0000 + n, mac_first, mac_last, mtu: 1024, guid: 0, key };
            self.command(&mut s, i, name.encode(), 0);
            for cqn in 0..2 {
                self.command(&mut s, i, CqCreate { cqn, uar: 1, log2_entries: 12, base: 0 }.encode(), 0);
            }
            let qp = QpCreate {
                qpn: QPN,
                asid: ASID,
                uar: 1,
                log2_sq: 6,
                log2_rq: 6,
                recv_cqn: 1,
                sq_base: 4096,
                rq_base: 8192,
                retries: RETRIES.into(),
                ..QpCreate::default()
            };
            self.command(&mut s, i, qp.encode(), 0);
        }
        self.command(&mut s, B, Listen { service: SERVICE }.encode(), 0);
        if self.connected {
            self.command(&mut s, A, Self::entry(Do::Connect), 0);
            while !(s.ends.iter().all(|end| end.host.established) && s.air.is_empty()) {
                match s.air.remove(0) {
                    Some(frame) => self.arrive(&mut s, &frame),
                    None => self.answer(&mut s, B),
                }
            }
        }
        s
    }

    fn entry(what: Do) -> Entry {
        match what {
            Do::Connect => Connect { qpn: QPN, ipv4: 0x0a00_0002, service: SERVICE, ..Connect::default() }.encode(),
            Do::Disconnect => Disconnect { qpn: QPN }.encode(),
            Do::Destroy => QpDestroy { qpn: QPN }.encode(),
            Do::Press => Pressure { asid: 0, bytes: 65536 }.encode(),
            Do::Recall => QpRecall { qpn: QPN }.encode(),
            Do::Revoke => RangeRevoked { asid: ASID.into(), va: 0, len: 4096 }.encode(),
        }
    }

    fn answer(&self, s: &mut State, i: usize) {
        let Some(request) = Arc::make_mut(&mut s.ends[i]).host.request.take() else { return };
        match s.ends[i].card.state_of(QPN) {
            1 => self.command(s, i, Accept { request, qpn: QPN, ..Accept::default() }.encode(), ACCEPTS),
            _ => self.command(s, i, Reject { request, ..Reject::default() }.encode(), REJECTS),
        }
    }

    fn row(s: &mut State, i: usize) -> &mut Row {
        &mut Arc::make_mut(&mut s.ends[i]).row
    }

    /// All receives that the row may have are posted.
    fn post(&self, row: &mut Row) {
        while row.builder.numbers().0 < self.receives && row.builder.post(1).is_some() {}
        row.builder.commit();
    }

    fn traffic(&self, s: &mut State, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Announce => {
                let row = Self::row(s, B);
                if !row.on || row.hold || row.rests {
                    return Ok(false);
                }
                if row.builder.rtrip().is_none() {
                    self.post(row);
                    let Some(list) = row.builder.list_take() else { return Ok(false) };
                    (0..list.1).for_each(|_| _ = row.builder.list_next());
                    row.list = list;
                }
                let list = List { epoch: row.epochs[1], first: row.list.0, len: row.list.1 };
                s.lists.send(list);
            }
            Action::Cut => {
                let row = Self::row(s, A);
                let Some((_, number, _)) = row.on.then(|| row.reader.take(1)).flatten() else { return Ok(false) };
                s.pieces.push(number);
            }
            Action::Land => {
                if s.pieces.is_empty() {
                    return Ok(false);
                }
                let number = s.pieces.remove(0);
                let row = Self::row(s, B);
                if row.on && (row.builder.numbers().2 != number || !row.builder.landed()) {
                    return Err(Fault::Broken);
                }
            }
            Action::TimeOut => {
                let row = Self::row(s, A);
                if !row.on || row.una == row.next || row.told {
                    return Ok(false);
                }
                row.told = true;
                self.at(s, A, &[], &|card, now, hw| card.fast_event(now, EVENT_TIMEOUT, QPN, 0, hw));
            }
            Action::Acknowledge => {
                let row = Self::row(s, A);
                if !row.on || row.una == row.next || row.next == self.packets {
                    return Ok(false);
                }
                // And another packet leaves.
                (row.una, row.next, row.told, row.again) = (row.next, row.next + 1, false, 0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn step(&self, s: &mut State, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Arrive(k, again) => {
                let frame = if again { s.air.get(k).cloned() } else { s.air.remove(k) };
                let Some(frame) = frame else { return Ok(false) };
                s.repeated += u8::from(again);
                self.arrive(s, &frame);
            }
            Action::Lose(k) => {
                s.lost += 1;
                return Ok(s.air.remove(k).is_some());
            }
            Action::List(k, again) => {
                let list = if again { s.lists.get(k).cloned() } else { s.lists.remove(k) };
                let Some(list) = list else { return Ok(false) };
                s.repeated += u8::from(again);
                let row = Self::row(s, A);
                if row.on && row.epochs[0] == list.epoch {
                    match row.reader.list_begin(list.first, list.len) {
                        (LIST_OK, skip) => (skip..list.len).for_each(|_| _ = row.reader.list_push(1)),
                        (LIST_BAD | LIST_EARLY | LIST_OVERFLOW, _) => return Err(Fault::Broken),
                        _ => (),
                    }
                }
            }
            Action::LoseList(k) => {
                s.lost += 1;
                return Ok(s.lists.remove(k).is_some());
            }
            Action::Command(i) => {
                let given = s.ends[i].host.given;
                let Some(&what) = self.scripts[i].get(given) else { return Ok(false) };
                if !s.ends[i].card.command_ready() {
                    return Ok(false);
                }
                Arc::make_mut(&mut s.ends[i]).host.given += 1;
                self.command(s, i, Self::entry(what), given as u32 + 1);
            }
            Action::Answer(i) => self.answer(s, i),
            Action::Timer(i) => {
                let Some(at) = s.ends[i].timer else { return Ok(false) };
                s.early += u8::from(!self.quiet(s));
                s.now = s.now.max(at);
                Arc::make_mut(&mut s.ends[i]).timer = None;
                self.at(s, i, &[], &|card, now, hw| card.timer(now, hw));
            }
            Action::LetGo(i, half) => {
                let row = Self::row(s, i);
                // What has been sent goes back by a command once the frames have left.
                match half == SENDS && row.busy {
                    true => row.busy = false,
                    false => row.holds[half] = false,
                }
                row.revoking[half] &= row.holds[half];
            }
            _ => return self.traffic(s, action),
        }
        Ok(true)
    }

    /// Half of the row may let go now.
    fn may_let_go(row: &Row, half: usize) -> bool {
        let ends = row.over || row.revoking[half];
        ends && match half == SENDS {
            true => row.busy || (row.revoking[0] && row.holds[0]),
            false => row.holds[1],
        }
    }

    /// Only a timer makes anything go on.
    fn quiet(&self, s: &State) -> bool {
        let waits = |end: &Arc<End>| end.host.request.is_some() || (0..2).any(|half| Self::may_let_go(&end.row, half));
        s.air.is_empty() && !s.ends.iter().any(waits)
    }

    /// A timer may still make something go on.
    fn needs_time(&self, s: &State) -> bool {
        let open = |end: &Arc<End>| {
            let unanswered = (1..=end.host.given).any(|cookie| end.host.answered >> cookie & 1 == 0);
            let state = end.card.state_of(QPN);
            unanswered || end.row.hold || end.row.rests || end.row.told || state == 2
        };
        s.ends.iter().any(open) || (self.goal == Goal::Told && s.ends.iter().any(|end| end.host.over))
    }
}

impl Model for Cards {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        if s.fault.is_some() || self.finished(s) {
            return;
        }
        let (losses, repeats, early) = self.faults;
        for k in 0..s.air.len() {
            actions.push(Action::Arrive(k, false));
            actions.extend((s.repeated < repeats).then_some(Action::Arrive(k, true)));
            actions.extend((s.lost < losses).then_some(Action::Lose(k)));
        }
        for k in 0..s.lists.len() {
            actions.push(Action::List(k, false));
            actions.extend((s.repeated < repeats).then_some(Action::List(k, true)));
            actions.extend((s.lost < losses).then_some(Action::LoseList(k)));
        }
        for (i, end) in s.ends.iter().enumerate() {
            actions.extend((end.host.given < self.scripts[i].len()).then_some(Action::Command(i)));
            actions.extend(end.host.request.map(|_| Action::Answer(i)));
            actions.extend((0..2).filter(|half| Self::may_let_go(&end.row, *half)).map(|half| Action::LetGo(i, half)));
            let first = end.timer.is_some_and(|at| s.ends[1 - i].timer.is_none_or(|other| at <= other));
            let comes = match self.quiet(s) {
                true => first && self.needs_time(s),
                false => end.timer.is_some() && s.early < early,
            };
            actions.extend(comes.then_some(Action::Timer(i)));
        }
        if self.receives != 0 {
            actions.extend([Action::Announce, Action::Cut, Action::Land]);
        }
        if self.packets != 0 {
            actions.extend([Action::TimeOut, Action::Acknowledge]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut s = state.clone();
        match self.step(&mut s, action) {
            Ok(true) => (),
            Ok(false) => return None,
            Err(fault) => s.fault = Some(fault),
        }
        let [a, b] = [A, B].map(|i| &s.ends[i].row);
        if a.on && b.on && a.reader.expected() > b.builder.numbers().1 {
            s.fault = s.fault.or(Some(Fault::Credits));
        }
        // An end whose peer has begun anew has lost nothing if the peer had no connection any more.
        let lives = |end: &Arc<End>| matches!(end.card.state_of(QPN), 2 | 3);
        if [A, B].iter().any(|&i| s.ends[i].host.lost && !state.ends[i].host.lost && lives(&state.ends[1 - i])) {
            s.fault = s.fault.or(Some(Fault::Broken));
        }
        if a.again > RETRIES {
            s.fault = s.fault.or(Some(Fault::Retries));
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("commands are answered, and ends told, once", |_, s: &State| {
                s.fault != Some(Fault::Twice)
            }),
            Property::always("no honest end breaks", |_, s: &State| s.fault != Some(Fault::Broken)),
            Property::always("the sender has only credits that are out", |_, s: &State| {
                s.fault != Some(Fault::Credits)
            }),
            Property::always("a QP is free when its rows are", |_, s: &State| s.fault != Some(Fault::Held)),
            Property::always("what is revoked is let go", |_, s: &State| s.fault != Some(Fault::Revoked)),
            Property::always("a peer is given up after its retries", |_, s: &State| s.fault != Some(Fault::Retries)),
            Property::sometimes("connected", |_, s: &State| s.ends.iter().all(|end| end.host.established)),
        ];
        if self.goal != Goal::Answered {
            properties.push(Property::sometimes("a fault of the wire", |m: &Self, s: &State| {
                (s.lost, s.repeated) == (m.faults.0, m.faults.1)
            }));
        }
        if self.scripts[B].contains(&Do::Press) {
            properties.push(Property::sometimes("credits come back", |_, s: &State| s.ends[B].row.rests));
        }
        if self.scripts[B].contains(&Do::Recall) {
            properties.push(Property::sometimes("receives go back", |_, s: &State| s.ends[B].row.canceled));
        }
        properties
    }
}

impl Harness for Cards {
    const NAME: &'static str = "cards";

    fn finished(&self, s: &State) -> bool {
        let answered =
            |(end, script): (&Arc<End>, &&[Do])| (1..=script.len()).all(|cookie| end.host.answered >> cookie & 1 != 0);
        s.ends.iter().zip(&self.scripts).all(answered)
            && match self.goal {
                Goal::Answered => s.ends.iter().all(|end| end.host.request.is_none()),
                // A host that is late with its answer refuses.
                Goal::Joined => s.ends.iter().all(|end| end.host.established) || (s.early != 0 && s.ends[A].host.over),
                Goal::Landed => s.ends[B].row.builder.numbers().2 == self.receives,
                Goal::Told => s.ends.iter().all(|end| end.host.over),
            }
    }

    fn bounds(&self) -> String {
        let (lost, repeated, early) = self.faults;
        format!(
            "two cards of one QP{}; their hosts command {:?} and {:?}; {} receives, {} packets, {RETRIES} retries; any order on the wire, {lost} lost, {repeated} repeated, {early} timers early{}",
            if self.connected { ", connected" } else { "" },
            self.scripts[A],
            self.scripts[B],
            self.receives,
            self.packets,
            if self.holds { ", rows hold memory" } else { "" },
        )
    }
}
