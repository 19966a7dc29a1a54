// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw queues: whole frames of the kernel out of host memory to the wire and from the wire into it, both ways at once.

use anyhow::{Result, ensure};
use berth_abi::counters::{C_RAW_BAD, C_RAW_NO_RECEIVE, C_RAW_TOO_LONG};
use berth_abi::cpu::{CPU_CQ_ATTR, CPU_CQ_BASE_HI, CPU_CQ_BASE_LO, CPU_CQ_CFG, CPU_RAW_GO, CPU_RAW_W0, CqAttr};
use berth_abi::host::{DB_RAW_RQ, DB_RAW_SQ};
use berth_abi::raw::{RAW_DEFAULT, RAW_GO_CREATE, RAW_WQE_BYTES, RawAttr, RawCqs};
use berth_abi::wqe::{CQE_BYTES, Cqe, OP_RECV, OP_SEND};
use berth_random::Rng;
use berth_rtl::BAR_DOORBELL;
use berth_rtl_host::raw_element;

use crate::model::Model;
use crate::rig::{HOST_BASE, board};
use crate::rows::{Bar, Row};

/// Frames of each direction.
const FRAMES: usize = 240;
const LOG2: u32 = 8;
/// Room for a frame, and for both rings and completion queues in front of all.
const PITCH: usize = 2048;
const FRONT: usize = 4 << 16;
/// Share of the wire's beats that large frames must reach, and most cycles for a small one.
const SHARE: f64 = 0.97;
const SMALL_CYCLES: f64 = 12.0;

/// The rows of `raw_1500` and `raw_64` at one width.
///
/// # Errors
/// When a frame is lost or changed.
pub fn bandwidth(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (id, len) in [("raw_1500", 1500), ("raw_64", 64)] {
        let mut random = Rng(model.seed ^ len as u64);
        let frames: Vec<Vec<u8>> = (0..2 * FRAMES).map(|_| random.bytes(len)).collect();
        let (sends, receives) = frames.split_at(FRAMES);
        let mut memory = vec![0; FRONT + 2 * FRAMES * PITCH];
        for (n, frame) in sends.iter().enumerate() {
            memory[FRONT + n * PITCH..][..len].copy_from_slice(frame);
        }
        let place = |n: usize| HOST_BASE + (FRONT + n * PITCH) as u64;
        for n in 0..2 * FRAMES {
            let send = n < FRAMES;
            let (opcode, bytes) = if send { (OP_SEND, len) } else { (OP_RECV, PITCH) };
            let at = usize::from(!send) * (1 << 16) + n % FRAMES * RAW_WQE_BYTES as usize;
            let wqe = raw_element(opcode, 0, n as u64, &[(place(n), bytes as u32)]);
            memory[at..at + RAW_WQE_BYTES as usize].copy_from_slice(&wqe.words().map(u64::to_le_bytes).concat());
        }
        let mut rig = board(model, data_w, 0, &memory);
        let halves = |at: u64| [at as u32, (at >> 32) as u32];
        for cqn in 0..2 {
            let [low, high] = halves(HOST_BASE + (2 << 16) + (u64::from(cqn) << 16));
            rig.set_cpu(CPU_CQ_BASE_LO, low);
            rig.set_cpu(CPU_CQ_BASE_HI, high);
            rig.set_cpu(CPU_CQ_ATTR, CqAttr { valid: 1, page: 0, log2: LOG2 }.word());
            rig.set_cpu(CPU_CQ_CFG, cqn);
        }
        let attr = RawAttr { flags: RAW_DEFAULT.into(), log2_rq: LOG2, log2_sq: LOG2, number: 0 }.word();
        let ([s, s_high], [r, r_high]) = (halves(HOST_BASE), halves(HOST_BASE + (1 << 16)));
        let words = [attr, RawCqs { recv: 1, send: 0 }.word(), s, s_high, r, r_high];
        for (at, word) in (CPU_RAW_W0..).step_by(4).zip(words) {
            rig.set_cpu(at, word);
        }
        rig.set_cpu(CPU_RAW_GO, RAW_GO_CREATE);
        let pi = (FRAMES as u64) << 16;
        rig.card.mmio_write(BAR_DOORBELL, DB_RAW_RQ.into(), pi, 8);
        rig.card.run(2000);

        rig.card.reset_ports();
        rig.card.post_write(BAR_DOORBELL, DB_RAW_SQ.into(), pi, 8);
        let mut spaced = 0;
        let (mut sent, begin) = (Vec::new(), rig.card.cycles());
        while sent.len() < FRAMES || rig.card.rx_pending() > 0 || spaced < FRAMES {
            // Small frames come no faster than is asked for, and than a narrow host port can carry them with their elements
            // and completions; the wire takes large ones as they come.
            let pace = SMALL_CYCLES * (512 / data_w).min(3) as f64;
            let due = if len < 100 { (rig.card.cycles() - begin) as f64 / pace } else { FRAMES as f64 };
            while spaced < FRAMES && (spaced as f64) < due {
                rig.card.push_rx(receives[spaced].clone());
                spaced += 1;
            }
            rig.card.run(4);
            sent.extend(std::iter::from_fn(|| rig.card.take_tx()));
            ensure!(rig.card.cycles() < begin + 1_000_000, "frames do not leave");
        }
        rig.card.run(3000);
        let ports = rig.card.ports();
        let lost = [C_RAW_NO_RECEIVE, C_RAW_TOO_LONG, C_RAW_BAD].map(|counter| rig.card.counter(counter));
        ensure!(lost == [0; 3], "{id}, {data_w} bits: {lost:?} frames are lost");
        for (n, frame) in sent.iter().enumerate() {
            ensure!(frame.data == sends[n], "frame {n} is not what was sent");
        }
        for (n, receive) in receives.iter().enumerate().take(FRAMES) {
            let at = |cqn: u64| HOST_BASE + ((2 + cqn) << 16) + (n as u64) * u64::from(CQE_BYTES);
            for (cqn, wr_id) in [(0, n), (1, FRAMES + n)] {
                let cqe = Cqe::from_words(&rig.memory.words(at(cqn)));
                ensure!((cqe.wr_id, cqe.status, cqe.byte_len) == (wr_id as u64, 0, len as u32), "{cqn} {n}: {cqe:?}");
            }
            ensure!(rig.memory.peek(place(FRAMES + n), len) == *receive, "frame {n} is not what came");
        }
        for (direction, port) in [("tx", ports.tx), ("rx", ports.rx)] {
            let params =
                [("data_w", data_w.into()), ("direction", direction.into()), ("bubbles", port.bubbles().into())];
            let span = port.span() as f64;
            rows.push(if len < 100 {
                let bar = if data_w == 512 { Bar::AtMost(SMALL_CYCLES) } else { Bar::None };
                Row::new(id, &params, span / FRAMES as f64, "cycles", None, bar)
            } else {
                Row::new(id, &params, port.beats as f64 / span, "beats/cycle", Some(1.0), Bar::AtLeast(SHARE))
            });
        }
    }
    Ok(rows)
}
