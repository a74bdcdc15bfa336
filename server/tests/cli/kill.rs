//! `kill -9` under write load: what was acknowledged is there and whole, nothing is half there, nothing is left over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::files_in;
use crate::client::wire::head;
use crate::process::Process;

const WRITERS: usize = 8;
const LIVES: usize = 4;
/// Writes that are acknowledged before the kill strikes.
const ACKNOWLEDGED: usize = 120;

/// Says who wrote it and when; small, in a row, and in a file.
fn body_of(writer: usize, number: usize) -> String {
    let word = format!("{writer}-{number} ");
    word.repeat([1, 5_000, 30_000][number % 3])
}

/// One key of its own that a writer overwrites, and one for each second write.
fn key_of(writer: usize, number: usize) -> String {
    if number.is_multiple_of(2) { format!("w{writer}") } else { format!("w{writer}/{number}") }
}

/// What a writer knows: of each key the last acknowledged number, and the number that was under way.
#[derive(Debug, Default)]
struct Known {
    acknowledged: BTreeMap<String, usize>,
    next: usize,
}

/// Writes until the connection breaks.
async fn write(
    process: std::net::SocketAddr,
    writer: usize,
    mut known: Known,
    count: Arc<AtomicUsize>,
) -> Known {
    let Ok(mut stream) = TcpStream::connect(process).await else { return known };
    loop {
        let number = known.next;
        let (key, body) = (key_of(writer, number), body_of(writer, number));
        let request = head("PUT", &format!("/bucket/{key}"), &[], body.len() as u64) + &body;
        let mut answer = Vec::new();
        let done = async {
            stream.write_all(request.as_bytes()).await?;
            while !answer.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut answer).await? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok::<_, std::io::Error>(())
        };
        if done.await.is_err() {
            known.next += 1; // it may have landed
            return known;
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        known.acknowledged.insert(key, number);
        known.next += 1;
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Every acknowledged write is there and whole, and so is whatever else is there.
async fn judge(process: &Process, writers: &[Known]) -> usize {
    let mut wire = process.connect().await;
    let keys = {
        let mut keys = Vec::new();
        let mut after = String::new();
        loop {
            let list = format!("/bucket?list-type=2&start-after={after}");
            let page = wire.ask("GET", &list, &[], b"").await.expect(200);
            keys.extend(page.all("Contents/Key"));
            if page.only("IsTruncated") == "false" {
                break keys;
            }
            after = keys.last().unwrap().clone();
        }
    };
    for known in writers {
        for key in known.acknowledged.keys() {
            assert!(keys.contains(key), "{key} was acknowledged and is gone");
        }
    }
    let mut files = 0;
    for key in &keys {
        let found = wire.ask("GET", &format!("/bucket/{key}"), &[], b"").await.expect(200).text();
        let (writer, rest) = found.split_once('-').unwrap();
        let (writer, number): (usize, usize) =
            (writer.parse().unwrap(), rest.split_once(' ').unwrap().0.parse().unwrap());
        assert!(found == body_of(writer, number), "{key} is not whole: {} bytes", found.len());
        assert_eq!(*key, key_of(writer, number));
        if let Some(acknowledged) = writers[writer].acknowledged.get(key) {
            assert!(number >= *acknowledged, "{key} has {number}, {acknowledged} was acknowledged");
        }
        files += usize::from(found.len() > 32 * 1024);
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_and_nothing_is_half_there() {
    survive(&[]).await;
}

/// What the system has is not lost with the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_that_were_not_flushed_survive_too() {
    survive(&["--no-flush"]).await;
}

async fn survive(flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let data = directory.path().to_str().unwrap();
        Process::start(&[&["--data", data, "--bucket", "bucket"], flags].concat())
    };
    let mut writers: Vec<Known> = (0..WRITERS).map(|_| Known::default()).collect();
    for _ in 0..LIVES {
        let process = start();
        let files = judge(&process, &writers).await;
        assert_eq!(files_in(directory.path()).len(), files, "files that no object needs were swept");
        let count = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for (writer, known) in writers.drain(..).enumerate() {
            let (address, count) = (process.address, Arc::clone(&count));
            tasks.spawn(async move { (writer, write(address, writer, known, count).await) });
        }
        while count.load(Ordering::Relaxed) < ACKNOWLEDGED {
            tokio::task::yield_now().await;
        }
        process.signal("-KILL");
        let mut ended = tasks.join_all().await;
        ended.sort_by_key(|(writer, _)| *writer);
        writers = ended.into_iter().map(|(_, known)| known).collect();
        drop(process);
    }
    let process = start();
    let files = judge(&process, &writers).await;
    assert_eq!(files_in(directory.path()).len(), files);
    assert!(writers.iter().map(|known| known.next).sum::<usize>() >= LIVES * ACKNOWLEDGED);
}
