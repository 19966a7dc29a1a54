// SPDX-License-Identifier: GPL-2.0
//! The driver's own page of doorbells.

use crate::kernel::gate::BoundRef;
use crate::memory::surroundings;
use kernel::prelude::*;

pub(crate) struct RegisterPage {
    _bound: BoundRef,
}

impl RegisterPage {
    pub(crate) fn new(bound: BoundRef, bar: u32, page: u64) -> Result<Self> {
        assert_eq!((bar, page), (2, 0));
        Ok(Self { _bound: bound })
    }

    pub(crate) fn write64<const OFFSET: usize>(&self, value: u64) {
        surroundings().hardware.borrow_mut().doorbell(OFFSET as u32, value);
    }
}
