// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of the library's own, on descriptors that the program does not know of.
//!
//! These have high numbers where the process may have any, so that the program finds the low ones as it expects. A table
//! of them lets a child close them, and keeps the program from closing them by number.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use libc::{c_int, socklen_t};

use crate::address::{Family, Storage};
use crate::descriptors::Set;
use crate::next;

/// Where the library's own begin, if the process may have so many.
const HIGH: c_int = 512;

/// The library's descriptors.
pub static INTERNAL: Set = Set::new();

/// Closes all of the library's descriptors, in a child: fit for a process that has other threads' locks.
pub fn close_all() {
    for fd in INTERNAL.iter() {
        INTERNAL.remove(fd);
        // SAFETY: the descriptor is the library's, and nothing of the parent's objects is used here.
        unsafe { next::close(fd) };
    }
}

/// A descriptor of the library's.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// Takes over a descriptor that nobody else has, if the call that made it was successful.
    ///
    /// # Errors
    /// The call's.
    fn new(made: c_int) -> io::Result<Self> {
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: duplicates a descriptor; no memory is involved.
        let high = unsafe { libc::fcntl(made, libc::F_DUPFD_CLOEXEC, HIGH) };
        let fd = if high < 0 { made } else { high };
        if high >= 0 {
            // SAFETY: nobody else has it.
            unsafe { next::close(made) };
        }
        INTERNAL.insert(fd);
        Ok(Self(fd))
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        INTERNAL.remove(self.0);
        // SAFETY: it is ours alone.
        unsafe { next::close(self.0) };
    }
}

fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets an option that is a number.
///
/// # Errors
/// The kernel's.
pub fn set_option(fd: &Fd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let at = (&raw const value).cast::<c_void>();
    // SAFETY: the option's value is a number.
    done(unsafe { libc::setsockopt(fd.0, level, name, at, size_of::<c_int>() as socklen_t) })
}

/// An option that is a number; `None` if the descriptor has none such.
pub fn option(fd: RawFd, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: a place for a number, of the length given.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    (result == 0).then_some(value)
}

/// Whether a descriptor is a TCP socket.
pub fn is_tcp(fd: RawFd) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// Whether a TCP socket is neither connected, about to be, nor listening.
pub fn is_closed(fd: RawFd) -> bool {
    /// `TCP_CLOSE`
    const CLOSE: u8 = 7;
    let mut state = 0u8;
    let mut length: socklen_t = 1;
    // SAFETY: the first byte of the option's value is the state.
    let result =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length) };
    result == 0 && state == CLOSE
}

/// A function that gives a name of a socket.
type NameOf = unsafe fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

fn name(fd: RawFd, of: NameOf) -> io::Result<Storage> {
    let mut storage = Storage::new();
    let (address, length) = storage.as_mut();
    // SAFETY: room for any address, of the length given.
    done(unsafe { of(fd, address, length) })?;
    Ok(storage)
}

/// The kernel's own name of a socket.
///
/// # Errors
/// The kernel's.
pub fn local_name(fd: RawFd) -> io::Result<Storage> {
    name(fd, next::getsockname)
}

/// The kernel's name of a socket's peer.
///
/// # Errors
/// The kernel's.
pub fn peer_name(fd: RawFd) -> io::Result<Storage> {
    name(fd, next::getpeername)
}

fn port_of(fd: &Fd) -> io::Result<u16> {
    let name = local_name(fd.0)?.parse();
    name.and_then(|(_, address)| address).map(|address| address.port()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Above all descriptors of the process that may be sockets.
pub fn descriptors() -> RawFd {
    /// A process that may have more has seldom.
    const MOST: libc::c_long = 1 << 14;
    // SAFETY: no memory is involved.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    most.clamp(0, MOST) as RawFd
}

/// A TCP socket bound to a free port of an address of the host, which does not block.
fn bound(ip: Ipv4Addr) -> io::Result<(Fd, u16)> {
    // SAFETY: makes a descriptor.
    let fd = Fd::new(unsafe {
        libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    })?;
    let any = Storage::of(Family::V4, SocketAddrV4::new(ip, 0));
    // SAFETY: a valid address of that length.
    done(unsafe { libc::bind(fd.0, any.as_ptr(), any.length()) })?;
    let port = port_of(&fd)?;
    Ok((fd, port))
}

/// A socket that one connection within the host can be made to.
#[derive(Debug)]
pub struct Door {
    fd: Fd,
    /// Its port.
    pub port: u16,
}

impl Door {
    /// Opens one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        let (fd, port) = bound(Ipv4Addr::LOCALHOST)?;
        // SAFETY: no memory is involved.
        done(unsafe { next::listen(fd.0, 1) })?;
        Ok(Self { fd, port })
    }

    /// The connection that came from a port; `None` if it has not come. Others are turned away.
    pub fn enter(&self, from: u16) -> Option<Fd> {
        // It is in the queue already, but for other processors' work.
        wait_readable(self.fd.0, Duration::from_secs(1));
        loop {
            // SAFETY: asks for no address.
            let made = unsafe {
                next::accept4(
                    self.fd.0,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                )
            };
            let fd = Fd::new(made).ok()?;
            let peer = peer_name(fd.0).ok()?.parse()?.1?;
            if peer.port() == from {
                return Some(fd);
            }
        }
    }
}

/// A socket that is to be connected to a listener of the program, and its port. It has an address of the host that is not the
/// loopback one: a program that trusts its own host must not trust another one's peer, whoever tells it the address.
///
/// # Errors
/// The kernel's.
pub fn visitor(own: Ipv4Addr) -> io::Result<(Fd, u16)> {
    bound(own)
}

/// Begins to connect a socket; `WouldBlock`: under way.
///
/// # Errors
/// The kernel's.
pub fn connect(fd: &Fd, to: SocketAddrV4) -> io::Result<()> {
    let to = Storage::of(Family::V4, to);
    // SAFETY: a valid address of that length.
    match done(unsafe { next::connect(fd.0, to.as_ptr(), to.length()) }) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Err(io::ErrorKind::WouldBlock.into()),
        result => result,
    }
}

/// How a connection that was begun has come out; `None`: not yet.
pub fn outcome(fd: &Fd) -> Option<io::Result<()>> {
    if let Some(error) = option(fd.0, libc::SOL_SOCKET, libc::SO_ERROR).filter(|error| *error != 0) {
        return Some(Err(io::Error::from_raw_os_error(error)));
    }
    peer_name(fd.0).is_ok().then_some(Ok(()))
}

/// Waits until a descriptor is readable, for so long at most.
pub fn wait_readable(fd: RawFd, limit: Duration) {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one valid entry.
    unsafe { next::poll(&raw mut poll, 1, ms) };
}

/// Bytes that wait at a socket.
pub fn waiting(fd: RawFd) -> Option<usize> {
    let mut n: c_int = 0;
    // SAFETY: a place for a number.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut n) };
    (result == 0).then_some(n as usize)
}

/// Bytes that a socket has taken and its peer has not.
pub fn unsent(fd: RawFd) -> Option<usize> {
    let mut n: c_int = 0;
    // SAFETY: a place for a number.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut n) };
    (result == 0).then_some(n as usize)
}

/// Whether a descriptor blocks, for any time.
pub fn blocks(fd: RawFd) -> bool {
    // SAFETY: no memory is involved.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<libc::timeval>() as socklen_t;
    let at = (&raw mut limit).cast();
    // SAFETY: a place for the option's value, of the length given.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, at, &raw mut length) };
    flags >= 0 && flags & libc::O_NONBLOCK == 0 && result == 0 && limit.tv_sec == 0 && limit.tv_usec == 0
}

/// Takes bytes that have come; 0 at their end.
///
/// # Errors
/// The kernel's; `WouldBlock` when none are there.
pub fn receive(fd: &Fd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: room for so many bytes.
    count(unsafe { libc::recv(fd.0, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) })
}

/// Gives bytes; answers how many were taken.
///
/// # Errors
/// The kernel's; `WouldBlock` when there is no room.
pub fn send(fd: &Fd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: so many bytes are readable.
    count(unsafe { next::send(fd.0, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Says that no more bytes come.
pub fn end(fd: &Fd) {
    // SAFETY: no memory is involved. A connection that is broken has ended anyway.
    unsafe { libc::shutdown(fd.0, libc::SHUT_WR) };
}

/// Has the connection break when the descriptor is closed.
pub fn break_at_close(fd: &Fd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let at = (&raw const linger).cast::<c_void>();
    // SAFETY: the option's value is this struct.
    unsafe { libc::setsockopt(fd.0, libc::SOL_SOCKET, libc::SO_LINGER, at, size_of::<libc::linger>() as socklen_t) };
}

/// Makes an eventfd.
///
/// # Errors
/// The kernel's.
pub fn eventfd() -> io::Result<Fd> {
    // SAFETY: makes a descriptor.
    Fd::new(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Takes the count of an eventfd.
pub fn quiet(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: room for 8 bytes.
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
}

/// Signals an eventfd.
pub fn signal(fd: &Fd) {
    let one = 1u64;
    // SAFETY: 8 bytes are readable.
    unsafe { libc::write(fd.0, (&raw const one).cast(), 8) };
}

/// A descriptor that is readable when a process has ended.
///
/// # Errors
/// The process has gone, or the kernel knows no such call.
pub fn process(pid: i32) -> io::Result<Fd> {
    // SAFETY: makes a descriptor.
    Fd::new(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as c_int)
}

/// Waits for events of several descriptors.
#[derive(Debug)]
pub struct Poller(Fd);

/// What has happened.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    /// The number that the descriptor was added with.
    pub token: u64,
    /// It has an error.
    pub error: bool,
}

impl Poller {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor.
        Fd::new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Adds a descriptor. With `changes` it is told when it becomes readable or writable, or fails; else as long as it is
    /// readable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, fd: RawFd, token: u64, changes: bool) -> io::Result<()> {
        let (all, one) = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET, libc::EPOLLIN);
        let mut event = libc::epoll_event { events: if changes { all } else { one } as u32, u64: token };
        // SAFETY: a valid event.
        done(unsafe { libc::epoll_ctl(self.0.0, libc::EPOLL_CTL_ADD, fd, &raw mut event) })
    }

    /// Waits until something has happened, for so long at most.
    pub fn wait(&self, limit: Option<Duration>) -> Vec<Happened> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let ms = limit.map_or(-1, |t| c_int::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX));
        // SAFETY: room for so many events.
        let n = unsafe { next::epoll_wait(self.0.0, events.as_mut_ptr(), events.len() as c_int, ms) };
        let happened = events.iter().take(usize::try_from(n).unwrap_or(0));
        happened.map(|e| Happened { token: e.u64, error: e.events & libc::EPOLLERR as u32 != 0 }).collect()
    }
}

/// A host's IPv4 network: whether it has an address, by the interface that has `own`.
pub fn is_neighbour(own: Ipv4Addr, other: Ipv4Addr) -> bool {
    let mut list = std::ptr::null_mut();
    // SAFETY: a place for the list.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return false;
    }
    let number = |address: *const libc::sockaddr| {
        // SAFETY: the kernel's addresses are those of their family.
        let storage = (!address.is_null()).then(|| unsafe {
            let family = c_int::from((*address).sa_family);
            (family == libc::AF_INET).then(|| Storage::copy(address, size_of::<libc::sockaddr_in>() as socklen_t))
        })??;
        storage.parse()?.1.map(|address| u32::from(*address.ip()))
    };
    let mut found = false;
    let mut at = list;
    // SAFETY: an entry of the list, which is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        if let (Some(address), Some(mask)) = (number(entry.ifa_addr), number(entry.ifa_netmask)) {
            found |= address == u32::from(own) && address & mask == u32::from(other) & mask;
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list of above, of which nothing is kept.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Runs `start` with all signals blocked, which a thread that it starts inherits.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero is a valid value, and both sets are valid places.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = start();
    // SAFETY: the set of above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

/// Whether any socket of the host listens to a TCP port.
pub fn is_listened_to(port: u16) -> bool {
    let end = format!(":{port:04X}");
    let listens = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&end));
        local && words.nth(1) == Some("0A")
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(listens)))
}
