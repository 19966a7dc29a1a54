// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask demo`: one file, two hosts, two cards, one wire, and a report.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::context::{Context as Places, sha256_file};
use crate::guest::{self, Role};
use crate::kernel::Flavour;
use crate::needs::Need;
use crate::paths;
use crate::progress::{self, Progress, clock};
use crate::report::{self, Cards, Figures, Handled, HandledBy, Peak, Samples, Wire};
use crate::steps::{Builder, Parts};
use crate::wire;

/// How much of the kernel image is sent when no file is named.
const DEFAULT_BYTES: u64 = 64 << 20;
/// A guest keeps the file in memory, so it cannot be longer than this.
const LARGEST_FILE: u64 = 2 << 30;
/// Receive buffers that host b keeps posted: more than twice as many as a credit list waits for while the sender has
/// others (`FAST_FEW`), so that lists carry many.
const RECV_DEPTH: u32 = 64;
/// Their sizes when none are named: several receives fit into the memory that the card asks for ahead, so that a list has
/// several, and they differ, because sizes are what lists carry.
const RECV_SIZES: [u64; 4] = [4096, 16384, 8192, 32768];
/// Longest receive buffer: guests have memory for `RECV_DEPTH` of them.
const LARGEST_RECV: u64 = 4 << 20;
/// Bytes of a page, and of all pages that a card's table holds.
const PAGE: u64 = 4096;
const LARGEST_BUDGET: u64 = berth_abi::card::XLT_ENTRIES as u64 * PAGE;
/// Wall time per frame that was measured on 2 cores without KVM, and what a run takes besides; for estimates only.
const SECONDS_PER_FRAME: f64 = 0.002;
const SECONDS_PER_MIB: f64 = 0.8;
const SECONDS_BESIDES: f64 = 10.0;
/// Estimates above this are printed (s).
const WORTH_SAYING: f64 = 40.0;
/// How much slower the simulation is while it writes waveforms, and how much it writes.
const TRACE_SLOWDOWN: f64 = 4.0;

/// Options of the demo.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// What to send [default: 64 MiB: the image of the guests' kernel, again and again].
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Sizes of the receive buffers that are posted, used in turn, e.g. 3,7,22,44,65536. Each becomes one credit
    /// [default: 4096,16384,8192,32768].
    #[arg(long, value_delimiter = ',', value_name = "BYTES,…")]
    pub recv_sizes: Vec<u64>,
    /// Virtual-context block in bytes: how much is pinned at a time for sending (a multiple of 4096, at most 1 MiB).
    #[arg(long, value_name = "BYTES")]
    pub block: Option<u64>,
    /// Pinned-memory budget of each host in bytes.
    #[arg(long, value_name = "BYTES")]
    pub budget: Option<u64>,
    /// Probability that the wire loses a frame.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub loss: f64,
    /// Probability that the wire delivers a frame twice.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub dup: f64,
    /// Probability that later frames overtake a frame.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub reorder: f64,
    /// Probability that the wire flips a bit of a frame.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub corrupt: f64,
    /// Seed of everything random; the same seed gives the same faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write all figures of the report to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder for the report, the capture and the logs [default: demo-report in the checkout].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Leave the guests up with a shell afterwards (`cargo xtask console a` in another terminal).
    #[arg(long)]
    pub keep: bool,
    /// Write a waveform (FST) of each card.
    #[arg(long)]
    pub trace: bool,
    /// Use driver, firmware, simulator and programs as they were built last.
    #[arg(long)]
    pub no_build: bool,
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(p) if (0.0..1.0).contains(&p) => Ok(p),
        _ => Err("a probability is a number from 0 to below 1".into()),
    }
}

/// Builds what is missing, runs the demo, and prints and writes the report. Returns whether all that must hold did.
///
/// # Errors
/// When something could not be built or started, or a guest failed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    // Before anything is fetched or built.
    check(arguments)?;
    prepare_output(arguments, &Places::new()?.repo)?;
    let builder = Builder::new(&[Need::Kernel(Flavour::Stock), Need::GuestParts])?;
    let mut parts =
        if arguments.no_build { builder.parts_as_built(Flavour::Stock)? } else { builder.parts(Flavour::Stock)? };
    if arguments.trace {
        parts.simulator = Some(builder.simulator(true)?);
    }
    let figures = transfer(&builder, &parts, arguments)?;
    print!("{}", report::terminal(&figures));
    Ok(figures.ok())
}

/// Runs the transfer and writes the report's files.
///
/// # Errors
/// When a guest does not come up, a program in it fails, or the kernel reports something.
pub fn transfer(builder: &Builder, parts: &Parts, arguments: &Arguments) -> Result<Figures> {
    check(arguments)?;
    let out = prepare_output(arguments, &builder.context.repo)?;
    let mut run = guest::Run::new()?;
    let payload = run.share.join("payload");
    let name = match &arguments.file {
        Some(file) => {
            fs::copy(file, &payload).with_context(|| format!("reading {}", file.display()))?;
            file.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        None => {
            let image = &parts.kernel.image;
            let mut copy = fs::File::create(&payload)?;
            let mut left = DEFAULT_BYTES;
            // The kernel is shorter, so it is sent more than once.
            while left > 0 {
                let file = fs::File::open(image).with_context(|| format!("opening {}", image.display()))?;
                let copied = std::io::copy(&mut file.take(left), &mut copy)?;
                if copied == 0 {
                    bail!("{} is empty", image.display());
                }
                left -= copied;
            }
            format!("vmlinuz ({})", report::size(DEFAULT_BYTES))
        }
    };
    let bytes = fs::metadata(&payload)?.len();
    // It may have grown.
    check_length(bytes)?;
    let sent_sha256 = sha256_file(&payload)?;

    let mut options = guest::Options::new(parts.kernel.flavour);
    options.memory += u32::try_from(bytes.div_ceil(1 << 20))?;
    options.keep = arguments.keep;
    options.simulator = simulator_arguments(arguments, &run.folder);
    let seconds = estimate(arguments, bytes);
    options.limit = Duration::from_secs_f64(300.0 + 10.0 * seconds);
    run.script(Role::A, &script(arguments, Role::A))?;
    run.script(Role::B, &script(arguments, Role::B))?;

    let mut progress = Progress::start(&format!("{} from host a to host b", report::size(bytes)), None);
    if seconds > WORTH_SAYING || arguments.trace {
        let clock = clock(Duration::from_secs_f64(seconds));
        let more = if arguments.trace { "; waveforms of 100 MB and more" } else { "" };
        progress::line(&format!("  estimate: about {clock} for these options on 2 cores{more}"));
    }
    let end = guest::run(builder, parts, &options, &run, &mut progress);
    let faults = match &end {
        Ok(end) => end.faults(),
        Err(_) => Vec::new(),
    };
    progress.finish(end.is_ok() && faults.is_empty());
    // Whatever happened, logs and the capture are useful.
    for entry in fs::read_dir(&run.folder)?.flatten() {
        let keep = ["log", "pcapng", "fst", "jsonl"].iter().any(|e| entry.path().extension().is_some_and(|x| x == *e));
        if keep {
            fs::copy(entry.path(), out.join(entry.file_name()))?;
        }
    }
    let end = end.with_context(|| format!("the demo failed; its logs are in {}", out.display()))?;
    if !faults.is_empty() {
        run.preserve();
        let mut text = faults.join("\n");
        for (role, guest) in &end.guests {
            let tail = guest.output.len().saturating_sub(15);
            text += &format!("\n  last lines of guest {role}:\n    {}", guest.output[tail..].join("\n    "));
        }
        bail!("{text}\nthe demo failed; logs: {}, share: {}", out.display(), run.share.display());
    }

    decode_firmware_logs(builder, parts, &run, &out)?;
    let mut figures = figures(&run, &end, bytes)?;
    figures.file = name;
    figures.options = options_text(arguments);
    figures.sent_sha256 = sent_sha256;
    figures.received_sha256 = sha256_file(&run.share.join("received"))?;
    figures.sha256_match = figures.sent_sha256 == figures.received_sha256;
    figures.seed = arguments.seed;
    figures.wire_check = wire::check(builder, &out.join("wire.pcapng"))?;
    let samples = Samples::read(&run.folder.join("samples.jsonl"), &run.share)?;
    (figures.card_cycles, figures.host_wait_cycles) = samples.cycles();
    figures.bytes_per_cycle = bytes as f64 / figures.card_cycles.max(1) as f64;
    figures.cycles_per_byte = figures.card_cycles as f64 / bytes.max(1) as f64;
    if arguments.trace {
        figures.waveforms = Role::ALL.iter().map(|r| out.join(format!("{r}.fst")).display().to_string()).collect();
    }
    figures.capture = out.join("wire.pcapng").display().to_string();
    figures.html = out.join("index.html").display().to_string();
    fs::write(&figures.html, report::html(&figures, &samples))?;
    let json = serde_json::to_string_pretty(&figures)? + "\n";
    fs::write(out.join("report.json"), &json)?;
    if let Some(file) = &arguments.json {
        fs::write(file, &json).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(figures)
}

fn check_length(bytes: u64) -> Result<()> {
    if bytes > LARGEST_FILE {
        bail!("the file has {bytes} bytes; the guests keep it in memory, so at most {LARGEST_FILE} are possible");
    }
    Ok(())
}

/// Makes the report's folder, and sees that all of its files can be written.
fn prepare_output(arguments: &Arguments, repo: &Path) -> Result<PathBuf> {
    if let Some(file) = &arguments.json {
        paths::output_file("--json", file)?;
    }
    paths::output_folder(&arguments.out.clone().unwrap_or_else(|| repo.join("demo-report")))
}

/// Refuses what the guests and their programs would refuse, before anything is started.
fn check(arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.file {
        check_length(paths::readable(file)?)?;
    }
    if let Some(block) = arguments.block
        && (block == 0 || block > 1 << 20 || !block.is_multiple_of(4096))
    {
        bail!("--block: a block is a multiple of 4096 bytes, at most 1 MiB");
    }
    if let Some(budget) = arguments.budget
        && !(PAGE..=LARGEST_BUDGET).contains(&budget)
    {
        bail!(
            "--budget: a budget is from one page ({PAGE} bytes) to {LARGEST_BUDGET} bytes, which the card's table holds"
        );
    }
    let largest = recv_sizes(arguments).iter().copied().max().unwrap_or(0);
    if largest == 0 {
        bail!("--recv-sizes: at least one buffer must be longer than 0 bytes");
    }
    if largest > LARGEST_RECV {
        bail!(
            "--recv-sizes: a buffer has at most {LARGEST_RECV} bytes, because a guest's memory holds {RECV_DEPTH} of them"
        );
    }
    if let Some(budget) = arguments.budget.filter(|budget| *budget < largest) {
        bail!("--budget: {budget} bytes are less than a receive buffer, which is pinned as a whole, has ({largest})");
    }
    Ok(())
}

/// The sizes of the receive buffers; some are longer than 0 bytes ([`check`]).
fn recv_sizes(arguments: &Arguments) -> &[u64] {
    if arguments.recv_sizes.is_empty() { &RECV_SIZES } else { &arguments.recv_sizes }
}

/// Wall time in seconds that the transfer should take on 2 cores.
fn estimate(arguments: &Arguments, bytes: u64) -> f64 {
    let sizes: Vec<u64> = recv_sizes(arguments).iter().copied().filter(|s| *s > 0).collect();
    let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
    // A buffer of b bytes takes ceil(b / 4096) packets; most of the small ones are lists and answers of their own.
    let packets = sizes.iter().map(|s| s.div_ceil(4096) as f64).sum::<f64>() / sizes.len() as f64;
    let frames = bytes as f64 / mean * packets;
    let faults = 1.0 + 20.0 * (arguments.loss + arguments.corrupt + arguments.reorder) + arguments.dup;
    let slower = if arguments.trace { TRACE_SLOWDOWN } else { 1.0 };
    SECONDS_BESIDES + (frames * SECONDS_PER_FRAME + bytes as f64 / 1_048_576.0 * SECONDS_PER_MIB) * faults * slower
}

fn simulator_arguments(arguments: &Arguments, folder: &Path) -> Vec<String> {
    let mut list = Vec::new();
    for (name, value) in [
        ("loss", arguments.loss),
        ("dup", arguments.dup),
        ("reorder", arguments.reorder),
        ("corrupt", arguments.corrupt),
    ] {
        list.push(format!("--{name}={value}"));
    }
    list.push(format!("--seed={}", arguments.seed));
    list.push("--record-every=5000".to_owned());
    for (name, file) in [("capture", "wire.pcapng"), ("record", "samples.jsonl"), ("stats", "stats.json")] {
        list.push(format!("--{name}={}", folder.join(file).display()));
    }
    if arguments.trace {
        list.extend(Role::ALL.iter().map(|r| format!("--trace={r}={}", folder.join(format!("{r}.fst")).display())));
    }
    list
}

/// The user's options, for the report.
fn options_text(arguments: &Arguments) -> String {
    let mut list = Vec::new();
    if !arguments.recv_sizes.is_empty() {
        let sizes: Vec<String> = arguments.recv_sizes.iter().map(u64::to_string).collect();
        list.push(format!("--recv-sizes {}", sizes.join(",")));
    }
    for (name, value) in [("block", arguments.block), ("budget", arguments.budget)] {
        list.extend(value.map(|v| format!("--{name} {v}")));
    }
    for (name, value) in [
        ("loss", arguments.loss),
        ("dup", arguments.dup),
        ("reorder", arguments.reorder),
        ("corrupt", arguments.corrupt),
    ] {
        list.extend((value > 0.0).then(|| format!("--{name} {value}")));
    }
    list.push(format!("--seed {}", arguments.seed));
    list.join(" ")
}

/// What a guest does. Host a sends and host b receives; each leaves its figures in the share, and neither powers off
/// before the other has its own.
fn script(arguments: &Arguments, role: Role) -> String {
    let (own, number, other) = match role {
        Role::A => ("192.0.2.1", "01", "b"),
        Role::B => ("192.0.2.2", "02", "a"),
    };
    let mut common = String::new();
    if let Some(block) = arguments.block {
        common += &format!(" --block {block}");
    }
    if let Some(budget) = arguments.budget {
        common += &format!(" --budget {budget}");
    }
    // No linger time, so that the report shows only pages in use as pinned.
    let budget = arguments.budget.map(|b| format!(" --budget {b}")).unwrap_or_default();
    let limits = format!("berth limits --linger-ms 0{budget} >/dev/null || exit 11\n");
    let transfer = match role {
        Role::A => format!(
            "cp /mnt/share/payload /tmp/payload || exit 12\n\
             berth --json send --to 192.0.2.2:7 --file /tmp/payload --wait 300{common} > /mnt/share/transfer-a.json || exit 13\n"
        ),
        Role::B => {
            let sizes: Vec<String> = recv_sizes(arguments).iter().map(u64::to_string).collect();
            let sizes = sizes.join(",");
            format!(
                "berth --json recv --listen 7 --out /mnt/share/received --wait 300 --depth {RECV_DEPTH} --recv-sizes {sizes}{common} > /mnt/share/transfer-b.json || exit 13\n"
            )
        }
    };
    format!(
        "berth up --ip {own} --mac 02:00:00:00:00:{number} --mtu 4096 >/dev/null || exit 10\n\
         {limits}\
         berth stat --record /mnt/share/pinned-{role}.jsonl --interval 50 &\n\
         recorder=$!\n\
         {transfer}\
         kill $recorder\n\
         wait $recorder 2>/dev/null\n\
         berth --json stat --all > /mnt/share/stat-{role}.json || exit 14\n\
         berth log --raw /mnt/share/firmware-{role}.bin || exit 15\n\
         touch /mnt/share/done-{role}\n\
         until [ -e /mnt/share/done-{other} ] || [ -e /mnt/share/{other}.exit ]; do sleep 0.1; done\n"
    )
}

/// Turns the bytes that the cards logged into text, with the exact ELF file that they ran.
fn decode_firmware_logs(builder: &Builder, parts: &Parts, run: &guest::Run, out: &Path) -> Result<()> {
    let (Some(programs), Some(firmware)) = (&parts.programs, &parts.firmware) else { return Ok(()) };
    for role in Role::ALL {
        let mut command = builder.sysroot.command(&run.folder, &[&run.folder], programs.join("berth"));
        command
            .args(["log", "--elf"])
            .arg(&firmware.elf)
            .arg("--input")
            .arg(run.share.join(format!("firmware-{role}.bin")));
        let output = command.output().context("starting berth log")?;
        if !output.status.success() {
            bail!("berth log: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        fs::write(out.join(format!("firmware-{role}.log")), text.as_bytes())?;
        if !text.contains("berth firmware") || !text.contains("connected to") || text.contains("damaged") {
            bail!("the firmware's log of host {role} does not decode:\n{text}");
        }
    }
    Ok(())
}

/// A JSON file of the share.
fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON: {text}", path.display()))
}

/// Finds a number by its path, e.g. `["rtl", "lists_sent"]`.
fn number(value: &Value, path: &[&str]) -> Result<u64> {
    let found = path.iter().try_fold(value, |v, key| v.get(key)).and_then(Value::as_u64);
    found.with_context(|| format!("the figure {} is missing", path.join(".")))
}

/// Which frames RTL and firmware have handled; loopback counts as sent and received.
fn fast(stat: &Value) -> Result<Handled> {
    let rtl = |name: &str| number(stat, &["rtl", name]);
    let looped = rtl("loopback_frames")?;
    let (sent, received) = (rtl("tx_frames")? + looped, rtl("rx_frames")? + looped);
    let rtl_sent = rtl("fp_packets")? + rtl("fp_acks")? + rtl("fp_lists")?;
    let firmware_received = rtl("fw_frames")?;
    Ok(Handled {
        rtl_sent,
        firmware_sent: sent.saturating_sub(rtl_sent),
        rtl_received: received.saturating_sub(firmware_received),
        firmware_received,
        slots: rtl("fp_slots")?,
    })
}

fn figures(run: &guest::Run, end: &guest::End, bytes: u64) -> Result<Figures> {
    let transfer_a = read_json(&run.share.join("transfer-a.json"))?;
    let transfer_b = read_json(&run.share.join("transfer-b.json"))?;
    let stat_a = read_json(&run.share.join("stat-a.json"))?;
    let stat_b = read_json(&run.share.join("stat-b.json"))?;
    let simulator = read_json(&run.folder.join("stats.json"))?;
    let both = |path: &[&str]| Ok::<_, anyhow::Error>(number(&stat_a, path)? + number(&stat_b, path)?);
    // The receiver's card announces credits for the file; the sender's one only for the receiver's short answer.
    let (credit_lists, credits) =
        (number(&stat_b, &["rtl", "lists_sent"])?, number(&stat_b, &["rtl", "credits_sent"])?);
    let wire = |name: &str| number(&simulator, &["wire", name]);
    let (sender, receiver) = (fast(&stat_a)?, fast(&stat_b)?);
    let firmware_events = both(&["fw", "fast_events"])?;
    if number(&transfer_b, &["bytes"])? != bytes {
        bail!("host b received {} bytes of {bytes}", number(&transfer_b, &["bytes"])?);
    }
    Ok(Figures {
        bytes,
        frames: wire("frames")?,
        wire_bytes: wire("bytes")?,
        retransmitted_frames: both(&["rtl", "fp_again"])?,
        handled_by: HandledBy { firmware_events, sender, receiver },
        control_retransmitted_frames: both(&["fw", "control_retransmitted"])?,
        // A packet without a credit is one for which no buffer was announced.
        no_buffer_drops: both(&["fw", "no_credit"])?,
        no_credit_drops: both(&["fw", "no_credit"])?,
        bad_icrc_drops: both(&["rtl", "rx_bad_icrc"])?,
        credit_lists,
        credits,
        mean_credit_list: if credit_lists == 0 { 0.0 } else { credits as f64 / credit_lists as f64 },
        // Of the two programs alone, as their contexts say, ...
        peak_pinned_bytes: Peak {
            sender: number(&transfer_a, &["peak_pinned_bytes"])?,
            receiver: number(&transfer_b, &["peak_pinned_bytes"])?,
        },
        // ... and of everything on their cards since power-on.
        card_peak_pinned_bytes: Peak {
            sender: number(&stat_a, &["drv", "pinned_peak"])?,
            receiver: number(&stat_b, &["drv", "pinned_peak"])?,
        },
        pinned_bytes_at_end: both(&["drv", "pinned"])?,
        budget_bytes: Peak {
            sender: number(&stat_a, &["drv", "budget"])?,
            receiver: number(&stat_b, &["drv", "budget"])?,
        },
        wall_seconds: end.time.as_secs_f64(),
        wire: Wire {
            lost: wire("lost")?,
            duplicated: wire("duplicated")?,
            reordered: wire("reordered")?,
            corrupted: wire("corrupted")?,
        },
        cards: Cards { sender: stat_a, receiver: stat_b },
        simulator,
        ..Figures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_guests_and_the_simulator() {
        let arguments = Arguments {
            recv_sizes: vec![3, 7],
            block: Some(8192),
            budget: Some(1 << 20),
            loss: 0.25,
            seed: 9,
            ..Arguments::default()
        };
        let b = script(&arguments, Role::B);
        assert!(b.contains("--recv-sizes 3,7 --block 8192 --budget 1048576"), "{b}");
        assert!(b.contains("berth limits --linger-ms 0 --budget 1048576"));
        assert!(script(&arguments, Role::A).contains("--file /tmp/payload --wait 300 --block 8192 --budget 1048576"));
        let list = simulator_arguments(&arguments, Path::new("/x"));
        assert!(list.contains(&"--loss=0.25".to_owned()) && list.contains(&"--seed=9".to_owned()));
        assert_eq!(options_text(&arguments), "--recv-sizes 3,7 --block 8192 --budget 1048576 --loss 0.25 --seed 9");
    }

    #[test]
    fn options_that_no_guest_would_take_are_refused_at_once() {
        for bad in [
            Arguments { block: Some(5000), ..Arguments::default() },
            Arguments { recv_sizes: vec![0, 0], ..Arguments::default() },
            Arguments { recv_sizes: vec![3, 999_999_999_999], ..Arguments::default() },
            Arguments { budget: Some(100), ..Arguments::default() },
            Arguments { budget: Some(LARGEST_BUDGET + 1), ..Arguments::default() },
            Arguments { budget: Some(4096), ..Arguments::default() },
            Arguments { file: Some("/nowhere/at/all".into()), ..Arguments::default() },
            Arguments { file: Some("/dev/null".into()), ..Arguments::default() },
            Arguments { file: Some("/".into()), ..Arguments::default() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        let most = [LARGEST_RECV];
        let good = Arguments { recv_sizes: most.into(), budget: Some(LARGEST_BUDGET), ..Arguments::default() };
        assert!(check(&good).is_ok());
        assert!(check(&Arguments::default()).is_ok());
        let nowhere = Path::new("/proc/self/fd");
        let refused = [
            Arguments { out: Some(nowhere.join("report")), ..Arguments::default() },
            Arguments { out: Some(nowhere.into()), ..Arguments::default() },
            Arguments { out: Some(std::env::temp_dir()), json: Some(nowhere.join("x")), ..Arguments::default() },
            Arguments { out: Some(std::env::temp_dir()), json: Some("/".into()), ..Arguments::default() },
        ];
        for bad in refused {
            assert!(prepare_output(&bad, nowhere).is_err(), "{bad:?}");
        }
        assert!(probability("1.5").is_err() && probability("0.3").is_ok());
    }
}
