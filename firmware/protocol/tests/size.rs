// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much RAM the state takes (on the host's word size: a bit more than on the card).

use berth_protocol::Card;

#[test]
fn the_card_leaves_room_for_code_and_stack() {
    println!("64 QPs, 32 peers: {} bytes; without QPs: {}", size_of::<Card>(), size_of::<Card<0, 32>>());
    assert!(size_of::<Card>() <= 0x5_9800);
}
