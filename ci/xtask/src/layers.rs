// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that the folders of a source tree stand on each other as [`TREES`] says. Higher folders may use lower ones;
//! nothing uses a folder beside or above it. So there is no circle between folders.
//!
//! The check reads each Rust file as tokens, what macros are made of included. It looks at paths that begin with
//! `crate::`, and at those with which `super::` leaves a folder. It passes over comments and over items with
//! `#[cfg(test)]`. The file at the top itself is above all folders.
//!
//! The files of a tree, too, use each other in one direction: see [`circles`].
//!
//! Of the RTL it looks at the instances that modules have of each other, by the same rule ([`RTL`]).
//!
//! Where the file at the top has a tour (lines `//! * [`folder`]: …`), it must name all folders, in the table's order.

mod circles;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A source tree.
struct Tree {
    /// The file at its top, which declares the modules.
    top: &'static str,
    /// Folders and files beside it, and what else paths of the crate may begin with: lowest first, each row beside each other.
    ranks: &'static [&'static [&'static str]],
}

/// The trees that are checked.
const TREES: &[Tree] = &[
    Tree {
        top: "firmware/protocol/src/lib.rs",
        ranks: &[&["base"], &["rc"], &["wire", "memory"], &["credit", "service"], &["card"], &["stream", "model"]],
    },
    Tree {
        top: "driver/berth_main.rs",
        ranks: &[
            &["abi"],
            &["kernel"],
            &["card"],
            &["net", "pages"],
            &["process"],
            &["rdma"],
            &["debugfs", "events", "params"],
            &["cards"],
            &["uapi"],
        ],
    },
    Tree {
        top: "host-tools/berth-credits/src/lib.rs",
        ranks: &[
            &["ring", "transport"],
            &["memory"],
            &["endpoint", "header", "shared"],
            &["tcp"],
            &["queue_pairs"],
            &["tcp_options", "verbs"],
            &["tests"],
        ],
    },
    Tree {
        top: "host-tools/berth-queue/src/lib.rs",
        ranks: &[&["doorbell", "request"], &["ring"], &["completions"], &["shared"]],
    },
    Tree {
        top: "host-tools/berth-verbs/src/lib.rs",
        ranks: &[
            &["errno", "lock", "mapping", "rdma_core"],
            &["memory", "request", "status"],
            &["bound"],
            &["context"],
            &["building", "shared"],
            &["completion"],
            &["datagram"],
            &["queue_pair"],
            &["builder", "post"],
            &["windows"],
            &["fake"],
            &["tests"],
        ],
    },
    Tree {
        top: "host-tools/berth-sockets/src/lib.rs",
        ranks: &[
            &["address", "channel", "descriptors", "next", "rules", "wire"],
            &["names", "sys"],
            &["card", "pipe"],
            &["carrier"],
            &["process"],
            &["calls"],
            &["exports"],
            &["tests"],
        ],
    },
    Tree {
        top: "hw-rtl/host/src/lib.rs",
        ranks: &[
            &["frames", "memory"],
            &["board", "pager", "rings", "table"],
            &["driver", "ranges"],
            &["process", "raw", "wire"],
        ],
    },
    // The first row is macros.
    Tree {
        top: "ci/guest-tests/src/main.rs",
        ranks: &[
            &["ensure", "ensure_eq", "tests"],
            &["args", "outcome"],
            &["env"],
            &["test", "util"],
            &["basics", "connections", "count", "credits", "examples", "faults", "memory", "tool"],
            &["bad_input", "service", "syscalls"],
            &[
                "channels",
                "disk",
                "endurance",
                "field",
                "large_file",
                "links",
                "machine",
                "net",
                "remote",
                "rivals",
                "trouble",
            ],
            &["lifecycle"],
            &["helpers", "runner"],
        ],
    },
];

/// Folders of the RTL, lowest first: a module has instances of what is lower, or of its own folder.
const RTL: &[&[&str]] =
    &[&["prim"], &["fast/common", "net", "cpu"], &["fast/tx", "fast/rx", "host", "raw"], &["fast"], &["card"]];
/// Folders of the RTL without a rank: what they have is generated, but for those above.
const RTL_OTHERS: [&str; 3] = ["large", "small", "fast"];
/// Where they are.
const RTL_TOP: &str = "hw-rtl/rtl";

/// Checks all trees of a checkout.
///
/// # Errors
/// Names every use of what stands beside or above, every circle of files, and all that the table does not name; or what
/// cannot be read.
pub fn check(repo: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for tree in TREES {
        let top = repo.join(tree.top);
        let source = fs::read_to_string(&top).with_context(|| format!("reading {}", tree.top))?;
        let folder = top.parent().context("no folder")?;
        wrong.extend(tree.differences(&source, &modules(folder, &top)?, |name| folder.join(name).is_dir()));
        let mut files = Vec::new();
        for name in tree.names() {
            rust_files(folder, name, &mut files)?;
        }
        let mut sources = Vec::new();
        for file in files {
            let text = fs::read_to_string(folder.join(&file)).with_context(|| format!("reading {file}"))?;
            wrong.extend(tree.faults(&file, &text)?);
            sources.push((file, text));
        }
        let circles = circles::circles(&sources)?;
        wrong.extend(circles.iter().map(|circle| tree.path(circle)));
    }
    let mut sources = Vec::new();
    for folder in RTL.iter().copied().flatten() {
        for entry in fs::read_dir(repo.join(RTL_TOP).join(folder)).with_context(|| format!("reading {folder}"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "sv") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                sources.push((name, *folder, fs::read_to_string(&path)?));
            }
        }
    }
    wrong.extend(instances(&sources));
    for entry in fs::read_dir(repo.join(RTL_TOP))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let ranked = RTL.iter().flat_map(|row| row.iter()).any(|folder| *folder == name);
        if entry.file_type()?.is_dir() && !ranked && !RTL_OTHERS.contains(&name.as_str()) {
            wrong.push(format!("{RTL_TOP}: `{name}` has no rank"));
        }
    }
    if !wrong.is_empty() {
        bail!("layers (the table is in ci/xtask/src/layers.rs):\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

impl Tree {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.ranks.iter().flat_map(|row| row.iter().copied())
    }

    fn rank(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|row| row.contains(&name))
    }

    /// Path of a file of the tree, which stands at `file` below the tree's folder.
    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.top.rsplit_once('/').map_or("", |(folder, _)| folder))
    }

    /// What the table, the `modules` that there are, and the file at the top say differently.
    fn differences(&self, source: &str, modules: &[String], is_folder: impl Fn(&str) -> bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for module in modules.iter().filter(|module| self.rank(module).is_none()) {
            wrong.push(format!("{}: `{module}` has no rank", self.top));
        }
        let words: Vec<_> = source.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for name in self.names().filter(|name| !words.contains(name)) {
            wrong.push(format!("{}: there is no `{name}`, which has a rank", self.top));
        }
        let tour: Vec<_> = source.lines().filter_map(|line| line.strip_prefix("//! * ")).filter_map(stop).collect();
        let stops = self.names().filter(|name| tour.contains(name) || is_folder(name));
        if !tour.is_empty() && !tour.iter().copied().eq(stops) {
            let names: Vec<_> = self.names().collect();
            wrong.push(format!("{}: its tour names {}, the table {}", self.top, tour.join(" "), names.join(" ")));
        }
        wrong
    }

    /// What `file`, a path below the tree's folder, uses that stands beside or above it.
    fn faults(&self, file: &str, source: &str) -> Result<Vec<String>> {
        let modules = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let own = modules.split('/').next().unwrap_or_default();
        let rank = self.rank(own).with_context(|| format!("{} has no rank", self.path(file)))?;
        let tokens = source.parse().map_err(|error| anyhow!("{}: {error}", self.path(file)))?;
        let mut used = Vec::new();
        paths(tokens, modules.split('/').count(), &mut used);
        let fault = |(line, name): &(usize, String)| {
            let what = match self.rank(name) {
                _ if name == own => return None,
                Some(other) if other < rank => return None,
                Some(other) if other == rank => "stands beside it",
                Some(_) => "stands above it",
                None => "has no rank: what the file at the top has itself is above all",
            };
            Some(format!("{}:{line}: `{own}` uses `{name}`, which {what}", self.path(file)))
        };
        Ok(used.iter().filter_map(fault).collect())
    }
}

/// Instances of what stands beside or above. `sources`: each module's name, folder and text.
fn instances(sources: &[(String, &str, String)]) -> Vec<String> {
    let rank = |folder: &str| RTL.iter().position(|row| row.contains(&folder));
    let mut wrong = Vec::new();
    for (name, folder, text) in sources {
        for (line, code) in (1..).zip(text.lines()) {
            // An instance begins a line with the module's name.
            let module = code.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let Some((_, other, _)) = sources.iter().find(|source| source.0 == module) else { continue };
            if other != folder && rank(other) >= rank(folder) {
                wrong.push(format!(
                    "{RTL_TOP}/{folder}/{name}.sv:{line}: `{folder}` has an instance of `{module}`, which is in `{other}`"
                ));
            }
        }
    }
    wrong
}

/// The folder that a line of a tour begins with.
fn stop(line: &str) -> Option<&str> {
    line.trim_start_matches('[').strip_prefix('`')?.split_once('`').map(|(name, _)| name)
}

/// Names that paths from the crate's root begin with, and their lines. `depth`: modules from the root to these tokens.
fn paths(tokens: TokenStream, depth: usize, used: &mut Vec<(usize, String)>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let ident = |i: usize, name: &str| matches!(tokens.get(i), Some(TokenTree::Ident(ident)) if ident == name);
    let punct = |i: usize, c: char| matches!(tokens.get(i), Some(TokenTree::Punct(punct)) if punct.as_char() == c);
    let colons = |i: usize| punct(i, ':') && punct(i + 1, ':');
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        i += 1;
        if punct(i - 1, '#') {
            match is_for_tests(&tokens[i..]) {
                Some(true) => return,
                Some(false) => i += item_length(&tokens[i..]),
                None => (),
            }
        } else if ident(i - 1, "mod")
            && let Some(TokenTree::Group(body)) = tokens.get(i + 1)
        {
            paths(body.stream(), depth + 1, used);
            i += 2;
        } else if ident(i - 1, "crate") && colons(i) {
            names(&tokens[i + 2..], used);
        } else if ident(i - 1, "super") {
            let mut up = 1;
            while colons(i) && ident(i + 2, "super") {
                up += 1;
                i += 3;
            }
            if up == depth && colons(i) {
                names(&tokens[i + 2..], used);
            }
        } else if let TokenTree::Group(group) = token {
            paths(group.stream(), depth, used);
        }
    }
}

/// Whether the attribute after a `#` is `cfg(test)`; if so, whether it holds for all that stands around it.
fn is_for_tests(attribute: &[TokenTree]) -> Option<bool> {
    let inner = matches!(attribute.first(), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
    let text = match attribute.get(usize::from(inner)) {
        Some(TokenTree::Group(attribute)) => attribute.stream().to_string(),
        _ => return None,
    };
    (text.replace(' ', "") == "cfg(test)").then_some(inner)
}

/// Tokens to the end of the item that these begin with.
fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &&TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens.iter().take_while(|token| !ends(token)).count() + 1
}

/// The names with which the rest of a path begins: one, or those between braces.
fn names(rest: &[TokenTree], used: &mut Vec<(usize, String)>) {
    match rest.first() {
        Some(TokenTree::Group(group)) => {
            let tokens: Vec<_> = group.stream().into_iter().collect();
            for part in tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')) {
                names(part, used);
            }
        }
        Some(token) => {
            used.push((token.span().start().line, token.to_string().trim_start_matches("r#").to_owned()));
        }
        None => (),
    }
}

/// Modules in a folder: Rust files and folders with a `mod.rs`, but for the file at the top.
fn modules(folder: &Path, top: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let is_module = path.join("mod.rs").is_file() || (path.extension().is_some_and(|e| e == "rs") && path != top);
        if let Some(name) = path.file_stem().filter(|_| is_module) {
            found.push(name.to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// Adds the Rust files of module `name` of `folder`, as paths below that, to `into`.
fn rust_files(folder: &Path, name: &str, into: &mut Vec<String>) -> Result<()> {
    let file = format!("{name}.rs");
    let (has_file, inside) = (folder.join(&file).is_file(), folder.join(name));
    if has_file {
        into.push(file);
    }
    // A folder that is no module is another crate's.
    if inside.is_dir() && (has_file || inside.join("mod.rs").is_file()) {
        walk(folder, name, into)?;
    }
    Ok(())
}

/// Adds the Rust files in the folder `below`, a path below `folder`.
fn walk(folder: &Path, below: &str, into: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder.join(below)).with_context(|| format!("listing {below}"))?;
    let mut entries: Vec<_> = entries.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{below}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(folder, &path, into)?;
        } else if path.ends_with(".rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree { top: "house/src/lib.rs", ranks: &[&["cellar"], &["hall", "stairs"], &["roof"]] };

    fn faults(file: &str, source: &str) -> Vec<String> {
        TREE.faults(file, source).unwrap()
    }

    #[test]
    fn what_stands_above_or_beside_is_found_with_its_line() {
        assert_eq!(
            faults("hall/door.rs", "use crate::cellar::Wine;\n\nuse crate::roof::Tile;\n"),
            ["house/src/hall/door.rs:3: `hall` uses `roof`, which stands above it"]
        );
        assert_eq!(
            faults("hall/mod.rs", "use crate::stairs;"),
            ["house/src/hall/mod.rs:1: `hall` uses `stairs`, which stands beside it"]
        );
        let house = faults("roof.rs", "fn f() -> crate::House { todo!() }");
        assert!(house[0].starts_with("house/src/roof.rs:1: `roof` uses `House`, which has no rank"), "{house:?}");
        for upward in [
            "use crate::{cellar::Wine, roof};",
            "use crate::{\n    cellar::{A, B},\n    roof::{C, D},\n};",
            "fn f() { g(crate::roof::Tile::new()) }",
            "macro_rules! m { () => { $crate::roof::Tile } }",
            "mod inner { fn f(tile: super::super::super::roof::Tile) {} }",
            "use super::super::roof;",
            "#[cfg(test)] mod tests {} use crate::roof;",
            "#[cfg(feature = \"x\")] use crate::roof;",
        ] {
            assert_eq!(faults("hall/door.rs", upward).len(), 1, "{upward}");
        }
    }

    #[test]
    fn clean_files_pass() {
        for clean in [
            "use crate::cellar::{Wine, roof};",
            "use crate::hall::window; use super::window; pub(crate) fn f() {} pub(super) fn g() {}",
            "// use crate::roof;\n/// [`crate::roof`]\n/* crate::roof */ const TEXT: &str = \"crate::roof\";",
            "#[cfg(test)]\nmod tests { use crate::roof; }",
            "#[cfg(test)]\nuse crate::{roof};",
            "#![cfg(test)]\nuse crate::roof;",
            "mod inner { use super::super::roof; }",
            "use super::super::cellar; use other::roof;",
        ] {
            assert_eq!(faults("hall/door.rs", clean), [""; 0], "{clean}");
        }
    }

    #[test]
    fn table_folders_and_tour_are_the_same() {
        let top = "//! * [`cellar`]: wine\n//! * `hall`\n//! * [`stairs`]\n//! * [`roof`]\n";
        let modules = ["cellar", "hall", "roof", "stairs"].map(str::to_owned);
        assert_eq!(TREE.differences(top, &modules, |_| true), [""; 0]);
        assert_eq!(TREE.differences("mod cellar; mod hall; mod stairs; mod roof;", &modules, |_| true), [""; 0]);
        assert_eq!(
            TREE.differences(&top.replace("hall", "roof"), &modules, |_| true).len(),
            2,
            "no hall, and another tour"
        );
        assert_eq!(TREE.differences(top, &[modules.to_vec(), vec!["attic".to_owned()]].concat(), |_| true).len(), 1);
    }

    #[test]
    fn an_instance_of_what_stands_above_or_beside_is_found() {
        let source = |name: &str, folder, text: &str| (name.to_owned(), folder, text.to_owned());
        let mut sources = vec![
            source("berth_fifo", "prim", "module berth_fifo;\n"),
            source("berth_fp_tx", "fast/tx", "module berth_fp_tx;\n  // berth_fp_rx sees it\n  berth_fifo a (.*);\n"),
            source("berth_fp_rx", "fast/rx", "module berth_fp_rx;\nendmodule\n"),
        ];
        assert_eq!(instances(&sources), [""; 0]);
        sources[1].2.push_str("  berth_fp_rx #(.N(1)) b (.*);\n");
        sources[0].2.push_str("  berth_fp_tx c (.*);\n");
        let wrong = instances(&sources);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("hw-rtl/rtl/prim/berth_fifo.sv:2: ") && wrong[1].contains("berth_fp_tx.sv:4: "));
    }

    #[test]
    fn this_checkout_keeps_its_layers() {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    }
}
