//! The day as a picture: SVG by hand, legible on light and dark pages.

use crate::census::Sample;
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const PANEL: f64 = 240.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;

type Value = fn(&Sample) -> u64;

/// Lines of one panel: the class, the words, the value.
type Line = (&'static str, &'static str, Value);

const OBJECTS: [Line; 4] = [
    ("without", "data objects ever written", |s| s.written),
    ("live", "data objects there", |s| s.originals + s.compacted),
    ("entries", "entries there", |s| s.entries),
    ("kept", "kept for ever", |s| s.kept),
];

const BYTES: [Line; 3] = [
    ("without", "data ever written", |s| s.written_bytes),
    ("live", "data there", |s| s.data_bytes),
    ("kept", "kept for ever", |s| s.kept_bytes),
];

/// Draws objects and bytes over time; `marks` are moments of kills and takeovers, in milliseconds.
pub fn svg(samples: &[Sample], kills: &[u64], takeovers: &[u64]) -> String {
    let end_ms = samples.last().map_or(1, |last| last.at_ms).max(1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"objects and bytes over a day\">\n\
         <style>\n\
         .page{{fill:#ffffff}} text{{fill:#24292f;font:13px sans-serif}} .axis{{stroke:#8c959f;stroke-width:1}}\n\
         path{{fill:none;stroke-width:2}} .without{{stroke:#8c959f;stroke-dasharray:5 4}} .live{{stroke:#0969da}}\n\
         .entries{{stroke:#bc4c00}} .kept{{stroke:#1a7f37}} .kill{{stroke:#cf222e;stroke-opacity:.35}} .takeover{{stroke:#8250df;stroke-opacity:.6}}\n\
         @media (prefers-color-scheme: dark){{.page{{fill:#0d1117}} text{{fill:#e6edf3}} .live{{stroke:#58a6ff}}\n\
         .entries{{stroke:#f0883e}} .kept{{stroke:#56d364}} .kill{{stroke:#ff7b72}} .takeover{{stroke:#d2a8ff}}}}\n\
         </style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        2.0 * PANEL + 110.0
    );
    let x = |at_ms: u64| LEFT + (WIDTH - LEFT - RIGHT) * ratio(at_ms, end_ms);
    for (title, lines, top, unit) in
        [("objects", &OBJECTS[..], 46.0, 1), ("KiB", &BYTES[..], PANEL + 86.0, 1024)]
    {
        let most = samples
            .iter()
            .flat_map(|sample| lines.iter().map(|line| (line.2)(sample)))
            .max()
            .unwrap_or(0)
            .max(1);
        let (height, bottom) = (PANEL - 50.0, top + PANEL - 50.0);
        for at in kills {
            let _ = writeln!(
                out,
                "<line class=\"kill\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>",
                x(*at)
            );
        }
        for at in takeovers {
            let _ = writeln!(
                out,
                "<line class=\"takeover\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>",
                x(*at)
            );
        }
        for quarter in 0..=4_u64 {
            let y = bottom - height * ratio(quarter, 4);
            let _ = writeln!(
                out,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke-opacity=\".35\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                most * quarter / 4 / unit
            );
        }
        let _ = writeln!(out, "<text x=\"8\" y=\"{:.1}\">{title}</text>", top - 14.0);
        for (place, (class, words, value)) in (0_u32..).zip(lines) {
            let points: Vec<String> = samples
                .iter()
                .map(|sample| {
                    format!("{:.1} {:.1}", x(sample.at_ms), bottom - height * ratio(value(sample), most))
                })
                .collect();
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{}\"/>", points.join("L"));
            let at = LEFT + 10.0 + 200.0 * f64::from(place);
            let _ = writeln!(
                out,
                "<path class=\"{class}\" d=\"M{at} {0}h26\"/><text x=\"{1}\" y=\"{2}\">{words}</text>",
                top - 18.0,
                at + 32.0,
                top - 14.0
            );
        }
    }
    let foot = 2.0 * PANEL + 100.0;
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{foot}\">0 s</text><text x=\"{}\" y=\"{foot}\" text-anchor=\"end\">{} s</text>\
         <text x=\"{}\" y=\"{foot}\" text-anchor=\"middle\">red: {} kills; violet: {} takeovers</text>\n</svg>",
        WIDTH - RIGHT,
        end_ms / 1000,
        WIDTH / 2.0,
        kills.len(),
        takeovers.len()
    );
    out
}

fn ratio(part: u64, whole: u64) -> f64 {
    // Counts and milliseconds of a day are far below 2^52.
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_path_for_each_line() {
        let sample = |at_ms, written| Sample { at_ms, written, originals: 2, ..Sample::default() };
        let svg = svg(&[sample(0, 1), sample(2_000, 10)], &[500], &[900]);
        assert_eq!(svg.matches(" L").count() + svg.matches("L9").count(), 7, "{svg}");
        assert!(
            svg.starts_with("<svg ")
                && svg.ends_with("</svg>\n")
                && svg.contains("prefers-color-scheme: dark")
        );
        assert!(svg.contains(">2 s</text>") && svg.contains("1 kills; violet: 1 takeovers"));
    }
}
