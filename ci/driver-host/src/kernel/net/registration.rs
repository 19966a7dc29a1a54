// SPDX-License-Identifier: GPL-2.0
//! Making a device known.

use crate::kernel::net::device::{Device, Driver, Rtnl};
use kernel::device::{self, Bound};
use kernel::prelude::*;
use kernel::sync::Arc;

pub(crate) struct Registration<T: Driver>(Arc<Device<T>>);

impl<T: Driver> Registration<T> {
    pub(crate) fn new(_: &device::Device<Bound>, dev: &Arc<Device<T>>) -> Result<Self> {
        let rtnl = Rtnl::lock();
        assert!(!dev.is_known());
        dev.set_known(&rtnl, true);
        Ok(Self(dev.clone()))
    }
}

impl<T: Driver> Drop for Registration<T> {
    fn drop(&mut self) {
        let rtnl = Rtnl::lock();
        self.0.set_up(&rtnl, false).expect("taking it down works");
        self.0.set_known(&rtnl, false);
    }
}
