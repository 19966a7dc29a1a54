// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections' packets are RTL's (docs/internals/firmware.md): firmware writes their rows when they are there, looks at
//! them, and takes them back. No packet passes through here.

use super::Card;
use super::hw::{Hw, Log, TX_LOOPBACK};
use super::limits::{
    CANCEL_LOOKS, FAST_ACK_EVERY, FAST_AHEAD, FAST_BLOCKS, FAST_PINNED, FAST_PINNED_MOST, FAST_POLL, FAST_POLL_DOUBLED,
    FAST_REST, FAST_WINDOW, LIST_AGAIN, REORDER,
};
use super::qp::{CONNECTED, CREATED, Qp, TODO_RECALL, TODO_RECALLED};
use super::shared::Shared;
use crate::base::rule::{self, Rule};
use crate::rc::Placement;
use crate::wire::headers::{BTH_SEND_ONLY_IMM, Mac, PSN_MASK, list_qkey};
use berth_abi::card::FIRST_QPN;
use berth_abi::counters::F_RECALLED;
use berth_abi::cpu::DbCfg;
use berth_abi::ring::QpState;
use berth_abi::rows::{HALF_RECEIVES, HALF_SENDS, ROW_CLOCK as UNIT, recv, send};
use berth_abi::status::{WC_FLUSHED, WC_OK};
use berth_abi::wide;

/// log2 of the block size that RTL takes for one of `block` bytes: of a page to 1 MiB.
fn log2_block(block: u32) -> u32 {
    31_u32.saturating_sub(block.leading_zeros()).clamp(12, 20)
}

/// Blocks of `block` bytes that RTL asks for ahead of what has left, of those that credits cover (PC-2).
pub fn fast_ahead(block: u32) -> u32 {
    ((FAST_AHEAD >> log2_block(block)) + 2).min(FAST_BLOCKS)
}

/// Word `recv::PINNED` for blocks of `block` bytes (PC-1, PC-3).
pub fn fast_pinned(block: u32) -> u32 {
    recv::Pinned { most: FAST_PINNED_MOST >> 12, bound: FAST_PINNED << (log2_block(block) - 12) }.word()
}

/// An access of the peer that no key allows, or to memory that cannot be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// `RIGHT_*` that it needs.
    pub right: u32,
    /// Its key.
    pub key: u32,
    /// Its first byte.
    pub va: u64,
    /// Bytes.
    pub len: u32,
}

/// A MAC address as the receiving half takes it: last four bytes, first two; big-endian numbers.
fn mac_words(mac: Mac) -> [u32; 2] {
    let first = mac.0.swap_bytes();
    [first << 16 | mac.1.swap_bytes() as u32, first >> 16]
}

impl Qp {
    pub(super) fn fast_send<H: Hw>(&self, word: u32, value: u32, hw: &mut H) {
        hw.fast_write(HALF_SENDS, self.qpn(), word, value);
    }

    pub(super) fn fast_receive<H: Hw>(&self, word: u32, value: u32, hw: &mut H) {
        hw.fast_write(HALF_RECEIVES, self.qpn(), word, value);
    }

    pub(super) fn fast_sends<H: Hw>(&self, word: u32, hw: &mut H) -> u32 {
        hw.fast_read(HALF_SENDS, self.qpn(), word)
    }

    pub(super) fn fast_receives<H: Hw>(&self, word: u32, hw: &mut H) -> u32 {
        hw.fast_read(HALF_RECEIVES, self.qpn(), word)
    }

    /// What the half that sends holds of the QP.
    pub(super) fn sends_held<H: Hw>(&self, hw: &mut H) -> send::Held {
        send::Held::from_word(self.fast_sends(send::HELD, hw))
    }

    /// What the half that receives holds of the QP.
    pub(super) fn receives_held<H: Hw>(&self, hw: &mut H) -> recv::Held {
        recv::Held::from_word(self.fast_receives(recv::HELD, hw))
    }

    /// Writes consecutive words.
    #[inline(never)]
    pub(super) fn fast_words<H: Hw>(&self, half: u32, first: u32, words: &[u32], sh: &mut Shared, hw: &mut H) {
        for (word, value) in (first..).zip(words) {
            sh.step();
            hw.fast_write(half, self.qpn(), word, *value);
        }
    }

    /// RTL has the connection to the peer at `ip` and `mac` from now on: both rows are written.
    #[inline(never)]
    fn hand_over<H: Hw>(&mut self, ip: u32, mac: Mac, sh: &mut Shared, hw: &mut H) {
        self.fast_start_sending(sh, hw);
        self.fast_peer(ip, mac, sh, hw);
        let receives = [
            self.rq.psn,
            self.rq_base as u32,
            (self.rq_base >> 32) as u32,
            // The first receive is the queue's first.
            recv::Queue { first: 0, log2_depth: self.rq_mask.count_ones() }.word(),
            self.first_lists().word(),
            (LIST_AGAIN / UNIT as u64) as u32,
            self.rq.pi as u32,
        ];
        const _: () =
            assert!(recv::BASE == recv::PSN + 1 && recv::QUEUE == recv::BASE + 2 && recv::LISTS == recv::QUEUE + 1);
        const _: () = assert!(recv::AGAIN == recv::LISTS + 1 && recv::PI == recv::AGAIN + 1);
        const _: () = assert!(LIST_AGAIN / (UNIT as u64) < 1 << 16);
        self.fast_words(HALF_RECEIVES, recv::PSN, &receives, sh, hw);
        self.fast_receive(recv::PINNED, fast_pinned(self.block), hw);
        self.fast_receive(recv::COMMAND, recv::CMD_START, hw);
        if self.cap[1] != 0 {
            self.set_cap(sh, hw);
        }
        self.fast.on = true;
    }

    /// The row of the sending half is written.
    #[inline(never)]
    fn fast_start_sending<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let asid = self.asid as u32;
        let una = self.sq.psn;
        self.fast_template(sh, hw);
        let window = (self.fast.window as u32).min(FAST_WINDOW);
        let mode = send::Mode {
            carrier: self.carrier as u32,
            foreign: self.foreign as u32,
            reads: self.reads as u32,
            remote: self.message as u32,
            reorder: if self.foreign { 0 } else { REORDER },
            window,
            loopback: self.loopback as u32,
            selective: !self.foreign as u32,
            message: self.message as u32,
            log2_mtu: self.log2_mtu as u32,
        };
        let sends = [
            self.sq_base as u32,
            (self.sq_base >> 32) as u32,
            send::Queue { cqn: self.send_cqn as u32, asid, log2_depth: self.sq_mask.count_ones() }.word(),
            mode.word(),
            (self.timeout / UNIT).max(1),
            send::Blocks { ahead: fast_ahead(self.block), log2_block: log2_block(self.block) }.word(),
            una,
            list_qkey(self.epoch),
        ];
        const _: () =
            assert!(send::QUEUE == send::BASE + 2 && send::MODE == send::QUEUE + 1 && send::TIMEOUT == send::MODE + 1);
        const _: () =
            assert!(send::BLOCKS == send::TIMEOUT + 1 && send::PSN == send::BLOCKS + 1 && send::QKEY == send::PSN + 1);
        self.fast_words(HALF_SENDS, send::BASE, &sends, sh, hw);
        self.fast_send(send::COMMAND, send::CMD_START, hw);
        self.fast.una = una;
    }

    /// No doorbell is taken until [`Self::fast_resume`]. False, and nothing has changed, when something was posted to the
    /// send queue that is not complete.
    #[inline(never)]
    pub(super) fn fast_pause<H: Hw>(&self, hw: &mut H) -> bool {
        hw.doorbell_config(self.qpn(), DbCfg { valid: 0, fast: 0, page: 0 });
        let quiet = self.fast_sends(send::HELD, hw) == 0;
        if !quiet {
            self.fast_bell(hw);
        }
        quiet
    }

    /// The sending half begins anew. The receiving half knows what its queue has; a doorbell that came meanwhile rings again
    /// (see [`QpPeer`](berth_abi::message::QpPeer)).
    #[inline(never)]
    pub(super) fn fast_resume<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        self.fast_start_sending(sh, hw);
        self.fast_bell(hw);
    }

    /// Doorbells go to RTL from now on. The doorbell row passes what has been posted so far to RTL.
    #[inline(never)]
    fn fast_bell<H: Hw>(&self, hw: &mut H) {
        hw.doorbell_config(self.qpn(), DbCfg { valid: 1, fast: 1, page: self.uar as u32 });
    }

    /// Writes the headers to the peer.
    #[inline(never)]
    fn fast_template<H: Hw>(&self, sh: &mut Shared, hw: &mut H) {
        self.fast_words(HALF_SENDS, send::TEMPLATE, &self.template.row(), sh, hw);
    }

    /// Stages the words that say whose frames are taken; `START` and `ON` apply them.
    #[inline(never)]
    fn fast_peer<H: Hw>(&self, ip: u32, mac: Mac, sh: &mut Shared, hw: &mut H) {
        let [mac, mac_top] = mac_words(mac);
        let words = [
            recv::Mode {
                reads: self.peer_reads as u32,
                remote: self.message as u32,
                ack_every: FAST_ACK_EVERY,
                // Programs of verbs expect it.
                writes_in_order: self.bound as u32,
                denies: self.denies as u32,
                rnr_timer: self.rnr_timer as u32,
                message: self.message as u32,
                foreign: self.foreign as u32,
                selective: !self.foreign as u32,
                log2_mtu: self.log2_mtu as u32,
            }
            .word(),
            ip,
            mac,
            mac_top,
            recv::Space { domain: self.domain as u32, cqn: self.recv_cqn as u32, asid: self.asid as u32 }.word(),
            self.lists.epoch,
            self.lists.peer_epoch,
            list_qkey(self.peer_epoch),
        ];
        const _: () = assert!(recv::IP == recv::MODE + 1 && recv::MAC == recv::IP + 1 && recv::SPACE == recv::MAC + 2);
        const _: () = assert!(
            recv::EPOCH == recv::SPACE + 1 && recv::PEER_EPOCH == recv::EPOCH + 1 && recv::QKEY == recv::EPOCH + 2
        );
        self.fast_words(HALF_RECEIVES, recv::MODE, &words, sh, hw);
    }

    /// A credit list that came to the core: RTL's reader judges it.
    #[inline(never)]
    pub fn fast_list<H: Hw>(&mut self, first: u32, sizes: &[u32], sh: &mut Shared, hw: &mut H) {
        self.fast_send(send::LIST_FIRST, first, hw);
        self.fast_send(send::LIST_BEGIN, sizes.len() as u32, hw);
        for size in sizes {
            sh.step();
            self.fast_send(send::LIST_SIZE, *size, hw);
        }
    }

    /// The connection is over, or never came about: RTL completes everything that is or will be posted, the oldest send
    /// with `head`, and gives its memory back.
    #[inline(never)]
    pub fn fast_end<H: Hw>(&mut self, head: u8, sh: &mut Shared, hw: &mut H) {
        let new = !self.fast.on;
        if new {
            if self.destroying {
                // Completions are not awaited.
                return;
            }
            self.hand_over(0, Mac::default(), sh, hw);
        }
        let status = if head == WC_OK { WC_FLUSHED } else { head };
        self.fast_send(send::COMMAND, send::Command { opcode: send::CMD_END, argument: status as u32 }.word(), hw);
        self.fast_receive(
            recv::COMMAND,
            recv::Command { opcode: recv::CMD_END, argument: WC_FLUSHED as u32 }.word(),
            hw,
        );
        self.fast.looks = 0;
        if new {
            // Only now, so that RTL completes posted elements and does nothing else with them.
            self.fast_bell(hw);
        }
    }

    /// The QP is to be destroyed: it is looked at at once.
    pub fn fast_destroy(&mut self) {
        self.fast.looks = 0;
    }

    /// Takes the QP back from RTL. True when nothing of it is in flight there and it may be forgotten.
    #[inline(never)]
    pub fn fast_wind_up<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) -> bool {
        let sends = self.sends_held(hw);
        let receives = self.receives_held(hw);
        if sends.busy == 0 && sends.holds != 0 {
            self.fast_send(send::COMMAND, send::CMD_DRAIN, hw);
        }
        let works = sends.busy | sends.queued | sends.revoking | receives.busy | receives.queued | receives.revoking;
        let rests = works == 0 && sends.holds == 0 && receives.holds == 0;
        if !rule::holds(Rule::HeldKeepsQp, rests) {
            self.fast_later(now, sh, hw);
            return false;
        }
        self.destroying && self.todo == 0
    }

    /// Looks at the QP again soon, and later each time: it may wait for a page that never comes.
    pub(super) fn fast_later<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        self.sq.deadline = now + (FAST_POLL << self.fast.looks);
        self.fast.looks = (self.fast.looks + 1).min(FAST_POLL_DOUBLED);
        sh.arm(self.sq.deadline, hw);
    }

    /// Probes the peer with a duplicate of the packet acknowledged last, which is answered at once. False when there is
    /// no transmit slot.
    #[inline(never)]
    pub fn probe<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        let Some(slot) = sh.tx_alloc(hw) else {
            return false;
        };
        let psn = self.fast_sends(send::UNA, hw).wrapping_sub(1) & PSN_MASK;
        let placement = Placement { credit: 0, index: 0 };
        let frame = self.template.placed(BTH_SEND_ONLY_IMM, false, true, psn, Some(0), placement, 0);
        hw.tx_write(slot, 0, &frame.words);
        hw.tx_send(slot, frame.end, if self.loopback { TX_LOOPBACK } else { 0 });
        true
    }

    /// When a frame of the connection last came, in cycles.
    #[inline(never)]
    pub fn fast_heard<H: Hw>(&self, now: u64, hw: &mut H) -> u64 {
        let clock = (now / UNIT as u64) as u32;
        let ago = clock.wrapping_sub(self.fast_receives(recv::HEARD, hw));
        now.saturating_sub(ago as u64 * UNIT as u64)
    }

    /// Receives that are granted and not complete.
    pub(super) fn fast_granted<H: Hw>(&self, hw: &mut H) -> u32 {
        recv::Counts::from_word(self.fast_receives(recv::COUNTS, hw)).granted
    }

    /// Credits that are announced and have not landed.
    pub(super) fn fast_unused<H: Hw>(&self, hw: &mut H) -> u32 {
        self.fast_receives(recv::ANNOUNCED, hw).wrapping_sub(self.fast_receives(recv::LANDED, hw))
    }

    /// Asks for all credits back that have not landed.
    #[inline(never)]
    pub(super) fn fast_recall<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        self.fast_receive(recv::COMMAND, recv::CMD_HOLD, hw);
        let n = self.fast_unused(hw);
        hw.log(Log::Recall(self.qpn(), n));
        self.rq.recall.begin(n);
        self.tell(TODO_RECALL, sh);
    }

    /// Takes back what a foreign peer could use, as it need not be asked, and lets others have the memory for a while.
    #[inline(never)]
    pub(super) fn fast_reclaim<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        let unused = self.fast_unused(hw);
        hw.count(F_RECALLED, unused);
        self.fast_receive(recv::COMMAND, recv::CMD_REST, hw);
        self.fast_receive(recv::COMMAND, recv::CMD_RECLAIM, hw);
        self.fast_rest(now, sh, hw);
    }

    /// RTL takes `lists` for those to come; `due`: for what they wait, in units of `ROW_CLOCK`.
    pub(super) fn set_lists<H: Hw>(&self, lists: recv::Lists, due: u32, hw: &mut H) {
        self.fast_receive(recv::LISTS, lists.word(), hw);
        self.fast_receive(recv::FIRST, due, hw);
        self.fast_receive(recv::COMMAND, recv::CMD_LISTS, hw);
    }

    /// RTL keeps to the maximum bandwidth from now on.
    #[cold]
    #[inline(never)]
    pub(super) fn set_cap<H: Hw>(&self, sh: &mut Shared, hw: &mut H) {
        self.fast_words(HALF_RECEIVES, recv::RANGE, &self.cap, sh, hw);
        self.fast_receive(recv::COMMAND, recv::CMD_CAP, hw);
    }

    /// Lists go by another trigger from the next one on.
    #[cold]
    pub(super) fn change_trigger<H: Hw>(&mut self, trigger: u8, index: u8, hw: &mut H) {
        self.trigger = trigger as u32 | (index as u32) << 8;
        self.fast.measured = false;
        if self.fast.on && self.state == CONNECTED {
            self.set_lists(self.first_lists(), 0, hw);
        }
    }

    /// What has come back is there for others, for a while.
    pub(super) fn fast_rest<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        self.fast.rests_until = now + FAST_REST;
        sh.arm(self.fast.rests_until, hw);
    }

    /// Receives that nothing has come for go back to the program.
    #[inline(never)]
    pub(super) fn give_back<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        if self.foreign || self.gone {
            // Nobody is to be asked.
            self.fast_receive(recv::COMMAND, recv::CMD_REST, hw);
            self.fast_receive(recv::COMMAND, recv::CMD_RECLAIM, hw);
            self.fast_cancel(sh, hw);
            return;
        }
        self.rq.gives_back = true;
        if self.rq.recall.asked().is_none() {
            self.fast_recall(sh, hw);
        }
    }

    /// All receives that are posted and no credits complete.
    pub(super) fn fast_cancel<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) {
        let mut completed = self.fast_receives(recv::COMPLETED, hw);
        let mut posted = 0;
        // Both of one time. Data for the credits that are left come rarely enough.
        for _ in 0..CANCEL_LOOKS {
            sh.step();
            posted = recv::Counts::from_word(self.fast_receives(recv::COUNTS, hw)).posted;
            let now = self.fast_receives(recv::COMPLETED, hw);
            if core::mem::replace(&mut completed, now) == now {
                break;
            }
        }
        let argument = completed.wrapping_add(posted) & 0xffff;
        let command = recv::Command { opcode: recv::CMD_CANCEL, argument };
        self.fast_receive(recv::COMMAND, command.word(), hw);
    }

    /// Recalled memory has been available to others for long enough.
    #[inline(never)]
    pub fn fast_wake<H: Hw>(&mut self, hw: &mut H) {
        self.fast.rests_until = 0;
        if self.fast.on && self.state == CONNECTED {
            self.fast_receive(recv::COMMAND, recv::CMD_SQUEEZE, hw);
        }
    }

    /// The memory in `start .. end` is gone. True once RTL holds nothing of it; else call again.
    #[inline(never)]
    pub fn fast_revoke<H: Hw>(&mut self, now: u64, start: u64, end: u64, sh: &mut Shared, hw: &mut H) -> bool {
        if !self.fast.revoking {
            self.fast.revoking = true;
            let range = [start as u32, (start >> 32) as u32, end as u32, (end >> 32) as u32];
            self.fast_words(HALF_SENDS, send::RANGE, &range, sh, hw);
            self.fast_send(send::COMMAND, send::CMD_REVOKE, hw);
            self.fast_words(HALF_RECEIVES, recv::RANGE, &range, sh, hw);
            self.fast_receive(recv::COMMAND, recv::CMD_REVOKE, hw);
        }
        let clear = self.sends_held(hw).revoking == 0 && self.receives_held(hw).revoking == 0;
        let clear = rule::holds(Rule::RevokedWhenClear, clear);
        if !clear {
            sh.arm(now + FAST_POLL, hw);
        }
        clear
    }

    /// The revocation is over.
    pub fn fast_revoked(&mut self) {
        self.fast.revoking = false;
    }

    /// The peer's access that broke the connection; all 0 if RTL knows none.
    #[inline(never)]
    pub(super) fn refused<H: Hw>(&self, hw: &mut H) -> Refused {
        let access = recv::Access::from_word(self.fast_receives(recv::ACCESS, hw));
        if !self.fast.on || access.known == 0 {
            return Refused::default();
        }
        let [va, va_high, len] = [0, 1, 2].map(|word| self.fast_receives(recv::ACCESS_RANGE + word, hw));
        let key = self.fast_receives(recv::ACCESS_KEY, hw);
        Refused { right: access.right, key, va: wide(va, va_high), len }
    }

    /// What `CMD_QP_QUERY` answers.
    #[inline(never)]
    pub fn query<H: Hw>(&self, hw: &mut H) -> QpState {
        let (state, reason) = (self.state.saturating_sub(CREATED) as u32, self.reason as u32);
        let reads = self.reads as u32;
        if !self.fast.on {
            // Before the connection, posted elements wait.
            return QpState { state, reason, receives: [self.rq.pi as u32, 0, 0, 0, 0], credits: 0, pieces: 0, reads };
        }
        let completed = self.fast_receives(recv::COMPLETED, hw);
        let counts = recv::Counts::from_word(self.fast_receives(recv::COUNTS, hw));
        let sends = send::Counts::from_word(self.fast_sends(send::COUNTS, hw));
        let posted = completed.wrapping_add(counts.posted);
        let [announced, landed] = [recv::ANNOUNCED, recv::LANDED].map(|word| self.fast_receives(word, hw));
        let receives = [posted, counts.granted, announced, landed, completed];
        QpState { state, reason, receives, credits: sends.credits, pieces: sends.unacked, reads }
    }
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// After a reset: frames of all QPs are the core's, whatever the rows' RAM holds.
    pub fn clear_rows<H: Hw>(&mut self, hw: &mut H) {
        self.sh.begin(QPS as u32);
        for qpn in FIRST_QPN..FIRST_QPN + QPS as u32 {
            self.sh.step();
            hw.fast_write(HALF_RECEIVES, qpn, recv::COMMAND, recv::CMD_OFF);
        }
    }

    /// The card has addresses: RTL is told whose frames it takes.
    #[inline(never)]
    pub(crate) fn fast_name<H: Hw>(&mut self, hw: &mut H) {
        let [mac, mac_top] = mac_words(self.sh.mac);
        const _: () = assert!(recv::OWN_MAC == recv::OWN_IP + 1);
        for (word, value) in (recv::OWN_IP..).zip([self.sh.ip, mac, mac_top]) {
            self.sh.step();
            // These words belong to the card, so any row takes them.
            hw.fast_write(HALF_RECEIVES, FIRST_QPN, word, value);
        }
    }

    /// Gives QP `qpn`, which has just been connected, to RTL.
    #[inline(never)]
    pub(crate) fn hand_over<H: Hw>(&mut self, qpn: u32, hw: &mut H) {
        let Some(qp) = Self::index(qpn).and_then(|i| self.qps.get_mut(i)) else {
            return;
        };
        if let Some(peer) = self.peers.get((qp.peer as usize).wrapping_sub(1)) {
            qp.hand_over(peer.ip, peer.mac, &mut self.sh, hw);
            qp.fast_bell(hw);
        }
    }

    /// QP `qpn`'s peer wants `n` credits back. Lists from before the recall are not taken any more, so that they are
    /// not confused with later ones; the new epoch sees to that.
    #[inline(never)]
    pub(crate) fn fast_give_up<H: Hw>(&mut self, qpn: u32, n: u32, hw: &mut H) {
        if let Some(qp) = Self::index(qpn).and_then(|i| self.qps.get_mut(i))
            && let Some(peer) = self.peers.get((qp.peer as usize).wrapping_sub(1))
        {
            qp.fast_peer(peer.ip, peer.mac, &mut self.sh, hw);
            qp.fast_receive(recv::COMMAND, recv::CMD_ON, hw);
            qp.fast_send(send::COMMAND, send::Command { opcode: send::CMD_GIVE_UP, argument: n }.word(), hw);
            qp.kept = qp.fast_sends(send::KEPT, hw);
            qp.tell(TODO_RECALLED, &mut self.sh);
        }
    }

    /// Writes the new headers to QP `i`'s peer.
    #[inline(never)]
    pub(crate) fn fast_renamed<H: Hw>(&mut self, i: usize, hw: &mut H) {
        if let Some(qp) = self.qps.get_mut(i)
            && qp.fast.on
            && qp.state == CONNECTED
            && let Some(peer) = self.peers.get((qp.peer as usize).wrapping_sub(1))
        {
            qp.fast_template(&mut self.sh, hw);
            qp.fast_peer(peer.ip, peer.mac, &mut self.sh, hw);
            qp.fast_receive(recv::COMMAND, recv::CMD_ON, hw);
        }
    }

    /// Looks when something last came from peer `i` on connections that RTL has.
    #[inline(never)]
    pub(crate) fn fast_evidence<H: Hw>(&mut self, i: usize, now: u64, hw: &mut H) {
        let Some(peer) = self.peers.get_mut(i) else {
            return;
        };
        for qp in &self.qps {
            self.sh.step();
            if qp.fast.on && qp.state == CONNECTED && qp.peer as usize == i + 1 {
                peer.heard = peer.heard.max(qp.fast_heard(now, hw));
            }
        }
    }
}

const _: () = assert!(FAST_WINDOW < 256);
