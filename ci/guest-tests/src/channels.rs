// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Channels whose buffers grow: BE-1 … BE-9.

use std::thread;
use std::time::{Duration, Instant};

use libberth::{Buffer, Channel, ChannelConfig, Context};

use crate::credits::with_faults;
use crate::env::{Env, Role};
use crate::memory::Linger;
use crate::util::{Random, Res, check, fill, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: be_2_a_large_element_grows_one_channel_and_no_other,
          be_7_channels_grow_twice_on_a_lossy_wire,
          be_9_a_channel_reads_a_large_element_from_the_senders_memory;
}

/// Connects channels of both guests, in order.
fn connect<const L: usize>(env: &Env, context: &Context, channels: &mut [Channel<L>], service: u16) -> Res {
    let key = format!("listening-{service}");
    match env.role {
        Role::B => {
            let listener = context.listen(service)?;
            env.tell(&key, "")?;
            for channel in channels {
                channel.accept(listener.next(env.limit())?)?;
                wait_until("a channel is connected", env.hang, || Ok(channel.is_connected()?))?;
            }
        }
        Role::A => {
            env.hear(&key)?;
            for channel in channels {
                channel.start_connect(env.peer_ip, service)?;
                wait_until("a channel is connected", env.hang, || Ok(channel.is_connected()?))?;
            }
        }
    }
    Ok(())
}

/// Elements of one direction: their lengths, and the seed of their bytes.
struct Elements<'a> {
    lens: &'a [usize],
    seed: u64,
}

/// Sends and receives elements until both ends know that all have come.
fn exchange<const L: usize>(env: &Env, channel: &mut Channel<L>, out: &Elements<'_>, back: &Elements<'_>) -> Res {
    let bytes = |(n, len): (usize, &usize)| {
        let mut bytes = vec![0; *len];
        fill(&mut bytes, out.seed + n as u64, 0);
        bytes
    };
    let elements: Vec<_> = out.lens.iter().enumerate().map(bytes).collect();
    let mut vector: Vec<_> = elements.iter().map(Vec::as_slice).collect();
    let mut into = vec![0; back.lens.iter().copied().max().unwrap_or(0)];
    let mut received = 0;
    let deadline = Instant::now() + env.hang;
    loop {
        let sent = channel.send(&vector)?;
        vector.drain(..sent.elements);
        let mut came = 0;
        while let Some(arrived) = channel.receive(&mut into)? {
            ensure_eq!((Some(&arrived.len), arrived.last), (back.lens.get(received), received + 1 == back.lens.len()));
            check(&into[..arrived.len], back.seed + received as u64, 0)?;
            received += 1;
            came += 1;
        }
        if vector.is_empty() && received == back.lens.len() && channel.is_settled() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{} elements to send, {received} received: {channel:?}", vector.len());
        if sent.elements + came == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Seeds of what this guest sends and what it receives.
fn seeds(env: &Env, seed: u64) -> (u64, u64) {
    match env.role {
        Role::A => (seed, seed + 500),
        Role::B => (seed + 500, seed),
    }
}

fn be_2_a_large_element_grows_one_channel_and_no_other(env: &Env) -> Res {
    const LARGE: usize = 7;
    /// The others are idle.
    const USED: [usize; 3] = [0, LARGE, 12];
    /// What a fixed scheme takes for both directions of one end: buffers of the same number, all of them large.
    const FIXED: usize = 2 * 16 * 8192;
    let info = env.device()?.info()?;
    // To connect one takes longest.
    let count = (env.cases(16, 48) as usize).max(16).min(info.max_qps_per_process as usize).min(info.max_cqs as usize);
    let _linger = Linger::set(env, 60_000)?;
    let context = env.context()?;
    let domain = context.create_domain()?;
    let config = ChannelConfig::default();
    let make = |_| Ok(Channel::new(&context, &domain, &config)?);
    let mut channels = (0..count).map(make).collect::<Res<Vec<_>>>()?;
    let idle = channels[0].bytes();
    println!("{count} channels of {idle} bytes each, where a fixed scheme takes {FIXED}");
    ensure!(idle <= 16 << 10, "{idle} bytes");
    connect(env, &context, &mut channels, 500)?;
    let (out, back) = seeds(env, 50_000);
    for n in USED {
        let lens = [n, 384];
        exchange(env, &mut channels[n], &Elements { lens: &lens, seed: out }, &Elements { lens: &lens, seed: back })?;
    }
    env.meet("small")?;
    let lens = [100, 8192, 8192, 10, 8192];
    exchange(env, &mut channels[LARGE], &Elements { lens: &lens, seed: out }, &Elements { lens: &lens, seed: back })?;
    env.meet("large")?;
    for (n, channel) in channels.iter_mut().enumerate() {
        let grown = channel.bytes();
        let expected = if n == LARGE { (1, 1) } else { (0, 0) };
        ensure_eq!(channel.levels(), expected);
        ensure!(if n == LARGE { grown > 200 << 10 && grown <= FIXED } else { grown == idle }, "channel {n}: {grown}");
    }
    let all: usize = channels.iter().map(Channel::bytes).sum();
    println!("one has grown to {} bytes; {} bytes per channel", channels[LARGE].bytes(), all / count);
    // The small ones go on.
    for n in USED {
        let lens = [300; 6];
        exchange(env, &mut channels[n], &Elements { lens: &lens, seed: out }, &Elements { lens: &lens, seed: back })?;
    }
    env.meet("done")
}

fn be_7_channels_grow_twice_on_a_lossy_wire(env: &Env) -> Res {
    const MESSAGES: usize = 15;
    // Both guests draw the same numbers.
    let seed = match env.role {
        Role::A => env.tell("seed", &env.seed.to_string()).map(|()| env.seed)?,
        Role::B => env.hear("seed")?.parse()?,
    };
    println!("seed {seed}");
    let config = ChannelConfig { sizes: [512, 2048, 8192], count: 8, share: 75, rendezvous: u32::MAX };
    let mut random = Random::new(seed);
    let mut lens = |most: usize| (0..MESSAGES).map(|_| random.below(most)).collect::<Vec<_>>();
    let (small, larger, of_a, of_b) = (lens(385), lens(1537), lens(8193), lens(8193));
    let _linger = Linger::set(env, 60_000)?;
    with_faults(env, "loss=0.03 dup=0.03 reorder=0.03 corrupt=0.03", || {
        let context = env.context()?;
        let domain = context.create_domain()?;
        let mut channels = [Channel::new(&context, &domain, &config)?];
        connect(env, &context, &mut channels, 501)?;
        let [channel] = &mut channels;
        let (out, back) = seeds(env, 51_000);
        for (lens, level) in [(&small, 0), (&larger, 1)] {
            exchange(env, channel, &Elements { lens, seed: out }, &Elements { lens, seed: back })?;
            // The peer may have begun with what is next.
            ensure_eq!(channel.levels().0, level);
        }
        let (own, other) = if env.role == Role::A { (&of_a, &of_b) } else { (&of_b, &of_a) };
        exchange(env, channel, &Elements { lens: own, seed: out }, &Elements { lens: other, seed: back })?;
        ensure_eq!(channel.levels().0, 2);
        env.meet("done")
    })
}

fn be_9_a_channel_reads_a_large_element_from_the_senders_memory(env: &Env) -> Res {
    const LARGE: usize = 1 << 20;
    const COPIED: usize = 30_000;
    let _linger = Linger::set(env, 60_000)?;
    let context = env.context()?;
    let domain = context.create_domain()?;
    let mut channels = [Channel::new(&context, &domain, &ChannelConfig::default())?];
    connect(env, &context, &mut channels, 502)?;
    let [channel] = &mut channels;
    let idle = channel.bytes();
    match env.role {
        Role::A => {
            let mut buffer = Buffer::new(LARGE)?;
            fill(&mut buffer, 52_000, 0);
            let address = buffer.as_ptr();
            ensure!(channel.send_buffer(buffer)?.is_none(), "there is room");
            ensure_eq!(channel.bytes(), idle);
            let mut copied = vec![0; COPIED];
            fill(&mut copied, 52_001, 0);
            ensure_eq!(channel.send(&[&copied, &[7; 10]])?.elements, 1);
            ensure_eq!(channel.send(&[&[7; 10]])?.elements, 1);
            ensure_eq!(channel.bytes(), idle + COPIED);
            ensure!(channel.next_returned().is_none(), "the peer has not read it");
            env.tell("offered", "")?;
            let mut returned = None;
            wait_until("the buffer is given back", env.hang, || {
                channel.progress()?;
                returned = returned.take().or_else(|| channel.next_returned());
                Ok(returned.is_some() && channel.is_settled())
            })?;
            let returned = returned.ok_or("it was there")?;
            ensure_eq!(returned.as_ptr(), address);
            ensure_eq!(channel.bytes(), idle);
        }
        Role::B => {
            env.hear("offered")?;
            for (n, len, last) in [(0, LARGE, true), (1, COPIED, false)] {
                wait_until("an element is offered", env.hang, || Ok(channel.peek()?.is_some()))?;
                ensure!(channel.fetch(Buffer::new(len)?)?.is_none(), "it is there");
                let mut fetched = None;
                wait_until("it is fetched", env.hang, || {
                    channel.progress()?;
                    fetched = channel.next_fetched();
                    Ok(fetched.is_some())
                })?;
                let fetched = fetched.ok_or("it was there")?;
                ensure_eq!((fetched.len, fetched.last), (len, last));
                check(&fetched.buffer, 52_000 + n, 0)?;
            }
            let mut into = [0; 10];
            wait_until("the last element comes", env.hang, || Ok(channel.receive(&mut into)?.is_some()))?;
            ensure_eq!(into, [7; 10]);
            wait_until("the peer is told", env.hang, || {
                channel.progress()?;
                Ok(channel.is_settled())
            })?;
            ensure_eq!(channel.levels(), (0, 0));
        }
    }
    env.meet("done")
}
