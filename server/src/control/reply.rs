//! What control requests say and are told.

use http::StatusCode;
use http::request::Parts;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};

use crate::fault::RuleError;
use crate::route::Query;
use crate::service::RequestBody;
use crate::state::StateError;
use crate::store::StoreError;
use crate::stream::Body;

/// Largest text of a control request, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// An answer to a control request.
pub(super) enum Reply {
    Json(StatusCode, Value),
    /// A content type, and a body that comes as it comes.
    Stream(&'static str, Body),
}

impl Reply {
    pub(super) fn ok(document: Value) -> Self {
        Self::Json(StatusCode::OK, document)
    }
}

/// Why a control request is not done: the value, the rule, the way out.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) document: Value,
    /// The methods that go with the path.
    pub(super) allow: Option<String>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, document: json!({ "error": why.into() }), allow: None }
    }

    pub(super) fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn method(method: &str, path: &str, methods: &[&str]) -> Self {
        let methods = methods.join(", ");
        let why = format!("{method} does not go with {path:?}; there are {methods}");
        Self { allow: Some(methods), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, why) }
    }

    /// A field of a body or a parameter with a value that it does not accept.
    pub(super) fn field(field: &str, value: impl ToString, accepts: &str) -> Self {
        RuleError::new(field, &value.to_string(), accepts).into()
    }

    pub(super) fn no_tenants() -> Self {
        Self::bad(
            "all access keys share one store; start the server with --tenant-per-key to give each its own",
        )
    }
}

impl From<RuleError> for Refused {
    fn from(error: RuleError) -> Self {
        let document = json!({
            "error": error.to_string(), "field": error.field, "value": error.value, "accepts": error.accepts
        });
        Self { status: StatusCode::BAD_REQUEST, document, allow: None }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<StateError> for Refused {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Store(error) => error.into(),
            StateError::Rule(error) => error.into(),
            other => Self::new(StatusCode::CONFLICT, other.to_string()),
        }
    }
}

/// Reads a body that is text.
pub(super) async fn read_text(body: &mut RequestBody) -> Result<String, Refused> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refused::bad(format!("cannot read the body: {error}")))?;
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
        if text.len() > MAX_TEXT_BYTES {
            let why = format!("the body has more than {MAX_TEXT_BYTES} bytes; send less at once");
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
    }
    String::from_utf8(text).map_err(|_| Refused::bad("the body is not UTF-8"))
}

/// The fields of a body that is a JSON object; each is taken once by whoever knows it.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) async fn read(body: &mut RequestBody, what: &str) -> Result<Self, Refused> {
        let text = read_text(body).await?;
        match serde_json::from_str(&text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(other) => Err(Refused::field(what, other, "a JSON object")),
            Err(error) => Err(Refused::field(what, text, &format!("a JSON object: {error}"))),
        }
    }

    pub(super) fn of(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    pub(super) fn take<T>(
        &mut self,
        name: &str,
        accepts: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refused> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| Refused::field(name, value, accepts))
    }

    pub(super) fn need<T>(
        &mut self,
        name: &str,
        accepts: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Refused> {
        self.take(name, accepts, read)?.ok_or_else(|| Refused::field(name, "", accepts))
    }

    /// Nothing may be left that nobody took: what is misspelt must not be passed over.
    pub(super) fn end(self) -> Result<(), Refused> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(Refused::field(&name, value, "nothing; there is no such field here")),
        }
    }
}

/// The parameters of the query; each is taken once by whoever knows it.
pub(super) struct Parameters(Query);

impl Parameters {
    pub(super) fn of(head: &Parts) -> Self {
        Self(Query::parse(head.uri.query()))
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.take(name)
    }

    pub(super) fn read<T>(
        &mut self,
        name: &str,
        accepts: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.take(name) else { return Ok(None) };
        read(&text).map(Some).ok_or_else(|| Refused::field(name, text, accepts))
    }

    /// Nothing may be left that nobody took: a misspelt filter would let everything through.
    pub(super) fn end(&self) -> Result<(), Refused> {
        match self.0.first() {
            None => Ok(()),
            Some((name, value)) => {
                Err(Refused::field(name, value, "nothing; there is no such parameter here"))
            }
        }
    }
}
