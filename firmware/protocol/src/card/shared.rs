// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all QPs and peers share: the node's name, transmit slots, work bitmaps, the timer.

use super::hw::{Hw, TX_NO_ICRC};
use super::limits::ANSWERS;
use crate::base::bound::Bound;
use crate::base::keyed::{Key, siphash};
use crate::base::set::Set;
use crate::base::turn::Turn;
use crate::memory::squeeze::Squeeze;
use crate::wire::headers::{Mac, arp};
use berth_abi::card::{NUM_CQS, NUM_PEERS, NUM_QPS, TX_SLOTS};
use berth_abi::counters::F_TX_STARVED;
use berth_abi::message::CmdDone;
use berth_abi::wide;

/// Positions of QPs, of peers, and CQNs.
pub type Qps = Set<{ (NUM_QPS as usize).div_ceil(64) }>;
type Peers = Set<{ (NUM_PEERS as usize).div_ceil(64) }>;
type Cqs = Set<{ (NUM_CQS as usize).div_ceil(64) }>;

/// State that is not one QP's. All-zero when new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Own IPv4 address; 0 before `CMD_NET_CONFIG`.
    pub ip: u32,
    /// Own MAC address.
    pub mac: Mac,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// The host's secret, from which PSNs, epochs, incarnations and names of challenges are derived.
    key: Key,
    /// Numbers drawn with it.
    drawn: u32,
    /// Two that have been drawn ahead; 0: none.
    spare: [u32; 2],
    /// QPs with control records to send.
    pub ctl_work: Qps,
    /// QPs whose records found no room in their peer's window.
    pub ctl_blocked: Qps,
    /// Peers that found no transmit slot.
    pub peer_blocked: Peers,
    /// QPs with events for the host.
    pub event_work: Qps,
    /// QPs to be wound up.
    pub close_work: Qps,
    /// Peers with control traffic.
    pub peer_work: Peers,
    /// Whether requests have work.
    pub request_work: bool,
    /// Another host has our address: it has been said since the name was set.
    pub conflict: bool,
    /// Number of the last request.
    pub request_serial: u32,
    /// Places where the round robins stand.
    pub last: [Turn; 4],
    tx_busy: u32,
    /// QP that last asked its peer whether it lives.
    pub probe_last: Turn,
    /// State of memory pressure.
    pub pressure: Pressure,
    armed: u64,
    /// CQs that are configured.
    pub cqs: Cqs,
    answers: [[u32; 16]; ANSWERS],
    answers_len: u8,
    /// Step bound of the card's call that is under way.
    bound: Bound,
}

impl Shared {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            ip: 0,
            mac: Mac(0, 0),
            mtu: 0,
            key: [0; 2],
            drawn: 0,
            spare: [0; 2],
            ctl_work: Set::EMPTY,
            ctl_blocked: Set::EMPTY,
            peer_blocked: Set::EMPTY,
            event_work: Set::EMPTY,
            close_work: Set::EMPTY,
            peer_work: Set::EMPTY,
            request_work: false,
            conflict: false,
            request_serial: 0,
            last: [Turn::NEW; 4],
            tx_busy: 0,
            probe_last: Turn::NEW,
            pressure: Pressure::new(),
            armed: 0,
            cqs: Set::EMPTY,
            answers: [[0; 16]; ANSWERS],
            answers_len: 0,
            bound: Bound::new(0),
        }
    }

    /// A call of the card begins, which has at most `steps` steps ([`super::steps`]).
    #[inline(always)]
    pub const fn begin(&mut self, steps: u32) {
        self.bound = Bound::new(steps);
    }

    /// One turn of a loop, in whatever the call has come to.
    #[inline(always)]
    pub const fn step(&mut self) {
        self.bound.step();
    }

    /// Mixes `value` into the key.
    pub fn stir(&mut self, value: u64) {
        self.spare = [0; 2];
        self.key = [siphash(self.key, [value, u64::MAX]), siphash(self.key, [value, u64::MAX - 1])];
    }

    /// Two numbers for PSNs, epochs and incarnations that cannot be guessed from earlier ones, nor from each other. Not 0.
    pub fn random_pair(&mut self) -> [u32; 2] {
        match core::mem::take(&mut self.spare) {
            [0, 0] => self.draw(),
            spare => spare,
        }
    }

    /// Draws the next two numbers, if that has not been done: for when nobody waits for the core.
    pub fn draw_ahead(&mut self) {
        if self.spare == [0, 0] && self.ip != 0 {
            self.spare = self.draw();
        }
    }

    fn draw(&mut self) -> [u32; 2] {
        self.drawn = self.drawn.wrapping_add(1);
        // Never the input of a challenge, because no peer has address 0.
        let both = siphash(self.key, [self.drawn as u64, 0]);
        [both as u32, (both >> 32) as u32].map(|number| number.max(1))
    }

    /// The names with which the end with address `ip` that calls itself `from` may begin, as long as our end is `ours`
    /// and `theirs` the one that we know of it (0: none): the first one if it does not know our end, the second one if
    /// it does. Only a host that we have sent them to knows them, and this card need not remember who asks (the idea of
    /// SYN cookies, RFC 4987 3.6). Not 0.
    pub fn challenge(&self, ip: u32, from: u32, ours: u32, theirs: u32) -> [u32; 2] {
        let names = siphash(self.key, [wide(from, ip), wide(theirs, ours)]);
        [names as u32, (names >> 32) as u32].map(|name| name.max(1))
    }

    /// A free transmit slot; counts when there is none.
    pub fn tx_alloc<H: Hw>(&mut self, hw: &mut H) -> Option<u32> {
        const ALL: u32 = (1 << TX_SLOTS) - 1;
        let free = !self.tx_busy & ALL;
        if free == 0 {
            hw.count(F_TX_STARVED, 1);
            return None;
        }
        let slot = free.trailing_zeros();
        self.tx_busy |= 1 << slot;
        Some(slot)
    }

    /// Sends an ARP message to `to` (a request goes to all) from slot `slot`.
    #[inline(never)]
    pub fn send_arp<H: Hw>(&mut self, slot: u32, message: &arp::Arp, to: Mac, hw: &mut H) {
        hw.tx_write(slot, 0, &arp::emit(message, to));
        hw.tx_send(slot, arp::LEN, TX_NO_ICRC);
    }

    /// Frees a transmit slot.
    pub fn tx_free(&mut self, slot: u32) {
        let bit = 1u32.checked_shl(slot).unwrap_or(0);
        if self.tx_busy & bit != 0 {
            self.tx_busy &= !bit;
            self.peer_work.take_in(&mut self.peer_blocked);
        }
    }

    /// QP `i` is gone: no work is left of it.
    pub fn forget_qp(&mut self, i: usize) {
        for of_qps in [&mut self.ctl_work, &mut self.ctl_blocked, &mut self.event_work, &mut self.close_work] {
            of_qps.remove(i);
        }
    }

    /// The timer must come at `deadline` or before.
    pub fn arm<H: Hw>(&mut self, deadline: u64, hw: &mut H) {
        if self.armed == 0 || deadline < self.armed {
            self.armed = deadline;
            hw.timer_arm(deadline);
        }
    }

    /// The timer has come or is to be forgotten.
    pub fn disarm<H: Hw>(&mut self, hw: &mut H) {
        self.armed = 0;
        hw.timer_off();
    }

    /// Room for the answer of one more command that may be answered at once.
    pub fn answer_room(&self) -> bool {
        (self.answers_len as usize) < ANSWERS
    }

    /// Answers a command: `EV_CMD_DONE` with up to 12 result words.
    pub fn answer<H: Hw>(&mut self, cookie: u32, status: u32, results: &[u32], hw: &mut H) {
        let mut done = CmdDone { cookie, status, ..CmdDone::default() };
        for (to, from) in done.results.iter_mut().zip(results) {
            self.step();
            *to = *from;
        }
        let event = done.encode();
        self.flush_answers(hw);
        if self.answers_len == 0 && hw.event_space() > 0 {
            hw.event(&event);
        } else if let Some(place) = self.answers.get_mut(self.answers_len as usize) {
            *place = event;
            self.answers_len += 1;
        }
    }

    /// Writes answers that waited for room in the event ring. True when none is left.
    pub fn flush_answers<H: Hw>(&mut self, hw: &mut H) -> bool {
        while self.answers_len > 0 {
            self.step();
            if hw.event_space() == 0 {
                return false;
            }
            hw.event(&self.answers[0]);
            self.answers.rotate_left(1);
            self.answers_len -= 1;
        }
        true
    }
}

/// What the card remembers from one shortage to the next. All-zero when new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pressure {
    /// QP that credits were last recalled from.
    pub(super) recalled: Turn,
    /// QP whose receive keeps the memory that it holds while it waits for the rest, when no other QP would give any back.
    pub(super) squeeze: Squeeze,
}

impl Pressure {
    /// All zero.
    pub const fn new() -> Self {
        Self { recalled: Turn::NEW, squeeze: Squeeze::new() }
    }
}
