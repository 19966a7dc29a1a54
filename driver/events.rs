// SPDX-License-Identifier: GPL-2.0
//! Events of the card: the interrupt thread takes them and hands each to its owner.
//!
//! Nothing here waits for memory, for a process or for firmware: the card's RTL carries
//! out commands (fences among them) only as long as its events are taken.

use crate::{
    abi::{counters::*, message::*, ring::*, status::*},
    card::{Entry, State},
    process::Registry,
};
use kernel::{
    irq::{IrqReturn, ThreadedHandler},
    prelude::*,
    sync::Arc,
};

/// Handler of MSI-X vector 0.
pub(crate) struct Events(pub(crate) Arc<Registry>);

impl ThreadedHandler for Events {
    fn handle_threaded(&self) -> IrqReturn {
        let card = &self.0.card;
        card.counters.inc(D_INTERRUPTS);
        if !take(&self.0, true) {
            card.arm_events(&card.events.lock(), self.0.pages.is_lax());
        }
        IrqReturn::Handled
    }
}

/// Takes all events that are there, and arms the interrupt for the next one if there were some. Gives whether there were.
/// Without `reap` the caller unpins what was evicted.
pub(crate) fn take(registry: &Registry, reap: bool) -> bool {
    let card = &registry.card;
    let mut ring = card.events.lock();
    let (mut some, mut taken) = (false, 0_u32);
    while let Some(entry) = card.next_event(&mut ring) {
        card.counters.inc(D_EVENTS);
        some = true;
        // Requests of firmware that is being replaced are dropped.
        if card.state() != State::Up && code(&entry) != EV_LOG {
            continue;
        }
        if dispatch(registry, &entry, reap).is_none() {
            card.counters.inc(D_BAD_EVENTS);
            if card.may_log() {
                let [_, first, second, third, ..] = entry;
                dev_warn!(
                    card.dev,
                    "berth: bad event {}: {:#x} {:#x} {:#x}\n",
                    code(&entry),
                    first,
                    second,
                    third
                );
            }
        }
        taken += 1;
        if taken % 16 == 0 {
            // Gives the card room again while many are taken.
            card.arm_events(&ring, false);
        }
    }
    if some {
        card.arm_events(&ring, registry.pages.is_lax());
    }
    drop(ring);
    if let Some(link) = &registry.link {
        link.poll_if_notified();
    }
    some
}

/// Handles one event; `None` when a field of it makes no sense.
fn dispatch(registry: &Registry, entry: &Entry, reap: bool) -> Option<()> {
    let (card, pages) = (&registry.card, &registry.pages);
    match code(entry) {
        EV_PAGE_NEED => {
            card.counters.inc(D_PAGE_NEEDS);
            let need = PageNeed::decode(entry);
            match pages.space(need.asid) {
                Some(space) => space.page_need(&need),
                None => pages.page_ready(card.generation(), need.tag, PAGE_NO_PROCESS),
            }
        }
        EV_PAGE_RELEASE => {
            let released = PageRelease::decode(entry);
            // The context may have been closed meanwhile.
            if let Some(space) = pages.space(released.asid) {
                space.page_release(&released);
            }
        }
        EV_PAGE_EVICTED => {
            pages.evicted(evicted_pages(entry), reap);
        }
        EV_CQ_NOTIFY => {
            let CqNotify { cqn } = CqNotify::decode(entry);
            if registry.link.as_ref().is_some_and(|link| link.notify(cqn)) {
                return Some(());
            }
            let cq = registry.tables.lock().cqs.get(cqn as usize)?.clone();
            if let Some(cq) = cq {
                cq.notify();
            }
        }
        EV_CQ_OVERRUN => {
            let CqOverrun { cqn, qpn } = CqOverrun::decode(entry);
            if registry.link.as_ref().is_some_and(|link| link.overran(qpn)) {
                return Some(());
            }
            let cq = registry.tables.lock().cqs.get(cqn as usize)?.clone();
            if let (Some(cq), Some(context)) = (cq, registry.owner_of_qp(qpn)) {
                if context.qp_overran(qpn, &cq) {
                    card.answer(card.generation(), Disconnect { qpn }.encode());
                    cq.notify();
                }
            }
        }
        EV_CMD_DONE => card.answered(entry),
        EV_CM_REQUEST => {
            let request = CmRequest::decode(entry);
            let listener = {
                let tables = registry.tables.lock();
                let mut services = tables.services.iter();
                services
                    .find(|s| s.service == request.service)
                    .and_then(|s| tables.contexts[s.asid as usize].clone())
            };
            let taken = listener.map(|context| context.requested(&request));
            if !matches!(taken, Some(Ok(()))) {
                // No listener is left, or too many requests wait.
                let busy = matches!(taken, Some(Err(e)) if e == EBUSY);
                let reject = Reject {
                    request: request.request,
                    reason: if busy { REASON_BUSY } else { 0 },
                    ..Default::default()
                };
                // Firmware keeps a place for it until it is answered.
                card.answer(card.generation(), reject.encode());
            }
        }
        EV_CM_REQUEST_OVER => {
            let CmRequestOver { request } = CmRequestOver::decode(entry);
            let mine = registry.tables.lock().take_request(request);
            if let Some(context) = mine.and_then(|asid| registry.context(asid)) {
                context.request_over(request);
            }
        }
        EV_CM_ESTABLISHED => {
            let event = CmEstablished::decode(entry);
            if let Some(context) = registry.owner_of_qp(event.qpn) {
                context.established(&event);
            }
        }
        EV_CM_CLOSED => {
            let event = CmClosed::decode(entry);
            if let Some(context) = registry.owner_of_qp(event.qpn) {
                context.connection_over(&event);
            }
        }
        EV_QP_ERROR => {
            let event = QpError::decode(entry);
            if let Some(context) = registry.owner_of_qp(event.qpn) {
                context.qp_failed(&event);
            }
        }
        EV_LOG => {
            let log = FwLog::decode(entry);
            let mut bytes = [0; EVENT_LOG_BYTES];
            for (word, out) in log.data.iter().zip(bytes.chunks_exact_mut(4)) {
                out.copy_from_slice(&word.to_le_bytes());
            }
            card.log(bytes.get(..log.len as usize)?);
        }
        _ => return None,
    }
    Some(())
}
