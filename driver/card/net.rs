// SPDX-License-Identifier: GPL-2.0
//! The card's name in the network.

use crate::abi::message::{Entry, NetConfig};

/// The end node's name, kept to be given to firmware again after a reset.
#[derive(Clone, Copy, Default)]
pub(crate) struct Net {
    /// IPv4 address, first byte in bits 31:24; 0 not set.
    pub(crate) ipv4: u32,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// MAC address.
    pub(crate) mac: [u8; 6],
    /// GUID.
    pub(crate) guid: u64,
}

/// EUI-64 from a MAC address (QP-14).
pub(crate) fn guid([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

impl Net {
    /// Gets another address and MTU.
    pub(crate) fn rename(&mut self, ipv4: u32, mtu: u32, mac: [u8; 6]) {
        *self = Self {
            ipv4,
            mtu,
            mac,
            guid: guid(mac),
        };
    }

    /// The command that tells firmware, with a new key for the numbers that others are not to guess.
    pub(crate) fn command(&self) -> Entry {
        let key = crate::kernel::random::words::<4>();
        let [a, b, c, d, e, f] = self.mac;
        NetConfig {
            ipv4: self.ipv4,
            mac_first: u32::from_be_bytes([a, b, c, d]),
            mac_last: u32::from_be_bytes([0, 0, e, f]),
            mtu: self.mtu,
            guid: self.guid,
            key,
        }
        .encode()
    }
}
