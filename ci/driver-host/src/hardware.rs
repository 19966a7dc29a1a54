// SPDX-License-Identifier: GPL-2.0
//! The card: its rings, its translation table, who uses what in it, and DMA under way.

use crate::abi::message::{
    COOKIE, CmdDone, CqCreate, CqDestroy, Fence, KeyBind, KeyFree, KeyRegister, KeysDrop, Listen, PageNeed, PageReady,
    PageRelease, PageRevoke, QpCreate, QpDestroy, RangeRevoked, RawCreate, RawMode, Unlisten, code,
};
use crate::abi::{alias::aliased_va, card::*, counters::F_ADDRESS_CONFLICTS, host::*, ring::*, status::*, wqe::PHASE};
use crate::card::Entry;
use crate::events::Events;
use crate::kernel::mmu_notifier::Event;
use crate::memory::surroundings;
use kernel::{io::Registers, irq::ThreadedHandler, world::world};
use std::collections::{BTreeMap, VecDeque};

/// Stands for the bus master bit among the registers that were written.
pub(crate) const MASTER: u32 = 1 << 16;

/// What a reset leaves: how the card behaves, and what it has seen.
pub(crate) struct Habits {
    /// Registers that were written, in order; a command that is pushed counts with its index.
    pub(crate) written: Vec<(u32, u32)>,
    /// It is not on the bus.
    pub(crate) gone: bool,
    /// What its clock shows, if it stands still.
    pub(crate) clock: Option<u64>,
    /// ARP messages of another host with its address; 0: as other counters.
    pub(crate) conflicts: u64,
    /// Firmware answers no challenge.
    pub(crate) heartless: bool,
    /// What firmware has answered before it was asked.
    pub(crate) answer: u32,
    /// What an image comes to, and how long that takes.
    pub(crate) boot: (u32, u64),
    /// The reason that belongs to its state, and what it has said at its end.
    pub(crate) code: u32,
    pub(crate) text: Vec<u8>,
    /// Words of the image that was loaded last.
    pub(crate) image: Vec<u32>,
    /// DMA that does not end whatever is written.
    pub(crate) stuck_dma: u32,
    /// It has raw queues.
    pub(crate) raw: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            written: Vec::new(),
            gone: false,
            clock: None,
            heartless: false,
            answer: 0,
            boot: (FW_RUNNING, 0),
            code: 0,
            text: Vec::new(),
            conflicts: 0,
            image: Vec::new(),
            stuck_dma: 0,
            raw: false,
        }
    }
}

/// The registers as the driver sees them.
pub(crate) struct Bar;

impl Registers for Bar {
    fn read(&self, offset: usize, bytes: usize) -> u64 {
        let (surroundings, offset) = (surroundings(), offset as u32);
        let hardware = surroundings.hardware.borrow();
        match bytes {
            4 => hardware.read(offset).into(),
            _ => hardware.read64(offset),
        }
    }

    fn write(&self, offset: usize, bytes: usize, value: u64) {
        let (surroundings, offset) = (surroundings(), offset as u32);
        let mut hardware = surroundings.hardware.borrow_mut();
        match bytes {
            4 => hardware.write(offset, value as u32),
            _ => hardware.write64(offset, value),
        }
    }
}

/// Counter of `Habits::conflicts`.
const CONFLICTS: u32 = HOST_STATS + 8 * F_ADDRESS_CONFLICTS;
/// Entries of both rings.
const RING: u16 = 4096;
/// Names the interrupt thread.
const IRQ: usize = 1;

/// An entry of the translation table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translation {
    pub(crate) asid: u32,
    pub(crate) vpn: u64,
    pub(crate) bus: u64,
    pub(crate) write: bool,
    pub(crate) uses: u32,
    /// Of the command that made it: when it was posted.
    posted: u64,
    /// When it was last used.
    used: u64,
    number: u64,
}

/// What a queue pair's row or firmware asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) asid: u32,
    pub(crate) va: u64,
    pub(crate) len: u64,
    pub(crate) write: bool,
    pub(crate) since: u64,
    /// How often the answer was OK though not all pages were there.
    pub(crate) vain: u32,
}

impl Ask {
    fn pages(&self) -> core::ops::RangeInclusive<u64> {
        self.va / 4096..=(self.va + self.len - 1) / 4096
    }
}

/// A range in use.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) ask: Ask,
    pages: Vec<(u32, u64)>,
}

#[derive(Default)]
pub(crate) struct Hardware {
    pub(crate) habits: Habits,
    status: u32,
    /// When firmware was started.
    booted: u64,
    answer: u32,
    began: u64,
    dma_enable: bool,
    cmd: u64,
    pi: u16,
    ci: u16,
    /// The command ring is set up.
    ready: bool,
    /// When the entries from `ci` on were posted.
    posted: VecDeque<u64>,
    /// The consumer index that is told is so much behind.
    pub(crate) lag: u16,
    evt: u64,
    evt_pi: u16,
    /// Up to where the driver has taken events.
    evt_ci: u16,
    /// The event ring is set up.
    events_ready: bool,
    /// The next event is one of which the driver is told.
    armed: bool,
    /// Unless it is of a page that is released or evicted.
    lax: bool,
    /// Index and words of a command that is being pushed.
    push: (u16, Vec<u32>),
    events: VecDeque<Entry>,
    irq: bool,
    fence: u64,
    fences: VecDeque<(u64, u64)>,
    /// When it began, bus address, and for whom.
    dma: Vec<(u64, u64, u32)>,
    table: BTreeMap<u32, Translation>,
    places: BTreeMap<(u32, u64), u32>,
    dropped: BTreeMap<(u32, u64), u64>,
    pub(crate) asks: BTreeMap<u32, Ask>,
    pub(crate) holds: BTreeMap<u32, Hold>,
    /// Requests that ended without their pages.
    pub(crate) refused: BTreeMap<u32, u32>,
    firmware: VecDeque<Entry>,
    /// How long a reset takes.
    pub(crate) reset_ns: u64,
    /// It takes no commands.
    pub(crate) stalled: bool,
    /// DMA under way does not end.
    pub(crate) slow: bool,
    /// Firmware answers nothing.
    pub(crate) deaf: bool,
    /// It says nothing to the driver.
    pub(crate) mute: bool,
    /// What `CMD_PRESSURE` is answered with.
    pub(crate) stuck_qp: u32,
    /// What commands it has been given, in order.
    pub(crate) log: Vec<Entry>,
    /// Words that were written into the card, not only the ring.
    pub(crate) pushed: u32,
    /// Process of each address space number.
    pub(crate) mms: BTreeMap<u32, usize>,
    /// Firmware acts on `CMD_PRESSURE`: it gives back what is held for receives.
    pub(crate) recalls: bool,
    /// An answer was OK, and not all pages were there.
    pub(crate) vain: u32,
    /// Answers in order.
    pub(crate) answers: Vec<(u32, u32)>,
    /// Bytes of packets that are mapped for the card, by bus address.
    pub(crate) packets: BTreeMap<u64, u32>,
    /// The raw queue that there is.
    pub(crate) raw: Option<RawCreate>,
    /// Doorbells of the kernel's own page that were rung.
    pub(crate) doorbells: Vec<(u32, u64)>,
    installed: u64,
    /// What firmware answers the next command with an opcode with: status and results.
    pub(crate) replies: VecDeque<(u32, u32, [u32; EVENT_PHASE - 3])>,
    /// Queues and services that firmware has, by opcode of the command that made it and number: bus address of its memory,
    /// or 0.
    pub(crate) objects: BTreeMap<(u32, u32), u64>,
}

impl Hardware {
    pub(crate) fn read(&self, offset: u32) -> u32 {
        if self.habits.gone {
            return u32::MAX;
        }
        match offset {
            HOST_ID => CARD_ID,
            HOST_STATUS => self.status(),
            HOST_FW_CODE => self.habits.code,
            HOST_CLOCK_HZ => CLOCK_HZ,
            HOST_HB_ANSWER => self.answer,
            HOST_CMD_CI => u32::from(self.ci.wrapping_sub(self.lag)),
            HOST_CMD_PI => self.pi.into(),
            HOST_DMA_BUSY => self.dma.len() as u32 + self.habits.stuck_dma,
            HOST_STATS.. if offset < HOST_STATS + STATS_BYTES => {
                let at = (offset - HOST_STATS).checked_sub(STATS_PANIC).map(|at| at as usize);
                let byte = |n| at.and_then(|at| self.habits.text.get(at + n)).copied().unwrap_or(0);
                u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
            }
            // There is no such register.
            _ => u32::MAX,
        }
    }

    fn status(&self) -> u32 {
        let now = world().now();
        match self.status {
            FW_RESET if now < self.began + self.reset_ns => FW_LOADING,
            FW_STARTED if now >= self.booted + self.habits.boot.1 => self.habits.boot.0,
            status => status,
        }
    }

    /// Firmware stops, or is something else now.
    pub(crate) fn set_status(&mut self, status: u32) {
        self.status = status;
    }

    /// Firmware answers what it was not asked.
    pub(crate) fn set_answer(&mut self, answer: u32) {
        self.answer = answer;
    }

    /// Reads two registers: the clock, or a counter, which says which one it is.
    fn read64(&self, offset: u32) -> u64 {
        match offset {
            _ if self.habits.gone => u64::MAX,
            HOST_CYCLES_LO => self.cycles(),
            CONFLICTS if self.habits.conflicts != 0 => self.habits.conflicts,
            _ => u64::from(offset) << 32 | u64::from(!offset),
        }
    }

    pub(crate) fn cycles(&self) -> u64 {
        self.habits.clock.unwrap_or((world().now() - self.began) / 4)
    }

    fn write64(&mut self, offset: u32, value: u64) {
        if self.habits.gone {
            return;
        }
        if offset == HOST_CMD_PUSH {
            self.push = (value as u16, Vec::new());
            return;
        }
        let at = HOST_CMD_PUSH + CMD_PUSH_WORDS + 4 * self.push.1.len() as u32;
        assert_eq!(offset, at, "the words of a command come in order");
        self.push.1.extend([value as u32, (value >> 32) as u32]);
        if let Ok(entry) = Entry::try_from(&self.push.1[..]) {
            self.pushed(self.push.0, &entry);
        }
    }

    /// A doorbell of the kernel's own page.
    pub(crate) fn doorbell(&mut self, offset: u32, value: u64) {
        if !self.habits.gone {
            self.doorbells.push((offset, value));
        }
    }

    fn pushed(&mut self, index: u16, entry: &Entry) {
        if self.ready {
            assert_eq!(*entry, self.entry(index), "another command is in the ring");
            self.pushed += 1;
            self.habits.written.push((HOST_CMD_PUSH, index.into()));
        }
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        if self.habits.gone {
            return;
        }
        if offset != HOST_FW_DATA {
            self.habits.written.push((offset, value));
        }
        let half = |word: &mut u64, high: bool| {
            let shift = 32 * u32::from(high);
            *word = *word & !(u64::from(u32::MAX) << shift) | u64::from(value) << shift;
        };
        match offset {
            HOST_CTRL => self.reset(),
            HOST_FW_DATA => self.habits.image.push(value),
            HOST_FW_BOOT => (self.status, self.booted) = (FW_STARTED, world().now()),
            HOST_HB_CHALLENGE if !self.habits.heartless => self.answer = value,
            HOST_DMA_ENABLE => self.dma_enable = value != 0,
            HOST_CMD_BASE_LO | HOST_CMD_BASE_HI => half(&mut self.cmd, offset == HOST_CMD_BASE_HI),
            HOST_EVT_BASE_LO | HOST_EVT_BASE_HI => half(&mut self.evt, offset == HOST_EVT_BASE_HI),
            HOST_FENCE_LO | HOST_FENCE_HI => half(&mut self.fence, offset == HOST_FENCE_HI),
            HOST_CMD_LOG2 => {
                assert_eq!(1 << value, u32::from(RING));
                (self.pi, self.ci, self.ready) = (0, 0, true);
                self.posted.clear();
            }
            HOST_EVT_LOG2 => {
                assert_eq!(1 << value, u32::from(RING));
                (self.evt_pi, self.evt_ci, self.events_ready) = (0, 0, true);
            }
            // Of a run of firmware that is over.
            HOST_EVT_CI if !self.events_ready => {}
            HOST_EVT_CI => {
                self.evt_ci = value as u16;
                assert!(self.evt_pi.wrapping_sub(self.evt_ci) <= RING, "events are given back that were not sent");
                if value >> 31 != 0 {
                    (self.armed, self.lax) = (true, value >> 30 & 1 != 0);
                }
                self.interrupt();
            }
            // Rung for a run of firmware that is over.
            HOST_CMD_PI if !self.ready => {}
            HOST_CMD_PI => {
                let more = (value as u16).wrapping_sub(self.pi);
                let serial = surroundings().next();
                self.posted.extend(core::iter::repeat_n(serial, more.into()));
                self.pi = value as u16;
                assert!(self.pi.wrapping_sub(self.ci) <= RING - self.lag, "more commands than the ring has room for");
            }
            _ => {}
        }
    }

    /// A reset, of the driver or of somebody else.
    pub(crate) fn reset(&mut self) {
        self.habits.image.clear();
        let answer = self.habits.answer;
        *self = Self {
            habits: core::mem::take(&mut self.habits),
            status: FW_RESET,
            began: world().now(),
            answer,
            mms: core::mem::take(&mut self.mms),
            log: core::mem::take(&mut self.log),
            irq: self.irq,
            recalls: self.recalls,
            reset_ns: self.reset_ns,
            packets: core::mem::take(&mut self.packets),
            ..Self::default()
        };
    }

    /// It may begin DMA, or none any more.
    pub(crate) fn set_master(&mut self, on: bool) {
        self.habits.written.push((MASTER, on.into()));
        if !on {
            self.end_dma();
        }
    }

    /// The registers that were written since the last look.
    pub(crate) fn take_written(&mut self) -> Vec<(u32, u32)> {
        core::mem::take(&mut self.habits.written)
    }

    /// Tells the driver of events, if it wants to be told.
    fn interrupt(&mut self) {
        let untold = self.evt_pi.wrapping_sub(self.evt_ci);
        let code_at = |n| code(&self.event_at(self.evt_ci.wrapping_add(n)));
        let urgent = |n| ![EV_PAGE_RELEASE, EV_PAGE_EVICTED].contains(&code_at(n));
        if !self.armed || untold == 0 || (self.lax && untold < RING / 2 && !(0..untold).any(urgent)) {
            return;
        }
        self.armed = false;
        if core::mem::replace(&mut self.irq, true) {
            return;
        }
        world().add_job(IRQ, world().now(), || {
            let surroundings = surroundings();
            surroundings.hardware.borrow_mut().irq = false;
            let card = surroundings.card.borrow().clone();
            if let Some(card) = card {
                Events(card).handle_threaded();
            }
        });
    }

    fn event_at(&self, index: u16) -> Entry {
        // SAFETY: As below.
        unsafe { *(self.evt as *const Entry).add(usize::from(index % RING)) }
    }

    fn entry(&self, index: u16) -> Entry {
        // SAFETY: The ring has so many entries.
        unsafe { *(self.cmd as *const Entry).add(usize::from(index % RING)) }
    }

    /// No DMA any more.
    pub(crate) fn end_dma(&mut self) {
        self.dma.clear();
        self.dma_enable = false;
    }

    /// Commands that it has not taken.
    pub(crate) fn backlog(&self) -> u16 {
        self.pi.wrapping_sub(self.ci)
    }

    /// Takes back the event that was sent last.
    pub(crate) fn take_event(&mut self) -> Entry {
        self.events.pop_back().expect("it was sent")
    }

    pub(crate) fn send(&mut self, entry: Entry) {
        self.events.push_back(entry);
    }

    // ---- use of ranges --------------------------------------------------------------

    fn acquire(&mut self, ask: &Ask) -> Option<Vec<(u32, u64)>> {
        let serial = surroundings().next();
        let mut pages = Vec::new();
        for vpn in ask.pages() {
            let index = *self.places.get(&(ask.asid, vpn))?;
            let entry = self.table.get(&index)?;
            if ask.write && !entry.write {
                return None;
            }
            pages.push((index, entry.number));
        }
        for (index, _) in &pages {
            let entry = self.table.get_mut(index).expect("it is there");
            entry.uses += 1;
            entry.used = serial;
            if surroundings().memory.borrow().copied(entry.bus).is_some() {
                assert!(!entry.write && !ask.write, "vc_6: the card writes to a copy");
                continue;
            }
            let (frame, write) = surroundings().memory.borrow().behind(entry.bus);
            assert!(write || !entry.write, "inv_4: the card may write what is mapped for reading");
            let mm = self.mms[&entry.asid];
            let surroundings = surroundings();
            let memory = surroundings.memory.borrow();
            let vpn = aliased_va(entry.vpn << 12).map_or(entry.vpn, |(_, va)| va >> 12);
            assert!(
                memory.maps(mm, vpn, frame, entry.write) || memory.changed(mm, vpn) > entry.posted,
                "inv_4: page {:#x} of asid {} is not what the process has there",
                entry.vpn,
                entry.asid
            );
        }
        Some(pages)
    }

    /// Asks for a range, unless it is there.
    pub(crate) fn ask(&mut self, tag: u32, asid: u32, va: u64, len: u64, write: bool) {
        assert!(!self.is_busy(tag), "tag {tag:#x} is in use");
        let ask = Ask { asid, va, len, write, since: surroundings().next(), vain: 0 };
        match self.acquire(&ask) {
            Some(pages) => drop(self.holds.insert(tag, Hold { ask, pages })),
            None => self.need(tag, ask),
        }
    }

    fn need(&mut self, tag: u32, ask: Ask) {
        self.refused.remove(&tag);
        self.asks.insert(tag, ask);
        let Ask { asid, va, len, write, .. } = ask;
        self.send(PageNeed { tag, asid, write, va, len: len as u32 }.encode());
    }

    pub(crate) fn is_busy(&self, tag: u32) -> bool {
        self.asks.contains_key(&tag) || self.holds.contains_key(&tag)
    }

    /// Ends the use of a range.
    pub(crate) fn release(&mut self, tag: u32) {
        let hold = self.holds.remove(&tag).expect("it is in use");
        // Its DMA has ended before.
        self.dma.retain(|d| d.2 != tag);
        self.let_go(&hold);
        let Ask { asid, va, len, write, .. } = hold.ask;
        self.send(PageRelease { tag, asid, wrote: write, va, len: len as u32 }.encode());
    }

    fn let_go(&mut self, hold: &Hold) {
        let serial = surroundings().next();
        for (index, number) in &hold.pages {
            if let Some(entry) = self.table.get_mut(index).filter(|e| e.number == *number) {
                entry.uses -= 1;
                entry.used = serial;
            }
        }
    }

    /// Begins DMA to or from a page of what is in use.
    pub(crate) fn begin_dma(&mut self, tag: u32, page: usize) -> bool {
        if !self.dma_enable {
            return false;
        }
        let Some(&(index, number)) = self.holds.get(&tag).and_then(|h| h.pages.get(page)) else { return false };
        let Some(entry) = self.table.get(&index).filter(|e| e.number == number) else { return false };
        surroundings().memory.borrow().assert_usable(entry.bus);
        self.dma.push((surroundings().next(), entry.bus, tag));
        true
    }

    pub(crate) fn dma_under_way(&self) -> usize {
        self.dma.len()
    }

    // ---- what must hold -------------------------------------------------------------

    /// A mapping is about to go.
    pub(crate) fn assert_unused(&self, bus: u64) {
        // A card whose DMA is switched off is reset before it is switched on again.
        for entry in self.table.values().filter(|_| self.dma_enable) {
            assert!(entry.bus != bus, "inv_4: page {:#x} is unmapped while the card has it", entry.vpn);
        }
        assert!(self.dma.iter().all(|d| d.1 != bus), "inv_4: a page is unmapped under DMA");
    }

    /// Memory of a queue is about to go.
    pub(crate) fn assert_no_queue(&self, bus: u64) {
        let mut objects = self.objects.iter().filter(|_| self.dma_enable);
        assert!(objects.all(|o| *o.1 != bus), "inv_4: memory of a queue goes while the card has it");
    }

    /// A change is about to happen that everybody has been told of.
    pub(crate) fn assert_let_go(&self, mm: usize, first: u64, pages: u64, event: Event, begin: u64) {
        let ours = |vpn: u64, asid: u32| {
            (event == Event::Release || (vpn >= first && vpn - first < pages)) && self.mms.get(&asid) == Some(&mm)
        };
        let card = surroundings().card.borrow().clone().expect("there is a card");
        for entry in self.table.values().filter(|e| self.dma_enable && ours(e.vpn, e.asid)) {
            // A context that is being closed is told nothing, and takes everything back by itself.
            if kernel::world::calmly(|| card.context(entry.asid)).is_none() {
                continue;
            }
            match event {
                Event::Unmap | Event::Release => {
                    panic!("vc_9: the card has page {:#x}, which is unmapped", entry.vpn)
                }
                Event::Clear => assert!(
                    entry.uses > 0 || entry.used > begin || entry.posted > begin,
                    "vc_9: page {:#x} stays, though nobody uses it",
                    entry.vpn
                ),
                Event::Other => {}
            }
        }
        if matches!(event, Event::Unmap | Event::Release) {
            for (_, bus, _) in &self.dma {
                surroundings().memory.borrow().assert_usable(*bus);
            }
        }
    }

    /// Entries of the translation table.
    pub(crate) fn translations(&self) -> impl Iterator<Item = &Translation> {
        self.table.values()
    }

    pub(crate) fn has(&self, asid: u32, vpn: u64) -> Option<&Translation> {
        self.table.get(self.places.get(&(asid, vpn))?)
    }

    /// Pages installed in all.
    pub(crate) fn installed(&self) -> u64 {
        self.installed
    }

    /// How often a command was given.
    pub(crate) fn times(&self, opcode: u32) -> usize {
        self.log.iter().filter(|e| code(e) == opcode).count()
    }

    // ---- what it does by itself -----------------------------------------------------

    /// One thing; false if there is nothing to do.
    pub(crate) fn step(&mut self) -> bool {
        if self.habits.gone {
            return false;
        }
        let mut can = Vec::new();
        if !self.stalled && self.ci != self.pi {
            can.push(0);
        }
        if !self.slow && !self.dma.is_empty() {
            can.push(1);
        }
        if !self.mute && !self.events.is_empty() && self.evt_pi.wrapping_sub(self.evt_ci) < RING {
            can.push(2);
        }
        if !self.deaf && self.firmware.iter().any(|entry| !self.holds_back(entry)) {
            can.push(3);
        }
        let oldest = self.dma.iter().map(|d| d.0).min().unwrap_or(u64::MAX);
        if self.fences.front().is_some_and(|f| f.0 < oldest) {
            can.push(4);
        }
        if can.is_empty() {
            return false;
        }
        match can[world().below(can.len() as u64) as usize] {
            0 => {
                let entry = self.entry(self.ci);
                let posted = self.posted.pop_front().expect("it was posted");
                self.ci = self.ci.wrapping_add(1);
                self.log.push(entry);
                self.command(&entry, posted);
            }
            1 => {
                let at = world().below(self.dma.len() as u64) as usize;
                let (_, bus, _) = self.dma.remove(at);
                surroundings().memory.borrow().assert_usable(bus);
            }
            2 => {
                let mut entry = self.events.pop_front().expect("there is one");
                let phase = if self.evt_pi & RING == 0 { PHASE } else { 0 };
                entry[EVENT_PHASE] = entry[EVENT_PHASE] & !PHASE | phase;
                // SAFETY: The ring has so many entries.
                unsafe { *(self.evt as *mut Entry).add(usize::from(self.evt_pi % RING)) = entry };
                self.evt_pi = self.evt_pi.wrapping_add(1);
                self.interrupt();
            }
            3 => {
                let entry = self.firmware.pop_front().expect("there is one");
                self.firmware_command(&entry);
            }
            _ => {
                let (_, token) = self.fences.pop_front().expect("there is one");
                // SAFETY: The driver's word.
                unsafe { *(self.fence as *mut u64) = token };
            }
        }
        true
    }

    fn drop_entry(&mut self, index: u32) {
        if let Some(entry) = self.table.remove(&index) {
            self.places.remove(&(entry.asid, entry.vpn));
            self.dropped.insert((entry.asid, entry.vpn), surroundings().next());
        }
    }

    fn command(&mut self, entry: &Entry, posted: u64) {
        match code(entry) {
            CMD_PAGE_INSTALL => {
                for ((asid, vpn), index, bus, write) in installed_pages(entry) {
                    assert!(
                        (0..XLT_WAYS).any(|way| Xlt::HERE.place(asid, vpn, way) == index),
                        "not a place of that page"
                    );
                    let surroundings = surroundings();
                    match surroundings.memory.borrow().copied(bus) {
                        Some(_) => assert!(!write && aliased_va(vpn << 12).is_some(), "a copy under another address"),
                        None => _ = surroundings.memory.borrow().behind(bus),
                    }
                    let number = surroundings.next();
                    let new = Translation { asid, vpn, bus, write, uses: 0, posted, used: 0, number };
                    let old = self.table.insert(index, new);
                    assert!(old.is_none(), "place {index} of the table is not free");
                    let old = self.places.insert((asid, vpn), index);
                    assert!(old.is_none(), "page {vpn:#x} has two places");
                    self.installed += 1;
                }
            }
            CMD_PAGE_READY => {
                let ready = PageReady::decode(entry);
                self.answered(ready.tag, ready.status);
            }
            CMD_PAGE_EVICT => {
                let answer = evict_answer(entry, |index| {
                    let idle = self.table.get(&index).is_none_or(|e| e.uses == 0);
                    if idle {
                        self.drop_entry(index);
                    }
                    idle
                });
                self.send(answer);
            }
            CMD_PAGE_REVOKE => self.drop_entry(PageRevoke::decode(entry).index),
            CMD_FENCE => {
                self.fences.push_back((surroundings().next(), Fence::decode(entry).token));
            }
            _ => self.firmware.push_back(*entry),
        }
    }

    fn answered(&mut self, tag: u32, status: u32) {
        let ask = self.asks.remove(&tag);
        let Some(mut ask) = ask else { panic!("tag {tag:#x} is answered ({status}), and nobody asks") };
        self.answers.push((tag, status));
        if status != PAGE_OK {
            self.refused.insert(tag, status);
            return;
        }
        match self.acquire(&ask) {
            Some(pages) => drop(self.holds.insert(tag, Hold { ask, pages })),
            None => {
                self.vain += 1;
                let surroundings = surroundings();
                let mm = self.mms[&ask.asid];
                let memory = surroundings.memory.borrow();
                let why = |vpn: u64| {
                    self.dropped.get(&(ask.asid, vpn)).is_some_and(|d| *d > ask.since)
                        || memory.changed(mm, vpn) > ask.since
                };
                assert!(ask.pages().any(why), "tag {tag:#x} is told of pages that are not there");
                drop(memory);
                ask.vain += 1;
                ask.since = surroundings.next();
                self.need(tag, ask);
            }
        }
    }

    fn end_object(&mut self, create: u32, number: u32) -> u32 {
        self.objects.remove(&(create, number)).map_or(CMD_NOT_FOUND, |_| CMD_OK)
    }

    /// Whether a key is of an address space.
    fn has_key(&self, asid: u8, key: u32) -> bool {
        self.objects.get(&(CMD_KEY_REGISTER, key)) == Some(&asid.into())
    }

    /// Keys that there are.
    pub(crate) fn keys(&self) -> usize {
        self.objects.keys().filter(|(create, _)| *create == CMD_KEY_REGISTER).count()
    }

    /// A command that is not done yet.
    fn holds_back(&self, entry: &Entry) -> bool {
        code(entry) == CMD_QP_DESTROY && self.asks.keys().any(|tag| qpn(*tag) == QpDestroy::decode(entry).qpn)
    }

    fn firmware_command(&mut self, entry: &Entry) {
        let mut done = CmdDone { cookie: entry[COOKIE], status: CMD_OK, ..CmdDone::default() };
        let opcode = code(entry);
        let reply = self.replies.iter().position(|r| r.0 == opcode).and_then(|at| self.replies.remove(at));
        if let Some((_, status, results)) = reply {
            (done.status, done.results) = (status, results);
            if status != CMD_OK {
                self.send(done.encode());
                return;
            }
        }
        match opcode {
            CMD_CQ_CREATE | CMD_QP_CREATE | CMD_CM_LISTEN => {
                let (cq, qp) = (CqCreate::decode(entry), QpCreate::decode(entry));
                let (number, addr) = match opcode {
                    CMD_CQ_CREATE => (cq.cqn, cq.base),
                    CMD_QP_CREATE => (qp.qpn, qp.sq_base),
                    _ => (Listen::decode(entry).service, 0),
                };
                let old = self.objects.insert((opcode, number), addr);
                assert!(old.is_none(), "{number} is made a second time (command {opcode})");
            }
            CMD_CQ_DESTROY => done.status = self.end_object(CMD_CQ_CREATE, CqDestroy::decode(entry).cqn),
            CMD_CM_UNLISTEN => done.status = self.end_object(CMD_CM_LISTEN, Unlisten::decode(entry).service),
            CMD_KEY_REGISTER => {
                let KeyRegister { asid, .. } = KeyRegister::decode(entry);
                let key = (1..).find(|key| !self.objects.contains_key(&(CMD_KEY_REGISTER, *key)));
                let [to, ..] = &mut done.results;
                *to = key.expect("there are many");
                self.objects.insert((CMD_KEY_REGISTER, *to), asid.into());
            }
            CMD_KEY_BIND if !self.has_key(KeyBind::decode(entry).asid, KeyBind::decode(entry).key) => {
                done.status = CMD_NOT_FOUND;
            }
            CMD_KEY_FREE => {
                let KeyFree { asid, key } = KeyFree::decode(entry);
                done.status = match self.has_key(asid, key) {
                    true => self.end_object(CMD_KEY_REGISTER, key),
                    false => CMD_NOT_FOUND,
                };
            }
            CMD_KEYS_DROP => {
                let asid = u64::from(KeysDrop::decode(entry).asid);
                self.objects.retain(|(create, _), owner| *create != CMD_KEY_REGISTER || *owner != asid);
            }
            CMD_RANGE_REVOKED => {
                let RangeRevoked { asid, va, len } = RangeRevoked::decode(entry);
                let (first, last) = (va / 4096, (va + (len - 1)) / 4096);
                let hit =
                    |h: &Hold| h.ask.asid == asid && *h.ask.pages().start() <= last && first <= *h.ask.pages().end();
                let tags: Vec<u32> = self.holds.iter().filter(|(_, h)| hit(h)).map(|(t, _)| *t).collect();
                for tag in tags {
                    self.release(tag);
                }
            }
            CMD_PRESSURE => {
                if self.recalls {
                    let tags: Vec<u32> = self.holds.iter().filter(|(_, h)| h.ask.write).map(|(t, _)| *t).collect();
                    for tag in tags {
                        self.release(tag);
                    }
                }
                let [qpn, ..] = &mut done.results;
                *qpn = self.stuck_qp;
            }
            CMD_RAW_CREATE | CMD_RAW_DESTROY | CMD_RAW_MODE if !self.habits.raw => done.status = CMD_UNKNOWN,
            CMD_RAW_CREATE => {
                let create = RawCreate::decode(entry);
                let has_cq = |cqn: u16| self.objects.contains_key(&(CMD_CQ_CREATE, cqn.into()));
                assert!(create.is_sound() && has_cq(create.send_cqn) && has_cq(create.recv_cqn));
                assert!(self.raw.replace(create).is_none(), "the queue is made a second time");
            }
            CMD_RAW_DESTROY => done.status = self.raw.take().map_or(CMD_NOT_FOUND, |_| CMD_OK),
            CMD_RAW_MODE => match &mut self.raw {
                Some(raw) => raw.flags = RawMode::decode(entry).flags,
                None => done.status = CMD_NOT_FOUND,
            },
            CMD_QP_DESTROY => {
                // Done when nothing of it is in flight.
                if self.holds_back(entry) {
                    self.firmware.push_back(*entry);
                    return;
                }
                let number = QpDestroy::decode(entry).qpn;
                let tags: Vec<u32> = self.holds.keys().copied().filter(|tag| qpn(*tag) == number).collect();
                for tag in tags {
                    self.release(tag);
                }
                done.status = self.end_object(CMD_QP_CREATE, number);
            }
            _ => {}
        }
        self.send(done.encode());
    }
}

/// The queue pair whose row has a tag.
pub(crate) fn qpn(tag: u32) -> u32 {
    match tag >> 16 {
        TAG_SENDS => (tag & 0xffff) >> TAG_SENDS_QPN,
        TAG_RECEIVES => (tag & 0xffff) >> TAG_RECEIVES_QPN,
        _ => 0,
    }
}
