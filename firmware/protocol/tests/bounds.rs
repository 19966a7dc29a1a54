// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every loop of the crate counts its turns against a bound ([`berth_protocol::base::bound`]): looks for those that do not.
//!
//! The sources are formatted, so a loop's head ends a line with `{`. A loop counts when it runs over one of
//! [`COUNTING`], or when its body's first statement is a `step()`. A `for` over an array or a range that stands in its
//! head, with numbers or constants as ends, shows its bound as it is.

use std::fs;
use std::path::{Path, PathBuf};

/// Iterators that count: [`berth_protocol::base::bound::at_most`], and that over the pages of a request, which is made of it.
const COUNTING: [&str; 2] = [" in at_most(", " in distinct("];

/// Files without a bound, and why.
const EXEMPT: [(&str, &str); 1] = [("model.rs", "host, engines and wire for tests, never on a card")];

/// A source file without comments, strings and tests, line by line.
fn code(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    source
        .lines()
        .map(|line| {
            let line = line.split("//").next().unwrap_or_default();
            // Every second part lies between quotation marks.
            line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
        })
        .collect()
}

/// Whether `word` occurs in `line` as a word.
fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(inside) && !line[at + word.len()..].starts_with(inside))
}

/// A loop begins here. `for` also stands in `impl … for …` and in types.
fn begins_loop(line: &str) -> bool {
    has_word(line, "while") || has_word(line, "loop") || (has_word(line, "for") && has_word(line, "in"))
}

/// The head's range or array has a length that the head itself shows.
fn plain(head: &str) -> bool {
    let Some((_, values)) = head.split_once(" in ") else {
        return false;
    };
    let values = values.trim_end_matches('{').trim();
    let constant = |end: &str| {
        let end = end.trim_start_matches('=');
        !end.is_empty() && end.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '_')
    };
    let range = values.split_once("..").is_some_and(|(from, to)| constant(from) && constant(to));
    range || (values.starts_with('[') && values.ends_with(']'))
}

/// Lines of loops that do not count.
fn unbounded(source: &str) -> Vec<usize> {
    let lines = code(source);
    let mut found = Vec::new();
    for i in (0..lines.len()).filter(|i| begins_loop(&lines[*i])) {
        let head_lines = lines[i..].iter().take_while(|line| !line.trim_end().ends_with('{')).count() + 1;
        let head = lines[i..].iter().take(head_lines).map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let first = lines[i..].iter().skip(head_lines).map(|line| line.trim()).find(|line| !line.is_empty());
        let counts = first.is_some_and(|line| line.ends_with(".step();"));
        let bounded = COUNTING.iter().any(|values| head.contains(values));
        if !(counts || bounded || plain(&head)) {
            found.push(i + 1);
        }
    }
    found
}

/// Iterators that do not end by themselves.
fn endless(source: &str) -> Vec<usize> {
    const ENDLESS: [&str; 7] =
        ["iter::repeat", "iter::from_fn", "successors", ".cycle()", "(0..)", "zip(1..)", "repeat_with"];
    let lines = code(source);
    lines.iter().enumerate().filter(|(_, l)| ENDLESS.iter().any(|e| l.contains(e))).map(|(i, _)| i + 1).collect()
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, all),
            false => all.push(path),
        }
    }
}

#[test]
fn every_loop_counts_its_turns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    sources(&root, &mut all);
    assert!(all.len() > 40, "the sources are elsewhere");
    let mut faults = String::new();
    let mut loops = 0;
    for path in all {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        if EXEMPT.iter().any(|(file, _)| *file == name) {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        loops += code(&source).iter().filter(|line| begins_loop(line)).count();
        for line in unbounded(&source) {
            faults += &format!("\n{name}:{line} does not count its turns");
        }
        for line in endless(&source) {
            faults += &format!("\n{name}:{line} has an iterator without an end");
        }
    }
    assert!(faults.is_empty(), "{faults}");
    assert!(loops > 150, "only {loops} loops found");
}

#[test]
fn loops_without_a_bound_are_found() {
    for bad in [
        "for x in list {\n    use_it(x);\n}",
        "for x in 0..n {\n}",
        "for x in LIST..self.len {\n}",
        "while a\n    && b\n{\n    c();\n}",
        "let x = loop {\n    // bound.step();\n    y();\n};",
        "'outer: for x in \"at_most(\" {\n    y();\n}",
        "if a { while b {} }\n{\n}",
    ] {
        assert_eq!(unbounded(bad), [1], "{bad}");
    }
    for good in [
        "for x in at_most(N, list) {\n    use_it(x);\n}",
        "for x in 0..4 {\n}",
        "for x in 1..=LIST {\n}",
        "for x in [a, b] {\n}",
        "while a\n    && b\n{\n    // Reason.\n    bound.step();\n    c();\n}",
        "loop {\n    self.sh.step();\n}",
        "impl A for B {\n}",
        "// for x in list {\nlet s = \"while\";",
        "#[cfg(test)]\nmod tests {\n    loop {}\n}",
    ] {
        assert!(unbounded(good).is_empty(), "{good}");
    }
    assert_eq!(endless("a\nlet n = (0..).find(f);"), [2]);
}
