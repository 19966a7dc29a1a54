// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sockets that Berth carries are called.
//!
//! To the kernel such a socket is connected within the host. Its own port and its peer's, which the kernel gives to no
//! second connection, lead to the addresses that the program is to see. The table is in memory that children share, so
//! they find the names of what they inherit.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Connections whose names are known at a time, those of all processes that share the table together.
const NAMES: usize = 1024;
/// In a key: the place has a name.
const TAKEN: u64 = 1 << 32;
/// In a key: the connection has gone, and the place may be used again.
const GONE: u64 = 1 << 33;
/// The key of a place that is being written.
const BUSY: u64 = u64::MAX;

/// The two ends of a connection, as the program sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// This host's.
    pub local: SocketAddrV4,
    /// The other host's.
    pub peer: SocketAddrV4,
}

/// The ports that the kernel knows the program's socket by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The socket's own.
    pub local: u16,
    /// Its peer's.
    pub peer: u16,
}

impl Ports {
    fn key(self) -> u64 {
        TAKEN | u64::from(self.local) << 16 | u64::from(self.peer)
    }
}

#[derive(Default)]
#[repr(C)]
struct Place {
    key: AtomicU64,
    local: AtomicU64,
    peer: AtomicU64,
}

fn pack(address: SocketAddrV4) -> u64 {
    u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port())
}

fn unpack(word: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from((word >> 16) as u32), word as u16)
}

/// The table; null before [`create`].
static TABLE: AtomicPtr<[Place; NAMES]> = AtomicPtr::new(null_mut());

/// Makes the table of this process and all its children, unless there is one.
///
/// # Errors
/// The kernel gives no memory.
pub fn create() -> io::Result<()> {
    if places().is_some() {
        return Ok(());
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(null_mut(), size_of::<[Place; NAMES]>(), protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if TABLE.compare_exchange(null_mut(), memory.cast(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: nobody else knows of it.
        unsafe { libc::munmap(memory, size_of::<[Place; NAMES]>()) };
    }
    Ok(())
}

fn places() -> Option<&'static [Place; NAMES]> {
    // SAFETY: what is stored there is a table that is never unmapped; zeros are valid, and all its words are atomic.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Gives a connection its names; false if there is no place for them.
pub fn insert(ports: Ports, ends: Ends) -> bool {
    let Some(places) = places() else { return false };
    let key = ports.key();
    // A connection that had these ports has gone.
    let same = |found: u64| found & !GONE == key;
    let choices: [&dyn Fn(u64) -> bool; 3] = [&same, &|found| found == 0, &|found| found & GONE != 0];
    for may in choices {
        for place in places {
            let found = place.key.load(Ordering::Relaxed);
            if found == BUSY
                || !may(found)
                || place.key.compare_exchange(found, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            fence(Ordering::Release);
            place.local.store(pack(ends.local), Ordering::Relaxed);
            place.peer.store(pack(ends.peer), Ordering::Relaxed);
            place.key.store(key, Ordering::Release);
            return true;
        }
    }
    false
}

/// The names of a connection.
pub fn find(ports: Ports) -> Option<Ends> {
    let key = ports.key();
    for place in places()? {
        let found = place.key.load(Ordering::Acquire);
        if found & !GONE != key {
            continue;
        }
        let ends = Ends {
            local: unpack(place.local.load(Ordering::Relaxed)),
            peer: unpack(place.peer.load(Ordering::Relaxed)),
        };
        fence(Ordering::Acquire);
        if place.key.load(Ordering::Relaxed) == found {
            return Some(ends);
        }
    }
    None
}

/// A connection has gone: its names stay until their place is needed.
pub fn gone(ports: Ports) {
    let key = ports.key();
    for place in places().into_iter().flatten() {
        // Another one may have the place by now.
        let _ = place.key.compare_exchange(key, key | GONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(n: u16) -> Ends {
        let address = |last| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), n);
        Ends { local: address(1), peer: address(2) }
    }

    #[test]
    fn ap_3_names_last_until_their_place_is_needed() {
        create().unwrap();
        // Other tests use the table too, with other ports.
        let ports = |n| Ports { local: 1, peer: n };
        for n in 0..512 {
            assert!(insert(ports(n), ends(n)));
        }
        assert_eq!(find(ports(3)), Some(ends(3)));
        gone(ports(3));
        assert_eq!(find(ports(3)), Some(ends(3)), "still there");
        assert!(insert(ports(3), ends(77)), "the ports have a new connection");
        assert_eq!(find(ports(3)), Some(ends(77)));
        assert_eq!(find(Ports { local: 2, peer: 3 }), None);
        (0..512).for_each(|n| gone(ports(n)));
        for n in 512..1024 {
            assert!(insert(ports(n), ends(n)), "{n}: places of connections that have gone are used again");
            gone(ports(n));
        }
    }
}
