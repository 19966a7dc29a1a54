// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services beside the stream connection: datagrams without and with reliability, the indicate window, and buffers that
//! grow. No card runs them yet.

pub mod datagram;
pub mod grow;
pub mod indicate;
pub mod rd;
