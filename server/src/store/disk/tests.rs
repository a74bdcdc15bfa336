//! What only the disk can break: kills, second holders, foreign directories, shared flushes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::*;

/// Tells a test that it runs as the child process of itself, and where the index is.
const CHILD_DIR: &str = "ASSAY_INDEX_TEST_CHILD_DIR";

/// This test binary once more, running only the test of this name in this module, as a child.
fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let module = module_path!().split_once("::").unwrap().1;
    command.args(["--exact", &format!("{module}::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(CHILD_DIR, dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// What opening `dir` is refused with, the path cut out of the words.
fn refusal(dir: &Path) -> String {
    Disk::open(dir, Flush::BeforeAnswer).unwrap_err().to_string().replace(&dir.display().to_string(), "DIR")
}

#[test]
fn every_acknowledged_row_survives_a_kill() {
    /// Rows of one write: all there or none.
    const PARTS: u64 = 3;
    const WRITERS: u64 = 8;
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        let index = Disk::open(Path::new(&dir), Flush::BeforeAnswer).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let index: &dyn Index = &index;
                scope.spawn(move || {
                    for round in 0.. {
                        let write = index.apply(move |rows| {
                            for part in 0..PARTS {
                                rows.put(format!("{writer}/{round}/{part}").as_bytes(), vec![7; 300].into())?;
                            }
                            Ok(())
                        });
                        wait(write).unwrap();
                        println!("stored {writer}/{round}");
                    }
                });
            }
        });
    }
    let dir = TempDir::new().unwrap();
    let mut total = 0;
    for kill in 1..=5 {
        let mut writing = child("every_acknowledged_row_survives_a_kill", dir.path()).spawn().unwrap();
        let lines = BufReader::new(writing.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        for line in lines.map_while(Result::ok) {
            acknowledged.extend(line.split_once("stored ").map(|(_, row)| row.to_owned()));
            if acknowledged.len() == 100 * kill {
                // On Unix this is SIGKILL. What the child still printed before it died is read to the end.
                writing.kill().unwrap();
            }
        }
        writing.wait().unwrap();
        assert!(acknowledged.len() >= 100 * kill, "the child died early: {writing:?}");

        let index = Disk::open(dir.path(), Flush::BeforeAnswer).unwrap();
        let snapshot = index.snapshot().unwrap();
        for row in &acknowledged {
            for part in 0..PARTS {
                let value = snapshot.get(format!("{row}/{part}").as_bytes()).unwrap();
                assert_eq!(value.as_deref(), Some(&[7; 300][..]), "kill {kill} lost {row}/{part}");
            }
        }
        let mut next = Vec::new();
        let mut rows = 0;
        while let Some((key, _)) = snapshot.seek(&next).unwrap() {
            next = [&key, &[0][..]].concat();
            rows += 1;
            let write =
                key.strip_suffix(b"/0").or(key.strip_suffix(b"/1")).or(key.strip_suffix(b"/2")).unwrap();
            for part in 0..PARTS {
                let part = [write, format!("/{part}").as_bytes()].concat();
                assert!(snapshot.get(&part).unwrap().is_some(), "kill {kill} left a part of {key:?} only");
            }
        }
        total += acknowledged.len();
        assert!(rows >= acknowledged.len());
    }
    assert!(total >= 1_500);
}

#[test]
fn a_second_holder_is_refused() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        println!("refused: {}", refusal(Path::new(&dir)));
        return;
    }
    let dir = TempDir::new().unwrap();
    let first = Disk::open(dir.path(), Flush::BeforeAnswer).unwrap();
    let words =
        "data directory \"DIR\" is in use by another server; stop that one, or name another directory";
    assert_eq!(refusal(dir.path()), words);

    let elsewhere = child("a_second_holder_is_refused", dir.path()).output().unwrap();
    let said = String::from_utf8(elsewhere.stdout).unwrap();
    assert!(said.contains(&format!("refused: {words}\n")), "{said}");

    drop(first);
    Disk::open(dir.path(), Flush::BeforeAnswer).expect("free again once the first is dropped");
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), "text").unwrap();
    let words = "data path \"DIR\" is not a directory; name a directory, or a path where one can be made";
    assert_eq!(refusal(&path("file")), words);
    assert_eq!(refusal(&path("file/below")), words);
    assert_eq!(
        refusal(dir.path()),
        "data directory \"DIR\" holds \"file\", which is not ours; name a new or an empty directory"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a refusal leaves nothing behind");

    fs::create_dir(path("newer")).unwrap();
    fs::write(path("newer/assay-format"), "assay-server data, format 12\n").unwrap();
    assert_eq!(
        refusal(&path("newer")),
        "data directory \"DIR\" has format 12, this version reads format 1; \
         use the version that wrote it, or name a new directory"
    );
    fs::write(path("newer/assay-format"), "another tool's\n").unwrap();
    assert_eq!(
        refusal(&path("newer")),
        "data directory \"DIR\" holds \"assay-format: another tool's\", which is not ours; \
         name a new or an empty directory"
    );
}

#[test]
fn a_lost_or_overwritten_index_is_an_alarm() {
    let dir = TempDir::new().unwrap();
    drop(Disk::open(dir.path(), Flush::BeforeAnswer).unwrap());
    assert_eq!(fs::read_to_string(dir.path().join("assay-format")).unwrap(), "assay-server data, format 1\n");
    fs::write(dir.path().join("index.redb"), [7; 8192]).unwrap();
    let error = Disk::open(dir.path(), Flush::BeforeAnswer).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");

    fs::remove_file(dir.path().join("index.redb")).unwrap();
    fs::write(dir.path().join("body"), "bytes").unwrap();
    assert_eq!(
        refusal(dir.path()),
        "the index in data directory \"DIR\" is damaged: there is no index.redb, but there is body; \
         restore the directory from a copy"
    );
}

#[test]
fn a_directory_half_made_is_finished() {
    let dir = TempDir::new().unwrap();
    let inside = dir.path().join("a/b");
    fs::create_dir_all(inside.join("lost+found")).unwrap();
    for marker in ["", "assay-server d", "assay-server data, format 1\n"] {
        fs::write(inside.join("assay-format"), marker).unwrap();
        fs::write(inside.join("index.redb.new"), [0; 4096]).unwrap();
        let index = Disk::open(&inside, Flush::BeforeAnswer).unwrap();
        assert!(index.snapshot().unwrap().seek(b"").unwrap().is_none());
        drop(index);
        assert_eq!(fs::read_to_string(inside.join("assay-format")).unwrap(), "assay-server data, format 1\n");
        fs::remove_file(inside.join("index.redb")).unwrap();
    }
}

#[test]
fn a_new_directory_is_ours_from_its_first_write_on() {
    let dir = TempDir::new().unwrap();
    let names = || {
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let put = |key: &'static [u8]| -> Job { Box::new(|rows| rows.put(key, Bytes::from_static(b"1"))) };
    for flush in [Flush::BeforeAnswer, Flush::Never] {
        // As a kill leaves it before the first write, with the body of a write that never came to its end.
        fs::write(dir.path().join("assay-format"), "").unwrap();
        fs::write(dir.path().join("index.redb.new"), [7; 100]).unwrap();
        fs::write(dir.path().join("body"), "bytes").unwrap();
        let index = Disk::open(dir.path(), flush).unwrap();
        wait(index.write_ahead(put(b"ahead"))).unwrap();
        assert_eq!(names(), ["assay-format", "body", "index.redb.new"]);
        wait(index.write(put(b"lasts"))).unwrap();
        assert_eq!(names(), ["assay-format", "body", "index.redb"]);
        drop(index);
        let index = Disk::open(dir.path(), flush).unwrap();
        let snapshot = index.snapshot().unwrap();
        assert!(snapshot.get(b"ahead").unwrap().is_some() && snapshot.get(b"lasts").unwrap().is_some());
        drop(snapshot);
        drop(index);
        fs::write(dir.path().join("index.redb"), "").unwrap();
        let cause = "the index in data directory \"DIR\" is damaged: index.redb is empty; \
                     restore the directory from a copy";
        assert_eq!(refusal(dir.path()), cause);
        fs::remove_file(dir.path().join("index.redb")).unwrap();
    }
}

#[test]
fn jobs_of_one_batch_fail_alone() {
    let dir = TempDir::new().unwrap();
    let index = Disk::open(dir.path(), Flush::BeforeAnswer).unwrap();
    // The first job holds the thread until the others wait, so that those become one batch.
    let (go, held) = channel();
    let first = index.write(Box::new(move |_| {
        held.recv().unwrap();
        Ok(())
    }));
    let put = |key: &'static [u8]| index.write(Box::new(move |rows| rows.put(key, Bytes::from_static(b"1"))));
    let before = put(b"a");
    let fails = index.write(Box::new(|rows| {
        rows.put(b"a", Bytes::from_static(b"2"))?;
        Err(IndexError::unavailable("testing", "told to fail"))
    }));
    let panics = index.write(Box::new(|rows| {
        rows.put(b"b", Bytes::from_static(b"2"))?;
        panic!("as the test wants")
    }));
    let after = put(b"c");
    go.send(()).unwrap();
    wait(async {
        first.await.unwrap();
        before.await.unwrap();
        fails.await.unwrap_err();
        panics.await.unwrap_err();
        after.await.unwrap();
    });
    drop(index);

    let index = Disk::open(dir.path(), Flush::BeforeAnswer).unwrap();
    let snapshot = index.snapshot().unwrap();
    let values = [b"a", b"b", b"c"].map(|key| snapshot.get(key).unwrap());
    let one = Some(Bytes::from_static(b"1"));
    assert_eq!(values, [one.clone(), None, one]);
}
