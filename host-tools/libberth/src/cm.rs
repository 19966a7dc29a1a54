// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connection management: listening, requests (QP-17).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use berth_abi::ioctl;

use crate::context::{ContextEvent, Inner};
use crate::error::{Error, Result};
use crate::qp::{Mode, QueuePair, private};

/// Listens to a service id until it is dropped.
#[derive(Debug)]
pub struct Listener {
    context: Arc<Inner>,
    service: u16,
    /// Identity of the listener: a later one may have its service.
    identity: u64,
}

impl Listener {
    pub(crate) fn new(context: &Arc<Inner>, service: u16) -> Result<Self> {
        let mut arg = ioctl::Handle { value: service.into(), ..Default::default() };
        context.ioctl("listen", ioctl::IOC_LISTEN, &mut arg)?;
        Ok(Self { context: Arc::clone(context), service, identity: arg.identity })
    }

    /// The service id.
    pub fn service(&self) -> u16 {
        self.service
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceLost`], [`Error::NotPermitted`] in another process.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Request> {
        let mine = |identity, _: &ContextEvent| identity == self.identity;
        let (_, event) = self.context.wait_event("wait for a request", timeout, mine)?;
        Ok(Request::new(&self.context, self.identity, event))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.context.is_owned() {
            return;
        }
        let mut arg = ioctl::Handle { value: self.service.into(), reserved: 0, identity: self.identity };
        if let Err(error) = self.context.ioctl("stop listening", ioctl::IOC_UNLISTEN, &mut arg)
            && !matches!(error, Error::DeviceLost | Error::NotFound { .. })
        {
            tracing::warn!(service = self.service, %error, "still listening");
        }
        // The driver has rejected the requests that it still had.
        for event in self.context.take_requests(self.identity) {
            // Rejected when dropped.
            Request::new(&self.context, self.identity, event);
        }
    }
}

/// A peer's request for a connection. Rejected when it is dropped without an answer.
#[derive(Debug)]
pub struct Request {
    context: Arc<Inner>,
    id: u32,
    listener: u64,
    peer: Ipv4Addr,
    mode: Mode,
    private_data: Vec<u8>,
    answered: bool,
}

impl Request {
    fn new(context: &Arc<Inner>, listener: u64, event: ContextEvent) -> Self {
        let ContextEvent::Request { id, peer, mode, private_data, .. } = event else {
            unreachable!("the events of a listener are requests")
        };
        Self { context: Arc::clone(context), id, listener, peer, mode, private_data, answered: false }
    }

    /// The peer.
    pub fn peer(&self) -> Ipv4Addr {
        self.peer
    }

    /// Mode of the queue pair that may accept it (CR-17).
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Private data of the request.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Accepts with a queue pair. The connection is there when [`QueuePair::wait_established`] says so; receives
    /// should be posted before.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the peer has given up meanwhile, [`Error::PrivateDataTooLong`], [`Error::Invalid`]
    /// when the queue pair has another [`mode`](Self::mode).
    pub fn accept(mut self, qp: &QueuePair, private_data: &[u8]) -> Result<()> {
        let (private, private_len) = private(private_data)?;
        let mut arg = ioctl::Accept {
            request: self.id,
            qpn: qp.qpn(),
            private_len,
            private,
            identity: qp.identity(),
            listener: self.listener,
            ..Default::default()
        };
        self.context.ioctl("accept a connection", ioctl::IOC_ACCEPT, &mut arg)?;
        self.answered = true;
        Ok(())
    }

    /// Rejects; the peer gets the private data.
    ///
    /// # Errors
    /// As [`Request::accept`].
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        self.answered = true;
        self.send_reject(private_data)
    }

    fn send_reject(&self, private_data: &[u8]) -> Result<()> {
        let (private, private_len) = private(private_data)?;
        let listener = self.listener;
        let mut arg = ioctl::Accept { request: self.id, private_len, private, listener, ..Default::default() };
        self.context.ioctl("reject a connection", ioctl::IOC_REJECT, &mut arg)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered
            && self.context.is_owned()
            && let Err(error) = self.send_reject(b"")
        {
            tracing::debug!(request = self.id, %error, "request not rejected");
        }
    }
}
