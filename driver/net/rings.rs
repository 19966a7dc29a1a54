// SPDX-License-Identifier: GPL-2.0
//! The rings of the raw queue while the network device is open.
//!
//! Each receive has a packet all the time. When one is filled, its place gets another packet before the stack gets
//! the filled one; if there is no memory for that, the frame is dropped and its packet stays. So the ring is always full.
//!
//! All locks here are taken with bottom halves off, by the stack's `xmit` and by NAPI.

use crate::{
    abi::{
        host::{DB_CQ, DB_RAW_RQ, DB_RAW_SQ},
        message::{CqCreate, CqDestroy, RawCreate, RawDestroy},
        raw::{RawWqe, RAW_FRAME_BYTES, RAW_LEAST_BYTES, RAW_SGES, RAW_WQE_BYTES},
        status::WC_OK,
        wqe::{Cqe, Sge, CQE_BYTES, OP_RECV, OP_SEND, PHASE},
    },
    card::Card,
    kernel::{
        gate::BoundRef,
        net::{
            device::{Device, Driver, Poll, Xmit, HEADER_BYTES, TAG_BYTES},
            mapped::{DmaDevice, Mapped, Range},
            skb::SkBuff,
        },
        registers::RegisterPage,
    },
    net::{
        counts::{Count, Counts},
        taker::Taker,
    },
};
use kernel::{
    device::{self, Bound},
    dma::Coherent,
    io::{io_project, io_read, Io},
    new_spinlock,
    prelude::*,
    sync::{
        barrier::{dma_mb, Read},
        Arc, SpinLock,
    },
};

/// The raw queue that is the network device's.
pub(crate) const QUEUE: u8 = 0;
/// Its completion queue: the card's last one, which no process gets.
pub(crate) fn cqn_of(card: &Card) -> u32 {
    card.sizes.cqs - 1
}

/// log2 of the elements of each ring.
const LOG2_RING: u8 = 8;
/// Elements of each ring.
const RING: u16 = 1 << LOG2_RING;
/// Completions that are taken before the card is told.
const BATCH: u16 = 64;
/// log2 of the entries of the completion queue: for all elements of both rings, and those that were taken and of which
/// the card has not been told.
const LOG2_COMPLETIONS: u32 = 10;
/// Entries of the completion queue.
const COMPLETIONS: u16 = 1 << LOG2_COMPLETIONS;
const _: () = assert!(2 * RING + BATCH <= COMPLETIONS);

/// Words of an element.
type Element = [u64; RAW_WQE_BYTES as usize / 8];
/// Words of a completion.
type Completion = [u32; CQE_BYTES as usize / 4];
/// Index of the word of a completion that has its phase.
const PHASE_WORD: usize = CQE_BYTES as usize / 4 - 1;

/// The card, for mappings. Many have a part in one reference.
#[derive(Clone)]
struct Dma(Arc<BoundRef>);

impl DmaDevice for Dma {
    fn device(&self) -> &device::Device<Bound> {
        (**self.0).as_ref()
    }
}

/// The element for ranges of memory.
fn element(opcode: u8, index: u16, ranges: &[Range]) -> Element {
    let mut wqe = RawWqe {
        opcode,
        num_sge: ranges.len() as u16,
        wr_id: u64::from(index),
        ..RawWqe::default()
    };
    for (sge, range) in wqe.sge.iter_mut().zip(ranges) {
        *sge = Sge {
            va: range.addr,
            len: range.bytes,
            reserved: 0,
        };
        wqe.length += range.bytes;
    }
    wqe.words()
}

/// A ring of elements, and the packets that are in it.
struct Ring<const N: usize> {
    elements: Coherent<[Element]>,
    packets: KVec<Option<Mapped<Dma, N>>>,
    /// Producer index.
    pi: u16,
    /// Index of the element that completes next.
    ci: u16,
    /// Producer index that the card was told last.
    rung: u16,
}

impl<const N: usize> Ring<N> {
    fn new(dma: &Dma) -> Result<Self> {
        let mut packets = KVec::with_capacity(usize::from(RING), GFP_KERNEL)?;
        for _ in 0..RING {
            packets.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            elements: Coherent::zeroed_slice(dma.device(), usize::from(RING), GFP_KERNEL)?,
            packets,
            pi: 0,
            ci: 0,
            rung: 0,
        })
    }

    fn is_full(&self) -> bool {
        self.pi.wrapping_sub(self.ci) == RING
    }

    /// Puts a packet into the ring, which is not full.
    fn put(&mut self, opcode: u8, packet: Mapped<Dma, N>) {
        let place = usize::from(self.pi % RING);
        let words = element(opcode, self.pi, packet.ranges());
        let write = || -> Result {
            io_project!(self.elements, [try: place]).copy_write(words);
            Ok(())
        };
        let _ = write();
        self.packets[place] = Some(packet);
        self.pi = self.pi.wrapping_add(1);
    }

    /// Takes the packet of the element that completes next; `None` if none is there.
    fn take(&mut self) -> Option<Mapped<Dma, N>> {
        if self.pi == self.ci {
            return None;
        }
        let packet = self.packets[usize::from(self.ci % RING)].take();
        self.ci = self.ci.wrapping_add(1);
        packet
    }

    /// The doorbell's value for what the card was not told yet; `None` if that is nothing.
    fn doorbell(&mut self) -> Option<u64> {
        let news = self.rung != self.pi;
        self.rung = self.pi;
        news.then(|| u64::from(QUEUE) | u64::from(self.pi) << 16)
    }
}

/// The completion queue.
struct Completions {
    cqn: u32,
    ring: Coherent<[Completion]>,
    ci: u16,
    /// Consumer index that the card was told last.
    told: u16,
}

impl Completions {
    /// The next completion, which stays.
    fn peek(&self) -> Option<Cqe> {
        let place = usize::from(self.ci % COMPLETIONS);
        let phase = if self.ci & COMPLETIONS == 0 { PHASE } else { 0 };
        let read = || -> Result<Option<Cqe>> {
            if io_read!(self.ring, [try: place][try: PHASE_WORD]) & PHASE != phase {
                return Ok(None);
            }
            // The card writes the word with the phase last.
            dma_mb(Read);
            let words: Completion = io_project!(self.ring, [try: place]).copy_read();
            Ok(Some(Cqe::from_words(&words)))
        };
        read().ok()?
    }

    /// The doorbell's value.
    fn doorbell(&mut self) -> u64 {
        self.told = self.ci;
        u64::from(self.cqn) | u64::from(self.ci) << 16
    }
}

/// What there is while the network device is open. The rings are dropped before the reference to the device.
#[pin_data]
pub(crate) struct Rings {
    /// The run of firmware that has them.
    pub(super) generation: u32,
    counts: Arc<Counts>,
    taker: Arc<Taker>,
    /// Bytes that a receive holds.
    receive_bytes: u32,
    #[pin]
    completions: SpinLock<Completions>,
    #[pin]
    send: SpinLock<Ring<RAW_SGES>>,
    #[pin]
    receive: SpinLock<Ring<1>>,
    doorbells: RegisterPage,
    dma: Dma,
}

/// A packet for the next frame that is received.
fn empty<T: Driver>(dev: &Device<T>, dma: &Dma, bytes: u32) -> Result<Mapped<Dma, 1>> {
    Mapped::from_device(dma, dev.alloc(bytes).ok_or(ENOMEM)?, bytes)
}

impl Rings {
    /// Makes the rings, and the raw queue of the card.
    pub(super) fn new<T: Driver>(
        dev: &Device<T>,
        card: &Arc<Card>,
        (counts, taker): (&Arc<Counts>, &Arc<Taker>),
        mtu: u32,
        flags: u8,
    ) -> Result<Pin<KBox<Self>>> {
        let (generation, cqn) = (card.generation(), cqn_of(card));
        let dma = Dma(Arc::pin_init(card.bound()?, GFP_KERNEL)?);
        let receive_bytes = mtu + HEADER_BYTES + TAG_BYTES;
        let mut receive = Ring::new(&dma)?;
        while !receive.is_full() {
            receive.put(OP_RECV, empty(dev, &dma, receive_bytes)?);
        }
        let posted = receive.doorbell();
        let send = Ring::new(&dma)?;
        let ring = Coherent::zeroed_slice(dma.device(), usize::from(COMPLETIONS), GFP_KERNEL)?;
        let doorbells = RegisterPage::new(card.bound()?, 2, 0)?;

        let make_cq = CqCreate {
            cqn,
            uar: 0,
            log2_entries: LOG2_COMPLETIONS,
            base: ring.dma_address(),
        };
        let make_queue = RawCreate {
            queue: QUEUE,
            log2_sq: LOG2_RING,
            log2_rq: LOG2_RING,
            flags,
            send_cqn: cqn as u16,
            recv_cqn: cqn as u16,
            sq_base: send.elements.dma_address(),
            rq_base: receive.elements.dma_address(),
        };
        let completions = Completions {
            cqn,
            ring,
            ci: 0,
            told: 0,
        };
        let this = KBox::try_pin_init(
            try_pin_init!(Rings {
                generation,
                counts: counts.clone(),
                taker: taker.clone(),
                receive_bytes,
                completions <- new_spinlock!(completions, "berth_net_completions"),
                send <- new_spinlock!(send, "berth_net_send"),
                receive <- new_spinlock!(receive, "berth_net_receive"),
                doorbells,
                dma,
            }? Error),
            GFP_KERNEL,
        )?;
        // From here on all memory is there until the card has nothing of it any more.
        card.call_for(generation, make_cq.encode())
            .inspect_err(|e| {
                card.end_dma_after(*e);
            })?;
        card.call_for(generation, make_queue.encode())
            .inspect_err(|e| {
                card.end_dma_after(*e);
                card.end_for_good(generation, CqDestroy { cqn }.encode());
            })?;
        // Frames that come before the first poll find receives.
        if let Some(value) = posted {
            this.doorbells.write64::<{ DB_RAW_RQ as usize }>(value);
        }
        Ok(this)
    }

    /// Takes the raw queue off the card, which has nothing of the rings' memory afterwards.
    pub(super) fn end(&self, card: &Arc<Card>) {
        card.end_for_good(self.generation, RawDestroy { queue: QUEUE }.encode());
        let cqn = cqn_of(card);
        card.end_for_good(self.generation, CqDestroy { cqn }.encode());
    }

    /// Sends a packet.
    pub(super) fn xmit<T: Driver>(&self, dev: &Device<T>, skb: SkBuff, more: bool) -> Xmit {
        let counts = &self.counts;
        let mut ring = self.send.lock();
        if ring.is_full() {
            return Xmit::Busy(skb);
        }
        match self.to_card(skb) {
            Ok(packet) => {
                packet.skb().note_sent();
                ring.put(OP_SEND, packet);
            }
            Err(_) => counts.add(Count::TxDropped, 1),
        }
        let full = ring.is_full();
        if full {
            // NAPI wakes it, under the same lock.
            dev.stop_queue();
            counts.add(Count::TxStopped, 1);
        }
        if full || !more {
            if let Some(value) = ring.doorbell() {
                self.doorbells.write64::<{ DB_RAW_SQ as usize }>(value);
            }
        }
        Xmit::Taken
    }

    /// Maps a packet for the card.
    fn to_card(&self, mut skb: SkBuff) -> Result<Mapped<Dma, RAW_SGES>> {
        if !(RAW_LEAST_BYTES..=RAW_FRAME_BYTES).contains(&skb.len()) {
            return Err(EMSGSIZE);
        }
        if skb.parts() > RAW_SGES as u32 {
            skb.linearize()?;
            self.counts.add(Count::TxCopied, 1);
        }
        Mapped::to_device(&self.dma, skb)
    }

    /// Takes the next completion, unless it is a receive and `receives` says that none is wanted.
    fn next(&self, receives: bool) -> Option<Cqe> {
        let mut queue = self.completions.lock();
        let cqe = queue.peek()?;
        if cqe.opcode == OP_RECV && !receives {
            return None;
        }
        queue.ci = queue.ci.wrapping_add(1);
        if queue.ci.wrapping_sub(queue.told) >= BATCH {
            self.doorbells
                .write64::<{ DB_CQ as usize }>(queue.doorbell());
        }
        Some(cqe)
    }

    /// Takes what has completed, up to the first receive for which there is no budget.
    pub(super) fn poll<T: Driver>(&self, dev: &Device<T>, poll: &mut Poll<'_, T>) {
        while let Some(cqe) = self.next(poll.may_receive()) {
            let known = match cqe.opcode {
                OP_SEND => self.sent(dev, poll, &cqe),
                OP_RECV => self.received(dev, poll, &cqe),
                _ => None,
            };
            if known.is_none() {
                self.counts.add(Count::BadCompletions, 1);
            }
        }
        self.doorbells
            .write64::<{ DB_CQ as usize }>(self.completions.lock().doorbell());
        if let Some(value) = self.receive.lock().doorbell() {
            self.doorbells.write64::<{ DB_RAW_RQ as usize }>(value);
        }
    }

    /// Has the card interrupt at the next completion, also if it is there by now.
    pub(super) fn arm(&self) {
        let value = self.completions.lock().doorbell() | 1 << 63;
        self.doorbells.write64::<{ DB_CQ as usize }>(value);
    }

    /// A send is complete; `None` if there is none.
    fn sent<T: Driver>(&self, dev: &Device<T>, poll: &Poll<'_, T>, cqe: &Cqe) -> Option<()> {
        let counts = &self.counts;
        let packet = {
            let mut ring = self.send.lock();
            let packet = ring.take()?;
            // With some room, so that it is not stopped again at once.
            if dev.is_queue_stopped() && ring.pi.wrapping_sub(ring.ci) <= RING / 2 {
                dev.wake_queue(poll);
            }
            packet
        };
        let skb = packet.unmap();
        if cqe.status == WC_OK {
            counts.add(Count::TxPackets, 1);
            counts.add(Count::TxBytes, u64::from(skb.len()));
        } else {
            counts.add(Count::TxFailed, 1);
        }
        poll.sent(skb);
        Some(())
    }

    /// A receive is complete; `None` if there is none.
    fn received<T: Driver>(
        &self,
        dev: &Device<T>,
        poll: &mut Poll<'_, T>,
        cqe: &Cqe,
    ) -> Option<()> {
        let counts = &self.counts;
        let filled = {
            let mut ring = self.receive.lock();
            let filled = ring.take()?;
            if cqe.status != WC_OK {
                counts.add(Count::RxFailed, 1);
                ring.put(OP_RECV, filled);
                return Some(());
            }
            match empty(dev, &self.dma, self.receive_bytes) {
                Ok(next) => ring.put(OP_RECV, next),
                Err(_) => {
                    counts.add(Count::RxNoMemory, 1);
                    ring.put(OP_RECV, filled);
                    return Some(());
                }
            }
            filled
        };
        let mut skb = filled.unmap();
        skb.put(cqe.byte_len).ok()?;
        counts.add(Count::RxPackets, 1);
        counts.add(Count::RxBytes, u64::from(cqe.byte_len));
        match self.taker.of(skb.linear()) {
            Some(taker) => {
                poll.note_received();
                taker.received(skb);
            }
            None => poll.receive(skb),
        }
        Some(())
    }
}
