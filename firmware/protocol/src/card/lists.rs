// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When credit lists go, where that follows from how the sender uses its credits (CR-6 to CR-9): RTL reports it once a
//! list, [`Policy`] decides, and RTL goes by the last decision until the next one.

use super::limits::FAST_FEW;
use super::qp::Qp;
use crate::credit::policy::{Kind, Policy, Settings, Use};
use berth_abi::ring::{TRIGGER_ADAPTIVE, TRIGGER_AUTO, TRIGGER_PREDICTIVE, TRIGGER_TIMED};
use berth_abi::rows::{ROW_CLOCK, recv};

/// The longest time ahead that RTL's clock tells from one that has passed. A list that waits for it goes when the sender has
/// no credits, as always.
const NEVER: u32 = i32::MAX as u32;

/// What a kind of trigger (`TRIGGER_*`) asks of a policy; `None`: RTL knows it by itself. Times are in units of `ROW_CLOCK`.
fn settings(trigger: u8) -> Option<Settings> {
    let kind = match trigger {
        TRIGGER_ADAPTIVE => Kind::Adaptive,
        TRIGGER_TIMED => Kind::Timed,
        TRIGGER_PREDICTIVE => Kind::Predictive,
        TRIGGER_AUTO => Kind::InBand,
        _ => return None,
    };
    Some(Settings { lead: Settings::DEFAULT.lead / ROW_CLOCK, ..Settings::of(kind) })
}

/// The trigger, as rows have it, of a policy that has measured nothing.
#[cold]
fn first_trigger(trigger: u8) -> u32 {
    settings(trigger).map_or(0, |settings| Policy::new(settings).trigger().to_arg())
}

impl Qp {
    /// `recv::LISTS` as a connection begins.
    pub(super) fn first_lists(&self) -> recv::Lists {
        let (told, trigger) = match self.trigger as u8 {
            TRIGGER_ADAPTIVE.. => (1, first_trigger(self.trigger as u8)),
            _ => (0, self.trigger),
        };
        recv::Lists {
            told,
            few: FAST_FEW,
            index: trigger >> 8 & 0xff,
            timed: 0,
            trigger: trigger & 0xff,
            longest: self.max_list,
        }
    }

    /// The lists to come, and when they go, after a report of how the peer uses its credits: `now` in units of `ROW_CLOCK`.
    pub(super) fn next_lists(&mut self, now: u64, report: &Use, policy: &mut Policy) -> Option<(recv::Lists, u32)> {
        // `None`: it was told before the trigger was changed.
        let settings = settings(self.trigger as u8)?;
        if !self.fast.measured {
            self.fast.measured = true;
            *policy = Policy::new(settings);
        }
        policy.learn(now, report);
        let clock = now as u32;
        // A sender without credits never waits: that is RTL's rule.
        let (timed, due) = match policy.deadline(u32::MAX) {
            Some(0) => (0, 0),
            Some(at) => (1, clock.wrapping_add(at.saturating_sub(now).min(NEVER as u64) as u32)),
            None => (1, clock.wrapping_add(NEVER)),
        };
        let trigger = policy.trigger().to_arg();
        let lists = recv::Lists { index: trigger >> 8 & 0xff, timed, trigger: trigger & 0xff, ..self.first_lists() };
        Some((lists, due))
    }
}
