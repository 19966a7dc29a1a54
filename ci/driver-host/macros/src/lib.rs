// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of the kernel crate that the host's stand-in for it needs.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// A struct with pinned fields: here one as any other, so the fields' `#[pin]` goes.
#[proc_macro_attribute]
pub fn pin_data(_: TokenStream, item: TokenStream) -> TokenStream {
    without_pin(item)
}

/// A table of functions: here an implementation as any other.
#[proc_macro_attribute]
pub fn vtable(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// What is done when something pinned goes: here when it goes, unless a test has failed.
#[proc_macro_attribute]
pub fn pinned_drop(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut trees = item.clone().into_iter().skip_while(|t| t.to_string() != "for");
    let name = trees.nth(1).expect("it is for something");
    let drop = format!(
        "impl Drop for {name} {{
            fn drop(&mut self) {{
                if !std::thread::panicking() {{
                    // SAFETY: It stays where it is until it is gone.
                    kernel::prelude::PinnedDrop::drop(unsafe {{ core::pin::Pin::new_unchecked(self) }});
                }}
            }}
        }}"
    );
    let drop: TokenStream = drop.parse().expect("it can be read");
    item.into_iter().chain(drop).collect()
}

fn is_pin(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket && g.stream().to_string() == "pin")
}

fn without_pin(stream: TokenStream) -> TokenStream {
    let mut trees = stream.into_iter().peekable();
    let mut out = Vec::new();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(ref p) if p.as_char() == '#' && trees.peek().is_some_and(is_pin) => drop(trees.next()),
            TokenTree::Group(g) => {
                let mut inner = Group::new(g.delimiter(), without_pin(g.stream()));
                inner.set_span(g.span());
                out.push(inner.into());
            }
            tree => out.push(tree),
        }
    }
    out.into_iter().collect()
}
