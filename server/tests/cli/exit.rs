//! What ends it, with which code, and what it says.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::client::wire::{Wire, head, within};
use crate::process::{Ended, Process, command, run};

/// One line for the person at the terminal, which names what is wrong.
#[track_caller]
fn usage(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.starts_with("assay-server: "), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "expected {word:?} in {ended:?}");
    }
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

fn with_data(data: &Path) -> Ended {
    run(command(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]))
}

#[tokio::test]
async fn a_free_port_is_taken_and_announced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("endpoint");
    let ready = file.to_str().unwrap();
    let process = Process::start(&["--bucket", "bucket", "--bucket", "second", "--ready-file", ready]);
    let mut wire = process.connect().await;
    wire.ask("GET", "/_assay/health", &[], b"").await.expect(200);
    let names = wire.ask("GET", "/", &[], b"").await.expect(200).all("Buckets/Bucket/Name");
    assert_eq!(names, ["bucket", "second"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("http://{}\n", process.address));
    let other = Process::start(&[]);
    assert_ne!(other.address, process.address);
}

#[tokio::test]
async fn sigterm_ends_it_with_0_and_sigint_with_130() {
    for (signal, code) in [("-TERM", 0), ("-INT", 130)] {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::on(directory.path());
        let mut wire = process.connect().await;
        wire.ask("PUT", "/bucket/k", &[], b"kept").await.expect(200);
        // A request under way is finished first.
        wire.send(head("PUT", "/bucket/late", &[("expect", "100-continue")], 4)).await;
        assert_eq!(wire.head().await.status, 100);
        process.signal(signal);
        wire.send("late").await;
        wire.answer(false).await.expect(200);
        let ended = process.ended();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{signal}");
        let mut wire = Process::on(directory.path()).connect_and_keep().await;
        assert_eq!(wire.1.ask("GET", "/bucket/k", &[], b"").await.expect(200).text(), "kept");
        assert_eq!(wire.1.ask("GET", "/bucket/late", &[], b"").await.expect(200).text(), "late");
    }
}

impl Process {
    /// A connection together with the process that it needs.
    async fn connect_and_keep(self) -> (Self, Wire) {
        let wire = self.connect().await;
        (self, wire)
    }
}

#[tokio::test]
async fn it_goes_on_where_nobody_reads_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut server = command(&["--listen", "127.0.0.1:0", "--ready-file", ready.to_str().unwrap()]);
    let mut child = server.stdout(writer).stderr(std::process::Stdio::null()).spawn().unwrap();
    let answered = within(async {
        let address = loop {
            match std::fs::read_to_string(&ready) {
                Ok(text) => break text.trim().strip_prefix("http://").unwrap().parse().unwrap(),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        Wire::connect(address).await.ask("GET", "/_assay/health", &[], b"").await.status
    })
    .await;
    let running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((answered, running), (200, true));
}

#[test]
fn a_port_in_use_is_said_in_one_line() {
    let first = Process::start(&[]);
    let address = first.address.to_string();
    usage(&run(command(&["--listen", &address])), &[&address, "cannot listen", "port 0"]);
}

#[test]
fn a_directory_that_cannot_be_used_is_said_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);

    let file = path("file");
    std::fs::write(&file, "a file").unwrap();
    usage(&with_data(&file), &["file", "not a directory"]);

    let foreign = path("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("holiday.jpg"), "").unwrap();
    usage(&with_data(&foreign), &["foreign", "holiday.jpg", "not ours"]);
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1, "nothing was written there");

    let newer = path("newer");
    std::fs::create_dir(&newer).unwrap();
    std::fs::write(newer.join("assay-format"), "assay-server data, format 99\n").unwrap();
    usage(&with_data(&newer), &["newer", "99"]);

    let closed = path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    // Whoever may write everywhere is not refused here; nobody else gets in.
    if std::fs::read_dir(&closed).is_err() {
        usage(&with_data(&closed), &["closed"]);
    }
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = Process::on(directory.path());
    usage(&with_data(directory.path()), &["in use by another server"]);
    drop(first);
    assert!(Process::on(directory.path()).id() > 0);
}

#[test]
fn a_damaged_index_is_an_alarm_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let first = Process::on(directory.path());
    first.signal("-TERM");
    assert_eq!(first.ended().code, Some(0));
    let index = directory.path().join("index.redb");
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[..64].fill(0xA5);
    std::fs::write(&index, bytes).unwrap();
    let ended = with_data(directory.path());
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[test]
fn a_setting_that_is_none_is_said() {
    usage(&run(command(&["--listen", "127.0.0.1:0", "--bucket", "Bad_Name"])), &["Bad_Name"]);
    usage(&run(command(&["--listen", "127.0.0.1:0", "--log", "a=b=c"])), &["a=b=c"]);
    usage(&run(command(&["--listen", "127.0.0.1:0", "--region", ""])), &["region"]);
    let ready = ["--listen", "127.0.0.1:0", "--ready-file", "/nowhere/at/all/endpoint"];
    let ended = run(command(&ready));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("/nowhere/at/all/endpoint"), "{ended:?}");
    for arguments in [&["--no-such-flag"][..], &["--listen", "nonsense"], &["--auth", "maybe"], &["serve"]] {
        let ended = run(command(arguments));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(arguments.last().unwrap()), "{ended:?}");
    }
}
