// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver as others build it: by DKMS on a Debian host with its stock kernel, and inside a kernel tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::guest::{self, Role};
use crate::kernel::{Flavour, Host, Kernel};
use crate::progress::{self, Progress};
use crate::steps::Builder;
use crate::sysroot::Sysroot;

/// The page that says how to install the driver; the test runs its commands.
const PAGE: &str = "docs/start/install.md";

/// The ordinary user who uses the card.
const USER: &str = "sailor";

/// What stands before the page's commands: each is shown, and the first that fails ends all. They run as root, for the
/// kernel that will be booted.
const PREFIX: &str = r#"set -eux
sudo() { "$@"; }
uname() { echo "$RELEASE"; }
"#;

/// What the user does with the card, after the page's commands: the file goes through the card and back.
const TRANSFER: &str = r#"
udevadm settle
[ "$(stat -c '%U %G %a' /dev/berth0)" = 'root berth 660' ]
modinfo -n berth | grep -q '/updates/dkms/'
head -c 300000 /dev/urandom > /tmp/original
chmod 644 /tmp/original
cat > /tmp/transfer << 'END'
set -eux
[ "$(id -u)" != 0 ]
berth recv --listen 7 --out /tmp/copy &
berth send --to 192.0.2.1:7 --file /tmp/original
wait
cmp /tmp/original /tmp/copy
END
runuser -u "$USER" -- sh /tmp/transfer
# Who is not in the group may not, and is told why.
if runuser -u nobody -- berth send --to 192.0.2.1:7 --file /tmp/original 2> /tmp/refused; then exit 1; fi
cat /tmp/refused
grep -q 'group berth' /tmp/refused
# Not modprobe, which fails when another module still uses the RDMA core.
sudo rmmod berth
"#;

/// Where the driver goes in a kernel tree.
const PLACE: &str = "drivers/infiniband/hw/berth";

/// Puts the driver into a kernel tree ($1 the tree, a copy of hard links: files that change are made anew; $2 the
/// checkout) and makes what a build folder needs besides objects ($3 from, $4 to).
const IN_TREE: &str = r#"
for file in drivers/infiniband/Kconfig drivers/infiniband/hw/Makefile; do
    cp "$1/$file" "$1/$file.new"
    mv "$1/$file.new" "$1/$file"
done
mkdir "$1/$PLACE"
cp -r "$2"/driver/. "$2/Kconfig" "$1/$PLACE/"
sed -i "0,/^source .*hw.*Kconfig/s,,source \"$PLACE/Kconfig\"\n&," "$1/drivers/infiniband/Kconfig"
grep -q "$PLACE/Kconfig" "$1/drivers/infiniband/Kconfig"
echo 'obj-$(CONFIG_BERTH) += berth/' >> "$1/drivers/infiniband/hw/Makefile"
cd "$3"
cp -a .config Makefile include scripts rust tools arch "$4"
find . -name '*.s' -path './kernel/*' -exec cp --parents -a {} "$4" \;
printf 'CONFIG_BERTH=m\nCONFIG_BERTH_DEBUG=y\n' >> "$4/.config"
"#;

/// Builds in a tree with the driver in it, in a folder that has seen it.
const BUILD: &str = r#"
make LLVM=1 O="$1" olddefconfig
grep -qx CONFIG_BERTH=m "$1/.config"
grep -qx CONFIG_BERTH_DEBUG=y "$1/.config"
make LLVM=1 O="$1" "$PLACE/"
test -s "$1/$PLACE/berth.o"
"#;

/// A copy of the Debian host in a folder. It is made of hard links: what is installed there must be new files, and then
/// changes none of the host's.
///
/// # Errors
/// When it cannot be made.
pub fn copy_of(host: &Host, folder: &Path) -> Result<Sysroot> {
    let root = folder.join("root");
    let status = Command::new("cp").arg("-al").arg(host.root.path("/")).arg(&root).status()?;
    if !status.success() {
        bail!("the Debian host cannot be copied");
    }
    Ok(host.root.at(&root))
}

/// An empty folder in the cache.
///
/// # Errors
/// When it cannot be made.
pub fn fresh(builder: &Builder, name: &str) -> Result<PathBuf> {
    let folder = builder.context.built_folder(name)?;
    fs::remove_dir_all(&folder)?;
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// Writes what a host needs to use a card into a folder: the driver's sources, the firmware, the program `berth`, the provider
/// of libibverbs, the library for programs of sockets.
///
/// # Errors
/// When a part does not build, or the folder is there already or cannot be written.
pub fn package(builder: &Builder, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    copy(&builder.context.repo.join("driver"), &to.join("driver"))?;
    fs::copy(builder.firmware()?.image, to.join("berth-fw.bin"))?;
    fs::copy(builder.guest_programs(Flavour::Stock)?.join("berth"), to.join("berth"))?;
    for file in builder.provider()?.into_iter().chain([builder.preloaded()?]) {
        fs::copy(&file, to.join(file.file_name().context("it has a name")?))?;
    }
    Ok(())
}

/// Installs Berth on a copy of the Debian host with the page's commands, and boots that copy: module, firmware, udev rule,
/// and a transfer as an ordinary user. Answers how many checks there were.
///
/// # Errors
/// Says what went wrong.
pub fn install(builder: &Builder, progress: &mut Progress) -> Result<u64> {
    let text = fs::read_to_string(builder.context.repo.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let host = Host::ensure(&builder.context)?;
    let kernel = Kernel::ensure(&builder.context, &builder.sysroot, Flavour::Stock)?;
    let missing = missing_packages(&host, &commands(&text, "Packages")?);
    if !missing.is_empty() {
        bail!("{PAGE} has the user install what the tested host does not have: {}", missing.join(", "));
    }
    progress.detail("packing");
    let folder = fresh(builder, "install")?;
    let package = folder.join("berth");
    self::package(builder, &package)?;
    progress.detail("copying the host");
    let root = copy_of(&host, &folder)?;
    // The metadata that the page's PRE_BUILD would take minutes to make is here already.
    let metadata = root.path(&format!("var/lib/berth/rust-{}", host.release));
    fs::create_dir_all(metadata.parent().context("it has a parent")?)?;
    std::os::unix::fs::symlink(&kernel.build, &metadata)?;

    progress.detail("DKMS");
    let native = format!(
        "{PREFIX}useradd -m {USER}\n{}\nmodinfo -k \"$RELEASE\" berth\nls /lib/firmware/berth/berth-fw.bin\n",
        commands(&text, "Install")?
    );
    let mut command = root.command_as_root(&package, "sh");
    command.args(["-c", &native]).env("RELEASE", &host.release).env("USER", USER).env("LOGNAME", USER);
    let log = builder.context.log("install")?;
    let output = progress::output(progress, &log, &mut command)?;
    if !output.ok {
        bail!("{}", progress::failure("installing as docs/start/install.md says", &log, &output.lines));
    }

    progress.detail("booting the host");
    let mut options = guest::Options::new(Flavour::Stock);
    options.roles = vec![Role::A];
    options.memory = 1024;
    options.host = Some(root.path("/"));
    let mut parts = builder.parts_as_built(Flavour::Stock)?;
    // The host has its own driver, firmware and programs.
    (parts.driver, parts.firmware, parts.programs) = (None, None, None);
    parts.simulator = Some(builder.simulator(false)?);
    let mut run = guest::Run::new()?;
    run.script(
        Role::A,
        &format!(
            "{PREFIX}RELEASE={} USER={USER}\n/lib/systemd/systemd-udevd --daemon\n{}\n{TRANSFER}",
            host.release,
            commands(&text, "Use")?
        ),
    )?;
    let end = guest::run(builder, &parts, &options, &run, progress)?;
    let faults = end.faults();
    if !faults.is_empty() {
        run.preserve();
        let output: Vec<String> = end.guests.values().flat_map(|guest| guest.output.clone()).collect();
        bail!("{}\n{}\nlogs: {}", faults.join("\n"), output.join("\n"), run.folder.display());
    }
    fs::remove_dir_all(&folder)?;
    Ok(2)
}

/// The commands in the blocks of shell commands under a heading of a page.
fn commands(page: &str, heading: &str) -> Result<String> {
    let (mut here, mut block, mut found) = (false, false, String::new());
    for line in page.lines() {
        match line {
            _ if line.starts_with("## ") => here = line[3..] == *heading,
            "```sh" => block = true,
            "```" => block = false,
            _ if here && block => {
                found += line;
                found.push('\n');
            }
            _ => {}
        }
    }
    if found.is_empty() {
        bail!("the page has no commands under {heading:?}");
    }
    Ok(found)
}

/// The packages that `apt install` lines name and a host does not have. Of a package of Debian's kernel that names no
/// version it has the one that belongs to its kernel.
fn missing_packages(host: &Host, commands: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for line in commands.replace("\\\n", " ").lines() {
        let Some((_, names)) = line.split_once("apt install ") else { continue };
        let names = names.split_whitespace().filter(|word| !word.starts_with('-') && *word != "trixie-backports");
        for name in names {
            let package = match name {
                "linux-image-amd64" => format!("linux-image-{}", host.release),
                "linux-headers-amd64" => format!("linux-headers-{}", host.release),
                name => name.to_owned(),
            };
            if host.root.package_version(&package).is_err() {
                missing.push(package);
            }
        }
    }
    missing
}

/// Commands that put the driver into a copy of the kernel's tree, and build it there.
///
/// # Errors
/// When the folders for it cannot be made.
pub fn in_tree(builder: &Builder, kernel: &Kernel) -> Result<(Command, Command)> {
    let build = kernel.build.canonicalize()?;
    let source = fs::read_link(build.join("source")).context("the kernel's build folder does not name its source")?;
    let folder = fresh(builder, "in-tree")?;
    let (tree, objects) = (folder.join("tree"), folder.join("objects"));
    fs::create_dir(&objects)?;
    let mut prepare = builder.sysroot.command(&folder, &[], "sh");
    prepare.args(["-euxc", &format!("cp -al \"$5\" \"$1\"\n{IN_TREE}"), "in-tree"]);
    prepare.arg(&tree).arg(&builder.context.repo).arg(&build).arg(&objects).arg(&source).env("PLACE", PLACE);
    // Under the names that the kernel was built with, so that nothing else is built anew.
    let binds = [(&*tree, &*source), (&*objects, &*build)];
    let mut make = builder.sysroot.command_over(&source, &binds, "sh");
    make.args(["-euxc", BUILD, "in-tree"]).arg(&build).env("PLACE", PLACE);
    Ok((prepare, make))
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_page_are_those_under_the_heading() {
        let page = "# A\n## One\n```sh\na\n```\ntext\n```sh\nb \\\n  c\n```\n## Two\n```sh\nd\n```\n```\nno\n```\n";
        assert_eq!(commands(page, "One").expect("there are some"), "a\nb \\\n  c\n");
        assert_eq!(commands(page, "Two").expect("there is one"), "d\n");
        assert!(commands(page, "Three").is_err());
    }
}
