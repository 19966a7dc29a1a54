// SPDX-License-Identifier: GPL-2.0
//! Ending objects on the card, after which it does not touch their memory.

use crate::card::{call::patiently, Card, Entry, State};
use kernel::{prelude::*, sync::Arc};

impl Card {
    /// Ends an object on the card. It was found while the firmware of `generation` ran. After `Ok`
    /// the card does not touch the object any more.
    pub(crate) fn end_object(self: &Arc<Self>, generation: u32, end: Entry) -> Result {
        match self.call_for(generation, end) {
            Ok(_) => Ok(()),
            Err(e) if e == ENOENT => Ok(()),
            Err(e) if self.end_dma_after(e) => {
                match self.state() == State::Up && self.generation() == generation {
                    // The card works and still has the object: it was not told, or did not answer.
                    true => Err(EBUSY),
                    false => Ok(()),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// After a command without an answer, when the card seems to be out of service, waits until its
    /// DMA has ended. `false`: the command was answered by an error.
    pub(crate) fn end_dma_after(self: &Arc<Self>, e: Error) -> bool {
        let out_of_service = e == EIO || e == ENODEV;
        if out_of_service {
            self.fence();
        }
        out_of_service
    }

    /// As [`Self::end_object`], for objects that must be gone afterwards: a card that does not
    /// release one is reset.
    pub(crate) fn end_for_good(self: &Arc<Self>, generation: u32, end: Entry) {
        if patiently(|| self.end_object(generation, end)).is_err() {
            let _ = self.reset("an object could not be ended");
        }
    }
}
