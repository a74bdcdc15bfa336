//! What a fault does to a request.

use std::fmt;
use std::time::Duration;

use super::fields::{self, Fields, RuleError};
use crate::error::Code;

/// Longest time that an effect may take: an hour. A fault is temporary.
pub(super) const MAX_TIME: Duration = Duration::from_secs(3600);

/// The same in milliseconds, as rules have it.
const MAX_MS: f64 = 1000.0 * MAX_TIME.as_secs_f64();

/// How long: fixed, or drawn anew each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Time {
    /// Milliseconds.
    Fixed(f64),
    /// Evenly between two numbers of milliseconds.
    Uniform(f64, f64),
    /// Log-normal: the median in milliseconds and sigma, the deviation of its logarithm.
    LogNormal(f64, f64),
}

const TIME: &str = "milliseconds: 200, a range 100..300, or lognormal:MEDIAN:SIGMA";

/// What `until` accepts.
const LIFTED: &str = "lifted";

impl Time {
    fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|ms: &f64| (0.0..=MAX_MS).contains(ms));
        if let Some(rest) = text.strip_prefix("lognormal:") {
            let (median, sigma) = rest.split_once(':')?;
            let sigma = sigma.parse().ok().filter(|sigma: &f64| (0.0..=5.0).contains(sigma))?;
            return Some(Self::LogNormal(number(median)?, sigma));
        }
        match text.split_once("..") {
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high)?);
                (low <= high).then_some(Self::Uniform(low, high))
            }
            None => number(text).map(Self::Fixed),
        }
    }

    /// Draws a duration, never longer than an hour.
    pub(crate) fn draw(self, random: &mut fastrand::Rng) -> Duration {
        let ms = match self {
            Self::Fixed(ms) => ms,
            Self::Uniform(low, high) => low + (high - low) * random.f64(),
            Self::LogNormal(median, sigma) => {
                // Box and Muller; the first number is never 0, whose logarithm there is not.
                let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
                median * (sigma * normal).exp()
            }
        };
        Duration::from_secs_f64(ms.min(MAX_MS) / 1000.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(ms) => write!(f, "{ms}"),
            Self::Uniform(low, high) => write!(f, "{low}..{high}"),
            Self::LogNormal(median, sigma) => write!(f, "lognormal:{median}:{sigma}"),
        }
    }
}

/// How long a request is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// This long.
    For(Time),
    /// Until its rule is taken back or over, and never longer than an hour: a test says when, and no clock.
    Lifted,
}

/// How an answer gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The connection is reset.
    Reset,
    /// The connection stays open and nothing comes.
    Never,
}

/// What a fault does. Those before the commit leave nothing stored; those after it have stored everything,
/// or say that they have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Before: waits, then goes on.
    Delay(Wait),
    /// Before: refuses with a code of the error table, and `Retry-After` in seconds.
    Refuse(Code, Option<u32>),
    /// Before: resets the connection.
    Drop,
    /// Before: never answers.
    Freeze,
    /// Before: reads the body at this many bytes a second.
    SlowBody(u64),
    /// Before: stops reading the body at this byte, and never answers.
    StopReading(u64),
    /// After: the answer is lost.
    LoseAnswer(Loss),
    /// After: answers with this code instead.
    FailAfter(Code),
    /// After: commits this much later, whether the client still waits or not.
    Late(Wait),
    /// After: does it a second time, as a duplicated request would.
    Twice,
    /// After: says that it is done, and nothing is stored.
    Forget,
    /// After: answers 200 with an error document of this code (Complete, Copy).
    ErrorDocument(Code),
    /// After: answers with an ETag that is not the object's.
    WrongEtag,
    /// Read: the first byte of the answer's body comes this much later.
    FirstByte(Time),
    /// Read: the body comes at this many bytes a second.
    Bandwidth(u64),
    /// Read: the connection is reset after this many bytes of the body.
    Cut(u64),
    /// Read: the body has its length and one byte in it is wrong.
    Corrupt,
    /// Read of an object or list: answers from the state as it was when the rule was set.
    Stale,
    /// List: leaves out the entry that was written last.
    OmitNewest,
    /// List: has its last entry twice.
    RepeatKey,
    /// List: ends after half of its entries, says so, and gives no token.
    Truncate,
}

/// The names of all effects, as rules have them.
const NAMES: &str = "delay, refuse, drop, freeze, slow-body, stop-reading, lose-answer, fail-after, late, twice, \
                     forget, error-document, wrong-etag, first-byte, bandwidth, cut, corrupt, stale, omit-newest, \
                     repeat-key, truncate";

const CODE: &str =
    "a code of S3's error table, such as SlowDown, InternalError or ConditionalRequestConflict";

fn code(fields: &mut Fields) -> Result<Code, RuleError> {
    fields.need("code", CODE, Code::from_name)
}

fn rate(fields: &mut Fields) -> Result<u64, RuleError> {
    fields.need("bytes-per-s", "a number of bytes above 0", |text| text.parse().ok().filter(|rate| *rate > 0))
}

fn at(fields: &mut Fields) -> Result<u64, RuleError> {
    fields.need("at", "a number of bytes", |text| text.parse().ok())
}

fn ms(fields: &mut Fields) -> Result<Time, RuleError> {
    fields.need("ms", TIME, Time::read)
}

fn wait(fields: &mut Fields) -> Result<Wait, RuleError> {
    let until = fields.read("until", LIFTED, |text| (text == LIFTED).then_some(Wait::Lifted))?;
    match (fields.read("ms", TIME, Time::read)?, until) {
        (Some(time), None) => Ok(Wait::For(time)),
        (None, Some(lifted)) => Ok(lifted),
        (Some(_), Some(_)) => Err(RuleError::new("until", LIFTED, "this or ms, and not both")),
        (None, None) => Err(RuleError::new("ms", "", format!("{TIME}; or until={LIFTED} in its place"))),
    }
}

impl Effect {
    /// Takes `effect` and what goes with it.
    pub(super) fn take(fields: &mut Fields) -> Result<Self, RuleError> {
        let name = fields.need("effect", NAMES, |text| Some(text.to_owned()))?;
        Ok(match name.as_str() {
            "delay" => Self::Delay(wait(fields)?),
            "refuse" => {
                let code = code(fields)?;
                Self::Refuse(
                    code,
                    fields.read("retry-after", "a number of seconds", |text| text.parse().ok())?,
                )
            }
            "drop" => Self::Drop,
            "freeze" => Self::Freeze,
            "slow-body" => Self::SlowBody(rate(fields)?),
            "stop-reading" => Self::StopReading(at(fields)?),
            "lose-answer" => {
                let how = fields.read("how", "reset or never", |text| match text {
                    "reset" => Some(Loss::Reset),
                    "never" => Some(Loss::Never),
                    _ => None,
                })?;
                Self::LoseAnswer(how.unwrap_or(Loss::Reset))
            }
            "fail-after" => Self::FailAfter(code(fields)?),
            "late" => Self::Late(wait(fields)?),
            "twice" => Self::Twice,
            "forget" => Self::Forget,
            "error-document" => Self::ErrorDocument(code(fields)?),
            "wrong-etag" => Self::WrongEtag,
            "first-byte" => Self::FirstByte(ms(fields)?),
            "bandwidth" => Self::Bandwidth(rate(fields)?),
            "cut" => Self::Cut(at(fields)?),
            "corrupt" => Self::Corrupt,
            "stale" => Self::Stale,
            "omit-newest" => Self::OmitNewest,
            "repeat-key" => Self::RepeatKey,
            "truncate" => Self::Truncate,
            other => return Err(RuleError::new("effect", other, NAMES)),
        })
    }

    /// The effect's name, as rules and the journal have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay(_) => "delay",
            Self::Refuse(..) => "refuse",
            Self::Drop => "drop",
            Self::Freeze => "freeze",
            Self::SlowBody(_) => "slow-body",
            Self::StopReading(_) => "stop-reading",
            Self::LoseAnswer(_) => "lose-answer",
            Self::FailAfter(_) => "fail-after",
            Self::Late(_) => "late",
            Self::Twice => "twice",
            Self::Forget => "forget",
            Self::ErrorDocument(_) => "error-document",
            Self::WrongEtag => "wrong-etag",
            Self::FirstByte(_) => "first-byte",
            Self::Bandwidth(_) => "bandwidth",
            Self::Cut(_) => "cut",
            Self::Corrupt => "corrupt",
            Self::Stale => "stale",
            Self::OmitNewest => "omit-newest",
            Self::RepeatKey => "repeat-key",
            Self::Truncate => "truncate",
        }
    }

    pub(super) fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fields::write(f, "effect", self.name())?;
        match self {
            Self::Delay(Wait::For(time)) | Self::Late(Wait::For(time)) | Self::FirstByte(time) => {
                fields::write(f, "ms", time)
            }
            Self::Delay(Wait::Lifted) | Self::Late(Wait::Lifted) => fields::write(f, "until", LIFTED),
            Self::Refuse(code, retry_after) => {
                fields::write(f, "code", code.as_str())?;
                retry_after.map_or(Ok(()), |seconds| fields::write(f, "retry-after", seconds))
            }
            Self::FailAfter(code) | Self::ErrorDocument(code) => fields::write(f, "code", code.as_str()),
            Self::SlowBody(rate) | Self::Bandwidth(rate) => fields::write(f, "bytes-per-s", rate),
            Self::StopReading(at) | Self::Cut(at) => fields::write(f, "at", at),
            Self::LoseAnswer(Loss::Reset) => fields::write(f, "how", "reset"),
            Self::LoseAnswer(Loss::Never) => fields::write(f, "how", "never"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_in_their_range() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let ms = Time::Uniform(100.0, 300.0).draw(&mut random).as_secs_f64() * 1000.0;
            assert!((100.0..=300.0).contains(&ms), "{ms}");
        }
        let mut drawn: Vec<_> = (0..1001).map(|_| Time::LogNormal(200.0, 0.5).draw(&mut random)).collect();
        drawn.sort();
        let median = drawn[500].as_secs_f64() * 1000.0;
        assert!((180.0..=220.0).contains(&median), "{median}");
    }

    #[test]
    fn times_that_are_none_are_refused() {
        for bad in ["", "-1", "3..1", "lognormal:1", "lognormal:1:9", "1e9", "NaN", "inf"] {
            assert_eq!(Time::read(bad), None, "{bad}");
        }
    }
}
