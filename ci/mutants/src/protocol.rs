// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mutated of `firmware/protocol`, whose tests it is tried with.

use crate::cargo::Tested;

/// What is mutated: a name, and the files of firmware/protocol/src.
pub const GROUPS: [(&str, &[&str]); 6] = [
    ("credit", &["credit/list.rs", "credit/taker.rs"]),
    ("psn", &["rc/psn.rs", "rc/bitmap.rs", "rc/window.rs", "rc/arrival.rs", "rc/requester.rs", "rc/responder.rs"]),
    ("translation", &["memory/pins.rs"]),
    ("keys", &["memory/keys.rs"]),
    ("ends", &["credit/cut.rs", "credit/announcer.rs", "memory/receives.rs"]),
    ("rows", &["card/rows.rs", "card/reports.rs", "card/pressure.rs"]),
];

/// Its tests that look at its sources, which here are others.
const ABOUT_SOURCES: [&str; 2] = ["bounds ", "attacks pythia_a_look_up_of_a_key_has_no_loop"];

/// The crate, with the files of the groups that are wanted (all if none is named).
#[must_use]
pub fn tested(groups: &[String]) -> Tested {
    let wanted = GROUPS.iter().filter(|(name, _)| groups.is_empty() || groups.iter().any(|g| g == name));
    Tested {
        package: "firmware/protocol",
        name: "berth_protocol",
        sources: "firmware/protocol/src",
        files: wanted.flat_map(|(_, files)| files.iter().copied()).collect(),
        skip: &ABOUT_SOURCES,
    }
}
