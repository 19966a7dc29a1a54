// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes many mutants of a source file into one: each asks at run time whether it is the one that is wanted.
//!
//! So they are all compiled once. `a < b` becomes `match (&a, &b) { (l, r) => if on(7) { *l <= *r } else { *l < *r } }`.

use crate::suite::write;
use anyhow::{Context as _, Result};
use proc_macro2::Span;
use quote::quote;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    BinOp, Block, Expr, File, GenericArgument, ImplItem, Item, Pat, ReturnType, Signature, Stmt, Type, UnOp,
    parse_quote,
};

/// One way to break the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Its number, from 1.
    pub id: u32,
    /// Source file, and line in it.
    pub file: String,
    /// Line.
    pub line: usize,
    /// The function that it is in.
    pub function: String,
    /// What was, and what is in its place.
    pub what: String,
}

impl Mutant {
    /// What it is known by, whatever moves it to other lines.
    pub fn key(&self) -> String {
        format!("{} {}: {}", self.file, self.function, self.what)
    }
}

/// Calls without an effect that a test could see: step bounds, the log.
const NO_EFFECT: [&str; 2] = ["step", "log"];
/// Functions that stay `const`, since constants are made by them.
const CONST: [&str; 5] = ["new", "berth", "foreign", "packets", "at"];

/// Goes through a file.
struct Mutator<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    function: String,
    next: u32,
    /// Numbers that are given but not written: they do not compile.
    without: &'a BTreeSet<u32>,
    found: Vec<Mutant>,
}

/// A file with its mutants.
struct Mutated {
    /// Its text.
    text: String,
    /// They.
    mutants: Vec<Mutant>,
    /// The number that comes after them.
    next: u32,
}

/// Mutates a file; numbers begin with `first`, and the mutants in `without` are left out, but keep their numbers.
///
/// # Errors
/// If it is no Rust.
fn mutate(file: &str, source: &str, first: u32, without: &BTreeSet<u32>) -> syn::Result<Mutated> {
    let mut tree: File = syn::parse_file(source)?;
    let lines = source.lines().collect();
    let mut m = Mutator { file, lines, function: String::new(), next: first, without, found: Vec::new() };
    m.visit_file_mut(&mut tree);
    tell_apart(&mut m.found);
    Ok(Mutated { text: quote!(#tree).to_string(), mutants: m.found, next: m.next })
}

/// Mutates files of folder `from` into folder `to`; numbers begin with 1, and those in `without` are left out. Gives the
/// mutants, the files' new texts one behind the other, and the number that comes after the last.
///
/// # Errors
/// If one can not be read or written, or is no Rust.
pub fn mutate_all(
    from: &Path,
    to: &Path,
    files: &[&str],
    without: &BTreeSet<u32>,
) -> Result<(Vec<Mutant>, String, u32)> {
    let (mut all, mut text, mut first) = (Vec::new(), String::new(), 1);
    for file in files {
        let source = fs::read_to_string(from.join(file)).context(file.to_string())?;
        let m = mutate(file, &source, first, without).context(file.to_string())?;
        write(&to.join(file), m.text.as_bytes())?;
        text += &m.text;
        first = m.next;
        all.extend(m.mutants);
    }
    Ok((all, text, first))
}

/// The mutant that is asked for nearest before a place; if there is none, the one behind it.
pub fn nearest(text: &str, at: usize) -> Option<u32> {
    const ASKS: &str = "mutated :: on (";
    let number = |at: usize| text.get(at..)?.split_once(')')?.0.trim_end_matches("u32").trim().parse().ok();
    let before = text.get(..at)?.rfind(ASKS).and_then(|at| number(at + ASKS.len()));
    // An error in what is asked itself, as of a wrong kind of value, is at the operands before it.
    before.or_else(|| text.get(at..)?.find(ASKS).and_then(|from| number(at + from + ASKS.len())))
}

/// The mutants of the function around a place that leave out a statement.
#[must_use]
pub fn left_out(text: &str, at: usize) -> Vec<u32> {
    const ASKS: &str = "if ! crate :: mutated :: on (";
    let from = text[..at].rfind(" fn ").unwrap_or(0);
    let to = text[at..].find(" fn ").map_or(text.len(), |n| at + n);
    let parts = text[from..to].split(ASKS).skip(1);
    parts.filter_map(|p| p.split_once(')')?.0.trim_end_matches("u32").trim().parse().ok()).collect()
}

/// The same again in a function of the same name gets a number.
pub fn tell_apart(mutants: &mut [Mutant]) {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for mutant in mutants {
        let times = times.entry(mutant.key()).or_default();
        *times += 1;
        if *times > 1 {
            mutant.what += &format!(" ({times})");
        }
    }
}

fn only_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let text = quote!(#a).to_string();
        a.path().is_ident("test") || text.contains("cfg (test)") || text.contains("feature")
    })
}

/// Whether `let` is somewhere in a condition, whose names the rest of it may use.
fn binds(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) => binds(&b.left) || binds(&b.right),
        Expr::Paren(p) => binds(&p.expr),
        _ => false,
    }
}

fn compared(op: &BinOp) -> Vec<BinOp> {
    match op {
        BinOp::Lt(_) => vec![parse_quote!(<=), parse_quote!(>=)],
        BinOp::Le(_) => vec![parse_quote!(<), parse_quote!(>)],
        BinOp::Gt(_) => vec![parse_quote!(>=), parse_quote!(<=)],
        BinOp::Ge(_) => vec![parse_quote!(>), parse_quote!(<)],
        BinOp::Eq(_) => vec![parse_quote!(!=)],
        BinOp::Ne(_) => vec![parse_quote!(==)],
        _ => vec![],
    }
}

fn calculated(op: &BinOp) -> Option<BinOp> {
    Some(match op {
        BinOp::Add(_) => parse_quote!(-),
        BinOp::Sub(_) => parse_quote!(+),
        BinOp::Mul(_) => parse_quote!(+),
        BinOp::Div(_) => parse_quote!(*),
        BinOp::Rem(_) => parse_quote!(/),
        BinOp::BitAnd(_) => parse_quote!(|),
        BinOp::BitOr(_) => parse_quote!(&),
        BinOp::BitXor(_) => parse_quote!(&),
        BinOp::Shl(_) => parse_quote!(>>),
        BinOp::Shr(_) => parse_quote!(<<),
        BinOp::AddAssign(_) => parse_quote!(-=),
        BinOp::SubAssign(_) => parse_quote!(+=),
        BinOp::BitAndAssign(_) => parse_quote!(|=),
        BinOp::BitOrAssign(_) => parse_quote!(&=),
        BinOp::BitXorAssign(_) => parse_quote!(|=),
        BinOp::ShlAssign(_) => parse_quote!(>>=),
        BinOp::ShrAssign(_) => parse_quote!(<<=),
        _ => return None,
    })
}

fn assigns(op: &BinOp) -> bool {
    quote!(#op).to_string().ends_with('=') && compared(op).is_empty()
}

impl Mutator<'_> {
    /// The number of a further mutant, if it is to be written.
    fn add(&mut self, span: Span, what: String) -> Option<u32> {
        let id = self.next;
        self.next += 1;
        if self.without.contains(&id) {
            return None;
        }
        let line = span.start().line;
        self.found.push(Mutant { id, file: self.file.into(), line, function: self.function.clone(), what });
        Some(id)
    }

    /// The source's own text, with its line breaks taken out.
    fn text(&self, span: Span) -> String {
        let (from, to) = (span.start(), span.end());
        let part = |n: usize| -> &str {
            let line = self.lines.get(n - 1).copied().unwrap_or_default();
            let at = |column: usize| line.char_indices().nth(column).map_or(line.len(), |(i, _)| i);
            let start = if n == from.line { at(from.column) } else { 0 };
            let end = if n == to.line { at(to.column) } else { line.len() };
            line.get(start..end).unwrap_or_default()
        };
        let all: Vec<&str> = (from.line..=to.line).map(|n| part(n).trim()).collect();
        all.join(" ")
    }

    fn body(&mut self, signature: &mut Signature, block: &mut Block) {
        let constant = signature.constness.is_some();
        if constant && CONST.iter().any(|c| signature.ident == c) {
            return;
        }
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        let span = signature.ident.span();
        let several = block.stmts.len() > 1;
        let before = self.found.len();
        self.visit_block_mut(block);
        if constant && self.found.len() == before && !quote!(#block).to_string().contains(" (") {
            // It calls nothing that is not constant any more, and others that are constant may call it.
            self.function = outer;
            return;
        }
        signature.constness = None;
        let values: Vec<Expr> = match &signature.output {
            ReturnType::Default if several => vec![parse_quote!(())],
            ReturnType::Default => vec![],
            ReturnType::Type(_, t) => match quote!(#t).to_string().as_str() {
                "bool" => vec![parse_quote!(true), parse_quote!(false)],
                "u8" | "u16" | "u32" | "u64" | "usize" => vec![parse_quote!(0), parse_quote!(1)],
                t if t.starts_with("Option <") => vec![parse_quote!(None)],
                _ => vec![],
            },
        };
        for value in values {
            let returned = quote!(#value).to_string();
            if let Some(id) = self.add(span, format!("returns {returned} at once")) {
                block.stmts.insert(0, parse_quote!(if crate::mutated::on(#id) { return #value; }));
            }
        }
        self.function = outer;
    }

    fn binary(&mut self, e: &mut Expr, span: Span, text: &str) {
        let Expr::Binary(b) = e else { return };
        let (l, r, op) = (&b.left, &b.right, &b.op);
        let instead = |new: &BinOp| format!("`{text}` with {}", quote!(#new));
        if matches!(op, BinOp::And(_) | BinOp::Or(_)) {
            if binds(l) || binds(r) {
                return;
            }
            let and = matches!(op, BinOp::And(_));
            let new: BinOp = if and { parse_quote!(||) } else { parse_quote!(&&) };
            let Some(id) = self.add(span, instead(&new)) else { return };
            *e = if and {
                parse_quote!(({ let t = #l; if t != crate::mutated::on(#id) { #r } else { t } }))
            } else {
                parse_quote!(({ let t = #l; if t == crate::mutated::on(#id) { #r } else { t } }))
            };
            return;
        }
        let mut inner: Expr = parse_quote!(*l #op *r);
        let alternatives = compared(op);
        if !alternatives.is_empty() {
            let mut any = false;
            for new in alternatives {
                if let Some(id) = self.add(span, instead(&new)) {
                    inner = parse_quote!(if crate::mutated::on(#id) { *l #new *r } else { #inner });
                    any = true;
                }
            }
            if any {
                *e = parse_quote!((match (&(#l), &(#r)) { (l, r) => #inner }));
            }
        } else if let Some(new) = calculated(op) {
            let Some(id) = self.add(span, instead(&new)) else { return };
            *e = if assigns(op) {
                parse_quote!({ if crate::mutated::on(#id) { #l #new #r } else { #l #op #r } })
            } else {
                parse_quote!((match (#l, #r) { (l, r) => if crate::mutated::on(#id) { l #new r } else { l #op r } }))
            };
        }
    }
}

impl VisitMut for Mutator<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Fn(f) if !only_for_tests(&f.attrs) => self.body(&mut f.sig, &mut f.block),
            Item::Impl(i) if !only_for_tests(&i.attrs) => {
                for item in &mut i.items {
                    if let ImplItem::Fn(f) = item
                        && !only_for_tests(&f.attrs)
                    {
                        self.body(&mut f.sig, &mut f.block);
                    }
                }
            }
            _ => (),
        }
    }

    // No mutants in types, patterns and constants.
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_generic_argument_mut(&mut self, _: &mut GenericArgument) {}
    fn visit_macro_mut(&mut self, _: &mut syn::Macro) {}

    fn visit_block_mut(&mut self, block: &mut Block) {
        for stmt in &mut block.stmts {
            let (span, effect) = match stmt {
                Stmt::Item(_) => continue,
                Stmt::Expr(Expr::MethodCall(c), Some(_)) => (c.span(), !NO_EFFECT.iter().any(|n| c.method == n)),
                Stmt::Expr(e @ (Expr::Assign(_) | Expr::Call(_)), Some(_)) => (e.span(), true),
                Stmt::Expr(Expr::Binary(b), Some(_)) if assigns(&b.op) => (b.span(), true),
                _ => (Span::call_site(), false),
            };
            let text = if effect { self.text(span) } else { String::new() };
            visit_mut::visit_stmt_mut(self, stmt);
            if effect && let Some(id) = self.add(span, format!("without `{text}`")) {
                *stmt = parse_quote!(if !crate::mutated::on(#id) { #stmt });
            }
        }
    }

    fn visit_expr_mut(&mut self, e: &mut Expr) {
        let span = e.span();
        let text = match e {
            Expr::Binary(_) | Expr::Unary(_) => self.text(span),
            Expr::If(i) => self.text(i.cond.span()),
            _ => String::new(),
        };
        match e {
            Expr::Repeat(r) => return self.visit_expr_mut(&mut r.expr),
            Expr::Const(_) | Expr::Macro(_) => return,
            Expr::If(i) if matches!(*i.cond, Expr::MethodCall(_) | Expr::Call(_) | Expr::Path(_) | Expr::Field(_)) => {
                let span = i.cond.span();
                visit_mut::visit_expr_if_mut(self, i);
                if let Some(id) = self.add(span, format!("if not `{text}`")) {
                    let cond = &i.cond;
                    i.cond = parse_quote!(((#cond) != crate::mutated::on(#id)));
                }
                return;
            }
            _ => visit_mut::visit_expr_mut(self, e),
        }
        match e {
            Expr::Binary(_) => self.binary(e, span, &text),
            Expr::Unary(u) if matches!(u.op, UnOp::Not(_)) => {
                let inner = &u.expr;
                if let Some(id) = self.add(span, format!("`{text}` without !")) {
                    *e = parse_quote!((match #inner { v => if crate::mutated::on(#id) { v } else { !v } }));
                }
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(source: &str) -> Vec<String> {
        let m = mutate("x.rs", source, 1, &BTreeSet::new()).unwrap();
        syn::parse_file(&m.text).unwrap();
        m.mutants.into_iter().map(|m| m.what).collect()
    }

    #[test]
    fn each_operator_has_its_mutants() {
        assert_eq!(
            whats("fn f(a: u32, b: u32) -> bool { a < b && !(a == b) }"),
            [
                "`a < b` with <=",
                "`a < b` with >=",
                "`a == b` with !=",
                "`!(a == b)` without !",
                "`a < b && !(a == b)` with ||",
                "returns true at once",
                "returns false at once",
            ]
        );
        assert_eq!(
            whats("fn f(&mut self) { self.a += 1; self.g(); if self.b { self.c = 2; } }"),
            [
                "`self.a += 1` with -=",
                "without `self.a += 1`",
                "without `self.g()`",
                "without `self.c = 2`",
                "if not `self.b`",
                "returns () at once",
            ]
        );
    }

    #[test]
    fn constants_patterns_and_tests_are_left_alone() {
        let source = "const A: u32 = 1 + 2; #[cfg(test)] mod t { fn f() -> u32 { 1 + 1 } } fn g() -> X { [0; 1 + 2] }";
        assert_eq!(whats(source), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_compile_is_left_out_and_keeps_its_number() {
        let source = "fn f(a: u32) -> X { X(a + 1, a - 1) }";
        let m = mutate("x.rs", source, 5, &BTreeSet::from([5])).unwrap();
        assert_eq!((m.mutants.iter().map(|m| m.id).collect::<Vec<_>>(), m.next), (vec![6], 7));
        assert!(m.text.contains("a + 1") && !m.text.contains("on (5"));
    }
}
