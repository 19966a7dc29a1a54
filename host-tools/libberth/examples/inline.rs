// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends small messages inline, from one queue pair to another of the same card.
//!
//! ```sh
//! inline 192.0.2.1 8       # the card's own address (see `berth info`), and a free service
//! ```
//!
//! An inline send carries its bytes in the queue element. They are copied when it is posted, so the memory may be used
//! again at once, and the card asks the host for no page. Raw queue pairs are `unsafe` where the caller must keep
//! memory alive; each such place says below why it holds.

use std::error::Error;
use std::time::Duration;

use libberth::{Context, Device, Mode, QpConfig, Sge, WorkRequest};

/// How long this program waits for anything before it gives up.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// Size of each receive buffer.
const SIZE: usize = 64;

/// A range of memory, as a queue element names it.
fn range(start: *const u8, len: usize) -> Sge {
    Sge { va: start as u64, len: len as u32, reserved: 0 }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(own), Some(service)) = (arguments.next(), arguments.next()) else {
        return Err("usage: inline OWN_ADDRESS SERVICE".into());
    };
    let (own, service) = (own.parse()?, service.parse()?);
    let messages = ["one", "two and a little", "three, at most forty bytes in all"];

    // Memory for the receives. It is declared first, so that it is dropped last: the card may write to it until the
    // queue pair has gone.
    let mut memory = vec![0; SIZE * messages.len()];

    let device = Device::open_first()?;
    let context = Context::new(&device)?;
    // Message mode: one send fills one receive, as with verbs.
    let config = QpConfig { mode: Mode::Message, ..QpConfig::default() };
    let sends = context.create_cq(64)?;
    let receives = context.create_cq(64)?;
    let mut from = context.create_qp(&sends, &receives, &config)?;
    let mut to = context.create_qp(&sends, &receives, &config)?;

    // Post all receives with one doorbell.
    let buffers: Vec<_> = memory.chunks_mut(SIZE).map(|buffer| [range(buffer.as_mut_ptr(), SIZE)]).collect();
    let requests: Vec<_> =
        (0..).zip(&buffers).map(|(wr_id, sges)| WorkRequest { wr_id, sges, ..WorkRequest::default() }).collect();
    // SAFETY: nobody touches `memory` until the completions of all receives have been polled (below), and it outlives
    // the queue pair.
    unsafe { to.post_recv(&requests) }?;

    // Connect the two ends. The card's own address means loopback.
    let listener = context.listen(service)?;
    from.start_connect(own, service, b"")?;
    listener.next(LIMIT)?.accept(&to, b"")?;
    from.wait_established(LIMIT)?;
    to.wait_established(LIMIT)?;

    for (wr_id, message) in (0..).zip(messages) {
        assert!(message.len() <= from.max_inline_data());
        let mut bytes = message.as_bytes().to_vec();
        let sges = [range(bytes.as_ptr(), bytes.len())];
        // SAFETY: an inline send reads its ranges during the call only, and `bytes` lives that long.
        unsafe { from.post_send(&[WorkRequest { wr_id, sges: &sges, inline: true, ..WorkRequest::default() }]) }?;
        // The memory is ours again.
        bytes.fill(0);
    }

    for message in messages {
        sends.wait(LIMIT)?.ok()?;
        let got = receives.wait(LIMIT)?.ok()?;
        println!("receive {} has {} bytes", got.wr_id, got.byte_len);
        assert_eq!(got.byte_len as usize, message.len());
    }

    // All receives have completed: the memory is ours again.
    for (buffer, message) in memory.chunks(SIZE).zip(messages) {
        assert_eq!(&buffer[..message.len()], message.as_bytes());
    }
    println!("{} messages arrived", messages.len());
    Ok(())
}
