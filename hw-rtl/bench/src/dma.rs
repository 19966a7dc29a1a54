// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The DMA engines alone: commands of 4 KiB back to back, issued through the core's registers.

use anyhow::{Result, ensure};
use berth_abi::card::{RX_SLOTS, TX_SLOTS};
use berth_abi::cpu::{rx_slot, tx_slot};
use berth_abi::ring::ENTRY_BYTES;
use berth_random::Rng;
use berth_rtl_host::{Board, Commands, Dma, Page, Pager};
use std::collections::BTreeSet;

use crate::model::Model;
use crate::rig::{HOST_BASE, board, dma_done};
use crate::rows::{Bar, Row};

/// Bytes of a command.
const LEN: usize = 4096;
/// Commands of each direction in one measurement.
const COMMANDS: usize = 192;
/// Address space and first page of virtual addresses, and room for the command ring that makes them known.
const ASID: u32 = 3;
const FIRST_VPN: u64 = 0x7_f123_4000;
const RING_LOG2: u32 = 9;
/// Share of the framing bound that must be reached.
const SHARE: f64 = 0.99;

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Reads of host memory.
    Read,
    /// Posted writes.
    Write,
    /// Both at once.
    Both,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Width of the card.
    pub data_w: usize,
    /// What moves.
    pub load: Load,
    /// Cycles that reads take longer than the model says.
    pub extra: u64,
    /// Distance of buffers in host memory from a page.
    pub host_offset: usize,
    /// Distance of buffers in packet RAM from a slot.
    pub local_offset: u32,
    /// Addresses are virtual ones of pages that are pinned and known to the card.
    pub translated: bool,
}

/// What was measured of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Bytes per cycle from the first beat to the last.
    pub rate: f64,
    /// Bytes per cycle that the port allows and, of reads, the number of them that may be out.
    pub limit: f64,
    /// Cycles in which a beat was offered and not taken.
    pub waits: u64,
}

/// Beats of a buffer of `LEN` bytes at `offset` in a page, when it is cut at multiples of `cut`.
fn beats(offset: usize, cut: usize, beat: usize) -> usize {
    let (mut at, mut n) = (offset, 0);
    while at < offset + LEN {
        let end = (at / cut * cut + cut).min(offset + LEN);
        n += (end - at).div_ceil(beat);
        at = end;
    }
    n
}

/// Moves `COMMANDS` buffers and compares every byte. Gives the rate of reads and of writes, zero where there were none.
///
/// # Errors
/// When a command fails or a byte is wrong.
pub fn measure(model: &Model, s: Setup) -> Result<[Option<Rate>; 2]> {
    // Buffers in host memory: for reads, then for writes; an odd one does not reach into the next one's page.
    let pitch = 2 * LEN;
    let mut random = Rng(model.seed);
    let ring = 2 * COMMANDS * pitch;
    let mut memory = random.bytes(ring);
    if s.translated {
        memory.resize(ring + ((ENTRY_BYTES as usize) << RING_LOG2), 0);
    }
    let slots: Vec<Vec<u8>> = (0..RX_SLOTS).map(|_| random.bytes(LEN + 64)).collect();
    let mut rig = board(model, s.data_w, s.extra, &memory);
    for (slot, data) in (0..).zip(&slots) {
        rig.fill_packet_ram(rx_slot(slot), data);
    }
    let read_at = |n: usize| n * pitch + s.host_offset;
    let write_at = |n: usize| (COMMANDS + n) * pitch + s.host_offset;
    let asid = s.translated.then_some(ASID);
    if s.translated {
        let Board { card, memory } = &mut rig;
        let mut commands = Commands::new(HOST_BASE + ring as u64, RING_LOG2);
        commands.attach(card, memory);
        let (mut pager, vpns) = (Pager::new(u64::MAX, 0), (FIRST_VPN..).step_by(2).take(2 * COMMANDS));
        for (vpn, bus) in vpns.clone().zip((HOST_BASE..).step_by(pitch)) {
            pager.map(ASID, vpn, Page { bus, writable: true });
        }
        pager.pin(ASID, vpns, memory).into_iter().for_each(|entry| commands.put(entry));
        commands.carry_out(card, memory);
    }
    let at = |offset: usize| if s.translated { FIRST_VPN * 4096 + offset as u64 } else { HOST_BASE + offset as u64 };
    let (reads, writes) = (s.load != Load::Write, s.load != Load::Read);

    rig.card.reset_ports();
    let (mut last, mut expected) = (None, BTreeSet::new());
    for n in 0..COMMANDS {
        let mut go = |d: Dma| {
            rig.dma(d, last);
            last = Some(d);
            expected.insert(d.tag);
        };
        let len = LEN as u32;
        if reads {
            let local = tx_slot(n as u32 % TX_SLOTS) + s.local_offset;
            go(Dma { local, len, tag: n as u32, addr: at(read_at(n)), asid, ..Dma::default() });
        }
        if writes {
            let local = rx_slot(n as u32 % RX_SLOTS) + s.local_offset;
            let tag = (COMMANDS + n) as u32;
            go(Dma { write: true, local, len, tag, addr: at(write_at(n)), asid, slot: None });
        }
    }
    while !expected.is_empty() {
        let tag = dma_done(&mut rig)?;
        ensure!(expected.remove(&tag), "tag {tag} ended twice");
    }
    let ports = rig.card.ports();

    if reads {
        for n in COMMANDS - TX_SLOTS as usize..COMMANDS {
            let local = tx_slot(n as u32 % TX_SLOTS) + s.local_offset;
            let (got, want) = (rig.packet_ram(local, LEN), &memory[read_at(n)..][..LEN]);
            ensure!(got == want, "what was read is not what host memory holds ({s:?}, command {n})");
        }
    }
    let mut want = memory;
    want.truncate(ring);
    if writes {
        for n in 0..COMMANDS {
            let from = s.local_offset as usize;
            want[write_at(n)..][..LEN].copy_from_slice(&slots[n % RX_SLOTS as usize][from..from + LEN]);
        }
    }
    ensure!(rig.memory.peek(HOST_BASE, ring) == want, "host memory is not what was written ({s:?})");

    let beat = 2 * s.data_w / 8;
    let rate = |port: berth_rtl::Port| -> Result<Rate> {
        let bytes = (COMMANDS * LEN) as f64;
        ensure!(port.bytes == (COMMANDS * LEN) as u64, "{} bytes moved instead of {bytes}", port.bytes);
        let framing = LEN as f64 / beats(s.host_offset, model.mps as usize, beat) as f64;
        Ok(Rate { rate: bytes / port.span() as f64, limit: framing.min(model.host_rate(s.data_w)), waits: port.waits })
    };
    let read = |port| -> Result<Rate> {
        let Rate { rate, limit, waits } = rate(port)?;
        Ok(Rate { rate, limit: limit.min(model.in_flight(s.data_w, s.extra)), waits })
    };
    Ok([
        if reads { Some(read(ports.completions)?) } else { None },
        if writes { Some(rate(ports.writes)?) } else { None },
    ])
}

/// The rows of `dma_bw` at one width, and the unaligned ones, which are only reported.
///
/// # Errors
/// As [`measure`].
pub fn bandwidth(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (extra, host_offset, local_offset, translated) in
        [(0, 0, 0, false), (200, 0, 0, false), (0, 0, 0, true), (200, 0, 0, true), (0, 3, 5, false)]
    {
        for load in [Load::Read, Load::Write, Load::Both] {
            if translated && load != Load::Both {
                continue;
            }
            let rates = measure(model, Setup { data_w, load, extra, host_offset, local_offset, translated })?;
            for (name, rate) in ["read", "write"].into_iter().zip(rates) {
                let Some(rate) = rate else { continue };
                let aligned = host_offset == 0 && local_offset == 0;
                let mut params = vec![
                    ("data_w", data_w.into()),
                    ("direction", name.into()),
                    ("both", (load == Load::Both).into()),
                    ("bytes", LEN.into()),
                    ("extra_latency", extra.into()),
                    ("translated", translated.into()),
                    ("waits", rate.waits.into()),
                ];
                if !aligned {
                    params.push(("host_offset", host_offset.into()));
                    params.push(("local_offset", local_offset.into()));
                }
                let (id, bar) = if aligned {
                    ("dma_bw", Bar::AtLeast(SHARE * rate.limit))
                } else {
                    ("dma_bw_unaligned", Bar::None)
                };
                rows.push(Row::new(id, &params, rate.rate, "B/cycle", Some(rate.limit), bar));
            }
        }
    }
    Ok(rows)
}

/// Reads at growing latency: where the outstanding requests no longer cover it.
///
/// # Errors
/// As [`measure`].
pub fn latency_sweep(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for latency in [250, 400, 500, 600, 800, 1200] {
        let Some(extra) = u64::checked_sub(latency, model.read_latency) else { continue };
        let setup = Setup { data_w, load: Load::Read, extra, host_offset: 0, local_offset: 0, translated: false };
        if let [Some(rate), _] = measure(model, setup)? {
            let params = [("data_w", data_w.into()), ("read_latency", latency.into())];
            rows.push(Row::new("dma_read_latency", &params, rate.rate, "B/cycle", Some(rate.limit), Bar::None));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::beats;

    #[test]
    fn aligned_buffer_fills_every_beat_and_an_odd_one_needs_one_more_per_cut_end() {
        assert_eq!([8, 16, 32, 64].map(|beat| beats(0, 256, beat)), [512, 256, 128, 64]);
        // 253 bytes, 15 times 256, 3 bytes
        assert_eq!(beats(3, 256, 64), 4 + 15 * 4 + 1);
    }
}
