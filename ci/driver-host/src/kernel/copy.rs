// SPDX-License-Identifier: GPL-2.0
//! Copying pages of [`crate::memory`]: what they hold is a number.

use crate::kernel::pin::SharedPages;
use crate::kernel::worker_mm::WorkerMm;
use crate::memory::surroundings;
use kernel::{
    prelude::*,
    world::{might_sleep, world},
};

impl WorkerMm<'_> {
    pub(crate) fn copy(&self, va: usize, to: &SharedPages) -> Result {
        assert!(va.is_multiple_of(4096));
        let (mm, vpn) = (self.mm().as_raw() as usize, va as u64 / 4096);
        might_sleep();
        world().preempt();
        let surroundings = surroundings();
        if !surroundings.memory.borrow().is_present(mm, vpn, false) {
            return Err(EFAULT);
        }
        surroundings.hardware.borrow().assert_unused(to.addr());
        surroundings.memory.borrow_mut().copy(mm, vpn, to.addr());
        world().preempt();
        Ok(())
    }

    pub(crate) fn bring(&self, va: usize) -> Result {
        assert!(va.is_multiple_of(4096));
        let (mm, vpn) = (self.mm().as_raw() as usize, va as u64 / 4096);
        might_sleep();
        world().preempt();
        if surroundings().memory.borrow().is_stuck(mm, vpn) {
            world().wait(move || {
                !surroundings().memory.borrow().is_stuck(mm, vpn) || surroundings().memory.borrow_mut().take_pass(mm)
            });
        }
        let came = surroundings().memory.borrow_mut().touch(mm, vpn);
        world().preempt();
        came
    }
}
