//! Access keys, their secrets, and the signing keys derived from them.

use std::collections::HashMap;
use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::RwLock;
use sha2::Sha256;

/// A derived Version 4 key, good for one day, region and service.
pub(super) type SigningKey = [u8; 32];

/// The scopes whose keys are remembered; a test run has one region and two days at midnight, presigned URLs reach
/// seven days back.
const REMEMBERED: usize = 16;

/// The access keys that exist, each with its secret. Its `Debug` form shows no secret.
#[derive(Default)]
pub struct Keys {
    secrets: HashMap<String, String>,
    /// The secret of every access key that is not among them.
    shared: Option<String>,
    /// (access key, scope) to key: deriving one takes four HMACs, verifying a request one.
    derived: RwLock<Vec<(String, String, SigningKey)>>,
}

impl Keys {
    /// Keys from pairs of access key and secret key.
    pub fn new<A: Into<String>, S: Into<String>>(pairs: impl IntoIterator<Item = (A, S)>) -> Keys {
        let secrets = pairs.into_iter().map(|(access, secret)| (access.into(), secret.into())).collect();
        Keys { secrets, shared: None, derived: RwLock::default() }
    }

    /// The same keys, and every other one with this secret.
    pub fn and_any(self, secret: impl Into<String>) -> Keys {
        Keys { shared: Some(secret.into()), ..self }
    }

    /// Whether the access key exists.
    pub fn contains(&self, access_key: &str) -> bool {
        self.secret(access_key).is_some()
    }

    pub(super) fn secret(&self, access_key: &str) -> Option<&str> {
        self.secrets.get(access_key).or(self.shared.as_ref()).map(String::as_str)
    }

    /// The key for `scope`, which is `DATE/REGION/SERVICE/aws4_request`; nothing if the access key is unknown.
    ///
    /// Source: "Signature Calculations for the Authorization Header", task 3.
    pub(super) fn signing_key(&self, access_key: &str, scope: &str) -> Option<SigningKey> {
        let known = |keys: &Vec<(String, String, SigningKey)>| {
            keys.iter().find(|(a, s, _)| s == scope && a == access_key).map(|(_, _, key)| *key)
        };
        if let Some(key) = known(&self.derived.read()) {
            return Some(key);
        }
        let secret = self.secret(access_key)?;
        let start = format!("AWS4{secret}").into_bytes();
        let key = scope.split('/').fold(start, |key, piece| hmac_sha256(&key, piece.as_bytes()).to_vec());
        let key = SigningKey::try_from(key).ok()?;
        let mut derived = self.derived.write();
        if derived.len() >= REMEMBERED {
            derived.remove(0);
        }
        derived.push((access_key.to_owned(), scope.to_owned(), key));
        Some(key)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.secrets.keys()).finish()
    }
}

pub(super) fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_key_is_the_published_one_and_forgetting_does_not_change_it() {
        let keys = Keys::new([("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")]);
        let derive = |day: usize| {
            keys.signing_key("AKIAIOSFODNN7EXAMPLE", &format!("201305{day:02}/us-east-1/s3/aws4_request"))
        };
        let first = derive(24).expect("the key exists");
        assert_eq!(hex::encode(first), "dbb893acc010964918f1fd433add87c70e8b0db6be30c1fbeafefa5ec6ba8378");
        for day in 1..24 {
            derive(day);
        }
        assert_eq!(keys.derived.read().len(), REMEMBERED);
        assert_eq!(derive(24), Some(first));
        assert_eq!(keys.signing_key("nobody", "20130524/us-east-1/s3/aws4_request"), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", Keys::new([("access", "hidden")])), r#"{"access"}"#);
    }
}
