// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What libibverbs' dynamic linker will make of the library that the provider is built as.

use anyhow::{Context as _, Result, bail, ensure};
use object::elf::{DT_INIT_ARRAY, DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, Sym as _};
use object::{Endianness, SymbolIndex};

/// The library that calls the provider, and the version of the interface that they share.
const LIBRARY: &str = "libibverbs.so.1";
const VERSION: &str = "IBVERBS_PRIVATE_34";
/// How the functions of that interface begin.
const PREFIXES: [&str; 3] = ["ibv_", "verbs_", "_verbs_"];

/// Checks that a provider asks for libibverbs, has a constructor, by which it registers, and takes every function of
/// libibverbs in the version of the private interface; and that it gives no name to the program that loads it.
///
/// # Errors
/// Says what is wrong.
pub fn check(library: &[u8]) -> Result<()> {
    let header = FileHeader64::<Endianness>::parse(library).context("not an ELF file of 64 bits")?;
    let endian = header.endian()?;
    let sections = header.sections(endian, library)?;
    let (dynamic, strings) = sections.dynamic(endian, library)?.context("no dynamic section")?;
    let strings = sections.strings(endian, library, strings)?;
    let mut needed = Vec::new();
    for entry in dynamic.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED)) {
        needed.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
    }
    ensure!(needed.iter().any(|name| name == LIBRARY), "it needs {needed:?}, and not {LIBRARY}");
    ensure!(dynamic.iter().any(|entry| entry.tag32(endian) == Some(DT_INIT_ARRAY)), "it has no constructor");

    let symbols = sections.symbols(endian, library, object::elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, library)?.context("its symbols have no versions")?;
    let mut taken = 0;
    for (n, symbol) in symbols.iter().enumerate().skip(1) {
        let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned();
        let index = SymbolIndex(n);
        if !symbol.is_undefined(endian) {
            bail!("it exports {name}");
        }
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let version = versions.version(versions.version_index(endian, index))?;
        let version = version.map(|version| String::from_utf8_lossy(version.name()).into_owned());
        ensure!(version.as_deref() == Some(VERSION), "it takes {name} in version {version:?}, not {VERSION}");
        taken += 1;
    }
    ensure!(taken > 0, "it takes nothing of {LIBRARY}");
    Ok(())
}
