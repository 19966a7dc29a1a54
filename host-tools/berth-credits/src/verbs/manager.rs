// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs are connected by RDMA's connection manager, librdmacm. With iWARP there is no other way.
//!
//! An IP address says which device it takes. So it is used with the addresses of a socket that the ends have already,
//! and the device is compared.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use sideway::ibverbs::device::DeviceInfo;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, EventChannel, EventType, GetEventErrorKind, Identifier, PortSpace,
};
use std::fmt::{Debug, Formatter, Result as Written};
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Until an address that does not answer is given up.
const ADDRESS: Duration = Duration::from_secs(10);
/// Between two looks at what has come.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Where ports begin that are nobody's, and how many of them are tried.
const PORTS: u16 = 49152;
const TRIES: usize = 16;

/// What keeps a queue pair connected.
pub struct Connected(Arc<Identifier>);

impl Debug for Connected {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        write!(f, "Connected(port {})", self.0.port())
    }
}

/// The manager, while two ends meet that have a socket.
pub struct Manager<'a> {
    channel: Arc<EventChannel>,
    socket: &'a TcpStream,
    device: &'a str,
    limit: Option<Duration>,
}

/// This address with another port.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    if address.ip().to_canonical() != address.ip() {
        address.set_ip(address.ip().to_canonical());
    }
    address
}

impl<'a> Manager<'a> {
    /// It waits for the other end as long as `socket` does.
    pub fn new(socket: &'a TcpStream, device: &'a str) -> Result<Self> {
        let channel = EventChannel::new().map_err(Error::other)?;
        channel.set_nonblocking(true)?;
        Ok(Self { channel, socket, device, limit: socket.read_timeout()? })
    }

    /// Looks again and again until there is something.
    pub fn until<T>(&self, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let begin = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Err(ErrorKind::TimedOut.into());
            }
            let mut socket = [PollFd::new(self.socket, PollFlags::RDHUP)];
            match poll(&mut socket, Some(&PAUSE)) {
                Ok(0) | Err(Errno::INTR) => (),
                Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for an event, which must be this one. Returns what it is about.
    fn event(&self, wanted: &EventType) -> Result<Arc<Identifier>> {
        let event = self.until(|| match self.channel.get_cm_event() {
            Ok(event) => Ok(Some(event)),
            Err(error) if matches!(error.0, GetEventErrorKind::NoEvent) => Ok(None),
            Err(error) => Err(Error::other(error)),
        })?;
        match (event.event_type(), event.cm_id()) {
            (came, Some(id)) if came == *wanted => Ok(id),
            (came, _) => {
                let text = format!("the connection manager reports {came:?} (status {})", event.status());
                Err(Error::new(ErrorKind::ConnectionAborted, text))
            }
        }
    }

    /// Something that has the socket's address, and another port; 0 is any.
    fn bound(&self, port: u16) -> Result<Arc<Identifier>> {
        let id = self.channel.create_id(PortSpace::Tcp).map_err(Error::other)?;
        let address = with_port(self.socket.local_addr()?, port);
        id.bind_addr(address).map_err(Error::other)?;
        let device = id.get_device_context().map(|device| device.name());
        if device.as_deref() != Some(self.device) {
            let text =
                format!("{} is the address of {}, not of {}", address.ip(), device.unwrap_or_default(), self.device);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(id)
    }

    /// Listens, on a port that nobody has, for as long as what is returned exists. Returns that port, too.
    pub fn listen(&self) -> Result<(Connected, u16)> {
        let mut tries = 0;
        loop {
            let mut random = [0; 2];
            getrandom(&mut random, GetRandomFlags::empty())?;
            let port = PORTS | u16::from_ne_bytes(random);
            let listens = self.bound(port).and_then(|id| {
                id.listen(1).map_err(Error::other)?;
                Ok(id)
            });
            tries += 1;
            match listens {
                Ok(id) => return Ok((Connected(id), port)),
                Err(error) if tries == TRIES || error.kind() == ErrorKind::InvalidInput => return Err(error),
                Err(_) => (),
            }
        }
    }

    /// Takes a call for the queue pair with this number.
    pub fn accept(&self, number: u32) -> Result<Connected> {
        let id = self.event(&EventType::ConnectRequest)?;
        id.accept(parameter(number)).map_err(Error::other)?;
        self.event(&EventType::Established)?;
        Ok(Connected(id))
    }

    /// Calls the other end for the queue pair with this number.
    pub fn call(&self, port: u16, number: u32) -> Result<Connected> {
        let id = self.bound(0)?;
        let address = with_port(self.socket.peer_addr()?, port);
        id.resolve_addr(None, address, ADDRESS).map_err(Error::other)?;
        self.event(&EventType::AddressResolved)?;
        id.resolve_route(ADDRESS).map_err(Error::other)?;
        self.event(&EventType::RouteResolved)?;
        id.connect(parameter(number)).map_err(Error::other)?;
        self.event(&EventType::Established)?;
        Ok(Connected(id))
    }
}

/// How a queue pair is to be connected. Nothing is read from memory of the other end.
fn parameter(number: u32) -> ConnectionParameter {
    let mut parameter = ConnectionParameter::new();
    parameter.setup_qp_number(number);
    parameter
}
