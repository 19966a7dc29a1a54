// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariant CRC of RoCEv2 (IBTA A17.3.3): Ethernet's CRC-32 over eight bytes of ones
//! (where InfiniBand has its local route header), the IP packet and its payload, with
//! ones in the place of all that may change on the way.

use super::Error;
use super::net::{Ipv4, Ipv6};
use crate::base::bound::at_most;
use crate::base::crc::Crc;

/// The invariant CRC of an IP packet without its CRC. It goes on the wire least significant byte first.
///
/// # Errors
/// [`Error::Short`] or [`Error::IpHeader`] when the packet is not IP, UDP and BTH.
pub fn compute(packet: &[u8]) -> Result<u32, Error> {
    match packet.first().map(|b| b >> 4) {
        // Type of service, time to live, header checksum.
        Some(4) => masked::<{ Ipv4::BYTES + 20 }>(packet, &[1, 8, 10, 11], Ipv4::BYTES, 0),
        // Traffic class, flow label, hop limit.
        Some(6) => masked::<{ Ipv6::BYTES + 20 }>(packet, &[1, 2, 3, 7], Ipv6::BYTES, 0x0f),
        Some(_) => Err(Error::IpHeader),
        None => Err(Error::Short),
    }
}

/// `N` bytes are copied and masked: at `ones`, UDP's checksum, and the congestion marks in
/// the BTH. `first` is or-ed to the first byte.
fn masked<const N: usize>(packet: &[u8], ones: &[usize], ip: usize, first: u8) -> Result<u32, Error> {
    let (head, rest) = packet.split_first_chunk::<N>().ok_or(Error::Short)?;
    let mut head = *head;
    if let Some(byte) = head.first_mut() {
        *byte |= first;
    }
    let transport = [ip.wrapping_add(6), ip.wrapping_add(7), ip.wrapping_add(8 + 4)];
    for at in at_most(ones.len() + 3, ones.iter().chain(&transport)) {
        if let Some(byte) = head.get_mut(*at) {
            *byte = 0xff;
        }
    }
    let mut crc = Crc::new();
    crc.update(&[0xff; 8]);
    crc.update(&head);
    crc.update(rest);
    Ok(crc.finish())
}
