// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Verilated card, attached to a slot's host memory and interrupts.

use crate::card::{SimCard, TxFrame};
use crate::device::{Interrupts, Slot};
use crate::dma::DmaSpace;
use berth_rtl::{BAR_CONTROL, BAR_DOORBELL, Card, CardConfig, HostError, HostMemory, PcieLimits};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

struct HostPort {
    dma: Arc<Mutex<DmaSpace>>,
    interrupts: Arc<Interrupts>,
}

impl HostMemory for HostPort {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError> {
        let mut dma = self.dma.lock().unwrap_or_else(PoisonError::into_inner);
        dma.read(addr, buf).map_err(|_| HostError)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError> {
        let mut dma = self.dma.lock().unwrap_or_else(PoisonError::into_inner);
        dma.write(addr, data).map_err(|_| HostError)
    }

    fn msix(&mut self, vector: u32) {
        self.interrupts.raise(vector);
    }
}

struct Rtl(Card);

// The card's two BARs by their number in PCI configuration space.
fn port(bar: u32) -> u8 {
    if bar == 0 { BAR_CONTROL } else { BAR_DOORBELL }
}

impl SimCard for Rtl {
    fn run(&mut self, cycles: u64) {
        self.0.run(cycles);
    }
    fn run_until_idle(&mut self, limit: u64) {
        self.0.run_until_idle(limit);
    }
    fn card_cycles(&self) -> u64 {
        self.0.card_cycles()
    }
    fn idle(&self) -> bool {
        self.0.idle()
    }
    fn cycles(&self) -> u64 {
        self.0.cycles()
    }
    fn timer(&self) -> Option<u64> {
        self.0.timer()
    }
    fn skip_to(&mut self, cycle: u64) {
        self.0.skip_to(cycle);
    }
    fn mmio_write(&mut self, bar: u32, offset: u64, data: u64, len: usize) {
        self.0.post_write(port(bar), offset, data, len);
    }
    fn set_device_control(&mut self, control: u16) {
        self.0.set_pcie_limits(PcieLimits::from_device_control(control));
    }
    fn writes_pending(&self) -> usize {
        self.0.writes_pending()
    }
    fn mmio_read(&mut self, bar: u32, offset: u64, len: usize) -> u64 {
        self.0.mmio_read(port(bar), offset, len)
    }
    fn take_tx(&mut self) -> Option<TxFrame> {
        let f = self.0.take_tx()?;
        Some(TxFrame { data: f.data, start_cycle: f.start_cycle, end_cycle: f.end_cycle })
    }
    fn set_tx_ready(&mut self, ready: bool) {
        self.0.set_tx_ready(ready);
    }
    fn push_rx(&mut self, frame: Vec<u8>, damaged: bool) {
        if damaged {
            self.0.push_rx_damaged(frame);
        } else {
            self.0.push_rx(frame);
        }
    }
    fn rx_pending(&self) -> usize {
        self.0.rx_pending()
    }
    fn drain(&mut self) {
        self.0.drain();
    }
    fn set_stalled(&mut self, stalled: bool) {
        self.0.set_stalled(stalled);
    }
    fn trace(&mut self, file: Option<&Path>) -> Result<(), String> {
        match file {
            Some(path) => self.0.open_trace(path).map_err(|e| e.to_string()),
            None => {
                self.0.close_trace();
                Ok(())
            }
        }
    }
}

/// A Verilated card behind `slot`; `read_latency` in cycles, `seed` for the order of DMA completions.
pub fn card(slot: &Slot, read_latency: u64, seed: u64) -> impl SimCard + use<> {
    let host = HostPort { dma: slot.dma.clone(), interrupts: slot.interrupts.clone() };
    let config = CardConfig { read_latency, seed, out_of_order: true, ..CardConfig::default() };
    Rtl(Card::new(config, Box::new(host)))
}
