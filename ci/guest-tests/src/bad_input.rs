// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bad input from a process gets an answer: a defined error, a counter, nothing else disturbed (invariants 5, 6).

use std::os::fd::{AsFd, AsRawFd};

use berth_abi::card::MAX_DEPTH;
use berth_abi::wqe::{OP_RECV, OP_SEND, SEND_IMMEDIATE, SEND_INLINE, Sge, Wqe};
use berth_abi::{counters as c, host, ioctl};
use libberth::{Context, Error, ForeignPeer, QpConfig, Reason, Status, raw};

use crate::connections::loopback_works;
use crate::env::Env;
use crate::util::{Conn, Mem, PAGE, Random, Res, check, depths, fail, in_child, loop_pair, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: inv_6_bad_sends_fail_with_a_named_error, inv_6_bad_receives_fail_and_later_ones_go_on,
         inv_6_bad_addresses_fail_with_local_protection, inv_5_doorbell_of_another_context_is_denied,
         inv_6_torn_doorbell_is_dropped, inv_6_wild_producer_index_stops_its_queue_pair_only,
         inv_6_overrun_completion_queue_stops_its_queue_pair_only, inv_6_ioctls_refuse_fields_out_of_range,
         inv_6_random_ioctls_do_no_harm, inv_6_random_queue_elements_do_no_harm, inv_5_objects_of_another_context_are_not_found,
         inv_6_caps_of_contexts_and_queue_pairs_are_errors;
}

fn counter(env: &Env, index: u32) -> Res<u64> {
    Ok(env.counters()?.rtl(index))
}

fn element(opcode: u8, sges: &[Sge]) -> Wqe {
    let mut wqe = Wqe { opcode, num_sge: sges.len() as u16, wr_id: 77, ..Wqe::default() };
    wqe.length = sges.iter().map(|s| s.len).sum();
    wqe.sge[..sges.len()].copy_from_slice(sges);
    wqe
}

/// Malformed elements for a queue.
fn malformed(opcode: u8, good: Sge) -> Vec<(&'static str, Wqe)> {
    let base = element(opcode, &[good]);
    let other = if opcode == OP_SEND { OP_RECV } else { OP_SEND };
    let mut reserved = base;
    reserved.sge[0].reserved = 1;
    // To 32 bits they are as many as the element says.
    let mut wraps = Wqe { num_sge: 2, length: 100, ..base };
    (wraps.sge[0].len, wraps.sge[1]) = (1 << 31, Sge { len: (1 << 31) + 100, ..good });
    vec![
        ("unknown opcode", Wqe { opcode: 99, ..base }),
        ("opcode of the other queue", Wqe { opcode: other, ..base }),
        ("unknown flags", Wqe { flags: 0x80, ..base }),
        ("eight ranges", Wqe { num_sge: 8, ..base }),
        ("65535 ranges", Wqe { num_sge: u16::MAX, ..base }),
        ("length too long", Wqe { length: base.length + 1, ..base }),
        ("length too short", Wqe { length: base.length - 1, ..base }),
        ("reserved field", reserved),
        ("ranges whose sum is over 32 bits", wraps),
        ("65 bytes inline", Wqe { flags: SEND_INLINE, num_sge: 0, length: 65, ..base }),
        ("inline with a range", Wqe { flags: SEND_INLINE, length: 40, ..base }),
        ("an immediate in a stream", Wqe { flags: SEND_IMMEDIATE, ..base }),
    ]
}

fn inv_6_bad_sends_fail_with_a_named_error(env: &Env) -> Res {
    let mem = Mem::pattern(PAGE, 60)?;
    let context = env.context()?;
    let before = env.counters()?.bad_elements();
    let cases = malformed(OP_SEND, mem.sge(0, 100));
    // Each takes a connection. The last ones are those that only a send queue knows.
    let count = env.cases(5, 100).min(cases.len() as u64);
    for (what, wqe) in cases.into_iter().rev().take(count as usize) {
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 700)?;
        to.recv(0, &[mem.sge(1000, 100)])?;
        // SAFETY: whatever the card makes of it names memory that outlives the connection.
        unsafe { from.qp.post_raw(false, &wqe) }?;
        let sent = from.sent(env)?;
        ensure!((sent.wr_id, sent.status) == (77, Status::BadWqe), "{what}: {sent:?}");
        ensure!(to.recvs.poll()?.is_none_or(|c| c.status != Status::Ok), "{what}: something was sent");
    }
    ensure_eq!(env.counters()?.bad_elements() - before, count);
    // A bad element behind another one is flushed, like everything behind a failed send; it is counted all the same.
    let (mut from, _to) = loop_pair(env, &context, &depths(4, 4), 717)?;
    for (_, wqe) in &malformed(OP_SEND, mem.sge(0, 100))[..2] {
        // SAFETY: as above.
        unsafe { from.qp.post_raw(false, wqe) }?;
    }
    ensure_eq!([from.sent(env)?.status, from.sent(env)?.status], [Status::BadWqe, Status::Flushed]);
    ensure_eq!(env.counters()?.bad_elements() - before, count + 2);
    loopback_works(env, 701)
}

fn inv_6_bad_receives_fail_and_later_ones_go_on(env: &Env) -> Res {
    let source = Mem::pattern(100, 61)?;
    let mem = Mem::new(PAGE)?;
    let context = env.context()?;
    let before = env.counters()?.bad_elements();
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 702)?;
    for (n, (what, wqe)) in (1..).zip(malformed(OP_RECV, mem.sge(0, 100))) {
        // SAFETY: whatever the card makes of it names memory that outlives the connection.
        unsafe { to.qp.post_raw(true, &wqe) }?;
        let got = to.received(env)?;
        ensure!((got.wr_id, got.status) == (77, Status::BadWqe), "{what}: {got:?}");
        ensure_eq!((env.counters()?.bad_elements(), what), (before + n, what));
        to.recv(1, &[mem.sge(200, 100)])?;
        from.send(n, &[source.sge(0, 100)])?;
        let got = to.received(env)?;
        ensure!((got.wr_id, got.status) == (1, Status::Ok), "after {what}: {got:?}");
        ensure_eq!(from.sent(env)?.ok()?.wr_id, n);
        check(&mem.bytes()[200..300], 61, 0)?;
    }
    Ok(())
}

fn inv_6_bad_addresses_fail_with_local_protection(env: &Env) -> Res {
    let mem = Mem::new(PAGE)?;
    let hole = Mem::new(PAGE)?;
    hole.unmap(0, PAGE)?;
    let context = env.context()?;
    // The doorbell page: memory, but of a device (VM_IO).
    let special = raw::doorbell_page(&context) as u64;
    let cases: [(&str, u64, u32); 7] = [
        ("null", 0, 100),
        ("unmapped", hole.va(0), 100),
        ("kernel", 0xffff_8880_0000_0000, 100),
        ("not canonical", 0x8000_0000_0000_0000, 100),
        ("wraps around", u64::MAX - 50, 100),
        ("device memory", special, 64),
        ("end of the user's half", 0x7fff_ffff_f000, 8192),
    ];
    let counted = || -> Res<[u64; 2]> {
        let n = env.counters()?;
        Ok([n.drv(c::D_PAGE_FAULTS), n.bad_elements()])
    };
    for (what, va, len) in cases {
        let bad = Sge { va, len, reserved: 0 };
        let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 703)?;
        let before = counted()?;
        to.recv(0, &[bad])?;
        let wraps = va.checked_add(len.into()).is_none();
        let expected = if wraps { Status::BadWqe } else { Status::LocalProtection };
        ensure_eq!((to.received(env)?.status, what), (expected, what));
        let refused = counted()?;
        // One for each request: a range may take two.
        ensure_eq!((refused[0] > before[0], refused[1] - before[1], what), (!wraps, wraps.into(), what));
        to.recv(1, &[mem.sge(0, PAGE)])?;
        from.send(2, &[bad])?;
        ensure_eq!((from.sent(env)?.status, what), (Status::LocalProtection, what));
        let after = counted()?;
        ensure_eq!((after[0] > refused[0], after[1], what), (true, refused[1], what));
    }
    ensure!(mem.bytes().iter().all(|b| *b == 0), "something was sent");
    loopback_works(env, 704)
}

fn inv_5_doorbell_of_another_context_is_denied(env: &Env) -> Res {
    let mem = Mem::pattern(PAGE, 62)?;
    let target = Mem::new(PAGE)?;
    let (mine, other) = (env.context()?, env.context()?);
    let (mut from, mut to) = loop_pair(env, &mine, &depths(4, 4), 705)?;
    to.recv(0, &[target.sge(0, PAGE)])?;
    let before = counter(env, c::C_DOORBELL_DENIED)?;
    let values = [
        (host::DB_SQ, u64::from(from.qp.qpn()) | 1 << 16 | 100 << 32),
        (host::DB_RQ, u64::from(to.qp.qpn()) | 3 << 16),
        (host::DB_CQ, u64::from(to.recvs.cqn()) | 1 << 16 | 1 << 63),
        (host::DB_SQ, 0xffff | 1 << 16),
        (host::DB_CQ, 0xffff),
        // The control connection's QPN.
        (host::DB_SQ, 2 | 1 << 16),
    ];
    for (offset, value) in values {
        // SAFETY: it is for queues of another context: the card must not act on it.
        unsafe { raw::doorbell(&other, offset, value) }?;
    }
    wait_until("six denied doorbells are counted", env.hang, || {
        Ok(counter(env, c::C_DOORBELL_DENIED)? >= before + values.len() as u64)
    })?;
    // The queue pairs have not noticed.
    from.send(1, &[mem.sge(0, PAGE)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len as usize, PAGE);
    check(target.bytes(), 62, 0)
}

fn inv_6_torn_doorbell_is_dropped(env: &Env) -> Res {
    let context = env.context()?;
    let before = counter(env, c::C_DOORBELL_MALFORMED)?;
    let denied = counter(env, c::C_DOORBELL_DENIED)?;
    let page = raw::doorbell_page(&context);
    // SAFETY: inside the doorbell page; the card must drop what is not one 8-byte write to a known offset, and what rings
    // a raw queue, which is the kernel's.
    unsafe {
        page.cast::<u32>().write_volatile(16);
        page.add(4).cast::<u32>().write_volatile(0);
        page.add(0x28).cast::<u64>().write_volatile(16);
        page.add(host::DB_RAW_SQ as usize).cast::<u64>().write_volatile(1 << 16);
        page.add(0xff8).cast::<u64>().write_volatile(16);
    }
    wait_until("malformed doorbells are counted", env.hang, || {
        Ok(counter(env, c::C_DOORBELL_MALFORMED)? >= before + 4)
    })?;
    ensure!(counter(env, c::C_DOORBELL_DENIED)? > denied);
    loopback_works(env, 706)
}

fn inv_6_wild_producer_index_stops_its_queue_pair_only(env: &Env) -> Res {
    let mem = Mem::pattern(PAGE, 63)?;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut good, mut good_to) = loop_pair(env, &context, &depths(4, 4), 707)?;
    for (n, offset) in [host::DB_SQ, host::DB_RQ].into_iter().enumerate() {
        let before = env.counters()?.fw(c::F_BAD_INDEX);
        let (bad, bad_to) = loop_pair(env, &context, &depths(4, 4), 708 + n as u16)?;
        // SAFETY: further ahead than the queue is deep: the card must not read any element.
        unsafe { raw::doorbell(&context, offset, u64::from(bad.qp.qpn()) | 0x7fff << 16) }?;
        ensure_eq!(bad.qp.wait_closed(env.limit())?, Reason::BadIndex);
        // The peer is told, too.
        bad_to.qp.wait_closed(env.limit())?;
        ensure!(env.counters()?.fw(c::F_BAD_INDEX) > before);
    }
    good_to.recv(0, &[target.sge(0, PAGE)])?;
    good.send(1, &[mem.sge(0, PAGE)])?;
    good_to.received(env)?.ok()?;
    check(target.bytes(), 63, 0)
}

fn inv_6_overrun_completion_queue_stops_its_queue_pair_only(env: &Env) -> Res {
    let source = Mem::pattern(16, 64)?;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    // Room for two completions, but eight receives.
    let small = context.create_cq_exact(2)?;
    let large = context.create_cq(64)?;
    let mut to = context.create_qp(&large, &small, &depths(8, 8))?;
    let mut from = Conn::new(&context, &depths(8, 8))?;
    crate::util::loop_back(env, &context, &from.qp, &to, 710)?;
    let before = counter(env, c::C_CQ_OVERRUN)?;
    for n in 0..8 {
        let sge = [target.sge(n * 16, 16)];
        let request = libberth::WorkRequest { wr_id: n as u64, sges: &sge, ..Default::default() };
        // SAFETY: `target` outlives the queue pair.
        unsafe { to.post_recv(&[request]) }?;
    }
    for n in 0..8 {
        from.send(n, &[source.sge(0, 16)])?;
    }
    ensure_eq!(to.wait_closed(env.limit())?, Reason::CqFull);
    from.qp.wait_closed(env.limit())?;
    ensure!(counter(env, c::C_CQ_OVERRUN)? > before);
    loopback_works(env, 711)
}

fn errno_of(fd: i32, request: u32, bytes: &mut [u8]) -> i32 {
    // SAFETY: the driver copies at most the size that the request encodes, which the callers' buffers have.
    let ret = unsafe { libc::ioctl(fd, request as libc::Ioctl, bytes.as_mut_ptr()) };
    if ret < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

fn inv_6_ioctls_refuse_fields_out_of_range(env: &Env) -> Res {
    let before = env.counters()?.drv(c::D_BAD_IOCTL);
    let context = env.context()?;
    let cq = context.create_cq(8)?;
    let mut refused = 0;
    let mut expect = |what: &str, outcome: Result<(), Error>| -> Res {
        refused += 1;
        match outcome {
            Err(Error::Invalid { .. } | Error::NotFound { .. }) => Ok(()),
            other => fail(format!("{what}: {other:?}")),
        }
    };
    for (what, config) in [
        ("send depth 0", QpConfig { send_depth: 0, ..QpConfig::default() }),
        ("send depth 4097", QpConfig { send_depth: MAX_DEPTH + 1, ..QpConfig::default() }),
        ("receive depth 2^32 - 1", QpConfig { recv_depth: u32::MAX, ..QpConfig::default() }),
        ("list of 65", QpConfig { max_list: 65, ..QpConfig::default() }),
        ("block of 5000", QpConfig { block: 5000, ..QpConfig::default() }),
        ("block of 2 MiB", QpConfig { block: 2 << 20, ..QpConfig::default() }),
    ] {
        expect(what, context.create_qp(&cq, &cq, &config).map(drop))?;
    }
    expect("CQ of 32769 entries", context.create_cq_exact(32769).map(drop))?;
    expect("budget 0", context.set_budget(0))?;
    let qp = context.create_qp(&cq, &cq, &depths(1, 1))?;
    expect("service 0", qp.start_connect(env.own_ip, 0, b""))?;
    let good = ForeignPeer::new(env.own_ip, 16);
    for (what, peer) in [
        ("a foreign peer in stream mode", good),
        ("QPN 2", ForeignPeer { qpn: 2, ..good }),
        ("PSN 2^24", ForeignPeer { psn: 1 << 24, ..good }),
        ("MTU 1000", ForeignPeer { mtu: 1000, ..good }),
        ("MTU 8192", ForeignPeer { mtu: 8192, ..good }),
        ("RNR timer 32", ForeignPeer { rnr_timer: 32, ..good }),
        ("8 RNR retries", ForeignPeer { rnr_retries: 8, ..good }),
    ] {
        expect(what, qp.set_peer(&peer))?;
    }
    ensure!(matches!(qp.disconnect(), Err(Error::Busy { .. } | Error::Invalid { .. })));
    // Reserved fields must be zero.
    let mut handle = ioctl::Handle { value: qp.qpn(), reserved: 1, identity: 0 };
    // SAFETY: a struct of plain bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut handle).cast::<u8>(), size_of::<ioctl::Handle>()) };
    let fd = context.as_fd().as_raw_fd();
    ensure_eq!(errno_of(fd, ioctl::IOC_DESTROY_QP, bytes), libc::EINVAL);
    // A context is made once.
    let mut again = [0u8; size_of::<ioctl::Context>()];
    again[0] = berth_abi::card::ABI_VERSION as u8;
    again[4..8].fill(0xff);
    let errno = errno_of(fd, ioctl::IOC_CONTEXT, &mut again);
    ensure!(errno == libc::EBUSY || errno == libc::EINVAL, "second context: errno {errno}");
    // What needs a context does not work without.
    let mut none = [0u8; size_of::<ioctl::CreateCq>()];
    none[0] = 1;
    ensure!(errno_of(env.device()?.as_fd().as_raw_fd(), ioctl::IOC_CREATE_CQ, &mut none) != 0);
    // A request with an unknown number.
    ensure!(errno_of(fd, 0xc008_b77f, &mut [0; 8]) != 0);
    let counted = env.counters()?.drv(c::D_BAD_IOCTL) - before;
    ensure!(counted >= refused, "{refused} ioctls were refused, {counted} counted");
    loopback_works(env, 712)
}

fn inv_6_random_ioctls_do_no_harm(env: &Env) -> Res {
    println!("seed {}", env.seed);
    let mut random = Random::new(env.seed);
    let context = env.context()?;
    let before = env.counters()?.drv(c::D_BAD_IOCTL);
    let fd = context.as_fd().as_raw_fd();
    // Requests that change what other tests rely on, or that take a pointer, are not for a random test.
    let numbers: [u32; 28] = [
        0x01, 0x02, 0x05, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x20,
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x30, 0x7f, 0x00,
    ];
    let sizes: std::collections::HashMap<u32, u32> = [
        ioctl::IOC_CONTEXT,
        ioctl::IOC_QUERY,
        ioctl::IOC_QUERY_CONTEXT,
        ioctl::IOC_CREATE_CQ,
        ioctl::IOC_DESTROY_CQ,
        ioctl::IOC_CREATE_QP,
        ioctl::IOC_DESTROY_QP,
        ioctl::IOC_QUERY_QP,
        ioctl::IOC_SET_TRIGGER,
        ioctl::IOC_ALIASES,
        ioctl::IOC_WHOLE,
        ioctl::IOC_SET_CAP,
        ioctl::IOC_CREATE_DOMAIN,
        ioctl::IOC_DESTROY_DOMAIN,
        ioctl::IOC_REGISTER,
        ioctl::IOC_REBIND,
        ioctl::IOC_DEREGISTER,
        ioctl::IOC_LISTEN,
        ioctl::IOC_UNLISTEN,
        ioctl::IOC_CONNECT,
        ioctl::IOC_ACCEPT,
        ioctl::IOC_REJECT,
        ioctl::IOC_DISCONNECT,
        ioctl::IOC_GET_EVENT,
        ioctl::IOC_SET_PEER,
        ioctl::IOC_COUNTERS,
    ]
    .iter()
    .map(|r| (r & 0xff, (r >> 16) & 0x3fff))
    .collect();
    for _ in 0..3000 {
        let number = numbers[random.below(numbers.len())];
        let right = sizes.get(&number).copied().unwrap_or(8);
        let size = if random.below(8) == 0 { random.below(0x3fff) as u32 } else { right };
        let request = 3 << 30 | size << 16 | ioctl::IOC_TYPE << 8 | number;
        let mut bytes = vec![0u8; 0x4000];
        // Words that are small, huge, or a single bit: more of them get past the first check.
        for word in bytes[..size as usize].chunks_mut(4) {
            let value = match random.below(6) {
                0 | 1 => 0,
                2 => random.below(300) as u32,
                3 => 1 << random.below(32),
                4 => u32::MAX,
                _ => random.next() as u32,
            };
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        // A descriptor number in it must not be one of ours that is no eventfd; the driver refuses those.
        errno_of(fd, request, &mut bytes);
    }
    ensure!(env.counters()?.drv(c::D_BAD_IOCTL) > before);
    drop(context);
    loopback_works(env, 713)
}

fn inv_6_random_queue_elements_do_no_harm(env: &Env) -> Res {
    println!("seed {}", env.seed);
    let mut random = Random::new(env.seed ^ 0x5eed);
    let mem = Mem::new(16 * PAGE)?;
    let context = env.context()?;
    for _ in 0..env.cases(5, 12) {
        let (mut from, mut to) = loop_pair(env, &context, &depths(8, 8), 714)?;
        to.recv(100, &[mem.sge(0, PAGE), mem.sge(PAGE, PAGE)])?;
        for recv in [true, false] {
            let mut wqe = Wqe {
                opcode: random.below(4) as u8,
                flags: if random.below(2) == 0 { 0 } else { random.next() as u8 },
                num_sge: random.below(10) as u16,
                length: random.below(20_000) as u32,
                wr_id: 77,
                ..Wqe::default()
            };
            for sge in &mut wqe.sge {
                *sge = match random.below(3) {
                    0 => mem.sge(random.below(8 * PAGE), random.below(PAGE)),
                    1 => Sge { va: random.next(), len: random.next() as u32, reserved: 0 },
                    _ => Sge { va: mem.va(0), len: random.next() as u32, reserved: random.below(2) as u32 },
                };
            }
            if random.below(2) == 0 {
                let used = &wqe.sge[..usize::from(wqe.num_sge).min(7)];
                wqe.length = used.iter().fold(0, |sum: u32, s| sum.wrapping_add(s.len));
            }
            let conn = if recv { &mut to } else { &mut from };
            // SAFETY: addresses are inside `mem`, which is never read, or random; a random one that happens to be
            // mapped is unlikely, and the seed repeats it.
            unsafe { conn.qp.post_raw(recv, &wqe) }?;
        }
        // A send that is good by chance may wait for credit; with the connection it ends, too.
        match from.qp.disconnect() {
            Ok(()) | Err(Error::Busy { .. } | Error::Invalid { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        let sent = from.sent(env)?;
        ensure_eq!(sent.wr_id, 77);
        from.qp.state()?;
        to.qp.state()?;
    }
    loopback_works(env, 715)
}

fn inv_5_objects_of_another_context_are_not_found(env: &Env) -> Res {
    let (mine, other) = (env.context()?, env.context()?);
    let conn = Conn::new(&mine, &depths(1, 1))?;
    let fd = other.as_fd().as_raw_fd();
    for (request, value) in [
        (ioctl::IOC_DESTROY_QP, conn.qp.qpn()),
        (ioctl::IOC_DISCONNECT, conn.qp.qpn()),
        (ioctl::IOC_DESTROY_CQ, conn.sends.cqn()),
    ] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&value.to_le_bytes());
        ensure_eq!(errno_of(fd, request, &mut bytes), libc::ENOENT);
    }
    // Its completion queue is not to be used, either.
    let outcome = other.create_qp(&conn.sends, &conn.recvs, &depths(1, 1)).map(drop);
    ensure!(matches!(outcome, Err(Error::NotFound { .. } | Error::Invalid { .. })), "{outcome:?}");
    conn.qp.state()?;
    Ok(())
}

fn inv_6_caps_of_contexts_and_queue_pairs_are_errors(env: &Env) -> Res {
    let device = env.device()?;
    let before = device.counters()?.drv(c::D_BAD_IOCTL);
    let mut contexts = Vec::new();
    loop {
        match Context::new(&device) {
            Ok(context) => contexts.push(context),
            Err(Error::LimitReached { .. }) => break,
            Err(e) => return Err(e.into()),
        }
        ensure!(contexts.len() <= 64, "more contexts than doorbell pages");
    }
    ensure!(contexts.len() >= 8, "only {} contexts", contexts.len());
    let most = device.info()?.max_qps_per_process as usize;
    // As many as allowed and no more, also when they are asked for at the same time.
    contexts.truncate(8);
    let together = std::thread::scope(|scope| -> Res<usize> {
        let takers = contexts.iter().map(|context| {
            scope.spawn(move || -> std::result::Result<_, Error> {
                let cq = context.create_cq(8)?;
                let mut qps = Vec::new();
                loop {
                    match context.create_qp(&cq, &cq, &depths(1, 1)) {
                        Ok(qp) => qps.push(qp),
                        Err(Error::LimitReached { .. }) => return Ok(qps),
                        Err(e) => return Err(e),
                    }
                }
            })
        });
        let takers: Vec<_> = takers.collect();
        let mut taken = Vec::new();
        for taker in takers {
            taken.extend(taker.join().map_err(|_| "a thread has panicked")??);
        }
        Ok(taken.len())
    })?;
    ensure_eq!(together, most);
    contexts.truncate(1);
    let context = &contexts[0];
    let cq = context.create_cq(8)?;
    let mut qps = Vec::new();
    while qps.len() < most {
        qps.push(context.create_qp(&cq, &cq, &depths(1, 1))?);
    }
    let outcome = context.create_qp(&cq, &cq, &depths(1, 1)).map(drop);
    ensure!(matches!(outcome, Err(Error::LimitReached { .. })), "{outcome:?}");
    ensure_eq!(device.counters()?.drv(c::D_BAD_IOCTL), before + 2 + 8);
    let mut cqs = Vec::new();
    while let Ok(cq) = context.create_cq(8) {
        cqs.push(cq);
    }
    ensure!(cqs.len() >= 8, "only {} completion queues", cqs.len());
    // Another process can still create its objects.
    let beside = in_child(|| {
        let context = env.context()?;
        let spare: Vec<_> = (0..8).map(|_| context.create_cq(8)).collect::<std::result::Result<_, _>>()?;
        let more: Vec<_> = spare.iter().map(|cq| context.create_qp(cq, cq, &depths(1, 1))).collect();
        ensure!(more.iter().all(std::result::Result::is_ok), "{:?}", more.iter().find_map(|qp| qp.as_ref().err()));
        loopback_works(env, 717)
    })?;
    ensure_eq!(beside, 0);
    drop((qps, cqs, cq, contexts));
    loopback_works(env, 716)
}
