// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For build scripts: what is compiled of a Verilated model, kept by all that it is compiled of, so that each model is
//! compiled once on a machine, whichever checkout or set of features asks for it. `BERTH_MODELS` names the folder; without
//! it nothing is kept. cargo need not know that name: what comes out is the same.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// What was not used for so many days is removed,
const DAYS: u64 = 14;
/// and of more models than these what was not used for longest: a state of the RTL has about 25.
const MOST: usize = 150;

/// Compiles the C++ in `folder` by `commands`, which run there and name nothing that lies elsewhere but tools: `products`
/// are there then.
pub fn compile(folder: &Path, commands: &mut [Command], products: &[String]) -> Result<(), String> {
    let kept = env::var_os("BERTH_MODELS").filter(|name| !name.is_empty()).map(PathBuf::from);
    let entry = kept.as_ref().map(|kept| Ok::<_, String>(kept.join(key(folder, commands)?))).transpose()?;
    if entry.as_ref().is_some_and(|entry| take(entry, folder, products).is_ok()) {
        return Ok(());
    }
    // One that was copied in part would be newer than what it is made of.
    products.iter().for_each(|name| drop(fs::remove_file(folder.join(name))));
    for command in commands {
        // cargo's jobserver is not meant for make
        command.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS").env_remove("MFLAGS");
        output(command.current_dir(folder))?;
    }
    if let (Some(kept), Some(entry)) = (kept, entry) {
        // Not being able to keep it, or another build that was faster, is no fault of what was built.
        let _ = put(&entry, folder, products);
        let _ = forget(&kept);
    }
    Ok(())
}

/// A name for all that goes into the products: the texts in `folder`, the commands and the tools.
fn key(folder: &Path, commands: &[Command]) -> Result<String, String> {
    let mut all = output(Command::new("verilator").arg("--version"))?.into_bytes();
    for command in commands {
        let program = command.get_program();
        all.extend(format!("{program:?} {:?}\n", command.get_args()).bytes());
        all.extend(output(Command::new(program).arg("--version"))?.bytes());
        // make's compiler
        for compiler in command.get_args().filter_map(|argument| argument.to_str()?.strip_prefix("CXX=")) {
            all.extend(output(Command::new(compiler).arg("--version"))?.bytes());
        }
    }
    let failed = |e| format!("{}: {e}", folder.display());
    let texts = fs::read_dir(folder).map_err(failed)?.map(|entry| entry.map(|entry| entry.path()));
    let mut texts = texts.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    texts.retain(|path| path.extension().is_some_and(|kind| kind == "cpp" || kind == "h" || kind == "mk"));
    texts.sort();
    for path in texts {
        all.extend(format!("\n{}\n", path.file_name().unwrap_or_default().display()).bytes());
        for line in fs::read(&path).map_err(failed)?.split_inclusive(|&byte| byte == b'\n') {
            // The makefile has the way back to where Verilator ran, from where nothing is compiled.
            if !line.starts_with(b"\t../") {
                all.extend(line);
            }
        }
    }
    sha256(&all)
}

/// Copies what is kept, and says that it was used.
fn take(entry: &Path, folder: &Path, products: &[String]) -> std::io::Result<()> {
    for name in products {
        fs::copy(entry.join(name), folder.join(name))?;
    }
    fs::File::open(entry)?.set_modified(SystemTime::now())
}

/// Keeps what was built, under its name only when it is whole.
fn put(entry: &Path, folder: &Path, products: &[String]) -> Result<(), String> {
    // Two builds may keep the same, but not from one folder.
    let own = sha256(folder.as_os_str().as_encoded_bytes())?;
    let partial = entry.with_extension(format!("{own}.partial"));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(|e| e.to_string())?;
    for name in products {
        fs::copy(folder.join(name), partial.join(name)).map_err(|e| e.to_string())?;
    }
    fs::rename(&partial, entry).or_else(|_| fs::remove_dir_all(&partial)).map_err(|e| e.to_string())
}

/// Removes what has long not been used.
fn forget(kept: &Path) -> std::io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(kept)? {
        let entry = entry?;
        entries.push((entry.metadata()?.modified()?, entry.path()));
    }
    entries.sort_by(|a, b| b.cmp(a));
    let oldest = SystemTime::now() - Duration::from_secs(DAYS * 24 * 3600);
    for (at, (used, path)) in entries.iter().enumerate() {
        if at >= MOST || *used < oldest {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

fn sha256(bytes: &[u8]) -> Result<String, String> {
    let failed = |e| format!("sha256sum: {e}");
    let mut command = Command::new("sha256sum");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    // It prints nothing before its input ends.
    child.stdin.take().map_or(Ok(()), |mut input| input.write_all(bytes)).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.get(..32).map(str::to_owned).ok_or_else(|| "sha256sum gave no sum".to_owned())
}

/// Runs a command; gives what it printed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e} (it is in the sysroot of `cargo xtask`)"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{name} failed:\n{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}
