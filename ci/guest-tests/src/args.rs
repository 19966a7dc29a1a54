// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::str::FromStr;

use clap::Parser;

/// Which of the two guests this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connects.
    A,
    /// Listens.
    B,
}

impl Role {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Name in files, and of the card in the simulator.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "a" => Ok(Self::A),
            "b" => Ok(Self::B),
            _ => Err("a role is `a` or `b`".into()),
        }
    }
}

/// System tests of Berth inside the guests.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Args {
    /// This guest's role: `a` connects, `b` listens.
    #[arg(long, default_value = "a")]
    pub role: Role,
    /// Directory that both guests share.
    #[arg(long, default_value = "/mnt/share")]
    pub share: std::path::PathBuf,
    /// Distinguishes runs that use the same directory.
    #[arg(long, default_value = "tests")]
    pub session: String,
    /// This card's IPv4 address.
    #[arg(long)]
    pub own_ip: Option<std::net::Ipv4Addr>,
    /// The peer's IPv4 address.
    #[arg(long)]
    pub peer_ip: Option<std::net::Ipv4Addr>,
    /// This card's MAC address.
    #[arg(long)]
    pub mac: Option<libberth::MacAddr>,
    /// Path MTU in bytes.
    #[arg(long, default_value_t = 4096)]
    pub mtu: u32,
    /// The driver's module, for tests that load it again.
    #[arg(long, default_value = "/lib/modules/berth.ko")]
    pub module: std::path::PathBuf,
    /// Seed of random tests [default: from the clock; it is printed].
    #[arg(long, env = "BERTH_SEED", overrides_with = "seed")]
    pub seed: Option<u64>,
    /// How often tests that repeat something do so [default: each its own number].
    #[arg(long, env = "BERTH_CASES", overrides_with = "cases")]
    pub cases: Option<u64>,
    /// More of what is random or repeated.
    #[arg(long)]
    pub long: bool,
    /// The tests of what is left after very many repetitions, instead of the others.
    #[arg(long)]
    pub endurance: bool,
    /// The test of a file that is larger than the guest's memory, instead of the others.
    #[arg(long, conflicts_with = "endurance")]
    pub large_file: bool,
    /// Seconds after which a test counts as hanging.
    #[arg(long, default_value_t = 600)]
    pub hang_limit: u64,
    /// Only tests whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    pub run: Vec<String>,
    /// Not tests whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<String>,
    /// List the tests and end.
    #[arg(long)]
    pub list: bool,
    /// Stop at the first failure.
    #[arg(long)]
    pub fail_fast: bool,
    /// Does the work whose instructions are counted, and no test.
    #[arg(long, hide = true)]
    pub count: bool,
    /// Runs one test in this process (the runner's own use).
    #[arg(long, hide = true)]
    pub exec: Option<String>,
    /// Runs a helper program of a test in this process (the tests' own use).
    #[arg(long, hide = true)]
    pub helper: Option<String>,
}
