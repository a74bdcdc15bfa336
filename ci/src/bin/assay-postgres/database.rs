//! PostgreSQL through its own programs: psql for questions, pgbench for work. Where it is, the environment says.

use crate::changes::Lsn;
use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// Asks one question; one line of answer a row.
///
/// # Errors
/// What psql said.
pub async fn query(sql: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|why| format!("psql: {why}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|why| format!("psql: {why}"));
    }
    Err(format!("psql: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Makes a logical slot; everything committed from now on is in it.
///
/// # Errors
/// What psql said.
pub async fn make_slot(name: &str) -> Result<(), String> {
    query(&format!("SELECT pg_create_logical_replication_slot('{name}', 'wal2json')")).await.map(drop)
}

/// Moves a slot on; what lies before is not shown again.
///
/// # Errors
/// What psql said.
pub async fn advance(slot: &str, to: Lsn) -> Result<(), String> {
    query(&format!("SELECT pg_replication_slot_advance('{slot}', '{to}')")).await.map(drop)
}

/// How far a slot is confirmed.
///
/// # Errors
/// What psql said.
pub async fn confirmed(slot: &str) -> Result<Lsn, String> {
    let sql = format!("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'");
    query(&sql).await?.trim().parse()
}

/// System identifier and timeline, in decimal: an LSN means nothing without.
///
/// # Errors
/// What psql said.
pub async fn lineage() -> Result<(String, String), String> {
    let sql = "SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()";
    let row = query(sql).await?;
    let (system, timeline) = row.trim().split_once('|').ok_or(format!("psql answered {row:?}"))?;
    Ok((system.to_owned(), timeline.to_owned()))
}

/// Starts the workload: pgbench's own transaction, and the scripts beside this program's runner.
///
/// # Errors
/// pgbench can't be started.
pub fn workload(folder: &Path, seconds: u64, rate: u32, seed: u64) -> Result<Child, String> {
    let script = |name: &str, weight: u32| format!("{}@{weight}", folder.join(name).display());
    Command::new("pgbench")
        .args(["-n", "-c", "4", "-j", "1", "-T", &seconds.to_string(), "-R", &rate.to_string()])
        .args(["--random-seed", &seed.to_string(), "-b", "tpcb-like@60"])
        .args(["-f", &script("orders.sql", 38), "-f", &script("sweep.sql", 2)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|why| format!("pgbench: {why}"))
}
