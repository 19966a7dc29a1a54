// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver's side of a reliable connection: sequence check, placement, landing of
//! credits, acknowledgements.

use crate::bound::Bound;
use crate::headers::{
    ACK, ACKNOWLEDGE, HEADER_WORDS, NAK_INVALID, NAK_OPERATION, NAK_SEQUENCE, PLACEMENT, PSN_MASK, Packet,
    SELECTIVE_ACKNOWLEDGE, SEND_FIRST, SEND_LAST_IMM, SEND_MIDDLE, SEND_ONLY_IMM, psn_add, psn_sub,
};
use crate::hw::{Hw, TX_LOOPBACK};
use crate::limits::{ACK_EVERY, GRANTS};
use crate::qp::{
    CONNECTED, GRANT_DONE, GRANT_LOCAL, GRANT_POSTED, Qp, RECORD_ACK, RECORD_FIRST, RECORD_LAST, RECORD_PUSH, Record,
};
use crate::rc::{Placement, Psn, Where};
use crate::shared::{DMA_PLACE, RxSlot, Shared};
use berth_abi::card::RX_SLOTS;
use berth_abi::counters::{
    F_ACKS_SENT, F_BAD_HEADER, F_BAD_OPCODE, F_BYTES_PLACED, F_CREDITS_OUTSTANDING, F_DATA_RECEIVED, F_DUPLICATES,
    F_NAKS_SENT, F_NO_BUFFER, F_NO_CREDIT, F_OUT_OF_SEQUENCE,
};
use berth_abi::cpu::{CRD_BUILDER, CRD_LANDED};
use berth_abi::status::{REASON_PROTOCOL, REASON_WITHDRAWN, WC_FLUSHED, WC_WITHDRAWN};

impl Qp {
    /// The packet's PSN is near to what this end sends or expects: something that is old, or a guess, hardly is.
    pub fn plausible(&self, p: &Packet) -> bool {
        const NEAR: u32 = 64;
        let at = match p.opcode {
            ACKNOWLEDGE | SELECTIVE_ACKNOWLEDGE => self.sq.window.una().get(),
            _ => self.rq.psn,
        };
        psn_sub(p.psn.wrapping_add(NEAR), at) < 2 * NEAR
    }

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
        let psn = Psn::new(p.psn);
        let ahead = match self.rq.arrival.locate(psn) {
            Where::Old | Where::Seen => {
                // Seen before: the acknowledgement was lost, so give it again.
                hw.count(F_DUPLICATES, 1);
                self.owe_ack(sh);
                return false;
            }
            Where::InOrder => false,
            Where::Ahead if self.selective => {
                hw.count(F_OUT_OF_SEQUENCE, 1);
                true
            }
            Where::Ahead | Where::Beyond => {
                hw.count(F_OUT_OF_SEQUENCE, 1);
                if !self.selective {
                    self.missing(p.psn, sh);
                }
                return false;
            }
        };
        // Selective repeat: the placement header lies before the payload.
        let (header, remaining, word) = match (self.selective, last) {
            (true, true) => (PLACEMENT, p.ext, p.more),
            (true, false) => (PLACEMENT, 0, p.ext),
            (false, _) => (0, p.ext, 0),
        };
        let rq = &mut self.rq;
        let placement = match self.selective {
            true if p.len < PLACEMENT => None,
            true => Placement::from_word(word),
            false => Some(Placement { credit: 0, index: if first { 0 } else { rq.index } }),
        };
        let Some(Placement { credit, index }) = placement else {
            hw.count(F_BAD_HEADER, 1);
            return false;
        };
        let len = p.len.saturating_sub(header);
        let malformed = if (!ahead && first == rq.in_piece) || first != (index == 0) {
            Some(F_BAD_OPCODE)
        } else if len == 0 || len > mtu || (!last && len != mtu) || (!ahead && !first && index != rq.index) {
            Some(F_BAD_HEADER)
        } else {
            None
        };
        if let Some(counter) = malformed {
            hw.count(counter, 1);
            // The next packet would be the same if it came again; another one's turn has not come.
            if !ahead {
                self.refuse(NAK_INVALID, REASON_PROTOCOL, sh, hw);
            }
            return false;
        }
        if !ahead {
            rq.nak_sent = false;
            if first && !self.land(sh, hw) {
                return false;
            }
        }
        let rq = &mut self.rq;
        let at = match ahead {
            true => self.credited(credit, hw),
            false => Some(rq.land.wrapping_sub(1)),
        };
        let Some(at) = at else {
            return false;
        };
        let rq = &mut self.rq;
        let grant = rq.grants.at_mut(at);
        let offset = (index as u64) << (self.log2_mtu & 31);
        let end = offset + len as u64;
        if end > grant.len as u64 || (self.selective && grant.credit as u8 != credit) {
            if ahead {
                // What is wrong is refused when it comes in order.
                return false;
            }
            // More than the credit: the peer does not keep to the credits.
            hw.count(F_NO_CREDIT, 1);
            self.refuse(NAK_INVALID, REASON_PROTOCOL, sh, hw);
            return false;
        }
        if grant.withdrawn {
            if !ahead {
                self.refuse(NAK_OPERATION, REASON_WITHDRAWN, sh, hw);
            }
            return false;
        }
        let end = end as u32;
        grant.filled = grant.filled.max(end);
        let credit = grant.credit as u8;
        let (sge, sges) = (grant.sge, grant.sges);
        let mut skip = offset as u32;
        let mut left = len;
        let mut from = p.start + header;
        let mut writes = 0;
        for i in 0..sges {
            sh.step();
            let range = rq.sges.at(sge.wrapping_add(i as u16));
            if skip >= range.len {
                skip -= range.len;
                continue;
            }
            let part = left.min(range.len - skip);
            if part == 0 {
                break;
            }
            hw.dma_write_rx(slot, from, part, self.asid, range.va + skip as u64, DMA_PLACE | slot as u16);
            writes += 1;
            from += part;
            left -= part;
            skip = 0;
        }
        rq.placing += 1;
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(first, RECORD_FIRST)
            | flag(last, RECORD_LAST)
            | flag(p.solicited, RECORD_PUSH)
            | flag(p.ack_request, RECORD_ACK);
        sh.rx[slot as usize % RX_SLOTS as usize] = RxSlot { qp: self.idx, pending: writes, status: 0, psn: p.psn };
        *rq.records.at_mut(p.psn as u16) = Record { flags, credit, len: len as u16, index, remaining };
        rq.arrival.accept(psn, 1);
        hw.count(F_DATA_RECEIVED, 1);
        hw.count(F_BYTES_PLACED, len);
        if !ahead {
            rq.in_piece = !last;
            rq.index = index + 1;
            rq.psn = psn_add(rq.psn, 1);
            self.follow(sh, hw);
        }
        true
    }

    /// Without selective repeat: one NAK for a gap, and one more when the sender has gone back
    /// and it is still there.
    fn missing(&mut self, psn: u32, sh: &mut Shared) {
        let again = psn_sub(self.rq.nak_psn, psn) < 1 << 23;
        if !self.rq.nak_sent || again {
            self.rq.nak_sent = true;
            self.rq.nak_due = NAK_SEQUENCE as u8;
            sh.ack_work |= self.bit();
        }
        self.rq.nak_psn = psn;
    }

    /// The receive that the credit whose number ends in `low` stands for: that of the piece
    /// under way, or one that is announced and still to come.
    fn credited<H: Hw>(&self, low: u8, hw: &mut H) -> Option<u16> {
        let rq = &self.rq;
        hw.credit(CRD_BUILDER, self.qpn(), 0, 0);
        let announced = hw.credit_rsp1();
        let mut at = rq.land.wrapping_sub(rq.in_piece as u16);
        let mut bound = Bound::new(GRANTS as u32 + 1);
        while at != rq.post {
            bound.step();
            let grant = rq.grants.at(at);
            if grant.state == GRANT_POSTED && grant.credit as u8 == low {
                if announced.wrapping_sub(grant.credit) as i32 > 0 {
                    return Some(at);
                }
                break;
            }
            at = at.wrapping_add(1);
        }
        hw.count(F_NO_CREDIT, 1);
        None
    }

    /// Packets that came early are in order now: their pieces land, and must be whole.
    fn follow<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        while self.rq.psn != self.rq.arrival.expected().get() {
            sh.step();
            let record = *self.rq.records.at(self.rq.psn as u16);
            let first = record.flags & RECORD_FIRST != 0;
            let whole = first != self.rq.in_piece && (first || record.index == self.rq.index);
            if whole && first && !self.land(sh, hw) {
                return;
            }
            let rq = &mut self.rq;
            if !whole || rq.grants.at(rq.land.wrapping_sub(1)).credit as u8 != record.credit {
                hw.count(F_BAD_OPCODE, 1);
                self.refuse(NAK_INVALID, REASON_PROTOCOL, sh, hw);
                return;
            }
            rq.in_piece = record.flags & RECORD_LAST == 0;
            rq.index = record.index + 1;
            rq.psn = psn_add(rq.psn, 1);
        }
    }

    /// A piece begins: it takes the oldest credit (decision 3). False when there is none.
    fn land<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        if hw.credit(CRD_LANDED, self.qpn(), 0, 0) != 0 {
            hw.count(F_NO_CREDIT, 1);
            self.refuse(NAK_OPERATION, REASON_PROTOCOL, sh, hw);
            return false;
        }
        let rq = &mut self.rq;
        rq.recalls = 0;
        rq.outstanding = rq.outstanding.saturating_sub(1);
        hw.discount(F_CREDITS_OUTSTANDING, 1);
        while rq.land != rq.post && rq.grants.at(rq.land).state == GRANT_LOCAL {
            sh.step();
            rq.land = rq.land.wrapping_add(1);
        }
        if rq.land == rq.post || rq.grants.at(rq.land).state != GRANT_POSTED {
            hw.count(F_NO_BUFFER, 1);
            self.refuse(NAK_OPERATION, REASON_PROTOCOL, sh, hw);
            return false;
        }
        let credit = rq.grants.at(rq.land).credit;
        rq.land = rq.land.wrapping_add(1);
        if self.lists.len != 0 && credit.wrapping_sub(self.lists.first) as i32 >= 0 {
            self.lists.proven();
        }
        true
    }

    /// Data cannot be taken: the QP goes into error, and the peer is told by a NAK with the syndrome `nak`.
    fn refuse<H: Hw>(&mut self, nak: u32, reason: u32, sh: &mut Shared, hw: &mut H) {
        self.rq.nak_due = nak as u8;
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
        let entry = *entry;
        hw.rx_free(slot);
        self.rq.placing = self.rq.placing.saturating_sub(1);
        let psn = Psn::new(entry.psn);
        if self.state == CONNECTED && entry.status != 0 {
            let credit = self.rq.records.at(entry.psn as u16).credit;
            let mut index = self.rq.head;
            while index != self.rq.post {
                sh.step();
                let grant = self.rq.grants.at_mut(index);
                if grant.state == GRANT_POSTED && grant.credit as u8 == credit {
                    grant.status = WC_WITHDRAWN;
                    break;
                }
                index = index.wrapping_add(1);
            }
            self.refuse(NAK_OPERATION, REASON_WITHDRAWN, sh, hw);
        }
        self.rq.arrival.done(psn);
        // Behind a gap: the sender must hear of it.
        self.rq.ack_due |= !psn.before(self.rq.arrival.expected());
        // Packets are in their place in their order, whatever order the engine has.
        while self.rq.arrival.ready() && self.rq.arrival.placed().get() != self.rq.psn && self.state == CONNECTED {
            sh.step();
            let record = *self.rq.records.at(self.rq.arrival.placed().get() as u16);
            self.rq.arrival.advance();
            self.packet_placed(record, sh, hw);
        }
        match self.state == CONNECTED {
            true if self.rq.ack_due || self.rq.nak_due != 0 || self.rq.unacked >= ACK_EVERY => {
                sh.ack_work |= self.bit();
            }
            true => (),
            false => sh.close_work |= self.bit(),
        }
    }

    /// The oldest packet that is not acknowledged is in the host's memory, as all before it.
    fn packet_placed<H: Hw>(&mut self, record: Record, sh: &mut Shared, hw: &mut H) {
        // The receive that the packet belongs to: the oldest that is posted and not done.
        let log2 = self.log2_mtu & 31;
        let rq = &mut self.rq;
        let mut index = rq.head;
        while index != rq.land && rq.grants.at(index).state != GRANT_POSTED {
            sh.step();
            index = index.wrapping_add(1);
        }
        if index == rq.land {
            return;
        }
        let grant = rq.grants.at_mut(index);
        rq.unacked += 1;
        rq.ack_due |= record.flags & RECORD_ACK != 0;
        if record.flags & RECORD_LAST != 0 {
            grant.state = GRANT_DONE;
            grant.push = record.flags & RECORD_PUSH != 0;
            grant.remaining = record.remaining;
            grant.filled = (record.index << log2).wrapping_add(record.len as u32);
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
        let nak = rq.nak_due != 0 && (rq.placing == 0 || rq.nak_due != NAK_SEQUENCE as u8);
        if !nak && !rq.ack_due && rq.unacked < ACK_EVERY {
            return;
        }
        let Some(slot) = sh.tx_alloc_control(hw) else {
            sh.ack_blocked |= self.bit();
            return;
        };
        let rq = &mut self.rq;
        let (syndrome, psn) = match nak {
            true => (rq.nak_due as u32, rq.arrival.placed().get()),
            false => (ACK, rq.arrival.placed().minus(1).get()),
        };
        let seen = rq.arrival.bits().reverse_bits();
        if nak {
            rq.nak_due = 0;
        }
        rq.ack_due = false;
        rq.unacked = 0;
        let aeth = syndrome << 24 | rq.msn & PSN_MASK;
        // Without a gap it is the acknowledgement that all know.
        let frame = match self.selective && !nak && seen != 0 {
            true => {
                // The window has no more than 32 packets.
                hw.tx_write(slot, HEADER_WORDS as u32, &[0; 3]);
                self.template.sack(psn, aeth, seen)
            }
            false => self.template.packet(ACKNOWLEDGE, false, false, psn, Some(aeth), 0),
        };
        hw.tx_write(slot, 0, &frame.words);
        hw.tx_send(slot, frame.end, if self.loopback { TX_LOOPBACK } else { 0 });
        hw.count(if nak { F_NAKS_SENT } else { F_ACKS_SENT }, 1);
    }
}
