// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that users name: an input must be a regular file of the length that it reports; an output appears under its
//! name when it is complete. Only one-sided copies write files in place.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use libberth::{Error, FileMap, FileRegion, ProtectionDomain};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::record::DIGEST;
use crate::signals;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 18;
/// Opening never waits, and makes no terminal this process's controlling one.
const AT_ONCE: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

/// File systems whose files are made when they are read: they claim to be regular, with a wrong length.
const MADE_WHEN_READ: &[(u32, &str)] = &[
    (0x9fa0, "/proc"),
    (0x6265_6572, "/sys"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6265_6570, "configfs"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0xcafe_4a11, "bpf"),
    (0x4249_4e4d, "binfmt_misc"),
];

fn kind(file: FileType) -> &'static str {
    match file {
        f if f.is_dir() => "a directory",
        f if f.is_fifo() => "a FIFO (a pipe)",
        f if f.is_socket() => "a socket",
        f if f.is_char_device() => "a character device",
        f if f.is_block_device() => "a block device",
        _ => "of an unknown kind",
    }
}

/// What has become of a file since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is shorter.
    Shorter {
        /// Bytes when it was opened.
        was: u64,
        /// Bytes now.
        now: u64,
    },
    /// It is longer.
    Longer {
        /// Bytes when it was opened.
        was: u64,
        /// Bytes now.
        now: u64,
    },
    /// It is as long, with other bytes.
    Written,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shorter { was, now } => {
                write!(f, "the file became shorter meanwhile: {was} bytes when it was opened, {now} now")
            }
            Self::Longer { was, now } => {
                write!(f, "the file became longer meanwhile: {was} bytes when it was opened, {now} now")
            }
            Self::Written => f.write_str("the file was written to meanwhile"),
        }
    }
}

/// A regular input file of the length that it reports.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: File,
    length: u64,
    /// When it was written last, as of the opening: seconds, nanoseconds.
    written: (i64, i64),
}

fn written(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

impl Source {
    /// Opens it. Anything but a regular file of known length is refused by name, and neither opened nor waited for.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |e| Failure::File(path.to_owned(), e);
        check_source(path, &fs::metadata(path).map_err(failed)?)?;
        check_file_system(path)?;
        Self::checked(path, OpenOptions::new().read(true).custom_flags(AT_ONCE).open(path).map_err(failed)?)
    }

    /// Opens one that is also written to. With a size it is made if it is not there, and made longer if it is shorter.
    pub fn open_to_write(path: &Path, size: Option<u64>) -> Result<Self, Failure> {
        let failed = |e| Failure::File(path.to_owned(), e);
        match fs::metadata(path) {
            Err(e) if size.is_some() && e.kind() == io::ErrorKind::NotFound => {}
            found => check_source(path, &found.map_err(failed)?)?,
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(size.is_some()).truncate(false).custom_flags(AT_ONCE);
        let file = options.open(path).map_err(|e| cannot_write(path, e))?;
        check_file_system(path)?;
        if let Some(size) = size
            && file.metadata().map_err(failed)?.len() < size
        {
            file.set_len(size).map_err(failed)?;
        }
        Self::checked(path, file)
    }

    /// One that is open. It may be another file than it was.
    fn checked(path: &Path, file: File) -> Result<Self, Failure> {
        let found = file.metadata().map_err(|e| Failure::File(path.to_owned(), e))?;
        check_source(path, &found)?;
        Ok(Self { path: path.to_owned(), length: found.len(), written: written(&found), file })
    }

    /// Another number when the file has been written to before it was opened again.
    pub fn stamp(&self) -> u64 {
        let (seconds, nanoseconds) = self.written;
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds).cast_unsigned()
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What has become of it since it was opened.
    pub fn change(&self) -> Option<Change> {
        let now = self.file.metadata().ok()?;
        let (was, len) = (self.length, now.len());
        match len.cmp(&was) {
            std::cmp::Ordering::Less => Some(Change::Shorter { was, now: len }),
            std::cmp::Ordering::Greater => Some(Change::Longer { was, now: len }),
            std::cmp::Ordering::Equal => (written(&now) != self.written).then_some(Change::Written),
        }
    }

    /// As [`change`](Self::change), but bytes that were written in place count only when they differ from `digest`.
    /// Slow: reads the file.
    pub fn differs(&mut self, digest: &[u8; DIGEST]) -> Option<Change> {
        match self.change() {
            // Timestamps are coarse, and stores to a mapping may not update them.
            None | Some(Change::Written) => match self.digest() {
                Ok(now) => (now != *digest).then_some(Change::Written),
                Err(Failure::Changed(_, change)) => Some(change),
                Err(_) => None,
            },
            change => change,
        }
    }

    /// The failure that the file has changed.
    pub fn changed(&self, change: Change) -> Failure {
        Failure::Changed(self.path.clone(), change)
    }

    /// Hands out all of it, and checks the length.
    fn each(&mut self, mut take: impl FnMut(&[u8])) -> Result<(), Failure> {
        let failed = |path: &Path, e| Failure::File(path.to_owned(), e);
        self.file.rewind().map_err(|e| failed(&self.path, e))?;
        let mut chunk = vec![0; CHUNK];
        let mut got = 0;
        loop {
            signals::check()?;
            let n = match self.file.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(failed(&self.path, e)),
            };
            got += n as u64;
            if n == 0 || got > self.length {
                break;
            }
            take(&chunk[..n]);
        }
        if got == self.length {
            return Ok(());
        }
        // Files of some drivers and of networks report a wrong length.
        Err(match self.change() {
            Some(change @ (Change::Shorter { .. } | Change::Longer { .. })) => self.changed(change),
            _ => {
                let (said, more) = (self.length, got > self.length);
                let has = if more { "more".to_owned() } else { format!("only {got}") };
                let text = format!("it says that it has {said} bytes, but {has} can be read: copy it first");
                Failure::Kind(self.path.clone(), text)
            }
        })
    }

    /// Its SHA-256.
    pub fn digest(&mut self) -> Result<[u8; DIGEST], Failure> {
        let mut hash = Sha256::new();
        self.each(|bytes| hash.update(bytes))?;
        Ok(hash.finalize().into())
    }

    /// All of it.
    pub fn bytes(&mut self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        self.each(|bytes| all.extend_from_slice(bytes))?;
        Ok(all)
    }

    /// Maps it, as long as it was when it was opened.
    pub fn map(&self) -> Result<FileMap, Failure> {
        let map = FileMap::new(&self.file).map_err(|e| self.not_mapped(e))?;
        self.check_length(map.len())?;
        Ok(map)
    }

    /// Gives peers of a protection domain a key to it, as long as it was when it was opened.
    pub fn region(&self, domain: &ProtectionDomain, writable: bool) -> Result<FileRegion, Failure> {
        let file = self.file.try_clone().map_err(|e| Failure::File(self.path.clone(), e))?;
        let make = if writable { FileRegion::writable } else { FileRegion::read_only };
        let region = make(domain, file).map_err(|e| self.not_mapped(e))?;
        self.check_length(region.len())?;
        Ok(region)
    }

    fn not_mapped(&self, e: Error) -> Failure {
        match e {
            Error::Os { source, what } => Failure::Kind(self.path.clone(), format!("{what}: {source}")),
            other => other.into(),
        }
    }

    /// Fails unless what is mapped has the length that the file had when it was opened.
    fn check_length(&self, mapped: usize) -> Result<(), Failure> {
        match self.change() {
            Some(change @ (Change::Shorter { .. } | Change::Longer { .. })) => Err(self.changed(change)),
            // It changed between the two looks.
            _ if mapped as u64 != self.length => Err(self.changed(Change::Written)),
            _ => Ok(()),
        }
    }
}

fn check_source(path: &Path, found: &Metadata) -> Result<(), Failure> {
    if found.is_file() {
        return Ok(());
    }
    let text = format!(
        "this is {}: only a regular file, whose length is known beforehand, will do (copy what it gives into one first)",
        kind(found.file_type())
    );
    Err(Failure::Kind(path.to_owned(), text))
}

fn check_file_system(path: &Path) -> Result<(), Failure> {
    match made_when_read(path).map_err(|e| Failure::File(path.to_owned(), e))? {
        Some(name) => {
            let text = format!("a file of {name} has no length until it is read: copy it into a regular file first");
            Err(Failure::Kind(path.to_owned(), text))
        }
        None => Ok(()),
    }
}

/// Name of the file system, if it makes its files when they are read.
fn made_when_read(path: &Path) -> io::Result<Option<&'static str>> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a string that ends with 0, and a place of the right type for the answer, of which any bytes are a value.
    let magic = unsafe {
        let mut answer: libc::statfs = std::mem::zeroed();
        if libc::statfs(name.as_ptr(), &raw mut answer) != 0 {
            return Err(io::Error::last_os_error());
        }
        answer.f_type as u32
    };
    Ok(MADE_WHEN_READ.iter().find(|(m, _)| *m == magic).map(|(_, name)| *name))
}

/// Opens a file that lines or bytes are appended to, without waiting for the reader of a pipe.
pub fn append(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(AT_ONCE)
        .open(path)
        .map_err(|e| cannot_write(path, e))?;
    blocking(&file).map_err(|e| Failure::File(path.to_owned(), e))?;
    Ok(file)
}

fn cannot_write(path: &Path, e: io::Error) -> Failure {
    let what = fs::metadata(path).ok().map(|m| m.file_type());
    match (e.raw_os_error(), what) {
        (Some(libc::ENXIO), Some(f)) if f.is_fifo() => {
            Failure::Kind(path.to_owned(), "nobody reads this FIFO: start its reader first".into())
        }
        (Some(libc::ENXIO), Some(f)) if f.is_socket() => {
            Failure::Kind(path.to_owned(), "this is a socket, which cannot be written to as a file".into())
        }
        _ => Failure::File(path.to_owned(), e),
    }
}

/// From now on writes wait until there is room.
fn blocking(file: &File) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A regular file that is filled in place, at any offset.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    file: File,
}

impl Target {
    /// Opens it as it is, and makes it if it is not there.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |e| Failure::File(path.to_owned(), e);
        let check = |found: &Metadata| match found.is_file() {
            true => Ok(()),
            false => {
                let text = format!("this is {}: only a regular file is filled in place", kind(found.file_type()));
                Err(Failure::Kind(path.to_owned(), text))
            }
        };
        match fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            found => check(&found.map_err(failed)?)?,
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).custom_flags(AT_ONCE);
        let file = options.open(path).map_err(|e| cannot_write(path, e))?;
        // It may be another file by now.
        check(&file.metadata().map_err(failed)?)?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn failed(&self, e: io::Error) -> Failure {
        Failure::File(self.path.clone(), e)
    }

    /// Fails if it has fewer bytes.
    pub fn check_reaches(&self, bytes: u64) -> Result<(), Failure> {
        let there = self.file.metadata().map_err(|e| self.failed(e))?.len();
        if there >= bytes {
            return Ok(());
        }
        let text = format!("it has {there} bytes, but {bytes} were there when the copy was interrupted: copy anew");
        Err(Failure::Kind(self.path.clone(), text))
    }

    /// Writes bytes to their place.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<(), Failure> {
        self.file.write_all_at(bytes, at).map_err(|e| self.failed(e))
    }

    /// What has been written goes to its medium.
    pub fn sync(&self) -> Result<(), Failure> {
        self.file.sync_data().map_err(|e| self.failed(e))
    }

    /// It ends here, whatever it had behind.
    pub fn end_at(&self, length: u64) -> Result<(), Failure> {
        self.file.set_len(length).map_err(|e| self.failed(e))
    }
}

/// An unpredictable number.
pub fn random() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    let path = Path::new("/dev/urandom");
    let read = File::open(path).and_then(|mut f| f.read_exact(&mut bytes));
    read.map_err(|e| Failure::File(path.to_owned(), e))?;
    Ok(u64::from_le_bytes(bytes))
}

/// An output file, under a name of its own beside its target until it is complete. Removed unless kept.
///
/// A device or a pipe is written as it is.
#[derive(Debug)]
pub struct Output {
    /// As the user calls it.
    target: PathBuf,
    file: File,
    /// Digest of the written bytes; of a regular file only the digest that is read back counts.
    hash: Sha256,
    part: Option<Part>,
}

#[derive(Debug)]
struct Part {
    /// Where the bytes are now.
    path: PathBuf,
    /// Where they go: no symbolic link.
    target: PathBuf,
    /// The directory of both, if it may be read.
    folder: Option<File>,
}

impl Output {
    /// Makes it. Any reason that it cannot be written shows here, except a medium that becomes full.
    pub fn create(target: &Path) -> Result<Self, Failure> {
        let failed = |e| Failure::File(target.to_owned(), e);
        let there = match fs::metadata(target) {
            Ok(there) => Some(there),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        match there {
            Some(there) if there.is_dir() => {
                Err(Failure::Kind(target.to_owned(), "this is a directory: name a file in it".into()))
            }
            Some(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).custom_flags(AT_ONCE).open(target);
                let file = file.map_err(|e| cannot_write(target, e))?;
                blocking(&file).map_err(failed)?;
                Ok(Self { target: target.to_owned(), file, hash: Sha256::new(), part: None })
            }
            there => {
                // A link stays, and what it leads to is replaced.
                let real = match fs::symlink_metadata(target) {
                    Ok(link) if link.is_symlink() => fs::canonicalize(target).map_err(|e| {
                        let text = format!("a symbolic link that leads nowhere: {e}");
                        Failure::Kind(target.to_owned(), text)
                    })?,
                    _ => target.to_owned(),
                };
                if there.is_some() {
                    may_be_written(&real).map_err(failed)?;
                }
                Self::beside(target, real)
            }
        }
    }

    fn beside(target: &Path, real: PathBuf) -> Result<Self, Failure> {
        if real.file_name().is_none() || target.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Failure::Kind(target.to_owned(), "this names a directory: name a file in it".into()));
        }
        let folder = match real.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        loop {
            let path = folder.join(format!(".berth-{:016x}.part", random()?));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let folder = File::open(&folder).ok();
                    let part = Some(Part { path, target: real, folder });
                    return Ok(Self { target: target.to_owned(), file, hash: Sha256::new(), part });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Failure::Kind(target.to_owned(), format!("cannot write into its folder: {e}"))),
            }
        }
    }

    fn failed(&self, e: io::Error) -> Failure {
        Failure::File(self.target.clone(), e)
    }

    /// Whether it is this process's standard output.
    pub fn is_standard_output(&self) -> bool {
        // SAFETY: no memory but the answer's place, of which any bytes are a value.
        let standard = unsafe {
            let mut found: libc::stat = std::mem::zeroed();
            (libc::fstat(1, &raw mut found) == 0).then_some((found.st_dev, found.st_ino))
        };
        let own = self.file.metadata().ok().map(|m| (m.dev(), m.ino()));
        self.part.is_none() && standard.is_some() && standard == own
    }

    /// Writes what comes next.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|e| Failure::File(self.target.clone(), e))?;
        if self.part.is_none() {
            self.hash.update(bytes);
        }
        Ok(())
    }

    /// All is written: syncs it to the medium, and answers the SHA-256 of the stored bytes, as they are read back.
    pub fn seal(&mut self) -> Result<[u8; DIGEST], Failure> {
        if self.part.is_none() {
            self.file.flush().map_err(|e| self.failed(e))?;
            return Ok(self.hash.clone().finalize().into());
        }
        self.file.sync_all().map_err(|e| self.failed(e))?;
        self.file.rewind().map_err(|e| self.failed(e))?;
        let mut hash = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            signals::check()?;
            match self.file.read(&mut chunk) {
                Ok(0) => return Ok(hash.finalize().into()),
                Ok(n) => hash.update(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
    }

    /// Gives it its name, for good. Answers whether it still has it: another process may have put a file of its own in
    /// its place meanwhile.
    pub fn keep(mut self) -> Result<bool, Failure> {
        let Some(part) = &self.part else { return Ok(true) };
        fs::rename(&part.path, &part.target).map_err(|e| self.failed(e))?;
        let synced = match &part.folder {
            Some(folder) => folder.sync_all(),
            // SAFETY: no memory is involved.
            None => match unsafe { libc::syncfs(self.file.as_raw_fd()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        };
        let target = part.target.clone();
        // It has its name now and must not be removed.
        self.part = None;
        match synced {
            // EINVAL or EOPNOTSUPP: the file system cannot sync.
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => return Err(self.failed(e)),
            _ => {}
        }
        let own = self.file.metadata().map_err(|e| self.failed(e))?;
        Ok(fs::metadata(target).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = fs::remove_file(&part.path);
        }
    }
}

/// Fails when the process may not write a file that it could replace all the same.
fn may_be_written(path: &Path) -> io::Result<()> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a string that ends with 0.
    match unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of a test, removed with all that is in it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("berth-file-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            path
        }

        fn fifo(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            let text = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: a string that ends with 0.
            assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
            path
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> =
                fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn sha(bytes: &[u8]) -> [u8; DIGEST] {
        Sha256::digest(bytes).into()
    }

    #[test]
    fn f5_only_a_regular_file_of_known_length_is_a_source() {
        let folder = Folder::new("kinds");
        let (full, empty) = (folder.fifo("full"), folder.fifo("empty"));
        // A FIFO with data, one without a writer: neither is waited for.
        let mut writer = File::options().read(true).write(true).open(&full).unwrap();
        writer.write_all(b"data").unwrap();
        let socket = folder.0.join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.0.join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for (path, says) in [
            (Path::new("/proc/version"), "/proc"),
            (Path::new("/proc/self/maps"), "/proc"),
            (Path::new("/sys/kernel/mm/transparent_hugepage/enabled"), "/sys"),
            (Path::new("/dev/zero"), "a character device"),
            (&link, "a character device"),
            (&full, "a FIFO"),
            (&empty, "a FIFO"),
            (&socket, "a socket"),
            (&folder.0, "a directory"),
            (Path::new("/berth-is-not-here"), "No such file"),
        ] {
            if says == "/sys" && !path.exists() {
                continue;
            }
            let text = Source::open(path).unwrap_err().to_string();
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains(says), "{text}");
        }
    }

    #[test]
    fn f5_a_file_that_changes_is_named_as_that_at_each_step() {
        let folder = Folder::new("changes");
        let bytes = vec![7; 3 * CHUNK + 5];
        let was = bytes.len() as u64;
        let shorter = |now| Change::Shorter { was, now };
        let longer = |now| Change::Longer { was, now };
        let path = folder.file("file", &bytes);
        let resize = |len| File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
        // Before it is read, before it is mapped, after.
        for (len, change) in [(5, shorter(5)), (0, shorter(0)), (was + 1, longer(was + 1))] {
            resize(was);
            let mut source = Source::open(&path).unwrap();
            assert_eq!((source.length(), source.change()), (was, None));
            resize(len);
            assert!(matches!(source.digest(), Err(Failure::Changed(_, c)) if c == change));
            assert!(matches!(source.map(), Err(Failure::Changed(_, c)) if c == change));
            assert_eq!(source.differs(&[0; DIGEST]), Some(change));
            let text = source.changed(change).to_string();
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains("meanwhile"), "{text}");
        }
        // The same length, other bytes, and an unchanged time.
        fs::write(&path, &bytes).unwrap();
        let mut source = Source::open(&path).unwrap();
        let digest = source.digest().unwrap();
        assert_eq!((digest, source.differs(&digest)), (sha(&bytes), None));
        assert_eq!(source.map().unwrap().len() as u64, was);
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_at(b"x", 9).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!((source.change(), source.differs(&digest)), (None, Some(Change::Written)));
        // Only touched: the sent bytes are still those of the file.
        fs::write(&path, &bytes).unwrap();
        file.set_modified(time + std::time::Duration::from_secs(9)).unwrap();
        assert_eq!((source.change(), source.differs(&digest)), (Some(Change::Written), None));
    }

    #[test]
    fn a_served_file_is_made_as_long_as_asked_for_and_keeps_what_it_has() {
        let folder = Folder::new("served");
        let path = folder.0.join("new");
        let text = Source::open_to_write(&path, None).unwrap_err().to_string();
        assert!(text.contains("No such file"), "{text}");
        assert_eq!(Source::open_to_write(&path, Some(5000)).unwrap().length(), 5000);
        let path = folder.file("old", b"old");
        assert_eq!(Source::open_to_write(&path, Some(2)).unwrap().length(), 3);
        let longer = Source::open_to_write(&path, Some(5)).unwrap();
        assert_eq!((longer.length(), fs::read(&path).unwrap()), (5, b"old\0\0".to_vec()));
        let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_nanos(1_000);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_ne!(Source::open(&path).unwrap().stamp(), longer.stamp());
        for (path, says) in [
            (Path::new("/dev/zero"), "a character device"),
            (&folder.0, "a directory"),
            (&folder.fifo("fifo"), "a FIFO"),
            (&folder.0.join("no/file"), "No such file"),
        ] {
            let text = Source::open_to_write(path, Some(1)).unwrap_err().to_string();
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains(says), "{text}");
        }
    }

    #[test]
    fn a_target_is_filled_in_place() {
        let folder = Folder::new("target");
        let path = folder.file("copy", b"0123456789");
        let target = Target::open(&path).unwrap();
        target.write(b"ab", 3).unwrap();
        target.check_reaches(10).unwrap();
        assert!(target.check_reaches(11).unwrap_err().to_string().contains("has 10 bytes, but 11"));
        assert_eq!(fs::read(&path).unwrap(), b"012ab56789");
        target.end_at(4).unwrap();
        target.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"012a");
        Target::open(&folder.0.join("new")).unwrap().write(b"x", 2).unwrap();
        assert_eq!(fs::read(folder.0.join("new")).unwrap(), b"\0\0x");
        for (path, says) in [
            (Path::new("/dev/null"), "a character device"),
            (&folder.0, "a directory"),
            (&folder.fifo("fifo"), "a FIFO"),
            (&folder.0.join("no/file"), "No such file"),
        ] {
            let text = Target::open(path).unwrap_err().to_string();
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains(says), "{text}");
        }
    }

    #[test]
    fn f5_a_file_that_has_more_or_less_than_it_says_is_refused() {
        // As a file of /proc would be if its file system were not known.
        let file = File::open("/proc/version").unwrap();
        let mut source = Source { path: "/proc/version".into(), length: 0, written: (0, 0), file };
        let text = source.bytes().unwrap_err().to_string();
        assert!(text.starts_with("/proc/version: it says that it has 0 bytes, but more"), "{text}");
        // Files of /sys claim a page, and have less.
        let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        if let Ok(file) = File::open(path) {
            let length = file.metadata().unwrap().len();
            let mut source = Source { path: path.into(), length, written: (0, 0), file };
            let text = source.bytes().unwrap_err().to_string();
            assert!(text.contains("bytes, but only") && text.contains("can be read"), "{text}");
        }
    }

    #[test]
    fn f6_output_has_a_name_of_its_own_until_it_is_kept() {
        let folder = Folder::new("own");
        let target = folder.file("copy", b"old");
        // Files that earlier versions have left under their names stay.
        folder.file("copy.part", b"somebody's");
        let mut first = Output::create(&target).unwrap();
        let mut second = Output::create(&target).unwrap();
        assert_eq!(folder.names().iter().filter(|n| n.starts_with(".berth-")).count(), 2);
        first.write(b"first").unwrap();
        second.write(b"2nd").unwrap();
        first.write(b" file").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old", "not before it is complete");
        assert_eq!(first.seal().unwrap(), sha(b"first file"));
        assert_eq!(second.seal().unwrap(), sha(b"2nd"));
        assert!(first.keep().unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"first file");
        assert!(second.keep().unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"2nd", "whole");
        assert_eq!(folder.names(), ["copy", "copy.part"]);
        assert_eq!(fs::read(folder.0.join("copy.part")).unwrap(), b"somebody's");
    }

    #[test]
    fn f6_what_is_verified_is_what_is_stored() {
        let folder = Folder::new("stored");
        let target = folder.0.join("copy");
        let mut output = Output::create(&target).unwrap();
        output.write(b"received").unwrap();
        let part = folder.0.join(&folder.names()[0]);
        File::options().write(true).open(part).unwrap().write_at(b"X", 0).unwrap();
        assert_eq!(output.seal().unwrap(), sha(b"Xeceived"));
        drop(output);
        assert!(folder.names().is_empty(), "removed unless kept");
    }

    #[test]
    fn f6_output_that_cannot_be_written_is_refused_when_it_is_made() {
        let folder = Folder::new("refused");
        let fifo = folder.fifo("fifo");
        let dangling = folder.0.join("dangling");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        let looped = folder.0.join("looped");
        std::os::unix::fs::symlink("looped", &looped).unwrap();
        let file = folder.file("file", b"x");
        let long = folder.0.join("x".repeat(300));
        let socket = folder.0.join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, says) in [
            (folder.0.join("no/copy"), "No such file or directory"),
            (folder.0.clone(), "directory"),
            (folder.0.join("new/"), "directory"),
            (folder.0.join(".."), "directory"),
            (file.join("below"), "Not a directory"),
            (long, "File name too long"),
            (fifo, "nobody reads"),
            (socket, "socket"),
            (dangling, "leads nowhere"),
            (looped, "symbolic link"),
            ("/proc/copy".into(), "/proc/copy"),
            ("/sys/copy".into(), "/sys/copy"),
        ] {
            let text = Output::create(&path).map(drop).unwrap_err().to_string();
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains(says), "{path:?}: {text}");
        }
        assert!(!folder.names().iter().any(|n| n.contains("part")));
        // SAFETY: no memory is involved.
        if unsafe { libc::geteuid() } != 0 {
            // Root may write everywhere.
            let mut mode = fs::metadata(&file).unwrap().permissions();
            mode.set_readonly(true);
            fs::set_permissions(&file, mode).unwrap();
            assert!(Output::create(&file).map(drop).unwrap_err().to_string().contains("Permission denied"));
        }
    }

    #[test]
    fn f6_a_link_stays_and_leads_to_the_new_file() {
        let folder = Folder::new("link");
        let real = folder.file("real", b"old");
        let link = folder.0.join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let mut output = Output::create(&link).unwrap();
        output.write(b"new").unwrap();
        output.seal().unwrap();
        assert!(output.keep().unwrap());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn f6_devices_and_pipes_are_written_as_they_are() {
        let mut null = Output::create(Path::new("/dev/null")).unwrap();
        null.write(b"gone").unwrap();
        assert_eq!(null.seal().unwrap(), sha(b"gone"));
        assert!(null.keep().unwrap());
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let text = Output::create(Path::new("/dev/full")).unwrap().write(b"x").unwrap_err().to_string();
        assert!(text.contains("/dev/full: No space left on device"), "{text}");
        let folder = Folder::new("pipe");
        let fifo = folder.fifo("fifo");
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        let mut output = Output::create(&fifo).unwrap();
        output.write(b"through").unwrap();
        assert_eq!(output.seal().unwrap(), sha(b"through"));
        let mut got = [0; 7];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"through");
    }

    #[test]
    fn what_is_appended_to_is_not_waited_for() {
        let folder = Folder::new("append");
        let fifo = folder.fifo("fifo");
        assert!(append(&fifo).unwrap_err().to_string().contains("nobody reads"));
        let text = append(&folder.0).unwrap_err().to_string();
        assert!(text.starts_with(folder.0.to_str().unwrap()) && text.contains("Is a directory"), "{text}");
        append(&folder.file("file", b"a")).unwrap().write_all(b"b").unwrap();
        assert_eq!(fs::read(folder.0.join("file")).unwrap(), b"ab");
    }
}
