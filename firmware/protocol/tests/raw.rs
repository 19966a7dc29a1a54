// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw queues: the driver's commands, what RTL is told, and whose a frame is.

use berth_abi::message::{CmdDone, CqCreate, CqDestroy, RawCreate, RawDestroy, RawFilter, RawMode};
use berth_abi::raw::{
    RAW_DEFAULT, RAW_FRAME_BYTES, RAW_GO_CREATE, RAW_GO_END, RAW_GO_FILTER, RAW_GO_MODE, RAW_MATCH_ETHERTYPE,
    RAW_MATCH_MAC, RAW_MATCH_PORT, RAW_MATCH_PROTOCOL, RAW_MULTICAST, RAW_PROMISCUOUS, RAW_RECEIVE_BYTES, RawWqe,
};
use berth_abi::status::*;
use berth_abi::wqe::{OP_RECV, OP_SEND, SEND_FENCE, SEND_UNSIGNALLED, Sge};
use berth_protocol::model::World;
use berth_protocol::service::raw::{BROADCAST, Filter, Rules, Whose, cut};

const CQN: u16 = 5;
const WANT: RawCreate = RawCreate {
    queue: 1,
    log2_sq: 3,
    log2_rq: 12,
    flags: RAW_DEFAULT,
    send_cqn: CQN,
    recv_cqn: CQN,
    sq_base: 0x1234_5678_9000,
    rq_base: 0xfff_0000_1000,
};

fn world() -> World {
    let mut w = World::new(1, 90);
    let cq = CqCreate { cqn: CQN.into(), uar: 0, log2_entries: 8, base: 0x1000 };
    assert_eq!(w.command(0, cq.encode()).status, CMD_OK);
    w
}

#[test]
fn qp_6_rtl_is_told_of_a_queue_its_flags_and_filters() {
    let mut w = world();
    assert_eq!(w.command(0, WANT.encode()).status, CMD_OK);
    assert_eq!(w.command(0, RawMode { queue: 1, flags: RAW_MULTICAST }.encode()).status, CMD_OK);
    let filter = RawFilter {
        filter: 3,
        queue: 1,
        fields: 15,
        protocol: 17,
        ethertype: 0x0800,
        port: 4000,
        mac_first: 0x0200_0000,
        mac_last: 0x0009,
    };
    assert_eq!(w.command(0, filter.encode()).status, CMD_OK);
    let told = [
        (RAW_GO_CREATE, [0x010c_0301, 0x0005_0005, 0x5678_9000, 0x1234, 0x1000, 0xfff]),
        (RAW_GO_MODE, [0x0200_0001, 0, 0, 0, 0, 0]),
        (RAW_GO_FILTER, [0x110f_0103, 0x0fa0_0800, 0x0200_0000, 9, 0, 0]),
    ];
    assert_eq!(w.nodes[0].hw.raw, told);
}

#[test]
fn qp_6_fields_out_of_range_are_refused() {
    let mut w = world();
    let bad = [
        RawCreate { queue: 4, ..WANT },
        RawCreate { log2_sq: 2, ..WANT },
        RawCreate { log2_rq: 13, ..WANT },
        RawCreate { flags: 8, ..WANT },
        RawCreate { send_cqn: CQN + 1, ..WANT },
        RawCreate { recv_cqn: 64, ..WANT },
        RawCreate { sq_base: 64, ..WANT },
        RawCreate { rq_base: 2048, ..WANT },
    ];
    for want in bad {
        assert_eq!(w.command(0, want.encode()).status, CMD_INVALID, "{want:?}");
    }
    let filter = RawFilter { filter: 0, queue: 1, fields: 1, ..RawFilter::default() };
    assert_eq!(w.command(0, filter.encode()).status, CMD_NOT_FOUND, "there is no such queue");
    assert_eq!(w.command(0, RawMode { queue: 1, flags: 0 }.encode()).status, CMD_NOT_FOUND);
    assert_eq!(w.command(0, RawDestroy { queue: 1 }.encode()).status, CMD_NOT_FOUND);
    assert_eq!(w.nodes[0].hw.raw, []);
    assert_eq!(w.command(0, WANT.encode()).status, CMD_OK);
    assert_eq!(w.command(0, WANT.encode()).status, CMD_BUSY);
    for filter in
        [RawFilter { filter: 8, ..filter }, RawFilter { fields: 16, ..filter }, RawFilter { queue: 4, ..filter }]
    {
        assert_eq!(w.command(0, filter.encode()).status, CMD_INVALID, "{filter:?}");
    }
    assert_eq!(w.command(0, RawMode { queue: 1, flags: 16 }.encode()).status, CMD_INVALID);
    assert_eq!(w.command(0, CqDestroy { cqn: CQN.into() }.encode()).status, CMD_BUSY, "it completes there");
}

#[test]
fn qp_6_a_queue_has_ended_when_nothing_of_it_is_under_way() {
    let mut w = world();
    assert_eq!(w.command(0, WANT.encode()).status, CMD_OK);
    w.nodes[0].hw.raw_busy = 2;
    let cookie = w.post_command(0, RawDestroy { queue: 1 }.encode());
    w.run(50_000);
    assert_eq!(w.nodes[0].hw.raw.last(), Some(&(RAW_GO_END, [1, 0, 0, 0, 0, 0])));
    let done = |w: &World| w.nodes[0].hw.told::<CmdDone>().any(|done| done.cookie == cookie);
    assert!(!done(&w));
    assert_eq!(w.command(0, RawDestroy { queue: 1 }.encode()).status, CMD_NOT_FOUND, "it ends already");
    assert_eq!(w.command(0, WANT.encode()).status, CMD_BUSY);
    // Other queues may be busy.
    w.nodes[0].hw.raw_busy = 1;
    w.run(50_000);
    assert!(done(&w));
    assert_eq!(w.command(0, WANT.encode()).status, CMD_OK);
}

#[test]
fn qp_6_an_element_has_ranges_that_make_up_its_length() {
    let range = |len| Sge { va: 0x1000, len, reserved: 0 };
    let send =
        RawWqe { opcode: OP_SEND, num_sge: 2, length: 64, sge: [range(14), range(50), range(0)], ..RawWqe::default() };
    assert!(send.is_sound(true) && !send.is_sound(false));
    assert!(RawWqe { flags: SEND_UNSIGNALLED, ..send }.is_sound(true));
    assert!(!RawWqe { flags: SEND_FENCE, ..send }.is_sound(true));
    assert!(!RawWqe { num_sge: 3, ..send }.is_sound(true), "a range without bytes");
    assert!(!RawWqe { num_sge: 4, ..send }.is_sound(true));
    assert!(!RawWqe { num_sge: 1, ..send }.is_sound(true), "the length does not match");
    let one = |opcode, len| RawWqe { opcode, num_sge: 1, length: len, sge: [range(len); 3], ..RawWqe::default() };
    assert_eq!(
        [13, 14, RAW_FRAME_BYTES, RAW_FRAME_BYTES + 1].map(|n| one(OP_SEND, n).is_sound(true)),
        [false, true, true, false]
    );
    assert_eq!(
        [0, 1, RAW_RECEIVE_BYTES, RAW_RECEIVE_BYTES + 1].map(|n| one(OP_RECV, n).is_sound(false)),
        [false, true, true, false]
    );
    let list = RawWqe { opcode: OP_RECV, num_sge: 3, length: 30, sge: [range(10); 3], ..RawWqe::default() };
    let parts = |len| cut(&list, len).map(|part| part.1).collect::<Vec<_>>();
    assert_eq!([parts(10), parts(11), parts(30)], [vec![10], vec![10, 1], vec![10, 10, 10]]);
}

const OWN: u64 = 0x0200_0000_0001;
const OTHER: u64 = 0x0200_0000_0002;
const GROUP: u64 = 0x0100_5e00_0001;
const IP: u32 = 0x0a00_0001;

fn frame(to: u64, ethertype: u16, bytes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = vec![0; 80];
    frame[..6].copy_from_slice(&to.to_be_bytes()[2..]);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    for (at, bytes) in bytes {
        frame[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    frame
}

fn udp4(to: u64, port: u16) -> Vec<u8> {
    frame(to, 0x0800, &[(14, &[0x45]), (23, &[17]), (36, &port.to_be_bytes())])
}

#[test]
fn qp_6_roce_to_the_card_goes_to_no_queue_and_arp_for_it_to_both() {
    let rules = Rules::<2, 0> { own: (OWN, IP), queues: [Some(RAW_DEFAULT | RAW_PROMISCUOUS), None], filters: [] };
    let arp = |target: u32| frame(BROADCAST, 0x0806, &[(38, &target.to_be_bytes())]);
    assert_eq!(rules.choose(&arp(IP), false), Whose::Both(0));
    assert_eq!(rules.choose(&arp(IP + 1), false), Whose::Queue(0));
    assert_eq!(rules.choose(&arp(IP)[..41], false), Whose::Queue(0), "it ends before the address");
    let other = frame(OTHER, 0x0806, &[(38, &IP.to_be_bytes())]);
    assert_eq!(rules.choose(&other, false), Whose::Queue(0), "to another card");
    let closed = Rules { queues: [None; 2], ..rules };
    assert_eq!(closed.choose(&arp(IP), false), Whose::Core);
    assert_eq!(rules.choose(&udp4(OWN, 4791), true), Whose::Core);
    assert_eq!(rules.choose(&udp4(OTHER, 4791), true), Whose::Queue(0), "of another card");
    // Before the card has a name there is nothing of its own.
    let nameless = Rules { own: (0, IP), ..rules };
    assert_eq!(nameless.choose(&arp(IP), false), Whose::Queue(0));
}

#[test]
fn qp_6_a_datagram_to_a_queue_pair_of_the_kernel_goes_to_its_queue() {
    let rules = Rules::<2, 0> { own: (OWN, IP), queues: [None, Some(RAW_DEFAULT)], filters: [] };
    let packet = |to, opcode, qpn: u32| {
        let mut packet = udp4(to, 4791);
        packet[42] = opcode;
        // The byte before the QPN is reserved.
        packet[46..50].copy_from_slice(&(qpn | 0xab00_0000).to_be_bytes());
        packet
    };
    for opcode in [0x64, 0x65] {
        for qpn in [1, 0x80_0000, 0x80_0002, 0xff_ffff] {
            assert_eq!(rules.choose(&packet(OWN, opcode, qpn), true), Whose::Queue(1), "{opcode:#x} {qpn:#x}");
        }
        assert_eq!(rules.choose(&packet(OWN, opcode, 2), true), Whose::Core, "the card's own QPN");
    }
    for opcode in [0, 0x04, 0x24, 0x44, 0x63, 0x66, 0xe4] {
        assert_eq!(rules.choose(&packet(OWN, opcode, 1), true), Whose::Core, "{opcode:#x}: no datagram");
    }
    let nobody = Rules { queues: [None; 2], ..rules };
    assert_eq!(nobody.choose(&packet(OWN, 0x64, 1), true), Whose::Core, "firmware counts it");
}

#[test]
fn qp_6_the_first_filter_that_matches_decides_then_the_default_queue() {
    let filter = |fields, queue| Filter { fields, queue, protocol: 17, ethertype: 0x86dd, port: 53, mac: OTHER };
    let rules = Rules {
        own: (OWN, IP),
        queues: [Some(RAW_DEFAULT | RAW_MULTICAST), Some(0), Some(RAW_DEFAULT), None],
        filters: [
            filter(RAW_MATCH_PORT, 1),
            filter(RAW_MATCH_MAC, 2),
            filter(RAW_MATCH_ETHERTYPE, 3),
            filter(RAW_MATCH_ETHERTYPE | RAW_MATCH_PROTOCOL, 2),
            Filter::default(),
        ],
    };
    let whose = |frame: &[u8]| rules.choose(frame, false);
    assert_eq!(whose(&udp4(OWN, 53)), Whose::Queue(1));
    assert_eq!(whose(&udp4(OWN, 54)), Whose::Queue(0));
    assert_eq!(whose(&udp4(OTHER, 54)), Whose::Queue(2), "the filter names this address");
    assert_eq!(whose(&udp4(OTHER + 1, 53)), Whose::None, "queue 1 takes no other addresses");
    assert_eq!(whose(&udp4(GROUP, 53)), Whose::Queue(0), "nor groups, but queue 0 does");
    let later = frame(OWN, 0x0800, &[(14, &[0x45]), (20, &[0, 1]), (23, &[17]), (37, &[53])]);
    assert_eq!(whose(&later), Whose::Queue(0), "a later fragment has no port");
    let options = frame(OWN, 0x0800, &[(14, &[0x46]), (23, &[6]), (41, &[53])]);
    assert_eq!(whose(&options), Whose::Queue(1), "behind options");
    let ipv6 = |next, port| frame(OWN, 0x86dd, &[(14, &[0x60]), (20, &[next]), (57, &[port])]);
    assert_eq!([whose(&ipv6(17, 53)), whose(&ipv6(17, 9)), whose(&ipv6(58, 53))], [1, 2, 0].map(Whose::Queue));
    assert_eq!(whose(&udp4(OWN, 53)[..40]), Whose::Queue(1));
    assert_eq!(whose(&udp4(OWN, 53)[..37]), Whose::Queue(0), "it ends before");
    let none = Rules { queues: [None, Some(0), None, None], ..rules };
    assert_eq!(none.choose(&udp4(OWN, 54), false), Whose::Core, "as without raw queues");
}
