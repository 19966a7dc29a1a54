// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers of credit lists: how RTL sends them (docs/reference/wire.md). The record behind them is the same on every carrier.

use super::ext::{Bth, Deth, Extended, Reth};
use super::opcode::Opcode;
use berth_abi::card::CONTROL_QPN;
use berth_abi::rows::send::{CARRIER_CONTROL, CARRIER_REVERSE, CARRIER_WRITE};
use berth_abi::wire::{BTH_UC_WRITE_ONLY, BTH_UD_SEND_ONLY, LIST_KEY, LIST_SLOT};

/// Headers of a credit list whose record has `len` bytes, from QP `from` to QP `to` (CR-12). `None`: there is no such carrier.
pub const fn list_headers(carrier: u32, from: u32, to: u32, qkey: u32, len: u32) -> Option<(Bth, Extended)> {
    let (opcode, qpn) = match carrier {
        CARRIER_CONTROL => (BTH_UD_SEND_ONLY, CONTROL_QPN),
        CARRIER_REVERSE => (BTH_UD_SEND_ONLY, to),
        CARRIER_WRITE => (BTH_UC_WRITE_ONLY, CONTROL_QPN),
        _ => return None,
    };
    let ext = match carrier {
        CARRIER_CONTROL => Extended { deth: Some(Deth { qkey, source_qpn: CONTROL_QPN }), ..Extended::NONE },
        CARRIER_REVERSE => Extended { deth: Some(Deth { qkey, source_qpn: from }), ..Extended::NONE },
        _ => {
            let va = (qkey as u64) << 32 | to.wrapping_mul(LIST_SLOT) as u64;
            Extended { reth: Some(Reth { va, rkey: LIST_KEY, len }), ..Extended::NONE }
        }
    };
    Some((Bth::new(Opcode(opcode), qpn, 0), ext))
}
