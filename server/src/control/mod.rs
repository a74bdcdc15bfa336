//! The control paths under `/_assay/`, and the one that LocalStack has for its faults. They match only where the
//! host names no bucket; there they can't hide an object, since a bucket's name never begins with an underscore.

mod access;
mod chaos;
mod faults;
mod outage;
mod reply;
mod requests;
mod snapshots;

use std::sync::atomic::Ordering;

use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

pub(crate) use self::access::Access;
pub(crate) use self::chaos::Chaos;
pub(crate) use self::snapshots::Snapshots;

use self::reply::{Fields, Parameters, Refused, Reply, read_text};
use crate::service::{Peer, RequestBody, Service};
use crate::stream::Body;

const ROOT: &str = "/_assay/";

/// LocalStack's own path for faults.
const CHAOS: &str = "/_localstack/chaos/faults";

/// Every control path below [`ROOT`], the methods that go with it, and what they do.
const PATHS: &[(&str, &[&str], &str)] = &[
    ("", &["GET"], "this list"),
    ("health", &["GET", "HEAD"], "whether the server answers; open to all"),
    ("seed", &["GET"], "what random faults and ids are drawn from"),
    ("faults", &["GET", "POST", "PUT", "DELETE"], "list, add, replace all, take all back"),
    ("faults/NAME", &["DELETE"], "take those of a name back"),
    ("outage", &["GET", "POST", "DELETE"], "the store away as a whole: which, begin, lift"),
    ("clock", &["GET", "PUT"], "how far the server's clock is off"),
    ("requests", &["GET", "DELETE"], "the journal: read, forget"),
    ("requests/stream", &["GET"], "the journal as it grows, a JSON object a line"),
    ("requests/wait", &["GET"], "the first request that fits, or 404 when the time is over"),
    ("reset", &["POST"], "everything as it was at the start"),
    ("snapshots", &["GET", "POST"], "what is stored: list, take"),
    ("snapshots/ID", &["POST", "DELETE"], "restore one, forget one"),
    ("state", &["GET", "PUT"], "what is stored as one file: read, load"),
];

/// Whether a path is a control path, where the host names no bucket.
pub(crate) fn is_control_path(path: &str) -> bool {
    path.starts_with(ROOT) || path == CHAOS
}

/// Whether a request is for a control path, where the host names no bucket.
pub(crate) fn is_control(head: &Parts) -> bool {
    is_control_path(head.uri.path())
}

/// Answers a control path.
pub(crate) async fn answer(
    service: &Service,
    head: &Parts,
    body: &mut RequestBody,
    peer: Option<Peer>,
) -> Response<Body> {
    let reply = match reply(service, head, body, peer).await {
        Ok(reply) => reply,
        Err(Refused { status, document, allow }) => {
            let mut response = rendered(Reply::Json(status, document), head);
            if let Some(allow) = allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
                response.headers_mut().insert(ALLOW, allow);
            }
            return response;
        }
    };
    rendered(reply, head)
}

fn rendered(reply: Reply, head: &Parts) -> Response<Body> {
    let (status, content_type, body) = match reply {
        Reply::Json(status, document) => (status, "application/json", Body::from(format!("{document}\n"))),
        Reply::Stream(content_type, body) => (StatusCode::OK, content_type, body),
    };
    let mut response = Response::new(if head.method == Method::HEAD { Body::empty() } else { body });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

async fn reply(
    service: &Service,
    head: &Parts,
    body: &mut RequestBody,
    peer: Option<Peer>,
) -> Result<Reply, Refused> {
    let (path, method) = (head.uri.path(), head.method.as_str());
    if path != "/_assay/health" {
        service.settings.control.check(head, peer)?;
    }
    if path == CHAOS {
        return chaos::reply(service, method, &read_text(body).await?);
    }
    let below = path.strip_prefix(ROOT).unwrap_or(path);
    let below = percent_encoding::percent_decode_str(below).decode_utf8_lossy();
    let (first, rest) = below.split_once('/').unwrap_or((&below, ""));
    let mut parameters = Parameters::of(head);
    if !matches!(first, "requests" | "reset" | "snapshots" | "state") {
        parameters.end()?;
    }
    if matches!(first, "snapshots" | "state") {
        service.has_store()?;
    }
    let reply = match first {
        "" | "health" | "seed" if rest.is_empty() => plain(service, first, method),
        "faults" => faults::reply(service, rest, method, body).await?,
        "outage" if rest.is_empty() => outage::reply(service, method, body).await?,
        "clock" if rest.is_empty() => clock(service, method, body).await?,
        "requests" => requests::reply(service, rest, method, &mut parameters).await?,
        "reset" if rest.is_empty() && method == "POST" => Some(reset(service, &mut parameters).await?),
        "snapshots" => snapshots::reply(service, rest, method, &mut parameters).await?,
        "state" if rest.is_empty() => snapshots::state(service, method, &mut parameters, body).await?,
        _ => None,
    };
    reply.ok_or_else(|| no_such(path, &below, method))
}

/// 405 with the methods that go with the path, or 404 with the paths that there are.
fn no_such(path: &str, below: &str, method: &str) -> Refused {
    let fits = |row: &str| match row.split_once('/') {
        Some((first, "NAME" | "ID")) => {
            below.split_once('/').is_some_and(|(start, rest)| start == first && !rest.is_empty())
        }
        _ => row == below,
    };
    match PATHS.iter().find(|(row, ..)| fits(row)) {
        Some((_, methods, _)) => Refused::method(method, path, methods),
        None => {
            let known: Vec<_> = PATHS.iter().map(|(row, ..)| format!("{ROOT}{row}")).collect();
            Refused::not_found(format!("no control path {path:?}; there are {}, {CHAOS}", known.join(", ")))
        }
    }
}

fn plain(service: &Service, first: &str, method: &str) -> Option<Reply> {
    let document = match (first, method) {
        ("", "GET") => {
            let row = |(path, methods, does): &(&str, &[&str], &str)| json!({ "path": format!("{ROOT}{path}"), "methods": methods, "does": does });
            json!({ "paths": PATHS.iter().map(row).collect::<Vec<_>>() })
        }
        ("health", "GET" | "HEAD") => json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }),
        ("seed", "GET") => json!({ "seed": service.seed }),
        _ => return None,
    };
    Some(Reply::ok(document))
}

async fn clock(service: &Service, method: &str, body: &mut RequestBody) -> Result<Option<Reply>, Refused> {
    match method {
        "GET" => {}
        "PUT" => {
            let mut fields = Fields::read(body, "clock").await?;
            let offset = fields.need("offset-ms", "milliseconds, below 0 for slow", Value::as_i64)?;
            fields.end()?;
            // A thousand years: dates stay dates.
            if offset.unsigned_abs() > 31_557_600_000_000 {
                return Err(Refused::field("offset-ms", offset, "up to a thousand years, 31557600000000"));
            }
            service.clock_offset_ms.store(offset, Ordering::Relaxed);
        }
        _ => return Ok(None),
    }
    let offset = service.clock_offset_ms.load(Ordering::Relaxed);
    Ok(Some(Reply::ok(json!({ "offset-ms": offset, "now": service.now().iso8601() }))))
}

async fn reset(service: &Service, parameters: &mut Parameters) -> Result<Reply, Refused> {
    let access_key = parameters.take("access-key");
    parameters.end()?;
    match access_key {
        None => service.reset().await?,
        Some(key) if service.tenants.is_some() => service.empty(&key).await?,
        Some(_) => return Err(Refused::no_tenants()),
    }
    Ok(Reply::ok(json!({ "reset": true })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_names_what_is() {
        let told = |below: &str, method: &str| {
            let refused = no_such(&format!("{ROOT}{below}"), below, method);
            (refused.status.as_u16(), refused.document["error"].as_str().unwrap_or_default().to_owned())
        };
        let (status, why) = told("fault", "GET");
        assert_eq!(status, 404);
        assert!(why.contains("\"/_assay/fault\"") && why.contains("/_assay/faults,"), "{why}");
        let (status, why) = told("faults/a", "PUT");
        assert_eq!(status, 405);
        assert!(why.contains("PUT") && why.contains("DELETE"), "{why}");
    }
}
