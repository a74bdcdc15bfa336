//! The sink's capability probe against the provider, directly and with the sink's own client.

use std::sync::Arc;

use sinks::env::{Env, Ids};
use sinks::model::key::PipelineRoot;
use sinks::probe::{CHECKS, Found, Line, Probe, Report, S3Clients};
use sinks::store::{Access, Addressing, S3Settings, S3Store};

use super::{Area, sink_clock};

/// The pipeline whose keys the probe writes.
const PIPELINE: &str = "probe";

/// Asks all of the probe's checks. A further endpoint of the provider is raced against too.
///
/// # Errors
/// Which setting the sink does not take.
pub async fn probe(area: &Area) -> Result<Report, String> {
    let provider = &area.provider;
    let settings = S3Settings {
        addressing: match provider.addressing {
            assay_checks::Addressing::Path => Addressing::Path,
            assay_checks::Addressing::Virtual => Addressing::Virtual,
        },
        ..S3Settings::new(Some(provider.endpoint.url()), provider.region.clone(), provider.bucket.clone())
    };
    let keys = &provider.credentials;
    let access = Access::keys(&keys.access_key, &keys.secret_key, keys.session_token.clone());
    let further: Vec<String> = provider.endpoint_2.iter().map(assay_checks::Endpoint::url).collect();
    let told = |error: &dyn std::fmt::Display| format!("the sink's client: {error}");
    let store = S3Store::new(&settings, &access).map_err(|error| told(&error))?;
    let clients = S3Clients::new(&settings, &access, &further).await.map_err(|error| told(&error))?;
    let root = PipelineRoot::new(&area.prefix, PIPELINE, "jsonl").map_err(|error| told(&error))?;
    let env =
        Env { store: Arc::new(store), clock: sink_clock(&area.clock), ids: Arc::new(Ids::seeded(area.seed)) };
    let probe = Probe { env: &env, clients: &clients, root: &root, settings: &area.probe };
    Ok(probe.run(std::future::pending()).await)
}

/// What the first refused check expected and got, and which others were refused.
pub(super) fn first_refusal(report: &Report, checks: &[u8]) -> (String, String) {
    let line = report.lines.iter().find(|line| checks.contains(&line.check));
    let Some(Line { check, name, found: Found::Refused { expected, got }, .. }) = line else {
        return ("every required check of the probe passes".to_owned(), numbers(checks));
    };
    let others = match checks {
        [] | [_] => String::new(),
        [_, others @ ..] => format!("; also refused by check {}", numbers(others)),
    };
    (format!("{expected} (the probe's check {check}, {name})"), format!("{got}{others}"))
}

/// Which checks were not decided, and what the first of them saw.
pub(super) fn first_doubt(report: &Report, checks: &[u8]) -> String {
    let seen = report.lines.iter().find_map(|line| match &line.found {
        Found::Inconclusive { reason } => Some(reason.as_str()),
        _ => None,
    });
    format!(
        "the probe's check {} of {} was not decided: {}",
        numbers(checks),
        CHECKS.len(),
        seen.unwrap_or("not run")
    )
}

pub(super) fn numbers(checks: &[u8]) -> String {
    checks.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}
