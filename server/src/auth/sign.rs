//! The other side of a signature: signing a request as a client does, with the canonical forms that verify one.

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::Keys;
use super::canonical::{self, Query};
use super::keys::hmac_sha256;
use super::v4::{ALGORITHM, SERVICE, TERMINAL, basic};

/// Whose key signs, and where.
#[derive(Debug)]
pub(crate) struct Signer {
    keys: Keys,
    access_key: String,
    session_token: Option<HeaderValue>,
    region: String,
}

impl Signer {
    /// A signer for one region; nothing where the session token is none that a header can carry.
    pub(crate) fn new(
        access_key: &str,
        secret_key: &str,
        session_token: Option<&str>,
        region: &str,
    ) -> Option<Self> {
        let session_token = match session_token {
            Some(token) => {
                let mut token = HeaderValue::from_str(token).ok()?;
                token.set_sensitive(true);
                Some(token)
            }
            None => None,
        };
        Some(Self {
            keys: Keys::new([(access_key, secret_key)]),
            access_key: access_key.to_owned(),
            session_token,
            region: region.to_owned(),
        })
    }

    /// Signs a head in its headers: Version 4, service `s3`. `payload` is what `x-amz-content-sha256` says.
    ///
    /// Signed are `host`, which must be there, `content-type`, `content-md5` and every `x-amz-*` header, as AWS
    /// wants at least ("Signature Calculations for the Authorization Header", task 1).
    pub(crate) fn sign(&self, head: &mut Parts, payload: &HeaderValue, now: OffsetDateTime) {
        let timestamp = basic(now);
        head.headers.insert("x-amz-content-sha256", payload.clone());
        if let Ok(date) = HeaderValue::from_str(&timestamp) {
            head.headers.insert("x-amz-date", date);
        }
        if let Some(token) = &self.session_token {
            head.headers.insert("x-amz-security-token", token.clone());
        }
        let names = head.headers.keys().map(HeaderName::as_str);
        let mut signed: Vec<&str> = names.filter(|name| is_signed(name)).collect();
        signed.sort_unstable();
        let host = super::header(&head.headers, "host").unwrap_or_default().to_owned();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let payload = payload.to_str().unwrap_or_default();
        let canonical = canonical::request(head, &query, &signed, &host, payload, false);
        let scope = format!("{}/{}/{SERVICE}/{TERMINAL}", &timestamp[..8], self.region);
        let hash = hex::encode(Sha256::digest(canonical.as_bytes()));
        let string_to_sign = format!("{ALGORITHM}\n{timestamp}\n{scope}\n{hash}");
        let Some(key) = self.keys.signing_key(&self.access_key, &scope) else { return };
        let signature = hex::encode(hmac_sha256(&key, string_to_sign.as_bytes()));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={}, Signature={signature}",
            self.access_key,
            signed.join(";")
        );
        if let Ok(mut value) = HeaderValue::from_str(&authorization) {
            value.set_sensitive(true);
            head.headers.insert("authorization", value);
        }
    }
}

fn is_signed(name: &str) -> bool {
    matches!(name, "host" | "content-type" | "content-md5") || name.starts_with("x-amz-")
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::{AuthMode, Context, verify};
    use super::*;

    const NOW: OffsetDateTime = datetime!(2013-05-24 00:00:00 UTC);

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// "Example: GET Bucket Lifecycle" of AWS's page on the header's signature.
    #[test]
    fn the_signature_is_the_published_one() {
        let signer = Signer::new(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            None,
            "us-east-1",
        );
        let mut head = head("GET", "/?lifecycle", &[("host", "examplebucket.s3.amazonaws.com")]);
        let empty =
            HeaderValue::from_static("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        signer.unwrap().sign(&mut head, &empty, NOW);
        let authorization = head.headers["authorization"].to_str().unwrap();
        let published = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        assert!(authorization.ends_with(published), "{authorization}");
    }

    #[test]
    fn what_is_signed_verifies() {
        let signer = Signer::new("up", "secret", Some("token"), "eu-west-1").unwrap();
        let keys = Keys::new([("up", "secret")]);
        let context = |now| Context {
            keys: &keys,
            mode: AuthMode::Strict,
            region: Some("eu-west-1"),
            other_regions: &[],
            host_bucket: None,
            now,
        };
        for (method, uri) in [
            ("GET", "/data/a%20b%2Fc+d/../%E2%82%AC?prefix=a+b&x-id=1&empty"),
            ("PUT", "/data//k?partNumber=1&uploadId=a%2Fb"),
            ("GET", "/"),
        ] {
            let headers = [
                ("host", "127.0.0.1:9000"),
                ("x-amz-meta-a", " one   two "),
                ("x-amz-meta-a", "three"),
                ("content-type", "text/plain"),
                ("if-none-match", "*"),
            ];
            let mut head = head(method, uri, &headers);
            signer.sign(&mut head, &HeaderValue::from_static("UNSIGNED-PAYLOAD"), NOW);
            let verified = verify(&head, &context(NOW)).unwrap();
            assert_eq!(verified.access_key.as_deref(), Some("up"), "{uri}");
            head.headers.insert("x-amz-meta-a", HeaderValue::from_static("other"));
            assert!(verify(&head, &context(NOW)).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_signer_shows_no_secret() {
        let signer = Signer::new("up", "hidden-key", Some("hidden-token"), "r").unwrap();
        assert!(!format!("{signer:?}").contains("hidden"), "{signer:?}");
        assert!(Signer::new("up", "s", Some("a\nb"), "r").is_none());
    }
}
