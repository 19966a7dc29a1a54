// SPDX-License-Identifier: Apache-2.0 OR MIT
//! defmt's global logger: frames wait in a ring of bytes and travel to the driver as
//! `EV_LOG` events, `EVENT_LOG_BYTES` at a time, when the event ring has room.
//!
//! A frame for which the ring has no room is dropped whole, so that what the host
//! decodes never begins in mid-frame; its bytes are counted in `F_LOG_DROPPED`.

use berth_abi::counters::F_LOG_DROPPED;
use berth_abi::message::FwLog;
use berth_abi::ring::EVENT_LOG_BYTES;
use berth_soc::Soc;
use core::cell::UnsafeCell;

use crate::engines::write_event;

/// Bytes of the ring; a power of two.
const RING: usize = 8192;
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
    soc.clock.now() / u64::from(berth_abi::card::CLOCK_HZ / 1_000_000)
});

/// Sends what waits, as far as the event ring has room.
#[inline]
pub fn flush(soc: &mut Soc) {
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
