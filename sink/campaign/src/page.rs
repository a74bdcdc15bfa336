//! The report as one HTML file that needs nothing else: plots of what became visible and how fast, with the faults in
//! them, and the report's text.

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

/// Visible events over time, how many became visible a second, and a line where each fault began.
fn plot(samples: &[Sample], faults: &[Applied]) -> String {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return String::new() };
    let span = last.at_ms.saturating_sub(first.at_ms).max(1);
    let taken: Vec<&Sample> = samples.iter().filter(|sample| sample.error.is_none()).collect();
    let total = taken.iter().map(|sample| (sample.at_ms, sample.distinct as f64)).collect::<Vec<_>>();
    // A soak has more samples than pixels: each step of the rate is a hundredth of the run, or a sample.
    let step = (span / 100).max(1);
    let mut rate = Vec::new();
    let mut since = taken.first();
    for sample in &taken {
        let Some(before) = since else { break };
        let ms = sample.at_ms.saturating_sub(before.at_ms);
        if ms >= step {
            let more = sample.distinct.saturating_sub(before.distinct);
            rate.push((sample.at_ms, more as f64 * 1000.0 / ms as f64));
            since = Some(sample);
        }
    }
    let seconds = span as f64 / 1000.0;
    let mut plots = String::new();
    for (name, points) in [("visible events", total), ("events that became visible a second", rate)] {
        let most = points.iter().map(|(_, value)| *value).fold(1.0, f64::max);
        let x = |at_ms: u64| at_ms.saturating_sub(first.at_ms) as f64 / span as f64 * WIDTH;
        let _ = writeln!(
            plots,
            "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"{name} over time\">"
        );
        for fault in faults {
            let at = x(fault.at_ms);
            let color = if fault.shown() { "#c96" } else { "#c00" };
            let _ = writeln!(
                plots,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{HEIGHT}\" stroke=\"{color}\"><title>{}</title></line>",
                escaped(&fault.fault)
            );
        }
        let points: Vec<String> = points
            .iter()
            .map(|(at, value)| format!("{:.1},{:.1}", x(*at), HEIGHT - value / most * HEIGHT))
            .collect();
        let _ = writeln!(
            plots,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\"/>\n</svg>\n<p>Over {seconds:.0} s, {name}: 0 to \
             {most:.0}; each vertical line is a fault (hover for its name).</p>",
            points.join(" ")
        );
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::tests::applied;
    use crate::fault::Fault;

    #[test]
    fn a_report_becomes_headings_tables_and_a_plot() {
        let fault = Applied { fault: "a < b".to_owned(), healed: false, ..applied(Fault::WorkerKill) };
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
            "Over 1 s, visible events: 0 to 10;",
            "Over 1 s, events that became visible a second: 0 to 10;",
        ] {
            assert!(page.contains(part), "{part} is not in:\n{page}");
        }
        assert!(!html(markdown, &[], &[]).contains("<svg"));
    }

    #[test]
    fn the_rate_is_of_each_step_and_not_of_what_failed() {
        let failed = Sample { at_ms: 2_000, error: Some("away".to_owned()), ..Sample::default() };
        let sample = |at_ms, distinct| Sample { at_ms, distinct, ..Sample::default() };
        let page = html("# T", &[sample(1_000, 0), failed, sample(3_000, 10), sample(5_000, 50)], &[]);
        assert!(page.contains("a second: 0 to 20;"), "{page}");
        assert!(page.contains("<polyline points=\"480.0,180.0 960.0,0.0\""), "{page}");
    }
}
