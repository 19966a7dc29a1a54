// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Indicate window (IW-1 … IW-7, decision 12): stream data goes into *named* buffers of the application if there are
//! any, else into *anonymous* ones of the driver, and so waits for a buffer no longer than necessary.
//!
//! [`Nic`] is the card's side of one connection, [`Driver`] the host's. Events of the card come to the driver in order,
//! commands of the driver to the card in order; nothing else is assumed about their timing. Both sides identify bytes
//! by their stream offset, which keeps them in order across the switch between the two kinds of buffers (IW-7).

use crate::base::bound::at_most;
use crate::base::fifo::Fifo;
use crate::base::rule::{self, Rule};

/// Device settings (IW-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Indicate window of connections that set none, in bytes; at least 1.
    pub default_window: u32,
    /// Bytes of anonymous memory for all connections.
    pub pool: u64,
    /// Anonymous bytes per connection that may be acknowledged before they are copied (IW-3).
    pub early: u32,
    /// Named buffers of a connection that may be with the card at a time; at least 1.
    pub ahead: u8,
    /// Push timer (IW-6), in the caller's unit of time.
    pub push_time: u64,
}

impl Default for Settings {
    /// 64 KiB windows, a pool of 16 MiB, 2 buffers with the card, a push timer of 500 000 (µs).
    fn default() -> Self {
        Self { default_window: 64 << 10, pool: 16 << 20, early: 0, ahead: 2, push_time: 500_000 }
    }
}

/// The driver's anonymous memory, shared by the connections of a card (IW-1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    settings: Settings,
    reserved: u64,
}

impl Pool {
    /// No connection yet.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, reserved: 0 }
    }

    /// Anonymous bytes that a connection with that window can fill. Each hand-over of a buffer opens a new window,
    /// although the driver may still have to copy the bytes of the last one.
    pub const fn need(&self, window: u32) -> u64 {
        let ahead = if self.settings.ahead == 0 { 1 } else { self.settings.ahead as u64 };
        (1 + ahead) * window as u64 + self.settings.early as u64
    }

    /// Opens a connection with `window` bytes, or the default: its window, or `None` when the pool
    /// has no room for it.
    pub fn open(&mut self, window: Option<u32>) -> Option<u32> {
        let window = window.unwrap_or(self.settings.default_window).max(1);
        let reserved = self.reserved.checked_add(self.need(window)).filter(|r| *r <= self.settings.pool)?;
        self.reserved = reserved;
        Some(window)
    }

    /// A connection with that window is closed.
    pub fn close(&mut self, window: u32) {
        self.reserved = self.reserved.saturating_sub(self.need(window));
    }

    /// Bytes that open connections can fill.
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }
}

/// Why a named buffer came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No more fits.
    #[default]
    Full,
    /// Data with PUSH is in it (IW-6).
    Push,
    /// Its push timer ran out (IW-6).
    Timer,
    /// The connection ended.
    Closed,
}

/// What the card does with stream data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NicAction {
    /// Write into anonymous memory, then tell the driver: [`Driver::indicated`].
    Anonymous {
        /// Stream offset of the first byte.
        start: u64,
        /// Bytes.
        len: u32,
        /// The last byte carries PUSH.
        push: bool,
    },
    /// Write into a named buffer, without telling the host.
    Named {
        /// The driver's number of the buffer.
        id: u16,
        /// Offset in the buffer.
        offset: u32,
        /// Stream offset of the first byte.
        start: u64,
        /// Bytes.
        len: u32,
    },
    /// Tell the driver: [`Driver::returned`].
    Return {
        /// The driver's number of the buffer.
        id: u16,
        /// Stream offset behind the last byte that belongs into it and has been delivered.
        end: u64,
        /// Why.
        reason: Reason,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Segment {
    len: u32,
    push: bool,
}

/// A named buffer with the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Target {
    id: u16,
    start: u64,
    len: u32,
    push: bool,
    deadline: Option<u64>,
}

impl Target {
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.len as u64)
    }
}

/// The card's side: up to `SEGMENTS` segments held, `NAMED` named buffers, as many as the driver has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nic<const SEGMENTS: usize, const NAMED: usize> {
    window: u32,
    hold: u32,
    push_time: u64,
    /// Stream offset of the next byte to deliver.
    next: u64,
    pending: u32,
    /// Stream offset behind the last byte delivered with PUSH.
    pushed: u64,
    held: Fifo<Segment, SEGMENTS>,
    named: Fifo<Target, NAMED>,
    /// Stream offset up to which credits were given.
    announced: u64,
    closed: bool,
}

impl<const SEGMENTS: usize, const NAMED: usize> Nic<SEGMENTS, NAMED> {
    /// A connection with an indicate window of `window` bytes (at least 1), room to hold `hold`
    /// bytes, and a push timer of `push_time`. The first byte has stream offset `first`.
    pub fn new(window: u32, hold: u32, push_time: u64, first: u64) -> Self {
        Self {
            window: window.max(1),
            hold,
            push_time,
            next: first,
            pending: 0,
            pushed: first,
            held: Fifo::new(),
            named: Fifo::new(),
            announced: first,
            closed: false,
        }
    }

    /// The next `len` bytes of the stream have arrived, in order; `push` with the last of them.
    /// False when they cannot be held; then they are not accepted and come again.
    pub fn arrived(&mut self, len: u32, push: bool) -> bool {
        let held = self.held().saturating_add(len as u64);
        // Bytes that can be delivered at once need no room.
        let fits = held <= (self.hold as u64).saturating_add(self.limit().saturating_sub(self.next));
        len > 0 && fits && !self.closed && self.held.push(Segment { len, push })
    }

    /// What to do next; call until `None`, after every event and when [`Nic::deadline`] is over.
    pub fn poll(&mut self, now: u64) -> Option<NicAction> {
        if let Some(action) = self.give_back(now) {
            return Some(action);
        }
        let segment = *self.held.get(0)?;
        let target = self.named.get(0).copied().filter(|t| t.start <= self.next);
        let room = match target {
            Some(t) => t.end().saturating_sub(self.next).min(u32::MAX as u64) as u32,
            None => match rule::holds(Rule::IndicateWindow, self.pending < self.window) {
                // Up to the next named buffer, if it begins further on.
                true => {
                    let gap = self.named.get(0).map_or(u64::MAX, |t| t.start - self.next).min(u32::MAX as u64) as u32;
                    let open = self.window.saturating_sub(self.pending);
                    gap.min(if rule::broken(Rule::IndicateWindow) { u32::MAX } else { open })
                }
                false => 0,
            },
        };
        let len = segment.len.min(room);
        if len == 0 {
            return None;
        }
        let start = self.next;
        self.next = start.saturating_add(len as u64);
        let push = segment.push && len == segment.len;
        if push {
            self.pushed = self.next;
        }
        match len == segment.len {
            true => _ = self.held.pop(),
            false => {
                if let Some(first) = self.held.get_mut(0) {
                    first.len -= len;
                }
            }
        }
        Some(match target {
            Some(t) => {
                self.start_timer(now);
                NicAction::Named { id: t.id, offset: (start - t.start).min(u32::MAX as u64) as u32, start, len }
            }
            None => {
                self.pending = self.pending.saturating_add(len);
                NicAction::Anonymous { start, len, push }
            }
        })
    }

    /// The driver hands over a named buffer: its first byte has stream offset `start`, which may
    /// be below what was delivered; the driver copies that part (IW-4). Resets *pending* and
    /// resumes delivery (IW-3). After [`Nic::close`] it comes back at once. False when there is no
    /// room for one more.
    pub fn hand_over(&mut self, id: u16, start: u64, len: u32, push: bool, now: u64) -> bool {
        let start = if rule::broken(Rule::NamedByOffset) { self.next } else { start };
        let target = Target { id, start, len, push, deadline: None };
        if !self.named.push(target) {
            return false;
        }
        // Bytes behind its end that are in anonymous memory already stay to be acknowledged.
        let behind = self.next.saturating_sub(target.end()).min(self.pending as u64) as u32;
        self.pending = behind;
        self.start_timer(now);
        true
    }

    /// *Acknowledge*: the application has `n` more of the bytes in anonymous memory, or will soon (IW-3).
    pub fn acknowledge(&mut self, n: u32) {
        if rule::broken(Rule::AcknowledgedReopens) {
            return;
        }
        self.pending = self.pending.saturating_sub(n);
    }

    /// Changes the window of an open connection (IW-1); delivered bytes stay delivered.
    pub fn set_window(&mut self, window: u32) {
        self.window = window.max(1);
    }

    /// The connection is over: named buffers are returned, held data is dropped.
    pub fn close(&mut self) {
        self.closed = true;
        self.held.truncate(0);
    }

    /// Delivery waits for the application (IW-2).
    pub fn suspended(&self) -> bool {
        self.pending >= self.window && self.named.is_empty()
    }

    /// Bytes sent to the host and not acknowledged (IW-2).
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// Bytes that have arrived and are not delivered.
    pub fn held(&self) -> u64 {
        self.held.as_slice().iter().fold(0, |sum: u64, s| sum.saturating_add(s.len as u64))
    }

    /// Stream offset of the next byte to deliver.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Stream offset up to which data can be delivered without the host's help. Credits, which only stand for capacity
    /// on such a connection (decision 12), may add up to it.
    pub fn limit(&self) -> u64 {
        // A buffer in push mode may be returned before it is full.
        let certain = self.named.as_slice().iter().take_while(|t| rule::holds(Rule::CreditIsCertain, !t.push));
        let end = certain.fold(self.next, |end, t| end.max(t.end()));
        end.saturating_add(self.window.saturating_sub(self.pending) as u64)
    }

    /// The next credit of at most `most` bytes that keeps the sender within [`Nic::limit`] (IW-2).
    pub fn credit(&mut self, most: u32) -> Option<u32> {
        let size = self.limit().saturating_sub(self.announced).min(most as u64) as u32;
        if size == 0 || self.closed {
            return None;
        }
        self.announced = self.announced.saturating_add(size as u64);
        Some(size)
    }

    /// The peer used a credit of `size` bytes for `sent` only (CR-2): the rest can be announced anew.
    pub fn wasted(&mut self, size: u32, sent: u32) {
        self.announced = self.announced.saturating_sub(size.saturating_sub(sent) as u64);
    }

    /// When [`Nic::poll`] has something to do though nothing happens: a push timer.
    pub fn deadline(&self) -> Option<u64> {
        self.named.get(0).and_then(|t| t.deadline)
    }

    /// Counts stream offsets anew from `by`, for model checkers. False when older ones are known.
    pub fn rebase(&mut self, by: u64) -> bool {
        if by > self.next || self.named.as_slice().iter().any(|t| t.start < by) {
            return false;
        }
        for t in at_most(NAMED, self.named.as_mut_slice()) {
            t.start -= by;
        }
        self.next -= by;
        self.pushed = self.pushed.saturating_sub(by);
        self.announced = self.announced.saturating_sub(by);
        true
    }

    /// The push timer of the first buffer runs from its first byte on.
    fn start_timer(&mut self, now: u64) {
        let (next, until) = (self.next, now.saturating_add(self.push_time));
        if let Some(t) = self.named.get_mut(0)
            && t.push
            && t.start < next
            && t.deadline.is_none()
        {
            t.deadline = Some(until);
        }
    }

    fn give_back(&mut self, now: u64) -> Option<NicAction> {
        let t = *self.named.get(0)?;
        let reason = if self.next >= t.end() {
            Reason::Full
        } else if self.closed {
            Reason::Closed
        } else if t.push && self.pushed > t.start {
            Reason::Push
        } else if t.deadline.is_some_and(|at| at <= now) {
            Reason::Timer
        } else {
            return None;
        };
        self.named.pop();
        self.start_timer(now);
        Some(NicAction::Return { id: t.id, end: t.end().min(self.next).max(t.start), reason })
    }
}

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverAction {
    /// Copy from anonymous memory to a named buffer; the anonymous memory goes back to the pool.
    Copy {
        /// The application's number of the buffer.
        id: u16,
        /// Offset in the buffer.
        offset: u32,
        /// Stream offset of the first byte.
        start: u64,
        /// Bytes.
        len: u32,
    },
    /// Hand a named buffer over to the card: [`Nic::hand_over`].
    HandOver {
        /// The application's number of the buffer.
        id: u16,
        /// Stream offset of its first byte.
        start: u64,
        /// Bytes.
        len: u32,
        /// Push mode (IW-6).
        push: bool,
    },
    /// Tell the card: [`Nic::acknowledge`].
    Acknowledge(u32),
    /// The oldest named buffer is the application's again, with so many bytes.
    Complete {
        /// The application's number of the buffer.
        id: u16,
        /// Bytes in it.
        bytes: u32,
        /// Why.
        reason: Reason,
    },
    /// Tell the application that so many bytes wait for it (IW-5).
    Tell(u64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Where {
    /// Behind others.
    #[default]
    Queued,
    /// Filled by copies alone.
    Here,
    /// With the card.
    Card,
    /// The card is done with it.
    Back {
        /// Bytes below this stream offset came through anonymous memory.
        copied: u64,
        /// Stream offset behind its last byte.
        end: u64,
        reason: Reason,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Named {
    id: u16,
    len: u32,
    push: bool,
    start: u64,
    place: Where,
    deadline: Option<u64>,
}

impl Named {
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.len as u64)
    }
}

/// The driver's side: up to `NAMED` named buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver<const NAMED: usize> {
    window: u32,
    early: u32,
    ahead: u8,
    push_time: u64,
    /// Stream offset behind the last byte that came.
    received: u64,
    /// Stream offset of the first byte that is not in the application's hands.
    consumed: u64,
    /// ... that is not acknowledged to the card.
    acked: u64,
    indicated: u32,
    /// Stream offset behind the last byte that came with PUSH.
    pushed: u64,
    /// Stream offset up to which the application was told.
    told: u64,
    /// Stream offset up to which may be acknowledged before it is consumed.
    wanted: u64,
    named: Fifo<Named, NAMED>,
    closed: bool,
}

impl<const NAMED: usize> Driver<NAMED> {
    /// The other end of [`Nic::new`]: a connection with that window.
    pub fn new(settings: &Settings, window: u32, first: u64) -> Self {
        Self {
            window: window.max(1),
            early: settings.early,
            ahead: settings.ahead.max(1),
            push_time: settings.push_time,
            received: first,
            consumed: first,
            acked: first,
            indicated: 0,
            pushed: first,
            told: first,
            wanted: first,
            named: Fifo::new(),
            closed: false,
        }
    }

    /// The application posts a named buffer of `len` bytes. False when there is no room for one more.
    pub fn post(&mut self, id: u16, len: u32, push: bool) -> bool {
        !self.closed && self.named.push(Named { id, len, push, ..Named::default() })
    }

    /// The card has written `len` bytes at stream offset `start` into anonymous memory. False, and
    /// nothing is taken, when they are not the next ones.
    pub fn indicated(&mut self, start: u64, len: u32, push: bool) -> bool {
        if start != self.received {
            return false;
        }
        self.received = start.saturating_add(len as u64);
        self.indicated = self.indicated.saturating_add(len);
        if push {
            self.pushed = self.received;
        }
        true
    }

    /// The card returns the oldest buffer that it has. False when it cannot be.
    pub fn returned(&mut self, id: u16, end: u64, reason: Reason) -> bool {
        let mut named = self.named.as_mut_slice().iter_mut();
        let Some(n) = named.find(|n| !matches!(n.place, Where::Back { .. })) else {
            return false;
        };
        if n.place != Where::Card || n.id != id || end < n.start || end > n.end() {
            return false;
        }
        n.place = Where::Back { copied: end.min(self.received), end, reason };
        // Bytes up to there that did not come through anonymous memory are in the buffer. A buffer behind others that
        // comes back empty at the end says nothing about them.
        if end > n.start && end > self.received {
            self.received = end;
            self.told = self.told.max(end);
        }
        true
    }

    /// The application reads up to `n` waiting bytes without a named buffer; returns how many (IW-5).
    pub fn accept(&mut self, n: u32) -> u32 {
        if !self.named.is_empty() {
            return 0; // It would overtake them.
        }
        let n = self.waiting().min(n as u64) as u32;
        self.consumed = self.consumed.saturating_add(n as u64);
        n
    }

    /// The application is about to accept `n` waiting bytes: they may be acknowledged now (IW-3).
    pub fn accepting(&mut self, n: u32) {
        let n = match self.named.is_empty() {
            true => self.waiting().min(n as u64).min(self.early as u64),
            false => 0,
        };
        self.wanted = self.wanted.max(self.consumed.saturating_add(n));
    }

    /// What to do next; call until `None`, after every event and when [`Driver::deadline`] is over.
    pub fn poll(&mut self, now: u64) -> Option<DriverAction> {
        self.hand_over()
            .or_else(|| self.complete(now))
            .or_else(|| self.copy(now))
            .or_else(|| self.acknowledge())
            .or_else(|| self.tell())
    }

    /// The connection is over: buffers that are not with the card complete with what is in them;
    /// the others when the card has returned them.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Bytes that wait in anonymous memory.
    pub const fn waiting(&self) -> u64 {
        self.received.saturating_sub(self.consumed)
    }

    /// Bytes received from the card into anonymous memory since the window was last empty (IW-2).
    pub const fn indicated_bytes(&self) -> u32 {
        self.indicated
    }

    /// Stream offset of the first byte that the application does not have.
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Named buffers that are not complete.
    pub const fn outstanding(&self) -> usize {
        self.named.len()
    }

    /// When [`Driver::poll`] has something to do though nothing happens: a push timer of a
    /// buffer that is filled by copy.
    pub fn deadline(&self) -> Option<u64> {
        self.named.get(0).and_then(|n| n.deadline)
    }

    /// Counts stream offsets anew from `by`, for model checkers. False when older ones are known.
    pub fn rebase(&mut self, by: u64) -> bool {
        let placed = |n: &Named| n.place != Where::Queued && n.start < by;
        if by > self.consumed || by > self.acked || self.named.as_slice().iter().any(placed) {
            return false;
        }
        for n in at_most(NAMED, self.named.as_mut_slice()) {
            n.start = n.start.saturating_sub(by);
            if let Where::Back { copied, end, .. } = &mut n.place {
                (*copied, *end) = (copied.saturating_sub(by), end.saturating_sub(by));
            }
        }
        for offset in [
            &mut self.received,
            &mut self.consumed,
            &mut self.acked,
            &mut self.pushed,
            &mut self.told,
            &mut self.wanted,
        ] {
            *offset = offset.saturating_sub(by);
        }
        true
    }

    /// Some buffer is with the card.
    fn at_card(&self) -> bool {
        self.named.as_slice().iter().any(|n| n.place == Where::Card)
    }

    /// Gives the first buffer that has none its place in the stream: with the card if it is larger than the window and
    /// than the waiting bytes, and the end of the buffers before it is certain (IW-4); else here, once it is the
    /// oldest.
    fn hand_over(&mut self) -> Option<DriverAction> {
        let mut start = self.consumed;
        let (received, window, closed) = (self.received, self.window, self.closed);
        let busy = |n: &&Named| matches!(n.place, Where::Card | Where::Back { .. });
        let room = self.named.as_slice().iter().filter(busy).count() < self.ahead as usize;
        for (i, n) in at_most(NAMED, self.named.as_mut_slice().iter_mut().enumerate()) {
            match n.place {
                Where::Card if !n.push => start = n.end(),
                Where::Back { end, .. } => start = end,
                Where::Queued if !closed => {
                    if !room {
                        return None;
                    }
                    if n.len > window && start.saturating_add(n.len as u64) > received {
                        (n.start, n.place) = (start, Where::Card);
                        // There is nothing to acknowledge while it is there (IW-3).
                        self.acked = n.end();
                        return Some(DriverAction::HandOver { id: n.id, start, len: n.len, push: n.push });
                    }
                    if i == 0 {
                        (n.start, n.place) = (start, Where::Here);
                    }
                    return None;
                }
                _ => return None,
            }
        }
        None
    }

    /// Completes the oldest buffer if it is done.
    fn complete(&mut self, now: u64) -> Option<DriverAction> {
        let n = *self.named.get(0)?;
        let all = self.consumed >= self.received.min(n.end());
        let (end, reason) = match n.place {
            Where::Here if self.consumed >= n.end() => (n.end(), Reason::Full),
            Where::Here if self.closed && all => (self.consumed, Reason::Closed),
            Where::Here if n.push && all && self.pushed > n.start => (self.consumed, Reason::Push),
            Where::Here if n.deadline.is_some_and(|at| at <= now) => (self.consumed, Reason::Timer),
            Where::Back { copied, end, reason } if rule::holds(Rule::CopyBeforeReturn, self.consumed >= copied) => {
                (end, reason)
            }
            Where::Queued if self.closed => (n.start, Reason::Closed),
            _ => return None,
        };
        self.named.pop();
        let bytes = end.saturating_sub(n.start).min(n.len as u64) as u32;
        if matches!(n.place, Where::Back { .. }) {
            if bytes > 0 {
                self.consumed = self.consumed.max(end);
            }
            if !self.at_card() {
                self.acked = end;
            }
        }
        // If more is there the application is told so, unless the next buffer takes it.
        self.told = self.told.min(self.consumed);
        Some(DriverAction::Complete { id: n.id, bytes, reason })
    }

    /// Copies bytes from anonymous memory into the oldest buffer.
    fn copy(&mut self, now: u64) -> Option<DriverAction> {
        let (consumed, received) = (self.consumed, self.received);
        let until = now.saturating_add(self.push_time);
        let n = self.named.get_mut(0)?;
        let to = match n.place {
            Where::Here | Where::Card => received.min(n.end()),
            Where::Back { copied, .. } => copied,
            Where::Queued => return None,
        };
        let len = to.saturating_sub(consumed).min(u32::MAX as u64) as u32;
        if len == 0 {
            return None;
        }
        if n.place == Where::Here && n.push && n.deadline.is_none() {
            n.deadline = Some(until);
        }
        let offset = consumed.saturating_sub(n.start).min(u32::MAX as u64) as u32;
        let id = n.id;
        self.consumed = consumed.saturating_add(len as u64);
        Some(DriverAction::Copy { id, offset, start: consumed, len })
    }

    /// Tells the card how many bytes were taken: when all were, or half a window, or early if asked.
    fn acknowledge(&mut self) -> Option<DriverAction> {
        if self.consumed >= self.received && self.indicated >= self.window {
            self.indicated = 0;
        }
        let due = self.consumed.max(self.wanted).saturating_sub(self.acked).min(u32::MAX as u64) as u32;
        let now = self.consumed >= self.received || due >= self.window / 2 || self.wanted > self.acked;
        if due == 0 || !now || self.at_card() {
            return None;
        }
        self.acked = self.acked.saturating_add(due as u64);
        Some(DriverAction::Acknowledge(due))
    }

    /// Tells the application that data waits for which it has no buffer (IW-5).
    fn tell(&mut self) -> Option<DriverAction> {
        if !self.named.is_empty() || self.received <= self.told.max(self.consumed) {
            return None;
        }
        self.told = self.received;
        Some(DriverAction::Tell(self.waiting()))
    }
}
