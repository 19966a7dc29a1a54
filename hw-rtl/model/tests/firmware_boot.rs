// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware boots on the Verilated card, answers the heartbeat, and what goes wrong
//! with it is told with its reason. The image comes from `BERTH_FW_IMAGE`.

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::host::*;
use berth_abi::message::{Crash, NetConfig};
use berth_abi::status::*;
use berth_rtl_host::{Host, HostConfig};
use sha2::{Digest, Sha256};

/// Cycles within which firmware is up: clearing its memory takes most of them.
const BOOT_CYCLES: u64 = 20_000_000;

/// The file that an environment variable names.
fn file(variable: &str) -> Vec<u8> {
    let path = std::env::var(variable).unwrap_or_else(|e| panic!("{variable}, which cargo xtask test sets: {e}"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {path}: {e}"))
}

fn image() -> Vec<u8> {
    file("BERTH_FW_IMAGE")
}

fn host() -> Host {
    Host::new(HostConfig::default())
}

fn boot(host: &mut Host, image: &[u8]) {
    host.load(image);
    assert!(host.wait_status(FW_RUNNING, BOOT_CYCLES), "{}", host.report());
}

/// Whether the firmware answers `challenge` within `cycles`.
fn answers(host: &mut Host, challenge: u32, cycles: u64) -> bool {
    host.set_reg(HOST_HB_CHALLENGE, challenge);
    let end = host.card.cycles() + cycles;
    while host.card.cycles() < end {
        if host.reg(HOST_HB_ANSWER) == challenge {
            return true;
        }
        host.card.run(20);
    }
    false
}

/// Cycles within which firmware answers: more of them from RAM outside.
const ANSWER: u64 = if cfg!(feature = "small") { 20_000 } else { 5_000 };

fn crash(host: &mut Host, kind: u32) {
    host.submit(Crash { how: kind, ..Crash::default() }.encode());
}

fn refused(image: &[u8], code: u32) {
    let mut host = host();
    host.load(image);
    assert!(host.wait_status(FW_REFUSED, 100_000), "{}", host.report());
    assert_eq!(host.reg(HOST_FW_CODE), code);
    // A good image after a reset runs: nothing is left of the bad one.
    host.reset();
    assert_eq!(host.reg(HOST_STATUS), FW_RESET);
    boot(&mut host, &self::image());
}

#[test]
fn firmware_boots_and_answers_the_heartbeat() {
    let mut host = host();
    assert_eq!(host.reg(HOST_ID), CARD_ID);
    assert_eq!(host.reg(HOST_ABI), ABI_VERSION);
    assert_eq!(host.reg(HOST_STATUS), FW_RESET);
    boot(&mut host, &image());
    println!("running after {} cycles", host.card.cycles());
    for challenge in [0x1234_5678, 1, u32::MAX, 0x8000_0000] {
        assert!(answers(&mut host, challenge, ANSWER), "challenge {challenge:#x}: {}", host.report());
    }
    // With nothing to do the core stalls in CPU_WAIT.
    host.card.run(2_000);
    assert!(host.card.idle());
}

/// Decodes log bytes against the firmware's ELF file (`BERTH_FW_ELF`), which must be the image's own.
fn decode(bytes: &[u8]) -> Vec<String> {
    let elf = file("BERTH_FW_ELF");
    assert_eq!(image()[20..32], Sha256::digest(&elf)[..12], "the image's elf_id is this ELF's");
    let table = defmt_decoder::Table::parse(&elf).expect("ELF").expect("defmt table");
    let mut decoder = table.new_stream_decoder();
    decoder.received(bytes);
    let mut lines = Vec::new();
    loop {
        match decoder.decode() {
            Ok(frame) => lines.push(frame.display(false).to_string()),
            Err(defmt_decoder::DecodeError::UnexpectedEof) => return lines,
            Err(defmt_decoder::DecodeError::Malformed) => panic!("damaged log frame after {lines:?}"),
        }
    }
}

#[test]
fn log_reaches_the_event_ring_and_decodes_against_the_elf() {
    let mut host = host();
    boot(&mut host, &image());
    host.start_rings();
    // A challenge wakes the core, which then finds room in the ring.
    assert!(answers(&mut host, 7, ANSWER));
    for _ in 0..20_000 {
        host.step();
    }
    let name = NetConfig { ipv4: 0xc000_0201, mac_first: 0x02be_0000, mac_last: 1, mtu: 1024, ..NetConfig::default() };
    assert_eq!(host.command(name.encode()).status, CMD_OK);
    for _ in 0..20_000 {
        host.step();
    }
    assert_eq!(host.log.last(), Some(&0), "rzCOBS frames end with a zero");
    let lines = decode(&host.log);
    println!("{lines:#?}");
    assert!(lines[0].contains("berth firmware"), "{lines:?}");
    assert!(lines[1].contains("[192, 0, 2, 1], MTU 1024"), "{lines:?}");
    assert_eq!(lines.len(), 2);
    assert_eq!(host.fw_counter(F_LOG_DROPPED), 0);
}

/// How long the look-up of a key takes tells who asks for it nothing of a key's secret, nor of which other keys there are
/// (Tsai et al., *Pythia*). Cycles of the soft core, of the firmware's code for it (`firmware/timing`, which says what
/// they are of).
#[cfg(not(feature = "small"))]
#[test]
fn pythia_cycles_of_a_key_look_up_tell_nothing_of_its_secret_and_of_other_keys() {
    let mut host = host();
    host.load(&file("BERTH_TIMING_IMAGE"));
    assert!(host.wait_status(FW_RUNNING, 5 * BOOT_CYCLES), "{}", host.report());
    println!("after {} cycles", host.card.cycles());
    let mut at = 0;
    let [full, few] = [(); 2].map(|()| {
        [(); 8].map(|()| {
            [(); 6].map(|()| {
                at += 1;
                host.fw_counter(at - 1)
            })
        })
    });
    let asked = [
        "right",
        "first bit wrong",
        "last bit wrong",
        "half of the bits wrong",
        "all bits wrong",
        "below its range",
        "beyond its range",
        "without the right",
    ];
    for (name, [a, b, c, d, e, f]) in asked.iter().zip(full) {
        println!("{name}: {a} to {b} cycles long after, {c} to {d} at once again, {e} to {f} behind others");
    }
    assert_eq!(full, few, "whatever else is in the table");
    for (name, [a, b, again @ .., e, f]) in asked.iter().zip(&full) {
        assert!([a, b] == [&again[0], &again[1]] && [a, b] == [e, f], "{name}: whoever was looked up before");
    }
    assert_eq!(full[1][0], full[1][1], "of whichever place");
    for wrong in &full[2..5] {
        assert_eq!(wrong, &full[1], "whichever bits of a guess are wrong");
    }
}

#[test]
fn image_with_wrong_magic_is_refused() {
    let mut bad = image();
    bad[0] ^= 1;
    refused(&bad, FW_BAD_MAGIC);
}

#[test]
fn image_for_another_abi_is_refused() {
    let mut bad = image();
    bad[4] ^= 0x80;
    refused(&bad, FW_BAD_ABI);
}

#[test]
fn image_with_bad_length_is_refused() {
    for length in [0u32, 6, FW_RAM_BYTES + 4, u32::MAX - 3] {
        let mut bad = image();
        bad[8..12].copy_from_slice(&length.to_le_bytes());
        refused(&bad, FW_BAD_LENGTH);
    }
}

#[test]
fn truncated_image_is_refused() {
    let good = image();
    refused(&good[..good.len() - 4], FW_TRUNCATED);
    refused(&good[..FW_HEADER_BYTES as usize], FW_TRUNCATED);
}

#[test]
fn image_with_words_too_many_is_refused() {
    let mut bad = image();
    bad.extend([0; 4]);
    refused(&bad, FW_TRUNCATED);
}

#[test]
fn corrupt_image_is_refused() {
    let mut bad = image();
    let at = FW_HEADER_BYTES as usize + (bad.len() - FW_HEADER_BYTES as usize) / 2;
    bad[at] ^= 0x10;
    refused(&bad, FW_BAD_CRC);
}

#[test]
fn boot_of_a_running_core_is_refused_and_does_not_disturb_it() {
    let mut host = host();
    boot(&mut host, &image());
    host.set_reg(HOST_FW_DATA, 0);
    host.set_reg(HOST_FW_BOOT, 1);
    assert_eq!(host.reg(HOST_FW_CODE), FW_BUSY);
    assert!(answers(&mut host, 99, ANSWER), "{}", host.report());
}

#[test]
fn panic_is_reported_with_its_text_and_the_card_can_be_used_again() {
    let mut host = host();
    boot(&mut host, &image());
    host.start_rings();
    crash(&mut host, 1);
    assert!(host.wait_status_stepping(FW_PANIC, 100_000), "{}", host.report());
    let text = host.panic_text();
    println!("{text}");
    assert!(text.contains("the host asked for a panic"), "{text:?}");
    assert!(text.contains(".rs:"), "the text names the place: {text:?}");
    assert_ne!(host.reg(HOST_FW_CODE), 0);
    assert!(!answers(&mut host, 5, 20_000), "a dead firmware answers");

    host.reset();
    boot(&mut host, &image());
    assert_eq!(host.panic_text(), "", "the text of the last panic is gone");
    assert!(answers(&mut host, 6, ANSWER));
}

#[test]
fn endless_loop_is_noticed_by_the_heartbeat_and_the_card_can_be_used_again() {
    let mut host = host();
    boot(&mut host, &image());
    host.start_rings();
    assert!(answers(&mut host, 1, ANSWER));
    crash(&mut host, 2);
    for _ in 0..20_000 {
        host.step();
    }
    assert!(!answers(&mut host, 2, 50_000), "a hung firmware answers");
    assert_eq!(host.reg(HOST_STATUS), FW_RUNNING, "only the heartbeat can tell");

    host.reset();
    boot(&mut host, &image());
    assert!(answers(&mut host, 3, ANSWER));
}
