// SPDX-License-Identifier: GPL-2.0
//! The log of firmware.

use crate::card::{parts::LOG_BYTES, Card};

impl Card {
    /// Keeps log bytes for `IOC_READ_LOG`; the oldest give way.
    pub(crate) fn log(&self, data: &[u8]) {
        let mut log = self.log.lock();
        for byte in data {
            if log.len == LOG_BYTES {
                log.head = (log.head + 1) % LOG_BYTES;
                log.len -= 1;
                log.lost = log.lost.saturating_add(1);
            }
            let at = (log.head + log.len) % LOG_BYTES;
            log.bytes[at] = *byte;
            log.len += 1;
        }
    }

    /// Counts log bytes that nobody has received as lost.
    pub(crate) fn lose_log(&self, bytes: usize) {
        let mut log = self.log.lock();
        log.lost = log.lost.saturating_add(bytes as u32);
    }

    /// Moves log bytes to `out`; gives their number and how many were lost before them.
    pub(crate) fn take_log(&self, out: &mut [u8]) -> (usize, u32) {
        let mut log = self.log.lock();
        let n = log.len.min(out.len());
        for byte in &mut out[..n] {
            *byte = log.bytes[log.head];
            log.head = (log.head + 1) % LOG_BYTES;
        }
        log.len -= n;
        (n, core::mem::take(&mut log.lost))
    }
}
