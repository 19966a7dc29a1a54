// SPDX-License-Identifier: GPL-2.0
//! Loading of firmware, and registers.

use super::rig::*;
use crate::abi::{card::*, counters::*, host::*, status::*};
use crate::card::State;
use kernel::prelude::*;

/// Milliseconds of card time that firmware may take to start.
const START: u64 = 1000;

/// Resets the card; what the log says of firmware.
fn load(rig: &Rig) -> (Result, Vec<String>) {
    rig.logged("");
    (rig.card.reset("a test"), rig.logged("firmware"))
}

/// Version and identity of what is loaded.
fn loaded(rig: &Rig) -> (u32, [u32; 3]) {
    let fw = *rig.card.fw.lock();
    (fw.version, fw.elf_id)
}

#[test]
fn fw_the_image_is_given_to_the_card_word_by_word() {
    let rig = Rig::new(Setup::default());
    assert_eq!(loaded(&rig), (0x1_0203, [0xe1f0, 0xe1f1, 0xe1f2]));
    let most = (FW_RAM_BYTES + FW_HEADER_BYTES) as usize + 16;
    let words = |image: &[u8]| -> Vec<u32> {
        let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        image.chunks(4).map(word).collect()
    };
    // Whole words or not, and more than any card has room for.
    for bytes in [36, 37, 39, 33, 4, 1, 0, most - 1, most, most + 1, 2 * most] {
        let long: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 256) as u8).collect();
        rig.world.set_image("berth/berth-fw.bin", Ok(long.clone()));
        assert_eq!(load(&rig).0, Ok(()));
        assert!(rig.hardware().habits.image == words(&long[..bytes.min(most)]), "{bytes} bytes");
        let word = |n: usize| words(&long).get(n).copied().unwrap_or(0);
        assert_eq!(loaded(&rig), (word(4), [word(5), word(6), word(7)]));
    }
    rig.end();
}

#[test]
fn fw_the_log_names_the_version_that_runs() {
    let rig = Rig::new(Setup::default());
    let mut image = image();
    image[16..20].copy_from_slice(&0x0012_fe05_u32.to_le_bytes());
    rig.world.set_image("berth/berth-fw.bin", Ok(image));
    assert_eq!(load(&rig), (Ok(()), vec!["berth: firmware 18.254.5 is running\n".into()]));
    rig.end();
}

#[test]
fn fw_an_image_that_the_card_refuses_is_refused_by_name() {
    let reasons = [
        (FW_BAD_MAGIC, "wrong magic"),
        (FW_BAD_ABI, "built for another ABI version"),
        (FW_BAD_LENGTH, "bad length"),
        (FW_TRUNCATED, "truncated or too long"),
        (FW_BAD_CRC, "checksum wrong"),
        (FW_BUSY, "the core runs already"),
        (77, "unknown reason"),
    ];
    let rig = Rig::new(Setup::default());
    rig.hardware().habits.boot.0 = FW_REFUSED;
    for (code, reason) in reasons {
        rig.hardware().habits.code = code;
        let line = format!("berth: firmware refused: {reason} (code {code})\n");
        assert_eq!(load(&rig), (Err(EIO), vec![line]));
        assert_eq!((rig.card.state(), loaded(&rig), rig.world.images()), (State::Down, (0, [0; 3]), 0));
    }
    rig.end_at_once();
}

#[test]
fn fw_without_an_image_nothing_is_started() {
    let rig = Rig::new(Setup::default());
    for (name, error) in [("berth/berth-fw.bin", EINVAL), ("berth/other.bin", ENOENT)] {
        rig.world.set_image(name, if error == ENOENT { Ok(image()) } else { Err(error) });
        rig.hardware().take_written();
        let advice = "(the image belongs in /lib/firmware; then `berth reset`)";
        let line = format!("berth: no firmware berth/berth-fw.bin: {error:?} {advice}\n");
        assert_eq!(load(&rig), (Err(EIO), vec![line]));
        assert_eq!((rig.card.state(), loaded(&rig)), (State::Down, (0, [0; 3])));
        let written = rig.hardware().take_written();
        assert!(written.iter().all(|w| w.0 != HOST_FW_BOOT));
        assert_eq!(written.last(), Some(&(HOST_DMA_ENABLE, 0)));
    }
    rig.end_at_once();
}

#[test]
fn fw_firmware_may_take_a_second_to_start() {
    for (ms, works) in [(0, true), (1, true), (START, true), (START + 2, false)] {
        let rig = Rig::new(Setup::default());
        rig.hardware().habits.boot.1 = ms * MS;
        rig.logged("");
        let reset = rig.begin(|card| card.reset("a test"));
        rig.ms(START.min(ms).saturating_sub(1));
        assert_eq!(reset.get(), (ms == 0).then_some(Ok(())));
        rig.ms(2);
        assert_eq!(reset.get(), Some(if works { Ok(()) } else { Err(EIO) }));
        assert_eq!(rig.card.state(), if works { State::Up } else { State::Down });
        let expected = if works { vec![] } else { vec!["berth: firmware does not start (status 3)\n"] };
        assert_eq!(rig.logged("does not start"), expected);
        rig.end_at_once();
    }
}

#[test]
fn fw_firmware_that_panics_at_its_start_is_not_used() {
    let rig = Rig::new(Setup::default());
    rig.hardware().habits.boot = (FW_PANIC, 0);
    rig.hardware().habits.text = b"no memory\0".to_vec();
    assert_eq!(load(&rig), (Err(EIO), vec!["berth: firmware panicked at start: no memory\n".into()]));
    assert_eq!((rig.card.state(), loaded(&rig)), (State::Down, (0, [0; 3])));
    rig.end_at_once();
}

#[test]
fn fw_a_card_that_goes_while_firmware_starts_is_not_waited_for() {
    let rig = Rig::new(Setup::default());
    rig.hardware().habits.boot.1 = 500 * MS;
    let reset = rig.begin(|card| card.reset("a test"));
    rig.ms(10);
    rig.hardware().habits.gone = true;
    rig.ms(1);
    assert_eq!((reset.get(), rig.card.state()), (Some(Err(ENODEV)), State::Down));
    rig.end_at_once();
}

#[test]
fn counters_are_read_from_their_places() {
    let rig = Rig::new(Setup::default());
    let (mut rtl, mut fw) = ([1; NUM_RTL_COUNTERS + 1], [2; NUM_FW_COUNTERS + 1]);
    rig.card.regs.counters(&mut rtl, &mut fw);
    for (all, base, last) in [(&rtl[..], HOST_COUNTERS, 1), (&fw[..], HOST_STATS, 2)] {
        let (last_one, all) = all.split_last().unwrap();
        for (n, value) in (0..).zip(all) {
            let offset = base + 8 * n;
            assert_eq!(*value, u64::from(offset) << 32 | u64::from(!offset));
        }
        assert_eq!(*last_one, last, "there is no such counter");
    }
    rig.end();
}

#[test]
fn a_device_that_is_not_bound_any_more_reads_as_one_that_is_gone() {
    for unbound in [true, false] {
        let rig = Rig::new(Setup::default());
        let regs = &rig.card.regs;
        rig.hardware().habits.clock = Some(0x1_2345_6789);
        assert_eq!((regs.cycles(), regs.present(), regs.read(HOST_STATUS)), (Some(0x1_2345_6789), true, FW_RUNNING));
        rig.hardware().take_written();
        if unbound {
            rig.world.set_unbound(true);
        } else {
            rig.hardware().habits.gone = true;
        }
        assert_eq!((regs.cycles(), regs.present(), regs.read(HOST_STATUS)), (None, false, u32::MAX));
        regs.write(HOST_DMA_ENABLE, 0);
        regs.write_addr(HOST_FENCE_LO, 8);
        regs.push(0, &nothing(1));
        assert_eq!(rig.hardware().take_written(), []);
        rig.hardware().habits.clock = None;
        rig.end_at_once();
    }
    // Outside the registers there is nothing.
    let rig = Rig::new(Setup::default());
    let regs = &rig.card.regs;
    assert_eq!((regs.read(BAR0_SIZE), regs.read(2), regs.read64(BAR0_SIZE - 4)), (u32::MAX, u32::MAX, u64::MAX));
    regs.write(BAR0_SIZE, 1);
    rig.end();
}
