// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PSNs and the windows of both ends against numbers that never wrap and packets one by one.

use berth_protocol::rc::{Arrival, Bitmap, MAX_FLIGHT, Psn, Reach, Where, Wide, Window};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

const W: u64 = 8;
/// Five bits: half a turn is 16.
const HALF: u64 = 16;

fn psn(n: u64) -> Psn<5> {
    Psn::new(n as u32)
}

#[derive(Clone, Copy)]
struct Packet {
    done: bool,
    lost: bool,
    /// The PSN that was next when it left last.
    next: u64,
}

/// The sender's window, packet by packet.
struct Plain {
    una: u64,
    packets: VecDeque<Packet>,
    heard: u64,
}

impl Plain {
    fn flight(&self) -> u64 {
        self.packets.len() as u64
    }

    fn bits(&self, of: impl Fn(&Packet) -> bool) -> u32 {
        self.packets.iter().enumerate().filter(|(_, p)| of(p)).fold(0, |bits, (i, _)| bits | 1 << i)
    }

    fn find_lost(&mut self, reorder: u64, idle: bool, answers: u32, among: u32) {
        let behind = self.packets.iter().rposition(|p| p.done).map_or(0, |i| i as u64 + 1);
        let (newest, end) = (self.una + behind, self.una + self.flight());
        let known = newest.max(self.heard);
        for (i, p) in self.packets.iter_mut().enumerate() {
            let here = |bits: u32| bits >> i & 1 != 0;
            let seen = if here(answers) { self.heard } else { newest };
            if p.done || p.lost || !here(among) || self.una + i as u64 >= known {
                continue;
            }
            p.lost = seen >= p.next + reorder || (idle && seen == end && seen > p.next);
        }
    }
}

proptest! {
    #[test]
    fn qp_7_a_window_knows_of_each_packet_what_a_list_of_packets_knows(
        first in 0u64..32, ops in prop::collection::vec((0u8..9, 0u32..12, any::<u8>(), any::<u8>()), 0..120),
    ) {
        let mut w = Window::<5, 8, u32>::new(psn(first));
        let mut p = Plain { una: first, packets: VecDeque::new(), heard: first };
        for (op, n, bits, other) in ops {
            let flight = p.flight();
            match op {
                0 | 1 => {
                    w.send(n);
                    for _ in 0..u64::from(n).min(W - flight) {
                        let next = p.una + p.flight() + 1;
                        p.packets.push_back(Packet { done: false, lost: false, next });
                    }
                }
                2 => {
                    let mut news = false;
                    for (i, packet) in p.packets.iter_mut().enumerate() {
                        if bits >> i & 1 != 0 && !packet.done {
                            (packet.done, packet.lost, news) = (true, false, true);
                        }
                    }
                    prop_assert_eq!(w.finish(u32::from(bits)), news);
                }
                3 => {
                    w.hear(n);
                    p.heard = p.heard.max(p.una + u64::from(n).min(flight));
                }
                4 => {
                    let moved = p.packets.iter().take_while(|packet| packet.done).count();
                    p.packets.drain(..moved);
                    p.una += moved as u64;
                    p.heard = p.heard.max(p.una);
                    prop_assert_eq!(w.slide(), moved as u32);
                }
                5 => {
                    // What waits for an answer of its own, and what is looked at.
                    p.find_lost(u64::from(n % 4), bits & 1 != 0, u32::from(bits), u32::from(other) | 0x55);
                    let any = p.packets.iter().any(|packet| packet.lost);
                    prop_assert_eq!(w.find_lost(n % 4, bits & 1 != 0, u32::from(bits), u32::from(other) | 0x55), any);
                }
                6 => {
                    w.lose_from(n);
                    p.packets.iter_mut().skip(n as usize).filter(|packet| !packet.done).for_each(|packet| packet.lost = true);
                }
                _ => {
                    let count = u32::from(bits % 4);
                    w.resend(n, count);
                    let next = p.una + flight;
                    for packet in p.packets.iter_mut().skip(n as usize).take(count as usize) {
                        (packet.lost, packet.next) = (false, next);
                    }
                }
            }
            let flight = p.flight();
            prop_assert_eq!((w.una(), w.next(), u64::from(w.flight())), (psn(p.una), psn(p.una + flight), flight));
            prop_assert_eq!((w.done(), w.lost()), (p.bits(|p| p.done), p.bits(|p| p.lost)));
            prop_assert_eq!(w.on_the_way() as usize, p.packets.iter().filter(|p| !p.done && !p.lost).count());
            prop_assert_eq!(w.next_lost().map(|i| i as usize), p.packets.iter().position(|p| p.lost));
            for n in 0..10usize {
                let run = p.packets.iter().skip(n).take_while(|p| p.lost).count();
                prop_assert_eq!(w.lost_run(n as u32) as usize, run);
                prop_assert_eq!(u64::from(w.room(n as u32)), (n as u64).min(W).saturating_sub(flight));
            }
            for ahead in 0..32 {
                let reach = match ahead {
                    n if n <= flight => Reach::Within(n as u32),
                    n if n >= HALF => Reach::Old,
                    _ => Reach::Beyond,
                };
                prop_assert_eq!(w.reach(psn(p.una + ahead)), reach);
            }
        }
        // What has passed through leaves nothing behind.
        w.finish(u32::MAX);
        w.slide();
        prop_assert_eq!(w, Window::new(psn(p.una + p.flight())));
    }

    #[test]
    fn qp_7_the_receivers_window_knows_of_each_packet_what_sets_of_numbers_know(
        first in 0u64..32, ops in prop::collection::vec((0u8..6, 0u64..32, 1u64..12), 0..120),
    ) {
        let mut a = Arrival::<5, 8, u32>::new(psn(first));
        let (mut placed, mut seen, mut done) = (first, BTreeSet::new(), BTreeSet::new());
        for (op, at, n) in ops {
            let at = placed + at;
            match op {
                0..=2 => {
                    let n = if op == 0 { n } else { 1 };
                    let free = at + n <= placed + W && (at..at + n).all(|i| !seen.contains(&i));
                    prop_assert_eq!(a.fits(psn(at), n as u32), free);
                    if free {
                        a.accept(psn(at), n as u32);
                        seen.extend(at..at + n);
                    }
                }
                3 => {
                    a.done(psn(at));
                    if seen.contains(&at) {
                        done.insert(at);
                    }
                }
                _ => {
                    prop_assert_eq!(a.ready(), done.contains(&placed));
                    a.advance();
                    if done.remove(&placed) {
                        seen.remove(&placed);
                        placed += 1;
                    }
                }
            }
            let expected = (placed..).find(|i| !seen.contains(i)).unwrap();
            prop_assert_eq!((a.placed(), a.expected(), a.busy()), (psn(placed), psn(expected), !seen.is_empty()));
            let bits = done.iter().fold(0u32, |bits, i| bits | 1 << (i - placed));
            prop_assert_eq!((a.bits(), a.sack()), (bits, bits.sack()));
            for ahead in 0..32 {
                let place = match placed + ahead {
                    _ if ahead >= HALF => Where::Old,
                    _ if ahead >= W => Where::Beyond,
                    i if seen.contains(&i) => Where::Seen,
                    i if i == expected => Where::InOrder,
                    _ => Where::Ahead,
                };
                prop_assert_eq!(a.locate(psn(placed + ahead)), place);
            }
        }
    }
}

#[test]
fn qp_7_half_of_the_psns_lie_before_each() {
    for (a, b) in (0..32).flat_map(|a| (0..32).map(move |b| (a, b))) {
        let ahead = (32 + a - b) % 32;
        assert_eq!(psn(a).since(psn(b)), ahead as u32);
        assert_eq!(psn(a).before(psn(b)), ahead >= HALF, "{a} before {b}");
    }
}

#[test]
fn a_byte_says_how_many_packets_are_on_their_way_however_wide_the_window_is() {
    let mut w = Window::<24, 256, Wide>::new(Psn::new(0));
    assert_eq!(w.room(1000), MAX_FLIGHT);
    w.send(w.room(1000));
    assert_eq!((w.flight(), w.room(1000)), (MAX_FLIGHT, 0));
    // Nothing counts as lost that only packets before it have overtaken.
    w.finish(Wide::bit(254));
    assert!(w.find_lost(3, false, Wide::ZERO, !Wide::ZERO));
    assert_eq!((w.lost_run(0), w.on_the_way()), (252, 2));
}
