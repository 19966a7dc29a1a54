// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's side of a reliable connection: pieces cut to credits (CR-2, CR-15), packets,
//! acknowledgements, going back, completions.

use crate::headers::{PSN_MASK, SEND_FIRST, SEND_LAST_IMM, SEND_MIDDLE, SEND_ONLY_IMM, psn_add, psn_sub};
use crate::hw::{Hw, Log, TX_LOOPBACK};
use crate::limits::{BURST, DMA_TRIES, MAX_BACKOFF, PIECES, REORDER, TX_RESERVE, WINDOW};
use crate::qp::{BLOCK_FAILED, BLOCK_HELD, CONNECTED, INLINE_PART, Piece, Qp, qpn};
use crate::rc::{Bitmap, Placement, Psn, Reach};
use crate::shared::{Shared, TxSlot};
use berth_abi::card::TX_SLOTS;
use berth_abi::counters::{F_BAD_ACK, F_BYTES_SENT, F_DATA_PACKETS, F_PIECES, F_RETRANSMITTED, F_TIMEOUTS};
use berth_abi::cpu::{CRD_TAKE, DMA_NO_TRANSLATION};
use berth_abi::status::{
    REASON_PEER_LOST, REASON_SEND_FAILED, WC_LOCAL_PROTECTION, WC_OK, WC_REMOTE_ERROR, WC_RETRY_EXCEEDED,
};
use berth_abi::wqe::{MAX_INLINE, SEND_PUSH};

// A piece has a packet in the window, or is about to: the piece log is never full.
const _: () = assert!(PIECES > WINDOW as usize);

/// A time-out after `tries` of them in a row.
pub fn backoff(base: u32, tries: u32) -> u64 {
    (base as u64) << tries.min(MAX_BACKOFF as u32)
}

impl Qp {
    /// Does what there is to do for sending: fetches, asks for blocks, sends a few packets.
    /// True when there is more to send at once.
    pub fn send_step<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) -> bool {
        if self.state != CONNECTED || self.fast.on {
            return false;
        }
        if self.sq.rewind {
            if self.sq.flying != 0 || self.sq.probing != 0 {
                return false;
            }
            self.go_back(sh, hw);
            if self.sq.window.flight() != 0 && self.sq.deadline == 0 {
                self.sq.deadline = now + backoff(self.timeout, self.sq.tries);
                sh.arm(self.sq.deadline, hw);
            }
        }
        self.fetch_send(sh, hw);
        self.complete_sends(sh, hw);
        self.extend_cover(sh, hw);
        self.ask_blocks(sh, hw);
        for _ in 0..BURST {
            sh.step();
            if !self.send_packet(now, sh, hw) {
                return false;
            }
        }
        true
    }

    /// The piece that the next packet belongs to: the one begun, or a new one if a credit,
    /// data and the first byte's block are there.
    fn next_piece<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> Option<Piece> {
        let sq = &mut self.sq;
        if sq.piece != sq.piece_tail {
            return Some(*sq.pieces.at(sq.piece));
        }
        loop {
            sh.step();
            if sq.cut_wqe == sq.fetched {
                return None;
            }
            let wqe = sq.wqes.at(sq.cut_wqe);
            if wqe.status != WC_OK {
                return None;
            }
            if sq.cut_pos < wqe.end() {
                break;
            }
            sq.cut_wqe = sq.cut_wqe.wrapping_add(1);
        }
        let block = *sq.blocks.at(sq.block);
        if sq.block != sq.block_tail && block.state == BLOCK_FAILED {
            self.block_failed(sh, hw);
            return None;
        }
        if sq.cover_credits == 0 || sq.block == sq.block_tail || block.state != BLOCK_HELD {
            return None;
        }
        let left = (sq.wqes.at(sq.cut_wqe).end() - sq.cut_pos) as u32;
        let cut = hw.credit(CRD_TAKE, qpn(self.idx), left, 0);
        // That may be the proof that a held list waits for.
        sh.held_due = true;
        let len = (cut & 0x7fff_ffff).min(left);
        sq.cover_credits -= 1;
        if cut >> 31 == 0 || len == 0 {
            return None;
        }
        let piece = Piece { start: sq.cut_pos, psn: sq.next, len, credit: hw.credit_rsp1(), wqe: sq.cut_wqe };
        *sq.pieces.at_mut(sq.piece_tail) = piece;
        sq.piece_tail = sq.piece_tail.wrapping_add(1);
        sq.piece_off = 0;
        sq.cut_pos += len as u64;
        hw.count(F_PIECES, 1);
        Some(piece)
    }

    /// Sends the next packet, if window, credits, blocks and slots allow it.
    fn send_packet<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) -> bool {
        self.sq.pass(self.log2_mtu, sh);
        let again = self.sq.next != self.sq.window.next().get();
        if !again && self.sq.window.room(WINDOW) == 0 {
            return false;
        }
        let Some(piece) = self.next_piece(sh, hw) else {
            return false;
        };
        let mtu = self.mtu();
        let sq = &mut self.sq;
        let left = piece.len - sq.piece_off;
        let len = left.min(mtu);
        let last = left <= mtu;

        // All blocks of the packet must be held: count them.
        let end = sq.pos + len as u64;
        let mut blocks = 0u16;
        let mut reached = sq.pos;
        while reached < end {
            sh.step();
            let index = sq.block.wrapping_add(blocks);
            let block = sq.blocks.at(index);
            if index == sq.block_tail || block.state != BLOCK_HELD {
                if index != sq.block_tail && block.state == BLOCK_FAILED {
                    self.block_failed(sh, hw);
                }
                return false;
            }
            reached = block.start + block.len as u64;
            blocks += 1;
        }
        let Some(slot) = sh.tx_alloc(TX_RESERVE) else {
            sh.send_blocked |= 1 << (self.idx & 63);
            return false;
        };

        // An acknowledgement is wanted where the sender may have to stop.
        let after = sq.block.wrapping_add(if reached == end { blocks } else { blocks - 1 });
        let stops = last || after == sq.block_tail || sq.blocks.at(after).state != BLOCK_HELD;
        sq.since_ack += 1;
        let ack = stops || again || sq.since_ack >= WINDOW / 2;
        if ack {
            sq.since_ack = 0;
        }
        let (opcode, ext) = match (sq.piece_off == 0, last) {
            (true, false) => (SEND_FIRST, None),
            (false, false) => (SEND_MIDDLE, None),
            (first, true) => {
                // CR-9: what is left of all that was posted.
                let remaining = sq.bytes_posted.wrapping_sub(end as u32);
                (if first { SEND_ONLY_IMM } else { SEND_LAST_IMM }, Some(remaining))
            }
        };
        let wqe = sq.wqes.at(piece.wqe);
        let push = last && wqe.flags & SEND_PUSH != 0 && piece.start + piece.len as u64 == wqe.end();
        let frame = match self.selective {
            true => {
                let index = sq.piece_off >> (self.log2_mtu & 31);
                let placement = Placement { credit: piece.credit as u8, index };
                self.template.placed(opcode, push, ack, sq.next, ext, placement, len)
            }
            false => self.template.packet(opcode, push, ack, sq.next, ext, len),
        };
        let words = frame.start.div_ceil(4) as usize;
        hw.tx_write(slot, 0, frame.words.get(..words).unwrap_or(&frame.words));

        let mut at = frame.start;
        let first = sq.block;
        for i in 0..blocks {
            sh.step();
            let block = sq.blocks.at_mut(first.wrapping_add(i));
            let off = (sq.pos - block.start) as u32;
            let part = (block.len - off).min((end - sq.pos) as u32);
            block.flying += 1;
            match block.inline_at() {
                None => hw.dma_attach(slot, at, part, self.asid, block.va + off as u64),
                Some((sge, begin)) => {
                    for j in 0..part.min(MAX_INLINE as u32) {
                        sh.step();
                        let byte = begin + (off + j) as usize;
                        let data = sq.sges.at(sge.wrapping_add((byte / INLINE_PART) as u16));
                        hw.tx_write_byte(slot, at + j, data.inline_byte(byte % INLINE_PART));
                    }
                }
            }
            at += part;
            sq.pos += part as u64;
            if off + part == block.len {
                sq.block = sq.block.wrapping_add(1);
            }
        }
        for i in 0..frame.pad {
            sh.step();
            hw.tx_write_byte(slot, at + i, 0);
        }
        sh.tx[slot as usize % TX_SLOTS as usize] = TxSlot { data: true, qp: self.idx, blocks: blocks as u8, first };
        hw.tx_send(slot, frame.end, if self.loopback { TX_LOOPBACK } else { 0 });

        hw.count(F_DATA_PACKETS, 1);
        if again {
            hw.count(F_RETRANSMITTED, 1);
        } else {
            hw.count(F_BYTES_SENT, len);
            sq.high = end;
        }
        sq.flying += 1;
        match again {
            true => sq.window.resend(Psn::new(sq.next).since(sq.window.una()), 1),
            false => sq.window.send(1),
        }
        sq.next = psn_add(sq.next, 1);
        sq.piece_off += len;
        if last {
            sq.piece = sq.piece.wrapping_add(1);
            sq.piece_off = 0;
        }
        if sq.deadline == 0 {
            sq.deadline = now + backoff(self.timeout, sq.tries);
            sh.arm(sq.deadline, hw);
        }
        true
    }

    /// The block that the next packet needs cannot be had: its WQE fails when its turn comes.
    fn block_failed<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        let wqe = match sq.piece != sq.piece_tail {
            true => sq.pieces.at(sq.piece).wqe,
            false => sq.cut_wqe,
        };
        // Its tag field carries the status.
        let mut index = sq.block;
        while index != sq.block_tail && sq.blocks.at(index).state != BLOCK_FAILED {
            sh.step();
            index = index.wrapping_add(1);
        }
        let status = sq.blocks.at(index).tag as u8;
        let entry = sq.wqes.at_mut(wqe);
        if entry.status == WC_OK {
            entry.status = status;
        }
        self.complete_sends(sh, hw);
    }

    /// Completes sends whose bytes are all acknowledged, in order (a zero-length one with its
    /// predecessors). One that cannot be sent puts the QP in error when it is the oldest.
    pub fn complete_sends<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        while self.sq.head != self.sq.fetched {
            sh.step();
            let wqe = *self.sq.wqes.at(self.sq.head);
            if wqe.status != WC_OK {
                self.fail(REASON_SEND_FAILED, wqe.status, sh, hw);
                return;
            }
            if wqe.end() > self.sq.acked {
                return;
            }
            // Cursors may still stand in it; after a late acknowledgement the one for blocks
            // too, which is set anew when the QP goes back.
            let old = self.sq.head;
            self.complete_send(WC_OK, hw);
            let head = self.sq.head;
            for cursor in [&mut self.sq.cut_wqe, &mut self.sq.cover_wqe] {
                if *cursor == old {
                    *cursor = head;
                }
            }
            if self.sq.ask_wqe == old {
                (self.sq.ask_wqe, self.sq.ask_sge, self.sq.ask_off) = (head, 0, 0);
            }
        }
    }

    /// An AETH has come for `psn`; `sack` is the start of its SACK header, 0 if it has none.
    pub fn acknowledge<H: Hw>(&mut self, now: u64, psn: u32, syndrome: u32, sack: u32, sh: &mut Shared, hw: &mut H) {
        if self.state != CONNECTED {
            return;
        }
        let psn = Psn::new(psn);
        let una = self.sq.window.una();
        let flight = self.sq.window.flight();
        match syndrome >> 5 {
            0 => {
                let upto = psn.plus(1);
                // Bit 0 is `una`; bit 31 of the header is `upto`.
                let seen = sack.reverse_bits();
                let bits = match self.sq.window.reach(upto) {
                    Reach::Beyond => {
                        hw.count(F_BAD_ACK, 1);
                        return;
                    }
                    Reach::Old => seen.down(una.since(upto)),
                    Reach::Within(n) => u32::ones(n) | seen.up(n),
                };
                if self.sq.window.finish(bits) {
                    self.acked(now, sh, hw);
                    sh.send_work |= self.bit();
                }
                let idle = self.sq.high >= self.sq.cover_pos;
                let lost = self.sq.window.lost();
                if self.selective
                    && self.state == CONNECTED
                    && self.sq.window.find_lost(REORDER, idle, 0, u32::MAX)
                    && self.sq.window.lost() & !lost != 0
                {
                    hw.log(Log::Resend(self.qpn(), psn.get(), 1));
                    self.rewind(sh);
                }
            }
            3 if syndrome & 0x1f == 0 => {
                // Everything before the missing packet has arrived.
                let n = psn.since(una);
                if n < flight {
                    if self.sq.window.finish(u32::ones(n)) {
                        self.acked(now, sh, hw);
                    }
                    hw.log(Log::Resend(self.qpn(), psn.get(), 1));
                    self.sq.window.lose_from(0);
                    self.rewind(sh);
                } else if matches!(self.sq.window.reach(psn), Reach::Beyond) {
                    hw.count(F_BAD_ACK, 1);
                }
            }
            3 if psn.since(una) < flight => {
                self.fail(REASON_SEND_FAILED, WC_REMOTE_ERROR, sh, hw);
            }
            _ => hw.count(F_BAD_ACK, 1),
        }
    }

    /// Some packets have been acknowledged: moves over those at the front.
    fn acked<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        if self.sq.window.slide() == 0 {
            return;
        }
        let upto = self.sq.window.una().get();
        let log2 = self.log2_mtu;
        let sq = &mut self.sq;
        while sq.piece_head != sq.piece_tail {
            sh.step();
            let piece = sq.pieces.at(sq.piece_head);
            let packets = ((piece.len - 1) >> log2) + 1;
            // `una` lies in the log's range, so a piece that is behind it gives a distance of at least its packets.
            if psn_sub(upto, piece.psn) < packets || psn_sub(upto, piece.psn) > 1 << 23 {
                break;
            }
            sq.acked = piece.start + piece.len as u64;
            if sq.piece == sq.piece_head {
                sq.piece = sq.piece.wrapping_add(1);
                sq.piece_off = 0;
            }
            sq.piece_head = sq.piece_head.wrapping_add(1);
        }
        sq.tries = 0;
        sq.dma_tries = 0;
        if Psn::<24>::new(sq.next).before(sq.window.una()) {
            // Acknowledged what was about to be sent again: go on behind it.
            self.rewind(sh);
        }
        let sq = &mut self.sq;
        sq.deadline = 0;
        if sq.window.flight() != 0 && !sq.rewind {
            sq.deadline = now + self.timeout as u64;
            sh.arm(sq.deadline, hw);
        }
        self.complete_sends(sh, hw);
    }

    /// Goes back to the oldest packet that is not acknowledged, to send what is lost, as soon as the engines have let go.
    pub fn rewind(&mut self, sh: &mut Shared) {
        self.sq.rewind = true;
        self.sq.deadline = 0;
        sh.send_work |= self.bit();
    }

    /// The acknowledgement time-out has passed.
    pub fn timed_out<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        hw.count(F_TIMEOUTS, 1);
        self.sq.deadline = 0;
        self.sq.tries += 1;
        if self.sq.tries > self.retries {
            self.fail(REASON_PEER_LOST, WC_RETRY_EXCEEDED, sh, hw);
            return;
        }
        hw.log(Log::Resend(self.qpn(), self.sq.window.una().get(), 0));
        self.sq.window.lose_from(0);
        self.rewind(sh);
        // Also if the wire takes nothing any more, and the engines never let go.
        self.sq.deadline = now + backoff(self.timeout, self.sq.tries);
        sh.arm(self.sq.deadline, hw);
    }

    /// Asks the peer for an acknowledgement, by an empty packet that it must take for a duplicate: its PSN lies
    /// before the oldest unacknowledged one. False when no slot is free.
    /// With selective repeat it has a placement header as any data packet, or hardware would not know it for one.
    pub fn probe<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        let Some(slot) = sh.tx_alloc_control(hw) else {
            return false;
        };
        let psn = match self.fast.on {
            true => self.fast_acked(hw) & PSN_MASK,
            false => self.sq.window.una().minus(1).get(),
        };
        let frame = match self.selective {
            true => {
                let placement = Placement { credit: 0, index: 0 };
                self.template.placed(SEND_ONLY_IMM, false, true, psn, Some(0), placement, 0)
            }
            false => self.template.packet(SEND_ONLY_IMM, false, true, psn, Some(0), 0),
        };
        hw.tx_write(slot, 0, &frame.words);
        hw.tx_send(slot, frame.end, if self.loopback { TX_LOOPBACK } else { 0 });
        true
    }

    /// A data packet has left, or an attached read has failed and it has not.
    pub fn packet_left<H: Hw>(&mut self, slot: TxSlot, status: u32, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        sq.flying = sq.flying.saturating_sub(1);
        for i in 0..slot.blocks as u16 {
            sh.step();
            let block = sq.blocks.at_mut(slot.first.wrapping_add(i));
            block.flying = block.flying.saturating_sub(1);
        }
        self.release_sent(sh, hw);
        if self.state != CONNECTED {
            sh.close_work |= self.bit();
            return;
        }
        if status != 0 {
            self.sq.dma_tries += 1;
            if status != DMA_NO_TRANSLATION || self.sq.dma_tries > DMA_TRIES {
                self.fail(REASON_SEND_FAILED, WC_LOCAL_PROTECTION, sh, hw);
                return;
            }
            hw.log(Log::Resend(self.qpn(), self.sq.window.una().get(), 2));
            self.sq.window.lose_from(0);
            self.rewind(sh);
        }
        if self.sq.rewind {
            sh.send_work |= self.bit();
        }
    }
}
