// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit lists: builder and reader, both ends, policies, carriers, multiplexing, cutting.

use crate::{calls, drain, memory};
use berth_protocol::credit::announcer::{Announcer, Options, list_limit};
use berth_protocol::credit::carrier::{
    Carry, Fetch, Messages, Reverse, SharedControl, SharedReader, SharedWriter, TcpOptions, Window, WindowWriter,
};
use berth_protocol::credit::cut::{self, Credits, Cut, LibraryCut, Mode, NicCut, Send};
use berth_protocol::credit::entry::{Body, Entry, Name, Part};
use berth_protocol::credit::list::{Builder, Reader, Trigger};
use berth_protocol::credit::mux::{Mux, Port};
use berth_protocol::credit::policy::{Cap, Kind, Meter, Policy, Predictor, Settings, Use};
use berth_protocol::credit::taker::Taker;
use core::hint::black_box;

const LIST: usize = 64;

fn entry() -> Entry<LIST> {
    let part = Part { round: 0, list: 0, total: 1, offset: 0, len: 1, sizes: [0; LIST] };
    black_box(Entry { to: name(), body: Body::List(part) })
}

fn name() -> Name {
    black_box(Name::default())
}

pub fn link() {
    rows();
    ends();
    policies();
    carriers();
    cutting();
}

fn rows() {
    let mut builder: Builder = black_box(Builder::default());
    calls!(builder: reset(1, Trigger::First), enable(), post(1), commit(), landed(), ready(), list_take());
    calls!(builder: list_take_most(1), list_next(), void(1), numbers(), set_trigger(Trigger::Last), skip_trigger(), trigger(), rtrip());
    calls!(builder: next_unannounced(), outstanding(), fresh(), size_of(1));
    calls!(builder: disable(), unpost(), announce_all(), waits());
    let mut reader: Reader = black_box(Reader::default());
    calls!(reader: list_begin(1, 2), list_push(1), take(1), give_up(1), count(), expected(), next_out(), proven());
    calls!(reader: bytes(), peek(1), next_size(), use_next(1));
    let trigger = black_box(Trigger::from_arg(black_box(1), black_box(true)));
    black_box((trigger.to_arg(), trigger.index(black_box(1))));
}

fn ends() {
    black_box(list_limit(black_box(1), black_box(1), black_box(1), black_box(1)));
    let mut options = black_box(Options::default());
    options.cap = Some(Cap::new(black_box(1), black_box(1), black_box(1)));
    let mut announcer: Announcer = Announcer::new(black_box(&options));
    calls!(announcer: connect(1, name(), name()), post(1), commit(), landed(1, Some(2)), remaining(1), wasted(1, 2));
    calls!(announcer: poll(1), deadline(1), recall(1), recall_bytes(1), hear(&entry()), builder(), policy(), skip_trigger());
    calls!(announcer: outstanding_bytes(), recalling(), own(), trip(), repeat_at(), hold(), void(1), unpost());
    calls!(announcer: set_policy(black_box(options.policy)), announce_all(), reclaim(), close());
    black_box(Announcer::<128, LIST, 32>::default());
    let mut taker: Taker = black_box(Taker::default());
    calls!(taker: connect(name(), name()), arrive(&entry()), process(), accept(&entry()), resync(), poll(), take(1));
    calls!(taker: reader(), buffer_posted(), wants_to_send(), own(), next_size(), use_next(1));
    let mut port: Port = Port::new(black_box(&options));
    calls!(port: connect(1, name(), name()), receive(&entry()), poll(1), deadline(1));
    let mut mux: Mux<4> = black_box(Mux::default());
    calls!(mux: open(1, name(), name(), &options), close(1), port(1), find(1), receive(&entry()), poll(1), deadline(1));
    let mut words = [0; 61];
    calls!(mux: resync(), fill(1, memory(&mut words)));
    mux.receive_words(memory(&mut words), |entry, received| _ = black_box((entry, received)));
}

fn policies() {
    let mut policy = Policy::new(black_box(Settings::of(black_box(Kind::First))));
    calls!(policy: kind(), mean(), variance(), lead(), trigger(), due(1, 2), deadline(1));
    calls!(policy: learn(1, &black_box(Use::default())), remaining(1, 2), voided(), measures());
    let mut meter = Meter::new();
    calls!(meter: sent(1, 2), landed(1, true, 2, 3, Some(4)), remaining(1), bytes_remaining(), voided());
    let mut predictor = black_box(Predictor::default());
    calls!(predictor: learn(1), predict(1));
    let mut cap = Cap::new(black_box(1), black_box(2), black_box(3));
    calls!(cap: change(1, &black_box(Cap::new(1, 2, 3))), start(1), landed(1, 2), refund(1, 2), free(1, 2), is_full(1), when(1, 2, 3));
    black_box(Cap::planned_load(black_box(1), black_box(2)));
}

fn carrier<C: Carry<LIST>>(mut carrier: C) {
    let mut bytes = [0; 512];
    calls!(carrier: part(), put(&entry()), unit(memory(&mut bytes)));
}

fn fetch<F: Fetch<LIST>>(mut fetch: F) {
    let mut bytes = [0; 512];
    calls!(fetch: deliver(1, memory(&mut bytes)), get());
}

fn carriers() {
    carrier(black_box(Messages::default()));
    fetch(black_box(Messages::default()));
    let reverse = black_box(Reverse::new(black_box(1), black_box(false)));
    if let Some(reverse) = reverse {
        carrier(reverse.clone());
        fetch(reverse);
    }
    carrier(black_box(WindowWriter::<3, 80>::default()));
    fetch(black_box(Window::<3, 80>::default()));
    let ring = black_box(SharedControl::<256>::default());
    carrier(SharedWriter::new(&ring));
    fetch(SharedReader::new(&ring));
    if let Some(options) = black_box(TcpOptions::new(name(), black_box(12))) {
        carrier(options.clone());
        fetch(options);
    }
    let mut entry = entry();
    let mut words = [0; 70];
    calls!(entry: words(), encode(memory(&mut words)));
    black_box(Entry::<LIST>::decode(memory(&mut words)));
    if let Body::List(mut part) = entry.body {
        calls!(part: sizes(), is_sound());
    }
}

fn cut<C: Cut>(mut cut: C) {
    let mut taker: Taker = black_box(Taker::new());
    calls!(cut: post(Send::default()), poll(&mut taker), remaining());
}

fn cutting() {
    let mut mode = black_box(Mode::Stream);
    calls!(mode: agree(Mode::Message), credit_of(1));
    cut(black_box(NicCut::<16>::new(mode)));
    let mut library = black_box(LibraryCut::<16, 8>::new(mode));
    cut(library.clone());
    let mut reader: Reader = black_box(Reader::new());
    calls!(library: cut(&mut reader), descriptor());
    let mut list = [(0, 0); 4];
    drain(cut::gather(memory(&mut list), black_box(1), black_box(2)));
}
