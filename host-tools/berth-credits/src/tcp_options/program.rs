// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program, and the sockets that it is for.

use super::shared::{Shared, lock, system};
use super::socket::Socket;
use crate::header::Limits;
use crate::tcp::Tcp;
use aya::maps::{Map, MapData, MapError, RingBuf};
use aya::programs::{CgroupAttachMode, SockOps};
use aya::{Ebpf, EbpfError};
use rustix::net::sockopt::{set_socket_reuseaddr, socket_cookie};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Why there is no program.
#[derive(Debug)]
pub enum Error {
    /// There is no such cgroup, or it may not be opened.
    Cgroup(io::Error),
    /// The kernel does not take the program.
    Load(EbpfError),
    /// The cgroup does not take the program.
    Attach(EbpfError),
    /// The system gives no further file descriptor.
    Descriptor(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cgroup(error) => write!(f, "the cgroup cannot be opened: {error}"),
            Self::Load(error) => write!(f, "the kernel does not take the program for TCP options: {error}"),
            Self::Attach(error) => write!(f, "the cgroup does not take the program for TCP options: {error}"),
            Self::Descriptor(error) => write!(f, "no file descriptor to wait for TCP options: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Cgroup(error) | Self::Descriptor(error) => Some(error),
            Self::Load(error) | Self::Attach(error) => Some(error),
        }
    }
}

/// What the program counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Options that were put into segments.
    pub written: u64,
    /// Options that came.
    pub read: u64,
}

/// A program that is loaded, and attached to a cgroup until this and all its sockets are gone.
///
/// An option may come with an acknowledgement, which makes no socket readable. Whoever sleeps waits for the program's
/// descriptor, too: it is readable when options have come, and then each end of a connection may have something to do. The
/// first that looks takes the options of all, so threads that sleep by themselves have a program each.
#[derive(Clone, Debug)]
pub struct Program {
    shared: Arc<Mutex<Shared>>,
    descriptor: Arc<OwnedFd>,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Program {
    /// Loads the program, and attaches it to the cgroup with this folder: that of the calling process, or one above it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn load(cgroup: &Path) -> Result<Self, Error> {
        let cgroup = File::open(cgroup).map_err(Error::Cgroup)?;
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lists.bpf.o"));
        let mut program = Ebpf::load(object).map_err(Error::Load)?;
        let lacks = |name: &str| Error::Load(MapError::InvalidName { name: name.to_owned() }.into());
        let operations = program.program_mut("berth_lists").ok_or_else(|| lacks("berth_lists"))?;
        let operations: &mut SockOps =
            operations.try_into().map_err(|error: aya::programs::ProgramError| Error::Load(error.into()))?;
        operations.load().map_err(|error| Error::Load(error.into()))?;
        // A link leaves the programs of others where they are, and takes no mode that says so.
        operations.attach(cgroup, CgroupAttachMode::Single).map_err(|error| Error::Attach(error.into()))?;
        let mut map = |name: &str| -> Result<Map, Error> { program.take_map(name).ok_or_else(|| lacks(name)) };
        let (entries, counts, arrivals) = (map("entries")?, map("counts")?, map("arrivals")?);
        let wrong = |error: MapError| Error::Load(error.into());
        let arrivals: RingBuf<MapData> = arrivals.try_into().map_err(wrong)?;
        let descriptor = arrivals.as_fd().try_clone_to_owned().map_err(Error::Descriptor)?;
        let shared = Shared {
            entries: entries.try_into().map_err(wrong)?,
            counts: counts.try_into().map_err(wrong)?,
            arrivals,
            waiting: HashMap::new(),
            _program: program,
        };
        Ok(Self { shared: Arc::new(Mutex::new(shared)), descriptor: Arc::new(descriptor) })
    }

    /// A new socket, and what `begin` does with it while it is the program's.
    fn socket(&self, address: SocketAddr, begin: impl FnOnce(&OwnedFd) -> io::Result<()>) -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let cookie = socket_cookie(&socket)?;
        lock(&self.shared).add(cookie, false)?;
        let begun = begin(&socket);
        lock(&self.shared).remove(cookie);
        begun.map(|()| socket)
    }

    /// Connects to `address`.
    ///
    /// # Errors
    /// As the system says.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        Ok(self.socket(address, |socket| Ok(connect(socket, &address)?))?.into())
    }

    /// Listens on `address`. What is accepted is for [`Program::endpoint`].
    ///
    /// # Errors
    /// As the system says.
    pub fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let begin = |socket: &OwnedFd| {
            set_socket_reuseaddr(socket, true)?;
            bind(socket, &address)?;
            Ok(listen(socket, BACKLOG)?)
        };
        Ok(self.socket(address, begin)?.into())
    }

    /// One end of a connection that [`Program::connect`] made, or that was accepted from what [`Program::listen`] made, with
    /// `memory` bytes to receive into. Of any other socket, lists go inside the stream.
    ///
    /// # Errors
    /// As the system says.
    pub fn endpoint(&self, stream: TcpStream, memory: u32, limits: Limits) -> io::Result<Tcp> {
        let socket = Socket::new(self.shared.clone(), socket_cookie(&stream)?)?;
        Tcp::with_header(stream, memory, socket, limits)
    }

    /// What the program has counted, of all sockets.
    ///
    /// # Errors
    /// As the system says.
    pub fn counts(&self) -> io::Result<Counts> {
        let counts = &lock(&self.shared).counts;
        let count = |which| counts.get(&which, 0).map_err(system);
        Ok(Counts { written: count(0)?, read: count(1)? })
    }
}
