// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth get` and `berth put`: a range of a file that a peer serves, by RDMA READ or WRITE. The peer's process does
//! nothing for it but store what was put.
//!
//! Blocks complete in order, so a copy that is interrupted has finished a range from its start on ([`State`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use libberth::{Buffer, Context, Device, Error, FileMap, Remote, SendBlock, Status, Stream};
use serde_json::json;

use crate::ends::{self, Common, Peer, Progress, SEND_DEPTH, name_the_end, next_piece, patiently, pinned};
use crate::failure::Failure;
use crate::file::{Change, Source, Target};
use crate::offer::{ASK, Offer, RECV_DEPTH, Store};
use crate::record::{RECORD, Record};
use crate::resume::{Copy, State, Verb};
use crate::signals;
use crate::size;

/// After so many bytes what has come is brought to its medium, and the state says so.
const SPAN: u64 = 16 << 20;
/// Longest READ or WRITE: as many as may be under way are less than 4 GiB.
const MAX_BLOCK: usize = 32 << 20;

fn block(s: &str) -> Result<usize, String> {
    match size::parse_usize(s)? {
        n if n > 0 && n <= MAX_BLOCK => Ok(n),
        _ => Err("a READ or WRITE has 1 byte to 32 MiB".into()),
    }
}

/// Options of both directions.
#[derive(Debug, Args)]
struct Options {
    /// Where the range begins; the same place in both files.
    #[arg(long, value_name = "OFFSET", value_parser = size::parse, default_value = "0")]
    from: u64,
    /// Bytes of the range [default: to the end of the file that is read].
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    len: Option<u64>,
    /// Go on where a copy of the same range was interrupted: FILE.berth says what is finished. Without that file, begin
    /// at the start.
    #[arg(long)]
    resume: bool,
    /// Bytes of one READ or WRITE.
    #[arg(long, value_parser = block, default_value = "256K")]
    message: usize,
    /// READs or WRITEs under way at a time (1 to 64).
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=i64::from(SEND_DEPTH)))]
    depth: u32,
    /// Keep trying to connect for this many seconds while the peer does not serve yet.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    #[command(flatten)]
    common: Common,
}

/// Gets a range of a served file.
#[derive(Debug, Args)]
pub struct Get {
    /// Who serves the file: IP:SERVICE.
    peer: Peer,
    /// Where the bytes go, at the same places as in the served file. With no --len the file also ends where the served
    /// one does. It is filled in place: while FILE.berth is there, it is not complete.
    file: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// Puts a range of a file into a served one.
#[derive(Debug, Args)]
pub struct Put {
    /// The file to be read, which must not change meanwhile.
    file: PathBuf,
    /// Who serves the other file, with --write: IP:SERVICE.
    peer: Peer,
    #[command(flatten)]
    options: Options,
}

impl Get {
    /// Gets.
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>, as_json: bool) -> Result<(), Failure> {
        let device = open()?;
        let link = Link::connect(&self.options, self.peer, &device)?;
        let range = range(self.options.from, self.options.len, link.offer.length, "the served file")?;
        let copy = Copy { verb: Verb::Get, peer: self.peer, stamp: link.offer.stamp, range };
        let target = Target::open(&self.file)?;
        let state = State::begin(&self.file, copy, self.options.resume)?;
        if self.options.resume {
            target.check_reaches(if state.done() > state.copy().range.start { state.done() } else { 0 })?;
        }
        let whole = self.options.len.is_none();
        let mut end = Filled { target, written: state.done(), spare: Vec::new() };
        link.copy(state, &mut end, as_json, |end, range| if whole { end.target.end_at(range.end) } else { Ok(()) })
    }
}

impl Put {
    /// Puts.
    pub fn run(&self, open: impl FnOnce() -> Result<Device, Failure>, as_json: bool) -> Result<(), Failure> {
        let source = Source::open(&self.file)?;
        let range = range(self.options.from, self.options.len, source.length(), "the file")?;
        let device = open()?;
        let map = Arc::new(source.map()?);
        let link = Link::connect(&self.options, self.peer, &device)?;
        if !link.offer.writable {
            let text = "the file is served to be read only (`berth serve --write` also takes bytes)";
            return Err(Failure::Other(text.into()));
        }
        if range.end > link.offer.length {
            return Err(Failure::Other(format!(
                "the range ends at byte {}, but the served file has {} (`berth serve --size` makes it longer)",
                range.end, link.offer.length
            )));
        }
        let copy = Copy { verb: Verb::Put, peer: self.peer, stamp: source.stamp(), range };
        let state = State::begin(&self.file, copy, self.options.resume)?;
        let mut end = Emptied { source, map, stored: state.done() };
        link.copy(state, &mut end, as_json, |end, _| end.source.change().map_or(Ok(()), |c| Err(end.source.changed(c))))
    }
}

/// The range that begins at `from` and has `len` bytes, or all that there are of `there`.
fn range(from: u64, len: Option<u64>, there: u64, what: &str) -> Result<Range<u64>, Failure> {
    let end = match len {
        Some(len) => from.checked_add(len),
        None => Some(there.max(from)),
    };
    match end {
        Some(end) if end <= there => Ok(from..end),
        Some(end) => Err(Failure::Other(format!("the range ends at byte {end}, but {what} has {there} bytes"))),
        None => Err(Failure::Other(format!("the range ends behind all files, but {what} has {there} bytes"))),
    }
}

/// The parts of a range, each but the last so long.
fn parts(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    std::iter::successors(Some(range.start), move |start| start.checked_add(length))
        .take_while(move |start| *start < end)
        .map(move |start| start..end.min(start.saturating_add(length)))
}

/// The local file, one of two kinds.
trait End {
    /// Posts the READ or WRITE of a part.
    fn post(&mut self, stream: &mut Stream, part: Range<u64>, remote: Remote) -> Result<(), Failure>;
    /// It has completed, and gives its memory back.
    fn done(&mut self, part: Range<u64>, block: SendBlock) -> Result<(), Failure>;
    /// Brings what is done of a span to its medium, here or there.
    fn settle(&mut self, stream: &mut Stream, span: Range<u64>) -> Result<(), Failure>;
    /// The connection has failed: answers up to where all is done and on its medium.
    fn rescue(&mut self) -> Result<u64, Failure>;
    /// What is behind a failure, if this end knows better.
    fn explain(&self, failure: Failure) -> Failure;
}

/// What `get` fills.
struct Filled {
    target: Target,
    /// Bytes before this place are.
    written: u64,
    /// Buffers to be used again.
    spare: Vec<Buffer>,
}

impl End for Filled {
    fn post(&mut self, stream: &mut Stream, part: Range<u64>, remote: Remote) -> Result<(), Failure> {
        let len = (part.end - part.start) as usize;
        let buffer = match self.spare.pop() {
            Some(buffer) if buffer.len() == len => buffer,
            _ => Buffer::new(len)?,
        };
        Ok(stream.read(buffer, remote)?)
    }

    fn done(&mut self, part: Range<u64>, block: SendBlock) -> Result<(), Failure> {
        if let SendBlock::Buffer(buffer) = block {
            self.target.write(&buffer, part.start)?;
            self.written = part.end;
            self.spare.push(buffer);
        }
        Ok(())
    }

    fn settle(&mut self, _stream: &mut Stream, _span: Range<u64>) -> Result<(), Failure> {
        self.target.sync()
    }

    fn rescue(&mut self) -> Result<u64, Failure> {
        self.target.sync()?;
        Ok(self.written)
    }

    fn explain(&self, failure: Failure) -> Failure {
        failure
    }
}

/// What `put` reads.
struct Emptied {
    source: Source,
    map: Arc<FileMap>,
    /// The peer has stored what is before this place.
    stored: u64,
}

impl End for Emptied {
    fn post(&mut self, stream: &mut Stream, part: Range<u64>, remote: Remote) -> Result<(), Failure> {
        let part = part.start as usize..part.end as usize;
        Ok(stream.write(SendBlock::File(Arc::clone(&self.map), part), remote)?)
    }

    fn done(&mut self, _part: Range<u64>, _block: SendBlock) -> Result<(), Failure> {
        Ok(())
    }

    fn settle(&mut self, stream: &mut Stream, span: Range<u64>) -> Result<(), Failure> {
        let store = Store { start: span.start, end: span.end };
        stream.send(Buffer::from_slice(&store.to_bytes())?, false)?;
        next_piece(stream, |piece| Record::from_bytes("server", piece))?.check("server")?;
        stream.post_recv(&[RECORD])?;
        // The answer may come before the acknowledgement.
        while stream.sends_outstanding() > 0 {
            patiently(|limit| stream.next_sent(limit))?;
        }
        self.stored = span.end;
        Ok(())
    }

    fn rescue(&mut self) -> Result<u64, Failure> {
        Ok(self.stored)
    }

    fn explain(&self, failure: Failure) -> Failure {
        match self.source.change() {
            // The card finds no page where the file has none any more.
            Some(change @ Change::Shorter { .. }) => self.source.changed(change),
            _ => failure,
        }
    }
}

/// A connection to a server, and what it offers.
struct Link<'a> {
    options: &'a Options,
    device: &'a Device,
    context: Context,
    stream: Stream,
    offer: Offer,
}

impl<'a> Link<'a> {
    fn connect(options: &'a Options, peer: Peer, device: &'a Device) -> Result<Self, Failure> {
        signals::watch();
        let context = options.common.context(device)?;
        let (stream, accept) =
            ends::connect(&context, &options.common.one_sided(RECV_DEPTH), RECORD, peer, options.wait, ASK)?;
        Ok(Self { options, device, context, stream, offer: Offer::from_bytes(&accept)? })
    }

    /// Copies what is left, ends it with `finish`, and reports.
    fn copy<E: End>(
        mut self,
        mut state: State,
        end: &mut E,
        as_json: bool,
        finish: impl FnOnce(&mut E, &Range<u64>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (begun, wall) = (self.device.info()?.cycles, Instant::now());
        let (Copy { verb, peer, range, .. }, began_at) = (state.copy().clone(), state.done());
        let copied = self.all(&mut state, end, as_json).and_then(|()| finish(end, &range));
        if let Err(failure) = copied {
            let failure = end.explain(failure);
            match end.rescue().and_then(|done| state.reach(done)) {
                // None goes on with another file.
                Ok(()) if matches!(failure, Failure::Changed(..)) => {}
                Ok(()) => {
                    let done = size::show(state.done() - range.start);
                    note!("berth: {done} of the range are finished: --resume goes on from there");
                }
                Err(error) => note!("berth: what is finished is not known: {error}"),
            }
            return Err(failure);
        }
        state.remove()?;
        let pinned = pinned(&self.context);
        let info = self.device.info()?;
        // The peer may have closed first.
        let _ = self.stream.queue_pair().disconnect();
        drop(self.stream);
        let (bytes, cycles) = (range.end - began_at, info.cycles.saturating_sub(begun));
        let text = if as_json {
            json!({
                "role": verb.name(), "peer": peer.ip.to_string(), "offset": range.start,
                "length": range.end - range.start, "bytes": bytes,
                "resumed_at": (began_at > range.start).then_some(began_at),
                "card_cycles": cycles, "wall_ms": wall.elapsed().as_millis() as u64,
                "peak_pinned_bytes": pinned.map(|p| p.peak), "pinned_bytes": pinned.map(|p| p.now),
            })
            .to_string()
        } else {
            format!(
                "{} {} (bytes {began_at} to {}), {cycles} cycles of the card's clock from begin to end, {:.1} s of wall time",
                verb.name(),
                size::show(bytes),
                range.end,
                wall.elapsed().as_secs_f64()
            )
        };
        ends::print(&text)
    }

    fn all(&mut self, state: &mut State, end: &mut impl End, as_json: bool) -> Result<(), Failure> {
        let range = state.copy().range.clone();
        let mut progress = Progress::new(range.end - range.start, as_json);
        for span in parts(state.done()..range.end, SPAN) {
            let moved = self.span(span.clone(), end, |done| progress.at(done - range.start));
            moved.and_then(|()| end.settle(&mut self.stream, span.clone())).map_err(|f| self.explain(f, &span))?;
            state.reach(span.end)?;
        }
        Ok(())
    }

    /// Moves a span, several blocks at a time.
    fn span(&mut self, span: Range<u64>, end: &mut impl End, mut at: impl FnMut(u64)) -> Result<(), Failure> {
        let mut to_post = parts(span, self.options.message as u64);
        let mut under_way = VecDeque::new();
        loop {
            while under_way.len() < self.options.depth as usize
                && let Some(part) = to_post.next()
            {
                end.post(&mut self.stream, part.clone(), self.offer.at(part.start))?;
                under_way.push_back(part);
            }
            let Some(part) = under_way.pop_front() else { return Ok(()) };
            let sent = patiently(|limit| self.stream.next_sent(limit))?;
            let sent = sent.ok_or_else(|| Failure::Other("a READ or WRITE has got lost".into()))?;
            sent.completion.ok()?;
            at(part.end);
            end.done(part, sent.block)?;
        }
    }

    /// Says what the failure of a READ or WRITE means for the served file.
    fn explain(&self, failure: Failure, span: &Range<u64>) -> Failure {
        match failure {
            Failure::Berth(Error::Completion { status, .. })
                if matches!(status, Status::RemoteAccess | Status::RemoteError) =>
            {
                let Range { start, end } = span;
                Failure::Other(format!(
                    "bytes of the served file between {start} and {end} cannot be had: {status} (has it become shorter?)"
                ))
            }
            other => name_the_end(self.stream.queue_pair(), other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_inside_the_file() {
        let says = |from, len| range(from, len, 100, "the served file").map_err(|f| f.to_string());
        assert_eq!(says(0, None), Ok(0..100));
        assert_eq!(says(40, None), Ok(40..100));
        assert_eq!(says(40, Some(60)), Ok(40..100));
        assert_eq!(says(100, None), Ok(100..100));
        assert_eq!(says(7, Some(0)), Ok(7..7));
        assert_eq!(says(40, Some(61)).unwrap_err(), "the range ends at byte 101, but the served file has 100 bytes");
        assert!(says(101, None).unwrap_err().contains("ends at byte 101"));
        assert!(says(101, Some(0)).unwrap_err().contains("ends at byte 101"));
        assert!(says(1, Some(u64::MAX)).unwrap_err().contains("behind all files"));
    }

    #[test]
    fn parts_follow_each_other_and_cover_the_range() {
        let all = |range, length| parts(range, length).collect::<Vec<_>>();
        assert_eq!(all(5..25, 10), [5..15, 15..25]);
        assert_eq!(all(5..26, 10), [5..15, 15..25, 25..26]);
        assert_eq!(all(5..15, 20).len(), 1);
        assert_eq!(all(5..5, 10), []);
        assert_eq!(all(u64::MAX - 3..u64::MAX, 2), [u64::MAX - 3..u64::MAX - 1, u64::MAX - 1..u64::MAX]);
    }

    #[test]
    fn what_is_got_is_in_its_place_when_the_copy_fails() {
        let path = std::env::temp_dir().join(format!("berth-copy-{}", std::process::id()));
        let mut end = Filled { target: Target::open(&path).unwrap(), written: 3, spare: Vec::new() };
        assert_eq!(end.rescue().unwrap(), 3);
        for (part, byte) in [(3..7, b'a'), (7..9, b'b')] {
            let buffer = Buffer::from_slice(&vec![byte; part.end - part.start]).unwrap();
            end.done(part.start as u64..part.end as u64, buffer.into()).unwrap();
        }
        assert_eq!(end.rescue().unwrap(), 9);
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0aaaabb");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn block_has_its_limits() {
        assert_eq!(block("256K"), Ok(256 << 10));
        assert!(block("0").is_err() && block("33M").is_err() && block("x").is_err());
        assert!(
            u64::from(SEND_DEPTH) * MAX_BLOCK as u64 <= u32::MAX.into(),
            "the library refuses to have 4 GiB under way"
        );
    }
}
