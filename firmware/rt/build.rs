// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the linker script where the linkers of the programs look for it (`-Tlink.x`).

use std::path::PathBuf;

fn main() {
    // A copy beside the build products: cargo may reuse this output for another checkout.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::copy("link.x", out.join("link.x")).expect("link.x is beside this file");
    println!("cargo::rerun-if-changed=link.x");
    println!("cargo::rustc-link-search={}", out.display());
}
