// SPDX-License-Identifier: GPL-2.0
//! Commands that firmware carries out and answers.

use crate::{
    abi::{
        counters::*,
        message::{code, CmdDone, Pressure, QpDestroy, COOKIE},
        ring::*,
        status::*,
    },
    card::{parts::Call, Card, Entry, State},
    kernel::errno::unsupported,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{atomic::Relaxed, Arc, Completion},
    time::{delay::fsleep, Delta},
};

/// Names `CMD_PRESSURE` in its answer; calls have lower numbers, from 1 on.
const PRESS_COOKIE: u32 = u32::MAX;

/// Tries for a second as long as too many commands are in flight or there is no memory: both pass.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..100 {
        match attempt() {
            Err(e) if e == EBUSY || e == ENOMEM => fsleep(Delta::from_millis(10)),
            result => return result,
        }
    }
    Err(EBUSY)
}

impl Card {
    /// Has firmware carry out a command and waits for its answer. The wait is ended by
    /// the answer, by the watchdog (which resets a card that does not answer), by a
    /// reset, or by the removal of the device.
    ///
    /// # Errors
    ///
    /// `EIO` no working firmware, `ENODEV` card gone, or what the status stands for.
    pub(crate) fn call(&self, entry: Entry) -> Result<Entry> {
        self.call_for(self.generation(), entry)
    }

    /// As [`Self::call`], but only as long as the firmware of `generation` runs, else `EIO`: its successor may
    /// have another process's under the same number.
    pub(crate) fn call_for(&self, generation: u32, mut entry: Entry) -> Result<Entry> {
        let destroys = match code(&entry) {
            CMD_QP_DESTROY => QpDestroy::decode(&entry).qpn,
            _ => 0,
        };
        let cookie = {
            let mut calls = self.calls.lock();
            calls.next_cookie = calls.next_cookie % (PRESS_COOKIE - 1) + 1;
            calls.next_cookie
        };
        let call = Arc::pin_init(
            pin_init!(Call {
                done <- Completion::new(),
                answer <- new_spinlock!(None, "berth_answer"),
                cookie,
                destroys,
            }),
            GFP_KERNEL,
        )?;
        entry[COOKIE] = cookie;
        {
            let mut calls = self.calls.lock();
            if calls
                .list
                .push_within_capacity((call.clone(), None))
                .is_err()
            {
                return Err(EBUSY);
            }
        }
        // After the call is in the list: taking the card out of service ends all calls in the list.
        let posted = match self.state() {
            State::Up => self.post_wait(generation, entry),
            State::Gone | State::Unbound => Err(ENODEV),
            _ => Err(EIO),
        };
        if let Err(e) = posted {
            self.calls.lock().list.retain(|(c, _)| c.cookie != cookie);
            return Err(e);
        }
        call.done.wait_for_completion();
        let answer = call.answer.lock().take();
        let answer = answer.unwrap_or(Err(EIO))?;
        match CmdDone::decode(&answer).status {
            CMD_OK => Ok(answer),
            CMD_INVALID => Err(EINVAL),
            CMD_BUSY => Err(EBUSY),
            CMD_NOT_FOUND => Err(ENOENT),
            CMD_FULL => Err(ENOSPC),
            CMD_UNKNOWN => Err(unsupported()),
            _ => Err(EIO),
        }
    }

    /// As [`Self::call`], for what firmware must be told: tried [`patiently`].
    pub(crate) fn call_patiently(&self, entry: Entry) -> Result<Entry> {
        self.call_patiently_for(self.generation(), entry)
    }

    /// The same, but only as long as the firmware of `generation` runs.
    pub(crate) fn call_patiently_for(&self, generation: u32, entry: Entry) -> Result<Entry> {
        patiently(|| self.call_for(generation, entry))
    }

    /// Has firmware recall grants that are unused: `bytes` are missing. It looks at all QPs, so one
    /// such command at a time is enough; false when one is under way.
    pub(crate) fn press(&self, bytes: u32) -> bool {
        if self.pressing.xchg(1, Relaxed) != 0 {
            return false;
        }
        // Of all address spaces, because memory may be short because of others.
        let mut entry = Pressure { asid: 0, bytes }.encode();
        entry[COOKIE] = PRESS_COOKIE;
        let posted = self.post(&[entry]).is_ok();
        if !posted {
            self.pressing.store(0, Relaxed);
        }
        posted
    }

    /// Firmware has been told that memory is short, and has not answered yet.
    pub(crate) fn is_pressing(&self) -> bool {
        self.pressing.load(Relaxed) != 0
    }

    /// Takes firmware's answer to a command.
    pub(crate) fn answered(self: &Arc<Self>, entry: &Entry) {
        let done = CmdDone::decode(entry);
        if done.cookie == PRESS_COOKIE {
            self.pressing.store(0, Relaxed);
            let [qpn, ..] = done.results;
            if done.status == CMD_OK && qpn != 0 {
                self.tell_owner(|owner| owner.refuse_receive(qpn));
            }
            return;
        }
        let call = {
            let mut calls = self.calls.lock();
            let found = calls.list.iter().position(|(c, _)| c.cookie == done.cookie);
            found.and_then(|i| calls.list.remove(i).ok())
        };
        // Commands with cookie 0 are not waited for.
        match call {
            Some((call, _)) => {
                *call.answer.lock() = Some(Ok(*entry));
                call.done.complete_all();
            }
            None if done.cookie != 0 => self.counters.inc(D_BAD_EVENTS),
            None => {}
        }
    }

    /// Ends all commands in flight with an error.
    pub(super) fn end_calls(&self, error: Error) {
        self.pressing.store(0, Relaxed);
        loop {
            let Some((call, _)) = self.calls.lock().list.pop() else {
                break;
            };
            *call.answer.lock() = Some(Err(error));
            call.done.complete_all();
        }
    }
}
