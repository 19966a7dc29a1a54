// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory, patterns, connections and waits for the tests.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use libberth::{
    Completion, CompletionQueue, Context, Counters, ProtectionDomain, QpConfig, QpState, QueuePair, Sge, Stream,
    Trigger, WorkRequest,
};

use crate::env::{Env, Role};
pub use crate::outcome::{Res, fail};
use crate::{ensure, ensure_eq};

/// Bytes of a page of the guest.
pub const PAGE: usize = 4096;

/// Anonymous, pageable memory, unmapped when dropped.
pub struct Mem {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process, unmapped by the owner's drop.
unsafe impl Send for Mem {}
// SAFETY: what is shared is an address, and bytes that tests look at only while they are not written.
unsafe impl Sync for Mem {}

impl Mem {
    /// `len` zeroed bytes, page-aligned.
    pub fn new(len: usize) -> Res<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE, -1)
    }

    /// `len` bytes mapped with these flags from this descriptor, where nothing was before and nothing will be: the kernel
    /// takes the highest place that is free for what the test's process maps besides, and what a test unmaps stays a hole.
    pub fn map(len: usize, flags: i32, prot: i32, fd: i32) -> Res<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
        let va = NEXT.fetch_add((len.next_multiple_of(PAGE) + PAGE) as u64, Ordering::Relaxed);
        Self::map_at(va as *mut _, len, flags | libc::MAP_FIXED_NOREPLACE, prot, fd)
    }

    /// A zeroed page at this address, where nothing is.
    pub fn page_at(va: u64) -> Res<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        Self::map_at(va as *mut _, PAGE, flags, libc::PROT_READ | libc::PROT_WRITE, -1)
    }

    fn map_at(at: *mut libc::c_void, len: usize, flags: i32, prot: i32, fd: i32) -> Res<Self> {
        // SAFETY: a fresh mapping, which replaces none: no caller asks for that (MAP_FIXED).
        let ptr = unsafe { libc::mmap(at, len, prot, flags, fd, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let ptr = NonNull::new(ptr.cast()).ok_or("mapped at 0")?;
        Ok(Self { ptr, len })
    }

    /// Memory filled with the pattern of `seed`.
    pub fn pattern(len: usize, seed: u64) -> Res<Self> {
        let mut mem = Self::new(len)?;
        fill(mem.bytes_mut(), seed, 0);
        Ok(mem)
    }

    /// As [`Mem::pattern`], but all of it in swap: the card's first use has to bring it in.
    pub fn swapped_out(len: usize, seed: u64) -> Res<Self> {
        let mem = Self::pattern(len, seed)?;
        mem.page_out()?;
        Ok(mem)
    }

    /// Virtual address of the byte at `offset`.
    pub fn va(&self, offset: usize) -> u64 {
        self.ptr.as_ptr() as u64 + offset as u64
    }

    /// The bytes. The card may write them meanwhile: look only at what has completed.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `len` bytes long and readable.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes long and writable, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// One range of it.
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge { va: self.va(offset), len: len as u32, reserved: 0 }
    }

    /// madvise on a range.
    pub fn advise(&self, offset: usize, len: usize, advice: i32) -> Res {
        // SAFETY: the range is ours, and no reference to it lives on.
        let ret = unsafe { libc::madvise(self.ptr.as_ptr().add(offset).cast(), len, advice) };
        if ret == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
    }

    /// Unmaps a range in the middle of it: the rest stays.
    pub fn unmap(&self, offset: usize, len: usize) -> Res {
        // SAFETY: the range is ours; the caller does not touch it any more.
        let ret = unsafe { libc::munmap(self.ptr.as_ptr().add(offset).cast(), len) };
        if ret == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
    }

    /// Pages out of memory, to swap: waits until the kernel says that none is resident.
    pub fn page_out(&self) -> Res {
        let pages = self.len.div_ceil(PAGE);
        wait_until("pages swapped out", Duration::from_secs(60), || {
            self.advise(0, self.len, libc::MADV_PAGEOUT)?;
            let mut resident = vec![0u8; pages];
            // SAFETY: the vector has one byte per page of our range.
            let ret = unsafe { libc::mincore(self.ptr.as_ptr().cast(), self.len, resident.as_mut_ptr()) };
            ensure!(ret == 0, "mincore: {}", io::Error::last_os_error());
            Ok(resident.iter().all(|r| r & 1 == 0))
        })
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, as far as it still exists.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

/// Byte at `offset` of the pattern of `seed`.
fn pattern(seed: u64, offset: u64) -> u8 {
    let mut z = (offset / 8).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= z >> 27;
    z.to_le_bytes()[(offset % 8) as usize]
}

/// Fills with the pattern from stream offset `offset` on.
pub fn fill(bytes: &mut [u8], seed: u64, offset: u64) {
    for (n, b) in bytes.iter_mut().enumerate() {
        *b = pattern(seed, offset + n as u64);
    }
}

/// Fails unless the bytes are the pattern from stream offset `offset` on.
pub fn check(bytes: &[u8], seed: u64, offset: u64) -> Res {
    for (n, b) in bytes.iter().enumerate() {
        let at = offset + n as u64;
        ensure!(*b == pattern(seed, at), "byte {at} of the stream is {b:#x}, not {:#x}", pattern(seed, at));
    }
    Ok(())
}

/// Gauges of the driver for objects and memory of processes: 0 when these are gone.
pub const HELD: [u32; 7] = [c::D_PINNED, c::D_QPS, c::D_CQS, c::D_CONTEXTS, c::D_XLT_USED, c::D_KEYS, c::D_COPY_USED];

/// Counters of the driver for incidents that neither a process nor a peer may cause.
pub const INCIDENTS: [u32; 4] = [c::D_RESETS, c::D_HEARTBEAT_LOST, c::D_FENCE_TIMEOUTS, c::D_BAD_EVENTS];

/// Some of the driver's counters.
pub fn of_driver<const N: usize>(counters: &Counters, which: [u32; N]) -> [u64; N] {
    which.map(|index| counters.drv(index))
}

/// The number behind a name in a file of /proc.
pub fn field(text: &str, name: &str) -> Res<u64> {
    let line = text.lines().find(|l| l.starts_with(name)).ok_or_else(|| format!("no {name}"))?;
    Ok(line[name.len()..].split_whitespace().next().ok_or("no number")?.parse()?)
}

/// KiB that drivers have pinned of this process's memory.
pub fn vm_pin() -> Res<u64> {
    field(&std::fs::read_to_string("/proc/self/status")?, "VmPin:")
}

/// xorshift generator for random tests.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Waits for a condition that nothing signals; only a hang reaches the limit. Looks less and less often, because each
/// read from the card holds up its time (docs/internals/simulator.md).
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> Res<bool>) -> Res {
    let deadline = Instant::now() + limit;
    let mut nap = Duration::from_millis(2);
    while !condition()? {
        ensure!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(nap);
        nap = (2 * nap).min(Duration::from_millis(64));
    }
    Ok(())
}

/// A queue pair with completion queues of its own.
pub struct Conn {
    /// Its queue pair.
    pub qp: QueuePair,
    /// Completions of its sends.
    pub sends: CompletionQueue,
    /// Completions of its receives.
    pub recvs: CompletionQueue,
}

impl Conn {
    /// Not connected yet.
    pub fn new(context: &Context, config: &QpConfig) -> Res<Self> {
        let sends = context.create_cq(config.send_depth)?;
        let recvs = context.create_cq(config.recv_depth)?;
        let qp = context.create_qp(&sends, &recvs, config)?;
        Ok(Self { qp, sends, recvs })
    }

    /// Posts one send of these ranges.
    pub fn send(&mut self, wr_id: u64, sges: &[Sge]) -> Res {
        // SAFETY: the tests keep their memory (`Mem`) until the connection is dropped, or take it away on purpose and do
        // not look at what is in its place then.
        unsafe { self.qp.post_send(&[WorkRequest { wr_id, sges, ..WorkRequest::default() }]) }?;
        Ok(())
    }

    /// Posts one send of these bytes, which are copied.
    pub fn send_inline(&mut self, wr_id: u64, bytes: &[u8]) -> Res {
        let sge = [Sge { va: bytes.as_ptr() as u64, len: bytes.len() as u32, reserved: 0 }];
        // SAFETY: the bytes are live, and looked at during the call only.
        unsafe { self.qp.post_send(&[WorkRequest { wr_id, sges: &sge, inline: true, ..WorkRequest::default() }]) }?;
        Ok(())
    }

    /// Posts receives, one range each, numbered from `wr_id`, all with one doorbell.
    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) -> Res {
        let requests: Vec<_> = sges
            .iter()
            .enumerate()
            .map(|(n, s)| WorkRequest {
                wr_id: wr_id + n as u64,
                sges: std::slice::from_ref(s),
                ..WorkRequest::default()
            })
            .collect();
        // SAFETY: as in `send`.
        unsafe { self.qp.post_recv(&requests) }?;
        Ok(())
    }

    /// Posts one receive of these ranges.
    pub fn recv_parts(&mut self, wr_id: u64, sges: &[Sge]) -> Res {
        // SAFETY: as in `send`.
        unsafe { self.qp.post_recv(&[WorkRequest { wr_id, sges, ..WorkRequest::default() }]) }?;
        Ok(())
    }

    /// Next completion of a send.
    pub fn sent(&self, env: &Env) -> Res<Completion> {
        Ok(self.sends.wait(env.limit())?)
    }

    /// Next completion of a receive.
    pub fn received(&self, env: &Env) -> Res<Completion> {
        Ok(self.recvs.wait(env.limit())?)
    }

    /// Waits until the card says so of the queue pair.
    pub fn wait_state(&self, env: &Env, what: &str, condition: impl Fn(&QpState) -> bool) -> Res<QpState> {
        let mut last = self.qp.state()?;
        wait_until(what, env.hang, || {
            last = self.qp.state()?;
            Ok(condition(&last))
        })
        .map_err(|e| format!("{e}; last state: {last:?}"))?;
        Ok(last)
    }
}

/// A queue pair in a protection domain, not connected yet.
pub fn conn_in(context: &Context, domain: &ProtectionDomain, config: &QpConfig) -> Res<Conn> {
    let sends = context.create_cq(config.send_depth)?;
    let recvs = context.create_cq(config.recv_depth)?;
    let qp = domain.create_qp(&sends, &recvs, config)?;
    Ok(Conn { qp, sends, recvs })
}

/// Connects the queue pairs of both guests: A connects, B listens to `service`. Post receives before.
pub fn establish(env: &Env, context: &Context, qp: &QueuePair, service: u16) -> Res {
    let key = format!("listening-{service}");
    match env.role {
        Role::B => {
            let listener = context.listen(service)?;
            env.tell(&key, "")?;
            let request = listener.next(env.limit())?;
            ensure_eq!(request.peer(), env.peer_ip);
            request.accept(qp, b"")?;
            qp.wait_established(env.limit())?;
        }
        Role::A => {
            env.hear(&key)?;
            qp.connect(env.peer_ip, service, b"", env.limit())?;
        }
    }
    Ok(())
}

/// Connects two queue pairs of this card: `from` connects, `to` accepts.
pub fn loop_back(env: &Env, context: &Context, from: &QueuePair, to: &QueuePair, service: u16) -> Res {
    let listener = context.listen(service)?;
    from.start_connect(env.own_ip, service, b"")?;
    let request = listener.next(env.limit())?;
    request.accept(to, b"")?;
    to.wait_established(env.limit())?;
    from.wait_established(env.limit())?;
    Ok(())
}

/// A connected pair of queue pairs on this card.
pub fn loop_pair(env: &Env, context: &Context, config: &QpConfig, service: u16) -> Res<(Conn, Conn)> {
    let from = Conn::new(context, config)?;
    let to = Conn::new(context, config)?;
    loop_back(env, context, &from.qp, &to.qp, service)?;
    Ok((from, to))
}

/// Receives `total` bytes of the pattern of `seed` into buffers of these sizes in turn, and checks them.
/// Buffers are posted already.
pub fn receive_pattern(
    env: &Env,
    stream: &mut Stream,
    sizes: &mut impl Iterator<Item = usize>,
    total: u64,
    seed: u64,
) -> Res<u64> {
    let mut got = 0;
    let mut pieces = 0;
    while got < total {
        let piece = stream.next_piece(env.limit())?.ok_or("no buffer is posted")?;
        check(&piece, seed, got)?;
        got += piece.len() as u64;
        let remaining = u64::from(piece.remaining());
        let len = piece.len();
        drop(piece);
        if len > 0 {
            ensure!(remaining <= total - got, "{remaining} bytes to come after {got} of {total} (CR-9)");
            pieces += 1;
        }
        stream.post_recv(&[sizes.next().ok_or("sizes are endless")?])?;
    }
    ensure_eq!(got, total);
    Ok(pieces)
}

/// Sends `total` bytes of the pattern of `seed` in elements of `message` bytes.
pub fn send_pattern(stream: &mut Stream, total: usize, message: usize, seed: u64, env: &Env) -> Res {
    for start in (0..total).step_by(message) {
        let mut buffer = libberth::Buffer::new(message.min(total - start))?;
        fill(&mut buffer, seed, start as u64);
        while !stream.has_send_room() {
            reap(stream, env)?;
        }
        stream.send(buffer, false)?;
    }
    Ok(())
}

/// Waits for one send.
pub fn reap(stream: &mut Stream, env: &Env) -> Res {
    stream.next_sent(env.limit())?.ok_or("nothing was sent")?.completion.ok()?;
    Ok(())
}

/// Waits for all sends.
pub fn reap_all(stream: &mut Stream, env: &Env) -> Res {
    while stream.sends_outstanding() > 0 {
        reap(stream, env)?;
    }
    Ok(())
}

/// A queue pair's configuration with these depths, and lists that go as soon as they may.
pub fn depths(send: u32, recv: u32) -> QpConfig {
    QpConfig { send_depth: send, recv_depth: recv, trigger: Trigger::First, ..QpConfig::default() }
}

/// Runs `child` in a forked process; answers its exit code (128 + signal when killed).
pub fn in_child(child: impl FnOnce() -> Res) -> Res<i32> {
    // SAFETY: this program has one thread where it forks (tests start none before).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            tell_of_signals();
            let code = match child() {
                Ok(()) => 0,
                Err(e) => {
                    eprintln!("child: {e}");
                    1
                }
            };
            // No destructors: they would act on the parent's objects.
            // SAFETY: ends the process.
            unsafe { libc::_exit(code) }
        }
        pid => wait_pid(pid),
    }
}

/// From now on a SIGSEGV or SIGBUS of this process says where it came from and what is mapped, and then ends it.
fn tell_of_signals() {
    extern "C" fn tell(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: system calls only, on memory of this function and what the kernel has handed to it.
        unsafe {
            let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let mut line = *b"signal 00 at 0000000000000000, instruction 0000000000000000\n";
            for (at, digits, value) in [
                (7, 2, signal as u64),
                (13, 16, (*info).si_addr() as u64),
                (43, 16, registers[libc::REG_RIP as usize] as u64),
            ] {
                for n in 0..digits {
                    line[at + n] = b"0123456789abcdef"[(value >> (4 * (digits - 1 - n)) & 15) as usize];
                }
            }
            libc::write(2, line.as_ptr().cast(), line.len());
            let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
            let mut part = [0u8; 1024];
            loop {
                let n = libc::read(maps, part.as_mut_ptr().cast(), part.len());
                if n <= 0 {
                    break;
                }
                libc::write(2, part.as_ptr().cast(), n as usize);
            }
            libc::_exit(128 + signal)
        }
    }
    // SAFETY: a handler with the arguments that SA_SIGINFO wants, in an otherwise zeroed structure, as is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tell as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Waits for a child; answers its exit code (128 + signal when killed).
pub fn wait_pid(pid: i32) -> Res<i32> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    let ret = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    ensure!(ret == pid, "waitpid: {}", io::Error::last_os_error());
    Ok(if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) })
}

/// The driver's list of pinned and requested pages.
pub fn pages() -> String {
    std::fs::read_to_string("/sys/kernel/debug/berth/berth0/pages").unwrap_or_default()
}
