// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host whose answers are wrong: refused, poisoned, dropped, doubled, late, of other bytes or of reads that nobody has made;
//! a host that takes neither writes nor interrupts. For every user of reads: the core's DMA, the command ring, queue
//! elements, payloads. Firmware comes by registers, so no read is wrong in it.
//!
//! Random tests take `BERTH_SEED` and `BERTH_CASES`; those with firmware its image from `BERTH_FW_IMAGE`.

mod host;
mod pair;

use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::message::{Fence, PageRevoke, QpDestroy, QpError};
use berth_abi::status::*;
use berth_random::cases;
use berth_rtl::{CardConfig, ReadFault};
use berth_rtl_host::{HostConfig, Net, Rng, seed};
use host::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Log2 of a third of the time-out here: no answer that is not meant to be late takes two of them.
const THIRD: u32 = 13;
/// The last completion of any read.
const LAST: usize = 99;
/// A read that is answered so much later has been given up.
const LATE: u64 = 26_000;

/// Kinds of [`fault`].
const FAULTS: u64 = 8;

fn random_fault(rng: &mut Rng) -> ReadFault {
    let kind = rng.below(FAULTS);
    fault(kind, rng)
}

fn fault(kind: u64, rng: &mut Rng) -> ReadFault {
    let at = rng.below(4) as usize;
    match kind {
        0 => ReadFault::Refused { at },
        1 => ReadFault::Poisoned { at, beat: rng.below(6) as usize },
        2 => ReadFault::Dropped { at },
        // of others than the last one, the second comes in place of the next
        3 => ReadFault::Doubled { at: LAST },
        4 => ReadFault::Moved { at, by: 64 * if rng.chance(0.5) { 1 } else { -1 } * rng.between(1, 5) as i32 },
        // of others than the last one: nobody can tell, if it says it is the last
        5 => ReadFault::Longer { at: LAST },
        6 => ReadFault::Never,
        _ => ReadFault::Late { cycles: LATE + rng.below(3000) },
    }
}

/// Which reads have got a fault: their addresses.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<(u64, ReadFault)>>>);

impl Done {
    fn take(&self) -> Vec<(u64, ReadFault)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn put(
        &self,
        mut choose: impl FnMut(u64) -> Option<ReadFault> + Send + 'static,
    ) -> impl FnMut(u64, usize) -> Option<ReadFault> + Send + 'static {
        let list = self.0.clone();
        move |addr, _| {
            let fault = choose(addr)?;
            list.lock().unwrap().push((addr, fault));
            Some(fault)
        }
    }
}

/// A card whose reads are given up early.
fn bench(rng: &mut Rng) -> Bench {
    let config = CardConfig {
        seed: rng.draw(),
        read_latency: rng.between(20, 300),
        // A second answer must not find its tag in use again. Tags go round: so few that hardly a read is answered only
        // when 64 others have been made.
        outstanding: 12,
        out_of_order: rng.chance(0.7),
        split: true,
        stall_percent: (rng.below(3) * 15) as u8,
        ..CardConfig::default()
    };
    let mut b = Bench::new(config);
    b.start(7 + rng.below(3) as u32, 7 + rng.below(4) as u32);
    b.set(HOST_READ_TIMEOUT, THIRD);
    b
}

#[test]
fn a_wrong_answer_ends_its_own_read_with_an_error_and_no_other() {
    const COMMANDS: u32 = 12;
    let mut rng = Rng(seed(41));
    for case in 0..cases(4) {
        let mut b = bench(&mut rng);
        let mut ram = rng.bytes(PKT_BYTES as usize);
        b.fill_packet_ram(0, &ram);
        let done = Done::default();
        let mut chooser = Rng(rng.draw());
        let mut choose = move || chooser.chance(0.08).then(|| random_fault(&mut chooser));
        b.card.set_read_faults(done.put(move |addr| if addr >= DATA { choose() } else { None }));
        for round in 0..9 {
            let (mut commands, mut errors, mut wrong) = (Vec::new(), 0, 0);
            let (timeouts, failed) = (b.counter(C_DMA_TIMEOUTS), b.counter(C_DMA_HOST_ERROR));
            for tag in 0..COMMANDS {
                let len = if rng.chance(0.3) { rng.between(1, 300) } else { rng.between(1, 4608) } as u32;
                let local = tag * 9000 + rng.below(u64::from(9000 - len)) as u32;
                let addr = DATA + u64::from(tag) * 8 * PAGE + rng.below(8 * PAGE - u64::from(len));
                commands.push(Dma { local, len, tag, addr, ..Dma::default() });
            }
            commands.iter().for_each(|&d| b.dma(d));
            let mut status = HashMap::new();
            while status.len() < COMMANDS as usize {
                let (how, tag) = b.dma_done();
                assert_eq!(status.insert(tag, how), None, "command {tag} ends once");
            }
            let faults = done.take();
            for d in &commands {
                let mine = |(at, fault): &&(u64, ReadFault)| {
                    !matches!(fault, ReadFault::Doubled { .. }) && (d.addr..d.addr + u64::from(d.len)).contains(at)
                };
                let expect = if faults.iter().any(|f| mine(&f)) { DMA_HOST_ERROR } else { DMA_OK };
                assert_eq!(status[&d.tag], expect, "case {case}, round {round}: {d:x?}, {faults:x?}");
                errors += u64::from(expect == DMA_HOST_ERROR);
                // What has come is right, what has not is as it was: never another read's, also of one that failed.
                let (old, host) = (&ram[d.local as usize..][..d.len as usize], b.peek(d.addr, d.len as usize));
                let new = b.packet_ram(d.local, d.len as usize);
                for i in 0..d.len as usize {
                    let longer = expect != DMA_OK && new[i] == 0xa5;
                    let kept = expect != DMA_OK && new[i] == old[i];
                    assert!(new[i] == host[i] || kept || longer, "case {case}, round {round}: byte {i} of {d:x?}");
                }
                ram[d.local as usize..][..d.len as usize].copy_from_slice(&new);
            }
            for (_, fault) in &faults {
                wrong += u64::from(matches!(fault, ReadFault::Never | ReadFault::Late { .. }));
            }
            let more = faults.iter().filter(|f| matches!(f.1, ReadFault::Dropped { .. })).count() as u64;
            let timeouts = b.counter(C_DMA_TIMEOUTS) - timeouts;
            assert!((wrong..=wrong + more).contains(&timeouts), "{timeouts} time-outs: {faults:x?}");
            assert_eq!(b.counter(C_DMA_HOST_ERROR) - failed, errors, "each command that failed is counted");
            // What nobody has asked for is thrown away. Late ones may be among them.
            while b.card.dma_in_flight() {
                b.card.run(100);
            }
            let unexpected = b.counter(C_DMA_UNEXPECTED);
            for _ in 0..6 {
                let len = rng.below(300) as usize;
                let data = rng.bytes(len);
                b.card.stray_completion(rng.below(64) as u8, 64 * rng.below(64) as u16, data);
                b.card.run(300);
            }
            assert_eq!(b.counter(C_DMA_UNEXPECTED) - unexpected, 6);
            // Dead tags come back with a reset only, and a while after it.
            if round % 3 == 2 {
                b.set(HOST_CTRL, 1);
                assert_eq!((b.reg(HOST_STATUS), b.reg(HOST_DMA_BUSY)), (FW_RESET, 0));
                b.start(8, 9);
                b.set(HOST_READ_TIMEOUT, THIRD);
                b.card.run(5 << THIRD);
            }
        }
        assert!(b.packet_ram(0, PKT_BYTES as usize) == ram, "case {case}: nothing but what was read has changed");
    }
}

#[test]
fn each_fault_by_itself_is_an_error_of_its_read_and_the_next_ones_are_right() {
    let faults = [
        ReadFault::Refused { at: 0 },
        ReadFault::Refused { at: 1 },
        ReadFault::Poisoned { at: 0, beat: 0 },
        ReadFault::Poisoned { at: 0, beat: 99 },
        ReadFault::Poisoned { at: 1, beat: 1 },
        ReadFault::Dropped { at: 0 },
        ReadFault::Dropped { at: LAST },
        ReadFault::Moved { at: 0, by: 128 },
        ReadFault::Moved { at: 1, by: -128 },
        ReadFault::Moved { at: 1, by: 2048 },
        ReadFault::Longer { at: 0 },
        ReadFault::Longer { at: LAST },
        ReadFault::Never,
        ReadFault::Late { cycles: LATE },
        ReadFault::Doubled { at: 0 },
        ReadFault::Doubled { at: LAST },
    ];
    let mut b = Bench::new(CardConfig { read_latency: 50, split: false, ..CardConfig::default() });
    b.start(7, 9);
    b.set(HOST_READ_TIMEOUT, THIRD);
    let next: Arc<Mutex<Option<ReadFault>>> = Arc::default();
    let chosen = next.clone();
    b.card.set_read_faults(move |_, _| chosen.lock().unwrap().take());
    let old = vec![0x77; 2048];
    for fault in faults {
        b.fill_packet_ram(0, &old);
        *next.lock().unwrap() = Some(fault);
        let unexpected = b.counter(C_DMA_UNEXPECTED);
        // The first read of 512 bytes, in four completions, is wrong; those behind it, and another command's, are not.
        b.dma(Dma { local: 0, len: 1024, tag: 1, addr: DATA, ..Dma::default() });
        b.dma(Dma { local: 1024, len: 512, tag: 2, addr: DATA + PAGE, ..Dma::default() });
        let mut status = [0; 3];
        for _ in 0..2 {
            let (how, tag) = b.dma_done();
            status[tag as usize] = how;
        }
        let doubled = fault == ReadFault::Doubled { at: LAST };
        assert_eq!(status[1..], [if doubled { DMA_OK } else { DMA_HOST_ERROR }, DMA_OK], "{fault:?}");
        b.wait("what is late", |b| (!b.card.dma_in_flight()).then_some(()));
        b.card.run(100);
        if matches!(fault, ReadFault::Late { .. } | ReadFault::Doubled { at: LAST }) {
            assert!(b.counter(C_DMA_UNEXPECTED) > unexpected, "{fault:?}");
        }
        assert_eq!(b.packet_ram(1024, 512), b.peek(DATA + PAGE, 512), "{fault:?}");
        assert_eq!(b.packet_ram(512, 512), b.peek(DATA + 512, 512), "{fault:?}");
        assert_eq!(b.packet_ram(1536, 512), old[1536..], "{fault:?}");
    }
    assert_eq!(b.counter(C_DMA_HOST_ERROR), faults.len() as u64 - 1);
    assert_eq!(b.counter(C_DMA_TIMEOUTS), 3, "dropped at the end, never, late");
    assert_eq!(b.reg(HOST_DMA_BUSY), 0);
}

#[test]
fn a_command_ring_that_cannot_be_read_stands_and_no_fence_passes_a_lost_revocation() {
    let faults = [
        ReadFault::Refused { at: 0 },
        ReadFault::Poisoned { at: 0, beat: 0 },
        ReadFault::Poisoned { at: 0, beat: 99 },
        ReadFault::Dropped { at: 0 },
        ReadFault::Moved { at: 0, by: 64 },
        ReadFault::Longer { at: 0 },
        ReadFault::Never,
        ReadFault::Late { cycles: LATE },
    ];
    for fault in faults {
        let mut b = Bench::plain();
        b.set(HOST_READ_TIMEOUT, THIRD);
        const VPN: u64 = 0x1000;
        let index = b.install(1, VPN, DATA, true);
        b.fence();
        let before = b.peek(FENCE, 8);
        let failed = b.counter(C_DMA_HOST_ERROR);
        let mut first = true;
        b.card.set_read_faults(move |_, _| std::mem::take(&mut first).then_some(fault));
        b.command(&PageRevoke { index }.encode());
        b.wait("the ring to stand", |b| (b.reg(HOST_CMD_CI) >> 31 != 0).then_some(()));
        let at = b.reg(HOST_CMD_CI);
        // Read without a fault, but behind it.
        b.command(&Fence { token: 0x5678_0000_1234 }.encode());
        b.card.run(3000);
        assert_eq!(b.peek(FENCE, 8), before, "{fault:?}: a fence behind a revocation that was lost");
        assert_eq!(b.reg(HOST_CMD_CI), at);
        assert_eq!(b.counter(C_DMA_HOST_ERROR) - failed, 1);
        // Nobody else stands.
        b.dma(Dma { len: 4096, tag: 7, addr: VPN * PAGE, asid: Some(1), ..Dma::default() });
        assert_eq!(b.dma_done(), (DMA_OK, 7), "{fault:?}");
        // Set up anew it works, and so it does after a reset.
        b.set(HOST_CMD_LOG2, RING_LOG2);
        b.cmd.pi = 0;
        assert_eq!(b.reg(HOST_CMD_CI), 0);
        b.command(&PageRevoke { index }.encode());
        b.fence();
        b.dma(Dma { len: 4096, tag: 8, addr: VPN * PAGE, asid: Some(1), ..Dma::default() });
        assert_eq!(b.dma_done(), (DMA_NO_TRANSLATION, 8), "{fault:?}");
        b.reset(8, 9);
        b.fence();
    }
}

#[test]
fn a_reset_does_not_wait_for_ever_and_what_comes_after_it_reaches_no_new_read() {
    let mut rng = Rng(seed(42));
    let mut b = Bench::new(CardConfig { read_latency: 60, split: true, ..CardConfig::default() });
    b.start(8, 9);
    // Answered long after the reset, which waits for 65,536 clocks, with the time-out as it is by default.
    b.card.set_read_faults(|addr, _| {
        (addr >= DATA + 64 * PAGE).then(|| match addr / 512 % 3 {
            0 => ReadFault::Never,
            n => ReadFault::Late { cycles: 100_000 + 3000 * n + addr % 1000 * 20 },
        })
    });
    for tag in 0..5 {
        let addr = DATA + u64::from(64 + tag) * PAGE;
        b.dma(Dma { local: tag * 4608, len: 4096, tag, addr, ..Dma::default() });
    }
    b.wait("the reads", |b| (b.reg(HOST_DMA_BUSY) >= 40).then_some(()));
    let begun = b.card.cycles();
    b.set(HOST_CTRL, 1);
    assert_eq!(b.reg(HOST_STATUS), FW_RESET);
    assert!((65_000..80_000).contains(&(b.card.cycles() - begun)), "{} cycles", b.card.cycles() - begun);
    assert!(b.card.dma_in_flight(), "the host still owes something");
    b.start(8, 9);
    b.fence();
    let mut ram = vec![0; 8 * 4096];
    b.fill_packet_ram(0, &ram);
    // New reads all the time while the old ones are answered.
    let mut rounds = 0;
    while b.card.dma_in_flight() || rounds < 50 {
        let (tag, at) = (rounds % 8, rng.below(32 * PAGE));
        b.dma(Dma { local: tag * 4096, len: 4096, tag, addr: DATA + at, ..Dma::default() });
        assert_eq!(b.dma_done(), (DMA_OK, tag));
        ram[tag as usize * 4096..][..4096].copy_from_slice(&b.peek(DATA + at, 4096));
        assert!(b.packet_ram(tag * 4096, 4096) == ram[tag as usize * 4096..][..4096], "round {rounds}");
        rounds += 1;
    }
    assert!(b.packet_ram(0, 8 * 4096) == ram);
    assert!(b.counter(C_DMA_UNEXPECTED) >= 20);
    assert_eq!((b.counter(C_DMA_TIMEOUTS), b.counter(C_DMA_HOST_ERROR)), (0, 0));
}

#[test]
fn a_host_that_takes_no_writes_or_interrupts_holds_up_only_those() {
    let mut b = Bench::plain();
    b.card.set_writes_ready(false);
    b.firmware_event(&[5; 16]);
    b.dma(Dma { write: true, len: 300, tag: 1, addr: DATA + 5 * PAGE, ..Dma::default() });
    for tag in 2..6 {
        b.dma(Dma { local: 8192, len: 4096, tag, addr: DATA, ..Dma::default() });
        assert_eq!(b.dma_done(), (DMA_OK, tag), "reads go on");
    }
    assert!(b.counter(C_HOST_WAIT_CYCLES) > 0, "and the card waits for them");
    // A fence waits for the write, and everything for the fence.
    b.token += 1;
    let token = b.token;
    b.command(&Fence { token }.encode());
    b.card.run(50_000);
    assert_eq!(b.peek(FENCE, 8), [0; 8]);
    b.card.set_writes_ready(true);
    b.wait("the fence", |b| (b.peek(FENCE, 8) == token.to_le_bytes()).then_some(()));
    assert_eq!(b.dma_done(), (DMA_OK, 1));
    assert_eq!(b.event()[1..], [5; 15]);

    // Interrupts that are not taken: one is owed, however many events there are.
    b.card.set_msix_ready(false);
    b.set(HOST_EVT_CI, u32::from(b.evt.ci) | 1 << 31);
    let vectors = b.vectors();
    for n in 0..6 {
        b.firmware_event(&[6 + n; 16]);
    }
    b.card.run(50_000);
    b.fence();
    assert_eq!(b.vectors(), vectors);
    for n in 0..6 {
        assert_eq!(b.event()[1], 6 + n, "events go on");
    }
    b.card.set_msix_ready(true);
    b.card.run(1000);
    assert_eq!(b.vectors(), vectors + 1);

    // A reset does not wait for the host either.
    b.card.set_writes_ready(false);
    b.card.set_msix_ready(false);
    b.dma(Dma { write: true, len: 4096, tag: 9, addr: DATA + 5 * PAGE, ..Dma::default() });
    b.card.run(1000);
    b.set(HOST_CTRL, 1);
    assert_eq!(b.reg(HOST_STATUS), FW_RESET);
    b.card.set_writes_ready(true);
    b.card.set_msix_ready(true);
    b.start(8, 9);
    b.fence();
}

#[test]
fn a_ring_of_all_ones_is_for_firmware_and_does_no_harm() {
    let mut b = Bench::plain();
    b.poke(CMD_RING, &[0xff; 64 * 8]);
    b.cmd.pi = 8;
    b.set(HOST_CMD_PI, 8);
    for _ in 0..8 {
        b.wait("a command for firmware", |b| (b.cpu(CPU_PENDING) & 1 << PEND_CMD != 0).then_some(()));
        assert_eq!(b.cpu(CPU_CMD_W0), u32::MAX);
        b.set_cpu(CPU_CMD_POP, 0);
    }
    b.fence();
}

/// Who reads what is wrong.
#[derive(Clone, Copy, Debug)]
enum User {
    SendQueue,
    ReceiveQueue,
    Payload,
}

/// Two pairs of QPs on one card, in loopback: the second pair is to see nothing of what happens to the first.
struct Pairs {
    net: Net,
    faults: Done,
}

const VICTIM: (u32, u32) = (pair::QP_A, pair::QP_B);
const OTHER: (u32, u32) = (40, 41);

impl Pairs {
    fn new(seed: u64) -> Self {
        let mut config = HostConfig { seed, ..HostConfig::default() };
        config.card = CardConfig { seed, out_of_order: true, ..CardConfig::default() };
        let mut host = berth_rtl_host::Host::new(config);
        host.start(&pair::image());
        host.create_cq(pair::CQN, pair::UAR, 8);
        for (a, b) in [VICTIM, OTHER] {
            host.create_qp(pair::qp(a));
            host.create_qp(pair::qp(b));
        }
        host.set_reg(HOST_READ_TIMEOUT, THIRD);
        let mut net = Net::new(vec![host]);
        net.connect(0, VICTIM.0, 0, VICTIM.1, pair::SERVICE);
        net.connect(0, OTHER.0, 0, OTHER.1, pair::SERVICE + 1);
        Self { net, faults: Done::default() }
    }

    /// Runs both pairs' streams, with one fault in a read of the victim's, until the other one has arrived and the victim has as
    /// well, or has ended; gives the victim's reasons to end, the statuses of its completions, and checks what has arrived.
    fn run(&mut self, seed: u64, user: User, fault: ReadFault) -> (Vec<u32>, Vec<u8>) {
        let mut rng = Rng(seed);
        let mut victim = pair::Stream::new(&mut self.net, (0, VICTIM.0), (0, VICTIM.1), rng.bytes(96 << 10));
        let mut other = pair::Stream::new(&mut self.net, (0, OTHER.0), (0, OTHER.1), rng.bytes(96 << 10));
        // Sends of 6,000 bytes, some of which are hit.
        for s in [&mut victim, &mut other] {
            let len = s.data.len();
            s.chunks = (0..len).step_by(6000).map(|at| vec![6000.min(len - at)]).collect();
        }
        let host = &mut self.net.hosts[0];
        let pages = match user {
            User::SendQueue => vec![host.queues(VICTIM.0).0 / PAGE * PAGE],
            User::ReceiveQueue => vec![host.queues(VICTIM.1).1 / PAGE * PAGE],
            User::Payload => host.bus(pair::ASID, victim.source, victim.data.len()),
        };
        let mut wait = rng.below(4);
        host.card.set_read_faults(self.faults.put(move |addr| {
            if !pages.contains(&(addr / PAGE * PAGE)) {
                return None;
            }
            wait = wait.wrapping_sub(1);
            (wait == u64::MAX).then_some(fault)
        }));
        let (mut reasons, mut statuses) = (Vec::new(), Vec::new());
        self.net.run_until("both streams at their ends", 60_000_000, |net| {
            if reasons.is_empty() {
                victim.post(net);
            }
            if !other.finished() {
                other.post(net);
            }
            for c in net.hosts[0].poll_cq(pair::CQN) {
                if c.qpn == OTHER.0 || c.qpn == OTHER.1 {
                    other.complete(net, 0, &c);
                } else if c.status == WC_OK {
                    victim.complete(net, 0, &c);
                } else {
                    statuses.push(c.status);
                }
            }
            while let Some(error) = net.hosts[0].take_event::<QpError>() {
                assert!([VICTIM.0, VICTIM.1].contains(&error.qpn), "{error:?}");
                reasons.push(error.reason);
            }
            other.finished() && (victim.finished() || !reasons.is_empty())
        });
        assert!(other.received == other.data, "the other pair's bytes");
        assert!(victim.data.starts_with(&victim.received), "what has arrived is right");
        assert!(!reasons.is_empty() || victim.received == victim.data);
        (reasons, statuses)
    }
}

#[test]
fn inv_5_a_wrong_answer_to_one_connection_ends_that_one_by_name_at_most() {
    let seed = seed(43);
    let mut rng = Rng(seed);
    // Every kind, and with three times as many cases, or three seeds, of each user's reads.
    for case in 0..cases(FAULTS) {
        let turn = case + case / FAULTS + seed;
        let user = [User::SendQueue, User::ReceiveQueue, User::Payload][(turn % 3) as usize];
        let fault = fault(case % FAULTS, &mut rng);
        let mut pairs = Pairs::new(rng.draw());
        let (reasons, statuses) = pairs.run(rng.draw(), user, fault);
        println!("{user:?}, {fault:?}: reasons {reasons:?}, statuses {statuses:?}");
        let net = &mut pairs.net;
        assert_eq!(pairs.faults.take().len(), 1, "{user:?}, {fault:?}");
        let failed = net.hosts[0].rtl_counter(C_DMA_HOST_ERROR);
        assert_eq!(
            failed > 0,
            !matches!(fault, ReadFault::Doubled { at: LAST }),
            "{user:?}, {fault:?}: {failed} failed"
        );
        match user {
            _ if matches!(fault, ReadFault::Doubled { .. }) => assert!(reasons.is_empty(), "{reasons:?}"),
            User::SendQueue | User::ReceiveQueue => assert_eq!(reasons.first(), Some(&REASON_QUEUE_READ)),
            User::Payload => {
                assert!(reasons.iter().all(|&r| r == REASON_SEND_FAILED), "{reasons:?}");
                assert!(statuses.iter().all(|s| [WC_LOCAL_PROTECTION, WC_FLUSHED].contains(s)), "{statuses:?}");
            }
        }
        for qpn in [VICTIM.0, VICTIM.1, OTHER.0, OTHER.1] {
            let w = QpDestroy { qpn }.encode();
            let cookie = net.hosts[0].submit(w);
            net.run_until("CMD_QP_DESTROY", 100_000_000, |n| n.hosts[0].done(cookie).is_some());
        }
        net.wait_unpinned();
        assert_eq!(net.hosts[0].violations(), [], "invariant 4");
        assert_eq!(net.hosts[0].reg(HOST_DMA_BUSY), 0);
    }
}
