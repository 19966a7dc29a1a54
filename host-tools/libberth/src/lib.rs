// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User library of the Berth RDMA card.
//!
//! The layers, from the bottom:
//!
//! * [`Device`] is an open `/dev/berthN`: properties, the end node's name, limits, counters, log.
//! * [`Context`] binds it to this process: it owns the doorbell page and gets the connection events.
//! * [`CompletionQueue`] and [`QueuePair`] are mapped queues. Posting and polling take **no system
//!   call** (QP-1); waiting takes an eventfd.
//! * [`Listener`], [`Request`] and [`QueuePair::connect`] make connections (QP-17).
//! * [`QueuePair::set_cap`] bounds what a peer may send in a time, [`CapGroup`] what several may together (CR-10).
//! * [`ProtectionDomain`] and [`Region`] are memory that peers are given keys for; [`WorkRequest::remote`] writes to a
//!   peer's, [`WorkRequest::source`] reads from it (QP-3). [`FileRegion`] is a file of which peers have the key,
//!   [`BufferRegion`] an owned buffer.
//! * [`Stream`] is a byte stream each way over one queue pair with owned buffers: no `unsafe`.
//! * [`Channel`] takes vectors of slices through small buffers, which grow when they need to (BE-1 … BE-9): no `unsafe`.
//!
//! ```no_run
//! use libberth::{Context, Device, QpConfig, Stream};
//! # fn main() -> libberth::Result<()> {
//! let device = Device::open_first()?;
//! let context = Context::new(&device)?;
//! let listener = context.listen(7)?;
//! let request = listener.next(None)?;
//! let mut stream = Stream::new(&context, &QpConfig::default(), 4 << 20)?;
//! stream.post_recv(&[65536; 16])?;
//! request.accept(stream.queue_pair(), b"")?;
//! stream.queue_pair().wait_established(None)?;
//! while let Some(piece) = stream.next_piece(None)? {
//!     println!("{} bytes, {} still to come", piece.len(), piece.remaining());
//! }
//! # Ok(()) }
//! ```
//!
//! # Who may touch a buffer, and when The card reads and writes memory by the process's virtual addresses (VC-1, PC-1).
//! A buffer in a posted element belongs to the card until its completion has been polled, or until its queue pair has
//! been dropped. The raw posting functions are therefore `unsafe`; [`Stream`] keeps that rule by owning the memory. The
//! kernel's and other processes' memory is never at stake: the driver releases pages that the process unmaps (VC-9).
//!
//! # When the card goes
//! Every call and every wait then answers [`Error::DeviceLost`]. The driver takes the doorbell page away; so that
//! a store to it does not end the process, the library catches SIGBUS for addresses of its doorbell pages, and passes
//! on any other.
//!
//! # fork, exec, threads
//! Queues and the doorbell page are not inherited by a child (`VM_DONTCOPY`); a child that wants to use the
//! card opens it anew. In a child every call of an inherited object answers [`Error::NotPermitted`] and touches nothing
//! of the parent's, and dropping one closes its descriptors only. A child made by `vfork` uses the parent's memory itself:
//! its calls are refused, too, but for those without a system call ([`CompletionQueue::poll`], posting), which it must not
//! make. All types may move between threads; a [`CompletionQueue`] and a [`Context`] may be shared by them, and any
//! number of them may wait for the same thing.

mod cap;
mod channel;
mod cm;
mod context;
mod counters;
mod cq;
pub mod credited;
mod device;
mod doorbell;
mod error;
#[cfg(test)]
mod fake;
mod mapping;
mod memory;
mod process;
mod qp;
pub mod raw;
mod region;
mod stream;
mod sys;
mod wait;

pub use berth_abi as abi;
pub use cap::{Cap, CapGroup, CapMember, CapPart};
pub use channel::{Arrived, Channel, ChannelConfig, ChannelError, Fetched, Refused, Status as ChannelStatus};
pub use cm::{Listener, Request};
pub use context::{AccessKind, Context, ContextEvent, PeerAccess, Pinned};
pub use counters::{Counters, Named};
pub use cq::{Completion, CompletionQueue, Status};
pub use device::{Device, Info, Limits, MacAddr, Net};
pub use error::{Error, Limit, Reason, Result};
pub use mapping::{Buffer, FileMap};
pub use memory::{Again, First, SendMemory};
pub use qp::{
    Atomic, Binding, Carrier, ForeignPeer, Local, Mode, QpConfig, QpState, QpStateKind, QueuePair, Trigger, WorkRequest,
};
pub use region::{Access, BufferRegion, FileRegion, ProtectionDomain, Region};
pub use stream::{MAX_SGE_BYTES, Piece, SendBlock, Sent, Stream};

pub use berth_abi::wqe::Sge;
pub use berth_queue::Remote;
