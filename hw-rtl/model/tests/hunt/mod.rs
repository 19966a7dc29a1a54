// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzzing of the Verilated card, guided by what of its RTL is reached.
//!
//! A [`Scene`](scene::Scene) is set up once; each input runs in a copy of the process, so that it finds exactly the same
//! cards, and takes none of its harm with it. An input that reaches something new is kept, and changed further.

mod child;
pub mod input;
pub mod map;
pub mod scene;

use berth_rtl_host::Rng;
use input::{MOST_STEPS, RECORD, mutate, steps};
use map::{Reached, bucket, modules};
use scene::Scene;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Each so many inputs one runs a second time: it must leave the same trace.
const AGAIN_EVERY: u64 = 20;
/// A hunt ends with so many failures.
const MOST_FAILURES: usize = 5;

/// What an input did: its trace, and what it reached.
pub struct Ran {
    pub trace: u64,
    pub reached: Vec<u8>,
}

/// Runs an input on a copy of the scene.
///
/// # Errors
/// What was printed, when something did not hold.
pub fn run(scene: &mut Option<Scene>, input: &[u8]) -> Result<Ran, String> {
    let bytes = child::in_a_copy(|| {
        let outcome = scene.take().expect("a scene").run(&steps(input));
        let reached = outcome.counts.into_iter().map(bucket);
        outcome.trace.to_le_bytes().into_iter().chain(reached).collect()
    })?;
    let (trace, reached) = bytes.split_first_chunk().ok_or("no result")?;
    Ok(Ran { trace: u64::from_le_bytes(*trace), reached: reached.to_vec() })
}

/// An input that failed, and what was printed.
pub struct Failure {
    pub file: PathBuf,
    pub text: String,
}

struct Kept {
    input: Vec<u8>,
    reached: Vec<u8>,
    /// Times that it was changed.
    used: u64,
}

/// A hunt for inputs that reach something, and for those that fail.
pub struct Hunt {
    scene: Option<Scene>,
    rng: Rng,
    kept: Vec<Kept>,
    pub reached: Reached,
    pub inputs: u64,
    pub failures: Vec<Failure>,
    folder: PathBuf,
}

impl Hunt {
    /// `folder` is where failures are written.
    pub fn new(seed: u64, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).expect("a folder can be made");
        Hunt {
            scene: Some(Scene::new(seed)),
            rng: Rng(seed ^ 0x6875_6e74),
            kept: Vec::new(),
            reached: Reached::default(),
            inputs: 0,
            failures: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    /// Points reached, and all, of each module.
    pub fn modules(&mut self) -> BTreeMap<String, (usize, usize)> {
        let card = self.scene.as_mut().expect("a scene").card();
        modules(card, &self.reached, &self.folder.join("points"))
    }

    /// Inputs that were kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Runs an input; keeps it if it brings something new.
    fn try_input(&mut self, input: Vec<u8>) {
        self.inputs += 1;
        let ran = match run(&mut self.scene, &input) {
            Ok(ran) => ran,
            Err(text) => return self.fail(input, text),
        };
        if self.inputs.is_multiple_of(AGAIN_EVERY) {
            let again = run(&mut self.scene, &input).map(|again| again.trace);
            if again.as_ref() != Ok(&ran.trace) {
                return self.fail(input, format!("not the same when run again: {} then {again:?}", ran.trace));
            }
        }
        if self.reached.lacks(&ran.reached) > 0 {
            self.reached.add(&ran.reached);
            self.kept.push(Kept { input, reached: ran.reached, used: 0 });
        }
    }

    /// Runs `first`, then changes what was kept, until so many inputs have run.
    pub fn go(&mut self, first: impl IntoIterator<Item = Vec<u8>>, inputs: u64) {
        let mut first = first.into_iter();
        while self.inputs < inputs && self.failures.len() < MOST_FAILURES {
            let input = first.next().unwrap_or_else(|| self.next());
            self.try_input(input);
            if self.inputs.is_multiple_of(50) {
                println!("{} inputs, {} kept, {} points", self.inputs, self.kept(), self.reached.points());
            }
        }
    }

    fn next(&mut self) -> Vec<u8> {
        if self.kept.is_empty() || self.rng.chance(0.05) {
            let steps = self.rng.between(1, MOST_STEPS as u64) as usize;
            return self.rng.bytes(steps * RECORD);
        }
        // Of a few the one that was changed least.
        let draws: Vec<usize> = (0..3).map(|_| self.rng.below(self.kept.len() as u64) as usize).collect();
        let one = draws.into_iter().min_by_key(|&i| self.kept[i].used).expect("three draws");
        self.kept[one].used += 1;
        let other = self.rng.below(self.kept.len() as u64) as usize;
        let mut input = self.kept[one].input.clone();
        mutate(&mut self.rng, &mut input, &self.kept[other].input);
        input
    }

    /// Makes an input that fails shorter, and writes it down.
    fn fail(&mut self, mut input: Vec<u8>, mut text: String) {
        let mut at = 0;
        while at < input.len() && input.len() > RECORD {
            let mut shorter = input.clone();
            shorter.drain(at..at + RECORD);
            match run(&mut self.scene, &shorter) {
                Err(shorter_text) => (input, text) = (shorter, shorter_text),
                Ok(_) => at += RECORD,
            }
        }
        let file = self.folder.join(format!("found-{}", self.inputs));
        std::fs::write(&file, &input).expect("the failing input is written");
        println!("{} fails:\n{text}", file.display());
        self.failures.push(Failure { file, text });
    }

    /// A small set of inputs that reaches every point that is reached, each as short as it can be with those points that
    /// it is in the set for.
    pub fn smallest(&mut self) -> Vec<Vec<u8>> {
        let points = |reached: &[u8]| reached.iter().map(|&b| u8::from(b != 0)).collect::<Vec<_>>();
        let mut left: Vec<(Vec<u8>, Vec<u8>)> =
            self.kept.iter().map(|k| (k.input.clone(), points(&k.reached))).collect();
        let (mut chosen, mut have) = (Vec::new(), Reached::default());
        loop {
            let news = |(input, points): &(Vec<u8>, Vec<u8>)| (have.lacks(points), usize::MAX - input.len());
            let Some(best) = (0..left.len()).max_by_key(|&i| news(&left[i])) else { break };
            let (mut input, mut reached) = left.swap_remove(best);
            if have.lacks(&reached) == 0 {
                break;
            }
            let mut at = 0;
            while at < input.len() {
                let mut shorter = input.clone();
                shorter.drain(at..at + RECORD);
                match run(&mut self.scene, &shorter).map(|ran| points(&ran.reached)) {
                    Ok(still) if have.lacks(&still) >= have.lacks(&reached) => (input, reached) = (shorter, still),
                    _ => at += RECORD,
                }
            }
            have.add(&reached);
            chosen.push(input);
        }
        chosen
    }
}
