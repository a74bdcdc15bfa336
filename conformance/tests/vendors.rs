//! What is told of vendors, against their certificates: the matrix, the short table, and the table of single requests.

use assay_checks::Exchange;
use assay_conformance::matrix::Matrix;
use assay_conformance::render::{Format, json, markdown};
use assay_conformance::report::{Entry, Outcome, Report};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/certificates")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Every certificate, in the order of its file's name.
fn certificates() -> Vec<Report> {
    let files = std::fs::read_dir(folder()).expect("the folder of certificates");
    let mut paths: Vec<PathBuf> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    paths.sort();
    paths.iter().map(|path| json::read(&read(path)).unwrap_or_else(|why| panic!("{path:?}: {why}"))).collect()
}

#[test]
fn the_committed_matrix_is_that_of_the_certificates() {
    let certificates = certificates();
    assert!(certificates.len() >= 5, "{} certificates", certificates.len());
    for (file, format) in [("matrix.md", Format::Markdown), ("matrix.html", Format::Html)] {
        let rendered = format.matrix(&certificates).expect("a matrix has this form");
        let renew = "renew it with `ci/vendors/run --matrix`";
        assert!(read(&folder().join(file)) == rendered, "{file} is not what the certificates give: {renew}");
    }
}

#[test]
fn every_certificate_is_of_the_whole_suite() {
    let suite: Vec<&str> = assay_checks::all().map(|check| check.id).collect();
    for report in certificates() {
        // The area `sink` grows with the live matrix; a certificate has it as it was, or says that it was not run.
        let asked: Vec<&str> =
            report.checks.iter().map(|entry| &*entry.id).filter(|id| !id.starts_with("sink.")).collect();
        assert_eq!(asked, suite, "{} was not asked what the suite asks now", report.head.title());
    }
}

/// The rows of verdict, conditions, limits and counts.
#[test]
fn the_short_table_is_the_head_of_the_matrix() {
    let certificates = certificates();
    let matrix = markdown::matrix(&Matrix::of(&certificates));
    let (head, _) = matrix.split_once("\n\n").expect("two tables");
    let short = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("results.md"));
    assert!(short.starts_with(head), "conformance/results.md must start with\n{head}");
}

/// What a row of the table of single requests shows.
enum Shown {
    /// The status of the first conditional request of a check; this one where the check passed.
    Status(&'static str),
    /// The status for a size: 200 up to the measured limit of this name, then what the check was refused with.
    Size(&'static str, u64),
}

/// A row: the request, the check that sends it, and what is shown.
type Row = (&'static str, &'static str, Shown);

const ROWS: &[Row] = &[
    ("PUT `If-Match`, key absent", "put.swap.absent.status", Shown::Status("404")),
    ("PUT `If-None-Match`, another ETag", "put.create.etag-value", Shown::Status("501")),
    ("PUT `If-None-Match`, its own ETag", "put.create.own-etag", Shown::Status("501")),
    ("PUT `If-Match: *`, key present", "put.swap.star", Shown::Status("501")),
    ("PUT with both headers", "put.create.both-headers", Shown::Status("501")),
    ("Copy onto a present key, `If-None-Match: *`", "copy.create.present", Shown::Status("412")),
    ("Complete onto a present key, `If-None-Match: *`", "complete.create.present", Shown::Status("412")),
    ("DELETE `If-Match`, wrong ETag", "delete.match.differs", Shown::Status("412")),
    ("DELETE `If-Match`, key absent", "delete.match.absent", Shown::Status("404")),
    ("key of 1,024 bytes, segments of 100", "key.limit.total", Shown::Size("key-total-bytes", 1024)),
    ("key of 1,025 bytes", "key.limit.beyond", Shown::Status("400")),
    ("segment of 255 bytes", "key.limit.segment", Shown::Size("key-segment-bytes", 255)),
    ("segment of 256 bytes", "key.limit.segment", Shown::Size("key-segment-bytes", 256)),
];

/// The exchange that a row is about: the first conditional one that is kept, else the one that decided.
fn asked(entry: &Entry) -> Option<&Exchange> {
    let conditional = |exchange: &&Exchange| {
        exchange.headers.iter().any(|(name, _)| matches!(name.as_str(), "if-match" | "if-none-match"))
    };
    entry.steps.iter().map(|step| &**step).find(conditional).or(entry.exchange())
}

fn status(exchange: Option<&Exchange>) -> String {
    match exchange.map(|exchange| &exchange.answer) {
        Some(Ok(reply)) => reply.status.to_string(),
        Some(Err(_)) => "no answer".to_owned(),
        None => "?".to_owned(),
    }
}

fn shown(report: &Report, (_, id, shown): &Row) -> String {
    let Some(entry) = report.entry(id) else { return "-".to_owned() };
    match (shown, &entry.outcome) {
        (_, Outcome::Skip { .. }) => "-".to_owned(),
        (Shown::Status(status), Outcome::Pass) => (*status).to_owned(),
        (Shown::Size(name, size), _) => match entry.measured.get(*name) {
            Some(limit) if limit >= size => "200".to_owned(),
            _ => status(entry.exchange()),
        },
        (Shown::Status(_), _) => {
            let told = status(asked(entry));
            // A refusal after which the bytes are others is worse than no refusal.
            let written = told.starts_with('4')
                && matches!(&entry.outcome, Outcome::Fail(failure) if failure.got.starts_with("it holds"));
            if written { format!("**{told}, and written**") } else { told }
        }
    }
}

#[test]
fn single_requests_are_told_as_certified() {
    let certificates = certificates();
    let matrix = Matrix::of(&certificates);
    let titles: String = matrix.columns.iter().map(|column| format!(" {} |", column.title)).collect();
    let rule = " --- |".repeat(matrix.columns.len());
    let mut table = format!("| request | check | AWS |{titles}\n| --- | --- | --- |{rule}\n");
    for row @ (request, id, what) in ROWS {
        let aws = match what {
            Shown::Status(status) => status,
            Shown::Size(..) => "200",
        };
        let cells: String =
            matrix.columns.iter().map(|column| format!(" {} |", shown(column.report, row))).collect();
        table += &format!("| {request} | `{id}` | {aws} |{cells}\n");
    }
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("requests.md"));
    assert!(page.contains(&table), "conformance/requests.md must have this table:\n{table}");
}
