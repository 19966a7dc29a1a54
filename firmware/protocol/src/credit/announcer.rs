// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver's end of a credit connection: from posted receives to list entries (CR-1,
//! CR-4 to CR-11, decisions 4, 6 and 19).
//!
//! [`Announcer`] puts together the builder, the policy and the cap, repeats a list until its
//! proof has come, and takes credits back. It says what is to be sent ([`Announcer::poll`]) and
//! when it wants to be asked again ([`Announcer::deadline`]). Times are of any unit, modulo nothing.
//!
//! **Proof.** A part is proven when data has landed for its first credit or a later one: the
//! sender can have that credit only from this part. All that is not proven is repeated.

use super::entry::{Body, Entry, Name, Part};
use super::list::{self, Builder, Seq};
use super::policy::{Cap, Meter, Policy, Settings};
use super::recall::{Answered, Recall};
use crate::base::bound::{Bound, at_most};
use crate::base::rule::{self, Rule};
use crate::base::shortest::Shortest;
use core::num::NonZeroU32;

/// Doublings of the time between two repeats, where it is not measured.
const MAX_BACKOFF: u32 = 5;

/// What became of an entry from the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// A recall is answered. The receives from the credit with this number on are no credits
    /// any more: those that were announced, and those that were posted after them. Numbers go on from here.
    Voided(u32),
    /// The sender says what it has: the rest is repeated at once.
    Synced,
    /// Known already, or about an earlier recall.
    Repeat,
    /// For another connection, or an earlier one of this QP: dropped (decision 6).
    WrongEpoch,
    /// Impossible, and dropped. The peer is at fault.
    Bad,
}

/// How an [`Announcer`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Longest list, 1 to `LIST`: see [`list_limit`].
    pub max_list: u32,
    /// Credits that one entry of the carrier holds, 1 to `max_list`.
    pub part: u32,
    /// More credits than so many are new when a list goes, or no more are with the sender (CR-4): receives that are
    /// posted one at a time do not make a list each.
    pub few: u32,
    /// Time after which unproven parts are repeated; doubled each time, at most 5 times. With 0 they are repeated
    /// whenever asked, with `u64::MAX` never.
    pub repeat: u64,
    /// Least time of the first repeat once it is known how soon data comes for a list: unproven parts are then repeated
    /// after twice that time, and after twice as long each time, up to `repeat`; as long as it is not known, after
    /// `repeat`. With 0 nothing is measured.
    pub probe: u64,
    /// When the next list goes (CR-5 to CR-9).
    pub policy: Settings,
    /// Bandwidth that is not to be exceeded (CR-10).
    pub cap: Option<Cap>,
}

impl Default for Options {
    /// Longest lists in one entry, repeated after 1 000 000 units (4 ms of card cycles), default policy, no cap.
    fn default() -> Self {
        Self {
            max_list: u32::MAX,
            part: u32::MAX,
            few: 0,
            repeat: 1_000_000,
            probe: 0,
            policy: Settings::DEFAULT,
            cap: None,
        }
    }
}

/// Longest list (CR-4, decision 7): it fits one packet of `mtu` bytes with `overhead` bytes
/// before the sizes, and the sender's credit buffer of `buffer` bytes; at most half of the `store`
/// credits that the sender keeps. At least 1.
pub fn list_limit(mtu: u32, overhead: u32, buffer: u32, store: u32) -> u32 {
    let fits = mtu.min(buffer).saturating_sub(overhead) / 4;
    fits.min(store / 2).max(1)
}

/// The receiver's end of a credit connection. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcer<
    const ROOM: usize = { list::ROOM },
    const LIST: usize = { list::LIST },
    const BITS: u32 = { list::BITS },
> {
    builder: Builder<ROOM, LIST, BITS>,
    policy: Policy,
    meter: Meter,
    cap: Option<Cap>,
    own: Name,
    peer: Name,
    part: u32,
    few: u32,
    repeat: u64,
    probe: u64,
    /// Time from a list to its first data.
    trip: Shortest,
    /// When the last list was first sent.
    left: u64,
    round: u8,
    /// First credit of the list before the last one: parts of it may still lack their proof.
    list_before: u32,
    /// First credit of the last list.
    list_last: u32,
    /// Number of the next credit to be sent (again), up to the last announced.
    cursor: u32,
    /// Number up to which the sender has said that it has all.
    synced: u32,
    /// When unproven parts are repeated.
    again_at: Option<u64>,
    /// How long they wait the next time; 0: they have not been repeated.
    pause: u64,
    /// No list goes until credits are void.
    held: bool,
    recall: Recall<BITS>,
    /// Sum of the sizes of announced credits that no data has landed for.
    outstanding_bytes: u64,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Default for Announcer<ROOM, LIST, BITS> {
    fn default() -> Self {
        Self::new(&Options::default())
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Announcer<ROOM, LIST, BITS> {
    /// Rounds are counted in as many bits as numbers have, at most 8.
    const ROUND: u8 = if BITS < 8 { Seq::<BITS>::MASK as u8 } else { u8::MAX };

    /// An end without a connection: receives may be posted, and nothing is sent.
    pub fn new(options: &Options) -> Self {
        let mut builder = Builder::new();
        let max_list = options.max_list.clamp(1, LIST as u32);
        let policy = Policy::new(options.policy);
        builder.reset(max_list, policy.trigger());
        Self {
            builder,
            policy,
            meter: Meter::new(),
            cap: options.cap,
            own: Name::default(),
            peer: Name::default(),
            part: options.part.clamp(1, max_list),
            few: options.few,
            repeat: options.repeat,
            probe: options.probe,
            trip: Shortest::default(),
            left: 0,
            round: 0,
            list_before: 0,
            list_last: 0,
            cursor: 0,
            synced: 0,
            again_at: None,
            pause: 0,
            held: false,
            recall: Recall::new(),
            outstanding_bytes: 0,
        }
    }

    /// The connection is there at time `now`: lists may go. Receives that were posted before stay.
    /// After a *re*connect begin with a new announcer: the credits of the old connection are void.
    pub fn connect(&mut self, now: u64, own: Name, peer: Name) {
        (self.own, self.peer) = (own, peer);
        self.builder.enable();
        if let Some(cap) = &mut self.cap {
            cap.start(now);
        }
    }

    /// A receive of `size` bytes is posted; gives its credit number, `None` when there is no room.
    pub fn post(&mut self, size: u32) -> Option<u32> {
        self.builder.post(size)
    }

    /// The batch is complete (decision 5): what is posted may be announced.
    pub fn commit(&mut self) {
        self.builder.commit();
    }

    /// The first packet of the next piece was accepted at time `now`; `remaining`: bytes still to
    /// be sent (CR-9), if that is known. False without an announced credit: the sender is at fault.
    pub fn landed(&mut self, now: u64, remaining: Option<u32>) -> bool {
        let (_, _, number) = self.builder.numbers();
        let size = self.builder.size_of(number).unwrap_or(0);
        let proof = self.builder.rtrip() == Some(number);
        if !self.builder.landed() {
            return false;
        }
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(size as u64);
        if let Some(cap) = &mut self.cap {
            cap.landed(now, size);
        }
        // Parts before it need no repeat.
        if Seq::<BITS>::after(self.builder.numbers().2, self.cursor) {
            self.cursor = self.builder.numbers().2;
        }
        if !Seq::<BITS>::after(self.synced, self.builder.numbers().2) {
            self.synced = self.builder.numbers().2;
        }
        if self.policy.measures()
            && let Some(report) =
                self.meter.landed(now, proof, self.builder.outstanding(), self.outstanding_bytes, remaining)
        {
            self.policy.learn(now, &report);
            self.builder.set_trigger(self.policy.trigger());
            if self.policy.trigger() == list::Trigger::First {
                self.builder.skip_trigger();
            }
        }
        if self.probe != 0 && proof {
            self.trip.learn(now.saturating_sub(self.left));
        }
        if self.unproven().is_none() && self.cursor == self.builder.numbers().1 {
            (self.again_at, self.pause) = (None, 0);
        }
        true
    }

    /// A later packet said `remaining` bytes (CR-9).
    pub fn remaining(&mut self, remaining: u32) {
        if self.policy.measures() {
            self.meter.remaining(remaining);
            self.policy.remaining(remaining, self.outstanding_bytes);
        }
    }

    /// A piece is complete and left `wasted` bytes of its credit unused: they do not count
    /// against the cap (CR-2, CR-10).
    pub fn wasted(&mut self, now: u64, wasted: u32) {
        if let Some(cap) = &mut self.cap {
            cap.refund(now, wasted);
        }
    }

    /// What is to be sent to the sender now. Call until `None`.
    pub fn poll(&mut self, now: u64) -> Option<Entry<LIST>> {
        if let Some(n) = self.recall.asked() {
            let first = Seq::<BITS>::sub(self.builder.numbers().1, n);
            let due = self.again_at.is_none_or(|at| now >= at);
            if due {
                self.arm(now);
                return Some(Entry { to: self.peer, body: Body::Recall { round: self.round, first } });
            }
            return None;
        }
        if self.held {
            return None;
        }
        let (_, announced, landed) = self.builder.numbers();
        if self.cursor == announced
            && !rule::broken(Rule::RepeatUntilProof)
            && let Some(first) = self.unproven()
            && self.again_at.is_some_and(|at| now >= at)
        {
            self.cursor = if Seq::<BITS>::after(landed, first) { landed } else { first };
            return self.say(now);
        }
        if self.cursor == announced {
            let most = self.grantable(now);
            if most == 0 || self.few() || !self.policy.due(now, self.builder.outstanding()) {
                return None;
            }
            let left = self.builder.outstanding();
            let (first, len) = self.builder.list_take_most(most)?;
            let mut bytes = 0;
            for _ in at_most(LIST, 0..len) {
                bytes += self.builder.list_next() as u64;
            }
            self.outstanding_bytes += bytes;
            (self.list_before, self.list_last, self.cursor) = (self.list_last, first, first);
            self.pause = 0;
            if self.probe != 0 {
                self.left = now;
            }
            if self.policy.measures() {
                self.meter.sent(now, left);
            }
        }
        self.say(now)
    }

    /// Sends the part that begins at the cursor.
    fn say(&mut self, now: u64) -> Option<Entry<LIST>> {
        let (_, announced, _) = self.builder.numbers();
        let (list, end) = self.list_of(self.cursor);
        let offset = Seq::<BITS>::sub(self.cursor, list);
        let len = Seq::<BITS>::sub(end, self.cursor).min(self.part);
        let mut sizes = [0; LIST];
        for (i, size) in at_most(LIST, (0..len).zip(&mut sizes)) {
            *size = self.builder.size_of(Seq::<BITS>::add(self.cursor, i))?;
        }
        self.cursor = Seq::<BITS>::add(self.cursor, len);
        if self.cursor == announced {
            self.arm(now);
        }
        let part = Part {
            round: self.round,
            list,
            total: Seq::<BITS>::sub(end, list) as u8,
            offset: offset as u8,
            len: len as u8,
            sizes,
        };
        Some(Entry { to: self.peer, body: Body::List(part) })
    }

    /// (first credit, first credit after) of the list that announced credit `number` is in.
    fn list_of(&self, number: u32) -> (u32, u32) {
        match Seq::<BITS>::after(self.list_last, number) {
            true => (self.list_before, self.list_last),
            false => (self.list_last, self.builder.numbers().1),
        }
    }

    /// Number of the first credit of a part that is not proven, nor known from the sender itself.
    fn unproven(&self) -> Option<u32> {
        let (_, announced, landed) = self.builder.numbers();
        if landed == announced {
            return None;
        }
        // Landed credits before `landed` prove the parts that begin before it.
        let (list, end) = self.list_of(landed);
        let inside = Seq::<BITS>::sub(landed, list);
        let part = NonZeroU32::new(self.part).unwrap_or(NonZeroU32::MIN);
        let ahead = (inside.saturating_add(part.get() - 1) / part).saturating_mul(part.get());
        let first = match ahead < Seq::<BITS>::sub(end, list) {
            true => Seq::<BITS>::add(list, ahead),
            false => end,
        };
        let first = if Seq::<BITS>::after(self.synced, first) { self.synced } else { first };
        (first != announced).then_some(first)
    }

    fn arm(&mut self, now: u64) {
        let (first, longest) = match (self.probe, self.trip.get()) {
            _ if self.repeat == u64::MAX => (u64::MAX, u64::MAX),
            (0, _) => (self.repeat, self.repeat.saturating_mul(1 << MAX_BACKOFF)),
            (_, None) => (self.repeat, self.repeat),
            (probe, Some(trip)) => ((2 * trip as u64).max(probe).min(self.repeat), self.repeat),
        };
        let wait = if self.pause == 0 { first } else { self.pause };
        self.again_at = Some(now.saturating_add(wait));
        self.pause = wait.saturating_mul(2).min(longest);
    }

    /// Too few credits are new for a list of their own.
    fn few(&self) -> bool {
        self.builder.fresh() <= self.few && self.builder.outstanding() > self.few
    }

    /// Credits that may be announced now: none, or as many of the fresh ones as the cap lets.
    fn grantable(&self, now: u64) -> u32 {
        if !self.builder.ready() {
            return 0;
        }
        let fresh = self.builder.fresh();
        let Some(cap) = &self.cap else {
            return fresh;
        };
        let mut bound = Bound::new(ROOM as u32);
        let mut free = cap.free(now, self.outstanding_bytes);
        let first = self.builder.numbers().1;
        let mut count = 0;
        while count < fresh {
            bound.step();
            let size = self.builder.size_of(Seq::<BITS>::add(first, count)).unwrap_or(0) as i64;
            // A credit that is larger than the whole burst goes when nothing else is out.
            let alone = count == 0 && self.outstanding_bytes == 0 && cap.is_full(now);
            if !rule::holds(Rule::CapWithholds, size <= free || alone) {
                break;
            }
            free -= size;
            count += 1;
        }
        count
    }

    /// When [`Announcer::poll`] may have something that it does not have now; `None`: not before
    /// something else happens.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        if self.recalling() {
            return Some(self.again_at.unwrap_or(now));
        }
        if self.cursor != self.builder.numbers().1 {
            return Some(now);
        }
        let repeat = self.repeat_at();
        let list = match self.builder.ready() {
            true if self.held || self.few() => None,
            true => {
                let policy = self.policy.deadline(self.builder.outstanding());
                let size = self.builder.size_of(self.builder.numbers().1).unwrap_or(0);
                let cap = self.cap.as_ref().map_or(Some(0), |cap| cap.when(now, size, self.outstanding_bytes));
                policy.zip(cap).map(|(policy, cap)| policy.max(cap).max(now))
            }
            false => None,
        };
        match (repeat, list) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// When unproven parts are repeated, if there are any.
    pub fn repeat_at(&self) -> Option<u64> {
        self.again_at.filter(|_| !self.held && self.unproven().is_some())
    }

    /// Lists go by this policy from the next one on.
    pub fn set_policy(&mut self, settings: Settings) {
        (self.policy, self.meter) = (Policy::new(settings), Meter::new());
        self.builder.set_trigger(self.policy.trigger());
    }

    /// The last list's trigger counts as passed as soon as its proof is there.
    pub fn skip_trigger(&mut self) {
        self.builder.skip_trigger();
    }

    /// No list goes, and none is repeated, until [`Announcer::void`]: as before a recall that others ask for.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// The sender keeps the credits below number `first`; all others are void, and so are receives that are posted and not
    /// announced (decision 19). Lists go on from there. False when `first` is no credit that is out, or the next one.
    pub fn void(&mut self, first: u32) -> bool {
        let voided: u64 = self.bytes_from(first);
        if !self.builder.void(first) {
            return false;
        }
        let (_, _, landed) = self.builder.numbers();
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(voided);
        (self.list_before, self.list_last, self.cursor, self.synced) = (landed, landed, first, first);
        (self.again_at, self.pause, self.held) = (None, 0, false);
        self.meter.voided();
        self.policy.voided();
        true
    }

    /// The sender knows no lists, so that what it has not used can be had back without asking it: as [`Announcer::void`] of all
    /// of that.
    pub fn reclaim(&mut self) {
        let (_, _, landed) = self.builder.numbers();
        let void = self.void(landed);
        debug_assert!(void);
    }

    /// Receives that are posted and not announced are no credits any more, as their memory is taken back (decision 17).
    /// What is announced stands.
    pub fn unpost(&mut self) {
        self.builder.unpost();
    }

    /// The connection is over: nothing is sent any more. Data that was on its way may still land.
    pub fn close(&mut self) {
        self.builder.disable();
        (self.recall, self.again_at, self.cursor) = (Recall::new(), None, self.builder.numbers().1);
    }

    /// The sender knows no lists: it may use at once what is committed.
    pub fn announce_all(&mut self) {
        self.builder.announce_all();
        self.cursor = self.builder.numbers().1;
    }

    /// Asks for the newest `n` announced credits back (decision 19): as many of them as the
    /// sender has not used. Receives that are posted and not announced go with the answer.
    /// False when a recall is under way or nothing is announced.
    pub fn recall(&mut self, n: u32) -> bool {
        let outstanding = self.builder.outstanding();
        if self.recalling() || outstanding == 0 || n == 0 {
            return false;
        }
        self.recall.begin(n.min(outstanding));
        (self.again_at, self.pause) = (None, 0);
        true
    }

    /// Asks for so many of the newest credits that they make at least `bytes`; see [`Announcer::recall`].
    pub fn recall_bytes(&mut self, bytes: u32) -> bool {
        let mut bound = Bound::new(ROOM as u32);
        let (mut n, mut sum) = (0, 0u32);
        let (_, announced, _) = self.builder.numbers();
        while n < self.builder.outstanding() && (sum < bytes || n == 0) {
            bound.step();
            n += 1;
            sum = sum.saturating_add(self.builder.size_of(Seq::<BITS>::sub(announced, n)).unwrap_or(0));
        }
        self.recall(n)
    }

    /// An entry has come from the sender.
    pub fn hear(&mut self, entry: &Entry<LIST>) -> Heard {
        if !rule::holds(Rule::EpochMatches, entry.to == self.own) {
            return Heard::WrongEpoch;
        }
        match entry.body {
            Body::Recalled { round, first } => self.recalled(round, first),
            Body::Sync { round, next } => self.sync(round, next),
            _ => Heard::Bad,
        }
    }

    fn recalled(&mut self, round: u8, first: u32) -> Heard {
        if round != self.round {
            return Heard::Repeat;
        }
        let (_, announced, _) = self.builder.numbers();
        match self.recall.answered(first, announced, self.builder.outstanding()) {
            Answered::Repeat => return Heard::Repeat,
            Answered::Back(_) if self.void(first) => (),
            Answered::Back(_) | Answered::Bad => return Heard::Bad,
        }
        self.round = self.round.wrapping_add(1) & Self::ROUND;
        Heard::Voided(first)
    }

    /// Bytes of announced credits from number `first` on.
    fn bytes_from(&self, first: u32) -> u64 {
        let (_, announced, _) = self.builder.numbers();
        let count = Seq::<BITS>::sub(announced, first).min(self.builder.outstanding());
        let sizes = (1..=count).filter_map(|i| self.builder.size_of(Seq::<BITS>::sub(announced, i)));
        sizes.fold(0, |sum, size| sum.saturating_add(u64::from(size)))
    }

    fn sync(&mut self, round: u8, next: u32) -> Heard {
        if self.recalling() {
            // The recall, or the sender's answer, comes again.
            self.again_at = None;
            return Heard::Synced;
        }
        if round != self.round {
            return Heard::Repeat;
        }
        let (_, announced, landed) = self.builder.numbers();
        if Seq::<BITS>::sub(next, landed) > self.builder.outstanding() {
            // Either data has landed since it was sent, or it is not true: landed data is proof enough.
            return match Seq::<BITS>::after(next, announced) {
                true => Heard::Bad,
                false => Heard::Repeat,
            };
        }
        if Seq::<BITS>::after(next, self.synced) {
            self.synced = next;
        }
        if self.again_at.is_some() {
            (self.again_at, self.pause) = (Some(0), 0);
        }
        Heard::Synced
    }

    /// The builder.
    pub const fn builder(&self) -> &Builder<ROOM, LIST, BITS> {
        &self.builder
    }

    /// The policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Bytes of announced credits that no data has landed for: what the sender may send at once.
    pub const fn outstanding_bytes(&self) -> u64 {
        self.outstanding_bytes
    }

    /// Shortest time from a list to its first data, if that is measured.
    pub const fn trip(&self) -> Option<u32> {
        self.trip.get()
    }

    /// A recall is under way.
    pub const fn recalling(&self) -> bool {
        self.recall.asked().is_some()
    }

    /// Our end, as entries name it.
    pub const fn own(&self) -> Name {
        self.own
    }
}
