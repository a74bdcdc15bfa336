//! ListBuckets, and what a bucket is: create, delete, head, location, versioning.

use http::StatusCode;

use super::{Answer, OWNER_ID, answer, attributes, document, intake, invalid_argument, list, set, tagging};
use crate::error::{Code, S3Error};
use crate::names::{BucketName, REGIONS};
use crate::service::Call;
use crate::store::model::{Bucket, Versioning};

/// Buckets on one page of ListBuckets (S3 API Reference, ListBuckets).
const MAX_BUCKETS: usize = 10_000;

fn arn(bucket: &str) -> String {
    format!("arn:aws:s3:::{bucket}")
}

pub(super) fn list(call: &Call<'_>) -> Answer {
    let max = match call.query.get("max-buckets").map(str::parse) {
        None => MAX_BUCKETS,
        Some(Ok(max @ 1..=MAX_BUCKETS)) => max,
        Some(_) => {
            let text = call.query.get("max-buckets").unwrap_or_default();
            return Err(invalid_argument(
                "max-buckets",
                text,
                "Argument max-buckets must be an integer between 1 and 10000",
            ));
        }
    };
    let region = call.query.get("bucket-region");
    if let Some(region) = region
        && !REGIONS.contains(&region)
        && region != call.region()
    {
        return Err(S3Error::new(Code::InvalidArgument)
            .message(format!("Argument value {region} is not a valid AWS Region"))
            .extra("ArgumentName", "bucket-region"));
    }
    // A request without any of its parameters is not told regions (S3 API Reference, Bucket; recorded).
    let asked = ["max-buckets", "bucket-region", "prefix", "continuation-token"]
        .iter()
        .any(|parameter| call.query.has(parameter));
    let prefix = call.query.get("prefix");
    let token = call.query.get("continuation-token");
    let mut after = token.filter(|token| !token.is_empty()).map(list::read_token).transpose()?;
    let mut page = Vec::new();
    // A region is rarely asked for, so buckets of others are skipped here and not in the store.
    let more = loop {
        let (found, more) = call.store.buckets(prefix.unwrap_or_default(), after.as_deref(), max)?;
        let Some((last, _)) = found.last() else { break false };
        after = Some(last.clone());
        page.extend(
            found.into_iter().filter(|(_, bucket)| region.is_none_or(|region| region_of(bucket) == region)),
        );
        if page.len() > max {
            page.truncate(max);
            after = page.last().map(|(name, _)| name.clone());
            break true;
        }
        if page.len() == max || !more {
            break more;
        }
    };
    Ok(document("ListAllMyBucketsResult", |w| {
        w.element("Owner", |w| w.text("ID", OWNER_ID));
        w.element("Buckets", |w| {
            for (name, bucket) in &page {
                w.element("Bucket", |w| {
                    w.text("Name", name);
                    w.text("CreationDate", bucket.created.iso8601());
                    if asked {
                        w.text("BucketRegion", region_of(bucket));
                    }
                    w.text("BucketArn", arn(name));
                });
            }
        });
        w.optional("Prefix", prefix);
        w.optional("ContinuationToken", after.filter(|_| more).map(|after| list::token(&after)));
    }))
}

/// The region where a bucket is. `EU` is a location of its own name, which lies in eu-west-1.
pub(super) fn region_of(bucket: &Bucket) -> &str {
    if bucket.region == "EU" { "eu-west-1" } else { &bucket.region }
}

/// The location of a new bucket, given the region of the endpoint that was asked.
fn location_for(here: &str, constraint: Option<&str>) -> Result<String, S3Error> {
    match constraint.filter(|named| !named.is_empty()) {
        // The endpoint of us-east-1 makes buckets anywhere; its own region is named by leaving it out.
        None if here == "us-east-1" => Ok(here.to_owned()),
        Some(named) if here == "us-east-1" => {
            if named == "EU" || (named != here && REGIONS.contains(&named)) {
                return Ok(named.to_owned());
            }
            Err(S3Error::new(Code::InvalidLocationConstraint).extra("LocationConstraint", named))
        }
        Some(named) if named == here || (named == "EU" && here == "eu-west-1") => Ok(named.to_owned()),
        named => Err(S3Error::new(Code::IllegalLocationConstraintException).message(format!(
            "The {} location constraint is incompatible for the region specific endpoint this request was sent to.",
            named.unwrap_or("unspecified")
        ))),
    }
}

pub(super) async fn create(call: &mut Call<'_>, bucket: &BucketName) -> Answer {
    attributes::check_supported(&call.head.headers)?;
    let request = intake::document(call, "CreateBucketConfiguration").await?;
    let constraint = request.as_ref().and_then(|request| request.text_of("LocationConstraint"));
    let region = location_for(call.region(), constraint)?;
    let tags = match request.as_ref().and_then(|request| request.child("Tags")) {
        Some(tags) => tagging::read_bucket_tags(tags, "Tag", true)?,
        None => Vec::new(),
    };
    let elsewhere = region != "us-east-1";
    // In us-east-1 alone creating one's own bucket again succeeds (S3 API Reference, CreateBucket), though not
    // with tags, even the same ones (recorded).
    let again = !elsewhere && tags.is_empty();
    let created = call.now.whole_second();
    let record = Bucket { created, region, versioning: Versioning::Off, tags, lifecycle: None };
    match call.store.create_bucket(bucket, record).await {
        Err(crate::store::StoreError::BucketExists(_)) if again => {}
        created => created?,
    }
    let mut response = answer(StatusCode::OK);
    let host = call.head.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let location = if elsewhere {
        format!("http://{}.{host}/", bucket.as_str())
    } else {
        format!("/{}", bucket.as_str())
    };
    set(&mut response, "location", location);
    set(&mut response, "x-amz-bucket-arn", arn(bucket.as_str()));
    Ok(response)
}

pub(super) async fn delete(call: &Call<'_>, bucket: &BucketName) -> Answer {
    call.commit(call.store.delete_bucket(bucket)).await?;
    Ok(answer(StatusCode::NO_CONTENT))
}

pub(super) fn head(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let record = call.store.bucket(bucket)?;
    let mut response = answer(StatusCode::OK);
    set(&mut response, "x-amz-bucket-region", region_of(&record));
    set(&mut response, "x-amz-access-point-alias", "false");
    set(&mut response, "x-amz-bucket-arn", arn(bucket.as_str()));
    set(&mut response, "content-type", "application/xml");
    Ok(response)
}

pub(super) fn location(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let record = call.store.bucket(bucket)?;
    // us-east-1 is the region that has no name here (S3 API Reference, GetBucketLocation).
    let region = if record.region == "us-east-1" { String::new() } else { record.region };
    Ok(document("LocationConstraint", |w| w.characters(&region)))
}

pub(super) fn versioning(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let record = call.store.bucket(bucket)?;
    Ok(document("VersioningConfiguration", |w| match record.versioning {
        Versioning::Off => {}
        Versioning::Enabled => w.text("Status", "Enabled"),
        Versioning::Suspended => w.text("Status", "Suspended"),
    }))
}

pub(super) async fn put_versioning(call: &mut Call<'_>, bucket: &BucketName) -> Answer {
    let request = intake::document(call, "VersioningConfiguration")
        .await?
        .ok_or_else(|| S3Error::new(Code::MissingRequestBodyError))?;
    if request.text_of("MfaDelete") == Some("Enabled") {
        return Err(S3Error::new(Code::NotImplemented).message("this server does not implement MFA delete"));
    }
    let versioning = match request.text_of("Status") {
        Some("Enabled") => Versioning::Enabled,
        Some("Suspended") => Versioning::Suspended,
        Some(_) => return Err(S3Error::new(Code::MalformedXML)),
        None => return Err(S3Error::new(Code::IllegalVersioningConfigurationException)),
    };
    call.store.update_bucket(bucket, move |record| record.versioning = versioning).await?;
    Ok(answer(StatusCode::OK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_as_recorded() {
        use Code::{IllegalLocationConstraintException as Illegal, InvalidLocationConstraint as Invalid};
        for (here, constraint, expected) in [
            ("us-east-1", None, Ok("us-east-1")),
            ("us-east-1", Some(""), Ok("us-east-1")),
            ("us-east-1", Some("us-west-2"), Ok("us-west-2")),
            ("us-east-1", Some("EU"), Ok("EU")),
            ("us-east-1", Some("us-east-1"), Err(Invalid)),
            ("us-east-1", Some("aws-global"), Err(Invalid)),
            ("eu-west-1", Some("eu-west-1"), Ok("eu-west-1")),
            ("eu-west-1", Some("EU"), Ok("EU")),
            ("eu-west-1", Some("bar"), Err(Illegal)),
            ("us-east-2", Some("EU"), Err(Illegal)),
            ("us-east-2", None, Err(Illegal)),
            ("us-west-1", Some("us-east-1"), Err(Illegal)),
        ] {
            let location = location_for(here, constraint).map_err(|error| error.code);
            assert_eq!(location, expected.map(str::to_owned), "{constraint:?} at {here}");
        }
    }
}
