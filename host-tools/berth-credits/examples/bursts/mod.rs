// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random bursts between two processes, and what they say to each other beside them.

use berth_credits::endpoint::{Endpoint, Event, Options, SENDS};
use berth_credits::transport::{Error, ROOM, Transport};
use berth_random::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of the largest receive.
pub const SLOT: u32 = 3000;
/// Bytes that each end sends.
const TOTAL: usize = 200_000;

/// What two processes say to each other beside the connection.
pub struct Aside(pub TcpStream);

impl Aside {
    /// Says that this end has come so far.
    pub fn say(&mut self) -> Result<()> {
        Ok(self.0.write_all(b"!")?)
    }

    /// Whether the other end has said so, or is gone.
    pub fn heard(&mut self) -> Result<bool> {
        self.0.set_nonblocking(true)?;
        match self.0.read(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Bursts both ways, with credits; both ends must have the same seed. `check` looks at the transport at the end.
pub fn credits<T: Transport>(
    transport: T,
    options: &Options,
    aside: &mut Aside,
    server: bool,
    check: impl FnOnce(&T) -> Result<()>,
) -> Result<()> {
    let seed = berth_random::seed(15);
    let bytes = |server| Rng(seed + u64::from(server)).bytes(TOTAL);
    let (all, expected) = (bytes(server), bytes(!server));
    let mut rng = Rng(seed + 2 + u64::from(server));
    let begin = Instant::now();
    let mut end = Endpoint::new(transport, options, 0);
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
        match end.progress(begin.elapsed().as_nanos() as u64) {
            Ok(true) => (),
            Ok(false) => std::thread::yield_now(),
            // It has all, too, and did not wait for this end to hear that.
            Err(Error::Gone) if said && aside.heard()? => break,
            Err(error) => return Err(error.into()),
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
        // All has come, and the transport is done with all.
        if !said && given == TOTAL && sends == 0 && back == TOTAL {
            aside.say()?;
            said = true;
        }
        heard = heard || aside.heard()?;
    }
    println!("{:?}", end.counters());
    check(end.transport())
}
