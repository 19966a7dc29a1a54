// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The translation table with all its users at once (docs/internals/host-interface.md, invariant 4).
#![cfg(feature = "fastpath")]

use berth_abi::card::{XLT_WAYS, Xlt};
use berth_abi::cpu::{XLT_HIT, XLT_MISS, XLT_READY, XltRsp};
use berth_abi::engine::{CHANGE_EVICT, CHANGE_INSTALL};
use berth_abi::message::{Entry, PageNeed, PageRelease, Typed, code};
use berth_abi::ring::{EV_PAGE_EVICTED, EV_PAGE_NEED, EV_PAGE_RELEASE, EVICT_PAGES, evicted_pages};
use berth_random::{Rng, seed};
use berth_rtl_unit::{Module, Port};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PAGE: u64 = 4096;
const INSTALL: u64 = CHANGE_INSTALL as u64;
const EVICT: u64 = CHANGE_EVICT as u64;

/// A range as a user of the table gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Range {
    release: bool,
    quiet: bool,
    probe: bool,
    write: bool,
    asid: u32,
    va: u64,
    len: u64,
    tag: u16,
}

impl Range {
    fn pages(&self) -> std::ops::RangeInclusive<u64> {
        self.va / PAGE..=(self.va + self.len - 1) / PAGE
    }
}

/// An answer to user 0 (firmware), 1 or 2.
#[derive(Debug, PartialEq)]
struct Answer {
    user: usize,
    kind: u32,
    status: u32,
    tag: u16,
}

/// Fields of a range that is asked for.
struct Fields {
    give_back: Port,
    quiet: Port,
    probe: Port,
    write: Port,
    asid: Port,
    va: Port,
    len: Port,
    tag: Port,
}

struct Table {
    m: Module,
    /// Per user.
    fields: [Fields; 3],
    ports: BTreeMap<&'static str, Port>,
    /// Ranges that wait for their user's port.
    queue: [VecDeque<Range>; 3],
    /// (op, index, vpn, asid, write, page)
    changes: VecDeque<[u64; 7]>,
    /// The host's answers: (tag with user, status).
    host: VecDeque<(u64, u64)>,
    /// Look-ups of DMA reads and writes: (asid, vpn).
    lookups: [VecDeque<(u64, u64)>; 2],
    answers: VecDeque<Answer>,
    events: VecDeque<Entry>,
    pages: [VecDeque<Option<u64>>; 2],
    /// Probability of each ready.
    ready: f64,
    rng: Rng,
    places: BTreeMap<u32, (u32, u64)>,
    /// Ranges that hit and that missed, as the answers have it, less what was counted.
    uncounted: [i64; 2],
}

impl Table {
    fn new(rng: u64, ready: f64) -> Self {
        Self::on(Module::with_seed("berth_xlt", 64, rng), rng, ready)
    }

    /// With a module that may have been in use, and is reset.
    fn on(mut m: Module, rng: u64, ready: f64) -> Self {
        let fields = ["xhead", "xa.tx", "xa.rx"].map(|p| Fields {
            give_back: m.port(&format!("{p}.give_back")),
            quiet: m.port(&format!("{p}.quiet")),
            probe: m.port(&format!("{p}.probe")),
            write: m.port(&format!("{p}.write")),
            asid: m.port(&format!("{p}.asid")),
            va: m.port(&format!("{p}.va")),
            len: m.port(&format!("{p}.len")),
            tag: m.port(&format!("{p}.tag")),
        });
        let names = [
            "lk_req",
            "lk_asid",
            "lk_vpn",
            "lk_ack",
            "lk_hit",
            "lk_page",
            "ch_valid",
            "ch_ready",
            "ch.op",
            "ch.index",
            "ch.vpn",
            "ch.asid",
            "ch.write",
            "ch.page",
            "ch.more",
            "rdy_valid",
            "rdy_ready",
            "rdy.tag",
            "rdy.status",
            "rsp_valid",
            "rsp_ready",
            "rsp_data",
            "xhead_valid",
            "xhead_ready",
            "xa_valid",
            "xa_ready",
            "xa_tell",
            "xr_valid",
            "xr.tx.tag",
            "xr.tx.kind",
            "xr.tx.status",
            "xr.rx.tag",
            "xr.rx.kind",
            "xr.rx.status",
            "xr_room",
            "inc_hit",
            "inc_miss",
            "xev_valid",
            "xev_ready",
            "xev_words",
            "busy",
        ];
        let ports: BTreeMap<_, _> = names.into_iter().map(|n| (n, m.port(n))).collect();
        for name in ["xhead_valid", "xa_valid", "ch_valid", "rdy_valid", "lk_req"] {
            m.set(ports[name], 0_u8);
        }
        m.reset();
        m.set(ports["xa_tell"], 1_u8);
        m.set(ports["xr_room"], 3_u8);
        let mut table = Self {
            m,
            fields,
            ports,
            queue: Default::default(),
            changes: VecDeque::new(),
            host: VecDeque::new(),
            lookups: Default::default(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            pages: Default::default(),
            ready,
            rng: Rng(rng),
            places: BTreeMap::new(),
            uncounted: [0; 2],
        };
        table.settle();
        table
    }

    fn set(&mut self, name: &str, value: u64) {
        self.m.set(self.ports[name], value);
    }

    fn is(&self, name: &str) -> bool {
        self.m.is(self.ports[name])
    }

    fn bit(&self, port: Port, i: usize) -> bool {
        self.m.get(port) >> i & 1 != 0
    }

    fn step(&mut self) {
        let asked = [0, 1, 2].map(|user: usize| self.queue[user].front().copied());
        for (fields, r) in self.fields.iter().zip(asked) {
            let Some(r) = r else { continue };
            self.m.set(fields.give_back, r.release);
            self.m.set(fields.quiet, r.quiet);
            self.m.set(fields.probe, r.probe);
            self.m.set(fields.write, r.write);
            self.m.set(fields.asid, r.asid);
            self.m.set(fields.va, r.va);
            self.m.set(fields.len, r.len);
            self.m.set(fields.tag, r.tag);
        }
        let pair = |[a, b]: [u64; 2], bits: u32| a | b << bits;
        self.set("xhead_valid", asked[0].is_some().into());
        self.set("xa_valid", pair([1, 2].map(|user: usize| asked[user].is_some().into()), 1));

        let change = self.changes.front().copied();
        self.set("ch_valid", change.is_some().into());
        if let Some([op, index, vpn, asid, write, page, more]) = change {
            for (name, value) in [
                ("ch.op", op),
                ("ch.index", index),
                ("ch.vpn", vpn),
                ("ch.asid", asid),
                ("ch.write", write),
                ("ch.page", page),
                ("ch.more", more),
            ] {
                self.set(name, value);
            }
        }
        let host = self.host.front().copied();
        self.set("rdy_valid", host.is_some().into());
        if let Some((tag, status)) = host {
            self.set("rdy.tag", tag);
            self.set("rdy.status", status);
        }
        let look = [self.lookups[0].front().copied(), self.lookups[1].front().copied()];
        self.set("lk_req", pair(look.map(|l| u64::from(l.is_some())), 1));
        self.set("lk_asid", pair(look.map(|l| l.map_or(0, |l| l.0)), 8));
        let vpn = look.map(|l| l.map_or(0, |l| l.1));
        self.m.set_wide(self.ports["lk_vpn"], &[vpn[0] | vpn[1] << 52, vpn[1] >> 12]);
        let (rsp, ev) = (self.rng.chance(self.ready), self.rng.chance(self.ready));
        self.set("rsp_ready", rsp.into());
        self.set("xev_ready", ev.into());

        self.m.settle();
        self.uncounted[0] -= self.m.get(self.ports["inc_hit"]) as i64;
        self.uncounted[1] -= self.m.get(self.ports["inc_miss"]) as i64;
        let answered = self.answers.len();
        if asked[0].is_some() && self.is("xhead_ready") {
            self.queue[0].pop_front();
        }
        for u in 0..2 {
            if asked[u + 1].is_some() && self.bit(self.ports["xa_ready"], u) {
                self.queue[u + 1].pop_front();
            }
            if self.bit(self.ports["xr_valid"], u) {
                let names = [["xr.tx.kind", "xr.tx.status", "xr.tx.tag"], ["xr.rx.kind", "xr.rx.status", "xr.rx.tag"]];
                let [kind, status, tag] = names[u].map(|name| self.m.get(self.ports[name]) as u32);
                let tag = tag as u16;
                self.answers.push_back(Answer { user: u + 1, kind, status, tag });
            }
            if self.bit(self.ports["lk_ack"], u) {
                let page = self.is("lk_hit").then(|| self.m.get(self.ports["lk_page"]));
                self.pages[u].push_back(page);
                self.lookups[u].pop_front();
            }
        }
        if change.is_some() && self.is("ch_ready") {
            self.changes.pop_front();
        }
        if host.is_some() && self.is("rdy_ready") {
            self.host.pop_front();
        }
        if rsp && self.is("rsp_valid") {
            let word = self.m.get(self.ports["rsp_data"]) as u32;
            let said = XltRsp::from_word(word);
            assert_eq!(word, XltRsp { valid: 1, ..said }.word(), "there is one, and other bits are 0");
            let answer = Answer { user: 0, kind: said.kind, status: said.status, tag: said.tag as u16 };
            self.answers.push_back(answer);
        }
        for answer in self.answers.range(answered..) {
            match answer.kind {
                XLT_HIT => self.uncounted[0] += 1,
                XLT_MISS => self.uncounted[1] += 1,
                _ => (),
            }
        }
        if ev && self.is("xev_valid") {
            let words = self.m.words(self.ports["xev_words"]);
            let word = |i: usize| words.get(i / 2).map_or(0, |word| (word >> (32 * (i % 2))) as u32);
            self.events.push_back(std::array::from_fn(word));
        }
        self.m.edge();
    }

    /// Until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            self.step();
            let asked = self.queue.iter().all(VecDeque::is_empty) && self.lookups.iter().all(VecDeque::is_empty);
            if asked && self.changes.is_empty() && self.host.is_empty() && !self.is("busy") && !self.is("rsp_valid") {
                assert_eq!(self.uncounted, [0; 2], "ranges that hit and missed");
                return;
            }
        }
        panic!("the table does not come to rest");
    }

    fn install(&mut self, asid: u32, vpn: u64, write: bool) -> Option<u32> {
        let index = Xlt::HERE.free(asid, vpn, |place| !self.places.contains_key(&place))?;
        self.places.insert(index, (asid, vpn));
        self.changes.push_back([INSTALL, index.into(), vpn, asid.into(), write.into(), page_of(asid, vpn), 0]);
        Some(index)
    }

    /// One command for all of them.
    fn evict(&mut self, indices: &[u32]) {
        for (i, &index) in indices.iter().enumerate() {
            self.changes.push_back([EVICT, index.into(), 0, 0, 0, 0, u64::from(i + 1 < indices.len())]);
        }
    }
}

/// Where the bench says that a page lies.
fn page_of(asid: u32, vpn: u64) -> u64 {
    u64::from(asid) << 40 | vpn & 0xff_ffff_ffff
}

#[test]
fn neighbours_fill_the_whole_table_and_strangers_most_of_it() {
    let mut places = BTreeMap::new();
    for vpn in 0x7_f123_0000..0x7_f123_0000 + 8192 {
        let index = Xlt::HERE.free(5, vpn, |p| !places.contains_key(&p)).expect("a place");
        assert!(places.insert(index, vpn).is_none());
    }
    let mut rng = Rng(seed(7));
    let (mut places, mut count) = (BTreeMap::new(), 0);
    loop {
        let (asid, vpn) = (rng.between(1, 63) as u32, rng.below(1 << 45));
        assert!(
            (0..XLT_WAYS)
                .all(|n| Xlt::HERE.place(asid, vpn, n) < 8192 && Xlt::HERE.place(asid, vpn, n) % XLT_WAYS == n)
        );
        let Some(index) = Xlt::HERE.free(asid, vpn, |p| !places.contains_key(&p)) else { break };
        places.insert(index, vpn);
        count += 1;
    }
    println!("{count} of 8192 places before the first page finds none");
    assert!(count > 8192 * 6 / 10);
}

#[test]
fn a_page_is_found_by_all_bits_of_its_number_and_address_space_and_in_every_place() {
    let mut t = Table::new(1, 1.0);
    let mut rng = Rng(seed(9));
    let mut pages = Vec::new();
    for n in 0..XLT_WAYS {
        for _ in 0..60 {
            let (asid, vpn) = (rng.between(1, 255) as u32, rng.below(1 << 48));
            let free = |at: u32| at % XLT_WAYS == n && !t.places.contains_key(&at);
            let Some(index) = Xlt::HERE.free(asid, vpn, free) else { continue };
            let write = rng.chance(0.5);
            t.places.insert(index, (asid, vpn));
            t.changes.push_back([INSTALL, index.into(), vpn, asid.into(), write.into(), page_of(asid, vpn), 0]);
            pages.push((asid, vpn, write));
        }
    }
    t.settle();
    let mut wanted: [VecDeque<Option<u64>>; 2] = Default::default();
    let mut look = |t: &mut Table, u: usize, asid: u32, vpn: u64, page| {
        t.lookups[u].push_back((asid.into(), vpn));
        wanted[u].push_back(page);
    };
    for &(asid, vpn, write) in &pages {
        look(&mut t, 0, asid, vpn, Some(page_of(asid, vpn)));
        look(&mut t, 1, asid, vpn, write.then(|| page_of(asid, vpn)));
    }
    for &(asid, vpn, _) in pages.iter().step_by(100) {
        for u in 0..2 {
            (0..52).for_each(|bit| look(&mut t, u, asid, vpn ^ 1 << bit, None));
            (0..8).for_each(|bit| look(&mut t, u, asid ^ 1 << bit, vpn, None));
        }
    }
    t.settle();
    assert_eq!(t.pages, wanted);
    // An installed page in a row that is not its own is never found.
    let (asid, vpn) = (3, 0x123_4567);
    let at = Xlt::HERE.free(asid, vpn, |at| !t.places.contains_key(&at)).expect("a place") ^ XLT_WAYS;
    t.changes.push_back([INSTALL, at.into(), vpn, asid.into(), 1, 1, 0]);
    t.settle();
    t.pages = Default::default();
    t.lookups[0].push_back((asid.into(), vpn));
    t.settle();
    assert_eq!(t.pages[0], [None]);
}

#[test]
fn a_range_that_misses_gives_back_its_pages_and_the_host_hears_all_of_it() {
    const BASE: u64 = 0xf_1234_5678;
    let mut t = Table::new(1, 1.0);
    let pages: Vec<u32> = (0..12).map(|i| t.install(6, BASE + i, i != 9).unwrap()).collect();
    t.settle();
    let mut tag = 0x8000;
    for user in 0..3 {
        // From each page on, behind the last one there is nothing; the tenth cannot be written.
        for (from, write) in (0..12).flat_map(|from| [(from, false), (from, true)]) {
            tag += 1;
            let r = Range { write, asid: 6, va: (BASE + from) * PAGE + 4095, len: 14 * PAGE, tag, ..Range::default() };
            t.queue[user].push_back(r);
            t.settle();
            let miss = Answer { user, kind: XLT_MISS, status: 0, tag };
            assert_eq!(std::mem::take(&mut t.answers), [miss]);
            let tag = (user as u32) << 16 | u32::from(tag);
            let need = PageNeed { tag, asid: 6, write, va: r.va, len: r.len as u32 };
            assert_eq!(t.events.drain(..).collect::<Vec<_>>(), [need.encode()]);
        }
    }
    // No bytes are one.
    let r = Range { write: false, asid: 6, va: (BASE + 11) * PAGE, len: 0, tag: 1, ..Range::default() };
    for release in [false, true] {
        (0..3).for_each(|user| t.queue[user].push_back(Range { release, ..r }));
        t.settle();
    }
    let mut answers: Vec<_> = t.answers.drain(..).map(|a| (a.user, a.kind)).collect();
    answers.sort_unstable();
    assert_eq!(answers, [(0, XLT_HIT), (1, XLT_HIT), (2, XLT_HIT)]);
    t.events.clear();
    // Nothing of it is in use.
    t.evict(&pages);
    t.settle();
    let e = t.events.pop_front().expect("an event");
    assert_eq!(evicted_pages(&e).collect::<Vec<_>>(), pages.iter().map(|&at| (at, true)).collect::<Vec<_>>());
}

#[test]
fn a_reset_in_the_middle_of_work_forgets_pages_counts_and_ranges() {
    const BASE: u64 = 0x7_1234_5600;
    let mut rng = Rng(seed(10));
    let mut m = Module::new("berth_xlt", 64);
    for _ in 0..6 {
        let mut t = Table::on(m, rng.draw(), 0.5);
        let pages: Vec<u32> = (0..16).map(|i| t.install(1, BASE + i, true).unwrap()).collect();
        t.settle();
        for tag in 0..20 {
            let r = Range { write: true, asid: 1, va: (BASE + 4) * PAGE, len: 3 * PAGE, tag, ..Range::default() };
            let beyond = Range { va: (BASE + 14) * PAGE, ..r };
            for user in 0..3 {
                t.queue[user].extend([r, beyond]);
            }
            t.lookups[usize::from(tag % 2)].push_back((1, BASE + u64::from(tag)));
        }
        t.evict(&pages[..3]);
        for _ in 0..rng.between(5, 90) {
            t.step();
        }
        let mut t = Table::on(t.m, rng.draw(), 1.0);
        let r = Range { write: true, asid: 1, va: (BASE + 4) * PAGE, len: 3 * PAGE, tag: 7, ..Range::default() };
        for (user, kind) in (0..3).flat_map(|user| [(user, XLT_MISS), (user, XLT_HIT)]) {
            t.queue[user].push_back(r);
            t.settle();
            assert_eq!(std::mem::take(&mut t.answers), [Answer { user, kind, status: 0, tag: 7 }]);
            assert_eq!(t.events.drain(..).filter(|e| code(e) == EV_PAGE_NEED).count(), usize::from(kind == XLT_MISS));
            let at: Vec<u32> = match kind {
                XLT_MISS => (4..7).map(|i| t.install(1, BASE + i, true).unwrap()).collect(),
                _ => {
                    t.queue[user].push_back(Range { release: true, ..r });
                    t.settle();
                    std::mem::take(&mut t.places).into_keys().collect()
                }
            };
            if kind == XLT_HIT {
                t.events.clear();
                t.evict(&at);
                t.settle();
                let e = t.events.pop_front().expect("an event");
                assert!(at.len() == 3 && evicted_pages(&e).all(|(_, dropped)| dropped));
            }
            t.settle();
        }
        m = t.m;
    }
}

#[test]
fn all_users_see_their_pages_and_counts_end_at_zero() {
    let mut t = Table::new(seed(1), 0.6);
    const BASE: u64 = 0x7_1234_5600;
    // pages 0..40 stay, 40..60 come and go, 60..64 never come
    let stable: Vec<u32> = (0..40).map(|i| t.install(1, BASE + i, i % 4 != 0).unwrap()).collect();
    t.settle();
    let mut churn: BTreeMap<u64, Option<u32>> = (40..60).map(|i| (i, None)).collect();
    let mut asked: BTreeMap<(usize, u16), Range> = BTreeMap::new();
    let mut held: Vec<(usize, Range)> = Vec::new();
    let mut needs: Vec<(usize, u16)> = Vec::new();
    let (mut missed, mut told) = (BTreeSet::new(), BTreeSet::new());
    let mut wanted: [VecDeque<(u64, bool)>; 2] = Default::default();
    let mut evicting: BTreeSet<u32> = BTreeSet::new();
    let (mut tag, mut hits, mut misses, mut evicted, mut kept) = (0_u16, 0, 0, 0, 0);
    for round in 0..30_000 {
        let user = t.rng.below(3) as usize;
        match t.rng.below(8) {
            0..3 if t.queue[user].len() < 4 && asked.len() < 200 => {
                tag = tag.wrapping_add(1);
                let (va, len) = (BASE * PAGE + t.rng.below(62 * PAGE), t.rng.between(1, 5 * PAGE));
                // Some are asked for without the host, or asked after only.
                let (quiet, probe) = (t.rng.chance(0.2), t.rng.chance(0.2));
                let write = t.rng.chance(0.3);
                let r = Range { release: false, quiet, probe, write, asid: 1, va, len: len.min(66 * PAGE), tag };
                if asked.insert((user, tag), r).is_none() {
                    t.queue[user].push_back(r);
                }
            }
            3 | 4 if !held.is_empty() => {
                let at = t.rng.below(held.len() as u64) as usize;
                let (user, r) = held.swap_remove(at);
                t.queue[user].push_back(Range { release: true, ..r });
            }
            5 if t.changes.len() < 3 => {
                let page = t.rng.between(40, 59);
                match churn[&page] {
                    None => {
                        if let Some(index) = t.install(1, BASE + page, true) {
                            churn.insert(page, Some(index));
                        }
                    }
                    Some(_) => {
                        let most = if t.rng.chance(0.2) { EVICT_PAGES } else { 1 };
                        let some = churn.range(page..).filter_map(|(_, at)| *at).filter(|at| !evicting.contains(at));
                        let some: Vec<u32> = some.take(most).collect();
                        evicting.extend(&some);
                        t.evict(&some);
                    }
                }
            }
            6 => {
                let (u, page) = (t.rng.below(2) as usize, t.rng.below(64));
                // DMA writes need a page that may be written
                t.lookups[u].push_back((1, BASE + page));
                wanted[u].push_back((page, page < 40 && (u == 0 || page % 4 != 0)));
            }
            _ => {}
        }
        t.step();
        while let Some(a) = t.answers.pop_front() {
            if a.kind == XLT_READY {
                assert_eq!(a.status, 3);
                let at = needs.iter().position(|n| *n == (a.user, a.tag)).expect("an answer of the host to its user");
                needs.swap_remove(at);
                continue;
            }
            let r = asked.remove(&(a.user, a.tag)).expect("an answer to what was asked");
            let all_stable = r.pages().all(|v| v < BASE + 40 && (!r.write || (v - BASE) % 4 != 0));
            let never = r.pages().any(|v| v >= BASE + 60 || (r.write && v < BASE + 40 && (v - BASE) % 4 == 0));
            match a.kind {
                XLT_HIT => {
                    assert!(!never, "{r:?} cannot be held");
                    hits += 1;
                    if !r.probe {
                        held.push((a.user, r));
                    }
                }
                kind => {
                    assert!(kind == XLT_MISS && !all_stable, "{r:?} is there");
                    misses += 1;
                    if !r.quiet && !told.remove(&(a.user, a.tag)) {
                        missed.insert((a.user, a.tag));
                    }
                }
            }
        }
        while let Some(e) = t.events.pop_front() {
            match code(&e) {
                EV_PAGE_EVICTED => {
                    for (index, dropped) in evicted_pages(&e) {
                        assert!(evicting.remove(&index), "{index} was not to be evicted");
                        let page = *churn.iter().find(|(_, at)| **at == Some(index)).expect("evictions of pages").0;
                        if dropped {
                            let holder = held.iter().find(|(_, r)| r.pages().contains(&(BASE + page)));
                            assert_eq!(holder, None, "evicted in round {round} while held");
                            churn.insert(page, None);
                            t.places.remove(&index);
                            evicted += 1;
                        } else {
                            kept += 1;
                        }
                    }
                }
                EV_PAGE_NEED => {
                    let PageNeed { tag, .. } = PageNeed::decode(&e);
                    let asker = ((tag >> 16) as usize, tag as u16);
                    // Firmware's answers may be read later.
                    let early = asked.get(&asker).is_some_and(|r| !r.quiet) && told.insert(asker);
                    assert!(missed.remove(&asker) || early, "{asker:x?} does not ask the host");
                    needs.push(asker);
                    t.host.push_back((tag.into(), 3));
                }
                kind => assert_eq!(kind, EV_PAGE_RELEASE),
            }
        }
        for u in 0..2 {
            while let Some(page) = t.pages[u].pop_front() {
                let (at, there) = wanted[u].pop_front().unwrap();
                match page {
                    Some(page) => assert_eq!(page, page_of(1, BASE + at)),
                    None => assert!(!there, "page {at} for {u}"),
                }
            }
        }
        if held.len() > 12 {
            let (user, r) = held.swap_remove(0);
            t.queue[user].push_back(Range { release: true, ..r });
        }
    }
    println!("{hits} hits, {misses} misses, {evicted} evicted, {kept} kept");
    assert!(hits > 500 && misses > 500 && evicted > 100 && kept > 10);
    t.settle();
    for a in std::mem::take(&mut t.answers) {
        match (a.kind, asked.remove(&(a.user, a.tag))) {
            (XLT_HIT, Some(r)) if !r.probe => held.push((a.user, r)),
            (XLT_MISS, Some(r)) if !r.quiet && !told.remove(&(a.user, a.tag)) => _ = missed.insert((a.user, a.tag)),
            _ => (),
        }
    }
    let needs = t.events.iter().filter(|e| code(e) == EV_PAGE_NEED).count();
    assert_eq!(needs, missed.len(), "the host hears of what is missing");
    t.events.retain(|e| code(e) == EV_PAGE_EVICTED);
    for e in std::mem::take(&mut t.events) {
        for (index, _) in evicted_pages(&e).filter(|page| page.1) {
            churn.values_mut().filter(|at| **at == Some(index)).for_each(|at| *at = None);
        }
    }
    for (user, r) in held {
        t.queue[user].push_back(Range { release: true, ..r });
    }
    t.settle();
    t.events.clear();
    let all: Vec<u32> = stable.into_iter().chain(churn.into_values().flatten()).collect();
    for some in all.chunks(EVICT_PAGES) {
        t.evict(some);
    }
    t.settle();
    let answers: Vec<_> = t.events.iter().flat_map(|e| evicted_pages(e)).collect();
    assert_eq!(answers.iter().map(|a| a.0).collect::<Vec<_>>(), all);
    let stuck: Vec<_> = answers.iter().filter(|a| !a.1).collect();
    assert!(stuck.is_empty(), "in use although all is released: {stuck:?}");
}

#[test]
fn the_host_hears_of_a_page_when_its_last_use_ends() {
    let mut t = Table::new(1, 1.0);
    t.install(2, 0x1000, true);
    t.settle();
    let r = Range { write: false, asid: 2, va: 0x1000 * PAGE + 8, len: 64, tag: 1, ..Range::default() };
    t.queue[1].push_back(r);
    t.queue[2].push_back(Range { tag: 2, ..r });
    t.settle();
    assert!(t.answers.iter().all(|a| a.kind == XLT_HIT) && t.answers.len() == 2);
    t.queue[1].push_back(Range { release: true, ..r });
    t.settle();
    assert!(t.events.is_empty(), "{:?}", t.events);
    t.queue[2].push_back(Range { release: true, tag: 2, ..r });
    t.settle();
    let e = t.events.pop_front().expect("an event");
    let release = PageRelease { tag: 2 << 16 | 2, asid: 2, wrote: false, va: r.va, len: 64 };
    assert_eq!(PageRelease::of(&e), Some(release));
}

#[test]
fn evictions_of_one_command_have_one_answer_page_by_page() {
    let mut t = Table::new(1, 1.0);
    let pages: Vec<u32> = (0..12).map(|i| t.install(2, 0x1000 + i, true).unwrap()).collect();
    t.settle();
    let r = Range { write: false, asid: 2, va: 0x1003 * PAGE, len: 2 * PAGE, tag: 1, ..Range::default() };
    t.queue[1].push_back(r);
    t.settle();
    let begin = t.m.cycles();
    t.evict(&pages);
    while t.events.is_empty() {
        t.step();
    }
    let cycles = t.m.cycles() - begin;
    let e = t.events.pop_front().expect("an event");
    let wanted: Vec<_> = (0..).zip(&pages).map(|(i, &index)| (index, !(3..5).contains(&i))).collect();
    assert_eq!((code(&e), evicted_pages(&e).collect::<Vec<_>>()), (EV_PAGE_EVICTED, wanted));
    println!("{} pages evicted in {cycles} cycles", pages.len());
    assert!(cycles <= 2 * 12 + 12);
    t.evict(&pages[3..5]);
    t.queue[1].push_back(Range { release: true, ..r });
    t.settle();
    assert_eq!(t.events.iter().filter(|e| code(e) == EV_PAGE_EVICTED).count(), 1);
}

#[test]
fn pages_are_counted_one_per_cycle_and_looked_up_in_four() {
    let mut t = Table::new(1, 1.0);
    for i in 0..64 {
        t.install(2, 0x1000 + i, true);
    }
    t.settle();
    const MANY: u64 = 256;
    // one page each
    for tag in 0..MANY {
        let r = Range {
            write: true,
            asid: 2,
            va: (0x1000 + tag % 64) * PAGE,
            len: 64,
            tag: tag as u16,
            ..Range::default()
        };
        t.queue[1].push_back(r);
    }
    let begin = t.m.cycles();
    while t.answers.len() < MANY as usize {
        t.step();
    }
    let single = t.m.cycles() - begin;
    assert!(t.answers.iter().all(|a| a.kind == XLT_HIT));
    // 16 pages each, two users
    t.answers.clear();
    for tag in 0..32 {
        let r = Range { write: true, asid: 2, va: 0x1000 * PAGE, len: 16 * PAGE, tag, ..Range::default() };
        t.queue[1 + usize::from(tag) % 2].push_back(r);
    }
    let begin = t.m.cycles();
    while t.answers.len() < 32 {
        t.step();
    }
    let blocks = t.m.cycles() - begin;
    let begin = t.m.cycles();
    t.lookups[0].push_back((2, 0x1000));
    while t.pages[0].is_empty() {
        t.step();
    }
    let look = t.m.cycles() - begin;
    println!("{MANY} pages alone: {single} cycles; 32 blocks of 16 pages: {blocks}; a look-up: {look}");
    assert!(single <= MANY + 8 && blocks <= 512 + 8 && look <= 4);
}
