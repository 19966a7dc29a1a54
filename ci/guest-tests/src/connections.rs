// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making and breaking connections (QP-17), many of them, peers that vanish.

use std::net::Ipv4Addr;

use berth_abi::counters as c;
use libberth::{Error, ForeignPeer, Mode, QpConfig, QpStateKind, Reason, Status};

use crate::env::{Env, Role};
use crate::util::{Conn, Mem, PAGE, Res, check, depths, establish, loop_back, loop_pair};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: qp_17_private_data_travels_both_ways, qp_17_reject_carries_a_reason, qp_17_disconnect_is_seen_by_the_peer;
    One: qp_17_nobody_listens, qp_17_unknown_address_is_unreachable, qp_17_service_is_listened_to_once,
         qp_17_dropped_request_is_rejected, qp_17_connect_and_close_again_and_again,
         qp_7_a_peer_that_is_set_by_hand_is_there_at_once_on_this_card_and_unreachable_if_it_is_none;
    Pair: qp_17_connections_come_and_go_between_hosts, qp_1_queue_pairs_of_a_process_share_two_completion_queues,
          qp_17_vanished_peer_is_noticed_without_credit, qp_17_vanished_peer_is_noticed_while_sending,
          qp_7_a_peer_that_is_set_by_hand_takes_every_message_once_when_it_has_receives,
          qp_7_a_peer_that_is_set_by_hand_and_never_has_a_receive_fails_the_send;
}

fn qp_17_private_data_travels_both_ways(env: &Env) -> Res {
    let context = env.context()?;
    let conn = Conn::new(&context, &depths(1, 1))?;
    match env.role {
        Role::A => {
            env.hear("listening")?;
            let answer = conn.qp.connect(env.peer_ip, 400, &[0x5a; 32], env.limit())?;
            ensure_eq!(answer, b"welcome");
            env.meet("done")?;
        }
        Role::B => {
            let listener = context.listen(400)?;
            env.tell("listening", "")?;
            let request = listener.next(env.limit())?;
            ensure_eq!(request.peer(), env.peer_ip);
            ensure_eq!(request.private_data(), [0x5a; 32]);
            request.accept(&conn.qp, b"welcome")?;
            conn.qp.wait_established(env.limit())?;
            ensure_eq!(conn.qp.state()?.kind, QpStateKind::Connected);
            env.meet("done")?;
        }
    }
    Ok(())
}

fn qp_17_reject_carries_a_reason(env: &Env) -> Res {
    let context = env.context()?;
    match env.role {
        Role::A => {
            let conn = Conn::new(&context, &depths(1, 1))?;
            env.hear("listening")?;
            match conn.qp.connect(env.peer_ip, 401, b"", env.limit()) {
                Err(Error::Closed { reason: Reason::Rejected, private_data }) => {
                    ensure_eq!(private_data, b"no room");
                }
                other => return crate::util::fail(format!("the outcome was {other:?}")),
            }
        }
        Role::B => {
            let listener = context.listen(401)?;
            env.tell("listening", "")?;
            listener.next(env.limit())?.reject(b"no room")?;
        }
    }
    env.meet("done")
}

fn qp_17_disconnect_is_seen_by_the_peer(env: &Env) -> Res {
    let mem = Mem::new(PAGE)?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 4))?;
    conn.recv(0, &[mem.sge(0, 100), mem.sge(100, 100)])?;
    establish(env, &context, &conn.qp, 402)?;
    let reason = if env.role == Role::A {
        conn.qp.disconnect()?;
        Reason::LocalClose
    } else {
        Reason::PeerClose
    };
    ensure_eq!(conn.qp.wait_closed(env.limit())?, reason);
    // The remaining objects are given back.
    for n in 0..2 {
        let got = conn.received(env)?;
        ensure_eq!((got.wr_id, got.status), (n, Status::Flushed));
    }
    env.meet("done")
}

fn qp_17_nobody_listens(env: &Env) -> Res {
    let context = env.context()?;
    let conn = Conn::new(&context, &depths(1, 1))?;
    let outcome = conn.qp.connect(env.own_ip, 4999, b"", env.limit());
    ensure!(matches!(outcome, Err(Error::Closed { reason: Reason::NoListener, .. })), "the outcome was {outcome:?}");
    Ok(())
}

fn qp_17_unknown_address_is_unreachable(env: &Env) -> Res {
    let context = env.context()?;
    let conn = Conn::new(&context, &depths(1, 1))?;
    let outcome = conn.qp.connect(Ipv4Addr::new(192, 0, 2, 99), 1, b"", env.limit());
    ensure!(matches!(outcome, Err(Error::Closed { reason: Reason::Unreachable, .. })), "the outcome was {outcome:?}");
    Ok(())
}

fn qp_17_service_is_listened_to_once(env: &Env) -> Res {
    let context = env.context()?;
    let listener = context.listen(403)?;
    ensure!(matches!(context.listen(403), Err(Error::Busy { .. })));
    let other = env.context()?;
    ensure!(matches!(other.listen(403), Err(Error::Busy { .. })));
    drop(listener);
    drop(context.listen(403)?);
    ensure!(matches!(context.listen(0), Err(Error::Invalid { .. })));
    Ok(())
}

fn qp_17_dropped_request_is_rejected(env: &Env) -> Res {
    let context = env.context()?;
    let conn = Conn::new(&context, &depths(1, 1))?;
    let listener = context.listen(404)?;
    conn.qp.start_connect(env.own_ip, 404, b"")?;
    drop(listener.next(env.limit())?);
    let outcome = conn.qp.wait_established(env.limit());
    ensure!(matches!(outcome, Err(Error::Closed { reason: Reason::Rejected, .. })), "the outcome was {outcome:?}");
    Ok(())
}

fn qp_17_connect_and_close_again_and_again(env: &Env) -> Res {
    let source = Mem::pattern(100, 50)?;
    let context = env.context()?;
    for n in 0..env.cases(6, 20) {
        let target = Mem::new(100)?;
        let (mut from, mut to) = loop_pair(env, &context, &depths(2, 2), 405)?;
        to.recv(n, &[target.sge(0, 100)])?;
        from.send(n, &[source.sge(0, 100)])?;
        ensure_eq!(to.received(env)?.ok()?.wr_id, n);
        check(target.bytes(), 50, 0)?;
    }
    ensure_eq!(env.counters()?.drv(c::D_QPS), 0);
    Ok(())
}

fn qp_17_connections_come_and_go_between_hosts(env: &Env) -> Res {
    let context = env.context()?;
    for n in 0..env.cases(4, 10) {
        let mem = match env.role {
            Role::A => Mem::pattern(100, 51)?,
            Role::B => Mem::new(100)?,
        };
        let mut conn = Conn::new(&context, &depths(2, 2))?;
        if env.role == Role::B {
            conn.recv(n, &[mem.sge(0, 100)])?;
        }
        // A service of its own each time: no barrier is needed between rounds.
        establish(env, &context, &conn.qp, 410 + n as u16)?;
        match env.role {
            Role::A => {
                conn.send(n, &[mem.sge(0, 100)])?;
                conn.sent(env)?.ok()?;
            }
            Role::B => {
                ensure_eq!(conn.received(env)?.ok()?.wr_id, n);
                check(mem.bytes(), 51, 0)?;
                // The sender closes first.
                conn.qp.wait_closed(env.limit())?;
            }
        }
    }
    env.meet("done")
}

fn qp_1_queue_pairs_of_a_process_share_two_completion_queues(env: &Env) -> Res {
    const BYTES: usize = 3000;
    // All that a process may have with --long: each takes a connection.
    let most = env.device()?.info()?.max_qps_per_process;
    let count = env.cases(10, most.into()).min(most.into()) as usize;
    let mem = match env.role {
        Role::A => Mem::pattern(BYTES, 52)?,
        Role::B => Mem::new(count * PAGE)?,
    };
    let context = env.context()?;
    let sends = context.create_cq(count as u32)?;
    let recvs = context.create_cq(count as u32)?;
    let mut qps = Vec::new();
    for n in 0..count {
        let qp = context.create_qp(&sends, &recvs, &depths(1, 1))?;
        let mut conn = Conn { qp, sends: sends.clone(), recvs: recvs.clone() };
        if env.role == Role::B {
            conn.recv(n as u64, &[mem.sge(n * PAGE, BYTES)])?;
        }
        establish(env, &context, &conn.qp, 500 + n as u16)?;
        qps.push(conn);
    }
    let mut seen = vec![false; count];
    if env.role == Role::A {
        for (n, conn) in qps.iter_mut().enumerate() {
            conn.send(n as u64, &[mem.sge(0, BYTES)])?;
        }
    }
    for _ in 0..count {
        let done = match env.role {
            Role::A => sends.wait(env.limit())?.ok()?,
            Role::B => recvs.wait(env.limit())?.ok()?,
        };
        let n = done.wr_id as usize;
        ensure_eq!(done.qpn, qps[n].qp.qpn());
        ensure!(!std::mem::replace(&mut seen[n], true), "element {n} completed twice");
        if env.role == Role::B {
            ensure_eq!(done.byte_len as usize, BYTES);
            check(&mem.bytes()[n * PAGE..n * PAGE + BYTES], 52, 0)?;
        }
    }
    env.meet("done")
}

/// Cuts the wire in both directions, and mends it when dropped.
struct Cut<'e>(&'e Env);

impl<'e> Cut<'e> {
    fn new(env: &'e Env) -> Res<Self> {
        env.sim("hold")?;
        Ok(Self(env))
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.0.sim("release") {
            eprintln!("wire not mended: {e}");
        }
    }
}

fn vanish(env: &Env, service: u16, while_sending: bool) -> Res {
    let mem = Mem::pattern(PAGE, 53)?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &QpConfig { retries: 3, ..depths(4, 4) })?;
    if while_sending {
        conn.recv(0, &[mem.sge(0, PAGE)])?;
    }
    establish(env, &context, &conn.qp, service)?;
    if while_sending {
        conn.wait_state(env, "the credit has come", |s| s.credits == 1)?;
    }
    env.meet("connected")?;
    // Sent packets time out, or probes are not answered.
    let noticed = || -> Res<u64> { env.counters().map(|n| n.fw(c::F_TIMEOUTS) + n.fw(c::F_PEERS_LOST)) };
    let before = noticed()?;
    let cut = if env.role == Role::A { Some(Cut::new(env)?) } else { None };
    env.meet("cut")?;
    conn.send(0, &[mem.sge(0, PAGE)])?;
    ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::PeerLost);
    ensure!(noticed()? > before);
    let sent = conn.sent(env)?;
    ensure!(matches!(sent.status, Status::RetryExceeded | Status::Flushed), "{:?}", sent.status);
    env.meet("noticed")?;
    drop(cut);
    // Late frames of the old connection do no harm.
    let other = Conn::new(&context, &depths(4, 4))?;
    establish(env, &context, &other.qp, service + 1)?;
    env.meet("done")
}

fn qp_17_vanished_peer_is_noticed_without_credit(env: &Env) -> Res {
    vanish(env, 600, false)
}

fn qp_17_vanished_peer_is_noticed_while_sending(env: &Env) -> Res {
    vanish(env, 610, true)
}

/// Used by other modules: a loopback transfer works.
pub fn loopback_works(env: &Env, service: u16) -> Res {
    let source = Mem::pattern(PAGE, 54)?;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let mut from = Conn::new(&context, &depths(2, 2))?;
    let mut to = Conn::new(&context, &depths(2, 2))?;
    to.recv(0, &[target.sge(0, PAGE)])?;
    loop_back(env, &context, &from.qp, &to.qp, service)?;
    from.send(0, &[source.sge(0, PAGE)])?;
    ensure_eq!(to.received(env)?.ok()?.byte_len as usize, PAGE);
    check(target.bytes(), 54, 0)?;
    from.sent(env)?.ok()?;
    Ok(())
}

/// Path MTU towards foreign peers: any end node has it.
const FOREIGN_MTU: u32 = 256;

/// A queue pair for a foreign peer.
fn foreign(depth: u32) -> QpConfig {
    QpConfig { mode: Mode::Message, ..depths(depth, depth) }
}

/// Makes the queue pairs of both guests foreign peers of each other, with PSNs that soon begin anew. Post receives before.
pub fn set_peers(env: &Env, conn: &Conn, name: &str, rnr_retries: u8) -> Res {
    let psns = [0xff_fff0, 0xff_fffe];
    let [psn, peer_psn] = match env.role {
        Role::A => psns,
        Role::B => [psns[1], psns[0]],
    };
    env.tell(&format!("qpn-{name}"), &conn.qp.qpn().to_string())?;
    let qpn = env.hear(&format!("qpn-{name}"))?.parse()?;
    let peer = ForeignPeer {
        psn,
        peer_psn,
        mtu: FOREIGN_MTU,
        rnr_timer: 1,
        rnr_retries,
        ..ForeignPeer::new(env.peer_ip, qpn)
    };
    conn.qp.set_peer(&peer)?;
    ensure!(matches!(conn.qp.set_peer(&peer), Err(Error::Busy { .. })));
    ensure_eq!(conn.qp.wait_established(env.limit())?, b"");
    // Nobody is told, so that the other end may not be there yet.
    env.meet(&format!("set-{name}"))
}

fn qp_7_a_peer_that_is_set_by_hand_takes_every_message_once_when_it_has_receives(env: &Env) -> Res {
    const FIRST: usize = 3;
    const PLACE: usize = 2 * PAGE;
    // Of one packet and of several, whole ones and others.
    let lens = [1, 256, 257, 5000, 8192, 512, 3, 4097, 255, 768, 6001, 64];
    let [own, other] = match env.role {
        Role::A => [60, 61],
        Role::B => [61, 60],
    };
    let (source, target) = (Mem::pattern(lens.len() * PLACE, own)?, Mem::new(lens.len() * PLACE)?);
    let context = env.context()?;
    let mut conn = Conn::new(&context, &foreign(16))?;
    let places: Vec<_> = (0..lens.len()).map(|n| target.sge(n * PLACE, PLACE)).collect();
    conn.recv(0, &places[..FIRST])?;
    set_peers(env, &conn, "messages", 7)?;
    for (n, len) in lens.into_iter().enumerate() {
        conn.send(n as u64, &[source.sge(n * PLACE, len)])?;
    }
    let received = |conn: &Conn, from: usize, to: usize| -> Res {
        for (n, &len) in lens.iter().enumerate().take(to).skip(from) {
            let got = conn.received(env)?.ok()?;
            ensure_eq!((got.wr_id as usize, got.byte_len as usize), (n, len));
            check(&target.bytes()[n * PLACE..n * PLACE + len], other, (n * PLACE) as u64)?;
            ensure!(target.bytes()[n * PLACE + len..(n + 1) * PLACE].iter().all(|b| *b == 0), "behind message {n}");
        }
        Ok(())
    };
    received(&conn, 0, FIRST)?;
    for n in 0..FIRST {
        ensure_eq!(conn.sent(env)?.ok()?.wr_id as usize, n);
    }
    // The others wait, however often they are tried.
    env.meet("held")?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    ensure_eq!(conn.qp.sends_outstanding() as usize, lens.len() - FIRST);
    ensure_eq!(conn.qp.state()?.kind, QpStateKind::Connected);
    env.meet("posted")?;
    conn.recv(FIRST as u64, &places[FIRST..FIRST + 1])?;
    conn.recv(FIRST as u64 + 1, &places[FIRST + 1..])?;
    received(&conn, FIRST, lens.len())?;
    for n in FIRST..lens.len() {
        ensure_eq!(conn.sent(env)?.ok()?.wr_id as usize, n);
    }
    env.meet("arrived")
}

fn qp_7_a_peer_that_is_set_by_hand_and_never_has_a_receive_fails_the_send(env: &Env) -> Res {
    let mem = Mem::pattern(PAGE, 62)?;
    let context = env.context()?;
    for retries in [0, 1] {
        let mut conn = Conn::new(&context, &foreign(4))?;
        set_peers(env, &conn, &format!("none-{retries}"), retries)?;
        match env.role {
            Role::A => {
                for n in 0..2 {
                    conn.send(n, &[mem.sge(0, 1000)])?;
                }
                for (n, status) in [(0, Status::NotReady), (1, Status::Flushed)] {
                    let done = conn.sent(env)?;
                    ensure_eq!((done.wr_id, done.status), (n, status));
                }
                ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::SendFailed);
                env.meet(&format!("over-{retries}"))?;
            }
            Role::B => {
                // It is told nothing of that.
                env.meet(&format!("over-{retries}"))?;
                ensure_eq!(conn.qp.state()?.kind, QpStateKind::Connected);
                conn.qp.disconnect()?;
                ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::LocalClose);
            }
        }
    }
    Ok(())
}

fn qp_7_a_peer_that_is_set_by_hand_is_there_at_once_on_this_card_and_unreachable_if_it_is_none(env: &Env) -> Res {
    let context = env.context()?;
    let conn = Conn::new(&context, &foreign(1))?;
    let nobody = ForeignPeer { mtu: FOREIGN_MTU, ..ForeignPeer::new(Ipv4Addr::new(192, 0, 2, 98), 16) };
    conn.qp.set_peer(&nobody)?;
    let outcome = conn.qp.wait_established(env.limit());
    ensure!(matches!(outcome, Err(Error::Closed { reason: Reason::Unreachable, .. })), "the outcome was {outcome:?}");
    let (source, target) = (Mem::pattern(3000, 63)?, Mem::new(3000)?);
    let (mut from, mut to) = (Conn::new(&context, &foreign(1))?, Conn::new(&context, &foreign(1))?);
    for (one, other) in [(&from, &to), (&to, &from)] {
        one.qp.set_peer(&ForeignPeer { ip: env.own_ip, qpn: other.qp.qpn(), ..nobody })?;
        one.qp.wait_established(env.limit())?;
    }
    to.recv(1, &[target.sge(0, 3000)])?;
    from.send(2, &[source.sge(0, 3000)])?;
    from.sent(env)?.ok()?;
    ensure_eq!(to.received(env)?.ok()?.byte_len, 3000);
    check(target.bytes(), 63, 0)
}
