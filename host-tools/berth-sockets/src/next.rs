// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C library's own functions, behind those that this library puts in their place.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_uint, c_void, epoll_event, fd_set, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr};
use libc::{socklen_t, ssize_t, timespec, timeval};

/// The next function of a name, found when it is first called.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address; the process ends if the C library has no such function.
    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Functions of the C library, by their declarations.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As of the C library's function.
        pub unsafe fn $name($($argument: $kind),*) $(-> $result)? {
            static NEXT: Next = Next::new({
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero byte"),
                }
            });
            type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
            // SAFETY: the C library's function of this name has this type.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(NEXT.address()) };
            // SAFETY: as our caller's.
            unsafe { function($($argument),*) }
        }
    )*};
}

functions! {
    /// `listen(2)`.
    listen(fd: c_int, backlog: c_int) -> c_int;
    /// `connect(2)`.
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    /// `accept4(2)`.
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    /// `getsockname(2)`.
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    /// `getpeername(2)`.
    getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    /// `send(2)`.
    send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    /// `write(2)`.
    write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t;
    /// `sendto(2)`.
    sendto(
        fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, size: socklen_t
    ) -> ssize_t;
    /// `sendmsg(2)`.
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    /// `close(2)`.
    close(fd: c_int) -> c_int;
    /// `close_range(2)`.
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    /// `poll(2)`.
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    /// `ppoll(2)`.
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    /// `select(2)`.
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    /// `pselect(2)`.
    pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int;
    /// `epoll_wait(2)`.
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    /// `epoll_pwait(2)`.
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    /// `_exit(2)`.
    _exit(status: c_int);
}
