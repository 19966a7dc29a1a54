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
//! GID is the index of the port's GID, PORT a TCP port. The process without PEER waits for the other one. With iWARP, PEER is
//! an address of the device, and `late` and `bare` say nothing: what finds no receive ends the connection.

mod bursts;

use berth_credits::endpoint::Options;
use berth_credits::transport::{Error, Failure, ROOM, Transport};
use berth_credits::verbs::{Port, Verbs};
use bursts::{Aside, Result, SLOT, credits};
use std::net::{TcpListener, TcpStream};
use std::{env, fs};

/// Receives that are posted without credits, and pieces that are sent to them.
const BARE: u32 = 8;
const PIECES: usize = 64;

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
        "credits" | "late" => credits(verbs, &Options::default(), &mut aside, server, |_| Ok(()))?,
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
