// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion queues.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_abi::status::{WC_FLUSHED, WC_RECALLED};
use berth_abi::verbs::VerbsCq;
use berth_queue::{Completions, Entry, QpProgress, ring_fits};

use crate::context::{Common, common_of};
use crate::errno::failed;
use crate::lock::{Held, Lock};
use crate::mapping::Mapping;
use crate::rdma_core::{
    Answer, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_STANDARD_FLAGS, IBV_WC_WITH_INV,
    Opaque, ib_uverbs_create_cq_resp, ibv_cmd_create_cq, ibv_cmd_destroy_cq, ibv_cmd_poll_cq, ibv_cmd_req_notify_cq,
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_create_cq, ibv_poll_cq_attr, ibv_wc,
};
use crate::shared::Shared;
use crate::status::completion;

/// A completion queue: libibverbs' own, then ours.
#[repr(C)]
pub struct Cq {
    verbs: ibv_cq_ex,
    ours: Ours,
}

pub struct Ours {
    state: Lock<State>,
    /// Queue pairs of datagrams that complete here, whose completions the kernel has.
    datagrams: AtomicU32,
    /// The program has asked to be notified, once at least.
    asked: AtomicBool,
    common: Arc<Common>,
    _mapping: Mapping,
}

pub struct State {
    completions: Completions,
    common: Arc<Common>,
    /// Shared receive queues of queue pairs that complete here.
    shared: Vec<(u32, Arc<Shared>)>,
    /// Where `ibv_start_poll` and `ibv_next_poll` are.
    current: ibv_wc,
    /// An entry fitted no element; the next poll says so.
    unmatched: bool,
    /// How often in a row nothing was found.
    idle: u32,
}

/// How often in a row nothing is found before shared receive queues are looked after.
const IDLE: u32 = 16;

impl State {
    /// The card's next completion; `None` if there is none.
    fn next(&mut self) -> Result<Option<ibv_wc>, c_int> {
        loop {
            match self.completions.next() {
                Ok(None) => {
                    self.rest();
                    return Ok(None);
                }
                Ok(Some(entry)) => {
                    self.idle = 0;
                    if sees(&self.shared, &entry) {
                        let wc = completion(&entry);
                        if wc.wc_flags & IBV_WC_WITH_INV != 0 {
                            self.common.windows.ended(wc.imm_data);
                        }
                        return Ok(Some(wc));
                    }
                }
                // Kernel and provider disagree about what is posted.
                Err(_) => return Err(libc::EIO),
            }
        }
    }

    /// Nothing was found. Nothing else may tell a shared receive queue that it is time to recall; nor is there another thread
    /// to look after the other end, if that is in this one as well.
    fn rest(&mut self) {
        self.idle += 1;
        if self.idle < IDLE {
            return;
        }
        self.idle = 0;
        self.look_after();
        let Ok(sharing) = SHARING.try_lock() else { return };
        for Sharing(ours) in sharing.iter() {
            // SAFETY: it leaves the list before it goes.
            let ours = unsafe { &**ours };
            // This one is not free.
            if let Some(mut state) = ours.state.try_lock() {
                state.look_after();
                state.completions.tell(&ours.common.doorbells);
            }
        }
    }

    /// Has receives of shared queues come back that wait here, and others recalled.
    fn look_after(&mut self) {
        let shared = &self.shared;
        if shared.is_empty() {
            return;
        }
        self.completions.sift(|entry| comes_back(entry) && !sees(shared, entry));
        let mut last = null();
        for (_, shared) in &self.shared {
            if Arc::as_ptr(shared) != last {
                shared.recall();
            }
            last = Arc::as_ptr(shared);
        }
    }

    /// Makes the next completion of queue `cq` the one that is read; else answers an errno value.
    ///
    /// # Safety
    /// It must be the queue of this state.
    unsafe fn advance(&mut self, cq: *mut ibv_cq) -> c_int {
        match self.next() {
            Ok(Some(wc)) => {
                self.current = wc;
                0
            }
            // SAFETY: as the caller says; there is room for one.
            Ok(None) => match unsafe { poll_kernel(cq, 1, &raw mut self.current) } {
                0 => libc::ENOENT,
                1 => 0,
                _ => libc::EIO,
            },
            Err(error) => error,
        }
    }
}

/// A completion queue, where queue pairs of shared receive queues complete.
struct Sharing(*const Ours);

// SAFETY: what it points to may be used by any thread.
unsafe impl Send for Sharing {}

/// All of the process.
static SHARING: Mutex<Vec<Sharing>> = Mutex::new(Vec::new());

fn sharing() -> MutexGuard<'static, Vec<Sharing>> {
    SHARING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is that of a receive that may have been lent, and comes back.
fn comes_back(entry: &Entry) -> bool {
    entry.recv && matches!(entry.cqe.status, WC_FLUSHED | WC_RECALLED)
}

/// Tells the shared receive queue of a completion, if it has to do with one. Whether the program is to see it.
fn sees(shared: &[(u32, Arc<Shared>)], entry: &Entry) -> bool {
    let of = shared.iter().find(|(qpn, _)| *qpn == entry.cqe.qpn);
    of.is_none_or(|(_, shared)| shared.completed(entry))
}

/// Polls completions that the kernel has, if there may be some.
///
/// # Safety
/// The queue must be ours, with room for `most` at `wc`.
unsafe fn poll_kernel(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as the caller says.
    match unsafe { ours(cq) }.datagrams.load(Ordering::Relaxed) {
        0 => 0,
        // SAFETY: as the caller says.
        _ => unsafe { ibv_cmd_poll_cq(cq, most, wc) },
    }
}

impl Ours {
    /// A queue pair of datagrams does not complete here any more.
    pub fn end_datagrams(&self) {
        self.datagrams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes a queue pair that has just been made.
    pub fn attach(&self, qpn: u32, progress: &Arc<QpProgress>, shared: Option<&Arc<Shared>>) {
        if shared.is_some() {
            let mut sharing = sharing();
            if !sharing.iter().any(|there| std::ptr::eq(there.0, self)) {
                sharing.push(Sharing(self));
            }
        }
        self.change(|state| {
            state.shared.retain(|(other, _)| *other != qpn);
            state.shared.extend(shared.map(|shared| (qpn, Arc::clone(shared))));
            state.completions.attach(qpn, progress)
        });
    }

    /// Forgets a queue pair that is gone, with its completions.
    pub fn detach(&self, qpn: u32, progress: &Arc<QpProgress>) {
        self.change(|state| {
            let shared = &state.shared;
            state.completions.detach(qpn, progress, |entry| _ = sees(shared, entry))
        });
    }

    /// Drops the completions of a queue pair that is reset.
    pub fn drop_of(&self, qpn: u32) {
        self.change(|state| {
            let shared = &state.shared;
            state.completions.drop_of(qpn, |entry| _ = sees(shared, entry))
        });
    }

    fn change(&self, change: impl FnOnce(&mut State) -> usize) {
        let mut state = self.state.lock();
        let unmatched = change(&mut state) != 0;
        state.unmatched |= unmatched;
        state.completions.tell(&self.common.doorbells);
    }
}

/// A queue pair of datagrams completes here from now on. The kernel may not know yet that the program waits.
///
/// # Safety
/// The queue must be ours.
pub unsafe fn begin_datagrams(cq: *mut ibv_cq) {
    // SAFETY: as the caller says.
    let ours = unsafe { ours(cq) };
    ours.datagrams.fetch_add(1, Ordering::SeqCst);
    if ours.asked.load(Ordering::SeqCst) {
        // SAFETY: as the caller says.
        unsafe { ibv_cmd_req_notify_cq(cq, 0) };
    }
}

/// Our part of a completion queue.
///
/// # Safety
/// It must be one of [`create_cq`]'s or [`create_cq_ex`]'s, and outlive the reference.
pub unsafe fn ours<'a>(cq: *mut ibv_cq) -> &'a Ours {
    // SAFETY: as the caller says; libibverbs changes only its own part.
    unsafe { &(*cq.cast::<Cq>()).ours }
}

pub unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut Opaque,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller's arguments.
    match unsafe { create(context, cqe, channel, vector) } {
        Ok(cq) => cq,
        Err(error) => {
            failed(error);
            null_mut()
        }
    }
}

pub unsafe extern "C" fn create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: the caller's struct.
    let attr = unsafe { &*attr };
    let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
    if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
        || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0
        || attr.wc_flags & !IBV_WC_STANDARD_FLAGS != 0
    {
        failed(libc::EOPNOTSUPP);
        return null_mut();
    }
    let (Ok(cqe), Ok(vector)) = (c_int::try_from(attr.cqe), c_int::try_from(attr.comp_vector)) else {
        failed(libc::EINVAL);
        return null_mut();
    };
    // SAFETY: the caller's arguments.
    let cq = unsafe { create_cq(context, cqe, attr.channel, vector) };
    // SAFETY: fresh, and nobody else's.
    if let Some(verbs) = unsafe { cq.as_mut() } {
        verbs.start_poll = Some(start_poll);
        verbs.next_poll = Some(next_poll);
        verbs.end_poll = Some(end_poll);
        verbs.read_opcode = Some(read_opcode);
        verbs.read_vendor_err = Some(read_vendor_err);
        verbs.read_byte_len = Some(read_byte_len);
        verbs.read_imm_data = Some(read_imm_data);
        verbs.read_qp_num = Some(read_qp_num);
        verbs.read_src_qp = Some(read_src_qp);
        verbs.read_wc_flags = Some(read_wc_flags);
        verbs.read_slid = Some(read_slid);
        verbs.read_sl = Some(read_sl);
        verbs.read_dlid_path_bits = Some(read_dlid_path_bits);
    }
    cq
}

/// # Safety
/// The context must be ours.
unsafe fn create(
    context: *mut ibv_context,
    capacity: c_int,
    channel: *mut Opaque,
    vector: c_int,
) -> Result<*mut ibv_cq, c_int> {
    let entries = u32::try_from(capacity).ok().filter(|n| *n != 0).ok_or(libc::EINVAL)?;
    let memory = Box::into_raw(Box::new(MaybeUninit::<Cq>::zeroed()));
    let cq: *mut ibv_cq = memory.cast();
    // With twice the room the card is told of entries taken half as often; a ring that large need not be to be had.
    let mut answer = Err(libc::EINVAL);
    for cqe in [capacity.checked_mul(2), Some(capacity)].into_iter().flatten() {
        let mut command = ibv_create_cq::new();
        let mut given = Answer::<ib_uverbs_create_cq_resp, VerbsCq>::default();
        // SAFETY: command and answer have the sizes given.
        let error = unsafe {
            let (size, given) = (size_of_val(&given), (&raw mut given).cast());
            let command_size = size_of_val(&command);
            ibv_cmd_create_cq(context, cqe, channel, vector, cq, &raw mut command, command_size, given, size)
        };
        answer = if error == 0 { Ok(given.driver) } else { Err(error) };
        if !matches!(answer, Err(libc::EINVAL | libc::ENOMEM)) {
            break;
        }
    }
    let made = match answer {
        // SAFETY: filled by libibverbs.
        Ok(answer) => unsafe { map(context, cq, answer, entries) }.inspect_err(|_| {
            // SAFETY: just made, and known to nobody.
            unsafe { ibv_cmd_destroy_cq(cq) };
        }),
        Err(error) => Err(error),
    };
    match made {
        Ok(ours) => {
            // SAFETY: the memory is ours, and has a place for it.
            unsafe {
                (&raw mut (*cq.cast::<Cq>()).ours).write(ours);
                (*cq).cqe = capacity;
            }
            Ok(cq)
        }
        Err(error) => {
            // SAFETY: known to nobody.
            drop(unsafe { Box::from_raw(memory) });
            Err(error)
        }
    }
}

/// Maps what the kernel has made.
///
/// # Safety
/// The context must be ours, and the queue as libibverbs has filled it.
unsafe fn map(context: *mut ibv_context, cq: *mut ibv_cq, answer: VerbsCq, capacity: u32) -> Result<Ours, c_int> {
    // SAFETY: as the caller says.
    let (entries, fd, common) = unsafe { ((*cq).cqe as u32, (*context).cmd_fd, common_of(context)) };
    if !ring_fits(entries, answer.bytes, capacity) {
        return Err(libc::EPROTO);
    }
    let mapping = Mapping::new(fd, answer.offset, answer.bytes as usize, true)?;
    // SAFETY: the mapping holds so many entries (checked above), is page-aligned, and lives beside the value.
    let completions = unsafe { Completions::new(mapping.first().cast(), entries, capacity, answer.cqn) };
    let state = State {
        completions,
        common: Arc::clone(&common),
        shared: Vec::new(),
        current: ibv_wc::default(),
        unmatched: false,
        idle: 0,
    };
    Ok(Ours {
        state: Lock::new(state),
        datagrams: AtomicU32::new(0),
        asked: AtomicBool::new(false),
        common,
        _mapping: mapping,
    })
}

pub unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller gives back a queue of ours.
    unsafe {
        let error = ibv_cmd_destroy_cq(cq);
        if error == 0 {
            let this: *const Ours = ours(cq);
            sharing().retain(|there| !std::ptr::eq(there.0, this));
            drop(Box::from_raw(cq.cast::<Cq>()));
        }
        error
    }
}

pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's queue.
    let ours = unsafe { ours(cq) };
    let mut state = ours.state.lock();
    let mut count = 0;
    while count < most && !state.unmatched {
        match state.next() {
            Ok(Some(next)) => {
                // SAFETY: the caller's array has room for `most`.
                unsafe { wc.add(count as usize).write(next) };
                count += 1;
            }
            Ok(None) => break,
            Err(_) => state.unmatched = true,
        }
    }
    // Also of what nobody is to see.
    state.completions.tell(&ours.common.doorbells);
    if count == 0 && state.unmatched {
        // What was found before it is with the caller already.
        state.unmatched = false;
        return -failed(libc::EIO);
    }
    drop(state);
    if count == most {
        return count;
    }
    // SAFETY: the caller's array has room for as many.
    match unsafe { poll_kernel(cq, most - count, wc.add(count as usize)) } {
        more if more >= 0 => count + more,
        // What was found before it is told first.
        error => {
            if count > 0 {
                count
            } else {
                error
            }
        }
    }
}

/// The card has no arm for solicited ones alone: those and all others notify.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    // SAFETY: the caller's queue.
    let ours = unsafe { ours(cq) };
    ours.asked.store(true, Ordering::SeqCst);
    ours.state.lock().completions.arm(&ours.common.doorbells);
    match ours.datagrams.load(Ordering::SeqCst) {
        0 => 0,
        // SAFETY: the caller's queue.
        _ => unsafe { ibv_cmd_req_notify_cq(cq, solicited) },
    }
}

/// Takes the lock until `end_poll`, if there is a completion.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's struct.
    if unsafe { (*attr).comp_mask } != 0 {
        return failed(libc::EINVAL);
    }
    // SAFETY: the caller's queue.
    let mut state = unsafe { ours(cq) }.state.lock();
    // SAFETY: it is the queue's.
    let error = if std::mem::take(&mut state.unmatched) { libc::EIO } else { unsafe { state.advance(cq) } };
    if error != 0 {
        // SAFETY: the caller's queue.
        state.completions.tell(&unsafe { ours(cq) }.common.doorbells);
        return error;
    }
    // SAFETY: as above.
    unsafe { put(cq, &state.current) };
    state.keep();
    0
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: between `start_poll` and `end_poll`.
    let mut state = unsafe { kept(cq) };
    // SAFETY: it is the queue's.
    let error = unsafe { state.advance(cq) };
    if error == 0 {
        // SAFETY: the caller's queue.
        unsafe { put(cq, &state.current) };
    }
    state.keep();
    error
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: as `next_poll`; the lock is given back with it.
    let (mut state, common) = unsafe { (kept(cq), &ours(cq).common) };
    state.completions.tell(&common.doorbells);
}

/// Puts what programs read without a call.
///
/// # Safety
/// The queue must be ours, and its lock held.
unsafe fn put(cq: *mut ibv_cq_ex, wc: &ibv_wc) {
    // SAFETY: as the caller says.
    unsafe { ((*cq).status, (*cq).wr_id) = (wc.status, wc.wr_id) };
}

/// The lock that `start_poll` has taken.
///
/// # Safety
/// Between `start_poll` and `end_poll`, in the thread that has called it.
unsafe fn kept<'a>(cq: *mut ibv_cq_ex) -> Held<'a, State> {
    // SAFETY: as the caller says.
    unsafe { ours(cq).state.kept() }
}

/// Declares functions that read a field of the current completion.
macro_rules! read {
    ($($name:ident: $type:ty = $field:ident;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: between `start_poll` and `end_poll`.
            let state = unsafe { kept(cq) };
            let value = state.current.$field;
            state.keep();
            value.into()
        }
    )*};
}

read! {
    read_opcode: c_uint = opcode;
    read_vendor_err: u32 = vendor_err;
    read_byte_len: u32 = byte_len;
    read_imm_data: u32 = imm_data;
    read_qp_num: u32 = qp_num;
    read_src_qp: u32 = src_qp;
    read_wc_flags: c_uint = wc_flags;
    read_slid: u32 = slid;
    read_sl: u8 = sl;
    read_dlid_path_bits: u8 = dlid_path_bits;
}
