// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A keyed function: without the key, values say nothing about other values.

use super::bound::Bound;

/// A key of 128 bits, low half first.
pub type Key = [u64; 2];

/// SipHash-2-4 of 16 bytes (two words, little-endian).
///
/// <https://www.aumasson.jp/siphash/siphash.pdf>: 64 bits that look random without the key. It takes shifts and
/// additions only, which suits a core without a multiplier or a cipher.
#[inline(never)]
pub const fn siphash(key: Key, message: [u64; 2]) -> u64 {
    let [k0, k1] = key;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // Two rounds for each word, of which the last one has the length, and four more. One loop, so that a round's code is
    // there once and its state in registers.
    let [first, second] = message;
    let words = [first, second, 16 << 56];
    let mut i = 0;
    let mut bound = Bound::new(ROUNDS);
    while i < ROUNDS as usize {
        bound.step();
        let word = if i / 2 < words.len() { words[i / 2] } else { 0 };
        if i % 2 == 0 {
            v[3] ^= word;
        }
        if i == 2 * words.len() {
            v[2] ^= 0xff;
        }
        v = round(v);
        if i % 2 == 1 {
            v[0] ^= word;
        }
        i += 1;
    }
    let [a, b, c, d] = v;
    a ^ b ^ c ^ d
}

/// Rounds of [`siphash`].
const ROUNDS: u32 = 10;

#[inline(always)]
const fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32);
    a = a.wrapping_add(d);
    c = c.wrapping_add(b);
    d = d.rotate_left(21) ^ a;
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    [a, b, c, d]
}
