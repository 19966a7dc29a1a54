// SPDX-License-Identifier: Apache-2.0 OR MIT
//! defmt's global logger: frames wait in a ring of bytes and travel to the driver as
//! `EV_LOG` events, `EVENT_LOG_BYTES` at a time, when the event ring has room.
//!
//! A frame for which the ring has no room is dropped whole, so that what the host
//! decodes never begins in mid-frame; its bytes are counted in `F_LOG_DROPPED`.

use berth_abi::card::CLOCK_HZ;
use berth_abi::counters::F_LOG_DROPPED;
use berth_abi::message::FwLog;
use berth_abi::ring::EVENT_LOG_BYTES;
use berth_protocol::card::hw::Log;
use berth_soc::Soc;
use core::cell::UnsafeCell;
use heapless::Deque;

use crate::engines::write_event;

/// Bytes of the ring; a power of two.
const RING: usize = 8192;
/// Lines that wait to be written.
const LINES: usize = 16;
/// Event entries that logging leaves to others.
const SPARE_ENTRIES: u32 = 4;

struct Ring {
    bytes: [u8; RING],
    /// Next byte to send; both count freely.
    head: usize,
    /// End of the frames that are complete.
    tail: usize,
    /// End of the frame being written.
    draft: usize,
    /// The frame being written did not fit.
    overflow: bool,
    dropped: u32,
    encoder: defmt::Encoder,
}

impl Ring {
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > RING - self.draft.wrapping_sub(self.head) {
            self.overflow = true;
        }
        if self.overflow {
            self.dropped = self.dropped.saturating_add(bytes.len() as u32);
            return;
        }
        for &b in bytes {
            self.bytes[self.draft % RING] = b;
            self.draft = self.draft.wrapping_add(1);
        }
    }

    fn begin(&mut self) {
        self.draft = self.tail;
        self.overflow = false;
    }

    fn end(&mut self) {
        if self.overflow {
            self.dropped = self.dropped.saturating_add(self.draft.wrapping_sub(self.tail) as u32);
        } else {
            self.tail = self.draft;
        }
    }
}

struct Shared(UnsafeCell<Ring>);
// SAFETY: one hart, no interrupts: two users cannot meet, and no user calls another.
unsafe impl Sync for Shared {}

static LOG: Shared = Shared(UnsafeCell::new(Ring {
    bytes: [0; RING],
    head: 0,
    tail: 0,
    draft: 0,
    overflow: false,
    dropped: 0,
    encoder: defmt::Encoder::new(),
}));

#[defmt::global_logger]
struct Logger;

// SAFETY: acquire to release is not interrupted (no interrupts, one hart), and defmt's
// macros do not nest.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        // SAFETY: see the impl: the only reference now.
        let ring = unsafe { &mut *LOG.0.get() };
        ring.begin();
        // The encoder is a small plain value; a copy out and in lets its callback borrow the ring.
        let mut encoder = core::mem::replace(&mut ring.encoder, defmt::Encoder::new());
        encoder.start_frame(|bytes| ring.put(bytes));
        ring.encoder = encoder;
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: see the impl: the only reference now.
        let ring = unsafe { &mut *LOG.0.get() };
        let mut encoder = core::mem::replace(&mut ring.encoder, defmt::Encoder::new());
        encoder.end_frame(|bytes| ring.put(bytes));
        ring.encoder = encoder;
        ring.end();
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: see the impl: the only reference now.
        let ring = unsafe { &mut *LOG.0.get() };
        let mut encoder = core::mem::replace(&mut ring.encoder, defmt::Encoder::new());
        encoder.write(bytes, |bytes| ring.put(bytes));
        ring.encoder = encoder;
    }
}

defmt::timestamp!("{=u64:us}", {
    // SAFETY: reads the cycle counter only, whose two registers nobody is in the middle of
    // reading: log statements do not interrupt.
    let soc = unsafe { Soc::steal() };
    microseconds(soc.clock.now())
});

/// `cycles` of the card in microseconds. By halves of words, because the core has no division of 64 bits, and the
/// compiler's takes longer than the rest of a line.
fn microseconds(cycles: u64) -> u64 {
    const PER: u32 = CLOCK_HZ / 1_000_000;
    const _: () = assert!(PER > 0 && PER <= 1 << 16);
    let (high, low) = ((cycles >> 32) as u32, cycles as u32);
    let middle = (high % PER) << 16 | low >> 16;
    let last = (middle % PER) << 16 | low & 0xffff;
    u64::from(high / PER) << 32 | u64::from(middle / PER) << 16 | u64::from(last / PER)
}

struct Lines(UnsafeCell<Deque<Log, LINES>>);
// SAFETY: one hart, no interrupts: two users cannot meet, and no user calls another.
unsafe impl Sync for Lines {}

static WAITING: Lines = Lines(UnsafeCell::new(Deque::new()));

/// Keeps a line until [`flush`]: to write one takes as long as much of what somebody waits for. When there is no room,
/// the oldest one is written now.
#[inline(never)]
pub fn later(line: Log) {
    // SAFETY: called from the protocol, never from inside the logger; the reference is gone before one is written.
    let oldest = unsafe {
        let lines = &mut *WAITING.0.get();
        let oldest = if lines.is_full() { lines.pop_front() } else { None };
        _ = lines.push_back(line);
        oldest
    };
    if let Some(line) = oldest {
        write(line);
    }
}

/// Writes the lines that wait.
#[cold]
#[inline(never)]
fn write_lines() {
    // SAFETY: as in `later`.
    while let Some(line) = unsafe { (*WAITING.0.get()).pop_front() } {
        write(line);
    }
}

#[inline(never)]
fn write(line: Log) {
    match line {
        Log::NetConfig(ip, mtu) => defmt::info!("name {=[u8]}, MTU {=u32}", ip.to_be_bytes(), mtu),
        Log::Connected(qpn, ip, peer) => {
            defmt::info!("QP {=u32}: connected to {=[u8]} QP {=u32}", qpn, ip.to_be_bytes(), peer)
        }
        Log::Closed(qpn, reason) => defmt::info!("QP {=u32}: connection over, reason {=u32}", qpn, reason),
        Log::QpError(qpn, reason) => defmt::warn!("QP {=u32}: error, reason {=u32}", qpn, reason),
        Log::PeerLost(ip) => defmt::warn!("peer {=[u8]} does not answer", ip.to_be_bytes()),
        Log::AddressConflict(mac) => {
            defmt::warn!("another host has our address: MAC {=u32:x} {=u16:x}, first byte last", mac.0, mac.1)
        }
        Log::PeerRestarted(ip) => defmt::warn!("peer {=[u8]} has been restarted", ip.to_be_bytes()),
        Log::Resend(qpn, psn) => defmt::info!("QP {=u32}: time-out, back to PSN {=u32}", qpn, psn),
        Log::Recall(qpn, n) => defmt::info!("QP {=u32}: {=u32} credits recalled", qpn, n),
        Log::ListRefused(qpn, why) => defmt::warn!("QP {=u32}: credit list refused, {=u32}", qpn, why),
    }
}

/// Writes and sends the lines that wait, as far as the event ring has room.
#[inline]
pub fn flush(soc: &mut Soc) {
    // SAFETY: called from the main loop, never from inside the logger.
    if unsafe { !(*WAITING.0.get()).is_empty() } {
        write_lines();
    }
    send_written(soc);
}

/// Sends what is written, as far as the event ring has room; writes nothing, so that it cannot panic.
#[inline]
pub fn send_written(soc: &mut Soc) {
    // SAFETY: called from the main loop or the panic handler, never from inside the logger.
    let ring = unsafe { &mut *LOG.0.get() };
    if ring.head != ring.tail || ring.dropped != 0 {
        send(ring, soc);
    }
}

#[cold]
#[inline(never)]
fn send(ring: &mut Ring, soc: &mut Soc) {
    if ring.dropped != 0 {
        soc.stats.add(F_LOG_DROPPED, ring.dropped);
        ring.dropped = 0;
    }
    while ring.head != ring.tail && soc.regs.ev_space.read() > SPARE_ENTRIES {
        let n = ring.tail.wrapping_sub(ring.head).min(EVENT_LOG_BYTES);
        let mut log = FwLog { len: n as u32, ..FwLog::default() };
        for at in 0..n {
            let byte = ring.bytes[ring.head.wrapping_add(at) % RING];
            if let Some(word) = log.data.get_mut(at / 4) {
                *word |= u32::from(byte) << (8 * (at % 4));
            }
        }
        write_event(soc, &log.encode());
        ring.head = ring.head.wrapping_add(n);
    }
}
