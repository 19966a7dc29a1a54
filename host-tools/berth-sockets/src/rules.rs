// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the user says in the environment.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

/// `BERTH_SOCKETS_PORTS`: ports that Berth carries, such as `5001,6000-6100`, or `!22,!80` for all others; all if unset.
const PORTS: &str = "BERTH_SOCKETS_PORTS";
/// `BERTH_SOCKETS_LOG`: `stderr` or a file; a line a connection.
const LOG: &str = "BERTH_SOCKETS_LOG";
/// `BERTH_SOCKETS_TIMEOUT`: milliseconds that a host has to answer before it counts as one without Berth.
const TIMEOUT: &str = "BERTH_SOCKETS_TIMEOUT";
/// That time, if it is unset.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

/// Ranges of ports, each with whether it is let in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ports(Vec<(bool, u16, u16)>);

impl Ports {
    /// What a text says, without its parts that are no ports.
    fn new(text: &str) -> Self {
        let range = |part: &str| {
            let part = part.trim();
            let (in_it, range) = part.strip_prefix('!').map_or((true, part), |range| (false, range));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((in_it, first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        Self(text.split(',').filter_map(range).collect())
    }

    fn has(&self, port: u16) -> bool {
        let found = self.0.iter().find(|(_, first, last)| (*first..=*last).contains(&port));
        // Without a port that is named, all are meant but for the excluded ones.
        found.map_or_else(|| self.0.iter().all(|(in_it, ..)| !in_it), |(in_it, ..)| *in_it)
    }
}

/// All of it.
struct Rules {
    ports: Ports,
    timeout: Duration,
    log: Option<String>,
}

static RULES: OnceLock<Rules> = OnceLock::new();

fn rules() -> &'static Rules {
    RULES.get_or_init(|| {
        let text = |name| std::env::var(name).unwrap_or_default();
        Rules {
            ports: Ports::new(&text(PORTS)),
            timeout: text(TIMEOUT).parse().map_or(DEFAULT_TIMEOUT, Duration::from_millis),
            log: Some(text(LOG)).filter(|path| !path.is_empty()),
        }
    })
}

/// Reads the environment, unless that has been done.
pub fn read() {
    rules();
}

/// Whether Berth may carry connections to a port.
pub fn port(port: u16) -> bool {
    rules().ports.has(port)
}

/// How long a host has to answer.
pub fn timeout() -> Duration {
    rules().timeout
}

/// Whether the user wants to have lines.
pub fn logs() -> bool {
    rules().log.is_some()
}

/// Writes a line, if the user wants to have it.
pub fn log(line: impl Display) {
    let Some(path) = &rules().log else { return };
    let line = format!("berth-sockets[{}]: {line}\n", std::process::id());
    // Nobody is there to be told that it cannot be written.
    if path == "stderr" {
        let _ = std::io::stderr().write_all(line.as_bytes());
    } else if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ap_3_ports_are_chosen_by_the_environment() {
        assert!(Ports::new("").has(1));
        let some = Ports::new("5001, 6000-6002");
        assert!(some.has(5001) && some.has(6000) && some.has(6002) && !some.has(6003) && !some.has(1));
        let others = Ports::new("!22,!80-81");
        assert!(others.has(1) && !others.has(22) && !others.has(81));
        let both = Ports::new("!6001,6000-6002");
        assert!(both.has(6000) && !both.has(6001) && !both.has(1));
        assert!(Ports::new("nonsense").has(1));
    }
}
