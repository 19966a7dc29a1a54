// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packs the firmware's ELF file into the image that the driver loads.

use anyhow::{Context, Result, bail};
use berth_abi::card::{ABI_VERSION, FW_HEADER_BYTES, FW_MAGIC, FW_RAM_BYTES};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Reads the ELF file at `elf` and returns the image: `FwHeader`, then the payload that
/// the card puts at address 0 of its RAM, padded with zeros to whole words.
///
/// # Errors
/// When the file cannot be read, is not a 32-bit RISC-V program, does not begin at
/// address 0, or does not fit `FW_RAM_BYTES`.
pub fn pack(elf: &Path) -> Result<Vec<u8>> {
    let data = std::fs::read(elf).with_context(|| format!("cannot read the firmware's ELF file {}", elf.display()))?;
    pack_bytes(&data, env!("CARGO_PKG_VERSION")).with_context(|| format!("in {}", elf.display()))
}

/// As [`pack`], from bytes, and with the version ("major.minor.patch") to state in the header.
///
/// # Errors
/// As [`pack`].
pub fn pack_bytes(elf: &[u8], version: &str) -> Result<Vec<u8>> {
    let file = object::File::parse(elf).context("not an object file")?;
    if file.architecture() != object::Architecture::Riscv32 {
        bail!("not a program for 32-bit RISC-V, but for {:?}", file.architecture());
    }
    if file.entry() != 0 {
        bail!("the entry lies at {:#x}; the core starts at 0", file.entry());
    }
    let mut payload = Vec::new();
    for segment in file.segments() {
        let bytes = segment.data().context("broken segment")?;
        if bytes.is_empty() {
            continue; // only .bss or stack
        }
        let start = usize::try_from(segment.address())?;
        let end = start + bytes.len();
        if end > FW_RAM_BYTES as usize {
            bail!("a segment ends at {end:#x}, past the RAM's {FW_RAM_BYTES:#x} bytes");
        }
        if payload.len() < end {
            payload.resize(end, 0);
        }
        payload[start..end].copy_from_slice(bytes);
    }
    if payload.is_empty() {
        bail!("nothing to load");
    }
    payload.resize(payload.len().next_multiple_of(4), 0);

    let digest = Sha256::digest(elf);
    let mut image = Vec::with_capacity(FW_HEADER_BYTES as usize + payload.len());
    for word in [FW_MAGIC, ABI_VERSION, payload.len() as u32, crc32fast::hash(&payload), version_word(version)?] {
        image.extend_from_slice(&word.to_le_bytes());
    }
    image.extend_from_slice(&digest[..12]);
    debug_assert_eq!(image.len(), FW_HEADER_BYTES as usize);
    image.extend_from_slice(&payload);
    Ok(image)
}

/// What a program of the soft core takes of its RAM, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ram {
    /// Code, constants, and data that the image has.
    pub image: u64,
    /// State that begins as zeros.
    pub state: u64,
    /// Stack.
    pub stack: u64,
    /// What there is.
    pub most: u64,
}

impl Ram {
    /// Of the ELF file at `elf`.
    ///
    /// # Errors
    /// When the file cannot be read, does not state its stack, or takes more than the card's RAM has.
    pub fn of(elf: &Path, ram: u32) -> Result<Self> {
        let data = std::fs::read(elf).with_context(|| format!("cannot read {}", elf.display()))?;
        let file = object::File::parse(data.as_slice()).context("not an object file")?;
        let symbol = |name: &str| {
            let found = file.symbols().find(|s| s.name() == Ok(name));
            found.map(|s| s.address()).with_context(|| format!("{} has no symbol {name}", elf.display()))
        };
        let state = file.sections().filter(|s| s.kind() == SectionKind::UninitializedData).map(|s| s.size()).sum();
        let stack = symbol("_stack_top")? - symbol("_stack_guard")?;
        let ram = Self { image: symbol("_image_end")?, state, stack, most: ram.into() };
        ram.check()?;
        Ok(ram)
    }

    fn check(&self) -> Result<()> {
        let all = self.image + self.state + self.stack;
        if all > self.most {
            bail!("{self}: {} too many", all - self.most);
        }
        Ok(())
    }
}

impl std::fmt::Display for Ram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let Self { image, state, stack, most } = *self;
        write!(
            f,
            "RAM: {:.1} KiB of code and constants, {:.1} of state, {:.1} of stack: {:.1} of {:.0}",
            kib(image),
            kib(state),
            kib(stack),
            kib(image + state + stack),
            kib(most)
        )
    }
}

/// "major.minor.patch" as `FwHeader::version` has it.
fn version_word(version: &str) -> Result<u32> {
    let mut fields = version.split(['.', '-']).map(str::parse::<u32>);
    let mut next =
        || fields.next().and_then(Result::ok).with_context(|| format!("version {version} is not major.minor.patch"));
    Ok(next()? << 16 | (next()? & 0xff) << 8 | next()? & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_packed_in_three_fields() {
        assert_eq!(version_word("1.2.3").unwrap(), 0x0001_0203);
        assert!(version_word("1.x").is_err());
    }

    #[test]
    fn a_program_larger_than_the_ram_is_refused_with_the_figures() {
        let fits = Ram { image: 0x1_0000, state: 0x2_8000, stack: 0x8000, most: FW_RAM_BYTES.into() };
        assert!(fits.check().is_ok());
        let refused = Ram { state: 0x2_8001, ..fits }.check().unwrap_err().to_string();
        assert_eq!(
            refused,
            "RAM: 64.0 KiB of code and constants, 160.0 of state, 32.0 of stack: 256.0 of 256: 1 too many"
        );
    }

    #[test]
    fn a_file_that_is_not_elf_is_refused() {
        assert!(pack_bytes(b"not an ELF", "0.1.0").is_err());
    }
}
