//! GetObjectAttributes.

use super::{Answer, attributes, document, invalid_argument, list, object, set, set_version};
use crate::error::{Code, S3Error};
use crate::names::{BucketName, Key};
use crate::service::Call;
use crate::store::model::{Object, Part};
use crate::xml::Writer;

const NAMES: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

pub(super) fn get(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let headers = &call.head.headers;
    let header = "x-amz-object-attributes";
    let asked: Vec<String> = headers
        .get_all(header)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    if asked.is_empty() {
        return Err(S3Error::new(Code::InvalidRequest)
            .message("The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty"));
    }
    if asked.iter().any(|name| !NAMES.contains(&name.as_str())) {
        return Err(invalid_argument(header, &asked.join(","), "Invalid attribute name specified."));
    }
    let wants = |name: &str| asked.iter().any(|asked| asked == name);
    let number = |name: &'static str, default: usize| match attributes::text(headers, name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| invalid_argument(name, &text, format!("Invalid {name}"))),
    };
    let max_parts = list::page_size(number("x-amz-max-parts", usize::MAX)?);
    let marker = number("x-amz-part-number-marker", 0)?;
    let found = object::find(call, bucket, key)?;
    let object = found.object()?;
    let mut response = document("GetObjectAttributesResponse", |w| {
        if wants("ETag") {
            w.text("ETag", &object.etag);
        }
        if let (true, Some(checksum)) = (wants("Checksum"), &object.checksum) {
            w.element("Checksum", |w| {
                w.text(checksum.value.algorithm().element(), checksum.value.base64());
                w.text("ChecksumType", checksum.kind().as_str());
            });
        }
        if wants("ObjectParts") && object.part_count.is_some() {
            w.element("ObjectParts", |w| parts(w, object, &found.parts, marker, max_parts));
        }
        if wants("StorageClass") {
            w.text("StorageClass", object.attributes.storage_class.as_deref().unwrap_or("STANDARD"));
        }
        if wants("ObjectSize") {
            w.value("ObjectSize", object.size);
        }
    });
    set(&mut response, "last-modified", found.version.last_modified.http_date());
    set_version(&mut response, found.versioned.then_some(&found.version.id));
    Ok(response)
}

/// The parts of a multipart object. S3 shows them one by one only where they have checksums of their own.
fn parts(w: &mut Writer, object: &Object, parts: &[Part], marker: usize, max: usize) {
    w.value("PartsCount", parts.len());
    let composite = object.checksum.is_some_and(|checksum| checksum.composed_of.is_some());
    if !composite {
        return;
    }
    let after: Vec<&Part> = parts.iter().filter(|part| usize::from(part.number) > marker).collect();
    let page = &after[..after.len().min(max)];
    w.value("PartNumberMarker", marker);
    w.value("NextPartNumberMarker", page.last().map_or(0, |part| part.number));
    w.value("MaxParts", max);
    w.value("IsTruncated", page.len() < after.len());
    for part in page {
        w.element("Part", |w| {
            w.value("PartNumber", part.number);
            w.value("Size", part.size);
            if let Some(checksum) = part.checksum {
                w.text(checksum.algorithm().element(), checksum.base64());
            }
        });
    }
}
