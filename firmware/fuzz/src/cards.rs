// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two whole cards with their hosts, under an arbitrary schedule of sends, receives, faults of the wire, held and
//! released frames, and time. The stream arrives once, in order, unchanged, and nothing stays pinned.

use berth_abi::counters::{F_CREDITS_OUTSTANDING, F_NO_BUFFER, F_NO_CREDIT};
use berth_protocol::model::{Faults, User, World};

use crate::input::Input;

const ASID: u8 = 3;
const SRC: u64 = 0x7f00_0000_0000;
const DST: u64 = 0x7e00_0000_0000;
/// Bytes of one direction, at most.
const STREAM: u64 = 1 << 16;
/// Elements posted and not complete, at most: less than the model's queues hold.
const QUEUE: usize = 60;
/// Memory for receives, at most.
const SPACE: u64 = 1 << 20;
/// Cycles after which everything must be over when the wire is good (2 s).
const PATIENCE: u64 = 500_000_000;

/// One direction.
struct Flow {
    from: usize,
    sent: u64,
    sends: usize,
    recvs: Vec<(u64, u32)>,
    given: u64,
    seen: usize,
    got: u64,
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

impl Flow {
    /// Looks at new completions.
    fn look(&mut self, w: &mut World, users: &[User; 2]) {
        let sends = w.completions(&users[self.from], false);
        for (i, done) in sends.iter().enumerate() {
            assert_eq!((done[0] as usize, done[4] & 0xff), (i, 0), "sends complete in order and well");
        }
        let recvs = w.completions(&users[1 - self.from], true);
        for done in recvs.iter().skip(self.seen) {
            assert_eq!((done[0] as usize, done[4] & 0xff), (self.seen, 0));
            let (va, room) = self.recvs[self.seen];
            let len = done[2];
            assert!(len <= room);
            let got = w.nodes[1 - self.from].hw.peek(ASID, va, len as usize);
            let first = self.got;
            assert!(got.iter().zip(first..).all(|(b, at)| *b == byte(at)), "bytes from {first} on");
            self.got += u64::from(len);
            self.seen += 1;
        }
    }
}

/// The first bytes choose settings, the others the schedule.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut w = World::with_mtu(2, u64::from(input.byte()), 256 << (input.byte() % 5));
    for node in 0..2 {
        w.nodes[node].hw.budget = if input.byte() & 1 != 0 { 40 * 4096 } else { 64 << 20 };
    }
    let settings = input.u16();
    let tune = |cmd: &mut [u32; 16]| {
        cmd[5] = (u32::from(settings) % 3) | ((u32::from(settings) >> 4 & 7) << 8);
        cmd[6] = (1 + u32::from(settings >> 8 & 15)) * 4096;
    };
    let a = w.create_qp(0, 16, ASID, tune);
    let b = w.create_qp(1, 17, ASID, tune);
    w.connect(&a, &b, 7);
    let mut users = [a, b];
    let mut flows = [0, 1].map(|from| Flow { from, sent: 0, sends: 0, recvs: Vec::new(), given: 0, seen: 0, got: 0 });
    for node in 0..2 {
        w.nodes[node].hw.map(ASID, SRC, STREAM, false);
        let bytes: Vec<u8> = (0..STREAM).map(byte).collect();
        w.nodes[node].hw.poke(ASID, SRC, &bytes);
        w.nodes[node].hw.map(ASID, DST, SPACE, true);
    }
    let mut steps = 0;
    while !input.is_empty() && steps < 300 {
        steps += 1;
        let choice = input.byte();
        let flow = &mut flows[usize::from(choice >> 7)];
        match choice % 8 {
            0 | 1 => {
                let len = u64::from(input.u16() % 20_000).min(STREAM - flow.sent);
                // At most what the queue holds.
                let done = w.completions(&users[flow.from], false).len();
                if flow.sends - done < QUEUE && len > 0 {
                    w.post_send(&mut users[flow.from], &[(SRC + flow.sent, len as u32)], flow.sends as u64);
                    flow.sent += len;
                    flow.sends += 1;
                    w.ring(&users[flow.from]);
                }
            }
            2 | 3 => {
                let len = 1 + u64::from(input.u16() % 20_000);
                if flow.given + len < SPACE / 2 && flow.recvs.len() - flow.seen < QUEUE {
                    let to = 1 - flow.from;
                    w.post_recv(&mut users[to], &[(DST + flow.given, len as u32)], flow.recvs.len() as u64);
                    flow.recvs.push((DST + flow.given, len as u32));
                    flow.given += len;
                    w.ring(&users[to]);
                }
            }
            4 => {
                let [loss, dup, reorder] = input.array().map(|b| f64::from(b) / 1000.0);
                w.faults = Faults { loss, dup, reorder, corrupt: loss / 4.0 };
            }
            5 => {
                let i = usize::from(choice >> 7);
                w.hold[i] = choice & 0x40 != 0;
                if !w.hold[i] {
                    w.release(i, usize::MAX);
                }
            }
            6 => w.release(usize::from(choice >> 7), usize::from(choice >> 3 & 7)),
            _ => w.run(u64::from(input.u16()) * 8),
        }
        for flow in &mut flows {
            flow.look(&mut w, &users);
        }
        assert!(w.nodes.iter().all(|n| n.hw.pinned() <= n.hw.budget));
    }

    w.faults = Faults::default();
    for i in 0..2 {
        w.hold[i] = false;
        w.release(i, usize::MAX);
    }
    let end = w.now + PATIENCE;
    loop {
        for flow in &mut flows {
            flow.look(&mut w, &users);
            // A receive for what is still to come, always in the same place: what was there has been looked at.
            if flow.got < flow.sent && flow.seen == flow.recvs.len() {
                let to = 1 - flow.from;
                let receive = (DST + SPACE / 2, (flow.sent - flow.got) as u32);
                w.post_recv(&mut users[to], &[receive], flow.recvs.len() as u64);
                flow.recvs.push(receive);
                w.ring(&users[to]);
            }
        }
        let done = |f: &Flow| f.got == f.sent && w.completions(&users[f.from], false).len() == f.sends;
        if flows.iter().all(done) {
            break;
        }
        let left = flows.each_ref().map(|f| (f.sent, f.got, f.seen, f.recvs.len()));
        assert!(w.now < end, "no end: {left:?}");
        w.run(200_000);
    }
    for i in 0..2 {
        assert_eq!((w.counter(i, F_NO_BUFFER), w.counter(i, F_NO_CREDIT)), (0, 0));
    }
    for user in &users {
        if w.nodes[user.node].card.state_of(user.qpn) != 0 {
            w.destroy(user);
        }
    }
    w.run(100_000_000);
    for node in &mut w.nodes {
        assert_eq!(node.hw.uses(), 0, "pages in use at the end");
        node.hw.evict_idle();
        assert_eq!(node.hw.pinned(), 0, "pinned at the end");
        assert_eq!(node.hw.counters[F_CREDITS_OUTSTANDING as usize], 0);
    }
}
