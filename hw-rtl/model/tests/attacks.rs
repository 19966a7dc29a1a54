// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published attacks on RDMA, replayed against the real firmware on the Verilated card. The sources, and what came of
//! each, are in docs/concepts/reliability.md. The image comes from `BERTH_FW_IMAGE`, the seed from `BERTH_SEED`.
//!
//! The attacker writes frames with good checksums in a peer's name. Unless a test says otherwise it knows all that does
//! not change: addresses, QPNs, sizes of buffers; but it hears nothing. A guess that happens to be right is not sent, but
//! counted: how many of them there are is what guessing is worth.

mod pair;

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::message::{CmRequest, Listen, QpError};
use berth_abi::status::*;
use berth_abi::wire::*;
use berth_protocol::card::limits::FAST_WINDOW;
use berth_protocol::wire::berth::Placement;
use berth_protocol::wire::records::{CHALLENGE, START, VERSION, record};
use berth_protocol::wire::{self, Aeth, Bth, Deth, Eth, Extended, Ip, Ipv4, Opcode, Packet, Syndrome};
use berth_rtl_host::*;
use pair::*;

const PSN_MASK: u32 = 0xff_ffff;

/// Who a frame says that it is from.
#[derive(Clone, Copy)]
struct Name {
    mac: [u8; 6],
    ip: u32,
}

/// Name of host `d`.
fn name(net: &Net, d: usize) -> Name {
    Name { mac: net.hosts[d].mac(), ip: net.hosts[d].config().ipv4 }
}

/// A frame for host `to` in the name of `from`, with all checksums right.
fn frame(net: &Net, from: Name, to: usize, bth: Bth, ext: Extended, payload: &[u8]) -> Vec<u8> {
    let own = name(net, to);
    let packet = Packet {
        eth: Eth { to: own.mac, from: from.mac },
        ip: Ip::V4(Ipv4::new(from.ip.to_be_bytes(), own.ip.to_be_bytes())),
        source_port: 0xc000,
        bth,
        ext,
    };
    let mut out = vec![0; SLOT_BYTES as usize];
    let len = wire::emit(&packet, &[payload], &mut out).expect("a good packet");
    out.truncate(len);
    out
}

/// A one-packet message with immediate data for QP `qpn` of host 1, in host 0's name.
fn data(net: &Net, qpn: u32, psn: u32, credit: u8, payload: &[u8]) -> Vec<u8> {
    let ext = Extended { imm: Some(0), ..Extended::NONE };
    let body = [&Placement { credit, index: 0 }.to_bytes(), payload].concat();
    frame(net, name(net, 0), 1, Bth::new(Opcode(BTH_SEND_ONLY_IMM), qpn, psn), ext, &body)
}

/// A message of words to the control QP of host 1.
fn control(net: &Net, from: Name, psn: u32, [incarnation, to, flags]: [u32; 3], records: &[u32]) -> Vec<u8> {
    let third = VERSION | flags | (3 + records.len() as u32) << 16;
    let bytes: Vec<u8> = [incarnation, to, third].iter().chain(records).flat_map(|w| w.to_le_bytes()).collect();
    frame(net, from, 1, Bth::new(Opcode(BTH_SEND_ONLY), CONTROL_QPN, psn), Extended::NONE, &bytes)
}

/// A credit list for QP `qpn` of host 0, in host 1's name.
fn list(net: &Net, qpn: u32, epoch: u32, qkey: u32, first: u32) -> Vec<u8> {
    let bytes: Vec<u8> = [1 | 4 << 8 | qpn << 16, epoch, first, 4096].iter().flat_map(|w| w.to_le_bytes()).collect();
    let ext = Extended { deth: Some(Deth { qkey, source_qpn: CONTROL_QPN }), ..Extended::NONE };
    frame(net, name(net, 1), 0, Bth::new(Opcode(BTH_UD_SEND_ONLY), CONTROL_QPN, 0), ext, &bytes)
}

/// PSN of the newest data packet that host `d` has sent to QP `qpn`.
fn newest(net: &Net, d: usize, qpn: u32) -> Option<u32> {
    let data = |f: &Vec<u8>| is_data(f).then(|| roce(f)).flatten().filter(|b| b.qpn == qpn);
    net.wires[d].sent.iter().rev().find_map(data).map(|b| b.psn)
}

/// `psn` is within `near` of `at`, before or behind.
fn near(psn: u32, at: u32, near: u32) -> bool {
    psn.wrapping_sub(at).wrapping_add(near) & PSN_MASK < 2 * near
}

/// Gives host `d` frames, `n` at a time as fast as the wire takes them, while the streams go on. `make` says what comes
/// next; `None`: a guess that would have been right.
fn attack(
    net: &mut Net,
    d: usize,
    attempts: u32,
    streams: &mut [Stream],
    mut make: impl FnMut(&mut Net) -> Option<Vec<u8>>,
) -> u32 {
    const AT_ONCE: usize = 16;
    let mut right = 0;
    let all: Vec<u32> = (0..attempts).collect();
    for some in all.chunks(AT_ONCE) {
        let mut cycles = 0;
        for _ in some {
            match make(net) {
                Some(frame) => {
                    cycles += frame.len() / 8 + 3;
                    net.hosts[d].card.push_rx(frame);
                }
                None => right += 1,
            }
        }
        for _ in 0..cycles {
            net.step();
        }
        pair::step(net, streams);
    }
    right
}

/// Frames for the firmware of host `d` that came faster than it takes them, which RTL has dropped.
fn turned_away(net: &mut Net, d: usize) -> u64 {
    net.hosts[d].rtl_counter(C_RX_CORE_FULL)
}

/// Both firmwares answer, and new connections come up and carry data.
fn still_works(net: &mut Net, qpn: u32) {
    for d in 0..2 {
        assert_eq!(net.hosts[d].reg(berth_abi::host::HOST_STATUS), FW_RUNNING, "{}", net.hosts[d].report());
        net.hosts[d].create_qp(qp(qpn));
        assert_eq!(net.hosts[d].violations(), [], "invariant 4");
    }
    net.connect(0, qpn, 1, qpn, SERVICE + qpn);
    let mut s = Stream::new(net, (0, qpn), (1, qpn), Rng(qpn.into()).bytes(20_000));
    s.recvs_left = Some(5);
    run(net, std::slice::from_mut(&mut s), 100_000_000);
}

/// ReDMArk A1, sRDMA: data injected with guessed PSNs while receives are announced. Some guesses of what QPs
/// there are come with it.
#[test]
fn redmark_data_with_guessed_psns_reaches_no_receive() {
    const ATTEMPTS: u32 = 12_000;
    const RECEIVES: usize = 16;
    const SIZE: u32 = 4096;
    let seed = seed(31);
    let mut rng = Rng(seed);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(8 * SIZE as usize));
    s.recvs_left = Some(8);
    run(&mut net, std::slice::from_mut(&mut s), 60_000_000);
    // Receives that the peer has credits for, with bytes that are not to change.
    let before = Rng(seed ^ 1).bytes(SIZE as usize);
    let buffers: Vec<u64> = (0..RECEIVES).map(|_| net.hosts[1].alloc(ASID, SIZE.into(), 0, true)).collect();
    for &va in &buffers {
        net.hosts[1].write(ASID, va, &before);
    }
    let recvs: Vec<_> = buffers.iter().enumerate().map(|(i, &va)| (i as u64, vec![(va, SIZE)])).collect();
    net.hosts[1].post_recvs(QP_B, &recvs);
    net.settle(100_000);
    assert!(credits_out(&mut net, 1, QP_B) > 0);
    let next = newest(&net, 0, QP_B).expect("data").wrapping_add(1) & PSN_MASK;
    let unknown = |net: &mut Net| net.hosts[1].fw_counter(F_UNKNOWN_QP) + turned_away(net, 1);
    let before_unknown = unknown(&mut net);
    let dropped = |net: &mut Net| {
        let host = &mut net.hosts[1];
        [C_FP_DROPPED, C_FP_DUPLICATES].map(|c| host.rtl_counter(c)).iter().sum::<u64>() + host.fw_counter(F_NO_CREDIT)
    };
    let drops = dropped(&mut net);
    let payload = [0xbd; 64];
    let right = attack(&mut net, 1, ATTEMPTS, &mut [], |net| {
        let psn = rng.draw() as u32 & PSN_MASK;
        let ahead = psn.wrapping_sub(next) & PSN_MASK;
        (ahead >= FAST_WINDOW).then(|| data(net, QP_B, psn, rng.draw() as u8, &payload))
    });
    attack(&mut net, 1, ATTEMPTS / 100, &mut [], |net| {
        let qpn = rng.between(64, u64::from(PSN_MASK)) as u32;
        Some(data(net, qpn, rng.draw() as u32 & PSN_MASK, rng.draw() as u8, &payload))
    });
    net.settle(200_000);
    assert_eq!(dropped(&mut net) - drops, u64::from(ATTEMPTS - right), "each is dropped, and counted once");
    assert_eq!(unknown(&mut net) - before_unknown, u64::from(ATTEMPTS / 100));
    for &va in &buffers {
        assert!(net.hosts[1].read(ASID, va, SIZE as usize) == before, "a receive was written");
    }
    println!("guessed PSNs: {ATTEMPTS} attempts, {right} would have been in the window of {FAST_WINDOW}");
    still_works(&mut net, 30);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, 30), (1, 30)]);
}

/// ReDMArk A2: acknowledgements and NAKs that would put the QP in error, with guessed PSNs, in the middle of a stream; at
/// the speed of the wire, so that it is a storm as well.
#[test]
fn redmark_acknowledgements_with_guessed_psns_end_no_connection() {
    const ATTEMPTS: u32 = 6_000;
    let seed = seed(32);
    let mut rng = Rng(seed);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut streams = [Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(200_000))];
    net.run_until("data", 20_000_000, |net| {
        pair::step(net, &mut streams);
        newest(net, 0, QP_B).is_some()
    });
    let right = attack(&mut net, 0, ATTEMPTS, &mut streams, |net| {
        let psn = rng.draw() as u32 & PSN_MASK;
        // ACK; RNR; NAKs: sequence, invalid request, remote access, remote operation.
        let syndrome = [0x1f, 0x20, 0x60, 0x61, 0x62, 0x63][rng.below(6) as usize];
        let aeth = Aeth { syndrome: Syndrome::from_bits(syndrome), msn: 0 };
        let at = newest(net, 0, QP_B).expect("data");
        let ext = Extended { aeth: Some(aeth), ..Extended::NONE };
        (!near(psn, at, 2 * FAST_WINDOW))
            .then(|| frame(net, name(net, 1), 0, Bth::new(Opcode(BTH_ACKNOWLEDGE), QP_A, psn), ext, &[]))
    });
    run(&mut net, &mut streams, 200_000_000);
    println!("guessed acknowledgements: {ATTEMPTS} attempts, {right} would have been near the window");
    still_works(&mut net, 30);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, 30), (1, 30)]);
}

/// ReDMArk A4: strangers ask for connections without end. They hear nothing, so none of them is believed.
#[test]
fn redmark_connection_requests_of_strangers_take_nothing() {
    const STRANGERS: u32 = 48;
    let seed = seed(33);
    let mut rng = Rng(seed);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let w = Listen { service: SERVICE + 7 }.encode();
    let cookie = net.hosts[1].submit(w);
    net.run_until("CMD_CM_LISTEN", 10_000_000, |n| n.hosts[1].done(cookie).is_some());
    let mut streams = [Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(100_000))];
    let sent = net.wires[1].sent.len();
    let mut asked = Vec::new();
    attack(&mut net, 1, STRANGERS, &mut streams, |net| {
        let n = asked.len() as u32 + 1;
        // Half of them in the peer's own name, with an incarnation that it never had.
        let from = match n % 2 {
            0 => name(net, 0),
            _ => Name { mac: [2, 0, 0, 1, (n >> 8) as u8, n as u8], ip: 0x0a01_0000 + n },
        };
        let mut request = vec![record(REC_REQ, 15, 0), 30, 100, 2, SERVICE + 7, 1024 | 1 << 16, 64];
        request.resize(15, 0);
        let f = control(net, from, rng.draw() as u32 & PSN_MASK, [rng.draw() as u32 | 1, 0, START], &request);
        asked.push(f.len());
        Some(f)
    });
    run(&mut net, &mut streams, 200_000_000);
    assert!(net.hosts[1].take_event::<CmRequest>().is_none(), "nobody has shown that it hears us");
    // What they were told is no longer than what they said: nobody is flooded with our answers.
    let told: Vec<usize> = net.wires[1].sent[sent..]
        .iter()
        .filter(|f| {
            let words =
                |b: &berth_rtl_host::Bth| b.qpn == CONTROL_QPN && b.opcode == BTH_SEND_ONLY && b.body.len() == 12;
            roce(f).is_some_and(|b| words(&b) && u16::from_le_bytes([b.body[8], b.body[9]]) & CHALLENGE as u16 != 0)
        })
        .map(Vec::len)
        .collect();
    // Most not: they come faster than firmware takes frames (`C_RX_CORE_FULL`), and transmit slots are few.
    assert!(!told.is_empty() && told.len() <= asked.len() - turned_away(&mut net, 1) as usize);
    assert!(told.iter().sum::<usize>() < asked.iter().sum());
    println!(
        "{} strangers, {} bytes said, {} answered",
        asked.len(),
        asked.iter().sum::<usize>(),
        told.iter().sum::<usize>()
    );
    still_works(&mut net, 30);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, 30), (1, 30)]);
}

/// Bedrock: forged control: a beginning, a challenge, a farewell, an acknowledgement on the control connection, with
/// guessed incarnations, in the peer's name; then credit lists with guessed epochs and Q_Keys.
#[test]
fn bedrock_forged_control_messages_and_credit_lists_change_nothing() {
    const ATTEMPTS: u32 = 48;
    let seed = seed(34);
    let mut rng = Rng(seed);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut streams = [Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(100_000))];
    let datagram = |f: &Vec<u8>| roce(f).filter(|b| b.opcode == BTH_UD_SEND_ONLY);
    net.run_until("a list", 20_000_000, |net| {
        pair::step(net, &mut streams);
        net.wires[1].sent.iter().any(|f| datagram(f).is_some())
    });
    let peer = name(&net, 0);
    let refused = |net: &mut Net| {
        [F_CONTROL_BAD, F_NOT_FOR_US, F_BAD_ACK].map(|c| net.hosts[1].fw_counter(c)).iter().sum::<u64>()
            + turned_away(net, 1)
    };
    let before = refused(&mut net);
    let (mut answers, mut starts) = (0, 0);
    attack(&mut net, 1, ATTEMPTS, &mut streams, |net| {
        let [from, to, psn] = [(); 3].map(|()| rng.draw() as u32);
        let psn = psn & PSN_MASK;
        let farewell = [record(6, 5, QP_B), rng.draw() as u32, QP_A, rng.draw() as u32, REASON_PEER_CLOSE];
        let aeth = Aeth { syndrome: Syndrome::from_bits(0x60), msn: 0 };
        let ext = Extended { aeth: Some(aeth), ..Extended::NONE };
        Some(match rng.below(4) {
            0 => {
                starts += 1;
                control(net, peer, psn, [from | 1, to, START], &[record(REC_KEEPALIVE, 1, 0)])
            }
            1 => control(net, peer, psn, [from | 1, to, CHALLENGE], &[]),
            2 => control(net, peer, psn, [from | 1, to, 0], &farewell),
            _ => {
                answers += 1;
                frame(net, peer, 1, Bth::new(Opcode(BTH_ACKNOWLEDGE), CONTROL_QPN, psn), ext, &[])
            }
        })
    });
    // Host 0 hears of what was said in its name: it is challenged, and drops that.
    net.settle(200_000);
    // Each is counted, but for beginnings, which are challenged, and negative acknowledgements of what is acknowledged,
    // which are no news.
    let (counted, all) = (refused(&mut net) - before, u64::from(ATTEMPTS));
    assert!((all - answers - starts..=all).contains(&counted), "{counted}, {answers} answers, {starts} beginnings");
    let dropped = |net: &mut Net| {
        [F_CONTROL_BAD, F_NOT_FOR_US, F_UNKNOWN_QP].map(|c| net.hosts[0].fw_counter(c)).iter().sum::<u64>()
            + turned_away(net, 0)
    };
    let bad = dropped(&mut net);
    // What a list that was on the wire says, for one whose one half is right.
    let real = net.wires[1].sent.iter().find_map(datagram).expect("a list");
    let word = |at: usize| u32::from_le_bytes(real.body[at..at + 4].try_into().expect("4 bytes"));
    let (epoch, qkey) = (word(12), word(0).swap_bytes());
    attack(&mut net, 0, ATTEMPTS, &mut streams, |net| {
        let guess = [rng.draw() as u32, rng.draw() as u32 | 1 << 31];
        let [epoch, qkey] = [[guess[0], guess[1]], [epoch, guess[1]], [guess[0], qkey]][rng.below(3) as usize];
        Some(list(net, QP_A, epoch, qkey, rng.below(200) as u32))
    });
    run(&mut net, &mut streams, 200_000_000);
    net.settle(200_000);
    assert_eq!(dropped(&mut net) - bad, u64::from(ATTEMPTS), "each list is dropped and counted");
    assert_eq!(net.hosts[0].fw_counter(F_LIST_REFUSED), 0);
    for d in 0..2 {
        assert_eq!(net.hosts[d].fw_counter(F_PEERS_LOST), 0);
    }
    still_works(&mut net, 30);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, 30), (1, 30)]);
}

/// sRDMA: all frames of a connection are kept and come again, first into itself, then into a new connection of the same
/// two QPs.
#[test]
fn srdma_replayed_frames_of_this_connection_and_the_one_before_change_nothing() {
    let seed = seed(35);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut sent: [Vec<Vec<u8>>; 2] = Default::default();
    let (mut total, mut old_data) = (0, 0);
    for round in 0..3_u64 {
        let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed + round).bytes(60_000));
        s.recvs_left = Some(15);
        let mut streams = [s];
        // What is old comes again while the new stream is under way.
        for (d, frames) in sent.iter().enumerate() {
            let at = newest(&net, 0, QP_B).unwrap_or(0);
            for some in frames.chunks(16) {
                for f in some {
                    // A connection's first PSN is random: it may be where an old frame's was.
                    let fresh = is_data(f) && round == 2 && roce(f).is_some_and(|b| near(b.psn, at, 2 * FAST_WINDOW));
                    if !fresh {
                        net.hosts[1 - d].card.push_rx(f.clone());
                        total += 1;
                        old_data += u64::from(d == 0 && is_data(f));
                    }
                }
                for _ in 0..4000 {
                    net.step();
                }
                pair::step(&mut net, &mut streams);
            }
        }
        run(&mut net, &mut streams, 400_000_000);
        sent = [0, 1].map(|d| net.wires[d].sent.clone());
        if round == 1 {
            wind_up(&mut net, &[(0, QP_A), (1, QP_B)]);
            net.hosts[0].create_qp(qp(QP_A));
            net.hosts[1].create_qp(qp(QP_B));
            net.connect(0, QP_A, 1, QP_B, SERVICE + 1);
            // So that it is known where its PSNs are.
            let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), vec![1; 4096]);
            s.recvs_left = Some(1);
            run(&mut net, std::slice::from_mut(&mut s), 20_000_000);
        }
    }
    println!("{total} frames replayed, {old_data} of them data");
    assert!(total > 100);
    let seen = [C_FP_DUPLICATES, C_FP_DROPPED].map(|c| net.hosts[1].rtl_counter(c));
    assert_eq!(seen.iter().sum::<u64>(), old_data, "duplicates, dropped: {seen:?}");
    still_works(&mut net, 30);
    wind_up(&mut net, &[(0, QP_A), (1, QP_B), (0, 30), (1, 30)]);
}

/// sRDMA: who hears the wire can do all that the peer can, and nothing else: its bytes come into a receive that was
/// announced to the peer. This is no defence, it is what there is not.
#[test]
fn srdma_who_hears_the_wire_writes_where_the_peer_may_and_nowhere_else() {
    let seed = seed(36);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(8192));
    s.recvs_left = Some(2);
    run(&mut net, std::slice::from_mut(&mut s), 60_000_000);
    let [one, two] = [(); 2].map(|()| net.hosts[1].alloc(ASID, 4096, 0, true));
    net.hosts[1].post_recvs(QP_B, &[(1, vec![(one, 4096)])]);
    net.settle(100_000);
    let before = net.hosts[1].read(ASID, two, 4096);
    let psn = newest(&net, 0, QP_B).expect("data").wrapping_add(1) & PSN_MASK;
    let forged = data(&net, QP_B, psn, 2, &[0xbd; 64]);
    net.hosts[1].card.push_rx(forged);
    let mut got = Vec::new();
    net.run_until("a completion", 20_000_000, |n| {
        got.extend(n.hosts[1].poll_cq(CQN));
        !got.is_empty()
    });
    assert_eq!((got[0].wr_id, got[0].status, got[0].byte_len), (1, WC_OK, 64));
    assert_eq!(net.hosts[1].read(ASID, one, 64), [0xbd; 64]);
    // One more has no receive.
    let forged = data(&net, QP_B, psn.wrapping_add(1) & PSN_MASK, 3, &[0xbd; 64]);
    net.hosts[1].card.push_rx(forged);
    let mut error = QpError::default();
    net.run_until("EV_QP_ERROR", 20_000_000, |n| n.hosts[1].take_event().map(|event| error = event).is_some());
    assert_eq!((error.qpn, error.reason), (QP_B, REASON_PROTOCOL));
    assert!(net.hosts[1].read(ASID, two, 4096) == before);
    assert_eq!(net.hosts[1].violations(), [], "invariant 4");
    still_works(&mut net, 30);
}
