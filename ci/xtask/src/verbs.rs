// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that others wrote for verbs, on two Debian hosts: libibverbs and all that use it are Debian's. Of Berth are the
//! driver, the firmware, and the library that libibverbs loads for the card. One host may have Linux' soft RoCE (rxe) in place
//! of a card.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::guest::{Options, Role, Run};
use crate::kernel::{Flavour, Host, Kernel};
use crate::packaging::{copy_of, fresh};
use crate::steps::{Builder, Parts};

/// What both guests do, and what it starts beside the programs of others, by name.
const FILES: [(&str, &str); 5] = [
    ("guest.sh", include_str!("../../verbs/guest.sh")),
    ("memory.py", include_str!("../../verbs/memory.py")),
    ("reset.py", include_str!("../../verbs/reset.py")),
    ("rxe.sh", include_str!("../../verbs/rxe.sh")),
    ("suite.py", include_str!("../../verbs/suite.py")),
];

/// Where libibverbs looks for the libraries of devices, and the file that names one.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu/libibverbs";
const NAMES: &str = "etc/libibverbs.d";

/// A Debian host with everything of Berth on it, in a folder of the cache, and what its guests need beside it.
pub struct Installed {
    /// Kernel and simulator. Of programs the host has Debian's alone.
    pub parts: Parts,
    root: PathBuf,
    folder: PathBuf,
}

impl Installed {
    /// Builds and installs all of it.
    ///
    /// # Errors
    /// When a part does not build, or the copy of the host cannot be made.
    pub fn new(builder: &Builder) -> Result<Self> {
        let kernel = Kernel::ensure(&builder.context, &builder.sysroot, Flavour::Test)?;
        let (driver, firmware, simulator) = (builder.driver(&kernel)?, builder.firmware()?, builder.simulator(false)?);
        let provider = builder.provider()?;
        let host = Host::ensure(&builder.context)?;
        let folder = fresh(builder, "verbs")?;
        let root = copy_of(&host, &folder)?;
        // The guests' files are read-only.
        fs::create_dir(root.path("mnt/share"))?;
        let parts = Parts { kernel, driver: None, firmware: None, simulator: Some(simulator), programs: None };
        let installed = Self { parts, root: root.path("/"), folder };
        installed.add(&driver, "usr/lib/modules/berth.ko")?;
        installed.add(&firmware.image, "usr/lib/firmware/berth/berth-fw.bin")?;
        for (file, folder) in provider.iter().zip([LIBRARIES, NAMES]) {
            let name = file.file_name().context("it has a name")?.display();
            installed.add(file, &format!("{folder}/{name}"))?;
        }
        Ok(installed)
    }

    /// Puts a file into the host.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn add(&self, from: &Path, to: &str) -> Result<()> {
        self.copy(from, to, 0o644)
    }

    /// Puts a program into the host, where its shell finds it.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn add_program(&self, from: &Path) -> Result<()> {
        let name = from.file_name().context("it has a name")?.display();
        self.copy(from, &format!("usr/bin/{name}"), 0o755)
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let to = self.root.join(to);
        fs::create_dir_all(to.parent().context("it has a parent")?)?;
        fs::copy(from, &to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
    }

    /// Changes the usual options to those of such guests.
    pub fn set(&self, options: &mut Options) {
        options.host = Some(self.root.clone());
        options.cpus = 2;
        // Programs whose ends wait for each other take long where much else runs.
        options.limit = Duration::from_secs(60 * 60);
    }

    /// Lets guest b be a host with rxe: Debian's kernel as users have it, and soft iWARP beside it.
    ///
    /// # Errors
    /// See [`Kernel::ensure`] and [`Builder::soft_iwarp`].
    pub fn set_rxe(&self, builder: &Builder, options: &mut Options) -> Result<()> {
        let kernel = Kernel::ensure(&builder.context, &builder.sysroot, Flavour::Stock)?;
        self.add(&builder.soft_iwarp(&kernel)?, "usr/lib/modules/siw.ko")?;
        options.foreign = Some(kernel);
        Ok(())
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Puts what the guests do into the folder of a run: the tests whose names contain `filter`,
/// and the tests of pyverbs if they are to be `long`; or those of a card and `rxe`.
///
/// # Errors
/// When it cannot be written.
pub fn prepare(run: &Run, filter: &str, long: bool, rxe: bool) -> Result<()> {
    for (name, text) in FILES {
        fs::write(run.share.join(name), text)?;
    }
    // By Debian's shell. What runs a guest's script is busybox, which has its own `ip`, `ping` and others.
    let filter = filter.replace('\'', "");
    let script = format!("filter='{filter}' long={long} rxe={rxe} exec /bin/sh /mnt/share/guest.sh\n");
    Role::ALL.into_iter().try_for_each(|role| run.script(role, &script))
}
