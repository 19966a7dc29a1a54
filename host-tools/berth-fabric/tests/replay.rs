// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs depend on their scale and seed only.

use berth_fabric::answer::{Answer, Scale};
use berth_fabric::{credits, memory, paging, triggers};

fn scale(seed: u64, jobs: usize) -> Scale {
    Scale { nodes: 8, connections: 16, seed, jobs }
}

fn files(answer: &Answer, scale: &Scale) -> (String, Vec<(String, String)>) {
    (answer.json(scale), answer.plots.clone())
}

type Question = fn(&Scale) -> anyhow::Result<Answer>;

#[test]
fn same_seed_gives_the_same_files_and_another_seed_does_not() {
    let questions: [(&str, Question); 4] = [
        ("credits", credits::answer),
        ("triggers", triggers::answer),
        ("paging", paging::answer),
        ("memory", memory::answer),
    ];
    for (name, question) in questions {
        let first = files(&question(&scale(3, 1)).unwrap(), &scale(3, 1));
        let again = files(&question(&scale(3, 2)).unwrap(), &scale(3, 2));
        assert!(first == again, "{name}: two runs with one seed differ");
        let other = files(&question(&scale(4, 2)).unwrap(), &scale(4, 2));
        assert!(first.0 != other.0, "{name}: the seed changes nothing");
    }
}

#[test]
fn two_hosts_are_enough() {
    let scale = Scale { nodes: 2, connections: 4, seed: 1, jobs: 2 };
    assert!(!credits::answer(&scale).unwrap().rows.is_empty());
}

#[test]
fn tables_are_json_and_berth_never_meets_a_receiver_that_is_not_ready() {
    let scale = scale(1, 2);
    let answer = credits::answer(&scale).unwrap();
    let table: serde_json::Value = serde_json::from_str(&answer.json(&scale)).unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), answer.rows.len());
    for row in &answer.rows {
        assert_eq!(row.number("unfinished"), 0.0, "{row}");
        if row.get("scheme").as_str().unwrap().starts_with("Berth") {
            assert_eq!(row.number("not ready"), 0.0, "{row}");
        }
    }
}
