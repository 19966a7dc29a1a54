// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of the card that its firmware does not make, and small parts.

use crate::calls;
use berth_protocol::Card;
use berth_protocol::base::fifo::Fifo;
use berth_protocol::rc::Placement;
use berth_protocol::wire::headers::{self, Mac, Template, arp};
use berth_protocol::wire::records::{self, CONTROL_WORDS};
use core::hint::black_box;

pub fn link() {
    let mut card: Card<8, 4, 16> = black_box(Card::default());
    calls!(card: command_ready(), state_of(1), qps_in_use(), keys_in_use());

    let mut fifo: Fifo<u32, 8> = black_box(Fifo::default());
    calls!(fifo: len(), is_empty(), is_full(), as_slice(), as_mut_slice(), get(0), get_mut(0), last(), push(1));
    calls!(fifo: insert(0, 1), pop(), remove(0), truncate(1));

    black_box(records::record(black_box(1), black_box(CONTROL_WORDS), black_box(2)));
    let words = black_box([0; headers::HEADER_WORDS]);
    let mac = black_box(Mac::new(black_box([0; 6])));
    black_box(headers::parse(&words, black_box(64), mac, black_box(1))).ok();
    let placement = black_box(Placement { credit: 0, index: 0 });
    let mut template = black_box(Template::new(mac, black_box(1), mac, black_box(2), black_box(3), black_box(4)));
    calls!(template: packet(1, false, false, 2, Some(3), 4), placed(1, false, false, 2, Some(3), placement, 5), datagram(1, 2, 3, 4));
    let message = black_box(arp::parse(&words, black_box(60)));
    black_box(message.map(|message| arp::emit(&message, mac)));
}
