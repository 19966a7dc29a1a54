// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the soft core of a Berth card has around it: engine registers, packet RAM,
//! statistics RAM and the cycle counter.
//!
//! The addresses, offsets and meanings come from `berth_abi::cpu`; [`regs`] checks at
//! compile time that its register block lies as the ABI says. All of the unsafe code
//! that touches hardware is in this crate, in [`Soc::take`], in [`cache`] and in the
//! accessors of [`pkt`], [`fast`] and [`stats`].
#![no_std]

pub mod cache;
pub mod fast;
pub mod pkt;
pub mod regs;
pub mod stats;
pub mod time;

use core::sync::atomic::{AtomicBool, Ordering};

/// Everything around the core. There is one, see [`Soc::take`].
pub struct Soc {
    /// Engine registers.
    pub regs: &'static regs::Regs,
    /// Packet RAM.
    pub pkt: pkt::PacketRam,
    /// Rows of the fast path.
    pub fast: fast::Fast,
    /// Statistics RAM.
    pub stats: stats::Stats,
    /// The cycle counter.
    pub clock: time::Clock,
}

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Soc {
    /// Hands out the hardware, once. The core has one hart and takes no interrupts, so
    /// a load and a store are enough to keep "once".
    pub fn take() -> Option<Soc> {
        if TAKEN.load(Ordering::Relaxed) {
            return None;
        }
        TAKEN.store(true, Ordering::Relaxed);
        // SAFETY: first and only call, on the card's soft core, as this crate's target is.
        Some(unsafe { Soc::steal() })
    }

    /// Hands out the hardware again, for panic and trap handlers.
    ///
    /// # Safety
    /// Nobody else may use the hardware afterwards: the caller must not return to code
    /// that holds another `Soc`. Only on the card's soft core.
    pub unsafe fn steal() -> Soc {
        // SAFETY: the register block is always mapped at this address on the soft core.
        let regs: &'static regs::Regs = unsafe { &*(berth_abi::cpu::CPU_REGS as usize as *const regs::Regs) };
        Soc {
            regs,
            // SAFETY: the callers of `steal` guarantee that there is one user.
            pkt: unsafe { pkt::PacketRam::new() },
            // SAFETY: as above.
            fast: unsafe { fast::Fast::new() },
            // SAFETY: as above.
            stats: unsafe { stats::Stats::new() },
            clock: time::Clock::new(regs),
        }
    }
}
