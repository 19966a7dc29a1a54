// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks to send from: asked for as soon as credits cover them (PC-2), several at once and
//! across contexts (VC-8), released when sent (VC-3), asked for again to resend (VC-4).

use crate::bound::Bound;
use crate::headers::{psn_add, psn_sub};
use crate::hw::Hw;
use crate::limits::{BLOCKS, WINDOW};
use crate::qp::{BLOCK_FAILED, BLOCK_HELD, BLOCK_PROBING, BLOCK_WAITING, Block, CONNECTED, Qp, Send, TAG_INLINE};
use crate::shared::{Shared, TAG_SEND, Tag};
use berth_abi::counters::{F_RESEND_BLOCKS, F_SEND_BLOCKS};
use berth_abi::cpu::{CRD_PEEK, XLT_HIT, XLT_MISS, XLT_READY};
use berth_abi::status::{
    PAGE_NO_MEMORY, PAGE_OK, PAGE_OVER_BUDGET, WC_LOCAL_PROTECTION, WC_NO_MEMORY, WC_OK, WC_OVER_BUDGET,
};

/// `WC_*` for the driver's refusal of a page request.
pub fn page_status(status: u32) -> u8 {
    match status {
        PAGE_OVER_BUDGET => WC_OVER_BUDGET,
        PAGE_NO_MEMORY => WC_NO_MEMORY,
        _ => WC_LOCAL_PROTECTION,
    }
}

/// Lets go of the memory of a held block.
fn release<H: Hw>(asid: u8, block: &Block, hw: &mut H) {
    if block.holds_memory() {
        hw.xlt_release(asid, block.va, block.len, false, block.tag);
    }
}

impl Qp {
    /// Extends the cover: what the unused credits allow to be sent, cut as it will be.
    pub fn extend_cover<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let qpn = self.qpn();
        let sq = &mut self.sq;
        while sq.cover_more && sq.cover_wqe != sq.fetched {
            sh.step();
            let wqe = sq.wqes.at(sq.cover_wqe);
            if wqe.status != WC_OK {
                return;
            }
            if sq.cover_pos >= wqe.end() {
                sq.cover_wqe = sq.cover_wqe.wrapping_add(1);
                continue;
            }
            if hw.credit(CRD_PEEK, qpn, sq.cover_credits, 0) >> 31 == 0 {
                sq.cover_more = false;
                return;
            }
            let size = hw.credit_rsp2() as u64;
            sq.cover_pos += size.min(wqe.end() - sq.cover_pos);
            sq.cover_credits += 1;
        }
    }

    /// The peer has taken back credits: computes the cover anew and lets go of blocks beyond it.
    pub fn shrink_cover<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        sq.cover_pos = sq.cut_pos;
        sq.cover_wqe = sq.cut_wqe;
        sq.cover_credits = 0;
        sq.cover_more = true;
        self.extend_cover(sh, hw);
        if !self.sq.rewind {
            self.drop_blocks_from(self.sq.cover_pos, sh, hw);
        }
    }

    /// Asks for the blocks that credits cover, in order.
    pub fn ask_blocks<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let (asid, idx, log2) = (self.asid, self.idx, self.log2_mtu);
        if self.sq.serial {
            self.squeeze_blocks(sh, hw);
        }
        let sq = &mut self.sq;
        while (sq.block_tail.wrapping_sub(sq.block_head) as usize) < BLOCKS
            && sq.ask_pos < sq.cover_pos
            && sq.ask_wqe != sq.fetched
            && !sh.revoking
        {
            sh.step();
            let last = sq.blocks.at(sq.block_tail.wrapping_sub(1)).state;
            if sq.serial && sq.block_tail != sq.block_head && matches!(last, BLOCK_WAITING | BLOCK_PROBING) {
                return;
            }
            // Of what was sent before, only packets that are sent again (VC-4).
            let (start, end) = sq.again_range(sq.ask_pos, log2, sh);
            if start != sq.ask_pos {
                sq.seek(start, sh);
                continue;
            }
            let wqe = sq.wqes.at(sq.ask_wqe);
            if wqe.status != WC_OK {
                return;
            }
            if sq.ask_pos >= wqe.end() || sq.ask_sge >= wqe.sges {
                sq.ask_wqe = sq.ask_wqe.wrapping_add(1);
                (sq.ask_sge, sq.ask_off) = (0, 0);
                continue;
            }
            let again = sq.ask_pos < sq.high;
            let limit = if again { end.min(sq.cover_pos) } else { sq.cover_pos };
            let most = (limit - sq.ask_pos).min(u32::MAX as u64) as u32;
            let index = sq.block_tail;
            if wqe.is_inline() {
                // The data are here already.
                let len = wqe.len.saturating_sub(sq.ask_off).min(most);
                let (va, tag) = ((wqe.sge as u64) << 8 | sq.ask_off as u64 & 0xff, TAG_INLINE);
                *sq.blocks.at_mut(index) = Block { va, start: sq.ask_pos, len, tag, state: BLOCK_HELD, flying: 0 };
                sq.block_tail = index.wrapping_add(1);
                sq.ask_off += len;
                sq.ask_pos += len as u64;
                continue;
            }
            let sge = sq.sges.at(wqe.sge.wrapping_add(sq.ask_sge as u16));
            if sq.ask_off >= sge.len {
                (sq.ask_sge, sq.ask_off) = (sq.ask_sge + 1, 0);
                continue;
            }
            let va = sge.va + sq.ask_off as u64;
            let len = (sge.len - sq.ask_off).min(self.block - (va as u32 & 0xfff)).min(most);
            let Some(tag) = sh.tag_alloc(Tag { kind: TAG_SEND, qp: idx, sge: 0, asid, index }) else {
                sh.tag_blocked |= 1 << (idx & 63);
                return;
            };
            *sq.blocks.at_mut(index) = Block { va, start: sq.ask_pos, len, tag, state: BLOCK_PROBING, flying: 0 };
            sq.block_tail = index.wrapping_add(1);
            sq.probing += 1;
            sq.ask_off += len;
            sq.ask_pos += len as u64;
            hw.count(if again { F_RESEND_BLOCKS } else { F_SEND_BLOCKS }, 1);
            hw.xlt_acquire(asid, va, len, false, tag);
        }
        if sq.ask_pos >= sq.cover_pos {
            sq.serial = false;
        }
    }

    /// The translation unit has answered for block `index`.
    pub fn block_answer<H: Hw>(&mut self, kind: u32, status: u32, tag: u16, index: u16, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        let block = sq.blocks.at_mut(index);
        if block.tag != tag {
            return;
        }
        match (kind, block.state) {
            (XLT_HIT, BLOCK_PROBING) => {
                sq.probing -= 1;
                sq.squeezed = 0;
                block.state = BLOCK_HELD;
                sh.tag_free(tag);
            }
            (XLT_MISS, BLOCK_PROBING) => {
                sq.probing -= 1;
                block.state = BLOCK_WAITING;
            }
            (XLT_READY, BLOCK_WAITING) if status == PAGE_OK => {
                sq.probing += 1;
                block.state = BLOCK_PROBING;
                hw.xlt_acquire(self.asid, block.va, block.len, false, tag);
                return;
            }
            (XLT_READY, BLOCK_WAITING) => {
                block.state = BLOCK_FAILED;
                block.tag = page_status(status) as u16;
                sh.tag_free(tag);
            }
            _ => return,
        }
        match self.state == CONNECTED {
            true => sh.send_work |= self.bit(),
            false => sh.close_work |= self.bit(),
        }
        // Its credit may have been taken back meanwhile: nobody knows when another one comes.
        if self.state == CONNECTED && !self.sq.rewind {
            self.drop_blocks_from(self.sq.cover_pos, sh, hw);
        }
    }

    /// Releases blocks whose last packet has left, before any acknowledgement (VC-3).
    pub fn release_sent<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        let head = sq.block_head;
        while sq.block_head != sq.block && sq.blocks.at(sq.block_head).flying == 0 {
            sh.step();
            release(self.asid, sq.blocks.at(sq.block_head), hw);
            sq.block_head = sq.block_head.wrapping_add(1);
        }
        if sq.block_head != head {
            sh.send_work |= self.bit();
        }
    }

    /// Lets go of all blocks. Nothing may be in the transmitter, nothing unanswered by RTL.
    pub fn drop_blocks<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        while sq.block_head != sq.block_tail {
            sh.step();
            let block = sq.blocks.at(sq.block_head);
            match block.state {
                BLOCK_HELD => release(self.asid, block, hw),
                BLOCK_WAITING => sh.tag_orphan(block.tag),
                _ => (),
            }
            sq.block_head = sq.block_head.wrapping_add(1);
        }
        sq.block = sq.block_head;
    }

    /// Lets go of held blocks that begin at stream offset `limit` or behind, newest first.
    pub fn drop_blocks_from<H: Hw>(&mut self, limit: u64, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        let old = sq.block_tail;
        while sq.block_tail != sq.block {
            sh.step();
            let index = sq.block_tail.wrapping_sub(1);
            let block = sq.blocks.at(index);
            let begun = block.start < sq.pos || block.flying != 0;
            if block.start < limit || begun || !matches!(block.state, BLOCK_HELD | BLOCK_FAILED) {
                break;
            }
            if block.state == BLOCK_HELD {
                release(self.asid, block, hw);
            }
            sq.block_tail = index;
        }
        if sq.block_tail == old {
            return;
        }
        let at = match sq.block_tail != sq.block {
            true => {
                let block = sq.blocks.at(sq.block_tail.wrapping_sub(1));
                block.start + block.len as u64
            }
            false => sq.pos,
        };
        self.sq.seek(at, sh);
        sh.send_work |= self.bit();
    }

    /// The budget is short: asks for one block at a time, and lets go of those that lie behind
    /// one that is still awaited.
    pub fn squeeze_blocks<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let sq = &mut self.sq;
        let mut first = sq.block;
        while first != sq.block_tail && sq.blocks.at(first).state != BLOCK_WAITING {
            sh.step();
            first = first.wrapping_add(1);
        }
        if first == sq.block_tail || sq.rewind {
            return;
        }
        sq.serial = true;
        let old = sq.block_tail;
        while sq.block_tail.wrapping_sub(1) != first {
            sh.step();
            let index = sq.block_tail.wrapping_sub(1);
            let block = sq.blocks.at(index);
            match block.state {
                BLOCK_HELD => release(self.asid, block, hw),
                BLOCK_WAITING => sh.tag_orphan(block.tag),
                BLOCK_PROBING => break,
                _ => (),
            }
            sq.block_tail = index;
        }
        if sq.block_tail != old {
            let last = sq.blocks.at(sq.block_tail.wrapping_sub(1));
            let at = last.start + last.len as u64;
            self.sq.seek(at, sh);
        }
    }

    /// Sending stands still for want of memory: nothing is on the way that would free some.
    pub fn send_starved(&self) -> bool {
        let sq = &self.sq;
        if sq.flying != 0 || sq.window.on_the_way() != 0 || sq.rewind {
            return false;
        }
        let mut bound = Bound::new(BLOCKS as u32);
        let mut index = sq.block;
        while index != sq.block_tail {
            bound.step();
            match sq.blocks.at(index).state {
                BLOCK_HELD => index = index.wrapping_add(1),
                state => return state == BLOCK_WAITING,
            }
        }
        false
    }

    /// Some block is held, or packets are on their way.
    pub fn send_holds(&self) -> bool {
        let sq = &self.sq;
        let count = sq.block_tail.wrapping_sub(sq.block_head);
        let held = |i| sq.blocks.at(sq.block_head.wrapping_add(i)).holds_memory();
        sq.flying != 0 || sq.window.on_the_way() != 0 || (0..count).any(held)
    }

    /// Blocks are held for a packet of which others are awaited.
    pub fn send_holds_part(&self) -> bool {
        self.sq.block != self.sq.block_tail && self.sq.blocks.at(self.sq.block).holds_memory()
    }

    /// Lets go of them, for others' sake; with `fail` the packet does not fit the budget.
    pub fn yield_blocks<H: Hw>(&mut self, fail: bool, sh: &mut Shared, hw: &mut H) {
        if fail {
            let sq = &mut self.sq;
            let wqe = match sq.piece != sq.piece_tail {
                true => sq.pieces.at(sq.piece).wqe,
                false => sq.cut_wqe,
            };
            sq.wqes.at_mut(wqe).status = WC_OVER_BUDGET;
            self.complete_sends(sh, hw);
        } else {
            self.rewind(sh);
        }
    }

    /// Sets the cursors back to the oldest packet that is not acknowledged, to send again what
    /// is lost, cut as the piece log says (VC-4, decision 2).
    pub fn go_back<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        self.drop_blocks(sh, hw);
        let log2 = self.log2_mtu;
        let sq = &mut self.sq;
        sq.rewind = false;
        sq.since_ack = 0;
        let una = sq.window.una();
        sq.next = una.get();
        sq.again = 0;
        let mut lost = sq.window.lost();
        while lost != 0 {
            sh.step();
            sq.again |= 1 << (una.plus(lost.trailing_zeros()).get() % WINDOW);
            lost &= lost - 1;
        }
        sq.piece = sq.piece_head;
        if sq.piece_head != sq.piece_tail {
            let piece = sq.pieces.at(sq.piece_head);
            sq.piece_off = psn_sub(una.get(), piece.psn) << (log2 & 31);
            sq.pos = piece.start + sq.piece_off as u64;
        } else {
            sq.piece_off = 0;
            sq.pos = sq.cut_pos;
        }
        sq.pass(log2, sh);
        sq.seek(sq.pos, sh);
    }

    /// Some block that is held or being asked for at RTL overlaps the range.
    pub fn blocks_overlap(&self, start: u64, end: u64) -> bool {
        let sq = &self.sq;
        let mut bound = Bound::new(BLOCKS as u32);
        let mut index = sq.block_head;
        while index != sq.block_tail {
            bound.step();
            let block = sq.blocks.at(index);
            if (block.holds_memory() || block.state == BLOCK_PROBING)
                && block.va < end
                && start < block.va.saturating_add(block.len as u64)
            {
                return true;
            }
            index = index.wrapping_add(1);
        }
        false
    }
}

impl Send {
    /// The packet `psn`, which has been sent before, is to be sent in this pass.
    fn again(&self, psn: u32) -> bool {
        self.again >> (psn % WINDOW) & 1 != 0
    }

    /// Passes packets that have been sent before and are not sent again.
    pub fn pass(&mut self, log2: u8, sh: &mut Shared) {
        let mtu = 1 << (log2 & 31);
        while self.next != self.window.next().get() && !self.again(self.next) && self.piece != self.piece_tail {
            sh.step();
            let left = self.pieces.at(self.piece).len.saturating_sub(self.piece_off);
            let len = left.min(mtu);
            self.pos += len as u64;
            self.piece_off += len;
            self.next = psn_add(self.next, 1);
            if left <= mtu {
                self.piece = self.piece.wrapping_add(1);
                self.piece_off = 0;
            }
        }
    }

    /// The first bytes from stream offset `from` on that are to be sent in this pass, as (start, end):
    /// packets without a gap that are sent again, or all from what was never sent.
    fn again_range(&self, from: u64, log2: u8, sh: &mut Shared) -> (u64, u64) {
        if from >= self.high {
            return (from, u64::MAX);
        }
        let log2 = log2 & 31;
        let mut piece = self.piece_head;
        let mut range = None;
        for n in 0..self.window.flight() {
            sh.step();
            let psn = self.window.una().plus(n).get();
            // The piece that it belongs to.
            while piece != self.piece_tail {
                sh.step();
                let entry = self.pieces.at(piece);
                if psn_sub(psn, entry.psn) <= entry.len.saturating_sub(1) >> log2 {
                    break;
                }
                piece = piece.wrapping_add(1);
            }
            let entry = self.pieces.at(piece);
            let off = psn_sub(psn, entry.psn) << log2;
            let start = entry.start + off as u64;
            let end = start + (entry.len.saturating_sub(off)).min(1 << log2) as u64;
            match (range, self.again(psn)) {
                (None, true) if end > from => range = Some((start.max(from), end)),
                (Some((begin, _)), true) => range = Some((begin, end)),
                (Some(range), false) => return range,
                _ => (),
            }
        }
        range.unwrap_or((self.high, u64::MAX))
    }

    /// The next block to ask for begins at stream offset `at`.
    fn seek(&mut self, at: u64, sh: &mut Shared) {
        let sq = self;
        sq.ask_pos = at;
        (sq.ask_wqe, sq.ask_sge, sq.ask_off) = (sq.head, 0, 0);
        while sq.ask_wqe != sq.fetched {
            sh.step();
            let wqe = sq.wqes.at(sq.ask_wqe);
            if at < wqe.end() {
                let mut off = at.saturating_sub(wqe.start) as u32;
                while sq.ask_sge < wqe.sges && !wqe.is_inline() {
                    sh.step();
                    let len = sq.sges.at(wqe.sge.wrapping_add(sq.ask_sge as u16)).len;
                    if off < len {
                        break;
                    }
                    off -= len;
                    sq.ask_sge += 1;
                }
                sq.ask_off = off;
                return;
            }
            sq.ask_wqe = sq.ask_wqe.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::{Piece, Range, SendWqe};
    use crate::rc::{Psn, Window};
    use berth_abi::wqe::SEND_INLINE;

    /// A ring of blocks that wraps: (address, bytes, state, tag).
    fn with_blocks(blocks: &[(u64, u32, u8, u16)]) -> Qp {
        let mut qp = Qp::FREE;
        let head = 0xffff_u16;
        (qp.sq.block_head, qp.sq.block, qp.sq.block_tail) = (head, head, head.wrapping_add(blocks.len() as u16));
        for (i, &(va, len, state, tag)) in blocks.iter().enumerate() {
            let block = Block { va, start: 0, len, tag, state, flying: 0 };
            *qp.sq.blocks.at_mut(head.wrapping_add(i as u16)) = block;
        }
        qp
    }

    #[test]
    fn vc_9_what_is_held_or_asked_for_at_rtl_overlaps_what_shares_a_byte_with_it() {
        for (state, tag, here) in [
            (BLOCK_HELD, 1, true),
            (BLOCK_PROBING, 1, true),
            (BLOCK_WAITING, 1, false),
            (BLOCK_FAILED, 1, false),
            (BLOCK_HELD, TAG_INLINE, false),
        ] {
            let qp = with_blocks(&[(0x9000, 1, BLOCK_WAITING, 0), (0x1000, 0x1000, state, tag)]);
            for (start, end) in [(0, u64::MAX), (0, 0x1001), (0x1fff, 0x2000), (0x1800, 0x1801)] {
                assert_eq!(qp.blocks_overlap(start, end), here, "{state} {tag} {start:#x}");
            }
            assert!(!qp.blocks_overlap(0, 0x1000) && !qp.blocks_overlap(0x2000, 0x3000));
        }
        assert!(!with_blocks(&[]).blocks_overlap(0, u64::MAX));
    }

    #[test]
    fn pc_3_a_sender_starves_that_waits_for_memory_and_has_nothing_under_way() {
        let held = (0, 1, BLOCK_HELD, 1);
        let starved = |blocks: &[_]| with_blocks(blocks).send_starved();
        assert!(starved(&[(0, 1, BLOCK_WAITING, 1)]) && starved(&[held, held, (0, 1, BLOCK_WAITING, 1)]));
        assert!(!starved(&[]) && !starved(&[held, held]) && !starved(&[held, (0, 1, BLOCK_PROBING, 1)]));
        assert!(!starved(&[(0, 1, BLOCK_FAILED, 1), (0, 1, BLOCK_WAITING, 1)]));
        let changes: [fn(&mut Send); 3] = [|sq| sq.flying = 1, |sq| sq.window.send(1), |sq| sq.rewind = true];
        for change in changes {
            let mut qp = with_blocks(&[(0, 1, BLOCK_WAITING, 1)]);
            change(&mut qp.sq);
            assert!(!qp.send_starved());
        }
    }

    #[test]
    fn pc_3_a_sender_holds_blocks_or_packets() {
        for (blocks, all, part) in [
            (&[][..], false, false),
            (&[(0, 1, BLOCK_HELD, 1)], true, true),
            (&[(0, 1, BLOCK_WAITING, 1), (0, 1, BLOCK_HELD, 1)], true, false),
            (&[(0, 1, BLOCK_HELD, TAG_INLINE), (0, 1, BLOCK_PROBING, 1)], false, false),
        ] {
            let mut qp = with_blocks(blocks);
            assert_eq!((qp.send_holds(), qp.send_holds_part()), (all, part), "{blocks:?}");
            // All of them have been sent.
            qp.sq.block = qp.sq.block_tail;
            assert!(!qp.send_holds_part());
            qp.sq.flying = 1;
            assert!(qp.send_holds());
            qp.sq.flying = 0;
            qp.sq.window.send(1);
            assert!(qp.send_holds());
        }
    }

    /// Six packets of 256 bytes from PSN 100 on, in pieces of 600, 512 and 1 bytes; `again`: those that go again.
    fn with_pieces(again: &[u32]) -> (Send, Shared) {
        let mut sq = Qp::FREE.sq;
        sq.window = Window::new(Psn::new(100));
        sq.window.send(6);
        let pieces = [(0, 100, 600), (600, 103, 512), (1112, 105, 1)];
        (sq.piece_head, sq.piece, sq.piece_tail, sq.next, sq.high) = (0, 0, 3, 100, 1113);
        for (i, (start, psn, len)) in pieces.into_iter().enumerate() {
            *sq.pieces.at_mut(i as u16) = Piece { start, psn, len, credit: 0, wqe: 0 };
        }
        sq.again = again.iter().fold(0, |bits, psn| bits | 1 << (psn % WINDOW));
        let mut sh = Shared::new();
        sh.begin(100);
        (sq, sh)
    }

    #[test]
    fn vc_4_packets_that_have_arrived_are_passed() {
        for (again, next, pos, piece, off) in [
            (&[100, 104][..], 100, 0, 0, 0),
            (&[102], 102, 512, 0, 512),
            (&[103], 103, 600, 1, 0),
            (&[104, 105], 104, 856, 1, 256),
            (&[105], 105, 1112, 2, 0),
            (&[], 106, 1113, 3, 0),
        ] {
            let (mut sq, mut sh) = with_pieces(again);
            sq.pass(8, &mut sh);
            assert_eq!((sq.next, sq.pos, sq.piece, sq.piece_off), (next, pos, piece, off), "{again:?}");
        }
    }

    #[test]
    fn vc_4_memory_is_asked_for_again_for_packets_that_go_again_only() {
        for (again, from, range) in [
            (&[101, 102][..], 0, (256, 600)),
            (&[101, 102], 300, (300, 600)),
            (&[102, 103, 105], 0, (512, 856)),
            (&[102, 103, 105], 856, (1112, 1113)),
            (&[104], 700, (856, 1112)),
            (&[100], 256, (1113, u64::MAX)),
            (&[], 0, (1113, u64::MAX)),
            (&[105], 1113, (1113, u64::MAX)),
        ] {
            let (sq, mut sh) = with_pieces(again);
            assert_eq!(sq.again_range(from, 8, &mut sh), range, "{again:?} {from}");
        }
    }

    #[test]
    fn vc_4_a_stream_offset_is_found_in_its_element_and_context() {
        let mut sq = Qp::FREE.sq;
        let elements = [(0, 300, 0, 3, 0), (300, 40, 3, 3, SEND_INLINE), (340, 60, 6, 1, 0)];
        for (i, (start, len, sge, sges, flags)) in elements.into_iter().enumerate() {
            *sq.wqes.at_mut(i as u16) = SendWqe { start, wr_id: 0, len, sge, sges, flags, status: WC_OK };
        }
        for (i, len) in [100, 150, 50, 12, 12, 12, 60].into_iter().enumerate() {
            *sq.sges.at_mut(i as u16) = Range { va: 0, len, tag: 0 };
        }
        (sq.head, sq.fetched) = (0, 3);
        let mut sh = Shared::new();
        for (at, wqe, sge, off) in [
            (0, 0, 0, 0),
            (99, 0, 0, 99),
            (100, 0, 1, 0),
            (249, 0, 1, 149),
            (250, 0, 2, 0),
            (299, 0, 2, 49),
            (300, 1, 0, 0),
            (339, 1, 0, 39),
            (340, 2, 0, 0),
            (399, 2, 0, 59),
            (400, 3, 0, 0),
        ] {
            sh.begin(20);
            // Wherever it was before.
            (sq.ask_wqe, sq.ask_sge, sq.ask_off) = (2, 1, 7);
            sq.seek(at, &mut sh);
            assert_eq!((sq.ask_pos, sq.ask_wqe, sq.ask_sge, sq.ask_off), (at, wqe, sge, off));
        }
    }
}
