//! `assay-sink digest`: the digest of a position that somebody typed.

use clap::Args;
use sinks::model::position::{DigestQuery, PositionType};

use crate::{DONE, Failure, USAGE, print, print_json};

/// Prints the position's type, its canonical form and, last, its digest.
#[derive(Args)]
pub(crate) struct Digest {
    /// Kind of position: mysql-gtid, mysql-binlog, pg-lsn or snapshot
    #[arg(long = "type", value_name = "TYPE")]
    position_type: PositionType,
    /// Source id of the lineage
    #[arg(long, value_name = "S")]
    source_id: String,
    /// Scope of the lineage: nothing, a server's UUID, SYSTEM_IDENTIFIER/TIMELINE, or a snapshot's run
    #[arg(long, value_name = "C", default_value = "")]
    scope: String,
    /// Generation of the lineage
    #[arg(long, value_name = "G", default_value_t = 1)]
    generation: u64,
    /// Events of the next transaction that are included
    #[arg(long, value_name = "N", default_value_t = 0)]
    sub: u64,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
    /// A GTID set, FILE:POS, an LSN, or a JSON object
    #[arg(allow_hyphen_values = true)]
    position: String,
}

impl Digest {
    pub(crate) fn run(&self) -> Result<u8, Failure> {
        let Self { position_type, generation, sub, .. } = *self;
        let query = DigestQuery {
            position_type,
            source_id: &self.source_id,
            scope: &self.scope,
            generation,
            sub,
            position: &self.position,
        };
        let answer = query.answer().map_err(|error| Failure::new(USAGE, error.to_string()))?;
        if let Some(warning) = &answer.warning {
            eprintln!("assay-sink: {warning}");
        }
        if self.json {
            return print_json(&answer);
        }
        print(&format!("{answer}\n"));
        Ok(DONE)
    }
}
