//! Create-only writes: of data and entries, whose keys contain the hash of what they hold.

use bytes::Bytes;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::ids::Digest;
use crate::run::patience::{Patience, because, denied};
use crate::run::read;
use crate::store::{Condition, ETag, Outcome, Refusal};

/// How an object came to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// It was there before, or an unanswered try of ours had made it: who can tell?
    pub adopted: bool,
    /// As the store gave it.
    pub etag: Option<ETag>,
}

/// Writes `bytes` at `key` unless they are there. Tries the same request again until it is answered.
///
/// # Errors
/// Other bytes at the key ([`Alarm::ConflictingObject`]), a refusal, or no answer within `patience`.
pub async fn create(
    env: &Env,
    key: &str,
    bytes: &Bytes,
    metadata: &[(String, String)],
    mut patience: Patience,
) -> Result<Created, SinkError> {
    loop {
        let why = match env.store.put(key, bytes.clone(), Condition::Absent, metadata).await {
            Outcome::Done(Some(etag)) => return Ok(Created { adopted: false, etag: Some(etag) }),
            Outcome::Done(None) => {
                let etag = read::meta(env, key, patience.renewed()).await?.map(|meta| meta.etag);
                return Ok(Created { adopted: etag.is_none(), etag });
            }
            Outcome::Refused(Refusal::Precondition) => match adopt(env, key, bytes, &patience).await? {
                Some(etag) => return Ok(Created { adopted: true, etag: Some(etag) }),
                None => because("something is there and is not: it is being deleted"),
            },
            Outcome::Refused(Refusal::Conflict) => because("409"),
            Outcome::Refused(refusal) => return Err(denied("PUT", key, refusal)),
            Outcome::Missing => return Err(denied("PUT", key, read::no_bucket())),
            Outcome::Unknown(why) => why,
        };
        patience.pause(env, "PUT", key, &why).await?;
    }
}

/// The same, and reads it back: whoever is about to refer to it knows that it is there, and what it holds.
///
/// # Errors
/// Those of [`create`], and an alarm for other bytes, or none, where these were written.
pub async fn and_read_back(
    env: &Env,
    key: &str,
    bytes: &Bytes,
    metadata: &[(String, String)],
    patience: &Patience,
) -> Result<(), SinkError> {
    create(env, key, bytes, metadata, patience.renewed()).await?;
    let conflict = |reason: String| SinkError::from(Alarm::ConflictingObject { key: key.to_owned(), reason });
    let same = read::verified(env, key, patience, |found| {
        if found == bytes {
            return Ok(());
        }
        let (found, written) = (Digest::of(found), Digest::of(bytes));
        Err(conflict(format!("bytes with SHA-256 {found} are read where {written} was written")))
    });
    match same.await? {
        Some(()) => Ok(()),
        None => Err(conflict("it was written, and is not there".to_owned())),
    }
}

/// The tag of the object at `key` if it holds `bytes`; nothing if it is gone.
async fn adopt(env: &Env, key: &str, bytes: &Bytes, patience: &Patience) -> Result<Option<ETag>, SinkError> {
    let mut left = read::REREADS;
    loop {
        let Some(object) = read::get(env, key, patience.renewed()).await? else { return Ok(None) };
        if object.bytes == *bytes {
            return Ok(Some(object.meta.etag));
        }
        if left == 0 {
            let reason = format!(
                "{} bytes with SHA-256 {} are there, {} bytes with SHA-256 {} were to be written",
                object.bytes.len(),
                Digest::of(&object.bytes),
                bytes.len(),
                Digest::of(bytes)
            );
            return Err(Alarm::ConflictingObject { key: key.to_owned(), reason }.into());
        }
        left -= 1;
    }
}
