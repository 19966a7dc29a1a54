// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of results, docs/results/mutation.md: the text of `page.md`, in which each kind of mutants has its scores
//! between two comments, `<!-- scores: NAME -->` and `<!-- end -->`.

use std::fmt::Write as _;

const BEGIN: &str = "<!-- scores: ";
const END: &str = "<!-- end -->";

/// What stands between the two comments of a kind.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = page.split_once(&format!("{BEGIN}{name} -->\n"))?;
    Some(behind.split_once(END)?.0)
}

/// The page with new scores of one kind; those of the others stay as they were `before`.
pub fn page(before: &str, name: &str, scores: &str) -> String {
    let mut text = String::new();
    for line in include_str!("page.md").lines() {
        let _ = writeln!(text, "{line}");
        if let Some(other) = line.strip_prefix(BEGIN).and_then(|line| line.strip_suffix(" -->")) {
            text += match section(before, other) {
                _ if other == name => scores,
                None | Some("") => "Not run yet.\n",
                Some(old) => old,
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_one_kind_are_new_and_those_of_the_others_stay() {
        let first = page("", "rtl", "a\n");
        let second = page(&first, "protocol", "b\n");
        assert_eq!(section(&second, "rtl"), Some("a\n"));
        assert_eq!(section(&second, "protocol"), Some("b\n"));
        assert_eq!(section(&second, "driver"), Some("Not run yet.\n"));
        assert_eq!(page(&second, "protocol", "b\n"), second);
    }
}
