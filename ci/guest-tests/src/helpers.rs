// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that tests start as processes of their own, by name.

use crate::env::Env;
use crate::outcome::{Res, fail};
use crate::{field, lifecycle, rivals, trouble};

/// Runs the helper of this name.
///
/// # Errors
/// When there is none, or as it fails.
pub fn run(name: &str, env: &Env) -> Res {
    match name {
        "traffic" => lifecycle::traffic(env),
        "granted" => lifecycle::granted(env),
        "stale_doorbell" => lifecycle::stale_doorbell(env),
        "stopped_receiver" => field::receive_all(env),
        "wait_for_ever" => trouble::wait_for_ever(env),
        "unmap" => trouble::unmap_when_told(env),
        "inherited" => lifecycle::inherited_is_refused(std::env::var("BERTH_TEST_FD")?.parse()?),
        rival if rival.starts_with("rival-") => rivals::rival(rival, env),
        other => fail(format!("no helper {other}")),
    }
}
