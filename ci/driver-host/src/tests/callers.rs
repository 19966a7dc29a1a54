// SPDX-License-Identifier: GPL-2.0
//! A process that opens `/dev/berthN` and makes calls, for the tests of these.

use super::rig::*;
use crate::abi::{
    card::ABI_VERSION,
    counters::*,
    ioctl::{self, *},
};
use crate::process::Context;
use crate::uapi::Session;
use kernel::{
    fs::File,
    miscdevice::{MiscDevice, MiscDeviceRegistration},
    mm::bindings::{CAP_NET_ADMIN, CAP_SYS_ADMIN},
    mm::virt::{VmaNew, flags},
    prelude::*,
    sync::Arc,
    transmute::{AsBytes, FromBytes},
    uaccess::{UserPtr, UserSlice},
    user,
};

/// Where a call's struct is.
pub(super) const AT: usize = 0x5000_0000;
/// Where memory is that a struct names.
pub(super) const BUFFER: usize = 0x6000_0000;

pub(super) type Descriptor = Pin<KBox<Session>>;

/// Who may do what.
pub(super) const NOBODY: &[u32] = &[];
pub(super) const NET_ADMIN: &[u32] = &[CAP_NET_ADMIN];
pub(super) const ADMIN: &[u32] = &[CAP_SYS_ADMIN];

/// A card in service, and a process without capabilities that makes the calls.
pub(super) fn begin() -> Rig {
    begin_with(Setup::default())
}

pub(super) fn begin_with(setup: Setup) -> Rig {
    with_process(Rig::new(setup))
}

fn with_process(rig: Rig) -> Rig {
    user::enter(Some(rig.process()));
    user::set_capabilities(NOBODY);
    rig
}

/// The same with threads whose order is random, again and again.
pub(super) fn at_random(f: impl Fn(Rig)) {
    for seed in 1..=30 {
        let rig = with_process(Rig::with(Some(seed), Setup::default()));
        rig.world.set_preempt(2);
        f(rig);
    }
}

/// Lets threads of the calling process do something at the same time.
pub(super) fn at_once(rig: &Rig, threads: impl IntoIterator<Item = Box<dyn FnOnce()>>) {
    let (mm, capabilities) = (user::caller(), user::capabilities());
    for thread in threads {
        let capabilities = capabilities.clone();
        rig.world.spawn(move || {
            user::enter(mm);
            user::set_capabilities(&capabilities);
            thread();
        });
    }
    rig.ms(1);
    assert_eq!(rig.world.threads(), 0, "they have ended");
}

/// Opens a device node.
pub(super) fn open(name: &'static CStr) -> Result<Descriptor> {
    Session::open(&File(None), &MiscDeviceRegistration::new(name))
}

/// Opens the card's.
pub(super) fn descriptor() -> Descriptor {
    open(c"berth0").expect("it is there")
}

/// A descriptor that is a context, and that.
pub(super) fn context(rig: &Rig) -> (Descriptor, Arc<Context>) {
    let descriptor = descriptor();
    let made = call(&descriptor, IOC_CONTEXT, wanted_context()).expect("a context");
    (descriptor, rig.registry.context(made.asid).expect("it is there"))
}

/// What `IOC_CONTEXT` takes.
pub(super) fn wanted_context() -> ioctl::Context {
    ioctl::Context { abi: ABI_VERSION, event_fd: -1, ..Default::default() }
}

/// Bytes of a struct.
pub(super) fn bytes_of<T: AsBytes>(value: &T) -> Vec<u8> {
    // SAFETY: So many bytes, without padding.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }.to_vec()
}

/// A call, whatever is at [`AT`].
pub(super) fn raw(descriptor: &Descriptor, cmd: u32) -> Result {
    let result = Session::ioctl(descriptor.as_ref(), &File(None), cmd, AT);
    result.map(|value| assert_eq!(value, 0, "what it gives when it succeeds"))
}

/// A call with a struct, which is given as it is afterwards. What a call that fails has done to it: nothing.
pub(super) fn call<T: AsBytes + FromBytes>(descriptor: &Descriptor, cmd: u32, arg: T) -> Result<T> {
    call_with(descriptor, cmd, arg, true)
}

/// The same with a struct that can be read only.
pub(super) fn call_untold<T: AsBytes + FromBytes>(descriptor: &Descriptor, cmd: u32, arg: T) -> Result<T> {
    call_with(descriptor, cmd, arg, false)
}

fn call_with<T: AsBytes + FromBytes>(descriptor: &Descriptor, cmd: u32, arg: T, writable: bool) -> Result<T> {
    let before = bytes_of(&arg);
    user::put(AT, &before, writable);
    if let Err(e) = raw(descriptor, cmd) {
        assert_eq!(user::get(AT), before, "a call that fails tells something");
        return Err(e);
    }
    UserSlice::new(UserPtr::from_addr(AT), size_of::<T>()).reader().read()
}

/// A call with nothing but a number.
pub(super) fn with_number(descriptor: &Descriptor, cmd: u32, value: u32) -> Result {
    call(descriptor, cmd, Handle { value, reserved: 0, identity: 0 }).map(|_| ())
}

/// A completion queue with so many entries.
pub(super) fn cq(descriptor: &Descriptor, entries: u32) -> Result<CreateCq> {
    call(descriptor, IOC_CREATE_CQ, CreateCq { entries, event_fd: -1, ..Default::default() })
}

/// What makes a queue pair that completes in one queue.
pub(super) fn wanted_qp(cqn: u32) -> CreateQp {
    CreateQp { send_cqn: cqn, recv_cqn: cqn, sq_depth: 4, rq_depth: 4, ..Default::default() }
}

/// A queue pair.
pub(super) fn qp(descriptor: &Descriptor) -> CreateQp {
    let cq = cq(descriptor, 16).expect("a completion queue");
    call(descriptor, IOC_CREATE_QP, wanted_qp(cq.cqn)).expect("a queue pair")
}

/// Maps so many bytes at an offset of an open file; gives what is there.
pub(super) fn mmap(descriptor: &Descriptor, file: &File, bytes: usize, offset: u64) -> Result<u64> {
    let vma = VmaNew::new(bytes, offset, flags::SHARED);
    Session::mmap(descriptor.as_ref(), file, &vma)?;
    let maps = *vma.maps.borrow();
    Ok(maps.expect("something is mapped"))
}

/// Calls that were refused so far.
pub(super) fn refused(rig: &Rig) -> u64 {
    rig.counter(D_BAD_IOCTL)
}
