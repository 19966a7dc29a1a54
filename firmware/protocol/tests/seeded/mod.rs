// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `BERTH_SEED` and `BERTH_CASES` for property tests.

use proptest::test_runner::{Config, RngSeed};

/// Proptest's configuration: `cases`, or what the environment says.
pub fn config(cases: u32) -> Config {
    let env = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    Config {
        cases: env("BERTH_CASES").map_or(cases, |n| n as u32),
        rng_seed: env("BERTH_SEED").map_or(RngSeed::Random, RngSeed::Fixed),
        failure_persistence: None,
        ..Config::default()
    }
}
