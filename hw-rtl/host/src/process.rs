// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of a host: their memory, queues and completions.

use crate::driver::{Cq, Host, Qp};
use crate::memory::{Access, PAGE, pages};
use crate::pager::Page;
use berth_abi::host::*;
use berth_abi::message::{CmdDone, CqCreate, Fence, QpCreate, RangeRevoked};
use berth_abi::status::CMD_OK;
use berth_abi::wqe::*;
use berth_rtl::BAR_DOORBELL;

/// A send or receive element (`OP_*`, `SEND_*`) with its ranges: (virtual address, bytes).
#[must_use]
pub fn element(opcode: u8, flags: u8, wr_id: u64, sges: &[(u64, u32)]) -> Vec<u8> {
    let mut b = vec![opcode, flags];
    b.extend((sges.len() as u16).to_le_bytes());
    b.extend(sges.iter().map(|s| s.1).fold(0u32, u32::wrapping_add).to_le_bytes());
    b.extend(wr_id.to_le_bytes());
    for &(va, len) in sges {
        b.extend(va.to_le_bytes());
        b.extend(len.to_le_bytes());
        b.extend([0; 4]);
    }
    b.resize(WQE_BYTES as usize, 0);
    b
}

impl Host {
    /// Gives process `asid` `len` bytes of fresh memory at an address with offset `offset` in its page.
    pub fn alloc(&mut self, asid: u32, len: u64, offset: u64, writable: bool) -> u64 {
        let pages = (offset + len.max(1)).div_ceil(PAGE);
        let first = self.next_vpn;
        self.next_vpn += pages + 1; // one unmapped page behind
        for vpn in first..first + pages {
            let bus = self.memory.alloc(1, Access::None);
            self.pager.map(asid, vpn, Page { bus, writable });
        }
        first * PAGE + offset
    }

    fn each_page(&self, asid: u32, va: u64, len: usize, mut f: impl FnMut(u64, usize, usize)) {
        let mut done = 0;
        while done < len {
            let at = va + done as u64;
            let n = ((PAGE - at % PAGE) as usize).min(len - done);
            let page = self.pager.page(asid, at / PAGE).expect("mapped");
            f(page.bus + at % PAGE, done, n);
            done += n;
        }
    }

    /// Reads a process's memory.
    pub fn read(&self, asid: u32, va: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len);
        self.each_page(asid, va, len, |bus, _, n| out.extend(self.memory.peek(bus, n)));
        out
    }

    /// Writes a process's memory.
    pub fn write(&self, asid: u32, va: u64, data: &[u8]) {
        self.each_page(asid, va, data.len(), |bus, at, n| self.memory.poke(bus, &data[at..at + n]));
    }

    /// Pins a process's memory and makes it known to the card, before that asks. It stays pinned, as does everything from now
    /// on.
    pub fn pin(&mut self, asid: u32, va: u64, len: u64) {
        self.pager.keep_pinned();
        let commands = self.pager.pin(asid, pages(va, len), &self.memory);
        self.queue_commands(commands);
    }

    /// Unmaps pages from a process: what `munmap` leaves. Later requests for them fail.
    pub fn unmap(&mut self, asid: u32, va: u64, len: u64) {
        self.pager.unmap(asid, pages(va, len));
    }

    /// Takes memory away from a process as the kernel does (decision 17): the pages go at
    /// once, translations are revoked, a fence waits for DMA already issued, then the frames
    /// are out of the card's reach. Returns the cookie of `CMD_RANGE_REVOKED`, with which
    /// firmware lets go. Panics when the fence takes more than 100000 cycles.
    pub fn revoke(&mut self, asid: u32, va: u64, len: u64) -> u32 {
        let vpns = pages(va, len);
        let commands = self.pager.revoke(asid, vpns.clone());
        self.queue_commands(commands);
        self.fence_token += 1;
        let token = self.fence_token;
        self.queue_commands([Fence { token }.encode()]);
        let end = self.card.cycles() + 100_000;
        while self.memory.peek(self.fence, 8) != token.to_le_bytes() {
            assert!(self.card.cycles() < end, "the fence does not end: {}", self.report());
            self.step();
        }
        self.pager.revoked(asid, vpns, &self.memory);
        self.submit(RangeRevoked { asid, va, len }.encode())
    }

    /// Makes a completion queue of `1 << log2` entries.
    pub fn create_cq(&mut self, cqn: u32, uar: u32, log2: u32) {
        let bytes = u64::from(CQE_BYTES) << log2;
        let base = self.memory.alloc(bytes.div_ceil(PAGE), Access::ReadWrite);
        let cq = CqCreate { cqn, uar, log2_entries: log2, base };
        assert_eq!(self.command(cq.encode()).status, CMD_OK, "CMD_CQ_CREATE");
        self.cqs.insert(cqn, Cq { base, log2, ci: 0, uar });
    }

    /// Makes a queue pair. `want.sq_base` and `want.rq_base` are filled in.
    pub fn create_qp(&mut self, want: QpCreate) {
        assert_eq!(self.try_create_qp(want).status, CMD_OK, "CMD_QP_CREATE");
    }

    /// As [`create_qp`](Self::create_qp); gives the card's answer.
    pub fn try_create_qp(&mut self, want: QpCreate) -> CmdDone {
        let mut q = want;
        let queue = |log2: u8| self.memory.alloc((u64::from(WQE_BYTES) << log2).div_ceil(PAGE), Access::Read);
        (q.sq_base, q.rq_base) = (queue(q.log2_sq), queue(q.log2_rq));
        let answer = self.command(q.encode());
        self.qps.insert(
            q.qpn,
            Qp {
                asid: q.asid.into(),
                uar: q.uar.into(),
                sq: q.sq_base,
                rq: q.rq_base,
                log2_sq: q.log2_sq.into(),
                log2_rq: q.log2_rq.into(),
                sq_pi: 0,
                rq_pi: 0,
                bytes: 0,
            },
        );
        answer
    }

    /// Writes a send element without ringing the doorbell.
    pub fn put_send(&mut self, qpn: u32, wr_id: u64, flags: u8, sges: &[(u64, u32)]) {
        let q = self.qps.get_mut(&qpn).expect("QP");
        let at = q.sq + u64::from(u32::from(q.sq_pi) & ((1 << q.log2_sq) - 1)) * u64::from(WQE_BYTES);
        q.sq_pi = q.sq_pi.wrapping_add(1);
        q.bytes = sges.iter().fold(q.bytes, |b, s| b.wrapping_add(s.1));
        self.memory.poke(at, &element(OP_SEND, flags, wr_id, sges));
    }

    /// Writes a receive element without ringing the doorbell.
    pub fn put_recv(&mut self, qpn: u32, wr_id: u64, sges: &[(u64, u32)]) {
        let q = self.qps.get_mut(&qpn).expect("QP");
        let at = q.rq + u64::from(u32::from(q.rq_pi) & ((1 << q.log2_rq) - 1)) * u64::from(WQE_BYTES);
        q.rq_pi = q.rq_pi.wrapping_add(1);
        self.memory.poke(at, &element(OP_RECV, 0, wr_id, sges));
    }

    /// Rings the send doorbell.
    pub fn ring_send(&mut self, qpn: u32) {
        let q = &self.qps[&qpn];
        let value = u64::from(qpn) | u64::from(q.sq_pi) << 16 | u64::from(q.bytes) << 32;
        let at = u64::from(q.uar) * PAGE + u64::from(DB_SQ);
        self.card.post_write(BAR_DOORBELL, at, value, 8);
    }

    /// Rings the receive doorbell.
    pub fn ring_recv(&mut self, qpn: u32) {
        let q = &self.qps[&qpn];
        let value = u64::from(qpn) | u64::from(q.rq_pi) << 16;
        let at = u64::from(q.uar) * PAGE + u64::from(DB_RQ);
        self.card.post_write(BAR_DOORBELL, at, value, 8);
    }

    /// Posts one send.
    pub fn post_send(&mut self, qpn: u32, wr_id: u64, sges: &[(u64, u32)]) {
        self.put_send(qpn, wr_id, 0, sges);
        self.ring_send(qpn);
    }

    /// Posts receives with one doorbell.
    pub fn post_recvs(&mut self, qpn: u32, recvs: &[(u64, Vec<(u64, u32)>)]) {
        for (wr_id, sges) in recvs {
            self.put_recv(qpn, *wr_id, sges);
        }
        self.ring_recv(qpn);
    }

    /// The address space of a QP.
    pub fn asid_of(&self, qpn: u32) -> u32 {
        self.qps[&qpn].asid
    }

    /// Bus addresses of a QP's send and receive queue.
    pub fn queues(&self, qpn: u32) -> (u64, u64) {
        (self.qps[&qpn].sq, self.qps[&qpn].rq)
    }

    /// Bus addresses of the pages of a process's memory, page by page.
    pub fn bus(&self, asid: u32, va: u64, len: usize) -> Vec<u64> {
        let mut pages = Vec::new();
        self.each_page(asid, va, len, |bus, _, _| pages.push(bus / PAGE * PAGE));
        pages
    }

    /// Takes completions from a CQ and tells the card.
    pub fn poll_cq(&mut self, cqn: u32) -> Vec<Cqe> {
        let (base, log2, mut ci, uar) = {
            let c = &self.cqs[&cqn];
            (c.base, c.log2, c.ci, c.uar)
        };
        let mut out = Vec::new();
        loop {
            let at = base + u64::from(ci & ((1 << log2) - 1)) * u64::from(CQE_BYTES);
            let cqe = Cqe::from_words(&self.memory.words(at));
            if (cqe.phase & PHASE != 0) != ((ci >> log2) & 1 == 0) {
                break;
            }
            ci = ci.wrapping_add(1);
            out.push(cqe);
        }
        if !out.is_empty() {
            self.cqs.get_mut(&cqn).expect("CQ").ci = ci;
            let value = u64::from(cqn) | u64::from(ci & 0xffff) << 16;
            self.card.post_write(BAR_DOORBELL, u64::from(uar) * PAGE + u64::from(DB_CQ), value, 8);
        }
        out
    }
}
