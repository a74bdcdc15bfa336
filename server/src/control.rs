//! The control paths under `/_assay/`. They match only where the host names no bucket; there they can't
//! hide an object, since a bucket's name never begins with an underscore.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use crate::stream::Body;

/// Answers a control path; `None` for every other.
pub(crate) fn answer(head: &Parts) -> Option<Response<Body>> {
    let path = head.uri.path().strip_prefix("/_assay/")?;
    let (status, body) = match (path, &head.method) {
        ("health", &Method::GET | &Method::HEAD) => {
            (StatusCode::OK, concat!(r#"{"status":"ok","version":""#, env!("CARGO_PKG_VERSION"), "\"}\n"))
        }
        ("health", _) => {
            (StatusCode::METHOD_NOT_ALLOWED, "{\"error\":\"/_assay/health takes GET and HEAD\"}\n")
        }
        _ => (StatusCode::NOT_FOUND, "{\"error\":\"no such control path; there is /_assay/health\"}\n"),
    };
    let body = if head.method == Method::HEAD { Body::empty() } else { Body::from(body) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(response)
}
