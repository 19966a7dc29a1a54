// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use crate::{
    abi::{
        counters::*,
        ioctl,
        message::{CqCreate, CqDestroy},
    },
    kernel::eventfd::EventFd,
    process::{
        object::offset_of,
        owned::{Cq, Name, Notify},
        Context,
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// Entries of a completion queue at most: the card has room for the power of two.
pub(crate) const MAX_ENTRIES: u32 = 1 << 15;

impl Context {
    /// Makes a completion queue of which an eventfd tells, and gives it for [`Self::end_cq`].
    pub(crate) fn create_cq(&self, arg: &mut ioctl::CreateCq) -> Result<Arc<Cq>> {
        let told = match EventFd::from_fd(arg.event_fd)? {
            None => Notify::Nobody,
            Some(fd) => Notify::Fd(fd),
        };
        self.create_cq_with(arg, told)
    }

    /// Likewise one of which `told` is told.
    pub(crate) fn create_cq_with(
        &self,
        arg: &mut ioctl::CreateCq,
        told: Notify,
    ) -> Result<Arc<Cq>> {
        if !(1..=MAX_ENTRIES).contains(&arg.entries) {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let entries = arg.entries.next_power_of_two().max(2);
        let generation = self.card.generation();
        let epoch = self.card.epoch.load(Relaxed);
        let bytes = entries as usize * crate::abi::wqe::CQE_BYTES as usize;
        let memory = self.shared(bytes)?;
        let cqn = {
            let mut tables = self.registry.tables.lock();
            let owners = &tables.cq_owners[..self.registry.process_cqs() as usize];
            let place = tables.free_place(owners, self, self.registry.max_process_cqs)?;
            tables.cq_owners[place] = self.asid as u8;
            place as u32
        };
        let cq = Arc::pin_init(
            Cq {
                cqn,
                identity: self.new_identity(),
                memory,
                told,
                users: Atomic::new(0),
            },
            GFP_KERNEL,
        );
        let cq = match cq {
            Ok(cq) => cq,
            Err(e) => {
                self.registry.tables.lock().cq_owners[cqn as usize] = 0;
                return Err(e);
            }
        };
        // Known before the card can notify it.
        self.registry.tables.lock().cqs[cqn as usize] = Some(cq.clone());
        let create = CqCreate {
            cqn,
            uar: self.asid,
            log2_entries: entries.ilog2(),
            base: cq.memory.addr(),
        };
        let made = self.card.call_for(generation, create.encode());
        let result = made.and_then(|_| {
            let mut objects = self.objects.lock();
            if self.card.epoch.load(Relaxed) != epoch {
                return Err(EIO);
            }
            let _ = objects.cqs.push_within_capacity(cq.clone());
            self.card.counters.inc(D_CQS);
            Ok(())
        });
        if let Err(e) = result {
            self.card.end_dma_after(e);
            self.forget_cq(&cq);
            return Err(e);
        }
        arg.entries = entries;
        arg.cqn = cqn;
        arg.bytes = cq.memory.bytes() as u32;
        arg.offset = offset_of(cq.identity);
        arg.identity = cq.identity;
        Ok(cq)
    }

    pub(super) fn forget_cq(&self, cq: &Arc<Cq>) {
        let gone = {
            let mut tables = self.registry.tables.lock();
            let place = &mut tables.cqs[cq.cqn as usize];
            match place {
                Some(there) if Arc::ptr_eq(there, cq) => {
                    let gone = place.take();
                    tables.cq_owners[cq.cqn as usize] = 0;
                    gone
                }
                _ => None,
            }
        };
        drop(gone);
    }

    pub(super) fn find_cq(&self, name: Name) -> Result<Arc<Cq>> {
        let objects = self.objects.lock();
        let found = objects.cqs.iter().find(|c| name.is(c.cqn, c.identity));
        found.cloned().ok_or(ENOENT)
    }

    /// Destroys this completion queue, and no later one with the same number.
    pub(crate) fn end_cq(&self, cq: &Arc<Cq>) -> Result {
        self.destroy_cq(Name {
            number: cq.cqn,
            identity: cq.identity,
        })
    }

    /// Destroys a completion queue.
    pub(crate) fn destroy_cq(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let cqn = name.number;
        let _control = self.control.lock();
        let generation = self.card.generation();
        let cq = self.find_cq(name)?;
        if cq.users.load(Relaxed) != 0 {
            return Err(EBUSY);
        }
        self.card
            .end_object(generation, CqDestroy { cqn }.encode())?;
        self.remove_cq(&cq);
        self.forget_cq(&cq);
        Ok(())
    }

    pub(super) fn remove_cq(&self, cq: &Arc<Cq>) {
        let mut objects = self.objects.lock();
        let found = objects.cqs.iter().position(|c| Arc::ptr_eq(c, cq));
        let gone = found.and_then(|i| objects.cqs.remove(i).ok());
        drop(objects);
        if gone.is_some() {
            self.card.counters.sub(D_CQS, 1);
        }
    }
}
