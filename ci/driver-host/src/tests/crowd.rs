// SPDX-License-Identifier: GPL-2.0
//! Calls of many threads for queues and connections, events and resets, at random.

use super::clients::*;
use super::rig::*;
use crate::abi::message;
use crate::abi::{card::*, ioctl::*, ring::*, status::*};
use crate::card::State;
use crate::process::Context;
use berth_random::{Rng, cases, seed};
use kernel::{mm::MmWithUser, prelude::*, sync::Arc, world::calmly};

/// What a call may come to.
const ERRORS: [Error; 9] = [EPERM, ENOENT, EIO, ENOMEM, EBUSY, ENODEV, EINVAL, ENOSPC, EOPNOTSUPP];

struct Crowd {
    rig: Rig,
    rng: Rng,
    contexts: Vec<(&'static MmWithUser, Arc<Context>)>,
    request: u32,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let mut rig = Rig::with(Some(rng.draw()), Setup::default());
        rig.world.set_preempt(rng.between(2, 20));
        rig.watched = true;
        rig.card.start_watching();
        if rng.chance(0.3) {
            rig.surroundings.queue_ns.set(rng.below(3 * MS));
        }
        let mut contexts = Vec::new();
        for _ in 0..rng.between(2, 3) {
            let (mm, context) = rig.client();
            contexts.push((mm, context));
            contexts.push((mm, rig.context(mm)));
        }
        if rng.chance(0.4) {
            rig.world.set_failures(rng.between(20, 100), 0);
        }
        Self { rig, rng, contexts, request: 0 }
    }

    /// A place whose owner is this context, if there is one, most of the time.
    fn place(&mut self, owners: &[u8], asid: u32) -> u32 {
        let all = (0..owners.len() as u32).filter(|n| u32::from(owners[*n as usize]) == asid);
        let mine: Vec<u32> = if self.rng.chance(0.9) { all.collect() } else { Vec::new() };
        let most = if mine.is_empty() { owners.len() } else { mine.len() };
        let at = self.rng.below(most as u64) as u32;
        mine.get(at as usize).copied().unwrap_or(at)
    }

    /// A call of some thread.
    fn call(&mut self) {
        let at = self.rng.below(self.contexts.len() as u64) as usize;
        let context = self.contexts[at].1.clone();
        let (qps, cqs, requests) = calmly(|| {
            let tables = self.rig.registry.tables.lock();
            (tables.qps.to_vec(), tables.cq_owners.to_vec(), tables.requests.to_vec())
        });
        let cqns = [0; 2].map(|_| self.place(&cqs, context.asid));
        let qpn = qpn(self.place(&qps, context.asid));
        let request = requests.iter().find(|r| r.asid == context.asid).map_or(1, |r| r.id);
        let (service, call) = (self.rng.between(1, 3) as u32, self.rng.below(14));
        self.rig.world.spawn(move || {
            let result = match call {
                0 | 1 => context.create_cq(&mut cq(4)).map(drop),
                2 => context.destroy_cq(cqns[0]),
                3..6 => context.create_qp(&mut qp(cqns[0], cqns[1])).map(drop),
                6 => context.destroy_qp(qpn),
                7 | 8 => context.listen(service).map(drop),
                9 => context.unlisten(service),
                10 if service % 2 == 0 => {
                    context.set_peer(&SetPeer { qpn, ipv4: 1, peer_qpn: 3, mtu: 256, ..SetPeer::default() })
                }
                10 => context.connect(&Connect { qpn, ipv4: 1, service, ..Connect::default() }),
                11 | 12 => context.answer(&Accept { request, qpn, ..Accept::default() }, true),
                _ => context.answer(&Accept { request, ..Accept::default() }, false),
            };
            let known = result.is_ok() || ERRORS.iter().any(|e| result == Err(*e));
            assert!(known, "{call}: {result:?}");
        });
    }

    /// A context is closed, and its process has another one.
    fn close(&mut self) {
        let at = self.rng.below(self.contexts.len() as u64) as usize;
        let (mm, old) = self.contexts[at].clone();
        self.rig.world.set_failures(0, 0);
        self.contexts[at].1 = self.rig.context(mm);
        self.rig.world.spawn(move || old.close());
    }

    /// An event of the card, which may be about anything.
    fn event(&mut self) {
        let mut number = |most: u32| self.rng.below(most.into()) as u32;
        let (cqn, qpn, service, request) = (number(6), qpn(number(NUM_QPS)), 1 + number(3), number(self.request + 1));
        let entry = match number(6) {
            0..3 => {
                self.request += 1;
                message::CmRequest { request: self.request, ipv4: 1, service, ..Default::default() }.encode()
            }
            3 => message::CmRequestOver { request }.encode(),
            4 => message::CqOverrun { cqn, qpn }.encode(),
            _ => message::CmClosed { qpn, reason: REASON_PEER_LOST, ..Default::default() }.encode(),
        };
        self.rig.surroundings.hardware.borrow_mut().send(entry);
    }

    /// A queue pair that the card has asks for a page, or ends its use.
    fn page(&mut self) {
        let mut number = |most: u32| self.rng.below(most.into()) as u32;
        let (qpn, n, write) = (qpn(number(NUM_QPS)), number(4), number(2) != 0);
        let tag = if write { receive_tag(qpn, n) } else { send_tag(qpn, n) };
        let vpn = BASE + u64::from(number(16));
        let asid = calmly(|| self.rig.registry.tables.lock().qps[(qpn - FIRST_QPN) as usize].into());
        let mut hardware = self.rig.surroundings.hardware.borrow_mut();
        if hardware.holds.contains_key(&tag) {
            hardware.release(tag);
        } else if hardware.objects.contains_key(&(CMD_QP_CREATE, qpn)) && asid != 0 && !hardware.is_busy(tag) {
            hardware.ask(tag, asid, bytes(vpn), 1, write);
        }
    }

    /// A page of some process does not come, or all of them do again.
    fn stick(&mut self) {
        let at = self.rng.below(self.contexts.len() as u64) as usize;
        let (vpn, stuck) = (BASE + self.rng.below(16), self.rng.chance(0.5));
        let mut memory = self.rig.surroundings.memory.borrow_mut();
        memory.unstick_all();
        memory.set_stuck(self.contexts[at].0.as_raw() as usize, vpn, stuck);
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..36 => self.call(),
            36..48 => self.page(),
            48..50 => self.stick(),
            50..60 if self.rig.card.state() == State::Up => self.event(),
            60 if self.rng.chance(0.5) => self.close(),
            61 if self.rng.chance(0.3) => {
                let card = self.rig.card.clone();
                self.rig.world.spawn(move || {
                    let _ = card.reset("at random");
                });
            }
            62..65 => {
                let opcode = self.rng.between(CMD_CQ_CREATE.into(), CMD_CM_DISCONNECT.into()) as u32;
                let status = [CMD_BUSY, CMD_BUSY, CMD_INVALID, CMD_FULL][self.rng.below(4) as usize];
                self.rig.reply(opcode, status);
            }
            65..67 => {
                let deaf = self.rng.chance(0.3);
                self.rig.surroundings.hardware.borrow_mut().deaf = deaf;
            }
            _ => {
                let us = [1, 100, 3000, 20_000][self.rng.below(4) as usize];
                let ns = self.rng.below(us * 1000);
                self.rig.world.run_for(ns);
            }
        }
    }

    /// All calls are over. What there is is what the card has, and each thing somebody's.
    fn check(&self) {
        self.rig.world.set_failures(0, 0);
        self.rig.surroundings.memory.borrow_mut().unstick_all();
        {
            let mut hardware = self.rig.surroundings.hardware.borrow_mut();
            hardware.deaf = false;
            hardware.replies.clear();
            let tags: Vec<u32> = hardware.holds.keys().copied().collect();
            tags.into_iter().for_each(|tag| hardware.release(tag));
        }
        let rig = &self.rig;
        rig.world.run_until(|| rig.world.threads() == 0);
        rig.ms(30);
        assert_eq!(rig.world.threads(), 0);
        let now = rig.things();
        assert_eq!(now.counted[0], self.contexts.len() as u64);
        assert_eq!(now.counted[1..], [now.qps.len() as u64, now.cqs.len() as u64]);
        assert_eq!(now.memory, (now.qps.len() + now.cqs.len()) as u64);
        let of = |opcode: u32| now.objects.iter().filter(|o| o.0 == opcode).map(|o| o.1).collect::<Vec<_>>();
        assert_eq!((of(CMD_QP_CREATE).len(), of(CMD_CQ_CREATE).len()), (now.qps.len(), now.cqs.len()));
        let mut services: Vec<u32> = now.services.iter().map(|s| s.0).collect();
        services.sort_unstable();
        assert_eq!(of(CMD_CM_LISTEN), services);
        let there = |asid: u32| self.contexts.iter().any(|(_, c)| c.asid == asid);
        assert!(now.qps.iter().chain(&now.cqs).all(|asid| there((*asid).into())), "{now:?}");
        assert!(now.services.iter().chain(&now.requests).all(|s| there(s.1)), "{now:?}");
    }
}

#[test]
fn inv_5_inv_6_queues_and_services_are_whose_they_are_whatever_happens() {
    let first = seed(5000);
    for n in 0..cases(60) {
        println!("case {}", first + n);
        let mut crowd = Crowd::new(first + n);
        for _ in 0..5 {
            for _ in 0..120 {
                crowd.step();
            }
            crowd.check();
        }
        let Crowd { rig, contexts, .. } = crowd;
        drop(contexts);
        rig.end();
    }
}
