// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --host`: what the hosts have to do, in counted instructions of two guests with Debian's kernel.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use berth_marks::{BEGIN, END, IDLE, WORD};

use crate::bench::Arguments;
use crate::guest::{self, Role};
use crate::kernel::{Flavour, Host};
use crate::packaging::{copy_of, fresh};
use crate::paths;
use crate::profile::{Profile, Symbols};
use crate::progress::Progress;
use crate::steps::{Builder, Parts};

/// The page with the results.
const PAGE: &str = "docs/results/host.md";
/// How it begins.
const HEAD: &str = "# The host's share

`cargo xtask bench --host --docs` writes this page: instructions of two guests with Debian's stock kernel, one processor (`max`) each, \
counted by a plugin of QEMU's TCG; for TCP over the loopback of one guest, likewise for a UNIX socket; for shared memory and soft \
RoCE, whose two ends take turns in one thread, and whose receiver uses the bytes where they are. The NIC of late receives tries \
again after 10 µs. A guest's clock goes by its instructions, one each \
nanosecond. Left out are polls that found nothing, and ticks of the timer by what they cost in an idle guest. A repeated \
string instruction counts by the bytes that it writes, in a column of its own. Cold: each page is used for the first time, and \
is resident; that it is given back is counted, too. Warm: pages stay pinned meanwhile. Because the simulated card is slow, the driver is told to keep unused pages longer: 1 s where it is cold, a minute \
where it is warm.

| id | what | programs | kernels | together | goal | bytes by string instructions | interrupts |
|---|---|---:|---:|---:|---:|---:|---:|
";

/// What is counted: the window's name, what it is divided by, and the most that is wanted of it.
struct Figure {
    id: &'static str,
    about: &'static str,
    unit: Unit,
    goal: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    MiB,
    Message,
}

impl Unit {
    /// How many of them a window has.
    fn of(self, window: &Window) -> f64 {
        match self {
            Self::MiB => window.bytes / f64::from(1 << 20),
            Self::Message => window.messages,
        }
    }
}

const FIGURES: [Figure; 17] = [
    Figure {
        id: "stream_cold",
        about: "stream of 64 KiB messages, cold, polling, per MiB",
        unit: Unit::MiB,
        goal: Some(150e3),
    },
    Figure { id: "stream_cold_wait", about: "the same, sleeping", unit: Unit::MiB, goal: None },
    Figure { id: "stream_warm", about: "a ring of 16 buffers, polling, per MiB", unit: Unit::MiB, goal: Some(10e3) },
    Figure { id: "stream_warm_wait", about: "the same, sleeping", unit: Unit::MiB, goal: None },
    Figure { id: "round_trip_wait", about: "64 bytes there and back, sleeping", unit: Unit::Message, goal: Some(12e3) },
    Figure { id: "round_trip_poll", about: "the same, polling", unit: Unit::Message, goal: Some(1500.0) },
    Figure { id: "message_poll", about: "64 bytes one way, streamed, polling", unit: Unit::Message, goal: Some(800.0) },
    Figure { id: "tcp_stream", about: "TCP: stream of 64 KiB messages, per MiB", unit: Unit::MiB, goal: None },
    Figure { id: "tcp_round_trip", about: "TCP: 64 bytes there and back", unit: Unit::Message, goal: None },
    Figure { id: "unix_stream", about: "UNIX socket: stream of 64 KiB messages, per MiB", unit: Unit::MiB, goal: None },
    Figure { id: "unix_round_trip", about: "UNIX socket: 64 bytes there and back", unit: Unit::Message, goal: None },
    Figure {
        id: "memory_stream",
        about: "credits through shared memory (CR-12): stream of 64 KiB messages, per MiB",
        unit: Unit::MiB,
        goal: None,
    },
    Figure { id: "memory_round_trip", about: "the same: 64 bytes there and back", unit: Unit::Message, goal: None },
    Figure { id: "rxe_bare", about: "soft RoCE: 4 KiB messages in bursts of 16, per MiB", unit: Unit::MiB, goal: None },
    Figure { id: "rxe_credits", about: "the same with the library's credits (CR-15)", unit: Unit::MiB, goal: None },
    Figure { id: "rxe_bare_late", about: "soft RoCE, receives 200 µs late", unit: Unit::MiB, goal: None },
    Figure { id: "rxe_credits_late", about: "the same with credits", unit: Unit::MiB, goal: None },
];

/// What was counted between two marks in one guest.
#[derive(Clone, Debug, Default, PartialEq)]
struct Window {
    name: String,
    messages: f64,
    bytes: f64,
    ticks: f64,
    /// Interrupts of the card.
    interrupts: f64,
    /// Instructions of programs and of the kernel; bytes that string instructions of either have written; instructions of
    /// programs in polls that found nothing.
    counts: [f64; 5],
}

impl Window {
    /// Instructions of programs and of the kernel that count, if a tick takes so many.
    fn work(&self, tick: f64) -> [f64; 2] {
        let [user, kernel, _, _, idle] = self.counts;
        [user - idle, (kernel - self.ticks * tick).max(0.0)]
    }

    fn string_bytes(&self) -> f64 {
        self.counts[2] + self.counts[3]
    }
}

/// The windows of a guest: the lines that its plugin wrote, and those that its program printed.
fn windows(marks: &str, output: &[String]) -> Result<Vec<Window>> {
    let mut lines =
        marks.lines().map(|line| line.split(' ').map(|n| Ok(n.parse::<f64>()?)).collect::<Result<Vec<_>>>());
    let mut windows = Vec::new();
    for said in output.iter().filter_map(|line| line.strip_prefix(WORD)) {
        let words: Vec<_> = said.split_whitespace().collect();
        let [name, messages, bytes, ticks, interrupts] = words[..] else { bail!("the guest said {said:?}") };
        let [begin, end] = [BEGIN, END].map(f64::from).map(|number| match lines.next() {
            Some(Ok(line)) if line.len() == 6 && line[0] == number => Ok(line),
            other => bail!("{name}: mark {number} is {other:?}"),
        });
        let (begin, end) = (begin?, end?);
        let counts = std::array::from_fn(|n| end[n + 1] - begin[n + 1]);
        let [messages, bytes, ticks, interrupts] = [messages, bytes, ticks, interrupts].map(str::parse);
        let name = name.to_owned();
        let (messages, bytes, ticks, interrupts) = (messages?, bytes?, ticks?, interrupts?);
        windows.push(Window { name, messages, bytes, ticks, interrupts, counts });
    }
    ensure!(lines.next().is_none(), "there are more marks than windows");
    Ok(windows)
}

/// A figure's value: instructions of programs and kernels, bytes by string instructions, and interrupts, of all guests
/// together.
fn value(figure: &Figure, guests: &[Vec<Window>]) -> Option<[f64; 4]> {
    let mut sum = [0.0; 4];
    let mut is_there = false;
    for windows in guests {
        let idle = windows.iter().find(|window| window.name == IDLE)?;
        let tick = idle.counts[1] / idle.ticks.max(1.0);
        let Some(window) = windows.iter().find(|window| window.name == figure.id) else { continue };
        is_there = true;
        let units = figure.unit.of(window);
        let [user, kernel] = window.work(tick);
        for (sum, more) in sum.iter_mut().zip([user, kernel, window.string_bytes(), window.interrupts]) {
            *sum += more / units;
        }
    }
    is_there.then_some(sum)
}

/// The rows of the table.
fn table(guests: &[Vec<Window>]) -> Result<String> {
    let mut text = String::new();
    for figure in &FIGURES {
        let [user, kernel, bytes, interrupts] =
            value(figure, guests).with_context(|| format!("{} was not counted", figure.id))?;
        let goal = figure.goal.map_or_else(|| "–".to_owned(), |goal| format!("{goal}"));
        let Figure { id, about, .. } = figure;
        writeln!(
            text,
            "| {id} | {about} | {user:.0} | {kernel:.0} | {:.0} | {goal} | {bytes:.0} | {interrupts:.2} |",
            user + kernel
        )?;
    }
    Ok(text)
}

/// Functions that a profile names.
const FUNCTIONS: usize = 60;

/// Prints which functions the instructions of each window are of, both guests together, per unit of its figure.
fn print_profiles(run: &guest::Run, program: &Path, counted: &BTreeMap<Role, Vec<Window>>) -> Result<()> {
    let mut profiles = BTreeMap::new();
    for (role, windows) in counted {
        let file = |name: String| fs::read_to_string(run.share.join(&name)).context(name);
        let mut symbols = Symbols::of_kernel(&file(format!("kallsyms-{role}"))?);
        symbols.add_program(&fs::read(program)?, &file(format!("maps-{role}"))?)?;
        let blocks = fs::read_to_string(run.profile(*role)).context("the blocks that the plugin has counted")?;
        profiles.insert(*role, Profile::all(&blocks, &symbols)?);
        // Each window ends with its second mark.
        ensure!(profiles[role].len() == 2 * windows.len(), "there are other marks in the profile");
    }
    for figure in &FIGURES {
        let mut sum = Profile::default();
        let mut units = 1.0;
        for (role, windows) in counted {
            if let Some(at) = windows.iter().position(|window| window.name == figure.id) {
                units = figure.unit.of(&windows[at]);
                sum.add(&profiles[role][2 * at + 1]);
            }
        }
        if sum == Profile::default() {
            continue;
        }
        println!("{}, by function:", figure.id);
        for (name, instructions) in sum.most(FUNCTIONS) {
            println!("{:>12.0}  {name}", instructions / units);
        }
    }
    Ok(())
}

fn json(guests: &[Vec<Window>]) -> serde_json::Value {
    FIGURES
        .iter()
        .filter_map(|figure| {
            let [user, kernel, bytes, interrupts] = value(figure, guests)?;
            let unit = if figure.unit == Unit::MiB { "instructions/MiB" } else { "instructions" };
            let (value, pass) = (user + kernel, figure.goal.map(|goal| user + kernel <= goal));
            let params = serde_json::json!({ "programs": user, "kernels": kernel, "string_bytes": bytes, "interrupts": interrupts });
            Some(serde_json::json!({
                "id": figure.id, "params": params, "value": value, "unit": unit, "limit": null, "bar": figure.goal,
                "pass": pass,
            }))
        })
        .collect()
}

/// What the guests of a run have counted.
fn counted(end: &guest::End, run: &guest::Run) -> Result<BTreeMap<Role, Vec<Window>>> {
    let of = |(role, guest): (&Role, &guest::GuestEnd)| {
        let marks = fs::read_to_string(run.counts(*role)).context("what the plugin has counted")?;
        Ok((*role, windows(&marks, &guest.output).with_context(|| format!("guest {role}"))?))
    };
    end.guests.iter().map(of).collect()
}

/// Runs the guests and counts.
fn count(
    builder: &Builder,
    parts: &Parts,
    options: &guest::Options,
    run: &mut guest::Run,
    mut progress: Progress,
) -> Result<BTreeMap<Role, Vec<Window>>> {
    let end = guest::run(builder, parts, options, run, &mut progress);
    progress.finish(end.as_ref().is_ok_and(|end| end.faults().is_empty()));
    let end = end.inspect_err(|_| run.preserve())?;
    if !end.faults().is_empty() {
        run.preserve();
        bail!("{}\nlogs: {}", end.faults().join("\n"), run.folder.display());
    }
    counted(&end, run)
}

/// What a guest with soft RoCE does, on Debian's shell.
const SOFT_ROCE: &str = "set -e
modprobe dummy
modprobe rdma_rxe
ip link set lo up
ip link add wire type dummy
ip link set wire mtu 4200 up
ip addr add 192.0.2.1/24 dev wire
rdma link add rxe0 type rxe netdev wire
cp /mnt/share/verbs_count /tmp/verbs_count
for file in /sys/class/infiniband/rxe0/ports/1/gids/*; do
    if [ \"$(cat $file)\" = 0000:0000:0000:0000:0000:ffff:c000:0201 ]; then gid=${file##*/}; fi
done
/tmp/verbs_count rxe0 $gid
";

/// Credits over soft RoCE and soft RoCE without them, in a guest of its own: a Debian host without a card.
fn soft_roce(builder: &Builder, parts: &Parts, options: &guest::Options) -> Result<Vec<Window>> {
    let host = Host::ensure(&builder.context)?;
    let folder = fresh(builder, "count")?;
    let root = copy_of(&host, &folder)?;
    fs::create_dir(root.path("mnt/share"))?;
    let options = guest::Options {
        roles: vec![Role::A],
        cards: false,
        no_load: true,
        host: Some(root.path("/")),
        ..options.clone()
    };
    let mut run = guest::Run::new()?;
    fs::copy(builder.bursts()?.count, run.share.join("verbs_count"))?;
    fs::write(run.share.join("count.sh"), SOFT_ROCE)?;
    run.script(Role::A, "exec /bin/sh /mnt/share/count.sh\n")?;
    let progress = Progress::start("instructions of soft RoCE", Some("1 min"));
    let counted = count(builder, parts, &options, &mut run, progress);
    fs::remove_dir_all(&folder)?;
    counted?.remove(&Role::A).context("the guest has counted nothing")
}

/// Counts, prints the table, and writes it where the arguments say. Goals that are not reached are no failure.
///
/// # Errors
/// When something cannot be built or written, or a guest fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let to = arguments.json.as_deref();
    if let Some(file) = to {
        paths::output_file("--json", file)?;
    }
    let builder = Builder::new(&[])?;
    let parts = builder.parts(Flavour::Stock)?;
    let program = builder.guest_programs(Flavour::Test)?.join("berth-guest-tests");
    let mut options = guest::Options::new(Flavour::Stock);
    options.plugin = Some(builder.counter()?);
    options.limit = Duration::from_secs(40 * 60);
    let soft_roce = soft_roce(&builder, &parts, &options)?;
    options.profile = arguments.profile;
    let mut run = guest::Run::new()?;
    fs::copy(&program, run.share.join("count"))?;
    for role in Role::ALL {
        let script = format!(
            "for damon in /sys/module/damon_*/parameters/enabled; do echo N > $damon; done\n\
             ip link set lo up\ncp /mnt/share/count /tmp/count\ncp /proc/kallsyms /mnt/share/kallsyms-{role}\n\
             exec /tmp/count --count --role {role} --share /mnt/share\n"
        );
        run.script(role, &script)?;
    }
    let progress = Progress::start("instructions of two guests", Some("5 min"));
    let counted = count(&builder, &parts, &options, &mut run, progress)?;
    if arguments.profile {
        print_profiles(&run, &program, &counted)?;
    }
    let counted: Vec<_> = counted.into_values().chain([soft_roce]).collect();
    let table = table(&counted)?;
    print!("{HEAD}{table}");
    if arguments.docs {
        fs::write(builder.context.repo.join(PAGE), format!("{HEAD}{table}"))?;
    }
    if let Some(file) = to {
        fs::write(file, serde_json::to_string_pretty(&json(&counted))? + "\n")?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: &str = "1 0 0 0 0 0\n2 1000 400 0 0 0\n1 1000 500 8 0 0\n2 3000 2700 8 2097152 500\n";

    #[test]
    fn polls_that_found_nothing_and_ticks_are_left_out() {
        let said = ["COUNT idle 1 1 4 0", "running", "COUNT stream_cold 32 2097152 2 3"].map(str::to_owned);
        let windows = windows(MARKS, &said).unwrap();
        assert_eq!((windows[0].ticks, windows[1].messages), (4.0, 32.0));
        // Two MiB; a tick takes 100.
        let value = value(&FIGURES[0], &[windows.clone(), windows]).unwrap();
        assert_eq!(value, [1500.0, 2000.0, 2097152.0, 3.0]);
    }

    #[test]
    fn marks_and_windows_belong_together() {
        let said = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (marks, texts) in [
            (MARKS, &["COUNT idle 1 1 4 0"][..]),
            (MARKS, &["COUNT idle 1 1 4 0", "COUNT x 1 1 1 0", "COUNT y 1 1 1 0"]),
            (MARKS, &["COUNT idle 1 1 4", "COUNT x 1 1 1 0"]),
            ("2 0 0 0 0 0\n1 0 0 0 0 0\n", &["COUNT idle 1 1 4 0"]),
            ("1 0 0\n2 0 0 0 0 0\n", &["COUNT idle 1 1 4 0"]),
        ] {
            assert!(windows(marks, &said(texts)).is_err(), "{marks} {texts:?}");
        }
        assert_eq!(value(&FIGURES[0], &[vec![Window { name: IDLE.into(), ..Window::default() }]]), None);
    }
}
