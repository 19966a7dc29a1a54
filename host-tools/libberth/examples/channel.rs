// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends a vector through a channel, whose buffers grow when they need to, from one end to another of the same card.
//!
//! ```sh
//! channel 192.0.2.1 9      # the card's own address (see `berth info`), and a free service
//! ```
//!
//! No call of a channel waits: what cannot go yet is sent again. With two ends in one program, each gets its turn.

use std::error::Error;
use std::time::Duration;

use libberth::{Channel, ChannelConfig, Context, Device};

/// How long this program waits for the request for a connection.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(own), Some(service)) = (arguments.next(), arguments.next()) else {
        return Err("usage: channel OWN_ADDRESS SERVICE".into());
    };
    let (own, service) = (own.parse()?, service.parse()?);

    let context = Context::new(&Device::open_first()?)?;
    let domain = context.create_domain()?;
    let mut from = Channel::new(&context, &domain, &ChannelConfig::default())?;
    let mut to = Channel::new(&context, &domain, &ChannelConfig::default())?;
    println!("each end has {} bytes", to.bytes());

    let listener = context.listen(service)?;
    from.start_connect(own, service)?;
    to.accept(listener.next(LIMIT)?)?;

    let (head, body) = (b"a head of few bytes", vec![7; 8000]);
    let mut vector = &[&head[..], &body][..];
    let mut into = vec![0; 8192];
    loop {
        let sent = from.send(vector)?;
        if sent.elements > 0 {
            println!("sent {} bytes", sent.bytes);
            vector = &vector[sent.elements..];
        }
        let Some(arrived) = to.receive(&mut into)? else { continue };
        println!("received {} bytes", arrived.len);
        if arrived.last {
            assert_eq!(into[..arrived.len], body);
            break;
        }
    }
    println!("the receiving end has {} bytes", to.bytes());
    Ok(())
}
