// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests' kernels, built from Debian's linux-source package with the fragments of `ci/kernel`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::context::{Context, key, list_lines};
use crate::progress;
use crate::sysroot::Sysroot;

/// Written into a folder of the cache when everything in it is complete.
pub const COMPLETE: &str = ".berth-complete";

/// Which kernel the guests boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flavour {
    /// Small and fast: the demo.
    Base,
    /// With KASAN, lockdep and DMA-API debugging: the tests.
    Test,
    /// With KCSAN, which does not go with KASAN: tests with `--long`.
    Kcsan,
}

impl Flavour {
    /// Its name in the cache and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Test => "test",
            Self::Kcsan => "kcsan",
        }
    }

    fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Base => &["base.config"],
            Self::Test => &["base.config", "test.config"],
            Self::Kcsan => &["base.config", "kcsan.config"],
        }
    }

    fn estimate(self) -> &'static str {
        match self {
            Self::Base => "10 min",
            Self::Test | Self::Kcsan => "16 min",
        }
    }
}

/// A built kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Which one.
    pub flavour: Flavour,
    /// Its build folder, against which the driver is built.
    pub build: PathBuf,
}

impl Kernel {
    /// The image that QEMU boots.
    pub fn image(&self) -> PathBuf {
        self.build.join("arch/x86/boot/bzImage")
    }

    /// Builds the kernel, or finds it in the cache. A build that was interrupted goes on where it stopped.
    ///
    /// # Errors
    /// When the source cannot be unpacked, the configuration loses an option of the fragment, or make fails.
    pub fn ensure(context: &Context, sysroot: &Sysroot, flavour: Flavour) -> Result<Self> {
        let series = sysroot.linux_series()?;
        let version = sysroot.package_version(&format!("linux-source-{series}"))?;
        let mut fragment = String::new();
        for name in flavour.fragments() {
            let path = context.repo.join("ci/kernel").join(name);
            fragment += &fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        }
        // The compilers are part of the key: a driver must be built with the rustc that built its kernel.
        let rustc = sysroot.package_version("rustc")?;
        let clang = sysroot.package_version("clang")?;
        let options = format!("{:?}", options(&fragment));
        let key = key([&version, &options, &rustc, &clang]);
        let build = context.folder("kernel")?.join(format!("{}-{key}", flavour.name()));
        let kernel = Self { flavour, build };
        if kernel.build.join(COMPLETE).exists() {
            return Ok(kernel);
        }
        let _lock = context.lock("kernel")?;
        if kernel.build.join(COMPLETE).exists() {
            return Ok(kernel);
        }
        let source = source(context, sysroot, &series, &version)?;
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
        progress::run(&title, Some(flavour.estimate()), &log, &mut make(&[&jobs, "bzImage", "modules"]))?;
        fs::write(kernel.build.join(COMPLETE), &version)?;
        Ok(kernel)
    }
}

/// Unpacks the source that the sysroot brings.
fn source(context: &Context, sysroot: &Sysroot, series: &str, version: &str) -> Result<PathBuf> {
    let folder = context.folder("linux")?.join(key([version]));
    let source = folder.join(format!("linux-source-{series}"));
    if source.exists() {
        return Ok(source);
    }
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let mut command = sysroot.command(&partial, &[], "tar");
    command.args(["-x", "--no-same-owner", "-f", &format!("/usr/src/linux-source-{series}.tar.xz")]);
    progress::run(&format!("unpacking Linux {version}"), Some("1 min"), &context.log("linux-source")?, &mut command)?;
    fs::rename(&partial, &folder)?;
    Ok(source)
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
    fn lost_options_are_found_in_both_directions() {
        let fragment = "CONFIG_A=y\n# note\nCONFIG_B=n\nCONFIG_C=300\nCONFIG_D=n\nCONFIG_E=y\nCONFIG_E=n\n";
        let config = "CONFIG_A=y\nCONFIG_C=21\nCONFIG_D=m\n# CONFIG_B is not set\n";
        assert_eq!(lost_options(fragment, config), ["CONFIG_C=300", "CONFIG_D=n"]);
    }
}
