// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stream over an RDMA device costs its host, with credits and without: for `cargo xtask bench --host`.
//!
//! `verbs_count DEVICE GID`: both ends are of this process, on one port, and take turns. In each round so many messages are sent.
//! Their receives are there, or come [`LATE`] later: then without credits the NIC meets a receiver that is not ready, and sends
//! again after each of its time-outs; with credits nothing is sent before.

use berth_credits::endpoint::{Endpoint, Event, Options};
use berth_credits::transport::{Completion, Transport};
use berth_credits::verbs::{Port, Verbs};
use berth_marks::{NOTHING, POLL, mark};
use std::env;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Messages of a round.
const BURST: usize = 16;
/// Bytes of each.
const SIZE: usize = 4096;
/// Rounds that are counted.
const ROUNDS: usize = 64;
/// How late receives are. A round trip of the device takes less.
const LATE: Duration = Duration::from_micros(200);

/// Both ends of a new connection.
fn ends(device: &str, gid: u8) -> Result<(Verbs, Verbs)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let name = device.to_owned();
    let end = move |socket| {
        let port = Port { device: &name, port: 1, gid, timeout: 20, rnr_retry: 7 };
        Verbs::connect(socket, &port, (BURST * SIZE) as u32)
    };
    let other = thread::spawn({
        let end = end.clone();
        move || end(far)
    });
    Ok((end(near)?, other.join().map_err(|_| "the other thread has failed")??))
}

/// Waits for `done`, which says whether it has found something to do.
fn turns(mut done: impl FnMut() -> Result<bool>, mut over: impl FnMut() -> bool) -> Result<()> {
    while !over() {
        mark::<POLL>();
        if !done()? {
            mark::<NOTHING>();
        }
    }
    Ok(())
}

/// Without credits.
struct Bare {
    near: Verbs,
    far: Verbs,
}

impl Bare {
    fn receives(&mut self) -> Result<()> {
        Ok((0..BURST).try_for_each(|n| self.far.post_receive((n * SIZE) as u32, SIZE as u32))?)
    }

    fn round(&mut self, late: Option<Duration>) -> Result<()> {
        if late.is_none() {
            self.receives()?;
        }
        let message = [1; SIZE];
        for _ in 0..BURST {
            if !self.near.can_send() {
                return Err("there is no room for a burst".into());
            }
            self.near.post_send(&mut [&message[..]].into_iter(), SIZE as u32, 0)?;
        }
        let (mut sent, mut received) = (0, 0);
        if let Some(late) = late {
            let start = Instant::now();
            turns(|| Ok(self.near.poll()?.inspect(|_| sent += 1).is_some()), || start.elapsed() > late)?;
            self.receives()?;
        }
        while sent < BURST || received < BURST {
            mark::<POLL>();
            let (one, other) = (self.near.poll()?, self.far.poll()?);
            sent += usize::from(one == Some(Completion::Sent));
            received += usize::from(matches!(other, Some(Completion::Received { .. })));
            if one.is_none() && other.is_none() {
                mark::<NOTHING>();
            }
        }
        Ok(())
    }
}

/// With credits.
struct Credits {
    near: Endpoint<Verbs, Vec<u8>>,
    far: Endpoint<Verbs, Vec<u8>>,
    message: Vec<Vec<u8>>,
    start: Instant,
}

impl Credits {
    fn new((near, far): (Verbs, Verbs)) -> Self {
        let [near, far] = [near, far].map(|verbs| Endpoint::new(verbs, &Options::default(), 0));
        Self { near, far, message: vec![vec![1; SIZE]; BURST], start: Instant::now() }
    }

    fn receives(&mut self) -> Result<()> {
        (0..BURST).try_for_each(|n| self.far.post_receive(n as u64, (n * SIZE) as u32, SIZE as u32))?;
        self.far.commit();
        Ok(())
    }

    /// Lets both ends do what there is to do; whether there was something.
    fn turn(&mut self) -> Result<bool> {
        let now = self.start.elapsed().as_nanos() as u64;
        Ok(self.near.progress(now)? | self.far.progress(now)?)
    }

    fn round(&mut self, late: Option<Duration>) -> Result<()> {
        if late.is_none() {
            self.receives()?;
        }
        for message in self.message.drain(..) {
            self.near.post_send(0, vec![message]).map_err(|unposted| unposted.reason)?;
        }
        if let Some(late) = late {
            let start = Instant::now();
            turns(|| self.turn(), || start.elapsed() > late)?;
            self.receives()?;
        }
        let mut received = 0;
        while received < BURST || self.message.len() < BURST {
            mark::<POLL>();
            if !self.turn()? {
                mark::<NOTHING>();
            }
            while let Some(event) = self.far.event() {
                received += usize::from(matches!(event, Event::Received { .. }));
            }
            while let Some(event) = self.near.event() {
                if let Event::Sent { buffers, .. } = event {
                    self.message.extend(buffers);
                }
            }
        }
        Ok(())
    }
}

/// Counts rounds, after some that are not counted.
fn window(name: &str, mut round: impl FnMut() -> Result<()>) -> Result<()> {
    (0..4).try_for_each(|_| round())?;
    let messages = ROUNDS * BURST;
    berth_marks::window(name, messages, messages * SIZE, || Ok(0), || (0..ROUNDS).try_for_each(|_| round()))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [device, gid] = &arguments[..] else {
        return Err("usage: verbs_count DEVICE GID".into());
    };
    let gid = gid.parse()?;
    berth_marks::idle()?;
    for (names, late) in [(["rxe_bare", "rxe_credits"], None), (["rxe_bare_late", "rxe_credits_late"], Some(LATE))] {
        let (near, far) = ends(device, gid)?;
        let mut bare = Bare { near, far };
        window(names[0], || bare.round(late))?;
        drop(bare);
        let mut credits = Credits::new(ends(device, gid)?);
        window(names[1], || credits.round(late))?;
    }
    Ok(())
}
