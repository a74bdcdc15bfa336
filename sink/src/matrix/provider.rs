//! The provider that the environment names for the live matrix and for campaigns.

use std::fmt;

use crate::store::Addressing;

/// The four variables that name a provider: all, none, or refused (operations guide, "Rollout").
pub const REQUIRED: [&str; 4] = [
    "DELTAFORGE_IT_S3_ENDPOINT",
    "DELTAFORGE_IT_S3_BUCKET",
    "DELTAFORGE_IT_S3_ACCESS_KEY",
    "DELTAFORGE_IT_S3_SECRET_KEY",
];

/// Those that may stand beside the four.
pub const OPTIONAL: [&str; 3] =
    ["DELTAFORGE_IT_S3_REGION", "DELTAFORGE_IT_S3_SESSION_TOKEN", "DELTAFORGE_IT_S3_ADDRESSING"];

/// The region of signatures where none is named, as in AWS's own tools.
pub const DEFAULT_REGION: &str = "us-east-1";

/// A provider, and the bucket to use there, which exists.
#[derive(Clone, PartialEq, Eq)]
pub struct Provider {
    /// `http://` or `https://`, host and port.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The key id that requests are signed with.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// The region that requests are signed for; [`DEFAULT_REGION`] if none is named.
    pub region: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
    /// Where the bucket stands in a URL; in the path if it is not said.
    pub addressing: Addressing,
}

/// Does not show the secrets.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("addressing", &self.addressing)
            .finish_non_exhaustive()
    }
}

/// The provider that all of `DELTAFORGE_IT_S3_{ENDPOINT,BUCKET,ACCESS_KEY,SECRET_KEY}` name, with `_REGION`,
/// `_SESSION_TOKEN` and `_ADDRESSING` (`path`, `virtual`) where they are set; nothing if none of them is. `variable`
/// looks a name up; one that is empty counts as unset (operations guide, "Rollout").
///
/// # Errors
/// One line: which variables are missing, or which value is not accepted and what would be.
pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Provider>, String> {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    let [Some(endpoint), Some(bucket), Some(access_key), Some(secret_key)] = REQUIRED.map(value) else {
        let missing: Vec<_> = REQUIRED.into_iter().filter(|name| value(name).is_none()).collect();
        if missing.len() == REQUIRED.len() {
            return stray(&OPTIONAL, value).map(|()| None);
        }
        return Err(format!(
            "{} not set: set all four to name a provider, or none for the embedded server",
            missing.join(", ")
        ));
    };
    let [region, session_token, addressing] = OPTIONAL.map(value);
    let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
    let addressing = match addressing.as_deref() {
        None | Some("path") => Addressing::Path,
        Some("virtual") => Addressing::Virtual,
        Some(other) => return Err(format!("{} is {other:?}: give path or virtual", OPTIONAL[2])),
    };
    Ok(Some(Provider { endpoint, bucket, access_key, secret_key, region, session_token, addressing }))
}

/// That none of `optional` is set where no provider is named.
///
/// # Errors
/// One line: which are.
pub fn stray(optional: &[&str], value: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let set: Vec<_> = optional.iter().copied().filter(|name| value(name).is_some()).collect();
    if set.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} set without a provider: set all of {} as well, or unset it",
        set.join(", "),
        REQUIRED.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_provider_or_nothing() {
        let with = |set: &[(&str, &str)]| {
            let found = |name: &str| {
                set.iter()
                    .find(|(short, _)| name.ends_with(&format!("_S3_{short}")))
                    .map(|(_, value)| (*value).to_owned())
            };
            from_environment(found)
        };
        let four = [("ENDPOINT", "http://h:1"), ("BUCKET", "b"), ("ACCESS_KEY", "a"), ("SECRET_KEY", "s")];
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&four.map(|(name, _)| (name, ""))), Ok(None));
        assert!(matches!(with(&four), Ok(Some(Provider { region, session_token: None, .. }))
            if region == "us-east-1"));
        let more = [four.as_slice(), &[("SESSION_TOKEN", "t"), ("ADDRESSING", "virtual")]].concat();
        assert!(matches!(with(&more), Ok(Some(Provider { session_token: Some(_), addressing, .. }))
            if addressing == Addressing::Virtual));
        let odd = [four.as_slice(), &[("ADDRESSING", "dns")]].concat();
        assert!(with(&odd).is_err_and(|why| why.ends_with("give path or virtual")));
        for (left_out, name) in REQUIRED.iter().enumerate() {
            let partial: Vec<_> = (0..4).filter(|n| *n != left_out).map(|n| four[n]).collect();
            let why = with(&partial).unwrap_err();
            assert!(why.starts_with(&format!("{name} not set")), "{why}");
            assert!(!why.contains("http://h:1"), "{why}");
        }
        for stray in ["REGION", "SESSION_TOKEN", "ADDRESSING"] {
            assert!(with(&[(stray, "x")]).is_err(), "{stray}");
        }
    }
}
