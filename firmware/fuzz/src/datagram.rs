// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any frames and calls for datagram QPs and their filters.

use berth_protocol::service::datagram::{Abilities, Address, Filter, Filters, Node, RawQp, Receive, Steered, UdQp};
use berth_protocol::wire::opcode::Opcode;
use berth_protocol::wire::{self, Eth, Ip, Ipv4, Ipv6};

use crate::input::Input;

const NODE: Node = Node { mac: [2, 0, 0, 0, 0, 1], ipv4: [192, 0, 2, 1], ipv6: [0xfd; 16] };

/// Carries out calls chosen by the bytes.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut filters = Filters::<4>::new();
    let mut raw = RawQp::<4>::new(1500);
    let mut a = UdQp::<4>::new(1, input.u32(), 1024, input.u32());
    let mut b = UdQp::<4>::new(2, 7, 1024, 0);
    let (mut posted, mut filled) = (0, 0);
    while !input.is_empty() {
        match input.byte() % 8 {
            0 => {
                let some = input.byte();
                let filter = Filter {
                    to: (some & 1 != 0).then(|| input.array()),
                    ether_type: (some & 2 != 0).then(|| input.u16()),
                    protocol: (some & 4 != 0).then(|| input.byte()),
                    port: (some & 8 != 0).then(|| input.u16()),
                };
                let _ = filters.add(filter, u32::from(some >> 4));
            }
            1 => {
                let qpn = u32::from(input.byte() >> 4);
                filters.remove(qpn);
                assert_eq!(filters.remove(qpn), 0);
            }
            2 => {
                let len = input.byte();
                let frame = input.take(usize::from(len));
                if filters.steer(frame, &NODE) == Steered::Card {
                    assert_eq!(filters.steer(frame, &NODE), Filters::<1>::new().steer(frame, &NODE));
                }
                if let Ok(len) = raw.send(frame, &NODE) {
                    assert!(len >= 60 && frame[6..12] == NODE.mac);
                }
            }
            3 => {
                raw.post(Receive { id: 0, len: input.u32() });
            }
            4 => {
                let _ = raw.arrived(input.u32());
            }
            5 => {
                if b.post(Receive { id: posted, len: u32::from(input.u16()) }) {
                    posted += 1;
                }
            }
            6 => {
                let choice = input.byte();
                let ip = match choice & 1 {
                    0 => Ip::V4(Ipv4::new(input.array(), input.array())),
                    _ => Ip::V6(Ipv6::new(input.array(), input.array())),
                };
                let eth = Eth { to: NODE.mac, from: NODE.mac };
                let qkey = if choice & 2 != 0 { 7 } else { input.u32() };
                let address = Address { eth, ip, source_port: 0xc000, qpn: 2, qkey };
                let len = u32::from(input.u16());
                let imm = (choice & 4 != 0).then(|| input.u32());
                let Ok(packet) = a.send(&address, len, imm, choice & 8 != 0) else { continue };
                let payload = vec![choice; len as usize];
                let mut frame = vec![0; 2000];
                let n = wire::emit(&packet, &[&payload], &mut frame).expect("a datagram can be emitted");
                let (parsed, body) = wire::parse(&frame[..n]).expect("what is emitted can be parsed");
                if let Ok(got) = b.arrived(&parsed, body.len() as u32) {
                    assert_eq!(got.id, filled, "in the order of posting");
                    filled += 1;
                    assert_eq!((got.len, got.imm, got.source_qpn), (len + 40, imm, 1));
                    let start = if choice & 1 == 0 { 20 } else { 0 };
                    assert_eq!(got.header[start..], frame[14..14 + 40 - start]);
                }
            }
            _ => {
                let _ = Abilities::ADAPTER.admits(Opcode(input.byte()));
            }
        }
        assert_eq!(b.posted() as u64, posted - filled);
    }
}
