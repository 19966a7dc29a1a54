// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that peers write to and read: QP-3, QP-9, QP-11, QP-12, QP-13, PC-4.

use berth_abi::card::MAX_READS;
use berth_abi::counters as c;
use libberth::{
    Access, AccessKind, Atomic, Binding, Completion, Context, Error, Limits, Local, Mode, PeerAccess, ProtectionDomain,
    QpConfig, Reason, Region, Remote, Sge, Status, WorkRequest,
};

use crate::connections::set_peers;
use crate::env::{Env, Role};
use crate::util::{Conn, Mem, PAGE, Res, check, conn_in, depths, establish, fill, loop_back, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: qp_3_writes_of_any_size_reach_memory_that_is_not_there,
          qp_11_what_a_key_does_not_allow_is_refused_and_nothing_touched,
          qp_13_a_write_to_memory_that_has_gone_fails_at_both_ends,
          pc_4_a_write_goes_on_though_its_pages_are_given_back_at_once,
          qp_3_reads_of_any_size_move_memory_that_is_not_there,
          qp_11_a_read_that_its_key_does_not_allow_is_refused,
          qp_13_a_read_of_memory_that_has_gone_fails_at_both_ends,
          qp_3_atomics_of_both_hosts_are_carried_out_once,
          qp_4_keys_are_bound_by_elements_in_their_turn,
          qp_4_a_peer_invalidates_a_key_by_a_send,
          qp_7_memory_is_written_read_and_changed_by_a_peer_that_is_set_by_hand;
}

fn config() -> QpConfig {
    QpConfig { mode: Mode::Message, ..depths(8, 8) }
}

/// What a test begins with: a connection in a domain, and a page to receive into.
fn begin(env: &Env) -> Res<(Context, ProtectionDomain, Conn, Mem)> {
    let context = env.context()?;
    let domain = context.create_domain()?;
    let conn = conn_in(&context, &domain, &config())?;
    Ok((context, domain, conn, Mem::new(PAGE)?))
}

/// Registers a part of `mem`.
fn region(domain: &ProtectionDomain, mem: &Mem, from: usize, len: usize, access: Access) -> Res<Region> {
    // SAFETY: the tests keep their memory until they have ended, or take it away on purpose.
    Ok(unsafe { domain.register(mem.va(from), len as u64, access) }?)
}

/// What names memory, as it is told.
fn words(va: u64, key: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&va.to_le_bytes());
    bytes[8..].copy_from_slice(&key.to_le_bytes());
    bytes
}

/// Tells the peer of memory by a SEND.
fn tell(env: &Env, conn: &mut Conn, va: u64, key: u32) -> Res {
    conn.send_inline(77, &words(va, key))?;
    conn.sent(env)?.ok()?;
    Ok(())
}

/// Connects, and gives what the peer tells then.
fn connect_and_hear(env: &Env, context: &Context, conn: &mut Conn, service: u16, at: &Mem) -> Res<Remote> {
    conn.recv(0, &[at.sge(0, PAGE)])?;
    establish(env, context, &conn.qp, service)?;
    hear_remote(env, conn, at)
}

/// What the peer tells next.
fn hear_remote(env: &Env, conn: &mut Conn, at: &Mem) -> Res<Remote> {
    ensure_eq!(conn.received(env)?.ok()?.byte_len, 12);
    Ok(Remote { va: number(at, 0), key: number(at, 8) as u32 })
}

/// Writes `len` bytes of `source` from `from` on; answers the completion.
fn write(
    env: &Env,
    conn: &mut Conn,
    source: &Mem,
    (from, len): (usize, usize),
    remote: Remote,
    immediate: Option<u32>,
) -> Res<Completion> {
    let sges = [source.sge(from, len)];
    let request =
        WorkRequest { wr_id: from as u64, sges: &sges, remote: Some(remote), immediate, ..Default::default() };
    // SAFETY: the memory outlives the connection.
    unsafe { conn.qp.post_send(&[request]) }?;
    let done = conn.sent(env)?;
    ensure_eq!((done.wr_id, done.write, done.recv, done.immediate), (from as u64, true, false, None));
    Ok(done)
}

/// Reads the ranges' bytes from the peer's memory; answers the completion.
fn read(env: &Env, conn: &mut Conn, wr_id: u64, sges: &[Sge], remote: Remote) -> Res<Completion> {
    let request =
        WorkRequest { wr_id, sges, source: Some(remote), fence: wr_id.is_multiple_of(2), ..Default::default() };
    // SAFETY: the memory outlives the connection.
    unsafe { conn.qp.post_send(&[request]) }?;
    let done = conn.sent(env)?;
    ensure_eq!((done.wr_id, done.read, done.write, done.recv), (wr_id, true, false, false));
    Ok(done)
}

/// Pages linger for so long while `f` runs.
fn lingering<T>(env: &Env, ms: u32, f: impl FnOnce() -> Res<T>) -> Res<T> {
    let device = env.device()?;
    device.set_limits(&Limits { linger_ms: Some(ms), ..Limits::default() })?;
    let result = f();
    device.set_limits(&Limits { linger_ms: Some(0), ..Limits::default() })?;
    result
}

/// Where WRITEs go, from the start of the region, and their bytes: within a page, across pages, all of a swapped-out
/// part, and what nobody has touched yet.
const WRITES: [(usize, usize); 7] = [
    (0, 1),
    (1, 4095),
    (3 * PAGE + 4000, 5000),
    (8 * PAGE, 0),
    (16 * PAGE, 16 * PAGE),
    (64 * PAGE + 1, 30_003),
    (96 * PAGE - 7, 100_000),
];
const WHOLE: usize = 512 << 10;
/// Bytes in front of the region, which is aligned to nothing.
const BEFORE: usize = 4093;

fn qp_3_writes_of_any_size_reach_memory_that_is_not_there(env: &Env) -> Res {
    let (context, domain, mut conn, small) = begin(env)?;
    match env.role {
        Role::A => {
            let source = Mem::pattern(WHOLE, 400)?;
            let start = connect_and_hear(env, &context, &mut conn, 400, &small)?;
            let to = |at: usize| Remote { va: start.va + at as u64, ..start };
            for (at, len) in WRITES {
                let done = write(env, &mut conn, &source, (at, len), to(at), None)?.ok()?;
                ensure_eq!(done.byte_len as usize, len);
            }
            // The last one says that all are there.
            let last = WHOLE - 300;
            let done = write(env, &mut conn, &source, (last, 300), to(last), Some(0xc0ff_ee00))?.ok()?;
            ensure_eq!(done.byte_len, 300);
            env.meet("written")?;
            // The key is bound anew, to one byte, and then to nothing.
            env.hear("bound")?;
            write(env, &mut conn, &source, (5, 1), to(WHOLE), None)?.ok()?;
            env.tell("one", "")?;
            env.hear("unbound")?;
            ensure_eq!(write(env, &mut conn, &source, (5, 1), to(WHOLE), None)?.status, Status::RemoteAccess);
        }
        Role::B => {
            let mut mem = Mem::new(BEFORE + WHOLE + PAGE)?;
            let swapped = BEFORE + 12 * PAGE..BEFORE + 40 * PAGE;
            fill(&mut mem.bytes_mut()[swapped.clone()], 401, 0);
            mem.page_out()?;
            let pinned = env.counters()?.drv(c::D_PAGES_PINNED);
            let region = region(&domain, &mem, BEFORE, WHOLE, Access::WRITE)?;
            ensure_eq!(env.counters()?.drv(c::D_PAGES_PINNED), pinned);
            conn.recv(9, &[small.sge(0, PAGE)])?;
            establish(env, &context, &conn.qp, 400)?;
            let got = lingering(env, 50, || {
                tell(env, &mut conn, mem.va(BEFORE), region.key())?;
                Ok(conn.received(env)?.ok()?)
            })?;
            ensure_eq!((got.wr_id, got.recv, got.write, got.byte_len), (9, true, true, 300));
            ensure_eq!(got.immediate, Some(0xc0ff_ee00));
            ensure!(small.bytes().iter().all(|b| *b == 0), "the receive's buffer stays as it was");
            let mut expected = vec![0; BEFORE + WHOLE + PAGE];
            fill(&mut expected[swapped], 401, 0);
            for (at, len) in WRITES.into_iter().chain([(WHOLE - 300, 300)]) {
                fill(&mut expected[BEFORE + at..][..len], 400, at as u64);
            }
            let differs = mem.bytes().iter().zip(&expected).position(|(a, b)| a != b);
            ensure!(differs.is_none(), "byte {differs:?} of the memory is another");
            let device = env.device()?;
            wait_until("nothing pinned behind the WRITEs", env.hang, || Ok(device.counters()?.pinned() == 0))?;
            ensure!(device.counters()?.drv(c::D_PAGES_PINNED) > pinned);
            env.meet("written")?;
            // SAFETY: as in `region`.
            unsafe { region.rebind(mem.va(BEFORE + WHOLE), 1, Access::WRITE) }?;
            env.tell("bound", "")?;
            env.hear("one")?;
            check(&mem.bytes()[BEFORE + WHOLE..][..1], 400, 5)?;
            mem.bytes_mut()[BEFORE + WHOLE] = 0;
            region.unbind()?;
            env.tell("unbound", "")?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            ensure_eq!(mem.bytes()[BEFORE + WHOLE], 0);
            // The process ends with a region that it has not ended.
            std::mem::forget(region);
        }
    }
    env.meet("done")
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Key,
    Tag,
    Begin,
    End,
    Right,
    Domain,
    Gone,
    Used,
}

impl Wrong {
    /// What is asked for, of a key that was told so.
    fn asks(self, Remote { va, key }: Remote) -> Remote {
        match self {
            Self::Key => Remote { va, key: key ^ 1 << 31 },
            Self::Tag => Remote { va, key: key ^ 1 },
            Self::Begin => Remote { va: va - 1, key },
            Self::End => Remote { va: va + 1, key },
            _ => Remote { va, key },
        }
    }
}

/// The owner of the memory hears which access of `len` bytes was refused.
fn ensure_named(conn: &Conn, kind: AccessKind, Remote { va, key }: Remote, len: u32) -> Res {
    ensure_eq!(conn.qp.refused_access(), Some(PeerAccess { kind, key, va, len }));
    Ok(())
}

fn qp_11_what_a_key_does_not_allow_is_refused_and_nothing_touched(env: &Env) -> Res {
    let context = env.context()?;
    let (domain, other) = (context.create_domain()?, context.create_domain()?);
    let small = Mem::new(PAGE)?;
    let source = Mem::pattern(PAGE, 402)?;
    let mut mem = Mem::new(2 * PAGE)?;
    let read = Access { read: true, ..Access::default() };
    let once = Access { one_shot: true, ..Access::WRITE };
    // Each check of a key has benches of its own; here those that programs can tell apart.
    let all = [Wrong::Key, Wrong::End, Wrong::Right, Wrong::Domain, Wrong::Gone, Wrong::Used, Wrong::Tag, Wrong::Begin];
    let count = env.cases(6, 8) as usize;
    for (n, wrong) in all.into_iter().take(count).enumerate() {
        let mut conn = conn_in(&context, &domain, &config())?;
        let service = 410 + n as u16;
        match env.role {
            Role::A => {
                let remote = wrong.asks(connect_and_hear(env, &context, &mut conn, service, &small)?);
                if wrong == Wrong::Used {
                    write(env, &mut conn, &source, (0, 100), remote, None)?.ok()?;
                    env.tell(&format!("used-{service}"), "")?;
                    env.hear(&format!("cleared-{service}"))?;
                }
                let done = write(env, &mut conn, &source, (0, 100), remote, None)?;
                ensure!(done.status == Status::RemoteAccess, "{wrong:?}: {done:?}");
                ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
            }
            Role::B => {
                let refused = env.counters()?.fw(c::F_ACCESS_REFUSED);
                let (of, access) = match wrong {
                    Wrong::Right => (&domain, read),
                    Wrong::Domain => (&other, Access::WRITE),
                    Wrong::Used => (&domain, once),
                    _ => (&domain, Access::WRITE),
                };
                let region = region(of, &mem, 50, 100, access)?;
                let key = region.key();
                let keep = (wrong != Wrong::Gone).then_some(region);
                establish(env, &context, &conn.qp, service)?;
                tell(env, &mut conn, mem.va(50), key)?;
                if wrong == Wrong::Used {
                    env.hear(&format!("used-{service}"))?;
                    check(&mem.bytes()[50..150], 402, 0)?;
                    mem.bytes_mut().fill(0);
                    env.tell(&format!("cleared-{service}"), "")?;
                }
                let reason = conn.qp.wait_closed(env.limit())?;
                ensure!(reason == Reason::Access, "{wrong:?}: {reason}");
                ensure_named(&conn, AccessKind::Write, wrong.asks(Remote { va: mem.va(50), key }), 100)?;
                ensure!(mem.bytes().iter().all(|b| *b == 0), "{wrong:?}: something was written");
                ensure_eq!(env.counters()?.fw(c::F_ACCESS_REFUSED), refused + 1);
                drop(keep);
            }
        }
        env.meet(&format!("done-{service}"))?;
    }
    // In stream mode nothing is written.
    let mut stream = Conn::new(&context, &depths(4, 4))?;
    let request = WorkRequest { remote: Some(Remote { va: 0, key: 0 }), ..Default::default() };
    // SAFETY: nothing is posted.
    ensure!(matches!(unsafe { stream.qp.post_send(&[request]) }, Err(Error::RemoteInStream)));
    Ok(())
}

fn qp_13_a_write_to_memory_that_has_gone_fails_at_both_ends(env: &Env) -> Res {
    let (context, domain, mut conn, small) = begin(env)?;
    match env.role {
        Role::A => {
            let source = Mem::pattern(3 * PAGE, 403)?;
            let remote = connect_and_hear(env, &context, &mut conn, 430, &small)?;
            ensure_eq!(write(env, &mut conn, &source, (0, 3 * PAGE), remote, None)?.status, Status::RemoteError);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
        }
        Role::B => {
            let mem = Mem::new(3 * PAGE)?;
            let region = region(&domain, &mem, 0, 3 * PAGE, Access::WRITE)?;
            mem.unmap(PAGE, PAGE)?;
            establish(env, &context, &conn.qp, 430)?;
            tell(env, &mut conn, mem.va(0), region.key())?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::NoTarget);
            let access = PeerAccess { kind: AccessKind::Write, key: region.key(), va: mem.va(0), len: 3 * PAGE as u32 };
            ensure_eq!(conn.qp.refused_access(), Some(access));
        }
    }
    env.meet("done")
}

fn pc_4_a_write_goes_on_though_its_pages_are_given_back_at_once(env: &Env) -> Res {
    const BYTES: usize = 3 * PAGE;
    let (context, domain, mut conn, small) = begin(env)?;
    match env.role {
        Role::A => {
            let source = Mem::pattern(BYTES, 404)?;
            let remote = connect_and_hear(env, &context, &mut conn, 440, &small)?;
            let before = env.counters()?;
            write(env, &mut conn, &source, (0, BYTES), remote, Some(4))?.ok()?;
            let after = env.counters()?;
            ensure!(after.fw(c::F_MEMORY_WAITS) > before.fw(c::F_MEMORY_WAITS), "it has waited");
            ensure_eq!(after.fw(c::F_TIMEOUTS), before.fw(c::F_TIMEOUTS));
        }
        Role::B => {
            let mem = Mem::swapped_out(BYTES, 405)?;
            let region = region(&domain, &mem, 0, BYTES, Access::WRITE)?;
            conn.recv(0, &[small.sge(0, PAGE)])?;
            establish(env, &context, &conn.qp, 440)?;
            tell(env, &mut conn, mem.va(0), region.key())?;
            ensure_eq!(conn.received(env)?.ok()?.immediate, Some(4));
            check(mem.bytes(), 404, 0)?;
        }
    }
    env.meet("done")
}

fn qp_3_reads_of_any_size_move_memory_that_is_not_there(env: &Env) -> Res {
    let (context, domain, mut conn, small) = begin(env)?;
    match env.role {
        Role::A => {
            let mut sink = Mem::swapped_out(WHOLE + PAGE, 451)?;
            let start = connect_and_hear(env, &context, &mut conn, 450, &small)?;
            let from = |at: usize| Remote { va: start.va + at as u64, ..start };
            let mut expected = vec![0; WHOLE + PAGE];
            fill(&mut expected, 451, 0);
            lingering(env, 5_000, || {
                for (n, (at, len)) in WRITES.into_iter().enumerate() {
                    // Two ranges, with a gap between them.
                    let (first, rest) = (len / 3, len - len / 3);
                    let sges = [sink.sge(at, first), sink.sge(at + first + 5, rest)];
                    ensure_eq!(read(env, &mut conn, n as u64, &sges, from(at))?.ok()?.byte_len as usize, len);
                    fill(&mut expected[at..at + first], 450, at as u64);
                    fill(&mut expected[at + first + 5..][..rest], 450, (at + first) as u64);
                }
                Ok(())
            })?;
            let differs = sink.bytes().iter().zip(&expected).position(|(a, b)| a != b);
            ensure!(differs.is_none(), "byte {differs:?} of the memory is another");
            let device = env.device()?;
            wait_until("nothing pinned behind the READs", env.hang, || Ok(device.counters()?.pinned() == 0))?;
            // A message behind READs comes when these are complete or not: it tells the end.
            sink.bytes_mut()[0] = 0;
            let sge = [sink.sge(0, 1)];
            let requests = [
                WorkRequest { wr_id: 20, sges: &sge, source: Some(from(7)), ..Default::default() },
                WorkRequest { wr_id: 21, ..Default::default() },
            ];
            // SAFETY: as in `read`.
            unsafe { conn.qp.post_send(&requests) }?;
            for wr_id in [20, 21] {
                ensure_eq!(conn.sent(env)?.ok()?.wr_id, wr_id);
            }
            check(&sink.bytes()[..1], 450, 7)?;
            few_reads(env, &context, &domain, Some(start))?;
        }
        Role::B => {
            let mut mem = Mem::new(BEFORE + WHOLE)?;
            fill(&mut mem.bytes_mut()[BEFORE..], 450, 0);
            mem.page_out()?;
            let region = region(&domain, &mem, BEFORE, WHOLE, Access::READ)?;
            conn.recv(9, &[small.sge(0, PAGE)])?;
            establish(env, &context, &conn.qp, 450)?;
            lingering(env, 5_000, || {
                tell(env, &mut conn, mem.va(BEFORE), region.key())?;
                ensure_eq!(conn.received(env)?.ok()?.wr_id, 9);
                Ok(())
            })?;
            let device = env.device()?;
            wait_until("nothing pinned behind the READs", env.hang, || Ok(device.counters()?.pinned() == 0))?;
            check(&mem.bytes()[BEFORE..], 450, 0)?;
            few_reads(env, &context, &domain, None)?;
            drop(region);
        }
    }
    env.meet("done")
}

/// A has fewer READs under way if it wants so, or if B takes no more. `source`: pattern 450, for A.
fn few_reads(env: &Env, context: &Context, domain: &ProtectionDomain, source: Option<Remote>) -> Res {
    const BYTES: usize = 5 * PAGE;
    for (service, reads, peer_reads) in [(451, 2, 1), (452, MAX_READS as u8, 0)] {
        // A wants `reads`, B takes `peer_reads`; in the other direction all.
        let config = match source {
            Some(_) => QpConfig { reads, ..config() },
            None => QpConfig { peer_reads, ..config() },
        };
        let mut conn = conn_in(context, domain, &config)?;
        establish(env, context, &conn.qp, service)?;
        let agreed = if source.is_some() { peer_reads.into() } else { MAX_READS };
        ensure_eq!(conn.qp.state()?.reads, agreed);
        if source.is_some() {
            let sink = Mem::new(2 * BYTES)?;
            let sges = [[sink.sge(0, BYTES)], [sink.sge(BYTES, BYTES)]];
            let request = |n: usize| WorkRequest { wr_id: n as u64, sges: &sges[n], source, ..Default::default() };
            // SAFETY: the memory outlives the connection.
            unsafe { conn.qp.post_send(&[request(0), request(1)]) }?;
            let expected = if agreed == 0 { [Status::BadWqe, Status::Flushed] } else { [Status::Ok; 2] };
            for (wr_id, status) in (0..).zip(expected) {
                let done = conn.sent(env)?;
                ensure_eq!((done.wr_id, done.status), (wr_id, status));
            }
            for part in sink.bytes().chunks(BYTES) {
                match agreed {
                    0 => ensure!(part.iter().all(|b| *b == 0), "something was read"),
                    _ => check(part, 450, 0)?,
                }
            }
            drop(conn);
        }
        env.meet(&format!("read-{service}"))?;
    }
    Ok(())
}

fn qp_11_a_read_that_its_key_does_not_allow_is_refused(env: &Env) -> Res {
    let context = env.context()?;
    let domain = context.create_domain()?;
    let small = Mem::new(PAGE)?;
    let once = Access { one_shot: true, ..Access::READ };
    let all = [Wrong::Key, Wrong::Right, Wrong::Used, Wrong::Begin, Wrong::End];
    let count = env.cases(3, 5) as usize;
    for (n, wrong) in all.into_iter().take(count).enumerate() {
        let mut conn = conn_in(&context, &domain, &config())?;
        let service = 460 + n as u16;
        match env.role {
            Role::A => {
                let mut sink = Mem::new(PAGE)?;
                let remote = wrong.asks(connect_and_hear(env, &context, &mut conn, service, &small)?);
                let sges = [sink.sge(0, 100)];
                if wrong == Wrong::Used {
                    read(env, &mut conn, 1, &sges, remote)?.ok()?;
                    check(&sink.bytes()[..100], 461, 50)?;
                    sink.bytes_mut().fill(0);
                }
                let done = read(env, &mut conn, 2, &sges, remote)?;
                ensure!(done.status == Status::RemoteAccess, "{wrong:?}: {done:?}");
                ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
                ensure!(sink.bytes().iter().all(|b| *b == 0), "{wrong:?}: something was read");
            }
            Role::B => {
                let mem = Mem::pattern(PAGE, 461)?;
                let access = match wrong {
                    Wrong::Right => Access::WRITE,
                    Wrong::Used => once,
                    _ => Access::READ,
                };
                let region = region(&domain, &mem, 50, 100, access)?;
                establish(env, &context, &conn.qp, service)?;
                tell(env, &mut conn, mem.va(50), region.key())?;
                let reason = conn.qp.wait_closed(env.limit())?;
                ensure!(reason == Reason::Access, "{wrong:?}: {reason}");
                ensure_named(&conn, AccessKind::Read, wrong.asks(Remote { va: mem.va(50), key: region.key() }), 100)?;
            }
        }
        env.meet(&format!("done-{service}"))?;
    }
    Ok(())
}

fn qp_13_a_read_of_memory_that_has_gone_fails_at_both_ends(env: &Env) -> Res {
    let (context, domain, mut conn, small) = begin(env)?;
    match env.role {
        Role::A => {
            let sink = Mem::new(3 * PAGE)?;
            let remote = connect_and_hear(env, &context, &mut conn, 470, &small)?;
            ensure_eq!(read(env, &mut conn, 1, &[sink.sge(0, 3 * PAGE)], remote)?.status, Status::RemoteError);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
        }
        Role::B => {
            let mem = Mem::pattern(3 * PAGE, 470)?;
            let region = region(&domain, &mem, 0, 3 * PAGE, Access::READ)?;
            mem.unmap(PAGE, PAGE)?;
            establish(env, &context, &conn.qp, 470)?;
            tell(env, &mut conn, mem.va(0), region.key())?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::NoTarget);
            // Each of the requests is for a packet.
            let access = PeerAccess { kind: AccessKind::Read, key: region.key(), va: mem.va(PAGE), len: PAGE as u32 };
            ensure_eq!(conn.qp.refused_access(), Some(access));
        }
    }
    env.meet("done")
}

/// Asks for an atomic; answers the completion.
fn change(env: &Env, conn: &mut Conn, sink: &Mem, at: Remote, atomic: Atomic) -> Res<Completion> {
    // In two ranges, across pages.
    let sges = [sink.sge(PAGE - 3, 3), sink.sge(PAGE, 5)];
    let request = WorkRequest { wr_id: 5, sges: &sges, atomic: Some((at, atomic)), ..Default::default() };
    // SAFETY: the memory outlives the connection.
    unsafe { conn.qp.post_send(&[request]) }?;
    let done = conn.sent(env)?;
    ensure_eq!((done.wr_id, done.atomic, done.read, done.recv), (5, true, false, false));
    Ok(done)
}

/// The number in 8 bytes from `at` on.
fn number(mem: &Mem, at: usize) -> u64 {
    mem.bytes()[at..].iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Both hosts change numbers of B's by atomics, A through the wire and B through its own card, B's memory being swapped out
/// at first: each addition counts once, and each is answered with another number. Then one number changes hands by
/// compare-and-swap, and what a key does not allow is refused by name.
fn qp_3_atomics_of_both_hosts_are_carried_out_once(env: &Env) -> Res {
    const EACH: usize = 40;
    /// Where the numbers are: of both hosts, and of A alone.
    const SHARED: usize = PAGE - 8;
    const OWN: usize = PAGE;
    let (context, domain, mut conn, small) = begin(env)?;
    let sink = Mem::new(2 * PAGE)?;
    let seen = Mem::new(EACH * 8)?;
    // EACH additions to the shared number at once, each with its place for the answer; the numbers that it has seen.
    let add = |conn: &mut Conn, at: Remote| -> Res<Vec<u64>> {
        for first in (0..EACH).step_by(8) {
            let sges: Vec<_> = (first..first + 8).map(|n| [seen.sge(8 * n, 8)]).collect();
            let atomic = Some((at, Atomic::FetchAdd(1)));
            let requests: Vec<_> = sges.iter().map(|sges| WorkRequest { sges, atomic, ..Default::default() }).collect();
            // SAFETY: the memory outlives the connection.
            unsafe { conn.qp.post_send(&requests) }?;
            for _ in 0..8 {
                ensure_eq!(conn.sent(env)?.ok()?.byte_len, 8);
            }
        }
        Ok((0..EACH).map(|n| number(&seen, 8 * n)).collect())
    };
    match env.role {
        Role::A => {
            let start = connect_and_hear(env, &context, &mut conn, 495, &small)?;
            let to = |at: usize| Remote { va: start.va + at as u64, ..start };
            // The bytes of it that the process has put there come back, and it wraps around.
            let done = change(env, &mut conn, &sink, to(OWN), Atomic::FetchAdd(u64::MAX))?.ok()?;
            ensure_eq!((done.byte_len, number(&sink, PAGE - 3)), (8, 0x0102_0304_0506_0708));
            let swap = |expected, new| Atomic::CompareSwap { expected, new };
            change(env, &mut conn, &sink, to(OWN), swap(0x0102_0304_0506_0708, 1))?.ok()?;
            ensure_eq!(number(&sink, PAGE - 3), 0x0102_0304_0506_0707);
            change(env, &mut conn, &sink, to(OWN), swap(0x0102_0304_0506_0707, u64::MAX))?.ok()?;
            change(env, &mut conn, &sink, to(OWN), Atomic::FetchAdd(2))?.ok()?;
            ensure_eq!(number(&sink, PAGE - 3), u64::MAX);
            env.meet("began")?;
            let mut mine = add(&mut conn, to(SHARED))?;
            env.tell("seen", &format!("{mine:?}"))?;
            mine.sort_unstable();
            mine.dedup();
            ensure_eq!(mine.len(), EACH);
            env.meet("added")?;
            // Behind the region, which ends with the number of A's.
            ensure_eq!(change(env, &mut conn, &sink, to(OWN + 8), Atomic::FetchAdd(1))?.status, Status::RemoteAccess);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
            env.meet("refused")?;
            let mut conn = conn_in(&context, &domain, &config())?;
            let kept = connect_and_hear(env, &context, &mut conn, 496, &small)?;
            ensure_eq!(change(env, &mut conn, &sink, kept, Atomic::FetchAdd(1))?.status, Status::RemoteAccess);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
        }
        Role::B => {
            let mut mem = Mem::new(3 * PAGE)?;
            mem.bytes_mut()[OWN..OWN + 8].copy_from_slice(&0x0102_0304_0506_0708_u64.to_le_bytes());
            mem.page_out()?;
            let region = region(&domain, &mem, SHARED, 16, Access { atomic: true, ..Access::default() })?;
            establish(env, &context, &conn.qp, 495)?;
            // The range begins with the shared number.
            tell(env, &mut conn, mem.va(0), region.key())?;
            env.meet("began")?;
            // A pair of the card's own queue pairs.
            let mut mine = conn_in(&context, &domain, &config())?;
            let other_end = conn_in(&context, &domain, &config())?;
            loop_back(env, &context, &mine.qp, &other_end.qp, 497)?;
            let mut all = add(&mut mine, Remote { va: mem.va(SHARED), key: region.key() })?;
            let theirs = env.hear("seen")?;
            let theirs = theirs.trim_matches(['[', ']']).split(", ").map(|n| n.parse::<u64>());
            all.extend(theirs.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?);
            all.sort_unstable();
            ensure!(all.iter().copied().eq(0..2 * EACH as u64), "answers: {all:?}");
            ensure_eq!(number(&mem, SHARED), 2 * EACH as u64);
            ensure_eq!(number(&mem, OWN), 1);
            ensure!(mem.bytes()[..SHARED].iter().chain(&mem.bytes()[OWN + 8..]).all(|b| *b == 0), "bytes around them");
            env.meet("added")?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            ensure_named(&conn, AccessKind::Atomic, Remote { va: mem.va(OWN + 8), key: region.key() }, 8)?;
            env.meet("refused")?;
            let mut conn = conn_in(&context, &domain, &config())?;
            establish(env, &context, &conn.qp, 496)?;
            let whole = Access { read: true, ..Access::WRITE };
            // SAFETY: the memory outlives the region.
            let other = unsafe { domain.register(mem.va(OWN), 8, whole) }?;
            tell(env, &mut conn, mem.va(OWN), other.key())?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            ensure_eq!(number(&mem, OWN), 1);
            drop((region, other));
        }
    }
    env.meet("done")
}

/// Binds a key, and tells the peer in the same post.
fn bind_and_tell(env: &Env, conn: &mut Conn, binding: Binding) -> Res {
    let bytes = words(binding.va, binding.key);
    let sges = [Sge { va: bytes.as_ptr() as u64, len: bytes.len() as u32, reserved: 0 }];
    let bind = WorkRequest { wr_id: 1, local: Some(Local::Bind(binding)), ..Default::default() };
    let said = WorkRequest { wr_id: 2, sges: &sges, inline: true, ..Default::default() };
    // SAFETY: the memory outlives the connection, and inline data is taken at once.
    unsafe { conn.qp.post_send(&[bind, said]) }?;
    for wr_id in [1, 2] {
        let sent = conn.sent(env)?.ok()?;
        ensure_eq!((sent.wr_id, sent.local), (wr_id, wr_id == 1));
    }
    Ok(())
}

/// Without a system call, and a message behind it finds it done; the process chooses the key's lowest 8 bits.
fn qp_4_keys_are_bound_by_elements_in_their_turn(env: &Env) -> Res {
    let (context, domain, mut conn, small) = begin(env)?;
    let source = Mem::pattern(PAGE, 409)?;
    match env.role {
        Role::A => {
            let first = connect_and_hear(env, &context, &mut conn, 490, &small)?;
            write(env, &mut conn, &source, (0, 100), first, Some(0))?.ok()?;
            conn.recv(1, &[small.sge(0, PAGE)])?;
            env.tell("again", "")?;
            let second = hear_remote(env, &mut conn, &small)?;
            ensure_eq!((second.va, second.key), (first.va + 100, first.key ^ 0xff));
            write(env, &mut conn, &source, (100, 50), second, Some(1))?.ok()?;
            // The key that it had before.
            ensure_eq!(write(env, &mut conn, &source, (0, 1), first, None)?.status, Status::RemoteAccess);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
            env.meet("refused")?;
            let conn = conn_in(&context, &domain, &config())?;
            establish(env, &context, &conn.qp, 491)?;
            conn.qp.wait_closed(env.limit())?;
        }
        Role::B => {
            let mem = Mem::new(PAGE)?;
            // SAFETY: it opens nothing yet.
            let region = unsafe { domain.register(0, 0, Access::default()) }?;
            let before = env.counters()?;
            for n in [7, 8] {
                conn.recv(n, &[small.sge(0, PAGE)])?;
            }
            establish(env, &context, &conn.qp, 490)?;
            let key = region.key() ^ 0x5a;
            bind_and_tell(env, &mut conn, Binding { key, va: mem.va(0), len: 100, access: Access::WRITE })?;
            ensure_eq!(conn.received(env)?.ok()?.wr_id, 7);
            env.hear("again")?;
            let once = Access { one_shot: true, ..Access::WRITE };
            bind_and_tell(env, &mut conn, Binding { key: key ^ 0xff, va: mem.va(100), len: 50, access: once })?;
            ensure_eq!(conn.received(env)?.ok()?.wr_id, 8);
            check(&mem.bytes()[..150], 409, 0)?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            // By its first name still, however it is called now.
            // SAFETY: as in `region`.
            unsafe { region.rebind(mem.va(0), 1, Access::WRITE) }?;
            env.meet("refused")?;
            let other = context.create_domain()?;
            // SAFETY: as above.
            let foreign = unsafe { other.register(0, 0, Access::default()) }?;
            let mut conn = conn_in(&context, &domain, &config())?;
            establish(env, &context, &conn.qp, 491)?;
            let binding = Binding { key: foreign.key(), va: mem.va(0), len: 1, access: Access::WRITE };
            let bind = WorkRequest { local: Some(Local::Bind(binding)), ..Default::default() };
            // SAFETY: as above.
            unsafe { conn.qp.post_send(&[bind]) }?;
            ensure_eq!(conn.sent(env)?.status, Status::Bind);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
            let after = env.counters()?;
            ensure_eq!(after.fw(c::F_BINDS) - before.fw(c::F_BINDS), 2);
            ensure_eq!(after.fw(c::F_BINDS_REFUSED) - before.fw(c::F_BINDS_REFUSED), 1);
            drop((region, foreign));
        }
    }
    env.meet("done")
}

/// Sends `bytes`, which ends a key of the peer's.
fn send_invalidating(env: &Env, conn: &mut Conn, bytes: &[u8], key: u32) -> Res<Completion> {
    let sges = [Sge { va: bytes.as_ptr() as u64, len: bytes.len() as u32, reserved: 0 }];
    let said = WorkRequest { wr_id: 9, sges: &sges, inline: true, invalidate: Some(key), ..Default::default() };
    // SAFETY: inline data is taken at once.
    unsafe { conn.qp.post_send(&[said]) }?;
    conn.sent(env)
}

/// The answer of a server ends the key under which it has written: the completion names it, and then it opens nothing. A key
/// that no element has bound is not the peer's to end.
fn qp_4_a_peer_invalidates_a_key_by_a_send(env: &Env) -> Res {
    let (context, domain, mut conn, small) = begin(env)?;
    match env.role {
        Role::A => {
            let source = Mem::pattern(PAGE, 411)?;
            let opened = connect_and_hear(env, &context, &mut conn, 492, &small)?;
            write(env, &mut conn, &source, (0, 100), opened, None)?.ok()?;
            send_invalidating(env, &mut conn, b"done", opened.key)?.ok()?;
            env.hear("looked")?;
            ensure_eq!(write(env, &mut conn, &source, (0, 1), opened, None)?.status, Status::RemoteAccess);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
            env.meet("refused")?;
            let mut conn = conn_in(&context, &domain, &config())?;
            conn.recv(0, &[small.sge(0, PAGE)])?;
            let kept = connect_and_hear(env, &context, &mut conn, 493, &small)?;
            ensure_eq!(send_invalidating(env, &mut conn, b"no", kept.key)?.status, Status::RemoteAccess);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
        }
        Role::B => {
            let mem = Mem::new(PAGE)?;
            // SAFETY: it opens nothing yet.
            let region = unsafe { domain.register(0, 0, Access::default()) }?;
            let before = env.counters()?;
            conn.recv(7, &[small.sge(0, PAGE)])?;
            establish(env, &context, &conn.qp, 492)?;
            let key = region.key() ^ 0x5a;
            bind_and_tell(env, &mut conn, Binding { key, va: mem.va(0), len: 100, access: Access::WRITE })?;
            let got = conn.received(env)?.ok()?;
            ensure_eq!((got.wr_id, got.byte_len, got.invalidated, got.immediate), (7, 4, Some(key), None));
            check(&mem.bytes()[..100], 411, 0)?;
            env.tell("looked", "")?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            env.meet("refused")?;
            let mut conn = conn_in(&context, &domain, &config())?;
            conn.recv(8, &[small.sge(0, PAGE)])?;
            establish(env, &context, &conn.qp, 493)?;
            // SAFETY: the memory outlives the region.
            let kept = unsafe { domain.register(mem.va(0), 100, Access::WRITE) }?;
            tell(env, &mut conn, mem.va(0), kept.key())?;
            ensure_eq!(conn.received(env)?.status, Status::Flushed);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            let access = PeerAccess { kind: AccessKind::Invalidate, key: kept.key(), va: 0, len: 0 };
            ensure_eq!(conn.qp.refused_access(), Some(access));
            let after = env.counters()?;
            ensure_eq!(after.fw(c::F_INVALIDATES) - before.fw(c::F_INVALIDATES), 1);
            ensure_eq!(after.fw(c::F_INVALIDATES_REFUSED) - before.fw(c::F_INVALIDATES_REFUSED), 1);
            drop((region, kept));
        }
    }
    env.meet("done")
}

/// As a foreign peer does it: packets in order only, a range in the first one, RNR while memory is not there.
fn qp_7_memory_is_written_read_and_changed_by_a_peer_that_is_set_by_hand(env: &Env) -> Res {
    const LEN: usize = 24 * PAGE;
    const NUMBER: usize = LEN - 8;
    /// What is written and then read: within a page, across pages, of one packet and of many.
    const PARTS: [(usize, usize); 5] =
        [(0, 1), (100, 256), (3 * PAGE + 4000, 5000), (8 * PAGE, 257), (12 * PAGE - 7, 30_000)];
    let (_context, domain, mut conn, small) = begin(env)?;
    conn.recv(9, &[small.sge(0, PAGE)])?;
    match env.role {
        Role::A => {
            let (source, sink) = (Mem::pattern(LEN, 470)?, Mem::new(LEN)?);
            set_peers(env, &conn, "one-sided", 7)?;
            let start = hear_remote(env, &mut conn, &small)?;
            let to = |at: usize| Remote { va: start.va + at as u64, ..start };
            for (at, len) in PARTS {
                ensure_eq!(write(env, &mut conn, &source, (at, len), to(at), None)?.ok()?.byte_len as usize, len);
            }
            sink.page_out()?;
            for (n, (at, len)) in PARTS.into_iter().enumerate() {
                let done = read(env, &mut conn, n as u64, &[sink.sge(at, len)], to(at))?.ok()?;
                ensure_eq!(done.byte_len as usize, len);
                check(&sink.bytes()[at..at + len], 470, at as u64)?;
            }
            change(env, &mut conn, &sink, to(NUMBER), Atomic::FetchAdd(7))?.ok()?;
            ensure_eq!(number(&sink, PAGE - 3), 5);
            let swap = Atomic::CompareSwap { expected: 12, new: 1 };
            change(env, &mut conn, &sink, to(NUMBER), swap)?.ok()?;
            ensure_eq!(number(&sink, PAGE - 3), 12);
            // The immediate says that all is there.
            write(env, &mut conn, &source, (LEN - 2 * PAGE, 600), to(LEN - 2 * PAGE), Some(7))?.ok()?;
            env.meet("looked")?;
            // Behind the region.
            ensure_eq!(write(env, &mut conn, &source, (0, 1), to(LEN), None)?.status, Status::RemoteAccess);
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
        }
        Role::B => {
            let mut mem = Mem::new(LEN + PAGE)?;
            mem.bytes_mut()[NUMBER] = 5;
            mem.page_out()?;
            let rights = Access { read: true, write: true, atomic: true, ..Access::default() };
            let region = region(&domain, &mem, 0, LEN, rights)?;
            set_peers(env, &conn, "one-sided", 7)?;
            tell(env, &mut conn, mem.va(0), region.key())?;
            let got = conn.received(env)?.ok()?;
            ensure_eq!((got.wr_id, got.write, got.byte_len, got.immediate), (9, true, 600, Some(7)));
            for (at, len) in PARTS.into_iter().chain([(LEN - 2 * PAGE, 600)]) {
                check(&mem.bytes()[at..at + len], 470, at as u64)?;
            }
            ensure_eq!((number(&mem, NUMBER), mem.bytes()[1], mem.bytes()[LEN]), (1, 0, 0));
            env.meet("looked")?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::Access);
            ensure_named(&conn, AccessKind::Write, Remote { va: mem.va(LEN), key: region.key() }, 1)?;
        }
    }
    env.meet("over")
}
