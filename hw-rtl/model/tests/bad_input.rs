// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bad input from the wire, from processes and from the driver's ring, against the real
//! firmware on the Verilated card: each gets a defined answer and a counter, and what is
//! beside it goes on (invariant 6). The image comes from `BERTH_FW_IMAGE`.

mod grammar;
mod pair;

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::cpu::LIST_EARLY;
use berth_abi::host::*;
use berth_abi::message::{CODE, Connect, Disconnect, QpDestroy, QpError, Typed, code};
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wire::*;
use berth_protocol::wire::berth::Placement;
use berth_protocol::wire::records::record;
use berth_rtl::BAR_DOORBELL;
use berth_rtl_host::*;
use grammar::{forge, seal};
use pair::*;

/// Data packets that host `d` has dropped as duplicates.
fn duplicates(net: &mut Net, d: usize) -> u64 {
    net.hosts[d].rtl_counter(C_FP_DUPLICATES)
}

#[test]
fn inv_6_bad_frames_are_counted_and_the_stream_goes_on() {
    let mut net = pair(1, |_, _| {}, qp(QP_A), qp(QP_B));
    small_stream(&mut net, 1);
    let like = last(&net, 0, |b| b.qpn == QP_B);
    let psn = roce(&like).expect("RoCE").psn;
    let inject = |net: &mut Net, frame: Vec<u8>| net.hosts[1].card.push_rx(frame);

    inject(&mut net, forge(&like, BTH_SEND_ONLY, 99, 5, &[1, 2, 3]));
    wait_counter(&mut net, 1, F_UNKNOWN_QP, 1);
    inject(&mut net, forge(&like, BTH_SEND_ONLY, 0xff_ffff, 5, &[]));
    wait_counter(&mut net, 1, F_UNKNOWN_QP, 2);
    for opcode in [0x06, 0x0c, 0x1f, BTH_UD_SEND_ONLY, 0xff] {
        inject(&mut net, forge(&like, opcode, QP_B, psn + 1, &[0; 64]));
    }
    wait_counter(&mut net, 1, F_BAD_OPCODE, 5);
    // An IPv4 header that says another end node.
    let mut frame = like.clone();
    frame[33] ^= 0x40;
    seal(&mut frame);
    inject(&mut net, frame);
    wait_counter(&mut net, 1, F_NOT_FOR_US, 1);
    // UDP length that contradicts IPv4's.
    let mut frame = like.clone();
    let udp = u16::from_be_bytes([frame[38], frame[39]]) - 4;
    frame[38..40].copy_from_slice(&udp.to_be_bytes());
    seal(&mut frame);
    inject(&mut net, frame);
    wait_counter(&mut net, 1, F_BAD_HEADER, 1);
    // Acknowledgements for what was never sent: one of them is ahead of the QP's PSN, the other behind.
    inject(&mut net, forge(&like, BTH_ACKNOWLEDGE, QP_B, 0x12_3456, &[0x1f, 0, 0, 0]));
    inject(&mut net, forge(&like, BTH_ACKNOWLEDGE, QP_B, 0x92_3456, &[0x1f, 0, 0, 0]));
    net.run_until("a wrong acknowledgement", 20_000_000, |n| {
        n.hosts[1].fw_counter(F_BAD_ACK) + n.hosts[1].rtl_counter(C_FP_BAD_ACKS) == 1
    });
    assert_eq!(net.hosts[1].fw_counter(F_FAST_EVENTS), 0, "RTL counts them itself");
    // A repeated packet and one from the future.
    let before = duplicates(&mut net, 1);
    inject(&mut net, like.clone());
    net.run_until("a duplicate", 20_000_000, |n| duplicates(n, 1) == before + 1);
    let first_packet = Placement { credit: 200, index: 0 }.to_bytes();
    inject(&mut net, forge(&like, 0x05, QP_B, psn + 7, &[&[0; 4], &first_packet[..], &[0; 12]].concat()));
    net.run_until("a packet out of sequence", 20_000_000, |n| n.hosts[1].rtl_counter(C_FP_DROPPED) == 1);
    // One without a placement header, and an acknowledgement whose SACK is cut short.
    inject(&mut net, forge(&like, 0x05, QP_B, psn + 1, &[0; 20]));
    wait_counter(&mut net, 1, F_BAD_HEADER, 2);
    inject(&mut net, forge(&like, BTH_SELECTIVE_ACKNOWLEDGE, QP_B, psn, &[0x1f, 0, 0, 0, 0x40, 0, 0, 0]));
    wait_counter(&mut net, 1, F_BAD_HEADER, 3);
    // These end in RTL.
    let mut frame = like.clone();
    frame[60] ^= 1;
    inject(&mut net, frame);
    inject(&mut net, like[..like.len() - 9].to_vec());
    inject(&mut net, vec![0x55; SLOT_BYTES as usize + 8]);
    net.settle(10_000);
    assert_eq!(net.hosts[1].rtl_counter(C_RX_BAD_ICRC), 1);
    assert_eq!(net.hosts[1].rtl_counter(C_RX_TRUNCATED), 1);
    assert_eq!(net.hosts[1].rtl_counter(C_RX_OVERSIZED), 1);

    alive(&mut net, 1);
    small_stream(&mut net, 2);
    // The packet from the future named a credit that is not there; RTL drops it as long as it does not break the order.
    assert_eq!(net.hosts[1].fw_counter(F_NO_CREDIT), 0);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn inv_1_data_without_a_credit_is_counted_and_ends_the_connection() {
    let mut net = pair(2, |_, _| {}, qp(QP_A), qp(QP_B));
    let other = 40;
    net.hosts[0].create_qp(qp(other));
    net.hosts[1].create_qp(qp(other));
    net.connect(0, other, 1, other, SERVICE + 1);
    // Some data, so that the PSN is known; then no receive is left.
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), vec![7; 8192]);
    s.depth = 2;
    s.sizes = Box::new(|| vec![4096]);
    s.recvs_left = Some(2);
    run(&mut net, std::slice::from_mut(&mut s), 20_000_000);
    let like = last(&net, 0, |b| b.qpn == QP_B);
    let psn = roce(&like).expect("RoCE").psn;
    // Immediate data, the placement header of the third credit's first packet, and data.
    let body = [&[0; 4][..], &Placement { credit: 2, index: 0 }.to_bytes(), &[9; 92]].concat();
    net.hosts[1].card.push_rx(forge(&like, 0x05, QP_B, psn + 1, &body));
    let mut error = QpError::default();
    net.run_until("EV_QP_ERROR", 20_000_000, |n| n.hosts[1].take_event().map(|event| error = event).is_some());
    assert_eq!((error.qpn, error.reason), (QP_B, REASON_PROTOCOL));
    assert_eq!(net.hosts[1].fw_counter(F_NO_CREDIT), 1);
    // The QP beside it lives.
    let mut s = [Stream::new(&mut net, (0, other), (1, other), Rng(3).bytes(10_000))];
    run(&mut net, &mut s, 60_000_000);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, other), (1, other)]);
}

#[test]
fn cr_11_second_list_before_the_proof_is_refused() {
    let mut net = pair(3, |_, _| {}, qp(QP_A), qp(QP_B));
    let va = net.hosts[1].alloc(ASID, 100, 0, true);
    net.hosts[1].post_recvs(QP_B, &[(1, vec![(va, 100)])]);
    net.run_until("first list", 20_000_000, |n| credit_lists(&n.wires[1].sent, QP_A).len() == 1);
    net.settle(50_000);
    // The next message of this control connection, or the next datagram, with credit number 1 for the same QP.
    let opcode = BTH_UD_SEND_ONLY;
    let like = last(&net, 1, |b| b.qpn == CONTROL_QPN && b.opcode == opcode);
    let b = roce(&like).expect("RoCE");
    let mut words: Vec<u32> = b.body.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4"))).collect();
    let epoch = words[words.len() - 3];
    words.truncate(2);
    words.extend([record(REC_LIST, 4, QP_A), epoch, 1, 5000]);
    let body: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let taken = net.hosts[0].rtl_counter(C_LISTS_TAKEN);
    net.hosts[0].card.push_rx(forge(&like, opcode, CONTROL_QPN, (b.psn + 1) & 0xff_ffff, &body));
    wait_counter(&mut net, 0, F_LIST_REFUSED, 1);
    assert_eq!(net.hosts[0].rtl_counter(C_LISTS_TAKEN), taken, "LIST_EARLY is {LIST_EARLY}: not taken");
    assert_eq!(net.hosts[0].rtl_counter(C_LISTS_REFUSED), 1);
    alive(&mut net, 0);
}

#[test]
fn qp_17_vanished_peer_is_noticed_also_without_a_credit() {
    let mut net = pair(4, |_, _| {}, qp(QP_A), qp(QP_B));
    // A has data and no credit; then B is gone.
    let va = net.hosts[0].alloc(ASID, 100, 0, false);
    net.hosts[0].post_send(QP_A, 1, &[(va, 100)]);
    net.settle(50_000);
    net.faults = Faults { loss: 1.0, ..Faults::default() };
    let start = net.hosts[0].card.cycles();
    for d in 0..2 {
        let mut error = QpError::default();
        net.run_until("EV_QP_ERROR", 1_000_000_000, |n| n.hosts[d].take_event().map(|event| error = event).is_some());
        assert_eq!(error.reason, REASON_PEER_LOST);
        assert_eq!(net.hosts[d].fw_counter(F_PEERS_LOST), 1);
    }
    let took = net.hosts[0].card.cycles() - start;
    println!("noticed after {} ms of card time", took / u64::from(CLOCK_HZ / 1000));
    let mut flushed = Vec::new();
    net.run_until("flush", 10_000_000, |n| {
        flushed.extend(n.hosts[0].poll_cq(CQN));
        !flushed.is_empty()
    });
    assert_ne!(flushed[0].status, WC_OK);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn qp_17_a_wire_that_takes_nothing_for_ever_ends_connections_as_a_lost_peer_does() {
    const SIZE: u32 = 8192;
    // Quick to give up, when the round trip is known: the card is never idle here, so each cycle is simulated.
    let a = QpCreate { timeout: 20_000, retries: 2, ..qp(QP_A) };
    let mut net = pair(4, |_, _| {}, a, qp(QP_B));
    let source = net.hosts[0].alloc(ASID, SIZE.into(), 0, false);
    let target = net.hosts[1].alloc(ASID, SIZE.into(), 0, true);
    net.hosts[1].post_recvs(QP_B, &[(6, vec![(target, 64)])]);
    net.hosts[0].post_send(QP_A, 0, &[(source, 64)]);
    net.run_until("a first message", 1_000_000, |n| n.hosts[0].poll_cq(CQN).iter().any(|c| c.status == WC_OK));
    net.hosts[1].post_recvs(QP_B, &[(7, vec![(target, SIZE)])]);
    net.settle(50_000);
    // A has the credit, and its card's MAC takes no frame any more.
    net.hosts[0].card.set_tx_ready(false);
    for id in 1..=3 {
        net.hosts[0].post_send(QP_A, id, &[(source, SIZE / 2)]);
    }
    let mut error = QpError::default();
    net.run_until("EV_QP_ERROR", 20_000_000, |n| n.hosts[0].take_event().map(|event| error = event).is_some());
    assert_eq!((error.qpn, error.reason), (QP_A, REASON_PEER_LOST));
    alive(&mut net, 0);
    // All elements complete, of the fast path though nothing has left.
    let mut done = Vec::new();
    net.run_until("all elements", 20_000_000, |n| {
        done.extend(n.hosts[0].poll_cq(CQN));
        done.len() == 3
    });
    let statuses: Vec<_> = done.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(statuses, [(1, WC_RETRY_EXCEEDED), (2, WC_FLUSHED), (3, WC_FLUSHED)]);
    net.hosts[0].card.set_tx_ready(true);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn inv_6_wild_producer_index_stops_its_qp_only() {
    let mut net = pair(5, |_, _| {}, qp(QP_A), qp(QP_B));
    let other = 41;
    net.hosts[0].create_qp(qp(other));
    let door = |net: &mut Net, page: u32, qpn: u32, pi: u32| {
        let value = u64::from(qpn) | u64::from(pi) << 16;
        net.hosts[0].card.post_write(BAR_DOORBELL, u64::from(page) * PAGE + u64::from(DB_SQ), value, 8);
    };
    // Another process's page: nothing happens but a count.
    door(&mut net, UAR + 1, QP_A, 3);
    net.settle(10_000);
    assert_eq!(net.hosts[0].rtl_counter(C_DOORBELL_DENIED), 1);
    door(&mut net, UAR, other, 33);
    let mut error = QpError::default();
    net.run_until("EV_QP_ERROR", 10_000_000, |n| n.hosts[0].take_event().map(|event| error = event).is_some());
    assert_eq!((error.qpn, error.reason), (other, REASON_BAD_INDEX));
    assert_eq!(net.hosts[0].fw_counter(F_BAD_INDEX), 1);
    small_stream(&mut net, 5);
    finish(&mut net, &[(0, QP_A), (1, QP_B), (0, other)]);
}

#[test]
fn vc_9_elements_with_bad_addresses_complete_with_protection_errors() {
    let mut net = pair(6, |_, _| {}, qp(QP_A), qp(QP_B));
    let good = net.hosts[1].alloc(ASID, 100, 0, true);
    let read_only = net.hosts[1].alloc(ASID, 100, 0, false);
    let bad: [u64; 4] = [0, 0xffff_8000_0000_0000, good + 3 * PAGE, read_only];
    let recvs: Vec<_> = bad.iter().enumerate().map(|(i, &va)| (i as u64, vec![(va, 100)])).collect();
    net.hosts[1].post_recvs(QP_B, &recvs);
    let mut got = Vec::new();
    net.run_until("completions", 20_000_000, |n| {
        got.extend(n.hosts[1].poll_cq(CQN));
        got.len() == bad.len()
    });
    for (i, c) in got.iter().enumerate() {
        assert_eq!((c.wr_id, c.status, c.byte_len), (i as u64, WC_LOCAL_PROTECTION, 0));
    }
    assert_eq!(credit_lists(&net.wires[1].sent, QP_A), Vec::<Vec<u32>>::new(), "never announced");
    // Later receives go on.
    small_stream(&mut net, 6);
    alive(&mut net, 1);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn inv_6_random_commands_are_answered_and_harm_nobody() {
    let seed = seed(7);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut rng = Rng(seed);
    let rounds = berth_random::few_or_all(150, 300);
    for round in 0..rounds {
        let mut w: [u32; 16] = std::array::from_fn(|_| match rng.below(4) {
            0 => rng.draw() as u32,
            1 => 0,
            2 => rng.below(200) as u32,
            _ => u32::MAX,
        });
        w[CODE] = rng.between(0, 40) as u32;
        let command = code(&w);
        let qpn =
            QpDestroy::of(&w).map(|c| c.qpn).or(Connect::of(&w).map(|c| c.qpn)).or(Disconnect::of(&w).map(|c| c.qpn));
        // These would do what they say to the QPs and names under test.
        let harmful = [
            CMD_NET_CONFIG,
            CMD_CRASH,
            CMD_PAGE_INSTALL,
            CMD_PAGE_READY,
            CMD_FENCE,
            CMD_CQ_DESTROY,
            CMD_PAGE_EVICT,
            CMD_PAGE_REVOKE,
        ];
        if harmful.contains(&command) || qpn == Some(QP_A) {
            continue;
        }
        if command < CMD_FIRST_FW {
            // RTL: unknown ones are counted, not answered.
            net.hosts[0].submit(w);
            continue;
        }
        let cookie = net.hosts[0].submit(w);
        let what = format!("answer to {w:x?} in round {round}");
        net.run_until(&what, 500_000_000, |n| n.hosts[0].done(cookie).is_some());
    }
    assert!(net.hosts[0].fw_counter(F_BAD_COMMAND) > rounds / 6);
    assert!(net.hosts[0].rtl_counter(C_CMD_BAD) > 0);
    alive(&mut net, 0);
    small_stream(&mut net, seed);
}

#[test]
fn inv_6_random_frames_never_stop_the_firmware() {
    let seed = seed(8);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    small_stream(&mut net, seed);
    let samples: Vec<Vec<Vec<u8>>> = (0..2).map(|d| net.wires[d].sent.clone()).collect();
    let mut rng = Rng(seed);
    for _ in 0..berth_random::few_or_all(600, 1500) {
        let d = rng.below(2) as usize;
        let pool = &samples[1 - d];
        let mut frame = pool[rng.below(pool.len() as u64) as usize].clone();
        let is_roce = roce(&frame).is_some();
        for _ in 0..rng.between(1, 4) {
            // Mostly headers, where the decisions are.
            let at =
                if rng.below(4) == 0 { rng.below(frame.len() as u64) } else { rng.below(frame.len().min(90) as u64) };
            frame[at as usize] = match rng.below(3) {
                0 => rng.draw() as u8,
                1 => frame[at as usize] ^ 1 << rng.below(8),
                _ => [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            };
        }
        if is_roce && rng.below(10) != 0 {
            seal(&mut frame);
        }
        net.hosts[d].card.push_rx(frame);
        for _ in 0..rng.between(50, 1500) {
            net.step();
        }
    }
    net.settle(20_000);
    for d in 0..2 {
        alive(&mut net, d);
        assert_eq!(net.hosts[d].violations(), [], "invariant 4");
        println!("{}", net.hosts[d].report());
    }
}
