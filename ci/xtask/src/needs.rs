// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists what a command must fetch and build before it can begin, and checks the free space for it, at the start.

use anyhow::Result;

use crate::context::Context;
use crate::kernel::{Flavour, Kernel};
use crate::progress;
use crate::steps::guest_parts_are_built;
use crate::sysroot::{Kind, Sysroot};

/// What a command needs besides the root with the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A kernel, and the Debian host whose kernel or source it is.
    Kernel(Flavour),
    /// Simulator, firmware, driver and programs.
    GuestParts,
    /// Room for what the tests build, however much of it is there.
    TestBuilds,
}

/// Something that is made once and stays in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Root(Kind),
    Kernel(Flavour),
    GuestParts,
}

/// What a thing costs: megabytes to download and on disk, and minutes on two cores.
struct Cost {
    download: u64,
    disk: u64,
    minutes: u64,
}

impl Thing {
    fn name(self) -> &'static str {
        match self {
            Self::Root(kind) => kind.title(),
            Self::Kernel(Flavour::Stock) => "Rust metadata of the stock kernel",
            Self::Kernel(Flavour::Test) => "test kernel, with its source",
            Self::Kernel(Flavour::Kcsan) => "KCSAN kernel, with its source",
            Self::GuestParts => "simulator, firmware, driver, programs",
        }
    }

    fn cost(self) -> Cost {
        let cost = |download, disk, minutes| Cost { download, disk, minutes };
        match self {
            Self::Root(Kind::Tools) => cost(750, 4000, 4),
            Self::Root(Kind::Host) => cost(500, 3000, 4),
            Self::Kernel(Flavour::Stock) => cost(0, 500, 4),
            Self::Kernel(Flavour::Test | Flavour::Kcsan) => cost(0, 3000, 12),
            Self::GuestParts => cost(170, 1500, 4),
        }
    }

    fn is_missing(self, context: &Context) -> Result<bool> {
        Ok(match self {
            Self::Root(kind) => Sysroot::find(context, kind)?.is_none(),
            Self::Kernel(flavour) => !Kernel::is_complete(context, flavour)?,
            Self::GuestParts => !guest_parts_are_built(context),
        })
    }
}

/// All things that the needs stand for, each once, in the order in which they are made.
fn things(needs: &[Need]) -> Vec<Thing> {
    let mut things = vec![Thing::Root(Kind::Tools)];
    let kernels =
        || needs.iter().filter_map(|need| if let Need::Kernel(flavour) = need { Some(*flavour) } else { None });
    things.extend(kernels().next().map(|_| Thing::Root(Kind::Host)));
    for flavour in kernels() {
        if !things.contains(&Thing::Kernel(flavour)) {
            things.push(Thing::Kernel(flavour));
        }
    }
    things.extend(needs.contains(&Need::GuestParts).then_some(Thing::GuestParts));
    things
}

/// Megabytes that must be free to make what is missing.
fn room(missing: &[Thing], needs: &[Need], is_root: bool) -> u64 {
    let disk: u64 = missing.iter().map(|thing| thing.cost().disk).sum();
    // For an ordinary user a root is packed first and then unpacked beside it.
    let packed = missing.iter().filter(|t| !is_root && matches!(t, Thing::Root(_))).map(|t| t.cost().disk).max();
    let tests = if needs.contains(&Need::TestBuilds) { 3000 } else { 0 };
    disk + packed.unwrap_or(0) + tests
}

/// The notice about what is missing.
fn notice(missing: &[Thing], cache: &str) -> Vec<String> {
    let mut lines = vec![format!("First this is made in {cache}, once (times on two cores; some of it side by side):")];
    for thing in missing {
        let Cost { download, disk, minutes } = thing.cost();
        let download = if download == 0 { String::new() } else { format!("{download} MB to download, ") };
        let disk = disk as f64 / 1000.0;
        lines.push(format!("  {:<40} {minutes:>2} min, {download}{disk:.1} GB on disk", thing.name()));
    }
    lines.push("Later runs need no network. Ctrl-C costs the step that runs.".to_owned());
    lines
}

/// Says what is missing, if anything is, and refuses when the disk has no room for all of it.
///
/// # Errors
/// When there is too little room, or the cache cannot be read.
pub fn announce(context: &Context, needs: &[Need]) -> Result<()> {
    let mut missing = Vec::new();
    for thing in things(needs) {
        if thing.is_missing(context)? {
            missing.push(thing);
        }
    }
    if !missing.is_empty() {
        for line in notice(&missing, &context.cache.display().to_string()) {
            progress::line(&line);
        }
    }
    let megabytes = room(&missing, needs, nix::unistd::Uid::effective().is_root());
    context.need_room(megabytes * 1_000_000, "what is to be made")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Need; 5] = [
        Need::Kernel(Flavour::Stock),
        Need::Kernel(Flavour::Test),
        Need::GuestParts,
        Need::Kernel(Flavour::Test),
        Need::TestBuilds,
    ];

    #[test]
    fn each_missing_thing_is_said_once_and_nothing_when_all_is_there() {
        let things = things(&ALL);
        assert_eq!(things.len(), 5, "{things:?}");
        let lines = notice(&things, "/cache");
        assert!(lines[0].contains("/cache") && lines.len() == 7, "{lines:?}");
        assert!(lines[1].contains(" 4 min, 750 MB to download, 4.0 GB on disk"), "{}", lines[1]);
        assert!(lines[4].contains("12 min, 3.0 GB on disk"), "{}", lines[4]);
    }

    #[test]
    fn room_is_the_sum_of_what_is_missing() {
        let all = things(&ALL);
        // What the command line's help and the documentation promise.
        assert_eq!(room(&all, &ALL, true), 15_000);
        assert_eq!(room(&all[2..], &ALL[..1], false), room(&all[2..], &ALL[..1], true));
        assert_eq!(room(&all[4..], &[Need::GuestParts], true), 1500);
        // The largest root once more.
        assert_eq!(room(&all, &ALL, false), 19_000);
        assert_eq!(room(&[], &[], false), 0);
    }

    #[test]
    fn an_empty_cache_misses_everything() {
        let cache = std::env::temp_dir().join(format!("berth-needs-{}", std::process::id()));
        std::fs::create_dir_all(&cache).expect("a folder");
        let repo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let context = Context { repo, built: cache.clone(), cache: cache.clone() };
        let missing = things(&ALL).into_iter().filter(|t| t.is_missing(&context).expect("readable")).count();
        std::fs::remove_dir_all(&cache).expect("it is ours");
        assert_eq!(missing, 5);
    }
}
