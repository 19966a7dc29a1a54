// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card as an ordinary network device: sockets of the two guests over both cards, beside Berth's own connections.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use berth_abi::counters as c;
use berth_abi::raw::RAW_FRAME_BYTES;
use libberth::{Device, MacAddr};

use crate::env::{Env, Role};
use crate::service::{
    after_reset, driver_dir, function_level_reset, pci_address, reload, wait_for_device, wait_in_service,
};
use crate::util::{Conn, Mem, Res, check, depths, establish, fail, fill, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: ap_4_net_the_device_has_the_cards_address_and_a_link, ap_4_net_counters_are_shown_by_name;
    Pair: ap_4_net_the_guests_ping_each_other, ap_4_net_frames_of_any_length_arrive, ap_4_net_multicast_arrives_where_it_is_wanted,
          ap_4_net_tcp_streams_arrive_beside_a_connection, ap_4_net_the_device_goes_down_and_up_in_traffic;
    Pair Disruptive: ap_4_net_streams_go_on_over_a_reset, ap_4_net_the_driver_goes_and_comes_back_in_traffic;
}

/// Most bytes behind an Ethernet header and a VLAN tag.
const MAX_MTU: u32 = RAW_FRAME_BYTES - 18;
/// How long a socket waits before it looks whether the test's time is over.
const PATIENCE: Duration = Duration::from_secs(1);

/// The guest's address behind its network device, which is not the card's own.
fn address(role: Role) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, if role == Role::A { 1 } else { 2 })
}

/// Name of the card's network device.
fn name() -> Res<String> {
    let folder = format!("/sys/bus/pci/devices/{}/net", pci_address()?);
    let mut all = fs::read_dir(folder)?;
    let entry = all.next().ok_or("the card has no network device")??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// A file of the network device in sysfs.
fn shown(file: &str) -> Res<String> {
    Ok(fs::read_to_string(Path::new("/sys/class/net").join(name()?).join(file))?.trim().to_owned())
}

/// Has busybox do something.
fn run(words: &str) -> Res<String> {
    let mut words = words.split(' ');
    let output = Command::new(words.next().unwrap_or_default()).args(words).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Waits until the device is there and has a link or, as long as it is not up, may have one.
fn wait_for_link(env: &Env) -> Res {
    wait_until("the network device has a link", env.hang, || Ok(shown("carrier").is_ok_and(|c| c == "1")))
}

/// Takes the network device up, with an address that is the guest's.
fn up(env: &Env) -> Res {
    wait_until("there is a network device", env.hang, || Ok(name().is_ok()))?;
    let name = name()?;
    run(&format!("ip addr flush dev {name}"))?;
    run(&format!("ip addr add {}/24 dev {name}", address(env.role)))?;
    run(&format!("ip link set {name} mtu 1500 up"))?;
    wait_for_link(env)
}

/// Takes it down.
fn down() -> Res {
    run(&format!("ip link set {} down", name()?)).map(drop)
}

/// In both guests.
fn both_up(env: &Env) -> Res {
    up(env)?;
    env.meet("up")
}

/// When both guests are done.
fn both_down(env: &Env) -> Res {
    env.meet("done")?;
    down()
}

fn ap_4_net_the_device_has_the_cards_address_and_a_link(env: &Env) -> Res {
    up(env)?;
    let MacAddr(mac) = env.mac();
    let text: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure_eq!(shown("address")?, text.join(":"));
    ensure_eq!((shown("carrier")?, shown("operstate")?), ("1".into(), "up".into()));
    // What a slot carries, and no more.
    let name = name()?;
    for mtu in [68, MAX_MTU] {
        run(&format!("ip link set {name} mtu {mtu}"))?;
        ensure_eq!(shown("mtu")?, mtu.to_string());
        wait_for_link(env)?;
    }
    for mtu in [67, MAX_MTU + 1] {
        ensure!(run(&format!("ip link set {name} mtu {mtu}")).is_err(), "an MTU of {mtu} is accepted");
    }
    // The card's name changes, and the device's address with it.
    let device = env.device()?;
    let mut other = mac;
    other[3] = 7;
    let net = libberth::Net { ipv4: env.own_ip, mac: MacAddr(other), mtu: env.args.mtu };
    device.set_net(&net)?;
    ensure!(shown("address")?.contains(":07:"), "{}", shown("address")?);
    env.up()?;
    ensure_eq!(shown("address")?, text.join(":"));
    // A user may give it another one.
    run(&format!("ifconfig {name} hw ether 02:00:00:00:77:01"))?;
    ensure_eq!(shown("address")?, "02:00:00:00:77:01");
    run(&format!("ifconfig {name} hw ether {}", text.join(":")))?;
    down()?;
    ensure_eq!(shown("operstate")?, "down");
    Ok(())
}

/// What `ethtool` does, by its call: a command with its data, which begins with its number.
fn ethtool<const N: usize>(data: &mut [u8; N]) -> Res {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zeros are a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, byte) in request.ifr_name.iter_mut().zip(name()?.bytes()) {
        *to = byte.cast_signed();
    }
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: the kernel reads and writes as much as the command's data has, which is `N` bytes or less.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    ensure!(ret == 0, "SIOCETHTOOL: {}", io::Error::last_os_error());
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

/// The counters that `ethtool -S` shows.
fn counters() -> Res<Vec<(String, u64)>> {
    const MOST: usize = 64;
    // ETHTOOL_GSSET_INFO, of ETH_SS_STATS.
    let mut info = [0; 20];
    info[0] = 0x37;
    info[8] = 1 << 1;
    ethtool(&mut info)?;
    let count = word(&info, 16) as usize;
    ensure!((1..=MOST).contains(&count), "{count} counters");
    // ETHTOOL_GSTRINGS, then ETHTOOL_GSTATS.
    let mut names = [0; 12 + 32 * MOST];
    (names[0], names[4], names[8]) = (0x1b, 1, count as u8);
    ethtool(&mut names)?;
    let mut values = [0; 8 + 8 * MOST];
    (values[0], values[4]) = (0x1d, count as u8);
    ethtool(&mut values)?;
    let name = |n: usize| {
        let bytes = &names[12 + 32 * n..44 + 32 * n];
        String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    };
    let value = |n: usize| u64::from(word(&values, 8 + 8 * n)) | u64::from(word(&values, 12 + 8 * n)) << 32;
    Ok((0..count).map(|n| (name(n), value(n))).collect())
}

/// One of them.
fn counter(name: &str) -> Res<u64> {
    let found = counters()?.into_iter().find(|(n, _)| n == name);
    Ok(found.ok_or_else(|| format!("no counter {name}"))?.1)
}

fn ap_4_net_counters_are_shown_by_name(env: &Env) -> Res {
    up(env)?;
    let all = counters()?;
    ensure!(all.iter().all(|(name, _)| !name.is_empty()), "{all:?}");
    for name in ["rx_packets", "tx_packets", "tx_stopped", "card_raw_sent", "card_raw_no_receive"] {
        ensure!(all.iter().any(|(n, _)| n == name), "no {name} among {all:?}");
    }
    // ETHTOOL_GLINK, ETHTOOL_GDRVINFO.
    let mut link = [0; 8];
    link[0] = 0x0a;
    ethtool(&mut link)?;
    ensure_eq!(word(&link, 4), 1);
    let mut driver = [0; 196];
    driver[0] = 0x03;
    ethtool(&mut driver)?;
    ensure!(driver[4..].starts_with(b"berth\0"), "the driver is named otherwise");
    down()
}

fn ap_4_net_the_guests_ping_each_other(env: &Env) -> Res {
    both_up(env)?;
    let peer = address(env.role.other());
    for bytes in [56, 1472] {
        let text = run(&format!("ping -c 5 -W 20 -s {bytes} {peer}"))?;
        ensure!(text.contains(" 0% packet loss"), "{bytes} bytes: {text}");
    }
    // What a slot carries. The device has no link for a moment, so both do it at the same time.
    env.meet("small")?;
    run(&format!("ip link set {} mtu {MAX_MTU}", name()?))?;
    wait_for_link(env)?;
    env.meet("jumbo")?;
    let text = run(&format!("ping -c 5 -W 20 -s {} {peer}", MAX_MTU - 28))?;
    ensure!(text.contains(" 0% packet loss"), "{text}");
    // More, in fragments.
    let text = run(&format!("ping -c 2 -W 20 -s 20000 {peer}"))?;
    ensure!(text.contains(" 0% packet loss"), "{text}");
    ensure_eq!((counter("tx_failed")?, counter("rx_failed")?, counter("bad_completions")?), (0, 0, 0));
    both_down(env)
}

/// A socket for datagrams, which does not wait for ever.
fn datagrams(env: &Env, port: u16) -> Res<UdpSocket> {
    let socket = UdpSocket::bind((address(env.role), port))?;
    socket.set_read_timeout(Some(env.hang))?;
    Ok(socket)
}

/// Each length once, padded on the wire or not: A sends, B answers.
fn ap_4_net_frames_of_any_length_arrive(env: &Env) -> Res {
    both_up(env)?;
    let socket = datagrams(env, 4000)?;
    env.meet("bound")?;
    let peer = (address(env.role.other()), 4000);
    let mut got = [0; 2048];
    let lengths = (0..80).chain((80..1472).step_by(37)).chain(1460..=1472);
    for len in lengths {
        let mut sent = vec![0; len];
        fill(&mut sent, 9000, len as u64);
        match env.role {
            Role::A => {
                socket.send_to(&sent, peer)?;
                let (bytes, _) = socket.recv_from(&mut got)?;
                ensure_eq!(bytes, len);
                ensure!(got[..len] == sent[..], "of {len} bytes others came back");
            }
            Role::B => {
                let (bytes, from) = socket.recv_from(&mut got)?;
                ensure_eq!(bytes, len);
                socket.send_to(&got[..bytes], from)?;
            }
        }
    }
    both_down(env)
}

fn ap_4_net_multicast_arrives_where_it_is_wanted(env: &Env) -> Res {
    let group = Ipv4Addr::new(233, 252, 0, 7);
    both_up(env)?;
    let (own, peer) = (address(env.role), address(env.role.other()));
    match env.role {
        Role::A => {
            let socket = datagrams(env, 4001)?;
            run(&format!("ip route add 233.252.0.0/24 dev {}", name()?))?;
            for key in ["nobody", "joined"] {
                env.hear(key)?;
                socket.send_to(key.as_bytes(), (group, 4002))?;
                socket.send_to(b"end", (peer, 4003))?;
            }
        }
        Role::B => {
            let wanted = UdpSocket::bind((group, 4002))?;
            wanted.set_read_timeout(Some(env.hang))?;
            let end = datagrams(env, 4003)?;
            let mut got = [0; 100];
            // The group's MAC address is nobody's: the card does not give such a frame, which comes before the other.
            let before = counter("rx_packets")?;
            env.tell("nobody", "")?;
            ensure_eq!(end.recv(&mut got)?, 3);
            let others = counter("rx_packets")? - before;
            wanted.join_multicast_v4(&group, &own)?;
            env.tell("joined", "")?;
            let bytes = wanted.recv(&mut got)?;
            ensure_eq!(&got[..bytes], b"joined");
            ensure_eq!(end.recv(&mut got)?, 3);
            println!("figures: {others} frames with one that was wanted");
        }
    }
    both_down(env)
}

/// Waits for a connection.
fn accept(env: &Env, listener: &TcpListener) -> Res<TcpStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + env.hang;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// A stream between the guests: A connects, B listens.
fn stream(env: &Env, port: u16) -> Res<TcpStream> {
    let key = format!("listens-{port}");
    let stream = match env.role {
        Role::B => {
            let listener = TcpListener::bind((address(env.role), port))?;
            env.tell(&key, "")?;
            accept(env, &listener)?
        }
        Role::A => {
            env.hear(&key)?;
            TcpStream::connect_timeout(&(address(env.role.other()), port).into(), env.hang)?
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(env.hang))?;
    Ok(stream)
}

/// Sends `total` bytes of the pattern of `seed`.
fn write_pattern(mut stream: &TcpStream, total: usize, seed: u64) -> Res {
    let mut bytes = vec![0; 32 << 10];
    for at in (0..total).step_by(bytes.len()) {
        let part = bytes.len().min(total - at);
        fill(&mut bytes[..part], seed, at as u64);
        stream.write_all(&bytes[..part])?;
    }
    Ok(())
}

/// Takes as many, and checks them. `look`: called with what has come so far.
fn read_pattern(env: &Env, mut stream: &TcpStream, total: usize, seed: u64, mut look: impl FnMut(usize) -> Res) -> Res {
    let mut bytes = vec![0; 64 << 10];
    let (mut got, mut last) = (0, Instant::now());
    while got < total {
        match stream.read(&mut bytes) {
            Ok(0) => return fail(format!("the stream ends after {got} of {total} bytes")),
            Ok(n) => {
                check(&bytes[..n], seed, got as u64)?;
                got += n;
                last = Instant::now();
                look(got)?;
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                ensure!(last.elapsed() < env.hang, "nothing more comes after {got} of {total} bytes");
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Streams of `total` bytes both ways at once, on one connection.
fn both_ways(env: &Env, stream: &TcpStream, total: usize, look: impl FnMut(usize) -> Res) -> Res {
    let seeds = match env.role {
        Role::A => (9100, 9101),
        Role::B => (9101, 9100),
    };
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_pattern(stream, total, seeds.0));
        read_pattern(env, stream, total, seeds.1, look)?;
        writer.join().unwrap_or_else(|_| fail("panicked"))
    })
}

fn ap_4_net_tcp_streams_arrive_beside_a_connection(env: &Env) -> Res {
    const BYTES: usize = 16 << 10;
    let total = env.cases(1, 64) as usize * (1 << 20);
    both_up(env)?;
    let context = env.context()?;
    let mut conn = Conn::new(&context, &depths(4, 4))?;
    let (source, target) = (Mem::pattern(BYTES, 9200)?, Mem::new(BYTES)?);
    conn.recv(0, &[target.sge(0, BYTES)])?;
    establish(env, &context, &conn.qp, 1100)?;
    let stream = stream(env, 4004)?;
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let messages = thread::scope(|scope| -> Res<u64> {
        let other = scope.spawn(|| {
            let result = both_ways(env, &stream, total, |_| Ok(()));
            over.store(true, Ordering::Release);
            result
        });
        // Berth's own messages all the while, by turns: A's, then B's. A says which is the last.
        let mut messages = 0;
        let mut last = [0u8; 1];
        loop {
            if env.role == Role::A {
                last[0] = u8::from(over.load(Ordering::Acquire));
                conn.send(messages, &[source.sge(0, BYTES)])?;
                conn.sent(env)?.ok()?;
            }
            ensure_eq!(conn.received(env)?.ok()?.byte_len as usize, BYTES);
            check(target.bytes(), 9200, 0)?;
            conn.recv(messages + 1, &[target.sge(0, BYTES)])?;
            if env.role == Role::B {
                conn.send(messages, &[source.sge(0, BYTES)])?;
                conn.sent(env)?.ok()?;
            }
            messages += 1;
            let key = format!("turn-{messages}");
            let done = match env.role {
                Role::A => {
                    env.tell(&key, if last[0] != 0 { "last" } else { "" })?;
                    last[0] != 0
                }
                Role::B => env.hear(&key)? == "last",
            };
            if done {
                break;
            }
        }
        other.join().unwrap_or_else(|_| fail("panicked"))?;
        Ok(messages)
    })?;
    println!(
        "figures: {total} bytes each way in {:.1} s beside {messages} messages of {BYTES} bytes each way",
        begun.elapsed().as_secs_f64()
    );
    ensure_eq!((counter("tx_failed")?, counter("rx_failed")?, counter("bad_completions")?), (0, 0, 0));
    env.meet("over")?;
    both_down(env)
}

/// One guest's device goes down and up again some times, while a stream goes on.
fn ap_4_net_the_device_goes_down_and_up_in_traffic(env: &Env) -> Res {
    both_up(env)?;
    let stream = stream(env, 4005)?;
    let (name, total) = (name()?, 1 << 20);
    let mut times = 0;
    both_ways(env, &stream, total, |got| {
        if env.role == Role::B && got > (times + 1) * total / 8 && times < 4 {
            times += 1;
            run(&format!("ip link set {name} down"))?;
            thread::sleep(Duration::from_millis(50));
            run(&format!("ip link set {name} up"))?;
        }
        Ok(())
    })?;
    if env.role == Role::B {
        ensure!(times == 4 && counter("opened")? > 4, "it went down {times} times");
    }
    env.meet("over")?;
    both_down(env)
}

/// Firmware is lost, or asked to begin anew, in the middle of a stream: the device stays, and the stream goes on.
fn ap_4_net_streams_go_on_over_a_reset(env: &Env) -> Res {
    both_up(env)?;
    let device = env.device()?;
    let resets = device.counters()?.drv(c::D_RESETS);
    let index = shown("ifindex")?;
    for (port, kind) in [(4006, "asked for"), (4007, "crash"), (4008, "function")] {
        let stream = stream(env, port)?;
        let (total, mut done) = (1 << 19, false);
        both_ways(env, &stream, total, |got| {
            if env.role == Role::B && got > total / 4 && !done {
                done = true;
                match kind {
                    "asked for" => device.reset()?,
                    "crash" => drop(device.crash(false)),
                    _ => function_level_reset(env, || Ok(()))?,
                }
                wait_in_service(env)?;
                env.up()?;
            }
            Ok(())
        })
        .map_err(|e| format!("{kind}: {e}"))?;
        ensure_eq!(done, env.role == Role::B);
        env.meet(kind)?;
    }
    if env.role == Role::B {
        ensure!(device.counters()?.drv(c::D_RESETS) >= resets + 3, "the card was not reset");
    }
    ensure_eq!(shown("ifindex")?, index);
    drop(device);
    both_down(env)?;
    if env.role == Role::B { after_reset(env, 1102) } else { Ok(()) }
}

/// One guest's driver is unbound and bound, then removed and loaded, while the other sends.
fn ap_4_net_the_driver_goes_and_comes_back_in_traffic(env: &Env) -> Res {
    for (port, kind) in [(4009, "unbind"), (4010, "module")] {
        both_up(env)?;
        env.meet(&format!("{kind}-up"))?;
        match env.role {
            Role::A => {
                let over = AtomicBool::new(false);
                let socket = datagrams(env, port)?;
                let peer = (address(Role::B), port);
                let bytes = [7; 1400];
                thread::scope(|scope| -> Res {
                    scope.spawn(|| {
                        while !over.load(Ordering::Acquire) {
                            // While nobody answers ARP it may fail.
                            let _ = socket.send_to(&bytes, peer);
                        }
                    });
                    env.tell(&format!("{kind}-sends"), "")?;
                    let heard = env.hear(&format!("{kind}-back"));
                    over.store(true, Ordering::Release);
                    heard.map(drop)
                })?;
            }
            Role::B => {
                let socket = datagrams(env, port)?;
                env.hear(&format!("{kind}-sends"))?;
                let mut got = [0; 2048];
                for _ in 0..20 {
                    ensure_eq!(socket.recv(&mut got)?, 1400);
                }
                // And out, at full speed.
                let over = AtomicBool::new(false);
                thread::scope(|scope| -> Res {
                    scope.spawn(|| {
                        while !over.load(Ordering::Acquire) {
                            let _ = socket.send_to(&got[..1400], (address(Role::A), 9));
                        }
                    });
                    thread::sleep(Duration::from_millis(200));
                    let result = match kind {
                        "unbind" => {
                            let (card, driver) = (pci_address()?, driver_dir()?);
                            fs::write(driver.join("unbind"), &card)?;
                            ensure!(name().is_err() && Device::open_first().is_err(), "the device is still there");
                            fs::write(driver.join("bind"), &card)?;
                            wait_for_device(env)
                        }
                        _ => reload(env),
                    };
                    over.store(true, Ordering::Release);
                    result
                })?;
                Env::prepare(&env.args)?;
                up(env)?;
                let socket = datagrams(env, port + 100)?;
                env.tell(&format!("{kind}-back"), "")?;
                // It works again.
                let len = socket.recv(&mut got).map_err(|e| format!("{e}; {:?}", counters()))?;
                ensure_eq!(len, 5);
            }
        }
        let done = format!("{kind}-done");
        if env.role == Role::A {
            // Again and again: what waits for an answer to ARP may be dropped.
            let socket = datagrams(env, port + 100)?;
            let over = AtomicBool::new(false);
            thread::scope(|scope| -> Res {
                scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        let _ = socket.send_to(b"again", (address(Role::B), port + 100));
                        thread::sleep(Duration::from_millis(100));
                    }
                });
                let heard = env.hear(&done);
                over.store(true, Ordering::Release);
                heard.map(drop)
            })?;
        }
        env.meet(&done)?;
        down()?;
    }
    if env.role == Role::B { after_reset(env, 1104) } else { Ok(()) }
}
