//! ListBuckets, and what a bucket is: create, delete, head, location, versioning.

use http::StatusCode;

use super::{Answer, OWNER_ID, answer, attributes, document, intake, invalid_argument, list, set, tagging};
use crate::error::{Code, S3Error};
use crate::names::BucketName;
use crate::service::Call;
use crate::store::model::{Bucket, Versioning};

/// Buckets on one page of ListBuckets (S3 API Reference, ListBuckets).
const MAX_BUCKETS: usize = 10_000;

const REGIONS: [&str; 33] = [
    "af-south-1",
    "ap-east-1",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-west-1",
    "us-west-2",
];

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
        && region != call.service.settings.region
    {
        return Err(S3Error::new(Code::InvalidArgument)
            .message(format!("Argument value {region} is not a valid AWS Region"))
            .extra("ArgumentName", "bucket-region"));
    }
    let prefix = call.query.get("prefix");
    let token = call.query.get("continuation-token");
    let mut after = token.filter(|token| !token.is_empty()).map(list::read_token).transpose()?;
    let mut page = Vec::new();
    // A region is rarely asked for, so buckets of others are skipped here and not in the store.
    let more = loop {
        let (found, more) = call.service.store.buckets(prefix.unwrap_or_default(), after.as_deref(), max)?;
        let Some((last, _)) = found.last() else { break false };
        after = Some(last.clone());
        page.extend(
            found.into_iter().filter(|(_, bucket)| region.is_none_or(|region| bucket.region == region)),
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
                    w.text("BucketRegion", &bucket.region);
                    w.text("BucketArn", arn(name));
                });
            }
        });
        w.optional("Prefix", prefix);
        w.optional("ContinuationToken", after.filter(|_| more).map(|after| list::token(&after)));
    }))
}

pub(super) async fn create(call: &mut Call<'_>, bucket: &BucketName) -> Answer {
    attributes::check_supported(&call.head.headers)?;
    let request = intake::document(call, "CreateBucketConfiguration").await?;
    let here = call.service.settings.region.clone();
    let constraint = request.as_ref().and_then(|request| request.text_of("LocationConstraint"));
    let region = match constraint {
        // The endpoint of us-east-1 makes buckets anywhere; its own region is named by leaving it out.
        None | Some("") if here == "us-east-1" => here.clone(),
        Some("us-east-1") if here == "us-east-1" => return Err(invalid_location("us-east-1")),
        Some(named) if here == "us-east-1" => {
            let named = if named == "EU" { "eu-west-1" } else { named };
            if !REGIONS.contains(&named) {
                return Err(invalid_location(named));
            }
            named.to_owned()
        }
        Some(named) if named == here => here.clone(),
        named => {
            let named = named.filter(|named| !named.is_empty()).unwrap_or("unspecified");
            return Err(S3Error::new(Code::IllegalLocationConstraintException).message(format!(
                "The {named} location constraint is incompatible for the region specific endpoint this request was sent to."
            )));
        }
    };
    let tags = match request.as_ref().and_then(|request| request.child("Tags")) {
        Some(tags) => tagging::read_bucket_tags(tags, "Tag", true)?,
        None => Vec::new(),
    };
    let elsewhere = region != "us-east-1";
    let record = Bucket { created: call.now.whole_second(), region, versioning: Versioning::Off, tags };
    match call.service.store.create_bucket(bucket, record).await {
        // In us-east-1 alone creating one's own bucket again succeeds (S3 API Reference, CreateBucket).
        Err(crate::store::StoreError::BucketExists(_)) if here == "us-east-1" && !elsewhere => {}
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

fn invalid_location(named: &str) -> S3Error {
    S3Error::new(Code::InvalidLocationConstraint).extra("LocationConstraint", named)
}

pub(super) async fn delete(call: &Call<'_>, bucket: &BucketName) -> Answer {
    call.service.store.delete_bucket(bucket).await?;
    Ok(answer(StatusCode::NO_CONTENT))
}

pub(super) fn head(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let record = call.service.store.bucket(bucket)?;
    let mut response = answer(StatusCode::OK);
    set(&mut response, "x-amz-bucket-region", record.region);
    set(&mut response, "x-amz-access-point-alias", "false");
    set(&mut response, "x-amz-bucket-arn", arn(bucket.as_str()));
    set(&mut response, "content-type", "application/xml");
    Ok(response)
}

pub(super) fn location(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let record = call.service.store.bucket(bucket)?;
    // us-east-1 is the region that has no name here (S3 API Reference, GetBucketLocation).
    let region = if record.region == "us-east-1" { String::new() } else { record.region };
    Ok(document("LocationConstraint", |w| w.characters(&region)))
}

pub(super) fn versioning(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let record = call.service.store.bucket(bucket)?;
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
    call.service.store.update_bucket(bucket, move |record| record.versioning = versioning).await?;
    Ok(answer(StatusCode::OK))
}
