// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two virtual machines with a simulated card each, and a wire between the cards. The second may have another make of
//! network card at its end of the wire.
//!
//! Every run has a folder of its own for sockets and for the share that both guests mount at `/mnt/share`. A guest
//! runs `ROLE.sh` of the share and powers off. The kernels' consoles are watched: what KASAN, lockdep, the DMA-API
//! checks or a plain oops print there makes the run fail, whatever the scripts say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::context::Context;
use crate::initramfs::Initramfs;
use crate::kernel::{Flavour, Kernel};
use crate::progress::{self, Progress};
use crate::steps::{Builder, GUEST_EXAMPLES, Parts, guest_programs};
use crate::sysroot::Sysroot;

/// How long QEMU waits for the card's answer to a register access. Simulation is slow, and an access that times out
/// looks like a broken card.
const CARD_TIMEOUT_MS: u32 = 60_000;
/// How much of a console is kept around a kernel report.
const REPORT_LINES: usize = 40;

/// Which of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The first one.
    A,
    /// The second one.
    B,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// As in file names and on the guest's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a run differs from the usual one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which guests; one or both.
    pub roles: Vec<Role>,
    /// Memory of each in MiB.
    pub memory: u32,
    /// Virtual CPUs of each.
    pub cpus: u32,
    /// Whether they have a card.
    pub cards: bool,
    /// The kernel of guest b, if in place of a card that has virtio's network device at the wire, and no driver of Berth.
    pub foreign: Option<Kernel>,
    /// Whether a processor that writes to the card waits until the simulator has the write, as a bus would make it.
    /// Otherwise QEMU queues such writes without bound; with it many writes, as of firmware's words, take several times
    /// as long.
    pub held_writes: bool,
    /// Arguments for `berth-sim run` after the sockets.
    pub simulator: Vec<String>,
    /// Module parameters of berth.ko.
    pub module_args: String,
    /// More for the kernel's command line.
    pub append: String,
    /// The root of a Debian host that guests run on, each with changes of its own, in place of busybox alone.
    pub host: Option<PathBuf>,
    /// A plugin of QEMU's that writes to the file of [`Run::counts`].
    pub plugin: Option<PathBuf>,
    /// It writes to the file of [`Run::profile`], too.
    pub profile: bool,
    /// Between the card and the guest's memory stands an IOMMU.
    pub iommu: bool,
    /// Do not load berth.ko.
    pub no_load: bool,
    /// Leave the guests up with a shell each after their scripts.
    pub keep: bool,
    /// Print what the scripts print.
    pub echo: bool,
    /// When a run that still goes is ended and counts as failed.
    pub limit: Duration,
}

impl Options {
    /// The usual ones for a kernel.
    pub fn new(flavour: Flavour) -> Self {
        Self {
            roles: Role::ALL.to_vec(),
            // KASAN takes an eighth for its shadow and more for quarantined objects.
            memory: if flavour == Flavour::Test { 1024 } else { 512 },
            cpus: 1,
            cards: true,
            foreign: None,
            held_writes: false,
            simulator: Vec::new(),
            module_args: String::new(),
            append: String::new(),
            host: None,
            plugin: None,
            profile: false,
            iommu: false,
            no_load: false,
            keep: false,
            echo: false,
            limit: Duration::from_secs(20 * 60),
        }
    }

    /// Whether a guest has a network card of another make.
    fn is_foreign(&self, role: Role) -> bool {
        self.foreign.is_some() && role == Role::B
    }

    /// What a guest boots.
    fn kernel<'a>(&'a self, parts: &'a Parts, role: Role) -> &'a Kernel {
        self.foreign.as_ref().filter(|_| role == Role::B).unwrap_or(&parts.kernel)
    }
}

/// The folder of a run; removed when dropped, together with everything in it.
pub struct Run {
    /// Sockets, logs, the initramfs.
    pub folder: PathBuf,
    /// What both guests see as `/mnt/share`.
    pub share: PathBuf,
    preserve: bool,
}

impl Run {
    /// Makes an empty one.
    ///
    /// # Errors
    /// When the folder for temporary files is not writable.
    pub fn new() -> Result<Self> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // Socket paths have at most 107 bytes, so this is not below the cache folder.
        let folder = std::env::temp_dir().join(format!("berth-{}-{number}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let share = folder.join("share");
        fs::create_dir_all(share.join("ctl"))?;
        Ok(Self { folder, share, preserve: false })
    }

    /// Keeps the folder, e.g. to look at the logs of a failed run.
    pub fn preserve(&mut self) {
        self.preserve = true;
    }

    /// Writes the script of a guest.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn script(&self, role: Role, text: &str) -> Result<()> {
        Ok(fs::write(self.share.join(format!("{role}.sh")), text)?)
    }

    /// Removes what an earlier start has left: its sockets, and what the share has besides `keep`.
    fn clear(&self, keep: &BTreeSet<PathBuf>) -> Result<()> {
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|e| e == "sock");
        let sockets = files(&self.folder)?.into_iter().filter(is_socket);
        let left = files(&self.share)?.into_iter().filter(|path| !keep.contains(path));
        for path in sockets.chain(left) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.sock"))
    }

    /// The kernel console of a guest.
    pub fn console_log(&self, role: Role) -> PathBuf {
        self.folder.join(format!("console-{role}.log"))
    }

    /// What the script of a guest printed.
    pub fn output_log(&self, role: Role) -> PathBuf {
        self.folder.join(format!("output-{role}.log"))
    }

    /// What a plugin of a guest's QEMU has counted.
    pub fn counts(&self, role: Role) -> PathBuf {
        self.folder.join(format!("counts-{role}"))
    }

    /// Which blocks it has counted.
    pub fn profile(&self, role: Role) -> PathBuf {
        self.folder.join(format!("profile-{role}"))
    }

    /// What the simulator logged.
    pub fn simulator_log(&self) -> PathBuf {
        self.folder.join("simulator.log")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.preserve {
            fs::remove_dir_all(&self.folder).ok();
        }
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let (path, kind) = entry.and_then(|e| Ok((e.path(), e.file_type()?)))?;
        match kind.is_dir() {
            true => all.append(&mut files(&path)?),
            false => _ = all.insert(path),
        }
    }
    Ok(all)
}

/// How one guest ended.
#[derive(Clone, Debug, Default)]
pub struct GuestEnd {
    /// Exit code of its script; `None` when it never got that far.
    pub code: Option<i32>,
    /// Reports of the kernel's checkers.
    pub reports: Vec<String>,
    /// What the script printed.
    pub output: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// By guest.
    pub guests: BTreeMap<Role, GuestEnd>,
    /// From power-on of the first to power-off of the last.
    pub time: Duration,
}

impl End {
    /// What went wrong, one entry per fact; empty when all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (role, guest) in &self.guests {
            match guest.code {
                Some(0) => {}
                Some(code) => faults.push(format!("guest {role}: exit code {code}")),
                None => faults.push(format!("guest {role} ended before its script did")),
            }
            for report in &guest.reports {
                faults.push(format!("guest {role}: kernel report\n{report}"));
            }
        }
        faults
    }
}

/// Which of a guest's two serial lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Console,
    Output,
}

enum Event {
    Line(Role, Stream, String),
    Ended(Role, Stream),
    SimulatorReady,
    SimulatorEnded,
}

/// Child processes that end with this value.
struct Children(Vec<(String, Child)>);

impl Children {
    /// Starts one in a process group of its own: Ctrl-C reaches only xtask, which then ends all of them in order.
    fn spawn(&mut self, name: &str, command: &mut Command) -> Result<&mut Child> {
        let child = command.process_group(0).spawn().with_context(|| format!("starting {name}"))?;
        self.0.push((name.to_owned(), child));
        Ok(&mut self.0.last_mut().expect("just pushed").1)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Boots the guests, runs their scripts and waits until both have powered off.
///
/// # Errors
/// When something does not start, ends by itself too early, or takes longer than the limit; the message has the ends
/// of all logs. What the guests themselves report as failed is in [`End`].
pub fn run(builder: &Builder, parts: &Parts, options: &Options, run: &Run, progress: &mut Progress) -> Result<End> {
    let before = files(&run.share)?;
    let mut result = run_inner(builder, parts, options, run, progress);
    // QEMU has been seen to lose a processor that the kernel brings up, on a busy machine.
    if let Some(hung) = result.as_ref().err().and_then(|error| error.downcast_ref::<HungInBoot>()) {
        progress::line(&format!("  {hung}: the guests boot again"));
        run.clear(&before)?;
        result = run_inner(builder, parts, options, run, progress);
    }
    result.map_err(|error| {
        if progress::interrupted() {
            return error;
        }
        let mut text = format!("{error:#}");
        let logs = options.roles.iter().flat_map(|r| [run.console_log(*r), run.output_log(*r)]);
        for log in logs.chain([run.simulator_log()]) {
            let lines = progress::tail(&log, 15);
            if !lines.is_empty() {
                let name = log.file_name().unwrap_or_default().display();
                text += &format!("\n  end of {name}:\n    {}", lines.join("\n    "));
            }
        }
        anyhow::anyhow!("{text}")
    })
}

fn run_inner(builder: &Builder, parts: &Parts, options: &Options, run: &Run, progress: &mut Progress) -> Result<End> {
    let sysroot = &builder.sysroot;
    let (sender, events) = mpsc::channel();
    let mut children = Children(Vec::new());
    let start = Instant::now();
    // Plugins see what is translated alone.
    let is_real = options.plugin.is_none() && kvm_works(&builder.context, sysroot, &parts.kernel)?;
    let accelerator = if is_real { "kvm" } else { "tcg" };

    let _control = if options.cards {
        let simulator = parts.simulator.as_ref().context("the simulator has not been built")?;
        start_simulator(sysroot, simulator, options, run, &mut children, &sender)?;
        progress.detail("starting the simulator");
        loop {
            match events.recv_timeout(Duration::from_millis(500)) {
                Ok(Event::SimulatorReady) => break,
                Ok(Event::SimulatorEnded) => bail!("berth-sim ended before it was ready"),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("berth-sim's output is gone"),
            }
            stop_when_asked(start, options)?;
        }
        Some(Control::start(run)?)
    } else {
        None
    };

    let mut guests: BTreeMap<Role, Watched> = BTreeMap::new();
    for &role in &options.roles {
        for stream in [Stream::Console, Stream::Output] {
            listen(run, role, stream, &sender)?;
        }
        let own = Parts { kernel: options.kernel(parts, role).clone(), ..parts.clone() };
        let initramfs = run.folder.join(format!("initramfs-{role}.cpio"));
        write_initramfs(sysroot, &own, &initramfs)?;
        let mut command = qemu(sysroot, &own.kernel, options, run, role, &initramfs, accelerator);
        let log = File::create(run.folder.join(format!("qemu-{role}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        children.spawn(&format!("QEMU {role}"), &mut command)?;
        guests.insert(role, Watched::new(run, role)?);
    }

    let mut said_keep = false;
    let mut heard = Instant::now();
    loop {
        match events.recv_timeout(Duration::from_millis(300)) {
            Ok(Event::Line(role, stream, line)) => {
                heard = Instant::now();
                if let Some(guest) = guests.get_mut(&role) {
                    guest.line(stream, &line)?;
                }
                if stream == Stream::Output && options.echo {
                    progress::line(&format!("{role}| {line}"));
                } else if stream == Stream::Output || options.echo {
                    progress.detail(&format!("{role}: {line}"));
                }
            }
            Ok(Event::Ended(role, stream)) => {
                if let Some(guest) = guests.get_mut(&role) {
                    guest.ended(stream);
                    // Its peer would wait until the limit.
                    if guest.open == 0 && !run.share.join(format!("{role}.exit")).exists() {
                        bail!("guest {role} ended before its script did\n{}", guest.reports().join("\n"));
                    }
                }
            }
            Ok(Event::SimulatorEnded) => bail!("berth-sim ended while the guests were running"),
            Ok(Event::SimulatorReady) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("lost all guests"),
        }
        if guests.values().all(|g| g.open == 0) {
            break;
        }
        for (name, child) in &mut children.0 {
            if let Some(status) = child.try_wait()?
                && !status.success()
            {
                let log = run.folder.join(format!("{}.log", name.to_lowercase().replace(' ', "-")));
                bail!("{name} failed ({status}): {}", progress::tail(&log, 5).join(" / "));
            }
        }
        if options.keep && !said_keep && guests.values().all(|g| g.kept) {
            said_keep = true;
            progress::line(
                "The guests stay up. In another terminal: `cargo xtask console a` or `… b` (Ctrl-] leaves it).",
            );
            progress::line(&format!("Their share is {}; Ctrl-C here ends them and goes on.", run.share.display()));
        }
        if options.keep && said_keep {
            if progress::interrupted() {
                break;
            }
        } else {
            stop_when_asked(start, options)?;
            if let Some((&role, _)) = guests.iter().find(|(_, guest)| guest.hangs_in_boot()) {
                bail!(HungInBoot(role));
            }
            if heard.elapsed() > SILENCE {
                let doing: Vec<String> = children.0.iter().map(|(name, child)| threads(name, child.id())).collect();
                bail!("no guest has said anything for {} minutes\n{}", SILENCE.as_secs() / 60, doing.join("\n"));
            }
        }
    }
    stop_simulator(run, options, &mut children);
    let mut end = End { guests: BTreeMap::new(), time: start.elapsed() };
    for (role, guest) in guests {
        let code = fs::read_to_string(run.share.join(format!("{role}.exit"))).ok().and_then(|t| t.trim().parse().ok());
        end.guests.insert(role, GuestEnd { code, reports: guest.reports(), output: guest.output });
    }
    Ok(end)
}

/// A guest's kernel has stopped before it started `init`.
#[derive(Debug)]
struct HungInBoot(Role);

impl fmt::Display for HungInBoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {}'s kernel has stopped in its boot", self.0)
    }
}

impl std::error::Error for HungInBoot {}

/// Longer than a kernel is silent in its boot.
const SILENCE_IN_BOOT: Duration = Duration::from_secs(2 * 60);

/// Longer than any guest's test is silent: whoever waits says so sooner.
const SILENCE: Duration = Duration::from_secs(12 * 60);

/// What the threads of a process and of its children do, as the kernel says: one line each, name, state and where it waits.
fn threads(name: &str, pid: u32) -> String {
    let mut text = format!("threads of {name}:");
    let mut pids = vec![pid];
    while let Some(pid) = pids.pop() {
        for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let of = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            let stat = of("stat");
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
            text += &format!("\n    {pid} {} {state} {} {}", of("comm").trim(), of("wchan"), of("syscall").trim());
            pids.extend(of("children").split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    text
}

fn stop_when_asked(start: Instant, options: &Options) -> Result<()> {
    if progress::interrupted() {
        return Err(progress::interrupted_error());
    }
    if start.elapsed() > options.limit {
        bail!("the guests were still running after {} minutes", options.limit.as_secs() / 60);
    }
    Ok(())
}

/// Asks the simulator to end, so that it writes its statistics and closes its files.
fn stop_simulator(run: &Run, options: &Options, children: &mut Children) {
    if options.cards
        && ask(&run.socket("control"), "quit").is_ok()
        && let Some((_, child)) = children.0.iter_mut().find(|(name, _)| name == "berth-sim")
    {
        child.wait().ok();
    }
}

fn start_simulator(
    sysroot: &Sysroot,
    simulator: &Path,
    options: &Options,
    run: &Run,
    children: &mut Children,
    sender: &Sender<Event>,
) -> Result<()> {
    let mut command = sysroot.command(&run.folder, &[&run.folder], simulator);
    command.arg("run");
    for &role in &options.roles {
        if options.is_foreign(role) {
            let (own, peer) = (run.socket("wire"), run.socket(&format!("wire-{role}")));
            command.arg("--bridge").arg(format!("{role}=dgram:{},{}", own.display(), peer.display()));
        } else {
            command.arg("--card").arg(run.socket(&format!("card-{role}")));
        }
    }
    command.arg("--control").arg(run.socket("control")).args(&options.simulator);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(run.simulator_log())?);
    let child = children.spawn("berth-sim", &mut command)?;
    let output = child.stdout.take().context("berth-sim has no standard output")?;
    let sender = sender.clone();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let ready = serde_json::from_str::<serde_json::Value>(&line).is_ok_and(|v| v["ready"] == true);
            if ready && sender.send(Event::SimulatorReady).is_err() {
                return;
            }
        }
        sender.send(Event::SimulatorEnded).ok();
    });
    Ok(())
}

fn write_initramfs(sysroot: &Sysroot, parts: &Parts, to: &Path) -> Result<()> {
    let busybox = ["bin/busybox", "usr/bin/busybox"].into_iter().map(|p| sysroot.path(p)).find(|p| p.exists());
    let mut archive = Initramfs::new(&busybox.context("no busybox in the sysroot")?)?;
    if let Some(driver) = &parts.driver {
        archive.file("lib/modules/berth.ko", driver)?;
    }
    if let Ok(modules) = fs::read_dir(parts.kernel.modules()) {
        for entry in modules {
            let entry = entry?;
            archive.file(&format!("lib/modules/guest/{}", entry.file_name().display()), &entry.path())?;
        }
    }
    if let Some(firmware) = &parts.firmware {
        archive.file("lib/firmware/berth/berth-fw.bin", &firmware.image)?;
        archive.file("lib/firmware/berth/berth-fw.elf", &firmware.elf)?;
    }
    if let Some(programs) = &parts.programs {
        for program in guest_programs(parts.kernel.flavour) {
            archive.file(&format!("bin/{program}"), &programs.join(program))?;
        }
        for example in GUEST_EXAMPLES {
            archive.file(&format!("bin/example-{example}"), &programs.join("examples").join(example))?;
        }
    }
    archive.write(to)
}

fn qemu(
    sysroot: &Sysroot,
    kernel: &Kernel,
    options: &Options,
    run: &Run,
    role: Role,
    initramfs: &Path,
    accelerator: &str,
) -> Command {
    let mut c = sysroot.command(&run.folder, &[&run.folder], "qemu-system-x86_64");
    let memory = options.memory;
    c.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    c.args([
        "-machine",
        &format!("q35,accel={accelerator}"),
        "-m",
        &format!("{memory}M"),
        "-smp",
        &options.cpus.to_string(),
    ]);
    if accelerator == "kvm" {
        c.args(["-cpu", "host"]);
    }
    c.args(["-object", &format!("memory-backend-memfd,id=m,size={memory}M,share=on"), "-numa", "node,memdev=m"]);
    c.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
    let mut append = format!("console=ttyS0 loglevel=7 panic=-1 oops=panic no_timer_check role={role}");
    if !options.append.is_empty() {
        append += &format!(" {}", options.append);
    }
    if options.iommu {
        append += " intel_iommu=on iommu.strict=1";
        // The IOMMU comes before the devices behind it. Its caching mode tells QEMU of mappings as they are made.
        c.args(["-device", "intel-iommu,caching-mode=on,intremap=off"]);
    }
    if options.keep {
        append += " keep=1";
    }
    if options.host.is_some() {
        append += " host=1";
    }
    if options.no_load || options.is_foreign(role) {
        append += " no_load=1";
    }
    if !options.module_args.is_empty() {
        append += &format!(" module_args=\"{}\"", options.module_args);
    }
    c.args(["-append", &append]);
    for name in ["console", "output"] {
        let socket = run.socket(&format!("{name}-{role}"));
        c.args([
            "-chardev",
            &format!("socket,id={name},path={}", socket.display()),
            "-serial",
            &format!("chardev:{name}"),
        ]);
    }
    if options.keep {
        let socket = run.socket(&format!("shell-{role}"));
        c.args(["-chardev", &format!("socket,id=shell,server=on,wait=off,path={}", socket.display())]);
        c.args(["-serial", "chardev:shell"]);
    }
    c.args(["-fsdev", &format!("local,id=share,security_model=none,path={}", run.share.display())]);
    c.args(["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"]);
    if let Some(plugin) = &options.plugin {
        let profile = options.profile.then(|| format!(",profile={}", run.profile(role).display()));
        let out = run.counts(role);
        // What the processors of the last ten years have: a checksum that is one instruction there takes eight for each byte
        // without it.
        c.args(["-cpu", "max"]);
        // Its clock goes by instructions, so that few of them are the timer's, however slow the card is.
        c.args(["-icount", "shift=0,sleep=on"]);
        c.arg("-plugin").arg(format!("{},out={}{}", plugin.display(), out.display(), profile.unwrap_or_default()));
    }
    if let Some(host) = &options.host {
        c.args(["-fsdev", &format!("local,id=host,security_model=none,readonly=on,path={}", host.display())]);
        c.args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
    }
    if options.is_foreign(role) {
        let (own, peer) = (run.socket(&format!("wire-{role}")), run.socket("wire"));
        let (own, peer) = (own.display(), peer.display());
        c.args([
            "-netdev",
            &format!("dgram,id=wire,local.type=unix,local.path={own},remote.type=unix,remote.path={peer}"),
        ]);
        c.args(["-device", "virtio-net-pci,netdev=wire,romfile="]);
    } else if options.cards {
        let device = serde_json::json!({
            "driver": "vfio-user-pci",
            "socket": { "path": run.socket(&format!("card-{role}")), "type": "unix" },
            "x-msg-timeout": CARD_TIMEOUT_MS,
            "x-no-posted-writes": options.held_writes,
            "rombar": 0,
        });
        c.args(["-device", &device.to_string()]);
    }
    c
}

/// Accepts one serial line of a guest and turns it into events. The socket exists when this returns.
fn listen(run: &Run, role: Role, stream: Stream, sender: &Sender<Event>) -> Result<()> {
    let name = match stream {
        Stream::Console => "console",
        Stream::Output => "output",
    };
    let listener = UnixListener::bind(run.socket(&format!("{name}-{role}")))?;
    let sender = sender.clone();
    thread::spawn(move || {
        if let Ok((connection, _)) = listener.accept() {
            for line in BufReader::new(connection).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                let line = console::strip_ansi_codes(line.trim_end_matches('\r')).into_owned();
                if sender.send(Event::Line(role, stream, line)).is_err() {
                    return;
                }
            }
        }
        sender.send(Event::Ended(role, stream)).ok();
    });
    Ok(())
}

/// What is known of a guest while it runs.
struct Watched {
    console: File,
    output_file: File,
    output: Vec<String>,
    kept: bool,
    open: u32,
    /// When its kernel last said something, until it starts `init`.
    boots: Option<Instant>,
    /// Kernel reports so far, and how many more lines the last one takes.
    found: Vec<Vec<String>>,
    more: usize,
}

impl Watched {
    fn new(run: &Run, role: Role) -> Result<Self> {
        Ok(Self {
            console: File::create(run.console_log(role))?,
            output_file: File::create(run.output_log(role))?,
            output: Vec::new(),
            kept: false,
            open: 2,
            boots: Some(Instant::now()),
            found: Vec::new(),
            more: 0,
        })
    }

    fn line(&mut self, stream: Stream, line: &str) -> Result<()> {
        if let Some(said) = &mut self.boots {
            *said = Instant::now();
            if stream == Stream::Output || line.contains("as init process") {
                self.boots = None;
            }
        }
        match stream {
            Stream::Console => {
                writeln!(self.console, "{line}")?;
                if self.more > 0 {
                    self.more -= 1;
                    if let Some(report) = self.found.last_mut() {
                        report.push(line.to_owned());
                    }
                } else if is_kernel_report(line) {
                    self.more = REPORT_LINES;
                    self.found.push(vec![line.to_owned()]);
                }
            }
            Stream::Output if line == "@keep" => self.kept = true,
            Stream::Output => {
                writeln!(self.output_file, "{line}")?;
                self.output.push(line.to_owned());
            }
        }
        Ok(())
    }

    fn hangs_in_boot(&self) -> bool {
        self.open != 0 && self.boots.is_some_and(|said| said.elapsed() > SILENCE_IN_BOOT)
    }

    fn ended(&mut self, _stream: Stream) {
        self.open -= 1;
    }

    fn reports(&self) -> Vec<String> {
        self.found.iter().filter(|lines| is_ours(lines)).map(|lines| lines.join("\n")).collect()
    }
}

/// Whether a report is about the driver: any, but a data race only if the driver is on one of its stacks. The rest of
/// the kernel has known or intended races.
fn is_ours(report: &[String]) -> bool {
    !report.first().is_some_and(|line| line.contains("KCSAN:"))
        || report[1..].iter().take_while(|line| !line.ends_with("=====")).any(|line| line.contains("[berth]"))
}

/// Whether a console line begins a report that no healthy kernel prints.
fn is_kernel_report(line: &str) -> bool {
    const MARKS: [&str; 22] = [
        "BUG:",
        "KASAN:",
        "WARNING: ",
        "WARNING:\t",
        "Oops",
        "general protection fault",
        "Kernel panic",
        "DMA-API:",
        "possible recursive locking",
        "possible circular locking",
        "inconsistent lock state",
        "suspicious RCU usage",
        "held lock freed",
        "bad unlock balance",
        "INFO: task ",
        "rcu: INFO:",
        "refcount_t:",
        "list_add corruption",
        "list_del corruption",
        "ODEBUG:",
        "Unable to handle",
        "panicked at",
    ];
    // "DMA-API: preallocated …" and "debugging enabled" are what it says when it starts.
    let harmless = line.contains("DMA-API: preallocated") || line.contains("DMA-API: debugging enabled");
    !harmless && MARKS.iter().any(|mark| line.contains(mark))
}

/// Sends one request to the simulator's control socket and returns its answer.
///
/// # Errors
/// When the simulator is not there.
pub fn ask(socket: &Path, request: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket).context("connecting to the simulator's control socket")?;
    writeln!(stream, "{request}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}

/// Passes the guests' requests in `share/ctl` on to the simulator: `X.req` is answered by `X.ans`.
struct Control {
    stop: PathBuf,
}

impl Control {
    fn start(run: &Run) -> Result<Self> {
        let folder = run.share.join("ctl");
        let socket = run.socket("control");
        let watch = Inotify::init(InitFlags::IN_CLOEXEC)?;
        watch.add_watch(&folder, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE)?;
        let stop = folder.join("stop");
        thread::spawn(move || {
            while let Ok(events) = watch.read_events() {
                for name in events.into_iter().filter_map(|e| e.name).map(PathBuf::from) {
                    if name == Path::new("stop") {
                        return;
                    }
                    let request = folder.join(&name);
                    // A request is written under another name first; only the complete one counts.
                    if name.extension().is_some_and(|e| e == "req")
                        && let Ok(text) = fs::read_to_string(&request)
                        && !text.is_empty()
                    {
                        fs::remove_file(&request).ok();
                        let socket = socket.clone();
                        // A request may wait in the simulator while others must go through.
                        thread::spawn(move || answer(&socket, &request, text.trim()));
                    }
                }
            }
        });
        Ok(Self { stop })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        File::create(&self.stop).ok();
    }
}

fn answer(socket: &Path, request: &Path, text: &str) {
    let answer =
        ask(socket, text).unwrap_or_else(|e| serde_json::json!({ "ok": false, "error": format!("{e:#}") }).to_string());
    let partial = request.with_extension("tmp-ans");
    if fs::write(&partial, answer + "\n").is_ok() {
        fs::rename(&partial, request.with_extension("ans")).ok();
    }
}

/// Whether KVM really works here: the device may open and still hang a guest, so one is booted under a time limit.
/// The answer holds until this machine boots again.
fn kvm_works(context: &Context, sysroot: &Sysroot, kernel: &Kernel) -> Result<bool> {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(false);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let known = context.folder("kvm")?.join(boot.trim());
    if let Ok(answer) = fs::read_to_string(&known) {
        return Ok(answer == "yes");
    }
    let folder = context.folder("tmp")?;
    let initramfs = folder.join("kvm-probe.cpio");
    let parts = Parts { kernel: kernel.clone(), driver: None, firmware: None, simulator: None, programs: None };
    write_initramfs(sysroot, &parts, &initramfs)?;
    let mut command = sysroot.command(&folder, &[], "qemu-system-x86_64");
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"]);
    command.args(["-machine", "q35,accel=kvm", "-cpu", "host", "-m", "256M", "-append", "console=ttyS0 panic=-1"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let Some(mut output) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = Vec::new();
            output.read_to_end(&mut text).ok();
            sender.send(String::from_utf8_lossy(&text).contains("Run /init")).ok();
        });
    }
    let works = receiver.recv_timeout(Duration::from_secs(20)).unwrap_or(false);
    child.kill().ok();
    child.wait().ok();
    fs::write(&known, if works { "yes" } else { "no" })?;
    Ok(works)
}

/// Connects the terminal with the shell of a guest that `--keep` left up.
///
/// # Errors
/// When there is none.
pub fn console(role: &str) -> Result<()> {
    let mut newest: Option<(std::time::SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(std::env::temp_dir())?.flatten() {
        let socket = entry.path().join(format!("shell-{role}.sock"));
        if entry.file_name().to_string_lossy().starts_with("berth-")
            && let Ok(time) = fs::metadata(&socket).and_then(|m| m.modified())
            && newest.as_ref().is_none_or(|(t, _)| *t < time)
        {
            newest = Some((time, socket));
        }
    }
    let (_, socket) = newest.context("no guest is up; start some with --keep")?;
    let mut input = UnixStream::connect(&socket).context("the guest is gone, or another terminal has its shell")?;
    let mut output = input.try_clone()?;
    let stty = |mode: &[&str]| Command::new("stty").args(mode).status();
    stty(&["raw", "-echo"])?;
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = output.read(&mut bytes) {
            let mut out = std::io::stdout().lock();
            out.write_all(&bytes[..n]).and_then(|()| out.flush()).ok();
        }
        stty(&["sane"]).ok();
        eprintln!("the guest has ended");
        std::process::exit(0);
    });
    input.write_all(b"\n")?;
    let mut bytes = [0; 256];
    loop {
        let n = std::io::stdin().read(&mut bytes)?;
        if n == 0 || bytes[..n].contains(&0x1d) {
            break;
        }
        input.write_all(&bytes[..n])?;
    }
    stty(&["sane"])?;
    println!();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_reports_are_told_from_ordinary_lines() {
        for bad in [
            "[    3.1] BUG: KASAN: slab-use-after-free in berth_x+0x10/0x20",
            "[    3.1] WARNING: CPU: 0 PID: 55 at kernel/dma/debug.c:1017",
            "[    3.1] WARNING: possible circular locking dependency detected",
            "[    3.1] DMA-API: berth 0000:00:04.0: device driver tries to free DMA memory it has not allocated",
            "[    3.1] Kernel panic - not syncing: x",
        ] {
            assert!(is_kernel_report(bad), "{bad}");
        }
        for good in
            ["[    0.1] DMA-API: preallocated 65536 debug entries", "[    0.0] Linux version 7.2", "berth: ready"]
        {
            assert!(!is_kernel_report(good), "{good}");
        }
    }

    #[test]
    fn a_data_race_counts_if_the_driver_is_on_a_stack() {
        let report = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let race = "[    9.1] BUG: KCSAN: data-race in a / b";
        let end = "[    9.1] ==================================================================";
        assert!(is_ours(&report(&["[    3.1] BUG: KASAN: use-after-free"])));
        assert!(is_ours(&report(&[race, "[    9.1]  b+0x10/0x20", "[    9.1]  berth_open+0x1/0x2 [berth]", end])));
        assert!(!is_ours(&report(&[race, "[    9.1]  b+0x10/0x20", end, "[    9.2]  c+0x1/0x2 [berth]"])));
    }
}
