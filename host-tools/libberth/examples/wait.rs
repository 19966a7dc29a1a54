// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two ways to learn that an element is done: poll, or sleep until it is.
//!
//! ```sh
//! wait 192.0.2.1 9         # the card's own address (see `berth info`), and a free service
//! ```
//!
//! One queue pair sends to another of the same card; both use one completion queue. Polling answers at once and takes
//! no system call: use it where a core is there for it. Waiting polls for a moment, then arms the queue and sleeps at
//! its eventfd.

use std::error::Error;
use std::time::Duration;

use libberth::{Completion, CompletionQueue, Context, Device, QpConfig, Sge, WorkRequest};

/// How long this program waits for anything before it gives up.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// Bytes of a message, and of its receive buffer.
const SIZE: usize = 4096;

/// Polls until a completion is there.
fn poll(queue: &CompletionQueue) -> libberth::Result<Completion> {
    loop {
        if let Some(completion) = queue.poll()? {
            return completion.ok();
        }
        // Something else could be done here. Polling takes no system call; this one only lets others run.
        std::thread::yield_now();
    }
}

/// Sleeps until a completion is there.
fn wait(queue: &CompletionQueue) -> libberth::Result<Completion> {
    queue.wait(LIMIT)?.ok()
}

/// A way to get the next completion.
type Next = fn(&CompletionQueue) -> libberth::Result<Completion>;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(own), Some(service)) = (arguments.next(), arguments.next()) else {
        return Err("usage: wait OWN_ADDRESS SERVICE".into());
    };
    let (own, service) = (own.parse()?, service.parse()?);

    // Declared first, so that they are dropped last: the card may use them until the queue pairs have gone.
    let mut source = vec![0; SIZE];
    let mut target = vec![0; SIZE];

    let device = Device::open_first()?;
    let context = Context::new(&device)?;
    let queue = context.create_cq(64)?;
    let mut from = context.create_qp(&queue, &queue, &QpConfig::default())?;
    let mut to = context.create_qp(&queue, &queue, &QpConfig::default())?;

    let listener = context.listen(service)?;
    from.start_connect(own, service, b"")?;
    listener.next(LIMIT)?.accept(&to, b"")?;
    from.wait_established(LIMIT)?;
    to.wait_established(LIMIT)?;

    // Nothing is posted yet, so there is nothing to poll.
    assert!(queue.poll()?.is_none());

    let ways: [(&str, Next); 2] = [("polled", poll), ("waited for", wait)];
    for (wr_id, (name, next)) in (1..).zip(ways) {
        source.fill(wr_id as u8);
        let receive = [Sge { va: target.as_mut_ptr() as u64, len: SIZE as u32, reserved: 0 }];
        // SAFETY: `target` is not touched until its completion has come (below), and outlives the queue pair.
        unsafe { to.post_recv(&[WorkRequest { wr_id, sges: &receive, ..WorkRequest::default() }]) }?;
        let send = [Sge { va: source.as_ptr() as u64, len: SIZE as u32, reserved: 0 }];
        // SAFETY: `source` is not changed until its completion has come (below), and outlives the queue pair.
        unsafe { from.post_send(&[WorkRequest { wr_id, sges: &send, ..WorkRequest::default() }]) }?;

        // One completion is the send's, the other the receive's, in either order.
        let both = [next(&queue)?, next(&queue)?];
        assert_eq!(both.iter().filter(|c| c.recv).count(), 1);
        assert!(target == source, "what arrived is not what was sent");
        println!("{SIZE} bytes, {name}");
    }
    Ok(())
}
