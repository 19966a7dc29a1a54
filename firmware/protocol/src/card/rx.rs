// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that come to the core.

use super::Card;
use super::control::Peer;
use super::hw::{Hw, Log};
use super::qp::CONNECTED;
use crate::wire::headers::{
    BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE, BTH_SEND_FIRST, BTH_SEND_LAST_INVALIDATE, BTH_SEND_ONLY,
    BTH_SEND_ONLY_IMM, BTH_SEND_ONLY_INVALIDATE, BTH_UC_WRITE_ONLY, BTH_UD_SEND_ONLY, HEADER_WORDS, arp, parse,
};
use berth_abi::card::{CONTROL_QPN, RX_SLOTS};
use berth_abi::counters::{F_ADDRESS_CONFLICTS, F_BAD_HEADER, F_BAD_OPCODE, F_FOREIGN, F_NOT_FOR_US, F_UNKNOWN_QP};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE};

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// A frame of `len` bytes (with iCRC) lies in receive slot `slot`; flags `RX_FLAG_*`. The card frees the slot.
    pub fn rx<H: Hw>(&mut self, now: u64, slot: u32, len: u32, flags: u32, hw: &mut H) {
        self.sh.begin(Self::RX_STEPS);
        if slot >= RX_SLOTS {
            return;
        }
        let mut words = [0; HEADER_WORDS];
        hw.rx_read(slot, 0, &mut words);
        const GOOD: u32 = RX_FLAG_ROCE | RX_FLAG_ICRC_OK;
        if flags & GOOD != GOOD || self.sh.ip == 0 {
            if self.sh.ip == 0 {
                // The card has no address yet.
                hw.count(F_NOT_FOR_US, 1);
            } else if flags & RX_FLAG_ROCE == 0 {
                self.rx_arp(&words, len, hw);
            }
            hw.rx_free(slot);
            return;
        }
        let packet = match parse(&words, len, self.sh.mac, self.sh.ip) {
            Ok(packet) => packet,
            Err(counter) => {
                hw.count(counter, 1);
                hw.rx_free(slot);
                return;
            }
        };
        let list = match packet.opcode {
            BTH_UD_SEND_ONLY => {
                packet.qpn == CONTROL_QPN || self.qp(packet.qpn).is_some_and(|(qp, _)| qp.takes_lists())
            }
            BTH_UC_WRITE_ONLY => packet.qpn == CONTROL_QPN,
            _ => false,
        };
        if list {
            self.rx_list(now, slot, &packet, hw);
            hw.rx_free(slot);
            return;
        }
        if packet.qpn == CONTROL_QPN {
            match packet.opcode {
                BTH_SEND_ONLY => self.rx_control(now, slot, &packet, hw),
                BTH_ACKNOWLEDGE => {
                    if let Some(i) = self.find_peer(packet.ip)
                        && let Some(peer) = self.peers.get_mut(i)
                    {
                        if peer.acknowledge(now, packet.psn, packet.ext >> 24, hw) {
                            peer.heard = now;
                        }
                        self.sh.peer_work.add(i);
                        let sh = &mut self.sh;
                        sh.ctl_work.take_in(&mut sh.ctl_blocked);
                    } else {
                        hw.count(F_NOT_FOR_US, 1);
                    }
                }
                _ => hw.count(F_BAD_OPCODE, 1),
            }
            hw.rx_free(slot);
            return;
        }
        // RTL takes all data packets, acknowledgements and lists of connections; this is another frame.
        let qp = Self::index(packet.qpn).and_then(|i| self.qps.get(i)).filter(|qp| qp.state == CONNECTED);
        let from = |peer: &&Peer| peer.ip == packet.ip && peer.mac == packet.mac;
        let counter = match qp {
            None => F_UNKNOWN_QP,
            Some(qp) if self.peers.get((qp.peer as usize).wrapping_sub(1)).filter(from).is_none() => F_NOT_FOR_US,
            Some(_) => match packet.opcode {
                BTH_SEND_FIRST..=BTH_SEND_ONLY_IMM
                | BTH_SEND_LAST_INVALIDATE
                | BTH_SEND_ONLY_INVALIDATE
                | BTH_ACKNOWLEDGE
                | BTH_SELECTIVE_ACKNOWLEDGE => F_BAD_HEADER,
                _ => F_BAD_OPCODE,
            },
        };
        hw.count(counter, 1);
        hw.rx_free(slot);
    }

    /// An ARP message: answers requests for us, learns addresses of peers.
    fn rx_arp<H: Hw>(&mut self, words: &[u32; HEADER_WORDS], len: u32, hw: &mut H) {
        let Some(message) = arp::parse(words, len) else {
            hw.count(F_FOREIGN, 1);
            return;
        };
        let (ours, same) = (message.target == self.sh.ip, message.ip == self.sh.ip);
        if same && message.mac != self.sh.mac {
            hw.count(F_ADDRESS_CONFLICTS, 1);
            if !core::mem::replace(&mut self.sh.conflict, true) {
                hw.log(Log::AddressConflict(message.mac));
            }
        } else if !ours || same || (message.reply && message.ip == 0) {
            hw.count(F_NOT_FOR_US, 1);
            return;
        }
        // ARP proves nothing, so it counts only while it can do no harm: a peer with connections moves only by its own
        // control message.
        if let Some(i) = self.find_peer(message.ip)
            && let Some(peer) = self.peers.get(i)
            && (!peer.resolved || !(peer.busy() || self.in_use(i)))
            && let Some(peer) = self.peers.get_mut(i)
            && peer.resolve(message.mac)
        {
            self.address_changed(i, hw);
        }
        // A probe (RFC 5227) has no sender's address: it learns that ours is taken.
        if ours
            && !message.reply
            && let Some(slot) = self.sh.tx_alloc(hw)
        {
            let answer = arp::Arp { reply: true, mac: self.sh.mac, ip: self.sh.ip, target: message.ip };
            self.sh.send_arp(slot, &answer, message.mac, hw);
        }
    }

    /// Transmit slot `slot` is free again.
    pub fn tx_done(&mut self, slot: u32) {
        self.sh.begin(Self::TX_DONE_STEPS);
        self.sh.tx_free(slot);
    }
}
