// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file larger than the guest's memory, sent by a user who may pin next to nothing. A part of its own (`cargo xtask test
//! --only large-file`), because its guests are small and it takes long.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use libberth::Limits;

use crate::env::{Env, Role};
use crate::memory::Linger;
use crate::tool::{NOBODY, NODE, Said, said, start_recv, tool};
use crate::util::{Conn, Mem, Res, depths, establish, field, fill};
use crate::{ensure, tests};

tests! {
    Pair: vc_2_a_file_larger_than_memory_is_sent_by_a_user_who_may_pin_little;
}

/// Of the file.
const BYTES: usize = 192 << 20;
/// Bytes that the sender may pin.
const MEMLOCK: u64 = 64 << 10;
const SERVICE: u16 = 970;

/// Cycles per byte in which the sender's card has work, when all memory stays pinned.
fn pinned_rate(env: &Env) -> Res<f64> {
    const SIZE: usize = 64 << 10;
    const DEPTH: usize = 16;
    let _linger = Linger::set(env, 60_000)?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(DEPTH as u32, DEPTH as u32))?;
    let mem = Mem::pattern(DEPTH * SIZE, 40)?;
    establish(env, &context, &conn.qp, SERVICE + 1)?;
    let mut round = |count: usize| -> Res<f64> {
        let start = env.busy_cycles()?;
        for n in 0..count + DEPTH {
            if n >= DEPTH {
                if env.role == Role::A { conn.sent(env) } else { conn.received(env) }?.ok()?;
            }
            let part = mem.sge(n % DEPTH * SIZE, SIZE);
            match env.role {
                _ if n >= count => {}
                Role::A => conn.send(n as u64, &[part])?,
                Role::B => conn.recv(n as u64, &[part])?,
            }
        }
        Ok((env.busy_cycles()? - start) as f64 / (count * SIZE) as f64)
    };
    round(DEPTH)?;
    env.meet("pinned")?;
    let rate = round(8 * DEPTH)?;
    env.meet("counted")?;
    Ok(rate)
}

/// The file, in the folder that the guest's host has.
fn file(env: &Env, path: &Path) -> Res {
    let mut chunk = vec![0; 1 << 20];
    fill(&mut chunk, env.seed, 0);
    let mut file = File::create(path)?;
    for n in 0..BYTES / chunk.len() {
        chunk[..8].copy_from_slice(&n.to_le_bytes());
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(fs::set_permissions(&env.args.share, fs::Permissions::from_mode(0o755))?)
}

/// Sends it, and tells how far it has come.
fn send(env: &Env, path: &Path) -> Res<Said> {
    let device = env.device()?;
    let (to, path) = (format!("{}:{SERVICE}", env.peer_ip), path.to_str().ok_or("path")?);
    let mut command = tool(&["--json", "send", "--to", &to, "--file", path, "--wait", "120"]);
    command.uid(NOBODY).gid(NOBODY);
    // SAFETY: one system call, which takes a limit that is there.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: MEMLOCK, rlim_max: MEMLOCK };
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    let before = device.counters()?.bytes_sent();
    let mut child = command.spawn()?;
    for n in 1.. {
        if child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        if n % 300 == 0 {
            println!("{} MiB have left", (device.counters()?.bytes_sent() - before) >> 20);
        }
    }
    said(child)
}

fn vc_2_a_file_larger_than_memory_is_sent_by_a_user_who_may_pin_little(env: &Env) -> Res {
    let ram = field(&fs::read_to_string("/proc/meminfo")?, "MemTotal:")? << 10;
    ensure!(ram < BYTES as u64, "this guest has {ram} bytes of memory");
    let pinned = pinned_rate(env)?;
    if env.role == Role::B {
        let child = start_recv(SERVICE, Path::new("/dev/null"), &[])?;
        said(child)?.expect(0, &["\"sha256_match\":true"])?;
        return env.meet("done");
    }
    let path = env.args.share.join("large");
    file(env, &path)?;
    fs::set_permissions(NODE, fs::Permissions::from_mode(0o666))?;
    let device = env.device()?;
    device.set_limits(&Limits { reset_peak: true, ..Limits::default() })?;
    let start = env.busy_cycles()?;
    let said = send(env, &path)?;
    let large = (env.busy_cycles()? - start) as f64 / BYTES as f64;
    said.expect(0, &["\"sha256_match\":true"])?;
    let (own, all) = (said.number("peak_pinned_bytes")?, device.counters()?.pinned_peak());
    println!(
        "figures: {BYTES} bytes from a host with {ram}; at most {own} were pinned for the process, {all} in all; {large:.3} \
         cycles of the card for a byte, {pinned:.3} where all stays pinned"
    );
    ensure!(own <= MEMLOCK && all <= MEMLOCK, "{own} and {all} bytes were pinned");
    fs::remove_file(path)?;
    env.meet("done")
}
