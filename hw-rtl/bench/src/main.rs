// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth-bench`: figures of the Verilated card in clock cycles, in a declared slot. `cargo xtask bench` builds and
//! runs it; docs/develop/measure.md says what each figure is.

mod cards;
mod dma;
mod document;
mod fast;
mod mac;
mod model;
mod node;
mod pair;
mod plot;
mod policy;
mod raw;
mod rig;
mod rows;
mod sender;
mod synthesis;
mod waterfall;

use anyhow::{Context as _, Result, bail};
use berth_rtl_host::Dma;
use clap::Parser;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::model::Model;
use crate::rows::{Bar, Row};

/// Measures the card in clock cycles at every width, in a declared slot. Wall-clock time counts for nothing but the
/// figure sim_speed.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    #[command(flatten)]
    model: Model,
    /// Widths (DATA_W) to measure [default: all that are built in].
    #[arg(long, value_delimiter = ',', value_name = "BITS,…")]
    width: Vec<usize>,
    /// Only figures whose id begins with one of these.
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    only: Vec<String>,
    /// Only figures that must reach a bar.
    #[arg(long)]
    bars: bool,
    /// Write the figures to this file: a JSON array of {id, params, value, unit, limit, bar, pass}.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the plots (SVG) to this folder.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Figures of an earlier measurement (JSON), of which those that are measured now take the place, by id and width.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Measure nothing: only what --with gives.
    #[arg(long, requires = "with")]
    nothing: bool,
    /// Write the page of results to this file, and the plots into the folder of its name.
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// The same for the page on when credit lists go.
    #[arg(long, value_name = "FILE")]
    policy_docs: Option<PathBuf>,
}

/// A group of figures that are measured together.
struct Figure {
    ids: &'static [&'static str],
    run: fn(&Model, usize) -> Result<Vec<Row>>,
    /// Takes minutes: only when it is asked for.
    long: bool,
    /// At least one of them must reach a bar.
    bars: bool,
}

const FIGURES: &[Figure] = &[
    Figure { ids: &["dma_bw", "dma_bw_unaligned"], run: dma::bandwidth, long: false, bars: true },
    Figure { ids: &["dma_read_latency"], run: dma::latency_sweep, long: false, bars: false },
    Figure { ids: &["mac_bw", "mac_tx_latency"], run: mac::bandwidth, long: false, bars: true },
    Figure { ids: &["raw_1500", "raw_64"], run: raw::bandwidth, long: false, bars: true },
    Figure { ids: &["msg_rate_16qp", "msg_rate_1qp"], run: fast::message_rate, long: false, bars: true },
    Figure {
        ids: &["bw_write_1qp", "rate_write_16qp", "bw_read_1qp", "rate_read_16qp"],
        run: fast::one_sided,
        long: true,
        bars: true,
    },
    Figure { ids: &["bw_foreign_1qp"], run: fast::foreign, long: false, bars: true },
    Figure { ids: &["key_lookup"], run: fast::key_lookup, long: false, bars: true },
    Figure { ids: &["rate_atomic"], run: fast::atomics, long: false, bars: true },
    Figure { ids: &["write_on_demand", "read_on_demand"], run: fast::one_sided_on_demand, long: true, bars: true },
    Figure { ids: &["lat_tx", "lat_rx"], run: fast::latency, long: false, bars: true },
    Figure { ids: &["lat_read"], run: fast::read_latency, long: true, bars: true },
    Figure {
        ids: &["bw_1qp", "bw_mtu1024", "bw_unaligned", "credit_overhead"],
        run: fast::bandwidth,
        long: false,
        bars: true,
    },
    Figure { ids: &["pin_on_demand", "pin_peak_sent", "pin_peak_received"], run: fast::pins, long: false, bars: true },
    Figure {
        ids: &["loss_1pct", "loss_5pct", "loss_1pct_reorder_10pct", "loss_go_back_n"],
        run: fast::loss,
        long: false,
        bars: true,
    },
    Figure { ids: &["write_loss_1pct", "read_loss_1pct"], run: fast::one_sided_loss, long: true, bars: true },
    Figure { ids: &["waterfall"], run: waterfall::rows, long: false, bars: false },
    Figure { ids: &["rate_round_trip"], run: fast::round_trips, long: true, bars: false },
    Figure {
        ids: &[
            "policy_steady",
            "policy_bursty",
            "policy_changing",
            "policy_sum",
            "policy_bw",
            "policy_bw_1qp",
            "policy_msg_rate",
        ],
        run: policy::rows,
        long: false,
        bars: false,
    },
    Figure { ids: &["sim_speed"], run: sim_speed, long: false, bars: false },
];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let widths = if arguments.width.is_empty() { berth_rtl::WIDTHS } else { &arguments.width };
    if let Some(width) = widths.iter().find(|w| !berth_rtl::WIDTHS.contains(w)) {
        bail!("no card of DATA_W = {width} is built in, only {:?}", berth_rtl::WIDTHS);
    }
    let wanted = |id: &str| arguments.only.is_empty() || arguments.only.iter().any(|o| id.starts_with(o.as_str()));
    println!("Assumed:");
    for line in arguments.model.assumptions() {
        println!("  {line}");
    }
    println!();
    let mut rows: Vec<Row> = Vec::new();
    let asked =
        |f: &Figure| (!f.long || arguments.model.sweep || !arguments.only.is_empty()) && (f.bars || !arguments.bars);
    let measured = |f: &&Figure| !arguments.nothing && asked(f) && f.ids.iter().any(|id| wanted(id));
    let runs = FIGURES.iter().filter(measured).flat_map(|f| widths.iter().map(move |&w| (f, w)));
    let (timed, counted): (Vec<_>, Vec<_>) = runs.partition(|(figure, _)| figure.ids.contains(&"sim_speed"));
    let measure = |(figure, width): (&Figure, usize)| {
        eprintln!("… {} at DATA_W = {width}", figure.ids.join(", "));
        (figure.run)(&arguments.model, width)
    };
    // Each on cards of its own, as many at a time as there are processors: what is counted is their clocks.
    let mut found = counted.into_par_iter().map(measure).collect::<Result<Vec<_>>>()?;
    found.extend(timed.into_iter().map(measure).collect::<Result<Vec<_>>>()?);
    rows.extend(found.into_iter().flatten().filter(|r| wanted(&r.id)));
    if let Some(folder) = &arguments.model.synthesis {
        rows.extend(synthesis::rows(folder)?.into_iter().filter(|r| wanted(&r.id)));
    }
    for path in arguments.with.iter().rev() {
        rows = earlier(path)?.into_iter().filter(|old| !rows.iter().any(|r| r.same(old))).chain(rows.clone()).collect();
    }
    let place = |r: &Row| FIGURES.iter().position(|f| f.ids.contains(&r.id.as_str())).unwrap_or(FIGURES.len());
    rows.sort_by_key(|r| (place(r), r.number("data_w").map(|w| w as u64)));
    if rows.is_empty() {
        let all: Vec<&str> = FIGURES.iter().flat_map(|f| f.ids).copied().collect();
        bail!("no such figure at these widths; there are {}", all.join(", "));
    }
    print!("{}", rows::table(&rows));
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&rows)? + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
        println!("\nfigures: {}", path.display());
    }
    if let Some(folder) = &arguments.plots {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        for name in plot::all(&rows, folder)? {
            println!("plot: {}", folder.join(name).display());
        }
    }
    let policies: Vec<Row> = rows.extract_if(.., |r| r.id.starts_with("policy_")).collect();
    if let Some(path) = &arguments.docs {
        write_page(path, &document::page(&rows)?, &rows)?;
    }
    if let Some(path) = &arguments.policy_docs {
        write_page(path, &document::policies(&policies)?, &policies)?;
    }
    rows.extend(policies);
    let short = rows.iter().filter(|r| !r.pass).count();
    let known = rows.iter().filter(|r| !r.pass && r.known).count();
    let asked = rows.iter().filter(|r| r.bar.is_some()).count();
    println!("\n{} figures; {} of {asked} reach their bar, {known} are known not to", rows.len(), asked - short);
    Ok(short == known)
}

/// Writes a page, and the plots of its rows into the folder of its name.
fn write_page(path: &Path, page: &str, rows: &[Row]) -> Result<()> {
    let name = path.display();
    fs::write(path, page).with_context(|| format!("writing {name}"))?;
    let folder = path.with_extension("");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    plot::all(rows, &folder)?;
    println!("tables: {name}, plots beside it");
    Ok(())
}

/// Figures that were written to a file.
fn earlier(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("figures of {}", path.display()))
}

/// Cycles per second of this machine's wall-clock time while both DMA engines are busy.
fn sim_speed(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    let mut rig = rig::board(model, data_w, 0, &[0x5a; 1 << 20]);
    let (start, begin) = (Instant::now(), rig.card.cycles());
    let mut last = None;
    for n in 0..64u32 {
        for write in [false, true] {
            let (local, addr) = (n % 16 * 4608, rig::HOST_BASE + u64::from(n) * 4096);
            let d = Dma { write, local, len: 4096, tag: n, addr, ..Dma::default() };
            rig.dma(d, last);
            last = Some(d);
        }
    }
    for _ in 0..128 {
        rig::dma_done(&mut rig)?;
    }
    let value = (rig.card.cycles() - begin) as f64 / start.elapsed().as_secs_f64() / 1e3;
    Ok(vec![Row::new("sim_speed", &[("data_w", data_w.into())], value, "kHz", None, Bar::None)])
}
