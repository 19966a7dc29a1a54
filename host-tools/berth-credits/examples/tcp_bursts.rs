// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two processes send each other random bursts over a TCP connection, with lists as TCP options. Both ends compare all bytes
//! that come, and which way the lists went.
//!
//! `tcp_bursts CGROUP PORT both [PEER]`: both ends load the program for TCP options. All lists must go by options.
//!
//! `tcp_bursts CGROUP PORT one [PEER]`: the end with PEER does not. All lists must go inside the stream.
//!
//! `tcp_bursts CGROUP PORT stripped [PEER]`: the same when both have the program, but no option gets through, because the
//! program does not know the socket of the end with PEER.
//!
//! `tcp_bursts CGROUP PORT asleep [PEER]`: as `both`, from the end with PEER to the other, one receive after the other. Both
//! ends sleep whenever nothing is to be done.
//!
//! CGROUP is the folder of a cgroup that this process is in, PORT a TCP port. The process without PEER waits for the other one.

mod bursts;

use berth_credits::endpoint::{Endpoint, Event, Options};
use berth_credits::header::{Limits, Ways};
use berth_credits::tcp::Tcp;
use berth_credits::tcp_options::Program;
use berth_credits::transport::{Error, ROOM};
use bursts::{Aside, Result, SLOT, credits};
use rustix::event::{PollFd, PollFlags, poll};
use std::env;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Receives of an end that sleeps, of one byte each.
const RECEIVES: usize = 100;

/// One end, which sleeps when nothing is to be done.
fn asleep(tcp: Tcp, options: &Options, program: &Program, server: bool) -> Result<Ways> {
    let mut end = Endpoint::<_>::new(tcp, options, 0);
    match server {
        true => end.post_receive(0, 0, 1)?,
        false => end.post_send(0, vec![vec![1; RECEIVES]]).map_err(|unposted| unposted.reason)?,
    }
    end.commit();
    let (mut received, mut sent) = (0, false);
    while received < RECEIVES {
        let mut moved = match end.progress(0) {
            Ok(moved) => moved,
            // The receiver has all.
            Err(Error::Gone) if sent => break,
            Err(error) => return Err(error.into()),
        };
        while let Some(event) = end.event() {
            moved = true;
            match event {
                Event::Received { len: 1, .. } => {
                    received += 1;
                    end.post_receive(0, 0, 1)?;
                    end.commit();
                }
                Event::Sent { .. } => sent = true,
                other => return Err(format!("{other:?}").into()),
            }
        }
        if !moved && end.deadline(0) != Some(0) {
            let socket = end.transport().socket();
            poll(&mut [PollFd::new(socket, PollFlags::IN), PollFd::new(program, PollFlags::IN)], None)?;
        }
    }
    Ok(end.transport().ways())
}

/// Whether lists went the way that they should have gone.
fn check(how: &str, ways: Ways, program: &Program) -> Result<()> {
    let counts = program.counts()?;
    println!("{ways:?} {counts:?}");
    match (how, ways) {
        // A probe is an option, too. The last list may have found nobody.
        ("both", Ways { by_option: 1.., in_stream: 0 }) if counts.written >= ways.by_option && counts.read > 1 => {
            Ok(())
        }
        ("asleep", Ways { in_stream: 0, .. }) if ways.by_option + counts.read >= RECEIVES as u64 => Ok(()),
        ("one" | "stripped", Ways { by_option: 0, in_stream: 1.. }) if counts.read == 0 => Ok(()),
        _ => Err("lists went the wrong way".into()),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (cgroup, port, how, peer) = match &arguments[..] {
        [cgroup, port, how] => (cgroup, port, how.as_str(), None),
        [cgroup, port, how, peer] => (cgroup, port, how.as_str(), Some(peer)),
        _ => return Err("usage: tcp_bursts CGROUP PORT both|one|stripped|asleep [PEER]".into()),
    };
    let options_pass = matches!(how, "both" | "asleep");
    let program = Program::load(Path::new(cgroup))?;
    let port: u16 = port.parse()?;
    let (socket, aside) = match peer {
        Some(peer) => {
            let address = SocketAddr::new(peer.parse()?, port);
            let socket = if options_pass { program.connect(address)? } else { TcpStream::connect(address)? };
            (socket, TcpStream::connect(address)?)
        }
        None => {
            let listener = program.listen((Ipv4Addr::UNSPECIFIED, port).into())?;
            (listener.accept()?.0, listener.accept()?.0)
        }
    };
    let memory = ROOM as u32 * SLOT;
    // No time may decide which way a list goes where all can go by options; and a slow machine repeats none.
    let never = Duration::from_secs(3600);
    let limits = if options_pass { Limits { settle: never, late: never } } else { Limits::default() };
    let options = Options { repeat: never.as_nanos() as u64, ..Options::default() };
    let tcp = match (how, peer) {
        ("both" | "stripped" | "asleep", _) | ("one", None) => program.endpoint(socket, memory, limits)?,
        ("one", Some(_)) => Tcp::new(socket, memory)?,
        (other, _) => return Err(format!("neither both, one, stripped nor asleep: {other}").into()),
    };
    if how == "asleep" {
        let ways = asleep(tcp, &options, &program, peer.is_none())?;
        return check(how, ways, &program);
    }
    credits(tcp, &options, &mut Aside(aside), peer.is_none(), |tcp| check(how, tcp.ways(), &program))
}
