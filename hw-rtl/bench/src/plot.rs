// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SVG plots of the figures.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

use crate::rows::Row;

const SIZE: (u32, u32) = (900, 480);
/// Colours that can be told apart, also by most people who see fewer of them.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 90, 160),
    RGBColor(220, 120, 0),
    RGBColor(0, 140, 90),
    RGBColor(170, 60, 130),
    RGBColor(86, 180, 233),
    RGBColor(240, 200, 60),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

/// One line or one set of bars.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Writes all plots that the rows give into a folder; returns their names.
///
/// # Errors
/// When a file cannot be written.
pub fn all(rows: &[Row], folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let percent = |r: &Row| r.limit.map_or(0.0, |limit| 100.0 * r.value / limit);

    let mut widths: Vec<f64> = rows.iter().filter(|r| r.id == "dma_bw").filter_map(|r| r.number("data_w")).collect();
    widths.dedup();
    let place = |w: Option<f64>| w.and_then(|w| widths.iter().position(|x| *x == w)).map(|i| i as f64);
    let mut series: Vec<Series> = Vec::new();
    for r in rows.iter().filter(|r| r.id == "dma_bw" && r.params.get("both") == Some(&true.into())) {
        if r.params.get("translated") == Some(&true.into()) {
            continue;
        }
        let (Some(direction), Some(extra), Some(x)) =
            (r.text("direction"), r.number("extra_latency"), place(r.number("data_w")))
        else {
            continue;
        };
        let name = format!("{direction}, {extra:.0} cycles more latency");
        add(&mut series, name, (x, percent(r)));
    }
    if !series.is_empty() {
        let labels: Vec<String> = widths.iter().map(|w| format!("DATA_W {w:.0}")).collect();
        bars(
            &folder.join("dma_bw.svg"),
            "DMA, reads and writes at once: share of the framing bound",
            ("percent of the bound", 145.0),
            &labels,
            &series,
        )?;
        names.push("dma_bw.svg".to_owned());
    }

    let mut series: Vec<Series> = Vec::new();
    for r in rows.iter().filter(|r| r.id == "dma_read_latency") {
        if let (Some(w), Some(x)) = (r.number("data_w"), r.number("read_latency")) {
            add(&mut series, format!("DATA_W {w:.0}"), (x, r.value));
        }
    }
    if !series.is_empty() {
        let title = "DMA reads against the round trip";
        lines(&folder.join("dma_read_latency.svg"), title, "read round trip in cycles", &series)?;
        names.push("dma_read_latency.svg".to_owned());
    }
    names.extend(rate_round_trip(rows, folder)?);
    names.extend(waterfalls(rows, folder)?);
    names.extend(against_bars(rows, folder)?);
    names.extend(idle_senders(rows, folder)?);
    Ok(names)
}

/// What part of the time each sender has no credit, by policy: mean over the receives posted, a plot for each round trip.
fn idle_senders(rows: &[Row], folder: &Path) -> Result<Vec<String>> {
    let those: Vec<&Row> =
        rows.iter().filter(|r| r.text("what") == Some("idle") && r.text("sender").is_some()).collect();
    let (senders, policies) = (distinct(&those, "sender"), distinct(&those, "policy"));
    let mut round_trips: Vec<f64> = those.iter().filter_map(|r| r.number("round_trip")).collect();
    round_trips.sort_by(f64::total_cmp);
    round_trips.dedup();
    let mut names = Vec::new();
    for round_trip in round_trips {
        let mean = |policy: &str, sender: &str| {
            let is = |r: &&&Row| (r.text("policy"), r.text("sender")) == (Some(policy), Some(sender));
            let at = those.iter().filter(is).filter(|r| r.number("round_trip") == Some(round_trip));
            let values: Vec<f64> = at.map(|r| r.value).collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        let of = |policy: &String| {
            let points = senders.iter().enumerate().map(|(x, sender)| (x as f64, mean(policy, sender)));
            Series { name: policy.clone(), points: points.collect() }
        };
        let series: Vec<Series> = policies.iter().map(of).collect();
        let top = series.iter().flat_map(|s| &s.points).map(|p| p.1).fold(1.0, f64::max) * 1.5;
        let title = format!("Time that the sender has data and no credit, round trip {round_trip:.0} cycles");
        let name = format!("policy_idle_{round_trip:.0}.svg");
        bars(&folder.join(&name), &title, ("percent of the time", top), &senders, &series)?;
        names.push(name);
    }
    Ok(names)
}

/// What a parameter of rows is, in the order of the rows.
fn distinct(rows: &[&Row], name: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in rows.iter().filter_map(|r| r.text(name)) {
        if !all.iter().any(|known| known == value) {
            all.push(value.to_owned());
        }
    }
    all
}

/// The rate against the wire's round trip, a plot for each width, a line for each list length.
fn rate_round_trip(rows: &[Row], folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for width in widths(rows, "rate_round_trip") {
        let mut series: Vec<Series> = Vec::new();
        for r in rows.iter().filter(|r| r.id == "rate_round_trip" && r.number("data_w") == Some(width)) {
            if let (Some(list), Some(x)) = (r.number("list"), r.number("round_trip")) {
                add(&mut series, format!("lists of {list:.0}"), (x, r.value));
                if list == 64.0 {
                    add(&mut series, "wire and window".to_owned(), (x, r.limit.unwrap_or(0.0)));
                }
            }
        }
        let name = format!("rate_round_trip_{width:.0}.svg");
        let title = format!("4 KiB messages, one queue pair, DATA_W {width:.0}: rate against the wire's round trip");
        lines(&folder.join(&name), &title, "round trip of the wire in cycles", &series)?;
        names.push(name);
    }
    Ok(names)
}

/// Where the cycles of one message go, a plot for each kind of message.
fn waterfalls(rows: &[Row], folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let of = |r: &Row| Some((r.number("bytes")? as u64, r.params.get("inline")?.as_bool()?));
    let mut kinds: Vec<(u64, bool)> = rows.iter().filter(|r| r.id == "waterfall").filter_map(of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let widths = widths(rows, "waterfall");
    for (bytes, inline) in kinds {
        let mut labels: Vec<String> = Vec::new();
        let mut spans = Vec::new();
        for r in rows.iter().filter(|r| r.id == "waterfall" && of(r) == Some((bytes, inline))) {
            let (Some(stage), Some(from), Some(width)) = (r.text("stage"), r.number("from"), r.number("data_w")) else {
                continue;
            };
            let row = labels.iter().position(|l| l == stage).unwrap_or_else(|| {
                labels.push(stage.to_owned());
                labels.len() - 1
            });
            let lane = widths.iter().position(|w| *w == width).unwrap_or(0);
            spans.push(Span { row, lane, from, to: from + r.value, text: format!("{:.0}", r.value) });
        }
        let lanes: Vec<String> = widths.iter().map(|w| format!("DATA_W {w:.0}")).collect();
        let how = if inline { "its data in the doorbell" } else { "fetched from the send queue" };
        let title = format!("One message of {bytes} bytes, {how}: from the doorbell to the completion");
        let name = format!("waterfall_{bytes}.svg");
        let axis = "cycles since the doorbell was taken";
        horizontal(&folder.join(&name), &title, axis, &labels, &lanes, &spans, None)?;
        names.push(name);
    }
    Ok(names)
}

/// What of its bar each figure reaches, the worst of its rows at each width.
fn against_bars(rows: &[Row], folder: &Path) -> Result<Vec<String>> {
    let mut labels: Vec<String> = Vec::new();
    let mut widths: Vec<f64> = rows.iter().filter(|r| r.bar.is_some()).filter_map(|r| r.number("data_w")).collect();
    widths.sort_by(f64::total_cmp);
    widths.dedup();
    let mut spans: Vec<Span> = Vec::new();
    for r in rows {
        let (Some(reached), Some(width)) = (r.reached(), r.number("data_w")) else { continue };
        let row = labels.iter().position(|l| *l == r.id).unwrap_or_else(|| {
            labels.push(r.id.to_owned());
            labels.len() - 1
        });
        let lane = widths.iter().position(|w| *w == width).unwrap_or(0);
        let percent = 100.0 * reached;
        let span = Span { row, lane, from: 0.0, to: percent.min(MOST), text: format!("{percent:.1}") };
        match spans.iter_mut().find(|s| (s.row, s.lane) == (row, lane)) {
            Some(s) if s.to <= span.to => {}
            Some(s) => *s = span,
            None => spans.push(span),
        }
    }
    if spans.is_empty() {
        return Ok(Vec::new());
    }
    let lanes: Vec<String> = widths.iter().map(|w| format!("DATA_W {w:.0}")).collect();
    let (title, axis) = ("Figures against their bars, the worst row of each", "percent of the bar; more is better");
    horizontal(&folder.join("bars.svg"), title, axis, &labels, &lanes, &spans, Some(100.0))?;
    Ok(vec!["bars.svg".to_owned()])
}

/// Where the plot of bars ends, in percent.
const MOST: f64 = 200.0;

/// Widths of a figure's rows, in their order.
fn widths(rows: &[Row], id: &str) -> Vec<f64> {
    let mut widths: Vec<f64> = rows.iter().filter(|r| r.id == id).filter_map(|r| r.number("data_w")).collect();
    widths.sort_by(f64::total_cmp);
    widths.dedup();
    widths
}

/// A stretch of a horizontal plot: in a row, and of its lanes in one.
struct Span {
    row: usize,
    lane: usize,
    from: f64,
    to: f64,
    text: String,
}

/// Stretches in rows with labels, from top to bottom, with a line at `mark`.
fn horizontal(
    path: &Path,
    title: &str,
    axis: &str,
    labels: &[String],
    lanes: &[String],
    spans: &[Span],
    mark: Option<f64>,
) -> Result<()> {
    let last = spans.iter().map(|s| s.to).fold(1.0, f64::max);
    let root = SVGBackend::new(path, (SIZE.0, 140 + 44 * labels.len() as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(310)
        .build_cartesian_2d(0.0..last * 1.12, labels.len() as f64 - 0.5..-0.5)
        .map_err(text)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(0)
        .y_labels(4 * labels.len())
        .y_label_formatter(&|y| {
            let near = y.round();
            let label = if (y - near).abs() < 0.01 { labels.get(near as usize) } else { None };
            label.cloned().unwrap_or_default()
        })
        .x_desc(axis)
        .draw()
        .map_err(text)?;
    let high = 0.8 / lanes.len() as f64;
    for (lane, name) in lanes.iter().enumerate() {
        let colour = COLOURS[lane % COLOURS.len()];
        let those = || spans.iter().filter(move |s| s.lane == lane);
        let top = |s: &Span| s.row as f64 - 0.4 + high * lane as f64;
        chart
            .draw_series(
                those().map(|s| Rectangle::new([(s.from, top(s)), (s.to, top(s) + 0.9 * high)], colour.filled())),
            )
            .map_err(text)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        let size = (0.9 * 44.0 * high).clamp(8.0, 12.0) as i32;
        chart
            .draw_series(
                those().map(|s| Text::new(s.text.clone(), (s.to + 0.005 * last, top(s)), ("sans-serif", size))),
            )
            .map_err(text)?;
    }
    if let Some(at) = mark {
        let ends = [(at, -0.5), (at, labels.len() as f64 - 0.5)];
        chart.draw_series(LineSeries::new(ends, BLACK.stroke_width(2))).map_err(text)?;
    }
    finish(&root, &mut chart)
}

fn add(series: &mut Vec<Series>, name: String, point: (f64, f64)) {
    match series.iter_mut().find(|s| s.name == name) {
        Some(s) => s.points.push(point),
        None => series.push(Series { name, points: vec![point] }),
    }
}

/// Errors of the plotting library carry references to its canvas; their text is what counts.
fn text(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("plotting: {error}")
}

/// Groups of bars, one group per label; `axis`: what they say, and where it ends.
fn bars(path: &Path, title: &str, axis: (&str, f64), labels: &[String], series: &[Series]) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..labels.len() as f64 - 0.5, 0.0..axis.1)
        .map_err(text)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .x_labels(4 * labels.len())
        .x_label_formatter(&|x| {
            let near = x.round();
            let label = if (x - near).abs() < 0.01 { labels.get(near as usize) } else { None };
            label.cloned().unwrap_or_default()
        })
        .y_desc(axis.0)
        .draw()
        .map_err(text)?;
    let wide = 0.8 / series.len() as f64;
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        chart
            .draw_series(s.points.iter().map(|&(x, y)| {
                let left = x - 0.4 + wide * i as f64;
                Rectangle::new([(left, 0.0), (left + 0.9 * wide, y)], colour.filled())
            }))
            .map_err(text)?
            .label(&s.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    finish(&root, &mut chart)
}

/// Lines, in bytes per cycle, over cycles.
fn lines(path: &Path, title: &str, axis: &str, series: &[Series]) -> Result<()> {
    let last = series.iter().flat_map(|s| &s.points).map(|p| p.0).fold(0.0, f64::max);
    let highest = series.iter().flat_map(|s| &s.points).map(|p| p.1).fold(0.0, f64::max);
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..last * 1.02, 0.0..highest * 1.1)
        .map_err(text)?;
    chart.configure_mesh().max_light_lines(0).x_desc(axis).y_desc("bytes per cycle").draw().map_err(text)?;
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(s.points.iter().copied(), colour.stroke_width(2)).point_size(3))
            .map_err(text)?
            .label(&s.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    finish(&root, &mut chart)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a> = ChartContext<
    'a,
    SVGBackend<'a>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn finish<'a>(root: &Area<'a>, chart: &mut Chart<'a>) -> Result<()> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.4))
        .draw()
        .map_err(text)?;
    root.present().map_err(text)
}
