// SPDX-License-Identifier: GPL-2.0
//! What verbs ask of the card.

use crate::{
    abi::{
        card::{ABI_VERSION, MAX_DEPTH, MAX_READS, PCI_DEVICE, PCI_VENDOR},
        counters::{
            DRV_COUNTER_TABLE, FW_COUNTER_TABLE, NUM_FW_COUNTERS, NUM_RTL_COUNTERS,
            RTL_COUNTER_TABLE,
        },
        host::HOST_CLOCK_HZ,
        ioctl,
        message::{QpPeer, ALL_RIGHTS},
        ring::MODE_MESSAGE,
        rows::recv,
        verbs::{VerbsContext, VerbsCq, VerbsQp, VerbsQpChange, VerbsSrq, VERBS_ABI},
        wqe::{MAX_INLINE, MAX_MESSAGE, MAX_SGE},
    },
    card::{State, PAGE},
    kernel::{
        net::device::Device,
        rdma::{
            device::{Access, Advice, Driver, Limits, Port, UserMap},
            handler::{CqHandler, QpHandler},
            qp::{Attributes, Capacity, Path, QpKind, QpState},
            udata::Udata,
            work::{Completion, Memory, Receive, Send, MOST_RANGES},
        },
        user_memory,
    },
    net::nic::Nic,
    pages::run::VPN_END,
    process::{
        completion_queue::MAX_ENTRIES,
        doorbells::DOORBELL_OFFSET,
        object::Mapping,
        owned::{Name, Notify},
        region::MAX_CONTEXT_DOMAINS,
        Context,
    },
    rdma::{
        completions::Completions,
        datagram::{Address, Datagram, Exchange},
        name::Naming,
        objects::{
            own, CardCq, CardQp, Domain, Failure, MadeCq, MadeQp, Opened, Owned, Region, Told,
        },
        packet::roce_mtu,
    },
};
use kernel::{
    current,
    mm::virt::flags,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// Ranges of a send: one place of its element is the peer's address (`Wqe::sge`).
const SEND_RANGES: u32 = MAX_SGE as u32 - 1;

/// Elements and ranges of a queue pair of datagrams.
const DATAGRAMS: Capacity = Capacity {
    sends: MAX_DEPTH,
    receives: MAX_DEPTH,
    send_ranges: MOST_RANGES as u32,
    receive_ranges: MOST_RANGES as u32,
    inline: MAX_INLINE as u32,
};

/// Elements of a shared receive queue, and how many of them a queue pair may have: each has a place in its own queue.
const SHARED: u32 = 1 << 15;
const LENT: u32 = 64;

/// What the core's device has of the driver.
pub(super) struct Served {
    pub(super) naming: Arc<Naming>,
    pub(super) device: Arc<Device<Nic>>,
    pub(super) exchange: Arc<Exchange>,
}

/// The IPv4 address of a GID (RFC 4291 2.5.5.2).
fn ipv4_of(gid: [u8; 16]) -> Option<u32> {
    let [front @ .., a, b, c, d] = gid;
    let mapped = front == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    mapped.then_some(u32::from_be_bytes([a, b, c, d]))
}

/// Cycles of 4.096 µs times 2 to the power of `code` (IBTA 9.7.6.1.3); 0 is for ever.
fn cycles(code: u8, hz: u32) -> u32 {
    if code == 0 {
        return u32::MAX;
    }
    let cycles = (4096u64 << (code & 31)).saturating_mul(hz.into()) / 1_000_000_000;
    // 0 would be the default.
    cycles.clamp(1, u32::MAX.into()) as u32
}

/// The time that a foreign peer is to wait. Code 0 is two thirds of a second (IBTA 9.7.5.2.8), which the connection manager
/// gives to all; a peer that needs a page would wait as long.
fn rnr_timer(code: u8) -> u32 {
    // 1.28 ms.
    const PAGE: u32 = 14;
    match code {
        0 => PAGE,
        code => code.into(),
    }
}

/// Whether all of `bytes` from `va` on is the process's, and may be accessed like that.
fn check_memory(va: u64, bytes: u64, access: Access) -> Result {
    let current = current!();
    let mm = current.mm().ok_or(EPERM)?;
    let writes = access.local_write || access.write || access.atomic;
    let end = va.checked_add(bytes).ok_or(EINVAL)?;
    let areas = mm.mmap_read_lock();
    let mut at = va;
    while at < end {
        let area = areas.vma_lookup(at as usize).ok_or(EFAULT)?;
        if writes && area.flags() & flags::WRITE == 0 {
            return Err(EFAULT);
        }
        at = area.end() as u64;
    }
    Ok(())
}

/// `RIGHT_*` that peers have.
fn rights(access: Access) -> u32 {
    let right = |has: bool, right: u32| if has { right } else { 0 };
    right(access.read, recv::RIGHT_READ)
        | right(access.write, recv::RIGHT_WRITE)
        | right(access.atomic, recv::RIGHT_ATOMIC)
}

/// What a region is to be, if it can.
fn registration(va: u64, bytes: u64, access: Access) -> Result<ioctl::Register> {
    let everything = va == 0 && bytes == u64::MAX;
    let bytes = if everything { VPN_END * PAGE } else { bytes };
    if !everything {
        check_memory(va, bytes, access)?;
    }
    let rights = rights(access);
    let mut arg = ioctl::Register::default();
    // What peers may not use has a key that opens nothing.
    if rights != 0 && bytes != 0 {
        (arg.va, arg.len, arg.rights) = (va, bytes, rights);
    }
    Ok(arg)
}

/// Gives the queue pair its peer, and, unless it `receives_only`, what concerns sending.
fn meet(qp: &CardQp, to: &Attributes, receives_only: bool) -> Result {
    let card = &qp.context.card;
    let source = ipv4_of(to.path.source).ok_or(EOPNOTSUPP)?;
    let ipv4 = ipv4_of(to.path.destination).ok_or(EOPNOTSUPP)?;
    if source != card.net.lock().ipv4 {
        return Err(EADDRNOTAVAIL);
    }
    let is_berth = match receives_only {
        true => qp.exchange.is_berth(source, ipv4, &to.path),
        false => qp.is_bound.load(Relaxed) != 0,
    };
    qp.is_bound.store(is_berth.into(), Relaxed);
    let mtu = card.net.lock().mtu;
    let peer = QpPeer {
        qpn: qp.qp.qpn,
        ipv4,
        peer_qpn: to.peer_qpn,
        psn: to.psn,
        peer_psn: to.peer_psn,
        mtu: to.mtu.min(mtu),
        rnr_timer: rnr_timer(to.rnr_timer),
        rnr_retries: to.rnr_retries.into(),
        timeout: cycles(to.timeout, card.regs.read(HOST_CLOCK_HZ)),
        // 0 would be the default.
        retries: to.retries.max(1),
        reads: to.reads,
        denies: (ALL_RIGHTS & !rights(Access::by(to))) as u8,
        receives_only,
        berth: is_berth,
        ..QpPeer::default()
    };
    qp.context.meet(&*qp.qp, &peer.with_mac(to.path.mac))
}

/// Ends a queue pair that has no peer yet. It gets itself as one, so that the card flushes what is posted as for any other.
fn flush(qp: &CardQp) -> Result {
    let net = *qp.context.card.net.lock();
    if net.ipv4 == 0 {
        // Nor has any other a peer.
        return Ok(());
    }
    let myself = QpPeer {
        qpn: qp.qp.qpn,
        ipv4: net.ipv4,
        peer_qpn: qp.qp.qpn,
        mtu: net.mtu,
        ..QpPeer::default()
    };
    qp.failure.want();
    qp.context.meet(&*qp.qp, &myself)?;
    qp.context.disconnect(&*qp.qp)
}

/// Makes a queue pair as new. If the card cannot, it is in error.
fn reset(qp: &CardQp) -> Result {
    qp.failure.reset(false);
    qp.context.reset_qp(&*qp.qp)?;
    qp.failure.reset(true);
    qp.is_bound.store(0, Relaxed);
    Ok(())
}

/// Changes the state of a queue pair on the card.
fn change_reliable(qp: &CardQp, from: QpState, to: QpState, attributes: &Attributes) -> Result {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset};
    match (from, to) {
        (Reset, Reset | Init) | (Init, Init) | (ReadyToSend, ReadyToSend) => Ok(()),
        (Init, ReadyToReceive) => meet(qp, attributes, true),
        (ReadyToReceive, ReadyToSend) => meet(qp, attributes, false),
        (Error, Error) => Ok(()),
        (ReadyToReceive | ReadyToSend, Error) => {
            qp.failure.want();
            qp.context.disconnect(&*qp.qp)
        }
        (Init, Error) => flush(qp),
        (Reset, Error) => Ok(()),
        (_, Reset) => reset(qp),
        _ => Err(EOPNOTSUPP),
    }
}

impl Served {
    /// Makes a queue pair on the card.
    fn make_reliable(
        &self,
        domain: &Owned,
        cqs: [&MadeCq; 2],
        capacity: &mut Capacity,
        handler: Arc<QpHandler>,
        udata: &mut Udata,
    ) -> Result<(CardQp, u32)> {
        let context = own(&domain.context)?;
        let name = |cq: &MadeCq| {
            cq.card
                .as_ref()
                .map(|card| Name::from(&*card.cq))
                .ok_or(EINVAL)
        };
        let (send, receive) = (name(cqs[0])?, name(cqs[1])?);
        let mut arg = ioctl::CreateQp {
            send_cqn: send.number,
            send_cq: send.identity,
            recv_cqn: receive.number,
            recv_cq: receive.identity,
            // A queue that nobody wants has one place.
            sq_depth: capacity.sends.max(1),
            rq_depth: capacity.receives.max(1),
            mode: MODE_MESSAGE.into(),
            domain: domain.domain.number,
            reads: MAX_READS as u16,
            peer_reads: MAX_READS as u16,
            ..Default::default()
        };
        let failure = Failure::new(handler)?;
        let qp = context.create_qp_with(&mut arg, Some(failure.clone()))?;
        let answered = udata.answer(&VerbsQp {
            offset: arg.offset,
            bytes: arg.bytes,
            sq_depth: arg.sq_depth,
            rq_depth: arg.rq_depth,
            rq_start: arg.rq_start,
        });
        if let Err(e) = answered {
            let _ = context.end_qp(&qp);
            return Err(e);
        }
        *capacity = Capacity {
            sends: arg.sq_depth,
            receives: arg.rq_depth,
            ..self.limits().queue
        };
        let made = CardQp {
            context,
            qp,
            failure,
            exchange: self.exchange.clone(),
            is_bound: Atomic::new(0),
        };
        Ok((made, arg.qpn))
    }
}

impl Driver for Served {
    type Context = Opened;
    type Domain = Domain;
    type Cq = MadeCq;
    type Qp = MadeQp;
    type Region = Region;
    type Address = Address;

    const ABI_VERSION: u32 = VERBS_ABI;

    fn limits(&self) -> Limits {
        let registry = &self.naming.registry;
        Limits {
            firmware: registry.card.fw.lock().version.into(),
            guid: crate::card::net::guid(self.device.address_now()),
            pci: (PCI_VENDOR, PCI_DEVICE),
            qps: registry.max_process_qps,
            queue: Capacity {
                sends: MAX_DEPTH,
                receives: MAX_DEPTH,
                send_ranges: SEND_RANGES,
                receive_ranges: MAX_SGE as u32,
                inline: MAX_INLINE as u32,
            },
            shared: SHARED,
            lent: LENT,
            cqs: registry.max_process_cqs.min(registry.process_cqs()),
            cq_entries: MAX_ENTRIES,
            regions: registry.max_keys() as u32,
            domains: MAX_CONTEXT_DOMAINS as u32,
            reads: MAX_READS,
            // They take memory of the host's alone.
            addresses: 1 << 16,
        }
    }

    fn counter_names(&self, add: &mut dyn FnMut(&str, &str) -> Result) -> Result {
        for (prefix, table) in [
            ("card_", RTL_COUNTER_TABLE),
            ("firmware_", FW_COUNTER_TABLE),
            ("driver_", DRV_COUNTER_TABLE),
        ] {
            for (name, ..) in table {
                // Each begins with a letter that says whose it is.
                add(prefix, name.get(2..).unwrap_or(name))?;
            }
        }
        Ok(())
    }

    fn counters(&self, values: &mut [u64]) {
        let card = &self.naming.registry.card;
        let (rtl, rest) = values.split_at_mut(NUM_RTL_COUNTERS.min(values.len()));
        let (fw, driver) = rest.split_at_mut(NUM_FW_COUNTERS.min(rest.len()));
        card.regs.counters(rtl, fw);
        for (n, value) in driver.iter_mut().enumerate() {
            *value = card.counters.get(n as u32);
        }
    }

    fn port(&self) -> Port {
        let card = &self.naming.registry.card;
        let net = *card.net.lock();
        Port {
            active: card.state() == State::Up && net.ipv4 != 0,
            mtu: net.mtu.min(roce_mtu(self.device.mtu_now())),
            message: MAX_MESSAGE,
        }
    }

    fn add_gid(&self, gid: [u8; 16]) -> Result {
        if let Some(ipv4) = ipv4_of(gid) {
            self.naming.comes(ipv4, self.device.address_now());
        }
        Ok(())
    }

    fn remove_gid(&self, gid: [u8; 16]) {
        if let Some(ipv4) = ipv4_of(gid) {
            self.naming.goes(ipv4);
        }
    }

    fn open(&self, udata: &mut Udata) -> Result<Opened> {
        let current = current!();
        let mm = current.mm().ok_or(EINVAL)?;
        let opened = Opened(Context::new(&self.naming.registry, mm, None)?);
        udata.answer(&VerbsContext {
            abi: ABI_VERSION,
            reserved: 0,
            doorbell_offset: DOORBELL_OFFSET,
        })?;
        Ok(opened)
    }

    fn map(context: &Opened, map: &UserMap<'_>) -> Result {
        let context = own(&context.0)?;
        match context.mapping(map.offset())? {
            Mapping::Doorbell => map.registers(context.doorbell()),
            Mapping::Cq(cq) => cq.memory.map_to_user(map.area()),
            Mapping::Qp(qp) => qp.memory.map_to_user(map.area()),
        }
    }

    fn make_domain(&self, context: Option<&Opened>) -> Result<Domain> {
        let Some(context) = context else {
            return Ok(Domain(None));
        };
        let context = own(&context.0)?;
        let domain = context.create_domain(&mut ioctl::Handle::default())?;
        Ok(Domain(Some(Owned { context, domain })))
    }

    fn end_domain(&self, domain: Domain) {
        if let Some(owned) = domain.0 {
            let _ = owned.context.end_domain(&owned.domain);
        }
    }

    fn make_cq(
        &self,
        context: Option<&Opened>,
        entries: u32,
        handler: Arc<CqHandler>,
        udata: &mut Udata,
    ) -> Result<(MadeCq, u32)> {
        let completions = Completions::new(handler.clone())?;
        let Some(context) = context else {
            let card = None;
            return Ok((MadeCq { card, completions }, entries));
        };
        let context = own(&context.0)?;
        let mut arg = ioctl::CreateCq {
            entries,
            event_fd: -1,
            ..Default::default()
        };
        let told = Notify::Other(Arc::new(Told(handler), GFP_KERNEL)?);
        let cq = context.create_cq_with(&mut arg, told)?;
        let answered = udata.answer(&VerbsCq {
            offset: arg.offset,
            bytes: arg.bytes,
            cqn: arg.cqn,
        });
        let card = Some(CardCq { context, cq });
        let made = MadeCq { card, completions };
        match answered {
            Ok(()) => Ok((made, arg.entries)),
            Err(e) => {
                self.end_cq(made);
                Err(e)
            }
        }
    }

    fn end_cq(&self, cq: MadeCq) {
        cq.completions.end();
        if let Some(card) = cq.card {
            let _ = card.context.end_cq(&card.cq);
        }
    }

    fn make_qp(
        &self,
        kind: QpKind,
        memory: Memory,
        domain: &Domain,
        cqs: [&MadeCq; 2],
        capacity: &mut Capacity,
        handler: Arc<QpHandler>,
        udata: &mut Udata,
    ) -> Result<(MadeQp, u32)> {
        let most = match kind {
            QpKind::Reliable => self.limits().queue,
            QpKind::Datagram | QpKind::Management => DATAGRAMS,
        };
        if capacity.sends > most.sends
            || capacity.receives > most.receives
            || capacity.send_ranges > most.send_ranges
            || capacity.receive_ranges > most.receive_ranges
            || capacity.inline > most.inline
        {
            return Err(EINVAL);
        }
        match kind {
            // Their queues are in the memory of a process.
            QpKind::Reliable if memory == Memory::Kernel => Err(EOPNOTSUPP),
            QpKind::Reliable => {
                let domain = domain.0.as_ref().ok_or(EINVAL)?;
                let (made, qpn) = self.make_reliable(domain, cqs, capacity, handler, udata)?;
                Ok((MadeQp::Reliable(made), qpn))
            }
            QpKind::Management if memory == Memory::Process => Err(EPERM),
            QpKind::Datagram | QpKind::Management => {
                let cqs = cqs.map(|cq| &cq.completions);
                let made = Datagram::new(&self.exchange, kind, capacity, cqs, handler)?;
                let qpn = made.qpn();
                *capacity = Capacity {
                    sends: capacity.sends,
                    receives: capacity.receives,
                    ..most
                };
                Ok((MadeQp::Datagram(made), qpn))
            }
        }
    }

    fn change_qp(qp: &MadeQp, from: QpState, to: QpState, attributes: &Attributes) -> Result {
        match qp {
            MadeQp::Reliable(qp) => change_reliable(qp, from, to, attributes),
            MadeQp::Datagram(qp) => {
                qp.change(to, attributes);
                Ok(())
            }
        }
    }

    fn has_failed(qp: &MadeQp) -> bool {
        match qp {
            MadeQp::Reliable(qp) => qp.failure.has_failed(),
            MadeQp::Datagram(_) => false,
        }
    }

    fn end_qp(&self, qp: MadeQp) {
        match qp {
            MadeQp::Reliable(qp) => {
                let _ = qp.context.end_qp(&qp.qp);
            }
            MadeQp::Datagram(qp) => qp.end(),
        }
    }

    fn is_recall(udata: &mut Udata) -> Result<bool> {
        let said = udata.asked::<VerbsQpChange>()?;
        Ok(said.is_some_and(|said| said.recall != 0))
    }

    fn recall(qp: &MadeQp) -> Result {
        match qp {
            MadeQp::Reliable(qp) => qp.context.recall(&*qp.qp),
            MadeQp::Datagram(_) => Err(EINVAL),
        }
    }

    fn is_limit_reached(udata: &mut Udata) -> Result<bool> {
        Ok(udata
            .asked::<VerbsSrq>()?
            .is_some_and(|said| said.reached != 0))
    }

    fn post_send(qp: &MadeQp, send: Send<'_, Address>) -> Result {
        match qp {
            MadeQp::Reliable(_) => Err(EINVAL),
            MadeQp::Datagram(qp) => qp.post_send(send),
        }
    }

    fn post_receive(qp: &MadeQp, receive: Receive) -> Result {
        match qp {
            MadeQp::Reliable(_) => Err(EINVAL),
            MadeQp::Datagram(qp) => qp.post_receive(receive),
        }
    }

    fn poll(cq: &MadeCq) -> Option<Completion> {
        cq.completions.poll()
    }

    fn arm(cq: &MadeCq, solicited: bool) -> bool {
        cq.completions.arm(solicited)
    }

    fn make_address(&self, path: Path) -> Result<Address> {
        let from_ip = ipv4_of(path.source).ok_or(EOPNOTSUPP)?;
        let to_ip = ipv4_of(path.destination).ok_or(EOPNOTSUPP)?;
        Ok(Address {
            path,
            from_ip,
            to_ip,
        })
    }

    fn make_region(
        &self,
        domain: &Domain,
        va: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(Region, u32)> {
        let mut arg = registration(va, bytes, access)?;
        let domain = domain.0.as_ref().ok_or(EOPNOTSUPP)?;
        let context = own(&domain.context)?;
        arg.domain = domain.domain.number;
        let name = context.register(&mut arg)?;
        Ok((Region { context, name }, arg.key))
    }

    fn change_region(region: &Region, va: u64, bytes: u64, access: Access) -> Result {
        own(&region.context)?;
        let mut arg = registration(va, bytes, access)?;
        (arg.key, arg.identity) = (region.name.number, region.name.identity);
        region.context.rebind(&arg)
    }

    fn advise(domain: &Domain, va: u64, bytes: u64, advice: Advice) -> Result {
        let domain = domain.0.as_ref().ok_or(EOPNOTSUPP)?;
        own(&domain.context)?;
        let access = Access {
            local_write: advice == Advice::Write,
            ..Access::default()
        };
        check_memory(va, bytes, access)?;
        match advice {
            Advice::Nothing => Ok(()),
            Advice::Read => user_memory::bring_in(va, bytes, false),
            Advice::Write => user_memory::bring_in(va, bytes, true),
        }
    }

    fn end_region(&self, region: Region) {
        let _ = region.context.deregister(region.name);
    }
}
