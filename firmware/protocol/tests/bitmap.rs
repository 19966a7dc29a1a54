// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bitmaps of windows against lists of bits.

use berth_protocol::rc::{Bitmap, Wide};
use proptest::prelude::*;

/// Places of bits; those beyond the width must have no effect.
fn places() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        prop::collection::vec(0..300u32, 0..40),
        (0..300u32, 0..300u32).prop_map(|(from, to)| (from..to).collect()),
        (0..300u32, 0..8u32).prop_map(|(to, but)| (0..to).filter(|i| i % 97 != but).collect()),
    ]
}

fn same<B: Bitmap>(places: &[u32], n: u32) -> Result<(), TestCaseError> {
    let width = B::WIDTH;
    let bits = |of: &dyn Fn(u32) -> bool| (0..width).filter(|&i| of(i)).fold(B::ZERO, |bits, i| bits | B::bit(i));
    let here = |i: u32| i < width && places.contains(&i);
    let b = places.iter().fold(B::ZERO, |bits, &i| bits | B::bit(i));
    prop_assert_eq!(b, bits(&here));
    prop_assert_eq!(B::ones(n), bits(&|i| i < n));
    prop_assert_eq!(!b, bits(&|i| !here(i)));
    prop_assert_eq!(b & B::ones(n), bits(&|i| i < n && here(i)));
    prop_assert_eq!(b.down(n), bits(&|i| here(i + n)));
    prop_assert_eq!(b.up(n), bits(&|i| i >= n && here(i - n)));
    prop_assert_eq!(b.lowest(), (0..width).find(|&i| here(i)).unwrap_or(width));
    prop_assert_eq!(b.run(), (0..width).find(|&i| !here(i)).unwrap_or(width));
    prop_assert_eq!(b.top(), (0..width).rfind(|&i| here(i)).map_or(0, |i| i + 1));
    prop_assert_eq!(b.count() as usize, (0..width).filter(|&i| here(i)).count());
    let sack = (0..128).filter(|&i| here(i)).fold(0u128, |sack, i| sack | 1 << (127 - i));
    prop_assert_eq!(b.sack(), sack);
    prop_assert_eq!(B::from_sack(sack), bits(&|i| i < 128 && here(i)));
    Ok(())
}

proptest! {
    #[test]
    fn bitmaps_of_every_width_do_what_lists_of_bits_do(places in places(), n in 0..300u32) {
        same::<u32>(&places, n)?;
        same::<u64>(&places, n)?;
        same::<u128>(&places, n)?;
        same::<Wide>(&places, n)?;
    }
}
