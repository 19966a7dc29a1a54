// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where things are: the checkout, and the cache folder outside of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use sha2::{Digest, Sha256};

/// Places that every step needs.
#[derive(Clone, Debug)]
pub struct Context {
    /// The checkout.
    pub repo: PathBuf,
    /// The cache folder: `$BERTH_CACHE`, else `$XDG_CACHE_HOME/berth`, else `~/.cache/berth`.
    pub cache: PathBuf,
    /// The folder in the cache for what is built from this checkout.
    pub built: PathBuf,
}

/// File in a folder of built things that holds the path of their checkout.
const CHECKOUT: &str = "checkout";

impl Context {
    /// Finds the checkout from where this crate was built, and creates the cache folder.
    ///
    /// # Errors
    /// When neither `BERTH_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set, or the cache folder cannot be created or
    /// lies inside the checkout, or when make or QEMU could not use a path.
    pub fn new() -> Result<Self> {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("the crate xtask is not at ci/xtask")?
            .canonicalize()
            .context("the checkout that this xtask was built in is gone")?;
        let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = folder("BERTH_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|p| p.join("berth")))
            .or_else(|| folder("HOME").map(|p| p.join(".cache/berth")))
            .context("set BERTH_CACHE to a folder with 15 GB of free space (HOME is not set)")?;
        fit_for_tools("the cache folder", &cache, "BERTH_CACHE names another one")?;
        fit_for_tools("the checkout", &repo, "move it")?;
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        let cache = cache.canonicalize()?;
        if cache.starts_with(&repo) {
            bail!("the cache folder {} must lie outside of the checkout", cache.display());
        }
        let built = cache.join("built").join(key([repo.as_os_str().as_encoded_bytes()]));
        fs::create_dir_all(&built).with_context(|| format!("creating {}", built.display()))?;
        fs::write(built.join(CHECKOUT), repo.as_os_str().as_encoded_bytes())?;
        Ok(Self { repo, cache, built })
    }

    /// Bytes that this user may still write on the cache's file system.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn free(&self) -> Result<u64> {
        let system =
            statvfs(&self.cache).with_context(|| format!("asking how much is free in {}", self.cache.display()))?;
        Ok(system.blocks_available() * system.fragment_size())
    }

    /// Fails now if the coming steps will not fit the disk, instead of in the middle of them.
    ///
    /// # Errors
    /// When fewer than so many bytes are free.
    pub fn need_room(&self, bytes: u64, what: &str) -> Result<()> {
        let free = self.free()?;
        if free < bytes {
            bail!(
                "{what} takes up to {} GB in {}, where {:.1} GB are free; BERTH_CACHE names another folder",
                bytes.div_ceil(1_000_000_000),
                self.cache.display(),
                free as f64 / 1e9
            );
        }
        Ok(())
    }

    /// A folder in the cache, created when missing.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.cache.join(name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// A folder for what is built from this checkout, created when missing.
    ///
    /// Each checkout has its own: cargo and make go by times of files, and would take what was built from
    /// another checkout's newer files for up to date.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn built_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.built.join(name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Removes what was built from checkouts that are not there any more.
    ///
    /// # Errors
    /// When the cache cannot be read, or a folder cannot be removed.
    pub fn forget_gone_checkouts(&self) -> Result<()> {
        for entry in fs::read_dir(self.cache.join("built"))? {
            let folder = entry?.path();
            let Ok(checkout) = fs::read(folder.join(CHECKOUT)) else { continue };
            // Another process of that checkout may be writing the file anew: it is empty then.
            if !checkout.is_empty() && !Path::new(OsStr::from_bytes(&checkout)).exists() {
                fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
            }
        }
        Ok(())
    }

    /// The log file of a step.
    ///
    /// # Errors
    /// When the folder for logs cannot be created.
    pub fn log(&self, step: &str) -> Result<PathBuf> {
        Ok(self.folder("log")?.join(format!("{step}.log")))
    }

    /// Keeps other runs of xtask from making the same thing until the lock is dropped.
    ///
    /// # Errors
    /// When the lock file cannot be created.
    pub fn lock(&self, thing: &str) -> Result<Flock<fs::File>> {
        let path = self.folder("locks")?.join(thing);
        let file = fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(lock),
            Err((file, _)) => {
                crate::progress::line(&format!("waiting for what makes the same: {thing}"));
                Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e).context("locking in the cache folder")
            }
        }
    }
}

/// Refuses what make, the kernel's build or QEMU would take for something else in a path.
fn fit_for_tools(what: &str, path: &Path, remedy: &str) -> Result<()> {
    let bad = |c: &u8| c.is_ascii_whitespace() || c.is_ascii_control() || b",:;'\"\\$#%=".contains(c);
    if let Some(c) = path.as_os_str().as_encoded_bytes().iter().find(|c| bad(c)) {
        bail!("{what} {} has a {:?} in its path, which make or QEMU cannot take; {remedy}", path.display(), *c as char);
    }
    Ok(())
}

/// Refuses unsupported machines before anything is fetched or built.
///
/// # Errors
/// When it is not x86-64 Linux, or its folder for temporary files has a path that is too long for sockets.
pub fn check_machine() -> Result<()> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        bail!(
            "guests, kernels and the sysroot are for x86-64 Linux; here only `cargo test` and `cargo xtask simulate` work"
        );
    }
    let temporary = std::env::temp_dir();
    fit_for_tools("the folder for temporary files", &temporary, "TMPDIR names another one")?;
    if temporary.as_os_str().len() > LONGEST_TEMPORARY {
        bail!(
            "{} is too long: sockets lie in it, whose paths have at most {SOCKET_PATH} bytes; TMPDIR names another folder",
            temporary.display()
        );
    }
    Ok(())
}

/// Most bytes of a socket's path.
const SOCKET_PATH: usize = 107;
/// Most bytes of the path of the folder for temporary files: `/berth-PID-N/console-a.sock` comes behind it.
const LONGEST_TEMPORARY: usize = SOCKET_PATH - 36;

/// Short name for a set of inputs: the first 12 hex digits of the SHA-256 over all of them.
pub fn key<I: AsRef<[u8]>>(inputs: impl IntoIterator<Item = I>) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        let input = input.as_ref();
        hash.update((input.len() as u64).to_le_bytes());
        hash.update(input);
    }
    hash.finalize().iter().take(6).map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of a file in hex.
///
/// # Errors
/// When the file cannot be read.
pub fn sha256_file(path: &Path) -> Result<String> {
    let data = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Sha256::digest(&data).iter().map(|b| format!("{b:02x}")).collect())
}

/// Whether `path` is owned by the user who runs this.
pub fn owned_by_us(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.uid() == nix::unistd::Uid::effective().as_raw())
}

/// The lines of a list file: without comments and blanks.
pub fn list_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_depends_on_where_one_input_ends() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_eq!(key(["ab", "c"]).len(), 12);
    }

    #[test]
    fn paths_that_tools_cannot_take_are_refused_by_name() {
        for bad in ["/a b", "/a,b", "/a:b", "/a\nb", "/a'b"] {
            let error = fit_for_tools("the cache folder", Path::new(bad), "move it").unwrap_err().to_string();
            assert!(error.contains("the cache folder") && error.contains("move it"), "{error}");
        }
        assert!(fit_for_tools("it", Path::new("/home/jörg/.cache-2/berth_x"), "").is_ok());
    }

    #[test]
    fn list_lines_drop_comments_and_blanks() {
        let lines: Vec<_> = list_lines("# x\n\na # b\n [s] \n").collect();
        assert_eq!(lines, ["a", "[s]"]);
    }
}
