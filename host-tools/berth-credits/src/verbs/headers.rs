// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands in for immediate data on iWARP, which has no SEND with it: the same four bytes in front of a message's
//! own.
//!
//! Each request has a place for them in registered memory, and names it before its own bytes. So a receive is still
//! filled by its piece exactly. Only iWARP does so: elsewhere the NIC carries immediate data for nothing, and a second
//! entry would cost each receive another write to the host.

use crate::memory;
use crate::queue_pairs::staging::Staging;
use crate::queue_pairs::{DEPTHS, Done, Request};
use crate::transport::Error;
use std::sync::atomic::AtomicU8;

/// Bytes of a header.
pub const LEN: u32 = 4;
/// Bytes of memory for all headers.
pub const BYTES: usize = 2 * (LEN * (DEPTHS[0] + DEPTHS[1])) as usize;

/// The headers of a connection's requests. The NIC is done with the requests of a queue in the order in which they were
/// posted.
#[derive(Debug)]
pub struct Headers {
    /// For each queue: where its headers are, and which of them are in use.
    queues: [(usize, Staging); 4],
}

impl Headers {
    /// Those in [`BYTES`] of memory from `at` on.
    pub fn new(mut at: usize) -> Self {
        let [data, control] = DEPTHS.map(|depth| LEN * depth);
        let queues = [data, data, control, control].map(|bytes| {
            let begin = at;
            at += bytes as usize;
            (begin, Staging::new(bytes))
        });
        Self { queues }
    }

    fn queue(&mut self, request: Request) -> &mut (usize, Staging) {
        let n = match request {
            Request::Receive => 0,
            Request::Piece | Request::LongPiece => 1,
            Request::Slot(_) => 2,
            Request::Message => 3,
        };
        &mut self.queues[n]
    }

    /// Where the header of a request is that is to be posted. `None`: as many are posted as may be.
    pub fn next(&mut self, request: Request) -> Option<usize> {
        let (begin, places) = self.queue(request);
        places.room(LEN).map(|at| *begin + at as usize)
    }

    /// That request is posted.
    pub fn posted(&mut self, request: Request) {
        self.queue(request).1.take(LEN);
    }

    /// A request is done: its header is free again, and one that came is read from `memory` to where immediate data
    /// would be.
    pub fn done(&mut self, done: &mut Done, memory: &[AtomicU8]) {
        let (begin, places) = self.queue(done.request);
        let header = places.oldest().and_then(|at| memory.get(*begin + at as usize..)?.get(..LEN as usize));
        places.free();
        let received = matches!(done.request, Request::Receive | Request::Slot(_));
        if done.result.is_err() || !received {
            return;
        }
        match (header, done.len.checked_sub(LEN)) {
            (Some(header), Some(len)) => {
                let mut bytes = [0; LEN as usize];
                memory::load(&mut bytes, header);
                (done.len, done.immediate) = (len, u32::from_le_bytes(bytes));
            }
            // It is shorter than a header.
            _ => done.result = Err(Error::BadMessage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Headers, LEN};
    use crate::memory;
    use crate::queue_pairs::{DEPTHS, Done, Request};
    use crate::transport::{Error, Failure};
    use berth_random::Rng;
    use std::collections::{BTreeSet, VecDeque};
    use std::sync::atomic::AtomicU8;

    const KINDS: [Request; 5] =
        [Request::Receive, Request::Piece, Request::LongPiece, Request::Slot(3), Request::Message];

    fn memory_of(len: usize) -> Vec<AtomicU8> {
        std::iter::repeat_with(|| AtomicU8::new(0xff)).take(len).collect()
    }

    fn ended(request: Request, len: u32) -> Done {
        Done { request, result: Ok(()), len, immediate: 7 }
    }

    #[test]
    fn cr_15_each_request_over_iwarp_has_a_header_of_its_own() {
        let mut rng = Rng(berth_random::seed(16));
        let (at, memory) = (100, memory_of(100 + BYTES));
        let mut headers = Headers::new(at);
        let mut queues = [const { VecDeque::new() }; 4];
        let of = |request| match request {
            Request::Receive => 0,
            Request::Slot(_) => 2,
            Request::Message => 3,
            _ => 1,
        };
        for _ in 0..20_000 {
            let request = KINDS[rng.below(5) as usize];
            let queue = of(request);
            if rng.chance(0.6) {
                let next = headers.next(request);
                assert_eq!(next.is_none(), queues[queue].len() == DEPTHS[queue / 2] as usize);
                if let Some(place) = next {
                    assert!(place >= at && place + LEN as usize <= memory.len());
                    let value = rng.below(1 << 32) as u32;
                    memory::store(&memory[place..], &value.to_le_bytes());
                    headers.posted(request);
                    queues[queue].push_back((place, value));
                }
            } else if let Some((_, value)) = queues[queue].pop_front() {
                let mut done = ended(request, LEN + 9);
                headers.done(&mut done, &memory);
                match queue {
                    0 | 2 => assert_eq!((done.result, done.len, done.immediate), (Ok(()), 9, value)),
                    _ => assert_eq!((done.result, done.len, done.immediate), (Ok(()), LEN + 9, 7)),
                }
            }
            let places = queues.iter().flatten().map(|(place, _)| *place).collect::<BTreeSet<_>>();
            assert_eq!(places.len(), queues.iter().map(VecDeque::len).sum::<usize>());
        }
    }

    #[test]
    fn cr_15_a_message_over_iwarp_has_a_header_or_is_an_error() {
        let (memory, mut headers) = (memory_of(BYTES), Headers::new(0));
        let mut came = |request, result, len| {
            headers.posted(request);
            let mut done = Done { result, ..ended(request, len) };
            headers.done(&mut done, &memory);
            (done.result, done.len, done.immediate)
        };
        for request in [Request::Receive, Request::Slot(0)] {
            for len in 0..LEN {
                assert_eq!(came(request, Ok(()), len).0, Err(Error::BadMessage), "{len}");
            }
            // It has nothing but the header.
            assert_eq!(came(request, Ok(()), LEN), (Ok(()), 0, u32::MAX));
            // Nothing of a request that failed is true, but its header is free again.
            let failed = Err(Error::Failed(Failure::TooLong));
            for _ in 0..2 * DEPTHS[0] {
                assert_eq!(came(request, failed, 0).0, failed);
            }
        }
    }
}
