//! Rules of the guides: what they show is run by a test, and what a program printed is a copy of its record.
//!
//! Two marks, both HTML comments that a reader does not see:
//!
//! - `<!-- checked by: FILE -->` or `<!-- checked by: FILE FUNCTION -->` on the line above a fenced block
//!   names the script or the test that runs it. A block without the mark is a finding, and so is a mark that
//!   names a missing file or function. A block in the language `text` (a drawing, an output) needs none.
//! - `<!-- copy of: FILE -->` … `<!-- end of copy -->` hold exactly that tracked file's text.

const CHECKED: &str = "<!-- checked by: ";
const COPY: &str = "<!-- copy of: ";
const COPY_ENDS: &str = "<!-- end of copy -->";

/// Checks one guide; `read` returns the text of a tracked file, by its path from the repository's root.
#[must_use]
pub fn check(guide: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut mark: Option<&str> = None;
    let mut inside = false;
    let mut copy: Option<(&str, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some((path, copied)) = &mut copy {
            if line.trim() == COPY_ENDS {
                findings.extend(compare(guide, path, copied, &read));
                copy = None;
            } else {
                copied.push_str(line);
                copied.push('\n');
            }
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            if !inside {
                let finding = match mark.take() {
                    None if language == "text" => None,
                    None => {
                        Some(format!("this block names no test: put `{CHECKED}FILE FUNCTION -->` above it"))
                    }
                    Some(mark) => resolve(mark, &read),
                };
                findings.extend(finding.map(|finding| format!("{guide}:{number}: {finding}")));
            }
            inside = !inside;
        } else if let Some(path) = marked(line, COPY).filter(|_| !inside) {
            copy = Some((path, String::new()));
        } else if let Some(named) = marked(line, CHECKED).filter(|_| !inside) {
            mark = Some(named);
        } else if !line.trim().is_empty() {
            mark = None;
        }
    }
    if let Some((path, _)) = copy {
        findings.push(format!("{guide}: the copy of {path} has no `{COPY_ENDS}`"));
    }
    if inside {
        findings.push(format!("{guide}: a fenced block has no end"));
    }
    findings
}

fn marked<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.trim().strip_prefix(mark)?.strip_suffix("-->").map(str::trim)
}

/// Whether the mark's file, and the function in it, exist; returns what is missing.
fn resolve(mark: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (path, function) =
        mark.split_once(' ').map_or((mark, None), |(path, name)| (path, Some(name.trim())));
    let Some(text) = read(path) else { return Some(format!("the mark names {path}, which is not there")) };
    let declared = |name: &str| text.contains(&format!("fn {name}(")) || text.contains(&format!("{name}()"));
    function
        .filter(|name| !declared(name))
        .map(|name| format!("the mark names {name}, which is not in {path}"))
}

fn compare(guide: &str, path: &str, copied: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let Some(record) = read(path) else {
        return Some(format!("{guide}: the copied file {path} is not there"));
    };
    (record.trim() != copied.trim())
        .then(|| format!("{guide}: the copy of {path} differs from it: paste it again"))
}
