// SPDX-License-Identifier: GPL-2.0
//! Has the driver's call for tests of firmware that fails in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(CONFIG_BERTH_DEBUG, berth_debug)");
    println!("cargo::rustc-cfg=berth_debug");
}
