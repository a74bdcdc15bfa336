//! In front of a real provider: what a client asks for is checked here, signed anew and asked of the upstream.
//!
//! Bytes stream both ways in constant memory. Nothing is ever sent twice: a request that may have reached the
//! upstream is not repeated, and the client is told that its outcome is not known.

mod answer;
mod bend;
mod body;
mod connect;
mod forward;
mod request;

use std::path::PathBuf;

use http::Uri;

use crate::auth::Signer;
use crate::error::{Code, S3Error};

pub(crate) use self::answer::FromUpstream;
pub(crate) use self::body::Answered;

/// How the upstream is told which bucket a request is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// In the path: `https://endpoint/bucket/key`.
    #[default]
    Path,
    /// In the host: `https://bucket.endpoint/key`.
    Virtual,
}

/// The provider that a server stands in front of: where it is, and whose credentials it is asked with.
#[derive(Clone)]
#[must_use = "a server is told of it with `Builder::upstream`"]
pub struct Upstream {
    endpoint: String,
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
    region: String,
    addressing: Addressing,
    ca_file: Option<PathBuf>,
}

impl Upstream {
    /// A provider at `http://HOST[:PORT][/PREFIX]` or `https://…`, in region `us-east-1`, addressed by path.
    pub fn new(
        endpoint: impl Into<String>,
        access_key: impl Into<String>,
        secret_key: impl Into<String>,
    ) -> Self {
        Self {
            endpoint: endpoint.into(),
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            session_token: None,
            region: "us-east-1".to_owned(),
            addressing: Addressing::Path,
            ca_file: None,
        }
    }

    /// The region that requests are signed for.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// The token of temporary credentials.
    pub fn session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// How buckets are named.
    pub fn addressing(mut self, addressing: Addressing) -> Self {
        self.addressing = addressing;
        self
    }

    /// A file of certificates in PEM that may have signed the upstream's, beside those that browsers trust.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// Takes the settings apart; nothing is connected yet.
    ///
    /// # Errors
    /// Which setting is not valid, and what is.
    pub(crate) fn open(self) -> Result<Provider, String> {
        let endpoint = Endpoint::parse(&self.endpoint)?;
        for (name, value) in
            [("access key", &self.access_key), ("secret key", &self.secret_key), ("region", &self.region)]
        {
            if value.is_empty() {
                return Err(format!("the upstream's {name} must not be empty"));
            }
        }
        let token = self.session_token.as_deref().filter(|token| !token.is_empty());
        let signer = Signer::new(&self.access_key, &self.secret_key, token, &self.region)
            .ok_or("the upstream's session token holds characters that no header can carry")?;
        let pool = connect::Pool::new(&endpoint, self.ca_file.as_deref())?;
        Ok(Provider { endpoint, addressing: self.addressing, signer, pool })
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upstream({} {})", self.endpoint, self.access_key)
    }
}

/// Where the upstream is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    tls: bool,
    /// As the `Host` header has it: the port is there unless it is the scheme's own.
    authority: String,
    /// Without brackets.
    host: String,
    port: u16,
    /// What goes before every path; it has no slash at its end.
    prefix: String,
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, String> {
        // Whoever wrote a password into it does not want to read it in a log.
        let fault =
            |why: &str| format!("the upstream {why}; it must be http://HOST[:PORT] or https://HOST[:PORT]");
        if text.contains('@') {
            return Err(fault("must not hold credentials: they have flags and variables of their own"));
        }
        let named = |why: &str| fault(&format!("{text:?} {why}"));
        let uri: Uri = text.parse().map_err(|_| named("is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(named("has no scheme that is spoken here")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| named("names no host"))?;
        if uri.query().is_some() {
            return Err(named("has a query"));
        }
        let own = if tls { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(own);
        let authority = if port == own { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Self {
            tls,
            authority,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

/// The upstream of one server.
pub(crate) struct Provider {
    endpoint: Endpoint,
    addressing: Addressing,
    signer: Signer,
    pool: connect::Pool,
}

impl Provider {
    /// 502, where the upstream gave no answer.
    fn failed(&self, failure: &connect::Failure) -> S3Error {
        tracing::warn!(upstream = %self.endpoint, %failure, "the upstream gave no answer");
        S3Error::new(Code::BadGateway)
            .message(format!("the upstream {} {failure}", self.endpoint))
            .extra("Upstream", self.endpoint.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (text, shown, host, port) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", "127.0.0.1", 9000),
            ("https://s3.example.com:443/", "https://s3.example.com", "s3.example.com", 443),
            ("http://[::1]:80/base/s3/", "http://[::1]/base/s3", "::1", 80),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(
                (endpoint.to_string().as_str(), endpoint.host.as_str(), endpoint.port),
                (shown, host, port)
            );
        }
        for (text, named) in [
            ("127.0.0.1:9000", "127.0.0.1"),
            ("ftp://host", "ftp"),
            ("http://host?x", "query"),
            ("http://user:hidden@host", "credentials"),
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert!(error.contains(named) && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn what_can_t_be_used_is_refused_and_no_secret_is_shown() {
        let upstream = Upstream::new("http://host", "up", "hidden").session_token("hid\nden");
        assert!(!format!("{upstream:?}").contains("hidden"));
        assert!(upstream.open().err().unwrap().contains("session token"));
        assert!(Upstream::new("http://host", "", "s").open().err().unwrap().contains("access key"));
        assert!(Upstream::new("http://host", "a", "s").region("").open().err().unwrap().contains("region"));
    }
}
