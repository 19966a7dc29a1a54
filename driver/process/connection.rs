// SPDX-License-Identifier: GPL-2.0
//! Listeners and connections.

use crate::{
    abi::{
        card::{CM_REQUESTS, MAX_READS},
        ioctl::{self, ContextEvent},
        message::{
            Accept, CmClosed, CmEstablished, CmRequest, Connect, Disconnect, Listen, QpPeer,
            Reject, Unlisten,
        },
        ring::*,
    },
    process::{
        limits::MAX_PER_CONTEXT,
        owned::{Asked, Listener, Name},
        registry::{MAX_REQUESTS, MAX_SERVICES},
        Context,
    },
};
use kernel::{prelude::*, sync::Arc};

const WORDS: usize = PRIVATE_DATA / 4;

/// Private data as a command has it.
///
/// # Errors
///
/// `EINVAL` longer than it may be, or not 0 behind its end.
fn to_words(len: u32, data: &[u8; PRIVATE_DATA]) -> Result<[u32; WORDS]> {
    let len = len as usize;
    if len > PRIVATE_DATA || data[len.min(PRIVATE_DATA)..].iter().any(|b| *b != 0) {
        return Err(EINVAL);
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(data.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(words)
}

/// Event of connection management, whose object is still to be named.
fn cm_event(kind: u32, value: u32, ipv4: u32, len: u32, words: &[u32; WORDS]) -> ContextEvent {
    let mut private = [0; PRIVATE_DATA];
    for (bytes, word) in private.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let private_len = len.min(PRIVATE_DATA as u32);
    private[private_len as usize..].fill(0);
    ContextEvent {
        kind,
        value,
        ipv4,
        private_len,
        private,
        ..Default::default()
    }
}

impl Context {
    /// A queue pair is connected.
    pub(crate) fn established(&self, e: &CmEstablished) {
        let (len, private) = (e.private_len, &e.private);
        let event = cm_event(ioctl::CTX_ESTABLISHED, e.peer_qpn, e.ipv4, len, private);
        self.tell_of_qp(e.qpn, event);
    }

    /// A queue pair's connection is over, or did not come about.
    pub(crate) fn connection_over(&self, e: &CmClosed) {
        let event = cm_event(ioctl::CTX_CLOSED, e.reason, 0, e.private_len, &e.private);
        self.tell_of_qp(e.qpn, event);
    }

    /// Listens to a service; gives the listener's identity.
    pub(crate) fn listen(&self, service: u32) -> Result<u64> {
        if !(1..=65535).contains(&service) {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let generation = self.card.generation();
        let listener = Listener {
            service,
            asid: self.asid,
            identity: self.new_identity(),
        };
        {
            let mut tables = self.registry.tables.lock();
            if tables.services.iter().any(|s| s.service == service) {
                return Err(EBUSY);
            }
            let mine = tables.services.iter().filter(|s| s.asid == self.asid);
            if mine.count() >= MAX_PER_CONTEXT || tables.services.len() == MAX_SERVICES {
                return Err(ENOSPC);
            }
            // Known before the first request can come.
            let _ = tables.services.push_within_capacity(listener);
        }
        let listen = Listen { service }.encode();
        let result = self.card.call_for(generation, listen);
        if result.is_err() {
            self.forget_service(listener);
        }
        result.map(|_| listener.identity)
    }

    pub(super) fn forget_service(&self, listener: Listener) {
        let mut tables = self.registry.tables.lock();
        tables.services.retain(|s| *s != listener);
    }

    /// Stops listening.
    pub(crate) fn unlisten(self: &Arc<Self>, name: impl Into<Name>) -> Result {
        let name = name.into();
        let _control = self.control.lock();
        let generation = self.card.generation();
        let listener = {
            let tables = self.registry.tables.lock();
            let mut mine = tables.services.iter().filter(|s| s.asid == self.asid);
            let found = mine.find(|s| name.is(s.service, s.identity));
            *found.ok_or(ENOENT)?
        };
        let unlisten = Unlisten {
            service: listener.service,
        };
        self.card.end_object(generation, unlisten.encode())?;
        self.forget_service(listener);
        // No more requests are queued for it. Queued requests, which the process has not seen, are
        // rejected.
        while let Some(request) = self.take_unseen(listener.identity) {
            let reject = Reject {
                request,
                ..Default::default()
            }
            .encode();
            self.card.answer(generation, reject);
        }
        Ok(())
    }

    /// Takes a request to a listener out of the events; gives its id.
    fn take_unseen(&self, listener: u64) -> Option<u32> {
        let mut tables = self.registry.tables.lock();
        let event = {
            let mut events = self.events.lock();
            let at = events.queue.iter().position(|e| e.identity == listener)?;
            events.queue.remove(at).ok()?
        };
        let (id, asid) = (event.id, self.asid);
        tables.requests.retain(|r| (r.id, r.asid) != (id, asid));
        Some(id)
    }

    /// Connects a queue pair.
    pub(crate) fn connect(&self, arg: &ioctl::Connect) -> Result {
        let connect = Connect {
            qpn: arg.qpn,
            ipv4: arg.ipv4,
            service: arg.service,
            private_len: arg.private_len,
            private: to_words(arg.private_len, &arg.private)?,
        };
        if !connect.in_range() {
            return Err(EINVAL);
        }
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        self.call_for_qp(name, connect.encode()).map(|_| ())
    }

    /// Gives a queue pair a peer that speaks plain RoCEv2.
    pub(crate) fn set_peer(&self, arg: &ioctl::SetPeer) -> Result {
        let peer = QpPeer {
            qpn: arg.qpn,
            ipv4: arg.ipv4,
            peer_qpn: arg.peer_qpn,
            psn: arg.psn,
            peer_psn: arg.peer_psn,
            mtu: arg.mtu,
            rnr_timer: arg.rnr_timer,
            rnr_retries: arg.rnr_retries,
            reads: MAX_READS as u8,
            ..QpPeer::default()
        };
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        self.meet(name, &peer)
    }

    /// Gives a queue pair that peer.
    pub(crate) fn meet(&self, name: impl Into<Name>, peer: &QpPeer) -> Result {
        if !peer.in_range() {
            return Err(EINVAL);
        }
        self.call_for_qp(name.into(), peer.encode()).map(|_| ())
    }

    /// Answers a connection request: accepts with a queue pair, or rejects.
    pub(crate) fn answer(&self, arg: &ioctl::Accept, accept: bool) -> Result {
        if arg.reserved != 0 || (!accept && (arg.qpn != 0 || arg.identity != 0)) {
            return Err(EINVAL);
        }
        let (request, private_len) = (arg.request, arg.private_len);
        let private = to_words(private_len, &arg.private)?;
        let entry = if accept {
            let qpn = arg.qpn;
            Accept {
                request,
                qpn,
                private_len,
                private,
            }
            .encode()
        } else {
            Reject {
                request,
                reason: 0,
                private_len,
                private,
            }
            .encode()
        };
        let _control = self.control.lock();
        let generation = self.card.generation();
        if accept {
            self.find_qp(Name {
                number: arg.qpn,
                identity: arg.identity,
            })?;
        }
        let name = Name {
            number: arg.request,
            identity: arg.listener,
        };
        let request = {
            let tables = self.registry.tables.lock();
            let mut mine = tables.requests.iter().filter(|r| r.asid == self.asid);
            *mine.find(|r| name.is(r.id, r.listener)).ok_or(ENOENT)?
        };
        let result = self.card.call_for(generation, entry).map(|_| ());
        if matches!(result, Ok(()) | Err(ENOENT)) {
            let mut tables = self.registry.tables.lock();
            tables.requests.retain(|r| *r != request);
        }
        result
    }

    /// Ends a queue pair's connection.
    pub(crate) fn disconnect(&self, name: impl Into<Name>) -> Result {
        let name = name.into();
        let disconnect = Disconnect { qpn: name.number }.encode();
        self.call_for_qp(name, disconnect).map(|_| ())
    }

    /// A peer asks for a connection to a service of this context.
    ///
    /// # Errors
    ///
    /// `EBUSY` too many wait, `ENOENT` there is no listener any more.
    pub(crate) fn requested(&self, e: &CmRequest) -> Result {
        {
            let mut tables = self.registry.tables.lock();
            let mut services = tables.services.iter();
            let found = services.find(|s| (s.service, s.asid) == (e.service, self.asid));
            let listener = found.ok_or(ENOENT)?.identity;
            let (processes, waiting) = tables.listeners(self.space.mm.as_raw());
            // Each listening process gets an equal share of the card's places.
            let share = (CM_REQUESTS as usize / processes.max(1)).max(1);
            if waiting >= share || tables.requests.len() == MAX_REQUESTS {
                return Err(EBUSY);
            }
            let _ = tables.requests.push_within_capacity(Asked {
                id: e.request,
                asid: self.asid,
                listener,
            });
            let (len, private) = (e.private_len, &e.private);
            self.push_event(ContextEvent {
                id: e.request,
                mode: e.mode,
                identity: listener,
                ..cm_event(ioctl::CTX_REQUEST, e.service, e.ipv4, len, private)
            });
        }
        self.signal();
        Ok(())
    }

    /// A request is over before it was answered: the process need not see it.
    pub(crate) fn request_over(&self, id: u32) {
        let stale = |e: &ContextEvent| e.kind == ioctl::CTX_REQUEST && e.id == id;
        self.events.lock().queue.retain(|e| !stale(e));
    }
}
