// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks into a program for the soft core: does any path lead from the code of `berth-protocol` into a panic?
//!
//! Every jump, branch and call is decoded ([`crate::riscv`]). The debug information says for each from which source
//! lines it comes, inlining included. A call into a panic belongs to the innermost function on that stack that is not
//! the standard library's. A function of the standard library that was not inlined and may panic counts as a panic, so
//! the search goes backwards from the panic handler through it.
//!
//! A call through a register may go to any function whose address is taken: one that stands in the program's data, or
//! that some code could put together from constants. As soon as one of these may panic, all such calls may.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use addr2line::gimli::{self, EndianSlice, LittleEndian};
use anyhow::{Context as _, Result, bail};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, SymbolKind, elf};

use crate::riscv;

/// What the search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Functions of the program.
    pub functions: usize,
    /// Functions of the standard library that end in a panic or may.
    pub panicking: usize,
    /// Calls to those from other crates than the one looked at, as "file:line function": a search that finds none at
    /// all does not work.
    pub elsewhere: BTreeSet<String>,
    /// Calls through registers.
    pub indirect: usize,
    /// Functions whose address is taken, to which those may go.
    pub taken: usize,
    /// Functions that call themselves, or each other in a circle.
    pub recursive: Vec<String>,
    /// Lines of the crate that became code, by file.
    pub linked: BTreeMap<String, BTreeSet<u32>>,
    /// Places of the crate that may panic: "file:line function → what it calls".
    pub places: Vec<String>,
    /// Source files of the crate that a panic message in the program's memory names.
    pub named: Vec<String>,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Stands for whatever a register points to, among the functions that are called.
const ANYWHERE: u64 = u64::MAX;

/// Whose source a call comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// Only the standard library.
    Library,
    /// The crate that is looked at, and where.
    Crate(String),
    /// Another crate, and where.
    Other(String),
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

    let Calls { callers, indirect, taken } = calls(&object, &functions)?;
    let circles = circles(&callers, &taken);

    let is_handler = |symbol: &str| symbol.contains("rust_begin_unwind") || symbol.contains("panic_fmt");
    let mut todo: Vec<u64> = functions.iter().filter(|(_, f)| is_handler(&f.1)).map(|(at, _)| *at).collect();
    if todo.is_empty() {
        bail!("no panic handler in the program: nothing to search from");
    }
    let mut found = Found { functions: functions.len(), indirect, taken: taken.len(), ..Found::default() };
    let mut places = BTreeSet::new();
    let mut panicking: BTreeSet<u64> = todo.iter().copied().collect();
    while let Some(target) = todo.pop() {
        if taken.contains(&target) && panicking.insert(ANYWHERE) {
            todo.push(ANYWHERE);
        }
        for (at, from) in callers.get(&target).into_iter().flatten().filter(|(_, from)| *from != target) {
            match owner(&lines, *at, folder, name, &functions[from].1)? {
                Owner::Library => {
                    if panicking.insert(*from) {
                        todo.push(*from);
                    }
                }
                Owner::Crate(place) => {
                    let target = functions.get(&target).map_or("a function pointer", |f| short(&f.1));
                    places.insert(format!("{place} → {target}"));
                }
                Owner::Other(place) => _ = found.elsewhere.insert(place),
            }
        }
    }
    let name = |at: &u64| functions.get(at).map_or("a function pointer", |f| short(&f.1)).to_owned();
    found.recursive = circles.iter().map(name).collect();
    panicking.remove(&ANYWHERE);
    found.panicking = panicking.len();
    found.places = places.into_iter().collect();
    found.named = named(&object, folder)?;
    found.linked = linked(&object, &lines, folder)?;
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

/// The calls between functions.
struct Calls {
    /// By the function that is called, or [`ANYWHERE`]: where the call stands, and in which function.
    callers: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Calls to [`ANYWHERE`].
    indirect: usize,
    /// Functions whose address is taken.
    taken: BTreeSet<u64>,
}

/// All calls from one function to another.
fn calls(object: &object::File, functions: &BTreeMap<u64, (u64, String)>) -> Result<Calls> {
    let words = data_words(object)?;
    let mut all = Calls { callers: BTreeMap::new(), indirect: 0, taken: BTreeSet::new() };
    all.taken.extend(words.values().map(|word| u64::from(*word)).filter(|word| functions.contains_key(word)));
    for section in object.sections().filter(|s| s.kind() == SectionKind::Text) {
        let (code, base) = (section.data()?, section.address());
        let end = base + code.len() as u64;
        let mut starts: Vec<u64> = functions.range(base..end).map(|(at, _)| *at).collect();
        starts.push(end);
        for pair in starts.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            let inside = |word: &u32| (start + 1..end).contains(&u64::from(*word));
            let table = |at: u32| words.get(&at).is_some_and(inside);
            let flow = riscv::flow(&code[(start - base) as usize..(end - base) as usize], start, table);
            all.taken.extend(flow.constants.iter().map(|c| u64::from(*c)).filter(|c| functions.contains_key(c)));
            for jump in flow.jumps {
                let to = jump.to.map_or(Some(ANYWHERE), |to| function_at(functions, to));
                all.indirect += usize::from(to == Some(ANYWHERE));
                if let Some(to) = to.filter(|to| *to != start || jump.call) {
                    all.callers.entry(to).or_default().push((jump.at, start));
                }
            }
        }
    }
    Ok(all)
}

/// Functions that lie on a circle of calls, or between two: those that are left when functions without callees, and
/// functions without callers, are removed one after the other.
fn circles(callers: &BTreeMap<u64, Vec<(u64, u64)>>, taken: &BTreeSet<u64>) -> BTreeSet<u64> {
    let direct = callers.iter().flat_map(|(to, from)| from.iter().map(|(_, from)| (*from, *to)));
    let mut edges: BTreeSet<(u64, u64)> = direct.chain(taken.iter().map(|to| (ANYWHERE, *to))).collect();
    loop {
        let from: BTreeSet<u64> = edges.iter().map(|(from, _)| *from).collect();
        let to: BTreeSet<u64> = edges.iter().map(|(_, to)| *to).collect();
        let before = edges.len();
        edges.retain(|(a, b)| to.contains(a) && from.contains(b));
        if edges.len() == before {
            return from;
        }
    }
}

/// Aligned words of the program's data, by address.
fn data_words(object: &object::File) -> Result<BTreeMap<u32, u32>> {
    let mut words = BTreeMap::new();
    for section in object.sections().filter(|s| loaded(s) && s.kind() != SectionKind::Text) {
        let base = section.address() as u32;
        let skip = (base.wrapping_neg() & 3) as usize;
        for (i, word) in section.data()?.get(skip..).unwrap_or(&[]).as_chunks::<4>().0.iter().enumerate() {
            words.insert(base + skip as u32 + 4 * i as u32, u32::from_le_bytes(*word));
        }
    }
    Ok(words)
}

/// The section has content in the card's memory.
fn loaded<'a>(section: &impl ObjectSection<'a>) -> bool {
    let allocated =
        matches!(section.flags(), SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_ALLOC) != 0);
    allocated && section.kind() != SectionKind::UninitializedData
}

/// Lines of `folder` that some instruction comes from.
fn linked(
    object: &object::File,
    lines: &addr2line::Context<Slice>,
    folder: &str,
) -> Result<BTreeMap<String, BTreeSet<u32>>> {
    let mut linked: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for section in object.sections().filter(|s| s.kind() == SectionKind::Text) {
        for at in (section.address()..section.address() + section.size()).step_by(4) {
            let mut frames = lines.find_frames(at).skip_all_loads()?;
            while let Some(frame) = frames.next()? {
                if let Some((file, line)) = frame.location.as_ref().and_then(|l| Some((l.file?, l.line?)))
                    && let Some((_, file)) = file.split_once(folder)
                {
                    linked.entry(file.to_owned()).or_default().insert(line);
                }
            }
        }
    }
    Ok(linked)
}

/// Whose source the call at an address comes from.
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
                return Ok(Owner::Other(format!("{file}:{line} {}", short(&function))));
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
            Owner::Other(format!("(line unknown) {}", short(named)))
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
    for section in object.sections().filter(loaded) {
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
    fn an_address_belongs_to_the_function_around_it() {
        let functions =
            BTreeMap::from([(8, (8, "a".to_owned())), (16, (0, "b".to_owned())), (32, (4, "c".to_owned()))]);
        let at = |address| function_at(&functions, address);
        assert_eq!([at(4), at(8), at(15), at(20), at(33), at(36)], [None, Some(8), Some(8), Some(16), Some(32), None]);
    }

    #[test]
    fn circles_of_calls_are_found() {
        let callers = |edges: &[(u64, u64)]| {
            let mut callers: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
            edges.iter().for_each(|(from, to)| callers.entry(*to).or_default().push((0, *from)));
            callers
        };
        let none = BTreeSet::new();
        assert_eq!(circles(&callers(&[(1, 2), (1, 3), (2, 3)]), &none), none);
        assert_eq!(circles(&callers(&[(1, 2), (2, 3), (3, 2), (3, 4)]), &none), BTreeSet::from([2, 3]));
        assert_eq!(circles(&callers(&[(1, 1)]), &none), BTreeSet::from([1]));
        // Through a pointer: 1 calls anything, 2 is anything and calls 1.
        let pointers = callers(&[(1, ANYWHERE), (2, 1)]);
        assert_eq!(circles(&pointers, &none), none);
        assert_eq!(circles(&pointers, &BTreeSet::from([2])), BTreeSet::from([1, 2, ANYWHERE]));
    }

    #[test]
    fn hashes_are_cut_from_names() {
        assert_eq!(short("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(short("a::hello"), "a::hello");
    }
}
