//! `sink/docs/staged.md` says what the code does, and a plain build has nothing that is made for campaigns.

use std::fmt::Write as _;
use std::path::Path;

use sinks::model::stage::files::Proof;
use sinks::plan::stage::{Action, Answer, Standing, resolve};
use sinks::point::Point;
use sinks::stage::mutant::Mutant;

fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::NotAsked => "none was sent by this process (a start)",
        Answer::Completed => "200 with a result",
        Answer::Unanswered => {
            "no answer, 5xx, 429, 404 without S3's code; 200 with an error, an empty or a cut body"
        }
        Answer::NoSuchUpload => "404 NoSuchUpload",
        Answer::Damaged => "400 InvalidPart, InvalidPartOrder, EntityTooSmall",
        Answer::Condition => "412, 409",
        Answer::Denied => "403, NoSuchBucket, any other 4xx",
    }
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Commit(Proof::Weak) => "commit, counted as weak",
        Action::Commit(_) => "commit",
        Action::Complete => "Complete",
        Action::Look => "look",
        Action::Settle => "wait, look again",
        Action::Lost => "**Lost**",
        Action::Conflict => "**Conflict**",
        Action::Stop => "stop, handle kept",
    }
}

/// The table of answers, as the code has it.
fn answers() -> String {
    let looks = [
        None,
        Some(Standing::Own(Proof::Token)),
        Some(Standing::Own(Proof::Weak)),
        Some(Standing::Foreign),
        Some(Standing::Pending),
        Some(Standing::Absent { settled: false }),
        Some(Standing::Absent { settled: true }),
    ];
    let mut table = String::from(
        "| answer to Complete | not looked yet | own token | no metadata, size and tag fit | another object | \
         upload listed | neither | neither, settled |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for one in Answer::ALL {
        let cells: Vec<_> = looks.iter().map(|look| action(resolve(one, *look))).collect();
        writeln!(table, "| {} | {} |", answer(one), cells.join(" | ")).expect("to a string");
    }
    table
}

fn points() -> String {
    let mut table = String::from("| point | reached in |\n| --- | --- |\n");
    let staged =
        |point: &Point| point.name().starts_with("sink.") || point.name().starts_with("coordinator.");
    for point in Point::ALL.into_iter().filter(staged) {
        writeln!(table, "| `{}` | {} |", point.name(), point.package()).expect("to a string");
    }
    table
}

fn mutants() -> String {
    let mut table = String::from("| mutant | found here by |\n| --- | --- |\n");
    for mutant in Mutant::ALL {
        let by = match mutant {
            Mutant::CommitBeforeMarker => "an object that is visible while no marker counts it",
            Mutant::ReceiptSkipped => "the audit: a handle of a completed checkpoint without a receipt",
            Mutant::AnyObjectAccepted => "an object whose token no snapshot has",
            Mutant::RecoveryForgotten => "a gap in a partition",
            Mutant::PreparedAbortedOnClose => "the next start: Lost",
            Mutant::SnapshotBeforeBarrier => "the sink's own guard at the first commit: not in its snapshot",
        };
        writeln!(table, "| `{}` | {by} |", mutant.name()).expect("to a string");
    }
    table
}

#[test]
fn the_page_has_the_codes_tables() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/staged.md"));
    let page = page.expect("docs/staged.md");
    for table in [answers(), points(), mutants()] {
        assert!(page.contains(&table), "docs/staged.md does not have:\n{table}");
    }
}

#[test]
fn no_feature_is_on_by_default() {
    let manifest = include_str!("../../Cargo.toml");
    let (_, features) = manifest.split_once("[features]").expect("features");
    let features = features.split("\n[").next().unwrap_or_default();
    assert!(features.contains("protocol-points = []") && features.contains("mutants = []"));
    assert!(!features.contains("default"), "nothing is on by default: {features}");
}

/// A build without features, which the stage `plain` of `ci/test` makes.
#[cfg(not(any(feature = "protocol-points", feature = "mutants")))]
#[test]
fn a_plain_build_has_no_points_and_no_mutants() {
    assert_eq!((sinks::point::ARMABLE, sinks::stage::mutant::AVAILABLE), (false, false));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_assay-sink")).arg("--version").output();
    let said = String::from_utf8(output.expect("the binary starts").stdout).expect("text");
    assert_eq!(said, format!("assay-sink {}\n", env!("CARGO_PKG_VERSION")));
}

/// A build that can be armed says so.
#[cfg(feature = "protocol-points")]
#[test]
fn a_build_with_points_says_so_in_its_version() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_assay-sink")).arg("--version").output();
    let said = String::from_utf8(output.expect("the binary starts").stdout).expect("text");
    assert_eq!(said, format!("assay-sink {}+protocol-points\n", env!("CARGO_PKG_VERSION")));
}
