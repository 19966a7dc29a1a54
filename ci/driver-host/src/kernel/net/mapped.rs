// SPDX-License-Identifier: GPL-2.0
//! Packets that are mapped for the card: it panics if it uses others.

use crate::kernel::net::skb::SkBuff;
use crate::memory::surroundings;
use kernel::device::{Bound, Device};
use kernel::prelude::*;
use kernel::world::world;

pub(crate) trait DmaDevice: Clone + Send + Sync {
    fn device(&self) -> &Device<Bound>;
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Range {
    pub(crate) addr: u64,
    pub(crate) bytes: u32,
}

struct Mapping<D> {
    ranges: Vec<Range>,
    _dev: D,
}

impl<D> Mapping<D> {
    fn new(dev: D, parts: &[Vec<u8>]) -> Result<Self> {
        if world().fails(false) {
            return Err(ENOMEM);
        }
        let range = |part: &Vec<u8>| Range { addr: part.as_ptr() as u64, bytes: part.len() as u32 };
        let ranges: Vec<Range> = parts.iter().map(range).collect();
        for range in &ranges {
            surroundings().hardware.borrow_mut().packets.insert(range.addr, range.bytes);
        }
        Ok(Self { ranges, _dev: dev })
    }
}

impl<D> Drop for Mapping<D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for range in &self.ranges {
            surroundings().hardware.borrow_mut().packets.remove(&range.addr);
        }
    }
}

pub(crate) struct Mapped<D: DmaDevice, const N: usize> {
    mapping: Mapping<D>,
    skb: SkBuff,
}

impl<D: DmaDevice, const N: usize> Mapped<D, N> {
    pub(crate) fn to_device(dev: &D, skb: SkBuff) -> Result<Self> {
        if !(1..=N as u32).contains(&skb.parts()) {
            return Err(EMSGSIZE);
        }
        Ok(Self { mapping: Mapping::new(dev.clone(), &skb.parts)?, skb })
    }

    pub(crate) fn from_device(dev: &D, skb: SkBuff, bytes: u32) -> Result<Self> {
        assert_eq!((skb.len(), skb.room), (0, bytes));
        Ok(Self { mapping: Mapping::new(dev.clone(), &skb.parts)?, skb })
    }

    pub(crate) fn skb(&self) -> &SkBuff {
        &self.skb
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        &self.mapping.ranges
    }

    pub(crate) fn unmap(self) -> SkBuff {
        drop(self.mapping);
        self.skb
    }
}
