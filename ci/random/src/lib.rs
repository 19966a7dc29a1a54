// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeded random numbers for models and tests: SplitMix64 (Steele, Lea, Flood 2014). Not for keys.
//!
//! Whoever draws from it prints the seed, so that what was found can be found again.

/// What is added for each number drawn: 2^64 / golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijective mix of 64 bits: for draws that depend on nothing but `x`.
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The number in an environment variable, if it is set.
///
/// # Panics
///
/// If it is set to something else: a test must not run with another seed than it was given.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number from 0 to {}", u64::MAX)))
}

/// Seed of a random test: `BERTH_SEED`, else `default`. Printed, so that a failure can be repeated.
#[must_use]
pub fn seed(default: u64) -> u64 {
    let seed = number("BERTH_SEED").unwrap_or(default);
    println!("BERTH_SEED={seed}");
    seed
}

/// What registers and memories that nothing resets begin with in a Verilated model, as its seed: at least 1, as 0 takes the
/// seed from the clock.
#[must_use]
pub const fn beginning(seed: u64) -> i32 {
    (seed & 0x3fff_ffff) as i32 + 1
}

/// Cases of a random test: `BERTH_CASES`, else `default`.
#[must_use]
pub fn cases(default: u64) -> u64 {
    number("BERTH_CASES").unwrap_or(default)
}

/// As [`cases`]: `few` with every change, `all` in long tests (`BERTH_LONG`).
#[must_use]
pub fn few_or_all(few: u64, all: u64) -> u64 {
    cases(if number("BERTH_LONG").is_some() { all } else { few })
}

/// A random source from a seed; any seed is as good as another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(pub u64);

impl Rng {
    /// Next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let out = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        out
    }

    /// A number below `n` (not 0).
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 bits: every value is exact in an f64, and 1.0 is never drawn.
        ((self.draw() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(n + 8);
        while out.len() < n {
            out.extend_from_slice(&self.draw().to_le_bytes());
        }
        out.truncate(n);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The reference implementation's first outputs for the seed 1234567.
        let mut rng = Rng(1_234_567);
        assert_eq!(
            [rng.draw(), rng.draw(), rng.draw()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn chances_and_ranges_are_kept() {
        let mut rng = Rng(1);
        assert!((0..1000).all(|_| (5..=9).contains(&rng.between(5, 9))));
        assert!(!(0..1000).any(|_| rng.chance(0.0)) && (0..1000).all(|_| rng.chance(1.0)));
        let hits = (0..10_000).filter(|_| rng.chance(0.25)).count();
        assert!((2300..2700).contains(&hits), "{hits} of 10000");
        assert_eq!(Rng(7).bytes(11).len(), 11);
        assert_eq!(Rng(7).bytes(11), Rng(7).bytes(11));
    }
}
