// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth-check`: explores every harness, prints states and bounds, and shows that broken rules are seen.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use berth_check::explore::{Limits, Outcome};
use berth_check::suite::{Check, Mutation, checks, mutations, unbroken, unguarded};
use berth_protocol::base::rule::break_rule;
use clap::Parser;

/// Explores every reachable state of Berth's protocol machines within small bounds.
#[derive(Parser)]
struct Arguments {
    /// The larger bounds: up to an hour, several gigabytes.
    #[arg(long)]
    long: bool,
    /// Only checks whose name contains this; may be repeated.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the checks with their bounds and end.
    #[arg(long)]
    list: bool,
    /// Leave out stateright's own search of the same models.
    #[arg(long)]
    no_cross_check: bool,
    /// Leave out the broken rules.
    #[arg(long)]
    no_mutations: bool,
    /// Only the broken rules.
    #[arg(long)]
    only_mutations: bool,
    /// Harnesses explored at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Most states of one harness.
    #[arg(long, default_value_t = 400_000_000)]
    states: u32,
    /// Results as JSON on the standard output.
    #[arg(long)]
    json: bool,
    /// Write the results into this page [default: docs/results/model-checking.md].
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "docs/results/model-checking.md",
        conflicts_with_all = ["names", "no_mutations", "only_mutations"]
    )]
    docs: Option<std::path::PathBuf>,
    /// Show whole ways and states of violations (also of broken rules).
    #[arg(long)]
    verbose: bool,
}

/// One explored harness.
#[derive(serde::Serialize)]
struct Row {
    check: &'static str,
    bounds: String,
    properties: Vec<&'static str>,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
    /// States that stateright found.
    stateright: Option<u64>,
    passed: bool,
}

/// One broken rule.
#[derive(serde::Serialize)]
struct Broken {
    rule: String,
    check: &'static str,
    property: &'static str,
    caught: bool,
    /// Steps of the counterexample.
    steps: usize,
    /// States seen until then.
    states: u64,
    #[serde(skip)]
    trace: String,
}

fn run(check: &dyn Check, arguments: &Arguments) -> Row {
    let start = Instant::now();
    let outcome = check.explore(Limits { states: arguments.states, until: None });
    let other = (!arguments.no_cross_check).then(|| check.cross_check(1));
    let agrees = other.as_ref().is_none_or(|(states, bad)| *states == outcome.states && bad.is_empty());
    Row {
        check: check.name(),
        bounds: check.bounds(),
        properties: check.properties(),
        seconds: start.elapsed().as_secs_f64(),
        passed: outcome.good() && agrees,
        outcome,
        stateright: other.map(|o| o.0),
    }
}

fn trace(outcome: &Outcome, verbose: bool) -> String {
    let mut text = String::new();
    for violation in &outcome.violations {
        let _ = writeln!(text, "    {}: fails after {} steps", violation.property, violation.steps.len());
        for step in &violation.steps {
            let _ = writeln!(text, "      {step}");
        }
        if verbose {
            let _ = writeln!(text, "{}", violation.state);
        }
    }
    text
}

fn print(row: &Row, arguments: &Arguments) {
    if arguments.json {
        return;
    }
    let o = &row.outcome;
    println!(
        "{} {:<18} {:>11} states {:>12} steps  depth {:>3}  {:>6.1} s",
        if row.passed { "ok  " } else { "FAIL" },
        row.check,
        o.states,
        o.transitions,
        o.depth,
        row.seconds,
    );
    println!("       {}", row.bounds);
    if !o.complete {
        println!("       NOT COMPLETE: stopped before the frontier was empty");
    }
    if let Some(states) = row.stateright.filter(|&s| s != o.states) {
        println!("       stateright found {states} states");
    }
    for name in &o.never {
        println!("       never seen: {name}");
    }
    print!("{}", trace(o, arguments.verbose));
}

/// The page of results.
fn page(rows: &[Row], broken: &[Broken], long: bool) -> String {
    let mut text = format!(
        "# Model checking\n\n`cargo run --profile checked -p berth-check -- {}--docs` writes this page. [How it \
         works](../develop/proofs.md#model-checking) says what is explored and what must hold.\n\n| check | states | \
         steps | depth | bounds |\n|---|---:|---:|---:|---|\n",
        if long { "--long " } else { "" }
    );
    for row in rows {
        let (o, fails) = (&row.outcome, if row.passed { "" } else { "**FAILS** " });
        let _ = writeln!(
            text,
            "| {} | {fails}{} | {} | {} | {} |",
            row.check, o.states, o.transitions, o.depth, row.bounds
        );
    }
    text += "\n## Broken rules\n\n| broken rule | seen by | property that fails | steps of the counterexample |\n\
             |---|---|---|---:|\n";
    for b in broken {
        let fails = if b.caught { "" } else { "**none** " };
        let _ = writeln!(text, "| {} | {} | {fails}{} | {} |", b.rule, b.check, b.property, b.steps);
    }
    text
}

fn mutate(mutation: Mutation, checks: &[Box<dyn Check>], arguments: &Arguments) -> Option<Broken> {
    let check = checks.iter().find(|c| c.name() == mutation.check)?;
    break_rule(Some(mutation.rule));
    let outcome = check.explore(Limits { states: arguments.states, until: Some(mutation.property) });
    break_rule(None);
    let found = outcome.violation(mutation.property);
    Some(Broken {
        rule: format!("{:?}", mutation.rule),
        check: mutation.check,
        property: mutation.property,
        caught: found.is_some(),
        steps: found.map_or(0, |v| v.steps.len()),
        states: outcome.states,
        trace: trace(&outcome, arguments.verbose),
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| name.contains(n.as_str()));
    let mut wanted = checks(arguments.long);
    wanted.retain(|c| chosen(c.name()));
    if arguments.list {
        for check in &wanted {
            println!("{:<18} {}", check.name(), check.bounds());
        }
        return ExitCode::SUCCESS;
    }
    let mut rows = Vec::new();
    if !arguments.only_mutations {
        let next = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..arguments.jobs.max(1) {
                let (sender, wanted, next, arguments) = (sender.clone(), &wanted, &next, &arguments);
                scope.spawn(move || {
                    while let Some(check) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if sender.send(run(check.as_ref(), arguments)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for row in receiver {
                print(&row, &arguments);
                rows.push(row);
            }
        });
    }
    let mut broken = Vec::new();
    // What the mutations leave open: a property that none of them fails, a rule that none of them breaks.
    let mut open: Vec<String> = Vec::new();
    if !arguments.no_mutations {
        let small = checks(false);
        let properties = unguarded(&small, &mutations()).into_iter();
        open.extend(properties.map(|(harness, property)| format!("{harness}: no broken rule fails \"{property}\"")));
        open.extend(unbroken(&mutations()).into_iter().map(|rule| format!("nothing breaks {rule:?}")));
        if !arguments.json {
            open.iter().for_each(|what| println!("MISS {what}"));
        }
        for mutation in mutations().into_iter().filter(|m| chosen(m.check)) {
            let Some(result) = mutate(mutation, &small, &arguments) else {
                eprintln!("no check {} for {:?}", mutation.check, mutation.rule);
                return ExitCode::FAILURE;
            };
            if !arguments.json {
                println!(
                    "{} broken {:<26} {:<18} {} ({} steps, {} states)",
                    if result.caught { "seen" } else { "MISS" },
                    result.rule,
                    result.check,
                    result.property,
                    result.steps,
                    result.states,
                );
                if arguments.verbose || !result.caught {
                    print!("{}", result.trace);
                }
            }
            broken.push(result);
        }
    }
    if let Some(path) = &arguments.docs {
        rows.sort_by_key(|row| wanted.iter().position(|check| check.name() == row.check));
        if let Err(error) = std::fs::write(path, page(&rows, &broken, arguments.long)) {
            eprintln!("writing {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    let failed = rows.iter().filter(|r| !r.passed).count() + broken.iter().filter(|b| !b.caught).count();
    let passed = rows.len() + broken.len() - failed;
    let failed = failed + open.len();
    if arguments.json {
        println!(
            "{}",
            serde_json::json!({ "checks": rows, "mutations": broken, "open": open, "passed": passed, "failed": failed })
        );
    } else {
        let states: u64 = rows.iter().map(|r| r.outcome.states).sum();
        println!("{states} states; {passed} passed, {failed} failed");
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
