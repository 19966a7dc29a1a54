// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keyed function behind PSNs, epochs and incarnations.

use berth_protocol::base::keyed::siphash;

#[test]
fn siphash_gives_the_published_vector() {
    // Appendix A's key, and the 16 bytes 00 to 0f (vector 16 of the authors' list).
    let words = |from: u8| u64::from_le_bytes(core::array::from_fn(|i| from + i as u8));
    let words = [words(0), words(8)];
    assert_eq!(siphash(words, words), 0x3f2a_cc7f_57c2_9bdb);
}

#[test]
#[allow(deprecated)]
fn siphash_agrees_with_the_standard_library() {
    use std::hash::{Hasher, SipHasher};
    let mut x = 1_u64;
    for _ in 0..1000 {
        let [a, b, c, d] = [(); 4].map(|()| {
            x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            x ^ x >> 33
        });
        let mut other = SipHasher::new_with_keys(a, b);
        other.write(&[c.to_le_bytes(), d.to_le_bytes()].concat());
        assert_eq!(siphash([a, b], [c, d]), other.finish());
    }
}

#[test]
fn one_bit_of_the_key_changes_half_of_all_bits() {
    let mut changed = 0;
    for bit in 0..128 {
        let mut key = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        let before = siphash(key, [1, 0]);
        key[bit / 64] ^= 1 << (bit % 64);
        changed += (before ^ siphash(key, [1, 0])).count_ones();
    }
    assert!((3900..4300).contains(&changed), "{changed} of 8192");
}
