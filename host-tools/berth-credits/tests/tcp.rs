// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of the TCP transport: in any parts, more than the socket takes, and from a peer that breaks the rules (CR-12).

use berth_credits::endpoint::{Endpoint, Event, Options};
use berth_credits::tcp::Tcp;
use berth_credits::transport::{Error, LIST, Message};
use berth_protocol::credit::entry::{Body, Name, Part};
use berth_random::Rng;
use std::collections::HashSet;
use std::io::Write;
use std::mem::discriminant;
use std::net::{TcpListener, TcpStream};

const HELLO: &[u8] = b"Bcre\x01\0\0\0";

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A frame with a list.
fn list(first: u32, list: &[u32]) -> Vec<u8> {
    let mut sizes = [0; LIST];
    sizes[..list.len()].copy_from_slice(list);
    let len = list.len() as u8;
    let body = Body::List(Part { round: 0, list: first, total: len, offset: 0, len, sizes });
    let mut record = [0; 256];
    let len = Message { to: Name { qpn: 0, epoch: 1 }, body }.encode(&mut record).unwrap();
    [words(&[1, len as u32, 0]), words(&record[..len])].concat()
}

/// A frame with a piece.
fn piece(bytes: &[u8]) -> Vec<u8> {
    [words(&[2, bytes.len() as u32, 0]), bytes.to_vec()].concat()
}

/// An end with a receive of 10 bytes announced and 100 bytes to be sent, and the peer's socket.
fn victim() -> (Endpoint<Tcp>, TcpStream) {
    let (own, peer) = sockets();
    peer.set_nodelay(true).unwrap();
    let mut end = Endpoint::new(Tcp::new(own, 1000).unwrap(), &Options::default(), 0);
    end.post_receive(1, 0, 10).unwrap();
    end.commit();
    end.post_send(2, vec![vec![1; 100]]).unwrap();
    end.progress(1).unwrap();
    (end, peer)
}

/// The error that ends the connection when the peer has sent `bytes` and closed.
fn told(bytes: &[u8]) -> Option<Error> {
    let (mut end, mut peer) = victim();
    // What was read before a socket is closed cannot reset it.
    peer.write_all(bytes).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    (2..).find_map(|now| end.progress(now).err())
}

#[test]
fn cr_12_each_lie_over_tcp_has_its_error() {
    let hello = |frames: &[Vec<u8>]| told(&[HELLO, &frames.concat()].concat());
    assert_eq!(told(b""), Some(Error::Gone));
    assert_eq!(told(b"GET / HTTP/1.1"), Some(Error::BadMedium));
    assert_eq!(hello(&[list(0, &[10]), piece(&[1; 10])]), Some(Error::Gone));
    assert_eq!(hello(&[words(&[2, 10, 0])]), Some(Error::Gone), "half a piece");
    assert_eq!(hello(&[piece(&[1; 11])]), Some(Error::TooLong { len: 11, size: 10 }));
    assert_eq!(hello(&[piece(&[1; 10]), piece(&[1])]), Some(Error::NoCredit));
    assert_eq!(hello(&[piece(&[])]), Some(Error::Empty));
    assert_eq!(hello(&[words(&[3, 1, 0])]), Some(Error::BadMedium));
    assert_eq!(hello(&[words(&[1, 0, 0])]), Some(Error::BadMedium));
    assert_eq!(hello(&[words(&[1, u32::MAX, 0])]), Some(Error::BadMedium));
    assert_eq!(hello(&[words(&[1, 1, 0, 0xffff])]), Some(Error::BadMessage));
    let mut longer = list(0, &[10]);
    longer[4] += 1;
    assert_eq!(hello(&[longer, words(&[0])]), Some(Error::BadMessage));
    let early: Vec<_> = (0..4).map(|i| list(i, &[200])).collect();
    assert!(matches!(hello(&early), Some(Error::BadList(_))), "CR-11");
}

#[test]
fn cr_12_frames_come_in_any_parts() {
    let first = berth_random::seed(7);
    for seed in first..first + 20 {
        let mut rng = Rng(seed);
        let (mut end, mut peer) = victim();
        let all = [HELLO, &list(0, &[30, 70]), &piece(b"0123456789"), &list(2, &[5])].concat();
        let mut left = &all[..];
        let (mut now, mut filled, mut sent) = (2, false, false);
        while !left.is_empty() || !filled || !sent || end.counters().credits_received < 3 {
            let (part, rest) = left.split_at(left.len().min(rng.below(4) as usize));
            peer.write_all(part).unwrap();
            left = rest;
            end.progress(now).unwrap();
            now += 1;
            while let Some(event) = end.event() {
                match event {
                    Event::Received { id: 1, offset: 0, len: 10, .. } => filled = true,
                    Event::Sent { id: 2, .. } => sent = true,
                    other => panic!("{other:?}"),
                }
            }
        }
        let mut got = [0; 10];
        assert!(end.read(0, &mut got));
        assert_eq!((&got, end.counters().pieces_sent), (b"0123456789", 2));
    }
}

#[test]
fn cr_12_random_garbage_over_tcp_ends_the_connection_at_most() {
    let first = berth_random::seed(8);
    let mut errors = HashSet::new();
    let cases = berth_random::cases(200);
    for seed in first..first + cases {
        let mut rng = Rng(seed);
        let mut bytes = HELLO.to_vec();
        for _ in 0..rng.below(10) {
            match rng.below(4) {
                0 => {
                    let sizes: Vec<u32> = (0..rng.between(1, 64)).map(|_| rng.below(300) as u32).collect();
                    bytes.extend(list(rng.below(20) as u32, &sizes));
                }
                1 => bytes.extend(piece(&vec![1; rng.below(15) as usize])),
                2 => bytes.extend(words(&[rng.below(4) as u32, rng.below(20) as u32, rng.below(2) as u32])),
                _ => {
                    let len = rng.below(50) as usize;
                    bytes.extend(rng.bytes(len));
                }
            }
        }
        errors.extend(told(&bytes).as_ref().map(discriminant));
    }
    assert!(errors.len() >= 4 || cases < 100, "the garbage is too tame: {errors:?}");
}

/// A piece that is larger than all that the sockets hold.
#[test]
fn cr_12_what_the_socket_does_not_take_is_sent_later() {
    const LEN: u32 = 1 << 22;
    let (one, other) = sockets();
    rustix::net::sockopt::set_socket_send_buffer_size(&one, 1 << 16).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&other, 1 << 16).unwrap();
    let bytes = Rng(berth_random::seed(9)).bytes(LEN as usize);
    let buffers: Vec<&[u8]> = bytes.chunks(100_000).collect();
    let mut sender = Endpoint::new(Tcp::new(one, 0).unwrap(), &Options::default(), 0);
    let mut receiver = Endpoint::<_>::new(Tcp::new(other, LEN + 3).unwrap(), &Options::default(), 0);
    receiver.post_receive(1, 0, LEN).unwrap();
    receiver.post_receive(2, LEN, 3).unwrap();
    receiver.commit();
    receiver.progress(0).unwrap();
    sender.post_send(2, buffers).map_err(|unposted| unposted.reason).unwrap();
    sender.post_send(3, vec![&b"more"[..]]).map_err(|unposted| unposted.reason).unwrap();
    while sender.counters().pieces_sent == 0 {
        sender.progress(1).unwrap();
    }
    // The receiver does not read, so the bytes cannot have left.
    for _ in 0..10 {
        sender.progress(2).unwrap();
    }
    assert!(sender.event().is_none());
    assert_eq!(sender.counters().pieces_sent, 1, "no other piece is cut meanwhile");
    let (mut sent, mut filled) = (false, false);
    while !sent || !filled {
        sender.progress(3).unwrap();
        receiver.progress(3).unwrap();
        sent |= matches!(sender.event(), Some(Event::Sent { id: 2, .. }));
        filled |= matches!(receiver.event(), Some(Event::Received { id: 1, offset: 0, len: LEN, remaining: 4 }));
    }
    let mut got = vec![0; LEN as usize];
    assert!(receiver.read(0, &mut got));
    assert!(got == bytes);
    while sender.counters().pieces_sent == 1 {
        sender.progress(4).unwrap();
    }
    assert_eq!(sender.unsent(), 1, "no credit for it");
}
