// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the linker script, with the RAM's size, where the linkers of the programs look for it (`-Tlink.x`).

use std::path::PathBuf;

fn main() {
    // A copy beside the build products: cargo may reuse this output for another checkout.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let script = std::fs::read_to_string("link.x").expect("link.x is beside this file");
    let length = format!("LENGTH = {:#x}", berth_abi::card::FW_RAM_BYTES);
    std::fs::write(out.join("link.x"), script.replace("LENGTH = FW_RAM_BYTES", &length))
        .expect("cargo made the folder");
    println!("cargo::rerun-if-changed=link.x");
    println!("cargo::rustc-link-search={}", out.display());
}
