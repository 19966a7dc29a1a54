// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all QPs and peers share: the node's name, slots, tags, work bitmaps, the timer.

use crate::bound::Bound;
use crate::headers::Mac;
use crate::hw::Hw;
use crate::keyed::{Key, siphash};
use crate::limits::{ANSWERS, GRANTS, HELD_LISTS, TAGS};
use berth_abi::card::{NUM_ASIDS, RX_SLOTS, SCRATCH_SLOTS, TX_SLOTS};
use berth_abi::counters::F_TX_STARVED;
use berth_abi::ring::EV_CMD_DONE;

/// A credit list that waits for one before it.
#[derive(Clone, Copy)]
pub struct HeldList {
    /// QP (index + 1); 0 free.
    pub qp: u8,
    /// Number of its first credit.
    pub first: u32,
    /// Its length.
    len: u8,
    sizes: [u32; GRANTS],
}

impl HeldList {
    /// No list.
    pub const FREE: Self = Self { qp: 0, first: 0, len: 0, sizes: [0; GRANTS] };

    /// Its sizes.
    pub fn sizes(&self) -> &[u32] {
        self.sizes.get(..self.len as usize).unwrap_or_default()
    }
}

/// Who filled a transmit slot.
#[derive(Clone, Copy)]
pub struct TxSlot {
    /// The slot carries a data packet of QP `qp`.
    pub data: bool,
    /// QP (index).
    pub qp: u8,
    /// Blocks that the packet's bytes come from.
    pub blocks: u8,
    /// First of them.
    pub first: u16,
}

/// A data packet that is being placed.
#[derive(Clone, Copy)]
pub struct RxSlot {
    /// QP (index).
    pub qp: u8,
    /// DMA writes under way.
    pub pending: u8,
    /// First failure, `DMA_*`.
    pub status: u8,
    /// PSN of the packet.
    pub psn: u32,
}

/// What a translation tag is for.
#[derive(Clone, Copy)]
pub struct Tag {
    /// `TAG_*`.
    pub kind: u8,
    /// QP (index).
    pub qp: u8,
    /// SGE of a receive.
    pub sge: u8,
    /// Address space that pages are asked for in.
    pub asid: u8,
    /// Block or grant.
    pub index: u16,
}

/// Nobody waits for this tag's answer any more.
pub const TAG_ORPHAN: u8 = 0;
/// A block to send from.
pub const TAG_SEND: u8 = 1;
/// An SGE of a receive.
pub const TAG_RECV: u8 = 2;

/// DMA tag: a queue element in scratch place (low bits).
pub const DMA_SCRATCH: u16 = 0x1000;
/// DMA tag: placement from receive slot (low bits).
pub const DMA_PLACE: u16 = 0x2000;

/// State that is not one QP's. All-zero when new.
pub struct Shared {
    /// Own IPv4 address; 0 before `CMD_NET_CONFIG`.
    pub ip: u32,
    /// Own MAC address.
    pub mac: Mac,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Selective repeat is offered to peers.
    pub selective: bool,
    /// Credit lists as datagrams are offered to peers.
    pub datagrams: bool,
    /// What PSNs, epochs, incarnations and names of challenges follow from: the host's secret.
    key: Key,
    /// Numbers drawn with it.
    drawn: u32,
    /// QPs that may have something to send.
    pub send_work: u64,
    /// QPs that found no transmit slot.
    pub send_blocked: u64,
    /// QPs whose receive queue wants attention.
    pub recv_work: u64,
    /// QPs that owe an acknowledgement.
    pub ack_work: u64,
    /// QPs that found no transmit slot for it.
    pub ack_blocked: u64,
    /// QPs with control records to send.
    pub ctl_work: u64,
    /// QPs whose records found no room in their peer's window.
    pub ctl_blocked: u64,
    /// Peers that found no transmit slot.
    pub peer_blocked: u64,
    /// QPs with events for the host.
    pub event_work: u64,
    /// QPs to be wound up.
    pub close_work: u64,
    /// Peers with control traffic.
    pub peer_work: u64,
    /// Requests want attention.
    pub request_work: bool,
    /// Number of the last request.
    pub request_serial: u32,
    /// Places where the round robins stand.
    pub last: [u8; 8],
    tx_busy: u32,
    /// Users of the transmit slots.
    pub tx: [TxSlot; TX_SLOTS as usize],
    scratch_busy: u64,
    /// Users of the scratch places: QP (index), receive queue.
    pub scratch: [(u8, bool); SCRATCH_SLOTS as usize],
    /// Users of the receive slots.
    pub rx: [RxSlot; RX_SLOTS as usize],
    tag_busy: [u32; TAGS / 32],
    tag_hint: u16,
    /// Tags in use, by address space.
    tags_of: [u16; NUM_ASIDS as usize],
    /// Tags in use.
    tags_used: u16,
    /// QPs that found no translation tag.
    pub tag_blocked: u64,
    /// When to look again whether the budget starves somebody; 0 never.
    pub pressure_at: u64,
    /// Bytes that were wanted.
    pub pressure_bytes: u32,
    /// Address space that wanted them; 0 all.
    pub pressure_asid: u8,
    /// QP (index + 1) that may acquire a receive while the budget is short; 0 any. Only one may
    /// hold a part and wait for the rest.
    pub token: u8,
    /// How often the budget was looked at since.
    pub token_age: u8,
    /// QPs that wait for it.
    pub token_wait: u64,
    /// QP that credits were last recalled from.
    pub recall_last: u8,
    /// QP that last asked its peer whether it lives.
    pub probe_last: u8,
    /// Credit lists that came before others that are missing (decision 6).
    pub held: [HeldList; HELD_LISTS],
    /// What they wait for may have come.
    pub held_due: bool,
    /// When a short budget counts again for an element that holds a part of its memory.
    pub squeeze_at: u64,
    /// Of the connections that RTL has, the one whose receive keeps what it holds of its memory while it waits for the
    /// rest, when nobody else would give any back.
    pub fast_turn: u8,
    /// What it has announced and completed, as far as one can see.
    pub fast_progress: u32,
    /// How often that did not help.
    pub fast_squeezed: u8,
    /// When it counts again.
    pub fast_squeeze_at: u64,
    /// A revocation is under way: nothing new is acquired.
    pub revoking: bool,
    /// Users of the translation tags.
    pub tags: [Tag; TAGS],
    armed: u64,
    /// CQs that are configured.
    pub cqs: u64,
    answers: [[u32; 16]; ANSWERS],
    answers_len: u8,
    /// Of the call of the card that is under way.
    bound: Bound,
}

impl Shared {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            ip: 0,
            mac: Mac(0, 0),
            mtu: 0,
            selective: false,
            datagrams: false,
            key: [0; 2],
            drawn: 0,
            send_work: 0,
            send_blocked: 0,
            recv_work: 0,
            ack_work: 0,
            ack_blocked: 0,
            ctl_work: 0,
            ctl_blocked: 0,
            peer_blocked: 0,
            event_work: 0,
            close_work: 0,
            peer_work: 0,
            request_work: false,
            request_serial: 0,
            last: [0; 8],
            tx_busy: 0,
            tx: [TxSlot { data: false, qp: 0, blocks: 0, first: 0 }; TX_SLOTS as usize],
            scratch_busy: 0,
            scratch: [(0, false); SCRATCH_SLOTS as usize],
            rx: [RxSlot { qp: 0, pending: 0, status: 0, psn: 0 }; RX_SLOTS as usize],
            tag_busy: [0; TAGS / 32],
            tag_hint: 0,
            tags_of: [0; NUM_ASIDS as usize],
            tags_used: 0,
            tag_blocked: 0,
            pressure_at: 0,
            token: 0,
            token_age: 0,
            token_wait: 0,
            recall_last: 0,
            probe_last: 0,
            held: [HeldList::FREE; HELD_LISTS],
            held_due: false,
            squeeze_at: 0,
            fast_turn: 0,
            fast_progress: 0,
            fast_squeezed: 0,
            fast_squeeze_at: 0,
            pressure_bytes: 0,
            pressure_asid: 0,
            revoking: false,
            tags: [Tag { kind: 0, qp: 0, sge: 0, asid: 0, index: 0 }; TAGS],
            armed: 0,
            cqs: 0,
            answers: [[0; 16]; ANSWERS],
            answers_len: 0,
            bound: Bound::new(0),
        }
    }

    /// A call of the card begins, which has at most `steps` steps ([`crate::steps`]).
    #[inline(always)]
    pub const fn begin(&mut self, steps: u32) {
        self.bound = Bound::new(steps);
    }

    /// One turn of a loop, in whatever the call has come to.
    #[inline(always)]
    pub const fn step(&mut self) {
        self.bound.step();
    }

    /// Makes the key another one, which follows from what it was and from `value`.
    pub fn stir(&mut self, value: u64) {
        self.key = [siphash(self.key, [value, u64::MAX]), siphash(self.key, [value, u64::MAX - 1])];
    }

    /// A number for PSNs, epochs and incarnations, that does not follow from those that others have seen. Not 0.
    pub fn random(&mut self) -> u32 {
        self.drawn = self.drawn.wrapping_add(1);
        // Never what a challenge is made from: no peer has address 0.
        (siphash(self.key, [self.drawn as u64, 0]) as u32).max(1)
    }

    /// The names with which the end with address `ip` that calls itself `from` may begin, as long as our end is `ours` and
    /// `theirs` the one that we know of it (0: none): the first one if it does not know our end, the second one if it does.
    /// Who has not heard them from us does not know them, and nothing need be remembered of who asks (the idea of SYN
    /// cookies, RFC 4987 3.6). Not 0.
    pub fn challenge(&self, ip: u32, from: u32, ours: u32, theirs: u32) -> [u32; 2] {
        let pair = |high: u32, low: u32| (high as u64) << 32 | low as u64;
        let names = siphash(self.key, [pair(ip, from), pair(ours, theirs)]);
        [names as u32, (names >> 32) as u32].map(|name| name.max(1))
    }

    /// A free transmit slot, if more than `reserve` are free.
    pub fn tx_alloc(&mut self, reserve: u32) -> Option<u32> {
        const ALL: u32 = (1 << TX_SLOTS) - 1;
        let free = !self.tx_busy & ALL;
        if free.count_ones() <= reserve {
            return None;
        }
        let slot = free.trailing_zeros();
        self.tx_busy |= 1 << slot;
        Some(slot)
    }

    /// Holds a credit list of QP `idx` until those before it have come. False when there is no place for it: it is
    /// longer than any that we know of, or the QP has another one, or all places are taken.
    pub fn hold_list(&mut self, idx: u8, first: u32, sizes: &[u32]) -> bool {
        if let Some(held) = self.held.iter().find(|held| held.qp == idx + 1) {
            return held.first == first;
        }
        let Some(place) = self.held.iter_mut().find(|held| held.qp == 0) else {
            return false;
        };
        let Some(to) = place.sizes.get_mut(..sizes.len()) else {
            return false;
        };
        to.copy_from_slice(sizes);
        (place.qp, place.first, place.len) = (idx + 1, first, sizes.len() as u8);
        true
    }

    /// The list that is held for QP `idx` is void.
    pub fn drop_held(&mut self, idx: u8) {
        if let Some(held) = self.held.iter_mut().find(|held| held.qp == idx + 1) {
            held.qp = 0;
        }
    }

    /// A transmit slot for an acknowledgement or a control frame; counts when there is none.
    pub fn tx_alloc_control<H: Hw>(&mut self, hw: &mut H) -> Option<u32> {
        let slot = self.tx_alloc(0);
        match slot {
            Some(slot) => self.tx[slot as usize % TX_SLOTS as usize].data = false,
            None => hw.count(F_TX_STARVED, 1),
        }
        slot
    }

    /// Frees a transmit slot and gives its user; `None` if it was free.
    pub fn tx_free(&mut self, slot: u32) -> Option<TxSlot> {
        let bit = 1u32.checked_shl(slot)?;
        if self.tx_busy & bit == 0 {
            return None;
        }
        self.tx_busy &= !bit;
        self.send_work |= self.send_blocked;
        self.send_blocked = 0;
        self.peer_work |= self.peer_blocked;
        self.peer_blocked = 0;
        self.ack_work |= self.ack_blocked;
        self.ack_blocked = 0;
        self.tx.get(slot as usize).copied()
    }

    /// A free scratch place for a queue element of `qp`.
    pub fn scratch_alloc(&mut self, qp: u8, recv: bool) -> Option<u32> {
        let place = (!self.scratch_busy).trailing_zeros();
        let user = self.scratch.get_mut(place as usize)?;
        *user = (qp, recv);
        self.scratch_busy |= 1 << place;
        Some(place)
    }

    /// Frees a scratch place and gives its user; `None` if it was free.
    pub fn scratch_free(&mut self, place: u32) -> Option<(u8, bool)> {
        let bit = 1u64.checked_shl(place)?;
        if self.scratch_busy & bit == 0 {
            return None;
        }
        self.scratch_busy &= !bit;
        self.scratch.get(place as usize).copied()
    }

    /// A free translation tag. An address space may not have more than are left for all others: one whose pages do not
    /// come stalls itself only.
    pub fn tag_alloc(&mut self, tag: Tag) -> Option<u16> {
        let own = self.tags_of.get_mut(tag.asid as usize)?;
        if (*own + self.tags_used) as usize >= TAGS {
            return None;
        }
        *own += 1;
        self.tags_used += 1;
        const WORDS: usize = TAGS / 32;
        for i in 0..WORDS {
            self.step();
            let word = (self.tag_hint as usize + i) % WORDS;
            let free = !self.tag_busy[word];
            if free != 0 {
                let bit = free.trailing_zeros();
                self.tag_busy[word] |= 1 << bit;
                self.tag_hint = word as u16;
                let number = word * 32 + bit as usize;
                self.tags[number % TAGS] = tag;
                return Some(number as u16);
            }
        }
        None
    }

    /// The user of a tag in use.
    pub fn tag_user(&self, tag: u16) -> Option<Tag> {
        let word = self.tag_busy.get(tag as usize / 32)?;
        if word & 1 << (tag % 32) == 0 {
            return None;
        }
        self.tags.get(tag as usize).copied()
    }

    /// Frees a tag.
    pub fn tag_free(&mut self, tag: u16) {
        if let Some(user) = self.tag_user(tag)
            && let Some(own) = self.tags_of.get_mut(user.asid as usize)
        {
            *own = own.saturating_sub(1);
            self.tags_used = self.tags_used.saturating_sub(1);
        }
        if let Some(word) = self.tag_busy.get_mut(tag as usize / 32) {
            *word &= !(1 << (tag % 32));
        }
        self.send_work |= self.tag_blocked;
        self.recv_work |= self.tag_blocked;
        self.tag_blocked = 0;
    }

    /// Nobody waits for the answer with this tag any more; it is freed when it comes.
    pub fn tag_orphan(&mut self, tag: u16) {
        if let Some(user) = self.tags.get_mut(tag as usize) {
            user.kind = TAG_ORPHAN;
        }
    }

    /// QP `i` is gone: no work is left of it.
    pub fn forget_qp(&mut self, i: usize) {
        for held in &mut self.held {
            self.bound.step();
            if held.qp as usize == i + 1 {
                held.qp = 0;
            }
        }
        let keep = !(1u64 << (i & 63));
        for map in [
            &mut self.send_work,
            &mut self.send_blocked,
            &mut self.recv_work,
            &mut self.ack_work,
            &mut self.ack_blocked,
            &mut self.ctl_work,
            &mut self.ctl_blocked,
            &mut self.event_work,
            &mut self.close_work,
            &mut self.tag_blocked,
        ] {
            *map &= keep;
        }
    }

    /// QP `idx` may acquire a receive although the budget is short.
    pub fn token_take(&mut self, idx: u8) -> bool {
        if self.token == 0 {
            (self.token, self.token_age) = (idx + 1, 0);
        }
        if self.token != idx + 1 {
            self.token_wait |= 1 << (idx & 63);
        }
        self.token == idx + 1
    }

    /// QP `idx` does not wait with a part of its memory any more.
    pub fn token_drop(&mut self, idx: u8) {
        if self.token == idx + 1 {
            self.token = 0;
            self.recv_work |= self.token_wait;
            self.token_wait = 0;
        }
    }

    /// The timer must come at `deadline` or before.
    pub fn arm<H: Hw>(&mut self, deadline: u64, hw: &mut H) {
        if self.armed == 0 || deadline < self.armed {
            self.armed = deadline;
            hw.timer_arm(deadline);
        }
    }

    /// The timer has come or is to be forgotten.
    pub fn disarm<H: Hw>(&mut self, hw: &mut H) {
        self.armed = 0;
        hw.timer_off();
    }

    /// Room for the answer of one more command that may be answered at once.
    pub fn answer_room(&self) -> bool {
        (self.answers_len as usize) < ANSWERS
    }

    /// Answers a command: `EV_CMD_DONE` with up to 13 result words.
    pub fn answer<H: Hw>(&mut self, cookie: u32, status: u32, results: &[u32], hw: &mut H) {
        let mut event = [0; 16];
        event[0] = EV_CMD_DONE;
        event[1] = cookie;
        event[2] = status;
        for (to, from) in event[3..].iter_mut().zip(results) {
            self.step();
            *to = *from;
        }
        self.flush_answers(hw);
        if self.answers_len == 0 && hw.event_space() > 0 {
            hw.event(&event);
        } else if let Some(place) = self.answers.get_mut(self.answers_len as usize) {
            *place = event;
            self.answers_len += 1;
        }
    }

    /// Writes answers that waited for room in the event ring. True when none is left.
    pub fn flush_answers<H: Hw>(&mut self, hw: &mut H) -> bool {
        while self.answers_len > 0 {
            self.step();
            if hw.event_space() == 0 {
                return false;
            }
            hw.event(&self.answers[0]);
            self.answers.rotate_left(1);
            self.answers_len -= 1;
        }
        true
    }
}
