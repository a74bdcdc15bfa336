//! Reads a lifecycle configuration: pure.
//!
//! Limits and rules: S3 User Guide, "Lifecycle configuration elements"; S3 API Reference,
//! PutBucketLifecycleConfiguration. The answers are recorded where a test says so; the others are what users of AWS
//! report, and `MalformedXML` where nobody does.

use crate::error::{Code, S3Error};
use crate::instant::Instant;
use crate::lifecycle::{
    Expiration, Filter, FilterForm, Lifecycle, NoncurrentExpiration, NoncurrentTransition, Rule, Transition,
    TransitionMinimum, When, is_midnight,
};
use crate::op::{invalid_argument, tagging};
use crate::xml::Element;

const MAX_RULES: usize = 1000;
const MAX_ID_CHARS: usize = 255;
const MAX_PREFIX_BYTES: usize = 1024;
/// Days of an integer in S3's schema.
const MAX_DAYS: i64 = 2_147_483_647;
/// Classes that an object can move to.
const CLASSES: [&str; 6] =
    ["STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"];
/// Days that an object stays before it moves to infrequent access.
const MIN_DAYS_TO_IA: u32 = 30;

fn malformed() -> S3Error {
    S3Error::new(Code::MalformedXML)
}

fn invalid_request(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::new(Code::InvalidRequest).message(message)
}

/// # Errors
/// `MalformedXML`, `InvalidArgument`, `InvalidRequest`, `InvalidTag`.
pub(super) fn lifecycle(
    document: &Element,
    transition_minimum: TransitionMinimum,
    new_id: &mut impl FnMut() -> String,
) -> Result<Lifecycle, S3Error> {
    let known = [("Rule", usize::MAX)];
    only(document, &known)?;
    let mut rules: Vec<Rule> = Vec::new();
    for element in document.all("Rule") {
        let rule = rule(element, new_id)?;
        if rules.iter().any(|known| known.id == rule.id) {
            let message = "Rule ID must be unique. Found same ID for more than one rule";
            return Err(S3Error::new(Code::InvalidArgument).message(message));
        }
        rules.push(rule);
    }
    if rules.is_empty() || rules.len() > MAX_RULES {
        return Err(malformed());
    }
    Ok(Lifecycle { rules, transition_minimum })
}

/// Refuses children of other names, and more of one name than there may be.
fn only(element: &Element, known: &[(&str, usize)]) -> Result<(), S3Error> {
    let fits = |child: &Element| {
        known.iter().any(|(name, max)| child.name == *name && element.all(name).count() <= *max)
    };
    if element.children.iter().all(fits) { Ok(()) } else { Err(malformed()) }
}

fn rule(element: &Element, new_id: &mut impl FnMut() -> String) -> Result<Rule, S3Error> {
    let many = usize::MAX;
    only(
        element,
        &[
            ("ID", 1),
            ("Status", 1),
            ("Prefix", 1),
            ("Filter", 1),
            ("Transition", many),
            ("Expiration", 1),
            ("NoncurrentVersionTransition", many),
            ("NoncurrentVersionExpiration", 1),
            ("AbortIncompleteMultipartUpload", 1),
        ],
    )?;
    let enabled = match element.text_of("Status") {
        Some("Enabled") => true,
        Some("Disabled") => false,
        _ => return Err(malformed()),
    };
    let id = match element.text_of("ID") {
        Some(id) if id.chars().count() > MAX_ID_CHARS => {
            let message = format!("ID length should not exceed allowed limit of {MAX_ID_CHARS}");
            return Err(S3Error::new(Code::InvalidArgument).message(message));
        }
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => new_id(),
    };
    let rule = Rule {
        id,
        enabled,
        filter: filter(element)?,
        transitions: element.all("Transition").map(transition).collect::<Result<_, _>>()?,
        expiration: element.child("Expiration").map(expiration).transpose()?,
        noncurrent_transitions: element
            .all("NoncurrentVersionTransition")
            .map(noncurrent_transition)
            .collect::<Result<_, _>>()?,
        noncurrent_expiration: element
            .child("NoncurrentVersionExpiration")
            .map(noncurrent_expiration)
            .transpose()?,
        abort_after_days: element.child("AbortIncompleteMultipartUpload").map(abort).transpose()?,
    };
    check_together(&rule)?;
    Ok(rule)
}

/// What the parts of a rule may not be beside each other.
fn check_together(rule: &Rule) -> Result<(), S3Error> {
    if rule.transitions.is_empty()
        && rule.expiration.is_none()
        && rule.noncurrent_transitions.is_empty()
        && rule.noncurrent_expiration.is_none()
        && rule.abort_after_days.is_none()
    {
        return Err(invalid_request("At least one action needs to be specified in a rule"));
    }
    let filter = &rule.filter;
    let by_size = filter.larger_than.is_some() || filter.smaller_than.is_some();
    let markers = matches!(rule.expiration, Some(Expiration::LoneMarkers(_)));
    for (action, present) in [
        ("AbortIncompleteMultipartUpload", rule.abort_after_days.is_some()),
        ("ExpiredObjectDeleteMarker", markers),
    ] {
        // An upload has no size yet, and a marker neither size nor tags.
        if present && !filter.tags.is_empty() {
            return Err(invalid_request(format!("{action} cannot be specified with Tags.")));
        }
        if present && by_size {
            return Err(invalid_request(format!("{action} cannot be specified with Object Size")));
        }
    }
    let prefix = filter.prefix.as_deref().unwrap_or_default();
    for (at, transition) in rule.transitions.iter().enumerate() {
        let class = &transition.storage_class;
        if rule.transitions[..at].iter().any(|earlier| earlier.storage_class == *class) {
            return Err(invalid_request(format!(
                "'StorageClass' must be different for 'Transition' actions in same 'Rule' with filter '(prefix={prefix})'"
            )));
        }
        match (rule.expiration, transition.when) {
            (Some(Expiration::At(When::Days(expires))), When::Days(moves)) if expires <= moves => {
                return Err(S3Error::new(Code::InvalidArgument).message(format!(
                    "'Days' in the Expiration action for filter '(prefix={prefix})' must be greater than 'Days' in the Transition action"
                )));
            }
            (Some(Expiration::At(When::Days(_))), When::Date(_))
            | (Some(Expiration::At(When::Date(_))), When::Days(_)) => {
                return Err(invalid_request(format!(
                    "Found mixed 'Date' and 'Days' based Expiration and Transition actions in lifecycle rule for filter '(prefix={prefix})'"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A rule has a filter or, as before there were filters, a prefix.
fn filter(rule: &Element) -> Result<Filter, S3Error> {
    match (rule.child("Filter"), rule.text_of("Prefix")) {
        (None, Some(prefix)) => {
            let prefix = Some(checked_prefix(prefix)?);
            Ok(Filter { form: FilterForm::BarePrefix, prefix, ..Filter::default() })
        }
        (Some(filter), None) => match (filter.child("And"), filter.children.len()) {
            (Some(and), 1) => predicates(and, FilterForm::And),
            (None, 0 | 1) => predicates(filter, FilterForm::One),
            _ => Err(malformed()),
        },
        _ => Err(malformed()),
    }
}

fn predicates(element: &Element, form: FilterForm) -> Result<Filter, S3Error> {
    let known = [("Prefix", 1), ("Tag", usize::MAX), ("ObjectSizeGreaterThan", 1), ("ObjectSizeLessThan", 1)];
    only(element, &known)?;
    let mut tags: Vec<(String, String)> = Vec::new();
    for tag in element.all("Tag") {
        let (Some(key), Some(value)) = (tag.text_of("Key"), tag.text_of("Value")) else {
            return Err(malformed());
        };
        tagging::check(key, value)?;
        if tags.iter().any(|(known, _)| known == key) {
            return Err(invalid_request("Duplicate Tag Keys are not allowed."));
        }
        tags.push((key.to_owned(), value.to_owned()));
    }
    let bytes = |name| {
        let text = element.text_of(name);
        text.map(|text| text.trim().parse::<u64>().map_err(|_| malformed())).transpose()
    };
    let (larger_than, smaller_than) = (bytes("ObjectSizeGreaterThan")?, bytes("ObjectSizeLessThan")?);
    if larger_than.zip(smaller_than).is_some_and(|(larger, smaller)| smaller <= larger) {
        return Err(invalid_request(
            "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'",
        ));
    }
    let prefix = element.text_of("Prefix").map(checked_prefix).transpose()?;
    Ok(Filter { form, prefix, tags, larger_than, smaller_than })
}

fn checked_prefix(prefix: &str) -> Result<String, S3Error> {
    if prefix.len() > MAX_PREFIX_BYTES {
        return Err(invalid_request(format!("The maximum size of a prefix is {MAX_PREFIX_BYTES}.")));
    }
    Ok(prefix.to_owned())
}

/// A whole number of at least `least`, where the element is there.
fn number(element: &Element, name: &str, least: i64) -> Result<Option<u32>, S3Error> {
    let Some(text) = element.text_of(name) else { return Ok(None) };
    match text.trim().parse::<i64>() {
        Ok(days) if days > MAX_DAYS => Err(malformed()),
        Ok(days) if days >= least => u32::try_from(days).map(Some).map_err(|_| malformed()),
        Ok(_) => {
            let action = &element.name;
            let message = match least {
                0 => format!("'{name}' in {action} action must be nonnegative"),
                _ => format!("'{name}' for {action} action must be a positive integer"),
            };
            Err(S3Error::new(Code::InvalidArgument).message(message))
        }
        Err(_) => Err(malformed()),
    }
}

fn date(element: &Element) -> Result<Option<Instant>, S3Error> {
    let Some(text) = element.text_of("Date") else { return Ok(None) };
    let date = Instant::parse(text.trim()).ok_or_else(malformed)?;
    if !is_midnight(date) {
        return Err(invalid_argument("Date", text, "'Date' must be at midnight GMT"));
    }
    Ok(Some(date))
}

fn transition(element: &Element) -> Result<Transition, S3Error> {
    only(element, &[("Date", 1), ("Days", 1), ("StorageClass", 1)])?;
    let storage_class = storage_class(element)?;
    let when = match (number(element, "Days", 0)?, date(element)?) {
        (Some(days), None) => When::Days(days),
        (None, Some(date)) => When::Date(date),
        _ => return Err(malformed()),
    };
    match when {
        When::Days(days) => check_days_to_ia(element, "Days", days, &storage_class)?,
        When::Date(_) => {}
    }
    Ok(Transition { when, storage_class })
}

fn storage_class(element: &Element) -> Result<String, S3Error> {
    let class = element.text_of("StorageClass").filter(|class| CLASSES.contains(class));
    class.map(str::to_owned).ok_or_else(malformed)
}

fn check_days_to_ia(element: &Element, name: &str, days: u32, class: &str) -> Result<(), S3Error> {
    if days >= MIN_DAYS_TO_IA || !matches!(class, "STANDARD_IA" | "ONEZONE_IA") {
        return Ok(());
    }
    let action = &element.name;
    Err(S3Error::new(Code::InvalidArgument).message(format!(
        "'{name}' in {action} action must be greater than or equal to {MIN_DAYS_TO_IA} for storageClass '{class}'"
    )))
}

fn expiration(element: &Element) -> Result<Expiration, S3Error> {
    only(element, &[("Date", 1), ("Days", 1), ("ExpiredObjectDeleteMarker", 1)])?;
    match (number(element, "Days", 1)?, date(element)?, element.text_of("ExpiredObjectDeleteMarker")) {
        (Some(days), None, None) => Ok(Expiration::At(When::Days(days))),
        (None, Some(date), None) => Ok(Expiration::At(When::Date(date))),
        (None, None, Some(yes)) => Ok(Expiration::LoneMarkers(yes.trim().parse().map_err(|_| malformed())?)),
        _ => Err(malformed()),
    }
}

fn noncurrent_transition(element: &Element) -> Result<NoncurrentTransition, S3Error> {
    only(element, &[("NoncurrentDays", 1), ("NewerNoncurrentVersions", 1), ("StorageClass", 1)])?;
    let storage_class = storage_class(element)?;
    let days = number(element, "NoncurrentDays", 0)?.ok_or_else(malformed)?;
    check_days_to_ia(element, "NoncurrentDays", days, &storage_class)?;
    let newer_versions = number(element, "NewerNoncurrentVersions", 1)?;
    Ok(NoncurrentTransition { days, newer_versions, storage_class })
}

fn noncurrent_expiration(element: &Element) -> Result<NoncurrentExpiration, S3Error> {
    only(element, &[("NoncurrentDays", 1), ("NewerNoncurrentVersions", 1)])?;
    let days = number(element, "NoncurrentDays", 1)?;
    let newer_versions = number(element, "NewerNoncurrentVersions", 1)?;
    if days.is_none() && newer_versions.is_none() {
        return Err(malformed());
    }
    Ok(NoncurrentExpiration { days, newer_versions })
}

fn abort(element: &Element) -> Result<u32, S3Error> {
    only(element, &[("DaysAfterInitiation", 1)])?;
    number(element, "DaysAfterInitiation", 1)?.ok_or_else(malformed)
}

#[cfg(test)]
mod tests;
