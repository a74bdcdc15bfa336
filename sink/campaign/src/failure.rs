//! Why a campaign, or one of its processes, ends without an answer.

use assay_oracle::bucket::ReadError;
use sinks::stage::StageError;

/// Wrong usage, or a build that can't.
pub const USAGE: u8 = 2;
/// Nothing was found, and not everything was shown.
pub const NOT_PROVEN: u8 = 3;
/// Our own fault.
pub const OWN_FAULT: u8 = 4;
/// A store or a broker that is not there.
pub const AWAY: u8 = 7;

/// What a script sees, and one line for the person at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub u8, pub String);

impl Failure {
    /// Of what was asked for.
    pub fn usage(why: impl ToString) -> Self {
        Self(USAGE, why.to_string())
    }

    /// Of ours: files, ports, processes that can't be started.
    pub fn own(why: impl ToString) -> Self {
        Self(OWN_FAULT, why.to_string())
    }

    /// Of something that is not there now.
    pub fn away(why: impl ToString) -> Self {
        Self(AWAY, why.to_string())
    }
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        Self(error.exit_code(), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::own(error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Unavailable { .. } => Self::away(error),
            ReadError::Refused { .. } => Self::usage(error),
            ReadError::Untrusted { .. } => Self::own(error),
        }
    }
}
