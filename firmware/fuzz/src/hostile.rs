// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card whose peer, or somebody else on the wire, sends anything: frames that were on the wire, edited, and frames
//! made up. Nothing panics, and every queue pair can be destroyed afterwards.

use berth_abi::message::{Connect, QpDestroy};
use berth_protocol::model::World;
use berth_protocol::wire::net::checksum;

use crate::input::Input;

const ASID: u8 = 3;

/// Makes the lengths and the header checksum right again, so that what was edited is looked at.
fn mend(frame: &mut [u8]) {
    let len = frame.len();
    if len < 34 || frame[12..14] != [8, 0] {
        return;
    }
    // The model's frames have no CRC; the card counts its four bytes.
    let total = (len - 14 + 4) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    if len >= 42 {
        frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    }
}

/// Every few bytes are one act.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut w = World::new(2, 5);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    let mut next = 20;
    let mut acts = 0;
    while !input.is_empty() && acts < 60 {
        acts += 1;
        let choice = input.byte();
        let to = usize::from(choice >> 7);
        match choice % 6 {
            0 | 1 => {
                // One of the last frames of the other card, edited.
                let back = input.byte() as usize;
                let sent: Vec<&Vec<u8>> = w.wire.iter().filter(|(i, _)| *i != to).map(|(_, f)| f).collect();
                let Some(i) = (sent.len()).checked_sub(1 + back % 16) else { continue };
                let mut frame = sent[i].clone();
                for _ in 0..=choice >> 3 & 7 {
                    let at = input.below(frame.len() as u32 + 4) as usize;
                    let value = input.byte();
                    match frame.get_mut(at) {
                        Some(place) => *place = value,
                        None => frame.push(value),
                    }
                }
                if choice & 0x40 == 0 {
                    mend(&mut frame);
                }
                // A slot of packet memory takes no more.
                frame.truncate(1600);
                w.inject(to, frame);
            }
            2 => {
                let mut frame = input.take(usize::from(choice) * 2).to_vec();
                frame.resize(frame.len().max(60), 0);
                if choice & 0x40 == 0 {
                    mend(&mut frame);
                }
                w.inject(to, frame);
            }
            3 | 4 if next < 40 => {
                // Something to be said, so that there are frames to be edited.
                w.create_qp(to, next, ASID, |_| ());
                let (ipv4, service) = (w.nodes[1 - to].ip, u32::from(input.byte()));
                w.post_command(to, Connect { qpn: next, ipv4, service, ..Connect::default() }.encode());
                next += 1;
            }
            _ => w.run(u64::from(input.u16()) * 64),
        }
    }
    w.run(50_000_000);
    for node in 0..2 {
        for qpn in 16..40 {
            if w.nodes[node].card.state_of(qpn) != 0 {
                w.post_command(node, QpDestroy { qpn }.encode());
            }
        }
    }
    w.run(1_000_000_000);
    assert!(w.nodes.iter().all(|node| node.card.qps_in_use() == 0), "queue pairs at the end");
}
