//! Where a bucket is, who may use it, and how patient a request is.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Credentials, ProvideCredentials as _, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, SharedCredentialsProvider, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

use super::wire::Pinned;

/// Where the bucket's name goes (S3 User Guide, "Virtual hosting of general purpose buckets").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Addressing {
    /// In the path: what most servers other than AWS want.
    #[default]
    Path,
    /// In the host.
    Virtual,
}

/// Where a bucket is and how patient a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Settings {
    /// `http://` or `https://`, host and port; without one AWS's own of the region.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// Where the bucket's name goes.
    pub addressing: Addressing,
    /// Milliseconds that one request may take, its body included.
    pub request_timeout_ms: u64,
    /// Milliseconds that a connection may take until it stands; at most those of the request.
    pub connect_timeout_ms: u64,
    /// The one address that the endpoint's name stands for: the probe asks each on its own.
    pub pinned: Option<IpAddr>,
}

/// A setting that cannot be right, whatever the provider says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a place of HTTP.
    #[error(
        "endpoint {0:?} is no http:// or https:// with a host and at most a port; leave the path and all else out"
    )]
    Endpoint(String),
    /// No bucket, or no region to sign for.
    #[error("{0} is empty; name one")]
    Empty(&'static str),
    /// A request that may take no time.
    #[error("{0} is 0 ms; a request needs more")]
    NoTime(&'static str),
}

impl S3Settings {
    /// A bucket at an endpoint, in the path, with 30 seconds for a request and 5 of them to connect.
    #[must_use]
    pub fn new(endpoint: Option<String>, region: impl Into<String>, bucket: impl Into<String>) -> Self {
        Self {
            endpoint,
            region: region.into(),
            bucket: bucket.into(),
            addressing: Addressing::default(),
            request_timeout_ms: 30_000,
            connect_timeout_ms: 5_000,
            pinned: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if let Some(endpoint) = &self.endpoint {
            let wrong = || SettingsError::Endpoint(endpoint.clone());
            let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
            let host = rest.ok_or_else(wrong)?.trim_end_matches('/');
            let odd = |c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c);
            if host.is_empty() || host.contains(odd) {
                return Err(wrong());
            }
        }
        match [("region", &self.region), ("bucket", &self.bucket)].iter().find(|(_, text)| text.is_empty()) {
            Some((name, _)) => return Err(SettingsError::Empty(name)),
            None if self.request_timeout_ms == 0 => return Err(SettingsError::NoTime("request_timeout_ms")),
            None if self.connect_timeout_ms == 0 => return Err(SettingsError::NoTime("connect_timeout_ms")),
            None => {}
        }
        Ok(())
    }

    /// Every address and port that the endpoint's name stands for, sorted, each once; none for AWS's own
    /// endpoints, whose addresses change from one answer to the next.
    ///
    /// # Errors
    /// Of the name's resolution.
    pub async fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        let Some(endpoint) = &self.endpoint else { return Ok(Vec::new()) };
        let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
        let authority = rest.trim_end_matches('/');
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let default = if scheme == "https" { 443 } else { 80 };
        let place = if has_port { authority.to_owned() } else { format!("{authority}:{default}") };
        let mut found: Vec<_> = tokio::net::lookup_host(place).await?.collect();
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    pub(super) fn client(&self, access: &Access) -> Client {
        let timeouts =
            TimeoutConfig::builder().connect_timeout(Duration::from_millis(self.connect_timeout_ms));
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http_client(self.pinned, self.endpoint.as_deref()))
            .region(Region::new(self.region.clone()))
            .force_path_style(self.addressing == Addressing::Path)
            .credentials_provider(access.0.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        config.set_endpoint_url(self.endpoint.clone());
        Client::from_conf(config.build())
    }
}

/// Plain HTTP reads no certificates; all else trusts those of the system.
fn http_client(pinned: Option<IpAddr>, endpoint: Option<&str>) -> SharedHttpClient {
    let builder = aws_smithy_http_client::Builder::new();
    let tls = Provider::Rustls(CryptoMode::Ring);
    match pinned {
        Some(address) => builder.tls_provider(tls).build_with_resolver(Pinned(address)),
        None if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) => builder.build_http(),
        None => builder.tls_provider(tls).build_https(),
    }
}

/// Who may use a bucket. Clones share what was once looked up; nothing shows a secret.
#[derive(Clone)]
pub struct Access(SharedCredentialsProvider);

impl Access {
    /// By an access key, its secret, and the session token of temporary ones.
    #[must_use]
    pub fn keys(access_key: &str, secret_key: &str, session_token: Option<String>) -> Self {
        let keys = Credentials::new(access_key, secret_key, session_token, None, "configuration");
        Self(SharedCredentialsProvider::new(keys))
    }

    /// By the AWS default chain: environment, profile files, web identity, container, instance metadata. They are
    /// looked up with the first request, and again before they expire.
    pub async fn default_chain(region: &str) -> Self {
        let region = Region::new(region.to_owned());
        let config = ProviderConfig::without_region()
            .with_region(Some(region.clone()))
            .with_http_client(http_client(None, None));
        let chain = DefaultCredentialsChain::builder().configure(config).region(region).build().await;
        Self(SharedCredentialsProvider::new(chain))
    }

    /// The access key's name, for a first log line.
    ///
    /// # Errors
    /// Where no credentials are found, with what was tried.
    pub async fn access_key(&self) -> Result<String, String> {
        let found = self.0.provide_credentials().await;
        found.map(|keys| keys.access_key_id().to_owned()).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_right_are_refused_by_name() {
        let base = S3Settings::new(Some("http://127.0.0.1:9000".into()), "us-east-1", "data");
        assert_eq!(base.check(), Ok(()));
        for endpoint in
            ["127.0.0.1:9000", "ftp://host", "http://", "https://host/bucket", "http://a b", "http://u@h"]
        {
            let wrong = S3Settings { endpoint: Some(endpoint.into()), ..base.clone() };
            assert_eq!(wrong.check(), Err(SettingsError::Endpoint(endpoint.into())));
        }
        assert_eq!(
            S3Settings { bucket: String::new(), ..base.clone() }.check(),
            Err(SettingsError::Empty("bucket"))
        );
        assert_eq!(
            S3Settings { request_timeout_ms: 0, ..base }.check(),
            Err(SettingsError::NoTime("request_timeout_ms"))
        );
    }

    #[test]
    fn nothing_shows_a_secret() {
        let access = Access::keys("AKEY", "s3cr3t-s3cr3t", Some("t0ken-t0ken".into()));
        let settings = S3Settings::new(Some("http://127.0.0.1:1".into()), "us-east-1", "data");
        let store = crate::store::s3::S3Store::new(&settings, &access).unwrap();
        let shown = format!("{access:?} {store:?} {settings:?}");
        assert!(!shown.contains("s3cr3t") && !shown.contains("t0ken"), "{shown}");
    }
}
