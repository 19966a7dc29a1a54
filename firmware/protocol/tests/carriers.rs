// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same lists over every carrier (CR-12).

mod common;
use berth_protocol::credit::announcer::{Announcer, Options};
use berth_protocol::credit::carrier::*;
use berth_protocol::credit::entry::{Body, Entry, HEAD, Name, Part};
use berth_protocol::credit::policy::{Kind, Settings};
use berth_protocol::credit::taker::{Arrived, Taker};
use berth_protocol::model::Rng;
use proptest::prelude::*;

const R: Name = Name { qpn: 1, epoch: 5 };
const S: Name = Name { qpn: 2, epoch: 6 };
const L: usize = 64;

/// What a transfer came to: pieces as sent, lists as first said, units on the medium.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    pieces: Vec<u32>,
    credits: Vec<u32>,
    units: usize,
}

/// Entries from one end to the other; a unit is lost with probability `loss`.
fn pump(
    carry: &mut dyn Carry<L>,
    fetch: &mut dyn Fetch<L>,
    rng: &mut Rng,
    loss: f64,
    outcome: &mut Outcome,
    mut out: impl FnMut() -> Option<Entry<L>>,
    mut arrive: impl FnMut(&Entry<L>),
) {
    let mut waiting = None;
    loop {
        let mut put = false;
        while let Some(entry) = waiting.take().or_else(&mut out) {
            if !carry.put(&entry) {
                waiting = Some(entry);
                break;
            }
            put = true;
        }
        let mut buf = [0; 512];
        let mut moved = false;
        while let Some(unit) = carry.unit(&mut buf) {
            moved = true;
            outcome.units += 1;
            if !rng.chance(loss) {
                assert!(fetch.deliver(unit.offset, &buf[..unit.len]));
            }
            while let Some(entry) = fetch.get() {
                arrive(&entry);
            }
        }
        // Shared memory has no units.
        while let Some(entry) = fetch.get() {
            moved = true;
            arrive(&entry);
        }
        if waiting.is_none() && !put && !moved {
            return;
        }
    }
}

/// 20 000 bytes against receives of random sizes, a recall in between.
fn transfer(
    down: (&mut dyn Carry<L>, &mut dyn Fetch<L>),
    up: (&mut dyn Carry<L>, &mut dyn Fetch<L>),
    loss: f64,
    seed: u64,
) -> Outcome {
    let mut sizes = Rng(7);
    let mut rng = Rng(seed);
    let options = Options { part: down.0.part(), repeat: 10, policy: Settings::of(Kind::First), ..Options::default() };
    let mut announcer = Announcer::<128, L, 32>::new(&options);
    let mut taker = Taker::<128, L, 32>::new();
    announcer.connect(0, R, S);
    taker.connect(S, R);
    let mut outcome = Outcome { pieces: Vec::new(), credits: Vec::new(), units: 0 };
    let mut left = 20_000;
    let mut now = 0;
    while left > 0 {
        now += 10;
        assert!(now < 1_000_000, "no end in sight");
        if announcer.builder().next_unannounced().is_none() && announcer.builder().outstanding() < 30 {
            for _ in 0..20 {
                announcer.post(1 + sizes.below(if now % 3 == 0 { 100_000 } else { 50 }) as u32);
            }
            announcer.commit();
        }
        if now == 500 {
            announcer.recall(2);
        }
        let before = announcer.builder().numbers().1;
        let out = || announcer.poll(now);
        pump(down.0, down.1, &mut rng, loss, &mut outcome, out, |entry| {
            let arrived = taker.accept(entry);
            assert!(
                matches!(arrived, Arrived::Buffered | Arrived::Repeat | Arrived::Recalled | Arrived::Stale),
                "{arrived:?}"
            );
        });
        for number in before..announcer.builder().numbers().1 {
            outcome.credits.extend(announcer.builder().size_of(number));
        }
        let out = || taker.poll();
        pump(up.0, up.1, &mut rng, loss, &mut outcome, out, |entry| {
            announcer.hear(entry);
        });
        for _ in 0..10 {
            if let Some((len, number, size)) = taker.take(left) {
                assert_eq!(announcer.builder().size_of(number), Some(size));
                assert!(announcer.landed(now, None));
                left -= len;
                outcome.pieces.push(len);
            }
        }
    }
    outcome
}

/// The transfer over every carrier.
fn every(loss: f64, seed: u64) -> Vec<(&'static str, Outcome)> {
    let mut all = Vec::new();
    let (mut a, mut b, mut c, mut d) = (Messages::new(), Messages::new(), Messages::new(), Messages::new());
    all.push(("messages", transfer((&mut a, &mut b), (&mut c, &mut d), loss, seed)));
    let reverse = || Reverse::<L>::new(1024, false).unwrap();
    let (mut a, mut b, mut c, mut d) = (reverse(), reverse(), reverse(), reverse());
    all.push(("reverse", transfer((&mut a, &mut b), (&mut c, &mut d), loss, seed)));
    let (mut a, mut b) = (WindowWriter::<2, 75>::new(), Window::<2, 75>::new());
    let (mut c, mut d) = (WindowWriter::<1, 8>::new(), Window::<1, 8>::new());
    all.push(("write", transfer((&mut a, &mut b), (&mut c, &mut d), loss, seed)));
    let (down, up) = (SharedControl::<256>::new(), SharedControl::<8>::new());
    let (mut a, mut b) = (SharedWriter::new(&down), SharedReader::new(&down));
    let (mut c, mut d) = (SharedWriter::new(&up), SharedReader::new(&up));
    all.push(("shared memory", transfer((&mut a, &mut b), (&mut c, &mut d), loss, seed)));
    let option = |to| TcpOptions::<L>::new(to, 12).unwrap();
    let (mut a, mut b, mut c, mut d) = (option(R), option(S), option(S), option(R));
    all.push(("tcp option", transfer((&mut a, &mut b), (&mut c, &mut d), loss, seed)));
    all
}

#[test]
fn cr_12_every_carrier_brings_the_same_credits() {
    let all = every(0.0, 1);
    let (_, first) = &all[0];
    assert_eq!(first.pieces.iter().sum::<u32>(), 20_000);
    for (name, outcome) in &all {
        assert_eq!((&outcome.pieces, &outcome.credits), (&first.pieces, &first.credits), "{name}");
    }
    assert_eq!(all[3].1.units, 0, "shared memory");
    assert!(all[4].1.units > 3 * first.units, "a TCP option is narrow");
}

#[test]
fn cr_12_what_a_carrier_loses_is_said_again() {
    for seed in 0..20 {
        for (name, outcome) in every(0.4, seed) {
            assert_eq!(outcome.pieces.iter().sum::<u32>(), 20_000, "{name}, seed {seed}");
        }
    }
}

fn list(len: u8) -> Entry<L> {
    let mut sizes = [0; L];
    for (i, size) in sizes.iter_mut().take(len as usize).enumerate() {
        *size = 70_000 + i as u32;
    }
    Entry { to: S, body: Body::List(Part { round: 1, list: 9, total: len, offset: 0, len, sizes }) }
}

#[test]
fn cr_12_carriers_refuse_what_they_cannot_carry() {
    let big = list(64);
    let mut messages = Messages::default();
    assert!(!messages.put(&big));
    let mut writer = WindowWriter::<1, 10>::default();
    assert!(!writer.put(&big) && writer.put(&list(3)));
    assert_eq!(Carry::<L>::unit(&mut writer, &mut [0; 8]), None);
    assert_eq!(Fetch::<L>::get(&mut Window::<1, 10>::default()), None);
    let ring = SharedControl::<16>::default();
    let (mut tx, mut rx) = (SharedWriter::new(&ring), SharedReader::new(&ring));
    assert_eq!(Carry::<L>::part(&tx), 12);
    assert!(!tx.put(&big) && tx.put(&list(12)) && !tx.put(&list(1)));
    assert_eq!(Carry::<L>::unit(&mut tx, &mut [0; 64]), None);
    assert!(!Fetch::<L>::deliver(&mut rx, 0, &[0; 64]));
    assert_eq!(rx.get(), Some(list(12)));
    let mut option = TcpOptions::<L>::new(S, 0).unwrap();
    assert!(!option.put(&big) && option.put(&list(1)));
    assert_eq!(option.unit(&mut [0; 10]), None);
    for body in [
        Body::Recall { round: 3, first: 4 },
        Body::Recalled { round: 3, first: 4 },
        Body::Sync { round: 3, next: u32::MAX },
    ] {
        let mut option = TcpOptions::<L>::new(S, 24).unwrap();
        let entry = Entry { to: S, body };
        assert!(option.put(&entry));
        let mut buf = [0; 16];
        let unit = option.unit(&mut buf).unwrap();
        assert!(option.deliver(0, &buf[..unit.len]));
        assert_eq!(option.get(), Some(entry));
        // An unknown kind, or a recall with a size.
        buf[4] = 7;
        assert!(!option.deliver(0, &buf[..unit.len]));
    }
}

/// A peer process that writes nonsense into the shared memory.
#[test]
fn cr_12_d_nonsense_in_shared_memory_is_skipped() {
    let ring = SharedControl::<16>::new();
    let mut liar = SharedWriter::new(&ring);
    let mut rx = SharedReader::new(&ring);
    // A record that names more words than there are.
    let mut entry = list(2);
    if let Body::List(part) = &mut entry.body {
        part.total = 200;
    }
    assert!(liar.put(&entry));
    assert_eq!(Fetch::<L>::get(&mut rx), None);
    assert!(liar.put(&list(2)));
    assert_eq!(rx.get(), Some(list(2)));
}

#[test]
fn cr_12_a_messages_of_the_control_connection_hold_several_entries() {
    let (mut tx, mut rx) = (Messages::new(), Messages::new());
    assert_eq!(Carry::<L>::part(&tx), 57);
    let mut buf = [0; 256];
    assert_eq!(Carry::<L>::unit(&mut tx, &mut buf), None);
    assert!(tx.put(&list(20)) && tx.put(&list(20)));
    assert!(!tx.put(&list(20)), "full");
    assert!(tx.put(&Entry::<L> { to: R, body: Body::Sync { round: 0, next: 3 } }));
    assert_eq!(Carry::<L>::unit(&mut tx, &mut [0; 10]), None);
    let unit = Carry::<L>::unit(&mut tx, &mut buf).unwrap();
    assert!(Fetch::<L>::deliver(&mut rx, 0, &buf[..unit.len]));
    let got: Vec<Entry<L>> = std::iter::from_fn(|| rx.get()).collect();
    assert_eq!(got, [list(20), list(20), Entry { to: R, body: Body::Sync { round: 0, next: 3 } }]);
    assert!(!Fetch::<L>::deliver(&mut rx, 0, &buf[..unit.len - 1]));
    assert!(!Fetch::<L>::deliver(&mut rx, 0, &[0; 1024]));
    assert!(Fetch::<L>::deliver(&mut rx, 0, &[0xff; 12]));
    assert_eq!(Fetch::<L>::get(&mut rx), None);
    assert_eq!(Fetch::<L>::get(&mut rx), None);
}

#[test]
fn cr_12_b_the_data_connections_reverse_direction_only_where_data_flows_one_way() {
    assert!(Reverse::<L>::new(1024, true).is_none());
    assert!(Reverse::<L>::new(20, false).is_none());
    let mut tx = Reverse::<L>::new(256, false).unwrap();
    let mut rx = tx.clone();
    assert_eq!(tx.part(), 59);
    assert!(!tx.put(&list(60)));
    assert!(tx.put(&list(59)) && !tx.put(&list(1)));
    let mut buf = [0; 256];
    let unit = tx.unit(&mut buf).unwrap();
    assert_eq!(unit.len, 256);
    // Data is not taken for an entry.
    assert!(!rx.deliver(0, &buf[1..]));
    assert!(!rx.deliver(0, &buf[..200]));
    assert!(rx.deliver(0, &buf));
    assert_eq!(rx.get(), Some(list(59)));
    assert_eq!(rx.get(), None);
}

#[test]
fn cr_12_c_a_write_that_is_half_visible_is_not_yet_an_entry() {
    const WORDS: usize = 3 + HEAD + 8;
    let mut tx = WindowWriter::<2, WORDS>::new();
    let mut rx = Window::<2, WORDS>::new();
    assert_eq!(Carry::<L>::part(&tx), 8);
    assert_eq!(Fetch::<L>::get(&mut rx), None, "fresh memory");
    let mut rng = Rng(3);
    for i in 1..=100u8 {
        let entry = list(1 + i % 8);
        assert!(tx.put(&entry) && !tx.put(&entry));
        let mut buf = [0; 4 * WORDS];
        let unit = Carry::<L>::unit(&mut tx, &mut buf).unwrap();
        // Words become visible in any order.
        let mut order: Vec<usize> = (0..WORDS).collect();
        for i in (1..WORDS).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for (n, word) in order.iter().enumerate() {
            let before = rx.clone();
            let got: Option<Entry<L>> = rx.get();
            if let Some(got) = got {
                // The words that are missing were there from the entry before.
                assert_eq!(got, entry, "after {n} words");
                rx = before;
            }
            assert!(Fetch::<L>::deliver(&mut rx, unit.offset + 4 * *word as u32, &buf[4 * word..4 * word + 4]));
        }
        assert_eq!(rx.get(), Some(entry));
        assert_eq!(Fetch::<L>::get(&mut rx), None, "once");
    }
    // Nothing is written beyond the window.
    assert!(!Fetch::<L>::deliver(&mut rx, 8 * WORDS as u32, &[0; 4]));
    assert!(!Fetch::<L>::deliver(&mut rx, 2, &[0; 4]));
    assert!(!Fetch::<L>::deliver(&mut rx, 0, &[0; 3]));
    assert!(!Fetch::<L>::deliver(&mut rx, u32::MAX - 3, &[0; 8]));
}

#[test]
fn cr_12_c_a_reader_that_was_gone_round_goes_on_with_what_is_there() {
    const WORDS: usize = 3 + HEAD + 8;
    let mut tx = WindowWriter::<2, WORDS>::new();
    let mut rx = Window::<2, WORDS>::new();
    let mut buf = [0; 4 * WORDS];
    for len in 1..=5 {
        assert!(tx.put(&list(len)));
        let unit = Carry::<L>::unit(&mut tx, &mut buf).unwrap();
        Fetch::<L>::deliver(&mut rx, unit.offset, &buf[..unit.len]);
    }
    let got: Vec<Entry<L>> = std::iter::from_fn(|| rx.get()).collect();
    assert_eq!(got, [list(5)]);
    assert!(tx.put(&list(6)));
    let unit = Carry::<L>::unit(&mut tx, &mut buf).unwrap();
    Fetch::<L>::deliver(&mut rx, unit.offset, &buf[..unit.len]);
    assert_eq!(rx.get(), Some(list(6)));
}

#[test]
fn cr_12_d_two_threads_share_memory() {
    let ring = SharedControl::<32>::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut tx = SharedWriter::new(&ring);
            for i in 0..10_000u32 {
                while !tx.put(&list(1 + (i % 28) as u8)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut rx = SharedReader::new(&ring);
        for i in 0..10_000u32 {
            let entry = loop {
                match Fetch::<L>::get(&mut rx) {
                    Some(entry) => break entry,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(entry, list(1 + (i % 28) as u8));
        }
    });
}

#[test]
fn cr_12_e_lists_of_a_tcp_option_take_several_segments() {
    let mut tx = TcpOptions::<L>::new(R, 0).unwrap();
    let mut rx = TcpOptions::<L>::new(S, 0).unwrap();
    assert_eq!(tx.part(), 7);
    assert!(TcpOptions::<L>::new(R, 28).is_none() && TcpOptions::<L>::new(R, 41).is_none());
    assert!(!tx.put(&list(8)));
    assert!(tx.put(&list(7)) && !tx.put(&list(1)));
    let mut buf = [0; 40];
    let unit = tx.unit(&mut buf).unwrap();
    assert_eq!(unit.len, 40);
    // RFC 6994: experimental kind, length, 16-bit identifier.
    assert_eq!((buf[0], buf[1], &buf[2..4]), (253, 40, &TCP_EXPERIMENT_ID[..]));
    assert!(rx.deliver(0, &buf));
    assert_eq!(rx.get(), Some(list(7)));
    // Short sizes: twice as many; padded to whole words.
    let mut short = list(5);
    if let Body::List(part) = &mut short.body {
        part.sizes[..5].copy_from_slice(&[1, 2, 65_535, 0, 4]);
    }
    assert!(tx.put(&short));
    let unit = tx.unit(&mut buf).unwrap();
    assert_eq!((unit.len, buf[1]), (24, 22));
    // Between other options: no operation, timestamps, somebody else's experiment.
    let mut options = vec![1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 253, 4, 0xf9, 0x89];
    options.extend(&buf[..unit.len]);
    assert!(rx.deliver(0, &options));
    assert_eq!(rx.get(), Some(short));
    for bad in [&[][..], &[0, 253], &[8, 1], &[8, 0], &[253], &[253, 4, b'B', b'c'], &[8, 99, 0]] {
        assert!(!rx.deliver(0, bad));
        assert_eq!(rx.get(), None);
    }
}

proptest! {
    #![proptest_config(common::config(256))]

    /// Whatever comes: no carrier stumbles, and what it takes for an entry is sound.
    #[test]
    fn cr_12_nonsense_on_any_carrier_does_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..300), flips in prop::collection::vec((0usize..300, any::<u8>()), 0..4),
        valid in any::<bool>(), len in 1u8..7,
    ) {
        let mut tcp = TcpOptions::<L>::new(S, 0).unwrap();
        let mut reverse = Reverse::<L>::new(1024, false).unwrap();
        let mut messages = Messages::new();
        let mut window = Window::<2, 20>::new();
        let mut writer = WindowWriter::<2, 20>::new();
        let ends: [(&mut dyn Carry<L>, &mut dyn Fetch<L>); 4] = [
            (&mut tcp.clone(), &mut tcp),
            (&mut reverse.clone(), &mut reverse),
            (&mut messages.clone(), &mut messages),
            (&mut writer, &mut window),
        ];
        for (carry, fetch) in ends {
            let mut bytes = bytes.clone();
            if valid {
                let mut buf = [0; 512];
                carry.put(&list(len));
                let unit = carry.unit(&mut buf).unwrap();
                bytes = buf[..unit.len].to_vec();
                for (at, flip) in &flips {
                    if let Some(byte) = bytes.get_mut(*at) {
                        *byte ^= flip;
                    }
                }
            }
            fetch.deliver(0, &bytes);
            while let Some(entry) = fetch.get() {
                if let Body::List(part) = entry.body {
                    prop_assert!(part.is_sound());
                }
            }
        }
        let ring = SharedControl::<32>::new();
        let mut rx = SharedReader::new(&ring);
        prop_assert_eq!(Fetch::<L>::get(&mut rx), None);
    }
}
