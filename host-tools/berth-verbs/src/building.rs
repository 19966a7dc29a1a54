// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements that are built call by call. They are kept aside until all are whole, so that all of them are posted or none.

use std::ffi::{c_int, c_uint, c_void};

use berth_abi::wqe::{MAX_INLINE, MAX_SGE, SLOT_WORDS, Sge, Wqe};
use berth_queue::{Data, Operation};

use crate::bound::Change;
use crate::errno::errno;
use crate::rdma_core::{ibv_data_buf, ibv_qp_ex, ibv_sge};
use crate::request::request;

/// What is built between `ibv_wr_start` and `ibv_wr_complete`.
#[derive(Default)]
pub struct Building {
    /// Elements that are whole, and what they do to a window.
    pub elements: Vec<(Wqe, Option<Change>)>,
    /// The last one as it stands in a doorbell's slot, if its data are inline.
    pub slot: Option<[u64; SLOT_WORDS]>,
    /// The one whose data may come yet.
    pub open: Option<Open>,
    /// Why nothing can be posted, an errno value; 0: it can.
    pub error: c_int,
}

/// An element whose data may come yet.
pub struct Open {
    pub wr_id: u64,
    pub flags: c_uint,
    pub operation: Operation,
    pub change: Option<Change>,
    pub data: Stored,
}

/// Data of an element.
pub enum Stored {
    Ranges([Sge; MAX_SGE], usize),
    Inline([u8; MAX_INLINE], usize),
}

impl Building {
    /// Makes the open element whole.
    pub fn close(&mut self, sq_sig_all: bool) {
        let Some(open) = self.open.take() else { return };
        let (data, inline) = match &open.data {
            Stored::Ranges(sges, n) => (Data::Ranges(&sges[..*n]), false),
            Stored::Inline(bytes, n) => (Data::Inline(&bytes[..*n]), true),
        };
        let made = request(open.wr_id, open.operation, open.flags, sq_sig_all, data)
            .and_then(|request| request.element().map_err(errno));
        match made {
            Ok(element) => {
                self.slot = if inline { element.slot() } else { None };
                self.elements.push((element, open.change));
            }
            Err(error) => self.fail(error),
        }
    }

    /// Whether what has been built binds a window to this key.
    pub fn binds(&self, key: u32) -> bool {
        let open = self.open.as_ref().and_then(|open| open.change.as_ref());
        let changes = self.elements.iter().filter_map(|(_, change)| change.as_ref()).chain(open);
        changes.rev().find(|change| change.is_of(key)).is_some_and(|change| change.binds(key))
    }

    /// The first error is the one that is told.
    pub fn fail(&mut self, error: c_int) {
        if self.error == 0 {
            self.error = error;
        }
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.elements.clear();
        (self.slot, self.open, self.error) = (None, None, 0);
    }

    /// Sets the data of the open element.
    pub fn set_data(&mut self, data: Result<Stored, c_int>) {
        match (data, &mut self.open) {
            (Ok(data), Some(open)) => open.data = data,
            (Ok(_), None) => self.fail(libc::EINVAL),
            (Err(error), _) => self.fail(error),
        }
    }
}

/// Sets one range, by the queue pair's own function for a list.
pub unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let one = ibv_sge { addr, length, lkey };
    // SAFETY: behind `wr_start`; the list has one range.
    if let Some(set) = unsafe { (*qp).wr_set_sge_list } {
        // SAFETY: as above.
        unsafe { set(qp, 1, &raw const one) }
    }
}

/// Likewise one buffer of inline data.
pub unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let one = ibv_data_buf { addr, length };
    // SAFETY: behind `wr_start`; the list has one buffer.
    if let Some(set) = unsafe { (*qp).wr_set_inline_data_list } {
        // SAFETY: as above.
        unsafe { set(qp, 1, &raw const one) }
    }
}
