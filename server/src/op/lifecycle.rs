//! A bucket's lifecycle: put, get, delete.

mod read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;

use super::{Answer, answer, attributes, document, intake, set};
use crate::error::{Code, S3Error};
use crate::lifecycle::{Expiration, Filter, FilterForm, Rule, TransitionMinimum, When};
use crate::names::BucketName;
use crate::service::Call;
use crate::xml::Writer;

const MINIMUM: &str = "x-amz-transition-default-minimum-object-size";

pub(super) fn get(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let lifecycle = call.store.bucket(bucket)?.lifecycle.ok_or_else(|| {
        S3Error::new(Code::NoSuchLifecycleConfiguration).extra("BucketName", bucket.as_str())
    })?;
    let mut response = document("LifecycleConfiguration", |w| {
        for rule in &lifecycle.rules {
            w.element("Rule", |w| write(w, rule));
        }
    });
    set(&mut response, MINIMUM, lifecycle.transition_minimum.as_str());
    Ok(response)
}

pub(super) async fn put(call: &mut Call<'_>, bucket: &BucketName) -> Answer {
    let minimum = match attributes::text(&call.head.headers, MINIMUM) {
        None => TransitionMinimum::AllStorageClasses128K,
        Some(name) => TransitionMinimum::from_name(&name).ok_or_else(|| {
            S3Error::new(Code::InvalidRequest)
                .message(format!("Invalid TransitionDefaultMinimumObjectSize found: {name}"))
        })?,
    };
    let request = intake::document(call, "LifecycleConfiguration")
        .await?
        .ok_or_else(|| S3Error::new(Code::MissingRequestBodyError))?;
    let mut new_id = || STANDARD.encode(call.service.random::<36>());
    let lifecycle = read::lifecycle(&request, minimum, &mut new_id)?;
    call.store.set_lifecycle(bucket, Some(lifecycle)).await?;
    let mut response = answer(StatusCode::OK);
    set(&mut response, MINIMUM, minimum.as_str());
    Ok(response)
}

pub(super) async fn delete(call: &Call<'_>, bucket: &BucketName) -> Answer {
    call.store.set_lifecycle(bucket, None).await?;
    Ok(answer(StatusCode::NO_CONTENT))
}

fn write(w: &mut Writer, rule: &Rule) {
    w.text("ID", &rule.id);
    write_filter(w, &rule.filter);
    w.text("Status", if rule.enabled { "Enabled" } else { "Disabled" });
    for transition in &rule.transitions {
        w.element("Transition", |w| {
            write_when(w, transition.when);
            w.text("StorageClass", &transition.storage_class);
        });
    }
    if let Some(expiration) = rule.expiration {
        w.element("Expiration", |w| match expiration {
            Expiration::At(when) => write_when(w, when),
            Expiration::LoneMarkers(yes) => w.value("ExpiredObjectDeleteMarker", yes),
        });
    }
    for transition in &rule.noncurrent_transitions {
        w.element("NoncurrentVersionTransition", |w| {
            w.value("NoncurrentDays", transition.days);
            w.optional("NewerNoncurrentVersions", transition.newer_versions.map(|n| n.to_string()));
            w.text("StorageClass", &transition.storage_class);
        });
    }
    if let Some(expiration) = rule.noncurrent_expiration {
        w.element("NoncurrentVersionExpiration", |w| {
            w.optional("NoncurrentDays", expiration.days.map(|days| days.to_string()));
            w.optional("NewerNoncurrentVersions", expiration.newer_versions.map(|n| n.to_string()));
        });
    }
    if let Some(days) = rule.abort_after_days {
        w.element("AbortIncompleteMultipartUpload", |w| w.value("DaysAfterInitiation", days));
    }
}

fn write_when(w: &mut Writer, when: When) {
    match when {
        When::Days(days) => w.value("Days", days),
        When::Date(date) => w.text("Date", date.iso8601()),
    }
}

/// In the form in which it came.
fn write_filter(w: &mut Writer, filter: &Filter) {
    let predicates = |w: &mut Writer| {
        w.optional("Prefix", filter.prefix.as_deref());
        for (key, value) in &filter.tags {
            w.element("Tag", |w| {
                w.text("Key", key);
                w.text("Value", value);
            });
        }
        w.optional("ObjectSizeGreaterThan", filter.larger_than.map(|bytes| bytes.to_string()));
        w.optional("ObjectSizeLessThan", filter.smaller_than.map(|bytes| bytes.to_string()));
    };
    match filter.form {
        FilterForm::BarePrefix => predicates(w),
        FilterForm::One => w.element("Filter", predicates),
        FilterForm::And => w.element("Filter", |w| w.element("And", predicates)),
    }
}
