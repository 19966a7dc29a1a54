// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes many mutants of a SystemVerilog file into one, as `mutate` does for Rust: `a < b` becomes
//! `($c1("berth::on(7)") ? a <= b : a < b)`.
//!
//! It knows the part of the language that hw-rtl/rtl is written in. Changed are expressions of assignments, conditions,
//! cases and of what goes into instances, and assignments in `always` blocks and functions. Left alone are declarations,
//! parameters, ports, headers of loops, labels of cases, ranges of bits, and what only assertions see.

use crate::mutate::{Mutant, tell_apart};
use anyhow::{Context as _, Result, bail, ensure};
use std::ops::Range;

/// Operators of two operands with their precedence, and what each may become.
const BINARY: [(&str, u32, &[&str]); 22] = [
    ("||", 1, &["&&"]),
    ("&&", 2, &["||"]),
    ("|", 3, &["&"]),
    ("^", 4, &["&"]),
    ("&", 5, &["|"]),
    ("==", 6, &["!="]),
    ("!=", 6, &["=="]),
    ("===", 6, &[]),
    ("!==", 6, &[]),
    ("<", 7, &["<=", ">="]),
    ("<=", 7, &["<", ">"]),
    (">", 7, &[">=", "<="]),
    (">=", 7, &[">", "<"]),
    ("<<", 8, &[">>"]),
    (">>", 8, &["<<"]),
    (">>>", 8, &[]),
    ("+", 9, &["-"]),
    ("-", 9, &["+"]),
    ("*", 10, &["+"]),
    ("/", 10, &[]),
    ("%", 10, &[]),
    ("**", 11, &[]),
];
const UNARY: [&str; 9] = ["!", "~", "-", "+", "&", "|", "^", "~&", "~|"];
const ASSIGN: [&str; 6] = ["=", "<=", "+=", "-=", "|=", "&="];
/// All of more than one character, the longest first.
const SYMBOLS: [&str; 21] = [
    "===", "!==", ">>>", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "**", "::", "+:", "-:", "+=", "-=", "|=",
    "&=", "~&", "~|",
];

/// A file with its mutants.
#[derive(Debug)]
pub struct Mutated {
    /// Its text.
    pub text: String,
    /// They.
    pub mutants: Vec<Mutant>,
    /// The number that comes after them.
    pub next: u32,
}

/// Mutates a file; numbers begin with `first`.
///
/// # Errors
/// If there is something in it that this parser does not know.
pub fn mutate(file: &str, source: &str, first: u32) -> Result<Mutated> {
    let tokens = tokens(source)?;
    let mut parser = Parser { source, tokens, at: 0, function: String::new(), indices: true };
    let nodes = parser.file().with_context(|| {
        let at = parser.tokens.get(parser.at).map_or(source.len(), |t| t.span.start);
        format!("{file}:{}", line(source, at))
    })?;
    let mut writer = Writer { file, source, next: first, found: Vec::new() };
    let text = writer.with_parts(0..source.len(), &nodes);
    tell_apart(&mut writer.found);
    Ok(Mutated { text, mutants: writer.found, next: writer.next })
}

fn line(source: &str, at: usize) -> usize {
    1 + source[..at].matches('\n').count()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Text,
    Symbol,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    span: Range<usize>,
}

/// Without comments, directives and attributes.
fn tokens(source: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let skip = |from: usize, end: &str| source[from..].find(end).map_or(source.len(), |n| from + n + end.len());
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let (kind, len) = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if rest.starts_with("//") || first == '`' {
            at = skip(at, "\n");
            continue;
        } else if rest.starts_with("/*") {
            at = skip(at, "*/");
            continue;
        } else if rest.starts_with("(*") && !rest.starts_with("(*)") {
            at = skip(at, "*)");
            continue;
        } else if first == '"' {
            (Kind::Text, 2 + rest[1..].find('"').context("a text has an end")?)
        } else if first.is_ascii_digit() || rest.starts_with("'0") || rest.starts_with("'1") {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(rest.len());
            let tail = rest[digits..].strip_prefix('\'').filter(|t| t.starts_with(|c: char| c.is_ascii_alphanumeric()));
            let tail = tail.map_or(0, |t| 1 + t.find(|c: char| !word(c)).unwrap_or(t.len()));
            (Kind::Number, digits + tail)
        } else if word(first) {
            (Kind::Word, rest.find(|c: char| !word(c)).unwrap_or(rest.len()))
        } else {
            let long = SYMBOLS.iter().find(|s| rest.starts_with(**s));
            (Kind::Symbol, long.map_or(first.len_utf8(), |s| s.len()))
        };
        tokens.push(Token { kind, span: at..at + len });
        at += len;
    }
    Ok(tokens)
}

/// What stands in place of a part of the source.
#[derive(Clone, Debug)]
enum Change {
    /// Another expression: what is said of it, and its text.
    Instead(String, String),
    /// No assignment.
    Nothing(String),
}

/// A part of the source, what is in it, and how it may be changed.
#[derive(Clone, Debug)]
struct Node {
    span: Range<usize>,
    parts: Vec<Node>,
    changes: Vec<Change>,
    /// The mutants' place, as people would name it.
    function: String,
    /// A name, a call, or a selection of bits: what has no operator.
    simple: bool,
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    at: usize,
    function: String,
    /// Indices may be changed: not where they must be constant.
    indices: bool,
}

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |t| &self.source[t.span.clone()])
    }

    fn kind(&self) -> Option<Kind> {
        self.tokens.get(self.at).map(|t| t.kind)
    }

    fn is(&self, text: &str) -> bool {
        self.peek(0) == text
    }

    fn take(&mut self, text: &str) -> bool {
        let is = self.is(text);
        self.at += usize::from(is);
        is
    }

    fn want(&mut self, text: &str) -> Result<()> {
        ensure!(self.take(text), "{text} is wanted, not {}", self.peek(0));
        Ok(())
    }

    /// Where the next token begins.
    fn start(&self) -> usize {
        self.tokens.get(self.at).map_or(self.source.len(), |t| t.span.start)
    }

    /// Where the last one ended.
    fn end(&self) -> usize {
        self.tokens[self.at - 1].span.end
    }

    /// Goes over one token, or over brackets with all that is in them.
    fn over(&mut self) -> Result<()> {
        let mut depth = 0;
        loop {
            match self.peek(0) {
                "" => bail!("the file ends in brackets"),
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => (),
            }
            self.at += 1;
            if depth <= 0 {
                return Ok(());
            }
        }
    }

    /// Goes over all up to a token outside of brackets, and over it.
    fn past(&mut self, end: &str) -> Result<()> {
        while !self.is(end) {
            self.over()?;
        }
        self.want(end)
    }

    fn node(&self, from: usize, parts: Vec<Node>) -> Node {
        let (function, span) = (self.function.clone(), from..self.end());
        Node { span, parts, changes: Vec::new(), function, simple: false }
    }

    fn text(&self, span: Range<usize>) -> String {
        let lines = self.source[span].lines().map(|l| l.split("//").next().unwrap_or_default().trim());
        lines.filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
    }

    // ---- modules ------------------------------------------------------------------------

    fn file(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "begin" | "end" | "else" | "generate" | "endgenerate" => self.at += 1,
                ":" => self.at += 2,
                "endmodule" => {
                    // So that a mutant that makes a bench wait for ever is found.
                    let at = self.start();
                    let clock = "always @(posedge clk) $c(\"berth::clock();\");\nendmodule".to_owned();
                    self.at += 1;
                    let mut node = self.node(at, Vec::new());
                    node.changes.push(Change::Instead(String::new(), clock));
                    nodes.push(node);
                }
                "assign" => {
                    self.at += 1;
                    nodes.extend(self.continuous()?);
                }
                "wire" => {
                    self.at += 1;
                    while self.is("[") || self.peek(1) != "=" && !self.is(";") {
                        self.over()?;
                    }
                    if !self.take(";") {
                        nodes.extend(self.continuous()?);
                    }
                }
                "always_comb" | "always_ff" | "always" => {
                    self.at += 1;
                    if self.take("@") {
                        self.over()?;
                    }
                    nodes.extend(self.statement()?);
                }
                "function" => {
                    self.past(";")?;
                    while !self.take("endfunction") {
                        nodes.extend(self.statement()?);
                    }
                }
                "for" | "if" => {
                    self.at += 1;
                    self.over()?;
                }
                _ => nodes.extend(self.instance()?),
            }
        }
        Ok(nodes)
    }

    /// `a = b, c = d;`
    fn continuous(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            self.function = self.target()?;
            self.want("=")?;
            nodes.push(self.expression(0)?);
            if !self.take(",") {
                break;
            }
        }
        self.want(";")?;
        if self.function == "unused" {
            nodes.clear();
        }
        Ok(nodes)
    }

    /// What is assigned to; its first name.
    fn target(&mut self) -> Result<String> {
        let first = self.tokens[self.at..].iter().find(|t| t.kind == Kind::Word).context("a name is wanted")?;
        let name = self.source[first.span.clone()].to_owned();
        ensure!(self.is("{") || self.kind() == Some(Kind::Word), "{} is nothing to assign to", self.peek(0));
        self.over()?;
        while self.is("[") || self.is(".") {
            self.over()?;
            if self.kind() == Some(Kind::Word) {
                self.at += 1;
            }
        }
        Ok(name)
    }

    /// An instance, with what goes into it; or a declaration.
    fn instance(&mut self) -> Result<Vec<Node>> {
        let (mut nodes, name) = (Vec::new(), self.peek(0).to_owned());
        let is_name = |p: &Self| p.kind() == Some(Kind::Word);
        let from = self.at;
        self.at += 1;
        if name != "module" && self.take("#") {
            self.over()?;
        }
        if !(is_name(self) && self.peek(1) == "(" && self.peek(2) == "." && name != "module") {
            self.at = from;
            self.past(";")?;
            return Ok(nodes);
        }
        self.function = self.peek(0).to_owned();
        self.at += 2;
        self.indices = false;
        while self.take(".") {
            self.at += 1;
            if self.take("(") {
                if !self.is(")") {
                    nodes.push(self.expression(0)?);
                }
                self.want(")")?;
            }
            self.take(",");
        }
        self.indices = true;
        self.want(")")?;
        self.want(";")?;
        Ok(nodes)
    }

    // ---- statements ---------------------------------------------------------------------

    /// What may be changed in a statement: nothing, if nothing is assigned in it.
    fn statement(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        match self.peek(0) {
            ";" => self.at += 1,
            "begin" => {
                self.at += 1;
                if self.take(":") {
                    self.at += 1;
                }
                while !self.take("end") {
                    nodes.extend(self.statement()?);
                }
            }
            "if" => {
                self.at += 1;
                self.want("(")?;
                self.function = "if".into();
                let condition = self.expression(0)?;
                self.want(")")?;
                nodes.extend(self.statement()?);
                if self.take("else") {
                    nodes.extend(self.statement()?);
                }
                if !nodes.is_empty() {
                    nodes.insert(0, self.turned(condition));
                }
            }
            "for" => {
                self.at += 1;
                self.over()?;
                nodes = self.statement()?;
            }
            "unique" | "priority" | "case" => {
                if !self.take("case") {
                    self.at += 1;
                    self.want("case")?;
                }
                self.want("(")?;
                self.function = "case".into();
                let of = self.expression(0)?;
                self.want(")")?;
                while !self.take("endcase") {
                    while !self.is(":") {
                        self.over()?;
                    }
                    self.want(":")?;
                    nodes.extend(self.statement()?);
                }
                if !nodes.is_empty() {
                    nodes.insert(0, of);
                }
            }
            "logic" | "int" | "automatic" | "assert" => self.past(";")?,
            word if word.starts_with('$') => self.past(";")?,
            _ => {
                let from = self.start();
                let name = self.target()?;
                if self.kind() == Some(Kind::Word) {
                    self.past(";")?; // a declaration of a type with a name
                    return Ok(nodes);
                }
                self.function = name;
                let Some(at) = ASSIGN.iter().position(|a| self.is(a)) else {
                    bail!("an assignment is wanted, not {}", self.peek(0));
                };
                self.want(ASSIGN[at])?;
                let value = self.expression(0)?;
                self.want(";")?;
                let mut node = self.node(from, vec![value]);
                let what = self.text(from..self.end() - 1);
                node.changes.push(Change::Nothing(format!("without `{what}`")));
                nodes.push(node);
            }
        }
        Ok(nodes)
    }

    // ---- expressions --------------------------------------------------------------------

    /// A condition that is no comparison or the like, turned around.
    fn turned(&self, mut condition: Node) -> Node {
        if condition.simple {
            let text = self.text(condition.span.clone());
            condition.changes.push(Change::Instead(format!("if not `{text}`"), format!("!({text})")));
        }
        condition
    }

    fn expression(&mut self, least: u32) -> Result<Node> {
        let from = self.start();
        let mut left = self.unary()?;
        loop {
            if least == 0 && self.is("?") {
                self.at += 1;
                let condition = self.turned(left);
                let yes = self.expression(0)?;
                self.want(":")?;
                let no = self.expression(0)?;
                left = self.node(from, vec![condition, yes, no]);
                continue;
            }
            let Some(&(op, strength, others)) = BINARY.iter().find(|(op, ..)| self.is(op)) else { break };
            if strength < least.max(1) {
                break;
            }
            self.at += 1;
            let right = self.expression(strength + 1)?;
            let (l, r) = (self.text(left.span.clone()), self.text(right.span.clone()));
            left = self.node(from, vec![left, right]);
            let instead =
                |new: &&str| Change::Instead(format!("`{l} {op} {r}` with {new}"), format!("({l}) {new} ({r})"));
            left.changes = others.iter().map(instead).collect();
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node> {
        let from = self.start();
        let Some(op) = UNARY.into_iter().find(|op| self.is(op)) else { return self.primary() };
        self.at += 1;
        let of = self.unary()?;
        let text = self.text(of.span.clone());
        let mut node = self.node(from, vec![of]);
        if op == "!" || op == "~" {
            // `!` of several bits is one bit
            let other = if op == "!" { format!("(({text}) != 0)") } else { format!("({text})") };
            node.changes.push(Change::Instead(format!("`{op}{text}` without {op}"), other));
        }
        node.simple = !matches!(op, "!" | "~");
        Ok(node)
    }

    fn primary(&mut self) -> Result<Node> {
        let from = self.start();
        let mut parts = Vec::new();
        let mut simple = false;
        match (self.peek(0), self.kind()) {
            ("(", _) => {
                self.at += 1;
                let inner = self.expression(0)?;
                simple = inner.simple;
                parts.push(inner);
                self.want(")")?;
            }
            ("{", _) => {
                self.at += 1;
                let first = self.expression(0)?;
                if self.is("{") {
                    parts.push(self.primary()?); // so many times
                } else {
                    parts.push(first);
                    while self.take(",") {
                        parts.push(self.expression(0)?);
                    }
                }
                self.want("}")?;
            }
            (number, Some(Kind::Number)) => {
                let other = one_more(number);
                let what = format!("{} for {number}", other.as_deref().unwrap_or_default());
                self.at += 1;
                if !self.is("'") {
                    let mut node = self.node(from, parts);
                    node.changes.extend(other.map(|text| Change::Instead(what, text)));
                    return Ok(node);
                }
            }
            (name, Some(Kind::Word)) => {
                let constant = name.starts_with('$');
                self.at += 1;
                simple = true;
                loop {
                    match self.peek(0) {
                        "." | "::" => self.at += 2,
                        "(" if constant => self.over()?,
                        "(" => {
                            self.at += 1;
                            while !self.take(")") {
                                parts.push(self.expression(0)?);
                                self.take(",");
                            }
                        }
                        "[" => parts.extend(self.index()?),
                        _ => break,
                    }
                }
            }
            (other, _) => bail!("no expression begins with {other}"),
        }
        if self.is("'") {
            // A cast: of what stands before it, no part is changed.
            self.at += 1;
            self.want("(")?;
            let inner = self.expression(0)?;
            self.want(")")?;
            return Ok(self.node(from, vec![inner]));
        }
        let mut node = self.node(from, parts);
        node.simple = simple;
        Ok(node)
    }

    /// What may be changed in an index: nothing in a range of bits or a constant.
    fn index(&mut self) -> Result<Option<Node>> {
        let from = self.at;
        self.over()?;
        let end = self.at;
        let text = &self.source[self.tokens[from].span.end..self.tokens[end - 1].span.start];
        if !self.indices || text.contains(':') || !text.contains(|c: char| c.is_ascii_alphabetic()) {
            return Ok(None);
        }
        self.at = from + 1;
        let node = self.expression(0)?;
        self.want("]")?;
        Ok(Some(node))
    }
}

/// A constant's successor, in its width.
fn one_more(number: &str) -> Option<String> {
    let Some((width, digits)) = number.split_once('\'') else {
        return Some((number.replace('_', "").parse::<u64>().ok()? + 1).to_string());
    };
    if width.is_empty() {
        return match digits {
            "0" => Some("'1".into()),
            "1" => Some("'0".into()),
            _ => None,
        };
    }
    let radix = match digits.chars().next()? {
        'b' => 2,
        'o' => 8,
        'd' => 10,
        'h' => 16,
        _ => return None,
    };
    let bits: u32 = width.parse().ok()?;
    let value = u64::from_str_radix(&digits[1..].replace('_', ""), radix).ok()?;
    let mask = u64::MAX.checked_shr(64_u32.checked_sub(bits)?)?;
    Some(format!("{bits}'d{}", value.wrapping_add(1) & mask))
}

struct Writer<'a> {
    file: &'a str,
    source: &'a str,
    next: u32,
    found: Vec<Mutant>,
}

impl Writer<'_> {
    /// A part of the source with the mutants of what is in it.
    fn with_parts(&mut self, span: Range<usize>, parts: &[Node]) -> String {
        let mut text = String::new();
        let mut at = span.start;
        for part in parts {
            text += &self.source[at..part.span.start];
            text += &self.with_changes(part);
            at = part.span.end;
        }
        text + &self.source[at..span.end]
    }

    /// What is in a part goes on with its mutants only where the part itself is unchanged, so that the text does not
    /// grow with each operator around it.
    fn with_changes(&mut self, node: &Node) -> String {
        let mut text = self.with_parts(node.span.clone(), &node.parts);
        for change in &node.changes {
            text = match change {
                Change::Instead(what, other) if what.is_empty() => other.clone(),
                Change::Instead(what, other) => {
                    let id = self.add(node, what);
                    format!("($c1(\"berth::on({id})\") ? {other} : {text})")
                }
                Change::Nothing(what) => {
                    let id = self.add(node, what);
                    format!("begin if (!$c1(\"berth::on({id})\")) {text} end")
                }
            };
        }
        text
    }

    fn add(&mut self, node: &Node, what: &str) -> u32 {
        let id = self.next;
        self.next += 1;
        let (file, function) = (self.file.into(), node.function.clone());
        self.found.push(Mutant { id, file, line: line(self.source, node.span.start), function, what: what.into() });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(body: &str) -> Vec<String> {
        let m = mutate("x.sv", &format!("module x (input clk);\n{body}\nendmodule"), 1).unwrap();
        assert!(m.text.contains("berth::clock"));
        m.mutants.into_iter().map(|m| m.what).collect()
    }

    #[test]
    fn each_operator_has_its_mutants() {
        assert_eq!(
            whats("assign a = b < 3'd7 && !(c == d);"),
            [
                "3'd0 for 3'd7",
                "`b < 3'd7` with <=",
                "`b < 3'd7` with >=",
                "`c == d` with !=",
                "`!(c == d)` without !",
                "`b < 3'd7 && !(c == d)` with ||",
            ]
        );
        assert_eq!(
            whats("wire [1:0] a = b ? c + d : e[f - 1];"),
            ["if not `b`", "`c + d` with -", "2 for 1", "`f - 1` with +",]
        );
    }

    #[test]
    fn operators_bind_as_they_do_in_the_language() {
        assert_eq!(
            whats("assign a = b | c & d == e + f;"),
            ["`e + f` with -", "`d == e + f` with !=", "`c & d == e + f` with |", "`b | c & d == e + f` with &",]
        );
    }

    #[test]
    fn statements_are_left_out_and_conditions_turned() {
        assert_eq!(
            whats(
                "always_ff @(posedge clk) begin case (s) A, B: if (x) y <= z; else begin t u; v[i] = w; end endcase end"
            ),
            ["if not `x`", "without `y <= z`", "without `v[i] = w`"]
        );
    }

    #[test]
    fn declarations_constants_ranges_and_assertions_are_left_alone() {
        let body = "localparam int A = 1 + 2; logic [A-1:0] b; sub #(.N(1 + 1)) s (.clk, .o(b[A-1:0]), .i({2{c[1]}}));
            for (genvar i = 0; i < 2; i++) begin : g assign b[i] = A'(c[i:0]); end
            always_ff @(posedge clk) if (!rst) assert (a == 1);
            wire unused = &{1'b0, b};";
        assert_eq!(whats(body), Vec::<String>::new());
    }
}
