// SPDX-License-Identifier: GPL-2.0
//! Being told of changes of an address space of [`crate::memory`].

use crate::memory::surroundings;
use kernel::{mm::MmWithUser, sync::Arc, world::world};
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Unmap,
    Release,
    Clear,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) event: Event,
    pub(crate) blockable: bool,
}

pub(crate) trait Invalidate: Send + Sync + 'static {
    fn invalidate(&self, range: &Range) -> bool;
}

pub(crate) struct Registration<T: Invalidate> {
    target: Arc<T>,
    mm: usize,
    number: u64,
}

impl<T: Invalidate> Registration<T> {
    pub(crate) fn new(mm: &MmWithUser, target: Arc<T>) -> Self {
        let (mm, told) = (mm.as_raw() as usize, target.clone());
        let number = surroundings().memory.borrow_mut().register(mm, Rc::new(move |range| told.invalidate(range)));
        Self { target, mm, number }
    }
}

pub(crate) trait Settle: Send + Sync {
    fn wait_settled(&self);
}

impl<T: Invalidate> Settle for Registration<T> {
    fn wait_settled(&self) {
        let mm = self.mm;
        kernel::world::might_sleep();
        world().preempt();
        if surroundings().memory.borrow().is_changing(mm) {
            world().wait(move || !surroundings().memory.borrow().is_changing(mm));
        }
    }
}

impl<T: Invalidate> Drop for Registration<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        surroundings().memory.borrow_mut().unregister(self.mm, self.number);
        self.wait_settled();
    }
}
