// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker scripts to the linker.

use std::path::PathBuf;

fn main() {
    // A copy beside the build products: cargo may reuse this output for another checkout.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::copy("link.x", out.join("link.x")).expect("link.x is beside this file");
    println!("cargo::rerun-if-changed=link.x");
    println!("cargo::rerun-if-env-changed=DEFMT_LOG");
    println!("cargo::rustc-link-arg-bins=-T{}", out.join("link.x").display());
    println!("cargo::rustc-link-arg-bins=-Tdefmt.x");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
}
