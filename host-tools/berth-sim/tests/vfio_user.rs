// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole simulator with the real RTL; a vfio-user client stands in place of QEMU.

mod rig;

use berth_abi::card::{ABI_VERSION, BAR0_SIZE, CARD_ID, CLOCK_HZ, PCI_DEVICE, PCI_VENDOR};
use berth_abi::host::*;
use berth_abi::message::{Fence, code};
use berth_abi::ring::{EV_PAGE_EVICTED, evict_command, evicted_pages};
use berth_abi::status::{FW_BAD_MAGIC, FW_REFUSED, FW_RESET};
use rig::{BUS_MASTER, Host, MEMORY, Simulator, bytes_of, event_in, eventfd, memfd};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR4_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};

#[test]
fn the_card_tells_its_identity_through_the_socket() {
    let sim = Simulator::start(&["a", "b"]);
    for card in ["a", "b"] {
        let mut host = sim.client(card);
        let mut id = [0; 4];
        host.0.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut id).unwrap();
        assert_eq!(u32::from_le_bytes(id), PCI_DEVICE << 16 | PCI_VENDOR);
        assert_eq!(host.read(HOST_ID), CARD_ID);
        assert_eq!(host.read(HOST_ABI), ABI_VERSION);
        assert_eq!(host.read(HOST_CLOCK_HZ), CLOCK_HZ);
        let mut two = [0; 8];
        host.0.region_read(VFIO_PCI_BAR0_REGION_INDEX, u64::from(HOST_ID), &mut two).unwrap();
        assert_eq!(u64::from_le_bytes(two), u64::from(ABI_VERSION) << 32 | u64::from(CARD_ID));
    }
    let stats = sim.quit();
    assert_eq!(stats["cards"][1]["name"], "b");
    assert!(stats["cards"][0]["counters"]["C_TX_FRAMES"].is_u64());
}

#[test]
fn registers_keep_what_is_written_and_the_clock_runs() {
    let sim = Simulator::start(&["a"]);
    let mut host = sim.client("a");
    host.write(HOST_HB_CHALLENGE, 0x1234_5678);
    assert_eq!(host.read(HOST_HB_CHALLENGE), 0x1234_5678);
    let first = host.read(HOST_CYCLES_LO);
    while host.read(HOST_CYCLES_LO).wrapping_sub(first) < 100_000 {}
}

#[test]
fn invariant_6_bad_accesses_read_ones_and_are_counted() {
    let sim = Simulator::start(&["a"]);
    let mut host = sim.client("a");
    for (offset, len) in [(u64::from(BAR0_SIZE), 4), (2, 4), (0, 3), (0, 64), (u64::MAX - 3, 4)] {
        let mut b = vec![0; len];
        host.0.region_read(VFIO_PCI_BAR0_REGION_INDEX, offset, &mut b).unwrap();
        assert!(b.iter().all(|&x| x == 0xff), "{offset:#x} {len}");
        host.0.region_write(VFIO_PCI_BAR0_REGION_INDEX, offset, &b).unwrap();
    }
    let stats = sim.ask("stats");
    assert_eq!(stats["cards"][0]["bad_accesses"], 10);
    // An offset without a register gets through to the card, which answers and counts by itself.
    assert_eq!(host.read(0x3fc), u32::MAX);
    assert_eq!(sim.ask("stats")["cards"][0]["counters"]["C_BAR_BAD_ACCESS"], 1);
}

#[test]
fn a_firmware_image_with_wrong_magic_is_refused() {
    let sim = Simulator::start(&["a"]);
    let mut host = sim.client("a");
    assert_eq!(host.read(HOST_STATUS), FW_RESET);
    for _ in 0..9 {
        host.write(HOST_FW_DATA, 0xdead_beef);
    }
    host.write(HOST_FW_BOOT, 1);
    assert_eq!(host.read(HOST_STATUS), FW_REFUSED);
    assert_eq!(host.read(HOST_FW_CODE), FW_BAD_MAGIC);
    host.0.reset().unwrap();
    host.enable(MEMORY);
    assert_eq!(host.read(HOST_STATUS), FW_RESET);
}

#[test]
fn commands_and_events_move_through_guest_memory_and_msix() {
    const BUS: u64 = 0x8000_0000;
    let sim = Simulator::start(&["a", "b"]);
    let mut host = sim.client("a");
    let memory = memfd(0x10_000);
    host.0.dma_map(0, BUS, 0x10_000, memory.as_raw_fd()).unwrap();
    let irq = eventfd(0);
    let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
    host.0.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 1, &[irq.as_raw_fd()]).unwrap();

    let token = 0x4433_2211_8877_6655;
    let commands = [Fence { token }.encode(), evict_command(5)].map(bytes_of).concat();
    memory.write_all_at(&commands, 0).unwrap();

    host.start_rings(BUS);
    host.write(HOST_EVT_CI, 1 << 31);
    host.write(HOST_CMD_PI, 2);

    let mut raised = [0; 8];
    (&irq).read_exact(&mut raised).unwrap();
    let event = event_in(&memory, Host::EVENTS).expect("an event of the first round");
    assert_eq!(code(&event), EV_PAGE_EVICTED);
    assert_eq!(evicted_pages(&event).collect::<Vec<_>>(), [(5, true)]);
    let mut written = [0; 8];
    memory.read_exact_at(&mut written, Host::FENCE).unwrap();
    assert_eq!(u64::from_le_bytes(written), token);
    assert_eq!(host.read(HOST_CMD_CI), 2);

    // After the unmap the card reaches nothing any more, and says so.
    host.0.dma_unmap(BUS, 0x10_000).unwrap();
    host.write(HOST_CMD_PI, 3);
    while sim.ask("stats")["cards"][0]["dma"]["errors"] == 0 {}
    assert_eq!(host.read(HOST_ID), CARD_ID);
    sim.quit();
}

#[test]
fn an_unplugged_card_reads_all_ones_until_it_is_back() {
    let sim = Simulator::start(&["a"]);
    let mut host = sim.client("a");
    assert_eq!(sim.ask("unplug a")["ok"], true);
    assert_eq!(host.read(HOST_ID), u32::MAX);
    host.write(HOST_HB_CHALLENGE, 1);
    assert_eq!(sim.ask("replug a")["ok"], true);
    assert_eq!(host.read(HOST_ID), CARD_ID);
    assert_eq!(host.read(HOST_HB_CHALLENGE), 0);
}

#[test]
fn a_card_survives_its_client() {
    let sim = Simulator::start(&["a"]);
    for _ in 0..3 {
        let mut host = sim.client("a");
        assert_eq!(host.read(HOST_HB_CHALLENGE), 0);
        host.write(HOST_HB_CHALLENGE, 77);
    }
    // Not even the protocol's version: the next client is served all the same.
    let mut stream = std::os::unix::net::UnixStream::connect(sim.path("a")).unwrap();
    stream.write_all(&[0xff; 40]).unwrap();
    drop(stream);
    assert_eq!(sim.client("a").read(HOST_ID), CARD_ID);
}

#[test]
fn control_requests_that_are_wrong_say_why() {
    let sim = Simulator::start(&["a"]);
    for request in
        ["", "fly", "hold a later", "unplug z", "faults loss=2", "faults colour=1", "release a x", "wait a held"]
    {
        let answer = sim.ask(request);
        assert_eq!(answer["ok"], false, "{request}");
        assert!(answer["error"].as_str().is_some_and(|e| !e.is_empty()), "{request}");
    }
    assert_eq!(sim.ask("faults loss=0.25 seed=9")["loss"], 0.25);
    assert_eq!(sim.ask("faults")["seed"], 9);
}

#[test]
fn a_waveform_is_written_if_it_was_built_in() {
    let sim = Simulator::start(&["a"]);
    let waveform = sim.path("a.fst");
    let answer = sim.ask(&format!("trace a {}", waveform.display()));
    assert_eq!(answer["ok"], cfg!(feature = "trace"), "{answer}");
    assert_eq!(sim.client("a").read(HOST_ID), CARD_ID);
    assert_eq!(sim.ask("trace a off")["ok"], true);
    assert_eq!(std::fs::metadata(waveform).is_ok_and(|m| m.len() > 0), cfg!(feature = "trace"));
}

/// A host with rings in memory, which posts fences with evictions before them.
struct Driver {
    host: Host,
    memory: File,
    irq: File,
    token: u32,
    pi: u32,
}

impl Driver {
    const BUS: u64 = 0x8000_0000;

    fn new(sim: &Simulator) -> Self {
        let mut host = sim.client("a");
        let memory = memfd(0x10_000);
        host.0.dma_map(0, Self::BUS, 0x10_000, memory.as_raw_fd()).unwrap();
        let irq = eventfd(libc::EFD_NONBLOCK);
        let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
        host.0.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 1, &[irq.as_raw_fd()]).unwrap();
        let mut driver = Self { host, memory, irq, token: 0, pi: 0 };
        driver.start();
        driver
    }

    fn start(&mut self) {
        self.host.start_rings(Self::BUS);
        self.pi = 0;
    }

    /// Posts an eviction, which brings an event, and a fence.
    fn post(&mut self) {
        self.token += 1;
        for entry in [evict_command(5), Fence { token: self.token.into() }.encode()] {
            self.memory.write_all_at(&bytes_of(entry), u64::from(self.pi % 16) * 64).unwrap();
            self.pi += 1;
        }
        self.host.write(HOST_CMD_PI, self.pi);
    }

    fn word(&self, at: u64) -> u32 {
        let mut b = [0; 4];
        self.memory.read_exact_at(&mut b, at).unwrap();
        u32::from_le_bytes(b)
    }

    fn wait_fence(&mut self) {
        while self.word(Host::FENCE) != self.token {
            // Keeps the card's clock going, and asks whether it is there.
            assert_eq!(self.host.read(HOST_ID), CARD_ID);
        }
    }

    fn interrupts(&mut self) -> u64 {
        let mut b = [0; 8];
        (&self.irq).read_exact(&mut b).map_or(0, |()| u64::from_ne_bytes(b))
    }
}

#[test]
fn a_card_that_is_no_bus_master_does_no_dma_and_raises_no_interrupt() {
    let sim = Simulator::start(&["a"]);
    let mut d = Driver::new(&sim);
    d.post();
    d.wait_fence();
    // The event is there and is announced; the card may not say so.
    d.host.enable(MEMORY);
    d.host.write(HOST_EVT_CI, 1 << 31);
    while sim.ask("stats")["cards"][0]["interrupts"] == 0 {}
    assert_eq!(d.interrupts(), 0);
    d.post();
    while d.host.read(HOST_CMD_CI) >> 31 == 0 {}
    assert_eq!(d.word(Host::FENCE), 1, "nothing was written");
    let stats = sim.ask("stats");
    let dma = &stats["cards"][0]["dma"];
    assert_eq!(dma["no_bus_master"], 1, "one read of the ring");
    assert_eq!(dma["errors"], 1);
    // As bus master it goes on: the ring, which has not been read, is set up anew.
    d.host.enable(MEMORY | BUS_MASTER);
    assert_eq!(d.interrupts(), 1);
    d.start();
    d.post();
    d.wait_fence();
}

#[test]
fn bars_read_all_ones_while_memory_decoding_is_off() {
    let sim = Simulator::start(&["a"]);
    let mut host = sim.client("a");
    host.write(HOST_HB_CHALLENGE, 7);
    host.enable(BUS_MASTER);
    host.write(HOST_HB_CHALLENGE, 8);
    assert_eq!(host.read(HOST_ID), u32::MAX);
    assert_eq!(sim.ask("stats")["cards"][0]["bad_accesses"], 2);
    host.enable(MEMORY);
    assert_eq!((host.read(HOST_ID), host.read(HOST_HB_CHALLENGE)), (CARD_ID, 7));
}

#[test]
fn a_masked_msix_vector_waits_and_is_delivered_once() {
    let sim = Simulator::start(&["a"]);
    let mut d = Driver::new(&sim);
    let mut raised = 0;
    // Its own mask; the function's, in the configuration space; no descriptor.
    for way in 0..3 {
        let mask = |d: &mut Driver, on: bool| match way {
            0 => d.host.0.region_write(VFIO_PCI_BAR4_REGION_INDEX, 12, &u32::from(on).to_le_bytes()).unwrap(),
            1 => {
                // Message control of the capability at 0x88: enabled, function mask.
                let control = 0x8000u16 | u16::from(on) << 14;
                d.host.0.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 0x8a, &control.to_le_bytes()).unwrap();
            }
            _ => {
                let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
                let fd = [d.irq.as_raw_fd()];
                d.host.0.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 1, if on { &[] } else { &fd }).unwrap();
            }
        };
        mask(&mut d, true);
        for _ in 0..3 {
            d.post();
            d.wait_fence();
            // Armed behind what has come so far: each event raises one more.
            d.host.write(HOST_EVT_CI, (d.token - 1) | 1 << 31);
            raised += 1;
            while sim.ask("stats")["cards"][0]["interrupts"] != raised {}
        }
        let mut pending = [0; 4];
        d.host.0.region_read(VFIO_PCI_BAR4_REGION_INDEX, 0x800, &mut pending).unwrap();
        assert_eq!((d.interrupts(), u32::from_le_bytes(pending)), (0, 1), "way {way}");
        mask(&mut d, false);
        assert_eq!(d.interrupts(), 1, "way {way}");
        d.host.0.region_read(VFIO_PCI_BAR4_REGION_INDEX, 0x800, &mut pending).unwrap();
        assert_eq!((d.interrupts(), u32::from_le_bytes(pending)), (0, 0), "way {way}");
    }
}

#[test]
fn a_function_level_reset_under_traffic_ends_it_and_the_card_works_again() {
    let sim = Simulator::start(&["a"]);
    let mut d = Driver::new(&sim);
    for round in 0..5 {
        for _ in 0..3 {
            d.post();
        }
        d.host.write(HOST_EVT_CI, 1 << 31);
        // Device control of the capability at 0x48, initiate function-level reset.
        let mut control = [0; 2];
        d.host.0.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 0x50, &mut control).unwrap();
        control[1] |= 0x80;
        d.host.0.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 0x50, &control).unwrap();
        // As after power-on: no BARs, no DMA, nothing pending.
        assert_eq!(d.host.read(HOST_ID), u32::MAX);
        d.host.enable(MEMORY);
        assert_eq!((d.host.read(HOST_STATUS), d.host.read(HOST_DMA_ENABLE)), (FW_RESET, 0), "round {round}");
        let mut before = [0; 0x3000];
        d.memory.read_exact_at(&mut before, 0).unwrap();
        d.interrupts();
        d.host.enable(MEMORY | BUS_MASTER);
        for _ in 0..200 {
            d.host.read(HOST_ID);
        }
        let mut after = [0; 0x3000];
        d.memory.read_exact_at(&mut after, 0).unwrap();
        assert!(before == after && d.interrupts() == 0, "round {round}");
        d.start();
        d.post();
        d.wait_fence();
    }
}
