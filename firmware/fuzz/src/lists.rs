// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ends of two credit connections on one control connection, over any carrier, under an arbitrary schedule of
//! posts, losses, duplicates, reordering, recalls and time. The peer of the first connection may lie. The second never
//! notices: every credit is used once, for the receive that it stands for, and all data arrives.

use std::collections::VecDeque;

use berth_protocol::credit::announcer::{Heard, Options};
use berth_protocol::credit::carrier::{
    Carry, Fetch, Messages, Reverse, SharedControl, SharedReader, SharedWriter, TcpOptions, Unit, Window, WindowWriter,
};
use berth_protocol::credit::entry::{Body, Entry, Name, Part};
use berth_protocol::credit::mux::{Mux, Received};
use berth_protocol::credit::policy::{Cap, Kind, Settings};
use berth_protocol::credit::taker::Arrived;

use crate::input::Input;

const LIST: usize = 8;
const CONNECTIONS: usize = 2;
/// Bytes that each connection has to send each way.
const BYTES: u32 = 3000;
/// Rounds without faults after which all must be over.
const PATIENCE: u32 = 20_000;

type Control = Mux<CONNECTIONS, 16, LIST, 32>;

fn name(end: usize, connection: usize) -> Name {
    Name { qpn: (100 * end + connection) as u32, epoch: 7000 + end as u32 }
}

/// Memory that the two processes of a host share, for one direction.
type Ring = SharedControl<32>;

/// Options of two TCP connections, each of which carries what belongs to it: a unit's offset says which.
#[derive(Clone)]
struct Segments([TcpOptions<LIST>; CONNECTIONS]);

impl Segments {
    /// Towards the end `to`.
    fn new(to: usize) -> Self {
        // Beside a time stamp.
        Self(std::array::from_fn(|c| TcpOptions::new(name(to, c), 12).expect("it fits")))
    }
}

impl Carry<LIST> for Segments {
    fn part(&self) -> u32 {
        self.0[0].part()
    }

    fn put(&mut self, entry: &Entry<LIST>) -> bool {
        self.0[entry.to.qpn as usize % CONNECTIONS].put(entry)
    }

    fn unit(&mut self, out: &mut [u8]) -> Option<Unit> {
        let (c, unit) = (0..).zip(&mut self.0).find_map(|(c, options)| Some((c, options.unit(out)?)))?;
        Some(Unit { offset: c, ..unit })
    }
}

impl Fetch<LIST> for Segments {
    fn deliver(&mut self, offset: u32, bytes: &[u8]) -> bool {
        self.0[offset as usize % CONNECTIONS].deliver(0, bytes)
    }

    fn get(&mut self) -> Option<Entry<LIST>> {
        self.0.iter_mut().find_map(Fetch::get)
    }
}

/// One direction of the control path.
struct Path<'a> {
    carry: Box<dyn Carry<LIST> + 'a>,
    fetch: Box<dyn Fetch<LIST> + 'a>,
    /// The medium keeps order and has one reader.
    ordered: bool,
    waiting: Option<Entry<LIST>>,
    units: VecDeque<(u32, Vec<u8>)>,
}

/// Carriers (CR-12).
const CARRIERS: u8 = 5;

impl<'a> Path<'a> {
    /// Towards the end `to`, over the carrier `kind`; shared memory uses `ring`.
    fn new(kind: u8, to: usize, ring: &'a Ring) -> Self {
        let (carry, fetch): (Box<dyn Carry<LIST> + 'a>, Box<dyn Fetch<LIST> + 'a>) = match kind {
            0 => (Box::new(Messages::new()), Box::new(Messages::new())),
            1 => {
                let end = Reverse::new(256, false).expect("it fits");
                (Box::new(end.clone()), Box::new(end))
            }
            2 => (Box::new(WindowWriter::<2, 16>::new()), Box::new(Window::<2, 16>::new())),
            3 => (Box::new(SharedWriter::new(ring)), Box::new(SharedReader::new(ring))),
            _ => (Box::new(Segments::new(to)), Box::new(Segments::new(to))),
        };
        Self { carry, fetch, ordered: kind == 2, waiting: None, units: VecDeque::new() }
    }
}

struct Ends<'a> {
    muxes: [Control; 2],
    /// Towards the other end.
    paths: [Path<'a>; 2],
    /// Pieces on their way to the other end: (number, size).
    pieces: [[VecDeque<(u32, u32)>; CONNECTIONS]; 2],
    left: [[u32; CONNECTIONS]; 2],
    /// Receives that are credits, oldest first, and those that are to be posted again.
    posted: [[VecDeque<(u32, u32)>; CONNECTIONS]; 2],
    again: [[VecDeque<u32>; CONNECTIONS]; 2],
    /// The first connection's peers have lied.
    lied: bool,
    now: u64,
}

impl Ends<'_> {
    fn post(&mut self, end: usize, c: usize, size: Option<u32>) {
        self.again[end][c].extend(size);
        let Some(port) = self.muxes[end].port(c) else { return };
        while !port.announcer.recalling()
            && let Some(size) = self.again[end][c].front()
            && let Some(number) = port.announcer.post(*size)
        {
            self.posted[end][c].push_back((number, *size));
            self.again[end][c].pop_front();
        }
        port.announcer.commit();
    }

    /// What the end has to say goes to its carrier and from there to the medium.
    fn talk(&mut self, end: usize) -> bool {
        let path = &mut self.paths[end];
        let mut busy = false;
        for _ in 0..64 {
            let Some(entry) = path.waiting.take().or_else(|| self.muxes[end].poll(self.now)) else { break };
            busy = true;
            if !path.carry.put(&entry) {
                path.waiting = Some(entry);
                break;
            }
        }
        let mut bytes = [0; 512];
        while let Some(unit) = path.carry.unit(&mut bytes) {
            busy = true;
            path.units.push_back((unit.offset, bytes[..unit.len].to_vec()));
        }
        busy
    }

    fn deliver(&mut self, from: usize, i: usize) {
        let path = &mut self.paths[from];
        let i = if path.ordered { 0 } else { i % path.units.len().max(1) };
        // Shared memory has no units to deliver: what was written is read below.
        if let Some((offset, bytes)) = path.units.remove(i) {
            assert!(path.fetch.deliver(offset, &bytes));
        }
        while let Some(entry) = self.paths[from].fetch.get() {
            self.take(1 - from, &entry);
        }
    }

    fn take(&mut self, end: usize, entry: &Entry<LIST>) {
        let Some(c) = self.muxes[end].find(entry.to.qpn) else { panic!("no such connection: {entry:?}") };
        let received = self.muxes[end].receive(entry);
        let honest = c == 1 || !self.lied;
        match received {
            Received::Receipt(Heard::Voided(first)) => {
                while let Some((number, size)) = self.posted[end][c].pop_back() {
                    if (number.wrapping_sub(first) as i32) < 0 {
                        self.posted[end][c].push_back((number, size));
                        break;
                    }
                    self.again[end][c].push_front(size);
                }
                self.post(end, c, None);
            }
            Received::UnknownQpn
            | Received::Credits(Arrived::WrongEpoch | Arrived::Overflow | Arrived::Early | Arrived::Bad)
            | Received::Receipt(Heard::WrongEpoch | Heard::Bad) => {
                assert!(!honest, "{received:?} {entry:x?}");
            }
            _ => (),
        }
    }

    fn send(&mut self, end: usize, c: usize) {
        let left = &mut self.left[end][c];
        let Some(port) = self.muxes[end].port(c) else { return };
        if *left > 0
            && let Some((len, number, size)) = port.taker.take(*left)
        {
            assert!(len <= size, "no more than the credit");
            *left -= len;
            self.pieces[end][c].push_back((number, size));
        }
    }

    fn land(&mut self, from: usize, c: usize) {
        let Some((number, size)) = self.pieces[from][c].pop_front() else { return };
        let end = 1 - from;
        let Some(port) = self.muxes[end].port(c) else { return };
        let landed = port.announcer.landed(self.now, Some(self.left[from][c]));
        let receive = if landed { self.posted[end][c].pop_front() } else { None };
        if c == 1 || !self.lied {
            assert_eq!(receive, Some((number, size)), "a credit is used once, for its receive");
        }
    }

    fn schedule(&mut self, input: &mut Input) {
        while !input.is_empty() {
            let choice = input.byte();
            let (end, c, how) = (usize::from(choice >> 7), usize::from(choice >> 6 & 1), usize::from(choice >> 4 & 3));
            match choice & 15 {
                0 | 1 => {
                    let size = 1 + input.below(300);
                    self.post(end, c, Some(size));
                }
                2 | 3 => {
                    self.talk(end);
                }
                4..=6 => self.deliver(end, how),
                7 => drop(self.paths[end].units.pop_front()),
                8 => {
                    let path = &mut self.paths[end];
                    if !path.ordered
                        && let Some(first) = path.units.front().cloned()
                    {
                        path.units.push_front(first);
                    }
                }
                9 | 10 => self.send(end, c),
                11 | 12 => self.land(end, c),
                13 => self.now += u64::from(input.u16()),
                14 => match (how, self.muxes[end].port(c)) {
                    (0, Some(port)) => {
                        port.announcer.recall(1 + u32::from(choice & 3));
                    }
                    (1, Some(port)) => {
                        port.announcer.recall_bytes(input.below(500));
                    }
                    (2, _) => self.muxes[end].resync(),
                    (_, Some(port)) => {
                        port.taker.process();
                    }
                    _ => (),
                },
                _ => {
                    // A lie about the first connection.
                    let (round, number) = (input.byte() & 3, u32::from(input.byte()).wrapping_sub(8));
                    let body = match input.byte() % 6 {
                        0 => Body::Recall { round, first: number },
                        1 => Body::Recalled { round, first: number },
                        2 => Body::Sync { round, next: number },
                        _ => {
                            let [total, offset, len] = [0; 3].map(|_: u8| input.byte() % 10);
                            let sizes = std::array::from_fn(|i| if i < usize::from(len) { 50 } else { 0 });
                            Body::List(Part { round, list: number, total, offset, len, sizes })
                        }
                    };
                    self.lied = true;
                    self.take(end, &Entry { to: name(end, 0), body });
                }
            }
        }
    }

    /// From here on nothing is lost: all must arrive.
    fn finish(&mut self) {
        for round in 0..PATIENCE {
            let first = usize::from(self.lied);
            if (first..CONNECTIONS).all(|c| (0..2).all(|e| self.left[e][c] == 0 && self.pieces[e][c].is_empty())) {
                return;
            }
            for end in 0..2 {
                for c in 0..CONNECTIONS {
                    if self.again[end][c].is_empty() {
                        self.post(end, c, Some(1 + round % 290));
                    }
                    self.post(end, c, None);
                }
                self.talk(end);
                self.deliver(end, 0);
                while !self.paths[end].units.is_empty() {
                    self.deliver(end, 0);
                }
                for c in 0..CONNECTIONS {
                    if let Some(port) = self.muxes[end].port(c) {
                        port.taker.process();
                    }
                    self.send(end, c);
                    self.land(end, c);
                }
            }
            let wanted = self.muxes.iter().filter_map(|mux| mux.deadline(self.now)).min();
            self.now = wanted.unwrap_or(0).clamp(self.now + 1, self.now + 100_000);
        }
        panic!("no end: {:?} left", self.left);
    }
}

/// The first bytes choose carrier, policy and cap, the others the schedule.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let carrier = input.byte();
    let kinds = [
        Kind::First,
        Kind::Last,
        Kind::Between(2),
        Kind::Quarters(2),
        Kind::Adaptive,
        Kind::Timed,
        Kind::Predictive,
        Kind::InBand,
    ];
    let kind = kinds[usize::from(input.byte()) % kinds.len()];
    let cap = input.byte();
    let cap = (cap > 127).then(|| Cap::new(1_000_000, 1_000_000, u32::from(cap)));
    let rings = [Ring::new(), Ring::new()];
    let paths = [Path::new(carrier % CARRIERS, 1, &rings[0]), Path::new(carrier / CARRIERS % CARRIERS, 0, &rings[1])];
    let mut muxes = [Control::new(), Control::new()];
    for (end, mux) in muxes.iter_mut().enumerate() {
        let part = paths[end].carry.part();
        let options = Options { max_list: 8, part, repeat: 500, policy: Settings::of(kind), cap, ..Options::default() };
        for c in 0..CONNECTIONS {
            mux.open(0, name(end, c), name(1 - end, c), &options).expect("there is room");
        }
    }
    let mut ends = Ends {
        muxes,
        paths,
        pieces: Default::default(),
        left: [[BYTES; CONNECTIONS]; 2],
        posted: Default::default(),
        again: Default::default(),
        lied: false,
        now: 0,
    };
    ends.schedule(&mut input);
    ends.finish();
}

/// Any bytes as options of a TCP segment, and as units of the other carriers.
pub fn nonsense(data: &[u8]) {
    let mut input = Input::new(data);
    let offset = input.u16();
    let rest = input.rest();
    let mut fetches: [Box<dyn Fetch<LIST>>; 4] = [
        Box::new(TcpOptions::<LIST>::new(name(0, 0), 0).expect("it fits")),
        Box::new(Reverse::<LIST>::new(256, false).expect("it fits")),
        Box::new(Messages::new()),
        Box::new(Window::<2, 16>::new()),
    ];
    for fetch in &mut fetches {
        fetch.deliver(u32::from(offset), rest);
        for _ in 0..100 {
            let Some(entry) = fetch.get() else { break };
            let mut words = [0; 32];
            assert_eq!(entry.encode(&mut words), Some(entry.words()), "what is taken is sound");
        }
        assert!(fetch.get().is_none(), "it comes to an end");
    }
}
