// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests' kernels: Debian's stock kernel, and kernels that are built from its source with the fragments of
//! `ci/kernel`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::context::{Context, key, list_lines};
use crate::progress;
use crate::sysroot::{Kind, Sysroot};

/// Written into a folder of the cache when everything in it is complete.
pub const COMPLETE: &str = ".berth-complete";

/// Which kernel the guests boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flavour {
    /// Debian's, as users have it: the demo, and how the driver is installed.
    Stock,
    /// With KASAN, lockdep and DMA-API debugging: the tests.
    Test,
    /// With KCSAN, which does not go with KASAN: tests with `--long`.
    Kcsan,
}

impl Flavour {
    /// Its name in the cache and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Test => "test",
            Self::Kcsan => "kcsan",
        }
    }

    fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Stock => &[],
            Self::Test => &["base.config", "test.config"],
            Self::Kcsan => &["base.config", "kcsan.config"],
        }
    }
}

/// Makes the stock kernel's Rust metadata.
const METADATA: &str = "driver/dkms/rust-metadata.sh";

/// Modules of the stock kernel that its guests need (what they need in turn is found), and a test of an installed driver.
const GUEST_MODULES: [&str; 5] = ["9pnet_virtio", "9p", "overlay", "zram", "ib_uverbs"];

/// A Debian host with a stock kernel.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its files.
    pub root: Sysroot,
    /// Series of its kernel, e.g. "7.3".
    pub series: String,
    /// Release of its kernel, e.g. "7.3.4+deb13-amd64".
    pub release: String,
}

impl Host {
    /// Makes the host, or finds it in the cache.
    ///
    /// # Errors
    /// See [`Sysroot::host`].
    pub fn ensure(context: &Context) -> Result<Self> {
        Self::read(Sysroot::host(context)?)
    }

    /// Reads which kernel a host has.
    fn read(root: Sysroot) -> Result<Self> {
        let text = fs::read_to_string(root.path("etc/berth-linux")).context("the Debian host is damaged")?;
        let mut lines = text.lines().map(str::to_owned);
        let (Some(series), Some(release)) = (lines.next(), lines.next()) else {
            bail!("the Debian host is damaged: etc/berth-linux names no kernel");
        };
        Ok(Self { root, series, release })
    }

    /// The kernel's source, inside of the host.
    pub fn source(&self) -> String {
        format!("/usr/src/linux-source-{}.tar.xz", self.series)
    }

    /// The kernel's headers, inside of the host.
    pub fn headers(&self) -> String {
        format!("/usr/src/linux-headers-{}", self.release)
    }

    /// Version of the kernel's packages.
    ///
    /// # Errors
    /// When the host is damaged.
    pub fn version(&self) -> Result<String> {
        self.root.package_version(&format!("linux-source-{}", self.series))
    }
}

/// A kernel that is ready to boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Which one.
    pub flavour: Flavour,
    /// Its build folder, against which the driver is built.
    pub build: PathBuf,
    /// The image that QEMU boots.
    pub image: PathBuf,
}

impl Kernel {
    /// The folder with the modules that guests load at their start, in the order of their names. There is none when all
    /// is built in.
    pub fn modules(&self) -> PathBuf {
        self.build.join("guest-modules")
    }

    /// Builds the kernel, or finds it in the cache. A build that was interrupted goes on where it stopped.
    ///
    /// # Errors
    /// When the source cannot be unpacked, the configuration loses an option of the fragment, or make fails.
    pub fn ensure(context: &Context, sysroot: &Sysroot, flavour: Flavour) -> Result<Self> {
        let host = Host::ensure(context)?;
        match flavour {
            Flavour::Stock => Self::stock(context, &host),
            Flavour::Test | Flavour::Kcsan => Self::own(context, sysroot, &host, flavour),
        }
    }

    /// Whether the cache has the kernel.
    ///
    /// # Errors
    /// When the checkout or a root cannot be read.
    pub fn is_complete(context: &Context, flavour: Flavour) -> Result<bool> {
        let Some(host) = Sysroot::find(context, Kind::Host)? else { return Ok(false) };
        let host = Host::read(host)?;
        let kernel = match flavour {
            Flavour::Stock => Self::stock_place(context, &host)?,
            Flavour::Test | Flavour::Kcsan => {
                let Some(tools) = Sysroot::find(context, Kind::Tools)? else { return Ok(false) };
                Self::own_place(context, &tools, &host, flavour, &fragment(context, flavour)?)?
            }
        };
        Ok(kernel.build.join(COMPLETE).exists())
    }

    /// Where the stock kernel is, or will be.
    fn stock_place(context: &Context, host: &Host) -> Result<Self> {
        let script = context.repo.join(METADATA);
        let text = fs::read_to_string(&script).with_context(|| format!("reading {}", script.display()))?;
        let key = key([&host.version()?, &host.root.package_version("rustc")?, &text, &GUEST_MODULES.join(" ")]);
        let build = context.folder("kernel")?.join(format!("stock-{key}"));
        let image = host.root.path(&format!("boot/vmlinuz-{}", host.release));
        Ok(Self { flavour: Flavour::Stock, build, image })
    }

    /// Debian's kernel, with a build folder that has its Rust metadata.
    fn stock(context: &Context, host: &Host) -> Result<Self> {
        let kernel = Self::stock_place(context, host)?;
        let _lock = context.lock("kernel-stock")?;
        if kernel.build.join(COMPLETE).exists() {
            return Ok(kernel);
        }
        let mut command = host.root.command(&context.repo, &[], "sh");
        command.arg(context.repo.join(METADATA)).args([host.headers(), host.source()]).arg(&kernel.build);
        let title = format!("Rust metadata of Linux {}", host.release);
        progress::run(&title, Some("4 min"), &context.log("kernel-stock")?, &mut command)?;
        // The modules as they are when unpacked, because busybox does not know xz.
        let folder = format!("usr/lib/modules/{}", host.release);
        let dependencies = fs::read_to_string(host.root.path(&format!("{folder}/modules.dep")))
            .context("the stock kernel has no modules.dep")?;
        fs::create_dir_all(kernel.modules())?;
        for (n, module) in load_order(&dependencies, &GUEST_MODULES)?.iter().enumerate() {
            let name = Path::new(module).file_name().unwrap_or_default().to_string_lossy();
            let to = kernel.modules().join(format!("{n:02}-{}", name.trim_end_matches(".xz")));
            let mut command = host.root.command(&context.repo, &[], "xz");
            command.args(["-dc", &format!("/{folder}/{module}")]).stdout(Stdio::from(File::create(&to)?));
            if !command.status()?.success() {
                bail!("{module} of the stock kernel cannot be unpacked");
            }
        }
        fs::write(kernel.build.join(COMPLETE), &host.release)?;
        Ok(kernel)
    }

    /// Where a kernel of our own is, or will be.
    fn own_place(context: &Context, sysroot: &Sysroot, host: &Host, flavour: Flavour, fragment: &str) -> Result<Self> {
        // The compilers are part of the key: a driver must be built with the rustc that built its kernel.
        let rustc = sysroot.package_version("rustc")?;
        let clang = sysroot.package_version("clang")?;
        let options = format!("{:?}", options(fragment));
        let key = key([&host.version()?, &options, &rustc, &clang]);
        let build = context.folder("kernel")?.join(format!("{}-{key}", flavour.name()));
        let image = build.join("arch/x86/boot/bzImage");
        Ok(Self { flavour, build, image })
    }

    /// A kernel of our own, with a configuration of `ci/kernel`.
    fn own(context: &Context, sysroot: &Sysroot, host: &Host, flavour: Flavour) -> Result<Self> {
        let series = &host.series;
        let version = host.version()?;
        let fragment = fragment(context, flavour)?;
        let kernel = Self::own_place(context, sysroot, host, flavour, &fragment)?;
        if kernel.build.join(COMPLETE).exists() {
            return Ok(kernel);
        }
        let _lock = context.lock("kernel")?;
        if kernel.build.join(COMPLETE).exists() {
            return Ok(kernel);
        }
        let source = source(context, host)?;
        fs::create_dir_all(&kernel.build)?;
        let config = kernel.build.join("berth-fragment");
        fs::write(&config, &fragment)?;
        let make = |targets: &[&str]| {
            let mut command = sysroot.command(&source, &[], "make");
            command.arg("LLVM=1").arg(format!("O={}", kernel.build.display())).args(targets);
            command.env("KCONFIG_ALLCONFIG", &config);
            command
        };
        let name = flavour.name();
        let log = context.log(&format!("kernel-{name}-config"))?;
        progress::run(
            &format!("configuring the {name} kernel"),
            None,
            &log,
            &mut make(&["rustavailable", "allnoconfig"]),
        )?;
        let lost = lost_options(&fragment, &fs::read_to_string(kernel.build.join(".config"))?);
        if !lost.is_empty() {
            bail!(
                "Linux {version} drops these lines of ci/kernel/{{{}}} (a dependency of theirs is missing): {}",
                flavour.fragments().join(","),
                lost.join(", ")
            );
        }
        let log = context.log(&format!("kernel-{name}"))?;
        let jobs = format!("-j{}", available_parallelism().map_or(2, usize::from));
        let title = format!("Linux {series} with Rust, {name} kernel");
        progress::run(&title, Some("12 min"), &log, &mut make(&[&jobs, "bzImage", "modules"]))?;
        fs::write(kernel.build.join(COMPLETE), &version)?;
        Ok(kernel)
    }
}

/// The configuration of a kernel of our own.
fn fragment(context: &Context, flavour: Flavour) -> Result<String> {
    let mut fragment = String::new();
    for name in flavour.fragments() {
        let path = context.repo.join("ci/kernel").join(name);
        fragment += &fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    }
    Ok(fragment)
}

/// The stock kernel's source, unpacked.
///
/// # Errors
/// When it cannot be unpacked.
pub fn unpacked(context: &Context, host: &Host) -> Result<PathBuf> {
    let _lock = context.lock("kernel")?;
    source(context, host)
}

/// Unpacks the stock kernel's source.
fn source(context: &Context, host: &Host) -> Result<PathBuf> {
    let version = host.version()?;
    let folder = context.folder("linux")?.join(key([&version]));
    let source = folder.join(format!("linux-source-{}", host.series));
    if source.exists() {
        return Ok(source);
    }
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let mut command = host.root.command(&partial, &[], "tar");
    command.args(["-x", "--no-same-owner", "-f", &host.source()]);
    progress::run(&format!("unpacking Linux {version}"), Some("1 min"), &context.log("linux-source")?, &mut command)?;
    fs::rename(&partial, &folder)?;
    Ok(source)
}

/// The files of modules and of what they need, in an order in which they can be loaded; `dependencies` is the text of
/// modules.dep.
fn load_order(dependencies: &str, wanted: &[&str]) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let is_it = |file: &str| file.rsplit('/').next().is_some_and(|f| f.split('.').next() == Some(name));
        let line = dependencies.lines().filter_map(|line| line.split_once(':')).find(|(file, _)| is_it(file));
        let (file, needs) = line.with_context(|| format!("the stock kernel has no module {name}"))?;
        // What is needed first stands last.
        for module in needs.split_whitespace().rev().chain([file]) {
            if !order.iter().any(|m| m == module) {
                order.push(module.to_owned());
            }
        }
    }
    Ok(order)
}

/// What a fragment asks for: the last line about an option counts.
fn options(fragment: &str) -> BTreeMap<&str, &str> {
    list_lines(fragment).filter_map(|line| line.split_once('=')).collect()
}

/// The lines of a fragment that the final configuration does not have.
fn lost_options(fragment: &str, config: &str) -> Vec<String> {
    let has = |line: &str| config.lines().any(|l| l == line);
    options(fragment)
        .into_iter()
        .filter(|(name, value)| match *value {
            "n" => has(&format!("{name}=y")) || has(&format!("{name}=m")),
            value => !has(&format!("{name}={value}")),
        })
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_need() {
        let text =
            "net/9p.ko.xz: net/9pnet.ko.xz fs/netfs.ko.xz\nnet/9pnet_virtio.ko.xz: net/9pnet.ko.xz fs/netfs.ko.xz\n";
        let order = load_order(text, &["9pnet_virtio", "9p"]).expect("both are there");
        assert_eq!(order, ["fs/netfs.ko.xz", "net/9pnet.ko.xz", "net/9pnet_virtio.ko.xz", "net/9p.ko.xz"]);
        assert!(load_order(text, &["9"]).is_err());
    }

    #[test]
    fn lost_options_are_found_in_both_directions() {
        let fragment = "CONFIG_A=y\n# note\nCONFIG_B=n\nCONFIG_C=300\nCONFIG_D=n\nCONFIG_E=y\nCONFIG_E=n\n";
        let config = "CONFIG_A=y\nCONFIG_C=21\nCONFIG_D=m\n# CONFIG_B is not set\n";
        assert_eq!(lost_options(fragment, config), ["CONFIG_C=300", "CONFIG_D=n"]);
    }
}
