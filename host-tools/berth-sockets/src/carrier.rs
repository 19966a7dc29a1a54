// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of a process that has the card and carries all its connections.
//!
//! It sleeps at one epoll descriptor: for commands of the program's threads, for the card, and for the library's ends of the
//! program's sockets. It makes no call that waits for a peer.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libberth::{Error, Listener, Reason, Request};

use crate::card::{Card, Link, Made};
use crate::channel::Channel;
use crate::names::{self, Ends, Ports};
use crate::pipe::{End, Pipe};
use crate::rules;
use crate::sys::{self, Fd, Poller};
use crate::wire::Hello;

/// How long a host that has not answered counts as one without Berth.
const ABSENT: Duration = Duration::from_secs(60);
/// How long until a card that could not be used is tried again, or a port that another process listens to.
const AGAIN: Duration = Duration::from_secs(1);

/// Numbers of what the thread sleeps for; connections have those from `FIRST` on.
const COMMANDS: u64 = 0;
const EVENTS: u64 = 1;
const MESSAGES: u64 = 2;
const PARENT: u64 = 3;
const FIRST: u64 = 16;

/// An answer that a thread of the program waits for.
pub struct Answer<T> {
    value: Mutex<Option<T>>,
    given: Condvar,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Answer<T> {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(None), given: Condvar::new() })
    }

    /// Gives it.
    fn give(&self, value: T) {
        *locked(&self.value) = Some(value);
        self.given.notify_all();
    }

    /// Waits for it.
    pub fn wait(&self) -> T {
        let mut value = locked(&self.value);
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            value = self.given.wait(value).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// How a request for a connection has come out.
pub enum Asked {
    /// It is there: its number, and the address of this host's end.
    Carried(u64, Ipv4Addr),
    /// The other end cannot be reached by Berth, and why.
    Not(String),
}

/// What threads of the program ask for.
pub enum Command {
    /// Listen to a port; what comes is to be connected to `target`.
    Listen {
        /// Where the program's listener is.
        target: SocketAddrV4,
        /// Given when it listens, or cannot.
        done: Arc<Answer<()>>,
    },
    /// A listener of this port has been closed.
    Closed {
        /// The port.
        port: u16,
    },
    /// Connect.
    Connect {
        /// To this listener.
        to: SocketAddrV4,
        /// The port of this host's end.
        port: u16,
        /// The outcome.
        answer: Arc<Answer<Asked>>,
    },
    /// A connection that is there has its socket.
    Attach {
        /// Its number.
        id: u64,
        /// The library's end of the program's socket.
        socket: Fd,
        /// What the kernel calls the program's end.
        ports: Ports,
        /// What the program calls it.
        ends: Ends,
    },
    /// Send bytes of the program's memory, behind all that its socket has taken.
    Direct {
        /// What the kernel calls the program's end.
        ports: Ports,
        /// Where they are: they stay what they are until there is an answer.
        address: usize,
        /// Bytes.
        len: usize,
        /// How many the peer's card has; `None`: this cannot be done now.
        answer: Arc<Answer<Option<usize>>>,
    },
    /// A connection that is there is not needed.
    Abandon {
        /// Its number.
        id: u64,
    },
    /// Listen to these when the parent has ended.
    Inherit {
        /// The parent.
        parent: i32,
        /// Where the program's listeners are.
        targets: Vec<SocketAddrV4>,
    },
}

/// By which the program's threads reach the carrier.
pub struct Handle {
    commands: Mutex<Vec<Command>>,
    wake: Fd,
    /// The process ends.
    finishes: AtomicBool,
    /// Readable when all that was sent then is acknowledged.
    finished: Fd,
}

impl Handle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel gives no descriptors, or no thread.
    pub fn start() -> io::Result<Arc<Self>> {
        let handle = Arc::new(Self {
            commands: Mutex::new(Vec::new()),
            wake: sys::eventfd()?,
            finishes: AtomicBool::new(false),
            finished: sys::eventfd()?,
        });
        let poller = Poller::new()?;
        poller.add(handle.wake.as_raw_fd(), COMMANDS, false)?;
        let carrier = Carrier {
            handle: Arc::clone(&handle),
            poller,
            card: None,
            tried: None,
            listening: Vec::new(),
            wanted: Vec::new(),
            listened: Instant::now(),
            parent: None,
            flows: HashMap::new(),
            by_number: HashMap::new(),
            last: FIRST,
            absent: HashMap::new(),
            changed: HashSet::new(),
        };
        sys::without_signals(|| {
            std::thread::Builder::new().name("berth-sockets".to_owned()).spawn(move || carrier.run())
        })?;
        Ok(handle)
    }

    /// The process ends: waits until all that was sent is acknowledged, for so long at most. Fit for a signal handler.
    pub fn finish(&self, limit: Duration) {
        self.finishes.store(true, Ordering::Release);
        sys::signal(&self.wake);
        sys::wait_readable(self.finished.as_raw_fd(), limit);
    }

    /// Asks for something.
    pub fn ask(&self, command: Command) {
        locked(&self.commands).push(command);
        sys::signal(&self.wake);
    }
}

/// How far a connection is.
enum Stage {
    /// The peer was asked.
    Asked { link: Link, answer: Arc<Answer<Asked>>, to: SocketAddrV4, until: Instant },
    /// The peer's request was accepted.
    Accepted { link: Link, target: SocketAddrV4, client: SocketAddrV4 },
    /// It is there, and the program's thread is about to bring its socket.
    There { link: Link },
    /// It is there, and is being connected to the program's listener.
    Visiting { link: Link, visitor: Fd },
    /// Bytes go.
    Carried { pipe: Pipe<Link> },
}

impl Stage {
    fn link(&mut self) -> &mut Link {
        match self {
            Self::Asked { link, .. }
            | Self::Accepted { link, .. }
            | Self::There { link }
            | Self::Visiting { link, .. }
            | Self::Carried { pipe: Pipe { channel: link, .. } } => link,
        }
    }
}

/// A connection.
struct Flow {
    /// `None` only while it is being changed.
    stage: Option<Stage>,
    number: u32,
    ports: Option<Ports>,
    ends: Option<Ends>,
    /// The thread of the program that waits until bytes of its memory are sent.
    direct: Option<Arc<Answer<Option<usize>>>>,
}

/// A port that is listened to.
struct Listening {
    listener: Listener,
    target: SocketAddrV4,
}

struct Carrier {
    handle: Arc<Handle>,
    poller: Poller,
    card: Option<Card>,
    /// When the card could not be used.
    tried: Option<Instant>,
    listening: Vec<Listening>,
    /// Where listeners are whose ports are still to be listened to.
    wanted: Vec<SocketAddrV4>,
    /// When that was last tried.
    listened: Instant,
    /// Readable when the parent, which has the card for these listeners, has ended.
    parent: Option<Fd>,
    flows: HashMap<u64, Flow>,
    /// Connections by QPN.
    by_number: HashMap<u32, u64>,
    last: u64,
    /// Hosts that have not answered, and when.
    absent: HashMap<Ipv4Addr, Instant>,
    /// Connections for which there may be something to do.
    changed: HashSet<u64>,
}

impl Carrier {
    fn run(mut self) {
        loop {
            let messages = self.take_messages();
            let mut ready: Vec<_> = self.changed.drain().collect();
            ready.sort_unstable();
            for id in ready {
                self.advance(id, false);
            }
            self.finish();
            // What has come meanwhile signals nothing.
            let armed = self.card.as_ref().is_some_and(|card| card.arm().is_ok());
            let more = messages || (armed && self.take_messages()) || !self.changed.is_empty();
            for happened in self.poller.wait(if more { Some(Duration::ZERO) } else { self.limit() }) {
                match happened.token {
                    COMMANDS => self.take_commands(),
                    EVENTS => self.take_events(),
                    MESSAGES => self.card.as_ref().into_iter().for_each(|card| sys::quiet(card.messages())),
                    PARENT => self.parent = None,
                    id if happened.error => self.advance(id, true),
                    id => {
                        self.changed.insert(id);
                    }
                }
            }
            self.expire();
        }
    }

    /// How long the thread may sleep.
    fn limit(&self) -> Option<Duration> {
        let asked = self.flows.values().filter_map(|flow| match flow.stage {
            Some(Stage::Asked { until, .. }) => Some(until.saturating_duration_since(Instant::now())),
            _ => None,
        });
        let again = (self.parent.is_none() && !self.wanted.is_empty()).then_some(AGAIN);
        asked.chain(again).min()
    }

    /// What time has brought.
    fn expire(&mut self) {
        let now = Instant::now();
        let late: Vec<_> = (self.flows.iter())
            .filter(|(_, flow)| matches!(flow.stage, Some(Stage::Asked { until, .. }) if until <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if let Some(Flow { stage: Some(Stage::Asked { answer, to, .. }), .. }) = self.forget(id) {
                self.absent.insert(*to.ip(), now);
                answer.give(Asked::Not("no answer".to_owned()));
            }
        }
        if self.parent.is_none() && !self.wanted.is_empty() && self.listened.elapsed() >= AGAIN {
            self.listened = now;
            for target in std::mem::take(&mut self.wanted) {
                self.listen(target, true);
            }
        }
    }

    /// The card, if it can be used.
    fn card(&mut self) -> Option<&Card> {
        if self.card.is_none() && self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN) {
            match Card::open() {
                Ok(card) => {
                    let added = self.poller.add(card.events(), EVENTS, false);
                    if added.and_then(|()| self.poller.add(card.messages(), MESSAGES, false)).is_ok() {
                        self.card = Some(card);
                    }
                }
                Err(error) => rules::log(format_args!("no card: {error}")),
            }
            self.tried = Some(Instant::now());
        }
        self.card.as_ref()
    }

    /// Takes the card's completions to their connections; answers whether there were any.
    fn take_messages(&mut self) -> bool {
        let Some(card) = &self.card else { return false };
        let Ok(all) = card.completed() else {
            self.lose_card();
            return true;
        };
        for completion in &all {
            let Some(id) = self.by_number.get(&completion.qpn) else { continue };
            let Some(stage) = self.flows.get_mut(id).and_then(|flow| flow.stage.as_mut()) else { continue };
            stage.link().completed(completion);
            self.changed.insert(*id);
        }
        !all.is_empty()
    }

    /// The card was reset or has gone: so are all connections and listeners.
    fn lose_card(&mut self) {
        rules::log("the card is lost");
        self.wanted.extend(self.listening.drain(..).map(|listening| listening.target));
        for (id, flow) in &mut self.flows {
            flow.stage.as_mut().into_iter().for_each(|stage| stage.link().finish());
            self.changed.insert(*id);
        }
        self.card = None;
        self.tried = Some(Instant::now());
    }

    fn take_events(&mut self) {
        if self.card.as_ref().is_some_and(Card::is_lost) {
            // Its events would be signalled for ever.
            return self.lose_card();
        }
        let mut requests = Vec::new();
        for listening in &self.listening {
            loop {
                match listening.listener.next(Some(Duration::ZERO)) {
                    Ok(request) => requests.push((request, listening.target)),
                    Err(Error::DeviceLost) => return self.lose_card(),
                    Err(_) => break,
                }
            }
        }
        for (request, target) in requests {
            self.accept(request, target);
        }
        let mut ended = Vec::new();
        for (id, flow) in &mut self.flows {
            let Some(stage) = &mut flow.stage else { continue };
            if !matches!(stage, Stage::Asked { .. } | Stage::Accepted { .. }) {
                if !stage.link().has_ended() {
                    continue;
                }
                ended.push(*id);
            }
            self.changed.insert(*id);
        }
        // What came before the end is here by now.
        self.take_messages();
        for id in ended {
            let stage = self.flows.get_mut(&id).and_then(|flow| flow.stage.as_mut());
            stage.into_iter().for_each(|stage| stage.link().finish());
        }
        if self.flows.is_empty() && self.listening.is_empty() {
            // Nobody has taken the count of the events.
            self.card.as_ref().into_iter().for_each(|card| sys::quiet(card.events()));
        }
    }

    fn take_commands(&mut self) {
        sys::quiet(self.handle.wake.as_raw_fd());
        let commands = std::mem::take(&mut *locked(&self.handle.commands));
        for command in commands {
            match command {
                Command::Listen { target, done } => {
                    self.listen(target, false);
                    done.give(());
                }
                Command::Closed { port } => {
                    if !sys::is_listened_to(port) {
                        self.listening.retain(|listening| listening.target.port() != port);
                        self.wanted.retain(|target| target.port() != port);
                    }
                }
                Command::Connect { to, port, answer } => {
                    if let Err(why) = self.connect(to, port, &answer) {
                        answer.give(Asked::Not(why));
                    }
                }
                Command::Attach { id, socket, ports, ends } => self.attach(id, socket, ports, ends),
                Command::Direct { ports, address, len, answer } => self.send_from(ports, address, len, answer),
                Command::Abandon { id } => {
                    self.forget(id);
                }
                Command::Inherit { parent, targets } => {
                    self.wanted = targets;
                    let ends = sys::process(parent).ok();
                    self.parent = ends.filter(|fd| self.poller.add(fd.as_raw_fd(), PARENT, false).is_ok());
                }
            }
        }
    }

    /// Begins to send bytes of the program's memory.
    fn send_from(&mut self, ports: Ports, address: usize, len: usize, answer: Arc<Answer<Option<usize>>>) {
        let found = self.flows.iter_mut().find(|(_, flow)| flow.ports == Some(ports));
        let Some((id, Flow { stage: Some(Stage::Carried { pipe }), direct, .. })) = found else {
            return answer.give(None);
        };
        let id = *id;
        // What it finds to have ended, it finds again.
        let over = pipe.run(false).is_some();
        // SAFETY: the program's thread waits for the answer, which `advance` gives when the bytes are sent, or the pipe is gone.
        if over || !unsafe { pipe.send_from(address, len) } {
            answer.give(None);
        } else {
            *direct = Some(answer);
        }
        self.changed.insert(id);
    }

    /// Listens to the port of a listener of the program. `again`: later, if another process does.
    fn listen(&mut self, target: SocketAddrV4, again: bool) {
        let port = target.port();
        if self.listening.iter().any(|listening| listening.target.port() == port) {
            return;
        }
        let Some(card) = self.card() else {
            self.wanted.push(target);
            return;
        };
        let address = card.address;
        if !target.ip().is_loopback() && *target.ip() != address {
            // An address of another interface.
            return;
        }
        match card.listen(port) {
            Ok(listener) => {
                rules::log(format_args!("listens to {address}:{port}"));
                self.listening.push(Listening { listener, target });
            }
            Err(Error::Busy { .. }) if again => self.wanted.push(target),
            Err(Error::DeviceLost) => self.lose_card(),
            Err(error) => rules::log(format_args!("does not listen to {address}:{port}: {error}")),
        }
    }

    fn add(&mut self, mut stage: Stage) -> u64 {
        self.last += 1;
        let number = stage.link().number();
        self.by_number.insert(number, self.last);
        self.flows.insert(self.last, Flow { stage: Some(stage), number, ports: None, ends: None, direct: None });
        self.last
    }

    /// Drops a connection's entry.
    fn forget(&mut self, id: u64) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        if self.by_number.get(&flow.number) == Some(&id) {
            self.by_number.remove(&flow.number);
        }
        flow.ports.into_iter().for_each(names::gone);
        Some(flow)
    }

    /// Begins to connect; why it cannot be.
    fn connect(&mut self, to: SocketAddrV4, port: u16, answer: &Arc<Answer<Asked>>) -> Result<(), String> {
        if self.absent.get(to.ip()).is_some_and(|when| when.elapsed() < ABSENT) {
            return Err("it has not answered before".to_owned());
        }
        let card = self.card().ok_or("no card")?;
        if *to.ip() == card.address {
            return Err("this host's own address".to_owned());
        }
        if !sys::is_neighbour(card.address, *to.ip()) {
            return Err("not in the card's network".to_owned());
        }
        let link = card.link().map_err(|error| error.to_string())?;
        link.ask(*to.ip(), to.port(), port).map_err(|error| error.to_string())?;
        let until = Instant::now() + rules::timeout();
        self.add(Stage::Asked { link, answer: Arc::clone(answer), to, until });
        Ok(())
    }

    /// Answers a peer's request.
    fn accept(&mut self, request: Request, target: SocketAddrV4) {
        // Rejected when it is dropped.
        let Some(hello) = Hello::decode(request.private_data()) else { return };
        let client = SocketAddrV4::new(request.peer(), hello.port);
        let Some(card) = &self.card else { return };
        let accepted = card.link().and_then(|mut link| link.accept(request, hello).map(|()| link));
        match accepted {
            Ok(link) => {
                self.add(Stage::Accepted { link, target, client });
            }
            Err(error) => rules::log(format_args!("does not accept {client}: {error}")),
        }
    }

    /// The socket of a connection that was asked for.
    fn attach(&mut self, id: u64, socket: Fd, ports: Ports, ends: Ends) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.ports = Some(ports);
        flow.ends = Some(ends);
        if let Some(Stage::There { link }) = flow.stage.take() {
            self.carry(id, link, socket);
        }
    }

    /// Begins to carry bytes.
    fn carry(&mut self, id: u64, link: Link, socket: Fd) {
        // Of a visitor it is there already.
        let _ = self.poller.add(socket.as_raw_fd(), id, true);
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.stage = Some(Stage::Carried { pipe: Pipe::new(socket, link) });
        }
        self.changed.insert(id);
    }

    /// Begins to connect a peer's connection to the program's listener.
    fn visit(&mut self, id: u64, link: Link, target: SocketAddrV4, client: SocketAddrV4) -> io::Result<()> {
        let own = self.card.as_ref().map_or(*target.ip(), |card| card.address);
        let (visitor, from) = sys::visitor(own)?;
        let ports = Ports { local: target.port(), peer: from };
        let ends = Ends { local: SocketAddrV4::new(own, target.port()), peer: client };
        // Before the program can have it.
        names::insert(ports, ends);
        self.poller.add(visitor.as_raw_fd(), id, true)?;
        match sys::connect(&visitor, ends.local) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.ports = Some(ports);
            flow.ends = Some(ends);
            flow.stage = Some(Stage::Visiting { link, visitor });
        }
        self.changed.insert(id);
        Ok(())
    }

    /// Does what there is to do for a connection. `failed`: its socket has an error.
    fn advance(&mut self, id: u64, failed: bool) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        match flow.stage.take() {
            Some(Stage::Asked { mut link, answer, to, until }) => match link.made() {
                Made::Pending => flow.stage = Some(Stage::Asked { link, answer, to, until }),
                Made::Yes(Some(_)) => {
                    let Some(card) = &self.card else { return };
                    flow.stage = Some(Stage::There { link });
                    answer.give(Asked::Carried(id, card.address));
                }
                Made::Yes(None) => {
                    self.forget(id);
                    answer.give(Asked::Not("another kind of program listens to that service".to_owned()));
                }
                Made::No(reason) => {
                    if reason == Reason::Unreachable {
                        self.absent.insert(*to.ip(), Instant::now());
                    }
                    self.forget(id);
                    answer.give(Asked::Not(reason.to_string()));
                }
            },
            Some(Stage::Accepted { mut link, target, client }) => match link.made() {
                Made::Pending => flow.stage = Some(Stage::Accepted { link, target, client }),
                Made::Yes(_) => {
                    if let Err(error) = self.visit(id, link, target, client) {
                        rules::log(format_args!("{target} does not take {client}: {error}"));
                        self.forget(id);
                    }
                }
                Made::No(_) => {
                    self.forget(id);
                }
            },
            Some(Stage::There { link }) => {
                flow.stage = Some(Stage::There { link });
            }
            Some(Stage::Visiting { link, visitor }) => match sys::outcome(&visitor) {
                None => flow.stage = Some(Stage::Visiting { link, visitor }),
                Some(Ok(())) => self.carry(id, link, visitor),
                Some(Err(error)) => {
                    rules::log(format_args!("the program does not take a connection: {error}"));
                    self.forget(id);
                }
            },
            Some(Stage::Carried { mut pipe }) => match pipe.run(failed) {
                None => {
                    if let Some(placed) = pipe.taken_from() {
                        pipe.told_taken();
                        flow.direct.take().into_iter().for_each(|answer| answer.give(Some(placed)));
                        // The socket may have more.
                        self.changed.insert(id);
                    }
                    flow.stage = Some(Stage::Carried { pipe });
                }
                Some(end) => {
                    told(flow.ends, &pipe, end);
                    pipe.channel.finish();
                    let placed = pipe.taken_from();
                    // From here on the card does not use the program's memory.
                    drop(pipe);
                    let direct = self.forget(id).and_then(|flow| flow.direct);
                    direct.into_iter().for_each(|answer| answer.give(placed));
                }
            },
            None => {}
        }
    }

    /// Tells the ending process when nothing is left to be acknowledged.
    fn finish(&mut self) {
        if !self.handle.finishes.load(Ordering::Acquire) {
            return;
        }
        // Those that are not there yet have not been used.
        let pipes = self.flows.values_mut().filter_map(|flow| match &mut flow.stage {
            Some(Stage::Carried { pipe }) => Some(pipe),
            _ => None,
        });
        let mut left = false;
        for pipe in pipes {
            if pipe.is_sent() {
                pipe.leave();
            }
            left |= !pipe.is_sent();
        }
        if !left {
            // The card lets go of the process's memory before that goes: peers may still send into it.
            for (_, flow) in self.flows.drain() {
                if let Some(Stage::Carried { pipe }) = &flow.stage {
                    told(flow.ends, pipe, End::Closed);
                }
            }
            self.by_number.clear();
            self.listening.clear();
            self.handle.finishes.store(false, Ordering::Relaxed);
            sys::signal(&self.handle.finished);
        }
    }
}

/// Logs a connection that has ended.
fn told(ends: Option<Ends>, pipe: &Pipe<Link>, end: End) {
    let Some(Ends { local, peer }) = ends else { return };
    let how = match end {
        End::Closed => "closed",
        End::Reset => "reset",
        End::Lost => "lost",
    };
    rules::log(format_args!(
        "berth {local} {peer} sent {} and {} without a copy, received {} {how}",
        pipe.sent,
        pipe.channel.placed(),
        pipe.received
    ));
}
