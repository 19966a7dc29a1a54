// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RKeys: which bytes of an address space peers may read, write and change (QP-4, QP-9, QP-11, QP-12).
//!
//! One table per card. A key belongs to a protection domain: it holds for every QP of that, and for any peer that was
//! given it. All 32 bits of a key are drawn from entropy that the caller gives; the bits above the lowest 8 are its
//! place in the table, drawn among the free ones, so that a look-up reads one place. A peer that guesses finds one of
//! the `k` keys of a domain with probability at most `k / 2^32`, also with a full table and whatever other keys it was
//! given (decision 29). The owner may choose the lowest 8 bits where verbs requires it ([`Keys::tag`]).
//!
//! A key is *allocated*, then *bound* to a byte range of any size and alignment, bound anew, unbound,
//! deallocated; a BIND element of a send queue does the same as the verb. Regions are keys that windows may be
//! bound inside of; a region stays as long as windows are bound in it.
//!
//! Keys say what may be accessed, not what is in memory: the pager handles absent pages (QP-13).

use berth_abi::rows::recv;

use crate::base::rule::{self, Rule};
use crate::rc::{Access, Admit, Psn, Right};

/// Right to READ.
pub const READ: u8 = recv::RIGHT_READ as u8;
/// Right to WRITE.
pub const WRITE: u8 = recv::RIGHT_WRITE as u8;
/// Right to atomics.
pub const ATOMIC: u8 = recv::RIGHT_ATOMIC as u8;

/// Bits of a key that its owner may choose; those above them are its place in the table.
const TAG_BITS: u32 = 8;
/// Most keys of a table.
pub const MOST: usize = 1 << 16;

/// Why a verb fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyError {
    /// The table is full.
    Full,
    /// There is no such key.
    Unknown,
    /// The range wraps around, is not inside the region, or asks for rights that there are
    /// not: "invalid parameter" of QP-9.
    Invalid,
    /// Windows are bound in the region.
    InUse,
}

/// Why an access is refused. Each is to be counted, and puts the QP in error (decision 29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There is no such key.
    Unknown,
    /// It is another protection domain's.
    Domain,
    /// It is not bound.
    Unbound,
    /// Not all bytes lie in its range.
    Range,
    /// It does not give this right.
    Right,
    /// It is a one-shot key, and used up (QP-12).
    Used,
}

/// What a key is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binding {
    /// First virtual address.
    pub va: u64,
    /// Bytes, not 0.
    pub len: u64,
    /// [`READ`] | [`WRITE`] | [`ATOMIC`].
    pub rights: u8,
    /// For one RDMA operation only.
    pub one_shot: bool,
    /// Key of the region that the range must lie in. 0: none, any memory of the address space.
    pub region: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Free,
    Allocated,
    Bound,
}

/// The operation that a one-shot key is used by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Claim {
    qpn: u32,
    /// PSN of its first packet.
    first: u32,
    packets: u32,
    /// Virtual address behind it.
    end: u64,
    right: Right,
    over: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    state: State,
    region: bool,
    /// The key; of a free place, the last one that it had.
    key: u32,
    domain: u16,
    binding: Binding,
    /// Windows bound in this region.
    windows: u16,
    claim: Option<Claim>,
}

/// The keys of one card, `N` at most (a power of two, up to [`MOST`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keys<const N: usize> {
    entries: [Entry; N],
    /// The first `left` are the places that are free, each XORed with its index, so that all 0 has all of them.
    free: [u16; N],
    left: u32,
}

impl<const N: usize> Default for Keys<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Keys<N> {
    /// No keys.
    pub const fn new() -> Self {
        const NONE: Entry = Entry {
            state: State::Free,
            region: false,
            key: 0,
            domain: 0,
            binding: Binding { va: 0, len: 0, rights: 0, one_shot: false, region: 0 },
            windows: 0,
            claim: None,
        };
        const { assert!(N.is_power_of_two() && N <= MOST) };
        Self { entries: [NONE; N], free: [0; N], left: N as u32 }
    }

    /// The only place where `key` can be.
    const fn place_of(key: u32) -> usize {
        (key >> TAG_BITS) as usize & (N - 1)
    }

    fn find(&self, key: u32) -> Option<&Entry> {
        let entry = self.entries.get(Self::place_of(key))?;
        let right = entry.key == key;
        (entry.state != State::Free && rule::holds(Rule::KeyMatches, right)).then_some(entry)
    }

    fn find_mut(&mut self, key: u32) -> Result<&mut Entry, KeyError> {
        match self.find(key) {
            Some(_) => self.entries.get_mut(Self::place_of(key)).ok_or(KeyError::Unknown),
            None => Err(KeyError::Unknown),
        }
    }

    /// Takes one of the free places, each as likely as the others, and gives it a key.
    fn take(&mut self, entropy: u64) -> Option<(u32, &mut Entry)> {
        let last = self.left.checked_sub(1)?;
        let at = (((entropy >> 32) * u64::from(self.left)) >> 32) as u32;
        let moved = *self.free.get(last as usize)? ^ (last ^ at) as u16;
        let place = core::mem::replace(self.free.get_mut(at as usize)?, moved) ^ at as u16;
        self.left = last;
        let entry = self.entries.get_mut(usize::from(place))?;
        let places = ((N - 1) as u32) << TAG_BITS;
        let drawn = entropy as u32 & !places | u32::from(place) << TAG_BITS;
        // Neither 0 nor the key that the place had last.
        let [key, other, third] = [drawn, drawn ^ 1 << 31, drawn ^ 1 << 30];
        let fits = |key: u32| key != 0 && key != entry.key;
        let key = if fits(key) {
            key
        } else if fits(other) {
            other
        } else {
            third
        };
        Some((key, entry))
    }

    /// A place is free again.
    fn give_back(&mut self, place: usize) {
        if let Some(slot) = self.free.get_mut(self.left as usize) {
            *slot = place as u16 ^ self.left as u16;
            self.left += 1;
        }
    }

    /// AllocateRKey: a new key of a protection domain, bound to nothing. `entropy` must be unpredictable for peers.
    ///
    /// # Errors
    /// [`KeyError::Full`].
    pub fn allocate(&mut self, domain: u16, entropy: u64) -> Result<u32, KeyError> {
        let (key, entry) = self.take(entropy).ok_or(KeyError::Full)?;
        *entry = Entry { state: State::Allocated, key, domain, ..Entry::default() };
        Ok(key)
    }

    /// Registers a region: allocated and bound at once, and windows may be bound inside it.
    ///
    /// # Errors
    /// [`KeyError::Full`], [`KeyError::Invalid`].
    pub fn register(&mut self, domain: u16, va: u64, len: u64, rights: u8, entropy: u64) -> Result<u32, KeyError> {
        let key = self.allocate(domain, entropy)?;
        let binding = Binding { va, len, rights, one_shot: false, region: 0 };
        if let Err(error) = self.bind(key, binding) {
            let _ = self.deallocate(key);
            return Err(error);
        }
        self.find_mut(key)?.region = true;
        Ok(key)
    }

    /// DeallocateRKey, or the end of a region: the key is never valid again.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::InUse`] for a region with windows.
    pub fn deallocate(&mut self, key: u32) -> Result<(), KeyError> {
        let entry = self.find_mut(key)?;
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        let region = entry.binding.region;
        *entry = Entry { key, ..Entry::default() };
        self.give_back(Self::place_of(key));
        self.leave(region);
        Ok(())
    }

    /// A window in `region` is gone.
    fn leave(&mut self, region: u32) {
        if region != 0
            && let Ok(entry) = self.find_mut(region)
        {
            entry.windows = entry.windows.saturating_sub(1);
        }
    }

    /// BindRKey: the key gives access to `binding` from now on, and to nothing else; a one-shot key is fresh again. A
    /// binding of length 0 at address 0 unbinds (QP-9). The caller checks that the process may access the memory; the
    /// pager checks it again with each page.
    ///
    /// # Errors
    /// [`KeyError::Unknown`], [`KeyError::Invalid`], [`KeyError::InUse`] (a region with windows): nothing has changed.
    pub fn bind(&mut self, key: u32, binding: Binding) -> Result<(), KeyError> {
        let entry = self.find_mut(key)?;
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        let (old, domain) = (entry.binding.region, entry.domain);
        let null = binding.va == 0 && binding.len == 0;
        if !null {
            let end = binding.va.checked_add(binding.len).ok_or(KeyError::Invalid)?;
            let whole = READ | WRITE | ATOMIC;
            if binding.len == 0 || binding.rights == 0 || binding.rights & !whole != 0 || entry.region {
                return Err(KeyError::Invalid);
            }
            if binding.region != 0 {
                let region = self.find_mut(binding.region)?;
                let within = region.region
                    && region.domain == domain
                    && binding.va >= region.binding.va
                    && end <= region.binding.va + region.binding.len
                    && binding.rights & !region.binding.rights == 0;
                if !within || binding.region == key || region.windows == u16::MAX {
                    return Err(KeyError::Invalid);
                }
                region.windows += 1;
            }
        }
        self.leave(old);
        let entry = self.find_mut(key)?;
        if !rule::broken(Rule::BoundIsFresh) {
            entry.claim = None;
        }
        entry.state = if null { State::Allocated } else { State::Bound };
        if !(null && rule::broken(Rule::UnboundGivesNothing)) {
            entry.binding = if null { Binding::default() } else { binding };
        }
        Ok(())
    }

    /// UnbindRKey: the key stays allocated and gives access to nothing.
    ///
    /// # Errors
    /// As [`Keys::bind`].
    pub fn unbind(&mut self, key: u32) -> Result<(), KeyError> {
        self.bind(key, Binding::default())
    }

    /// Gives a bound key a new value, so that the old one opens nothing.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::InUse`] for a region with windows.
    pub fn renew(&mut self, key: u32, entropy: u64) -> Result<u32, KeyError> {
        let entry = self.find_mut(key)?;
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        let moved = *entry;
        // It may get its own place again.
        *entry = Entry { key, ..Entry::default() };
        self.give_back(Self::place_of(key));
        let (key, entry) = self.take(entropy).ok_or(KeyError::Full)?;
        *entry = Entry { key, claim: None, ..moved };
        Ok(key)
    }

    /// Gives a key the lowest bits that its owner wants; the old key opens nothing any more.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::InUse`] for a region with windows; [`KeyError::Invalid`] where it would be 0.
    pub fn tag(&mut self, key: u32, tag: u8) -> Result<u32, KeyError> {
        let entry = self.find_mut(key)?;
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        let key = key >> TAG_BITS << TAG_BITS | u32::from(tag);
        if key == 0 {
            return Err(KeyError::Invalid);
        }
        entry.key = key;
        entry.claim = None;
        Ok(key)
    }

    /// The key in a place as the card's table has it, in the words from [`recv::KEY`] on. `asid`: the address space that its
    /// range lies in. A key that is stored anew is fresh: every change of a one-shot key makes it so.
    pub fn words(&self, place: usize, asid: u8) -> [u32; 8] {
        let entry = self.entries.get(place).copied().unwrap_or_default();
        if entry.state == State::Free {
            return [0; 8];
        }
        let Binding { va, len, rights, one_shot, region } = entry.binding;
        let bound = u32::from(entry.state == State::Bound);
        let scope = recv::KeyScope {
            domain: entry.domain.into(),
            asid: asid.into(),
            live: 1,
            bound,
            one_shot: one_shot.into(),
            rights: rights.into(),
        };
        let last = va.wrapping_add(len).wrapping_sub(1);
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let kept = u32::from(entry.windows) | u32::from(entry.region) << 31;
        [entry.key, scope.word(), low(va), high(va), low(last), high(last), region, kept]
    }

    /// What `key` is bound to.
    pub fn binding(&self, key: u32) -> Option<&Binding> {
        self.find(key).filter(|entry| entry.state == State::Bound).map(|entry| &entry.binding)
    }

    /// Keys that are not free.
    pub fn in_use(&self) -> usize {
        N.saturating_sub(self.left as usize)
    }

    /// Whether the peer of QP `qpn` of protection domain `domain` may do `access`: address, key and right must match
    /// (QP-11). Nothing may be read or written otherwise. A one-shot key then belongs to this operation.
    ///
    /// A READ that goes on where the last one ended, in PSNs and in addresses, counts as the
    /// same operation: requesters ask for long ones in parts.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&mut self, domain: u16, qpn: u32, access: &Access) -> Result<(), Refusal> {
        let Ok(entry) = self.find_mut(access.remote.key) else {
            return Err(Refusal::Unknown);
        };
        if !rule::holds(Rule::KeyOfDomain, entry.domain == domain) {
            return Err(Refusal::Domain);
        }
        if !rule::holds(Rule::UnboundGivesNothing, entry.state == State::Bound) {
            return Err(Refusal::Unbound);
        }
        let binding = &entry.binding;
        let (va, len) = (access.remote.va, access.remote.len as u64);
        let inside = match va.checked_sub(binding.va) {
            Some(offset) => offset <= binding.len && len <= binding.len - offset,
            None => false,
        };
        if !rule::holds(Rule::KeyInRange, inside) {
            return Err(Refusal::Range);
        }
        let right = match access.right {
            Right::Read => READ,
            Right::Write => WRITE,
            Right::Atomic => ATOMIC,
        };
        if !rule::holds(Rule::KeyGivesRight, binding.rights & right != 0) {
            return Err(Refusal::Right);
        }
        if !binding.one_shot {
            return Ok(());
        }
        let fresh = Claim {
            qpn,
            first: access.first,
            packets: access.packets,
            end: va.wrapping_add(len),
            right: access.right,
            over: false,
        };
        let Some(claim) = &mut entry.claim else {
            // A repeated request was checked before, with the key as it was then.
            if access.again {
                return Err(Refusal::Used);
            }
            entry.claim = Some(fresh);
            return Ok(());
        };
        let ahead = Psn::<24>::new(access.first).since(Psn::new(claim.first));
        let same = claim.qpn == qpn && claim.right == access.right;
        if same && access.again && ahead.saturating_add(access.packets) <= claim.packets {
            return Ok(());
        }
        if same && ahead == 0 && !claim.over && !access.again {
            return Ok(());
        }
        if same && access.right == Right::Read && ahead == claim.packets && va == claim.end && !access.again {
            // The claim grows, so that any part of it may be repeated.
            claim.packets = claim.packets.saturating_add(access.packets);
            claim.end = va.wrapping_add(len);
            claim.over = false;
            return Ok(());
        }
        if rule::broken(Rule::OneShotOnce) {
            return Ok(());
        }
        Err(Refusal::Used)
    }

    /// As [`Keys::check`], as a [`crate::rc::Target`] answers it: all of the memory is resident.
    pub fn admit(&mut self, domain: u16, qpn: u32, access: &Access) -> Admit {
        match self.check(domain, qpn, access) {
            Ok(()) => Admit::Yes,
            Err(_) => Admit::No,
        }
    }

    /// The operation of QP `qpn` that began with PSN `first` (or that part of it) is over: a one-shot key is used up (QP-12).
    pub fn used(&mut self, qpn: u32, key: u32, first: u32) {
        if let Ok(entry) = self.find_mut(key)
            && let Some(claim) = &mut entry.claim
            && claim.qpn == qpn
            && Psn::<24>::new(first).since(Psn::new(claim.first)) < claim.packets
        {
            claim.over = true;
        }
    }
}
