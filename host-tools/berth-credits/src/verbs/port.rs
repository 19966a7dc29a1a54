// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of a device, and a connection over it.

use crate::memory;
use crate::queue_pairs::{DEPTHS, Done, EXTRA, MOST, Nic, Pairs, Request};
use crate::transport::{Error, Failure};
use crate::verbs::exchange::{Hello, LEN, Way};
use crate::verbs::headers::{self, Headers};
use crate::verbs::manager::{Connected, Manager};
use crate::verbs::pair::{self, Entry, Pair, Part, Path, Region};
use rustix::rand::{GetRandomFlags, getrandom};
use sideway::ibverbs::completion::{BasicCompletionQueue, WorkCompletionOperationType, WorkCompletionStatus};
use sideway::ibverbs::device::{DeviceInfo, DeviceList, TransportType};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// What each end says once its queue pairs are connected.
const READY: [u8; 1] = *b"r";
/// The number of the first request of a queue pair that the connection manager has connected.
const FIRST: u64 = 0;

/// A port of a device, and how a connection uses it. iWARP knows neither the time-out nor `rnr_retry`.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// The device's name, as `ibv_devices` prints it.
    pub device: &'a str,
    /// Number of the port, from 1 on.
    pub port: u8,
    /// Index of the GID that this end has. It says which version of RoCE is used. 0 with iWARP.
    pub gid: u8,
    /// A packet without an answer is sent again after 4.096 µs · 2^this, up to seven times. Usually 14.
    pub timeout: u8,
    /// The `rnr_retry` of the queue pairs. Usually 0: what is sent has a receive. With 7, what the peer's NIC has no receive
    /// for is sent again for ever. That is for a peer whose NIC takes a receive some time after it is posted, as one does that
    /// pages on demand, or a Berth card: it may say that it is not ready though the receive is there.
    pub rnr_retry: u8,
}

/// One end. See the module.
pub type Verbs = Pairs<Device>;

/// The queue pairs of a connection, and their memory.
#[derive(Debug)]
pub struct Device {
    // Before the memory, and before what keeps them connected: they are dropped first.
    data: Pair,
    control: Pair,
    connected: Vec<Connected>,
    queue: Arc<BasicCompletionQueue>,
    domain: Arc<ProtectionDomain>,
    region: Region,
    long: Option<Region>,
    /// With iWARP, where they stand behind all else in `region`.
    headers: Option<Headers>,
    socket: TcpStream,
    entries: Vec<Entry>,
}

impl Drop for Device {
    /// The peer hears that this is the end, before it can take a request that fails for something else.
    fn drop(&mut self) {
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

/// The device of this name.
fn open(name: &str) -> Result<Arc<DeviceContext>> {
    let devices = DeviceList::new().map_err(std::io::Error::other)?;
    let device = devices.iter().find(|device| device.name() == name);
    let device = device.ok_or_else(|| std::io::Error::new(ErrorKind::NotFound, format!("no RDMA device {name}")))?;
    device.open().map_err(std::io::Error::other)
}

impl Verbs {
    /// One end of a connection with `memory` bytes to receive into, 0 to 2^30. The other end does the same; `socket` leads
    /// there. Waits for it, for as long as the socket's time-outs say.
    ///
    /// With iWARP, the socket's addresses must be those of both devices. Then a stranger who finds the port at which
    /// one end listens meanwhile can make this fail, and no more.
    ///
    /// # Errors
    /// `NotFound`: there is no such device. `InvalidInput`: too much memory, or the socket has the address of another
    /// device. `InvalidData`: the other end says what cannot be. Or as the socket, the device or the connection manager
    /// says.
    pub fn connect(mut socket: TcpStream, port: &Port<'_>, memory: u32) -> Result<Self> {
        if memory > MOST {
            return Err(std::io::Error::new(ErrorKind::InvalidInput, "more than 1 GiB to receive into"));
        }
        socket.set_nodelay(true)?;
        let context = open(port.device)?;
        let attributes = context.query_port(port.port).map_err(std::io::Error::other)?;
        let gid = context.query_gid(port.port, port.gid.into()).map_err(std::io::Error::other)?;
        let domain = context.alloc_pd().map_err(std::io::Error::other)?;
        let entries = 2 * DEPTHS.iter().sum::<u32>();
        let queue = context.create_cq_builder().setup_cqe(entries).build().map_err(std::io::Error::other)?;
        let iwarp = context.transport_type() == TransportType::IWarp;
        let mut pairs = [Pair::new(&domain, &queue, DEPTHS[0], iwarp)?, Pair::new(&domain, &queue, DEPTHS[1], iwarp)?];
        for pair in &mut pairs {
            if iwarp { pair.begin_managed() } else { pair.begin(port.port) }?;
        }
        let mut random = [[0; 4]; 2];
        getrandom(random.as_flattened_mut(), GetRandomFlags::empty())?;
        let own = Hello {
            memory,
            qpns: [pairs[0].number(), pairs[1].number()],
            psns: random.map(|psn| u32::from_ne_bytes(psn) >> 8),
            lid: attributes.lid(),
            mtu: attributes.active_mtu() as u16,
            gid: gid.raw,
            iwarp: if iwarp { Some(socket.local_addr()?.port()) } else { None },
        };
        socket.write_all(&own.encode())?;
        let mut bytes = [0; LEN];
        socket.read_exact(&mut bytes)?;
        let bad = |bad| std::io::Error::new(ErrorKind::InvalidData, bad);
        let peer = Hello::decode(&bytes).map_err(bad)?;
        let way = own.way(&peer).map_err(bad)?;

        let bytes = memory as usize + EXTRA;
        let region = Region::new(&domain, bytes + if iwarp { headers::BYTES } else { 0 })?;
        let headers = iwarp.then(|| Headers::new(bytes));
        let ([data, control], connected, entries) = (pairs, Vec::new(), Vec::new());
        let mut device =
            Device { data, control, connected, queue, domain, region, long: None, headers, socket, entries };
        let path = Path {
            port: port.port,
            layer: attributes.link_layer(),
            gid_index: port.gid,
            mtu: Mtu::from(u32::from(own.mtu.min(peer.mtu))),
            lid: peer.lid,
            gid: peer.gid,
            timeout: port.timeout,
            rnr_retry: port.rnr_retry,
        };
        match way {
            Way::Itself => {
                device.data.connect(&path, peer.qpns[0], [peer.psns[0], own.psns[0]])?;
                device.control.connect(&path, peer.qpns[1], [peer.psns[1], own.psns[1]])?;
            }
            Way::Listens => device.listen(port.device, &peer)?,
            Way::Calls => device.call(port.device, &own)?,
        }
        let this = Self::new(device, [own.qpns[0], peer.qpns[0]], memory)?;
        // Nothing is sent before the other end can receive it.
        ready(&this.nic().socket)?;
        this.nic().socket.set_nonblocking(true)?;
        Ok(this)
    }
}

/// Tells the other end that this one has come so far, and waits for it.
fn ready(mut socket: &TcpStream) -> Result<()> {
    socket.write_all(&READY)?;
    let mut ready = [0];
    socket.read_exact(&mut ready)?;
    if ready != READY {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "the other end did not say that it is ready"));
    }
    Ok(())
}

/// How the connection manager connects both queue pairs, one behind the other. The end that calls sends first (MPA):
/// its hello, of which a stranger knows no word. So each end knows whom it has, and may send from then on.
impl Device {
    /// Waits for the other end, which has said `peer`.
    fn listen(&mut self, name: &str, peer: &Hello) -> Result<()> {
        let manager = Manager::new(&self.socket, name)?;
        let (_listens, port) = manager.listen()?;
        (&self.socket).write_all(&port.to_le_bytes())?;
        let first = Region::new(&self.domain, LEN)?;
        for pair in [&mut self.data, &mut self.control] {
            pair.receive(FIRST, &[(&first, 0, LEN as u32)])?;
            self.connected.push(manager.accept(pair.number())?);
            let len = first_done(&manager, &self.queue)?;
            let mut bytes = [0; LEN];
            memory::load(&mut bytes, first.bytes());
            if len as usize != LEN || bytes != peer.encode() {
                return Err(std::io::Error::new(ErrorKind::InvalidData, "a stranger has called"));
            }
            ready(&self.socket)?;
        }
        Ok(())
    }

    /// Calls the other end, to which this one has said `own`.
    fn call(&mut self, name: &str, own: &Hello) -> Result<()> {
        let mut port = [0; 2];
        (&self.socket).read_exact(&mut port)?;
        let manager = Manager::new(&self.socket, name)?;
        let first = Region::new(&self.domain, LEN)?;
        memory::store(first.bytes(), &own.encode());
        for pair in [&mut self.data, &mut self.control] {
            self.connected.push(manager.call(u16::from_le_bytes(port), pair.number())?);
            pair.send(FIRST, &[(&first, 0, LEN as u32)], None)?;
            first_done(&manager, &self.queue)?;
            ready(&self.socket)?;
        }
        Ok(())
    }
}

/// Waits for the first request of a queue pair. Returns how long it was.
fn first_done(manager: &Manager<'_>, queue: &BasicCompletionQueue) -> Result<u32> {
    let mut entries = Vec::new();
    let entry = manager.until(|| {
        pair::done(queue, &mut entries)?;
        Ok(entries.pop())
    })?;
    result(entry.status).map_err(std::io::Error::other)?;
    Ok(entry.len)
}

/// What a status says. Without success, nothing else of the entry is true.
fn result(status: u32) -> std::result::Result<(), Error> {
    const LENGTH: u32 = WorkCompletionStatus::LocalLengthError as u32;
    const INVALID: u32 = WorkCompletionStatus::RemoteInvalidRequestError as u32;
    const OPERATION: u32 = WorkCompletionStatus::RemoteOperationError as u32;
    const NO_ANSWER: u32 = WorkCompletionStatus::RetryCounterExceededError as u32;
    const NOT_READY: u32 = WorkCompletionStatus::ResponderNotReadyRetryCounterExceededError as u32;
    match status {
        0 => Ok(()),
        LENGTH => Err(Error::Failed(Failure::TooLong)),
        INVALID | OPERATION => Err(Error::Failed(Failure::Refused)),
        NO_ANSWER => Err(Error::Failed(Failure::NoAnswer)),
        NOT_READY => Err(Error::Failed(Failure::ReceiverNotReady)),
        other => Err(Error::Failed(Failure::Other(other))),
    }
}

/// What an entry says.
fn done(entry: &Entry) -> Option<Done> {
    let request = Request::of(entry.id)?;
    let receives = matches!(request, Request::Receive | Request::Slot(_));
    let result = match result(entry.status) {
        // A peer can use a receive for something else, such as an RDMA write of no bytes.
        Ok(()) if receives && entry.opcode != WorkCompletionOperationType::Receive as u32 => Err(Error::BadMedium),
        result => result,
    };
    Some(Done { request, result, len: entry.len, immediate: entry.immediate })
}

/// Sends a part of memory, perhaps of no bytes, with `immediate`, or behind a header in `region` that says it.
fn send(
    pair: &mut Pair,
    request: Request,
    headers: Option<&mut Headers>,
    region: &Region,
    own: Part<'_>,
    immediate: u32,
) -> Result<()> {
    let own = if own.2 == 0 { None } else { Some(own) };
    let Some(headers) = headers else {
        return pair.send(request.id(), own.as_slice(), Some(immediate));
    };
    let at = headers.next(request).ok_or(ErrorKind::OutOfMemory)?;
    memory::store(&region.bytes()[at..][..headers::LEN as usize], &immediate.to_le_bytes());
    let header = (region, at, headers::LEN);
    match own {
        Some(own) => pair.send(request.id(), &[header, own], None),
        None => pair.send(request.id(), &[header], None),
    }?;
    headers.posted(request);
    Ok(())
}

impl Nic for Device {
    fn bytes(&self) -> &[AtomicU8] {
        self.region.bytes()
    }

    fn receive(&mut self, request: Request, at: usize, len: u32) -> Result<()> {
        let pair = if request == Request::Receive { &mut self.data } else { &mut self.control };
        let own = (&self.region, at, len);
        let Some(headers) = &mut self.headers else {
            return pair.receive(request.id(), &[own]);
        };
        let at = headers.next(request).ok_or(ErrorKind::OutOfMemory)?;
        pair.receive(request.id(), &[(&self.region, at, headers::LEN), own])?;
        headers.posted(request);
        Ok(())
    }

    fn send(&mut self, request: Request, at: usize, len: u32, immediate: u32) -> Result<()> {
        let pair = if request == Request::Piece { &mut self.data } else { &mut self.control };
        let own = (&self.region, at, len);
        send(pair, request, self.headers.as_mut(), &self.region, own, immediate)
    }

    fn long(&mut self, len: u32) -> Result<&[AtomicU8]> {
        Ok(self.long.insert(Region::new(&self.domain, len as usize)?).bytes())
    }

    fn send_long(&mut self, immediate: u32) -> Result<()> {
        let long = self.long.as_ref().ok_or(ErrorKind::InvalidInput)?;
        let own = (long, 0, long.bytes().len() as u32);
        send(&mut self.data, Request::LongPiece, self.headers.as_mut(), &self.region, own, immediate)
    }

    fn done(&mut self, into: &mut Vec<Done>) -> Result<()> {
        pair::done(&self.queue, &mut self.entries)?;
        for mut done in self.entries.drain(..).filter_map(|entry| done(&entry)) {
            if let Some(headers) = &mut self.headers {
                headers.done(&mut done, self.region.bytes());
            }
            into.push(done);
        }
        Ok(())
    }

    /// Nothing is said over the socket once a connection has begun.
    fn closed(&mut self) -> bool {
        match self.socket.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}
