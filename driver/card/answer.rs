// SPDX-License-Identifier: GPL-2.0
//! Answers to firmware's requests, which may wait for room in the command ring.

use crate::card::{
    deadline::{Deadline, COMMAND_CYCLES},
    parts::{Answer, Answers},
    Card, Entry, State,
};
use kernel::{prelude::*, sync::Arc, time::msecs_to_jiffies, workqueue::WorkItem};

/// Time in milliseconds after which the command ring is tried again for them.
const ANSWER_MS: u32 = 2;

impl WorkItem<3> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        this.flush_answers();
    }
}

impl Card {
    /// Queues the answer to what firmware of `generation` has asked for. Does not sleep:
    /// when the command ring has no room the answer goes as soon as it has.
    pub(crate) fn answer(self: &Arc<Self>, generation: u32, entry: Entry) {
        match self.put_for(Some(generation), &[entry]) {
            Ok(()) => self.ring(),
            Err(e) if e == EBUSY => {
                let answer = Answer { generation, entry };
                if self
                    .answers
                    .lock()
                    .list
                    .push_within_capacity(answer)
                    .is_err()
                {
                    // More than a sound card can have asked for.
                    self.schedule_reset();
                    return;
                }
                self.answer_later();
            }
            // It is not awaited any more.
            Err(_) => {}
        }
    }

    fn answer_later(self: &Arc<Self>) {
        if self.state() == State::Unbound {
            return;
        }
        let _ = self
            .queue
            .enqueue_delayed::<_, 3>(self.clone(), msecs_to_jiffies(ANSWER_MS));
    }

    /// Queues answers that have waited for room.
    pub(super) fn flush_answers(self: &Arc<Self>) {
        let left = {
            let mut answers = self.answers.lock();
            let Answers { list, deadline } = &mut *answers;
            list.retain(
                |a| matches!(self.put_for(Some(a.generation), &[a.entry]), Err(e) if e == EBUSY),
            );
            if list.is_empty() {
                *deadline = None;
            }
            !list.is_empty()
        };
        self.ring();
        if !left {
            return;
        }
        let late = {
            let mut answers = self.answers.lock();
            answers
                .deadline
                .get_or_insert_with(|| Deadline::new(&self.regs, COMMAND_CYCLES))
                .passed(&self.regs)
        };
        if late {
            // The card takes no commands any more, and firmware would wait for these answers for
            // ever.
            self.answers.lock().deadline = None;
            self.schedule_reset();
        }
        self.answer_later();
    }
}
