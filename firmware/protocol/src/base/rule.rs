// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules that can be broken on purpose, so that a checker shows that it would see it.
//!
//! A guard that a property rests on is written `if rule::holds(Rule::X, condition)`.
//! Without the feature `mutations` that is `condition`, and costs nothing. With it a test
//! may choose one rule with `break_rule`; its guard then always lets pass.

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident,)*) => {
        /// A rule that a checked property rests on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        #[cfg(feature = "mutations")]
        impl Rule {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];
        }
    };
}

rules! {
    /// The builder makes no later list before data has landed in the last list's first buffer (CR-11).
    ProofBeforeList,
    /// The reader takes no list before a credit of the list before was used (CR-11).
    EarlyListRefused,
    /// A credit that the reader has already is not taken again from a repeated list (decision 6).
    CreditTakenOnce,
    /// The sender sends no more than the credit's size against one credit (CR-2).
    PieceWithinCredit,
    /// A use takes pages only within the budgets of process and card, a lasting one not the reserve (PC-3).
    PinsWithinBudget,
    /// A block is released only when none of its packets is in the transmitter (VC-3).
    ReleaseWhenSent,
    /// Only bytes that a credit covers are sent (CR-2, VC-2).
    SendWithinCover,
    /// An entry for another connection, or an earlier one of the same QP, is dropped (decision 6).
    EpochMatches,
    /// A list that was made before a recall is dropped after it (decision 19).
    RoundMatches,
    /// Credits behind a gap in the numbers are held until it is filled (decision 6).
    GapHeld,
    /// A list is repeated until its proof has come (decision 6).
    RepeatUntilProof,
    /// A message that is longer than its credit fails before anything has left (CR-17).
    MessageFitsCredit,
    /// Credits that would let a sender exceed its bandwidth are withheld (CR-10).
    CapWithholds,
    /// A requester has no more packets on their way than its window (QP-7).
    WindowLimit,
    /// A responder takes no packet twice (QP-7).
    DuplicateRefused,
    /// Without selective repeat a responder takes packets in order only (QP-7).
    InOrderOnly,
    /// Under selective repeat no WRITE overtakes one that it overlaps (QP-3).
    WriteOrder,
    /// A fenced message waits for READs and atomics before it (QP-3).
    Fence,
    /// A message completes when all of it is acknowledged (QP-7).
    CompleteAcknowledged,
    /// A responder carries out a repeated atomic once (QP-3).
    AtomicOnce,
    /// A piece is not longer than its credit (CR-2).
    WithinCredit,
    /// A READ or atomic waits until all before it is in its place (QP-3).
    ReadAfterWrite,
    /// A key gives access only if all of it matches (QP-11).
    KeyMatches,
    /// A key gives QPs of other protection domains nothing (QP-11).
    KeyOfDomain,
    /// A key gives access to the bytes of its range only (QP-11).
    KeyInRange,
    /// A key gives the rights that it was bound with only (QP-11).
    KeyGivesRight,
    /// A one-shot key serves one operation (QP-12).
    OneShotOnce,
    /// Data for a receive whose memory was withdrawn is refused (decision 17).
    WithdrawnIsRefused,
    /// The card fills anonymous memory up to the indicate window only (IW-2).
    IndicateWindow,
    /// A handed-over named buffer is filled by stream offset, whatever was in flight meanwhile (IW-4, IW-7).
    NamedByOffset,
    /// A named buffer that the card returned is complete when what came before it is copied (IW-7).
    CopyBeforeReturn,
    /// An answer about larger buffers counts only when flags and checksum are right (BE-4).
    AnswerWhole,
    /// Between a request for larger buffers and its answer nothing else is sent (BE-3).
    QuietWhileGrowing,
    /// A page that has no use and whose linger time is over is unpinned (PC-3).
    UnusedUnpinned,
    /// A receive completes after its pages were let go (PC-1).
    ReleasedBeforeComplete,
    /// A key that was unbound gives access to nothing (QP-9).
    UnboundGivesNothing,
    /// A one-shot key that is bound again is fresh again (QP-12).
    BoundIsFresh,
    /// On an indicated connection only bytes that can be delivered without a word of the host are announced (IW-2, decision 12).
    CreditIsCertain,
    /// Bytes that were acknowledged make room in the indicate window (IW-3).
    AcknowledgedReopens,
    /// A packet that comes again is acknowledged again (QP-7).
    RepeatAcknowledged,
    /// An answer about packets that are acknowledged already is no news and no fault (QP-7).
    OldAnswerIgnored,
    /// A WRITE with immediate is taken only if there is a receive for it (QP-3).
    ImmediateNeedsReceive,
    /// Where no answer comes, one packet goes again at a time, not the window (QP-7).
    ProbeAlone,
    /// After its retries an end that is not answered gives up (QP-7).
    RetriesEnd,
    /// A control message that comes again is acknowledged and not taken (CR-12a).
    ControlOnce,
    /// A QP is free only when its rows hold nothing and do nothing (decision 21).
    HeldKeepsQp,
    /// A revocation is answered when both halves of each row have let go (decision 17).
    RevokedWhenClear,
    /// A command is answered once.
    AnsweredOnce,
}

#[cfg(feature = "mutations")]
impl Rule {
    /// Rules that no explored property rests on: they guard against a peer that breaks the protocol, or what the model
    /// checker does not explore. `tests/broken_rules.rs` shows that each makes a difference; `berth-check` breaks the others.
    pub const ALONE: &[Self] = &[
        Self::EarlyListRefused,
        Self::MessageFitsCredit,
        Self::CapWithholds,
        Self::SendWithinCover,
        Self::WithdrawnIsRefused,
        Self::AnswerWhole,
        Self::QuietWhileGrowing,
    ];

    /// What [`BROKEN`] holds while it is broken.
    const fn code(self) -> u8 {
        self as u8 + 1
    }
}

#[cfg(feature = "mutations")]
static BROKEN: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Whether the guard `condition` of `rule` lets pass: `condition`, or always while the rule is broken.
#[inline(always)]
pub fn holds(rule: Rule, condition: bool) -> bool {
    condition || broken(rule)
}

/// Whether `rule` is broken on purpose.
#[cfg(feature = "mutations")]
pub fn broken(rule: Rule) -> bool {
    BROKEN.load(core::sync::atomic::Ordering::Relaxed) == rule.code()
}

/// Whether `rule` is broken on purpose: never in this build.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn broken(_rule: Rule) -> bool {
    false
}

/// Breaks `rule` in the whole process, or none with `None`. Tests that use it must not run side by side.
#[cfg(feature = "mutations")]
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.store(rule.map_or(0, Rule::code), core::sync::atomic::Ordering::Relaxed);
}
