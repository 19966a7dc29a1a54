// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Feature `tcp-options`: compiles the program that the kernel runs for each TCP segment. That takes Clang, and the kernel's
//! user headers.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/tcp_options/lists.bpf.c";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed={SOURCE}");
    if env::var_os("CARGO_FEATURE_TCP_OPTIONS").is_none() {
        return Ok(());
    }
    let folder = env::var_os("OUT_DIR").ok_or("cargo names no folder for what is built")?;
    let object = PathBuf::from(folder).join("lists.bpf.o");
    // Where Debian has <asm/types.h>, which Clang looks for in a folder of the target.
    let headers = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default());
    let mut clang = Command::new("clang");
    // The debug information describes the maps.
    clang.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-idirafter", &headers]);
    clang.args(["-c", SOURCE, "-o"]).arg(object);
    match clang.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("clang does not compile {SOURCE}: {status}")),
        Err(error) => Err(format!("feature tcp-options needs clang, which does not start: {error}")),
    }
}
