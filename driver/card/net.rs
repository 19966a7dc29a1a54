// SPDX-License-Identifier: GPL-2.0
//! The card's name in the network.

use crate::{abi::ring::*, card::Entry};

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

impl Net {
    /// The command that tells firmware, with a new key for the numbers that others are not to guess.
    pub(crate) fn command(&self) -> Entry {
        let key = crate::kernel::random::words::<4>();
        let mut entry = [0; ENTRY_WORDS];
        entry[0] = CMD_NET_CONFIG;
        entry[2] = self.ipv4;
        entry[3] = u32::from_be_bytes([self.mac[0], self.mac[1], self.mac[2], self.mac[3]]);
        entry[4] = u32::from_be_bytes([0, 0, self.mac[4], self.mac[5]]);
        entry[5] = self.mtu;
        entry[6] = self.guid as u32;
        entry[7] = (self.guid >> 32) as u32;
        entry[8..12].copy_from_slice(&key);
        entry
    }
}
