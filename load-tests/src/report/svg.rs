//! Charts as SVG. Colours are the page's, so that they follow light and dark.
//!
//! Invariant: whatever the values are, every coordinate is finite and inside the picture.

use super::document::{Chart, number};
use super::html::escape;
use super::stats::Spread;

const WIDTH: f64 = 860.0;
/// Room for names on the left and for numbers on the right.
const LEFT: f64 = 120.0;
const RIGHT: f64 = 170.0;
/// Height of a bar with its gap, and of the scale below.
const STEP: f64 = 26.0;
const SCALE: f64 = 28.0;
/// Height of curves.
const HEIGHT: f64 = 320.0;
/// Colours that the page defines for curves.
const COLOURS: usize = 8;

/// The chart's title and its picture.
pub fn draw(chart: &Chart) -> (String, String) {
    match chart {
        Chart::Ratios { title, bars } => (title.clone(), ratios(bars)),
        Chart::Values { title, bars } => (title.clone(), values(bars)),
        Chart::Curves {
            title,
            points,
            lines,
        } => (title.clone(), curves(points, lines)),
    }
}

fn picture(height: f64, inner: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">{inner}</svg>"
    )
}

/// Bars from 1 to the ratio on a doubling scale, so that twice and half look alike.
fn ratios(bars: &[(String, Spread)]) -> String {
    let logs = bars
        .iter()
        .flat_map(|(_, spread)| [spread.min, spread.max])
        .map(log2);
    let (low, high) = logs.fold((-1.0_f64, 1.0_f64), |(low, high), log| {
        (low.min(log.floor()), high.max(log.ceil()))
    });
    let x = |value: f64| LEFT + (log2(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let height = bars.len() as f64 * STEP + SCALE;
    let mut out = String::new();
    for power in low as i32..=high as i32 {
        let value = f64::from(power).exp2();
        let class = if power == 0 { "one" } else { "axis" };
        let name = if power < 0 {
            format!("1/{}", number(1.0 / value))
        } else {
            number(value)
        };
        out.push_str(&tick(x(value), height, class, &name));
    }
    for (at, (name, spread)) in bars.iter().enumerate() {
        out.push_str(&bar(at, name, *spread, x(1.0), &x));
    }
    picture(height, &out)
}

/// Bars from 0.
fn values(bars: &[(String, Spread)]) -> String {
    let most = bars
        .iter()
        .map(|(_, spread)| spread.max)
        .fold(0.0, f64::max)
        .max(f64::MIN_POSITIVE);
    let x = |value: f64| LEFT + (value / most).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let height = bars.len() as f64 * STEP + SCALE;
    let mut out = String::new();
    for part in 0..=4 {
        let value = most * (f64::from(part) / 4.0);
        out.push_str(&tick(x(value), height, "axis", &number(value)));
    }
    for (at, (name, spread)) in bars.iter().enumerate() {
        out.push_str(&bar(at, name, *spread, x(0.0), &x));
    }
    picture(height, &out)
}

fn tick(x: f64, height: f64, class: &str, name: &str) -> String {
    let bottom = height - SCALE;
    format!(
        "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"0\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
         <text class=\"dim\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        height - 10.0,
        escape(name)
    )
}

fn bar(at: usize, name: &str, spread: Spread, from: f64, x: &dyn Fn(f64) -> f64) -> String {
    let top = at as f64 * STEP + 4.0;
    let middle = top + (STEP - 8.0) / 2.0;
    let (low, to, high) = (x(spread.min), x(spread.median), x(spread.max));
    let class = if name == "rondo" { "own" } else { "bar" };
    format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <rect class=\"{class}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
         <path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        LEFT - 8.0,
        middle + 4.0,
        escape(name),
        from.min(to),
        (to - from).abs().max(1.0),
        STEP - 8.0,
        middle - 4.0,
        middle - 4.0,
        WIDTH - RIGHT + 12.0,
        middle + 4.0,
        escape(&format!(
            "{} ({}–{})",
            number(spread.median),
            number(spread.min),
            number(spread.max)
        ))
    )
}

/// One line a system; both scales such that tails are seen: quantiles evenly, values by doubling.
fn curves(points: &[String], lines: &[(String, Vec<f64>)]) -> String {
    let logs = lines
        .iter()
        .flat_map(|(_, values)| values)
        .map(|value| log2(*value));
    let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| {
        (low.min(log), high.max(log))
    });
    let (low, high) = (
        low.floor().min(30.0),
        high.ceil().max(low.floor() + 1.0).min(40.0),
    );
    let y = |value: f64| 10.0 + (high - log2(value)) / (high - low) * (HEIGHT - SCALE - 20.0);
    let step = (WIDTH - LEFT - RIGHT) / (points.len().max(2) - 1) as f64;
    let x = |at: usize| LEFT + at as f64 * step;
    let mut out = String::new();
    for value in round_values(low.exp2(), high.exp2()) {
        out.push_str(&format!(
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\"/>\
             <text class=\"dim\" x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            y(value),
            WIDTH - RIGHT,
            LEFT - 8.0,
            y(value) + 4.0,
            number(value)
        ));
    }
    for (at, point) in points.iter().enumerate() {
        out.push_str(&tick(x(at), HEIGHT, "axis", point));
    }
    for (at, (name, values)) in lines.iter().enumerate() {
        let colour = if name == "rondo" {
            "own".to_owned()
        } else {
            format!("c{}", at % COLOURS)
        };
        let path: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(at, value)| format!("{:.1},{:.1}", x(at), y(*value)))
            .collect();
        let width = if name == "rondo" { 3.0 } else { 1.6 };
        let row = 16.0 + at as f64 * 18.0;
        out.push_str(&format!(
            "<polyline class=\"curve\" style=\"stroke:var(--{colour});stroke-width:{width}\" points=\"{}\"/>\
             <rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" style=\"fill:var(--{colour})\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            path.join(" "),
            WIDTH - RIGHT + 14.0,
            row - 6.0,
            WIDTH - RIGHT + 34.0,
            row,
            escape(name)
        ));
    }
    picture(HEIGHT, &out)
}

/// 1, 2, 5, 10 and so on, as far as they lie between the two.
fn round_values(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let decades =
        (-7..=13).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10.0_f64.powi(power)));
    decades.filter(move |value| (low..=high).contains(value))
}

/// The logarithm of what may be nothing.
fn log2(value: f64) -> f64 {
    value.clamp(2.0_f64.powi(-20), 2.0_f64.powi(40)).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of the attributes that place something.
    fn coordinates(svg: &str) -> Vec<f64> {
        let names = ["x", "x1", "x2", "y", "y1", "y2", "width", "height"];
        let parts = svg.split(' ').filter_map(|part| part.split_once("=\""));
        parts
            .filter(|(name, _)| names.contains(name))
            .filter_map(|(_, rest)| rest.split('"').next()?.parse().ok())
            .collect()
    }

    #[test]
    fn everything_stays_inside_whatever_the_values_are() {
        for wild in [0.0, 1e-30, 1.0, 1e12, f64::MAX] {
            let spread = Spread {
                min: wild / 2.0,
                median: wild,
                max: wild,
            };
            let bars = vec![
                ("a".to_owned(), spread),
                (
                    "rondo".to_owned(),
                    Spread {
                        min: 1.0,
                        median: 1.0,
                        max: 1.0,
                    },
                ),
            ];
            let charts = [
                Chart::Ratios {
                    title: String::new(),
                    bars: bars.clone(),
                },
                Chart::Values {
                    title: String::new(),
                    bars,
                },
                Chart::Curves {
                    title: String::new(),
                    points: vec!["p50".to_owned(), "p99".to_owned()],
                    lines: vec![("a".to_owned(), vec![wild, wild])],
                },
            ];
            for chart in charts {
                let (_, svg) = draw(&chart);
                assert!(
                    !svg.contains("NaN") && !svg.contains("inf"),
                    "{wild}: {svg}"
                );
                let coordinates = coordinates(&svg);
                assert!(
                    coordinates
                        .iter()
                        .all(|at| (-1.0..=WIDTH + 1.0).contains(at)),
                    "{wild}: {coordinates:?}"
                );
            }
        }
    }

    #[test]
    fn scales_of_curves_have_round_numbers() {
        assert_eq!(
            round_values(0.9, 25.0).collect::<Vec<_>>(),
            [1.0, 2.0, 5.0, 10.0, 20.0]
        );
    }

    #[test]
    fn twice_and_half_are_equally_far_from_the_reference() {
        let spread = |value: f64| Spread {
            min: value,
            median: value,
            max: value,
        };
        let svg = ratios(&[
            ("twice".to_owned(), spread(2.0)),
            ("half".to_owned(), spread(0.5)),
        ]);
        let widths: Vec<&str> = svg
            .split("<rect")
            .skip(1)
            .filter_map(|rest| rest.split("width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths.first(), widths.last());
        assert_eq!(widths.len(), 2);
    }
}
