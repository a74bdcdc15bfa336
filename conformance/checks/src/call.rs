//! One request to come, before it is signed.

use crate::chunked::Chunked;
use crate::payload::Payload;
use crate::sign::Signing;
use bytes::Bytes;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// One request to come: a method on a key, or on the bucket itself.
#[derive(Debug)]
pub struct Call {
    pub(crate) method: Method,
    pub(crate) key: Option<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) unsigned: HeaderMap,
    pub(crate) content: Bytes,
    pub(crate) payload: Option<Payload>,
    pub(crate) signing: Signing,
    pub(crate) chunked: Option<Chunked>,
}

impl Call {
    /// A call without query, headers or body.
    pub fn new(method: Method, key: Option<&str>) -> Call {
        let key = key.map(str::to_owned);
        Call {
            method,
            key,
            query: Vec::new(),
            headers: HeaderMap::new(),
            unsigned: HeaderMap::new(),
            content: Bytes::new(),
            payload: None,
            signing: Signing::default(),
            chunked: None,
        }
    }
    /// GetObject.
    pub fn get(key: &str) -> Call {
        Call::new(Method::GET, Some(key))
    }
    /// HeadObject.
    pub fn head(key: &str) -> Call {
        Call::new(Method::HEAD, Some(key))
    }
    /// DeleteObject.
    pub fn delete(key: &str) -> Call {
        Call::new(Method::DELETE, Some(key))
    }
    /// PutObject.
    pub fn put(key: &str, body: impl Into<Bytes>) -> Call {
        Call::new(Method::PUT, Some(key)).body(body)
    }
    /// The body, sent at once.
    pub fn body(mut self, body: impl Into<Bytes>) -> Call {
        self.content = body.into();
        self
    }
    /// Sends the body through `payload` instead, which must carry the same bytes.
    pub fn through(mut self, payload: Payload) -> Call {
        self.payload = Some(payload);
        self
    }
    /// One query parameter; an empty value stands for `?name=`.
    pub fn query(mut self, name: &str, value: &str) -> Call {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }
    /// One header. A value that HTTP forbids is left out: checks only send printable ones.
    pub fn header(mut self, name: &'static str, value: &str) -> Call {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }
    /// Any headers, beside those that are there.
    pub fn headers(mut self, headers: HeaderMap) -> Call {
        self.headers.extend(headers);
        self
    }
    /// `If-Match`, as given.
    pub fn if_match(self, etag: &str) -> Call {
        self.header("if-match", etag)
    }
    /// `If-None-Match`, as given.
    pub fn if_none_match(self, etag: &str) -> Call {
        self.header("if-none-match", etag)
    }
    /// A header that the signature does not cover.
    pub fn unsigned_header(mut self, name: &'static str, value: &str) -> Call {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.unsigned.append(HeaderName::from_static(name), value);
        }
        self
    }
    /// Another way of signing than the right one in the `Authorization` header.
    pub fn signing(mut self, signing: Signing) -> Call {
        self.signing = signing;
        self
    }
    /// Sends the body in chunks, as SDKs do for streams.
    pub fn chunked(mut self, chunked: Chunked) -> Call {
        self.chunked = Some(chunked);
        self
    }
}
