// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors.

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i32);

impl Error {
    /// That of a number below 0.
    #[must_use]
    pub const fn from_errno(errno: i32) -> Self {
        Self(errno)
    }
}

pub type Result<T = (), E = Error> = core::result::Result<T, E>;

/// The errors by name.
pub mod code {
    use super::Error;

    pub const EPERM: Error = Error(-1);
    pub const ENOENT: Error = Error(-2);
    pub const EIO: Error = Error(-5);
    pub const EBADF: Error = Error(-9);
    pub const EAGAIN: Error = Error(-11);
    pub const ENOMEM: Error = Error(-12);
    pub const EFAULT: Error = Error(-14);
    pub const EBUSY: Error = Error(-16);
    pub const ENODEV: Error = Error(-19);
    pub const EINVAL: Error = Error(-22);
    pub const ENOTTY: Error = Error(-25);
    pub const ENOSPC: Error = Error(-28);
    pub const EMSGSIZE: Error = Error(-90);
}

impl From<core::convert::Infallible> for Error {
    fn from(e: core::convert::Infallible) -> Self {
        match e {}
    }
}

/// What a C function returns: 0, or an error.
pub fn to_result(error: i32) -> Result {
    if error < 0 { Err(Error(error)) } else { Ok(()) }
}
