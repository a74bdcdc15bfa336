//! A rule: which requests, which of them, what happens.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use http::request::Parts;
use wildmatch::WildMatch;

use super::effect::{Effect, MAX_TIME, Wait};
use super::fields::{self, Fields, RuleError};
use super::flight::InFlight;
use crate::auth::Verified;
use crate::journal::body_size;
use crate::route::{Operation, Query};

/// A condition that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// `If-Match`.
    IfMatch,
    /// `If-None-Match`.
    IfNoneMatch,
    /// Either.
    Any,
}

/// What is known of a request when the rules are asked.
pub(crate) struct Facts<'a> {
    pub(crate) operation: &'a str,
    pub(crate) method: &'a str,
    pub(crate) bucket: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) access_key: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) upload_id: Option<&'a str>,
    pub(crate) part_number: Option<u16>,
    pub(crate) size: u64,
    /// Whether another conditional write of the same key is under way.
    pub(crate) contended: bool,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(
        operation: Operation,
        (bucket, key): (Option<&'a str>, Option<&'a str>),
        head: &'a Parts,
        query: &'a Query,
        verified: &'a Verified,
        in_flight: Option<&InFlight>,
    ) -> Self {
        Self {
            operation: operation.name(),
            method: head.method.as_str(),
            bucket,
            key,
            access_key: verified.access_key.as_deref(),
            headers: &head.headers,
            upload_id: query.get("uploadId"),
            part_number: query.get("partNumber").and_then(|number| number.parse().ok()),
            size: body_size(&head.headers),
            contended: in_flight.is_some_and(InFlight::is_contended),
        }
    }
}

/// Which requests a rule is about; what is not set matches all.
#[derive(Clone, Debug, Default)]
struct Match {
    operation: Option<WildMatch>,
    method: Option<String>,
    bucket: Option<WildMatch>,
    key: Option<WildMatch>,
    access_key: Option<String>,
    header: Option<String>,
    condition: Option<Condition>,
    upload_id: Option<String>,
    part_number: Option<u16>,
    size: Option<(u64, u64)>,
    user_agent: Option<WildMatch>,
    contended: bool,
}

/// Which of the matching requests are hit; what is not set hits all.
#[derive(Clone, Debug, Default, PartialEq)]
struct When {
    nth: Option<u64>,
    first: Option<u64>,
    every: Option<u64>,
    after: Option<u64>,
    probability: Option<f64>,
    /// Milliseconds since the rule was set.
    between_ms: Option<(u64, u64)>,
    ttl_ms: Option<u64>,
}

/// A fault: *match* + *when* + *effect*, with a name.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    matching: Match,
    when: When,
    effect: Effect,
}

const FIELDS: &str = "name, operation, method, bucket, key, access-key, header, condition, upload-id, part-number, \
                      size, user-agent, contended, nth, first, every, after, probability, between-ms, ttl-ms, effect \
                      and what goes with the effect (ms, until, code, retry-after, bytes-per-s, at, how)";

impl std::str::FromStr for Rule {
    type Err = RuleError;

    /// Reads the form of flags and headers: `name=x operation=PutObject key=a/* nth=1 effect=lose-answer`.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::from_fields(Fields::from_text(text)?)
    }
}

impl Rule {
    /// Reads the form of files and of the control API.
    ///
    /// # Errors
    /// With the field and what it accepts.
    pub fn from_object(object: &serde_json::Map<String, serde_json::Value>) -> Result<Self, RuleError> {
        Self::from_fields(Fields::from_object(object)?)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, RuleError> {
        let effect = Effect::take(&mut fields)?;
        let matching = Match::take(&mut fields)?;
        let when = When::take(&mut fields)?;
        let name = fields.read("name", "a name", word)?.unwrap_or_else(|| effect.name().to_owned());
        fields.end(FIELDS)?;
        Ok(Self { name, matching, when, effect })
    }

    /// The name under which it is listed, removed and journalled; the effect's where none was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Reads the rule that a request brings along.
    ///
    /// # Errors
    /// As for any rule; an effect that shows how things were needs a rule that was set then, and one that lasts
    /// until it is lifted a rule that can be taken back.
    pub(crate) fn of_request(text: &str) -> Result<Self, RuleError> {
        let rule: Self = text.parse()?;
        if rule.needs_frozen() {
            return Err(RuleError::new(
                "effect",
                rule.effect.name(),
                "any other effect in a header: what is stale is what changed since the rule was set, so set it \
                 beforehand",
            ));
        }
        if matches!(rule.effect, Effect::Delay(Wait::Lifted) | Effect::Late(Wait::Lifted)) {
            return Err(RuleError::new(
                "until",
                "lifted",
                "ms in its place in a header: nobody can take back a rule of one request, so set it beforehand, with \
                 nth=1",
            ));
        }
        Ok(rule)
    }

    /// # Errors
    /// Where only a store of our own can do what it does, and not an upstream.
    pub(crate) fn check_for_upstream(&self) -> Result<(), RuleError> {
        match self.effect {
            Effect::Forget | Effect::Stale => Err(RuleError::new(
                "effect",
                self.effect.name(),
                "any other effect in front of an upstream: what it has committed can be neither undone nor shown as \
                 it was",
            )),
            _ => Ok(()),
        }
    }

    /// The access key whose requests it is about, if it names one.
    pub(crate) fn access_key(&self) -> Option<&str> {
        self.matching.access_key.as_deref()
    }

    /// Whether it shows the state as it was when it was set.
    pub(crate) fn needs_frozen(&self) -> bool {
        self.effect == Effect::Stale
    }

    pub(super) fn matches(&self, facts: &Facts<'_>) -> bool {
        self.matching.holds(facts)
    }

    /// Whether the rule is over, `age_ms` after it was set.
    pub(super) fn is_over(&self, age_ms: u64) -> bool {
        self.when.ttl_ms.is_some_and(|ttl| age_ms >= ttl)
    }

    /// How long a rule that is not taken back goes on, `age_ms` after it was set: never longer than an effect may.
    pub(super) fn left(&self, age_ms: u64) -> Duration {
        let ttl = self.when.ttl_ms.map(|ttl| Duration::from_millis(ttl.saturating_sub(age_ms)));
        ttl.map_or(MAX_TIME, |ttl| ttl.min(MAX_TIME))
    }

    /// Whether it hits the `count`th matching request, counted from 1.
    pub(super) fn hits(&self, count: u64, age_ms: u64, random: &mut fastrand::Rng) -> bool {
        self.when.hits(count, age_ms, random)
    }
}

fn word(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn pattern(text: &str) -> Option<WildMatch> {
    (!text.is_empty()).then(|| WildMatch::new(text))
}

fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|count| *count > 0)
}

/// `5`, `5..`, `..10` or `5..10`, both ends included.
fn range(text: &str) -> Option<(u64, u64)> {
    let Some((low, high)) = text.split_once("..") else {
        let exact = text.parse().ok()?;
        return Some((exact, exact));
    };
    let low = if low.is_empty() { 0 } else { low.parse().ok()? };
    let high = if high.is_empty() { u64::MAX } else { high.parse().ok()? };
    (low <= high).then_some((low, high))
}

fn write_range(f: &mut fmt::Formatter<'_>, name: &str, (low, high): (u64, u64)) -> fmt::Result {
    match high {
        u64::MAX => fields::write(f, name, format_args!("{low}..")),
        _ => fields::write(f, name, format_args!("{low}..{high}")),
    }
}

const RANGE: &str = "a number or a range: 5, 5.., ..10 or 5..10";
const COUNT: &str = "a number above 0";
const PATTERN: &str = "a name, in which * stands for any characters and ? for one";

impl Match {
    fn take(fields: &mut Fields) -> Result<Self, RuleError> {
        Ok(Self {
            operation: fields.read(
                "operation",
                "an operation of the S3 API Reference, or a pattern: PutObject, *Multipart*",
                pattern,
            )?,
            method: fields.read("method", "a method: GET, PUT, POST, DELETE, HEAD", word)?,
            bucket: fields.read("bucket", PATTERN, pattern)?,
            key: fields.read("key", PATTERN, pattern)?,
            access_key: fields.read("access-key", "an access key", word)?,
            header: fields.read("header", "a header's name", |text| word(&text.to_ascii_lowercase()))?,
            condition: fields.read("condition", "If-Match, If-None-Match or any", |text| {
                match text.to_ascii_lowercase().as_str() {
                    "if-match" => Some(Condition::IfMatch),
                    "if-none-match" => Some(Condition::IfNoneMatch),
                    "any" => Some(Condition::Any),
                    _ => None,
                }
            })?,
            upload_id: fields.read("upload-id", "an upload id", word)?,
            part_number: fields.read("part-number", "a number from 1 to 10000", |text| {
                text.parse().ok().filter(|number| (1..=10_000).contains(number))
            })?,
            size: fields.read("size", RANGE, range)?,
            user_agent: fields.read("user-agent", PATTERN, pattern)?,
            contended: fields.read("contended", "true or false", |text| text.parse().ok())?.unwrap_or(false),
        })
    }

    fn holds(&self, facts: &Facts<'_>) -> bool {
        let fits = |pattern: &Option<WildMatch>, text: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| pattern.matches(text)))
        };
        let equals = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| text == Some(wanted))
        };
        let agent = facts.headers.get("user-agent").and_then(|agent| agent.to_str().ok());
        fits(&self.operation, Some(facts.operation))
            && self.method.as_deref().is_none_or(|method| method.eq_ignore_ascii_case(facts.method))
            && fits(&self.bucket, facts.bucket)
            && fits(&self.key, facts.key)
            && equals(&self.access_key, facts.access_key)
            && self.header.as_deref().is_none_or(|header| facts.headers.contains_key(header))
            && self.condition.is_none_or(|condition| condition.is_in(facts.headers))
            && equals(&self.upload_id, facts.upload_id)
            && self.part_number.is_none_or(|number| facts.part_number == Some(number))
            && self.size.is_none_or(|(low, high)| (low..=high).contains(&facts.size))
            && fits(&self.user_agent, agent)
            && (!self.contended || facts.contended)
    }
}

impl Condition {
    fn is_in(self, headers: &HeaderMap) -> bool {
        let (matches, none) = (headers.contains_key("if-match"), headers.contains_key("if-none-match"));
        match self {
            Self::IfMatch => matches,
            Self::IfNoneMatch => none,
            Self::Any => matches || none,
        }
    }
}

impl When {
    fn take(fields: &mut Fields) -> Result<Self, RuleError> {
        Ok(Self {
            nth: fields.read("nth", COUNT, count)?,
            first: fields.read("first", COUNT, count)?,
            every: fields.read("every", COUNT, count)?,
            after: fields.read("after", COUNT, count)?,
            probability: fields.read("probability", "a number from 0 to 1", |text| {
                text.parse().ok().filter(|p: &f64| (0.0..=1.0).contains(p))
            })?,
            between_ms: fields.read("between-ms", RANGE, range)?,
            ttl_ms: fields.read("ttl-ms", COUNT, count)?,
        })
    }

    /// `after` requests pass first; `nth`, `first` and `every` count from there.
    fn hits(&self, count: u64, age_ms: u64, random: &mut fastrand::Rng) -> bool {
        let Some(count) = count.checked_sub(self.after.unwrap_or(0)).filter(|count| *count > 0) else {
            return false;
        };
        self.nth.is_none_or(|nth| count == nth)
            && self.first.is_none_or(|first| count <= first)
            && self.every.is_none_or(|every| count.is_multiple_of(every))
            && self.between_ms.is_none_or(|(from, to)| (from..=to).contains(&age_ms))
            && self.probability.is_none_or(|probability| random.f64() < probability)
    }
}

impl fmt::Display for Rule {
    /// The form of flags and headers, from which the same rule is read again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, matching, when, effect } = self;
        let mut text = String::new();
        let mut words = |part: &dyn Fn(&mut fmt::Formatter<'_>) -> fmt::Result| {
            use fmt::Write as _;
            write!(text, "{}", fmt::from_fn(part))
        };
        words(&|f| fields::write(f, "name", name))?;
        words(&|f| matching.write(f))?;
        words(&|f| when.write(f))?;
        words(&|f| effect.write(f))?;
        f.write_str(text.trim_start())
    }
}

impl Match {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let condition = self.condition.map(|condition| match condition {
            Condition::IfMatch => "If-Match",
            Condition::IfNoneMatch => "If-None-Match",
            Condition::Any => "any",
        });
        let part = self.part_number.map(|number| number.to_string());
        for (name, value) in [
            ("operation", self.operation.as_ref().map(ToString::to_string)),
            ("method", self.method.clone()),
            ("bucket", self.bucket.as_ref().map(ToString::to_string)),
            ("key", self.key.as_ref().map(ToString::to_string)),
            ("access-key", self.access_key.clone()),
            ("header", self.header.clone()),
            ("condition", condition.map(str::to_owned)),
            ("upload-id", self.upload_id.clone()),
            ("part-number", part),
            ("user-agent", self.user_agent.as_ref().map(ToString::to_string)),
            ("contended", self.contended.then(|| "true".to_owned())),
        ] {
            if let Some(value) = value {
                fields::write(f, name, value)?;
            }
        }
        self.size.map_or(Ok(()), |size| write_range(f, "size", size))
    }
}

impl When {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in [
            ("nth", self.nth),
            ("first", self.first),
            ("every", self.every),
            ("after", self.after),
            ("ttl-ms", self.ttl_ms),
        ] {
            if let Some(count) = count {
                fields::write(f, name, count)?;
            }
        }
        if let Some(probability) = self.probability {
            fields::write(f, "probability", probability)?;
        }
        self.between_ms.map_or(Ok(()), |between| write_range(f, "between-ms", between))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "name=\"all of it\" operation=Put* method=PUT bucket=data key=locks/* access-key=test \
                       header=x-amz-meta-a condition=If-None-Match upload-id=u part-number=3 user-agent=*boto* \
                       contended=true size=5..10 nth=1 first=2 every=3 after=4 ttl-ms=5000 probability=0.5 \
                       between-ms=100.. effect=refuse code=SlowDown retry-after=2";

    #[test]
    fn a_rule_is_read_again_from_what_it_writes() {
        let rule: Rule = ALL.parse().unwrap();
        assert_eq!(rule.to_string(), ALL.split_whitespace().collect::<Vec<_>>().join(" "));
        for effect in [
            "delay ms=100..300",
            "late ms=lognormal:200:0.5",
            "delay until=lifted",
            "late until=lifted",
            "lose-answer how=never",
            "slow-body bytes-per-s=100",
            "cut at=7",
            "fail-after code=InternalError",
            "twice",
            "stale",
        ] {
            let text = format!("name=x effect={effect}");
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_does_not_parse_names_its_field_and_what_it_accepts() {
        for (text, field) in [
            ("nth=1", "effect"),
            ("effect=explode", "effect"),
            ("effect=delay", "ms"),
            ("effect=delay ms=fast", "ms"),
            ("effect=delay until=noon", "until"),
            ("effect=late ms=1 until=lifted", "until"),
            ("effect=late", "ms"),
            ("effect=first-byte ms=1 until=lifted", "until"),
            ("effect=refuse code=Nonsense", "code"),
            ("effect=drop nth=0", "nth"),
            ("effect=drop probability=2", "probability"),
            ("effect=drop condition=If-Range", "condition"),
            ("effect=drop size=9..1", "size"),
            ("effect=drop keys=a", "keys"),
            ("effect=drop ms=1", "ms"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!(error.field, field, "{text}");
            assert!(!error.accepts.is_empty(), "{text}");
        }
    }

    #[test]
    fn what_a_request_brings_along_is_for_that_request_only() {
        for (text, field) in [("effect=stale", "effect"), ("effect=late until=lifted", "until")] {
            let error = Rule::of_request(text).unwrap_err();
            assert_eq!(error.field, field, "{text}");
            assert!(error.accepts.contains("set it beforehand"), "{error}");
        }
        assert!(Rule::of_request("effect=late ms=1").is_ok());
    }

    fn facts<'a>(headers: &'a HeaderMap, key: &'a str) -> Facts<'a> {
        Facts {
            operation: "PutObject",
            method: "PUT",
            bucket: Some("data"),
            key: Some(key),
            access_key: Some("test"),
            headers,
            upload_id: None,
            part_number: None,
            size: 7,
            contended: false,
        }
    }

    #[test]
    fn which_requests() {
        let headers: HeaderMap = [("if-none-match", "*"), ("user-agent", "Boto3/1.44")]
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .into_iter()
            .collect();
        for (fields, expected) in [
            ("", true),
            ("operation=PutObject", true),
            ("operation=*Object", true),
            ("operation=GetObject", false),
            ("key=locks/*", true),
            ("key=other/*", false),
            ("condition=If-None-Match", true),
            ("condition=If-Match", false),
            ("condition=any", true),
            ("header=If-None-Match", true),
            ("header=range", false),
            ("size=5..10", true),
            ("size=8..", false),
            ("user-agent=Boto3*", true),
            ("upload-id=x", false),
            ("part-number=1", false),
            ("contended=true", false),
            ("access-key=other", false),
        ] {
            let rule: Rule = format!("{fields} effect=drop").parse().unwrap();
            assert_eq!(rule.matches(&facts(&headers, "locks/a")), expected, "{fields}");
        }
    }

    #[test]
    fn which_of_them() {
        let mut random = fastrand::Rng::with_seed(3);
        for (fields, hit) in [
            ("", &[1, 2, 3, 4, 5, 6][..]),
            ("nth=2", &[2]),
            ("first=2", &[1, 2]),
            ("every=3", &[3, 6]),
            ("after=4", &[5, 6]),
            ("after=2 first=1", &[3]),
            ("probability=0", &[]),
            ("probability=1", &[1, 2, 3, 4, 5, 6]),
        ] {
            let rule: Rule = format!("{fields} effect=drop").parse().unwrap();
            let hits: Vec<u64> = (1..=6).filter(|count| rule.hits(*count, 0, &mut random)).collect();
            assert_eq!(hits, hit, "{fields}");
        }
        let rule: Rule = "between-ms=10..20 ttl-ms=30 effect=drop".parse().unwrap();
        let hits: Vec<u64> = (0..40).filter(|age| rule.hits(1, *age, &mut random)).collect();
        assert_eq!((hits[0], hits.len()), (10, 11));
        assert!(!rule.is_over(29) && rule.is_over(30));
        assert_eq!(rule.left(10), Duration::from_millis(20));
        let forever: Rule = "effect=drop".parse().unwrap();
        assert_eq!(forever.left(u64::MAX), MAX_TIME);
    }
}
