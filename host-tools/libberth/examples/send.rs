// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends a file to `receive`, and waits until the other card has placed all of it.
//!
//! ```sh
//! send 192.0.2.2 7 FILE
//! ```
//!
//! A `Stream` owns the memory that it sends, so this program needs no `unsafe`. The request for the connection carries
//! the file's length as private data: a stream has no end of its own.

use std::error::Error;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use libberth::{Context, Device, FileMap, QpConfig, SendBlock, Stream};

/// How long this program waits for anything before it gives up.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// Bytes of one send. The card cuts each send to the credits that it has, so this need not fit the receiver's buffers.
const MESSAGE: usize = 1 << 20;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(peer), Some(service), Some(path)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: send ADDRESS SERVICE FILE".into());
    };
    let (peer, service) = (peer.parse()?, service.parse()?);

    // Map the file. Nothing is read or pinned here: the card asks for each block when a credit covers it.
    let file = Arc::new(FileMap::new(&File::open(path)?)?);

    // Open the card, bind it to this process, make a stream (with a page for receives, which we do not use), connect.
    let device = Device::open_first()?;
    let context = Context::new(&device)?;
    let mut stream = Stream::new(&context, &QpConfig::default(), 4096)?;
    let length = u64::try_from(file.len())?;
    stream.queue_pair().connect(peer, service, &length.to_le_bytes(), LIMIT)?;

    for start in (0..file.len()).step_by(MESSAGE) {
        // When the send queue is full, wait for its oldest send to be done.
        if !stream.has_send_room()
            && let Some(sent) = stream.next_sent(LIMIT)?
        {
            sent.completion.ok()?;
        }
        let end = (start + MESSAGE).min(file.len());
        stream.send(SendBlock::File(Arc::clone(&file), start..end), false)?;
    }

    // A send completes when the peer's card has placed its bytes. `None` means that no send is left.
    while let Some(sent) = stream.next_sent(LIMIT)? {
        sent.completion.ok()?;
    }
    println!("sent {length} bytes");
    Ok(())
    // Dropping the stream ends the connection.
}
