// SPDX-License-Identifier: GPL-2.0
//! Counters, budgets and pinned pages of a card in debugfs: `/sys/kernel/debug/berth/berthN/`.

use crate::{abi::counters::*, card::PAGE, process::Registry};
use kernel::{
    debugfs::{Dir, Scope},
    fmt,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// What the files of one card show.
pub(crate) type Files = Scope<Arc<Registry>>;

/// Makes the directory of a card.
pub(crate) fn files<'a>(
    root: &'a Dir,
    name: &'a CStr,
    registry: Arc<Registry>,
) -> impl PinInit<Files> + 'a {
    root.scope(registry, name, |registry, dir| {
        dir.read_callback_file(c"counters", registry, &counters);
        dir.read_callback_file(c"budget", registry, &budget);
        dir.read_callback_file(c"pages", registry, &pages);
    })
}

fn counters(registry: &Arc<Registry>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rtl = [0; NUM_RTL_COUNTERS];
    let mut fw = [0; NUM_FW_COUNTERS];
    registry.card.regs.counters(&mut rtl, &mut fw);
    for ((name, _, _), value) in RTL_COUNTER_TABLE.iter().zip(rtl) {
        writeln!(f, "{} {}", name, value)?;
    }
    for ((name, _, _), value) in FW_COUNTER_TABLE.iter().zip(fw) {
        writeln!(f, "{} {}", name, value)?;
    }
    for (name, index, _) in DRV_COUNTER_TABLE {
        writeln!(f, "{} {}", name, registry.pages.drv_counter(*index as u32))?;
    }
    Ok(())
}

fn budget(registry: &Arc<Registry>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let budget = *registry.pages.budget.lock();
    writeln!(f, "state {:?}", registry.card.state())?;
    writeln!(f, "linger_ms {}", registry.pages.linger_ms.load(Relaxed))?;
    writeln!(f, "limit {}", budget.limit * PAGE)?;
    writeln!(f, "pinned {}", budget.pinned * PAGE)?;
    writeln!(f, "pinned_for_receive {}", budget.receive * PAGE)?;
    let (copies, most) = {
        let pool = registry.pages.pool.lock();
        (pool.used, pool.limit)
    };
    writeln!(f, "copies {} limit {}", copies * PAGE, most * PAGE)?;
    for asid in 1..crate::abi::card::NUM_ASIDS {
        if let Some(space) = registry.pages.space(asid) {
            let budget = space.lock().budget;
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

fn pages(registry: &Arc<Registry>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for asid in 1..crate::abi::card::NUM_ASIDS {
        if let Some(space) = registry.pages.space(asid) {
            space.show(f)?;
        }
    }
    Ok(())
}
