// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of a crate by their lines: which of them became code in a program?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// First and last line, the first is 1.
    pub lines: (u32, u32),
    /// It only names, moves and makes values: nothing in it can panic, and there may be no code of it.
    pub inert: bool,
}

/// The functions of a formatted source file, without those of its tests.
pub fn functions(source: &str) -> Vec<Function> {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().collect();
    let mut all = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = name(line.trim_start()) else {
            continue;
        };
        // A trait's method without a body ends in a semicolon.
        let body = lines[i..].iter().position(|l| l.ends_with('{') || l.ends_with('}') || l.ends_with(';'));
        let Some(head) = body.map(|n| i + n).filter(|n| !lines[*n].ends_with(';')) else {
            continue;
        };
        let end = match lines[head].ends_with('}') {
            true => head,
            false => {
                let closes = |l: &str| l.trim_start() == "}" && l.len() - 1 == indent;
                head + lines[head..].iter().position(|l| closes(l)).unwrap_or(0)
            }
        };
        let inert = lines.get(head + 1..end).is_some_and(|body| inert(&body.join("\n")));
        all.push(Function { name: name.to_owned(), lines: (i as u32 + 1, end as u32 + 1), inert });
    }
    all
}

/// The name of the function whose head begins on this line.
fn name(line: &str) -> Option<&str> {
    let mut rest = line;
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().filter(|name| !name.is_empty())
}

/// Whether a body has no operation that may panic: no arithmetic but of literals, no index, no macro but at compile
/// time, no method but a few that cannot. Functions that it calls by their path are looked at themselves.
fn inert(body: &str) -> bool {
    let at_compile_time = |line: &&str| line.trim().starts_with("const { assert!");
    let body = body.lines().filter(|line| !at_compile_time(line)).collect::<Vec<_>>().join("\n");
    const OPERATORS: [&str; 12] = [" + ", " - ", " * ", " / ", " % ", " << ", " >> ", "+=", "-=", "*=", "/=", "%="];
    const METHODS: [&str; 5] = ["get", "len", "map", "step", "zip"];
    let literal = |part: &str, end: bool| {
        let digits = if end { part.chars().next_back() } else { part.chars().next() };
        digits.is_some_and(|c| c.is_ascii_digit())
    };
    let operates = |operator: &str| {
        body.match_indices(operator)
            .any(|(at, _)| !(literal(&body[..at], true) && literal(&body[at + operator.len()..], false)))
    };
    let calls = |part: &str| {
        let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        part[name.len()..].starts_with('(') && !METHODS.contains(&&*name)
    };
    let index = body.match_indices('[').any(|(at, _)| {
        let before = body[..at].chars().next_back();
        before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ')' | ']'))
    });
    let macros = body.contains("!(") && !body.contains(" !(");
    !index && !macros && !OPERATORS.into_iter().any(operates) && !body.split('.').skip(1).any(calls)
}

/// Functions below `folder` that may have code and none of whose lines is among `linked` (lines by file), as
/// "file:line name".
///
/// # Errors
/// When the folder cannot be read.
pub fn missing(folder: &Path, linked: &BTreeMap<String, BTreeSet<u32>>) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for path in sources(folder)? {
        let name = path.strip_prefix(folder)?.display().to_string();
        let source = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for Function { name: function, lines: (first, last), inert } in functions(&source) {
            if !inert && linked.get(&name).is_none_or(|lines| lines.range(first..=last).next().is_none()) {
                missing.push(format!("{name}:{first} {function}"));
            }
        }
    }
    Ok(missing)
}

/// Source files below a folder.
fn sources(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        match path.is_dir() {
            true => all.extend(sources(&path)?),
            false => all.extend(path.extension().is_some_and(|e| e == "rs").then_some(path)),
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_lines() {
        let source = "trait T {\n    fn without(&self);\n    fn short() {}\n}\nimpl T for A {\n    pub const fn long<T>(\n        a: u8,\n    ) -> u8 {\n        {\n        }\n    }\n}\n#[cfg(test)]\nmod tests {\n    fn test() {}\n}\n";
        let found = functions(source);
        let f = |name: &str, first, last, inert| Function { name: name.to_owned(), lines: (first, last), inert };
        assert_eq!(found, [f("short", 3, 3, false), f("long", 6, 11, true)]);
    }

    #[test]
    fn what_may_panic_is_not_inert() {
        for body in ["&self.list", "Self { a: [0; 4], b: 1 << 10, c: X::new() }", "self.0.len()", "a < b || !(c == d)"]
        {
            assert!(inert(body), "{body}");
        }
        for body in
            ["a + 1", "a += b", "self.list[0]", "f()[1]", "a.unwrap()", "assert!(a)", "1 / b", "a.x.pop().len()"]
        {
            assert!(!inert(body), "{body}");
        }
    }
}
