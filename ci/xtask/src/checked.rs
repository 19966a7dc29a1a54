// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks whose result depends on nothing but sources and compiler, each with a fixed seed: one that passed is kept in the
//! cache (`checked`) by all of that, and need not run again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::context::{Context, key};

/// What every build of the workspace depends on.
const ALWAYS: [&str; 3] = [".cargo/config.toml", "Cargo.lock", "Cargo.toml"];

/// A check, by all that its result depends on.
pub struct Checked(PathBuf);

impl Checked {
    /// `what` names the check and its arguments; it is built by `rustc` of these files and folders of the checkout.
    ///
    /// # Errors
    /// When one cannot be read, or the compiler does not say its version.
    pub fn new(context: &Context, what: &[&str], rustc: &mut Command, sources: &[&str]) -> Result<Self> {
        let version = rustc.arg("-vV").output().context("asking rustc for its version")?;
        if !version.status.success() {
            bail!("rustc: {}", String::from_utf8_lossy(&version.stderr).trim());
        }
        let mut inputs: Vec<Vec<u8>> = what.iter().map(|text| text.as_bytes().to_owned()).collect();
        inputs.push(version.stdout);
        inputs.push(std::env::var_os("RUSTFLAGS").unwrap_or_default().into_encoded_bytes());
        for source in ALWAYS.iter().chain(sources) {
            add(&context.repo, &context.repo.join(source), &mut inputs)?;
        }
        Ok(Self(context.folder("checked")?.join(key(inputs))))
    }

    /// How many tests passed, if it ran and all did.
    pub fn passed(&self) -> Option<u64> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Keeps that it ran and all of so many tests passed.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn keep(&self, passed: u64) -> Result<()> {
        // Whoever reads half of a number would read another one.
        let partial = self.0.with_extension(std::process::id().to_string());
        fs::write(&partial, format!("{passed}\n"))?;
        fs::rename(&partial, &self.0).context("keeping that a check passed")
    }
}

/// Adds name and text of a file, or of all files below a folder, in the order of their names.
fn add(repo: &Path, path: &Path, inputs: &mut Vec<Vec<u8>>) -> Result<()> {
    let failed = || format!("reading {}", path.display());
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(failed)?.map(|entry| Ok(entry?.path()));
        let mut paths = entries.collect::<std::io::Result<Vec<_>>>().with_context(failed)?;
        paths.sort();
        return paths.iter().try_for_each(|path| add(repo, path, inputs));
    }
    inputs.push(path.strip_prefix(repo).unwrap_or(path).as_os_str().as_encoded_bytes().to_owned());
    inputs.push(fs::read(path).with_context(failed)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_is_found_again_until_something_changes() {
        let root = std::env::temp_dir().join(format!("berth-checked-{}", std::process::id()));
        let (repo, cache) = (root.join("repo"), root.join("cache"));
        fs::create_dir_all(repo.join("a/b")).unwrap();
        fs::create_dir_all(repo.join(".cargo")).unwrap();
        for file in ALWAYS.iter().chain(&["a/b/one.rs", "a/two.rs"]) {
            fs::write(repo.join(file), file).unwrap();
        }
        let context = Context { repo: repo.clone(), cache: cache.clone(), built: cache };
        let of = |what: &str, version: &str| {
            Checked::new(&context, &[what], Command::new("echo").arg(version), &["a"]).unwrap()
        };
        assert_eq!(of("check", "1").passed(), None);
        of("check", "1").keep(85).unwrap();
        assert_eq!(of("check", "1").passed(), Some(85));
        assert_eq!(of("other", "1").passed(), None);
        assert_eq!(of("check", "2").passed(), None);
        fs::write(repo.join("a/b/one.rs"), "changed").unwrap();
        assert_eq!(of("check", "1").passed(), None);
        fs::write(repo.join("a/b/one.rs"), "a/b/one.rs").unwrap();
        assert_eq!(of("check", "1").passed(), Some(85));
        fs::rename(repo.join("a/two.rs"), repo.join("a/three.rs")).unwrap();
        assert_eq!(of("check", "1").passed(), None);
        fs::remove_dir_all(root).unwrap();
    }
}
