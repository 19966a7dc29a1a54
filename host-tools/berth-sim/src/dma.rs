// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's view of host memory: which bus addresses lead to which guest memory.

use crate::guest_memory::GuestMemory;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a write pauses so that a guest can see it in part.
const PAUSE: Duration = Duration::from_millis(1);

/// Why a DMA access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// No (usable) mapping covers the address.
    #[error("no mapping at this bus address")]
    Unmapped,
    /// The mapping is read-only.
    #[error("mapping is read-only")]
    ReadOnly,
    /// The card has been unplugged.
    #[error("card is unplugged")]
    Unplugged,
    /// The card may not begin accesses: bus mastering is off in its configuration space.
    #[error("bus mastering is off")]
    NoBusMaster,
}

/// Counters of the host port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaStats {
    /// Reads that were served.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes that were served.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Accesses refused: no mapping, no file behind it, read-only, unplugged, or bus mastering off.
    pub errors: u64,
    /// Those of them that were refused because bus mastering was off.
    pub no_bus_master: u64,
    /// Those of them that went to an address without mapping, or wrote where only reading is allowed: with an IOMMU before
    /// the card that is all that the driver has not mapped for it.
    pub unmapped: u64,
    /// Mappings that came.
    pub maps: u64,
    /// Mappings that came without usable memory behind them (no file descriptor, or it cannot be mapped).
    pub maps_without_memory: u64,
    /// Unmap requests.
    pub unmaps: u64,
}

#[derive(Clone, Debug)]
struct Interval {
    // First byte after the interval, minus one: the address space may end at 2^64.
    last: u64,
    memory: Option<Arc<GuestMemory>>,
    // Offset in `memory` of the interval's first byte.
    offset: u64,
}

/// Map from bus addresses to guest memory.
///
/// Invariant: intervals do not overlap.
#[derive(Debug, Default)]
pub struct DmaSpace {
    intervals: BTreeMap<u64, Interval>,
    unplugged: bool,
    no_bus_master: bool,
    // Of so many writes one pauses; 0: none.
    split_writes: u64,
    stats: DmaStats,
}

impl DmaSpace {
    /// Counters.
    pub fn stats(&self) -> DmaStats {
        self.stats
    }

    /// Mappings that exist.
    pub fn len(&self) -> usize {
        self.intervals.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// An unplugged card reaches no memory.
    pub fn set_unplugged(&mut self, unplugged: bool) {
        self.unplugged = unplugged;
    }

    /// Whether the card may begin accesses, as its configuration space says. In the beginning it may.
    pub fn set_bus_master(&mut self, on: bool) {
        self.no_bus_master = !on;
    }

    /// One write in `every` pauses for a millisecond after its first 8 bytes (0: none), so that a host that looks
    /// meanwhile sees it in part. Nothing on the bus promises that a write is seen as a whole, only that its bytes are
    /// seen in rising order.
    pub fn set_split_writes(&mut self, every: u64) {
        self.split_writes = every;
    }

    /// Bus addresses `address .. address + len` lead to `memory` (from its start); `None` marks a mapping that the card
    /// cannot reach. Earlier mappings there are replaced. A `len` of 0, or a range beyond 2^64, maps nothing and
    /// returns false.
    pub fn map(&mut self, address: u64, len: u64, memory: Option<Arc<GuestMemory>>) -> bool {
        let Some(last) = len.checked_sub(1).and_then(|l| address.checked_add(l)) else { return false };
        self.cut(address, last);
        self.stats.maps += 1;
        self.stats.maps_without_memory += u64::from(memory.is_none());
        self.intervals.insert(address, Interval { last, memory, offset: 0 });
        true
    }

    /// Removes mappings in `address .. address + len`.
    pub fn unmap(&mut self, address: u64, len: u64) {
        self.stats.unmaps += 1;
        if let Some(l) = len.checked_sub(1) {
            self.cut(address, address.saturating_add(l));
        }
    }

    /// Removes everything.
    pub fn unmap_all(&mut self) {
        self.stats.unmaps += 1;
        self.intervals.clear();
    }

    fn cut(&mut self, first: u64, last: u64) {
        let start = self.intervals.range(..first).next_back().map_or(first, |(&s, _)| s);
        let hit: Vec<u64> =
            self.intervals.range(start..=last).filter(|(_, i)| i.last >= first).map(|(&s, _)| s).collect();
        for s in hit {
            let whole = self.intervals.remove(&s).expect("taken from the same map");
            if s < first {
                self.intervals.insert(s, Interval { last: first - 1, ..whole.clone() });
            }
            if whole.last > last {
                let offset = whole.offset + (last + 1 - s);
                self.intervals.insert(last + 1, Interval { offset, ..whole });
            }
        }
    }

    // Calls `part(memory, offset, range of the access)` for each interval that the access touches.
    fn access(
        &self,
        address: u64,
        len: usize,
        mut part: impl FnMut(&GuestMemory, u64, std::ops::Range<usize>) -> Result<(), DmaError>,
    ) -> Result<(), DmaError> {
        if self.unplugged {
            return Err(DmaError::Unplugged);
        }
        if self.no_bus_master {
            return Err(DmaError::NoBusMaster);
        }
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64).ok_or(DmaError::Unmapped)?;
            let (&start, i) = self.intervals.range(..=at).next_back().ok_or(DmaError::Unmapped)?;
            if i.last < at {
                return Err(DmaError::Unmapped);
            }
            let memory = i.memory.as_ref().ok_or(DmaError::Unmapped)?;
            let room = usize::try_from(i.last - at).unwrap_or(usize::MAX).saturating_add(1);
            let n = room.min(len - done);
            part(memory, i.offset + (at - start), done..done + n)?;
            done += n;
        }
        Ok(())
    }

    fn refused(&mut self, why: DmaError) {
        self.stats.errors += 1;
        self.stats.no_bus_master += u64::from(why == DmaError::NoBusMaster);
        self.stats.unmapped += u64::from(matches!(why, DmaError::Unmapped | DmaError::ReadOnly));
    }

    /// DMA read.
    ///
    /// # Errors
    /// [`DmaError`]; `buf` is then partly or not at all written.
    pub fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let len = buf.len();
        let result =
            self.access(
                address,
                len,
                |m, offset, range| {
                    if m.read(offset, &mut buf[range]) { Ok(()) } else { Err(DmaError::Unmapped) }
                },
            );
        match result {
            Ok(()) => {
                self.stats.reads += 1;
                self.stats.read_bytes += len as u64;
            }
            Err(why) => self.refused(why),
        }
        result
    }

    /// DMA write.
    ///
    /// # Errors
    /// [`DmaError`]; nothing is then written.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DmaError> {
        let check =
            self.access(address, data.len(), |m, _, _| if m.writable() { Ok(()) } else { Err(DmaError::ReadOnly) });
        let first = if self.split_writes != 0 && self.stats.writes.is_multiple_of(self.split_writes) { 8 } else { 0 };
        let result = check.and_then(|()| {
            self.access(address, data.len(), |m, offset, range| {
                let (head, tail) = data[range.clone()].split_at(first.min(range.len()));
                if !m.write(offset, head) {
                    return Err(DmaError::Unmapped);
                }
                if !head.is_empty() && !tail.is_empty() {
                    std::thread::sleep(PAUSE);
                }
                if m.write(offset + head.len() as u64, tail) { Ok(()) } else { Err(DmaError::Unmapped) }
            })
        });
        match result {
            Ok(()) => {
                self.stats.writes += 1;
                self.stats.write_bytes += data.len() as u64;
            }
            Err(why) => self.refused(why),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: u64, writable: bool) -> Arc<GuestMemory> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        Arc::new(GuestMemory::map(&file, 0, len, writable).unwrap())
    }

    #[test]
    fn bytes_written_are_read_back_at_any_alignment() {
        let mut s = DmaSpace::default();
        assert!(s.map(0x1000, 0x2000, Some(memory(0x2000, true))));
        for start in 0..9u64 {
            for len in 0..30usize {
                let data: Vec<u8> = (0..len).map(|i| (i as u8) ^ (start as u8) ^ 0x5a).collect();
                s.write(0x1100 + start, &data).unwrap();
                let mut back = vec![0; len];
                s.read(0x1100 + start, &mut back).unwrap();
                assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn a_write_that_pauses_is_seen_in_part_and_then_whole() {
        let (mut s, m) = (DmaSpace::default(), memory(0x1000, true));
        s.map(0, 0x1000, Some(m.clone()));
        s.set_split_writes(2);
        let seen = std::thread::spawn(move || {
            // Half of it, and still half of it at the next look.
            let (mut before, mut now) = ([0; 16], [0; 16]);
            while now != before || now[0] == now[8] {
                before = now;
                assert!(m.read(0, &mut now));
            }
        });
        let mut n = 0;
        while !seen.is_finished() {
            n = (n + 1) % 100;
            s.write(0, &[n; 16]).unwrap();
            let mut whole = [0; 16];
            s.read(0, &mut whole).unwrap();
            assert_eq!(whole, [n; 16]);
        }
        seen.join().unwrap();
    }

    #[test]
    fn access_across_neighbouring_mappings_works() {
        let mut s = DmaSpace::default();
        let (m, n) = (memory(0x1000, true), memory(0x1000, true));
        s.map(0x1000, 0x1000, Some(m));
        s.map(0x2000, 0x1000, Some(n.clone()));
        s.write(0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let mut tail = [0; 4];
        assert!(n.read(0, &mut tail));
        assert_eq!(tail, [5, 6, 7, 8]);
    }

    #[test]
    fn access_outside_of_mappings_is_refused_and_counted() {
        let mut s = DmaSpace::default();
        s.map(0x1000, 0x1000, Some(memory(0x1000, true)));
        let mut b = [0; 16];
        assert_eq!(s.read(0xff8, &mut b), Err(DmaError::Unmapped));
        assert_eq!(s.read(0x1ff8, &mut b), Err(DmaError::Unmapped));
        assert_eq!(s.read(u64::MAX - 3, &mut b), Err(DmaError::Unmapped));
        assert_eq!(s.write(0x1ff8, &b), Err(DmaError::Unmapped));
        assert_eq!((s.stats().errors, s.stats().unmapped), (4, 4));
    }

    #[test]
    fn a_refused_write_leaves_no_part_of_it() {
        let mut s = DmaSpace::default();
        s.map(0x1000, 0x1000, Some(memory(0x1000, true)));
        s.map(0x2000, 0x1000, Some(memory(0x1000, false)));
        assert_eq!(s.write(0x1ffc, &[0xff; 8]), Err(DmaError::ReadOnly));
        let mut b = [1; 8];
        s.read(0x1ffc, &mut b).unwrap();
        assert_eq!(b, [0; 8]);
    }

    #[test]
    fn a_mapping_without_memory_is_an_error_not_a_crash() {
        let mut s = DmaSpace::default();
        s.map(0, 0x1000, None);
        assert_eq!(s.read(0, &mut [0; 4]), Err(DmaError::Unmapped));
        assert_eq!(s.stats().maps_without_memory, 1);
    }

    #[test]
    fn unmap_cuts_mappings_apart() {
        let mut s = DmaSpace::default();
        let m = memory(0x4000, true);
        s.map(0x10_000, 0x4000, Some(m.clone()));
        assert!(m.write(0x3000, b"tail"));
        s.unmap(0x11_000, 0x1000);
        let mut b = [0; 4];
        assert!(s.read(0x10_ffc, &mut b).is_ok());
        assert!(s.read(0x11_000, &mut b).is_err());
        assert!(s.read(0x11_ffc, &mut b).is_err());
        s.read(0x13_000, &mut b).unwrap();
        assert_eq!(&b, b"tail");
        s.unmap_all();
        assert!(s.is_empty() && s.read(0x13_000, &mut b).is_err());
    }

    #[test]
    fn a_mapping_over_another_replaces_it() {
        let mut s = DmaSpace::default();
        let (m, n) = (memory(0x3000, true), memory(0x1000, true));
        assert!(n.write(0, b"new!"));
        s.map(0, 0x3000, Some(m));
        s.map(0x1000, 0x1000, Some(n));
        let mut b = [0; 4];
        s.read(0x1000, &mut b).unwrap();
        assert_eq!((&b, s.len()), (b"new!", 3));
    }

    #[test]
    fn the_last_byte_of_the_address_space_can_be_mapped() {
        let mut s = DmaSpace::default();
        assert!(s.map(u64::MAX - 0xfff, 0x1000, Some(memory(0x1000, true))));
        assert!(!s.map(u64::MAX - 0xfff, 0x1001, None));
        assert!(!s.map(0, 0, None));
        s.write(u64::MAX - 7, &[7; 8]).unwrap();
        s.unmap(u64::MAX - 0xfff, 0x1000);
        assert!(s.is_empty());
    }

    #[test]
    fn a_card_that_is_no_bus_master_reaches_nothing_and_that_is_counted() {
        let mut s = DmaSpace::default();
        s.map(0, 0x1000, Some(memory(0x1000, true)));
        s.set_bus_master(false);
        assert_eq!(s.read(0, &mut [0; 4]), Err(DmaError::NoBusMaster));
        assert_eq!(s.write(0, &[1; 4]), Err(DmaError::NoBusMaster));
        s.set_bus_master(true);
        let mut b = [1; 4];
        s.read(0, &mut b).unwrap();
        assert_eq!((b, s.stats().errors, s.stats().no_bus_master, s.stats().unmapped), ([0; 4], 2, 2, 0));
    }

    #[test]
    fn an_unplugged_card_reaches_nothing() {
        let mut s = DmaSpace::default();
        s.map(0, 0x1000, Some(memory(0x1000, true)));
        s.set_unplugged(true);
        assert_eq!(s.read(0, &mut [0; 4]), Err(DmaError::Unplugged));
        assert_eq!(s.write(0, &[0; 4]), Err(DmaError::Unplugged));
    }
}
