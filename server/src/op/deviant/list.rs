//! Lists in another order, or without their newest.

use crate::deviation::Deviation as D;
use crate::names::BucketName;
use crate::service::Call;
use crate::store::model::Version;
use crate::store::{Entry, Page, Query, StoreError};

/// A page of current objects as the server's deviations have it.
///
/// # Errors
/// `NoSuchBucket`.
pub(in crate::op) fn list(
    call: &Call<'_>,
    bucket: &BucketName,
    query: &Query,
) -> Result<Page<Version>, StoreError> {
    if call.acting.set().is_empty() {
        return call.store.list(bucket, query);
    }
    let mut page = if call.acting.acts(&D::ListOrderUtf16) {
        // Another order has other pages, so all of it is sorted for each.
        let all = Query { after: None, max: usize::MAX, ..query.clone() };
        utf16_page(call.store.list(bucket, &all)?, query)
    } else {
        call.store.list(bucket, query)?
    };
    if call.acting.set().has(&D::ListOmitsNewest) && page.omit_newest(|version| version.seq) {
        call.acting.note(&D::ListOmitsNewest);
    }
    Ok(page)
}

fn name(entry: &Entry<Version>) -> &str {
    match entry {
        Entry::Item(name, _) | Entry::CommonPrefix(name) => name,
    }
}

fn utf16_page(mut all: Page<Version>, query: &Query) -> Page<Version> {
    all.entries.sort_by(|a, b| name(a).encode_utf16().cmp(name(b).encode_utf16()));
    if let Some(after) = &query.after {
        all.entries.retain(|entry| name(entry).encode_utf16().gt(after.encode_utf16()));
    }
    all.truncated = query.max > 0 && all.entries.len() > query.max;
    all.entries.truncate(query.max);
    all
}
