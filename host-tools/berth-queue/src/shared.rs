// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive queues that queue pairs share (IBTA 10.2.9.4): credits on loan (decision 42).
//!
//! The card knows receives of single queue pairs alone, so each receive that is posted here is lent to one of them: it goes to
//! that queue pair's own queue. Between Berths it is a credit of the queue pair's peer from then on; another peer finds a
//! receive, or is told that there is none. A loan ends when the receive completes, or when its queue pair ends.
//!
//! Who has how many: half of all receives are shared evenly, at least one each as long as there are enough. What is beyond that
//! goes to those that use theirs, one more with each that completes, but a quarter of all stays for queue pairs that are still
//! to come. When nothing is left to lend and a queue pair has none, another one's loans are recalled
//! ([`SharedQueue::recall`]). So none waits for ever, however few receives there are.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use berth_abi::wqe::Wqe;

use crate::completions::QpProgress;
use crate::doorbell::Doorbells;
use crate::request::Refused;
use crate::ring::WorkQueue;

/// Nanoseconds between recalls while nothing comes, at first and at most: with fewer receives than queue pairs they go
/// round, as nobody knows where the next message comes.
const PAUSE: [u64; 2] = [1_000_000, 256_000_000];

/// A queue pair that takes its receives from a shared queue.
#[derive(Debug)]
struct Member {
    queue: WorkQueue,
    progress: Arc<QpProgress>,
    /// What it has, as completions come.
    lent: VecDeque<Wqe>,
    /// How many it may have beyond its share.
    most: u32,
    /// It may have receives.
    open: bool,
    /// It stands in a row.
    in_row: bool,
}

/// How a loan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanEnd {
    /// The receive was used, or failed: it is the program's.
    Used,
    /// It came back, as it was recalled.
    Recalled,
    /// It came back, as its queue pair ended.
    Flushed,
}

/// A receive queue that queue pairs share. Its user has a lock around it.
#[derive(Debug)]
pub struct SharedQueue {
    capacity: u32,
    /// Posted, and lent to nobody.
    waiting: VecDeque<Wqe>,
    /// Posted and not complete.
    outstanding: u32,
    members: BTreeMap<u32, Member>,
    /// Queue pairs that had less than their share, in turn; and others that may have more.
    rows: [VecDeque<u32>; 2],
    /// The even share when those below it were last put in the first row.
    share: u32,
    /// Whom the card is to be told of.
    fresh: Vec<u32>,
    /// The user is told once when fewer are left; 0: never.
    limit: u32,
    /// Whose loans are being recalled: it gets none until it has none.
    recalled: Option<u32>,
    /// When the next recall may be, and the pause before it, in nanoseconds.
    recall_at: u64,
    pause: u64,
}

impl SharedQueue {
    /// A queue for `capacity` receives.
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            waiting: VecDeque::new(),
            outstanding: 0,
            members: BTreeMap::new(),
            rows: [VecDeque::new(), VecDeque::new()],
            share: 0,
            fresh: Vec::new(),
            limit: 0,
            recalled: None,
            recall_at: 0,
            pause: 0,
        }
    }

    /// There may be `capacity` receives from now on.
    ///
    /// # Errors
    /// [`Refused::QueueFull`]: there are more.
    pub fn resize(&mut self, capacity: u32) -> Result<(), Refused> {
        if capacity < self.outstanding {
            return Err(Refused::QueueFull { free: 0, depth: self.capacity });
        }
        self.capacity = capacity;
        Ok(())
    }

    /// Receives that there may be.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Receives that are posted and not complete.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Tells once when fewer than `limit` receives are left; 0: never.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Whether fewer are left than the limit that was set. It is set no more then.
    pub fn takes_limit(&mut self) -> bool {
        let reached = self.outstanding < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// A queue pair takes its receives from here, once it is opened; `queue` is its own.
    pub fn join(&mut self, qpn: u32, queue: WorkQueue, progress: Arc<QpProgress>) {
        // An earlier one with its number is gone.
        self.remove(qpn);
        let member = Member { queue, progress, lent: VecDeque::new(), most: 0, open: false, in_row: false };
        self.members.insert(qpn, member);
    }

    /// A queue pair is gone, and what it has not used is lent again. Its completions have been dropped before.
    pub fn leave(&mut self, qpn: u32, progress: &Arc<QpProgress>) {
        if self.members.get(&qpn).is_some_and(|member| Arc::ptr_eq(&member.progress, progress)) {
            self.remove(qpn);
        }
    }

    fn remove(&mut self, qpn: u32) {
        if let Some(member) = self.members.remove(&qpn) {
            self.rows.iter_mut().for_each(|row| row.retain(|other| *other != qpn));
            self.waiting.extend(member.lent);
            self.not_recalled(qpn);
        }
    }

    /// A queue pair may have receives.
    pub fn open(&mut self, qpn: u32) {
        if let Some(member) = self.members.get_mut(&qpn) {
            member.open = true;
        }
        self.stand_in_row(qpn);
    }

    /// A queue pair gets no more. What it has comes back flushed.
    pub fn close(&mut self, qpn: u32) {
        if let Some(member) = self.members.get_mut(&qpn) {
            member.open = false;
            self.not_recalled(qpn);
        }
    }

    /// The card has forgotten what a queue pair had, whose completions have been dropped; it begins anew when it is opened.
    pub fn reset(&mut self, qpn: u32) {
        if let Some(member) = self.members.get_mut(&qpn) {
            self.waiting.extend(member.lent.drain(..));
            member.queue.reset(&member.progress.recv);
            (member.open, member.most) = (false, 0);
            self.not_recalled(qpn);
        }
    }

    /// Posts a receive. It is lent by [`SharedQueue::lend`].
    ///
    /// # Errors
    /// [`Refused::QueueFull`].
    pub fn post(&mut self, element: Wqe) -> Result<(), Refused> {
        if self.outstanding == self.capacity {
            return Err(Refused::QueueFull { free: 0, depth: self.capacity });
        }
        self.waiting.push_back(element);
        self.outstanding += 1;
        Ok(())
    }

    /// The oldest loan of a queue pair has ended, by a completion that has been taken. One that came back is nobody's to see:
    /// its memory is as it was, and is lent to another queue pair.
    pub fn completed(&mut self, qpn: u32, end: LoanEnd) {
        let share = self.share;
        let Some(member) = self.members.get_mut(&qpn) else { return };
        let Some(element) = member.lent.pop_front() else { return };
        let has_none = member.lent.is_empty();
        if end == LoanEnd::Used {
            self.outstanding -= 1;
            (self.recall_at, self.pause) = (0, 0);
            member.most = (member.most.max(share) + 1).min(member.queue.depth());
        } else {
            member.open &= end == LoanEnd::Recalled;
            member.most = 0;
            self.waiting.push_back(element);
        }
        // The recall may still be under way, and more comes back then.
        if has_none || !member.open {
            self.not_recalled(qpn);
        }
        if has_none || end == LoanEnd::Used {
            self.stand_in_row(qpn);
        }
    }

    /// Whose loans are to be recalled, if somebody has none and none are left: the card has them complete as flushed then, as
    /// far as nothing comes for them. `now` gives a time in nanoseconds. Recalls behind the first wait for a completion, or for a
    /// pause, and longer each time.
    pub fn recall(&mut self, now: impl FnOnce() -> u64) -> Option<u32> {
        if !self.waiting.is_empty() || self.recalled.is_some() {
            return None;
        }
        let open = || self.members.iter().filter(|(_, member)| member.open);
        let (qpn, most) = open().max_by_key(|(_, member)| member.lent.len())?;
        if most.lent.is_empty() || open().all(|(_, member)| !member.lent.is_empty()) {
            return None;
        }
        let now = now();
        if now < self.recall_at {
            return None;
        }
        self.pause = (2 * self.pause).clamp(PAUSE[0], PAUSE[1]);
        self.recall_at = now.saturating_add(self.pause);
        self.recalled = Some(*qpn);
        self.recalled
    }

    /// The card has been asked in vain, or the loans come back by themselves.
    pub fn not_recalled(&mut self, qpn: u32) {
        self.recalled = self.recalled.filter(|other| *other != qpn);
    }

    fn stand_in_row(&mut self, qpn: u32) {
        if let Some(member) = self.members.get_mut(&qpn)
            && member.open
            && !member.in_row
        {
            member.in_row = true;
            self.rows[usize::from(member.lent.len() as u32 >= self.share)].push_back(qpn);
        }
    }

    /// Lends what waits to those that may have more, and tells the card.
    pub fn lend(&mut self, doorbells: &Doorbells) {
        let open = self.members.values().filter(|member| member.open).count().max(1) as u32;
        let share = (self.outstanding / (2 * open)).max(1);
        let grows = share > self.share;
        self.share = share;
        if grows {
            self.rows[1].clear();
            let Self { members, rows: [first, _], .. } = self;
            members.values_mut().for_each(|member| member.in_row = false);
            first.iter().for_each(|qpn| _ = members.get_mut(qpn).map(|member| member.in_row = true));
            let qpns: Vec<u32> = members.iter().filter(|(_, member)| member.open).map(|(qpn, _)| *qpn).collect();
            qpns.into_iter().for_each(|qpn| self.stand_in_row(qpn));
        }
        let kept = self.outstanding as usize / 4;
        while let Some(element) = self.waiting.front().copied()
            && let Some(qpn) = self.rows.iter_mut().find_map(VecDeque::pop_front)
        {
            let spare = self.waiting.len() > kept;
            let Some(member) = self.members.get_mut(&qpn) else { continue };
            member.in_row = false;
            let lent = member.lent.len() as u32;
            let may = member.open && self.recalled != Some(qpn) && (lent < share || (spare && lent < member.most));
            // Its queue has room for completed ones only when their completions have been taken.
            if !may || member.queue.check(&member.progress.recv, 1, element.bytes().into()).is_err() {
                continue;
            }
            self.waiting.pop_front();
            member.queue.write(&member.progress.recv, &element);
            member.lent.push_back(element);
            if self.fresh.last() != Some(&qpn) {
                self.fresh.push(qpn);
            }
            self.stand_in_row(qpn);
        }
        for qpn in self.fresh.drain(..) {
            if let Some(member) = self.members.get_mut(&qpn) {
                member.queue.ring_recv(doorbells, qpn);
            }
        }
    }

    /// Tells the card of all that a queue pair has once more ([`WorkQueue::ring_recv_again`]).
    pub fn ring_again(&self, qpn: u32, doorbells: &Doorbells) {
        if let Some(member) = self.members.get(&qpn) {
            member.queue.ring_recv_again(doorbells, qpn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::tests::Page;
    use crate::ring::Progress;
    use core::ptr::NonNull;
    use std::vec;

    const DEPTH: u32 = 16;

    /// A shared queue with queue pairs 1, 2, …, whose part of the card is the test.
    struct Bench {
        queue: SharedQueue,
        page: Page,
        members: Vec<(Vec<Wqe>, Arc<QpProgress>)>,
        /// Completed, by queue pair; and posted.
        completed: Vec<u64>,
        posted: u64,
    }

    impl Bench {
        fn new(capacity: u32, qps: u32) -> Self {
            let queue = SharedQueue::new(capacity);
            let mut bench = Self { queue, page: Page::new(), members: vec![], completed: vec![], posted: 0 };
            for _ in 0..qps {
                bench.join();
            }
            bench
        }

        fn join(&mut self) {
            let mut memory = vec![Wqe::default(); DEPTH as usize];
            // SAFETY: the vector is never resized and lives as long as the bench.
            let queue = unsafe { WorkQueue::new(NonNull::new(memory.as_mut_ptr()).unwrap(), DEPTH) };
            let progress = QpProgress { message: true, send: Progress::new(1), recv: Progress::new(DEPTH) };
            let progress = Arc::new(progress);
            self.members.push((memory, Arc::clone(&progress)));
            let qpn = self.members.len() as u32;
            self.queue.join(qpn, queue, progress);
            self.queue.open(qpn);
            self.queue.lend(&self.page.bells);
        }

        fn post(&mut self, count: u32) {
            for _ in 0..count {
                self.queue.post(Wqe { wr_id: self.posted, ..Wqe::default() }).unwrap();
                self.posted += 1;
            }
            self.queue.lend(&self.page.bells);
        }

        fn has(&self, qpn: u32) -> u32 {
            self.members[qpn as usize - 1].1.recv.outstanding()
        }

        fn all(&self) -> Vec<u32> {
            (1..=self.members.len() as u32).map(|qpn| self.has(qpn)).collect()
        }

        /// Loans are recalled, if they are to be, and come back. Whose.
        fn recall(&mut self, now: u64) -> Option<u32> {
            let qpn = self.queue.recall(|| now)?;
            assert_eq!(self.queue.recall(|| u64::MAX), None, "one after the other");
            (0..self.has(qpn)).for_each(|_| assert!(self.complete(qpn, LoanEnd::Recalled)));
            self.check();
            Some(qpn)
        }

        /// A receive of a queue pair completes.
        fn complete(&mut self, qpn: u32, end: LoanEnd) -> bool {
            let front = self.queue.members[&qpn].lent.front().map(|element| element.wr_id);
            let Some(wr_id) = front.filter(|_| self.members[qpn as usize - 1].1.recv.complete()) else { return false };
            self.queue.completed(qpn, end);
            if end == LoanEnd::Used {
                self.completed.push(wr_id);
            }
            self.queue.lend(&self.page.bells);
            true
        }

        /// Each receive is at one place, and nobody has none while there are some.
        fn check(&self) {
            let lent = self.queue.members.values().flat_map(|member| member.lent.iter());
            let mut all: Vec<u64> = lent.chain(&self.queue.waiting).map(|element| element.wr_id).collect();
            assert_eq!(all.len(), self.queue.outstanding() as usize);
            all.extend(&self.completed);
            all.sort_unstable();
            assert_eq!(all, (0..self.posted).collect::<Vec<_>>());
            let open = self.queue.members.values().filter(|member| member.open);
            assert!(self.queue.waiting.is_empty() || open.clone().all(|member| !member.lent.is_empty()));
            for (qpn, member) in &self.queue.members {
                assert_eq!(member.lent.len() as u32, self.has(*qpn));
            }
        }
    }

    #[test]
    fn half_is_shared_evenly_whoever_comes_first() {
        let mut bench = Bench::new(100, 4);
        assert_eq!(bench.all(), [0; 4]);
        for _ in 0..80 {
            bench.post(1);
        }
        assert_eq!(bench.all(), [10; 4]);
        bench.join();
        assert_eq!(bench.has(5), 8);
        bench.check();
        let mut bench = Bench::new(100, 0);
        bench.post(80);
        bench.join();
        assert_eq!(bench.all(), [DEPTH]);
    }

    #[test]
    fn who_uses_its_loan_gets_more_and_a_quarter_stays_for_others() {
        let mut bench = Bench::new(40, 4);
        bench.post(40);
        assert_eq!(bench.all(), [5; 4]);
        for _ in 0..30 {
            assert!(bench.complete(1, LoanEnd::Used));
            bench.post(1);
        }
        assert_eq!(bench.all(), [DEPTH - 1, 5, 5, 5], "ten of forty stay");
        assert_eq!(bench.queue.waiting.len(), 10);
        bench.join();
        assert_eq!(bench.has(5), 4);
        bench.check();
    }

    #[test]
    fn fewer_receives_than_queue_pairs_go_round() {
        let mut bench = Bench::new(2, 3);
        bench.post(2);
        assert_eq!(bench.all(), [1, 1, 0]);
        let mut served = [0; 3];
        for _ in 0..30 {
            for qpn in 1..=3 {
                if bench.complete(qpn, LoanEnd::Used) {
                    served[qpn as usize - 1] += 1;
                    bench.post(1);
                    bench.check();
                }
            }
        }
        assert!(served.iter().all(|served| *served >= 15), "{served:?}");
    }

    #[test]
    fn what_is_flushed_or_left_is_lent_to_others() {
        let mut bench = Bench::new(8, 2);
        bench.post(8);
        assert_eq!(bench.all(), [2, 2]);
        while bench.complete(1, LoanEnd::Flushed) {}
        bench.check();
        assert_eq!(bench.all(), [0, 4], "its share is half of all now");
        let progress = Arc::clone(&bench.members[1].1);
        bench.queue.leave(2, &Arc::clone(&bench.members[0].1));
        assert!(bench.queue.members.contains_key(&2), "another one's end");
        bench.queue.leave(2, &progress);
        assert_eq!(bench.queue.waiting.len(), 8);
        bench.queue.open(1);
        bench.queue.lend(&bench.page.bells);
        assert_eq!(bench.has(1), 4);
        bench.queue.reset(1);
        assert_eq!((bench.has(1), bench.queue.waiting.len()), (0, 8));
    }

    #[test]
    fn who_has_several_gives_them_to_who_has_none() {
        let mut bench = Bench::new(8, 2);
        bench.post(8);
        assert_eq!((bench.all(), bench.queue.waiting.len(), bench.queue.recall(|| 0)), (vec![2, 2], 4, None));
        // Messages come for the first only, and nothing is posted any more.
        while bench.complete(1, LoanEnd::Used) {}
        assert_eq!((bench.all(), bench.queue.waiting.len()), (vec![0, 2], 0));
        assert_eq!((bench.recall(0), bench.all()), (Some(2), vec![1, 1]));
        assert_eq!(bench.queue.recall(|| 0), None, "nobody has none");
    }

    #[test]
    fn last_receives_go_round_after_pauses_until_something_comes() {
        let mut bench = Bench::new(1, 3);
        bench.post(1);
        assert_eq!(bench.all(), [1, 0, 0]);
        let [first, most] = PAUSE;
        assert_eq!(bench.recall(0), Some(1));
        assert_eq!((bench.all(), bench.recall(first - 1)), (vec![0, 1, 0], None));
        assert_eq!((bench.recall(first), bench.all()), (Some(2), vec![0, 0, 1]));
        assert_eq!((bench.recall(2 * first), bench.recall(3 * first)), (None, Some(3)));
        assert_eq!(bench.all(), [1, 0, 0]);
        for n in 1..20 {
            assert!(bench.recall(3 * first + n * most).is_some());
        }
        let has = bench.all().iter().position(|n| *n == 1).unwrap() as u32 + 1;
        assert_eq!(bench.recall(3 * first + 20 * most - 1), None);
        assert!(bench.complete(has, LoanEnd::Used));
        assert_eq!(bench.recall(u64::MAX - most), None, "there is nothing to recall");
        bench.post(1);
        assert_eq!(bench.all().iter().sum::<u32>(), 1);
        let now = 3 * first + 20 * most;
        assert!(bench.recall(now).is_some() && bench.recall(now + first).is_some(), "it begins anew");
    }

    #[test]
    fn a_recall_ends_with_its_queue_pair_or_when_the_card_cannot() {
        let give_up: [fn(&mut Bench); 4] = [
            |bench| bench.queue.not_recalled(1),
            |bench| bench.queue.close(1),
            |bench| bench.queue.reset(1),
            |bench| bench.queue.leave(1, &Arc::clone(&bench.members[0].1)),
        ];
        for end in give_up {
            let mut bench = Bench::new(1, 2);
            bench.post(1);
            assert_eq!(bench.queue.recall(|| 0), Some(1));
            bench.queue.not_recalled(2);
            assert_eq!(bench.queue.recalled, Some(1));
            end(&mut bench);
            assert_eq!(bench.queue.recalled, None);
        }
    }

    #[test]
    fn the_queue_takes_so_many_and_tells_of_its_limit_once() {
        let mut bench = Bench::new(3, 1);
        bench.post(3);
        let refused = bench.queue.post(Wqe::default());
        assert_eq!(refused, Err(Refused::QueueFull { free: 0, depth: 3 }));
        bench.queue.set_limit(3);
        assert!(!bench.queue.takes_limit());
        bench.complete(1, LoanEnd::Used);
        assert!(bench.queue.takes_limit() && !bench.queue.takes_limit());
        bench.post(1);
    }

    #[test]
    fn nothing_is_lost_or_lent_twice_whatever_happens() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..50 {
            let capacity = 1 + random(60) as u32;
            let mut bench = Bench::new(capacity, 1 + random(8) as u32);
            for _ in 0..300 {
                let qpn = 1 + random(bench.members.len() as u64) as u32;
                match random(12) {
                    0..4 => {
                        let room = capacity - bench.queue.outstanding();
                        bench.post(room.min(random(6) as u32));
                    }
                    4..9 => {
                        bench.complete(qpn, LoanEnd::Used);
                    }
                    9 if random(3) == 0 => _ = bench.recall(u64::MAX / 2),
                    9 => {
                        bench.queue.close(qpn);
                        while bench.complete(qpn, LoanEnd::Flushed) {}
                    }
                    10 => {
                        bench.queue.open(qpn);
                        bench.queue.lend(&bench.page.bells);
                    }
                    _ => {
                        bench.queue.reset(qpn);
                        bench.queue.lend(&bench.page.bells);
                    }
                }
                bench.check();
            }
        }
    }
}
