// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of RKeys: several peers use one one-shot key, packets of their operations come in any order and again;
//! somebody guesses. The key is bound anew, and given a new value, in between.

use berth_protocol::memory::keys::{Binding, Keys, READ, WRITE};
use berth_protocol::rc::{Access, Remote, Right};
use stateright::{Model, Property};

use crate::explore::Harness;

/// An operation that a peer tries.
#[derive(Clone, Copy, Debug)]
struct Operation {
    qpn: u32,
    first: u32,
    packets: u32,
    right: Right,
    va: u64,
    len: u32,
    again: bool,
}

/// A peer's two WRITEs, another peer's READ that begins with the same PSN, and its repetition.
const OPERATIONS: &[Operation] = &[
    Operation { qpn: 1, first: 0, packets: 2, right: Right::Write, va: 8, len: 4, again: false },
    Operation { qpn: 1, first: 2, packets: 1, right: Right::Write, va: 8, len: 2, again: false },
    Operation { qpn: 2, first: 0, packets: 1, right: Right::Read, va: 8, len: 4, again: false },
    Operation { qpn: 2, first: 0, packets: 1, right: Right::Read, va: 8, len: 4, again: true },
    // A WRITE of the first peer after its PSNs have gone all the way around.
    Operation { qpn: 1, first: 0xff_ffff, packets: 1, right: Right::Write, va: 10, len: 1, again: false },
];

/// Operations that must never be admitted: too far, too early, around the end of all addresses, the wrong right.
const WRONG: &[(u64, u32, Right)] = &[
    (8, 5, Right::Write),
    (7, 1, Right::Read),
    (12, 1, Right::Write),
    (u64::MAX, 2, Right::Read),
    (8, 8, Right::Atomic),
    (8, 4, Right::Atomic),
];

/// The table and what has been done with the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    keys: Keys<2>,
    key: u32,
    /// What the key was before.
    old: Option<u32>,
    /// Operations admitted since the key was bound last, by bit; a repetition counts as its operation.
    admitted: u8,
    ended: u8,
    binds: u8,
    bound: bool,
    /// A guess was admitted.
    guessed: bool,
    refused: bool,
}

/// Steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A packet of an operation is checked.
    Access(usize),
    /// An operation is over.
    End(usize),
    /// A wrong access with the right key.
    Wrong(usize),
    /// A right access with a wrong key: with other bits, at another place, or with the old value.
    Guess(u32),
    /// A right access by a QP of another protection domain.
    Stranger,
    /// The key is bound again.
    Bind,
    /// The key is unbound.
    Unbind,
    /// The key gets a new value.
    Renew,
}

/// The model.
#[derive(Clone, Debug)]
pub struct OneShot {
    /// Times that the key is bound or renewed.
    pub binds: u8,
}

const DOMAIN: u16 = 1;
const BINDING: Binding = Binding { va: 8, len: 4, rights: READ | WRITE, one_shot: true, region: 0 };

impl OneShot {
    /// A repetition is the operation that it repeats.
    const fn bit(i: usize) -> u8 {
        1 << if i == 3 { 2 } else { i }
    }

    fn check(s: &mut State, domain: u16, key: u32, o: &Operation) -> bool {
        let remote = Remote { va: o.va, key, len: o.len };
        let access = Access { remote, right: o.right, first: o.first, packets: o.packets, again: o.again };
        s.keys.check(domain, o.qpn, &access).is_ok()
    }
}

impl Model for OneShot {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut keys = Keys::new();
        let key = keys.allocate(DOMAIN, 0x1234).unwrap_or(0);
        let bound = keys.bind(key, BINDING).is_ok();
        vec![State { keys, key, old: None, admitted: 0, ended: 0, binds: 0, bound, guessed: false, refused: false }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        for i in 0..OPERATIONS.len() {
            actions.push(Action::Access(i));
            if s.admitted & Self::bit(i) != 0 && s.ended & Self::bit(i) == 0 {
                actions.push(Action::End(i));
            }
        }
        actions.extend((0..WRONG.len()).map(Action::Wrong));
        actions.extend([s.key ^ 0x100, s.key ^ 0x8000_0000, s.key ^ 1, s.key ^ 2, 0].map(Action::Guess));
        actions.extend(s.old.map(Action::Guess));
        actions.push(Action::Stranger);
        if s.binds < self.binds {
            actions.extend([Action::Bind, Action::Unbind, Action::Renew]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut s = state.clone();
        match action {
            Action::Access(i) => match Self::check(&mut s, DOMAIN, state.key, &OPERATIONS[i]) {
                true => s.admitted |= Self::bit(i),
                false => s.refused = true,
            },
            Action::End(i) => {
                s.ended |= Self::bit(i);
                s.keys.used(OPERATIONS[i].qpn, s.key, OPERATIONS[i].first);
            }
            Action::Wrong(i) => {
                let (va, len, right) = WRONG[i];
                let operation = Operation { va, len, right, ..OPERATIONS[0] };
                s.guessed |= Self::check(&mut s, DOMAIN, state.key, &operation);
            }
            Action::Guess(key) => s.guessed |= Self::check(&mut s, DOMAIN, key, &OPERATIONS[0]),
            Action::Stranger => s.guessed |= Self::check(&mut s, DOMAIN + 1, state.key, &OPERATIONS[0]),
            Action::Bind => {
                s.binds += 1;
                s.bound = s.keys.bind(s.key, BINDING).is_ok();
                (s.admitted, s.ended) = (0, 0);
            }
            Action::Unbind => {
                s.binds += 1;
                s.bound = false;
                s.keys.unbind(s.key).ok()?;
                (s.admitted, s.ended) = (0, 0);
            }
            Action::Renew => {
                s.binds += 1;
                s.old = Some(s.key);
                s.key = s.keys.renew(s.key, 0x5678 + s.binds as u64).ok()?;
                (s.admitted, s.ended) = (0, 0);
            }
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one-shot keys are used at most once", |_, s: &State| s.admitted.count_ones() <= 1),
            Property::always("an unbound key gives nothing", |_, s: &State| s.bound || s.admitted == 0),
            Property::always("no access without key, range and right", |_, s: &State| !s.guessed),
            Property::sometimes("used, bound anew, and used again", |_, s: &State| s.binds > 0 && s.admitted != 0),
            Property::sometimes("refused", |_, s: &State| s.refused),
        ]
    }
}

impl Harness for OneShot {
    const NAME: &'static str = "keys";

    /// An operation can go through, or the key is unbound for good.
    fn finished(&self, s: &State) -> bool {
        s.admitted != 0 || (!s.bound && s.binds == self.binds)
    }

    fn bounds(&self) -> String {
        format!(
            "a table of 2 keys; {} operations of 2 peers in any order and again, {} wrong accesses, 6 guesses, a QP of another domain; the key bound, unbound or renewed {} times",
            OPERATIONS.len(),
            WRONG.len(),
            self.binds,
        )
    }
}
