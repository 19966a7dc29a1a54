// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers, and the QPs that have connections with them.

use super::Card;
use super::hw::{Hw, Log};
use super::qp::{CONNECTED, CONNECTING, ERROR, Qp, TODO_BIND, TODO_REQ};
use super::shared::Qps;
use berth_abi::counters::F_PEERS_LOST;
use berth_abi::status::{REASON_PEER_LOST, REASON_UNREACHABLE, WC_RETRY_EXCEEDED};

/// What happens to requested connections when the peer has to begin anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// The requests are over as well.
    Over,
    /// The requests wait in unacknowledged messages, which come again.
    Queued,
    /// The requests are sent again.
    Again,
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// Position of the peer with this address.
    pub(crate) fn find_peer(&self, ip: u32) -> Option<usize> {
        self.peers.iter().position(|peer| peer.ip == ip && ip != 0)
    }

    /// The peer with this address; a new one takes a free place, or that of a peer without connections, if `keep` more
    /// of these are left.
    pub(crate) fn open_peer(&mut self, ip: u32, keep: usize) -> Option<usize> {
        if let Some(i) = self.find_peer(ip) {
            return Some(i);
        }
        let unnamed = |i: &usize| self.peers.get(*i).is_some_and(|peer| peer.ip == 0);
        let unused = |i: &usize| self.peers.get(*i).is_some_and(|peer| !peer.busy()) && !self.in_use(*i);
        let idle = |i: &usize| unnamed(i) || unused(i);
        let i = (0..PEERS).find(unnamed).or_else(|| (0..PEERS).find(idle))?;
        if keep != 0 && (0..PEERS).filter(idle).nth(keep).is_none() {
            return None;
        }
        self.peers.get_mut(i)?.open(ip, &mut self.sh);
        Some(i)
    }

    /// The headers to QP `i`'s peer.
    pub(crate) fn prepare_template(&mut self, i: usize) {
        let Some(qp) = self.qps.get_mut(i) else {
            return;
        };
        if let Some(peer) = self.peers.get((qp.peer as usize).wrapping_sub(1)) {
            let port = 0xc000 | (qp.qpn() << 7 ^ qp.peer_qpn) as u16 & 0x3fff;
            qp.loopback = peer.loopback;
            qp.template.set(self.sh.mac, self.sh.ip, peer.mac, peer.ip, port, qp.peer_qpn);
        }
    }

    /// QPs or requests live from peer `i`.
    pub(crate) fn in_use(&self, i: usize) -> bool {
        self.has_users(i, |_| true)
    }

    /// QPs or requests live from the control connection to peer `i`.
    pub(super) fn is_told(&self, i: usize) -> bool {
        self.has_users(i, |qp| !qp.foreign)
    }

    fn has_users(&self, i: usize, which: impl Fn(&Qp) -> bool) -> bool {
        let peer = i as u8 + 1;
        let uses = |qp: &Qp| qp.peer == peer && (matches!(qp.state, CONNECTING | CONNECTED) || qp.todo != 0);
        self.qps.iter().any(|qp| uses(qp) && which(qp)) || self.requests.iter().any(|r| r.peer == peer)
    }

    /// QP `q`'s foreign peer can be reached: the connection is there.
    pub(super) fn meet_foreign<H: Hw>(&mut self, q: usize, hw: &mut H) {
        let Some(qp) = self.qps.get_mut(q).filter(|qp| qp.foreign && qp.state == CONNECTING) else {
            return;
        };
        let (qpn, p) = (qp.qpn(), (qp.peer as usize).wrapping_sub(1));
        if let Some(peer) = self.peers.get(p).filter(|peer| peer.resolved) {
            qp.connected(peer.ip, &mut self.sh, hw);
            self.prepare_template(q);
            self.hand_over(qpn, hw);
        }
    }

    /// The MAC address of peer `i` is new: headers to it change.
    pub(crate) fn address_changed<H: Hw>(&mut self, i: usize, hw: &mut H) {
        self.sh.peer_work.add(i);
        for q in 0..QPS {
            self.sh.step();
            if self.qps[q].peer as usize == i + 1 {
                self.prepare_template(q);
                self.fast_renamed(q, hw);
                self.meet_foreign(q, hw);
            }
        }
    }

    /// Probes peer `peer` (index + 1) on its data connections, as far as there are slots.
    pub(super) fn probe<H: Hw>(&mut self, peer: u8, hw: &mut H) {
        let of_peer = self.qps.iter().filter(|qp| qp.peer == peer && qp.state == CONNECTED && !qp.foreign);
        let mut probes: Qps = of_peer.map(Qp::at).collect();
        let mut turn = self.sh.probe_last;
        while let Some(i) = turn.take(&mut probes)
            && let Some(qp) = self.qps.get_mut(i)
        {
            self.sh.step();
            if !qp.probe(&mut self.sh, hw) {
                return;
            }
            self.sh.probe_last = turn;
        }
    }

    /// Peer `i` does not answer: its connections are over.
    pub(super) fn peer_lost<H: Hw>(&mut self, i: usize, hw: &mut H) {
        hw.count(F_PEERS_LOST, 1);
        hw.log(Log::PeerLost(self.peers[i].ip));
        self.drop_connections(i, Requests::Over, hw);
        if self.in_use(i) {
            // Those that the host has set need no control connection.
            self.peers[i].renew(&mut self.sh);
        } else {
            self.peers[i].ip = 0;
            self.peers[i].deadline = 0;
        }
    }

    /// Ends all connections with peer `i`, which cannot be told; those that are still asked for as `requests` says. If the
    /// peer is no Berth, only a request was lost on it, and those that the host has set go on.
    pub(crate) fn drop_connections<H: Hw>(&mut self, i: usize, requests: Requests, hw: &mut H) {
        let peer = i as u8 + 1;
        let berth = self.peers.get(i).is_some_and(|peer| peer.peer_incarnation != 0);
        for qp in &mut self.qps {
            self.sh.step();
            if qp.peer != peer || (qp.foreign && qp.state == CONNECTED && !berth) {
                continue;
            }
            if qp.is_asking() && requests != Requests::Over {
                if requests == Requests::Again {
                    qp.tell(if qp.bound { TODO_BIND } else { TODO_REQ }, &mut self.sh);
                }
                continue;
            }
            qp.tell_peer = false;
            match qp.state {
                CONNECTING => qp.close(REASON_UNREACHABLE, &mut self.sh, hw),
                CONNECTED => qp.fail(REASON_PEER_LOST, WC_RETRY_EXCEEDED, &mut self.sh, hw),
                _ => (),
            }
            qp.todo = 0;
            qp.peer = 0;
            // A request that waits to tell the peer need not wait any more.
            if qp.state >= ERROR {
                self.sh.close_work.add(qp.at());
            }
        }
        for request in &mut self.requests {
            self.sh.step();
            if request.peer == peer {
                request.over();
                self.sh.request_work = true;
            }
        }
    }
}
