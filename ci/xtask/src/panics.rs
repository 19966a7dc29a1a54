// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks into the firmware's ELF file: does any path lead from the code of `berth-protocol` into a panic?
//!
//! Every jump and call of the program is decoded (RV32IM: all instructions have 4 bytes). The debug information says
//! for each from which source lines it comes, inlining included. A call into a panic belongs to the innermost function
//! on that stack that is not the standard library's. A function of the standard library that was not inlined and that
//! may panic is as good as a panic: so the search goes backwards from the panic handler through it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use addr2line::gimli::{self, EndianSlice, LittleEndian};
use anyhow::{Context as _, Result, bail};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, SymbolKind, elf};

/// What the search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Functions of the program.
    pub functions: usize,
    /// Functions of the standard library that end in a panic or may.
    pub panicking: usize,
    /// Calls to those from other crates than the one looked at: a search that sees none at all sees nothing.
    pub elsewhere: usize,
    /// Places of the crate that may panic: "file:line function → what it calls".
    pub places: Vec<String>,
    /// Source files of the crate that a panic message in the program's memory names.
    pub named: Vec<String>,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A jump or call out of a function.
struct Call {
    at: u64,
    to: u64,
}

/// Who wrote a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// Only the standard library.
    Library,
    /// The crate that is looked at, and where.
    Crate(String),
    /// Another crate.
    Other,
}

/// Looks for panics of the crate whose sources lie in `folder` (e.g. "firmware/protocol/src/") and whose name is `name`.
///
/// # Errors
/// When the file is not a RISC-V program with symbols and debug information, or has no panic handler.
pub fn search(file: &Path, folder: &str, name: &str) -> Result<Found> {
    let data = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let object = object::File::parse(&*data).context("not an object file")?;
    if object.architecture() != object::Architecture::Riscv32 {
        bail!("not a program for 32-bit RISC-V");
    }
    if let object::FileFlags::Elf { e_flags, .. } = object.flags()
        && e_flags & elf::EF_RISCV_RVC != 0
    {
        bail!("the program has compressed instructions, which this search does not decode");
    }
    let functions = functions(&object);
    let sections = gimli::DwarfSections::load(|id| -> Result<Cow<[u8]>> {
        Ok(object.section_by_name(id.name()).map_or(Ok(Cow::default()), |s| s.uncompressed_data())?)
    })?;
    let dwarf = sections.borrow(|data| Slice::new(data, LittleEndian));
    let lines = addr2line::Context::from_dwarf(dwarf).context("reading the debug information")?;

    // Calls by the function that they go to.
    let mut callers: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for section in object.sections().filter(|s| s.kind() == SectionKind::Text) {
        for call in calls(section.data()?, section.address()) {
            let (Some(from), Some(to)) = (function_at(&functions, call.at), function_at(&functions, call.to)) else {
                continue;
            };
            if from != to {
                callers.entry(to).or_default().push((call.at, from));
            }
        }
    }

    let is_handler = |symbol: &str| symbol.contains("rust_begin_unwind") || symbol.contains("panic_fmt");
    let mut todo: Vec<u64> = functions.iter().filter(|(_, f)| is_handler(&f.1)).map(|(at, _)| *at).collect();
    if todo.is_empty() {
        bail!("no panic handler in the program: nothing to search from");
    }
    let mut found = Found { functions: functions.len(), ..Found::default() };
    let mut places = BTreeSet::new();
    let mut panicking: BTreeSet<u64> = todo.iter().copied().collect();
    while let Some(target) = todo.pop() {
        for (at, from) in callers.get(&target).into_iter().flatten() {
            match owner(&lines, *at, folder, name, &functions[from].1)? {
                Owner::Library => {
                    if panicking.insert(*from) {
                        todo.push(*from);
                    }
                }
                Owner::Crate(place) => {
                    places.insert(format!("{place} → {}", short(&functions[&target].1)));
                }
                Owner::Other => found.elsewhere += 1,
            }
        }
    }
    found.panicking = panicking.len();
    found.places = places.into_iter().collect();
    found.named = named(&object, folder)?;
    Ok(found)
}

/// Functions by address: (size, demangled name).
fn functions(object: &object::File) -> BTreeMap<u64, (u64, String)> {
    let mut all: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    for symbol in object.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition()) {
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name().unwrap_or_default()));
        let entry = all.entry(symbol.address()).or_default();
        if symbol.size() >= entry.0 {
            *entry = (symbol.size(), name);
        }
    }
    all
}

/// The function that an address lies in. What is behind a function without a size (assembly) belongs to it.
fn function_at(functions: &BTreeMap<u64, (u64, String)>, address: u64) -> Option<u64> {
    let (start, (size, _)) = functions.range(..=address).next_back()?;
    (*size == 0 || address - start < *size).then_some(*start)
}

/// Jumps and calls of RV32IM code that lies at `base`.
fn calls(code: &[u8], base: u64) -> Vec<Call> {
    let words: Vec<u32> = code.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes"))).collect();
    let mut calls = Vec::new();
    for (i, &word) in words.iter().enumerate() {
        let at = base + 4 * i as u64;
        let register = word >> 7 & 31;
        match word & 0x7f {
            // JAL.
            0x6f => {
                let offset =
                    ((word as i32) >> 31 << 20) as u32 | word & 0xf_f000 | word >> 9 & 0x800 | word >> 20 & 0x7fe;
                calls.push(Call { at, to: u64::from((at as u32).wrapping_add(offset)) });
            }
            // AUIPC and a JALR over its register.
            0x17 => {
                if let Some(&next) = words.get(i + 1)
                    && next & 0x7f == 0x67
                    && next >> 15 & 31 == register
                {
                    let low = ((next as i32) >> 20) as u32;
                    let to = (at as u32).wrapping_add(word & 0xffff_f000).wrapping_add(low);
                    calls.push(Call { at: at + 4, to: u64::from(to) });
                }
            }
            _ => (),
        }
    }
    calls
}

/// Who wrote the call at an address.
fn owner(lines: &addr2line::Context<Slice>, at: u64, folder: &str, name: &str, symbol: &str) -> Result<Owner> {
    let mut frames = lines.find_frames(at).skip_all_loads()?;
    let mut within = Vec::new();
    while let Some(frame) = frames.next()? {
        let function = match &frame.function {
            Some(function) => format!("{:#}", rustc_demangle::demangle(&function.raw_name()?)),
            None => symbol.to_owned(),
        };
        if let Some((file, line)) = frame.location.as_ref().and_then(|l| Some((l.file?, l.line?))) {
            if let Some(start) = file.find(folder) {
                return Ok(Owner::Crate(format!("{}:{line} {}", &file[start..], short(&function))));
            }
            if !is_library(file) {
                return Ok(Owner::Other);
            }
        }
        within.push(function);
    }
    // Without a line (code that was merged): a function that names the crate is taken for it.
    if within.is_empty() || within.iter().any(|f| f.contains(name)) {
        let named = within.iter().find(|f| f.contains(name)).map_or(symbol, |f| f);
        return Ok(if named.contains(name) {
            Owner::Crate(format!("(line unknown) {}", short(named)))
        } else {
            Owner::Other
        });
    }
    Ok(Owner::Library)
}

/// Whether a source file is the standard library's.
fn is_library(file: &str) -> bool {
    file.contains("/library/core/") || file.contains("/library/alloc/") || file.starts_with("library/")
}

/// A function's name without its hash.
fn short(function: &str) -> &str {
    function.find("::h").filter(|at| function.len() - at == 19).map_or(function, |at| &function[..at])
}

/// Files of `folder` that loaded sections name.
fn named(object: &object::File, folder: &str) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    for section in object.sections() {
        let loaded =
            matches!(section.flags(), SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_ALLOC) != 0);
        if !loaded || section.kind() == SectionKind::UninitializedData {
            continue;
        }
        let data = section.data()?;
        for (i, window) in data.windows(folder.len()).enumerate() {
            if window == folder.as_bytes() {
                let end = data[i..].windows(3).position(|w| w == b".rs").map_or(folder.len(), |n| n + 3);
                files.insert(String::from_utf8_lossy(&data[i..i + end.min(200)]).into_owned());
            }
        }
    }
    Ok(files.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_calls_of_the_processor_are_decoded() {
        let code = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        // jal ra, +8; j -4; auipc ra, 1 and jalr ra, -4(ra); auipc t1, 0 and jr 8(t1); auipc and a jalr over another one.
        let words =
            [0x0080_00ef, 0xffdf_f06f, 0x0000_1097, 0xffc0_80e7, 0x0000_0317, 0x0083_0067, 0x0000_0317, 0x0000_80e7];
        let found: Vec<_> = calls(&code(&words), 0x100).iter().map(|c| (c.at, c.to)).collect();
        assert_eq!(found, [(0x100, 0x108), (0x104, 0x100), (0x10c, 0x1104), (0x114, 0x118)]);
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let functions =
            BTreeMap::from([(8, (8, "a".to_owned())), (16, (0, "b".to_owned())), (32, (4, "c".to_owned()))]);
        let at = |address| function_at(&functions, address);
        assert_eq!([at(4), at(8), at(15), at(20), at(33), at(36)], [None, Some(8), Some(8), Some(16), Some(32), None]);
    }

    #[test]
    fn hashes_are_cut_from_names() {
        assert_eq!(short("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(short("a::hello"), "a::hello");
    }
}
