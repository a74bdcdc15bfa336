//! Reads that know missing from unanswered, and a damaged answer from a damaged object.

use bytes::Bytes;

use crate::env::Env;
use crate::error::SinkError;
use crate::model::frame::Kind;
use crate::model::head::Head;
use crate::model::key::PipelineRoot;
use crate::model::view::View;
use crate::run::patience::{Patience, because, denied};
use crate::store::{Object, ObjectMeta, Outcome, Refusal};

/// How often an object is read again that does not verify: proxies tear answers.
pub(super) const REREADS: u32 = 3;

/// Keys of one page of a listing.
const PAGE: u16 = 1000;

/// An object, or that there is none.
///
/// # Errors
/// No answer within `patience`, or a refusal.
pub async fn get(env: &Env, key: &str, mut patience: Patience) -> Result<Option<Object>, SinkError> {
    loop {
        let why = match env.store.get(key).await {
            Outcome::Done(object) => return Ok(Some(object)),
            Outcome::Missing => return Ok(None),
            Outcome::Refused(Refusal::Conflict) => because("409"),
            Outcome::Refused(refusal) => return Err(denied("GET", key, refusal)),
            Outcome::Unknown(why) => why,
        };
        patience.pause(env, "GET", key, &why).await?;
    }
}

/// What is known of an object, or that there is none: a HEAD's 404 has no body, any proxy can give one, and so the
/// object is read before it counts as absent.
///
/// # Errors
/// No answer within `patience`, or a refusal.
pub async fn meta(env: &Env, key: &str, mut patience: Patience) -> Result<Option<ObjectMeta>, SinkError> {
    loop {
        let why = match env.store.head(key).await {
            Outcome::Done(meta) => return Ok(Some(meta)),
            Outcome::Missing => {
                return Ok(get(env, key, patience.renewed()).await?.map(|object| object.meta));
            }
            Outcome::Refused(Refusal::Conflict) => because("409"),
            Outcome::Refused(refusal) => return Err(denied("HEAD", key, refusal)),
            Outcome::Unknown(why) => why,
        };
        patience.pause(env, "HEAD", key, &why).await?;
    }
}

/// HEAD with its tag, or that there is none.
///
/// # Errors
/// No answer, a refusal, or an object that is no HEAD however often it is read.
pub async fn view(env: &Env, root: &PipelineRoot, patience: &Patience) -> Result<Option<View>, SinkError> {
    Ok(dated_view(env, root, patience).await?.map(|(view, _)| view))
}

/// The same, with the store's time in milliseconds since 1970, if the answer told it.
///
/// # Errors
/// Those of [`view`].
pub async fn dated_view(
    env: &Env,
    root: &PipelineRoot,
    patience: &Patience,
) -> Result<Option<(View, Option<u64>)>, SinkError> {
    let key = root.head();
    let mut left = REREADS;
    loop {
        let Some(object) = get(env, &key, patience.renewed()).await? else { return Ok(None) };
        match Head::decode(&object.bytes) {
            Ok(head) => {
                let view = View { head, etag: object.meta.etag };
                return Ok(Some((view, object.store_date_ms)));
            }
            Err(error) if left == 0 => return Err(SinkError::of_frame(Kind::Head, &key, error)),
            Err(error) => tracing::warn!(key, %error, "reading HEAD again"),
        }
        left -= 1;
    }
}

/// Bytes that `verify` accepts, or that there is no object.
///
/// # Errors
/// No answer, a refusal, or `verify`'s own however often the object is read.
pub(super) async fn verified<T>(
    env: &Env,
    key: &str,
    patience: &Patience,
    verify: impl Fn(&Bytes) -> Result<T, SinkError>,
) -> Result<Option<T>, SinkError> {
    let mut left = REREADS;
    loop {
        let Some(object) = get(env, key, patience.renewed()).await? else { return Ok(None) };
        match verify(&object.bytes) {
            Ok(value) => return Ok(Some(value)),
            Err(error) if left == 0 => return Err(error),
            Err(error) => tracing::warn!(key, %error, "reading an object again"),
        }
        left -= 1;
    }
}

/// All objects whose keys begin with `prefix`, until `until` says that it has seen enough.
///
/// # Errors
/// No answer, or a refusal.
pub(super) async fn list(
    env: &Env,
    prefix: &str,
    patience: &Patience,
    mut until: impl FnMut(ObjectMeta) -> bool,
) -> Result<(), SinkError> {
    let mut token: Option<String> = None;
    let mut question = patience.renewed();
    loop {
        let why = match env.store.list(prefix, token.as_deref(), PAGE).await {
            Outcome::Done(page) => {
                if page.objects.into_iter().any(&mut until) {
                    return Ok(());
                }
                match page.next {
                    None => return Ok(()),
                    next if next == token => because("a page that points at itself"),
                    next => {
                        token = next;
                        question = patience.renewed();
                        continue;
                    }
                }
            }
            Outcome::Refused(Refusal::Conflict) => because("409"),
            Outcome::Missing => return Err(denied("LIST", prefix, no_bucket())),
            Outcome::Refused(refusal) => return Err(denied("LIST", prefix, refusal)),
            Outcome::Unknown(why) => why,
        };
        question.pause(env, "LIST", prefix, &why).await?;
    }
}

/// What 404 means where no key is asked for.
pub(super) fn no_bucket() -> Refusal {
    let message = "there is no such bucket".to_owned();
    Refusal::Denied { status: 404, code: "NoSuchBucket".to_owned(), message }
}
