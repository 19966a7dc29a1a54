// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The MAC path: frames back to back from packet RAM to the wire with their iCRC, and from the wire, checked, to
//! packet RAM.

use anyhow::{Result, ensure};
use berth_abi::card::{RX_SLOTS, TX_SLOTS};
use berth_abi::cpu::*;
use berth_random::Rng;
use berth_rtl_host::Board;

use crate::model::Model;
use crate::rig::board;
use crate::rows::{Bar, Row};

/// Bytes in front of the payload of a SEND: Ethernet, IPv4, UDP, BTH.
const HEADERS: usize = 14 + 20 + 8 + 12;
/// Frames of one burst to the wire: as many as the transmit queue holds.
const TX_BURST: u32 = 32;

/// A RoCEv2 frame without its iCRC.
fn frame(random: &mut Rng, payload: usize) -> Vec<u8> {
    let mut f = random.bytes(HEADERS + payload);
    let ip_len = (HEADERS - 14 + payload + 4) as u16;
    f[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    f[16..18].copy_from_slice(&ip_len.to_be_bytes());
    f[20..22].copy_from_slice(&[0x40, 0]);
    f[23] = 17;
    f[36..38].copy_from_slice(&4791u16.to_be_bytes());
    f[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    f
}

/// The rows of `mac_bw` and `mac_tx_latency` at one width.
///
/// # Errors
/// When a frame is lost or changed.
pub fn bandwidth(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for payload in [64, 1024, 4096] {
        let mut random = Rng(model.seed ^ payload as u64);
        let mut rig = board(model, data_w, 0, &[]);
        let frames: Vec<Vec<u8>> = (0..TX_SLOTS).map(|_| frame(&mut random, payload)).collect();
        for (slot, f) in (0..).zip(&frames) {
            rig.fill_packet_ram(tx_slot(slot), f);
        }
        let send = |rig: &mut Board, slot: u32| {
            rig.set_cpu(CPU_TX_SEND, TxSend { length: (HEADERS + payload) as u32, raw: 0, loopback: 0, slot }.word())
        };

        // One frame alone: cycles from the command to its first beat.
        send(&mut rig, 0);
        let begin = rig.card.cycles();
        rig.card.run(2000);
        let first = rig.card.take_tx();
        ensure!(first.is_some(), "no frame at the MAC");
        let latency = first.map_or(0, |f| f.start_cycle - begin + 1);

        // The transmitter keeps the outcomes of as many frames as a burst has.
        ensure!(rig.cpu(CPU_TX_DONE) >> 31 != 0, "no outcome of a frame that has left");

        // A burst, queued while the MAC does not take frames.
        rig.card.set_tx_ready(false);
        for n in 0..TX_BURST {
            send(&mut rig, n % TX_SLOTS);
        }
        rig.card.run(200);
        rig.card.reset_ports();
        rig.card.set_tx_ready(true);
        let mut sent = Vec::new();
        while sent.len() < TX_BURST as usize {
            rig.card.run(64);
            sent.extend(std::iter::from_fn(|| rig.card.take_tx()));
            ensure!(rig.card.cycles() < begin + 1_000_000, "frames do not leave");
        }
        let tx = rig.card.ports().tx;
        for (n, f) in sent.iter().enumerate() {
            let want = &frames[n % TX_SLOTS as usize];
            ensure!(f.data.len() == want.len() + 4 && f.data.starts_with(want), "frame {n} is not what was sent");
        }

        // What was sent comes in again, as many frames as there are slots.
        rig.card.reset_ports();
        for f in sent.iter().take(RX_SLOTS as usize) {
            rig.card.push_rx(f.data.clone());
        }
        rig.card.run(RX_SLOTS as u64 * (sent[0].beats + 8) + 200);
        ensure!(rig.card.rx_pending() == 0, "frames are not taken");
        let rx = rig.card.ports().rx;
        for (n, f) in sent.iter().enumerate().take(RX_SLOTS as usize) {
            let desc = rig.cpu(CPU_RX_DESC);
            ensure!(desc >> 31 != 0 && desc >> 16 & 0x1fff == f.data.len() as u32, "frame {n} was not received");
            ensure!(rig.cpu(CPU_RX_FLAGS) == RX_FLAG_ROCE | RX_FLAG_ICRC_OK, "the iCRC of frame {n} is wrong");
            rig.set_cpu(CPU_RX_POP, 0);
            let data = rig.packet_ram(rx_slot(desc & 0xff), f.data.len());
            ensure!(data == f.data, "frame {n} is not what came in");
            rig.set_cpu(CPU_RX_FREE, desc & 0xff);
        }

        for (direction, port) in [("tx", tx), ("rx", rx)] {
            let params = [
                ("data_w", data_w.into()),
                ("direction", direction.into()),
                ("payload", payload.into()),
                ("bubbles", port.bubbles().into()),
            ];
            let value = port.beats as f64 / port.span() as f64;
            rows.push(Row::new("mac_bw", &params, value, "beats/cycle", Some(1.0), Bar::AtLeast(1.0)));
        }
        let params = [("data_w", data_w.into()), ("payload", payload.into())];
        rows.push(Row::new("mac_tx_latency", &params, latency as f64, "cycles", None, Bar::None));
    }
    Ok(rows)
}
