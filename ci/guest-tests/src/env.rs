// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test's surroundings: role, addresses, the other guest, the simulator.
//!
//! The guests share a directory (9p). `SESSION/TEST/KEY.ROLE` is a message of one guest's test to the other's; it
//! is written under another name and renamed, so that it appears whole. `ctl/ROLE-N.req` is one line for the
//! simulator's control socket; the harness outside answers in `ctl/ROLE-N.ans`.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libberth::{Context, Counters, Device, Limits, Net};

pub use crate::args::{Args, Role};
use crate::outcome::{Res, fail};

/// Between two looks at the shared directory, which has no notification across guests.
const LOOK: Duration = Duration::from_millis(20);

static REQUEST: AtomicU32 = AtomicU32::new(0);

/// Budget of a card in bytes where a test does not set another.
const CARD_BUDGET: u64 = 16 << 20;

/// Surroundings of a test.
pub struct Env {
    /// This guest.
    pub role: Role,
    /// This card.
    pub own_ip: Ipv4Addr,
    /// The other card.
    pub peer_ip: Ipv4Addr,
    /// Limit for every wait; only a hang reaches it.
    pub hang: Duration,
    /// Seed for random tests.
    pub seed: u64,
    /// Command line.
    pub args: Args,
    dir: PathBuf,
}

impl Env {
    /// Surroundings of the test `name`.
    pub fn new(args: &Args, name: &str) -> Self {
        let (own, peer) = match args.role {
            Role::A => (1, 2),
            Role::B => (2, 1),
        };
        let default_ip = |n| Ipv4Addr::new(192, 0, 2, n);
        Self {
            role: args.role,
            own_ip: args.own_ip.unwrap_or(default_ip(own)),
            peer_ip: args.peer_ip.unwrap_or(default_ip(peer)),
            hang: Duration::from_secs(args.hang_limit),
            seed: args.seed.unwrap_or(1),
            args: args.clone(),
            dir: args.share.join(&args.session).join(name),
        }
    }

    /// Gives the card its name, and sets the linger time to 0, so that only pages in use are pinned.
    pub fn prepare(args: &Args) -> Res {
        let env = Self::new(args, "setup");
        env.up()?;
        env.device()?.set_limits(&Limits { linger_ms: Some(0), card_budget: Some(CARD_BUDGET), reset_peak: true })?;
        Ok(())
    }

    /// Limit for a wait of the library.
    pub fn limit(&self) -> Option<Duration> {
        Some(self.hang)
    }

    /// The card.
    pub fn device(&self) -> Res<Device> {
        Ok(Device::open_first()?)
    }

    /// The counters of the card, its firmware and its driver, as they are now.
    pub fn counters(&self) -> Res<Counters> {
        Ok(self.device()?.counters()?)
    }

    /// A context on the card.
    pub fn context(&self) -> Res<Context> {
        Ok(Context::new(&self.device()?)?)
    }

    /// This card's MAC address.
    pub fn mac(&self) -> libberth::MacAddr {
        let default_mac = match self.role {
            Role::A => [2, 0, 0, 0, 0, 1],
            Role::B => [2, 0, 0, 0, 0, 2],
        };
        self.args.mac.unwrap_or(libberth::MacAddr(default_mac))
    }

    /// Gives the card its name in the network.
    pub fn up(&self) -> Res {
        self.device()?.set_net(&Net { ipv4: self.own_ip, mac: self.mac(), mtu: self.args.mtu })?;
        Ok(())
    }

    /// How many cases of something random or endless a test tries: `--cases` (BERTH_CASES), else `long` with `--long`,
    /// else `usual`.
    pub fn cases(&self, usual: u64, long: u64) -> u64 {
        self.args.cases.unwrap_or(if self.args.long { long } else { usual })
    }

    fn file(&self, key: &str, role: Role) -> PathBuf {
        self.dir.join(format!("{key}.{}", role.name()))
    }

    /// Tells the other guest `text` under `key`.
    pub fn tell(&self, key: &str, text: &str) -> Res {
        fs::create_dir_all(&self.dir)?;
        write_whole(&self.file(key, self.role), text)
    }

    /// Waits for what the other guest tells under `key`; fails at once if its test has failed.
    pub fn hear(&self, key: &str) -> Res<String> {
        let (file, failed) = (self.file(key, self.role.other()), self.file("failed", self.role.other()));
        let deadline = Instant::now() + self.hang;
        loop {
            if let Ok(text) = fs::read_to_string(&file) {
                return Ok(text);
            }
            if key != "end" && failed.exists() {
                return fail(format!("the other guest failed before `{key}`"));
            }
            if Instant::now() > deadline {
                return fail(format!("the other guest did not come to `{key}`"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until both guests have come here.
    pub fn meet(&self, key: &str) -> Res {
        self.tell(key, "")?;
        self.hear(key).map(drop)
    }

    /// Sends one line to the simulator's control socket; answers its answer (JSON).
    ///
    /// Fails when the simulator refuses.
    pub fn sim(&self, line: &str) -> Res<String> {
        let n = REQUEST.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{n:06}", self.role.name(), std::process::id());
        let ctl = self.args.share.join("ctl");
        let (request, answer) = (ctl.join(format!("{name}.req")), ctl.join(format!("{name}.ans")));
        write_whole(&request, &format!("{line}\n"))?;
        let deadline = Instant::now() + self.hang;
        while Instant::now() < deadline {
            if let Ok(text) = fs::read_to_string(&answer) {
                let _ = fs::remove_file(&answer);
                if text.replace(' ', "").contains("\"ok\":true") {
                    return Ok(text);
                }
                return fail(format!("simulator refused `{line}`: {text}"));
            }
            std::thread::sleep(LOOK);
        }
        fail(format!("nobody answered the control request `{line}`"))
    }

    /// A number that the simulator tells of this guest's card; its key is behind `name` in the alphabet.
    pub fn sim_number(&self, key: &str) -> Res<u64> {
        let text = self.sim("stats")?.replace(' ', "");
        let number = || {
            let card = text.split(&format!("\"name\":\"{}\"", self.role.name())).nth(1)?;
            let digits = card.split(&format!("\"{key}\":")).nth(1)?;
            digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        number().ok_or_else(|| format!("no {key} in {text}").into())
    }

    /// Cycles in which this guest's card has had work, up to now: time that passes while it waits for its slow host is left out.
    pub fn busy_cycles(&self) -> Res<u64> {
        self.sim_number("stepped_cycles")
    }

    /// [`Env::sim`] with the name of this guest's card (`{own}`) and of the other's (`{peer}`) filled in.
    pub fn sim_cards(&self, line: &str) -> Res<String> {
        let line = line.replace("{own}", self.role.name()).replace("{peer}", self.role.other().name());
        self.sim(&line)
    }
}

fn write_whole(path: &Path, text: &str) -> Res {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    Ok(())
}
