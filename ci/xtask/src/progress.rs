// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long steps: what runs and since when on one line, everything it prints in a log file, and the end of that log
//! on the terminal when it fails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How many of the last lines of a log are shown when a step fails.
const TAIL: usize = 30;

/// The lines that move: one for each thread that runs steps.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into a flag, so that what runs is ended in order and nothing half-built keeps a final
/// name.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn catch_signals() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // A second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Whether the user asked to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|f| f.load(Ordering::Relaxed))
}

/// Ends a wait when the user asked to stop.
///
/// # Errors
/// [`interrupted_error`] when so.
pub fn stop_if_interrupted() -> Result<()> {
    if interrupted() { Err(interrupted_error()) } else { Ok(()) }
}

/// The error to return after [`interrupted`].
pub fn interrupted_error() -> anyhow::Error {
    anyhow::anyhow!("interrupted; the same command goes on where this one stopped")
}

/// "1:05" for 65 seconds.
pub fn clock(time: Duration) -> String {
    let s = time.as_secs();
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

/// One line on the terminal that says what runs; a line every half minute where there is no terminal.
pub struct Progress {
    title: String,
    bar: Option<ProgressBar>,
    start: Instant,
    said: Instant,
}

impl Progress {
    /// Shows `title`; `estimate` says how long this takes on two cores, for things that take long.
    pub fn start(title: &str, estimate: Option<&str>) -> Self {
        let about = estimate.map(|e| format!(" (about {e} on 2 cores)")).unwrap_or_default();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = BARS.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {prefix} {elapsed:.dim} {wide_msg:.dim}") {
                bar.set_style(style);
            }
            bar.set_prefix(format!("{title}{about}"));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            eprintln!("… {title}{about}");
        }
        Self { title: title.to_owned(), bar, start: Instant::now(), said: Instant::now() }
    }

    /// What it does right now.
    pub fn detail(&mut self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.trim().to_owned());
        } else if self.said.elapsed() > Duration::from_secs(30) {
            self.said = Instant::now();
            eprintln!("… {} {}: {}", self.title, clock(self.start.elapsed()), text.trim());
        }
    }

    /// Ends with a mark.
    pub fn finish(self, ok: bool) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let mark = if ok { console::style("✓").green() } else { console::style("✗").red() };
        line(&format!("{mark} {} {}", self.title, console::style(clock(self.start.elapsed())).dim()));
    }
}

/// Prints whole lines, above those that move.
pub fn line(text: &str) {
    BARS.suspend(|| eprintln!("{text}"));
}

/// What a finished command printed.
pub struct Output {
    /// All lines of its standard output, then those of its standard error as they came (mixed).
    pub lines: Vec<String>,
    /// Whether it exited with 0.
    pub ok: bool,
}

/// Runs a command with its output in `log` and its last line on the terminal.
///
/// # Errors
/// When it cannot be started, fails (with the end of the log in the message), or the user interrupts it.
pub fn run(title: &str, estimate: Option<&str>, log: &Path, command: &mut Command) -> Result<Vec<String>> {
    let mut progress = Progress::start(title, estimate);
    let result = output(&mut progress, log, command);
    progress.finish(result.as_ref().is_ok_and(|o| o.ok));
    let output = result?;
    if !output.ok {
        bail!("{}", failure(title, log, &output.lines));
    }
    Ok(output.lines)
}

/// The message for a failed step: its last lines and where the rest is.
pub fn failure(title: &str, log: &Path, lines: &[String]) -> String {
    let tail = lines.len().saturating_sub(TAIL);
    let mut text = format!("{title} failed; its last lines:\n");
    for line in &lines[tail..] {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&format!("everything it printed: {}", log.display()));
    text
}

/// Runs a command under a progress line that is already shown.
///
/// # Errors
/// When it cannot be started or the user interrupts it.
pub fn output(progress: &mut Progress, log: &Path, command: &mut Command) -> Result<Output> {
    if interrupted() {
        return Err(interrupted_error());
    }
    let mut file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    writeln!(file, "$ {command:?}")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let (sender, receiver) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|p| Box::new(p) as _), child.stderr.take().map(|p| Box::new(p) as _)];
    let readers: Vec<_> = pipes
        .into_iter()
        .flatten()
        .map(|pipe| {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line);
                    if sender.send(console::strip_ansi_codes(line.trim_end()).into_owned()).is_err() {
                        break;
                    }
                }
            })
        })
        .collect();
    drop(sender);
    let mut lines = Vec::new();
    let mut stopped = false;
    loop {
        match receiver.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                writeln!(file, "{line}")?;
                if !line.is_empty() {
                    progress.detail(&line);
                }
                lines.push(line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if interrupted() && !stopped {
            stopped = true;
            child.kill().ok();
        }
    }
    let status = child.wait()?;
    for reader in readers {
        reader.join().ok();
    }
    if stopped || interrupted() {
        return Err(interrupted_error());
    }
    Ok(Output { lines, ok: status.success() })
}

/// The last `count` lines of a file, for messages.
pub fn tail(path: &Path, count: usize) -> Vec<String> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut last = VecDeque::with_capacity(count);
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if last.len() == count {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
    last.into()
}
