// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw queues: RTL has them. Firmware checks what the driver wants, and answers the end of one when its DMA is over.

use super::hw::Hw;
use super::shared::Shared;
use berth_abi::card::RAW_QUEUES;
use berth_abi::message::{RawCreate, RawFilter, RawMode};
use berth_abi::raw::{
    RAW_GO_CREATE, RAW_GO_END, RAW_GO_FILTER, RAW_GO_MODE, RawAttr, RawCqs, RawFilterAttr, RawFilterPorts,
};
use berth_abi::status::{CMD_BUSY, CMD_INVALID, CMD_NOT_FOUND, CMD_OK};

/// Raw queues of the card.
pub(super) const QUEUES: usize = RAW_QUEUES as usize;

/// What firmware knows of one. All-zero when there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue {
    on: bool,
    /// It is to end, and this command is answered then.
    ends: bool,
    cookie: u32,
    cqns: [u16; 2],
}

/// All of them. All-zero when new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queues {
    all: [Queue; QUEUES],
    /// How many of them are to end: none, as a rule, which is all that the main loop looks at.
    ending: u8,
}

impl Queues {
    /// No queues.
    pub(crate) const fn new() -> Self {
        Self { all: [const { Queue { on: false, ends: false, cookie: 0, cqns: [0; 2] } }; QUEUES], ending: 0 }
    }

    /// One of them completes to this CQ.
    pub(super) fn uses(&self, cqn: u32) -> bool {
        self.all.iter().any(|queue| queue.on && queue.cqns.contains(&(cqn as u16)))
    }

    /// Queue `number`, if it exists and is not to end.
    fn live(&mut self, number: u8) -> Option<&mut Queue> {
        self.all.get_mut(usize::from(number)).filter(|queue| queue.on && !queue.ends)
    }

    /// Makes one.
    pub(super) fn create<H: Hw>(&mut self, want: &RawCreate, sh: &Shared, hw: &mut H) -> u32 {
        let &RawCreate { queue, log2_sq, log2_rq, flags, send_cqn, recv_cqn, sq_base, rq_base } = want;
        let cq = |cqn: u16| sh.cqs.has(cqn.into());
        if !want.is_sound() || !cq(send_cqn) || !cq(recv_cqn) {
            return CMD_INVALID;
        }
        let Some(place) = self.all.get_mut(usize::from(queue)) else {
            return CMD_INVALID;
        };
        if place.on {
            return CMD_BUSY;
        }
        *place = Queue { on: true, ends: false, cookie: 0, cqns: [send_cqn, recv_cqn] };
        let [log2_sq, log2_rq, flags, number] = [log2_sq, log2_rq, flags, queue].map(u32::from);
        let attr = RawAttr { flags, log2_rq, log2_sq, number }.word();
        let cqs = RawCqs { recv: recv_cqn.into(), send: send_cqn.into() }.word();
        let [sq, rq] = [sq_base, rq_base].map(|base| [base as u32, (base >> 32) as u32]);
        hw.raw_set(RAW_GO_CREATE, &[attr, cqs, sq[0], sq[1], rq[0], rq[1]]);
        CMD_OK
    }

    /// Sets the flags of one.
    pub(super) fn mode<H: Hw>(&mut self, want: &RawMode, hw: &mut H) -> u32 {
        if !want.is_sound() {
            return CMD_INVALID;
        }
        if self.live(want.queue).is_none() {
            return CMD_NOT_FOUND;
        }
        let attr = RawAttr { flags: want.flags.into(), log2_rq: 0, log2_sq: 0, number: want.queue.into() };
        hw.raw_set(RAW_GO_MODE, &[attr.word(), 0, 0, 0, 0, 0]);
        CMD_OK
    }

    /// Sets a filter, or ends it.
    pub(super) fn filter<H: Hw>(&mut self, want: &RawFilter, hw: &mut H) -> u32 {
        if !want.is_sound() {
            return CMD_INVALID;
        }
        if want.fields != 0 && self.live(want.queue).is_none() {
            return CMD_NOT_FOUND;
        }
        let &RawFilter { filter, queue, fields, protocol, ethertype, port, mac_first, mac_last } = want;
        let [protocol, fields, target, filter] = [protocol, fields, queue, filter].map(u32::from);
        let attr = RawFilterAttr { protocol, fields, target, filter }.word();
        let ports = RawFilterPorts { port: port.into(), ethertype: ethertype.into() }.word();
        hw.raw_set(RAW_GO_FILTER, &[attr, ports, mac_first, mac_last, 0, 0]);
        CMD_OK
    }

    /// Begins to end one; [`Queues::step`] answers.
    pub(super) fn end<H: Hw>(&mut self, number: u8, cookie: u32, hw: &mut H) -> u32 {
        let Some(queue) = self.live(number) else {
            return CMD_NOT_FOUND;
        };
        (queue.ends, queue.cookie) = (true, cookie);
        self.ending = self.ending.saturating_add(1);
        let attr = RawAttr { flags: 0, log2_rq: 0, log2_sq: 0, number: number.into() };
        hw.raw_set(RAW_GO_END, &[attr.word(), 0, 0, 0, 0, 0]);
        CMD_OK
    }

    /// Whether one is to end, so that [`Queues::step`] has something to look at.
    #[inline(always)]
    pub(super) fn ends(&self) -> bool {
        self.ending != 0
    }

    /// Answers one that has ended. True when one has not.
    #[inline(never)]
    pub(super) fn step<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        let Some((number, queue)) = self.all.iter_mut().enumerate().find(|(_, queue)| queue.ends) else {
            return false;
        };
        if !sh.answer_room() {
            // The event ring is full; its timer comes.
            return false;
        }
        if hw.raw_busy() >> number & 1 == 0 {
            (queue.on, queue.ends) = (false, false);
            self.ending = self.ending.saturating_sub(1);
            sh.answer(queue.cookie, CMD_OK, &[], hw);
        }
        self.ending != 0
    }
}
