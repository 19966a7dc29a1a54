// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of unreliable datagrams (QP-6): those of processes, and QP 1 for the kernel's management datagrams.
//!
//! The driver serves them. Their packets are frames of the network device: sends are built when they are posted, and leave
//! by a thread; what comes finds its queue pair by QPN, must have its Q_Key, and waits for its completion to be polled.
//! A datagram that finds no receive is dropped and counted. One that is longer than the receive is dropped likewise, and the
//! receive stays, so that no stranger uses it up.

use crate::{
    abi::counters::{D_DATAGRAMS, D_DATAGRAMS_NO_RECEIVE, D_DATAGRAMS_REFUSED},
    card::Card,
    kernel::{
        crc::crc32,
        net::{device::Device, skb::SkBuff},
        random,
        rdma::{
            handler::QpHandler,
            qp::{Attributes, Capacity, Path, QpKind, QpState},
            work::{Receive, Send, Status},
        },
        workqueue,
    },
    net::{nic::Nic, taker::Datagrams},
    rdma::{
        completions::{Completions, Entry, Frame, Owner, What},
        mad,
        neighbours::{Name, Neighbours},
        packet::{self, roce_mtu, Header},
        ring::Ring,
    },
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{new_spinlock_irq, Arc, SpinLockIrq},
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

/// QPN of the queue pair for management datagrams (IBTA 3.5.10).
const MANAGEMENT_QPN: u32 = 1;
/// All others have this bit in their QPN, which no reliable connection has.
const QPN: u32 = 1 << 23;
/// log2 of how many there may be, the one for management datagrams among them. The bits of the QPN between count how often
/// a place was used, so that a late packet does not find the next queue pair there.
const LOG2_MOST: u32 = 8;
/// How many there may be.
const MOST: usize = 1 << LOG2_MOST;
/// Q_Key of management datagrams (IBTA 9.8.3).
const MANAGEMENT_QKEY: u32 = 0x8001_0000;
/// Routers that a packet may pass, where nobody says how many.
const HOPS: u8 = 64;
/// Frames of the driver's own that may wait.
const NOTES: usize = 32;
/// How often a peer is asked what it is, how often the driver then looks for its answer, and after how long each time.
const TRIES: u32 = 3;
const LOOKS: u32 = 40;
const LOOK_MS: i64 = 5;
/// Frames that leave before the others of the work queue have their turn.
const BATCH: usize = 64;
/// The bit of a Q_Key that stands for the queue pair's own (IBTA 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// Where a datagram goes, as an address handle says it.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(super) path: Path,
    pub(super) from_ip: u32,
    pub(super) to_ip: u32,
}

/// Where a queue pair may be.
enum Place {
    Free,
    /// One is being made.
    Taken,
    Used(Arc<Datagram>),
}

struct Places {
    all: KVec<Place>,
    /// How often a queue pair was made.
    made: u32,
    /// Places whose queue pairs have frames that are to leave.
    busy: [u64; MOST / 64],
}

/// The place of the queue pair with a QPN.
fn place_of(qpn: u32) -> usize {
    match qpn {
        MANAGEMENT_QPN => 0,
        _ => qpn as usize % MOST,
    }
}

impl Places {
    /// Takes a place: its QPN.
    fn take(&mut self, kind: QpKind) -> Result<u32> {
        if kind == QpKind::Management {
            if !matches!(self.all[0], Place::Free) {
                return Err(EBUSY);
            }
            self.all[0] = Place::Taken;
            return Ok(MANAGEMENT_QPN);
        }
        self.made = self.made.wrapping_add(1);
        // The one that was left alone longest.
        let first = self.made as usize;
        let place = (0..MOST)
            .map(|n| (first + n) % MOST)
            .find(|&place| place != 0 && matches!(self.all[place], Place::Free))
            .ok_or(ENOSPC)?;
        self.all[place] = Place::Taken;
        let turn = self.made >> LOG2_MOST << LOG2_MOST & (QPN - 1);
        Ok(QPN | turn | place as u32)
    }

    fn at(&mut self, qpn: u32) -> &mut Place {
        &mut self.all[place_of(qpn)]
    }

    /// Takes a place that is busy.
    fn next_busy(&mut self) -> Option<usize> {
        let word = self.busy.iter().position(|&word| word != 0)?;
        let bit = self.busy[word].trailing_zeros() as usize;
        self.busy[word] &= self.busy[word] - 1;
        Some(64 * word + bit)
    }

    fn put(&mut self, qpn: u32, what: Place) -> Place {
        core::mem::replace(self.at(qpn), what)
    }
}

/// What all queue pairs of a card share: the network device, and who has which QPN.
#[pin_data]
pub(crate) struct Exchange {
    card: Arc<Card>,
    device: Arc<Device<Nic>>,
    #[pin]
    places: SpinLockIrq<Places>,
    #[pin]
    neighbours: Neighbours,
    /// Frames of the driver's own that are to leave.
    #[pin]
    notes: SpinLockIrq<Ring<SkBuff>>,
    #[pin]
    work: Work<Exchange>,
}

impl_has_work! {
    impl HasWork<Self> for Exchange { self.work }
}

/// A frame that is to leave.
struct Outgoing {
    skb: SkBuff,
    wr_id: u64,
    signalled: bool,
}

struct State {
    /// The core's state of it, or error by itself.
    state: QpState,
    qkey: u32,
    psn: u32,
    outgoing: Ring<Outgoing>,
    /// Sends that are posted and not polled.
    sends: usize,
    receives: Ring<Receive>,
    /// Receives that are posted and not polled.
    received: usize,
}

/// A queue pair.
#[pin_data]
pub(crate) struct Datagram {
    handler: Arc<QpHandler>,
    exchange: Arc<Exchange>,
    qpn: u32,
    sent: Arc<Completions>,
    received: Arc<Completions>,
    #[pin]
    state: SpinLockIrq<State>,
}

impl Exchange {
    pub(super) fn new(card: Arc<Card>, device: Arc<Device<Nic>>) -> Result<Arc<Self>> {
        let mut all = KVec::with_capacity(MOST, GFP_KERNEL)?;
        for _ in 0..MOST {
            all.push(Place::Free, GFP_KERNEL)?;
        }
        let [high, low] = random::words();
        let neighbours = Neighbours::new(u64::from(high) << 32 | u64::from(low))?;
        let notes = Ring::new(NOTES)?;
        Arc::pin_init(
            pin_init!(Self {
                card,
                device,
                neighbours <- neighbours,
                notes <- new_spinlock_irq!(notes, "berth_notes"),
                places <- new_spinlock_irq!(Places { all, made: 0, busy: [0; MOST / 64] }, "berth_datagrams"),
                work <- new_work!("berth_datagrams"),
            }),
            GFP_KERNEL,
        )
    }

    /// No queue pair is there any more, and nothing is sent afterwards.
    pub(super) fn end(self: &Arc<Self>) {
        workqueue::cancel::<_, 0>(self);
    }

    /// The queue pair with a QPN.
    fn find(&self, qpn: u32) -> Option<Arc<Datagram>> {
        let mut places = self.places.lock();
        match places.at(qpn) {
            Place::Used(found) if found.qpn == qpn => Some(found.clone()),
            _ => None,
        }
    }

    /// Has the thread look for frames that are to leave.
    fn sends(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue(self.clone());
    }

    /// Builds a frame with `bytes` of data, which `fill` puts there.
    fn frame(
        &self,
        header: &Header,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<SkBuff> {
        let length = packet::length(header.immediate.is_some(), bytes) as u32;
        let mut skb = self.device.alloc(length).ok_or(ENOMEM)?;
        header.build(skb.append(length)?, bytes, fill, crc32)?;
        Ok(skb)
    }

    /// Sends a management datagram of the driver's own, unless there is no room: it is asked again.
    fn note(self: &Arc<Self>, from_ip: u32, to: Name, to_qpn: u32, mad: &[u8; mad::BYTES]) {
        let header = Header {
            to_mac: to.mac,
            from_mac: self.device.address_now(),
            to_ip: to.ipv4,
            from_ip,
            hops: HOPS,
            to_qpn,
            from_qpn: MANAGEMENT_QPN,
            qkey: MANAGEMENT_QKEY,
            ..Header::default()
        };
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(mad);
            Ok(())
        };
        if let Ok(skb) = self.frame(&header, mad.len(), fill) {
            let refused = self.notes.lock().push(skb).err();
            drop(refused);
            self.sends();
        }
    }

    /// Whether the peer at the end of a path is a Berth. Asks it if that is not known, and waits for its answer for a time
    /// that is bounded: a peer that says nothing is none.
    pub(super) fn is_berth(self: &Arc<Self>, from_ip: u32, to_ip: u32, path: &Path) -> bool {
        let name = Name {
            ipv4: to_ip,
            mac: path.mac,
        };
        for _ in 0..TRIES {
            if let Some(is_berth) = self.neighbours.is_berth(name) {
                return is_berth;
            }
            let question = mad::question(self.neighbours.ask(name));
            self.note(from_ip, name, MANAGEMENT_QPN, &question);
            for _ in 0..LOOKS {
                fsleep(Delta::from_millis(LOOK_MS));
                if let Some(is_berth) = self.neighbours.is_berth(name) {
                    return is_berth;
                }
            }
        }
        self.neighbours.is_silent(name);
        false
    }

    /// Takes a management datagram of Berth's own; false: it is none.
    fn takes_mad(self: &Arc<Self>, header: &Header, data: &[u8]) -> bool {
        if header.to_qpn != MANAGEMENT_QPN || header.qkey != MANAGEMENT_QKEY {
            return false;
        }
        let Some((said, transaction)) = mad::read(data) else {
            return false;
        };
        let name = Name {
            ipv4: header.from_ip,
            mac: header.from_mac,
        };
        if self.neighbours.said(name, said, transaction) {
            self.note(
                header.to_ip,
                name,
                header.from_qpn,
                &mad::answer(transaction),
            );
        }
        true
    }

    /// Sends what is to be sent by the queue pair of a place; how many frames there were, at most `most`.
    fn send_of(&self, place: usize, most: usize) -> usize {
        let qp = match &self.places.lock().all[place] {
            Place::Used(qp) => qp.clone(),
            _ => return 0,
        };
        for n in 0..most {
            let Some(next) = qp.state.lock().outgoing.pop() else {
                return n;
            };
            // One that the network device drops was sent as well as one that is lost on the way.
            if self.device.transmit(next.skb).is_ok() {
                self.card.counters.add(D_DATAGRAMS, 1);
            }
            qp.send_done(next.wr_id, next.signalled, Status::Success);
        }
        most
    }
}

impl WorkItem for Exchange {
    type Pointer = Arc<Exchange>;

    fn run(this: Arc<Exchange>) {
        for _ in 0..NOTES {
            let Some(skb) = this.notes.lock().pop() else {
                break;
            };
            let _ = this.device.transmit(skb);
        }
        // Those that have more have their next turn when the others had one.
        let mut again = [0; MOST / 64];
        for _ in 0..MOST {
            let Some(place) = this.places.lock().next_busy() else {
                break;
            };
            if this.send_of(place, BATCH) == BATCH {
                again[place / 64] |= 1 << (place % 64);
            }
        }
        if again != [0; MOST / 64] {
            let mut places = this.places.lock();
            for (busy, again) in places.busy.iter_mut().zip(again) {
                *busy |= again;
            }
            drop(places);
            this.sends();
        }
    }
}

impl Datagrams for Exchange {
    fn received(self: Arc<Self>, skb: SkBuff) {
        let counters = &self.card.counters;
        let Some((header, data)) = Header::parse(skb.linear()) else {
            counters.add(D_DATAGRAMS_REFUSED, 1);
            return;
        };
        if self.takes_mad(&header, &skb.linear()[data.clone()]) {
            return;
        }
        let qp = self.find(header.to_qpn);
        let frame = Frame { skb, header, data };
        match qp.ok_or(ENOENT).and_then(|qp| qp.arrived(frame)) {
            Ok(()) => (),
            Err(e) if e == ENOBUFS => counters.add(D_DATAGRAMS_NO_RECEIVE, 1),
            Err(_) => counters.add(D_DATAGRAMS_REFUSED, 1),
        }
    }
}

impl Owner for Datagram {
    fn handler(&self) -> &Arc<QpHandler> {
        &self.handler
    }

    fn send_polled(&self) {
        let mut state = self.state.lock();
        state.sends = state.sends.saturating_sub(1);
    }

    fn receive_polled(&self) {
        let mut state = self.state.lock();
        state.received = state.received.saturating_sub(1);
    }
}

impl Datagram {
    pub(super) fn new(
        exchange: &Arc<Exchange>,
        kind: QpKind,
        capacity: &Capacity,
        [sent, received]: [&Arc<Completions>; 2],
        handler: Arc<QpHandler>,
    ) -> Result<Arc<Self>> {
        let qpn = exchange.places.lock().take(kind)?;
        let made = Self::make(exchange, qpn, capacity, [sent, received], handler);
        let place = made
            .as_ref()
            .map_or(Place::Free, |qp| Place::Used(qp.clone()));
        exchange.places.lock().put(qpn, place);
        made
    }

    fn make(
        exchange: &Arc<Exchange>,
        qpn: u32,
        capacity: &Capacity,
        [sent, received]: [&Arc<Completions>; 2],
        handler: Arc<QpHandler>,
    ) -> Result<Arc<Self>> {
        let [sends, receives] = [capacity.sends, capacity.receives].map(|n| n as usize);
        let state = State {
            state: QpState::Reset,
            qkey: 0,
            psn: 0,
            outgoing: Ring::new(sends)?,
            sends: 0,
            receives: Ring::new(receives)?,
            received: 0,
        };
        let made = Arc::pin_init(
            pin_init!(Self {
                handler,
                exchange: exchange.clone(),
                qpn,
                sent: sent.clone(),
                received: received.clone(),
                state <- new_spinlock_irq!(state, "berth_datagram"),
            }),
            GFP_KERNEL,
        )?;
        sent.reserve(sends)?;
        received
            .reserve(receives)
            .inspect_err(|_| sent.release(sends))?;
        Ok(made)
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Changes its state.
    pub(super) fn change(self: &Arc<Self>, to: QpState, attributes: &Attributes) {
        let before = {
            let mut state = self.state.lock();
            state.qkey = attributes.qkey;
            if to == QpState::ReadyToSend && state.state != to {
                state.psn = attributes.psn;
            }
            core::mem::replace(&mut state.state, to)
        };
        match to {
            QpState::Error if before != to => self.flush(),
            QpState::Reset => self.clear(),
            _ => (),
        }
    }

    /// Completes all that is posted as flushed.
    fn flush(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some(next) = state.outgoing.pop() else {
                break;
            };
            drop(state);
            drop(next.skb);
            self.send_done(next.wr_id, true, Status::Flushed);
        }
        loop {
            let Some(receive) = self.state.lock().receives.pop() else {
                break;
            };
            self.receive_done(receive, None, Status::Flushed);
        }
    }

    /// Forgets all that is posted.
    fn clear(&self) {
        self.sent.forget(&self.handler);
        self.received.forget(&self.handler);
        loop {
            let mut state = self.state.lock();
            (state.sends, state.received) = (0, 0);
            while state.receives.pop().is_some() {}
            let Some(next) = state.outgoing.pop() else {
                break;
            };
            drop(state);
            drop(next);
        }
    }

    /// Ends it: nothing is sent or received any more.
    pub(super) fn end(&self) {
        let gone = self.exchange.places.lock().put(self.qpn, Place::Free);
        let (sends, receives) = {
            let mut state = self.state.lock();
            state.state = QpState::Reset;
            (state.outgoing.room(), state.receives.room())
        };
        self.clear();
        self.sent.release(sends);
        self.received.release(receives);
        drop(gone);
    }

    fn send_done(self: &Arc<Self>, wr_id: u64, signalled: bool, status: Status) {
        if !signalled && status == Status::Success {
            self.send_polled();
            return;
        }
        let (qp, what) = (self.clone(), What::Sent(wr_id));
        self.sent.add(Entry { qp, what, status });
    }

    fn receive_done(self: &Arc<Self>, receive: Receive, frame: Option<Frame>, status: Status) {
        let (qp, what) = (self.clone(), What::Received(receive, frame));
        self.received.add(Entry { qp, what, status });
    }

    /// Posts a send.
    pub(super) fn post_send(self: &Arc<Self>, send: Send<'_, Address>) -> Result {
        let bytes = send.data.bytes();
        if bytes > roce_mtu(self.exchange.device.mtu_now()).into() {
            return Err(EMSGSIZE);
        }
        let bytes = bytes as usize;
        let (psn, qkey) = {
            let mut state = self.state.lock();
            match state.state {
                QpState::ReadyToSend | QpState::Error => (),
                _ => return Err(EINVAL),
            }
            if state.sends == state.outgoing.room() {
                return Err(ENOMEM);
            }
            state.sends += 1;
            if state.state == QpState::Error {
                drop(state);
                self.send_done(send.wr_id, true, Status::Flushed);
                return Ok(());
            }
            let psn = state.psn;
            state.psn = psn.wrapping_add(1) & 0xff_ffff;
            (psn, state.qkey)
        };
        let address = send.address;
        let header = Header {
            to_mac: address.path.mac,
            from_mac: self.exchange.device.address_now(),
            to_ip: address.to_ip,
            from_ip: address.from_ip,
            class: address.path.class,
            hops: match address.path.hops {
                0 => HOPS,
                hops => hops,
            },
            solicited: send.solicited,
            to_qpn: send.peer_qpn,
            from_qpn: self.qpn,
            qkey: match send.qkey & OWN_QKEY {
                0 => send.qkey,
                _ => qkey,
            },
            psn,
            immediate: send.immediate,
        };
        let skb = self
            .exchange
            .frame(&header, bytes, |to| send.data.gather(to))
            .inspect_err(|_| self.send_polled())?;
        let outgoing = Outgoing {
            skb,
            wr_id: send.wr_id,
            signalled: send.signalled,
        };
        let (state, refused) = {
            let mut state = self.state.lock();
            match state.state {
                // It has its place.
                QpState::ReadyToSend => (QpState::ReadyToSend, state.outgoing.push(outgoing).err()),
                other => (other, Some(outgoing)),
            }
        };
        drop(refused);
        if state != QpState::ReadyToSend {
            // Meanwhile it has been put in error, or reset.
            if state == QpState::Error {
                self.send_done(send.wr_id, true, Status::Flushed);
            }
            return Ok(());
        }
        let place = place_of(self.qpn);
        self.exchange.places.lock().busy[place / 64] |= 1 << (place % 64);
        self.exchange.sends();
        Ok(())
    }

    /// Posts a receive.
    pub(super) fn post_receive(self: &Arc<Self>, receive: Receive) -> Result {
        let mut state = self.state.lock();
        if state.state == QpState::Reset {
            return Err(EINVAL);
        }
        if state.received == state.receives.room() {
            return Err(ENOMEM);
        }
        state.received += 1;
        if state.state == QpState::Error {
            drop(state);
            self.receive_done(receive, None, Status::Flushed);
            return Ok(());
        }
        // It has its place.
        let _ = state.receives.push(receive);
        Ok(())
    }

    /// A datagram has come.
    fn arrived(self: &Arc<Self>, frame: Frame) -> Result {
        let receive = {
            let mut state = self.state.lock();
            let receives = matches!(state.state, QpState::ReadyToReceive | QpState::ReadyToSend);
            if !receives || frame.header.qkey != state.qkey {
                return Err(EPERM);
            }
            let room = state.receives.peek().ok_or(ENOBUFS)?.data.bytes();
            if room < (packet::GRH + frame.data.len()) as u64 {
                return Err(ENOBUFS);
            }
            state.receives.pop().ok_or(ENOBUFS)?
        };
        self.receive_done(receive, Some(frame), Status::Success);
        Ok(())
    }
}
