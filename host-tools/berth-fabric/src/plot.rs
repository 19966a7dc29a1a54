// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plots as SVG: groups of bars, and lines.

use anyhow::{Result, anyhow};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 420);
/// Colours that people with impaired colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(180, 170, 20),
    RGBColor(0, 0, 0),
    RGBColor(120, 60, 160),
    RGBColor(150, 210, 120),
    RGBColor(110, 80, 50),
];

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// What it shows, with unit.
    pub label: &'static str,
    /// Logarithmic.
    pub log: bool,
}

/// A linear axis.
pub const fn linear(label: &'static str) -> Axis {
    Axis { label, log: false }
}

/// A logarithmic axis.
pub const fn log(label: &'static str) -> Axis {
    Axis { label, log: true }
}

/// Points of a line, with its name.
pub type Line = (String, Vec<(f64, f64)>);

/// Writes a number as people do: 0.05, 20, 4 k, 3 M.
fn number(x: f64) -> String {
    let (value, unit) = match x.abs() {
        a if a >= 1e9 => (x / 1e9, " G"),
        a if a >= 1e6 => (x / 1e6, " M"),
        a if a >= 1e4 => (x / 1e3, " k"),
        _ => (x, ""),
    };
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// Logarithmic axes are drawn as linear ones of the logarithm, so that one kind of chart serves all.
fn scale(axis: Axis, x: f64) -> f64 {
    if axis.log { x.max(1e-12).log10() } else { x }
}

fn unscale(axis: Axis, x: f64) -> f64 {
    if axis.log { 10f64.powf(x) } else { x }
}

fn range(axis: Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive: Vec<f64> = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0)).collect();
    let max = positive.iter().copied().fold(if axis.log { 1e-9 } else { 0.0 }, f64::max);
    let min = positive.iter().copied().fold(max, f64::min);
    if axis.log {
        let low = min.log10().floor();
        (low, max.log10().ceil().max(low + 1.0))
    } else {
        (0.0, if max > 0.0 { max * 1.1 } else { 1.0 })
    }
}

/// Bars: for each of `groups` one per series. `values[series][group]`; one that is missing or zero on a logarithmic axis is left out.
/// Series may come in `pairs`, the second in a lighter shade of the first one's colour.
///
/// # Errors
/// When the drawing library fails.
pub fn bars(title: &str, y: Axis, groups: &[String], series: &[(String, Vec<f64>)], pairs: bool) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|e| anyhow!("{e}"))?;
        let (low, high) = range(y, series.iter().flat_map(|s| s.1.iter().copied()));
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .margin_right(24)
            .x_label_area_size(32)
            .y_label_area_size(78)
            .build_cartesian_2d(0.0..groups.len() as f64, low..high)
            .map_err(|e| anyhow!("{e}"))?;
        let name = |x: &f64| {
            let place = x.floor();
            // Ticks lie in the middle of the groups.
            if (x - place - 0.5).abs() < 0.01 {
                groups.get(place as usize).cloned().unwrap_or_default()
            } else {
                String::new()
            }
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(2 * groups.len() + 1)
            .x_label_formatter(&name)
            .y_label_formatter(&|v| number(unscale(y, *v)))
            .y_desc(y.label)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        let width = 0.84 / series.len().max(1) as f64;
        for (s, (label, values)) in series.iter().enumerate() {
            let (hue, shade) = if pairs { (s / 2, [1.0, 0.4][s % 2]) } else { (s, 1.0) };
            let colour = COLOURS[hue % COLOURS.len()].mix(shade);
            let bars = values.iter().enumerate().filter(|(_, v)| v.is_finite() && (**v > 0.0)).map(|(g, v)| {
                let left = g as f64 + 0.08 + s as f64 * width;
                Rectangle::new([(left, low), (left + width * 0.92, scale(y, *v).max(low))], colour.filled())
            });
            chart
                .draw_series(bars)
                .map_err(|e| anyhow!("{e}"))?
                .label(label)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(svg)
}

fn legend<'a>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    place: SeriesLabelPosition,
) -> Result<()> {
    chart
        .configure_series_labels()
        .position(place)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 13))
        .draw()
        .map_err(|e| anyhow!("{e}"))
}

/// Lines.
///
/// # Errors
/// When the drawing library fails.
pub fn lines(title: &str, x: Axis, y: Axis, series: &[Line]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|e| anyhow!("{e}"))?;
        let xs = series.iter().flat_map(|s| s.1.iter().map(|p| p.0));
        let (left, right) =
            (scale(x, xs.clone().fold(f64::INFINITY, f64::min)), scale(x, xs.fold(f64::NEG_INFINITY, f64::max)));
        let (low, high) = range(y, series.iter().flat_map(|s| s.1.iter().map(|p| p.1)));
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .margin_right(24)
            .x_label_area_size(46)
            .y_label_area_size(78)
            .build_cartesian_2d(left..right.max(left + 1e-9), low..high)
            .map_err(|e| anyhow!("{e}"))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|v| number(unscale(x, *v)))
            .y_label_formatter(&|v| number(unscale(y, *v)))
            .x_desc(x.label)
            .y_desc(y.label)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        for (s, (label, points)) in series.iter().enumerate() {
            let colour = COLOURS[s % COLOURS.len()];
            let points: Vec<_> = points
                .iter()
                .filter(|p| p.1.is_finite() && (!y.log || p.1 > 0.0))
                .map(|p| (scale(x, p.0), scale(y, p.1)))
                .collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
                .map_err(|e| anyhow!("{e}"))?
                .label(label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
            chart
                .draw_series(points.into_iter().map(|p| Circle::new(p, 3, colour.filled())))
                .map_err(|e| anyhow!("{e}"))?;
        }
        // Where the fewest points are.
        let (middle, half) = ((left + right) / 2.0, (low + high) / 2.0);
        let points = || series.iter().flat_map(|s| &s.1).map(|p| (scale(x, p.0), scale(y, p.1)));
        let count =
            |right: bool, upper: bool| points().filter(|p| (p.0 > middle) == right && (p.1 > half) == upper).count();
        let places = [
            (count(true, true), SeriesLabelPosition::UpperRight),
            (count(false, false), SeriesLabelPosition::LowerLeft),
            (count(false, true), SeriesLabelPosition::UpperLeft),
            (count(true, false), SeriesLabelPosition::LowerRight),
        ];
        let place = places.into_iter().min_by_key(|p| p.0).map_or(SeriesLabelPosition::UpperRight, |p| p.1);
        legend(&mut chart, place)?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.05, 1.0, 12.5, 100.0, 2048.0, 65_536.0, 3e6].map(number);
        assert_eq!(texts, ["0", "0.05", "1", "12.5", "100", "2048", "65.5 k", "3 M"]);
    }

    #[test]
    fn plots_have_all_series() {
        let groups = ["a".to_owned(), "b".to_owned()];
        let svg = bars(
            "title",
            log("µs"),
            &groups,
            &[("one".to_owned(), vec![1.0, 30.0]), ("two".to_owned(), vec![2.0, 0.0])],
            true,
        )
        .unwrap();
        assert!(svg.contains("title") && svg.contains("one") && svg.contains("two") && svg.contains("µs"));
        let svg = lines("t", log("x"), linear("y"), &[("line".to_owned(), vec![(1.0, 2.0), (100.0, 3.0)])]).unwrap();
        assert!(svg.contains("line") && svg.ends_with("</svg>\n"));
    }
}
