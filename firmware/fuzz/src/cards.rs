// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two whole cards with their hosts, under an arbitrary schedule of connections, of what RTL reports, of faults of the
//! wire, held and released frames, restarts, and time. Every queue pair can be destroyed afterwards, and a new connection
//! comes up.

use berth_abi::message::{Accept, CmRequest, Connect, Disconnect, Listen, Pressure, QpDestroy, Reject};
use berth_abi::status::CMD_OK;
use berth_protocol::model::{Faults, User, World};

use crate::input::Input;

const ASID: u8 = 3;
const SERVICE: u32 = 7;
/// Cycles in which everything ends when the wire is good: a peer that is gone is noticed, and its queue pairs are let go.
const PATIENCE: u64 = 1_000_000_000;

/// The first request that the host of card `i` has not answered.
fn request(w: &mut World, i: usize) -> Option<u32> {
    w.nodes[i].hw.take(|_: &CmRequest| true).map(|e| e.request)
}

/// The first bytes choose settings, the others the schedule.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut w = World::new(2, u64::from(input.byte()));
    for i in 0..2 {
        w.command(i, Listen { service: SERVICE }.encode());
    }
    let mut users: [Vec<User>; 2] = [Vec::new(), Vec::new()];
    // Requests that a host has tried to accept, with a queue pair that may not suit them.
    let mut taken: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
    let mut steps = 0;
    while !input.is_empty() && steps < 200 {
        steps += 1;
        let choice = input.byte();
        let i = usize::from(choice >> 7);
        let pick = |input: &mut Input, users: &[User]| {
            let n = usize::from(input.byte());
            users.get(n % users.len().max(1)).cloned()
        };
        match choice % 12 {
            0 | 1 => {
                let Some(qpn) = (16..80).find(|qpn| w.nodes[i].card.state_of(*qpn) == 0) else { continue };
                let mode = choice >> 6 & 1;
                users[i].push(w.create_qp(i, qpn, ASID, |qp| qp.mode = mode));
                let ip = w.nodes[1 - usize::from(choice >> 5 & 1)].ip;
                w.post_command(i, Connect { qpn, ipv4: ip, service: SERVICE, ..Connect::default() }.encode());
            }
            2 | 3 => {
                let Some(id) = request(&mut w, i) else { continue };
                taken[i].push(id);
                if let Some(qpn) = (16..80).find(|qpn| w.nodes[i].card.state_of(*qpn) == 0) {
                    let mode = choice >> 6 & 1;
                    users[i].push(w.create_qp(i, qpn, ASID, |qp| qp.mode = mode));
                    w.post_command(i, Accept { request: id, qpn, ..Accept::default() }.encode());
                }
            }
            4 => {
                if let Some(id) = request(&mut w, i) {
                    w.post_command(i, Reject { request: id, ..Reject::default() }.encode());
                }
            }
            5 => {
                if let Some(user) = pick(&mut input, &users[i]) {
                    let qpn = user.qpn;
                    let disconnects = choice & 0x40 != 0;
                    let ends = if disconnects { Disconnect { qpn }.encode() } else { QpDestroy { qpn }.encode() };
                    w.post_command(i, ends);
                }
            }
            6 => {
                if let Some(user) = pick(&mut input, &users[i]) {
                    w.fast_event(i, u32::from(input.byte()), user.qpn, u32::from(input.u16()));
                }
            }
            7 => {
                if let Some(user) = pick(&mut input, &users[i]) {
                    w.ring(&user, u16::from(input.byte()), u16::from(input.byte()));
                }
            }
            8 => {
                let [loss, dup, reorder] = input.array().map(|b| f64::from(b) / 500.0);
                w.faults = Faults { loss, dup, reorder, corrupt: loss / 4.0 };
            }
            9 => {
                w.hold[i] = choice & 0x40 != 0;
                if !w.hold[i] {
                    w.release(i, usize::MAX);
                }
            }
            10 if choice & 0x70 == 0x70 => {
                w.restart(i);
                users[i].clear();
                w.command(i, Listen { service: SERVICE }.encode());
            }
            10 => _ = w.post_command(i, Pressure { asid: u32::from(choice >> 4 & 3), bytes: 65536 }.encode()),
            _ => w.run(u64::from(input.u16()) * 64),
        }
    }

    w.faults = Faults::default();
    for i in 0..2 {
        w.hold[i] = false;
        w.release(i, usize::MAX);
    }
    w.run(100_000);
    for (i, mut refused) in taken.into_iter().enumerate() {
        refused.extend(core::iter::from_fn(|| request(&mut w, i)));
        for id in refused {
            w.post_command(i, Reject { request: id, ..Reject::default() }.encode());
        }
        for qpn in 16..80 {
            if w.nodes[i].card.state_of(qpn) != 0 {
                w.post_command(i, QpDestroy { qpn }.encode());
            }
        }
    }
    // Requests that were on their way come now, and must not take their places until their time is over.
    for _ in 0..100 {
        w.run(PATIENCE / 100);
        for i in 0..2 {
            while let Some(id) = request(&mut w, i) {
                w.post_command(i, Reject { request: id, ..Reject::default() }.encode());
            }
        }
    }
    for i in 0..2 {
        assert_eq!(w.nodes[i].card.qps_in_use(), 0, "queue pairs of card {i} at the end");
        w.nodes[i].hw.events.clear();
    }
    // What was said before may have made a card give its peer up: then once more.
    let up = (0..3).any(|n| {
        let (a, b) = (w.create_qp(0, 16 + n, ASID, |_| ()), w.create_qp(1, 16 + n, ASID, |_| ()));
        let ip = w.nodes[1].ip;
        assert_eq!(
            w.command(0, Connect { qpn: a.qpn, ipv4: ip, service: SERVICE, ..Connect::default() }.encode()).status,
            CMD_OK
        );
        let end = w.now + PATIENCE;
        while w.now < end && !matches!(w.nodes[0].card.state_of(a.qpn), 3..) {
            w.run(100_000);
            if let Some(id) = request(&mut w, 1) {
                w.post_command(1, Accept { request: id, qpn: b.qpn, ..Accept::default() }.encode());
            }
        }
        w.nodes[0].card.state_of(a.qpn) == 3
    });
    assert!(up, "no connection");
}
