// SPDX-License-Identifier: GPL-2.0
//! Event descriptors, which count how often they are signalled. All from 0 on are open.

use crate::memory::surroundings;
use kernel::prelude::*;

pub(crate) struct EventFd(i32);

impl EventFd {
    pub(crate) fn from_fd(fd: i32) -> Result<Option<Self>> {
        match fd {
            -1 => Ok(None),
            0.. => Ok(Some(Self(fd))),
            _ => Err(EBADF),
        }
    }

    pub(crate) fn signal(&self) {
        *surroundings().signals.borrow_mut().entry(self.0).or_default() += 1;
    }
}
