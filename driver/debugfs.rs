// SPDX-License-Identifier: GPL-2.0
//! Counters, budgets and pinned pages of a card in debugfs: `/sys/kernel/debug/berth/berthN/`.

use crate::{
    abi::counters::*,
    card::{Card, PAGE},
};
use kernel::{
    debugfs::{Dir, Scope},
    fmt,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// What the files of one card show.
pub(crate) type Files = Scope<Arc<Card>>;

/// Makes the directory of a card.
pub(crate) fn files<'a>(
    root: &'a Dir,
    name: &'a CStr,
    card: Arc<Card>,
) -> impl PinInit<Files> + 'a {
    root.scope(card, name, |card, dir| {
        dir.read_callback_file(c"counters", card, &counters);
        dir.read_callback_file(c"budget", card, &budget);
        dir.read_callback_file(c"pages", card, &pages);
    })
}

fn counters(card: &Arc<Card>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rtl = [0; NUM_RTL_COUNTERS];
    let mut fw = [0; NUM_FW_COUNTERS];
    card.regs.counters(&mut rtl, &mut fw);
    for ((name, _, _), value) in RTL_COUNTER_TABLE.iter().zip(rtl) {
        writeln!(f, "{} {}", name, value)?;
    }
    for ((name, _, _), value) in FW_COUNTER_TABLE.iter().zip(fw) {
        writeln!(f, "{} {}", name, value)?;
    }
    for (name, index, _) in DRV_COUNTER_TABLE {
        writeln!(f, "{} {}", name, card.drv_counter(*index as u32))?;
    }
    Ok(())
}

fn budget(card: &Arc<Card>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let budget = *card.budget.lock();
    writeln!(f, "state {:?}", card.state())?;
    writeln!(f, "linger_ms {}", card.linger_ms.load(Relaxed))?;
    writeln!(f, "limit {}", budget.limit * PAGE)?;
    writeln!(f, "pinned {}", budget.pinned * PAGE)?;
    writeln!(f, "pinned_for_receive {}", budget.receive * PAGE)?;
    for asid in 1..crate::abi::card::NUM_ASIDS {
        if let Some(context) = card.context(asid) {
            let budget = context.space.lock().budget;
            writeln!(
                f,
                "asid {} limit {} pinned {}",
                asid,
                budget.limit * PAGE,
                budget.pinned * PAGE
            )?;
        }
    }
    Ok(())
}

fn pages(card: &Arc<Card>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for asid in 1..crate::abi::card::NUM_ASIDS {
        if let Some(context) = card.context(asid) {
            context.show(f)?;
        }
    }
    Ok(())
}
