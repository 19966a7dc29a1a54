// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Of the `kernel` crate what the driver's page service, contexts and card need, on the host.
//!
//! Names and meaning are those of the kernel's; what is behind them is as simple as can be, and belongs to a test: time
//! and order of threads ([`world`]), memory that is short. It panics on what the kernel would complain of or hang in: a
//! lock that is taken twice or in another order, sleeping under a spin lock.

#![allow(missing_docs, clippy::missing_errors_doc, clippy::undocumented_unsafe_blocks)]

pub mod alloc;
pub mod device;
pub mod error;
pub mod firmware;
pub mod log;
pub mod misc;
pub mod mm;
pub mod pci;
pub mod rbtree;
pub mod sync;
pub mod time;
pub mod user;
pub mod workqueue;
pub mod world;

pub use core::fmt;
pub use mm::bindings;

/// Interrupts.
pub mod irq {
    pub enum IrqReturn {
        None,
        Handled,
    }

    pub trait ThreadedHandler {
        fn handle_threaded(&self) -> IrqReturn;
    }
}

/// Pages of memory.
pub mod page {
    pub const PAGE_SHIFT: usize = 12;
    pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
}

/// Memory that card and driver share.
pub use device::dma;

/// Registers, and what is given back when a device is unbound.
pub use pci::{devres, io};

/// The calling process.
pub use mm::task;

pub use user::{transmute, uaccess};

/// Open files.
pub mod fs {
    pub use crate::misc::File;
}

/// Device nodes.
pub mod miscdevice {
    pub use crate::misc::{MiscDevice, MiscDeviceRegistration};
}

/// Numbers of calls.
pub mod ioctl {
    /// Bytes that a call takes.
    #[allow(non_snake_case)]
    #[must_use]
    pub const fn _IOC_SIZE(cmd: u32) -> usize {
        (cmd >> 16 & 0x3fff) as usize
    }
}

/// The module.
pub struct ThisModule;

#[macro_export]
macro_rules! static_assert {
    ($condition:expr) => {
        const _: () = assert!($condition);
    };
}

/// What every file has.
pub mod prelude {
    pub use crate::alloc::{__GFP_NOWARN, ArcExt as _, GFP_ATOMIC, GFP_KERNEL, KVVec, KVec};
    pub use crate::error::{Error, Result, code::*};
    pub use crate::firmware::CStrExt as _;
    pub use crate::misc::{KBox, PinnedDrop};
    pub use crate::uaccess::UserPtr;
    pub use crate::{dev_err, dev_info, dev_warn, pin_init, pr_err, pr_info, pr_warn, try_pin_init};
    pub use berth_driver_host_macros::{pin_data, pinned_drop, vtable};
    pub use core::ffi::{CStr, c_int, c_uint, c_ulong};
    pub use core::fmt::Write as _;
    pub use core::pin::Pin;
}

/// A struct, whose fields are values or made by what stands behind `<-`.
#[macro_export]
macro_rules! pin_init {
    ($name:ident { $($rest:tt)* }) => { $crate::__fields!($name { } $($rest)*) };
}

/// The same where a field may fail, which here leaves the function.
#[macro_export]
macro_rules! try_pin_init {
    ($name:ident { $($rest:tt)* } ? $error:ty) => { $crate::__fields!($name { } $($rest)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __fields {
    ($name:ident { $($done:tt)* }) => { $name { $($done)* } };
    ($name:ident { $($done:tt)* } $field:ident <- $value:expr, $($rest:tt)*) => {
        $crate::__fields!($name { $($done)* $field: $value, } $($rest)*)
    };
    ($name:ident { $($done:tt)* } $field:ident : $value:expr, $($rest:tt)*) => {
        $crate::__fields!($name { $($done)* $field: $value, } $($rest)*)
    };
    ($name:ident { $($done:tt)* } $field:ident, $($rest:tt)*) => {
        $crate::__fields!($name { $($done)* $field, } $($rest)*)
    };
}

/// A line of the log.
#[macro_export]
macro_rules! dev_warn {
    ($dev:expr, $format:literal $(, $arg:expr)* $(,)?) => {{
        let _ = &$dev;
        $crate::pr_info!($format $(, $arg)*);
    }};
}

#[macro_export]
macro_rules! dev_err { ($($args:tt)*) => { $crate::dev_warn!($($args)*) }; }

#[macro_export]
macro_rules! dev_info { ($($args:tt)*) => { $crate::dev_warn!($($args)*) }; }

#[macro_export]
macro_rules! pr_err { ($($args:tt)*) => { $crate::pr_info!($($args)*) }; }

#[macro_export]
macro_rules! pr_warn { ($($args:tt)*) => { $crate::pr_info!($($args)*) }; }

#[macro_export]
macro_rules! pr_info {
    ($format:literal $(, $arg:expr)* $(,)?) => {
        $crate::world::world().note(format!($format $(, $crate::log::Shown(&$arg))*))
    };
}
