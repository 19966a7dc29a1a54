// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SVG plots of the figures.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

use crate::rows::Row;

const SIZE: (u32, u32) = (900, 480);
/// Colours that can be told apart, also by most people who see fewer of them.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 90, 160), RGBColor(220, 120, 0), RGBColor(0, 140, 90), RGBColor(170, 60, 130)];

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
        lines(&folder.join("dma_read_latency.svg"), "DMA reads against the round trip", &series)?;
        names.push("dma_read_latency.svg".to_owned());
    }
    Ok(names)
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

/// Groups of bars, in percent, one group per label.
fn bars(path: &Path, title: &str, labels: &[String], series: &[Series]) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..labels.len() as f64 - 0.5, 0.0..145.0)
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
        .y_desc("percent of the bound")
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
fn lines(path: &Path, title: &str, series: &[Series]) -> Result<()> {
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
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("read round trip in cycles")
        .y_desc("bytes per cycle")
        .draw()
        .map_err(text)?;
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
