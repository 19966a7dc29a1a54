// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections' packets are RTL's: what firmware writes into their rows, and what it decides when RTL reports. RTL itself
//! is not here: each test says what it reports.

mod common;
use berth_abi::card::{FIRST_QPN, MAX_READS};
use berth_abi::counters::*;
use berth_abi::cpu::{LIST_EARLY, LIST_OK, LIST_OVERFLOW, LIST_REPEAT};
use berth_abi::message::{CmdDone, NetConfig, Pressure, QpCreate, QpDestroy, QpError, QpQuery, QpRecall, QpTrigger};
use berth_abi::ring::*;
use berth_abi::rows::send::Held;
use berth_abi::rows::{ROW_CLOCK, event::*, recv, send};
use berth_abi::status::*;
use berth_protocol::card::limits::{
    FAST_POLL, FAST_POLL_DOUBLED, FAST_REST, FAST_SQUEEZE_TIME, LIST_AGAIN, NOT_YET, RETRIES, SQUEEZES, TIMEOUT,
};
use berth_protocol::card::rows::{fast_ahead, fast_pinned};
use berth_protocol::model::{MTU, User, World};
use berth_protocol::wire::berth::list_qkey;
use berth_protocol::wire::headers::{Mac, Template};
use common::*;

/// What either half may hold.
const IDLE: Held = Held { busy: 0, queued: 0, revoking: 0, starved: 0, holds: 0 };
const BUSY: Held = Held { busy: 1, ..IDLE };
const REVOKING: Held = Held { revoking: 1, ..IDLE };
const STARVED: Held = Held { starved: 1, ..IDLE };
/// Time in which firmware looks at a row that is to come to rest, however long that takes already.
const LOOK: u64 = 2 * (FAST_POLL << FAST_POLL_DOUBLED);
/// States of a QP (`Card::state_of`).
const CONNECTED: u8 = 3;
const ERROR: u8 = 4;

fn word(w: &World, user: &User, half: u32, word: u32) -> u32 {
    w.nodes[user.node].hw.fast.words[&(half, user.qpn, word)]
}

/// How a QP of the model sends and receives, if nothing is special about it.
const MODE: send::Mode = send::Mode {
    carrier: send::CARRIER_CONTROL,
    foreign: 0,
    reads: 0,
    reorder: 3,
    window: 255,
    remote: 0,
    loopback: 0,
    selective: 1,
    message: 0,
    log2_mtu: MTU.trailing_zeros(),
};
const RECEIVES: recv::Mode = recv::Mode {
    reads: 0,
    ack_every: 8,
    writes_in_order: 0,
    denies: 0,
    rnr_timer: 0,
    remote: 0,
    message: 0,
    foreign: 0,
    selective: 1,
    log2_mtu: MTU.trailing_zeros(),
};

/// The bound of memory that receives hold: so many pages, and 4 MiB for what RTL measures.
fn pinned(pages: u32) -> u32 {
    recv::Pinned { most: 1024, bound: pages }.word()
}

/// The words of a row with a packet's headers.
fn headers(w: &World, user: &User) -> Vec<u32> {
    let template = send::WORDS.iter().find(|word| word.number == send::TEMPLATE).expect("it is one");
    (send::TEMPLATE..).take(template.count as usize).map(|i| word(w, user, TX, i)).collect()
}

/// From now on the word reads so.
fn reads(w: &mut World, user: &User, half: u32, word: u32, value: u32) {
    w.nodes[user.node].hw.fast.reads.insert((half, user.qpn, word), value);
}

/// From now on a half holds so much.
fn held(w: &mut World, user: &User, half: u32, held: Held) {
    let Held { busy, queued, revoking, starved, holds } = held;
    match half {
        TX => reads(w, user, TX, send::HELD, held.word()),
        _ => reads(w, user, RX, recv::HELD, recv::Held { busy, queued, revoking, starved, holds }.word()),
    }
}

fn state(w: &World, user: &User) -> u8 {
    w.nodes[user.node].card.state_of(user.qpn)
}

fn event(w: &mut World, user: &User, code: u32, arg: u32) {
    w.fast_event(user.node, code, user.qpn, arg);
    w.run(3000);
}

#[test]
fn both_rows_say_what_was_agreed_and_doorbells_go_to_rtl() {
    let (w, a, b) = pair(1);
    for (own, peer, n) in [(&a, &b, 0), (&b, &a, 1)] {
        let mac = |n: u8| Mac::new([2, 0, 0, 0, 0, n + 1]);
        let ip = |n: u8| 0x0a00_0001 + n as u32;
        let port = 0xc000 | (own.qpn << 7 ^ peer.qpn) as u16 & 0x3fff;
        let template = Template::new(mac(n), ip(n), mac(1 - n), ip(1 - n), port, peer.qpn);
        assert_eq!(headers(&w, own), template.row());
        let tx = |i| word(&w, own, TX, i);
        let rx = |i| word(&w, own, RX, i);
        let asid = ASID.into();
        assert_eq!(tx(send::QUEUE), send::Queue { cqn: 0, asid, log2_depth: 6 }.word(), "64 elements");
        assert_eq!(tx(send::MODE), MODE.word());
        assert_eq!(tx(send::TIMEOUT), TIMEOUT / ROW_CLOCK);
        assert_eq!(tx(send::BLOCKS), send::Blocks { ahead: 16, log2_block: 16 }.word());
        assert_eq!(
            (tx(send::QKEY), rx(recv::QKEY)),
            (list_qkey(rx(recv::EPOCH)), list_qkey(rx(recv::PEER_EPOCH))),
            "each end's epoch is in its lists"
        );
        assert_eq!(rx(recv::MODE), RECEIVES.word());
        assert_eq!(
            (rx(recv::IP), rx(recv::MAC), rx(recv::MAC + 1)),
            (ip(1 - n), 2 - n as u32, 0x200),
            "the peer's addresses"
        );
        assert_eq!(rx(recv::SPACE), recv::Space { domain: 0, cqn: 1, asid }.word());
        assert_eq!(rx(recv::PINNED), pinned(48), "three blocks, and 4 MiB for what RTL measures");
        assert_eq!(rx(recv::EPOCH), word(&w, peer, RX, recv::PEER_EPOCH), "epochs");
        assert_eq!(rx(recv::PSN), word(&w, peer, TX, send::PSN), "first PSNs");
        assert_ne!((tx(send::BASE), rx(recv::BASE)), (0, 0));
        assert_eq!((rx(recv::QUEUE), rx(recv::PI)), (recv::Queue { first: 0, log2_depth: 6 }.word(), 0));
        // The longest list that one message of the control connection holds.
        let lists = recv::Lists::from_word(rx(recv::LISTS));
        assert_eq!((lists.longest, lists.few), (61, 24));
        assert_eq!((commands(&w, own, TX), commands(&w, own, RX)), (vec![send::CMD_START], vec![recv::CMD_START]));
        let fast = &w.nodes[own.node].hw.fast;
        assert!(fast.bells.contains(&own.qpn));
        let started = fast.written.iter().position(|x| (x.0, x.2) == (RX, recv::COMMAND)).unwrap();
        assert!(fast.written[started..].len() == 1, "nothing is written behind the start");
        assert_eq!(w.counter(own.node, F_FAST_EVENTS), 0);
    }
}

/// RTL drops what is not to the card's own address, so it has to know that before anybody can connect.
#[test]
fn rtl_is_told_the_cards_addresses_whenever_they_change() {
    let (mut w, a, b) = pair(41);
    // Any row takes them: that of the first QPN.
    let words = [recv::OWN_IP, recv::OWN_MAC, recv::OWN_MAC + 1];
    let own = |w: &World| words.map(|n| w.nodes[0].hw.fast.words[&(RX, FIRST_QPN, n)]);
    let first = own(&w);
    assert_eq!(first, [0x0a00_0001, 1, 0x200]);
    let name = |ipv4: u32, mac_last: u32, mtu: u32| {
        NetConfig { ipv4, mac_first: 0x0200_0000, mac_last, mtu, ..NetConfig::default() }.encode()
    };
    assert_eq!(w.command(0, name(0x0a00_0009, 0x77, 1024)).status, CMD_BUSY);
    assert_eq!(own(&w), first, "refused: they stay");
    for user in [&a, &b] {
        w.destroy(user);
    }
    w.run(1_000_000_000);
    assert_eq!(w.command(0, name(0x0a00_0009, 0x77, 1024)).status, CMD_OK);
    assert_eq!(own(&w), [0x0a00_0009, 0x77, 0x200]);
}

#[test]
fn both_rows_say_what_is_special_of_a_qp() {
    let mut w = World::new(2, 19);
    let special = |qp: &mut QpCreate| {
        (qp.uar, qp.log2_sq, qp.log2_rq) = (2, 3, 5);
        (qp.send_cqn, qp.recv_cqn) = (1, 0);
        (qp.trigger, qp.trigger_index, qp.max_list, qp.mode) = (TRIGGER_BETWEEN, 5, 10, MODE_MESSAGE);
        (qp.block, qp.timeout, qp.domain) = (8192, 6400, 0x1234);
        (qp.reads, qp.peer_reads) = (5, 7);
        (qp.sq_base, qp.rq_base) = (qp.sq_base | 5 << 32, qp.rq_base | 6 << 32);
    };
    let a = w.create_qp(0, 16, ASID, special);
    let b = w.create_qp(1, 17, ASID, special);
    w.connect(&a, &b, 7);
    let asid = ASID.into();
    for own in [&a, &b] {
        let tx = |i| word(&w, own, TX, i);
        let rx = |i| word(&w, own, RX, i);
        assert_eq!((tx(send::BASE + 1), rx(recv::BASE + 1)), (5, 6), "queues above 4 GiB");
        assert_eq!(tx(send::QUEUE), send::Queue { cqn: 1, asid, log2_depth: 3 }.word(), "8 elements");
        assert_eq!(tx(send::MODE), send::Mode { message: 1, remote: 1, reads: 5, ..MODE }.word());
        assert_eq!((tx(send::TIMEOUT), tx(send::BLOCKS)), (100, send::Blocks { ahead: 16, log2_block: 13 }.word()));
        assert_eq!(rx(recv::MODE), recv::Mode { message: 1, remote: 1, reads: 7, ..RECEIVES }.word());
        let (space, queue) = (recv::Space { domain: 0x1234, cqn: 0, asid }, recv::Queue { first: 0, log2_depth: 5 });
        assert_eq!((rx(recv::SPACE), rx(recv::QUEUE)), (space.word(), queue.word()));
        let lists = recv::Lists { told: 0, few: 24, index: 5, timed: 0, trigger: TRIGGER_BETWEEN.into(), longest: 10 };
        assert_eq!(rx(recv::LISTS), lists.word());
        assert_eq!((rx(recv::AGAIN), rx(recv::PINNED)), (LIST_AGAIN as u32 / ROW_CLOCK, pinned(6)));
    }
}

/// CR-6 to CR-9: firmware answers each report with what lists to come wait for, and nothing where a trigger is fixed.
#[test]
fn cr_6_to_cr_9_reports_of_the_use_of_credits_change_when_lists_go() {
    const AUTO: u32 = TRIGGER_AUTO as u32;
    let lists = |w: &World, user: &User| recv::Lists::from_word(word(w, user, RX, recv::LISTS));
    let commands = |w: &World, user: &User| commands(w, user, RX).iter().filter(|c| **c == recv::CMD_LISTS).count();
    // (gaps, their sum, longest; lead; left; outstanding; covered, waited, dry)
    let report =
        |w: &mut World, user: &User, gaps: [u32; 3], lead: Option<u32>, left: u32, outstanding: u32, dry: u32| {
            let [count, sum, longest] = gaps;
            let times = recv::Times { led: lead.is_some().into(), longest, lead: lead.unwrap_or(0) };
            let used = recv::Use { left, outstanding, covered: 0, waited: 1, dry };
            reads(w, user, RX, recv::GAPS, recv::Gaps { count, sum }.word());
            reads(w, user, RX, recv::TIMES, times.word());
            reads(w, user, RX, recv::USE, used.word());
            event(w, user, EVENT_USE, 0);
        };
    for (seed, trigger) in (60..).zip([TRIGGER_AUTO, TRIGGER_ADAPTIVE, TRIGGER_TIMED, TRIGGER_PREDICTIVE]) {
        let mut w = World::new(2, seed);
        let a = w.create_qp(0, 16, ASID, |_| ());
        let b = w.create_qp(1, 17, ASID, |qp| qp.trigger = trigger);
        w.connect(&a, &b, 7);
        assert_eq!((lists(&w, &a).told, lists(&w, &b).told), (0, 1));
        let first = if trigger == TRIGGER_AUTO { recv::TRIGGER_QUARTERS } else { recv::TRIGGER_FIRST };
        assert_eq!((lists(&w, &b).trigger, lists(&w, &b).timed), (first, 0));
        // A sender that runs dry each time, then one that needs a tenth of its credits for a lead.
        for _ in 0..12 {
            report(&mut w, &b, [9, 90, 20], Some(100), 0, 9, 1);
        }
        let fast = lists(&w, &b);
        for _ in 0..30 {
            report(&mut w, &b, [40, 4_000, 100], None, 40, 40, 0);
        }
        let (slow, now) = (lists(&w, &b), (w.now / u64::from(ROW_CLOCK)) as u32);
        let due = word(&w, &b, RX, recv::FIRST).wrapping_sub(now);
        match trigger {
            TRIGGER_AUTO => assert_eq!((fast.trigger, slow.trigger), (recv::TRIGGER_FIRST, recv::TRIGGER_LAST)),
            TRIGGER_ADAPTIVE => {
                assert_eq!((fast.trigger, fast.index, slow.trigger), (recv::TRIGGER_BEHIND, 11, recv::TRIGGER_BEHIND));
                assert!(slow.index < 4, "{}", slow.index);
            }
            // 40 credits of 100, less a lead and a credit; some time has passed since.
            _ => {
                assert_eq!((slow.trigger, slow.timed), (recv::TRIGGER_FIRST, 1));
                assert!((3_500..=3_810).contains(&due), "{due}");
            }
        }
        assert_eq!((slow.told, slow.few, slow.longest), (1, fast.few, fast.longest));
        assert_eq!((commands(&w, &b), w.counter(1, F_CREDIT_REPORTS)), (42, 42));
        // Another trigger begins to measure anew; a fixed one does not, and a late report is nothing.
        let change = |w: &mut World, trigger, trigger_index| {
            w.command(1, QpTrigger { qpn: b.qpn, trigger, trigger_index }.encode()).status
        };
        assert_eq!(change(&mut w, TRIGGER_AUTO, 0), CMD_OK);
        assert_eq!((lists(&w, &b).trigger, lists(&w, &b).index, lists(&w, &b).timed), (recv::TRIGGER_QUARTERS, 2, 0));
        assert_eq!(change(&mut w, TRIGGER_BETWEEN, 7), CMD_OK);
        assert_eq!((lists(&w, &b).trigger, lists(&w, &b).index, lists(&w, &b).told), (recv::TRIGGER_BETWEEN, 7, 0));
        report(&mut w, &b, [9, 90, 20], None, 0, 9, 1);
        assert_eq!((commands(&w, &b), lists(&w, &b).index), (44, 7));
        for (trigger, index) in [(TRIGGER_AUTO + 1, 0), (TRIGGER_QUARTERS, 4), (TRIGGER_FIRST, 1), (TRIGGER_TIMED, 1)] {
            assert_eq!(change(&mut w, trigger, index), CMD_INVALID);
        }
        let nobody = QpTrigger { qpn: b.qpn + 1, ..QpTrigger::default() };
        assert_eq!(w.command(1, nobody.encode()).status, CMD_NOT_FOUND);
        assert_eq!(w.counter(1, F_FAST_EVENTS), 0);
    }
    // Before there is a connection, for when there is one.
    let mut w = World::new(2, 64);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    let change = QpTrigger { qpn: b.qpn, trigger: AUTO as u8, trigger_index: 0 };
    assert_eq!(w.command(1, change.encode()).status, CMD_OK);
    w.connect(&a, &b, 7);
    assert_eq!((lists(&w, &b).told, lists(&w, &b).trigger, commands(&w, &b)), (1, recv::TRIGGER_QUARTERS, 0));
}

#[test]
fn qp_3_reads_under_way_are_what_one_end_wants_and_the_other_takes() {
    const MOST: u8 = MAX_READS as u8;
    // Of each end what it wants, and what it takes.
    for (seed, ends) in (50..).zip([[(MOST, MOST); 2], [(MOST, 2), (1, MOST)], [(3, 0), (0, 4)], [(4, MOST), (9, 5)]]) {
        for cards in [1, 2] {
            for mode in [MODE_STREAM, MODE_MESSAGE] {
                let mut w = World::new(cards, seed);
                let make = |w: &mut World, node, qpn, (reads, peer_reads): (u8, u8)| {
                    w.create_qp(node, qpn, ASID, |qp| (qp.mode, qp.reads, qp.peer_reads) = (mode, reads, peer_reads))
                };
                let a = make(&mut w, 0, 16, ends[0]);
                let b = make(&mut w, cards - 1, 17, ends[1]);
                w.connect(&a, &b, 7);
                for (own, [this, other]) in [(&a, ends), (&b, [ends[1], ends[0]])] {
                    let expected = match mode {
                        MODE_STREAM => [0; 2],
                        _ => [this.0.min(other.1), this.1].map(u32::from),
                    };
                    let sends = send::Mode::from_word(word(&w, own, TX, send::MODE)).reads;
                    let receives = recv::Mode::from_word(word(&w, own, RX, recv::MODE)).reads;
                    assert_eq!([sends, receives], expected, "{ends:?}, {cards} cards");
                    assert_eq!(query(&mut w, own).reads, expected[0]);
                }
            }
        }
    }
}

#[test]
fn qp_18_a_connection_within_the_card_is_rtls_too() {
    let mut w = World::new(1, 20);
    // The shortest time-out is a unit of RTL's clock.
    let a = w.create_qp(0, 16, ASID, |qp| qp.timeout = 1);
    let b = w.create_qp(0, 17, ASID, |_| ());
    w.connect(&a, &b, 7);
    for own in [&a, &b] {
        assert_eq!(word(&w, own, TX, send::MODE), send::Mode { loopback: 1, ..MODE }.word());
        assert_eq!((word(&w, own, RX, recv::IP), word(&w, own, RX, recv::MAC)), (0x0a00_0001, 1), "our own addresses");
        assert_eq!(state(&w, own), CONNECTED);
    }
    assert_eq!((word(&w, &a, TX, send::TIMEOUT), word(&w, &b, TX, send::TIMEOUT)), (1, TIMEOUT / ROW_CLOCK));
}

#[test]
fn rtl_asks_for_memory_in_blocks_of_a_page_to_1_mib() {
    // (largest block of the QP, blocks ahead, blocks of receives in pages)
    for (block, ahead, pages) in [
        (1, 16, 3),
        (4096, 16, 3),
        (3 * 4096, 16, 6),
        (65536, 16, 48),
        (128 << 10, 10, 96),
        (1 << 20, 3, 768),
        (4 << 20, 3, 768),
    ] {
        assert_eq!((fast_ahead(block), fast_pinned(block)), (ahead, pinned(pages)), "{block}");
    }
}

#[test]
fn what_is_posted_before_the_connection_is_left_to_rtl() {
    let mut w = World::new(2, 5);
    for node in &mut w.nodes {
        node.card.clear_rows(&mut node.hw);
        // Of an empty row nobody takes a frame.
        let off = node.hw.fast.written.iter().filter(|x| (x.0, x.2, x.3) == (RX, recv::COMMAND, recv::CMD_OFF)).count();
        assert_eq!(off, 64);
    }
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    for user in [&a, &b] {
        w.ring(user, 1, 1);
    }
    w.run(50_000);
    w.connect(&a, &b, 7);
    for own in [&a, &b] {
        assert_eq!(
            (commands(&w, own, TX), commands(&w, own, RX)),
            (vec![send::CMD_START], vec![recv::CMD_OFF, recv::CMD_START])
        );
        assert_eq!(word(&w, own, RX, recv::PI), 1, "receives so far");
        assert!(w.nodes[own.node].hw.fast.bells.contains(&own.qpn));
    }
}

#[test]
fn what_lies_before_a_failed_send_goes_again_when_it_is_not_acknowledged() {
    let (mut w, a, _) = pair(6);
    reads(&mut w, &a, TX, send::UNA, 77);
    reads(&mut w, &a, TX, send::NEXT, 79);
    event(&mut w, &a, EVENT_NO_MEMORY, NoMemory { again: 0, status: 1 }.word());
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN]);
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN, send::CMD_AGAIN]);
    assert_eq!(state(&w, &a), CONNECTED);
    reads(&mut w, &a, TX, send::UNA, 79);
    // The second look comes later than the first.
    w.run(4 * FAST_POLL);
    assert_eq!(state(&w, &a), ERROR);
}

#[test]
fn a_send_that_fails_does_not_keep_lost_packets_from_going_again() {
    let (mut w, a, _) = pair(22);
    reads(&mut w, &a, TX, send::UNA, 77);
    reads(&mut w, &a, TX, send::NEXT, 79);
    // The second try is to come later; RTL does not say again that nothing comes.
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN]);
    event(&mut w, &a, EVENT_BAD_WQE, BadWqe { status: WC_BAD_WQE.into() }.word());
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN, send::CMD_AGAIN]);
    // From now on it does, and each time they go at once, however often the send is found to fail.
    for n in 3..6 {
        event(&mut w, &a, EVENT_BAD_WQE, BadWqe { status: WC_BAD_WQE.into() }.word());
        assert_eq!(commands(&w, &a, TX).len(), n);
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        assert_eq!(commands(&w, &a, TX).len(), n + 1);
    }
    assert_eq!((w.counter(0, F_TIMEOUTS), state(&w, &a)), (5, CONNECTED));
    reads(&mut w, &a, TX, send::UNA, 79);
    w.run(LOOK);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_BAD_WQE));
}

#[test]
fn a_timeout_while_packets_wait_to_go_again_changes_nothing() {
    let (mut w, a, _) = pair(23);
    reads(&mut w, &a, TX, send::UNA, 77);
    (0..2 * RETRIES).for_each(|_| event(&mut w, &a, EVENT_TIMEOUT, 0));
    assert_eq!(w.counter(0, F_TIMEOUTS), 2);
    w.run(TIMEOUT as u64);
    assert_eq!(
        (commands(&w, &a, TX), state(&w, &a)),
        (vec![send::CMD_START, send::CMD_AGAIN, send::CMD_AGAIN], CONNECTED)
    );
}

#[test]
fn nothing_is_looked_at_once_all_has_gone_again() {
    let (mut w, a, _) = pair(37);
    reads(&mut w, &a, TX, send::UNA, 77);
    // The second try comes later, on a timer.
    (0..2).for_each(|_| event(&mut w, &a, EVENT_TIMEOUT, 0));
    w.run(2 * TIMEOUT as u64);
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN, send::CMD_AGAIN]);
    let end = w.now + 10_000_000;
    let mut turns = 0;
    while w.now < end && w.step() {
        turns += 1;
    }
    assert!(turns < 100, "{turns} things happened in 40 ms of silence");
}

#[test]
fn memory_of_a_lost_packet_that_is_gone_ends_the_connection_at_once() {
    let (mut w, a, _) = pair(24);
    reads(&mut w, &a, TX, send::UNA, 77);
    reads(&mut w, &a, TX, send::NEXT, 79);
    event(&mut w, &a, EVENT_NO_MEMORY, NoMemory { again: 1, status: PAGE_OVER_BUDGET }.word());
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, end_of(TX, WC_OVER_BUDGET)]);
    assert_eq!(w.failed(0, 16), REASON_SEND_FAILED);
}

#[test]
fn what_rtl_reports_of_a_qp_that_it_does_not_have_is_counted_and_no_more() {
    let (mut w, _, b) = pair(25);
    let new = w.create_qp(0, 18, ASID, |_| ());
    event(&mut w, &new, EVENT_NAK, 0);
    event(&mut w, &b, EVENT_LIST, List { answer: LIST_OK }.word());
    event(&mut w, &b, EVENT_LIST, List { answer: LIST_REPEAT }.word());
    assert_eq!((state(&w, &new), state(&w, &b)), (1, CONNECTED));
    assert_eq!((w.counter(0, F_FAST_EVENTS), w.counter(1, F_FAST_EVENTS)), (1, 2));
}

#[test]
fn a_timeout_sends_again_later_and_later_and_ends_with_the_retries() {
    let (mut w, a, _) = pair(4);
    reads(&mut w, &a, TX, send::UNA, 77);
    for n in 0..RETRIES {
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        let wait = (TIMEOUT as u64) * ((1 << n.min(5)) - 1);
        if wait > 0 {
            w.run(wait - 20_000);
            assert_eq!(commands(&w, &a, TX).len(), 1 + n as usize, "try {n}");
            w.run(30_000);
        }
        assert_eq!(commands(&w, &a, TX).len(), 2 + n as usize, "try {n}");
    }
    assert!(commands(&w, &a, TX)[1..].iter().all(|c| *c == send::CMD_AGAIN));
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_RETRY_EXCEEDED));
    assert_eq!(*commands(&w, &a, RX).last().unwrap(), end_of(RX, WC_FLUSHED));
    assert_eq!(w.failed(0, 16), REASON_PEER_LOST);
    assert_eq!(w.counter(0, F_TIMEOUTS), RETRIES as u64 + 1);
    assert_eq!(w.counter(0, F_FAST_EVENTS), RETRIES as u64 + 1);
}

/// A time-out of a microsecond: the wire may take longer, by far.
#[test]
fn f9_a_time_out_that_is_shorter_than_the_round_trip_is_raised() {
    // Round trip in units, and what the tries count with.
    for (round, time) in [(0, TIMEOUT), (39_063, 2 * 39_063 * 64), (1, 250)] {
        let mut w = World::new(1, 40);
        let a = w.create_qp(0, 16, ASID, |qp| qp.timeout = 250);
        let b = w.create_qp(0, 17, ASID, |_| ());
        w.connect(&a, &b, 7);
        reads(&mut w, &a, TX, send::UNA, 77);
        reads(&mut w, &a, TX, send::ROUND_TRIP, round);
        // RTL tells after the longer one of what was set and two round trips.
        let told = if round == 0 { 250 } else { time };
        for n in 0..RETRIES {
            event(&mut w, &a, EVENT_TIMEOUT, 0);
            let wait = (u64::from(time) << n.min(5)) - u64::from(told);
            if wait > 20_000 {
                w.run(wait - 20_000);
                assert_eq!(commands(&w, &a, TX).len(), 1 + n as usize, "round trip {round}, try {n}");
            }
            w.run(30_000);
            assert_eq!(commands(&w, &a, TX).len(), 2 + n as usize, "round trip {round}, try {n}");
        }
        assert_eq!(state(&w, &a), CONNECTED);
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        assert_eq!(w.failed(0, 16), REASON_PEER_LOST);
    }
}

#[test]
fn what_was_acknowledged_meanwhile_begins_the_tries_anew() {
    let (mut w, a, _) = pair(5);
    for n in 0..3 * RETRIES {
        reads(&mut w, &a, TX, send::UNA, 100 + n);
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        assert_eq!(commands(&w, &a, TX).len(), 2 + n as usize);
    }
    // The second try waits; an acknowledgement makes it superfluous.
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    reads(&mut w, &a, TX, send::UNA, 5000);
    w.run(10 * TIMEOUT as u64);
    assert_eq!(commands(&w, &a, TX).len(), 1 + 3 * RETRIES as usize);
    assert_eq!(state(&w, &a), CONNECTED);
}

/// RTL says once that nothing came, until something does: what is told while an earlier one waits for its turn counts.
#[test]
fn a_timeout_after_what_was_acknowledged_meanwhile_is_not_forgotten() {
    let (mut w, a, _) = pair(38);
    reads(&mut w, &a, TX, send::UNA, 77);
    (0..2).for_each(|_| event(&mut w, &a, EVENT_TIMEOUT, 0));
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN], "the second try waits");
    reads(&mut w, &a, TX, send::UNA, 80);
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    w.run(10 * TIMEOUT as u64);
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, send::CMD_AGAIN, send::CMD_AGAIN]);
    assert_eq!((w.counter(0, F_TIMEOUTS), state(&w, &a)), (3, CONNECTED));
}

#[test]
fn a_send_that_fails_waits_for_those_before_it() {
    for (code, arg, status) in [
        (EVENT_BAD_WQE, BadWqe { status: WC_BAD_WQE.into() }.word(), WC_BAD_WQE),
        (EVENT_NO_MEMORY, NoMemory { again: 0, status: PAGE_OVER_BUDGET }.word(), WC_OVER_BUDGET),
        (EVENT_NO_MEMORY, NoMemory { again: 0, status: PAGE_NO_MEMORY }.word(), WC_NO_MEMORY),
        (EVENT_NO_MEMORY, NoMemory { again: 0, status: PAGE_FAULT }.word(), WC_LOCAL_PROTECTION),
    ] {
        let (mut w, a, b) = pair(6);
        reads(&mut w, &a, TX, send::UNA, 100);
        reads(&mut w, &a, TX, send::NEXT, 103);
        event(&mut w, &a, code, arg);
        w.run(100_000);
        assert_eq!(state(&w, &a), CONNECTED);
        reads(&mut w, &a, TX, send::UNA, 103);
        w.run(LOOK);
        assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, status));
        assert_eq!(w.failed(0, 16), REASON_SEND_FAILED);
        w.run(1_000_000);
        assert_ne!(state(&w, &b), CONNECTED, "the peer is told");
    }
}

#[test]
fn what_ends_a_connection_in_rtl_puts_the_qp_in_error() {
    for (code, arg, reason, head) in [
        (EVENT_NAK, Nak { syndrome: 0x63, psn: 5 }.word(), REASON_SEND_FAILED, WC_REMOTE_ERROR),
        (EVENT_NAK, Nak { syndrome: 0x62, psn: 5 }.word(), REASON_SEND_FAILED, WC_REMOTE_ACCESS),
        (EVENT_NAK, Nak { syndrome: 0x61, psn: 5 }.word(), REASON_SEND_FAILED, WC_REMOTE_REQUEST),
        (EVENT_RNR, Nak { syndrome: 0x21, psn: 0 }.word(), REASON_PROTOCOL, WC_FLUSHED),
        (EVENT_LIST, List { answer: LIST_EARLY }.word(), REASON_PROTOCOL, WC_FLUSHED),
        (EVENT_LIST, List { answer: LIST_OVERFLOW }.word(), REASON_PROTOCOL, WC_FLUSHED),
        (EVENT_SEND_QUEUE, 0, REASON_QUEUE_READ, WC_FLUSHED),
        (EVENT_SEND_INDEX, 0, REASON_BAD_INDEX, WC_FLUSHED),
        (EVENT_RECEIVE_QUEUE, 0, REASON_QUEUE_READ, WC_FLUSHED),
        (EVENT_RECEIVE_INDEX, 0, REASON_BAD_INDEX, WC_FLUSHED),
        (EVENT_BROKEN, Broken { fault: FAULT_WRITE }.word(), REASON_WITHDRAWN, WC_FLUSHED),
        (EVENT_BROKEN, Broken { fault: FAULT_NO_CREDIT }.word(), REASON_PROTOCOL, WC_FLUSHED),
        (EVENT_BROKEN, Broken { fault: FAULT_ACCESS }.word(), REASON_ACCESS, WC_FLUSHED),
        (EVENT_BROKEN, Broken { fault: FAULT_PAGE }.word(), REASON_NO_TARGET, WC_FLUSHED),
    ] {
        let (mut w, a, _) = pair(7);
        event(&mut w, &a, code, arg);
        assert_eq!(w.failed(0, 16), reason, "event {code}");
        let counted = [F_BAD_INDEX, F_NO_CREDIT].map(|counter| w.counter(0, counter));
        let bad_index = matches!(code, EVENT_SEND_INDEX | EVENT_RECEIVE_INDEX);
        let no_credit = (code, arg) == (EVENT_BROKEN, Broken { fault: FAULT_NO_CREDIT }.word());
        assert_eq!(counted, [bad_index as u64, no_credit as u64], "event {code} {arg}");
        assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, head));
        assert_eq!(w.counter(0, F_WITHDRAWN), u64::from(reason == REASON_WITHDRAWN));
        assert_eq!(w.counter(0, F_ACCESS_REFUSED), u64::from(reason == REASON_ACCESS));
        let before = w.nodes[0].hw.fast.written.len();
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        assert_eq!(w.nodes[0].hw.fast.written.len(), before, "an event after the end");
    }
    let (mut w, a, _) = pair(8);
    event(&mut w, &a, 0xee, 0);
    assert_eq!((w.counter(0, F_FAST_EVENTS), state(&w, &a)), (1, CONNECTED));
}

/// The RNR NAK of PC-4 for packet `psn`.
fn not_yet(w: &mut World, user: &User, psn: u32) {
    event(w, user, EVENT_RNR, Nak { syndrome: 0x20, psn }.word());
}

#[test]
fn pc_4_a_connection_waits_for_memory_of_its_peer_until_a_go_comes() {
    let (mut w, a, b) = pair(71);
    for (n, psn) in [5, 0xff_ffff].into_iter().enumerate() {
        let n = n as u64 + 1;
        reads(&mut w, &a, TX, send::NEXT, (psn + 1) & 0xff_ffff);
        not_yet(&mut w, &a, psn);
        // A time-out from before is none.
        event(&mut w, &a, EVENT_TIMEOUT, 0);
        w.run(NOT_YET / 2);
        assert_eq!(commands(&w, &a, TX).len() as u64, n, "it waits");
        event(&mut w, &b, EVENT_TARGET, Target { status: 0, psn }.word());
        w.run(100_000);
        assert_eq!(commands(&w, &a, TX)[n as usize..], [send::CMD_GO_ON]);
        assert_eq!((w.counter(0, F_MEMORY_WAITS), w.counter(0, F_TIMEOUTS)), (n, 0));
        // It has not waited since, and that time ends nothing.
        w.run(2 * NOT_YET);
        assert_eq!(commands(&w, &a, TX).len() as u64, n + 1);
    }
    assert_eq!([&a, &b].map(|user| state(&w, user)), [CONNECTED; 2]);
    assert_eq!(w.counter(0, F_CONTROL_BAD), 0);
}

#[test]
fn pc_4_a_go_may_overtake_the_word_that_memory_is_missing() {
    let (mut w, a, b) = pair(72);
    reads(&mut w, &a, TX, send::NEXT, 3);
    event(&mut w, &b, EVENT_TARGET, Target { status: 0, psn: 0xff_fff0 }.word());
    w.run(100_000);
    assert_eq!(commands(&w, &a, TX), [send::CMD_START], "nothing waits");
    not_yet(&mut w, &a, 2);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_GO_ON]);
    // It has been used up.
    not_yet(&mut w, &a, 2);
    w.run(NOT_YET / 2);
    assert_eq!(commands(&w, &a, TX).len(), 2);
    event(&mut w, &b, EVENT_TARGET, Target { status: 0, psn: 2 }.word());
    w.run(100_000);
    assert_eq!(commands(&w, &a, TX).len(), 3);
    // A packet that left after a GO has another's memory.
    event(&mut w, &b, EVENT_TARGET, Target { status: 0, psn: 2 }.word());
    w.run(100_000);
    not_yet(&mut w, &a, 3);
    w.run(NOT_YET / 2);
    assert_eq!(commands(&w, &a, TX).len(), 3);
}

#[test]
fn pc_4_a_word_of_an_earlier_copy_begins_no_wait() {
    let (mut w, a, b) = pair(77);
    reads(&mut w, &a, TX, send::ROUND_TRIP, 200_000 / ROW_CLOCK);
    not_yet(&mut w, &a, 0);
    event(&mut w, &b, EVENT_TARGET, 0);
    w.run(100_000);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_GO_ON]);
    not_yet(&mut w, &a, 0);
    assert_eq!(commands(&w, &a, TX)[2..], [send::CMD_GO_ON], "it is of what went before the GO");
    w.run(200_000);
    not_yet(&mut w, &a, 0);
    assert_eq!(commands(&w, &a, TX).len(), 3, "it waits");
}

#[test]
fn pc_4_while_no_round_trip_is_known_one_word_behind_a_go_begins_no_wait() {
    let (mut w, a, b) = pair(78);
    not_yet(&mut w, &a, 0);
    event(&mut w, &b, EVENT_TARGET, 0);
    w.run(100_000);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_GO_ON]);
    not_yet(&mut w, &a, 0);
    assert_eq!(commands(&w, &a, TX)[2..], [send::CMD_GO_ON], "it may be of what went before the GO");
    not_yet(&mut w, &a, 0);
    w.run(NOT_YET / 2);
    assert_eq!(commands(&w, &a, TX).len(), 3, "it waits");
}

#[test]
fn pc_4_a_connection_that_waits_asks_again_after_a_while_without_a_go() {
    let (mut w, a, _) = pair(73);
    not_yet(&mut w, &a, 0);
    w.run(NOT_YET - 20_000);
    assert_eq!(commands(&w, &a, TX).len(), 1);
    w.run(30_000);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_GO_ON]);
    assert_eq!(state(&w, &a), CONNECTED);
}

#[test]
fn pc_4_what_was_due_to_go_again_waits_too() {
    let (mut w, a, _) = pair(74);
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    event(&mut w, &a, EVENT_TIMEOUT, 0);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_AGAIN], "the second try is due later");
    not_yet(&mut w, &a, 0);
    w.run(NOT_YET / 2);
    assert_eq!(commands(&w, &a, TX).len(), 2);
}

#[test]
fn qp_13_memory_that_cannot_be_had_ends_the_connection_at_both_ends() {
    let (mut w, a, b) = pair(75);
    not_yet(&mut w, &a, 0);
    // The peer tries again, and RTL refuses it.
    event(&mut w, &b, EVENT_TARGET, Target { status: PAGE_OVER_BUDGET, psn: 0 }.word());
    w.run(100_000);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_GO_ON]);
    not_yet(&mut w, &a, 0);
    event(&mut w, &b, EVENT_BROKEN, Broken { fault: FAULT_PAGE }.word());
    assert_eq!(w.failed(1, 17), REASON_NO_TARGET);
    assert_eq!(w.failed(0, 16), REASON_SEND_FAILED);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_REMOTE_ERROR));
    w.run(2 * NOT_YET);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_REMOTE_ERROR), "it waits for nothing");
}

#[test]
fn qp_11_an_access_that_no_key_allows_is_named_at_both_ends_also_when_its_nak_is_lost() {
    let (mut w, a, b) = pair(76);
    event(&mut w, &b, EVENT_BROKEN, Broken { fault: FAULT_ACCESS }.word());
    assert_eq!(w.failed(1, 17), REASON_ACCESS);
    assert_eq!(w.failed(0, 16), REASON_SEND_FAILED);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_REMOTE_ACCESS));
}

#[test]
fn a_qp_is_destroyed_when_nothing_of_it_is_in_flight() {
    let (mut w, a, b) = pair(9);
    held(&mut w, &a, TX, Held { holds: 3, ..BUSY });
    held(&mut w, &a, RX, Held { holds: 7, ..IDLE });
    let answered = destroy(&mut w, &a);
    w.run(1_000_000);
    assert!(!answered(&w) && !w.nodes[0].hw.fast.bells.contains(&a.qpn));
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), end_of(TX, WC_FLUSHED), "no draining with frames under way");
    held(&mut w, &a, TX, Held { holds: 3, ..IDLE });
    w.run(LOOK);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), send::CMD_DRAIN);
    held(&mut w, &a, TX, IDLE);
    w.run(LOOK);
    assert!(!answered(&w), "receives are still held");
    held(&mut w, &a, RX, IDLE);
    w.run(LOOK);
    assert!(answered(&w));
    assert_eq!(state(&w, &a), 0);
    // The peer's end is over too, stays with RTL, and can be used again after it is destroyed.
    assert_ne!(state(&w, &b), CONNECTED);
    w.destroy(&b);
    let a = w.create_qp(0, 16, ASID, |_| ());
    let b = w.create_qp(1, 17, ASID, |_| ());
    w.connect(&a, &b, 8);
    assert_eq!(*commands(&w, &a, TX).last().unwrap(), send::CMD_START);
}

/// A command to destroy `user`, and whether it has been answered.
fn destroy(w: &mut World, user: &User) -> impl Fn(&World) -> bool + use<> {
    let (node, cookie) = (user.node, w.post_command(user.node, QpDestroy { qpn: user.qpn }.encode()));
    move |w: &World| w.answer(node, cookie) == Some(CMD_OK)
}

#[test]
fn whatever_a_row_still_does_keeps_its_qp() {
    // Bytes under way, an element in work, a revocation, memory.
    let memory = Held { holds: 0x8000, ..IDLE };
    for what in [BUSY, Held { queued: 1, ..IDLE }, REVOKING, memory] {
        for half in [TX, RX] {
            let (mut w, a, _) = pair(26);
            held(&mut w, &a, half, what);
            let answered = destroy(&mut w, &a);
            w.run(LOOK);
            assert!(!answered(&w), "{what:?} of half {half}");
            let drained = commands(&w, &a, TX).contains(&send::CMD_DRAIN);
            assert_eq!(drained, half == TX && what == memory, "only memory to send is to be given back");
            held(&mut w, &a, half, IDLE);
            w.run(LOOK);
            assert!(answered(&w), "{what:?} of half {half}");
        }
    }
}

#[test]
fn a_row_that_does_not_come_to_rest_is_looked_at_less_and_less() {
    let (mut w, a, _) = pair(27);
    held(&mut w, &a, TX, Held { holds: 3, ..IDLE });
    event(&mut w, &a, EVENT_NAK, 0);
    let looks = |w: &World| commands(w, &a, TX).iter().filter(|c| **c == send::CMD_DRAIN).count();
    // Each look is a DRAIN: after 0, 1, 3, 7, 15, 31, 63 times and every 64 times from then on.
    w.run(70 * FAST_POLL);
    assert!((6..=7).contains(&looks(&w)), "{}", looks(&w));
    w.run(640 * FAST_POLL);
    assert!((15..=17).contains(&looks(&w)), "{}", looks(&w));
    // To destroy it is reason to look at it at once, and soon after.
    let answered = destroy(&mut w, &a);
    w.run(2 * FAST_POLL);
    assert!(!answered(&w));
    held(&mut w, &a, TX, IDLE);
    w.run(4 * FAST_POLL);
    assert!(answered(&w));
}

#[test]
fn the_end_of_a_connection_is_looked_at_anew() {
    let (mut w, a, _) = pair(28);
    reads(&mut w, &a, TX, send::NEXT, 2);
    held(&mut w, &a, TX, Held { holds: 3, ..IDLE });
    // A send that fails waits for those before it, and is looked at less and less.
    event(&mut w, &a, EVENT_BAD_WQE, BadWqe { status: WC_BAD_WQE.into() }.word());
    w.run(64 * FAST_POLL);
    event(&mut w, &a, EVENT_NAK, 0);
    w.run(10 * FAST_POLL);
    assert!(commands(&w, &a, TX).iter().filter(|c| **c == send::CMD_DRAIN).count() >= 3);
}

#[test]
fn an_end_without_a_status_flushes_the_oldest_send_too() {
    let (mut w, a, _) = pair(29);
    event(&mut w, &a, EVENT_BAD_WQE, BadWqe { status: WC_OK.into() }.word());
    assert_eq!(commands(&w, &a, TX), [send::CMD_START, end_of(TX, WC_FLUSHED)]);
}

#[test]
fn be_asked_whether_one_lives_is_a_duplicate_of_what_was_acknowledged_last() {
    for una in [0, 0x1234] {
        let (mut w, a, _) = pair(30);
        reads(&mut w, &a, TX, send::UNA, una);
        w.deaf = [true, true];
        w.run(500_000_000);
        let probes: Vec<_> = data_frames(&w, 0);
        assert!(!probes.is_empty());
        assert!(probes.iter().all(|p| (p.1, p.2) == (una.wrapping_sub(1) & 0xff_ffff, 0)), "{probes:x?}");
    }
}

#[test]
fn a_peer_with_a_new_mac_address_gets_frames_there() {
    let (mut w, a, _) = pair(31);
    let before = headers(&w, &a);
    assert_eq!((before[0], before[1] & 0xffff), (0x0000_0002, 0x0200));
    // It says so where that counts, on the control connection.
    w.edit = Some(|card, frame| {
        if card == 1 {
            frame[10..12].copy_from_slice(&[9, 8]);
        }
    });
    w.run(200_000_000);
    let after = headers(&w, &a);
    assert_eq!((after[0], after[1] & 0xffff), (0x0000_0002, 0x0809));
    assert_eq!((word(&w, &a, RX, recv::MAC), word(&w, &a, RX, recv::MAC + 1)), (0x0908, 0x200));
    assert_eq!(
        (commands(&w, &a, TX), commands(&w, &a, RX)),
        (vec![send::CMD_START], vec![recv::CMD_START, recv::CMD_ON])
    );
}

#[test]
fn a_recall_takes_credits_back_and_lists_from_before_it_are_void() {
    let (mut w, a, b) = pair(10);
    let epoch = word(&w, &b, RX, recv::PEER_EPOCH);
    // B has announced 20 credits, of which 5 have landed, and starves; A keeps those below number 9.
    held(&mut w, &b, RX, Held { holds: 4, ..STARVED });
    reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
    reads(&mut w, &b, RX, recv::LANDED, 5);
    reads(&mut w, &a, TX, send::KEPT, 9);
    assert_eq!(w.command(1, PRESSURE.encode()).status, CMD_OK);
    assert_eq!(*commands(&w, &b, RX).last().unwrap(), recv::CMD_HOLD, "no list while the recall is out");
    w.run(1_000_000);
    assert_eq!(commands(&w, &a, TX)[1..], [send::Command { argument: 15, opcode: send::CMD_GIVE_UP }.word()]);
    assert_eq!(commands(&w, &a, RX)[1..], [recv::CMD_ON]);
    assert_eq!(word(&w, &a, RX, recv::EPOCH), epoch.wrapping_add(1));
    assert_eq!(
        commands(&w, &b, RX)[1..],
        [recv::CMD_HOLD, recv::CMD_REST, recv::CMD_VOID],
        "nothing is asked for, for a while"
    );
    assert_eq!((word(&w, &b, RX, recv::FIRST), word(&w, &b, RX, recv::PEER_EPOCH)), (9, epoch.wrapping_add(1)));
    assert_eq!(w.counter(1, F_RECALLED), 11);
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
    w.run(FAST_REST + 1000);
    assert_eq!(commands(&w, &b, RX)[1..], [recv::CMD_HOLD, recv::CMD_REST, recv::CMD_VOID, recv::CMD_SQUEEZE]);
}

#[test]
fn all_credits_that_are_out_may_come_back() {
    let (mut w, a, b) = pair(32);
    held(&mut w, &b, RX, STARVED);
    reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
    reads(&mut w, &b, RX, recv::LANDED, 5);
    reads(&mut w, &a, TX, send::KEPT, 5);
    press(&mut w, 1);
    w.run(100_000);
    assert_eq!((w.counter(1, F_RECALLED), state(&w, &b)), (15, CONNECTED));
    // What is over does not ask for memory any more when its rest is.
    event(&mut w, &b, EVENT_NAK, 0);
    w.run(2 * FAST_REST);
    assert!(!commands(&w, &b, RX).contains(&recv::CMD_SQUEEZE));
}

/// A recall that the program asks for ends with its receives given back, also one that was under way for others.
#[test]
fn a_recall_for_the_program_gives_its_receives_back() {
    let recall = |w: &mut World, qpn| w.command(1, QpRecall { qpn }.encode()).status;
    for pressed in [false, true] {
        let (mut w, a, b) = pair(44);
        reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
        reads(&mut w, &b, RX, recv::LANDED, 5);
        reads(&mut w, &a, TX, send::KEPT, 9);
        w.deaf = [true, true];
        if pressed {
            held(&mut w, &b, RX, Held { holds: 4, ..STARVED });
            press(&mut w, 1);
        }
        (0..2).for_each(|_| assert_eq!(recall(&mut w, b.qpn), CMD_OK));
        assert_eq!(commands(&w, &b, RX)[1..], [recv::CMD_HOLD], "the peer is asked once");
        // What is posted until the peer answers goes back too.
        reads(&mut w, &b, RX, recv::COMPLETED, 0x1_fffe);
        reads(&mut w, &b, RX, recv::COUNTS, recv::Counts { granted: 11, posted: 30 }.word());
        w.deaf = [false, false];
        w.run(10_000_000);
        let cancel = recv::Command { opcode: recv::CMD_CANCEL, argument: 28 }.word();
        let wanted = [recv::CMD_HOLD, recv::CMD_REST, recv::CMD_VOID, cancel];
        assert_eq!(commands(&w, &b, RX)[1..], wanted);
        w.run(2 * FAST_REST);
        assert_eq!((commands(&w, &b, RX).len(), state(&w, &b)), (5, CONNECTED), "it does not rest");
        // Once only: the next recall is for others.
        held(&mut w, &b, RX, Held { holds: 4, ..STARVED });
        reads(&mut w, &b, RX, recv::COUNTS, 0);
        press(&mut w, 1);
        w.run(100_000);
        assert_eq!(commands(&w, &b, RX)[5..], [recv::CMD_HOLD, recv::CMD_REST, recv::CMD_VOID]);
    }
    let (mut w, _, b) = pair(45);
    let new = w.create_qp(1, 21, ASID, |_| ());
    assert_eq!((recall(&mut w, 99), recall(&mut w, new.qpn)), (CMD_NOT_FOUND, CMD_BUSY));
    event(&mut w, &b, EVENT_NAK, 0);
    let before = commands(&w, &b, RX).len();
    assert_eq!((recall(&mut w, b.qpn), commands(&w, &b, RX).len()), (CMD_OK, before), "all come back by themselves");
}

#[test]
fn who_rests_leaves_memory_to_others() {
    let (mut w, a, b) = pair(33);
    held(&mut w, &b, RX, Held { holds: 1, ..STARVED });
    reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
    reads(&mut w, &a, TX, send::KEPT, 0);
    press(&mut w, 1);
    w.run(100_000);
    assert_eq!(commands(&w, &b, RX)[1..], [recv::CMD_HOLD, recv::CMD_REST, recv::CMD_VOID]);
    // Nothing of it is out any more, and it waits: neither for its turn, nor for the rest of a batch.
    reads(&mut w, &b, RX, recv::ANNOUNCED, 0);
    for granted in [0, 1] {
        reads(&mut w, &b, RX, recv::COUNTS, recv::Counts { granted, ..Default::default() }.word());
        (0..2 * SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
        assert_eq!(commands(&w, &b, RX)[1..], [recv::CMD_HOLD, recv::CMD_REST, recv::CMD_VOID]);
    }
}

#[test]
fn cr_4_a_batch_that_cannot_be_granted_whole_is_announced_in_part() {
    let (mut w, _, b) = pair(34);
    held(&mut w, &b, RX, Held { holds: 2, ..STARVED });
    reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
    reads(&mut w, &b, RX, recv::COUNTS, recv::Counts { granted: 1, ..Default::default() }.word());
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!(commands(&w, &b, RX)[1..], [recv::CMD_SQUEEZE], "and nothing is recalled for it");
}

#[test]
fn memory_that_another_process_lacks_is_no_reason_to_recall() {
    let (mut w, _, b) = pair(35);
    held(&mut w, &b, TX, STARVED);
    reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
    for (asid, recalls) in [(ASID + 1, false), (ASID, true)] {
        w.command(1, Pressure { asid: asid.into(), ..PRESSURE }.encode());
        assert_eq!(commands(&w, &b, RX).contains(&recv::CMD_HOLD), recalls);
    }
}

#[test]
fn one_connection_after_the_other_is_recalled_from() {
    let (mut w, _, b) = pair(36);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    // Recalls are not answered.
    w.deaf = [true, true];
    held(&mut w, &b, TX, STARVED);
    for qp in [&b, &d] {
        reads(&mut w, qp, RX, recv::ANNOUNCED, 20);
    }
    let recalled = |w: &World| [&b, &d].map(|qp| commands(w, qp, RX).iter().filter(|c| **c == recv::CMD_HOLD).count());
    for expected in [1, 2, 2] {
        press(&mut w, 1);
        assert_eq!(recalled(&w).iter().sum::<usize>(), expected);
    }
    assert_eq!(recalled(&w), [1, 1]);
}

#[test]
fn recalls_go_round_and_each_ends_with_its_answer() {
    let (mut w, a, b) = pair(38);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    held(&mut w, &b, TX, STARVED);
    for (qp, peer) in [(&b, &a), (&d, &c)] {
        reads(&mut w, qp, RX, recv::ANNOUNCED, 20);
        // The peer keeps all.
        reads(&mut w, peer, TX, send::KEPT, 20);
    }
    let recalled = |w: &World| [&b, &d].map(|qp| commands(w, qp, RX).iter().filter(|c| **c == recv::CMD_HOLD).count());
    for expected in [[1, 0], [1, 1], [2, 1], [2, 2]] {
        press(&mut w, 1);
        w.run(200_000);
        assert_eq!(recalled(&w), expected);
    }
    assert_eq!((w.counter(1, F_RECALLED), state(&w, &b), state(&w, &d)), (0, CONNECTED, CONNECTED));
}

#[test]
fn a_connection_that_is_over_waits_for_nothing() {
    let (mut w, a, b) = pair(39);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    event(&mut w, &b, EVENT_NAK, 0);
    held(&mut w, &b, RX, Held { holds: 1, ..STARVED });
    held(&mut w, &b, TX, Held { holds: 1, ..STARVED });
    reads(&mut w, &d, RX, recv::ANNOUNCED, 20);
    (0..2 * SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(commands(&w, &d, RX), [recv::CMD_START], "nobody is recalled from for it");
    assert_eq!((state(&w, &a), state(&w, &d)), (5, CONNECTED));
}

#[test]
fn a_send_that_waits_for_memory_names_no_receive() {
    let (mut w, _, b) = pair(40);
    held(&mut w, &b, TX, STARVED);
    (0..4 * SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(commands(&w, &b, RX), [recv::CMD_START]);
}

#[test]
fn a_receive_is_named_only_after_it_has_waited_in_vain_for_long_enough() {
    let (mut w, a, b) = pair(41);
    held(&mut w, &b, RX, Held { holds: 1, ..STARVED });
    // However often the driver says so meanwhile.
    let from = w.now;
    for _ in 0..2 * SQUEEZES {
        assert_eq!(w.command(1, PRESSURE.encode()).results, CmdDone::default().results);
    }
    assert!(w.now - from < FAST_SQUEEZE_TIME);
    w.run(FAST_SQUEEZE_TIME);
    (1..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    // Whenever memory comes back somewhere, or it gets on, the waiting begins anew.
    held(&mut w, &b, TX, Held { holds: 2, ..IDLE });
    assert_eq!(press(&mut w, 1), 0);
    held(&mut w, &b, TX, IDLE);
    for (announced, completed) in [(0, 0), (1, 0), (1, 1), (1, 2)] {
        reads(&mut w, &b, RX, recv::ANNOUNCED, announced);
        reads(&mut w, &b, RX, recv::LANDED, announced);
        reads(&mut w, &b, RX, recv::COMPLETED, completed);
        let rounds = if completed == 2 { SQUEEZES } else { SQUEEZES - 1 };
        (0..rounds).for_each(|n| assert_eq!(press(&mut w, 1), 0, "{announced} {completed} {n}"));
    }
    assert_eq!(press(&mut w, 1), b.qpn);
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
}

#[test]
fn an_answer_to_a_recall_that_cannot_be_ends_the_connection() {
    // Of credits 5 to 19, those before 4 are kept, which have landed; those before 21, which were never announced.
    for kept in [4, 21] {
        let (mut w, a, b) = pair(11);
        held(&mut w, &b, RX, STARVED);
        reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
        reads(&mut w, &b, RX, recv::LANDED, 5);
        reads(&mut w, &a, TX, send::KEPT, kept);
        w.command(1, PRESSURE.encode());
        w.run(1_000_000);
        assert_eq!(state(&w, &b), ERROR);
        assert_eq!(w.failed(1, b.qpn), REASON_PROTOCOL);
    }
}

#[test]
fn pressure_recalls_nothing_while_nobody_starves() {
    let (mut w, _, b) = pair(12);
    reads(&mut w, &b, RX, recv::ANNOUNCED, 20);
    w.command(1, PRESSURE.encode());
    w.run(1_000_000);
    assert_eq!(commands(&w, &b, RX), [recv::CMD_START]);
}

/// What it says.
const PRESSURE: Pressure = Pressure { asid: 0, bytes: 65536 };

/// What the driver says when a page request has waited for budget for long; gives the QPN whose receive does not fit.
fn press(w: &mut World, node: usize) -> u32 {
    let CmdDone { status, results: [qpn, ..], .. } = w.command(node, PRESSURE.encode());
    assert_eq!(status, CMD_OK);
    w.run(FAST_SQUEEZE_TIME);
    qpn
}

#[test]
fn a_receive_that_waits_for_more_than_there_is_is_named_when_nobody_else_has_memory() {
    let (mut w, a, b) = pair(17);
    // Its credits have all landed; it holds a part of what the next receive needs.
    held(&mut w, &b, RX, Held { holds: 1, ..STARVED });
    (0..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(press(&mut w, 1), b.qpn);
    // It asks for one receive at a time, and lets go of nothing.
    assert!(commands(&w, &b, RX)[1..].iter().all(|c| *c == recv::CMD_SQUEEZE));
    // What is granted, and what the other half holds or has sent, comes back.
    let granted = recv::Counts { posted: 0, granted: 1 };
    let sends = Held { holds: 2, ..IDLE };
    for (half, at, value) in [(RX, recv::COUNTS, granted.word()), (TX, send::HELD, sends.word())] {
        reads(&mut w, &b, half, at, value);
        (0..2 * SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
        reads(&mut w, &b, half, at, 0);
    }
    (0..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(press(&mut w, 1), b.qpn);
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
}

#[test]
fn of_receives_that_hold_parts_and_wait_for_each_other_all_but_one_let_go() {
    let (mut w, _, b) = pair(18);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    for qp in [&b, &d] {
        held(&mut w, qp, RX, Held { holds: 1, ..STARVED });
    }
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!(commands(&w, &b, RX)[1..], [recv::CMD_SQUEEZE]);
    assert_eq!(commands(&w, &d, RX)[1..], [recv::CMD_REVOKE]);
    assert_eq!((20..24).map(|n| word(&w, &d, RX, n)).collect::<Vec<_>>(), [0; 4]);
    // Once the first has what it needs it is the other's turn; then that of both again.
    held(&mut w, &b, RX, IDLE);
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!(commands(&w, &d, RX)[1..], [recv::CMD_REVOKE, recv::CMD_SQUEEZE]);
    held(&mut w, &b, RX, Held { holds: 1, ..STARVED });
    assert_eq!(press(&mut w, 1), 0);
    assert_eq!(
        (commands(&w, &b, RX)[1..].to_vec(), commands(&w, &d, RX)[1..].to_vec()),
        (vec![recv::CMD_SQUEEZE, recv::CMD_REVOKE], vec![recv::CMD_REVOKE, recv::CMD_SQUEEZE, recv::CMD_SQUEEZE])
    );
    // Who was granted what it waited for is not the one that is named, though it waits again.
    assert_eq!(press(&mut w, 1), 0);
    reads(&mut w, &d, RX, recv::COUNTS, recv::Counts { granted: 1, ..Default::default() }.word());
    assert_eq!(press(&mut w, 1), 0);
    reads(&mut w, &d, RX, recv::COUNTS, recv::Counts::default().word());
    (0..SQUEEZES).for_each(|_| assert_eq!(press(&mut w, 1), 0));
    assert_eq!(press(&mut w, 1), b.qpn);
    // One after the other is named if that never helps, though they have not come equally far.
    for word in [recv::ANNOUNCED, recv::LANDED] {
        reads(&mut w, &d, RX, word, 7);
    }
    let named: Vec<u32> = (0..16).map(|_| press(&mut w, 1)).filter(|qpn| *qpn != 0).collect();
    assert!(named.contains(&b.qpn) && named.contains(&d.qpn), "{named:?}");
}

#[test]
fn a_revocation_is_over_when_both_halves_have_let_go() {
    let (mut w, a, _) = pair(13);
    const START: u64 = 0x7f00_0000_0000;
    for half in [TX, RX] {
        held(&mut w, &a, half, Held { holds: 2, ..REVOKING });
    }
    let answers = |w: &World| w.nodes[0].hw.told::<CmdDone>().count();
    let before = answers(&w);
    w.revoke(0, ASID, START, 8192);
    w.run(200_000);
    assert_eq!(
        (commands(&w, &a, TX)[1..].to_vec(), commands(&w, &a, RX)[1..].to_vec()),
        (vec![send::CMD_REVOKE], vec![recv::CMD_REVOKE])
    );
    let range = |half, first| (0..4u32).map(|i| word(&w, &a, half, first + i)).collect::<Vec<_>>();
    let end = START + 8192;
    let expected = [START as u32, (START >> 32) as u32, end as u32, (end >> 32) as u32];
    assert_eq!((range(TX, send::RANGE), range(RX, recv::RANGE)), (expected.to_vec(), expected.to_vec()));
    held(&mut w, &a, TX, IDLE);
    w.run(200_000);
    assert_eq!(answers(&w), before);
    held(&mut w, &a, RX, IDLE);
    w.run(200_000);
    assert_eq!(answers(&w), before + 1);
    // The next one is told anew.
    w.revoke(0, ASID, START, 4096);
    w.run(200_000);
    assert_eq!(commands(&w, &a, TX)[1..], [send::CMD_REVOKE, send::CMD_REVOKE]);
    assert_eq!(answers(&w), before + 2);
}

#[test]
fn a_peer_that_is_heard_by_rtl_need_not_be_asked_whether_it_lives() {
    let sent = |fresh: bool| {
        let (mut w, a, b) = pair(16);
        w.run(10_000_000);
        let before = w.counter(0, F_CONTROL_SENT) + w.counter(1, F_CONTROL_SENT);
        for _ in 0..40 {
            if fresh {
                let clock = (w.now / u64::from(ROW_CLOCK)) as u32;
                reads(&mut w, &a, RX, recv::HEARD, clock);
                reads(&mut w, &b, RX, recv::HEARD, clock);
            }
            w.run(10_000_000);
        }
        assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
        w.counter(0, F_CONTROL_SENT) + w.counter(1, F_CONTROL_SENT) - before
    };
    assert_eq!(sent(true), 0);
    assert!(sent(false) > 0);
}

#[test]
fn a_connection_that_is_over_does_not_speak_for_the_peer() {
    let (mut w, a, b) = pair(43);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 9);
    event(&mut w, &c, EVENT_NAK, 0);
    w.run(10_000_000);
    let before = w.counter(0, F_CONTROL_SENT) + w.counter(1, F_CONTROL_SENT);
    for _ in 0..40 {
        let clock = (w.now / u64::from(ROW_CLOCK)) as u32;
        reads(&mut w, &c, RX, recv::HEARD, clock);
        reads(&mut w, &d, RX, recv::HEARD, clock);
        w.run(10_000_000);
    }
    assert!(w.counter(0, F_CONTROL_SENT) + w.counter(1, F_CONTROL_SENT) > before);
    assert_eq!((state(&w, &a), state(&w, &b)), (CONNECTED, CONNECTED));
}

/// What the card says of a QP.
fn query(w: &mut World, user: &User) -> QpState {
    let done = w.command(user.node, QpQuery { qpn: user.qpn }.encode());
    assert_eq!(done.status, CMD_OK);
    QpState::from_results(&done.results)
}

#[test]
fn a_query_asks_the_rows() {
    let (mut w, a, _) = pair(17);
    let (receives, sends) = (recv::Counts { posted: 6, granted: 4 }, send::Counts { unacked: 3, credits: 9 });
    for (half, number, value) in [
        (RX, recv::COMPLETED, 40),
        (RX, recv::COUNTS, receives.word()),
        (RX, recv::ANNOUNCED, 44),
        (RX, recv::LANDED, 41),
        (TX, send::COUNTS, sends.word()),
    ] {
        reads(&mut w, &a, half, number, value);
    }
    let expected = QpState { state: 2, reason: 0, receives: [46, 4, 44, 41, 40], credits: 9, pieces: 3, reads: 0 };
    assert_eq!(query(&mut w, &a), expected);
}

#[test]
fn a_query_before_the_connection_says_what_waits() {
    let mut w = World::new(1, 44);
    let a = w.create_qp(0, 16, ASID, |qp| (qp.mode, qp.reads) = (MODE_MESSAGE, 6));
    w.ring(&a, 3, 5);
    w.run(10_000);
    assert_eq!(query(&mut w, &a), QpState { receives: [5, 0, 0, 0, 0], reads: 6, ..QpState::default() });
}

/// QP-13: the process hears of key, range and right, if RTL knows them.
#[test]
fn qp_13_the_access_that_broke_a_connection_is_named() {
    for (n, (fault, known)) in
        [FAULT_ACCESS, FAULT_PAGE, FAULT_INVALID].into_iter().flat_map(|f| [(f, 0), (f, 1)]).enumerate()
    {
        let (mut w, a, _) = pair(90 + n as u64);
        let access = recv::Access { known, right: recv::RIGHT_WRITE };
        let words = [access.word(), 0, 0, 0, 0];
        let said = [0xabcd_ef01, 0x5678_9abc, 0x1234, 77];
        for (word, value) in (recv::ACCESS..).zip(words).chain((recv::ACCESS_KEY..).zip(said)) {
            reads(&mut w, &a, RX, word, value);
        }
        event(&mut w, &a, EVENT_BROKEN, Broken { fault }.word());
        let told = w.event(0, |e: &QpError| e.qpn == a.qpn);
        let named = known != 0 && fault != FAULT_INVALID;
        let expected = if named { (recv::RIGHT_WRITE, 0xabcd_ef01, 0x1234_5678_9abc, 77) } else { (0, 0, 0, 0) };
        assert_eq!((told.right, told.key, told.va, told.len), expected);
    }
}
