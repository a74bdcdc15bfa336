//! The report as one HTML file that needs nothing else: a plot of what became visible, with the faults in it, and the
//! report's text.

use std::fmt::Write as _;

use crate::chaos::Applied;
use crate::judge::Sample;

/// Of the plot, in pixels.
const WIDTH: f64 = 960.0;
/// Of the plot, in pixels.
const HEIGHT: f64 = 240.0;

/// The whole page.
#[must_use]
pub fn html(markdown: &str, samples: &[Sample], faults: &[Applied]) -> String {
    let title = markdown.lines().next().unwrap_or_default().trim_start_matches("# ");
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>body{{font:15px/1.5 \
         sans-serif;max-width:62em;margin:2em auto;padding:0 1em}}table{{border-collapse:collapse}}td,th{{border:1px \
         solid #ccc;padding:.2em .6em;text-align:left}}svg{{border:1px solid #ccc}}</style>\n{}\n{}",
        plot(samples, faults),
        body(markdown),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Headings, tables, lists and paragraphs: what the report is made of.
fn body(markdown: &str) -> String {
    let mut page = String::new();
    let (mut table, mut list) = (false, false);
    for line in markdown.lines() {
        let cells = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
        if table && cells.is_none() {
            page += "</table>\n";
            table = false;
        }
        let item = line.strip_prefix("- ");
        if list && item.is_none() && !line.starts_with("  ") {
            page += "</ul>\n";
            list = false;
        }
        if let Some(cells) = cells {
            if !table {
                page += "<table>\n";
                table = true;
            }
            // Neither an empty head nor the line below it.
            if cells != "|" && !cells.starts_with("---") {
                let cells: String =
                    cells.split(" | ").map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
                let _ = writeln!(page, "<tr>{cells}</tr>");
            }
        } else if let Some(item) = item {
            if !list {
                page += "<ul>\n";
                list = true;
            }
            let _ = writeln!(page, "<li>{}", escaped(item).replace("**", ""));
        } else if let Some(heading) = line.strip_prefix("## ") {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(heading));
        } else if let Some(heading) = line.strip_prefix("# ") {
            let _ = writeln!(page, "<h1>{}</h1>", escaped(heading));
        } else {
            let _ = writeln!(page, "{}", escaped(line));
        }
    }
    page
}

/// Visible events over time, and a line where each fault began.
fn plot(samples: &[Sample], faults: &[Applied]) -> String {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return String::new() };
    let span = last.at_ms.saturating_sub(first.at_ms).max(1) as f64;
    let most = samples.iter().map(|sample| sample.distinct).max().unwrap_or(0).max(1) as f64;
    let x = |at_ms: u64| at_ms.saturating_sub(first.at_ms) as f64 / span * WIDTH;
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"visible events over time\">\n"
    );
    for fault in faults {
        let at = x(fault.at_ms);
        let color = if fault.fired && fault.healed { "#c96" } else { "#c00" };
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{HEIGHT}\" stroke=\"{color}\"><title>{}</title></line>",
            escaped(&fault.fault)
        );
    }
    let taken = samples.iter().filter(|sample| sample.error.is_none());
    let points: Vec<String> = taken
        .map(|sample| {
            format!("{:.1},{:.1}", x(sample.at_ms), HEIGHT - sample.distinct as f64 / most * HEIGHT)
        })
        .collect();
    let _ =
        writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\"/>\n</svg>", points.join(" "));
    let _ = write!(
        svg,
        "<p>Visible events, 0 to {most} over {:.0} s; each vertical line is a fault (hover for its name).</p>",
        span / 1000.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_headings_tables_and_a_plot() {
        let fault = Applied {
            fault: "a < b".to_owned(),
            mechanism: "none",
            at_ms: 1_500,
            before: 0,
            fired: true,
            healed: false,
            after: 0,
            pids_stable: None,
            note: String::new(),
        };
        let sample = |at_ms, distinct| Sample { at_ms, distinct, ..Sample::default() };
        let markdown = "# Title: PASS\n\n- one\n\n## Faults\n\n| | |\n| --- | --- |\n| a & b | 1 |\n\nend\n";
        let page = html(markdown, &[sample(1_000, 0), sample(2_000, 10)], &[fault]);
        for part in [
            "<title>Title: PASS</title>",
            "<h1>Title: PASS</h1>",
            "<ul>\n<li>one\n</ul>",
            "<table>\n<tr><td>a &amp; b</td><td>1</td></tr>\n</table>",
            "<line x1=\"480.0\" x2=\"480.0\" y1=\"0\" y2=\"240\" stroke=\"#c00\"><title>a &lt; b</title></line>",
            "<polyline points=\"0.0,240.0 960.0,0.0\"",
            "0 to 10 over 1 s",
        ] {
            assert!(page.contains(part), "{part} is not in:\n{page}");
        }
        assert!(!html(markdown, &[], &[]).contains("<svg"));
    }
}
