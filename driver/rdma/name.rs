// SPDX-License-Identifier: GPL-2.0
//! The card's address, which comes from its GIDs.

use crate::{card::State, process::Registry};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    workqueue::{Work, WorkItem},
};

/// Path MTU of a card that gets its address from a GID: the most. Each queue pair has a smaller one of its own.
const MTU: u32 = 4096;

/// Gives the card the first IPv4 address of its network device, unless its user has given it another one.
#[pin_data]
pub(super) struct Naming {
    pub(super) registry: Arc<Registry>,
    /// The address that the card is to have; 0: of no GID yet.
    wanted: Atomic<u32>,
    /// The address that the card has got in this way.
    given: Atomic<u32>,
    /// The network device's MAC address, when that GID came.
    mac: Atomic<u64>,
    #[pin]
    work: Work<Naming>,
}

impl_has_work! {
    impl HasWork<Self> for Naming { self.work }
}

impl Naming {
    pub(super) fn new(registry: Arc<Registry>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                registry,
                wanted: Atomic::new(0),
                given: Atomic::new(0),
                mac: Atomic::new(0),
                work <- new_work!("berth_naming"),
            }),
            GFP_KERNEL,
        )
    }

    /// A GID has come that has this IPv4 address. Called with the network configuration locked.
    pub(super) fn comes(self: &Arc<Self>, ipv4: u32, [a, b, c, d, e, f]: [u8; 6]) {
        if self.wanted.load(Relaxed) == 0 {
            let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
            self.mac.store(mac, Relaxed);
            self.wanted.store(ipv4, Relaxed);
            let _ = self.registry.card.queue.enqueue(self.clone());
        }
    }

    /// That GID has gone; the card keeps the address until another one comes.
    pub(super) fn goes(&self, ipv4: u32) {
        if self.wanted.load(Relaxed) == ipv4 {
            self.wanted.store(0, Relaxed);
        }
    }

    fn name_card(&self) -> Result {
        let (ipv4, card) = (self.wanted.load(Relaxed), &self.registry.card);
        let _naming = card.naming.lock();
        let mut name = *card.net.lock();
        let given = self.given.load(Relaxed);
        if ipv4 == 0 || name.ipv4 == ipv4 || (name.ipv4 != 0 && name.ipv4 != given) {
            return Ok(());
        }
        let [_, _, mac @ ..] = self.mac.load(Relaxed).to_be_bytes();
        let mtu = if name.mtu == 0 { MTU } else { name.mtu };
        name.rename(ipv4, mtu, mac);
        match card.call(name.command()) {
            // Out of service: it is named when it comes back.
            Err(e) if e == EIO => (),
            result => result.map(drop)?,
        }
        *card.net.lock() = name;
        self.given.store(ipv4, Relaxed);
        Ok(())
    }
}

impl WorkItem for Naming {
    type Pointer = Arc<Naming>;

    fn run(this: Arc<Naming>) {
        if let Err(e) = this.name_card() {
            let card = &this.registry.card;
            if card.state() == State::Up && card.may_log() {
                dev_warn!(
                    card.dev,
                    "berth: the card does not take the address of its GID: {:?}\n",
                    e
                );
            }
        }
    }
}
