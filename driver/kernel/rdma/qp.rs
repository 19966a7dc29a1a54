// SPDX-License-Identifier: GPL-2.0
//! Attributes and states of queue pairs, as verbs have them (IBTA 10.3.1, 11.2.5).

use crate::kernel::bindings;
use kernel::prelude::*;

/// Kinds of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpKind {
    /// Of a reliable connection.
    Reliable,
    /// Of unreliable datagrams.
    Datagram,
    /// The one for management datagrams, QPN 1.
    Management,
}

impl QpKind {
    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_type_IB_QPT_RC => Self::Reliable,
            bindings::ib_qp_type_IB_QPT_UD => Self::Datagram,
            bindings::ib_qp_type_IB_QPT_GSI => Self::Management,
            _ => return None,
        })
    }

    fn as_raw(self) -> bindings::ib_qp_type {
        match self {
            Self::Reliable => bindings::ib_qp_type_IB_QPT_RC,
            Self::Datagram => bindings::ib_qp_type_IB_QPT_UD,
            Self::Management => bindings::ib_qp_type_IB_QPT_GSI,
        }
    }
}

/// A queue pair's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpState {
    /// Nothing is posted.
    Reset,
    /// Receives are posted, nothing comes.
    Init,
    /// The peer may send.
    ReadyToReceive,
    /// Both may send.
    ReadyToSend,
    /// What is posted completes in error.
    Error,
}

impl QpState {
    fn from_raw(raw: bindings::ib_qp_state) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::ReadyToReceive,
            bindings::ib_qp_state_IB_QPS_RTS => Self::ReadyToSend,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Error,
            _ => return None,
        })
    }

    fn as_raw(self) -> bindings::ib_qp_state {
        match self {
            Self::Reset => bindings::ib_qp_state_IB_QPS_RESET,
            Self::Init => bindings::ib_qp_state_IB_QPS_INIT,
            Self::ReadyToReceive => bindings::ib_qp_state_IB_QPS_RTR,
            Self::ReadyToSend => bindings::ib_qp_state_IB_QPS_RTS,
            Self::Error => bindings::ib_qp_state_IB_QPS_ERR,
        }
    }
}

/// Numbers and lengths of what a queue pair is made for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    /// Elements of the send queue.
    pub(crate) sends: u32,
    /// Elements of the receive queue.
    pub(crate) receives: u32,
    /// Ranges of a send.
    pub(crate) send_ranges: u32,
    /// Ranges of a receive.
    pub(crate) receive_ranges: u32,
    /// Bytes of data in a send's element.
    pub(crate) inline: u32,
}

impl Capacity {
    pub(super) fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Self {
            sends: raw.max_send_wr,
            receives: raw.max_recv_wr,
            send_ranges: raw.max_send_sge,
            receive_ranges: raw.max_recv_sge,
            inline: raw.max_inline_data,
        }
    }

    pub(super) fn store(self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.sends;
        raw.max_recv_wr = self.receives;
        raw.max_send_sge = self.send_ranges;
        raw.max_recv_sge = self.receive_ranges;
        raw.max_inline_data = self.inline;
    }
}

/// The way to a peer by RoCE version 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Own GID.
    pub(crate) source: [u8; 16],
    /// Its place in the table.
    pub(crate) source_index: u8,
    /// The peer's GID.
    pub(crate) destination: [u8; 16],
    /// The MAC address that frames go to.
    pub(crate) mac: [u8; 6],
    /// Routers that a packet may pass.
    pub(crate) hops: u8,
    /// Traffic class.
    pub(crate) class: u8,
}

/// Attributes of a queue pair that verbs change. Each change names those that its states want.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    /// `IB_QP_*` of those that were given since the queue pair was made.
    given: u32,
    /// `IB_ACCESS_*`.
    pub(super) access: c_int,
    /// The way to the peer.
    pub(crate) path: Path,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// The peer's QPN.
    pub(crate) peer_qpn: u32,
    /// PSN of the first packet that comes.
    pub(crate) peer_psn: u32,
    /// PSN of the first packet that goes.
    pub(crate) psn: u32,
    /// Time that the peer is to wait while there is no receive, as InfiniBand codes it.
    pub(crate) rnr_timer: u8,
    /// How often it may have none in a row; 7: any number of times.
    pub(crate) rnr_retries: u8,
    /// Time-out of acknowledgements: 4.096 µs times 2 to this power; 0: none.
    pub(crate) timeout: u8,
    /// Retries.
    pub(crate) retries: u8,
    /// READs and atomics under way that the peer takes.
    pub(crate) reads: u8,
    /// READs and atomics of the peer that may be under way.
    pub(crate) peer_reads: u8,
    /// Q_Key.
    pub(crate) qkey: u32,
}

impl Attributes {
    /// Takes over those that a call names; gives the state that it asks for, or the present one.
    ///
    /// # Errors
    ///
    /// `EINVAL` the call does not suit the states, or names what cannot be.
    pub(super) fn take(
        &mut self,
        kind: QpKind,
        state: QpState,
        raw: &bindings::ib_qp_attr,
        mask: c_int,
    ) -> Result<QpState> {
        let has = |bit: bindings::ib_qp_attr_mask| mask as u32 & bit != 0;
        let next = match has(bindings::ib_qp_attr_mask_IB_QP_STATE) {
            true => QpState::from_raw(raw.qp_state).ok_or(EINVAL)?,
            false => state,
        };
        if has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE) && raw.cur_qp_state != state.as_raw() {
            return Err(EINVAL);
        }
        // SAFETY: Numbers only.
        if !unsafe {
            bindings::ib_modify_qp_is_ok(
                state.as_raw(),
                next.as_raw(),
                kind.as_raw(),
                mask as bindings::ib_qp_attr_mask,
            )
        } {
            return Err(EINVAL);
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX) && raw.pkey_index != 0 {
            return Err(EINVAL);
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_QKEY) {
            self.qkey = raw.qkey;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS) {
            let has_peer = matches!(state, QpState::ReadyToReceive | QpState::ReadyToSend);
            if kind == QpKind::Reliable && has_peer && self.access != raw.qp_access_flags {
                return Err(EOPNOTSUPP);
            }
            self.access = raw.qp_access_flags;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_AV) {
            self.path = path(&raw.ah_attr)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_PATH_MTU) {
            // 1 is 256 bytes (IBTA 9.4.3); the core has checked it.
            self.mtu = 128u32.checked_shl(raw.path_mtu).ok_or(EINVAL)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_DEST_QPN) {
            self.peer_qpn = raw.dest_qp_num;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_RQ_PSN) {
            self.peer_psn = raw.rq_psn & 0xff_ffff;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_SQ_PSN) {
            self.psn = raw.sq_psn & 0xff_ffff;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER) {
            self.rnr_timer = raw.min_rnr_timer;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY) {
            self.rnr_retries = raw.rnr_retry;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT) {
            self.timeout = raw.timeout;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT) {
            self.retries = raw.retry_cnt;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC) {
            self.reads = raw.max_rd_atomic;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC) {
            self.peer_reads = raw.max_dest_rd_atomic;
        }
        self.given |= mask as u32;
        if next == QpState::Reset {
            *self = Self::default();
        }
        Ok(next)
    }

    /// Says what they are.
    pub(super) fn store(&self, state: QpState, raw: &mut bindings::ib_qp_attr) {
        raw.qp_state = state.as_raw();
        raw.cur_qp_state = state.as_raw();
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        raw.path_mtu = (self.mtu / 128).checked_ilog2().unwrap_or(0);
        raw.qp_access_flags = self.access;
        raw.dest_qp_num = self.peer_qpn;
        raw.rq_psn = self.peer_psn;
        raw.sq_psn = self.psn;
        raw.min_rnr_timer = self.rnr_timer;
        raw.rnr_retry = self.rnr_retries;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retries;
        raw.max_rd_atomic = self.reads;
        raw.max_dest_rd_atomic = self.peer_reads;
        raw.qkey = self.qkey;
        raw.port_num = 1;
        if self.given & bindings::ib_qp_attr_mask_IB_QP_AV != 0 {
            raw.ah_attr.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
            raw.ah_attr.port_num = 1;
            raw.ah_attr.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            raw.ah_attr.grh.sgid_index = self.path.source_index;
            raw.ah_attr.grh.hop_limit = self.path.hops;
            raw.ah_attr.grh.traffic_class = self.path.class;
            // SAFETY: Unions of bytes, of which the type says which part there is.
            unsafe {
                *raw.ah_attr.grh.dgid.raw.as_mut() = self.path.destination;
                raw.ah_attr.__bindgen_anon_1.roce.as_mut().dmac = self.path.mac;
            }
        }
    }
}

/// The way that an address handle names; the core has found out its MAC address.
pub(super) fn path(raw: &bindings::rdma_ah_attr) -> Result<Path> {
    if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE
        || raw.grh.sgid_attr.is_null()
    {
        return Err(EINVAL);
    }
    // SAFETY: The core holds the entry of the GID table during the call, and the type says which part of the union there
    // is; unions of bytes are read.
    Ok(unsafe {
        Path {
            source: *(*raw.grh.sgid_attr).gid.raw.as_ref(),
            source_index: raw.grh.sgid_index,
            destination: *raw.grh.dgid.raw.as_ref(),
            mac: raw.__bindgen_anon_1.roce.as_ref().dmac,
            hops: raw.grh.hop_limit,
            class: raw.grh.traffic_class,
        }
    })
}
