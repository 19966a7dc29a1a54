// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors. Each text says what went wrong and, where there is something, what to do next.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use berth_abi::{card, ioctl, status};
use berth_queue::{Refused, Unmatched};

use crate::cq::Status;

/// Result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device node cannot be opened, and it is not a matter of permission.
    #[error("cannot open {path}: {source} ({advice})")]
    Open {
        /// The node.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// What that means for a device node, and what to do.
        advice: String,
    },
    /// The process may not open the device node.
    #[error("cannot open {path}: {source} ({advice})")]
    NoAccess {
        /// The node.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// The users who may open it, and how to become one of them.
        advice: String,
    },
    /// The path is there, but what it names is not a Berth card.
    #[error("{path} is not a Berth card: {what} (`ls /dev/berth*` shows the cards)")]
    NotBerth {
        /// The path.
        path: PathBuf,
        /// What it names.
        what: String,
    },
    /// There is no `/dev/berthN` at all.
    #[error(
        "no Berth card found: there is no /dev/berth* (load the driver with `modprobe berth`; `lspci -d 10ee:be47` shows cards)"
    )]
    NoDevice,
    /// The driver was built for another layout of rings and ioctls.
    #[error("driver speaks ABI version {driver}, this program {library}: install driver and tools of one release")]
    AbiMismatch {
        /// Version of the driver.
        driver: u32,
        /// Version of this library.
        library: u32,
    },
    /// The driver refused: the caller lacks a capability, or the descriptor was inherited.
    #[error("{what}: not permitted ({})", needs(what))]
    NotPermitted {
        /// What was tried.
        what: &'static str,
    },
    /// A field is out of range.
    #[error("{what}: a parameter is out of range")]
    Invalid {
        /// What was tried.
        what: &'static str,
    },
    /// There is no such object, or it belongs to another context.
    #[error("{what}: no such object in this context")]
    NotFound {
        /// What was tried.
        what: &'static str,
    },
    /// A limit of the process or the card is reached.
    #[error("{what}: {limit}")]
    LimitReached {
        /// What was tried.
        what: &'static str,
        /// Which limit.
        limit: Limit,
    },
    /// The machine does not support what the card needs.
    #[error(
        "{what}: this machine does not let the card reach memory directly (its DMA goes through bounce buffers: booted with swiotlb=force, or a guest with encrypted memory?), or the card's firmware does not know this; the kernel's log says why (`dmesg | grep berth`)"
    )]
    Unsupported {
        /// What was tried.
        what: &'static str,
    },
    /// The object is in a state that does not allow it.
    #[error("{what}: the object is busy or in a state that does not allow this")]
    Busy {
        /// What was tried.
        what: &'static str,
    },
    /// The card was reset or has been taken away; all objects of the context are lost.
    #[error(
        "the card was reset or removed: close this context and open the device again (`berth info` shows its state)"
    )]
    DeviceLost,
    /// The card's firmware does not work.
    #[error(
        "{what}: the card's firmware does not answer (`berth info` shows its state, `berth log` what it said, `berth reset` starts it anew)"
    )]
    Firmware {
        /// What was tried.
        what: &'static str,
    },
    /// The driver does not know the call.
    #[error("{what}: the driver does not know this call (are driver, library and tools of one release?)")]
    UnknownCall {
        /// What was tried.
        what: &'static str,
    },
    /// The file to be mapped and sent is not a regular one.
    #[error("this is {kind}, and only a regular file has a length that is known beforehand")]
    NotRegular {
        /// What it is, with its article.
        kind: &'static str,
    },
    /// Any other error of the operating system.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The send or receive queue has no room for the elements: poll completions first.
    #[error("the queue is full ({free} of {depth} elements free): poll completions, then post again")]
    QueueFull {
        /// Free elements.
        free: u32,
        /// Depth of the queue.
        depth: u32,
    },
    /// More than 4 GiB - 1 would be posted and not completed: the doorbell could not tell (CR-9).
    #[error("4 GiB of sends are outstanding on this queue pair: poll completions, then post again")]
    TooMuchOutstanding,
    /// More data for an element itself than [`MAX_INLINE`](berth_abi::wqe::MAX_INLINE) bytes.
    #[error("{got} bytes inline, but a queue element has room for {max}: post them as ranges")]
    InlineTooLong {
        /// Given.
        got: u64,
        /// Most.
        max: usize,
    },
    /// A stream's immediates say how much is still to come (CR-9).
    #[error("a queue pair in stream mode takes no immediate: make it in message mode")]
    ImmediateInStream,
    /// A stream has no SEND with invalidate.
    #[error("a queue pair in stream mode invalidates no key: make it in message mode")]
    InvalidateInStream,
    /// A SEND with invalidate with something that its element has no room for.
    #[error("a send that invalidates a key has no immediate, and neither writes nor reads remote memory")]
    NotOfInvalidate,
    /// RDMA WRITE, READ and atomics are for message mode.
    #[error("a queue pair in stream mode neither writes nor reads remote memory: make it in message mode")]
    RemoteInStream,
    /// An RDMA READ with something that only sends have.
    #[error("an RDMA READ has no immediate, no inline data, no push, and writes to no remote memory")]
    NotOfRead,
    /// An atomic of other than 8 bytes, at an address that is no multiple of 8, or with something that only sends have.
    #[error(
        "an atomic has ranges of together 8 bytes and a remote address that is a multiple of 8, and no immediate, no inline data, no push, and no other remote memory"
    )]
    NotOfAtomic,
    /// An element that sends nothing with something to send, or a DELAY of more than 2^31 units.
    #[error(
        "an element that sends nothing has no ranges, no immediate, no key to invalidate, no inline data, no push and no remote memory, and a delay is shorter than 2^37 cycles"
    )]
    NotOfLocal,
    /// An element has more than [`MAX_SGE`](berth_abi::wqe::MAX_SGE) ranges.
    #[error("{got} scatter/gather elements, but a queue element has room for {max}")]
    TooManySges {
        /// Given.
        got: usize,
        /// Allowed.
        max: usize,
    },
    /// The ranges of one element add up to more than [`MAX_MESSAGE`](berth_abi::wqe::MAX_MESSAGE) bytes.
    #[error("element of {0} bytes: one element may have at most {max} (2 GiB - 1)", max = berth_abi::wqe::MAX_MESSAGE)]
    MessageTooLong(u64),
    /// A burst that a receive which has been posted does not fit into.
    #[error("a burst of {burst} bytes, but a receive of {largest} bytes has been posted: choose one that is as large")]
    BurstTooSmall {
        /// Given.
        burst: u32,
        /// Bytes of the largest receive.
        largest: u32,
    },
    /// More RDMA READs under way, in either direction, than a card keeps.
    #[error("{0} READs under way, but a card keeps at most {max} in each direction", max = berth_abi::card::MAX_READS)]
    TooManyReads(u8),
    /// Private data of connection management is longer than 32 bytes.
    #[error("{0} bytes of private data, but a connection message carries at most 32")]
    PrivateDataTooLong(usize),
    /// The time limit has passed.
    #[error("nothing happened within {0:?}")]
    Timeout(Duration),
    /// The connection did not come about or is over.
    #[error("connection ended: {reason}")]
    Closed {
        /// Why.
        reason: Reason,
        /// Private data of a reject.
        private_data: Vec<u8>,
    },
    /// An element completed with an error.
    #[error("element {wr_id} failed: {status}")]
    Completion {
        /// The caller's number of the element.
        wr_id: u64,
        /// Its status.
        status: Status,
    },
    /// A completion came that fits no posted element: the queue cannot be trusted any more.
    #[error("the card completed an element of QP {qpn} that was not posted: reset the card and report this")]
    BadCompletion {
        /// QPN in it.
        qpn: u32,
    },
}

/// Calls that need a capability; all others need the process that made the context.
pub(crate) const SET_NET: &str = "set the name in the network";
pub(crate) const SET_LIMITS: &str = "set limits";
pub(crate) const SET_BUDGET: &str = "set the process's pinned-memory budget";
pub(crate) const READ_LOG: &str = "read the firmware's log";
pub(crate) const RESET: &str = "reset the card";
pub(crate) const CRASH: &str = "crash the firmware";

/// What a call that was not permitted needs.
fn needs(what: &str) -> &'static str {
    match what {
        SET_NET => "it needs CAP_NET_ADMIN",
        SET_LIMITS | READ_LOG | RESET | CRASH => "it needs CAP_SYS_ADMIN",
        SET_BUDGET => {
            "more than a process gets by itself (`berth info`) needs CAP_SYS_ADMIN, and a context works only in the \
             process that made it"
        }
        _ => "a context works only in the process that made it: open the device anew in a child",
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::TooManySges { got, max } => Self::TooManySges { got, max },
            Refused::MessageTooLong(bytes) => Self::MessageTooLong(bytes),
            Refused::InlineTooLong { got, max } => Self::InlineTooLong { got, max },
            Refused::NoInline => Self::Invalid { what: "post data inline" },
            Refused::NotOfAtomic => Self::NotOfAtomic,
            Refused::DelayTooLong => Self::NotOfLocal,
            Refused::QueueFull { free, depth } => Self::QueueFull { free, depth },
            Refused::TooMuchOutstanding => Self::TooMuchOutstanding,
        }
    }
}

impl From<Unmatched> for Error {
    fn from(unmatched: Unmatched) -> Self {
        Self::BadCompletion { qpn: unmatched.qpn }
    }
}

impl Error {
    /// Translates the errno of a failed call named `what` as berth-abi's ioctl section describes.
    pub(crate) fn from_errno(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what },
            Some(libc::EINVAL) => Self::Invalid { what },
            Some(libc::ENOENT) => Self::NotFound { what },
            Some(libc::ENOSPC) => Self::LimitReached { what, limit: Limit::Unknown },
            Some(libc::EOPNOTSUPP) => Self::Unsupported { what },
            Some(libc::EBUSY) => Self::Busy { what },
            Some(libc::ENODEV) => Self::DeviceLost,
            Some(libc::EIO) => Self::Firmware { what },
            Some(libc::ENOTTY) => Self::UnknownCall { what },
            _ => Self::Os { what, source },
        }
    }
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Of one process, in all its contexts.
    Process {
        /// Of what.
        of: &'static str,
        /// So many are allowed.
        most: u32,
        /// The driver's parameter.
        parameter: &'static str,
    },
    /// Of the card, for all processes.
    Card {
        /// Of what.
        of: &'static str,
        /// So many it has.
        most: u32,
    },
    /// Of one context.
    Context {
        /// Of what.
        of: &'static str,
        /// So many are allowed.
        most: u32,
    },
    /// The limit is not reached any more, or the driver does not report it.
    Unknown,
}

impl Limit {
    /// The limit that a request has met: the driver has refused it with `ENOSPC`. It is found from the present usage.
    pub(crate) fn met(request: u32, limits: &ioctl::QueryLimits) -> Self {
        let full = |l: &ioctl::Taken| l.taken >= l.most;
        let (own, card, of, parameter) = match request {
            ioctl::IOC_CONTEXT => {
                (limits.process_contexts, limits.card_contexts, "contexts (doorbell pages)", "max_process_contexts")
            }
            ioctl::IOC_CREATE_CQ => (limits.process_cqs, limits.card_cqs, "completion queues", "max_process_cqs"),
            ioctl::IOC_CREATE_QP => (limits.process_qps, limits.card_qps, "queue pairs", "max_process_qps"),
            ioctl::IOC_LISTEN if full(&limits.card_services) => {
                return Self::Card { of: "services that are listened to", most: limits.card_services.most };
            }
            ioctl::IOC_LISTEN if full(&limits.context_services) => {
                return Self::Context { of: "services that it listens to", most: limits.context_services.most };
            }
            ioctl::IOC_CREATE_DOMAIN if full(&limits.card_domains) => {
                return Self::Card { of: "protection domains", most: limits.card_domains.most };
            }
            ioctl::IOC_CREATE_DOMAIN if full(&limits.context_domains) => {
                return Self::Context { of: "protection domains", most: limits.context_domains.most };
            }
            ioctl::IOC_REGISTER if full(&limits.card_regions) => {
                return Self::Card { of: "memory regions", most: limits.card_regions.most };
            }
            ioctl::IOC_REGISTER if full(&limits.context_regions) => {
                return Self::Context { of: "memory regions", most: limits.context_regions.most };
            }
            ioctl::IOC_CONNECT | ioctl::IOC_SET_PEER => {
                return Self::Card { of: "other hosts with connections", most: card::NUM_PEERS };
            }
            _ => return Self::Unknown,
        };
        // The card's limits first: they hold whatever the driver's parameters are.
        if full(&card) {
            Self::Card { of, most: card.most }
        } else if full(&own) {
            Self::Process { of, most: own.most, parameter }
        } else {
            Self::Unknown
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process { of, most, parameter } => write!(
                f,
                "this process has all {most} {of} that one may have: close some (`berth info` shows the limits; {parameter} of the driver sets this one)"
            ),
            Self::Card { of, most } => {
                write!(
                    f,
                    "the card has no more than {most} {of}, and all are taken: close some, here or in other processes"
                )
            }
            Self::Context { of, most } => write!(f, "this context has all {most} {of} that one may have: close some"),
            Self::Unknown => {
                f.write_str("a limit of the process or the card was reached; try again (`berth info` shows the limits)")
            }
        }
    }
}

/// Why a connection ended or a queue pair went into error (`REASON_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Closed by this side.
    LocalClose,
    /// Closed by the peer.
    PeerClose,
    /// The peer does not answer any more.
    PeerLost,
    /// A doorbell's producer index was further ahead than the queue is deep.
    BadIndex,
    /// The card could not read the queue.
    QueueRead,
    /// Memory that was granted has been withdrawn (unmapped).
    Withdrawn,
    /// The peer broke the protocol.
    Protocol,
    /// A send element failed.
    SendFailed,
    /// The completion queue overran.
    CqFull,
    /// The listener refused.
    Rejected,
    /// That service has no listener.
    NoListener,
    /// The peer did not answer the request.
    Unreachable,
    /// Too many requests wait at the peer, or its listener did not answer in time.
    Busy,
    /// The peer used a key that does not allow what it wanted.
    Access,
    /// Memory that the peer was to write to could not be had.
    NoTarget,
    /// A value that this library does not know.
    Other(u32),
}

impl From<u32> for Reason {
    fn from(value: u32) -> Self {
        match value {
            status::REASON_LOCAL_CLOSE => Self::LocalClose,
            status::REASON_PEER_CLOSE => Self::PeerClose,
            status::REASON_PEER_LOST => Self::PeerLost,
            status::REASON_BAD_INDEX => Self::BadIndex,
            status::REASON_QUEUE_READ => Self::QueueRead,
            status::REASON_WITHDRAWN => Self::Withdrawn,
            status::REASON_PROTOCOL => Self::Protocol,
            status::REASON_SEND_FAILED => Self::SendFailed,
            status::REASON_CQ_FULL => Self::CqFull,
            status::REASON_REJECTED => Self::Rejected,
            status::REASON_NO_LISTENER => Self::NoListener,
            status::REASON_UNREACHABLE => Self::Unreachable,
            status::REASON_BUSY => Self::Busy,
            status::REASON_ACCESS => Self::Access,
            status::REASON_NO_TARGET => Self::NoTarget,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LocalClose => "closed by this side",
            Self::PeerClose => "closed by the peer",
            Self::PeerLost => "the peer does not answer any more",
            Self::BadIndex => "a doorbell's producer index was too far ahead",
            Self::QueueRead => "the card could not read the queue",
            Self::Withdrawn => "granted memory was withdrawn",
            Self::Protocol => "the peer broke the protocol",
            Self::SendFailed => "a send element failed",
            Self::CqFull => "the completion queue overran",
            Self::Rejected => "rejected by the listener",
            Self::NoListener => "nobody listens to that service",
            Self::Unreachable => "the peer did not answer (is it up, and is its address right? `berth info` there)",
            Self::Busy => "too many requests wait at the peer, or the listener did not answer in time",
            Self::Access => "the peer used a key that does not allow what it wanted",
            Self::NoTarget => "memory that the peer was to write to could not be had (unmapped, or over the budget)",
            Self::Other(n) => return write!(f, "unknown reason {n}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f7_what_is_not_permitted_says_what_it_needs() {
        let said = |what| Error::from_errno(what, io::Error::from_raw_os_error(libc::EPERM)).to_string();
        for (what, needs, not) in [
            (SET_NET, "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
            (SET_LIMITS, "CAP_SYS_ADMIN", "CAP_NET_ADMIN"),
            (RESET, "CAP_SYS_ADMIN", "the process that made it"),
            ("make a queue pair", "the process that made it", "CAP_"),
        ] {
            let text = said(what);
            assert!(text.contains(what) && text.contains(needs) && !text.contains(not), "{text}");
        }
        let text = Error::from_errno("ask", io::Error::from_raw_os_error(libc::ENOTTY)).to_string();
        assert!(text.contains("does not know this call"), "{text}");
    }

    #[test]
    fn f9_a_limit_is_named_by_the_error_that_it_causes() {
        let free = ioctl::Taken { taken: 1, most: 5 };
        let full = ioctl::Taken { taken: 5, most: 5 };
        let limits = ioctl::QueryLimits {
            process_contexts: free,
            card_contexts: free,
            process_cqs: free,
            card_cqs: free,
            process_qps: free,
            card_qps: free,
            context_services: free,
            card_services: free,
            context_domains: free,
            card_domains: free,
            context_regions: free,
            card_regions: free,
        };
        let queues = [ioctl::IOC_CONTEXT, ioctl::IOC_CREATE_CQ, ioctl::IOC_CREATE_QP, ioctl::IOC_LISTEN];
        let others = [ioctl::IOC_CREATE_DOMAIN, ioctl::IOC_REGISTER, ioctl::IOC_QUERY];
        for request in queues.into_iter().chain(others) {
            assert_eq!(Limit::met(request, &limits), Limit::Unknown);
        }
        let says = |request, limits: &ioctl::QueryLimits| {
            Error::LimitReached { what: "try", limit: Limit::met(request, limits) }.to_string()
        };
        for (request, limits, words) in [
            (
                ioctl::IOC_CONTEXT,
                ioctl::QueryLimits { process_contexts: full, ..limits },
                ["contexts", "max_process_contexts"],
            ),
            (ioctl::IOC_CONTEXT, ioctl::QueryLimits { card_contexts: full, ..limits }, ["doorbell pages", "the card"]),
            (
                ioctl::IOC_CREATE_CQ,
                ioctl::QueryLimits { process_cqs: full, ..limits },
                ["all 5 completion", "max_process_cqs"],
            ),
            (
                ioctl::IOC_CREATE_CQ,
                ioctl::QueryLimits { card_cqs: full, ..limits },
                ["5 completion queues", "other processes"],
            ),
            (
                ioctl::IOC_CREATE_QP,
                ioctl::QueryLimits { process_qps: full, ..limits },
                ["all 5 queue pairs", "max_process_qps"],
            ),
            (
                ioctl::IOC_CREATE_QP,
                ioctl::QueryLimits { card_qps: full, ..limits },
                ["5 queue pairs", "other processes"],
            ),
            (ioctl::IOC_LISTEN, ioctl::QueryLimits { context_services: full, ..limits }, ["this context", "services"]),
            (ioctl::IOC_LISTEN, ioctl::QueryLimits { card_services: full, ..limits }, ["the card", "services"]),
            (
                ioctl::IOC_CREATE_DOMAIN,
                ioctl::QueryLimits { context_domains: full, ..limits },
                ["this context", "domains"],
            ),
            (ioctl::IOC_CREATE_DOMAIN, ioctl::QueryLimits { card_domains: full, ..limits }, ["the card", "domains"]),
            (ioctl::IOC_REGISTER, ioctl::QueryLimits { context_regions: full, ..limits }, ["this context", "regions"]),
            (ioctl::IOC_REGISTER, ioctl::QueryLimits { card_regions: full, ..limits }, ["the card", "regions"]),
            (ioctl::IOC_CONNECT, limits, ["32 other hosts", "the card"]),
            (ioctl::IOC_SET_PEER, limits, ["32 other hosts", "the card"]),
        ] {
            let text = says(request, &limits);
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn f8_bounce_buffers_are_named() {
        let text = Error::from_errno("make a queue pair", io::Error::from_raw_os_error(libc::EOPNOTSUPP)).to_string();
        assert!(text.contains("bounce buffers") && text.contains("swiotlb=force"), "{text}");
    }
}
