// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the tool and their exit codes.

use std::path::PathBuf;

use libberth::Error;

/// Why the tool failed.
#[derive(Debug)]
pub enum Failure {
    /// The library says so.
    Berth(Error),
    /// A file could not be used.
    File(PathBuf, std::io::Error),
    /// The received bytes are not those that were sent.
    Checksum(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// The process's exit code, see `berth --help`.
    pub fn code(&self) -> u8 {
        match self {
            Self::Checksum(_) => 3,
            Self::Berth(Error::Closed { .. }) => 4,
            Self::Berth(
                Error::Open { .. }
                | Error::NoDevice
                | Error::AbiMismatch { .. }
                | Error::DeviceLost
                | Error::Firmware { .. },
            ) => 5,
            Self::Berth(Error::NotPermitted { .. }) => 6,
            _ => 1,
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::Berth(e)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Berth(e) => e.fmt(f),
            Self::File(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Checksum(text) | Self::Other(text) => f.write_str(text),
        }
    }
}
