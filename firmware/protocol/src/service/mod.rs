// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services beside the stream connection: datagrams without and with reliability, the indicate window, and buffers that
//! grow, which no card runs yet; and raw queues, which RTL has.

pub mod datagram;
pub mod grow;
pub mod indicate;
pub mod raw;
pub mod rd;
