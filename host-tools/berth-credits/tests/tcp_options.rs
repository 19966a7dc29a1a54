// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which lists go as TCP options (CR-12e), with headers that exist in this test alone: options get through, are lost, find no
//! segment, or are something else.

use berth_credits::endpoint::{Endpoint, Event, Options};
use berth_credits::header::{Header, Limits, OPTIONS, Often, ROOM, Ways};
use berth_credits::tcp::Tcp;
use berth_credits::transport::{Error, LIST, Message};
use berth_protocol::credit::carrier::{Carry, TcpOptions};
use berth_protocol::credit::entry::{Body, Name, Part};
use berth_random::Rng;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Options on their way in one direction.
type Path = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// What becomes of options.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// They get through.
    Through,
    /// Something takes them away.
    Stripped,
    /// Probes get through, and so many of the others do not.
    Lost(f64),
    /// Probes get through, and no segment takes another.
    Stuck,
}

#[derive(Debug)]
struct Fake {
    to: Path,
    from: Path,
    fate: Fate,
    rng: Rng,
    stuck: bool,
}

impl Header for Fake {
    fn set(&mut self, option: &[u8], often: Often) -> io::Result<()> {
        assert!(option.len() <= ROOM && (option.is_empty() || option.len() == option[1].into()));
        let list = !option.is_empty() && often == Often::Once;
        let passes = match self.fate {
            Fate::Through => true,
            Fate::Stripped => false,
            Fate::Lost(share) => !(list && self.rng.chance(share)),
            Fate::Stuck => !list,
        };
        self.stuck = self.fate == Fate::Stuck && list;
        if passes && !option.is_empty() {
            // Other options, and padding, may stand around it.
            let others = &[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
            self.to.lock().unwrap().push_back([&others[..], option].concat());
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn gone(&self) -> io::Result<bool> {
        Ok(!self.stuck)
    }

    fn next(&mut self, out: &mut [u8; OPTIONS]) -> Option<usize> {
        let option = self.from.lock().unwrap().pop_front()?;
        out[..option.len()].copy_from_slice(&option);
        Some(option.len())
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Random bursts to receives of all sizes, from one end to the other; gives which way the lists of the receiver went. `None`: that
/// end has no header.
fn bursts(seed: u64, fates: [Option<Fate>; 2], limits: Limits) -> Ways {
    const TOTAL: usize = 60_000;
    let mut rng = Rng(seed);
    let paths = [Path::default(), Path::default()];
    // Where all get through, none is to be repeated.
    let repeat = if fates == [Some(Fate::Through); 2] { 1 << 40 } else { 20 };
    let (one, other) = sockets();
    let [mut sender, mut receiver] = [(one, 0), (other, 1)].map(|(socket, i)| {
        socket.set_nodelay(true).unwrap();
        let header = fates[i].map(|fate| Fake {
            to: paths[1 - i].clone(),
            from: paths[i].clone(),
            fate,
            rng: Rng(seed + 1 + i as u64),
            stuck: false,
        });
        let tcp = match header {
            Some(header) => Tcp::with_header(socket, 100_000, header, limits).unwrap(),
            None => Tcp::new(socket, 100_000).unwrap(),
        };
        Endpoint::<_>::new(tcp, &Options { repeat, ..Options::default() }, 0)
    });
    let bytes = rng.bytes(TOTAL);
    sender.post_send(0, vec![bytes.clone()]).unwrap();
    let (mut back, mut open, mut posted, mut now) = (0, VecDeque::new(), 0, 0);
    while back < TOTAL {
        if rng.chance(0.1) {
            for _ in 0..rng.below(20).min(200 - open.len() as u64) {
                // Some sizes take more than 16 bits.
                let len = if rng.chance(0.01) { 70_000 } else { rng.between(1, 300) as u32 };
                receiver.post_receive(posted, 0, len).unwrap();
                open.push_back((posted, len));
                posted += 1;
            }
            receiver.commit();
        }
        now += 1;
        sender.progress(now).unwrap();
        receiver.progress(now).unwrap();
        while let Some(event) = receiver.event() {
            let Event::Received { id, len, .. } = event else { panic!("{event:?}") };
            let (of, size) = open.pop_front().unwrap();
            let left = TOTAL - back;
            assert_eq!((id, len as usize), (of, left.min(size as usize)), "cut to the receive");
            back += len as usize;
        }
    }
    let mut last = [0; 1];
    assert!(receiver.read(0, &mut last));
    assert!(sender.transport().ways() == Ways::default());
    receiver.transport().ways()
}

const AT_ONCE: Limits = Limits { settle: Duration::ZERO, late: Duration::ZERO };
const PATIENT: Limits = Limits { settle: Duration::from_secs(3600), late: Duration::from_secs(3600) };

#[test]
fn cr_12_lists_go_by_options_that_get_through() {
    for seed in berth_random::seed(20)..berth_random::seed(20) + 10 {
        let ways = bursts(seed, [Some(Fate::Through); 2], PATIENT);
        assert!(ways.by_option > 0 && ways.in_stream == 0, "{ways:?}");
    }
}

#[test]
fn cr_12_lists_stay_inside_the_stream_unless_both_ends_have_a_header() {
    for fates in [[Some(Fate::Through), None], [None, Some(Fate::Through)]] {
        let ways = bursts(berth_random::seed(21), fates, PATIENT);
        assert!(ways.by_option == 0 && ways.in_stream > 0, "{ways:?}");
    }
}

#[test]
fn cr_12_lists_stay_inside_the_stream_when_options_are_stripped() {
    let ways = bursts(berth_random::seed(22), [Some(Fate::Through), Some(Fate::Stripped)], AT_ONCE);
    assert!(ways.by_option == 0 && ways.in_stream > 0, "{ways:?}");
}

#[test]
fn cr_12_lists_that_options_lose_come_again_inside_the_stream() {
    let seed = berth_random::seed(23);
    for share in [0.5, 1.0] {
        let all: Vec<_> = (seed..seed + 10).map(|seed| bursts(seed, [Some(Fate::Lost(share)); 2], PATIENT)).collect();
        let some = |count: fn(&Ways) -> u64| all.iter().map(count).sum::<u64>() > 10;
        assert!(some(|ways| ways.by_option) && some(|ways| ways.in_stream), "{all:?}");
    }
}

#[test]
fn cr_12_a_list_that_no_segment_takes_goes_inside_the_stream() {
    let limits = Limits { late: Duration::ZERO, ..PATIENT };
    let ways = bursts(berth_random::seed(24), [Some(Fate::Stuck); 2], limits);
    assert!(ways.by_option <= 1 && ways.in_stream > 0, "{ways:?}");
}

/// The option of a list of credits.
fn option(first: u32, list: &[u32]) -> Vec<u8> {
    let mut sizes = [0; LIST];
    sizes[..list.len()].copy_from_slice(list);
    let len = list.len() as u8;
    let body = Body::List(Part { round: 0, list: first, total: len, offset: 0, len, sizes });
    let name = Name { qpn: 0, epoch: 1 };
    let mut codec = TcpOptions::<LIST>::new(name, 12).unwrap();
    let mut out = [0; OPTIONS];
    assert!(codec.put(&Message { to: name, body }));
    let unit = codec.unit(&mut out).unwrap();
    out[..unit.len].to_vec()
}

#[test]
fn cr_12_bad_options_are_passed_over_and_bad_lists_have_their_error() {
    let victim = |options: &[Vec<u8>], stream: &[u8]| {
        let (own, mut peer) = sockets();
        let from = Path::default();
        from.lock().unwrap().extend(options.iter().cloned());
        let fake = Fake { to: Path::default(), from, fate: Fate::Through, rng: Rng(0), stuck: false };
        let mut end = Endpoint::<_>::new(Tcp::with_header(own, 100, fake, PATIENT).unwrap(), &Options::default(), 0);
        peer.write_all(stream).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let error = (2..).find_map(|now| end.progress(now).err());
        (error.unwrap(), end.counters().credits_received)
    };
    let (without, with) = (b"Bcre\x01\0\0\0", b"Bcre\x01\x01\0\0");
    let good = option(0, &[10, 20]);
    let mut long = good.clone();
    long[1] = 40;
    let junk = [vec![], vec![253], vec![253, 0], vec![254, 4, 1, 2], long, Rng(1).bytes(40), vec![0; 40]];
    assert_eq!(victim(&[&junk[..], &[good]].concat(), with), (Error::Gone, 2));
    let early: Vec<_> = (0..4).map(|i| option(i, &[200])).collect();
    assert!(matches!(victim(&early, with), (Error::BadList(_), _)), "CR-11");
    // "Seen" and "nothing" from a peer that has no header.
    let word = |word: u32| [word, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for frame in [3, 4] {
        assert_eq!(victim(&[], &[&without[..], &word(frame)].concat()).0, Error::BadMedium);
        assert_eq!(victim(&[], &[&with[..], &word(frame)].concat()).0, Error::Gone);
    }
    assert_eq!(victim(&[], b"Bcre\x01\x02\0\0").0, Error::BadMedium);
}
