//! What is stored, over HTTP: kept by number in this server, or taken away as one file.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;

use super::reply::{Parameters, Refused, Reply};
use crate::service::{RequestBody, Service};
use crate::store::{Image, LoadError, Source, Store};
use crate::stream::Body;

/// Snapshots that are kept at one time: each holds the bodies that were removed since.
const MAX_SNAPSHOTS: usize = 16;

/// Pieces of a file that wait between store and socket.
const PIECES_AHEAD: usize = 2;

/// The snapshots that were taken over HTTP.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last: u64,
    images: BTreeMap<u64, Arc<(Arc<Store>, Image)>>,
}

/// Whose store a request is about.
async fn store_of(service: &Service, parameters: &mut Parameters) -> Result<Arc<Store>, Refused> {
    let access_key = parameters.take("access-key");
    parameters.end()?;
    match access_key {
        None => Ok(service.store.clone()),
        Some(key) if service.tenants.is_some() => Ok(service.store_of(Some(&key)).await?),
        Some(_) => Err(Refused::no_tenants()),
    }
}

pub(super) async fn reply(
    service: &Service,
    rest: &str,
    method: &str,
    parameters: &mut Parameters,
) -> Result<Option<Reply>, Refused> {
    let kept = &service.snapshots.0;
    let document = match (rest, method) {
        ("", "GET") => {
            parameters.end()?;
            json!({ "snapshots": kept.lock().images.keys().collect::<Vec<_>>() })
        }
        ("", "POST") => {
            let store = store_of(service, parameters).await?;
            let image = store.image()?;
            let mut kept = kept.lock();
            if kept.images.len() >= MAX_SNAPSHOTS {
                let why =
                    format!("{MAX_SNAPSHOTS} snapshots are kept; DELETE /_assay/snapshots/ID forgets one");
                return Err(Refused::new(StatusCode::CONFLICT, why));
            }
            kept.last += 1;
            let id = kept.last;
            kept.images.insert(id, Arc::new((store, image)));
            json!({ "id": id })
        }
        (id, "POST") => {
            parameters.end()?;
            let found = id.parse().ok().and_then(|id: u64| kept.lock().images.get(&id).cloned());
            let found = found.ok_or_else(|| no_snapshot(id))?;
            found.0.restore(Some(&found.1)).await?;
            json!({ "restored": id })
        }
        (id, "DELETE") if !id.is_empty() => {
            parameters.end()?;
            let removed = id.parse().ok().and_then(|id: u64| kept.lock().images.remove(&id));
            drop(removed.ok_or_else(|| no_snapshot(id))?);
            json!({ "removed": id })
        }
        _ => return Ok(None),
    };
    Ok(Some(Reply::ok(document)))
}

fn no_snapshot(id: &str) -> Refused {
    Refused::not_found(format!("no snapshot {id:?}; GET /_assay/snapshots lists those that are kept"))
}

/// Everything stored as one file, out or in.
pub(super) async fn state(
    service: &Service,
    method: &str,
    parameters: &mut Parameters,
    body: &mut RequestBody,
) -> Result<Option<Reply>, Refused> {
    match method {
        "GET" => {
            let store = store_of(service, parameters).await?;
            let image = store.image()?;
            let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
            tokio::spawn(async move { store.save(&image, &sender).await });
            Ok(Some(Reply::Stream("application/octet-stream", Body::live(pieces))))
        }
        "PUT" => {
            let store = store_of(service, parameters).await?;
            store.load(Source::Body(body)).await?;
            Ok(Some(Reply::ok(json!({ "loaded": true }))))
        }
        _ => Ok(None),
    }
}

impl From<LoadError> for Refused {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Store(error) => error.into(),
            other => Self::bad(other.to_string()),
        }
    }
}
