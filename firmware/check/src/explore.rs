// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explores every reachable state of a model, and keeps the graph of them.
//!
//! A model is a [`stateright::Model`]; [`Graph::explore`] walks it breadth first until the frontier is empty.
//! Safety (`always` properties) is looked at in each state. Progress needs the whole graph, and is why this
//! exists beside stateright's own search, whose `eventually` does not see a cycle: *from every reachable state
//! a finished one can be reached*. Where every step is taken at last if it stays possible (strong fairness),
//! that means that every run finishes. A run that breaks a safety property says nothing about progress: it counts
//! neither as finished nor as stuck. [`cross_check`] has stateright search the same model and compares.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use xxhash_rust::xxh3::xxh3_128;

/// Name of the property "from every reachable state a finished state can be reached".
pub const PROGRESS: &str = "no deadlock";

/// A model that says when it is finished.
pub trait Harness: Model<State: Clone + Eq + Hash + Debug, Action: Clone + PartialEq + Debug> {
    /// Which harness it is, whatever its bounds are.
    const NAME: &'static str;

    /// Everything that was to be done is done and at rest.
    fn finished(&self, state: &Self::State) -> bool;

    /// The bounds of the exploration, for people.
    fn bounds(&self) -> String;
}

/// Collects the bytes that a state hashes to.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.0)
    }
}

/// A 64-bit hash that is the same in every run.
pub fn stable_hash<T: Hash>(value: &T) -> u64 {
    let mut bytes = Bytes::default();
    value.hash(&mut bytes);
    bytes.finish()
}

/// A fingerprint is spread evenly already.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, _: &[u8]) {}

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What an exploration found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Outcome {
    /// Different states.
    pub states: u64,
    /// Steps between them.
    pub transitions: u64,
    /// Most steps on a shortest way from the start.
    pub depth: u32,
    /// States without a further step.
    pub terminal: u64,
    /// States that count as finished.
    pub finished: u64,
    /// The frontier became empty: there are no more states.
    pub complete: bool,
    /// Properties that do not hold, each with the shortest way there.
    pub violations: Vec<Violation>,
    /// `sometimes` properties that no state has: the exploration has not been where it should.
    pub never: Vec<&'static str>,
    /// Time that it took.
    #[serde(skip)]
    pub time: Duration,
}

impl Outcome {
    /// All states were seen, every property holds, and everything that should be possible is.
    pub fn good(&self) -> bool {
        self.complete && self.violations.is_empty() && self.never.is_empty()
    }

    /// The way to a violation of `property`.
    pub fn violation(&self, property: &str) -> Option<&Violation> {
        self.violations.iter().find(|v| v.property == property)
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Violation {
    /// Its name.
    pub property: &'static str,
    /// Steps from the start.
    pub steps: Vec<String>,
    /// The state reached.
    pub state: String,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most states; with more the outcome is not complete.
    pub states: u32,
    /// Stop at the first violation of this property.
    pub until: Option<&'static str>,
}

/// Ids of states are their places in the order of discovery.
type Ids = HashMap<u128, u32, BuildHasherDefault<Spread>>;

/// The graph of reachable states while it is explored.
struct Graph<'m, M: Harness> {
    model: &'m M,
    ids: Ids,
    /// State from which each was first reached.
    parents: Vec<u32>,
    /// Where each state's successors begin in `edges`; states are expanded in the order of their ids.
    starts: Vec<usize>,
    edges: Vec<u32>,
    finished: Vec<bool>,
    /// States in which a safety property fails, and those that were first reached through one.
    faulty: Vec<bool>,
    tainted: Vec<bool>,
}

fn fingerprint<T: Hash>(value: &T, buffer: &mut Bytes) -> u128 {
    buffer.0.clear();
    value.hash(buffer);
    xxh3_128(&buffer.0)
}

/// Explores `model` within `limits`.
pub fn explore<M: Harness>(model: &M, limits: Limits) -> Outcome {
    let start = Instant::now();
    let mut outcome = Graph::new(model).explore(limits);
    outcome.time = start.elapsed();
    outcome
}

impl<'m, M: Harness> Graph<'m, M> {
    fn new(model: &'m M) -> Self {
        let (ids, parents, starts, edges) = (Ids::default(), Vec::new(), Vec::new(), Vec::new());
        let (finished, faulty, tainted) = (Vec::new(), Vec::new(), Vec::new());
        Self { model, ids, parents, starts, edges, finished, faulty, tainted }
    }

    /// The id of a state and whether it is new.
    fn id(&mut self, print: u128, parent: u32) -> (u32, bool) {
        let next = self.parents.len() as u32;
        let id = *self.ids.entry(print).or_insert(next);
        if id == next {
            self.parents.push(parent);
        }
        (id, id == next)
    }

    fn explore(mut self, limits: Limits) -> Outcome {
        let properties: Vec<Property<M>> = self.model.properties();
        let mut seen = vec![false; properties.len()];
        let mut outcome = Outcome { complete: true, ..Outcome::default() };
        let mut buffer = Bytes::default();
        let (mut layer, mut next_layer) = (Vec::new(), Vec::new());
        for state in self.model.init_states() {
            let print = fingerprint(&state, &mut buffer);
            if self.id(print, u32::MAX).1 {
                layer.push(state);
            }
        }
        let mut actions = Vec::new();
        'search: while !layer.is_empty() {
            for state in layer.drain(..) {
                let id = self.starts.len() as u32;
                let mut faulty = false;
                for (property, seen) in properties.iter().zip(&mut seen) {
                    let sometimes = property.expectation == Expectation::Sometimes;
                    if (*seen && sometimes) || (property.condition)(self.model, &state) != sometimes {
                        continue;
                    }
                    faulty |= !sometimes;
                    if !sometimes && !*seen {
                        outcome.violations.push(self.violation(property.name, id, &self.parents));
                        if limits.until == Some(property.name) {
                            break 'search;
                        }
                    }
                    *seen = true;
                }
                let tainted = faulty || self.tainted.get(self.parents[id as usize] as usize).is_some_and(|t| *t);
                self.faulty.push(faulty);
                self.tainted.push(tainted);
                let finished = self.model.finished(&state);
                self.finished.push(finished);
                outcome.finished += finished as u64;
                self.starts.push(self.edges.len());
                self.model.actions(&state, &mut actions);
                for action in actions.drain(..) {
                    let Some(next) = self.model.next_state(&state, action) else { continue };
                    let print = fingerprint(&next, &mut buffer);
                    let (to, new) = self.id(print, id);
                    if to == id {
                        continue;
                    }
                    self.edges.push(to);
                    if new {
                        next_layer.push(next);
                    }
                }
                let terminal = self.starts.last() == Some(&self.edges.len());
                outcome.terminal += terminal as u64;
                if terminal && !finished && !tainted && outcome.violation(PROGRESS).is_none() {
                    outcome.violations.push(self.violation(PROGRESS, id, &self.parents));
                    if limits.until == Some(PROGRESS) {
                        break 'search;
                    }
                }
                if self.parents.len() as u32 >= limits.states {
                    outcome.complete = false;
                    break 'search;
                }
            }
            outcome.depth += 1;
            std::mem::swap(&mut layer, &mut next_layer);
        }
        outcome.depth = outcome.depth.saturating_sub(1);
        outcome.states = self.parents.len() as u64;
        outcome.transitions = self.edges.len() as u64;
        let stopped = limits.until.is_some_and(|p| outcome.violation(p).is_some());
        outcome.complete &= !stopped;
        if outcome.complete {
            if outcome.violation(PROGRESS).is_none()
                && let Some(violation) = self.stuck()
            {
                outcome.violations.push(violation);
            }
            outcome.never = properties
                .iter()
                .zip(&seen)
                .filter(|(p, seen)| p.expectation == Expectation::Sometimes && !**seen)
                .map(|(p, _)| p.name)
                .collect();
        }
        outcome
    }

    /// Successors of a state.
    fn next(&self, id: usize) -> &[u32] {
        &self.edges[self.starts[id]..self.starts.get(id + 1).copied().unwrap_or(self.edges.len())]
    }

    /// The way to the first state from which neither a finished nor a faulty one can be reached, through none that is
    /// faulty. Sweeps backwards until nothing changes.
    fn stuck(&self) -> Option<Violation> {
        let mut good: Vec<bool> = self.finished.iter().zip(&self.faulty).map(|(a, b)| *a || *b).collect();
        loop {
            let mut changed = false;
            for id in (0..good.len()).rev() {
                if !good[id] && self.next(id).iter().any(|&to| good[to as usize]) {
                    good[id] = true;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        if good.iter().all(|good| *good) {
            return None;
        }
        let (order, parents) = self.sound();
        let id = order.into_iter().find(|&id| !good[id as usize])?;
        Some(self.violation(PROGRESS, id, &parents))
    }

    /// The states that are reached without a fault, nearest first, and from where.
    fn sound(&self) -> (Vec<u32>, Vec<u32>) {
        let roots = (0..self.parents.len() as u32).filter(|&id| self.parents[id as usize] == u32::MAX);
        let mut order: Vec<u32> = roots.filter(|&id| !self.faulty[id as usize]).collect();
        let mut parents = vec![u32::MAX; self.parents.len()];
        let mut seen = self.faulty.clone();
        order.iter().for_each(|&id| seen[id as usize] = true);
        let mut at = 0;
        while let Some(&id) = order.get(at) {
            at += 1;
            for &to in self.next(id as usize) {
                if !std::mem::replace(&mut seen[to as usize], true) {
                    parents[to as usize] = id;
                    order.push(to);
                }
            }
        }
        (order, parents)
    }

    /// Walks again to state `id`, along the way that `parents` says.
    fn violation(&self, property: &'static str, id: u32, parents: &[u32]) -> Violation {
        let mut ids = vec![id];
        while let Some(&parent) = parents.get(ids[ids.len() - 1] as usize)
            && parent != u32::MAX
        {
            ids.push(parent);
        }
        ids.reverse();
        let mut buffer = Bytes::default();
        let mut of = |state: &M::State| self.ids.get(&fingerprint(state, &mut buffer)).copied();
        let mut steps = Vec::new();
        let mut at = self.model.init_states().into_iter().find(|s| of(s) == Some(ids[0]));
        for &id in &ids[1..] {
            let Some(state) = at.take() else { break };
            let mut actions = Vec::new();
            self.model.actions(&state, &mut actions);
            for action in actions {
                if let Some(next) = self.model.next_state(&state, action.clone())
                    && of(&next) == Some(id)
                {
                    steps.push(self.model.format_action(&action));
                    at = Some(next);
                    break;
                }
            }
        }
        let mut state = String::new();
        let _ = match &at {
            Some(at) => write!(state, "{at:#?}"),
            None => write!(state, "(lost)"),
        };
        Violation { property, steps, state }
    }
}

/// Has stateright's breadth-first search walk the same model with `threads` threads: (different states, names of
/// `always` properties that do not hold).
pub fn cross_check<M>(model: M, threads: usize) -> (u64, Vec<&'static str>)
where
    M: Harness + Send + Sync + 'static,
    M::State: Send + Sync + 'static,
    M::Action: Send + Sync,
{
    let failing: Vec<_> =
        model.properties().iter().filter(|p| p.expectation == Expectation::Always).map(|p| p.name).collect();
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AllFailures).spawn_bfs().join();
    let found = checker.discoveries();
    (checker.unique_state_count() as u64, failing.into_iter().filter(|name| found.contains_key(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers 0..10; from `n` to `n+1`, and around at `turn`. 9 is finished unless it cannot be reached.
    struct Numbers {
        turn: u8,
        trap: bool,
        /// The number that must not be.
        wrong: u8,
    }

    impl Model for Numbers {
        type State = u8;
        type Action = u8;

        fn init_states(&self) -> Vec<u8> {
            vec![0]
        }

        fn actions(&self, state: &u8, actions: &mut Vec<u8>) {
            if *state < 9 {
                actions.push(state + 1);
            }
            if *state == self.turn {
                actions.push(0);
                if self.trap {
                    actions.push(20);
                }
            }
            if *state >= 20 {
                actions.push(41 - state);
            }
        }

        fn next_state(&self, _: &u8, action: u8) -> Option<u8> {
            Some(action)
        }

        fn properties(&self) -> Vec<Property<Self>> {
            vec![Property::always("small", |m: &Self, &s| s != m.wrong), Property::sometimes("five", |_, &s| s == 5)]
        }
    }

    impl Harness for Numbers {
        const NAME: &'static str = "numbers";

        fn finished(&self, state: &u8) -> bool {
            *state == 9
        }

        fn bounds(&self) -> String {
            String::new()
        }
    }

    const ALL: Limits = Limits { states: 1000, until: None };

    #[test]
    fn a_violation_comes_with_the_shortest_way() {
        let outcome = explore(&Numbers { turn: 4, trap: false, wrong: 7 }, ALL);
        assert_eq!((outcome.states, outcome.terminal, outcome.depth), (10, 1, 9));
        assert_eq!(outcome.violations.len(), 1);
        assert_eq!(outcome.violations[0].steps, ["1", "2", "3", "4", "5", "6", "7"]);
        assert!(outcome.never.is_empty());
    }

    /// 20 and 21 go around for ever: no state is terminal but 9, and yet not all finish.
    #[test]
    fn a_cycle_without_a_way_out_is_seen() {
        let outcome = explore(&Numbers { turn: 4, trap: true, wrong: 7 }, ALL);
        assert_eq!(outcome.terminal, 1);
        assert_eq!(
            outcome.violation(PROGRESS).map(|v| v.steps.clone()),
            Some(["1", "2", "3", "4", "20"].map(String::from).to_vec())
        );
    }

    /// With 20 a fault, what comes after it does not count as a deadlock.
    #[test]
    fn a_fault_is_not_taken_for_a_deadlock() {
        let outcome = explore(&Numbers { turn: 4, trap: true, wrong: 20 }, ALL);
        assert!(outcome.violation("small").is_some());
        assert!(outcome.violation(PROGRESS).is_none());
        let outcome = explore(&Numbers { turn: 4, trap: true, wrong: 21 }, ALL);
        assert!(outcome.violation(PROGRESS).is_none());
        let outcome = explore(&Numbers { turn: 4, trap: true, wrong: 3 }, ALL);
        assert!(outcome.violation(PROGRESS).is_none());
    }

    #[test]
    fn stateright_sees_the_same_states() {
        let (states, violated) = cross_check(Numbers { turn: 4, trap: true, wrong: 7 }, 1);
        assert_eq!((states, violated), (12, vec!["small"]));
    }
}
