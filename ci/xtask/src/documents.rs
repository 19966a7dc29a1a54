// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the documentation: the tests and source files that it names exist, its links lead somewhere, and it is not
//! too long.
//!
//! A page is *generated* when one of its first lines says so (`<!-- Generated`), or when it lies in `docs/results`.
//! Generated pages are as long as they are; their links are checked as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Most words of all pages that people write.
const MOST_WORDS: usize = 30_000;
/// The page whose table says which test shows which behaviour.
const FEATURES: &str = "docs/features.md";
/// The beginnings of test names that name a behaviour: `cr_11_`, `inv_2_`, `decision_6_`.
const IDS: [&str; 9] = ["cr", "vc", "iw", "qp", "be", "ap", "pc", "inv", "decision"];

/// Folders with sources.
const SOURCE_FOLDERS: [&str; 5] = ["ci", "driver", "firmware", "host-tools", "hw-rtl"];
/// Endings of source files that pages name.
const SOURCES: [&str; 6] = ["rs", "sv", "sh", "py", "toml", "config"];

/// A page.
struct Page {
    /// Path below the repository, with `/`.
    path: String,
    text: String,
}

impl Page {
    fn is_generated(&self) -> bool {
        self.path.starts_with("docs/results/") || self.text.lines().take(4).any(|l| l.starts_with("<!-- Generated"))
    }
}

/// A link: where it leads, and its title.
#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    text: &'a str,
    target: &'a str,
    title: Option<&'a str>,
}

/// Checks all pages of a checkout.
///
/// # Errors
/// Names everything that is wrong, or what cannot be read.
pub fn check(repo: &Path) -> Result<()> {
    let pages = pages(repo)?;
    let functions = functions(repo)?;
    let sources = sources(repo)?;
    let headings: BTreeMap<_, _> = pages.iter().map(|p| (p.path.clone(), anchors(&p.text))).collect();
    let mut wrong = Vec::new();
    for page in &pages {
        wrong.extend(broken_links(repo, page, &headings));
        wrong.extend(missing_tests(page, &functions));
        wrong.extend(missing_sources(page, &sources));
    }
    let words: usize = pages.iter().filter(|p| !p.is_generated()).map(|p| words(&p.text)).sum();
    if words > MOST_WORDS {
        wrong.push(format!("the pages have {words} words; {MOST_WORDS} are allowed, generated pages not counted"));
    }
    if !wrong.is_empty() {
        bail!("documentation:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// All pages: those at the top, and those of `docs`.
fn pages(repo: &Path) -> Result<Vec<Page>> {
    let mut files = vec![repo.join("README.md"), repo.join("CONTRIBUTING.md")];
    walk(&repo.join("docs"), "md", &mut files)?;
    let page = |file: PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        Ok(Page { path: below(repo, &file), text })
    };
    files.into_iter().map(page).collect()
}

/// The functions of all Rust files and the tests of all scripts, and the files that have them.
fn functions(repo: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for (ending, before) in [("rs", "fn "), ("sh", "\ncheck "), ("sh", "\ntwice ")] {
        let mut files = Vec::new();
        for folder in SOURCE_FOLDERS {
            walk(&repo.join(folder), ending, &mut files)?;
        }
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            for name in names_behind(before, &text) {
                found.entry(name.to_owned()).or_default().insert(below(repo, &file));
            }
        }
    }
    Ok(found)
}

/// The paths of all source files, those at the top too.
fn sources(repo: &Path) -> Result<Vec<String>> {
    let mut files = vec![repo.join("Cargo.toml"), repo.join("rustfmt.toml")];
    for (folder, ending) in SOURCE_FOLDERS.iter().flat_map(|folder| SOURCES.map(|ending| (folder, ending))) {
        walk(&repo.join(folder), ending, &mut files)?;
    }
    Ok(files.iter().map(|file| below(repo, file)).collect())
}

/// Names behind `fn ` or another word.
fn names_behind<'a>(word: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(word).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    })
}

/// The words that a reader sees: no rules of tables, no targets of links.
fn words(text: &str) -> usize {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default();
    let shown = std::iter::once(first).chain(parts.map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)));
    shown.flat_map(str::split_whitespace).filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Files with this ending in a folder and below, but for what is built.
fn walk(folder: &Path, ending: &str, into: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("listing {}", folder.display()))?
        .collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && entry.file_name() != "target" {
            walk(&path, ending, into)?;
        } else if kind.is_file() && path.extension().is_some_and(|e| e == ending) {
            into.push(path);
        }
    }
    Ok(())
}

/// A path below the repository, with `/`.
fn below(repo: &Path, file: &Path) -> String {
    let path = file.strip_prefix(repo).unwrap_or(file);
    path.components().map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The lines of a page outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Links of a line, but for what stands in backticks.
fn links(line: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = line[at..].find(['[', '`']).map(|n| at + n) {
        at = start + 1;
        if line[start..].starts_with('`') {
            at += line[at..].find('`').map_or(0, |n| n + 1);
            continue;
        }
        let Some((text, rest)) = line[at..].split_once("](") else { break };
        // A bracket inside: the link begins there.
        if text.contains('[') && !text.contains('`') {
            continue;
        }
        let Some((inside, _)) = rest.split_once(')') else { break };
        let (target, title) = match inside.split_once(' ') {
            Some((target, title)) => (target, Some(title.trim().trim_matches('"'))),
            None => (inside, None),
        };
        found.push(Link { text, target, title });
        at += text.len() + 2 + inside.len() + 1;
    }
    found
}

/// The names that headings of a page have in links, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
        let kept = title.trim().to_lowercase().chars().collect::<Vec<_>>();
        let kept = kept.into_iter().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
    };
    prose(text).filter_map(heading).collect()
}

/// Links of a page that lead to nothing.
fn broken_links(repo: &Path, page: &Page, headings: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let is_broken = |link: &Link<'_>| {
        if link.target.contains("://") || link.target.starts_with("mailto:") {
            return false;
        }
        let (file, anchor) = link.target.split_once('#').unwrap_or((link.target, ""));
        let path = if file.is_empty() { Some(page.path.clone()) } else { resolve(folder, file) };
        let Some(path) = path else { return true };
        let exists = repo.join(&path).exists();
        let known = anchor.is_empty() || headings.get(&path).is_none_or(|h| h.contains(anchor));
        !exists || !known
    };
    let broken = prose(&page.text).flat_map(links).filter(is_broken);
    broken.map(|link| format!("{}: the link `{}` leads to nothing", page.path, link.target)).collect()
}

/// A relative path from a folder of the repository; `None` when it leaves the repository.
fn resolve(folder: &Path, file: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in folder.join(file).components() {
        match part {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => drop(parts.pop()?),
            _ => {}
        }
    }
    Some(parts.join("/"))
}

/// Tests that a page names and that do not exist: names with an id of a behaviour in backticks anywhere, and the titles
/// of the feature table's links, each of which must be a function of the file that its link leads to.
fn missing_tests(page: &Page, functions: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in prose(&page.text).flat_map(in_backticks).filter(|name| has_id(name)) {
        let exists = match name.strip_suffix('*') {
            Some(start) => functions.range(start.to_owned()..).next().is_some_and(|(f, _)| f.starts_with(start)),
            None => functions.contains_key(name),
        };
        if !exists {
            wrong.push(format!("{}: no test is called `{name}`", page.path));
        }
    }
    if page.path == FEATURES {
        let folder = Path::new("docs");
        for line in prose(&page.text).filter(|line| line.starts_with('|')) {
            for link in links(line) {
                let file = resolve(folder, link.target).unwrap_or_default();
                let exists = |name| functions.get(name).is_some_and(|files| files.contains(&file));
                match link.title {
                    Some(name) if exists(name) => {}
                    Some(name) => wrong.push(format!("{FEATURES}: {file} has no test called `{name}`")),
                    None if matches!(link.text, "yes" | "partly") => {
                        wrong.push(format!("{FEATURES}: a `{}` names no test: {line}", link.text));
                    }
                    None => {}
                }
            }
            let bare = line.split('|').map(str::trim).find(|cell| matches!(*cell, "yes" | "partly"));
            if let Some(cell) = bare {
                wrong.push(format!("{FEATURES}: a `{cell}` has no link to a test: {line}"));
            }
        }
    }
    wrong
}

/// Source files that a page names in backticks, by path or by the end of one, and that do not exist. Pages of results
/// name the files that existed when they were measured.
fn missing_sources(page: &Page, sources: &[String]) -> Vec<String> {
    if page.path.starts_with("docs/results/") {
        return Vec::new();
    }
    let is_source = |name: &&str| {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./*".contains(c));
        let ending = name.rsplit_once('.').is_some_and(|(stem, ending)| !stem.is_empty() && SOURCES.contains(&ending));
        plain && ending && !name.starts_with('/')
    };
    let exists = |name: &str| {
        let (start, end) = name.split_once('*').unwrap_or((name, ""));
        sources.iter().any(|path| {
            let starts = path.match_indices(start).filter(|(at, _)| *at == 0 || path[..*at].ends_with('/'));
            starts.into_iter().any(|(at, _)| {
                let rest = &path[at + start.len()..];
                if name.contains('*') { rest.ends_with(end) } else { rest.is_empty() }
            })
        })
    };
    let missing = prose(&page.text).flat_map(in_backticks).filter(is_source).filter(|name| !exists(name));
    missing.map(|name| format!("{}: there is no file `{name}`", page.path)).collect()
}

/// What stands in backticks in a line.
fn in_backticks(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether it is a name of a test with an id, perhaps of several tests (`cr_9_*`).
fn has_id(name: &str) -> bool {
    let Some((id, rest)) = name.split_once('_') else { return false };
    let number = rest.split('_').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    IDS.contains(&id)
        && !number.is_empty()
        && number.chars().all(|c| c.is_ascii_digit())
        && name.strip_suffix('*').unwrap_or(name).chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions_for(list: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
        list.iter().map(|(name, file)| ((*name).to_owned(), BTreeSet::from([(*file).to_owned()]))).collect()
    }

    fn page(path: &str, text: &str) -> Page {
        Page { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_are_found_and_code_is_none() {
        let line = "a [b](c.md), `[x](y)` and [yes](d/e.rs \"cr_1_f\") [`t`](g.md#h) in [brackets].";
        let found: Vec<_> = links(line).into_iter().map(|l| (l.text, l.target, l.title)).collect();
        assert_eq!(found, [("b", "c.md", None), ("yes", "d/e.rs", Some("cr_1_f")), ("`t`", "g.md#h", None)]);
        assert_eq!(prose("a\n```\nb\n```\nc").collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn words_are_what_a_reader_sees() {
        assert_eq!(words("| one | [two three](four/five.md \"six\") | -- seven. |\n|---|"), 4);
    }

    #[test]
    fn headings_are_named_as_github_names_them() {
        let names = anchors("# Who decides what?\n## `berth` and CR-1\n```\n# no heading\n```\n#no");
        assert_eq!(names, ["berth-and-cr-1", "who-decides-what"].map(str::to_owned).into());
    }

    #[test]
    fn paths_are_resolved_inside_of_the_repository() {
        assert_eq!(resolve(Path::new("docs/start"), "../../README.md"), Some("README.md".into()));
        assert_eq!(resolve(Path::new("docs"), "../../x"), None);
    }

    #[test]
    fn a_test_that_does_not_exist_is_named() {
        let functions = functions_for(&[("cr_1_there", "ci/a.rs"), ("cr_9_x", "ci/a.rs")]);
        let text = "`cr_1_there` `cr_1_gone` `cr_9_*` `cr_8_*` `CR-1` `C_RX_1` `credit.rs`\n";
        let wrong = missing_tests(&page("docs/x.md", text), &functions);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("cr_1_gone") && wrong[1].contains("cr_8_*"), "{wrong:?}");
    }

    #[test]
    fn a_source_file_that_does_not_exist_is_named() {
        let sources = ["ci/a/one.rs", "hw-rtl/rtl/fp_tx.sv", "ci/kernel/base.config"].map(str::to_owned);
        let text = "`one.rs` `a/one.rs` `ci/a/one.rs` `fp_*.sv` `.config` `x.txt` `/etc/x.sh` `sh x.sh` `base.config`\n\
                    `two.rs` `b/one.rs` `ne.rs` `fq_*.sv`\n```\n`three.rs`\n```\n";
        let wrong = missing_sources(&page("docs/x.md", text), &sources);
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(wrong[0].contains("docs/x.md") && wrong[0].contains("two.rs"), "{wrong:?}");
        assert!(missing_sources(&page("docs/results/x.md", text), &sources).is_empty());
    }

    #[test]
    fn feature_table_links_each_yes_to_a_function_of_its_file() {
        let functions = functions_for(&[("there", "ci/a.rs")]);
        let table = |cell: &str| missing_tests(&page(FEATURES, &format!("| CR-1 | x | {cell} |\n")), &functions).len();
        assert_eq!(table("[yes](../ci/a.rs \"there\")"), 0);
        assert_eq!(table("no"), 0);
        assert_eq!(table("[yes](../ci/b.rs \"there\")"), 1);
        assert_eq!(table("[partly](../ci/a.rs \"gone\")"), 1);
        assert_eq!(table("[yes](../ci/a.rs)"), 1);
        assert_eq!(table("yes"), 1);
    }
}
