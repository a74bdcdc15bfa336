//! LocalStack's faults at LocalStack's path, for those who come from there: an array of rules of service, region,
//! operation, probability and error, each translated to one of ours.
//!
//! Source: LocalStack documentation, "Chaos API", section "Service faults", read 2026-11-29: POST sets, PATCH adds,
//! DELETE removes the rules that it names, GET reads; an empty rule is about every request; without an error it is
//! 503 ServiceUnavailable.

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::CHAOS;
use super::reply::{Fields, Refused, Reply};
use crate::error::Code;
use crate::fault::Rule;
use crate::service::Service;

/// Rules of other services that are kept, so that they are told again.
const MAX_RULES: usize = 1000;

/// The rules in the form in which they came.
#[derive(Default)]
pub(crate) struct Chaos(Mutex<Rules>);

#[derive(Default)]
struct Rules {
    last: u64,
    /// Each with the name of ours that it became; a rule about another service or region became none.
    rules: Vec<(Option<String>, Value)>,
}

impl Chaos {
    /// Forgets all rules; those that they became are taken back by whoever clears the faults.
    pub(crate) fn clear(&self) {
        self.0.lock().rules.clear();
    }
}

pub(super) fn reply(service: &Service, method: &str, text: &str) -> Result<Reply, Refused> {
    let mut kept = service.chaos.0.lock();
    match method {
        "GET" => {}
        "POST" => {
            let new = translate(service, kept.last, text)?;
            let old = std::mem::take(&mut kept.rules);
            if let Err(refused) = add(service, &mut kept, new) {
                kept.rules = old;
                return Err(refused);
            }
            take_back(service, old);
        }
        "PATCH" => {
            let new = translate(service, kept.last, text)?;
            add(service, &mut kept, new)?;
        }
        "DELETE" => {
            let named = if text.trim().is_empty() { None } else { Some(read(text)?) };
            let is_named = |rule: &Value| named.as_ref().is_none_or(|named| named.contains(rule));
            let (gone, rest) =
                std::mem::take(&mut kept.rules).into_iter().partition(|(_, rule)| is_named(rule));
            kept.rules = rest;
            take_back(service, gone);
        }
        _ => return Err(Refused::method(method, CHAOS, &["GET", "POST", "PATCH", "DELETE"])),
    }
    // One that was taken back by its name, or died by itself, is gone here too.
    let set = service.faults.list();
    kept.rules.retain(|(name, _)| name.as_ref().is_none_or(|name| set.iter().any(|rule| rule.name == *name)));
    Ok(Reply::ok(kept.rules.iter().map(|(_, rule)| rule.clone()).collect()))
}

fn take_back(service: &Service, rules: Vec<(Option<String>, Value)>) {
    for name in rules.into_iter().filter_map(|(name, _)| name) {
        service.faults.remove(&name);
    }
}

type Translated = Vec<(Option<Rule>, Value)>;

fn add(service: &Service, kept: &mut Rules, new: Translated) -> Result<(), Refused> {
    if kept.rules.len() + new.len() > MAX_RULES {
        return Err(Refused::bad(format!("there would be more than {MAX_RULES} rules; remove some first")));
    }
    service.set_faults(new.iter().filter_map(|(rule, _)| rule.clone()).collect(), false)?;
    kept.last += new.len() as u64;
    kept.rules.extend(new.into_iter().map(|(rule, value)| (rule.map(|rule| rule.name().to_owned()), value)));
    Ok(())
}

fn read(text: &str) -> Result<Vec<Value>, Refused> {
    serde_json::from_str(text)
        .map_err(|error| Refused::field("faults", text, &format!("a JSON array: {error}")))
}

fn translate(service: &Service, last: u64, text: &str) -> Result<Translated, Refused> {
    let numbered = (last + 1..).zip(read(text)?);
    numbered.map(|(number, value)| Ok((rule(&service.settings.region, number, &value)?, value))).collect()
}

/// Our rule; `None` where LocalStack's is about another service or region.
fn rule(region: &str, number: u64, value: &Value) -> Result<Option<Rule>, Refused> {
    let Value::Object(fields) = value else {
        return Err(Refused::field(
            "rule",
            value,
            "an object of service, region, operation, probability, error",
        ));
    };
    let mut fields = Fields::of(fields.clone());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let about_service = fields.take("service", "a service's name, such as s3", text)?;
    let about_region = fields.take("region", "a region's name, such as us-east-1", text)?;
    let operation = fields.take("operation", "an operation's name, such as PutObject", text)?;
    let probability = fields.take("probability", "a number from 0 to 1", |value| {
        value.as_f64().filter(|p| (0.0..=1.0).contains(p))
    })?;
    let error =
        fields.take("error", "an object of statusCode and code", |value| value.as_object().cloned())?;
    fields.end()?;
    let applies = about_service.is_none_or(|service| service == "s3")
        && about_region.is_none_or(|about| about == region);
    if !applies {
        return Ok(None);
    }
    let code = code(error.unwrap_or_default())?;
    let mut ours = Map::new();
    ours.insert("name".to_owned(), json!(format!("chaos-{number}")));
    ours.extend(operation.map(|operation| ("operation".to_owned(), json!(operation))));
    ours.extend(probability.map(|probability| ("probability".to_owned(), json!(probability))));
    ours.insert("effect".to_owned(), json!("refuse"));
    ours.insert("code".to_owned(), json!(code.as_str()));
    Ok(Some(Rule::from_object(&ours)?))
}

/// The code of the error table that an error means.
fn code(error: Map<String, Value>) -> Result<Code, Refused> {
    let mut fields = Fields::of(error);
    let status = fields.take("statusCode", "an HTTP status from 400 to 599", |value| {
        value
            .as_u64()
            .and_then(|status| u16::try_from(status).ok())
            .filter(|status| (400..600).contains(status))
    })?;
    let accepts = "a code of S3's error table, such as SlowDown or InternalError";
    let code = fields.take("code", accepts, |value| value.as_str().and_then(Code::from_name))?;
    fields.end()?;
    let code = match (code, status) {
        (Some(code), _) => code,
        (None, None | Some(503)) => Code::ServiceUnavailable,
        (None, Some(500)) => Code::InternalError,
        (None, Some(429)) => Code::TooManyRequests,
        (None, Some(403)) => Code::AccessDenied,
        (None, Some(other)) => {
            return Err(Refused::field(
                "statusCode",
                other,
                "a code beside it: 403, 429, 500 and 503 have one",
            ));
        }
    };
    match status {
        Some(status) if status != code.status() => {
            let accepts = format!("the status that S3 has for {}: {}", code.as_str(), code.status());
            Err(Refused::field("statusCode", status, &accepts))
        }
        _ => Ok(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(text: &str) -> String {
        match rule("us-east-1", 1, &serde_json::from_str(text).unwrap()) {
            Ok(Some(rule)) => rule.to_string(),
            Ok(None) => "none".to_owned(),
            Err(refused) => refused.document["field"].as_str().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn each_rule_becomes_one_of_ours() {
        for (theirs, ours) in [
            ("{}", "name=chaos-1 effect=refuse code=ServiceUnavailable"),
            (r#"{"service": "s3"}"#, "name=chaos-1 effect=refuse code=ServiceUnavailable"),
            (
                r#"{"service": "s3", "region": "us-east-1", "operation": "PutObject", "probability": 0.5,
                    "error": {"statusCode": 503, "code": "SlowDown"}}"#,
                "name=chaos-1 operation=PutObject probability=0.5 effect=refuse code=SlowDown",
            ),
            (r#"{"error": {"statusCode": 500}}"#, "name=chaos-1 effect=refuse code=InternalError"),
            (r#"{"service": "kinesis", "error": {"code": "NoSuchThing"}}"#, "none"),
            (r#"{"region": "eu-west-1"}"#, "none"),
            (r#"{"servcie": "s3"}"#, "servcie"),
            (r#"{"probability": 2}"#, "probability"),
            (r#"{"error": {"code": "NoSuchThing"}}"#, "code"),
            (r#"{"error": {"statusCode": 418}}"#, "statusCode"),
            (r#"{"error": {"statusCode": 500, "code": "SlowDown"}}"#, "statusCode"),
            (r#"{"error": {"status": 500}}"#, "status"),
            ("[]", "rule"),
        ] {
            assert_eq!(translated(theirs), ours, "{theirs}");
        }
    }
}
