// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library's credits over the card, and through memory that two processes of one host share: CR-12, CR-15, VC-11.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use berth_credits::endpoint::{Endpoint, Event, Options};
use libberth::credited::{Acceptor, Link, LinkConfig, connect};
use libberth::{Error, Mode, QpConfig, Reason};

use crate::env::{Env, Role};
use crate::util::{Random, Res, check, fail, fill};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: cr_15_the_librarys_credits_go_over_a_card;
    One: cr_12_a_link_within_one_host_is_memory_if_both_ends_ask_for_it;
}

/// Bytes for each receive.
const SLOT: u32 = 900;
/// Receives at a time.
const RECEIVES: u32 = 24;
/// Bytes to receive into.
const MEMORY: u32 = SLOT * RECEIVES;
/// Sends of each end.
const SENDS: u32 = 40;

/// Sends and receives both ways until all bytes are there, and answers this end. `seeds`: of what is sent and of what comes.
fn exchange(env: &Env, link: Link, seeds: [u64; 2]) -> Res<Endpoint<Link>> {
    let begun = Instant::now();
    let mut end = Endpoint::<_>::new(link, &Options::default(), 0);
    let mut random = Random::new(seeds[0]);
    let lens = |seed| {
        let mut random = Random::new(seed);
        (0..SENDS).map(|_| 1 + random.below(3000)).collect::<Vec<_>>()
    };
    let [mine, theirs] = seeds.map(lens);
    let total = theirs.iter().sum::<usize>();
    for slot in 0..RECEIVES {
        end.post_receive(slot.into(), slot * SLOT, 1 + random.below(SLOT as usize) as u32)?;
    }
    end.commit();
    let mut sends = mine.iter().enumerate();
    let (mut posted_at, mut received, mut sent) = (0, 0, 0);
    while sent < SENDS as usize || received < total {
        if let Some((id, len)) = (end.unsent() < 8000).then(|| sends.next()).flatten() {
            let mut bytes = vec![0; *len];
            fill(&mut bytes, seeds[0], posted_at);
            posted_at += *len as u64;
            let (head, tail) = bytes.split_at(len / 3);
            end.post_send(id as u64, vec![head.to_vec(), tail.to_vec()]).map_err(|unposted| unposted.reason)?;
        }
        let moved = end.progress(begun.elapsed().as_nanos() as u64)?;
        while let Some(event) = end.event() {
            match event {
                Event::Received { id, offset, len, .. } => {
                    let mut bytes = vec![0; len as usize];
                    ensure!(end.read(offset, &mut bytes), "{len} bytes at {offset}");
                    check(&bytes, seeds[1], received as u64)?;
                    received += len as usize;
                    end.post_receive(id, id as u32 * SLOT, 1 + random.below(SLOT as usize) as u32)?;
                    end.commit();
                }
                Event::Sent { .. } => sent += 1,
                other => return fail(format!("{other:?}")),
            }
        }
        ensure!(begun.elapsed() < env.hang, "{sent} sends, {received} of {total} bytes: {:?}", end.counters());
        if !moved {
            thread::sleep(Duration::from_millis(1));
        }
    }
    ensure_eq!(received, total);
    Ok(end)
}

fn cr_15_the_librarys_credits_go_over_a_card(env: &Env) -> Res {
    let config = LinkConfig { memory: MEMORY, within_host: true };
    let context = env.context()?;
    let (link, seeds) = match env.role {
        Role::B => {
            let mut acceptor = Acceptor::new(&context, 520)?;
            env.tell("listening", "")?;
            (acceptor.accept(&config, Some(env.hang))?, [1520, 2520])
        }
        Role::A => {
            env.hear("listening")?;
            let queue = context.create_cq(16)?;
            let stranger =
                context.create_qp(&queue, &queue, &QpConfig { mode: Mode::Message, ..QpConfig::default() })?;
            let refused = stranger.connect(env.peer_ip, 520, b"something else", Some(env.hang));
            ensure!(matches!(refused, Err(Error::Closed { reason: Reason::Rejected, .. })), "{refused:?}");
            (connect(&context, env.peer_ip, 520, &config, Some(env.hang))?, [2520, 1520])
        }
    };
    ensure!(!link.is_within_host(), "the ends are on two hosts");
    let _end = exchange(env, link, seeds)?;
    env.meet("exchanged")
}

/// A link between two threads, which share nothing but the card.
fn of_one_host(env: &Env, own: Ipv4Addr, service: u16, within_host: [bool; 2]) -> Res<bool> {
    let (here, there) = (env.context()?, env.context()?);
    let mut acceptor = Acceptor::new(&here, service)?;
    let [mine, other] = within_host.map(|within_host| LinkConfig { memory: MEMORY, within_host });
    thread::scope(|scope| {
        let other = scope.spawn(|| -> Res<Endpoint<Link>> {
            let link = connect(&there, own, service, &other, Some(env.hang))?;
            exchange(env, link, [1, 2])
        });
        let end = exchange(env, acceptor.accept(&mine, Some(env.hang))?, [2, 1])?;
        let other = other.join().map_err(|_| "the other end panicked")??;
        ensure_eq!(end.transport().is_within_host(), other.transport().is_within_host());
        Ok(end.transport().is_within_host())
    })
}

fn cr_12_a_link_within_one_host_is_memory_if_both_ends_ask_for_it(env: &Env) -> Res {
    for (service, ask) in [(521, [true; 2]), (522, [true, false]), (523, [false, true])] {
        ensure_eq!(of_one_host(env, env.own_ip, service, ask)?, ask == [true; 2]);
    }
    Ok(())
}
