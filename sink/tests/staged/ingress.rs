//! What stands before a store and answers in its place: of that nothing is concluded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sinks::model::stage::files::Proof;
use sinks::run::stage::pending_uploads;
use sinks::stage::{CommitOutcome, Handle, Opening, Options, StageError, StagedSink, TwoPhaseSink};
use sinks::store::{MultipartStore, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional, sink};
use tokio::net::{TcpListener, TcpStream};

use crate::answers::{Rig, connect_by, opening};
use crate::world::root;

/// What it says itself to a request line; what it says nothing to goes to the store.
type Says = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The page of an ingress that has no backend.
fn not_found(request: &str) -> String {
    let page = "<html><head><title>404 Not Found</title></head></html>\n";
    let head =
        format!("HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: {}\r\n", page.len());
    let body = if request.starts_with("HEAD ") { "" } else { page };
    format!("{head}connection: close\r\n\r\n{body}")
}

async fn passed_on(mut client: TcpStream, to: SocketAddr, says: Says) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.windows(2).position(|end| end == b"\r\n").unwrap_or(head.len());
    if let Some(answer) = says(&String::from_utf8_lossy(&head[..line])) {
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await?;
        let _ = tokio::time::timeout(Duration::from_secs(1), copy(&mut client, &mut sink())).await;
        return Ok(());
    }
    let mut store = TcpStream::connect(to).await?;
    store.write_all(&head[..line]).await?;
    // One request a connection: each is looked at.
    store.write_all(b"\r\nconnection: close").await?;
    store.write_all(&head[line..]).await?;
    copy_bidirectional(&mut client, &mut store).await.map(drop)
}

/// The rig's server behind an ingress that says this.
async fn behind(
    rig: &Rig,
    says: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> Arc<dyn MultipartStore> {
    let server = rig.server.as_ref().expect("a server");
    let (listener, to, says) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), server.address(), Arc::new(says));
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(passed_on(client, to, says.clone()));
        }
    });
    connect_by(server, &endpoint, 2_000)
}

/// A start on this store, which asks each question longer than an upload is looked for before it is lost.
async fn start(
    rig: &Rig,
    store: Arc<dyn MultipartStore>,
    handles: &[Handle],
) -> Result<StagedSink, StageError> {
    let opening = opening(store, rig.ledger.clone(), 2);
    let options = Options { patience_ms: 600, settle_ms: 150, ..opening.options };
    StagedSink::recover(Opening { options, ..opening }, handles.to_vec()).await
}

fn steps(sink: &StagedSink) -> Vec<String> {
    sink.recovered().iter().map(|step| step.to_string()[..2].to_owned()).collect()
}

#[tokio::test]
async fn a_404_of_an_ingress_for_longer_than_the_settle_time_is_in_doubt_and_never_lost() {
    let mut rig = Rig::served(&[]).await;
    let handle = rig.staged(1).await;
    let away = behind(&rig, |request| Some(not_found(request))).await;
    let mut sink = start(&rig, away.clone(), &[]).await.unwrap();
    let outcome = sink.commit(&handle).await.unwrap();
    assert!(
        matches!(&outcome, CommitOutcome::InDoubt { reason } if reason.contains("404 without")),
        "{outcome:?}"
    );
    let error = start(&rig, away.clone(), std::slice::from_ref(&handle)).await.unwrap_err();
    assert!(matches!(error, StageError::Store(_)) && error.exit_code() == 7, "{error}");
    let listed = pending_uploads(away.as_ref(), &root()).await;
    assert!(matches!(listed, Err(Outcome::Unknown(_))), "{listed:?}");
    // One question alone, the others answered: of an upload that is open, then of one that is gone.
    for (method, what) in [("GET", "?uploads"), ("POST", "uploadId"), ("GET", "jsonl")] {
        if what == "jsonl" {
            assert_eq!(rig.store.abort(&handle.key, &handle.upload_id).await, Outcome::Done(()));
        }
        let refused = move |line: &str| line.starts_with(method) && line.contains(what);
        let away = behind(&rig, move |line| refused(line).then(|| not_found(line))).await;
        let error = start(&rig, away, std::slice::from_ref(&handle)).await.unwrap_err();
        assert!(matches!(error, StageError::Store(_)) && error.exit_code() == 7, "{method} {what}: {error}");
    }
    let lost = start(&rig, rig.store.clone(), std::slice::from_ref(&handle)).await.unwrap_err();
    assert!(matches!(lost, StageError::Lost { .. }), "{lost}");
    rig.end().await;
}

/// A HEAD that is answered 404 by whoever stands before the store: the object's own words are in a GET.
#[tokio::test]
async fn a_404_to_head_alone_is_no_absence() {
    let mut rig = Rig::served(&[]).await;
    let handle = rig.staged(1).await;
    assert!(matches!(rig.complete(&handle).await, Outcome::Done(_)));
    let away = behind(&rig, |line| line.starts_with("HEAD ").then(|| not_found(line))).await;
    let sink = start(&rig, away, std::slice::from_ref(&handle)).await.unwrap();
    assert_eq!(steps(&sink), ["T2", "T1", "T7"]);
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::AlreadyCommitted));
    rig.visible(&handle, Proof::Token).await;
    rig.end().await;
}

/// A listing of three pages whose markers are `key` with these ids; the last page has the upload `last`.
fn listing(
    key: &str,
    ids: [&'static str; 2],
    last: &str,
) -> impl Fn(&str) -> Option<String> + Send + Sync + 'static {
    let (key, last) = (key.to_owned(), last.to_owned());
    move |line: &str| {
        let after = |id: &str| line.contains(&format!("upload-id-marker={id}"));
        let upload = |id: &str| {
            format!(
                "<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload><IsTruncated>{}</IsTruncated>",
                id != last
            )
        };
        let page = |id: &str| {
            format!(
                "{}<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>",
                upload(id)
            )
        };
        let [first, second] = ids;
        let page = match line {
            _ if !line.starts_with("GET ") || !line.contains("?uploads") => return None,
            _ if after(second) && first != second => upload(&last),
            _ if after(first) => page(second),
            _ => page(first),
        };
        let body = format!("<ListMultipartUploadsResult>{page}</ListMultipartUploadsResult>");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        Some(head + &body)
    }
}

/// Uploads of one key are listed in the order of their begin, whatever their ids are.
#[tokio::test]
async fn a_listing_whose_ids_go_down_is_read_to_its_end_and_one_that_leads_back_is_no_listing() {
    let mut rig = Rig::served(&[]).await;
    let handle = rig.staged(1).await;
    let round = behind(&rig, listing(&handle.key, ["x", "x"], &handle.upload_id.0)).await;
    let error = start(&rig, round.clone(), std::slice::from_ref(&handle)).await.unwrap_err();
    assert!(error.to_string().contains("leads back") && error.exit_code() == 7, "{error}");
    assert!(matches!(pending_uploads(round.as_ref(), &root()).await, Err(Outcome::Unknown(_))));
    let down = behind(&rig, listing(&handle.key, ["x", "b"], &handle.upload_id.0)).await;
    assert_eq!(pending_uploads(down.as_ref(), &root()).await.unwrap().ours.len(), 3);
    let sink = start(&rig, down, std::slice::from_ref(&handle)).await.unwrap();
    assert_eq!(steps(&sink), ["T3", "T1", "T7"]);
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::AlreadyCommitted));
    rig.end().await;
}
