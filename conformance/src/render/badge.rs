//! The verdict as a small picture for a README.

use crate::report::{Report, Verdict};

const LABEL: &str = "durable_v2";
/// Units a character takes at most in the badge's font and size.
const PER_CHARACTER: usize = 7;
const MARGIN: usize = 12;

/// A self-contained SVG picture: the profile at the left, the verdict and its day at the right.
pub fn svg(report: &Report) -> String {
    let value = format!("{} {}", report.verdict.word().to_lowercase(), report.head.date());
    let colour = match report.verdict {
        Verdict::Certified => "#1a7f37",
        Verdict::Refused => "#b3261e",
        Verdict::Inconclusive => "#8a5a00",
        Verdict::Partial => "#4a5568",
    };
    let (left, right) = (width(LABEL), width(&value));
    let (whole, middle_left, middle_right) = (left + right, left / 2, left + right / 2);
    let value = super::html::escaped(&value);
    let title = super::html::escaped(&format!("{}: {LABEL} {}", report.head.title(), report.verdict.word()));
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" aria-label="{title}">
<title>{title}</title>
<clipPath id="c"><rect width="{whole}" height="20" rx="3"/></clipPath>
<g clip-path="url(#c)"><rect width="{left}" height="20" fill="#333"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle"><text x="{middle_left}" y="14">{LABEL}</text><text x="{middle_right}" y="14">{value}</text></g>
</svg>
"##
    )
}

fn width(text: &str) -> usize {
    text.chars().count() * PER_CHARACTER + MARGIN
}

#[cfg(test)]
mod tests {
    use crate::report::tests::{HOSTILE, example, hostile};

    #[test]
    fn shows_the_verdict() {
        insta::assert_snapshot!("badge", super::svg(&example()));
    }

    #[test]
    fn a_hostile_name_stays_text() {
        let svg = super::svg(&hostile());
        assert!(!svg.contains(HOSTILE) && !svg.contains("<script"), "{svg}");
    }
}
