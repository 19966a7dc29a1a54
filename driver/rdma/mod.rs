// SPDX-License-Identifier: GPL-2.0
//! The card as an RDMA device, for programs that use verbs (AP-1, AP-2).
//!
//! It stands on the network device, whose addresses are its GIDs. All memory is on demand: a region is a key, and pins
//! nothing. Peers speak plain RoCE version 2; that a queue pair's peer may be a Berth makes no difference here.

mod name;
mod objects;
mod served;

use crate::{
    kernel::{net::device::Device, rdma::registration::Registration, workqueue},
    net::{nic::Nic, Upper},
    process::Registry,
    rdma::{name::Naming, served::Served},
};
use kernel::{
    device::{self, Bound},
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

/// The RDMA device of a card.
#[pin_data]
pub(crate) struct Verbs {
    naming: Arc<Naming>,
    module: &'static ThisModule,
    #[pin]
    registered: Mutex<Option<Registration<Served>>>,
}

impl Verbs {
    /// Makes the RDMA device of a card, which nobody sees yet.
    pub(crate) fn new(registry: &Arc<Registry>, module: &'static ThisModule) -> Result<Arc<Self>> {
        let naming = Naming::new(registry.clone())?;
        Arc::pin_init(
            pin_init!(Self {
                naming,
                module,
                registered <- new_mutex!(None, "berth_verbs"),
            }),
            GFP_KERNEL,
        )
    }
}

impl Upper for Verbs {
    fn comes(&self, parent: &device::Device<Bound>, device: &Arc<Device<Nic>>) -> Result {
        let mut registered = self.registered.lock();
        if registered.is_some() {
            return Ok(());
        }
        let guid = crate::card::net::guid(device.address_now());
        let served = Served {
            naming: self.naming.clone(),
            device: device.clone(),
        };
        // SAFETY: The network device stays registered until `goes` has returned.
        *registered = Some(unsafe {
            Registration::new(
                c"berth%d",
                parent,
                device.as_raw(),
                guid,
                self.module,
                served,
            )
        }?);
        Ok(())
    }

    fn goes(&self) {
        let registration = self.registered.lock().take();
        drop(registration);
        workqueue::cancel::<_, 0>(&self.naming);
    }
}
