// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which functions the instructions are of that the plugin `berth-count` has counted.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

/// Functions of a guest by their first address.
pub struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// Those of the kernel and its modules, of which `/proc/kallsyms` tells.
    pub fn of_kernel(kallsyms: &str) -> Self {
        let functions = kallsyms.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let address = u64::from_str_radix(address, 16).ok()?;
            // Some data has addresses in front of the code.
            matches!(kind, "t" | "T" | "w" | "W").then(|| (address, named(name, words.next())))
        });
        Self(functions.collect())
    }

    /// Those of a program, where a process has it. `maps` is what `/proc/PID/maps` tells.
    ///
    /// # Errors
    /// When it is no program, or not in the process.
    pub fn add_program(&mut self, program: &[u8], maps: &str) -> Result<()> {
        let object = object::File::parse(program).context("not a program")?;
        let line = maps.lines().find(|line| line.ends_with("/count")).context("the program is not mapped")?;
        let begin = line.split('-').next().and_then(|first| u64::from_str_radix(first, 16).ok());
        let lowest = object.segments().map(|segment| segment.address()).min();
        let (Some(begin), Some(lowest)) = (begin, lowest) else { bail!("the program has no address: {line}") };
        let offset = begin - (lowest & !0xfff);
        let functions = object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
        self.0.extend(functions.map(|f| (f.address() + offset, named(f.name().unwrap_or("?"), None))));
        Ok(())
    }

    /// The function that an address is in.
    fn at(&self, address: u64) -> &str {
        match self.0.range(..=address).next_back() {
            // What has no name is far behind what has one.
            Some((first, name)) if address - first < 1 << 20 => name,
            _ if address >> 63 == 1 => "(kernel)",
            _ => "(programs)",
        }
    }
}

fn named(name: &str, module: Option<&str>) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    module.map_or(name.clone(), |module| format!("{name} {module}"))
}

/// Instructions by function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile(HashMap<String, f64>);

impl Profile {
    /// What was executed before each mark, since the one before, as the plugin has written it.
    ///
    /// # Errors
    /// When it is written otherwise.
    pub fn all(text: &str, symbols: &Symbols) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for line in text.lines() {
            match (line.split_once(' '), all.last_mut()) {
                (Some(("mark", _)), _) => all.push(Self::default()),
                (Some((address, count)), Some(Self(functions))) => {
                    let name = symbols.at(u64::from_str_radix(address, 16)?);
                    *functions.entry(name.to_owned()).or_default() += count.parse::<f64>()?;
                }
                _ => bail!("the plugin wrote {line:?}"),
            }
        }
        Ok(all)
    }

    /// Adds another guest's.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    /// The functions with most of them, in order.
    pub fn most(&self, count: usize) -> Vec<(&str, f64)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        all.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_of_the_function_before_their_address() {
        let symbols = Symbols::of_kernel(
            "ffffffff81000000 T start\nffffffff81000100 t _RNvNtCs1_5berth4pins3pin\t[berth]\nffffffff81000180 D data\n",
        );
        let blocks = "mark 1\nmark 2\nffffffff81000004 5\nffffffff810001f0 7\nffffffff81000100 1\n400000 2\n";
        let all = Profile::all(blocks, &symbols).unwrap();
        let mut sum = all[0].clone();
        sum.add(&all[1]);
        assert_eq!(sum.most(2), [("berth::pins::pin [berth]", 8.0), ("start", 5.0)]);
        assert_eq!(sum.most(9)[2], ("(programs)", 2.0));
        assert!(Profile::all("ffffffff81000004 5\n", &symbols).is_err());
    }
}
