// SPDX-License-Identifier: GPL-2.0
//! The card as a network device.

use super::rig::*;
use crate::abi::message::CqNotify;
use crate::abi::{card::*, host::*, raw::*, ring::*, status::*, wqe::*};
use crate::kernel::net::device::{Device, Mode, Rtnl, Stats};
use crate::kernel::net::skb::SkBuff;
use crate::net::nic::Nic;
use crate::net::taker::Datagrams;
use berth_random::{Rng, cases, seed};
use kernel::{prelude::*, sync::Arc};

/// Completion queue of the network device.
const CQN: u32 = NUM_CQS - 1;
/// Elements of each ring, and entries of the completion queue.
const RING: u16 = 256;
const COMPLETIONS: u16 = 1024;

/// The card's raw queue, as the test plays it.
#[derive(Default)]
struct Raw {
    /// Elements that the card was given, and those that it has done with: sends, receives.
    given: [u16; 2],
    done: [u16; 2],
    /// Completions that were written, and those that the driver has told of.
    written: u16,
    told: u16,
    armed: bool,
}

/// A card that is a network device.
struct Net {
    rig: Rig,
    device: Arc<Device<Nic>>,
    raw: Raw,
}

impl Net {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(seed: Option<u64>) -> Self {
        let rig = Rig::with(seed, Setup { network_device: true, ..Setup::default() });
        rig.hardware().habits.raw = true;
        rig.ms(20);
        let device = rig.registry.link.as_ref().expect("there is one").device.clone();
        Self { rig, device, raw: Raw::default() }
    }

    /// One that is up.
    fn up() -> Self {
        let mut net = Self::new();
        net.set_up(true).expect("it comes up");
        assert!(net.poll().is_empty());
        net
    }

    fn set_up(&mut self, up: bool) -> Result {
        let device = self.device.clone();
        self.call(move || device.set_up(&Rtnl::lock(), up))
    }

    /// Has something done by a thread, to its end.
    fn call<T: Clone + 'static>(&mut self, f: impl FnOnce() -> T + 'static) -> T {
        let outcome = self.rig.spawn(f);
        self.rig.ms(50);
        outcome.get().expect("it ends")
    }

    /// What the driver has told the card by its doorbells. Only the queue that there is hears them.
    fn hear(&mut self) {
        let rung = core::mem::take(&mut self.rig.hardware().doorbells);
        for (offset, value) in rung {
            let index = (value >> 16) as u16;
            match offset {
                DB_RAW_SQ | DB_RAW_RQ => {
                    assert_eq!(value & 0xffff, 0);
                    let ring = usize::from(offset == DB_RAW_RQ);
                    assert!(index.wrapping_sub(self.raw.done[ring]) <= RING, "more than the ring has");
                    self.raw.given[ring] = index;
                }
                DB_CQ => {
                    assert_eq!(value & 0xffff, u64::from(CQN));
                    assert!(self.raw.written.wrapping_sub(index) <= self.raw.written.wrapping_sub(self.raw.told));
                    (self.raw.told, self.raw.armed) = (index, value >> 63 != 0);
                }
                _ => panic!("no doorbell {offset:#x}"),
            }
        }
        self.notify();
    }

    fn notify(&mut self) {
        if self.raw.armed && self.raw.told != self.raw.written {
            self.raw.armed = false;
            self.rig.event(CqNotify { cqn: CQN }.encode());
        }
    }

    /// The next element of a ring that the card has been given.
    fn element(&mut self, ring: usize) -> Option<RawWqe> {
        self.hear();
        let create = self.rig.hardware().raw?;
        let at = self.raw.done[ring];
        if self.raw.given[ring] == at {
            return None;
        }
        let base = [create.sq_base, create.rq_base][ring];
        // SAFETY: The ring has so many elements; the driver does not change one that the card has been given.
        let wqe = unsafe { *(base as *const RawWqe).add(usize::from(at % RING)) };
        assert!(wqe.is_sound(ring == 0), "{wqe:?}");
        for sge in &wqe.sge[..usize::from(wqe.num_sge)] {
            assert_eq!(self.rig.hardware().packets.get(&sge.va), Some(&sge.len), "is not mapped");
        }
        Some(wqe)
    }

    /// Completes an element.
    fn complete(&mut self, ring: usize, wqe: &RawWqe, byte_len: u32, status: u8) {
        self.raw.done[ring] = self.raw.done[ring].wrapping_add(1);
        let base = self.rig.hardware().objects[&(CMD_CQ_CREATE, CQN)];
        let at = self.raw.written;
        assert!(at.wrapping_sub(self.raw.told) < COMPLETIONS, "the completion queue overruns");
        self.raw.written = at.wrapping_add(1);
        let cqe = Cqe {
            wr_id: wqe.wr_id,
            byte_len,
            qpn: RAW_QPN,
            status,
            opcode: wqe.opcode,
            credit: self.raw.done[ring].into(),
            phase: if at & COMPLETIONS == 0 { PHASE } else { 0 },
            ..Cqe::default()
        };
        // SAFETY: The queue has so many entries.
        unsafe { *(base as *mut Cqe).add(usize::from(at % COMPLETIONS)) = cqe };
        self.notify();
    }

    /// The card sends a frame, if it has one.
    fn take(&mut self) -> Option<Vec<u8>> {
        let wqe = self.element(0)?;
        let mut frame = Vec::new();
        for sge in &wqe.sge[..usize::from(wqe.num_sge)] {
            // SAFETY: It is mapped.
            frame.extend_from_slice(unsafe { core::slice::from_raw_parts(sge.va as *const u8, sge.len as usize) });
        }
        assert_eq!(frame.len(), wqe.length as usize);
        self.complete(0, &wqe, wqe.length, WC_OK);
        Some(frame)
    }

    /// A frame comes; false if no receive takes it.
    fn give(&mut self, frame: &[u8]) -> bool {
        let Some(wqe) = self.element(1) else { return false };
        if frame.len() > wqe.length as usize {
            return false;
        }
        // SAFETY: It is mapped, in one range.
        unsafe { core::ptr::copy_nonoverlapping(frame.as_ptr(), wqe.sge[0].va as *mut u8, frame.len()) };
        self.complete(1, &wqe, frame.len() as u32, WC_OK);
        true
    }

    /// Polls until there is nothing more.
    fn poll(&mut self) -> Vec<Vec<u8>> {
        loop {
            self.hear();
            self.rig.settle();
            if self.device.poll(64).is_none() {
                return self.device.received();
            }
        }
    }

    fn xmit(&self, parts: &[&[u8]]) -> bool {
        self.device.xmit(SkBuff::of(parts), false)
    }

    /// The card has been reset: its queue begins anew.
    fn forget(&mut self) {
        self.rig.hardware().doorbells.clear();
        self.raw = Raw::default();
    }

    fn packets(&self) -> i32 {
        self.rig.surroundings.packets.get()
    }

    fn mapped(&self) -> usize {
        self.rig.hardware().packets.len()
    }

    /// Takes the card away; nothing is left of the network device.
    fn end(mut self) {
        let link = self.rig.registry.link.clone().expect("there is one");
        self.call(move || link.end());
        assert!(!self.device.is_known() && !self.device.link.get());
        assert_eq!((self.packets(), self.mapped()), (0, 0));
        assert!(self.rig.hardware().raw.is_none());
        assert!(!self.rig.hardware().objects.contains_key(&(CMD_CQ_CREATE, CQN)));
        drop(self.device);
        let gone = self.rig.hardware().habits.gone;
        match gone {
            true => self.rig.end_at_once(),
            false => self.rig.end(),
        }
    }
}

/// A frame with a number.
fn frame(n: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| n ^ at as u8).collect()
}

#[test]
fn ap_4_net_the_device_is_there_if_firmware_knows_raw_queues() {
    let rig = Rig::new(Setup { network_device: true, ..Setup::default() });
    let device = rig.registry.link.as_ref().expect("there is one").device.clone();
    rig.ms(1000);
    assert!(!device.is_known());
    // Other firmware.
    rig.hardware().habits.raw = true;
    rig.card.reset("a test").unwrap();
    rig.ms(20);
    assert!(device.is_known() && !device.link.get());
    assert_eq!(device.max_mtu, SLOT_BYTES - 18);
    drop(device);
    rig.end();
}

#[test]
fn ap_4_net_a_card_that_is_down_gets_its_device_later() {
    let rig = Rig::new(Setup { network_device: true, ..Setup::default() });
    let device = rig.registry.link.as_ref().expect("there is one").device.clone();
    rig.hardware().habits.raw = true;
    rig.hardware().habits.boot.0 = FW_PANIC;
    assert!(rig.card.reset("a test").is_err());
    rig.ms(20);
    assert!(!device.is_known());
    rig.hardware().habits.boot.0 = FW_RUNNING;
    rig.card.reset("a test").unwrap();
    rig.ms(20);
    assert!(device.is_known());
    drop(device);
    rig.end();
}

#[test]
fn ap_4_net_frames_go_out_of_their_parts_and_are_given_back() {
    let mut net = Net::up();
    assert!(net.device.link.get());
    let idle = net.packets();
    assert_eq!(idle, RING.into());
    let whole = frame(1, 1514);
    for cuts in [&[1514][..], &[14, 1500], &[54, 700, 760], &[14, 500, 500, 500], &[1, 1, 1, 1, 1510]] {
        let (mut parts, mut rest) = (Vec::new(), &whole[..]);
        for cut in cuts {
            let (part, more) = rest.split_at(*cut);
            parts.push(part);
            rest = more;
        }
        assert!(net.xmit(&parts));
        assert_eq!(net.take().expect("it goes out"), whole);
        net.poll();
    }
    assert_eq!((net.packets(), net.mapped()), (idle, RING.into()));
    let stats = net.device.stats();
    assert_eq!((stats.tx_packets, stats.tx_bytes), (5, 5 * 1514));
    assert_eq!((net.device.counter("tx_copied"), net.device.counter("card_raw_sent")), (2, counter(61)));
    net.end();
}

/// What the test's card shows for a counter.
fn counter(index: u32) -> u64 {
    let at = HOST_COUNTERS + 8 * index;
    u64::from(at) << 32 | u64::from(!at)
}

#[test]
fn ap_4_net_frames_that_are_too_short_or_too_long_are_dropped() {
    let mut net = Net::up();
    for bytes in [13, SLOT_BYTES as usize + 1] {
        assert!(net.xmit(&[&frame(1, bytes)]));
        assert_eq!(net.take(), None);
    }
    for bytes in [14, SLOT_BYTES as usize] {
        assert!(net.xmit(&[&frame(2, bytes)]));
        assert_eq!(net.take(), Some(frame(2, bytes)));
    }
    net.poll();
    assert_eq!((net.device.stats().tx_dropped, net.device.stats().tx_packets), (2, 2));
    net.end();
}

#[test]
fn ap_4_net_doorbells_are_rung_for_several_frames_at_once() {
    let mut net = Net::up();
    for n in 0..3 {
        assert!(net.device.xmit(SkBuff::of(&[&frame(n, 60)]), true));
    }
    assert_eq!(net.take(), None);
    // The last one is dropped, and those before it go all the same.
    assert!(net.device.xmit(SkBuff::of(&[&frame(3, 2)]), false));
    let sent: Vec<_> = core::iter::from_fn(|| net.take()).collect();
    assert_eq!(sent, [frame(0, 60), frame(1, 60), frame(2, 60)]);
    net.end();
}

#[test]
fn ap_4_net_a_full_queue_stops_and_goes_on_when_half_of_it_is_free() {
    let mut net = Net::up();
    for n in 0..RING {
        assert!(!net.device.stopped.get(), "at {n}");
        assert!(net.device.xmit(SkBuff::of(&[&frame(n as u8, 60)]), true));
    }
    assert!(net.device.stopped.get());
    // What nobody does, because the queue is stopped.
    net.device.stopped.set(false);
    assert!(!net.xmit(&[&frame(0, 60)]), "there is no room");
    net.device.stopped.set(true);
    for n in 0..RING {
        assert_eq!(net.take().expect("the card was told"), frame(n as u8, 60));
        net.poll();
        assert_eq!(net.device.stopped.get(), n + 1 < RING / 2, "at {n}");
    }
    assert_eq!(net.device.counter("tx_stopped"), 1);
    net.end();
}

#[test]
fn ap_4_net_frames_come_in_up_to_the_budget_and_receives_are_posted_again() {
    let mut net = Net::up();
    for round in 0..20_u32 {
        let count = 40 + round as usize;
        let frames: Vec<_> = (0..count).map(|n| frame(n as u8, 60 + 20 * n)).collect();
        for frame in &frames {
            assert!(net.give(frame));
            net.hear();
            net.rig.settle();
        }
        let mut got = Vec::new();
        assert_eq!(net.device.poll(16), Some(16), "a notification had it polled");
        got.extend(net.device.received());
        got.extend(net.poll());
        assert_eq!(got, frames);
        assert_eq!((net.packets(), net.mapped()), (RING.into(), RING.into()));
    }
    let (packets, count) = (net.device.stats().rx_packets, (0..20).map(|n| 40 + n).sum::<u64>());
    assert_eq!(packets, count);
    net.end();
}

#[test]
fn ap_4_net_sends_complete_also_when_no_receive_may_be_taken() {
    let mut net = Net::up();
    for n in 0..4 {
        assert!(net.xmit(&[&frame(n, 60)]));
    }
    let idle = i32::from(RING);
    assert_eq!(net.packets(), idle + 4);
    (0..3).for_each(|_| assert!(net.take().is_some()));
    assert!(net.give(&frame(9, 60)));
    assert!(net.take().is_some());
    net.hear();
    net.rig.settle();
    assert_eq!(net.device.poll(0), Some(0));
    // The one behind the receive waits.
    assert_eq!(net.packets(), idle + 1);
    assert_eq!(net.poll(), [frame(9, 60)]);
    assert_eq!(net.packets(), idle);
    net.end();
}

#[test]
fn ap_4_net_without_memory_frames_are_dropped_and_the_ring_stays_full() {
    let mut net = Net::up();
    (0..8).for_each(|n| assert!(net.give(&frame(n, 100))));
    net.hear();
    net.rig.settle();
    // Each time one of two allocations.
    net.rig.world.fail_next(0, 3);
    let got = net.poll();
    assert_eq!(got, (3..8).map(|n| frame(n, 100)).collect::<Vec<_>>());
    assert_eq!((net.device.stats().rx_dropped, net.mapped()), (3, RING.into()));
    (0..RING).for_each(|n| assert!(net.give(&frame(n as u8, 100)), "receive {n}"));
    assert_eq!(net.poll().len(), RING.into());
    // A send that cannot be mapped is dropped.
    net.rig.world.fail_next(0, 1);
    assert!(net.xmit(&[&frame(1, 60)]));
    assert_eq!((net.take(), net.device.stats().tx_dropped), (None, 1));
    net.end();
}

#[test]
fn ap_4_net_what_the_card_fails_with_is_counted() {
    let mut net = Net::up();
    for status in [WC_LOCAL_PROTECTION, WC_BAD_WQE] {
        assert!(net.xmit(&[&frame(1, 60)]));
        let wqe = net.element(0).unwrap();
        net.complete(0, &wqe, 60, status);
        let wqe = net.element(1).unwrap();
        net.complete(1, &wqe, 0, status);
        assert!(net.poll().is_empty());
    }
    let Stats { tx_packets, tx_errors, rx_packets, rx_errors, .. } = net.device.stats();
    assert_eq!((tx_packets, tx_errors, rx_packets, rx_errors), (0, 2, 0, 2));
    // Completions of nothing harm nobody.
    let wqe = RawWqe { opcode: OP_SEND, ..RawWqe::default() };
    net.complete(0, &wqe, 0, WC_OK);
    net.complete(1, &RawWqe { opcode: 77, ..wqe }, 0, WC_OK);
    (net.raw.done[0], net.raw.done[1]) = (2, 2);
    assert!(net.poll().is_empty());
    assert_eq!(net.device.counter("bad_completions"), 2);
    assert!(net.give(&frame(5, 60)));
    assert_eq!(net.poll(), [frame(5, 60)]);
    net.end();
}

#[test]
fn ap_4_net_a_reset_takes_the_device_down_and_up_again() {
    let mut net = Net::up();
    for round in 1..4_u64 {
        (0..10).for_each(|n| assert!(net.xmit(&[&frame(n, 60)])));
        (0..5).for_each(|_| assert!(net.take().is_some()));
        assert!(net.give(&frame(1, 60)));
        let card = net.rig.card.clone();
        assert_eq!(net.call(move || card.reset("a test")), Ok(()));
        net.rig.ms(20);
        net.raw = Raw::default();
        assert!(net.device.is_known() && net.device.link.get() && !net.device.stopped.get());
        assert_eq!((net.packets(), net.mapped()), (RING.into(), RING.into()));
        assert_eq!(net.device.counter("opened"), round + 1);
        // What had been received is gone; what comes now is not.
        assert!(net.poll().is_empty());
        assert!(net.give(&frame(2, 60)) && net.xmit(&[&frame(3, 60)]));
        assert_eq!((net.take(), net.poll()), (Some(frame(3, 60)), vec![frame(2, 60)]));
    }
    net.end();
}

#[test]
fn ap_4_net_a_device_without_firmware_has_no_link_until_there_is_some() {
    let mut net = Net::up();
    net.rig.hardware().habits.boot.0 = FW_PANIC;
    let card = net.rig.card.clone();
    assert!(net.call(move || card.reset("a test")).is_err());
    net.rig.ms(20);
    assert!(net.device.is_known() && !net.device.link.get() && net.device.stopped.get());
    assert_eq!((net.packets(), net.mapped()), (0, 0));
    net.rig.hardware().habits.boot.0 = FW_RUNNING;
    net.forget();
    let card = net.rig.card.clone();
    assert_eq!(net.call(move || card.reset("a test")), Ok(()));
    net.rig.ms(20);
    assert!(net.device.link.get() && !net.device.stopped.get());
    assert!(net.poll().is_empty() && net.give(&frame(2, 60)));
    net.end();
}

#[test]
fn ap_4_net_rings_without_memory_are_made_later() {
    let mut net = Net::up();
    net.rig.ms(1);
    let card = net.rig.card.clone();
    assert_eq!(net.call(move || card.reset("a test")), Ok(()));
    net.forget();
    let device = net.device.clone();
    // The user's own attempts fail, and leave nothing.
    net.set_up(false).unwrap();
    for nth in 1..100 {
        net.rig.world.fail_nth(nth);
        let device = device.clone();
        let result = net.call(move || device.set_up(&Rtnl::lock(), true));
        if net.rig.world.fail_nth(0) != 0 {
            assert!(nth > 5 && result.is_ok(), "{nth}");
            break;
        }
        assert_eq!((result, net.packets(), net.mapped()), (Err(ENOMEM), 0, 0), "allocation {nth}");
        assert!(net.rig.hardware().raw.is_none());
    }
    net.forget();
    assert!(net.device.link.get());
    // After a reset nobody asks: the driver tries again by itself.
    net.rig.card.start_watching();
    net.rig.watched = true;
    net.rig.world.fail_next(0, 1);
    let card = net.rig.card.clone();
    assert_eq!(net.call(move || card.reset("a test")), Ok(()));
    assert!(!net.device.link.get());
    net.rig.ms(1100);
    assert!(net.device.link.get());
    net.end();
}

#[test]
fn ap_4_net_the_queue_takes_what_the_device_wants() {
    let mut net = Net::new();
    let flags = |net: &Net| net.rig.hardware().raw.map(|raw| raw.flags);
    net.rig.card.net.lock().mac = [2, 0, 0, 0, 0, 1];
    let link = net.rig.registry.link.clone().unwrap();
    net.call(move || link.set_address([2, 0, 0, 0, 0, 1]));
    assert_eq!(flags(&net), None);
    net.set_up(true).unwrap();
    assert_eq!(flags(&net), Some(RAW_DEFAULT));
    let device = net.device.clone();
    let set = move |net: &mut Net, promiscuous, multicast| {
        let device = device.clone();
        net.call(move || device.set_mode(&Rtnl::lock(), Mode { promiscuous, multicast })).unwrap();
        flags(net).unwrap()
    };
    assert_eq!(set(&mut net, false, true), RAW_DEFAULT | RAW_MULTICAST);
    assert_eq!(set(&mut net, true, true), RAW_DEFAULT | RAW_MULTICAST | RAW_PROMISCUOUS);
    // Also after a reset.
    let card = net.rig.card.clone();
    assert_eq!(net.call(move || card.reset("a test")), Ok(()));
    assert_eq!(flags(&net), Some(RAW_DEFAULT | RAW_MULTICAST | RAW_PROMISCUOUS));
    assert_eq!(set(&mut net, false, false), RAW_DEFAULT);
    // The card does not know another address than its own.
    let device = net.device.clone();
    net.call(move || device.set_address(&Rtnl::lock(), [2, 0, 0, 0, 0, 7])).unwrap();
    assert_eq!(flags(&net), Some(RAW_DEFAULT | RAW_PROMISCUOUS));
    net.end();
}

#[test]
fn ap_4_net_receives_hold_as_much_as_the_mtu_says() {
    let mut net = Net::up();
    let most = |net: &mut Net| net.element(1).unwrap().length;
    assert_eq!(most(&mut net), 1518);
    assert!(!net.give(&frame(1, 1519)));
    for mtu in [68, 4000, SLOT_BYTES - 18] {
        net.forget();
        let device = net.device.clone();
        net.call(move || device.set_mtu(&Rtnl::lock(), mtu)).unwrap();
        net.poll();
        assert_eq!(most(&mut net), mtu + 18);
        assert!(net.give(&frame(1, mtu as usize + 18)));
        assert_eq!(net.poll(), [frame(1, mtu as usize + 18)]);
    }
    net.end();
}

#[test]
fn ap_4_net_processes_get_all_completion_queues_but_one() {
    let net = Net::new();
    assert_eq!(net.rig.registry.query().max_cqs, NUM_CQS - 1);
    net.end();
}

#[test]
fn ap_4_net_a_card_that_goes_takes_its_device_with_it() {
    let mut net = Net::up();
    (0..10).for_each(|n| assert!(net.xmit(&[&frame(n, 60)])));
    net.rig.hardware().habits.gone = true;
    let card = net.rig.card.clone();
    net.call(move || card.gone());
    net.rig.ms(20);
    assert!(net.device.is_known() && !net.device.link.get());
    assert_eq!((net.packets(), net.mapped()), (0, 0));
    // The queue was the card's, which is not asked any more.
    net.rig.hardware().raw = None;
    net.rig.hardware().objects.clear();
    net.end();
}

/// Whoever has asked for datagrams of RoCE.
struct Asked(std::cell::RefCell<Vec<Vec<u8>>>);

// SAFETY: One thread runs at a time.
unsafe impl Sync for Asked {}

impl Datagrams for Asked {
    fn received(self: Arc<Self>, frame: SkBuff) {
        self.0.borrow_mut().push(frame.bytes());
    }
}

#[test]
fn qp_6_datagrams_of_roce_go_to_who_asked_for_them() {
    let mut net = Net::up();
    let asked = Arc::new(Asked(Default::default()));
    let udp = |port: u16| {
        let mut bytes = frame(3, 100);
        bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        bytes[23] = 17;
        bytes[36..38].copy_from_slice(&port.to_be_bytes());
        bytes
    };
    let mut six = udp(4791);
    six[14] = 0x46;
    let short = udp(4791)[..37].to_vec();
    let frames = [udp(4791), udp(4790), six, short, udp(4791)];
    let pass = |net: &mut Net| {
        for frame in &frames {
            assert!(net.give(frame));
        }
        net.poll()
    };
    assert_eq!(pass(&mut net), frames, "nobody has asked");
    net.device.data.taker.set(Some(asked.clone()));
    assert_eq!(pass(&mut net), frames[1..4]);
    assert_eq!(*asked.0.borrow(), [udp(4791), udp(4791)]);
    net.device.data.taker.set(None);
    assert_eq!(pass(&mut net), frames);
    net.end();
}

#[test]
fn ap_4_net_frames_are_sent_and_received_once_in_order_whatever_happens() {
    let first = seed(7000);
    for seed in first..first + cases(40) {
        let mut rng = Rng(seed);
        let mut net = Net::with(Some(seed));
        net.set_up(true).expect("it comes up");
        let (mut sent, mut came) = (Vec::new(), Vec::new());
        for n in 0..2000_u32 {
            let bytes = 60 + rng.below(1455) as usize;
            match rng.below(100) {
                0..40 if !net.device.stopped.get() => {
                    let whole = frame(n as u8, bytes);
                    let (head, rest) = whole.split_at(1 + rng.below(59) as usize);
                    let more = rng.below(2) == 0;
                    assert!(net.device.xmit(SkBuff::of(&[head, rest]), more));
                    sent.push(whole);
                }
                40..60 => {
                    if let Some(frame) = net.take() {
                        assert_eq!(frame, sent.remove(0), "seed {seed}, step {n}");
                    }
                }
                60..80 => {
                    let frame = frame(n as u8, bytes);
                    if net.give(&frame) {
                        came.push(frame);
                    }
                }
                80..98 => {
                    net.hear();
                    net.rig.settle();
                    let budget = 1 + rng.below(64) as usize;
                    net.device.poll(budget);
                    for frame in net.device.received() {
                        assert_eq!(frame, came.remove(0), "seed {seed}, step {n}");
                    }
                }
                98 => {
                    let card = net.rig.card.clone();
                    net.call(move || card.reset("a test")).unwrap();
                    net.rig.ms(20);
                    net.raw = Raw::default();
                    sent.clear();
                    came.clear();
                }
                _ => {}
            }
        }
        // The last doorbell may not have been rung.
        if !net.device.stopped.get() {
            assert!(net.xmit(&[&frame(0, 60)]));
            sent.push(frame(0, 60));
        }
        while let Some(frame) = net.take() {
            assert_eq!(frame, sent.remove(0), "seed {seed}");
        }
        came.drain(..).zip(net.poll()).for_each(|(frame, got)| assert_eq!(frame, got, "seed {seed}"));
        assert!(sent.is_empty(), "seed {seed}");
        assert_eq!((net.packets(), net.device.counter("bad_completions")), (RING.into(), 0), "seed {seed}");
        net.end();
    }
}
