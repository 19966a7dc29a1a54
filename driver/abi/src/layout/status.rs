// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Status values: firmware state, completions, commands, QP errors.

table! {
    /// Firmware states (`HOST_STATUS`), as (name, value, text).
    FW_TABLE: u32 {
    /// The core is held in reset; an image may be loaded.
    FW_RESET = 0;
    /// An image is being loaded.
    FW_LOADING = 1;
    /// The image was refused; `HOST_FW_CODE` says why (`FW_BAD_*`).
    FW_REFUSED = 2;
    /// The core has been started.
    FW_STARTED = 3;
    /// The firmware is up and serves commands.
    FW_RUNNING = 4;
    /// The firmware has panicked; the text stands in the statistics RAM at `STATS_PANIC`.
    FW_PANIC = 5;
    /// Image refused: wrong magic.
    FW_BAD_MAGIC = 1;
    /// Image refused: built for another ABI version.
    FW_BAD_ABI = 2;
    /// Image refused: length zero, not a multiple of 4, or above the RAM's size.
    FW_BAD_LENGTH = 3;
    /// Image refused: fewer or more words were loaded than the header says.
    FW_TRUNCATED = 4;
    /// Image refused: checksum wrong.
    FW_BAD_CRC = 5;
    /// Boot refused: the core runs already; reset the card first.
    FW_BUSY = 6;
    }
}

table! {
    /// Status of a completion (`Cqe::status`), as (name, value, text).
    WC_TABLE: u8 {
    /// Success.
    WC_OK = 0;
    /// The queue element is malformed: unknown opcode or flags, too many SGEs, lengths that do not fit.
    WC_BAD_WQE = 1;
    /// Memory of the element cannot be used: unmapped, no access, kernel address, special mapping.
    WC_LOCAL_PROTECTION = 2;
    /// The element does not fit the pinned-memory budget, however long one waits.
    WC_OVER_BUDGET = 3;
    /// Memory that was granted has been withdrawn (unmapped) before the data came.
    WC_WITHDRAWN = 4;
    /// The peer did not answer: retries are used up.
    WC_RETRY_EXCEEDED = 5;
    /// The QP went into error before this element was done.
    WC_FLUSHED = 6;
    /// The peer refused: remote operation error.
    WC_REMOTE_ERROR = 7;
    /// Message mode: the credit is smaller than the message.
    WC_TOO_LONG = 8;
    /// The host had no memory to bring the element's pages in, however often it tried.
    WC_NO_MEMORY = 9;
    /// The peer's key does not allow the access: unknown, of another protection domain, unbound, used up, wrong range or right.
    WC_REMOTE_ACCESS = 10;
    /// A BIND names a key that the QP's protection domain does not have, or a range or right that cannot be.
    WC_BIND = 11;
    /// The peer had no receive, however often it was tried: RNR retries are used up.
    WC_RNR_RETRY = 12;
    /// The peer takes no such request: longer than its receive, or of a kind that its QP does not serve.
    WC_REMOTE_REQUEST = 13;
    /// Nothing has come for the receive, and it was recalled. The QP goes on.
    WC_RECALLED = 14;
    }
}

table! {
    /// Status of a firmware command (`EV_CMD_DONE`), as (name, value, text).
    CMD_STATUS_TABLE: u32 {
    /// Done.
    CMD_OK = 0;
    /// Unknown opcode.
    CMD_UNKNOWN = 1;
    /// A field is out of range.
    CMD_INVALID = 2;
    /// The object is there already, or in a state that does not allow the command.
    CMD_BUSY = 3;
    /// No such object.
    CMD_NOT_FOUND = 4;
    /// No room left.
    CMD_FULL = 5;
    }
}

table! {
    /// Why a QP went into error, or a connection ended (`EV_QP_ERROR`, `EV_CM_CLOSED`), as (name, value, text).
    REASON_TABLE: u32 {
    /// Closed by the local side.
    REASON_LOCAL_CLOSE = 0;
    /// Closed by the peer.
    REASON_PEER_CLOSE = 1;
    /// The peer does not answer any more.
    REASON_PEER_LOST = 2;
    /// A doorbell's producer index is further ahead than the queue is deep.
    REASON_BAD_INDEX = 3;
    /// The host answered a DMA read of a queue with an error.
    REASON_QUEUE_READ = 4;
    /// Memory that was granted has been withdrawn.
    REASON_WITHDRAWN = 5;
    /// The peer broke the protocol (a packet without a credit, a list before the proof, …).
    REASON_PROTOCOL = 6;
    /// A send element failed.
    REASON_SEND_FAILED = 7;
    /// The completion queue is full.
    REASON_CQ_FULL = 8;
    /// The listener refused.
    REASON_REJECTED = 9;
    /// Nobody listens to that service.
    REASON_NO_LISTENER = 10;
    /// The peer's name (IPv4 address) could not be resolved, or it did not answer the request.
    REASON_UNREACHABLE = 11;
    /// Too many requests wait for that service or for the peer, or the listener did not answer in time.
    REASON_BUSY = 12;
    /// The peer used a key that does not allow what it wanted.
    REASON_ACCESS = 13;
    /// Memory that the peer was to write to could not be had: unmapped, no access, over the budget.
    REASON_NO_TARGET = 14;
    }
}

table! {
    /// Answer of the driver to a page request (`CMD_PAGE_READY`), as (name, value, text).
    PAGE_TABLE: u32 {
    /// The pages are installed: acquire again.
    PAGE_OK = 0;
    /// The memory cannot be pinned (unmapped, no access, special mapping).
    PAGE_FAULT = 1;
    /// The range is larger than the budget.
    PAGE_OVER_BUDGET = 2;
    /// The process is gone.
    PAGE_NO_PROCESS = 3;
    /// The host had no memory for it, however often it tried.
    PAGE_NO_MEMORY = 4;
    }
}
