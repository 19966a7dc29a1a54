// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk on another host (QP-21): the client names its memory in a command, the I/O node moves the blocks by RDMA, and an
//! answer says that it is done.
//!
//! ```sh
//! disk serve SERVICE FILE CLIENTS               # serves the file's blocks, until so many clients have left
//! disk read ADDRESS SERVICE FIRST COUNT FILE    # writes blocks of the disk into FILE
//! disk write ADDRESS SERVICE FIRST FILE         # writes FILE onto the disk, in whole blocks
//! ```
//!
//! The client's key opens its memory for one operation (QP-12). So the node can touch it once for each command, whenever
//! that is, and a command that comes twice does not. Nothing is pinned before the blocks move.

mod command;

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use command::{BLOCK, Command, MOST, Operation, Outcome, answer, answered};
use libberth::{
    Access, Buffer, Completion, CompletionQueue, Context, Device, Mode, ProtectionDomain, QpConfig, QueuePair, Region,
    Remote, Sge, WorkRequest,
};

/// How long this program waits for anything before it gives up.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// Messages that may come before one has been looked at, and bytes for each.
const MESSAGES: u32 = 4;
const MESSAGE: usize = 64;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", service, file, clients] => serve(service.parse()?, file, clients.parse()?),
        ["read", peer, service, first, count, file] => {
            let mut client = Client::connect(peer, service)?;
            let (first, count) = (first.parse()?, count.parse()?);
            fs::write(file, client.read(first, count)?)?;
            println!("read {count} blocks");
            Ok(())
        }
        ["write", peer, service, first, file] => {
            let mut client = Client::connect(peer, service)?;
            let mut bytes = fs::read(file)?;
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            client.write(first.parse()?, &bytes)?;
            println!("wrote {} blocks", bytes.len() / BLOCK);
            Ok(())
        }
        _ => Err("usage: disk serve SERVICE FILE CLIENTS | disk read ADDRESS SERVICE FIRST COUNT FILE | disk write ADDRESS SERVICE FIRST FILE".into()),
    }
}

/// A connection, and the memory that it uses. The queue pair comes first: it is dropped before the memory, after which the
/// card touches none of it.
struct Link {
    qp: QueuePair,
    sends: CompletionQueue,
    recvs: CompletionQueue,
    /// Messages that come.
    inbox: Buffer,
    /// Blocks.
    blocks: Buffer,
}

impl Link {
    fn new(context: &Context, domain: &ProtectionDomain) -> Result<Self> {
        // A message is a message, and a SEND behind a WRITE arrives behind it.
        let config = QpConfig { mode: Mode::Message, send_depth: 4, recv_depth: MESSAGES, ..QpConfig::default() };
        let (sends, recvs) = (context.create_cq(config.send_depth)?, context.create_cq(config.recv_depth)?);
        let qp = domain.create_qp(&sends, &recvs, &config)?;
        let inbox = Buffer::new(MESSAGES as usize * MESSAGE)?;
        let mut link = Self { qp, sends, recvs, inbox, blocks: Buffer::new(MOST as usize * BLOCK)? };
        (0..MESSAGES).try_for_each(|n| link.expect(u64::from(n)))?;
        Ok(link)
    }

    /// Room for a message, at place `n` of the inbox.
    fn expect(&mut self, n: u64) -> Result<()> {
        let place = &self.inbox[n as usize * MESSAGE..][..MESSAGE];
        let sges = [range(place)];
        // SAFETY: `inbox` is looked at only where a receive has completed, and lives longer than the queue pair.
        unsafe { self.qp.post_recv(&[WorkRequest { wr_id: n, sges: &sges, ..WorkRequest::default() }]) }?;
        Ok(())
    }

    /// The next message. None when the peer has gone.
    fn hear(&mut self) -> Result<Option<Vec<u8>>> {
        let done = self.recvs.wait(LIMIT)?;
        if done.ok().is_err() {
            return Ok(None);
        }
        let message = self.inbox[done.wr_id as usize * MESSAGE..][..done.byte_len as usize].to_vec();
        self.expect(done.wr_id)?;
        Ok(Some(message))
    }

    /// Sends a message.
    fn say(&mut self, bytes: &[u8]) -> Result<Completion> {
        let sges = [range(bytes)];
        // SAFETY: the bytes are copied during the call.
        unsafe { self.qp.post_send(&[WorkRequest { sges: &sges, inline: true, ..WorkRequest::default() }]) }?;
        Ok(self.sends.wait(LIMIT)?.ok()?)
    }

    /// Moves the first `len` bytes of `blocks` to memory of the peer, or from there.
    fn move_blocks(&mut self, operation: Operation, len: usize, at: Remote) -> Result<Completion> {
        let sges = [range(&self.blocks[..len])];
        let (remote, source) = match operation {
            Operation::Read => (Some(at), None),
            Operation::Write => (None, Some(at)),
        };
        let request = WorkRequest { sges: &sges, remote, source, ..WorkRequest::default() };
        // SAFETY: `blocks` is not looked at before the completion, and lives longer than the queue pair.
        unsafe { self.qp.post_send(&[request]) }?;
        Ok(self.sends.wait(LIMIT)?.ok()?)
    }
}

fn range(bytes: &[u8]) -> Sge {
    Sge { va: bytes.as_ptr() as u64, len: bytes.len() as u32, reserved: 0 }
}

/// The I/O node.
fn serve(service: u16, path: &str, clients: u32) -> Result<()> {
    let disk = File::options().read(true).write(true).open(path)?;
    let context = Context::new(&Device::open_first()?)?;
    let domain = context.create_domain()?;
    let listener = context.listen(service)?;
    println!("serving {path} as service {service}");
    for n in 1..=clients {
        let request = listener.next(LIMIT)?;
        let mut link = Link::new(&context, &domain)?;
        request.accept(&link.qp, b"")?;
        // What a client does wrong ends its connection, and no other one.
        let end = link.qp.wait_established(LIMIT).map_err(Into::into).and_then(|_| serve_one(&mut link, &disk));
        match end {
            Ok(()) => println!("client {n} has left"),
            Err(error) => println!("client {n} is lost: {error}"),
        }
    }
    Ok(())
}

/// Serves a client until it leaves.
fn serve_one(link: &mut Link, disk: &File) -> Result<()> {
    while let Some(message) = link.hear()? {
        let command = Command::parse(&message);
        let size = disk.metadata()?.len();
        let Some((command, (at, len))) = command.and_then(|command| Some((command, command.range(size)?))) else {
            link.say(&answer(command.map_or(0, |command| command.tag), Outcome::Bad))?;
            continue;
        };
        let memory = Remote { va: command.va, key: command.key };
        let moved = match command.operation {
            Operation::Read => match disk.read_exact_at(&mut link.blocks[..len], at) {
                Ok(()) => link.move_blocks(Operation::Read, len, memory).map(|_| Ok(()))?,
                failed => failed,
            },
            Operation::Write => {
                link.move_blocks(Operation::Write, len, memory)?;
                disk.write_all_at(&link.blocks[..len], at)
            }
        };
        link.say(&answer(command.tag, if moved.is_ok() { Outcome::Good } else { Outcome::Failed }))?;
    }
    Ok(())
}

/// A client: its commands go one after the other. The region comes first: nobody touches the link's memory when it is gone.
struct Client {
    /// Its key is bound anew for each command.
    memory: Region,
    link: Link,
    tag: u32,
}

impl Client {
    fn connect(peer: &str, service: &str) -> Result<Self> {
        let context = Context::new(&Device::open_first()?)?;
        let domain = context.create_domain()?;
        let link = Link::new(&context, &domain)?;
        // SAFETY: no memory yet.
        let memory = unsafe { domain.register(0, 0, Access::default()) }?;
        link.qp.connect(peer.parse()?, service.parse()?, b"", LIMIT)?;
        Ok(Self { memory, link, tag: 0 })
    }

    fn read(&mut self, first: u32, count: u32) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for from in (0..count).step_by(MOST as usize) {
            let blocks = MOST.min(count - from);
            self.command(Operation::Read, first.checked_add(from).ok_or("no disk is that long")?, blocks)?;
            bytes.extend_from_slice(&self.link.blocks[..blocks as usize * BLOCK]);
        }
        Ok(bytes)
    }

    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<()> {
        for (part, from) in bytes.chunks(MOST as usize * BLOCK).zip((0..).step_by(MOST as usize)) {
            self.link.blocks[..part.len()].copy_from_slice(part);
            let first = first.checked_add(from).ok_or("no disk is that long")?;
            self.command(Operation::Write, first, (part.len() / BLOCK) as u32)?;
        }
        Ok(())
    }

    /// Has blocks moved between the disk and `link.blocks`.
    fn command(&mut self, operation: Operation, first: u32, blocks: u32) -> Result<()> {
        let access = match operation {
            Operation::Read => Access { one_shot: true, ..Access::WRITE },
            Operation::Write => Access { one_shot: true, ..Access::READ },
        };
        let (va, len) = (self.link.blocks.as_ptr() as u64, u64::from(blocks) * BLOCK as u64);
        // SAFETY: nobody looks at `blocks` before the answer, which comes after the one access.
        unsafe { self.memory.rebind(va, len, access) }?;
        self.tag += 1;
        let command = Command { tag: self.tag, operation, first, blocks, va, key: self.memory.key() };
        self.link.say(&command.bytes())?;
        println!("command {}: {operation:?} of {blocks} blocks", self.tag);
        let message = self.link.hear()?.ok_or("the I/O node has ended the connection")?;
        match answered(&message) {
            Some((tag, Outcome::Good)) if tag == self.tag => Ok(()),
            Some((tag, outcome)) if tag == self.tag => Err(format!("the I/O node says: {outcome:?}").into()),
            _ => Err("the I/O node's answer is none".into()),
        }
    }
}
