// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work whose instructions are counted by a plugin of QEMU (`cargo xtask bench --host`): streams, round trips and messages of
//! Berth, in both guests, and the same by TCP over a guest's own loopback, by a UNIX socket, and with the library's credits through
//! shared memory.
//!
//! What is counted stands between two marks. For each such window a line says how many messages, bytes and ticks of the timer
//! there were in it. One window is idle: it says what a tick costs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use berth_abi::counters::{D_BUDGET_WAITS, D_EVENTS, D_INTERRUPTS, D_PAGES_PINNED};
use berth_credits::endpoint::{Endpoint, Event, Options};
use berth_credits::shared::Shared;
use berth_marks::{NOTHING, POLL, mark};
use libberth::{CompletionQueue, Context, Limits, WorkRequest};

use crate::args::Args;
use crate::env::{Env, Role};
use crate::util::{Conn, Mem, PAGE, Res, depths, establish};

/// Counts what `work` does, which is so many messages and bytes.
fn window(env: &Env, name: &str, messages: usize, bytes: usize, work: impl FnOnce() -> Res) -> Res {
    let device = env.device()?;
    let before = device.counters()?;
    berth_marks::window(name, messages, bytes, || Ok(device.counters()?.drv(D_INTERRUPTS)), work)?;
    let then = device.counters()?;
    let more = |index| then.drv(index) - before.drv(index);
    println!(
        "{name}: {} events, {} pages pinned, {} waits",
        more(D_EVENTS),
        more(D_PAGES_PINNED),
        more(D_BUDGET_WAITS)
    );
    Ok(())
}

/// The next completion, slept for or polled.
fn completed(env: &Env, queue: &CompletionQueue, sleeps: bool) -> Res {
    if sleeps {
        queue.wait(env.limit())?.ok()?;
        return Ok(());
    }
    loop {
        mark::<POLL>();
        match queue.poll()? {
            Some(completion) => {
                completion.ok()?;
                return Ok(());
            }
            None => mark::<NOTHING>(),
        }
    }
}

/// One connection, whose messages have buffers of their own or go round in a ring of them.
struct Flow<'a> {
    env: &'a Env,
    conn: Conn,
    mem: Mem,
    size: usize,
    depth: usize,
    buffers: usize,
    sleeps: bool,
    inline: bool,
    /// Messages sent and received so far.
    done: usize,
}

impl<'a> Flow<'a> {
    fn new(env: &'a Env, context: &Context, service: u16, size: usize, depth: usize, buffers: usize) -> Res<Self> {
        let conn = Conn::new(context, &depths(depth as u32, depth as u32))?;
        let stride = size.next_multiple_of(PAGE);
        let mut mem = Mem::new(buffers * stride)?;
        // All of it is there.
        mem.bytes_mut().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        let mut flow = Self { env, conn, mem, size, depth, buffers, sleeps: true, inline: false, done: 0 };
        for n in 0..depth {
            flow.post(n)?;
        }
        establish(env, context, &flow.conn.qp, service)?;
        Ok(flow)
    }

    fn at(&self, n: usize) -> usize {
        n % self.buffers * self.size.next_multiple_of(PAGE)
    }

    fn post(&mut self, n: usize) -> Res {
        let sges = [self.mem.sge(self.at(n), self.size)];
        let request = WorkRequest { wr_id: n as u64, sges: &sges, ..WorkRequest::default() };
        // SAFETY: the memory lives as long as the queue pair.
        unsafe { self.conn.qp.post_recv(&[request]) }?;
        Ok(())
    }

    fn send(&mut self, n: usize) -> Res {
        let at = self.at(n);
        match self.inline {
            true => self.conn.send_inline(n as u64, &[1; 64][..self.size]),
            false => self.conn.send(n as u64, &[self.mem.sge(at, self.size)]),
        }
    }

    /// Takes one message, and posts the next receive in its place.
    fn receive(&mut self, n: usize) -> Res {
        completed(self.env, &self.conn.recvs, self.sleeps)?;
        self.post(n + self.depth)
    }

    /// Messages one way, from A to B.
    fn stream(&mut self, count: usize) -> Res {
        let first = self.done;
        self.done += count;
        match self.env.role {
            Role::A => {
                for n in first..first + count {
                    if n >= first + self.depth {
                        completed(self.env, &self.conn.sends, self.sleeps)?;
                    }
                    self.send(n)?;
                }
                (0..count.min(self.depth)).try_for_each(|_| completed(self.env, &self.conn.sends, self.sleeps))
            }
            Role::B => (first..first + count).try_for_each(|n| self.receive(n)),
        }
    }

    /// Messages there and back.
    fn round_trips(&mut self, count: usize) -> Res {
        let first = self.done;
        self.done += count;
        for n in first..first + count {
            if self.env.role == Role::A {
                self.send(n)?;
            }
            self.receive(n)?;
            if self.env.role == Role::B {
                self.send(n)?;
            }
            completed(self.env, &self.conn.sends, self.sleeps)?;
        }
        Ok(())
    }
}

/// Both directions of a connection over the loopback.
fn loopback() -> Res<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// Both ends of a connection by the kernel: TCP's over the loopback, or a UNIX socket's.
trait Medium: Read + Write + Send + Sized + 'static {
    fn ends() -> Res<(Self, Self)>;
}

impl Medium for TcpStream {
    fn ends() -> Res<(Self, Self)> {
        loopback()
    }
}

impl Medium for UnixStream {
    fn ends() -> Res<(Self, Self)> {
        Ok(Self::pair()?)
    }
}

/// Messages one way.
fn stream<S: Medium>(size: usize, count: usize) -> Res {
    let (mut near, mut far) = S::ends()?;
    let (message, mut taken) = (vec![1; size], vec![1; size]);
    let other = thread::spawn(move || (0..count).try_for_each(|_| far.read_exact(&mut taken)));
    (0..count).try_for_each(|_| near.write_all(&message))?;
    other.join().map_err(|_| "the other thread has failed")??;
    Ok(())
}

/// Messages there and back.
fn round_trips<S: Medium>(size: usize, count: usize) -> Res {
    let (mut near, mut far) = S::ends()?;
    let mut message = vec![1; size];
    let mut answer = message.clone();
    let other = thread::spawn(move || {
        (0..count).try_for_each(|_| {
            far.read_exact(&mut answer)?;
            far.write_all(&answer)
        })
    });
    for _ in 0..count {
        near.write_all(&message)?;
        near.read_exact(&mut message)?;
    }
    other.join().map_err(|_| "the other thread has failed")??;
    Ok(())
}

/// Receives at a time of an end with the library's credits.
const RECEIVES: usize = 16;

/// One end with the library's credits, through memory (CR-12d).
struct End {
    endpoint: Endpoint<Shared, Message>,
    size: usize,
    received: usize,
    sent: usize,
}

/// What is sent, without a copy of it for each message.
#[derive(Clone, Debug)]
struct Message(Rc<Vec<u8>>);

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl End {
    fn new(shared: Shared, size: usize) -> Res<Self> {
        let mut endpoint = Endpoint::new(shared, &Options::default(), 0);
        for n in 0..RECEIVES {
            endpoint.post_receive(n as u64, (n * size) as u32, size as u32)?;
        }
        endpoint.commit();
        Ok(Self { endpoint, size, received: 0, sent: 0 })
    }

    /// Does what there is to do. Receives are posted again; nobody reads their bytes, which are where they belong.
    fn turn(&mut self) -> Res {
        mark::<POLL>();
        if !self.endpoint.progress(0)? {
            mark::<NOTHING>();
        }
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Received { id, .. } => {
                    self.received += 1;
                    self.endpoint.post_receive(id, (id as usize * self.size) as u32, self.size as u32)?;
                    self.endpoint.commit();
                }
                Event::Sent { .. } => self.sent += 1,
                other => return Err(format!("{other:?}").into()),
            }
        }
        Ok(())
    }

    fn send(&mut self, message: &Message) -> Res {
        Ok(self.endpoint.post_send(0, vec![message.clone()]).map_err(|unposted| unposted.reason)?)
    }
}

/// Both ends of a shared memory. They take turns in one thread, as there is one processor.
struct Ends {
    near: End,
    far: End,
    message: Message,
}

impl Ends {
    fn new(size: usize) -> Res<Self> {
        let (one, other) = UnixStream::pair()?;
        let bytes = (RECEIVES * size) as u32;
        let near = Shared::offer(one, bytes, bytes)?;
        let [near, far] = [End::new(near, size)?, End::new(Shared::join(other)?, size)?];
        Ok(Self { near, far, message: Message(Rc::new(vec![1; size])) })
    }

    /// Messages one way.
    fn stream(&mut self, count: usize) -> Res {
        let (sent, received) = (self.near.sent, self.far.received);
        let mut posted = 0;
        while self.far.received < received + count {
            while posted < count && posted < self.near.sent - sent + RECEIVES {
                self.near.send(&self.message)?;
                posted += 1;
            }
            self.near.turn()?;
            self.far.turn()?;
        }
        Ok(())
    }

    /// Messages there and back.
    fn round_trips(&mut self, count: usize) -> Res {
        for _ in 0..count {
            let (there, back) = (self.far.received, self.near.received);
            self.near.send(&self.message)?;
            while self.far.received == there {
                self.near.turn()?;
                self.far.turn()?;
            }
            self.far.send(&self.message)?;
            while self.near.received == back {
                self.far.turn()?;
                self.near.turn()?;
            }
        }
        Ok(())
    }
}

/// All of it.
///
/// # Errors
/// When something cannot be made, or fails.
pub fn run(args: &Args) -> Res {
    let env = &Env::new(args, "count");
    // For whoever wants to know which functions are counted.
    std::fs::write(args.share.join(format!("maps-{}", args.role.name())), std::fs::read("/proc/self/maps")?)?;
    env.up()?;
    let context = env.context()?;
    let begin = |name: &str| -> Res {
        env.meet(name)?;
        // The other guest may still look for the file.
        thread::sleep(Duration::from_millis(100));
        Ok(())
    };
    begin("idle")?;
    berth_marks::idle()?;

    let linger = |ms| -> Res { Ok(env.device()?.set_limits(&Limits { linger_ms: Some(ms), ..Limits::default() })?) };
    const LONG: usize = 64 << 10;
    // Each buffer is used once.
    let count = 128;
    for (n, (name, sleeps)) in (310..).zip([("stream_cold", false), ("stream_cold_wait", true)]) {
        linger(1000)?;
        let mut cold = Flow::new(env, &context, n, LONG, 16, count + 16)?;
        cold.sleeps = sleeps;
        begin(name)?;
        window(env, name, count, count * LONG, || {
            cold.stream(count)?;
            // They are given back, too, but for receives that are announced.
            while context.pinned()?.now > 16 * LONG as u64 {
                thread::sleep(Duration::from_millis(200));
            }
            Ok(())
        })?;
    }
    for (n, (name, sleeps)) in (312..).zip([("stream_warm", false), ("stream_warm_wait", true)]) {
        linger(60_000)?;
        let mut warm = Flow::new(env, &context, n, LONG, 16, 16)?;
        warm.sleeps = sleeps;
        warm.stream(64)?;
        begin(name)?;
        window(env, name, 256, 256 * LONG, || warm.stream(256))?;
    }

    for (n, (name, sleeps)) in (302..).zip([("round_trip_wait", true), ("round_trip_poll", false)]) {
        let mut flow = Flow::new(env, &context, n, 64, 16, 16)?;
        (flow.sleeps, flow.inline) = (sleeps, true);
        flow.round_trips(32)?;
        begin(name)?;
        window(env, name, 200, 200 * 64, || flow.round_trips(200))?;
    }

    let mut rate = Flow::new(env, &context, 304, 64, 64, 64)?;
    (rate.sleeps, rate.inline) = (false, true);
    rate.stream(128)?;
    begin("rate")?;
    window(env, "message_poll", 1000, 1000 * 64, || rate.stream(1000))?;
    drop(rate);

    begin("tcp")?;
    if env.role == Role::A {
        stream::<TcpStream>(LONG, 16)?;
        window(env, "tcp_stream", 256, 256 * LONG, || stream::<TcpStream>(LONG, 256))?;
        window(env, "tcp_round_trip", 200, 200 * 64, || round_trips::<TcpStream>(64, 200))?;
        stream::<UnixStream>(LONG, 16)?;
        window(env, "unix_stream", 256, 256 * LONG, || stream::<UnixStream>(LONG, 256))?;
        window(env, "unix_round_trip", 200, 200 * 64, || round_trips::<UnixStream>(64, 200))?;
        // All of it is there.
        let mut ends = Ends::new(LONG)?;
        ends.stream(64)?;
        window(env, "memory_stream", 256, 256 * LONG, || ends.stream(256))?;
        let mut ends = Ends::new(64)?;
        ends.round_trips(64)?;
        window(env, "memory_round_trip", 200, 200 * 64, || ends.round_trips(200))?;
    }
    env.meet("done")
}
