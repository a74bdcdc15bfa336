//! Faults over HTTP: the same text as at every other door.

use serde_json::{Value, json};

use super::reply::{Refused, Reply, read_text};
use crate::fault;
use crate::service::{RequestBody, Service};

pub(super) async fn reply(
    service: &Service,
    name: &str,
    method: &str,
    body: &mut RequestBody,
) -> Result<Option<Reply>, Refused> {
    let document = match (name, method) {
        ("", "GET") => listed(service),
        ("", "POST" | "PUT") => {
            let rules = fault::rules(&read_text(body).await?)?;
            service.set_faults(rules, method == "PUT")?;
            listed(service)
        }
        ("", "DELETE") => json!({ "removed": service.faults.clear() }),
        (name, "DELETE") => match service.faults.remove(name) {
            0 => {
                let why = format!("no fault is called {name:?}; GET /_assay/faults lists those that are set");
                return Err(Refused::not_found(why));
            }
            removed => json!({ "removed": removed }),
        },
        _ => return Ok(None),
    };
    Ok(Some(Reply::ok(document)))
}

fn listed(service: &Service) -> Value {
    json!({ "faults": service.faults.list(), "unfired": service.faults.unfired() })
}
