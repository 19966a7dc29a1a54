// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vfio-user side of a card: what QEMU, or another client of the socket, talks to.
//!
//! Nothing here returns an error to the client, because the reply would carry no reason
//! and the guest would see a broken device: a bad access reads all-ones, writes nothing,
//! and is counted (invariant 6).

use crate::dma::DmaSpace;
use crate::guest_memory::GuestMemory;
use crate::link::{Link, Request};
use crate::pci::{BAR4_SIZE, CONFIG_SIZE, ConfigSpace, MSIX_VECTORS, PBA_OFFSET};
use berth_abi::card::{BAR0_SIZE, BAR2_SIZE};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::mem::size_of;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{debug, error, info, warn};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX, VFIO_PCI_BAR4_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

/// The card's interrupts: an eventfd per MSI-X vector.
#[derive(Debug, Default)]
pub struct Interrupts {
    vectors: Mutex<Vectors>,
    raised: AtomicU64,
    bad: AtomicU64,
}

#[derive(Debug, Default)]
struct Vectors {
    each: [Vector; MSIX_VECTORS],
    // All of them wait: masked together, or bus mastering is off.
    held: bool,
}

#[derive(Debug, Default)]
struct Vector {
    eventfd: Option<File>,
    masked: bool,
    // Raised while it was masked or had no eventfd: delivered once when that is over.
    pending: bool,
}

impl Interrupts {
    /// Raises `vector`; one that the card does not have is counted.
    pub fn raise(&self, vector: u32) {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let held = vectors.held;
        let Some(v) = vectors.each.get_mut(vector as usize) else {
            self.bad.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.raised.fetch_add(1, Ordering::Relaxed);
        v.pending = true;
        v.deliver(held);
    }

    // Takes over the state of the MSI-X table and the configuration space: vectors that are masked, and whether all
    // wait.
    fn mask(&self, masked: impl Fn(usize) -> bool, held: bool) {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        vectors.held = held;
        for (n, v) in vectors.each.iter_mut().enumerate() {
            v.masked = masked(n);
            v.deliver(held);
        }
    }

    // A bit for each vector that waits, as in the pending-bit array.
    fn pending(&self) -> u32 {
        let vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        vectors.each.iter().enumerate().map(|(n, v)| u32::from(v.pending) << n).sum()
    }

    // A reset: nothing is pending any more.
    fn forget(&self) {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        vectors.each.iter_mut().for_each(|v| v.pending = false);
    }

    fn connect(&self, first: u32, eventfds: Vec<Option<File>>) {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let held = vectors.held;
        for (v, eventfd) in vectors.each.iter_mut().skip(first as usize).zip(eventfds) {
            v.eventfd = eventfd;
            v.deliver(held);
        }
    }

    fn disconnect(&self) {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        for v in &mut vectors.each {
            (v.eventfd, v.pending) = (None, false);
        }
    }
}

impl Vector {
    fn deliver(&mut self, held: bool) {
        if let (true, Some(fd)) = (self.pending && !self.masked && !held, &self.eventfd) {
            self.pending = false;
            // An eventfd only refuses when its 64-bit count is full, and then the client knows already.
            if let Err(e) = (&mut &*fd).write_all(&1u64.to_ne_bytes()) {
                debug!("eventfd: {e}");
            }
        }
    }
}

/// The state of a card that the socket's thread, the card's thread and the control socket share.
#[derive(Debug)]
pub struct Slot {
    /// Name of the card: a, b, …
    pub name: String,
    /// Its wire.
    pub link: Arc<Link>,
    /// Its end of the wire.
    pub end: usize,
    /// Host memory as it sees it.
    pub dma: Arc<Mutex<DmaSpace>>,
    /// Its interrupts.
    pub interrupts: Arc<Interrupts>,
    unplugged: AtomicBool,
    bad_accesses: AtomicU64,
    clients: AtomicU64,
}

impl Slot {
    /// A slot for a card at end `end` of `link`.
    pub fn new(name: &str, link: Arc<Link>, end: usize) -> Self {
        Self {
            name: name.into(),
            link,
            end,
            dma: Arc::default(),
            interrupts: Arc::default(),
            unplugged: AtomicBool::new(false),
            bad_accesses: AtomicU64::new(0),
            clients: AtomicU64::new(0),
        }
    }

    /// Sends a request to the card's thread; the answer comes through the receiver.
    pub fn ask<T>(&self, request: impl FnOnce(std::sync::mpsc::SyncSender<T>) -> Request) -> Receiver<T> {
        let (sender, receiver) = sync_channel(1);
        self.link.request(self.end, request(sender));
        receiver
    }

    /// Takes the card off the bus and the wire, or puts it back.
    pub fn unplug(&self, off: bool) {
        if off {
            self.unplugged.store(true, Ordering::SeqCst);
        }
        // Without an answer the simulator is ending.
        let _ = self.ask(|reply| Request::Unplug { off, reply }).recv();
        if !off {
            self.unplugged.store(false, Ordering::SeqCst);
        }
    }

    /// Makes the card hang, or go on.
    pub fn stall(&self, on: bool) {
        // Without an answer the simulator is ending.
        let _ = self.ask(|reply| Request::Stall { on, reply }).recv();
    }

    /// Statistics of the card, its socket included.
    pub fn report(&self) -> Value {
        let card = self.ask(|reply| Request::Report { reply }).recv().unwrap_or(Value::Null);
        self.complete(card)
    }

    /// Adds the figures of the socket's thread to the statistics of the card's thread.
    pub fn complete(&self, mut card: Value) -> Value {
        if let Value::Object(map) = &mut card {
            let mut add = |key: &str, value: Value| map.insert(key.into(), value);
            add("interrupts", json!(self.interrupts.raised.load(Ordering::Relaxed)));
            add("bad_vectors", json!(self.interrupts.bad.load(Ordering::Relaxed)));
            add("bad_accesses", json!(self.bad_accesses.load(Ordering::Relaxed)));
            add("clients", json!(self.clients.load(Ordering::Relaxed)));
            add("unplugged", json!(self.unplugged.load(Ordering::Relaxed)));
        }
        card
    }
}

/// The backend of one card's socket.
pub struct Device {
    slot: Arc<Slot>,
    config: ConfigSpace,
    bar4: Vec<u8>,
    /// Device Control as the card knows it.
    told: Option<u16>,
}

impl Device {
    /// A device as after power-on.
    pub fn new(slot: Arc<Slot>) -> Self {
        let mut device = Self { slot, config: ConfigSpace::new(), bar4: vec![0; BAR4_SIZE as usize], told: None };
        device.follow_config();
        device
    }

    // Lets the card do what its configuration space and its MSI-X table allow.
    fn follow_config(&mut self) {
        let control = self.config.device_control();
        if self.told != Some(control) {
            self.told = Some(control);
            self.slot.link.request(self.slot.end, Request::DeviceControl { control });
        }
        let on = self.config.bus_master();
        self.slot.dma.lock().unwrap_or_else(PoisonError::into_inner).set_bus_master(on);
        // Bit 0 of a vector's control word.
        let masked = |n: usize| self.bar4[16 * n + 12] & 1 != 0;
        self.slot.interrupts.mask(masked, !on || self.config.msix_masked());
    }

    fn bad_access(&self, region: u32, offset: u64, len: usize) {
        self.slot.bad_accesses.fetch_add(1, Ordering::Relaxed);
        debug!(card = self.slot.name, region, offset, len, "bad access");
    }

    fn unplugged(&self) -> bool {
        self.slot.unplugged.load(Ordering::SeqCst)
    }

    // BAR 0 or 2, if the access lies in it and is one that the bus can carry.
    fn bar(region: u32, offset: u64, len: usize) -> Option<u32> {
        let (bar, size) = match region {
            VFIO_PCI_BAR0_REGION_INDEX => (0, BAR0_SIZE),
            VFIO_PCI_BAR2_REGION_INDEX => (2, BAR2_SIZE),
            _ => return None,
        };
        let whole = matches!(len, 1 | 2 | 4 | 8) && offset.is_multiple_of(len as u64);
        (whole && offset.checked_add(len as u64)? <= u64::from(size)).then_some(bar)
    }

    fn bar4(&self, offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bar4.len()).then_some(start..end)
    }

    fn wait(&self, receiver: &Receiver<()>) {
        if receiver.recv().is_err() {
            debug!(card = self.slot.name, "the card's thread has ended");
        }
    }

    fn reset_card(&mut self) {
        if !self.unplugged() {
            self.wait(&self.slot.ask(|reply| Request::Reset { reply }));
        }
    }

    // The client has gone: power off.
    fn power_off(&mut self) {
        self.slot.interrupts.disconnect();
        self.reset_function();
        self.wait(&self.slot.ask(|reply| Request::Unmap { range: None, reply }));
    }

    // The card and its configuration space as after power-on.
    fn reset_function(&mut self) {
        self.reset_card();
        self.config = ConfigSpace::new();
        self.bar4.fill(0);
        self.slot.interrupts.forget();
        self.follow_config();
    }

    fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        if self.unplugged() {
            return;
        }
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR4_REGION_INDEX => match self.bar4(offset, data.len()) {
                _ if !self.config.memory() => self.bad_access(region, offset, data.len()),
                Some(range) => {
                    let at = PBA_OFFSET as usize;
                    self.bar4[at..at + 4].copy_from_slice(&self.slot.interrupts.pending().to_le_bytes());
                    data.copy_from_slice(&self.bar4[range]);
                }
                None => self.bad_access(region, offset, data.len()),
            },
            _ => {
                let len = data.len();
                let Some(bar) = Self::bar(region, offset, len).filter(|_| self.config.memory()) else {
                    return self.bad_access(region, offset, len);
                };
                let answer = self.slot.ask(|reply| Request::Read { bar, offset, len, reply });
                if let Ok(value) = answer.recv() {
                    data.copy_from_slice(&value.to_le_bytes()[..len]);
                }
            }
        }
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        if self.unplugged() {
            return;
        }
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                if self.config.write(offset, data) {
                    info!(card = self.slot.name, "function-level reset");
                    self.reset_function();
                } else {
                    self.follow_config();
                }
            }
            VFIO_PCI_BAR4_REGION_INDEX => match self.bar4(offset, data.len()) {
                _ if !self.config.memory() => self.bad_access(region, offset, data.len()),
                Some(range) => {
                    self.bar4[range].copy_from_slice(data);
                    self.follow_config();
                }
                None => self.bad_access(region, offset, data.len()),
            },
            _ => {
                let len = data.len();
                let Some(bar) = Self::bar(region, offset, len).filter(|_| self.config.memory()) else {
                    return self.bad_access(region, offset, len);
                };
                let mut word = [0; 8];
                word[..len].copy_from_slice(data);
                let data = u64::from_le_bytes(word);
                self.slot.link.request(self.slot.end, Request::Write { bar, offset, len, data });
            }
        }
    }
}

impl ServerBackend for Device {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.read(region, offset, data);
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(region, offset, data);
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        debug!(card = self.slot.name, ?flags, address, size, fd = fd.is_some(), "map");
        let memory = fd.filter(|_| flags.contains(DmaMapFlags::READ)).and_then(|file| {
            GuestMemory::map(&file, offset, size, flags.contains(DmaMapFlags::WRITE))
                .inspect_err(|e| warn!(card = self.slot.name, address, size, "cannot map guest memory: {e}"))
                .ok()
        });
        let mut dma = self.slot.dma.lock().unwrap_or_else(PoisonError::into_inner);
        if !dma.map(address, size, memory.map(Arc::new)) {
            self.bad_access(VFIO_PCI_NUM_REGIONS, address, 0);
        }
        Ok(())
    }

    // The reply is the fence: the card's thread first ends the DMA that is under way.
    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        debug!(card = self.slot.name, ?flags, address, size, "unmap");
        let range = (!flags.contains(DmaUnmapFlags::UNMAP_ALL)).then_some((address, size));
        self.wait(&self.slot.ask(|reply| Request::Unmap { range, reply }));
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        info!(card = self.slot.name, "reset by the host");
        self.reset_function();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        debug!(card = self.slot.name, index, flags, start, count, fds = fds.len(), "set_irqs");
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            let count = (count as usize).min(MSIX_VECTORS);
            let mut fds = fds.into_iter().map(Some);
            // A vector without a descriptor is disconnected.
            let eventfds = (0..count).map(|_| fds.next().flatten()).collect();
            self.slot.interrupts.connect(start, eventfds);
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0 {
            self.slot.interrupts.disconnect();
        }
        Ok(())
    }
}

fn regions() -> Vec<ServerRegion> {
    let size = |index| match index {
        VFIO_PCI_BAR0_REGION_INDEX => u64::from(BAR0_SIZE),
        VFIO_PCI_BAR2_REGION_INDEX => u64::from(BAR2_SIZE),
        VFIO_PCI_BAR4_REGION_INDEX => u64::from(BAR4_SIZE),
        VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE as u64,
        _ => 0,
    };
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = size(index);
            let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
            let argsz = size_of::<vfio_region_info>() as u32;
            let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
            ServerRegion { region_info, sparse_areas: vec![], mmap_fd: None }
        })
        .collect()
}

fn irqs() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| match index {
            VFIO_PCI_MSIX_IRQ_INDEX => {
                let flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
                IrqInfo { index, flags, count: MSIX_VECTORS as u32 }
            }
            _ => IrqInfo { index, flags: 0, count: 0 },
        })
        .collect()
}

/// Listens on `socket`.
///
/// # Errors
/// If the socket cannot be made.
pub fn listen(socket: &Path) -> Result<Server, vfio_user::Error> {
    if socket.exists() {
        // Left over by a simulator that was killed.
        let _ = std::fs::remove_file(socket);
    }
    Server::new(socket, true, irqs(), regions())
}

/// Serves clients of a card's socket, one after the other, for ever. When one goes, the card is reset.
pub fn serve(server: &Server, slot: &Arc<Slot>) {
    let mut device = Device::new(slot.clone());
    loop {
        // The crate panics on a few malformed messages; that ends the client, not the simulator.
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.run(&mut device)));
        match run {
            Ok(Ok(())) => info!(card = slot.name, "client has gone"),
            Ok(Err(e @ vfio_user::Error::SocketAccept(_))) => {
                error!(card = slot.name, "{e}");
                return;
            }
            Ok(Err(e)) => warn!(card = slot.name, "client: {e}"),
            Err(_) => warn!(card = slot.name, "client sent a malformed message"),
        }
        slot.clients.fetch_add(1, Ordering::Relaxed);
        device.power_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::FromRawFd;

    fn eventfd() -> File {
        // SAFETY: a new descriptor, owned by the File alone.
        unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) }
    }

    fn count(mut f: &File) -> u64 {
        let mut b = [0; 8];
        f.read_exact(&mut b).map_or(0, |()| u64::from_ne_bytes(b))
    }

    #[test]
    fn an_interrupt_raised_before_its_eventfd_is_delivered_with_it() {
        let irq = Interrupts::default();
        irq.raise(3);
        irq.raise(99);
        let fd = eventfd();
        irq.connect(3, vec![Some(fd.try_clone().unwrap())]);
        assert_eq!(count(&fd), 1);
        irq.raise(3);
        irq.raise(3);
        assert_eq!(count(&fd), 2);
        irq.disconnect();
        irq.raise(3);
        assert_eq!(count(&fd), 0);
        assert_eq!(irq.bad.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_masked_interrupt_waits_and_comes_once() {
        let irq = Interrupts::default();
        let fd = eventfd();
        irq.connect(0, vec![Some(fd.try_clone().unwrap())]);
        for (vector, all) in [(true, false), (false, true)] {
            irq.mask(|n| n == 0 && vector, all);
            irq.raise(0);
            irq.raise(0);
            assert_eq!((count(&fd), irq.pending()), (0, 1));
            irq.mask(|_| false, false);
            assert_eq!((count(&fd), irq.pending()), (1, 0));
        }
        irq.mask(|_| true, false);
        irq.raise(0);
        irq.forget();
        irq.mask(|_| false, false);
        assert_eq!(count(&fd), 0);
    }

    #[test]
    fn only_whole_aligned_accesses_inside_a_bar_reach_the_card() {
        let bar = Device::bar;
        assert_eq!(bar(VFIO_PCI_BAR0_REGION_INDEX, 8, 8), Some(0));
        assert_eq!(bar(VFIO_PCI_BAR2_REGION_INDEX, 0x3_fff8, 8), Some(2));
        assert_eq!(bar(VFIO_PCI_BAR2_REGION_INDEX, 0x4_0000, 8), None);
        assert_eq!(bar(VFIO_PCI_BAR0_REGION_INDEX, 4, 8), None);
        assert_eq!(bar(VFIO_PCI_BAR0_REGION_INDEX, 0, 3), None);
        assert_eq!(bar(VFIO_PCI_BAR0_REGION_INDEX, u64::MAX - 3, 4), None);
        assert_eq!(bar(1, 0, 4), None);
    }
}
