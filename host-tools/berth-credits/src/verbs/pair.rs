// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registered memory, and queue pairs that name parts of it. The only unsafe code of this transport.

use rdma_mummy_sys::ibv_sge;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::completion::{BasicCompletionQueue, GenericCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device_context::{LinkLayer, Mtu};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostRecvError, PostSendError, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState,
    SetScatterGatherEntry, WorkRequestFlags,
};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// Parts of memory that a request names, at most.
const PARTS: u32 = 2;

/// Memory that the NIC may read and write. All of it is atomics, because the NIC may write at any time.
#[derive(Debug)]
pub struct Region {
    // Before the memory: it is dropped first.
    registration: Arc<MemoryRegion>,
    // No `Box`, which would claim that nobody else has it.
    bytes: Arc<[AtomicU8]>,
}

impl Region {
    /// New memory, all zero. Not 0 bytes.
    pub fn new(domain: &Arc<ProtectionDomain>, len: usize) -> Result<Self> {
        let bytes: Arc<[AtomicU8]> = std::iter::repeat_with(|| AtomicU8::new(0)).take(len).collect();
        // SAFETY: the bytes may be written though others have references to them, because they are atomics, and every
        // content is valid. They outlive the registration: both are of this struct alone, and the registration goes first.
        let registration = unsafe { domain.reg_mr(bytes.as_ptr().addr(), len, AccessFlags::LocalWrite) };
        Ok(Self { registration: registration.map_err(Error::other)?, bytes })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[AtomicU8] {
        &self.bytes
    }

    /// An entry of a list of memory: bytes of the region, all within it. An entry of no bytes means 2^31 to some NICs.
    fn entry(&self, at: usize, len: u32) -> Result<ibv_sge> {
        let part = self.bytes.get(at..).and_then(|bytes| bytes.get(..len as usize)).filter(|part| !part.is_empty());
        let addr = part.ok_or(ErrorKind::InvalidInput)?.as_ptr().addr() as u64;
        Ok(ibv_sge { addr, length: len, lkey: self.registration.lkey() })
    }
}

/// Bytes of a region, not 0: where they begin, and how many they are.
pub type Part<'a> = (&'a Region, usize, u32);

/// Names parts to a request, one behind the other. A request without any is one of no bytes.
fn name(request: impl SetScatterGatherEntry, parts: &[Part<'_>]) -> Result<()> {
    let mut entries = [ibv_sge { addr: 0, length: 0, lkey: 0 }; PARTS as usize];
    let entries = entries.get_mut(..parts.len()).ok_or(ErrorKind::InvalidInput)?;
    for (entry, (region, at, len)) in entries.iter_mut().zip(parts) {
        *entry = region.entry(*at, *len)?;
    }
    // SAFETY: each range is its region's. Should a region go before the NIC has done the request, then its registration
    // goes before its memory, and the NIC refuses the request.
    unsafe { request.setup_sge_list(entries) };
    Ok(())
}

/// Where the other end is, and how it is reached.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Number of the port of this end.
    pub port: u8,
    /// Whether the port is InfiniBand or Ethernet.
    pub layer: LinkLayer,
    /// Number of the GID of this end.
    pub gid_index: u8,
    /// Of both ends, the smaller one.
    pub mtu: Mtu,
    /// LID of the other end, on InfiniBand.
    pub lid: u16,
    /// GID of the other end.
    pub gid: [u8; 16],
    /// Time until a packet is sent again: 4.096 µs · 2^this.
    pub timeout: u8,
    /// How often a message is sent again for which the other end has no receive; 7: for ever.
    pub rnr_retry: u8,
}

/// A reliable connection's queue pair.
#[derive(Debug)]
pub struct Pair {
    inner: BasicQueuePair,
}

impl Pair {
    /// A new one, for so many sends, and so many receives, at a time. `headers`: each names two parts of memory.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        queue: &Arc<BasicCompletionQueue>,
        depth: u32,
        headers: bool,
    ) -> Result<Self> {
        let parts = if headers { PARTS } else { 1 };
        let queue = GenericCompletionQueue::from(Arc::clone(queue));
        let mut builder = domain.create_qp_builder();
        builder.setup_send_cq(queue.clone()).setup_recv_cq(queue);
        builder.setup_max_send_wr(depth).setup_max_recv_wr(depth);
        builder.setup_max_send_sge(parts).setup_max_recv_sge(parts);
        Ok(Self { inner: builder.build().map_err(Error::other)? })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.inner.qp_number()
    }

    fn modify(&mut self, state: QueuePairState, set: impl FnOnce(&mut QueuePairAttribute)) -> Result<()> {
        let mut attributes = QueuePairAttribute::new();
        attributes.setup_state(state);
        set(&mut attributes);
        self.inner.modify(&attributes).map_err(Error::other)
    }

    /// Receives can be posted from now on. The other end may not reach any memory but by them.
    pub fn begin(&mut self, port: u8) -> Result<()> {
        self.modify(QueuePairState::Init, |attributes| {
            attributes.setup_pkey_index(0).setup_port(port).setup_access_flags(AccessFlags::none());
        })
    }

    /// As `begin`, where the connection manager connects it. It may send something of its own to a queue pair, for
    /// which that must allow access; to no memory, as none is registered for that.
    pub fn begin_managed(&mut self) -> Result<()> {
        self.modify(QueuePairState::Init, |attributes| {
            attributes.setup_access_flags(AccessFlags::RemoteRead | AccessFlags::RemoteWrite);
        })
    }

    /// Connects it: sends can be posted from now on. `psns`: the first that the other end sends, and that this one sends.
    pub fn connect(&mut self, path: &Path, number: u32, psns: [u32; 2]) -> Result<()> {
        let mut address = AddressHandleAttribute::new();
        address.setup_port(path.port).setup_dest_lid(path.lid);
        if path.layer == LinkLayer::Ethernet {
            address.setup_grh(&Gid { raw: path.gid }, 0, path.gid_index, 64, 0);
        }
        self.modify(QueuePairState::ReadyToReceive, |attributes| {
            attributes.setup_address_vector(&address).setup_path_mtu(path.mtu).setup_dest_qp_num(number);
            attributes.setup_rq_psn(psns[0]).setup_max_dest_read_atomic(0).setup_min_rnr_timer(1);
        })?;
        self.modify(QueuePairState::ReadyToSend, |attributes| {
            attributes.setup_rnr_retry(path.rnr_retry).setup_retry_cnt(7).setup_timeout(path.timeout);
            attributes.setup_sq_psn(psns[1]).setup_max_read_atomic(0);
        })
    }

    /// Posts a receive into memory.
    pub fn receive(&mut self, id: u64, parts: &[Part<'_>]) -> Result<()> {
        let mut guard = self.inner.start_post_recv();
        name(guard.construct_wr(id), parts)?;
        guard.post().map_err(|error| match error {
            PostRecvError::Ibverbs(error)
            | PostRecvError::InvalidWorkRequest(error)
            | PostRecvError::InvalidQueuePair(error)
            | PostRecvError::NotEnoughResources(error) => error,
            other => Error::other(other),
        })
    }

    /// Sends bytes of memory, perhaps none, and perhaps immediate data.
    pub fn send(&mut self, id: u64, parts: &[Part<'_>], immediate: Option<u32>) -> Result<()> {
        let mut guard = self.inner.start_post_send();
        let request = guard.construct_wr(id, WorkRequestFlags::Signaled);
        let request = match immediate {
            Some(immediate) => request.setup_send_imm(immediate.to_be()),
            None => request.setup_send(),
        };
        name(request, parts)?;
        guard.post().map_err(|error| match error {
            PostSendError::Ibverbs(error)
            | PostSendError::InvalidWorkRequest(error)
            | PostSendError::InvalidQueuePair(error)
            | PostSendError::NotEnoughResources(error) => error,
            other => Error::other(other),
        })
    }
}

/// An entry of a completion queue: a request that the NIC is done with.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// As it was posted.
    pub id: u64,
    /// `ibv_wc_status`: 0 is success, and without that nothing else but `id` is true.
    pub status: u32,
    /// `ibv_wc_opcode`.
    pub opcode: u32,
    /// Bytes that were received.
    pub len: u32,
    /// What was sent with them, if anything was.
    pub immediate: u32,
}

/// All that is done now.
pub fn done(queue: &BasicCompletionQueue, into: &mut Vec<Entry>) -> Result<()> {
    let poller = match queue.start_poll() {
        Ok(poller) => poller,
        Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(()),
        Err(PollCompletionQueueError::Ibverbs(error)) => return Err(error),
        Err(other) => return Err(Error::other(other)),
    };
    into.extend(poller.map(|done| Entry {
        id: done.wr_id(),
        status: done.status(),
        opcode: done.opcode(),
        len: done.byte_len(),
        immediate: u32::from_be(done.imm_data()),
    }));
    Ok(())
}
