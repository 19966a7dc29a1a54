// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives on their way to credits: acquired, posted to the credit builder in order,
//! committed by batch (decision 5), recalled under pressure (decision 19), withdrawn (17).

use crate::blocks::page_status;
use crate::bound::Bound;
use crate::hw::{Hw, Log};
use crate::limits::GRANTS;
use crate::qp::{
    CONNECTED, GRANT_ASKING, GRANT_DONE, GRANT_LOCAL, GRANT_NEW, GRANT_POSTED, GRANT_READY, Qp, RECALL_NONE,
    RECALL_OUT, TODO_RECALL,
};
use crate::shared::{Shared, TAG_RECV, Tag};
use berth_abi::counters::{F_CREDITS_OUTSTANDING, F_GRANTS, F_RECALLED, F_WITHDRAWN};
use berth_abi::cpu::{CRD_BUILDER, CRD_COMMIT, CRD_POST, CRD_VOID, XLT_HIT, XLT_MISS, XLT_READY};
use berth_abi::status::{PAGE_OK, REASON_PROTOCOL, WC_FLUSHED, WC_OK, WC_OVER_BUDGET, WC_WITHDRAWN};

impl Qp {
    /// Does what there is to do for receives: fetches, acquires, posts, completes.
    pub fn recv_step<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        if self.state != CONNECTED || self.fast.on {
            return;
        }
        self.complete_recvs(sh, hw);
        self.fetch_recv(sh, hw);
        self.ask_grants(sh, hw);
        self.post_grants(sh, hw);
    }

    /// Acquires the SGEs of receives, in order.
    fn ask_grants<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        while self.rq.ask != self.rq.fetched && !sh.revoking {
            sh.step();
            let index = self.rq.ask;
            let grant = *self.rq.grants.at(index);
            if self.rq.serial && grant.state == GRANT_NEW && (self.front() != Some(index) || !sh.token_take(self.idx)) {
                return;
            }
            if grant.state == GRANT_NEW {
                let done = grant.probing | grant.waiting | grant.held;
                for i in 0..grant.sges {
                    sh.step();
                    if done & 1 << i != 0 {
                        continue;
                    }
                    let Some(tag) = sh.tag_alloc(Tag { kind: TAG_RECV, qp: self.idx, sge: i, asid: self.asid, index })
                    else {
                        sh.tag_blocked |= self.bit();
                        return;
                    };
                    let range = self.rq.sges.at_mut(grant.sge.wrapping_add(i as u16));
                    range.tag = tag;
                    hw.xlt_acquire(self.asid, range.va, range.len, true, tag);
                    self.rq.grants.at_mut(index).probing |= 1 << i;
                    self.rq.probing += 1;
                }
                self.rq.grants.at_mut(index).state = GRANT_ASKING;
            }
            self.rq.ask = index.wrapping_add(1);
        }
    }

    /// The translation unit has answered for SGE `i` of receive `index`.
    #[allow(clippy::too_many_arguments)]
    pub fn grant_answer<H: Hw>(
        &mut self,
        kind: u32,
        status: u32,
        tag: u16,
        index: u16,
        i: u8,
        sh: &mut Shared,
        hw: &mut H,
    ) {
        let grant = self.rq.grants.at_mut(index);
        let range = self.rq.sges.at(grant.sge.wrapping_add(i as u16));
        let bit = 1u8 << (i & 7);
        // A new one is asked for in part: there was no tag for the rest.
        if range.tag != tag || !matches!(grant.state, GRANT_NEW | GRANT_ASKING) {
            return;
        }
        match kind {
            XLT_HIT if grant.probing & bit != 0 => {
                self.rq.probing -= 1;
                grant.probing &= !bit;
                match grant.stale {
                    true => hw.xlt_release(self.asid, range.va, range.len, true, tag),
                    false => grant.held |= bit,
                }
                sh.tag_free(tag);
            }
            XLT_MISS if grant.probing & bit != 0 => {
                self.rq.probing -= 1;
                grant.probing &= !bit;
                grant.waiting |= bit;
            }
            XLT_READY if grant.waiting & bit != 0 => {
                grant.waiting &= !bit;
                if status == PAGE_OK && grant.status == WC_OK && !grant.stale {
                    self.rq.probing += 1;
                    grant.probing |= bit;
                    hw.xlt_acquire(self.asid, range.va, range.len, true, tag);
                    return;
                }
                sh.tag_free(tag);
                if status != PAGE_OK && grant.status == WC_OK && !grant.stale {
                    grant.status = page_status(status);
                }
            }
            _ => return,
        }
        if self.state != CONNECTED {
            sh.close_work |= self.bit();
            return;
        }
        if grant.probing | grant.waiting == 0 {
            if grant.status != WC_OK {
                grant.state = GRANT_LOCAL;
                sh.token_drop(self.idx);
                self.let_go(index, sh, hw);
            } else if grant.stale {
                grant.stale = false;
                grant.state = GRANT_NEW;
                self.let_go(index, sh, hw);
                if (self.rq.ask.wrapping_sub(index) as i16) > 0 {
                    self.rq.ask = index;
                }
            } else if grant.state == GRANT_ASKING {
                grant.state = GRANT_READY;
                sh.token_drop(self.idx);
                self.rq.squeezed = 0;
                hw.count(F_GRANTS, 1);
            }
        }
        sh.recv_work |= self.bit();
    }

    /// Releases the SGEs of receive `index` that are held.
    pub fn let_go<H: Hw>(&mut self, index: u16, sh: &mut Shared, hw: &mut H) {
        let grant = self.rq.grants.at_mut(index);
        for i in 0..grant.sges {
            sh.step();
            if grant.held & 1 << i != 0 {
                let range = self.rq.sges.at(grant.sge.wrapping_add(i as u16));
                hw.xlt_release(self.asid, range.va, range.len, true, range.tag);
            }
        }
        grant.held = 0;
    }

    /// Turns granted receives into credits, in order, and commits them when the batch is
    /// complete or cannot get further for now.
    fn post_grants<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        if self.rq.recall != RECALL_NONE {
            return;
        }
        let qpn = self.qpn();
        loop {
            sh.step();
            if self.rq.post == self.rq.batch {
                self.commit(hw);
                (self.rq.pressure, self.rq.serial) = (false, false);
                sh.token_drop(self.idx);
                if self.rq.batch == self.rq.pi {
                    return;
                }
                self.rq.batch = self.rq.pi;
            }
            if self.rq.post == self.rq.fetched {
                // No room for more of the batch: announce what is there.
                if !self.recv_room() || self.rq.pressure {
                    self.commit(hw);
                }
                return;
            }
            let grant = self.rq.grants.at_mut(self.rq.post);
            match grant.state {
                GRANT_READY => {
                    if hw.credit(CRD_POST, qpn, grant.len.min(0x7fff_ffff), 0) != 0 {
                        return;
                    }
                    grant.credit = hw.credit_rsp1();
                    grant.state = GRANT_POSTED;
                    self.rq.uncommitted = true;
                }
                GRANT_LOCAL => (),
                _ => {
                    if self.rq.pressure {
                        self.commit(hw);
                    }
                    return;
                }
            }
            self.rq.post = self.rq.post.wrapping_add(1);
        }
    }

    fn commit<H: Hw>(&mut self, hw: &mut H) {
        if self.rq.uncommitted {
            self.rq.uncommitted = false;
            hw.credit(CRD_COMMIT, self.qpn(), 0, 0);
        }
    }

    /// Completes receives in order: filled ones, failed ones, empty ones.
    pub fn complete_recvs<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        while self.rq.head != self.rq.fetched {
            sh.step();
            let index = self.rq.head;
            let grant = self.rq.grants.at(index);
            let status = match grant.state {
                GRANT_DONE => WC_OK,
                GRANT_LOCAL => grant.status,
                _ => return,
            };
            // A local one is complete only after its turn to be posted has passed.
            if grant.state == GRANT_LOCAL && self.rq.post == index {
                self.rq.post = index.wrapping_add(1);
                if self.rq.batch == index {
                    self.rq.batch = self.rq.pi;
                }
            }
            for cursor in [&mut self.rq.ask, &mut self.rq.land] {
                if *cursor == index {
                    *cursor = index.wrapping_add(1);
                }
            }
            self.complete_recv(status, hw);
            self.let_go(index, sh, hw);
            sh.recv_work |= self.bit();
        }
    }

    /// Lets go of all receives. Nothing may be in placement, nothing unanswered by RTL.
    pub fn drop_grants<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let mut index = self.rq.head;
        while index != self.rq.fetched {
            sh.step();
            let grant = *self.rq.grants.at(index);
            for i in 0..grant.sges {
                sh.step();
                if grant.waiting & 1 << i != 0 {
                    sh.tag_orphan(self.rq.sges.at(grant.sge.wrapping_add(i as u16)).tag);
                }
            }
            self.let_go(index, sh, hw);
            let grant = self.rq.grants.at_mut(index);
            grant.waiting = 0;
            grant.state = GRANT_LOCAL;
            if grant.withdrawn && grant.status == WC_OK {
                grant.status = WC_WITHDRAWN;
            }
            index = index.wrapping_add(1);
        }
        hw.discount(F_CREDITS_OUTSTANDING, self.rq.outstanding);
        self.rq.outstanding = 0;
    }

    /// The first receive that keeps later ones from becoming credits.
    fn front(&self) -> Option<u16> {
        let mut bound = Bound::new(GRANTS as u32);
        let mut index = self.rq.post;
        while index != self.rq.fetched {
            bound.step();
            match self.rq.grants.at(index).state {
                GRANT_READY | GRANT_LOCAL => index = index.wrapping_add(1),
                _ => return Some(index),
            }
        }
        None
    }

    /// The budget is short: announces what is granted, asks for one receive at a time, and lets
    /// go of those behind the first that waits.
    pub fn squeeze_grants<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        sh.recv_work |= self.bit();
        let Some(front) = self.front() else {
            return;
        };
        (self.rq.pressure, self.rq.serial) = (true, true);
        let mut index = front.wrapping_add(1);
        while index != self.rq.fetched {
            sh.step();
            self.defer(index, sh, hw);
            index = index.wrapping_add(1);
        }
        // Those go on being asked for behind it.
        let next = match self.rq.grants.at(front).state {
            GRANT_NEW => front,
            _ => front.wrapping_add(1),
        };
        if (self.rq.ask.wrapping_sub(next) as i16) > 0 {
            self.rq.ask = next;
        }
    }

    /// Receive `index`, which is no credit yet, is to be acquired anew later.
    fn defer<H: Hw>(&mut self, index: u16, sh: &mut Shared, hw: &mut H) {
        match self.rq.grants.at(index).state {
            GRANT_READY => {
                self.let_go(index, sh, hw);
                self.rq.grants.at_mut(index).state = GRANT_NEW;
            }
            GRANT_ASKING => {
                self.let_go(index, sh, hw);
                self.rq.grants.at_mut(index).stale = true;
            }
            GRANT_NEW => self.let_go(index, sh, hw),
            _ => (),
        }
    }

    /// Receives wait for memory, and no data can come that would free some.
    pub fn recv_starved(&self) -> bool {
        self.state == CONNECTED
            && self.rq.outstanding == 0
            && !self.rq.uncommitted
            && !self.rq.in_piece
            && self.rq.placing == 0
            && !self.rq.arrival.busy()
            && self.front().is_some_and(|index| {
                let grant = self.rq.grants.at(index);
                // Asked for, or waiting for its turn to ask.
                (grant.state == GRANT_ASKING && grant.waiting != 0) || (grant.state == GRANT_NEW && self.rq.serial)
            })
    }

    /// The receive that waits holds a part of its memory.
    pub fn recv_holds_part(&self) -> bool {
        self.front().is_some_and(|index| self.rq.grants.at(index).held != 0)
    }

    /// Some receive but that one holds memory.
    pub fn recv_holds(&self) -> bool {
        let front = self.front();
        let mut bound = Bound::new(GRANTS as u32);
        let mut index = self.rq.head;
        while index != self.rq.fetched {
            bound.step();
            if self.rq.grants.at(index).held != 0 && front != Some(index) {
                return true;
            }
            index = index.wrapping_add(1);
        }
        false
    }

    /// Lets go of that part, for others' sake; with `fail` the receive does not fit the budget.
    pub fn yield_grant<H: Hw>(&mut self, fail: bool, sh: &mut Shared, hw: &mut H) {
        if let Some(index) = self.front() {
            self.defer(index, sh, hw);
            if fail {
                let grant = self.rq.grants.at_mut(index);
                grant.status = WC_OVER_BUDGET;
                if grant.probing == 0 {
                    for i in 0..grant.sges {
                        sh.step();
                        if grant.waiting & 1 << i != 0 {
                            sh.tag_orphan(self.rq.sges.at(grant.sge.wrapping_add(i as u16)).tag);
                        }
                    }
                    grant.waiting = 0;
                    grant.state = GRANT_LOCAL;
                }
                sh.token_drop(self.idx);
            }
            sh.recv_work |= self.bit();
        }
    }

    /// Receives that hold memory.
    pub fn recvs_holding(&self) -> u32 {
        let mut count = 0;
        let mut bound = Bound::new(GRANTS as u32);
        let mut index = self.rq.head;
        while index != self.rq.fetched {
            bound.step();
            count += (self.rq.grants.at(index).held != 0) as u32;
            index = index.wrapping_add(1);
        }
        count
    }

    /// Receives that are credits and that no data has come for.
    pub fn unused(&self) -> u32 {
        let mut count = 0;
        let mut bound = Bound::new(GRANTS as u32);
        let mut index = self.rq.land;
        while index != self.rq.post {
            bound.step();
            count += (self.rq.grants.at(index).state == GRANT_POSTED) as u32;
            index = index.wrapping_add(1);
        }
        count
    }

    /// Asks for credits back whose receives take at least `bytes`, newest first. Those that are
    /// not announced yet go in any case.
    pub fn recall<H: Hw>(&mut self, bytes: u32, sh: &mut Shared, hw: &mut H) {
        if self.state != CONNECTED || self.rq.recall != RECALL_NONE {
            return;
        }
        let (mut n, mut sum) = (0, 0u32);
        let mut index = self.rq.post;
        while index != self.rq.land && (sum < bytes || n == 0) {
            sh.step();
            index = index.wrapping_sub(1);
            let grant = self.rq.grants.at(index);
            if grant.state == GRANT_POSTED {
                sum = sum.saturating_add(grant.len);
                n += 1;
            }
        }
        let quiet = self.unused().saturating_sub(self.rq.outstanding);
        hw.log(Log::Recall(self.qpn(), n));
        self.rq.recall = RECALL_OUT;
        self.rq.recall_n = n.saturating_sub(quiet);
        self.tell(TODO_RECALL, sh);
    }

    /// The peer has answered a recall: it keeps the credits below number `first`. The others'
    /// receives are granted anew, behind those that wait.
    pub fn recalled<H: Hw>(&mut self, first: u32, sh: &mut Shared, hw: &mut H) {
        if self.rq.recall != RECALL_OUT {
            return;
        }
        self.rq.recall = RECALL_NONE;
        if hw.credit(CRD_VOID, self.qpn(), first, 0) != 0 {
            self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw);
            return;
        }
        // The answer says what the peer has: nothing of the last list is in doubt any more, and numbers begin again.
        self.lists.proven();
        self.lists.peer_epoch = self.lists.peer_epoch.wrapping_add(1);
        let mut index = self.rq.post;
        let mut count = 0;
        while index != self.rq.land {
            sh.step();
            let before = index.wrapping_sub(1);
            let grant = *self.rq.grants.at(before);
            if grant.state == GRANT_POSTED {
                if (grant.credit.wrapping_sub(first) as i32) < 0 {
                    break;
                }
                self.let_go(before, sh, hw);
                let too_large = self.rq.too_large;
                let grant = self.rq.grants.at_mut(before);
                (grant.state, grant.withdrawn) = (GRANT_NEW, false);
                if too_large {
                    (grant.state, grant.status) = (GRANT_LOCAL, WC_OVER_BUDGET);
                }
                count += 1;
            }
            index = before;
        }
        self.rq.too_large = false;
        if count > 0 {
            self.rq.recalls = self.rq.recalls.saturating_add(1);
            self.rq.post = index;
            self.rq.ask = index;
            self.rq.uncommitted = false;
            if (self.rq.batch.wrapping_sub(index) as i16) <= 0 {
                self.rq.batch = self.rq.pi;
            }
        }
        // What was posted after the last list is void in the builder, too.
        hw.credit(CRD_BUILDER, self.qpn(), 0, 0);
        let left = hw.credit_rsp1().wrapping_sub(hw.credit_rsp2());
        hw.discount(F_CREDITS_OUTSTANDING, self.rq.outstanding.saturating_sub(left));
        self.rq.outstanding = left;
        hw.count(F_RECALLED, count);
        sh.recv_work |= self.bit();
    }

    /// Memory in `start .. end` is gone: lets go of receives in it. Announced ones are withdrawn
    /// (data for them is an error), the others are asked for again. True when nothing in the
    /// range is held any more; else call again when the engines have got further.
    pub fn revoke_grants<H: Hw>(&mut self, start: u64, end: u64, sh: &mut Shared, hw: &mut H) -> bool {
        let mut index = self.rq.head;
        let mut clear = true;
        while index != self.rq.fetched {
            sh.step();
            let grant = *self.rq.grants.at(index);
            let hit = (0..grant.sges).any(|i| {
                let range = self.rq.sges.at(grant.sge.wrapping_add(i as u16));
                (grant.held | grant.probing) & 1 << i != 0
                    && range.va < end
                    && start < range.va.saturating_add(range.len as u64)
            });
            if hit {
                match grant.state {
                    GRANT_NEW | GRANT_ASKING => {
                        self.let_go(index, sh, hw);
                        self.rq.grants.at_mut(index).stale = grant.probing | grant.waiting != 0;
                        clear &= grant.probing == 0;
                    }
                    GRANT_READY => {
                        self.let_go(index, sh, hw);
                        self.rq.grants.at_mut(index).state = GRANT_NEW;
                        if (self.rq.ask.wrapping_sub(index) as i16) > 0 {
                            self.rq.ask = index;
                        }
                    }
                    _ => {
                        if grant.state == GRANT_POSTED && !grant.withdrawn {
                            hw.count(F_WITHDRAWN, 1);
                            self.rq.grants.at_mut(index).withdrawn = true;
                        }
                        // Data that is being placed now meets a missing translation, or ends.
                        match grant.filled == 0 || self.rq.placing == 0 {
                            true => self.let_go(index, sh, hw),
                            false => clear = false,
                        }
                    }
                }
            }
            index = index.wrapping_add(1);
        }
        sh.recv_work |= self.bit();
        clear
    }
}
