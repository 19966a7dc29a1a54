// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two whole cards with their hosts: any sizes, credits, budgets, and faults of single frames.

mod common;
use berth_abi::card::MAX_LIST;
use berth_abi::counters::{F_CREDITS_OUTSTANDING, F_NO_BUFFER, F_NO_CREDIT, F_RESEND_BLOCKS, F_RETRANSMITTED};
use berth_abi::wqe::MAX_INLINE;
use berth_protocol::model::{Fault, User, World};
use common::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;

/// A gather or scatter list: bytes of each range.
type List = Vec<u32>;

/// One direction of a connection.
#[derive(Clone, Debug)]
struct Stream {
    /// Bytes by which its memory is off a page, of sending and of receiving.
    off: (u64, u64),
    sends: Vec<List>,
    /// Receives, which are posted again when they were read.
    receives: Vec<List>,
}

/// Options of a QP (words of the command): trigger and its index, longest list, pages of a block.
#[derive(Clone, Debug)]
struct Tuning {
    trigger: u32,
    index: u32,
    max_list: u32,
    pages: u32,
}

#[derive(Clone, Debug)]
struct Connection {
    tuning: [Tuning; 2],
    there: Stream,
    back: Option<Stream>,
}

/// All that a run depends on.
#[derive(Clone, Debug)]
struct Scenario {
    /// Of the model's own choices: delays of DMA and pages, initial PSNs, bytes.
    seed: u64,
    log2_mtu: u32,
    go_back_n: bool,
    /// Which cards offer credit lists as datagrams.
    datagrams: [bool; 2],
    /// A budget of 40 pages instead of 64 MiB.
    tight: [bool; 2],
    connections: Vec<Connection>,
    /// Elements that an application posts before it looks again.
    burst: usize,
    /// Faults by the frame's number, counted from the first after connecting.
    faults: Vec<(u64, Fault)>,
}

/// Lists of 1 to 7 ranges, the first of them not empty, some of them of few bytes.
fn lists(most: u32, count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<List>> {
    let list = (64..most, prop::collection::vec(0..most / 2, 0..7)).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        rest
    });
    let few = (1..MAX_INLINE as u32 + 1).prop_map(|len| vec![len]);
    prop::collection::vec(prop_oneof![4 => list, 1 => few], count)
}

fn stream() -> impl Strategy<Value = Stream> {
    let sends = prop_oneof![1 => lists(800, 1..60), 2 => lists(12_000, 1..8)];
    let receives = prop_oneof![1 => lists(800, 1..60), 2 => lists(12_000, 1..30)];
    ((0u64..5000, 0u64..5000), sends, receives).prop_map(|(off, sends, receives)| Stream { off, sends, receives })
}

fn tuning() -> impl Strategy<Value = Tuning> {
    (0u32..3, 0u32..8, 0u32..MAX_LIST + 1, 1u32..17).prop_map(|(trigger, index, max_list, pages)| Tuning {
        trigger,
        index: if trigger == 2 { index } else { 0 },
        max_list,
        pages,
    })
}

fn connection() -> impl Strategy<Value = Connection> {
    ([tuning(), tuning()], stream(), prop::option::of(stream())).prop_map(|(tuning, there, back)| Connection {
        tuning,
        there,
        back,
    })
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => Just(Fault::Loss),
        2 => (0u64..3000).prop_map(Fault::Twice),
        2 => (0u64..5000).prop_map(Fault::Late),
        1 => (0usize..12_000).prop_map(Fault::Corrupt),
    ]
}

/// Scenarios with up to `faults` faults.
fn scenario(faults: usize) -> impl Strategy<Value = Scenario> {
    let tight = || prop::bool::weighted(0.3);
    (
        (any::<u64>(), 8u32..13, any::<bool>(), any::<[bool; 2]>(), [tight(), tight()]),
        prop::collection::vec(connection(), 1..4),
        1usize..12,
        prop::collection::vec((0u64..600, fault()), 0..faults + 1),
    )
        .prop_map(|((seed, log2_mtu, go_back_n, datagrams, tight), connections, burst, faults)| Scenario {
            seed,
            log2_mtu,
            go_back_n,
            datagrams,
            tight,
            connections,
            burst,
            faults,
        })
}

/// A stream with its two ends.
struct Flow {
    a: User,
    b: User,
    data: Vec<u8>,
    sends: Vec<Vec<(u64, u32)>>,
    recvs: Vec<Vec<(u64, u32)>>,
    sent: usize,
    given: usize,
    got: Vec<u8>,
    seen: usize,
    /// The flow in the other direction, which shares the queue pairs.
    twin: Option<usize>,
}

/// The lists' ranges, one behind the other from `base`; and the bytes of all.
fn place(lists: &[List], base: u64) -> (Vec<Vec<(u64, u32)>>, u64) {
    let mut at = base;
    let mut range = |len: &u32| {
        at += u64::from(*len);
        (at - u64::from(*len), *len)
    };
    let placed = lists.iter().map(|list| list.iter().map(&mut range).collect()).collect();
    (placed, at - base)
}

impl Flow {
    /// Maps the stream's memory, the `i`th of all.
    fn new(w: &mut World, i: u64, seed: u64, stream: &Stream, a: User, b: User) -> Self {
        let (src, dst) = (SRC + i * 0x100_0000 + stream.off.0, DST + i * 0x100_0000 + stream.off.1);
        let (sends, total) = place(&stream.sends, src);
        let (recvs, space) = place(&stream.receives, dst);
        let data = pattern(seed ^ i, total as usize);
        w.nodes[a.node].hw.map(ASID, src, total, false);
        w.nodes[a.node].hw.poke(ASID, src, &data);
        w.nodes[b.node].hw.map(ASID, dst, space, true);
        Self { a, b, data, sends, recvs, sent: 0, given: 0, got: Vec::new(), seen: 0, twin: None }
    }
}

/// Connects what is to be connected.
fn build(scenario: &Scenario) -> (World, Vec<Flow>) {
    let mut w = World::with_mtu(2, scenario.seed, 1 << scenario.log2_mtu);
    for (node, offers) in w.nodes.iter_mut().zip(scenario.datagrams) {
        if offers {
            node.card.offer_list_datagrams();
        }
    }
    w.edit = scenario.go_back_n.then_some(go_back_n as fn(usize, &mut [u8]));
    for (node, tight) in w.nodes.iter_mut().zip(scenario.tight) {
        node.hw.budget = if tight { 40 * 4096 } else { 64 << 20 };
    }
    let mut flows: Vec<Flow> = Vec::new();
    let mut users = Vec::new();
    for (q, connection) in (0..).zip(&scenario.connections) {
        let tune = |t: &Tuning| {
            let (options, block) = (t.trigger | t.index << 8 | t.max_list << 16, t.pages * 4096);
            move |cmd: &mut [u32; 16]| (cmd[5], cmd[6]) = (options, block)
        };
        let a = w.create_qp(0, 16 + q, ASID, tune(&connection.tuning[0]));
        let b = w.create_qp(1, 40 + q, ASID, tune(&connection.tuning[1]));
        w.connect(&a, &b, 9);
        users.push((a, b));
    }
    for ((i, connection), (a, b)) in (0..).zip(&scenario.connections).zip(users) {
        let first = flows.len();
        flows.push(Flow::new(&mut w, 2 * i, scenario.seed, &connection.there, a.clone(), b.clone()));
        if let Some(back) = &connection.back {
            flows.push(Flow::new(&mut w, 2 * i + 1, scenario.seed, back, b, a));
            (flows[first].twin, flows[first + 1].twin) = (Some(first + 1), Some(first));
        }
    }
    w.planned = scenario.faults.iter().map(|(at, fault)| (w.frames + at, *fault)).collect();
    (w, flows)
}

/// Every stream arrives as it was sent, and nothing is left behind.
fn follow(scenario: &Scenario) -> World {
    let (mut w, mut flows) = build(scenario);
    let mut rounds = 0u64;
    loop {
        let mut busy = false;
        for f in 0..flows.len() {
            let done_sends = w.completions(&flows[f].a, false);
            let done_recvs = w.completions(&flows[f].b, true);
            assert!(done_sends.iter().chain(&done_recvs).all(|c| c[4] & 0xff == 0), "{done_sends:x?} {done_recvs:x?}");
            for (i, c) in done_sends.iter().enumerate() {
                assert_eq!(c[0], i as u32, "sends complete in order");
            }
            for c in &done_recvs[flows[f].seen..] {
                assert_eq!(c[0], flows[f].seen as u32);
                let mut left = c[2] as usize;
                let index = c[0] as usize % flows[f].recvs.len();
                for (va, len) in flows[f].recvs[index].clone() {
                    let part = left.min(len as usize);
                    let part = w.nodes[flows[f].b.node].hw.peek(ASID, va, part);
                    flows[f].got.extend(&part);
                    left -= part.len();
                }
                assert_eq!(left, 0);
                flows[f].seen += 1;
            }
            let flow = &mut flows[f];
            if flow.got.len() < flow.data.len() || done_sends.len() < flow.sends.len() {
                busy = true;
            }
            if rounds.is_multiple_of(3) {
                let mut rung = false;
                for _ in 0..scenario.burst {
                    if flow.sent < flow.sends.len() && flow.sent - done_sends.len() < 60 {
                        let list = flow.sends[flow.sent].clone();
                        match *list {
                            // Few bytes go in the element.
                            [(va, len)] if len as usize <= MAX_INLINE => {
                                let data = w.nodes[flow.a.node].hw.peek(ASID, va, len as usize);
                                w.post_inline(&mut flow.a, &data, flow.sent as u64);
                            }
                            _ => w.post_send(&mut flow.a, &list, flow.sent as u64),
                        }
                        flow.sent += 1;
                        rung = true;
                    }
                    let room = flow.recvs.len().min(60);
                    if flow.given - done_recvs.len() < room && flow.got.len() < flow.data.len() {
                        // Buffers that are read out already are used again.
                        let list = flow.recvs[flow.given % flow.recvs.len()].clone();
                        w.post_recv(&mut flow.b, &list, flow.given as u64);
                        flow.given += 1;
                        rung = true;
                    }
                }
                if rung {
                    if let Some(t) = flows[f].twin {
                        let (a, b) = (flows[f].a.clone(), flows[f].b.clone());
                        flows[t].b.merge(&a);
                        flows[t].a.merge(&b);
                    }
                    w.ring(&flows[f].a);
                    w.ring(&flows[f].b);
                }
            }
        }
        if !busy {
            break;
        }
        rounds += 1;
        if rounds > 100_000 {
            for f in &flows {
                println!(
                    "{:?} -> {:?}: {} of {}, sends {} of {}, recvs {}",
                    f.a.qpn,
                    f.b.qpn,
                    f.got.len(),
                    f.data.len(),
                    f.sent,
                    f.sends.len(),
                    f.given
                );
                w.dump(f.a.node, f.a.qpn);
                w.dump(f.b.node, f.b.qpn);
            }
            panic!("no end in sight");
        }
        w.run(10_000);
    }
    for f in &flows {
        assert!(f.got == f.data, "bytes differ");
    }
    for i in 0..2 {
        assert_eq!(w.counter(i, F_NO_BUFFER), 0);
        assert_eq!(w.counter(i, F_NO_CREDIT), 0);
    }
    for f in &flows {
        for user in [&f.a, &f.b] {
            if w.nodes[user.node].card.state_of(user.qpn) != 0 {
                w.destroy(user);
            }
        }
    }
    w.run(100_000_000);
    assert_clean(&mut w);
    for i in 0..2 {
        assert_eq!(w.counter(i, F_CREDITS_OUTSTANDING), 0);
    }
    w
}

/// Runs `cases` scenarios with up to `faults` faults; gives the sums of both cards' firmware counters.
fn run(cases: u32, faults: usize, check: impl Fn(&Scenario, &World)) -> Vec<u64> {
    let sums = RefCell::new(vec![0; berth_abi::counters::NUM_FW_COUNTERS]);
    let failed = TestRunner::new(config(cases)).run(&scenario(faults), |scenario| {
        // Worlds are large: none is kept.
        let world = follow(&scenario);
        check(&scenario, &world);
        for (i, sum) in sums.borrow_mut().iter_mut().enumerate() {
            *sum += world.counter(0, i as u32) + world.counter(1, i as u32);
        }
        Ok(())
    });
    failed.unwrap_or_else(|e| panic!("{e}"));
    sums.into_inner()
}

#[test]
fn cr_2_any_sizes_and_credits_arrive_once_in_order_unchanged() {
    run(60, 0, |scenario, w| {
        // Without faults, and with memory for all, nothing is sent again.
        if scenario.tight == [false; 2] {
            assert_eq!(w.counter(0, F_RETRANSMITTED) + w.counter(1, F_RETRANSMITTED), 0);
        }
    });
}

#[test]
fn qp_7_lost_duplicated_late_and_corrupt_frames_change_nothing() {
    let sums = run(100, 60, |_, _| ());
    assert!(sums[F_RETRANSMITTED as usize] > 0);
    assert!(sums[F_RESEND_BLOCKS as usize] > 0, "VC-4: blocks are asked for again");
}
