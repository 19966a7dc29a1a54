// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds files of a source tree that use each other in a circle.
//!
//! A file uses another one when it names something that the other one declares, whatever modules re-export it. A module
//! that only declares or re-exports others does not use them. A file also uses the one in which a method stands that it
//! calls, if that is not the file of the method's type: types have their `impl` blocks in several files.
//!
//! Files are read as tokens, like for the folders. Types of expressions are not known. So a method call counts if its
//! receiver is `self`, or if no other function of the tree has its name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{is_for_tests, item_length};

/// Names of modules from the crate's root, or the names of any path.
type Names = Vec<String>;

/// What stands in a module.
#[derive(Default)]
struct Module {
    file: usize,
    /// What it declares itself.
    declared: BTreeSet<String>,
    /// What it imports or re-exports, and under which path.
    imports: BTreeMap<String, Names>,
    /// What it imports everything of.
    globs: Vec<Names>,
}

/// A path or a method call.
struct Use {
    file: usize,
    module: Names,
    line: usize,
    names: Names,
    /// The type of `self`, as it is named there.
    own: Option<Names>,
    is_method: bool,
}

/// What an `impl` block in `file` adds to its type.
struct Part {
    file: usize,
    module: Names,
    of: Names,
    name: String,
}

#[derive(Default)]
struct Tree {
    modules: BTreeMap<Names, Module>,
    uses: Vec<Use>,
    parts: Vec<Part>,
    /// How many functions have this name.
    functions: BTreeMap<String, usize>,
}

/// Where tokens stand.
#[derive(Clone)]
struct Place {
    file: usize,
    module: Names,
    own: Option<Names>,
}

/// Which file uses which other one, and the lines and names with which it does.
type Uses = BTreeMap<(usize, usize), BTreeSet<(usize, String)>>;

/// The circles among `files`, each a path below the tree's folder and a text. Of files that have several, one is told.
///
/// # Errors
/// Names a file that is no Rust.
pub(super) fn circles(files: &[(String, String)]) -> Result<Vec<String>> {
    let uses = uses(files)?;
    let (mut found, mut told) = (Vec::new(), BTreeSet::new());
    for start in 0..files.len() {
        let Some(circle) = circle(&uses, start).filter(|circle| circle.iter().all(|file| !told.contains(file))) else {
            continue;
        };
        let mut text = files[start].0.clone();
        let mut reasons = Vec::new();
        for (from, to) in circle.iter().zip(circle.iter().cycle().skip(1)) {
            text = format!("{text} -> {}", files[*to].0);
            reasons
                .extend(uses[&(*from, *to)].first().map(|(line, name)| format!("{}:{line} `{name}`", files[*from].0)));
        }
        found.push(format!("{text} ({})", reasons.join(", ")));
        told.extend(circle);
    }
    Ok(found)
}

/// The shortest circle through `start`, which it begins with.
fn circle(uses: &Uses, start: usize) -> Option<Vec<usize>> {
    let mut from = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for ((_, next), _) in uses.range((file, 0)..(file + 1, 0)) {
            if *next == start {
                let back = std::iter::successors(Some(file), |file| from.get(file).copied());
                let mut circle: Vec<_> = back.collect();
                circle.reverse();
                return Some(circle);
            }
            from.entry(*next).or_insert_with(|| {
                queue.push_back(*next);
                file
            });
        }
    }
    None
}

/// What `files` use of each other.
fn uses(files: &[(String, String)]) -> Result<Uses> {
    let mut tree = Tree::default();
    for (file, (path, text)) in files.iter().enumerate() {
        let module: Names =
            path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').map(str::to_owned).collect();
        let tokens = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        tree.modules.entry(module.clone()).or_default().file = file;
        tree.read(tokens, &Place { file, module, own: None });
    }
    // Of each type and name: the file, if it is not that of the type.
    let mut parts = BTreeMap::new();
    for part in &tree.parts {
        if let Some(of) = tree.resolve(&part.module, &part.of, 0).filter(|(home, _)| *home != part.file) {
            parts.insert((of, part.name.as_str()), part.file);
        }
    }
    let near = |a: usize, b: usize| files[a].0.split('/').next() == files[b].0.split('/').next();
    let mut found = Uses::new();
    for one in &tree.uses {
        let last = one.names.last().map_or("", String::as_str);
        let own = one.own.as_ref().and_then(|own| tree.resolve(&one.module, own, 0));
        let used = if one.is_method {
            let by_name = || parts.iter().find(|((_, name), _)| *name == last && tree.functions[last] == 1);
            let part = own.and_then(|own| parts.get(&(own, last)));
            [None, part.or_else(|| by_name().map(|(_, file)| file).filter(|file| near(**file, one.file))).copied()]
        } else {
            let of = if one.names[0] == "Self" { own } else { tree.resolve(&one.module, &one.names, 0) };
            [of.as_ref().map(|(file, _)| *file), of.and_then(|of| parts.get(&(of, last)).copied())]
        };
        for file in used.into_iter().flatten().filter(|file| *file != one.file) {
            found.entry((one.file, file)).or_default().insert((one.line, last.to_owned()));
        }
    }
    Ok(found)
}

impl Tree {
    /// The file that declares what `names` leads to from `module`, and its name there. None: it is a module or not of
    /// this tree.
    fn resolve(&self, module: &[String], names: &[String], turn: usize) -> Option<(usize, String)> {
        let mut at = module.to_vec();
        for (i, name) in names.iter().enumerate() {
            match name.as_str() {
                "crate" if i == 0 => at.clear(),
                "self" if i == 0 => (),
                "super" => drop(at.pop()?),
                _ => {
                    if let Some(here) = self.modules.get(&at) {
                        if here.declared.contains(name) {
                            return Some((here.file, name.clone()));
                        }
                        let on = |path: &Names| {
                            let path = [path.as_slice(), &names[i + 1..]].concat();
                            // An import of the module's own name leads out of the tree.
                            let ends = turn > 8 || (path[0] == *name);
                            (!ends).then(|| self.resolve(&at, &path, turn + 1)).flatten()
                        };
                        if let Some(path) = here.imports.get(name) {
                            return on(path);
                        }
                        let through = |glob: &Names| on(&[glob.as_slice(), std::slice::from_ref(name)].concat());
                        if let Some(found) = here.globs.iter().find_map(through) {
                            return Some(found);
                        }
                    }
                    at.push(name.clone());
                    if !self.modules.range(at.clone()..).next().is_some_and(|(module, _)| module.starts_with(&at)) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Takes in what stands in these tokens.
    fn read(&mut self, tokens: TokenStream, place: &Place) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut i = 0;
        while let Some(token) = tokens.get(i) {
            i += 1;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => match is_for_tests(&tokens[i..]) {
                    Some(true) => return,
                    Some(false) => i += item_length(&tokens[i..]),
                    None => (),
                },
                TokenTree::Group(group) => self.read(group.stream(), place),
                TokenTree::Ident(ident) => i += self.word(&tokens, i - 1, &ident.to_string(), place),
                _ => (),
            }
        }
    }

    /// Takes in what begins with the word at `i`; says how many further tokens that is.
    fn word(&mut self, tokens: &[TokenTree], i: usize, word: &str, place: &Place) -> usize {
        let punct = |i: usize, c: char| matches!(tokens.get(i), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let after = |c: char| i > 0 && punct(i - 1, c);
        let named = match tokens.get(i + 1) {
            Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
            _ => None,
        };
        match (word, named) {
            ("use", _) if !punct(i + 1, '<') => {
                let end = i + tokens[i..].iter().take_while(|t| !is(t, ';')).count();
                let is_public = i > 0 && !is(&tokens[i - 1], ';') && {
                    let before = |back: usize| i.checked_sub(back).and_then(|i| tokens.get(i)).map(ToString::to_string);
                    before(1).as_deref() == Some("pub") || before(2).as_deref() == Some("pub")
                };
                self.import(&tokens[i + 1..end], &mut Vec::new(), is_public, place);
                end - i
            }
            ("mod", Some(name)) => {
                let Some(TokenTree::Group(body)) = tokens.get(i + 2) else { return 1 };
                let module = [place.module.as_slice(), &[name]].concat();
                self.modules.entry(module.clone()).or_default().file = place.file;
                self.read(body.stream(), &Place { module, ..place.clone() });
                2
            }
            ("impl", _)
                if i == 0 || !(after('>') || after(':') || after('&') || after('=') || after('<') || after(',')) =>
            {
                self.implementation(&tokens[i + 1..], place)
            }
            ("trait", Some(name)) => {
                self.declare(name, place);
                1
            }
            ("fn", Some(name)) => {
                *self.functions.entry(name.clone()).or_default() += 1;
                if place.own.is_none() {
                    self.declare(name, place);
                }
                1
            }
            ("struct" | "enum" | "union" | "type", Some(name)) if place.own.is_none() => {
                self.declare(name, place);
                match tokens.get(i + 2) {
                    Some(TokenTree::Group(body)) if word == "enum" => {
                        self.variants(body.stream(), place);
                        2
                    }
                    _ => 1,
                }
            }
            ("const" | "static", Some(name)) if !after('*') && name != "fn" && place.own.is_none() => {
                self.declare(name, place);
                1
            }
            ("macro_rules", _) => {
                if let Some(TokenTree::Ident(name)) = tokens.get(i + 2) {
                    self.declare(name.to_string(), place);
                }
                2
            }
            _ if after('.') => {
                let mut end = i + 1;
                if punct(end, ':') && punct(end + 1, ':') {
                    end += 2 + generics(&tokens[end + 2..]);
                }
                let is_call =
                    matches!(tokens.get(end), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis);
                if is_call {
                    let of_self = i > 1
                        && matches!(&tokens[i - 2], TokenTree::Ident(ident) if ident == "self")
                        && !(i > 2 && punct(i - 3, '.'));
                    let own = place.own.clone().filter(|_| of_self);
                    self.note(tokens, i, vec![word.to_owned()], own, true, place);
                }
                0
            }
            _ if after(':') && i > 1 && punct(i - 2, ':') => 0,
            _ => {
                let mut names = vec![word.to_owned()];
                let mut end = i + 1;
                while punct(end, ':') && punct(end + 1, ':') {
                    match tokens.get(end + 2) {
                        Some(TokenTree::Ident(ident)) => names.push(ident.to_string()),
                        _ => break,
                    }
                    end += 3;
                }
                self.note(tokens, i, names, place.own.clone(), false, place);
                end - i - 1
            }
        }
    }

    /// Takes in what the variants of an enum have; their names are no uses.
    fn variants(&mut self, body: TokenStream, place: &Place) {
        let body: Vec<_> = body.into_iter().collect();
        for variant in body.split(|token| is(token, ',')) {
            let name = variant.iter().position(|token| matches!(token, TokenTree::Ident(_)));
            self.read(variant[name.map_or(0, |name| name + 1)..].iter().cloned().collect(), place);
        }
    }

    fn note(
        &mut self,
        tokens: &[TokenTree],
        i: usize,
        names: Names,
        own: Option<Names>,
        is_method: bool,
        place: &Place,
    ) {
        let line = tokens[i].span().start().line;
        self.uses.push(Use { file: place.file, module: place.module.clone(), line, names, own, is_method });
    }

    fn declare(&mut self, name: String, place: &Place) {
        self.modules.entry(place.module.clone()).or_default().declared.insert(name);
    }

    /// Takes in the tree of a `use`, whose path begins with `path`.
    fn import(&mut self, tokens: &[TokenTree], path: &mut Names, is_public: bool, place: &Place) {
        let depth = path.len();
        let mut name = None;
        let mut i = 0;
        while let Some(token) = tokens.get(i) {
            match token {
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is(token, ',')) {
                        self.import(part, path, is_public, place);
                    }
                    path.truncate(depth);
                    return;
                }
                TokenTree::Ident(ident) if ident == "as" => {
                    name = tokens.get(i + 1).map(ToString::to_string);
                    i += 1;
                }
                TokenTree::Ident(ident) if ident == "self" && !path.is_empty() => (),
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                token if is(token, '*') => {
                    let module = self.modules.entry(place.module.clone()).or_default();
                    module.globs.push(path.clone());
                    path.truncate(depth);
                    return;
                }
                // `::name` is another crate.
                _ if path.is_empty() => return,
                _ => (),
            }
            i += 1;
        }
        if let (Some(last), Some(first)) = (path.last(), tokens.first()) {
            let name = name.unwrap_or_else(|| last.clone());
            let module = self.modules.entry(place.module.clone()).or_default();
            module.imports.insert(name.clone(), path.clone());
            if !is_public {
                let line = first.span().start().line;
                let (file, module) = (place.file, place.module.clone());
                self.uses.push(Use { file, module, line, names: path.clone(), own: None, is_method: false });
            }
        }
        path.truncate(depth);
    }

    /// Takes in an `impl` block, whose header these tokens begin with; says how many tokens it has.
    fn implementation(&mut self, tokens: &[TokenTree], place: &Place) -> usize {
        let mut i = generics(tokens);
        let mut of = Vec::new();
        let mut of_trait = false;
        while let Some(token) = tokens.get(i) {
            match token {
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                    let stream: Vec<_> = body.stream().into_iter().collect();
                    for pair in stream.windows(2) {
                        if let [TokenTree::Ident(kind), TokenTree::Ident(name)] = pair
                            && (kind == "fn" || kind == "const" || kind == "type")
                            && name != "fn"
                            && !of_trait
                        {
                            let (file, module) = (place.file, place.module.clone());
                            self.parts.push(Part { file, module, of: of.clone(), name: name.to_string() });
                        }
                    }
                    self.read(body.stream(), &Place { own: Some(of), ..place.clone() });
                    return i + 1;
                }
                TokenTree::Ident(ident) if ident == "for" => {
                    of_trait = true;
                    self.note(tokens, i, std::mem::take(&mut of), None, false, place);
                }
                TokenTree::Ident(ident) if ident == "where" => {
                    let header = tokens[i + 1..]
                        .iter()
                        .take_while(|token| !matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace));
                    let header: TokenStream = header.cloned().collect();
                    i += header.clone().into_iter().count();
                    self.read(header, place);
                }
                TokenTree::Ident(ident) if !matches!(ident.to_string().as_str(), "mut" | "dyn" | "const") => {
                    of.push(ident.to_string())
                }
                token if is(token, '<') => {
                    let length = generics(&tokens[i..]);
                    self.read(tokens[i + 1..i + length].iter().cloned().collect(), place);
                    i += length;
                    continue;
                }
                _ => (),
            }
            i += 1;
        }
        i
    }
}

/// Tokens of the generics that these begin with, if they do.
fn generics(tokens: &[TokenTree]) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate() {
        let arrow = i > 0 && is(&tokens[i - 1], '-');
        if is(token, '<') {
            depth += 1;
        } else if is(token, '>') && !arrow {
            depth -= 1;
        }
        if depth == 0 {
            return if i == 0 { 0 } else { i + 1 };
        }
    }
    0
}

fn is(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a house, whose files are given.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        circles(&files).unwrap()
    }

    #[test]
    fn a_circle_is_told_with_its_reasons() {
        let door = ("hall/door.rs", "use super::window::Pane;\npub struct Door(Pane);");
        let window = ("hall/window.rs", "use crate::hall::lock::Lock;\npub struct Pane(Lock);");
        let lock = ("hall/lock.rs", "\npub struct Lock(super::door::Door);");
        assert_eq!(
            of(&[door, window, lock]),
            ["hall/door.rs -> hall/window.rs -> hall/lock.rs -> hall/door.rs \
              (hall/door.rs:1 `Pane`, hall/window.rs:1 `Lock`, hall/lock.rs:2 `Door`)"]
        );
        assert_eq!(of(&[door, window]), [""; 0]);
        let lock = ("hall/lock.rs", "pub struct Lock; #[cfg(test)] mod tests { use super::super::door::Door; }");
        assert_eq!(of(&[door, window, lock]), [""; 0]);
    }

    #[test]
    fn who_declares_is_used_and_not_who_re_exports() {
        let files =
            |hall, door| of(&[("hall/mod.rs", hall), ("hall/door.rs", door), ("hall/key.rs", "pub struct Key;")]);
        let door = "use super::Key; pub struct Door(Key);";
        assert_eq!(files("mod door; mod key; pub use door::Door; pub use key::Key;", door), [""; 0]);
        assert_eq!(files("mod door; pub use door::Door; pub enum Key { Door }", door), [""; 0]);
        assert_eq!(files("mod door; pub use door::Door; pub struct Key(Door);", door).len(), 1);
        assert_eq!(files("mod door; pub use door::*; fn f(_: Door) {} pub struct Key;", door).len(), 1);
        assert_eq!(files("mod door; use door::Door as Way; pub struct Key;", door).len(), 1);
    }

    #[test]
    fn methods_of_a_type_that_stand_in_other_files_are_used() {
        let files = |mine: &str, other: &str| {
            let rest = "impl Door { pub(super) fn open(&self) { self.turn(); } const WIDE: u32 = 1; }";
            let door = format!("pub struct Door(u32); impl Door {{ fn turn(&self) {{ {mine} }} }}");
            of(&[("hall/door.rs", &door), ("hall/open.rs", &format!("use super::door::Door; {rest} {other}"))])
        };
        assert_eq!(files("", ""), [""; 0]);
        for up in ["self.open()", "Self::open(self)", "Door::open(&Door(0))", "Self::WIDE", "let d = self; d.open()"] {
            assert_eq!(files(up, "").len(), 1, "{up}");
        }
        // Somebody else's, as far as can be told.
        assert_eq!(files("self.0.open()", "trait Shop { fn open(&self); }"), [""; 0]);
    }
}
