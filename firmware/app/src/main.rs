// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Firmware of a Berth card: the main loop around `berth_protocol`.
//!
//! The core polls: a read of `CPU_WAIT` stalls it until an engine has something, and
//! tells what. Each kind of work is taken in bounded bursts, so that none starves the
//! others, the heartbeat least of all.
#![no_std]
#![no_main]

mod engines;
mod log;
mod panic;

use berth_abi::cpu::*;
use berth_abi::rows::event::Event;
use berth_abi::status::FW_RUNNING;
use berth_soc::{Soc, regs};
use core::cell::UnsafeCell;
use engines::Engines;

/// Events of one kind taken before another kind has its turn.
const BURST: usize = 8;

/// As many data QPs as the card has rows for.
type Card = berth_protocol::Card<{ berth_abi::card::NUM_QPS as usize }>;

struct CardCell(UnsafeCell<Card>);
// SAFETY: one hart, no interrupts, and `main` alone takes the reference, once.
unsafe impl Sync for CardCell {}
static CARD: CardCell = CardCell(UnsafeCell::new(Card::new()));

berth_rt::entry!(main, panic::trap);

/// Entered by the start code with RAM and stack set up.
extern "C" fn main() -> ! {
    let Some(mut soc) = Soc::take() else {
        panic!("main entered twice");
    };
    soc.stats.clear();
    defmt::info!("berth firmware {=str}", env!("CARGO_PKG_VERSION"));
    // SAFETY: the only use of the cell; `Soc::take` above lets nobody come here again.
    let card = unsafe { &mut *CARD.0.get() };
    let mut hw = Engines { soc };
    assert!(hw.rows_are_known(), "the fast path's rows have another layout");
    card.clear_rows(&mut hw);
    regs::set(&hw.soc.regs.status, FW_RUNNING);
    run(card, &mut hw)
}

fn run(card: &mut Card, hw: &mut Engines) -> ! {
    let r = hw.soc.regs;
    let mut more = false;
    loop {
        let pending = if more { r.pending.read() } else { r.wait.read() };
        let now = hw.soc.clock.now();
        let has = |bit: u32| pending & 1 << bit != 0;

        if has(PEND_HEARTBEAT) {
            regs::set(&r.hb_answer, r.hb_challenge.read());
        }
        // What frees slots comes before what takes them.
        if has(PEND_TX_DONE) {
            for _ in 0..BURST {
                let done = TxDone::from_word(r.tx_done.read());
                if done.valid == 0 {
                    break;
                }
                card.tx_done(done.slot);
            }
        }
        // Before frames: what breaks a connection here is named here before the peer, which has been told, ends it.
        if has(PEND_FAST) {
            for _ in 0..BURST {
                let event = Event::from_word(u64::from(r.fast_event.read()) << 32);
                if event.code == 0 {
                    break;
                }
                let arg = r.fast_arg.read();
                card.fast_event(now, event.code as u32, event.qpn as u32, arg, hw);
            }
        }
        if has(PEND_RX) {
            for _ in 0..BURST {
                let desc = RxDesc::from_word(r.rx_desc.read());
                if desc.valid == 0 {
                    break;
                }
                let flags = r.rx_flags.read();
                regs::set(&r.rx_pop, 1);
                card.rx(now, desc.slot, desc.length, flags, hw);
                if card.has_news() {
                    break;
                }
            }
        }
        if has(PEND_DOORBELL) {
            for _ in 0..BURST {
                let bell = DbPop::from_word(r.db_pop.read());
                if bell.valid == 0 {
                    break;
                }
                let index = DbIndex::from_word(r.db_index.read());
                card.doorbell(bell.qpn, index.send as u16, index.receive as u16, hw);
            }
        }
        if has(PEND_TIMER) {
            // Off first: the card arms the next one.
            regs::set(&r.timer_off, 1);
            card.timer(now, hw);
        }
        if has(PEND_CMD) && card.command_ready() {
            let mut words = [0u32; 16];
            for (word, cell) in words.iter_mut().zip(&r.cmd) {
                *word = cell.read();
            }
            regs::set(&r.cmd_pop, 1);
            card.command(now, &words, hw);
        }

        more = card.poll(now, hw);
        if !berth_rt::stack_is_sound() {
            panic::stack_overflow();
        }
        // What somebody waits for comes first.
        if !more {
            log::flush(&mut hw.soc);
        }
    }
}
