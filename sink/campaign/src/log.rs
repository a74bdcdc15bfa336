//! The campaign's own log: a small durable one, of partitions. A line that was acknowledged is flushed; one that a
//! crash cut in two is no line.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::plan::Plan;
use crate::wire::{FromLog, ToLog, halves, listen};

/// One partition: a file of lines, and where each ends.
#[derive(Debug)]
struct Partition {
    file: File,
    ends: Vec<u64>,
}

impl Partition {
    fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let ends: Vec<u64> =
            (1..).zip(&bytes).filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end).collect();
        file.set_len(ends.last().copied().unwrap_or(0))?;
        file.sync_all()?;
        Ok(Self { file, ends })
    }

    fn append(&mut self, from: u64, lines: &[String]) -> std::io::Result<()> {
        if from != self.ends.len() as u64 || lines.is_empty() {
            return Ok(());
        }
        let mut end = self.ends.last().copied().unwrap_or(0);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
            end += line.len() as u64 + 1;
            ends.push(end);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.ends.extend(ends);
        Ok(())
    }

    fn fetch(&self, from: u64, most: u64) -> std::io::Result<Vec<String>> {
        let to = from.saturating_add(most).min(self.ends.len() as u64);
        if from >= to {
            return Ok(Vec::new());
        }
        let at = |line: u64| if line == 0 { 0 } else { self.ends[line as usize - 1] };
        let mut bytes = vec![0; (at(to) - at(from)) as usize];
        self.file.read_exact_at(&mut bytes, at(from))?;
        let text = String::from_utf8(bytes).map_err(std::io::Error::other)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn answer(&mut self, question: &ToLog) -> std::io::Result<FromLog> {
        let lines = match question {
            ToLog::Append { from, lines, .. } => {
                self.append(*from, lines)?;
                Vec::new()
            }
            ToLog::Fetch { from, most, .. } => self.fetch(*from, *most)?,
        };
        Ok(FromLog { lines, end: self.ends.len() as u64 })
    }
}

/// Serves until the process is killed.
///
/// # Errors
/// Of the files, or of the port.
pub async fn run(plan: &Plan) -> Result<(), String> {
    let directory = plan.directory.join("log");
    let failed = |why: std::io::Error| format!("log: {why}");
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let mut partitions = Vec::new();
    for number in 0..plan.partitions {
        let partition = Partition::open(&directory.join(format!("p{number}.log"))).map_err(failed)?;
        partitions.push(Mutex::new(partition));
    }
    let partitions = Arc::new(partitions);
    let listener = listen(&plan.log).await.map_err(failed)?;
    tracing::info!(address = plan.log, "log serves");
    loop {
        let (stream, _) = listener.accept().await.map_err(failed)?;
        let partitions = Arc::clone(&partitions);
        tokio::spawn(async move {
            let (mut reading, mut writing) = halves(stream);
            while let Some(question) = reading.next::<ToLog>().await {
                let partitions = Arc::clone(&partitions);
                let answered = tokio::task::spawn_blocking(move || {
                    let (ToLog::Append { partition, .. } | ToLog::Fetch { partition, .. }) = &question;
                    let partition = partitions.get(*partition as usize)?;
                    partition.lock().unwrap_or_else(PoisonError::into_inner).answer(&question).ok()
                });
                // An answer that can't be given ends the connection: whoever asked asks again.
                let Ok(Some(answer)) = answered.await else { return };
                if writing.send(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(from: u64, to: u64) -> Vec<String> {
        (from..to).map(|n| format!("line {n}")).collect()
    }

    #[test]
    fn what_was_acknowledged_is_there_after_a_crash_and_a_torn_line_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p0.log");
        let mut partition = Partition::open(&path).unwrap();
        partition.append(0, &texts(0, 3)).unwrap();
        partition.append(0, &texts(0, 3)).unwrap();
        partition.append(4, &texts(4, 5)).unwrap();
        assert_eq!(partition.fetch(0, 10).unwrap(), texts(0, 3), "a repeated and a far append are none");
        drop(partition);
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"line 3 is cu").unwrap();
        let mut partition = Partition::open(&path).unwrap();
        assert_eq!(partition.ends.len(), 3);
        partition.append(3, &texts(3, 5)).unwrap();
        assert_eq!(partition.fetch(2, 2).unwrap(), texts(2, 4));
        assert_eq!(partition.fetch(5, 2).unwrap(), texts(0, 0));
        assert_eq!(partition.fetch(u64::MAX, 2).unwrap(), texts(0, 0));
    }
}
