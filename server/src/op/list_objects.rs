//! ListObjects and ListObjectsV2.

use super::list::{self, Keys, describe, owner};
use super::{Answer, bucket, deviant, document, set};
use crate::names::BucketName;
use crate::service::Call;
use crate::store::model::Version;
use crate::store::{Entry, Page};
use crate::xml::Writer;

pub(super) fn v1(call: &Call<'_>, name: &BucketName) -> Answer {
    let keys = Keys { encode: list::encoding(call)? };
    let max = list::max(call, "max-keys")?;
    let marker = call.query.get("marker").unwrap_or_default();
    let query = list::query(call, max, Some(marker).filter(|marker| !marker.is_empty()));
    let region = bucket::region_of(&call.store.bucket(name)?).to_owned();
    let mut page = deviant::list(call, name, &query)?;
    call.plan.bend(&mut page, |version| version.seq);
    let mut response = document("ListBucketResult", |w| {
        w.text("Name", name.as_str());
        keys.text(w, "Prefix", &query.prefix);
        keys.text(w, "Marker", marker);
        // Without a delimiter the last key is the marker (S3 API Reference, ListObjects).
        if page.truncated && !page.without_token && query.delimiter.is_some() {
            keys.optional(w, "NextMarker", last(&page));
        }
        w.value("MaxKeys", max);
        keys.optional(w, "Delimiter", query.delimiter.as_deref());
        w.value("IsTruncated", page.truncated);
        contents(w, keys, &page, true);
        keys.common_prefixes(w, &page);
    });
    set(&mut response, "x-amz-bucket-region", region);
    Ok(response)
}

pub(super) fn v2(call: &Call<'_>, name: &BucketName) -> Answer {
    let keys = Keys { encode: list::encoding(call)? };
    let max = list::max(call, "max-keys")?;
    let token = call.query.get("continuation-token");
    let start_after = call.query.get("start-after").filter(|after| !after.is_empty() && token.is_none());
    let resumed = match token {
        Some(token) => Some(list::read_token(token)?),
        None => None,
    };
    let mut query = list::query(call, max, resumed.as_deref().or(start_after));
    query.group_listed = token.is_some();
    let region = bucket::region_of(&call.store.bucket(name)?).to_owned();
    let mut page = deviant::list(call, name, &query)?;
    call.plan.bend(&mut page, |version| version.seq);
    let with_owner = call.query.get("fetch-owner") == Some("true");
    let mut response = document("ListBucketResult", |w| {
        w.text("Name", name.as_str());
        keys.text(w, "Prefix", &query.prefix);
        keys.optional(w, "StartAfter", start_after);
        w.optional("ContinuationToken", token);
        if page.truncated && !page.without_token {
            w.optional("NextContinuationToken", last(&page).map(list::token));
        }
        w.value("KeyCount", page.entries.len());
        w.value("MaxKeys", max);
        keys.optional(w, "Delimiter", query.delimiter.as_deref());
        w.value("IsTruncated", page.truncated);
        contents(w, keys, &page, with_owner);
        keys.common_prefixes(w, &page);
    });
    set(&mut response, "x-amz-bucket-region", region);
    Ok(response)
}

fn last(page: &Page<Version>) -> Option<&str> {
    match page.entries.last()? {
        Entry::Item(name, _) | Entry::CommonPrefix(name) => Some(name),
    }
}

fn contents(w: &mut Writer, keys: Keys, page: &Page<Version>, with_owner: bool) {
    for entry in &page.entries {
        if let Entry::Item(key, version) = entry
            && let Some(object) = &version.object
        {
            w.element("Contents", |w| {
                keys.text(w, "Key", key);
                describe(w, version, object);
                if with_owner {
                    owner(w);
                }
            });
        }
    }
}
