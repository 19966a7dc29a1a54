// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hostile wire against the real firmware on the Verilated card, frames made by a
//! grammar ([`grammar`]), beside a good connection whose bytes must arrive unchanged. Every frame that comes must be in
//! exactly one counter. `BERTH_SEED` and `BERTH_CASES` (frames) choose; the image comes from `BERTH_FW_IMAGE`.

mod attacked;
mod grammar;
mod pair;

use attacked::*;
use berth_abi::counters::*;
use berth_abi::message::QpError;
use berth_abi::status::*;
use berth_abi::wire::{BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE};
use berth_rtl_host::*;
use grammar::*;
use pair::*;
use std::collections::BTreeMap;

/// Frames of a run: `BERTH_CASES`, else `few`, `all` in long tests, or a quarter of it on a wider wire, where a clock takes
/// longer.
fn cases(few: u64, all: u64) -> u64 {
    let part = if berth_rtl::data_w() == 64 { 1 } else { 4 };
    berth_random::few_or_all(few / part, all / part)
}

/// Where a received frame may be counted, but for what is good.
const REFUSALS: [Counted; 20] = [
    Counted::Rtl(C_RX_TRUNCATED),
    Counted::Rtl(C_RX_OVERSIZED),
    Counted::Rtl(C_RX_MAC_ERROR),
    Counted::Rtl(C_RX_BAD_ICRC),
    Counted::Rtl(C_RX_NOT_FOR_US),
    Counted::Rtl(C_RX_CORE_FULL),
    Counted::Rtl(C_FP_DUPLICATES),
    Counted::Rtl(C_FP_DROPPED),
    Counted::Rtl(C_FP_BAD_ACKS),
    Counted::Rtl(C_FP_LIST_REPEATS),
    Counted::Rtl(C_LISTS_REFUSED),
    Counted::Firmware(F_NOT_FOR_US),
    Counted::Firmware(F_BAD_HEADER),
    Counted::Firmware(F_BAD_OPCODE),
    Counted::Firmware(F_UNKNOWN_QP),
    Counted::Firmware(F_CONTROL_BAD),
    Counted::Firmware(F_FOREIGN),
    Counted::Firmware(F_BAD_ACK),
    Counted::Firmware(F_NO_CREDIT),
    Counted::Firmware(F_LIST_REFUSED),
];

fn read(net: &mut Net, d: usize, counted: Counted) -> u64 {
    match counted {
        Counted::Rtl(i) => net.hosts[d].rtl_counter(i),
        Counted::Firmware(i) => net.hosts[d].fw_counter(i),
    }
}

fn refusals(net: &mut Net, d: usize) -> BTreeMap<Counted, u64> {
    REFUSALS.iter().map(|&c| (c, read(net, d, c))).collect()
}

/// Runs a good stream while frames are put on the wire to host 1, one each `every` cycles, as `next` makes them.
fn beside(net: &mut Net, seed: u64, every: u64, mut next: impl FnMut() -> Option<Vec<u8>>) {
    let mut rng = Rng(seed ^ 0x600d);
    let mut due = net.hosts[1].card.cycles();
    let mut over = false;
    while !over {
        let bytes = rng.bytes(40_000);
        let mut s = [Stream::new(net, (0, GOOD), (1, GOOD), bytes)];
        s[0].recvs_left = Some(10);
        net.run_until("the good stream", 60_000_000, |net| {
            if !over && net.hosts[1].card.cycles() >= due {
                due = net.hosts[1].card.cycles() + every;
                match next() {
                    Some(frame) => net.hosts[1].card.push_rx(frame),
                    None => over = true,
                }
            }
            pair::step(net, &mut s);
            s[0].finished()
        });
        assert!(s[0].received == s[0].data, "bytes of the good connection differ");
    }
    net.settle(20_000);
}

/// The attacked connection carries data as before, nobody has died, nothing was touched.
fn check_end(net: &mut Net, seed: u64) {
    let mut s = Stream::new(net, (0, QP_A), (1, QP_B), Rng(seed + 1).bytes(20_000));
    s.recvs_left = Some(5);
    run(net, std::slice::from_mut(&mut s), 60_000_000);
    for d in 0..2 {
        alive(net, d);
        assert_eq!(net.hosts[d].violations(), [], "invariant 4");
    }
}

#[test]
fn inv_6_a_frame_that_breaks_one_rule_is_in_the_counter_of_that_rule_and_changes_nothing() {
    let seed = seed(21);
    let (mut net, seen) = attacked(seed);
    let mut rng = Rng(seed);
    let (before, counts) = (account(&mut net, 1), refusals(&mut net, 1));
    let mut expected = BTreeMap::new();
    let mut names: BTreeMap<_, u32> = BTreeMap::new();
    let mut acts = seen.acts(&mut rng);
    let kinds = acts.len() as u64;
    let all = cases(2 * kinds, 4 * kinds);
    let mut left = all;
    beside(&mut net, seed, 1_500, || {
        left = left.checked_sub(1)?;
        if acts.is_empty() {
            acts = seen.acts(&mut rng);
        }
        let act = acts.pop().expect("there are some");
        *expected.entry(act.counted).or_insert(0) += 1;
        *names.entry(act.name).or_default() += 1;
        Some(act.frame)
    });
    println!("{names:?}");
    assert_eq!(names.len() as u64, all.min(kinds), "each kind");
    let after = refusals(&mut net, 1);
    for counted in REFUSALS {
        assert_eq!(
            after[&counted] - counts[&counted],
            expected.get(&counted).copied().unwrap_or(0),
            "{}: of {names:?}",
            counted.name()
        );
    }
    check_account(&mut net, 1, &before);
    check_end(&mut net, seed);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, GOOD), (1, GOOD)]);
}

/// Senders choose it, so that routers spread flows (IBTA annex A17).
#[test]
fn inv_6_the_udp_source_port_may_be_any_and_another_one_in_each_frame() {
    let seed = seed(28);
    let (mut net, _) = attacked(seed);
    let mut rng = Rng(seed);
    let (before, counts) = (account(&mut net, 1), refusals(&mut net, 1));
    let mut s = [Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(60_000))];
    s[0].recvs_left = Some(15);
    net.hold(0, |frame| roce(frame).is_some());
    let mut changed = 0;
    net.run_until("the stream", 60_000_000, |net| {
        while let Some(mut frame) = net.wires[0].held.pop_front() {
            frame[34..36].copy_from_slice(&[0, rng.below(256) as u8]);
            seal(&mut frame);
            net.hosts[1].card.push_rx(frame);
            changed += 1;
        }
        pair::step(net, &mut s);
        s[0].finished()
    });
    assert!(s[0].received == s[0].data);
    // A packet for each receive at least.
    assert!(changed >= 15, "{changed}");
    net.unhold(0);
    net.settle(20_000);
    assert_eq!(refusals(&mut net, 1), counts);
    check_account(&mut net, 1, &before);
    check_end(&mut net, seed);
}

#[test]
fn inv_6_repeats_and_gaps_change_nothing() {
    let seed = seed(22);
    let (mut net, seen) = attacked(seed);
    let mut rng = Rng(seed);
    let before = account(&mut net, 1);
    let watched = [C_LISTS_REFUSED, C_FP_LIST_REPEATS].map(Counted::Rtl);
    let counts = watched.map(|c| read(&mut net, 1, c));
    let acks = net.hosts[1].rtl_counter(C_FP_ACKS_TAKEN);
    let events = net.hosts[1].fw_counter(F_FAST_EVENTS);
    let again = [Counted::Rtl(C_FP_AGAIN)];
    let sent = again.map(|c| read(&mut net, 1, c));
    let mut expected = BTreeMap::new();
    let mut left = cases(50, 100);
    beside(&mut net, seed, 1_000, || {
        left = left.checked_sub(1)?;
        let act = seen.repeat(&mut rng);
        *expected.entry(act.counted).or_insert(0) += 1;
        Some(act.frame)
    });
    for (counted, count) in watched.into_iter().zip(counts) {
        let expected = expected.get(&counted).copied().unwrap_or(0);
        assert_eq!(read(&mut net, 1, counted) - count, expected, "{}", counted.name());
    }
    // Beside those of the good connection.
    let told = expected.get(&Counted::Rtl(C_FP_ACKS_TAKEN)).copied().unwrap_or(0);
    assert!(net.hosts[1].rtl_counter(C_FP_ACKS_TAKEN) - acks >= told, "{told} were taken");
    assert_eq!(net.hosts[1].fw_counter(F_FAST_EVENTS), events, "firmware hears of none");
    assert_eq!(again.map(|c| read(&mut net, 1, c)), sent, "nothing goes again");
    check_account(&mut net, 1, &before);
    check_end(&mut net, seed);
}

#[test]
fn inv_6_a_blind_attacker_changes_nothing_and_every_frame_is_accounted_for() {
    let seed = seed(23);
    let (mut net, seen) = attacked(seed);
    let mut rng = Rng(seed);
    let before = account(&mut net, 1);
    let mut left = cases(100, 200);
    beside(&mut net, seed, 700, || {
        left = left.checked_sub(1)?;
        Some(blind(&seen.data, &mut rng))
    });
    check_account(&mut net, 1, &before);
    check_end(&mut net, seed);
}

/// What ends a connection, and that only: one connection each, which rests with a credit of 8192 bytes out. Of data an
/// invalid request's NAK (IBTA 9.7.5.2.8) tells, and `REASON_PROTOCOL`.
#[test]
fn inv_6_what_breaks_the_order_of_a_connection_ends_that_one_only() {
    let seed = seed(25);
    let (mut net, _) = attacked(seed);
    let data = [
        "MIDDLE without FIRST",
        "LAST without FIRST",
        "FIRST that is not one MTU",
        "FIRST inside",
        "MIDDLE of another place",
        "ONLY longer than one MTU",
        "longer than the credit",
        "FIRST with padding",
    ];
    let lists = ["list with an empty credit", "lists without a proof between them"];
    for (i, name) in data.into_iter().chain(lists).enumerate() {
        let q = 50 + i as u32;
        for d in 0..2 {
            net.hosts[d].create_qp(qp(q));
        }
        net.connect(0, q, 1, q, SERVICE + 10 + q);
        let seen = seen(&mut net, (q, q), seed);
        let mtu = data_lengths(&net.wires[0].sent, q).into_iter().max().expect("data");
        let asid = net.hosts[1].asid_of(q);
        let va = net.hosts[1].alloc(asid, 8192, 0, true);
        net.hosts[1].post_recvs(q, &[(1, vec![(va, 8192)])]);
        net.settle(20_000);
        let credit = credit_of(&seen.data).wrapping_add(1);
        let next = seen.next_psn();
        let packet = |opcode: u8, psn: u32, index: u32, n: usize| {
            let imm: &[u8] = if opcode & 1 == 1 && opcode != 1 { &[0; 4] } else { &[] };
            forge(&seen.data, opcode, q, psn, &[imm, &placement(credit, index), &vec![7; n]].concat())
        };
        let frames = match i {
            0 => vec![packet(0x01, next, 1, mtu)],
            1 => vec![packet(0x03, next, 1, 100)],
            2 => vec![packet(0x00, next, 0, mtu - 4)],
            3 => vec![packet(0x00, next, 0, mtu), packet(0x00, next + 1, 0, mtu)],
            4 => vec![packet(0x00, next, 0, mtu), packet(0x01, next + 1, 2, mtu)],
            5 => vec![packet(0x05, next, 0, mtu + 4)],
            6 => vec![
                packet(0x00, next, 0, mtu),
                packet(0x01, next + 1, 1, mtu),
                packet(0x03, next + 2, 8192 / mtu as u32, 4),
            ],
            7 => {
                let mut padded = packet(0x00, next, 0, mtu);
                padded[43] |= 0x10;
                seal(&mut padded);
                vec![padded]
            }
            8 => vec![seen.list(0, 0, seen.next_credit(), &[100, 0])],
            _ => [0, 8].map(|n| seen.list(0, 0, seen.next_credit() + n, &[1; 8])).to_vec(),
        };
        let counted = (i < data.len()).then_some(Counted::Rtl(C_FP_DROPPED));
        let before = counted.map(|counted| read(&mut net, 1, counted));
        let naks = |net: &Net| {
            let nak =
                |f: &&Vec<u8>| roce(f).is_some_and(|b| (b.qpn, b.opcode, b.body[0]) == (q, BTH_ACKNOWLEDGE, 0x61));
            net.wires[1].sent.iter().filter(nak).count()
        };
        for frame in frames {
            net.hosts[1].card.push_rx(frame);
        }
        let mut error = QpError::default();
        net.run_until(name, 20_000_000, |n| n.hosts[1].take_event().map(|event| error = event).is_some());
        assert_eq!((error.qpn, error.reason), (q, REASON_PROTOCOL), "{name}");
        net.settle(20_000);
        assert_eq!(naks(&net), usize::from(counted.is_some()), "{name}: NAK");
        if let (Some(counted), Some(before)) = (counted, before) {
            assert_eq!(read(&mut net, 1, counted), before + 1, "{name}: {}", counted.name());
        }
        for host in &mut net.hosts {
            assert!(host.poll_cq(CQN).iter().all(|c| c.qpn == q), "{name}");
        }
        let mut few = 0;
        beside(&mut net, seed, 1, || {
            few += 1;
            (few < 2).then(|| seen.data.clone())
        });
        println!("{name}: REASON_PROTOCOL, the others go on");
    }
    check_end(&mut net, seed);
}

#[test]
fn inv_6_a_wire_that_takes_nothing_for_long_holds_up_itself_only() {
    let seed = seed(26);
    let (mut net, _) = attacked(seed);
    let mut s = [Stream::new(&mut net, (0, GOOD), (1, GOOD), Rng(seed).bytes(200_000))];
    s[0].recvs_left = Some(49);
    s[0].post(&mut net);
    for _ in 0..5_000 {
        net.step();
    }
    net.hosts[0].card.set_tx_ready(false);
    for _ in 0..cases(100, 100) * 3_000 {
        net.step();
    }
    alive(&mut net, 0);
    net.hosts[0].card.set_tx_ready(true);
    run(&mut net, &mut s, 60_000_000);
}

/// Cycles that a good stream takes while host 1's wire carries one of `flood`'s frames behind each `every` bytes of it.
fn flooded(net: &mut Net, seed: u64, share: f64, mut flood: impl FnMut(&mut Rng) -> Option<Vec<u8>>) -> (u64, u64) {
    let mut rng = Rng(seed);
    let bytes = 200_000;
    let mut s = [Stream::new(net, (0, GOOD), (1, GOOD), Rng(seed).bytes(bytes))];
    s[0].depth = 64;
    s[0].recvs_left = Some(bytes.div_ceil(4096));
    let start = net.hosts[1].card.cycles();
    let (mut flooded, mut owed) = (0, 0.0);
    let beat = berth_rtl::data_w() as f64 / 8.0;
    let mut at = start;
    net.run_until("the good stream", 100_000_000, |net| {
        let now = net.hosts[1].card.cycles();
        owed += (now - at) as f64 * beat * share;
        at = now;
        while owed > 0.0 && net.hosts[1].card.rx_pending() < 64 {
            let Some(frame) = flood(&mut rng) else { break };
            owed -= frame.len() as f64;
            flooded += 1;
            net.hosts[1].card.push_rx(frame);
        }
        owed = owed.min(2_000.0);
        pair::step(net, &mut s);
        s[0].finished()
    });
    assert!(s[0].received == s[0].data, "bytes of the good connection differ");
    (net.hosts[1].card.cycles() - start, flooded)
}

/// What a good stream takes alone, in cycles, and its part of the wire then.
fn alone(net: &mut Net, seed: u64) -> (f64, f64) {
    let before = net.hosts[1].card.ports().rx.beats;
    let (took, _) = flooded(net, seed, 0.0, |_| None);
    (took as f64, (net.hosts[1].card.ports().rx.beats - before) as f64 / took as f64)
}

/// What a flood is of: its name, and what makes each of its frames.
type Flood<'a> = (&'static str, Box<dyn Fn(&mut Rng) -> Vec<u8> + 'a>);

/// Has a good stream beside `share` of the wire in frames of `flood`, and another one alone. It must have 0.85 of its
/// share at least. `before` is what one alone took before, then what the next one took. Returns how many frames were
/// dropped as firmware had its slots full.
fn shares(net: &mut Net, seed: u64, share: f64, (name, flood): &Flood, before: &mut (f64, f64)) -> u64 {
    let full = read(net, 1, Counted::Rtl(C_RX_CORE_FULL));
    let (took, frames) = flooded(net, seed, share, |rng| Some(flood(rng)));
    let full = read(net, 1, Counted::Rtl(C_RX_CORE_FULL)) - full;
    // Streams are not equally quick: the one before and the one behind tell what is usual.
    let after = alone(net, seed);
    let left = (before.0 + after.0) / 2.0 / took as f64;
    // All of its rate, where it needs less than the flood leaves of the wire.
    let due = ((1.0 - share) * 2.0 / (before.1 + after.1)).min(1.0);
    *before = after;
    println!(
        "{:3.0} % of the wire offered, {name}: {frames} frames, {full} of them dropped as firmware had its slots full, \
         the good stream has {:.0} % of its rate",
        share * 100.0,
        left * 100.0
    );
    assert!(left > due * 0.85, "{name}: {left:.2} of the rate beside {share}, {due:.2} are due");
    full
}

/// The parts of the wire that floods are offered.
fn offered() -> Vec<f64> {
    if berth_rtl::data_w() == 64 { vec![0.1, 0.5] } else { vec![0.5] }
}

#[test]
fn fairness_a_flood_leaves_a_good_connection_its_share_of_the_wire() {
    let seed = seed(27);
    let (mut net, seen) = attacked(seed);
    // A connection's first stream is quicker than the ones behind it.
    alone(&mut net, seed);
    let mut before = alone(&mut net, seed);
    println!("a good stream alone: {} cycles, {:.0} % of the wire", before.0, before.1 * 100.0);
    let acked = roce(&seen.ack).expect("RoCE").psn;
    let q = seen.qpn;
    // Those of the floods that firmware has to look at.
    let for_firmware = ["frames to all, for firmware (ARP)", "QPs that there are not"];
    let floods: Vec<Flood> = vec![
        ("frames to all, for firmware (ARP)", Box::new(|_| [&[0xff; 6][..], &[4; 6], &[8, 6], &[0; 46]].concat())),
        ("frames to others", Box::new(|_| [&[0x33; 6][..], &[4; 6], &[0x86, 0xdd], &[0; 46]].concat())),
        ("QPs that there are not", Box::new(|rng| forge(&seen.data, 5, 100 + rng.below(900) as u32, 0, &[0; 20]))),
        (
            "damaged frames",
            Box::new(|_| {
                let mut f = forge(&seen.data, 5, q, 0, &[0; 20]);
                f[55] ^= 1;
                f
            }),
        ),
        ("duplicates", Box::new(|_| forge(&seen.data, 5, q, seen.next_psn().wrapping_sub(1), &send(0, 0, &[1; 64])))),
        (
            "packets beyond the window",
            Box::new(|_| forge(&seen.data, 5, q, seen.next_psn() + 1000, &send(0, 0, &[1; 64]))),
        ),
        (
            "wrong ACKs",
            Box::new(|rng| {
                forge(&seen.data, BTH_ACKNOWLEDGE, q, acked + 500 + rng.below(999) as u32, &[0x1f, 0, 0, 0])
            }),
        ),
        (
            "NAKs of packets that have been acknowledged",
            Box::new(|_| forge(&seen.data, BTH_ACKNOWLEDGE, q, acked, &[0x60, 0, 0, 0])),
        ),
        (
            "SACKs of packets that have been acknowledged",
            Box::new(|_| {
                forge(
                    &seen.data,
                    BTH_SELECTIVE_ACKNOWLEDGE,
                    q,
                    acked.wrapping_sub(120),
                    &[&[0x1f, 0, 0, 0][..], &[0x55; 16]].concat(),
                )
            }),
        ),
        (
            "lists with a gap before them",
            Box::new(|rng| seen.list(0, 0, seen.next_credit() + 100 + rng.below(99) as u32, &[5; 61])),
        ),
        (
            "lists of one credit, with a gap before them",
            Box::new(|rng| seen.list(0, 0, seen.next_credit() + 100 + rng.below(99) as u32, &[5])),
        ),
    ];
    for share in offered() {
        for flood in &floods {
            let name = flood.0;
            let full = shares(&mut net, seed, share, flood, &mut before);
            assert_eq!(full > 0, for_firmware.contains(&name), "{name}: C_RX_CORE_FULL, {full} more");
        }
    }
    for d in 0..2 {
        alive(&mut net, d);
    }
}

/// Acknowledgements of what is under way are the longest work for the ACK engine: each bitmap is shifted to the oldest
/// packet of all, and may have news for each of them.
#[test]
fn fairness_a_flood_of_sacks_of_what_is_under_way_leaves_a_good_connection_its_share_of_the_wire() {
    let seed = seed(29);
    let (mut net, seen) = attacked_by(seed, QpCreate { timeout: NO_TIMEOUT, ..qp(QP_B) }, qp(GOOD), |_| ());
    let mut s = [Stream::new(&mut net, (1, QP_B), (0, QP_A), Rng(seed).bytes(1_500_000))];
    s[0].depth = 64;
    net.run_until("a stream that has begun", 10_000_000, |net| {
        pair::step(net, &mut s);
        s[0].received.len() > 400_000
    });
    // What the flooded QP sends is lost from now on, also when it goes again.
    net.hold(1, |frame| roce(frame).is_some_and(|f| f.qpn == QP_A && f.opcode <= 5));
    net.settle(100_000);
    let psn = |frame: &Vec<u8>| roce(frame).expect("RoCE").psn;
    let first = net.wires[1].held.front().map(psn).expect("packets under way");
    let under_way = net.wires[1].held.len();
    println!("{under_way} packets are under way");
    assert!(under_way > 8);
    alone(&mut net, seed);
    let mut before = alone(&mut net, seed);
    let sack = |psn: u32, map: [u8; 16]| {
        forge(
            &seen.data,
            BTH_SELECTIVE_ACKNOWLEDGE,
            seen.qpn,
            psn.wrapping_sub(1) & 0xff_ffff,
            &[&[0x1f, 0, 0, 0][..], &map].concat(),
        )
    };
    // In this order: what an acknowledgement has said once is no news.
    let floods: [Flood; 4] = [
        ("SACKs of every second packet", Box::new(|_| sack(first, [0x55; 16]))),
        ("SACKs of before them, and of some", Box::new(|rng| sack(first - 1 - rng.below(100) as u32, [0x55; 16]))),
        (
            "SACKs of any packets but the oldest",
            Box::new(|rng| {
                let mut map: [u8; 16] = rng.bytes(16).try_into().expect("16 bytes");
                map[0] &= 0x7f;
                sack(first, map)
            }),
        ),
        ("SACKs of all packets but the oldest", Box::new(|_| sack(first, (u128::MAX >> 1).to_be_bytes()))),
    ];
    for share in offered() {
        for flood in &floods {
            shares(&mut net, seed, share, flood, &mut before);
            println!("  {} frames of the flooded QP", std::mem::take(&mut net.wires[1].held).len());
        }
    }
    for d in 0..2 {
        alive(&mut net, d);
    }
}
