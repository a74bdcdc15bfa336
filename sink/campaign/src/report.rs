//! The report of a campaign, in Markdown and as JSON, and its faults as lines.

use std::fmt::Write as _;
use std::io;

use crate::campaign::{Outcome, Verdict, samples};
use crate::page;
use crate::plan::{Kafka, Plan, Sink};

/// Writes `verdict.json`, `faults.jsonl`, `report.md` and `report.html` into the campaign's directory.
///
/// # Errors
/// Of the files.
pub fn write(outcome: &Outcome) -> io::Result<()> {
    let directory = &outcome.plan.directory;
    std::fs::write(directory.join("verdict.json"), serde_json::to_vec_pretty(outcome)?)?;
    let mut lines = String::new();
    for applied in &outcome.faults {
        lines += &serde_json::to_string(applied)?;
        lines.push('\n');
    }
    std::fs::write(directory.join("faults.jsonl"), lines)?;
    let text = text(outcome);
    let page = page::html(&text, &samples(directory), &outcome.faults);
    std::fs::write(directory.join("report.html"), page)?;
    std::fs::write(directory.join("report.md"), text)
}

/// The report in Markdown.
#[must_use]
pub fn text(outcome: &Outcome) -> String {
    let mut page = String::new();
    let plan = &outcome.plan;
    let verdict = match outcome.verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive => "INCONCLUSIVE",
    };
    let sink = match plan.sink {
        Sink::Staged => "Staged commits",
        Sink::DurableV2 => "durable_v2 pipelines",
    };
    let _ = writeln!(page, "# {sink} under faults: {verdict}\n");
    for reason in &outcome.reasons {
        let _ = writeln!(page, "- {reason}");
    }
    let _ = writeln!(page, "\n## Provenance and workload\n\n| | |\n| --- | --- |");
    for (name, value) in [
        ("seed", plan.seed.to_string()),
        ("binary of every process, SHA-256", outcome.binary.to_string()),
        ("revision", outcome.revision.clone()),
        ("duration", format!("{} s", outcome.seconds)),
        ("mutant", plan.mutant.clone().unwrap_or_else(|| "none".to_owned())),
        ("store", store(plan)),
        ("source", source(plan)),
        ("partitions, workers", format!("{}, {}", plan.partitions, plan.workers)),
        ("keys", plan.keys.to_string()),
        ("events a second, asked for", plan.rate.to_string()),
        ("from one checkpoint to the next", format!("{} ms", plan.checkpoint_ms)),
        ("samples of the judge that read along", outcome.samples.to_string()),
        ("of these failed, during outages", outcome.failed_samples.to_string()),
        ("workers started again because the store was away", outcome.restarts.to_string()),
    ] {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    let _ = writeln!(page, "\n## Faults\n\n| fault | mechanism | requested | fired | healed |");
    let _ = writeln!(page, "| --- | --- | ---: | ---: | ---: |");
    let mut names: Vec<(&str, &str)> = Vec::new();
    for applied in &outcome.faults {
        let name = (applied.fault.as_str(), applied.mechanism);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for (name, mechanism) in names {
        let of = || outcome.faults.iter().filter(|applied| applied.fault == name);
        let (fired, healed) = (of().filter(|one| one.fired).count(), of().filter(|one| one.healed).count());
        let _ = writeln!(page, "| {name} | {mechanism} | {} | {fired} | {healed} |", of().count());
    }
    let checked = outcome.faults.iter().filter_map(|applied| applied.pids_stable);
    let stable = checked.clone().filter(|stable| *stable).count();
    let _ = writeln!(page, "\nWorkers were the same processes in {stable} of {} checks.", checked.count());
    if let Some(judgement) = &outcome.judgement {
        let _ = writeln!(page, "\n## Outcome, as a fresh process read it\n\n| | |\n| --- | ---: |");
        for (name, value) in [
            ("events produced", judgement.produced),
            ("events visible", judgement.visible),
            ("findings", judgement.findings.len() as u64),
            ("objects", judgement.objects),
            ("checkpoints that count; of durable_v2, entries", judgement.completed),
            ("entries that are gone, kept by inventories", judgement.expired),
            ("objects that a compaction wrote", judgement.compacted),
            ("checkpoints abandoned", judgement.abandoned),
            ("receipts", judgement.receipts),
            ("uploads left pending: evidence, no finding", judgement.pending_uploads),
        ] {
            let _ = writeln!(page, "| {name} | {value} |");
        }
    }
    page += BOUNDARIES;
    page
}

/// The store, in words.
fn store(plan: &Plan) -> String {
    let mut text = match &plan.upstream {
        None => "our server on disk".to_owned(),
        Some(upstream) => format!("our server in front of {}", upstream.endpoint),
    };
    for bad in plan.deviations.iter().chain(&plan.store_faults) {
        let _ = write!(text, ", made to {bad}");
    }
    text
}

/// The source, in words.
fn source(plan: &Plan) -> String {
    match &plan.kafka {
        None => "the campaign's own log".to_owned(),
        Some(Kafka { topic, command: None }) => {
            format!("Kafka's protocol: topic {topic} of {}, which is not restarted", plan.log)
        }
        Some(Kafka { topic, command: Some(command) }) => {
            // Without the directories, which are of this machine only.
            let program = command.split_whitespace().next().unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            format!("Kafka's protocol: topic {topic} of {name}, a process of the campaign")
        }
    }
}

const BOUNDARIES: &str = "
## What this shows, and what it does not

- **Demonstrated**: each event visible exactly once under the faults above, for this workload and duration, with the
  store as its own process.
- **Tested but bounded**: how fast it recovers: after every fault the job worked again within a minute on this
  machine.
- **Architecturally supported, not shown**: other stores, more workers, more days.
- **Unknown**: power loss, damage of disks or of the store, steps of clocks. One machine has one kernel, one clock and
  one page cache; a killed process loses nothing that the kernel has. A partition is a relay that forwards nothing, not
  a switch.

The run's directory has `verdict.json`, `faults.jsonl`, `oracle.jsonl`, the processes' logs, the store, the log and the
checkpoint directory.
";

/// The words of the last line, and the exit code.
#[must_use]
pub fn end(outcome: &Outcome) -> (String, u8) {
    let shown = outcome.faults.iter().filter(|applied| applied.fired && applied.healed).count();
    let (word, code) = match outcome.verdict {
        Verdict::Pass => ("PASS", 0),
        Verdict::Fail => ("FAIL", 1),
        Verdict::Inconclusive => ("INCONCLUSIVE", 3),
    };
    let counted = outcome.judgement.as_ref().map_or_else(String::new, |judgement| {
        format!(", {} events produced, {} visible", judgement.produced, judgement.visible)
    });
    let faults = outcome.faults.len();
    (format!("{word}: {shown} of {faults} faults fired and healed{counted}, {} s", outcome.seconds), code)
}
