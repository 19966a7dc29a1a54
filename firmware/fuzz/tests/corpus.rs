// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inputs that fuzzing has kept, and some made up, run without a fuzzer.

use berth_fuzz::TARGETS;
use berth_fuzz::input::{pack, unpack};

#[test]
fn inputs_that_were_kept_do_no_harm() {
    for (name, run) in TARGETS {
        let path = format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}; `cargo xtask fuzz --keep` makes it"));
        let inputs = unpack(&file).unwrap_or_else(|| panic!("{path} is damaged"));
        println!("{name}: {} inputs", inputs.len());
        assert!(!inputs.is_empty(), "{path} has no input");
        for input in inputs {
            run(&input);
        }
        run(&[]);
        run(&[0xff; 300]);
    }
}

#[test]
fn inputs_are_unpacked_as_they_were_packed() {
    let inputs = vec![vec![], vec![1, 2, 3], vec![0; 1000]];
    let file = pack(&inputs);
    assert_eq!(unpack(&file), Some(inputs));
    assert_eq!(unpack(&file[..file.len() - 1]), None);
}
