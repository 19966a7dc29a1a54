// SPDX-License-Identifier: GPL-2.0
//! Loading of firmware: there is some at once.

use crate::abi::host::HOST_FW_BOOT;
use crate::card::Card;
use kernel::prelude::*;

pub(crate) fn load(card: &Card) -> Result {
    card.regs.write(HOST_FW_BOOT, 0);
    Ok(())
}
