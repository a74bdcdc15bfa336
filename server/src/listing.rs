//! What `assay-server deviations` and `assay-server profiles` print.

use std::fmt::Write as _;

use assay_server::{Deviation, Profile};
use serde_json::{Value, json};

/// Columns of a terminal.
const WIDTH: usize = 80;

/// All deviations, by kind.
pub(crate) fn deviations() -> String {
    let mut text =
        String::from("Set with --deviate NAME[=VALUE]; a value that is left out is the one shown.\n");
    let mut area = "";
    for described in Deviation::catalog() {
        if described.area != area {
            area = described.area;
            let _ = write!(text, "\n{}\n", area.to_uppercase());
        }
        let name =
            described.name.parse().map_or_else(|_| described.name.to_owned(), |d: Deviation| d.to_string());
        let value = described.value.map(|value| format!("   ({value})")).unwrap_or_default();
        let _ = writeln!(text, "  {name}{value}");
        paragraph(&mut text, 6, described.about());
        paragraph(&mut text, 6, &format!("Known: {}", described.known));
    }
    text
}

/// The same for programs.
pub(crate) fn deviations_json() -> Value {
    let all: Vec<Value> = Deviation::catalog()
        .iter()
        .map(|described| {
            let default = described.name.parse().ok().map(|deviation: Deviation| deviation.to_string());
            json!({
                "name": described.name,
                "area": described.area,
                "value": described.value,
                "default": default.filter(|_| described.value.is_some()),
                "about": described.about(),
                "known": described.known,
            })
        })
        .collect();
    json!({ "deviations": all })
}

/// All profiles with their entries.
pub(crate) fn profiles() -> String {
    let mut text = String::from("Set with --profile NAME.\n");
    for profile in all_profiles() {
        let _ = write!(text, "\n{}\n", profile.name);
        paragraph(&mut text, 2, &profile.about);
        for entry in &profile.entries {
            let _ = writeln!(text, "  {}", entry.deviation);
            paragraph(&mut text, 6, &format!("{} ({})", entry.source, entry.date));
        }
        for unknown in &profile.unknown {
            paragraph(&mut text, 2, &format!("Not known or not shown: {unknown}"));
        }
    }
    text
}

/// The same for programs.
pub(crate) fn profiles_json() -> Value {
    let all: Vec<Value> = all_profiles()
        .map(|profile| {
            let entries: Vec<Value> = profile
                .entries
                .iter()
                .map(|entry| {
                    json!({
                        "deviation": entry.deviation.to_string(),
                        "source": entry.source,
                        "date": entry.date,
                    })
                })
                .collect();
            json!({
                "name": profile.name,
                "about": profile.about,
                "deviations": entries,
                "unknown": profile.unknown,
            })
        })
        .collect();
    json!({ "profiles": all })
}

/// Every file is read by a test, so none is left out here.
fn all_profiles() -> impl Iterator<Item = Profile> {
    Profile::names().filter_map(|name| Profile::named(name).ok())
}

/// Adds text in lines of the terminal's width, set in.
fn paragraph(out: &mut String, indent: usize, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column == 0 || column + 1 + length > WIDTH {
            if column > 0 {
                out.push('\n');
            }
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read_fits_a_terminal_and_leaves_nothing_out() {
        let (deviations, profiles) = (deviations(), profiles());
        for line in deviations.lines().chain(profiles.lines()) {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let known = Deviation::catalog().len();
        assert_eq!(deviations.matches("Known: ").count(), known);
        assert_eq!(deviations_json()["deviations"].as_array().map(Vec::len), Some(known));
        assert_eq!(profiles_json()["profiles"].as_array().map(Vec::len), Some(Profile::names().count()));
        assert!(
            deviations.contains("  segment-limit=255:KeyTooLongError   (bytes[:code])\n"),
            "{deviations}"
        );
        assert!(profiles.contains("  segment-limit=255:XMinioInvalidObjectName\n"), "{profiles}");
    }
}
