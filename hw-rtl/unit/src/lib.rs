// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single modules of the card's RTL, Verilated, for benches that play everything around them.
//!
//! [`Module::new`] makes one by its name; its ports are found by their names in the SystemVerilog and may be of any
//! width. The feature `fastpath` builds the modules; `BERTH_UNITS` chooses some of them (see build.rs).

#[cfg(feature = "fastpath")]
mod command;
#[cfg(feature = "fastpath")]
pub use command::Op;
#[cfg(feature = "fastpath")]
mod ffi;
#[cfg(feature = "fastpath")]
pub use ffi::{Module, Port};
#[cfg(feature = "fastpath")]
mod named;
#[cfg(feature = "fastpath")]
pub use named::Named;
