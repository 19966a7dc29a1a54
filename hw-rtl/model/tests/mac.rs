// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transmit and receive engines, iCRC, packet RAM: frames by loopback and at the MAC.

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_abi::host::{HOST_CTRL, HOST_STATUS};
use berth_abi::status::FW_RESET;
use berth_rtl::{BAR_CONTROL, CardConfig, data_w};
use berth_rtl_host::{Access, Board, Dma, Memory, Rng, seed};
use std::ops::{Deref, DerefMut};

/// Bus address of the host memory's first byte.
const HOST_BASE: u64 = 0x1_2340_0000;

/// A RoCEv2 SEND ONLY frame with 7 bytes of payload padded to 8, and its iCRC. Made independently of this project, with scapy 2.8
/// (`scapy.contrib.roce` computes the iCRC):
/// `Ether(dst='02:00:00:00:00:02', src='02:00:00:00:00:01') / IP(src='10.0.0.1', dst='10.0.0.2', tos=0xb8, ttl=64,
/// flags='DF', id=0x1234) / UDP(sport=49152, dport=4791, chksum=0) / BTH(opcode=4, padcount=1, pkey=0xffff, dqpn=0x000012,
/// ackreq=1, psn=0xabcdef) / Raw(b'Berth!!\0')`.
#[rustfmt::skip]
const KNOWN_FRAME: &[u8] = &[
    0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x45, 0xb8,
    0x00, 0x34, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x13, 0xcb, 0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00,
    0x00, 0x02, 0xc0, 0x00, 0x12, 0xb7, 0x00, 0x20, 0x00, 0x00, 0x04, 0x10, 0xff, 0xff, 0x00, 0x00,
    0x00, 0x12, 0x80, 0xab, 0xcd, 0xef, 0x42, 0x65, 0x72, 0x74, 0x68, 0x21, 0x21, 0x00, 0xd1, 0xc0,
    0xd3, 0x07,
];

/// iCRC of a frame without one, bit by bit, straight from the definition.
fn icrc(frame: &[u8]) -> [u8; 4] {
    let mut input = vec![0xff; 8];
    input.extend_from_slice(&frame[14..]);
    // offsets behind the 8 bytes: IPv4 at 8, UDP at 28, BTH at 36
    for masked in [8 + 1, 8 + 8, 8 + 10, 8 + 11, 28 + 6, 28 + 7, 36 + 4] {
        input[masked] = 0xff;
    }
    let mut crc = u32::MAX;
    for byte in input {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    (!crc).to_le_bytes()
}

/// A RoCE frame with `payload` random bytes behind the BTH, without iCRC.
fn roce(rng: &mut Rng, payload: usize) -> Vec<u8> {
    let mut f = rng.bytes(14 + 20 + 8 + 12 + payload);
    let ip_len = (20 + 8 + 12 + payload + 4) as u16;
    f[12..14].copy_from_slice(&[0x08, 0x00]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&ip_len.to_be_bytes());
    f[20..22].copy_from_slice(&[0x40, 0]);
    f[23] = 17;
    f[36..38].copy_from_slice(&4791u16.to_be_bytes());
    f[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    f
}

fn with_icrc(mut frame: Vec<u8>) -> Vec<u8> {
    let crc = icrc(&frame);
    frame.extend_from_slice(&crc);
    frame
}

const PLAIN: TxSend = TxSend { length: 0, raw: 0, loopback: 0, slot: 0 };
const RAW: TxSend = TxSend { raw: 1, ..PLAIN };
const LOOP: TxSend = TxSend { loopback: 1, ..PLAIN };

/// A card without firmware on the bench.
struct Bench(Board);

impl Deref for Bench {
    type Target = Board;
    fn deref(&self) -> &Board {
        &self.0
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Board {
        &mut self.0
    }
}

impl Bench {
    fn new(seed: u64) -> Self {
        Self::with(CardConfig { seed, ..CardConfig::default() })
    }

    fn with(config: CardConfig) -> Self {
        let memory = Memory::new(config.seed);
        memory.map(HOST_BASE, &[0; 1 << 20], Access::ReadWrite);
        Self(Board::new(config, memory))
    }

    fn counter(&mut self, index: u32) -> u64 {
        self.card.counter(index)
    }

    fn send(&mut self, slot: u32, len: usize, how: TxSend) {
        self.set_cpu(CPU_TX_SEND, TxSend { length: len as u32, slot, ..how }.word());
    }

    /// Waits until a pending bit is set.
    fn wait(&mut self, bit: u32) {
        for _ in 0..100_000 {
            if self.cpu(CPU_PENDING) & 1 << bit != 0 {
                return;
            }
        }
        panic!("pending bit {bit} does not come");
    }

    /// Waits for the next outcome of a send: (status, slot).
    fn sent(&mut self) -> (u32, u32) {
        self.wait(PEND_TX_DONE);
        let done = TxDone::from_word(self.cpu(CPU_TX_DONE));
        assert_ne!(done.valid, 0);
        (done.status, done.slot)
    }

    /// Takes the frame at the head and frees its slot: (bytes, flags).
    fn receive(&mut self) -> (Vec<u8>, u32) {
        self.wait(PEND_RX);
        let desc = RxDesc::from_word(self.cpu(CPU_RX_DESC));
        assert_ne!(desc.valid, 0);
        let flags = self.cpu(CPU_RX_FLAGS);
        let slot = desc.slot;
        self.set_cpu(CPU_RX_POP, 0);
        let data = self.packet_ram(rx_slot(slot), desc.length as usize);
        self.set_cpu(CPU_RX_FREE, slot);
        (data, flags)
    }

    /// The frame that comes out at the MAC.
    fn at_mac(&mut self) -> Vec<u8> {
        for _ in 0..10_000 {
            if let Some(frame) = self.card.take_tx() {
                return frame.data;
            }
            self.card.run(1);
        }
        panic!("no frame at the MAC");
    }

    /// Hands a frame to the MAC and waits until the card has judged it.
    fn inject(&mut self, frame: Vec<u8>) {
        self.card.push_rx(frame);
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..20_000 {
            if self.card.rx_pending() == 0 {
                break;
            }
            self.card.run(1);
        }
        self.card.run(20);
    }

    fn nothing_received(&mut self) {
        assert_eq!(self.cpu(CPU_PENDING) & 1 << PEND_RX, 0);
        assert_eq!(self.cpu(CPU_RX_DESC), 0);
    }
}

#[test]
fn icrc_of_a_foreign_frame_is_found_right() {
    assert_eq!(with_icrc(KNOWN_FRAME[..KNOWN_FRAME.len() - 4].to_vec()), KNOWN_FRAME, "the test's own iCRC");
    let mut bench = Bench::new(seed(1));
    bench.inject(KNOWN_FRAME.to_vec());
    assert_eq!(bench.receive(), (KNOWN_FRAME.to_vec(), RX_FLAG_ROCE | RX_FLAG_ICRC_OK));
    // and the card makes the same
    bench.fill_packet_ram(tx_slot(3), &KNOWN_FRAME[..KNOWN_FRAME.len() - 4]);
    bench.send(3, KNOWN_FRAME.len() - 4, PLAIN);
    assert_eq!(bench.sent(), (DMA_OK, 3));
    assert_eq!(bench.at_mac(), KNOWN_FRAME);
}

#[test]
fn frames_of_every_length_get_the_right_icrc() {
    let seed = seed(2);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    for n in 0..40 {
        let frame = roce(&mut rng, n);
        let slot = n as u32 % TX_SLOTS;
        bench.fill_packet_ram(tx_slot(slot), &frame);
        bench.send(slot, frame.len(), PLAIN);
        assert_eq!(bench.sent(), (DMA_OK, slot));
        assert_eq!(bench.at_mac(), with_icrc(frame), "{n} bytes of payload");
    }
}

#[test]
fn random_frames_go_out_and_come_in_unchanged() {
    let seed = seed(3);
    let mut rng = Rng(seed);
    let stall_percent = 20;
    let mut bench = Bench::with(CardConfig { seed, stall_percent, ..CardConfig::default() });
    let mut bytes = 0;
    for n in 0..60u32 {
        let payload = if rng.chance(0.2) { 4096 } else { rng.below(4200) as usize };
        let frame = roce(&mut rng, payload);
        let slot = n % TX_SLOTS;
        bench.fill_packet_ram(tx_slot(slot), &frame);
        let looped = rng.chance(0.5);
        bench.send(slot, frame.len(), if looped { LOOP } else { PLAIN });
        assert_eq!(bench.sent(), (DMA_OK, slot));
        let expected = with_icrc(frame);
        if looped {
            assert_eq!(bench.receive(), (expected, RX_FLAG_ROCE | RX_FLAG_ICRC_OK | RX_FLAG_LOOPBACK));
        } else {
            let sent = bench.at_mac();
            assert_eq!(sent, expected);
            bytes += sent.len() as u64;
            bench.inject(sent.clone());
            assert_eq!(bench.receive(), (sent, RX_FLAG_ROCE | RX_FLAG_ICRC_OK));
        }
    }
    let frames = bench.counter(C_TX_FRAMES);
    assert_eq!(bench.counter(C_RX_FRAMES), frames);
    assert_eq!(bench.counter(C_LOOPBACK_FRAMES), 60 - frames);
    assert_eq!([bench.counter(C_TX_BYTES), bench.counter(C_RX_BYTES)], [bytes, bytes]);
}

#[test]
fn frame_without_icrc_is_sent_and_received_as_it_is() {
    let seed = seed(4);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    for len in [14, 15, 42, 60, 61, 64, 1000] {
        let mut arp = rng.bytes(len);
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        bench.fill_packet_ram(tx_slot(0), &arp);
        bench.send(0, len, RAW);
        assert_eq!(bench.sent(), (DMA_OK, 0));
        assert_eq!(bench.at_mac(), arp);
        bench.inject(arp.clone());
        assert_eq!(bench.receive(), (arp.clone(), 0));
        bench.send(0, len, TxSend { loopback: 1, ..RAW });
        bench.sent();
        assert_eq!(bench.receive(), (arp, RX_FLAG_LOOPBACK));
    }
}

#[test]
fn frame_with_wrong_icrc_is_dropped_and_counted() {
    let seed = seed(5);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let mut bad = 0;
    for _ in 0..40 {
        let payload = rng.below(300) as usize;
        let good = with_icrc(roce(&mut rng, payload));
        // any bit behind the Ethernet header that routers do not change
        let mut frame = good.clone();
        let at = loop {
            let at = rng.between(26, frame.len() as u64 - 1) as usize;
            if ![36, 37, 38, 39, 40, 41, 46].contains(&at) {
                break at;
            }
        };
        frame[at] ^= 1 << rng.below(8);
        bench.inject(frame);
        bad += 1;
        bench.nothing_received();
        bench.inject(good.clone());
        assert_eq!(bench.receive().0, good);
    }
    assert_eq!(bench.counter(C_RX_BAD_ICRC), bad);
}

#[test]
fn fields_that_routers_change_are_outside_the_icrc() {
    let seed = seed(6);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let mut frame = with_icrc(roce(&mut rng, 100));
    for at in [0, 6, 15, 22, 24, 25, 40, 41, 46] {
        frame[at] ^= 0x5a;
        bench.inject(frame.clone());
        assert_eq!(bench.receive().0, frame, "byte {at}");
    }
}

#[test]
fn truncated_frames_are_dropped_and_counted() {
    let seed = seed(7);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let good = with_icrc(roce(&mut rng, 64));
    let mut dropped = 0;
    // cut at every length; below 15 bytes nothing tells that it is IPv4
    for len in 1..good.len() {
        bench.inject(good[..len].to_vec());
        if len == 14 {
            bench.receive();
        } else {
            dropped += 1;
        }
        bench.nothing_received();
        assert_eq!(bench.counter(C_RX_TRUNCATED), dropped, "cut to {len} bytes");
    }
    // lengths in the headers below the least, or contradicting each other
    for (ip, udp) in [(43, 23), (20, 8), (0, 0), (108, 89), (108, 0xffff), (0xffff, 20)] {
        let mut frame = good.clone();
        frame[16..18].copy_from_slice(&u16::to_be_bytes(ip));
        frame[38..40].copy_from_slice(&u16::to_be_bytes(udp));
        bench.inject(frame);
        dropped += 1;
        bench.nothing_received();
        assert_eq!(bench.counter(C_RX_TRUNCATED), dropped, "IPv4 length {ip}, UDP length {udp}");
    }
    assert_eq!(bench.counter(C_RX_FRAMES), good.len() as u64 - 1 + 6);
}

#[test]
fn padding_behind_the_ip_length_is_cut_off() {
    let seed = seed(8);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    for padding in [1, 2, 7, 8, 40] {
        let frame = with_icrc(roce(&mut rng, 0));
        let mut padded = frame.clone();
        padded.extend(rng.bytes(padding));
        bench.inject(padded);
        assert_eq!(bench.receive(), (frame, RX_FLAG_ROCE | RX_FLAG_ICRC_OK));
    }
}

#[test]
fn oversized_and_damaged_frames_are_dropped_and_counted() {
    let seed = seed(9);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let slot = SLOT_BYTES as usize;
    let good = with_icrc(roce(&mut rng, slot - 58));
    assert_eq!(good.len(), slot);
    for (n, len) in [slot + 1, slot + 8, 9000, 70_000].into_iter().enumerate() {
        bench.inject(rng.bytes(len));
        bench.nothing_received();
        assert_eq!(bench.counter(C_RX_OVERSIZED), n as u64 + 1);
        bench.inject(good.clone());
        assert_eq!(bench.receive().0, good);
    }
    bench.card.push_rx_damaged(good.clone());
    bench.settle();
    bench.nothing_received();
    assert_eq!(bench.counter(C_RX_MAC_ERROR), 1);
}

#[test]
fn frames_wait_for_a_free_slot_and_none_is_lost() {
    let seed = seed(10);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let frames: Vec<_> = (0..RX_SLOTS as usize * 2).map(|n| with_icrc(roce(&mut rng, 10 * n))).collect();
    for frame in &frames {
        bench.card.push_rx(frame.clone());
    }
    bench.card.run(20_000);
    assert_eq!(bench.card.rx_pending(), frames.len() - RX_SLOTS as usize);
    assert!(bench.counter(C_RX_STALL_CYCLES) > 10_000);
    for frame in &frames {
        assert_eq!(&bench.receive().0, frame);
    }
    bench.nothing_received();
}

#[test]
fn frames_leave_and_arrive_back_to_back_without_a_bubble() {
    let seed = seed(16);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    for most in [8, 64, 300, 4096] {
        let frames: Vec<_> = (0..TX_SLOTS)
            .map(|_| {
                let n = rng.below(most) as usize;
                roce(&mut rng, n)
            })
            .collect();
        for (slot, frame) in (0..).zip(&frames) {
            bench.fill_packet_ram(tx_slot(slot), frame);
        }
        bench.card.set_tx_ready(false);
        for (slot, frame) in (0..).zip(&frames) {
            bench.send(slot, frame.len(), PLAIN);
        }
        bench.card.run(100);
        bench.card.reset_ports();
        bench.card.set_tx_ready(true);
        let sent: Vec<_> = frames.iter().map(|_| bench.at_mac()).collect();
        let tx = bench.card.ports().tx;
        for (slot, (frame, sent)) in (0..).zip(frames.iter().zip(&sent)) {
            assert_eq!(*sent, with_icrc(frame.clone()));
            assert_eq!(bench.sent(), (DMA_OK, slot));
        }
        let beats: u64 = sent.iter().map(|f| f.len().div_ceil(data_w() / 8) as u64).sum();
        assert_eq!((tx.beats, tx.bubbles()), (beats, 0), "to the MAC, up to {most} bytes of payload");

        bench.card.reset_ports();
        sent.iter().for_each(|frame| bench.card.push_rx(frame.clone()));
        bench.settle();
        let rx = bench.card.ports().rx;
        assert_eq!((rx.beats, rx.bubbles(), rx.waits), (beats, 0, 0), "from the MAC, up to {most} bytes of payload");
        for frame in sent {
            assert_eq!(bench.receive(), (frame, RX_FLAG_ROCE | RX_FLAG_ICRC_OK));
        }
    }
}

/// Good and bad frames mixed, directly behind each other: each verdict is its own frame's.
#[test]
fn verdicts_of_frames_that_follow_each_other_are_not_mixed_up() {
    let seed = seed(17);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let (mut bad_icrc, mut truncated, mut damaged) = (0, 0, 0);
    for _ in 0..30 {
        let mut good = Vec::new();
        for _ in 0..RX_SLOTS {
            let payload = rng.below(100) as usize;
            let mut frame = with_icrc(roce(&mut rng, payload));
            match rng.below(5) {
                0 => {
                    let last = frame.len() - 1;
                    frame[last] ^= 1;
                    bench.card.push_rx(frame);
                    bad_icrc += 1;
                }
                1 => {
                    frame.pop();
                    bench.card.push_rx(frame);
                    truncated += 1;
                }
                2 => {
                    bench.card.push_rx_damaged(frame);
                    damaged += 1;
                }
                _ => {
                    bench.card.push_rx(frame.clone());
                    good.push(frame);
                }
            }
        }
        bench.settle();
        for frame in good {
            assert_eq!(bench.receive().0, frame);
        }
        bench.nothing_received();
    }
    let counted = [C_RX_BAD_ICRC, C_RX_TRUNCATED, C_RX_MAC_ERROR].map(|c| bench.counter(c));
    assert_eq!(counted, [bad_icrc, truncated, damaged]);
}

#[test]
fn slot_given_back_twice_or_never_taken_is_ignored() {
    let seed = seed(11);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    for slot in [0, 5, 15, 16, 200] {
        bench.set_cpu(CPU_RX_FREE, slot);
    }
    let frames: Vec<_> = (0..RX_SLOTS as usize).map(|n| with_icrc(roce(&mut rng, n))).collect();
    for frame in &frames {
        bench.inject(frame.clone());
    }
    for frame in &frames {
        assert_eq!(&bench.receive().0, frame);
    }
}

#[test]
fn send_that_cannot_be_is_refused() {
    let mut bench = Bench::new(seed(12));
    for (slot, len) in [(16, 100), (255, 100), (0, 0), (1, SLOT_BYTES as usize - 3), (2, 0x1fff)] {
        bench.send(slot, len, PLAIN);
        assert_eq!(bench.sent(), (DMA_REFUSED, slot));
    }
    bench.card.run(100);
    assert_eq!(bench.card.take_tx(), None);
}

#[test]
fn send_waits_for_its_attached_reads() {
    let seed = seed(13);
    let mut rng = Rng(seed);
    let mut bench = Bench::with(CardConfig { seed, out_of_order: true, ..CardConfig::default() });
    bench.card.mmio_write(0, u64::from(berth_abi::host::HOST_DMA_ENABLE), 1, 4);
    for n in 0..30u32 {
        let len = rng.between(1, 4096) as usize;
        let at = rng.below(0x8000) as usize;
        let payload = rng.bytes(len);
        bench.memory.poke(HOST_BASE + at as u64, &payload);
        let mut frame = roce(&mut rng, len);
        frame[54..].copy_from_slice(&payload);
        let slot = n % TX_SLOTS;
        bench.fill_packet_ram(tx_slot(slot), &frame[..54]);
        let addr = HOST_BASE + at as u64;
        let (local, len) = (tx_slot(slot) + 54, len as u32);
        bench.dma(Dma { local, len, addr, slot: Some(slot), ..Dma::default() }, None);
        bench.send(slot, frame.len(), PLAIN);
        assert_eq!(bench.sent(), (DMA_OK, slot), "frame {n}, {len} bytes");
        assert_eq!(bench.at_mac(), with_icrc(frame), "frame {n}, {len} bytes at {at:#x}");
    }
}

#[test]
fn failed_attached_read_gives_up_the_send_once() {
    let seed = seed(14);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    bench.card.mmio_write(0, u64::from(berth_abi::host::HOST_DMA_ENABLE), 1, 4);
    let frame = roce(&mut rng, 100);
    bench.fill_packet_ram(tx_slot(2), &frame);
    bench.dma(Dma { local: tx_slot(2) + 54, len: 100, addr: 0x1000, slot: Some(2), ..Dma::default() }, None);
    bench.send(2, frame.len(), PLAIN);
    assert_eq!(bench.sent(), (DMA_HOST_ERROR, 2));
    assert_eq!(bench.card.take_tx(), None);
    bench.send(2, frame.len(), PLAIN);
    assert_eq!(bench.sent(), (DMA_OK, 2));
    assert_eq!(bench.at_mac(), with_icrc(frame));
}

#[test]
fn card_reset_lets_a_frame_end_and_skips_the_rest_of_one_that_arrives() {
    let seed = seed(15);
    let mut rng = Rng(seed);
    let mut bench = Bench::new(seed);
    let going = roce(&mut rng, 4096);
    let coming = with_icrc(roce(&mut rng, 4096));
    // 300 cycles are more than half a frame at 64 bits
    for delay in [1, 30, 300].map(|cycles: u64| cycles.div_ceil(data_w() as u64 / 64)) {
        bench.fill_packet_ram(tx_slot(0), &going);
        bench.fill_packet_ram(tx_slot(1), &going);
        bench.send(0, going.len(), PLAIN);
        bench.send(1, going.len(), PLAIN);
        bench.card.push_rx(coming.clone());
        bench.card.run(delay);
        bench.card.mmio_write(BAR_CONTROL, HOST_CTRL.into(), 1, 4);
        // what had begun is whole, what had not never comes
        bench.settle();
        assert!(bench.card.run_until_idle(100_000));
        assert_eq!(bench.card.mmio_read(BAR_CONTROL, HOST_STATUS.into(), 4) as u32, FW_RESET);
        let sent: Vec<_> = std::iter::from_fn(|| bench.card.take_tx()).map(|f| f.data).collect();
        assert!(sent.len() <= 1 && sent.iter().all(|f| *f == with_icrc(going.clone())), "reset after {delay} cycles");
        bench.nothing_received();
        assert_eq!(bench.counter(C_TX_FRAMES), 0);
        // and the card works
        bench.inject(coming.clone());
        assert_eq!(bench.receive().0, coming);
    }
}
