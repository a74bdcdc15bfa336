//! DeleteObject and DeleteObjects.

use http::StatusCode;

use super::{Answer, answer, document, intake, object, set, set_version};
use crate::deviation::{Deviation, Moment};
use crate::error::{Code, S3Error};
use crate::etag;
use crate::names::{BucketName, Key, VersionId};
use crate::precondition::{Verb, WriteCondition};
use crate::service::Call;
use crate::store::{Deleted, Doomed};
use crate::xml::{Element, Writer};

/// Keys in one DeleteObjects request (S3 API Reference, DeleteObjects).
const MAX_KEYS: usize = 1000;

pub(super) async fn one(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    check_bypass(call)?;
    let version = object::version_of(call)?;
    let condition = call.write_condition(bucket, key, Verb::Delete).await?;
    let condition = call.decide_early(bucket, key, condition, Moment::Body).await?;
    let doomed = version.map_or(Doomed::Current(condition), Doomed::Version);
    let deleted = remove(call, bucket, key, doomed).await?;
    let mut response = answer(StatusCode::NO_CONTENT);
    set_version(&mut response, deleted.version.as_ref());
    if deleted.marker {
        set(&mut response, "x-amz-delete-marker", "true");
    }
    Ok(response)
}

/// Retention can be bypassed only where there is one: no bucket here has Object Lock.
fn check_bypass(call: &Call<'_>) -> Result<(), S3Error> {
    let name = "x-amz-bypass-governance-retention";
    if !call.head.headers.contains_key(name) {
        return Ok(());
    }
    Err(S3Error::new(Code::InvalidArgument)
        .message(format!("{name} is only applicable to Object Lock enabled buckets."))
        .extra("ArgumentName", name))
}

async fn remove(call: &Call<'_>, bucket: &BucketName, key: &Key, doomed: Doomed) -> Result<Deleted, S3Error> {
    let delete = call.store.delete(bucket, key, doomed, call.now, call.service.random());
    Ok(call.commit(delete).await?)
}

/// One object of a DeleteObjects request.
struct Wanted {
    key: String,
    version: Option<String>,
    etag: Option<String>,
}

pub(super) async fn many(call: &mut Call<'_>, bucket: &BucketName) -> Answer {
    let request =
        intake::document(call, "Delete").await?.ok_or_else(|| S3Error::new(Code::MissingRequestBodyError))?;
    let quiet = request.text_of("Quiet").is_some_and(|quiet| quiet.trim() == "true");
    let wanted: Vec<Wanted> = request.all("Object").map(Wanted::read).collect::<Result<_, _>>()?;
    if wanted.is_empty() || wanted.len() > MAX_KEYS {
        return Err(S3Error::new(Code::MalformedXML));
    }
    call.store.bucket(bucket)?;
    check_bypass(call)?;
    let mut outcomes = Vec::with_capacity(wanted.len());
    for wanted in &wanted {
        outcomes.push(wanted.delete(call, bucket).await);
    }
    Ok(document("DeleteResult", |w| {
        for (wanted, outcome) in wanted.iter().zip(&outcomes) {
            match outcome {
                Ok(_) if quiet => {}
                Ok(deleted) => w.element("Deleted", |w| wanted.deleted(w, deleted)),
                Err(error) => w.element("Error", |w| wanted.failed(w, error)),
            }
        }
    }))
}

impl Wanted {
    fn read(object: &Element) -> Result<Self, S3Error> {
        let key = object.text_of("Key").filter(|key| !key.is_empty());
        let text = |name| object.text_of(name).map(str::to_owned);
        Ok(Self {
            key: key.ok_or_else(|| S3Error::new(Code::MalformedXML))?.to_owned(),
            version: text("VersionId").filter(|id| !id.is_empty()),
            etag: text("ETag"),
        })
    }

    async fn delete(&self, call: &Call<'_>, bucket: &BucketName) -> Result<Deleted, S3Error> {
        let key = call.folded(Key::new(self.key.clone())?)?;
        let etag = self.etag.as_ref().filter(|_| !call.acting.acts(&Deviation::IgnoreEtagDeleteObjects));
        let doomed = match (&self.version, etag) {
            // As DeleteObject answers the same question.
            (Some(_), Some(_)) => return Err(S3Error::new(Code::NotImplemented)),
            (Some(version), None) => Doomed::Version(VersionId::parse(version).map_err(|_| {
                S3Error::new(Code::NoSuchVersion).message("The specified version does not exist.")
            })?),
            (None, Some(etag)) if etag.trim() == "*" => Doomed::Current(WriteCondition::Present),
            (None, Some(etag)) => Doomed::Current(WriteCondition::Match(etag::unquoted(etag).to_owned())),
            (None, None) => Doomed::Current(WriteCondition::Always),
        };
        let doomed = match doomed {
            Doomed::Current(condition) => {
                Doomed::Current(call.bent(bucket, &key, condition, Verb::Delete)?)
            }
            version => version,
        };
        remove(call, bucket, &key, doomed).await
    }

    fn deleted(&self, w: &mut Writer, deleted: &Deleted) {
        w.text("Key", &self.key);
        w.optional("VersionId", self.version.as_ref());
        if deleted.marker {
            w.value("DeleteMarker", true);
            w.optional("DeleteMarkerVersionId", deleted.version.as_ref().map(VersionId::as_str));
        }
    }

    fn failed(&self, w: &mut Writer, error: &S3Error) {
        w.text("Code", error.code.as_str());
        w.text("Key", &self.key);
        w.text("Message", &error.message);
        w.optional("VersionId", self.version.as_ref());
    }
}
