// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_rx` against the golden responder: see `rx`.
#![cfg(feature = "fastpath")]

#[expect(dead_code, reason = "scenarios.rs uses all of it")]
mod rx;

use berth_abi::card::{MAX_READS, TX_SLOTS};
use berth_abi::rows::event::{
    EVENT_RECEIVE_INDEX, Event, FAULT_ACCESS, FAULT_INVALID, FAULT_NO_CREDIT, FAULT_PAGE, FAULT_TOO_LONG, FAULT_WRITE,
    ReceiveIndex,
};
use berth_abi::rows::recv::{self, RIGHT_ATOMIC, RIGHT_READ, RIGHT_WRITE};
use berth_abi::rows::send::{CARRIER_CONTROL, CARRIER_REVERSE, CARRIER_WRITE};
use berth_abi::status::{PAGE_FAULT, WC_FLUSHED, WC_RECALLED};
use berth_protocol::memory::keys::{ATOMIC, Binding, READ, WRITE};
use berth_protocol::rc::{
    Kind, NakCode, Placement, Position, Remote, RequestPacket, ResponseBody, ResponsePacket, Syndrome,
};
use berth_random::{Rng, cases, mix, seed};
use berth_rtl_unit::Module;
use rx::{ATOMICS, Atomic, FRESH, RING, Rig, World, buffer, target};
use std::collections::VecDeque;

const NAME: &str = "berth_fp_rx";
const PAGE: u64 = 4096;

fn widths() -> Vec<u32> {
    Module::widths(NAME)
}

/// Keeps `depth` receives of `size` bytes posted, `batch` with a doorbell, and sends until each QP has `count` completions.
fn stream(rig: &mut Rig, count: usize, depth: usize, batch: usize, size: u32, len: u32) {
    stream_beside(rig, count, depth, batch, size, len, |_| ());
}

/// As [`stream`]; `each` is done in each cycle.
fn stream_beside(
    rig: &mut Rig,
    count: usize,
    depth: usize,
    batch: usize,
    size: u32,
    len: u32,
    mut each: impl FnMut(&mut Rig),
) {
    let pages = u64::from(size.div_ceil(4096));
    let qps = rig.qps.len();
    let mut done = |rig: &mut Rig| {
        each(rig);
        for i in 0..qps {
            let want = (count - rig.qps[i].recvs.len()).min(depth - rig.open(i));
            if want >= batch || want > 0 && rig.qps[i].recvs.len() + want == count {
                for _ in 0..want {
                    let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                    rig.post(i, &[(buffer(q, n, pages), size)]);
                }
                rig.ring(i);
            }
            while rig.usable(i) > 0 && rig.qps[i].sent.len() < count {
                let before = rig.qps[i].sent.len();
                rig.send(i, len, false);
                if rig.qps[i].sent.len() == before {
                    break;
                }
            }
        }
        rig.qps.iter().all(|qp| qp.cqes.len() == count)
    };
    rig.until(400_000, "the end of the stream", &mut done);
    rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
    rig.rests();
    assert!(rig.events.is_empty() && rig.core.is_empty(), "firmware had to do nothing");
}

#[test]
fn one_qp_stream_aligned_and_warm() {
    for width in widths() {
        let mut rig = Rig::new(World { width, ..World::default() }, 1);
        stream(&mut rig, 40, 16, 4, 4096, 4096);
    }
}

/// A peer under selective repeat, one without, a foreign one, and one whose WRITEs alone are taken in order.
fn peers() -> [World; 4] {
    let selective = World::default();
    let in_order = World { selective: false, ..World::default() };
    let writes_in_order = World { writes_in_order: true, ..World::default() };
    [selective, in_order.clone(), World { foreign: true, ..in_order }, writes_in_order]
}

/// The only WRITE of a test: `len` bytes to `va`, under a key for `binding`; then all is at rest.
fn one_write(rig: &mut Rig, binding: Binding, va: u64, len: u32, key: impl Fn(u32) -> u32) {
    let bound = rig.bind(0, binding);
    rig.write(0, va, len, key(bound), None);
    rig.until(100_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
    only_access(rig, RIGHT_WRITE, key(bound), va, len);
}

/// The access of [`one_write`] or [`one_read`] is answered: all comes to rest, and if it is refused, the row says which it was.
fn only_access(rig: &mut Rig, right: u32, key: u32, va: u64, len: u32) {
    rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
    rig.rests();
    let access = recv::Access::from_word(rig.read(0, recv::ACCESS));
    assert_eq!(access.known != 0, rig.broken(0).is_some());
    if access.known != 0 {
        let words = [recv::ACCESS_KEY, recv::ACCESS_RANGE, recv::ACCESS_RANGE + 1, recv::ACCESS_RANGE + 2];
        let said = words.map(|word| rig.read(0, word));
        assert_eq!((access.right, said), (right, [key, va as u32, (va >> 32) as u32, len]));
    }
}

/// All bytes of the range, of any place and length, by packets of any size; pages that are missing are waited for.
#[test]
fn qp_3_a_write_is_placed_where_its_key_lets_it() {
    for width in widths() {
        for (at, len, log2_mtu) in
            [(0, 1, 12), (4095, 2, 12), (1, 65_536, 12), (77, 5000, 8), (0, 256, 8), (4000, 0, 8)]
        {
            for (world, warm) in peers().into_iter().flat_map(|world| [0, 50, 100].map(|warm| (world.clone(), warm))) {
                let mut rig = Rig::new(World { width, log2_mtu, warm, ..world }, 1);
                let va = target(rig.qps[0].q) + at;
                let binding = Binding { va, len: u64::from(len).max(1), rights: WRITE, ..Binding::default() };
                one_write(&mut rig, binding, va, len, |key| key);
                rig.check_written(0);
                assert_eq!(rig.broken(0), None);
                assert!(warm != 0 || len == 0 || rig.verdicts[12] > 0, "nobody had to wait");
                // Around it nothing has changed.
                let q = rig.qps[0].q;
                assert_eq!(rig.memory(q, va - 1, 1), [FRESH]);
                assert_eq!(rig.memory(q, va + u64::from(len), 1), [FRESH]);
            }
        }
    }
}

/// Nothing is written, nothing asked for, and the connection is over: the peer hears "remote access error".
#[test]
fn qp_11_a_write_that_no_key_lets_in_touches_nothing() {
    for width in widths() {
        let base = |q: u32| target(q) + 100;
        let cases: [(&str, u8, i64, u32, fn(u32) -> u32); 6] = [
            ("key", WRITE, 0, 10, |key| key ^ 1),
            ("place", WRITE, 0, 10, |key| key ^ 1 << 8),
            ("right", READ, 0, 10, |key| key),
            ("first byte", WRITE, -1, 10, |key| key),
            ("last byte", WRITE, 1, 5000, |key| key),
            ("wrap", WRITE, i64::MAX, 10, |key| key),
        ];
        for ((what, rights, at, len, key), world) in
            cases.into_iter().flat_map(|case| peers().map(|world| (case, world)))
        {
            let mut rig = Rig::new(World { width, ..world }, 1);
            let q = rig.qps[0].q;
            let binding = Binding { va: base(q), len: 5000, rights, ..Binding::default() };
            let va = base(q).wrapping_add_signed(at);
            one_write(&mut rig, binding, va, len, key);
            assert_eq!(rig.broken(0), Some(FAULT_ACCESS), "{what}");
            assert_eq!(rig.targets, 0, "{what}");
            let nak = rig.replies.last().map(|reply| reply.body);
            let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::RemoteAccess), sack: None };
            assert_eq!(nak, Some(refused), "{what}");
        }
        for (denies, world) in
            [WRITE, READ | ATOMIC].into_iter().flat_map(|denies| peers().map(|world| (denies, world)))
        {
            let mut rig = Rig::new(World { width, denies: denies.into(), ..world }, 1);
            let va = base(rig.qps[0].q);
            one_write(
                &mut rig,
                Binding { va, len: 5000, rights: READ | WRITE | ATOMIC, ..Binding::default() },
                va,
                10,
                |key| key,
            );
            assert_eq!(rig.broken(0), (denies == WRITE).then_some(FAULT_ACCESS), "{denies} is denied");
        }
    }
}

/// Pages before the one that cannot be had are written to, it is not, and the connection is over: the peer hears "remote
/// operational error".
#[test]
fn qp_13_a_write_to_memory_that_cannot_be_had_is_refused() {
    let cases = widths().into_iter().flat_map(|width| [0, 3, 20].map(|page| (width, page)));
    for ((width, missing), world) in cases.flat_map(|case| peers().map(|world| (case, world))) {
        let mut rig = Rig::new(World { width, warm: 0, ..world }, 1);
        let va = target(rig.qps[0].q) + 100;
        rig.deny(0, va + missing * PAGE);
        one_write(&mut rig, Binding { va, len: 200_000, rights: WRITE, ..Binding::default() }, va, 100_000, |key| key);
        assert_eq!(rig.broken(0), Some(FAULT_PAGE));
        let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::RemoteOperation), sack: None };
        assert_eq!(rig.replies.last().map(|reply| reply.body), Some(refused));
        let q = rig.qps[0].q;
        assert_eq!(rig.memory(q, va - 100 + missing * PAGE, PAGE as u32), [FRESH; PAGE as usize]);
        assert!(missing == 0 || rig.memory(q, va, 1) != [FRESH], "what is there is written to");
    }
}

/// The only READ of a test, as [`one_write`].
fn one_read(rig: &mut Rig, binding: Binding, va: u64, len: u32, key: impl Fn(u32) -> u32) {
    let bound = rig.bind(0, binding);
    rig.read_from(0, va, len, key(bound));
    rig.until(200_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
    only_access(rig, RIGHT_READ, key(bound), va, len);
}

/// All bytes of the range, of any place and length, by packets of any size; pages that are missing are waited for.
#[test]
fn qp_3_a_read_brings_what_is_in_memory() {
    for width in widths() {
        for (at, len, log2_mtu) in
            [(0, 1, 12), (4095, 2, 12), (1, 65_536, 12), (77, 5000, 8), (0, 256, 8), (4000, 0, 8), (9, 200_000, 10)]
        {
            for (world, warm) in peers().into_iter().flat_map(|world| [0, 50, 100].map(|warm| (world.clone(), warm))) {
                let mut rig = Rig::new(World { width, log2_mtu, warm, ..world }, 1);
                let va = target(rig.qps[0].q) + at;
                rig.fill(0, va, len);
                let binding = Binding { va, len: u64::from(len).max(1), rights: READ, ..Binding::default() };
                one_read(&mut rig, binding, va, len, |key| key);
                rig.check_read(0);
                assert_eq!(rig.broken(0), None);
                assert!(warm != 0 || len == 0 || rig.verdicts[12] > 0, "nobody had to wait");
                assert_eq!(rig.answers, [u64::from(len).div_ceil(1 << log2_mtu).max(1), 0]);
            }
        }
    }
}

/// Nothing is read, nothing asked for, and the connection is over: the peer hears "remote access error".
#[test]
fn qp_11_a_read_that_no_key_lets_in_reads_nothing() {
    for width in widths() {
        let base = |q: u32| target(q) + 100;
        let cases: [(&str, u8, i64, u32, fn(u32) -> u32); 6] = [
            ("key", READ, 0, 10, |key| key ^ 1),
            ("place", READ, 0, 10, |key| key ^ 1 << 8),
            ("right", WRITE, 0, 10, |key| key),
            ("first byte", READ, -1, 10, |key| key),
            ("last byte", READ, 1, 5000, |key| key),
            ("wrap", READ, i64::MAX, 10, |key| key),
        ];
        for ((what, rights, at, len, key), world) in
            cases.into_iter().flat_map(|case| peers().map(|world| (case, world)))
        {
            let mut rig = Rig::new(World { width, ..world }, 1);
            let q = rig.qps[0].q;
            let binding = Binding { va: base(q), len: 5000, rights, ..Binding::default() };
            one_read(&mut rig, binding, base(q).wrapping_add_signed(at), len, key);
            assert_eq!(rig.broken(0), Some(FAULT_ACCESS), "{what}");
            assert_eq!((rig.targets, rig.answers), (0, [0; 2]), "{what}");
            let nak = rig.replies.last().map(|reply| reply.body);
            let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::RemoteAccess), sack: None };
            assert_eq!(nak, Some(refused), "{what}");
        }
        for (denies, world) in
            [READ, WRITE | ATOMIC].into_iter().flat_map(|denies| peers().map(|world| (denies, world)))
        {
            let mut rig = Rig::new(World { width, denies: denies.into(), ..world }, 1);
            let va = base(rig.qps[0].q);
            one_read(
                &mut rig,
                Binding { va, len: 5000, rights: READ | WRITE | ATOMIC, ..Binding::default() },
                va,
                10,
                |key| key,
            );
            assert_eq!(rig.broken(0), (denies == READ).then_some(FAULT_ACCESS), "{denies} is denied");
        }
    }
}

/// The only atomic of a test, as [`one_write`].
fn one_atomic(rig: &mut Rig, binding: Binding, atomic: Atomic, key: impl Fn(u32) -> u32) {
    let bound = rig.bind(0, binding);
    rig.change(0, atomic, key(bound));
    rig.until(200_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
    only_access(rig, RIGHT_ATOMIC, key(bound), atomic.va, 8);
}

fn fetch_add(va: u64, add: u64) -> Atomic {
    Atomic { add: true, va, operands: [add, 0] }
}

/// Both kinds, the comparison true or not; pages that are missing are waited for. The bench carries the atomic out.
#[test]
fn qp_3_an_atomic_changes_memory_and_brings_what_stood_there() {
    for width in widths() {
        let fresh = u64::from_le_bytes([FRESH; 8]);
        for (add, compare, there) in
            [(true, 0, fresh.wrapping_add(77)), (false, fresh, 77), (false, fresh ^ 1 << 63, fresh)]
        {
            for (world, warm) in peers().into_iter().flat_map(|world| [0, 100].map(|warm| (world.clone(), warm))) {
                let mut rig = Rig::new(World { width, warm, ..world }, 1);
                let (q, va) = (rig.qps[0].q, target(rig.qps[0].q) + 4088);
                let binding = Binding { va, len: 8, rights: ATOMIC, ..Binding::default() };
                one_atomic(&mut rig, binding, Atomic { add, va, operands: [77, compare] }, |key| key);
                assert_eq!((rig.broken(0), rig.qps[0].atomics[0].1), (None, Some(fresh)));
                assert_eq!((rig.memory(q, va, 8), rig.qps[0].carried_out), (there.to_le_bytes().to_vec(), 1));
                assert!(warm != 0 || rig.verdicts[12] > 0, "nobody had to wait");
                assert_eq!((rig.answers, rig.repeated), ([1, 0], 0));
            }
        }
    }
}

/// Nothing is changed, nothing asked for, and the connection is over: the peer hears "remote access error".
#[test]
fn qp_11_an_atomic_that_no_key_lets_in_changes_nothing() {
    for width in widths() {
        let cases: [(&str, u8, i64, fn(u32) -> u32); 5] = [
            ("key", ATOMIC, 0, |key| key ^ 1),
            ("right", READ | WRITE, 0, |key| key),
            ("first byte", ATOMIC, -8, |key| key),
            ("last byte", ATOMIC, 4992, |key| key),
            ("wrap", ATOMIC, i64::MAX - 7, |key| key),
        ];
        for (what, rights, at, key) in cases {
            let mut rig = Rig::new(World { width, ..World::default() }, 1);
            let va = target(rig.qps[0].q) + 104;
            let binding = Binding { va, len: 4999, rights, ..Binding::default() };
            one_atomic(&mut rig, binding, fetch_add(va.wrapping_add_signed(at), 1), key);
            assert_eq!((rig.broken(0), rig.qps[0].carried_out), (Some(FAULT_ACCESS), 0), "{what}");
            assert_eq!((rig.targets, rig.answers), (0, [0; 2]), "{what}");
            let nak = rig.replies.last().map(|reply| reply.body);
            let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::RemoteAccess), sack: None };
            assert_eq!(nak, Some(refused), "{what}");
        }
        for denies in [ATOMIC, READ | WRITE] {
            let mut rig = Rig::new(World { width, denies: denies.into(), ..World::default() }, 1);
            let va = target(rig.qps[0].q) + 104;
            one_atomic(
                &mut rig,
                Binding { va, len: 8, rights: READ | WRITE | ATOMIC, ..Binding::default() },
                fetch_add(va, 1),
                |key| key,
            );
            assert_eq!(rig.broken(0), (denies == ATOMIC).then_some(FAULT_ACCESS), "{denies} is denied");
            assert_eq!(rig.qps[0].carried_out, usize::from(denies != ATOMIC));
        }
    }
}

/// The peer hears "invalid request", whatever its key is.
#[test]
fn qp_3_an_atomic_that_is_not_aligned_is_malformed() {
    for (width, at) in widths().into_iter().flat_map(|width| (1..8).map(move |at| (width, at))) {
        let mut rig = Rig::new(World { width, ..World::default() }, 1);
        let va = target(rig.qps[0].q) + 4096 - 8;
        let key = rig.bind(0, Binding { va, len: 100, rights: ATOMIC, ..Binding::default() });
        rig.change(0, fetch_add(va + at, 1), key ^ (at as u32 & 1));
        rig.until(200_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
        rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
        rig.rests();
        assert_eq!((rig.broken(0), rig.qps[0].carried_out, rig.targets), (Some(FAULT_INVALID), 0, 0));
        let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::InvalidRequest), sack: None };
        assert_eq!(rig.replies.last().map(|reply| reply.body), Some(refused));
    }
}

/// A page that cannot be had, or bytes that cannot be changed: the peer hears "remote operational error".
#[test]
fn qp_13_an_atomic_on_memory_that_cannot_be_had_is_refused() {
    for (width, fails) in widths().into_iter().flat_map(|width| [(width, false), (width, true)]) {
        let mut rig = Rig::new(World { width, warm: 0, ..World::default() }, 1);
        let va = target(rig.qps[0].q) + 8;
        let key = rig.bind(0, Binding { va, len: 8, rights: ATOMIC, ..Binding::default() });
        if fails {
            rig.change_fails = 100;
        } else {
            rig.deny(0, va);
        }
        rig.change(0, fetch_add(va, 1), key);
        rig.until(200_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
        rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
        rig.rests();
        assert_eq!((rig.broken(0), rig.qps[0].carried_out), (Some(if fails { FAULT_WRITE } else { FAULT_PAGE }), 0));
        let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::RemoteOperation), sack: None };
        assert_eq!(rig.replies.last().map(|reply| reply.body), Some(refused));
    }
}

/// A one-shot key serves one atomic, also one that is asked for again; the next one is refused (QP-12).
#[test]
fn qp_12_a_one_shot_key_lets_one_atomic_in() {
    for width in widths() {
        let mut rig = Rig::new(World { width, warm: 0, timeout: 4000, ..World::default() }, 1);
        let va = target(rig.qps[0].q) + 8;
        let key = rig.bind(0, Binding { va, len: 8, rights: ATOMIC, one_shot: true, region: 0 });
        // The first answer is lost.
        rig.change(0, fetch_add(va, 1), key);
        rig.world.loss = 0;
        rig.until(200_000, "its request", |rig| rig.qps[0].carried_out == 1);
        rig.world.loss = 100;
        rig.until(20_000, "its answer", |rig| rig.answers[0] == 1);
        rig.until(1000, "its loss", |rig| rig.settled());
        rig.world.loss = 0;
        rig.until(200_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
        assert_eq!((rig.broken(0), rig.qps[0].carried_out, rig.repeated), (None, 1, 1));
        rig.change(0, fetch_add(va, 1), key);
        rig.until(200_000, "the end", |rig| rig.qps[0].requester.pending() == 0 && rig.broken(0).is_some());
        assert_eq!((rig.broken(0), rig.qps[0].carried_out), (Some(FAULT_ACCESS), 1));
    }
}

/// What a key lets in is over when another one has its place: no atomic under way changes memory after that.
#[test]
fn qp_9_a_key_that_is_stored_ends_the_atomics_of_the_one_before_it() {
    for width in widths() {
        let mut rig = Rig::new(World { width, ..World::default() }, 1);
        let va = target(rig.qps[0].q);
        let key = rig.bind(0, Binding { va, len: 4096, rights: ATOMIC, ..Binding::default() });
        (0..20).for_each(|n| rig.change(0, fetch_add(va + 8 * (n % 4), n), key));
        rig.until(20_000, "some of them", |rig| rig.qps[0].carried_out == 5);
        rig.keys.unbind(key).expect("a key");
        rig.store_key(0, key);
        assert_eq!(rig.held(), 0, "it is stored while memory is changed under it");
        let before = rig.qps[0].carried_out;
        rig.until(200_000, "its end", |rig| rig.broken(0).is_some());
        assert_eq!((rig.broken(0), rig.qps[0].carried_out), (Some(FAULT_ACCESS), before));
        rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
        rig.rests();
    }
}

/// At most so many atomics of all QPs wait for memory: a READ of another QP has its answer meanwhile, and they have theirs in turn.
#[test]
fn fairness_atomics_that_wait_for_memory_leave_places_for_reads() {
    for width in widths() {
        let mut rig = Rig::new(World { width, qps: 24, ..World::default() }, 1);
        rig.stuck = Some("change_ready");
        let keys: Vec<_> = (0..24)
            .map(|i| {
                let va = target(rig.qps[i].q);
                rig.bind(i, Binding { va, len: 9000, rights: ATOMIC | READ, ..Binding::default() })
            })
            .collect();
        let va = target(rig.qps[0].q);
        rig.fill(0, va, 9000);
        (1..24).for_each(|i| rig.change(i, fetch_add(target(rig.qps[i].q), 1), keys[i]));
        let until = rig.now() + 5000;
        rig.until(5001, "some time", |rig| rig.now() >= until);
        assert_eq!(rig.held() as usize, ATOMICS);
        rig.read_from(0, va, 9000, keys[0]);
        rig.until(5000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
        rig.check_read(0);
        rig.stuck = None;
        rig.until(50_000, "the atomics", |rig| rig.qps.iter().all(|qp| qp.requester.pending() == 0));
        assert!(rig.qps[1..].iter().all(|qp| qp.carried_out == 1));
        rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
        rig.rests();
    }
}

/// However requests and answers are lost, doubled and late: all QPs' atomics on the same memory are carried out once, and each
/// hears what stood there. Beside them READs and WRITEs go on.
#[test]
fn qp_3_atomics_are_carried_out_once_whatever_the_wire_does() {
    for width in widths() {
        for case in 0..cases(20) {
            let mut rng = Rng(mix(seed(17)) ^ mix(case));
            let world = World {
                width,
                qps: 6,
                log2_mtu: 8,
                loss: rng.below(20),
                twice: rng.below(40),
                late: rng.below(40),
                warm: rng.below(101),
                stall: if rng.chance(0.3) { 30 } else { 0 },
                read: rng.between(1, 400),
                service: rng.between(10, 1000),
                reads: rng.between(1, u64::from(MAX_READS)) as u32,
                timeout: 4000,
                ..peers()[rng.below(4) as usize]
            };
            let mut rig = Rig::new(world, rng.draw());
            let all = ATOMIC | READ | WRITE;
            let keys: Vec<_> = (0..6)
                .map(|i| {
                    let va = target(rig.qps[i].q);
                    rig.bind(i, Binding { va, len: 100_000, rights: all, ..Binding::default() })
                })
                .collect();
            let mut n = 0;
            rig.until(2_000_000, "the end", |rig| {
                if n < 200 && rng.chance(0.03) {
                    let i = rng.below(6) as usize;
                    let va = target(rig.qps[i].q);
                    n += 1;
                    match rng.below(4) {
                        0 => rig.read_from(i, va + 8192 + rng.below(9000), rng.below(2000) as u32, keys[i]),
                        1 => rig.write(i, va + 32_768 + rng.below(9000), rng.below(2000) as u32, keys[i], None),
                        2 => {
                            // Compared with something that never stands there, or nothing.
                            let va = va + 4096 + 8 * rng.below(4);
                            rig.change(i, Atomic { add: false, va, operands: [rng.draw(), rng.draw()] }, keys[i]);
                        }
                        _ => rig.change(i, fetch_add(va, rng.draw()), keys[i]),
                    }
                }
                n >= 200 && rig.qps.iter().all(|qp| qp.requester.pending() == 0)
            });
            // Copies of READs are answered after the end.
            rig.until(500_000, "all to be released and as the model has it", |rig| rig.settled());
            rig.rests();
            for i in 0..6 {
                assert_eq!(rig.broken(i), None);
                rig.check_atomics(i);
                rig.check_read(i);
                rig.check_written(i);
            }
        }
    }
}

/// As many READs wait for their answers as the QP takes: one that is too many ends the connection, as "invalid request". Those
/// do not count whose answers have a place to be sent from.
#[test]
fn qp_3_more_reads_than_the_qp_takes_are_refused() {
    let cases = widths().into_iter().flat_map(|width| [1, 5, MAX_READS].map(|reads| (width, reads)));
    for ((width, reads), world) in cases.flat_map(|case| peers().map(|world| (case, world))) {
        // What is in memory comes when all requests have.
        let mut rig = Rig::new(World { width, reads, read: 100_000, loss: 100, ..world }, 1);
        let va = target(rig.qps[0].q);
        let key = rig.bind(0, Binding { va, len: 100_000, rights: READ, ..Binding::default() });
        let first = rig.qps[0].model.arrival().expected().get();
        for n in 0..2 * MAX_READS {
            let remote = Remote { va: va + u64::from(n), key, len: 1 };
            let psn = first.wrapping_add(n) & 0xff_ffff;
            let p = RequestPacket { psn, kind: Kind::Read, remote: Some(remote), ..RequestPacket::default() };
            let frame = rig.frame(0, &p, &[]);
            rig.inject(frame, 0);
        }
        rig.until(50_000, "its end", |rig| rig.broken(0).is_some());
        assert_eq!(rig.broken(0), Some(FAULT_INVALID));
        let answered = rig.verdicts[1] - u64::from(reads);
        assert!(answered <= TX_SLOTS.into(), "{answered} are being answered");
    }
}

/// A READ of memory of which a page cannot be had is refused, whichever page it is: the peer hears "remote operational error".
#[test]
fn qp_13_a_read_of_memory_that_cannot_be_had_is_refused() {
    let cases = widths().into_iter().flat_map(|width| [0, 1].map(|page| (width, page)));
    for ((width, missing), world) in cases.flat_map(|case| peers().map(|world| (case, world))) {
        let mut rig = Rig::new(World { width, warm: 0, ..world }, 1);
        let va = target(rig.qps[0].q) + 100;
        rig.deny(0, va + missing * PAGE);
        one_read(&mut rig, Binding { va, len: 200_000, rights: READ, ..Binding::default() }, va, 8000, |key| key);
        assert_eq!((rig.broken(0), rig.answers), (Some(FAULT_PAGE), [0; 2]));
        let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::RemoteOperation), sack: None };
        assert_eq!(rig.replies.last().map(|reply| reply.body), Some(refused));
    }
}

/// Pages that were there when the READ was taken go, and come again when its answer comes to them; or cannot be had any more,
/// which ends the connection.
#[test]
fn qp_13_pages_that_go_before_they_are_answered_from_are_waited_for() {
    for (width, denied) in widths().into_iter().flat_map(|width| [false, true].map(|denied| (width, denied))) {
        let mut rig = Rig::new(World { width, service: 3000, timeout: 200_000, ..World::default() }, 1);
        let va = target(rig.qps[0].q);
        rig.fill(0, va, 100_000);
        let key = rig.bind(0, Binding { va, len: 100_000, rights: READ, ..Binding::default() });
        rig.read_from(0, va, 100_000, key);
        rig.until(20_000, "an answer", |rig| rig.answers[0] > 9);
        if denied {
            rig.deny(0, va + 20 * PAGE);
            rig.until(200_000, "its end", |rig| rig.broken(0).is_some());
            assert_eq!(rig.broken(0), Some(FAULT_PAGE));
        } else {
            rig.host.evict(rig.qps[0].q, va, 100_000);
            rig.until(200_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
            rig.check_read(0);
        }
        rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
        rig.rests();
    }
}

/// The peer waits for the memory of its newest READ, whatever copies of older ones come, of memory that has gone since.
#[test]
fn pc_4_a_copy_of_an_answered_read_takes_nobody_s_turn_to_wait() {
    const LEN: u32 = 3000;
    for width in widths() {
        let world = World { width, warm: 0, twice: 100, service: 2000, timeout: 1_000_000, ..World::default() };
        let mut rig = Rig::new(world, 6);
        let va = target(rig.qps[0].q);
        rig.fill(0, va, 1 << 20);
        let key = rig.bind(0, Binding { va, len: 1 << 20, rights: READ, ..Binding::default() });
        for n in 0..20 {
            rig.read_from(0, va + n * (1 << 15), LEN, key);
            rig.until(30_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
            rig.host.evict(rig.qps[0].q, va, 1 << 20);
        }
        rig.check_read(0);
        assert!(rig.answers[1] > 0, "no copy came late");
    }
}

/// A one-shot key serves one READ of many requests, some of them twice; the next one is refused (QP-12).
#[test]
fn qp_12_a_one_shot_key_lets_one_read_in() {
    for (width, world) in widths().into_iter().flat_map(|width| peers().map(|world| (width, world))) {
        let world = World { width, loss: 10, twice: 20, late: 20, timeout: 4000, ..world };
        let mut rig = Rig::new(world, 5);
        let va = target(rig.qps[0].q);
        rig.fill(0, va, 50_000);
        let key = rig.bind(0, Binding { va, len: 50_000, rights: READ, one_shot: true, region: 0 });
        rig.read_from(0, va, 40_000, key);
        rig.until(400_000, "the end", |rig| rig.qps[0].requester.pending() == 0);
        rig.check_read(0);
        assert!(rig.broken(0).is_none() && rig.answers[1] > 0);
        // Who says that it is refused says it once.
        rig.world.loss = 0;
        rig.read_from(0, va, 10, key);
        rig.until(400_000, "the end", |rig| rig.qps[0].requester.pending() == 0 && rig.broken(0).is_some());
        assert_eq!(rig.broken(0), Some(FAULT_ACCESS));
    }
}

/// What a key lets in is over when another one has its place: of a READ under way nothing more is answered.
#[test]
fn qp_9_a_key_that_is_stored_ends_the_reads_of_the_one_before_it() {
    for width in widths() {
        let mut rig = Rig::new(World { width, log2_mtu: 8, ..World::default() }, 1);
        let va = target(rig.qps[0].q);
        rig.fill(0, va, 100_000);
        let key = rig.bind(0, Binding { va, len: 100_000, rights: READ, ..Binding::default() });
        rig.read_from(0, va, 100_000, key);
        rig.until(20_000, "an answer", |rig| rig.answers[0] > 9);
        rig.keys.unbind(key).expect("a key");
        rig.store_key(0, key);
        assert_eq!(rig.held(), 0, "it is stored while memory is read under it");
        let before = rig.answers[0];
        rig.until(200_000, "its end", |rig| rig.broken(0).is_some());
        assert_eq!((rig.broken(0), rig.answers[0]), (Some(FAULT_ACCESS), before));
        rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
        rig.rests();
    }
}

/// A QP with READs and atomics in all states ends: nothing stays held, and the next connection on its row answers its own.
#[test]
fn an_ended_qp_answers_nothing_and_holds_nothing() {
    for width in widths() {
        for case in 0..cases(20) {
            let mut draw = Rng(mix(seed(3)) ^ mix(case));
            let world = World { width, warm: draw.below(101), service: draw.below(3000), qps: 2, ..World::default() };
            let mut rig = Rig::new(World { log2_mtu: 8, timeout: 4000, ..world }, draw.draw());
            for round in 0..3 {
                for i in 0..2 {
                    let va = target(rig.qps[i].q);
                    let rights = READ | ATOMIC;
                    let key = rig.bind(i, Binding { va, len: 100_000, rights, ..Binding::default() });
                    for n in 0..4 {
                        rig.read_from(i, va + n * 9000, draw.below(20_000) as u32, key);
                        (0..draw.below(3)).for_each(|k| rig.change(i, fetch_add(va + 8 * k, 1), key));
                    }
                }
                let until = rig.now() + draw.below(4000);
                rig.until(5000, "some time", |rig| rig.now() >= until);
                rig.end(0, WC_FLUSHED as u8);
                for n in 0.. {
                    assert!(n < 1000, "it holds memory");
                    if rig.row_held(0).busy == 0 {
                        break;
                    }
                }
                rig.quiet(0);
                rig.until(200_000, "the other one's end", |rig| rig.qps[1].requester.pending() == 0);
                rig.until(20_000, "nothing to be held", |rig| rig.held() == 0);
                assert_eq!(rig.broken(1), None, "round {round}");
                rig.restart(0);
            }
        }
    }
}

/// READ requests and atomics of any place, length, key and PSN, some of them twice. The model judges each, and says what is
/// answered; it owes nothing when the RTL rests.
#[test]
fn any_reads_are_judged_and_answered_as_by_the_golden_responder() {
    for width in widths() {
        let mut verdicts = [0; 14];
        let (mut answers, mut repeated, mut carried_out) = ([0; 2], 0, 0);
        for case in 0..cases(60) {
            let mut rng = Rng(mix(seed(11)) ^ mix(case ^ 0x5ead));
            let world = World {
                width,
                log2_mtu: 8,
                stall: if rng.chance(0.2) { 30 } else { 0 },
                read: rng.between(1, 300),
                warm: if rng.chance(0.3) { 50 } else { 100 },
                service: rng.between(10, 2000),
                loss: 100,
                reads: rng.between(1, u64::from(MAX_READS)) as u32,
                ..peers()[[0, 0, 1, 2][rng.below(4) as usize]]
            };
            let mut rig = Rig::new(world, rng.draw());
            let va = target(rig.qps[0].q);
            let rights = if rng.chance(0.9) { READ | ATOMIC } else { READ };
            let binding = Binding { va, len: 100_000, rights, one_shot: rng.chance(0.2), region: 0 };
            let atomics = rng.chance(0.7);
            let key = rig.bind(0, binding);
            let (mut next, mut packets) = (rig.qps[0].model.arrival().expected().get(), Vec::new());
            for _ in 0..60 {
                let wild = rng.chance(0.03);
                let len = if wild { rng.below(70_000) as u32 } else { rng.below(2500) as u32 };
                let at = rng.below(90_000);
                let remote = Remote { va: va + at, key: key ^ u32::from(rng.chance(0.005)), len };
                let mut new =
                    RequestPacket { psn: next, kind: Kind::Read, remote: Some(remote), ..RequestPacket::default() };
                if atomics && rng.chance(0.6) {
                    let va = if rng.chance(0.99) { va + 8 * rng.below(4) } else { va + at };
                    new.kind = if rng.chance(0.5) { Kind::FetchAdd } else { Kind::CompareSwap };
                    new.remote = Some(Remote { va, len: 8, ..remote });
                    new.operands = [rng.draw(), if new.kind == Kind::FetchAdd { 0 } else { rng.draw() }];
                }
                let p = match rng.below(10) {
                    // One that came before, as it was or shorter, or one too early.
                    0..4 if !packets.is_empty() => {
                        let old: RequestPacket = packets[rng.below(packets.len() as u64) as usize];
                        let remote = old.remote.map(|r| Remote { len: r.len.min(rng.draw() as u32 & 0xfff), ..r });
                        if rng.chance(0.5) || old.kind != Kind::Read { old } else { RequestPacket { remote, ..old } }
                    }
                    4 => RequestPacket { psn: next.wrapping_add(rng.between(1, 300) as u32) & 0xff_ffff, ..new },
                    _ => {
                        packets.push(new);
                        new
                    }
                };
                let frame = rig.frame(0, &p, &[]);
                rig.inject(frame, 0);
                let until = rig.now() + 1 + rng.below(400);
                rig.until(500, "some time", |rig| rig.now() >= until);
                next = rig.qps[0].model.arrival().expected().get();
            }
            rig.until(200_000, "the answers", |rig| rig.settled() && rig.asking() == 0);
            rig.rests();
            verdicts.iter_mut().zip(rig.verdicts).for_each(|(sum, n)| *sum += n);
            answers.iter_mut().zip(rig.answers).for_each(|(sum, n)| *sum += n);
            (repeated, carried_out) = (repeated + rig.repeated, carried_out + rig.qps[0].carried_out);
        }
        println!(
            "{width} bits: placed, taken, duplicates, dropped by fault: {verdicts:?}; answered, again: {answers:?}; atomics \
             carried out {carried_out}, answered again {repeated}"
        );
    }
}

/// WRITEs that follow each other in memory seldom wait for it: it is asked for before they come to it.
#[test]
fn pc_4_writes_in_order_are_read_ahead_for() {
    const LEN: u32 = 65_536;
    for width in widths() {
        let mut rig = Rig::new(World { width, warm: 0, service: 2500, timeout: 20_000, ..World::default() }, 1);
        let va = target(rig.qps[0].q);
        let key = rig.bind(0, Binding { va, len: 64 * u64::from(LEN), rights: WRITE, ..Binding::default() });
        let mut sent = 0;
        rig.until(2_000_000, "the end", |rig| {
            if sent < 64 && rig.qps[0].written.len() == sent {
                rig.write(0, va + sent as u64 * u64::from(LEN), LEN, key, None);
                sent = rig.qps[0].written.len();
            }
            sent == 64 && rig.qps[0].requester.pending() == 0
        });
        println!("{} waits, {} requests, cycle {}", rig.verdicts[12], rig.targets, rig.now());
        rig.check_written(0);
    }
}

/// A one-shot key serves one WRITE of many packets, some of them twice; the next one is refused (QP-12).
#[test]
fn qp_12_a_one_shot_key_lets_one_write_in() {
    for (width, world) in widths().into_iter().flat_map(|width| peers().map(|world| (width, world))) {
        let world = World { width, loss: 10, twice: 20, late: 20, timeout: 4000, ..world };
        let mut rig = Rig::new(world, 5);
        let va = target(rig.qps[0].q);
        let key = rig.bind(0, Binding { va, len: 50_000, rights: WRITE, one_shot: true, region: 0 });
        rig.write(0, va, 40_000, key, None);
        rig.until(400_000, "the end", |rig| rig.qps[0].requester.pending() == 0);
        rig.check_written(0);
        assert_eq!(rig.broken(0), None);
        rig.write(0, va, 10, key, None);
        rig.until(400_000, "the end", |rig| rig.qps[0].requester.pending() == 0 && rig.broken(0).is_some());
        assert_eq!(rig.broken(0), Some(FAULT_ACCESS));
    }
}

/// The model says when a gap has a NAK, and when it has one more.
#[test]
fn without_selective_repeat_a_gap_has_one_nak_until_the_sender_has_gone_back() {
    for width in widths() {
        let world = World { width, selective: false, loss: 8, twice: 8, late: 20, timeout: 4000, ..World::default() };
        let mut rig = Rig::new(world, 21);
        stream(&mut rig, 40, 16, 4, 4096, 4096);
        assert!(
            rig.verdicts[4] > 5
                && rig.replies.iter().any(|r| matches!(r.body, ResponseBody::Ack { syndrome: Syndrome::Nak(_), .. }))
        );
    }
}

#[test]
fn inv_6_answers_to_page_requests_that_nobody_made_are_counted_and_change_nothing() {
    for width in widths() {
        let mut rig = Rig::new(World { width, qps: 3, warm: 50, service: 300, ..World::default() }, 4);
        let mut rng = Rng(5);
        let mut strays = 0;
        stream_beside(&mut rig, 60, 16, 4, 4096, 3000, |rig| {
            if rng.chance(0.05) {
                // also of QPs that there are not
                let (tag, status) = (rng.below(20 * 16) as u16, if rng.chance(0.7) { 0 } else { PAGE_FAULT as u8 });
                strays += u32::from(rig.stray(tag, status));
                // ... and as if for a packet of a WRITE, or for memory that it goes to
                strays += u32::from(rig.stray(1 << 15 | rng.below(1 << 15) as u16, status));
            }
        });
        rig.until(1_000, "the last one", |rig| rig.strays_counted == strays);
        assert!(strays > 100);
    }
}

#[test]
fn dec_5_a_batch_is_announced_when_all_of_it_is_held() {
    for width in widths() {
        let mut rig = Rig::new(World { width, warm: 0, ..World::default() }, 2);
        for n in 0..7 {
            rig.post(0, &[(buffer(16, n, 1), 4096)]);
        }
        rig.ring(0);
        rig.until(20_000, "a list", |rig| rig.lists_out == 1);
        assert_eq!(rig.held(), 7);
        rig.until(2000, "its arrival", |rig| rig.usable(0) == 7);
        stream(&mut rig, 30, 10, 1, 4096, 3000);
    }
}

#[test]
fn rates_and_latency() {
    for width in widths() {
        for (qps, bar) in [(16, 8.0), (1, 16.0)] {
            let mut rig = Rig::new(World { width, qps, ..World::default() }, 3);
            let count = 400;
            // The first half fills the pipes.
            let half = count / 2 * qps as usize;
            let mut start = 0;
            let pages = 1;
            rig.until(400_000, "the messages", |rig| {
                for i in 0..qps as usize {
                    let want = (count - rig.qps[i].recvs.len()).min(64 - rig.open(i));
                    if want >= 16 || want > 0 && rig.qps[i].recvs.len() + want == count {
                        for _ in 0..want {
                            let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                            rig.post(i, &[(buffer(q, n, pages), 64)]);
                        }
                        rig.ring(i);
                    }
                    while rig.usable(i) > 0 && rig.qps[i].sent.len() < count {
                        rig.send(i, 64, false);
                    }
                }
                if rig.cqe_count as usize >= half && start == 0 {
                    start = rig.now();
                }
                rig.cqe_count as usize == count * qps as usize
            });
            let per = (rig.now() - start) as f64 / half as f64;
            assert!(per <= bar, "{per:.1} cycles per message");
            println!(
                "{width} bits, {qps} QPs, 64 B messages: {per:.1} cycles each (bar {bar}), {} lists",
                rig.lists_out
            );
        }
        let mut rig = Rig::new(World { width, ..World::default() }, 4);
        rig.post(0, &[(buffer(16, 0, 1), 64)]);
        rig.ring(0);
        rig.until(5000, "a credit", |rig| rig.usable(0) == 1);
        rig.send(0, 64, false);
        rig.until(500, "its completion", |rig| rig.cqe_count == 1);
        let beats = u64::from(64_u32.div_ceil(width / 8));
        println!(
            "{width} bits: frame shown to completion shown: {} cycles, of them {} from the write command to its end",
            rig.last_cqe - rig.last_frame,
            rig.world.write + beats
        );
    }
}

fn packet(psn: u32, len: u32, credit: u8, index: u32, position: Position) -> RequestPacket {
    let placement = Some(Placement { credit, index });
    RequestPacket { psn, len, position, placement, ..RequestPacket::default() }
}

#[test]
fn inv_1_what_has_no_credit_or_does_not_fit_breaks_the_connection() {
    for width in widths() {
        // No credit; longer than the credit; a piece that begins in its middle; not the next credit.
        for (credits, len, credit, index, position, fault) in [
            (1, 64, 1, 0, Position::Only, FAULT_NO_CREDIT),
            (1, 65, 0, 0, Position::Only, FAULT_TOO_LONG),
            (1, 64, 0, 1, Position::Last, FAULT_TOO_LONG),
            (1, 64, 0, 1, Position::Only, FAULT_INVALID),
            (2, 64, 1, 0, Position::Only, FAULT_INVALID),
        ] {
            // The far end has sent nothing and must not hear of it.
            let mut rig = Rig::new(World { width, loss: 100, ..World::default() }, 5);
            for n in 0..credits {
                rig.post(0, &[(buffer(16, n, 1), 64)]);
            }
            rig.ring(0);
            rig.until(5000, "credits", |rig| rig.usable(0) == credits as u32);
            let psn = rig.qps[0].model.arrival().expected().get();
            let frame = rig.frame(0, &packet(psn, len, credit, index, position), &vec![1; len as usize]);
            rig.inject(frame, 1);
            rig.until(500, "the event", |rig| rig.qps[0].broken == Some(fault));
            rig.until(500, "the NAK", |rig| !rig.replies.is_empty());
            assert!(matches!(rig.replies[0].body, ResponseBody::Ack { syndrome: Syndrome::Nak(_), sack: None }));
            assert_eq!((rig.cqe_count, rig.replies[0].psn), (0, psn));
        }
    }
}

/// A message's packets: where each stands, its index, its bytes.
fn cut(len: u32, mtu: u32) -> Vec<(Position, u32, u32)> {
    let count = len.div_ceil(mtu).max(1);
    let part = |i: u32| {
        let position = match (i == 0, i + 1 == count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        (position, i, (len - i * mtu).min(mtu))
    };
    (0..count).map(part).collect()
}

/// Messages that fit their credits, in any order of their packets, some of them twice, some empty; now and then a packet
/// is not as it must be in its PSN, credit, index, place or length. The model judges each, says what is answered and
/// completed, and owes nothing when the RTL rests.
fn any_packets(rig: &mut Rig, rng: &mut Rng) {
    const RECVS: usize = 16;
    const MTU: u32 = 256;
    let any = |rng: &mut Rng, of: &[u32]| of[rng.below(of.len() as u64) as usize];
    let empty = rig.world.message_mode && rng.chance(0.5);
    let (placed, with_lists) = (rig.world.selective, !rig.world.foreign);
    let mut packets = Vec::new();
    for n in 0..RECVS {
        let size = any(rng, &[64, 255, 256, 257, 512, 1000, 1500]);
        rig.post(0, &[(buffer(16, n, 2), size)]);
        let len = if empty && rng.chance(0.2) {
            0
        } else if rng.chance(0.6) {
            size
        } else {
            rng.between(u64::from(!rig.world.message_mode), size.into()) as u32
        };
        packets.extend(cut(len, MTU).into_iter().map(|part| (n as u8, part)));
    }
    rig.ring(0);
    rig.until(20_000, "memory", |rig| rig.held() as usize >= RECVS && (!with_lists || rig.usable(0) as usize == RECVS));
    let (first, mut next, mut seen) = (rig.qps[0].model.arrival().expected().get(), 0, vec![false; packets.len()]);
    // A broken connection has a few more, which come to nothing.
    let mut left = 120;
    while next < packets.len() && left > 0 {
        left = if rig.qps[0].broken.is_some() { left.min(4) } else { left } - 1;
        let far = if rng.chance(0.1) { 40 } else { 5 };
        let ahead = rng.below(far) as usize;
        let at = match rng.below(10) {
            0..5 => next,
            5..8 => (next + ahead).min(packets.len() - 1),
            _ => next - ahead.min(next),
        };
        let (mut credit, (mut position, mut index, mut len)) = packets[at];
        let mut psn = first.wrapping_add(at as u32);
        let wrong = rng.chance(0.04);
        match rng.below(5) {
            _ if !wrong => seen[at] = true,
            0 => psn = psn.wrapping_add(any(rng, &[1, 2, 254, 255, 256, 257, 0x7f_fff0, 0x80_0000, 0xff_fffe])),
            1 => credit = credit.wrapping_add(any(rng, &[1, 2, 128, 254, 255]) as u8),
            2 => index = any(rng, &[0, 1, index + 1, index.saturating_sub(1), 0x7f_ffff]),
            3 => position = [Position::First, Position::Middle, Position::Last, Position::Only][rng.below(4) as usize],
            _ => len = any(rng, &[0, 1, 255, 256, 257, 300]),
        }
        let imm = (position.ends() && rng.chance(0.5)).then(|| rng.draw() as u32);
        let (imm, invalidate) = if rng.chance(0.2) { (None, imm) } else { (imm, None) };
        let placement = placed.then_some(Placement { credit, index });
        let (ack_request, solicited) = (rng.chance(0.2), rng.chance(0.2));
        let p = RequestPacket {
            psn: psn & 0xff_ffff,
            len,
            position,
            placement,
            imm,
            invalidate,
            ack_request,
            solicited,
            ..RequestPacket::default()
        };
        let frame = rig.frame(0, &p, &vec![0x5a; len as usize]);
        rig.inject(frame, 0);
        let until = rig.now() + 1 + rng.below(30);
        rig.until(100, "some time", |rig| rig.now() >= until);
        if rng.chance(0.1) {
            rig.rests();
        }
        // Where nothing is kept ahead, what came too early comes again.
        if !placed && at > next {
            seen[at] = false;
        }
        while seen.get(next) == Some(&true) {
            next += 1;
        }
    }
    rig.rests();
}

/// With connections of these kinds: 0 and 1 have selective repeat, 2 has not, 3 is to a foreign peer.
fn check_any_packets(kinds: &[u64]) {
    let seed = seed(7);
    for width in widths() {
        let mut verdicts = [0; 11];
        for case in 0..cases(24) {
            let mut draw = Rng(mix(seed ^ 0xa22) ^ mix(case));
            for &kind in kinds {
                // A far end that sends nothing by itself and hears of nothing.
                let world = World {
                    width,
                    log2_mtu: 8,
                    selective: kind < 2,
                    foreign: kind == 3,
                    message_mode: draw.chance(0.5),
                    stall: if draw.chance(0.2) { 30 } else { 0 },
                    read: 20,
                    write: draw.between(1, 60),
                    loss: 100,
                    ..World::default()
                };
                let mut rig = Rig::new(world, draw.draw());
                rig.refuses = draw.below(4);
                any_packets(&mut rig, &mut draw);
                verdicts.iter_mut().zip(rig.verdicts).for_each(|(sum, n)| *sum += n);
            }
        }
        println!("{width} bits: placed, taken, duplicates, dropped by fault: {verdicts:?}");
    }
}

#[test]
fn any_packets_are_judged_answered_and_completed_as_by_the_golden_responder() {
    check_any_packets(&[0, 1, 0, 1, 0, 1]);
}

#[test]
fn any_packets_in_order_are_judged_answered_and_completed_as_by_the_golden_responder() {
    check_any_packets(&[2, 3, 2, 3, 2, 3]);
}

/// WRITEs and SENDs of a peer without selective repeat, with or without an immediate; some packets come twice, too early or again
/// from one before on, and now and then one is not as it must be in its PSN, kind, place in the message, length, key or range.
fn any_writes(rig: &mut Rig, rng: &mut Rng) {
    const MTU: u32 = 256;
    let va = target(rig.qps[0].q) + 100;
    let (rights, one_shot) = (if rng.chance(0.9) { WRITE } else { READ }, rng.chance(0.1));
    let key = rig.bind(0, Binding { va, len: 20_000, rights, one_shot, region: 0 });
    let recvs = rng.below(12) as usize;
    (0..recvs).for_each(|n| rig.post(0, &[(buffer(16, n, 2), 600)]));
    rig.ring(0);
    rig.until(20_000, "memory", |rig| {
        rig.held() as usize >= recvs && (rig.world.foreign || rig.usable(0) as usize == recvs)
    });
    let mut packets = Vec::new();
    for _ in 0..24 {
        let (kind, most) = if rng.chance(0.7) { (Kind::Write, 2500) } else { (Kind::Send, 600) };
        let len = if rng.chance(0.3) { MTU * rng.below(3) as u32 } else { rng.below(most) as u32 };
        let imm = rng.chance(0.3).then(|| rng.draw() as u32);
        let all = Remote { va: va + rng.below(17_000), key: key ^ u32::from(rng.chance(0.005)), len };
        packets.extend(cut(len, MTU).into_iter().map(|(position, _, len)| RequestPacket {
            kind,
            position,
            len,
            imm: imm.filter(|_| position.ends()),
            remote: (kind == Kind::Write && position.begins()).then_some(all),
            ..RequestPacket::default()
        }));
    }
    let first = rig.qps[0].model.arrival().expected().get();
    let (mut at, mut left) = (0, 300);
    while at < packets.len() && left > 0 {
        left = if rig.qps[0].broken.is_some() { left.min(4) } else { left } - 1;
        let mut p = packets[at];
        p.psn = first.wrapping_add(at as u32) & 0xff_ffff;
        let wrong = if rng.chance(0.02) { rng.below(6) } else { 6 };
        match wrong {
            0 => p.psn = p.psn.wrapping_add([1, 2, 300, 0xff_fffe][rng.below(4) as usize]) & 0xff_ffff,
            1 => {
                p.position = [Position::First, Position::Middle, Position::Last, Position::Only][rng.below(4) as usize]
            }
            2 => p.len = [0, 1, 255, 256, 257, 300][rng.below(6) as usize],
            3 => p.kind = if p.kind == Kind::Send { Kind::Write } else { Kind::Send },
            4 => {
                p.remote =
                    p.remote.map(|all| Remote { len: (all.len + rng.below(513) as u32).saturating_sub(256), ..all })
            }
            5 => p.remote = p.remote.map(|all| Remote { va: all.va + rng.below(9000), ..all }),
            _ => (),
        }
        // As the opcode has it.
        p.imm = p.imm.filter(|_| p.position.ends());
        let all = Remote { va, key, len: p.len };
        p.remote = (p.kind == Kind::Write && p.position.begins()).then(|| p.remote.unwrap_or(all));
        p.remote = p.remote.map(|all| Remote { len: all.len & i32::MAX as u32, ..all });
        (p.ack_request, p.solicited) = (rng.chance(0.2), rng.chance(0.2));
        let frame = rig.frame(0, &p, &vec![0x5a; p.len as usize]);
        rig.inject(frame, 0);
        let pause = if rng.chance(0.5) { 1 } else { rng.between(1, 200) };
        let until = rig.now() + pause;
        rig.until(500, "some time", |rig| rig.now() >= until);
        // What is expected, or what the peer would send as if it were; from there on it goes on.
        let expected = rig.qps[0].model.arrival().expected().get().wrapping_sub(first) & 0xff_ffff;
        at = match rng.below(20) {
            0 => at.saturating_sub(rng.below(12) as usize),
            1 => at + 1 + rng.below(6) as usize,
            2..5 => expected as usize,
            _ => at + 1,
        };
        if at >= packets.len() {
            let until = rig.now() + 300;
            rig.until(500, "some time", |rig| rig.now() >= until);
            at = (rig.qps[0].model.arrival().expected().get().wrapping_sub(first) & 0xff_ffff) as usize;
        }
    }
    rig.until(100_000, "the host's answers", |rig| rig.asking() == 0);
    rig.rests();
}

/// The model judges each packet, says what is answered and completed, and owes nothing when the RTL rests.
#[test]
fn any_writes_in_order_are_judged_answered_and_completed_as_by_the_golden_responder() {
    let seed = seed(13);
    for width in widths() {
        let mut verdicts = [0; 14];
        for case in 0..cases(80) {
            let mut draw = Rng(mix(seed ^ 0x3317e) ^ mix(case));
            let world = World {
                width,
                log2_mtu: 8,
                selective: false,
                foreign: draw.chance(0.5),
                message_mode: true,
                stall: if draw.chance(0.3) { 30 } else { 0 },
                read: 20,
                write: draw.between(1, 60),
                warm: if draw.chance(0.3) { 50 } else { 100 },
                service: draw.between(10, 2000),
                loss: 100,
                ..World::default()
            };
            let mut rig = Rig::new(world, draw.draw());
            any_writes(&mut rig, &mut draw);
            verdicts.iter_mut().zip(rig.verdicts).for_each(|(sum, n)| *sum += n);
        }
        println!("{width} bits: placed, taken, duplicates, dropped by fault: {verdicts:?}");
    }
}

/// Each WRITE that is not whole or not in its place breaks the connection: the peer hears "invalid request". Of one that is, the
/// packets go one behind the other, whatever comes between them that is not in order.
#[test]
fn qp_3_a_write_of_a_foreign_peer_is_whole_and_in_its_place() {
    use Position::{First, Last, Middle, Only};
    const MTU: u32 = 256;
    // Bytes of the whole, if it is said, and of the packet.
    let w = |position, whole: Option<u32>, len| (Kind::Write, position, whole, len);
    let send = |position, len| (Kind::Send, position, None, len);
    let cases: [(&str, &[(Kind, Position, Option<u32>, u32)]); 21] = [
        ("goes on with nothing", &[w(Middle, None, MTU)]),
        ("ends nothing", &[w(Last, None, 1)]),
        ("goes on behind its end", &[w(First, Some(MTU + 1), MTU), w(Last, None, 1), w(Last, None, 1)]),
        ("goes on behind the only one", &[w(Only, Some(1), 1), w(Last, None, 1)]),
        ("begins in another", &[w(First, Some(3 * MTU), MTU), w(First, Some(3 * MTU), MTU)]),
        ("only one in another", &[w(First, Some(3 * MTU), MTU), w(Only, Some(1), 1)]),
        ("SEND in a WRITE", &[w(First, Some(3 * MTU), MTU), send(Middle, MTU)]),
        ("SEND begins in a WRITE", &[w(First, Some(3 * MTU), MTU), send(Only, 1)]),
        ("WRITE in a SEND", &[send(First, MTU), w(Middle, None, MTU)]),
        ("READ in a WRITE", &[w(First, Some(3 * MTU), MTU), (Kind::Read, Only, Some(9), 0)]),
        ("atomic in a WRITE", &[w(First, Some(3 * MTU), MTU), (Kind::FetchAdd, Only, Some(8), 0)]),
        ("READ in a SEND", &[send(First, MTU), (Kind::Read, Only, Some(9), 0)]),
        ("short first", &[w(First, Some(3 * MTU), MTU - 1)]),
        ("short middle", &[w(First, Some(3 * MTU), MTU), w(Middle, None, MTU - 1)]),
        ("first one that is the last", &[w(First, Some(MTU), MTU)]),
        ("empty last", &[w(First, Some(MTU + 1), MTU), w(Last, None, 0)]),
        ("long last", &[w(First, Some(2 * MTU + 9), MTU), w(Last, None, MTU + 9)]),
        ("less than it said", &[w(First, Some(3 * MTU), MTU), w(Last, None, MTU)]),
        ("more than it said", &[w(First, Some(MTU + 1), MTU), w(Last, None, 2)]),
        ("never ends", &[w(First, Some(2 * MTU), MTU), w(Middle, None, MTU)]),
        ("only one, and less than it said", &[w(Only, Some(9), 8)]),
    ];
    for width in widths() {
        for (what, packets) in cases {
            let world = World { width, log2_mtu: 8, selective: false, foreign: true, loss: 100, ..World::default() };
            let mut rig = Rig::new(World { message_mode: true, ..world }, 5);
            rig.post(0, &[(buffer(16, 0, 2), 1000)]);
            rig.post(0, &[(buffer(16, 1, 2), 1000)]);
            rig.ring(0);
            rig.until(5000, "memory", |rig| rig.held() >= 2);
            let va = target(rig.qps[0].q);
            let key = rig.bind(0, Binding { va, len: 5000, rights: WRITE, ..Binding::default() });
            let first = rig.qps[0].model.arrival().expected().get();
            for (psn, &(kind, position, whole, len)) in (first..).zip(packets) {
                // When those before it are in place: the NAK is for the first that is not.
                let after = 200 * u64::from(psn - first);
                let remote = whole.map(|len| Remote { va, key, len });
                let psn = psn & 0xff_ffff;
                let p = RequestPacket { psn, kind, position, len, remote, ..RequestPacket::default() };
                let frame = rig.frame(0, &p, &vec![1; len as usize]);
                rig.inject(frame, after);
            }
            rig.until(2000, what, |rig| rig.broken(0) == Some(FAULT_INVALID));
            rig.until(500, "the NAK", |rig| !rig.replies.is_empty());
            let refused = ResponseBody::Ack { syndrome: Syndrome::Nak(NakCode::InvalidRequest), sack: None };
            let last = rig.replies.last().expect("the NAK");
            assert_eq!((last.body, last.psn), (refused, (first + packets.len() as u32 - 1) & 0xff_ffff), "{what}");
        }
    }
}

/// Behind a hole nothing of a WRITE is placed where programs take its last byte for all of it; elsewhere it is at once.
#[test]
fn qp_7_a_write_fills_memory_in_order_where_programs_look_at_it() {
    const MTU: u32 = 256;
    for (width, writes_in_order) in widths().into_iter().flat_map(|width| [(width, false), (width, true)]) {
        let mut rig = Rig::new(World { width, log2_mtu: 8, writes_in_order, loss: 100, ..World::default() }, 5);
        let va = target(rig.qps[0].q);
        let key = rig.bind(0, Binding { va, len: u64::from(4 * MTU), rights: WRITE, ..Binding::default() });
        let first = rig.qps[0].model.arrival().expected().get();
        let packet = |rig: &mut Rig, index: u32| {
            let p = RequestPacket {
                psn: (first + index) & 0xff_ffff,
                kind: Kind::Write,
                len: MTU,
                placement: Some(Placement { credit: 0, index }),
                remote: Some(Remote { va, key, len: 4 * MTU }),
                ..RequestPacket::default()
            };
            let frame = rig.frame(0, &p, &[1; MTU as usize]);
            let judged = rig.verdicts.iter().sum::<u64>();
            rig.inject(frame, 0);
            rig.until(5000, "its verdict", |rig| rig.verdicts.iter().sum::<u64>() > judged);
        };
        (1..4).for_each(|index| packet(&mut rig, index));
        assert_eq!(rig.verdicts[0], if writes_in_order { 0 } else { 3 });
        packet(&mut rig, 0);
        if writes_in_order {
            (1..4).for_each(|index| packet(&mut rig, index));
        }
        assert_eq!(rig.verdicts[0], 4);
        rig.until(5000, "all to be in place", |rig| rig.settled());
        rig.rests();
    }
}

/// It is given back when it is judged, and not once more when what waits behind the hole breaks the connection.
#[test]
fn a_frame_without_payload_that_closes_a_hole_is_given_back_once() {
    for width in widths() {
        let (mut rig, first) = with_credits(World { width, write: 300, ..World::default() }, 28, 4);
        // Not the next credit: that is known when its turn has come.
        let early = packet((first + 1) & 0xff_ffff, 64, 2, 0, Position::Only);
        let frame = rig.frame(0, &early, &[0; 64]);
        rig.inject(frame, 0);
        let frame = rig.frame(0, &packet(first, 0, 0, 0, Position::Only), &[]);
        rig.inject(frame, 100);
        rig.until(500, "the event", |rig| rig.qps[0].broken == Some(FAULT_INVALID));
        // What comes into place behind it completes nothing.
        rig.until(500, "its completion", |rig| rig.cqe_count == 1);
        rig.rests();
        assert_eq!(rig.cqe_count, 1);
    }
}

/// The `n`-th message is one packet of 64 bytes, and uses the `n`-th credit.
fn message(rig: &Rig, first: u32, n: u32, ack_request: bool) -> Vec<u8> {
    let p = RequestPacket { ack_request, ..packet(first.wrapping_add(n) & 0xff_ffff, 64, n as u8, 0, Position::Only) };
    rig.frame(0, &p, &[n as u8; 64])
}

/// Firmware is told of the key of a SEND with invalidate to QP 0, and says nothing yet.
fn told_to_end(rig: &mut Rig) -> u32 {
    rig.until(20_000, "the event", |rig| !rig.invalidations.is_empty());
    let q = rig.qps[0].q;
    assert_eq!(rig.invalidations[0].1, q);
    rig.invalidations[0].0 = u64::MAX;
    rig.read(0, recv::INVALIDATE_KEY)
}

/// A SEND with invalidate to QP 0, ahead of which one message is complete and behind which others are in place, waits for
/// firmware; QP 1 does not. Its key.
fn with_one_that_waits(world: World, refuses: u64) -> (Rig, u32) {
    let world = World { qps: 2, message_mode: true, invalidates: 0, warm: 100, ..world };
    let mut rig = Rig::new(world, 25);
    rig.refuses = refuses;
    for i in 0..2 {
        let q = rig.qps[i].q;
        (0..5).for_each(|n| rig.post(i, &[(buffer(q, n, 1), 2000)]));
        rig.ring(i);
    }
    rig.until(20_000, "credits", |rig| (0..2).all(|i| rig.usable(i) == 5));
    for n in 0..4 {
        rig.world.invalidates = if n == 1 { 100 } else { 0 };
        rig.send(0, 1500, false);
    }
    rig.world.invalidates = 0;
    let key = told_to_end(&mut rig);
    (0..5).for_each(|_| rig.send(1, 1500, false));
    rig.until(50_000, "the other one's end", |rig| rig.open(1) == 0);
    let until = rig.now() + 3000;
    rig.until(3001, "some time", |rig| rig.now() >= until);
    assert_eq!((rig.open(0), rig.broken(0)), (4, None));
    assert_eq!(rig.read(0, recv::INVALIDATE), recv::Invalidate { waits: 1 }.word());
    assert_eq!(rig.read(1, recv::INVALIDATE), 0);
    (rig, key)
}

#[test]
fn qp_4_a_send_with_invalidate_completes_when_firmware_has_ended_the_key() {
    for width in widths() {
        for log2_mtu in [8, 12] {
            let (mut rig, _) = with_one_that_waits(World { width, log2_mtu, ..World::default() }, 0);
            rig.invalidations[0].0 = 0;
            rig.until(5000, "completions", |rig| rig.open(0) == 1 && rig.qps[0].requester.pending() == 0);
            assert_eq!(rig.read(0, recv::INVALIDATE), 0);
            // It is over: what is said once more says nothing.
            rig.command(0, recv::CMD_INVALIDATED);
            rig.command(0, recv::CMD_NOT_INVALIDATED);
            rig.send(0, 1500, false);
            rig.until(5000, "the last one", |rig| rig.open(0) == 0 && rig.qps[0].requester.pending() == 0);
            rig.rests();
            assert_eq!(rig.broken(0), None);
        }
    }
}

/// Behind a hole, and doubled before, while and after it waits: firmware is told once, in its turn.
#[test]
fn qp_4_a_send_with_invalidate_that_comes_early_or_twice_ends_its_key_once() {
    for width in widths() {
        let (mut rig, first) = with_credits(World { width, ..World::default() }, 27, 4);
        let keys = [Some(0x77), None, Some(0x78), None];
        let come = |rig: &mut Rig, numbers: &[usize], clocks: u64| {
            for &n in numbers {
                let p = packet((first + n as u32) & 0xff_ffff, 64, n as u8, 0, Position::Only);
                let frame = rig.frame(0, &RequestPacket { invalidate: keys[n], ..p }, &[n as u8; 64]);
                rig.inject(frame, 0);
            }
            let until = rig.now() + clocks;
            rig.until(clocks + 1, "some time", |rig| rig.now() >= until);
        };
        come(&mut rig, &[2, 1, 2], 500);
        assert_eq!((rig.invalidations.len(), rig.cqe_count), (0, 0));
        come(&mut rig, &[0, 0], 0);
        for (key, complete) in [(0x77, 0), (0x78, 2)] {
            assert_eq!(told_to_end(&mut rig), key);
            come(&mut rig, &[], 100);
            let acknowledged = rig.replies.len();
            come(&mut rig, &[0, 1, 2, 0], 500);
            assert_eq!((rig.invalidations.len(), rig.cqe_count, rig.replies.len()), (1, complete, acknowledged));
            rig.invalidations[0].0 = 0;
            rig.until(500, "the answer", |rig| rig.invalidations.is_empty());
        }
        rig.until(500, "its completion", |rig| rig.cqe_count == 3);
        come(&mut rig, &[0, 2, 3], 500);
        assert_eq!((rig.invalidations.len(), rig.cqe_count), (0, 4));
        rig.rests();
    }
}

/// The peer hears "remote access error", and the row says which key it is.
#[test]
fn qp_4_a_key_that_the_peer_may_not_end_breaks_the_connection() {
    for width in widths() {
        let (mut rig, key) = with_one_that_waits(World { width, ..World::default() }, 100);
        rig.invalidations[0].0 = 0;
        rig.until(20_000, "the event", |rig| rig.broken(0) == Some(FAULT_ACCESS));
        rig.until(20_000, "the answer", |rig| rig.qps[0].requester.pending() == 0);
        rig.rests();
        let access = recv::Access::from_word(rig.read(0, recv::ACCESS));
        assert_eq!((access.known, access.right, rig.read(0, recv::ACCESS_KEY)), (1, 0, key));
        let refused = Syndrome::Nak(NakCode::RemoteAccess);
        let said =
            |reply: &ResponsePacket| matches!(reply.body, ResponseBody::Ack { syndrome, .. } if syndrome == refused);
        assert!(rig.replies.last().is_some_and(said));
        assert_eq!((rig.open(0), rig.read(0, recv::INVALIDATE)), (4, 0));
        rig.command(0, recv::CMD_INVALIDATED);
        rig.rests();
        assert_eq!(rig.open(0), 4);
    }
}

/// Its receive, too, completes as the end says; firmware may be late, and the QP begins anew.
#[test]
fn qp_4_a_qp_may_end_while_a_send_with_invalidate_waits() {
    for width in widths() {
        let (mut rig, _) = with_one_that_waits(World { width, ..World::default() }, 0);
        rig.end(0, WC_FLUSHED);
        rig.until(60_000, "all completions", |rig| rig.open(0) == 0);
        rig.command(0, recv::CMD_INVALIDATED);
        rig.invalidations.clear();
        wind_up(&mut rig, 0);
        rig.quiet(0);
        rig.until(200, "the last release", |rig| rig.held() == 0);
        rig.restart(0);
        rig.command(0, recv::CMD_INVALIDATED);
        assert_eq!(rig.read(0, recv::INVALIDATE), 0);
        let q = rig.qps[0].q;
        (0..5).for_each(|n| rig.post(0, &[(buffer(q, n, 1), 2000)]));
        rig.ring(0);
        rig.until(20_000, "credits", |rig| rig.usable(0) == 5);
        (0..5).for_each(|_| rig.send(0, 1500, false));
        rig.until(50_000, "the end", |rig| rig.open(0) == 0 && rig.qps[0].requester.pending() == 0);
    }
}

/// A QP with so many credits of 64 bytes, to which the test sends by itself; and its first PSN.
fn with_credits(world: World, seed: u64, credits: usize) -> (Rig, u32) {
    let mut rig = Rig::new(World { loss: 100, ..world }, seed);
    for n in 0..credits {
        rig.post(0, &[(buffer(16, n, 1), 64)]);
    }
    rig.ring(0);
    rig.until(20_000, "credits", |rig| rig.usable(0) as usize == credits);
    let first = rig.qps[0].model.arrival().expected().get();
    (rig, first)
}

/// Steps so many clocks; the clocks in which acknowledgements left.
fn reply_times(rig: &mut Rig, clocks: u64) -> Vec<u64> {
    let (end, mut known, mut times) = (rig.now() + clocks, rig.replies.len(), Vec::new());
    rig.until(clocks + 1, "some time", |rig| {
        if rig.replies.len() > known {
            known = rig.replies.len();
            times.push(rig.now());
        }
        rig.now() >= end
    });
    times
}

/// One for four packets that do not ask, at once for one that does, and for each that comes to its place behind a gap.
#[test]
fn acknowledgements_are_due_at_once_when_asked_for_or_behind_a_gap_else_for_every_fourth_packet() {
    for width in widths() {
        let (mut rig, first) = with_credits(World { width, ..World::default() }, 24, 24);
        let mut came = |n: u32, asks: bool| {
            let frame = message(&rig, first, n, asks);
            rig.inject(frame, 0);
            let at = rig.now();
            let times = reply_times(&mut rig, 150);
            assert!(times.iter().all(|t| *t < at + 60), "packet {n}: {at}, {times:?}");
            times.len()
        };
        for n in 0..8 {
            assert_eq!(came(n, false), usize::from(n % 4 == 3), "packet {n}");
        }
        assert_eq!(
            [(8, false), (9, true), (10, false), (11, false), (12, false)].map(|(n, asks)| came(n, asks)),
            [0, 1, 0, 0, 0]
        );
        assert_eq!(came(13, false), 1);
        // 14 is missing. It closes the hole, which is four packets.
        assert_eq!([15, 17, 16].map(|n| came(n, false)), [1; 3]);
        assert_eq!(came(14, false), 1);
        assert_eq!([18, 19, 20].map(|n| came(n, false)), [0; 3]);
        rig.rests();
        assert_eq!(rig.cqe_count, 21);
    }
}

/// 256 packets from the oldest on that is not in place: one further is not taken, and what lies half of all PSNs back is old.
#[test]
fn packets_beyond_the_window_are_dropped_and_old_ones_are_duplicates() {
    const OUT_OF_WINDOW: usize = 3 + 2;
    for width in widths() {
        let (mut rig, first) = with_credits(World { width, ..World::default() }, 29, 4);
        for round in 0..3 {
            let psn = first + round;
            for (ahead, verdict) in [
                (255, 0),
                (256, OUT_OF_WINDOW),
                (257, OUT_OF_WINDOW),
                (511, OUT_OF_WINDOW),
                (0x7f_ffff, OUT_OF_WINDOW),
                (0x80_0000, 2),
                (0xff_ffff, 2),
            ] {
                let before = rig.verdicts;
                let p = packet((psn + ahead) & 0xff_ffff, 64, 3, 0, Position::Only);
                let frame = rig.frame(0, &p, &[0; 64]);
                rig.inject(frame, 0);
                rig.until(100, "its verdict", |rig| rig.verdicts != before);
                assert_eq!(rig.verdicts[verdict], before[verdict] + 1, "{ahead}, round {round}");
            }
            rig.rests();
            let frame = message(&rig, first, round, false);
            rig.inject(frame, 0);
            rig.until(300, "its completion", |rig| rig.cqe_count == u64::from(round) + 1);
            rig.rests();
        }
    }
}

/// Nor do packets wait for long because acknowledgements are due.
#[test]
fn acknowledgements_do_not_wait_for_the_packets_behind_them() {
    for width in widths() {
        let (mut rig, first) = with_credits(World { width, ..World::default() }, 30, 30);
        for n in 0..30 {
            let frame = message(&rig, first, n, true);
            rig.inject(frame, 0);
        }
        let at = rig.now();
        let times = reply_times(&mut rig, 400);
        let gap = times.windows(2).map(|t| t[1] - t[0]).max();
        assert!(times[0] < at + 60 && gap < Some(40), "{at}, {times:?}");
        assert!(rig.last_cqe < at + 300, "{at}, {}", rig.last_cqe);
        rig.rests();
        assert_eq!(rig.cqe_count, 30);
    }
}

#[test]
fn duplicates_have_one_acknowledgement_in_64_clocks_and_qps_take_turns() {
    const PACE: u64 = 64;
    for width in widths() {
        let (mut rig, first) = with_credits(World { width, qps: 3, ..World::default() }, 25, 1);
        let frame = message(&rig, first, 0, true);
        rig.inject(frame.clone(), 0);
        assert_eq!(reply_times(&mut rig, 200).len(), 1);
        // Now and then one: each has its own, at once.
        for _ in 0..3 {
            rig.inject(frame.clone(), 0);
            let at = rig.now();
            let times = reply_times(&mut rig, 2 * PACE);
            assert!(times.len() == 1 && times[0] < at + 30, "{at}, {times:?}");
        }
        // Many, so that there is always one to be judged: no more than that, nor do they wait for the last one.
        for _ in 0..400 {
            rig.inject(frame.clone(), 0);
        }
        let before = rig.verdicts[2];
        let times = reply_times(&mut rig, 800);
        assert!(rig.verdicts[2] < before + 400, "they are all judged");
        let gaps: Vec<u64> = times.windows(2).map(|t| t[1] - t[0]).collect();
        assert!(times.len() >= 11 && gaps.iter().all(|gap| (PACE..PACE + 8).contains(gap)), "{gaps:?}");
        rig.until(2_000, "the last of them", |rig| rig.verdicts[2] == before + 400);
        assert!(reply_times(&mut rig, 3 * PACE).len() <= 2);
        // Of three QPs, each has its turn. The last PSN before the first one is old news as well.
        let from = rig.replies.len();
        for n in 0..60 {
            for i in 0..3 {
                let psn = rig.qps[i].model.arrival().expected().get().wrapping_sub(1) & 0xff_ffff;
                let frame = rig.frame(i, &packet(psn, 64, 0, 0, Position::Only), &[0; 64]);
                rig.inject(frame, 20 * n);
            }
        }
        let times = reply_times(&mut rig, 1200 + 6 * PACE);
        assert!(times.windows(2).all(|t| t[1] - t[0] >= PACE));
        let counts = [0, 1, 2].map(|i| {
            let psn = rig.qps[i].model.arrival().expected().get().wrapping_sub(1) & 0xff_ffff;
            rig.replies[from..].iter().filter(|r| r.psn == psn).count()
        });
        assert!(counts.iter().all(|n| (6..=8).contains(n)), "{counts:?}");
        rig.rests();
    }
}

/// A NAK says at once that something is missing, but not before all that came before it is in place.
#[test]
fn without_selective_repeat_a_gap_is_told_when_what_came_before_it_is_in_place() {
    for width in widths() {
        let world = World { width, selective: false, write: 300, ..World::default() };
        let (mut rig, first) = with_credits(world, 26, 4);
        for n in [0, 2, 3] {
            let p = RequestPacket { placement: None, ..packet((first + n) & 0xff_ffff, 64, 0, 0, Position::Only) };
            let frame = rig.frame(0, &p, &[0; 64]);
            rig.inject(frame, 10 * u64::from(n));
        }
        let at = rig.now();
        let times = reply_times(&mut rig, 600);
        assert!(times.len() == 1 && (at + 300..at + 360).contains(&times[0]), "{at}, {times:?}");
        let nak = ResponseBody::Ack { syndrome: Syndrome::Nak(berth_protocol::rc::NakCode::Sequence), sack: None };
        assert_eq!((rig.replies[0].psn, rig.replies[0].body), ((first + 1) & 0xff_ffff, nak));
        // The sender has gone back, and it is still missing.
        let again = |rig: &Rig, n| {
            let p = RequestPacket { placement: None, ..packet((first + n) & 0xff_ffff, 64, 0, 0, Position::Only) };
            rig.frame(0, &p, &[0; 64])
        };
        let frame = again(&rig, 3);
        rig.inject(frame, 0);
        let at = rig.now();
        let times = reply_times(&mut rig, 100);
        assert!(times.len() == 1 && times[0] < at + 30, "{at}, {times:?}");
        rig.rests();
    }
}

/// Whatever takes nothing for a while, what was to be given to it is given in the end.
#[test]
fn an_output_that_takes_nothing_for_a_long_time_loses_nothing() {
    for width in widths() {
        for port in ["store_ready", "fcq_ready", "xa_ready", "afr_ready", "lfr_ready"] {
            for (qps, len) in [(1, 64), (3, 64), (2, 3000)] {
                let mut rig = Rig::new(World { width, qps, max_list: 64, ..World::default() }, 27);
                for i in 0..qps as usize {
                    (0..60).for_each(|n| rig.post(i, &[(buffer(16 + i as u32, n, 1), len)]));
                    rig.ring(i);
                }
                rig.until(20_000, "credits", |rig| (0..qps as usize).all(|i| rig.usable(i) > 20));
                rig.stuck = Some(port);
                let end = rig.now() + 2_000;
                rig.until(30_000, "all completions", |rig| {
                    for i in 0..qps as usize {
                        if rig.usable(i) > 0 {
                            rig.send(i, len, false);
                        }
                    }
                    if rig.now() == end {
                        rig.stuck = None;
                    }
                    rig.stuck.is_none() && rig.cqe_count == 60 * u64::from(qps)
                });
                rig.until(2_000, "all to be released and as the model has it", |rig| rig.settled());
                rig.rests();
            }
        }
    }
}

#[test]
fn acks_and_lists_go_to_the_transmit_half_and_strangers_to_the_core() {
    for width in widths() {
        let mut rig = Rig::new(World { width, qps: 2, stall: 30, ..World::default() }, 6);
        let body = |sack| ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack };
        let ack = ResponsePacket { psn: 0x12_3456, msn: 1, body: body(None) };
        let frame = rig.ack_frame(1, &ack);
        rig.inject(frame, 1);
        let bits = 0x8000_0000_0000_0000_0000_0000_0000_0007;
        let frame = rig.ack_frame(0, &ResponsePacket { body: body(Some(bits)), ..ack });
        rig.inject(frame, 2);
        for n in [1, 2, 31, 64] {
            let sizes: Vec<u32> = (0..n).map(|k| 0x0102_0304 * k + n).collect();
            for (i, carrier) in [CARRIER_CONTROL, CARRIER_REVERSE, CARRIER_WRITE].into_iter().enumerate() {
                let frame = rig.carried_list(carrier, (n as usize + i) % 2, n * 100, &sizes);
                rig.inject(frame, 3);
            }
        }
        // From another peer, to another card, to a QP that is off, with a bad IPv4 checksum, another epoch.
        let good = rig.ack_frame(0, &ack);
        for at in [7, 3, 48, 25] {
            let mut frame = good.clone();
            frame[at] ^= 1;
            rig.inject(frame, 4);
        }
        let mut frame = rig.list_frame(0, 5, &[1]);
        frame[66] ^= 1;
        rig.inject(frame, 4);
        rig.until(5000, "all of it", |rig| rig.lists_in.len() == 12 && rig.acks_in.len() == 2 && rig.core.len() == 5);
        rig.until(500, "the last sizes", |rig| rig.lists_in.iter().all(|l| l.2.len() as u32 == l.1 / 100));
        assert_eq!(rig.acks_in[0], (17, 0x12_3456, 31, None));
        assert_eq!(rig.acks_in[1], (16, 0x12_3456, 31, Some(bits)));
        for ((q, first, sizes), i) in rig.lists_in.iter().zip(0..) {
            let n = first / 100;
            assert_eq!(*q, 16 + (n + i % 3) % 2);
            assert!(sizes.iter().zip(0..).all(|(size, k)| *size == 0x0102_0304 * k + n));
        }
    }
}

/// A list that the transmit half does not take leaves its slot after four clocks, however many sizes it has; one that is taken,
/// a clock per size later.
#[test]
fn fairness_a_list_that_is_not_wanted_takes_four_clocks_whatever_its_length() {
    for width in widths() {
        for (unwanted, n, clocks) in [(true, 1, 4), (true, 61, 4), (false, 1, 4), (false, 61, 64)] {
            let mut rig = Rig::new(World { width, ..World::default() }, 6);
            rig.lists_unwanted = unwanted;
            for k in 0..10 {
                let frame = rig.list_frame(0, 100 * k, &vec![7; n]);
                rig.inject(frame, 1);
            }
            let mut begun = Vec::new();
            rig.until(5000, "all lists", |rig| {
                begun.resize(rig.lists_in.len(), rig.now());
                begun.len() == 10
            });
            let what = format!("{n} sizes, unwanted {unwanted}: {begun:?}");
            assert!(begun.windows(2).all(|w| w[1] - w[0] == clocks), "{what}");
            rig.until(500, "free slots", |rig| rig.slots_are_free());
            assert!(rig.lists_in.iter().all(|l| l.2.len() == if unwanted { 0 } else { n }), "{what}");
        }
    }
}

/// The IPv4 header's checksum is right again.
fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Addresses, lengths, version, partition, QP; for a list also the Q_Key, who sent it, and its record up to the first
/// credit's number.
#[test]
fn a_frame_with_any_bit_wrong_that_says_whose_it_is_goes_to_the_core() {
    const WHOSE: [std::ops::Range<usize>; 6] = [0..12, 16..18, 26..34, 38..40, 44..46, 47..50];
    for width in widths() {
        let mut rig = Rig::new(World { width, ..World::default() }, 17);
        let ack = ResponsePacket {
            psn: 0x12_3456,
            msn: 1,
            body: ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: None },
        };
        let sack = ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: Some(5) };
        let data = packet(1, 64, 0, 0, Position::Only);
        let frames = [
            (rig.ack_frame(0, &ack), vec![]),
            (rig.ack_frame(0, &ResponsePacket { body: sack, ..ack }), vec![]),
            (rig.list_frame(0, 5, &[1, 2, 3]), vec![54..58, 59..62, 62..70]),
            // In the reverse direction of a connection the QPN of who sends says nothing.
            (rig.carried_list(CARRIER_REVERSE, 0, 5, &[1, 2, 3]), vec![54..58, 62..70]),
            (rig.carried_list(CARRIER_WRITE, 0, 5, &[1, 2, 3]), vec![54..78]),
            (rig.frame(0, &data, &[7; 64]), vec![]),
        ];
        for (frame, more) in frames {
            let mut wrong = Vec::new();
            for at in WHOSE.into_iter().chain(more).flatten() {
                wrong.extend((0..8).map(|bit| (at, 1_u8 << bit)));
            }
            wrong.extend((0..4).map(|bit| (43, 1 << bit)));
            for (at, bit) in wrong {
                let mut frame = frame.clone();
                frame[at] ^= bit;
                let before = rig.core.len();
                rig.inject(with_checksum(frame), 0);
                rig.until(500, "the core to have it", |rig| {
                    let taken = (rig.acks_in.len(), rig.lists_in.len(), rig.verdicts);
                    assert_eq!(taken, (0, 0, [0; 14]), "taken with bit {bit:#x} of byte {at} wrong");
                    rig.core.len() > before
                });
            }
        }
        assert!(rig.events.is_empty() && rig.replies.is_empty());
        // One with a bad checksum says nothing about the next one.
        let good = rig.ack_frame(0, &ack);
        let mut bad = good.clone();
        bad[25] ^= 1;
        for frame in [bad, good] {
            rig.inject(frame, 0);
        }
        let before = rig.core.len();
        rig.until(500, "both", |rig| (rig.core.len(), rig.acks_in.len()) == (before + 1, 1));
        // Nor is a SACK taken where there is no selective repeat.
        let mut rig = Rig::new(World { width, selective: false, ..World::default() }, 17);
        let frame = rig.ack_frame(0, &ResponsePacket { body: sack, ..ack });
        rig.inject(frame, 0);
        rig.until(500, "the core to have it", |rig| rig.core.len() == 1);
        assert_eq!(rig.acks_in.len(), 0);
    }
}

/// Receives that are posted once a list stands; how many messages have come when the next list leaves.
fn next_list(rig: &mut Rig, later: usize) -> u32 {
    let first = rig.usable(0);
    for n in 0..later {
        rig.post(0, &[(buffer(16, 64 + n, 1), 64)]);
    }
    rig.ring(0);
    let mut landed = 0;
    loop {
        // As long as a list needs that may leave.
        let end = rig.now() + 1500;
        rig.until(2000, "some time", |rig| rig.now() == end || rig.lists_out == 2);
        if rig.lists_out == 2 {
            return landed;
        }
        assert!(landed < first, "no list at all");
        rig.send(0, 64, false);
        landed += 1;
        rig.until(1000, "its completion", |rig| rig.cqe_count == u64::from(landed));
    }
}

#[test]
fn cr_5_the_next_list_leaves_when_the_triggers_buffer_has_landed_and_not_before() {
    const LIST: u32 = 5;
    for width in widths() {
        // The first buffer, the last, one between them, one that adapts; an index behind the end is the last.
        for (trigger, wanted) in [((0, 3), 1), ((1, 1), LIST), ((2, 2), 3), ((2, 9), LIST), ((3, 1), 2)] {
            let mut rig = Rig::new(World { width, trigger, max_list: LIST, ..World::default() }, 18);
            for n in 0..LIST as usize {
                rig.post(0, &[(buffer(16, n, 1), 64)]);
            }
            rig.ring(0);
            rig.until(5000, "a list", |rig| rig.usable(0) == LIST);
            assert_eq!(next_list(&mut rig, 3), wanted, "trigger {trigger:?}");
        }
    }
}

#[test]
fn cr_4_few_credits_wait_until_few_are_out() {
    for width in widths() {
        // Three new ones are few, while more than three are out; four are not.
        for (later, wanted) in [(3, 3), (4, 1)] {
            let mut rig = Rig::new(World { width, few: 3, ..World::default() }, 19);
            for n in 0..6 {
                rig.post(0, &[(buffer(16, n, 1), 64)]);
            }
            rig.ring(0);
            rig.until(5000, "a list", |rig| rig.usable(0) == 6);
            assert_eq!(next_list(&mut rig, later), wanted, "{later} new ones");
        }
    }
}

#[test]
fn dec_6_a_lists_timer_runs_from_when_it_was_told_last_until_its_proof() {
    const REPEAT: u32 = 40;
    const ROWS: usize = 64;
    for width in widths() {
        let mut rig = Rig::new(World { width, repeat: REPEAT, ..World::default() }, 20);
        assert_eq!(rig.timers(ROWS), []);
        for n in 0..3 {
            rig.post(0, &[(buffer(16, n, 1), 64)]);
        }
        rig.ring(0);
        for list in 1..4 {
            rig.until(5000, "a list", |rig| rig.lists_out == list);
            let now = (rig.now() / 64) as u32;
            let ends = rig.timers(ROWS);
            let told = |end: u32| (now.saturating_sub(1)..=now).contains(&(end - REPEAT));
            assert!(ends.len() == 1 && told(ends[0]), "{ends:?}, now {now}");
        }
        rig.send(0, 64, false);
        rig.until(1000, "a completion", |rig| rig.cqe_count == 1);
        assert_eq!(rig.timers(ROWS), []);
        let end = rig.now() + 64 * 3 * u64::from(REPEAT);
        rig.until(10_000, "some time", |rig| rig.now() == end);
        assert_eq!(rig.lists_out, 3);
    }
}

#[test]
fn after_a_reset_in_the_middle_of_work_all_is_as_at_the_start() {
    for width in widths() {
        let mut module = Module::new(NAME, width);
        for case in 0..6 {
            let world =
                World { width, qps: 3, warm: 50, service: 300, loss: 5, twice: 5, late: 10, ..World::default() };
            let mut rig = Rig::on(module, world.clone(), case);
            let end = 700 + 431 * case;
            rig.until(end + 1, "the reset", |rig| {
                for i in 0..3 {
                    if rig.open(i) < 10 {
                        let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                        rig.post(i, &[(buffer(q, n, 4), 9000)]);
                        rig.ring(i);
                    }
                    if rig.usable(i) > 0 {
                        rig.send(i, 9000, false);
                    }
                }
                rig.now() >= end
            });
            let mut rig = Rig::on(rig.into_module(), World { loss: 0, twice: 0, late: 0, ..world }, case);
            stream(&mut rig, 8, 4, 2, 4096, 3000);
            module = rig.into_module();
        }
    }
}

/// A reset at each clock of the one in which a hole closes, behind which packets and completions wait.
#[test]
fn after_a_reset_at_any_clock_of_a_hole_that_closes_all_is_as_at_the_start() {
    for width in widths() {
        let mut module = Module::new(NAME, width);
        for clock in 0..45 {
            let mut rig = Rig::on(module, World { width, loss: 100, ..World::default() }, clock);
            (0..8).for_each(|n| rig.post(0, &[(buffer(16, n, 1), 64)]));
            rig.ring(0);
            rig.until(5_000, "credits", |rig| rig.usable(0) == 8);
            let first = rig.qps[0].model.arrival().expected().get();
            for n in [1, 2, 3, 4, 5, 0] {
                let frame = message(&rig, first, n, false);
                rig.inject(frame, if n == 0 { 100 } else { 0 });
            }
            let end = rig.now() + 98 + clock;
            rig.until(200, "the reset", |rig| rig.now() >= end);
            let mut rig = Rig::on(rig.into_module(), World { width, ..World::default() }, clock);
            stream(&mut rig, 4, 4, 4, 1024, 700);
            module = rig.into_module();
        }
    }
}

const NOTHING: recv::Held = recv::Held { busy: 0, queued: 0, revoking: 0, starved: 0, holds: 0 };

/// Steps until QP `i` holds nothing and has nothing under way.
fn wind_up(rig: &mut Rig, i: usize) {
    for _ in 0..2000 {
        if (recv::Held { starved: 0, ..rig.row_held(i) }) == NOTHING {
            return;
        }
    }
    panic!("QP {i} does not come to its end: {:?}", rig.row_held(i));
}

#[test]
fn rows_say_what_a_qp_holds() {
    for width in widths() {
        let mut rig = Rig::new(World { width, warm: 0, ..World::default() }, 8);
        assert_eq!(rig.row_held(0), NOTHING);
        for n in 0..5 {
            rig.post(0, &[(buffer(16, n, 1), 4096)]);
        }
        rig.ring(0);
        rig.until(400, "the doorbell", |rig| rig.doorbells() == 0);
        assert_eq!(rig.row_held(0).queued, 1, "elements are being fetched");
        assert_eq!(rig.counts(0), (5, 0));
        rig.until(400, "five requests", |rig| rig.asking() == 5);
        assert_eq!(rig.row_held(0), recv::Held { starved: 1, holds: 5, ..NOTHING });
        rig.until(5000, "a list", |rig| rig.usable(0) == 5);
        assert_eq!((rig.row_held(0), rig.counts(0)), (recv::Held { holds: 5, ..NOTHING }, (5, 5)));
        assert_eq!((rig.read(0, recv::ANNOUNCED), rig.read(0, recv::LANDED)), (5, 0));
        let before = rig.read(0, recv::HEARD);
        rig.until(500, "some time", |rig| rig.now() % 64 == 0 && rig.now() / 64 > u64::from(before) + 2);
        rig.send(0, 4096, false);
        rig.send(0, 64, false);
        rig.until(3000, "two completions", |rig| rig.cqe_count == 2);
        rig.until(100, "their releases", |rig| rig.held() == 3);
        assert_eq!((rig.row_held(0).holds, rig.read(0, recv::COMPLETED)), (3, 2));
        assert_eq!((rig.read(0, recv::ANNOUNCED), rig.read(0, recv::LANDED), rig.counts(0)), (5, 2, (3, 3)));
        assert!(rig.read(0, recv::HEARD) > before);
    }
}

#[test]
fn an_ended_qp_completes_all_receives_and_holds_nothing() {
    let seed = seed(7);
    for width in widths() {
        for case in 0..cases(24) {
            let mut draw = Rng(mix(seed ^ 0xe4d) ^ mix(case));
            let world = World {
                width,
                qps: 2,
                warm: draw.below(101),
                limit: if draw.chance(0.3) {
                    draw.below(2) as u32 * 0x0400_0000 + draw.between(1, 40) as u32
                } else {
                    0
                },
                service: draw.between(10, 3000),
                write: draw.between(1, 200),
                stall: if draw.chance(0.5) { draw.below(50) } else { 0 },
                ..World::default()
            };
            let mut rig = Rig::new(world, draw.draw());
            let (first, more) = (draw.between(1, 60), draw.below(8));
            let when = draw.below(4000);
            let end = |rig: &mut Rig| {
                for n in 0..first as usize {
                    let at = buffer(16, n, 600);
                    rig.post(0, &[(at, 5000), (at + 0x10_0000, if n % 5 == 1 { 0x12_0000 } else { 100 })]);
                }
                rig.ring(0);
                let until = rig.now() + when;
                rig.until(10_000, "the time", |rig| {
                    while rig.usable(0) > 0 && rig.in_work(0) < 8 {
                        rig.send(0, 5000, false);
                    }
                    rig.now() >= until
                });
                rig.end(0, WC_FLUSHED);
                for n in 0..more as usize {
                    rig.post(0, &[(buffer(16, n, 600), 64)]);
                }
                rig.ring(0);
                let soon = rig.now() + 300;
                rig.until(400, "the last list", |rig| rig.now() == soon);
                let lists = rig.lists_out;
                rig.until(60_000, "all completions", |rig| rig.open(0) == 0);
                wind_up(rig, 0);
                rig.until(200, "the last release", |rig| rig.held() == 0);
                assert_eq!(rig.lists_out, lists, "a list after the end");
                assert_eq!(rig.counts(0), (0, 0));
            };
            end(&mut rig);
            // Its frames are the core's; the next connection begins from nothing.
            rig.quiet(0);
            rig.restart(0);
            end(&mut rig);
        }
    }
}

/// The mark that ends one QP's completions comes while many receives of another one go back, at each clock of it.
#[test]
fn a_qp_ends_while_receives_of_another_one_go_back() {
    for width in widths() {
        for wait in 0..16 {
            let mut rig = Rig::new(World { width, qps: 2, ..World::default() }, 23);
            for i in 0..2 {
                for n in 0..30 {
                    let at = buffer(16 + i as u32, n, 16);
                    rig.post(i, &[(at, 100), (at + 8192, 100), (at + 16384, 100)]);
                }
                rig.ring(i);
            }
            rig.until(20_000, "credits", |rig| (0..2).all(|i| rig.usable(i) == 30));
            rig.command(0, recv::CMD_HOLD);
            rig.void(0, 0);
            let when = rig.now() + wait;
            rig.until(17, "the time", |rig| rig.now() >= when);
            rig.end(1, WC_FLUSHED);
            rig.until(20_000, "all completions of the one", |rig| rig.open(1) == 0);
            rig.until(20_000, "credits of the other", |rig| rig.usable(0) == 30);
        }
    }
}

/// Memory goes at each clock of a QP's end, while some of its credits are announced and others are not: all its receives
/// complete all the same, and hold nothing.
#[test]
fn vc_9_memory_may_go_while_a_qp_ends() {
    const ANNOUNCED: usize = 5;
    const RECVS: usize = 16;
    for width in widths() {
        for wait in (0..40).chain([80, 160, 320, 640]) {
            // Memory of one that is announced, of one that is not, and of none.
            for gone in [2, ANNOUNCED, RECVS] {
                let mut rig = Rig::new(World { width, ..World::default() }, 24);
                for n in 0..RECVS {
                    rig.post(0, &[(buffer(16, n, 1), 4096)]);
                    if n + 1 == ANNOUNCED {
                        rig.ring(0);
                        rig.until(5000, "a list", |rig| rig.usable(0) == ANNOUNCED as u32);
                    }
                }
                rig.ring(0);
                rig.until(5000, "credits behind it", |rig| rig.counts(0).1 == RECVS as u32);
                rig.end(0, WC_FLUSHED);
                let when = rig.now() + wait;
                rig.until(700, "the time", |rig| rig.now() >= when);
                rig.revoke(0, buffer(16, gone, 1), buffer(16, gone + 1, 1));
                rig.until(20_000, "all completions", |rig| rig.open(0) == 0);
                wind_up(&mut rig, 0);
                rig.until(400, "the last release", |rig| rig.held() == 0);
            }
        }
    }
}

/// A page that never comes delays only its own receive and those posted after it.
#[test]
fn decision_21_announced_receives_of_an_ended_qp_do_not_wait_for_memory_behind_them() {
    const ANNOUNCED: usize = 5;
    for width in widths() {
        for goes_back in [false, true] {
            let mut rig = Rig::new(World { width, warm: 0, service: 20_000, ..World::default() }, 25);
            for n in 0..=ANNOUNCED {
                rig.post(0, &[(buffer(16, n, 1), 4096)]);
                if n + 1 == ANNOUNCED {
                    rig.ring(0);
                    rig.until(25_000, "a list", |rig| rig.usable(0) == ANNOUNCED as u32);
                }
            }
            rig.ring(0);
            rig.until(400, "the request", |rig| rig.asking() == 1);
            if goes_back {
                rig.revoke(0, buffer(16, ANNOUNCED, 1), buffer(16, ANNOUNCED + 1, 1));
            }
            rig.end(0, WC_FLUSHED);
            rig.until(1_000, "completions of what was announced", |rig| rig.open(0) == 1);
            assert_eq!(rig.asking(), 1);
            rig.until(25_000, "the last completion", |rig| rig.open(0) == 0);
            wind_up(&mut rig, 0);
            rig.until(400, "the last release", |rig| rig.held() == 0);
        }
    }
}

/// The same at any time, whatever the host has answered of receives of several ranges.
#[test]
fn vc_9_memory_may_go_whatever_an_ended_qp_waits_for() {
    let seed = seed(7);
    for width in widths() {
        for case in 0..cases(60) {
            let mut draw = Rng(mix(seed ^ 0x7e1) ^ mix(case));
            let world = World {
                width,
                warm: draw.below(101),
                service: draw.between(10, 3000),
                stall: if draw.chance(0.5) { draw.below(50) } else { 0 },
                max_list: draw.between(1, 64) as u32,
                ..World::default()
            };
            let mut rig = Rig::new(world, draw.draw());
            rig.qps[0].alone = true;
            let count = draw.between(1, 40);
            let ranges = draw.between(1, 3);
            for n in 0..count {
                let at = buffer(16, n as usize, 8);
                rig.post(0, &(0..ranges).map(|k| (at + 8192 * k, 100)).collect::<Vec<_>>());
                if draw.chance(0.2) || n + 1 == count {
                    rig.ring(0);
                    let when = rig.now() + draw.below(500);
                    rig.until(500, "the time", |rig| rig.now() >= when);
                }
            }
            let when = rig.now() + draw.below(3000);
            rig.until(3001, "the time", |rig| rig.now() >= when);
            rig.end(0, WC_FLUSHED);
            for _ in 0..draw.between(1, 4) {
                let when = rig.now() + draw.below(600);
                rig.until(601, "the time", |rig| rig.now() >= when);
                let start = buffer(16, draw.below(count) as usize, 8);
                let end = start + 8192 * draw.between(1, 5);
                rig.host.revoke(16, start, end - start);
                rig.revoke(0, start, end);
                assert_eq!(rig.host.stale(), 0, "held although it is gone");
            }
            rig.until(60_000, "all completions", |rig| rig.open(0) == 0);
            wind_up(&mut rig, 0);
            rig.until(400, "the last release", |rig| rig.held() == 0);
        }
    }
}

#[test]
fn cr_10_recalled_credits_are_void_and_granted_anew() {
    let seed = seed(7);
    for width in widths() {
        for case in 0..cases(24) {
            let mut draw = Rng(mix(seed ^ 0x4ec) ^ mix(case));
            let world = World {
                width,
                warm: draw.below(101),
                limit: if draw.chance(0.3) {
                    draw.below(2) as u32 * 0x0400_0000 + draw.between(1, 40) as u32
                } else {
                    0
                },
                service: draw.between(10, 1500),
                max_list: draw.between(1, 64) as u32,
                stall: if draw.chance(0.5) { draw.below(50) } else { 0 },
                ..World::default()
            };
            let mut rig = Rig::new(world, draw.draw());
            let count = 120;
            for _ in 0..4 {
                let until = rig.now() + draw.below(4000);
                keep_busy(&mut rig, count, |rig| rig.now() >= until);
                rig.command(0, recv::CMD_HOLD);
                // What is on the wire arrives; the far end keeps some of the rest.
                let until = rig.now() + 300;
                rig.until(1000, "the answer", |rig| rig.now() >= until);
                let (lists, low) = (rig.lists_out, rig.qps[0].used());
                let until = rig.now() + draw.below(2000);
                rig.until(3000, "nothing", |rig| rig.now() >= until);
                assert_eq!(rig.lists_out, lists, "a list although the QP is held");
                assert_eq!(rig.read(0, recv::ANNOUNCED), rig.qps[0].announced());
                let first = draw.between(low.into(), rig.qps[0].announced().into()) as u32;
                rig.void(0, first);
                assert_eq!(rig.read(0, recv::ANNOUNCED).max(first), rig.read(0, recv::ANNOUNCED));
            }
            keep_busy(&mut rig, count, |rig| rig.qps[0].cqes.len() == count);
            rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
            rig.rests();
        }
    }
}

/// Receives that are recalled and canceled complete as recalled, in their turn, and hold nothing; those posted later are granted
/// as ever. Of a peer without lists nobody is asked: what it had in hand is placed, and the rest finds no receive for a while.
#[test]
fn receives_that_are_no_credits_go_back_to_the_program() {
    let seed = seed(7);
    for width in widths() {
        let mut recalled = [0; 2];
        for case in 0..cases(24) {
            let mut draw = Rng(mix(seed ^ 0xca9c) ^ mix(case));
            let foreign = case % 2 == 0;
            let world = World {
                width,
                foreign,
                selective: !foreign,
                message_mode: foreign,
                log2_mtu: 8,
                warm: draw.below(101),
                limit: if draw.chance(0.3) { draw.between(1, 40) as u32 } else { 0 },
                service: draw.between(10, 1500),
                stall: if draw.chance(0.5) { draw.below(50) } else { 0 },
                ..World::default()
            };
            let mut rig = Rig::new(world, draw.draw());
            rig.taking_back = true;
            for _ in 0..6 {
                for _ in rig.open(0)..draw.between(1, 60) as usize {
                    let at = buffer(16, rig.qps[0].recvs.len(), 2);
                    rig.post(0, &[(at, 64), (at + 4096, 700)]);
                }
                rig.ring(0);
                let until = rig.now() + draw.below(4000);
                rig.until(5000, "some messages", |rig| {
                    if rig.usable(0) > 0 && rig.rng.chance(0.03) {
                        let len = rig.rng.between(1, 764) as u32;
                        rig.send(0, len, false);
                    }
                    rig.now() >= until
                });
                let first = if foreign {
                    let first = rig.reclaim(0);
                    assert_eq!(first, rig.read(0, recv::LANDED), "what was used is counted");
                    first
                } else {
                    rig.command(0, recv::CMD_HOLD);
                    let until = rig.now() + 300;
                    rig.until(1000, "the answer", |rig| rig.now() >= until);
                    let first = draw.between(rig.qps[0].used().into(), rig.qps[0].announced().into()) as u32;
                    rig.command(0, recv::CMD_REST);
                    rig.void(0, first);
                    first
                };
                rig.cancel(0, first);
                // As many new ones as the far end has sent messages for.
                let wanted = rig.qps[0].used().saturating_sub(first);
                for _ in 0..wanted {
                    let at = buffer(16, rig.qps[0].recvs.len(), 2);
                    rig.post(0, &[(at, 64), (at + 4096, 700)]);
                }
                rig.ring(0);
                rig.until(400_000, "all that was sent or canceled", |rig| {
                    // Those that the far end of a Berth has kept are used first.
                    while !foreign && rig.qps[0].used() < first {
                        rig.send(0, 600, false);
                    }
                    rig.open(0) == 0
                });
            }
            recalled[case as usize % 2] += rig.qps[0].cqes.iter().filter(|c| c.status == WC_RECALLED).count();
            assert!(rig.qps[0].broken.is_none());
            rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
            rig.rests();
        }
        println!("{width} bits: recalled from a foreign peer and from a Berth: {recalled:?}");
        assert!(cases(24) < 24 || recalled.iter().all(|n| *n > 100));
    }
}

/// Posts up to `count` receives, and sends what may be sent, until `done`.
fn keep_busy(rig: &mut Rig, count: usize, mut done: impl FnMut(&mut Rig) -> bool) {
    rig.until(400_000, "the end", |rig| {
        for i in 0..rig.qps.len() {
            if rig.qps[i].recvs.len() < count && rig.open(i) < 60 && rig.rng.chance(0.05) {
                let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                let at = buffer(q, n, 2);
                rig.post(i, &[(at, 64), (at + 4096, 1 + n as u32 % 900)]);
                rig.ring(i);
            }
            if rig.usable(i) > 0 && rig.rng.chance(0.03) {
                let len = rig.rng.between(1, 1000) as u32;
                rig.send(i, len, false);
            }
        }
        done(rig)
    });
}

#[test]
fn vc_9_receives_whose_memory_is_gone_are_withdrawn_or_granted_anew() {
    let seed = seed(7);
    let mut withdrawn = 0;
    let cases = cases(24);
    for width in widths() {
        for case in 0..cases {
            let mut draw = Rng(mix(seed ^ 0x7e0) ^ mix(case));
            let world = World {
                width,
                warm: draw.below(101),
                limit: if draw.chance(0.3) {
                    draw.below(2) as u32 * 0x0400_0000 + draw.between(1, 40) as u32
                } else {
                    0
                },
                service: draw.between(10, 3000),
                write: draw.between(1, 200),
                stall: if draw.chance(0.5) { draw.below(50) } else { 0 },
                ..World::default()
            };
            let mut rig = Rig::new(world, draw.draw());
            let until = rig.now() + draw.below(4000);
            keep_busy(&mut rig, 120, |rig| rig.now() >= until);
            let n = rig.qps[0].cqes.len() as u64 + draw.below(20);
            let start = buffer(16, n as usize, 2) + 4096 * draw.below(2);
            let end = start + 4096 * draw.between(1, 5);
            // Writes fail from now on; the model does not know.
            rig.qps[0].alone = true;
            rig.host.revoke(16, start, end - start);
            rig.revoke(0, start, end);
            assert_eq!(rig.host.stale(), 0, "held although it is gone");
            // Either the far end runs into a withdrawn receive, or all goes on.
            keep_busy(&mut rig, 120, |rig| rig.qps[0].broken.is_some() || rig.qps[0].cqes.len() == 120);
            if let Some(fault) = rig.qps[0].broken {
                assert_eq!(fault, FAULT_WRITE);
                withdrawn += 1;
                rig.end(0, WC_FLUSHED);
                rig.until(60_000, "all completions", |rig| rig.open(0) == 0);
                wind_up(&mut rig, 0);
            }
            rig.until(400, "the last release", |rig| rig.held() == 0);
        }
    }
    println!("{withdrawn} connections met a withdrawn receive");
    assert!(cases < 24 || withdrawn > 0);
}

#[test]
fn vc_9_a_receive_is_withdrawn_for_any_byte_of_any_of_its_ranges_and_no_other_is() {
    const RECVS: usize = 4;
    // The first range of a receive, its last ones, and none.
    for width in widths() {
        for (recv, sge) in [(0, 0), (1, 1), (2, 2), (3, 0), (3, 2), (RECVS, 0)] {
            let mut rig = Rig::new(World { width, ..World::default() }, 22);
            let at = |recv, sge: u64| buffer(16, recv, 8) + 8192 * sge;
            for n in 0..RECVS {
                rig.post(0, &[0, 1, 2].map(|sge| (at(n, sge) + 100, 3000)));
            }
            rig.ring(0);
            rig.until(5000, "credits", |rig| rig.usable(0) == RECVS as u32);
            let held = |rig: &Rig, n| rig.held_in(0, at(n, 0), at(n, 3));
            // Beside it on either side, then its first or last byte.
            let (from, to) = (at(recv, sge) + 100, at(recv, sge) + 3100);
            rig.revoke(0, from - 100, from);
            rig.revoke(0, to, to + 100);
            assert_eq!(rig.held(), 3 * RECVS as u32);
            if sge == 1 {
                rig.revoke(0, from, from + 1)
            } else {
                rig.revoke(0, to - 1, to)
            }
            let end = rig.now() + 500;
            rig.until(501, "some time", |rig| rig.now() == end);
            for n in 0..RECVS {
                assert_eq!(held(&rig, n), if n == recv { 0 } else { 3 }, "receive {n} for range {sge} of {recv}");
            }
        }
    }
}

/// Its ring's end and that of the indices come among the first elements; then it is filled up again.
#[test]
fn qp_1_a_receive_queue_is_as_deep_as_it_may_be() {
    for width in widths() {
        let mut rig = Rig::new(World { width, ..World::default() }, 9);
        rig.qps[0].pi = 0_u16.wrapping_sub(200);
        rig.restart(0);
        let depth = RING as usize;
        for done in [0, 300] {
            while rig.open(0) < depth {
                let n = rig.qps[0].recvs.len();
                rig.post(0, &[(buffer(16, n, 1), 64)]);
            }
            rig.ring(0);
            rig.until(400_000, "completions", |rig| {
                while rig.usable(0) > 0 && rig.qps[0].sent.len() < done + 300 {
                    rig.send(0, 64, false);
                }
                rig.qps[0].cqes.len() == done + 300
            });
            // This host has a completion at once, before its receive is free; no doorbell crosses a bus that fast.
            let end = rig.now() + 100;
            rig.until(101, "some time", |rig| rig.now() == end);
        }
        assert!(rig.events.is_empty() && rig.core.is_empty(), "firmware had to do nothing");
    }
}

#[test]
fn wild_doorbells_are_told_once_and_not_taken() {
    for width in widths() {
        let mut rig = Rig::new(World { width, ..World::default() }, 9);
        for n in 0..3 {
            rig.post(0, &[(buffer(16, n, 1), 4096)]);
        }
        rig.ring(0);
        rig.until(5000, "a list", |rig| rig.usable(0) == 3);
        // Further than the queue has elements; backwards; once more.
        let far = RING as u16 + 1;
        for pi in [far, 2, 9000] {
            rig.ring_at(0, pi);
        }
        rig.until(500, "the event", |rig| !rig.events.is_empty() && rig.doorbells() == 0);
        let argument = ReceiveIndex { index: far.into() }.word().into();
        assert_eq!(rig.events, [Event { code: EVENT_RECEIVE_INDEX.into(), qpn: 16, argument }.word()]);
        rig.ring_at(0, 3);
        rig.send(0, 64, false);
        rig.until(3000, "a completion", |rig| rig.cqe_count == 1);
        assert_eq!((rig.events.len(), rig.counts(0)), (1, (2, 2)));
    }
}

#[test]
fn pc_3_a_batch_that_does_not_fit_the_budget_goes_in_parts() {
    for width in widths() {
        for (pages, seed) in [(1, 10), (3, 11), (6, 12)] {
            let world = World { width, warm: 0, service: 300, ..World::default() };
            let mut rig = Rig::new(world, seed);
            rig.host.set_budget(6 * 4096);
            rig.taking_back = true;
            for n in 0..32 {
                let at = buffer(16, n, 16);
                let sges: Vec<_> = (0..pages).map(|k| (at + 8192 * k, 100)).collect();
                rig.post(0, &sges);
            }
            rig.ring(0);
            let mut squeezes = 0;
            while rig.cqe_count < 32 {
                let until = rig.now() + 2000;
                rig.until(3000, "some time", |rig| {
                    while rig.usable(0) > 0 {
                        rig.send(0, 600, false);
                    }
                    rig.now() >= until
                });
                if rig.row_held(0).starved != 0 {
                    rig.command(0, recv::CMD_SQUEEZE);
                    squeezes += 1;
                }
                assert!(rig.now() < 400_000, "{} of 32 are complete", rig.cqe_count);
            }
            assert!(squeezes > 0);
            rig.until(2000, "all to be released", |rig| rig.settled());
        }
    }
}

#[test]
fn pc_3_no_more_is_granted_than_the_row_allows() {
    for width in widths() {
        for (limit, seed) in [(1, 13), (8, 14), (40, 15)] {
            let mut rig = Rig::new(World { width, limit, warm: 50, service: 300, ..World::default() }, seed);
            for n in 0..60 {
                rig.post(0, &[(buffer(16, n, 1), 4096)]);
            }
            rig.ring(0);
            let mut most = 0;
            rig.until(100_000, "all completions", |rig| {
                while rig.usable(0) > 0 {
                    rig.send(0, 4096, false);
                }
                most = most.max(rig.held());
                rig.cqe_count == 60
            });
            assert!(most <= limit && most >= limit.min(30), "{most} of {limit}");
            rig.until(2000, "all to be released", |rig| rig.settled());
        }
    }
}

/// A far end whose data come `far` cycles after their list, against a service as long.
#[test]
fn pc_3_round_trip_and_service_are_measured_and_added_to_the_bound() {
    const LEAST: u32 = 8;
    const FAR: u64 = 4000;
    const COUNT: usize = 100;
    for width in widths() {
        let cycles = [0, 1024].map(|most| {
            let world = World {
                width,
                limit: recv::Pinned { most, bound: LEAST }.word(),
                trigger: (3, if most == 0 { 0 } else { 15 }),
                warm: 0,
                service: FAR,
                ..World::default()
            };
            let mut rig = Rig::new(world, 16);
            for n in 0..COUNT {
                rig.post(0, &[(buffer(COUNT as u32, n, 1), 4096)]);
            }
            rig.ring(0);
            let (mut known, mut longest, mut on_the_way, mut held) = (0, 0, VecDeque::new(), 0);
            rig.until(1_000_000, "all completions", |rig| {
                let announced = rig.qps[0].announced();
                if announced > known {
                    on_the_way.push_back((rig.now() + FAR, announced - known));
                    longest = longest.max(announced - known);
                    known = announced;
                }
                while on_the_way.front().is_some_and(|l| l.0 <= rig.now()) {
                    let list = on_the_way.pop_front().map_or(0, |l| l.1);
                    (0..list).for_each(|_| rig.send(0, 4096, false));
                }
                held = held.max(rig.held());
                rig.cqe_count == COUNT as u64
            });
            // What the wire carries meanwhile, and what the cards need themselves.
            let bound = LEAST + (u64::from(width) / 8 * (2 * FAR + 1500)).div_ceil(4096) as u32;
            match most {
                0 => assert!(held <= LEAST, "{held} of {LEAST}"),
                _ => {
                    assert!(held > LEAST && held <= bound, "{held} of {bound}");
                    assert!(longest <= bound / 2, "a list of {longest}: {bound} may be held");
                }
            }
            let cycles = rig.now();
            rig.until(2000, "all to be released", |rig| rig.settled());
            cycles
        });
        println!(
            "{width} bits: {COUNT} receives, {LEAST} at a time, in {} cycles; as measured: {}",
            cycles[0], cycles[1]
        );
        assert!(cycles[1] < cycles[0] * 9 / 10);
    }
}
