// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process has of this library, and what `fork` and `exit` make of it.
//!
//! The thread and the card are not a child's. Its sockets are: those that are connected go on as long as the process that
//! has the card for them. Of the listeners it has inherited it takes care when its parent has ended.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::card::Card;
use crate::carrier::{Answer, Asked, Command, Handle};
use crate::descriptors::Set;
use crate::names::{self, Ports};
use crate::rules;
use crate::sys;

/// The carrier of this process; null before it is started.
static HANDLE: AtomicPtr<Handle> = AtomicPtr::new(null_mut());
/// A thread starts it.
static STARTING: AtomicBool = AtomicBool::new(false);
/// This process, as of its first thread.
static PID: AtomicI32 = AtomicI32::new(0);
/// The parent whose listeners this process has inherited; 0 if it has none, or takes care of them.
static PARENT: AtomicI32 = AtomicI32::new(0);
/// The program's listeners whose ports are listened to here, or by a parent.
static LISTENERS: Set = Set::new();
/// Most listeners that a child can take care of.
const INHERITED: usize = 64;
/// Where they are: 0, or a port and behind it an address.
static TARGETS: [AtomicU64; INHERITED] = [const { AtomicU64::new(0) }; INHERITED];

/// How long peers may take for what was sent by a process that has ended.
const FINISH: Duration = Duration::from_secs(60);

fn pack(target: SocketAddrV4) -> u64 {
    u64::from(target.port()) << 32 | u64::from(u32::from(*target.ip()))
}

fn unpack(word: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(word as u32), (word >> 32) as u16)
}

/// When the library is loaded.
pub fn begin() {
    PID.store(pid(), Ordering::Relaxed);
    // A child finds them read.
    rules::read();
    // Without it Berth carries nothing, see `start`.
    let _ = names::create();
    // SAFETY: the function is fit for a child of a process with threads.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

fn pid() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { libc::getpid() }
}

/// In a child: whatever was the parent's thread's is left as it is, and its descriptors are closed.
extern "C" fn forked() {
    HANDLE.store(null_mut(), Ordering::Relaxed);
    STARTING.store(false, Ordering::Relaxed);
    sys::close_all();
    let parent = PID.swap(pid(), Ordering::Relaxed);
    if TARGETS.iter().any(|target| target.load(Ordering::Relaxed) != 0) {
        PARENT.store(parent, Ordering::Relaxed);
    }
}

/// The carrier, if there is one.
fn handle() -> Option<&'static Handle> {
    // SAFETY: what is stored there is never freed.
    unsafe { HANDLE.load(Ordering::Acquire).as_ref() }
}

/// The carrier; `None` if it cannot be started, or the host has no card.
fn start() -> Option<&'static Handle> {
    loop {
        if let Some(handle) = handle() {
            return Some(handle);
        }
        if !Card::is_there() {
            return None;
        }
        if !STARTING.swap(true, Ordering::Acquire) {
            let started = names::create().and_then(|()| Handle::start());
            if let Ok(handle) = &started {
                HANDLE.store(Arc::into_raw(Arc::clone(handle)).cast_mut(), Ordering::Release);
            }
            STARTING.store(false, Ordering::Release);
            return started.ok().and(handle());
        }
        thread::yield_now();
    }
}

/// Listens for a listener of the program.
pub fn listen(fd: i32, target: SocketAddrV4) {
    LISTENERS.insert(fd);
    let Some(handle) = start() else { return };
    let word = pack(target);
    for place in &TARGETS {
        let found = place.load(Ordering::Relaxed);
        if found == word
            || (found == 0 && place.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok())
        {
            break;
        }
    }
    let done = Answer::new();
    handle.ask(Command::Listen { target, done: Arc::clone(&done) });
    done.wait();
}

/// Whether the program's listener is known.
pub fn knows(fd: i32) -> bool {
    LISTENERS.contains(fd)
}

/// A listener is about to be closed.
pub fn forget(fd: i32) -> bool {
    LISTENERS.remove(fd)
}

/// A listener of this port has been closed.
pub fn closed(port: u16) {
    for place in &TARGETS {
        let found = place.load(Ordering::Relaxed);
        if found != 0 && unpack(found).port() == port {
            place.store(0, Ordering::Relaxed);
        }
    }
    if TARGETS.iter().all(|target| target.load(Ordering::Relaxed) == 0) {
        PARENT.store(0, Ordering::Relaxed);
    }
    if let Some(handle) = handle() {
        handle.ask(Command::Closed { port });
    }
}

/// Called when the program is about to wait: a child takes care of the listeners that it has inherited.
pub fn waits() {
    if PARENT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let parent = PARENT.swap(0, Ordering::Relaxed);
    let words = TARGETS.iter().map(|target| target.load(Ordering::Relaxed)).filter(|word| *word != 0);
    let targets: Vec<_> = words.map(unpack).collect();
    if parent == 0 || targets.is_empty() {
        return;
    }
    if let Some(handle) = start() {
        handle.ask(Command::Inherit { parent, targets });
    }
}

/// Asks for a connection, and waits until it is there or cannot be.
pub fn connect(to: SocketAddrV4, port: u16) -> Asked {
    let Some(handle) = start() else { return Asked::Not("no card".to_owned()) };
    let answer = Answer::new();
    handle.ask(Command::Connect { to, port, answer: Arc::clone(&answer) });
    answer.wait()
}

/// Sends bytes of the program's memory, behind all that its socket has taken; how many the peer's card has, or `None` if this
/// cannot be done now.
pub fn send_from(ports: Ports, bytes: &[u8]) -> Option<usize> {
    let handle = handle()?;
    let answer = Answer::new();
    let (address, len) = (bytes.as_ptr() as usize, bytes.len());
    handle.ask(Command::Direct { ports, address, len, answer: Arc::clone(&answer) });
    answer.wait()
}

/// Whether this process has a carrier, and is not a child that borrows its memory.
pub fn carries() -> bool {
    handle().is_some() && PID.load(Ordering::Relaxed) == pid()
}

/// Tells the carrier something, if there is one.
pub fn tell(command: Command) {
    if let Some(handle) = handle() {
        handle.ask(command);
    }
}

/// The process ends, and its sockets are shut: waits until peers have what was sent. Fit for a signal handler.
pub fn end() {
    if let Some(handle) = handle() {
        handle.finish(FINISH);
    }
}
