//! Which provider to certify, read from the environment.

use assay_checks::{Addressing, Credentials, Endpoint, Surroundings};
use sinks::matrix::provider;
use sinks::store::Addressing as Placing;

pub use sinks::matrix::provider::{DEFAULT_REGION, REQUIRED};

/// What only the suite needs, beside what every program reads of a provider.
const OPTIONAL: [&str; 2] = ["DELTAFORGE_IT_S3_ENDPOINT_2", "DELTAFORGE_IT_S3_VERSIONED_BUCKET"];

/// What to certify.
#[derive(Clone, Debug)]
pub enum Target {
    /// The server of this project, started for the run.
    Embedded,
    /// A provider elsewhere.
    Provider(Box<Provider>),
}

/// A provider and the bucket to use there. The bucket must exist.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its address.
    pub endpoint: Endpoint,
    /// Where the bucket stands in a URL.
    pub addressing: Addressing,
    /// The bucket.
    pub bucket: String,
    /// The region that signatures name.
    pub region: String,
    /// Who signs.
    pub credentials: Credentials,
    /// Another address of the same store.
    pub endpoint_2: Option<Endpoint>,
    /// A bucket that has versioning; without it one is made for the run.
    pub versioned_bucket: Option<String>,
}

impl Provider {
    /// What there is around its bucket.
    pub fn surroundings(&self) -> Surroundings {
        Surroundings { endpoint_2: self.endpoint_2.clone(), versioned_bucket: self.versioned_bucket.clone() }
    }
}

/// Reads the target. `variable` looks a name up; a variable that is empty counts as unset.
///
/// # Errors
/// One line: which variables are missing, or which value is not accepted and what would be.
pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Target, String> {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    let Some(named) = provider::from_environment(&variable)? else {
        return provider::stray(&OPTIONAL, value).map(|()| Target::Embedded);
    };
    let [endpoint_2, versioned_bucket] = OPTIONAL.map(value);
    let provider::Provider { endpoint, bucket, access_key, secret_key, region, session_token, addressing } =
        named;
    Ok(Target::Provider(Box::new(Provider {
        endpoint: address(&endpoint, REQUIRED[0])?,
        endpoint_2: endpoint_2.map(|url| address(&url, OPTIONAL[0])).transpose()?,
        versioned_bucket,
        addressing: match addressing {
            Placing::Path => Addressing::Path,
            Placing::Virtual => Addressing::Virtual,
        },
        bucket,
        region,
        credentials: Credentials { access_key, secret_key, session_token },
    })))
}

fn address(url: &str, variable: &str) -> Result<Endpoint, String> {
    Endpoint::parse(url).map_err(|why| format!("{variable}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `settings` are `NAME=value` after the common prefix, separated by spaces.
    #[track_caller]
    fn check(settings: &str, expected: &str) {
        let variable = |name: &str| {
            let short = name.strip_prefix("DELTAFORGE_IT_S3_")?;
            settings
                .split(' ')
                .find_map(|pair| pair.split_once('=').filter(|(k, _)| *k == short))
                .map(|(_, v)| v.to_owned())
        };
        let seen = match from_environment(variable) {
            Ok(Target::Embedded) => "embedded".to_owned(),
            Ok(Target::Provider(p)) => format!(
                "{} {} {} {:?} {} {}{}{}",
                p.endpoint.url(),
                p.bucket,
                p.region,
                p.addressing,
                p.credentials.access_key,
                p.credentials.session_token.is_some(),
                p.endpoint_2.map(|endpoint| format!(" also {}", endpoint.url())).unwrap_or_default(),
                p.versioned_bucket.map(|bucket| format!(" versions in {bucket}")).unwrap_or_default()
            ),
            Err(why) => why,
        };
        assert_eq!(seen, expected);
    }

    const FOUR: &str = "ENDPOINT=http://127.0.0.1:9000/ BUCKET=b ACCESS_KEY=id SECRET_KEY=hush";

    #[test]
    fn all_none_or_refused() {
        check("", "embedded");
        check("ENDPOINT= BUCKET= ACCESS_KEY= SECRET_KEY= REGION=", "embedded");
        check(FOUR, "http://127.0.0.1:9000 b us-east-1 Path id false");
        check(
            &format!("{FOUR} REGION=garage ADDRESSING=virtual SESSION_TOKEN=t"),
            "http://127.0.0.1:9000 b garage Virtual id true",
        );
        check(
            &format!("{FOUR} ENDPOINT_2=https://s3.example VERSIONED_BUCKET=v"),
            "http://127.0.0.1:9000 b us-east-1 Path id false also https://s3.example versions in v",
        );
        for stray in ["ENDPOINT_2", "VERSIONED_BUCKET"] {
            let refused = format!("DELTAFORGE_IT_S3_{stray} set without a provider: set all of ");
            let rest = REQUIRED.join(", ") + " as well, or unset it";
            check(&format!("{stray}=x"), &(refused + &rest));
        }
        check(
            "ENDPOINT=https://s3.example BUCKET= ACCESS_KEY=id",
            "DELTAFORGE_IT_S3_BUCKET, DELTAFORGE_IT_S3_SECRET_KEY not set: set all four to name a provider, \
             or none for the embedded server",
        );
        check(
            "REGION=eu-west-1",
            "DELTAFORGE_IT_S3_REGION set without a provider: set all of DELTAFORGE_IT_S3_ENDPOINT, \
             DELTAFORGE_IT_S3_BUCKET, DELTAFORGE_IT_S3_ACCESS_KEY, DELTAFORGE_IT_S3_SECRET_KEY as well, or unset it",
        );
    }

    #[test]
    fn bad_values_are_named() {
        check(
            &format!("{FOUR} ADDRESSING=dns"),
            "DELTAFORGE_IT_S3_ADDRESSING is \"dns\": give path or virtual",
        );
        check(
            &FOUR.replace("http://127.0.0.1:9000/", "s3.example"),
            "DELTAFORGE_IT_S3_ENDPOINT: endpoint \"s3.example\" must start with http:// or https://",
        );
        check(
            &format!("{FOUR} ENDPOINT_2=s3.example"),
            "DELTAFORGE_IT_S3_ENDPOINT_2: endpoint \"s3.example\" must start with http:// or https://",
        );
        check(
            &FOUR.replace("9000/", "9000/b"),
            "DELTAFORGE_IT_S3_ENDPOINT: endpoint \"http://127.0.0.1:9000/b\" must end after the host and port: \
             the bucket has its own setting",
        );
    }
}
