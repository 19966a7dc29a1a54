// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the generated files of [`crate::gen`] into the checkout, or compares them and checks the documentation.

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use crate::documents;

/// Writes all generated files, or with `check` fails when one differs, or the [documentation](documents) is wrong.
///
/// # Errors
/// When a file cannot be written, or with `check` when one is not what the description says.
pub fn run(context: &Context, check: bool) -> Result<()> {
    let mut different = Vec::new();
    for (path, text) in crate::r#gen::files() {
        let file = context.repo.join(path);
        let same = fs::read_to_string(&file).is_ok_and(|old| old == text);
        if same {
            continue;
        }
        if check {
            different.push(path);
        } else {
            fs::write(&file, text).with_context(|| format!("writing {path}"))?;
            println!("wrote {path}");
        }
    }
    if !different.is_empty() {
        bail!("not what driver/abi says: {}; run `cargo xtask gen`", different.join(", "));
    }
    if check {
        documents::check(&context.repo)?;
    }
    Ok(())
}
