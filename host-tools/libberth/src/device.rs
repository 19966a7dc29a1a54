// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device: properties, name in the network, limits, counters, log.

use std::fs::{File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use berth_abi::{card, ioctl, ring};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sys;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl std::fmt::Display for MacAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let mut bytes = [0; 6];
        let mut parts = s.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().unwrap_or_default();
            *byte = u8::from_str_radix(part, 16)
                .map_err(|_| format!("`{s}` is not a MAC address such as 02:00:00:00:00:01"))?;
        }
        if parts.next().is_some() {
            return Err(format!("`{s}` has more than six bytes"));
        }
        Ok(Self(bytes))
    }
}

/// Name of an end node in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// IPv4 address.
    pub ipv4: Ipv4Addr,
    /// MAC address: not multicast, not zero.
    pub mac: MacAddr,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
}

/// Properties of a card.
#[derive(Clone, Debug)]
pub struct Info {
    /// Version of the layout that driver and card speak.
    pub abi: u32,
    /// Version of the firmware: major, minor, patch.
    pub fw_version: (u16, u8, u8),
    /// State of the firmware (`FW_*`).
    pub fw_status: u32,
    /// Reason that belongs to the state.
    pub fw_code: u32,
    /// First 12 bytes of the SHA-256 of the firmware's ELF file.
    pub elf_id: [u8; 12],
    /// Queue pairs that the card has.
    pub max_qps: u32,
    /// Completion queues that the card has.
    pub max_cqs: u32,
    /// Queue pairs that one process may have.
    pub max_qps_per_process: u32,
    /// Name in the network; `None` before it was set.
    pub net: Option<Net>,
    /// GUID (QP-14).
    pub guid: u64,
    /// Card clock in Hz.
    pub clock_hz: u32,
    /// Card cycles since reset.
    pub cycles: u64,
    /// Pinned-memory budget of the card in bytes.
    pub card_budget: u64,
    /// Pinned-memory budget of a process in bytes.
    pub process_budget: u64,
    /// Linger time of unused pins in milliseconds.
    pub linger_ms: u32,
}

impl Info {
    fn new(q: &ioctl::Query) -> Self {
        let mut elf_id = [0; 12];
        for (bytes, word) in elf_id.chunks_exact_mut(4).zip(q.elf_id) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let [m0, m1, m2, m3, m4, m5, _, _] = q.mac;
        Self {
            abi: q.abi,
            fw_version: ((q.fw_version >> 16) as u16, (q.fw_version >> 8) as u8, q.fw_version as u8),
            fw_status: q.fw_status,
            fw_code: q.fw_code,
            elf_id,
            max_qps: q.max_qps,
            max_cqs: q.max_cqs,
            max_qps_per_process: q.max_qps_per_process,
            net: (q.ipv4 != 0).then(|| Net {
                ipv4: Ipv4Addr::from(q.ipv4),
                mac: MacAddr([m0, m1, m2, m3, m4, m5]),
                mtu: q.mtu,
            }),
            guid: q.guid,
            clock_hz: q.clock_hz,
            cycles: q.cycles,
            card_budget: q.card_budget,
            process_budget: q.process_budget,
            linger_ms: q.linger_ms,
        }
    }
}

/// Limits to change; `None` leaves a limit as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Linger time of unused pins in milliseconds.
    pub linger_ms: Option<u32>,
    /// Pinned-memory budget of the card in bytes, at least one page, at most what its translation table holds (32 MiB).
    pub card_budget: Option<u64>,
    /// Set the peak of pinned bytes to what is pinned now.
    pub reset_peak: bool,
}

/// An open `/dev/berthN`.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    file: File,
}

impl Device {
    /// Opens a device node.
    ///
    /// # Errors
    /// [`Error::Open`] when it is not there or not accessible, [`Error::AbiMismatch`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let file = open_node(&path)?;
        let device = Self { path, file };
        let abi = device.info()?.abi;
        if abi != card::ABI_VERSION {
            return Err(Error::AbiMismatch { driver: abi, library: card::ABI_VERSION });
        }
        Ok(device)
    }

    /// Opens the device with the lowest number.
    ///
    /// # Errors
    /// [`Error::NoDevice`] when there is none; otherwise as [`Device::open`].
    pub fn open_first() -> Result<Self> {
        let path = Self::list().into_iter().next().ok_or(Error::NoDevice)?;
        Self::open(path)
    }

    /// Nodes of all cards, by number.
    pub fn list() -> Vec<PathBuf> {
        let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/dev")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.strip_prefix("berth")?.parse().ok()?;
                Some((number, entry.path()))
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Path of the node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Properties, state and name.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] when the card has been removed.
    pub fn info(&self) -> Result<Info> {
        let mut q = ioctl::Query::default();
        self.ioctl("query the device", ioctl::IOC_QUERY, &mut q)?;
        Ok(Info::new(&q))
    }

    /// Sets the end node's name (CAP_NET_ADMIN).
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Invalid`] for a multicast or zero address or an unknown MTU.
    pub fn set_net(&self, net: &Net) -> Result<()> {
        let [a, b, c, d, e, f] = net.mac.0;
        let mut arg = ioctl::SetNet { ipv4: net.ipv4.into(), mtu: net.mtu, mac: [a, b, c, d, e, f, 0, 0] };
        self.ioctl("set the name in the network", ioctl::IOC_SET_NET, &mut arg)
    }

    /// Sets limits of the card (CAP_SYS_ADMIN).
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Invalid`] for a budget of less than a page.
    pub fn set_limits(&self, limits: &Limits) -> Result<()> {
        let mut arg = ioctl::SetLimits::default();
        if let Some(ms) = limits.linger_ms {
            arg.mask |= ioctl::LIMIT_LINGER;
            arg.linger_ms = ms;
        }
        if let Some(bytes) = limits.card_budget {
            arg.mask |= ioctl::LIMIT_CARD_BUDGET;
            arg.card_budget = bytes;
        }
        if limits.reset_peak {
            arg.mask |= ioctl::LIMIT_RESET_PEAK;
        }
        self.ioctl("set limits", ioctl::IOC_SET_LIMITS, &mut arg)
    }

    /// All counters.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] when the card has been removed.
    pub fn counters(&self) -> Result<Counters> {
        let mut raw = ioctl::Counters::ZERO;
        self.ioctl("read counters", ioctl::IOC_COUNTERS, &mut raw)?;
        Ok(Counters::new(raw))
    }

    /// Takes log bytes of the firmware (CAP_SYS_ADMIN) and appends them to `out`. Answers how many bytes were
    /// taken (0: nothing waits) and how many were lost before them because nobody read.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn read_log(&self, out: &mut Vec<u8>) -> Result<(usize, u32)> {
        let mut chunk = [0u8; 4096];
        let mut arg = ioctl::ReadLog { buffer: chunk.as_mut_ptr() as u64, bytes: chunk.len() as u32, lost: 0 };
        self.ioctl("read the firmware's log", ioctl::IOC_READ_LOG, &mut arg)?;
        let taken = (arg.bytes as usize).min(chunk.len());
        out.extend_from_slice(&chunk[..taken]);
        Ok((taken, arg.lost))
    }

    /// Resets the card and loads the firmware anew (CAP_SYS_ADMIN). All contexts lose their objects.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Firmware`] when the firmware does not come up.
    pub fn reset(&self) -> Result<()> {
        self.ioctl("reset the card", ioctl::IOC_RESET, &mut ioctl::Handle::default())
    }

    /// Makes the firmware panic, or hang (CAP_SYS_ADMIN, driver built with `BERTH_DEBUG`). For tests.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], or what the driver answers when it was built without the option.
    pub fn crash(&self, hang: bool) -> Result<()> {
        let how = if hang { ring::CRASH_LOOP } else { ring::CRASH_PANIC };
        self.ioctl("crash the firmware", ioctl::IOC_CRASH, &mut ioctl::Crash { how, ..ioctl::Crash::default() })
    }

    /// Has the firmware send the driver an event with these first words, whatever it is (as [`Self::crash`]). For tests.
    ///
    /// # Errors
    /// As [`Self::crash`].
    pub fn send_event(&self, event: [u32; ring::CRASH_EVENT_WORDS]) -> Result<()> {
        let mut arg = ioctl::Crash { how: ring::CRASH_EVENT, event, ..ioctl::Crash::default() };
        self.ioctl("have the firmware send an event", ioctl::IOC_CRASH, &mut arg)
    }

    fn ioctl<T>(&self, what: &'static str, request: u32, arg: &mut T) -> Result<()> {
        // SAFETY: every caller above passes the struct of its request; the one pointer (ReadLog) is to a
        // live buffer of the size given.
        unsafe { sys::ioctl(self.file.as_fd(), request, arg) }.map_err(|e| Error::from_errno(what, e))
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

pub(crate) fn open_node(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| Error::Open { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_address_is_read_and_written() {
        let mac: MacAddr = "02:00:5e:10:ff:01".parse().unwrap();
        assert_eq!(mac.0, [2, 0, 0x5e, 0x10, 0xff, 1]);
        assert_eq!(mac.to_string(), "02:00:5e:10:ff:01");
        assert!("02:00:5e:10:ff".parse::<MacAddr>().is_err());
        assert!("02:00:5e:10:ff:01:02".parse::<MacAddr>().is_err());
        assert!("zz:00:5e:10:ff:01".parse::<MacAddr>().is_err());
    }

    #[test]
    fn missing_device_says_what_to_do() {
        let text = Device::open("/dev/berth-that-is-not-there").unwrap_err().to_string();
        assert!(text.contains("modprobe"), "{text}");
    }
}
