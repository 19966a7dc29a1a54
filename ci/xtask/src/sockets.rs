// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that others wrote for TCP sockets, on the two Debian hosts of [`crate::verbs`]: with Berth's library preloaded at
//! both ends, or at one of them.

use std::fs;

use anyhow::Result;

use crate::guest::Run;
use crate::steps::Builder;
use crate::verbs::{self, Installed};

/// What both guests do, and what it starts, by name.
const FILES: [(&str, &str); 2] =
    [("sockets.sh", include_str!("../../sockets/guest.sh")), ("sockets.py", include_str!("../../sockets/sockets.py"))];

/// Where the library is in the guests, which the scripts know.
const LIBRARY: &str = "usr/lib/x86_64-linux-gnu/libberth_sockets.so";

/// A Debian host with the library on it.
///
/// # Errors
/// When a part does not build, or the copy of the host cannot be made.
pub fn installed(builder: &Builder) -> Result<Installed> {
    let library = builder.preloaded()?;
    let installed = Installed::new(builder)?;
    installed.add(&library, LIBRARY)?;
    Ok(installed)
}

/// Puts what the guests do into the folder of a run: the tests whose names contain `filter`, and those that are
/// to run only if they may be `long`.
///
/// # Errors
/// When it cannot be written.
pub fn prepare(run: &Run, filter: &str, long: bool) -> Result<()> {
    for (name, text) in FILES {
        fs::write(run.share.join(name), text)?;
    }
    verbs::prepare(run, filter, long, false)
}
