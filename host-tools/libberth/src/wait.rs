// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several threads that wait for events of one descriptor.
//!
//! An armed notification is signalled once, and the thread that takes the descriptor's count takes it from all others.
//! So one of the threads that wait, the *watcher*, sleeps at the descriptor, and the others at a condition variable. A
//! thread that leaves wakes one of the others, which finds an event or becomes the watcher. So while threads wait, one
//! of them watches or is about to.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    timeout: Option<Duration>,
    deadline: Option<Instant>,
}

impl Deadline {
    /// From now on; `None`: for ever.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, deadline: timeout.and_then(|t| Instant::now().checked_add(t)) }
    }

    /// What is left of it; `None`: it has no end.
    ///
    /// # Errors
    /// [`Error::Timeout`] when nothing is left.
    pub(crate) fn left(&self) -> Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(Error::Timeout(self.timeout.unwrap_or_default())),
            left => Ok(Some(left)),
        }
    }
}

/// The receiver of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Any waiting thread.
    Any,
    /// A certain thread, which must look itself.
    One,
}

#[derive(Debug)]
struct Waiters<S> {
    value: S,
    /// A thread sleeps at the descriptor.
    watched: bool,
    /// Threads that sleep at the condition variable.
    asleep: usize,
}

/// State that is waited for by several threads.
#[derive(Debug)]
pub(crate) struct Waited<S> {
    waiters: Mutex<Waiters<S>>,
    changed: Condvar,
    comes_for: For,
}

/// The state, locked.
#[derive(Debug)]
pub(crate) struct Locked<'a, S>(MutexGuard<'a, Waiters<S>>);

impl<S> Locked<'_, S> {
    /// Whether a thread sleeps at the descriptor. It must find the descriptor signalled if its event has been taken
    /// from there, or if it is to look again.
    pub(crate) fn is_watched(&self) -> bool {
        self.0.watched
    }
}

impl<S> Deref for Locked<'_, S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.0.value
    }
}

impl<S> DerefMut for Locked<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0.value
    }
}

impl<S> Waited<S> {
    pub(crate) fn new(value: S, comes_for: For) -> Self {
        Self { waiters: Mutex::new(Waiters { value, watched: false, asleep: 0 }), changed: Condvar::new(), comes_for }
    }

    pub(crate) fn lock(&self) -> Locked<'_, S> {
        Locked(self.waiters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has all that sleep at the condition variable look again. The watcher is woken by its descriptor.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits until `take` gives something. `arm` makes later events signal the descriptor, and may take in earlier
    /// ones; `sleep` waits at the descriptor for so long and takes its count.
    ///
    /// # Errors
    /// [`Error::Timeout`], and what the three say.
    pub(crate) fn wait<T>(
        &self,
        deadline: Deadline,
        mut take: impl FnMut(&mut S) -> Result<Option<T>>,
        mut arm: impl FnMut(&mut S) -> Result<()>,
        mut sleep: impl FnMut(Option<Duration>) -> Result<()>,
    ) -> Result<T> {
        let mut locked = self.lock();
        let outcome = loop {
            if let Some(outcome) = take(&mut locked).transpose() {
                break outcome;
            }
            if !locked.is_watched() {
                let armed = arm(&mut locked);
                // Earlier events signal nothing.
                if let Some(outcome) = armed.and_then(|()| take(&mut locked)).transpose() {
                    break outcome;
                }
            }
            let left = match deadline.left() {
                Ok(left) => left,
                Err(error) => break Err(error),
            };
            if locked.is_watched() {
                locked.0.asleep += 1;
                locked = Locked(match left {
                    Some(left) => self.changed.wait_timeout(locked.0, left).unwrap_or_else(PoisonError::into_inner).0,
                    None => self.changed.wait(locked.0).unwrap_or_else(PoisonError::into_inner),
                });
                locked.0.asleep -= 1;
                continue;
            }
            locked.0.watched = true;
            drop(locked);
            let slept = sleep(left);
            locked = self.lock();
            locked.0.watched = false;
            if let Err(error) = slept {
                break Err(error);
            }
        };
        if locked.0.asleep > 0 {
            match self.comes_for {
                For::Any if !locked.is_watched() => self.changed.notify_one(),
                For::Any => {}
                // It may be for any of them.
                For::One => self.changed.notify_all(),
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// A source of tokens with a one-shot notification, as an armed completion queue is.
    struct Source {
        fd: std::os::fd::OwnedFd,
        /// Tokens that wait, and whether the next one signals.
        tokens: Waited<(usize, bool)>,
    }

    impl Source {
        fn new() -> Self {
            Self { fd: sys::eventfd().unwrap(), tokens: Waited::new((0, false), For::Any) }
        }

        fn put(&self) {
            let mut tokens = self.tokens.lock();
            let (waiting, armed) = &mut *tokens;
            *waiting += 1;
            if std::mem::take(armed) {
                sys::eventfd_signal(self.fd.as_fd());
            }
        }

        fn get(&self, timeout: Option<Duration>) -> Result<()> {
            self.tokens.wait(
                Deadline::new(timeout),
                |(tokens, _)| Ok((*tokens > 0).then(|| *tokens -= 1)),
                |(_, armed)| {
                    *armed = true;
                    Ok(())
                },
                |left| {
                    sys::wait_readable([self.fd.as_fd()], left).unwrap();
                    sys::eventfd_take(self.fd.as_fd());
                    Ok(())
                },
            )
        }
    }

    #[test]
    fn f1_as_many_waiters_return_as_tokens_come_whatever_their_order() {
        for round in 0..200 {
            let source = Source::new();
            let done = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        source.get(None).unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                }
                for n in 0..8 {
                    source.put();
                    // Now all at once, now one after the other.
                    while round % 2 == 0 && done.load(Ordering::Relaxed) <= n {
                        thread::yield_now();
                    }
                }
            });
            assert_eq!(done.into_inner(), 8);
        }
    }

    #[test]
    fn f1_who_runs_out_of_time_passes_the_watch_on() {
        for _ in 0..50 {
            let source = Source::new();
            thread::scope(|scope| {
                let short = scope.spawn(|| source.get(Some(Duration::from_millis(3))));
                let long = scope.spawn(|| source.get(None));
                assert!(matches!(short.join().unwrap(), Err(Error::Timeout(_))));
                source.put();
                long.join().unwrap().unwrap();
            });
        }
    }
}
