// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that engines of the receiving half share.

use berth_abi::rows::recv;

/// A command of the receiving half's engines (`STEP_*`); each does what concerns
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// A QP begins.
    Start = recv::STEP_START,
    /// It has ended.
    End = recv::STEP_END,
    /// Its state is read, and nothing changes.
    Query = recv::STEP_ASK,
    /// Nothing is announced, and no more memory asked for, until credits are void.
    Hold = recv::STEP_HOLD,
    /// No more memory is asked for, until credits are void or taken back.
    Stop = recv::STEP_STOP,
    /// Credits that are announced are void (decision 19); what was held goes on.
    Void = recv::STEP_VOID,
    /// Credits that are posted and not announced are taken back.
    Unpost = recv::STEP_UNPOST,
    /// What is asked for behind the first receive that waits goes back; from now on one is asked for at a time.
    Squeeze = recv::STEP_SQUEEZE,
    /// A receive's memory is withdrawn (VC-9).
    Mark = recv::STEP_MARK,
    /// A range of it is let go.
    LetGo = recv::STEP_LET_GO,
    /// No receive is asked for until `Squeeze`.
    Rest = recv::STEP_REST,
    /// Receives that are no credits go back to the program.
    Cancel = recv::STEP_CANCEL,
    /// Credits that are not used are void, and the peer never knew of them.
    Reclaim = recv::STEP_RECLAIM,
    /// When lists go is another.
    Lists = recv::STEP_LISTS,
    /// The maximum bandwidth is another.
    Cap = recv::STEP_CAP,
}
