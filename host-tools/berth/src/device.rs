// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth info | up | limits | reset`.

use std::net::Ipv4Addr;
use std::time::Duration;

use berth_abi::{counters, status};
use clap::Args;
use libberth::{Device, Limits, MacAddr, Net};
use serde_json::json;

use crate::failure::Failure;
use crate::size;

fn firmware_state(state: u32, code: u32) -> String {
    let refused = || match code {
        status::FW_BAD_MAGIC => "wrong magic: not a firmware image",
        status::FW_BAD_ABI => "built for another ABI version",
        status::FW_BAD_LENGTH => "length out of range",
        status::FW_TRUNCATED => "truncated or too long",
        status::FW_BAD_CRC => "checksum wrong",
        _ => "unknown reason",
    };
    match state {
        status::FW_RESET => "in reset".into(),
        status::FW_LOADING => "loading".into(),
        status::FW_REFUSED => format!("image refused: {}", refused()),
        status::FW_STARTED => "started".into(),
        status::FW_RUNNING => "running".into(),
        status::FW_PANIC => format!("panicked (code {code}); `berth reset` starts it anew"),
        other => format!("unknown state {other} (code {code})"),
    }
}

/// Shows a card.
pub fn info(device: &Device, as_json: bool) -> Result<(), Failure> {
    let i = device.info()?;
    let (major, minor, patch) = i.fw_version;
    let state = firmware_state(i.fw_status, i.fw_code);
    let conflicts = device.counters()?.fw(counters::F_ADDRESS_CONFLICTS);
    if as_json {
        let net = i.net.map(|n| json!({ "ip": n.ipv4.to_string(), "mac": n.mac.to_string(), "mtu": n.mtu }));
        println!(
            "{}",
            json!({
                "device": device.path(), "abi": i.abi,
                "firmware": { "version": format!("{major}.{minor}.{patch}"), "state": state, "status": i.fw_status,
                              "code": i.fw_code, "elf_id": size::hex(&i.elf_id) },
                "net": net, "guid": format!("{:016x}", i.guid),
                "max_qps": i.max_qps, "max_qps_per_process": i.max_qps_per_process, "max_cqs": i.max_cqs,
                "clock_hz": i.clock_hz, "cycles": i.cycles,
                "card_budget": i.card_budget, "process_budget": i.process_budget, "linger_ms": i.linger_ms,
                "address_conflicts": conflicts,
            })
        );
        return Ok(());
    }
    println!("{}", device.path().display());
    println!("  firmware   {major}.{minor}.{patch}, {state}; ELF {}", size::hex(&i.elf_id));
    match i.net {
        Some(n) => println!("  network    {}  {}  MTU {}", n.ipv4, n.mac, n.mtu),
        None => println!("  network    no name yet: `berth up --ip … --mac …`"),
    }
    if conflicts != 0 {
        println!(
            "  CONFLICT   another host has this address ({conflicts} ARP messages; `berth log` says its MAC address): give one of \
             them another, then `berth reset`"
        );
    }
    println!("  GUID       {:016x}", i.guid);
    println!("  queues     {} QPs ({} per process), {} CQs", i.max_qps, i.max_qps_per_process, i.max_cqs);
    println!(
        "  limits     of pinned memory: {} on the card, {} per process; unused pins linger {} ms",
        size::show(i.card_budget),
        size::show(i.process_budget),
        i.linger_ms
    );
    println!("  clock      {} MHz, {} cycles since reset", i.clock_hz / 1_000_000, i.cycles);
    Ok(())
}

/// Name in the network.
#[derive(Debug, Args)]
pub struct Up {
    /// IPv4 address of this end node.
    #[arg(long)]
    ip: Ipv4Addr,
    /// MAC address of the card, not multicast.
    #[arg(long)]
    mac: MacAddr,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    #[arg(long, default_value_t = 4096, value_parser = mtu)]
    mtu: u32,
}

/// How often the tool has firmware ask whether another host has the address (RFC 5227).
const PROBES: u32 = 3;
/// Time between these; another card answers at once.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

fn mtu(s: &str) -> Result<u32, String> {
    match s.parse() {
        Ok(n @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(n),
        _ => Err("RoCE knows the MTUs 256, 512, 1024, 2048 and 4096".into()),
    }
}

impl Up {
    /// Sets it.
    pub fn run(&self, device: &Device, as_json: bool) -> Result<(), Failure> {
        // Each time firmware asks whether another host has the address; a question or an answer may be lost.
        for _ in 0..PROBES {
            device.set_net(&Net { ipv4: self.ip, mac: self.mac, mtu: self.mtu })?;
            std::thread::sleep(PROBE_INTERVAL);
        }
        info(device, as_json)
    }
}

/// Limits on pinned memory.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SetLimits {
    /// Pinned-memory budget of the card, at least one page, at most 32M (K, M, G allowed).
    #[arg(long, value_parser = size::parse)]
    budget: Option<u64>,
    /// How long pins that are not in use stay, in milliseconds; 0: not at all.
    #[arg(long)]
    linger_ms: Option<u32>,
    /// Set the peak of pinned bytes (`berth stat`) to what is pinned now.
    #[arg(long)]
    reset_peak: bool,
}

impl SetLimits {
    /// Sets them.
    pub fn run(&self, device: &Device, as_json: bool) -> Result<(), Failure> {
        device.set_limits(&Limits {
            linger_ms: self.linger_ms,
            card_budget: self.budget,
            reset_peak: self.reset_peak,
        })?;
        info(device, as_json)
    }
}

/// Resets a card.
pub fn reset(device: &Device, as_json: bool) -> Result<(), Failure> {
    device.reset()?;
    info(device, as_json)
}
