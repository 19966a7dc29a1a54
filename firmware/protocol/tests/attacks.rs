// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published attacks on RKeys, replayed against the model, which is all that there is of them. Sources and results are
//! in docs/concepts/reliability.md; what the card itself answers to the others is in `hw-rtl/model/tests/attacks.rs`.

mod common;

use berth_protocol::base::keyed::siphash;
use berth_protocol::memory::keys::{Binding, Keys, READ, Refusal, WRITE};
use berth_protocol::model::Rng;
use berth_protocol::rc::{Access, Remote, Right};

const VA: u64 = 0x1000_0000;
const LEN: u32 = 0x10_0000;
/// The protection domain.
const D: u16 = 0;

fn access(key: u32) -> Access {
    Access { remote: Remote { va: VA, key, len: 64 }, right: Right::Read, first: 0, packets: 1, again: false }
}

/// ReDMArk A3: somebody who has keys of its own guesses those of others, by what it has seen and at random.
#[test]
fn redmark_guessed_keys_open_nothing() {
    const ATTEMPTS: u32 = 400_000;
    let seed = berth_random::seed(41);
    let mut rng = Rng(seed);
    // As a card would: entropy from a keyed function.
    let key = [rng.draw(), rng.draw()];
    let mut drawn = 0;
    let mut entropy = || {
        drawn += 1;
        siphash(key, [drawn, 1])
    };
    let mut keys = Keys::<256>::new();
    let binding = Binding { va: VA, len: LEN.into(), rights: READ | WRITE, ..Binding::default() };
    let (mut live, mut own, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..256 {
        let key = keys.allocate(D, entropy()).unwrap();
        keys.bind(key, binding).unwrap();
        // Every eighth is the attacker's; it has seen some that are not valid any more.
        match i % 8 {
            0 => own.push(key),
            1 => gone.push(key),
            _ => live.push(key),
        }
    }
    for key in &gone {
        keys.deallocate(*key).unwrap();
    }
    for _ in &gone {
        let key = keys.allocate(D, entropy()).unwrap();
        keys.bind(key, binding).unwrap();
        live.push(key);
    }
    let mut right = 0;
    for n in 0..ATTEMPTS {
        let near = own[rng.below(own.len() as u64) as usize];
        let guess = match n % 4 {
            // What is near its own in number; the same bits in another place; an old key.
            0 => near.wrapping_add((rng.below(1 << 12) as u32).wrapping_sub(1 << 11)),
            1 => near & !0xff00 | (rng.below(256) as u32) << 8,
            2 => gone[rng.below(gone.len() as u64) as usize],
            _ => rng.draw() as u32,
        };
        if own.contains(&guess) {
            continue;
        }
        let answer = keys.check(D, 1, &access(guess));
        assert_eq!(answer.is_ok(), live.contains(&guess), "{guess:#x}");
        right += answer.is_ok() as u32;
        assert!(answer.is_ok() || answer == Err(Refusal::Unknown), "nobody learns which part was wrong");
    }
    println!("guessed keys: {ATTEMPTS} attempts, {right} right");
    assert!(right <= 1, "{right} of {ATTEMPTS}, where 192 in 2^32 are chance");
}

/// Pythia: how long a look-up takes tells who else used what. Here it is one place of a table and comparisons, whatever
/// was used before. A key that is wrong is refused a few comparisons earlier than a range that is; both end the connection
/// with the same answer.
#[test]
fn pythia_a_look_up_of_a_key_has_no_loop_and_no_cache() {
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/memory/keys.rs")).unwrap();
    for name in ["fn find(", "fn find_mut(", "pub fn check(", "pub fn admit("] {
        let body = source.split(name).nth(1).expect(name).split("\n    }\n").next().unwrap();
        let code: String = body.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for word in ["for ", "while ", "loop ", ".iter", "at_most", "position("] {
            assert!(!code.contains(word), "{name} has {word:?}");
        }
    }
    // What it changes is the claim of a one-shot key only: nobody else's next look-up finds another table.
    let mut keys = Keys::<4>::new();
    let plain = keys.register(D, VA, LEN.into(), READ, 7).unwrap();
    let before = keys.clone();
    for guess in [plain, plain ^ 0x100, plain ^ 1, 0] {
        let _ = keys.check(D, 1, &access(guess));
        assert_eq!(keys, before);
    }
}
