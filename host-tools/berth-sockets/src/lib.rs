// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Berth for programs that know nothing of it (AP-3): preloaded, this library carries their TCP connections from card to card.
//!
//! A socket stays the kernel's, with its number and all its options. When a connection's other end has a card and this
//! library, the socket is connected to the library instead, within the host, and a thread carries its bytes between there and
//! a queue pair. So whatever a program does with a connected socket is the kernel's doing: reading and writing in any form,
//! waiting in any form, half-close, reset, `dup`, `fork`, `exec`, `splice`, passing it on. Only the calls that make
//! connections and name them are this library's ([`exports`]).
//!
//! What comes from a peer is connected to the program's own listener, whose `accept` and readiness are the kernel's, too.
//! Where the other end has no Berth, or does not listen through it, the kernel connects as it always did.
//!
//! * What stands below: `next` is the C library, `sys` system calls of the library's own, `names` the addresses that programs
//!   see, `rules` what the user wishes, `wire` what two ends say to each other.
//! * What carries: `card` has queue pairs, `pipe` is one connection, `carrier` the thread.
//! * What programs meet: `exports` are the calls, `calls` what they do, `process` the beginning and end, and `fork`.

mod address;
mod calls;
mod card;
mod carrier;
mod channel;
mod descriptors;
mod exports;
mod names;
mod next;
mod pipe;
mod process;
mod rules;
mod sys;
#[cfg(test)]
mod tests;
mod wire;
