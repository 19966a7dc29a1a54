// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services beside the stream connection: datagrams without and with reliability, and the indicate window, which no card
//! runs yet; buffers that grow, which libberth runs; and raw queues, which RTL has.

pub mod datagram;
pub mod grow;
pub mod indicate;
pub mod raw;
pub mod rd;
