// SPDX-License-Identifier: GPL-2.0
//! The card as an RDMA device, for programs that use verbs (AP-1, AP-2).
//!
//! It stands on the network device, whose addresses are its GIDs, and whose frames datagrams are. All memory is on demand: a region is a key, and pins
//! nothing. With a peer that is a Berth as well, a queue pair has credit lists; with all others it speaks plain RoCE
//! version 2, and no program notices.

mod completions;
mod datagram;
mod mad;
mod name;
mod neighbours;
mod objects;
mod packet;
mod ring;
mod served;

use crate::{
    kernel::{net::device::Device, rdma::registration::Registration, workqueue},
    net::{nic::Nic, Upper},
    process::Registry,
    rdma::{datagram::Exchange, name::Naming, served::Served},
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
    registered: Mutex<Option<Registered>>,
}

/// What there is while the core knows the device. The registration goes first.
struct Registered {
    registration: Registration<Served>,
    exchange: Arc<Exchange>,
    device: Arc<Device<Nic>>,
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
        let exchange = Exchange::new(self.naming.registry.card.clone(), device.clone())?;
        let served = Served {
            naming: self.naming.clone(),
            device: device.clone(),
            exchange: exchange.clone(),
        };
        // QP 1 is made while the device is made known.
        device.data.taker.set(Some(exchange.clone()));
        // SAFETY: The network device stays registered until `goes` has returned.
        let registration = unsafe {
            Registration::new(
                c"berth%d",
                parent,
                device.as_raw(),
                guid,
                self.module,
                served,
            )
        }
        .inspect_err(|_| device.data.taker.set(None))?;
        *registered = Some(Registered {
            registration,
            exchange,
            device: device.clone(),
        });
        Ok(())
    }

    fn goes(&self) {
        let registered = self.registered.lock().take();
        if let Some(registered) = registered {
            drop(registered.registration);
            registered.device.data.taker.set(None);
            registered.exchange.end();
        }
        workqueue::cancel::<_, 0>(&self.naming);
    }
}
