// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Verilated card under inputs that were found by what of its RTL they reach ([`hunt`]): frames, doorbells, answers of
//! the driver, in any order. Whatever they are, no assertion of the RTL fires, nothing is written that was not granted,
//! every frame is in one counter, another process's connection carries its messages, and all ends.
//!
//! Inputs that were kept (`hunt/kept`) run always; with the feature `cover` and `BERTH_INPUTS` set, that many are looked
//! for. `BERTH_INPUT` names one file to run instead, `BERTH_KEEP` one to write what is worth keeping to; `BERTH_SEED`
//! chooses; the image comes from `BERTH_FW_IMAGE`. One thread: each input runs in a copy of the process.

mod attacked;
mod grammar;
mod hunt;
mod pair;

use berth_rtl_host::seed;
use hunt::input::{pack, plain, steps, unpack};
use hunt::scene::Scene;
use hunt::{Hunt, run};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Seed of the set-up that inputs are kept for.
const SEED: u64 = 41;

fn kept_inputs() -> Vec<Vec<u8>> {
    unpack(include_bytes!("hunt/kept")).expect("hunt/kept holds whole inputs")
}

/// Inputs that were kept, or the one that is asked for.
fn inv_6_inputs_that_were_kept_harm_nobody() -> Result<(), Failed> {
    let inputs = match std::env::var_os("BERTH_INPUT") {
        None => kept_inputs(),
        Some(file) => {
            let input = std::fs::read(&file).map_err(|e| format!("{}: {e}", Path::new(&file).display()))?;
            steps(&input).iter().for_each(|step| println!("{step:x?}"));
            vec![input]
        }
    };
    let mut scene = Some(Scene::new(seed(SEED)));
    for input in inputs {
        run(&mut scene, &input).map_err(|text| format!("{:x?}\n{text}", steps(&input)))?;
    }
    Ok(())
}

/// A hunt for so many inputs.
fn inv_6_inputs_that_are_looked_for_harm_nobody(inputs: u64) -> Result<(), Failed> {
    let seed = seed(SEED);
    let mut hunt = Hunt::new(seed, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("guided"));
    let start = std::time::Instant::now();
    hunt.go(kept_inputs().into_iter().chain(plain()), inputs);
    let rate = hunt.inputs as f64 / start.elapsed().as_secs_f64();
    let modules = hunt.modules();
    let (hit, all) = modules.values().fold((0, 0), |sum, points| (sum.0 + points.0, sum.1 + points.1));
    let mut text = format!("{:<20} {:>7} {:>7}\n", "module", "reached", "points");
    for (module, (hit, all)) in modules {
        writeln!(text, "{module:<20} {hit:>7} {all:>7}")?;
    }
    println!("{text}{} inputs ({rate:.1} in a second), {} kept, {hit} of {all} points\n", hunt.inputs, hunt.kept());
    if let Some(file) = std::env::var_os("BERTH_KEEP") {
        let smallest = hunt.smallest();
        std::fs::write(file, pack(&smallest))?;
        println!("{} inputs reach the same points", smallest.len());
    }
    let again = |f: &hunt::Failure| {
        let file = f.file.display();
        format!("{}\nagain: BERTH_INPUT={file} cargo xtask test --only rtl-guided --seed {seed}\n", f.text)
    };
    match &hunt.failures[..] {
        [] => Ok(()),
        failures => Err(failures.iter().map(again).collect::<String>().into()),
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trial = match std::env::var("BERTH_INPUTS") {
        // A hunt begins with those that were kept.
        Ok(inputs) if std::env::var_os("BERTH_INPUT").is_none() => {
            let inputs = inputs.parse().unwrap_or_else(|_| panic!("BERTH_INPUTS={inputs} is not a number"));
            let hunt = move || inv_6_inputs_that_are_looked_for_harm_nobody(inputs);
            Trial::test("inv_6_inputs_that_are_looked_for_harm_nobody", hunt)
        }
        _ => Trial::test("inv_6_inputs_that_were_kept_harm_nobody", inv_6_inputs_that_were_kept_harm_nobody),
    };
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}
