// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue elements: fetching, snapshots, completions.

use crate::hw::Hw;
use crate::limits::{GRANTS, RECV_SGES, SEND_SGES, SEND_WQES};
use crate::qp::{CLOSED, ERROR, GRANT_LOCAL, GRANT_NEW, Grant, Qp, Range, SendWqe, parse_element};
use crate::shared::{DMA_SCRATCH, Shared};
use berth_abi::counters::{F_BAD_INDEX, F_BAD_WQE};
use berth_abi::status::{REASON_BAD_INDEX, REASON_QUEUE_READ, WC_BAD_WQE, WC_FLUSHED, WC_OK};
use berth_abi::wqe::{CQE_PUSH, MAX_SGE, OP_RECV, OP_SEND, SEND_INLINE, SEND_PUSH, WQE_BYTES};

impl Qp {
    /// The doorbell has rung.
    pub fn doorbell<H: Hw>(&mut self, sq_pi: u16, rq_pi: u16, bytes: u32, sh: &mut Shared, hw: &mut H) {
        let wild = |new: u16, old: u16, head: u16, mask: u16| {
            let ahead = new.wrapping_sub(head);
            ahead > mask.wrapping_add(1) || ahead < old.wrapping_sub(head)
        };
        if wild(sq_pi, self.sq.pi, self.sq.head, self.sq_mask) || wild(rq_pi, self.rq.pi, self.rq.head, self.rq_mask) {
            hw.count(F_BAD_INDEX, 1);
            self.fail(REASON_BAD_INDEX, WC_FLUSHED, sh, hw);
            return;
        }
        self.sq.bytes_posted = bytes;
        if sq_pi != self.sq.pi {
            self.sq.pi = sq_pi;
            sh.send_work |= self.bit();
        }
        if rq_pi != self.rq.pi {
            self.rq.pi = rq_pi;
            sh.recv_work |= self.bit();
        }
        if self.state == ERROR || self.state == CLOSED {
            sh.close_work |= self.bit();
        }
    }

    /// Contexts in use.
    fn send_sges(&self) -> usize {
        match self.sq.head == self.sq.fetched {
            true => 0,
            false => self.sq.sge_tail.wrapping_sub(self.sq.wqes.at(self.sq.head).sge) as usize,
        }
    }

    /// SGEs of receives in use.
    fn recv_sges(&self) -> usize {
        match self.rq.head == self.rq.fetched {
            true => 0,
            false => self.rq.sge_tail.wrapping_sub(self.rq.grants.at(self.rq.head).sge) as usize,
        }
    }

    /// Room for the next send WQE's snapshot.
    fn send_room(&self) -> bool {
        (self.sq.fetched.wrapping_sub(self.sq.head) as usize) < SEND_WQES && self.send_sges() + MAX_SGE <= SEND_SGES
    }

    /// Room for the next receive's snapshot.
    pub fn recv_room(&self) -> bool {
        (self.rq.fetched.wrapping_sub(self.rq.head) as usize) < GRANTS && self.recv_sges() + MAX_SGE <= RECV_SGES
    }

    /// Fetches the next send WQE if there is one, and room for it.
    pub fn fetch_send<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        if self.sq.fetching || self.sq.dead || self.sq.fetched == self.sq.pi || !self.send_room() {
            return;
        }
        if let Some(place) = sh.scratch_alloc(self.idx, false) {
            self.sq.fetching = true;
            let at = (self.sq.fetched & self.sq_mask) as u32 * WQE_BYTES;
            let addr = self.sq_base.wrapping_add(at as u64);
            hw.dma_read_scratch(place, WQE_BYTES, addr, DMA_SCRATCH | place as u16);
        }
    }

    /// Fetches the next receive if there is one, and room for it.
    pub fn fetch_recv<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        if self.rq.fetching || self.rq.dead || self.rq.fetched == self.rq.pi || !self.recv_room() {
            return;
        }
        if let Some(place) = sh.scratch_alloc(self.idx, true) {
            self.rq.fetching = true;
            let at = (self.rq.fetched & self.rq_mask) as u32 * WQE_BYTES;
            let addr = self.rq_base.wrapping_add(at as u64);
            hw.dma_read_scratch(place, WQE_BYTES, addr, DMA_SCRATCH | place as u16);
        }
    }

    /// The read of a queue element has ended: `words` is the element, `None` if the host answered with an error.
    pub fn fetched<H: Hw>(&mut self, recv: bool, words: Option<&[u32; 32]>, sh: &mut Shared, hw: &mut H) {
        match recv {
            true => self.rq.fetching = false,
            false => self.sq.fetching = false,
        }
        match words {
            None => {
                match recv {
                    true => self.rq.dead = true,
                    false => self.sq.dead = true,
                }
                self.fail(REASON_QUEUE_READ, WC_FLUSHED, sh, hw);
            }
            Some(words) if recv => self.snapshot_recv(words, hw),
            Some(words) => self.snapshot_send(words, hw),
        }
        let bit = self.bit();
        match (self.state, recv) {
            (ERROR | CLOSED, _) => sh.close_work |= bit,
            (_, true) => sh.recv_work |= bit,
            (_, false) => sh.send_work |= bit,
        }
    }

    fn snapshot_send<H: Hw>(&mut self, words: &[u32; 32], hw: &mut H) {
        let sq = &mut self.sq;
        let first = sq.sge_tail;
        let sges = &mut sq.sges;
        let element = parse_element(words, OP_SEND, SEND_PUSH | SEND_INLINE, |i, va, len| {
            *sges.at_mut(first.wrapping_add(i as u16)) = Range { va, len, tag: 0 };
        });
        let mut wqe = SendWqe {
            start: sq.stream_end,
            wr_id: element.wr_id,
            len: element.len,
            sge: first,
            sges: element.sges,
            flags: element.flags,
            status: WC_OK,
        };
        if !element.good {
            hw.count(F_BAD_WQE, 1);
            (wqe.len, wqe.sges, wqe.status) = (0, 0, WC_BAD_WQE);
        }
        *sq.wqes.at_mut(sq.fetched) = wqe;
        sq.sge_tail = first.wrapping_add(wqe.sges as u16);
        sq.stream_end = wqe.end();
        sq.fetched = sq.fetched.wrapping_add(1);
    }

    fn snapshot_recv<H: Hw>(&mut self, words: &[u32; 32], hw: &mut H) {
        let rq = &mut self.rq;
        let first = rq.sge_tail;
        let sges = &mut rq.sges;
        let element = parse_element(words, OP_RECV, 0, |i, va, len| {
            *sges.at_mut(first.wrapping_add(i as u16)) = Range { va, len, tag: 0 };
        });
        let mut grant = Grant {
            wr_id: element.wr_id,
            len: element.len,
            sge: first,
            sges: element.sges,
            state: if element.len == 0 { GRANT_LOCAL } else { GRANT_NEW },
            ..NEW_GRANT
        };
        if !element.good {
            hw.count(F_BAD_WQE, 1);
            (grant.len, grant.sges) = (0, 0);
            (grant.state, grant.status) = (GRANT_LOCAL, WC_BAD_WQE);
        }
        *rq.grants.at_mut(rq.fetched) = grant;
        rq.sge_tail = first.wrapping_add(grant.sges as u16);
        rq.fetched = rq.fetched.wrapping_add(1);
    }

    /// Writes the completion of the oldest send.
    pub fn complete_send<H: Hw>(&mut self, status: u8, hw: &mut H) {
        let wqe = *self.sq.wqes.at(self.sq.head);
        self.sq.head = self.sq.head.wrapping_add(1);
        if self.destroying {
            return;
        }
        let len = if status == WC_OK { wqe.len } else { 0 };
        hw.cqe(
            self.send_cqn as u32,
            &[
                wqe.wr_id as u32,
                (wqe.wr_id >> 32) as u32,
                len,
                self.qpn(),
                status as u32 | (OP_SEND as u32) << 8,
                0,
                0,
                0,
            ],
        );
    }

    /// Writes the completion of the oldest receive.
    pub fn complete_recv<H: Hw>(&mut self, status: u8, hw: &mut H) {
        let grant = *self.rq.grants.at(self.rq.head);
        self.rq.head = self.rq.head.wrapping_add(1);
        self.rq.completed = self.rq.completed.wrapping_add(1);
        if self.destroying {
            return;
        }
        let (len, remaining) = match status {
            WC_OK => (grant.filled, grant.remaining),
            _ => (0, 0),
        };
        let flags = if grant.push { CQE_PUSH as u32 } else { 0 };
        hw.cqe(
            self.recv_cqn as u32,
            &[
                grant.wr_id as u32,
                (grant.wr_id >> 32) as u32,
                len,
                self.qpn(),
                status as u32 | (OP_RECV as u32) << 8 | flags << 16,
                remaining,
                grant.credit,
                0,
            ],
        );
    }

    /// Winds up a QP whose connection is over, as far as the engines have let go of it. True
    /// when it is free.
    pub fn wind_up<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        if self.sq.flying == 0 && self.sq.probing == 0 {
            self.drop_blocks(sh, hw);
        } else {
            return false;
        }
        if self.rq.placing != 0 || self.rq.probing != 0 {
            return false;
        }
        self.drop_grants(sh, hw);
        if self.destroying {
            return !self.sq.fetching && !self.rq.fetching && self.todo == 0;
        }
        while self.sq.head != self.sq.fetched {
            sh.step();
            let wqe = self.sq.wqes.at(self.sq.head);
            let status = match (self.sq.head_status, wqe.status) {
                (WC_OK, WC_OK) => WC_FLUSHED,
                (WC_OK, own) => own,
                (head, _) => head,
            };
            self.sq.head_status = WC_FLUSHED;
            self.complete_send(status, hw);
        }
        self.sq.sge_tail = 0;
        while self.rq.head != self.rq.fetched {
            sh.step();
            let grant = self.rq.grants.at(self.rq.head);
            let status = match grant.status {
                WC_OK => WC_FLUSHED,
                own => own,
            };
            self.complete_recv(status, hw);
        }
        self.rq.sge_tail = 0;
        self.fetch_send(sh, hw);
        self.fetch_recv(sh, hw);
        false
    }
}

/// A receive that has not begun.
const NEW_GRANT: Grant = Grant {
    wr_id: 0,
    len: 0,
    credit: 0,
    filled: 0,
    remaining: 0,
    sge: 0,
    sges: 0,
    state: GRANT_NEW,
    status: WC_OK,
    held: 0,
    probing: 0,
    waiting: 0,
    stale: false,
    withdrawn: false,
    push: false,
};
