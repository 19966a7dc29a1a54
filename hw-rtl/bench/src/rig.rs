// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card in the model's slot, with host memory and its core in reset.

use anyhow::{Result, bail, ensure};
use berth_abi::cpu::DMA_OK;
use berth_abi::host::HOST_DMA_ENABLE;
use berth_rtl_host::{Access, Board, Memory};

use crate::model::Model;

/// Bus address of the host memory's first byte.
pub const HOST_BASE: u64 = 0x1_2340_0000;

/// A card of `data_w` bits, reads taking `extra` cycles more, with these bytes as host memory.
pub fn board(model: &Model, data_w: usize, extra: u64, bytes: &[u8]) -> Board {
    let memory = Memory::new(model.seed);
    memory.map(HOST_BASE, bytes, Access::ReadWrite);
    let mut board = Board::new(model.slot(data_w, extra), memory);
    board.card.set_pcie_limits(model.limits());
    board.card.set_reg(HOST_DMA_ENABLE, 1);
    board
}

/// Waits for the next DMA command to end well; gives its tag.
///
/// # Errors
/// When it fails, or does not end.
pub fn dma_done(board: &mut Board) -> Result<u32> {
    for _ in 0..100_000 {
        if let Some((status, tag)) = board.dma_done() {
            ensure!(status == DMA_OK, "a DMA command ended with status {status}");
            return Ok(tag);
        }
    }
    bail!("a DMA command does not end")
}
