// SPDX-License-Identifier: GPL-2.0
//! Module parameters: what is refused by name, and what is said to hold.

use super::rig::*;
use crate::params::Params;
use kernel::prelude::*;

/// As the module has them when nobody gives any.
const USUAL: Params = Params {
    linger_ms: 50,
    card_budget: 8 << 20,
    process_budget: 4 << 20,
    copy_pool: 2 << 20,
    max_process_qps: 2,
    max_process_cqs: 2,
    max_process_contexts: 2,
    loss_window_ms: 60_000,
    network_device: 1,
};

/// What comes of parameters, and the lines about it.
fn check(rig: &Rig, params: Params) -> (Result, Vec<String>) {
    rig.logged("");
    (params.check(), rig.logged("parameter"))
}

#[test]
fn f9_parameters_out_of_range_are_refused_by_name() {
    let rig = Rig::new(Setup::default());
    assert_eq!(check(&rig, USUAL), (Ok(()), vec![]));
    type Set = fn(&mut Params, u64);
    // Of the largest card that there can be.
    let table = 512 * 16 * 4096;
    let all: [(&str, Set, u64, u64); 9] = [
        ("linger_ms", |p, v| p.linger_ms = v as u32, 0, 86_400_000),
        ("card_budget", |p, v| p.card_budget = v, 4096, table),
        ("process_budget", |p, v| p.process_budget = v, 4096, table),
        ("copy_pool", |p, v| p.copy_pool = v, 0, table),
        ("max_process_qps", |p, v| p.max_process_qps = v as u32, 1, 65535),
        ("max_process_cqs", |p, v| p.max_process_cqs = v as u32, 1, 65535),
        ("max_process_contexts", |p, v| p.max_process_contexts = v as u32, 1, crate::abi::card::NUM_ASIDS as u64 - 1),
        ("loss_window_ms", |p, v| p.loss_window_ms = v as u32, 1, 86_400_000),
        ("network_device", |p, v| p.network_device = v as u32, 0, 1),
    ];
    for (name, set, least, most) in all {
        for value in [0, 1, least, most, most + 1, (1 << 31) - 1, u64::from(u32::MAX)] {
            let mut params = USUAL;
            // Whatever it is, the other budget is not less.
            params.card_budget = table;
            set(&mut params, value);
            let line = format!("parameter {name}={value} is out of range: it may be {least} to {most}\n");
            let expected = match (least..=most).contains(&value) {
                true => (Ok(()), vec![]),
                false => (Err(EINVAL), vec![line]),
            };
            let (result, mut lines) = check(&rig, params);
            lines.retain(|line| line.contains("range"));
            assert_eq!((result, lines), expected, "{name}={value}");
        }
    }
    // All that are, not the first alone.
    let none = Params { max_process_qps: 0, max_process_cqs: 0, ..USUAL };
    assert_eq!(check(&rig, none).1.len(), 2);
    rig.end();
}

#[test]
fn f9_what_holds_is_said_when_a_budget_is_not_taken_as_it_is() {
    let rig = Rig::new(Setup::default());
    let odd = Params { process_budget: 5000, ..USUAL };
    assert_eq!(
        check(&rig, odd),
        (Ok(()), vec!["parameter process_budget=5000 is not of whole pages: 4096 holds\n".into()])
    );
    assert_eq!((odd.process_pages(), odd.card_pages()), (1, 2048));
    let more = Params { card_budget: 8191, process_budget: 8192, ..USUAL };
    let lines = check(&rig, more).1;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("process_budget=8192 is more than card_budget=4096"), "{lines:?}");
    rig.end();
}
