// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair as the medium of a channel.

use std::collections::VecDeque;

use berth_protocol::service::grow::Config;
use berth_queue::Remote;

use super::error::{ChannelError, Refused};
use super::medium::{Event, Medium, Tag};
use super::words::Words;
use crate::context::Context;
use crate::cq::{CompletionQueue, Status};
use crate::error::{Error, Result};
use crate::mapping::Buffer;
use crate::qp::{Mode, QpConfig, QueuePair, WorkRequest};
use crate::region::{Access, BufferRegion, ProtectionDomain, Region};
use berth_abi::wqe::Sge;

/// Words that the peer may write.
#[derive(Debug)]
pub(super) struct OpenWords {
    words: Words,
    region: Region,
}

impl OpenWords {
    fn new(domain: &ProtectionDomain, bytes: usize) -> Option<Self> {
        let words = Words::new(bytes)?;
        // SAFETY: the words last until the region has been unbound, and they are read and written one by one.
        let region = unsafe { domain.register(words.va(), words.len() as u64, Access::WRITE) }.ok()?;
        Some(Self { words, region })
    }
}

impl Drop for OpenWords {
    fn drop(&mut self) {
        if !self.region.let_go() {
            // The card may still write to them.
            std::mem::forget(self.words.clone());
        }
    }
}

/// What an element of the send queue has of ours until it is done.
#[derive(Debug)]
enum Held {
    Nothing,
    #[expect(dead_code, reason = "the card reads them")]
    Words(Words),
    Buffer(Buffer),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Card {
    qp: QueuePair,
    cq: CompletionQueue,
    domain: ProtectionDomain,
    /// Elements of the send queue, oldest first.
    sends: VecDeque<(Tag, Held)>,
    /// Receives that have completed and were not posted again, and how many are posted again together.
    used: u32,
    batch: u32,
}

impl Card {
    /// With receives for all buffers of a set, posted.
    pub(super) fn new<const LEVELS: usize>(
        context: &Context,
        domain: &ProtectionDomain,
        config: &Config<LEVELS>,
    ) -> Result<Self> {
        // All buffers, and some requests and other words beside them.
        let send_depth = (config.count + 8).next_power_of_two();
        let recv_depth = (2 * config.count).next_power_of_two();
        let cq = context.create_cq(send_depth + recv_depth)?;
        let queues = QpConfig { mode: Mode::Message, send_depth, recv_depth, ..QpConfig::default() };
        let qp = domain.create_qp(&cq, &cq, &queues)?;
        let mut card =
            Self { qp, cq, domain: domain.clone(), sends: VecDeque::new(), used: recv_depth, batch: config.count / 2 };
        card.post_receives()?;
        Ok(card)
    }

    pub(super) fn queue_pair(&self) -> &QueuePair {
        &self.qp
    }

    pub(super) fn completions(&self) -> &CompletionQueue {
        &self.cq
    }

    /// Posts the used receives again. They have no memory: WRITEs with an immediate use them only to be noticed.
    fn post_receives(&mut self) -> Result<()> {
        let none = vec![WorkRequest::default(); self.used as usize];
        // SAFETY: there are no ranges.
        unsafe { self.qp.post_recv(&none) }?;
        self.used = 0;
        Ok(())
    }

    fn post(&mut self, tag: Tag, held: Held, request: WorkRequest<'_>) -> Result<(), (Error, Held)> {
        // SAFETY: the words and buffers of its ranges are kept in `sends` until it has completed, or the queue pair has
        // gone; other ranges are inline, and lent to our caller.
        match unsafe { self.qp.post_send(&[request]) } {
            Ok(()) => {
                self.sends.push_back((tag, held));
                Ok(())
            }
            Err(error) => Err((error, held)),
        }
    }
}

impl Medium for Card {
    type Open = OpenWords;
    type Offered = BufferRegion;

    fn own(&mut self, bytes: usize) -> Option<Words> {
        Words::new(bytes)
    }

    fn open(&mut self, bytes: usize) -> Option<OpenWords> {
        OpenWords::new(&self.domain, bytes)
    }

    fn words(open: &OpenWords) -> &Words {
        &open.words
    }

    fn remote(open: &OpenWords) -> Remote {
        Remote { va: open.words.va(), key: open.region.key() }
    }

    fn offer(&mut self, buffer: Buffer) -> Result<BufferRegion, Buffer> {
        BufferRegion::with(&self.domain, buffer, Access::READ).map_err(|(_, buffer)| buffer)
    }

    fn offered(offered: &BufferRegion) -> Remote {
        offered.remote()
    }

    fn take_back(offered: BufferRegion) -> Option<Buffer> {
        offered.into_buffer()
    }

    fn room(&self) -> usize {
        self.qp.send_free() as usize
    }

    fn write(
        &mut self,
        from: &Words,
        at: usize,
        len: usize,
        to: Remote,
        code: u32,
        tag: Tag,
    ) -> Result<(), ChannelError> {
        debug_assert!(at + len <= from.len());
        let inline = len <= self.qp.max_inline_data();
        let sges = [Sge { va: from.va() + at as u64, len: len as u32, reserved: 0 }];
        let request =
            WorkRequest { sges: &sges, inline, remote: Some(to), immediate: Some(code), ..Default::default() };
        Ok(self.post(tag, Held::Words(from.clone()), request).map_err(|(error, _)| error)?)
    }

    fn write_now(&mut self, bytes: &[u8], to: Remote, code: Option<u32>, tag: Tag) -> Result<(), ChannelError> {
        let sges = [Sge { va: bytes.as_ptr() as u64, len: bytes.len() as u32, reserved: 0 }];
        let request =
            WorkRequest { sges: &sges, inline: true, remote: Some(to), immediate: code, ..Default::default() };
        Ok(self.post(tag, Held::Nothing, request).map_err(|(error, _)| error)?)
    }

    fn read(&mut self, into: Buffer, len: u32, from: Remote) -> Result<(), Refused> {
        debug_assert!(len as usize <= into.len());
        let sges = [Sge { va: into.mapping().as_ptr() as u64, len, reserved: 0 }];
        let request = WorkRequest { sges: &sges, source: Some(from), ..Default::default() };
        self.post(Tag::Read, Held::Buffer(into), request).map_err(|(error, held)| Refused {
            error: error.into(),
            buffer: if let Held::Buffer(buffer) = held { Some(buffer) } else { None },
        })
    }

    fn poll(&mut self) -> Result<Option<Event>, ChannelError> {
        let Some(done) = self.cq.poll()? else { return Ok(None) };
        if done.status != Status::Ok {
            return Err(ChannelError::Lost(done.status));
        }
        if done.recv {
            self.used += 1;
            if self.used >= self.batch {
                self.post_receives()?;
            }
            let code = done.immediate.filter(|_| done.write);
            return Ok(Some(Event::Arrived { code, len: done.byte_len }));
        }
        // A queue completes in order.
        let (tag, held) = self.sends.pop_front().ok_or(Error::BadCompletion { qpn: done.qpn })?;
        Ok(Some(match held {
            Held::Buffer(buffer) => Event::Read(buffer),
            Held::Words(_) | Held::Nothing => Event::Sent(tag),
        }))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if !self.qp.destroy() {
            // The card may still use what its elements name.
            std::mem::forget(std::mem::take(&mut self.sends));
        }
    }
}
