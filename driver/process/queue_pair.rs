// SPDX-License-Identifier: GPL-2.0
//! Queue pairs.

use crate::{
    abi::{
        card::*,
        counters::*,
        host::HOST_CLOCK_HZ,
        ioctl,
        message::{CmdDone, Disconnect, QpCap, QpCreate, QpDestroy, QpQuery, QpRecall, QpTrigger},
        ring::*,
        rows::ROW_CLOCK,
    },
    card::{Entry, PAGE},
    kernel::errno::unsupported,
    pages::aliases::Aliases,
    process::{
        object::offset_of,
        owned::{DomainUse, Ended, Name, Qp},
        Context,
    },
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

impl Context {
    pub(super) fn find_qp(&self, name: Name) -> Result<Arc<Qp>> {
        let objects = self.objects.lock();
        let found = objects.qps.iter().find(|q| name.is(q.qpn, q.identity));
        found.cloned().ok_or(ENOENT)
    }

    /// Makes a queue pair, of whose end the context's events tell, and gives it for [`Self::end_qp`].
    pub(crate) fn create_qp(&self, arg: &mut ioctl::CreateQp) -> Result<Arc<Qp>> {
        self.create_qp_with(arg, None)
    }

    /// Likewise one of whose end `told` is told.
    pub(crate) fn create_qp_with(
        &self,
        arg: &mut ioctl::CreateQp,
        told: Option<Arc<dyn Ended>>,
    ) -> Result<Arc<Qp>> {
        let depth = 1..=MAX_DEPTH;
        if !depth.contains(&arg.sq_depth)
            || !depth.contains(&arg.rq_depth)
            || !is_trigger(arg.trigger, arg.trigger_index)
            || arg.max_list > MAX_LIST
            || u64::from(arg.block) % PAGE != 0
            || arg.block > 1 << 20
            || arg.retries > ioctl::MAX_RETRIES
            || arg.mode > u32::from(MODE_MESSAGE)
            || u32::from(arg.reads.max(arg.peer_reads)) > MAX_READS
            || (arg.domain == 0 && arg.domain_identity != 0)
            || arg.aliases > ioctl::ALIASES_IF_FREE
            || arg.reserved != 0
            || arg.carrier > u32::from(CARRIER_WRITE)
        {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let cqs = [
            self.find_cq(Name {
                number: arg.send_cqn,
                identity: arg.send_cq,
            })?,
            self.find_cq(Name {
                number: arg.recv_cqn,
                identity: arg.recv_cq,
            })?,
        ];
        let domain = match arg.domain {
            0 => None,
            number => Some(self.find_domain(Name {
                number,
                identity: arg.domain_identity,
            })?),
        };
        let aliases = self.aliases(arg.aliases)?;
        let sq_depth = arg.sq_depth.next_power_of_two().max(MIN_SQ_DEPTH);
        let rq_depth = arg.rq_depth.next_power_of_two();
        let wqe = crate::abi::wqe::WQE_BYTES;
        let rq_start = sq_depth * wqe;
        let generation = self.card.generation();
        let epoch = self.card.epoch.load(Relaxed);
        let memory = self.shared((rq_start + rq_depth * wqe) as usize)?;
        let qpn = {
            let mut tables = self.registry.tables.lock();
            let place = tables.free_place(&tables.qps, self, self.registry.max_process_qps)?;
            tables.qps[place] = self.asid as u8;
            self.card.sizes.first_qpn + place as u32
        };
        let addr = memory.addr();
        let create = QpCreate {
            qpn,
            asid: self.asid as u8,
            uar: self.asid as u8,
            log2_sq: sq_depth.ilog2() as u8,
            log2_rq: rq_depth.ilog2() as u8,
            send_cqn: arg.send_cqn as u16,
            recv_cqn: arg.recv_cqn as u16,
            trigger: arg.trigger as u8,
            trigger_index: arg.trigger_index as u8,
            max_list: arg.max_list as u8,
            mode: arg.mode as u8,
            carrier: arg.carrier as u8,
            block: self.block(arg.block, aliases.is_some()),
            sq_base: addr,
            rq_base: addr + u64::from(rq_start),
            timeout: arg.timeout,
            retries: arg.retries,
            domain: arg.domain as u16,
            reads: arg.reads as u8,
            peer_reads: arg.peer_reads as u8,
        };
        let create = create.encode();
        let qp = Arc::pin_init(
            {
                for cq in &cqs {
                    cq.users.add(1, Relaxed);
                }
                Qp {
                    qpn,
                    identity: self.new_identity(),
                    memory,
                    cqs,
                    told,
                    create,
                    _domain: domain.map(DomainUse::of),
                    aliases,
                }
            },
            GFP_KERNEL,
        );
        let qp = match qp {
            Ok(qp) => qp,
            Err(e) => {
                self.forget_qp(qpn);
                return Err(e);
            }
        };
        let made = self.card.call_for(generation, create);
        let result = made.and_then(|_| {
            let mut objects = self.objects.lock();
            if self.card.epoch.load(Relaxed) != epoch {
                return Err(EIO);
            }
            let _ = objects.qps.push_within_capacity(qp.clone());
            self.card.counters.inc(D_QPS);
            Ok(())
        });
        if let Err(e) = result {
            self.card.end_dma_after(e);
            self.forget_qp(qpn);
            return Err(e);
        }
        arg.sq_depth = sq_depth;
        arg.rq_depth = rq_depth;
        arg.qpn = qpn;
        arg.bytes = qp.memory.bytes() as u32;
        arg.offset = offset_of(qp.identity);
        arg.rq_start = rq_start;
        arg.identity = qp.identity;
        if let Some(aliases) = &qp.aliases {
            aliases.set_qpn(qpn);
            arg.first_alias = aliases.first();
        }
        Ok(qp)
    }

    /// Aliases for a queue pair, as `wanted` says.
    fn aliases(&self, wanted: u32) -> Result<Option<Aliases>> {
        if wanted == ioctl::ALIASES_NONE {
            return Ok(None);
        }
        let aliases = match self.space.has_pool() {
            true => self.space.aliases(),
            false => Err(unsupported()),
        };
        match aliases {
            Ok(aliases) => Ok(Some(aliases)),
            Err(_) if wanted == ioctl::ALIASES_IF_FREE => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Bytes of the blocks of a queue pair that wants `bytes`: its process may have a copy of one, if it is to have copies.
    fn block(&self, bytes: u32, aliases: bool) -> u32 {
        let block = self.space.block(bytes);
        match aliases {
            true => block.min(self.space.copy_block()),
            false => block,
        }
    }

    /// Waits until aliases of a queue pair can be used again, and says which sends are cheaper by copy.
    ///
    /// # Errors
    ///
    /// `EINVAL` the aliases are not its, `EBUSY` the card has some of what is under them.
    pub(crate) fn free_aliases(&self, arg: &mut ioctl::Aliases) -> Result {
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        let qp = self.find_qp(name)?;
        if arg.reserved != 0 {
            return Err(EINVAL);
        }
        let asked = qp.aliases.as_ref().map_or(0, Aliases::asked);
        arg.copy_most = self.space.copy_most(asked, arg.pinned);
        if arg.aliases == 0 {
            return Ok(());
        }
        let aliases = qp.aliases.as_ref().ok_or(EINVAL)?;
        if !aliases.have(arg.first, arg.aliases) {
            return Err(EINVAL);
        }
        // Firmware answers behind the requests for pages that the card has written before, so these are known then.
        self.query_qp(name)?;
        self.space.wait_aliases_gone(arg.first, arg.aliases)
    }

    /// Notes which memory the next element under an alias has, which is to be pinned as a whole (VC-7).
    ///
    /// # Errors
    ///
    /// `EINVAL` the alias is not its or not for that, or the memory cannot be under it; `ENOMEM`.
    pub(crate) fn note_whole(&self, arg: &ioctl::Whole) -> Result {
        let qp = self.find_qp(Name {
            number: arg.qpn,
            identity: arg.identity,
        })?;
        let aliases = qp.aliases.as_ref().ok_or(EINVAL)?;
        if arg.reserved != 0 || !aliases.have(arg.alias, 1) {
            return Err(EINVAL);
        }
        self.space.note_whole(arg)
    }

    fn forget_qp(&self, qpn: u32) {
        let mut tables = self.registry.tables.lock();
        let place = &mut tables.qps[(qpn - self.card.sizes.first_qpn) as usize];
        if u32::from(*place) == self.asid {
            *place = 0;
        }
    }

    /// Destroys this queue pair, and no later one with the same number.
    pub(crate) fn end_qp(&self, qp: &Arc<Qp>) -> Result {
        self.destroy_qp(Name {
            number: qp.qpn,
            identity: qp.identity,
        })
    }

    /// Destroys a queue pair.
    pub(crate) fn destroy_qp(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let qpn = name.number;
        let _control = self.control.lock();
        let generation = self.card.generation();
        let qp = self.find_qp(name)?;
        self.end_on_card(generation, qpn)?;
        self.remove_qp(&qp);
        Ok(())
    }

    /// Ends the card's part of a queue pair; nothing of it is under way then.
    fn end_on_card(&self, generation: u32, qpn: u32) -> Result {
        if self.space.asks(qpn) {
            // Disconnects first, so that its elements complete as flushed and not as failed.
            let disconnect = Disconnect { qpn }.encode();
            let _ = self.card.call_for(generation, disconnect);
        }
        self.space.end_requests(qpn);
        let ended = self.card.end_object(generation, QpDestroy { qpn }.encode());
        self.space.end_requests(0);
        ended
    }

    /// Makes a queue pair as it was when it was made: without a connection, and with empty queues. What was posted has
    /// completed by then. After an error the card may have none, and the call may be made again.
    ///
    /// # Errors
    ///
    /// `EIO` the card is out of service, `EBUSY` or `ENOMEM` it could not be asked now.
    pub(crate) fn reset_qp(&self, name: impl Into<Name>) -> Result {
        let _control = self.control.lock();
        let generation = self.card.generation();
        let qp = self.find_qp(name.into())?;
        self.end_on_card(generation, qp.qpn)?;
        let made = self.card.call_for(generation, qp.create);
        made.map(|_| ()).inspect_err(|e| {
            self.card.end_dma_after(*e);
        })
    }

    pub(super) fn remove_qp(&self, qp: &Arc<Qp>) {
        let gone = {
            let mut objects = self.objects.lock();
            let found = objects.qps.iter().position(|q| Arc::ptr_eq(q, qp));
            let gone = found.and_then(|i| objects.qps.remove(i).ok());
            if gone.is_some() {
                // Its events are dropped, because its number may have a new owner before they are
                // taken.
                let mut events = self.events.lock();
                events.queue.retain(|e| e.identity != qp.identity);
            }
            gone
        };
        if gone.is_some() {
            self.card.counters.sub(D_QPS, 1);
            self.forget_qp(qp.qpn);
        }
    }

    /// Has firmware carry out a command for a queue pair of this context.
    pub(super) fn call_for_qp(&self, name: Name, entry: Entry) -> Result<Entry> {
        let _control = self.control.lock();
        // The generation is read first, so that what is found then is of that run of firmware or of
        // a later one.
        let generation = self.card.generation();
        self.find_qp(name)?;
        self.card.call_for(generation, entry)
    }

    /// Has the card give receives of a queue pair back that nothing has come for: they complete as recalled.
    ///
    /// # Errors
    ///
    /// `EBUSY` it has no connection yet.
    pub(crate) fn recall(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let recall = QpRecall { qpn: name.number };
        self.call_for_qp(name, recall.encode())?;
        Ok(())
    }

    /// Changes when a queue pair's credit lists go.
    pub(crate) fn set_trigger(&self, arg: &ioctl::SetTrigger) -> Result {
        if arg.reserved != 0 || !is_trigger(arg.trigger, arg.trigger_index) {
            return Err(EINVAL);
        }
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        let change = QpTrigger {
            qpn: arg.qpn,
            trigger: arg.trigger as u8,
            trigger_index: arg.trigger_index as u8,
        };
        self.call_for_qp(name, change.encode())?;
        Ok(())
    }

    /// Sets or ends the maximum bandwidth of what a queue pair receives.
    pub(crate) fn set_cap(&self, arg: &ioctl::SetCap) -> Result {
        // The largest rate is more than any wire carries, so that what is above it means the same.
        let of_second = arg
            .rate
            .saturating_mul(u64::from(CAP_PARTS) * u64::from(ROW_CLOCK));
        let clock = self.card.regs.read(HOST_CLOCK_HZ);
        // A card that is gone, or has no clock, has no rate.
        let rate = of_second.checked_div(clock.into()).ok_or(EIO)?;
        let rate = rate.min(CAP_RATE_MAX.into()) as u32;
        if (arg.burst == 0) != (arg.rate == 0)
            || arg.burst > CAP_BURST_MAX
            || (rate == 0 && arg.rate != 0)
        {
            return Err(EINVAL);
        }
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        let cap = QpCap {
            qpn: arg.qpn,
            rate,
            burst: arg.burst,
        };
        self.call_for_qp(name, cap.encode())?;
        Ok(())
    }

    /// State of a queue pair.
    pub(crate) fn query_qp(&self, name: impl Into<Name>) -> Result<QpState> {
        let name = name.into();
        let query = QpQuery { qpn: name.number };
        let done = CmdDone::decode(&self.call_for_qp(name, query.encode())?);
        Ok(QpState::from_results(&done.results))
    }
}
