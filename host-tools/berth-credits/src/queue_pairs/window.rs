// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many messages about credits may be on their way, so that each finds a receive.
//!
//! Each end posts [`SLOTS`] receives for them, and posts one again when it has read its message. An end that sends counts
//! what it sent, and the other end says how many receives it posted again: with each message, and by one without content
//! when half of them were not said. The last receive is kept for such a message, so that two ends that both have much to say
//! never wait for each other. A message without content is too rare to cause another one for ever: it uses one receive, and
//! only half of [`SLOTS`] cause one.

/// Receives for messages about credits.
pub const SLOTS: u32 = 16;

/// The other end says what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The counts of one end, all modulo 2^32.
#[derive(Debug, Default)]
pub struct Window {
    /// Messages that this end sent.
    sent: u32,
    /// Those of them whose memory is free again.
    left: u32,
    /// Receives that the other end posted again.
    freed: u32,
    /// Receives that this end posted again.
    posted: u32,
    /// Those of them that the other end was told of.
    told: u32,
}

impl Window {
    fn room(&self, kept: u32) -> bool {
        self.sent.wrapping_sub(self.freed) < SLOTS - kept && self.sent.wrapping_sub(self.left) < SLOTS
    }

    /// Whether a message may be sent.
    pub fn may_send(&self) -> bool {
        self.room(1)
    }

    /// Whether a message without content is to be sent.
    pub fn must_tell(&self) -> bool {
        self.posted.wrapping_sub(self.told) >= SLOTS / 2 && self.room(0)
    }

    /// A message is sent: the slot of its memory, and what to say with it.
    pub fn send(&mut self) -> (u32, u32) {
        let slot = self.sent % SLOTS;
        self.sent = self.sent.wrapping_add(1);
        self.told = self.posted;
        (slot, self.posted)
    }

    /// The memory of the oldest message is free again.
    pub fn left(&mut self) {
        self.left = self.left.wrapping_add(1);
    }

    /// A receive is posted again.
    pub fn posted(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// The other end says how many receives it posted again.
    ///
    /// # Errors
    /// It takes something back, or says more than was sent.
    pub fn heard(&mut self, freed: u32) -> Result<(), Broken> {
        if freed.wrapping_sub(self.freed) > self.sent.wrapping_sub(self.freed) {
            return Err(Broken);
        }
        self.freed = freed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Broken, SLOTS, Window};
    use berth_random::Rng;
    use std::collections::VecDeque;

    /// An end, what is on its way to it (whether it has content, and what it says), and what it has not read.
    #[derive(Default)]
    struct End {
        window: Window,
        coming: VecDeque<(bool, u32)>,
        unread: u32,
        receives: u32,
        read: u32,
    }

    #[test]
    fn cr_15_messages_about_credits_find_a_receive_and_never_wait_for_each_other() {
        let first = berth_random::seed(12);
        for seed in first..first + 100 {
            let mut rng = Rng(seed);
            let mut ends = [End::default(), End::default()];
            ends.iter_mut().for_each(|end| end.receives = SLOTS);
            // Each has more to say than there are receives.
            let mut to_say = [rng.below(100) as u32, rng.below(100) as u32];
            let all = to_say;
            let mut steps = 0;
            while to_say != [0; 2] || ends[0].read != all[1] || ends[1].read != all[0] {
                steps += 1;
                assert!(steps < 100_000, "seed {seed}: they wait for each other");
                let at = rng.below(2) as usize;
                let content = to_say[at] != 0 && ends[at].window.may_send();
                match rng.below(4) {
                    0 if content || ends[at].window.must_tell() => {
                        let (slot, say) = ends[at].window.send();
                        assert!(slot < SLOTS);
                        to_say[at] -= u32::from(content);
                        ends[1 - at].coming.push_back((content, say));
                    }
                    1 => {
                        if let Some((content, say)) = ends[at].coming.pop_front() {
                            assert_ne!(ends[at].receives, 0, "seed {seed}: receiver not ready");
                            ends[at].receives -= 1;
                            ends[at].window.heard(say).unwrap();
                            ends[1 - at].window.left();
                            match content {
                                true => ends[at].unread += 1,
                                false => {
                                    ends[at].receives += 1;
                                    ends[at].window.posted();
                                }
                            }
                        }
                    }
                    2 if ends[at].unread != 0 => {
                        ends[at].unread -= 1;
                        ends[at].read += 1;
                        ends[at].receives += 1;
                        ends[at].window.posted();
                    }
                    _ => (),
                }
            }
            // And then it becomes quiet.
            for _ in 0..10 {
                for at in [0, 1] {
                    while let Some((_, say)) = ends[at].coming.pop_front() {
                        ends[at].window.heard(say).unwrap();
                        ends[at].window.posted();
                        ends[1 - at].window.left();
                    }
                    if ends[at].window.must_tell() {
                        let (_, say) = ends[at].window.send();
                        ends[1 - at].coming.push_back((false, say));
                    }
                }
            }
            assert!(ends.iter().all(|end| end.coming.is_empty()), "seed {seed}");
        }
    }

    #[test]
    fn cr_15_a_peer_that_counts_wrong_is_found() {
        let mut window = Window::default();
        assert_eq!(window.heard(1), Err(Broken));
        window.send();
        window.send();
        assert_eq!(window.heard(3), Err(Broken));
        assert_eq!(window.heard(2), Ok(()));
        assert_eq!(window.heard(1), Err(Broken));
        assert_eq!(window.heard(u32::MAX), Err(Broken));
    }
}
