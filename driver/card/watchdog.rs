// SPDX-License-Identifier: GPL-2.0
//! Watching firmware and its commands.

use crate::{
    abi::{counters::*, host::*, status::*},
    card::{
        deadline::{Deadline, COMMAND_CYCLES, STANDSTILL_MS},
        parts::Watched,
        regs::{ADDRESS_CONFLICTS, ALL_ONES},
        Card, State,
    },
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{msecs_to_jiffies, Instant},
    workqueue::WorkItem,
};

/// Card cycles within which firmware answers the heartbeat (5 ms at 250 MHz).
const HEARTBEAT_CYCLES: u64 = 1_250_000;
/// Losses of firmware within `CardConfig::loss_window_ms` after which the driver stops
/// restarting it.
const MAX_LOSSES: u32 = 8;

impl WorkItem<1> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        this.watchdog();
        this.tell_owner(|owner| owner.look_around());
        if this.state() != State::Unbound {
            let queue = this.queue.clone();
            let _ = queue.enqueue_delayed::<_, 1>(this, msecs_to_jiffies(500));
        }
    }
}

impl Card {
    /// Starts the watchdog.
    pub(crate) fn start_watching(self: &Arc<Self>) {
        let _ = self
            .queue
            .enqueue_delayed::<_, 1>(self.clone(), msecs_to_jiffies(500));
    }

    /// Watches firmware and commands.
    pub(super) fn watchdog(self: &Arc<Self>) {
        if self.state() == State::Gone && self.vanished.load(Relaxed) != 0 && self.regs.present() {
            // Something else reset the card, and it did not answer meanwhile.
            self.vanished.store(0, Relaxed);
            let _ = self.reset("the card answers again");
            return;
        }
        if self.state() != State::Up {
            return;
        }
        let status = self.regs.read(HOST_STATUS);
        if status == ALL_ONES && !self.regs.present() {
            let _guard = self.reset_lock.lock();
            if self.state() == State::Up {
                self.gone();
            }
            return;
        }
        if status == FW_PANIC {
            self.firmware_lost("panicked");
            return;
        }
        if status != FW_RUNNING {
            self.firmware_lost("stopped");
            return;
        }
        let mut heartbeat = self.heartbeat.lock();
        if self.regs.read(HOST_HB_ANSWER) == heartbeat.challenge {
            heartbeat.challenge = heartbeat.challenge.wrapping_add(1);
            self.regs.write(HOST_HB_CHALLENGE, heartbeat.challenge);
            heartbeat.asked = Some(Deadline::new(&self.regs, HEARTBEAT_CYCLES));
        } else if let Some(deadline) = &mut heartbeat.asked {
            if deadline.passed(&self.regs) {
                heartbeat.asked = None;
                drop(heartbeat);
                self.counters.inc(D_HEARTBEAT_LOST);
                self.firmware_lost("hangs");
                return;
            }
        }
        drop(heartbeat);
        self.watch_address();
        self.watch_calls();
    }

    /// Says so when another host has this card's address.
    fn watch_address(&self) {
        let now = self.regs.read64(ADDRESS_CONFLICTS);
        if now == u64::MAX || now <= self.conflicts.xchg(now, Relaxed) {
            return;
        }
        let [a, b, c, d] = self.net.lock().ipv4.to_be_bytes();
        if self.may_log() {
            dev_warn!(
                self.dev,
                "berth: another host has this card's IPv4 address {}.{}.{}.{} ({} ARP messages, `berth log` says which MAC address): peers may reach either\n",
                a,
                b,
                c,
                d,
                now
            );
        }
    }

    /// Ends a firmware that holds back an answer to a command.
    fn watch_calls(self: &Arc<Self>) {
        let Some(now) = self.regs.cycles() else {
            return;
        };
        let mut stuck_qp = 0;
        let stuck = {
            let mut calls = self.calls.lock();
            let mut stuck = false;
            for (call, watched) in calls.list.iter_mut() {
                match watched {
                    None => {
                        *watched = Some(Watched {
                            cycles: now,
                            moved: Instant::now(),
                            last: now,
                        });
                    }
                    Some(w) => {
                        if now != w.last {
                            w.last = now;
                            w.moved = Instant::now();
                        }
                        if now.saturating_sub(w.cycles) > COMMAND_CYCLES / 2 {
                            stuck_qp = call.destroys;
                        }
                        stuck |= now.saturating_sub(w.cycles) > COMMAND_CYCLES
                            || w.moved.elapsed().as_millis() > STANDSTILL_MS;
                    }
                }
            }
            stuck
        };
        if stuck {
            self.firmware_lost("does not answer a command");
        } else if stuck_qp != 0 {
            self.tell_owner(|owner| owner.hurry_end_of_qp(stuck_qp));
        }
    }

    /// Forgets how often firmware was lost, because a user asks for another start.
    pub(crate) fn forgive(&self) {
        self.losses.lock().0 = 0;
    }

    /// Reports a firmware that is lost and resets the card.
    fn firmware_lost(self: &Arc<Self>, how: &str) {
        let code = self.regs.read(HOST_FW_CODE);
        let mut text = [0; STATS_PANIC_BYTES as usize];
        let len = if self.regs.read(HOST_STATUS) == FW_PANIC {
            self.regs.panic_text(&mut text)
        } else {
            0
        };
        let text = core::str::from_utf8(&text[..len]).unwrap_or("");
        dev_err!(
            self.dev,
            "berth: firmware {} (code {:#x}): {}\n",
            how,
            code,
            text
        );
        // Firmware that fails again and again is not started any more.
        let again = {
            let mut losses = self.losses.lock();
            if losses.1.elapsed().as_millis() > self.loss_window_ms {
                *losses = (0, Instant::now());
            }
            losses.0 += 1;
            losses.0 <= MAX_LOSSES
        };
        if again {
            self.schedule_reset();
            return;
        }
        dev_err!(
            self.dev,
            "berth: firmware keeps failing, given up until a reset is asked for\n"
        );
        let _guard = self.reset_lock.lock();
        if self.state() == State::Up {
            let _ = self.quiesce();
        }
    }
}
