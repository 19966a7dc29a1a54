// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPv4 addresses as socket calls carry them, v4-mapped IPv6 addresses (RFC 4291 2.5.5.2) among them.

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use libc::{AF_INET, AF_INET6, c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// The family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`: its IPv4 addresses are v4-mapped.
    V6,
}

/// Memory for an address of any family.
#[derive(Clone, Copy)]
pub struct Storage {
    bytes: sockaddr_storage,
    length: socklen_t,
}

impl Storage {
    /// Room for any address.
    pub fn new() -> Self {
        // SAFETY: all-zero is a valid value of this C struct.
        Self { bytes: unsafe { zeroed() }, length: size_of::<sockaddr_storage>() as socklen_t }
    }

    /// An IPv4 address in the form of a family.
    pub fn of(family: Family, address: SocketAddrV4) -> Self {
        let mut storage = Self::new();
        let start = &raw mut storage.bytes;
        match family {
            Family::V4 => {
                let place = start.cast::<sockaddr_in>();
                // SAFETY: the storage is large enough and aligned for every address.
                unsafe {
                    (*place).sin_family = AF_INET as sa_family_t;
                    (*place).sin_port = address.port().to_be();
                    (*place).sin_addr.s_addr = u32::from(*address.ip()).to_be();
                }
                storage.length = size_of::<sockaddr_in>() as socklen_t;
            }
            Family::V6 => {
                let place = start.cast::<sockaddr_in6>();
                // SAFETY: as above.
                unsafe {
                    (*place).sin6_family = AF_INET6 as sa_family_t;
                    (*place).sin6_port = address.port().to_be();
                    (*place).sin6_addr.s6_addr = address.ip().to_ipv6_mapped().octets();
                }
                storage.length = size_of::<sockaddr_in6>() as socklen_t;
            }
        }
        storage
    }

    /// A copy of a program's address.
    ///
    /// # Safety
    /// `length` bytes from `address` on must be readable, unless it is null.
    pub unsafe fn copy(address: *const sockaddr, length: socklen_t) -> Self {
        let mut storage = Self::new();
        storage.length = length.min(storage.length);
        if address.is_null() {
            storage.length = 0;
            return storage;
        }
        let to = (&raw mut storage.bytes).cast::<u8>();
        // SAFETY: as our caller's; the storage has at least as many bytes.
        unsafe { to.copy_from_nonoverlapping(address.cast(), storage.length as usize) };
        storage
    }

    /// Gives the address to a program as socket calls do: cut to the room there is, and with its whole length.
    ///
    /// # Safety
    /// `length` must be valid for reads and writes, and as many bytes as it says valid for writes from `address` on; or
    /// `address` is null.
    pub unsafe fn give(&self, address: *mut sockaddr, length: *mut socklen_t) {
        if address.is_null() || length.is_null() {
            return;
        }
        // SAFETY: as our caller's.
        let room = unsafe { *length };
        let from = (&raw const self.bytes).cast::<u8>();
        // SAFETY: as our caller's.
        unsafe {
            address.cast::<u8>().copy_from_nonoverlapping(from, room.min(self.length) as usize);
            *length = self.length;
        }
    }

    /// For calls that read an address.
    pub fn as_ptr(&self) -> *const sockaddr {
        (&raw const self.bytes).cast()
    }

    /// For calls that write one, and its length.
    pub fn as_mut(&mut self) -> (*mut sockaddr, &mut socklen_t) {
        ((&raw mut self.bytes).cast(), &mut self.length)
    }

    /// Bytes of the address.
    pub fn length(&self) -> socklen_t {
        self.length
    }

    /// The family, and the address if it is one of IPv4; `None` for other families. The IPv6 address of any host (`::`)
    /// counts as that of IPv4.
    pub fn parse(&self) -> Option<(Family, Option<SocketAddrV4>)> {
        let length = self.length as usize;
        let start = &raw const self.bytes;
        match c_int::from(self.bytes.ss_family) {
            AF_INET if length >= size_of::<sockaddr_in>() => {
                // SAFETY: the storage is large enough and aligned for every address, and of this family.
                let place = unsafe { &*start.cast::<sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(place.sin_addr.s_addr));
                Some((Family::V4, Some(SocketAddrV4::new(ip, u16::from_be(place.sin_port)))))
            }
            AF_INET6 if length >= size_of::<sockaddr_in6>() => {
                // SAFETY: as above.
                let place = unsafe { &*start.cast::<sockaddr_in6>() };
                let ip = Ipv6Addr::from(place.sin6_addr.s6_addr);
                let ip = if ip.is_unspecified() { Some(Ipv4Addr::UNSPECIFIED) } else { ip.to_ipv4_mapped() };
                Some((Family::V6, ip.map(|ip| SocketAddrV4::new(ip, u16::from_be(place.sin6_port)))))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ap_3_addresses_of_both_families_are_read_as_they_are_written() {
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 7), 5001);
        for family in [Family::V4, Family::V6] {
            assert_eq!(Storage::of(family, address).parse(), Some((family, Some(address))));
        }
        assert_eq!(Storage::new().parse(), None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Storage::copy(std::ptr::null(), 16) }.parse(), None);
        // SAFETY: a part of a valid address.
        let cut = unsafe { Storage::copy(Storage::of(Family::V4, address).as_ptr(), 3) };
        assert_eq!(cut.parse(), None);
    }

    #[test]
    fn ap_3_an_address_is_given_with_its_whole_length_into_the_room_there_is() {
        let address = Storage::of(Family::V4, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80));
        let mut room = [0xffu8; 16];
        let mut length: socklen_t = 4;
        // SAFETY: four bytes of sixteen.
        unsafe { address.give(room.as_mut_ptr().cast(), &raw mut length) };
        assert_eq!((length, room[2], room[3], room[4]), (16, 0, 80, 0xff));
    }
}
