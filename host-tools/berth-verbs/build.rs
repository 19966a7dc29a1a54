// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a library that stands for `libibverbs.so.1` while the provider is linked: the functions that `rdma_core.rs` declares,
//! empty, in the version that they have there. So the provider names its library and the version of the private interface,
//! and building it takes neither rdma-core's source, which alone has that interface, nor libibverbs.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const DECLARATIONS: &str = "src/rdma_core.rs";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={DECLARATIONS}");
    println!("cargo::rerun-if-env-changed=CC");
    let text = fs::read_to_string(DECLARATIONS)?;
    let block = text.split("unsafe extern \"C\" {").nth(1).and_then(|rest| rest.split("\n}").next());
    let names: Vec<&str> = block
        .ok_or("no extern block")?
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub fn ")?.split('(').next())
        .collect();
    let version = names.iter().find_map(|name| name.strip_prefix("verbs_register_driver_"));
    let version = version.ok_or("no version of the private interface")?;

    let out = env::var("OUT_DIR")?;
    let [source, script, library] = ["stub.c", "stub.map", "libibverbs.so.1"].map(|name| Path::new(&out).join(name));
    fs::write(&source, names.iter().map(|name| format!("void {name}(void) {{}}\n")).collect::<String>())?;
    fs::write(&script, format!("IBVERBS_PRIVATE_{version} {{ global: {}; local: *; }};\n", names.join("; ")))?;
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libibverbs.so.1"])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg("-o")
        .args([&library, &source])
        .status()
        .map_err(|e| format!("starting {compiler}: {e}"))?;
    if !status.success() {
        return Err(format!("{compiler} did not make {}", library.display()).into());
    }
    println!("cargo::rustc-link-arg-cdylib={}", library.display());
    Ok(())
}
