// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives one file from `send` and writes it to a file.
//!
//! ```sh
//! receive 7 FILE
//! ```
//!
//! Each buffer that is posted becomes a credit of its size. The card announces it to the sender when its pages are
//! pinned, and the sender's card cuts what it sends to the sizes announced.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::Duration;

use libberth::{Context, Device, QpConfig, Stream};

/// How long this program waits for anything before it gives up.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// Size of a receive buffer, and how many of them are posted.
const BUFFER: usize = 64 << 10;
const BUFFERS: usize = 16;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(service), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: receive SERVICE FILE".into());
    };
    let mut file = File::create(path)?;

    let device = Device::open_first()?;
    let context = Context::new(&device)?;
    let mut stream = Stream::new(&context, &QpConfig::default(), BUFFER * BUFFERS)?;

    // Wait for a sender. Its private data is the length of what it will send.
    let listener = context.listen(service.parse()?)?;
    println!("listening to service {service}");
    let request = listener.next(LIMIT)?;
    let Ok(length) = request.private_data().try_into().map(u64::from_le_bytes) else {
        request.reject(b"no length")?;
        return Err("the sender did not say how much it will send".into());
    };

    // Post receives first, then accept: the first credits leave as soon as the connection is there.
    stream.post_recv(&[BUFFER; BUFFERS])?;
    request.accept(stream.queue_pair(), b"")?;
    stream.queue_pair().wait_established(LIMIT)?;

    let mut received = 0;
    while received < length {
        let piece = stream.next_piece(LIMIT)?.ok_or("no receive buffer is posted")?;
        file.write_all(&piece)?;
        received += u64::try_from(piece.len())?;
        // The piece lends us its buffer; drop it to give the memory back, then post the buffer again.
        drop(piece);
        stream.post_recv(&[BUFFER])?;
    }

    // The sender ends the connection when its last send is done. Leaving earlier could take the acknowledgement along.
    stream.queue_pair().wait_closed(LIMIT)?;
    println!("received {received} bytes");
    Ok(())
}
