// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Basic function of the stack: one message, a stream, loopback, gather and scatter, notification.

use berth_abi::{counters as c, status};
use libberth::{Local, QpConfig, Status, Stream, WorkRequest};

use crate::env::{Env, Role};
use crate::util::{
    Conn, Mem, Res, check, depths, establish, loop_pair, reap_all, receive_pattern, send_pattern, wait_until,
};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: device_says_what_it_is, qp_18_loopback_carries_a_message;
    Pair: qp_2_message_reaches_the_other_host, qp_2_gather_and_scatter_with_seven_ranges,
          qp_2_inline_sends_keep_their_place_among_others, inv_2_stream_arrives_once_and_in_order, cr_14_both_ends_send_at_once;
    One: qp_1_armed_queue_signals_its_eventfd, qp_1_batch_of_posts_with_one_doorbell, qp_1_posting_and_polling_take_no_system_call,
         qp_5_a_delay_holds_and_what_is_not_signalled_completes_in_silence;
}

fn device_says_what_it_is(env: &Env) -> Res {
    let info = env.device()?.info()?;
    ensure_eq!(info.fw_status, status::FW_RUNNING);
    ensure!(info.max_qps >= 64, "{} QPs, but 64 are required", info.max_qps);
    ensure!(info.clock_hz > 0);
    let net = info.net.ok_or("no name")?;
    ensure_eq!(net.ipv4, env.own_ip);
    ensure_eq!(net.mtu, env.args.mtu);
    let later = env.device()?.info()?.cycles;
    ensure!(later >= info.cycles, "the cycle counter went back");
    Ok(())
}

fn qp_18_loopback_carries_a_message(env: &Env) -> Res {
    let source = Mem::pattern(4096, 1)?;
    let target = Mem::new(8192)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 100)?;
    to.recv(7, &[target.sge(0, 8192)])?;
    from.send(9, &[source.sge(0, 4096)])?;
    let got = to.received(env)?.ok()?;
    ensure_eq!((got.wr_id, got.byte_len, got.recv, got.remaining), (7, 4096, true, 0));
    check(&target.bytes()[..4096], 1, 0)?;
    let sent = from.sent(env)?.ok()?;
    ensure_eq!((sent.wr_id, sent.recv), (9, false));
    ensure!(env.counters()?.rtl(c::C_LOOPBACK_FRAMES) > 0);
    Ok(())
}

fn qp_2_message_reaches_the_other_host(env: &Env) -> Res {
    let mem = match env.role {
        Role::A => Mem::pattern(5000, 2)?,
        Role::B => Mem::new(8192)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 4))?;
    if env.role == Role::B {
        conn.recv(1, &[mem.sge(0, 8192)])?;
    }
    establish(env, &context, &conn.qp, 110)?;
    match env.role {
        Role::A => {
            conn.send(2, &[mem.sge(0, 5000)])?;
            ensure_eq!(conn.sent(env)?.ok()?.wr_id, 2);
        }
        Role::B => {
            let got = conn.received(env)?.ok()?;
            ensure_eq!((got.wr_id, got.byte_len), (1, 5000));
            check(&mem.bytes()[..5000], 2, 0)?;
        }
    }
    env.meet("done")
}

fn qp_2_gather_and_scatter_with_seven_ranges(env: &Env) -> Res {
    // Ranges of odd lengths at odd addresses, one of them empty.
    const LENGTHS: [usize; 7] = [1, 4095, 0, 4097, 63, 9000, 1000];
    let total: usize = LENGTHS.iter().sum();
    let mem = match env.role {
        Role::A => Mem::pattern(32768, 3)?,
        Role::B => Mem::new(65536)?,
    };
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 4))?;
    let mut sges = Vec::new();
    match env.role {
        Role::A => {
            // Gathered from consecutive ranges: the stream is the pattern.
            let mut at = 5;
            for len in LENGTHS {
                sges.push(mem.sge(at, len));
                at += len;
            }
        }
        Role::B => {
            // Scattered in reverse order, with gaps.
            let mut at = 65000;
            for len in LENGTHS.iter().rev() {
                at -= len + 13;
                sges.push(mem.sge(at, *len));
            }
            let request = libberth::WorkRequest { wr_id: 5, sges: &sges, ..Default::default() };
            // SAFETY: `mem` lives longer than the connection.
            unsafe { conn.qp.post_recv(&[request]) }?;
        }
    }
    establish(env, &context, &conn.qp, 111)?;
    match env.role {
        Role::A => {
            conn.send(1, &sges)?;
            conn.sent(env)?.ok()?;
        }
        Role::B => {
            let got = conn.received(env)?.ok()?;
            ensure_eq!(got.byte_len as usize, total);
            let mut stream_offset = 5;
            for sge in &sges {
                let start = (sge.va - mem.va(0)) as usize;
                check(&mem.bytes()[start..start + sge.len as usize], 3, stream_offset)?;
                stream_offset += u64::from(sge.len);
            }
            // Nothing beside the ranges was written.
            let written: usize = sges.iter().map(|s| s.len as usize).sum();
            let first = (sges[6].va - mem.va(0)) as usize;
            let last = (sges[0].va - mem.va(0)) as usize + sges[0].len as usize;
            ensure!(mem.bytes()[..first].iter().all(|b| *b == 0), "written before the first range");
            ensure!(mem.bytes()[last..].iter().all(|b| *b == 0), "written behind the last range");
            ensure_eq!(written, total);
            for pair in sges.windows(2) {
                let gap_start = (pair[1].va - mem.va(0)) as usize + pair[1].len as usize;
                let gap_end = (pair[0].va - mem.va(0)) as usize;
                ensure!(mem.bytes()[gap_start..gap_end].iter().all(|b| *b == 0), "written between ranges");
            }
        }
    }
    env.meet("done")
}

/// Sends of 0 to 64 bytes in their elements, and others, in one stream, into buffers of a byte to a page.
fn qp_2_inline_sends_keep_their_place_among_others(env: &Env) -> Res {
    const SENDS: usize = 164;
    const PLACE: usize = 4096;
    const PLACES: usize = 32;
    let lens = (0..SENDS).map(|n| if n % 4 == 3 { 1000 + 37 * n } else { n % 65 });
    let total: usize = lens.clone().sum();
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(32, PLACES as u32))?;
    let receive = |conn: &mut Conn, mem: &Mem, n: usize| {
        conn.recv(n as u64, &[mem.sge(n % PLACES * PLACE, [PLACE, 1, 29, 700, 40][n % 5])])
    };
    match env.role {
        Role::A => {
            let mem = Mem::pattern(total, 12)?;
            establish(env, &context, &conn.qp, 114)?;
            let mut at = 0;
            for (n, len) in lens.enumerate() {
                if let Some(oldest) = n.checked_sub(32) {
                    ensure_eq!(conn.sent(env)?.ok()?.wr_id, oldest as u64);
                }
                if len > conn.qp.max_inline_data() {
                    conn.send(n as u64, &[mem.sge(at, len)])?;
                } else {
                    // The bytes may go at once.
                    let mut bytes = mem.bytes()[at..at + len].to_vec();
                    conn.send_inline(n as u64, &bytes)?;
                    bytes.fill(0xff);
                }
                at += len;
            }
            for n in SENDS - 32..SENDS {
                ensure_eq!(conn.sent(env)?.ok()?.wr_id, n as u64);
            }
        }
        Role::B => {
            let mem = Mem::new(PLACES * PLACE)?;
            for n in 0..PLACES {
                receive(&mut conn, &mem, n)?;
            }
            establish(env, &context, &conn.qp, 114)?;
            let (mut taken, mut arrived) = (0, 0);
            while arrived < total {
                let got = conn.received(env)?.ok()?;
                ensure_eq!(got.wr_id, taken as u64);
                let (start, len) = (taken % PLACES * PLACE, got.byte_len as usize);
                check(&mem.bytes()[start..start + len], 12, arrived as u64)?;
                arrived += len;
                receive(&mut conn, &mem, taken + PLACES)?;
                taken += 1;
            }
        }
    }
    env.meet("done")
}

fn inv_2_stream_arrives_once_and_in_order(env: &Env) -> Res {
    const TOTAL: usize = 256 << 10;
    let context = env.context()?;
    let mut stream = Stream::new(&context, &depths(16, 16), 2 << 20)?;
    if env.role == Role::B {
        stream.post_recv(&[65536; 16])?;
    }
    establish(env, &context, stream.queue_pair(), 112)?;
    match env.role {
        Role::A => {
            send_pattern(&mut stream, TOTAL, 50_000, 4, env)?;
            reap_all(&mut stream, env)?;
        }
        Role::B => {
            receive_pattern(env, &mut stream, &mut std::iter::repeat(65536), TOTAL as u64, 4)?;
        }
    }
    env.meet("done")
}

fn cr_14_both_ends_send_at_once(env: &Env) -> Res {
    const TOTAL: usize = 128 << 10;
    let (out, back) = match env.role {
        Role::A => (5, 6),
        Role::B => (6, 5),
    };
    let context = env.context()?;
    let mut stream = Stream::new(&context, &depths(16, 16), 512 << 10)?;
    stream.post_recv(&[10_000; 16])?;
    establish(env, &context, stream.queue_pair(), 113)?;
    env.meet("go")?;
    send_pattern(&mut stream, TOTAL, 16384, out, env)?;
    receive_pattern(env, &mut stream, &mut std::iter::repeat(10_000), TOTAL as u64, back)?;
    reap_all(&mut stream, env)?;
    env.meet("done")
}

fn qp_1_armed_queue_signals_its_eventfd(env: &Env) -> Res {
    use std::os::fd::AsRawFd;
    let source = Mem::pattern(100, 7)?;
    let target = Mem::new(400)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 101)?;
    to.recv(0, &[target.sge(0, 100), target.sge(100, 100)])?;
    let readable = |ms: i32| {
        let mut poll = libc::pollfd { fd: to.recvs.event_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, ms) == 1 }
    };
    ensure!(!readable(0), "signalled before it was armed");
    to.recvs.arm()?;
    from.send(0, &[source.sge(0, 100)])?;
    let ms = env.hang.as_millis() as i32;
    ensure!(readable(ms), "an armed queue did not signal");
    ensure_eq!(to.recvs.poll()?.ok_or("signalled without a completion")?.wr_id, 0);
    // A completion that is there already fires the notification at once.
    from.send(1, &[source.sge(0, 100)])?;
    from.sent(env)?.ok()?;
    from.sent(env)?.ok()?;
    let mut count = 0u64;
    // SAFETY: 8 bytes into an 8-byte variable.
    unsafe { libc::read(to.recvs.event_fd().as_raw_fd(), (&raw mut count).cast(), 8) };
    ensure!(count >= 1);
    to.recvs.arm()?;
    ensure!(readable(ms), "arming with a completion waiting did not signal");
    ensure_eq!(to.recvs.poll()?.ok_or("signalled without a completion")?.wr_id, 1);
    Ok(())
}

fn qp_1_batch_of_posts_with_one_doorbell(env: &Env) -> Res {
    let source = Mem::pattern(32 * 64, 8)?;
    let target = Mem::new(32 * 64)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &QpConfig::default(), 102)?;
    let before = env.counters()?.rtl(c::C_DOORBELLS);
    let sges: Vec<_> = (0..32).map(|n| target.sge(n * 64, 64)).collect();
    to.recv(0, &sges)?;
    let sges: Vec<_> = (0..32).map(|n| source.sge(n * 64, 64)).collect();
    let requests: Vec<_> = sges
        .iter()
        .enumerate()
        .map(|(n, s)| WorkRequest { wr_id: n as u64, sges: std::slice::from_ref(s), ..Default::default() })
        .collect();
    // SAFETY: `source` lives longer than the connection.
    unsafe { from.qp.post_send(&requests) }?;
    let doorbells = || -> Res<u64> { Ok(env.counters()?.rtl(c::C_DOORBELLS) - before) };
    wait_until("both doorbells are taken", env.hang, || Ok(doorbells()? >= 2))?;
    // 32 receives with one, 32 sends with the other; nothing has been polled yet.
    ensure_eq!(doorbells()?, 2);
    for n in 0..32 {
        let got = to.received(env)?;
        ensure_eq!((got.wr_id, got.status, got.byte_len), (n, Status::Ok, 64));
        ensure_eq!(from.sent(env)?.ok()?.wr_id, n);
    }
    check(target.bytes(), 8, 0)?;
    Ok(())
}

/// A completion says it of those before it, too; a DELAY and a NOP are elements as others are.
fn qp_5_a_delay_holds_and_what_is_not_signalled_completes_in_silence(env: &Env) -> Res {
    const CYCLES: u64 = 100_000;
    let source = Mem::pattern(20 * 64, 9)?;
    let target = Mem::new(20 * 64)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(16, 32), 103)?;
    let sges: Vec<_> = (0..20).map(|n| target.sge(n * 64, 64)).collect();
    to.recv(0, &sges)?;
    for round in 0..4 {
        let sges: Vec<_> = (0..4).map(|n| source.sge((4 * round + n) * 64, 64)).collect();
        let request = |n: usize| WorkRequest {
            wr_id: (4 * round + n) as u64,
            sges: std::slice::from_ref(&sges[n]),
            unsignalled: n != 3,
            ..Default::default()
        };
        // SAFETY: `source` lives longer than the connection.
        unsafe { from.qp.post_send(&[0, 1, 2, 3].map(request)) }?;
    }
    for round in 0..4 {
        ensure_eq!(from.sent(env)?.ok()?.wr_id, 4 * round + 3);
        ensure_eq!(from.qp.sends_outstanding(), 12 - 4 * round as u32);
    }
    let device = env.device()?;
    let before = device.info()?.cycles;
    let sge = source.sge(16 * 64, 256);
    let local =
        |wr_id, local, unsignalled| WorkRequest { wr_id, local: Some(local), unsignalled, ..Default::default() };
    let last = WorkRequest { wr_id: 22, sges: std::slice::from_ref(&sge), fence: true, ..Default::default() };
    let delay = local(21, Local::Delay(CYCLES), false);
    // SAFETY: as above.
    unsafe { from.qp.post_send(&[local(20, Local::Nothing, true), delay, last]) }?;
    for wr_id in [21, 22] {
        let sent = from.sent(env)?.ok()?;
        ensure_eq!((sent.wr_id, sent.local, sent.byte_len), (wr_id, wr_id == 21, if wr_id == 21 { 0 } else { 256 }));
    }
    let took = device.info()?.cycles - before;
    ensure!(took >= CYCLES, "{took} cycles");
    for n in 0..20 {
        ensure_eq!(to.received(env)?.ok()?.wr_id, n);
    }
    ensure_eq!((from.qp.sends_outstanding(), from.sends.poll()?), (0, None));
    check(target.bytes(), 9, 0)
}

/// Kills this process with SIGSYS at any system call between `block` and `allow`.
struct NoSystemCalls(Box<std::cell::UnsafeCell<u8>>);

impl NoSystemCalls {
    const ALLOW: u8 = 0;
    const BLOCK: u8 = 1;

    fn new() -> Res<Self> {
        const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
        const PR_SYS_DISPATCH_ON: u64 = 1;
        let selector = Box::new(std::cell::UnsafeCell::new(Self::ALLOW));
        // SAFETY: the kernel reads the byte at every system call of this thread; it lives as long as the process needs.
        let ret = unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0u64, 0u64, selector.get()) };
        ensure!(ret == 0, "prctl: {}", std::io::Error::last_os_error());
        Ok(Self(selector))
    }

    fn set(&self, value: u8) {
        // SAFETY: only this thread and the kernel on its behalf look at the byte.
        unsafe { self.0.get().write_volatile(value) };
    }
}

impl Drop for NoSystemCalls {
    fn drop(&mut self) {
        self.set(Self::ALLOW);
        // SAFETY: off; the arguments must be zero then.
        unsafe { libc::prctl(59, 0u64, 0u64, 0u64, 0u64) };
    }
}

fn qp_1_posting_and_polling_take_no_system_call(env: &Env) -> Res {
    let source = Mem::pattern(4096, 9)?;
    let target = Mem::new(4096)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(16, 16), 103)?;
    let guard = NoSystemCalls::new()?;
    let mut done = Vec::with_capacity(16);
    for n in 0..20u64 {
        // The first round may still make the allocator ask for memory.
        if n > 0 {
            guard.set(NoSystemCalls::BLOCK);
        }
        to.recv(n, &[target.sge(0, 2000), target.sge(2000, 2096)])?;
        from.send(n, &[source.sge(0, 2000)])?;
        from.send(n, &[source.sge(2000, 2096)])?;
        let mut got = 0;
        while got < 4 {
            done.clear();
            got += to.recvs.poll_into(4, &mut done)?;
            got += from.sends.poll_into(4, &mut done)?;
            std::hint::spin_loop();
        }
        guard.set(NoSystemCalls::ALLOW);
        check(target.bytes(), 9, 0)?;
    }
    Ok(())
}
