// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What socket calls do beside what the kernel does.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::RawFd;

use libc::{c_int, c_void, ssize_t};

use crate::address::{Family, Storage};
use crate::carrier::{Asked, Command};
use crate::names::{self, Ends, Ports};
use crate::next;
use crate::process;
use crate::rules;
use crate::sys::{self, Door};

/// Runs something that leaves the thread's `errno` as it was.
pub fn keeping_errno<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: errno is this thread's own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let result = run();
    // SAFETY: as above.
    unsafe { *place = before };
    result
}

/// Sets `errno`.
pub fn set_errno(error: c_int) {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = error };
}

/// A connection that Berth carries: the family of its socket, its ports within the host, and what the program calls its ends.
fn carried(fd: RawFd) -> Option<(Family, Ports, Ends)> {
    let (family, peer) = sys::peer_name(fd).ok()?.parse()?;
    let (_, local) = sys::local_name(fd).ok()?.parse()?;
    let (local, peer) = (local?, peer?);
    let ports = Ports { local: local.port(), peer: peer.port() };
    let ends = names::find(ports)?;
    // Another host's peer may have the same port.
    let within = peer.ip().is_loopback() || peer.ip() == ends.local.ip();
    within.then_some((family, ports, ends))
}

/// What the program calls the two ends of a connection that Berth carries, and the family of its socket.
pub fn ends(fd: RawFd) -> Option<(Family, Ends)> {
    carried(fd).map(|(family, _, ends)| (family, ends))
}

/// The program listens at a socket: so does the card, if peers of other hosts could connect to it.
pub fn listens(fd: RawFd) {
    if !sys::is_tcp(fd) {
        return;
    }
    let Some((family, Some(address))) = sys::local_name(fd).ok().and_then(|name| name.parse()) else { return };
    let only_v6 = family == Family::V6 && sys::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1);
    if address.ip().is_loopback() || only_v6 || !rules::port(address.port()) {
        return;
    }
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST } else { *address.ip() };
    process::listen(fd, SocketAddrV4::new(ip, address.port()));
}

/// As [`listens`], of a socket that the program has got from another one, and that listens already.
pub fn accepts(fd: RawFd) {
    if !process::knows(fd) && sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1) {
        listens(fd);
    }
}

/// Logs a connection that the kernel carries.
pub fn accepted_by_tcp(fd: RawFd) {
    let peer = sys::peer_name(fd).ok().and_then(|name| name.parse()?.1);
    if let Some(peer) = peer.filter(|_| sys::is_tcp(fd)) {
        rules::log(format_args!("tcp from {peer}"));
    }
}

/// The port of a listener that is about to be closed.
pub fn closes(fd: RawFd) -> Option<u16> {
    if !process::forget(fd) {
        return None;
    }
    sys::local_name(fd).ok()?.parse()?.1.map(|address| address.port())
}

/// Connects a socket by Berth; `None` if the kernel is to connect it, as it was asked to.
pub fn connects(fd: RawFd, to: &Storage) -> Option<c_int> {
    let (family, Some(peer)) = to.parse()? else { return None };
    let ip = peer.ip();
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || peer.port() == 0 {
        return None;
    }
    if !sys::is_tcp(fd) || !sys::is_closed(fd) {
        return None;
    }
    let refused = |why: &str| {
        rules::log(format_args!("tcp to {peer}: {why}"));
        None
    };
    if !rules::port(peer.port()) {
        return refused("by the rules");
    }
    let bound = sys::local_name(fd).ok()?.parse()?.1?;
    if bound.ip().is_loopback() {
        return refused("the socket is bound to an address within the host");
    }
    let Ok(door) = Door::open() else { return refused("no descriptor is left") };
    // What the program has bound it to, if it has.
    let port = if bound.port() == 0 { door.port } else { bound.port() };
    match process::connect(peer, port) {
        Asked::Not(why) => refused(&why),
        Asked::Carried(id, own) => {
            let ends = Ends { local: SocketAddrV4::new(own, port), peer };
            Some(enters(fd, family, &door, id, ends))
        }
    }
}

/// Connects the program's socket to the library; the result is the program's.
fn enters(fd: RawFd, family: Family, door: &Door, id: u64, ends: Ends) -> c_int {
    let inside = Storage::of(family, SocketAddrV4::new(Ipv4Addr::LOCALHOST, door.port));
    // SAFETY: a valid address of that length.
    let result = unsafe { next::connect(fd, inside.as_ptr(), inside.length()) };
    let begun = result == 0
        || matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR | libc::EALREADY));
    keeping_errno(|| {
        let local = sys::local_name(fd).ok().and_then(|name| name.parse()?.1);
        let (true, Some(local)) = (begun, local) else {
            return process::tell(Command::Abandon { id });
        };
        let ports = Ports { local: local.port(), peer: door.port };
        names::insert(ports, ends);
        match door.enter(local.port()) {
            Some(socket) => process::tell(Command::Attach { id, socket, ports, ends }),
            None => process::tell(Command::Abandon { id }),
        }
    });
    result
}

/// Bytes of a call from which on they are sent from the program's memory.
const LARGE: usize = 32 << 10;

/// Sends the bytes of a call that may block without a copy: its result, or `None` if the kernel is to take them.
///
/// # Safety
/// So many bytes must be readable.
pub unsafe fn sends(fd: RawFd, buffer: *const c_void, len: usize) -> Option<ssize_t> {
    if len < LARGE || !process::carries() {
        return None;
    }
    keeping_errno(|| {
        let (_, ports, _) = carried(fd)?;
        // Then the library's end has all that the socket has taken.
        if !sys::blocks(fd) || sys::unsent(fd) != Some(0) {
            return None;
        }
        // SAFETY: as our caller's.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) };
        // If none was taken, the kernel knows the error.
        process::send_from(ports, bytes).filter(|n| *n > 0).map(|n| n as ssize_t)
    })
}

/// Ends the direction to the peer of all sockets of the process that Berth carries. Fit for a signal handler.
pub fn ends_all() {
    for fd in 0..sys::descriptors() {
        if !sys::INTERNAL.contains(fd) && ends(fd).is_some() {
            // SAFETY: no memory is involved.
            unsafe { libc::shutdown(fd, libc::SHUT_WR) };
        }
    }
}
