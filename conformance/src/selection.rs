//! Picks checks by their ids.

use crate::sink::{self, Part};
use assay_checks::{Check, Severity};

/// What is to be run.
pub struct Selected {
    /// Checks that ask a provider as any client could, in the suite's order.
    pub checks: Vec<&'static Check>,
    /// Parts of the area `sink`, in its order.
    pub parts: Vec<Part>,
}

/// What a check or a part of the area `sink` declares.
pub struct Declared {
    /// Its id.
    pub id: String,
    /// What a pass shows.
    pub proves: &'static str,
    /// What a failure costs.
    pub severity: Severity,
    /// Where the right answer is from.
    pub source: &'static str,
}

impl Selected {
    /// How many scenarios of the live matrix there are among the parts; they come last.
    pub fn scenarios(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Scenario(_))).count()
    }

    /// What all of it declares.
    pub fn declared(&self) -> Vec<Declared> {
        let Self { checks, parts } = self;
        let checks = checks.iter().map(|Check { id, proves, severity, source, .. }| Declared {
            id: (*id).to_owned(),
            proves,
            severity: *severity,
            source,
        });
        let parts = parts.iter().map(|part| Declared {
            id: part.id(),
            proves: part.proves(),
            severity: part.severity(),
            source: part.source(),
        });
        checks.chain(parts).collect()
    }
}

/// How many checks the whole suite has, the area `sink` among them.
pub fn size() -> usize {
    assay_checks::all().count() + sink::parts().count()
}

/// What matches one of `only`, or everything where that is empty, and none of `except`.
///
/// # Errors
/// Names the first glob that matches nothing.
pub fn choose(only: &[String], except: &[String]) -> Result<Selected, String> {
    for glob in only.iter().chain(except) {
        let ids = assay_checks::all().map(|check| check.id.to_owned()).chain(sink::parts().map(Part::id));
        if !ids.into_iter().any(|id| matches(glob, &id)) {
            return Err(format!("no check is called {glob:?}: see --list, and quote a * from the shell"));
        }
    }
    let fits = |globs: &[String], id: &str| globs.iter().any(|glob| matches(glob, id));
    let wanted = |id: &str| (only.is_empty() || fits(only, id)) && !fits(except, id);
    Ok(Selected {
        checks: assay_checks::all().filter(|check| wanted(check.id)).collect(),
        parts: sink::parts().filter(|part| wanted(&part.id())).collect(),
    })
}

/// The checks whose id matches one of `globs`, in the suite's order; all of them when there are no globs. Without the
/// area `sink`.
///
/// # Errors
/// Names the first glob that matches nothing.
pub fn select(globs: &[String]) -> Result<Vec<&'static Check>, String> {
    choose(globs, &[]).map(|selected| selected.checks)
}

/// Whether `glob` matches all of `text`; `*` stands for any run of characters, dots too.
fn matches(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|tail| {
            (0..=tail.len()).any(|at| tail.is_char_boundary(at) && matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_ids() {
        for (glob, text, expected) in [
            ("put.create.absent", "put.create.absent", true),
            ("put.*", "put.create.absent", true),
            ("*absent", "put.create.absent", true),
            ("p*c*t", "put.create.absent", true),
            ("put", "put.create.absent", false),
            ("*.create", "put.create.absent", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn the_area_sink_is_chosen_and_left_out_like_any_other() {
        let ids = |only: &[&str], except: &[&str]| -> Vec<String> {
            let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
            let selected = choose(&owned(only), &owned(except)).expect("they exist");
            selected.declared().into_iter().map(|declared| declared.id).collect()
        };
        assert_eq!(ids(&["sink.*"], &["sink.matrix.*"]), ["sink.probe", "sink.agreement"]);
        assert_eq!(ids(&["put.create.absent", "sink.probe"], &[]), ["put.create.absent", "sink.probe"]);
        assert_eq!(ids(&[], &["sink.*"]).len(), assay_checks::all().count());
        assert_eq!(ids(&[], &[]).len(), size());
        assert!(size() > assay_checks::all().count() + 60);
    }

    #[test]
    fn selects_in_the_suites_order() {
        let ids: Vec<_> = select(&["race.*".into(), "put.create.absent".into()])
            .expect("both exist")
            .iter()
            .map(|check| check.id)
            .collect();
        assert_eq!(ids.first(), Some(&"put.create.absent"));
        assert!(ids.len() > 5 && ids[1..].iter().all(|id| id.starts_with("race.")), "{ids:?}");
        assert_eq!(select(&[]).expect("no glob").len(), assay_checks::all().count());
        assert!(select(&["put.creat".into()]).is_err_and(|why| why.contains("\"put.creat\"")));
    }
}
