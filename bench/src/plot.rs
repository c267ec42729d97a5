//! Plots as SVG: lines over two axes, and nothing more.

use std::fmt::Write;
use std::path::Path;

/// One line of a plot.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot to be written.
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) log_x: bool,
    pub(crate) log_y: bool,
    pub(crate) series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
const RIGHT: f64 = 20.0;
const COLORS: [&str; 4] = ["#1b6ca8", "#c1442e", "#3a7d44", "#7a5195"];

/// One axis: from a value to a share of its length, and its marks.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, log: bool) -> Axis {
        let high = values.clone().fold(f64::MIN, f64::max);
        let low = if log { values.fold(f64::MAX, f64::min) } else { 0.0 };
        Axis { low, high: if high > low { high } else { low + 1.0 }, log }
    }

    fn share(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn marks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let inside = |mark: &f64| (0.0..=1.0).contains(&self.share(*mark));
            return decades.map(|decade| 10f64.powi(decade)).filter(inside).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * decade);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        (0..=(self.high / step) as usize).map(|i| i as f64 * step).collect()
    }
}

impl Plot {
    /// Writes it, in a folder that is made if it is not there, and says where.
    pub(crate) fn write(&self, path: &Path) {
        let folder = path.parent().unwrap_or(path);
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, self.svg()));
        written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        eprintln!("wrote {}", path.display());
    }

    fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let x = Axis::of(points().map(|point| point.0), self.log_x);
        let y = Axis::of(points().map(|point| point.1), self.log_y);
        let across = |value: f64| LEFT + x.share(value) * (WIDTH - LEFT - RIGHT);
        let down = |value: f64| HEIGHT - BOTTOM - y.share(value) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            self.title
        );
        let line = |from: (f64, f64), to: (f64, f64)| {
            let ((x1, y1), (x2, y2)) = (from, to);
            format!(
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
                 stroke=\"#ccc\"/>\n"
            )
        };
        let (floor, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for mark in x.marks() {
            svg += &line((across(mark), TOP), (across(mark), floor));
            let (at, low) = (across(mark), floor + 16.0);
            let text = short(mark);
            _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{low}\" text-anchor=\"middle\">{text}</text>"
            );
        }
        for mark in y.marks() {
            svg += &line((LEFT, down(mark)), (end, down(mark)));
            let (at, text) = (down(mark) + 4.0, short(mark));
            let left = LEFT - 6.0;
            _ = writeln!(svg, "<text x=\"{left}\" y=\"{at:.1}\" text-anchor=\"end\">{text}</text>");
        }
        let (middle, low) = ((LEFT + end) / 2.0, HEIGHT - 18.0);
        _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"{LEFT}\" y=\"42\">{}</text>",
            self.x, self.y
        );
        for (number, series) in self.series.iter().enumerate() {
            let color = COLORS[number % COLORS.len()];
            let path: Vec<String> = series
                .points
                .iter()
                .map(|point| format!("{:.1},{:.1}", across(point.0), down(point.1)))
                .collect();
            _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
                path.join(" ")
            );
            let at = 42.0;
            let left = LEFT + 150.0 + 230.0 * number as f64;
            _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{at}\" fill=\"{color}\">{}</text>",
                series.name
            );
        }
        svg + "</svg>\n"
    }
}

/// 1500000 as 1.5M.
fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{}{unit}", (scaled * 100.0).round() / 100.0)
}
