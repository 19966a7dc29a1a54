// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When memory is short: which QP keeps what it holds, which ones release memory, whose credits are recalled (decision
//! 19).

use super::Card;
use super::hw::Hw;
use super::limits::{FAST_SQUEEZE_TIME, SQUEEZES};
use super::qp::{CONNECTED, Qp};
use super::shared::Qps;
use berth_abi::rows::{HALF_RECEIVES, recv, send};
use berth_abi::status::REASON_PEER_CLOSE;

/// Changes when QP `i`'s receives get ahead.
fn progress<H: Hw>(qps: &[Qp], i: usize, hw: &mut H) -> u32 {
    let of = |qp: &Qp, hw: &mut H| qp.fast_receives(recv::ANNOUNCED, hw) ^ qp.fast_receives(recv::COMPLETED, hw) << 16;
    qps.get(i).filter(|qp| qp.fast.on).map_or(0, |qp| of(qp, hw))
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// Page requests of address space `asid` (0: all) wait for budget (decision 19): receives announce what is granted
    /// and release what is held ahead of need, and if some QP gets nothing at all, unused credits are recalled. Gives
    /// the QP whose receive does not fit, see [`Self::squeeze`], or 0.
    pub(super) fn pressure<H: Hw>(&mut self, now: u64, asid: u8, hw: &mut H) -> u32 {
        let (starved, waiting) = self.starved(asid, hw);
        let turn = self.sh.pressure.squeeze.look(&waiting, |i| progress(&self.qps, i, hw));
        if !starved {
            return 0;
        }
        let recalled = self.recall(now, hw);
        turn.map_or(0, |turn| self.squeeze(now, &waiting, turn, !recalled, hw))
    }

    /// Whether a connection of address space `asid` (0: of any) that RTL has waits for memory and holds none that would
    /// come back; and which of them wait for a receive's memory. One that waits for the rest of a batch announces what
    /// it has instead.
    #[inline(never)]
    fn starved<H: Hw>(&mut self, asid: u8, hw: &mut H) -> (bool, Qps) {
        let (mut starved, mut waiting) = (false, Qps::EMPTY);
        for qp in &self.qps {
            self.sh.step();
            if qp.fast.on && qp.state == CONNECTED && (asid == 0 || qp.asid == asid) {
                let rests = qp.fast.rests_until != 0;
                let receives = qp.receives_held(hw).starved;
                if receives != 0 && qp.fast_granted(hw) != 0 {
                    if !rests {
                        qp.fast_receive(recv::COMMAND, recv::CMD_SQUEEZE, hw);
                    }
                } else {
                    if receives != 0 && !rests {
                        waiting.add(qp.at());
                    }
                    starved |= qp.sends_held(hw).starved != 0 || receives != 0;
                }
            }
        }
        (starved, waiting)
    }

    /// Some QP has memory that comes back by itself, or by a recall that is under way or can be.
    #[inline(never)]
    fn comes_back<H: Hw>(&mut self, hw: &mut H) -> bool {
        for qp in &self.qps {
            self.sh.step();
            if qp.fast.on
                && (matches!(qp.sends_held(hw), send::Held { holds: 1.., starved: 0, .. })
                    || matches!(qp.receives_held(hw), recv::Held { holds: 1.., starved: 0, .. })
                    || qp.rq.recall.asked().is_some()
                    || qp.fast_granted(hw) != 0)
            {
                return true;
            }
        }
        false
    }

    /// Connections whose bits are in `waiting` wait for a receive's memory, and may hold a part of it: the one that has
    /// the turn keeps that, the others release theirs, so that they do not wait for each other. Gives the QPN of that
    /// one when this has not helped several times although no other QP (as far as firmware knows: `alone`) has memory,
    /// because its receive then does not fit the budget (PC-3); else 0.
    #[inline(never)]
    fn squeeze<H: Hw>(&mut self, now: u64, waiting: &Qps, turn: usize, alone: bool, hw: &mut H) -> u32 {
        for qp in &mut self.qps {
            self.sh.step();
            let recalled = qp.rq.recall.asked().is_some() || qp.fast.rests_until != 0;
            if !qp.fast.on || !waiting.has(qp.at()) || recalled {
                continue;
            }
            if qp.at() == turn {
                qp.fast_receive(recv::COMMAND, recv::CMD_SQUEEZE, hw);
            } else {
                // With an empty range: receives that are no credits yet release their memory and ask for it anew.
                qp.fast_words(HALF_RECEIVES, recv::RANGE, &[0; 4], &mut self.sh, hw);
                qp.fast_receive(recv::COMMAND, recv::CMD_REVOKE, hw);
            }
        }
        if !alone || self.comes_back(hw) {
            self.sh.pressure.squeeze.comes_back();
            return 0;
        }
        let squeeze = &mut self.sh.pressure.squeeze;
        let named = squeeze.in_vain(now, (SQUEEZES, FAST_SQUEEZE_TIME), waiting, |i| progress(&self.qps, i, hw));
        named.and_then(|i| self.qps.get(i)).map_or(0, Qp::qpn)
    }

    /// Recalls the credits of the next QP, in turn, that RTL has and that has some out. False when none has.
    #[inline(never)]
    fn recall<H: Hw>(&mut self, now: u64, hw: &mut H) -> bool {
        let mut could = Qps::EMPTY;
        for qp in &self.qps {
            self.sh.step();
            let asks = qp.fast.on && qp.state == CONNECTED && qp.rq.recall.asked().is_none();
            if asks && qp.fast_unused(hw) != 0 {
                could.add(qp.at());
            }
        }
        match self.sh.pressure.recalled.pass(&could).and_then(|i| self.qps.get_mut(i)) {
            // Nobody would answer.
            Some(qp) if qp.gone => qp.close(REASON_PEER_CLOSE, &mut self.sh, hw),
            Some(qp) if qp.foreign => qp.fast_reclaim(now, &mut self.sh, hw),
            Some(qp) => qp.fast_recall(&mut self.sh, hw),
            None => return false,
        }
        true
    }
}
