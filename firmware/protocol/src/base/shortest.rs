// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shortest of many times, as long as it is not too long ago: golden model of what `berth_fp_builder` and
//! `berth_fp_grant` measure.

/// Bits behind the point.
const POINT: u32 = 11;

/// The shortest time so far, in units that are the user's. It grows by one 2048th with each new one, so that one that was
/// short once is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shortest(u32);

impl Shortest {
    /// A longer time counts as this one, and from a little below it nothing grows.
    pub const LONGEST: u32 = 0xffff;

    /// The shortest time; `None`: nothing was measured.
    pub const fn get(self) -> Option<u32> {
        match self.0 >> POINT {
            0 => None,
            time => Some(time),
        }
    }

    /// One more was measured. No time at all is one unit.
    pub fn learn(&mut self, time: u64) {
        let time = (time.clamp(1, Self::LONGEST as u64) as u32) << POINT;
        let grown = match self.0 >> 20 {
            0x7f.. => self.0,
            _ => self.0 + (self.0 >> POINT),
        };
        self.0 = if self.0 == 0 { time } else { time.min(grown) };
    }
}

#[cfg(test)]
mod tests {
    use super::Shortest;

    #[test]
    fn pc_3_a_time_that_was_short_once_is_forgotten() {
        for (times, wanted) in [
            (&[0][..], 1),
            (&[5, 3, 9], 3),
            (&[2047, 5000], 2047),
            (&[2047, 5000, 5000], 2048),
            (&[65535, 70_000, 10], 10),
            (&[70_000], 65535),
            (&[65_020, 65_100], 65_051),
            (&[65_024, 65_600], 65_024),
        ] {
            let mut shortest = Shortest::default();
            assert_eq!(shortest.get(), None);
            times.iter().for_each(|time| shortest.learn(*time));
            assert_eq!(shortest.get(), Some(wanted), "{times:?}");
        }
        let mut shortest = Shortest::default();
        shortest.learn(100);
        (0..2048).for_each(|_| shortest.learn(1000));
        assert!((260..280).contains(&shortest.get().unwrap()), "{shortest:?}");
    }
}
