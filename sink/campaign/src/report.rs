//! The report of a campaign, in Markdown and as JSON, and its faults as lines.

use std::fmt::Write as _;
use std::io;

use crate::campaign::{Outcome, Verdict, samples};
use crate::chaos::{Applied, RECOVERY_S};
use crate::clock;
use crate::coverage::CLAIM_MINUTES;
use crate::failure::NOT_PROVEN;
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
    let sink = match outcome.plan.sink {
        Sink::Staged => "Staged commits",
        Sink::DurableV2 => "durable_v2 pipelines",
    };
    let _ = writeln!(page, "# {sink} under faults: {}\n", word(outcome.verdict));
    for reason in &outcome.reasons {
        let _ = writeln!(page, "- {reason}");
    }
    page += METHOD;
    if let Some(gate) = &outcome.gate {
        let _ = writeln!(page, "\nBefore the first fault {gate}.");
    }
    page += &provenance(outcome);
    page += &faults(outcome);
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
    page += &boundaries(outcome);
    page
}

const METHOD: &str = "
## Method

Every process is one of a copy of one binary, and its own. Each event is a function of seed, partition and sequence
number, so that what must be visible is computed, never recorded. A fault counts as fired only where it was seen:
the kernel's state of a stopped process, a refused or an unanswered request to a store or log that is away, the exit
code and record of an armed process, bytes that a relay held back, packets that the kernel counted as dropped, a
worker that was kept out after another had taken its place. It counts as healed where the job worked after it. One
judge reads along in the bucket; after the input has ended and everything is committed, a fresh process reads the
settled bucket in full and counts again. Neither shares code with the sink.
";

fn provenance(outcome: &Outcome) -> String {
    let plan = &outcome.plan;
    let profile = if outcome.extent.short { "short" } else { "full" };
    let profile = match outcome.extent.minutes {
        0 => format!("gate, {profile}"),
        minutes => format!("gate, {profile}, then {minutes} minutes of faults by chance"),
    };
    let mut page = "\n## Provenance and workload\n\n| | |\n| --- | --- |\n".to_owned();
    for (name, value) in [
        ("began", clock::date(outcome.began_ms)),
        ("profile", profile),
        ("rig", outcome.rig.clone()),
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
    page
}

/// What was requested, fired and healed, what was left out, and what a soak must show.
fn faults(outcome: &Outcome) -> String {
    let mut page = "\n## Faults\n\n| fault | mechanism | requested | fired | healed |\n".to_owned();
    let _ = writeln!(page, "| --- | --- | ---: | ---: | ---: |");
    let mut names: Vec<&str> = Vec::new();
    for applied in &outcome.faults {
        if !names.contains(&applied.fault.as_str()) {
            names.push(&applied.fault);
        }
    }
    for name in names {
        let of: Vec<_> = outcome.faults.iter().filter(|applied| applied.fault == name).collect();
        let count = |is: fn(&Applied) -> bool| of.iter().filter(|one| is(one)).count();
        let (fired, healed) = (count(|one| one.fired), count(|one| one.healed));
        let _ = writeln!(page, "| {name} | {} | {} | {fired} | {healed} |", of[0].mechanism, of.len());
    }
    for one in &outcome.left_out {
        let _ = writeln!(page, "| {} | left out: {} | 0 | 0 | 0 |", one.fault, one.why);
    }
    if outcome.plan.sink == Sink::Staged {
        let checked = outcome.faults.iter().filter_map(|applied| applied.pids_stable);
        let stable = checked.clone().filter(|stable| *stable).count();
        let _ =
            writeln!(page, "\nWorkers were the same processes in {stable} of {} checks.", checked.count());
    }
    if !outcome.counts.is_empty() {
        let _ = writeln!(page, "\n## What a soak of two hours must show\n");
        if outcome.extent.minutes < CLAIM_MINUTES {
            let _ = writeln!(page, "This one is shorter, and claims none of it.\n");
        }
        let _ = writeln!(page, "| | asked for | fired and healed |\n| --- | ---: | ---: |");
        for count in &outcome.counts {
            let _ = writeln!(page, "| {} | {} | {} |", count.what, count.asked, count.shown);
        }
    }
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

/// What the run shows: no more than its verdict and what fired.
fn boundaries(outcome: &Outcome) -> String {
    let shown: Vec<&Applied> = outcome.faults.iter().filter(|one| one.shown()).collect();
    let demonstrated = match (outcome.verdict, &outcome.judgement) {
        (Verdict::Pass, Some(judgement)) => format!(
            "each of {} events visible exactly once under the {} faults above, for this workload and {} s, with the \
             store as its own process.",
            judgement.visible,
            shown.len(),
            outcome.seconds
        ),
        (Verdict::Fail, _) => "nothing: the run failed, for the reasons at its top.".to_owned(),
        _ => "nothing: no judge found anything, and not everything was shown; the reasons are at its top."
            .to_owned(),
    };
    let longest = shown.iter().filter_map(|one| one.recovered_ms).max();
    let bounded = longest.map_or_else(
        || "nothing: after no fault the job was seen to work.".to_owned(),
        |longest| {
            format!(
                "how fast it recovers: after {} faults that fired, the job worked again within {}.{} s at most, on \
                 this machine. A run waits {} s for each step of a recovery.",
                shown.len(),
                longest / 1000,
                longest % 1000 / 100,
                RECOVERY_S
            )
        },
    );
    format!(
        "
## What this shows, and what it does not

- **Demonstrated**: {demonstrated}
- **Tested but bounded**: {bounded}
- **Architecturally supported, not shown**: other stores, more workers, more days.
- **Unknown**: power loss, damage of disks or of the store, steps of clocks. One machine has one kernel, one clock and
  one page cache; a killed process loses nothing that the kernel has. A partition is a relay that forwards nothing, not
  a switch.

The run's directory has `verdict.json`, `faults.jsonl`, `oracle.jsonl`, the processes' binary and logs, the store, the
log and the checkpoint directory.
"
    )
}

/// A verdict's word.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive => "INCONCLUSIVE",
    }
}

/// The words of the last line, and the exit code.
#[must_use]
pub fn end(outcome: &Outcome) -> (String, u8) {
    let shown = outcome.faults.iter().filter(|applied| applied.shown()).count();
    let code = match outcome.verdict {
        Verdict::Pass => 0,
        Verdict::Fail => 1,
        Verdict::Inconclusive => NOT_PROVEN,
    };
    let counted = outcome.judgement.as_ref().map_or_else(String::new, |judgement| {
        format!(", {} events produced, {} visible", judgement.produced, judgement.visible)
    });
    let (word, faults) = (word(outcome.verdict), outcome.faults.len());
    (format!("{word}: {shown} of {faults} faults fired and healed{counted}, {} s", outcome.seconds), code)
}

#[cfg(test)]
mod tests {
    use sinks::model::ids::Digest;

    use super::*;
    use crate::campaign::{Extent, LeftOut};
    use crate::chaos::tests::applied;
    use crate::coverage::counts;
    use crate::fault::Fault;
    use crate::judge::Judgement;
    use crate::plan::tests::plan;

    fn outcome(verdict: Verdict, minutes: u64) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let slow = Applied { recovered_ms: Some(61_240), ..applied(Fault::CoordinatorKill) };
        let unfired = Applied { fired: false, recovered_ms: Some(90_000), ..applied(Fault::Zombie) };
        let faults = vec![applied(Fault::WorkerKill), slow, unfired];
        Outcome {
            verdict,
            reasons: Vec::new(),
            plan: plan(dir.path()),
            extent: Extent { short: false, minutes, foreign: false },
            began_ms: 1_796_035_859_999,
            rig: "one machine".to_owned(),
            binary: Digest::of(b"binary"),
            revision: "a revision".to_owned(),
            seconds: 77,
            gate: Some("the source went on".to_owned()),
            left_out: vec![LeftOut { fault: Fault::Loss.name(), why: "no right to it".to_owned() }],
            counts: if minutes > 0 { counts(Sink::Staged, &faults) } else { Vec::new() },
            faults,
            restarts: 0,
            samples: 9,
            failed_samples: 0,
            judgement: Some(Judgement { produced: 500, visible: 500, ..Judgement::default() }),
        }
    }

    #[test]
    fn only_a_pass_demonstrates_and_each_verdict_has_its_code() {
        for (verdict, word, code, demonstrated) in [
            (Verdict::Pass, "PASS", 0, "each of 500 events visible exactly once under the 2 faults above"),
            (Verdict::Fail, "FAIL", 1, "nothing: the run failed"),
            (
                Verdict::Inconclusive,
                "INCONCLUSIVE",
                3,
                "nothing: no judge found anything, and not everything",
            ),
        ] {
            let outcome = outcome(verdict, 0);
            let page = text(&outcome);
            assert!(page.starts_with(&format!("# Staged commits under faults: {word}\n")), "{page}");
            assert!(page.contains(&format!("- **Demonstrated**: {demonstrated}")), "{page}");
            assert_eq!(page.contains("exactly once"), verdict == Verdict::Pass, "{page}");
            let (line, found) = end(&outcome);
            assert_eq!(
                line,
                format!("{word}: 2 of 3 faults fired and healed, 500 events produced, 500 visible, 77 s")
            );
            assert_eq!(found, code);
        }
    }

    #[test]
    fn a_report_says_how_slow_what_is_left_out_when_and_on_what() {
        let page = text(&outcome(Verdict::Pass, 0));
        for part in [
            "after 2 faults that fired, the job worked again within 61.2 s at most",
            "| loss of packets | left out: no right to it | 0 | 0 | 0 |",
            "| worker stopped, succeeded and continued | SIGSTOP, another process in its place, SIGCONT | 1 | 0 | 1 |",
            "| began | 2026-11-30 10:50 UTC |",
            "| profile | gate, full |",
            "| rig | one machine |",
            "\n## Method\n",
            "Before the first fault the source went on.",
        ] {
            assert!(page.contains(part), "{part} is not in:\n{page}");
        }
        assert!(!page.contains("What a soak of two hours must show"), "{page}");
    }

    #[test]
    fn a_soak_says_what_is_asked_of_one_and_a_short_one_claims_nothing() {
        for (minutes, claims) in [(CLAIM_MINUTES, true), (CLAIM_MINUTES - 1, false)] {
            let page = text(&outcome(Verdict::Pass, minutes));
            assert!(page.contains("| worker SIGKILL | 6 | 1 |"), "{page}");
            assert!(page.contains(&format!("then {minutes} minutes of faults by chance")), "{page}");
            assert_eq!(page.contains("claims none of it"), !claims, "{page}");
        }
    }
}
