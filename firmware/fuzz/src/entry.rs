// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any words as entries of credit lists, any bytes on every carrier of them, and entries through every carrier.

use berth_protocol::credit::announcer::Options;
use berth_protocol::credit::carrier::{
    Carry, Fetch, Messages, Reverse, SharedControl, SharedReader, SharedWriter, TcpOptions, Window, WindowWriter,
};
use berth_protocol::credit::entry::{Body, Entry, Name};
use berth_protocol::credit::mux::{Mux, Received};

use crate::input::Input;

const LIST: usize = 16;
/// Credits of the narrowest carrier's part: a TCP option with room for 24 bytes.
const NARROW: usize = 3;

/// What decodes is encoded again to the same words, and comes out of every carrier as it went in.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let words: Vec<u32> = std::iter::repeat_with(|| input.u32()).take(data.len() / 4).collect();
    let mut rest = &words[..];
    while let Some((entry, used)) = Entry::<LIST>::decode(rest) {
        let mut again = vec![0; used];
        assert_eq!(entry.encode(&mut again), Some(used));
        assert_eq!(again, rest[..used]);
        assert_eq!(entry.encode(&mut again[..used - 1]), None);
        carried(&entry);
        rest = &rest[used..];
    }
    multiplexed(&words);
    delivered(data);
}

/// As a message on a control connection with one data connection: what is told is what decodes.
fn multiplexed(words: &[u32]) {
    let mut mux = Mux::<1, 16, LIST, 32>::new();
    let own = words.first().map_or(Name::default(), |qpn| Name { qpn: *qpn, epoch: 1 });
    mux.open(0, own, Name::default(), &Options::default()).expect("there is room");
    let mut told = Vec::new();
    let whole = mux.receive_words(words, |entry, received| {
        assert_eq!(received == Received::UnknownQpn, entry.to.qpn != own.qpn);
        told.push(*entry);
    });
    let mut rest = words;
    for entry in told {
        let (decoded, used) = Entry::decode(rest).expect("what is told was decoded");
        assert_eq!(decoded, entry);
        rest = &rest[used..];
    }
    assert_eq!(whole, rest.is_empty());
}

/// Through every carrier that is wide enough.
fn carried(entry: &Entry<LIST>) {
    let narrow = match &entry.body {
        Body::List(part) => usize::from(part.len) <= NARROW,
        _ => true,
    };
    let mut unit = [0; 2048];
    let mut through = |from: &mut dyn Carry<LIST>, to: &mut dyn Fetch<LIST>, must: bool| {
        if !from.put(entry) {
            assert!(!must, "there was room for {entry:?}");
            return;
        }
        let Some(sent) = from.unit(&mut unit) else { panic!("{entry:?} was taken and is not carried") };
        assert!(to.deliver(sent.offset, &unit[..sent.len]));
        assert_eq!(to.get(), Some(*entry));
        assert_eq!(to.get(), None);
        assert_eq!(from.unit(&mut unit), None);
    };
    through(&mut Messages::new(), &mut Messages::new(), true);
    if let (Some(mut from), Some(mut to)) = (Reverse::new(256, false), Reverse::new(256, false)) {
        through(&mut from, &mut to, true);
    }
    through(&mut WindowWriter::<4, 24>::new(), &mut Window::<4, 24>::new(), true);
    let to = entry.to;
    if let (Some(mut from), Some(mut to)) = (TcpOptions::new(Name::default(), 12), TcpOptions::new(to, 12)) {
        through(&mut from, &mut to, narrow);
    }
    let ring = SharedControl::<32>::new();
    let (mut from, mut to) = (SharedWriter::new(&ring), SharedReader::new(&ring));
    assert!(Carry::<LIST>::put(&mut from, entry));
    assert_eq!(Fetch::<LIST>::get(&mut to), Some(*entry));
    assert_eq!(Fetch::<LIST>::get(&mut to), None);
}

/// Any bytes come over the medium.
fn delivered(data: &[u8]) {
    let mut input = Input::new(data);
    let mut window = Window::<4, 24>::new();
    let mut messages = Messages::new();
    let mut reverse = Reverse::<LIST>::new(1024, false);
    let mut options = TcpOptions::<LIST>::new(Name::default(), 0);
    while !input.is_empty() {
        let what = input.byte();
        let len = usize::from(input.byte());
        let carrier: &mut dyn Fetch<LIST> = match (what % 4, &mut reverse, &mut options) {
            (0, ..) => &mut window,
            (1, ..) => &mut messages,
            (2, Some(reverse), _) => reverse,
            (_, _, Some(options)) => options,
            _ => return,
        };
        let bytes: Vec<u8> = match what % 4 {
            // What every message begins with, so that it gets further.
            2 => [b"BCrd", input.take(len)].concat(),
            3 if what & 0x80 != 0 => [&[253, len as u8, b'B', b'c'], input.take(len.saturating_sub(4))].concat(),
            _ => input.take(len).to_vec(),
        };
        carrier.deliver(u32::from(what >> 2) * 4, &bytes);
        // At most one entry for every few bytes: it must end.
        for _ in 0..100 {
            if carrier.get().is_none() {
                break;
            }
        }
        assert_eq!(carrier.get(), None);
    }
}
