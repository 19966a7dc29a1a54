// SPDX-License-Identifier: GPL-2.0
//! Listeners and connections.

use crate::{
    abi::{
        card::*,
        ioctl::{self, ContextEvent},
        ring::*,
    },
    card::Entry,
    process::{
        context::Context,
        limits::MAX_PER_CONTEXT,
        object::{command, Name},
        registry::{Asked, Listener, MAX_REQUESTS, MAX_SERVICES},
    },
};
use kernel::{prelude::*, sync::Arc};

fn put_private(entry: &mut Entry, len: u32, data: &[u8; PRIVATE_DATA]) -> Result {
    let len_bytes = len as usize;
    if len_bytes > PRIVATE_DATA || data[len_bytes.min(PRIVATE_DATA)..].iter().any(|b| *b != 0) {
        return Err(EINVAL);
    }
    entry[5] = len;
    for (word, bytes) in entry[CMD_PRIVATE..].iter_mut().zip(data.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(())
}

/// Event of connection management, whose object is still to be named.
fn cm_event(kind: u32, value: u32, ipv4: u32, entry: &Entry) -> ContextEvent {
    let (private_len, private) = get_private(entry);
    ContextEvent {
        kind,
        value,
        ipv4,
        private_len,
        private,
        ..Default::default()
    }
}

fn get_private(entry: &Entry) -> (u32, [u8; PRIVATE_DATA]) {
    let mut data = [0; PRIVATE_DATA];
    let len = entry[5].min(PRIVATE_DATA as u32);
    for (word, bytes) in entry[EVENT_PRIVATE..].iter().zip(data.chunks_exact_mut(4)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    data[len as usize..].fill(0);
    (len, data)
}

impl Context {
    /// A queue pair is connected.
    pub(crate) fn established(&self, entry: &Entry) {
        self.tell_of_qp(
            entry[1],
            cm_event(ioctl::CTX_ESTABLISHED, entry[3], entry[2], entry),
        );
    }

    /// A queue pair's connection is over, or did not come about.
    pub(crate) fn connection_over(&self, entry: &Entry) {
        self.tell_of_qp(entry[1], cm_event(ioctl::CTX_CLOSED, entry[2], 0, entry));
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
        let listen = command(CMD_CM_LISTEN, service);
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
        self.end_object(generation, CMD_CM_UNLISTEN, listener.service)?;
        self.forget_service(listener);
        // From now on nothing is queued for it; what was, nobody has seen.
        while let Some(request) = self.take_unseen(listener.identity) {
            let reject = command(CMD_CM_REJECT, request);
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
        if !(1..=65535).contains(&arg.service) || arg.ipv4 == 0 {
            return Err(EINVAL);
        }
        let mut entry = command(CMD_CM_CONNECT, arg.qpn);
        entry[3] = arg.ipv4;
        entry[4] = arg.service;
        put_private(&mut entry, arg.private_len, &arg.private)?;
        let name = Name {
            number: arg.qpn,
            identity: arg.identity,
        };
        self.call_for_qp(name, entry).map(|_| ())
    }

    /// Answers a connection request: accepts with a queue pair, or rejects.
    pub(crate) fn answer(&self, arg: &ioctl::Accept, accept: bool) -> Result {
        let opcode = if accept { CMD_CM_ACCEPT } else { CMD_CM_REJECT };
        if arg.reserved != 0 || (!accept && (arg.qpn != 0 || arg.identity != 0)) {
            return Err(EINVAL);
        }
        let mut entry = command(opcode, arg.request);
        entry[3] = arg.qpn;
        put_private(&mut entry, arg.private_len, &arg.private)?;
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
        let disconnect = command(CMD_CM_DISCONNECT, name.number);
        self.call_for_qp(name, disconnect).map(|_| ())
    }

    /// A peer asks for a connection to a service of this context.
    ///
    /// # Errors
    ///
    /// `EBUSY` too many wait, `ENOENT` nobody listens any more.
    pub(crate) fn requested(&self, entry: &Entry) -> Result {
        {
            let mut tables = self.registry.tables.lock();
            let mut services = tables.services.iter();
            let found = services.find(|s| (s.service, s.asid) == (entry[3], self.asid));
            let listener = found.ok_or(ENOENT)?.identity;
            let (processes, waiting) = tables.listeners(self.space.mm.as_raw());
            // The card has so many places for all who listen.
            let share = (CM_REQUESTS as usize / processes.max(1)).max(1);
            if waiting >= share || tables.requests.len() == MAX_REQUESTS {
                return Err(EBUSY);
            }
            let _ = tables.requests.push_within_capacity(Asked {
                id: entry[1],
                asid: self.asid,
                listener,
            });
            self.push_event(ContextEvent {
                id: entry[1],
                mode: entry[4],
                identity: listener,
                ..cm_event(ioctl::CTX_REQUEST, entry[3], entry[2], entry)
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
