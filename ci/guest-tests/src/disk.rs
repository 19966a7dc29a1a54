// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example `disk` (QP-21): commands, one-shot keys, blocks by RDMA, answers; and clients that do it wrong.

#[expect(dead_code, reason = "the I/O node's half of it is the example's")]
#[path = "../../../host-tools/libberth/examples/disk/command.rs"]
mod command;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command as Program, Stdio};

use command::{BLOCK, Command, Operation, Outcome, answered};
use libberth::{Access, Context, Mode, QpConfig, Reason, Region};

use crate::env::{Env, Role};
use crate::examples::{example, watched};
use crate::util::{Conn, Mem, PAGE, Res, check, conn_in, depths, fill};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: qp_21_blocks_of_a_disk_move_by_one_shot_keys;
}

const SERVICE: u16 = 840;
/// Blocks of the disk.
const BLOCKS: usize = 16;
/// Seeds of what the disk has at first, and of what is written to it.
const DISK: u64 = 480;
const WRITTEN: u64 = 481;

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("berth-disk-{name}-{}", std::process::id()))
}

fn qp_21_blocks_of_a_disk_move_by_one_shot_keys(env: &Env) -> Res {
    match env.role {
        Role::A => {
            env.hear("serving")?;
            programs(env)?;
            by_hand(env)?;
            killed(env)?;
            // What others did wrong is no harm to the next one.
            let (path, out) = (file("again"), &env.peer_ip.to_string());
            example("disk", &["read", out, &SERVICE.to_string(), "0", "1", path.to_str().ok_or("path")?])?;
            check(&fs::read(&path)?, DISK, 0)?;
            fs::remove_file(&path)?;
        }
        Role::B => {
            let path = file("blocks");
            let mut bytes = vec![0; BLOCKS * BLOCK];
            fill(&mut bytes, DISK, 0);
            fs::write(&path, &bytes)?;
            let arguments = ["serve", &SERVICE.to_string(), path.to_str().ok_or("path")?, "6"];
            let text = watched("disk", &arguments, |line| {
                if line.starts_with("serving") { env.tell("serving", "") } else { Ok(()) }
            })?;
            let ends: Vec<bool> = text.lines().skip(1).map(|line| line.ends_with("has left")).collect();
            ensure!(ends == [true, true, false, false, false, true], "{text}");
            fill(&mut bytes[2 * BLOCK..4 * BLOCK], WRITTEN, 0);
            bytes[3 * BLOCK + 100..4 * BLOCK].fill(0);
            ensure!(fs::read(&path)? == bytes, "the disk has other blocks");
            fs::remove_file(&path)?;
        }
    }
    env.meet("done")
}

/// Clients 1 and 2: as a user runs them.
fn programs(env: &Env) -> Res {
    let (peer, service, path) = (env.peer_ip.to_string(), SERVICE.to_string(), file("copy"));
    let name = path.to_str().ok_or("path")?;
    let mut bytes = vec![0; BLOCK + 100];
    fill(&mut bytes, WRITTEN, 0);
    fs::write(&path, &bytes)?;
    ensure!(example("disk", &["write", &peer, &service, "2", name])?.contains("wrote 2 blocks"));
    ensure!(example("disk", &["read", &peer, &service, "1", "3", name])?.contains("read 3 blocks"));
    let got = fs::read(&path)?;
    ensure_eq!(got.len(), 3 * BLOCK);
    check(&got[..BLOCK], DISK, BLOCK as u64)?;
    check(&got[BLOCK..2 * BLOCK + 100], WRITTEN, 0)?;
    ensure!(got[2 * BLOCK + 100..].iter().all(|byte| *byte == 0), "the last block is filled with zeros");
    fs::remove_file(&path)?;
    Ok(())
}

/// A client of which each message is the test's.
struct Client<'a> {
    env: &'a Env,
    region: Region,
    conn: Conn,
    inbox: Mem,
}

impl<'a> Client<'a> {
    fn connect(env: &'a Env, context: &Context) -> Res<Self> {
        let config = QpConfig { mode: Mode::Message, ..depths(4, 4) };
        let domain = context.create_domain()?;
        let conn = conn_in(context, &domain, &config)?;
        // SAFETY: no memory yet.
        let region = unsafe { domain.register(0, 0, Access::default()) }?;
        conn.qp.connect(env.peer_ip, SERVICE, b"", env.limit())?;
        Ok(Self { env, region, conn, inbox: Mem::new(PAGE)? })
    }

    /// Has blocks from `first` on read into the memory, of which `bytes` are opened for it.
    fn read(&self, mem: &Mem, bytes: usize, first: u32, blocks: u32) -> Res<Command> {
        let access = Access { one_shot: true, ..Access::WRITE };
        // SAFETY: the test keeps its memory, and looks at it when the access is over.
        unsafe { self.region.rebind(mem.va(0), bytes as u64, access) }?;
        let (operation, va, key) = (Operation::Read, mem.va(0), self.region.key());
        Ok(Command { tag: 7, operation, first, blocks, va, key })
    }

    /// Sends a message.
    fn say(&mut self, bytes: &[u8]) -> Res {
        self.conn.recv(0, &[self.inbox.sge(0, PAGE)])?;
        self.conn.send_inline(0, bytes)?;
        self.conn.sent(self.env)?.ok()?;
        Ok(())
    }

    /// Sends a message; what is answered.
    fn ask(&mut self, bytes: &[u8]) -> Res<(u32, Outcome)> {
        self.say(bytes)?;
        let len = self.conn.received(self.env)?.ok()?.byte_len as usize;
        Ok(answered(&self.inbox.bytes()[..len]).ok_or("no answer")?)
    }

    /// The I/O node is refused what it wants to do, which ends the connection.
    fn refused(&self) -> Res {
        ensure_eq!(self.conn.qp.wait_closed(self.env.limit())?, Reason::Access);
        Ok(())
    }
}

/// Clients 3 and 4: memory that is not there, bad commands, a key that is used, a range that is too short.
fn by_hand(env: &Env) -> Res {
    let context = env.context()?;
    let mut mem = Mem::swapped_out(2 * BLOCK, 482)?;
    let mut client = Client::connect(env, &context)?;
    ensure_eq!(client.ask(b"nonsense")?, (0, Outcome::Bad));
    let beyond = client.read(&mem, 2 * BLOCK, BLOCKS as u32 - 1, 2)?;
    ensure_eq!(client.ask(&beyond.bytes())?, (7, Outcome::Bad));
    let command = client.read(&mem, 2 * BLOCK, 4, 2)?;
    ensure_eq!(client.ask(&command.bytes())?, (7, Outcome::Good));
    check(mem.bytes(), DISK, 4 * BLOCK as u64)?;
    mem.bytes_mut().fill(0);
    client.say(&command.bytes())?;
    client.refused()?;

    let mut client = Client::connect(env, &context)?;
    let short = client.read(&mem, 2 * BLOCK - 1, 4, 2)?;
    client.say(&short.bytes())?;
    client.refused()?;
    ensure!(mem.bytes().iter().all(|byte| *byte == 0), "what was refused has written");
    Ok(())
}

/// Client 5 is killed while its blocks are on their way.
fn killed(env: &Env) -> Res {
    let (peer, path) = (env.peer_ip.to_string(), file("never"));
    let mut child = Program::new("example-disk")
        .args(["read", &peer, &SERVICE.to_string(), "0", &BLOCKS.to_string()])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    ensure!(line.starts_with("command 1:"), "{line}");
    ensure!(!path.exists(), "it was killed too late");
    Ok(())
}
