// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names the linker script, that of `berth-rt`.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
}
