//! What the upstream answers, on its way to the client.

use http::Response;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::bend::bend;
use super::body::Answered;
use super::request::strip_hop_by_hop;
use crate::error::{Code, S3Error};
use crate::fault::Effect;
use crate::route::Operation;
use crate::stream::Body;

/// Largest document that is taken whole, in bytes: a list of 1,000 keys of full length with room to spare.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// Marks an answer as the upstream's: its ids, dates and names stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromUpstream;

/// The answer as the client gets it: status, headers and body are the upstream's.
pub(super) fn onward(
    response: Response<Incoming>,
    body: impl FnOnce(Incoming) -> Answered,
) -> Response<Body> {
    let (head, incoming) = response.into_parts();
    let mut response = Response::new(Body::from_upstream(body(incoming)));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    strip_hop_by_hop(response.headers_mut());
    response.extensions_mut().insert(FromUpstream);
    response
}

/// Takes an answer's document whole, and bends a list as the effects want it. What a fault hides or changes is then really there: a completion may say 200 long
/// before it is done.
///
/// # Errors
/// 502 where the upstream breaks off within it, or where it is beyond 16 MiB.
pub(super) async fn settle(
    response: Response<Body>,
    operation: Operation,
    effects: impl Iterator<Item = Effect>,
) -> Result<Response<Body>, S3Error> {
    let (head, body) = response.into_parts();
    let bytes = Limited::new(body, MAX_DOCUMENT_BYTES).collect().await.map_err(|cause| {
        S3Error::new(Code::BadGateway).message(format!("the upstream's answer cannot be read: {cause}"))
    })?;
    let mut bytes = bytes.to_bytes();
    let lists = operation.name().starts_with("List") && head.status.is_success();
    if let (true, Ok(text)) = (lists, std::str::from_utf8(&bytes)) {
        bytes = effects.fold(text.to_owned(), bend).into();
    }
    Ok(Response::from_parts(head, Body::from(bytes)))
}
