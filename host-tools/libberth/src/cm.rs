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
    id: u64,
}

impl Listener {
    pub(crate) fn new(context: &Arc<Inner>, service: u16) -> Result<Self> {
        let what = "listen";
        context.check_owner(what)?;
        let id = context.know_listener(service.into());
        let mut arg = ioctl::Handle { value: service.into(), reserved: 0 };
        if let Err(error) = context.ioctl(what, ioctl::IOC_LISTEN, &mut arg) {
            reject_all(context, service, id);
            return Err(error);
        }
        Ok(Self { context: Arc::clone(context), service, id })
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
        let event = self.context.wait_event(
            "wait for a request",
            timeout,
            |e| matches!(e, ContextEvent::Request { service, .. } if *service == u32::from(self.service)),
        )?;
        Ok(Request::new(&self.context, event))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.context.is_owned() {
            return;
        }
        let mut arg = ioctl::Handle { value: self.service.into(), reserved: 0 };
        if let Err(error) = self.context.ioctl("stop listening", ioctl::IOC_UNLISTEN, &mut arg)
            && !matches!(error, Error::DeviceLost | Error::NotFound { .. })
        {
            tracing::warn!(service = self.service, %error, "still listening");
        }
        reject_all(&self.context, self.service, self.id);
    }
}

/// Rejects the requests that only this listener would have taken.
fn reject_all(context: &Arc<Inner>, service: u16, id: u64) {
    for event in context.forget_listener(service.into(), id) {
        // Rejected when dropped.
        Request::new(context, event);
    }
}

/// A peer's request for a connection. Rejected when it is dropped without an answer.
#[derive(Debug)]
pub struct Request {
    context: Arc<Inner>,
    id: u32,
    peer: Ipv4Addr,
    mode: Mode,
    private_data: Vec<u8>,
    answered: bool,
}

impl Request {
    fn new(context: &Arc<Inner>, event: ContextEvent) -> Self {
        let ContextEvent::Request { id, peer, mode, private_data, .. } = event else {
            unreachable!("the caller has chosen a request")
        };
        Self { context: Arc::clone(context), id, peer, mode, private_data, answered: false }
    }

    /// The peer.
    pub fn peer(&self) -> Ipv4Addr {
        self.peer
    }

    /// Mode that the queue pair must have which accepts it (CR-17).
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
        let mut arg = ioctl::Accept { request: self.id, qpn: qp.qpn(), private_len, reserved: 0, private };
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
        let mut arg = ioctl::Accept { request: self.id, qpn: 0, private_len, reserved: 0, private };
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
