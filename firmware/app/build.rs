// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names the linker scripts: that of `berth-rt`, and defmt's.

fn main() {
    println!("cargo::rerun-if-env-changed=DEFMT_LOG");
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rustc-link-arg-bins=-Tdefmt.x");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
}
