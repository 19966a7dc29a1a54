// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory: virtual contexts, pinned pages, receives, keys, larger buffers, the indicate window.

use crate::{calls, drain, memory};
use berth_protocol::memory::ahead::Ahead;
use berth_protocol::memory::blocks::{self, Costs, Outcome};
use berth_protocol::memory::context::{Chain, Choice, Context, Local, Place, Span};
use berth_protocol::memory::keys::{Binding, Entry, Keys, Store, Verbs};
use berth_protocol::memory::pins::{self, Pins, Usage};
use berth_protocol::memory::receives::Receives;
use berth_protocol::rc::{Access, Remote, Right};
use berth_protocol::service::grow::{self, Answer, Footprint};
use berth_protocol::service::indicate::{Driver, Nic, Pool, Reason, Settings};
use core::hint::black_box;
use core::num::NonZeroU64;

fn places(buffer: &mut [Place; 4]) -> &[Place] {
    memory(buffer)
}

fn spans(buffer: &mut [Span; 4]) -> &[Span] {
    memory(buffer)
}

pub fn link() {
    contexts();
    blocks();
    pages();
    receives();
    keys();
    growing();
    indicate();
}

fn contexts() {
    let mut chain: Chain<16> = Chain::new(black_box(1));
    let mut other: Chain<8> = Chain::new(black_box(1));
    let mut list = [Place::at(black_box(1), black_box(2)); 4];
    calls!(chain: push(places(&mut list), Choice::Adaptive), trim(1), end(), start(), contexts(), find(1));
    calls!(chain: pin_by_block(1), rest_of_send(1));
    drain(chain.spans(black_box(1), black_box(2)));
    let mut context = black_box(Context::default());
    calls!(context: va(), end());
    let mut local = Local::new(black_box(1));
    calls!(local: next(&chain, &other, 1), copied(1, &mut chain, &mut other), failed(1), done());
}

fn blocks() {
    let config =
        blocks::Config { mtu: 1024, block: 65536, window: 1 << 20, copy_room: 65536, choice: Choice::Adaptive };
    let mut sender: blocks::Sender<32, 32, 16> = blocks::Sender::new(black_box(config), black_box(1));
    let mut list = [Place::default(); 4];
    calls!(sender: post(places(&mut list), Some(Choice::Adaptive)), cover(1), uncover(1), poll());
    calls!(sender: answer(1, Outcome::Held), transmit(1, 2), resend(1, 2), sent(1), acknowledged(1), withdrawn(1, 2));
    calls!(sender: give_way(), close(), rebase(1), idle(), block(1), costs_mut(), offsets(), piece_end(1), copied());
    drain(sender.spans(black_box(1), black_box(2)));
    let mut costs = black_box(Costs::new(black_box(1), black_box(2)));
    calls!(costs: pinned(1), copied(1, 2), threshold(), policy(1));
    black_box(Costs::default());
}

fn pages() {
    let config = pins::Config { page_shift: 12, budget: 64, reserve: 8, lend: false, linger: 1 };
    let mut pins: Pins<64, 4, 8> = Pins::new(black_box(config));
    let mut request = black_box(pins::Request::default());
    let mut list = [Span::default(); 4];
    let all = spans(&mut list).iter().copied();
    calls!(pins: open(1, 2), close(1), acquire(&request, all.clone(), false), served(&request, all.clone(), true, 1));
    calls!(pins: unserved(&request, all.clone(), 1), release(&request, all, 1), cancel(&request), retry());
    calls!(pins: pressure(Usage::Brief), fenced(), expire(1), next_expiry(), may_touch(1, Span::default(), true));
    calls!(pins: pinned(), pinned_bytes(), lasting(), pinned_by(1), waiting(), config());
    black_box(&mut request);
    pins.withdraw(black_box(1), black_box(2), black_box(3), |page| black_box(page) != 0);
}

fn receives() {
    let mut ahead: Ahead<32, 16> = Ahead::new(black_box(NonZeroU64::MIN), black_box(1), black_box(2));
    calls!(ahead: post(1, true), ask(1), answer(1, true), refuse(1), served(1, 2), tell(1, 2, 3), prove(1), complete(1));
    calls!(ahead: advance(), due(), later(), take(), numbers(), out(), bytes());
    let mut receives: Receives<32, 64> = Receives::new(black_box(false));
    let mut list = [Span::default(); 4];
    calls!(receives: connect(), post(spans(&mut list)), ring(), poll(), answer(1, Outcome::Held), begin(1));
    calls!(receives: write(1, 2, 3), written(1), filled(1, 2), recall(1), recalled(1), withdrawn(1, 2), close(), idle());
    calls!(receives: unused(), starved(), cancel());
    drain(receives.spans(black_box(1)));
    drain(receives.part(black_box(1), black_box(2), black_box(3)));
}

fn keys() {
    let mut keys: Keys<64> = black_box(Keys::default());
    let remote = Remote { va: 1, key: 2, len: 3 };
    let access = black_box(Access { remote, right: Right::Read, first: 1, packets: 1, again: false });
    calls!(keys: allocate(1, 2), register(1, 2, 3, 4, 5), deallocate(1), bind(1, Binding::default()), unbind(1), renew(1, 2));
    calls!(keys: tag(1, 2), binding(1), words(1, 2), in_use(), check(1, 2, &access), check_for(1, 2, 4, &access), admit(1, 2, &access), used(1, 2, 3));

    let mut verbs: Verbs<64> = black_box(Verbs::default());
    let store = &mut Words(black_box([0; 8]));
    calls!(verbs: allocate(store, 1, 2), register(store, 1, (2, 3), 4, 5), deallocate(store, 1), drop_place(store, 1));
    calls!(verbs: allocate_bound(store, 1, Binding::default(), 2), renew(store, 1, 2), in_use());
    black_box(Verbs::<64>::bind(store, black_box(1), black_box(Binding::default()))).ok();
    black_box(Verbs::<64>::unbind(store, black_box(1))).ok();
    black_box(Verbs::<64>::tag(store, black_box(1), black_box(2))).ok();
    black_box(Verbs::<64>::place_of(black_box(1)));
}

/// A table of one place.
struct Words([u32; 8]);

impl Store for Words {
    fn load(&mut self, place: usize) -> Entry {
        black_box(place);
        Entry::from_words(black_box(&self.0))
    }

    fn store(&mut self, place: usize, entry: &Entry) {
        black_box(place);
        self.0 = entry.words(black_box(3));
    }
}

fn growing() {
    let config = black_box(grow::Config { sizes: [512, 2048, 8192], count: 16, share: 75, rendezvous: 8192 });
    black_box(grow::Config::<2>::default());
    let mut sender: grow::Sender<3> = grow::Sender::new(config);
    let mut lengths = [0; 8];
    let mut bytes = [0; 64];
    calls!(sender: send(memory(&mut lengths)), poll(), look(memory(&mut bytes)), provisioned(true), released(1, 2));
    calls!(sender: memory(), levels(), growing(), room(), remote());
    let mut receiver = grow::Receiver::new(config);
    calls!(receiver: message(), request(1, 2), provisioned(Some((1, 2))), consumed(1), waiting(), poll(), repeat());
    calls!(receiver: memory(), level());
    let mut answer = black_box(Answer::default());
    calls!(answer: encode());
    black_box(Answer::decode(memory(&mut bytes), black_box(1)));
    black_box(Footprint::of(&config, black_box(1), black_box(2), black_box(3)));
    black_box(Footprint::crossover(&config, black_box(1)));
    let mut config = config;
    calls!(config: size(1), bytes(1), limit(1), offers(1), digest(), level_of(1));
    let layouts = black_box((grow::Hello::default(), grow::Request::default(), grow::Offer::default()));
    black_box((layouts.0.encode(), layouts.1.encode(), layouts.2.encode()));
    let bytes = memory(&mut bytes);
    black_box((grow::Hello::decode(bytes), grow::Request::decode(bytes), grow::Offer::decode(bytes)));
    black_box(grow::Frame::of(black_box(1)).map(grow::Frame::code));
    let tally = black_box(grow::Tally::default());
    black_box((tally.encode(), grow::Tally::decode(bytes), tally.since(&black_box(tally), 1, black_box(2))));
}

fn indicate() {
    let settings = black_box(Settings::default());
    let mut pool = Pool::new(settings);
    calls!(pool: need(1), open(Some(1)), close(1), reserved());
    let mut nic: Nic<8, 4> = Nic::new(black_box(1), black_box(2), black_box(3), black_box(4));
    calls!(nic: arrived(1, true), poll(1), hand_over(1, 2, 3, true, 4), acknowledge(1), set_window(1), close());
    calls!(nic: suspended(), pending(), held(), next(), limit(), credit(1), wasted(1, 2), deadline(), rebase(1));
    let mut driver: Driver<4> = Driver::new(black_box(&settings), black_box(1), black_box(2));
    calls!(driver: post(1, 2, true), indicated(1, 2, true), returned(1, 2, Reason::Full), accept(1), accepting(1));
    calls!(driver: poll(1), close(), waiting(), indicated_bytes(), consumed(), outstanding(), deadline(), rebase(1));
}
