// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two processes, each with a port of an RDMA device, send each other random bursts: no NIC ever says "receiver not ready".
//!
//! `verbs_bursts DEVICE GID PORT credits [PEER]`: receives of all sizes are posted in bursts, too. Both ends compare all
//! bytes that come, and their devices' counters of "receiver not ready".
//!
//! `verbs_bursts DEVICE GID PORT late [PEER]`: the same with a device that takes receives some time after they are posted, and
//! may say so. What is sent to it is sent again.
//!
//! `verbs_bursts DEVICE GID PORT bare [PEER]`: the same without credits, which must fail for that reason.
//!
//! GID is the index of the port's GID, PORT a TCP port. The process without PEER waits for the other one.

use berth_credits::endpoint::{Endpoint, Event, Options, SENDS};
use berth_credits::transport::{Error, Failure, ROOM, Transport};
use berth_credits::verbs::{Port, Verbs};
use berth_random::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;
use std::{env, fs};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of the largest receive.
const SLOT: u32 = 3000;
/// Bytes that each end sends.
const TOTAL: usize = 200_000;
/// Receives that are posted without credits, and pieces that are sent to them.
const BARE: u32 = 8;
const PIECES: usize = 64;

/// What two processes say to each other beside the connection.
struct Aside(TcpStream);

impl Aside {
    /// Says that this end has come so far.
    fn say(&mut self) -> Result<()> {
        Ok(self.0.write_all(b"!")?)
    }

    /// Whether the other end has said so, or is gone.
    fn heard(&mut self) -> Result<bool> {
        self.0.set_nonblocking(true)?;
        match self.0.read(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the device counted of "receiver not ready", if it counts it.
fn not_ready(device: &str) -> Result<Option<u64>> {
    let Ok(counters) = fs::read_dir(format!("/sys/class/infiniband/{device}/ports/1/hw_counters")) else {
        return Ok(None);
    };
    let mut sum = None;
    for counter in counters {
        let counter = counter?;
        if counter.file_name().to_string_lossy().contains("rnr") {
            let value: u64 = fs::read_to_string(counter.path())?.trim().parse()?;
            println!("{} {value}", counter.file_name().display());
            sum = Some(sum.unwrap_or(0) + value);
        }
    }
    Ok(sum)
}

/// Bursts both ways, with credits.
fn credits(verbs: Verbs, aside: &mut Aside, seed: u64, server: bool) -> Result<()> {
    let bytes = |server| Rng(seed + u64::from(server)).bytes(TOTAL);
    let (all, expected) = (bytes(server), bytes(!server));
    let mut rng = Rng(seed + 2 + u64::from(server));
    let begin = Instant::now();
    let mut end = Endpoint::new(verbs, &Options::default(), 0);
    let (mut given, mut sends, mut back) = (0, 0, 0);
    let (mut posted, mut open) = (0, 0);
    let (mut said, mut heard) = (false, false);
    while !said || !heard {
        if rng.chance(0.1) {
            for _ in 0..rng.below(60) {
                if open == ROOM {
                    break;
                }
                let at = (posted % ROOM as u64) as u32 * SLOT;
                end.post_receive(posted, at, rng.between(1, SLOT.into()) as u32)?;
                (posted, open) = (posted + 1, open + 1);
            }
            end.commit();
        }
        if rng.chance(0.1) {
            for _ in 0..rng.below(20) {
                let len = (rng.between(1, 10_000) as usize).min(TOTAL - given);
                if len == 0 || sends == SENDS {
                    break;
                }
                let (head, tail) = all[given..given + len].split_at(rng.below(len as u64 + 1) as usize);
                end.post_send(0, vec![head, tail]).map_err(|unposted| unposted.reason)?;
                (given, sends) = (given + len, sends + 1);
            }
        }
        if !end.progress(begin.elapsed().as_nanos() as u64)? {
            std::thread::yield_now();
        }
        while let Some(event) = end.event() {
            match event {
                Event::Received { offset, len, .. } => {
                    let mut bytes = vec![0; len as usize];
                    let whole = end.read(offset, &mut bytes);
                    if !whole || expected.get(back..back + bytes.len()) != Some(&bytes[..]) {
                        return Err(format!("other bytes than those that were sent, at byte {back}").into());
                    }
                    (open, back) = (open - 1, back + bytes.len());
                }
                Event::Sent { .. } => sends -= 1,
                other => return Err(format!("{other:?}").into()),
            }
        }
        // All has come, and the peer's NIC has answered all.
        if !said && given == TOTAL && sends == 0 && back == TOTAL {
            aside.say()?;
            said = true;
        }
        heard = heard || aside.heard()?;
    }
    println!("{:?}", end.counters());
    Ok(())
}

/// A burst in one direction, to fewer receives. It must fail.
fn bare(mut verbs: Verbs, aside: &mut Aside, server: bool) -> Result<()> {
    if server {
        for i in 0..BARE {
            verbs.post_receive(i * SLOT, 1 + i)?;
        }
        aside.say()?;
        while !aside.heard()? {
            std::thread::yield_now();
        }
        return Ok(());
    }
    while !aside.heard()? {
        std::thread::yield_now();
    }
    // It may fail before all are posted.
    let mut piece = || verbs.post_send(&mut [&b"x"[..]].into_iter(), 1, 0);
    let posted = (0..PIECES).try_for_each(|_| piece());
    let mut sent = 0;
    let error = loop {
        match posted.and_then(|()| verbs.poll()) {
            Ok(None) => std::thread::yield_now(),
            Ok(Some(_)) if sent == PIECES - 1 => return Err("nobody was not ready".into()),
            Ok(Some(_)) => sent += 1,
            Err(error) => break error,
        }
    };
    println!("{sent} known to be sent, then: {error}");
    aside.say()?;
    match error {
        Error::Failed(Failure::ReceiverNotReady) => Ok(()),
        other => Err(other.into()),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (device, gid, port, how, peer) = match &arguments[..] {
        [device, gid, port, how] => (device, gid, port, how, None),
        [device, gid, port, how, peer] => (device, gid, port, how, Some(peer)),
        _ => return Err("usage: verbs_bursts DEVICE GID PORT credits|late|bare [PEER]".into()),
    };
    let port: u16 = port.parse()?;
    let (socket, aside) = match peer {
        Some(peer) => (TcpStream::connect((peer.as_str(), port))?, TcpStream::connect((peer.as_str(), port))?),
        None => {
            let listener = TcpListener::bind(("0.0.0.0", port))?;
            (listener.accept()?.0, listener.accept()?.0)
        }
    };
    let (mut aside, server) = (Aside(aside), peer.is_none());
    let before = not_ready(device)?;
    // No device here is fast: no packet is sent again before 4.3 s are over.
    let port = Port { device, port: 1, gid: gid.parse()?, timeout: 20, rnr_retry: if how == "late" { 7 } else { 0 } };
    let verbs = Verbs::connect(socket, &port, ROOM as u32 * SLOT)?;
    match how.as_str() {
        "credits" | "late" => credits(verbs, &mut aside, berth_random::seed(15), server)?,
        "bare" => bare(verbs, &mut aside, server)?,
        other => return Err(format!("neither credits, late nor bare: {other}").into()),
    }
    let behind = not_ready(device)?;
    match how.as_str() {
        "credits" if behind != before => Err("a receiver was not ready".into()),
        "bare" if behind.is_some() && behind == before => Err("the device did not count it".into()),
        _ => Ok(()),
    }
}
