// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Defaults are what the simulation found best (docs/results/simulation/triggers.json).

use berth_protocol::credit::policy;
use libberth::{QpConfig, Trigger};
use serde_json::Value;

fn setup() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/simulation/triggers.json");
    let table: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    table["setup"].clone()
}

#[test]
fn cr_9_the_protocols_default_policy_is_the_best_of_all() {
    assert_eq!(policy::Settings::DEFAULT.kind, policy::Kind::InBand);
    assert_eq!(setup()["best"], "in-band");
}

#[test]
fn cr_5_the_librarys_default_trigger_is_the_best_without_measurement() {
    let name = match QpConfig::default().trigger {
        Trigger::First => "first",
        Trigger::Last => "last",
        Trigger::Quarters(1) => "quarter",
        Trigger::Quarters(2) => "middle",
        Trigger::Between(1) | Trigger::Unbounded(1) => "second",
        Trigger::Between(3) | Trigger::Unbounded(3) => "fourth",
        Trigger::Between(7) | Trigger::Unbounded(7) => "eighth",
        Trigger::Between(15) | Trigger::Unbounded(15) => "sixteenth",
        _ => "another",
    };
    assert_eq!(setup()["best without measurement"], name);
}
