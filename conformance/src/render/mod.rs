//! Shows reports and lists of checks: pure, from a report to text.

pub mod badge;
pub mod curl;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod progress;
pub mod text;

use crate::matrix::Matrix;
use crate::report::Report;
use clap::ValueEnum;

/// A form in which reports can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a terminal.
    Text,
    /// For programs: conformance/schema.md.
    Json,
    /// JUnit XML, for CI systems.
    Junit,
    /// Markdown.
    Markdown,
    /// One self-contained page.
    Html,
    /// An SVG badge.
    Badge,
}

impl Format {
    /// One report.
    pub fn report(self, report: &Report, colour: text::Colour) -> String {
        match self {
            Format::Text => text::report(report, colour),
            Format::Json => json::report(report),
            Format::Junit => junit::report(report),
            Format::Markdown => markdown::report(report),
            Format::Html => html::page(std::slice::from_ref(report)),
            Format::Badge => badge::svg(report),
        }
    }

    /// Several reports side by side.
    ///
    /// # Errors
    /// The formats that have only one report.
    pub fn matrix(self, reports: &[Report]) -> Result<String, String> {
        match self {
            Format::Text | Format::Markdown => Ok(markdown::matrix(&Matrix::of(reports))),
            Format::Html => Ok(html::page(reports)),
            Format::Json | Format::Junit | Format::Badge => {
                Err("a matrix is shown as text, markdown or html".to_owned())
            }
        }
    }
}
