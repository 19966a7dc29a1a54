// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole simulator with the real RTL; a vfio-user client stands in place of QEMU.

use berth_abi::card::{ABI_VERSION, BAR0_SIZE, CARD_ID, CLOCK_HZ, PCI_DEVICE, PCI_VENDOR};
use berth_abi::host::*;
use berth_abi::ring::{CMD_FENCE, CMD_PAGE_EVICT, EV_PAGE_EVICTED};
use berth_abi::status::{FW_BAD_MAGIC, FW_REFUSED, FW_RESET};
use berth_sim::control::ask;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;

struct Simulator {
    child: Child,
    dir: tempfile::TempDir,
}

impl Simulator {
    fn start(cards: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-sim"));
        command.arg("run").arg("--control").arg(dir.path().join("control"));
        command.arg("--stats").arg(dir.path().join("stats.json"));
        command.arg("--capture").arg(dir.path().join("wire.pcapng"));
        command.arg("--record").arg(dir.path().join("samples.jsonl"));
        for card in cards {
            command.arg("--card").arg(dir.path().join(card));
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready.trim(), r#"{"ready":true}"#);
        Self { child, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn client(&self, card: &str) -> Host {
        Host(Client::new(&self.path(card)).unwrap())
    }

    fn ask(&self, request: &str) -> Value {
        ask(&self.path("control"), request).unwrap()
    }

    fn quit(mut self) -> Value {
        assert_eq!(self.ask("quit")["ok"], true);
        assert!(self.child.wait().unwrap().success());
        serde_json::from_slice(&std::fs::read(self.path("stats.json")).unwrap()).unwrap()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Host(Client);

impl Host {
    fn read(&mut self, register: u32) -> u32 {
        let mut b = [0; 4];
        self.0.region_read(VFIO_PCI_BAR0_REGION_INDEX, u64::from(register), &mut b).unwrap();
        u32::from_le_bytes(b)
    }

    fn write(&mut self, register: u32, value: u32) {
        let (region, offset) = (VFIO_PCI_BAR0_REGION_INDEX, u64::from(register));
        self.0.region_write(region, offset, &value.to_le_bytes()).unwrap();
    }
}

fn memfd(len: u64) -> File {
    // SAFETY: a new descriptor, owned by the File alone; the name is NUL-terminated.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"guest".as_ptr(), 0)) };
    file.set_len(len).unwrap();
    file
}

fn eventfd() -> File {
    // SAFETY: a new descriptor, owned by the File alone.
    unsafe { File::from_raw_fd(libc::eventfd(0, 0)) }
}

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
    assert_eq!(host.read(HOST_STATUS), FW_RESET);
}

#[test]
fn commands_and_events_move_through_guest_memory_and_msix() {
    const BUS: u64 = 0x8000_0000;
    const EVENTS: u64 = 0x1000;
    const FENCE: u64 = 0x2000;
    let sim = Simulator::start(&["a", "b"]);
    let mut host = sim.client("a");
    let memory = memfd(0x10_000);
    host.0.dma_map(0, BUS, 0x10_000, memory.as_raw_fd()).unwrap();
    let irq = eventfd();
    let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
    host.0.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 1, &[irq.as_raw_fd()]).unwrap();

    let mut command = [0u32; 16];
    (command[0], command[1]) = (CMD_PAGE_EVICT, 5);
    let mut fence = [0u32; 16];
    (fence[0], fence[2], fence[3]) = (CMD_FENCE, 0x8877_6655, 0x4433_2211);
    let bytes: Vec<u8> = fence.iter().chain(&command).flat_map(|w| w.to_le_bytes()).collect();
    memory.write_all_at(&bytes, 0).unwrap();

    for (low, address) in [(HOST_CMD_BASE_LO, BUS), (HOST_EVT_BASE_LO, BUS + EVENTS), (HOST_FENCE_LO, BUS + FENCE)] {
        host.write(low, address as u32);
        host.write(low + 4, (address >> 32) as u32);
    }
    host.write(HOST_CMD_LOG2, 4);
    host.write(HOST_EVT_LOG2, 4);
    // Maximum payload 128 bytes, maximum read request 512.
    host.write(HOST_PCIE_LIMITS, 7 | 9 << 4);
    host.write(HOST_DMA_ENABLE, 1);
    host.write(HOST_EVT_CI, 1 << 31);
    host.write(HOST_CMD_PI, 2);

    let mut raised = [0; 8];
    (&irq).read_exact(&mut raised).unwrap();
    let mut event = [0; 64];
    memory.read_exact_at(&mut event, EVENTS).unwrap();
    let word = |i: usize| u32::from_le_bytes(event[4 * i..4 * i + 4].try_into().unwrap());
    assert_eq!((word(0) & 0xff, word(0) >> 31, word(1)), (EV_PAGE_EVICTED, 1, 1 << 15 | 5));
    let mut token = [0; 8];
    memory.read_exact_at(&mut token, FENCE).unwrap();
    assert_eq!(u64::from_le_bytes(token), 0x4433_2211_8877_6655);
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
