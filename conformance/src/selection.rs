//! Picks checks by their ids.

use assay_checks::Check;

/// The checks whose id matches one of `globs`, in the suite's order; all of them when there are no globs.
///
/// # Errors
/// Names the first glob that matches no check.
pub fn select(globs: &[String]) -> Result<Vec<&'static Check>, String> {
    for glob in globs {
        if !assay_checks::all().any(|check| matches(glob, check.id)) {
            return Err(format!("no check is called {glob:?}: see --list, and quote a * from the shell"));
        }
    }
    let wanted = |check: &&Check| globs.is_empty() || globs.iter().any(|glob| matches(glob, check.id));
    Ok(assay_checks::all().filter(wanted).collect())
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
