//! Area 1: the capability probe passes a sound store, refuses every trickster by number, and leaves nothing.

use super::data;
use super::ground::{Ground, REQUEST_TIMEOUT_MS};
use super::rig::Rig;
use super::{Checked, Failure, Scenario, equal};
use crate::error::SinkError;
use crate::probe::{Probe, ProbeSettings, Report, S3Clients, Verdict};
use crate::sink::Sink;
use crate::store::Pending;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "1.1",
        name: "a_sound_store_passes_the_probe",
        proves: "every required check of the probe passes, and its keys are gone afterwards",
        needs: &[],
        run: |ground| Box::pin(sound(ground)),
    },
    Scenario {
        id: "1.11",
        name: "a_probe_leaves_nothing_on_any_way_out",
        proves: "a probe that is stopped in the middle removes what it wrote",
        needs: &[],
        run: |ground| Box::pin(stopped(ground)),
    },
    Scenario {
        id: "1.12",
        name: "a_probe_comes_before_head",
        proves: "no request for HEAD is sent before the probe's last one, and none at all when it refuses",
        needs: &[],
        run: |ground| Box::pin(before_head(ground)),
    },
    Scenario {
        id: "1.13",
        name: "two_probes_at_once_do_not_disturb_each_other",
        proves: "two probes of one pipeline side by side both pass",
        needs: &[],
        run: |ground| Box::pin(side_by_side(ground)),
    },
    Scenario {
        id: "1.10",
        name: "silence_is_inconclusive_and_refuses",
        proves: "a store that answers 503 is inconclusive, and the sink does not start",
        needs: &[],
        run: |ground| Box::pin(silence(ground)),
    },
    trickster("1.2", "conditions_ignored_are_refused", |g| refused(g, "ignore-write-conditions", 2)),
    trickster("1.3", "conditions_ignored_on_absent_keys_are_refused", |g| {
        refused(g, "ignore-conditions-absent", 12)
    }),
    trickster("1.4", "conditions_ignored_on_existing_keys_are_refused", |g| {
        refused(g, "ignore-conditions-existing", 2)
    }),
    trickster("1.5", "creates_ignored_are_refused", |g| refused(g, "ignore-if-none-match-put", 2)),
    trickster("1.6", "swaps_ignored_are_refused", |g| refused(g, "ignore-if-match-put", 9)),
    trickster("1.7", "conditions_ignored_by_size_are_refused", |g| refused(g, "ignore-conditions-large", 6)),
    trickster("1.8", "conditions_ignored_at_first_are_refused", |g| {
        refused(g, "ignore-conditions-first-on-connection=10", 2)
    }),
    trickster("1.9", "conditions_refused_are_refused", |g| refused(g, "refuse-if-match-put", 8)),
    trickster("1.14", "creates_that_race_are_refused", |g| refused(g, "race-create-put", 16)),
    trickster("1.15", "swaps_that_race_are_refused", |g| refused(g, "race-swap-put", 17)),
    trickster("1.16", "refusals_that_apply_are_refused", |g| refused(g, "refused-but-applied", 2)),
    trickster("1.17", "answers_that_do_not_apply_are_refused", |g| refused(g, "accepted-but-not-applied", 1)),
    trickster("1.18", "weak_etags_are_refused", |g| refused(g, "weak-etags", 8)),
    trickster("1.19", "changing_etags_are_refused", |g| refused(g, "changing-etags", 1)),
    trickster("1.20", "stale_reads_are_refused", |g| refused(g, "stale-reads", 21)),
    trickster("1.21", "lists_without_the_newest_key_are_refused", |g| refused(g, "list-omits-newest", 22)),
    trickster("1.22", "keys_that_do_not_fit_are_refused", |g| refused(g, "key-limit", 24)),
];

const fn trickster(
    id: &'static str,
    name: &'static str,
    run: for<'a> fn(&'a Ground) -> Pending<'a, Checked>,
) -> Scenario {
    let proves =
        "a store with this flaw is refused by the check that is about it, and the sink does not start";
    Scenario { id, name, proves, needs: &[], run }
}

/// Settings for stores of our own, which answer at once: the fewest rounds, and no waiting.
fn hasty() -> ProbeSettings {
    ProbeSettings { race_budget_ms: 0, retry_wait_ms: 1, ..ProbeSettings::default() }
}

async fn clients(rig: &Rig) -> Checked<S3Clients> {
    Ok(S3Clients::new(&rig.settings(), &rig.access(), &[]).await?)
}

async fn probed(
    ground: &Ground,
    salt: u64,
    settings: &ProbeSettings,
    stop: impl Future<Output = ()>,
) -> Checked<Report> {
    let (env, clients) = (ground.env(salt)?, clients(&ground.rig).await?);
    Ok(Probe { env: &env, clients: &clients, root: &ground.root, settings }.run(stop).await)
}

fn ready(report: &Report) -> Checked {
    if report.verdict == Verdict::Ready && report.left.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("the probe does not pass:\n{report}")))
}

async fn nothing_left(ground: &Ground) -> Checked {
    equal("objects that are left", ground.listed().await?, Vec::new())
}

async fn sound(ground: &Ground) -> Checked {
    let report = probed(ground, 1, &ProbeSettings::default(), std::future::pending()).await?;
    ready(&report)?;
    nothing_left(ground).await
}

async fn stopped(ground: &Ground) -> Checked {
    let after = ground.rig.last_request().await?;
    let stop = async {
        // Where the journal can't be asked, the probe runs to its end, and the check below fails.
        while let Ok(seen) = ground.rig.requests(after, &ground.prefix).await {
            if seen.len() >= 60 {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let report = probed(ground, 1, &ProbeSettings::default(), stop).await?;
    equal("interrupted", report.interrupted, true)?;
    nothing_left(ground).await
}

async fn open(ground: &Ground, settings: &ProbeSettings) -> Checked<Result<Sink, SinkError>> {
    let clients = clients(&ground.rig).await?;
    Ok(Sink::open(ground.env(1)?, ground.settings("a"), &clients, settings).await)
}

async fn before_head(ground: &Ground) -> Checked {
    let after = ground.rig.last_request().await?;
    let sink = open(ground, &ProbeSettings::default()).await??;
    ground.publish(&sink, 1, 1).await?;
    sink.close().await?;
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    let probe = seen.iter().rposition(|request| request.key.contains("/_manifest/probe/"));
    let head = seen.iter().position(|request| request.key.ends_with("/_manifest/HEAD"));
    match (probe, head) {
        (Some(probe), Some(head)) if probe < head => {}
        other => return Err(Failure(format!("last request of the probe and first of HEAD: {other:?}"))),
    }
    let after = ground.rig.last_request().await?;
    let faults = ground
        .rig
        .faults(&ground.rule("lost", "_manifest/probe/*", "effect=refuse code=AccessDenied"))
        .await?;
    match open(ground, &hasty()).await? {
        Err(SinkError::ProbeRefused(why)) if why.starts_with("check 1 ") => {}
        other => return Err(Failure(format!("a store that refuses the probe's writes: {other:?}"))),
    }
    faults.lift().await?;
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    let touched = seen.iter().filter(|request| request.key.ends_with("/_manifest/HEAD")).count();
    equal("requests for HEAD after a refusal", touched, 0)
}

async fn side_by_side(ground: &Ground) -> Checked {
    let settings = ProbeSettings::default();
    let (one, two) = tokio::join!(
        probed(ground, 1, &settings, std::future::pending()),
        probed(ground, 2, &settings, std::future::pending())
    );
    ready(&one?)?;
    ready(&two?)?;
    nothing_left(ground).await
}

async fn silence(ground: &Ground) -> Checked {
    let faults = ground
        .rig
        .faults(&ground.rule("away", "_manifest/probe/*", "effect=refuse code=ServiceUnavailable"))
        .await?;
    match open(ground, &hasty()).await? {
        Err(error @ SinkError::ProbeInconclusive(_)) => equal("the exit code", error.exit_code(), 3)?,
        other => return Err(Failure(format!("a store that answers 503: {other:?}"))),
    }
    faults.lift().await?;
    nothing_left(ground).await
}

/// On a server of our own with the flaw: refused by that check, and HEAD never touched.
fn refused<'a>(ground: &'a Ground, deviation: &'static str, check: u8) -> Pending<'a, Checked> {
    Box::pin(async move {
        let (rig, _server) = ground.rig.deviating(deviation).await?;
        let flawed = Ground::new(&rig, deviation)?;
        let report = probed(&flawed, 1, &hasty(), std::future::pending()).await?;
        match &report.verdict {
            Verdict::Refused(checks) if checks.contains(&check) => {}
            _ => return Err(Failure(format!("{deviation} was to be refused by check {check}:\n{report}"))),
        }
        let settings = flawed.settings("a");
        let clients = clients(&rig).await?;
        let env = rig.env(REQUEST_TIMEOUT_MS, 2)?;
        match Sink::open(env, settings, &clients, &hasty()).await {
            Err(error @ SinkError::ProbeRefused(_)) => equal("the exit code", error.exit_code(), 1)?,
            other => return Err(Failure(format!("{deviation}: {other:?}"))),
        }
        let requests = rig.requests(0, data::NAMESPACE).await?.len();
        equal("requests for data", requests, 0)?;
        flawed.clear().await
    })
}
