// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer process can do to the shared memory that no sound peer does.

use crate::endpoint::{Endpoint, Event, Options};
use crate::memory::{self, Area, End, Outbox};
use crate::ring::{Reader, Writer};
use crate::shared::Shared;
use crate::transport::{Error, LIST, Message};
use berth_protocol::credit::announcer::Heard;
use berth_protocol::credit::entry::{Body, Name, Part};
use berth_protocol::credit::taker::Arrived;
use berth_random::Rng;
use std::collections::HashSet;
use std::fs::File;
use std::mem::discriminant;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

const MEMORY: u32 = 4096;

/// An end, the file of its memory, and the peer's socket.
fn victim() -> (Endpoint<Shared>, File, UnixStream) {
    let (own, other) = UnixStream::pair().unwrap();
    let end = Endpoint::new(Shared::offer(own, MEMORY, MEMORY).unwrap(), &Options::default(), 0);
    let file = memory::receive_file(&other, &mut [0; 16]).unwrap();
    (end, file.into(), other)
}

/// A peer that may write whole records of any content.
struct Liar {
    area: Area,
    file: File,
    messages: Writer,
    receives: Writer,
    pieces: Writer,
    _socket: UnixStream,
}

impl Liar {
    fn new(file: &File, socket: UnixStream) -> Self {
        let file = file.try_clone().unwrap();
        let area = Area::open(file.try_clone().unwrap().into(), [MEMORY; 2]).unwrap();
        let [messages, receives, pieces] = [(); 3].map(|()| Writer::default());
        Self { area, file, messages, receives, pieces, _socket: socket }
    }

    fn list(&mut self, first: u32, list: &[u32]) {
        let mut sizes = [0; LIST];
        sizes[..list.len()].copy_from_slice(list);
        let len = list.len() as u8;
        self.say(Body::List(Part { round: 0, list: first, total: len, offset: 0, len, sizes }));
    }

    fn say(&mut self, body: Body<LIST>) {
        let message = Message { to: Name { qpn: End::First as u32, epoch: 1 }, body };
        let mut words = [0; 256];
        let len = message.encode(&mut words).unwrap();
        self.words(&words[..len]);
    }

    fn words(&mut self, words: &[u32]) {
        let _ = self.messages.put(&self.area.outbox(End::Second).messages, words);
    }

    fn receive(&mut self, offset: u32, len: u32) {
        let _ = self.receives.put(&self.area.outbox(End::Second).receives, &[offset, len]);
    }

    fn piece(&mut self, len: u32) {
        let _ = self.pieces.put(&self.area.outbox(End::Second).pieces, &[len, 0]);
    }
}

/// What the victim says to what `lie` does.
fn told(lie: impl FnOnce(&mut Liar)) -> Result<bool, Error> {
    let (mut end, file, socket) = victim();
    end.post_receive(1, 0, 10).unwrap();
    end.commit();
    end.post_send(2, vec![vec![1; 100]]).unwrap();
    end.progress(1).unwrap();
    lie(&mut Liar::new(&file, socket));
    end.progress(2)
}

#[test]
fn cr_12_each_lie_in_shared_memory_has_its_error() {
    let ok = told(|liar| {
        liar.receive(MEMORY - 10, 10);
        liar.list(0, &[10]);
        liar.piece(10);
    });
    assert_eq!(ok, Ok(true));
    assert_eq!(told(|liar| liar.piece(11)), Err(Error::TooLong { len: 11, size: 10 }));
    assert_eq!(told(|liar| (liar.piece(1), liar.piece(1)).1), Err(Error::NoCredit));
    assert_eq!(told(|liar| liar.list(0, &[10])), Err(Error::BadReceive), "no receive");
    for (offset, len) in [(MEMORY - 9, 10), (u32::MAX, 10), (0, 9)] {
        let answer = told(|liar| {
            liar.receive(offset, len);
            liar.list(0, &[10]);
        });
        assert_eq!(answer, Err(Error::BadReceive), "{len} at {offset}");
    }
    assert_eq!(told(|liar| liar.piece(0)), Err(Error::Empty));
    let nothing = told(|liar| {
        liar.receive(0, 0);
        liar.list(0, &[0]);
    });
    assert_eq!(nothing, Err(Error::BadList(Arrived::Bad)));
    let twice = told(|liar| {
        liar.list(7, &[10]);
        liar.list(7, &[10, 10]);
    });
    assert_eq!(twice, Err(Error::BadList(Arrived::Bad)));
    let early = told(|liar| (0..4).for_each(|i| liar.list(i, &[10])));
    assert!(matches!(early, Err(Error::BadList(_))), "CR-11: {early:?}");
    assert_eq!(told(|liar| liar.words(&[0xffff_ffff])), Err(Error::BadMessage));
    assert_eq!(told(|liar| liar.say(Body::Sync { round: 0, next: 9 })), Err(Error::BadAnswer(Heard::Bad)));
    assert_eq!(told(|liar| liar.say(Body::Recall { round: 0, first: 0 })), Ok(true));
    // More than the ring holds, and half a record.
    for words in [513, 1] {
        let broken = told(|liar| {
            // The tail is the ring's first word.
            let (ring, first) =
                (&raw const liar.area.outbox(End::Second).pieces, &raw const *liar.area.outbox(End::First));
            let at = ring.addr() - first.addr();
            liar.file.write_all_at(&u32::to_ne_bytes(words), at as u64).unwrap();
        });
        assert_eq!(broken, Err(Error::BadMedium));
    }
}

#[test]
fn cr_12_a_message_without_room_waits_for_a_peer_that_reads() {
    let (mut end, file, socket) = victim();
    let mut liar = Liar::new(&file, socket);
    let mut now = 0;
    while end.deadline(now).is_none() {
        assert!(now < 1000, "the ring is never full");
        now += 1;
        liar.say(Body::Recall { round: 0, first: 0 });
        end.progress(now).unwrap();
    }
    let ring = &liar.area.outbox(End::First).messages;
    let mut reader = Reader::default();
    let answers = |reader: &mut Reader| (0..).take_while(|_| reader.get::<_, 4>(ring) != Ok(None)).count() as u64;
    assert_eq!((end.deadline(now), answers(&mut reader)), (Some(now), now - 1));
    end.progress(now).unwrap();
    assert_eq!((end.deadline(now), answers(&mut reader)), (None, 1));
}

#[test]
fn cr_12_random_garbage_in_shared_memory_ends_the_connection_at_most() {
    let first = berth_random::seed(5);
    let mut errors = HashSet::new();
    let cases = berth_random::cases(300);
    for seed in first..first + cases {
        let mut rng = Rng(seed);
        let (mut end, file, socket) = victim();
        let mut liar = Liar::new(&file, socket);
        let total = file.metadata().unwrap().len();
        let wild = rng.chance(0.3);
        for now in 0..200 {
            let _ = end.post_receive(now, rng.below(u64::from(MEMORY)) as u32, rng.between(1, 100) as u32);
            end.commit();
            let _ = end.post_send(now, vec![vec![1; rng.below(300) as usize]]);
            match rng.below(if wild { 6 } else { 5 }) {
                0 => liar.receive(rng.below(5000) as u32, rng.below(500) as u32),
                1 => {
                    let sizes: Vec<u32> = (0..rng.between(1, 64)).map(|_| rng.below(300) as u32).collect();
                    liar.list(rng.below(20) as u32, &sizes);
                }
                2 => liar.piece(rng.below(110) as u32),
                3 => {
                    let words: Vec<u32> = (0..rng.below(10)).map(|_| rng.draw() as u32).collect();
                    liar.words(&words);
                }
                4 => (),
                _ => {
                    let at = rng.below(total);
                    let len = rng.below(64).min(total - at) as usize;
                    file.write_all_at(&rng.bytes(len), at).unwrap();
                }
            }
            if let Err(error) = end.progress(now) {
                errors.insert(discriminant(&error));
                break;
            }
            while let Some(event) = end.event() {
                if let Event::Received { offset, len, .. } = event {
                    assert!(end.read(offset, &mut vec![0; len as usize]), "seed {seed}");
                }
            }
        }
    }
    assert!(errors.len() >= 4 || cases < 100, "the garbage is too tame: {errors:?}");
}

/// Memory that could vanish under the mapping, and other things that are no offer.
#[test]
fn cr_12_an_offer_is_checked() {
    let memory = |seal, len| {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let file = File::from(memfd_create(c"test", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(len).unwrap();
        if seal {
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        }
        file
    };
    let total = 2 * size_of::<Outbox>() as u64 + 20;
    assert!(Area::open(memory(true, total).into(), [10, 10]).is_ok());
    assert!(Area::open(memory(false, total).into(), [10, 10]).is_err(), "it could be cut short");
    assert!(Area::open(memory(true, total - 1).into(), [10, 10]).is_err());
    assert!(Area::open(memory(true, total).into(), [u32::MAX, 10]).is_err());
    assert!(Shared::offer(UnixStream::pair().unwrap().0, u32::MAX, 0).is_err());

    let joined = |bytes: &[u8], file: &File| {
        let (own, other) = UnixStream::pair().unwrap();
        memory::send_file(&own, bytes, &file.try_clone().unwrap().into()).unwrap();
        Shared::join(other).map(drop).map_err(|error| error.kind())
    };
    let invalid = Err(std::io::ErrorKind::InvalidData);
    assert_eq!(joined(&[0; 16], &memory(true, total)), invalid);
    assert_eq!(joined(&[0; 9], &memory(true, total)), invalid);
    let (own, other) = UnixStream::pair().unwrap();
    drop(own);
    assert_eq!(Shared::join(other).map(drop).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn copies_keep_to_their_range_at_any_alignment() {
    let (area, _) = Area::create([300, 0]).unwrap();
    let mut rng = Rng(berth_random::seed(6));
    let mut model = vec![0; 300];
    for _ in 0..2000 {
        let at = rng.below(300) as usize;
        let len = rng.below(301 - at as u64) as usize;
        let bytes = rng.bytes(len);
        memory::store(&area.received(End::First)[at..at + len], &bytes);
        model[at..at + len].copy_from_slice(&bytes);
        let from = rng.below(300) as usize;
        let mut got = vec![0; 300 - from];
        memory::load(&mut got, &area.received(End::First)[from..]);
        assert_eq!(got, model[from..]);
    }
}
