// SPDX-License-Identifier: GPL-2.0
//! Loading the firmware.

use crate::{
    abi::{card::*, host::*, status::*},
    card::{
        deadline::{Deadline, BOOT_CYCLES},
        parts::FwInfo,
        Card,
    },
    kernel::image::Image,
};
use kernel::{
    prelude::*,
    time::{delay::fsleep, Delta},
};

/// Where `request_firmware` finds the image.
const PATH: &CStr = c"berth/berth-fw.bin";

/// Why the card refused an image.
fn refusal(code: u32) -> &'static str {
    match code {
        FW_BAD_MAGIC => "wrong magic",
        FW_BAD_ABI => "built for another ABI version",
        FW_BAD_LENGTH => "bad length",
        FW_TRUNCATED => "truncated or too long",
        FW_BAD_CRC => "checksum wrong",
        FW_BUSY => "the core runs already",
        _ => "unknown reason",
    }
}

fn word(data: &[u8], index: usize) -> u32 {
    data.chunks(4).nth(index).map_or(0, |c| {
        let mut bytes = [0; 4];
        bytes[..c.len()].copy_from_slice(c);
        u32::from_le_bytes(bytes)
    })
}

/// Loads the image into a card that has just been reset, and waits until it runs.
///
/// # Errors
///
/// `EIO` the image is missing or was refused, or it does not start; `ENODEV` the card is
/// gone. The log says why.
pub(crate) fn load(card: &Card) -> Result {
    *card.fw.lock() = FwInfo::default();
    let image = match Image::request(PATH, &card.dev) {
        Ok(image) => image,
        Err(e) => {
            dev_err!(
                card.dev,
                "berth: no firmware {}: {:?} (the image belongs in /lib/firmware; then `berth reset`)\n",
                PATH,
                e
            );
            return Err(EIO);
        }
    };
    // The card checks the image; the driver only bounds the number of words.
    let most = (FW_RAM_BYTES + FW_HEADER_BYTES) as usize + 16;
    let data = image.data();
    let data = &data[..data.len().min(most)];
    for chunk in data.chunks(4) {
        card.regs.write(HOST_FW_DATA, word(chunk, 0));
    }
    card.regs.write(HOST_FW_BOOT, 1);
    let mut deadline = Deadline::new(&card.regs, BOOT_CYCLES);
    loop {
        let status = card.regs.read(HOST_STATUS);
        match status {
            FW_RUNNING => break,
            FW_REFUSED => {
                let code = card.regs.read(HOST_FW_CODE);
                dev_err!(
                    card.dev,
                    "berth: firmware refused: {} (code {})\n",
                    refusal(code),
                    code
                );
                return Err(EIO);
            }
            FW_PANIC => {
                let mut text = [0; STATS_PANIC_BYTES as usize];
                let len = card.regs.panic_text(&mut text);
                let text = core::str::from_utf8(&text[..len]).unwrap_or("");
                dev_err!(card.dev, "berth: firmware panicked at start: {}\n", text);
                return Err(EIO);
            }
            crate::card::regs::ALL_ONES => return Err(ENODEV),
            _ => {}
        }
        if deadline.passed(&card.regs) {
            dev_err!(
                card.dev,
                "berth: firmware does not start (status {})\n",
                status
            );
            return Err(EIO);
        }
        fsleep(Delta::from_millis(1));
    }
    let fw = FwInfo {
        version: word(data, 4),
        elf_id: [word(data, 5), word(data, 6), word(data, 7)],
    };
    *card.fw.lock() = fw;
    dev_info!(
        card.dev,
        "berth: firmware {}.{}.{} is running\n",
        fw.version >> 16,
        fw.version >> 8 & 0xff,
        fw.version & 0xff
    );
    Ok(())
}
