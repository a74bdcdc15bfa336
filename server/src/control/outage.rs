//! Outages over HTTP.

use serde_json::{Value, json};

use super::reply::{Fields, Refused, Reply};
use crate::fault::Outage;
use crate::instant::Instant;
use crate::service::{RequestBody, Service};

/// Longest outage with an end of its own, in milliseconds: a day.
const MAX_MS: i64 = 86_400_000;

pub(super) async fn reply(
    service: &Service,
    method: &str,
    body: &mut RequestBody,
) -> Result<Option<Reply>, Refused> {
    match method {
        "GET" => {}
        "POST" => begin(service, Fields::read(body, "outage").await?)?,
        "DELETE" => service.outage.lift(),
        _ => return Ok(None),
    }
    let left = service.outage.left((service.settings.clock)());
    let (outage, for_ms) = left.map_or((None, None), |(outage, for_ms)| (Some(outage), for_ms));
    Ok(Some(Reply::ok(json!({ "outage": outage, "for-ms": for_ms }))))
}

fn begin(service: &Service, mut fields: Fields) -> Result<(), Refused> {
    let outage = fields.need("outage", "refuse, hang or unavailable", |value: &Value| {
        value.as_str().and_then(Outage::from_name)
    })?;
    let for_ms = fields.take("for-ms", "milliseconds from 1 to 86400000, a day", |value| {
        value.as_i64().filter(|ms| (1..=MAX_MS).contains(ms))
    })?;
    fields.end()?;
    if outage == Outage::Refuse && for_ms.is_none() && !service.settings.control.own_port {
        return Err(Refused::bad(
            "outage \"refuse\" without for-ms: nothing would listen any more, and nobody could lift it; give for-ms, \
             or start the server with --control-listen",
        ));
    }
    let until = for_ms.map(|ms| Instant::from_epoch_ms((service.settings.clock)().epoch_ms() + ms));
    service.outage.begin(outage, until);
    Ok(())
}
