//! The checks, one file per area; in each the declaration stands beside its function.

mod clock;
mod complete;
mod complete_time;
mod consistency;
mod copy;
mod copy_source;
mod delete;
mod errors;
mod integrity;
mod integrity_parts;
mod keys;
mod keys_odd;
mod list;
mod list_page;
mod multipart;
mod part_copy;
mod put_create;
mod put_swap;
mod races;
mod read;
mod read_form;
mod register;
mod retry;
mod signature;
mod versions;
mod versions_list;

use crate::check::Check;

/// Every check, in the order of a report.
pub fn all() -> impl Iterator<Item = &'static Check> {
    [
        put_create::ALL,
        put_swap::ALL,
        copy::ALL,
        copy_source::ALL,
        complete::ALL,
        complete_time::ALL,
        delete::ALL,
        read::ALL,
        read_form::ALL,
        consistency::ALL,
        list::ALL,
        list_page::ALL,
        keys::ALL,
        keys_odd::ALL,
        multipart::ALL,
        part_copy::ALL,
        integrity::ALL,
        integrity_parts::ALL,
        signature::ALL,
        errors::ALL,
        retry::ALL,
        clock::ALL,
        versions::ALL,
        versions_list::ALL,
        races::ALL,
        register::ALL,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use crate::check::Severity;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_is_well_declared() {
        let mut ids = BTreeSet::new();
        for check in super::all() {
            let id = check.id;
            assert!(ids.insert(id), "{id} is declared twice");
            assert!(id.split('.').count() >= 2, "{id} names its area first");
            let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
            assert!(id.bytes().all(word), "{id} is dotted words");
            assert!(id.len() <= 44, "{id} does not fit the table");
            assert!(check.proves.len() > 20 && !check.proves.ends_with('.'), "{id} proves one thing");
            assert!(!check.source.is_empty(), "{id} has no source");
            assert!(!check.broken_by.is_empty(), "{id} cannot fail");
            assert!(
                check.broken_by.iter().all(|name| name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')),
                "{id}"
            );
        }
        assert!(ids.len() >= 240, "{} checks", ids.len());
        assert!(super::all().filter(|check| check.severity == Severity::Required).count() >= 50);
    }
}
