// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A keyed function: without the key, values say nothing about other values.

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
    let [first, second] = message;
    v = absorb(v, first);
    v = absorb(v, second);
    // The last block has the length.
    v = absorb(v, 16 << 56);
    let [a, b, c, d] = v;
    let [a, b, c, d] = round(round(round(round([a, b, c ^ 0xff, d]))));
    a ^ b ^ c ^ d
}

const fn absorb([a, b, c, d]: [u64; 4], word: u64) -> [u64; 4] {
    let [a, b, c, d] = round(round([a, b, c, d ^ word]));
    [a ^ word, b, c, d]
}

#[inline(never)]
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
