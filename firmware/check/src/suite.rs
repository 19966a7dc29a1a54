// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is checked: every harness with its bounds, and every rule whose breach must be seen.

use std::collections::{BTreeSet, HashSet};

use berth_protocol::base::rule::Rule;
use berth_protocol::credit::list::Trigger;
use berth_protocol::credit::policy::Kind;
use berth_protocol::memory::context::{Again, First, Policy};
use stateright::Expectation;

use crate::cards::{self, Cards, Goal};
use crate::credits::Credits;
use crate::ends::Ends;
use crate::explore::{Harness, Limits, Outcome, PROGRESS, cross_check, explore};
use crate::indicate::Indicate;
use crate::keys::OneShot;
use crate::lists::Lists;
use crate::transport::{Do, Transport};

/// A harness with a name, whatever its states are.
pub trait Check: Send + Sync {
    /// Short name, for the command line.
    fn name(&self) -> &'static str;
    /// The harness that it is a set of bounds of.
    fn harness(&self) -> &'static str;
    /// Its bounds, for people.
    fn bounds(&self) -> String;
    /// Names of the properties that must hold.
    fn properties(&self) -> Vec<&'static str>;
    /// Explores it.
    fn explore(&self, limits: Limits) -> Outcome;
    /// Has stateright search it: (states, properties that do not hold).
    fn cross_check(&self, threads: usize) -> (u64, Vec<&'static str>);
}

struct Named<M>(&'static str, M);

impl<M> Check for Named<M>
where
    M: Harness + Clone + Send + Sync + 'static,
    M::State: Send + Sync + 'static,
    M::Action: Send + Sync,
{
    fn name(&self) -> &'static str {
        self.0
    }

    fn harness(&self) -> &'static str {
        M::NAME
    }

    fn bounds(&self) -> String {
        self.1.bounds()
    }

    fn properties(&self) -> Vec<&'static str> {
        let always = self.1.properties().into_iter().filter(|p| p.expectation == Expectation::Always).map(|p| p.name);
        always.chain([PROGRESS]).collect()
    }

    fn explore(&self, limits: Limits) -> Outcome {
        explore(&self.1, limits)
    }

    fn cross_check(&self, threads: usize) -> (u64, Vec<&'static str>) {
        cross_check(self.1.clone(), threads)
    }
}

/// A rule that is broken, and the property of a check that must fail then.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// The rule.
    pub rule: Rule,
    /// Name of the check that sees it.
    pub check: &'static str,
    /// The property that fails.
    pub property: &'static str,
}

/// All checks, with the bounds of every change or the larger ones.
pub fn checks(long: bool) -> Vec<Box<dyn Check>> {
    fn check<M>(name: &'static str, model: M) -> Box<dyn Check>
    where
        M: Harness + Clone + Send + Sync + 'static,
        M::State: Send + Sync + 'static,
        M::Action: Send + Sync,
    {
        Box::new(Named(name, model))
    }
    let credits = |trigger| Credits::<4, 3, 4> {
        trigger,
        posted: 4,
        sizes: &[1, 2],
        sends: if long { &[1, 3] } else { &[3] },
        lossy: false,
        lists: 2,
    };
    let rc = Transport::<3, 4, 3, 1> {
        selective: true,
        writes_in_order: false,
        script: &[Do::Send(1), Do::Send(2)],
        total: if long { 6 } else { 4 },
        psn: 6,
        air: if long { (2, 2) } else { (2, 1) },
        dma: false,
        rnr: false,
        receives: u32::MAX,
        reorder: 1,
        window: 4,
        credit: 2,
        eager: true,
    };
    let back = Transport { selective: false, ..rc.clone() };
    let memory = Transport {
        script: &[Do::Write(1), Do::Send(1), Do::Read(1), Do::Add, Do::Fenced, Do::Write(2)],
        window: 3,
        dma: true,
        total: if long { 8 } else { 6 },
        ..rc.clone()
    };
    let writes = Transport { script: &[Do::Write(1), Do::Write(2)], total: 3, ..memory.clone() };
    // More packets than there are PSNs.
    let turn = Transport { script: &[Do::Send(1)], total: 10, window: 2, ..rc.clone() };
    let lossy = |trigger| Credits { lossy: true, posted: if long { 4 } else { 3 }, ..credits(trigger) };
    let indicate = Indicate {
        window: 2,
        bytes: if long { 6 } else { 5 },
        posts: if long { &[(3, true), (1, false), (4, false)] } else { &[(3, true), (1, false)] },
        hold: 0,
        ahead: if long { 2 } else { 1 },
    };
    let ends = Ends {
        budget: (3, 1),
        receives: &[2, 1],
        sends: &[3],
        block: 1,
        air: if long { (2, 1, 1) } else { (1, 1, 1) },
        policy: Ends::PIN,
        recalls: 0,
    };
    let lists = Lists::<4, 2> {
        policy: Kind::First,
        part: 1,
        receives: &[2, 1, 2, 1],
        bytes: if long { 5 } else { 4 },
        air: if long { (3, 1) } else { (2, 1) },
        events: (0, 0, 1),
    };
    let cards = Cards {
        scripts: [&[cards::Do::Connect, cards::Do::Destroy], &[cards::Do::Destroy]],
        connected: false,
        holds: false,
        receives: 0,
        packets: 0,
        faults: if long { (1, 1, 0) } else { (1, 0, 0) },
        goal: Goal::Answered,
    };
    let joined = Cards { scripts: [&[], &[]], connected: true, ..cards.clone() };
    vec![
        check("cards-part", cards.clone()),
        check(
            "cards-join",
            Cards { scripts: [&[cards::Do::Connect], &[]], faults: (1, 1, 1), goal: Goal::Joined, ..cards },
        ),
        check(
            "cards-recall",
            Cards {
                scripts: [&[], &[cards::Do::Press]],
                receives: 3,
                faults: if long { (2, 1, 1) } else { (1, 1, 0) },
                goal: Goal::Landed,
                ..joined.clone()
            },
        ),
        check(
            "cards-give-back",
            Cards {
                scripts: [&[], &[cards::Do::Recall]],
                receives: 2,
                faults: if long { (2, 1, 1) } else { (1, 1, 0) },
                goal: Goal::Landed,
                ..joined.clone()
            },
        ),
        check(
            "cards-end",
            Cards {
                scripts: [&[cards::Do::Destroy], &[cards::Do::Revoke, cards::Do::Disconnect, cards::Do::Destroy]],
                holds: true,
                faults: (1, 1, 1),
                ..joined.clone()
            },
        ),
        check("cards-silent", Cards { packets: 3, faults: (2, 2, 2), goal: Goal::Told, ..joined }),
        check("lists", lists.clone()),
        check("lists-recall", Lists { events: (1, 0, 0), ..lists.clone() }),
        check("lists-reconnect", Lists { events: (0, 1, 0), ..lists.clone() }),
        check("lists-last", Lists { policy: Kind::Last, part: 2, events: (0, 0, 0), ..lists }),
        check("ends", ends.clone()),
        check("ends-recall", Ends { recalls: 1, ..ends.clone() }),
        check("ends-copy", Ends { policy: Policy { first: First::Pin, again: Again::Copy }, ..ends.clone() }),
        check("ends-whole", Ends { policy: Policy { first: First::All, again: Again::Pin }, budget: (6, 1), ..ends }),
        check("keys", OneShot { binds: if long { 4 } else { 3 } }),
        check("indicate", indicate.clone()),
        check("indicate-hold", Indicate { hold: 2, ..indicate }),
        check("credits-first", credits(Trigger::First)),
        check("credits-last", credits(Trigger::Last)),
        check("credits-between", credits(Trigger::Between(1))),
        check("lists-lossy", lossy(Trigger::First)),
        check("rc-selective", rc.clone()),
        check("rc-dma", Transport { dma: true, total: if long { 4 } else { 3 }, air: (2, 1), ..rc.clone() }),
        check("rc-turn", turn.clone()),
        check("rc-turn-go-back", Transport { selective: false, ..turn }),
        check("rc-rogue", Transport { credit: 1, total: 2, ..rc.clone() }),
        check(
            "rc-rogue-immediate",
            Transport { script: &[Do::Send(1), Do::WriteImm(2)], receives: 1, total: 2, ..rc.clone() },
        ),
        check("rc-go-back", back.clone()),
        check("rc-memory", memory.clone()),
        check(
            "rc-immediate",
            Transport { script: &[Do::WriteImm(1), Do::Send(1), Do::WriteImm(2)], total: 4, ..memory.clone() },
        ),
        check("rc-writes", writes.clone()),
        check("rc-writes-in-order", Transport { writes_in_order: true, ..writes }),
        check("rc-memory-go-back", Transport { selective: false, ..memory }),
        check("rc-rnr", Transport { rnr: true, total: if long { 4 } else { 3 }, air: (2, 1), ..back }),
    ]
}

/// The properties of each harness that no mutation is to show able to fail: (harness, property).
pub fn unguarded(checks: &[Box<dyn Check>], mutations: &[Mutation]) -> Vec<(&'static str, &'static str)> {
    let harness = |name| checks.iter().find(|c| c.name() == name).map(|c| c.harness());
    let guarded: HashSet<_> = mutations.iter().filter_map(|m| Some((harness(m.check)?, m.property))).collect();
    let all = checks.iter().flat_map(|c| c.properties().into_iter().map(|p| (c.harness(), p)));
    let missing: BTreeSet<_> = all.filter(|pair| !guarded.contains(pair)).collect();
    missing.into_iter().collect()
}

/// Rules that neither a mutation nor a test of their own breaks.
pub fn unbroken(mutations: &[Mutation]) -> Vec<Rule> {
    let broken = |rule: &&Rule| Rule::ALONE.contains(rule) || mutations.iter().any(|m| m.rule == **rule);
    Rule::ALL.iter().filter(|rule| !broken(rule)).copied().collect()
}

/// All mutations: at least one for each property of each harness.
pub fn mutations() -> Vec<Mutation> {
    let list = |rule, check, property| Mutation { rule, check, property };
    vec![
        list(Rule::AnsweredOnce, "cards-end", "commands are answered, and ends told, once"),
        list(Rule::RoundMatches, "cards-recall", "no honest end breaks"),
        list(Rule::RoundMatches, "cards-recall", "the sender has only credits that are out"),
        list(Rule::HeldKeepsQp, "cards-end", "a QP is free when its rows are"),
        list(Rule::RevokedWhenClear, "cards-end", "what is revoked is let go"),
        list(Rule::RetriesEnd, "cards-silent", "a peer is given up after its retries"),
        list(Rule::ControlOnce, "cards-recall", PROGRESS),
        list(Rule::ProofBeforeList, "credits-first", "no list without a free credit buffer"),
        list(Rule::CreditTakenOnce, "lists-lossy", "no data without credit"),
        list(Rule::CreditTakenOnce, "lists-lossy", "exactly once, in order"),
        list(Rule::CreditTakenOnce, "lists-lossy", "the sender never has more credits than were announced"),
        list(Rule::PieceWithinCredit, "credits-first", "no data without credit"),
        list(Rule::ProofBeforeList, "credits-first", "no honest list is refused"),
        list(Rule::RepeatUntilProof, "lists-lossy", PROGRESS),
        list(Rule::PinsWithinBudget, "ends", "pinned within the budget"),
        list(Rule::ReleasedBeforeComplete, "ends-whole", "nothing pinned at rest"),
        list(Rule::UnusedUnpinned, "ends", "page accounting agrees"),
        list(Rule::ReleaseWhenSent, "ends", "the card touches only what it holds"),
        list(Rule::DuplicateRefused, "ends", "exactly once, in order"),
        list(Rule::ProofBeforeList, "ends-whole", "no list without a free credit buffer"),
        list(Rule::ProofBeforeList, "ends-whole", "no honest end breaks"),
        list(Rule::RepeatUntilProof, "ends", PROGRESS),
        list(Rule::OneShotOnce, "keys", "one-shot keys are used at most once"),
        list(Rule::UnboundGivesNothing, "keys", "an unbound key gives nothing"),
        list(Rule::BoundIsFresh, "keys", PROGRESS),
        list(Rule::KeyMatches, "keys", "no access without key, range and right"),
        list(Rule::KeyOfDomain, "keys", "no access without key, range and right"),
        list(Rule::KeyInRange, "keys", "no access without key, range and right"),
        list(Rule::KeyGivesRight, "keys", "no access without key, range and right"),
        list(Rule::IndicateWindow, "indicate-hold", "never more delivered than the window"),
        list(Rule::NamedByOffset, "indicate", "bytes never lost or repeated, and in order"),
        list(Rule::CopyBeforeReturn, "indicate", "bytes never lost or repeated, and in order"),
        list(Rule::CreditIsCertain, "indicate", "card and driver understand each other"),
        list(Rule::AcknowledgedReopens, "indicate", PROGRESS),
        list(Rule::GapHeld, "lists", "no data without credit"),
        list(Rule::ProofBeforeList, "lists", "no list without a free credit buffer"),
        list(Rule::ProofBeforeList, "lists", "no honest entry is refused"),
        list(Rule::RepeatUntilProof, "lists", PROGRESS),
        list(Rule::EpochMatches, "lists-reconnect", "no data without credit"),
        list(Rule::RoundMatches, "lists-recall", "no data without credit"),
        list(Rule::WithinCredit, "rc-rogue", "no receive is used that is not there"),
        list(Rule::ImmediateNeedsReceive, "rc-rogue-immediate", "no receive is used that is not there"),
        list(Rule::OldAnswerIgnored, "rc-memory", "no honest peer is refused"),
        list(Rule::RepeatAcknowledged, "rc-turn", PROGRESS),
        list(Rule::ProbeAlone, "rc-selective", "a time-out sends one packet"),
        list(Rule::WindowLimit, "rc-turn", "no more on its way than agreed"),
        list(Rule::DuplicateRefused, "rc-selective", "exactly once"),
        list(Rule::InOrderOnly, "rc-go-back", "every byte in its place"),
        list(Rule::CompleteAcknowledged, "rc-go-back", "complete only when all of it is there, in order"),
        list(Rule::WriteOrder, "rc-writes", "READs and atomics see what was before them"),
        list(Rule::Fence, "rc-memory", "complete only when all of it is there, in order"),
        list(Rule::AtomicOnce, "rc-memory", "exactly once"),
        list(Rule::ReadAfterWrite, "rc-memory", "READs and atomics see what was before them"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_of_each_harness_has_a_mutation() {
        for long in [false, true] {
            assert_eq!(unguarded(&checks(long), &mutations()), []);
        }
    }

    #[test]
    fn each_rule_is_broken_somewhere() {
        assert_eq!(unbroken(&mutations()), []);
    }

    #[test]
    fn a_mutation_names_a_check_and_a_property_of_it() {
        let checks = checks(false);
        for m in mutations() {
            let check = checks.iter().find(|c| c.name() == m.check);
            assert!(check.is_some_and(|c| c.properties().contains(&m.property)), "{m:?}");
        }
    }

    #[test]
    fn a_property_without_a_mutation_is_found() {
        let mut mutations = mutations();
        mutations.retain(|m| m.property != "nothing pinned at rest");
        assert_eq!(unguarded(&checks(false), &mutations), [("ends", "nothing pinned at rest")]);
    }
}
