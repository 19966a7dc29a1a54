// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any words as an entry of a credit list.

use berth_protocol::entry::Entry;

use crate::input::Input;

/// What decodes is encoded again to the same words.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let words: Vec<u32> = std::iter::repeat_with(|| input.u32()).take(data.len() / 4).collect();
    let mut rest = &words[..];
    while let Some((entry, used)) = Entry::<16>::decode(rest) {
        let mut again = vec![0; used];
        assert_eq!(entry.encode(&mut again), Some(used));
        assert_eq!(again, rest[..used]);
        assert_eq!(entry.encode(&mut again[..used - 1]), None);
        rest = &rest[used..];
    }
}
