// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether `demo --keep` leaves guests whose shells answer: the command is run as a user does, its consoles are
//! typed into, and Ctrl-C ends it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::guest::Role;

/// What a guest may take to boot, run its script and answer.
const LIMIT: Duration = Duration::from_secs(300);
/// Leaves the console.
const LEAVE: u8 = 0x1d;

/// Ends its process when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The shell's socket of a run of the process `pid`.
fn shell(pid: u32, role: Role) -> PathBuf {
    std::env::temp_dir().join(format!("berth-{pid}-0/shell-{role}.sock"))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !condition()? {
        ensure!(Instant::now() < end, "never came true: {what}");
        crate::progress::stop_if_interrupted()?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Types a line into a guest's shell and waits for `answer`.
fn ask(role: Role, line: &str, answer: &str) -> Result<()> {
    let mut console = Command::new(std::env::current_exe()?)
        .args(["console", role.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)?;
    let mut input = console.0.stdin.take().context("no input")?;
    let mut output = console.0.stdout.take().context("no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 1024];
        while let Ok(n @ 1..) = output.read(&mut bytes) {
            if sender.send(bytes[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    input.write_all(format!("{line}\n").as_bytes())?;
    let mut text = Vec::new();
    let end = Instant::now() + LIMIT;
    while !String::from_utf8_lossy(&text).contains(answer) {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(bytes) => text.extend(bytes),
            Err(_) => bail!("guest {role} answers {:?}, not {answer:?}", String::from_utf8_lossy(&text)),
        }
    }
    input.write_all(&[LEAVE])?;
    drop(input);
    let status = console.0.wait()?;
    ensure!(status.success(), "the console ended with {status}");
    Ok(())
}

/// Runs the demo with `--keep` and a file in `out`, uses both guests, and ends it.
///
/// # Errors
/// When a guest does not answer, or the demo does not end well.
pub fn drive(file: &Path, out: &Path) -> Result<()> {
    let log = std::fs::File::create(out.join("keep.log"))?;
    let mut demo = Command::new(std::env::current_exe()?)
        .args(["demo", "--keep", "--no-build", "--file"])
        .arg(file)
        .arg("--out")
        .arg(out)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map(Running)?;
    let pid = demo.0.id();
    let share = std::env::temp_dir().join(format!("berth-{pid}-0/share"));
    wait_until("both guests have done their part", || {
        if let Some(status) = demo.0.try_wait()? {
            bail!("the demo ended with {status}; see {}", out.join("keep.log").display());
        }
        Ok(Role::ALL.iter().all(|r| share.join(format!("{r}.exit")).exists()))
    })?;
    for role in Role::ALL {
        ensure!(shell(pid, role).exists(), "guest {role} has no shell");
        // The echo of what is typed must not be taken for the answer.
        ask(role, "echo $role-$((6*7))", &format!("{role}-42"))?;
        // The device is in service in there.
        ask(role, "berth info >/dev/null && echo in-$((2*21))-service", "in-42-service")?;
    }
    ensure!(demo.0.try_wait()?.is_none(), "the demo did not wait for Ctrl-C");
    kill(Pid::from_raw(pid.try_into()?), Signal::SIGINT)?;
    wait_until("the demo ends", || Ok(demo.0.try_wait()?.is_some()))?;
    let status = demo.0.wait()?;
    ensure!(status.success(), "after Ctrl-C the demo ended with {status}; see {}", out.join("keep.log").display());
    ensure!(out.join("report.json").exists(), "no report was written");
    ensure!(Role::ALL.iter().all(|r| !shell(pid, *r).exists()), "something of the run was left behind");
    Ok(())
}
