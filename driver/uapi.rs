// SPDX-License-Identifier: GPL-2.0
//! The user interface: `/dev/berthN`.
//!
//! The core of the driver does not know this file; another front end can stand beside it.

use crate::{
    abi::{
        card::{ABI_VERSION, NUM_ASIDS},
        counters::*,
        ioctl::{self as uapi, *},
        ring::{is_host, is_mtu},
    },
    card::{Card, State, PAGE},
    cards::registry_by_instance,
    kernel::doorbell::{self, HeldInode, Registers},
    kernel::eventfd::EventFd,
    kernel::gate::BoundRef,
    kernel::memlock::{capable, Capability},
    kernel::pin,
    pages::share::MAX_CARDS,
    process::{doorbells::DOORBELL_OFFSET, object::Mapping, owned::Name, Context, Registry},
};
use kernel::{
    current,
    fs::File,
    ioctl::_IOC_SIZE,
    miscdevice::{MiscDevice, MiscDeviceRegistration},
    mm::virt::VmaNew,
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex, SetOnce},
    transmute::{AsBytes, FromBytes},
    uaccess::UserSlice,
};

/// Names of the devices; there are no more.
pub(crate) const NAMES: [&CStr; MAX_CARDS] = [
    c"berth0", c"berth1", c"berth2", c"berth3", c"berth4", c"berth5", c"berth6", c"berth7",
    c"berth8", c"berth9", c"berth10", c"berth11", c"berth12", c"berth13", c"berth14", c"berth15",
];

/// Bytes of log copied at once.
const LOG_CHUNK: usize = 4096;

/// An open descriptor.
#[pin_data(PinnedDrop)]
pub(crate) struct Session {
    card: Arc<Card>,
    registry: Arc<Registry>,
    /// Set by `IOC_CONTEXT`, for good.
    context: SetOnce<Arc<Context>>,
    /// The device node, once a doorbell page is mapped through it.
    node: SetOnce<HeldInode>,
    #[pin]
    making: Mutex<()>,
}

#[vtable]
impl MiscDevice for Session {
    type Ptr = Pin<KBox<Self>>;

    fn open(_file: &File, misc: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr> {
        let name = misc.device().name();
        let instance = NAMES.iter().position(|n| *n == name).ok_or(ENODEV)?;
        let registry = registry_by_instance(instance).ok_or(ENODEV)?;
        KBox::try_pin_init(
            try_pin_init!(Session {
                card: registry.card.clone(),
                registry,
                context: SetOnce::new(),
                node: SetOnce::new(),
                making <- new_mutex!((), "berth_making"),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn ioctl(this: Pin<&Self>, _file: &File, cmd: u32, arg: usize) -> Result<isize> {
        let result = this.dispatch(cmd, arg);
        if let Err(e) = result {
            if e != EAGAIN {
                this.card.counters.inc(D_BAD_IOCTL);
            }
        }
        result.map(|()| 0)
    }

    fn mmap(this: Pin<&Self>, file: &File, vma: &VmaNew) -> Result {
        match this.context()?.mapping(pin::vma_offset(vma))? {
            Mapping::Doorbell => {
                // Noted while the device is bound; unbinding takes the page out again.
                let _bound = this.card.bound()?;
                this.note_node(file)?;
                doorbell::map::<Self>(vma)
            }
            Mapping::Cq(cq) => cq.memory.map_to_user(vma),
            Mapping::Qp(qp) => qp.memory.map_to_user(vma),
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Session {
    fn drop(self: Pin<&mut Self>) {
        if let Some(context) = self.context.as_ref() {
            context.close();
        }
        if let Some(node) = self.node.as_ref() {
            self.registry.forget_node(node);
        }
    }
}

impl Session {
    /// Notes the device node through which `file`, this session's file, was opened.
    fn note_node(&self, file: &File) -> Result {
        if self.node.as_ref().is_some() {
            return Ok(());
        }
        let node = HeldInode::of(file).ok_or(ENODEV)?;
        self.registry.note_node(&node)?;
        if !self.node.populate(node.clone()) {
            // Another thread has done so meanwhile.
            self.registry.forget_node(&node);
        }
        Ok(())
    }
}

impl Registers for Session {
    fn registers(&self) -> Option<(u64, BoundRef)> {
        let context = self.context.as_ref()?;
        let bound = self.card.bound().ok()?;
        Some((context.doorbell(), bound))
    }
}

fn require(cap: Capability) -> Result {
    if capable(cap) {
        Ok(())
    } else {
        Err(EPERM)
    }
}

fn handle(arg: &Handle) -> Result<Name> {
    if arg.reserved != 0 {
        return Err(EINVAL);
    }
    Ok(Name {
        number: arg.value,
        identity: arg.identity,
    })
}

/// Budget in pages from bytes: whole pages, from one to as many as the card's table holds.
fn budget(card: &Card, bytes: u64) -> Result<u64> {
    let pages = bytes / PAGE;
    match (1..=u64::from(card.sizes.table.entries())).contains(&pages) {
        true => Ok(pages),
        false => Err(EINVAL),
    }
}

impl Session {
    /// The context, if the caller's address space is the one it belongs to.
    fn context(&self) -> Result<&Arc<Context>> {
        let context = self.context.as_ref().ok_or(EINVAL)?;
        match current!().mm() {
            Some(mm) if mm.as_raw() == context.space.mm.as_raw() => Ok(context),
            _ => Err(EPERM),
        }
    }

    fn user<T>(arg: usize) -> UserSlice {
        UserSlice::new(UserPtr::from_addr(arg), core::mem::size_of::<T>())
    }

    /// Copies a struct in and handles it.
    fn take<T: FromBytes>(arg: usize, f: impl FnOnce(&T) -> Result) -> Result {
        f(&Self::user::<T>(arg).reader().read::<T>()?)
    }

    /// Copies a struct in, handles it, and copies it out again. What was done is undone when the
    /// caller cannot be told of it: a call has its whole effect or none.
    fn exchange<T: AsBytes + FromBytes, D>(
        arg: usize,
        f: impl FnOnce(&mut T) -> Result<D>,
        undo: impl FnOnce(&T, D),
    ) -> Result {
        let (mut reader, mut writer) = Self::user::<T>(arg).reader_writer();
        let mut value = reader.read::<T>()?;
        let done = f(&mut value)?;
        match writer.write(&value) {
            Ok(()) => Ok(()),
            Err(e) => {
                undo(&value, done);
                Err(e)
            }
        }
    }

    /// Copies a struct out.
    fn give<T: AsBytes>(arg: usize, value: &T) -> Result {
        Self::user::<T>(arg).writer().write(value)
    }

    fn dispatch(&self, cmd: u32, arg: usize) -> Result {
        if _IOC_SIZE(cmd) == 0 {
            return Err(ENOTTY);
        }
        match cmd {
            IOC_CONTEXT => self.make_context(arg),
            IOC_QUERY => Self::give(arg, &self.registry.query()),
            IOC_QUERY_LIMITS => {
                let current = current!();
                let mm = current.mm().map(|mm| &**mm);
                let context = self.context().ok().map(|context| &**context);
                Self::give(arg, &self.registry.limits(mm, context))
            }
            IOC_SET_NET => Self::take(arg, |a| self.set_net(a)),
            IOC_SET_LIMITS => Self::take(arg, |a| self.set_limits(a)),
            IOC_QUERY_CONTEXT => Self::give(arg, &self.context()?.space.query()),
            IOC_CREATE_CQ => Self::exchange(
                arg,
                |a| self.context()?.create_cq(a),
                |_: &CreateCq, cq| {
                    let _ = self.context().map(|c| c.end_cq(&cq));
                },
            ),
            IOC_DESTROY_CQ => Self::take(arg, |a| self.context()?.destroy_cq(handle(a)?)),
            IOC_CREATE_QP => Self::exchange(
                arg,
                |a| self.context()?.create_qp(a),
                |_: &CreateQp, qp| {
                    let _ = self.context().map(|c| c.end_qp(&qp));
                },
            ),
            IOC_ALIASES => Self::exchange(
                arg,
                |a| self.context()?.free_aliases(a),
                |_: &Aliases, ()| {},
            ),
            IOC_WHOLE => Self::take(arg, |a: &Whole| self.context()?.note_whole(a)),
            IOC_DESTROY_QP => Self::take(arg, |a| self.context()?.destroy_qp(handle(a)?)),
            IOC_QUERY_QP => Self::exchange(
                arg,
                |a: &mut QueryQp| {
                    if a.reserved != 0 {
                        return Err(EINVAL);
                    }
                    let name = Name {
                        number: a.qpn,
                        identity: a.identity,
                    };
                    a.state = self.context()?.query_qp(name)?;
                    Ok(())
                },
                |_, ()| (),
            ),
            IOC_SET_TRIGGER => Self::take(arg, |a: &SetTrigger| self.context()?.set_trigger(a)),
            IOC_SET_CAP => Self::take(arg, |a: &SetCap| self.context()?.set_cap(a)),
            IOC_CREATE_DOMAIN => Self::exchange(
                arg,
                |a| self.context()?.create_domain(a),
                |_: &Handle, domain| {
                    let _ = self.context().map(|c| c.end_domain(&domain));
                },
            ),
            IOC_DESTROY_DOMAIN => Self::take(arg, |a| self.context()?.destroy_domain(handle(a)?)),
            IOC_REGISTER => Self::exchange(
                arg,
                |a| self.context()?.register(a),
                |_: &Register, name| {
                    let _ = self.context().map(|c| c.deregister(name));
                },
            ),
            IOC_REBIND => Self::take(arg, |a: &Register| self.context()?.rebind(a)),
            IOC_DEREGISTER => Self::take(arg, |a| self.context()?.deregister(handle(a)?)),
            IOC_LISTEN => Self::exchange(
                arg,
                |a: &mut Handle| {
                    a.identity = self.context()?.listen(handle(a)?.number)?;
                    Ok(())
                },
                |a, ()| {
                    let _ = handle(a).and_then(|name| self.context()?.unlisten(name));
                },
            ),
            IOC_UNLISTEN => Self::take(arg, |a| self.context()?.unlisten(handle(a)?)),
            IOC_CONNECT => Self::take(arg, |a: &Connect| self.context()?.connect(a)),
            IOC_SET_PEER => Self::take(arg, |a: &SetPeer| self.context()?.set_peer(a)),
            IOC_ACCEPT => Self::take(arg, |a: &Accept| self.context()?.answer(a, true)),
            IOC_REJECT => Self::take(arg, |a: &Accept| self.context()?.answer(a, false)),
            IOC_DISCONNECT => Self::take(arg, |a| self.context()?.disconnect(handle(a)?)),
            IOC_GET_EVENT => {
                let context = self.context()?;
                let event = context.take_event().ok_or(EAGAIN)?;
                Self::give(arg, &event).inspect_err(|_| context.put_back(event))
            }
            IOC_COUNTERS => self.counters(arg),
            IOC_READ_LOG => Self::exchange(
                arg,
                |a| self.read_log(a),
                // The bytes are in the caller's memory, but it was not told how many.
                |a: &ReadLog, ()| self.card.lose_log(a.lost.saturating_add(a.bytes) as usize),
            ),
            IOC_RESET => Self::take(arg, |a: &Handle| {
                handle(a)?;
                require(Capability::SysAdmin)?;
                self.card.forgive();
                self.card.reset("asked for")
            }),
            IOC_CRASH => Self::take(arg, |a: &Crash| {
                if a.reserved != 0 {
                    return Err(EINVAL);
                }
                require(Capability::SysAdmin)?;
                self.crash(a)
            }),
            _ => Err(ENOTTY),
        }
    }

    fn make_context(&self, at: usize) -> Result {
        let (mut reader, mut writer) = Self::user::<uapi::Context>(at).reader_writer();
        let mut arg = reader.read::<uapi::Context>()?;
        if arg.abi != ABI_VERSION || arg.reserved != 0 {
            return Err(EINVAL);
        }
        let _making = self.making.lock();
        if self.context.as_ref().is_some() {
            return Err(EBUSY);
        }
        let event_fd = EventFd::from_fd(arg.event_fd)?;
        let current = current!();
        let mm = current.mm().ok_or(EINVAL)?;
        let context = Context::new(&self.registry, mm, event_fd)?;
        arg.asid = context.asid;
        arg.doorbell_offset = DOORBELL_OFFSET;
        // The caller is told first, because a descriptor becomes a context once and for good.
        writer.write(&arg).inspect_err(|_| context.close())?;
        self.context.populate(context);
        Ok(())
    }

    fn set_net(&self, arg: &SetNet) -> Result {
        require(Capability::NetAdmin)?;
        let mac = [
            arg.mac[0], arg.mac[1], arg.mac[2], arg.mac[3], arg.mac[4], arg.mac[5],
        ];
        if !is_mtu(arg.mtu)
            || !is_host(arg.ipv4)
            || mac[0] & 1 != 0
            || mac == [0; 6]
            || arg.mac[6..] != [0, 0]
        {
            return Err(EINVAL);
        }
        let _naming = self.card.naming.lock();
        let mut new = *self.card.net.lock();
        new.rename(arg.ipv4, arg.mtu, mac);
        self.card.call(new.command())?;
        *self.card.net.lock() = new;
        if let Some(link) = &self.registry.link {
            link.set_address(mac);
        }
        Ok(())
    }

    fn set_limits(&self, arg: &SetLimits) -> Result {
        let known = LIMIT_LINGER | LIMIT_CARD_BUDGET | LIMIT_CONTEXT_BUDGET | LIMIT_RESET_PEAK;
        if arg.mask & !known != 0 {
            return Err(EINVAL);
        }
        // All checks first: the call has its whole effect or none.
        if arg.mask & (LIMIT_LINGER | LIMIT_CARD_BUDGET | LIMIT_RESET_PEAK) != 0 {
            require(Capability::SysAdmin)?;
        }
        let mut card_pages = self.registry.pages.budget.lock().limit;
        if arg.mask & LIMIT_CARD_BUDGET != 0 {
            card_pages = budget(&self.card, arg.card_budget)?;
        }
        let context = if arg.mask & LIMIT_CONTEXT_BUDGET != 0 {
            let pages = budget(&self.card, arg.context_budget)?;
            if pages > card_pages {
                return Err(EINVAL);
            }
            let context = self.context()?;
            if pages > self.registry.pages.context_pages {
                // More than a process gets by default.
                require(Capability::SysAdmin)?;
            }
            Some((context, pages))
        } else {
            None
        };
        if arg.mask & LIMIT_LINGER != 0 {
            self.registry.pages.set_linger(arg.linger_ms);
        }
        if arg.mask & LIMIT_CARD_BUDGET != 0 {
            self.registry.pages.set_budget(card_pages);
        }
        if let Some((context, pages)) = context {
            context.space.set_budget(pages);
        }
        if arg.mask & LIMIT_RESET_PEAK != 0 {
            self.registry.pages.reset_peak();
        }
        Ok(())
    }

    fn counters(&self, arg: usize) -> Result {
        if matches!(self.card.state(), State::Gone | State::Unbound) {
            return Err(ENODEV);
        }
        let mut counters = KBox::new(Counters::ZERO, GFP_KERNEL)?;
        let Counters { rtl, fw, .. } = &mut *counters;
        self.card.regs.counters(rtl, fw);
        for (i, value) in counters.drv.iter_mut().enumerate().take(NUM_DRV_COUNTERS) {
            *value = self.registry.pages.drv_counter(i as u32);
        }
        Self::give(arg, &*counters)
    }

    fn read_log(&self, arg: &mut ReadLog) -> Result {
        require(Capability::SysAdmin)?;
        let mut writer =
            UserSlice::new(UserPtr::from_addr(arg.buffer as usize), arg.bytes as usize).writer();
        let mut chunk = KVec::from_elem(0u8, LOG_CHUNK, GFP_KERNEL)?;
        let mut copied = 0;
        let mut lost = 0;
        while !writer.is_empty() {
            let room = writer.len().min(LOG_CHUNK);
            let (n, l) = self.card.take_log(&mut chunk[..room]);
            lost = u32::saturating_add(lost, l);
            if n == 0 {
                break;
            }
            copied += n as u32;
            let untold = u32::saturating_add(lost, copied);
            writer
                .write_slice(&chunk[..n])
                .inspect_err(|_| self.card.lose_log(untold as usize))?;
        }
        arg.bytes = copied;
        arg.lost = lost;
        Ok(())
    }

    #[cfg(any(CONFIG_BERTH_DEBUG, berth_debug))]
    fn crash(&self, arg: &Crash) -> Result {
        use crate::abi::{
            message,
            ring::{CRASH_EVENT, CRASH_PANIC},
        };
        if !(CRASH_PANIC..=CRASH_EVENT).contains(&arg.how) {
            return Err(EINVAL);
        }
        let crash = message::Crash {
            how: arg.how,
            event: arg.event,
        };
        // Does not wait, because firmware is not going to answer.
        self.card.post(&[crash.encode()])
    }

    #[cfg(not(any(CONFIG_BERTH_DEBUG, berth_debug)))]
    fn crash(&self, _arg: &Crash) -> Result {
        Err(ENOTTY)
    }
}

/// Asserted here, where contexts and doorbell pages are handed out under one number.
const _: () = assert!(NUM_ASIDS <= crate::abi::card::NUM_UARS);
