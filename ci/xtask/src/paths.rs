// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of paths that a user names, made before anything is fetched or built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Fails unless the file is a regular one that can be read; answers its length.
///
/// # Errors
/// As said, by the file's name.
pub fn readable(path: &Path) -> Result<u64> {
    let name = || format!("reading {}", path.display());
    let metadata = fs::metadata(path).with_context(name)?;
    if !metadata.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    fs::File::open(path).with_context(name)?;
    Ok(metadata.len())
}

/// Fails unless a file can be made in the folder.
fn writable(folder: &Path) -> Result<()> {
    let probe = folder.join(format!(".berth-{}", std::process::id()));
    fs::File::create(&probe).with_context(|| format!("writing to {}", folder.display()))?;
    Ok(fs::remove_file(&probe)?)
}

/// The folder that a path lies in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a folder for output and sees that files can be made in it; answers its full path.
///
/// # Errors
/// As said, by the folder's name.
pub fn output_folder(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    writable(folder)?;
    Ok(folder.canonicalize()?)
}

/// Fails unless the file can be written; `option` names it.
///
/// # Errors
/// As said, by the file's name.
pub fn output_file(option: &str, file: &Path) -> Result<()> {
    if file.is_dir() {
        bail!("{option}: {} is a folder", file.display());
    }
    writable(parent(file))
}

/// Fails unless a folder can be made that is not there yet; `option` names it.
///
/// # Errors
/// As said, by the folder's name.
pub fn new_folder(option: &str, folder: &Path) -> Result<()> {
    if folder.symlink_metadata().is_ok() {
        bail!("{option}: {} is there already", folder.display());
    }
    writable(parent(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_folder_in_a_writable_one_is_taken() {
        let here = std::env::temp_dir();
        assert!(new_folder("--out", &here.join(format!("berth-new-{}", std::process::id()))).is_ok());
        let error = new_folder("--out", &here).expect_err("it is there").to_string();
        assert!(error.contains("--out") && error.contains("is there already"), "{error}");
        assert!(new_folder("--out", Path::new("/proc/self/fd/new")).is_err());
        assert!(new_folder("--out", Path::new("/nowhere/at/all/new")).is_err());
    }
}
