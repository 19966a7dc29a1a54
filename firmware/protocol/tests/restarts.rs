// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cards that restart while others remember them, or not: whatever they believe of each other, the next connection comes up.
mod common;

use berth_abi::message::{Accept, CmClosed, CmEstablished, CmRequest, Connect, Listen, QpError};
use berth_abi::status::{CMD_OK, REASON_UNREACHABLE};
use berth_protocol::model::World;
use common::config;
use proptest::prelude::*;

const ASID: u8 = 1;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A card loses all it knew.
    Restart(usize),
    /// A card connects to the other one, which need not listen.
    Connect(usize),
    /// The frames that a card sends are lost, or not.
    Deaf(usize, bool),
    /// A frame that was on the wire some time ago comes again.
    Late(usize),
    /// Time goes by, in thousands of cycles.
    Run(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..2usize).prop_map(Step::Restart),
        3 => (0..2usize).prop_map(Step::Connect),
        2 => (0..2usize, any::<bool>()).prop_map(|(i, on)| Step::Deaf(i, on)),
        1 => any::<usize>().prop_map(Step::Late),
        4 => prop_oneof![0..20u64, 0..2000u64, 0..100_000u64].prop_map(Step::Run),
    ]
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn qp_17_connections_come_up_whatever_cards_restarted_before(
        seed in any::<u64>(), steps in prop::collection::vec(step(), 0..14), from in 0..2usize
    ) {
        let mut w = World::new(2, seed);
        let mut qpn = 16;
        for step in steps {
            go(&mut w, &mut qpn, step);
        }
        w.deaf = [false; 2];
        comes_up(&mut w, from);
    }

    /// Whatever was said before a connection, or since, and comes again: it goes on.
    #[test]
    fn inv_6_late_frames_end_no_connection(
        seed in any::<u64>(),
        before in prop::collection::vec(step(), 0..10),
        late in prop::collection::vec((any::<usize>(), prop_oneof![0..20u64, 0..6000u64, 0..30_000u64]), 0..30),
        from in 0..2usize,
    ) {
        let mut w = World::new(2, seed);
        let mut qpn = 16;
        for step in before {
            go(&mut w, &mut qpn, step);
        }
        w.deaf = [false; 2];
        let up = comes_up(&mut w, from);
        w.run(20_000_000);
        for (which, thousands) in late {
            let (i, frame) = w.wire[which % w.wire.len()].clone();
            w.inject(1 - i, frame);
            w.run(1000 * thousands);
        }
        w.run(300_000_000);
        prop_assert_eq!(w.nodes[from].hw.take(|e: &CmClosed| e.qpn == up), None);
        prop_assert_eq!(w.nodes[from].hw.take(|e: &QpError| e.qpn == up), None);
    }
}

/// One step.
fn go(w: &mut World, qpn: &mut u32, step: Step) {
    match step {
        Step::Restart(i) => w.restart(i),
        Step::Deaf(i, on) => w.deaf[i] = on,
        Step::Late(which) => {
            if let Some((i, frame)) = w.wire.get(which % w.wire.len().max(1)).cloned() {
                w.inject(1 - i, frame);
            }
        }
        Step::Run(thousands) => w.run(1000 * thousands),
        Step::Connect(i) if *qpn < 30 => {
            let user = w.create_qp(i, *qpn, ASID, |_| ());
            *qpn += 1;
            let connect = Connect { qpn: user.qpn, ipv4: w.nodes[1 - i].ip, service: 5, ..Connect::default() };
            w.post_command(i, connect.encode());
        }
        Step::Connect(_) => (),
    }
}

/// Card `from` connects to the other one. What it said before may have made it give the peer up: then once more.
/// Gives its QPN.
fn comes_up(w: &mut World, from: usize) -> u32 {
    let to = 1 - from;
    w.command(to, Listen { service: 6 }.encode());
    let mut next = 50;
    for qpn in 40..43 {
        let a = w.create_qp(from, qpn, ASID, |_| ());
        let connect = Connect { qpn: a.qpn, ipv4: w.nodes[to].ip, service: 6, ..Connect::default() };
        assert_eq!(w.command(from, connect.encode()).status, CMD_OK);
        let mut up = None;
        let frames = w.frames;
        w.run_until(1_000_000_000, |w| {
            assert!(w.frames < frames + 1000, "frames without end");
            if let Some(CmRequest { request, .. }) = w.nodes[to].hw.take(|_| true) {
                let b = w.create_qp(to, next, ASID, |_| ());
                next += 1;
                w.post_command(to, Accept { request, qpn: b.qpn, ..Accept::default() }.encode());
            }
            let hw = &mut w.nodes[from].hw;
            if hw.take(|e: &CmEstablished| e.qpn == a.qpn).is_some() {
                up = Some(true);
            } else if let Some(closed) = hw.take(|e: &CmClosed| e.qpn == a.qpn) {
                assert_eq!(closed.reason, REASON_UNREACHABLE);
                up = Some(false);
            }
            up.is_some()
        });
        if up == Some(true) {
            return a.qpn;
        }
    }
    panic!("no connection");
}
