// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Debian roots, made by mmdebstrap and entered with bubblewrap: the sysroot with the tools that build and run
//! everything, and a Debian host with its stock kernel, on which the driver is installed as users install it. Each is a
//! folder of the cache; its name is a hash of how it is made, so a change in `ci/packages` makes a new one.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::context::{Context, key, list_lines, owned_by_us};
use crate::progress::{self, Progress};

/// The Debian release of the sysroot.
const SUITE: &str = "trixie";
/// What the host must have, as Debian and Ubuntu name it.
const HOST_PACKAGES: [&str; 3] = ["mmdebstrap", "bubblewrap", "debian-archive-keyring"];
/// Environment of the user that reaches into the sysroot: how to get to the network and nothing else, so that the
/// user's compiler settings do not change what is built.
const PASSED: [&str; 18] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CARGO_HTTP_CAINFO",
    "CARGO_HTTP_PROXY",
    "CARGO_NET_OFFLINE",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_CERT",
    "PIP_PROXY",
    "PIP_TRUSTED_HOST",
    "TERM",
    "RUST_BACKTRACE",
];

/// Which root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tools.
    Tools,
    /// A host with the stock kernel.
    Host,
}

impl Kind {
    /// Its list in `ci/packages`.
    fn list(self) -> &'static str {
        match self {
            Self::Tools => "debian.txt",
            Self::Host => "host.txt",
        }
    }

    /// Its name for users.
    pub fn title(self) -> &'static str {
        match self {
            Self::Tools => "Debian with the tools",
            Self::Host => "Debian host with the stock kernel",
        }
    }
}

/// A root that is ready to run commands.
#[derive(Clone, Debug)]
pub struct Sysroot {
    root: PathBuf,
    bwrap: PathBuf,
    context: Context,
}

/// The package lists of a root.
struct Packages {
    kind: Kind,
    /// (suite, packages) in the order of the file.
    suites: Vec<(String, Vec<String>)>,
    /// Kernel series, newest last; for a host.
    linux: Vec<String>,
    /// Hash of everything that decides what the root contains.
    key: String,
}

/// Finds the newest stock kernel of the series in `$series_list` whose image, headers and source are offered in the same
/// version, and installs the three.
const STOCK_KERNEL: &str = r#"
found=
for series in $series_list; do
    for headers in $(apt-cache pkgnames "linux-headers-$series." | grep -E '^linux-headers-[0-9.]+\+deb13-amd64$' | sort -V); do
        release=${headers#linux-headers-}
        version=$(apt-cache madison "$headers" | awk 'NR == 1 { print $3 }')
        for package in "linux-image-$release" "linux-source-$series"; do
            apt-cache madison "$package" | awk '{ print $3 }' | grep -qxF "$version" || continue 2
        done
        found="$series $release $version"
    done
done
if [ -z "$found" ]; then
    echo "No stock kernel with Rust that is known to work is offered. Known good: $series_list. Offered:"
    apt-cache pkgnames linux-headers- | grep -E '^linux-headers-[0-9.]+\+deb13-amd64$' || true
    echo 'Try a new series by adding it to ci/packages/linux.txt.'
    exit 1
fi
set -- $found
apt-get install -y --no-install-recommends -t trixie-backports "linux-image-$2=$3" "linux-headers-$2=$3" "linux-source-$1=$3"
printf '%s\n' "$1" "$2" > /etc/berth-linux
"#;

impl Packages {
    fn read(repo: &Path, kind: Kind) -> Result<Self> {
        let folder = repo.join("ci/packages");
        let read =
            |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("reading ci/packages/{name}"));
        let debian = read(kind.list())?;
        let mut suites: Vec<(String, Vec<String>)> = Vec::new();
        for line in list_lines(&debian) {
            if let Some(suite) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                suites.push((suite.to_owned(), Vec::new()));
            } else {
                let (_, packages) = suites
                    .last_mut()
                    .with_context(|| format!("{} has a package before its first [suite]", kind.list()))?;
                packages.push(line.to_owned());
            }
        }
        let linux = match kind {
            Kind::Tools => Vec::new(),
            Kind::Host => list_lines(&read("linux.txt")?).map(str::to_owned).collect(),
        };
        let mut this = Self { kind, suites, linux, key: String::new() };
        this.key = key([SUITE, &this.script()]);
        Ok(this)
    }

    /// The shell script that turns a minimal system into the root, from inside of it.
    fn script(&self) -> String {
        let mut script = format!(
            "set -eu\n\
             export DEBIAN_FRONTEND=noninteractive INITRD=No\n\
             # The mirror that made this system has the backports too.\n\
             line=$(grep -m1 ' {SUITE} main' /etc/apt/sources.list) || {{ echo 'no line for {SUITE} main in /etc/apt/sources.list'; exit 1; }}\n\
             echo \"$line\" | sed 's/ {SUITE} main/ {SUITE}-backports main/' > /etc/apt/sources.list.d/backports.list\n\
             for path in locale man doc; do echo \"path-exclude=/usr/share/$path/*\"; done > /etc/dpkg/dpkg.cfg.d/berth\n\
             apt-get update\n",
        );
        if self.kind == Kind::Host {
            // The tests of pyverbs lie among its documentation. What does not include the folder above does not make it.
            script += "echo 'path-include=/usr/share/doc/rdma-core*' >> /etc/dpkg/dpkg.cfg.d/berth\n";
        }
        for (suite, packages) in &self.suites {
            // `-t` only where it is needed: `-t trixie` would refuse the newer packages of trixie's own updates.
            let target = if suite == SUITE { String::new() } else { format!("-t {suite} ") };
            script += &format!("apt-get install -y --no-install-recommends {target}{}\n", packages.join(" "));
        }
        if self.kind == Kind::Host {
            script += &format!("series_list='{}'{STOCK_KERNEL}", self.linux.join(" "));
        }
        script += "apt-get clean\n\
                   dpkg-query -W > /etc/berth-packages\n";
        script
    }
}

impl Sysroot {
    /// Makes the sysroot with the tools, or finds it in the cache.
    ///
    /// # Errors
    /// When the host lacks mmdebstrap or bubblewrap and this cannot install them, or when no mirror can be reached.
    pub fn ensure(context: &Context) -> Result<Self> {
        Self::make(context, Kind::Tools)
    }

    /// Makes a Debian host with its stock kernel, or finds it in the cache.
    ///
    /// # Errors
    /// As [`Sysroot::ensure`], and when the mirror offers no kernel of `ci/packages/linux.txt`.
    pub fn host(context: &Context) -> Result<Self> {
        Self::make(context, Kind::Host)
    }

    /// Where a root of these packages is, or will be.
    fn place(context: &Context, packages: &Packages) -> Result<PathBuf> {
        Ok(context.folder("sysroot")?.join(&packages.key))
    }

    /// The root, if it is in the cache, to look at its files.
    ///
    /// # Errors
    /// When `ci/packages` cannot be read.
    pub fn find(context: &Context, kind: Kind) -> Result<Option<Self>> {
        let root = Self::place(context, &Packages::read(&context.repo, kind)?)?;
        Ok(root.exists().then(|| Self { root, bwrap: "bwrap".into(), context: context.clone() }))
    }

    fn make(context: &Context, kind: Kind) -> Result<Self> {
        let packages = Packages::read(&context.repo, kind)?;
        let root = Self::place(context, &packages)?;
        if !root.exists() {
            let _lock = context.lock(kind.list())?;
            // Another one may have made it while this one waited.
            if !root.exists() {
                host_tool("mmdebstrap")?;
                build(context, &packages, &root)?;
            }
        }
        let bwrap = host_tool("bwrap")?;
        let sysroot = Self { root, bwrap, context: context.clone() };
        let probe = sysroot.command(&context.repo, &[], "true").output().context("starting bwrap")?;
        if !probe.status.success() {
            bail!(
                "bubblewrap cannot enter the sysroot: {}\nIt needs either root or unprivileged user namespaces (on Ubuntu \
                 24.04 and later an AppArmor profile for bwrap, or kernel.apparmor_restrict_unprivileged_userns=0).",
                String::from_utf8_lossy(&probe.stderr).trim()
            );
        }
        Ok(sysroot)
    }

    /// A path inside of the sysroot, as the host sees it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// Version of an installed Debian package.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn package_version(&self, name: &str) -> Result<String> {
        let all = fs::read_to_string(self.path("etc/berth-packages")).context("the sysroot is damaged")?;
        all.lines()
            .filter_map(|l| l.split_once('\t'))
            .find(|(n, _)| n.split(':').next() == Some(name))
            .map(|(_, version)| version.to_owned())
            .with_context(|| format!("{name} is not in the sysroot"))
    }

    /// A command that runs inside. The checkout and the cache are visible at their own paths, `binds` too, and
    /// everything it starts ends with it.
    pub fn command(&self, cwd: &Path, binds: &[&Path], program: impl AsRef<OsStr>) -> Command {
        let mut c = Command::new(&self.bwrap);
        c.env_clear();
        for name in PASSED {
            if let Some(value) = std::env::var_os(name) {
                c.env(name, value);
            }
        }
        let cargo_home = self.context.cache.join("cargo");
        c.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.context.cache.join("home"))
            .env("LANG", "C.UTF-8")
            .env("CARGO_HOME", cargo_home)
            .env("CARGO_TERM_PROGRESS_WHEN", "never");
        c.args(["--die-with-parent", "--unshare-pid", "--bind"]).arg(&self.root).arg("/");
        c.args(["--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp"]);
        c.args(["--dev-bind-try", "/dev/kvm", "/dev/kvm", "--dev-bind-try", "/dev/net/tun", "/dev/net/tun"]);
        // A company's certificate authority must be known to cargo and pip inside too.
        c.args(["--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs"]);
        c.args(["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]);
        for path in [&*self.context.cache, &*self.context.repo].iter().chain(binds) {
            c.arg("--bind").arg(path).arg(path);
        }
        c.arg("--chdir").arg(cwd).arg("--").arg(program);
        c
    }

    /// Another root, in the cache, that is entered in the same way.
    pub fn at(&self, root: &Path) -> Self {
        Self { root: root.to_owned(), ..self.clone() }
    }

    /// A command that runs as the root's superuser, which is the calling user.
    pub fn command_as_root(&self, cwd: &Path, program: impl AsRef<OsStr>) -> Command {
        let base = self.command(cwd, &[], program);
        if nix::unistd::Uid::effective().is_root() {
            return base;
        }
        let mut c = without_arguments(&base);
        c.args(["--unshare-user", "--uid", "0", "--gid", "0"]).args(base.get_args());
        c
    }

    /// A command that sees other folders under some names: `over` has (the folder, the name that it goes by).
    pub fn command_over(&self, cwd: &Path, over: &[(&Path, &Path)], program: impl AsRef<OsStr>) -> Command {
        // The outer one has the sysroot and its own bwrap is not in there, so its arguments are continued.
        let base = self.command(cwd, &[], program);
        let mut c = without_arguments(&base);
        for argument in base.get_args() {
            if argument == "--chdir" {
                for (folder, name) in over {
                    c.arg("--bind").arg(folder).arg(name);
                }
            }
            c.arg(argument);
        }
        c
    }
}

/// A command with the program and the environment of another one.
fn without_arguments(command: &Command) -> Command {
    let mut c = Command::new(command.get_program());
    c.env_clear().envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    c
}

/// Finds a tool of the host, installing it when that is possible.
fn host_tool(name: &str) -> Result<PathBuf> {
    let find = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|p| p.join(name)).find(|p| p.is_file())
    };
    if let Some(path) = find() {
        return Ok(path);
    }
    let packages = HOST_PACKAGES.join(" ");
    let root = nix::unistd::Uid::effective().is_root();
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        let more = if root { "" } else { " uidmap" };
        bail!(
            "{name} is missing. Install what cargo xtask needs once, then run the same command again:\n    \
             sudo apt-get update && sudo apt-get install {packages}{more}\n(on another distribution: its packages for \
             mmdebstrap, bubblewrap and Debian's archive keys)"
        );
    }
    let log = std::env::temp_dir().join(format!("berth-apt-{}.log", std::process::id()));
    let apt = format!("apt-get update && apt-get install -y {packages}");
    let mut command = Command::new("sh");
    command.args(["-c", &apt]).env("DEBIAN_FRONTEND", "noninteractive");
    progress::run(&format!("installing {packages}"), None, &log, &mut command)?;
    fs::remove_file(&log).ok();
    find().with_context(|| format!("{name} is still missing after installing {packages}"))
}

/// Builds the sysroot under a temporary name and renames it when it is complete.
fn build(context: &Context, packages: &Packages, root: &Path) -> Result<()> {
    let is_root = nix::unistd::Uid::effective().is_root();
    let partial = root.with_extension("partial");
    let script = context.folder("tmp")?.join(format!("{}.sh", packages.kind.list()));
    fs::write(&script, packages.script())?;
    let mut progress = Progress::start(packages.kind.title(), Some("4 min"));
    let mut failed = Vec::new();
    let mut done = false;
    // First mmdebstrap's own default mirror, then the one that the host's apt uses.
    for (attempt, mirror) in std::iter::once(None).chain(host_mirrors().into_iter().map(Some)).enumerate() {
        let log = context.log(&format!("{}-{attempt}", packages.kind.list()))?;
        remove_partial(&partial)?;
        let mut command = Command::new("mmdebstrap");
        command.args(["--variant=apt", if is_root { "--mode=root" } else { "--mode=unshare" }]);
        // As an ordinary user the files would belong to sub-uids; a tar file unpacked by the user makes them his.
        let target = if is_root { partial.clone() } else { partial.with_extension("tar") };
        command.arg(format!("--customize-hook=copy-in {} /tmp", script.display()));
        command
            .arg(format!("--customize-hook=chroot \"$1\" sh /tmp/{}.sh", packages.kind.list()))
            .arg(SUITE)
            .arg(&target);
        if let Some(mirror) = &mirror {
            progress::line(&format!("  trying the mirror that this machine's apt uses: {mirror}"));
            command.arg(mirror);
        }
        let output = progress::output(&mut progress, &log, &mut command);
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                remove_partial(&partial).ok();
                progress.finish(false);
                return Err(error);
            }
        };
        if output.ok {
            if !is_root {
                unpack(&mut progress, &log, &target, &partial)?;
            }
            done = true;
            break;
        }
        failed.push(progress::failure("making the sysroot", &log, &output.lines));
        if output.lines.iter().any(|l| l.starts_with("No stock kernel")) {
            break;
        }
    }
    progress.finish(done);
    if !done {
        bail!("{}", failed.join("\n"));
    }
    // A place for bwrap to bind the host's file on.
    let resolv = partial.join("etc/resolv.conf");
    fs::remove_file(&resolv).ok();
    fs::write(&resolv, "")?;
    fs::rename(&partial, root).context("giving the sysroot its final name")?;
    Ok(())
}

fn unpack(progress: &mut Progress, log: &Path, tar: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut command = Command::new("tar");
    command.args(["-x", "--no-same-owner", "--exclude=./dev/*", "-C"]).arg(to).arg("-f").arg(tar);
    let output = progress::output(progress, log, &mut command)?;
    if !output.ok {
        bail!("{}", progress::failure("unpacking the sysroot", log, &output.lines));
    }
    fs::remove_file(tar)?;
    Ok(())
}

fn remove_partial(partial: &Path) -> Result<()> {
    fs::remove_file(partial.with_extension("tar")).ok();
    if partial.exists() {
        if !owned_by_us(partial) {
            bail!("{} belongs to another user; remove it", partial.display());
        }
        fs::remove_dir_all(partial).with_context(|| format!("removing {}", partial.display()))?;
    }
    Ok(())
}

/// Debian mirrors that the host's apt knows (empty on Ubuntu, whose mirrors have other packages).
fn host_mirrors() -> Vec<String> {
    let Ok(out) = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages"])
        .output()
    else {
        return Vec::new();
    };
    let mut mirrors = Vec::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        if let Some((uri, "Debian")) = line.split_once(' ') {
            let uri = uri.to_owned();
            if !uri.contains("security") && !mirrors.contains(&uri) {
                mirrors.push(uri);
            }
        }
    }
    mirrors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_lists_of_the_repository_are_read() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tools = Packages::read(&repo, Kind::Tools).expect("ci/packages");
        assert_eq!(tools.suites[0].0, "trixie-backports");
        assert!(tools.suites[1].1.contains(&"verilator".to_owned()));
        let host = Packages::read(&repo, Kind::Host).expect("ci/packages");
        assert!(host.script().contains(&format!("series_list='{}'", host.linux.join(" "))));
        assert_ne!(tools.key, host.key);
    }
}
