// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulates Berth at scale and writes the results: `cargo xtask simulate --help`.

use anyhow::{Result, ensure};
use berth_fabric::answer::{Answer, Scale, peak_memory};
use berth_fabric::{credits, memory, page, paging, triggers};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Instant;

/// Simulates Berth and other ways of flow control on a fabric of links and switches. Answers four questions with
/// tables (JSON) and plots (SVG). A run depends on its options only: the same seed gives the same files.
#[derive(Parser)]
#[command(name = "cargo xtask simulate", bin_name = "cargo xtask simulate")]
struct Cli {
    /// Hosts.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=16384))]
    nodes: u32,
    /// Connections; 8 for each host if it is not said.
    #[arg(long)]
    connections: Option<u32>,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these questions; may be repeated or separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Question>,
    /// 4096 hosts and 100 000 connections, unless said otherwise, for questions 1, 3 and 4; files are named large-….
    #[arg(long)]
    large: bool,
    /// Folder for the files; the page of them, with the folder's name and `.md`, is written beside it.
    #[arg(long, default_value = "docs/results/simulation")]
    out: PathBuf,
    /// Runs side by side.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Simulate nothing: only write the page anew, from the tables that are in the folder.
    #[arg(long)]
    page: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Question {
    /// 1: credit lists against other schemes.
    #[value(alias = "1")]
    Credits,
    /// 2: when the next list goes.
    #[value(alias = "2")]
    Triggers,
    /// 3: pin on credit against fault-driven paging and full registration.
    #[value(alias = "3")]
    Paging,
    /// 4: memory per connection with fixed, shared and growing buffers.
    #[value(alias = "4")]
    Memory,
}

impl Question {
    fn answer(self, scale: &Scale) -> Result<Answer> {
        match self {
            Self::Credits => credits::answer(scale),
            Self::Triggers => triggers::answer(scale),
            Self::Paging => paging::answer(scale),
            Self::Memory => memory::answer(scale),
        }
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if cli.page {
        return page::write(&cli.out);
    }
    let nodes = if cli.large && cli.nodes == 128 { 4096 } else { cli.nodes };
    let connections = cli.connections.unwrap_or(if cli.large { 100_000 } else { nodes * 8 });
    let scale = Scale { nodes, connections, seed: cli.seed, jobs: cli.jobs };
    // Trigger policies are about one sender.
    let questions = match (cli.only.is_empty(), cli.large) {
        (true, true) => vec![Question::Credits, Question::Paging, Question::Memory],
        (true, false) => Question::value_variants().to_vec(),
        (false, _) => cli.only,
    };
    let start = Instant::now();
    for question in questions {
        eprintln!("── {question:?}: {nodes} hosts, {connections} connections, seed {}", cli.seed);
        let began = Instant::now();
        let answer = question.answer(&scale)?;
        answer.write(&cli.out, if cli.large { "large-" } else { "" }, &scale)?;
        println!("{}", answer.markdown());
        let unfinished: f64 = answer.rows.iter().map(|r| r.number("unfinished")).filter(|n| !n.is_nan()).sum();
        ensure!(unfinished == 0.0, "{unfinished} messages were not received by the end of their runs");
        let time = began.elapsed().as_secs_f64();
        println!("{question:?}: {} runs in {time:.1} s, at most {} MiB", answer.rows.len(), peak_memory());
    }
    page::write(&cli.out)?;
    println!("{:.1} s; files are in {}", start.elapsed().as_secs_f64(), cli.out.display());
    Ok(())
}
