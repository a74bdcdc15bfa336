//! A day of the durable sink in its short form: real processes, kills, a takeover, and every judge asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const DAY: &str = env!("CARGO_BIN_EXE_assay-day");

/// Builds the programs that other packages have, beside this one's: as tests of the whole workspace need them, so that
/// nothing is left to do where those were built.
fn others_are_built() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args([
        "test",
        "-q",
        "--no-run",
        "--workspace",
        "--all-features",
        "--test",
        "process",
        "--test",
        "durable",
    ]);
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    // What cargo tells a test of its package, a build script of a dependency takes for a reason to run again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"]
            .iter()
            .any(|own| name.starts_with(own))
        {
            build.env_remove(&*name);
        }
    }
    assert!(build.status().expect("cargo starts").success(), "the sink and its oracle are built");
}

/// The figures that a day prints, by name; of two numbers the first.
fn figures(printed: &str) -> BTreeMap<&str, u64> {
    let rows =
        printed.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.rsplit_once(" | "));
    rows.filter_map(|(name, value)| Some((name, value.split(',').next()?.parse().ok()?))).collect()
}

#[test]
fn a_short_day_with_kills_and_a_takeover_is_whole() {
    others_are_built();
    let programs = Path::new(DAY).parent().expect("a directory");
    // Of this seed the third end is a takeover. The long form writes JSON Lines.
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("day/run"))
        .args(["--seed", "2", "--batches", "150", "--seconds", "20", "--kill-ms", "3000", "--ends", "4"])
        .args(["--format", "parquet"])
        .env("ASSAY_PROGRAMS", programs)
        .output()
        .expect("the day starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let figures = figures(&printed);
    let figure = |name: &str| *figures.get(name).unwrap_or_else(|| panic!("{name}: {said}"));
    assert_eq!(figure("batches acknowledged"), 150, "{said}");
    // A fast machine has acknowledged everything before the last of four ends.
    assert!(figure("takeovers") == 1 && figure("kill -9") >= 2, "{said}");
    assert!(figure("rows, each there once and in order") > 150, "{said}");
    assert_eq!(figure("unreachable data objects and entries left"), 0, "{said}");
    for kind in ["rollups", "inventories", "marks", "compaction records"] {
        assert!(figure(&format!("kept for ever: {kind}")) > 0, "{said}");
    }
    for what in ["entries below the floor", "originals that were compacted"] {
        assert!(figure(&format!("deletes judged by the HEAD of their moment: {what}")) > 0, "{said}");
    }
}
