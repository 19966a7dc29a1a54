// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast the Verilated card is on this machine, in cycles per second of wall-clock
//! time: `cargo run --release -p berth-rtl --example speed`.

use berth_abi::card::{ABI_VERSION, FW_MAGIC};
use berth_abi::host::{HOST_FW_BOOT, HOST_FW_DATA};
use berth_rtl::{BAR_CONTROL, Card, CardConfig, HostError, HostMemory};
use std::time::Instant;

struct Nothing;

impl HostMemory for Nothing {
    fn read(&mut self, _addr: u64, _buf: &mut [u8]) -> Result<(), HostError> {
        Err(HostError)
    }
    fn write(&mut self, _addr: u64, _data: &[u8]) -> Result<(), HostError> {
        Err(HostError)
    }
    fn msix(&mut self, _vector: u32) {}
}

fn measure(name: &str, card: &mut Card, cycles: u64, mut each: impl FnMut(&mut Card)) {
    let start = Instant::now();
    let begin = card.cycles();
    while card.cycles() < begin + cycles {
        card.run(1000);
        each(card);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{name:<40} {:>8.0} kHz", (card.cycles() - begin) as f64 / seconds / 1e3);
}

/// CRC-32 as in zlib.
fn crc(data: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// A card that runs a program.
fn running(program: &[u32]) -> Card {
    let mut card = Card::new(CardConfig::default(), Box::new(Nothing));
    let payload: Vec<u8> = program.iter().flat_map(|w| w.to_le_bytes()).collect();
    let header = [FW_MAGIC, ABI_VERSION, payload.len() as u32, crc(&payload), 0, 0, 0, 0];
    for word in header.iter().chain(program) {
        card.mmio_write(BAR_CONTROL, HOST_FW_DATA.into(), u64::from(*word), 4);
    }
    card.mmio_write(BAR_CONTROL, HOST_FW_BOOT.into(), 1, 4);
    card
}

fn main() {
    let mut card = Card::new(CardConfig::default(), Box::new(Nothing));
    measure("core in reset, nothing to do", &mut card, 2_000_000, |_| ());
    let frame = vec![0x55; 4000];
    measure("core in reset, frames come in", &mut card, 1_000_000, |card| card.push_rx(frame.clone()));

    // lui x1, 0x80000 ; lw x2, 4(x1) (CPU_WAIT) ; j .
    let mut card = running(&[0x8000_00b7, 0x0040_a103, 0x0000_006f]);
    measure("core in CPU_WAIT", &mut card, 2_000_000, |_| ());

    // li x5, 0x1000 ; again: lw x2, 0(x5) ; addi x2, x2, 1 ; sw x2, 0(x5) ; addi x3, x3, 3 ; xor x4, x3, x2 ; j again
    let program = [0x0000_12b7, 0x0002_a103, 0x0011_0113, 0x0022_a023, 0x0031_8193, 0x0021_c233, 0xfedf_f06f];
    let mut card = running(&program);
    measure("core computes", &mut card, 1_000_000, |_| ());

    // lui x1, 0x80000 ; again: lw x2, 0x20(x1) (CPU_CYCLE_LO) ; j again
    let mut card = running(&[0x8000_00b7, 0x0200_a103, 0xffdf_f06f]);
    measure("core reads registers", &mut card, 1_000_000, |_| ());
}
