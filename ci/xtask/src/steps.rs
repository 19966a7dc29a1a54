// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is built in the sysroot from this repository: firmware, simulator, driver, guest tools.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, bail};

use crate::context::{Context, check_machine, key, list_lines};
use berth_abi::card::{FW_RAM_BYTES, LARGE_CARD};

use crate::fwimage;
use crate::kernel::{self, Flavour, Host, Kernel};
use crate::needs::{self, Need};
use crate::progress;
use crate::provider;
use crate::sysroot::Sysroot;

/// The user's program, in every guest.
const GUEST_PROGRAM: &str = "berth";
/// The guests' tests.
const GUEST_TESTS: &str = "berth-guest-tests";

/// Programs that go into guests with such a kernel. The tests are for kernels that look for mistakes.
pub fn guest_programs(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::Stock => &[GUEST_PROGRAM],
        Flavour::Test | Flavour::Kcsan => &[GUEST_PROGRAM, GUEST_TESTS],
    }
}

/// Examples of `libberth` that go into the guests, as `example-NAME`.
pub const GUEST_EXAMPLES: [&str; 6] = ["send", "receive", "inline", "wait", "channel", "disk"];
/// The target of the guests' programs. Named explicitly so that build scripts and procedural macros, which cannot
/// be linked statically, are built apart.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds in one sysroot.
#[derive(Clone, Debug)]
pub struct Builder {
    /// The folders.
    pub context: Context,
    /// Where it builds.
    pub sysroot: Sysroot,
}

/// The firmware's files.
#[derive(Clone, Debug)]
pub struct Firmware {
    /// What the driver loads.
    pub image: PathBuf,
    /// For decoding its log.
    pub elf: PathBuf,
}

/// Programs with credits over media without a card.
pub struct Bursts {
    /// Those whose two processes send each other bursts, over verbs and over TCP.
    pub programs: [PathBuf; 2],
    /// The one that is counted, over verbs.
    pub count: PathBuf,
}

/// All that a pair of guests needs.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What they boot.
    pub kernel: Kernel,
    /// `berth.ko` for that kernel.
    pub driver: Option<PathBuf>,
    /// What the driver loads into the card.
    pub firmware: Option<Firmware>,
    /// `berth-sim`.
    pub simulator: Option<PathBuf>,
    /// The folder with the guests' programs.
    pub programs: Option<PathBuf>,
}

/// The simulator, and the folder with the guests' programs.
fn simulator_and_programs(built: &Path) -> (PathBuf, PathBuf) {
    (built.join("target-sysroot/release/berth-sim"), built.join("target-guest").join(GUEST_TARGET).join("release"))
}

/// Whether simulator and programs have been built from this checkout; then cargo has little to do.
pub fn guest_parts_are_built(context: &Context) -> bool {
    let (simulator, programs) = simulator_and_programs(&context.built);
    simulator.exists() && programs.exists()
}

impl Builder {
    /// Makes or finds the sysroot. Before that it says what of the command's needs is missing, and refuses when the disk
    /// has no room for it.
    ///
    /// # Errors
    /// See [`Sysroot::ensure`] and [`needs::announce`].
    pub fn new(needs: &[Need]) -> Result<Self> {
        check_machine()?;
        let context = Context::new()?;
        context.forget_gone_checkouts()?;
        needs::announce(&context, needs)?;
        let sysroot = Sysroot::ensure(&context)?;
        Ok(Self { context, sysroot })
    }

    /// Everything for guests with this kernel.
    ///
    /// # Errors
    /// When a part does not build.
    pub fn parts(&self, flavour: Flavour) -> Result<Parts> {
        self.parts_of(flavour, false)
    }

    /// The same with large cards (feature `large` of berth-abi).
    ///
    /// # Errors
    /// As [`Builder::parts`].
    pub fn large_parts(&self, flavour: Flavour) -> Result<Parts> {
        self.parts_of(flavour, true)
    }

    fn parts_of(&self, flavour: Flavour, large: bool) -> Result<Parts> {
        // Side by side, because one mostly waits and the other computes.
        thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                let kernel = Kernel::ensure(&self.context, &self.sysroot, flavour)?;
                let driver = self.driver(&kernel)?;
                Ok::<_, anyhow::Error>((kernel, driver))
            });
            let card = || match large {
                false => Ok::<_, anyhow::Error>((self.firmware()?, self.simulator(false)?)),
                true => Ok((self.large_firmware()?, self.large_simulator()?)),
            };
            let rest =
                card().and_then(|(firmware, simulator)| Ok((firmware, simulator, self.guest_programs(flavour)?)));
            let (kernel, driver) = kernel.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            let (firmware, simulator, programs) = rest?;
            Ok(Parts {
                kernel,
                driver: Some(driver),
                firmware: Some(firmware),
                simulator: Some(simulator),
                programs: Some(programs),
            })
        })
    }

    /// A cargo command in the sysroot. `target` is the folder in the cache for what it builds.
    ///
    /// # Errors
    /// When the folder cannot be created or the soft core cannot be fetched.
    pub fn cargo(&self, cwd: &Path, target: &str, arguments: &[&str]) -> Result<Command> {
        fs::create_dir_all(self.context.cache.join("home"))?;
        let mut command = self.sysroot.command(cwd, &[], "cargo");
        command
            .args(arguments)
            .env("CARGO_TARGET_DIR", self.context.built_folder(target)?)
            .env("BERTH_MODELS", self.context.folder("models")?)
            .env("BERTH_VEXRISCV", self.soft_core()?);
        Ok(command)
    }

    /// Runs such a cargo command as a step.
    fn cargo_step(&self, title: &str, estimate: Option<&str>, name: &str, command: &mut Command) -> Result<()> {
        progress::run(title, estimate, &self.context.log(name)?, command).map(drop)
    }

    /// The folder with the soft core's Verilog.
    ///
    /// # Errors
    /// When it is not in the cache and cannot be fetched.
    pub fn soft_core(&self) -> Result<PathBuf> {
        let (folder, package) = self.wheel("python.txt", "soft-core", "the soft core (VexRiscv)")?;
        let verilog = folder.join(package.replace('-', "_")).join("verilog");
        if !verilog.is_dir() {
            bail!("{package} has no folder {}", verilog.display());
        }
        Ok(verilog)
    }

    /// The folder with scapy, for `PYTHONPATH`.
    ///
    /// # Errors
    /// When it is not in the cache and cannot be fetched.
    pub fn scapy(&self) -> Result<PathBuf> {
        self.wheel("scapy.txt", "scapy", "scapy").map(|(folder, _)| folder)
    }

    /// The folder with nextpnr for Gowin's FPGAs, for `PYTHONPATH`.
    ///
    /// # Errors
    /// When it is not in the cache and cannot be fetched.
    pub fn nextpnr_gowin(&self) -> Result<PathBuf> {
        self.wheel("nextpnr-gowin.txt", "nextpnr-gowin", "nextpnr for Gowin").map(|(folder, _)| folder)
    }

    /// The folder in the cache with the unpacked Python packages of a list in `ci/packages`, and the first one's name.
    fn wheel(&self, list: &str, thing: &str, title: &str) -> Result<(PathBuf, String)> {
        let text = fs::read_to_string(self.context.repo.join("ci/packages").join(list))?;
        let lines: Vec<&str> = list_lines(&text).collect();
        let package = lines.first().and_then(|l| l.split("==").next());
        let package = package.with_context(|| format!("ci/packages/{list} is empty"))?.to_owned();
        let folder = self.context.folder(thing)?.join(key(&lines));
        if folder.exists() {
            return Ok((folder, package));
        }
        let _lock = self.context.lock(thing)?;
        if folder.exists() {
            return Ok((folder, package));
        }
        let partial = folder.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        fs::create_dir_all(self.context.cache.join("home"))?;
        let mut command = self.sysroot.command(&partial, &[], "sh");
        command.args([
            "-euc",
            "pip download --no-deps --require-hashes -r \"$1\"; for file in ./*.whl; do python3 -m zipfile -e \"$file\" .; rm \"$file\"; done",
            "sh",
        ]);
        command.arg(self.context.repo.join("ci/packages").join(list));
        progress::run(&format!("fetching {title}"), None, &self.context.log(thing)?, &mut command)?;
        fs::rename(&partial, &folder)?;
        Ok((folder, package))
    }

    /// Builds the firmware and packs its image.
    ///
    /// # Errors
    /// When it does not build or does not fit.
    pub fn firmware(&self) -> Result<Firmware> {
        self.firmware_for("firmware", &[])
    }

    /// The same for a small card (feature `small` of berth-abi).
    ///
    /// # Errors
    /// As [`Builder::firmware`].
    pub fn small_firmware(&self) -> Result<Firmware> {
        self.firmware_for("firmware-small", &["--features", "small"])
    }

    /// The same for a large card (feature `large`).
    ///
    /// # Errors
    /// As [`Builder::firmware`].
    pub fn large_firmware(&self) -> Result<Firmware> {
        self.firmware_for("firmware-large", &["--features", "large"])
    }

    fn firmware_for(&self, name: &str, arguments: &[&str]) -> Result<Firmware> {
        let _lock = self.context.lock("firmware")?;
        let elf = self.for_soft_core("berth-firmware", name, name, arguments)?;
        let large = LARGE_CARD.iter().find(|size| size.0 == "FW_RAM_BYTES" && name.ends_with("large"));
        let ram = large.map_or(FW_RAM_BYTES, |size| size.1 as u32);
        progress::line(&format!("  {name}: {}", fwimage::Ram::of(&elf, ram)?));
        let image = self.pack(&elf, name)?;
        Ok(Firmware { image, elf })
    }

    /// Builds a program of the firmware's workspace; returns the ELF file.
    fn for_soft_core(&self, package: &str, title: &str, target: &str, arguments: &[&str]) -> Result<PathBuf> {
        let cwd = self.context.repo.join("firmware/app");
        let target = format!("target-{target}");
        let mut command = self.cargo(&cwd, &target, &["build", "--release", "--package", package])?;
        // The image is the same wherever it is built, and so are the cycles that it takes: no name of this machine is in it.
        let cache = self.context.cache.join("cargo");
        let paths = [(cache.as_path(), "/cargo"), (self.context.repo.as_path(), "/berth")];
        let flag = |(from, to): &(&Path, &str)| format!("{:?}", format!("--remap-path-prefix={}={to}", from.display()));
        let flags = paths.iter().map(flag).collect::<Vec<_>>().join(",");
        command.arg("--config").arg(format!("target.riscv32im-unknown-none-elf.rustflags=[{flags}]"));
        command.args(arguments).env("RUSTC_BOOTSTRAP", "1");
        self.cargo_step(title, None, &title.replace(' ', "-"), &mut command)?;
        Ok(self.context.built.join(target).join("riscv32im-unknown-none-elf/release").join(package))
    }

    /// Packs an ELF file into an image in folder `name`.
    fn pack(&self, elf: &Path, name: &str) -> Result<PathBuf> {
        let folder = self.context.built_folder(name)?;
        let image = folder.join("berth-fw.bin");
        let partial = folder.join("berth-fw.bin.partial");
        fs::write(&partial, fwimage::pack(elf)?)?;
        fs::rename(&partial, &image)?;
        Ok(image)
    }

    /// Builds `firmware/panic-free`, which links all of `firmware/protocol` for the soft core; returns the ELF file.
    ///
    /// # Errors
    /// When it does not build.
    pub fn panic_free(&self) -> Result<PathBuf> {
        let _lock = self.context.lock("firmware")?;
        self.for_soft_core("berth-panic-free", "all of the protocol for the soft core", "firmware", &[])
    }

    /// Builds `firmware/timing`, which counts cycles on the soft core; returns its image.
    ///
    /// # Errors
    /// When it does not build.
    pub fn timing(&self) -> Result<PathBuf> {
        let _lock = self.context.lock("firmware")?;
        let elf = self.for_soft_core("berth-timing", "what counts cycles on the soft core", "firmware", &[])?;
        self.pack(&elf, "timing")
    }

    /// Builds `berth-sim` with the Verilated card in it; with `trace` one that can write waveforms, and is slower.
    ///
    /// # Errors
    /// When it does not build.
    pub fn simulator(&self, trace: bool) -> Result<PathBuf> {
        // In folders of their own, so that neither makes the other one build again.
        let (target, title, name) = match trace {
            false => ("target-sysroot", "simulator with the Verilated card", "simulator"),
            true => ("target-trace", "simulator with waveforms", "simulator-trace"),
        };
        let mut arguments = vec!["build", "--release", "--package", "berth-sim"];
        if trace {
            arguments.extend(["--features", "trace"]);
        }
        self.simulator_of(target, title, name, &arguments)
    }

    /// Builds one with a large card.
    ///
    /// # Errors
    /// When it does not build.
    pub fn large_simulator(&self) -> Result<PathBuf> {
        let arguments = ["build", "--release", "--package", "berth-sim", "--features", "large"];
        self.simulator_of("target-large", "simulator with a large card", "simulator-large", &arguments)
    }

    fn simulator_of(&self, target: &str, title: &str, name: &str, arguments: &[&str]) -> Result<PathBuf> {
        let mut command = self.cargo(&self.context.repo, target, arguments)?;
        self.cargo_step(title, Some("3 min at first"), name, &mut command)?;
        Ok(self.context.built.join(target).join("release/berth-sim"))
    }

    /// Builds `berth-bench` with cards of every width, or only of 64 and 512 bits, with the fast path and the RTL's
    /// assertions in them.
    ///
    /// # Errors
    /// When it does not build.
    pub fn bench(&self, ends: bool) -> Result<PathBuf> {
        let (features, title) = if ends {
            ("ends", "berth-bench with cards of 64 and 512 bits")
        } else {
            ("widths", "berth-bench with cards of every width")
        };
        let arguments = ["build", "--release", "--package", "berth-bench", "--features", features];
        let mut command = self.cargo(&self.context.repo, "target-sysroot", &arguments)?;
        self.cargo_step(title, Some("10 min at first"), "bench", &mut command)?;
        Ok(self.context.built.join("target-sysroot/release/berth-bench"))
    }

    /// Builds the statically linked programs for guests with such a kernel; returns their folder.
    ///
    /// # Errors
    /// When they do not build.
    pub fn guest_programs(&self, flavour: Flavour) -> Result<PathBuf> {
        let mut arguments = vec!["build", "--release", "--target", GUEST_TARGET];
        for program in guest_programs(flavour) {
            arguments.extend(["--package", program]);
        }
        // The examples are named one by one: naming any target takes the packages' programs out unless `--bins` says so.
        arguments.extend(["--package", "libberth", "--bins"]);
        for example in GUEST_EXAMPLES {
            arguments.extend(["--example", example]);
        }
        let mut command = self.cargo(&self.context.repo, "target-guest", &arguments)?;
        command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
        self.cargo_step("the guests' programs", None, "guest-programs", &mut command)?;
        Ok(self.context.built.join("target-guest").join(GUEST_TARGET).join("release"))
    }

    /// Builds the provider of libibverbs for the sysroot's Debian; returns `libberth-rdmav34.so`, and `berth.driver`, by which
    /// libibverbs finds it.
    ///
    /// # Errors
    /// When it does not build, or libibverbs could not load it.
    pub fn provider(&self) -> Result<[PathBuf; 2]> {
        let arguments = ["build", "--profile", "plugin", "--package", "berth-verbs"];
        let mut command = self.cargo(&self.context.repo, "target-provider", &arguments)?;
        self.cargo_step("the provider of libibverbs", None, "provider", &mut command)?;
        let target = self.context.built.join("target-provider");
        let bytes = fs::read(target.join("plugin/libberth_rdmav34.so"))?;
        provider::check(&bytes).context("the provider of libibverbs")?;
        // A library of Rust cannot have that name.
        let (library, partial) = (target.join("libberth-rdmav34.so"), target.join("libberth-rdmav34.so.partial"));
        fs::write(&partial, bytes)?;
        fs::rename(&partial, &library)?;
        Ok([library, self.context.repo.join("host-tools/berth-verbs/berth.driver")])
    }

    /// Builds the programs with credits over verbs and over TCP.
    ///
    /// # Errors
    /// When they do not build.
    pub fn bursts(&self) -> Result<Bursts> {
        let package = ["build", "--profile", "plugin", "--package", "berth-credits", "--features", "verbs,tcp-options"];
        let names = ["verbs_bursts", "tcp_bursts", "verbs_count"];
        let examples = names.iter().flat_map(|name| ["--example", name]);
        let arguments: Vec<_> = package.into_iter().chain(examples).collect();
        let mut command = self.cargo(&self.context.repo, "target-provider", &arguments)?;
        self.cargo_step("credits over verbs and TCP", None, "bursts", &mut command)?;
        let folder = self.context.built.join("target-provider/plugin/examples");
        let [verbs, tcp, count] = names.map(|name| folder.join(name));
        Ok(Bursts { programs: [verbs, tcp], count })
    }

    /// Builds the plugin of QEMU's that counts instructions; returns it.
    ///
    /// # Errors
    /// When it does not build.
    pub fn counter(&self) -> Result<PathBuf> {
        let arguments = ["build", "--profile", "plugin", "--package", "berth-count"];
        let mut command = self.cargo(&self.context.repo, "target-provider", &arguments)?;
        self.cargo_step("the plugin that counts instructions", None, "counter", &mut command)?;
        Ok(self.context.built.join("target-provider/plugin/libberth_count.so"))
    }

    /// Builds the library that is preloaded to programs of sockets, for the sysroot's Debian; returns it.
    ///
    /// # Errors
    /// When it does not build.
    pub fn preloaded(&self) -> Result<PathBuf> {
        let arguments = ["build", "--profile", "plugin", "--package", "berth-sockets"];
        let mut command = self.cargo(&self.context.repo, "target-provider", &arguments)?;
        self.cargo_step("the library for programs of sockets", None, "preloaded", &mut command)?;
        Ok(self.context.built.join("target-provider/plugin/libberth_sockets.so"))
    }

    /// A make command that builds the driver for a kernel into `output`.
    ///
    /// # Errors
    /// When the host of the stock kernel cannot be made.
    pub fn driver_make(&self, kernel: &Kernel, output: &Path, arguments: &[&str]) -> Result<Command> {
        self.driver_make_from(&self.context.repo.join("driver"), kernel, output, arguments)
    }

    fn driver_make_from(&self, source: &Path, kernel: &Kernel, output: &Path, arguments: &[&str]) -> Result<Command> {
        let stock = kernel.flavour == Flavour::Stock;
        // With the compilers that built the kernel.
        let root = if stock { Host::ensure(&self.context)?.root } else { self.sysroot.clone() };
        let mut command = root.command(&self.context.repo, &[], "make");
        command.arg("-C").arg(source).arg(format!("KERNEL={}", kernel.build.display()));
        command.arg(format!("MO={}", output.display())).args(arguments).arg("modules");
        if !stock {
            // Lets the tests make the firmware panic and hang.
            command.arg("BERTH_DEBUG=1");
        }
        Ok(command)
    }

    /// Where the driver for a kernel is built.
    fn driver_output(&self, kernel: &Kernel) -> Result<PathBuf> {
        let name = kernel.build.file_name().unwrap_or_default().display();
        self.context.built_folder(&format!("driver/{name}"))
    }

    /// Builds `berth.ko`.
    ///
    /// # Errors
    /// When it does not build.
    pub fn driver(&self, kernel: &Kernel) -> Result<PathBuf> {
        let name = kernel.flavour.name();
        let output = self.driver_output(kernel)?;
        let _lock = self.context.lock(&format!("driver-{name}"))?;
        let mut command = self.driver_make(kernel, &output, &[])?;
        let log = self.context.log(&format!("driver-{name}"))?;
        progress::run(&format!("driver for the {name} kernel"), None, &log, &mut command)?;
        Ok(output.join("berth.ko"))
    }

    /// Builds Linux' soft iWARP (siw) for the stock kernel, from its source: Debian's has everything for it, but not siw
    /// itself. Returns `siw.ko`.
    ///
    /// # Errors
    /// When it does not build.
    pub fn soft_iwarp(&self, kernel: &Kernel) -> Result<PathBuf> {
        let host = Host::ensure(&self.context)?;
        let source = kernel::unpacked(&self.context, &host)?.join("drivers/infiniband/sw/siw");
        let name = kernel.build.file_name().unwrap_or_default().display();
        let output = self.context.built_folder(&format!("soft-iwarp/{name}"))?;
        let _lock = self.context.lock("soft-iwarp")?;
        let mut command = host.root.command(&self.context.repo, &[], "make");
        command.arg("-C").arg(&kernel.build).arg(format!("M={}", source.display()));
        command.arg(format!("MO={}", output.display())).args(["CONFIG_RDMA_SIW=m", "modules"]);
        progress::run("soft iWARP for the stock kernel", None, &self.context.log("soft-iwarp")?, &mut command)?;
        Ok(output.join("siw.ko"))
    }

    /// Builds another driver than the checkout's, which is in the cache too, into `output`, where its log is `build.log`.
    ///
    /// # Errors
    /// When it does not build.
    pub fn other_driver(&self, source: &Path, kernel: &Kernel, output: &Path) -> Result<PathBuf> {
        let built = output.join("built");
        fs::create_dir_all(&built)?;
        let mut command = self.driver_make_from(source, kernel, &built, &[])?;
        progress::run("another driver", None, &output.join("build.log"), &mut command)?;
        Ok(built.join("berth.ko"))
    }

    /// The parts as they were built last.
    ///
    /// # Errors
    /// When one has never been built.
    pub fn parts_as_built(&self, flavour: Flavour) -> Result<Parts> {
        let kernel = Kernel::ensure(&self.context, &self.sysroot, flavour)?;
        let built = &self.context.built;
        let (simulator, programs) = simulator_and_programs(built);
        Ok(Parts {
            driver: Some(self.driver_output(&kernel)?.join("berth.ko")),
            firmware: Some(Firmware {
                image: built.join("firmware/berth-fw.bin"),
                elf: built.join("target-firmware/riscv32im-unknown-none-elf/release/berth-firmware"),
            }),
            simulator: Some(simulator),
            programs: Some(programs),
            kernel,
        })
    }
}
