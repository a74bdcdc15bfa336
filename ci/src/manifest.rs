//! Rules of the manifests: one table of dependencies, a reason for each.

/// Checks the workspace's manifest: each line of `[workspace.dependencies]` stands under a comment.
///
/// Neighbouring lines may share one comment; an empty line ends what a comment covers.
#[must_use]
pub fn reasons(manifest: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut inside = false;
    let mut seen = 0;
    let mut reason = false;
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
            reason = false;
        } else if line.is_empty() {
            reason = false;
        } else if let Some(comment) = line.strip_prefix('#') {
            reason = comment.split_whitespace().count() >= 2;
        } else if inside && line.contains('=') {
            seen += 1;
            if !reason {
                let name = line.split('=').next().unwrap_or_default().trim();
                findings.push(format!(
                    "line {number}: dependency {name} has no comment that says why it is here"
                ));
            }
        }
    }
    if seen == 0 {
        findings.push("the manifest has no [workspace.dependencies]".to_owned());
    }
    findings
}

/// Checks a member's manifest: lints come from the workspace, and so does every dependency's version.
#[must_use]
pub fn member(manifest: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut section = "";
    let mut lints = false;
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            section = line;
            if section.trim_matches(['[', ']']).split_once("dependencies.").is_some() {
                findings.push(format!("line {number}: write {section} as one line with `workspace = true`"));
            }
        } else if section == "[lints]" {
            lints |= line.replace(' ', "") == "workspace=true";
        } else if section.ends_with("dependencies]") && line.contains('=') {
            let line = line.replace(' ', "");
            if !line.contains("workspace=true") {
                findings.push(format!("line {number}: take the version from the workspace's table: {line}"));
            }
        }
    }
    if !lints {
        findings.push("no `[lints] workspace = true`".to_owned());
    }
    findings
}
