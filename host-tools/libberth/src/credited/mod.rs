// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library's credits ([`berth_credits`], CR-15) between two processes that have a card: [`connect`] and [`Acceptor`] make
//! a [`Link`], which is a transport for an [`Endpoint`](berth_credits::endpoint::Endpoint).
//!
//! A link goes over two queue pairs of message mode; so the card's own credits are below the library's, and a program sees
//! the same whether it runs on a card or without. If both ends are processes of one host and both ask for it
//! ([`LinkConfig::within_host`]), the link is shared memory instead, and the card takes no part (CR-12, VC-11).
//!
//! **How they meet.** The end that connects gives its request three numbers: a name that is unique on its host, a secret,
//! and its QPN. If it asks for shared memory it listens at a UNIX socket of that name. An end that accepts a request of its own
//! host's card goes there, says the secret, and rejects the request. Otherwise it accepts, and the end that connects asks for the
//! second queue pair with the same numbers.

mod card;
mod hello;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use berth_credits::queue_pairs::{MOST, Pairs};
use berth_credits::shared::Shared;
use berth_credits::transport::{Completion, Error as CreditError, Message, Transport};

use crate::cm::{Listener, Request};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Reason, Result};
use crate::qp::Mode;
use crate::wait::Deadline;
pub use card::Card;
use hello::{Hello, Kind, PLACE};

/// Names of messages about credits: `berth_protocol`'s, by way of `berth_credits`.
type Names = (berth_protocol::credit::entry::Name, berth_protocol::credit::entry::Name);

/// What an end of a link has.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Bytes to receive into, up to 2^30.
    pub memory: u32,
    /// Go through shared memory if the other end is a process of this host that asks for it too.
    pub within_host: bool,
}

/// One end of a connection with the library's credits.
#[derive(Debug)]
pub enum Link {
    /// Over two queue pairs of the card.
    Card(Box<Pairs<Card>>),
    /// Through memory that both processes have.
    Shared(Box<Shared>),
}

/// Accepts links at a service.
#[derive(Debug)]
pub struct Acceptor {
    context: Context,
    listener: Listener,
    /// Requests for a first queue pair that came while a second one was waited for.
    waiting: VecDeque<(Request, Hello)>,
}

fn os(source: std::io::Error) -> Error {
    Error::Os { what: "make a link", source }
}

fn check(config: &LinkConfig) -> Result<()> {
    if config.memory > MOST { Err(Error::Invalid { what: "make a link with more than 1 GiB" }) } else { Ok(()) }
}

/// Connects to the [`Acceptor`] of `service` at `peer`; the card's own address is this host.
///
/// # Errors
/// [`Error::Closed`] with the reason, [`Error::Timeout`], [`Error::LimitReached`], [`Error::Invalid`] for too much memory,
/// [`Error::Os`].
pub fn connect(
    context: &Context,
    peer: Ipv4Addr,
    service: u16,
    config: &LinkConfig,
    timeout: Option<Duration>,
) -> Result<Link> {
    check(config)?;
    let deadline = Deadline::new(timeout);
    let card = Card::new(context, config.memory)?;
    let [data, control] = card.pairs();
    let mut hello = Hello::new(Kind::Data, data.qpn()).map_err(os)?;
    let place = match config.within_host {
        true => Some(UnixListener::bind_addr(&place(&hello)?).map_err(os)?),
        false => None,
    };
    if place.is_some() {
        hello.kind = Kind::DataOrHost;
    }
    let answer = match (data.connect(peer, service, &hello.encode(), deadline.left()?), &place) {
        (Err(Error::Closed { reason: Reason::Rejected, private_data }), Some(place))
            if hello.is_said(&private_data) =>
        {
            let (socket, memory) = came(place, &hello, &deadline)?;
            return Ok(Link::Shared(Box::new(Shared::offer(socket, config.memory, memory).map_err(os)?)));
        }
        (answer, _) => answer?,
    };
    let answer = Hello::decode(&answer).filter(|answer| answer.is_same(&hello));
    let answer = answer.ok_or(Error::Invalid { what: "make a link with something else" })?;
    // A second request, now that receives for messages about credits are posted.
    let qpns = [data.qpn(), answer.qpn];
    hello = hello.with(Kind::Control, control.qpn());
    let pairs = Pairs::new(card, qpns, config.memory).map_err(os)?;
    let [_, control] = pairs.nic().pairs();
    control.connect(peer, service, &hello.encode(), deadline.left()?)?;
    Ok(Link::Card(Box::new(pairs)))
}

/// Where an end that connects listens, if it does.
fn place(hello: &Hello) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("berth-link-{:016x}", hello.name)).map_err(os)
}

/// Whoever has come to such a place and knows the secret, and the bytes that it wants to receive into. It is there already:
/// it came before it rejected the request.
fn came(place: &UnixListener, hello: &Hello, deadline: &Deadline) -> Result<(UnixStream, u32)> {
    place.set_nonblocking(true).map_err(os)?;
    loop {
        let (mut socket, _) = place.accept().map_err(os)?;
        socket.set_nonblocking(false).map_err(os)?;
        socket.set_read_timeout(deadline.left()?).map_err(os)?;
        let mut said = [0; PLACE];
        // Others may come too. Each has said something already if it is the right one.
        if socket.read_exact(&mut said).is_ok()
            && let Some(memory) = hello.memory_of(&said)
        {
            return Ok((socket, memory));
        }
    }
}

impl Acceptor {
    /// Listens to a service.
    ///
    /// # Errors
    /// As [`Context::listen`].
    pub fn new(context: &Context, service: u16) -> Result<Self> {
        Ok(Self { context: context.clone(), listener: context.listen(service)?, waiting: VecDeque::new() })
    }

    /// The next link. Requests of anything else are rejected.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::LimitReached`], [`Error::Invalid`] for too much memory, [`Error::DeviceLost`],
    /// [`Error::Os`]. If the other end gives up meanwhile, that is [`Error::Closed`], [`Error::NotFound`] or [`Error::Timeout`],
    /// and the next one can be accepted.
    pub fn accept(&mut self, config: &LinkConfig, timeout: Option<Duration>) -> Result<Link> {
        check(config)?;
        let deadline = Deadline::new(timeout);
        let (request, hello) = loop {
            if let Some(waiting) = self.waiting.pop_front() {
                break waiting;
            }
            if let Some((request, hello)) = self.next(&deadline)?
                && hello.kind != Kind::Control
            {
                break (request, hello);
            }
        };
        if hello.kind == Kind::DataOrHost
            && config.within_host
            && self.is_here(&request)?
            && let Ok(mut socket) = UnixStream::connect_addr(&place(&hello)?)
        {
            socket.write_all(&hello.secret_with(config.memory)).map_err(os)?;
            request.reject(&hello.encode())?;
            socket.set_read_timeout(deadline.left()?).map_err(os)?;
            return Ok(Link::Shared(Box::new(Shared::join(socket).map_err(os)?)));
        }
        let card = Card::new(&self.context, config.memory)?;
        let [data, _] = card.pairs();
        let qpns = [data.qpn(), hello.qpn];
        request.accept(data, &hello.with(Kind::Data, data.qpn()).encode())?;
        let pairs = Pairs::new(card, qpns, config.memory).map_err(os)?;
        let [data, control] = pairs.nic().pairs();
        data.wait_established(deadline.left()?)?;
        loop {
            let Some((request, other)) = self.next(&deadline)? else { continue };
            if other.kind != Kind::Control {
                self.waiting.push_back((request, other));
            } else if other.is_same(&hello) {
                request.accept(control, &[])?;
                break;
            }
        }
        control.wait_established(deadline.left()?)?;
        Ok(Link::Card(Box::new(pairs)))
    }

    /// The next request, unless it is of something else.
    fn next(&self, deadline: &Deadline) -> Result<Option<(Request, Hello)>> {
        let request = self.listener.next(deadline.left()?)?;
        let hello = Hello::decode(request.private_data()).filter(|_| request.mode() == Mode::Message);
        Ok(hello.map(|hello| (request, hello)))
    }

    /// Whether a request comes from this host's card.
    fn is_here(&self, request: &Request) -> Result<bool> {
        let net = Device::open(self.context.path())?.info()?.net;
        Ok(net.is_some_and(|net| net.ipv4 == request.peer()))
    }
}

impl Link {
    /// Whether it goes through shared memory.
    pub fn is_within_host(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    fn inner(&self) -> &dyn Transport {
        match self {
            Self::Card(pairs) => &**pairs,
            Self::Shared(shared) => &**shared,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Transport {
        match self {
            Self::Card(pairs) => &mut **pairs,
            Self::Shared(shared) => &mut **shared,
        }
    }
}

impl Transport for Link {
    fn names(&self) -> Names {
        self.inner().names()
    }

    fn memory(&self) -> u32 {
        self.inner().memory()
    }

    fn read(&self, offset: u32, out: &mut [u8]) -> bool {
        self.inner().read(offset, out)
    }

    fn post_receive(&mut self, offset: u32, len: u32) -> std::result::Result<(), CreditError> {
        self.inner_mut().post_receive(offset, len)
    }

    fn can_send(&self) -> bool {
        self.inner().can_send()
    }

    fn post_send(
        &mut self,
        parts: &mut dyn Iterator<Item = &[u8]>,
        len: u32,
        remaining: u32,
    ) -> std::result::Result<(), CreditError> {
        self.inner_mut().post_send(parts, len, remaining)
    }

    fn poll(&mut self) -> std::result::Result<Option<Completion>, CreditError> {
        self.inner_mut().poll()
    }

    fn put(&mut self, message: &Message) -> std::result::Result<bool, CreditError> {
        self.inner_mut().put(message)
    }

    fn get(&mut self) -> std::result::Result<Option<Message>, CreditError> {
        self.inner_mut().get()
    }

    fn part(&self) -> u32 {
        self.inner().part()
    }

    fn loses(&self) -> bool {
        self.inner().loses()
    }

    fn waits(&self) -> bool {
        self.inner().waits()
    }
}
