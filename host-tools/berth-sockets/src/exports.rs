// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the C library that programs find here first. All are `extern "C"`: a panic in one ends the process.
//!
//! What they do not do themselves, they leave to the next function of their name, with the same arguments.

use libc::{
    c_int, c_uint, c_void, epoll_event, fd_set, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec, timeval,
};

use crate::address::Storage;
use crate::calls::{self, keeping_errno, set_errno};
use crate::names::Ends;
use crate::next;
use crate::process;
use crate::rules;
use crate::sys::INTERNAL;

/// Functions by the C library's names.
macro_rules! exports {
    ($($(#[$attribute:meta])* unsafe fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty $body:block)*) => {$(
        $(#[$attribute])*
        // SAFETY, of the name: the function takes, does and answers what the C library's does.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $result $body
    )*};
}

/// Answers a call with `EOPNOTSUPP`.
fn refused() -> ssize_t {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// Whether a call would send urgent data where Berth carries none.
fn is_urgent(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_OOB != 0 && keeping_errno(|| calls::ends(fd)).is_some()
}

/// Names a connection that was accepted.
///
/// # Safety
/// As of `accept`.
unsafe fn accepted(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, room: socklen_t) {
    keeping_errno(|| match calls::ends(fd) {
        Some((family, ends)) if !address.is_null() && !length.is_null() => {
            // SAFETY: as our caller's; the kernel has changed what `length` says of the room.
            unsafe { *length = room };
            // SAFETY: as our caller's.
            unsafe { Storage::of(family, ends.peer).give(address, length) };
        }
        Some(_) => {}
        None if rules::logs() => calls::accepted_by_tcp(fd),
        None => {}
    });
}

/// Gives a program one of the two names of a connection that Berth carries; `None` if it is none such.
///
/// # Safety
/// As of `getsockname`.
unsafe fn named(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    which: impl FnOnce(Ends) -> std::net::SocketAddrV4,
) -> Option<c_int> {
    if address.is_null() || length.is_null() {
        return None;
    }
    let (family, ends) = keeping_errno(|| calls::ends(fd))?;
    // SAFETY: as our caller's.
    unsafe { Storage::of(family, which(ends)).give(address, length) };
    Some(0)
}

exports! {
    unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
        // SAFETY: as our caller's.
        let result = unsafe { next::listen(fd, backlog) };
        if result == 0 {
            keeping_errno(|| calls::listens(fd));
        }
        result
    }

    unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: as our caller's.
        let to = unsafe { Storage::copy(address, length) };
        calls::connects(fd, &to).unwrap_or_else(|| {
            // SAFETY: as our caller's.
            unsafe { next::connect(fd, address, length) }
        })
    }

    unsafe fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: as our caller's.
        unsafe { accept4(fd, address, length, 0) }
    }

    unsafe fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        keeping_errno(|| {
            process::waits();
            calls::accepts(fd);
        });
        // SAFETY: as our caller's.
        let room = unsafe { length.as_ref() }.copied().unwrap_or(0);
        // SAFETY: as our caller's.
        let made = unsafe { next::accept4(fd, address, length, flags) };
        if made >= 0 {
            // SAFETY: as our caller's.
            unsafe { accepted(made, address, length, room) };
        }
        made
    }

    unsafe fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: as our caller's.
        let given = unsafe { named(fd, address, length, |ends| ends.local) };
        given.unwrap_or_else(|| {
            // SAFETY: as our caller's.
            unsafe { next::getsockname(fd, address, length) }
        })
    }

    unsafe fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: as our caller's.
        let given = unsafe { named(fd, address, length, |ends| ends.peer) };
        given.unwrap_or_else(|| {
            // SAFETY: as our caller's.
            unsafe { next::getpeername(fd, address, length) }
        })
    }

    unsafe fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        if is_urgent(fd, flags) {
            return refused();
        }
        // SAFETY: as our caller's.
        let sent = if flags & !libc::MSG_NOSIGNAL == 0 { unsafe { calls::sends(fd, buffer, length) } } else { None };
        sent.unwrap_or_else(|| {
            // SAFETY: as our caller's.
            unsafe { next::send(fd, buffer, length, flags) }
        })
    }

    unsafe fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        // SAFETY: as our caller's.
        unsafe { calls::sends(fd, buffer, length) }.unwrap_or_else(|| {
            // SAFETY: as our caller's.
            unsafe { next::write(fd, buffer, length) }
        })
    }

    unsafe fn sendto(
        fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, size: socklen_t
    ) -> ssize_t {
        if is_urgent(fd, flags) {
            return refused();
        }
        // SAFETY: as our caller's.
        unsafe { next::sendto(fd, buffer, length, flags, address, size) }
    }

    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        if is_urgent(fd, flags) {
            return refused();
        }
        // SAFETY: as our caller's.
        unsafe { next::sendmsg(fd, message, flags) }
    }

    unsafe fn close(fd: c_int) -> c_int {
        if INTERNAL.contains(fd) {
            set_errno(libc::EBADF);
            return -1;
        }
        let port = keeping_errno(|| calls::closes(fd));
        // SAFETY: as our caller's.
        let result = unsafe { next::close(fd) };
        if let Some(port) = port {
            keeping_errno(|| process::closed(port));
        }
        result
    }

    unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let mut from = first;
        for fd in INTERNAL.iter() {
            let fd = fd as c_uint;
            if fd < from || fd > last {
                continue;
            }
            if fd > from {
                // SAFETY: as our caller's, of a part of the range.
                let result = unsafe { next::close_range(from, fd - 1, flags) };
                if result != 0 {
                    return result;
                }
            }
            from = fd + 1;
        }
        if from > last && from > first {
            return 0;
        }
        // SAFETY: as above.
        unsafe { next::close_range(from, last, flags) }
    }

    unsafe fn closefrom(first: c_int) -> () {
        // SAFETY: as our caller's. The C library's own would not leave out the library's descriptors.
        unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
    }

    unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        process::waits();
        // SAFETY: as our caller's.
        unsafe { next::poll(fds, count, timeout) }
    }

    unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        process::waits();
        // SAFETY: as our caller's.
        unsafe { next::ppoll(fds, count, timeout, mask) }
    }

    unsafe fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
    ) -> c_int {
        process::waits();
        // SAFETY: as our caller's.
        unsafe { next::select(count, read, write, except, timeout) }
    }

    unsafe fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int {
        process::waits();
        // SAFETY: as our caller's.
        unsafe { next::pselect(count, read, write, except, timeout, mask) }
    }

    unsafe fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
        process::waits();
        // SAFETY: as our caller's.
        unsafe { next::epoll_wait(epoll, events, most, timeout) }
    }

    unsafe fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int {
        process::waits();
        // SAFETY: as our caller's.
        unsafe { next::epoll_pwait(epoll, events, most, timeout, mask) }
    }

    unsafe fn _exit(status: c_int) -> ! {
        finish();
        // SAFETY: as our caller's.
        unsafe { next::_exit(status) };
        std::process::abort()
    }

    unsafe fn _Exit(status: c_int) -> ! {
        // SAFETY: as our caller's.
        unsafe { _exit(status) }
    }
}

extern "C" fn begin() {
    process::begin();
}

/// The process ends.
extern "C" fn finish() {
    if process::carries() {
        calls::ends_all();
        process::end();
    }
}

/// Run when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Run when the program ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
