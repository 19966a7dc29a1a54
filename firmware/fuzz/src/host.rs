// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that gives its card anything: doorbells before a connection, as a process can, and commands, as only a driver
//! can. Nothing panics; what a process does leaves its neighbour's connection as it is (INV-6). What it writes into its
//! queues is RTL's.

use berth_abi::card::MAX_READS;
use berth_abi::message::{CODE, Connect, Entry, QpPeer};
use berth_abi::ring::{CMD_CRASH, CMD_NET_CONFIG, CMD_RAW_FILTER, MODE_MESSAGE};
use berth_protocol::model::{User, World};

use crate::input::Input;

const ASID: u8 = 3;
const NEIGHBOUR: u8 = 4;
/// State of a QP (`Card::state_of`).
const CONNECTED: u8 = 3;

/// A command whose words are small numbers, or anything.
fn command(input: &mut Input) -> Entry {
    // All but CMD_CRASH, in whose place the last one stands.
    let kind = match CMD_NET_CONFIG + u32::from(input.byte()) % (CMD_RAW_FILTER - CMD_NET_CONFIG) {
        CMD_CRASH => CMD_RAW_FILTER,
        kind => kind,
    };
    let mut entry: Entry = std::array::from_fn(|_| match input.byte() {
        255 => input.u32(),
        small => u32::from(small) % 80,
    });
    entry[CODE] = kind;
    entry
}

fn pair(w: &mut World, qpn: u32, asid: u8) -> (User, User) {
    let (a, b) = (w.create_qp(0, qpn, asid, |_| ()), w.create_qp(1, qpn + 1, asid, |_| ()));
    w.connect(&a, &b, qpn);
    (a, b)
}

/// The first byte chooses whether there are commands, too; every few others are one act.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let driver = input.byte() & 1 != 0;
    let mut w = World::new(2, 6);
    let (c, d) = pair(&mut w, 30, NEIGHBOUR);
    let mut a: Vec<User> = Vec::new();
    let mut acts = 0;
    while !input.is_empty() && acts < 80 {
        acts += 1;
        let choice = input.byte();
        match choice % 8 {
            0 | 1 if a.len() < 12 => {
                // A queue pair of the process, on its way to a connection or not.
                let qpn = 40 + a.len() as u32;
                let ipv4 = w.nodes[1].ip;
                let foreign = choice & 0xc0 == 0x40;
                a.push(w.create_qp(0, qpn, ASID, |qp| {
                    if foreign {
                        qp.mode = MODE_MESSAGE;
                    }
                }));
                if foreign {
                    let peer =
                        QpPeer { qpn, ipv4, peer_qpn: 30, mtu: 256, reads: MAX_READS as u8, ..QpPeer::default() };
                    w.post_command(0, peer.encode());
                } else if choice & 0x80 != 0 {
                    w.post_command(0, Connect { qpn, ipv4, service: 9, ..Connect::default() }.encode());
                }
            }
            2..=4 => {
                let (n, sq, rq) = (input.byte(), input.u16() % 128, input.u16() % 128);
                if let Some(user) = a.get(usize::from(n) % a.len().max(1)) {
                    w.ring(user, sq, rq);
                }
            }
            5 if driver => {
                let entry = command(&mut input);
                w.post_command(0, entry);
            }
            _ => w.run(u64::from(input.u16()) * 64),
        }
    }
    w.run(1_000_000_000);
    if driver {
        return;
    }
    for user in [&c, &d] {
        assert_eq!(w.nodes[user.node].card.state_of(user.qpn), CONNECTED, "the neighbour's connection");
    }
    for user in a.iter().chain([&c, &d]) {
        w.destroy(user);
    }
    assert!(w.nodes.iter().all(|node| node.card.qps_in_use() == 0), "queue pairs at the end");
}
