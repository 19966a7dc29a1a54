// SPDX-License-Identifier: GPL-2.0
//! Ethernet devices.
//!
//! A driver implements [`device::Driver`], makes a [`device::Device`] with its own data in it, and registers that: a
//! [`registration::Registration`], whose drop takes the device away from the network stack. What is there only while the
//! device is open, rings and buffers, is the driver's [`device::Driver::Open`]: `open` makes it, and nobody uses it any
//! more when `stop` gets it back.
//!
//! Packets are [`skb::SkBuff`]s, which have one owner. While hardware has one, it is [`mapped::Mapped`].
//!
//! C headers: `include/linux/netdevice.h`, `include/linux/skbuff.h`, `include/linux/ethtool.h`.

mod callbacks;
pub(crate) mod device;
mod ethtool;
pub(crate) mod mapped;
pub(crate) mod registration;
pub(crate) mod skb;
