// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker scripts to the linker.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed=link.x");
    println!("cargo::rerun-if-env-changed=DEFMT_LOG");
    println!("cargo::rustc-link-arg-bins=-T{dir}/link.x");
    println!("cargo::rustc-link-arg-bins=-Tdefmt.x");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
}
