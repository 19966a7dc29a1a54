// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth log`: defmt frames from the firmware, decoded against its ELF file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use defmt_decoder::{DecodeError, StreamDecoder, Table};
use libberth::Device;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::file::{self, Source};
use crate::size;

/// First bytes of a raw log file; the firmware's 12-byte ELF id and 4 zero bytes follow, then the frames.
const RAW_MAGIC: &[u8; 8] = b"BERTHLG1";
const RAW_HEADER: usize = 24;

/// The firmware's log.
#[derive(Debug, Args)]
pub struct Log {
    /// ELF file of exactly the firmware that runs on the card.
    #[arg(long, value_name = "FILE", required_unless_present = "raw")]
    elf: Option<PathBuf>,
    /// Append the undecoded bytes to this file instead, to be decoded elsewhere with --input.
    #[arg(long, value_name = "FILE", conflicts_with = "elf")]
    raw: Option<PathBuf>,
    /// Decode a file written with --raw instead of reading the card.
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    input: Option<PathBuf>,
    /// Go on until interrupted.
    #[arg(long, short, conflicts_with = "input")]
    follow: bool,
}

impl Log {
    /// Shows or copies the log.
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>) -> Result<(), Failure> {
        if let Some(path) = &self.raw {
            return self.copy(&open()?, path);
        }
        let elf_path = self.elf.as_deref().expect("clap requires it");
        let elf = Source::open(elf_path)?.bytes()?;
        let table = Table::parse(&elf)
            .map_err(|e| Failure::Other(format!("{}: {e}", elf_path.display())))?
            .ok_or_else(|| Failure::Other(format!("{}: there is no defmt table in it", elf_path.display())))?;
        let mut printer = Printer { decoder: table.new_stream_decoder() };
        if let Some(path) = &self.input {
            let bytes = Source::open(path)?.bytes()?;
            let (id, frames) = split_raw(&bytes)
                .ok_or_else(|| Failure::Other(format!("{}: not written by `berth log --raw`", path.display())))?;
            check_id(&elf, id, elf_path)?;
            printer.print(frames);
            return Ok(());
        }
        let device = open()?;
        check_id(&elf, &device.info()?.elf_id, elf_path)?;
        self.each(&device, |bytes| {
            printer.print(bytes);
            Ok(())
        })
    }

    fn copy(&self, device: &Device, path: &Path) -> Result<(), Failure> {
        let failed = |e| Failure::File(path.to_owned(), e);
        let mut file = file::append(path)?;
        if file.metadata().map_err(failed)?.len() == 0 {
            let mut header = RAW_MAGIC.to_vec();
            header.extend_from_slice(&device.info()?.elf_id);
            header.resize(RAW_HEADER, 0);
            file.write_all(&header).map_err(failed)?;
        }
        self.each(device, |bytes| file.write_all(bytes).map_err(failed))
    }

    /// Calls `sink` with the bytes that the driver has, then, if following, with those that come.
    fn each(&self, device: &Device, mut sink: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let (taken, lost) = device.read_log(&mut bytes)?;
            if lost > 0 {
                eprintln!("berth: {lost} log bytes were lost before the next line");
            }
            if taken > 0 {
                sink(&bytes)?;
            } else if self.follow {
                // The driver offers no wait for log bytes.
                thread::sleep(Duration::from_millis(200));
            } else {
                return Ok(());
            }
        }
    }
}

/// Splits a raw log file into ELF id and frames.
fn split_raw(bytes: &[u8]) -> Option<(&[u8; 12], &[u8])> {
    let (header, frames) = bytes.split_at_checked(RAW_HEADER)?;
    let id = header.strip_prefix(RAW_MAGIC)?.first_chunk()?;
    Some((id, frames))
}

/// Refuses an ELF file that is not the firmware's: its frames would decode to nonsense.
fn check_id(elf: &[u8], id: &[u8; 12], path: &Path) -> Result<(), Failure> {
    let digest = Sha256::digest(elf);
    if digest[..12] == id[..] {
        return Ok(());
    }
    Err(Failure::Other(format!(
        "{} is not the ELF file of the running firmware (its id is {}, the firmware's {}): take the one that was \
         built together with the image",
        path.display(),
        size::hex(&digest[..12]),
        size::hex(id)
    )))
}

struct Printer<'t> {
    decoder: Box<dyn StreamDecoder + Send + Sync + 't>,
}

impl Printer<'_> {
    fn print(&mut self, bytes: &[u8]) {
        self.decoder.received(bytes);
        loop {
            match self.decoder.decode() {
                Ok(frame) => println!("{}", frame.display(false)),
                Err(DecodeError::UnexpectedEof) => return,
                // Bytes were lost: rzCOBS finds the next frame by itself.
                Err(DecodeError::Malformed) => println!("(damaged log frame)"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_file_names_its_firmware() {
        let mut file = RAW_MAGIC.to_vec();
        file.extend_from_slice(&[7; 12]);
        file.resize(RAW_HEADER, 0);
        file.extend_from_slice(b"frames");
        assert_eq!(split_raw(&file), Some((&[7; 12], &b"frames"[..])));
        assert_eq!(split_raw(b"short"), None);
        file[0] = b'x';
        assert_eq!(split_raw(&file), None);
    }

    #[test]
    fn elf_of_another_firmware_is_refused() {
        let elf = b"pretend";
        let id: [u8; 12] = Sha256::digest(elf)[..12].try_into().unwrap();
        assert!(check_id(elf, &id, Path::new("x")).is_ok());
        assert!(check_id(b"another", &id, Path::new("x")).is_err());
    }
}
