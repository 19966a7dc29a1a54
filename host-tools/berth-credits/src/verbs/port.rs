// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of a device, and a connection over it.

use crate::queue_pairs::{DEPTHS, Done, EXTRA, MOST, Nic, Pairs, Request};
use crate::transport::{Error, Failure};
use crate::verbs::exchange::{Hello, LEN};
use crate::verbs::pair::{self, Entry, Pair, Path, Region};
use rustix::rand::{GetRandomFlags, getrandom};
use sideway::ibverbs::completion::{BasicCompletionQueue, WorkCompletionOperationType, WorkCompletionStatus};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// What each end says once its queue pairs are connected.
const READY: [u8; 1] = *b"r";

/// A port of a device, and how a connection uses it.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// The device's name, as `ibv_devices` prints it.
    pub device: &'a str,
    /// Number of the port, from 1 on.
    pub port: u8,
    /// Index of the GID that this end has. It says which version of RoCE is used.
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
    // Before the memory: they are dropped first.
    data: Pair,
    control: Pair,
    queue: Arc<BasicCompletionQueue>,
    domain: Arc<ProtectionDomain>,
    region: Region,
    long: Option<Region>,
    socket: TcpStream,
    entries: Vec<Entry>,
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
    /// # Errors
    /// `NotFound`: there is no such device. `InvalidInput`: too much memory. `InvalidData`: the other end says what cannot
    /// be. Or as the socket or the device says.
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
        let [mut data, mut control] = [Pair::new(&domain, &queue, DEPTHS[0])?, Pair::new(&domain, &queue, DEPTHS[1])?];
        data.begin(port.port)?;
        control.begin(port.port)?;
        let mut random = [[0; 4]; 2];
        getrandom(random.as_flattened_mut(), GetRandomFlags::empty())?;
        let own = Hello {
            memory,
            qpns: [data.number(), control.number()],
            psns: random.map(|psn| u32::from_ne_bytes(psn) >> 8),
            lid: attributes.lid(),
            mtu: attributes.active_mtu() as u16,
            gid: gid.raw,
        };
        socket.write_all(&own.encode())?;
        let mut bytes = [0; LEN];
        socket.read_exact(&mut bytes)?;
        let peer = Hello::decode(&bytes).map_err(|bad| std::io::Error::new(ErrorKind::InvalidData, bad))?;

        let region = Region::new(&domain, memory as usize + EXTRA)?;
        let device = Device { data, control, queue, domain, region, long: None, socket, entries: Vec::new() };
        let mut this = Self::new(device, [own.qpns[0], peer.qpns[0]], memory)?;
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
        let Device { data, control, socket, .. } = this.nic_mut();
        data.connect(&path, peer.qpns[0], [peer.psns[0], own.psns[0]])?;
        control.connect(&path, peer.qpns[1], [peer.psns[1], own.psns[1]])?;
        // Nothing is sent before the other end can receive it.
        socket.write_all(&READY)?;
        let mut ready = [0];
        socket.read_exact(&mut ready)?;
        if ready != READY {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "the other end did not say that it is ready"));
        }
        socket.set_nonblocking(true)?;
        Ok(this)
    }
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

impl Nic for Device {
    fn bytes(&self) -> &[AtomicU8] {
        self.region.bytes()
    }

    fn receive(&mut self, request: Request, at: usize, len: u32) -> Result<()> {
        let pair = if request == Request::Receive { &mut self.data } else { &mut self.control };
        pair.receive(request.id(), &self.region, at, len)
    }

    fn send(&mut self, request: Request, at: usize, len: u32, immediate: u32) -> Result<()> {
        let pair = if request == Request::Piece { &mut self.data } else { &mut self.control };
        pair.send(request.id(), &self.region, at, len, immediate)
    }

    fn long(&mut self, len: u32) -> Result<&[AtomicU8]> {
        Ok(self.long.insert(Region::new(&self.domain, len as usize)?).bytes())
    }

    fn send_long(&mut self, immediate: u32) -> Result<()> {
        let region = self.long.as_ref().ok_or(ErrorKind::InvalidInput)?;
        self.data.send(Request::LongPiece.id(), region, 0, region.bytes().len() as u32, immediate)
    }

    fn done(&mut self, into: &mut Vec<Done>) -> Result<()> {
        pair::done(&self.queue, &mut self.entries)?;
        into.extend(self.entries.drain(..).filter_map(|entry| done(&entry)));
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
