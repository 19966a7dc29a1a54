// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of the cards' counters over card cycles, as lines of JSON, for plots.

use serde_json::Value;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tracing::error;

/// Samples beside the wire's counts: key in the line, counters of the abi that are added up.
///
/// Each costs a register read of a few cycles, so there are not many.
pub const SAMPLED: &[(&str, &[&str])] = &[
    ("bytes_sent", &["C_FP_BYTES_SENT"]),
    ("bytes_placed", &["C_FP_BYTES_PLACED"]),
    ("retransmitted", &["C_FP_AGAIN"]),
    ("credits_sent", &["C_CREDITS_SENT"]),
    ("fast_landed", &["C_FP_LANDED"]),
    ("fast_events", &["F_FAST_EVENTS"]),
    ("lists_sent", &["C_LISTS_SENT"]),
    ("idle_cycles", &["C_IDLE_CYCLES"]),
];

/// A file of samples.
#[derive(Debug)]
pub struct Recorder {
    every: u64,
    file: Mutex<BufWriter<File>>,
}

impl Recorder {
    /// Creates the file; a card is sampled about every `every` cycles (at least 1000) while it works.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path, every: u64) -> io::Result<Self> {
        Ok(Self { every: every.max(1000), file: Mutex::new(BufWriter::new(File::create(path)?)) })
    }

    /// Cycles between two samples of a card.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Writes a sample.
    pub fn line(&self, sample: &Value) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = writeln!(file, "{sample}") {
            error!("record file: {e}");
        }
    }

    /// Writes out everything.
    pub fn finish(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = file.flush() {
            error!("record file: {e}");
        }
    }
}
