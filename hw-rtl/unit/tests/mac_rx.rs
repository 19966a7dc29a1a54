// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_mac_rx` towards the fast path: what it shows of a frame, and slots that are given back. The rest of it is
//! tested in the card (`hw-rtl/model/tests/mac.rs`).
#![cfg(feature = "fastpath")]

use berth_abi::card::{RX_SLOTS, SLOT_BYTES};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE, rx_slot};
use berth_protocol::wire::ext::{Bth, Extended};
use berth_protocol::wire::net::{Eth, Ip, Ipv4};
use berth_protocol::wire::{self, Opcode, Packet};
use berth_random::{Rng, seed};
use berth_rtl_unit::Module;
use std::collections::VecDeque;

const NAME: &str = "berth_mac_rx";

fn roce_frame(payload: &[u8]) -> Vec<u8> {
    let ip = Ipv4 { from: [1; 4], to: [2; 4], traffic_class: 0, id: 7, df: true, ttl: 64 };
    let packet = Packet {
        eth: Eth { to: [2; 6], from: [4; 6] },
        ip: Ip::V4(ip),
        source_port: 1,
        bth: Bth::new(Opcode(4), 16, 5),
        ext: Extended::NONE,
    };
    let mut out = vec![0; SLOT_BYTES as usize];
    let len = wire::emit(&packet, &[payload], &mut out).expect("a frame");
    out.truncate(len);
    out
}

#[test]
fn frames_are_shown_with_their_headers_and_first_words_and_given_back() {
    let seed = seed(3);
    for width in Module::widths(NAME) {
        let mut rng = Rng(seed);
        let mut m = Module::new(NAME, width);
        let names =
            ["rx_valid", "rx_data", "rx_keep", "rx_last", "rx_ready", "rw_ready", "rf_valid", "rf_ready", "rf.place"];
        let [rx_valid, rx_data, rx_keep, rx_last, rx_ready, rw_ready, rf_valid, rf_ready, rf_addr] =
            names.map(|name| m.port(name));
        let names = ["rf.len", "rf.flags", "rf_hdr", "hd_re", "hd_addr", "hd_data", "rfree_valid", "rfree_place"];
        let [rf_len, rf_flags, rf_hdr, hd_re, hd_addr, hd_data, rfree_valid, rfree_place] =
            names.map(|name| m.port(name));
        m.reset();
        m.set(rw_ready, 1_u8);
        let bytes = width as usize / 8;
        let frames: Vec<(Vec<u8>, bool)> = (0..200)
            .map(|_| {
                let len = if rng.chance(0.5) { rng.below(100) } else { rng.below(4096) } as usize;
                let body = rng.bytes(len);
                match rng.chance(0.8) {
                    true => (roce_frame(&body), true),
                    false => ([&[2; 12][..], &[0x08, 0x06], &body].concat(), false),
                }
            })
            .collect();
        let mut coming = frames.iter();
        let mut beats: VecDeque<(Vec<u8>, bool)> = VecDeque::new();
        let mut expected: VecDeque<&(Vec<u8>, bool)> = VecDeque::new();
        // Frames that were shown and are not given back: (address, bytes).
        let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut asked: Option<u32> = None;
        let mut ends = VecDeque::new();
        let (mut shown, mut fastest) = (0, u64::MAX);
        while shown < frames.len() || !kept.is_empty() {
            if beats.is_empty()
                && let Some(frame) = coming.next()
            {
                let parts = frame.0.chunks(bytes).enumerate();
                beats.extend(parts.map(|(i, c)| (c.to_vec(), (i + 1) * bytes >= frame.0.len())));
                expected.push_back(frame);
            }
            m.set(rx_valid, u8::from(!beats.is_empty()));
            if let Some((beat, last)) = beats.front() {
                let mut beat = beat.clone();
                let keep = if beat.len() == 64 { u64::MAX } else { (1 << beat.len()) - 1 };
                beat.resize(bytes, 0xee);
                let words: Vec<u64> =
                    beat.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))).collect();
                m.set_wide(rx_data, &words);
                m.set(rx_keep, keep);
                m.set(rx_last, u8::from(*last));
            }
            // Frames are taken at once at first, for the latency; then slowly, so that slots run out.
            let take = shown < 40 || rng.chance(0.02);
            m.set(rf_ready, u8::from(take));
            let give = (!kept.is_empty() && rng.chance(0.05)).then(|| rng.below(kept.len() as u64) as usize);
            m.set(rfree_valid, u8::from(give.is_some()));
            if let Some(k) = give {
                m.set(rfree_place, kept[k].0);
            }
            let look = (!kept.is_empty()).then(|| rng.below(kept.len() as u64) as usize);
            let word = look.map(|k| {
                let (addr, bytes) = &kept[k];
                let at = rng.below(bytes.len().min(512) as u64 / 4) as usize * 4;
                m.set(hd_addr, addr + at as u64);
                u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
            });
            m.set(hd_re, u8::from(word.is_some()));
            m.settle();
            if let Some(word) = asked.take() {
                assert_eq!(m.get(hd_data) as u32, word);
            }
            asked = word;
            if m.is(rf_valid) && take {
                let (bytes, roce) = expected.pop_front().expect("a frame that came");
                let addr = m.get(rf_addr);
                assert!((0..RX_SLOTS).any(|n| u64::from(rx_slot(n)) == addr) && kept.iter().all(|k| k.0 != addr));
                assert_eq!(m.get(rf_len), bytes.len() as u64);
                assert_eq!(m.get(rf_flags) as u32, if *roce { RX_FLAG_ROCE | RX_FLAG_ICRC_OK } else { 0 });
                let top = bytes.len().min(96);
                assert_eq!(m.bytes(rf_hdr)[..top], bytes[..top]);
                kept.push((addr, bytes.clone()));
                fastest = fastest.min(m.cycles() - ends.pop_front().expect("it has ended"));
                shown += 1;
            }
            if let Some(k) = give {
                kept.remove(k);
            }
            if m.is(rx_ready)
                && let Some((_, last)) = beats.pop_front()
                && last
            {
                ends.push_back(m.cycles());
            }
            m.edge();
            assert!(m.cycles() < 2_000_000, "frames are shown");
        }
        println!("{width} bits: last beat in to frame shown: {fastest} cycles");
    }
}

/// One that receives: frames go in beat by beat, and what it shows is told.
struct Receiver {
    m: Module,
    bytes: usize,
}

impl Receiver {
    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn new(width: u32) -> Self {
        let mut m = Module::new(NAME, width);
        m.reset();
        let (mac, ready, taken) = (m.port("own_mac"), m.port("rw_ready"), m.port("rf_ready"));
        m.set(mac, u64::from_be_bytes([0, 0, 2, 0, 0, 0, 0, 9]));
        m.set(ready, 1_u8);
        m.set(taken, 1_u8);
        Self { m, bytes: width as usize / 8 }
    }

    fn is(&self, name: &str) -> bool {
        self.m.is(self.m.port(name))
    }

    fn set(&mut self, name: &str, value: u64) {
        let port = self.m.port(name);
        self.m.set(port, value);
    }

    /// A frame comes, and `cycles` pass behind it; the addresses at which frames are shown, and how often each pulse of
    /// `ev` was seen.
    fn frame(&mut self, frame: &[u8], cycles: u32, ev: &[&str]) -> (Vec<u64>, Vec<u32>) {
        let (mut shown, mut counts) = (Vec::new(), vec![0; ev.len()]);
        let mut parts = frame.chunks(self.bytes).peekable();
        let mut left = cycles;
        for waited in 0.. {
            assert!(waited < 1_000, "the wire waits");
            let part = parts.peek().copied();
            self.set("rx_valid", u64::from(part.is_some()));
            if let Some(part) = part {
                let mut beat = part.to_vec();
                beat.resize(self.bytes, 0);
                let words: Vec<u64> =
                    beat.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))).collect();
                let (data, keep) =
                    (self.m.port("rx_data"), if part.len() == 64 { u64::MAX } else { (1 << part.len()) - 1 });
                self.m.set_wide(data, &words);
                self.set("rx_keep", keep);
                self.set(
                    "rx_last",
                    u64::from(part.len() < self.bytes || frame.as_ptr_range().end == part.as_ptr_range().end),
                );
            } else if left == 0 {
                break;
            } else {
                left -= 1;
            }
            self.m.settle();
            if self.is("rf_valid") {
                shown.push(self.m.get(self.m.port("rf.place")));
            }
            for (count, name) in counts.iter_mut().zip(ev) {
                *count += u32::from(self.is(name));
            }
            if part.is_some() && self.is("rx_ready") {
                parts.next();
            }
            self.m.edge();
        }
        (shown, counts)
    }

    /// A clock in which `name` is 1; whether `seen` is, in it.
    fn pulse(&mut self, name: &str, seen: &str) -> bool {
        self.set(name, 1);
        self.m.settle();
        let seen = self.is(seen);
        self.m.edge();
        self.set(name, 0);
        seen
    }
}

fn ethernet(to: [u8; 6], kind: u16, len: usize) -> Vec<u8> {
    [&to[..], &[4; 6], &kind.to_be_bytes(), &vec![7; len]].concat()
}

#[test]
fn frames_to_others_are_dropped_and_counted_once_the_own_address_is_known() {
    for width in Module::widths(NAME) {
        let mut r = Receiver::new(width);
        let mut bad = roce_frame(&[1; 40]);
        bad[70] ^= 1;
        for (to, ours) in [
            (Receiver::OWN, true),
            ([0xff; 6], true),
            ([2, 0, 0, 0, 0, 8], false),
            ([3, 0, 0, 0, 0, 9], false),
            ([0x33, 0x33, 0, 0, 0, 1], false),
            ([0; 6], false),
        ] {
            // At any length, a damaged one of somebody else's included.
            bad[..6].copy_from_slice(&to);
            for (frame, good) in
                [(ethernet(to, 0x86dd, 0), true), (ethernet(to, 0x0806, 64), true), (bad.clone(), false)]
            {
                let (shown, counts) = r.frame(&frame, 20, &["ev_not_ours", "ev_bad_icrc", "ev_truncated"]);
                assert_eq!(
                    (shown.len(), counts),
                    (usize::from(ours && good), vec![u32::from(!ours), u32::from(ours && !good), 0])
                );
                for addr in shown {
                    r.set("rfree_place", addr);
                    r.pulse("rfree_valid", "busy");
                }
            }
        }
        r.set("own_mac", 0);
        let (shown, _) = r.frame(&ethernet([9; 6], 0x0806, 20), 20, &[]);
        assert_eq!(shown.len(), 1, "before it is known every frame may be ours");
    }
}

#[test]
fn the_core_has_some_of_the_slots_at_most_and_the_others_stay_the_fast_paths() {
    for width in Module::widths(NAME) {
        let mut r = Receiver::new(width);
        let frame = ethernet(Receiver::OWN, 0x0806, 100);
        let mut held: VecDeque<u64> = VecDeque::new();
        let (mut told, mut dropped) = (0, 0);
        for round in 0..100 {
            // One for the core, which takes none or does not give them back, and one for the fast path.
            for core in [true, false] {
                let (shown, _) = r.frame(&frame, 12, &[]);
                let [addr] = shown[..] else { panic!("a frame in round {round}") };
                if core {
                    r.set("core_frame.place", addr);
                    if r.pulse("core_valid", "ev_core") {
                        told += 1;
                        held.push_back(addr);
                    } else {
                        dropped += 1;
                    }
                } else {
                    assert!(!held.contains(&addr), "a slot of the core");
                    r.set("rfree_place", addr);
                    r.pulse("rfree_valid", "busy");
                }
            }
            // Half way it takes all that wait, and gives one of them back.
            if round == 50 {
                assert_eq!((told, dropped), (8, 43));
                for _ in 0..8 {
                    assert!(r.pulse("desc_pop", "desc_valid"));
                }
                let slot = (0..RX_SLOTS).find(|n| u64::from(rx_slot(*n)) == held[0]).expect("a slot");
                r.set("slot_free_n", slot.into());
                r.pulse("slot_free", "busy");
                r.pulse("slot_free", "busy"); // a second time: it has it no more
                held.pop_front();
            }
        }
        assert_eq!((told, dropped), (9, 91));
    }
}
