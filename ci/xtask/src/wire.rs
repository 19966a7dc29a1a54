// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at a capture of the wire: does an independent dissector (tshark) read every frame as RoCEv2, and is every
//! invariant CRC what IBTA's annex A17 says? tshark shows that CRC but does not check it, so it is computed here,
//! from the bytes of the file and with nothing of the card's own code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use berth_abi::wire::*;
use serde::Serialize;

use crate::formats;
use crate::steps::Builder;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const ICRC: usize = 4;
/// UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// The opcodes from here on are the manufacturers' (IBTA 9.2.1, table 38).
const MANUFACTURERS: u64 = 0xc0;

/// What a capture contains.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WireCheck {
    /// Version of tshark.
    pub tshark: String,
    /// Frames in the file.
    pub frames: u64,
    /// Frames to UDP port 4791.
    pub roce: u64,
    /// Frames that tshark decodes as InfiniBand over UDP.
    pub decoded: u64,
    /// Frames that tshark calls malformed.
    pub malformed: u64,
    /// RoCEv2 frames whose invariant CRC is right.
    pub icrc_correct: u64,
    /// Frames by BTH opcode, as tshark reads it.
    pub opcodes: BTreeMap<u8, u64>,
}

impl WireCheck {
    /// Whether every RoCEv2 frame was decoded and has a correct CRC, and there was one.
    pub fn ok(&self) -> bool {
        self.roce > 0 && self.decoded == self.roce && self.malformed == 0 && self.icrc_correct == self.roce
    }

    /// Names for the opcodes that the reliable connection uses.
    pub fn opcode_name(opcode: u8) -> &'static str {
        match opcode {
            BTH_SEND_FIRST => "RC SEND First",
            BTH_SEND_MIDDLE => "RC SEND Middle",
            BTH_SEND_LAST => "RC SEND Last",
            BTH_SEND_LAST_IMM => "RC SEND Last with Immediate",
            BTH_SEND_ONLY => "RC SEND Only",
            BTH_SEND_ONLY_IMM => "RC SEND Only with Immediate",
            BTH_SEND_LAST_INVALIDATE => "RC SEND Last with Invalidate",
            BTH_SEND_ONLY_INVALIDATE => "RC SEND Only with Invalidate",
            BTH_ACKNOWLEDGE => "RC Acknowledge",
            BTH_UD_SEND_ONLY => "UD SEND Only (credit list)",
            BTH_SELECTIVE_ACKNOWLEDGE => "Berth selective acknowledgement",
            _ => "other",
        }
    }
}

/// Checks a capture file.
///
/// # Errors
/// When it is not a pcapng file or tshark fails.
pub fn check(builder: &Builder, capture: &Path) -> Result<WireCheck> {
    let data = fs::read(capture).with_context(|| format!("reading {}", capture.display()))?;
    let mut result = WireCheck::default();
    let mut crcs = Vec::new();
    for frame in frames(&data)? {
        result.frames += 1;
        crcs.push(invariant_crc(frame));
        if let Some((found, wanted)) = crcs[crcs.len() - 1] {
            result.roce += 1;
            result.icrc_correct += u64::from(found == wanted);
        }
    }
    let folder = capture.parent().context("the capture has no folder")?;
    let tshark = |arguments: &[&str]| -> Result<String> {
        let mut command = builder.sysroot.command(folder, &[folder], "tshark");
        let output = command.args(arguments).output().context("starting tshark")?;
        if !output.status.success() {
            bail!("tshark {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    result.tshark = tshark(&["--version"])?.lines().next().unwrap_or_default().to_owned();
    let name = capture.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let fields =
        ["frame.number", "infiniband.bth.opcode", "infiniband.invariant.crc", "infiniband.vendor", "_ws.malformed"];
    // Nothing may guess what a payload is: that of 12 bytes, a control message without records, tshark 4.4 takes for
    // another protocol's, cut short.
    let guessing = formats::guessing(builder, folder)?;
    let mut arguments = vec!["-r", &name, "-T", "fields"];
    arguments.extend(guessing.iter().flat_map(|g| ["--disable-heuristic", g.as_str()]));
    arguments.extend(fields.iter().flat_map(|f| ["-e", f]));
    for line in tshark(&arguments)?.lines() {
        let mut columns = line.split('\t');
        let number: usize = columns.next().unwrap_or_default().parse().context("tshark's frame number")?;
        let opcode = columns.next().and_then(number_of);
        let crc = columns.next().and_then(number_of);
        let vendor = columns.next().unwrap_or_default();
        if columns.next().is_some_and(|c| !c.is_empty()) {
            result.malformed += 1;
        }
        // Decoded means: tshark finds the CRC where we do. It shows the four bytes in the order of the wire. Of a
        // manufacturer's opcode it shows all that is behind the BTH as the manufacturer's, the CRC at the end.
        if let (Some(opcode), Some(Some((found, _)))) = (opcode, crcs.get(number.wrapping_sub(1)))
            && match crc {
                Some(crc) => crc == u64::from(found.swap_bytes()),
                None => opcode >= MANUFACTURERS && vendor.ends_with(&format!("{:08x}", found.swap_bytes())),
            }
        {
            result.decoded += 1;
            *result.opcodes.entry(u8::try_from(opcode)?).or_default() += 1;
        }
    }
    Ok(result)
}

fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The frames of a little-endian pcapng file, in order.
fn frames(data: &[u8]) -> Result<Vec<&[u8]>> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const ENHANCED_PACKET: u32 = 6;
    let word = |at: usize| -> Result<u32> {
        let bytes = data.get(at..at + 4).context("the capture is cut short")?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    if word(0)? != SECTION || word(8)? != 0x1a2b_3c4d {
        bail!("not a little-endian pcapng file");
    }
    let mut frames = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let length = word(at + 4)? as usize;
        if length < 12 || !length.is_multiple_of(4) {
            bail!("block of {length} bytes at {at}");
        }
        if word(at)? == ENHANCED_PACKET {
            let captured = word(at + 20)? as usize;
            frames.push(data.get(at + 28..at + 28 + captured).context("the capture is cut short")?);
        }
        at += length;
    }
    Ok(frames)
}

/// The invariant CRC that a RoCEv2 frame carries and the one that it should carry; `None` for other frames.
fn invariant_crc(frame: &[u8]) -> Option<(u32, u32)> {
    let ip = frame.get(ETHERNET..)?;
    if frame[12..14] != [8, 0] || ip.first()? != &0x45 || ip.get(9)? != &17 || ip.len() < IPV4 + UDP + 12 + ICRC {
        return None;
    }
    if ip[IPV4 + 2..IPV4 + 4] != ROCE_PORT.to_be_bytes() {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let mut packet = ip.get(..total)?.to_vec();
    let found = u32::from_le_bytes(packet.split_off(total.checked_sub(ICRC)?).try_into().ok()?);
    // Fields that routers may change count as ones: type of service, time to live, header checksum, UDP checksum,
    // and the eight bits of the BTH that carry congestion marks.
    for at in [1, 8, 10, 11, IPV4 + 6, IPV4 + 7, IPV4 + UDP + 4] {
        packet[at] = 0xff;
    }
    let mut hash = crc32fast::Hasher::new();
    hash.update(&[0xff; 8]);
    hash.update(&packet);
    Some((found, hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with an opcode and payload and a right CRC.
    fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let length = IPV4 + UDP + 12 + payload.len() + ICRC;
        let mut f = vec![0; ETHERNET];
        f[12] = 8;
        f.extend([0x45, 0]);
        f.extend(u16::try_from(length).unwrap().to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        f.extend([0xc0, 0, 0x12, 0xb7]);
        f.extend(u16::try_from(length - IPV4).unwrap().to_be_bytes());
        f.extend([0, 0, opcode, 0, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 1]);
        f.extend(payload);
        f.extend([0; ICRC]);
        let (_, crc) = invariant_crc(&f).unwrap();
        let end = f.len() - ICRC;
        f[end..].copy_from_slice(&crc.to_le_bytes());
        f
    }

    #[test]
    fn invariant_crc_ignores_what_routers_change_and_nothing_else() {
        let good = frame(4, b"12345678");
        let (found, wanted) = invariant_crc(&good).unwrap();
        assert_eq!(found, wanted);
        for (at, same) in
            [(15, true), (22, true), (24, true), (40, true), (46, true), (26, false), (50, false), (60, false)]
        {
            let mut changed = good.clone();
            changed[at] ^= 0x55;
            let (found, wanted) = invariant_crc(&changed).unwrap();
            assert_eq!(found == wanted, same, "byte {at}");
        }
    }

    #[test]
    fn frames_of_other_protocols_and_short_ones_have_no_invariant_crc() {
        let good = frame(0x11, &[0, 0, 0, 1]);
        assert!(invariant_crc(&good).is_some());
        assert!(invariant_crc(&good[..40]).is_none());
        let mut arp = good.clone();
        arp[13] = 6;
        assert!(invariant_crc(&arp).is_none());
        let mut dns = good;
        dns[37] = 53;
        assert!(invariant_crc(&dns).is_none());
    }

    #[test]
    fn frames_of_a_capture_are_found_and_a_cut_file_is_refused() {
        let mut file = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let length = u32::try_from(body.len().next_multiple_of(4) + 12).unwrap();
            file.extend(kind.to_le_bytes());
            file.extend(length.to_le_bytes());
            file.extend(body);
            file.resize(file.len().next_multiple_of(4), 0);
            file.extend(length.to_le_bytes());
        };
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        block(0x0a0d_0d0a, &section);
        let mut packet = vec![0; 12];
        packet.extend(5_u32.to_le_bytes());
        packet.extend(5_u32.to_le_bytes());
        packet.extend(b"hello");
        block(6, &packet);
        assert_eq!(frames(&file).unwrap(), [b"hello"]);
        file.truncate(file.len() - 20);
        assert!(frames(&file).is_err());
    }
}
