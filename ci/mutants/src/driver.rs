// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the driver with all mutants of its sources in it, and tries each in guests, with the guests' tests.
//!
//! A parameter of the module says which mutant it is; what a module has come to is in the kernel's log when it is
//! removed. A mutant that a test notices may have broken the kernel for good, so the guests boot again after it; one
//! that all its tests leave alone is followed by the next one in the same guests.

use crate::cargo::Tested;
use crate::mutate::{Mutant, left_out, mutate_all, nearest};
use crate::suite::{Fate, copy, write};
use anyhow::{Context as _, Result, bail};
use berth_random::mix;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What is mutated: a name, and the files of driver.
pub const GROUPS: [(&str, &[&str]); 4] = [
    (
        "memory",
        &[
            "pages/address_space.rs",
            "pages/answer.rs",
            "pages/bring.rs",
            "pages/budget.rs",
            "pages/charge.rs",
            "pages/evict.rs",
            "pages/install.rs",
            "pages/leaving.rs",
            "pages/line.rs",
            "pages/mod.rs",
            "pages/needs.rs",
            "pages/run.rs",
            "pages/plan.rs",
            "pages/recall.rs",
            "pages/recheck.rs",
            "pages/request.rs",
            "pages/request_state.rs",
            "pages/retry.rs",
            "pages/revoke.rs",
            "pages/service.rs",
            "pages/settings.rs",
            "pages/share.rs",
            "pages/space.rs",
            "pages/table.rs",
            "pages/unpin.rs",
            "kernel/memlock.rs",
            "kernel/pin.rs",
            "kernel/mmu_notifier.rs",
        ],
    ),
    (
        "processes",
        &[
            "process/completion_queue.rs",
            "process/connection.rs",
            "process/context.rs",
            "process/context_events.rs",
            "process/doorbells.rs",
            "process/limits.rs",
            "process/mod.rs",
            "process/object.rs",
            "process/owned.rs",
            "process/owner.rs",
            "process/queue_pair.rs",
            "process/registry.rs",
            "uapi.rs",
            "kernel/doorbell.rs",
            "kernel/eventfd.rs",
        ],
    ),
    (
        "card",
        &[
            "card/mod.rs",
            "card/answer.rs",
            "card/call.rs",
            "card/counters.rs",
            "card/deadline.rs",
            "card/ending.rs",
            "card/fence.rs",
            "card/firmware.rs",
            "card/log.rs",
            "card/net.rs",
            "card/owner.rs",
            "card/parts.rs",
            "card/regs.rs",
            "card/reset.rs",
            "card/ring.rs",
            "card/watchdog.rs",
            "events.rs",
            "kernel/image.rs",
            "kernel/gate.rs",
            "kernel/workqueue.rs",
        ],
    ),
    ("network", &["net/counts.rs", "net/mod.rs", "net/nic.rs", "net/rings.rs"]),
];

/// What stands for files of the driver in its tests on the host (ci/driver-host), which have all others as they are.
const NOT_ON_HOST: [&str; 6] = [
    "kernel/doorbell.rs",
    "kernel/eventfd.rs",
    "kernel/gate.rs",
    "kernel/mmu_notifier.rs",
    "kernel/pin.rs",
    "kernel/workqueue.rs",
];

/// Whether the tests on the host have a file as it is.
#[must_use]
pub fn is_on_host(file: &str) -> bool {
    !NOT_ON_HOST.contains(&file)
}

/// All that is mutated.
fn files() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, files)| files.iter().copied())
}

/// The tests on the host.
#[must_use]
pub fn on_host() -> Tested {
    Tested {
        package: "ci/driver-host",
        name: "berth_driver_host",
        sources: "driver",
        files: files().filter(|f| is_on_host(f)).collect(),
        skip: &[],
    }
}

/// Builds that may fail, each of which leaves mutants out.
const ATTEMPTS: usize = 40;
/// Guests that say nothing for so long hang. More than twice what a wait of a test may take.
const SILENCE: Duration = Duration::from_secs(150);
/// Seconds that a wait of a test may take.
const HANG_LIMIT: u64 = 60;
/// The guests' tests that load the module again do so without its parameter: of what they test then nothing is broken.
const RELOAD: [&str; 2] = ["module_goes", "fw_that_fails_again"];

/// What a guest runs: for each line of the plan (number of a mutant, tests) the module as that mutant. Without a plan,
/// each test with nothing broken.
const SCRIPT: &str = r#"
tests() { berth-guest-tests --role "$role" --session "$1" --hang-limit HANG --seed 1 --run "$2" </dev/null; }
complained() { dmesg | grep -E 'BUG:|WARNING:|DMA-API:|Oops'; }
n=0
[ -s /mnt/share/plan ] && cp /mnt/share/plan /tmp/plan ||
    berth-guest-tests --list --run 'BY' | sed -n 's/: test$//;s/^/0 /p' >/tmp/plan
while read -r mutant names; do
    n=$((n + 1))
    echo "mutant $n begins"
    dmesg -c >/dev/null
    if [ -d /sys/module/berth ]; then rmmod berth; fi
    insmod /lib/modules/berth.ko mutant="$mutant" || { echo "test loading ... FAILED"; exit 1; }
    for name in $(echo "$names" | tr , ' '); do
        tests "$n-$name" "$name" || [ "$mutant" = 0 ] || exit 1
    done
    rmmod berth || { echo "test unloading ... FAILED"; exit 1; }
    dmesg | sed -n 's/.*berth: reached /reached /p'
    if complained; then echo "test log ... FAILED"; exit 1; fi
    echo "mutant $n ends"
done </tmp/plan
"#;

/// A test of the guests.
#[derive(Clone, Debug, Default)]
struct Test {
    name: String,
    /// With nothing broken, in the guest where it took longer.
    time: Duration,
    /// The mutants that it comes to in either guest.
    reached: BTreeSet<u32>,
}

/// How far a guest is.
#[derive(Clone, Debug, Default)]
struct Side {
    /// Lines of the plan that it has ended.
    done: usize,
    /// The test that it is in, or was in last.
    test: String,
}

/// How guests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// They did all.
    Whole,
    /// A test failed in guest a (0) or b (1), or that guest ended before its time.
    Failed(usize),
    /// They fell silent.
    Silent,
    /// They did not boot, or something else failed.
    Broken,
}

/// The driver with its mutants, and the tests.
#[derive(Debug)]
pub struct Guests {
    repo: PathBuf,
    folder: PathBuf,
    /// Only tests with such names, with commas; all if empty.
    by: String,
    tests: Vec<Test>,
}

/// Writes the mutated driver; says what it depends on.
fn write_mutants(repo: &Path, tree: &Path, without: &BTreeSet<u32>) -> Result<(Vec<Mutant>, String)> {
    let files: Vec<&str> = files().collect();
    copy(repo, tree, |name| {
        let file = name.strip_prefix("driver/");
        file.is_none_or(|f| f == "berth_main.rs" || files.contains(&f))
    })?;
    let (from, to) = (repo.join("driver"), tree.join("driver"));
    let (all, text, first) = mutate_all(&from, &to, &files, without)?;
    let asks = format!("{}\nconst PLACES: usize = {first};\n", include_str!("mutated-driver.rs.txt"));
    write(&to.join("mutated.rs"), asks.as_bytes())?;
    let mut module = fs::read_to_string(from.join("berth_main.rs"))?;
    for (place, more) in [
        ("mod uapi;", "mod mutated;"),
        ("    params: {", "mutant: u32 { default: 0, description: \"Which mutant\", },"),
        ("unsafe { GLOBAL.init() };", "mutated::begin(*module_parameters::mutant.value());"),
        ("self.0.flush();", "mutated::tell();"),
    ] {
        if module.matches(place).count() != 1 {
            bail!("driver/berth_main.rs has not one `{place}`");
        }
        module = module.replace(place, &format!("{place}\n{more}"));
    }
    write(&to.join("berth_main.rs"), format!("#![allow(warnings)]\n{module}").as_bytes())?;
    Ok((all, text))
}

/// The mutants nearest before the errors that a compiler has printed.
fn suspects(tree: &Path, log: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let (mut error, mut moved) = (false, false);
    for line in log.lines() {
        if line.starts_with("error") || line.starts_with("warning") {
            error = line.starts_with("error");
            // Of a variable that is not set any more, and may be so further on.
            moved = ["[E0381]", "[E0382]"].iter().any(|code| line.contains(code));
        }
        let Some((_, place)) = line.split_once("--> ").filter(|_| error) else { continue };
        let mut parts = place.trim().rsplitn(3, ':');
        let mut number = || parts.next()?.parse::<usize>().ok();
        let (Some(column), Some(row)) = (number(), number()) else { continue };
        let Some((_, name)) = parts.next().and_then(|p| p.rsplit_once("driver/")) else { continue };
        let Ok(text) = fs::read_to_string(tree.join("driver").join(name)) else { continue };
        let Some(line) = text.lines().nth(row - 1) else { continue };
        let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        match moved {
            true => found.extend(left_out(line, at)),
            false => found.extend(nearest(line, at)),
        }
        error = false;
    }
    found
}

/// Copies, mutates and builds; gives the mutants, and what each test comes to, if it takes at most `quick` seconds and is
/// one that `by` names, if it names any.
///
/// # Errors
/// If it does not compile whatever is left out, or no guest boots with nothing broken.
pub fn build(repo: &Path, folder: &Path, quick: Option<f64>, by: &[String]) -> Result<(Vec<Mutant>, Guests)> {
    let tree = folder.join("tree");
    let known = folder.join("without");
    let mut without: BTreeSet<u32> = BTreeSet::new();
    let before = write_mutants(repo, &tree, &without)?.1;
    if fs::read_to_string(folder.join("sources")).is_ok_and(|s| s == before) {
        without = fs::read_to_string(&known)?.lines().filter_map(|l| l.parse().ok()).collect();
    }
    let by = by.join(",").replace('\'', "");
    let mut guests = Guests { repo: repo.into(), folder: folder.into(), by, tests: Vec::new() };
    for _ in 0..ATTEMPTS {
        let (mutants, text) = write_mutants(repo, &tree, &without)?;
        let stamp = format!("{:x} {}\n", text.bytes().fold(0, |h, b| mix(h ^ u64::from(b))), guests.by);
        let memory = folder.join("tests");
        if let Some(lines) = fs::read_to_string(&memory).ok().and_then(|m| Some(m.strip_prefix(&stamp)?.to_owned())) {
            guests.tests = lines.lines().map(Test::read).collect::<Result<_>>()?;
        } else if guests.measure()? {
            let lines: String = guests.tests.iter().map(Test::line).collect();
            fs::write(&known, without.iter().map(|n| format!("{n}\n")).collect::<String>())?;
            fs::write(folder.join("sources"), &before)?;
            fs::write(&memory, stamp + &lines)?;
        } else {
            let log = fs::read_to_string(folder.join("build.log")).unwrap_or_default();
            let count = without.len();
            without.extend(suspects(&tree, &log));
            if without.len() == count {
                bail!("the mutants do not compile: {}", folder.join("build.log").display());
            }
            eprintln!("{} mutants do not compile and are left out", without.len());
            continue;
        }
        let most = quick.map_or(Duration::MAX, Duration::from_secs_f64);
        guests.tests.retain(|t| t.time <= most && !RELOAD.iter().any(|r| t.name.contains(r)));
        return Ok((mutants, guests));
    }
    bail!("after {ATTEMPTS} builds some mutants still do not compile");
}

impl Test {
    fn line(&self) -> String {
        let reached: String = self.reached.iter().map(|n| format!(" {n}")).collect();
        format!("{} {}{reached}\n", self.name, self.time.as_millis())
    }

    fn read(line: &str) -> Result<Self> {
        let mut parts = line.split(' ');
        let name = parts.next().context("a name")?.to_owned();
        let time = Duration::from_millis(parts.next().context("a time")?.parse()?);
        Ok(Self { name, time, reached: parts.map(str::parse).collect::<Result<_, _>>()? })
    }
}

impl Guests {
    /// How many tests, and how long they take one after the other with nothing broken.
    pub fn size(&self) -> (usize, Duration) {
        (self.tests.len(), self.tests.iter().map(|t| t.time).sum())
    }

    /// Runs the script in two guests. `see` is told each line and by which guest; a test that fails, or silence, ends them.
    fn boot(&self, plan: &str, stop: bool, mut see: impl FnMut(usize, &str)) -> Result<End> {
        let plan_file = self.folder.join("plan");
        fs::write(&plan_file, plan)?;
        let script = self.folder.join("script.sh");
        let text = SCRIPT.replace("HANG", &HANG_LIMIT.to_string()).replace("BY", &self.by);
        fs::write(&script, text)?;
        // Of guests that were ended the logs stay, with all they booted from; here nobody looks at them.
        let folder = std::env::temp_dir().join(format!("berth-m{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(&self.repo)
            .args(["xtask", "guest", "--kernel", "test", "--cpus", "2", "--sim=--split-writes=61", "--limit", "21600"])
            .arg("--driver")
            .arg(self.folder.join("tree/driver"))
            .arg("--driver-out")
            .arg(&self.folder)
            .arg("--script")
            .arg(&script)
            .arg("--share")
            .arg(&plan_file)
            .env("TMPDIR", &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cargo xtask guest")?;
        let (sender, lines) = mpsc::channel();
        let output = child.stderr.take().context("it has an output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        let mut log = String::new();
        let mut booted = false;
        let end = loop {
            // What is built before they boot says nothing for long, and with nothing broken a test may take long.
            let patience = if booted && stop { SILENCE } else { Duration::from_secs(3600) };
            match lines.recv_timeout(patience) {
                Ok(line) => {
                    log += &line;
                    log.push('\n');
                    let Some((guest, text)) = line.split_once("| ") else { continue };
                    let Some(guest) = ["a", "b"].iter().position(|g| *g == guest) else { continue };
                    booted = true;
                    see(guest, text);
                    if stop && text.starts_with("test ") && text.contains(" ... FAILED") {
                        break End::Failed(guest);
                    }
                }
                Err(RecvTimeoutError::Timeout) => break End::Silent,
                Err(RecvTimeoutError::Disconnected) => {
                    let gone = |name: &&str| log.contains(&format!("guest {name} ended before its script did"));
                    let whole = child.wait()?.success();
                    break if whole {
                        End::Whole
                    } else {
                        ["a", "b"].iter().position(gone).map_or(End::Broken, End::Failed)
                    };
                }
            }
        };
        if matches!(end, End::Failed(_) | End::Silent) {
            // As Ctrl-C does, so that it ends the guests and the simulator.
            Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
            child.wait()?;
        }
        fs::write(self.folder.join("guests.log"), log)?;
        fs::remove_dir_all(&folder).ok();
        Ok(end)
    }

    /// Runs each test with nothing broken; false if it was not built.
    fn measure(&mut self) -> Result<bool> {
        println!("building the driver, and running each test of the guests with nothing broken");
        let mut tests: BTreeMap<String, Test> = BTreeMap::new();
        let mut now = [const { String::new() }; 2];
        let mut failed = BTreeSet::new();
        let end = self.boot("", false, |guest, line| {
            let words: Vec<_> = line.split_whitespace().collect();
            match &words[..] {
                ["test", name, "begins"] => now[guest] = (*name).to_owned(),
                ["test", name, "...", "ok", time, "s)"] => {
                    let seconds = time.trim_start_matches('(').parse().unwrap_or(0.0);
                    let test = tests.entry((*name).to_owned()).or_default();
                    test.time = test.time.max(Duration::from_secs_f64(seconds));
                }
                ["test", name, "...", "FAILED", ..] => drop(failed.insert((*name).to_owned())),
                ["mutant", _, "begins"] => now[guest].clear(),
                ["reached", base, bits] => {
                    let (base, bits) = (base.parse().unwrap_or(0), u64::from_str_radix(bits, 16).unwrap_or(0));
                    let test = tests.entry(now[guest].clone()).or_default();
                    test.reached.extend((0..64).filter(|i| bits >> i & 1 == 1).map(|i| base + i));
                }
                _ => (),
            }
        })?;
        // What is reached by loading the module alone counts for the tests of the guest that has none then.
        tests.remove("");
        tests.retain(|name, _| !failed.contains(name));
        self.tests = tests.into_iter().map(|(name, test)| Test { name, ..test }).collect();
        if !failed.is_empty() {
            println!("not used, as they fail alone with nothing broken: {failed:?}");
        }
        match end {
            End::Whole => Ok(true),
            _ if self.tests.is_empty() => Ok(false),
            _ => bail!("guests with nothing broken end with {end:?}: {}", self.folder.join("guests.log").display()),
        }
    }

    /// The tests for a mutant: those first that are quick, and that have noticed others near it, as many as take `most`.
    fn order(&self, mutant: &Mutant, kills: &BTreeMap<(String, String), u32>, most: Duration) -> Vec<&str> {
        let place = format!("{} {}", mutant.file, mutant.function);
        let mut order: Vec<_> = self
            .tests
            .iter()
            .filter(|t| t.reached.contains(&mutant.id))
            .map(|t| (t.time / (1 + kills.get(&(place.clone(), t.name.clone())).copied().unwrap_or(0)), t))
            .collect();
        order.sort_by_key(|(time, _)| *time);
        let mut sum = Duration::ZERO;
        let within = order.iter().take_while(|(_, t)| {
            let within = sum == Duration::ZERO || sum + t.time <= most;
            sum += t.time;
            within
        });
        within.map(|(_, t)| t.name.as_str()).collect()
    }

    /// What becomes of each mutant; says which survive.
    ///
    /// # Errors
    /// If guests cannot be started.
    pub fn try_all(&self, mutants: &[&Mutant], most: Duration) -> Result<Vec<Fate>> {
        let mut fates = vec![Fate::Unreached; mutants.len()];
        let mut kills = BTreeMap::new();
        let reached = |i: &usize| self.tests.iter().any(|t| t.reached.contains(&mutants[*i].id));
        let (mut left, others): (Vec<usize>, Vec<usize>) = (0..mutants.len()).partition(reached);
        let tell = |fate: &Fate, i: usize| println!("{fate:?}: line {} of {}", mutants[i].line, mutants[i].key());
        others.iter().for_each(|&i| tell(&Fate::Unreached, i));
        let (start, mut idle, mut doubtful) = (Instant::now(), 0, BTreeSet::new());
        while !left.is_empty() {
            let plan: String = left
                .iter()
                .map(|&i| format!("{} {}\n", mutants[i].id, self.order(mutants[i], &kills, most).join(",")))
                .collect();
            let mut sides = [Side::default(), Side::default()];
            let end = self.boot(&plan, true, |guest, line| {
                let words: Vec<_> = line.split_whitespace().collect();
                match &words[..] {
                    ["mutant", _, "ends"] => sides[guest].done += 1,
                    ["test", name, ..] => (*name).clone_into(&mut sides[guest].test),
                    _ => (),
                }
            })?;
            let guest = match end {
                End::Failed(guest) => guest,
                // The other one waits for the one that is behind.
                _ => usize::from(sides[1].done < sides[0].done),
            };
            let whole = sides[0].done.min(sides[1].done);
            for &i in &left[..whole] {
                fates[i] = Fate::Survives;
                tell(&fates[i], i);
            }
            if end != End::Whole {
                let (at, test) = (sides[guest].done, sides[guest].test.clone());
                idle = if test.is_empty() { idle + 1 } else { 0 };
                if idle > 2 {
                    bail!("the guests do not boot: {}", self.folder.join("guests.log").display());
                }
                // What says neither guest, nor a test, that ended too early may have ended by itself: once.
                if !test.is_empty()
                    && let Some(&i) = left.get(at)
                    && (end != End::Broken || !doubtful.insert(i))
                {
                    *kills
                        .entry((format!("{} {}", mutants[i].file, mutants[i].function), test.clone()))
                        .or_insert(0) += 1;
                    println!("{end:?} in {test}: line {} of {}", mutants[i].line, mutants[i].key());
                    fates[i] = if end == End::Silent { Fate::Hangs(test) } else { Fate::Killed(test) };
                    left.remove(at);
                }
            }
            left.drain(..whole);
            eprintln!("{} of {} in {} s", mutants.len() - left.len(), mutants.len(), start.elapsed().as_secs());
        }
        Ok(fates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("berth-mutants-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        folder
    }

    #[test]
    fn each_group_of_the_driver_has_mutants_and_its_copy_asks_for_them() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tree = temporary("tree");
        let (mutants, _) = write_mutants(&repo, &tree, &BTreeSet::new()).unwrap();
        for (name, files) in GROUPS {
            assert!(mutants.iter().filter(|m| files.contains(&m.file.as_str())).count() > 20, "{name}");
        }
        let last = mutants.last().unwrap();
        let text = fs::read_to_string(tree.join("driver").join(&last.file)).unwrap();
        assert!(text.contains(&format!("mutated :: on ({}u32)", last.id)), "{last:?}");
        fs::remove_dir_all(tree).unwrap();
    }

    #[test]
    fn each_mutant_that_is_known_to_change_nothing_is_there() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tree = temporary("known");
        let (mutants, _) = write_mutants(&repo, &tree, &BTreeSet::new()).unwrap();
        fs::remove_dir_all(tree).unwrap();
        let there: BTreeSet<String> = mutants.iter().map(Mutant::key).collect();
        let known = include_str!("../driver-survivors.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
        let gone: Vec<_> = known.filter(|l| l.rsplit_once(" | ").is_none_or(|(key, _)| !there.contains(key))).collect();
        assert!(gone.is_empty(), "{gone:#?}");
    }

    #[test]
    fn the_mutant_before_an_error_is_suspected() {
        let tree = temporary("errors");
        let text = "if crate :: mutated :: on (7u32) { a } else { b } if crate :: mutated :: on (8u32) { é }";
        write(&tree.join("driver/kernel/pin.rs"), text.as_bytes()).unwrap();
        let column = 1 + text.chars().position(|c| c == 'é').unwrap();
        let log = format!(
            "warning: x\n --> /x/driver/kernel/pin.rs:1:1\n\nerror[E0308]: y\n   --> /x/driver/kernel/pin.rs:1:{column}\n  --> /x/driver/kernel/pin.rs:1:1\n"
        );
        assert_eq!(suspects(&tree, &log), BTreeSet::from([8]));
        fs::remove_dir_all(tree).unwrap();
    }

    #[test]
    fn a_test_is_written_and_read() {
        let test = Test { name: "x".into(), time: Duration::from_millis(1500), reached: BTreeSet::from([3, 64]) };
        let again = Test::read(test.line().trim_end()).unwrap();
        assert_eq!((again.name, again.time, again.reached), (test.name, test.time, test.reached));
    }
}
