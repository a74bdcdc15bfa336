//! What a check is, and how one can end.

use crate::client::{Answer, Lost};
use crate::exchange::Exchange;
use crate::trial::Trial;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// One check: a claim about a provider, and the requests that decide it.
pub struct Check {
    /// Dotted words, area first. Published once, never renamed.
    pub id: &'static str,
    /// What a pass shows, in one sentence.
    pub proves: &'static str,
    /// What a failure costs.
    pub severity: Severity,
    /// The condition whose class this check tells, if it is about one.
    pub condition: Option<Condition>,
    /// What the provider must offer for the check to make sense.
    pub needs: &'static [Need],
    /// Where the right answer is from: an AWS page, an RFC section, or a recording with its date.
    pub source: &'static str,
    /// Names of the server deviations that must make this check fail.
    pub broken_by: &'static [&'static str],
    /// The requests.
    pub run: Run,
}

/// A check's function.
pub type Run = for<'t> fn(&'t Trial) -> Pin<Box<dyn Future<Output = Done> + Send + 't>>;

/// How a check's function ends: with a pass, or stopped where it could not go on.
pub type Done = Result<(), Stop>;

/// What a failed check costs the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// `durable_v2` loses data or stops without it.
    Required,
    /// AWS answers so, on record or in its documentation.
    Expected,
    /// AWS's answer is not settled, or another answer is a declared extension. Never fails a provider.
    Informative,
}

/// What a provider may or may not offer beside plain objects and listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// CopyObject.
    Copy,
    /// Multipart uploads.
    Multipart,
    /// DeleteObjects.
    BatchDelete,
    /// A bucket with versioning. The check's client asks that bucket.
    VersionedBucket,
    /// The right to make a bucket. The check's client asks a bucket that does not exist yet.
    OwnBucket,
}

impl Need {
    /// Every need, in the order of their names in messages.
    pub const ALL: [Need; 5] =
        [Need::Copy, Need::Multipart, Need::BatchDelete, Need::VersionedBucket, Need::OwnBucket];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Need::Copy => "copy",
            Need::Multipart => "multipart",
            Need::BatchDelete => "batch-delete",
            Need::VersionedBucket => "versioned-bucket",
            Need::OwnBucket => "own-bucket",
        }
    }
}

/// A condition on an operation, as far as providers differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// PutObject with `If-None-Match: *`.
    PutCreate,
    /// PutObject with `If-Match`.
    PutSwap,
    /// CompleteMultipartUpload with `If-None-Match: *`.
    CompleteCreate,
    /// CompleteMultipartUpload with `If-Match`.
    CompleteSwap,
    /// CopyObject with `If-None-Match: *` on its destination.
    CopyCreate,
    /// CopyObject with `If-Match` on its destination.
    CopySwap,
    /// CopyObject with a condition on its source.
    CopySource,
    /// DeleteObject with `If-Match`.
    DeleteMatch,
    /// DeleteObjects with an ETag per object.
    DeleteObjects,
    /// GetObject and HeadObject with any condition.
    Read,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::PutCreate => "PUT If-None-Match",
            Condition::PutSwap => "PUT If-Match",
            Condition::CompleteCreate => "Complete If-None-Match",
            Condition::CompleteSwap => "Complete If-Match",
            Condition::CopyCreate => "Copy If-None-Match",
            Condition::CopySwap => "Copy If-Match",
            Condition::CopySource => "Copy source conditions",
            Condition::DeleteMatch => "DELETE If-Match",
            Condition::DeleteObjects => "DeleteObjects ETag",
            Condition::Read => "GET and HEAD conditions",
        })
    }
}

/// How a provider was seen to treat a condition; a later class is worse and wins over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The condition decides.
    Enforces,
    /// It says that it does not offer the condition: honest.
    Refuses,
    /// It enforces alone and lets several through at once: dangerous.
    Races,
    /// It answers success and drops the condition: dangerous.
    Ignores,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Enforces => "enforces",
            Class::Refuses => "refuses",
            Class::Races => "races",
            Class::Ignores => "ignores",
        })
    }
}

/// Why a check did not pass.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The provider answered otherwise than it should.
    Fail(Failure),
    /// The provider does not claim what the check needs.
    Skip(String),
    /// The network or a 5xx: it says nothing about the provider's meaning.
    Inconclusive(Doubt),
}

/// What was expected, what came, and the exchange that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The right answer.
    pub expected: String,
    /// What was seen.
    pub got: String,
    /// The deciding request and answer; none where a whole race decides.
    pub exchange: Option<Arc<Exchange>>,
}

/// Why nothing could be said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// What happened.
    pub reason: String,
    /// The request concerned, if there was one.
    pub exchange: Option<Arc<Exchange>>,
}

impl Stop {
    /// A failure that `answer` shows.
    pub fn fail(expected: impl Into<String>, got: impl Into<String>, answer: &Answer) -> Stop {
        let exchange = Some(answer.exchange.clone());
        Stop::Fail(Failure { expected: expected.into(), got: got.into(), exchange })
    }

    /// A request of the check's own preparation did not work, so nothing was learnt.
    pub fn unprepared(what: &str, answer: &Answer) -> Stop {
        let reason = format!("preparation: {what} answered {}", describe(answer));
        match answer.status.as_u16() {
            405 | 501 => Stop::Skip(reason),
            _ => Stop::Inconclusive(Doubt { reason, exchange: Some(answer.exchange.clone()) }),
        }
    }

    /// Nothing could be said, because of `answer`.
    pub fn doubt(reason: impl Into<String>, answer: &Answer) -> Stop {
        Stop::Inconclusive(Doubt { reason: reason.into(), exchange: Some(answer.exchange.clone()) })
    }
}

impl From<Lost> for Stop {
    fn from(lost: Lost) -> Stop {
        Stop::Inconclusive(Doubt { reason: lost.reason, exchange: lost.exchange })
    }
}

/// An answer in a few words: its status and S3 error code.
pub(crate) fn describe(answer: &Answer) -> String {
    match answer.element("Code") {
        Some(code) => format!("{} {code}", answer.status.as_u16()),
        None => answer.status.as_u16().to_string(),
    }
}

/// True for an answer that says nothing about meaning: any 5xx but 501, which is a refusal.
pub(crate) fn says_nothing(status: u16) -> bool {
    status >= 500 && status != 501
}
