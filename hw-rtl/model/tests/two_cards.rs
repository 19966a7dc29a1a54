// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two Verilated cards with the real firmware, a host model each, and a wire between
//! them. The firmware image comes from `BERTH_FW_IMAGE`, the seed from `BERTH_SEED`.

mod pair;

use berth_abi::card::CONTROL_QPN;
use berth_abi::counters::*;
use berth_abi::message::{
    Accept, CmClosed, CmEstablished, CmRequest, Connect, CqDestroy, Disconnect, Listen, QpCap, QpDestroy, QpError,
    QpTrigger,
};
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wire::{BTH_UC_WRITE_ONLY, BTH_UD_SEND_ONLY};
use berth_rtl::PcieLimits;
use berth_rtl_host::*;
use pair::*;
use std::collections::BTreeMap;

#[test]
fn cr_15_worked_example_of_72_bytes() {
    worked_example(CARRIER_CONTROL);
}

#[test]
fn cr_12_lists_go_in_the_reverse_direction_of_their_connection() {
    let lists = worked_example(CARRIER_REVERSE);
    assert!(lists.iter().all(|list| *list == (BTH_UD_SEND_ONLY, QP_A)), "{lists:x?}");
}

#[test]
fn cr_12_lists_go_as_writes_to_the_peers_card() {
    let lists = worked_example(CARRIER_WRITE);
    assert!(lists.iter().all(|list| *list == (BTH_UC_WRITE_ONLY, CONTROL_QPN)), "{lists:x?}");
}

/// Answers opcode and QPN of the frames with lists.
fn worked_example(carrier: u8) -> Vec<(u8, u32)> {
    let a = QpCreate { timeout: NO_TIMEOUT, ..qp(QP_A) };
    let b = QpCreate { timeout: NO_TIMEOUT, carrier, ..qp(QP_B) };
    let mut net = pair(seed(1), |_, _| {}, a, b);
    let data: Vec<u8> = (0..72).collect();
    let source = net.hosts[0].alloc(ASID, 72, 100, false);
    net.hosts[0].write(ASID, source, &data);
    let mut posted = Vec::new();
    let mut recv = |net: &mut Net, sizes: &[u32]| {
        for &len in sizes {
            let va = net.hosts[1].alloc(ASID, len.into(), 200, true);
            posted.push((va, len));
            net.hosts[1].put_recv(QP_B, u64::from(len), &[(va, len)]);
        }
        net.hosts[1].ring_recv(QP_B);
        posted.clone()
    };
    let sent = |net: &Net| data_lengths(&net.wires[0].sent, QP_B);
    let lists = |net: &Net| credit_lists(&net.wires[1].sent, QP_A);

    // The sender has data and no credit: it holds it (CR-3).
    net.hosts[0].post_send(QP_A, 72, &[(source, 72)]);
    net.settle(50_000);
    assert_eq!(sent(&net), []);

    // 1. [3, 7] goes to the sender; what it sends is held at the wire.
    net.hold(0, is_data);
    recv(&mut net, &[3, 7]);
    net.run_until("3 and 7 are sent", 10_000_000, |n| sent(n).len() == 2);
    assert_eq!(lists(&net), [vec![3, 7]]);
    assert_eq!(sent(&net), [3, 7]);

    // 2. 22 and 44 are posted; no list may go before the 3 bytes have landed (CR-11).
    recv(&mut net, &[22, 44]);
    net.settle(50_000);
    assert_eq!(lists(&net), [vec![3, 7]]);
    assert_eq!(sent(&net), [3, 7]);

    // 3. The 3 bytes land: [22, 44] goes. 4. The sender sends 22, 5. and the last 40.
    net.release(0, 1);
    net.run_until("22 and 40 are sent", 10_000_000, |n| sent(n).len() == 4);
    assert_eq!(lists(&net), [vec![3, 7], vec![22, 44]]);
    assert_eq!(sent(&net), [3, 7, 22, 40]);
    let all = recv(&mut net, &[11]);
    net.settle(50_000);
    assert_eq!(lists(&net).len(), 2, "22 has not landed");

    // 6. 7 lands: still no list. 22 lands: [11].
    net.release(0, 1);
    net.settle(50_000);
    assert_eq!(lists(&net).len(), 2, "22 has not landed");
    net.release(0, 1);
    net.run_until("[11] is announced", 10_000_000, |n| lists(n).len() == 3);
    assert_eq!(lists(&net), [vec![3, 7], vec![22, 44], vec![11]]);
    assert_eq!(net.wires[0].held.len(), 1, "the last 40 bytes");
    net.unhold(0);

    let mut got = Vec::new();
    let mut sends = Vec::new();
    net.run_until("completions", 10_000_000, |n| {
        got.extend(n.hosts[1].poll_cq(CQN));
        sends.extend(n.hosts[0].poll_cq(CQN));
        got.len() == 4 && sends.len() == 1
    });
    assert_eq!(got.iter().map(|c| c.byte_len).collect::<Vec<_>>(), [3, 7, 22, 40]);
    assert_eq!(got.iter().map(|c| c.remaining).collect::<Vec<_>>(), [69, 62, 40, 0], "bytes remaining in band (CR-9)");
    assert_eq!((sends[0].wr_id, sends[0].status), (72, WC_OK));
    let mut bytes = Vec::new();
    for (c, &(va, len)) in got.iter().zip(&all) {
        assert_eq!(c.wr_id, u64::from(len));
        bytes.extend(net.hosts[1].read(ASID, va, c.byte_len as usize));
        // The rest of the 44-byte buffer is not touched.
        assert!(
            net.hosts[1].read(ASID, va + u64::from(c.byte_len), (len - c.byte_len) as usize).iter().all(|&b| b == 0)
        );
    }
    assert_eq!(bytes, data);
    assert_eq!(sent(&net), [3, 7, 22, 40]);
    let frames = net.wires[1].sent.iter().filter(|frame| !numbered_lists(std::slice::from_ref(frame), QP_A).is_empty());
    let carried = frames.filter_map(|frame| roce(frame)).map(|bth| (bth.opcode, bth.qpn)).collect();
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
    carried
}

fn random_stream(seed: u64, len: usize, faults: Option<(f64, f64, f64, f64)>, limit: u64) {
    let timeout = if faults.is_some() { 60_000 } else { 0 };
    let a = QpCreate { timeout, retries: 30, ..qp(QP_A) };
    let b = QpCreate { timeout, retries: 30, ..qp(QP_B) };
    let mut net = pair(
        seed,
        |_, c| {
            c.mtu = 1024;
            c.card.out_of_order = true;
        },
        a,
        b,
    );
    let mut rng = Rng(seed);
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(len));
    s.chunks.clear();
    let mut left = len;
    while left > 0 {
        let n = (rng.between(1, 3) as usize).min(left);
        let mut sges = Vec::new();
        for _ in 0..n {
            let x = (rng.between(1, 20_000) as usize).min(left);
            if x > 0 {
                sges.push(x);
            }
            left -= x;
        }
        s.chunks.push_back(sges);
    }
    let mut r = Rng(seed ^ 99);
    s.sizes = Box::new(move || {
        let n = r.between(1, 3);
        (0..n).map(|_| if r.below(4) == 0 { r.between(1, 64) } else { r.between(1, 9000) } as u32).collect()
    });
    let mut r = Rng(seed ^ 77);
    s.alignment = Box::new(move || r.draw());
    if let Some((loss, dup, reorder, corrupt)) = faults {
        net.faults = Faults { loss, dup, reorder, corrupt, seed };
    }
    let mut streams = [s];
    let start = net.hosts[0].card.cycles();
    run(&mut net, &mut streams, limit);
    println!(
        "{len} bytes in {} cycles; wire faults lost/doubled/reordered/corrupted {:?} and {:?}; resent {}, bad iCRC {}",
        net.hosts[0].card.cycles() - start,
        net.wires[0].faults,
        net.wires[1].faults,
        net.hosts[0].rtl_counter(C_FP_AGAIN),
        net.hosts[1].rtl_counter(berth_abi::counters::C_RX_BAD_ICRC),
    );
    net.faults = Faults::default();
    if faults.is_none() {
        // Seen from outside: each piece is covered by the credit of its number (CR-2).
        let credits: Vec<u32> = credit_lists(&net.wires[1].sent, QP_A).concat();
        let pieces = piece_lengths(&net.wires[0].sent, QP_B);
        assert!(pieces.len() <= credits.len());
        for (n, (piece, credit)) in pieces.iter().zip(&credits).enumerate() {
            assert!(*piece <= *credit as usize, "piece {n} of {piece} bytes against a credit of {credit}");
        }
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
    for host in &net.hosts {
        println!("pinned at most {} bytes, {} page requests", host.pager.peak[2], host.pager.requests);
    }
}

#[test]
fn cr_2_random_sends_fill_random_receives_in_order() {
    random_stream(seed(2), 256 << 10, None, 60_000_000);
}

#[test]
fn qp_7_random_stream_survives_loss_duplication_reordering_and_corruption() {
    random_stream(seed(3), 256 << 10, Some((0.02, 0.02, 0.02, 0.02)), 400_000_000);
}

/// CR-6 to CR-9: lists go by what the receiver measures of its sender, and by another trigger as soon as it is asked for.
/// Firmware has one event for a list at most, and none with a fixed trigger.
#[test]
fn cr_6_to_cr_9_lists_go_by_what_is_measured_and_by_another_trigger_when_asked() {
    let seed = seed(31);
    let mut net = pair(seed, |_, c| c.mtu = 1024, qp(QP_A), QpCreate { trigger: TRIGGER_AUTO, ..qp(QP_B) });
    let part = 24 << 10;
    let triggers = [
        (TRIGGER_AUTO, 0),
        (TRIGGER_ADAPTIVE, 0),
        (TRIGGER_TIMED, 0),
        (TRIGGER_QUARTERS, 3),
        (TRIGGER_PREDICTIVE, 0),
        (TRIGGER_BEHIND, 2),
        (TRIGGER_AUTO, 0),
    ];
    let mut stream = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(part * triggers.len()));
    stream.sizes = Box::new(|| vec![1500]);
    stream.depth = 24;
    let mut streams = [stream];
    let change = |net: &mut Net, trigger, trigger_index| {
        let cookie = net.hosts[1].submit(QpTrigger { qpn: QP_B, trigger, trigger_index }.encode());
        let mut status = u32::MAX;
        net.run_until("CMD_QP_TRIGGER", 10_000_000, |n| {
            n.hosts[1].done(cookie).map(|answer| status = answer.status).is_some()
        });
        status
    };
    let seen = |net: &mut Net| {
        let lists = credit_lists(&net.wires[1].sent, QP_A).len() as u32;
        let [reports, events] =
            [F_CREDIT_REPORTS, F_FAST_EVENTS].map(|counter| net.hosts[1].fw_counter(counter) as u32);
        [lists, reports, events]
    };
    for (n, (trigger, index)) in (1..).zip(triggers) {
        assert_eq!(change(&mut net, trigger, index), CMD_OK);
        let before = seen(&mut net);
        let from = net.hosts[1].card.cycles();
        net.run_until("a part of the stream", 20_000_000, |net| {
            step(net, &mut streams);
            streams[0].received.len() >= n * part
        });
        let after = seen(&mut net);
        let [lists, reports, events] = [0, 1, 2].map(|i| after[i] - before[i]);
        println!("trigger {trigger}: {lists} lists, {reports} reports, {} cycles", net.hosts[1].card.cycles() - from);
        assert_eq!(events, 0);
        // What was on its way when the trigger changed may be told, or not.
        match trigger {
            TRIGGER_ADAPTIVE.. => assert!(reports > 0 && reports <= lists + 1, "{reports} reports of {lists} lists"),
            _ => assert!(reports <= 1, "{reports} reports"),
        }
    }
    run(&mut net, &mut streams, 20_000_000);
    for (trigger, index) in [(TRIGGER_AUTO + 1, 0), (TRIGGER_QUARTERS, 4), (TRIGGER_AUTO, 1), (TRIGGER_FIRST, 1)] {
        assert_eq!(change(&mut net, trigger, index), CMD_INVALID, "{trigger} {index}");
    }
    let nobody = net.hosts[1].command(QpTrigger { qpn: QP_B - 1, ..QpTrigger::default() }.encode());
    assert_eq!(nobody.status, CMD_NOT_FOUND);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

/// CR-10: in any time t no more lands than burst + rate x t. A sender below its maximum does not notice it, and the maximum
/// can be changed and ended while data come.
#[test]
fn cr_10_no_more_lands_than_the_maximum_and_below_it_nobody_notices() {
    let seed = seed(32);
    let mut net = pair(seed, |_, c| c.mtu = 1024, qp(QP_A), qp(QP_B));
    let part = 64 << 10;
    // 256ths of a byte in 64 cycles; bytes at once.
    let caps =
        [None, None, Some((256 * 64 * 8, 64_000)), Some((256 * 64 / 4, 8_000)), Some((256 * 64 / 16, 4_000)), None];
    let mut stream = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(part * caps.len()));
    stream.sizes = Box::new(|| vec![1500]);
    stream.depth = 24;
    let mut streams = [stream];
    let set = |net: &mut Net, rate, burst| {
        let cookie = net.hosts[1].submit(QpCap { qpn: QP_B, rate, burst }.encode());
        let mut status = u32::MAX;
        net.run_until("CMD_QP_CAP", 10_000_000, |n| n.hosts[1].done(cookie).map(|a| status = a.status).is_some());
        status
    };
    let mut took = Vec::new();
    for (n, cap) in (1..).zip(caps) {
        let (rate, burst) = cap.unwrap_or((0, 0));
        assert_eq!(set(&mut net, rate, burst), CMD_OK);
        // Bytes that may still land, in 256ths, times 64 cycles. What was announced before may be more than the
        // burst; of two receives more, data are on their way.
        let whole = i128::from(burst) * 256 * 64;
        let mut level = whole.max(i128::from(credits_out(&mut net, 1, QP_B) + 2) * 1500 * 256 * 64);
        let placed = |net: &mut Net| net.hosts[1].rtl_counter(C_FP_BYTES_PLACED);
        let from = net.hosts[1].card.cycles();
        let (mut at, mut last, mut half) = (from, placed(&mut net), from);
        net.run_until("a part of the stream", 40_000_000, |net| {
            step(net, &mut streams);
            // A look at a counter is clocks of this card alone: as many with a maximum as without.
            let (now, bytes) = (net.hosts[1].card.cycles(), placed(net));
            if cap.is_some() {
                level = level.max(whole.min(level + i128::from(rate) * i128::from(now - at)));
                level -= i128::from(bytes - last) * 256 * 64;
                (at, last) = (now, bytes);
                assert!(level >= 0, "part {n}: {} bytes too many", -level / (256 * 64));
            }
            let now = net.hosts[1].card.cycles();
            if streams[0].received.len() < n * part - part / 2 {
                half = now;
            }
            streams[0].received.len() >= n * part
        });
        let now = net.hosts[1].card.cycles();
        took.push((now - from, now - half));
        println!("{cap:?}: {} cycles, {} of them for the second half", now - from, now - half);
    }
    let (without, below) = (took[1].0, took[2].0);
    assert!(below < without + without / 50, "{below} cycles far below its maximum, {without} without one");
    run(&mut net, &mut streams, 40_000_000);
    for (cap, (_, took)) in caps.iter().zip(&took).skip(3).filter_map(|(cap, took)| cap.map(|cap| (cap, took))) {
        let wanted = (part as u64 / 2) * 256 * 64 / u64::from(cap.0);
        assert!(took.abs_diff(wanted) < wanted / 10, "{cap:?}: {took} cycles for what takes {wanted}");
    }
    for (rate, burst) in [(0, 1), (1 << 24, 1), (1, 1 << 31)] {
        assert_eq!(set(&mut net, rate, burst), CMD_INVALID);
    }
    let nobody = net.hosts[1].command(QpCap { qpn: QP_B - 1, ..QpCap::default() }.encode());
    assert_eq!(nobody.status, CMD_NOT_FOUND);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn cr_14_both_ends_send_at_once() {
    let seed = seed(4);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut rng = Rng(seed);
    let mut streams = [
        Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(64 << 10)),
        Stream::new(&mut net, (1, QP_B), (0, QP_A), rng.bytes(64 << 10)),
    ];
    run(&mut net, &mut streams, 60_000_000);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn qp_18_loopback_between_two_qps_of_one_card() {
    let seed = seed(5);
    let mut host = Host::new(HostConfig { seed, ..HostConfig::default() });
    host.start(&image());
    host.create_cq(CQN, UAR, 8);
    host.create_qp(qp(QP_A));
    host.create_qp(qp(QP_B));
    let mut net = Net::new(vec![host]);
    net.connect(0, QP_A, 0, QP_B, SERVICE);
    let mut streams = [Stream::new(&mut net, (0, QP_A), (0, QP_B), Rng(seed).bytes(64 << 10))];
    run(&mut net, &mut streams, 60_000_000);
    assert!(net.hosts[0].rtl_counter(C_LOOPBACK_FRAMES) > 16);
    assert_eq!(net.hosts[0].rtl_counter(C_TX_FRAMES), 1, "nothing goes to the wire but the probe for its address");
    finish(&mut net, &[(0, QP_A), (0, QP_B)]);
}

#[test]
fn pc_3_budget_of_a_few_pages_is_kept_and_the_stream_goes_on() {
    let seed = seed(6);
    let budget = 12 * PAGE;
    let mut net = pair(seed, |_, c| c.budget = budget, QpCreate { block: 8192, ..qp(QP_A) }, qp(QP_B));
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(128 << 10));
    s.sizes = Box::new(|| vec![8192]);
    s.depth = 32;
    let mut streams = [s];
    run(&mut net, &mut streams, 100_000_000);
    for host in &net.hosts {
        assert!(host.pager.peak[2] <= budget, "{} bytes pinned", host.pager.peak[2]);
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

/// The card holds to new limits at once, but for what it has begun (`Card` checks each transfer).
#[test]
fn inv_6_limits_of_the_slot_change_under_traffic() {
    let seed = seed(23);
    let mut net = pair(seed, |_, c| c.card.out_of_order = true, qp(QP_A), qp(QP_B));
    let mut rng = Rng(seed);
    let mut streams = [((0, QP_A), (1, QP_B)), ((1, QP_B), (0, QP_A))].map(|(from, to)| {
        let mut stream = Stream::new(&mut net, from, to, rng.bytes(300_000));
        stream.chunks = (0..100).map(|_| vec![3_000]).collect();
        stream.sizes = Box::new(|| vec![2_900]);
        stream
    });
    let (mut next, mut changes) = (0, 0);
    net.run_until("streams at their ends", 60_000_000, |net| {
        step(net, &mut streams);
        let now = net.hosts[0].card.cycles();
        if now >= next {
            next = now + rng.between(500, 5_000);
            for host in &mut net.hosts {
                let (payload, read_request) = (rng.between(7, 12) as u32, rng.between(7, 12) as u32);
                host.card.set_pcie_limits(PcieLimits::from_log2(payload, read_request));
                changes += 1;
            }
        }
        streams.iter().all(Stream::finished)
    });
    assert!(changes > 20, "{changes} changes");
    for s in &streams {
        assert!(s.received == s.data, "bytes differ: {} received, {} sent", s.received.len(), s.data.len());
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

/// Runs a stream until `bytes` have arrived.
fn run_some(net: &mut Net, s: &mut Stream, bytes: usize) {
    net.run_until("some bytes", 60_000_000, |net| {
        s.post(net);
        for host in 0..2 {
            for c in net.hosts[host].poll_cq(CQN) {
                s.complete(net, host, &c);
            }
        }
        s.received.len() >= bytes
    });
}

/// After memory of host `d` was revoked: waits for the command's end and for a QP error on
/// that host, then checks that nothing is left.
fn after_revocation(net: &mut Net, d: usize, cookie: u32) -> u32 {
    net.run_until("CMD_RANGE_REVOKED", 100_000_000, |n| n.hosts[d].done(cookie).is_some());
    net.unhold(0);
    let mut error = QpError::default();
    net.run_until("EV_QP_ERROR", 400_000_000, |n| n.hosts[d].take_event().map(|event| error = event).is_some());
    for (host, qpn) in [(0, QP_A), (1, QP_B)] {
        let w = QpDestroy { qpn }.encode();
        let destroy = net.hosts[host].submit(w);
        net.run_until("CMD_QP_DESTROY", 400_000_000, |n| n.hosts[host].done(destroy).is_some());
    }
    net.wait_unpinned();
    for host in &mut net.hosts {
        assert_eq!(host.violations(), [], "invariant 4");
    }
    error.reason
}

#[test]
fn vc_9_send_memory_revoked_in_mid_transfer_ends_the_qp_and_nothing_is_touched() {
    let seed = seed(10);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let len = 256 << 10;
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(len));
    run_some(&mut net, &mut s, 40_000);
    let cookie = net.hosts[0].revoke(ASID, s.source, len as u64);
    let reason = after_revocation(&mut net, 0, cookie);
    assert!([REASON_SEND_FAILED, REASON_WITHDRAWN].contains(&reason), "reason {reason}");
    let sends = net.hosts[0].poll_cq(CQN);
    assert_eq!(sends.iter().map(|c| c.status).collect::<Vec<_>>(), [WC_LOCAL_PROTECTION]);
    assert!(s.data.starts_with(&s.received), "what has arrived is right");
}

#[test]
fn vc_9_granted_receive_memory_revoked_in_mid_transfer_is_not_written_any_more() {
    let seed = seed(11);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(1 << 20));
    run_some(&mut net, &mut s, 40_000);
    // Some are announced, and their data waits at the wire until the memory is gone.
    loop {
        net.hold(0, is_data);
        net.run_until("data at the wire", 60_000_000, |net| {
            s.post(net);
            for c in net.hosts[1].poll_cq(CQN) {
                s.complete(net, 1, &c);
            }
            !net.wires[0].held.is_empty()
        });
        if credits_out(&mut net, 1, QP_B) > 1 {
            break;
        }
        // Of the one list that may be out one credit was left: the next comes behind its proof.
        net.unhold(0);
    }
    // All receives that are posted, granted ones among them.
    let first = s.recvs.iter().flat_map(|r| &r.1).map(|x| x.0).min().expect("posted receives");
    let last = s.recvs.iter().flat_map(|r| &r.1).map(|x| x.0 + u64::from(x.1)).max().expect("posted receives");
    let cookie = net.hosts[1].revoke(ASID, first, last - first);
    assert_eq!(after_revocation(&mut net, 1, cookie), REASON_WITHDRAWN);
}

#[test]
fn cycles_per_packet() {
    let mut net = pair(1, |_, c| c.limits = (9, 12), qp(QP_A), qp(QP_B));
    let len = 512 << 10;
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(1).bytes(len));
    s.sizes = Box::new(|| vec![16384]);
    s.depth = 32;
    let before: Vec<_> = net.hosts.iter_mut().map(|h| (h.card.cycles(), h.rtl_counter(C_IDLE_CYCLES))).collect();
    let mut streams = [s];
    run(&mut net, &mut streams, 60_000_000);
    let packets = (len / 4096) as u64;
    for (host, (cycles, idle)) in net.hosts.iter_mut().zip(before) {
        let all = host.card.cycles() - cycles;
        let busy = all - (host.rtl_counter(C_IDLE_CYCLES) - idle);
        println!(
            "{packets} packets of 4096 bytes: {} cycles each, core busy {} cycles each, {:.2} cycles per byte",
            all / packets,
            busy / packets,
            all as f64 / len as f64
        );
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

/// From the command that asks for a connection to the event at both ends, with applications that answer at once. The first
/// connection to a peer takes longer: its address is asked for, and both ends say who they are.
#[test]
fn connecting_to_a_known_peer_takes_at_most_30_000_cycles() {
    let image = image();
    let hosts = (0..2).map(|d| {
        let mut host = Host::new(HostConfig { seed: 1 + d, ipv4: 0x0a00_0001 + d as u32, ..HostConfig::default() });
        host.start(&image);
        host
    });
    let mut net = Net::new(hosts.collect());
    let listen = net.hosts[1].command(Listen { service: SERVICE }.encode());
    assert_eq!(listen.status, CMD_OK);
    let look = |net: &mut Net| -> Vec<_> {
        net.hosts.iter_mut().map(|h| (h.card.cycles(), h.rtl_counter(C_IDLE_CYCLES))).collect()
    };
    for round in 0..3 {
        let mut before = look(&mut net);
        let mut figure = |net: &mut Net, name: &'static str| {
            let now = look(net);
            for (d, (was, is)) in before.iter().zip(&now).enumerate() {
                let cycles = is.0 - was.0;
                if cycles > 100 {
                    println!("round {round}, {name}: card {d} {cycles} cycles, core busy {}", cycles - (is.1 - was.1));
                }
            }
            let cycles = now[0].0 - before[0].0;
            before = now;
            cycles
        };
        net.hosts[0].create_cq(CQN, UAR, 8);
        figure(&mut net, "create a CQ");
        net.hosts[1].create_cq(CQN, UAR, 8);
        figure(&mut net, "create a CQ");
        net.hosts[0].create_qp(qp(QP_A));
        figure(&mut net, "create a QP");
        net.hosts[1].create_qp(qp(QP_B));
        figure(&mut net, "create a QP");
        net.join(0, QP_A, 1, QP_B, SERVICE);
        let connecting = figure(&mut net, "connect");
        net.settle(10_000);
        figure(&mut net, "settle");
        let disconnect = net.hosts[0].submit(Disconnect { qpn: QP_A }.encode());
        net.run_until("CMD_CM_DISCONNECT", 10_000_000, |n| n.hosts[0].done(disconnect).is_some());
        for d in [0, 1] {
            net.run_until("EV_CM_CLOSED", 10_000_000, |n| n.hosts[d].take_event::<CmClosed>().is_some());
        }
        figure(&mut net, "disconnect");
        for (d, qpn) in [(0, QP_A), (1, QP_B)] {
            let destroy = net.hosts[d].submit(QpDestroy { qpn }.encode());
            net.run_until("CMD_QP_DESTROY", 10_000_000, |n| n.hosts[d].done(destroy).is_some());
            figure(&mut net, "destroy a QP");
        }
        for d in [0, 1] {
            assert_eq!(net.hosts[d].command(CqDestroy { cqn: CQN }.encode()).status, CMD_OK);
            figure(&mut net, "destroy a CQ");
        }
        // The small card's firmware lies in a slower RAM.
        assert!(round == 0 || cfg!(feature = "small") || connecting <= 30_000, "{connecting} cycles");
    }
}

/// Issue "The fast path": page misses go to the host's event ring and come back as commands to RTL.
#[test]
fn ten_thousand_packets_with_page_misses_bring_firmware_no_event() {
    let seed = seed(12);
    let mut net = pair(seed, |_, c| c.mtu = 256, qp(QP_A), qp(QP_B));
    let mut rng = Rng(seed);
    let len = 1_310_720;
    let mut streams = [
        Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(len)),
        Stream::new(&mut net, (1, QP_B), (0, QP_A), rng.bytes(len)),
    ];
    let counters = [C_FP_PACKETS, C_FP_TAKEN, C_XLT_MISSES, C_FW_FRAMES];
    let look = |host: &mut Host| counters.map(|c| host.rtl_counter(c));
    net.settle(10_000);
    let before: Vec<_> = net.hosts.iter_mut().map(look).collect();
    run(&mut net, &mut streams, 60_000_000);
    let mut packets = 0;
    for (host, before) in net.hosts.iter_mut().zip(before) {
        let [sent, taken, misses, firmware] = std::array::from_fn(|i| look(host)[i] - before[i]);
        println!("{sent} packets sent, {taken} taken, {misses} page misses, {firmware} frames for firmware");
        packets += sent;
        assert!(taken >= (len / 256) as u64 && misses >= (len as u64 / PAGE) * 2);
        assert_eq!(firmware, 0, "all frames are RTL's");
        assert_eq!(host.fw_counter(F_FAST_EVENTS), 0);
        assert_eq!(host.rtl_counter(C_FP_AGAIN), 0);
    }
    assert!(packets >= 10_000, "{packets} packets");
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

/// A QP in message mode.
fn message(qpn: u32) -> QpCreate {
    QpCreate { mode: MODE_MESSAGE, ..qp(qpn) }
}

#[test]
fn cr_17_in_message_mode_a_send_fills_one_receive_or_fails_by_itself() {
    let mut net = pair(seed(15), |_, _| {}, message(QP_A), message(QP_B));
    let data = Rng(seed(15)).bytes(20_000);
    // Receives, sends in their order, and what becomes of them; a receive and a send of no bytes count too (decision 10).
    let receives = [100, 8, 12_288, 0, 50];
    let sends = [(60, WC_OK), (9, WC_TOO_LONG), (8, WC_OK), (12_288, WC_OK), (1, WC_TOO_LONG), (0, WC_OK), (50, WC_OK)];
    let rooms = receives.map(|len: u32| (net.hosts[1].alloc(ASID, len.max(1).into(), 300, true), len));
    for (i, &room) in rooms.iter().enumerate() {
        net.hosts[1].put_recv(QP_B, i as u64, &[room][..(room.1 != 0) as usize]);
    }
    let source = net.hosts[0].alloc(ASID, data.len() as u64, 77, false);
    net.hosts[0].write(ASID, source, &data);
    for (i, &(len, _)) in sends.iter().enumerate() {
        net.hosts[0].put_send(QP_A, i as u64, 0, &[(source, len)][..(len != 0) as usize]);
    }
    net.hosts[1].ring_recv(QP_B);
    net.hosts[0].ring_send(QP_A);
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    net.run_until("completions", 10_000_000, |n| {
        sent.extend(n.hosts[0].poll_cq(CQN));
        got.extend(n.hosts[1].poll_cq(CQN));
        sent.len() == sends.len() && got.len() == receives.len()
    });
    let expected: Vec<_> = sends.iter().enumerate().map(|(i, s)| (i as u64, s.1)).collect();
    assert_eq!(sent.iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), expected);
    let fitting: Vec<u32> = sends.iter().filter(|s| s.1 == WC_OK).map(|s| s.0).collect();
    assert_eq!(
        got.iter().map(|c| (c.status, c.byte_len)).collect::<Vec<_>>(),
        fitting.iter().map(|&n| (WC_OK, n)).collect::<Vec<_>>()
    );
    for (&(va, _), &len) in rooms.iter().zip(&fitting) {
        assert_eq!(net.hosts[1].read(ASID, va, len as usize), data[..len as usize]);
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn cr_17_a_queue_pair_of_the_other_mode_cannot_accept() {
    let mut net = pair(seed(16), |_, _| {}, qp(QP_A), qp(QP_B));
    net.hosts[0].create_qp(message(QP_A + 1));
    net.hosts[1].create_qp(qp(QP_B - 2));
    net.hosts[1].create_qp(message(QP_B - 1));
    let ipv4 = net.hosts[1].config().ipv4;
    let connect = Connect { qpn: QP_A + 1, ipv4, service: SERVICE, ..Connect::default() };
    assert_eq!(net.hosts[0].command(connect.encode()).status, CMD_OK);
    let mut request = CmRequest::default();
    net.run_until("EV_CM_REQUEST", 500_000_000, |n| n.hosts[1].take_event().map(|event| request = event).is_some());
    let CmRequest { request, mode, .. } = request;
    assert_eq!(mode, u32::from(MODE_MESSAGE));
    let mut accept = |qpn| {
        let accept = Accept { request, qpn, ..Accept::default() };
        net.hosts[1].command(accept.encode()).status
    };
    assert_eq!((accept(QP_B - 2), accept(QP_B - 1)), (CMD_INVALID, CMD_OK));
    net.run_until("EV_CM_ESTABLISHED", 500_000_000, |n| n.hosts[0].take_event::<CmEstablished>().is_some());
    finish(&mut net, &[(0, QP_A), (1, QP_B), (0, QP_A + 1), (1, QP_B - 1), (1, QP_B - 2)]);
}

/// Cycles for a byte of a stream of messages of `message` bytes into receives of `receive` bytes, `depth` of them posted, on a
/// new connection.
fn cycles_per_byte(net: &mut Net, seed: u64, message: usize, receive: usize, depth: usize) -> f64 {
    net.hosts[0].create_qp(qp(QP_A));
    net.hosts[1].create_qp(qp(QP_B));
    net.join(0, QP_A, 1, QP_B, SERVICE);
    let most = (96 << 10).max(message * 24);
    let len = (message.max(receive) * depth * 3).clamp(message * 24, most).next_multiple_of(message);
    let mut s = Stream::new(net, (0, QP_A), (1, QP_B), Rng(seed).bytes(len));
    s.chunks = (0..len / message).map(|_| vec![message]).collect();
    s.sizes = Box::new(move || vec![receive as u32]);
    s.depth = depth;
    let start = net.hosts[0].card.cycles();
    run(net, std::slice::from_mut(&mut s), 100_000_000);
    let cycles = net.hosts[0].card.cycles() - start;
    finish(net, &[(0, QP_A), (1, QP_B)]);
    // Receives that were left are flushed.
    for host in &mut net.hosts {
        host.poll_cq(CQN);
    }
    cycles as f64 / len as f64
}

/// Of neighbours each parameter is twice the other's, so that no more than half of the rate is theirs by nature.
/// `BERTH_CASES` cells, with their neighbours, from `BERTH_SEED`; 0 for all.
#[test]
fn cr_2_no_cell_of_message_size_receive_size_and_depth_is_below_a_third_of_its_neighbours() {
    let seed = seed(18);
    let (sizes, depths) = (8u32, 4u32);
    let cases = std::env::var("BERTH_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut net = pair(seed, |_, c| c.limits = (9, 12), qp(QP_A), qp(QP_B));
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
    let mut rates = std::collections::HashMap::new();
    let mut rate = |(m, r, d): (u32, u32, u32)| {
        *rates.entry((m, r, d)).or_insert_with(|| cycles_per_byte(&mut net, seed, 64 << m, 64 << r, 4 << d))
    };
    let mut rng = Rng(seed);
    let all: Vec<_> =
        (0..sizes).flat_map(|m| (0..sizes).flat_map(move |r| (0..depths).map(move |d| (m, r, d)))).collect();
    let chosen = match cases {
        0 => all,
        n => (0..n).map(|_| all[rng.below(all.len() as u64) as usize]).collect(),
    };
    let mut cliffs = Vec::new();
    for (m, r, d) in chosen {
        let here = rate((m, r, d));
        let neighbours = [(m + 1, r, d), (m, r + 1, d), (m, r, d + 1)]
            .into_iter()
            .chain(m.checked_sub(1).map(|m| (m, r, d)))
            .chain(r.checked_sub(1).map(|r| (m, r, d)))
            .chain(d.checked_sub(1).map(|d| (m, r, d)))
            .filter(|n| n.0 < sizes && n.1 < sizes && n.2 < depths);
        for n in neighbours {
            let there = rate(n);
            if here > 3.0 * there {
                cliffs.push(((m, r, d), here, n, there));
            }
        }
    }
    let mut rates: Vec<_> = rates.into_iter().collect();
    rates.sort_by_key(|r| r.0);
    for ((m, r, d), rate) in rates {
        println!("messages of {}, receives of {}, {} posted: {rate:.3} cycles per byte", 64 << m, 64 << r, 4 << d);
    }
    assert!(cliffs.is_empty(), "cliffs (log2 of sizes from 64 and depth from 4, cycles per byte): {cliffs:?}");
}

/// What a list of them holds lasts for a fraction of the round trip, in which nothing else may be sent.
#[test]
fn cr_2_lists_of_receives_that_are_hardly_filled_are_longer() {
    let seed = seed(19);
    let mut net = pair(seed, |_, c| c.limits = (9, 12), qp(QP_A), qp(QP_B));
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
    let [sparse, denser] = [512, 1024].map(|message| cycles_per_byte(&mut net, seed, message, 8192, 32));
    println!("messages of 512 and 1024 bytes into receives of 8192: {sparse:.3} and {denser:.3} cycles per byte");
    assert!(sparse < 2.5 * denser && sparse < 1.0, "{sparse:.3} and {denser:.3} cycles per byte");
}

/// Longer than the low half of the card's clock has bits for; then, with a credit list without proof, which is told again and
/// again, longer than the engines' own times have.
#[test]
fn qp_7_connections_that_were_idle_while_the_clocks_wrapped_go_on() {
    const SIZE: u32 = 5_000;
    let seed = seed(17);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut random = Rng(seed);
    let ends = [QP_A, QP_B];
    // What a receive is to hold: where it lies, of which send it is.
    let mut rooms = BTreeMap::new();
    let mut receive = |net: &mut Net, to: usize, id: u64, of: u64| {
        let room = net.hosts[to].alloc(ASID, SIZE.into(), id, true);
        net.hosts[to].post_recvs(ends[to], &[(id, vec![(room, SIZE)])]);
        rooms.insert(id, (to, room, of));
    };
    let mut sent = BTreeMap::new();
    let mut send = |net: &mut Net, from: usize, id: u64| {
        let data = net.hosts[from].alloc(ASID, SIZE.into(), id, false);
        let bytes = random.bytes(SIZE as usize);
        net.hosts[from].write(ASID, data, &bytes);
        net.hosts[from].post_send(ends[from], id, &[(data, SIZE)]);
        sent.insert(id, bytes);
    };
    let done = |net: &mut Net, mut ids: Vec<u64>| {
        net.run_until("both ends' completions", 10_000_000, |net| {
            for c in net.hosts.iter_mut().flat_map(|host| host.poll_cq(CQN)) {
                assert_eq!((c.status, c.byte_len), (WC_OK, SIZE), "{c:?}");
                let left = ids.len();
                ids.retain(|id| *id != c.wr_id);
                assert_eq!(ids.len(), left - 1, "a completion of what was not posted, or a second one: {c:?}");
            }
            ids.is_empty()
        });
    };
    let counters = |net: &mut Net| -> Vec<_> {
        let of = |h: &mut Host| (h.rtl_counter(C_FP_AGAIN), h.fw_counter(F_TIMEOUTS), h.fw_counter(F_FAST_EVENTS));
        net.hosts.iter_mut().map(of).collect()
    };
    receive(&mut net, 1, 1, 2);
    send(&mut net, 0, 2);
    done(&mut net, vec![1, 2]);
    let before = counters(&mut net);
    for (round, (idle, listed)) in (1..).zip([((1u64 << 32) + 12_345, false), ((1 << 27) + 77, true)]) {
        // One direction has data and waits for a receive, the other may have its receive announced and wait for data.
        let ids: [u64; 4] = std::array::from_fn(|n| 10 * round + n as u64);
        send(&mut net, 1, ids[0]);
        if listed {
            receive(&mut net, 1, ids[1], ids[3]);
        }
        let end = net.hosts[0].card.cycles() + idle;
        net.run_until("time to pass", idle + 100_000_000, |net| net.hosts[0].card.cycles() >= end);
        assert_eq!(counters(&mut net), before, "nothing went again, and nobody had to decide");
        if !listed {
            receive(&mut net, 1, ids[1], ids[3]);
        }
        receive(&mut net, 0, ids[2], ids[0]);
        send(&mut net, 0, ids[3]);
        done(&mut net, ids.to_vec());
        assert_eq!(counters(&mut net), before);
    }
    for (id, (host, room, of)) in rooms {
        assert_eq!(net.hosts[host].read(ASID, room, SIZE as usize), sent[&of], "receive {id} holds send {of}");
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}
