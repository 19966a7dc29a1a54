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
//! The verbs are [`Verbs`]', which knows the places that are free and has the keys themselves from a [`Store`]: the card's is
//! RTL's RAM, where they are looked up. [`Keys`] has them in memory and looks them up itself; RTL is compared with it.
//!
//! Keys say what may be accessed, not what is in memory: the pager handles absent pages (QP-13).

use berth_abi::rows::recv;
use berth_abi::wide;

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

/// A place of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    state: State,
    region: bool,
    /// The key; of a free place, the last one that it had.
    key: u32,
    domain: u16,
    binding: Binding,
    /// Windows bound in this region.
    windows: u16,
    /// An element of a send queue has bound it: a peer may invalidate it.
    by_element: bool,
    claim: Option<Claim>,
}

impl Entry {
    const NONE: Self = Self {
        state: State::Free,
        region: false,
        key: 0,
        domain: 0,
        binding: Binding { va: 0, len: 0, rights: 0, one_shot: false, region: 0 },
        windows: 0,
        by_element: false,
        claim: None,
    };

    /// It has this key.
    fn is(&self, key: u32) -> bool {
        self.state != State::Free && rule::holds(Rule::KeyMatches, self.key == key)
    }

    /// As the card's table has it, in the words from [`recv::KEY`] on. `asid`: the address space that its range lies in. A key
    /// that is stored anew is fresh: every change of a one-shot key makes it so.
    pub fn words(&self, asid: u8) -> [u32; 8] {
        let Binding { va, len, rights, one_shot, region } = self.binding;
        if self.state == State::Free {
            return [self.key, 0, 0, 0, 0, 0, 0, 0];
        }
        let scope = recv::KeyScope {
            domain: self.domain.into(),
            asid: asid.into(),
            live: 1,
            bound: u32::from(self.state == State::Bound),
            one_shot: one_shot.into(),
            rights: rights.into(),
        };
        let last = va.wrapping_add(len).wrapping_sub(1);
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let kept = u32::from(self.windows) | u32::from(self.by_element) << 30 | u32::from(self.region) << 31;
        [self.key, scope.word(), low(va), high(va), low(last), high(last), region, kept]
    }

    /// From such words. An operation that uses it is not among them.
    pub const fn from_words(words: &[u32; 8]) -> Self {
        let &[key, scope, va, va_high, last, last_high, region, kept] = words;
        let scope = recv::KeyScope::from_word(scope);
        let state = match (scope.live, scope.bound) {
            (0, _) => return Self { key, ..Self::NONE },
            (_, 0) => State::Allocated,
            _ => State::Bound,
        };
        let va = wide(va, va_high);
        let last = wide(last, last_high);
        let len = last.wrapping_add(1).wrapping_sub(va);
        let binding = Binding { va, len, rights: scope.rights as u8, one_shot: scope.one_shot != 0, region };
        Self {
            state,
            region: kept >> 31 != 0,
            key,
            domain: scope.domain as u16,
            binding,
            windows: kept as u16,
            by_element: kept >> 30 & 1 != 0,
            claim: None,
        }
    }
}

/// Where the places of a table are kept.
pub trait Store {
    /// What is in a place.
    fn load(&mut self, place: usize) -> Entry;
    /// Puts something into a place.
    fn store(&mut self, place: usize, entry: &Entry);
}

/// What is done with the keys of a table of `N` places (a power of two, up to [`MOST`]). All-zero when new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verbs<const N: usize> {
    /// The first ones, but for `used`, are the places that are free, each XORed with its index, so that all 0 has all of them.
    free: [u16; N],
    used: u32,
}

impl<const N: usize> Default for Verbs<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Verbs<N> {
    /// No keys.
    pub const fn new() -> Self {
        const { assert!(N.is_power_of_two() && N <= MOST) };
        Self { free: [0; N], used: 0 }
    }

    /// The only place where `key` can be.
    pub const fn place_of(key: u32) -> usize {
        (key >> TAG_BITS) as usize & (N - 1)
    }

    /// Keys that are not free.
    pub const fn in_use(&self) -> usize {
        self.used as usize
    }

    /// The key in the place of `key`, if that differs from it in nothing but what its owner may choose.
    ///
    /// # Errors
    /// [`KeyError::Unknown`].
    pub fn current(store: &mut impl Store, key: u32) -> Result<u32, KeyError> {
        Self::at_place(store, key).map(|entry| entry.key)
    }

    fn at_place(store: &mut impl Store, key: u32) -> Result<Entry, KeyError> {
        let same = |entry: &Entry| entry.state != State::Free && entry.key >> TAG_BITS == key >> TAG_BITS;
        Some(store.load(Self::place_of(key))).filter(same).ok_or(KeyError::Unknown)
    }

    fn find(store: &mut impl Store, key: u32) -> Result<Entry, KeyError> {
        Some(store.load(Self::place_of(key))).filter(|entry| entry.is(key)).ok_or(KeyError::Unknown)
    }

    /// Takes one of the free places, each as likely as the others, and gives it a key.
    fn take(&mut self, store: &mut impl Store, entropy: u64) -> Option<(usize, u32)> {
        let left = (N as u32).checked_sub(self.used)?;
        let last = left.checked_sub(1)?;
        let at = (((entropy >> 32) * u64::from(left)) >> 32) as u32;
        let moved = *self.free.get(last as usize)? ^ (last ^ at) as u16;
        let place = core::mem::replace(self.free.get_mut(at as usize)?, moved) ^ at as u16;
        self.used = self.used.saturating_add(1);
        let old = store.load(place.into()).key;
        let places = ((N - 1) as u32) << TAG_BITS;
        let drawn = entropy as u32 & !places | u32::from(place) << TAG_BITS;
        // Neither 0 nor the key that the place had last.
        let [key, other, third] = [drawn, drawn ^ 1 << 31, drawn ^ 1 << 30];
        let fits = |key: u32| key != 0 && key != old;
        let key = if fits(key) {
            key
        } else if fits(other) {
            other
        } else {
            third
        };
        Some((place.into(), key))
    }

    /// A place is free again.
    fn give_back(&mut self, store: &mut impl Store, place: usize, entry: &Entry) {
        store.store(place, &Entry { key: entry.key, ..Entry::NONE });
        let left = (N as u32).wrapping_sub(self.used);
        if let Some(slot) = self.free.get_mut(left as usize) {
            *slot = place as u16 ^ left as u16;
            self.used = self.used.saturating_sub(1);
        }
    }

    /// AllocateRKey: a new key of a protection domain, bound to nothing. `entropy` must be unpredictable for peers.
    ///
    /// # Errors
    /// [`KeyError::Full`].
    pub fn allocate(&mut self, store: &mut impl Store, domain: u16, entropy: u64) -> Result<u32, KeyError> {
        let (place, key) = self.take(store, entropy).ok_or(KeyError::Full)?;
        store.store(place, &Entry { state: State::Allocated, key, domain, ..Entry::NONE });
        Ok(key)
    }

    /// Registers a region: allocated and bound at once, and windows may be bound inside it.
    ///
    /// # Errors
    /// [`KeyError::Full`], [`KeyError::Invalid`].
    pub fn register(
        &mut self,
        store: &mut impl Store,
        domain: u16,
        (va, len): (u64, u64),
        rights: u8,
        entropy: u64,
    ) -> Result<u32, KeyError> {
        let binding = Binding { va, len, rights, one_shot: false, region: 0 };
        let key = self.allocate_bound(store, domain, binding, entropy)?;
        let entry = Self::find(store, key)?;
        store.store(Self::place_of(key), &Entry { region: true, ..entry });
        Ok(key)
    }

    /// A new key, allocated and bound at once; to nothing, as [`Verbs::bind`] has it.
    ///
    /// # Errors
    /// [`KeyError::Full`], [`KeyError::Invalid`]: nothing has changed.
    pub fn allocate_bound(
        &mut self,
        store: &mut impl Store,
        domain: u16,
        binding: Binding,
        entropy: u64,
    ) -> Result<u32, KeyError> {
        let key = self.allocate(store, domain, entropy)?;
        if let Err(error) = Self::bind(store, key, binding) {
            let _ = self.deallocate(store, key);
            return Err(error);
        }
        Ok(key)
    }

    /// DeallocateRKey, or the end of a region: the key is never valid again.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::InUse`] for a region with windows.
    pub fn deallocate(&mut self, store: &mut impl Store, key: u32) -> Result<(), KeyError> {
        let entry = Self::find(store, key)?;
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        self.give_back(store, Self::place_of(key), &entry);
        Self::leave(store, entry.binding.region);
        Ok(())
    }

    /// The key in `place`, if there is one, is never valid again, whatever is bound in it: its owner is gone, with all others
    /// of its address space.
    pub fn drop_place(&mut self, store: &mut impl Store, place: usize) {
        let entry = store.load(place);
        if entry.state != State::Free {
            self.give_back(store, place, &entry);
        }
    }

    /// A window in `region` is gone.
    fn leave(store: &mut impl Store, region: u32) {
        if region != 0
            && let Ok(mut entry) = Self::find(store, region)
        {
            entry.windows = entry.windows.saturating_sub(1);
            store.store(Self::place_of(region), &entry);
        }
    }

    /// BindRKey: the key gives access to `binding` from now on, and to nothing else; a one-shot key is fresh again. A
    /// binding of length 0 at address 0 unbinds (QP-9). The caller checks that the process may access the memory; the
    /// pager checks it again with each page.
    ///
    /// # Errors
    /// [`KeyError::Unknown`], [`KeyError::Invalid`], [`KeyError::InUse`] (a region with windows): nothing has changed.
    pub fn bind(store: &mut impl Store, key: u32, binding: Binding) -> Result<(), KeyError> {
        let entry = Self::find(store, key)?;
        Self::bind_as(store, Entry { by_element: false, ..entry }, key, binding)
    }

    /// Puts `entry` back into its place, bound anew, as `key`.
    fn bind_as(store: &mut impl Store, entry: Entry, key: u32, binding: Binding) -> Result<(), KeyError> {
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        let null = binding.va == 0 && binding.len == 0;
        if !null {
            let end = binding.va.checked_add(binding.len).ok_or(KeyError::Invalid)?;
            let whole = READ | WRITE | ATOMIC;
            if binding.len == 0 || binding.rights == 0 || binding.rights & !whole != 0 || entry.region {
                return Err(KeyError::Invalid);
            }
            if binding.region != 0 {
                let mut region = Self::find(store, binding.region)?;
                let within = region.region
                    && region.domain == entry.domain
                    && binding.va >= region.binding.va
                    && end <= region.binding.va + region.binding.len
                    && binding.rights & !region.binding.rights == 0;
                if !within || binding.region == entry.key || region.windows == u16::MAX {
                    return Err(KeyError::Invalid);
                }
                region.windows += 1;
                store.store(Self::place_of(binding.region), &region);
            }
        }
        let mut new = Entry { key, ..entry };
        if !rule::broken(Rule::BoundIsFresh) {
            new.claim = None;
        }
        new.state = if null { State::Allocated } else { State::Bound };
        if !(null && rule::broken(Rule::UnboundGivesNothing)) {
            new.binding = if null { Binding::default() } else { binding };
        }
        store.store(Self::place_of(key), &new);
        Self::leave(store, entry.binding.region);
        Ok(())
    }

    /// The BIND of a send queue (QP-4), as [`Verbs::bind`]: of a key of protection domain `domain`, whose lowest bits are those
    /// of `key` from now on.
    ///
    /// # Errors
    /// As [`Verbs::bind`]; [`KeyError::Unknown`] for a key of another domain, [`KeyError::Invalid`] for the key 0.
    pub fn bind_element(store: &mut impl Store, domain: u16, key: u32, binding: Binding) -> Result<(), KeyError> {
        let entry = Self::at_place(store, key)?;
        if !rule::holds(Rule::KeyOfDomain, entry.domain == domain) {
            return Err(KeyError::Unknown);
        }
        if key == 0 {
            return Err(KeyError::Invalid);
        }
        Self::bind_as(store, Entry { by_element: true, ..entry }, key, binding)
    }

    /// A peer of protection domain `domain` invalidates a key, by a SEND (IBTA 9.4.1.1.2): as [`Verbs::unbind`], but only of
    /// one that an element has bound. One that was bound otherwise is for its owner alone to end.
    ///
    /// # Errors
    /// As [`Verbs::bind`]; [`KeyError::Unknown`] for a key of another domain, [`KeyError::Invalid`] for one that is not bound
    /// by an element.
    pub fn invalidate(store: &mut impl Store, domain: u16, key: u32) -> Result<(), KeyError> {
        let entry = Self::find(store, key)?;
        if !rule::holds(Rule::KeyOfDomain, entry.domain == domain) {
            return Err(KeyError::Unknown);
        }
        if entry.state != State::Bound || !entry.by_element {
            return Err(KeyError::Invalid);
        }
        Self::bind_as(store, entry, key, Binding::default())
    }

    /// UnbindRKey: the key stays allocated and gives access to nothing.
    ///
    /// # Errors
    /// As [`Verbs::bind`].
    pub fn unbind(store: &mut impl Store, key: u32) -> Result<(), KeyError> {
        Self::bind(store, key, Binding::default())
    }

    /// Gives a bound key a new value, so that the old one opens nothing.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::InUse`] for a region with windows.
    pub fn renew(&mut self, store: &mut impl Store, key: u32, entropy: u64) -> Result<u32, KeyError> {
        let moved = Self::find(store, key)?;
        if moved.windows != 0 {
            return Err(KeyError::InUse);
        }
        // It may get its own place again.
        self.give_back(store, Self::place_of(key), &moved);
        let (place, key) = self.take(store, entropy).ok_or(KeyError::Full)?;
        store.store(place, &Entry { key, claim: None, ..moved });
        Ok(key)
    }

    /// Gives a key the lowest bits that its owner wants; the old key opens nothing any more.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::InUse`] for a region with windows; [`KeyError::Invalid`] where it would be 0.
    pub fn tag(store: &mut impl Store, key: u32, tag: u8) -> Result<u32, KeyError> {
        let mut entry = Self::find(store, key)?;
        if entry.windows != 0 {
            return Err(KeyError::InUse);
        }
        let key = key >> TAG_BITS << TAG_BITS | u32::from(tag);
        if key == 0 {
            return Err(KeyError::Invalid);
        }
        entry.key = key;
        entry.claim = None;
        store.store(Self::place_of(key), &entry);
        Ok(key)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entries<const N: usize>([Entry; N]);

impl<const N: usize> Store for Entries<N> {
    fn load(&mut self, place: usize) -> Entry {
        self.0.get(place).copied().unwrap_or_default()
    }

    fn store(&mut self, place: usize, entry: &Entry) {
        if let Some(to) = self.0.get_mut(place) {
            *to = *entry;
        }
    }
}

/// The keys of one card, `N` at most (a power of two, up to [`MOST`]), in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keys<const N: usize> {
    entries: Entries<N>,
    verbs: Verbs<N>,
}

impl<const N: usize> Default for Keys<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Keys<N> {
    /// No keys.
    pub const fn new() -> Self {
        Self { entries: Entries([Entry::NONE; N]), verbs: Verbs::new() }
    }

    fn find(&self, key: u32) -> Option<&Entry> {
        self.entries.0.get(Verbs::<N>::place_of(key)).filter(|entry| entry.is(key))
    }

    fn find_mut(&mut self, key: u32) -> Option<&mut Entry> {
        self.entries.0.get_mut(Verbs::<N>::place_of(key)).filter(|entry| entry.is(key))
    }

    /// As [`Verbs::allocate`].
    ///
    /// # Errors
    /// As it.
    pub fn allocate(&mut self, domain: u16, entropy: u64) -> Result<u32, KeyError> {
        self.verbs.allocate(&mut self.entries, domain, entropy)
    }

    /// As [`Verbs::register`].
    ///
    /// # Errors
    /// As it.
    pub fn register(&mut self, domain: u16, va: u64, len: u64, rights: u8, entropy: u64) -> Result<u32, KeyError> {
        self.verbs.register(&mut self.entries, domain, (va, len), rights, entropy)
    }

    /// As [`Verbs::deallocate`].
    ///
    /// # Errors
    /// As it.
    pub fn deallocate(&mut self, key: u32) -> Result<(), KeyError> {
        self.verbs.deallocate(&mut self.entries, key)
    }

    /// As [`Verbs::bind`].
    ///
    /// # Errors
    /// As it.
    pub fn bind(&mut self, key: u32, binding: Binding) -> Result<(), KeyError> {
        Verbs::<N>::bind(&mut self.entries, key, binding)
    }

    /// As [`Verbs::bind_element`].
    ///
    /// # Errors
    /// As it.
    pub fn bind_element(&mut self, domain: u16, key: u32, binding: Binding) -> Result<(), KeyError> {
        Verbs::<N>::bind_element(&mut self.entries, domain, key, binding)
    }

    /// As [`Verbs::invalidate`].
    ///
    /// # Errors
    /// As it.
    pub fn invalidate(&mut self, domain: u16, key: u32) -> Result<(), KeyError> {
        Verbs::<N>::invalidate(&mut self.entries, domain, key)
    }

    /// As [`Verbs::unbind`].
    ///
    /// # Errors
    /// As it.
    pub fn unbind(&mut self, key: u32) -> Result<(), KeyError> {
        Verbs::<N>::unbind(&mut self.entries, key)
    }

    /// As [`Verbs::renew`].
    ///
    /// # Errors
    /// As it.
    pub fn renew(&mut self, key: u32, entropy: u64) -> Result<u32, KeyError> {
        self.verbs.renew(&mut self.entries, key, entropy)
    }

    /// As [`Verbs::tag`].
    ///
    /// # Errors
    /// As it.
    pub fn tag(&mut self, key: u32, tag: u8) -> Result<u32, KeyError> {
        Verbs::<N>::tag(&mut self.entries, key, tag)
    }

    /// The key in a place as the card's table has it: see [`Entry::words`].
    pub fn words(&self, place: usize, asid: u8) -> [u32; 8] {
        self.entries.0.get(place).copied().unwrap_or_default().words(asid)
    }

    /// What `key` is bound to.
    pub fn binding(&self, key: u32) -> Option<&Binding> {
        self.find(key).filter(|entry| entry.state == State::Bound).map(|entry| &entry.binding)
    }

    /// Keys that are not free.
    pub fn in_use(&self) -> usize {
        self.verbs.in_use()
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
        self.check_for(domain, qpn, 0, access)
    }

    /// Likewise; to peers of this QP no key gives the rights `denies` (IBTA 11.2.5.2, the QP's "RDMA Access Control").
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check_for(&mut self, domain: u16, qpn: u32, denies: u8, access: &Access) -> Result<(), Refusal> {
        let Some(entry) = self.find_mut(access.remote.key) else {
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
        if !rule::holds(Rule::KeyGivesRight, binding.rights & !denies & right != 0) {
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
        if let Some(entry) = self.find_mut(key)
            && let Some(claim) = &mut entry.claim
            && claim.qpn == qpn
            && Psn::<24>::new(first).since(Psn::new(claim.first)) < claim.packets
        {
            claim.over = true;
        }
    }
}
