// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card with the real firmware, and programs outside of the simulator at the other end of its wire.
//! The image comes from `BERTH_FW_IMAGE`; scapy, for the test that wants it, from the folder `BERTH_SCAPY`.

mod rig;

use berth_abi::card::SLOT_BYTES;
use berth_abi::host::*;
use berth_abi::message::{CmdDone, NetConfig, Typed};
use berth_abi::status::{CMD_OK, FW_RUNNING};
use berth_protocol::wire::records::VERSION;
use rig::{Host, Simulator, bytes_of, event_in, memfd};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Output};

const BUS: u64 = 0x8000_0000;
const MEMORY: u64 = 0x10_000;
const CARD_IP: [u8; 4] = [192, 0, 2, 1];
const CARD_MAC: [u8; 6] = [2, 0xbe, 192, 0, 2, 1];
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const OUR_IP: [u8; 4] = [192, 0, 2, 9];

/// A simulator with card a, whose wire leads to `place` (`DIR` in it stands for its folder).
fn bridged(place: &str) -> Simulator {
    Simulator::start_with(&["a"], |dir| {
        let place = place.replace("DIR", &dir.display().to_string());
        vec!["--bridge".into(), format!("b={place}").into()]
    })
}

/// Starts the firmware of card a and gives it its addresses, as the driver does.
fn boot(sim: &Simulator) -> Host {
    let path = std::env::var("BERTH_FW_IMAGE").expect("BERTH_FW_IMAGE names the firmware image");
    let image = std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {path}: {e}"));
    let mut host = sim.client("a");
    for word in image.chunks(4) {
        let mut w = [0; 4];
        w[..word.len()].copy_from_slice(word);
        host.write(HOST_FW_DATA, u32::from_le_bytes(w));
    }
    host.write(HOST_FW_BOOT, 1);
    while host.read(HOST_STATUS) != FW_RUNNING {}

    let memory = memfd(MEMORY);
    host.0.dma_map(0, BUS, MEMORY, memory.as_raw_fd()).unwrap();
    let name = NetConfig {
        ipv4: u32::from_be_bytes(CARD_IP),
        mac_first: u32::from_be_bytes(CARD_MAC[..4].try_into().unwrap()),
        mac_last: u32::from(CARD_MAC[4]) << 8 | u32::from(CARD_MAC[5]),
        mtu: 1024,
        guid: 2 << 32 | 1,
        // Of all that the card chooses at random.
        key: [0x600d, 0x5eed, 0xf00d, 0xcafe],
    };
    memory.write_all_at(&bytes_of(name.encode()), 0).unwrap();
    host.start_rings(BUS);
    host.write(HOST_EVT_CI, 1 << 31);
    host.write(HOST_CMD_PI, 1);
    // The answer stands in the event ring, maybe behind the firmware's log.
    let done = |i: u64| CmdDone::of(&event_in(&memory, Host::EVENTS + 64 * i)?);
    let CmdDone { status, .. } = loop {
        // Each read of a register clocks the card.
        host.read(HOST_STATUS);
        if let Some(done) = (0..16).find_map(done) {
            break done;
        }
    };
    assert_eq!(status, CMD_OK, "CMD_NET_CONFIG");
    // The card asks whether another has its address: that has left before a program comes that would hear it.
    while bridge(sim)["sent"].as_u64().zip(bridge(sim)["dropped"].as_u64()) == Some((0, 0)) {
        host.read(HOST_STATUS);
    }
    host
}

/// A program at the socket; std knows no sockets of this kind, but all else of them is as with streams.
fn attach(path: &Path) -> UnixStream {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as _, sun_path: [0; 108] };
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as _;
    }
    // SAFETY: a new descriptor, owned alone; the address lives as long as the call.
    unsafe {
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0));
        let len = size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len), 0);
        socket.into()
    }
}

fn arp_request() -> Vec<u8> {
    let mut f = vec![0xff; 6];
    f.extend(OUR_MAC);
    f.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    f.extend(OUR_MAC);
    f.extend(OUR_IP);
    f.extend([0; 6]);
    f.extend(CARD_IP);
    f
}

/// The next frame, which must be the answer to [`arp_request`].
fn arp_answer(read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) {
    let mut frame = [0; 2048];
    let n = read(&mut frame).unwrap();
    let frame = &frame[..n];
    assert_eq!(frame[..14], [&OUR_MAC[..], &CARD_MAC, &[8, 6]].concat());
    assert_eq!(frame[20..42], [&[0, 2][..], &CARD_MAC, &CARD_IP, &OUR_MAC, &OUR_IP].concat());
}

fn bridge(sim: &Simulator) -> Value {
    sim.ask("stats")["bridges"][0].clone()
}

/// Frames that the card has sent.
fn card_frames(sim: &Simulator) -> u64 {
    sim.ask("stats")["cards"][0]["counters"]["C_TX_FRAMES"].as_u64().unwrap()
}

/// Asks until `which` of the bridge is `n`: programs come and go on threads of their own.
fn wait(sim: &Simulator, which: &str, n: u64) {
    while bridge(sim)[which] != n {
        std::thread::yield_now();
    }
}

#[test]
fn a_program_at_the_socket_gets_the_cards_answers() {
    let sim = bridged("unix:DIR/wire");
    let _host = boot(&sim);
    // The question whether somebody has the card's address, when nobody listened.
    wait(&sim, "dropped", 1);
    let mut program = attach(&sim.path("wire"));
    program.write_all(&arp_request()).unwrap();
    arp_answer(|frame| program.read(frame));
    // Another one, that hears the same as the first.
    let mut other = attach(&sim.path("wire"));
    wait(&sim, "programs", 2);
    other.write_all(&arp_request()).unwrap();
    arp_answer(|frame| program.read(frame));
    arp_answer(|frame| other.read(frame));
    let stats = sim.quit();
    let b = &stats["bridges"][0];
    assert_eq!((&b["received"], &b["sent"], &b["dropped"]), (&2.into(), &2.into(), &1.into()), "{b}");
    assert_eq!(stats["cards"][0]["rx_frames"], 2);
}

#[test]
fn a_program_with_a_socket_for_datagrams_may_come_go_and_come_again() {
    let sim = bridged("dgram:DIR/wire,DIR/program");
    let _host = boot(&sim);
    // The question whether somebody has the card's address, when nobody was there.
    wait(&sim, "dropped", 1);
    for round in 1..=2 {
        let program = UnixDatagram::bind(sim.path("program")).unwrap();
        // More than such a socket holds by itself; none is lost while the program does not look.
        for _ in 0..40 {
            let before = card_frames(&sim);
            program.send_to(&arp_request(), sim.path("wire")).unwrap();
            while card_frames(&sim) == before {
                std::thread::yield_now();
            }
        }
        for _ in 0..40 {
            arp_answer(|frame| program.recv(frame));
        }
        wait(&sim, "sent", 40 * round);
        std::fs::remove_file(sim.path("program")).unwrap();
    }
    let b = bridge(&sim);
    assert_eq!((&b["received"], &b["dropped"]), (&80.into(), &1.into()), "{b}");
}

#[test]
fn frames_that_are_too_short_or_too_long_are_counted_and_go_nowhere() {
    let sim = bridged("unix:DIR/wire");
    let _host = boot(&sim);
    let mut program = attach(&sim.path("wire"));
    for length in [0, 1, 13, 9217, 60_000] {
        // An empty message: as large a write as the others.
        // SAFETY: sends from a buffer that lives as long as the call.
        let n = unsafe { libc::send(program.as_raw_fd(), vec![7u8; length].as_ptr().cast(), length, 0) };
        assert_eq!(n, length as isize);
    }
    program.write_all(&arp_request()).unwrap();
    arp_answer(|frame| program.read(frame));
    let b = bridge(&sim);
    assert_eq!((&b["short"], &b["long"], &b["received"]), (&3.into(), &2.into(), &1.into()), "{b}");
    assert_eq!(sim.quit()["cards"][0]["counters"]["C_RX_FRAMES"], 1);
}

#[test]
fn a_program_that_goes_leaves_a_card_that_goes_on() {
    let sim = bridged("unix:DIR/wire");
    let mut host = boot(&sim);
    // The question whether somebody has the card's address.
    wait(&sim, "dropped", 1);
    let mut program = attach(&sim.path("wire"));
    program.write_all(&arp_request()).unwrap();
    drop(program);
    wait(&sim, "programs", 0);
    // Its answer goes nowhere, which is counted; the card notices nothing.
    wait(&sim, "dropped", 2);
    assert_eq!(host.read(HOST_STATUS), FW_RUNNING);
    let mut program = attach(&sim.path("wire"));
    program.write_all(&arp_request()).unwrap();
    arp_answer(|frame| program.read(frame));
    assert_eq!(bridge(&sim)["programs_so_far"], 2);
}

#[test]
fn programs_beyond_the_limit_are_refused() {
    let sim = bridged("unix:DIR/wire");
    let programs: Vec<_> = (0..berth_sim::bridge::PROGRAMS).map(|_| attach(&sim.path("wire"))).collect();
    let mut refused = attach(&sim.path("wire"));
    assert_eq!(refused.read(&mut [0; 64]).unwrap_or(0), 0);
    wait(&sim, "refused", 1);
    assert_eq!(bridge(&sim)["programs"], programs.len());
}

fn berth_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth-sim")).arg("run").args(arguments).output().unwrap()
}

#[test]
fn a_bridge_that_cannot_be_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let card = dir.path().join("a").display().to_string();
    for (bridge, why) in [
        ("b=udp:9", "END=unix:PATH"),
        ("c=unix:/tmp/c", "there is no end c"),
        ("b=unix:/nowhere/b", "/nowhere/b: No such file"),
        ("b=dgram:/nowhere/b,/nowhere/c", "/nowhere/b: No such file"),
        ("b=tap:lo", "interface lo: "),
    ] {
        let output = berth_sim(&["--card", &card, "--bridge", bridge]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Without the device at all, or without the right to make interfaces, it says that.
        assert!(
            !output.status.success() && (said.contains(why) || said.contains("/dev/net/tun: ")),
            "{bridge}: {said}"
        );
    }
}

/// Runs `bridge.py` with scapy, with frames good and bad, and compares with the card's counters.
fn scapy(sim: &Simulator, place: &str) {
    let folder = std::env::var("BERTH_SCAPY").expect("BERTH_SCAPY is the folder with scapy (cargo xtask test sets it)");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bridge.py");
    let status = Command::new("python3")
        .args([script, place, &SLOT_BYTES.to_string(), &VERSION.to_string()])
        .env("PYTHONPATH", folder)
        .status()
        .unwrap();
    assert!(status.success(), "bridge.py");
    let counters = &sim.ask("stats")["cards"][0]["counters"];
    for (name, n) in
        [("F_UNKNOWN_QP", 3), ("F_NOT_FOR_US", 1), ("C_RX_BAD_ICRC", 2), ("C_RX_TRUNCATED", 1), ("C_RX_OVERSIZED", 1)]
    {
        assert_eq!(counters[name], n, "{name} in {counters}");
    }
}

#[test]
fn scapy_at_the_socket_gets_answers_and_its_bad_frames_are_counted() {
    if std::env::var_os("BERTH_SCAPY").is_none() {
        println!("skipped: scapy's tests, no BERTH_SCAPY");
        return;
    }
    let sim = bridged("unix:DIR/wire");
    let _host = boot(&sim);
    scapy(&sim, &format!("unix:{}", sim.path("wire").display()));
}

#[test]
fn scapy_at_the_tap_gets_answers_and_its_bad_frames_are_counted() {
    if std::env::var_os("BERTH_SCAPY").is_none() {
        println!("skipped: scapy's tests, no BERTH_SCAPY");
        return;
    }
    // Its name is this process's.
    let name = format!("berth{}", std::process::id());
    let try_it = berth_sim(&["--card", "/nowhere/a", "--bridge", &format!("b=tap:{name}")]);
    let said = String::from_utf8_lossy(&try_it.stderr).into_owned();
    if !said.contains("/nowhere/a") {
        println!("skipped: scapy_at_the_tap_gets_answers_and_its_bad_frames_are_counted: {}", said.trim());
        return;
    }
    let sim = bridged(&format!("tap:{name}"));
    let _host = boot(&sim);
    scapy(&sim, &format!("tap:{name}"));
}
