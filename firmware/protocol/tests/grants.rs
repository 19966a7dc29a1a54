// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives of firmware's own connections on their way to credits: memory that moves, budgets that are short, queues that
//! are longer than what is granted at a time.

mod common;
use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_protocol::hw::Log;
use berth_protocol::limits::{GRANTS, TAGS};
use berth_protocol::model::{User, World};
use common::*;

const PAGE: u64 = 4096;

/// Two connections from card 0 to card 1, with memory to send from and 64 pages to receive into.
fn two(seed: u64) -> (World, [User; 2], [User; 2]) {
    let (mut w, a, b) = pair(seed);
    let c = w.create_qp(0, 20, ASID, |_| ());
    let d = w.create_qp(1, 21, ASID, |_| ());
    w.connect(&c, &d, 8);
    w.nodes[0].hw.map(ASID, SRC, 64 * PAGE, true);
    w.nodes[0].hw.poke(ASID, SRC, &pattern(seed, 64 << 12));
    w.nodes[1].hw.map(ASID, DST, 64 * PAGE, true);
    (w, [a, c], [b, d])
}

fn end(mut w: World, users: [[User; 2]; 2]) {
    users.iter().flatten().for_each(|user| w.destroy(user));
    w.run(100_000_000);
    assert_clean(&mut w);
    assert_eq!(w.counter(1, F_CREDITS_OUTSTANDING), 0);
}

/// Two connections: the receiver of the first holds the whole budget, with eight receives of a page; one of the second
/// waits for it. That somebody waits is told by the test, not by the model's driver.
fn one_waits(seed: u64) -> (World, [User; 2], [User; 2]) {
    let (mut w, senders, mut receivers) = two(seed);
    (w.nodes[1].hw.pressure, w.nodes[1].hw.reserve, w.nodes[1].hw.budget) = (false, 0, 8 * PAGE);
    for i in 0..8 {
        w.post_recv(&mut receivers[0], &[(DST + i * PAGE, 4096)], i);
    }
    w.ring(&receivers[0]);
    w.run(1_000_000);
    w.post_recv(&mut receivers[1], &[(DST + 20 * PAGE, 4096)], 0);
    w.ring(&receivers[1]);
    w.run(1_000_000);
    (w, senders, receivers)
}

#[test]
fn decision_19_a_recall_takes_the_newest_credits_that_free_what_is_wanted() {
    for (bytes, n) in [(0, 1), (4096, 1), (4097, 2), (8192, 2), (8193, 3), (u32::MAX, 8)] {
        let (mut w, mut senders, receivers) = one_waits(50);
        assert_eq!((w.counter(1, F_GRANTS), w.counter(1, F_CREDITS_OUTSTANDING)), (8, 8));
        let mut press = [0; 16];
        (press[0], press[3]) = (CMD_PRESSURE, bytes);
        assert_eq!(w.command(1, press)[2], CMD_OK);
        w.run(500_000);
        assert_eq!((w.counter(1, F_RECALLED), w.counter(1, F_CREDITS_OUTSTANDING)), (n, 8 - n + 1), "{bytes}");
        // Those that were not asked back stay, and the others come again when there is room.
        w.post_send(&mut senders[1], &[(SRC, 4096)], 1);
        w.post_send(&mut senders[0], &[(SRC, 8 * 4096)], 1);
        senders.iter().for_each(|user| w.ring(user));
        w.run_until(200_000_000, |w| w.completions(&receivers[0], true).len() == 8);
        assert_eq!(w.nodes[1].hw.peek(ASID, DST, 8 << 12), w.nodes[0].hw.peek(ASID, SRC, 8 << 12));
        assert_eq!(w.completions(&receivers[1], true).len(), 1);
        end(w, [senders, receivers]);
    }
}

/// B's receives, posted as one batch, lie in page 0, which D's receive holds already, and in page 1, whose request the host
/// takes long to answer. Then page 0 moves. Gives the world behind that.
fn moved(seed: u64, receives: &[&[(u64, u32)]]) -> (World, [User; 2], [User; 2]) {
    let (mut w, senders, mut receivers) = two(seed);
    w.post_recv(&mut receivers[1], &[(DST, 100)], 0);
    w.ring(&receivers[1]);
    w.run(1_000_000);
    w.nodes[1].hw.page_delay = 100_000_000;
    for (i, sges) in receives.iter().enumerate() {
        w.post_recv(&mut receivers[0], sges, i as u64);
    }
    w.ring(&receivers[0]);
    w.run(50_000);
    w.nodes[1].hw.page_delay = 1000;
    let done = |w: &World| w.nodes[1].hw.events.iter().filter(|e| e[0] == EV_CMD_DONE).count();
    let before = done(&w);
    w.unmap(1, ASID, DST, PAGE);
    w.nodes[1].hw.map(ASID, DST, PAGE, true);
    w.run(50_000);
    assert_eq!(done(&w), before + 1, "nobody holds the old page");
    // Only what was a credit is withdrawn.
    assert_eq!((w.counter(1, F_WITHDRAWN), lists(&w, 1).len()), (1, 1));
    (w, senders, receivers)
}

#[test]
fn vc_9_a_receive_whose_page_moves_before_it_is_a_credit_is_granted_anew() {
    // In one receive, and in two of a batch: the second one is granted and waits for the first.
    for receives in
        [&[&[(DST + 200, 100), (DST + PAGE, 100)][..]][..], &[&[(DST + PAGE, 100)][..], &[(DST + 200, 100)][..]]]
    {
        for seed in 60..63 {
            println!("seed {seed}");
            let (mut w, mut senders, receivers) = moved(seed, receives);
            w.run_until(200_000_000, |w| lists(w, 1).len() == 2);
            let sizes: Vec<u32> = receives.iter().map(|sges| sges.iter().map(|s| s.1).sum()).collect();
            assert_eq!(lists(&w, 1)[1], (0, sizes), "as one batch");
            w.post_send(&mut senders[0], &[(SRC, 200)], 1);
            w.ring(&senders[0]);
            w.run_until(1_000_000, |w| w.completions(&receivers[0], true).len() == receives.len());
            let come: Vec<u8> = receives
                .iter()
                .flat_map(|sges| sges.iter())
                .flat_map(|(va, len)| w.nodes[1].hw.peek(ASID, *va, *len as usize))
                .collect();
            assert_eq!(come, w.nodes[0].hw.peek(ASID, SRC, 200));
            assert_eq!(w.counter(1, F_WITHDRAWN), 1);
            end(w, [senders, receivers]);
        }
    }
}

#[test]
fn decision_21_answers_for_a_queue_pair_that_is_gone_disturb_nobody() {
    for seed in 70..74 {
        println!("seed {seed}");
        let (mut w, senders, mut receivers) =
            moved(seed, &[&[(DST + 200, 100), (DST + PAGE, 100), (DST + 9 * PAGE, 9)]]);
        w.destroy(&receivers[0]);
        w.run(10_000);
        assert_eq!(w.nodes[1].hw.uses(), 0, "what it held is given back at once");
        receivers[0] = w.create_qp(1, 17, ASID, |_| ());
        w.run(200_000_000);
        w.destroy(&senders[0]);
        let mut a = w.create_qp(0, 16, ASID, |_| ());
        w.connect(&a, &receivers[0], 7);
        w.post_recv(&mut receivers[0], &[(DST + PAGE, 100), (DST + 7, 100)], 1);
        w.ring(&receivers[0]);
        w.post_send(&mut a, &[(SRC, 200)], 1);
        w.ring(&a);
        w.run_until(10_000_000, |w| w.completions(&receivers[0], true).len() == 1);
        assert_eq!(w.nodes[1].hw.peek(ASID, DST + 7, 100), w.nodes[0].hw.peek(ASID, SRC + 100, 100));
        let [_, c] = senders;
        end(w, [[a, c], receivers]);
    }
}

#[test]
fn cr_4_a_batch_longer_than_what_is_granted_at_a_time_is_announced_in_parts() {
    let (mut w, mut senders, mut receivers) = two(80);
    for i in 0..60 {
        w.post_recv(&mut receivers[0], &[(DST + i * 100, 100)], i);
    }
    w.ring(&receivers[0]);
    w.run(2_000_000);
    assert_eq!(lists(&w, 1), [(0, vec![100; GRANTS])]);
    assert_eq!(w.counter(1, F_GRANTS), GRANTS as u64);
    w.post_send(&mut senders[0], &[(SRC, 6000)], 1);
    w.ring(&senders[0]);
    w.run_until(20_000_000, |w| w.completions(&receivers[0], true).len() == 60);
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 6000), w.nodes[0].hw.peek(ASID, SRC, 6000));
    assert_eq!((w.counter(1, F_GRANTS), w.counter(1, F_CREDITS_OUTSTANDING)), (60, 0));
    end(w, [senders, receivers]);
}

/// A receive of as many pages as it may have, seven, from page `first` on.
fn seven(first: u64) -> Vec<(u64, u32)> {
    (first..first + 7).map(|i| (DST + i * PAGE, 10)).collect()
}

#[test]
fn pc_1_receives_that_find_no_tag_are_granted_when_others_are() {
    let mut w = World::new(2, 90);
    w.nodes[1].hw.map(ASID, DST, 64 * PAGE, true);
    // Each asks for 14 pages at once.
    let users: Vec<(User, User)> = (0..TAGS as u32 / 14 + 2)
        .map(|i| {
            let a = w.create_qp(0, 16 + i, ASID, |_| ());
            let b = w.create_qp(1, 16 + i, ASID, |_| ());
            w.connect(&a, &b, 7 + i);
            (a, b)
        })
        .collect();
    w.nodes[1].hw.page_delay = 1_000_000;
    for (_, b) in &users {
        let mut b = b.clone();
        w.post_recv(&mut b, &seven(0), 1);
        w.post_recv(&mut b, &seven(20), 2);
        w.ring(&b);
    }
    w.run(20_000_000);
    assert_eq!(w.counter(1, F_GRANTS), 2 * users.len() as u64);
    assert_eq!(w.nodes[1].hw.uses(), 14 * users.len() as u64, "each page once for each receive");
    users.iter().for_each(|(a, b)| [a, b].iter().for_each(|user| w.destroy(user)));
    w.run(100_000_000);
    assert_clean(&mut w);
}

#[test]
fn inv_6_a_receive_that_fails_or_goes_leaves_no_tag_behind() {
    let (mut w, [a, c], [b, mut d]) = two(91);
    // Receives whose pages are not there, and queue pairs that go while the host is at work.
    for round in 0..TAGS as u64 / 7 + 2 {
        w.nodes[1].hw.page_delay = 1000;
        w.post_recv(&mut d, &(0..7).map(|i| (0x1000 + i * PAGE, 10)).collect::<Vec<_>>(), round);
        w.ring(&d);
        w.run(100_000);
        assert_eq!(w.completions(&d, true).len() as u64, round + 1);
        w.nodes[1].hw.page_delay = 300_000;
        let e = w.create_qp(0, 30, ASID, |_| ());
        let mut f = w.create_qp(1, 31, ASID, |_| ());
        w.connect(&e, &f, 9);
        w.post_recv(&mut f, &seven(0), 1);
        w.ring(&f);
        w.run(20_000);
        w.destroy(&f);
        w.destroy(&e);
        w.run(400_000);
    }
    assert!(w.completions(&d, true).iter().all(|c| c[4] as u8 == WC_LOCAL_PROTECTION));
    let before = w.counter(1, F_GRANTS);
    w.post_recv(&mut d, &seven(0), 1);
    w.ring(&d);
    w.run(1_000_000);
    assert_eq!(w.counter(1, F_GRANTS), before + 1);
    end(w, [[a, c], [b, d]]);
}

#[test]
fn pc_3_a_receive_that_fails_gives_back_what_it_holds_before_its_turn() {
    let (mut w, senders, mut receivers) = two(92);
    w.post_recv(&mut receivers[0], &[(DST, 100)], 1);
    w.post_recv(&mut receivers[0], &[(DST + PAGE, 100), (0x1000, 100)], 2);
    w.ring(&receivers[0]);
    w.run(1_000_000);
    assert_eq!((w.nodes[1].hw.uses(), w.completions(&receivers[0], true).len()), (1, 0));
    end(w, [senders, receivers]);
}

#[test]
fn decision_19_credits_are_asked_back_once() {
    let (mut w, senders, receivers) = one_waits(93);
    // The answer does not come.
    w.deaf[0] = true;
    for _ in 0..3 {
        let mut press = [0; 16];
        (press[0], press[3]) = (CMD_PRESSURE, 4096);
        assert_eq!(w.command(1, press)[2], CMD_OK);
        w.run(100_000);
    }
    assert_eq!(w.nodes[1].hw.log.iter().filter(|line| matches!(line, Log::Recall(..))).count(), 1);
    w.deaf[0] = false;
    w.run(10_000_000);
    assert_eq!(w.counter(1, F_RECALLED), 1);
    end(w, [senders, receivers]);
}

#[test]
fn vc_9_pages_beside_a_receive_may_go() {
    let (mut w, mut senders, mut receivers) = two(94);
    w.post_recv(&mut receivers[0], &[(DST + PAGE, 4096)], 1);
    w.ring(&receivers[0]);
    w.run(1_000_000);
    w.unmap(1, ASID, DST, PAGE);
    w.unmap(1, ASID, DST + 2 * PAGE, PAGE);
    w.run(1_000_000);
    assert_eq!(w.counter(1, F_WITHDRAWN), 0);
    w.post_send(&mut senders[0], &[(SRC, 4096)], 1);
    w.ring(&senders[0]);
    w.run_until(1_000_000, |w| w.completions(&receivers[0], true).len() == 1);
    end(w, [senders, receivers]);
}
