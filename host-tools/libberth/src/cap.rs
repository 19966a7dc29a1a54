// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maximum bandwidths of what queue pairs receive (CR-10).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_abi::ioctl;

use crate::context::Inner;
use crate::error::{Error, Result};
use crate::qp::QueuePair;

const SET: &str = "set a maximum bandwidth";
const JOIN: &str = "join a group with a maximum bandwidth";
const PART: &str = "look at the part of a group's maximum bandwidth";

/// A maximum bandwidth: in any time *t* at most `burst` + `bytes_per_second` × *t* bytes are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Bytes per second of card time. The card counts in 256ths of a byte in 64 of its cycles: a rate is rounded down to them, and
    /// one of less is refused.
    pub bytes_per_second: u64,
    /// Bytes that may be received at once (1 to 2^31 - 1): while less comes than may, so many are saved up.
    pub burst: u32,
}

/// A queue pair, as far as its maximum bandwidth is concerned.
#[derive(Debug)]
pub(crate) struct Capped {
    pub(crate) context: Arc<Inner>,
    pub(crate) qpn: u32,
    pub(crate) identity: u64,
    /// Bytes of the largest receive that has been posted.
    pub(crate) largest: Arc<AtomicU32>,
}

impl Capped {
    fn largest(&self) -> u32 {
        self.largest.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, cap: Option<Cap>) -> Result<()> {
        match (cap, self.largest()) {
            (Some(Cap { burst, .. }), largest) if burst < largest => Err(Error::BurstTooSmall { burst, largest }),
            _ => self.tell(cap),
        }
    }

    /// Has the driver set it, whatever receives there are.
    fn tell(&self, cap: Option<Cap>) -> Result<()> {
        let (rate, burst) = match cap {
            None => (0, 0),
            // To the driver this is none.
            Some(Cap { bytes_per_second: 0, .. } | Cap { burst: 0, .. }) => return Err(Error::Invalid { what: SET }),
            Some(cap) => (cap.bytes_per_second, cap.burst),
        };
        let mut arg = ioctl::SetCap { qpn: self.qpn, burst, identity: self.identity, rate };
        self.context.ioctl(SET, ioctl::IOC_SET_CAP, &mut arg)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.context, &other.context) && self.identity == other.identity
    }
}

/// What a queue pair of a [`CapGroup`] may receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapPart {
    /// Its maximum bandwidth.
    pub cap: Cap,
    /// Its burst is more than an equal part, because the largest receive that it had posted is. Then the group may receive
    /// more at once than its burst.
    pub raised: bool,
}

#[derive(Debug, Default)]
struct Members {
    by_number: BTreeMap<u64, (Capped, CapPart)>,
    /// Members that there have been.
    given: u64,
}

#[derive(Debug)]
struct Group {
    whole: Cap,
    members: Mutex<Members>,
}

impl Group {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each member its part; answers the first error.
    fn share(&self, members: &mut Members) -> Result<()> {
        let count = members.by_number.len() as u32;
        let mut outcome = Ok(());
        for (of, part) in members.by_number.values_mut() {
            let equal = self.whole.burst / count;
            let cap = Cap {
                bytes_per_second: self.whole.bytes_per_second / u64::from(count),
                burst: equal.max(of.largest()),
            };
            *part = CapPart { cap, raised: cap.burst > equal };
            match of.tell(Some(cap)) {
                // Its queue pair, or its card, has gone.
                Err(Error::NotFound { .. } | Error::DeviceLost) => {}
                told => outcome = outcome.and(told),
            }
        }
        outcome
    }

    fn leave(&self, members: &mut Members, number: u64) {
        let left = members.by_number.remove(&number).map_or(Ok(()), |(of, _)| of.tell(None));
        for outcome in [left, self.share(members)] {
            match outcome {
                Ok(()) | Err(Error::DeviceLost | Error::NotFound { .. }) => {}
                Err(error) => tracing::warn!(%error, "a group's maximum bandwidth is not shared anew"),
            }
        }
    }
}

/// A maximum bandwidth that queue pairs share in equal parts: clients of a server, however many there are, send it no more
/// together. The queue pairs may be of several contexts and cards.
///
/// When a queue pair joins or leaves, each member gets a new part; what it has saved stays, up to its part of the burst. A
/// member's [`QueuePair::set_cap`] holds until then.
#[derive(Clone, Debug)]
pub struct CapGroup(Arc<Group>);

/// A queue pair's membership of a [`CapGroup`]: when it is dropped, the queue pair has no maximum bandwidth any more, and the
/// others share its part. It counts until then, even if the queue pair has been dropped.
#[derive(Debug)]
pub struct CapMember {
    group: Arc<Group>,
    context: Arc<Inner>,
    number: u64,
}

impl CapGroup {
    /// A group without members, which shares `whole`.
    pub fn new(whole: Cap) -> Self {
        Self(Arc::new(Group { whole, members: Mutex::default() }))
    }

    /// Takes a queue pair in, connected or not. After an error it has no maximum bandwidth, and the others have the parts that
    /// they had.
    ///
    /// # Errors
    /// [`Error::Busy`] when it is a member; [`Error::Invalid`] also when the parts would be too small; as
    /// [`QueuePair::set_cap`], of any member.
    pub fn join(&self, qp: &QueuePair) -> Result<CapMember> {
        let Self(group) = self;
        let of = qp.capped();
        let context = Arc::clone(&of.context);
        context.check_owner(JOIN)?;
        let mut members = group.members();
        if members.by_number.values().any(|(other, _)| of.is(other)) {
            return Err(Error::Busy { what: JOIN });
        }
        members.given += 1;
        let number = members.given;
        // The last in order: the others are slower before it may begin.
        members.by_number.insert(number, (of, CapPart { cap: group.whole, raised: false }));
        let shared = group.share(&mut members).and_then(|()| context.check_lost());
        if shared.is_err() {
            group.leave(&mut members, number);
        }
        shared.map(|()| CapMember { group: Arc::clone(group), context, number })
    }
}

impl CapMember {
    /// What the queue pair may receive, by how many are members now.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] in another process.
    pub fn part(&self) -> Result<CapPart> {
        self.context.check_owner(PART)?;
        let members = self.group.members();
        members.by_number.get(&self.number).map(|(_, part)| *part).ok_or(Error::NotFound { what: PART })
    }
}

impl Drop for CapMember {
    fn drop(&mut self) {
        if self.context.is_owned() {
            self.group.leave(&mut self.group.members(), self.number);
        }
    }
}
