// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of results, docs/results/mutation.md: the text of `page.md`, in which each kind of mutants has its scores
//! between two comments, `<!-- scores: NAME -->` and `<!-- end -->`.

use std::fmt::Write as _;

use crate::{driver, protocol, rtl};

const BEGIN: &str = "<!-- scores: ";
const END: &str = "<!-- end -->";

/// What stands between the two comments of a kind.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = page.split_once(&format!("{BEGIN}{name} -->\n"))?;
    Some(behind.split_once(END)?.0)
}

/// Groups, and the files of each.
type Groups = [(&'static str, &'static [&'static str])];

/// What is mutated now, by the name of a kind.
fn groups(name: &str) -> &'static Groups {
    match name {
        "protocol" => &protocol::GROUPS,
        "rtl" => &rtl::GROUPS,
        _ => &driver::GROUPS,
    }
}

/// Whether a row of a table is of a group that is there still, and so are all files that it names. Any other line stays.
fn is_current(line: &str, groups: &Groups) -> bool {
    let mut cells = line.split('|').map(str::trim).skip(1);
    let (Some(name), Some(files)) = (cells.next(), cells.next()) else { return true };
    if !files.starts_with('`') {
        return true;
    }
    let group = groups.iter().find(|(group, _)| *group == name);
    group.is_some_and(|(_, there)| files.split(", ").all(|file| there.contains(&file.trim_matches('`'))))
}

/// The scores of an earlier run without the rows of what is gone; nothing when no row is left.
fn current(scores: &str, groups: &Groups) -> String {
    let kept: String = scores.split_inclusive('\n').filter(|line| is_current(line, groups)).collect();
    if kept.contains("| `") { kept } else { String::new() }
}

/// The page with new scores of one kind; those of the others stay as they were `before`, but for what is gone.
pub fn page(before: &str, name: &str, scores: &str) -> String {
    let mut text = String::new();
    for line in include_str!("page.md").lines() {
        let _ = writeln!(text, "{line}");
        if let Some(other) = line.strip_prefix(BEGIN).and_then(|line| line.strip_suffix(" -->")) {
            let scores = match section(before, other) {
                _ if other == name => scores.to_owned(),
                old => current(old.unwrap_or_default(), groups(other)),
            };
            text += if scores.is_empty() { "Not run yet.\n" } else { &scores };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_one_kind_are_new_and_those_of_the_others_stay() {
        let row = "| credit | `berth_fp_cut.sv` | 1 |\n";
        let first = page("", "rtl", row);
        let second = page(&first, "protocol", "b\n");
        assert_eq!(section(&second, "rtl"), Some(row));
        assert_eq!(section(&second, "protocol"), Some("b\n"));
        assert_eq!(section(&second, "driver"), Some("Not run yet.\n"));
        assert_eq!(page(&second, "protocol", "b\n"), second);
    }

    #[test]
    fn rows_of_groups_or_files_that_are_gone_are_dropped() {
        let head = "Options: seed 1.\n\n| group | files | mutants |\n|---|---|---:|\n";
        let (kept, gone, moved) =
            ("| credit | `credit/list.rs` | 3 |\n", "| sends | `requester.rs` | 2 |\n", "| keys | `keys.rs` | 1 |\n");
        let before = page("", "protocol", &format!("{head}{kept}{gone}{moved}"));
        assert_eq!(section(&page(&before, "rtl", "a\n"), "protocol"), Some(&*format!("{head}{kept}")));
        let before = page("", "protocol", &format!("{head}{gone}"));
        assert_eq!(section(&page(&before, "rtl", "a\n"), "protocol"), Some("Not run yet.\n"));
    }
}
