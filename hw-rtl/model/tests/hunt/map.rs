// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the card was reached: coverage points, and how often each.

use berth_rtl::Card;
use std::collections::BTreeMap;
use std::path::Path;

/// How often a point was passed, roughly, as AFL has it: one bit for each of 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127
/// and 128 or more times.
pub fn bucket(count: u32) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

/// Buckets, by counter.
#[derive(Clone, Debug, Default)]
pub struct Reached(pub Vec<u8>);

impl Reached {
    /// Number of buckets that `other` has and this does not.
    pub fn lacks(&self, other: &[u8]) -> usize {
        let own = self.0.iter().copied().chain(std::iter::repeat(0));
        other.iter().zip(own).map(|(theirs, own)| (theirs & !own).count_ones() as usize).sum()
    }

    /// Adds those of `other`.
    pub fn add(&mut self, other: &[u8]) {
        self.0.resize(self.0.len().max(other.len()), 0);
        for (own, theirs) in self.0.iter_mut().zip(other) {
            *own |= theirs;
        }
    }

    /// Counters that are not 0.
    pub fn points(&self) -> usize {
        self.0.iter().filter(|&&b| b != 0).count()
    }
}

/// Points reached, and all, of each module. A counter may stand for several: signals that are always equal have one.
///
/// # Panics
/// When the card has no coverage, or Verilator describes it in another way than it did. `scratch` is a file to write.
pub fn modules(card: &mut Card, reached: &Reached, scratch: &Path) -> BTreeMap<String, (usize, usize)> {
    let counts: Vec<u32> = reached.0.iter().map(|&b| u32::from(b != 0)).collect();
    card.write_coverage(&counts, scratch).expect("what was reached can be written");
    let text = std::fs::read(scratch).expect("the file that was just written");
    let mut modules = BTreeMap::new();
    // C '^Akey^Bvalue…' count: `f` is the file, and a module is alone in its file.
    for line in String::from_utf8_lossy(&text).lines().filter_map(|l| l.strip_prefix("C '")) {
        let (keys, count) = line.rsplit_once("' ").expect("a count");
        let file = keys.split('\x01').find_map(|key| key.strip_prefix("f\x02")).expect("a file");
        let module = Path::new(file).file_stem().expect("a name").to_string_lossy().into_owned();
        let (hit, all) = modules.entry(module).or_insert((0, 0));
        *hit += usize::from(count != "0");
        *all += 1;
    }
    modules
}
