// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command line of the simulator.

use berth_abi::card::CLOCK_HZ;
use berth_sim::bridge::{Bridge, Spec};
use berth_sim::capture::Capture;
use berth_sim::card::{SimCard, Worker};
use berth_sim::control::{self, Simulator, statistics};
use berth_sim::device::{self, Slot};
use berth_sim::link::{Link, LinkConfig};
use berth_sim::record::Recorder;
use berth_sim::rtl;
use berth_sim::time::Pace;
use berth_sim::wire::Faults;
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::error::Error;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use tracing::{info, warn};

/// Serves Verilated Berth cards to QEMU and joins them by a simulated wire.
///
/// Every card has a vfio-user socket, to which a stock QEMU (11.1 or newer) attaches with
///
///   -object memory-backend-memfd,id=m,size=512M,share=on -numa node,memdev=m
///   -device '{"driver":"vfio-user-pci","socket":{"path":"a.sock","type":"unix"},"x-msg-timeout":60000,"rombar":0}'
///
/// Cards are named a, b, … in the order of --card; a and b share a wire, c and d another. With --bridge b=unix:PATH the
/// wire of card a leads out of the simulator, and the next card is c.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve cards until `quit` on the control socket, SIGINT or SIGTERM.
    ///
    /// Prints {"ready":true} on standard output as soon as all sockets listen.
    Run(Box<Run>),
    /// Send one request to a running simulator and print its answer.
    ///
    /// Requests: stats | hold [CARD] [after N] | release [CARD] [N] | wait CARD held N [timeout MS] |
    /// unplug CARD | replug CARD | faults [loss=P] [dup=P] [reorder=P] [corrupt=P] [control=P] [seed=N] |
    /// stall CARD | unstall CARD | trace CARD FILE|off | quit
    Ctl {
        /// Control socket of the simulator.
        #[arg(long)]
        socket: PathBuf,
        /// The request, for example: hold a after 3
        #[arg(required = true, trailing_var_arg = true)]
        request: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Socket of a card; once for each card.
    #[arg(long = "card", value_name = "SOCKET", required = true)]
    cards: Vec<PathBuf>,
    /// Lead an end of a wire out of the simulator: to a UNIX socket (SEQPACKET, one Ethernet frame a message) on which it
    /// listens, END=unix:PATH; to a TAP interface, END=tap:NAME; or to a program's UNIX socket for datagrams, as of QEMU's
    /// -netdev dgram, END=dgram:OWN,PEER. The other end is a card. May be repeated.
    #[arg(long = "bridge", value_name = "END=PLACE")]
    bridges: Vec<Spec>,
    /// Control socket.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// One-way latency of the wire in card cycles; also how far two cards may run apart.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    latency: u64,
    /// Probability that the wire loses a frame.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Probability that the wire delivers a frame twice.
    #[arg(long, default_value_t = 0.0)]
    dup: f64,
    /// Probability that later frames overtake a frame.
    #[arg(long, default_value_t = 0.0)]
    reorder: f64,
    /// Probability that the wire flips a bit of a frame.
    #[arg(long, default_value_t = 0.0)]
    corrupt: f64,
    /// Seed of the wire's faults and of the order of DMA completions; the same seed gives the same faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Card cycles that pass per millisecond while no card has work but a host may have; 0: skip at once.
    ///
    /// The default is a tenth of the card's clock: an emulated guest is about that much slower than a real one.
    #[arg(long, value_name = "CYCLES", default_value_t = u64::from(CLOCK_HZ) / 10_000)]
    skip_rate: u64,
    /// Cycles from a DMA read request to its first completion.
    #[arg(long, value_name = "CYCLES", default_value_t = 150)]
    read_latency: u64,
    /// Of so many DMA writes one pauses for a millisecond after its first 8 bytes, so that a host may see it in part; 0:
    /// none. The bus promises no more than that bytes are seen in rising order.
    #[arg(long, value_name = "N", default_value_t = 0)]
    split_writes: u64,
    /// Write all frames to this pcapng file, as they were sent.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Write samples of the cards' counters to this file, one line of JSON each.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Card cycles between two samples.
    #[arg(long, value_name = "CYCLES", default_value_t = 20_000)]
    record_every: u64,
    /// Write statistics to this file at the end.
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Write a waveform of a card, for example a=a.fst. Slow, and large.
    #[arg(long, value_name = "CARD=FILE")]
    trace: Vec<String>,
}

fn card_name(index: usize) -> String {
    // a … z, then c26, c27, …
    u8::try_from(index)
        .ok()
        .filter(|&i| i < 26)
        .map_or_else(|| format!("c{index}"), |i| char::from(b'a' + i).to_string())
}

/// What is at an end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Card(usize),
    Bridge(usize),
}

/// Puts bridges where they are to be and cards in the places between, in their order.
fn layout(cards: usize, bridges: &[Spec]) -> Result<Vec<(String, At)>, String> {
    let mut ends: Vec<(String, At)> = Vec::new();
    for card in 0..cards {
        while let Some(bridge) = bridges.iter().position(|b| b.end == card_name(ends.len())) {
            ends.push((card_name(ends.len()), At::Bridge(bridge)));
        }
        ends.push((card_name(ends.len()), At::Card(card)));
    }
    if ends.len() % 2 == 1
        && let Some(bridge) = bridges.iter().position(|b| b.end == card_name(ends.len()))
    {
        ends.push((card_name(ends.len()), At::Bridge(bridge)));
    }
    for (i, bridge) in bridges.iter().enumerate() {
        if bridges[..i].iter().any(|b| b.end == bridge.end) {
            return Err(format!("--bridge: end {} leads to two places", bridge.end));
        }
        let Some(at) = ends.iter().position(|(_, at)| *at == At::Bridge(i)) else {
            return Err(format!("--bridge: there is no end {}; wires join a and b, c and d, …", bridge.end));
        };
        if !matches!(ends.get(at ^ 1), Some((_, At::Card(_)))) {
            return Err(format!("--bridge: no card at the other end of {}'s wire", bridge.end));
        }
    }
    Ok(ends)
}

fn run(args: &Run) -> Result<(), Box<dyn Error>> {
    let faults = Faults {
        loss: args.loss,
        dup: args.dup,
        reorder: args.reorder,
        corrupt: args.corrupt,
        seed: args.seed,
        ..Faults::default()
    };
    if !faults.valid() {
        return Err("--loss, --dup, --reorder and --corrupt are probabilities: between 0 and 1".into());
    }
    let ends = layout(args.cards.len(), &args.bridges)?;
    let names: Vec<String> = ends.iter().map(|(name, _)| name.clone()).collect();
    let mut traces = Vec::new();
    for t in &args.trace {
        let (name, file) = t.split_once('=').ok_or("--trace wants CARD=FILE, for example a=a.fst")?;
        let card = |(n, at): &(String, At)| n == name && matches!(at, At::Card(_));
        let index = ends.iter().position(card).ok_or_else(|| format!("--trace: no card {name}"))?;
        traces.push((index, PathBuf::from(file)));
    }

    let named = |option: &'static str, path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("{option} {path}: {e}")
    };
    let capture = args.capture.as_deref().map(|p| Capture::create(p, &names).map_err(named("--capture", p)));
    let capture = capture.transpose()?.map(Arc::new);
    let every = args.record_every;
    let recorder = args.record.as_deref().map(|p| Recorder::create(p, every).map_err(named("--record", p)));
    let recorder = recorder.transpose()?.map(Arc::new);
    let pace = Pace { cycles_per_ms: args.skip_rate };
    let config = LinkConfig { latency: args.latency, quantum: 64, pace, faults };
    let links: Vec<Arc<Link>> =
        (0..names.len().div_ceil(2)).map(|i| Arc::new(Link::new(config, 2 * i as u32))).collect();

    let (quit, ended) = channel();
    let mut slots = Vec::new();
    let mut workers = Vec::new();
    let mut bridges = Vec::new();
    for (i, (name, at)) in ends.iter().enumerate() {
        let link = links[i / 2].clone();
        if let At::Bridge(bridge) = at {
            let bridge = Bridge::open(&args.bridges[*bridge], link, i % 2).map_err(|e| format!("--bridge {e}"))?;
            bridges.push((i as u32, Arc::new(bridge)));
            continue;
        }
        let slot = Arc::new(Slot::new(name, link.clone(), i % 2));
        slot.dma.lock().unwrap_or_else(PoisonError::into_inner).set_split_writes(args.split_writes);
        let mut card = rtl::card(&slot, args.read_latency, args.seed.wrapping_add(i as u64));
        if let Some((_, file)) = traces.iter().find(|(index, _)| *index == i) {
            card.trace(Some(file))?;
        }
        let mut worker = Worker::new(name, card, link, i % 2, slot.dma.clone());
        if let Some(capture) = &capture {
            worker = worker.with_capture(capture.clone(), i as u32);
        }
        if let Some(recorder) = &recorder {
            worker = worker.with_recorder(recorder.clone());
        }
        workers.push(worker);
        slots.push(slot);
    }
    let servers = args
        .cards
        .iter()
        .map(|path| device::listen(path).map_err(|e| format!("{}: {e}", path.display())))
        .collect::<Result<Vec<_>, _>>()?;
    let control = match &args.control {
        Some(path) => {
            if path.exists() {
                // Left over by a simulator that was killed.
                let _ = std::fs::remove_file(path);
            }
            Some(UnixListener::bind(path).map_err(|e| format!("{}: {e}", path.display()))?)
        }
        None => None,
    };

    let threads: Vec<_> = workers
        .into_iter()
        .zip(&slots)
        .map(|(worker, slot)| {
            let quit = quit.clone();
            std::thread::Builder::new().name(format!("card {}", slot.name)).spawn(move || {
                let report = worker.run();
                // A card that ends by itself ends the simulator.
                let _ = quit.send(());
                report
            })
        })
        .collect::<Result<_, _>>()?;
    for (interface, bridge) in &bridges {
        let (wire, outside) = (bridge.clone(), bridge.clone());
        let (capture, interface) = (capture.clone(), *interface);
        std::thread::Builder::new()
            .name(format!("bridge {}", bridge.name))
            .spawn(move || wire.run(capture.as_deref().map(|c| (c, interface))))?;
        std::thread::Builder::new().name(format!("outside {}", bridge.name)).spawn(move || outside.listen())?;
    }
    let bridges: Vec<Arc<Bridge>> = bridges.into_iter().map(|(_, bridge)| bridge).collect();
    for (server, slot) in servers.into_iter().zip(slots.clone()) {
        std::thread::Builder::new()
            .name(format!("socket {}", slot.name))
            .spawn(move || device::serve(&server, &slot))?;
    }
    if let Some(listener) = control {
        let simulator = Arc::new(Simulator { slots: slots.clone(), bridges: bridges.clone(), quit: quit.clone() });
        std::thread::Builder::new().name("control".into()).spawn(move || control::serve(&listener, &simulator))?;
    }
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            let _ = quit.send(());
        }
    })?;

    println!("{}", json!({ "ready": true }));
    info!(cards = slots.len(), latency = args.latency, seed = args.seed, "serving");
    ended.recv()?;

    links.iter().for_each(|l| l.stop());
    let mut reports = Vec::new();
    for (thread, slot) in threads.into_iter().zip(&slots) {
        let report = thread.join().unwrap_or_else(|_| {
            warn!(card = slot.name, "the card's thread has panicked");
            Value::Null
        });
        reports.push(slot.complete(report));
    }
    if let Some(capture) = &capture {
        capture.finish();
    }
    if let Some(recorder) = &recorder {
        recorder.finish();
    }
    if let Some(path) = &args.stats {
        std::fs::write(path, serde_json::to_string_pretty(&statistics(&slots, &bridges, reports))?)
            .map_err(named("--stats", path))?;
    }
    // The socket threads are blocked for ever; they end with the process.
    for path in args.cards.iter().chain(&args.control) {
        let _ = std::fs::remove_file(path);
    }
    bridges.iter().for_each(|b| b.clean());
    Ok(())
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Arguments::parse().command {
        Command::Run(args) => run(&args),
        Command::Ctl { socket, request } => match control::ask(&socket, &request.join(" ")) {
            Ok(answer) => {
                println!("{answer}");
                return if answer["ok"] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            Err(e) => Err(format!("{}: {e}; is the simulator running?", socket.display()).into()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("berth-sim: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(cards: usize, bridges: &[&str]) -> Result<String, String> {
        let bridges: Vec<Spec> = bridges.iter().map(|b| b.parse().unwrap()).collect();
        let ends = layout(cards, &bridges)?;
        Ok(ends
            .iter()
            .map(|(name, at)| if matches!(at, At::Card(_)) { name.to_uppercase() } else { name.clone() })
            .collect())
    }

    #[test]
    fn bridges_take_their_ends_and_cards_the_others() {
        assert_eq!(laid_out(2, &[]), Ok("AB".into()));
        assert_eq!(laid_out(1, &["b=tap:t"]), Ok("Ab".into()));
        assert_eq!(laid_out(1, &["a=tap:t"]), Ok("aB".into()));
        assert_eq!(laid_out(2, &["b=tap:t", "d=tap:u"]), Ok("AbCd".into()));
        for (cards, bridges) in [
            (2, &["c=tap:t"][..]),
            (1, &["d=tap:t"]),
            (1, &["z=tap:t"]),
            (1, &["a=tap:t", "b=tap:u"]),
            (1, &["b=tap:t", "b=tap:u"]),
        ] {
            assert!(laid_out(cards, bridges).is_err(), "{cards} {bridges:?}");
        }
    }
}
