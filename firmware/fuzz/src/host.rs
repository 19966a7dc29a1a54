// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that gives its card anything: queue elements and doorbells, as a process can, and commands, as only a driver
//! can. Nothing panics; what a process does leaves nothing pinned, and its neighbour's connection goes on (INV-6).

use berth_abi::ring::{CMD_NET_CONFIG, CMD_RANGE_REVOKED};
use berth_abi::wqe::{MAX_INLINE, OP_RECV, OP_SEND, SEND_INLINE, WQE_BYTES};
use berth_protocol::model::{User, World};

use crate::input::Input;

const ASID: u8 = 3;
const NEIGHBOUR: u8 = 4;
const SRC: u64 = 0x7f00_0000_0000;
const DST: u64 = 0x7e00_0000_0000;
const BYTES: u64 = 1 << 16;

/// A queue element that is right but for what the input changes.
fn element(input: &mut Input, opcode: u8, base: u64) -> Vec<u8> {
    let mut e = vec![0; WQE_BYTES as usize];
    let sges = input.byte() % 8;
    (e[0], e[2]) = (opcode, sges);
    let mut sum = 0u32;
    for at in (16..).step_by(16).take(usize::from(sges)) {
        let (va, len) = (base + u64::from(input.u16()) / 2, u32::from(input.u16() % 8192));
        e[at..at + 8].copy_from_slice(&va.to_le_bytes());
        e[at + 8..at + 12].copy_from_slice(&len.to_le_bytes());
        sum += len;
    }
    if sges == 0 {
        // Every second one has data inline, some more than fit.
        let len = input.byte();
        (e[1], sum) = if len & 1 != 0 { (SEND_INLINE, u32::from(len / 4)) } else { (0, 0) };
        e[16..16 + MAX_INLINE].fill(len);
    }
    e[4..8].copy_from_slice(&sum.to_le_bytes());
    for _ in 0..input.byte() % 4 {
        let at = usize::from(input.byte() % WQE_BYTES as u8);
        e[at] = input.byte();
    }
    e
}

/// A command whose words are small numbers, or anything.
fn command(input: &mut Input) -> [u32; 16] {
    let kinds = CMD_NET_CONFIG..CMD_NET_CONFIG + 14;
    let kind = kinds.start + u32::from(input.byte()) % (kinds.end - kinds.start);
    let mut words = std::array::from_fn(|_| match input.byte() {
        255 => input.u32(),
        small => u32::from(small) % 80,
    });
    // Revocations would make the model's page service wait for their answers.
    words[0] = if kind == CMD_RANGE_REVOKED { 0 } else { kind };
    words
}

fn pair(w: &mut World, qpn: u32, asid: u8) -> (User, User) {
    let (a, b) = (w.create_qp(0, qpn, asid, |_| ()), w.create_qp(1, qpn + 1, asid, |_| ()));
    w.connect(&a, &b, qpn);
    for node in 0..2 {
        w.nodes[node].hw.map(asid, SRC, BYTES, false);
        w.nodes[node].hw.map(asid, DST, BYTES, true);
    }
    (a, b)
}

/// The first byte chooses whether there are commands, too; every few others are one act.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let driver = input.byte() & 1 != 0;
    let mut w = World::new(2, 6);
    let (mut a, mut b) = pair(&mut w, 16, ASID);
    let (mut c, mut d) = pair(&mut w, 30, NEIGHBOUR);
    let mut acts = 0;
    while !input.is_empty() && acts < 80 {
        acts += 1;
        let choice = input.byte();
        match choice % 8 {
            0 | 1 => w.post_raw_send(&mut a, &element(&mut input, OP_SEND, SRC)),
            2 => w.post_raw_recv(&mut b, &element(&mut input, OP_RECV, DST)),
            3 => {
                w.ring(&a);
                w.ring(&b);
            }
            4 => {
                let (sq, rq, bytes) = (input.u16() % 128, input.u16() % 128, input.u32());
                w.ring_raw(if choice & 0x80 == 0 { &a } else { &b }, sq, rq, bytes);
            }
            5 if driver => {
                let words = command(&mut input);
                w.post_command(0, words);
            }
            _ => w.run(u64::from(input.u16()) * 64),
        }
    }
    if driver {
        w.run(1_000_000_000);
        return;
    }
    w.nodes[0].hw.poke(NEIGHBOUR, SRC, &[0x5a; 3000]);
    w.post_recv(&mut d, &[(DST, 4000)], 1);
    w.ring(&d);
    w.post_send(&mut c, &[(SRC, 3000)], 2);
    w.ring(&c);
    w.run_until(2_000_000_000, |w| w.completions(&d, true).len() == 1 && w.completions(&c, false).len() == 1);
    assert_eq!(w.nodes[1].hw.peek(NEIGHBOUR, DST, 3000), [0x5a; 3000], "the neighbour's message");
    for user in [&a, &b, &c, &d] {
        if w.nodes[user.node].card.state_of(user.qpn) != 0 {
            w.destroy(user);
        }
    }
    w.run(400_000_000);
    for node in &mut w.nodes {
        assert_eq!(node.hw.uses(), 0, "pages in use at the end");
        node.hw.evict_idle();
        assert_eq!(node.hw.pinned(), 0, "pinned at the end");
    }
}
