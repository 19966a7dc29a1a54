// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's keys: RTL has the table, where it looks them up (QP-11). Firmware knows which places are free and whose the
//! others are, and writes a key for the driver, which says what of a process's memory it opens.

use super::hw::Hw;
use super::shared::Shared;
use crate::memory::keys::{Binding, Entry, KeyError, Store, Verbs};
use berth_abi::card::FIRST_QPN;
use berth_abi::message::{KeyBind, KeyFree, KeyRegister};
use berth_abi::rows::{HALF_RECEIVES, recv};
use berth_abi::status::{CMD_BUSY, CMD_FULL, CMD_INVALID, CMD_NOT_FOUND, CMD_OK};

/// Words of a key in RTL's table.
pub(super) const KEY_WORDS: u32 = 8;
/// Places that one step of a drop looks at.
pub(super) const DROP_LOOKS: usize = 256;
/// Keys that one step of a drop ends.
pub(super) const DROP_KEYS: usize = 16;

/// A `CMD_KEYS_DROP` that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Drop {
    /// Whose keys; 0: none is under way.
    asid: u8,
    cookie: u32,
    /// Place that is looked at next.
    place: u32,
}

/// What firmware knows of the keys. All-zero when new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Index<const KEYS: usize> {
    verbs: Verbs<KEYS>,
    /// Address space of each place's key; 0: none.
    owners: [u8; KEYS],
    drop: Drop,
}

impl<const KEYS: usize> Index<KEYS> {
    /// No keys.
    pub(crate) const fn new() -> Self {
        Self { verbs: Verbs::new(), owners: [0; KEYS], drop: Drop { asid: 0, cookie: 0, place: 0 } }
    }

    /// A drop is under way.
    pub(super) fn drops(&self) -> bool {
        self.drop.asid != 0
    }

    fn owner(&mut self, key: u32) -> Option<&mut u8> {
        self.owners.get_mut(Verbs::<KEYS>::place_of(key))
    }

    /// The key's place is the address space's.
    fn is_of(&mut self, key: u32, asid: u8) -> bool {
        asid != 0 && self.owner(key).is_some_and(|owner| *owner == asid)
    }
}

/// RTL's table. A key that is stored lies in the address space `asid`.
struct Table<'a, H: Hw> {
    asid: u8,
    sh: &'a mut Shared,
    hw: &'a mut H,
}

impl<H: Hw> Table<'_, H> {
    fn command(&mut self, opcode: u32, place: usize) {
        let command = recv::Command { opcode, argument: place as u32 }.word();
        // The table belongs to the card, so any row takes it.
        self.hw.fast_write(HALF_RECEIVES, FIRST_QPN, recv::COMMAND, command);
    }
}

impl<H: Hw> Store for Table<'_, H> {
    #[inline(never)]
    fn load(&mut self, place: usize) -> Entry {
        self.command(recv::CMD_KEY_LOAD, place);
        let mut words = [0; KEY_WORDS as usize];
        for (word, value) in (recv::KEY..).zip(&mut words) {
            self.sh.step();
            *value = self.hw.fast_read(HALF_RECEIVES, FIRST_QPN, word);
        }
        Entry::from_words(&words)
    }

    #[inline(never)]
    fn store(&mut self, place: usize, entry: &Entry) {
        for (word, value) in (recv::KEY..).zip(entry.words(self.asid)) {
            self.sh.step();
            self.hw.fast_write(HALF_RECEIVES, FIRST_QPN, word, value);
        }
        self.command(recv::CMD_KEY_STORE, place);
    }
}

fn status(error: KeyError) -> u32 {
    match error {
        KeyError::Full => CMD_FULL,
        KeyError::Unknown => CMD_NOT_FOUND,
        KeyError::Invalid => CMD_INVALID,
        KeyError::InUse => CMD_BUSY,
    }
}

impl<const KEYS: usize> Index<KEYS> {
    /// Makes a key, and gives it.
    pub(super) fn register<H: Hw>(&mut self, want: &KeyRegister, sh: &mut Shared, hw: &mut H) -> Result<u32, u32> {
        let &KeyRegister { asid, rights, domain, one_shot, va, len, entropy } = want;
        if asid == 0 || domain == 0 {
            return Err(CMD_INVALID);
        }
        let binding = Binding { va, len, rights, one_shot, region: 0 };
        let mut table = Table { asid, sh, hw };
        let key = self.verbs.allocate_bound(&mut table, domain, binding, entropy).map_err(status)?;
        if let Some(owner) = self.owner(key) {
            *owner = asid;
        }
        Ok(key)
    }

    /// Binds a key anew.
    pub(super) fn bind<H: Hw>(&mut self, want: &KeyBind, sh: &mut Shared, hw: &mut H) -> u32 {
        let &KeyBind { asid, rights, one_shot, va, len, key } = want;
        if !self.is_of(key, asid) {
            return CMD_NOT_FOUND;
        }
        let binding = Binding { va, len, rights, one_shot, region: 0 };
        let mut table = Table { asid, sh, hw };
        let current = Verbs::<KEYS>::current(&mut table, key);
        let bound = current.and_then(|key| Verbs::<KEYS>::bind(&mut table, key, binding));
        bound.map_or_else(status, |()| CMD_OK)
    }

    /// Does the BIND of a QP of address space `asid` and protection domain `domain`.
    ///
    /// # Errors
    /// [`KeyError`]: nothing has changed.
    pub(super) fn bind_element<H: Hw>(
        &mut self,
        (asid, domain): (u8, u16),
        key: u32,
        binding: Binding,
        sh: &mut Shared,
        hw: &mut H,
    ) -> Result<(), KeyError> {
        if !self.is_of(key, asid) {
            return Err(KeyError::Unknown);
        }
        Verbs::<KEYS>::bind_element(&mut Table { asid, sh, hw }, domain, key, binding)
    }

    /// A peer of a QP of address space `asid` and protection domain `domain` invalidates a key.
    ///
    /// # Errors
    /// [`KeyError`]: nothing has changed.
    pub(super) fn invalidate<H: Hw>(
        &mut self,
        (asid, domain): (u8, u16),
        key: u32,
        sh: &mut Shared,
        hw: &mut H,
    ) -> Result<(), KeyError> {
        if !self.is_of(key, asid) {
            return Err(KeyError::Unknown);
        }
        Verbs::<KEYS>::invalidate(&mut Table { asid, sh, hw }, domain, key)
    }

    /// Ends a key.
    pub(super) fn free<H: Hw>(&mut self, want: &KeyFree, sh: &mut Shared, hw: &mut H) -> u32 {
        let &KeyFree { asid, key } = want;
        if !self.is_of(key, asid) {
            return CMD_NOT_FOUND;
        }
        let mut table = Table { asid, sh, hw };
        let current = Verbs::<KEYS>::current(&mut table, key);
        let ended = current.and_then(|key| self.verbs.deallocate(&mut table, key));
        if ended.is_ok()
            && let Some(owner) = self.owner(key)
        {
            *owner = 0;
        }
        ended.map_or_else(status, |()| CMD_OK)
    }

    /// Begins to end all keys of an address space; no other command is taken until that is done.
    pub(super) fn drop_all(&mut self, asid: u8, cookie: u32) {
        self.drop = Drop { asid, cookie, place: 0 };
    }

    /// Goes on with that. True when it should be called again.
    pub(super) fn step<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        let Drop { asid, cookie, place } = self.drop;
        if asid == 0 {
            return false;
        }
        let mut place = place as usize;
        let mut ended = 0;
        for owner in self.owners.iter_mut().skip(place).take(DROP_LOOKS) {
            sh.step();
            if ended == DROP_KEYS {
                break;
            }
            if *owner == asid {
                *owner = 0;
                ended += 1;
                self.verbs.drop_place(&mut Table { asid, sh, hw }, place);
            }
            place += 1;
        }
        self.drop.place = place as u32;
        if place < KEYS {
            return true;
        }
        self.drop.asid = 0;
        sh.answer(cookie, CMD_OK, &[], hw);
        false
    }

    /// Keys that there are.
    pub(super) fn in_use(&self) -> usize {
        self.verbs.in_use()
    }
}
