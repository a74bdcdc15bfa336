//! `assay-sink probe`: everything that durable mode needs of the provider, as a table; and before each run.

use clap::Args;
use sinks::probe::{ProbeSettings, Report, S3Clients};

use crate::open::{Opened, Pipeline};
use crate::stop::Stop;
use crate::{Failure, print, print_json};

/// Runs the checks that come before each start, and prints what they found.
#[derive(Args)]
pub(crate) struct Probe {
    #[command(flatten)]
    pipeline: Pipeline,
    /// A further endpoint of the same bucket, to which races go as well; may be given several times
    #[arg(long, value_name = "URL")]
    also: Vec<String>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

impl Probe {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let mut stop = Stop::listen()?;
        let opened = self.pipeline.open().await?;
        let report = probe(&opened, &self.also, &mut stop).await?;
        if self.json {
            print_json(&report)?;
        } else {
            print(&report.to_string());
        }
        Ok(report.exit_code())
    }
}

/// Probes the bucket, unless a signal comes before the end.
pub(crate) async fn probe(opened: &Opened, also: &[String], stop: &mut Stop) -> Result<Report, Failure> {
    let clients = S3Clients::new(&opened.bucket, &opened.access, also).await?;
    let settings =
        ProbeSettings { max_clock_skew_ms: opened.config.max_clock_skew_ms, ..ProbeSettings::default() };
    let probe = sinks::probe::Probe {
        env: &opened.env,
        clients: &clients,
        root: &opened.config.root,
        settings: &settings,
    };
    Ok(probe
        .run(async {
            stop.asked(1).await;
        })
        .await)
}
