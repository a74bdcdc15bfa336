//! `assay-sink status` and `verify`: what is committed, and whether all of it is there. Both only read.

use clap::Args;
use serde::Serialize;
use sinks::format::{Encoding, digest};
use sinks::model::position::{Position, PositionRecord};
use sinks::run::read;
use sinks::run::recover::{Content, Depth, Recovered, recover};
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
    objects: u64,
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
            status: found.as_ref().map(|found| Status::of_head(&found.view.head)),
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
        if let (Some(found), true) = (&found, self.deep) {
            rows(&opened, found).await?;
        }
        let answer = self.answer(&opened, found.as_ref());
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

    fn answer(&self, opened: &Opened, found: Option<&Recovered>) -> VerifyAnswer {
        let all = || found.iter().flat_map(|found| &found.entries);
        let objects = || all().flat_map(|entry| entry.objects());
        VerifyAnswer {
            root: opened.config.root.as_str().to_owned(),
            deep: self.deep,
            entries: all().count() as u64,
            objects: objects().count() as u64,
            rows: objects().map(|object| object.rows).sum(),
            bytes: objects().map(|object| object.size).sum(),
            position: found
                .and_then(|found| found.position.as_ref())
                .map(|p: &Position| PositionRecord::from(p)),
            warnings: found.map(|found| found.warnings.clone()).unwrap_or_default(),
        }
    }
}

/// Decodes every object whose entry is still there, and compares its rows with what the entry says of them.
async fn rows(opened: &Opened, found: &Recovered) -> Result<(), Failure> {
    for entry in &found.entries {
        let Content::Entry(entry) = &entry.content else { continue };
        for object in &entry.objects {
            let stored = read::get(&opened.env, &object.key, opened.patience()).await?;
            let wrong = |what: String| Failure::new(5, format!("integrity alarm: {:?}: {what}", object.key));
            let stored = stored.ok_or_else(|| wrong("it is missing".to_owned()))?;
            let (rows, digest) = Encoding::named(&object.format, &object.compression)
                .and_then(|encoding| digest(encoding, &stored.bytes))
                .map_err(|error| wrong(error.to_string()))?;
            if rows != object.rows || digest != object.row_seq_digest {
                return Err(wrong(format!(
                    "{rows} rows with digest {digest}, {} with {} are recorded",
                    object.rows, object.row_seq_digest
                )));
            }
        }
    }
    Ok(())
}
