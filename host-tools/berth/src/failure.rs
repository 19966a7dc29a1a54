// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the tool and their exit codes.

use std::io;
use std::path::PathBuf;

use libberth::Error;

use crate::file::Change;
use crate::record::Outcome;
use crate::signals;

/// Why the tool failed.
#[derive(Debug)]
pub enum Failure {
    /// An error of the library.
    Berth(Error),
    /// A file could not be used.
    File(PathBuf, std::io::Error),
    /// A file is not of a kind that can be used so; the text says what it is.
    Kind(PathBuf, String),
    /// A file has changed since it was opened.
    Changed(PathBuf, Change),
    /// The received bytes are not those that were sent.
    Checksum(String),
    /// The other end has said why it failed.
    Peer {
        /// What it is: `sender` or `receiver`.
        who: &'static str,
        /// In a word.
        outcome: Outcome,
        /// In its words.
        text: String,
    },
    /// The peer rejects the connection; the text is its own.
    Rejected(String),
    /// A signal asked the tool to end.
    Interrupted(i32),
    /// The other end breaks the rules of the transfer.
    Protocol(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// An error of a library call. If a signal ended its wait, the failure is the signal.
    fn of(e: Error, signals: Result<(), Self>) -> Self {
        match (&e, signals) {
            (Error::Os { source, .. }, Err(signal)) if source.kind() == io::ErrorKind::Interrupted => signal,
            _ => Self::Berth(e),
        }
    }

    /// The process's exit code, see `berth --help`.
    pub fn code(&self) -> u8 {
        match self {
            Self::Checksum(_) | Self::Peer { outcome: Outcome::Checksum, .. } => 3,
            Self::Berth(Error::Closed { .. }) | Self::Rejected(_) => 4,
            Self::Berth(Error::Open { source, .. }) => match source.raw_os_error() {
                // Says nothing about the card.
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => 1,
                _ => 5,
            },
            Self::Berth(
                Error::NotBerth { .. }
                | Error::NoDevice
                | Error::AbiMismatch { .. }
                | Error::DeviceLost
                | Error::Firmware { .. },
            ) => 5,
            Self::Berth(Error::NotPermitted { .. } | Error::NoAccess { .. }) => 6,
            Self::Peer { .. } => 7,
            // As a shell reports a program that a signal has ended.
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(1),
            _ => 1,
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::of(e, signals::check())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Berth(e) => e.fmt(f),
            Self::File(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Kind(path, text) => write!(f, "{}: {text}", path.display()),
            Self::Changed(path, change) => write!(f, "{}: {change}", path.display()),
            Self::Peer { who, text, .. } => write!(f, "the {who} has failed: {text}"),
            Self::Rejected(text) => write!(f, "the peer rejects the connection: {text}"),
            Self::Interrupted(signal) => write!(f, "interrupted by signal {signal}"),
            Self::Checksum(text) | Self::Protocol(text) | Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error as Io;

    #[test]
    fn f7_exit_code_says_whether_it_is_the_card_or_a_permission() {
        let open =
            |errno| Error::Open { path: "x".into(), source: Io::from_raw_os_error(errno), advice: String::new() };
        let denied =
            Error::NoAccess { path: "x".into(), source: Io::from_raw_os_error(libc::EACCES), advice: String::new() };
        for (error, code) in [
            (denied, 6),
            (Error::NotPermitted { what: "reset the card" }, 6),
            (open(libc::ENOENT), 5),
            (open(libc::ENODEV), 5),
            (open(libc::EMFILE), 1),
            (Error::NotBerth { path: "/dev/null".into(), what: String::new() }, 5),
            (Error::NoDevice, 5),
        ] {
            assert_eq!(Failure::from(error).code(), code);
        }
        let peer = |outcome| Failure::Peer { who: "receiver", outcome, text: "x".into() };
        assert_eq!([peer(Outcome::File).code(), peer(Outcome::Checksum).code()], [7, 3]);
        assert_eq!(Failure::Interrupted(libc::SIGINT).code(), 130);
        let os = |errno| Error::Os { what: "make a queue pair", source: Io::from_raw_os_error(errno) };
        let hangup = || Err(Failure::Interrupted(libc::SIGHUP));
        assert_eq!(Failure::of(os(libc::EINTR), hangup()).code(), 129);
        assert_eq!(Failure::of(os(libc::EINTR), Ok(())).code(), 1);
        assert_eq!(Failure::of(os(libc::EIO), hangup()).code(), 1);
    }
}
