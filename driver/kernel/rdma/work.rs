// SPDX-License-Identifier: GPL-2.0
//! Work requests that the core hands to the driver, and what it hears of them (IBTA 11.4).
//!
//! They are those of queue pairs that the driver serves itself. What a provider posts to hardware never comes here.

use crate::kernel::{bindings, rdma::handler::QpHandler};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::{UserPtr, UserSlice},
};

/// Ranges of a request at most.
pub(crate) const MOST_RANGES: usize = 7;

/// Kind of a packet in a completion's service level: it has a UDP header, behind one of IPv4.
const PACKET_IPV4: u8 = 0b1010;

/// Whose memory the requests of a queue pair name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The process's that posts and polls.
    Process,
    /// The kernel's, by its own addresses.
    Kernel,
}

/// Memory of a request that is not done.
///
/// # Invariants
///
/// The first `count` of `ranges` are those of a request. Whoever posts one leaves its memory alone until the completion has
/// been polled (IBTA 10.2.7.2); the kernel's is there until then.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    memory: Memory,
    /// Address and bytes.
    ranges: [(u64, u32); MOST_RANGES],
    count: usize,
}

impl Posted {
    /// # Safety
    ///
    /// `list` has `count` entries, unless that is not positive, and is that of a request which is being posted to a queue
    /// pair with such memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` there are too many ranges.
    pub(super) unsafe fn new(
        memory: Memory,
        list: *const bindings::ib_sge,
        count: c_int,
    ) -> Result<Self> {
        let mut ranges = [(0, 0); MOST_RANGES];
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        for (n, range) in ranges
            .get_mut(..count)
            .ok_or(EINVAL)?
            .iter_mut()
            .enumerate()
        {
            // SAFETY: By the requirements of this function.
            let sge = unsafe { &*list.add(n) };
            *range = (sge.addr, sge.length);
        }
        // INVARIANT: By the requirements of this function.
        Ok(Self {
            memory,
            ranges,
            count,
        })
    }

    fn ranges(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.ranges[..self.count]
            .iter()
            .map(|&(addr, bytes)| (addr, bytes as usize))
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges().map(|(_, bytes)| bytes as u64).sum()
    }

    /// Reads them, of a send that is being posted, to the beginning of `to`, which has room for all.
    ///
    /// # Errors
    ///
    /// `EFAULT` the process has no such memory.
    pub(crate) fn gather(&self, to: &mut [u8]) -> Result {
        let mut rest = to;
        for (addr, bytes) in self.ranges() {
            let (part, behind) = rest.split_at_mut_checked(bytes).ok_or(EMSGSIZE)?;
            rest = behind;
            match self.memory {
                Memory::Process => UserSlice::new(UserPtr::from_addr(addr as usize), bytes)
                    .reader()
                    .read_slice(part)?,
                // SAFETY: The kernel's memory is there by the type invariant, and does not overlap with what is ours.
                Memory::Kernel => unsafe {
                    core::ptr::copy_nonoverlapping(addr as *const u8, part.as_mut_ptr(), bytes);
                },
            }
        }
        Ok(())
    }

    /// Writes `parts`, one behind the other, of a receive that is being polled; they have no more bytes than it.
    ///
    /// # Errors
    ///
    /// `EFAULT` the process has no such memory.
    pub(crate) fn scatter(self, parts: &[&[u8]]) -> Result {
        let mut ranges = self.ranges();
        let (mut addr, mut room) = (0, 0);
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if room == 0 {
                    (addr, room) = ranges.next().ok_or(EMSGSIZE)?;
                    continue;
                }
                let (now, behind) = rest.split_at(rest.len().min(room));
                match self.memory {
                    Memory::Process => UserSlice::new(UserPtr::from_addr(addr as usize), now.len())
                        .writer()
                        .write_slice(now)?,
                    // SAFETY: As in `gather`.
                    Memory::Kernel => unsafe {
                        core::ptr::copy_nonoverlapping(now.as_ptr(), addr as *mut u8, now.len());
                    },
                }
                (addr, room) = (addr + now.len() as u64, room - now.len());
                rest = behind;
            }
        }
        Ok(())
    }
}

/// A datagram that is to be sent.
pub(crate) struct Send<'a, A> {
    /// The consumer's own.
    pub(crate) wr_id: u64,
    /// There is a completion also if it succeeds.
    pub(crate) signalled: bool,
    /// The receiver is to be told of it.
    pub(crate) solicited: bool,
    /// Immediate data, in network order.
    pub(crate) immediate: Option<[u8; 4]>,
    /// Where to.
    pub(crate) address: &'a A,
    /// The receiver's QPN.
    pub(crate) peer_qpn: u32,
    /// The receiver's Q_Key; if its upper bit is set, the sender's own goes out (IBTA 10.2.5).
    pub(crate) qkey: u32,
    /// Its data.
    pub(crate) data: Posted,
}

/// A receive.
#[derive(Clone, Copy)]
pub(crate) struct Receive {
    /// The consumer's own.
    pub(crate) wr_id: u64,
    /// Where the data go.
    pub(crate) data: Posted,
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is done.
    Success,
    /// Its memory is not there.
    Protection,
    /// Its queue pair has ended before.
    Flushed,
}

/// Of what a completion is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Done {
    /// A send.
    Sent,
    /// A receive.
    Received {
        /// Bytes, the 40 of the GRH included.
        bytes: u32,
        /// The sender's QPN.
        qpn: u32,
        /// The MAC address from which it has come.
        mac: [u8; 6],
        /// Immediate data, in network order.
        immediate: Option<[u8; 4]>,
    },
}

/// A completion.
pub(crate) struct Completion {
    /// The queue pair.
    pub(crate) qp: Arc<QpHandler>,
    /// The request's.
    pub(crate) wr_id: u64,
    /// What has become of it.
    pub(crate) status: Status,
    /// Of what.
    pub(crate) done: Done,
}

impl Completion {
    /// The completion as the core has it; `None` if its queue pair is gone.
    pub(super) fn raw(&self) -> Option<bindings::ib_wc> {
        // SAFETY: A struct of C's, of which all bytes may be zero.
        let mut wc = unsafe { core::mem::zeroed::<bindings::ib_wc>() };
        wc.qp = self.qp.raw()?.as_ptr();
        wc.__bindgen_anon_1.bindgen_union_field = self.wr_id;
        wc.status = match self.status {
            Status::Success => bindings::ib_wc_status_IB_WC_SUCCESS,
            Status::Protection => bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
            Status::Flushed => bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
        };
        wc.port_num = 1;
        match self.done {
            Done::Sent => wc.opcode = bindings::ib_wc_opcode_IB_WC_SEND,
            Done::Received {
                bytes,
                qpn,
                mac,
                immediate,
            } => {
                wc.opcode = bindings::ib_wc_opcode_IB_WC_RECV;
                (wc.byte_len, wc.src_qp, wc.smac) = (bytes, qpn, mac);
                wc.network_hdr_type = bindings::rdma_network_type_RDMA_NETWORK_IPV4 as u8;
                // Processes are not told of that, but UCX finds it here, as mlx5 has it (IBTA A17.4.5.1 wants it told).
                wc.sl = PACKET_IPV4;
                let mut flags = bindings::ib_wc_flags_IB_WC_GRH
                    | bindings::ib_wc_flags_IB_WC_WITH_SMAC
                    | bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE;
                if let Some(immediate) = immediate {
                    flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM;
                    wc.ex.bindgen_union_field = u32::from_ne_bytes(immediate);
                }
                wc.wc_flags = flags as c_int;
            }
        }
        Some(wc)
    }
}
