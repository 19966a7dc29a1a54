// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_mac_rx` towards the fast path: what it shows of a frame, and slots that are given back. The rest of it is
//! tested in the card (`hw-rtl/sim/tests/mac.rs`).
#![cfg(feature = "fastpath")]

use berth_abi::card::{RX_SLOTS, SLOT_BYTES};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE, rx_slot};
use berth_protocol::wire::ext::{Bth, Extended};
use berth_protocol::wire::net::{Eth, Ip, Ipv4};
use berth_protocol::wire::{self, Opcode, Packet};
use berth_random::Rng;
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
    let seed = std::env::var("BERTH_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(3);
    println!("BERTH_SEED={seed}");
    for width in Module::widths(NAME) {
        let mut rng = Rng(seed);
        let mut m = Module::new(NAME, width);
        let names =
            ["rx_valid", "rx_data", "rx_keep", "rx_last", "rx_ready", "rw_ready", "rf_valid", "rf_ready", "rf_addr"];
        let [rx_valid, rx_data, rx_keep, rx_last, rx_ready, rw_ready, rf_valid, rf_ready, rf_addr] =
            names.map(|name| m.port(name));
        let names = ["rf_len", "rf_flags", "rf_hdr", "hd_re", "hd_addr", "hd_data", "rfree_valid", "rfree_addr"];
        let [rf_len, rf_flags, rf_hdr, hd_re, hd_addr, hd_data, rfree_valid, rfree_addr] =
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
                m.set(rfree_addr, kept[k].0);
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
