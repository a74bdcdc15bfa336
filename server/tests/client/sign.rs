//! A signer of its own for requests and chunks (Signature Version 4): written from AWS's pages, so that it does not
//! share the server's mistakes.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// Whose key signs, for where and when.
#[derive(Clone, Debug)]
pub struct Signer {
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
    /// `20261129T120000Z`
    pub timestamp: String,
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl Signer {
    pub fn new(secret_key: &str, timestamp: &str) -> Self {
        Self {
            access_key: "test".into(),
            secret_key: secret_key.into(),
            region: "us-east-1".into(),
            timestamp: timestamp.into(),
        }
    }

    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", &self.timestamp[..8], self.region)
    }

    fn key(&self) -> Vec<u8> {
        let date = hmac(format!("AWS4{}", self.secret_key).as_bytes(), &self.timestamp[..8]);
        let region = hmac(&date, &self.region);
        hmac(&hmac(&region, "s3"), "aws4_request")
    }

    fn signature(&self, text: &str) -> String {
        hex::encode(hmac(&self.key(), text))
    }

    /// The headers that authenticate a request with these headers, `host` among them, and no query.
    pub fn headers(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        payload: &str,
    ) -> Vec<(String, String)> {
        let mut signed: Vec<(String, String)> =
            headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned())).collect();
        signed.push(("x-amz-content-sha256".into(), payload.into()));
        signed.push(("x-amz-date".into(), self.timestamp.clone()));
        signed.sort();
        let names = signed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!("{method}\n{path}\n\n{lines}\n{names}\n{payload}");
        let text = format!(
            "AWS4-HMAC-SHA256\n{}\n{}\n{}",
            self.timestamp,
            self.scope(),
            sha256(canonical.as_bytes())
        );
        let signature = self.signature(&text);
        let credential = format!("{}/{}", self.access_key, self.scope());
        signed.push((
            "authorization".into(),
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"),
        ));
        signed
    }

    /// A body in signed chunks of `size` bytes, the first after `seed`, the signature of the request; and the
    /// signature of the last chunk.
    pub fn chunks(&self, seed: &str, body: &[u8], size: usize) -> (Vec<u8>, String) {
        let mut previous = seed.to_owned();
        let mut out = Vec::new();
        for chunk in body.chunks(size).chain([&[][..]]) {
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{previous}\n{}\n{}",
                self.timestamp,
                self.scope(),
                sha256(b""),
                sha256(chunk)
            );
            previous = self.signature(&text);
            out.extend_from_slice(format!("{:x};chunk-signature={previous}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            if !chunk.is_empty() {
                out.extend_from_slice(b"\r\n");
            }
        }
        (out, previous)
    }

    /// The signature of trailer lines, each `name:value\n`, after the last chunk's.
    pub fn trailer(&self, previous: &str, lines: &str) -> String {
        let text = format!(
            "AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{previous}\n{}",
            self.timestamp,
            self.scope(),
            sha256(lines.as_bytes())
        );
        self.signature(&text)
    }
}

/// The signature in an `authorization` header made by [`Signer::headers`].
pub fn signature_of(headers: &[(String, String)]) -> String {
    let (_, value) = headers.iter().find(|(name, _)| name == "authorization").unwrap();
    value.rsplit_once("Signature=").unwrap().1.to_owned()
}

impl Signer {
    /// The query of a presigned request for `localhost`; `headers` are signed beside `host`.
    pub fn presigned(&self, method: &str, path: &str, expires_s: u32, headers: &[(&str, &str)]) -> String {
        let mut signed = vec![("host", "localhost")];
        signed.extend(headers);
        signed.sort_unstable();
        let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let credential = format!("{}/{}", self.access_key, self.scope()).replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={}&X-Amz-Expires={expires_s}\
             &X-Amz-SignedHeaders={}",
            self.timestamp,
            names.join("%3B")
        );
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{}\nUNSIGNED-PAYLOAD", names.join(";"));
        let hash = sha256(canonical.as_bytes());
        let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{hash}", self.timestamp, self.scope());
        format!("{query}&X-Amz-Signature={}", self.signature(&text))
    }
}
