//! Who may import whom among the workspace's own packages.

use serde_json::Value;

/// What one package may import of ours. A package that is not listed is itself a finding.
struct Allowed {
    package: &'static str,
    /// In its library and binaries.
    normal: &'static [&'static str],
    /// In its tests only.
    tests: &'static [&'static str],
}

/// The layers: the sink does not know the server except in its tests; the oracle does not know the sink; a
/// check does not know the server, so that one mistake cannot pass on both sides; fixtures know nobody.
const LAYERS: [Allowed; 9] = [
    Allowed { package: "assay-server", normal: &[], tests: &["assay-fixtures"] },
    Allowed { package: "assay-checks", normal: &[], tests: &[] },
    Allowed {
        package: "assay-conformance",
        normal: &["assay-server", "assay-checks", "assay-fixtures", "sinks"],
        tests: &[],
    },
    Allowed { package: "sinks", normal: &[], tests: &["assay-server", "assay-fixtures"] },
    Allowed { package: "assay-oracle", normal: &[], tests: &["assay-server"] },
    Allowed {
        package: "assay-campaign",
        normal: &["sinks", "assay-oracle", "assay-server"],
        tests: &["assay-fixtures"],
    },
    Allowed { package: "assay-fixtures", normal: &[], tests: &[] },
    Allowed {
        package: "assay-ci",
        normal: &["assay-server", "assay-checks", "assay-fixtures", "sinks"],
        tests: &[],
    },
    Allowed { package: "assay-sdk", normal: &["assay-server"], tests: &[] },
];

/// Checks `cargo metadata --no-deps` against the layers.
#[must_use]
pub fn check(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if packages.is_empty() {
        return vec!["cargo metadata lists no package".to_owned()];
    }
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = LAYERS.iter().find(|allowed| allowed.package == name) else {
            findings.push(format!("package {name} has no row in the layers: add what it may import"));
            continue;
        };
        for dependency in package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let imported = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"].as_str() == Some("dev");
            let fits = allowed.normal.contains(&imported) || (in_tests && allowed.tests.contains(&imported));
            if names.contains(&imported) && !fits {
                let place = if in_tests { "in its tests" } else { "" };
                findings
                    .push(format!("package {name} may not import {imported} {place}").trim_end().to_owned());
            }
        }
    }
    findings
}
