//! The control paths under `/_assay/`. They match only where the host names no bucket; there they can't
//! hide an object, since a bucket's name never begins with an underscore.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::fault::{self, Rule};
use crate::service::{RequestBody, Service};
use crate::stream::Body;

const ROOT: &str = "/_assay/";

/// Largest body of a control request, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Whether a path is one of ours.
pub(crate) fn is_control(head: &Parts) -> bool {
    head.uri.path().starts_with(ROOT)
}

/// What a control request is told: a status, and a document.
type Told = (StatusCode, Value);

/// Answers a control path.
pub(crate) async fn answer(service: &Service, head: &Parts, body: &mut RequestBody) -> Response<Body> {
    let (status, document) = told(service, head, body).await.unwrap_or_else(|refused| refused);
    let text = format!("{document}\n");
    let body = if head.method == Method::HEAD { Body::empty() } else { Body::from(text) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn told(service: &Service, head: &Parts, body: &mut RequestBody) -> Result<Told, Told> {
    let path = head.uri.path().strip_prefix(ROOT).unwrap_or_default();
    let faults = || json!({ "faults": service.faults.list(), "unfired": service.faults.unfired() });
    match (path.split_once('/').unwrap_or((path, "")), head.method.as_str()) {
        (("health", ""), "GET" | "HEAD") => {
            Ok((StatusCode::OK, json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") })))
        }
        (("seed", ""), "GET") => Ok((StatusCode::OK, json!({ "seed": service.seed }))),
        (("faults", ""), "GET") => Ok((StatusCode::OK, faults())),
        (("faults", ""), "POST") => {
            set(service, read_rules(body).await?)?;
            Ok((StatusCode::OK, faults()))
        }
        (("faults", ""), "PUT") => {
            let rules = read_rules(body).await?;
            service.faults.clear();
            set(service, rules)?;
            Ok((StatusCode::OK, faults()))
        }
        (("faults", ""), "DELETE") => Ok((StatusCode::OK, json!({ "removed": service.faults.clear() }))),
        (("faults", name), "DELETE") => match service.faults.remove(name) {
            0 => Err(refused(StatusCode::NOT_FOUND, format!("no fault is called {name:?}"))),
            removed => Ok((StatusCode::OK, json!({ "removed": removed }))),
        },
        (("health" | "seed" | "faults", _), method) => Err(refused(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{method} does not go with {}", head.uri.path()),
        )),
        _ => Err(refused(
            StatusCode::NOT_FOUND,
            "no such control path; there are /_assay/health, /_assay/seed and /_assay/faults".to_owned(),
        )),
    }
}

fn refused(status: StatusCode, why: String) -> Told {
    (status, json!({ "error": why }))
}

fn set(service: &Service, rules: Vec<Rule>) -> Result<(), Told> {
    for rule in rules {
        service
            .set_fault(rule)
            .map_err(|error| refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    }
    Ok(())
}

async fn read_rules(body: &mut RequestBody) -> Result<Vec<Rule>, Told> {
    let text = read(body).await?;
    fault::rules(&text).map_err(|error| {
        let told = json!({
            "error": error.to_string(), "field": error.field, "value": error.value, "accepts": error.accepts
        });
        (StatusCode::BAD_REQUEST, told)
    })
}

async fn read(body: &mut RequestBody) -> Result<String, Told> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| refused(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}")))?;
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
        if text.len() > MAX_BODY_BYTES {
            let why = format!("the body has more than {MAX_BODY_BYTES} bytes");
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
    }
    String::from_utf8(text).map_err(|_| refused(StatusCode::BAD_REQUEST, "the body is not UTF-8".to_owned()))
}
