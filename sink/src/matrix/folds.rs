//! Start-up reconciliation under kills: a process that dies between the swap of HEAD and its acknowledgement leaves a
//! hint, and the next one finds its batch committed.

use super::ground::Ground;
use super::publish::settled;
use super::rig::Rig;
use super::writer::{Started, Writer};
use super::{Checked, Failure, Scenario, equal};

pub(super) const SCENARIOS: &[Scenario] = &[Scenario {
    id: "2.3f",
    name: "hints_found_committed_are_folded",
    proves: "a process killed with a swap unanswered leaves a hint that the next one folds and scans again, time after \
             time: no crash loop, nothing lost, nothing doubled",
    needs: &[],
    run: |ground| Box::pin(async { rounds(ground, ROUNDS).await.map(drop) }),
}];

/// Kills in the scenario; each costs a process.
const ROUNDS: u64 = 3;

/// One fold: what the start logged.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The log line of the step, with the value acknowledged before, the hint's, HEAD's, and the iteration.
    pub step: String,
    /// The log line of the scan after it.
    pub scan: String,
}

/// Kills `rounds` processes, each after its swap landed and before the answer came, and starts another each time.
/// Gives the log lines of every fold.
///
/// # Errors
/// What was not as it must be; the bucket is cleared in any case.
pub async fn folds(rig: &Rig, rounds: u64) -> Result<Vec<Fold>, Failure> {
    let ground = Ground::new(rig, "folds")?;
    let ended = self::rounds(&ground, rounds).await;
    let healed = rig.heal().await;
    let cleared = ground.clear().await;
    let found = ended?;
    healed.and(cleared)?;
    Ok(found)
}

async fn rounds(ground: &Ground, rounds: u64) -> Checked<Vec<Fold>> {
    let mut found = Vec::new();
    for round in 1..=rounds {
        // The first write of HEAD creates or acquires it, the second commits batch `round`.
        let rule = ground.rule("held", "_manifest/HEAD", "nth=2 effect=lose-answer how=never");
        let faults = ground.rig.faults(&rule).await?;
        let mut writer = Writer::new(ground.rig.spawn(&ground.order("a", round, round)).await?)?;
        let started = writer.started().await?;
        found.extend(fold(&started, round)?);
        ground.rig.fired("held", 1).await?;
        ground.landed(round, usize::try_from(round)?).await?;
        writer.kill().await?;
        faults.lift().await?;
        equal("committed when it was killed", ground.head().await?.0.seq, round)?;
    }
    let mut writer = Writer::new(ground.rig.spawn(&ground.order("a", rounds + 1, rounds + 1)).await?)?;
    let started = writer.started().await?;
    found.extend(fold(&started, rounds + 1)?);
    equal("the last writer's exit code", writer.ended().await?, 0)?;
    equal("folds", u64::try_from(found.len()).ok(), Some(rounds))?;
    equal("what is there", ground.exactly(rounds + 1).await?, settled(rounds + 1))?;
    Ok(found)
}

/// The fold in the log of one start, which every start but the first must have, once; and the scan after it.
fn fold(started: &Started, round: u64) -> Checked<Option<Fold>> {
    let lines = &started.log;
    let places: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains("S7 fold: ")).collect();
    let at = match (round, places.as_slice()) {
        (1, []) => return Ok(None),
        (2.., [at]) => *at,
        _ => return Err(Failure(format!("start {round} logged {} folds: {lines:#?}", places.len()))),
    };
    let (step, scan) = (lines[at].clone(), lines.get(at + 1).cloned().unwrap_or_default());
    let value = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}="))?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let told = |name: &str| {
        value(&step, name).ok_or_else(|| Failure(format!("the log line of a fold has no {name}: {step}")))
    };
    let (acked, hint, watermark) = (told("acked")?, told("hint")?, told("watermark")?);
    equal("the hint that is HEAD's watermark", &hint, &watermark)?;
    equal("the value before, none in the first fold", acked == "none", round == 2)?;
    equal("whether anything was left to fold", acked == hint, false)?;
    let number = |line: &str| value(line, "iteration").and_then(|text| text.parse::<u32>().ok());
    let iteration = number(&step).ok_or_else(|| Failure(format!("no iteration in {step}")))?;
    equal("the iteration of the scan after the fold", number(&scan), Some(iteration + 1))?;
    equal("a scan after the fold", scan.contains("scanned"), true)?;
    Ok(Some(Fold { step, scan }))
}
