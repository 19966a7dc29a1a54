// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host side of the card without firmware: the bench plays the driver over the BARs
//! and rings, and the soft core over the debug port. Random tests take `BERTH_SEED`.

mod host;

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::message::{CODE, Entry as Message, PageNeed, PageReady, PageRelease, PageRevoke, Typed, code};
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wqe::CQE_BYTES;
use berth_rtl::{BAR_CONTROL, BAR_DOORBELL, CardConfig, PcieLimits, data_w};
use berth_rtl_host::seed;
use host::*;
use std::collections::{HashSet, VecDeque};

#[test]
fn bar0_answers_a_bad_offset_with_all_ones_and_counts_it() {
    let mut b = Bench::plain();
    assert_eq!(b.reg(HOST_ID), CARD_ID);
    assert_eq!(b.card.mmio_read(BAR_CONTROL, 0, 8), u64::from(ABI_VERSION) << 32 | u64::from(CARD_ID));
    let registers = [HOST_CAPS0, HOST_CAPS1, HOST_CAPS2, HOST_CAPS3].map(|at| b.reg(at));
    assert_eq!(Sizes::from_registers(registers), Some(Sizes::HERE));
    let before = b.counter(C_BAR_BAD_ACCESS);
    for (offset, len) in [(0x30, 4), (0x200, 8), (2, 2), (0xfff8, 8), (0x1_0000, 4)] {
        let ones = if len == 8 { u64::MAX } else { (1 << (8 * len)) - 1 };
        assert_eq!(b.card.mmio_read(BAR_CONTROL, offset, len), ones, "offset {offset:#x}");
    }
    b.set(0x30, 0);
    b.card.mmio_write(BAR_CONTROL, u64::from(HOST_CMD_LOG2), 7, 1);
    assert_eq!(b.counter(C_BAR_BAD_ACCESS), before + 7);
    assert_eq!(b.reg(HOST_CMD_LOG2), RING_LOG2, "a short write changes nothing");
    // The slot's limits follow its configuration space, and nothing that is written here.
    for (control, limits) in
        [(0, 0x77), (5 << 5 | 3 << 12, 0xac), (2 << 5 | 5 << 12, 0xc9), (6 << 5 | 7 << 12, 0x77), (1 << 5, 0x78)]
    {
        b.card.set_pcie_limits(PcieLimits::from_device_control(control));
        assert_eq!(b.reg(HOST_PCIE_LIMITS), limits, "Device Control {control:#x}");
        b.set(HOST_PCIE_LIMITS, 0x99);
        assert_eq!(b.reg(HOST_PCIE_LIMITS), limits);
    }
}

/// A command of nothing but its code.
fn of_code(code: u32) -> Message {
    let mut entry = [0; ENTRY_WORDS];
    entry[CODE] = code;
    entry
}

/// Installs page 0 of an address space.
fn install(asid: u32) -> Message {
    let mut entry = [0; ENTRY_WORDS];
    assert!(install_add(&mut entry, (asid, 0), 0, 0, false));
    entry
}

fn evict(indices: &[u32]) -> Message {
    let mut entry = evict_command(indices[0]);
    assert!(indices[1..].iter().all(|&index| evict_add(&mut entry, index)));
    entry
}

/// The command, which says that `pages` further ones follow.
fn more(mut entry: Message, pages: u32) -> Message {
    entry[CODE] |= pages << MORE_PAGES.trailing_zeros();
    entry
}

#[test]
fn commands_reach_rtl_and_firmware_in_their_order() {
    let mut b = Bench::random(seed(11));
    let (mut firmware, mut ready) = (VecDeque::new(), VecDeque::new());
    let (bad_before, mut bad) = (b.counter(C_CMD_BAD), 0);
    for round in 0..300 {
        match b.rng.below(6) {
            0 | 1 => {
                let mut words = [0; 16];
                words.iter_mut().for_each(|w| *w = b.rng.below(1 << 32) as u32);
                words[CODE] = words[CODE] & !0xff | (CMD_FIRST_FW + b.rng.below(100) as u32);
                b.command(&words);
                firmware.push_back(words);
            }
            2 => {
                let (tag, status) = (b.rng.below(1 << 16) as u32, b.rng.below(4) as u32);
                b.command(&PageReady { tag, status }.encode());
                ready.push_back((XLT_READY, status, tag));
            }
            3 => {
                let wrong = [
                    of_code(0),
                    of_code(9),
                    more(install(1), 6),
                    install(NUM_ASIDS),
                    evict(&[XLT_ENTRIES]),
                    evict(&[0, 0, XLT_ENTRIES]),
                    more(evict(&[0]), 12),
                    install(0),
                ];
                let which = b.rng.below(8) as usize;
                b.command(&wrong[which]);
                bad += 1;
            }
            _ => b.fence(),
        }
        while firmware.len() > 10 || (round == 299 && !firmware.is_empty()) {
            b.wait("a command", |b| (b.cpu(CPU_PENDING) >> PEND_CMD & 1 != 0).then_some(()));
            let words: [u32; 16] = std::array::from_fn(|i| b.cpu(CPU_CMD_W0 + 4 * i as u32));
            assert_eq!(Some(words), firmware.pop_front());
            b.set_cpu(CPU_CMD_POP, 0);
        }
        while ready.len() > 10 || (round == 299 && !ready.is_empty()) {
            assert_eq!(Some(b.answer()), ready.pop_front());
        }
    }
    b.fence();
    assert_eq!(b.counter(C_CMD_BAD), bad_before + bad);
    // A producer index further ahead than the ring is long is refused.
    b.set(HOST_CMD_PI, u32::from(b.cmd.pi.wrapping_add(RING + 1)));
    b.card.run(1000);
    assert_eq!((b.reg(HOST_CMD_CI) as u16, b.counter(C_CMD_BAD)), (b.cmd.pi, bad_before + bad + 1));
}

/// The eight words of a command as they are pushed, with their numbers.
fn pushed(words: &[u32; 16]) -> Vec<(usize, u64)> {
    words.as_chunks::<2>().0.iter().map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).enumerate().collect()
}

#[test]
fn commands_written_into_the_card_are_not_fetched() {
    let mut b = Bench::plain();
    let before = b.counter(C_CMD_PUSHED);
    let mut all = 0;
    for batch in (1..=10).cycle().take(40) {
        let words: Vec<_> = (0..batch).map(|_| b.firmware_command()).collect();
        for command in &words {
            let index = b.cmd.pi;
            b.put(command);
            b.push(index, &pushed(command));
        }
        b.tell();
        assert_eq!(b.commands(batch), words);
        all += batch;
    }
    assert_eq!((b.ring_reads(), b.counter(C_CMD_PUSHED) - before), (0, all as u64), "{all} commands");

    // One that is not whole is fetched; and one for a ring that is set up anew since.
    let words = b.firmware_command();
    let index = b.cmd.pi;
    b.put(&words);
    b.push(index, &pushed(&words)[..7]);
    b.tell();
    assert_eq!(b.commands(1), [words]);
    assert_eq!((b.ring_reads(), b.counter(C_CMD_PUSHED) - before), (1, all as u64));
    let (old, new) = (b.firmware_command(), b.firmware_command());
    b.set(HOST_CMD_LOG2, RING_LOG2);
    b.push(0, &pushed(&old));
    b.set(HOST_CMD_LOG2, RING_LOG2);
    b.cmd.pi = 0;
    b.command(&new);
    assert_eq!(b.commands(1), [new]);
    assert_eq!((b.ring_reads(), b.counter(C_CMD_PUSHED) - before), (2, all as u64));
}

#[test]
fn commands_written_in_part_late_or_elsewhere_are_those_of_the_ring() {
    let mut b = Bench::random(seed(14));
    for _ in 0..400 {
        let batch = b.rng.between(1, 9) as usize;
        let words: Vec<_> = (0..batch).map(|_| b.firmware_command()).collect();
        let first = b.cmd.pi;
        words.iter().for_each(|w| b.put(w));
        let mut order: Vec<usize> = (0..batch).collect();
        if b.rng.chance(0.3) {
            order.reverse();
        }
        let mut late = Vec::new();
        for n in order {
            let (index, right) = (first.wrapping_add(n as u16), pushed(&words[n]));
            // What the ring does not have must never be carried out.
            let other = b.firmware_command();
            let mut wrong = pushed(&other);
            match b.rng.below(10) {
                0 => {}
                1 => late.push((index, right)),
                2 => {
                    // torn: a word is missing, comes twice, in another's place, or in two halves
                    let at = b.rng.below(8) as usize;
                    match b.rng.below(4) {
                        0 => drop(wrong.remove(at)),
                        1 => wrong.insert(at % 7, wrong[at % 7]),
                        2 => wrong.swap(at, (at + 1) % 8),
                        _ => {
                            let offset = u64::from(HOST_CMD_PUSH + CMD_PUSH_WORDS) + 8 * at as u64;
                            b.push(index, &wrong[..at]);
                            b.card.post_write(BAR_CONTROL, offset, wrong[at].1, 4);
                            b.card.post_write(BAR_CONTROL, offset + 4, wrong[at].1 >> 32, 4);
                            continue;
                        }
                    }
                    b.push(index, &wrong);
                }
                3 => {
                    // begun, and begun anew
                    let words = b.rng.below(9) as usize;
                    b.push(index, &wrong[..words]);
                    b.push(index, &right);
                }
                4 => {
                    // carried out already, or further ahead than there are places
                    let ci = b.reg(HOST_CMD_CI) as u16;
                    let past = ci.wrapping_sub(1 + b.rng.below(300) as u16);
                    let far = b.cmd.pi.wrapping_add(CMD_PUSHES as u16 + b.rng.below(300) as u16);
                    let index = if b.rng.chance(0.5) { past } else { far };
                    b.push(index, &wrong);
                }
                5 => {
                    // by a process
                    let page = PAGE * b.rng.below(u64::from(NUM_UARS));
                    for (word, value) in wrong {
                        let offset = u64::from(HOST_CMD_PUSH + CMD_PUSH_WORDS) + 8 * word as u64;
                        b.card.post_write(BAR_DOORBELL, page + offset % PAGE, value, 8);
                    }
                }
                _ => b.push(index, &right),
            }
        }
        b.tell();
        late.iter().for_each(|(index, words)| b.push(*index, words));
        assert_eq!(b.commands(batch), words);
        if b.rng.chance(0.1) {
            b.fence();
        }
    }
    assert!(b.counter(C_CMD_PUSHED) > 200 && b.ring_reads() > 200);
}

#[test]
fn dma_places_every_byte_at_any_alignment() {
    let mut b = Bench::random(seed(21));
    const ASID: u32 = 9;
    const VPN: u64 = 0x7_f123_4567;
    let mut pages: Vec<u64> = (0..256).map(|i| DATA + i * PAGE).collect();
    for i in (1..pages.len()).rev() {
        let j = b.rng.below(i as u64 + 1) as usize;
        pages.swap(i, j);
    }
    for (i, &bus) in pages.iter().take(128).enumerate() {
        b.install(ASID, VPN + i as u64, bus, true);
    }
    b.fence();
    let mut ram = b.rng.bytes(PKT_BYTES as usize);
    b.fill_packet_ram(0, &ram);
    for _ in 0..12 {
        let mut commands = Vec::new();
        for tag in 0..16 {
            let len = match b.rng.below(3) {
                0 => b.rng.between(1, 64),
                1 => b.rng.between(1, 600),
                _ => b.rng.between(1, u64::from(SLOT_BYTES)),
            } as u32;
            // Commands in flight never share bytes: each has its part of packet RAM and of the host.
            let local = tag * 9000 + b.rng.below(u64::from(9000 - len)) as u32;
            let within = b.rng.below(8 * PAGE - u64::from(len));
            let virt = b.rng.chance(0.7);
            let (asid, addr) = if virt {
                (Some(ASID), (VPN + 8 * u64::from(tag)) * PAGE + within)
            } else {
                (None, DATA + 300 * PAGE + u64::from(tag) * 8 * PAGE + within)
            };
            commands.push(Dma { write: b.rng.chance(0.5), local, len, tag, addr, asid, slot: None });
        }
        let bus = |d: &Dma, i: u32| {
            let at = d.addr + u64::from(i);
            if d.asid.is_some() { pages[(at / PAGE - VPN) as usize] + at % PAGE } else { at }
        };
        let mut host = b.peek(BASE, HOST_BYTES as usize);
        for d in &commands {
            for i in 0..d.len {
                let (h, l) = ((bus(d, i) - BASE) as usize, (d.local + i) as usize);
                if d.write { host[h] = ram[l] } else { ram[l] = host[h] }
            }
        }
        commands.iter().for_each(|&d| b.dma(d));
        let mut left: HashSet<u32> = (0..16).collect();
        while !left.is_empty() {
            let (status, tag) = b.dma_done();
            assert!(status == DMA_OK && left.remove(&tag), "tag {tag} status {status}");
            // The data is there when the command has ended.
            let d = commands[tag as usize];
            if d.write {
                let end = b.peek(bus(&d, d.len - 1), 1)[0];
                assert_eq!(end, ram[(d.local + d.len - 1) as usize], "{d:?}");
            } else {
                assert_eq!(b.packet_ram(d.local, d.len as usize), ram[d.local as usize..][..d.len as usize], "{d:?}");
            }
        }
        assert!(b.peek(DATA, (BASE + HOST_BYTES - DATA) as usize) == host[(DATA - BASE) as usize..]);
    }
    assert!(b.packet_ram(0, PKT_BYTES as usize) == ram);
}

#[test]
fn dma_ends_with_the_status_of_its_failure() {
    let mut b = Bench::plain();
    const VPN: u64 = 0x1000;
    b.install(1, VPN, DATA, true);
    b.install(1, VPN + 1, DATA + PAGE, false);
    b.fence();
    let read = Dma { len: 4096, addr: VPN * PAGE + 100, asid: Some(1), ..Dma::default() };
    let write = Dma { write: true, ..read };
    let cases = [
        (read, DMA_OK),
        (Dma { addr: read.addr + PAGE, ..read }, DMA_NO_TRANSLATION),
        (Dma { asid: Some(2), ..read }, DMA_NO_TRANSLATION),
        (write, DMA_NO_TRANSLATION), // its second page is read-only
        (Dma { len: 0, ..read }, DMA_REFUSED),
        (Dma { len: SLOT_BYTES + 1, ..read }, DMA_REFUSED),
        (Dma { local: PKT_BYTES - 100, ..read }, DMA_REFUSED),
        (Dma { asid: None, addr: BASE + HOST_BYTES, ..read }, DMA_HOST_ERROR),
    ];
    for (tag, (d, status)) in cases.into_iter().enumerate() {
        b.dma(Dma { tag: tag as u32, ..d });
        assert_eq!(b.dma_done(), (status, tag as u32), "{d:?}");
    }
    // Of an attached read only the transmit slot hears: nothing is sent.
    b.dma(Dma { asid: Some(2), slot: Some(5), ..read });
    b.set_cpu(CPU_TX_SEND, TxSend { length: 100, raw: 0, loopback: 0, slot: 5 }.word());
    let v = b.wait("the slot to be given up", |b| Some(b.cpu(CPU_TX_DONE)).filter(|v| v >> 31 != 0));
    assert_eq!((v >> 16 & 0xff, v & 0xff), (DMA_NO_TRANSLATION, 5));
    assert_eq!(b.cpu(CPU_DMA_DONE), 0);
    assert_eq!((b.counter(C_DMA_NO_TRANSLATION), b.counter(C_DMA_HOST_ERROR)), (4, 1));
    // Disabled, the card starts nothing.
    b.set(HOST_DMA_ENABLE, 0);
    let reads = b.counter(C_DMA_READS);
    b.dma(read);
    b.dma(write);
    assert_eq!((b.dma_done().0, b.dma_done().0), (DMA_REFUSED, DMA_REFUSED));
    assert_eq!(b.counter(C_DMA_READS), reads);
}

#[test]
fn page_uses_are_counted_as_the_model_counts_them() {
    let mut b = Bench::random(seed(31));
    const FIRST: u64 = 0x5_5555_0000;
    const PAGES: u64 = 60;
    let mut held: Vec<Range> = Vec::new();
    let (mut hits, mut misses) = (0, 0);
    for asid in 1..=3 {
        for i in 0..PAGES {
            if b.rng.chance(0.95) {
                let write = b.rng.chance(0.8);
                b.install(asid, FIRST + i, DATA + (u64::from(asid) * PAGES + i) * PAGE, write);
            }
        }
    }
    b.fence();
    for tag in 0..400 {
        match b.rng.below(10) {
            0..4 => {
                let r = Range {
                    asid: 1 + b.rng.below(3) as u32,
                    va: FIRST * PAGE + b.rng.below((PAGES - 6) * PAGE),
                    len: b.rng.between(1, 6 * PAGE - 1) as u32,
                    write: b.rng.chance(0.3),
                    tag,
                };
                b.range(ACQUIRE, r);
                if b.table.acquire(r.span()) {
                    hits += 1;
                    assert_eq!(b.answer(), (XLT_HIT, 0, tag));
                    held.push(r);
                } else {
                    misses += 1;
                    assert_eq!(b.answer(), (XLT_MISS, 0, tag));
                    let need = PageNeed { tag, asid: r.asid, write: r.write, va: r.va, len: r.len };
                    assert_eq!(PageNeed::of(&b.event()), Some(need));
                }
            }
            4..7 if !held.is_empty() => {
                let at = b.rng.below(held.len() as u64) as usize;
                let r = held.swap_remove(at);
                b.range(RELEASE, r);
                let release = PageRelease { tag: r.tag, asid: r.asid, wrote: r.write, va: r.va, len: r.len };
                assert_eq!(PageRelease::of(&b.event()), Some(release));
                b.table.release(r.span());
            }
            7 => {
                let asid = 1 + b.rng.below(3) as u32;
                let vpn = FIRST + b.rng.below(PAGES);
                let Some(index) = b.table.find(asid, vpn, false) else { continue };
                let free = b.table.evict(index);
                b.command(&evict(&[index]));
                let w = b.event();
                assert_eq!((code(&w), evicted_pages(&w).collect::<Vec<_>>()), (EV_PAGE_EVICTED, vec![(index, free)]));
            }
            8 | 9 => {
                let asid = 1 + b.rng.below(3) as u32;
                let vpn = FIRST + b.rng.below(PAGES);
                match b.table.find(asid, vpn, false) {
                    Some(index) if b.rng.chance(0.1) => {
                        b.command(&PageRevoke { index }.encode());
                        b.table.revoke(index);
                    }
                    Some(_) => {}
                    None => _ = b.install(asid, vpn, DATA, true),
                }
                b.fence();
            }
            _ => {}
        }
    }
    println!("{hits} hits, {misses} misses");
    assert!(hits > 20 && misses > 20);
    assert_eq!((b.counter(C_XLT_HITS), b.counter(C_XLT_MISSES)), (hits, misses));
}

#[test]
fn long_acquire_does_not_hold_up_dma() {
    let mut b = Bench::plain();
    const VPN: u64 = 0x7_0000_0000;
    const PAGES: u64 = 1000;
    for i in 0..PAGES {
        b.install(3, VPN + i, DATA, true);
    }
    b.fence();
    let range = Range { asid: 3, va: VPN * PAGE, len: (PAGES * PAGE) as u32, write: true, tag: 1 };
    let begin = b.card.cycles();
    b.range(ACQUIRE, range);
    b.dma(Dma { len: 64, addr: VPN * PAGE, asid: Some(3), ..Dma::default() });
    assert_eq!(b.dma_done(), (DMA_OK, 0));
    let dma = b.card.cycles() - begin;
    assert_eq!(b.cpu(CPU_XLT_RSP), 0, "the range is still being walked");
    assert_eq!(b.answer(), (XLT_HIT, 0, 1));
    let range_cycles = b.card.cycles() - begin;
    println!("{PAGES} pages in {range_cycles} cycles, a DMA of 64 bytes meanwhile in {dma}");
    // Evicting what an acquire is counting waits for its outcome. A miss gives all back.
    b.range(ACQUIRE, Range { len: range.len + 1, tag: 2, ..range });
    let index = b.table.find(3, VPN, true).unwrap();
    b.command(&evict(&[index]));
    assert_eq!(b.answer(), (XLT_MISS, 0, 2));
    let (first, second) = (b.event(), b.event());
    let evicted = if first[0] == EV_PAGE_EVICTED { first } else { second };
    assert_eq!(evicted_pages(&evicted).collect::<Vec<_>>(), [(index, false)]);
    b.range(RELEASE, range);
    assert_eq!(b.event()[0], EV_PAGE_RELEASE);
    b.command(&evict(&[index]));
    assert_eq!(evicted_pages(&b.event()).collect::<Vec<_>>(), [(index, true)]);
}

/// Invariant 4: the card never touches memory after the kernel was told that it is released.
#[test]
fn inv_4_after_a_revocation_and_its_fence_the_page_is_not_touched() {
    let mut b = Bench::random(seed(41));
    const VPN: u64 = 0x42;
    for round in 0..20 {
        let bus = DATA + round * PAGE;
        let index = b.install(7, VPN + round, bus, true);
        b.fence();
        let commands = 4 + b.rng.below(12);
        for tag in 0..commands as u32 {
            let write = b.rng.chance(0.5);
            b.dma(Dma {
                write,
                local: tag * 4608,
                len: 4096,
                tag,
                addr: (VPN + round) * PAGE,
                asid: Some(7),
                slot: None,
            });
        }
        b.command(&PageRevoke { index }.encode());
        b.fence();
        b.table.revoke(index);
        let then = b.peek(bus, PAGE as usize);
        b.memory.log_reads();
        for _ in 0..commands {
            assert!([DMA_OK, DMA_NO_TRANSLATION].contains(&b.dma_done().0));
        }
        b.settle();
        assert!(b.peek(bus, PAGE as usize) == then, "written after the fence");
        assert!(b.memory.reads().iter().all(|r| r / PAGE != bus / PAGE), "read after the fence");
    }
}

#[test]
fn full_event_ring_holds_events_back_and_loses_none() {
    let mut b = Bench::plain();
    b.set(HOST_EVT_CI, 1 << 31);
    assert_eq!(b.cpu(CPU_EV_SPACE), u32::from(RING));
    let event = |i: u32| std::array::from_fn(|j| if j == 0 { EV_LOG } else { i << 8 | j as u32 });
    for i in 0..u32::from(RING) + 1 {
        b.firmware_event(&event(i));
    }
    b.settle();
    assert_eq!((b.cpu(CPU_EV_SPACE), b.counter(C_EVENTS)), (0, u64::from(RING)));
    assert_eq!(b.vectors(), 1, "one interrupt per arming");
    for i in 0..u32::from(RING) + 1 {
        assert_eq!(b.event(), event(i));
    }
    // Armed after the fact: the interrupt comes at once. Armed with nothing there: with the next event.
    b.firmware_event(&event(0));
    b.settle();
    assert_eq!(b.vectors(), 1);
    b.set(HOST_EVT_CI, u32::from(b.evt.ci) | 1 << 31);
    b.wait("the interrupt", |b| (b.vectors() == 2).then_some(()));
    b.event();
    b.set(HOST_EVT_CI, u32::from(b.evt.ci) | 1 << 31);
    b.settle();
    assert_eq!(b.vectors(), 2);
    b.firmware_event(&event(1));
    b.wait("the interrupt", |b| (b.vectors() == 3).then_some(()));
    assert_eq!(b.event(), event(1), "the event is there before its interrupt");
    assert_eq!(b.counter(C_INTERRUPTS), 3);
}

#[test]
fn completions_carry_the_phase_and_an_overrun_is_told() {
    let mut b = Bench::random(seed(51));
    const CQN: u32 = 7;
    const UAR: u64 = 5;
    const LOG2: u32 = 3;
    let base = DATA + PAGE - 64;
    b.poke(base, &[0; (CQE_BYTES << LOG2) as usize]);
    b.set_cpu(CPU_CQ_BASE_LO, base as u32);
    b.set_cpu(CPU_CQ_BASE_HI, (base >> 32) as u32);
    b.set_cpu(CPU_CQ_ATTR, CqAttr { valid: 1, page: UAR as u32, log2: LOG2 }.word());
    b.set_cpu(CPU_CQ_CFG, CQN);
    let cqe = |i: u16| -> [u32; 8] { [u32::from(i), 1, 2, 3, 4, 5, 6, 0] };
    let (mut pi, mut ci) = (0u16, 0u16);
    for _ in 0..30 {
        for _ in 0..1 + b.rng.below(8) {
            b.completion(CQN, &cqe(pi));
            pi += 1;
        }
        while ci != pi {
            let mut want = cqe(ci);
            want[7] = u32::from(ci >> LOG2 & 1 == 0) << 31;
            let want: Vec<u8> = want.iter().flat_map(|w| w.to_le_bytes()).collect();
            let at = base + u64::from(CQE_BYTES) * u64::from(ci & 7);
            b.wait("the completion", |b| (b.peek(at, CQE_BYTES as usize) == want).then_some(()));
            ci += 1;
        }
        b.ring_cq(UAR, CQN.into(), ci, false);
    }
    // Armed with nothing new: told with the next one, once.
    b.ring_cq(UAR, CQN.into(), ci, true);
    b.no_event();
    b.completion(CQN, &cqe(pi));
    assert_eq!(b.event()[..2], [EV_CQ_NOTIFY, CQN]);
    b.completion(CQN, &cqe(pi));
    b.no_event();
    // Armed with two new ones: told at once.
    b.ring_cq(UAR, CQN.into(), ci, true);
    assert_eq!(b.event()[..2], [EV_CQ_NOTIFY, CQN]);
    // Two are unread: six more fit, and the seventh is lost but not the others.
    for _ in 0..6 {
        b.completion(CQN, &cqe(pi));
    }
    b.settle();
    let (all, written) = (b.peek(base, 256), b.counter(C_COMPLETIONS));
    b.completion(CQN, &[0, 0, 0, 0x77, 0, 0, 0, 0]);
    assert_eq!(b.event()[..3], [EV_CQ_OVERRUN, CQN, 0x77]);
    assert_eq!((b.counter(C_CQ_OVERRUN), b.counter(C_COMPLETIONS)), (1, written));
    assert!(b.peek(base, 256) == all);
    // Space again: the queue goes on.
    b.ring_cq(UAR, CQN.into(), ci.wrapping_add(8), false);
    b.completion(CQN, &cqe(pi));
    b.wait("the completion", |b| (b.counter(C_COMPLETIONS) == written + 1).then_some(()));
}

/// Invariant 5: no process reaches another's doorbells.
#[test]
fn inv_5_doorbell_of_another_page_is_denied() {
    let mut b = Bench::plain();
    for (qpn, uar) in [(20, 9), (21, 10), (127, 63)] {
        b.set_cpu(CPU_DB_CFG_QPN, qpn);
        b.set_cpu(CPU_DB_CFG, DbCfg { valid: 1, fast: 0, page: uar }.word());
    }
    assert_eq!(b.cpu(CPU_DB_POP), 0);
    let sq = |qpn: u64, pi: u64, bytes: u64| qpn | pi << 16 | bytes << 32;
    // Another page, a QP or CQ that nobody has, one that does not exist.
    b.ring(8, DB_SQ, sq(20, 1, 1));
    b.ring(9, DB_SQ, sq(22, 1, 1));
    b.ring(9, DB_RQ, sq(128, 1, 1));
    b.ring_cq(9, 3, 0, true);
    b.ring_cq(9, 64, 0, true);
    // A raw queue, from a page that is not the kernel's.
    b.ring(9, DB_RAW_SQ, 1 << 16);
    b.ring(9, DB_RAW_RQ, 1 << 16);
    assert_eq!((b.counter(C_DOORBELL_DENIED), b.counter(C_DOORBELLS)), (7, 0));
    // Torn, unknown, or not a write.
    b.card.mmio_write(BAR_DOORBELL, 9 * PAGE, 20, 4);
    b.card.mmio_write(BAR_DOORBELL, 9 * PAGE + 4, 20, 4);
    b.ring(9, 0x28, 20);
    assert_eq!(b.card.mmio_read(BAR_DOORBELL, 9 * PAGE, 8), u64::MAX);
    assert_eq!(b.counter(C_DOORBELL_MALFORMED), 4);
    assert_eq!(b.cpu(CPU_PENDING) >> PEND_DOORBELL & 1, 0);
    // Fresh ones come in turn, with the latest values.
    b.ring(9, DB_SQ, sq(20, 5, 1000));
    b.ring(9, DB_RQ, sq(20, 6, 0));
    b.ring(10, DB_SQ, sq(21, 1, 9));
    b.ring(63, DB_SQ, sq(127, 2, 8));
    assert_eq!(b.cpu(CPU_DB_POP), DbPop { valid: 1, qpn: 20 }.word());
    assert_eq!((b.cpu(CPU_DB_INDEX), b.cpu(CPU_DB_BYTES)), (6 << 16 | 5, 1000));
    b.ring(9, DB_SQ, sq(20, 7, 2000));
    assert_eq!(b.cpu(CPU_DB_POP), DbPop { valid: 1, qpn: 21 }.word());
    assert_eq!(b.cpu(CPU_DB_POP), DbPop { valid: 1, qpn: 127 }.word());
    assert_eq!(b.cpu(CPU_DB_POP), DbPop { valid: 1, qpn: 20 }.word());
    assert_eq!((b.cpu(CPU_DB_INDEX), b.cpu(CPU_DB_BYTES)), (6 << 16 | 7, 2000));
    assert_eq!(b.cpu(CPU_DB_POP), 0);
    assert_eq!((b.counter(C_DOORBELLS), b.counter(C_DOORBELL_DENIED)), (5, 7));
}

/// Invariant 5: nor holds up what is not its own by ringing without end.
#[test]
fn inv_5_doorbells_without_end_hold_up_neither_the_core_nor_completions() {
    const CQN: u32 = 4;
    let mut b = Bench::plain();
    b.set_cpu(CPU_CQ_BASE_LO, DATA as u32);
    b.set_cpu(CPU_CQ_BASE_HI, (DATA >> 32) as u32);
    b.set_cpu(CPU_CQ_ATTR, CqAttr { valid: 1, page: 9, log2: 6 }.word());
    b.set_cpu(CPU_CQ_CFG, CQN);
    b.set_cpu(CPU_DB_CFG_QPN, 20);
    b.set_cpu(CPU_DB_CFG, DbCfg { valid: 1, fast: 0, page: 9 }.word());
    let bells = [
        (DB_SQ, 20 | 1 << 16),
        (DB_RQ, 20 | 1 << 16),
        (DB_CQ, 30),             // of nobody
        (DB_CQ, u64::from(CQN)), // which is empty
        (DB_SQ, 21),
        (DB_WQE, 0),
        (0x18, 0),
    ];
    for (offset, data) in bells {
        let before = b.counter(C_COMPLETIONS);
        (0..6000).for_each(|_| b.card.post_write(BAR_DOORBELL, 9 * PAGE + u64::from(offset), data, 8));
        let begin = b.card.cycles();
        for i in 0..8u32 {
            b.set_cpu(CPU_DB_CFG_QPN, 40 + i);
            b.set_cpu(CPU_DB_CFG, DbCfg { valid: 1, fast: 0, page: 10 }.word());
            b.cpu(CPU_DB_POP);
            b.completion(CQN, &[i; 8]);
        }
        let took = b.card.cycles() - begin;
        assert!(b.card.writes_pending() > 0, "{offset:#x}: no doorbells are left");
        // Twelve accesses each time.
        assert!(took < 8 * 12 * 40, "{offset:#x}: {took} cycles");
        b.settle();
        assert_eq!(b.counter(C_COMPLETIONS), before + 8, "{offset:#x}");
    }
}

#[test]
fn reset_lets_reads_in_flight_end_first() {
    let mut b = Bench::new(CardConfig { read_latency: 2000, ..CardConfig::default() });
    b.start(8, 9);
    for tag in 0..4 {
        b.dma(Dma { local: tag * 4608, len: 4096, tag, addr: DATA, ..Dma::default() });
    }
    b.wait("the reads", |b| (b.reg(HOST_DMA_BUSY) >= 31).then_some(()));
    b.set(HOST_CTRL, 1);
    assert_eq!(b.reg(HOST_STATUS), FW_RESET);
    assert!(!b.card.dma_in_flight());
    assert_eq!((b.reg(HOST_DMA_ENABLE), b.reg(HOST_DMA_BUSY), b.reg(HOST_PCIE_LIMITS)), (0, 0, 0x98));
    assert_eq!(b.counter(C_DMA_READS), 0);
    // The card works again, and what was in flight is forgotten.
    b.start(8, 9);
    b.fence();
    assert_eq!(b.cpu(CPU_DMA_DONE), 0);
}

/// Aligned or not, reads and writes of 4 KiB use all that a host port of 1.25 times the wire carries, also with a long
/// read latency.
#[test]
fn dma_keeps_the_host_port_busy() {
    const COMMANDS: u32 = 48;
    let host_rate = 1.25 * (data_w() / 8) as f64;
    for (read_latency, offset) in [(250, 0), (450, 0), (250, 3), (250, 61)] {
        let mut b = Bench::new(CardConfig { read_latency, split: false, host_rate, ..CardConfig::default() });
        b.start(8, 9);
        b.card.reset_ports();
        for tag in 0..COMMANDS {
            for write in [false, true] {
                let slot = tag % TX_SLOTS;
                let local = if write { rx_slot(slot) } else { tx_slot(slot) + 54 };
                let addr = DATA + offset + 8192 * u64::from(tag + if write { COMMANDS } else { 0 });
                b.dma(Dma { write, local, len: 4096, tag, addr, ..Dma::default() });
            }
        }
        for _ in 0..2 * COMMANDS {
            assert_eq!(b.dma_done().0, DMA_OK);
        }
        let ports = b.card.ports();
        for (name, port) in [("reads", ports.completions), ("writes", ports.writes)] {
            let rate = port.bytes as f64 / port.span() as f64;
            // 64 reads of 512 bytes may be out
            let limit = if name == "reads" { host_rate.min(64.0 * 512.0 / read_latency as f64) } else { host_rate };
            println!("{name}, offset {offset}, latency {read_latency}: {rate:.2} of {limit:.2} bytes per cycle");
            assert_eq!(port.bytes, u64::from(COMMANDS) * 4096);
            assert!(rate >= 0.98 * limit, "{name}, offset {offset}, latency {read_latency}: {rate:.2} of {limit:.2}");
        }
    }
}

#[test]
fn what_is_told_of_unused_pages_waits_for_another_event_or_half_a_ring_if_it_may() {
    let mut b = Bench::plain();
    let mut rng = berth_rtl_host::Rng(seed(1));
    // Whether it is armed, and so that some may wait; interrupts; events of each kind that the host has not taken.
    let (mut armed, mut lax, mut interrupts) = (false, false, 0);
    let mut waiting = VecDeque::new();
    for step in 0..500 {
        match rng.below(8) {
            0..4 if waiting.len() < usize::from(RING) => {
                let kind =
                    [EV_PAGE_RELEASE, EV_PAGE_EVICTED, EV_LOG][if rng.chance(0.9) { rng.below(2) as usize } else { 2 }];
                let event = std::array::from_fn(|word| if word == 0 { kind } else { step << 8 | word as u32 });
                b.firmware_event(&event);
                waiting.push_back(event);
            }
            4..6 => {
                for _ in 0..rng.below(waiting.len() as u64 + 1) {
                    assert_eq!(b.take_event(), waiting.pop_front());
                }
                b.set(HOST_EVT_CI, b.evt.ci.into());
            }
            _ => {
                (armed, lax) = (true, rng.chance(0.8));
                b.set(HOST_EVT_CI, u32::from(b.evt.ci) | 1 << 31 | u32::from(lax) << 30);
            }
        }
        let urgent = waiting.iter().any(|event: &[u32; 16]| event[0] == EV_LOG);
        if armed && !waiting.is_empty() && (!lax || urgent || waiting.len() >= usize::from(RING) / 2) {
            (armed, interrupts) = (false, interrupts + 1);
        }
        b.settle();
        assert_eq!(b.vectors(), interrupts, "step {step}: {} events, lax {lax}", waiting.len());
    }
}
