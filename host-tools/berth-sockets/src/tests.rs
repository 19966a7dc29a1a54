// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same random program of socket calls, at a connection of the kernel's TCP and at one that a [`Pipe`] carries at each end,
//! over a stand-in for the cards: results, errors and bytes must be equal.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use berth_random::{Rng, cases, seed};

use crate::channel::{Channel, Message};
use crate::next;
use crate::pipe::{End, Pipe};
use crate::sys::{self, Door, Fd, Poller};

/// A message: its bytes, or the end; and whether they are the program's own memory.
type Sent = (Option<Vec<u8>>, bool);

/// Both directions of a connection between two stand-ins, each with what is under way.
#[derive(Default)]
struct Wire {
    ways: [VecDeque<Sent>; 2],
    /// Bytes of the program's memory that have come, by who has sent them.
    placed: [u64; 2],
    over: bool,
}

/// An end of it.
struct Fake {
    wire: Arc<Mutex<Wire>>,
    end: usize,
    /// Messages that may be under way.
    credits: usize,
    room: Vec<u8>,
    front: Option<Option<Vec<u8>>>,
}

impl Fake {
    fn pair(rng: &mut Rng) -> [Self; 2] {
        let wire = Arc::new(Mutex::new(Wire::default()));
        [0, 1].map(|end| Self {
            wire: Arc::clone(&wire),
            end,
            credits: 1 + rng.below(5) as usize,
            room: vec![0; 1 + rng.below(5000) as usize],
            front: None,
        })
    }

    /// Takes what has come.
    fn take(&mut self) {
        if self.front.is_none() {
            let mut wire = self.wire.lock().unwrap();
            let Some((data, direct)) = wire.ways[1 - self.end].pop_front() else { return };
            wire.placed[1 - self.end] += data.as_ref().filter(|_| direct).map_or(0, |data| data.len() as u64);
            self.front = Some(data);
        }
    }

    fn has_room(&self) -> bool {
        let wire = self.wire.lock().unwrap();
        !wire.over && wire.ways[self.end].len() < self.credits
    }
}

impl Channel for Fake {
    fn room(&mut self) -> Option<&mut [u8]> {
        self.has_room().then_some(&mut self.room)
    }

    fn send(&mut self, len: usize) {
        self.wire.lock().unwrap().ways[self.end].push_back((Some(self.room[..len].to_vec()), false));
    }

    unsafe fn send_from(&mut self, address: usize, len: usize) -> usize {
        if !self.has_room() {
            return 0;
        }
        let len = len.min(self.room.len());
        // SAFETY: as our caller's.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
        self.wire.lock().unwrap().ways[self.end].push_back((Some(bytes.to_vec()), true));
        len
    }

    fn placed(&self) -> u64 {
        self.wire.lock().unwrap().placed[self.end]
    }

    fn send_end(&mut self) -> bool {
        let room = self.has_room();
        if room {
            self.wire.lock().unwrap().ways[self.end].push_back((None, false));
        }
        room
    }

    fn send_left(&mut self) {}

    fn is_acknowledged(&self) -> bool {
        self.wire.lock().unwrap().ways[self.end].is_empty()
    }

    fn front(&self) -> Option<Message<'_>> {
        Some(match self.front.as_ref()? {
            Some(data) => Message::Data(data),
            None => Message::End,
        })
    }

    fn drop_front(&mut self) {
        self.front = None;
        self.take();
    }

    fn is_over(&self) -> bool {
        let wire = self.wire.lock().unwrap();
        wire.over && wire.ways[1 - self.end].is_empty()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.wire.lock().unwrap().over = true;
    }
}

/// Carries a connection until both its ends have ended, or `stop`.
fn carry(sockets: [Fd; 2], fakes: [Fake; 2], stop: &AtomicBool) -> [Option<End>; 2] {
    let poller = Poller::new().unwrap();
    let mut ends = [None; 2];
    let mut pipes = [(); 2].map(|()| None);
    for (n, (socket, fake)) in sockets.into_iter().zip(fakes).enumerate() {
        poller.add(socket.as_raw_fd(), n as u64, true).unwrap();
        pipes[n] = Some(Pipe::new(socket, fake));
    }
    let mut failed = [false; 2];
    while pipes.iter().any(Option::is_some) && !stop.load(Ordering::Relaxed) {
        for n in 0..2 {
            let Some(pipe) = &mut pipes[n] else { continue };
            pipe.channel.take();
            ends[n] = pipe.run(failed[n]);
            if ends[n].is_some() {
                pipes[n] = None;
            }
        }
        for happened in poller.wait(Some(Duration::from_millis(1))) {
            failed[happened.token as usize] |= happened.error;
        }
    }
    ends
}

/// A connection within the host: the program's end, and the library's.
fn inside() -> (Fd, Fd) {
    let door = Door::open().unwrap();
    let (socket, port) = sys::visitor(Ipv4Addr::LOCALHOST).unwrap();
    let _ = sys::connect(&socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, door.port));
    let other = door.enter(port).unwrap();
    (socket, other)
}

/// Answers a call as text: its result, or its error.
fn said(result: io::Result<usize>) -> String {
    match result {
        Ok(n) => n.to_string(),
        Err(error) => format!("errno {}", error.raw_os_error().unwrap()),
    }
}

/// Waits until a socket has one of these events; its readiness then.
fn ready(fd: RawFd, events: i16) {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { next::poll(&raw mut poll, 1, -1) };
}

fn waiting(fd: RawFd) -> usize {
    sys::waiting(fd).unwrap()
}

/// An end of the connection in the random program.
struct Side {
    socket: Option<Fd>,
    /// Bytes that the peer has sent and that were not read here.
    unread: usize,
    /// It has ended its direction.
    ended: bool,
    /// Bytes that it has sent: their values follow from their number.
    sent: usize,
    read: usize,
}

/// Bytes of a side's stream.
fn bytes(side: usize, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n % 251) as u8 ^ (side as u8 * 0x55)).collect()
}

/// Runs the program of a seed at the two ends of a connection; what its calls said.
fn program(rng: &mut Rng, sockets: [Fd; 2]) -> Vec<String> {
    let mut sides = sockets.map(|socket| Side { socket: Some(socket), unread: 0, ended: false, sent: 0, read: 0 });
    let mut log = Vec::new();
    for _ in 0..60 {
        let side = rng.below(2) as usize;
        let (first, second) = sides.split_at_mut(1);
        let (me, peer) = if side == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        let Some(socket) = &me.socket else { continue };
        let fd = socket.as_raw_fd();
        match rng.below(12) {
            // As much as fits into the buffers of any system, so that it never waits for the peer.
            0..4 if !me.ended && peer.unread < 60_000 => {
                let len = match rng.below(3) {
                    0 => 1 + rng.below(10) as usize,
                    1 => 1 + rng.below(3000) as usize,
                    _ => 1 + rng.below(30_000) as usize,
                };
                let result = sys::send(socket, &bytes(side, me.sent, len));
                if let Ok(n) = result {
                    me.sent += n;
                    peer.unread += n;
                }
                log.push(format!("{side} send {len}: {}", said(result)));
            }
            4..7 if me.unread > 0 => {
                let most = (1 + rng.below(me.unread as u64 * 2)) as usize;
                let len = most.min(me.unread);
                let mut got: Vec<u8> = Vec::new();
                while got.len() < len {
                    ready(fd, libc::POLLIN);
                    let mut into = vec![0; len - got.len()];
                    let n = sys::receive(socket, &mut into).unwrap();
                    got.extend(&into[..n]);
                }
                assert_eq!(got, bytes(1 - side, me.read, len), "bytes of {}", 1 - side);
                me.unread -= len;
                me.read += len;
                log.push(format!("{side} receive {len}"));
            }
            7 if me.unread > 0 => {
                while waiting(fd) < me.unread {
                    thread::yield_now();
                }
                let mut into = vec![0; me.unread];
                // SAFETY: room for so many bytes.
                let n = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_PEEK) };
                log.push(format!("{side} has {} and peeks {n}", waiting(fd)));
            }
            8 if me.unread == 0 && !peer.ended && peer.socket.is_some() => {
                log.push(format!("{side} receives nothing: {}", said(sys::receive(socket, &mut [0; 4]))));
            }
            9 if me.unread == 0 && peer.ended => {
                ready(fd, libc::POLLIN);
                log.push(format!("{side} end: {}", said(sys::receive(socket, &mut [0; 4]))));
            }
            10 if !me.ended && rng.below(3) == 0 => {
                sys::end(socket);
                me.ended = true;
                log.push(format!("{side} ends; then {}", said(sys::send(socket, b"x"))));
            }
            11 if rng.below(3) == 0 => {
                // What its close does depends on what has come.
                while waiting(fd) < me.unread {
                    thread::yield_now();
                }
                let resets = me.unread > 0 || rng.below(4) == 0;
                if resets {
                    // So that nothing is under way that a reset may overtake.
                    let other = peer.socket.as_ref().map(|socket| socket.as_raw_fd());
                    while other.is_some_and(|other| waiting(other) < peer.unread) {
                        thread::yield_now();
                    }
                    if let (true, Some(other)) = (me.ended, other) {
                        ready(other, libc::POLLRDHUP);
                    }
                    if me.unread == 0 {
                        sys::break_at_close(socket);
                    }
                }
                me.socket = None;
                log.push(format!("{side} closes, resets: {resets}"));
                let Some(other) = &peer.socket else { break };
                aftermath(&mut log, 1 - side, other, peer, resets);
                break;
            }
            _ => {}
        }
    }
    log
}

/// What the end that is left finds.
fn aftermath(log: &mut Vec<String>, side: usize, socket: &Fd, me: &Side, resets: bool) {
    let fd = socket.as_raw_fd();
    if resets {
        // The error, or the end that came before it.
        ready(fd, 0);
    }
    let mut left = me.unread;
    while left > 0 {
        let mut into = vec![0; left];
        let n = sys::receive(socket, &mut into).or_else(|error| {
            ready(fd, libc::POLLIN);
            if error.kind() == io::ErrorKind::WouldBlock { sys::receive(socket, &mut into) } else { Err(error) }
        });
        let n = n.unwrap();
        assert!(n > 0);
        left -= n;
    }
    ready(fd, libc::POLLIN);
    log.push(format!("{side} then {}", said(sys::receive(socket, &mut [0; 4]))));
    log.push(format!("{side} then {}", said(sys::receive(socket, &mut [0; 4]))));
    if !resets && !me.ended {
        // The closed end answers the first bytes with a reset.
        log.push(format!("{side} sends {}", said(sys::send(socket, b"x"))));
        ready(fd, 0);
    }
    log.push(format!("{side} sends {}", said(sys::send(socket, b"x"))));
    log.push(format!("{side} sends {}", said(sys::send(socket, b"x"))));
    log.push(format!("{side} then {}", said(sys::receive(socket, &mut [0; 4]))));
}

#[test]
fn ap_3_bytes_of_the_programs_memory_come_in_their_turn_and_without_a_copy() {
    let mut rng = Rng(seed(1));
    let ((a, at_a), (b, at_b)) = (inside(), inside());
    let [fake_a, fake_b] = Fake::pair(&mut rng);
    let (mut from, mut to) = (Pipe::new(at_a, fake_a), Pipe::new(at_b, fake_b));
    let memory = bytes(0, 100, 50_000);
    assert_eq!(sys::send(&a, &bytes(0, 0, 100)).unwrap(), 100);
    ready(from.socket_number(), libc::POLLIN);
    let (mut begun, mut taken, mut got) = (false, None, Vec::new());
    while got.len() < 50_200 {
        to.channel.take();
        assert_eq!((from.run(false), to.run(false)), (None, None));
        if !begun {
            // SAFETY: the memory lasts to the end of the test.
            begun = unsafe { from.send_from(memory.as_ptr() as usize, memory.len()) };
            // SAFETY: as above.
            assert!(!begun || !unsafe { from.send_from(memory.as_ptr() as usize, 1) }, "one at a time");
            if begun {
                sys::send(&a, &bytes(0, 50_100, 100)).unwrap();
            }
        }
        if let Some(n) = from.taken_from() {
            from.told_taken();
            taken = Some(n);
        }
        let mut into = [0; 4096];
        let n = sys::receive(&b, &mut into).unwrap_or(0);
        got.extend(&into[..n]);
    }
    assert_eq!((got, taken), (bytes(0, 0, 50_200), Some(50_000)));
    assert_eq!((from.sent, from.channel.placed()), (200, 50_000));

    // SAFETY: as above.
    assert!(unsafe { from.send_from(memory.as_ptr() as usize, memory.len()) });
    assert_eq!(from.run(false), None);
    to.channel.take();
    drop(to);
    assert_eq!(from.run(false), Some(End::Lost), "the peer has gone");
    assert!(from.taken_from().unwrap() < memory.len());
}

#[test]
fn ap_3_a_random_program_finds_the_same_over_berth_as_over_tcp() {
    let seed = seed(1);
    for case in 0..cases(60) {
        let of = |n: u64| Rng(seed.wrapping_mul(1000).wrapping_add(case).wrapping_mul(2).wrapping_add(n));
        let (a, b) = inside();
        let tcp = program(&mut of(0), [a, b]);
        let ((a, at_a), (b, at_b)) = (inside(), inside());
        let fakes = Fake::pair(&mut of(1));
        let stop = AtomicBool::new(false);
        let berth = thread::scope(|scope| {
            let carrier = scope.spawn(|| carry([at_a, at_b], fakes, &stop));
            let berth = program(&mut of(0), [a, b]);
            stop.store(true, Ordering::Relaxed);
            carrier.join().unwrap();
            berth
        });
        assert_eq!(tcp, berth, "BERTH_SEED={seed}, case {case}");
    }
}
