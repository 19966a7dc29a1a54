// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command line tool of the Berth RDMA card.

/// A line on standard error, which may be a pipe without a reader.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod bench;
mod copy;
mod device;
mod ends;
mod failure;
mod file;
mod log;
mod offer;
mod record;
mod resume;
mod serve;
mod signals;
mod size;
mod stat;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use libberth::Device;

use crate::failure::Failure;

/// Command line tool of the Berth RDMA card.
///
/// A first transfer, with 192.0.2.1 and 192.0.2.2 as the names of the two hosts:
///
///   host1# berth up --ip 192.0.2.1 --mac 02:00:00:00:00:01
///   host2# berth up --ip 192.0.2.2 --mac 02:00:00:00:00:02
///   host2$ berth recv --listen 7 --out copy
///   host1$ berth send --to 192.0.2.2:7 --file original
///
/// Exit codes: 0 done; 1 an error with a file or another error; 2 wrong usage; 3 the received file's checksum differs;
/// 4 no connection; 5 no card, card lost, or its firmware does not work; 6 not permitted; 7 the other end of the
/// transfer has failed and has said why; 128 + n ended by signal n.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment, max_term_width = 120)]
struct Cli {
    /// Device node [default: the /dev/berthN with the lowest number that this user may open].
    #[arg(long, short, global = true, env = "BERTH_DEVICE")]
    device: Option<PathBuf>,
    /// Print JSON for scripts: one object at the end, on standard output.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the card: versions, state, name in the network, limits.
    Info,
    /// Give the card its name in the network (IPv4 and MAC address); needs CAP_NET_ADMIN.
    #[command(visible_alias = "net")]
    Up(device::Up),
    /// Change the card's limits on pinned memory; needs CAP_SYS_ADMIN.
    Limits(device::SetLimits),
    /// Receive one file.
    Recv(transfer::Recv),
    /// Send one file.
    Send(transfer::Send),
    /// Serve one file to `berth get` and `berth put`.
    Serve(serve::Serve),
    /// Get a served file, or a range of it, by RDMA READ.
    Get(copy::Get),
    /// Put a file, or a range of it, into a served one by RDMA WRITE.
    Put(copy::Put),
    /// Measure messages, RDMA WRITEs and READs between two cards.
    Bench(bench::Bench),
    /// Show all counters of the card and its driver, of all processes together: once, repeatedly, or as samples in a
    /// file.
    Stat(stat::Stat),
    /// Show the firmware's log, decoded against its exact ELF file; needs CAP_SYS_ADMIN.
    Log(log::Log),
    /// Reset the card and load its firmware anew; needs CAP_SYS_ADMIN. All programs lose their connections.
    Reset,
}

/// Ends quietly when the reader of our output has gone, as in `berth stat | head`.
fn default_sigpipe() {
    // SAFETY: restores a default disposition before there is any other thread.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn main() -> ExitCode {
    default_sigpipe();
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("BERTH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = run(&cli);
    signals::unwatch();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if cli.json {
                println!("{}", serde_json::json!({ "error": failure.to_string(), "exit_code": failure.code() }));
            }
            note!("berth: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let open = || match &cli.device {
        Some(path) => Device::open(path).map_err(Failure::from),
        None => Device::open_first().map_err(Failure::from),
    };
    match &cli.command {
        Command::Info => device::info(&open()?, cli.json),
        Command::Up(args) => args.run(&open()?, cli.json),
        Command::Limits(args) => args.run(&open()?, cli.json),
        // Their files come first.
        Command::Recv(args) => args.run(open, cli.json),
        Command::Send(args) => args.run(open, cli.json),
        Command::Serve(args) => args.run(open, cli.json),
        Command::Get(args) => args.run(open, cli.json),
        Command::Put(args) => args.run(open, cli.json),
        Command::Bench(args) => args.run(open, cli.json),
        Command::Stat(args) => args.run(&open()?, cli.json),
        // Decoding a file needs no card.
        Command::Log(args) => args.run(open),
        Command::Reset => device::reset(&open()?, cli.json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_the_demo_are_understood() {
        let cli = Cli::try_parse_from([
            "berth",
            "recv",
            "--listen",
            "7",
            "--out",
            "copy",
            "--recv-sizes",
            "3,7,22,44,64K",
            "--trigger",
            "between:2",
            "--budget",
            "64K",
            "--json",
        ])
        .unwrap();
        let Command::Recv(recv) = cli.command else { panic!() };
        assert_eq!(recv.recv_sizes, [3, 7, 22, 44, 65536]);
        assert!(cli.json);
        for good in [
            vec!["berth", "recv", "--listen", "7", "--out", "x", "--max-rate", "10M,64K", "--recv-sizes", "4K,8K"],
            vec!["berth", "bench", "--listen", "7", "--once"],
            vec!["berth", "bench", "192.0.2.2:7", "--op", "send,read", "--size", "8,4K", "--depth", "3"],
            vec!["berth", "serve", "x", "--listen", "7", "--write", "--size", "1M", "--once"],
            vec!["berth", "get", "192.0.2.2:7", "x", "--from", "4K", "--len", "1M", "--resume"],
            vec!["berth", "put", "x", "192.0.2.2:7", "--from", "4K", "--resume", "--message", "1"],
        ] {
            assert!(Cli::try_parse_from(&good).is_ok(), "{good:?}");
        }
        for bad in [
            vec!["berth", "recv", "--listen", "7", "--out", "x", "--max-rate", "0"],
            vec!["berth", "bench"],
            vec!["berth", "bench", "192.0.2.2:7", "--listen", "7"],
            vec!["berth", "bench", "192.0.2.2:7", "--size", "2M"],
            vec!["berth", "bench", "192.0.2.2:7", "--once"],
            vec!["berth", "bench", "192.0.2.2:7", "--op", "bind"],
            vec!["berth", "bench", "192.0.2.2:7", "--count", "0"],
            vec!["berth", "bench", "192.0.2.2:7", "--depth", "65"],
            vec!["berth", "bench", "--listen", "7", "--size", "8"],
            vec!["berth", "recv", "--listen", "0", "--out", "x"],
            vec!["berth", "send", "--to", "192.0.2.2", "--file", "x"],
            vec!["berth", "send", "--to", "192.0.2.2:7", "--file", "x", "--block", "5000"],
            vec!["berth", "send", "--to", "192.0.2.2:7", "--file", "x", "--memory", "swap"],
            vec!["berth", "serve", "x", "--listen", "7", "--size", "1M"],
            vec!["berth", "get", "x", "192.0.2.2:7"],
            vec!["berth", "get", "192.0.2.2:7", "x", "--depth", "65"],
            vec!["berth", "put", "192.0.2.2:7", "x"],
            vec!["berth", "put", "x", "192.0.2.2:7", "--message", "64M"],
        ] {
            assert!(Cli::try_parse_from(&bad).is_err(), "{bad:?}");
        }
    }
}
