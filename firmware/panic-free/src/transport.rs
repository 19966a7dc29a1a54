// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reliable connection and datagram, unreliable and raw datagrams, and a whole end.

use crate::{calls, drain, memory};
use berth_abi::raw::RawWqe;
use berth_protocol::credit::announcer::Options;
use berth_protocol::credit::entry::{Body, Entry, Name};
use berth_protocol::memory::blocks::{self, Outcome};
use berth_protocol::memory::context::{Choice, Place, Span};
use berth_protocol::rc::{
    self, Access, Admit, Arrival, Bitmap, Message, NakCode, Position, Psn, RequestPacket, Requester, RequesterConfig,
    Responder, ResponderConfig, ResponseBody, ResponsePacket, Syndrome, Target, Wide, Window,
};
use berth_protocol::service::datagram::{Abilities, Address, Filter, Filters, Node, RawQp, Receive, UdQp};
use berth_protocol::service::raw;
use berth_protocol::service::rd::{self, Context, Open, Ports};
use berth_protocol::stream::{self, End};
use berth_protocol::wire::opcode::Opcode;
use berth_protocol::wire::{Eth, Ip, Packet, net::Ipv4};
use core::hint::black_box;

/// Surroundings that answer anything.
struct Any;

impl Target for Any {
    fn credit(&self, number: u32) -> Option<u32> {
        black_box(Some(number))
    }
    fn access(&mut self, _: &Access) -> Admit {
        black_box(Admit::Yes)
    }
}

impl Ports for Any {
    fn open(&mut self, _: &rd::Address) -> Open {
        black_box(Open::NotReady)
    }
    fn access(&mut self, _: &rd::Address, _: &Access) -> Admit {
        black_box(Admit::Yes)
    }
}

fn request() -> RequestPacket {
    black_box(RequestPacket::default())
}

fn response() -> ResponsePacket {
    let body = ResponseBody::Ack { syndrome: Syndrome::Ack(0), sack: None };
    black_box(ResponsePacket { psn: 0, msn: 0, body })
}

pub fn link() {
    connection();
    windows();
    reliable_datagram();
    datagrams();
    raw_queues();
    whole_end();
}

fn connection() {
    black_box(RequesterConfig::berth(black_box(12), black_box(64), black_box(1)));
    let config = black_box(RequesterConfig::foreign(black_box(12), black_box(64), black_box(1)));
    let mut requester: Requester<24, 128, 64> = Requester::new(config, black_box(1));
    calls!(requester: room(), pending(), window(), busy(), has_new(), waiting(), failed(), post(Message::default()));
    calls!(requester: posted(1), transmit(1), response(1, &response()), go(1, 1), deadline(), tick(1), complete());
    black_box(ResponderConfig::berth(black_box(12)));
    let config = black_box(ResponderConfig::foreign(black_box(12), black_box(1)));
    let mut responder: Responder<24, 128, 4> = Responder::new(config, black_box(1), black_box(2));
    calls!(responder: broken(), config(), arrival(), next_credit(), set_receives(Some(1)), reject(NakCode::Sequence));
    calls!(responder: fail(), receive(&request(), &mut Any), placed(1), atomic_done(1, 2), event(), respond());
    black_box(rc::packets(black_box(1), black_box(12)));
    let mut position = black_box(Position::at(black_box(1), black_box(2)));
    calls!(position: begins(), ends());
}

fn windows() {
    let psn = Psn::<24>::new(black_box(1));
    windows_of(psn, black_box(1u128));
    windows_of(psn, black_box(Wide::default()));
}

/// With bitmaps of one width.
#[inline(always)]
fn windows_of<B: Bitmap>(psn: Psn<24>, bits: B) {
    let mut window: Window<24, 64, B> = black_box(Window::new(psn));
    calls!(window: una(), next(), flight(), done(), room(1), send(1), lost(), on_the_way(), reach(psn), finish(bits));
    calls!(window: hear(1), slide(), find_lost(1, false, bits, bits), lose_from(1), next_lost(), lost_run(1), resend(1, 2));
    let mut arrival: Arrival<24, 64, B> = black_box(Arrival::new(psn));
    calls!(arrival: placed(), expected(), busy(), locate(psn), fits(psn, 1), accept(psn, 1), done(psn), ready());
    calls!(arrival: advance(), bits(), sack());
}

fn reliable_datagram() {
    let config = black_box(RequesterConfig::foreign(12, 64, 1));
    let mut context: Context<24, 64, 4> = Context::new(config, black_box(1), black_box(2), black_box(3));
    let address = black_box(rd::Address::default());
    let packet = black_box(rd::Request::Packet(address, request()));
    calls!(context: ready(), lost(), waiting(), post(address, Message::default()), transmit(1), response(1, &response()));
    calls!(context: complete(), deadline(), tick(1), go(1, 1), receive(&packet, &mut Any), placed(1), atomic_done(1, 2));
    calls!(context: arrived(), respond());
}

fn datagrams() {
    let node = black_box(Node { mac: [0; 6], ipv4: [0; 4], ipv6: [0; 16] });
    let ip = black_box(Ip::V4(Ipv4::new([0; 4], [0; 4])));
    let to = black_box(Address { eth: Eth::default(), ip, source_port: 0, qpn: 0, qkey: 0 });
    let mut ud: UdQp<16> = UdQp::new(black_box(1), black_box(2), black_box(3), black_box(4));
    calls!(ud: send(&to, 1, Some(2), false), post(Receive::default()), posted());
    if let Ok(packet) = black_box(ud.send(&to, 1, None, false)) {
        let packet: Packet = black_box(packet);
        calls!(ud: arrived(&packet, 1));
    }
    let mut frame = [0; 128];
    let mut raw: RawQp<16> = RawQp::new(black_box(1));
    calls!(raw: send(memory(&mut frame), &node), post(Receive::default()), arrived(1));
    let mut filters: Filters<16> = black_box(Filters::default());
    calls!(filters: add(Filter::default(), 1), remove(1), steer(memory(&mut frame), &node));
    let mut abilities = black_box(Abilities::ADAPTER);
    calls!(abilities: admits(Opcode(1)));
}

fn raw_queues() {
    let mut frame = [0; 128];
    let mut rules = black_box(raw::Rules { own: (1, 2), queues: [Some(0); 4], filters: [raw::Filter::default(); 8] });
    calls!(rules: choose(memory(&mut frame), true));
    drain(raw::cut(&black_box(RawWqe::default()), black_box(1)));
}

fn whole_end() {
    const LIST: usize = 64;
    let config = black_box(stream::Config {
        lists: Options::default(),
        requester: RequesterConfig::berth(12, 64, 1),
        responder: ResponderConfig::berth(12),
        blocks: blocks::Config { mtu: 4096, block: 65536, window: 1 << 20, copy_room: 65536, choice: Choice::Adaptive },
    });
    let name = black_box(Name::default());
    let entry: Entry<LIST> = black_box(Entry { to: name, body: Body::Recall { round: 0, first: 0 } });
    let mut end: End<128, LIST, 24, 64, 32, 32, 16, 64> =
        End::new(&config, black_box(1), name, name, black_box((1, 2)));
    let mut spans = [Span::default(); 4];
    let mut places = [Place::default(); 4];
    calls!(end: broken(), idle(), sent_all(), post_receive(memory(&mut spans)), ring(), poll_host());
    calls!(end: post_send(1, memory(&mut places), Some(Choice::Adaptive)), block_answer(1, Outcome::Held), block(1));
    calls!(end: receive_answer(1, Outcome::Held), give_way(), recall(1), poll_control(1), control(&entry));
    calls!(end: use_credits(), resync(), poll_request(1), left(1), placed(1, 2, 3), poll_response(1), deadline(1));
    calls!(end: response(1, &response()), tick(1), close(), withdrawn(1, 2), credits(), requester(), receives());
    drain(end.block_spans(black_box(1), black_box(2)));
    drain(end.receive_spans(black_box(1)));
    black_box(&mut end);
    if let Some(landing) = black_box(end.request(black_box(1), &request())) {
        drain(end.landing_spans(&landing));
    }
}
