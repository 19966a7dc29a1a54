// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's memory, as its CPU and the card see it.

use berth_random::Rng;
#[cfg(feature = "card")]
use berth_rtl::{HostError, HostMemory};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The pages of `len` bytes from `addr` on; 0 bytes are one.
#[must_use]
pub fn pages(addr: u64, len: u64) -> Range<u64> {
    addr / PAGE..(addr + len.max(1)).div_ceil(PAGE)
}

/// What the card may do with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read it and write it.
    ReadWrite,
}

/// There is no page frame, or the card may not touch it.
#[derive(Debug)]
struct Missing;

struct Frame {
    data: Box<[u8; PAGE as usize]>,
    dma: Access,
}

struct Frames {
    frames: HashMap<u64, Frame>,
    rng: Rng,
    interrupts: u32,
    violations: Vec<(u64, bool)>,
    reads: Option<Vec<u64>>,
}

impl Frames {
    fn access(&mut self, addr: u64, len: usize, mut each: impl FnMut(&mut [u8], usize)) -> Result<(), Missing> {
        let mut done = 0;
        while done < len {
            let at = addr + done as u64;
            let n = ((PAGE - at % PAGE) as usize).min(len - done);
            let frame = self.frames.get_mut(&(at / PAGE)).ok_or(Missing)?;
            each(&mut frame.data[(at % PAGE) as usize..][..n], done);
            done += n;
        }
        Ok(())
    }

    #[cfg(feature = "card")]
    fn check(&mut self, addr: u64, len: usize, write: bool) -> Result<(), Missing> {
        let may = |dma| if write { dma == Access::ReadWrite } else { dma != Access::None };
        if pages(addr, len as u64).all(|page| self.frames.get(&page).is_some_and(|f| may(f.dma))) {
            return Ok(());
        }
        self.violations.push((addr, write));
        Err(Missing)
    }
}

/// Page frames at bus addresses. A clone is the same memory; one of them is the card's, whose DMA reaches what it may.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<Frames>>);

impl Memory {
    /// Without page frames; `seed` says where [`Memory::alloc`] finds some.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (rng, frames) = (Rng(seed ^ 0x6d65_6d6f), HashMap::new());
        Self(Arc::new(Mutex::new(Frames { frames, rng, interrupts: 0, violations: Vec::new(), reads: None })))
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts page frames with these bytes at a bus address, a multiple of [`PAGE`]; the last one is filled with zeros.
    pub fn map(&self, addr: u64, bytes: &[u8], dma: Access) {
        let mut memory = self.lock();
        for (page, bytes) in (addr / PAGE..).zip(bytes.chunks(PAGE as usize)) {
            let mut data = Box::new([0; PAGE as usize]);
            data[..bytes.len()].copy_from_slice(bytes);
            memory.frames.insert(page, Frame { data, dma });
        }
    }

    /// Allocates `pages` contiguous page frames of zeros, above 4 GiB and in no order; gives the first one's bus address.
    pub fn alloc(&self, pages: u64, dma: Access) -> u64 {
        let mut memory = self.lock();
        let first = loop {
            let first = 0x10_0000 + memory.rng.below(1 << 24) * pages.next_power_of_two();
            if !(first..first + pages).any(|f| memory.frames.contains_key(&f)) {
                break first;
            }
        };
        drop(memory);
        self.map(first * PAGE, &vec![0; (pages * PAGE) as usize], dma);
        first * PAGE
    }

    /// Says what the card may do with the page frame at a bus address from now on. There must be one.
    pub fn set_dma(&self, addr: u64, dma: Access) {
        self.lock().frames.get_mut(&(addr / PAGE)).expect("frame of a page").dma = dma;
    }

    /// Reads `len` bytes at a bus address, as the CPU does. Panics where nothing is.
    #[must_use]
    pub fn peek(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len);
        self.lock().access(addr, len, |m, _| out.extend_from_slice(m)).expect("allocated memory");
        out
    }

    /// Reads little-endian words at a bus address, a multiple of 4, as the CPU does. Panics where nothing is.
    #[must_use]
    pub fn words<const N: usize>(&self, addr: u64) -> [u32; N] {
        let mut words = [0; N];
        let mut each = |m: &mut [u8], at: usize| {
            words[at / 4..].iter_mut().zip(m.as_chunks().0).for_each(|(word, b)| *word = u32::from_le_bytes(*b));
        };
        self.lock().access(addr, 4 * N, &mut each).expect("allocated memory");
        words
    }

    /// Writes bytes at a bus address, as the CPU does. Panics where nothing is.
    pub fn poke(&self, addr: u64, data: &[u8]) {
        self.lock()
            .access(addr, data.len(), |m, at| m.copy_from_slice(&data[at..at + m.len()]))
            .expect("allocated memory");
    }

    /// Interrupts so far. The card has one vector.
    #[must_use]
    pub fn interrupts(&self) -> u32 {
        self.lock().interrupts
    }

    /// DMA to what the card may not touch (invariant 4): address, and whether it wrote.
    #[must_use]
    pub fn violations(&self) -> Vec<(u64, bool)> {
        self.lock().violations.clone()
    }

    /// From now on the addresses of the card's reads are kept; those so far are not.
    pub fn log_reads(&self) {
        self.lock().reads = Some(Vec::new());
    }

    /// Addresses of the card's reads since [`Memory::log_reads`].
    #[must_use]
    pub fn reads(&self) -> Vec<u64> {
        self.lock().reads.clone().unwrap_or_default()
    }
}

#[cfg(feature = "card")]
impl From<Missing> for HostError {
    fn from(_: Missing) -> Self {
        Self
    }
}

#[cfg(feature = "card")]
impl HostMemory for Memory {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError> {
        let mut memory = self.lock();
        memory.reads.iter_mut().for_each(|reads| reads.push(addr));
        memory.check(addr, buf.len(), false)?;
        Ok(memory.access(addr, buf.len(), |m, at| buf[at..at + m.len()].copy_from_slice(m))?)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError> {
        let mut memory = self.lock();
        memory.check(addr, data.len(), true)?;
        Ok(memory.access(addr, data.len(), |m, at| m.copy_from_slice(&data[at..at + m.len()]))?)
    }

    fn msix(&mut self, vector: u32) {
        assert_eq!(vector, 0, "one vector");
        self.lock().interrupts += 1;
    }
}
