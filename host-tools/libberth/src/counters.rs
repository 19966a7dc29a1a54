// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters by name, from the tables of berth-abi.

use berth_abi::{counters, ioctl};

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its layer: `rtl`, `fw` or `drv`.
    pub layer: &'static str,
    /// Its name in lower case without the table's prefix: `tx_frames`.
    pub name: &'static str,
    /// What it counts.
    pub text: &'static str,
    /// Its value.
    pub value: u64,
}

/// All counters of a card and its driver at one time.
#[derive(Clone, Debug)]
pub struct Counters {
    raw: ioctl::Counters,
}

impl Counters {
    pub(crate) fn new(raw: ioctl::Counters) -> Self {
        Self { raw }
    }

    /// RTL counter by index (`C_*`).
    pub fn rtl(&self, index: u32) -> u64 {
        self.raw.rtl.get(index as usize).copied().unwrap_or(0)
    }

    /// Firmware counter by index (`F_*`).
    pub fn fw(&self, index: u32) -> u64 {
        self.raw.fw.get(index as usize).copied().unwrap_or(0)
    }

    /// Driver counter or gauge by index (`D_*`).
    pub fn drv(&self, index: u32) -> u64 {
        self.raw.drv.get(index as usize).copied().unwrap_or(0)
    }

    /// Data packets sent, those sent again included.
    pub fn data_packets(&self) -> u64 {
        self.rtl(counters::C_FP_PACKETS)
    }

    /// Data packets sent again.
    pub fn retransmitted(&self) -> u64 {
        self.rtl(counters::C_FP_AGAIN)
    }

    /// Payload bytes sent, those sent again included, inline data not.
    pub fn bytes_sent(&self) -> u64 {
        self.rtl(counters::C_FP_BYTES_SENT)
    }

    /// Payload bytes placed in receive buffers.
    pub fn bytes_placed(&self) -> u64 {
        self.rtl(counters::C_FP_BYTES_PLACED)
    }

    /// Blocks asked for sending.
    pub fn send_blocks(&self) -> u64 {
        self.rtl(counters::C_FP_BLOCKS)
    }

    /// Queue elements that were malformed, those behind the one that ended their connection included.
    pub fn bad_elements(&self) -> u64 {
        self.rtl(counters::C_FP_BAD_WQE)
    }

    /// Bytes pinned now on the card, for all processes together. [`Context::pinned`](crate::Context::pinned) has a
    /// process's own.
    pub fn pinned(&self) -> u64 {
        self.drv(counters::D_PINNED)
    }

    /// Most bytes pinned on the card, for all processes together, since the peak was reset.
    pub fn pinned_peak(&self) -> u64 {
        self.drv(counters::D_PINNED_PEAK)
    }

    /// All counters in the order of the tables.
    pub fn iter(&self) -> impl Iterator<Item = Named> + '_ {
        let layer = |layer, prefix, table: &'static [(&'static str, u64, &'static str)], values: &'_ [u64]| {
            let values = values.to_vec();
            table.iter().map(move |&(name, index, text)| Named {
                layer,
                name: name.strip_prefix(prefix).unwrap_or(name),
                text: text.trim(),
                value: values.get(index as usize).copied().unwrap_or(0),
            })
        };
        layer("rtl", "C_", counters::RTL_COUNTER_TABLE, &self.raw.rtl)
            .chain(layer("fw", "F_", counters::FW_COUNTER_TABLE, &self.raw.fw))
            .chain(layer("drv", "D_", counters::DRV_COUNTER_TABLE, &self.raw.drv))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_tables_has_a_name_and_its_own_value() {
        let mut raw = ioctl::Counters::ZERO;
        for (i, v) in raw.rtl.iter_mut().enumerate() {
            *v = i as u64;
        }
        for (i, v) in raw.fw.iter_mut().enumerate() {
            *v = 100 + i as u64;
        }
        for (i, v) in raw.drv.iter_mut().enumerate() {
            *v = 200 + i as u64;
        }
        let counters = Counters::new(raw);
        let all: Vec<Named> = counters.iter().collect();
        assert_eq!(all.len(), counters::NUM_RTL_COUNTERS + counters::NUM_FW_COUNTERS + counters::NUM_DRV_COUNTERS);
        let tables = counters::RTL_COUNTER_TABLE.iter().map(|row| row.1);
        let tables = tables.chain(counters::FW_COUNTER_TABLE.iter().map(|row| 100 + row.1));
        let tables = tables.chain(counters::DRV_COUNTER_TABLE.iter().map(|row| 200 + row.1));
        assert!(all.iter().map(|counter| counter.value).eq(tables));
        assert_eq!((all[1].layer, all[1].name, all[1].value), ("rtl", "TX_BYTES", 1));
        assert_eq!(counters.pinned_peak(), 201);
    }
}
