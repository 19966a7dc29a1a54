// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator as a program, and a vfio-user client in place of QEMU.

// Each test program uses a part of it.
#![allow(dead_code)]

use berth_abi::host::*;
use berth_abi::message::Entry;
use berth_abi::ring::{ENTRY_BYTES, ENTRY_WORDS, EVENT_PHASE};
use berth_abi::wqe::PHASE;
use berth_sim::control::ask;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use vfio_bindings::bindings::vfio::{VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX};
use vfio_user::Client;

/// An entry of a ring as it lies in memory.
pub fn bytes_of(entry: Entry) -> Vec<u8> {
    entry.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The event at this place of memory, if the card has written one in the first round of the ring.
pub fn event_in(memory: &File, at: u64) -> Option<Entry> {
    let mut bytes = [0; ENTRY_BYTES as usize];
    memory.read_exact_at(&mut bytes, at).unwrap();
    let mut entry = [0; ENTRY_WORDS];
    for (word, bytes) in entry.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().unwrap());
    }
    (entry[EVENT_PHASE] & PHASE != 0).then_some(entry)
}

/// The simulator as a process of its own, with all its files in one folder.
pub struct Simulator {
    child: Child,
    dir: tempfile::TempDir,
}

impl Simulator {
    /// With cards whose sockets have these names in its folder.
    pub fn start(cards: &[&str]) -> Self {
        Self::start_with(cards, |_| Vec::new())
    }

    /// And with arguments that its folder is needed for.
    pub fn start_with(cards: &[&str], more: impl Fn(&Path) -> Vec<OsString>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-sim"));
        command.arg("run").arg("--control").arg(dir.path().join("control"));
        command.arg("--stats").arg(dir.path().join("stats.json"));
        command.arg("--capture").arg(dir.path().join("wire.pcapng"));
        command.arg("--record").arg(dir.path().join("samples.jsonl"));
        for card in cards {
            command.arg("--card").arg(dir.path().join(card));
        }
        command.args(more(dir.path()));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready.trim(), r#"{"ready":true}"#);
        Self { child, dir }
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Connects to a card as QEMU would; it decodes memory accesses and is bus master.
    pub fn client(&self, card: &str) -> Host {
        let mut host = Host(Client::new(&self.path(card)).unwrap());
        host.enable(MEMORY | BUS_MASTER);
        host
    }

    /// A request to the control socket.
    pub fn ask(&self, request: &str) -> Value {
        ask(&self.path("control"), request).unwrap()
    }

    /// Ends it; its statistics.
    pub fn quit(mut self) -> Value {
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

/// Bit of the command register of the configuration space: memory decoding.
pub const MEMORY: u16 = 2;
/// Bus mastering.
pub const BUS_MASTER: u16 = 4;

/// A host's side of a card.
pub struct Host(pub Client);

impl Host {
    /// Where the event ring is from where the command ring is, and the word of fences.
    pub const EVENTS: u64 = 0x1000;
    pub const FENCE: u64 = 0x2000;

    /// Writes the command register of the configuration space.
    pub fn enable(&mut self, command: u16) {
        self.0.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &command.to_le_bytes()).unwrap();
    }

    /// Tells the card its rings, of 16 places each, from bus address `bus` on, and lets it reach them.
    pub fn start_rings(&mut self, bus: u64) {
        let places = [(HOST_CMD_BASE_LO, 0), (HOST_EVT_BASE_LO, Self::EVENTS), (HOST_FENCE_LO, Self::FENCE)];
        for (low, at) in places {
            self.write(low, (bus + at) as u32);
            self.write(low + 4, ((bus + at) >> 32) as u32);
        }
        self.write(HOST_CMD_LOG2, 4);
        self.write(HOST_EVT_LOG2, 4);
        self.write(HOST_DMA_ENABLE, 1);
    }

    /// Reads a register of BAR 0.
    pub fn read(&mut self, register: u32) -> u32 {
        let mut b = [0; 4];
        self.0.region_read(VFIO_PCI_BAR0_REGION_INDEX, u64::from(register), &mut b).unwrap();
        u32::from_le_bytes(b)
    }

    /// Writes a register of BAR 0.
    pub fn write(&mut self, register: u32, value: u32) {
        let (region, offset) = (VFIO_PCI_BAR0_REGION_INDEX, u64::from(register));
        self.0.region_write(region, offset, &value.to_le_bytes()).unwrap();
    }
}

/// Guest memory.
pub fn memfd(len: u64) -> File {
    // SAFETY: a new descriptor, owned by the File alone; the name is NUL-terminated.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"guest".as_ptr(), 0)) };
    file.set_len(len).unwrap();
    file
}

/// Where an interrupt goes; `flags` as of eventfd(2).
pub fn eventfd(flags: i32) -> File {
    // SAFETY: a new descriptor, owned by the File alone.
    unsafe { File::from_raw_fd(libc::eventfd(0, flags)) }
}
