// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw queues of a host: the kernel's rings, whose elements name memory by bus addresses.

use crate::driver::Host;
use crate::memory::{Access, PAGE};
use berth_abi::host::{DB_RAW_RQ, DB_RAW_SQ};
use berth_abi::message::{CmdDone, RawCreate, RawDestroy};
use berth_abi::raw::{RAW_WQE_BYTES, RawWqe};
use berth_abi::status::CMD_OK;
use berth_abi::wqe::{OP_RECV, OP_SEND, Sge};
use berth_rtl::BAR_DOORBELL;

/// An element with its ranges: (bus address, bytes).
#[must_use]
pub fn raw_element(opcode: u8, flags: u8, wr_id: u64, ranges: &[(u64, u32)]) -> RawWqe {
    let mut wqe = RawWqe {
        opcode,
        flags,
        num_sge: ranges.len() as u16,
        length: ranges.iter().map(|range| range.1).sum(),
        wr_id,
        ..RawWqe::default()
    };
    for (sge, &(va, len)) in wqe.sge.iter_mut().zip(ranges) {
        *sge = Sge { va, len, reserved: 0 };
    }
    wqe
}

/// A ring.
#[derive(Clone, Copy, Debug)]
struct Ring {
    base: u64,
    log2: u8,
    pi: u16,
}

/// A raw queue.
#[derive(Clone, Copy, Debug)]
pub struct RawQueue {
    number: u8,
    /// Of sends, of receives.
    rings: [Ring; 2],
}

impl RawQueue {
    /// Makes a queue of the card. `want.sq_base` and `want.rq_base` are filled in.
    ///
    /// Panics when the card refuses it.
    #[must_use]
    pub fn new(host: &mut Host, want: RawCreate) -> Self {
        let ring = |log2: u8| {
            let base = host.memory.alloc((u64::from(RAW_WQE_BYTES) << log2).div_ceil(PAGE), Access::Read);
            Ring { base, log2, pi: 0 }
        };
        let rings = [ring(want.log2_sq), ring(want.log2_rq)];
        let create = RawCreate { sq_base: rings[0].base, rq_base: rings[1].base, ..want };
        assert_eq!(host.command(create.encode()).status, CMD_OK, "CMD_RAW_CREATE");
        Self { number: want.queue, rings }
    }

    /// Writes an element into a ring, without ringing the doorbell.
    pub fn put(&mut self, host: &Host, wqe: &RawWqe) {
        let ring = &mut self.rings[usize::from(wqe.opcode != OP_SEND)];
        let at = ring.base + u64::from(ring.pi & ((1 << ring.log2) - 1)) * u64::from(RAW_WQE_BYTES);
        ring.pi = ring.pi.wrapping_add(1);
        host.memory.poke(at, &wqe.words().map(u64::to_le_bytes).concat());
    }

    /// Rings both doorbells.
    pub fn ring(&self, host: &mut Host) {
        for (ring, doorbell) in self.rings.iter().zip([DB_RAW_SQ, DB_RAW_RQ]) {
            let value = u64::from(self.number) | u64::from(ring.pi) << 16;
            host.card.post_write(BAR_DOORBELL, doorbell.into(), value, 8);
        }
    }

    /// Posts a send of one range.
    pub fn send(&mut self, host: &Host, wr_id: u64, at: u64, len: u32) {
        self.put(host, &raw_element(OP_SEND, 0, wr_id, &[(at, len)]));
    }

    /// Posts a receive of one range.
    pub fn receive(&mut self, host: &Host, wr_id: u64, at: u64, len: u32) {
        self.put(host, &raw_element(OP_RECV, 0, wr_id, &[(at, len)]));
    }

    /// Ends the queue; gives the card's answer.
    pub fn end(self, host: &mut Host) -> CmdDone {
        host.command(RawDestroy { queue: self.number }.encode())
    }
}
