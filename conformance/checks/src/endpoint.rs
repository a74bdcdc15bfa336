//! A provider's address.

/// Where the bucket stands in a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// `https://host/bucket/key`
    #[default]
    Path,
    /// `https://bucket.host/key`
    Virtual,
}

/// A provider's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) tls: bool,
    /// As it stands in a `Host` header, with the port when it is not the scheme's own.
    pub(crate) authority: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// Reads `http://host[:port]` or `https://host[:port]`.
    ///
    /// # Errors
    /// Says what of the URL it does not accept: another scheme, a path, a query, no host.
    pub fn parse(url: &str) -> Result<Endpoint, String> {
        let uri: http::Uri = url.parse().map_err(|why| format!("endpoint {url:?} is not a URL: {why}"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("endpoint {url:?} must start with http:// or https://")),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(format!(
                "endpoint {url:?} must end after the host and port: the bucket has its own setting"
            ));
        }
        let host = uri.host().unwrap_or_default();
        let (own, port) = (if tls { 443 } else { 80 }, uri.port_u16());
        let port = port.unwrap_or(own);
        let authority = if port == own { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Endpoint { tls, authority, host: host.trim_matches(['[', ']']).to_owned(), port })
    }

    /// The URL again, normalized.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}
