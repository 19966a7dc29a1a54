// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth serve`: a file that `berth get` and `berth put` read and write by RDMA. This process gives out a key; what
//! goes over the wire then is the cards' work. It stores in the file what a client says that it has put.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::Args;
use libberth::{Context, Device, FileRegion, ProtectionDomain, QpConfig, Stream};
use serde_json::json;

use crate::ends::{self, Client, Common, next_piece, or_goodbye, patiently, pinned, say};
use crate::failure::Failure;
use crate::file::Source;
use crate::offer::{ASK, Offer, RECV_DEPTH, STORE, Store};
use crate::record::{DIGEST, Record};
use crate::signals;
use crate::size;

/// Messages of a client that there is room for.
const MESSAGES: usize = 2;

/// Serves one file.
#[derive(Debug, Args)]
pub struct Serve {
    /// The file, a regular one. It must keep its length.
    file: PathBuf,
    /// Service id to listen to (1 to 65535).
    #[arg(long, value_name = "SERVICE", value_parser = clap::value_parser!(u16).range(1..))]
    listen: u16,
    /// Clients may put, too. What they put is in memory of this process first, and in the file when `berth put` ends.
    #[arg(long)]
    write: bool,
    /// Make the file if it is not there, and make it so long if it is shorter.
    #[arg(long, value_name = "BYTES", value_parser = size::parse, requires = "write")]
    size: Option<u64>,
    /// End when the first client has gone. Otherwise any number of them are served at a time, until a signal.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

impl Serve {
    /// Serves.
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>, as_json: bool) -> Result<(), Failure> {
        let source = if self.write { Source::open_to_write(&self.file, self.size)? } else { Source::open(&self.file)? };
        let device = open()?;
        signals::watch();
        let context = self.common.context(&device)?;
        let domain = context.create_domain()?;
        let region = source.region(&domain, self.write)?;
        let (remote, length) = (region.remote(), source.length());
        let offer = Offer { remote, length, writable: self.write, stamp: source.stamp() };
        let config = self.common.one_sided(RECV_DEPTH);
        let service = Arc::new(Service { region, domain, context, offer, config });
        let listener = service.context.listen(self.listen)?;
        if !as_json {
            note!("listening to service {}", self.listen);
        }
        loop {
            let client = ends::accept(&listener, ASK, &offer.to_bytes(), || service.stream())?;
            if self.once {
                drop(listener);
                return service.serve_last(client, as_json);
            }
            let service = Arc::clone(&service);
            thread::spawn(move || {
                let peer = client.peer;
                match service.serve(client) {
                    Ok(_) | Err(Failure::Interrupted(_)) => {}
                    Err(failure) => note!("berth: {peer}: {failure}"),
                }
            });
        }
    }
}

/// A file, and what its clients need.
struct Service {
    region: FileRegion,
    domain: ProtectionDomain,
    context: Context,
    offer: Offer,
    config: QpConfig,
}

impl Service {
    fn stream(&self) -> libberth::Result<Stream> {
        let mut stream = Stream::in_domain(&self.context, &self.domain, &self.config, MESSAGES * STORE)?;
        stream.post_recv(&[STORE; MESSAGES])?;
        Ok(stream)
    }

    /// Serves a client until it has gone; answers how many bytes of it have been stored.
    fn serve(&self, mut client: Client) -> Result<u64, Failure> {
        let stream = &mut client.stream;
        let mut stored = 0;
        patiently(|limit| stream.queue_pair().wait_established(limit))?;
        loop {
            match next_piece(stream, |piece| Ok(piece.to_vec())) {
                Ok(message) => stored += self.store_and_answer(stream, &message)?,
                Err(failure) => return or_goodbye(stream.queue_pair(), failure).map(|()| stored),
            }
        }
    }

    /// Answers a message of a client; answers how many bytes have been stored for it.
    fn store_and_answer(&self, stream: &mut Stream, message: &[u8]) -> Result<u64, Failure> {
        stream.post_recv(&[STORE])?;
        let stored = self.store(message);
        let record = match &stored {
            Ok(_) => Record::done([0; DIGEST]),
            Err(failure) => Record::failed(failure, [0; DIGEST]),
        };
        say(stream, &record)?;
        stored
    }

    /// Stores what a client says that it has written; answers how many bytes.
    fn store(&self, message: &[u8]) -> Result<u64, Failure> {
        let Store { start, end } = Store::from_bytes(message, self.offer.length)?;
        if !self.offer.writable {
            return Err(Failure::Other("the file is served to be read only".into()));
        }
        self.region.store(start as usize..end as usize)?;
        Ok(end - start)
    }

    /// Serves the only client, and reports.
    fn serve_last(&self, client: Client, as_json: bool) -> Result<(), Failure> {
        let peer = client.peer;
        let stored = self.serve(client)?;
        let pinned = pinned(&self.context);
        let text = if as_json {
            json!({
                "role": "serve", "peer": peer.to_string(), "bytes": self.offer.length, "stored_bytes": stored,
                "peak_pinned_bytes": pinned.map(|p| p.peak), "pinned_bytes": pinned.map(|p| p.now),
            })
            .to_string()
        } else {
            format!("served {peer}, which has put {}", size::show(stored))
        };
        ends::print(&text)
    }
}
