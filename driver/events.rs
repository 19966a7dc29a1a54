// SPDX-License-Identifier: GPL-2.0
//! Events of the card: taken in the interrupt thread, handed to whom they concern.
//!
//! Nothing here waits for memory, for a process or for firmware: the card's RTL carries
//! out commands (fences among them) only as long as its events are taken.

use crate::{
    abi::{counters::*, ring::*, status::*},
    card::{Entry, State},
    process::registry::Registry,
};
use kernel::{
    device::{Bound, Device},
    irq::{IrqReturn, ThreadedHandler},
    prelude::*,
    sync::Arc,
};

/// Handler of MSI-X vector 0.
pub(crate) struct Events(pub(crate) Arc<Registry>);

impl ThreadedHandler for Events {
    fn handle_threaded(&self, _dev: &Device<Bound>) -> IrqReturn {
        let registry = &self.0;
        let card = &registry.card;
        card.counters.inc(D_INTERRUPTS);
        let mut ring = card.events.lock();
        let mut taken = 0;
        while let Some(entry) = card.next_event(&mut ring) {
            card.counters.inc(D_EVENTS);
            // What a firmware that is being replaced has asked for concerns nobody.
            if card.state() != State::Up && entry[0] & 0xff != EV_LOG {
                continue;
            }
            if dispatch(registry, &entry).is_none() {
                card.counters.inc(D_BAD_EVENTS);
                if card.may_log() {
                    dev_warn!(
                        card.dev,
                        "berth: bad event {}: {:#x} {:#x} {:#x}\n",
                        entry[0] & 0xff,
                        entry[1],
                        entry[2],
                        entry[3]
                    );
                }
            }
            taken += 1;
            if taken % 16 == 0 {
                // Room for the card while many are taken.
                card.arm_events(&ring);
            }
        }
        card.arm_events(&ring);
        IrqReturn::Handled
    }
}

/// Handles one event; `None` when a field of it makes no sense.
fn dispatch(registry: &Arc<Registry>, entry: &Entry) -> Option<()> {
    let (card, pages) = (&registry.card, &registry.pages);
    match entry[0] & 0xff {
        EV_PAGE_NEED => {
            card.counters.inc(D_PAGE_NEEDS);
            match pages.space(entry[2]) {
                Some(space) => space.page_need(entry),
                None => pages.page_ready(card.generation(), entry[1], PAGE_NO_PROCESS),
            }
        }
        EV_PAGE_RELEASE => {
            // The context may have been closed meanwhile.
            if let Some(space) = pages.space(entry[2]) {
                space.page_release(entry);
            }
        }
        EV_PAGE_EVICTED => {
            for (index, dropped) in evicted_pages(entry) {
                let page = pages.table.lock().evict_answered(index);
                if let Some((asid, vpn, last)) = page {
                    if let Some(space) = pages.space(asid) {
                        space.evicted(vpn, index, dropped, last);
                    }
                }
            }
        }
        EV_CQ_NOTIFY => {
            let cq = registry.tables.lock().cqs.get(entry[1] as usize)?.clone();
            if let Some(cq) = cq {
                cq.notify();
            }
        }
        EV_CQ_OVERRUN => {
            let cq = registry.tables.lock().cqs.get(entry[1] as usize)?.clone();
            if let (Some(cq), Some(context)) = (cq, registry.owner_of_qp(entry[2])) {
                if context.qp_overran(entry[2], &cq) {
                    let mut disconnect = [0; ENTRY_WORDS];
                    disconnect[0] = CMD_CM_DISCONNECT;
                    disconnect[2] = entry[2];
                    card.answer(card.generation(), disconnect);
                    cq.notify();
                }
            }
        }
        EV_CMD_DONE => card.answered(entry),
        EV_CM_REQUEST => {
            let listener = {
                let tables = registry.tables.lock();
                let mut services = tables.services.iter();
                services
                    .find(|s| s.service == entry[3])
                    .and_then(|s| tables.contexts[s.asid as usize].clone())
            };
            let taken = listener.map(|context| context.requested(entry));
            if !matches!(taken, Some(Ok(()))) {
                // Nobody listens any more, or too many wait.
                let mut reject = [0; ENTRY_WORDS];
                reject[0] = CMD_CM_REJECT;
                reject[2] = entry[1];
                let busy = matches!(taken, Some(Err(e)) if e == EBUSY);
                reject[3] = if busy { REASON_BUSY } else { 0 };
                // Firmware keeps a place for it until it is answered.
                card.answer(card.generation(), reject);
            }
        }
        EV_CM_REQUEST_OVER => {
            let mine = registry.tables.lock().take_request(entry[1]);
            if let Some(context) = mine.and_then(|asid| registry.context(asid)) {
                context.request_over(entry[1]);
            }
        }
        EV_CM_ESTABLISHED => {
            if let Some(context) = registry.owner_of_qp(entry[1]) {
                context.established(entry);
            }
        }
        EV_CM_CLOSED => {
            if let Some(context) = registry.owner_of_qp(entry[1]) {
                context.connection_over(entry);
            }
        }
        EV_QP_ERROR => {
            if let Some(context) = registry.owner_of_qp(entry[1]) {
                context.qp_failed(entry);
            }
        }
        EV_LOG => {
            let len = entry[1] as usize;
            let mut bytes = [0; EVENT_LOG_BYTES];
            for (word, out) in entry[2..EVENT_PHASE].iter().zip(bytes.chunks_exact_mut(4)) {
                out.copy_from_slice(&word.to_le_bytes());
            }
            card.log(bytes.get(..len)?);
        }
        _ => return None,
    }
    Some(())
}
