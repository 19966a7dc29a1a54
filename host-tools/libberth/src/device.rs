// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device: properties, name in the network, limits, counters, log.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use berth_abi::{card, ioctl, ring};

use crate::counters::Counters;
use crate::error::{self, Error, Result};
use crate::mapping::kind;
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
    /// [`Error::NoAccess`] when the process may not, [`Error::NotBerth`] when the path names something else,
    /// [`Error::Open`] when it cannot be opened for another reason, [`Error::AbiMismatch`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let file = open_node(&path)?;
        let device = Self { path, file };
        let abi = match device.info() {
            Ok(info) => info.abi,
            // The first call on the descriptor: another driver does not know it.
            Err(Error::UnknownCall { .. } | Error::Invalid { .. }) => {
                let what = "its driver does not know Berth's calls".into();
                return Err(Error::NotBerth { path: device.path, what });
            }
            Err(error) => return Err(error),
        };
        if abi != card::ABI_VERSION {
            return Err(Error::AbiMismatch { driver: abi, library: card::ABI_VERSION });
        }
        Ok(device)
    }

    /// Opens the device with the lowest number among those that the process may open. A card that has gone meanwhile is
    /// passed over as well. Any other trouble with a card is an error, or a program would move to another card without
    /// its user's knowledge.
    ///
    /// # Errors
    /// [`Error::NoDevice`] when there is none; otherwise as [`Device::open`], of the first one when all are refused.
    pub fn open_first() -> Result<Self> {
        first_usable(Self::list(), |path| Self::open(path))
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
        self.ioctl(error::SET_NET, ioctl::IOC_SET_NET, &mut arg)
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
        self.ioctl(error::SET_LIMITS, ioctl::IOC_SET_LIMITS, &mut arg)
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

    /// Takes log bytes of the firmware (CAP_SYS_ADMIN) and appends them to `out`. Answers how many bytes were taken (0:
    /// nothing waits) and how many were lost before them because they were not read in time.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn read_log(&self, out: &mut Vec<u8>) -> Result<(usize, u32)> {
        let mut chunk = [0u8; 4096];
        let mut arg = ioctl::ReadLog { buffer: chunk.as_mut_ptr() as u64, bytes: chunk.len() as u32, lost: 0 };
        self.ioctl(error::READ_LOG, ioctl::IOC_READ_LOG, &mut arg)?;
        let taken = (arg.bytes as usize).min(chunk.len());
        out.extend_from_slice(&chunk[..taken]);
        Ok((taken, arg.lost))
    }

    /// Resets the card and loads the firmware anew (CAP_SYS_ADMIN). All contexts lose their objects.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Firmware`] when the firmware does not come up.
    pub fn reset(&self) -> Result<()> {
        self.ioctl(error::RESET, ioctl::IOC_RESET, &mut ioctl::Handle::default())
    }

    /// Makes the firmware panic, or hang (CAP_SYS_ADMIN, driver built with `BERTH_DEBUG`). For tests.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], or what the driver answers when it was built without the option.
    pub fn crash(&self, hang: bool) -> Result<()> {
        let how = if hang { ring::CRASH_LOOP } else { ring::CRASH_PANIC };
        self.ioctl(error::CRASH, ioctl::IOC_CRASH, &mut ioctl::Crash { how, ..ioctl::Crash::default() })
    }

    /// Has the firmware send the driver an event with these first words, whatever it is (as [`Self::crash`]). For tests.
    ///
    /// # Errors
    /// As [`Self::crash`].
    pub fn send_event(&self, event: [u32; ring::CRASH_EVENT_WORDS]) -> Result<()> {
        let mut arg = ioctl::Crash { how: ring::CRASH_EVENT, event, ..ioctl::Crash::default() };
        self.ioctl(error::CRASH, ioctl::IOC_CRASH, &mut arg)
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

/// The first one that opens; those that this process may not open or that have gone are passed over.
fn first_usable<T>(paths: Vec<PathBuf>, open: impl Fn(&Path) -> Result<T>) -> Result<T> {
    let mut refused = None;
    for path in paths {
        match open(&path) {
            Err(error @ (Error::NoAccess { .. } | Error::DeviceLost)) => {
                refused.get_or_insert(error);
            }
            Err(error @ Error::Open { .. }) if is_gone(&error) => {
                refused.get_or_insert(error);
            }
            other => return other,
        }
    }
    Err(refused.unwrap_or(Error::NoDevice))
}

fn is_gone(error: &Error) -> bool {
    let Error::Open { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV))
}

pub(crate) fn open_node(path: &Path) -> Result<File> {
    let explain = |source| open_error(path, source);
    // Looked at before it is opened: opening alone has effects on some devices.
    let what = path.metadata().map_err(explain)?;
    if let Some(what) = not_a_card(&what) {
        return Err(Error::NotBerth { path: path.to_owned(), what });
    }
    // Opening never waits, nor makes it the process's terminal, if it is something else after all.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(explain)
}

/// Describes the file if it cannot be the node of a card.
fn not_a_card(what: &Metadata) -> Option<String> {
    if !what.file_type().is_char_device() {
        return Some(format!("this is {}", kind(what.file_type())));
    }
    // The kernel's own name of the device, as far as /sys is there.
    let number = what.rdev();
    let link = format!("/sys/dev/char/{}:{}", libc::major(number), libc::minor(number));
    let name = std::fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned();
    (!name.starts_with("berth")).then(|| format!("this is the device `{name}`"))
}

/// Explains the errno of a failed open of a device node.
fn open_error(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    let advice = match source.raw_os_error() {
        Some(libc::EACCES) => {
            let advice = who_may(&path);
            return Error::NoAccess { path, source, advice };
        }
        Some(libc::EPERM) => {
            let advice = "it is not the node's mode that forbids it, but a container's list of devices or a security \
                          module: let the container have the device"
                .into();
            return Error::NoAccess { path, source, advice };
        }
        Some(libc::ENOENT) => {
            let there = Device::list();
            match there.is_empty() {
                true => "is the driver loaded? try `modprobe berth`; `lspci -d 10ee:be47` shows cards".into(),
                false => {
                    let there: Vec<_> = there.iter().map(|p| p.display().to_string()).collect();
                    format!("there is {}", there.join(", "))
                }
            }
        }
        Some(libc::ENXIO | libc::ENODEV) => "the node is there, but no card behind it: the driver is not loaded, or \
                                             the card has been removed; try `modprobe berth`, and `dmesg` says more"
            .into(),
        Some(libc::ENOTDIR) => "a part of the path is not a directory".into(),
        Some(libc::ELOOP) => "its symbolic links lead in a circle".into(),
        Some(libc::ENAMETOOLONG) => "no node has a name that long".into(),
        Some(libc::EBUSY) => "somebody else has it for himself: who, says `fuser`".into(),
        Some(libc::EMFILE) => "this process has as many files open as it may: `ulimit -n`".into(),
        Some(libc::ENFILE) => "the whole system has as many files open as it may: sysctl fs.file-max".into(),
        Some(libc::ENOMEM) => "the host has no memory left".into(),
        Some(libc::EROFS) => "its file system is mounted read-only or without devices (nodev)".into(),
        Some(libc::EIO) => "the driver could not reach the card: `dmesg` says more".into(),
        _ => "not an error that Berth's driver gives: `dmesg` may say more".into(),
    };
    Error::Open { path, source, advice }
}

/// The users who may open the node, and how to become one of them.
fn who_may(path: &Path) -> String {
    // SAFETY: no memory is involved.
    let me = unsafe { libc::geteuid() };
    let me = name_of("/etc/passwd", me);
    let Ok(node) = path.metadata() else {
        return format!("user {me} may not look into a directory of its path");
    };
    let group = name_of("/etc/group", node.gid());
    let owner = name_of("/etc/passwd", node.uid());
    let mode = node.mode() & 0o7777;
    let way = if mode & 0o060 == 0o060 && node.gid() != 0 {
        format!("a member of group {group} may: as root `usermod -aG {group} {me}`, then log in again")
    } else {
        "driver/60-berth.rules is a udev rule that gives it to group berth; or as root `chgrp GROUP` and `chmod 0660`"
            .to_owned()
    };
    format!("it belongs to user {owner} and group {group}, mode {mode:04o}, and you are {me}; {way}")
}

/// Name of a user or group by its number, if this file has it.
fn name_of(file: &str, id: u32) -> String {
    let all = std::fs::read_to_string(file).unwrap_or_default();
    let named = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| id.to_string())
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
        assert!(text.contains("modprobe") || text.contains("there is /dev/berth"), "{text}");
    }

    #[test]
    fn f7_what_is_not_a_card_is_named_and_not_opened() {
        let dir = std::env::temp_dir().join(format!("berth-node-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("file");
        std::fs::write(&file, "x").unwrap();
        let fifo = dir.join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = dir.join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, says) in [
            (Path::new("/dev/null"), "`null`"),
            (Path::new("/dev/full"), "`full`"),
            (&dir, "a directory"),
            (&file, "a regular file"),
            (&fifo, "a FIFO"),
            (&socket, "a socket"),
        ] {
            let error = Device::open(path).unwrap_err();
            let Error::NotBerth { what, .. } = &error else { panic!("{path:?}: {error}") };
            // Without /sys, the driver behind the node answers that it does not know the call.
            assert!(what.contains(says) || what.contains("does not know Berth's calls"), "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        let _ = std::fs::remove_dir_all(&dir);
    }

    #[test]
    fn f7_every_errno_of_an_open_has_an_advice_of_its_own() {
        let path = Path::new("/dev/null");
        let said = |errno| open_error(path, io::Error::from_raw_os_error(errno));
        let mut seen = std::collections::BTreeMap::new();
        for (errno, word) in [
            (libc::ENXIO, "no card behind it"),
            (libc::ENODEV, "no card behind it"),
            (libc::ENOTDIR, "not a directory"),
            (libc::ELOOP, "circle"),
            (libc::ENAMETOOLONG, "name that long"),
            (libc::EBUSY, "somebody else"),
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "file-max"),
            (libc::ENOMEM, "memory"),
            (libc::EROFS, "read-only"),
            (libc::EIO, "could not reach the card"),
            (libc::EPROTO, "dmesg"),
        ] {
            let error = said(errno);
            assert!(matches!(error, Error::Open { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("/dev/null") && text.contains(word), "{text}");
            assert!(errno == libc::ENODEV || errno == libc::ENXIO || !text.contains("modprobe"), "{text}");
            seen.insert(text, errno);
        }
        assert_eq!(seen.len(), 12, "each says which it was: {seen:?}");
        for errno in [libc::EACCES, libc::EPERM] {
            assert!(matches!(said(errno), Error::NoAccess { .. }));
        }
        let text = said(libc::EACCES).to_string();
        assert!(text.contains("user root and group root, mode 0666") && text.contains("60-berth.rules"), "{text}");
        assert!(!text.contains("modprobe"), "{text}");
    }

    #[test]
    fn f7_first_card_is_the_first_that_may_be_opened() {
        let paths = || ["0", "1", "2"].map(PathBuf::from).to_vec();
        let fails = |errno| move |path: &Path| open_error(path, io::Error::from_raw_os_error(errno));
        let (denied, gone, broken) = (fails(libc::EACCES), fails(libc::ENODEV), fails(libc::EIO));
        let open = |path: &Path| match path.to_str() {
            Some("0") => Err(denied(path)),
            Some("1") => Err(gone(path)),
            _ => Ok(path.to_owned()),
        };
        assert_eq!(first_usable(paths(), open).unwrap(), Path::new("2"));
        // All refused: it is the first one's error.
        let error = first_usable(paths(), |path| -> Result<()> { Err(denied(path)) }).unwrap_err();
        assert!(matches!(&error, Error::NoAccess { path, .. } if path == Path::new("0")), "{error}");
        // A card with another trouble is not passed over.
        let error = first_usable(paths(), |path| match path.to_str() {
            Some("0") => Err(denied(path)),
            Some("1") => Err(broken(path)),
            _ => Ok(()),
        });
        assert!(matches!(&error, Err(Error::Open { path, .. }) if path == Path::new("1")), "{error:?}");
        assert!(matches!(first_usable(vec![], |_| Ok(())), Err(Error::NoDevice)));
    }
}
