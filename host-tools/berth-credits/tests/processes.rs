// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two processes over shared memory (VC-11). The second one is this test binary again, which runs [`child`] only.

use berth_credits::endpoint::{Endpoint, Event, Options, SENDS};
use berth_credits::shared::Shared;
use berth_credits::transport::{Error, ROOM};
use berth_random::Rng;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

const SLOT: u32 = 1024;
const MEMORY: u32 = ROOM as u32 * SLOT;
/// Its value is the seed of the child's receive sizes. The socket is its standard input.
const CHILD: &str = "BERTH_CREDITS_CHILD";

/// The other process, and our end.
fn start(seed: u64) -> (Child, Endpoint<Shared>) {
    let (own, other) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, seed.to_string())
        .stdin(OwnedFd::from(other))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let shared = Shared::offer(own, MEMORY, MEMORY).unwrap();
    (child, Endpoint::new(shared, &Options::default(), 0))
}

/// Receives of random sizes.
struct Receives {
    rng: Rng,
    posted: u64,
    filled: u64,
}

impl Receives {
    fn new(seed: u64) -> Self {
        Self { rng: Rng(seed), posted: 0, filled: 0 }
    }

    /// Posts until `open` are open.
    fn post(&mut self, end: &mut Endpoint<Shared>, open: usize) {
        while self.posted - self.filled < open as u64 {
            let at = (self.posted % ROOM as u64) as u32 * SLOT;
            end.post_receive(self.posted, at, self.rng.between(1, SLOT as u64) as u32).unwrap();
            self.posted += 1;
        }
        end.commit();
    }
}

/// Sends everything back.
#[test]
fn child() {
    let Some(seed) = berth_random::number(CHILD) else {
        return;
    };
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut end = Endpoint::<_>::new(Shared::join(socket).unwrap(), &Options::default(), 0);
    let mut receives = Receives::new(seed);
    let mut sends = 0;
    for now in 0.. {
        // What comes back takes a send, too.
        receives.post(&mut end, SENDS.min(ROOM) - sends);
        match end.progress(now) {
            Ok(true) => (),
            Ok(false) => std::thread::yield_now(),
            Err(error) => {
                assert_eq!(error, Error::Gone);
                return;
            }
        }
        while let Some(event) = end.event() {
            match event {
                Event::Received { offset, len, .. } => {
                    let mut bytes = vec![0; len as usize];
                    assert!(end.read(offset, &mut bytes));
                    end.post_send(0, vec![bytes]).unwrap();
                    (receives.filled, sends) = (receives.filled + 1, sends + 1);
                }
                Event::Sent { .. } => sends -= 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Sends `total` bytes in sends of random sizes and compares what comes back, until `until` bytes are back. Gives the bytes
/// that were sent and are not back.
fn echo(end: &mut Endpoint<Shared>, seed: u64, total: usize, until: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut receives = Receives::new(seed + 1);
    let all = rng.bytes(total);
    let (mut given, mut back) = (0, 0);
    for now in 0.. {
        receives.post(end, ROOM);
        while given < total {
            // As a gather list.
            let len = (rng.between(1, 5_000) as usize).min(total - given);
            let (head, tail) = all[given..given + len].split_at(rng.below(len as u64 + 1) as usize);
            if end.post_send(0, vec![head.to_vec(), tail.to_vec()]).is_err() {
                break;
            }
            given += len;
        }
        if !end.progress(now).unwrap() {
            std::thread::yield_now();
        }
        while let Some(event) = end.event() {
            if let Event::Received { offset, len, .. } = event {
                let mut bytes = vec![0; len as usize];
                assert!(end.read(offset, &mut bytes));
                assert!(bytes == all[back..back + bytes.len()], "seed {seed}, byte {back}");
                (receives.filled, back) = (receives.filled + 1, back + bytes.len());
            }
        }
        if back >= until {
            receives.post(end, ROOM);
            return all[back..given].to_vec();
        }
    }
    unreachable!()
}

#[test]
fn vc_11_two_processes_send_and_receive_without_a_card() {
    let seed = berth_random::seed(3);
    let (mut child, mut end) = start(seed);
    const TOTAL: usize = 1_000_000;
    assert!(echo(&mut end, seed, TOTAL, TOTAL).is_empty());
    assert_eq!((end.counters().bytes_sent, end.counters().bytes_received), (TOTAL as u64, TOTAL as u64));
    drop(end);
    assert!(child.wait().unwrap().success());
}

#[test]
fn vc_11_a_killed_peer_ends_the_connection_and_nothing_else() {
    let seed = berth_random::seed(4);
    for seed in seed..seed + 10 {
        let (mut child, mut end) = start(seed);
        let away = echo(&mut end, seed, 300_000, Rng(seed).between(1, 200_000) as usize);
        child.kill().unwrap();
        child.wait().unwrap();
        // What the peer wrote before it was killed is still delivered.
        let error = (0..).find_map(|now| end.progress(1 << 40 | now).err());
        assert_eq!(error, Some(Error::Gone));
        let (mut back, mut open) = (0, 0);
        while let Some(event) = end.event() {
            match event {
                Event::Received { offset, len, .. } => {
                    let mut bytes = vec![0; len as usize];
                    assert!(end.read(offset, &mut bytes));
                    assert!(bytes == away[back..back + bytes.len()]);
                    back += bytes.len();
                }
                Event::NotReceived { .. } => open += 1,
                Event::Sent { .. } | Event::NotSent { .. } => (),
            }
        }
        assert!(open > 0);
    }
}
