// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_dma_wr`: what is written to memory for the fast path, byte by byte, also where an atomic's bytes are turned round.
//! The rest of it is tested in the card (`hw-rtl/model/tests/host_port.rs`).
#![cfg(feature = "fastpath")]

use berth_abi::cpu::DMA_REFUSED;
use berth_random::{Rng, seed};
use berth_rtl_unit::Module;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "berth_dma_wr";
/// Bits of a place.
const PLACES: u64 = (1 << 18) - 1;

/// A command.
#[derive(Clone, Copy, Debug)]
struct Store {
    /// Place of its first byte in memory, or of the last one if they are turned round.
    first: u64,
    len: u64,
    va: u64,
    reverse: bool,
}

impl Store {
    fn random(rng: &mut Rng, n: u64) -> Self {
        let reverse = rng.chance(0.7);
        let len = if reverse { rng.between(1, 8) } else { rng.between(1, 4_000) };
        // Each has two pages of its own, and often lies over the border.
        let va = 0x7_0000_0000 + n * 0x2000 + if rng.chance(0.5) { 0x1000 - rng.below(len) } else { rng.below(0x1000) };
        Self { first: rng.between(0x1000, 0x2_0000), len, va, reverse }
    }

    /// Where its byte `i` comes from.
    fn place(&self, i: u64) -> u64 {
        if self.reverse { self.first - i } else { self.first + i }
    }
}

/// The page that a look-up gives.
const fn page(vpn: u64) -> u64 {
    vpn ^ 0x55_5000
}

/// Of the commands whose tag has 10 in its upper bits, what their user refuses when the page is found.
const fn refused(tag: u64) -> bool {
    tag & 0xc3 == 0x83
}

#[test]
fn qp_3_an_atomics_bytes_are_written_the_other_way_round_and_none_that_are_refused() {
    let seed = seed(5);
    println!("BERTH_SEED={seed}");
    for width in Module::widths(NAME) {
        let mut rng = Rng(seed);
        let mut m = Module::new(NAME, width);
        let set = |m: &mut Module, name: &str, value: u64| {
            let port = m.port(name);
            m.set(port, value);
        };
        m.reset();
        set(&mut m, "enable", 1);
        let ram = rng.bytes(1 << 18);
        let commands: Vec<_> = (0..400).map(|n| Store::random(&mut rng, n)).collect();
        let (mut next, mut ended) = (0, 0);
        let mut memory = BTreeMap::new();
        // What packet RAM is asked for; the bytes of the posted write at hand that are out.
        let (mut asked, mut out) = (VecDeque::from([None; 2]), 0);
        while ended < commands.len() {
            let log2_payload = 7 + u64::from(ended > 200);
            set(&mut m, "log2_payload", log2_payload);
            let command = commands.get(next).filter(|_| rng.chance(0.5));
            set(&mut m, "store_valid", command.is_some().into());
            if let Some(&Store { first, len, va, reverse }) = command {
                set(&mut m, "store.place", if reverse { first ^ PLACES } else { first });
                set(&mut m, "store.len", len);
                set(&mut m, "store.va", va);
                set(&mut m, "store.reverse", reverse.into());
                set(&mut m, "store.asid", 5);
                set(&mut m, "store.tag", next as u64 & 0xff);
            }
            let bytes: Option<u64> = asked.pop_front().expect("two cycles");
            set(&mut m, "pr_rvalid", bytes.is_some().into());
            if let Some(at) = bytes {
                let words: Vec<u64> = (0..u64::from(width) / 64)
                    .map(|i| u64::from_le_bytes(ram[(at + 8 * i) as usize..][..8].try_into().expect("eight")))
                    .collect();
                let port = m.port("pr_rdata");
                m.set_wide(port, &words);
            }
            for ready in ["pr_ready", "wr_ready", "wdone_ready"] {
                set(&mut m, ready, rng.chance(0.6).into());
            }
            set(&mut m, "lk_ack", 0);
            m.settle();
            let get = |m: &Module, name: &str| m.get(m.port(name));
            if get(&m, "lk_req") != 0 && rng.chance(0.5) {
                let vpn = get(&m, "lk_vpn");
                set(&mut m, "lk_ack", 1);
                set(&mut m, "lk_hit", 1);
                set(&mut m, "lk_page", page(vpn));
                m.settle();
            }
            let judged = rng.chance(0.3);
            set(&mut m, "found_judged", judged.into());
            let tag = get(&m, "found.tag");
            set(&mut m, "found_refused", u64::from(judged && refused(tag)));
            assert!(get(&m, "found_valid") == 0 || tag & 0xc0 == 0x80);
            m.settle();
            let is = |m: &Module, name: &str| get(m, name) != 0;
            let taken = command.is_some() && is(&m, "store_ready");
            next += usize::from(taken);
            // Two cycles from the question to the answer.
            let question = (is(&m, "pr_valid") && is(&m, "pr_ready")).then(|| get(&m, "pr_addr") & PLACES);
            asked.push_back(question);
            if is(&m, "wr_valid") && is(&m, "wr_ready") {
                let (addr, len, beat) = (get(&m, "wr_addr"), get(&m, "wr_len"), m.bytes(m.port("wr_data")));
                let room = 1 << log2_payload;
                assert!(addr % room + len <= room.max(256));
                for (i, byte) in beat.iter().enumerate().take((len - out) as usize) {
                    assert!(memory.insert(addr + out + i as u64, *byte).is_none(), "{addr:#x} is written twice");
                }
                out += beat.len() as u64;
                assert_eq!(is(&m, "wr_last"), out >= len);
                if out >= len {
                    out = 0;
                }
            }
            if is(&m, "stored_valid") {
                let tag = ended as u64 & 0xff;
                let status = if refused(tag) { DMA_REFUSED.into() } else { 0 };
                assert_eq!((get(&m, "stored.tag"), get(&m, "stored.status")), (tag, status));
                ended += 1;
            }
            m.edge();
            assert!(m.cycles() < 2_000_000, "{ended} are written");
        }
        for (_, command) in commands.iter().enumerate().filter(|(n, _)| !refused(*n as u64 & 0xff)) {
            for i in 0..command.len {
                let va = command.va + i;
                let there = memory.remove(&(page(va >> 12) << 12 | va & 0xfff));
                assert_eq!(there, Some(ram[command.place(i) as usize]), "{width} bits: byte {i} of {command:x?}");
            }
        }
        assert!(memory.is_empty(), "{memory:x?}");
    }
}
