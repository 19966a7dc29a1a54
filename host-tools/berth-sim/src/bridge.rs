// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An end of the wire that leads out of the simulator: to a TAP interface, or to UNIX sockets with one frame a message.
//!
//! To the clocks ([`crate::time`]) a bridge is a card that never has work and no timer: it holds up no card, and frames
//! from outside enter the wire at the present time of the clock. To the wire it is an end like any other: frames of
//! both directions have its latency and its faults.
//!
//! Two threads: one is the wire's ([`Bridge::run`]), one (and one more for each program at the socket) waits for frames
//! from outside. The wire's never waits for the outside: a frame that a program or the host's network does not take at
//! once is dropped and counted, as a switch does. The other way round the outside waits for the wire. A socket for
//! datagrams holds few; before it stands a queue of the bridge's own, with a thread that waits.

use crate::capture::Capture;
use crate::link::{CardState, Link, Request, Step};
use crate::wire::Arrived;
use serde_json::{Value, json};
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{info, warn};

/// Shortest frame in bytes: an Ethernet header.
pub const SHORTEST: usize = 14;
/// Shorter frames from outside are filled up with zeros, as an adapter does.
pub const PADDED: usize = 60;
/// Longest frame in bytes that gets in. Cards take less, and count what is too long for them (`C_RX_OVERSIZED`).
pub const LONGEST: usize = 9216;
/// Programs that may be at a socket at the same time.
pub const PROGRAMS: usize = 16;
/// Frames that wait for a socket for datagrams.
pub const QUEUED: usize = 1024;

/// Where an end of the wire leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TAP interface of this machine; it is made if it is not there.
    Tap(String),
    /// A UNIX socket of type SEQPACKET, on which the simulator listens.
    Unix(PathBuf),
    /// A UNIX socket for datagrams, and where another program has one, as QEMU's `-netdev dgram` does.
    Datagram {
        /// The simulator's.
        own: PathBuf,
        /// The program's. It may come later, go, and come again.
        peer: PathBuf,
    },
}

/// A bridge as the command line says it, for example `b=unix:b.wire` or `b=tap:berth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Name of the end of the wire: a, b, …
    pub end: String,
    /// Where it leads.
    pub place: Place,
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USAGE: &str = "END=unix:PATH, END=tap:NAME or END=dgram:OWN,PEER, for example b=unix:b.wire";
        let (end, place) = text.split_once('=').ok_or(USAGE)?;
        let (kind, at) = place.split_once(':').ok_or(USAGE)?;
        let socket = |path: &str| match path.len() {
            0 => Err(USAGE.to_owned()),
            // One byte of a socket's address is the zero at its end.
            len if len >= socket_address().sun_path.len() => Err(format!("{path} is too long for a socket")),
            _ if path.contains('\0') => Err(USAGE.to_owned()),
            _ => Ok(PathBuf::from(path)),
        };
        let place = match kind {
            "unix" => Place::Unix(socket(at)?),
            "dgram" => {
                let (own, peer) = at.split_once(',').ok_or(USAGE)?;
                Place::Datagram { own: socket(own)?, peer: socket(peer)? }
            }
            "tap" if at.len() >= libc::IFNAMSIZ => {
                Err(format!("an interface's name has at most {} bytes", libc::IFNAMSIZ - 1))?
            }
            "tap" if !at.is_empty() && !at.contains(['/', '\0', ' ']) => Place::Tap(at.into()),
            _ => Err(USAGE)?,
        };
        Ok(Self { end: end.into(), place })
    }
}

/// Counts of frames that have passed a bridge, and of dropped ones.
#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    short: AtomicU64,
    long: AtomicU64,
    damaged: AtomicU64,
    dropped: AtomicU64,
    programs: AtomicU64,
    refused: AtomicU64,
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

#[derive(Debug)]
enum Outside {
    Tap(File),
    Unix { listener: UnixListener, programs: Mutex<Vec<Arc<UnixStream>>> },
    Datagram { socket: UnixDatagram, queue: SyncSender<Vec<u8>>, queued: Mutex<Receiver<Vec<u8>>> },
}

/// An end of a wire that leads out of the simulator.
#[derive(Debug)]
pub struct Bridge {
    /// Name of the end.
    pub name: String,
    /// Its wire.
    pub link: Arc<Link>,
    /// Which end of it.
    pub end: usize,
    place: Place,
    outside: Outside,
    // The interface, or the listening socket, is gone.
    lost: AtomicBool,
    counters: Counters,
}

impl Bridge {
    /// Opens the interface, or the socket, for end `end` of `link`.
    ///
    /// # Errors
    /// Why it cannot be opened, and what might help.
    pub fn open(spec: &Spec, link: Arc<Link>, end: usize) -> Result<Self, String> {
        let outside = match &spec.place {
            Place::Tap(name) => Outside::Tap(tap(name)?),
            Place::Unix(path) => {
                let listener = listen(path).map_err(|e| format!("{}: {e}", path.display()))?;
                Outside::Unix { listener, programs: Mutex::default() }
            }
            Place::Datagram { own, .. } => {
                let bind = || {
                    make_room(own)?;
                    UnixDatagram::bind(own)
                };
                let socket = bind().map_err(|e| format!("{}: {e}", own.display()))?;
                let (queue, queued) = sync_channel(QUEUED);
                Outside::Datagram { socket, queue, queued: Mutex::new(queued) }
            }
        };
        Ok(Self {
            name: spec.end.clone(),
            link,
            end,
            place: spec.place.clone(),
            outside,
            lost: AtomicBool::new(false),
            counters: Counters::default(),
        })
    }

    /// The wire's side, until the link is stopped. Frames from outside go to `capture` as its interface of that number.
    pub fn run(&self, capture: Option<(&Capture, u32)>) {
        let mut now = self.link.join(self.end, 0);
        loop {
            match self.link.next(self.end, CardState { now, idle: true, timer: None, host_room: true, rx_room: true }) {
                Step::Stop => return,
                Step::Run(to) | Step::Skip(to) => now = to,
                Step::Deliver(frame) => self.put(&frame),
                Step::Request { request, clock, .. } => {
                    now = clock;
                    if let Request::Frame(frame) = request {
                        let copy = capture.map(|_| frame.clone());
                        let sent = self.link.send(self.end, frame, now, now);
                        if let (Some((capture, interface)), Some(data)) = (capture, copy) {
                            capture.frame(interface, now, data, sent);
                        }
                    }
                }
            }
        }
    }

    // A frame for the outside.
    fn put(&self, Arrived { frame, damaged }: &Arrived) {
        let c = &self.counters;
        if *damaged {
            return count(&c.damaged, 1);
        }
        let all = match &self.outside {
            Outside::Tap(tap) => (&mut &*tap).write(frame).is_ok_and(|n| n == frame.len()),
            Outside::Unix { programs, .. } => {
                let programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
                let took = programs.iter().filter(|p| offer(p, frame)).count();
                took > 0 && took == programs.len()
            }
            Outside::Datagram { queue, .. } => match queue.try_send(frame.clone()) {
                Ok(()) => return,
                Err(_) => false,
            },
        };
        self.sent(frame.len(), all);
    }

    // A frame of so many bytes has been taken, or dropped.
    fn sent(&self, bytes: usize, taken: bool) {
        let c = &self.counters;
        if taken {
            count(&c.sent, 1);
            count(&c.sent_bytes, bytes as u64);
        } else {
            count(&c.dropped, 1);
        }
    }

    // A message from outside; its buffer has one byte more than the longest frame.
    fn got(&self, message: &[u8]) {
        let c = &self.counters;
        match message.len() {
            ..SHORTEST => return count(&c.short, 1),
            LONGEST.. if message.len() > LONGEST => return count(&c.long, 1),
            _ => (),
        }
        count(&c.received, 1);
        count(&c.received_bytes, message.len() as u64);
        let mut frame = message.to_vec();
        frame.resize(frame.len().max(PADDED), 0);
        self.link.wait_room(self.end);
        self.link.request(self.end, Request::Frame(frame));
    }

    /// The outside's side, for ever, or until the interface is gone.
    pub fn listen(self: &Arc<Self>) {
        let why = match &self.outside {
            Outside::Tap(tap) => self.take(|buffer| (&*tap).read(buffer), || false),
            Outside::Unix { listener, programs } => self.accept(listener, programs),
            Outside::Datagram { socket, .. } => {
                let bridge = self.clone();
                std::thread::spawn(move || bridge.pass_on());
                self.take(|buffer| socket.recv(buffer), || false)
            }
        };
        self.lost.store(true, Ordering::Relaxed);
        warn!(end = self.name, "bridge: {why}; nothing comes from there any more");
    }

    // Sends queued frames as datagrams, each when the peer has room for it. Without a peer they are dropped.
    fn pass_on(&self) {
        let (Outside::Datagram { socket, queued, .. }, Place::Datagram { peer, .. }) = (&self.outside, &self.place)
        else {
            return;
        };
        let queued = queued.lock().unwrap_or_else(PoisonError::into_inner);
        for frame in &*queued {
            self.sent(frame.len(), socket.send_to(&frame, peer).is_ok());
        }
    }

    // Takes messages until an error, or until an empty one if then `ended`.
    fn take(&self, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>, ended: impl Fn() -> bool) -> io::Error {
        let mut buffer = [0; LONGEST + 1];
        loop {
            match read(&mut buffer) {
                Ok(0) if ended() => return io::ErrorKind::UnexpectedEof.into(),
                Ok(n) => self.got(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => return e,
            }
        }
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener, programs: &Mutex<Vec<Arc<UnixStream>>>) -> io::Error {
        loop {
            let program = match listener.accept() {
                Ok((program, _)) => Arc::new(program),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return e,
            };
            let mut all = programs.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= PROGRAMS {
                // Dropping it closes it.
                count(&self.counters.refused, 1);
                warn!(end = self.name, "bridge: {PROGRAMS} programs are at the socket; one more is refused");
                continue;
            }
            all.push(program.clone());
            drop(all);
            count(&self.counters.programs, 1);
            info!(end = self.name, "bridge: a program has come");
            let bridge = self.clone();
            std::thread::spawn(move || {
                let why = bridge.take(|buffer| (&*program).read(buffer), || hung_up(&program));
                info!(end = bridge.name, "bridge: a program has gone: {why}");
                if let Outside::Unix { programs, .. } = &bridge.outside {
                    let mut all = programs.lock().unwrap_or_else(PoisonError::into_inner);
                    all.retain(|p| !Arc::ptr_eq(p, &program));
                }
            });
        }
    }

    /// What has passed it.
    pub fn report(&self) -> Value {
        let c = &self.counters;
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (kind, at) = match &self.place {
            Place::Tap(name) => ("tap", name.clone()),
            Place::Unix(path) => ("unix", path.display().to_string()),
            Place::Datagram { own, peer } => ("dgram", format!("{},{}", own.display(), peer.display())),
        };
        let here = match &self.outside {
            Outside::Tap(_) | Outside::Datagram { .. } => Value::Null,
            Outside::Unix { programs, .. } => json!(programs.lock().unwrap_or_else(PoisonError::into_inner).len()),
        };
        json!({
            "name": self.name, "to": format!("{kind}:{at}"), "lost": self.lost.load(Ordering::Relaxed),
            "sent": n(&c.sent), "sent_bytes": n(&c.sent_bytes), "dropped": n(&c.dropped), "damaged": n(&c.damaged),
            "received": n(&c.received), "received_bytes": n(&c.received_bytes), "short": n(&c.short), "long": n(&c.long),
            "programs": here, "programs_so_far": n(&c.programs), "refused": n(&c.refused),
        })
    }

    /// Removes what it has left in the file system.
    pub fn clean(&self) {
        if let Place::Unix(path) | Place::Datagram { own: path, .. } = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}

// Gives a program a frame if it takes it at once.
fn offer(program: &UnixStream, frame: &[u8]) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the descriptor is open, and the frame lives as long as the call, which only reads it.
    let sent = unsafe { libc::send(program.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
    usize::try_from(sent).is_ok_and(|n| n == frame.len())
}

// An empty message looks like the end.
fn hung_up(program: &UnixStream) -> bool {
    let mut poll = libc::pollfd { fd: program.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, which lives as long as the call.
    let n = unsafe { libc::poll(&raw mut poll, 1, 0) };
    n != 0
}

fn socket_address() -> libc::sockaddr_un {
    libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] }
}

// The value that a call gave, or why it gave none.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

// Removes a socket that a killed simulator has left at `path`.
fn make_room(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

// Listens at `path`.
fn listen(path: &Path) -> io::Result<UnixListener> {
    make_room(path)?;
    let mut address = socket_address();
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as _;
    }
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: makes a new descriptor; the address lives as long as the call and has the stated length.
    unsafe {
        let socket =
            OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0))?);
        checked(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len))?;
        checked(libc::listen(socket.as_raw_fd(), PROGRAMS as c_int))?;
        Ok(socket.into())
    }
}

// Attaches to a TAP interface, or makes it.
fn tap(name: &str) -> Result<File, String> {
    const DEVICE: &str = "/dev/net/tun";
    let tap = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|e| format!("{DEVICE}: {e}"))?;
    // SAFETY: plain data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as _;
    // SAFETY: the request is what TUNSETIFF reads and writes, and lives as long as the call.
    let done = checked(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) });
    match done {
        Ok(_) => Ok(tap),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "interface {name}: {e}; it needs CAP_NET_ADMIN, or an interface made for this user: \
             ip tuntap add dev {name} mode tap user NAME"
        )),
        Err(e) => Err(format!("interface {name}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_are_read_from_the_command_line() {
        let spec = |text: &str| text.parse::<Spec>();
        assert_eq!(spec("b=unix:/run/b"), Ok(Spec { end: "b".into(), place: Place::Unix("/run/b".into()) }));
        assert_eq!(spec("b=tap:berth0"), Ok(Spec { end: "b".into(), place: Place::Tap("berth0".into()) }));
        let place = Place::Datagram { own: "/run/b".into(), peer: "c".into() };
        assert_eq!(spec("b=dgram:/run/b,c"), Ok(Spec { end: "b".into(), place }));
        for wrong in [
            "",
            "b",
            "b=",
            "b=unix",
            "b=unix:",
            "b=tap:",
            "b=tap:a/b",
            "b=udp:1",
            "b=dgram:a",
            "b=dgram:a,",
            "b=dgram:,a",
        ] {
            assert!(spec(wrong).unwrap_err().contains("END=unix:PATH"), "{wrong}");
        }
        assert!(spec("b=tap:an_interface_name").unwrap_err().contains("15 bytes"));
        assert!(spec(&format!("b=unix:{}", "x".repeat(108))).unwrap_err().contains("too long"));
        assert!(spec(&format!("b=dgram:a,{}", "x".repeat(108))).unwrap_err().contains("too long"));
    }
}
