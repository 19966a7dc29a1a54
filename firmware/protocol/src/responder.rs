// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver's side of a reliable connection: sequence check, placement, landing of
//! credits, acknowledgements.

use crate::headers::{
    ACK, ACKNOWLEDGE, NAK_OPERATION, NAK_SEQUENCE, PSN_MASK, Packet, SEND_FIRST, SEND_LAST_IMM, SEND_MIDDLE,
    SEND_ONLY_IMM, psn_add, psn_sub,
};
use crate::hw::{Hw, TX_LOOPBACK};
use crate::limits::ACK_EVERY;
use crate::qp::{CONNECTED, GRANT_DONE, GRANT_LOCAL, GRANT_POSTED, Qp};
use crate::shared::{DMA_PLACE, RxSlot, Shared};
use berth_abi::card::RX_SLOTS;
use berth_abi::counters::{
    F_ACKS_SENT, F_BAD_HEADER, F_BAD_OPCODE, F_BYTES_PLACED, F_CREDITS_OUTSTANDING, F_DATA_RECEIVED, F_DUPLICATES,
    F_NAKS_SENT, F_NO_BUFFER, F_NO_CREDIT, F_OUT_OF_SEQUENCE,
};
use berth_abi::cpu::CRD_LANDED;
use berth_abi::status::{REASON_PROTOCOL, REASON_WITHDRAWN, WC_FLUSHED, WC_WITHDRAWN};

impl Qp {
    /// A data packet from the peer lies in receive slot `slot`. The slot is freed here, or when its bytes are placed.
    pub fn data<H: Hw>(&mut self, p: &Packet, slot: u32, sh: &mut Shared, hw: &mut H) {
        if !self.accept(p, slot, sh, hw) {
            hw.rx_free(slot);
        }
    }

    /// Checks and places a data packet; false when the slot is not needed any more.
    fn accept<H: Hw>(&mut self, p: &Packet, slot: u32, sh: &mut Shared, hw: &mut H) -> bool {
        let (first, last) = match p.opcode {
            SEND_FIRST => (true, false),
            SEND_MIDDLE => (false, false),
            SEND_LAST_IMM => (false, true),
            SEND_ONLY_IMM => (true, true),
            _ => {
                hw.count(F_BAD_OPCODE, 1);
                return false;
            }
        };
        let mtu = self.mtu();
        let ahead = psn_sub(p.psn, self.rq.psn);
        if ahead >= 1 << 23 {
            // Seen before: the acknowledgement was lost, so give it again.
            hw.count(F_DUPLICATES, 1);
            self.owe_ack(sh);
            return false;
        }
        if ahead != 0 {
            hw.count(F_OUT_OF_SEQUENCE, 1);
            // One NAK for a gap, and one more when the sender has gone back and it is still there.
            let again = psn_sub(self.rq.nak_psn, p.psn) < 1 << 23;
            if !self.rq.nak_sent || again {
                self.rq.nak_sent = true;
                self.rq.nak_due = NAK_SEQUENCE as u8;
                sh.ack_work |= self.bit();
            }
            self.rq.nak_psn = p.psn;
            return false;
        }
        let rq = &mut self.rq;
        if first == rq.in_piece {
            hw.count(F_BAD_OPCODE, 1);
            return false;
        }
        if p.len == 0 || p.len > mtu || (!last && p.len != mtu) {
            hw.count(F_BAD_HEADER, 1);
            return false;
        }
        rq.nak_sent = false;
        if first && !self.land(sh, hw) {
            return false;
        }
        let rq = &mut self.rq;
        let index = rq.land.wrapping_sub(1);
        let grant = rq.grants.at_mut(index);
        if p.len > grant.len - grant.filled {
            // More than the credit: the peer does not keep to the credits.
            hw.count(F_NO_CREDIT, 1);
            self.refuse(REASON_PROTOCOL, sh, hw);
            return false;
        }
        if grant.withdrawn {
            self.refuse(REASON_WITHDRAWN, sh, hw);
            return false;
        }
        let Some(place) = rq.slots.get_mut(rq.placing as usize) else {
            return false;
        };
        *place = slot as u8;
        rq.placing += 1;
        grant.filled += p.len;
        let mut left = p.len;
        let mut at = p.start;
        let mut writes = 0;
        while left > 0 && rq.sge < grant.sges {
            let range = rq.sges.at(grant.sge.wrapping_add(rq.sge as u16));
            let part = left.min(range.len - rq.sge_off);
            if part > 0 {
                let va = range.va + rq.sge_off as u64;
                hw.dma_write_rx(slot, at, part, self.asid, va, DMA_PLACE | slot as u16);
                writes += 1;
            }
            at += part;
            left -= part;
            rq.sge_off += part;
            if rq.sge_off == range.len {
                (rq.sge, rq.sge_off) = (rq.sge + 1, 0);
            }
        }
        sh.rx[slot as usize % RX_SLOTS as usize] = RxSlot {
            qp: self.idx,
            pending: writes,
            status: 0,
            last,
            push: p.solicited,
            ack: p.ack_request,
            remaining: p.ext,
        };
        rq.in_piece = !last;
        rq.psn = psn_add(rq.psn, 1);
        hw.count(F_DATA_RECEIVED, 1);
        hw.count(F_BYTES_PLACED, p.len);
        true
    }

    /// A piece begins: it takes the oldest credit (decision 3). False when there is none.
    fn land<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        if hw.credit(CRD_LANDED, self.qpn(), 0, 0) != 0 {
            hw.count(F_NO_CREDIT, 1);
            self.refuse(REASON_PROTOCOL, sh, hw);
            return false;
        }
        let rq = &mut self.rq;
        rq.recalls = 0;
        rq.outstanding = rq.outstanding.saturating_sub(1);
        hw.discount(F_CREDITS_OUTSTANDING, 1);
        while rq.land != rq.post && rq.grants.at(rq.land).state == GRANT_LOCAL {
            rq.land = rq.land.wrapping_add(1);
        }
        if rq.land == rq.post || rq.grants.at(rq.land).state != GRANT_POSTED {
            hw.count(F_NO_BUFFER, 1);
            self.refuse(REASON_PROTOCOL, sh, hw);
            return false;
        }
        rq.land = rq.land.wrapping_add(1);
        (rq.sge, rq.sge_off) = (0, 0);
        true
    }

    /// Data cannot be taken: the QP goes into error, and the peer is told by a NAK.
    fn refuse<H: Hw>(&mut self, reason: u32, sh: &mut Shared, hw: &mut H) {
        self.rq.nak_due = NAK_OPERATION as u8;
        self.send_ack(sh, hw);
        self.fail(reason, WC_FLUSHED, sh, hw);
    }

    /// A DMA write of receive slot `slot` has ended.
    pub fn placed<H: Hw>(&mut self, slot: u32, status: u32, sh: &mut Shared, hw: &mut H) {
        let entry = &mut sh.rx[slot as usize % RX_SLOTS as usize];
        if entry.pending == 0 {
            return;
        }
        if entry.status == 0 {
            entry.status = status as u8;
        }
        entry.pending -= 1;
        if entry.pending != 0 {
            return;
        }
        // Slots end in the order of their packets, whatever order the engine has.
        let mut done = 0;
        while done < self.rq.placing as usize {
            let slot = self.rq.slots[done % RX_SLOTS as usize];
            let entry = sh.rx[slot as usize % RX_SLOTS as usize];
            if entry.pending != 0 {
                break;
            }
            done += 1;
            hw.rx_free(slot as u32);
            if self.state == CONNECTED {
                self.packet_placed(entry, sh, hw);
            }
        }
        // Without an end that could be too small for a copy.
        self.rq.slots.rotate_left(done % RX_SLOTS as usize);
        self.rq.placing -= done as u8;
        match self.state == CONNECTED {
            true if self.rq.ack_due || self.rq.nak_due != 0 || self.rq.unacked >= ACK_EVERY => {
                sh.ack_work |= self.bit();
            }
            true => (),
            false => sh.close_work |= self.bit(),
        }
    }

    /// The oldest packet in placement is in the host's memory, or has failed.
    fn packet_placed<H: Hw>(&mut self, entry: RxSlot, sh: &mut Shared, hw: &mut H) {
        // The receive that the packet belongs to: the oldest that is posted and not done.
        let rq = &mut self.rq;
        let mut index = rq.head;
        while index != rq.land && rq.grants.at(index).state != GRANT_POSTED {
            index = index.wrapping_add(1);
        }
        if index == rq.land {
            return;
        }
        let grant = rq.grants.at_mut(index);
        if entry.status != 0 {
            grant.status = WC_WITHDRAWN;
            self.refuse(REASON_WITHDRAWN, sh, hw);
            return;
        }
        rq.placed = psn_add(rq.placed, 1);
        rq.unacked += 1;
        rq.ack_due |= entry.ack;
        if entry.last {
            grant.state = GRANT_DONE;
            grant.push = entry.push;
            grant.remaining = entry.remaining;
            rq.msn = psn_add(rq.msn, 1);
            self.complete_recvs(sh, hw);
        }
    }

    /// An acknowledgement of what is placed is due.
    fn owe_ack(&mut self, sh: &mut Shared) {
        self.rq.ack_due = true;
        sh.ack_work |= self.bit();
    }

    /// Sends what is due: an acknowledgement of all that is placed, or a NAK when everything before it is.
    pub fn send_ack<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        if self.state != CONNECTED {
            return;
        }
        let rq = &self.rq;
        let nak = rq.nak_due != 0 && (rq.placing == 0 || rq.nak_due == NAK_OPERATION as u8);
        if !nak && !rq.ack_due && rq.unacked < ACK_EVERY {
            return;
        }
        let Some(slot) = sh.tx_alloc_control(hw) else {
            sh.ack_blocked |= self.bit();
            return;
        };
        let rq = &mut self.rq;
        let (syndrome, psn) = match nak {
            true => (rq.nak_due as u32, rq.placed),
            false => (ACK, psn_sub(rq.placed, 1)),
        };
        if nak {
            rq.nak_due = 0;
        }
        rq.ack_due = false;
        rq.unacked = 0;
        let aeth = syndrome << 24 | rq.msn & PSN_MASK;
        let frame = self.template.packet(ACKNOWLEDGE, false, false, psn, Some(aeth), 0);
        hw.tx_write(slot, 0, &frame.words);
        hw.tx_send(slot, frame.end, if self.loopback { TX_LOOPBACK } else { 0 });
        hw.count(if nak { F_NAKS_SENT } else { F_ACKS_SENT }, 1);
    }
}
