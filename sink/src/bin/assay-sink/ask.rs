//! `assay-sink status` and `verify`: what is committed, and whether all of it is there. Both only read.

use clap::Args;
use serde::Serialize;
use sinks::format::{Encoding, digest};
use sinks::model::position::{Position, PositionRecord};
use sinks::run::read;
use sinks::run::recover::live::LiveObject;
use sinks::run::recover::{Depth, Recovered, recover};
use sinks::sink::Status;

use crate::open::{Opened, Pipeline};
use crate::{DONE, Failure, print, print_json};

/// Reads HEAD and the manifest behind it, and prints where the stream is.
#[derive(Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    pipeline: Pipeline,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Verifies the manifest, and that every object is there with its size.
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    ask: Ask,
    /// Read every object too: its bytes, its rows and their digest
    #[arg(long)]
    deep: bool,
}

/// Where a stream is.
#[derive(Serialize)]
struct StatusAnswer {
    root: String,
    /// Nothing if nothing is committed, not even HEAD.
    status: Option<Status>,
    /// Where the source resumes.
    position: Option<PositionRecord>,
}

/// What was verified.
#[derive(Serialize)]
struct VerifyAnswer {
    root: String,
    deep: bool,
    entries: u64,
    /// Live ones: what readers read.
    objects: u64,
    /// Those of them that a compaction wrote.
    compacted: u64,
    rows: u64,
    bytes: u64,
    position: Option<PositionRecord>,
    warnings: Vec<String>,
}

impl Ask {
    pub(crate) async fn status(&self) -> Result<u8, Failure> {
        let opened = self.pipeline.open().await?;
        let found = recover(&opened.env, &opened.config.root, Depth::Manifest, &opened.patience()).await?;
        let answer = StatusAnswer {
            root: opened.config.root.as_str().to_owned(),
            status: found
                .as_ref()
                .map(|found| Status::of_head(&found.view.head).at(opened.env.clock.now_ms())),
            position: found.as_ref().and_then(|found| found.position.as_ref()).map(PositionRecord::from),
        };
        if self.json {
            return print_json(&answer);
        }
        let Some(Status { epoch, writer_id, seq, rev, .. }) = &answer.status else {
            print(&format!("{}: nothing is committed\n", answer.root));
            return Ok(DONE);
        };
        print(&format!(
            "{}: epoch {epoch} of writer {writer_id}, entry {seq}, revision {rev}\n{}",
            answer.root,
            resume(answer.position.as_ref())
        ));
        Ok(DONE)
    }
}

fn resume(position: Option<&PositionRecord>) -> String {
    position.map_or_else(String::new, |position| {
        format!(
            "position {} {} sub {}\ndigest {}\n",
            position.r#type, position.text, position.sub, position.digest
        )
    })
}

impl Verify {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let opened = self.ask.pipeline.open().await?;
        let depth = if self.deep { Depth::Deep } else { Depth::Objects };
        let found = recover(&opened.env, &opened.config.root, depth, &opened.patience()).await?;
        let live = found.as_ref().map(Recovered::live).unwrap_or_default();
        if self.deep {
            rows(&opened, &live).await?;
        }
        let answer = self.answer(&opened, found.as_ref(), &live);
        if self.ask.json {
            return print_json(&answer);
        }
        let VerifyAnswer { root, entries, objects, rows, bytes, .. } = &answer;
        print(&format!(
            "{root}: {entries} entries, {objects} objects, {rows} rows, {bytes} bytes, all as recorded\n{}",
            resume(answer.position.as_ref())
        ));
        for warning in &answer.warnings {
            print(&format!("warning: {warning}\n"));
        }
        Ok(DONE)
    }

    fn answer(&self, opened: &Opened, found: Option<&Recovered>, live: &[LiveObject]) -> VerifyAnswer {
        VerifyAnswer {
            root: opened.config.root.as_str().to_owned(),
            deep: self.deep,
            entries: found.map_or(0, |found| found.entries.len() as u64),
            objects: live.len() as u64,
            compacted: live.iter().filter(|object| !object.is_original()).count() as u64,
            rows: live.iter().map(|object| object.rows).sum(),
            bytes: live.iter().map(|object| object.size).sum(),
            position: found
                .and_then(|found| found.position.as_ref())
                .map(|p: &Position| PositionRecord::from(p)),
            warnings: found.map(|found| found.warnings.clone()).unwrap_or_default(),
        }
    }
}

/// Decodes every live object, and compares its rows with what is recorded of them.
async fn rows(opened: &Opened, live: &[LiveObject]) -> Result<(), Failure> {
    for object in live {
        let stored = read::get(&opened.env, &object.key, opened.patience()).await?;
        let wrong = |what: String| Failure::new(5, format!("integrity alarm: {:?}: {what}", object.key));
        let stored = stored.ok_or_else(|| wrong("it is missing".to_owned()))?;
        let (rows, digest) = Encoding::named(&object.format, &object.compression)
            .and_then(|encoding| digest(encoding, &stored.bytes))
            .map_err(|error| wrong(error.to_string()))?;
        let recorded = object.row_seq_digest.unwrap_or(digest);
        if rows != object.rows || digest != recorded {
            return Err(wrong(format!(
                "{rows} rows with digest {digest}, {} with {recorded} are recorded",
                object.rows
            )));
        }
    }
    Ok(())
}
