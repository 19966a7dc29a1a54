// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that engines of the receiving half share.

/// A command of the receiving half's engines (`X_*` of `berth_fp_builder` and `berth_fp_grant`); each does what concerns
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A QP begins.
    Start = 0,
    /// It has ended.
    End = 1,
    /// Its state is read, and nothing changes.
    Query = 2,
    /// Nothing is announced, and no more memory asked for, until credits are void.
    Hold = 3,
    /// No more memory is asked for, until credits are void or taken back.
    Stop = 4,
    /// Credits that are announced are void (decision 19); what was held goes on.
    Void = 5,
    /// Credits that are posted and not announced are taken back.
    Unpost = 6,
    /// What is asked for behind the first receive that waits goes back; from now on one is asked for at a time.
    Squeeze = 7,
    /// A receive's memory is withdrawn (VC-9).
    Mark = 8,
    /// A range of it is let go.
    LetGo = 9,
    /// No receive is asked for until `Squeeze`.
    Rest = 11,
}
